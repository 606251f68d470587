//! The disks of an open cache: their table, the places of their slabs, the records in their logs, and how a disk parts.
//!
//! # Why
//! Look-ups, inserts, checkpoints and the mover all look up places. All code that adds, opens, readmits or forgets a
//! disk must change the same four tables alike: disks, places, allocator, sources.
//!
//! # How it works
//! A look-up of a place needs no lock of the allocator: it uses a list of slab ranges sorted by number. A record is
//! appended to the log of the disk that has its slab.
//!
//! A disk *parts* when it no longer takes its metadata: from then on no block written to it is indexed. If it does not
//! read either, its blocks and slabs are forgotten.
//!
//! # Limits
//! Slab and disk numbers are not reused.
//!
//! # Example
//! An insert as its disk fails: the insert holds the gate until its write is in flight. Either the disk parts before
//! that, and the write is refused, or after it, and the end of the write sees that the disk has parted.

use std::path::Path;
use std::sync::Arc;

use plimsoll::Handle;

use crate::alloc::{DiskLoad, Removed, SlabRange};
use crate::disk::{CacheDisk, DiskIdentity};
use crate::engine::Engine;
use crate::entry::{Entry, Extent, SlabId};
use crate::error::CacheError;
use crate::format::{Record, Superblock};
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::key::KeyHash;
use crate::label::{self, Prepared};
use crate::log::{DiskLog, StreamShape};
use crate::race::yield_now;
use crate::stats::DiskHealth;
use crate::sync::{lock, read, write};

/// The slabs of one disk: for passes over the index, which look up each entry's without a lock.
pub(crate) struct DiskSlabs(Vec<SlabRange>);

impl DiskSlabs {
    pub(crate) fn has(&self, slab: SlabId) -> bool {
        self.0.iter().any(|range| (range.first.0..range.first.0 + range.count).contains(&slab.0))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The disks, and the places of blocks and slabs.
impl Engine {
    pub(crate) fn disk(&self, number: u16) -> Option<Arc<CacheDisk>> {
        read(&self.disks).get(usize::from(number))?.clone()
    }

    /// Returns all present disks.
    pub(crate) fn all_disks(&self) -> Vec<Arc<CacheDisk>> {
        read(&self.disks).iter().flatten().cloned().collect()
    }

    /// Returns the disk of a slab, and the slab's offset on it in bytes.
    pub(crate) fn place(&self, slab: SlabId) -> Option<(u16, u64)> {
        let places = read(&self.places);
        let range = places.get(places.partition_point(|range| range.first <= slab).checked_sub(1)?)?;
        let number = slab.0 - range.first.0;
        let begin = range.offset_bytes + u64::from(number) * u64::from(self.identity.geometry.slab_bytes);
        (number < range.count).then_some((range.disk, begin))
    }

    /// Returns the slabs that a disk has now.
    pub(crate) fn slabs_of(&self, disk: u16) -> DiskSlabs {
        DiskSlabs(read(&self.places).iter().filter(|range| range.disk == disk).copied().collect())
    }

    /// Returns the disk of an extent, and the extent's offset on it in bytes.
    pub(crate) fn locate(&self, extent: &Extent) -> Option<(Arc<CacheDisk>, u64)> {
        let (disk, begin) = self.place(extent.slab)?;
        Some((self.disk(disk)?, begin + u64::from(extent.offset_bytes())))
    }

    /// Returns whether writes to a disk count: not if it has parted, or belongs to a former life.
    pub(crate) fn is_member(&self, disk: &Arc<CacheDisk>) -> bool {
        !disk.has_parted() && self.disk(disk.identity.number).is_some_and(|now| Arc::ptr_eq(&now, disk))
    }

    /// Returns a handle to the shard that carries out a disk's writes.
    pub(crate) fn home_of(&self, disk: u16) -> Handle {
        self.handles[usize::from(disk) % self.handles.len()].clone()
    }

    /// Takes a slab for a disk's own metadata. Returns it and its offset on the disk.
    pub(crate) fn metadata_slab(&self, disk: u16) -> Option<(SlabId, u64)> {
        let slab = lock(&self.alloc).take_metadata_slab(disk)?;
        Some((slab, self.place(slab)?.1))
    }

    /// Returns the backlog and state of each disk, for the allocator.
    pub(crate) fn loads(&self) -> Vec<DiskLoad> {
        let load = |disk: &Arc<CacheDisk>| DiskLoad {
            disk: disk.identity.number,
            write_bytes_per_s: disk.write_bytes_per_s(),
            backlog_bytes: disk.backlog_bytes(),
            is_writable: disk.takes_writes() && !disk.hangs() && !disk.writes_hang(),
            is_slow: disk.health() == DiskHealth::Slow,
        };
        read(&self.disks).iter().flatten().map(load).collect()
    }
}

/// Adding and forgetting disks and slabs.
impl Engine {
    pub(crate) fn shape(&self, disk_guid: u128) -> StreamShape {
        let geometry = self.identity.geometry;
        StreamShape { disk_guid, slab_bytes: geometry.slab_bytes, sector_bytes: geometry.sector_bytes }
    }

    pub(crate) fn make_disk(&self, identity: DiskIdentity, prepared: Prepared, log: DiskLog) -> CacheDisk {
        let home = self.home_of(identity.number);
        let Prepared { file, lock: kept, slot, source, .. } = prepared;
        let write_bytes_per_s = source.write_bytes_per_s;
        self.roster.set_source(identity.guid, source, slot);
        CacheDisk::new(identity, file, kept, home, log, write_bytes_per_s, self.config.hit_slowdown)
    }

    pub(crate) fn set_disk(&self, number: u16, disk: Option<Arc<CacheDisk>>) {
        let mut disks = write(&self.disks);
        if disks.len() <= usize::from(number) {
            disks.resize(usize::from(number) + 1, None);
        }
        if let Some(place) = disks.get_mut(usize::from(number)) {
            *place = disk;
        }
    }

    pub(crate) fn add_slabs(&self, range: SlabRange) {
        // Slab numbers are given out once, so ranges cannot overlap. If one does, it is not used.
        if lock(&self.alloc).add_range(range).is_ok() {
            let mut places = write(&self.places);
            let at = places.partition_point(|other| other.first < range.first);
            match at.checked_sub(1).and_then(|before| places.get_mut(before)) {
                // A superblock has room for few ranges.
                Some(before) if self.continues(before, &range) => before.count += range.count,
                _ => places.insert(at, range),
            }
        }
    }

    /// Returns whether `range` continues `before`, in numbers and on the disk.
    fn continues(&self, before: &SlabRange, range: &SlabRange) -> bool {
        before.disk == range.disk
            && before.first.0 + before.count == range.first.0
            && self.end_bytes(before) == range.offset_bytes
    }

    /// Returns where a range ends on its disk, in bytes.
    pub(crate) fn end_bytes(&self, range: &SlabRange) -> u64 {
        range.offset_bytes + u64::from(range.count) * u64::from(self.identity.geometry.slab_bytes)
    }

    /// Adds all slabs that a disk's superblock names.
    pub(crate) fn add_slabs_of(&self, block: &Superblock) {
        for range in &block.ranges {
            let (first, count, offset_bytes) = (range.first, range.count, range.offset_bytes);
            self.add_slabs(SlabRange { first, count, disk: block.disk, offset_bytes });
        }
    }

    pub(crate) fn claim_metadata<'a>(&self, slabs: impl Iterator<Item = &'a SlabId>) {
        let mut alloc = lock(&self.alloc);
        for slab in slabs {
            // Fails if an earlier stream has claimed the slab already; that is fine.
            let _ = alloc.claim_metadata(*slab);
        }
    }

    /// Measures ages and ghosts by the present slabs. Call it when those of a disk were added or forgotten.
    pub(crate) fn follow_capacity(&self) {
        let capacity_bytes = lock(&self.alloc).capacity_bytes();
        self.index.set_capacity(capacity_bytes);
    }

    pub(crate) fn forget_slabs(&self, disk: u16) -> Removed {
        write(&self.places).retain(|range| range.disk != disk);
        lock(&self.alloc).remove_disk(disk)
    }

    pub(crate) fn new_log(&self, number: u16, guid: u128, path: &Path) -> Result<DiskLog, CacheError> {
        let full = |_| CacheError::TooSmall { path: path.to_owned(), has_bytes: 0, needs_bytes: label::SLABS_AT_BYTES };
        DiskLog::new(self.shape(guid), &mut || self.metadata_slab(number)).map_err(full)
    }

    /// Parts disks whose log cannot be written. If such a disk does not read either, its blocks and slabs are
    /// forgotten.
    pub(crate) async fn part_with_disks(&self) {
        for disk in self.all_disks().iter().filter(|disk| !disk.takes_metadata()) {
            if !disk.has_parted() {
                // With the gate closed no change is half done, and every write that ends later sees that the disk has
                // parted.
                let closed = write(&self.gate);
                disk.part();
                drop(closed);
                disk.give_up_all_writes();
            }
            if disk.health() == DiskHealth::Failed {
                self.forget_disk(disk.identity.number).await;
            }
        }
    }

    /// Forgets the blocks and slabs of a disk without touching the disk.
    async fn forget_disk(&self, number: u16) {
        let slabs = self.slabs_of(number);
        if slabs.is_empty() {
            return;
        }
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            self.index.sweep(&mut cursor, PASS_ENTRIES, |_, entry| {
                if slabs.has(entry.extent.slab) { Verdict::Drop } else { Verdict::Keep }
            });
            yield_now().await;
        }
        let closed = write(&self.gate);
        let removed = self.forget_slabs(number);
        drop(closed);
        self.follow_capacity();
        removed.dismantle().await;
    }
}

impl Removed {
    /// Frees the memory in parts, between which other tasks run.
    pub(crate) async fn dismantle(mut self) {
        while self.drop_some() {
            yield_now().await;
        }
    }
}

/// Records in the logs.
impl Engine {
    /// Appends to the logs that a block was stored, and that the block it replaces, if any, was removed.
    pub(crate) fn note_put(&self, hash: &KeyHash, old: Option<Entry>, new: &Entry) {
        if let Some(old) = old {
            self.note_remove(hash, &old);
        }
        self.note(new.extent.slab, &Record::Put { hash: *hash, entry: *new });
    }

    /// Appends to the log that a block was removed.
    pub(crate) fn note_remove(&self, hash: &KeyHash, gone: &Entry) {
        self.note(gone.extent.slab, &Record::Remove { hash: *hash, extent: gone.extent });
    }

    fn note(&self, slab: SlabId, record: &Record) {
        let disk = self.place(slab).and_then(|(number, _)| self.disk(number));
        let Some(disk) = disk.filter(|disk| !disk.has_parted()) else { return };
        let is_sealed = lock(&disk.log).append(record, &mut || self.metadata_slab(disk.identity.number));
        if is_sealed {
            self.to_keeper.report_sealed_log();
        }
    }
}
