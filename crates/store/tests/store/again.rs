//! Objects that are read again stay open, and no longer than that.

use std::collections::HashSet;
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use object_store::local::LocalFileSystem;
use object_store::{Error, ObjectStoreExt, PutPayload};

use crate::world::{World, patterned};

/// Returns the files below `directory` that this process has open, and whether each has a name still.
fn open_files(directory: &FilePath) -> HashSet<(u64, bool)> {
    use std::os::unix::fs::MetadataExt;
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let below = descriptors.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(directory)));
    let files = below.filter_map(|entry| std::fs::metadata(entry.path()).ok().filter(std::fs::Metadata::is_file));
    files.map(|file| (file.ino(), file.nlink() > 0)).collect()
}

/// Waits until `is_so`: shards close files when they get to it.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_object_that_is_read_again_is_not_opened_again_and_every_change_is_seen() {
    let world = World::new(1).await;
    let (store, directory) = (&world.store, world.path().canonicalize().unwrap());
    let local = LocalFileSystem::new_with_prefix(&directory).unwrap();
    let read = async |name: &str| store.get_range(&name.into(), 1..4).await;
    let names = ["put", "upload", "copy", "rename", "elsewhere"];
    for name in names {
        store.put(&name.into(), "0123456789".into()).await.unwrap();
        for _ in 0..3 {
            assert_eq!(read(name).await.unwrap(), "123");
        }
        assert_eq!(store.head(&name.into()).await.unwrap(), local.head(&name.into()).await.unwrap());
    }
    wait_until("one descriptor each", || open_files(&directory).len() == names.len()).await;

    store.put(&"new".into(), "abcdefghij".into()).await.unwrap();
    store.put(&"put".into(), "abcdefghij".into()).await.unwrap();
    let mut upload = store.put_multipart(&"upload".into()).await.unwrap();
    upload.put_part(PutPayload::from("abcdefghij")).await.unwrap();
    upload.complete().await.unwrap();
    store.copy(&"new".into(), &"copy".into()).await.unwrap();
    store.rename(&"new".into(), &"rename".into()).await.unwrap();
    let is_named = || open_files(&directory).iter().all(|(_, is_named)| *is_named);
    wait_until("replaced files are closed", is_named).await;

    local.put(&"elsewhere".into(), "abcdefghij".into()).await.unwrap();
    for name in names {
        assert_eq!(read(name).await.unwrap(), "bcd", "{name}");
        assert_eq!(store.head(&name.into()).await.unwrap(), local.head(&name.into()).await.unwrap());
    }
    wait_until("a file that was replaced elsewhere is closed when it is read", is_named).await;

    store.delete(&"put".into()).await.unwrap();
    local.delete(&"elsewhere".into()).await.unwrap();
    for name in ["put", "elsewhere"] {
        assert!(matches!(read(name).await.unwrap_err(), Error::NotFound { .. }), "{name}");
    }
    wait_until("deleted files are closed", is_named).await;
    world.end().await;
}

#[tokio::test]
async fn a_thousand_objects_take_few_descriptors() {
    let world = World::new(1).await;
    let (store, directory) = (&world.store, world.path().canonicalize().unwrap());
    for number in 0..100_u8 {
        store.put(&format!("{number}").into(), patterned(5000, number).into()).await.unwrap();
    }
    for number in 0..1000_u32 {
        let (name, seed) = (format!("{}", number % 100), (number % 100) as u8);
        assert_eq!(store.get_range(&name.into(), 4090..5000).await.unwrap(), patterned(5000, seed)[4090..]);
    }
    wait_until("64 stay open", || open_files(&directory).len() == 64).await;
    world.end().await;
}
