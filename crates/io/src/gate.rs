//! A gate: the scheduler for threads that make their own system calls.
//!
//! # Why
//! A database with its own thread pool, a program in C, a task of Tokio's `spawn_blocking`: they make their own system
//! calls and will not be rewritten for a shard. They can ask for admission before each call, and report its end.
//!
//! # How it works
//! [`Gate::enter`] returns a [`Permit`] at once if no call is ahead and the disk can take this one; otherwise it queues
//! the call in its class and sleeps until then. The thread makes its call; the permit, dropped or [ended](Permit::end),
//! admits the next ones. A gate is one I/O queue of a disk behind a lock (the queue of `plimsoll-core` that a shard has
//! too), and one futex per waiting thread. Every thread that enters or leaves does the scheduling for all, and wakes
//! exactly the threads that are admitted. One waiting thread keeps the time: it sleeps until the queue's next wake-up,
//! and passes that duty on when it is admitted.
//!
//! If a long call would delay others, a permit may be for fewer bytes than requested: move those, and enter again for
//! the rest ([`Gate::transfer`] does). All pieces that the disk takes at once form one permit, so an idle disk gets
//! long calls whole.
//!
//! A gate takes the place of one shard in its [`Topology`]: metrics, traces, the control socket and changes of shares
//! work as with any shard. Threads of a class are served in the order of their arrival.
//!
//! # Limits
//! One disk per gate. A [`Runtime`](crate::Runtime) on the same topology starts only the shards whose place no gate
//! holds at that time: make the gates first. Other disks of the topology should have an I/O queue for each shard, too:
//! requests to a queue end with `BrokenPipe` if a gate holds the place of its coordinator.
//!
//! A gate costs two uncontended locks and two clock readings per call (`crates/benches` measures them); a thread that
//! has to wait also pays for being woken. In a trace a piece counts as submitted when it is admitted, so
//! the time in which the thread wakes up is part of the device's time. A gate does not survive `fork`: the child must
//! not use it.
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

mod agent;
mod inner;
mod lateness;
#[cfg(all(plimsoll_loom, test))]
#[path = "gate/tests/loom.rs"]
mod loom_tests;
mod parker;
mod state;
mod stations;
#[cfg(all(test, not(plimsoll_loom)))]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::{ClassStats, Direction, Latencies, Op};

use crate::backend::explained;
use crate::class::Class;
use crate::sys::clock::now_ns;
use crate::topology::Topology;
pub use agent::Agent;
use inner::Inner;
use state::Admitted;

/// Why a gate could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateStartError {
    /// The topology has fewer shards.
    NoSuchShard {
        /// The shard requested.
        shard: u16,
    },
    /// The topology has fewer disks.
    NoSuchDisk {
        /// The disk requested.
        disk: u16,
    },
    /// A reactor or another gate already has the place of this shard.
    IsOpen {
        /// The shard requested.
        shard: u16,
    },
    /// The disk has fewer I/O queues than shards, so shards would send requests to each other; a gate cannot answer
    /// them.
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

/// Why a call was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateError {
    /// There is no such class, or it is a group.
    UnknownClass,
    /// As many calls wait or are admitted as [`DiskSetup::max_requests`](crate::DiskSetup) allows.
    Full,
    /// The call would wait longer than its class allows.
    Overloaded {
        /// Its expected wait, in nanoseconds.
        expected_ns: u64,
    },
    /// The class was removed while the call waited.
    ClassRemoved,
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateError::UnknownClass => write!(f, "there is no such class (was it removed, or is it a group?)"),
            GateError::Full => {
                write!(f, "as many calls wait or are admitted as may: wait for some to end, or shed load")
            }
            GateError::Overloaded { expected_ns } => {
                write!(f, "the call would wait {expected_ns} ns, longer than its class allows: shed load")
            }
            GateError::ClassRemoved => write!(f, "the class was removed while the call waited"),
        }
    }
}

impl std::error::Error for GateError {}

impl From<GateError> for io::Error {
    /// Returns the error that a [`File`](crate::File) returns for the same reason.
    fn from(error: GateError) -> io::Error {
        let kind = match error {
            GateError::UnknownClass => io::ErrorKind::InvalidInput,
            GateError::Full | GateError::Overloaded { .. } => io::ErrorKind::WouldBlock,
            // Not `Interrupted`: the loops of `std` would repeat the call.
            GateError::ClassRemoved => return explained(libc::ECANCELED, error.to_string()),
        };
        io::Error::new(kind, error)
    }
}

/// A call that asks for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its class.
    pub class: Class,
    /// Its operation.
    pub op: Op,
    /// Bytes to move; ignored for operations that move none.
    pub len_bytes: u32,
    /// Offset in its file, in bytes; for traces only.
    pub offset_bytes: u64,
    /// Its file, from [`Gate::name_file`]; for traces only.
    pub file: u32,
}

/// The gate of one disk; see the module's documentation. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

impl Gate {
    /// Most bytes of one call of a transfer: 1 GiB, a multiple of every block. Linux moves less than 2 GiB at once, so a
    /// longer call would come back short, as at the end of the file.
    pub const CALL_BYTES_MAX: u32 = 1 << 30;

    /// Returns a gate for disk `disk` that takes the place of shard `shard` of `topology` until the last clone is
    /// dropped.
    ///
    /// # Errors
    /// See [`GateStartError`].
    pub fn new(topology: &Topology, shard: u16, disk: u16) -> Result<Gate, GateStartError> {
        Inner::new(topology, shard, disk, false).map(Gate)
    }

    /// As [`Gate::new`], for threads whose signal handlers may end them (`pthread_exit`) or leave by a jump
    /// (`siglongjmp`): signals of a thread whose call waits are held back while the thread runs the gate's code, and
    /// delivered while it sleeps. Such a call costs six system calls more. A thread whose call need not wait is not
    /// protected in the few hundred nanoseconds that it is here.
    ///
    /// # Errors
    /// See [`GateStartError`].
    pub fn holding_signals(topology: &Topology, shard: u16, disk: u16) -> Result<Gate, GateStartError> {
        Inner::new(topology, shard, disk, true).map(Gate)
    }

    /// Waits until a call of `class` that moves `len_bytes` is admitted, wholly or for its first [`Permit::len_bytes`]
    /// bytes. Signals do not end the wait.
    ///
    /// # Errors
    /// See [`GateError`]: the call was not admitted.
    pub fn enter(&self, class: Class, op: Op, len_bytes: u32) -> Result<Permit<'_>, GateError> {
        self.enter_for(Call { class, op, len_bytes, offset_bytes: 0, file: 0 })
    }

    /// Waits as [`Gate::enter`], with the details of the call for traces.
    ///
    /// # Errors
    /// See [`GateError`].
    pub fn enter_for(&self, call: Call) -> Result<Permit<'_>, GateError> {
        match self.0.enter(&call, None)? {
            Some(admitted) => Ok(Permit { gate: &self.0, admitted: Some(admitted) }),
            None => {
                debug_assert!(false, "a wait without an end has ended");
                Err(GateError::Full)
            }
        }
    }

    /// Waits as [`Gate::enter`], for at most `timeout`. Returns `None` if the call was not admitted by then; nothing
    /// stays queued.
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
        Ok(admitted.map(|admitted| Permit { gate: &self.0, admitted: Some(admitted) }))
    }

    /// Returns an agent, which enters on behalf of threads that cannot. `ring` wakes the thread that has the agent.
    pub fn agent(&self, ring: impl Fn() + Send + Sync + 'static) -> Agent<'_> {
        Agent::new(&self.0, Box::new(ring))
    }

    /// Withdraws the call for which the calling thread has waited at this gate if it has left the wait by a jump from a
    /// signal handler (`siglongjmp`), which runs no destructors. Otherwise does nothing.
    pub fn withdraw_left(&self) {
        self.0.withdraw_left();
    }

    /// Moves `len_bytes` through the gate in as many calls of `call(offset, len)` as needed: each moves up to `len`
    /// bytes, at most [`Gate::CALL_BYTES_MAX`], from `offset` of the transfer, and returns how many. A call that moves
    /// fewer is the last. Returns the bytes moved in all. An operation that is not a read or a write is not split: it is
    /// one call, with all of its length.
    ///
    /// # Errors
    /// If nothing was moved before: the error of the failed call, or of the gate ([`GateError`]).
    pub fn transfer(
        &self,
        class: Class,
        op: Op,
        len_bytes: usize,
        mut call: impl FnMut(usize, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = 0;
        loop {
            let left = (len_bytes - moved).min(Gate::CALL_BYTES_MAX as usize) as u32;
            let permit = match self.enter(class, op, left) {
                Ok(permit) => permit,
                Err(error) => return if moved > 0 { Ok(moved) } else { Err(error.into()) },
            };

            let len = if op.is_transfer() { permit.len_bytes() as usize } else { len_bytes };
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

    /// Returns a number by which traces name the file at `path`. Give it back with [`Gate::forget_file`].
    #[must_use]
    pub fn name_file(&self, path: &std::path::Path) -> u32 {
        self.0.topology().recorder().files().take(path, self.0.disk())
    }

    /// Gives back the number of a file that is no longer used.
    pub fn forget_file(&self, file: u32) {
        self.0.topology().recorder().files().give_back(file);
    }

    /// Returns the program's disks and classes.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        self.0.topology()
    }

    /// Returns the counters of `class` at this gate, or `None` if there is no such class.
    #[must_use]
    pub fn class_stats(&self, class: Class) -> Option<ClassStats> {
        self.0.class_stats(class)
    }

    /// Calls `visit` with the latency histograms of `class`, for each direction in which the class has moved bytes.
    pub fn class_latencies(&self, class: Class, visit: &mut dyn FnMut(Direction, &Latencies)) {
        self.0.class_latencies(class, visit);
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("disk", &self.0.disk()).finish_non_exhaustive()
    }
}

/// Duration of a call that has passed the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// From asking to admission, in nanoseconds.
    pub waited_ns: u64,
    /// From asking to the end of the call, in nanoseconds.
    pub total_ns: u64,
    /// Time of the end, by [`sys::clock`](crate::sys::clock), in nanoseconds.
    pub at_ns: u64,
}

/// An admitted call. Dropping the permit ends the call, which then counts as having moved all bytes allowed.
#[must_use = "the call may go only while the permit lives"]
pub struct Permit<'a> {
    gate: &'a Inner,
    /// `None` once it has ended.
    admitted: Option<Admitted>,
}

impl Permit<'_> {
    /// Returns the bytes that the call may move: all those requested, or fewer. 0 for operations that move none.
    #[must_use]
    pub fn len_bytes(&self) -> u32 {
        self.admitted.as_ref().map_or(0, Admitted::len_bytes)
    }

    /// Ends the call, which moved this many bytes or failed with this error number. Returns how long it took.
    pub fn end(mut self, result: Result<u32, i32>) -> Passed {
        self.admitted.take().map_or(Passed::default(), |admitted| self.gate.leave(admitted, result))
    }

    /// Ends a call that another thread has made, from `began_ns` to `ended_ns` by [`sys::clock`](crate::sys::clock). What
    /// passed before and after is not the disk's time.
    pub fn end_for_other(mut self, result: Result<u32, i32>, began_ns: u64, ended_ns: u64) -> Passed {
        let end = |admitted| self.gate.leave_for_other(admitted, result, began_ns, ended_ns);
        self.admitted.take().map_or(Passed::default(), end)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted.take() {
            let all_bytes = admitted.len_bytes();
            self.gate.leave(admitted, Ok(all_bytes));
        }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}
