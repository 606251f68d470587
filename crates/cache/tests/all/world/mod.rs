//! A cache on simulated disks that can crash and come back.

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimDisk, SimDiskState, SimFaults, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Classes, DiskSetup, SimRuntime, Topology};
use plimsoll_cache::{BlockCache, CacheConfig, CacheError, CreateOptions, DiskSource, Host, SPARE_DISKS};

/// Simulated disks that outlive the caches on them.
pub(crate) struct Town {
    pub(crate) world: SimWorld,
    pub(crate) disks: Vec<DiskSource>,
    pub(crate) shards: u16,
    /// Seed of random choices of the caches: names, and numbers of streams.
    pub(crate) seed: u64,
}

/// A cache from its opening to a crash or its end.
pub(crate) struct Life {
    runtime: SimRuntime,
    pub(crate) cache: Option<BlockCache>,
}

pub(crate) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Runs all tasks. Returns their outputs in the order in which they ended.
pub(crate) async fn join<T>(mut tasks: Vec<Task<'_, T>>) -> Vec<T> {
    let mut ends = Vec::new();
    std::future::poll_fn(|context| {
        poll_all(&mut tasks, &mut ends, context);
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ends
}

/// Polls all tasks. Those that have ended give their outputs to `ends`.
pub(crate) fn poll_all<T>(tasks: &mut Vec<Task<'_, T>>, ends: &mut Vec<T>, context: &mut Context<'_>) {
    tasks.retain_mut(|task| match task.as_mut().poll(context) {
        Poll::Ready(end) => {
            ends.push(end);
            false
        }
        Poll::Pending => true,
    });
}

/// Returns the value of key `n`: different for any two keys or lengths.
pub(crate) fn value_of(n: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ len as u64;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| step().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

impl Town {
    /// Returns `disks` disks of `bytes` bytes each.
    pub(crate) fn new(disks: u16, bytes: u64, seed: u64) -> Town {
        let mount = |n: u16| PathBuf::from(format!("/disk{n}"));
        let disk = |n| SimDisk { mount: mount(n), ..SimDisk::default() };
        let config = SimConfig { seed, disks: (0..disks).map(disk).collect(), ..SimConfig::default() };
        Town::of(&config, bytes)
    }

    /// Makes a file of `bytes` bytes on each disk of a new world.
    pub(crate) fn of(config: &SimConfig, bytes: u64) -> Town {
        let world = SimWorld::new(config).unwrap();
        let sources = config.disks.iter().map(|disk| DiskSource::at(disk.mount.join("data"))).collect();
        let town = Town { world, disks: sources, shards: 2, seed: config.seed };
        town.make_files(bytes);
        town
    }

    /// Ends all faults, and brings all disks back.
    pub(crate) fn calm(&self) {
        self.world.set_faults(SimFaults::default()).unwrap();
        for disk in 0..self.disks.len() {
            self.world.set_disk_state(disk, SimDiskState::Healthy).unwrap();
        }
    }

    /// Inspects the cache of all disks.
    pub(crate) fn inspect(&self) -> plimsoll_cache::Inspection {
        let (runtime, topology) = self.runtime();
        let host = self.host(&runtime, &topology).seeded(self.seed ^ self.world.now_ns());
        runtime.block_on(0, plimsoll_cache::inspect_on(&self.disks, None, &host)).unwrap().unwrap()
    }

    /// Reads and verifies every block.
    pub(crate) fn check(&self, progress: impl FnMut(u64, u64) + Send + 'static) -> plimsoll_cache::CheckReport {
        let (runtime, topology) = self.runtime();
        let host = self.host(&runtime, &topology).seeded(self.seed ^ self.world.now_ns());
        runtime.block_on(0, plimsoll_cache::check_on(&self.disks, None, &host, progress)).unwrap().unwrap()
    }

    fn make_files(&self, bytes: u64) {
        let (runtime, topology) = self.runtime();
        for (number, disk) in self.disks.iter().enumerate() {
            let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
            let file = topology.file(&disk.path, options, number as u16);
            let shard = runtime.shard(0).clone();
            shard.reactor().set_file_len(&file, bytes).unwrap();
            runtime.block_on(0, async { shard.sync(&file, plimsoll::Class::DEFAULT, false).await }).unwrap().unwrap();
        }
    }

    /// Changes the length of the file on a disk.
    pub(crate) fn set_len(&self, disk: usize, bytes: u64) {
        let (runtime, topology) = self.runtime();
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = topology.file(&self.disks[disk].path, options, disk as u16);
        let shard = runtime.shard(0).clone();
        shard.reactor().set_file_len(&file, bytes).unwrap();
        runtime.block_on(0, async { shard.sync(&file, plimsoll::Class::DEFAULT, false).await }).unwrap().unwrap();
    }

    /// Reads `len` bytes of the file on a disk, lets `change` edit them, and writes them back durably.
    pub(crate) fn edit(&self, disk: usize, offset: u64, len: usize, change: impl FnOnce(&mut [u8])) {
        let (runtime, topology) = self.runtime();
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = topology.file(&self.disks[disk].path, options, disk as u16);
        let shard = runtime.shard(0).clone();
        let class = plimsoll::Class::DEFAULT;
        let edit = async {
            let buffer = AlignedBuf::new(len).unwrap();
            let (read, mut buffer) = shard.read_at(&file, class, offset, buffer).await;
            assert_eq!(read.unwrap(), len);
            change(&mut buffer);
            shard.write_at(&file, class, offset, buffer).await.0.unwrap();
            shard.sync(&file, class, false).await.unwrap();
        };
        runtime.block_on(0, edit).unwrap();
    }

    fn runtime(&self) -> (SimRuntime, Topology) {
        let setups = (0..self.disks.len() + usize::from(SPARE_DISKS)).map(|_| DiskSetup::unlimited()).collect();
        let topology = Topology::new(self.shards, Classes::new(), setups).unwrap();
        (SimRuntime::new(&self.world, &topology).unwrap(), topology)
    }

    fn host(&self, runtime: &SimRuntime, topology: &Topology) -> Host {
        let handles = (0..self.shards).map(|shard| runtime.handle(shard)).collect();
        Host::on(topology, handles, 0..topology.disks()).unwrap().without_locks()
    }

    /// Makes a cache of all disks.
    pub(crate) fn create(&self, slab_bytes: u32) {
        self.create_with(slab_bytes, None, &self.disks);
    }

    /// Makes a cache of some disks, encrypted with a key or not.
    pub(crate) fn create_with(&self, slab_bytes: u32, encryption_key: Option<[u8; 32]>, disks: &[DiskSource]) {
        let options = CreateOptions { slab_bytes: Some(slab_bytes), encryption_key, ..CreateOptions::default() };
        self.try_create(&options, disks, u64::MAX).unwrap().unwrap();
    }

    /// Makes a cache of some disks.
    pub(crate) fn create_of(&self, slab_bytes: u32, disks: &[DiskSource]) {
        self.create_with(slab_bytes, None, disks);
    }

    /// Makes a cache whatever is on the disks.
    pub(crate) fn create_by_force(&self, slab_bytes: u32) {
        let options = CreateOptions { slab_bytes: Some(slab_bytes), force: true, ..CreateOptions::default() };
        self.try_create(&options, &self.disks, u64::MAX).unwrap().unwrap();
    }

    /// Makes a cache. The power fails when `landed` operations have landed in the world; `None` if that was before the
    /// end.
    pub(crate) fn create_until(&self, slab_bytes: u32, landed: u64) -> Option<()> {
        let options = CreateOptions { slab_bytes: Some(slab_bytes), ..CreateOptions::default() };
        let end = self.try_create(&options, &self.disks, landed);
        self.world.crash();
        end.map(Result::unwrap)
    }

    pub(crate) fn try_create(
        &self,
        options: &CreateOptions,
        disks: &[DiskSource],
        landed: u64,
    ) -> Option<Result<(), CacheError>> {
        let (runtime, topology) = self.runtime();
        let host = self.host(&runtime, &topology).seeded(self.seed ^ self.world.now_ns());
        runtime.block_on_until_landed(0, BlockCache::create_on(options, disks, &host), landed).unwrap()
    }

    /// Opens the cache of all disks.
    pub(crate) fn open(&self, config: &CacheConfig) -> Life {
        self.try_open(config).unwrap()
    }

    pub(crate) fn try_open(&self, config: &CacheConfig) -> Result<Life, CacheError> {
        self.try_open_of(config, &self.disks)
    }

    /// Opens the cache of some disks.
    pub(crate) fn try_open_of(&self, config: &CacheConfig, disks: &[DiskSource]) -> Result<Life, CacheError> {
        self.try_open_beside(config, disks, |_| {})
    }

    /// Opens the cache of some disks, beside the tasks that `spawn` starts.
    pub(crate) fn try_open_beside(
        &self,
        config: &CacheConfig,
        disks: &[DiskSource],
        spawn: impl FnOnce(&SimRuntime),
    ) -> Result<Life, CacheError> {
        let (runtime, topology) = self.runtime();
        spawn(&runtime);
        let host = self.host(&runtime, &topology).seeded(self.seed ^ self.world.now_ns());
        let cache = runtime.block_on(0, BlockCache::open_on(config.clone(), disks, host)).unwrap()?;
        Ok(Life { runtime, cache: Some(cache) })
    }
}

impl Life {
    pub(crate) fn runtime(&self) -> &SimRuntime {
        &self.runtime
    }

    /// Runs `body` on shard 0.
    pub(crate) fn run<T>(&self, body: impl AsyncFnOnce(&BlockCache) -> T) -> T {
        let cache = self.cache.as_ref().unwrap();
        self.runtime.block_on(0, body(cache)).unwrap()
    }

    /// Lets the power fail.
    pub(crate) fn crash(mut self) {
        self.cache = None;
        self.runtime.crash();
    }

    /// Closes the cache in order.
    pub(crate) fn close(self) {
        self.try_close().unwrap();
    }

    pub(crate) fn try_close(mut self) -> Result<(), CacheError> {
        let cache = self.cache.take().unwrap();
        self.runtime.block_on(0, cache.close()).unwrap()
    }
}
