//! The part of a process in a run, from its beginning to its end: when the library is loaded, after `fork`, at the
//! exit.
//!
//! A child of `fork` begins as a process that has just loaded the library, because it does not have the parent's locks
//! and threads.

use std::ffi::c_void;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::handover::{COUNTERS_AT, Counters, FILE_NAME, Handover, VARIABLE, VERSION, pid_namespace};
use crate::rules::Rules;
use crate::state::{ASLEEP, COUNTERS, PID, READY, RUN, Run, STATE, STRANGER, counters, pid, run};
use crate::{errno, fds, files, gate, housekeeper, inside, real, slots};

/// A word that is 0 in children of `fork`.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

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
            files::take_in(fd, flags);
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
    let Some(own) = gate::own() else { return };
    let Some(_inside) = inside::go_inside(inside::frame()) else { return };
    if let Some(counters) = counters() {
        gate::copy_state(own, counters);
        if !own.is_apart {
            gate::end_trace(own);
        } else if own.is_traced.load(Ordering::Relaxed) {
            housekeeper::end_trace(counters);
        }
    }
    housekeeper::wait_for_socket();
    gate::remove_socket(own);
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

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;

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
    gate::OWN_GATE.store(std::ptr::null_mut(), Ordering::Relaxed);
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
