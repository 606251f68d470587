//! The engine: what happens to a look-up, an insert and a removal.
//!
//! # Why
//! Everything that every block passes is here, and nothing else: no checkpoint, no eviction, no disk that comes or goes.
//!
//! # How it works
//! ```text
//!   get     index -> extent -> read on a shard -> checksum -> (decrypt) -> block
//!   insert  room in flight? -> extent -> write at the disk's home shard -> index and log -> old extent freed
//!   remove  index and log -> extent freed
//! ```
//! The index knows a block only once it has been written, so what is found can be read. A change of the index and its
//! record in the log happen under one lock, so the log has the changes of a key in their order; a *gate* is held (shared)
//! around the records of one change, which may be in the logs of two disks, so that a checkpoint has both or none.
//! A place that is freed is written again only after the next checkpoint; should a read be slower than that, its checksum
//! fails, the index is asked again, and the new place is read.
//!
//! Locks in their order: gate, index shard, a disk's log, allocator. None is held while something is awaited.
//!
//! # Limits
//! A get that began before an insert of the same key ended may miss. Two keys with one hash are one key (`key`).
//!
//! # Example
//! An insert whose caller goes away is finished all the same: the end of its write is a function that belongs to the
//! write, not to the caller.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures_channel::oneshot;
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Handle, Shard};

use crate::admission::{Admission, Permit};
use crate::alloc::{Allocator, DiskLoad, Geometry, NoSpace, SlabRange};
use crate::away::Away;
use crate::block::Block;
use crate::config::{CacheConfig, DiskSource};
use crate::crypt::{Cipher, NONCE_BYTES, OVERHEAD_BYTES};
use crate::disk::{CacheDisk, is_refusal, lock};
use crate::entry::{Entry, Extent, MAX_BLOCK_BYTES, SlabId};
use crate::error::CacheError;
use crate::flight::Flights;
use crate::format::{Member, Record};
use crate::host::{CacheClasses, HostParts};
use crate::index::{Finish, Found, Index, Token};
use crate::keeper::Bell;
use crate::key::KeyHash;
use crate::memory::MemoryTier;
use crate::pool::BufferPool;
use crate::race::race;
use crate::stats::{DiskHealth, DropReason, IoKind, MissReason};

/// What a look-up gave.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The block.
    Hit(Block),
    /// Nothing, and why.
    Miss(MissReason),
}

impl Lookup {
    /// The block, if there is one.
    #[must_use]
    pub fn block(self) -> Option<Block> {
        match self {
            Lookup::Hit(block) => Some(block),
            Lookup::Miss(_) => None,
        }
    }
}

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is cached; durable with the next checkpoint.
    Stored,
    /// It is not, and why.
    Dropped(DropReason),
}

/// How to look something up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The class of the read; `None`: the cache's own (`cache.hit`).
    pub class: Option<Class>,
    /// How long it may take before it is a miss; `None`: as the configuration says.
    pub deadline: Option<Duration>,
}

/// How to insert something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsertOptions {
    /// The class of the write; `None`: the cache's own (`cache.fill`).
    pub class: Option<Class>,
    /// Wait until the class has room for it, instead of dropping it.
    pub wait: bool,
}

/// A look-up in the index is repeated so often when what was found has moved while it was read.
const ATTEMPTS: u32 = 4;

/// So often is it looked whether eviction should begin; the keeper looks round five times a second besides.
const LOOK_EVERY: u64 = 64;

/// What happened so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) memory_hits: AtomicU64,
    pub(crate) hit_bytes: AtomicU64,
    pub(crate) misses: [AtomicU64; MissReason::ALL.len()],
    pub(crate) inserts: AtomicU64,
    pub(crate) insert_bytes: AtomicU64,
    pub(crate) drops: [AtomicU64; DropReason::ALL.len()],
    pub(crate) removes: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) evicted_bytes: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) healed: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) last_checkpoint_ns: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// Keys whose block was found to be corrupt and is not yet stored again; the last ones.
#[derive(Default)]
pub(crate) struct Corrupt {
    count: AtomicU64,
    hashes: Mutex<HashSet<KeyHash>>,
}

/// So many corrupt keys are remembered at the most, for the counter of what has been healed.
const MAX_CORRUPT: usize = 65_536;

impl Corrupt {
    fn note(&self, hash: &KeyHash) {
        let mut hashes = lock(&self.hashes);
        if hashes.len() < MAX_CORRUPT {
            hashes.insert(*hash);
        }
        self.count.store(hashes.len() as u64, Relaxed);
    }

    fn is_healed(&self, hash: &KeyHash) -> bool {
        if self.count.load(Relaxed) == 0 {
            return false;
        }
        let mut hashes = lock(&self.hashes);
        let is_healed = hashes.remove(hash);
        self.count.store(hashes.len() as u64, Relaxed);
        is_healed
    }
}

/// Who a cache is; fixed when it is created.
#[derive(Clone, Debug)]
pub(crate) struct CacheIdentity {
    pub(crate) guid: u128,
    pub(crate) key_seed: u64,
    pub(crate) key_check: [u8; 32],
    pub(crate) geometry: Geometry,
}

/// See the module's documentation.
pub(crate) struct Engine {
    pub(crate) config: CacheConfig,
    pub(crate) identity: CacheIdentity,
    pub(crate) classes: CacheClasses,
    pub(crate) handles: Vec<Handle>,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) index: Index,
    pub(crate) alloc: Mutex<Allocator>,
    /// Where slabs are, for those who only look; in order of their numbers.
    pub(crate) places: RwLock<Vec<SlabRange>>,
    /// By number.
    pub(crate) disks: RwLock<Vec<Option<Arc<CacheDisk>>>>,
    pub(crate) gate: RwLock<()>,
    pub(crate) admission: Admission,
    pub(crate) memory: MemoryTier,
    /// For reads.
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) counters: Counters,
    pub(crate) generation: AtomicU64,
    /// The generation of the last checkpoint that was tried.
    pub(crate) attempts: AtomicU64,
    pub(crate) host: HostParts,
    /// All disks of the cache, those that are away included.
    pub(crate) members: Mutex<Vec<Member>>,
    /// Where disks were found, by identity, and which disk of the topology they are.
    pub(crate) sources: Mutex<HashMap<u128, (DiskSource, u16)>>,
    /// The first number that no slab had yet.
    pub(crate) next_slab: AtomicU32,
    pub(crate) next_slot: AtomicU16,
    pub(crate) away: Away,
    pub(crate) look_again_ns: AtomicU64,
    pub(crate) is_writing_snapshot: AtomicBool,
    pub(crate) is_moving: AtomicBool,
    /// An insert found no space although there is some: it is in slabs of other sizes.
    pub(crate) is_starved: AtomicBool,
    pub(crate) is_rebalancing: AtomicBool,
    pub(crate) allocations: AtomicU64,
    /// Empty slabs that are to be discarded.
    pub(crate) discards: Mutex<VecDeque<SlabId>>,
    pub(crate) is_discarding: AtomicBool,
    /// Keys whose block was found to be corrupt.
    pub(crate) corrupt: Corrupt,
    pub(crate) flights: Flights<Block>,
    /// What opening has found to be wrong.
    pub(crate) findings: Mutex<Vec<String>>,
    /// Blocks that opening found in places that were taken.
    pub(crate) double_references: AtomicU64,
    /// Rung when somebody needs space, or a checkpoint.
    pub(crate) bell: Bell,
}

/// Reads what is never left half done.
pub(crate) fn read<T>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

/// Changes what is never left half done.
pub(crate) fn write<T>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(crate) fn hash(&self, key: &[u8]) -> Result<KeyHash, CacheError> {
        if key.is_empty() || key.len() > 65_536 {
            return Err(CacheError::KeyLength { len_bytes: key.len() });
        }
        Ok(KeyHash::of(key, self.identity.key_seed))
    }

    /// The longest value.
    pub(crate) fn max_value_bytes(&self) -> u32 {
        let overhead = if self.cipher.is_some() { OVERHEAD_BYTES as u32 } else { 0 };
        MAX_BLOCK_BYTES.min(self.identity.geometry.slab_bytes) - overhead
    }

    pub(crate) fn disk(&self, number: u16) -> Option<Arc<CacheDisk>> {
        read(&self.disks).get(usize::from(number))?.clone()
    }

    /// All that are there.
    pub(crate) fn all_disks(&self) -> Vec<Arc<CacheDisk>> {
        read(&self.disks).iter().flatten().cloned().collect()
    }

    /// The disk of a slab, and where on it the slab begins.
    pub(crate) fn place(&self, slab: SlabId) -> Option<(u16, u64)> {
        let places = read(&self.places);
        let range = places.get(places.partition_point(|range| range.first <= slab).checked_sub(1)?)?;
        let number = slab.0 - range.first.0;
        let begin = range.offset_bytes + u64::from(number) * u64::from(self.identity.geometry.slab_bytes);
        (number < range.count).then_some((range.disk, begin))
    }

    /// The disk of an extent, and where on it.
    pub(crate) fn locate(&self, extent: &Extent) -> Option<(Arc<CacheDisk>, u64)> {
        let (disk, begin) = self.place(extent.slab)?;
        Some((self.disk(disk)?, begin + u64::from(extent.offset_bytes())))
    }

    fn missed(&self, reason: MissReason) -> Lookup {
        add(&self.counters.misses[reason as usize], 1);
        Lookup::Miss(reason)
    }

    /// What can be said without a disk.
    pub(crate) fn look(&self, hash: &KeyHash) -> Result<Entry, Lookup> {
        if let Some(block) = self.memory.get(hash) {
            add(&self.counters.memory_hits, 1);
            add(&self.counters.hit_bytes, block.len() as u64);
            return Err(Lookup::Hit(block));
        }
        match self.index.lookup(hash) {
            Found::Absent => Err(self.missed(MissReason::Absent)),
            Found::Ghost => Err(self.missed(MissReason::Ghost)),
            Found::Block(entry) => Ok(entry),
        }
    }

    /// Reads what [`Engine::look`] has found.
    pub(crate) async fn fetch(&self, shard: &Shard, hash: &KeyHash, mut entry: Entry, options: GetOptions) -> Lookup {
        let deadline = options.deadline.or(self.config.hit_deadline);
        let class = options.class.unwrap_or(self.classes.hit);
        for _ in 0..ATTEMPTS {
            let read = self.read_entry(shard, hash, &entry, class, IoKind::LookupRead);
            let end = match deadline {
                None => read.await,
                Some(deadline) => match race(read, shard.sleep(deadline)).await {
                    Some(end) => end,
                    None => return self.missed(MissReason::Deadline),
                },
            };
            match end {
                Ok(block) => {
                    add(&self.counters.hits, 1);
                    add(&self.counters.hit_bytes, block.len() as u64);
                    self.remember(hash, &entry.extent, &block);
                    return Lookup::Hit(block);
                }
                Err(reason) => match self.index.peek(hash) {
                    // It was moved, or stored again, while it was read.
                    Some(now) if now.extent != entry.extent => entry = now,
                    Some(_) => return self.given_up(hash, &entry, reason),
                    None => return self.missed(MissReason::Absent),
                },
            }
        }
        self.missed(MissReason::Absent)
    }

    /// Keeps a block in memory, unless the key has changed while it was read: whoever changes a key changes the index
    /// first and the memory then, so one of the two looks sees the other.
    fn remember(&self, hash: &KeyHash, extent: &Extent, block: &Block) {
        if !self.memory.is_on() {
            return;
        }
        self.memory.insert(*hash, block.clone());
        if self.index.peek(hash).is_none_or(|now| now.extent != *extent) {
            self.memory.remove(hash);
        }
    }

    /// A block that cannot be had is forgotten, unless the fault may pass.
    fn given_up(&self, hash: &KeyHash, entry: &Entry, reason: MissReason) -> Lookup {
        if reason == MissReason::Corrupt {
            self.corrupt.note(hash);
        }
        if self.is_lost(entry, reason) {
            self.forget(hash, &entry.extent);
        }
        self.missed(reason)
    }

    /// Whether a block that could not be read is lost. Of a disk that is gone nothing is: it may bring it back.
    pub(crate) fn is_lost(&self, entry: &Entry, reason: MissReason) -> bool {
        match reason {
            MissReason::Corrupt => true,
            MissReason::ReadFailed => self.locate(&entry.extent).is_none_or(|(disk, _)| disk.takes_reads()),
            _ => false,
        }
    }

    /// Removes a block, if it still lies there.
    pub(crate) fn forget(&self, hash: &KeyHash, extent: &Extent) -> bool {
        let gate = read(&self.gate);
        let gone = self.index.remove_at(hash, extent, |gone| self.note_remove(hash, &gone));
        drop(gate);
        if let Some(gone) = &gone {
            lock(&self.alloc).free(&gone.extent);
        }
        gone.is_some()
    }

    /// Reads and verifies the bytes of an entry as they are on the disk.
    pub(crate) async fn read_stored(
        &self,
        shard: &Shard,
        entry: &Entry,
        class: Class,
        kind: IoKind,
    ) -> Result<AlignedBuf, MissReason> {
        let Some((disk, offset)) = self.locate(&entry.extent) else { return Err(MissReason::ReadFailed) };
        if !disk.takes_reads() {
            return Err(MissReason::ReadFailed);
        }
        let padded = entry.extent.padded_bytes(self.identity.geometry.sector_bytes);
        let buffer = self.buffers.take(padded as usize).map_err(|_| MissReason::Overloaded)?;
        let (result, buffer) = disk.read(shard, class, kind, offset, buffer).await;
        match result {
            Ok(()) => {}
            Err(error) if is_refusal(&error) => return Err(MissReason::Overloaded),
            Err(_) => return Err(MissReason::ReadFailed),
        }
        let stored = buffer.get(..entry.extent.len_bytes as usize).unwrap_or_default();
        if crc32c::crc32c(stored) == entry.checksum { Ok(buffer) } else { Err(MissReason::Corrupt) }
    }

    /// The block of an entry.
    pub(crate) async fn read_entry(
        &self,
        shard: &Shard,
        hash: &KeyHash,
        entry: &Entry,
        class: Class,
        kind: IoKind,
    ) -> Result<Block, MissReason> {
        let mut buffer = self.read_stored(shard, entry, class, kind).await?;
        let len = entry.extent.len_bytes as usize;
        let Some(cipher) = &self.cipher else { return Ok(Block::from_pool(buffer, 0..len, &self.buffers)) };
        let sealed = buffer.get_mut(..len).unwrap_or_default();
        let plain_len = cipher.open(hash, sealed).ok_or(MissReason::Corrupt)?.len();
        Ok(Block::from_pool(buffer, NONCE_BYTES..NONCE_BYTES + plain_len, &self.buffers))
    }

    /// The bytes of a block as they go to the disk, padded to whole sectors, and how many of them count.
    fn stored_form(&self, hash: &KeyHash, value: &[u8]) -> io::Result<(AlignedBuf, u32)> {
        let overhead = if self.cipher.is_some() { OVERHEAD_BYTES } else { 0 };
        let len = value.len() + overhead;
        let mut buffer = AlignedBuf::new(len.next_multiple_of(self.identity.geometry.sector_bytes as usize))?;
        let place = buffer.get_mut(..len).unwrap_or_default();
        match &self.cipher {
            None => place.copy_from_slice(value),
            Some(cipher) => {
                let mut sealed = Vec::new();
                cipher.seal(hash, value, &mut sealed).map_err(io::Error::other)?;
                place.copy_from_slice(&sealed);
            }
        }
        Ok((buffer, len as u32))
    }

    /// An insert that is not stored: an older value under its key is out of date, and goes.
    fn refused(&self, hash: &KeyHash, reason: DropReason) -> Inserted {
        self.take_out(hash);
        self.dropped(reason)
    }

    fn dropped(&self, reason: DropReason) -> Inserted {
        add(&self.counters.drops[reason as usize], 1);
        Inserted::Dropped(reason)
    }

    /// Stores `value`. What the future has begun is finished even where it is dropped.
    pub(crate) async fn insert(
        self: &Arc<Engine>,
        hash: KeyHash,
        value: &[u8],
        options: InsertOptions,
    ) -> Result<Inserted, CacheError> {
        let max_bytes = self.max_value_bytes();
        if value.is_empty() || value.len() > max_bytes as usize {
            return Err(CacheError::ValueLength { len_bytes: value.len(), max_bytes });
        }
        let class = options.class.unwrap_or(self.classes.fill);
        let permit = match self.admission.try_enter(class.index(), value.len() as u64) {
            Some(permit) => permit,
            None if options.wait => self.admission.enter(class.index(), value.len() as u64).await,
            None => return Ok(self.refused(&hash, DropReason::InFlight)),
        };
        let (answer, answered) = oneshot::channel();
        match self.begin_insert(hash, value, class, permit, answer) {
            Ok(()) => Ok(answered.await.unwrap_or(Inserted::Dropped(DropReason::NoDisk))),
            Err(reason) => Ok(self.refused(&hash, reason)),
        }
    }

    /// Begins to store `value`, and nobody waits for it.
    #[cfg(feature = "object_store")]
    pub(crate) fn insert_detached(self: &Arc<Engine>, hash: KeyHash, value: &[u8], class: Option<Class>) {
        let class = class.unwrap_or(self.classes.fill);
        if value.is_empty() || value.len() > self.max_value_bytes() as usize {
            return;
        }
        let Some(permit) = self.admission.try_enter(class.index(), value.len() as u64) else {
            self.refused(&hash, DropReason::InFlight);
            return;
        };
        let (answer, _) = oneshot::channel();
        if let Err(reason) = self.begin_insert(hash, value, class, permit, answer) {
            self.refused(&hash, reason);
        }
    }

    fn begin_insert(
        self: &Arc<Engine>,
        hash: KeyHash,
        value: &[u8],
        class: Class,
        permit: Permit,
        answer: oneshot::Sender<Inserted>,
    ) -> Result<(), DropReason> {
        let (buffer, len_bytes) = self.stored_form(&hash, value).map_err(|_| DropReason::InFlight)?;
        let checksum = crc32c::crc32c(buffer.get(..len_bytes as usize).unwrap_or_default());
        let extent = self.allocate(len_bytes)?;
        let Some((disk, offset)) = self.locate(&extent) else {
            lock(&self.alloc).abandon(&extent);
            return Err(DropReason::NoDisk);
        };
        let token = self.index.begin_insert(&hash);
        self.memory.remove(&hash);
        let in_memory = self.memory.is_on().then(|| Block::copy_from_slice(value));
        let engine = Arc::clone(self);
        disk.submit_write(class, IoKind::InsertWrite, offset, buffer, move |result| {
            let end = engine.end_insert(&hash, token, extent, checksum, in_memory, result);
            drop(permit);
            // The one who asked may be gone.
            let _ = answer.send(end);
        });
        Ok(())
    }

    /// Space for a block on the disk that suits best; rings for a checkpoint or eviction where there is none.
    fn allocate(&self, len_bytes: u32) -> Result<Extent, DropReason> {
        let loads = self.loads();
        let mut alloc = lock(&self.alloc);
        let extent = alloc.allocate(len_bytes, &loads);
        // A checkpoint would help less than emptying slabs of other sizes.
        let is_starved = extent.is_err() && alloc.free_bytes() > alloc.freeing_bytes();
        drop(alloc);
        if self.allocations.fetch_add(1, Relaxed).is_multiple_of(LOOK_EVERY) && self.is_below_target() {
            self.bell.ring_for_change();
        }
        extent.map_err(|why| {
            if matches!(why, NoSpace::NoDisk) {
                return DropReason::NoDisk;
            }
            if is_starved || matches!(why, NoSpace::Full) {
                self.is_starved.store(true, Relaxed);
            }
            self.bell.ring_for_space();
            DropReason::NoSpace
        })
    }

    /// What each disk has to do, for the allocator.
    pub(crate) fn loads(&self) -> Vec<DiskLoad> {
        let load = |disk: &Arc<CacheDisk>| DiskLoad {
            disk: disk.identity.number,
            write_bytes_per_s: disk.write_bytes_per_s(),
            backlog_bytes: disk.backlog_bytes(),
            is_writable: disk.takes_writes(),
            is_slow: disk.health() == DiskHealth::Slow,
        };
        read(&self.disks).iter().flatten().map(load).collect()
    }

    fn end_insert(
        &self,
        hash: &KeyHash,
        token: Token,
        extent: Extent,
        checksum: u32,
        in_memory: Option<Block>,
        result: io::Result<()>,
    ) -> Inserted {
        if result.is_err() {
            lock(&self.alloc).abandon(&extent);
            if self.index.abort_insert(hash, token) {
                self.take_out(hash);
            }
            return self.dropped(DropReason::WriteFailed);
        }
        let gate = read(&self.gate);
        let log = |old, new: Entry| {
            self.note_change(hash);
            self.note_put(hash, old, &new);
        };
        let finish = self.index.finish_insert(hash, token, extent, checksum, log);
        drop(gate);
        match finish {
            Finish::Superseded => {
                lock(&self.alloc).abandon(&extent);
                self.dropped(DropReason::Superseded)
            }
            Finish::Indexed { displaced } => {
                if let Some(old) = displaced {
                    lock(&self.alloc).free(&old.extent);
                }
                // A read of the old block may have put it there meanwhile, and the new one may be too large.
                self.memory.remove(hash);
                if let Some(block) = in_memory {
                    self.remember(hash, &extent, &block);
                }
                if self.corrupt.is_healed(hash) {
                    add(&self.counters.healed, 1);
                }
                add(&self.counters.inserts, 1);
                add(&self.counters.insert_bytes, u64::from(extent.len_bytes));
                Inserted::Stored
            }
        }
    }

    /// Forgets a key. Whether there was something.
    pub(crate) fn remove(&self, hash: &KeyHash) -> bool {
        let was_there = self.take_out(hash);
        if was_there {
            add(&self.counters.removes, 1);
        }
        was_there
    }

    /// Whatever is cached under a key, or on its way there, is not any more.
    fn take_out(&self, hash: &KeyHash) -> bool {
        let gate = read(&self.gate);
        self.note_change(hash);
        let gone = self.index.remove(hash, |gone| self.note_remove(hash, &gone));
        drop(gate);
        self.memory.remove(hash);
        let Some(gone) = gone else { return false };
        lock(&self.alloc).free(&gone.extent);
        true
    }

    /// Into the logs: a block is there, in the place of another one or of none.
    pub(crate) fn note_put(&self, hash: &KeyHash, old: Option<Entry>, new: &Entry) {
        if let Some(old) = old {
            self.note_remove(hash, &old);
        }
        self.note(new.extent.slab, &Record::Put { hash: *hash, entry: *new });
    }

    /// Into the log: a block is gone.
    pub(crate) fn note_remove(&self, hash: &KeyHash, gone: &Entry) {
        self.note(gone.extent.slab, &Record::Remove { hash: *hash, extent: gone.extent });
    }

    fn note(&self, slab: SlabId, record: &Record) {
        let Some(disk) = self.place(slab).and_then(|(number, _)| self.disk(number)) else { return };
        let is_sealed = lock(&disk.log).append(record, &mut || self.metadata_slab(disk.identity.number));
        if is_sealed {
            self.bell.ring_for_log();
        }
    }

    pub(crate) fn handle_for(&self, hash: &KeyHash) -> &Handle {
        // There is one at the least.
        &self.handles[hash.shard() % self.handles.len()]
    }

    pub(crate) fn first_handle(&self) -> &Handle {
        &self.handles[0]
    }

    /// The shard that carries out a disk's writes.
    pub(crate) fn home_of(&self, disk: u16) -> Handle {
        self.handles[usize::from(disk) % self.handles.len()].clone()
    }

    /// A slab for a disk's own metadata, and where it begins.
    pub(crate) fn metadata_slab(&self, disk: u16) -> Option<(SlabId, u64)> {
        let slab = lock(&self.alloc).take_metadata_slab(disk)?;
        Some((slab, self.place(slab)?.1))
    }
}
