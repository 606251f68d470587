//! A simulated machine: files with contents on simulated disks, in virtual time, with faults and crashes.
//!
//! # Why
//! Code that runs above a shard (a cache, a store, a scheduler policy) is hard to test against a real disk, which is
//! slow, does not fail on demand, and never repeats a run. In a [`SimWorld`] whole shards run, executor, timers, I/O
//! queues and files, in virtual time: ten seconds pass in milliseconds, disks lose writes as often as configured, the
//! power fails between any two operations, and the same seed repeats the whole run.
//!
//! # How it works
//! A world has one clock, some disks (device models of `plimsoll-sim`) and the files on them. Each shard gets a
//! [`SimBackend`] from [`SimWorld::backend`]. Computing takes no virtual time. The clock moves to the next event when
//! shards wait:
//!
//! * under a [`SimRuntime`](crate::SimRuntime): when no shard has work at this instant. All shards are on one thread,
//!   and the run is deterministic. Use this for several shards.
//! * with a single [`Shard`](crate::Shard) or [`Reactor`](crate::Reactor): in its `wait`, at once.
//! * with [`SimWorld::for_threads`], one thread per shard (as `--backend sim` runs a [`Runtime`](crate::Runtime)): when
//!   the last of the threads waits. Not deterministic, because of the system's scheduler.
//!
//! Contents exist twice: as reads see them, and as they survive [`SimWorld::crash`]; a sync copies the first to the
//! second. The comments in the source (`files.rs`) define when a change is durable: as POSIX specifies, not as ext4
//! implements it.
//!
//! Faults occur at random ([`SimFaults`], for all disks or one) or on a test's command: the power fails
//! ([`SimWorld::crash`]; [`SimRuntime::block_on_until_landed`](crate::SimRuntime::block_on_until_landed) stops after a
//! given number of operations, so that a test can try each), a disk becomes slow, fails or is removed
//! ([`SimWorld::set_disk_state`]).
//!
//! # Limits
//! No directories, no removal; every path exists once created. Direct I/O requires sector-aligned offsets, lengths and
//! addresses. If threads wait for one another by other means than their shards, the clock of a world for threads stops.
//!
//! # Example
//! Two writes, one sync, a crash. Faults are off, and unsynced changes are configured to vanish:
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
    /// Files whose path begins with this are on this disk. The longest such mount counts; the empty one matches every
    /// path.
    pub mount: PathBuf,
    /// The model of the disk's behaviour.
    pub spec: DeviceSpec,
}

/// A simulated world.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The disks; at least one.
    pub disks: Vec<SimDisk>,
    /// Unit that a disk writes wholly or not at all: 512 or 4096 bytes. Also the alignment of direct I/O.
    pub sector_bytes: u32,
    /// The faults; [`SimWorld::set_faults`] changes them during a run.
    pub faults: SimFaults,
    /// Whether files keep their contents. If not, they keep only their lengths: reads return zeros, and a write costs
    /// neither memory nor a copy. This is for long runs that measure times and rates. Written data and metadata are
    /// lost at once, so nothing can be recovered from such a disk (lengths survive a crash, synced or not), and lost,
    /// misdirected and torn writes have no visible effect.
    pub keep_contents: bool,
}

impl Default for SimConfig {
    /// Returns one faultless disk of the default model for every path, with sectors of 4096 bytes, that keeps contents.
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
    /// The sector size is neither 512 nor 4096 bytes.
    SectorBytes(u32),
    /// A probability below 0, above 1, or NaN.
    Probability {
        /// Its name.
        name: &'static str,
    },
    /// A disk's specification or state is not possible.
    Disk {
        /// Number of the disk, from 0.
        number: usize,
        /// The reason.
        why: String,
    },
    /// The world has no disk of this number.
    UnknownDisk {
        /// The number, from 0.
        number: usize,
        /// Number of disks in the world.
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
    /// Notified when the clock has moved or a shard was woken; only worlds for threads sleep on it.
    changed: Condvar,
}

impl Shared {
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        // Every change is complete before any code can panic.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A simulated world; see the module's documentation. Clones are the same world.
#[derive(Clone)]
pub struct SimWorld(Arc<Shared>);

impl SimWorld {
    /// Returns a world whose shards are all on one thread. Its clock begins at 0.
    ///
    /// # Errors
    /// See [`SimConfigError`].
    pub fn new(config: &SimConfig) -> Result<SimWorld, SimConfigError> {
        SimWorld::with_pace(config, Pace::Alone)
    }

    /// Returns a world whose shards have one thread each. The clock moves when all of them wait; when no event is left,
    /// they sleep until a call from outside wakes one. Make the backends of all shards before the first shard waits.
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

    /// Returns a backend for one shard that takes `capacity` operations at once (at least 1).
    #[must_use]
    pub fn backend(&self, capacity: u32) -> SimBackend {
        SimBackend::new(&self.0, capacity)
    }

    /// Returns the clock, in nanoseconds since the world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.machine().now_ns
    }

    /// Replaces the faults of all disks without their own faults.
    ///
    /// # Errors
    /// [`SimConfigError::Probability`]; then nothing has changed.
    pub fn set_faults(&self, faults: SimFaults) -> Result<(), SimConfigError> {
        check_faults(&faults)?;
        self.0.machine().dice.faults = faults;
        Ok(())
    }

    /// Sets the own faults of disk number `disk` (from 0, in the order of [`SimConfig::disks`]), which replace the
    /// world's; `None` restores the world's. They also apply at a crash.
    ///
    /// # Errors
    /// [`SimConfigError::Probability`], [`SimConfigError::UnknownDisk`]; then nothing has changed.
    pub fn set_disk_faults(&self, disk: usize, faults: Option<SimFaults>) -> Result<(), SimConfigError> {
        faults.as_ref().map_or(Ok(()), check_faults)?;
        self.0.machine().set_disk_faults(disk, faults)
    }

    /// Sets the state of disk number `disk` (from 0, in the order of [`SimConfig::disks`]), until it is set again; a
    /// crash of the world does not change it. All disks begin [`Healthy`](SimDiskState::Healthy). A disk that returns
    /// after it was failed or gone has the contents of the moment when it left. Operations in flight at that moment
    /// ended with the error, and took effect or not (see [`SimFaults::unsynced_kept_probability`]).
    ///
    /// # Errors
    /// [`SimConfigError::UnknownDisk`], [`SimConfigError::Disk`] for a factor that is out of range; then nothing has
    /// changed.
    pub fn set_disk_state(&self, disk: usize, state: SimDiskState) -> Result<(), SimConfigError> {
        self.0.machine().set_disk_state(disk, state)?;
        self.0.changed.notify_all();
        Ok(())
    }

    /// Returns the number of operations that have completed on the disks since the world began, with any result. (A
    /// request of a shard may be several operations.) Operations refused without reaching a disk, or ended because of a
    /// crash or because their disk left, do not count.
    #[must_use]
    pub fn landed(&self) -> u64 {
        self.0.machine().landed
    }

    /// Returns the number of faults so far.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.0.machine().dice.counters
    }

    /// Cuts and restores the power: operations in flight end with `EIO`, files hold their durable contents (and the
    /// part of the rest that [`SimFaults`] decides). Backends made before end every operation with `EIO`: drop them,
    /// and make new ones. The clock continues.
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
