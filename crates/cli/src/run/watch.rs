//! Watches the program while it runs: passes signals on, and looks for I/O that the library cannot see.
//!
//! # How it works
//! A thread waits for the program's end, and leaves its process number taken until no signal can reach another process.
//! The kernel's counters of its disk I/O, which need no rights, include the processes that it has waited for. SIGTERM,
//! SIGHUP, SIGUSR1 and SIGUSR2 are passed on; so are SIGINT and SIGQUIT of another process (`kill`, a container's stop
//! signal), but not those of the terminal, which sends them to the program itself. They are caught before the program
//! starts ([`Signals`]). At intervals /proc shows whether it maps managed files, has an io_uring or uses Linux AIO.
//!
//! # Limits
//! A mapping, ring or AIO context that lives shorter than [`LOOK`] can be missed. Of the program's children, only
//! the one that has the gate is watched. SIGINT that a process sends to the whole group reaches the program twice, as
//! SIGTERM does.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use plimsoll::sys::rusage::children_disk_bytes;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use super::to_program::Managed;

/// Interval at which /proc is read.
const LOOK: Duration = Duration::from_millis(200);

/// Findings from outside the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FromOutside {
    /// Bytes read from and written to disks, by the kernel's count; `None` if the kernel does not report them.
    pub(super) disk_bytes: Option<(u64, u64)>,
    /// Bytes that the program's system calls have written, to whatever; `None` if the kernel does not report them.
    pub(super) called_written_bytes: Option<u64>,
    /// A managed file that was mapped.
    pub(super) mapped: Option<PathBuf>,
    pub(super) has_io_uring: bool,
    /// Whether the program has a context of Linux AIO (`io_submit`).
    pub(super) has_aio: bool,
}

/// The signals that are passed on to the program.
pub(super) struct Signals {
    infos: SignalsInfo<WithRawSiginfo>,
    ignored: Vec<i32>,
}

impl Signals {
    /// Catches the signals, except those that this process ignores (`nohup`): the program inherits that, but not if it
    /// starts while they are caught here.
    pub(super) fn catch() -> io::Result<Signals> {
        let mask = ignored_signals();
        let is_ignored = |signal: &i32| mask >> (*signal - 1) & 1 != 0;
        let (ignored, caught): (Vec<i32>, Vec<i32>) =
            [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2].into_iter().partition(is_ignored);
        Ok(Signals { infos: SignalsInfo::new(caught)?, ignored })
    }
}

/// Returns the signals that this process ignores, a bit each; 0 without /proc.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Waits for the program's end, and passes on `signals` that were caught before it started. Returns its status with the
/// findings. `owner` returns the process that has the gate: if the program is a shell or another wrapper, a child.
pub(super) fn until_over(
    mut child: Child,
    signals: Signals,
    managed: &Managed,
    owner: impl Fn() -> Option<u32>,
) -> io::Result<(ExitStatus, FromOutside)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pid = child.id();
    let mut seen = FromOutside::default();
    let before = called_written_bytes();

    runtime.block_on(async {
        let (sender, mut over) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new().name("plimsoll-wait".to_owned()).spawn(move || {
            wait_for(pid);
            // The receiver lives until this is sent.
            let _ = sender.send(());
        })?;

        let Signals { mut infos, ignored } = signals;
        let until = infos.handle();
        ignored.into_iter().try_for_each(|signal| until.add_signal(signal))?;
        let (sender, mut signals) = tokio::sync::mpsc::unbounded_channel();
        std::thread::Builder::new().name("plimsoll-signal".to_owned()).spawn(move || {
            for info in infos.forever() {
                // The receiver lives until no signal can be passed on any more.
                let _ = sender.send((info.si_signo, info.si_code));
            }
        })?;

        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = &mut over => {
                    until.close();
                    return Ok::<(), io::Error>(());
                }
                // This process keeps running, to report.
                Some((signal, code)) = signals.recv() => pass_on(pid, signal, code),
                _ = look.tick() => {
                    let child = owner().filter(|owner| *owner != pid);
                    [Some(pid), child].into_iter().flatten().for_each(|pid| seen.look(Path::new("/proc"), pid, managed));
                }
            }
        }
    })?;

    let status = child.wait()?;
    // The program is this process's only child. Its own /proc/PID/io may be closed to us once it is dead.
    seen.disk_bytes = children_disk_bytes().ok();
    seen.called_written_bytes = before.zip(called_written_bytes()).map(|(before, now)| now.saturating_sub(before));
    Ok((status, seen))
}

/// Returns the bytes that system calls of this process, and of processes that it has waited for, have written.
fn called_written_bytes() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
}

/// Waits until the process is dead, and leaves its number taken.
fn wait_for(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {}
}

/// Sends a signal to the program, unless the terminal has. The terminal's signals have an `si_code` above 0 (the
/// kernel's own), and it sends SIGINT and SIGQUIT to the program itself.
fn pass_on(pid: u32, signal: i32, si_code: i32) {
    let is_of_terminal = si_code > 0 && matches!(signal, SIGINT | SIGQUIT);
    let program = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (false, Some(program), Some(signal)) = (is_of_terminal, program, Signal::from_named_raw(signal)) {
        // If it is already dead, there is nothing to do.
        let _ = kill_process(program, signal);
    }
}

impl FromOutside {
    fn look(&mut self, proc: &Path, pid: u32, managed: &Managed) {
        let own = proc.join(pid.to_string());
        if self.mapped.is_none() || !self.has_aio {
            let maps = std::fs::read_to_string(own.join("maps")).unwrap_or_default();
            // The kernel maps the completions of each context under this name.
            self.has_aio |= maps.contains(" /[aio]");
            // Skip the program's own code and libraries, which are mapped as executable.
            let files = maps.lines().filter_map(|line| {
                let mut words = line.split_ascii_whitespace();
                let is_code = words.nth(1).is_some_and(|rights| rights.contains('x'));
                let path = line.find('/').and_then(|at| line.get(at..))?;
                Some((PathBuf::from(path), is_code))
            });
            let files: Vec<(PathBuf, bool)> = files.filter(|(path, _)| managed.holds(path)).collect();
            let is_data = |path: &PathBuf| !files.iter().any(|(other, is_code)| other == path && *is_code);
            let mapped = files.iter().map(|(path, _)| path).find(|path| is_data(path));
            self.mapped = self.mapped.take().or_else(|| mapped.cloned());
        }
        if !self.has_io_uring {
            let links = std::fs::read_dir(own.join("fd")).into_iter().flatten().flatten();
            let mut targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
            self.has_io_uring = targets.any(|target| target.as_os_str() == "anon_inode:[io_uring]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_cannot_see_is_found_in_proc() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let managed = Managed::find(std::slice::from_ref(&root)).unwrap();
        let own = root.join("7");
        std::fs::create_dir_all(own.join("fd")).unwrap();
        let mut seen = FromOutside::default();
        let mut look_at = |maps: &[String]| {
            std::fs::write(own.join("maps"), maps.concat()).unwrap();
            seen.look(&root, 7, &managed);
            seen.clone()
        };

        let map = |rights: &str, path: &Path| format!("7f00-7f10 {rights} 00000000 fe:00 11   {}\n", path.display());
        let library = root.join("library.so");
        let code = [map("r-xp", &library), map("r--p", &library), map("rw-p", Path::new("/elsewhere"))];
        assert_eq!(look_at(&code), FromOutside::default());
        let aio = map("rw-s", Path::new("/[aio] (deleted)"));
        assert_eq!(look_at(&[aio]), FromOutside { has_aio: true, ..FromOutside::default() });

        std::os::unix::fs::symlink("anon_inode:[io_uring]", own.join("fd/3")).unwrap();
        let mapped = root.join("data");
        let all =
            FromOutside { mapped: Some(mapped.clone()), has_io_uring: true, has_aio: true, ..FromOutside::default() };
        assert_eq!(look_at(&[map("rw-s", &mapped)]), all);
        assert_eq!(look_at(&[]), all, "what was seen once is said at the end");
    }
}
