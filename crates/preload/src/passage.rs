//! Carries a managed call through the gate.

use std::sync::atomic::Ordering::Relaxed;

use plimsoll::core::Op;
use plimsoll::{Call, Passed, Permit};

use crate::fds::{Fd, Managed};
use crate::handover::{Counters, Kind, Past};
use crate::state::{self, Inside, Office};
use crate::{errno, names};

/// Bytes written into the page cache that are charged together.
const DIRTY_BYTES: u64 = 1 << 20;

/// A call whose class is known.
pub(crate) struct Passage {
    office: &'static Office,
    counters: &'static Counters,
    entry: &'static Fd,
    call: Call,
    class: usize,
    errno_before: i32,
    _inside: Inside,
}

impl Passage {
    /// Finds the class of a call on `managed` that moves `len_bytes`. If the call bypasses the gate, counts that and
    /// returns `None`.
    pub(crate) fn find(managed: Managed, kind: Kind, len_bytes: usize, offset: i64) -> Option<Passage> {
        let Managed { fd, entry, rules: of_path } = managed;
        let counters = state::counters()?;
        let errno_before = errno::get();
        let past = |why: Past| {
            counters.past_bytes[why as usize].fetch_add(len_bytes as u64, Relaxed);
            errno::set(errno_before);
            None
        };
        if state::is_forked() {
            return past(Past::Forked);
        }
        let Some(inside) = state::go_inside() else { return past(Past::Nested) };
        let run = state::run()?;
        let Some(office) = state::office() else {
            return past(if state::is_refused() { Past::OtherProcess } else { Past::Nested });
        };

        let (rule, class) = run.rules.first(of_path, names::of_this_thread(&run.rules), kind);
        counters.matched[rule][kind as usize].fetch_add(1, Relaxed);

        let op = match kind {
            Kind::Read => Op::Read,
            Kind::Write => Op::Write,
            Kind::Sync => Op::Flush,
            Kind::Allocate => Op::Allocate,
        };
        let call = Call {
            class: office.classes.get(class).copied().unwrap_or(plimsoll::Class::DEFAULT),
            op,
            len_bytes: 0,
            offset_bytes: offset.max(0) as u64,
            file: state::file_number(run, office, fd, entry),
        };
        Some(Passage { office, counters, entry, call, class, errno_before, _inside: inside })
    }

    fn enter(&self, op: Op, len_bytes: usize, at: usize) -> Option<Permit<'static>> {
        let call = Call {
            op,
            len_bytes: u32::try_from(len_bytes).unwrap_or(1 << 30),
            offset_bytes: self.call.offset_bytes.saturating_add(at as u64),
            ..self.call
        };
        match self.office.gate.enter_for(call) {
            Ok(permit) => Some(permit),
            Err(_) => {
                self.counters.past_bytes[Past::Refused as usize].fetch_add(len_bytes as u64, Relaxed);
                None
            }
        }
    }

    fn count(&self, op: Op, bytes: u64, passed: Passed) {
        let Some(class) = self.counters.classes.get(self.class) else { return };
        let done = &class.done[usize::from(op != Op::Read)];
        done.calls.fetch_add(1, Relaxed);
        done.bytes.fetch_add(bytes, Relaxed);
        done.waited.record(passed.waited_ns);
        done.total.record(passed.total_ns);
        state::copy_waits(self.office, passed.at_ns);
    }

    fn end(&self, permit: Option<Permit<'_>>, op: Op, result: isize) {
        let Some(permit) = permit else { return };
        // If the call was charged in pieces, this permit is only for the last one.
        let most = if op.is_transfer() { permit.len_bytes() } else { 0 };
        let moved = u32::try_from(result).map(|moved| moved.min(most));
        let passed = permit.end(moved.map_err(|_| errno::get()));
        self.count(op, u64::from(moved.unwrap_or(0)), passed);
    }

    /// Ends the call. If it failed, sets its `errno`; otherwise restores the one before.
    fn finish(self, result: isize, errno_of_call: i32) -> isize {
        errno::set(if result < 0 { errno_of_call } else { self.errno_before });
        result
    }

    /// Moves `len_bytes` with as many calls of `part(offset, len)` as it takes.
    pub(crate) fn in_parts(self, len_bytes: usize, mut part: impl FnMut(usize, usize) -> isize) -> isize {
        let op = self.call.op;
        let mut moved = 0;
        loop {
            let permit = self.enter(op, len_bytes - moved, moved);
            let len = permit.as_ref().map_or(len_bytes - moved, |permit| permit.len_bytes() as usize);
            let result = part(moved, len);
            let errno = errno::get();
            self.end(permit, op, result);
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

    /// Makes a call that cannot be cut: all but its last piece is charged in advance.
    pub(crate) fn whole(self, len_bytes: usize, call: impl FnOnce() -> isize) -> isize {
        let op = self.call.op;
        let permit = if op == Op::Read || op == Op::Write { self.charge(op, len_bytes) } else { self.enter(op, 0, 0) };
        let result = call();
        let errno = errno::get();
        self.end(permit, op, result);
        self.finish(result, errno)
    }

    /// Charges `len_bytes` in pieces. Returns the permit of the last one.
    fn charge(&self, op: Op, len_bytes: usize) -> Option<Permit<'static>> {
        let mut left = len_bytes;
        loop {
            let permit = self.enter(op, left, len_bytes - left)?;
            let allowed = permit.len_bytes() as usize;
            if allowed >= left {
                return Some(permit);
            }
            self.end(Some(permit), op, allowed as isize);
            left -= allowed;
        }
    }

    /// Makes a write into the page cache. It is charged once a MiB is dirty, or when the file is synced.
    pub(crate) fn buffered(self, len_bytes: usize, call: impl FnOnce() -> isize) -> isize {
        let before = self.entry.dirty_bytes.load(Relaxed);
        if before.saturating_add(len_bytes as u64) >= DIRTY_BYTES {
            let dirty = self.entry.dirty_bytes.swap(0, Relaxed) as usize;
            let permit = self.charge(Op::Write, dirty);
            self.end(permit, Op::Write, dirty as isize);
        }
        let result = call();
        let errno = errno::get();
        if result > 0 {
            self.entry.dirty_bytes.fetch_add(result as u64, Relaxed);
        }
        self.finish(result, errno)
    }

    /// Makes a call that writes dirty bytes to the disk. Charges those, then `call` itself as `Op::Flush`. If it only
    /// `writes`, `call` is the last of the charged writes instead.
    pub(crate) fn sync(self, writes: bool, call: impl FnOnce() -> isize) -> isize {
        let dirty = self.entry.dirty_bytes.swap(0, Relaxed) as usize;
        let mut permit = if dirty > 0 { self.charge(Op::Write, dirty) } else { None };
        let mut op = Op::Write;
        if !writes {
            self.end(permit.take(), Op::Write, dirty as isize);
            op = Op::Flush;
            permit = self.enter(op, 0, 0);
        }
        let result = call();
        let errno = errno::get();
        self.end(permit, op, if result < 0 { result } else { dirty as isize });
        self.finish(result, errno)
    }
}
