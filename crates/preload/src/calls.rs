//! The functions that replace libc's.
//!
//! Each has the effect and the result of libc's function. Programs may call them from anywhere. A call on an unmanaged
//! file continues after one look-up in the table of descriptors.

use std::ffi::c_void;

use libc::{c_char, c_int, c_uint, iovec, mode_t, off_t, pthread_t, size_t, ssize_t};

use crate::fds;
use crate::handover::Kind;
use crate::passage::Passage;
use crate::transfers::{managed_write, read_in_parts, read_whole, vectored};
use crate::{apart, copies, errno, files, inside, load, names, real, state};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("offsets of 64 bits are taken for granted: build it for a 64-bit machine");

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
    if fd >= 0 && !apart::is_ours() && state::is_awake() && load::is_own_process() {
        match inside::go_inside(inside::frame()) {
            Some(_inside) => errno::keep(|| files::take_in(fd, flags)),
            // In a signal handler: do not manage it, and forget the earlier descriptor of its number.
            None => fds::forget(fd),
        }
    }
    fd
}

/// Manages a descriptor that was made with flags which the call does not say.
fn made(fd: c_int) {
    if state::is_awake() {
        // SAFETY: it returns the flags of a descriptor, and touches no memory.
        let flags = errno::keep(|| unsafe { real::fcntl64(fd, libc::F_GETFL, 0) });
        opened(fd, flags);
    }
}

/// Manages the descriptor of a stream that was opened: null, or the caller's own. Returns the stream.
fn opened_stream(stream: *mut libc::FILE) -> *mut libc::FILE {
    if !stream.is_null() && state::is_awake() {
        // SAFETY: libc has opened the stream just now.
        made(errno::keep(|| unsafe { libc::fileno(stream) }));
    }
    stream
}

/// Manages the descriptors that a message has brought.
///
/// # Safety
/// `recvmsg` has filled the message, and the ancillary data that it points to.
unsafe fn received(message: *const libc::msghdr) {
    // SAFETY: the caller guarantees it.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or a header that the kernel has written.
    while let Some(header) = unsafe { at.as_ref() } {
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: it only calculates.
            let before_bytes = unsafe { libc::CMSG_LEN(0) } as usize;
            // SAFETY: it only calculates.
            let fds: *const c_int = unsafe { libc::CMSG_DATA(at) }.cast();
            for number in 0..header.cmsg_len.saturating_sub(before_bytes) / size_of::<c_int>() {
                // SAFETY: as many descriptors follow the header.
                made(unsafe { fds.wrapping_add(number).read_unaligned() });
            }
        }
        // SAFETY: the caller guarantees it.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
}

/// Forgets a descriptor that is about to be closed or replaced.
fn closing(fd: c_int) {
    if fds::managed(fd).is_some() && load::is_own_process() {
        fds::forget(fd);
    }
}

/// Forgets the descriptor of a stream that is about to be closed. The stream is null, or the caller's own and open.
fn closing_stream(stream: *mut libc::FILE) {
    if !stream.is_null() && state::is_awake() {
        // SAFETY: the caller guarantees it. A stream in memory has no descriptor, which is an error.
        closing(errno::keep(|| unsafe { libc::fileno(stream) }));
    }
}

/// Manages the descriptor `new`, which is now a duplicate of `old`, by `manage`. Returns `new`.
fn duplicated(old: c_int, new: c_int, manage: fn(c_int, c_int)) -> c_int {
    if new >= 0 && (fds::managed(old).is_some() || fds::managed(new).is_some()) && load::is_own_process() {
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

    /// Opens a file as a stream. The C++ library reads and writes the descriptors of such streams itself.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        // SAFETY: passed on unchanged.
        opened_stream(unsafe { real::fopen64(path, mode) })
    }

    /// Opens a file as a stream, as `fopen64`.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        // SAFETY: passed on unchanged.
        unsafe { fopen64(path, mode) }
    }

    /// Receives a message, which may bring descriptors from another process.
    fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t {
        // SAFETY: passed on unchanged.
        let result = unsafe { real::recvmsg(socket, message, flags) };
        if result >= 0 && state::is_awake() {
            // SAFETY: the call has succeeded.
            unsafe { received(message) };
        }
        result
    }

    /// Closes a descriptor.
    fn close(fd: c_int) -> c_int {
        closing(fd);
        // SAFETY: the caller's own descriptor.
        unsafe { real::close(fd) }
    }

    /// Closes a stream; its descriptor is closed without a call of `close`.
    fn fclose(stream: *mut libc::FILE) -> c_int {
        closing_stream(stream);
        // SAFETY: passed on unchanged.
        unsafe { real::fclose(stream) }
    }

    /// Opens another file for a stream; its descriptors are closed and opened without calls of these functions.
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE) -> *mut libc::FILE {
        closing_stream(stream);
        // SAFETY: passed on unchanged.
        opened_stream(unsafe { real::freopen64(path, mode, stream) })
    }

    /// Opens another file for a stream, as `freopen64`.
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE) -> *mut libc::FILE {
        // SAFETY: passed on unchanged.
        unsafe { freopen64(path, mode, stream) }
    }

    /// Goes on in a child, whose standard streams are other files unless they are kept.
    fn daemon(keeps_directory: c_int, keeps_streams: c_int) -> c_int {
        // SAFETY: passed on unchanged.
        let result = unsafe { real::daemon(keeps_directory, keeps_streams) };
        if result == 0 && keeps_streams == 0 {
            fds::forget_range(0, 2);
        }
        result
    }

    /// Closes a range of descriptors.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // Before, as in `close`: afterwards a number may be another file's. CLOSE_RANGE_CLOEXEC (4) only marks the
        // descriptors to be closed at the next `exec`; CLOSE_RANGE_UNSHARE (2) is the only other flag.
        if first <= last && flags & !2 == 0 && load::is_own_process() {
            fds::forget_range(first, last);
        }
        // SAFETY: the caller's own descriptors.
        unsafe { real::close_range(first, last, flags) }
    }

    /// Closes all descriptors from `first` on.
    fn closefrom(first: c_int) -> () {
        if load::is_own_process() {
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
            libc::F_SETFL if result == 0 && fds::managed(fd).is_some() && load::is_own_process() => {
                // Duplicates have theirs in common.
                fds::all_managed().for_each(|(fd, entry)| entry.renew_flags(fd));
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
