//! The engine: what an open cache consists of, and what all parts of it know.
//!
//! # Why
//! What happens to a block and what keeps order are in files of their own (`lookup`, `insert`, `keeper` and its tasks). They
//! share this state, so its locks and their order are one agreement.
//!
//! # How it works
//! A change of the index and its record in the log happen under one lock, so the log has the changes of a key in their
//! order; a *gate* is held (shared) around the records of one change, which may be in the logs of two disks, so that a
//! checkpoint has both or none.
//!
//! # Limits
//! Locks in their order: gate, index shard, a disk's log, allocator. None is held while something is awaited.
//!
//! # Example
//! An insert that replaces a block of another disk: under the gate and the lock of the key's index shard, that disk's log
//! gets "removed" and the new one's "put". A checkpoint closes the gate for its cut, so it comes before both or after both.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use plimsoll::Handle;

use crate::admission::Admission;
use crate::alloc::{Allocator, Geometry, SlabRange};
use crate::bell::Bell;
use crate::block::Block;
use crate::config::{CacheConfig, DiskSource};
use crate::crypt::{Cipher, OVERHEAD_BYTES};
use crate::disk::CacheDisk;
use crate::entry::{MAX_BLOCK_BYTES, SlabId};
use crate::error::CacheError;
use crate::flight::Flights;
use crate::format::Member;
use crate::host::{CacheClasses, HostParts};
use crate::index::Index;
use crate::key::KeyHash;
use crate::memory::MemoryTier;
use crate::pool::BufferPool;
use crate::stats::{DropReason, MissReason};
use crate::sync::lock;

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

/// Who a cache is; fixed when it is created.
#[derive(Clone, Debug)]
pub(crate) struct CacheIdentity {
    pub(crate) guid: u128,
    /// Seed of the hashes of keys; where blocks are encrypted, only its salt.
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
    /// Of the hashes of keys: the identity's, or a secret.
    pub(crate) hash_seed: u64,
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

impl Engine {
    /// An engine without disks or blocks.
    pub(crate) fn empty(
        config: CacheConfig,
        identity: CacheIdentity,
        host: HostParts,
        handles: Vec<Handle>,
        generation: u64,
        next_slab: u32,
    ) -> Result<Engine, CacheError> {
        config.check()?;
        let slots = host.disks.start;
        let cipher = config.encryption_key.as_ref().map(Cipher::new);
        Ok(Engine {
            hash_seed: cipher.as_ref().map_or(identity.key_seed, |cipher| cipher.hash_seed(identity.key_seed)),
            cipher,
            index: Index::new(0, config.ghost_pct),
            alloc: Mutex::new(Allocator::new(identity.geometry, config.placement, config.seed)),
            places: RwLock::default(),
            disks: RwLock::default(),
            gate: RwLock::default(),
            admission: Admission::new(config.in_flight_bytes),
            memory: MemoryTier::new(config.memory_bytes),
            buffers: Arc::default(),
            counters: Counters::default(),
            generation: AtomicU64::new(generation),
            attempts: AtomicU64::new(generation),
            members: Mutex::default(),
            sources: Mutex::default(),
            next_slab: AtomicU32::new(next_slab),
            next_slot: AtomicU16::new(slots),
            look_again_ns: AtomicU64::new(0),
            is_writing_snapshot: AtomicBool::new(false),
            is_moving: AtomicBool::new(false),
            is_starved: AtomicBool::new(false),
            is_rebalancing: AtomicBool::new(false),
            allocations: AtomicU64::new(0),
            discards: Mutex::default(),
            is_discarding: AtomicBool::new(false),
            corrupt: Corrupt::default(),
            flights: Flights::new(),
            findings: Mutex::default(),
            double_references: AtomicU64::new(0),
            bell: Bell::default(),
            classes: host.classes,
            handles,
            host,
            identity,
            config,
        })
    }

    pub(crate) fn hash(&self, key: &[u8]) -> Result<KeyHash, CacheError> {
        if key.is_empty() || key.len() > 65_536 {
            return Err(CacheError::KeyLength { len_bytes: key.len() });
        }
        Ok(KeyHash::of(key, self.hash_seed))
    }

    /// The longest value.
    pub(crate) fn max_value_bytes(&self) -> u32 {
        let overhead = if self.cipher.is_some() { OVERHEAD_BYTES as u32 } else { 0 };
        MAX_BLOCK_BYTES.min(self.identity.geometry.slab_bytes) - overhead
    }

    pub(crate) fn handle_for(&self, hash: &KeyHash) -> &Handle {
        // There is one at the least.
        &self.handles[hash.shard() % self.handles.len()]
    }

    pub(crate) fn first_handle(&self) -> &Handle {
        &self.handles[0]
    }
}
