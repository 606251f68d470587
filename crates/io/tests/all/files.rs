//! Files that several shards use: made once, closed when the last holder lets go, numbers used again without confusion.

use crate::common;
use crate::common::skip::skip;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use crate::common::nasty::{Faults, Nasty};
use crate::common::{CREATE, EXISTING, TempDir, block_on, filled, has_pattern, usable_kinds, within_reason};
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::sim::{SimConfig, SimWorld};
use plimsoll::backend::{Backend, OpenOptions};
use plimsoll::buffer::AlignedBuf;
use plimsoll::{
    Class, Classes, Data, DiskSetup, Reactor, Request, RequestKind, Runtime, Shard, ShardOptions, SimRuntime, Topology,
};

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
            assert_eq!(open, 1, "one descriptor, whatever the number of shards");
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

/// Writes `seed`'s pattern through shard 0, has the name lead elsewhere by `replace`, and reads through shard 1.
fn check_after_replacing(what: &str, topology: &Topology, path: &Path, shards: [Shard; 2], replace: impl Fn()) {
    let file = topology.file(path, CREATE, 0);
    let [zero, one] = shards;
    let (written, _) = zero.block_on(zero.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 1, 0))).unwrap();
    assert_eq!(written.unwrap(), BLOCK, "{what}");
    replace();
    let block = AlignedBuf::new(BLOCK).unwrap();
    let (read, block) = one.block_on(one.read_at(&file, Class::DEFAULT, 0, block)).unwrap();
    assert!(read.unwrap() == BLOCK && has_pattern(&block, 1, 0), "{what}: shard 1 reads another file than shard 0");
    let (written, _) = one.block_on(one.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 3, 0))).unwrap();
    assert_eq!(written.unwrap(), BLOCK, "{what}");
    let block = AlignedBuf::new(BLOCK).unwrap();
    let (read, block) = zero.block_on(zero.read_at(&file, Class::DEFAULT, 0, block)).unwrap();
    assert!(read.unwrap() == BLOCK && has_pattern(&block, 3, 0), "{what}: shard 0 does not see what shard 1 wrote");
}

#[test]
fn shards_share_one_file_also_after_its_name_leads_to_another() {
    for kind in real_kinds() {
        within_reason(move || {
            let dir = TempDir::new("renamed");
            let path = dir.path().join("file");
            let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let shards = [0, 1].map(|n| Shard::new(Reactor::new(n, &topology, kind.make(8).unwrap()).unwrap()));
            check_after_replacing(kind.name(), &topology, &path, shards, || {
                std::fs::rename(&path, dir.path().join("old")).unwrap();
                std::fs::write(&path, vec![2; BLOCK]).unwrap();
            });
            assert_eq!(std::fs::read(&path).unwrap(), vec![2; BLOCK], "{kind}: the new file was written to");
        });
    }
}

#[test]
fn shards_share_one_file_in_memory_also_after_its_name_leads_to_another() {
    let store = MemoryStore::default();
    let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let shards =
        [0, 1].map(|n| Shard::new(Reactor::new(n, &topology, Box::new(MemoryBackend::new(&store).unwrap())).unwrap()));
    check_after_replacing("memory", &topology, "file".as_ref(), shards, || {
        assert!(store.remove("file".as_ref()));
        let mut other = MemoryBackend::new(&store).unwrap();
        other.open("file".as_ref(), &CREATE).unwrap();
    });
}

/// One shard may have got io_uring and the next only threads.
#[test]
fn backends_of_one_family_share_files_and_others_say_so() {
    let dir = TempDir::new("families");
    let kinds = usable_kinds();
    for (n, opener) in kinds.iter().enumerate() {
        let mut first = opener.make(8).unwrap();
        let opened = first.open_shared(&dir.path().join(n.to_string()), &CREATE).unwrap();
        let (file, _) = first.attach(&opened).unwrap();
        first.set_file_len(file, 12_288).unwrap();
        for other in &kinds {
            let mut second = other.make(8).unwrap();
            let in_memory = [opener, other].map(|kind| *kind == BackendKind::Memory);
            match second.attach(&opened) {
                Ok((file, info)) => {
                    assert_eq!(in_memory[0], in_memory[1], "{opener} and {other}");
                    assert_eq!((info.len_bytes, second.file_len(file).unwrap()), (12_288, 12_288));
                }
                Err(error) => {
                    assert_ne!(in_memory[0], in_memory[1], "{opener} and {other}");
                    assert!(error.to_string().contains("same backend"), "{error}");
                }
            }
        }
    }
}

/// Simulated files are never renamed; what can differ there is who creates the file.
#[test]
fn shards_share_one_file_in_a_simulated_world() {
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    for (writer, reader, seed) in [(0, 1, 1), (1, 0, 2)] {
        let (writer, reader) = (runtime.shard(writer).clone(), runtime.shard(reader).clone());
        let (own, block) = (Arc::clone(&file), filled(BLOCK, seed, 0));
        let write = async move { writer.write_at(&own, Class::DEFAULT, 0, block).await.0 };
        assert_eq!(runtime.block_on(0, write).unwrap().unwrap(), BLOCK);
        let (own, block) = (Arc::clone(&file), AlignedBuf::new(BLOCK).unwrap());
        let read = async move { reader.read_at(&own, Class::DEFAULT, 0, block).await };
        let (read, block) = runtime.block_on(0, read).unwrap();
        assert!(read.unwrap() == BLOCK && has_pattern(&block, seed, 0));
    }
}

#[test]
fn a_failed_open_keeps_the_systems_error_number() {
    for kind in real_kinds() {
        let dir = TempDir::new("errors");
        let at = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
        std::fs::write(at("plain"), b"x").unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, kind.make(8).unwrap()).unwrap());
        let mut cases = vec![
            (at("missing"), EXISTING, libc::ENOENT),
            (at("plain"), CREATE, libc::EEXIST),
            (at("loop"), EXISTING, libc::ELOOP),
            (at("plain").join("below"), EXISTING, libc::ENOTDIR),
            (at(&"x".repeat(300)), EXISTING, libc::ENAMETOOLONG),
            (dir.path().to_owned(), EXISTING, libc::EISDIR),
        ];
        // A program that runs, as this test does, cannot be written to but on a few versions of the kernel.
        let own = std::env::current_exe().unwrap();
        let refused = std::fs::File::options().read(true).write(true).open(&own).err();
        cases.extend(refused.and_then(|error| Some((own, EXISTING, error.raw_os_error()?))));
        for (path, how, errno) in cases {
            let file = topology.file(&path, how, 0);
            let block = AlignedBuf::new(BLOCK).unwrap();
            let (read, _) = shard.block_on(shard.read_at(&file, Class::DEFAULT, 0, block)).unwrap();
            assert_eq!(read.unwrap_err().raw_os_error(), Some(errno), "{kind}: {}", path.display());
            let error = shard.reactor().open(&file).unwrap_err();
            assert!(error.to_string().contains("cannot open"), "{kind}: {error}");
        }
    }
}

#[test]
fn an_existing_file_is_never_taken_for_a_new_one() {
    for kind in real_kinds() {
        let dir = TempDir::new("exists");
        let path = dir.path().join("file");
        std::fs::write(&path, b"precious").unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, kind.make(8).unwrap()).unwrap());
        let file = topology.file(&path, CREATE, 0);
        let (written, _) = shard.block_on(shard.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 1, 0))).unwrap();
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists, "{kind}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}

/// Numbers of closed files are used again, with and without a turn of the shard since the last was closed.
#[test]
fn numbers_of_files_are_used_again_without_confusion() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let shard = Shard::new(Reactor::new(0, &topology, common::memory()).unwrap());
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

/// The request under way is all that holds the file.
#[test]
fn a_file_stays_open_while_a_request_needs_it() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let mut reactor = Reactor::new(0, &topology, common::deferred()).unwrap();
    let mut run = |how, kind, data| {
        let file = topology.file("file".as_ref(), how, 0);
        reactor.submit(Request { file, class: Class::DEFAULT, kind, offset: 0, data, tag: 0 }).unwrap();
        reactor.dispatch();
        assert_eq!(reactor.in_backend(), 1);
        let mut done = Vec::new();
        while done.is_empty() {
            reactor.park(None).unwrap();
            reactor.reap(&mut done);
        }
        assert_eq!(done[0].result, Ok(BLOCK as u32));
        done.remove(0).data
    };
    let len_bytes = BLOCK as u32;
    run(CREATE, RequestKind::Write { len_bytes }, Data::One(filled(BLOCK, 1, 0)));
    // The file that was written was closed: this one is opened anew.
    let read = run(EXISTING, RequestKind::Read { len_bytes }, common::one(BLOCK));
    assert!(matches!(read, Data::One(buffer) if has_pattern(&buffer, 1, 0)));
}

/// The kernel tells a failed writeback to one sync, and the next one knows nothing of the pages that are lost.
#[test]
fn a_buffered_file_that_lost_pages_never_says_that_it_is_durable() {
    for direct in [false, true] {
        for errno in [libc::EIO, libc::ENOSPC, libc::ENOMEM] {
            let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let faults = Faults { error_percent: 50, errno, ..Faults::default() };
            let mut reactor = Reactor::new(0, &topology, Nasty::boxed(faults)).unwrap();
            let file = topology.file("file".as_ref(), OpenOptions { direct, ..CREATE }, 0);
            let mut done = Vec::new();
            for number in 0..40 {
                let kind = RequestKind::Sync { data_only: number % 2 == 0 };
                let (file, class) = (Arc::clone(&file), Class::DEFAULT);
                reactor.submit(Request { file, class, kind, offset: 0, data: Data::None, tag: number }).unwrap();
                while done.len() as u64 <= number {
                    reactor.park(None).unwrap();
                    reactor.reap(&mut done);
                }
            }
            let first = done.iter().position(|done| done.result.is_err()).unwrap();
            let later = done[first..].iter().filter(|done| done.result.is_ok()).count();
            let is_lost = !direct && errno != libc::ENOMEM;
            assert_eq!(later == 0, is_lost, "direct {direct}, error {errno}: {later} after sync {first}");
        }
    }
}
