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
//! are also in the log, which is replayed after the snapshot.
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
    /// Starts to write snapshots if a log has become long and none is being written.
    pub(crate) fn start_snapshot(self: &Arc<Engine>, shard: &Shard) {
        let disks = self.all_disks();
        let parts = disks.len().max(1) as u64;
        let limit =
            (2 * MAX_RECORD_BYTES as u64 * self.index.blocks() / parts).max(MIN_LOG_BYTES.min(self.log_limit()));
        let slab_bytes = u64::from(self.identity.geometry.slab_bytes);

        let is_long = |disk: &Arc<CacheDisk>| {
            disk.takes_metadata() && {
                let log = lock(&disk.log);
                // Every opening begins a slab, so many short lives make a log long though it has few bytes.
                log.replay_bytes() > limit || log.replay_slabs() as u64 > limit.div_ceil(slab_bytes) + 3
            }
        };
        if self.bell.is_stopping() || !disks.iter().any(is_long) {
            return;
        }

        let Some(run) = self.upkeep.snapshots.start() else { return };
        let (engine, own) = (Arc::clone(self), shard.clone());
        let work = async move {
            engine.write_snapshots(&own).await;
            drop(run);
        };
        shard.spawn(work).detach();
    }

    /// Returns the size of two slabs: the shortest log worth a snapshot in small caches, whose slabs are small.
    fn log_limit(&self) -> u64 {
        2 * u64::from(self.identity.geometry.slab_bytes)
    }

    async fn write_snapshots(self: &Arc<Engine>, shard: &Shard) {
        let mut growing: Vec<Growing> = self.all_disks().into_iter().filter_map(|disk| self.begin(disk)).collect();
        let mut cursor = Cursor::default();
        while !cursor.is_done() && !self.bell.is_stopping() {
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
            // Stopping: what was begun is not used, and its slabs are free after the next opening.
            return;
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
            } else {
                lock(&to.disk.log).snapshot_failed();
                let mut alloc = lock(&self.alloc);
                slabs.into_iter().for_each(|slab| alloc.free_metadata_slab(slab));
            }
        }
    }

    fn begin(&self, disk: Arc<CacheDisk>) -> Option<Growing> {
        if !disk.takes_metadata() {
            return None;
        }
        let number = disk.identity.number;
        // With the gate closed, the records of one change all lie before the snapshot or all after it.
        let _gate = write(&self.gate);
        let stream = lock(&disk.log).begin_snapshot(&mut || self.metadata_slab(number)).ok()?;
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
        let end: io::Result<()> = self.write_sealed(shard, &to.disk, to.stream.take_sealed()).await;
        to.is_whole &= end.is_ok();
    }
}
