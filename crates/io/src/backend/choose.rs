//! The choice of a backend: the one requested by name, or the best that this machine allows, with the reason.
//!
//! # Why
//! Containers, sandboxes and limits often deny io_uring or AIO. A tool must then continue with the next best, and say
//! so; but a backend that was requested by name is never silently replaced.
//!
//! # How it works
//! [`probe`] tries to make io_uring, Linux AIO and the pool, in this order. The error number of a refusal gives its
//! meaning and its remedy.
//!
//! # Limits
//! A backend that can be made may still fail for a certain file (direct I/O on some file systems); `open` reports that.
//!
//! # Example
//! ```
//! use plimsoll::backend::choose::{BackendKind, probe};
//! let (backend, choice) = probe(Some(BackendKind::Memory), 64)?;
//! assert_eq!((backend.name(), choice.kind), ("memory", BackendKind::Memory));
//! assert_eq!(choice.reason, "asked for by name");
//! assert_eq!("uring".parse(), Ok(BackendKind::Uring));
//! # Ok::<(), plimsoll::backend::choose::OpenBackendError>(())
//! ```

use std::fmt;
use std::io;
use std::str::FromStr;

use super::Backend;
use super::aio::AioBackend;
use super::memory::{MemoryBackend, MemoryStore};
use super::null::NullBackend;
use super::pool::{DEFAULT_THREADS, PoolBackend};
#[cfg(feature = "sim")]
use super::sim::{SimConfig, SimWorld};
use super::uring::UringBackend;

/// The backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// io_uring.
    Uring,
    /// Linux AIO.
    Aio,
    /// Threads with blocking calls.
    Pool,
    /// Files in memory.
    Memory,
    /// Completes every operation at once.
    Null,
    /// Simulated disks in virtual time.
    #[cfg(feature = "sim")]
    Sim,
}

impl BackendKind {
    /// All kinds that work in real time (all but `sim`), the default order of [`probe`] first.
    pub const ALL: [Self; 5] = [Self::Uring, Self::Aio, Self::Pool, Self::Memory, Self::Null];

    /// Returns all kinds with a name on the command line.
    fn named() -> impl Iterator<Item = Self> {
        #[cfg(feature = "sim")]
        let virtual_time = [Self::Sim];
        #[cfg(not(feature = "sim"))]
        let virtual_time = [];
        Self::ALL.into_iter().chain(virtual_time)
    }

    /// Returns the name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Aio => "aio",
            Self::Pool => "pool",
            Self::Memory => "memory",
            Self::Null => "null",
            #[cfg(feature = "sim")]
            Self::Sim => "sim",
        }
    }

    /// Makes this backend on the calling thread, for `entries` operations at once (at least 1; each backend has its own
    /// upper bound, see its `new`).
    ///
    /// # Errors
    /// If this machine does not allow it: the reason, and the remedy.
    pub fn make(self, entries: u32) -> Result<Box<dyn Backend>, OpenBackendError> {
        let made: io::Result<Box<dyn Backend>> = match self {
            Self::Uring => UringBackend::new(entries).map(|backend| Box::new(backend) as _),
            Self::Aio => AioBackend::new(entries).map(|backend| Box::new(backend) as _),
            Self::Pool => PoolBackend::new(DEFAULT_THREADS, entries).map(|backend| Box::new(backend) as _),
            Self::Memory => MemoryBackend::new(&MemoryStore::default()).map(|backend| Box::new(backend) as _),
            Self::Null => NullBackend::new().map(|backend| Box::new(backend) as _),
            #[cfg(feature = "sim")]
            Self::Sim => default_world().map(|world| Box::new(world.backend(entries)) as _),
        };
        made.map_err(|error| OpenBackendError { refusals: vec![Refusal { kind: self, why: explain(self, &error) }] })
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that belongs to no backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend {
    /// The given name.
    pub name: String,
}

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown backend `{}`: use one of", self.name)?;
        for (index, kind) in BackendKind::named().enumerate() {
            write!(f, "{} {kind}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownBackend {}

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        Self::named().find(|kind| kind.name() == name).ok_or_else(|| UnknownBackend { name: name.to_owned() })
    }
}

/// The backend that [`probe`] settled on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The backend.
    pub kind: BackendKind,
    /// Reason of the choice: requested, first choice, or the refusals of the better ones. One line.
    pub reason: String,
}

/// Why one backend cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The backend.
    pub kind: BackendKind,
    /// The system's error, its usual meaning, and the remedy. One line.
    pub why: String,
}

/// No backend could be made; see [`Refusal`] for each that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBackendError {
    /// The attempts in order; at least one.
    pub refusals: Vec<Refusal>,
}

impl fmt::Display for OpenBackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_refusals(f, &self.refusals)
    }
}

impl std::error::Error for OpenBackendError {}

fn write_refusals(out: &mut dyn fmt::Write, refusals: &[Refusal]) -> fmt::Result {
    for (index, refusal) in refusals.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        write!(out, "{separator}backend {} cannot be used: {}", refusal.kind, refusal.why)?;
    }
    Ok(())
}

/// Makes `preference`, or without one the first of io_uring, AIO and the pool that this machine allows. The backend
/// takes `entries` operations at once (256 suits most disks).
///
/// # Errors
/// If the requested backend, or each of the three, is refused.
pub fn probe(preference: Option<BackendKind>, entries: u32) -> Result<(Box<dyn Backend>, Choice), OpenBackendError> {
    if let Some(kind) = preference {
        return Ok((kind.make(entries)?, Choice { kind, reason: "asked for by name".to_owned() }));
    }
    first_that_works(&[BackendKind::Uring, BackendKind::Aio, BackendKind::Pool], |kind| kind.make(entries))
}

/// Returns the world of `--backend sim`: one plain, faultless SSD, and a thread for each shard.
///
/// # Errors
/// None at present; the signature is that of the other backends' `new`.
#[cfg(feature = "sim")]
pub(crate) fn default_world() -> io::Result<SimWorld> {
    SimWorld::for_threads(&SimConfig::default()).map_err(io::Error::other)
}

/// Returns the first backend that `make` makes. Split from [`probe`], so that tests can refuse what their machine
/// allows.
fn first_that_works<B>(
    order: &[BackendKind],
    make: impl Fn(BackendKind) -> Result<B, OpenBackendError>,
) -> Result<(B, Choice), OpenBackendError> {
    let mut refusals = Vec::new();
    for &kind in order {
        match make(kind) {
            Ok(backend) => return Ok((backend, Choice { kind, reason: reason(&refusals) })),
            Err(error) => refusals.extend(error.refusals),
        }
    }
    Err(OpenBackendError { refusals })
}

fn reason(refusals: &[Refusal]) -> String {
    if refusals.is_empty() {
        return "first choice, and available".to_owned();
    }
    let mut text = "next best: ".to_owned();
    // Writing to a string does not fail.
    let _ = write_refusals(&mut text, refusals);
    text
}

/// Returns the system's error, its usual meaning for this backend, and the remedy.
fn explain(kind: BackendKind, error: &io::Error) -> String {
    let hint = match (kind, error.raw_os_error()) {
        (BackendKind::Uring, Some(libc::EPERM | libc::EACCES)) => {
            "io_uring is forbidden here, by the sysctl kernel.io_uring_disabled (0 allows it) or by the seccomp filter \
             of a container (allow io_uring_setup, io_uring_enter and io_uring_register)"
        }
        (BackendKind::Uring, Some(libc::ENOSYS)) => {
            "the kernel has no io_uring (Linux 5.11 is needed), or a sandbox hides it"
        }
        (BackendKind::Uring, Some(libc::ENOMEM)) => {
            "the limit of locked memory is too low: raise `ulimit -l` (LimitMEMLOCK= in systemd), or ask for fewer \
             entries"
        }
        (BackendKind::Uring, _) if error.kind() == io::ErrorKind::Unsupported => "use Linux 5.11 or newer",
        (BackendKind::Aio, Some(libc::EAGAIN)) => {
            "the machine's AIO control blocks are used up: raise the sysctl fs.aio-max-nr (fs.aio-nr shows how many \
             are taken)"
        }
        (BackendKind::Aio, Some(libc::ENOSYS | libc::EPERM)) => {
            "the kernel is built without AIO, or a sandbox forbids io_setup"
        }
        (BackendKind::Pool, Some(libc::EAGAIN)) => "no more threads are allowed: raise `ulimit -u` or the pids limit",
        (_, Some(libc::EMFILE)) => "too many open files: raise `ulimit -n`",
        _ => return error.to_string(),
    };
    format!("{error}: {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: BackendKind, errno: i32) -> OpenBackendError {
        let why = explain(kind, &io::Error::from_raw_os_error(errno));
        OpenBackendError { refusals: vec![Refusal { kind, why }] }
    }

    #[test]
    fn names_go_both_ways() {
        for kind in BackendKind::named() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let Err(error) = "iouring".parse::<BackendKind>() else { panic!("not a name") };
        let text = error.to_string();
        assert!(text.starts_with("unknown backend `iouring`: use one of uring, aio, pool, memory, null"), "{text}");
    }

    #[test]
    fn refusals_say_what_to_do() {
        let cases = [
            (BackendKind::Uring, libc::EPERM, "kernel.io_uring_disabled"),
            (BackendKind::Uring, libc::EPERM, "seccomp"),
            (BackendKind::Uring, libc::ENOMEM, "ulimit -l"),
            (BackendKind::Uring, libc::ENOSYS, "5.11"),
            (BackendKind::Aio, libc::EAGAIN, "fs.aio-max-nr"),
            (BackendKind::Pool, libc::EAGAIN, "ulimit -u"),
            (BackendKind::Null, libc::EMFILE, "ulimit -n"),
        ];
        for (kind, errno, part) in cases {
            let text = refused(kind, errno).to_string();
            assert!(text.contains(part) && text.contains(kind.name()), "{kind} {errno}: {text}");
        }
    }

    #[test]
    fn a_denied_ring_falls_back_and_says_why() {
        let order = [BackendKind::Uring, BackendKind::Aio, BackendKind::Pool];
        let make = |kind| match kind {
            BackendKind::Uring => Err(refused(kind, libc::EPERM)),
            BackendKind::Aio => Err(refused(kind, libc::EAGAIN)),
            _ => Ok(kind),
        };
        let Ok((made, choice)) = first_that_works(&order, make) else { panic!("the pool was not refused") };
        assert_eq!((made, choice.kind), (BackendKind::Pool, BackendKind::Pool));
        assert!(choice.reason.contains("io_uring_disabled") && choice.reason.contains("aio-max-nr"), "{choice:?}");
        let Err(error) = first_that_works(&order[..2], make) else { panic!("both were refused") };
        assert_eq!(error.refusals.len(), 2);
    }

    #[test]
    fn something_works_on_every_machine() -> Result<(), OpenBackendError> {
        let (backend, choice) = probe(None, 8)?;
        println!("{}: {}", choice.kind, choice.reason);
        assert_eq!(backend.name(), choice.kind.name());
        for kind in [BackendKind::Pool, BackendKind::Memory, BackendKind::Null] {
            assert_eq!(probe(Some(kind), 8)?.1.kind, kind);
        }
        Ok(())
    }
}
