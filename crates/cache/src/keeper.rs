//! The keeper: one task that keeps a cache in order. Checkpoints in time, free space, disks that have failed.
//!
//! # Why
//! Eviction, checkpoints and the coming and going of disks change the same things; one after another they need no
//! protection from each other. What takes long (moving blocks, writing snapshots), and what waits for one disk alone (its
//! log, a disk that returns), has tasks of its own.
//!
//! # How it works
//! It sleeps until the next checkpoint is due or somebody rings the [`Bell`]: for space, for a log chunk that is to be
//! written, for a checkpoint. Each time it evicts what is too much (`space`); when little of the free space can be used
//! already, or an insert found nothing, the checkpoint is made at once.
//!
//! # Limits
//! While a checkpoint writes, nothing is evicted: the free space that the target asks for has to last that long.
//!
//! # Example
//! 5 % of 1 TiB is 54 GB: at 2 GB/s of inserts the space lasts 27 s, and a checkpoint is made after about 20 s though the
//! interval is 60 s.

use std::sync::Arc;

use plimsoll::Shard;

use crate::bell::Calls;
use crate::engine::Engine;
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::race::race;
use crate::sync::{lock, write};

/// How often the keeper looks round when nobody rings, in nanoseconds.
const ROUND_NS: u64 = 200_000_000;

/// Keeps `engine` in order until it is told to stop; the last checkpoint's end goes to whoever waits for one.
pub(crate) async fn keep(engine: Arc<Engine>, shard: Shard) {
    let interval_ns = u64::try_from(engine.config.checkpoint_interval.as_nanos()).unwrap_or(u64::MAX);
    let mut due_ns = shard.now_ns().saturating_add(interval_ns);
    let mut cursor = Cursor::default();
    loop {
        let wake_ns = due_ns.min(shard.now_ns().saturating_add(ROUND_NS));
        // Either way there may be something to do.
        let _ = race(engine.bell.rung(), shard.sleep_until(wake_ns)).await;
        let Calls { needs_space, has_log, is_stopping, waiters } = engine.bell.answer();
        if has_log {
            for disk in engine.all_disks().iter().filter(|disk| !disk.has_parted()) {
                // A disk that does not take it is out; its scribe says so.
                drop(engine.start_log(&shard, disk));
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
            debug_assert_eq!(engine.find_leak(), None, "the allocator and the index disagree");
            return;
        }
    }
}

impl Engine {
    /// Does what follows from the health of the disks.
    async fn look_after_disks(self: &Arc<Engine>, shard: &Shard) {
        self.compare_disks(shard.now_ns());
        let disks = self.all_disks();
        for disk in &disks {
            lock(&self.alloc).set_writable(disk.identity.number, disk.takes_writes());
        }
        self.part_with_disks().await;
        self.start_readmission(shard);
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

    /// Bytes that the allocator holds to be taken, and those that blocks take, where these are not the same; `None` also
    /// while anything is on its way. Visits everything.
    pub(crate) fn find_leak(&self) -> Option<(u64, u64)> {
        let _closed = write(&self.gate);
        let disks = self.all_disks();
        if disks.iter().any(|disk| disk.is_busy()) {
            return None;
        }
        let mut named = 0;
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            self.index.sweep(&mut cursor, PASS_ENTRIES, |_, entry| {
                let is_there = self.place(entry.extent.slab).is_some();
                named += if is_there { lock(&self.alloc).space_of(&entry.extent) } else { 0 };
                Verdict::Keep
            });
        }
        let alloc = lock(&self.alloc);
        let taken = disks.iter().map(|disk| alloc.allocated_bytes(disk.identity.number)).sum();
        (taken != named).then_some((taken, named))
    }
}
