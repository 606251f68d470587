//! The mover copies blocks from one place to another, at a bounded rate.
//!
//! # Why
//! Three reasons to move blocks: the sizes of blocks have changed and the free space is in slabs of the wrong size
//! (evacuation); a disk is to be removed; a new disk is empty while the others are full (rebalancing).
//!
//! # How it works
//! The allocator names the slabs to be emptied, or the fullest disk, and a pass over the index finds their entries.
//! Each block is read, verified and written elsewhere; then the index is pointed there, if the block has not changed
//! meanwhile. The old place is freed like any other. All of this is in class `cache.evacuate`, and limited by
//! `move_bytes_per_s` if set. During an evacuation, a block that fits nowhere else is evicted. The blocks of a disk to
//! be removed first wait for the room that eviction and the next checkpoint make: the keeper does both after each pass.
//! While no disk takes blocks, because the others hang or have failed, nothing is moved or evicted.
//!
//! # Limits
//! One pass over the index for each batch of slabs. A crash in the middle costs only the copies made.
//!
//! # Example
//! A cache full of 8 KiB blocks gets 64 KiB ones: no free slab, 5 % free slots of 8 KiB. The emptiest slabs, say 40 %
//! full, are emptied into the free slots of the others: 13 MB of copies for each 32 MiB slab.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures_channel::oneshot;
use plimsoll::Shard;

use crate::alloc::{DiskLoad, NoSpace, Survey};
use crate::disk::CacheDisk;
use crate::engine::{Engine, add};
use crate::entry::{Entry, Extent, SlabId};
use crate::index::{Cursor, PASS_ENTRIES, Verdict};
use crate::key::KeyHash;
use crate::race::{all, hold_back, in_time, yield_now};
use crate::stats::{IoKind, MissReason};
use crate::sync::{lock, read};

/// Copies in flight at a time.
const COPIES: usize = 32;

/// Passes in a row that may leave the blocks of a disk to be removed in place, for want of room until the next
/// checkpoint, without moving any: a checkpoint that is under way at the end of a pass frees only a part.
const PATIENT_PASSES: u32 = 2;

/// Slabs emptied by one evacuation, as a part of all slabs.
const EVACUATED_PART: f64 = 0.01;

/// Rebalancing ends when the fill of no two disks differs by more than this part of their capacity, or when
/// the emptiest has no room.
const BALANCED: f64 = 0.05;

/// The blocks to move.
#[derive(Clone, Copy)]
enum Task {
    /// All blocks in slabs that are being emptied.
    Evacuate,
    /// `bytes` bytes from the fullest disk to the emptiest.
    Balance { from: u16, to: u16, bytes: u64 },
}

impl Engine {
    /// Starts to move blocks, if there is reason to and no move is under way.
    pub(crate) async fn start_mover(self: &Arc<Engine>, shard: &Shard) {
        if self.to_keeper.is_stopping() {
            return;
        }
        // A run that is under way takes these slabs, too.
        for disk in self.all_disks().iter().filter(|disk| disk.is_removing()) {
            while lock(&self.alloc).evacuate_some(disk.identity.number) {
                yield_now().await;
            }
        }
        let Some(run) = self.upkeep.moves.chore.start() else { return };
        let Some(task) = self.next_task().await else { return };
        let (engine, own) = (Arc::clone(self), shard.clone());
        let work = async move {
            engine.carry_out(&own, task).await;
            drop(run);
            engine.to_keeper.wake();
        };
        shard.spawn(work).detach();
    }

    async fn next_task(&self) -> Option<Task> {
        if !self.loads().iter().any(|load| load.is_writable) {
            return None;
        }
        if self.upkeep.moves.is_starved.swap(false, Relaxed) && lock(&self.alloc).evacuating_bytes() == 0 {
            let mut survey = Survey::default();
            while lock(&self.alloc).survey(&mut survey) {
                yield_now().await;
            }
            let mut alloc = lock(&self.alloc);
            let slabs: u32 = self.all_disks().iter().map(|disk| alloc.slabs(disk.identity.number)).sum();
            alloc.choose_victims(&mut survey, ((f64::from(slabs) * EVACUATED_PART) as u32).max(2));
        }
        if lock(&self.alloc).evacuating_bytes() > 0 {
            return Some(Task::Evacuate);
        }
        if !self.upkeep.moves.is_rebalancing.load(Relaxed) {
            return None;
        }
        let task = self.balance();
        if task.is_none() {
            self.upkeep.moves.is_rebalancing.store(false, Relaxed);
        }
        task
    }

    fn balance(&self) -> Option<Task> {
        let alloc = lock(&self.alloc);
        let slab_bytes = f64::from(self.identity.geometry.slab_bytes);
        let fill = |number: u16| {
            let size = f64::from(alloc.slabs(number)) * slab_bytes;
            (alloc.allocated_bytes(number) as f64 / size.max(1.0), size)
        };

        let disks: Vec<_> = self.all_disks().into_iter().filter(|disk| disk.takes_writes()).collect();
        let fills: Vec<_> = disks.iter().map(|disk| (disk.identity.number, fill(disk.identity.number))).collect();
        let by_fill = |a: &&(u16, (f64, f64)), b: &&(u16, (f64, f64))| a.1.0.total_cmp(&b.1.0);
        let (to, (least, to_size)) = *fills.iter().min_by(by_fill)?;
        let (from, (most, from_size)) = *fills.iter().max_by(by_fill)?;

        if most - least < BALANCED {
            return None;
        }

        // Enough to make both equally full, but at most a twentieth of the fuller disk: then both are measured again.
        let gap = (most - least) / (1.0 / to_size + 1.0 / from_size);
        Some(Task::Balance { from, to, bytes: gap.min(from_size / 20.0) as u64 })
    }

    async fn carry_out(self: &Arc<Engine>, shard: &Shard, task: Task) {
        let mut cursor = Cursor::default();
        let (mut moved_bytes, mut has_room) = (0, true);
        // Whether blocks of a disk to be removed wait for a checkpoint, and whether any have been moved.
        let (mut waits, mut has_left) = (false, false);
        let begin_ns = shard.now_ns();
        while !cursor.is_done() && has_room && !self.to_keeper.is_stopping() {
            let lot = self.find(&mut cursor, task, moved_bytes, waits);
            for part in lot.chunks(COPIES) {
                let copies = part.iter().map(|(hash, entry)| self.relocate(shard, *hash, *entry, task));
                for (end, (_, entry)) in all(copies).await.into_iter().zip(part) {
                    match (task, end) {
                        (_, Ok(bytes)) => {
                            moved_bytes += bytes;
                            has_left |= bytes > 0 && self.is_leaving(entry.extent.slab);
                        }
                        (_, Err(NoSpace::NoDisk)) | (Task::Balance { .. }, Err(_)) => has_room = false,
                        (Task::Evacuate, Err(_)) => waits = true,
                    }
                }
                if !has_room {
                    break;
                }
                if let Some(bytes_per_s) = self.config.move_bytes_per_s {
                    let goes_on = || !self.to_keeper.is_stopping();
                    hold_back(shard, begin_ns, moved_bytes, bytes_per_s, goes_on).await;
                }
            }
            yield_now().await;
            if matches!(task, Task::Balance { bytes, .. } if moved_bytes >= bytes) {
                break;
            }
        }
        match task {
            // No disk takes blocks, and one that hangs would hold up a checkpoint.
            Task::Evacuate if !has_room => {}
            // Emptied slabs are reusable only after a checkpoint. Request one; do not wait for it.
            Task::Evacuate => {
                self.upkeep.moves.note_pass(waits && !has_left);
                drop(self.to_keeper.request_checkpoint());
            }
            // Most of the emptiest disk may be kept for its metadata: further passes would read for ever.
            Task::Balance { .. } if moved_bytes == 0 && !has_room => {
                self.upkeep.moves.is_rebalancing.store(false, Relaxed);
            }
            Task::Balance { .. } => {}
        }
    }

    /// Returns the next entries to be moved; if `waits`, those of disks to be removed are left in place.
    fn find(&self, cursor: &mut Cursor, task: Task, moved_bytes: u64, waits: bool) -> Vec<(KeyHash, Entry)> {
        let mut lot = Vec::new();
        let mut lot_bytes = moved_bytes;
        // Copied once: no lock is taken for each entry.
        let (mut evacuating, slabs_of_fullest) = match task {
            Task::Evacuate => (lock(&self.alloc).evacuating_slabs(), None),
            Task::Balance { from, .. } => (Vec::new(), Some(self.slabs_of(from))),
        };

        if waits {
            evacuating.retain(|slab| !self.is_leaving(*slab));
        }

        self.index.sweep(cursor, PASS_ENTRIES, |hash, entry| {
            let is_wanted = match task {
                Task::Evacuate => evacuating.binary_search(&entry.extent.slab).is_ok(),
                Task::Balance { bytes, .. } => {
                    lot_bytes < bytes && slabs_of_fullest.as_ref().is_some_and(|slabs| slabs.has(entry.extent.slab))
                }
            };
            if is_wanted {
                lot_bytes += u64::from(entry.extent.len_bytes);
                lot.push((hash, *entry));
            }
            Verdict::Keep
        });
        lot
    }

    /// Returns whether a slab is on a disk to be removed.
    fn is_leaving(&self, slab: SlabId) -> bool {
        let disk = self.place(slab).and_then(|(disk, _)| self.disk(disk));
        disk.is_some_and(|disk| disk.is_removing())
    }

    /// Moves one block. Returns the bytes moved.
    ///
    /// # Errors
    /// When there is no room for the block, which stays where it is: for good, or (evacuation) until the next
    /// checkpoint, or until a disk takes blocks again.
    async fn relocate(
        self: &Arc<Engine>,
        shard: &Shard,
        hash: KeyHash,
        entry: Entry,
        task: Task,
    ) -> Result<u64, NoSpace> {
        let class = self.classes.evacuate;
        if let Some((disk, _)) = self.locate(&entry.extent) {
            disk.wait_for_turn(shard, entry.extent.len_bytes.into()).await;
        }
        let stored = self.read_stored(shard, &entry, class, IoKind::EvacuateRead);
        let buffer = match in_time(shard, stored).await.unwrap_or(Err(MissReason::Deadline)) {
            Ok(buffer) => buffer,
            Err(reason) => {
                if self.is_lost(&entry, reason) {
                    self.forget(&hash, &entry);
                }
                return Ok(0);
            }
        };

        let gate = read(&self.gate);
        let to = match self.new_place(&entry, task) {
            Ok(to) => to,
            Err(why) => {
                drop(gate);
                // The next pass may find some.
                if why == NoSpace::NotFoundYet {
                    return Ok(0);
                }
                // The keeper evicts before the checkpoint after this pass, and the oldest blocks rather than this one.
                let waits = matches!(why, NoSpace::UntilCheckpoint | NoSpace::Full)
                    && self.is_leaving(entry.extent.slab)
                    && self.upkeep.moves.is_patient(PATIENT_PASSES);
                if waits || why == NoSpace::NoDisk || matches!(task, Task::Balance { .. }) {
                    return Err(why);
                }
                // No room anywhere: evict the block.
                if self.forget(&hash, &entry) {
                    add(&self.counters.evictions, 1);
                    add(&self.counters.evicted_bytes, u64::from(entry.extent.len_bytes));
                }
                return Ok(0);
            }
        };
        let place = self.locate(&to).and_then(|(disk, offset)| Some((disk.begin_change().ok()?, disk, offset)));
        let Some((change, disk, offset)) = place else {
            lock(&self.alloc).free(&to);
            return Ok(0);
        };
        drop(gate);

        let (answer, answered) = oneshot::channel();
        let (engine, written) = (Arc::clone(self), Arc::clone(&disk));
        let done = move |result: io::Result<()>| {
            let is_moved = engine.point_to(&hash, &entry, to, &written, result.is_ok());
            // The mover may have given up waiting.
            let _ = answer.send(is_moved);
        };
        disk.submit_write(class, IoKind::EvacuateWrite, (change, offset), buffer, done);
        // Do not wait for a write that hangs: other disks go on. If it ends after all, `done` still moves the block.
        let is_moved = in_time(shard, answered).await.is_some_and(|end| end.unwrap_or(false));
        Ok(if is_moved { u64::from(entry.extent.len_bytes) } else { 0 })
    }

    fn new_place(&self, entry: &Entry, task: Task) -> Result<Extent, NoSpace> {
        let from = self.place(entry.extent.slab).map(|(disk, _)| disk);
        let (not_on, only) = match task {
            Task::Evacuate => (None, None),
            Task::Balance { to, .. } => (from, Some(to)),
        };
        let mut loads = self.loads();
        let is_wanted = |load: &DiskLoad| only.is_none_or(|only| load.disk == only);
        loads.iter_mut().for_each(|load| load.is_writable &= is_wanted(load));
        lock(&self.alloc).allocate_elsewhere(entry.extent.len_bytes, not_on, &loads)
    }

    /// Points the index to the new place of a block, if it was written and the block has not changed. Frees the other
    /// place.
    fn point_to(&self, hash: &KeyHash, from: &Entry, to: Extent, disk: &CacheDisk, is_written: bool) -> bool {
        let _gate = read(&self.gate);
        let note = |old, new| self.note_put(hash, Some(old), &new);
        let is_moved = is_written && !disk.has_parted() && self.index.relocate(hash, from, to, note);

        lock(&self.alloc).free(if is_moved { &from.extent } else { &to });
        add(&self.counters.moves, u64::from(is_moved));
        is_moved
    }
}
