//! Disks that return, on real files.

use std::time::Duration;

use super::*;
use crate::cache::BlockCache;
use crate::config::{CacheConfig, CreateOptions};
use crate::host::HostOptions;
use crate::stats::DiskHealth;

#[path = "../../skip.rs"]
mod skip;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Waits for the keeper.
fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..2400 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within two minutes");
}

/// The path was not opened again as long as an operation on the old device had not ended. A second holder of its file
/// stands for that operation.
#[test]
fn a_disk_in_place_of_one_that_never_answers_is_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    if !skip::has_direct_io(directory.path()) {
        return;
    }
    let disks = ["a", "b"].map(|name| DiskSource::at(directory.path().join(name)));
    for disk in &disks {
        std::fs::File::create_new(&disk.path).unwrap().set_len(16 << 20).unwrap();
    }
    let options = CreateOptions { slab_bytes: Some(1 << 20), ..CreateOptions::default() };
    block_on(BlockCache::create(&options, &disks, &HostOptions::default())).unwrap();
    let copy = directory.path().join("copy");
    std::fs::copy(&disks[1].path, &copy).unwrap();

    let cache = block_on(BlockCache::open(CacheConfig::default(), &disks, &HostOptions::default())).unwrap();
    let engine = Arc::clone(cache.engine());
    let health = || cache.stats().disks[1].health;
    let old = engine.disk(1).unwrap();
    let held = Arc::clone(&old.file);
    old.judge(|health| health.set_failed("the test says so".to_owned()));
    drop(old);
    wait_until(|| engine.has_left(1));

    // The same device is not opened, whoever asks, and the old life keeps its lock.
    let again = |member: Option<Member>| {
        let own = Arc::clone(&engine);
        let place = Whereabouts { source: disks[1].clone(), slot: 1, member };
        let again = move |shard: Shard| async move { own.readmit(&shard, place).await };
        block_on(engine.first_handle().run(again)).unwrap()
    };
    let guid = engine.disk(1).unwrap().identity.guid;
    again(engine.roster.find(guid)).unwrap();
    assert_eq!(health(), DiskHealth::Failed);
    let error = again(None).unwrap_err();
    assert!(matches!(&error, CacheError::Io { error, .. } if error.kind() == io::ErrorKind::ResourceBusy), "{error}");

    std::fs::rename(&copy, &disks[1].path).unwrap();
    wait_until(|| health() == DiskHealth::Healthy);
    assert!(engine.held_disks().contains(&disks[1].path), "the old one is still held");
    drop(held);
    block_on(cache.close()).unwrap();
}
