//! The shards that a cache runs on: its own, or a program's.
//!
//! # Why
//! A command or a Tokio program wants a cache that starts its own threads. A program built on `plimsoll` wants its
//! cache on its existing shards, in one hierarchy of classes with all other I/O. A test wants it in virtual time.
//!
//! # How it works
//! A [`Host`] is a topology and a handle to each of its shards. [`Host::threads`] starts a runtime; [`Host::on`] takes
//! existing shards. The cache's own I/O is in five classes, `cache.hit`, `cache.fill`, `cache.evacuate`,
//! `cache.checkpoint` and `cache.discard`, whose shares the program may change.
//!
//! # Limits
//! A topology's disks are fixed when it is made. So [`Host::threads`] makes [`SPARE_DISKS`] more than it has models
//! for, for disks that are added while the cache runs.
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

use crate::config::{BadConfig, SPARE_DISKS};
use crate::error::CacheError;
use crate::held::DiskFiles;

/// Options for the shards of a cache that has its own.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Number of shards; at least 1.
    pub shards: u16,
    /// The backend; `None` takes the best that the machine allows.
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

/// Returns the error for a disk of a cache without a disk of the topology to schedule it.
pub(crate) fn too_few_disks() -> CacheError {
    CacheError::Config(BadConfig { key: "disks", expected: "a disk of the host's topology for each disk of the cache" })
}

impl CacheClasses {
    /// Finds the cache's classes in `classes`, or adds them.
    fn of(classes: &Classes) -> Result<CacheClasses, CacheError> {
        let class = |name, shares| match classes.find(name) {
            Some(class) => Ok(class),
            None => classes.add_class(name, None, shares).map_err(|error| CacheError::Stopped(error.to_string())),
        };
        Ok(CacheClasses {
            hit: class("cache.hit", 1000)?,
            fill: class("cache.fill", 300)?,
            evacuate: class("cache.evacuate", 100)?,
            // Checkpoints write little, and everything waits for the space they free.
            checkpoint: class("cache.checkpoint", 500)?,
            discard: class("cache.discard", 20)?,
        })
    }
}

/// The parts of its host that an open cache keeps.
#[derive(Clone)]
pub(crate) struct HostParts {
    pub(crate) topology: Topology,
    pub(crate) classes: CacheClasses,
    /// The disks of the topology that the cache may use.
    pub(crate) disks: Range<u16>,
    /// Whether the cache locks devices against other processes.
    pub(crate) locks: bool,
    /// The files that the cache has opened.
    pub(crate) files: DiskFiles,
}

/// The shards and the disks of the topology that a cache runs on.
pub struct Host {
    pub(crate) parts: HostParts,
    pub(crate) handles: Vec<Handle>,
    pub(crate) runtime: Option<Runtime>,
}

impl Host {
    /// Starts shards on threads of their own, for disks of these models and [`SPARE_DISKS`] more.
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

    /// Returns a host on the shards of a program. `handles` are the shards that work for the cache, at least one.
    /// `disks` are the cache's disks in the topology, in the order in which the cache's disks will be named.
    ///
    /// # Errors
    /// When there is no handle, the topology does not have the disks, or the classes cannot be made.
    pub fn on(topology: &Topology, handles: Vec<Handle>, disks: Range<u16>) -> Result<Host, CacheError> {
        if handles.is_empty() {
            return Err(CacheError::Stopped("a cache needs a handle to one shard at the least".to_owned()));
        }
        if disks.end > topology.disks() {
            return Err(too_few_disks());
        }
        let classes = CacheClasses::of(topology.classes())?;
        let parts = HostParts { topology: topology.clone(), classes, disks, locks: true, files: DiskFiles::default() };
        Ok(Host { parts, handles, runtime: None })
    }

    /// Takes no locks on the devices: for shards whose files are in memory or simulated.
    #[must_use]
    pub fn without_locks(mut self) -> Host {
        self.parts.locks = false;
        self
    }

    /// Draws identities and stream numbers from `seed` on this thread from now on: for simulated worlds, which repeat
    /// themselves with the same seed. Never use it with real disks: two such caches may take each other's disks for
    /// their own.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Host {
        crate::random::seed_random(seed);
        self
    }

    /// Returns the host's classes; those of the cache begin with `cache.`.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        self.parts.topology.classes()
    }
}
