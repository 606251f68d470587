//! Checkpoints: make all changes until now durable, on all disks or on none, without stopping hits and inserts.
//!
//! # Why
//! A crash may undo changes after the last checkpoint, but none before it. And freed space may be written again only
//! when no recovery can need its old content.
//!
//! # How it works
//! 1. *Cut*: the gate is closed for some microseconds. Space freed until now belongs to this checkpoint, and each log
//!    gets a commit record. Later changes belong to the next checkpoint.
//! 2. Each disk writes its log up to the cut, and is flushed: its blocks and its log are durable.
//! 3. Each disk writes its superblock with the new generation, and is flushed. The first durable one completes the
//!    checkpoint: recovery takes the highest generation that it finds, and every log has that commit.
//! 4. Each disk writes the superblock once more, over the older one, and is flushed. If one copy is damaged later, or
//!    the disk lied about writing it, the other one keeps the older state from coming back.
//! 5. Freed space becomes reusable, and the callers that wait for the checkpoint get its number.
//!
//! Only the cut holds a lock, and it does no I/O.
//!
//! If step 2 fails on a disk, it leaves the cache and the checkpoint is made without it: it has missed a checkpoint, so
//! its metadata no longer counts, even if the commit lands in its log later: the superblocks of this checkpoint list it
//! as away. If step 3 fails on a disk, it leaves too, but has the commit in its log.
//!
//! # Limits
//! One checkpoint at a time. Three flushes a disk.
//!
//! # Example
//! A crash between the superblocks of disk 0 (generation 8) and disk 1 (still 7): recovery wants 8, and finds commit 8
//! in the log of disk 1 too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::Shard;

use crate::disk::CacheDisk;
use crate::engine::{Engine, add};
use crate::error::CacheError;
use crate::format::{self, Member, MemberState, RangeRecord, Record, StreamHead, Superblock};
use crate::race::{all, yield_now};
use crate::sync::{lock, read, write};

impl Engine {
    /// Makes all changes until now durable. Returns the generation.
    ///
    /// # Errors
    /// When no disk took the checkpoint.
    pub(crate) async fn checkpoint(self: &Arc<Engine>, shard: &Shard) -> io::Result<u64> {
        let begin_ns = shard.now_ns();
        let generation = self.upkeep.numbers.begin();
        if !self.attempt(shard, generation).await {
            return Err(io::Error::other("no disk of the cache could be written"));
        }
        add(&self.counters.checkpoints, 1);
        self.counters.last_checkpoint_ns.store(shard.now_ns().saturating_sub(begin_ns), Relaxed);
        Ok(generation)
    }

    /// Makes a checkpoint on the disks that take it. Returns whether at least one did.
    async fn attempt(self: &Arc<Engine>, shard: &Shard, generation: u64) -> bool {
        self.part_with_disks().await;
        let disks: Vec<_> = self.all_disks().into_iter().filter(|disk| !disk.has_parted()).collect();
        let heads = self.cut(&disks, generation);
        let flushed = all(disks.iter().map(|disk| self.write_log_and_flush(shard, disk))).await;
        self.part_with_disks().await;
        let disks: Vec<_> =
            disks.iter().zip(heads).zip(flushed).filter(|(_, is_done)| *is_done).map(|(pair, _)| pair).collect();

        let blocks: Vec<_> = disks
            .into_iter()
            .map(|(disk, (snapshot, log))| (disk, self.superblock(disk, generation, snapshot, log)))
            .collect();
        let commits = all(blocks.iter().map(|(disk, block)| self.commit(shard, disk, block))).await;
        if !commits.contains(&true) {
            while lock(&self.alloc).abort_some() {
                yield_now().await;
            }
            return false;
        }
        self.upkeep.numbers.complete(generation);

        let committed: Vec<_> =
            blocks.iter().zip(commits).filter(|(_, is_done)| *is_done).map(|(pair, _)| pair).collect();
        // A disk that does not take the second copy leaves the cache, but has the checkpoint.
        all(committed.iter().map(|(disk, block)| self.commit(shard, disk, block))).await;
        self.release(shard, committed.iter().map(|(disk, _)| *disk)).await;
        true
    }

    /// Cuts allocator and logs. Returns where each disk's snapshot and log begin with this checkpoint.
    fn cut(&self, disks: &[Arc<CacheDisk>], generation: u64) -> Vec<(Option<StreamHead>, StreamHead)> {
        let _closed = write(&self.gate);
        lock(&self.alloc).begin_checkpoint();
        let commit = Record::Commit { generation, now_tick: self.index.now_tick() };
        let mut heads = Vec::with_capacity(disks.len());
        for disk in disks {
            let mut log = lock(&disk.log);
            log.cut(&commit, &mut || self.metadata_slab(disk.identity.number));
            heads.push(log.heads());
        }
        heads
    }

    /// Writes the log and flushes the disk. Returns whether the log is durable.
    pub(crate) async fn write_log_and_flush(self: &Arc<Engine>, shard: &Shard, disk: &Arc<CacheDisk>) -> bool {
        if lock(&disk.log).is_short() {
            disk.judge(|health| health.set_failed("it has no free slab left for its log".to_owned()));
            return false;
        }
        self.start_log(shard, disk).await.unwrap_or(false) && self.flush(shard, disk).await
    }

    /// Writes the superblock. Returns whether it is durable.
    pub(crate) async fn commit(&self, shard: &Shard, disk: &Arc<CacheDisk>, block: &Superblock) -> bool {
        let end = self.write_superblock(shard, disk, block).await;
        self.judge_metadata(disk, &end) && self.flush(shard, disk).await
    }

    async fn write_superblock(&self, shard: &Shard, disk: &Arc<CacheDisk>, block: &Superblock) -> io::Result<()> {
        let bytes = format::encode(block).map_err(|error| io::Error::other(error.to_string()))?;
        // Never overwrites the newest one: if this write is torn, the newest one still counts.
        let slot = 1 - disk.label_slot.load(Relaxed).min(1);
        self.write_metadata(shard, disk, format::SLOT_OFFSETS[slot], &bytes).await?;
        disk.label_slot.store(slot, Relaxed);
        Ok(())
    }

    pub(crate) fn superblock(
        &self,
        disk: &CacheDisk,
        generation: u64,
        snapshot: Option<StreamHead>,
        log: StreamHead,
    ) -> Superblock {
        let number = disk.identity.number;
        let mut ranges = Vec::new();
        let mut next_slab = self.roster.next_slab();
        for range in read(&self.places).iter() {
            next_slab = next_slab.max(range.first.0 + range.count);
            if range.disk == number {
                let (first, count, offset_bytes) = (range.first, range.count, range.offset_bytes);
                ranges.push(RangeRecord { first, count, offset_bytes });
            }
        }

        let identity = &self.identity;
        Superblock {
            cache_guid: identity.guid,
            disk_guid: disk.identity.guid,
            disk: number,
            generation,
            key_seed: identity.key_seed,
            slab_bytes: identity.geometry.slab_bytes,
            sector_bytes: identity.geometry.sector_bytes,
            is_encrypted: self.cipher.is_some(),
            key_check: identity.key_check,
            ranges,
            next_slab,
            members: self.members(),
            snapshot,
            log,
            now_tick: self.index.now_tick(),
        }
    }

    /// Returns all members of the cache, for the superblocks.
    fn members(&self) -> Vec<Member> {
        let mut members = self.roster.members();
        for member in &mut members {
            member.state = match self.disk(member.disk) {
                None => MemberState::Away,
                // Also if it is being removed: its metadata is older than this checkpoint.
                Some(disk) if !disk.takes_metadata() || disk.has_parted() => MemberState::Away,
                Some(disk) if disk.is_removing() => MemberState::Removing,
                Some(_) => MemberState::Active,
            };
        }
        members
    }

    /// Releases the space freed before a durable checkpoint, in parts between which other tasks run.
    async fn release<'a>(self: &Arc<Engine>, shard: &Shard, disks: impl Iterator<Item = &'a Arc<CacheDisk>>) {
        let unused: Vec<_> = disks.flat_map(|disk| lock(&disk.log).checkpointed()).collect();
        let mut empty = Vec::new();
        while lock(&self.alloc).finish_some(&mut empty) {
            yield_now().await;
        }
        let mut alloc = lock(&self.alloc);
        for slab in unused {
            alloc.free_metadata_slab(slab);
        }
        drop(alloc);
        self.start_discards(shard, empty);
    }

    /// Waits for the keeper's next checkpoint. Returns its generation.
    pub(crate) async fn checkpoint_soon(&self) -> Result<u64, CacheError> {
        let answered = self.to_keeper.request_checkpoint().await;
        let stopped = || CacheError::Stopped("the cache has been closed".to_owned());
        answered.map_err(|_| stopped())?.map_err(|_| CacheError::AllFailed)
    }
}
