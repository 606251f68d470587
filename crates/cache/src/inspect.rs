//! Inspects a cache that is not open: reads the metadata of its disks, and verifies its blocks.
//!
//! # Why
//! After a crash, before an upgrade, or when a cache behaves oddly, an operator wants to see the content of the disks
//! without changing it.
//!
//! # How it works
//! The cache is opened as always, by the same code, but nothing is written: [`inspect`] returns what opening found.
//! [`check`] also reads every block, and compares checksums (and decrypts, if it has the key). Space that no entry
//! names is free, so none can leak.
//!
//! # Limits
//! The disks are locked meanwhile. A place that two entries name is reported, but not which of them is right.
//!
//! # Example
//! A cache after 100 kills: blocks 81,224, bytes 665 MB, checksum errors 0, double references 0.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::Shard;

use crate::alloc::SlabReport;
use crate::config::{CacheConfig, DiskSource};
use crate::engine::Engine;
use crate::entry::Entry;
use crate::error::CacheError;
use crate::host::{Host, HostOptions};
use crate::index::Cursor;
use crate::key::KeyHash;
use crate::open;
use crate::race::{all, in_time};
use crate::stats::{CacheStats, IoKind, MissReason};
use crate::sync::lock;

/// Blocks read concurrently.
const READS: usize = 64;

/// The state of a cache that is not open.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Its identity, as 32 hexadecimal digits.
    pub cache_guid: String,
    /// Bytes of a slab.
    pub slab_bytes: u32,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Whether blocks are encrypted.
    pub is_encrypted: bool,
    /// The statistics of the cache as opened; counters are 0.
    pub stats: CacheStats,
    /// Slabs by disk and block size.
    pub slabs: SlabReport,
    /// Problems with the disks, a sentence each; empty for a sound cache.
    pub findings: Vec<String>,
}

/// The result of reading every block.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckReport {
    /// The state of the cache.
    pub inspection: Inspection,
    /// The blocks, sound and not.
    pub blocks: BlockCounts,
}

/// Counts of blocks that were read and verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BlockCounts {
    /// Blocks read.
    pub blocks: u64,
    /// Bytes of the blocks that their disks returned.
    pub bytes: u64,
    /// Blocks whose bytes are not those written.
    pub checksum_errors: u64,
    /// Blocks that their disk did not return, or not within 10 s; then no other block of that disk is read.
    pub unreadable: u64,
    /// Blocks whose place belongs to another block too.
    pub double_references: u64,
}

impl CheckReport {
    /// Returns whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.blocks.is_sound() && self.inspection.findings.is_empty()
    }
}

impl BlockCounts {
    /// Returns whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        [self.checksum_errors, self.unreadable, self.double_references] == [0; 3]
    }

    /// Counts a block of `len_bytes`. `end` says whether it is sound, or why not.
    pub(crate) fn count(&mut self, len_bytes: u32, end: Result<(), MissReason>) {
        self.blocks += 1;
        match end {
            Ok(()) => {}
            Err(MissReason::Corrupt) => self.checksum_errors += 1,
            Err(_) => {
                self.unreadable += 1;
                return;
            }
        }
        self.bytes += u64::from(len_bytes);
    }
}

/// Inspects the cache of `disks`. `encryption_key` is needed if the cache is encrypted.
///
/// # Errors
/// As [`BlockCache::open`](crate::BlockCache::open).
pub async fn inspect(
    disks: &[DiskSource],
    encryption_key: Option<[u8; 32]>,
    host: &HostOptions,
) -> Result<Inspection, CacheError> {
    let models: Vec<_> = disks.iter().map(|disk| disk.model.clone()).collect();
    inspect_on(disks, encryption_key, &Host::threads(host, &models)?).await
}

/// Inspects a cache as [`inspect`] does, on an existing host.
///
/// # Errors
/// As [`inspect`].
pub async fn inspect_on(
    disks: &[DiskSource],
    encryption_key: Option<[u8; 32]>,
    host: &Host,
) -> Result<Inspection, CacheError> {
    look(disks, encryption_key, host, async |engine, _| Ok(engine.inspection())).await
}

/// Reads and verifies every block. Calls `progress` now and then with the blocks read and the blocks in all.
///
/// # Errors
/// As [`inspect`].
pub async fn check(
    disks: &[DiskSource],
    encryption_key: Option<[u8; 32]>,
    host: &HostOptions,
    progress: impl FnMut(u64, u64) + Send + 'static,
) -> Result<CheckReport, CacheError> {
    let models: Vec<_> = disks.iter().map(|disk| disk.model.clone()).collect();
    check_on(disks, encryption_key, &Host::threads(host, &models)?, progress).await
}

/// Checks a cache as [`check`] does, on an existing host.
///
/// # Errors
/// As [`inspect`].
pub async fn check_on(
    disks: &[DiskSource],
    encryption_key: Option<[u8; 32]>,
    host: &Host,
    progress: impl FnMut(u64, u64) + Send + 'static,
) -> Result<CheckReport, CacheError> {
    look(disks, encryption_key, host, async move |engine, shard| Ok(engine.check_blocks(&shard, progress).await)).await
}

async fn look<T, B>(
    disks: &[DiskSource],
    encryption_key: Option<[u8; 32]>,
    host: &Host,
    body: B,
) -> Result<T, CacheError>
where
    T: Send + 'static,
    B: AsyncFnOnce(Arc<Engine>, Shard) -> Result<T, CacheError> + Send + 'static,
{
    let (disks, parts, handles) = (disks.to_vec(), host.parts.clone(), host.handles.clone());
    let config = CacheConfig { encryption_key, ..CacheConfig::default() };
    let open = move |shard: Shard| async move {
        let engine = open::open(config, parts, handles, &shard, &disks, false).await?;
        body(Arc::new(engine), shard).await
    };
    crate::cache::on_shard(host, open).await?
}

impl Engine {
    fn inspection(&self) -> Inspection {
        let geometry = self.identity.geometry;
        let mut findings = lock(&self.findings).clone();
        findings.extend(lock(&self.alloc).check().err());
        Inspection {
            cache_guid: format!("{:032x}", self.identity.guid),
            slab_bytes: geometry.slab_bytes,
            sector_bytes: geometry.sector_bytes,
            is_encrypted: self.cipher.is_some(),
            stats: self.stats(),
            slabs: lock(&self.alloc).report(),
            findings,
        }
    }

    async fn check_blocks(&self, shard: &Shard, mut progress: impl FnMut(u64, u64)) -> CheckReport {
        let double_references = self.double_references.load(Relaxed);
        let mut counts = BlockCounts { double_references, ..BlockCounts::default() };
        let total = self.index.blocks();
        let mut cursor = Cursor::default();
        while let Some(blocks) = self.index.next_blocks(&mut cursor) {
            for part in blocks.chunks(READS) {
                let ends = all(part.iter().map(|(hash, entry)| self.check_block(shard, hash, entry))).await;
                for ((_, entry), end) in part.iter().zip(ends) {
                    counts.count(entry.extent.len_bytes, end);
                }
                progress(counts.blocks, total);
            }
        }
        CheckReport { blocks: counts, inspection: self.inspection() }
    }

    /// Reads and verifies a block. If its disk hangs, the disk's other blocks are not read.
    async fn check_block(&self, shard: &Shard, hash: &KeyHash, entry: &Entry) -> Result<(), MissReason> {
        let read = self.read_entry(shard, hash, entry, self.classes.evacuate, IoKind::LookupRead);
        let end = in_time(shard, read).await.unwrap_or_else(|| {
            self.locate(&entry.extent).inspect(|(disk, _)| disk.set_hanging(true));
            Err(MissReason::Deadline)
        });
        end.map(drop)
    }
}
