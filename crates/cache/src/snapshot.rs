//! Snapshots: let a disk's log be cut when its replay would take too long.
//!
//! # Why
//! A log that is never cut grows for ever, and recovery with it. Writing the whole index at every checkpoint would be
//! gigabytes a minute. So the index is written only when the log has become longer than it.
//!
//! # How it works
//! All disks are written in one pass over the index, beside all other I/O. Each disk's log moves to a fresh slab
//! (`DiskLog::begin_snapshot`), every entry goes to the snapshot of its block's disk, and chunks are written as they
//! fill, in the class of checkpoints. The next checkpoint names the new snapshots. Entries that change during the pass
//! are also in the log, which is replayed after the snapshot. A disk that runs short of free slabs has its log cut
//! sooner (`space`), and one that many short lives have left with many slabs at the next opening.
//!
//! # Limits
//! Writes the whole index each time the log has grown by twice its size: every record is written about 1.5 times.
//!
//! # Example
//! 10 million blocks are 250 MB of snapshot; at 92,000 inserts a second (each with an eviction, 44 bytes) the log is
//! twice as long after two minutes.

use std::io;
use std::sync::Arc;

use plimsoll::Shard;

use crate::disk::CacheDisk;
use crate::disks::DiskSlabs;
use crate::engine::Engine;
use crate::entry::SlabId;
use crate::format::{MAX_RECORD_BYTES, Record, StreamHead};
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::log::{Snapshot, Stream};
use crate::race::yield_now;
use crate::sync::{lock, read, write};

/// Shortest log that is worth a snapshot.
const MIN_LOG_BYTES: u64 = 4 << 20;

/// A disk's snapshot as it is written.
struct Growing {
    disk: Arc<CacheDisk>,
    /// Blocks in slabs that come later are all in the log.
    slabs: DiskSlabs,
    stream: Stream,
    head: StreamHead,
    is_whole: bool,
}

impl Engine {
    /// Starts to write snapshots if one is wanted on some disk and none is being written.
    pub(crate) fn start_snapshot(self: &Arc<Engine>, shard: &Shard, is_wanted: fn(&Engine, &CacheDisk) -> bool) {
        if self.to_keeper.is_stopping() || !self.wants_snapshot(is_wanted) {
            return;
        }

        let Some(run) = self.upkeep.snapshots.start() else { return };
        let (engine, own) = (Arc::clone(self), shard.clone());
        let work = async move {
            let is_stopping = || engine.to_keeper.is_stopping();
            let has_any = engine.write_snapshots(&own, is_stopping).await;
            drop(run);
            if has_any {
                // The older part of the log is free after a checkpoint. Request one; do not wait for it.
                drop(engine.to_keeper.request_checkpoint());
            }
        };
        shard.spawn(work).detach();
    }

    /// Writes snapshots, and the checkpoint that names them, if the lives before this one have left too few slabs:
    /// perhaps this life is as short as theirs were.
    pub(crate) async fn shorten_inherited_logs(self: &Arc<Engine>, shard: &Shard) {
        if self.wants_snapshot(Engine::is_short_of_slabs) && self.write_snapshots(shard, || false).await {
            // If it fails, the disks' health has the reason, and the next one names the snapshots.
            let _ = self.checkpoint(shard).await;
        }
    }

    fn wants_snapshot(&self, is_wanted: fn(&Engine, &CacheDisk) -> bool) -> bool {
        let is_possible = |disk: &CacheDisk| disk.takes_metadata() && !lock(&disk.log).has_snapshot_under_way();
        self.all_disks().iter().any(|disk| is_possible(disk) && is_wanted(self, disk))
    }

    /// Returns the bytes of a snapshot of a disk: a record for each of its blocks. The index does not count blocks by
    /// disk, so a disk has the part of them that it has of the space that blocks take.
    pub(crate) fn snapshot_bytes(&self, disk: u16) -> u64 {
        let blocks = self.index.blocks() as f64 * lock(&self.alloc).allocated_part(disk);
        (blocks * MAX_RECORD_BYTES as f64).round() as u64
    }

    /// Returns whether the replay of a disk's log would take long.
    pub(crate) fn has_long_log(&self, disk: &CacheDisk) -> bool {
        let (limit, slab_bytes) =
            (self.long_log_bytes(disk.identity.number), u64::from(self.identity.geometry.slab_bytes));
        let log = lock(&disk.log);
        // Every opening begins a slab: after many short lives, a log is long though it has few bytes.
        log.replay_bytes() > limit || log.replay_slabs() as u64 > limit.div_ceil(slab_bytes) + 3
    }

    /// Returns whether a disk has fewer free slabs than its metadata needs, and a snapshot would free some: all of the
    /// log but the last.
    pub(crate) fn is_short_of_slabs(&self, disk: &CacheDisk) -> bool {
        let number = disk.identity.number;
        let needed = self.slabs_needed(number);
        lock(&self.alloc).free_slabs(number) < needed.urgent && lock(&disk.log).replay_slabs() > 1
    }

    /// Returns the length from which a disk's log is long: twice that of its snapshot, but no less than is worth one.
    pub(crate) fn long_log_bytes(&self, disk: u16) -> u64 {
        // In small caches, whose slabs are small.
        let two_slabs = 2 * u64::from(self.identity.geometry.slab_bytes);
        (2 * self.snapshot_bytes(disk)).max(MIN_LOG_BYTES.min(two_slabs))
    }

    /// Writes a snapshot of each disk that has the slabs for one. Returns whether any did, and was not given up.
    async fn write_snapshots(self: &Arc<Engine>, shard: &Shard, is_given_up: impl Fn() -> bool) -> bool {
        let mut growing: Vec<Growing> = self.all_disks().into_iter().filter_map(|disk| self.begin(disk)).collect();
        if growing.is_empty() {
            return false;
        }
        let mut cursor = Cursor::default();
        while !cursor.is_done() && !is_given_up() {
            self.index.sweep(&mut cursor, PASS_ENTRIES, |hash, entry| {
                if let Some(to) = growing.iter_mut().find(|to| to.slabs.has(entry.extent.slab)) {
                    self.put(to, &Record::Put { hash, entry: *entry });
                }
                Verdict::Keep
            });
            for to in &mut growing {
                self.write_out(shard, to).await;
            }
            yield_now().await;
        }

        if !cursor.is_done() {
            // Stopping: incomplete snapshots are not used, and their slabs are free after the next opening.
            return false;
        }
        for mut to in growing {
            self.put(&mut to, &Record::End);
            to.is_whole = to.is_whole && to.stream.seal(&mut || self.slab_for(&to.disk)).is_ok();
            self.write_out(shard, &mut to).await;
            let slabs = to.stream.slabs().collect();
            let _gate = read(&self.gate);
            if !self.is_member(&to.disk) {
                // Its slabs belong to the disk's next life now.
            } else if to.is_whole {
                lock(&to.disk.log).snapshot_written(Snapshot { head: to.head, slabs });
            } else if !to.disk.takes_metadata() {
                // A write may still be under way to its slabs: they are free in the disk's next life.
                lock(&to.disk.log).snapshot_failed();
            } else {
                lock(&to.disk.log).snapshot_failed();
                let mut alloc = lock(&self.alloc);
                slabs.into_iter().for_each(|slab| alloc.free_metadata_slab(slab));
            }
        }
        true
    }

    fn begin(&self, disk: Arc<CacheDisk>) -> Option<Growing> {
        if !disk.takes_metadata() {
            return None;
        }
        let number = disk.identity.number;
        // With the gate closed, the records of one change all lie before the snapshot or all after it.
        let _gate = write(&self.gate);
        let begun = lock(&disk.log).begin_snapshot(&mut || self.metadata_slab(number));
        let stream = match begun {
            Ok(stream) => stream,
            Err(unused) => {
                unused.into_iter().for_each(|slab| lock(&self.alloc).return_slab(slab));
                return None;
            }
        };
        let (head, slabs) = (stream.head(), self.slabs_of(number));
        Some(Growing { disk, slabs, stream, head, is_whole: true })
    }

    fn put(&self, to: &mut Growing, record: &Record) {
        to.is_whole = to.is_whole && to.stream.push(record, &mut || self.slab_for(&to.disk)).is_ok();
    }

    /// Returns the next slab of a snapshot, or `None` if the disk has left: its slabs belong to its next life.
    fn slab_for(&self, disk: &Arc<CacheDisk>) -> Option<(SlabId, u64)> {
        if self.is_member(disk) { self.metadata_slab(disk.identity.number) } else { None }
    }

    async fn write_out(&self, shard: &Shard, to: &mut Growing) {
        let end = self.write_sealed(shard, &to.disk, to.stream.take_sealed()).await;
        if let Err(error) = &end
            && error.kind() == io::ErrorKind::TimedOut
        {
            // It may still reach its place, which must have no other use by then.
            to.disk.judge(|health| health.set_failed(format!("its snapshot could not be written: {error}")));
        }
        to.is_whole &= end.is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::SlabRange;
    use crate::entry::{Entry, Extent};
    use crate::key::KeyHash;
    use crate::label::SLABS_AT_BYTES;

    /// A log was reckoned by an equal part of all blocks for each disk, a snapshot by the disk's part of the capacity.
    #[test]
    fn a_log_is_long_from_twice_the_snapshot_of_its_own_disk_on() {
        let engine = Engine::of_a_test();
        let mut first = 0;
        for (disk, count) in [(0, 200), (1, 20), (2, 2000)] {
            engine.add_slabs(SlabRange { first: SlabId(first), count, disk, offset_bytes: SLABS_AT_BYTES });
            first += count;
        }
        // The first disk is full, the second too; the third is new, and empty.
        let mut number = 0_u64;
        for slab in 0..220 {
            for slot in 0..2048 {
                let extent = Extent { slab: SlabId(slab), offset_units: slot, len_bytes: 500 };
                lock(&engine.alloc).claim(&extent).unwrap();
                let hash = KeyHash::of(&number.to_le_bytes(), 1);
                assert!(engine.index.restore(hash, Entry { extent, checksum: 0, tick: 0 }).is_none());
                number += 1;
            }
        }
        let records = |slabs: u64| slabs * 2048 * MAX_RECORD_BYTES as u64;
        let wanted = [records(200), records(20), 0];
        for (disk, wanted) in (0..).zip(wanted) {
            assert_eq!(engine.snapshot_bytes(disk), wanted, "disk {disk}");
            assert_eq!(engine.long_log_bytes(disk), (2 * wanted).max(2 << 20), "disk {disk}");
        }
        assert_eq!(engine.slabs_needed(0).for_snapshot, 11, "9.77 slabs, and one for the log");
    }
}
