//! The engine: the state that all parts of an open cache share.
//!
//! # Why
//! The paths of a block (`lookup`, `insert`) and the tasks that keep order (`keeper` and others) are in files of their
//! own. They share this state, so its locks and their order are defined in one place.
//!
//! # How it works
//! A change of the index and its log record happen under one lock, so the log has the changes of a key in their order.
//! A *gate* is held (shared) around the records of one change, which may be in the logs of two disks, so that a
//! checkpoint has both or none.
//!
//! # Limits
//! Lock order: gate, index shard, a disk's log, allocator. None is held across an `await`.
//!
//! # Example
//! An insert replaces a block on another disk: under the gate and the lock of the key's index shard, that disk's log
//! gets "removed" and the new disk's log "put". A checkpoint closes the gate for its cut, so it comes before both or
//! after both.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use plimsoll::Handle;
use plimsoll::buffer::BufferPool;

use crate::admission::Admission;
use crate::alloc::{Allocator, Geometry, SlabRange};
use crate::chores::Upkeep;
use crate::config::CacheConfig;
use crate::crypt::{Cipher, OVERHEAD_BYTES};
use crate::disk::CacheDisk;
use crate::entry::MAX_BLOCK_BYTES;
use crate::error::CacheError;
use crate::flight::{Flights, Flown};
use crate::heads::Heads;
use crate::host::{CacheClasses, HostParts};
use crate::index::Index;
use crate::key::KeyHash;
use crate::memory::MemoryTier;
use crate::requests::ToKeeper;
use crate::roster::Roster;
use crate::stats::{DropReason, MissReason};
use crate::sync::lock;
use crate::tally::Tally;

/// Running counters of a cache. Apart from what hits in memory read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) hit_bytes: AtomicU64,
    /// Hits in memory, and their bytes.
    pub(crate) in_memory: Tally<2>,
    pub(crate) misses: [AtomicU64; MissReason::ALL.len()],
    pub(crate) inserts: AtomicU64,
    pub(crate) insert_bytes: AtomicU64,
    pub(crate) drops: [AtomicU64; DropReason::ALL.len()],
    pub(crate) removes: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) evicted_bytes: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) healed: AtomicU64,
    pub(crate) scrubbed_bytes: AtomicU64,
    pub(crate) scrub_removals: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) last_checkpoint_ns: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// Keys whose block was found corrupt and is not yet stored again; at most [`MAX_CORRUPT`].
#[derive(Default)]
pub(crate) struct Corrupt {
    count: AtomicU64,
    hashes: Mutex<HashSet<KeyHash>>,
}

/// Most corrupt keys remembered, to count those healed.
const MAX_CORRUPT: usize = 65_536;

impl Corrupt {
    pub(crate) fn note(&self, hash: &KeyHash) {
        let mut hashes = lock(&self.hashes);
        if hashes.len() < MAX_CORRUPT {
            hashes.insert(*hash);
        }
        self.count.store(hashes.len() as u64, Relaxed);
    }

    pub(crate) fn is_healed(&self, hash: &KeyHash) -> bool {
        if self.count.load(Relaxed) == 0 {
            return false;
        }
        let mut hashes = lock(&self.hashes);
        let is_healed = hashes.remove(hash);
        self.count.store(hashes.len() as u64, Relaxed);
        is_healed
    }
}

/// Is XORed into the seed of key hashes for the heads of objects. Any number but 0; a part of the format.
const OBJECTS: u64 = 0x6f62_6a65_6374_7321;

fn check_length(key: &[u8]) -> Result<(), CacheError> {
    if key.is_empty() || key.len() > 65_536 {
        return Err(CacheError::KeyLength { len_bytes: key.len() });
    }
    Ok(())
}

/// The identity of a cache; fixed at creation.
#[derive(Clone, Debug)]
pub(crate) struct CacheIdentity {
    pub(crate) guid: u128,
    /// Seed of key hashes; if blocks are encrypted, only its salt.
    pub(crate) key_seed: u64,
    pub(crate) key_check: [u8; 32],
    pub(crate) geometry: Geometry,
}

/// The state of an open cache.
pub(crate) struct Engine {
    pub(crate) config: CacheConfig,
    pub(crate) identity: CacheIdentity,
    pub(crate) classes: CacheClasses,
    pub(crate) handles: Vec<Handle>,
    pub(crate) cipher: Option<Cipher>,
    /// Seed of key hashes: the identity's, or a secret if blocks are encrypted.
    pub(crate) hash_seed: u64,
    pub(crate) index: Index,
    pub(crate) alloc: Mutex<Allocator>,
    /// Where slabs lie, for look-ups without the allocator's lock; by slab number.
    pub(crate) places: RwLock<Vec<SlabRange>>,
    /// By disk number.
    pub(crate) disks: RwLock<Vec<Option<Arc<CacheDisk>>>>,
    pub(crate) gate: RwLock<()>,
    pub(crate) admission: Admission,
    pub(crate) memory: MemoryTier,
    /// Buffers for reads.
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) counters: Counters,
    pub(crate) host: HostParts,
    pub(crate) roster: Roster,
    pub(crate) upkeep: Upkeep,
    pub(crate) allocations: AtomicU64,
    /// Keys whose block was found corrupt.
    pub(crate) corrupt: Corrupt,
    pub(crate) flights: Flights<Flown>,
    /// Heads of objects that were read lately.
    pub(crate) heads: Heads,
    /// Problems that opening found, a sentence each.
    pub(crate) findings: Mutex<Vec<String>>,
    /// Entries that opening dropped because their place was taken.
    pub(crate) double_references: AtomicU64,
    /// Wakes the keeper for space, a checkpoint or a log chunk.
    pub(crate) to_keeper: ToKeeper,
}

impl Engine {
    /// Returns an engine without disks or blocks.
    pub(crate) fn empty(
        config: CacheConfig,
        identity: CacheIdentity,
        host: HostParts,
        handles: Vec<Handle>,
        generation: u64,
        next_slab: u32,
    ) -> Result<Engine, CacheError> {
        config.check()?;
        let cipher = config.encryption_key.as_ref().map(Cipher::new);

        Ok(Engine {
            hash_seed: cipher.as_ref().map_or(identity.key_seed, |cipher| cipher.hash_seed(identity.key_seed)),
            cipher,
            index: Index::new(0, config.ghost_pct, identity.geometry.sector_bytes),
            alloc: Mutex::new(Allocator::new(identity.geometry, config.placement, config.seed)),
            places: RwLock::default(),
            disks: RwLock::default(),
            gate: RwLock::default(),
            admission: Admission::new(config.in_flight_bytes),
            memory: MemoryTier::new(config.memory_bytes),
            buffers: BufferPool::new(),
            counters: Counters::default(),
            roster: Roster::new(next_slab),
            upkeep: Upkeep::new(generation),
            allocations: AtomicU64::new(0),
            corrupt: Corrupt::default(),
            flights: Flights::new(),
            heads: Heads::default(),
            findings: Mutex::default(),
            double_references: AtomicU64::new(0),
            to_keeper: ToKeeper::default(),
            classes: host.classes,
            handles,
            host,
            identity,
            config,
        })
    }

    /// Returns an empty engine without disks, of slabs of 1 MiB, on one simulated shard.
    #[cfg(test)]
    pub(crate) fn of_a_test() -> Engine {
        use plimsoll::backend::sim::{SimConfig, SimWorld};
        use plimsoll::{Classes, DiskSetup, SimRuntime, Topology};

        let world = SimWorld::new(&SimConfig::default()).unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let host = crate::host::Host::on(&topology, vec![runtime.handle(0)], 0..1).unwrap();
        let geometry = Geometry { slab_bytes: 1 << 20, sector_bytes: 512 };
        let identity = CacheIdentity { guid: 1, key_seed: 1, key_check: [0; 32], geometry };
        Engine::empty(CacheConfig::default(), identity, host.parts, host.handles, 1, 0).unwrap()
    }

    pub(crate) fn hash(&self, key: &[u8]) -> Result<KeyHash, CacheError> {
        check_length(key)?;
        Ok(self.hash_of(key))
    }

    /// Returns the hash of a key of a right length.
    pub(crate) fn hash_of(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.hash_seed)
    }

    /// Returns the hash of the head of the object of `key`, which differs from that of the block of `key`.
    pub(crate) fn object_hash(&self, key: &[u8]) -> Result<KeyHash, CacheError> {
        check_length(key)?;
        Ok(KeyHash::of(key, self.hash_seed ^ OBJECTS))
    }

    /// Returns the length of the longest value, in bytes.
    pub(crate) fn max_value_bytes(&self) -> u32 {
        let overhead = if self.cipher.is_some() { OVERHEAD_BYTES as u32 } else { 0 };
        MAX_BLOCK_BYTES.min(self.identity.geometry.slab_bytes) - overhead
    }

    pub(crate) fn handle_for(&self, hash: &KeyHash) -> &Handle {
        // Never empty: a host has at least one handle.
        &self.handles[hash.shard() % self.handles.len()]
    }

    pub(crate) fn first_handle(&self) -> &Handle {
        &self.handles[0]
    }
}
