//! Builds index, allocator and disks of a cache from the metadata on its disks.
//!
//! # How it works
//! Steps 2 to 4 of an opening: see [`crate::open`].
//!
//! # Example
//! Three disks, of which one has missed a checkpoint: the entries of the other two are in the index, and it is empty.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::Shard;

use crate::disk::DiskIdentity;
use crate::engine::Engine;
use crate::entry::{Entry, SlabId};
use crate::error::CacheError;
use crate::format::{MemberState, Record, Superblock};
use crate::index::{Cursor, Verdict};
use crate::key::KeyHash;
use crate::label::Prepared;
use crate::log::{DiskLog, FoundLog};
use crate::race::{all, yield_now};
use crate::random::random_u64;
use crate::recover::{self, Batch, ReplayError, Source};
use crate::sync::lock;

/// Entries of the index visited between two chances for other tasks.
const ENTRIES_AT_ONCE: usize = 65_536;

/// A device and its superblock.
pub(crate) struct Labelled {
    pub(crate) device: Prepared,
    pub(crate) block: Superblock,
    /// The slot of that superblock.
    pub(crate) slot: usize,
    /// The damage of the other slot, if any.
    pub(crate) damage: Option<String>,
}

/// Returns whether a checkpoint was made without this disk. A commit in its log proves nothing then: the log may have
/// been written too late, and the blocks that it names may never have become durable.
fn missed(newest: &Superblock, guid: u128) -> bool {
    newest.members.iter().any(|member| member.guid == guid && member.state == MemberState::Away)
}

pub(crate) fn without(disk: u16, guid: u128, why: &dyn std::fmt::Display) -> String {
    format!("the cache is opened without disk {disk} ({guid:032x}) and its blocks: {why}")
}

impl Engine {
    /// Builds index, allocator and disks from the metadata on the disks.
    pub(crate) async fn load(
        &self,
        shard: &Shard,
        labelled: Vec<Labelled>,
        newest: &Superblock,
        writes: bool,
    ) -> Result<(), CacheError> {
        let mut other: HashMap<KeyHash, Vec<Entry>> = HashMap::new();
        let mut rejected: Vec<(KeyHash, Entry)> = Vec::new();
        let mut loaded: Vec<(Labelled, Result<FoundLog, ReplayError>)> = Vec::new();

        for disk in &labelled {
            self.tell_damage(disk, newest.generation);
            self.add_slabs_of(&disk.block);
        }
        let ends = {
            let mut apply = |record: &Record| self.apply(record, &mut other);
            let batch = RefCell::new(Batch::new(&mut apply));
            let ends = all(labelled.iter().map(|disk| self.replay(shard, disk, newest, &batch))).await;
            batch.borrow_mut().empty();
            ends
        };

        let mut last_number = newest.generation;
        let mut hung = None;
        for (disk, (number, found)) in labelled.into_iter().zip(ends) {
            last_number = last_number.max(number);
            match found {
                Err(ReplayError::Io(error)) if error.kind() == std::io::ErrorKind::TimedOut => {
                    let path = disk.device.source.path.clone();
                    let error = CacheError::Io { path, what: "cannot read its metadata", error };
                    lock(&self.findings).push(without(disk.block.disk, disk.block.disk_guid, &error));
                    self.unload(disk.block.disk, &mut other).await;
                    self.do_without(disk).await;
                    hung = Some(error);
                    continue;
                }
                Err(error) => {
                    let path = disk.device.source.path.display();
                    lock(&self.findings).push(format!("{path}: {error}; its blocks are lost"));
                    self.unload(disk.block.disk, &mut other).await;
                    loaded.push((disk, Err(error)));
                }
                found => loaded.push((disk, found)),
            }
        }
        let opening = self.take_number(last_number);

        for (_, found) in &loaded {
            let Ok(found) = found else { continue };
            self.claim_metadata(found.slabs.iter().chain(found.snapshot.iter().flat_map(|snapshot| &snapshot.slabs)));
        }
        self.claim_all(&mut rejected).await;
        // From here on no entry comes into the index: it would have no place in the allocator. Of two entries of a key
        // that both remain, the one that is not in the index is dropped.
        rejected
            .extend(other.into_iter().flat_map(|(hash, waiting)| waiting.into_iter().map(move |entry| (hash, entry))));
        for (disk, found) in loaded {
            if writes {
                self.make_room_for_log(&disk, &mut rejected).await;
            }
            self.take_in(disk, found, opening, writes).await?;
        }
        // Log the removals, or the next opening would find these entries again.
        rejected.iter().for_each(|(hash, entry)| self.note_remove(hash, entry));
        debug_assert_eq!(self.find_leak(), None, "the allocator and the index disagree");
        match hung {
            _ if !self.all_disks().is_empty() => Ok(()),
            Some(error) => Err(error),
            None => Err(CacheError::AllFailed),
        }
    }

    /// Reads the records of a disk's log into `batch`, if the disk is current. Returns the highest number of a
    /// checkpoint or opening that it knows, and its log.
    async fn replay(
        &self,
        shard: &Shard,
        disk: &Labelled,
        newest: &Superblock,
        batch: &RefCell<Batch<'_>>,
    ) -> (u64, Result<FoundLog, ReplayError>) {
        let (block, target) = (&disk.block, newest.generation);
        let from = Source { shard, file: &disk.device.file, class: self.classes.checkpoint };
        let mut number = block.generation;
        if number != target {
            let commits = match recover::commits(from, block).await {
                Ok(commits) => commits,
                Err(error) => return (number, Err(error)),
            };
            let is_current = commits.contains(&target) && !missed(newest, block.disk_guid);
            number = commits.into_iter().fold(number, u64::max);
            if !is_current {
                return (number, Err(ReplayError::Missed { last: block.generation, wanted: target }));
            }
        }
        let found = recover::replay(from, block, target, batch).await;
        (found.as_ref().map_or(number, |found| found.last_number), found)
    }

    /// Treats a disk that hangs as absent. The cache searches for it, and it keeps its blocks until a checkpoint is
    /// made without it.
    async fn do_without(&self, disk: Labelled) {
        let Labelled { device, block, .. } = disk;
        self.forget_slabs(block.disk).dismantle().await;
        self.follow_capacity();
        self.roster.set_source(block.disk_guid, device.source, device.slot);
    }

    /// Adds a finding if a superblock of the disk is damaged.
    fn tell_damage(&self, disk: &Labelled, target: u64) {
        let Some(what) = &disk.damage else { return };
        let (path, generation) = (disk.device.source.path.display(), disk.block.generation);
        let finding = format!(
            "{path}: one of its superblocks is not right ({what}); the other is of checkpoint {generation}, the cache \
             is opened as of {target}"
        );
        lock(&self.findings).push(finding);
    }

    /// Applies one record of a current disk to the index.
    fn apply(&self, record: &Record, other: &mut HashMap<KeyHash, Vec<Entry>>) {
        match record {
            Record::Put { hash, entry } => {
                // The disk's older entry, where another disk's has displaced it meanwhile.
                if let Some(waiting) = other.get_mut(hash) {
                    waiting.retain(|older| self.disk_of(older) != self.disk_of(entry));
                }
                if let Some(displaced) = self.index.restore(*hash, *entry)
                    && self.disk_of(&displaced) != self.disk_of(entry)
                {
                    // If the key left this disk later, this disk's log removes the entry again and the displaced one
                    // returns. If it came here, the other disk's log removes the displaced one.
                    other.entry(*hash).or_default().push(displaced);
                }
            }
            Record::Remove { hash, extent } => {
                if self.index.peek(hash).is_some_and(|entry| entry.extent == *extent) {
                    self.index.forget(hash);
                    if let Some(back) = other.get_mut(hash).and_then(Vec::pop) {
                        self.index.restore(*hash, back);
                    }
                } else if let Some(waiting) = other.get_mut(hash) {
                    waiting.retain(|entry| entry.extent != *extent);
                }
            }
            _ => {}
        }
    }

    fn disk_of(&self, entry: &Entry) -> Option<u16> {
        self.place(entry.extent.slab).map(|(disk, _)| disk)
    }

    /// Removes the entries of a disk whose metadata is damaged. Entries of other disks that they displaced return.
    async fn unload(&self, number: u16, other: &mut HashMap<KeyHash, Vec<Entry>>) {
        self.drop_entries(|_, entry| self.disk_of(entry) == Some(number)).await;
        for (hash, waiting) in other {
            waiting.retain(|entry| self.disk_of(entry) != Some(number));
            if self.index.peek(hash).is_none()
                && let Some(back) = waiting.pop()
            {
                self.index.restore(*hash, back);
            }
        }
    }

    /// Takes the entries for which `is_out` is true out of the index.
    async fn drop_entries(&self, mut is_out: impl FnMut(KeyHash, &Entry) -> bool) {
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            self.index.sweep(&mut cursor, ENTRIES_AT_ONCE, |hash, entry| {
                if is_out(hash, entry) { Verdict::Drop } else { Verdict::Keep }
            });
            yield_now().await;
        }
    }

    /// Claims the space of all entries in the allocator; drops entries whose place is taken.
    async fn claim_all(&self, rejected: &mut Vec<(KeyHash, Entry)>) {
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            self.claim_some(&mut cursor, rejected);
            yield_now().await;
        }
    }

    fn claim_some(&self, cursor: &mut Cursor, rejected: &mut Vec<(KeyHash, Entry)>) {
        let mut alloc = lock(&self.alloc);
        self.index.sweep(cursor, ENTRIES_AT_ONCE, |hash, entry| match alloc.claim(&entry.extent) {
            Ok(()) => Verdict::Keep,
            Err(_) => {
                rejected.push((hash, *entry));
                self.double_references.fetch_add(1, Relaxed);
                Verdict::Drop
            }
        });
    }

    /// Clears a slab of a disk that has no free one for its log. Adds the blocks that it held to `lost`.
    async fn make_room_for_log(&self, disk: &Labelled, lost: &mut Vec<(KeyHash, Entry)>) {
        let number = disk.block.disk;
        let cleared = {
            let mut alloc = lock(&self.alloc);
            if alloc.free_slabs(number) > 0 { None } else { alloc.clear_one(number) }
        };
        let Some(slab) = cleared else { return };
        let lost_before = lost.len();
        self.drop_entries(|hash, entry| {
            let is_out = entry.extent.slab == slab;
            if is_out {
                lost.push((hash, *entry));
            }
            is_out
        })
        .await;
        let (path, count) = (disk.device.source.path.display(), lost.len() - lost_before);
        let finding = format!("{path}: it had no free slab for its log; the {count} blocks of one slab are lost");
        lock(&self.findings).push(finding);
    }

    /// Adds a disk to the engine, with the log found or, if that cannot be used, a new one.
    async fn take_in(
        &self,
        disk: Labelled,
        found: Result<FoundLog, ReplayError>,
        opening: u64,
        writes: bool,
    ) -> Result<(), CacheError> {
        let Labelled { device, block, slot, .. } = disk;
        let (number, guid) = (block.disk, block.disk_guid);
        debug_assert!(self.disk(number).is_none(), "two disks of the cache have the number {number}");
        let path = device.source.path.clone();
        // A log that will never be written takes no slab.
        let mut real = || self.metadata_slab(number);
        let mut none = || Some((SlabId(SlabId::END), 0));
        let take: &mut dyn FnMut() -> Option<(SlabId, u64)> = if writes { &mut real } else { &mut none };

        let log = match found {
            Ok(found) => DiskLog::reopen(self.shape(guid), found, opening, take).ok(),
            Err(_) => DiskLog::new(self.shape(guid), take).ok(),
        };
        let log = match log {
            Some(log) => log,
            None => self.empty_disk(&block, &path).await?,
        };

        let identity = DiskIdentity { number, guid, path };
        let disk = self.make_disk(identity, device, log);
        disk.label_slot.store(slot, Relaxed);
        if self.roster.find(guid).is_some_and(|member| member.state == MemberState::Removing) {
            disk.judge(|health| health.set_removing(true));
            lock(&self.alloc).set_writable(number, false);
        }
        self.set_disk(number, Some(Arc::new(disk)));
        Ok(())
    }

    /// Empties a disk that has no free slab for its log, and returns a new log: the disk restarts without its blocks.
    async fn empty_disk(&self, block: &Superblock, path: &std::path::Path) -> Result<DiskLog, CacheError> {
        lock(&self.findings).push(format!("{}: it has no free slab for its log; its blocks are lost", path.display()));
        self.drop_entries(|_, entry| self.disk_of(entry) == Some(block.disk)).await;
        self.forget_slabs(block.disk).dismantle().await;
        self.add_slabs_of(block);
        self.new_log(block.disk, block.disk_guid, path)
    }

    /// Returns the number of this opening, higher than `last_number`. Checkpoints will have higher numbers still.
    fn take_number(&self, last_number: u64) -> u64 {
        // Leave a random gap: absent disks may know numbers that no present disk does. If two checkpoints had the same
        // number, they would count as one.
        let opening = last_number.saturating_add(1 + (random_u64() & 0xffff));
        // The label of an added disk has the number before that of a checkpoint, which must not be the opening's.
        self.upkeep.numbers.begin_after(opening.saturating_add(1));
        opening
    }

    /// Prepares an engine that was loaded for writing.
    pub(crate) fn begin_life(&self, sources: usize) {
        let first = self.host.disks.start + sources as u16;
        self.roster.set_free_slots(first..self.host.disks.end);
        self.set_reserves();
        // Now, while no insert waits for it.
        lock(&self.alloc).rank_claimed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::SlabRange;
    use crate::entry::Extent;
    use crate::label;

    fn entry(slab: u32) -> Entry {
        Entry { extent: Extent { slab: SlabId(slab), offset_units: 0, len_bytes: 4096 }, checksum: slab, tick: 0 }
    }

    /// Records of two disks come in any order. Disk 0 has stored the key twice, and removed it.
    #[test]
    fn an_entry_that_its_disk_has_replaced_does_not_come_back() {
        let hash = KeyHash([7; 10]);

        let (first, second) = (entry(0), entry(1));
        let other_disk = entry(10);
        let put = |entry: &Entry| Record::Put { hash, entry: *entry };
        let remove = |entry: &Entry| Record::Remove { hash, extent: entry.extent };
        let own = [put(&first), put(&second), remove(&second)];
        let others = [put(&other_disk), remove(&other_disk)];
        for order in ["00011", "00101", "00110", "01001", "01010", "01100", "10001", "10010", "10100", "11000"] {
            let (engine, mut displaced) = (Engine::of_a_test(), HashMap::new());
            for disk in 0..2 {
                let first = SlabId(u32::from(disk) * 10);
                engine.add_slabs(SlabRange { first, count: 10, disk, offset_bytes: label::SLABS_AT_BYTES });
            }
            let (mut own, mut others) = (own.iter(), others.iter());
            for disk in order.bytes() {
                let record = if disk == b'0' { own.next() } else { others.next() };
                engine.apply(record.unwrap(), &mut displaced);
            }
            assert_eq!(engine.index.peek(&hash), None, "{order}");
        }
    }
}
