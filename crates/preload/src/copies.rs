//! Copies inside the kernel: `copy_file_range`, `sendfile`, `splice`.
//!
//! # How it works
//! A copy is cut into pieces. Each is charged after it has been moved, as a read of the one file and a write of the
//! other, because programs request more than the file has, and a socket may take fewer bytes, slowly. Bytes of the
//! source that are in the page cache when the call begins are not charged.
//!
//! # Limits
//! If the kernel does not report the page cache (`cachestat`, Linux 6.5), every byte read is charged. A file system
//! that shares the blocks of both files moves no bytes, but the copy is charged.

use libc::{c_int, off_t, size_t, ssize_t};

use crate::errno;
use crate::fds::{self, DIRECT, Managed};
use crate::handover::Kind;
use crate::passage::Passage;
use crate::readable::is_readable;
use crate::transfers::{count_cached, is_at_limit, standing};

/// Most bytes that are moved before they are charged. The same as for a file's dirty bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Number of the system call `cachestat`, the same on all architectures.
const CACHESTAT: libc::c_long = 451;

/// A managed file on one side of a copy.
pub(crate) struct End {
    managed: Managed,
    offset: off_t,
}

/// The source and the target of a copy; `None` for an end that is not managed.
type Ends = (Option<End>, Option<End>);

/// Returns the source and the target of a copy.
///
/// # Safety
/// Each offset is null, for the descriptor's position, or points to an offset, or to memory that cannot be read.
#[inline]
pub(crate) unsafe fn ends(from: (c_int, *const off_t), to: (c_int, *const off_t)) -> Ends {
    let end = |(fd, offset): (c_int, *const off_t)| {
        let managed = fds::managed(fd)?;
        if !offset.is_null() && !is_readable(offset.cast(), size_of::<off_t>()) {
            // The call itself reports it.
            return None;
        }
        // SAFETY: the caller guarantees it. The kernel accepts any alignment.
        let offset = (!offset.is_null()).then(|| unsafe { offset.read_unaligned() }).or_else(|| standing(fd))?;
        Some(End { managed, offset })
    };
    (end(from), end(to))
}

/// Copies with as many calls of `part(len)` as needed.
pub(crate) fn in_parts(ends: Ends, count: size_t, part: impl FnMut(size_t) -> ssize_t) -> ssize_t {
    copy(ends, count, PIECE_BYTES, part)
}

/// Returns whether both ends are one file. The kernel refuses to copy a range onto a part of itself; pieces of the
/// ranges may not overlap.
pub(crate) fn is_one_file((from, to): &Ends) -> bool {
    let id = |end: &End| {
        let stat = fds::stat(end.managed.fd)?;
        Some((stat.st_dev, stat.st_ino))
    };
    from.as_ref().zip(to.as_ref()).is_some_and(|(from, to)| id(from) == id(to))
}

/// Copies with one call.
pub(crate) fn whole(ends: Ends, count: size_t, call: impl FnMut(size_t) -> ssize_t) -> ssize_t {
    copy(ends, count, size_t::MAX, call)
}

fn copy((from, to): Ends, count: size_t, most: size_t, mut part: impl FnMut(size_t) -> ssize_t) -> ssize_t {
    // The kernel refuses a length that is negative as a signed number.
    if (from.is_none() && to.is_none()) || isize::try_from(count).is_err() {
        return part(count);
    }
    let errno_before = errno::get();
    let mut cached = from.as_ref().map_or(0, |from| cached_bytes(from, count));
    let mut has_read = false;
    let mut all = 0;
    loop {
        let mut ends = from.iter().chain(&to);
        let is_at_limit = || to.as_ref().is_some_and(|to| is_at_limit(to.offset.saturating_add(all as off_t)));
        if all > 0 && (!ends.all(|end| end.managed.is_same()) || is_at_limit()) {
            errno::set(errno_before);
            return all as ssize_t;
        }
        let asked = (count - all).min(most);
        let result = part(asked);
        let Ok(moved) = size_t::try_from(result) else {
            if all == 0 {
                return result;
            }
            // Return the bytes moved earlier.
            errno::set(errno_before);
            return all as ssize_t;
        };

        if moved > 0 {
            if let Some(End { managed, offset }) = &from {
                let of_cache = moved.min(cached);
                cached -= of_cache;
                count_cached(of_cache);
                if moved > of_cache {
                    let offset = offset.saturating_add((all + of_cache) as off_t);
                    Passage::charge_moved(*managed, Kind::Read, moved - of_cache, offset, !has_read);
                    has_read = true;
                }
            }
            if let Some(End { managed, offset }) = &to {
                let offset = offset.saturating_add(all as off_t);
                Passage::charge_moved(*managed, Kind::Write, moved, offset, all == 0);
            }
        }

        all += moved;
        if moved < asked || all >= count {
            return all as ssize_t;
        }
    }
}

/// Returns how many of the `count` bytes from the offset on are in the page cache; 0 if the kernel does not report it.
fn cached_bytes(from: &End, count: size_t) -> size_t {
    let Ok(offset) = u64::try_from(from.offset) else { return 0 };
    if count == 0 || from.managed.entry.has(DIRECT) {
        return 0;
    }
    // Start and length; then pages in the cache, and four other counts.
    let range = [offset, (count as u64).min(i64::MAX as u64)];
    let mut counts = [0_u64; 5];
    // SAFETY: the call reads `range` and fills `counts`, which have the kernel's layout.
    let result =
        errno::keep(|| unsafe { libc::syscall(CACHESTAT, from.managed.fd, range.as_ptr(), counts.as_mut_ptr(), 0) });
    // SAFETY: it touches no memory.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if result == 0 { (counts[0] as size_t).saturating_mul(page_bytes as size_t) } else { 0 }
}
