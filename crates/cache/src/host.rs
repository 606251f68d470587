//! Where a cache runs: shards of its own, or those that a program has already.
//!
//! # Why
//! A command or a Tokio program wants a cache that brings its threads; a program that is built on `plimsoll` wants its
//! cache on the shards it has, in one order of classes with everything else; a test wants it in virtual time.
//!
//! # How it works
//! A [`Host`] is a topology and a handle to each of its shards. [`Host::threads`] starts a runtime; [`Host::on`] takes
//! what there is. The cache's own I/O is in five classes, `cache.hit`, `cache.fill`, `cache.evacuate`,
//! `cache.checkpoint` and `cache.discard`, which anybody may give other shares.
//!
//! # Limits
//! A topology's disks are fixed when it is made, so a host has [`SPARE_DISKS`] more than it was made for, without a model:
//! for disks that are added while it runs.
//!
//! # Example
//! ```
//! use plimsoll_cache::{Host, HostOptions};
//! use plimsoll::backend::choose::BackendKind;
//! let options = HostOptions { shards: 1, backend: Some(BackendKind::Memory), ..HostOptions::default() };
//! let host = Host::threads(&options, &[Default::default()])?;
//! assert_eq!(host.classes().list().len(), 6); // and `default`
//! # Ok::<(), plimsoll_cache::CacheError>(())
//! ```

use std::ops::Range;

use plimsoll::backend::choose::BackendKind;
use plimsoll::core::DiskConfig;
use plimsoll::{Class, Classes, DiskSetup, Handle, Runtime, ShardOptions, Topology};

use crate::config::SPARE_DISKS;
use crate::error::CacheError;

/// How shards are made for a cache that brings its own.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// How many; at least 1.
    pub shards: u16,
    /// Which backend; `None` takes the best that the machine allows.
    pub backend: Option<BackendKind>,
    /// Pin each shard to a CPU of its own.
    pub pin: bool,
}

impl Default for HostOptions {
    fn default() -> HostOptions {
        HostOptions { shards: 1, backend: None, pin: false }
    }
}

/// The classes of a cache's own I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheClasses {
    pub(crate) hit: Class,
    pub(crate) fill: Class,
    pub(crate) evacuate: Class,
    pub(crate) checkpoint: Class,
    pub(crate) discard: Class,
}

impl CacheClasses {
    /// In `classes`, made where they are not there yet.
    fn of(classes: &Classes) -> Result<CacheClasses, CacheError> {
        let class = |name, shares| match classes.find(name) {
            Some(class) => Ok(class),
            None => classes.add_class(name, None, shares).map_err(|error| CacheError::Stopped(error.to_string())),
        };
        Ok(CacheClasses {
            hit: class("cache.hit", 1000)?,
            fill: class("cache.fill", 300)?,
            evacuate: class("cache.evacuate", 100)?,
            // It writes little, and everything waits for the space it sets free.
            checkpoint: class("cache.checkpoint", 500)?,
            discard: class("cache.discard", 20)?,
        })
    }
}

/// What an open cache keeps of its host.
#[derive(Clone)]
pub(crate) struct HostParts {
    pub(crate) topology: Topology,
    pub(crate) classes: CacheClasses,
    /// The disks of the topology that the cache may use.
    pub(crate) disks: Range<u16>,
    /// Whether devices are locked against other processes.
    pub(crate) locks: bool,
}

/// See the module's documentation.
pub struct Host {
    pub(crate) parts: HostParts,
    pub(crate) handles: Vec<Handle>,
    pub(crate) runtime: Option<Runtime>,
}

impl Host {
    /// Shards on threads of their own, for disks of these models and [`SPARE_DISKS`] more.
    ///
    /// # Errors
    /// When the shards cannot be started.
    pub fn threads(options: &HostOptions, models: &[DiskConfig]) -> Result<Host, CacheError> {
        let stopped = |error: &dyn std::fmt::Display| CacheError::Stopped(error.to_string());
        let spare = (0..SPARE_DISKS).map(|_| DiskSetup::unlimited());
        let setups = models.iter().map(|model| DiskSetup::new(model.clone())).chain(spare).collect();
        let topology = Topology::new(options.shards.max(1), Classes::new(), setups).map_err(|error| stopped(&error))?;
        let shards = ShardOptions { backend: options.backend, pin: options.pin, ..ShardOptions::default() };
        let runtime = Runtime::start(&topology, &shards).map_err(|error| stopped(&error))?;
        let is_real = matches!(runtime.backend().kind, BackendKind::Uring | BackendKind::Aio | BackendKind::Pool);
        let handles = (0..topology.shards()).map(|shard| runtime.handle(shard)).collect();
        let disks = 0..topology.disks();
        let mut host = Host::on(&topology, handles, disks)?;
        host.parts.locks = is_real;
        host.runtime = Some(runtime);
        Ok(host)
    }

    /// The shards of a program: a handle to each of those that are to work for the cache (one at the least), and the disks
    /// of the topology, in the order in which the cache's disks will be named, that are the cache's.
    ///
    /// # Errors
    /// When there is no handle, or the classes cannot be made.
    pub fn on(topology: &Topology, handles: Vec<Handle>, disks: Range<u16>) -> Result<Host, CacheError> {
        if handles.is_empty() {
            return Err(CacheError::Stopped("a cache needs a handle to one shard at the least".to_owned()));
        }
        let classes = CacheClasses::of(topology.classes())?;
        let parts = HostParts { topology: topology.clone(), classes, disks, locks: true };
        Ok(Host { parts, handles, runtime: None })
    }

    /// Takes no locks on the devices: for shards whose files are in memory or simulated.
    #[must_use]
    pub fn without_locks(mut self) -> Host {
        self.parts.locks = false;
        self
    }

    /// Identities and names of streams come from `seed` on this thread from now on: for simulated worlds, where the same
    /// seed is to do the same. Caches made so may take one another's disks for their own: never for real ones.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Host {
        crate::random::seed_random(seed);
        self
    }

    /// The classes of the program; those of the cache begin with `cache.`.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        self.parts.topology.classes()
    }
}
