//! The keeper: one task that keeps a cache in order. Checkpoints in time, free space, disks that have failed.
//!
//! # Why
//! Eviction, checkpoints and the coming and going of disks change the same things; one after another they need no
//! protection from each other. What takes long (moving blocks, writing snapshots) has tasks of its own.
//!
//! # How it works
//! It sleeps until the next checkpoint is due or somebody rings the [`Bell`]: for space, for a log chunk that is to be
//! written, for a checkpoint. Eviction keeps `target_free_blocks_pct` free, counting what the next checkpoint will set
//! free; when little of that can be used already, or an insert found nothing, the checkpoint is made at once.
//!
//! # Limits
//! While a checkpoint writes, nothing is evicted: the free space that the target asks for has to last that long.
//!
//! # Example
//! 5 % of 1 TiB is 54 GB: at 2 GB/s of inserts the space lasts 27 s, and a checkpoint is made after about 20 s though the
//! interval is 60 s.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use futures_channel::oneshot;
use plimsoll::Shard;

use crate::disk::lock;
use crate::engine::{Engine, add, read};
use crate::index::{Cursor, Verdict};
use crate::race::{race, yield_now};
use crate::stats::DiskHealth;

/// How often the keeper looks round when nobody rings, in nanoseconds.
const ROUND_NS: u64 = 200_000_000;

/// Entries that are visited at a time before others get a turn.
const SWEEP_ENTRIES: usize = 4096;

/// Eviction frees so much more than it must, as a part of the capacity: a pass over the index is worth something.
const EVICTION_BATCH: f64 = 0.005;

/// The space that can be used at once should be this part of the free space that is wanted.
const LOW_SPACE: f64 = 0.4;

/// Who waits for a checkpoint.
type Waiters = Vec<oneshot::Sender<Result<u64, String>>>;

#[derive(Default)]
struct Calls {
    needs_space: bool,
    has_log: bool,
    is_stopping: bool,
    is_rung: bool,
    waiters: Waiters,
    waker: Option<Waker>,
}

/// What the keeper hears from others.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Calls>);

impl Bell {
    fn ring(&self, change: impl FnOnce(&mut Calls)) {
        let mut calls = lock(&self.0);
        change(&mut calls);
        calls.is_rung = true;
        let waker = calls.waker.take();
        drop(calls);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// An insert found no space.
    pub(crate) fn ring_for_space(&self) {
        if !lock(&self.0).needs_space {
            self.ring(|calls| calls.needs_space = true);
        }
    }

    /// A chunk of a log is ready.
    pub(crate) fn ring_for_log(&self) {
        if !lock(&self.0).has_log {
            self.ring(|calls| calls.has_log = true);
        }
    }

    /// Something has changed that the keeper should look at.
    pub(crate) fn ring_for_change(&self) {
        self.ring(|_| {});
    }

    /// A checkpoint that begins after this.
    pub(crate) fn ring_for_checkpoint(&self) -> oneshot::Receiver<Result<u64, String>> {
        let (answer, answered) = oneshot::channel();
        self.ring(|calls| calls.waiters.push(answer));
        answered
    }

    /// The last checkpoint, then no more.
    pub(crate) fn ring_to_stop(&self) {
        self.ring(|calls| calls.is_stopping = true);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.0).is_stopping
    }

    async fn rung(&self) {
        std::future::poll_fn(|context| {
            let mut calls = lock(&self.0);
            if std::mem::take(&mut calls.is_rung) {
                return Poll::Ready(());
            }
            calls.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Keeps `engine` in order until it is told to stop; the last checkpoint's end goes to whoever waits for one.
pub(crate) async fn keep(engine: Arc<Engine>, shard: Shard) {
    let interval_ns = u64::try_from(engine.config.checkpoint_interval.as_nanos()).unwrap_or(u64::MAX);
    let mut due_ns = shard.now_ns().saturating_add(interval_ns);
    let mut cursor = Cursor::default();
    loop {
        let wake_ns = due_ns.min(shard.now_ns().saturating_add(ROUND_NS));
        // Either way there may be something to do.
        let _ = race(engine.bell.rung(), shard.sleep_until(wake_ns)).await;
        let calls = {
            let mut calls = lock(&engine.bell.0);
            let (needs_space, has_log) = (std::mem::take(&mut calls.needs_space), std::mem::take(&mut calls.has_log));
            (needs_space, has_log, calls.is_stopping, std::mem::take(&mut calls.waiters))
        };
        let (needs_space, has_log, is_stopping, waiters) = calls;
        if has_log {
            for disk in engine.all_disks() {
                // A disk that does not take it is out; it says so itself.
                let _ = engine.write_log(&shard, &disk).await;
            }
        }
        engine.look_after_disks(&shard).await;
        engine.evict(&mut cursor).await;
        let is_due = shard.now_ns() >= due_ns || is_stopping || !waiters.is_empty();
        if is_due || engine.is_short_of_space(needs_space) {
            let end = engine.checkpoint(&shard).await.map_err(|error| error.to_string());
            for waiter in waiters {
                // The one who asked may be gone.
                let _ = waiter.send(end.clone());
            }
            due_ns = shard.now_ns().saturating_add(interval_ns);
            engine.start_snapshot(&shard);
        }
        engine.start_mover(&shard);
        if is_stopping {
            return;
        }
    }
}

impl Engine {
    /// Bytes that should be free.
    pub(crate) fn target_free_bytes(&self) -> u64 {
        (lock(&self.alloc).capacity_bytes() as f64 * self.config.target_free_blocks_pct / 100.0) as u64
    }

    /// Whether less is free, or will be, than should be.
    pub(crate) fn is_below_target(&self) -> bool {
        let target = self.target_free_bytes();
        let alloc = lock(&self.alloc);
        alloc.free_bytes() + alloc.freeing_bytes() < target
    }

    fn is_short_of_space(&self, was_refused: bool) -> bool {
        let target = self.target_free_bytes() as f64;
        let alloc = lock(&self.alloc);
        let (free, freeing) = (alloc.free_bytes() as f64, alloc.freeing_bytes());
        // Worth it only where it brings something.
        freeing as f64 >= target * 0.1 && (was_refused || free < target * LOW_SPACE)
    }

    /// Evicts what is oldest until as much is free as should be.
    async fn evict(&self, cursor: &mut Cursor) {
        let target = self.target_free_bytes();
        let (free, freeing, capacity) = {
            let alloc = lock(&self.alloc);
            (alloc.free_bytes(), alloc.freeing_bytes(), alloc.capacity_bytes())
        };
        let short = target.saturating_sub(free + freeing);
        let over = self.bytes_over_index_limit();
        if short == 0 && over == 0 {
            return;
        }
        let wanted = short.max(over) + (capacity as f64 * EVICTION_BATCH) as u64;
        let age = self.index.cutoff_age(wanted);
        let verdict = if over > 0 { Verdict::Drop } else { Verdict::Evict };
        let (mut freed, mut passes) = (0, 0);
        while freed < wanted && passes < 2 {
            freed += self.sweep_out(cursor, verdict, |engine, _, entry| engine.index.age(entry) >= age);
            if cursor.is_done() {
                *cursor = Cursor::default();
                passes += 1;
            }
            yield_now().await;
        }
    }

    /// Bytes of blocks that would have to go for the index to be as small as it should be.
    fn bytes_over_index_limit(&self) -> u64 {
        let Some(limit) = self.config.index_bytes else { return 0 };
        let has = self.index.memory_bytes();
        if has <= limit {
            return 0;
        }
        let part = (has - limit) as f64 / has as f64;
        (self.index.block_bytes() as f64 * part) as u64
    }

    /// Visits the next entries; those of which `is_out` says so are gone. Bytes freed.
    fn sweep_out(
        &self,
        cursor: &mut Cursor,
        verdict: Verdict,
        is_out: impl Fn(&Engine, &crate::KeyHash, &crate::entry::Entry) -> bool,
    ) -> u64 {
        let mut gone = Vec::new();
        let gate = read(&self.gate);
        self.index.sweep(cursor, SWEEP_ENTRIES, |hash, entry| {
            if !is_out(self, &hash, entry) {
                return Verdict::Keep;
            }
            self.note_remove(&hash, entry);
            gone.push(entry.extent);
            verdict
        });
        drop(gate);
        let mut alloc = lock(&self.alloc);
        gone.iter().for_each(|extent| alloc.free(extent));
        drop(alloc);
        let sector_bytes = self.identity.geometry.sector_bytes;
        let bytes = gone.iter().map(|extent| u64::from(extent.padded_bytes(sector_bytes))).sum();
        add(&self.counters.evictions, gone.len() as u64);
        add(&self.counters.evicted_bytes, bytes);
        bytes
    }

    /// Does what follows from the health of the disks.
    async fn look_after_disks(self: &Arc<Engine>, shard: &Shard) {
        self.compare_disks(shard.now_ns());
        let disks = self.all_disks();
        for disk in &disks {
            lock(&self.alloc).set_writable(disk.identity.number, disk.takes_writes());
        }
        self.part_with_disks().await;
        self.readmit_disks(shard).await;
        self.finish_removals(shard).await;
        self.set_reserves();
    }

    /// A disk is slow compared with the others.
    fn compare_disks(&self, now_ns: u64) {
        let disks = self.all_disks();
        let typical: Vec<_> = disks.iter().map(|disk| disk.judge(|health| health.typical())).collect();
        for (number, disk) in disks.iter().enumerate() {
            let is_peer = |other: usize| other != number && disks.get(other).is_some_and(|other| other.takes_reads());
            let peers: Vec<_> =
                (0..typical.len()).filter(|other| is_peer(*other)).map(|other| typical[other]).collect();
            let oldest = disk.oldest_read(now_ns);
            disk.judge(|health| health.judge(now_ns, &peers, oldest));
        }
    }

    /// Draws the consequences for disks that keep no log any more. The others' logs hear what had left them that they may
    /// not know of; a disk that does not even read is forgotten.
    pub(crate) async fn part_with_disks(&self) {
        for disk in self.all_disks().iter().filter(|disk| !disk.takes_metadata()) {
            if disk.parts_now() {
                self.away.begin();
                let left = lock(&disk.log).take_left();
                match left {
                    Some(hashes) => hashes.iter().for_each(|hash| self.note_change(hash)),
                    None => self.note_everywhere(&self.away.give_up()),
                }
            }
            if disk.health() == DiskHealth::Failed {
                self.forget_disk(disk.identity.number).await;
            }
        }
    }

    /// Forgets the blocks of a disk without touching it, and its slabs.
    async fn forget_disk(&self, number: u16) {
        if !read(&self.places).iter().any(|range| range.disk == number) {
            return;
        }
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            self.index.sweep(&mut cursor, SWEEP_ENTRIES, |_, entry| {
                let is_there = self.place(entry.extent.slab).is_some_and(|(disk, _)| disk == number);
                if is_there { Verdict::Drop } else { Verdict::Keep }
            });
            yield_now().await;
        }
        self.forget_slabs(number);
    }

    /// Free slabs that data never takes: room for logs and snapshots.
    pub(crate) fn set_reserves(&self) {
        let blocks = self.index.blocks();
        let slab_bytes = u64::from(self.identity.geometry.slab_bytes);
        let disks = self.all_disks();
        let mut alloc = lock(&self.alloc);
        let capacity = alloc.capacity_bytes().max(1);
        for disk in &disks {
            let number = disk.identity.number;
            let part = alloc.slabs(number) as f64 * slab_bytes as f64 / capacity as f64;
            // A snapshot, the next one, and a log as long as both; less what it has already.
            let wanted_bytes = blocks as f64 * part * 4.0 * crate::snapshot::RECORD_BYTES as f64;
            let wanted = (wanted_bytes / slab_bytes as f64).ceil() as u32 + 3;
            let most = alloc.slabs(number) / 4;
            let reserve = wanted.saturating_sub(alloc.metadata_slabs(number)).clamp(2, most.max(2));
            alloc.set_reserve(number, reserve);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bell_keeps_what_was_said() {
        let bell = Bell::default();
        bell.ring_for_space();
        let waits = bell.ring_for_checkpoint();
        let calls = lock(&bell.0);
        assert!(calls.needs_space && calls.is_rung && calls.waiters.len() == 1);
        drop(waits);
    }
}
