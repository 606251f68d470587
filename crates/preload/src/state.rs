//! Whether this process has a gate, and the memory that it shares with the command.
//!
//! A process starts asleep: every call bypasses the gate. When the library is loaded, it opens the command's file;
//! without one the process stays asleep. The first managed call creates the gate, unless another process of the run has
//! it, which then admits the calls. A child of `fork` begins as a process that has just loaded the library, because it
//! does not have the parent's locks and threads.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use plimsoll::control::Server;
use plimsoll::core::WaitReason;
use plimsoll::trace::{TraceConfig, TraceStartError, file_writer};
use plimsoll::{Class, Gate, Topology};

use crate::fds::Managed;
use crate::handover::{COUNTERS_AT, Counters, FILE_NAME, Handover, Past, VARIABLE, VERSION, pid_namespace};
use crate::rules::Rules;
use crate::{errno, fds, inside, real, slots};

/// State: no run, or one that this process has left.
const ASLEEP: u8 = 0;
/// State: a run, but no gate yet.
const READY: u8 = 1;
/// State: a thread is creating the gate.
const MAKING: u8 = 2;
/// State: this process has the gate.
const OPEN: u8 = 3;
/// State: another process has the gate.
const GUEST: u8 = 4;
/// State: this process is in another PID namespace than the command, so all its calls bypass the gate.
const STRANGER: u8 = 5;

static STATE: AtomicU8 = AtomicU8::new(ASLEEP);
static RUN: OnceLock<Run> = OnceLock::new();
/// Never freed: threads may use it until the process ends.
static OWN_GATE: AtomicPtr<OwnGate> = AtomicPtr::new(std::ptr::null_mut());
/// A word that is 0 in children of `fork`.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);
static COUNTERS: AtomicPtr<Counters> = AtomicPtr::new(std::ptr::null_mut());

/// The run that this process belongs to.
pub(crate) struct Run {
    pub(crate) handover: Handover,
    pub(crate) rules: Rules,
}

/// The gate and its companions, in the process that has it.
pub(crate) struct OwnGate {
    pub(crate) gate: Gate,
    pub(crate) classes: Vec<Class>,
    /// The socket for `plimsoll attach`.
    control: Option<Server>,
    /// Whether the descriptors of socket and trace are in the table of the library's threads alone.
    is_apart: bool,
    /// Whether a trace was started and its end is not counted yet.
    is_traced: AtomicBool,
}

/// The place where calls of this process are admitted.
pub(crate) enum Route {
    Own(&'static OwnGate),
    /// In another process; see [`slots`].
    Owner,
    /// Calls bypass the gate, for this reason.
    Bypass(Past),
}

pub(crate) fn run() -> Option<&'static Run> {
    RUN.get()
}

/// Returns the counters, if there is a run.
pub(crate) fn counters() -> Option<&'static Counters> {
    let at = COUNTERS.load(Ordering::Acquire);
    // SAFETY: null, or the mapping that `find` made of a file as long as `Counters`. It stays until the process ends,
    // and consists of atomics, for which every bit pattern is valid.
    unsafe { at.as_ref() }
}

/// Resets the state if this process is a child of `fork` in which that has not been done. Also detects `_Fork` and the
/// raw system call, which run no handlers.
#[inline]
pub(crate) fn notice_fork() {
    let mark = MARK.load(Ordering::Relaxed);
    // SAFETY: null, or the page that `leave_mark` mapped, which stays until the process ends.
    if let Some(mark) = unsafe { mark.as_ref() }
        && mark.load(Ordering::Relaxed) == 0
    {
        begin_anew(mark);
    }
}

#[cold]
fn begin_anew(mark: &AtomicU32) {
    PID.store(std::process::id(), Ordering::Relaxed);
    OWN_GATE.store(std::ptr::null_mut(), Ordering::Relaxed);
    fds::forget_dirty();
    if STATE.load(Ordering::Relaxed) != ASLEEP {
        STATE.store(first_state(), Ordering::Relaxed);
    }
    inside::forget();
    mark.store(1, Ordering::Release);
}

/// Returns the state in which a process of the run begins. A process without /proc counts as in the command's
/// namespace.
fn first_state() -> u8 {
    let (ours, commands) = (pid_namespace(), run().map_or(0, |run| run.handover.pid_namespace));
    if ours != 0 && commands != 0 && ours != commands { STRANGER } else { READY }
}

/// Maps a page that the kernel wipes in the children of `fork`. Returns whether that succeeded.
fn leave_mark() -> bool {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of one page, which is never unmapped.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the page belongs to this function alone.
    if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 {
        return false;
    }
    let mark: *mut AtomicU32 = page.cast();
    // SAFETY: zeroes are a valid atomic word, and the page is aligned for it.
    unsafe { &*mark }.store(1, Ordering::Relaxed);
    MARK.store(mark, Ordering::Relaxed);
    true
}

/// Returns whether this is the process that loaded the library. False in a child of `vfork`, which shares the memory
/// but has other descriptors.
pub(crate) fn is_own_process() -> bool {
    notice_fork();
    std::process::id() == pid()
}

/// Returns the number of the process that loaded the library or was made by `fork`.
pub(crate) fn pid() -> u32 {
    PID.load(Ordering::Relaxed)
}

/// Returns whether descriptors must be examined when they are opened.
#[inline]
pub(crate) fn is_awake() -> bool {
    STATE.load(Ordering::Relaxed) != ASLEEP
}

/// Returns the gate, if this process has it.
#[inline]
pub(crate) fn own_gate() -> Option<&'static OwnGate> {
    if STATE.load(Ordering::Acquire) != OPEN {
        return None;
    }
    // SAFETY: null, or a gate that `make` has leaked.
    unsafe { OWN_GATE.load(Ordering::Acquire).as_ref() }
}

/// Returns where calls are admitted. If this is the first call that needs the gate, creates it.
#[inline]
pub(crate) fn route(counters: &Counters) -> Route {
    if let Some(own) = own_gate() {
        return Route::Own(own);
    }
    let is_guest = STATE.load(Ordering::Relaxed) == GUEST;
    if is_guest && counters.owner.load(Ordering::Relaxed) != 0 && !slots::is_silent(counters) {
        return Route::Owner;
    }
    find_route()
}

/// Finds out which process has the gate. If none has, creates it here.
#[cold]
pub(crate) fn find_route() -> Route {
    let not_yet = Route::Bypass(Past::Nested);
    let seen = STATE.load(Ordering::Acquire);
    if seen == STRANGER {
        return Route::Bypass(Past::Namespace);
    }
    let (Some(_), Some(counters), READY | GUEST) = (RUN.get(), counters(), seen) else { return not_yet };
    let owner = counters.owner.load(Ordering::Acquire);

    if owner != pid() && owner != 0 && slots::has_gate(counters, owner) {
        // If this fails, another thread has updated the state meanwhile.
        let _ = STATE.compare_exchange(seen, GUEST, Ordering::AcqRel, Ordering::Acquire);
        return if slots::is_silent(counters) { Route::Bypass(Past::OtherProcess) } else { Route::Owner };
    }

    if STATE.compare_exchange(seen, MAKING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return not_yet;
    }
    // Before the owner is set, so that no process takes the new owner to be silent, or asks it for another's
    // housekeeper.
    counters.housekeeper.store(0, Ordering::Release);
    counters.alive_ns.store(plimsoll::sys::clock::now_ns(), Ordering::Relaxed);
    if counters.owner.compare_exchange(owner, pid(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        STATE.store(GUEST, Ordering::Release);
        return Route::Owner;
    }
    // Threads of this library must not take the program's signals.
    without_signals(|| slots::open(counters));
    own_gate().map_or(not_yet, Route::Own)
}

/// Makes the gate. `is_apart`: whether the calling thread has left the program's table of descriptors.
pub(crate) fn make(counters: &Counters, is_apart: bool) {
    let Some(own) = run().and_then(|run| open(run, is_apart)) else {
        // Without a gate no call is held back.
        counters.owner.store(0, Ordering::Release);
        STATE.store(ASLEEP, Ordering::Release);
        return;
    };

    keep_waits_of_the_dead(counters);
    // These are from the parent process, before `fork`.
    fds::forget_names();
    OWN_GATE.store(Box::leak(Box::new(own)), Ordering::Release);
    STATE.store(OPEN, Ordering::Release);
}

/// Returns whether a process is alive. A process that its parent has not reaped is not, but that is unknown before
/// Linux 5.3, or if a sandbox forbids the call.
pub(crate) fn is_alive(pid: u32) -> bool {
    errno::keep(|| {
        // SAFETY: it touches no memory.
        let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        if handle < 0 {
            // SAFETY: signal 0 is not sent; the call touches no memory.
            return errno::get() != libc::ESRCH
                && (unsafe { libc::kill(pid as i32, 0) } == 0 || errno::get() != libc::ESRCH);
        }
        let mut ended = libc::pollfd { fd: handle, events: libc::POLLIN, revents: 0 };
        // SAFETY: `ended` is one entry, which the call fills.
        let is_over = unsafe { libc::poll(&raw mut ended, 1, 0) } == 1;
        // SAFETY: the descriptor was made above.
        let _ = unsafe { real::close(handle) };
        !is_over
    })
}

fn open(run: &Run, is_apart: bool) -> Option<OwnGate> {
    let classes = run.handover.make_classes().ok()?;
    let numbers: Vec<Class> = run.handover.classes.iter().filter_map(|form| classes.find(&form.name)).collect();
    let topology = Topology::new(1, classes, vec![run.handover.disk.setup()]).ok()?;
    let gate = Gate::new(&topology, 0, 0).ok()?;
    let is_traced = AtomicBool::new(false);
    if let Some(path) = &run.handover.trace {
        match record(&topology, Path::new(path)) {
            Ok(()) => is_traced.store(true, Ordering::Relaxed),
            Err(error) => note_trace_error(&error),
        }
    }
    let control = Server::start(&topology, &run.handover.program).ok();
    Some(OwnGate { gate, classes: numbers, control, is_apart, is_traced })
}

fn record(topology: &Topology, path: &Path) -> io::Result<()> {
    // An earlier process of the run may have written a trace there already.
    let mut other = path.as_os_str().to_owned();
    other.push(format!(".{}", std::process::id()));
    let own = File::create_new(path);
    let is_beside = own.is_err();
    let file = own.or_else(|_| File::create(Path::new(&other)))?;
    if let Some(counters) = counters() {
        counters.traces.fetch_add(1, Ordering::Relaxed);
        counters.traces_beside.fetch_add(u32::from(is_beside), Ordering::Relaxed);
    }
    topology.trace().start(file_writer(file)?, TraceConfig::default()).map_err(|error| match error {
        TraceStartError::Io(error) => error,
        error => io::Error::other(error),
    })
}

fn note_trace_error(error: &io::Error) {
    if let Some(counters) = counters() {
        let errno = error.raw_os_error().unwrap_or(libc::EIO).unsigned_abs();
        // Keep the first error.
        let _ = counters.trace_errno.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Ends the trace if it can no longer be written, so that the command learns that even if the process is killed.
pub(crate) fn check_trace(own: &OwnGate) {
    if own.is_traced.load(Ordering::Relaxed) && !own.gate.topology().trace().is_recording() {
        end_trace(own);
    }
}

/// Ends the trace, if there is one, and counts its result. Call this on a thread that has the trace's descriptor.
pub(crate) fn end_trace(own: &OwnGate) {
    if !own.is_traced.swap(false, Ordering::Relaxed) {
        return;
    }
    let (Some(summary), Some(counters)) = (own.gate.topology().trace().stop(), counters()) else { return };
    if let Some(error) = &summary.error {
        note_trace_error(error);
    }
    counters.trace_dropped.fetch_add(summary.dropped_events, Ordering::Relaxed);
    counters.traces_ended.fetch_add(1, Ordering::Relaxed);
}

/// Runs `work` with all signals blocked, so that threads that it starts take none.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it fills the set that it gets.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both sets exist, and the first is filled.
    let is_masked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let value = work();
    if is_masked {
        // SAFETY: `before` was filled by the call that masked.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    value
}

/// Adds the waits of earlier gates of the run to the totals, so that they remain counted.
fn keep_waits_of_the_dead(counters: &Counters) {
    for class in &counters.classes {
        for (before, now) in class.waited_before_ns.iter().zip(&class.waited_ns) {
            before.fetch_add(now.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Copies the classes' waits into the shared memory.
pub(crate) fn copy_waits(own: &OwnGate, counters: &Counters) {
    for (class, shared) in own.classes.iter().zip(&counters.classes) {
        let Some(stats) = own.gate.class_stats(*class) else { continue };
        for (reason, place) in WaitReason::ALL.into_iter().zip(&shared.waited_ns) {
            place.store(stats.waited_for_ns(reason), Ordering::Relaxed);
        }
    }
}

/// Opens the command's file when the library is loaded.
extern "C" fn load() {
    let before = errno::get();
    let inside = inside::go_inside(inside::frame());
    let is_there = std::env::var_os(VARIABLE).is_some_and(|path| find(Path::new(&path)).is_some());

    if is_there && leave_mark() {
        real::find_all();
        slots::prepare();
        PID.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the functions live as long as the library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let state = first_state();
        if state != STRANGER {
            // Free what the program had before `exec`. A stranger's process number may be that of another process here.
            give_up();
            counters().into_iter().for_each(|counters| slots::free_all_of(counters, pid()));
        }
        STATE.store(state, Ordering::Release);
        look_at_inherited();
    }

    drop(inside);
    errno::set(before);
}

/// Manages the descriptors that the process inherited.
fn look_at_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for fd in numbers {
        // SAFETY: it returns the flags of a descriptor, and touches no memory.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags >= 0 {
            take_in(fd, flags);
        }
    }
}

fn find(path: &Path) -> Option<()> {
    // If the command has ended, its number may be another process's, whose files must not even be opened.
    let target = std::fs::read_link(path).ok()?;
    if !target.to_str()?.starts_with(&format!("/memfd:{FILE_NAME} ")) {
        return None;
    }
    let mut file = File::options().read(true).write(true).open(path).ok()?;
    let mut len = [0; 8];
    file.read_exact(&mut len).ok()?;
    let len = usize::try_from(u64::from_le_bytes(len)).ok().filter(|len| *len < COUNTERS_AT)?;
    let mut json = vec![0; len];
    file.read_exact(&mut json).ok()?;

    let handover: Handover = serde_json::from_slice(&json).ok().filter(|it: &Handover| it.version == VERSION)?;
    let bytes = std::mem::size_of::<Counters>();
    if file.metadata().ok()?.len() < (COUNTERS_AT + bytes) as u64 {
        return None;
    }

    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, of a file that is long enough; it is never unmapped.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut::<c_void>(), bytes, protection, flags, file.as_raw_fd(), COUNTERS_AT as i64)
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    COUNTERS.store(at.cast(), Ordering::Release);
    let rules = Rules::new(&handover);
    RUN.set(Run { handover, rules }).ok()?;
    counters()?.processes.fetch_add(1, Ordering::Relaxed);
    Some(())
}

extern "C" fn forked() {
    notice_fork();
}

/// Ends the process's part in the run: leaves uncharged bytes to the classes, ends the trace and gives up the gate.
extern "C" fn unload() {
    notice_fork();
    fds::leave_all_dirty();
    let Some(own) = own_gate() else { return };
    let Some(_inside) = inside::go_inside(inside::frame()) else { return };
    if let Some(counters) = counters() {
        copy_waits(own, counters);
        if !own.is_apart {
            end_trace(own);
        } else if own.is_traced.load(Ordering::Relaxed) {
            slots::end_trace(counters);
        }
    }
    remove_socket(own);
    // Calls of threads that still run bypass the gate from now on.
    STATE.store(ASLEEP, Ordering::Release);
    give_up();
}

/// Gives up the gate, and wakes the threads at its slots, if this process has it or had it before `exec`.
fn give_up() {
    let Some(counters) = counters() else { return };
    let was_ours = counters.owner.compare_exchange(pid(), 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if was_ours {
        slots::close(counters);
    }
}

fn remove_socket(own: &OwnGate) {
    if let Some(control) = &own.control {
        // The socket may have been removed by hand.
        let _ = std::fs::remove_file(control.path());
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

/// Returns the rules whose path pattern matches the file behind `fd`; `None` if the file is not managed.
fn rules_of(run: &Run, fd: i32) -> Option<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` has room for what the call writes.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and has filled it.
    let stat = unsafe { stat.assume_init() };

    let device = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => stat.st_dev,
        libc::S_IFBLK => stat.st_rdev,
        _ => return None,
    };
    if !run.handover.devices.contains(&device) {
        return None;
    }

    let path = path_of(fd)?;
    let is_in = |directory: &String| {
        let rest = path.strip_prefix(directory.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || directory.ends_with('/'))
    };
    run.handover.directories.iter().any(is_in).then(|| run.rules.of_path(&path))
}

/// Returns the path of the file behind `fd`.
fn path_of(fd: i32) -> Option<Vec<u8>> {
    let mut link = *b"/proc/self/fd/..........\0";
    let digits = fd.to_string();
    let tail = link.get_mut(14..14 + digits.len() + 1)?;
    tail[..digits.len()].copy_from_slice(digits.as_bytes());
    tail[digits.len()] = 0;
    let mut path = vec![0_u8; 4096];
    // SAFETY: the name ends with a zero; at most `path.len()` bytes are written.
    let len = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    path.truncate(usize::try_from(len).ok()?);
    Some(path)
}

/// Manages a new descriptor, if its file is managed.
pub(crate) fn take_in(fd: i32, flags: i32) {
    let Some(run) = run() else { return };
    let Some(rules) = rules_of(run, fd) else {
        fds::forget(fd);
        return;
    };
    let mut kept = 0;
    kept |= if flags & libc::O_DIRECT != 0 { fds::DIRECT } else { 0 };
    kept |= if flags & libc::O_APPEND != 0 { fds::APPEND } else { 0 };
    kept |= if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 { fds::SYNC } else { 0 };
    if let Some(counters) = counters() {
        counters.opened.fetch_add(1, Ordering::Relaxed);
    }
    fds::manage(fd, rules, kept);
}

/// Returns the number of a file in traces. Names the file at its first call. Returns 0 if no trace was requested.
#[inline]
pub(crate) fn file_number(own: &OwnGate, managed: Managed) -> u32 {
    match managed.entry.file() {
        Some(number) => number,
        None if run().is_some_and(|run| run.handover.trace.is_some()) => name_file(own, managed),
        None => 0,
    }
}

#[cold]
fn name_file(own: &OwnGate, Managed { fd, entry, .. }: Managed) -> u32 {
    use std::os::unix::ffi::OsStrExt;
    let path = path_of(fd).unwrap_or_default();
    // The kernel's mark for an unlinked file is not part of its name.
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    let number = own.gate.name_file(Path::new(std::ffi::OsStr::from_bytes(path)));
    if let Some(unused) = entry.name(number) {
        own.gate.forget_file(unused);
    }
    entry.file().unwrap_or(number)
}
