//! The replaced functions: the next of the same name in the program's search order, usually libc's.
//!
//! They are looked up when the library is loaded ([`find_all`]). A look-up waits for the dynamic linker's lock, which a
//! thread has while it loads another library: that one's constructor may wait for a thread that opens a file.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use libc::{c_char, c_int, c_uint, iovec, mode_t, off_t, pthread_t, size_t, ssize_t};

/// Whether threads of the program may be cancelled: the program has started a thread, or cancels one. Threads that libc
/// starts (`SIGEV_THREAD`) do not count: if one cancels the program's only thread during a read, that read is not
/// interrupted.
static IS_CANCELLABLE: AtomicBool = AtomicBool::new(false);

/// Records that the program cancels a thread (`None`), or starts one with `start`, unless that is a function of this
/// library.
///
/// As soon as the process has two threads, libc makes a call a cancellation point, which costs two locked instructions.
/// Threads of this library cancel no thread, so as long as the program has one thread, hot calls are made as in a
/// process with one.
pub(crate) fn note_thread(start: Option<*const c_void>) {
    let is_ours = |start| base_of(start).is_some_and(|base| Some(base) == base_of((&raw const IS_CANCELLABLE).cast()));
    if !IS_CANCELLABLE.load(Relaxed) && !start.is_some_and(is_ours) {
        IS_CANCELLABLE.store(true, Relaxed);
    }
}

/// Returns the base address of the library that contains `address`.
fn base_of(address: *const c_void) -> Option<*mut c_void> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the call only looks the address up, and fills `found` if it returns another value than 0.
    let is_found = unsafe { libc::dladdr(address, found.as_mut_ptr()) } != 0;
    // SAFETY: as above.
    is_found.then(|| unsafe { found.assume_init() }.dli_fbase)
}

/// A function, whose address is looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
    /// Whether the program may make the system call instead, which saves time.
    has_call: bool,
    /// Whether the function is libc's own; only known if `has_call`.
    is_libcs: AtomicBool,
}

impl Next {
    /// Returns the function of this name, which ends with a zero.
    const fn new(name: &'static str, has_call: bool) -> Next {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { panic!("a name with a zero within") };
        Next { name, at: AtomicPtr::new(std::ptr::null_mut()), has_call, is_libcs: AtomicBool::new(false) }
    }

    /// Returns whether the function only makes the system call of its name.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_libcs.load(Relaxed) && !IS_CANCELLABLE.load(Relaxed)
    }

    /// Returns the function's address; null if there is none of that name.
    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        let at = self.at.load(Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero, and RTLD_NEXT is always a valid handle.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(at, Relaxed);
        if self.has_call {
            let libc = base_of(libc::__errno_location as *const c_void);
            self.is_libcs.store(base_of(at).is_some_and(|base| Some(base) == libc), Relaxed);
        }
        at
    }
}

/// The result of a function that failed.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for ssize_t {
    const FAILED: ssize_t = -1;
}

impl Failed for *mut libc::FILE {
    const FAILED: *mut libc::FILE = std::ptr::null_mut();
}

impl Failed for () {
    const FAILED: () = ();
}

/// Declares functions that call the next function of their name, or `by` the system call that it would make.
/// `C-unwind`: a thread that is cancelled in such a call unwinds through here.
macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty $(, by $number:ident($($word:ident),*))?;)*) => {
        #[allow(non_upper_case_globals, reason = "they have the functions' names")]
        mod next {
            $(pub(super) static $name: super::Next = {
                const CALLS: &[&str] = &[$(stringify!($number))?];
                super::Next::new(concat!(stringify!($name), "\0"), !CALLS.is_empty())
            };)*
        }

        /// Looks all functions up.
        pub(crate) fn find_all() {
            $(next::$name.get();)*
        }

        $(
        /// Calls the next function of this name.
        ///
        /// # Safety
        /// As libc's.
        #[inline]
        pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
            $(if next::$name.is_plain() {
                // SAFETY: the caller keeps to the function's contract, which is the system call's.
                return unsafe { libc::syscall(libc::$number, $($word),*) } as $result;
            })?
            let at = next::$name.get();
            if at.is_null() {
                crate::errno::set(libc::ENOSYS);
                return <$result as Failed>::FAILED;
            }
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            // SAFETY: libc's function of this name has this type.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(at) };
            // SAFETY: the caller keeps to the function's contract.
            unsafe { function($($argument),*) }
        }
    )*};
}

real! {
    read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t, by SYS_read(fd, buffer, count);
    write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t, by SYS_write(fd, buffer, count);
    pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t, by SYS_pread64(fd, buffer, count, offset);
    pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t, by SYS_pwrite64(fd, buffer, count, offset);
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    copy_file_range(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, count: size_t, flags: c_uint) -> ssize_t;
    sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    splice(from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, count: size_t, flags: c_uint) -> ssize_t;
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;
    sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int;
    fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int;
    posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    fclose(stream: *mut libc::FILE) -> c_int;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut libc::FILE) -> *mut libc::FILE;
    daemon(keeps_directory: c_int, keeps_streams: c_int) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    dup(fd: c_int) -> c_int;
    dup2(old: c_int, new: c_int) -> c_int;
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int;
    pthread_create(thread: *mut pthread_t, attributes: *const c_void, start: *const c_void, argument: *mut c_void) -> c_int;
    thrd_create(thread: *mut pthread_t, start: *const c_void, argument: *mut c_void) -> c_int;
    pthread_cancel(thread: pthread_t) -> c_int;
    __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    __pread64_chk(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t, room: size_t) -> ssize_t;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    mkostemps64(path: *mut c_char, suffix_bytes: c_int, flags: c_int) -> c_int;
}
