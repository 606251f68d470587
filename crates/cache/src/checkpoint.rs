//! Checkpoints: everything until now becomes durable, on all disks or on none, while hits and inserts go on.
//!
//! # Why
//! A crash may cost what came after the last checkpoint and nothing before it; and space that was freed may be written
//! again only when no recovery can ask for what lay there.
//!
//! # How it works
//! 1. *Cut*: the gate is closed for some microseconds; what was freed until now is noted, and each log gets a commit
//!    record. Whatever happens later belongs to the next checkpoint.
//! 2. Each disk writes its log up to the cut, and is flushed: its blocks and its log are durable.
//! 3. Each disk writes its superblock with the new generation, and is flushed. The first of them that is durable makes the
//!    checkpoint: recovery takes the highest generation that it finds, and every log has that commit.
//! 4. Freed space may be used again.
//!
//! Nothing but the cut holds a lock, and the cut does no I/O.
//!
//! A disk on which 2. fails is out of the cache from then on, and the checkpoint begins anew without it: the other logs must
//! have first what it does not know (`away`). One on which 3. fails is out too, but has the commit in its log.
//!
//! # Limits
//! One at a time. Two flushes a disk.
//!
//! # Example
//! A crash between the superblocks of disk 0 (generation 8) and disk 1 (still 7): recovery wants 8, and finds commit 8 in
//! the log of disk 1 too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::Shard;
use plimsoll::buffer::AlignedBuf;

use crate::disk::{CacheDisk, lock};
use crate::engine::{Engine, add, read, write};
use crate::format::{self, Member, MemberState, RangeRecord, Record, StreamHead, Superblock};
use crate::log::Sealed;
use crate::race::all;
use crate::stats::{DiskHealth, IoKind};

impl Engine {
    /// Makes everything until now durable. Its generation.
    ///
    /// # Errors
    /// When no disk took it.
    pub(crate) async fn checkpoint(self: &Arc<Engine>, shard: &Shard) -> io::Result<u64> {
        let begin_ns = shard.now_ns();
        // Each attempt but the last costs a disk.
        loop {
            let generation = self.attempts.fetch_add(1, Relaxed) + 1;
            let disks: Vec<_> = self.all_disks().into_iter().filter(|disk| disk.takes_metadata()).collect();
            if disks.is_empty() {
                return Err(io::Error::other("no disk of the cache could be written"));
            }
            if !self.attempt(shard, &disks, generation).await {
                lock(&self.alloc).abort_checkpoint();
                self.part_with_disks().await;
                continue;
            }
            add(&self.counters.checkpoints, 1);
            self.counters.last_checkpoint_ns.store(shard.now_ns().saturating_sub(begin_ns), Relaxed);
            return Ok(generation);
        }
    }

    /// Whether the checkpoint was made on the disks that are left. If a disk does not take its log, it is not: what had
    /// left that disk must be in the logs of the others first.
    async fn attempt(self: &Arc<Engine>, shard: &Shard, disks: &[Arc<CacheDisk>], generation: u64) -> bool {
        let heads = self.cut(disks, generation);
        let flushed = all(disks.iter().map(|disk| self.write_log_and_flush(shard, disk))).await;
        if flushed.contains(&false) {
            return false;
        }
        for member in lock(&self.members).iter_mut() {
            if disks.iter().any(|disk| disk.identity.guid == member.guid) {
                member.generation = generation;
            }
        }
        let commits = disks.iter().zip(heads).map(|(disk, head)| self.commit(shard, disk, generation, head));
        let commits = all(commits).await;
        if !commits.contains(&true) {
            return false;
        }
        self.generation.store(generation, Relaxed);
        self.release(shard, disks.iter().zip(commits).filter(|(_, is_done)| *is_done).map(|(disk, _)| disk));
        true
    }

    /// Draws the line through allocator and logs; where each disk's streams begin with this checkpoint.
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

    /// Whether everything is durable that the disk's log says.
    async fn write_log_and_flush(&self, shard: &Shard, disk: &Arc<CacheDisk>) -> bool {
        if lock(&disk.log).is_broken() {
            disk.judge(|health| health.set_failed("it has no free slab left for its log".to_owned()));
            return false;
        }
        let is_written = self.write_log(shard, disk).await.is_ok();
        is_written && self.flush(shard, disk).await
    }

    async fn flush(&self, shard: &Shard, disk: &Arc<CacheDisk>) -> bool {
        let end = disk.flush(shard, self.classes.checkpoint).await;
        self.judge_metadata(disk, &end)
    }

    /// Writes the chunks that are ready.
    ///
    /// # Errors
    /// When one could not be written: then the disk is out.
    pub(crate) async fn write_log(&self, shard: &Shard, disk: &Arc<CacheDisk>) -> io::Result<()> {
        let sealed = lock(&disk.log).take_sealed();
        let end = self.write_sealed(shard, disk, sealed).await;
        self.judge_metadata(disk, &end);
        end
    }

    pub(crate) async fn write_sealed(&self, shard: &Shard, disk: &CacheDisk, sealed: Vec<Sealed>) -> io::Result<()> {
        for Sealed { offset, bytes } in sealed {
            let mut buffer = AlignedBuf::new(bytes.len())?;
            buffer.copy_from_slice(&bytes);
            disk.write(shard, self.classes.checkpoint, IoKind::MetadataWrite, offset, buffer).await?;
        }
        Ok(())
    }

    /// A disk that does not take its metadata is of no use: what it has cannot be trusted after a crash.
    ///
    /// One that only takes no writes still serves what it has.
    fn judge_metadata<T>(&self, disk: &CacheDisk, end: &io::Result<T>) -> bool {
        if let Err(error) = end
            && disk.health() != DiskHealth::ReadOnly
        {
            let why = format!("its log or superblock could not be written: {error}");
            disk.judge(|health| health.set_failed(why));
        }
        end.is_ok()
    }

    async fn commit(
        &self,
        shard: &Shard,
        disk: &Arc<CacheDisk>,
        generation: u64,
        (snapshot, log): (Option<StreamHead>, StreamHead),
    ) -> bool {
        let block = self.superblock(disk, generation, snapshot, log);
        let end = self.write_superblock(shard, disk, &block).await;
        self.judge_metadata(disk, &end) && self.flush(shard, disk).await
    }

    pub(crate) async fn write_superblock(&self, shard: &Shard, disk: &CacheDisk, block: &Superblock) -> io::Result<()> {
        let bytes = format::encode(block).map_err(|error| io::Error::other(error.to_string()))?;
        let mut buffer = AlignedBuf::new(bytes.len())?;
        buffer.copy_from_slice(&bytes);
        // Never over the newest one: should this one be torn, that one still counts.
        let slot = 1 - disk.label_slot.load(Relaxed).min(1);
        let offset = format::SLOT_OFFSETS[slot];
        disk.write(shard, self.classes.checkpoint, IoKind::MetadataWrite, offset, buffer).await?;
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
        let mut next_slab = self.next_slab.load(Relaxed);
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

    /// All disks of the cache, as the superblocks name them.
    fn members(&self) -> Vec<Member> {
        let mut members = lock(&self.members).clone();
        for member in &mut members {
            member.state = match self.disk(member.disk) {
                Some(disk) if disk.is_removing() => MemberState::Removing,
                Some(disk) if disk.takes_metadata() => MemberState::Active,
                _ => MemberState::Away,
            };
        }
        members
    }

    /// The checkpoint is durable: what was freed before it may be used.
    fn release<'a>(self: &Arc<Engine>, shard: &Shard, disks: impl Iterator<Item = &'a Arc<CacheDisk>>) {
        let unused: Vec<_> = disks.flat_map(|disk| lock(&disk.log).checkpointed()).collect();
        let mut alloc = lock(&self.alloc);
        let empty = alloc.finish_checkpoint();
        for slab in unused {
            alloc.free_metadata_slab(slab);
        }
        drop(alloc);
        self.start_discards(shard, empty);
    }
}
