//! Opens a cache from the metadata of its disks.
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

use std::path::PathBuf;

use plimsoll::{Handle, Shard};

use crate::alloc::Geometry;
use crate::config::{CacheConfig, DiskSource};
use crate::create::check_count;
use crate::crypt::Cipher;
use crate::engine::{CacheIdentity, Engine};
use crate::error::CacheError;
use crate::format::{Member, SlotError, Superblock};
use crate::host::HostParts;
use crate::label;
use crate::load::{Labelled, without};
use crate::race::all;
use crate::recover::{self, Found, Label, Source};
use crate::sync::lock;

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
    // Each cache that a disk is of, and its disks.
    let mut caches: Vec<(u128, Vec<PathBuf>)> = Vec::new();
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
        match caches.iter_mut().find(|(cache, _)| *cache == block.cache_guid) {
            Some((_, disks)) => disks.push(path),
            None => caches.push((block.cache_guid, vec![path])),
        }
        if let Err(error) = label::check_fit(&device, &block) {
            absent.push(error);
            continue;
        }
        labelled.push(Labelled { device, block: *block, slot, damage });
    }

    if caches.len() > 1 {
        caches.sort_by_key(|(_, disks)| std::cmp::Reverse(disks.len()));
        return Err(CacheError::SeveralCaches { caches });
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
