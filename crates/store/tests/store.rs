//! The store from outside: object_store's own suite, a directory shared with `LocalFileSystem`, classes, and the
//! leftovers of writes that end early.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "store/again.rs"]
mod again;
#[path = "store/early.rs"]
mod early;
#[path = "store/refusing.rs"]
mod refusing;
#[path = "../../skip.rs"]
mod skip;
#[path = "store/world.rs"]
mod world;

use futures_util::future::join_all;
use futures_util::stream::{StreamExt, TryStreamExt};
use object_store::integration;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, Extensions, GetOptions, GetResultPayload, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, UpdateVersion,
};
use plimsoll::{Class, Classes, DiskSetup, Topology};
use plimsoll_store::{Operation, ScheduledStore};
use world::{World, patterned};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn the_suite_of_object_store_passes() {
    for shards in [1, 2] {
        let world = World::new(shards).await;
        let store = &world.store;
        integration::put_get_delete_list(store).await;
        integration::list_with_offset_exclusivity(store).await;
        integration::get_opts(store).await;
        integration::list_uses_directories_correctly(store).await;
        integration::list_with_delimiter(store).await;
        integration::rename_and_copy(store).await;
        integration::copy_if_not_exists(store).await;
        integration::copy_rename_nonexistent_object(store).await;
        integration::stream_get(store).await;
        integration::put_opts(store, false).await;
        integration::multipart_out_of_order(store).await;
        let missing = integration::get_nonexistent_object(store, None).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
        world.end().await;
    }
}

#[test]
fn no_executor_of_tokio_is_needed() {
    let world = block_on(World::new(1));
    block_on(async {
        world.store.put(&"a/b".into(), "sea water".into()).await.unwrap();
        assert_eq!(world.store.get_range(&"a/b".into(), 4..9).await.unwrap(), "water");
        world.end().await;
    });
}

/// Runs `future` on this thread alone.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Thread(std::thread::Thread);
    impl std::task::Wake for Thread {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Thread(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[tokio::test]
async fn objects_of_any_length_and_ranges_of_any_alignment() {
    let world = World::new(2).await;
    let local = LocalFileSystem::new_with_prefix(world.path()).unwrap();
    for len_bytes in [0, 1, 511, 512, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 10 * MIB + 1] {
        let (path, bytes) = (Path::from(format!("len/{len_bytes}")), patterned(len_bytes, 1));
        // In pieces, as writers collect them.
        world.store.put(&path, bytes.chunks(70_001).map(bytes::Bytes::copy_from_slice).collect()).await.unwrap();
        assert_eq!(world.store.head(&path).await.unwrap().size, len_bytes as u64);
        assert!(world.store.get(&path).await.unwrap().bytes().await.unwrap() == bytes, "{len_bytes}");
        assert!(local.get(&path).await.unwrap().bytes().await.unwrap() == bytes, "{len_bytes}, read by the other");

        let mut ranges = vec![];
        for from in [0, 1, 511, 4095, 4096, 5000, MIB - 3, len_bytes.saturating_sub(1)] {
            for len in [1, 2, 512, 4096, 65_536, 2 * MIB + 7] {
                ranges.push(from as u64..(from + len).min(len_bytes) as u64);
            }
        }
        ranges.retain(|range| range.start < range.end);
        let expected: Vec<&[u8]> =
            ranges.iter().map(|range| &bytes[range.start as usize..range.end as usize]).collect();
        for (range, expected) in ranges.iter().zip(&expected) {
            assert!(
                world.store.get_range(&path, range.clone()).await.unwrap() == *expected,
                "{range:?} of {len_bytes}"
            );
        }
        assert!(world.store.get_ranges(&path, &ranges).await.unwrap() == expected, "{len_bytes}");
        assert!(world.store.get_range(&path, len_bytes as u64..len_bytes as u64 + 1).await.is_err());
    }
    assert!(world.leftovers().is_empty());
    world.end().await;
}

#[tokio::test]
async fn uploads_have_parts_of_any_length() {
    let world = World::new(1).await;
    let path = Path::from("upload");
    let tables: [&[usize]; 6] =
        [&[], &[0], &[1, 1, 1], &[4096, 4096], &[5000, 0, 100, 3 * MIB + 1, 4095, 1], &[4095, 4098, 2 * MIB, 7]];
    for lengths in tables {
        let bytes = patterned(lengths.iter().sum(), 2);
        let mut upload = world.store.put_multipart(&path).await.unwrap();
        let (mut parts, mut place) = (vec![], 0);
        for len_bytes in lengths {
            parts.push(upload.put_part(bytes[place..place + len_bytes].to_vec().into()));
            place += len_bytes;
        }
        // Concurrently, the last one first.
        join_all(parts.into_iter().rev()).await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
        let put = upload.complete().await.unwrap();
        let meta = world.store.head(&path).await.unwrap();
        assert_eq!((put.e_tag, bytes.len() as u64), (meta.e_tag, meta.size));
        assert!(world.store.get(&path).await.unwrap().bytes().await.unwrap() == bytes, "{lengths:?}");
        assert!(upload.complete().await.is_err() && upload.abort().await.is_err());
        assert!(upload.put_part("x".into()).await.is_err());
    }

    // The advice could not be followed: that call had ended the upload.
    let mut early = world.store.put_multipart(&path).await.unwrap();
    let part = early.put_part(patterned(MIB, 3).into());
    let error = early.complete().await.unwrap_err().to_string();
    assert!(error.contains("upload: 0 of 1 parts were written: wait for all, then complete"), "{error}");
    part.await.unwrap();
    early.complete().await.unwrap();

    let before = world.store.head(&path).await.unwrap();
    let mut forgotten = world.store.put_multipart(&path).await.unwrap();
    drop(forgotten.put_part(patterned(MIB, 3).into()));
    assert!(forgotten.complete().await.is_err());
    forgotten.abort().await.unwrap();
    let mut aborted = world.store.put_multipart(&path).await.unwrap();
    aborted.put_part(patterned(MIB, 3).into()).await.unwrap();
    assert_eq!(
        world.store.list(None).map_ok(|meta| meta.location).try_collect::<Vec<_>>().await.unwrap(),
        std::slice::from_ref(&path)
    );
    aborted.abort().await.unwrap();
    assert_eq!(world.store.head(&path).await.unwrap(), before);
    assert!(world.leftovers().is_empty());
    world.end().await;
}

#[tokio::test]
async fn answers_are_streams_of_bounded_parts() {
    let world = World::new(1).await;
    let (path, bytes) = (Path::from("long"), patterned(3 * MIB + 5, 4));
    world.store.put(&path, bytes.clone().into()).await.unwrap();
    for (range, lengths) in [
        (0..bytes.len() as u64, vec![MIB, MIB, MIB, 5]),
        (4097..4097 + MIB as u64, vec![MIB]),
        (1..4 + 2 * MIB as u64, vec![MIB - 1, MIB, 4]),
    ] {
        let options = GetOptions::new().with_range(Some(range.clone()));
        let answer = world.store.get_opts(&path, options).await.unwrap();
        assert!(matches!(answer.payload, GetResultPayload::Stream(_)));
        assert_eq!(answer.range, range);
        let parts: Vec<_> = answer.into_stream().try_collect().await.unwrap();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), lengths);
        assert!(parts.concat() == bytes[range.start as usize..range.end as usize]);
    }

    // An open object stays readable, whatever becomes of its name; a dropped stream holds up no other.
    let mut stream = world.store.get(&path).await.unwrap().into_stream();
    let first = stream.next().await.unwrap().unwrap();
    world.store.put(&path, "another".into()).await.unwrap();
    let rest: Vec<_> = stream.try_collect().await.unwrap();
    assert!([first].iter().chain(&rest).flatten().copied().eq(bytes));
    drop(world.store.get(&path).await.unwrap());
    assert_eq!(world.store.get(&path).await.unwrap().bytes().await.unwrap(), "another");
    world.end().await;
}

#[tokio::test]
async fn either_store_reads_lists_and_replaces_what_the_other_wrote() {
    let world = World::new(1).await;
    let local = LocalFileSystem::new_with_prefix(world.path()).unwrap();
    let stores: [&dyn ObjectStore; 2] = [&world.store, &local];
    let names = ["a", "a b/c%2Fd", "deep/er/and/deeper", "ünïcode/#/x#y", "~!@$&'()+,;="];
    for name in names {
        let path = Path::from(name);
        for (number, writer) in stores.iter().enumerate() {
            let bytes = patterned(5000 + number, 5);
            let put = writer.put(&path, bytes.clone().into()).await.unwrap();
            for reader in stores {
                let answer = reader.get(&path).await.unwrap();
                assert_eq!((&answer.meta.e_tag, &answer.meta.location), (&put.e_tag, &path));
                assert!(answer.bytes().await.unwrap() == bytes, "{name}");
                let create = reader.put_opts(&path, "x".into(), PutMode::Create.into()).await.unwrap_err();
                assert!(matches!(create, Error::AlreadyExists { .. }), "{create}");
            }
        }
    }
    let mut lists = vec![];
    for store in stores {
        let mut list: Vec<_> = store.list(None).try_collect().await.unwrap();
        list.sort_by(|a, b| a.location.cmp(&b.location));
        lists.push(list);
    }
    assert_eq!(lists[0].len(), names.len());
    assert_eq!(lists[0], lists[1]);
    // A name that only temporary files have is refused by both.
    for store in stores {
        assert!(store.put(&Path::parse("a#1").unwrap(), "x".into()).await.is_err());
    }
    world.end().await;
}

#[tokio::test]
async fn a_copy_may_be_repeated_and_renamed() {
    let world = World::new(1).await;
    let (a, b) = (Path::from("a"), Path::from("x/b"));
    let names = || {
        let of = |directory: std::path::PathBuf| std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let entries = of(world.path().to_owned()).chain(of(world.path().join("x")));
        let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
        let mut names: Vec<String> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    world.store.put(&a, "ahoy".into()).await.unwrap();
    for to in [&b, &b, &a] {
        world.store.copy(&a, to).await.unwrap();
        assert_eq!(world.store.get(to).await.unwrap().bytes().await.unwrap(), "ahoy");
    }
    assert_eq!(names(), ["a", "b"], "no hidden names");

    // A copy is an object of its own.
    world.store.put(&a, "changed".into()).await.unwrap();
    assert_eq!(world.store.get(&b).await.unwrap().bytes().await.unwrap(), "ahoy");
    world.store.copy(&a, &b).await.unwrap();
    assert_eq!(world.store.get(&b).await.unwrap().bytes().await.unwrap(), "changed");

    world.store.rename(&a, &a).await.unwrap();
    world.store.rename(&a, &b).await.unwrap();
    assert_eq!(names(), ["b"]);
    assert_eq!(world.store.get(&b).await.unwrap().bytes().await.unwrap(), "changed");

    world.store.put(&a, "other".into()).await.unwrap();
    let there = world.store.rename_if_not_exists(&a, &b).await.unwrap_err();
    assert!(matches!(&there, Error::AlreadyExists { path, .. } if path.ends_with("x/b")), "{there}");
    world.store.rename_if_not_exists(&a, &"x/c".into()).await.unwrap();
    assert_eq!(names(), ["b", "c"]);
    assert_eq!(world.store.get(&b).await.unwrap().bytes().await.unwrap(), "changed");
    let missing = world.store.rename_if_not_exists(&a, &"x/d".into()).await.unwrap_err();
    assert!(matches!(&missing, Error::NotFound { path, .. } if path.ends_with("/a")), "{missing}");
    world.end().await;
}

/// `from` was removed after the rename if it was a copy of `to` by then, also if that copy had come after the rename.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_back_that_comes_after_a_rename_stays() {
    let world = World::new(1).await;
    let (a, b) = (Path::from("a"), Path::from("b"));
    for _ in 0..50 {
        world.store.put(&a, "ahoy".into()).await.unwrap();
        let copy_back = async {
            while !world.path().join("b").exists() {
                tokio::task::yield_now().await;
            }
            world.store.copy(&b, &a).await.unwrap();
        };
        tokio::join!(async { world.store.rename(&a, &b).await.unwrap() }, copy_back);
        assert_eq!(world.store.get(&a).await.unwrap().bytes().await.unwrap(), "ahoy");
        world.store.delete(&b).await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_rule_gives_each_operation_its_class() {
    let world = World::new(1).await;
    let classes: Vec<Class> =
        ["get", "get-ranges", "put", "upload"].map(|name| world.classes.add_class(name, None, 100).unwrap()).into();
    let by_operation = classes.clone();
    let store = world.store.clone().with_rule(move |operation, path, _| match operation {
        _ if path.prefix_matches(&Path::from("other")) => Class::DEFAULT,
        Operation::Get => by_operation[0],
        Operation::GetRanges => by_operation[1],
        Operation::Put => by_operation[2],
        Operation::PutMultipart => by_operation[3],
    });
    let (path, bytes) = (Path::from("ruled"), patterned(2 * MIB, 6));
    let before = world.done(&classes).await;

    store.put(&path, bytes.clone().into()).await.unwrap();
    let [put_writes, put_reads] = world.done(&classes[2..3]).await[0];
    assert_eq!((put_writes, put_reads), (2 * MIB as u64, 0));

    store.get(&path).await.unwrap().bytes().await.unwrap();
    store.get_ranges(&path, &[0..10, 8192..8292]).await.unwrap();
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part(bytes[..MIB].to_vec().into()).await.unwrap();
    upload.complete().await.unwrap();
    store.head(&path).await.unwrap();

    let mib = MIB as u64;
    let direct_range_bytes = if store.is_direct() { world.block_bytes().await } else { 0 };
    let done = world.done(&classes).await;
    assert_eq!(before, [[0; 2]; 4]);
    assert_eq!(done[0], [0, 2 * mib]);
    assert!(done[1][1] >= 110 && done[1][1] <= 110 + 3 * direct_range_bytes, "{done:?}");
    assert_eq!(done[2], [2 * mib, 0]);
    assert_eq!(done[3], [mib, 0]);

    // The default class, and a class among the extensions, which counts if there is no rule.
    let [default_before] = world.done(&[Class::DEFAULT]).await[..] else { unreachable!() };
    store.put(&"other/a".into(), patterned(4096, 7).into()).await.unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(classes[3]);
    let options = PutOptions { extensions, ..PutOptions::default() };
    world.store.put_opts(&path, patterned(4096, 7).into(), options).await.unwrap();
    let [default_after] = world.done(&[Class::DEFAULT]).await[..] else { unreachable!() };
    assert_eq!(default_after[0] - default_before[0], 4096);
    assert_eq!(world.done(&classes[3..]).await[0], [mib + 4096, 0]);
    world.end().await;
}

#[tokio::test]
async fn errors_are_object_stores_and_name_the_path() {
    let world = World::new(1).await;
    let store = &world.store;
    let missing = Path::from("not/there");
    for error in [
        store.get(&missing).await.map(drop).unwrap_err(),
        store.get_ranges(&missing, &[0..1, 5..6]).await.map(drop).unwrap_err(),
        store.head(&missing).await.map(drop).unwrap_err(),
        store.delete(&missing).await.unwrap_err(),
        store.copy(&missing, &"b".into()).await.unwrap_err(),
    ] {
        assert!(matches!(&error, Error::NotFound { path, .. } if path.ends_with("not/there")), "{error}");
    }
    store.put(&"file".into(), "x".into()).await.unwrap();
    let error = store.put_opts(&"file".into(), "y".into(), PutMode::Create.into()).await.unwrap_err();
    assert!(matches!(&error, Error::AlreadyExists { path, .. } if path.ends_with("/file")), "{error}");
    let error = store.put(&"file/below".into(), "y".into()).await.unwrap_err().to_string();
    assert!(error.contains("file/below"), "{error}");
    assert!(store.get_ranges(&"file".into(), &[0..1, 5..6]).await.is_err());

    let update = PutMode::Update(UpdateVersion { e_tag: None, version: None });
    let error = store.put_opts(&"file".into(), "y".into(), update.into()).await.unwrap_err();
    assert!(matches!(error, Error::NotImplemented { .. }), "{error}");
    let attributes = Attributes::from_iter([(Attribute::ContentType, "text/plain")]);
    let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
    let error = store.put_opts(&"file".into(), "y".into(), options).await.unwrap_err();
    assert!(matches!(error, Error::NotImplemented { .. }), "{error}");
    let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
    assert!(store.put_multipart_opts(&"file".into(), options).await.is_err());

    assert_eq!(store.get(&"file".into()).await.unwrap().bytes().await.unwrap(), "x", "it is as it was");
    assert!(world.leftovers().is_empty());

    let nowhere = ScheduledStore::open(world.runtime.any_shard(), world.path().join("nowhere")).await.unwrap_err();
    assert!(matches!(&nowhere, Error::NotFound { path, .. } if path.ends_with("nowhere")), "{nowhere}");
    world.end().await;
}

/// A program that ends must not take its own stopped shards for a broken disk.
#[tokio::test]
async fn an_error_keeps_its_kind() {
    let World { runtime, store, .. } = &World::new(1).await;
    store.put(&"file".into(), "x".into()).await.unwrap();
    runtime.any_shard().spawn(|shard| async move { shard.stop() }).unwrap();
    for error in [
        store.get_ranges(&"file".into(), std::slice::from_ref(&(0..1))).await.map(drop).unwrap_err(),
        store.put(&"other".into(), "y".into()).await.map(drop).unwrap_err(),
    ] {
        let Error::Generic { source, .. } = &error else { panic!("{error}") };
        let source = source.downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(source.kind(), std::io::ErrorKind::BrokenPipe, "{error}");
    }
}

#[tokio::test]
async fn a_directory_of_no_disk_is_refused() {
    let setup = DiskSetup { mountpoints: vec!["/proc".into()], ..DiskSetup::unlimited() };
    let topology = Topology::new(1, Classes::new(), vec![setup]).unwrap();
    let (runtime, directory) = (world::start(&topology), world::directory());
    let error = ScheduledStore::open(runtime.any_shard(), directory.path()).await.unwrap_err().to_string();
    assert!(error.contains("no disk holds"), "{error}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn direct_io_is_what_the_file_system_says() {
    let world = World::new(1).await;
    assert_eq!(world.store.is_direct(), skip::has_direct_io(world.path()));
    world.end().await;
}
