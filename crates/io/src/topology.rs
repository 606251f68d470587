//! What the shards of a program have in common: disks, classes, mailboxes, and which shard's queue serves which shard.
//!
//! # Why
//! A disk with much parallelism gets an I/O queue on every shard and no message is ever sent. One with little gets fewer
//! queues, so that each has some depth, and several shards attach to one queue, on its *coordinator*.
//!
//! # How it works
//! With S shards and Q queues for a disk, shard s uses queue s*Q/S: neighbours share a queue. The coordinator of a queue is
//! the first of its shards, and never changes.
//!
//! # Limits
//! Queues are never fewer than NUMA nodes, so that (with shards numbered by node) no message crosses one.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::{Disk, DiskConfig, IoQueue, Mode, QueueConfig, depth_of_queue};

use crate::backend::OpenOptions;
use crate::backend::memory::MemoryStore;
use crate::class::Classes;
use crate::file::SharedFile;
use crate::mailbox::Mailboxes;
use crate::queues::{DiskClasses, DiskQueue};
use crate::reactor::ReactorConfig;
use crate::trace::{Recorder, Tracing};

/// What holds a disk's requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskMode {
    /// The disk model.
    Scheduled,
    /// So many requests in flight in all, divided over the I/O queues.
    Depth {
        /// In all; each queue gets its part, and 1 at the least.
        max_io_requests: u32,
    },
    /// Nothing.
    Drain,
}

/// One disk of a program.
#[derive(Clone, Debug)]
pub struct DiskSetup {
    /// The model and its limits.
    pub config: DiskConfig,
    /// What holds requests back at first; [`Topology::set_mode`] changes it.
    pub mode: DiskMode,
    /// How many I/O queues: `None` for one a shard.
    pub num_io_queues: Option<u16>,
    /// Requests in one I/O queue at the most.
    pub max_requests: u32,
    /// See [`QueueConfig::wakeup_credit_ns`].
    pub wakeup_credit_ns: Option<u64>,
}

impl DiskSetup {
    /// A disk without a model: everything goes out at once; shares hold only while the backend has no room.
    #[must_use]
    pub fn unlimited() -> DiskSetup {
        DiskSetup::new(DiskConfig::default())
    }

    /// A disk with a model, scheduled, one I/O queue a shard.
    #[must_use]
    pub fn new(config: DiskConfig) -> DiskSetup {
        let QueueConfig { max_requests, wakeup_credit_ns, .. } = QueueConfig::default();
        DiskSetup { config, mode: DiskMode::Scheduled, num_io_queues: None, max_requests, wakeup_credit_ns }
    }
}

/// Why a topology was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// At least one shard is needed.
    NoShards,
    /// At least one disk is needed.
    NoDisks,
    /// A disk wants no I/O queue, or more than there are shards.
    BadQueueCount {
        /// What was asked.
        num_io_queues: u16,
        /// How many shards there are.
        shards: u16,
    },
    /// Fewer I/O queues than NUMA nodes.
    FewerQueuesThanNodes {
        /// What was asked.
        num_io_queues: u16,
        /// How many nodes there are.
        numa_nodes: u16,
    },
}

impl std::fmt::Display for TopologyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TopologyError::NoShards => write!(f, "at least one shard is needed"),
            TopologyError::NoDisks => write!(f, "at least one disk is needed (DiskSetup::unlimited() is one)"),
            TopologyError::BadQueueCount { num_io_queues, shards } => write!(
                f,
                "{num_io_queues} I/O queues for {shards} shards: give at least 1 and at most one for each shard"
            ),
            TopologyError::FewerQueuesThanNodes { num_io_queues, numa_nodes } => write!(
                f,
                "{num_io_queues} I/O queues for {numa_nodes} NUMA nodes: give at least one for each node, so that no \
                 message crosses nodes"
            ),
        }
    }
}

impl std::error::Error for TopologyError {}

struct Inner {
    shards: u16,
    classes: Classes,
    disks: Vec<TopologyDisk>,
    mailboxes: Mailboxes,
    reactor_config: ReactorConfig,
    next_uid: AtomicU64,
    recorder: Arc<Recorder>,
    memory: MemoryStore,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody is left who could record anything; what there is is written.
        drop(self.recorder.stop());
    }
}

struct TopologyDisk {
    setup: DiskSetup,
    /// As it is now; the setup has what it was at first.
    mode: Mutex<DiskMode>,
    disk: Arc<Disk>,
    classes: DiskClasses,
}

/// See the module's documentation. Clones share everything.
#[derive(Clone)]
pub struct Topology(Arc<Inner>);

impl Topology {
    /// `shards` shards that use `disks`, with the classes of `classes`.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn new(shards: u16, classes: Classes, disks: Vec<DiskSetup>) -> Result<Topology, TopologyError> {
        Topology::with_config(shards, classes, disks, ReactorConfig::default())
    }

    /// As [`Topology::new`], with limits for the reactors.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn with_config(
        shards: u16,
        classes: Classes,
        disks: Vec<DiskSetup>,
        reactor_config: ReactorConfig,
    ) -> Result<Topology, TopologyError> {
        if shards == 0 {
            return Err(TopologyError::NoShards);
        }
        if disks.is_empty() {
            return Err(TopologyError::NoDisks);
        }
        let numa_nodes = crate::sys::sysfs::numa_nodes(Path::new("/sys")).min(shards);
        for num_io_queues in disks.iter().filter_map(|d| d.num_io_queues) {
            if num_io_queues == 0 || num_io_queues > shards {
                return Err(TopologyError::BadQueueCount { num_io_queues, shards });
            }
            if num_io_queues < numa_nodes {
                return Err(TopologyError::FewerQueuesThanNodes { num_io_queues, numa_nodes });
            }
        }
        let make = |mut setup: DiskSetup| {
            let queues = setup.num_io_queues.unwrap_or(shards);
            setup.config.groups = setup.config.groups.max(numa_nodes).min(queues);
            let (disk, mode) = (Arc::new(Disk::new(setup.config.clone())), Mutex::new(setup.mode));
            TopologyDisk { disk, classes: DiskClasses::default(), mode, setup }
        };
        let disks: Vec<TopologyDisk> = disks.into_iter().map(make).collect();
        let shared = disks.iter().map(|disk| Arc::clone(&disk.disk)).collect();
        let recorder = Arc::new(Recorder::new(shards, classes.clone(), shared));
        Ok(Topology(Arc::new(Inner {
            shards,
            classes,
            disks,
            mailboxes: Mailboxes::new(shards, reactor_config.max_requests as usize),
            reactor_config,
            next_uid: AtomicU64::new(0),
            recorder,
            memory: MemoryStore::default(),
        })))
    }

    /// Whether both are clones of one topology.
    pub(crate) fn is(&self, other: &Topology) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.0.shards
    }

    /// The classes.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        &self.0.classes
    }

    /// How many disks.
    #[must_use]
    pub fn disks(&self) -> u16 {
        self.0.disks.len() as u16
    }

    /// The shared state of disk number `disk`.
    #[must_use]
    pub fn disk(&self, disk: u16) -> Option<&Arc<Disk>> {
        self.0.disks.get(usize::from(disk)).map(|disk| &disk.disk)
    }

    /// What holds the requests of disk number `disk` back now.
    #[must_use]
    pub fn mode(&self, disk: u16) -> Option<DiskMode> {
        let disk = self.0.disks.get(usize::from(disk))?;
        Some(*disk.mode.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets `mode` hold the requests of disk number `disk` back from now on, while shards run: each follows at its next
    /// turn, within 100 ms where requests wait. Nothing queued is lost, requests of a class keep their order, and what is in
    /// the device ends as always. Whether there is such a disk.
    pub fn set_mode(&self, disk: u16, mode: DiskMode) -> bool {
        let Some(disk) = self.0.disks.get(usize::from(disk)) else { return false };
        *disk.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
        // The shards look at both in one.
        self.0.classes.changed();
        true
    }

    /// What holds the I/O queue back that `shard` coordinates for `disk`.
    pub(crate) fn queue_mode(&self, disk: u16, shard: u16) -> Mode {
        let (queues, shards) = (u32::from(self.queue_count(disk)), u32::from(self.0.shards));
        match self.mode(disk).unwrap_or(DiskMode::Scheduled) {
            DiskMode::Scheduled => Mode::Scheduled,
            DiskMode::Drain => Mode::Drain,
            DiskMode::Depth { max_io_requests } => {
                Mode::Depth(depth_of_queue(max_io_requests, queues, u32::from(shard) * queues / shards))
            }
        }
    }

    /// A file of disk number `disk` (too large a number is taken as 0); nothing is opened yet.
    #[must_use]
    pub fn file(&self, path: &Path, options: OpenOptions, disk: u16) -> Arc<SharedFile> {
        let disk = if disk < self.disks() { disk } else { 0 };
        let uid = self.0.next_uid.fetch_add(1, Ordering::Relaxed);
        let number = self.0.recorder.files().take(path, disk);
        Arc::new(SharedFile::new(self, number, uid, path, options, disk))
    }

    pub(crate) fn give_back_file_number(&self, number: u32) {
        self.0.recorder.files().give_back(number);
    }

    /// Returns how many jobs of [`Handle`](crate::Handle)s were refused because too many waited for their shard.
    #[must_use]
    pub fn refused_jobs(&self) -> u64 {
        self.0.mailboxes.refused_jobs()
    }

    /// The files of the memory backend.
    #[must_use]
    pub fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    /// The switch of the record of what happens to every request.
    #[must_use]
    pub fn trace(&self) -> Tracing {
        Tracing::new(Arc::clone(&self.0.recorder))
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.0.recorder
    }

    pub(crate) fn mailboxes(&self) -> &Mailboxes {
        &self.0.mailboxes
    }

    pub(crate) fn reactor_config(&self) -> ReactorConfig {
        self.0.reactor_config
    }

    fn queue_count(&self, disk: u16) -> u16 {
        let disk = self.0.disks.get(usize::from(disk));
        disk.and_then(|disk| disk.setup.num_io_queues).unwrap_or(self.0.shards)
    }

    /// The shard whose I/O queue serves `shard` on `disk`.
    #[must_use]
    pub fn coordinator(&self, disk: u16, shard: u16) -> u16 {
        let (queues, shards) = (u32::from(self.queue_count(disk)), u32::from(self.0.shards));
        let queue = u32::from(shard) * queues / shards;
        // The first s with s*queues/shards == queue.
        (queue * shards).div_ceil(queues) as u16
    }

    /// The program's classes in disk number `disk`, and for how many shards each is divided there.
    pub(crate) fn disk_classes(&self, disk: usize) -> Option<(&DiskClasses, u16)> {
        let is_divided = self.queue_count(disk as u16) < self.0.shards;
        let disk = self.0.disks.get(disk)?;
        Some((&disk.classes, if is_divided { self.0.shards } else { 0 }))
    }

    /// The I/O queues that `shard` coordinates, by disk.
    pub(crate) fn queues_of(&self, shard: u16) -> Vec<Option<DiskQueue>> {
        (0..self.disks()).map(|disk| self.queue_of(disk, shard)).collect()
    }

    fn queue_of(&self, disk: u16, shard: u16) -> Option<DiskQueue> {
        if self.coordinator(disk, shard) != shard {
            return None;
        }
        let TopologyDisk { setup, disk: shared, .. } = &self.0.disks[usize::from(disk)];
        let queues = self.queue_count(disk);
        let number = (u32::from(shard) * u32::from(queues) / u32::from(self.0.shards)) as u16;
        let config = QueueConfig {
            mode: self.queue_mode(disk, shard),
            max_requests: setup.max_requests,
            wakeup_credit_ns: setup.wakeup_credit_ns,
            // Shards are numbered by NUMA node, so neighbouring queues are of one node.
            group: (u32::from(number) * u32::from(setup.config.groups) / u32::from(queues)) as u16,
        };
        Some(DiskQueue::new(IoQueue::new(shared.clone(), config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinators(shards: u16, queues: u16) -> Vec<u16> {
        let setup = DiskSetup { num_io_queues: Some(queues), ..DiskSetup::unlimited() };
        let topology = Topology::new(shards, Classes::new(), vec![setup]).unwrap();
        (0..shards).map(|shard| topology.coordinator(0, shard)).collect()
    }

    #[test]
    fn neighbours_share_a_queue_on_the_first_of_them() {
        assert_eq!(coordinators(6, 6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(coordinators(6, 1), [0; 6]);
        assert_eq!(coordinators(6, 3), [0, 0, 2, 2, 4, 4]);
        assert_eq!(coordinators(5, 2), [0, 0, 0, 3, 3]);
    }

    #[test]
    fn impossible_topologies_are_refused() {
        let none = Topology::new(0, Classes::new(), vec![DiskSetup::unlimited()]).map(|_| ());
        assert_eq!(none, Err(TopologyError::NoShards));
        let setup = DiskSetup { num_io_queues: Some(3), ..DiskSetup::unlimited() };
        let many = Topology::new(2, Classes::new(), vec![setup]).map(|_| ());
        assert_eq!(many, Err(TopologyError::BadQueueCount { num_io_queues: 3, shards: 2 }));
    }
}
