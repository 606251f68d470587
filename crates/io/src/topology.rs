//! The state that a program's shards share: disks, classes, mailboxes, and the assignment of I/O queues to shards.
//!
//! # Why
//! A disk with high parallelism gets an I/O queue on every shard, and needs no messages. A disk with low parallelism
//! gets fewer queues, so that each has some depth; several shards then share one queue, on its *coordinator*.
//!
//! # How it works
//! Shards are numbered by NUMA node, and pinned to their node if the runtime pins them. Each node has queues in
//! proportion to its shards, and neighbours share one: on a node with S shards and Q queues, shard s of the node uses
//! its queue s*Q/S. The coordinator of a queue is the first of its shards, and never changes.
//!
//! # Limits
//! At least as many queues as NUMA nodes with shards (otherwise an error), so that no message crosses nodes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "metrics")]
use std::sync::{MutexGuard, Weak};

use plimsoll_core::{Disk, DiskConfig, IoQueue, Mode, QueueConfig, depth_of_queue};

use crate::backend::memory::MemoryStore;
use crate::backend::{OpenOptions, error_number, explained};
use crate::buffer::BufferPool;
use crate::class::Classes;
use crate::file::{FileOwner, SharedFile};
use crate::mailbox::{Mailboxes, Message};
use crate::placement::{node_count, nodes_of_shards, queues_of_shards};
use crate::queues::{DiskClasses, DiskQueue};
#[cfg(feature = "metrics")]
use crate::retired::Retired;
use crate::sys::device;
use crate::trace::{Recorder, Tracing};

/// The rule by which a disk holds requests back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskMode {
    /// The disk model.
    #[default]
    Scheduled,
    /// A fixed number of requests in flight, divided over the I/O queues.
    Depth {
        /// Requests in flight over all queues; each queue gets its part, at least 1.
        max_io_requests: u32,
    },
    /// None: requests are dispatched at once.
    Drain,
}

/// One disk of a program.
#[derive(Clone, Debug)]
pub struct DiskSetup {
    /// The model and its limits.
    pub config: DiskConfig,
    /// The initial mode; [`Topology::set_mode`] changes it.
    pub mode: DiskMode,
    /// Number of I/O queues: 1 to the number of shards, at least one per NUMA node; `None` for one per shard.
    pub num_io_queues: Option<u16>,
    /// Most requests in one I/O queue, those in the device included; at least 1, by default 65,536.
    pub max_requests: u32,
    /// Device time that a class may use ahead of the others when it wakes up; see [`QueueConfig::wakeup_credit_ns`].
    pub wakeup_credit_ns: Option<u64>,
    /// Time constant of [`DiskMode::Depth`]; see [`QueueConfig::decay_tau_ns`].
    pub decay_tau_ns: u64,
    /// Directories on the disk, or device nodes, by which [`Topology::disk_of`] finds the disk. If empty, it finds the
    /// disk only if that is the only one.
    pub mountpoints: Vec<PathBuf>,
}

impl DiskSetup {
    /// Returns a disk without a model: requests are dispatched at once; shares hold only while the backend has no room.
    #[must_use]
    pub fn unlimited() -> DiskSetup {
        DiskSetup::new(DiskConfig::default())
    }

    /// Returns a scheduled disk with a model and one I/O queue per shard.
    #[must_use]
    pub fn new(config: DiskConfig) -> DiskSetup {
        let QueueConfig { max_requests, wakeup_credit_ns, decay_tau_ns, .. } = QueueConfig::default();
        let (mode, num_io_queues, mountpoints) = (DiskMode::Scheduled, None, Vec::new());
        DiskSetup { config, mode, num_io_queues, max_requests, wakeup_credit_ns, decay_tau_ns, mountpoints }
    }
}

/// Limits of a reactor.
#[derive(Clone, Copy, Debug)]
pub struct ReactorConfig {
    /// Most requests under way on a shard, at least 1, including those from and for other shards; also the most
    /// requests and jobs of [`Handle`](crate::Handle)s that may wait to be started there.
    pub max_requests: u32,
}

impl Default for ReactorConfig {
    fn default() -> ReactorConfig {
        ReactorConfig { max_requests: 65_536 }
    }
}

/// Why a topology is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// At least one shard is needed.
    NoShards,
    /// At least one disk is needed.
    NoDisks,
    /// A disk with no I/O queue, or with more than shards.
    BadQueueCount {
        /// I/O queues requested.
        num_io_queues: u16,
        /// Number of shards.
        shards: u16,
    },
    /// A disk with fewer I/O queues than NUMA nodes with shards.
    FewerQueuesThanNodes {
        /// I/O queues requested.
        num_io_queues: u16,
        /// Number of nodes with shards.
        numa_nodes: u16,
    },
    /// `max_requests` of a disk or of the reactors is 0: every request would be refused.
    NoRequests,
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
            TopologyError::NoRequests => write!(
                f,
                "`max_requests` of a DiskSetup or of the ReactorConfig is 0, so every request would be refused: give at least 1"
            ),
        }
    }
}

impl std::error::Error for TopologyError {}

/// The queues of a gate, which any thread may read.
#[cfg(feature = "metrics")]
type GateQueues = dyn crate::queues::ShardQueues + Send + Sync;

struct Inner {
    shards: u16,
    /// The NUMA node of each shard, in ascending order.
    nodes: Vec<u16>,
    classes: Classes,
    disks: Vec<TopologyDisk>,
    mailboxes: Mailboxes,
    reactor_config: ReactorConfig,
    next_uid: AtomicU64,
    recorder: Arc<Recorder>,
    memory: MemoryStore,
    buffers: Arc<BufferPool>,
    /// Gates that take the place of shards.
    #[cfg(feature = "metrics")]
    gates: Mutex<Vec<Weak<GateQueues>>>,
    /// The counters of the reactors and gates that have ended.
    #[cfg(feature = "metrics")]
    retired: Mutex<Retired>,
}

impl FileOwner for Inner {
    fn retire(&self, number: u32, uid: u64, open_on: &[u16]) {
        for shard in open_on {
            self.mailboxes.send(*shard, Message::Close { number, uid });
        }
        self.recorder.files().give_back(number);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // No shard is left to record anything: write the records so far.
        drop(self.recorder.stop());
    }
}

struct TopologyDisk {
    setup: DiskSetup,
    /// The I/O queue of each shard, in ascending order.
    queues: Vec<u16>,
    /// The present mode; `setup` has the initial one.
    mode: Mutex<DiskMode>,
    disk: Arc<Disk>,
    classes: DiskClasses,
}

/// The shared state of a program's shards; see the module's documentation. Clones share the state.
#[derive(Clone)]
pub struct Topology(Arc<Inner>);

impl Topology {
    /// Returns a topology of `shards` shards that use `disks`, with the classes of `classes`.
    ///
    /// # Errors
    /// [`TopologyError`] if there is no shard or disk, a disk's number of I/O queues does not fit the shards, or no
    /// request is allowed.
    pub fn new(shards: u16, classes: Classes, disks: Vec<DiskSetup>) -> Result<Topology, TopologyError> {
        Topology::with_config(shards, classes, disks, ReactorConfig::default())
    }

    /// Returns a topology as [`Topology::new`], with limits for the reactors.
    ///
    /// # Errors
    /// As [`Topology::new`].
    pub fn with_config(
        shards: u16,
        classes: Classes,
        disks: Vec<DiskSetup>,
        reactor_config: ReactorConfig,
    ) -> Result<Topology, TopologyError> {
        // If the system does not list its processors, all shards count as on one node.
        let cpus = crate::sys::pin::allowed_cpus_by_node().unwrap_or_default();
        Topology::on_nodes(nodes_of_shards(shards, &cpus), classes, disks, reactor_config)
    }

    /// Returns a topology with a shard on each of `nodes`, in ascending order.
    fn on_nodes(
        nodes: Vec<u16>,
        classes: Classes,
        disks: Vec<DiskSetup>,
        reactor_config: ReactorConfig,
    ) -> Result<Topology, TopologyError> {
        let (shards, numa_nodes) = (nodes.len() as u16, node_count(&nodes));
        if shards == 0 {
            return Err(TopologyError::NoShards);
        }
        if disks.is_empty() {
            return Err(TopologyError::NoDisks);
        }
        if reactor_config.max_requests == 0 || disks.iter().any(|disk| disk.max_requests == 0) {
            return Err(TopologyError::NoRequests);
        }

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
            let queues = queues_of_shards(queues, &nodes);
            TopologyDisk { disk, classes: DiskClasses::default(), mode, setup, queues }
        };

        let disks: Vec<TopologyDisk> = disks.into_iter().map(make).collect();
        let shared = disks.iter().map(|disk| Arc::clone(&disk.disk)).collect();
        let recorder = Arc::new(Recorder::new(shards, classes.clone(), shared));
        Ok(Topology(Arc::new(Inner {
            shards,
            nodes,
            classes,
            disks,
            mailboxes: Mailboxes::new(shards, reactor_config.max_requests as usize),
            reactor_config,
            next_uid: AtomicU64::new(0),
            recorder,
            memory: MemoryStore::default(),
            buffers: BufferPool::new(),
            #[cfg(feature = "metrics")]
            gates: Mutex::default(),
            #[cfg(feature = "metrics")]
            retired: Mutex::default(),
        })))
    }

    /// Returns whether this topology made `file`, whose numbers mean nothing elsewhere.
    pub(crate) fn has_made(&self, file: &SharedFile) -> bool {
        std::ptr::addr_eq(file.owner().as_ptr(), Arc::as_ptr(&self.0))
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.0.shards
    }

    /// Returns the NUMA node of each shard, in ascending order.
    pub(crate) fn nodes(&self) -> &[u16] {
        &self.0.nodes
    }

    /// Returns the registry of classes.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        &self.0.classes
    }

    /// Returns the number of disks.
    #[must_use]
    pub fn disks(&self) -> u16 {
        self.0.disks.len() as u16
    }

    /// Returns the shared state of disk `disk`.
    #[must_use]
    pub fn disk(&self, disk: u16) -> Option<&Arc<Disk>> {
        self.0.disks.get(usize::from(disk)).map(|disk| &disk.disk)
    }

    /// Returns the number of the disk that holds `path`. The path itself need not exist if its directory does. Blocks
    /// on the file system.
    ///
    /// # Errors
    /// `ENODEV` if no disk has a mount point on the path's device, `EINVAL` if several have; the message lists the mount
    /// points. So no request is ever scheduled by the figures of another disk, or by none. The system's error if neither
    /// the path nor its directory exists, or access to them is denied.
    pub fn disk_of(&self, path: &Path) -> io::Result<u16> {
        if let [only] = self.0.disks.as_slice()
            && only.setup.mountpoints.is_empty()
        {
            return Ok(0);
        }

        let device = device::device_for(path).map_err(|error| no_device(path, &error))?;
        let holds = |disk: &TopologyDisk| device::is_on(&disk.setup.mountpoints, device);
        let mut holding = (0..).zip(&self.0.disks).filter(|(_, disk)| holds(disk)).map(|(number, _)| number);
        let (errno, which, remedy) = match (holding.next(), holding.next()) {
            (Some(disk), None) => return Ok(disk),
            (None, _) => (libc::ENODEV, "no disk holds", "add a disk whose mount point is on the same device"),
            (Some(_), Some(_)) => (libc::EINVAL, "several disks hold", "give one disk all mount points on the device"),
        };

        let mountpoints = self.0.disks.iter().flat_map(|disk| &disk.setup.mountpoints);
        let places: Vec<String> = mountpoints
            .map(|place| format!("{} (device {})", place.display(), device::name(device::device_of(place))))
            .collect();
        let places = if places.is_empty() { "no mount point".to_owned() } else { places.join(", ") };

        let (path, device) = (path.display(), device::name(Some(device)));
        let message = format!(
            "{which} {path} (device {device}): they are at {places}; {remedy}, or name the disk's number (Topology::file)"
        );
        Err(explained(errno, message))
    }

    /// Returns the present mode of disk `disk`.
    #[must_use]
    pub fn mode(&self, disk: u16) -> Option<DiskMode> {
        let disk = self.0.disks.get(usize::from(disk))?;
        Some(*disk.mode.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the mode of disk `disk` while shards run. Each shard follows at its next turn, within 100 ms if requests
    /// wait. No queued request is lost, requests of a class keep their order, and those in the device end normally.
    /// Returns whether there is such a disk.
    pub fn set_mode(&self, disk: u16, mode: DiskMode) -> bool {
        let Some(disk) = self.0.disks.get(usize::from(disk)) else { return false };
        *disk.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
        // Shards check modes and classes by one epoch.
        self.0.classes.changed();
        true
    }

    /// Returns the mode of the I/O queue that `shard` coordinates for `disk`.
    pub(crate) fn queue_mode(&self, disk: u16, shard: u16) -> Mode {
        match self.mode(disk).unwrap_or(DiskMode::Scheduled) {
            DiskMode::Scheduled => Mode::Scheduled,
            DiskMode::Drain => Mode::Drain,
            DiskMode::Depth { max_io_requests } => {
                let (queues, number) = (self.queue_count(disk), self.queue_number(disk, shard));
                Mode::Depth(depth_of_queue(max_io_requests, u32::from(queues), u32::from(number)))
            }
        }
    }

    /// Returns a file of disk `disk`, without opening it. The file does not keep the topology alive. A file of a disk
    /// that does not exist can be made but not used: opening it is an error, and requests for it are refused
    /// ([`RefusedReason::UnknownDisk`](crate::RefusedReason::UnknownDisk)).
    #[must_use]
    pub fn file(&self, path: &Path, options: OpenOptions, disk: u16) -> Arc<SharedFile> {
        let uid = self.0.next_uid.fetch_add(1, Ordering::Relaxed);
        let number = self.0.recorder.files().take(path, disk);
        let owner = Arc::downgrade(&self.0);
        Arc::new(SharedFile::new(owner, number, uid, path, options, disk))
    }

    /// Returns the number of jobs of [`Handle`](crate::Handle)s that were refused because too many waited for their
    /// shard.
    #[must_use]
    pub fn refused_jobs(&self) -> u64 {
        self.0.mailboxes.refused_jobs()
    }

    /// Returns the files of the memory backend.
    #[must_use]
    pub fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    /// Returns the memory of requests of [`File`](crate::File).
    pub(crate) fn buffers(&self) -> &Arc<BufferPool> {
        &self.0.buffers
    }

    /// Returns the control of traces, which record the stations of every request.
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

    pub(crate) fn queue_count(&self, disk: u16) -> u16 {
        let disk = self.0.disks.get(usize::from(disk));
        disk.and_then(|disk| disk.setup.num_io_queues).unwrap_or(self.0.shards)
    }

    /// Returns the shard whose I/O queue serves `shard` on `disk`.
    #[must_use]
    pub fn coordinator(&self, disk: u16, shard: u16) -> u16 {
        let queues = self.0.disks.get(usize::from(disk)).map(|disk| disk.queues.as_slice());
        let of_shard = queues.and_then(|queues| Some((queues, queues.get(usize::from(shard))?)));
        // An unknown disk or shard counts as one with its own queue.
        of_shard.map_or(shard, |(queues, queue)| queues.partition_point(|before| before < queue) as u16)
    }

    /// Returns the number of the I/O queue of `disk` that serves `shard`.
    fn queue_number(&self, disk: u16, shard: u16) -> u16 {
        let disk = self.0.disks.get(usize::from(disk));
        disk.and_then(|disk| disk.queues.get(usize::from(shard)).copied()).unwrap_or(shard)
    }

    /// Returns the group of `disk`'s I/O queues to which the queue of `shard` belongs: its NUMA node, or a part of that
    /// if the disk has more groups than nodes.
    fn group_of(&self, disk: u16, shard: u16) -> u16 {
        let groups = self.0.disks.get(usize::from(disk)).map_or(1, |disk| disk.setup.config.groups);
        if groups == node_count(&self.0.nodes) {
            let before = self.0.nodes.get(..=usize::from(shard)).unwrap_or_default();
            return node_count(before).saturating_sub(1);
        }
        let (number, queues) = (self.queue_number(disk, shard), self.queue_count(disk));
        (u32::from(number) * u32::from(groups) / u32::from(queues)) as u16
    }

    /// Returns the program's classes in disk `disk`, and the number of shards over which each is divided (0 if it is
    /// not divided).
    pub(crate) fn disk_classes(&self, disk: usize) -> Option<(&DiskClasses, u16)> {
        let is_divided = self.queue_count(disk as u16) < self.0.shards;
        let disk = self.0.disks.get(disk)?;
        Some((&disk.classes, if is_divided { self.0.shards } else { 0 }))
    }

    /// Returns the I/O queues that `shard` coordinates, by disk.
    pub(crate) fn queues_of(&self, shard: u16) -> Vec<Option<DiskQueue>> {
        (0..self.disks()).map(|disk| self.queue_of(disk, shard, Some(shard))).collect()
    }

    /// Registers a gate, so that a sample of all shards includes it.
    #[cfg(feature = "metrics")]
    pub(crate) fn add_gate(&self, gate: Weak<GateQueues>) {
        let mut gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|gate| gate.strong_count() > 0);
        gates.push(gate);
    }

    /// Returns the gates in use.
    #[cfg(feature = "metrics")]
    pub(crate) fn gates(&self) -> Vec<Arc<GateQueues>> {
        let gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.iter().filter_map(Weak::upgrade).collect()
    }

    /// Keeps the counters of a reactor or gate that ends. Call it while the shard can have no successor.
    #[cfg(feature = "metrics")]
    pub(crate) fn retire(&self, queues: &dyn crate::queues::ShardQueues) {
        self.retired().add(queues, self.disks());
    }

    /// Returns the counters of the reactors and gates that have ended. None ends while the guard is held.
    #[cfg(feature = "metrics")]
    pub(crate) fn retired(&self) -> MutexGuard<'_, Retired> {
        self.0.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the I/O queue of `disk` that `shard` coordinates, or `None` if another shard coordinates its queue.
    /// `number` is the shard to wake if another queue leaves room to this one.
    pub(crate) fn queue_of(&self, disk: u16, shard: u16, number: Option<u16>) -> Option<DiskQueue> {
        if self.coordinator(disk, shard) != shard {
            return None;
        }
        let TopologyDisk { setup, disk: shared, .. } = &self.0.disks[usize::from(disk)];
        let config = QueueConfig {
            mode: self.queue_mode(disk, shard),
            max_requests: setup.max_requests,
            wakeup_credit_ns: setup.wakeup_credit_ns,
            decay_tau_ns: setup.decay_tau_ns,
            group: self.group_of(disk, shard),
            number,
        };
        Some(DiskQueue::new(IoQueue::new(shared.clone(), config)))
    }
}

/// Returns the error for a path whose device is unknown.
fn no_device(path: &Path, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => ": its directory must exist",
        io::ErrorKind::PermissionDenied => ": check the owner and mode of its directories",
        _ => "",
    };
    explained(error_number(error), format!("cannot find the disk of {}: {error}{hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Coordinators = Result<Vec<u16>, TopologyError>;

    /// Returns the coordinator of each shard, with a shard on each of `nodes`.
    fn coordinators(nodes: &[u16], queues: u16) -> Coordinators {
        let disks = vec![DiskSetup { num_io_queues: Some(queues), ..DiskSetup::unlimited() }];
        let topology = Topology::on_nodes(nodes.to_vec(), Classes::new(), disks, ReactorConfig::default())?;
        Ok((0..topology.shards()).map(|shard| topology.coordinator(0, shard)).collect())
    }

    #[test]
    fn neighbours_of_one_node_share_a_queue_on_the_first_of_them() {
        let too_few =
            |num_io_queues, numa_nodes| Err(TopologyError::FewerQueuesThanNodes { num_io_queues, numa_nodes });
        let (one, two, three) = (&[0; 6][..], &[0, 0, 0, 4, 4, 4][..], &[0, 0, 1, 2, 2, 2][..]);
        // Nodes of the shards, I/O queues, the coordinator of each shard.
        let table: [(&[u16], u16, Coordinators); 12] = [
            (one, 6, Ok(vec![0, 1, 2, 3, 4, 5])),
            (one, 1, Ok(vec![0; 6])),
            (one, 3, Ok(vec![0, 0, 2, 2, 4, 4])),
            (&[0; 5], 2, Ok(vec![0, 0, 0, 3, 3])),
            (two, 6, Ok(vec![0, 1, 2, 3, 4, 5])),
            (two, 3, Ok(vec![0, 0, 2, 3, 3, 3])),
            (two, 2, Ok(vec![0, 0, 0, 3, 3, 3])),
            (two, 1, too_few(1, 2)),
            (three, 5, Ok(vec![0, 1, 2, 3, 3, 5])),
            (three, 4, Ok(vec![0, 0, 2, 3, 3, 5])),
            (three, 3, Ok(vec![0, 0, 2, 3, 3, 3])),
            (three, 2, too_few(2, 3)),
        ];
        for (nodes, queues, expected) in table {
            assert_eq!(coordinators(nodes, queues), expected, "{queues} queues, shards on {nodes:?}");
        }
    }

    #[test]
    fn queues_of_a_node_are_one_group_of_the_disk() {
        let disks = vec![DiskSetup { num_io_queues: Some(3), ..DiskSetup::unlimited() }];
        let nodes = vec![0, 0, 0, 0, 0, 7];
        let topology = Topology::on_nodes(nodes, Classes::new(), disks, ReactorConfig::default()).unwrap();
        assert_eq!((0..6).map(|shard| topology.group_of(0, shard)).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn impossible_topologies_are_refused() {
        let none = Topology::new(0, Classes::new(), vec![DiskSetup::unlimited()]).map(|_| ());
        assert_eq!(none, Err(TopologyError::NoShards));
        let setup = DiskSetup { num_io_queues: Some(3), ..DiskSetup::unlimited() };
        let many = Topology::new(2, Classes::new(), vec![setup]).map(|_| ());
        assert_eq!(many, Err(TopologyError::BadQueueCount { num_io_queues: 3, shards: 2 }));
        let nothing = |setup: u32, shard: u32| {
            let disk = DiskSetup { max_requests: setup, ..DiskSetup::unlimited() };
            Topology::with_config(1, Classes::new(), vec![disk], ReactorConfig { max_requests: shard }).is_err()
        };
        assert_eq!([nothing(0, 1), nothing(1, 0), nothing(1, 1)], [true, true, false]);
    }
}
