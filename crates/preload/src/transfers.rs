//! Reads and writes of managed files: what comes from the page cache, what may be cut, and what is one call.
//!
//! Each function makes the calls that it is given, and returns what libc's function would. A read takes cached bytes
//! first, without the gate. A buffered write is charged later, with the sync or after a MiB. Direct I/O and reads are
//! charged before they are made, in pieces if the call may be cut.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, iovec, off_t, size_t, ssize_t};

use crate::fds::{self, APPEND, DIRECT, Managed, NO_NOWAIT, SYNC};
use crate::handover::Kind;
use crate::passage::Passage;
use crate::readable::is_readable;
use crate::{errno, load, real, state};

/// Most bytes that the kernel moves in one call (`MAX_RW_COUNT`).
const CALL_MAX_BYTES: size_t = 0x7fff_f000;
/// Unit of direct I/O that may be cut, in bytes: the largest block of a usual disk.
const DIRECT_UNIT_BYTES: size_t = 4096;

/// Returns whether a call of `count` bytes at `offset` may be cut. The kernel refuses direct I/O that is not of whole
/// blocks, but not its first pieces. Pieces of a write that appends may end up apart from each other.
fn may_cut(managed: Managed, kind: Kind, count: size_t, offset: off_t) -> bool {
    if count <= DIRECT_UNIT_BYTES {
        // Never longer than a piece.
        return true;
    }
    // Another process that has the file may have changed them.
    managed.entry.renew_flags(managed.fd);
    let is_append = kind == Kind::Write && managed.entry.has(APPEND);
    !is_append && (!managed.entry.has(DIRECT) || (count | offset as size_t).is_multiple_of(DIRECT_UNIT_BYTES))
}

/// Reads from the page cache into `parts`, without waiting for the disk. Returns 0 bytes at the end of the file (see
/// [`ends_at`]), and `None` if no byte is cached or the kernel does not support the query.
fn try_cached(managed: Managed, (parts, count): (*const iovec, c_int), offset: off_t) -> Option<size_t> {
    let Managed { fd, entry, .. } = managed;
    if entry.has(DIRECT | NO_NOWAIT) || !state::is_awake() {
        return None;
    }
    let errno_before = errno::get();
    // SAFETY: the kernel checks the parts, which are the caller's own, or lie in the caller's buffer.
    let result = unsafe { real::preadv64v2(fd, parts, count, offset, libc::RWF_NOWAIT) };
    let Ok(bytes) = size_t::try_from(result) else {
        // Keep trying after EINVAL: it is about this call's arguments only.
        if matches!(errno::get(), libc::EOPNOTSUPP | libc::ENOSYS) {
            entry.flags.fetch_or(NO_NOWAIT, Relaxed);
        }
        errno::set(errno_before);
        return None;
    };
    Some(bytes)
}

/// Counts bytes that the caller got from the page cache.
pub(crate) fn count_cached(bytes: size_t) {
    if let Some(counters) = state::counters() {
        counters.cached_bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// Reads the cached part of one buffer. Returns its length, and whether the read is complete.
fn from_cache(managed: Managed, buffer: *mut c_void, count: size_t, offset: off_t) -> (size_t, bool) {
    let mut have = 0;
    // Twice: a second read distinguishes the end of the file from the end of the cached part.
    for _ in 0..2 {
        let part = iovec { iov_base: buffer.wrapping_byte_add(have), iov_len: count - have };
        match try_cached(managed, (&raw const part, 1), offset + have as off_t) {
            None => return (have, false),
            Some(0) => return (have, have == count || ends_at(managed.fd, offset + have as off_t)),
            Some(bytes) => {
                count_cached(bytes);
                have += bytes;
            }
        }
        if have == count {
            return (have, true);
        }
    }
    (have, false)
}

/// Returns whether a read at `at` will probably find all bytes in the page cache: its first and its last byte are.
fn is_cached(managed: Managed, at: off_t, count: size_t) -> bool {
    let probe = |at: off_t| {
        let mut byte = 0_u8;
        let part = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        try_cached(managed, (&raw const part, 1), at)
    };
    let page = |at: off_t| at >> 12;
    let last = at.saturating_add(count as off_t - 1);
    match probe(last) {
        None => false,
        Some(0) => match fds::bytes_to_the_end(managed.fd, at) {
            Some(0) => true,
            Some(left) if left < count => is_cached(managed, at, left),
            _ => false,
        },
        Some(_) => page(at) == page(last) || probe(at).is_some(),
    }
}

/// Carries out a managed read at the descriptor's position. That is one call, because other threads and processes may
/// share the position, and would get parts of each other's records. So nothing is taken from the page cache in advance.
pub(crate) fn read_whole(managed: Managed, count: size_t, read: impl FnOnce() -> ssize_t) -> ssize_t {
    if count > CALL_MAX_BYTES {
        return too_long(managed, Kind::Read, None, read);
    }
    let Some(at) = standing(managed.fd).filter(|_| count > 0) else { return read() };
    if is_cached(managed, at, count) {
        let result = read();
        count_cached(size_t::try_from(result).unwrap_or(0));
        return result;
    }
    match Passage::find(managed, Kind::Read, count, at) {
        None => read(),
        Some(passage) => passage.whole(count, read),
    }
}

/// Carries out a managed read at an offset. `part(at, len)` reads `len` bytes to `at` in the buffer.
pub(crate) fn read_in_parts(
    managed: Managed,
    buffer: *mut c_void,
    count: size_t,
    offset: off_t,
    part: impl Fn(size_t, size_t) -> ssize_t,
) -> ssize_t {
    if count > CALL_MAX_BYTES {
        return too_long(managed, Kind::Read, Some(offset), || part(0, count));
    }
    let (have, is_all) = from_cache(managed, buffer, count, offset);
    if is_all {
        return have as ssize_t;
    }

    let left = count - have;
    let rest = match Passage::find(managed, Kind::Read, left, offset + have as off_t) {
        None => part(have, left),
        Some(passage) if !may_cut(managed, Kind::Read, count, offset) => passage.whole(left, || part(have, left)),
        Some(passage) => passage.in_parts(left, |at, len| part(have + at, len)),
    };
    // Return the bytes read earlier, even if a later part failed.
    if rest < 0 && have > 0 { have as ssize_t } else { rest + have as ssize_t }
}

/// Returns whether a regular file ends at `offset` or before. With `RWF_NOWAIT`, Linux 5.9 and 5.10 return 0 bytes also
/// where the file goes on and nothing is cached (preadv2(2), "Bugs").
fn ends_at(fd: c_int, offset: off_t) -> bool {
    fds::bytes_to_the_end(fd, offset) == Some(0)
}

pub(crate) fn managed_write(
    managed: Managed,
    count: size_t,
    offset: Option<off_t>,
    part: impl Fn(size_t, size_t) -> ssize_t,
) -> ssize_t {
    if count > CALL_MAX_BYTES {
        return too_long(managed, Kind::Write, offset, || part(0, count));
    }
    let entry = managed.entry;
    let Some(at) = offset.or_else(|| standing(managed.fd)) else { return part(0, count) };
    let Some(passage) = Passage::find(managed, Kind::Write, count, at) else { return part(0, count) };
    if !entry.has(DIRECT | SYNC) {
        return passage.buffered(count, || part(0, count));
    }
    // An append, and a write at a position that others may share, must be one call.
    if offset.is_none() || !may_cut(managed, Kind::Write, count, at) {
        passage.whole(count, || part(0, count))
    } else {
        let is_over = |done: usize| done > 0 && is_at_limit(at + done as off_t);
        passage.in_parts(count, |done, len| if is_over(done) { 0 } else { part(done, len) })
    }
}

/// Returns whether the process may not write from `at` on (`RLIMIT_FSIZE`). A call that reaches this limit ends there;
/// a call that begins there gets SIGXFSZ.
pub(crate) fn is_at_limit(at: off_t) -> bool {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call fills `limit`.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    u64::try_from(at).is_ok_and(|at| at >= limit.rlim_cur)
}

/// Carries out a call of more bytes than the kernel moves in one, and charges it afterwards. Mostly its length is a
/// mistake (-1), which the kernel refuses. A piece of it would be accepted, and may lie beyond the caller's buffer.
fn too_long(managed: Managed, kind: Kind, offset: Option<off_t>, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let at = offset.or_else(|| standing(managed.fd));
    let result = call();
    if let (Ok(bytes @ 1..), Some(at)) = (size_t::try_from(result), at) {
        Passage::charge_moved(managed, kind, bytes, at, true);
    }
    result
}

/// Returns a vectored call's parts, or an empty slice if the list is invalid, which the call itself will report, or not
/// aligned, which only the kernel accepts. If `is_read`, the kernel has read the list.
///
/// # Safety
/// `parts` points to `count` parts, for as long as the call lasts.
unsafe fn list<'a>(parts: *const iovec, count: c_int, is_read: bool) -> &'a [iovec] {
    let is_list = !parts.is_null() && parts.is_aligned() && (1..=1024).contains(&count);
    if !is_list || !(is_read || is_readable(parts.cast(), count as usize * size_of::<iovec>())) {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(parts, count as usize) }
}

/// Carries out a vectored call with these flags (`RWF_...`), which is never cut. If the offset is invalid, or the call
/// must not wait, bypasses the gate.
pub(crate) fn vectored(
    fd: c_int,
    kind: Kind,
    (parts, count): (*const iovec, c_int),
    offset: Option<off_t>,
    flags: c_int,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    let is_plain = flags & libc::RWF_NOWAIT != 0 || offset.is_some_and(|at| at < 0);
    let Some(managed) = fds::managed(fd).filter(|_| !is_plain) else { return call() };
    // Do not try at the descriptor's position, which a partial read would move, nor with flags that may be refused.
    let cached =
        offset.filter(|_| kind == Kind::Read && flags == 0).and_then(|at| try_cached(managed, (parts, count), at));

    // SAFETY: the caller of a vectored call promises `count` parts at `parts`.
    let parts = unsafe { list(parts, count, cached.is_some()) };
    let len_bytes = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.iov_len));
    // Accept only all bytes or the end of the file, because a program takes a short read for the end.
    let is_all = |bytes: size_t| bytes == len_bytes || (bytes == 0 && offset.is_some_and(|at| ends_at(fd, at)));
    if let Some(bytes) = cached.filter(|bytes| is_all(*bytes)) {
        count_cached(bytes);
        return bytes as ssize_t;
    }
    if len_bytes == 0 {
        return call();
    }
    if len_bytes > CALL_MAX_BYTES {
        return too_long(managed, kind, offset, call);
    }

    let Some(at) = offset.or_else(|| standing(fd)) else { return call() };
    let reaches_disk = managed.entry.has(DIRECT | SYNC) || flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
    match Passage::find(managed, kind, len_bytes, at) {
        None => call(),
        Some(passage) if kind == Kind::Write && !reaches_disk => passage.buffered(len_bytes, call),
        Some(passage) => passage.whole(len_bytes, call),
    }
}

/// Returns the position of a descriptor. Returns `None` if it has none: closed unnoticed, it is a socket or a pipe now,
/// on which a thread may wait for ever and must not hold a permit.
pub(crate) fn standing(fd: c_int) -> Option<off_t> {
    let errno_before = errno::get();
    // SAFETY: the call touches no memory.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    if at < 0 {
        // In a child of `vfork` the number is another descriptor's than in the parent, whose memory this is.
        if load::is_own_process() {
            fds::forget(fd);
        }
        errno::set(errno_before);
        return None;
    }
    Some(at)
}
