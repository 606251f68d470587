//! Adds, expands, removes and readmits disks while the cache runs.
//!
//! # Why
//! A cache of many disks is never complete for long, and no single disk is worth a stop.
//!
//! # How it works
//! | event | reaction |
//! |---|---|
//! | add | its superblock is written first, then a checkpoint lists it; new blocks go there at once |
//! | expand | more slabs at its end, then a checkpoint |
//! | remove | no new blocks; the mover empties its slabs; a checkpoint drops it as a member; its superblock is wiped |
//! | failed | its blocks are removed from the index; checkpoints go on without it |
//! | returned | a search every 5 s finds it, even if it hung at opening; it restarts empty |
//! | gone for good | forgotten by its number: a checkpoint drops it as a member |
//!
//! A disk that no longer takes its metadata parts (see `disks`). It restarts empty only when no operation on it is in
//! flight, so that no late write damages its new life, and only when its blocks are out of the index, so that none is
//! read from it. A device with a read that never ends stays out, but another device at its path is taken back. After a
//! write that never ends, neither is taken back: the write's end frees a place, which a new life may have used again by
//! then.
//!
//! # Limits
//! A disk that returns larger keeps the slabs it had; one that is too short for them stays out. Slab and disk numbers
//! are not reused. A disk that takes no writes is removed while the cache runs; if the cache ends before that is done
//! and the disk is there and sound at the next opening, it restarts empty, and must be removed again.
//!
//! # Example
//! A crash between an added disk's superblock and the checkpoint that lists it: only the disk itself says that it is a
//! member, one that is away. An opening that names it is refused (`HalfAdded`), one without it is not, and the disk can
//! be added again as it is.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::Shard;

use crate::alloc::SlabRange;
use crate::config::DiskSource;
use crate::disk::{CacheDisk, DiskIdentity};
use crate::engine::Engine;
use crate::error::CacheError;
use crate::format::{self, Member, MemberState, Record, Superblock};
use crate::label::{self, Excluded, Prepared};
use crate::race::all;
use crate::random::random_u128;
use crate::recover::{self, Label, Source};
use crate::stats::DiskHealth;
use crate::sync::{lock, read, write};

/// Pause between two searches for absent disks, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 5_000_000_000;

/// Most disks of a cache: their records fit in a superblock, with some expansions each.
const MAX_DISKS: usize = 128;

/// Where an absent disk may return.
struct AbsentDisk {
    source: DiskSource,
    /// Its number in the topology.
    slot: u16,
    /// The member whose disk was there; `None` if its superblock could not be read at opening.
    member: Option<Member>,
}

impl Engine {
    /// Adds a new disk.
    ///
    /// # Errors
    /// When it is a disk of the cache already, by whatever path, is not empty (unless `force`), does not fit, or cannot
    /// be written.
    pub(crate) async fn add_disk(
        self: &Arc<Engine>,
        shard: &Shard,
        source: &DiskSource,
        force: bool,
    ) -> Result<u16, CacheError> {
        let slot = self.roster.take_slot().ok_or(CacheError::TooManyDisks)?;
        let guid = random_u128();
        let added = self.add_disk_at(shard, source, force, (guid, slot)).await;
        let number = added.inspect_err(|_| self.roster.give_up(guid, slot))?;

        self.upkeep.moves.is_rebalancing.store(true, Relaxed);
        self.follow_capacity();
        self.checkpoint_soon().await?;
        Ok(number)
    }

    /// Adds a disk as `guid`, with the number `slot` in the topology. Returns its number in the cache.
    async fn add_disk_at(
        self: &Arc<Engine>,
        shard: &Shard,
        source: &DiskSource,
        force: bool,
        (guid, slot): (u128, u16),
    ) -> Result<u16, CacheError> {
        let not = Excluded { own: &self.own_files(), held: &self.held_files() };
        let prepared = label::prepare(&self.host, shard, source, slot, not).await?;
        if !force {
            let is_ours = |found: &Superblock| {
                found.cache_guid == self.identity.guid
                    && found.is_half_added()
                    && self.roster.find(found.disk_guid).is_none()
            };
            label::check_empty(&self.host, shard, &prepared, is_ours).await?;
        }

        let geometry = self.identity.geometry;
        label::check_sectors(&prepared, geometry.sector_bytes)?;
        let slabs = label::slabs_that_fit(&prepared, geometry.slab_bytes)?;
        self.all_disks().iter().try_for_each(|disk| self.check_superblock(disk, 0))?;
        let number = self.new_disk_number()?;
        let first = self.roster.take_slabs(slabs).ok_or(CacheError::TooManyDisks)?;

        self.add_slabs(SlabRange { first, count: slabs, disk: number, offset_bytes: label::SLABS_AT_BYTES });
        // Not writable before it is in use: its free space would keep eviction from running.
        lock(&self.alloc).set_writable(number, false);
        let identity = DiskIdentity { number, guid, path: source.path.clone() };

        let disk = match self.make_labelled(shard, identity, prepared).await {
            Ok(disk) => disk,
            Err(error) => {
                self.forget_slabs(number).dismantle().await;
                self.roster.return_slabs(first, slabs);
                return Err(error);
            }
        };

        {
            let _closed = write(&self.gate);
            self.roster.add(Member { disk: number, guid, state: MemberState::Active });
            self.set_disk(number, Some(disk));
            lock(&self.alloc).set_writable(number, true);
        }
        Ok(number)
    }

    /// Reserves a disk number that was never used.
    fn new_disk_number(&self) -> Result<u16, CacheError> {
        let members = self.roster.members();
        if members.len() >= MAX_DISKS {
            return Err(CacheError::TooManyDisks);
        }
        let mut disks = write(&self.disks);
        let named = members.iter().map(|member| usize::from(member.disk) + 1).max().unwrap_or(0);
        let number = named.max(disks.len());
        disks.resize(number + 1, None);
        u16::try_from(number).map_err(|_| CacheError::TooManyDisks)
    }

    /// Makes a disk of a device and writes its label. The caller has added its slabs, and removes them if this fails.
    async fn make_labelled(
        self: &Arc<Engine>,
        shard: &Shard,
        identity: DiskIdentity,
        prepared: Prepared,
    ) -> Result<Arc<CacheDisk>, CacheError> {
        let path = identity.path.clone();
        let log = self.new_log(identity.number, identity.guid, &path)?;
        let disk = Arc::new(self.make_disk(identity, prepared, log));
        if self.wipe(shard, &disk).await && self.label_new(shard, &disk).await {
            return Ok(disk);
        }
        let error = io::Error::other(disk.why());
        Err(CacheError::Io { path, what: "cannot write its superblock", error })
    }

    /// Writes a new disk's superblock before other disks list it. Returns whether it is durable. It carries the
    /// previous generation, so after a crash the others' list of members wins. It lists the disk as away, as no
    /// checkpoint's does.
    async fn label_new(self: &Arc<Engine>, shard: &Shard, disk: &Arc<CacheDisk>) -> bool {
        let generation = self.upkeep.numbers.last().saturating_sub(1);
        let head = {
            let mut log = lock(&disk.log);
            let commit = Record::Commit { generation, now_tick: self.index.now_tick() };
            log.cut(&commit, &mut || self.metadata_slab(disk.identity.number));
            log.heads().1
        };
        let mut block = self.superblock(disk, generation, None, head);
        let DiskIdentity { number, guid, .. } = disk.identity;
        block.members.push(Member { disk: number, guid, state: MemberState::Away });
        // The superblock first: a log without it would be foreign data.
        self.commit(shard, disk, &block).await && self.write_log_and_flush(shard, disk).await
    }

    /// Uses the space by which a disk has grown. Returns the bytes gained.
    ///
    /// # Errors
    /// When the cache has no such disk, or the disk has not grown by a slab, or [`CacheError::SuperblockFull`].
    pub(crate) async fn expand_disk(self: &Arc<Engine>, shard: &Shard, path: &Path) -> Result<u64, CacheError> {
        let disk = self.disk_at(path).ok_or_else(|| CacheError::UnknownDisk { path: path.to_owned() })?;
        let refused = |error| CacheError::Io { path: path.to_owned(), what: "cannot see how large it is", error };
        let has_bytes = shard.reactor().file_len(&disk.file).map_err(refused)?;
        let slab_bytes = u64::from(self.identity.geometry.slab_bytes);
        let number = disk.identity.number;

        let own = |range: &&SlabRange| range.disk == number;
        let last = read(&self.places).iter().filter(own).max_by_key(|range| range.offset_bytes).copied();
        let end = last.map_or(label::SLABS_AT_BYTES, |last| self.end_bytes(&last));
        let count = u32::try_from(has_bytes.saturating_sub(end) / slab_bytes).unwrap_or(u32::MAX);
        if count == 0 {
            return Err(CacheError::TooSmall { path: path.to_owned(), has_bytes, needs_bytes: end + slab_bytes });
        }

        let is_continued = last.is_some_and(|last| last.first.0 + last.count == self.roster.next_slab());
        self.check_superblock(&disk, usize::from(!is_continued))?;
        let first = self.roster.take_slabs(count).ok_or(CacheError::TooManyDisks)?;
        self.add_slabs(SlabRange { first, count, disk: number, offset_bytes: end });
        self.follow_capacity();
        self.checkpoint_soon().await?;
        Ok(u64::from(count) * slab_bytes)
    }

    /// Checks that the superblock of a disk has room for `more_ranges`, and for a disk that is being added.
    fn check_superblock(&self, disk: &CacheDisk, more_ranges: usize) -> Result<(), CacheError> {
        let DiskIdentity { number, path, .. } = &disk.identity;
        let ranges = read(&self.places).iter().filter(|range| range.disk == *number).count();
        if format::has_room(self.roster.members().len() + 1, ranges + more_ranges) {
            return Ok(());
        }
        Err(CacheError::SuperblockFull { path: path.clone() })
    }

    /// Starts to move all blocks away from a disk. Returns the bytes to move.
    ///
    /// # Errors
    /// When the cache has no such disk, or it is the last one that takes writes.
    pub(crate) fn remove_disk(&self, path: &Path) -> Result<u64, CacheError> {
        // One at a time: of two at once, each would take the other's disk for one that stays.
        let closed = write(&self.gate);
        let disk = self.disk_at(path).ok_or_else(|| CacheError::UnknownDisk { path: path.to_owned() })?;
        let others = self.all_disks().into_iter().filter(|other| other.identity.number != disk.identity.number);
        if others.filter(|other| other.takes_writes()).count() == 0 {
            return Err(CacheError::LastDisk);
        }
        disk.judge(|health| health.set_removing(true));
        let mut alloc = lock(&self.alloc);
        alloc.set_writable(disk.identity.number, false);
        let bytes = alloc.allocated_bytes(disk.identity.number);
        drop(alloc);
        drop(closed);
        self.to_keeper.wake();
        Ok(bytes)
    }

    /// Drops an absent member: the cache neither waits for it nor takes it back. Its blocks have left the index when it
    /// was lost.
    ///
    /// # Errors
    /// [`CacheError::NotMissing`], or when no disk can be written.
    pub(crate) async fn forget_missing(&self, number: u16) -> Result<(), CacheError> {
        {
            let _closed = write(&self.gate);
            let is_it = |member: &Member| member.disk == number && self.disk(number).is_none();
            let missing = self.roster.members().into_iter().find(is_it);
            self.roster.forget(missing.ok_or(CacheError::NotMissing { number })?.guid);
        }
        self.checkpoint_soon().await.map(drop)
    }

    /// Drops the disks that were to be removed and are empty now.
    pub(crate) async fn finish_removals(self: &Arc<Engine>, shard: &Shard) {
        for disk in self.all_disks().into_iter().filter(|disk| disk.is_removing()) {
            let number = disk.identity.number;
            let removed = {
                // No change is under way while the gate is closed, so an empty disk stays empty.
                let _closed = write(&self.gate);
                if lock(&self.alloc).allocated_bytes(number) > 0 || disk.backlog_bytes() > 0 {
                    continue;
                }
                self.set_disk(number, None);
                self.roster.forget(disk.identity.guid);
                self.forget_slabs(number)
            };
            removed.dismantle().await;

            self.follow_capacity();
            if self.checkpoint(shard).await.is_ok() {
                let (engine, own) = (Arc::clone(self), shard.clone());
                // The other disks no longer list it. If the wipe fails, the stale label is only a finding at the next
                // opening.
                let wipe = async move { _ = engine.wipe(&own, &disk).await };
                shard.spawn(wipe).detach();
            }
        }
    }

    /// Starts a search for absent disks, unless one is under way or ended a moment ago.
    pub(crate) fn start_readmission(self: &Arc<Engine>, shard: &Shard) {
        let is_gone = |member: &Member| self.disk(member.disk).is_none_or(|disk| disk.health() == DiskHealth::Failed);
        let gone: Vec<Member> = self.roster.members().into_iter().filter(is_gone).collect();
        if gone.is_empty() || shard.now_ns() < self.roster.look_again_ns.load(Relaxed) {
            return;
        }
        // No second search before this one has ended.
        self.roster.look_again_ns.store(u64::MAX, Relaxed);
        let mut absent: Vec<AbsentDisk> = Vec::new();
        let mut is_complete = true;
        for member in gone {
            match self.roster.source(member.guid) {
                Some((source, slot)) => absent.push(AbsentDisk { source, slot, member: Some(member) }),
                None => is_complete = false,
            }
        }
        if !is_complete {
            let unread = self.roster.unread().into_iter();
            absent.extend(unread.map(|(source, slot)| AbsentDisk { source, slot, member: None }));
        }
        let (engine, own) = (Arc::clone(self), shard.clone());
        let look = async move {
            let looks = absent.into_iter().map(|disk| engine.readmit(&own, disk));
            // Errors are ignored: the next search tries again.
            all(looks).await.into_iter().for_each(drop);
            engine.roster.look_again_ns.store(own.now_ns().saturating_add(LOOK_AGAIN_NS), Relaxed);
        };
        shard.spawn(look).detach();
    }

    /// Takes back an absent disk that has returned, as a new one: it has missed a checkpoint, or is about to.
    async fn readmit(self: &Arc<Engine>, shard: &Shard, absent: AbsentDisk) -> Result<(), CacheError> {
        let AbsentDisk { source, slot, member: wanted } = absent;
        // The disk is not asked again before it has answered: each attempt would be one more operation that hangs.
        let held = self.held_files();
        if held.iter().any(|held| held.path == source.path && held.device.is_none()) {
            return Ok(());
        }
        if let Some(member) = wanted {
            if !self.has_left(member.disk) {
                return Ok(());
            }
            // The old life has the lock of a device on which operations have not ended, and keeps it.
            let is_held = held.iter().any(|held| held.path == source.path);
            if is_held && !label::leads_elsewhere(shard, &source.path, &held).await? {
                return Ok(());
            }
            if let Some(old) = self.disk(member.disk) {
                self.roster.note_loss(member.guid, old.why());
            }
            // Drop the old life and its lock on the device, or the device could not be locked again.
            self.set_disk(member.disk, None);
        }

        let not = Excluded { held: &held, ..Excluded::default() };
        let prepared = label::prepare(&self.host, shard, &source, slot, not).await?;
        let from = Source { shard, file: &prepared.file, class: self.classes.checkpoint };
        let unreadable =
            |error| CacheError::Io { path: source.path.clone(), what: "cannot read its superblock", error };
        let Label::Ours(label) = recover::read_superblock(from).await.map_err(unreadable)? else { return Ok(()) };
        let guid = label.block.disk_guid;
        if label.block.cache_guid != self.identity.guid || wanted.is_some_and(|wanted| wanted.guid != guid) {
            return Ok(());
        }
        label::check_fit(&prepared, &label.block)
            .inspect_err(|error| self.roster.note_loss(guid, error.to_string()))?;
        if label.block.generation > self.upkeep.numbers.last() {
            // Its number was not known at opening. After a crash now it would win against the other disks.
            self.upkeep.numbers.begin_after(label.block.generation);
            drop(self.to_keeper.request_checkpoint());
            return Ok(());
        }

        let closed = write(&self.gate);
        // The member may have been forgotten meanwhile. The member of an unread source may be a disk that is present
        // under another path, or one whose blocks are still being forgotten.
        let Some(Member { disk: number, .. }) = self.roster.find(guid) else { return Ok(()) };
        if self.disk(number).is_some() || !self.slabs_of(number).is_empty() {
            return Ok(());
        }
        // All its slabs are free, so the log gets one, if there is any.
        self.add_slabs_of(&label.block);
        let log = self.new_log(number, guid, &source.path)?;
        let identity = DiskIdentity { number, guid, path: source.path.clone() };
        let disk = self.make_disk(identity, prepared, log);
        disk.label_slot.store(label.slot, Relaxed);
        self.set_disk(number, Some(Arc::new(disk)));
        drop(closed);
        self.follow_capacity();
        Ok(())
    }

    /// Returns whether nothing of a disk's former life is left: no change in flight, and no slab, and so no block.
    fn has_left(&self, number: u16) -> bool {
        let is_over = |disk: Arc<CacheDisk>| disk.has_parted() && !disk.is_busy();
        self.disk(number).is_none_or(is_over) && self.slabs_of(number).is_empty()
    }

    fn disk_at(&self, path: &Path) -> Option<Arc<CacheDisk>> {
        self.all_disks().into_iter().find(|disk| disk.identity.path == path)
    }
}

#[cfg(test)]
mod tests;
