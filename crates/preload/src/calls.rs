//! The functions that replace libc's.
//!
//! Each has the effect and the result of libc's function. Programs may call them from anywhere. A call on an unmanaged
//! file continues after one look-up in the table of descriptors.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_char, c_int, c_uint, iovec, mode_t, off_t, pthread_t, size_t, ssize_t};

use crate::fds::{self, APPEND, DIRECT, Managed, NO_NOWAIT, SYNC};
use crate::handover::Kind;
use crate::passage::Passage;
use crate::readable::is_readable;
use crate::{apart, copies, errno, inside, names, real, state};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("offsets of 64 bits are taken for granted: build it for a 64-bit machine");

/// Most bytes that the kernel moves in one call (`MAX_RW_COUNT`).
const CALL_MAX_BYTES: size_t = 0x7fff_f000;
/// Unit of direct I/O that may be cut, in bytes: the largest block of a usual disk.
const DIRECT_UNIT_BYTES: size_t = 4096;

/// Returns whether a call of `count` bytes at `offset` may be cut. The kernel refuses direct I/O that is not of whole
/// blocks, but not its first pieces.
fn may_cut(managed: Managed, count: size_t, offset: off_t) -> bool {
    !managed.entry.has(DIRECT) || (count | offset as size_t).is_multiple_of(DIRECT_UNIT_BYTES)
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
        Some(0) => match bytes_to_the_end(managed.fd, at) {
            Some(0) => true,
            Some(left) if left < count => is_cached(managed, at, left),
            _ => false,
        },
        Some(_) => page(at) == page(last) || probe(at).is_some(),
    }
}

/// Carries out a managed read at the descriptor's position. That is one call, because other threads and processes may
/// share the position, and would get parts of each other's records. So nothing is taken from the page cache in advance.
fn read_whole(managed: Managed, count: size_t, read: impl FnOnce() -> ssize_t) -> ssize_t {
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
fn read_in_parts(
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
        Some(passage) if !may_cut(managed, count, offset) => passage.whole(left, || part(have, left)),
        Some(passage) => passage.in_parts(left, |at, len| part(have + at, len)),
    };
    // Return the bytes read earlier, even if a later part failed.
    if rest < 0 && have > 0 { have as ssize_t } else { rest + have as ssize_t }
}

/// Returns whether a regular file ends at `offset` or before. With `RWF_NOWAIT`, Linux 5.9 and 5.10 return 0 bytes also
/// where the file goes on and nothing is cached (preadv2(2), "Bugs").
fn ends_at(fd: c_int, offset: off_t) -> bool {
    bytes_to_the_end(fd, offset) == Some(0)
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

fn managed_write(
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
    if offset.is_none() || entry.has(APPEND) || !may_cut(managed, count, at) {
        passage.whole(count, || part(0, count))
    } else {
        passage.in_parts(count, part)
    }
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
fn vectored(
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

/// Carries out a call without data.
fn other(fd: c_int, kind: Kind, writes: bool, call: impl Fn() -> c_int) -> c_int {
    let Some(managed) = fds::managed(fd) else { return call() };
    match Passage::find(managed, kind, 0, 0) {
        None => call(),
        Some(passage) if kind == Kind::Sync => passage.sync(writes, || call() as isize) as c_int,
        Some(passage) => passage.whole(0, || call() as isize) as c_int,
    }
}

/// Manages a descriptor that was opened, if its file is managed. Returns `fd`.
fn opened(fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 && !apart::is_ours() && state::is_awake() && state::is_own_process() {
        match inside::go_inside(inside::frame()) {
            Some(_inside) => errno::keep(|| state::take_in(fd, flags)),
            // In a signal handler: do not manage it, and forget the earlier descriptor of its number.
            None => fds::forget(fd),
        }
    }
    fd
}

/// Forgets a descriptor that is about to be closed or replaced.
fn closing(fd: c_int) {
    if fds::managed(fd).is_some() && state::is_own_process() {
        fds::forget(fd);
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
        if state::is_own_process() {
            fds::forget(fd);
        }
        errno::set(errno_before);
        return None;
    }
    Some(at)
}

/// Updates the flags of all managed descriptors, because duplicates have theirs in common.
fn look_at_flags() {
    for (fd, entry) in fds::all_managed() {
        // SAFETY: it returns the flags of a descriptor, and touches no memory.
        let flags = unsafe { real::fcntl64(fd, libc::F_GETFL, 0) };
        if flags >= 0 {
            let flag = |of: c_int, is: u32| if flags & of != 0 { is } else { 0 };
            let kept = entry.flags.load(Relaxed) & !(DIRECT | APPEND);
            entry.flags.store(kept | flag(libc::O_DIRECT, DIRECT) | flag(libc::O_APPEND, APPEND), Relaxed);
        }
    }
}

/// Manages the descriptor `new`, which is now a duplicate of `old`, by `manage`. Returns `new`.
fn duplicated(old: c_int, new: c_int, manage: fn(c_int, c_int)) -> c_int {
    if new >= 0 && (fds::managed(old).is_some() || fds::managed(new).is_some()) && state::is_own_process() {
        manage(old, new);
    }
    new
}

/// Defines functions under their C names. Each body is as safe as the C function: the caller is responsible for
/// pointers, which are only passed on.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function of this name.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result $body
    )*};
}

functions! {
    /// Reads from the descriptor's position.
    fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
        let Some(managed) = fds::managed(fd) else {
            // SAFETY: passed on unchanged.
            return unsafe { real::read(fd, buffer, count) };
        };
        // SAFETY: passed on unchanged.
        read_whole(managed, count, || unsafe { real::read(fd, buffer, count) })
    }

    /// Reads as `read`, for a program that was built with checks.
    fn __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t {
        if count > room || fds::managed(fd).is_none() {
            // SAFETY: passed on unchanged; it ends the program if the buffer is too small.
            return unsafe { real::__read_chk(fd, buffer, count, room) };
        }
        // SAFETY: passed on unchanged.
        unsafe { read(fd, buffer, count) }
    }

    /// Writes at the descriptor's position.
    fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
        let Some(managed) = fds::managed(fd) else {
            // SAFETY: passed on unchanged.
            return unsafe { real::write(fd, buffer, count) };
        };
        managed_write(managed, count, None, |at, len| {
            // SAFETY: within the caller's buffer.
            unsafe { real::write(fd, buffer.wrapping_byte_add(at), len) }
        })
    }

    /// Reads at an offset.
    fn pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
        let Some(managed) = fds::managed(fd).filter(|_| offset >= 0) else {
            // SAFETY: passed on unchanged.
            return unsafe { real::pread64(fd, buffer, count, offset) };
        };
        read_in_parts(managed, buffer, count, offset, |at, len| {
            // SAFETY: within the caller's buffer.
            unsafe { real::pread64(fd, buffer.wrapping_byte_add(at), len, offset + at as off_t) }
        })
    }

    /// Reads as `pread64`: offsets have 64 bits here.
    fn pread(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { pread64(fd, buffer, count, offset) }
    }

    /// Reads as `pread64`, for a program that was built with checks.
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t, room: size_t) -> ssize_t {
        if count > room || fds::managed(fd).is_none() {
            // SAFETY: passed on unchanged; it ends the program if the buffer is too small.
            return unsafe { real::__pread64_chk(fd, buffer, count, offset, room) };
        }
        // SAFETY: passed on unchanged.
        unsafe { pread64(fd, buffer, count, offset) }
    }

    /// Reads as `__pread64_chk`.
    fn __pread_chk(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t, room: size_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { __pread64_chk(fd, buffer, count, offset, room) }
    }

    /// Writes at an offset.
    fn pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t {
        let Some(managed) = fds::managed(fd).filter(|_| offset >= 0) else {
            // SAFETY: passed on unchanged.
            return unsafe { real::pwrite64(fd, buffer, count, offset) };
        };
        managed_write(managed, count, Some(offset), |at, len| {
            // SAFETY: within the caller's buffer.
            unsafe { real::pwrite64(fd, buffer.wrapping_byte_add(at), len, offset + at as off_t) }
        })
    }

    /// Writes as `pwrite64`.
    fn pwrite(fd: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { pwrite64(fd, buffer, count, offset) }
    }

    /// Reads into several buffers.
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: passed on unchanged.
        vectored(fd, Kind::Read, (parts, count), None, 0, || unsafe { real::readv(fd, parts, count) })
    }

    /// Writes from several buffers.
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: passed on unchanged.
        vectored(fd, Kind::Write, (parts, count), None, 0, || unsafe { real::writev(fd, parts, count) })
    }

    /// Reads into several buffers at an offset.
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        let call = || unsafe { real::preadv64(fd, parts, count, offset) };
        vectored(fd, Kind::Read, (parts, count), Some(offset), 0, call)
    }

    /// Reads as `preadv64`.
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { preadv64(fd, parts, count, offset) }
    }

    /// Writes from several buffers at an offset.
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        let call = || unsafe { real::pwritev64(fd, parts, count, offset) };
        vectored(fd, Kind::Write, (parts, count), Some(offset), 0, call)
    }

    /// Writes as `pwritev64`.
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { pwritev64(fd, parts, count, offset) }
    }

    /// Reads as `preadv64`, with flags. A call with `RWF_NOWAIT` does not wait here either.
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: passed on unchanged.
        let call = || unsafe { real::preadv64v2(fd, parts, count, offset, flags) };
        // -1 stands for the descriptor's position; the kernel refuses smaller offsets.
        vectored(fd, Kind::Read, (parts, count), (offset != -1).then_some(offset), flags, call)
    }

    /// Reads as `preadv64v2`.
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { preadv64v2(fd, parts, count, offset, flags) }
    }

    /// Writes as `pwritev64`, with flags.
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: passed on unchanged.
        let call = || unsafe { real::pwritev64v2(fd, parts, count, offset, flags) };
        vectored(fd, Kind::Write, (parts, count), (offset != -1).then_some(offset), flags, call)
    }

    /// Writes as `pwritev64v2`.
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { pwritev64v2(fd, parts, count, offset, flags) }
    }

    /// Copies from file to file inside the kernel.
    fn copy_file_range(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, count: size_t, flags: c_uint) -> ssize_t {
        // SAFETY: offsets are null or the caller's own.
        let ends = unsafe { copies::ends((from, from_offset), (to, to_offset)) };
        let by = if copies::is_one_file(&ends) { copies::whole } else { copies::in_parts };
        by(ends, count, |len| {
            // SAFETY: passed on unchanged, but for the length.
            unsafe { real::copy_file_range(from, from_offset, to, to_offset, len, flags) }
        })
    }

    /// Copies from a file inside the kernel.
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        // SAFETY: the offset is null or the caller's own.
        let ends = unsafe { copies::ends((from, offset), (to, std::ptr::null())) };
        // SAFETY: passed on unchanged, but for the length.
        copies::in_parts(ends, count, |len| unsafe { real::sendfile64(to, from, offset, len) })
    }

    /// Copies from a file, as `sendfile64`.
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        // SAFETY: passed on unchanged.
        unsafe { sendfile64(to, from, offset, count) }
    }

    /// Copies between a file and a pipe inside the kernel, in one call, because its size determines how much the pipe
    /// takes.
    fn splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, count: size_t, flags: c_uint) -> ssize_t {
        // SAFETY: offsets are null or the caller's own.
        let ends = unsafe { copies::ends((from, from_offset), (to, to_offset)) };
        copies::whole(ends, count, |len| {
            // SAFETY: passed on unchanged.
            unsafe { real::splice(from, from_offset, to, to_offset, len, flags) }
        })
    }

    /// Makes a file durable.
    fn fsync(fd: c_int) -> c_int {
        // SAFETY: it touches no memory.
        other(fd, Kind::Sync, false, || unsafe { real::fsync(fd) })
    }

    /// Makes the data of a file durable.
    fn fdatasync(fd: c_int) -> c_int {
        // SAFETY: it touches no memory.
        other(fd, Kind::Sync, false, || unsafe { real::fdatasync(fd) })
    }

    /// Starts to write a range out.
    fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int {
        // SAFETY: it touches no memory.
        other(fd, Kind::Sync, true, || unsafe { real::sync_file_range(fd, offset, len, flags) })
    }

    /// Reserves or frees space.
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
        // SAFETY: it touches no memory.
        other(fd, Kind::Allocate, false, || unsafe { real::fallocate64(fd, mode, offset, len) })
    }

    /// Reserves or frees space, as `fallocate64`.
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
        // SAFETY: it touches no memory.
        unsafe { fallocate64(fd, mode, offset, len) }
    }

    /// Reserves space. Returns its error number.
    fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int {
        // SAFETY: it touches no memory.
        let result = other(fd, Kind::Allocate, false, || unsafe { real::posix_fallocate64(fd, offset, len) });
        if result < 0 { errno::get() } else { result }
    }

    /// Reserves space, as `posix_fallocate64`.
    fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
        // SAFETY: it touches no memory.
        unsafe { posix_fallocate64(fd, offset, len) }
    }

    /// Opens a file. In C the mode is present only with some flags; it is passed on unread.
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: passed on unchanged.
        opened(unsafe { real::open64(path, flags, mode) }, flags)
    }

    /// Opens a file, as `open64`.
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: passed on unchanged.
        unsafe { open64(path, flags, mode) }
    }

    /// Opens a file as `open64`, for a program that was built with checks.
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: passed on unchanged.
        opened(unsafe { real::__open64_2(path, flags) }, flags)
    }

    /// Opens a file, as `__open64_2`.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: passed on unchanged.
        unsafe { __open64_2(path, flags) }
    }

    /// Opens a file relative to a directory.
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: passed on unchanged.
        opened(unsafe { real::openat64(directory, path, flags, mode) }, flags)
    }

    /// Opens a file, as `openat64`.
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: passed on unchanged.
        unsafe { openat64(directory, path, flags, mode) }
    }

    /// Opens a file as `openat64`, for a program that was built with checks.
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: passed on unchanged.
        opened(unsafe { real::__openat64_2(directory, path, flags) }, flags)
    }

    /// Opens a file, as `__openat64_2`.
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: passed on unchanged.
        unsafe { __openat64_2(directory, path, flags) }
    }

    /// Creates a file.
    fn creat64(path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: passed on unchanged.
        unsafe { open64(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
    }

    /// Creates a file, as `creat64`.
    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: passed on unchanged.
        unsafe { creat64(path, mode) }
    }

    /// Creates a file of a new name, with flags and the length of the name's fixed end.
    fn mkostemps64(path: *mut c_char, suffix_bytes: c_int, flags: c_int) -> c_int {
        // SAFETY: passed on unchanged.
        opened(unsafe { real::mkostemps64(path, suffix_bytes, flags) }, flags)
    }

    /// Creates a file of a new name, as `mkostemps64`.
    fn mkostemps(path: *mut c_char, suffix_bytes: c_int, flags: c_int) -> c_int {
        // SAFETY: passed on, with the arguments that stand for those left out.
        unsafe { mkostemps64(path, suffix_bytes, flags) }
    }

    /// Creates a file of a new name, as `mkostemps64`.
    fn mkstemps64(path: *mut c_char, suffix_bytes: c_int) -> c_int {
        // SAFETY: passed on, with the arguments that stand for those left out.
        unsafe { mkostemps64(path, suffix_bytes, 0) }
    }

    /// Creates a file of a new name, as `mkostemps64`.
    fn mkstemps(path: *mut c_char, suffix_bytes: c_int) -> c_int {
        // SAFETY: passed on, with the arguments that stand for those left out.
        unsafe { mkostemps64(path, suffix_bytes, 0) }
    }

    /// Creates a file of a new name, as `mkostemps64`.
    fn mkostemp64(path: *mut c_char, flags: c_int) -> c_int {
        // SAFETY: passed on, with the arguments that stand for those left out.
        unsafe { mkostemps64(path, 0, flags) }
    }

    /// Creates a file of a new name, as `mkostemps64`.
    fn mkostemp(path: *mut c_char, flags: c_int) -> c_int {
        // SAFETY: passed on, with the arguments that stand for those left out.
        unsafe { mkostemps64(path, 0, flags) }
    }

    /// Creates a file of a new name, as `mkostemps64`.
    fn mkstemp64(path: *mut c_char) -> c_int {
        // SAFETY: passed on, with the arguments that stand for those left out.
        unsafe { mkostemps64(path, 0, 0) }
    }

    /// Creates a file of a new name, as `mkostemps64`.
    fn mkstemp(path: *mut c_char) -> c_int {
        // SAFETY: passed on, with the arguments that stand for those left out.
        unsafe { mkostemps64(path, 0, 0) }
    }

    /// Closes a descriptor.
    fn close(fd: c_int) -> c_int {
        closing(fd);
        // SAFETY: the caller's own descriptor.
        unsafe { real::close(fd) }
    }

    /// Closes a stream; its descriptor is closed without a call of `close`.
    fn fclose(stream: *mut libc::FILE) -> c_int {
        if !stream.is_null() && state::is_awake() {
            // SAFETY: the caller's own stream, open until the call below.
            closing(unsafe { libc::fileno(stream) });
        }
        // SAFETY: passed on unchanged.
        unsafe { real::fclose(stream) }
    }

    /// Closes a range of descriptors.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // SAFETY: the caller's own descriptors.
        let result = unsafe { real::close_range(first, last, flags) };
        // CLOSE_RANGE_CLOEXEC (4) only marks them to be closed at the next `exec`.
        if result == 0 && flags & 4 == 0 && state::is_own_process() {
            fds::forget_range(first, last);
        }
        result
    }

    /// Closes all descriptors from `first` on.
    fn closefrom(first: c_int) -> () {
        if state::is_own_process() {
            // As libc does, take a negative number as 0.
            fds::forget_range(first.max(0).unsigned_abs(), c_uint::MAX);
        }
        // SAFETY: the caller's own descriptors.
        unsafe { real::closefrom(first) }
    }

    /// Duplicates a descriptor.
    fn dup(fd: c_int) -> c_int {
        // SAFETY: the caller's own descriptor.
        duplicated(fd, unsafe { real::dup(fd) }, fds::duplicate)
    }

    /// Duplicates a descriptor onto another.
    fn dup2(old: c_int, new: c_int) -> c_int {
        // SAFETY: the caller's own descriptors.
        duplicated(old, unsafe { real::dup2(old, new) }, fds::replace)
    }

    /// Duplicates a descriptor as `dup2`, with flags.
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: the caller's own descriptors.
        duplicated(old, unsafe { real::dup3(old, new, flags) }, fds::replace)
    }

    /// Duplicates descriptors and changes their flags, among other things.
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: passed on unchanged; the argument is a word, or ignored.
        let result = unsafe { real::fcntl64(fd, command, argument) };
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result, fds::duplicate),
            libc::F_SETFL if result == 0 && fds::managed(fd).is_some() && state::is_own_process() => {
                errno::keep(look_at_flags);
                result
            }
            _ => result,
        }
    }

    /// Controls a descriptor, as `fcntl64`.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: passed on unchanged.
        unsafe { fcntl64(fd, command, argument) }
    }

    /// Starts a thread.
    fn pthread_create(thread: *mut pthread_t, attributes: *const c_void, start: *const c_void, argument: *mut c_void) -> c_int {
        real::note_thread(Some(start));
        if apart::is_ours() {
            // SAFETY: passed on unchanged.
            return unsafe { apart::start(thread, attributes, start, argument) };
        }
        // SAFETY: passed on unchanged.
        unsafe { real::pthread_create(thread, attributes, start, argument) }
    }

    /// Starts a thread.
    fn thrd_create(thread: *mut pthread_t, start: *const c_void, argument: *mut c_void) -> c_int {
        real::note_thread(Some(start));
        // SAFETY: passed on unchanged.
        unsafe { real::thrd_create(thread, start, argument) }
    }

    /// Cancels a thread.
    fn pthread_cancel(thread: pthread_t) -> c_int {
        real::note_thread(None);
        // SAFETY: passed on unchanged.
        unsafe { real::pthread_cancel(thread) }
    }

    /// Names a thread.
    fn pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int {
        // SAFETY: passed on unchanged.
        let result = unsafe { real::pthread_setname_np(thread, name) };
        names::changed();
        result
    }
}
