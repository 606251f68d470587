//! The cache as a program sees it.
//!
//! # Why
//! A small set of async functions that work in any runtime, and on the shards of the cache itself without a hop.
//!
//! # How it works
//! [`BlockCache::create`] labels disks, [`BlockCache::open`] recovers their blocks. The calling thread looks a key up
//! in memory and in the index; only the read hops to a shard. An insert goes from the calling thread straight into the
//! disk's queue. A program on `plimsoll` shards calls [`BlockCache::get_on`].
//!
//! # Limits
//! Dropping a cache without [`BlockCache::close`] loses the changes after the last checkpoint, as a crash would. If the
//! shards end before the cache is closed, blocks that are being written are dropped, and a checkpoint is an error.
//!
//! # Example
//! ```
//! use plimsoll_cache::{BlockCache, CacheConfig, CreateOptions, DiskSource, HostOptions, Host, Lookup};
//! # fn block_on<T>(future: impl Future<Output = T>) -> T {
//! #     let mut future = std::pin::pin!(future);
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     loop {
//! #         if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) { return value }
//! #         std::thread::yield_now();
//! #     }
//! # }
//! # let directory = tempfile::tempdir()?;
//! let disks: Vec<DiskSource> = ["a", "b"].map(|name| directory.path().join(name)).into_iter().map(DiskSource::at).collect();
//! for disk in &disks {
//!     std::fs::File::create_new(&disk.path)?.set_len(32 << 20)?;
//! }
//! let host = HostOptions::default();
//! block_on(async {
//!     let options = CreateOptions { slab_bytes: Some(1 << 20), ..CreateOptions::default() };
//!     BlockCache::create(&options, &disks, &host).await?;
//!     let cache = BlockCache::open(CacheConfig::default(), &disks, &host).await?;
//!     cache.insert(b"table/7", b"a block").await?;
//!     cache.close().await?;
//!     let cache = BlockCache::open(CacheConfig::default(), &disks, &host).await?;
//!     let Lookup::Hit(block) = cache.get(b"table/7").await? else { panic!("it is there") };
//!     assert_eq!(&block[..], b"a block");
//!     cache.close().await
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use plimsoll::{Classes, Runtime, Shard, StartError, Topology};

use crate::config::{CacheConfig, CreateOptions, DiskSource};
use crate::create;
use crate::engine::Engine;
use crate::error::CacheError;
use crate::format::{Member, MemberState};
use crate::health::is_passing;
use crate::host::{Host, HostOptions};
use crate::insert::{InsertOptions, Inserted};
use crate::key::KeyHash;
use crate::lookup::{GetOptions, Lookup};
use crate::open;
use crate::race::DEADLINE;
use crate::stats::{CacheStats, DiskHealth, DiskStats, DropReason, IoCounters, IoKind, MissReason, by_name};
use crate::sync::{lock, read};

/// An open cache. See the module's documentation.
pub struct BlockCache {
    engine: Arc<Engine>,
    /// The cache's own shards, if it has any. Stopped when the cache is closed.
    runtime: Option<Runtime>,
}

impl BlockCache {
    /// Creates a cache of `disks`: writes superblocks and an empty log on each.
    ///
    /// # Errors
    /// When a disk holds anything (unless forced), is too small, or cannot be written. Disks before it in the list may
    /// have been written by then; `force` makes them usable again.
    pub async fn create(options: &CreateOptions, disks: &[DiskSource], host: &HostOptions) -> Result<(), CacheError> {
        let host = Host::threads(host, &vec![plimsoll::core::DiskConfig::default(); disks.len()])?;
        BlockCache::create_on(options, disks, &host).await
    }

    /// Creates a cache as [`BlockCache::create`] does, on an existing host.
    ///
    /// # Errors
    /// As [`BlockCache::create`].
    pub async fn create_on(options: &CreateOptions, disks: &[DiskSource], host: &Host) -> Result<(), CacheError> {
        let (options, disks) = (options.clone(), disks.to_vec());
        let (parts, handles) = (host.parts.clone(), host.handles.clone());
        let create = move |shard: Shard| async move { create::create(&parts, handles, &shard, &options, &disks).await };
        on_shard(host, create).await?
    }

    /// Opens a cache with shards of its own. Disks may be named in any order. Some may be missing, blank or damaged:
    /// their blocks are lost, and [`BlockCache::findings`] names them.
    ///
    /// # Errors
    /// When a disk belongs to another cache, is no longer a member, or its adding was cut short; when it holds foreign
    /// data, is open already or is named twice; when no disk can be used; or when a blank disk is named though none is
    /// missing.
    pub async fn open(config: CacheConfig, disks: &[DiskSource], host: &HostOptions) -> Result<BlockCache, CacheError> {
        let models: Vec<_> = disks.iter().map(|disk| disk.model.clone()).collect();
        BlockCache::open_on(config, disks, Host::threads(host, &models)?).await
    }

    /// Opens a cache as [`BlockCache::open`] does, on an existing host. If the future is dropped, the cache is closed
    /// as soon as it is open.
    ///
    /// # Errors
    /// As [`BlockCache::open`].
    pub async fn open_on(config: CacheConfig, disks: &[DiskSource], host: Host) -> Result<BlockCache, CacheError> {
        config.check()?;
        let (disks, parts, handles) = (disks.to_vec(), host.parts.clone(), host.handles.clone());
        let open = move |shard: Shard| async move {
            let engine = open::open(config, parts, handles, &shard, &disks, true).await?;
            let engine = Arc::new(engine);
            // The keeper keeps the engine alive, not the other way round.
            shard.spawn(crate::keeper::keep(Arc::clone(&engine), shard.clone())).detach();
            // Dropped if the caller no longer waits for it, it stops the keeper.
            Ok::<_, CacheError>(BlockCache { engine, runtime: None })
        };
        let mut cache = on_shard(&host, open).await??;
        cache.runtime = host.runtime;
        Ok(cache)
    }

    /// Creates a cache and uses it at once, without reading its metadata back: for simulated disks that keep nothing.
    #[cfg(feature = "sim")]
    pub(crate) async fn make_on(
        options: &CreateOptions,
        config: CacheConfig,
        disks: &[DiskSource],
        host: Host,
    ) -> Result<BlockCache, CacheError> {
        config.check()?;
        let (options, disks) = (options.clone(), disks.to_vec());
        let (parts, handles) = (host.parts.clone(), host.handles.clone());
        let make = move |shard: Shard| async move {
            let key_seed = config.seed;
            let engine = create::make(&parts, handles, &shard, &options, config, key_seed, &disks).await?;
            engine.follow_capacity();
            shard.spawn(crate::keeper::keep(Arc::clone(&engine), shard.clone())).detach();
            Ok::<_, CacheError>(engine)
        };
        let engine = on_shard(&host, make).await??;
        Ok(BlockCache { engine, runtime: host.runtime })
    }

    /// Returns the block of `key`, or why there is none.
    ///
    /// # Errors
    /// When the key is empty or longer than 64 KiB, or the cache has been closed. A block that cannot be read is a
    /// miss.
    pub async fn get(&self, key: &[u8]) -> Result<Lookup, CacheError> {
        self.get_with(key, GetOptions::default()).await
    }

    /// Looks `key` up as [`BlockCache::get`] does, with a class and a deadline.
    ///
    /// # Errors
    /// As [`BlockCache::get`].
    pub async fn get_with(&self, key: &[u8], options: GetOptions) -> Result<Lookup, CacheError> {
        self.look_up(self.engine.hash(key)?, options).await
    }

    pub(crate) async fn look_up(&self, hash: KeyHash, options: GetOptions) -> Result<Lookup, CacheError> {
        let entry = match self.engine.look(&hash) {
            Ok(entry) => entry,
            Err(lookup) => return Ok(lookup),
        };
        let engine = Arc::clone(&self.engine);
        let fetch = move |shard: Shard| async move { engine.fetch(&shard, &hash, entry, options).await };
        match self.engine.handle_for(&hash).run(fetch).await {
            // The shard's mailbox is full of look-ups: the origin answers sooner.
            Err(error) if is_passing(&error) => Ok(self.engine.missed(MissReason::Overloaded)),
            end => end.map_err(stopped),
        }
    }

    /// Looks `key` up as [`BlockCache::get_with`] does, from a task of `shard`, which must be one of the host's.
    ///
    /// # Errors
    /// As [`BlockCache::get`].
    pub async fn get_on(&self, shard: &Shard, key: &[u8], options: GetOptions) -> Result<Lookup, CacheError> {
        let hash = self.engine.hash(key)?;
        match self.engine.look(&hash) {
            Ok(entry) => Ok(self.engine.fetch(shard, &hash, entry, options).await),
            Err(lookup) => Ok(lookup),
        }
    }

    /// Makes the block of `key` the newest, as a hit does, without reading it. Returns whether it is cached. A block
    /// that is touched at least once in as many bytes of use as the cache holds is not evicted.
    ///
    /// # Errors
    /// As [`BlockCache::get`].
    pub fn touch(&self, key: &[u8]) -> Result<bool, CacheError> {
        Ok(self.engine.index.touch(&self.engine.hash(key)?))
    }

    /// Stores `value` under `key`, in place of an older value. `value` has 1 byte to 16 MiB, and at most a slab. When
    /// this returns, the block can be found; after the next checkpoint it survives a crash. If `value` is dropped, the
    /// older value is removed too: a look-up after this never returns it.
    ///
    /// # Errors
    /// When the key or the value is too short or too long. A value dropped for want of room is not an error but
    /// [`Inserted::Dropped`].
    pub async fn insert(&self, key: &[u8], value: &[u8]) -> Result<Inserted, CacheError> {
        self.insert_with(key, value, InsertOptions::default()).await
    }

    /// Stores `value` as [`BlockCache::insert`] does, in a class, and waiting for room in that class if asked to.
    ///
    /// # Errors
    /// As [`BlockCache::insert`].
    pub async fn insert_with(&self, key: &[u8], value: &[u8], options: InsertOptions) -> Result<Inserted, CacheError> {
        let hash = self.engine.hash(key)?;
        self.engine.insert(hash, value, options).await
    }

    /// Removes `key`. Returns whether a block was cached under it. The removal is durable after the next checkpoint: a
    /// crash before that may bring the block back.
    ///
    /// # Errors
    /// As [`BlockCache::get`].
    pub async fn remove(&self, key: &[u8]) -> Result<bool, CacheError> {
        let hash = self.engine.hash(key)?;
        Ok(self.engine.remove(&hash).is_some())
    }

    /// Makes all changes until now durable. Returns the number of the checkpoint.
    ///
    /// # Errors
    /// When no disk can be written.
    pub async fn checkpoint(&self) -> Result<u64, CacheError> {
        self.engine.checkpoint_soon().await.map_err(|error| self.engine.explained(error))
    }

    /// Adds a disk to the cache. Returns its number. The disk must be empty unless `force`; one whose addition to this
    /// cache was cut short counts as empty.
    ///
    /// # Errors
    /// As [`BlockCache::create`], or when it is a disk of the cache already, or the cache has no room for another disk.
    pub async fn add_disk(&self, source: &DiskSource, force: bool) -> Result<u16, CacheError> {
        let (engine, source) = (Arc::clone(&self.engine), source.clone());
        let add = move |shard: Shard| async move { engine.add_disk(&shard, &source, force).await };
        self.engine.first_handle().run(add).await.map_err(stopped)?.map_err(|error| self.engine.explained(error))
    }

    /// Uses the space by which the disk at `path` has grown. Returns the bytes gained.
    ///
    /// # Errors
    /// When the cache has no such disk, or the disk has not grown by a slab.
    pub async fn expand_disk(&self, path: &Path) -> Result<u64, CacheError> {
        let (engine, path) = (Arc::clone(&self.engine), path.to_owned());
        let expand = move |shard: Shard| async move { engine.expand_disk(&shard, &path).await };
        self.engine.first_handle().run(expand).await.map_err(stopped)?.map_err(|error| self.engine.explained(error))
    }

    /// Starts to move all blocks away from the disk at `path`. Returns the bytes to move. [`BlockCache::stats`] shows
    /// the progress, and omits the disk once it is removed. Blocks stay where they are while no other disk takes them.
    ///
    /// # Errors
    /// When the cache has no such disk, or no other disk to move the blocks to.
    pub fn remove_disk(&self, path: &Path) -> Result<u64, CacheError> {
        self.engine.remove_disk(path)
    }

    /// Forgets the disk with this number (see [`BlockCache::stats`]), which is missing for good: the cache no longer
    /// waits for it. Its blocks are lost already. If it returns, it is refused as no member.
    ///
    /// # Errors
    /// When the disk is there or the cache has no such member, or when no disk can be written.
    pub async fn forget_disk(&self, number: u16) -> Result<(), CacheError> {
        self.engine.forget_missing(number).await.map_err(|error| self.engine.explained(error))
    }

    /// Returns the host's classes, the cache's own among them (`cache.hit` ...): to change shares, or to add classes.
    #[must_use]
    pub fn classes(&self) -> &Classes {
        self.engine.host.topology.classes()
    }

    /// Returns the host's topology: for metrics and for the control socket, also of a cache on shards of its own. Its
    /// disks are those of the cache in the order in which they were named, and then the spare ones.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use plimsoll::metrics::{Metrics, encode};
    /// let cache = plimsoll_cache::BlockCache::open_or_create(directory.path(), 32 << 20).await?;
    /// let text = encode(&[Metrics::new(cache.topology(), "my-cache").take()]);
    /// assert!(text.contains("cache.fill"));
    /// # cache.close().await
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.engine.host.topology
    }

    /// Returns the counters and the state of the cache and its disks.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.engine.stats()
    }

    /// Returns the problems that opening found, a sentence each: a disk that is not used, damage and its cost. Empty
    /// for a sound cache.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        lock(&self.engine.findings).clone()
    }

    /// Makes a last checkpoint and stops the cache: blocks that are not written by then are dropped. The checkpoint
    /// waits 10 s for a disk that hangs, and is made without it; then all operations have 10 s to end, and the shards
    /// of the cache to stop.
    ///
    /// # Errors
    /// [`CacheError::Hangs`] where operations on a disk have not ended after that time; when no disk can be written.
    pub async fn close(self) -> Result<(), CacheError> {
        self.close_within(DEADLINE).await
    }

    /// Closes the cache. Its own shards have `limit` to stop.
    async fn close_within(mut self, limit: Duration) -> Result<(), CacheError> {
        let last = self.engine.to_keeper.request_checkpoint();
        let settled = self.engine.to_keeper.request_stop();
        let end = last.await.map_err(|_| CacheError::Stopped("the cache has been closed".to_owned()))?;
        match self.runtime.take().map(|runtime| runtime.shutdown_within(limit)) {
            Some(stopped) => match stopped.await {
                Ok(()) => {}
                Err(StartError::StillRunning) => return Err(CacheError::Hangs { paths: self.engine.held_disks() }),
                Err(error) => return Err(CacheError::Stopped(error.to_string())),
            },
            None => {
                // Shards that have ended meanwhile have waited for their operations.
                let paths = settled.await.unwrap_or_default();
                if !paths.is_empty() {
                    return Err(CacheError::Hangs { paths });
                }
            }
        }
        end.map(|_| ()).map_err(|_| self.engine.explained(CacheError::AllFailed))
    }
}

impl BlockCache {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl Drop for BlockCache {
    /// Stops the cache, because shards of a program would keep it alive otherwise. When this returns, shards of its own
    /// have stopped, so the disks can be opened again, or a disk hangs for 10 s. [`BlockCache::close`] waits for them
    /// without blocking the thread, and makes a checkpoint.
    fn drop(&mut self) {
        drop(self.engine.to_keeper.request_stop());
        if let Some(runtime) = self.runtime.take() {
            let _ = runtime.stop_within(DEADLINE);
        }
    }
}

fn stopped(error: std::io::Error) -> CacheError {
    CacheError::Stopped(error.to_string())
}

pub(crate) async fn on_shard<T, F>(host: &Host, body: impl FnOnce(Shard) -> F + Send + 'static) -> Result<T, CacheError>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    // Never empty: a host has at least one handle.
    host.handles[0].run(body).await.map_err(stopped)
}

impl Engine {
    pub(crate) fn stats(&self) -> CacheStats {
        let counters = &self.counters;
        let [memory_hits, memory_bytes] = counters.in_memory.sums();
        CacheStats {
            at_ns: plimsoll::sys::clock::now_ns(),
            generation: self.upkeep.numbers.last(),
            blocks: self.index.blocks(),
            block_bytes: self.index.block_bytes(),
            ghosts: self.index.ghosts(),
            index_bytes: self.index.memory_bytes(),
            hits: counters.hits.load(Relaxed),
            memory_hits,
            hit_bytes: counters.hit_bytes.load(Relaxed) + memory_bytes,
            misses: by_name(&MissReason::ALL, counters.misses.iter().map(|count| count.load(Relaxed))),
            inserts: counters.inserts.load(Relaxed),
            insert_bytes: counters.insert_bytes.load(Relaxed),
            drops: by_name(&DropReason::ALL, counters.drops.iter().map(|count| count.load(Relaxed))),
            removes: counters.removes.load(Relaxed),
            evictions: counters.evictions.load(Relaxed),
            evicted_bytes: counters.evicted_bytes.load(Relaxed),
            moves: counters.moves.load(Relaxed),
            healed: counters.healed.load(Relaxed),
            scrubbed_bytes: counters.scrubbed_bytes.load(Relaxed),
            scrub_removals: counters.scrub_removals.load(Relaxed),
            checkpoints: counters.checkpoints.load(Relaxed),
            last_checkpoint_ns: counters.last_checkpoint_ns.load(Relaxed),
            hit_curve: self.index.curve(),
            disks: self.disk_stats(),
        }
    }

    /// Returns `error`, with each disk and its reason if none works.
    fn explained(&self, error: CacheError) -> CacheError {
        if !matches!(error, CacheError::AllFailed) {
            return error;
        }
        let explain = |member: Member| {
            let (disk, source) = (self.disk(member.disk), self.roster.source(member.guid));
            let path = disk.as_ref().map(|disk| disk.identity.path.clone()).or(source.map(|(source, _)| source.path));
            let name = path.map_or_else(|| format!("disk {}", member.disk), |path| path.display().to_string());
            let now = disk.map(|disk| disk.why()).filter(|why| !why.is_empty());
            format!("{name}: {}", now.unwrap_or_else(|| self.why_missing(member.guid)))
        };
        CacheError::NoDiskWorks { disks: self.roster.members().into_iter().map(explain).collect() }
    }

    fn why_missing(&self, guid: u128) -> String {
        self.roster.loss(guid).unwrap_or_else(|| "it is not there".to_owned())
    }

    fn disk_stats(&self) -> Vec<DiskStats> {
        let members = self.roster.members();
        let alloc = lock(&self.alloc);
        let slab_bytes = u64::from(self.identity.geometry.slab_bytes);
        let stats = |member: &Member| {
            let number = member.disk;
            let slabs = alloc.slabs(number);
            let disk = read(&self.disks).get(usize::from(number)).cloned().flatten();
            let health = disk.as_ref().map_or(DiskHealth::Missing, |disk| disk.health());
            let allocated_bytes = alloc.allocated_bytes(number);
            DiskStats {
                number,
                guid: format!("{:032x}", member.guid),
                path: disk.as_ref().map_or_else(String::new, |disk| disk.identity.path.display().to_string()),
                health,
                why: disk.as_ref().map_or_else(|| self.why_missing(member.guid), |disk| disk.why()),
                capacity_bytes: u64::from(slabs) * slab_bytes,
                allocated_bytes,
                metadata_bytes: u64::from(alloc.metadata_slabs(number)) * slab_bytes,
                slabs,
                free_slabs: alloc.free_slabs(number),
                to_move_bytes: if member.state == MemberState::Removing || health == DiskHealth::Removing {
                    allocated_bytes
                } else {
                    0
                },
                write_bytes_per_s: disk.as_ref().map_or(0.0, |disk| disk.write_bytes_per_s()),
                io: by_name(&IoKind::ALL, disk.iter().flat_map(|disk| &disk.io).map(IoCounters::look)),
            }
        };
        members.iter().map(stats).collect()
    }
}

#[cfg(test)]
mod tests;
