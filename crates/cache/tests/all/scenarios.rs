//! The scenarios of this crate reach their targets. (`hot-disk` at full scale is `plimsoll sim run hot-disk`.)

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::world::Town;
use plimsoll_cache::scenario::all;
use plimsoll_cache::{CacheConfig, Inserted};

#[test]
fn scenarios_are_named_and_about_something() {
    let scenarios = all();
    let names: BTreeSet<_> = scenarios.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), scenarios.len());
    for scenario in scenarios {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        assert!(scenario.name.bytes().all(is_good) && !scenario.seed_items.is_empty(), "{}", scenario.name);
    }
}

#[test]
fn a_busy_cache_keeps_its_figures_and_is_the_same_twice() {
    let scenario = all().into_iter().find(|scenario| scenario.name == "busy-cache").unwrap();
    let parts = Mutex::new(Vec::new());
    // Both at once: one run takes longer than all other tests of a thread together.
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| (scenario.run)(1, &|_part| ()).unwrap());
        ((scenario.run)(1, &|part| parts.lock().unwrap().push(part)).unwrap(), second.join().unwrap())
    });
    for figure in &first.figures {
        assert!(figure.passed(), "{figure:?}");
    }
    assert_eq!((first.requests, first.log_hash), (second.requests, second.log_hash));

    let parts = parts.into_inner().unwrap();
    assert!(parts.len() > 10 && parts.is_sorted() && parts.last() == Some(&1.0), "{parts:?}");
}

/// Free space in slabs of another block size, and a little that is freeing: neither helps before slabs are emptied.
#[test]
fn blocks_of_another_size_find_space_without_waiting_for_the_next_checkpoint() {
    let town = Town::new(1, 64 << 20, 5);
    town.create(1 << 20);
    let hour = Duration::from_secs(3600);
    let life =
        town.open(&CacheConfig { checkpoint_interval: hour, target_free_blocks_pct: 10.0, ..CacheConfig::default() });
    let shard = life.runtime().shard(0).clone();
    let stored = life.run(async |cache| {
        for n in 0..3200_u32 {
            cache.insert(&n.to_le_bytes(), &[1; 16 << 10]).await.unwrap();
        }
        for n in (0..3200_u32).step_by(2) {
            cache.get(&n.to_le_bytes()).await.unwrap();
        }
        let mut stored = 0;
        for n in 10_000..20_000_u32 {
            match cache.insert(&n.to_le_bytes(), &[2; 8 << 10]).await.unwrap() {
                Inserted::Stored => stored += 1,
                Inserted::Dropped(_) => shard.sleep(Duration::from_millis(1)).await,
            }
        }
        stored
    });
    assert!(stored > 6000, "{stored} of 10,000 were stored");
}
