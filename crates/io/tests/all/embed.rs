//! The library as a program on Tokio uses it: files through any shard, ranges, classes, cancelling, and the end.

use crate::common;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::common::skip::skip;
use crate::common::{
    CREATE, EXISTING, TempDir, block_on, disk, filled, has_pattern, poll_once, usable_kinds, within_reason,
};
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::error_number;
use plimsoll::backend::sim::{SimConfig, SimDiskState, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::LatencyGoal;
use plimsoll::sys::pin;
use plimsoll::{Class, Classes, DiskSetup, File, OpenOptions, Runtime, ShardOptions, SimRuntime, Topology};

const DIRECTORY: OpenOptions =
    OpenOptions { write: false, create_new: false, direct: false, dsync: false, directory: true };

fn options(kind: BackendKind) -> ShardOptions {
    ShardOptions { backend: Some(kind), pin: false, entries: 64 }
}

fn start(shards: u16, kind: BackendKind) -> (Runtime, Topology) {
    let topology = Topology::new(shards, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    (Runtime::start(&topology, &options(kind)).unwrap(), topology)
}

/// Where direct I/O is likely: the disk of the build, not a temporary file system in memory.
fn place(kind: BackendKind, name: &str) -> (TempDir, String) {
    let dir = TempDir::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")), &format!("{name}-{kind:?}"));
    let file = dir.path().join("file").display().to_string();
    (dir, file)
}

/// A new file, open for direct I/O where the machine and the backend have that.
async fn create(runtime: &Runtime, path: &str, direct: bool) -> io::Result<File> {
    let handle = runtime.any_shard();
    match handle.open(path, &OpenOptions { direct, ..CREATE }).await {
        Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
            skip(&error);
            handle.open(path, &CREATE).await
        }
        opened => opened,
    }
}

const LEN_BYTES: usize = 65_536 - 1234;

async fn ranges(file: &File) {
    file.write_all_at(0, &filled(65_536, 3, 0)[..]).await.unwrap();
    file.set_len(LEN_BYTES as u64).await.unwrap();
    file.sync_all().await.unwrap();
    assert_eq!(file.len_bytes().await.unwrap(), LEN_BYTES as u64);
    // Offset, length, and how much of it there is.
    let table = [
        (0, 0, 0),
        (0, 1, 1),
        (1, 1, 1),
        (511, 2, 2),
        (4095, 4098, 4098),
        (4096, 4096, 4096),
        (12_345, 20_000, 20_000),
        (0, LEN_BYTES, LEN_BYTES),
        (LEN_BYTES as u64 - 10, 10, 10),
        (LEN_BYTES as u64 - 10, 100, 10),
        (LEN_BYTES as u64, 5, 0),
        (LEN_BYTES as u64 + 100, 5, 0),
        (1 << 40, 5, 0),
    ];
    for (offset, len_bytes, expected) in table {
        let read = file.read_at(offset, len_bytes).await.unwrap();
        assert!(read.len() == expected && has_pattern(&read, 3, offset), "{len_bytes} at {offset}: {read:?}");
        let exact = file.read_exact_at(offset, len_bytes).await;
        match exact {
            Ok(read) => assert!(expected == len_bytes && has_pattern(&read, 3, offset), "{len_bytes} at {offset}"),
            Err(error) => {
                assert!(expected < len_bytes && error.kind() == io::ErrorKind::UnexpectedEof, "{error}");
                let end = match expected {
                    0 => format!("ends at or before {offset}"),
                    some => format!("ends {some} bytes after {offset}"),
                };
                assert!(error.to_string().contains(&end), "{error}");
            }
        }
    }
    // Memory that is used again: what an earlier request had left behind the file's end is not given out.
    let mut used = file.buffer(40 << 10).unwrap();
    used.fill(0xee);
    drop(used);
    let tail = file.read_at(LEN_BYTES as u64 - 10, 40_000).await.unwrap();
    assert_eq!(tail.len(), 10);
    let buffer = tail.into_buffer();
    let end = buffer.len() - buffer.iter().rev().take_while(|byte| **byte == 0).count();
    assert!(buffer.len() >= 40_000 && end <= 4096, "{end} of {} bytes are not zero", buffer.len());

    let bytes = bytes::Bytes::from_owner(file.read_exact_at(777, 1000).await.unwrap());
    assert!(has_pattern(&bytes, 3, 777));
    let far = file.read_at(u64::MAX - 3, 2).await.unwrap_err();
    assert!(far.to_string().contains("beyond the longest file"), "{far}");
}

/// Runs `body` with a runtime on each backend, and the path of a file that is not there yet.
fn on_each_backend(name: &'static str, shards: u16, body: impl AsyncFn(&Runtime, &str) + Copy + Send + 'static) {
    for kind in usable_kinds() {
        within_reason(move || {
            let (_dir, path) = place(kind, name);
            let (runtime, _) = start(shards, kind);
            block_on(body(&runtime, &path));
            runtime.stop().unwrap();
        });
    }
}

#[test]
fn any_range_is_read_on_every_backend_direct_and_buffered() {
    for direct in [true, false] {
        on_each_backend("ranges", 2, async move |runtime, path| {
            ranges(&create(runtime, path, direct).await.unwrap()).await;
        });
    }
}

#[test]
fn a_write_that_is_no_whole_block_is_refused_on_a_direct_file() {
    on_each_backend("blocks", 1, async |runtime, path| {
        let file = create(runtime, path, true).await.unwrap();
        let block_bytes = file.info().offset_align_bytes;
        if block_bytes == 1 {
            file.write_all_at(7, b"anything").await.unwrap();
            return;
        }
        for (offset, len_bytes) in [(0, 7), (7, 4096), (1, 1)] {
            let error = file.write_all_at(offset, vec![1; len_bytes]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let text = error.to_string();
            let blocks = format!("whole blocks of {block_bytes} bytes");
            assert!(text.contains(path) && text.contains(&blocks) && text.contains("set_len"), "{text}");
            let (end, back) = file.read_buffer_at(offset, AlignedBuf::new(len_bytes).unwrap()).await;
            assert_eq!((end.unwrap_err().kind(), back.len()), (io::ErrorKind::InvalidInput, len_bytes));
        }
        assert_eq!(file.len_bytes().await.unwrap(), 0, "nothing was written");
    });
}

#[test]
fn a_file_that_is_only_read_says_how_it_was_opened() {
    on_each_backend("only-read", 1, async |runtime, path| {
        create(runtime, path, false).await.unwrap().write_all_at(0, [1; 8192]).await.unwrap();
        let file = runtime.any_shard().open(path, &OpenOptions::default()).await.unwrap();
        let (end, back) = file.write_buffer_at(0, AlignedBuf::new(4096).unwrap()).await;
        assert_eq!(back.len(), 4096);
        let errors = [
            file.write_all_at(0, [2; 4096]).await.unwrap_err(),
            end.unwrap_err(),
            file.set_len(5).await.unwrap_err(),
            file.discard(0, 4096).await.unwrap_err(),
            file.allocate(0, 4096, true).await.unwrap_err(),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains(path) && text.contains("opened for reading only: set `write`"), "{text}");
            assert_eq!(error_number(&error), 9, "EBADF");
        }
        assert_eq!(file.read_exact_at(0, 8192).await.unwrap()[..], [1; 8192]);
    });
}

#[test]
fn an_error_of_the_system_names_the_operation_and_the_path() {
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let errors = runtime.block_on(0, async {
        let file = runtime.any_shard().open("/data/table", &CREATE).await.unwrap();
        file.write_all_at(0, [1; 8192]).await.unwrap();
        world.set_disk_state(0, SimDiskState::Failed).unwrap();
        let buffer = || AlignedBuf::new(4096).unwrap();
        [
            ("read 5 bytes at 4099 of", file.read_at(4099, 5).await.unwrap_err()),
            ("read 7 bytes at 0 of", file.read_exact_at(0, 7).await.unwrap_err()),
            ("read 4096 bytes at 4096 of", file.read_buffer_at(4096, buffer()).await.0.unwrap_err()),
            ("write 512 bytes at 512 of", file.write_all_at(512, [1; 512]).await.unwrap_err()),
            ("write 4096 bytes at 8192 of", file.write_buffer_at(8192, buffer()).await.0.unwrap_err()),
            ("sync", file.sync_all().await.unwrap_err()),
            ("sync", file.sync_data().await.unwrap_err()),
            ("find the length of", file.len_bytes().await.unwrap_err()),
            ("set the length 512 of", file.set_len(512).await.unwrap_err()),
            ("discard 512 bytes at 1024 of", file.discard(1024, 512).await.unwrap_err()),
            ("allocate 512 bytes at 9216 of", file.allocate(9216, 512, false).await.unwrap_err()),
        ]
    });
    let system = io::Error::from_raw_os_error(libc::EIO);
    for (operation, error) in errors.unwrap() {
        assert_eq!(error.to_string(), format!("cannot {operation} /data/table: {system}"));
        assert_eq!((error.kind(), error_number(&error)), (system.kind(), libc::EIO));
    }
}

#[test]
fn a_range_that_no_file_has_is_refused_in_words() {
    let (runtime, _) = start(1, BackendKind::Memory);
    block_on(async {
        let file = runtime.any_shard().open("file", &CREATE).await.unwrap();
        for offset in [i64::MAX as u64 - 4095, u64::MAX - 4095, u64::MAX] {
            let errors = [
                file.write_all_at(offset, [1; 4096]).await.unwrap_err(),
                file.write_buffer_at(offset, AlignedBuf::new(4096).unwrap()).await.0.unwrap_err(),
                file.read_buffer_at(offset, AlignedBuf::new(4096).unwrap()).await.0.unwrap_err(),
                file.discard(offset, 4096).await.unwrap_err(),
                file.allocate(offset, 4096, false).await.unwrap_err(),
                file.set_len(u64::MAX).await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                assert!(error.to_string().contains("beyond the longest file"), "{error}");
            }
        }
    });
    runtime.stop().unwrap();
}

/// Returns a buffer of whole blocks at an address that direct I/O refuses, if the allocator has one.
fn misaligned(file: &File) -> Option<AlignedBuf> {
    let len_bytes = file.info().offset_align_bytes as usize;
    let buffers: Vec<_> = (0..64).map(|_| AlignedBuf::with_align(len_bytes, 1).unwrap()).collect();
    buffers.into_iter().find(|buffer| !buffer.as_ptr().addr().is_multiple_of(file.info().memory_align_bytes as usize))
}

#[test]
fn a_misaligned_buffer_is_refused_on_a_direct_file() {
    on_each_backend("misaligned", 1, async |runtime, path| {
        let file = create(runtime, path, true).await.unwrap();
        let Some(buffer) = misaligned(&file) else { return skip("no address is misaligned") };
        let len_bytes = buffer.len();
        let (read, buffer) = file.read_buffer_at(0, buffer).await;
        let (written, buffer) = file.write_buffer_at(0, buffer).await;
        assert_eq!(buffer.len(), len_bytes);
        let aligned = format!("multiple of {}", file.info().memory_align_bytes);
        for error in [read.unwrap_err(), written.unwrap_err()] {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(text.contains(path) && text.contains(&aligned) && text.contains("AlignedBuf"), "{text}");
        }
        file.write_buffer_at(0, AlignedBuf::empty()).await.0.unwrap();
    });
}

#[test]
fn a_file_is_opened_once_and_what_is_wrong_is_said_then() {
    for kind in usable_kinds().into_iter().filter(|kind| !matches!(kind, BackendKind::Memory | BackendKind::Sim)) {
        within_reason(move || {
            let (dir, path) = place(kind, "once");
            let (runtime, topology) = start(2, kind);
            let handle = runtime.any_shard();
            block_on(async {
                let missing = handle.open(&path, &EXISTING).await.unwrap_err();
                assert!(
                    missing.to_string().contains(&path) && missing.to_string().contains("check the path"),
                    "{missing}"
                );
                let file = handle.open(&path, &CREATE).await.unwrap();
                file.write_all_at(0, b"the first").await.unwrap();
                // The name leads elsewhere now; no shard follows it.
                std::fs::rename(&path, dir.path().join("other")).unwrap();
                std::fs::write(&path, "the second").unwrap();
                for _ in 0..4 {
                    assert_eq!(&file.read_exact_at(0, 9).await.unwrap()[..], b"the first");
                }
                let by_number = topology.file(path.as_ref(), EXISTING, 0);
                let second = handle.open_file(&by_number).await.unwrap();
                assert_eq!(&second.read_exact_at(0, 10).await.unwrap()[..], b"the second");
                let unknown = handle.open_file(&topology.file(path.as_ref(), EXISTING, 7)).await.unwrap_err();
                assert!(unknown.to_string().contains("no disk 7"), "{unknown}");
            });
            runtime.stop().unwrap();
        });
    }
}

#[test]
fn a_file_on_no_known_disk_is_not_opened() {
    let disks = vec![DiskSetup { mountpoints: vec!["/proc".into()], ..DiskSetup::unlimited() }];
    let topology = Topology::new(1, Classes::new(), disks).unwrap();
    let runtime = Runtime::start(&topology, &options(BackendKind::Memory)).unwrap();
    let error = block_on(runtime.any_shard().open("/dev/null", &EXISTING)).unwrap_err();
    assert!(error_number(&error) == 19 && error.to_string().contains("no disk holds /dev/null"), "{error}");
}

#[test]
fn a_path_below_a_missing_directory_says_that_it_is_missing() {
    let disks = vec![DiskSetup { mountpoints: vec!["/".into()], ..DiskSetup::unlimited() }];
    let topology = Topology::new(1, Classes::new(), disks).unwrap();
    let runtime = Runtime::start(&topology, &options(BackendKind::Pool)).unwrap();
    let dir = TempDir::new("missing");
    let path = dir.path().join("not-there/file");
    let error = block_on(runtime.any_shard().open(&path, &CREATE)).unwrap_err();
    assert_eq!((error.kind(), error_number(&error)), (io::ErrorKind::NotFound, 2));
    let text = error.to_string();
    assert!(text.contains("not-there/file") && text.contains("its directory must exist"), "{text}");
    runtime.stop().unwrap();
}

#[test]
fn a_directory_is_synced() {
    for kind in usable_kinds() {
        within_reason(move || {
            let (dir, path) = place(kind, "directory");
            let (runtime, _) = start(1, kind);
            block_on(async {
                let handle = runtime.any_shard();
                let directory = handle.open(dir.path(), &DIRECTORY).await.unwrap();
                create(&runtime, &path, false).await.unwrap();
                directory.sync_all().await.unwrap();
                directory.sync_all().await.unwrap();
                if matches!(kind, BackendKind::Memory | BackendKind::Sim) {
                    return;
                }
                assert!(directory.read_at(0, 1).await.is_err());
                let file = handle.open(&path, &DIRECTORY).await.unwrap_err();
                assert!(file.to_string().contains("only a directory"), "{file}");
                let written = handle.open(dir.path(), &OpenOptions { write: true, ..DIRECTORY }).await.unwrap_err();
                assert!(written.to_string().contains("`directory` alone"), "{written}");
            });
            runtime.stop().unwrap();
        });
    }
}

#[test]
fn any_shard_means_each_in_its_turn() {
    let (runtime, _topology) = start(3, BackendKind::Memory);
    let handle = runtime.any_shard();
    assert_eq!((handle.shard(), runtime.handle(2).shard()), (None, Some(2)));
    let numbers = block_on(async {
        let mut numbers = Vec::new();
        for n in 0..6 {
            // Clones share the turns.
            let handle = if n % 2 == 0 { handle.clone() } else { handle.clone().clone() };
            numbers.push(handle.run(|shard| async move { shard.number() }).await.unwrap());
        }
        numbers
    });
    assert_eq!(numbers, [0, 1, 2, 0, 1, 2]);
}

/// Whose request is in which class is a matter of the file that was asked.
#[test]
fn a_file_in_a_class_counts_there() {
    let classes = Classes::new();
    let query = classes.add_class("query", None, 100).unwrap();
    let topology = Topology::new(1, classes, vec![DiskSetup::unlimited()]).unwrap();
    let runtime = Runtime::start(&topology, &options(BackendKind::Memory)).unwrap();
    let counts = block_on(async {
        let file = runtime.any_shard().open("file", &CREATE).await.unwrap();
        let queries = file.in_class(query);
        file.write_all_at(0, [1; 100]).await.unwrap();
        for n in 0..3 {
            queries.read_exact_at(n, 1).await.unwrap();
        }
        assert_eq!((file.class(), queries.class(), queries.clone().class()), (Class::DEFAULT, query, query));
        let completed = move |shard: plimsoll::Shard| async move {
            let reactor = shard.reactor();
            [Class::DEFAULT, query].map(|class| {
                reactor.class_stats(0, class).map_or(0, |stats| stats.read.requests + stats.write.requests)
            })
        };
        runtime.handle(0).run(completed).await.unwrap()
    });
    assert_eq!(counts, [1, 3]);
}

/// Nothing runs on a simulated shard before it is told to, so that each step is seen by itself.
#[test]
fn a_dropped_future_cancels_what_is_queued() {
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let topology = Topology::new(1, Classes::new(), vec![disk(1, 1 << 30, LatencyGoal::NoSplit)]).unwrap();
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let handle = runtime.handle(0);
    let file = topology.file("file".as_ref(), CREATE, 0);
    let write = |n: u64| Box::pin(handle.write_at(&file, Class::DEFAULT, n * 4096, filled(4096, n, 0)));
    let turn = || {
        runtime.run_for(Duration::from_millis(1)).unwrap();
        common::under_way(runtime.shard(0)).0
    };
    // One request a second: the first goes out at once, the others wait.
    let mut all: Vec<_> = (0..5).map(write).collect();
    for future in &mut all {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    let waiting = turn();
    assert!((4..=5).contains(&waiting), "{waiting} of 5");
    drop(all.pop());
    drop(all.pop());
    assert_eq!(turn(), waiting - 2, "two were cancelled");
    // Dropped before the shard has seen it, and never begun.
    let mut unseen = write(9);
    assert!(poll_once(unseen.as_mut()).is_pending());
    drop(unseen);
    assert_eq!(turn(), waiting - 2);
    // Never polled: never sent.
    drop(write(8));
    assert_eq!(turn(), waiting - 2);
    // The rest come to their end.
    let ends = runtime.block_on(0, common::all(all)).unwrap();
    assert!(ends.len() == 3 && ends.iter().all(|(end, _)| matches!(end, Ok(4096))), "{ends:?}");
    assert_eq!(turn(), 0);
}

/// Where shards share an I/O queue, requests go to its shard at once: what is queued there can be cancelled.
#[test]
fn requests_to_any_shard_go_where_their_queue_is() {
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let slow = DiskSetup { num_io_queues: Some(1), ..disk(1, 1 << 30, LatencyGoal::NoSplit) };
    let topology = Topology::new(3, Classes::new(), vec![slow]).unwrap();
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let turn = || {
        runtime.run_for(Duration::from_millis(1)).unwrap();
        [0, 1, 2].map(|shard| common::under_way(runtime.shard(shard)).0)
    };
    let file = runtime.block_on(0, runtime.any_shard().open("file", &CREATE)).unwrap().unwrap();
    let mut all: Vec<_> = (0..6).map(|n| Box::pin(file.write_all_at(n * 512, [1; 512]))).collect();
    for future in &mut all {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    let [waiting, others @ ..] = turn();
    assert!((5..=6).contains(&waiting) && others == [0, 0], "{waiting} {others:?}");
    all.truncate(2);
    assert_eq!(turn(), [waiting - 4, 0, 0]);
    assert!(runtime.block_on(1, common::all(all)).unwrap().iter().all(Result::is_ok));
}

/// Counts wake-ups, and says that there was one.
struct Counting {
    wakes: AtomicU64,
    thread: Thread,
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, SeqCst);
        self.thread.unpark();
    }
}

/// Polls only after a wake-up, and counts them.
fn count_wakes(future: impl Future<Output = ()>) -> u64 {
    let counting = Arc::new(Counting { wakes: AtomicU64::new(0), thread: std::thread::current() });
    let waker = Waker::from(Arc::clone(&counting));
    let (mut future, mut seen) = (pin!(future), 0);
    while future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        while counting.wakes.load(SeqCst) == seen {
            std::thread::park();
        }
        seen += 1;
    }
    counting.wakes.load(SeqCst)
}

#[test]
fn an_operation_wakes_its_task_once() {
    within_reason(|| {
        let (runtime, _topology) = start(1, BackendKind::Memory);
        let file = block_on(runtime.any_shard().open("file", &CREATE)).unwrap();
        let operations = async {
            for n in 0..1000 {
                file.write_all_at(n * 10, [1; 10]).await.unwrap();
                file.read_exact_at(n, 5).await.unwrap();
            }
        };
        assert_eq!(count_wakes(operations), 2000);
    });
}

/// Tasks on all workers of Tokio, in two classes; many of them give up in the middle of it.
#[test]
fn tasks_of_tokio_come_and_go() {
    for kind in usable_kinds() {
        within_reason(move || {
            let classes = Classes::new();
            let background = classes.add_class("background", None, 10).unwrap();
            let topology = Topology::new(2, classes, vec![DiskSetup::unlimited()]).unwrap();
            let (_dir, path) = place(kind, "tokio");
            let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap();
            executor.block_on(async move {
                let runtime = Runtime::start(&topology, &options(kind)).unwrap();
                let file = create(&runtime, &path, false).await.unwrap();
                file.write_all_at(0, &filled(1 << 16, 5, 0)[..]).await.unwrap();
                let tasks: Vec<_> = (0..16_u64)
                    .map(|task| {
                        let file = if task % 2 == 0 { file.clone() } else { file.in_class(background) };
                        tokio::spawn(async move {
                            for n in 0..200 {
                                let (offset, len_bytes) = ((n * 331 + task * 17) % 60_000, 1 + (n as usize * 7) % 5000);
                                let read = file.read_exact_at(offset, len_bytes);
                                if (n + task) % 3 == 0 {
                                    let _ = tokio::time::timeout(Duration::from_micros(n % 50), read).await;
                                } else {
                                    assert!(has_pattern(&read.await.unwrap(), 5, offset));
                                }
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
                assert!(has_pattern(&file.read_exact_at(0, 1 << 16).await.unwrap(), 5, 0));
                runtime.shutdown().await.unwrap();
                let gone = file.read_at(0, 1).await.unwrap_err();
                assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
            });
        });
    }
}

/// The shard cannot end before the only thread of the executor has done something else.
#[test]
fn neither_shutdown_nor_drop_blocks_the_thread() {
    within_reason(|| {
        let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        executor.block_on(async {
            for is_dropped in [false, true] {
                let (runtime, _topology) = start(2, BackendKind::Memory);
                let (let_go, held) = mpsc::channel::<()>();
                let (said, holds) = mpsc::channel();
                let hold = move |_| async move {
                    said.send(()).unwrap();
                    held.recv().unwrap();
                };
                let handle = runtime.handle(1);
                handle.spawn(hold).unwrap();
                holds.recv().unwrap();
                if is_dropped {
                    drop(runtime);
                    let_go.send(()).unwrap();
                } else {
                    let ended = tokio::spawn(runtime.shutdown());
                    tokio::task::yield_now().await;
                    let_go.send(()).unwrap();
                    ended.await.unwrap().unwrap();
                }
                // Whoever asks later is answered, when the shard has ended.
                while handle.run(|_| async {}).await.is_ok() {
                    tokio::task::yield_now().await;
                }
            }
        });
    });
}

#[test]
fn workers_of_tokio_get_the_cpus_that_no_shard_has() {
    let allowed = match pin::allowed_cpus() {
        Ok(allowed) if allowed.len() > 1 => allowed,
        answer => return skip(format_args!("two processors are needed: {answer:?}")),
    };
    let (unpinned, _) = start(1, BackendKind::Null);
    assert_eq!(unpinned.other_cpus(), allowed);
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let pinned = ShardOptions { pin: true, ..options(BackendKind::Null) };
    let runtime = Runtime::start(&topology, &pinned).unwrap();
    let others = runtime.other_cpus().to_vec();
    let own = block_on(runtime.handle(0).run(|_| async { pin::allowed_cpus().unwrap() })).unwrap();
    assert!(own.len() == 1 && !others.contains(&own[0]) && others.len() == allowed.len() - 1, "{own:?} {others:?}");
    let cpus = others.clone();
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(others.len())
        .on_thread_start(move || pin::restrict_current_thread(&cpus).unwrap())
        .build()
        .unwrap();
    let seen = executor.block_on(async { tokio::spawn(async { pin::allowed_cpus().unwrap() }).await.unwrap() });
    assert_eq!(seen, others);
    executor.block_on(runtime.shutdown()).unwrap();
}
