//! A simulated machine: files with contents on simulated disks, in virtual time, with faults and crashes.
//!
//! # Why
//! What runs above a shard (a cache, a store, a scheduler policy) is hard to test against a real disk: it is slow,
//! never fails when it should, and never does the same twice. In a [`SimWorld`] whole shards run, executor, timers,
//! I/O queues and files, in virtual time: ten seconds pass in milliseconds, disks lose writes as often as asked, the
//! power fails between any two operations, and the same seed does all of it again.
//!
//! # How it works
//! A world has one clock, some disks (device models of `plimsoll-sim`) and the files on them. Each shard gets a
//! [`SimBackend`] from [`SimWorld::backend`]. Computing takes no virtual time; the clock moves when shards wait, to the
//! next moment at which something happens:
//!
//! * under a [`SimRuntime`](crate::SimRuntime): when every shard has nothing to do at this instant. All shards are on
//!   one thread, and the run is deterministic. This is the way for several shards.
//! * with a [`Shard`](crate::Shard) or [`Reactor`](crate::Reactor) alone: in its `wait`, at once.
//! * with [`SimWorld::for_threads`], one thread a shard (what `--backend sim` gives a
//!   [`Runtime`](crate::Runtime)): when the last of the threads waits. Not deterministic, the system's scheduler has a
//!   say.
//!
//! Contents exist twice: what reads see, and what survives [`SimWorld::crash`]; a sync carries the one into the other.
//! What exactly is durable when is told in the source beside it (`files.rs`): in short, as POSIX says, not as ext4
//! happens to do.
//!
//! Things go wrong by the dice ([`SimFaults`], for all disks or one) or when a test says so: the power fails
//! ([`SimWorld::crash`]; [`SimRuntime::block_on_until_landed`](crate::SimRuntime::block_on_until_landed) stops after
//! every single operation, to try all of them), a disk gets slow, dies or is pulled out ([`SimWorld::set_disk_state`]).
//!
//! # Limits
//! No directories, no removal; every path exists once created. Direct I/O wants sector-aligned offsets, lengths and
//! addresses. Threads that wait for one another by other means than their shards stop the clock of a world for threads.
//!
//! # Example
//! Two writes, one sync, a crash. Faults are off, and unsynced changes are told to vanish:
//! ```
//! use plimsoll::backend::OpenOptions;
//! use plimsoll::backend::sim::{SimConfig, SimFaults, SimWorld};
//! use plimsoll::buffer::AlignedBuf;
//! use plimsoll::{Class, Classes, DiskSetup, SimRuntime, Topology};
//!
//! let faults = SimFaults { unsynced_kept_probability: 0.0, ..SimFaults::default() };
//! let world = SimWorld::new(&SimConfig { faults, ..SimConfig::default() })?;
//! let topology = || Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]);
//! let block = |byte| AlignedBuf::new(4096).map(|mut buffer| { buffer.fill(byte); buffer });
//!
//! let first = topology()?;
//! let runtime = SimRuntime::new(&world, &first)?;
//! let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
//! let file = first.file("journal".as_ref(), create, 0);
//! let (shard, before, after) = (runtime.shard(0).clone(), block(1)?, block(2)?);
//! runtime.block_on(0, async {
//!     shard.write_at(&file, Class::DEFAULT, 0, before).await.0?;
//!     shard.sync(&file, Class::DEFAULT, false).await?;
//!     shard.write_at(&file, Class::DEFAULT, 0, after).await.0
//! })??;
//! runtime.crash();
//!
//! let second = topology()?;
//! let runtime = SimRuntime::new(&world, &second)?;
//! let file = second.file("journal".as_ref(), OpenOptions::default(), 0);
//! let shard = runtime.shard(0).clone();
//! let (read, bytes) = runtime.block_on(0, shard.read_at(&file, Class::DEFAULT, 0, block(0)?))?;
//! assert_eq!((read?, bytes[0]), (4096, 1));
//! assert_eq!(world.counters().dropped_at_crash, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod disk;
mod faults;
mod files;
mod flight;
mod image;
mod machine;
mod member;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use plimsoll_sim::device::DeviceSpec;

pub use disk::SimDiskState;
pub use faults::{SimCounters, SimFaults};
pub(crate) use machine::{Machine, Pace};
pub use member::SimBackend;

/// One disk of a simulated world.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    /// Files whose path begins with this lie on this disk (the longest such mount counts; the empty one takes every
    /// path).
    pub mount: PathBuf,
    /// How the disk behaves.
    pub spec: DeviceSpec,
}

/// A simulated world.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// From which everything random comes.
    pub seed: u64,
    /// The disks; at least one.
    pub disks: Vec<SimDisk>,
    /// What a disk writes whole or not at all: 512 or 4096 bytes. Also the alignment of direct I/O.
    pub sector_bytes: u32,
    /// What goes wrong; see [`SimWorld::set_faults`] to change it on the way.
    pub faults: SimFaults,
    /// Whether files hold what is written. If not they know their lengths only: reads give zeros, and a write costs
    /// neither memory nor copying. That is for long runs that look at times and rates. Whatever is written is lost at
    /// once, metadata too, so nothing can be recovered from such a disk (lengths survive a crash, synced or not), and
    /// lost, misdirected and torn writes cannot be told from others.
    pub keep_contents: bool,
}

impl Default for SimConfig {
    /// One faultless disk of the default model for every path, with sectors of 4096 bytes, that keeps contents.
    fn default() -> SimConfig {
        SimConfig {
            seed: 1,
            disks: vec![SimDisk::default()],
            sector_bytes: 4096,
            faults: SimFaults::default(),
            keep_contents: true,
        }
    }
}

/// Why a world, or a change of one, was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimConfigError {
    /// There is no disk.
    NoDisks,
    /// Sectors of another size than 512 or 4096 bytes.
    SectorBytes(u32),
    /// A probability below 0, above 1, or no number.
    Probability {
        /// Which one.
        name: &'static str,
    },
    /// A disk's specification or state is not possible.
    Disk {
        /// Which one, from 0.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The world has no disk of this number.
    UnknownDisk {
        /// The number, from 0.
        number: usize,
        /// How many disks there are.
        disks: usize,
    },
}

impl fmt::Display for SimConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimConfigError::NoDisks => {
                write!(f, "a simulated world needs at least one disk (SimDisk::default() is one)")
            }
            SimConfigError::SectorBytes(bytes) => write!(f, "sectors of {bytes} bytes: use 512 or 4096"),
            SimConfigError::Probability { name } => write!(f, "{name} is no probability: use 0 to 1"),
            SimConfigError::Disk { number, why } => write!(f, "simulated disk {number}: {why}"),
            SimConfigError::UnknownDisk { number, disks } => {
                write!(f, "there is no simulated disk {number}: the world has {disks}, counted from 0")
            }
        }
    }
}

impl std::error::Error for SimConfigError {}

pub(crate) struct Shared {
    machine: Mutex<Machine>,
    /// Rung when the clock has moved or somebody was woken; only worlds for threads sleep on it.
    changed: Condvar,
}

impl Shared {
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        // Every change is whole before anything can panic.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's documentation. Clones are the same world.
#[derive(Clone)]
pub struct SimWorld(Arc<Shared>);

impl SimWorld {
    /// A world whose shards are all on one thread. Its clock begins at 0.
    ///
    /// # Errors
    /// See [`SimConfigError`].
    pub fn new(config: &SimConfig) -> Result<SimWorld, SimConfigError> {
        SimWorld::with_pace(config, Pace::Alone)
    }

    /// A world whose shards are on a thread each: the clock moves when all of them wait, and when nothing can happen
    /// any more they sleep until one is woken from outside. All shards get their backends before the first of them
    /// waits.
    ///
    /// # Errors
    /// See [`SimConfigError`].
    pub fn for_threads(config: &SimConfig) -> Result<SimWorld, SimConfigError> {
        SimWorld::with_pace(config, Pace::Together)
    }

    fn with_pace(config: &SimConfig, pace: Pace) -> Result<SimWorld, SimConfigError> {
        if config.disks.is_empty() {
            return Err(SimConfigError::NoDisks);
        }
        if !matches!(config.sector_bytes, 512 | 4096) {
            return Err(SimConfigError::SectorBytes(config.sector_bytes));
        }
        check_faults(&config.faults)?;
        let machine = Mutex::new(Machine::new(config, pace)?);
        Ok(SimWorld(Arc::new(Shared { machine, changed: Condvar::new() })))
    }

    /// A backend for one shard, that takes `capacity` operations at once (at least 1).
    #[must_use]
    pub fn backend(&self, capacity: u32) -> SimBackend {
        SimBackend::new(&self.0, capacity)
    }

    /// The clock, in nanoseconds since the world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.machine().now_ns
    }

    /// From now on other things go wrong, on all disks that have no faults of their own.
    ///
    /// # Errors
    /// [`SimConfigError::Probability`]; then nothing has changed.
    pub fn set_faults(&self, faults: SimFaults) -> Result<(), SimConfigError> {
        check_faults(&faults)?;
        self.0.machine().dice.faults = faults;
        Ok(())
    }

    /// From now on these things go wrong on disk number `disk` (from 0, in the order of [`SimConfig::disks`]), whatever
    /// the world's faults are; with `None` the world's again. What is drawn at a crash counts too.
    ///
    /// # Errors
    /// [`SimConfigError::Probability`], [`SimConfigError::UnknownDisk`]; then nothing has changed.
    pub fn set_disk_faults(&self, disk: usize, faults: Option<SimFaults>) -> Result<(), SimConfigError> {
        faults.as_ref().map_or(Ok(()), check_faults)?;
        self.0.machine().set_disk_faults(disk, faults)
    }

    /// From now on disk number `disk` (from 0, in the order of [`SimConfig::disks`]) is in this state, also after a
    /// crash of the world, until it is set again. All disks begin [`Healthy`](SimDiskState::Healthy). A disk that
    /// returns after it was failed or gone has the contents that it had when it left; what was in flight then has
    /// ended with the error, and has happened or not (see [`SimFaults::unsynced_kept_probability`]).
    ///
    /// # Errors
    /// [`SimConfigError::UnknownDisk`], [`SimConfigError::Disk`] for a factor that is out of range; then nothing has
    /// changed.
    pub fn set_disk_state(&self, disk: usize, state: SimDiskState) -> Result<(), SimConfigError> {
        self.0.machine().set_disk_state(disk, state)?;
        self.0.changed.notify_all();
        Ok(())
    }

    /// How many operations have come back from the disks since the world began, whatever their result. (A request of a
    /// shard may be several.) What was refused without reaching a disk, or ended because of a crash or because its disk
    /// left, does not count.
    #[must_use]
    pub fn landed(&self) -> u64 {
        self.0.machine().landed
    }

    /// What has gone wrong so far.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.0.machine().dice.counters
    }

    /// The power fails, and comes back: what was in flight ends with `EIO`, files hold what was durable (and of the
    /// rest what [`SimFaults`] says). Backends made before are dead, everything ends with `EIO` there: drop them, and
    /// begin again with new ones. The clock goes on.
    pub fn crash(&self) {
        self.0.machine().crash();
        self.0.changed.notify_all();
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

fn check_faults(faults: &SimFaults) -> Result<(), SimConfigError> {
    faults.first_bad().map_or(Ok(()), |name| Err(SimConfigError::Probability { name }))
}
