//! A gate: the scheduler for threads that make their own system calls.
//!
//! # Why
//! A database with its own thread pool, a program in C, a task of Tokio's `spawn_blocking`: they read and write by
//! themselves, and will not be rewritten for a shard. They can ask before each call, and say when it is over.
//!
//! # How it works
//! [`Gate::enter`] queues the call in its class, sleeps until the disk can take it, and gives a [`Permit`]; the thread makes
//! its call; the permit, dropped or [ended](Permit::end), lets the next ones in. A gate is one I/O queue of a disk behind a
//! lock (`plimsoll-core`'s, the same as a shard has), and one futex for each thread that waits. Whoever enters or leaves
//! does the scheduling for all, and wakes exactly those that may go. One waiting thread keeps the time: it sleeps until the
//! queue wants to be looked at again, and hands that duty on when it goes.
//!
//! A permit may be for less than was asked, where a long call would hold others up: do that much, and enter again for
//! the rest ([`Gate::transfer`] does). What the disk takes at once is one permit, so an idle disk sees long calls whole.
//!
//! A gate takes the place of one shard in its [`Topology`]: metrics, traces, the control socket, shares that change while the
//! program runs are as with any shard. Threads of a class are served in the order in which they came.
//!
//! # Limits
//! One disk a gate. A gate costs two uncontended locks and two looks at the clock a call (`benches/gate.rs` measures); a
//! thread that has to wait pays for being woken. In a trace a piece counts as submitted when it may go, so the thread's
//! way out of its sleep is in the device's time. A gate does not survive `fork`: the child must not use it.
//!
//! # Example
//! ```
//! use plimsoll::core::Op;
//! use plimsoll::{Classes, DiskSetup, Gate, Topology};
//! use std::io::Read;
//! # let path = std::env::temp_dir().join(format!("plimsoll-gate-{}", std::process::id()));
//! # std::fs::write(&path, vec![7; 4096])?;
//!
//! let classes = Classes::new();
//! let query = classes.add_class("query", None, 800)?;
//! let topology = Topology::new(1, classes, vec![DiskSetup::unlimited()])?;
//! let gate = Gate::new(&topology, 0, 0)?;
//!
//! let mut buffer = [0; 4096];
//! let permit = gate.enter(query, Op::Read, 4096)?;
//! let read = std::fs::File::open(&path)?.read(&mut buffer)?;
//! permit.end(Ok(read as u32));
//! assert_eq!(read, 4096);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod inner;
#[cfg(all(plimsoll_loom, test))]
mod loom_tests;
mod parker;
mod stations;
#[cfg(all(test, not(plimsoll_loom)))]
mod tests;

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::{ClassStats, Direction, Latencies, Op};

use crate::class::Class;
use crate::sys::clock::now_ns;
use crate::topology::Topology;
use inner::Admitted;
pub(crate) use inner::Inner;

/// Why there is no gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateStartError {
    /// The topology has fewer shards.
    NoSuchShard {
        /// The number asked for.
        shard: u16,
    },
    /// The topology has fewer disks.
    NoSuchDisk {
        /// The number asked for.
        disk: u16,
    },
    /// A reactor or another gate is this shard.
    IsOpen {
        /// The number asked for.
        shard: u16,
    },
    /// The disk has fewer I/O queues than shards, so that shards send their requests to each other: a gate answers nobody.
    QueuesAreShared {
        /// The disk.
        disk: u16,
    },
}

impl fmt::Display for GateStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateStartError::NoSuchShard { shard } => {
                write!(f, "there is no shard {shard} in the topology: count them from 0")
            }
            GateStartError::NoSuchDisk { disk } => write!(f, "there is no disk {disk} in the topology: count from 0"),
            GateStartError::IsOpen { shard } => {
                write!(f, "shard {shard} has a reactor or a gate already: give each gate a shard of its own")
            }
            GateStartError::QueuesAreShared { disk } => {
                write!(f, "disk {disk} has fewer I/O queues than shards: a gate needs one for each")
            }
        }
    }
}

impl std::error::Error for GateStartError {}

/// Why a call may not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateError {
    /// There is no such class, or it is a group.
    UnknownClass,
    /// As many calls wait as may ([`DiskSetup::max_requests`](crate::DiskSetup)).
    Full,
    /// The call would wait longer than its class allows.
    Overloaded {
        /// For how long, in nanoseconds.
        expected_ns: u64,
    },
    /// The class was removed while the call waited.
    ClassRemoved,
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateError::UnknownClass => write!(f, "there is no such class (was it removed, or is it a group?)"),
            GateError::Full => write!(f, "as many calls wait at the gate as may"),
            GateError::Overloaded { expected_ns } => {
                write!(f, "the call would wait {expected_ns} ns, longer than its class allows")
            }
            GateError::ClassRemoved => write!(f, "the class was removed while the call waited"),
        }
    }
}

impl std::error::Error for GateError {}

impl From<GateError> for io::Error {
    fn from(error: GateError) -> io::Error {
        let kind = match error {
            GateError::UnknownClass => io::ErrorKind::InvalidInput,
            GateError::Full | GateError::Overloaded { .. } => io::ErrorKind::WouldBlock,
            GateError::ClassRemoved => io::ErrorKind::Interrupted,
        };
        io::Error::new(kind, error)
    }
}

/// A call that asks to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whose it is.
    pub class: Class,
    /// What it does.
    pub op: Op,
    /// How much it moves; ignored of what moves nothing.
    pub len_bytes: u32,
    /// Where in its file; for traces only.
    pub offset_bytes: u64,
    /// Its file, from [`Gate::name_file`]; for traces only.
    pub file: u32,
}

/// See the module's documentation. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

impl Gate {
    /// The gate of disk number `disk`, in the place of shard number `shard` of `topology`, until the last clone is dropped.
    ///
    /// # Errors
    /// See [`GateStartError`].
    pub fn new(topology: &Topology, shard: u16, disk: u16) -> Result<Gate, GateStartError> {
        Inner::new(topology, shard, disk).map(Gate)
    }

    /// Waits until a call of `class` that moves `len_bytes` may go, all of it or its beginning: [`Permit::len_bytes`] says how
    /// much. Signals do not end the wait.
    ///
    /// # Errors
    /// See [`GateError`]: the call did not go through the gate.
    pub fn enter(&self, class: Class, op: Op, len_bytes: u32) -> Result<Permit<'_>, GateError> {
        self.enter_for(Call { class, op, len_bytes, offset_bytes: 0, file: 0 })
    }

    /// As [`Gate::enter`], with what a trace tells of a call.
    ///
    /// # Errors
    /// See [`GateError`].
    pub fn enter_for(&self, call: Call) -> Result<Permit<'_>, GateError> {
        match self.0.enter(&call, None)? {
            Some(admitted) => Ok(Permit { gate: &self.0, admitted }),
            None => {
                debug_assert!(false, "a wait without an end has ended");
                Err(GateError::Full)
            }
        }
    }

    /// As [`Gate::enter`], for at most `timeout`: `None` when the call could not go by then, which leaves nothing behind.
    ///
    /// # Errors
    /// See [`GateError`].
    pub fn enter_within(
        &self,
        class: Class,
        op: Op,
        len_bytes: u32,
        timeout: Duration,
    ) -> Result<Option<Permit<'_>>, GateError> {
        let call = Call { class, op, len_bytes, offset_bytes: 0, file: 0 };
        let until_ns = now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let admitted = self.0.enter(&call, Some(until_ns))?;
        Ok(admitted.map(|admitted| Permit { gate: &self.0, admitted }))
    }

    /// Moves `len_bytes` through the gate by as many calls of `call(offset, len)` as it takes: each moves up to `len` bytes from
    /// `offset` of the whole, and says how many. A call that moves fewer ends it. Returns how many were moved in all.
    ///
    /// # Errors
    /// That of the first call that fails, if nothing was moved before it; of the gate likewise ([`GateError`]).
    pub fn transfer(
        &self,
        class: Class,
        op: Op,
        len_bytes: usize,
        mut call: impl FnMut(usize, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = 0;
        loop {
            let left = u32::try_from(len_bytes - moved).unwrap_or(u32::MAX);
            let permit = match self.enter(class, op, left) {
                Ok(permit) => permit,
                Err(error) => return if moved > 0 { Ok(moved) } else { Err(error.into()) },
            };
            let len = permit.len_bytes() as usize;
            match call(moved, len) {
                Ok(now) => {
                    let now = now.min(len);
                    permit.end(Ok(now as u32));
                    moved += now;
                    if now < len || moved == len_bytes {
                        return Ok(moved);
                    }
                }
                Err(error) => {
                    permit.end(Err(error.raw_os_error().unwrap_or(libc::EIO)));
                    return if moved > 0 { Ok(moved) } else { Err(error) };
                }
            }
        }
    }

    /// A number for the file at `path`, by which traces name it. Give it back with [`Gate::forget_file`].
    #[must_use]
    pub fn name_file(&self, path: &std::path::Path) -> u32 {
        self.0.topology().recorder().files().take(path, self.0.disk())
    }

    /// Nobody uses the file of this number any more.
    pub fn forget_file(&self, file: u32) {
        self.0.topology().give_back_file_number(file);
    }

    /// The program's disks and classes.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        self.0.topology()
    }

    /// What `class` has done here; `None` where there is no such class.
    #[must_use]
    pub fn class_stats(&self, class: Class) -> Option<ClassStats> {
        self.0.class_stats(class)
    }

    /// Hands the latency histograms of `class` to `visit`, for each direction in which it has moved anything.
    pub fn class_latencies(&self, class: Class, visit: &mut dyn FnMut(Direction, &Latencies)) {
        self.0.class_latencies(class, visit);
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("disk", &self.0.disk()).finish_non_exhaustive()
    }
}

/// How long a call took, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// From asking until it might go.
    pub waited_ns: u64,
    /// From asking to its end.
    pub total_ns: u64,
    /// When it ended, by [`sys::clock`](crate::sys::clock).
    pub at_ns: u64,
}

/// A call that may go now. Dropped, the call is over and has moved all that was allowed.
#[must_use = "the call may go only while the permit lives"]
pub struct Permit<'a> {
    gate: &'a Inner,
    admitted: Admitted,
}

impl Permit<'_> {
    /// How much of the call may go: all that was asked for, or its beginning. 0 for what moves nothing.
    #[must_use]
    pub fn len_bytes(&self) -> u32 {
        self.admitted.len_bytes
    }

    /// The call is over: it moved so many bytes, or failed with this error number. Returns how long it took.
    pub fn end(self, result: Result<u32, i32>) -> Passed {
        let Permit { gate, admitted } = *ManuallyDrop::new(self);
        gate.leave(admitted, result)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.gate.leave(self.admitted, Ok(self.admitted.len_bytes));
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}
