//! Disks that come, grow, fail, return and go, while the cache runs.
//!
//! # Why
//! A cache of many disks is never whole for long, and none of its disks is worth a stop.
//!
//! # How it works
//! | what | how |
//! |---|---|
//! | add | its superblock is written first, then the others name it (a checkpoint); new blocks go there at once |
//! | expand | a further range of slabs at its end, a checkpoint |
//! | remove | nothing new goes there, its slabs are emptied by the mover; when nothing is left the others forget it (a checkpoint), then its superblock is wiped |
//! | failed | its blocks are forgotten; what changes from then on is noted (`away`) |
//! | returned | its superblock is looked for every 5 s; what it knew at its last checkpoint comes back, but for what changed |
//!
//! # Limits
//! A disk that comes back larger or smaller keeps the slabs it had. Numbers of slabs and disks are not used twice.
//!
//! # Example
//! A crash between an added disk's superblock and the checkpoint that names it: the disk says it is a member, nobody else
//! does; the cache opens without it and says so, and adding it again takes `--force`.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::Shard;

use crate::alloc::SlabRange;
use crate::config::DiskSource;
use crate::disk::{CacheDisk, DiskIdentity, lock};
use crate::engine::{Engine, read, write};
use crate::entry::{Entry, SlabId};
use crate::error::CacheError;
use crate::format::{Member, MemberState, Record, Superblock};
use crate::key::KeyHash;
use crate::label::{self, Prepared};
use crate::log::{DiskLog, StreamShape};
use crate::recover::{self, Label, Source};
use crate::stats::DiskHealth;

/// How often a disk that has left is looked for, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 5_000_000_000;

/// The most disks of a cache: that many fit in a superblock, with some expansions each.
const MAX_DISKS: usize = 128;

/// Blocks with their keys.
type Blocks = Vec<(KeyHash, Entry)>;

/// Entries that are restored before others get a turn.
const RESTORE_ENTRIES: usize = 256;

impl Engine {
    /// Takes a new disk in.
    ///
    /// # Errors
    /// When it is not empty (unless `force`), does not fit, or cannot be written.
    pub(crate) async fn add_disk(
        self: &Arc<Engine>,
        shard: &Shard,
        source: &DiskSource,
        force: bool,
    ) -> Result<u16, CacheError> {
        let path = source.path.clone();
        let slot = self.free_slot().ok_or(CacheError::TooManyDisks)?;
        let prepared = label::prepare(&self.host, shard, source, slot)?;
        if !force {
            label::check_empty(&self.host, shard, &prepared).await?;
        }
        let geometry = self.identity.geometry;
        label::check_sectors(&prepared, geometry.sector_bytes)?;
        let slabs = label::slabs_that_fit(&prepared, geometry.slab_bytes)?;
        let number = {
            let mut members = lock(&self.members);
            let number = members.iter().map(|member| member.disk + 1).max().unwrap_or(0);
            let number = number.max(read(&self.disks).len() as u16);
            if members.len() >= MAX_DISKS {
                return Err(CacheError::TooManyDisks);
            }
            let guid = label::random_u128();
            members.push(Member { disk: number, guid, state: MemberState::Active, generation: 0 });
            (number, guid)
        };
        let (number, guid) = number;
        let first = SlabId(self.next_slab.fetch_add(slabs, Relaxed));
        if u64::from(first.0) + u64::from(slabs) > u64::from(SlabId::END) {
            return Err(CacheError::TooManyDisks);
        }
        let range = SlabRange { first, count: slabs, disk: number, offset_bytes: label::SLABS_AT_BYTES };
        self.add_slabs(range);
        let shape = self.shape(guid);
        let log = DiskLog::new(shape, &mut || self.metadata_slab(number)).map_err(|_| CacheError::Full)?;
        let identity = DiskIdentity { number, guid, path: path.clone() };
        let disk = Arc::new(self.make_disk(identity, prepared, log, source.write_bytes_per_s));
        let refused = |error| CacheError::Io { path, what: "cannot write its superblock", error };
        let wiped = label::wipe(shard, &disk, self.classes.checkpoint).await;
        let labelled = match wiped {
            Ok(()) => self.label_new(shard, &disk).await,
            Err(error) => Err(error),
        };
        if let Err(error) = labelled {
            lock(&self.members).retain(|member| member.disk != number);
            self.forget_slabs(number);
            return Err(refused(error));
        }
        self.set_disk(number, Some(disk));
        self.is_rebalancing.store(true, Relaxed);
        self.index.set_capacity(lock(&self.alloc).capacity_bytes());
        self.checkpoint_soon().await?;
        Ok(number)
    }

    /// Before anybody names it, a new disk itself says who it is: as of the checkpoint before the last, so that whom the
    /// others name counts.
    async fn label_new(&self, shard: &Shard, disk: &Arc<CacheDisk>) -> io::Result<()> {
        let generation = self.generation.load(Relaxed).saturating_sub(1);
        let head = {
            let mut log = lock(&disk.log);
            let commit = Record::Commit { generation, now_tick: self.index.now_tick() };
            log.cut(&commit, &mut || self.metadata_slab(disk.identity.number));
            log.heads().1
        };
        self.write_log(shard, disk).await?;
        disk.flush(shard, self.classes.checkpoint).await?;
        let block = self.superblock(disk, generation, None, head);
        self.write_superblock(shard, disk, &block).await?;
        disk.flush(shard, self.classes.checkpoint).await
    }

    /// Uses what a disk has become larger by.
    ///
    /// # Errors
    /// When there is no such disk, or it has not grown by a slab.
    pub(crate) async fn expand_disk(self: &Arc<Engine>, shard: &Shard, path: &Path) -> Result<u64, CacheError> {
        let disk = self.disk_at(path).ok_or_else(|| CacheError::UnknownDisk { path: path.to_owned() })?;
        let refused = |error| CacheError::Io { path: path.to_owned(), what: "cannot see how large it is", error };
        let has_bytes = shard.reactor().file_len(&disk.file).map_err(refused)?;
        let slab_bytes = u64::from(self.identity.geometry.slab_bytes);
        let number = disk.identity.number;
        let ends = read(&self.places)
            .iter()
            .filter(|range| range.disk == number)
            .map(|range| range.offset_bytes + u64::from(range.count) * slab_bytes)
            .max();
        let end = ends.unwrap_or(label::SLABS_AT_BYTES);
        let count = u32::try_from(has_bytes.saturating_sub(end) / slab_bytes).unwrap_or(u32::MAX);
        if count == 0 {
            return Err(CacheError::TooSmall { path: path.to_owned(), has_bytes, needs_bytes: end + slab_bytes });
        }
        let first = SlabId(self.next_slab.fetch_add(count, Relaxed));
        if u64::from(first.0) + u64::from(count) > u64::from(SlabId::END) {
            return Err(CacheError::TooManyDisks);
        }
        self.add_slabs(SlabRange { first, count, disk: number, offset_bytes: end });
        self.index.set_capacity(lock(&self.alloc).capacity_bytes());
        self.checkpoint_soon().await?;
        Ok(u64::from(count) * slab_bytes)
    }

    /// Begins to move everything away from a disk.
    ///
    /// # Errors
    /// When there is no such disk, or it is the last.
    pub(crate) fn remove_disk(&self, path: &Path) -> Result<u64, CacheError> {
        let disk = self.disk_at(path).ok_or_else(|| CacheError::UnknownDisk { path: path.to_owned() })?;
        let others = self.all_disks().into_iter().filter(|other| other.identity.number != disk.identity.number);
        if others.filter(|other| other.takes_writes()).count() == 0 {
            return Err(CacheError::LastDisk);
        }
        disk.judge(|health| health.set_removing(true));
        let mut alloc = lock(&self.alloc);
        alloc.set_writable(disk.identity.number, false);
        let bytes = alloc.evacuate_disk(disk.identity.number);
        drop(alloc);
        self.bell.ring_for_change();
        Ok(bytes)
    }

    /// Disks that are empty now and were to be removed are gone.
    pub(crate) async fn finish_removals(self: &Arc<Engine>, shard: &Shard) {
        for disk in self.all_disks().into_iter().filter(|disk| disk.is_removing()) {
            let number = disk.identity.number;
            if lock(&self.alloc).allocated_bytes(number) > 0 || disk.backlog_bytes() > 0 {
                continue;
            }
            lock(&self.members).retain(|member| member.disk != number);
            self.set_disk(number, None);
            self.forget_slabs(number);
            self.index.set_capacity(lock(&self.alloc).capacity_bytes());
            if self.checkpoint(shard).await.is_ok() {
                // The others do not know it any more; that its label stays is no harm, only a refusal later.
                let _ = label::wipe(shard, &disk, self.classes.checkpoint).await;
            }
        }
    }

    /// Looks for disks that have left, and takes back what they still know.
    pub(crate) async fn readmit_disks(self: &Arc<Engine>, shard: &Shard) {
        if !self.away.is_on() || shard.now_ns() < self.look_again_ns.load(Relaxed) {
            return;
        }
        self.look_again_ns.store(shard.now_ns().saturating_add(LOOK_AGAIN_NS), Relaxed);
        let gone: Vec<Member> = lock(&self.members)
            .iter()
            .filter(|member| self.disk(member.disk).is_none_or(|disk| disk.health() == DiskHealth::Failed))
            .copied()
            .collect();
        let mut is_whole = self.all_disks().iter().all(|disk| disk.health() != DiskHealth::ReadOnly);
        for member in gone {
            is_whole &= self.readmit(shard, member).await.unwrap_or(false);
        }
        // Should the checkpoint cost a disk, what has changed is needed again.
        if is_whole && self.checkpoint(shard).await.is_ok() && self.is_whole() && self.away.end() {
            self.note_everywhere(&Record::ChangesCleared);
        }
    }

    /// Whether all disks of the cache are there and take what they should know.
    fn is_whole(&self) -> bool {
        let members = lock(&self.members).clone();
        members.iter().all(|member| self.disk(member.disk).is_some_and(|disk| disk.takes_metadata()))
    }

    /// Whether the disk is back.
    async fn readmit(self: &Arc<Engine>, shard: &Shard, member: Member) -> io::Result<bool> {
        let known = self.disk(member.disk).map(|disk| disk.identity.path.clone());
        let source = lock(&self.sources).get(&member.guid).cloned();
        let Some((source, slot)) = source.filter(|(source, _)| known.is_none_or(|path| path == source.path)) else {
            return Ok(false);
        };
        // What is on its way to the disk could still land, and on what then belongs to others.
        if self.is_writing_snapshot.load(Relaxed) || self.disk(member.disk).is_some_and(|disk| disk.backlog_bytes() > 0)
        {
            return Ok(false);
        }
        // The lock of the old life goes with it.
        self.set_disk(member.disk, None);
        let Ok(prepared) = label::prepare(&self.host, shard, &source, slot) else { return Ok(false) };
        let from = Source { shard, file: &prepared.file, class: self.classes.checkpoint };
        let Label::Ours(block) = recover::read_superblock(from).await? else { return Ok(false) };
        if (block.cache_guid, block.disk_guid) != (self.identity.guid, member.guid) {
            return Ok(false);
        }
        let label_slot = recover::slot_of(from, block.generation).await;
        let Ok((found, log)) = recover::own_blocks(from, &block, self.known_generation(member.guid)).await else {
            return Ok(false);
        };
        let number = member.disk;
        self.add_slabs_of(&block);
        // Until all that it has is claimed, nobody takes a place there.
        lock(&self.alloc).set_writable(number, false);
        self.claim_metadata(log.slabs.iter().chain(log.snapshot.iter().flat_map(|snapshot| &snapshot.slabs)));
        let (found, rejected) = self.claim_found(found);
        let shape = self.shape(member.guid);
        let Ok(log) = DiskLog::reopen(shape, log, &mut || self.metadata_slab(number)) else {
            self.forget_slabs(number);
            return Ok(false);
        };
        let identity = DiskIdentity { number, guid: member.guid, path: source.path.clone() };
        let disk = self.make_disk(identity, prepared, log, source.write_bytes_per_s);
        disk.label_slot.store(label_slot, Relaxed);
        self.set_disk(number, Some(Arc::new(disk)));
        self.tell_changes(number);
        rejected.iter().for_each(|(hash, entry)| self.note_remove(hash, entry));
        self.restore(found).await;
        Ok(true)
    }

    /// The log of a disk that has joined hears what has changed while others are still away.
    pub(crate) fn tell_changes(&self, number: u16) {
        let Some(disk) = self.disk(number) else { return };
        let mut log = lock(&disk.log);
        for record in self.away.records() {
            log.append(&record, &mut || self.metadata_slab(number));
        }
    }

    /// Takes the places of what a disk brings back: of what has them now, and of what has not.
    fn claim_found(&self, found: HashMap<KeyHash, Entry>) -> (Blocks, Blocks) {
        let mut alloc = lock(&self.alloc);
        found.into_iter().partition(|(_, entry)| alloc.claim(&entry.extent).is_ok())
    }

    /// Puts back what is still right; of the rest the log hears that it is gone.
    async fn restore(&self, found: Vec<(KeyHash, Entry)>) {
        for part in found.chunks(RESTORE_ENTRIES) {
            {
                let _closed = write(&self.gate);
                for (hash, entry) in part {
                    if !(self.away.is_unchanged(hash) && self.index.restore_if_absent(*hash, *entry)) {
                        self.note_remove(hash, entry);
                        lock(&self.alloc).free(&entry.extent);
                    }
                }
            }
            crate::race::yield_now().await;
        }
    }

    pub(crate) fn note_everywhere(&self, record: &Record) {
        for disk in self.all_disks() {
            lock(&disk.log).append(record, &mut || self.metadata_slab(disk.identity.number));
        }
    }

    /// A key has been inserted or removed by the caller.
    pub(crate) fn note_change(&self, hash: &KeyHash) {
        if self.away.is_on()
            && let Some(record) = self.away.note(hash)
        {
            self.note_everywhere(&record);
        }
    }

    pub(crate) fn shape(&self, disk_guid: u128) -> StreamShape {
        let geometry = self.identity.geometry;
        StreamShape { disk_guid, slab_bytes: geometry.slab_bytes, sector_bytes: geometry.sector_bytes }
    }

    pub(crate) fn make_disk(
        &self,
        identity: DiskIdentity,
        prepared: Prepared,
        log: DiskLog,
        write_bytes_per_s: Option<f64>,
    ) -> CacheDisk {
        let home = self.home_of(identity.number);
        let Prepared { file, lock: kept, slot, source, .. } = prepared;
        lock(&self.sources).insert(identity.guid, (source, slot));
        CacheDisk::new(identity, file, kept, home, log, write_bytes_per_s)
    }

    pub(crate) fn add_slabs(&self, range: SlabRange) {
        // Numbers of slabs are given out once, so it cannot overlap; what does is not used.
        if lock(&self.alloc).add_range(range).is_ok() {
            let mut places = write(&self.places);
            places.push(range);
            places.sort_by_key(|range| range.first);
        }
    }

    /// All slabs that a disk's superblock names.
    pub(crate) fn add_slabs_of(&self, block: &Superblock) {
        for range in &block.ranges {
            let (first, count, offset_bytes) = (range.first, range.count, range.offset_bytes);
            self.add_slabs(SlabRange { first, count, disk: block.disk, offset_bytes });
        }
    }

    pub(crate) fn forget_slabs(&self, disk: u16) {
        write(&self.places).retain(|range| range.disk != disk);
        lock(&self.alloc).remove_disk(disk);
    }

    pub(crate) fn claim_metadata<'a>(&self, slabs: impl Iterator<Item = &'a SlabId>) {
        let mut alloc = lock(&self.alloc);
        for slab in slabs {
            // A slab of two streams is claimed already.
            let _ = alloc.claim_metadata(*slab);
        }
    }

    pub(crate) fn set_disk(&self, number: u16, disk: Option<Arc<CacheDisk>>) {
        let mut disks = write(&self.disks);
        if disks.len() <= usize::from(number) {
            disks.resize(usize::from(number) + 1, None);
        }
        if let Some(place) = disks.get_mut(usize::from(number)) {
            *place = disk;
        }
    }

    /// The last checkpoint that a disk is known to have.
    pub(crate) fn known_generation(&self, guid: u128) -> u64 {
        let members = lock(&self.members);
        members.iter().find(|member| member.guid == guid).map_or(0, |member| member.generation)
    }

    /// The disk begins anew: should it leave before its next checkpoint, nothing that it has counts.
    pub(crate) fn disown(&self, guid: u128) {
        let mut members = lock(&self.members);
        members.iter_mut().filter(|member| member.guid == guid).for_each(|member| member.generation = 0);
    }

    fn disk_at(&self, path: &Path) -> Option<Arc<CacheDisk>> {
        self.all_disks().into_iter().find(|disk| disk.identity.path == path)
    }

    fn free_slot(&self) -> Option<u16> {
        let slot = self.next_slot.fetch_add(1, Relaxed);
        (slot < self.host.disks.end).then_some(slot)
    }

    /// The next checkpoint of the keeper's.
    pub(crate) async fn checkpoint_soon(&self) -> Result<u64, CacheError> {
        let answered = self.bell.ring_for_checkpoint().await;
        let stopped = || CacheError::Stopped("the cache has been closed".to_owned());
        answered.map_err(|_| stopped())?.map_err(|_| CacheError::AllFailed)
    }
}
