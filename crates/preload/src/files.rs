//! Which files are managed: those under the directories of the run. Their names are matched with the rules when they
//! are opened, and noted for traces at their first call.

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::fds::{self, Managed};
use crate::gate::OwnGate;
use crate::state::{self, Run};

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
    // Those of `self` are the first thread's, which may have ended.
    let link = format!("/proc/thread-self/fd/{fd}\0");
    let mut path = vec![0_u8; 4096];
    // SAFETY: the name ends with a zero; at most `path.len()` bytes are written.
    let len = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    path.truncate(usize::try_from(len).ok()?);
    Some(path)
}

/// Manages a new descriptor, if its file is managed.
pub(crate) fn take_in(fd: i32, flags: i32) {
    let Some(run) = state::run() else { return };
    let Some(rules) = rules_of(run, fd) else {
        fds::forget(fd);
        return;
    };
    if let Some(counters) = state::counters() {
        counters.opened.fetch_add(1, Ordering::Relaxed);
    }
    fds::manage(fd, rules, fds::flags_of(flags));
}

/// Returns the number of a file in traces. Names the file at its first call. Returns 0 if no trace was requested.
#[inline]
pub(crate) fn file_number(own: &OwnGate, managed: Managed) -> u32 {
    match managed.entry.file() {
        Some(number) => number,
        None if state::run().is_some_and(|run| run.handover.trace.is_some()) => name_file(own, managed),
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
