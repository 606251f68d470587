//! The managed descriptors and their files: a table of atomics, so that a call on any other descriptor costs two loads.
//! Its parts are made with the first descriptor that is managed there.
//!
//! A file gets its number in traces at its first call through the gate, not when it is opened. The number is released
//! when the descriptor's next file is named, so there are never more numbers than descriptors, even if descriptors are
//! closed unnoticed.
//!
//! If a descriptor is closed or replaced, its written bytes that are not charged yet are left to their class.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use libc::{c_int, off_t, size_t};

use crate::{apart, errno, inside, real, state};

/// Descriptors of a part of the table.
const PART_FDS: usize = 1 << 10;
/// Parts of the table. Descriptors above 1,048,575, the highest that Linux allows by default (`fs.nr_open`), are not
/// managed.
const PARTS_MAX: usize = 1 << 10;

/// Flag: the file was opened with `O_DIRECT`.
pub(crate) const DIRECT: u32 = 1;
/// Flag: the file was opened with `O_APPEND`.
pub(crate) const APPEND: u32 = 2;
/// Flag: the file's file system does not support `RWF_NOWAIT`.
pub(crate) const NO_NOWAIT: u32 = 4;
/// Flag: the file was opened with `O_SYNC` or `O_DSYNC`, so its writes reach the disk.
pub(crate) const SYNC: u32 = 8;

/// Returns the flags of a descriptor that has these of the kernel.
pub(crate) fn flags_of(kernels: c_int) -> u32 {
    let flag = |of: c_int, is: u32| if kernels & of != 0 { is } else { 0 };
    flag(libc::O_DIRECT, DIRECT) | flag(libc::O_APPEND, APPEND) | flag(libc::O_SYNC | libc::O_DSYNC, SYNC)
}

/// One descriptor.
pub(crate) struct Fd {
    /// The rules whose path pattern matches, one bit each; 0 if not managed.
    rules: AtomicU64,
    /// Bytes written into the page cache and not charged yet.
    pub(crate) dirty_bytes: AtomicU64,
    /// Number of the class that last wrote such bytes.
    pub(crate) class: AtomicU32,
    pub(crate) flags: AtomicU32,
    /// The file's number in traces, plus 1; 0 for none. With [`STALE`], the number of the descriptor's previous file.
    file: AtomicU32,
    /// Number of times that the descriptor was closed or opened.
    uses: AtomicU32,
    /// Number of times that `dup2` put another file in its place, which closes it at no moment.
    replaced: AtomicU32,
}

/// Flag in a file number: the descriptor's present file has none yet.
const STALE: u32 = 1 << 31;

/// A part of the table. It consists of atomics, for which zeros are valid: no descriptor is managed.
type Part = [Fd; PART_FDS];

/// The parts; null for those without a descriptor. Never freed: threads may use them until the process ends.
static TABLE: [AtomicPtr<Part>; PARTS_MAX] = [const { AtomicPtr::new(null_mut()) }; PARTS_MAX];

/// Returns the entry of `fd`; `None` if its part was never used.
#[inline(always)]
fn entry(fd: i32) -> Option<&'static Fd> {
    let part = TABLE.get(fd as usize / PART_FDS)?.load(Acquire);
    // SAFETY: null, or a part that `made` has allocated, which is never freed.
    let part = unsafe { part.as_ref() }?;
    part.get(fd as usize % PART_FDS)
}

/// Returns the entry of `fd`. Makes its part if there is none. `None` if the number is too high, or without memory.
fn made(fd: i32) -> Option<&'static Fd> {
    let place = TABLE.get(fd as usize / PART_FDS)?;
    if place.load(Acquire).is_null() {
        // Not by way of the stack: that of a signal handler may be shorter.
        let layout = Layout::new::<Part>();
        // SAFETY: the layout is not empty.
        let part: *mut Part = unsafe { alloc_zeroed(layout) }.cast();
        if !part.is_null() && place.compare_exchange(null_mut(), part, AcqRel, Acquire).is_err() {
            // SAFETY: allocated above with this layout. Another thread was first, so nobody else has it.
            unsafe { dealloc(part.cast(), layout) };
        }
    }
    entry(fd)
}

/// A managed descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Managed {
    pub(crate) fd: i32,
    pub(crate) entry: &'static Fd,
    /// The rules whose path pattern matches, one bit each.
    pub(crate) rules: u64,
    /// An address in the frame of the call.
    pub(crate) frame: usize,
    uses: u32,
    replaced: u32,
}

impl Managed {
    /// Returns whether the descriptor was not closed since the call began. `dup2` may have put another file in its
    /// place.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.entry.uses.load(Relaxed) == self.uses
    }

    /// Returns whether the descriptor is still that of the same file as when the call began, or at
    /// [`Managed::renewed`].
    #[inline]
    pub(crate) fn is_same(&self) -> bool {
        self.is_open() && self.entry.replaced.load(Relaxed) == self.replaced
    }

    /// Returns the descriptor with the file that is in its place now.
    #[inline]
    pub(crate) fn renewed(self) -> Managed {
        Managed { replaced: self.entry.replaced.load(Relaxed), ..self }
    }
}

/// Returns the table entry of `fd`, if it is managed. The numbers in calls of the library's own threads are others.
#[inline(always)]
pub(crate) fn managed(fd: i32) -> Option<Managed> {
    let entry = entry(fd)?;
    let rules = entry.rules.load(Relaxed);
    if rules == 0 || apart::is_ours() {
        return None;
    }
    let (uses, replaced) = (entry.uses.load(Relaxed), entry.replaced.load(Relaxed));
    Some(Managed { fd, entry, rules, frame: inside::frame(), uses, replaced })
}

/// Manages `fd` from now on.
pub(crate) fn manage(fd: i32, rules: u64, flags: u32) {
    let Some(entry) = made(fd) else { return };
    entry.uses.fetch_add(1, Relaxed);
    entry.take(rules, flags);
}

/// Forgets `fd`, which was closed or replaced.
pub(crate) fn forget(fd: i32) {
    let Some(entry) = entry(fd) else { return };
    if entry.rules.load(Relaxed) != 0 {
        entry.rules.store(0, Relaxed);
        entry.uses.fetch_add(1, Relaxed);
        entry.leave_dirty();
    }
}

/// Leaves the dirty bytes of all descriptors to their classes. Call this when the process ends, which closes them.
pub(crate) fn leave_all_dirty() {
    used().for_each(|(_, entry)| entry.leave_dirty());
}

/// Forgets all dirty bytes. Call this after `fork`: they are the parent's.
pub(crate) fn forget_dirty() {
    let dirty = used().filter(|(_, entry)| entry.dirty_bytes.load(Relaxed) != 0);
    dirty.for_each(|(_, entry)| entry.dirty_bytes.store(0, Relaxed));
}

/// Returns the managed descriptors.
pub(crate) fn all_managed() -> impl Iterator<Item = (i32, &'static Fd)> {
    used().filter(|(_, entry)| entry.rules.load(Relaxed) != 0)
}

/// Returns the entries of the parts that were ever used.
fn used() -> impl Iterator<Item = (i32, &'static Fd)> {
    let firsts = (0..PARTS_MAX).map(|part| (part * PART_FDS) as i32).filter(|first| entry(*first).is_some());
    firsts.flat_map(|first| (first..first + PART_FDS as i32).filter_map(|fd| Some((fd, entry(fd)?))))
}

/// Manages `new`, which was not in use, as a duplicate of `old`. Dirty bytes stay with `old`.
pub(crate) fn duplicate(old: i32, new: i32) {
    match managed(old) {
        Some(Managed { entry, rules, .. }) => manage(new, rules, entry.flags.load(Relaxed)),
        None => forget(new),
    }
}

/// Manages `new` as a duplicate of `old`, which has taken its place. A call that waits at `new` is then for this file,
/// as if it had begun afterwards.
pub(crate) fn replace(old: i32, new: i32) {
    let entry = entry(new).filter(|entry| entry.rules.load(Relaxed) != 0);
    match entry {
        _ if old == new => {}
        None => duplicate(old, new),
        Some(entry) => {
            entry.replaced.fetch_add(1, Relaxed);
            let (rules, flags) = managed(old).map_or((0, 0), |old| (old.rules, old.entry.flags.load(Relaxed)));
            entry.take(rules, flags);
        }
    }
}

/// Forgets the descriptors from `first` to `last`.
pub(crate) fn forget_range(first: u32, last: u32) {
    all_managed().map(|(fd, _)| fd).filter(|fd| (first..=last).contains(&fd.unsigned_abs())).for_each(forget);
}

/// Forgets the files' numbers, which belong to another gate.
pub(crate) fn forget_names() {
    let named = used().filter(|(_, entry)| entry.file.load(Relaxed) != 0);
    named.for_each(|(_, entry)| entry.file.store(0, Relaxed));
}

impl Fd {
    /// Takes another file.
    fn take(&self, rules: u64, flags: u32) {
        self.leave_dirty();
        self.flags.store(flags, Relaxed);
        self.file.fetch_or(STALE, Relaxed);
        self.rules.store(rules, Relaxed);
    }

    /// Asks the kernel for the flags of `fd`: its duplicates have them in common, those in other processes, too.
    pub(crate) fn renew_flags(&self, fd: c_int) {
        // SAFETY: it returns the flags of a descriptor, and touches no memory.
        let flags = errno::keep(|| unsafe { real::fcntl64(fd, libc::F_GETFL, 0) });
        if flags >= 0 {
            self.flags.store((self.flags.load(Relaxed) & NO_NOWAIT) | flags_of(flags), Relaxed);
        }
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Leaves the dirty bytes to the class that wrote them. Safe in signal handlers, because it does not block.
    fn leave_dirty(&self) {
        if self.dirty_bytes.load(Relaxed) == 0 {
            return;
        }
        let dirty = self.dirty_bytes.swap(0, Relaxed);
        let class = self.class.load(Relaxed) as usize;
        if let Some(class) = state::counters().and_then(|counters| counters.classes.get(class)) {
            class.left_bytes.fetch_add(dirty, Relaxed);
        }
    }

    /// Returns the file's number in traces, if it has been named.
    pub(crate) fn file(&self) -> Option<u32> {
        let file = self.file.load(Relaxed);
        if file & STALE == 0 { file.checked_sub(1) } else { None }
    }

    /// Names the file `number`, unless another thread has named it. Returns the number that is no longer used, if any.
    #[must_use]
    pub(crate) fn name(&self, number: u32) -> Option<u32> {
        let before = self.file.load(Relaxed);
        let is_unnamed = before == 0 || before & STALE != 0;
        if is_unnamed && self.file.compare_exchange(before, number + 1, Relaxed, Relaxed).is_ok() {
            return (before & !STALE).checked_sub(1);
        }
        Some(number)
    }
}

/// Returns the kernel's description of a descriptor's file.
pub(crate) fn stat(fd: c_int) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` has room for what the call writes.
    if errno::keep(|| unsafe { libc::fstat(fd, stat.as_mut_ptr()) }) != 0 {
        return None;
    }
    // SAFETY: the call succeeded and has filled it.
    Some(unsafe { stat.assume_init() })
}

/// Returns the bytes from `offset` to the end of a regular file, which a read does not exceed. Returns `None` for a
/// block device.
pub(crate) fn bytes_to_the_end(fd: c_int, offset: off_t) -> Option<size_t> {
    let stat = stat(fd)?;
    let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    is_regular.then(|| stat.st_size.saturating_sub(offset).max(0) as size_t)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor that no test has open.
    const FD: i32 = 1_000_000;

    /// Those from 65,536 on were not: a server with as many connections bypassed the gate.
    #[test]
    fn descriptors_are_managed_up_to_the_highest_of_linux() {
        for fd in [65_535, 65_536, (1 << 20) - 1] {
            manage(fd, 5, DIRECT);
            assert!(managed(fd).is_some_and(|it| it.rules == 5 && it.entry.has(DIRECT)), "{fd}");
            assert!(all_managed().any(|(found, _)| found == fd));
            forget_range(fd as u32, fd as u32);
            assert!(managed(fd).is_none(), "{fd}");
        }
        for fd in [-1, 1 << 20, i32::MAX] {
            manage(fd, 5, 0);
            assert!(managed(fd).is_none(), "{fd}");
        }
    }

    #[test]
    fn a_number_is_given_back_when_the_descriptor_is_named_again() {
        manage(FD, 1, 0);
        let entry = entry(FD).expect("it is managed");
        assert_eq!(entry.file(), None);
        assert_eq!(entry.name(0), None);
        assert_eq!((entry.name(7), entry.file()), (Some(7), Some(0)), "another thread was first");
        // Each of these closes the file: by `close`, by `dup2` from a managed one, by `close_range`.
        let closed: [fn(); 3] = [
            || {
                forget(FD);
                manage(FD, 1, 0);
            },
            || {
                manage(FD + 1, 1, 0);
                replace(FD + 1, FD);
            },
            || {
                forget_range(FD as u32, FD as u32 + 1);
                manage(FD, 1, 0);
            },
        ];
        for (number, close) in (0..).zip(closed) {
            close();
            assert_eq!(entry.file(), None, "the file that is here now has no name");
            assert_eq!((entry.name(number + 1), entry.file()), (Some(number), Some(number + 1)));
        }
        forget(FD);
    }
}
