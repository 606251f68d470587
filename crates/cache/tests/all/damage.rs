//! Damage on disks, or during a read, costs at most the blocks that it hits, and never brings anything back.

use std::time::Duration;

use crate::world::{Town, value_of};
use plimsoll::backend::sim::{SimDiskState, SimFaults};
use plimsoll_cache::stats::{DiskHealth, DropReason};
use plimsoll_cache::{BlockCache, CacheConfig, Inserted, Lookup};

const SLAB_BYTES: u32 = 1 << 20;

/// Offsets of a disk's two superblocks, in bytes.
const SLOTS: [u64; 2] = [0, 32 << 10];
const SLOT_BYTES: usize = 4096;

/// Returns a configuration in which only the test requests checkpoints.
fn quiet() -> CacheConfig {
    CacheConfig {
        checkpoint_interval: Duration::from_secs(86_400),
        target_free_blocks_pct: 1.0,
        ..CacheConfig::default()
    }
}

fn key(n: u32) -> [u8; 4] {
    n.to_le_bytes()
}

async fn insert(cache: &BlockCache, keys: std::ops::Range<u32>) {
    for n in keys {
        let end = cache.insert(&key(n), &value_of(n, 3000)).await.unwrap();
        assert_eq!(end, plimsoll_cache::Inserted::Stored);
    }
}

async fn hits(cache: &BlockCache, keys: std::ops::Range<u32>) -> Vec<u32> {
    let mut hits = Vec::new();
    for n in keys {
        if let Lookup::Hit(block) = cache.get(&key(n)).await.unwrap() {
            assert_eq!(block[..], value_of(n, 3000), "{n}");
            hits.push(n);
        }
    }
    hits
}

/// Returns one disk at whose last acknowledged checkpoint blocks 0..10 are removed and 10..20 are there.
fn one_disk_with_a_removal() -> Town {
    let town = Town::new(1, 24 << 20, 3);
    town.create(SLAB_BYTES);
    let life = town.open(&quiet());
    life.run(async |cache| {
        insert(cache, 0..20).await;
        cache.checkpoint().await.unwrap();
        for n in 0..10 {
            assert!(cache.remove(&key(n)).await.unwrap());
        }
        cache.checkpoint().await.unwrap();
    });
    life.crash();
    town
}

#[test]
fn a_flipped_bit_in_one_superblock_brings_nothing_back() {
    for slot in SLOTS {
        let town = one_disk_with_a_removal();
        town.edit(0, slot, SLOT_BYTES, |bytes| bytes[50] ^= 4);
        let findings = town.inspect().findings;
        assert!(findings.iter().any(|finding| finding.contains("superblock")), "nobody is told: {findings:?}");
        let life = town.open(&quiet());
        life.run(async |cache| {
            assert_eq!(hits(cache, 0..20).await, (10..20).collect::<Vec<_>>(), "slot at {slot}");
            cache.checkpoint().await.unwrap();
        });
        life.crash();
        // The damaged superblock was the first to be rewritten.
        assert!(town.inspect().findings.is_empty());
    }
}

#[test]
fn what_was_damaged_on_its_way_at_an_opening_is_read_again() {
    let town = Town::new(2, 48 << 20, 7);
    town.create(SLAB_BYTES);
    let life = town.open(&quiet());
    // Long logs: a flipped bit is likely to hit valid records.
    life.run(async |cache| {
        for n in 0..12_000_u32 {
            assert_eq!(cache.insert(&key(n % 3000), b"short").await.unwrap(), Inserted::Stored);
        }
    });
    life.close();
    let blocks = town.inspect().stats.blocks;
    assert_eq!(blocks, 3000);
    town.world.set_faults(SimFaults { bit_flip_probability: 0.1, ..SimFaults::default() }).unwrap();
    for opening in 0..40 {
        assert_eq!(town.inspect().stats.blocks, blocks, "opening {opening}");
    }
}

/// Checks what keeps a disk from being used, and what the error says.
#[test]
fn one_bad_disk_does_not_keep_the_others_from_opening() {
    type Harm = fn(&Town);
    let zero = |town: &Town| SLOTS.iter().for_each(|slot| town.edit(1, *slot, SLOT_BYTES, |bytes| bytes.fill(0)));
    let spoil = |town: &Town| SLOTS.iter().for_each(|slot| town.edit(1, *slot, SLOT_BYTES, |bytes| bytes[60] ^= 1));
    let harms: [(&str, Harm, &str); 4] = [
        ("blank", zero, "it is empty"),
        ("damaged", spoil, "damaged"),
        ("shrunk", |town| town.set_len(1, 16 << 20), "disk1"),
        ("gone", |town| town.world.set_disk_state(1, SimDiskState::Gone).unwrap(), "disk1"),
    ];
    for (what, harm, says) in harms {
        let town = Town::new(3, 24 << 20, 4);
        town.create(SLAB_BYTES);
        let life = town.open(&quiet());
        life.run(async |cache| insert(cache, 0..300).await);
        life.close();
        harm(&town);
        let life = town.open(&quiet());
        life.run(async |cache| {
            let findings = cache.findings();
            assert!(findings.len() == 1 && findings[0].contains(says), "{what}: {findings:?}");
            let there = hits(cache, 0..300).await.len();
            assert!((150..300).contains(&there), "{what}: {there}");
            assert_eq!(cache.stats().disks[1].health, DiskHealth::Missing, "{what}");
            insert(cache, 300..400).await;
            cache.checkpoint().await.unwrap();
        });
        life.close();
    }
}

#[test]
fn a_disk_is_named_only_after_it_has_its_label() {
    let town = Town::new(3, 24 << 20, 5);
    town.create_of(SLAB_BYTES, &town.disks[..2]);
    let life = town.try_open_of(&quiet(), &town.disks[..2]).unwrap();
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        town.world.set_disk_state(2, SimDiskState::Slow { factor: 100_000.0 }).unwrap();
        let mut add = std::pin::pin!(cache.add_disk(&town.disks[2], true));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(add.as_mut().poll(&mut context).is_pending());
        shard.sleep(Duration::from_millis(100)).await;
        cache.checkpoint().await.unwrap();
    });
    life.crash();
    town.world.set_disk_state(2, SimDiskState::Healthy).unwrap();
    let life = town.try_open_of(&quiet(), &town.disks[..2]).unwrap();
    life.run(async |cache| assert_eq!(cache.stats().disks.len(), 2, "a disk that never joined is a member"));
}

#[test]
fn a_write_that_ends_after_its_disk_has_parted_is_not_stored() {
    let town = Town::new(2, 24 << 20, 6);
    town.create(SLAB_BYTES);
    let life = town.open(&quiet());
    let shard = life.runtime().shard(0).clone();
    life.run(async |cache| {
        // Writes in flight when the disk refuses new ones still take effect there.
        town.world.set_disk_state(1, SimDiskState::Slow { factor: 10_000.0 }).unwrap();
        let values: Vec<_> = (0..8).map(|n| value_of(n, 900_000)).collect();
        let mut late: Vec<_> = (0..8).map(|n| Box::pin(cache.insert(KEYS[n], &values[n]))).collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for insert in &mut late {
            assert!(insert.as_mut().poll(&mut context).is_pending());
        }
        shard.sleep(Duration::from_millis(1)).await;
        town.world.set_disk_state(1, SimDiskState::ReadOnly).unwrap();
        cache.checkpoint().await.unwrap();
        let mut dropped = 0;
        for insert in late {
            match insert.await.unwrap() {
                Inserted::Stored => {}
                Inserted::Dropped(DropReason::WriteFailed) => dropped += 1,
                Inserted::Dropped(other) => panic!("{other:?}"),
            }
        }
        let stats = cache.stats();
        let seen: Vec<_> =
            stats.disks.iter().map(|disk| (disk.health, disk.allocated_bytes, &disk.io["insert_write"])).collect();
        assert!(dropped > 0, "all of them say that they are stored: {seen:#?}");
    });
}

const KEYS: [&[u8]; 8] = [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7"];

#[test]
fn one_error_of_a_metadata_write_does_not_cost_a_disk() {
    for seed in 0..10 {
        let town = Town::new(2, 24 << 20, seed);
        town.create(SLAB_BYTES);
        let life = town.open(&quiet());
        life.run(async |cache| {
            insert(cache, 0..100).await;
            town.world.set_faults(SimFaults { write_error_probability: 0.2, ..SimFaults::default() }).unwrap();
            cache.checkpoint().await.unwrap();
            town.world.set_faults(SimFaults::default()).unwrap();
            let health: Vec<_> = cache.stats().disks.iter().map(|disk| disk.health).collect();
            assert_eq!(health, [DiskHealth::Healthy; 2], "seed {seed}");
        });
        life.crash();
        let life = town.open(&quiet());
        assert_eq!(life.run(async |cache| hits(cache, 0..100).await.len()), 100, "seed {seed}");
        life.crash();
    }
}
