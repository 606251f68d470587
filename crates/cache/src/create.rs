//! Creates a cache: labels its disks.
//!
//! # How it works
//! All disks are opened, locked and checked before the first is written. Each gets a log and superblocks of the
//! generation before the first; a first checkpoint makes them one cache.
//!
//! # Example
//! Two disks of 100 and 200 slabs: slabs 0 to 99 are of disk 0, 100 to 299 of disk 1.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll::{Handle, Shard};

use crate::alloc::{Geometry, SlabRange};
use crate::config::{CacheConfig, CreateOptions, DiskSource};
use crate::crypt::Cipher;
use crate::disk::DiskIdentity;
use crate::engine::{CacheIdentity, Engine};
use crate::entry::{MAX_SLAB_BYTES, MIN_SLAB_BYTES, SlabId};
use crate::error::CacheError;
use crate::format::{Member, MemberState};
use crate::host::{HostParts, too_few_disks};
use crate::label::{self, Prepared};
use crate::random::{random_u64, random_u128};

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

pub(crate) fn check_count(host: &HostParts, sources: &[DiskSource]) -> Result<(), CacheError> {
    match sources.len() {
        0 => Err(CacheError::NoDisks),
        count if count > host.disks.len() => Err(too_few_disks()),
        _ => Ok(()),
    }
}
