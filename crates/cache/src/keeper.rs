//! The keeper: the task that makes timely checkpoints, keeps space free, and deals with failed disks.
//!
//! # Why
//! Eviction, checkpoints and changes of the disks touch the same state. One task does them one after another, so they
//! need no protection from each other. Long work (moving blocks, writing snapshots) and work that waits for one disk
//! (its log, its return) has tasks of its own. A checkpoint may wait 10 s for a disk that hangs, so the disks are
//! compared beside it (`watch`): a disk on which no operation has ended for a second hangs and gets no work; one on
//! which no write has ended gets no new blocks.
//!
//! # How it works
//! The keeper sleeps until the next checkpoint is due or a task wakes it by a [request](crate::requests): for space,
//! for a log chunk that is ready, for a checkpoint. Each time it evicts what exceeds the target (`space`). If too
//! little of the free space is usable at once, or an insert found none, it makes the checkpoint early.
//!
//! # Limits
//! Nothing is evicted while a checkpoint is written: the target of free space has to last that long.
//!
//! # Example
//! 5 % of 1 TiB is 54 GB. At 2 GB/s of inserts that lasts 27 s, so a checkpoint is made after about 20 s although the
//! interval is 60 s.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_channel::oneshot;
use plimsoll::Shard;
use plimsoll::buffer::AlignedBuf;

use crate::disk::CacheDisk;
use crate::endurance::Endurance;
use crate::engine::Engine;
use crate::format::{PROBE_OFFSET, SLOT_BYTES, SLOT_OFFSETS};
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::race::{DEADLINE, race};
use crate::requests::Requests;
use crate::stats::IoKind;
use crate::sync::{lock, write};

/// Longest sleep of the keeper, in nanoseconds: it also looks at disks and space when no task rings.
const ROUND_NS: u64 = 200_000_000;

/// Rounds without progress after which a disk is probed. Perhaps its operations only wait in the scheduler, because
/// their classes are limited; the probe's is not.
const PROBED_AFTER_ROUNDS: u64 = HANGS_AFTER_ROUNDS - 1;

/// Rounds without progress after which a disk hangs: a second, longer than sound devices pause.
const HANGS_AFTER_ROUNDS: u64 = 1_000_000_000 / ROUND_NS;

/// Rounds between two tests of a disk that hangs.
const DOUBT_AFTER_ROUNDS: u64 = DEADLINE.as_nanos() as u64 / ROUND_NS;

/// Keeps `engine` in order until it is requested to stop, then makes a last checkpoint.
pub(crate) fn keep(engine: Arc<Engine>, shard: Shard) -> impl Future<Output = ()> {
    let post = Post(engine);
    async move {
        let mut closing = None;
        let keeping = async { closing = keep_in_order(&post.0, &shard).await };
        // The watch has no end of its own.
        let _: Option<()> = race(watch(&post.0, &shard), keeping).await;
        // Before the answer, after which the caller may open the disks again: the engine has their locks.
        drop(post);
        if let Some((closer, held)) = closing {
            // The caller may have dropped its future.
            let _ = closer.send(held);
        }
    }
}

/// The caller that waits for the end, and the disks on which operations have not ended.
type Closing = (oneshot::Sender<Vec<PathBuf>>, Vec<PathBuf>);

/// The keeper's hold of the engine. It ends with the keeper, also if the shard drops a keeper that has never run.
struct Post(Arc<Engine>);

impl Drop for Post {
    fn drop(&mut self) {
        self.0.to_keeper.close();
    }
}

async fn keep_in_order(engine: &Arc<Engine>, shard: &Shard) -> Option<Closing> {
    let interval_ns = u64::try_from(engine.config.checkpoint_interval.as_nanos()).unwrap_or(u64::MAX);
    let mut due_ns = shard.now_ns().saturating_add(interval_ns);
    let mut cursor = Cursor::default();
    let budget = engine.config.write_bytes_per_day;
    let mut endurance = budget.map(|bytes| Endurance::new(bytes, shard.now_ns(), engine.written_bytes()));
    engine.shorten_inherited_logs(shard).await;
    loop {
        let wake_ns = due_ns.min(shard.now_ns().saturating_add(ROUND_NS));
        // Either way there may be work.
        let _ = race(engine.to_keeper.requested(), shard.sleep_until(wake_ns)).await;
        let Requests { needs_space, has_log, is_stopping, waiters, closer } = engine.to_keeper.take();
        if has_log {
            for disk in engine.all_disks().iter().filter(|disk| !disk.has_parted()) {
                // If the disk does not take it, its log writer records that.
                drop(engine.start_log(shard, disk));
            }
        }
        if let Some(endurance) = &mut endurance {
            let is_spent = endurance.is_spent(shard.now_ns(), engine.written_bytes());
            engine.upkeep.intake.is_budget_spent.store(is_spent, Relaxed);
        }
        engine.look_after_disks(shard).await;
        engine.evict(&mut cursor).await;

        let is_due = shard.now_ns() >= due_ns || is_stopping || !waiters.is_empty();
        if is_due || engine.is_short_of_space(needs_space) {
            let end = engine.checkpoint(shard).await.map_err(|error| error.to_string());
            for waiter in waiters {
                // The caller may have dropped its future.
                let _ = waiter.send(end.clone());
            }
            due_ns = shard.now_ns().saturating_add(interval_ns);
            engine.start_snapshot(shard, Engine::has_long_log);
        }
        engine.start_snapshot(shard, Engine::is_short_of_slabs);

        engine.start_mover(shard).await;
        if is_stopping {
            debug_assert_eq!(engine.find_leak(), None, "the allocator and the index disagree");
            engine.end_writes();
            let closing = match closer.filter(|closer| !closer.is_canceled()) {
                Some(closer) => Some((closer, engine.settle(shard).await)),
                None => None,
            };
            engine.let_disks_go();
            return closing;
        }
    }
}

/// Judges the disks, whatever the keeper waits for.
async fn watch(engine: &Engine, shard: &Shard) {
    let mut standstills: HashMap<u16, Standstills> = HashMap::new();
    loop {
        shard.sleep(Duration::from_nanos(ROUND_NS)).await;
        engine.compare_disks(shard.now_ns());
        for disk in engine.all_disks() {
            engine.spare_log(&disk);
            let seen = standstills.entry(disk.identity.number).or_default();
            // In rounds, so that a jump of the clock counts as one round.
            let rounds = seen.of_all.count_round(disk.progress(IoKind::ALL.map(|(kind, _)| kind)));
            let of_writes = seen.of_writes.count_round(disk.progress(IoKind::WRITES));
            if rounds == PROBED_AFTER_ROUNDS && disk.takes_reads() {
                engine.probe(shard, &disk);
            }
            if of_writes == PROBED_AFTER_ROUNDS && disk.takes_metadata() {
                engine.probe_writes(shard, &disk);
            }
            disk.set_hanging(rounds >= HANGS_AFTER_ROUNDS);
            disk.set_writes_hanging(of_writes >= HANGS_AFTER_ROUNDS);

            // A disk that has parted gets no more writes, and may still be read.
            let is_doubtful = |rounds: u64| rounds > 0 && rounds.is_multiple_of(DOUBT_AFTER_ROUNDS);
            if is_doubtful(rounds) || is_doubtful(of_writes) && !disk.has_parted() {
                engine.doubt(&disk);
            }
        }
    }
}

/// The standstills of a disk.
#[derive(Default)]
struct Standstills {
    of_all: Standstill,
    /// Writes may hang where reads end.
    of_writes: Standstill,
}

/// How long a disk has had operations in flight without the end of one.
#[derive(Default)]
struct Standstill {
    ended: u64,
    rounds: u64,
}

impl Standstill {
    /// Counts a round, in which `ended` operations in all have ended and `in_flight` are in flight. Returns the rounds
    /// without progress. Giving up an operation is no progress: a disk hangs until an operation ends.
    fn count_round(&mut self, (ended, in_flight): (u64, u64)) -> u64 {
        if ended != self.ended {
            *self = Standstill { ended, rounds: 0 };
        } else if in_flight > 0 || self.rounds >= HANGS_AFTER_ROUNDS {
            self.rounds += 1;
        } else {
            self.rounds = 0;
        }
        self.rounds
    }
}

impl Engine {
    /// Starts a read of a disk that may hang. Its end shows that the disk answers.
    fn probe(&self, shard: &Shard, disk: &Arc<CacheDisk>) {
        // Without memory, the checkpoint of `doubt` shows it.
        let Ok(buffer) = AlignedBuf::new(SLOT_BYTES) else { return };
        let (own, disk, class) = (shard.clone(), Arc::clone(disk), self.classes.checkpoint);
        let read = async move { _ = disk.read(&own, class, IoKind::MetadataRead, SLOT_OFFSETS[0], buffer).await };
        shard.spawn(read).detach();
    }

    /// Starts a write, which changes nothing, to a disk whose writes may hang. Its end shows that the disk takes
    /// writes.
    fn probe_writes(&self, shard: &Shard, disk: &Arc<CacheDisk>) {
        let Ok(zeros) = AlignedBuf::new(SLOT_BYTES) else { return };
        let (own, disk, class) = (shard.clone(), Arc::clone(disk), self.classes.checkpoint);
        let write = async move { _ = disk.write(&own, class, IoKind::MetadataWrite, PROBE_OFFSET, zeros).await };
        shard.spawn(write).detach();
    }

    /// Tests a disk that hangs. If it takes metadata, that is a checkpoint, which waits for it no longer than
    /// [`DEADLINE`]; perhaps its operations only wait for others' in the scheduler.
    fn doubt(&self, disk: &CacheDisk) {
        if disk.has_parted() {
            disk.judge(|health| health.set_failed("it has not answered for 10 s".to_owned()));
        } else {
            drop(self.to_keeper.request_checkpoint());
        }
    }

    /// Begins no more writes: the next opening would not know of them.
    fn end_writes(&self) {
        for disk in self.all_disks() {
            // With the gate closed no change is half done.
            let closed = write(&self.gate);
            disk.part();
            drop(closed);
            disk.give_up_all_writes();
        }
    }

    /// Gives up the disks, and with them their locks, although other tasks may hold the engine: one that sleeps holds no
    /// disk.
    fn let_disks_go(&self) {
        for disk in self.all_disks() {
            let why = disk.why();
            if !why.is_empty() {
                self.roster.note_loss(disk.identity.guid, why);
            }
            self.set_disk(disk.identity.number, None);
        }
    }

    /// Returns the bytes written to each present disk since it was opened, in all.
    fn written_bytes(&self) -> u64 {
        let kinds = [IoKind::InsertWrite, IoKind::EvacuateWrite, IoKind::MetadataWrite];
        let of_disk = |disk: &Arc<CacheDisk>| kinds.iter().map(|kind| disk.counters(*kind).look().bytes).sum::<u64>();
        self.all_disks().iter().map(of_disk).sum()
    }

    /// Acts on the health of the disks.
    async fn look_after_disks(self: &Arc<Engine>, shard: &Shard) {
        let disks = self.all_disks();
        for disk in &disks {
            lock(&self.alloc).set_writable(disk.identity.number, disk.takes_writes());
        }
        self.part_with_disks().await;
        self.start_readmission(shard);
        self.finish_removals(shard).await;
        self.set_reserves();
    }

    /// Compares the read latencies of the disks.
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

    /// Returns the bytes allocated and the bytes that blocks take, if they differ. Returns `None` also while an
    /// operation is in flight. Visits every entry.
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
