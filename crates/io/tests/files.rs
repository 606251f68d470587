//! Files that several shards use: made once, closed when the last holder lets go, numbers used again without confusion.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use common::skip::skip;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use common::{CREATE, EXISTING, TempDir, block_on, filled, has_pattern, usable_kinds, within_reason};
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Classes, DiskSetup, Reactor, Runtime, Shard, ShardOptions, Topology};

const BLOCK: usize = 4096;

/// Descriptors are the whole process's: these tests take turns.
static DESCRIPTORS: Mutex<()> = Mutex::new(());

/// How many descriptors of this process are open on files below `dir`.
fn open_files_in(dir: &Path) -> Option<usize> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Some(targets.filter(|target| target.starts_with(dir)).count())
}

fn real_kinds() -> Vec<BackendKind> {
    usable_kinds().into_iter().filter(|kind| *kind != BackendKind::Memory).collect()
}

#[test]
fn one_file_on_two_shards_is_made_once_and_closed_after_the_last() {
    let _turn = DESCRIPTORS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for kind in real_kinds() {
        within_reason(move || {
            let dir = TempDir::new("files");
            let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let options = ShardOptions { backend: Some(kind), pin: false, entries: 64 };
            let runtime = Runtime::start(&topology, &options).unwrap();
            let file = topology.file(&dir.path().join("file"), CREATE, 0);
            for shard in [0, 1, 0, 1_u16] {
                let (handle, at) = (runtime.handle(shard), u64::from(shard) * 4096);
                let (written, _) = block_on(handle.write_at(&file, Class::DEFAULT, at, filled(BLOCK, 1, at)));
                assert_eq!(written.unwrap(), BLOCK);
            }
            let read = AlignedBuf::new(2 * BLOCK).unwrap();
            let handle = runtime.handle(1);
            let (read, buffer) = block_on(handle.read_at(&file, Class::DEFAULT, 0, read));
            assert!(read.unwrap() == 2 * BLOCK && has_pattern(&buffer, 1, 0));
            let Some(open) = open_files_in(dir.path()) else {
                skip("no /proc/self/fd here");
                return;
            };
            assert_eq!(open, 2, "once on each shard");
            drop(file);
            // The message that closes is read before the job that is sent after it has run; a ring may close later.
            for shard in [0, 1] {
                block_on(runtime.handle(shard).run(|_| async {})).unwrap();
            }
            for _ in 0..1000 {
                if open_files_in(dir.path()) == Some(0) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            assert_eq!(open_files_in(dir.path()), Some(0), "{kind}");
            runtime.stop().unwrap();
        });
    }
}

#[test]
fn an_existing_file_is_never_taken_for_a_new_one() {
    for kind in real_kinds() {
        let dir = TempDir::new("exists");
        let path = dir.path().join("file");
        std::fs::write(&path, b"precious").unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, kind.make(8).unwrap()));
        let file = topology.file(&path, CREATE, 0);
        let (written, _) = shard.block_on(shard.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 1, 0))).unwrap();
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists, "{kind}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}

/// The number of a closed file is used again at once, with and without a turn of the shard in between.
#[test]
fn numbers_of_files_are_used_again_without_confusion() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let shard = Shard::new(Reactor::new(0, &topology, common::memory()));
    shard
        .block_on(async {
            for n in 0..200_u64 {
                let path = format!("file-{n}");
                let file = topology.file(path.as_ref(), CREATE, 0);
                let (written, _) = shard.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, n, 0)).await;
                written.unwrap();
                drop(file);
                if n % 2 == 0 {
                    shard.sleep(std::time::Duration::from_micros(1)).await;
                }
                let file = topology.file(path.as_ref(), EXISTING, 0);
                let (read, buffer) = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(BLOCK).unwrap()).await;
                assert!(read.unwrap() == BLOCK && has_pattern(&buffer, n, 0), "file {n}");
            }
        })
        .unwrap();
}

#[test]
fn a_file_stays_open_while_a_request_needs_it() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let shard = Shard::new(Reactor::new(0, &topology, common::deferred()));
    let file = topology.file("file".as_ref(), CREATE, 0);
    let (task, only_holder) = (shard.clone(), Arc::clone(&file));
    let write = shard.spawn(async move {
        let write = task.write_at(&only_holder, Class::DEFAULT, 0, filled(BLOCK, 1, 0));
        let mut write = Box::pin(write);
        assert!(common::poll_once(write.as_mut()).is_pending());
    });
    drop(file);
    shard.block_on(write).unwrap();
    let end = topology.file("file".as_ref(), EXISTING, 0);
    let (read, _) = shard.block_on(shard.read_at(&end, Class::DEFAULT, 0, AlignedBuf::new(BLOCK).unwrap())).unwrap();
    // The write was dropped before it went out, or after; the shard is well either way.
    assert!(read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound));
}
