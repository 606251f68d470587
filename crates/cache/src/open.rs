//! Creates a cache, and opens one from the metadata of its disks.
//!
//! # Why
//! Disks are found in any order. Some may be missing, some may be foreign, one may be blank, one may have left days
//! ago and be back. The result must be one cache, as of one checkpoint.
//!
//! # How it works
//! 1. Every device is opened and locked, and its superblock read. The highest generation wins, and its superblock
//!    lists the members. A disk's own trouble (absent, damaged, too small, blank in place of another) costs that disk,
//!    and becomes a finding. A likely mistake of the operator (foreign data, another cache's disk, one that is no
//!    member or in use, the same disk twice) stops the opening before anything has changed.
//! 2. A disk of that generation, or with its commit in the log, is *current*. Any other has missed a checkpoint: its
//!    metadata may be out of date, so it restarts empty.
//! 3. Snapshots and logs of the current disks, read side by side, give the index. Of two entries for a key, the one
//!    that no record removes wins; if both remain (only damage can cause that), one is kept, and the other logged as
//!    removed.
//! 4. The extents of all entries are claimed; unclaimed space is free. An entry whose place is taken is dropped.
//!
//! A disk whose snapshot or log is damaged is emptied and continues as a new one: only its own blocks are lost. A disk
//! that hangs, as it is opened or later, is missing: nothing is written to it, and the cache searches for it.
//!
//! *Numbers grow with time.* The highest generation must be the latest, also if it is on a disk that was away for a
//! while. Every disk that takes part in a checkpoint has its commit in the log before the first superblock is written.
//! So an opening reads all logs to their ends, and takes a number higher than all that its disks have ever seen, those
//! of checkpoints that were not completed too. It logs that number in the very write that discards their commits, and
//! its own checkpoints have higher numbers.
//!
//! # Limits
//! Opening takes the time to read logs and snapshots, about 25 to 75 bytes a block, and one pass over the index. If no
//! disk present took part in a checkpoint, its number is not known: disks that were opened without each other must not
//! be put together again.
//!
//! # Example
//! Three disks, generations 8, 7 and 5. The second has commit 8 in its log: the power failed between two superblocks.
//! The third has not: it was away, and is empty now.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll::{Handle, Shard};

use crate::alloc::{Geometry, SlabRange};
use crate::config::{CacheConfig, CreateOptions, DiskSource};
use crate::crypt::Cipher;
use crate::disk::DiskIdentity;
use crate::engine::{CacheIdentity, Engine};
use crate::entry::{Entry, MAX_SLAB_BYTES, MIN_SLAB_BYTES, SlabId};
use crate::error::CacheError;
use crate::format::{Member, MemberState, Record, SlotError, Superblock};
use crate::host::{HostParts, too_few_disks};
use crate::index::{Cursor, Verdict};
use crate::key::KeyHash;
use crate::label::{self, Prepared};
use crate::log::{DiskLog, FoundLog};
use crate::race::{all, yield_now};
use crate::random::{random_u64, random_u128};
use crate::recover::{self, Batch, Found, Label, ReplayError, Source};
use crate::sync::lock;

/// Entries of the index visited between two chances for other tasks.
const ENTRIES_AT_ONCE: usize = 65_536;

/// Generation of a new cache.
const FIRST_GENERATION: u64 = 1;

/// Labels `sources` as the disks of a new cache.
pub(crate) async fn create(
    host: &HostParts,
    handles: Vec<Handle>,
    shard: &Shard,
    options: &CreateOptions,
    sources: &[DiskSource],
) -> Result<(), CacheError> {
    let config = CacheConfig { encryption_key: options.encryption_key, ..CacheConfig::default() };
    make(host, handles, shard, options, config, random_u64(), sources).await.map(|_| ())
}

/// Creates a cache as [`create`] does, and returns it. `key_seed` decides which index shard a key belongs to.
pub(crate) async fn make(
    host: &HostParts,
    handles: Vec<Handle>,
    shard: &Shard,
    options: &CreateOptions,
    config: CacheConfig,
    key_seed: u64,
    sources: &[DiskSource],
) -> Result<Arc<Engine>, CacheError> {
    let is_slab = |bytes: u32| bytes.is_power_of_two() && (MIN_SLAB_BYTES..=MAX_SLAB_BYTES).contains(&bytes);
    if options.slab_bytes.is_some_and(|bytes| !is_slab(bytes)) {
        return Err(CacheError::Geometry("slabs are a power of two from 1 to 32 MiB"));
    }

    let devices = prepare_all(host, shard, sources).await?;
    let slab_bytes = options.slab_bytes.unwrap_or_else(|| usual_slab_bytes(&devices));
    let sector_bytes = devices.iter().map(|device| device.info.offset_align_bytes).max().unwrap_or(512).max(512);
    let mut counts = Vec::new();
    for device in &devices {
        // Check all disks before writing to any.
        if !options.force {
            label::check_empty(host, shard, device, |_| false).await?;
        }
        counts.push(label::slabs_that_fit(device, slab_bytes)?);
    }
    if counts.iter().map(|count| u64::from(*count)).sum::<u64>() > u64::from(SlabId::END) {
        return Err(CacheError::Geometry(
            "the disks have more slabs of this size than the 16,777,215 of a cache: choose larger slabs, at most 32 MiB",
        ));
    }

    let cipher = options.encryption_key.as_ref().map(Cipher::new);
    let key_check = cipher.as_ref().map_or([0; 32], Cipher::key_check);
    let geometry = Geometry { slab_bytes, sector_bytes };
    let identity = CacheIdentity { guid: random_u128(), key_seed, key_check, geometry };
    let engine = Engine::empty(config, identity, host.clone(), handles, FIRST_GENERATION - 1, 0)?;

    let mut first = 0;
    let mut disks = Vec::new();
    for ((number, device), count) in (0_u16..).zip(devices).zip(counts) {
        let (slab, disk) = (SlabId(first), number);
        engine.add_slabs(SlabRange { first: slab, count, disk, offset_bytes: label::SLABS_AT_BYTES });
        first += count;
        let guid = random_u128();
        engine.roster.add(Member { disk, guid, state: MemberState::Active });
        let log = engine.new_log(number, guid, &device.source.path)?;
        let identity = DiskIdentity { number, guid, path: device.source.path.clone() };
        disks.push(Arc::new(engine.make_disk(identity, device, log)));
    }

    for (number, disk) in (0_u16..).zip(disks) {
        if !engine.wipe(shard, &disk).await {
            let (path, error) = (disk.identity.path.clone(), std::io::Error::other(disk.why()));
            return Err(CacheError::Io { path, what: "cannot write its superblock", error });
        }
        engine.set_disk(number, Some(disk));
    }
    let engine = Arc::new(engine);
    engine.checkpoint(shard).await.map_err(|error| CacheError::Io {
        path: PathBuf::from("."),
        what: "cannot write the first checkpoint",
        error,
    })?;
    match engine.all_disks().into_iter().find(|disk| !disk.takes_metadata()) {
        Some(disk) => Err(CacheError::Io {
            path: disk.identity.path.clone(),
            what: "cannot write its first checkpoint",
            error: std::io::Error::other(disk.why()),
        }),
        None => Ok(engine),
    }
}

/// Returns the largest power of two, from 1 to 32 MiB, that fits 1024 times on the smallest device.
fn usual_slab_bytes(devices: &[Prepared]) -> u32 {
    let smallest_bytes = devices.iter().map(|device| device.info.len_bytes).min().unwrap_or(0);
    let part = (smallest_bytes / 1024).clamp(MIN_SLAB_BYTES.into(), MAX_SLAB_BYTES.into());
    1 << part.ilog2()
}

async fn prepare_all(host: &HostParts, shard: &Shard, sources: &[DiskSource]) -> Result<Vec<Prepared>, CacheError> {
    check_count(host, sources)?;
    label::prepare_all(host, shard, sources).await?.into_iter().collect()
}

fn check_count(host: &HostParts, sources: &[DiskSource]) -> Result<(), CacheError> {
    match sources.len() {
        0 => Err(CacheError::NoDisks),
        count if count > host.disks.len() => Err(too_few_disks()),
        _ => Ok(()),
    }
}

/// A device and its superblock.
struct Labelled {
    device: Prepared,
    block: Superblock,
    /// The slot of that superblock.
    slot: usize,
    /// The damage of the other slot, if any.
    damage: Option<String>,
}

/// Opens the cache that `sources` belong to. If `writes` is false, the cache is only inspected, and nothing is written.
pub(crate) async fn open(
    config: CacheConfig,
    host: HostParts,
    handles: Vec<Handle>,
    shard: &Shard,
    sources: &[DiskSource],
    writes: bool,
) -> Result<Engine, CacheError> {
    let (labelled, mut absent, unread) = read_labels(&host, shard, sources).await?;
    let target = labelled.iter().map(|disk| disk.block.generation).max().unwrap_or(0);
    let newest = labelled.iter().find(|disk| disk.block.generation == target).map(|disk| disk.block.clone());
    let Some(newest) = newest else { return Err(CacheError::NoDisks) };
    check_key(&config, &newest)?;
    check_members(&labelled, &newest, &mut absent)?;

    let identity = CacheIdentity {
        guid: newest.cache_guid,
        key_seed: newest.key_seed,
        key_check: newest.key_check,
        geometry: Geometry { slab_bytes: newest.slab_bytes, sector_bytes: newest.sector_bytes },
    };

    let engine = Engine::empty(config, identity, host, handles, target, newest.next_slab)?;
    engine.roster.set_members(newest.members.clone());
    engine.roster.set_unread(unread);
    let is_missing = |member: &&Member| labelled.iter().all(|disk| disk.block.disk_guid != member.guid);
    let missing: Vec<Member> = newest.members.iter().filter(is_missing).copied().collect();
    *lock(&engine.findings) = absences(&absent, &missing);
    engine.index.set_now(newest.now_tick);
    let capacity = labelled.iter().flat_map(|disk| &disk.block.ranges).map(|range| u64::from(range.count)).sum::<u64>();
    engine.index.set_capacity(capacity * u64::from(newest.slab_bytes));
    engine.load(shard, labelled, &newest, writes).await?;
    if writes {
        engine.begin_life(sources.len());
    }
    Ok(engine)
}

/// Returns whether a checkpoint was made without this disk. A commit in its log proves nothing then: the log may have
/// been written too late, and the blocks that it names may never have become durable.
fn missed(newest: &Superblock, guid: u128) -> bool {
    newest.members.iter().any(|member| member.guid == guid && member.state == MemberState::Away)
}

/// A source, and its number in the topology.
type Slotted = (DiskSource, u16);

/// Reads all superblocks. Returns the usable disks, why each other one is not usable, and the sources that could not be
/// read, which may return.
async fn read_labels(
    host: &HostParts,
    shard: &Shard,
    sources: &[DiskSource],
) -> Result<(Vec<Labelled>, Vec<CacheError>, Vec<Slotted>), CacheError> {
    let mut labelled: Vec<Labelled> = Vec::new();
    let (mut absent, mut unread) = (Vec::new(), Vec::new());
    check_count(host, sources)?;

    let mut devices = Vec::new();
    let prepared = label::prepare_all(host, shard, sources).await?;
    for ((slot, source), prepared) in host.disks.clone().zip(sources).zip(prepared) {
        match prepared {
            Ok(device) => devices.push(device),
            Err(error @ CacheError::Io { .. }) => {
                absent.push(error);
                unread.push((source.clone(), slot));
            }
            Err(error) => return Err(error),
        }
    }
    let source = |device| Source { shard, file: device, class: host.classes.checkpoint };
    let labels = all(devices.iter().map(|device| recover::read_superblock(source(&device.file)))).await;

    for (device, label) in devices.into_iter().zip(labels) {
        let path = device.source.path.clone();
        let Found { block, slot, damage } = match label {
            Ok(Label::Ours(found)) => found,
            Ok(Label::Not(SlotError::Version { found })) => return Err(CacheError::Version { path, found }),
            Ok(Label::Not(SlotError::Foreign)) => {
                return Err(CacheError::NotACache { path, what: format!("it holds {}", SlotError::Foreign) });
            }
            Ok(Label::Not(SlotError::Empty)) => {
                // A new disk in place of a lost one.
                absent.push(CacheError::NotACache { path, what: "it is empty".to_owned() });
                continue;
            }
            Ok(Label::Not(error)) => {
                absent.push(CacheError::Damaged { path, what: error.to_string() });
                continue;
            }
            Err(error) => {
                absent.push(CacheError::Io { path, what: "cannot read its superblock", error });
                unread.push((device.source, device.slot));
                continue;
            }
        };

        if let Some(other) = labelled.iter().find(|other| other.block.disk_guid == block.disk_guid) {
            return Err(CacheError::Twice { path, first: other.device.source.path.clone() });
        }
        if let Some(first) = labelled.first().filter(|first| first.block.cache_guid != block.cache_guid) {
            let (found, expected) = (block.cache_guid, first.block.cache_guid);
            return Err(CacheError::OtherCache { path, found, expected });
        }

        if let Err(error) = label::check_fit(&device, &block) {
            absent.push(error);
            continue;
        }
        labelled.push(Labelled { device, block: *block, slot, damage });
    }

    if labelled.is_empty() {
        return Err(absent.into_iter().next().unwrap_or(CacheError::NoDisks));
    }
    Ok((labelled, absent, unread))
}

/// Checks that all disks are members of the cache. A blank disk may replace a missing member; if none is missing, it
/// was named by mistake.
fn check_members(labelled: &[Labelled], newest: &Superblock, absent: &mut Vec<CacheError>) -> Result<(), CacheError> {
    // Compares the number too, so that no two disks have the same.
    let is_it =
        |member: &Member, disk: &Labelled| (member.guid, member.disk) == (disk.block.disk_guid, disk.block.disk);
    let is_member = |disk: &&Labelled| newest.members.iter().any(|member| is_it(member, disk));
    if let Some(stranger) = labelled.iter().find(|disk| !is_member(disk)) {
        let path = stranger.device.source.path.clone();
        let is_half_added = stranger.block.is_half_added();
        return Err(if is_half_added { CacheError::HalfAdded { path } } else { CacheError::NotAMember { path } });
    }
    let is_blank = |error: &CacheError| matches!(error, CacheError::NotACache { .. });
    match absent.iter().position(is_blank) {
        Some(blank) if labelled.len() == newest.members.len() => Err(absent.swap_remove(blank)),
        _ => Ok(()),
    }
}

/// Returns a sentence for each disk that is not used: which it is, as far as that is known, and why.
fn absences(absent: &[CacheError], missing: &[Member]) -> Vec<String> {
    if let ([error], [member]) = (absent, missing) {
        return vec![without(member.disk, member.guid, error)];
    }
    let nowhere = "it is at none of the paths";
    if absent.is_empty() {
        return missing.iter().map(|member| without(member.disk, member.guid, &nowhere)).collect();
    }

    // It is not known which path had which disk.
    let mut said: Vec<String> =
        absent.iter().map(|error| format!("the cache is opened without a disk and its blocks: {error}")).collect();
    let unnamed = missing.len().saturating_sub(absent.len());
    if unnamed > 0 {
        let names: Vec<String> =
            missing.iter().map(|member| format!("{} ({:032x})", member.disk, member.guid)).collect();
        said.push(format!("{unnamed} of the disks {} are at none of the paths", names.join(", ")));
    }
    said
}

fn without(disk: u16, guid: u128, why: &dyn std::fmt::Display) -> String {
    format!("the cache is opened without disk {disk} ({guid:032x}) and its blocks: {why}")
}

fn check_key(config: &CacheConfig, block: &Superblock) -> Result<(), CacheError> {
    match (&config.encryption_key, block.is_encrypted) {
        (None, false) => Ok(()),
        (None, true) => Err(CacheError::Key("the cache is encrypted: give its key (encryption_key_file)")),
        (Some(_), false) => {
            Err(CacheError::Key("the cache is not encrypted: leave the key out, or create it anew with one"))
        }
        (Some(key), true) if Cipher::new(key).key_check() == block.key_check => Ok(()),
        (Some(_), true) => Err(CacheError::Key("this is not the key that the cache was encrypted with")),
    }
}

impl Engine {
    /// Builds index, allocator and disks from the metadata on the disks.
    async fn load(
        &self,
        shard: &Shard,
        labelled: Vec<Labelled>,
        newest: &Superblock,
        writes: bool,
    ) -> Result<(), CacheError> {
        let mut other: HashMap<KeyHash, Vec<Entry>> = HashMap::new();
        let mut rejected: Vec<(KeyHash, Entry)> = Vec::new();
        let mut loaded: Vec<(Labelled, Result<FoundLog, ReplayError>)> = Vec::new();

        for disk in &labelled {
            self.tell_damage(disk, newest.generation);
            self.add_slabs_of(&disk.block);
        }
        let ends = {
            let mut apply = |record: &Record| self.apply(record, &mut other);
            let batch = RefCell::new(Batch::new(&mut apply));
            let ends = all(labelled.iter().map(|disk| self.replay(shard, disk, newest, &batch))).await;
            batch.borrow_mut().empty();
            ends
        };

        let mut last_number = newest.generation;
        let mut hung = None;
        for (disk, (number, found)) in labelled.into_iter().zip(ends) {
            last_number = last_number.max(number);
            match found {
                Err(ReplayError::Io(error)) if error.kind() == std::io::ErrorKind::TimedOut => {
                    let path = disk.device.source.path.clone();
                    let error = CacheError::Io { path, what: "cannot read its metadata", error };
                    lock(&self.findings).push(without(disk.block.disk, disk.block.disk_guid, &error));
                    self.unload(disk.block.disk, &mut other).await;
                    self.do_without(disk).await;
                    hung = Some(error);
                    continue;
                }
                Err(error) => {
                    let path = disk.device.source.path.display();
                    lock(&self.findings).push(format!("{path}: {error}; its blocks are lost"));
                    self.unload(disk.block.disk, &mut other).await;
                    loaded.push((disk, Err(error)));
                }
                found => loaded.push((disk, found)),
            }
        }
        let opening = self.take_number(last_number);

        for (_, found) in &loaded {
            let Ok(found) = found else { continue };
            self.claim_metadata(found.slabs.iter().chain(found.snapshot.iter().flat_map(|snapshot| &snapshot.slabs)));
        }
        self.claim_all(&mut rejected).await;
        // From here on no entry comes into the index: it would have no place in the allocator. Of two entries of a key
        // that both remain, the one that is not in the index is dropped.
        rejected
            .extend(other.into_iter().flat_map(|(hash, waiting)| waiting.into_iter().map(move |entry| (hash, entry))));
        for (disk, found) in loaded {
            if writes {
                self.make_room_for_log(&disk, &mut rejected).await;
            }
            self.take_in(disk, found, opening, writes).await?;
        }
        // Log the removals, or the next opening would find these entries again.
        rejected.iter().for_each(|(hash, entry)| self.note_remove(hash, entry));
        debug_assert_eq!(self.find_leak(), None, "the allocator and the index disagree");
        match hung {
            _ if !self.all_disks().is_empty() => Ok(()),
            Some(error) => Err(error),
            None => Err(CacheError::AllFailed),
        }
    }

    /// Reads the records of a disk's log into `batch`, if the disk is current. Returns the highest number of a
    /// checkpoint or opening that it knows, and its log.
    async fn replay(
        &self,
        shard: &Shard,
        disk: &Labelled,
        newest: &Superblock,
        batch: &RefCell<Batch<'_>>,
    ) -> (u64, Result<FoundLog, ReplayError>) {
        let (block, target) = (&disk.block, newest.generation);
        let from = Source { shard, file: &disk.device.file, class: self.classes.checkpoint };
        let mut number = block.generation;
        if number != target {
            let commits = match recover::commits(from, block).await {
                Ok(commits) => commits,
                Err(error) => return (number, Err(error)),
            };
            let is_current = commits.contains(&target) && !missed(newest, block.disk_guid);
            number = commits.into_iter().fold(number, u64::max);
            if !is_current {
                return (number, Err(ReplayError::Missed { last: block.generation, wanted: target }));
            }
        }
        let found = recover::replay(from, block, target, batch).await;
        (found.as_ref().map_or(number, |found| found.last_number), found)
    }

    /// Treats a disk that hangs as absent. The cache searches for it, and it keeps its blocks until a checkpoint is
    /// made without it.
    async fn do_without(&self, disk: Labelled) {
        let Labelled { device, block, .. } = disk;
        self.forget_slabs(block.disk).dismantle().await;
        self.follow_capacity();
        self.roster.set_source(block.disk_guid, device.source, device.slot);
    }

    /// Adds a finding if a superblock of the disk is damaged.
    fn tell_damage(&self, disk: &Labelled, target: u64) {
        let Some(what) = &disk.damage else { return };
        let (path, generation) = (disk.device.source.path.display(), disk.block.generation);
        let finding = format!(
            "{path}: one of its superblocks is not right ({what}); the other is of checkpoint {generation}, the cache \
             is opened as of {target}"
        );
        lock(&self.findings).push(finding);
    }

    /// Applies one record of a current disk to the index.
    fn apply(&self, record: &Record, other: &mut HashMap<KeyHash, Vec<Entry>>) {
        match record {
            Record::Put { hash, entry } => {
                // The disk's older entry, where another disk's has displaced it meanwhile.
                if let Some(waiting) = other.get_mut(hash) {
                    waiting.retain(|older| self.disk_of(older) != self.disk_of(entry));
                }
                if let Some(displaced) = self.index.restore(*hash, *entry)
                    && self.disk_of(&displaced) != self.disk_of(entry)
                {
                    // If the key left this disk later, this disk's log removes the entry again and the displaced one
                    // returns. If it came here, the other disk's log removes the displaced one.
                    other.entry(*hash).or_default().push(displaced);
                }
            }
            Record::Remove { hash, extent } => {
                if self.index.peek(hash).is_some_and(|entry| entry.extent == *extent) {
                    self.index.forget(hash);
                    if let Some(back) = other.get_mut(hash).and_then(Vec::pop) {
                        self.index.restore(*hash, back);
                    }
                } else if let Some(waiting) = other.get_mut(hash) {
                    waiting.retain(|entry| entry.extent != *extent);
                }
            }
            _ => {}
        }
    }

    fn disk_of(&self, entry: &Entry) -> Option<u16> {
        self.place(entry.extent.slab).map(|(disk, _)| disk)
    }

    /// Removes the entries of a disk whose metadata is damaged. Entries of other disks that they displaced return.
    async fn unload(&self, number: u16, other: &mut HashMap<KeyHash, Vec<Entry>>) {
        self.drop_entries(|_, entry| self.disk_of(entry) == Some(number)).await;
        for (hash, waiting) in other {
            waiting.retain(|entry| self.disk_of(entry) != Some(number));
            if self.index.peek(hash).is_none()
                && let Some(back) = waiting.pop()
            {
                self.index.restore(*hash, back);
            }
        }
    }

    /// Takes the entries for which `is_out` is true out of the index.
    async fn drop_entries(&self, mut is_out: impl FnMut(KeyHash, &Entry) -> bool) {
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            self.index.sweep(&mut cursor, ENTRIES_AT_ONCE, |hash, entry| {
                if is_out(hash, entry) { Verdict::Drop } else { Verdict::Keep }
            });
            yield_now().await;
        }
    }

    /// Claims the space of all entries in the allocator; drops entries whose place is taken.
    async fn claim_all(&self, rejected: &mut Vec<(KeyHash, Entry)>) {
        let mut cursor = Cursor::default();
        while !cursor.is_done() {
            self.claim_some(&mut cursor, rejected);
            yield_now().await;
        }
    }

    fn claim_some(&self, cursor: &mut Cursor, rejected: &mut Vec<(KeyHash, Entry)>) {
        let mut alloc = lock(&self.alloc);
        self.index.sweep(cursor, ENTRIES_AT_ONCE, |hash, entry| match alloc.claim(&entry.extent) {
            Ok(()) => Verdict::Keep,
            Err(_) => {
                rejected.push((hash, *entry));
                self.double_references.fetch_add(1, Relaxed);
                Verdict::Drop
            }
        });
    }

    /// Clears a slab of a disk that has no free one for its log. Adds the blocks that it held to `lost`.
    async fn make_room_for_log(&self, disk: &Labelled, lost: &mut Vec<(KeyHash, Entry)>) {
        let number = disk.block.disk;
        let cleared = {
            let mut alloc = lock(&self.alloc);
            if alloc.free_slabs(number) > 0 { None } else { alloc.clear_one(number) }
        };
        let Some(slab) = cleared else { return };
        let lost_before = lost.len();
        self.drop_entries(|hash, entry| {
            let is_out = entry.extent.slab == slab;
            if is_out {
                lost.push((hash, *entry));
            }
            is_out
        })
        .await;
        let (path, count) = (disk.device.source.path.display(), lost.len() - lost_before);
        let finding = format!("{path}: it had no free slab for its log; the {count} blocks of one slab are lost");
        lock(&self.findings).push(finding);
    }

    /// Adds a disk to the engine, with the log found or, if that cannot be used, a new one.
    async fn take_in(
        &self,
        disk: Labelled,
        found: Result<FoundLog, ReplayError>,
        opening: u64,
        writes: bool,
    ) -> Result<(), CacheError> {
        let Labelled { device, block, slot, .. } = disk;
        let (number, guid) = (block.disk, block.disk_guid);
        debug_assert!(self.disk(number).is_none(), "two disks of the cache have the number {number}");
        let path = device.source.path.clone();
        // A log that will never be written takes no slab.
        let mut real = || self.metadata_slab(number);
        let mut none = || Some((SlabId(SlabId::END), 0));
        let take: &mut dyn FnMut() -> Option<(SlabId, u64)> = if writes { &mut real } else { &mut none };

        let log = match found {
            Ok(found) => DiskLog::reopen(self.shape(guid), found, opening, take).ok(),
            Err(_) => DiskLog::new(self.shape(guid), take).ok(),
        };
        let log = match log {
            Some(log) => log,
            None => self.empty_disk(&block, &path).await?,
        };

        let identity = DiskIdentity { number, guid, path };
        let disk = self.make_disk(identity, device, log);
        disk.label_slot.store(slot, Relaxed);
        if self.roster.find(guid).is_some_and(|member| member.state == MemberState::Removing) {
            disk.judge(|health| health.set_removing(true));
            lock(&self.alloc).set_writable(number, false);
        }
        self.set_disk(number, Some(Arc::new(disk)));
        Ok(())
    }

    /// Empties a disk that has no free slab for its log, and returns a new log: the disk restarts without its blocks.
    async fn empty_disk(&self, block: &Superblock, path: &std::path::Path) -> Result<DiskLog, CacheError> {
        lock(&self.findings).push(format!("{}: it has no free slab for its log; its blocks are lost", path.display()));
        self.drop_entries(|_, entry| self.disk_of(entry) == Some(block.disk)).await;
        self.forget_slabs(block.disk).dismantle().await;
        self.add_slabs_of(block);
        self.new_log(block.disk, block.disk_guid, path)
    }

    /// Returns the number of this opening, higher than `last_number`. Checkpoints will have higher numbers still.
    fn take_number(&self, last_number: u64) -> u64 {
        // Leave a random gap: absent disks may know numbers that no present disk does. If two checkpoints had the same
        // number, they would count as one.
        let opening = last_number.saturating_add(1 + (random_u64() & 0xffff));
        // The label of an added disk has the number before that of a checkpoint, which must not be the opening's.
        self.upkeep.numbers.begin_after(opening.saturating_add(1));
        opening
    }

    /// Prepares an engine that was loaded for writing.
    fn begin_life(&self, sources: usize) {
        let first = self.host.disks.start + sources as u16;
        self.roster.set_free_slots(first..self.host.disks.end);
        self.set_reserves();
        // Now, while no insert waits for it.
        lock(&self.alloc).rank_claimed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Extent;

    fn entry(slab: u32) -> Entry {
        Entry { extent: Extent { slab: SlabId(slab), offset_units: 0, len_bytes: 4096 }, checksum: slab, tick: 0 }
    }

    /// Records of two disks come in any order. Disk 0 has stored the key twice, and removed it.
    #[test]
    fn an_entry_that_its_disk_has_replaced_does_not_come_back() {
        let hash = KeyHash([7; 10]);

        let (first, second) = (entry(0), entry(1));
        let other_disk = entry(10);
        let put = |entry: &Entry| Record::Put { hash, entry: *entry };
        let remove = |entry: &Entry| Record::Remove { hash, extent: entry.extent };
        let own = [put(&first), put(&second), remove(&second)];
        let others = [put(&other_disk), remove(&other_disk)];
        for order in ["00011", "00101", "00110", "01001", "01010", "01100", "10001", "10010", "10100", "11000"] {
            let (engine, mut displaced) = (Engine::of_a_test(), HashMap::new());
            for disk in 0..2 {
                let first = SlabId(u32::from(disk) * 10);
                engine.add_slabs(SlabRange { first, count: 10, disk, offset_bytes: label::SLABS_AT_BYTES });
            }
            let (mut own, mut others) = (own.iter(), others.iter());
            for disk in order.bytes() {
                let record = if disk == b'0' { own.next() } else { others.next() };
                engine.apply(record.unwrap(), &mut displaced);
            }
            assert_eq!(engine.index.peek(&hash), None, "{order}");
        }
    }
}
