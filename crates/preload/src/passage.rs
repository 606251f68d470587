//! Carries a managed call through the gate.

use std::sync::atomic::Ordering::Relaxed;

use plimsoll::{Call, Class, Passed};

use crate::fds::{self, DIRECT, Managed, SYNC};
use crate::handover::{Counters, Kind, Past};
use crate::inside::{self, Admitted, Inside};
use crate::route::{self, Route};
use crate::slots::{self, Denied};
use crate::{errno, files, load, names, state};

/// Bytes written into the page cache that are charged together.
const DIRTY_BYTES: u64 = 1 << 20;

/// A call whose class is known.
pub(crate) struct Passage {
    counters: &'static Counters,
    managed: Managed,
    kind: Kind,
    class: usize,
    offset_bytes: u64,
    errno_before: i32,
    inside: Inside,
}

/// Fails as a call on a closed descriptor.
fn closed() -> isize {
    errno::set(libc::EBADF);
    -1
}

impl Passage {
    /// Finds the class of a call on `managed` that moves `len_bytes`. If the call bypasses the gate, counts that and
    /// returns `None`.
    pub(crate) fn find(managed: Managed, kind: Kind, len_bytes: usize, offset: i64) -> Option<Passage> {
        Passage::of_part(managed, kind, len_bytes, offset, true)
    }

    /// Finds the class of a part of a call, which is counted with its first part.
    fn of_part(managed: Managed, kind: Kind, len_bytes: usize, offset: i64, is_first: bool) -> Option<Passage> {
        let counters = state::counters()?;
        let errno_before = errno::get();
        load::notice_fork();
        let past = |why: Past| {
            counters.past_bytes[why as usize].fetch_add(len_bytes as u64, Relaxed);
            errno::set(errno_before);
            None
        };
        let Some(inside) = inside::go_inside(managed.frame) else { return past(Past::Nested) };
        if let Route::Bypass(why) = route::route(counters) {
            return past(why);
        }

        let rules = &state::run()?.rules;
        let (rule, class) = rules.first(managed.rules, names::of_this_thread(rules), kind);
        counters.matched[rule][kind as usize].fetch_add(u64::from(is_first), Relaxed);
        let offset_bytes = offset.max(0) as u64;
        Some(Passage { counters, managed, kind, class, offset_bytes, errno_before, inside })
    }

    /// Waits until a part of the call, `at` bytes from its beginning, is admitted. If the part bypasses the gate,
    /// counts that and returns `None`.
    fn enter(&self, kind: Kind, len_bytes: usize, at: usize) -> Option<Admitted> {
        let asked_bytes = u32::try_from(len_bytes).unwrap_or(1 << 30);
        let offset_bytes = self.offset_bytes.saturating_add(at as u64);
        let mut route = route::route(self.counters);
        let why = loop {
            match route {
                Route::Own(own) => {
                    let class = own.classes.get(self.class).copied().unwrap_or(Class::DEFAULT);
                    let file = files::file_number(own, self.managed);
                    let call = Call { class, op: kind.op(), len_bytes: asked_bytes, offset_bytes, file };
                    match own.gate.enter_for(call) {
                        Ok(permit) => return Some(Admitted::Local(permit)),
                        Err(_) => break Past::Refused,
                    }
                }
                Route::Owner => match slots::ask(self.counters, self.class, kind, asked_bytes, offset_bytes) {
                    Ok(permit) => return Some(Admitted::Remote(permit)),
                    Err(Denied::Refused) => break Past::Refused,
                    Err(Denied::NoSlot) => break Past::OtherProcess,
                    Err(Denied::Gone) => route = route::find_route(),
                },
                Route::Bypass(why) => break why,
            }
        };

        self.counters.past_bytes[why as usize].fetch_add(len_bytes as u64, Relaxed);
        None
    }

    fn count(&self, kind: Kind, bytes: u64, passed: Passed) {
        let Some(class) = self.counters.classes.get(self.class) else { return };
        let done = &class.done[usize::from(kind != Kind::Read)];
        done.bytes.fetch_add(bytes, Relaxed);
        if passed.waited_ns > 0 {
            done.waited.record(passed.waited_ns);
        }
        done.total.record(passed.total_ns);
    }

    fn end(&self, admitted: Option<Admitted>, kind: Kind, result: isize) {
        let Some(admitted) = admitted else { return };
        // If the call was charged in pieces, this permit is only for the last one.
        let most = if matches!(kind, Kind::Read | Kind::Write) { admitted.len_bytes() } else { 0 };
        let moved = usize::try_from(result).map(|moved| moved.min(most) as u32);
        let passed = admitted.end(moved.map_err(|_| errno::get()));
        self.count(kind, u64::from(moved.unwrap_or(0)), passed);
    }

    /// Makes the system call that `permit` is for, and ends the permit. Leaves `errno` as the call set it.
    fn call(&self, permit: Option<Admitted>, kind: Kind, call: impl FnOnce() -> isize) -> isize {
        if let Some(permit) = permit {
            self.inside.hold(permit);
        }
        let result = self.unless_closed(call);
        let errno = errno::get();
        self.end(self.inside.take(), kind, result);
        errno::set(errno);
        result
    }

    /// Makes the system call, unless the descriptor was closed while the call waited: its number may be another file's.
    fn unless_closed(&self, call: impl FnOnce() -> isize) -> isize {
        if self.managed.is_open() { call() } else { closed() }
    }

    /// Ends the call. If it failed, sets its `errno`; otherwise restores the `errno` from before it.
    fn finish(self, result: isize, errno_of_call: i32) -> isize {
        errno::set(if result < 0 { errno_of_call } else { self.errno_before });
        result
    }

    /// Moves `len_bytes` with as many calls of `part(offset, len)` as needed.
    pub(crate) fn in_parts(self, len_bytes: usize, mut part: impl FnMut(usize, usize) -> isize) -> isize {
        let kind = self.kind;
        let (mut moved, mut file) = (0, self.managed);
        loop {
            let permit = self.enter(kind, len_bytes - moved, moved);
            let len = permit.as_ref().map_or(len_bytes - moved, Admitted::len_bytes);
            if moved == 0 {
                file = file.renewed();
            }
            // All parts are of the file that the first one is of.
            let result = self.call(permit, kind, || if file.is_same() { part(moved, len) } else { closed() });
            let errno = errno::get();
            if result < 0 {
                let all = if moved > 0 { moved as isize } else { result };
                return self.finish(all, errno);
            }
            moved += result as usize;
            if (result as usize) < len || moved >= len_bytes {
                return self.finish(moved as isize, 0);
            }
        }
    }

    /// Makes a call that cannot be cut. All pieces but the last are charged in advance.
    pub(crate) fn whole(self, len_bytes: usize, call: impl FnOnce() -> isize) -> isize {
        let kind = self.kind;
        let is_transfer = matches!(kind, Kind::Read | Kind::Write);
        let permit = if is_transfer { self.charge(kind, len_bytes) } else { self.enter(kind, 0, 0) };
        let result = self.call(permit, kind, call);
        self.finish(result, errno::get())
    }

    /// Charges `len_bytes` in pieces. Returns the permit of the last piece.
    fn charge(&self, kind: Kind, len_bytes: usize) -> Option<Admitted> {
        let (mut charged, mut end) = (0, len_bytes);
        let mut is_end_known = kind != Kind::Read;
        loop {
            let permit = self.enter(kind, end - charged, charged)?;
            let allowed = permit.len_bytes();
            if allowed < end - charged && !is_end_known {
                is_end_known = true;
                let all = fds::bytes_to_the_end(self.managed.fd, self.offset_bytes as i64);
                end = all.map_or(end, |all| all.clamp(charged, end));
            }
            if allowed >= end - charged {
                return Some(permit);
            }
            self.end(Some(permit), kind, allowed as isize);
            charged += allowed;
        }
    }

    /// Makes a write into the page cache. Its bytes are charged once a MiB is dirty, including bytes that closed files
    /// left to the class, or at a sync.
    pub(crate) fn buffered(self, len_bytes: usize, call: impl FnOnce() -> isize) -> isize {
        self.charge_dirty(len_bytes);
        let result = self.unless_closed(call);
        let errno = errno::get();
        self.note_dirty(usize::try_from(result).unwrap_or(0));
        self.finish(result, errno)
    }

    fn note_dirty(&self, len_bytes: usize) {
        let entry = self.managed.entry;
        if len_bytes > 0 {
            entry.class.store(self.class as u32, Relaxed);
            entry.dirty_bytes.fetch_add(len_bytes as u64, Relaxed);
        }
    }

    /// Charges the dirty bytes if they reach a MiB together with the `len_bytes` that follow.
    fn charge_dirty(&self, len_bytes: usize) {
        let entry = self.managed.entry;
        let left_bytes = self.counters.classes.get(self.class).map(|class| &class.left_bytes);
        let left = left_bytes.map_or(0, |bytes| bytes.load(Relaxed));
        let before = entry.dirty_bytes.load(Relaxed).saturating_add(left);
        if before.saturating_add(len_bytes as u64) >= DIRTY_BYTES {
            let left = left_bytes.map_or(0, |bytes| bytes.swap(0, Relaxed));
            let dirty = entry.dirty_bytes.swap(0, Relaxed).saturating_add(left) as usize;
            let permit = self.charge(Kind::Write, dirty);
            self.end(permit, Kind::Write, dirty as isize);
        }
    }

    /// Charges a part of a call that has already moved `len_bytes`, because the number was unknown before.
    pub(crate) fn charge_moved(managed: Managed, kind: Kind, len_bytes: usize, offset: i64, is_first: bool) {
        let Some(passage) = Passage::of_part(managed, kind, len_bytes, offset, is_first) else { return };
        if kind == Kind::Write && !managed.entry.has(DIRECT | SYNC) {
            passage.note_dirty(len_bytes);
            passage.charge_dirty(0);
        } else {
            let permit = passage.charge(kind, len_bytes);
            passage.end(permit, kind, len_bytes as isize);
        }
        passage.finish(0, 0);
    }

    /// Makes a call that writes dirty bytes to the disk. Charges those, then `call` itself as `Kind::Sync`. If the call
    /// only `writes`, it counts as the last of the charged writes instead.
    pub(crate) fn sync(self, writes: bool, call: impl FnOnce() -> isize) -> isize {
        let dirty = self.managed.entry.dirty_bytes.swap(0, Relaxed) as usize;
        let mut permit = if dirty > 0 { self.charge(Kind::Write, dirty) } else { None };
        let mut kind = Kind::Write;
        if !writes {
            self.end(permit.take(), Kind::Write, dirty as isize);
            kind = Kind::Sync;
            permit = self.enter(kind, 0, 0);
        }
        // Not made if the descriptor was closed meanwhile.
        let mut result = -1;
        self.call(permit, kind, || {
            result = call();
            if result < 0 { result } else { dirty as isize }
        });
        self.finish(result, errno::get())
    }
}
