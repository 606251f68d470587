//! A runtime from outside: handles, wake-ups from other threads, timers, and the end.

use crate::common;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::common::nasty::{Faults, Nasty};
use crate::common::skip::skip;
use crate::common::{CREATE, EXISTING, TempDir, all, block_on, disk, filled, has_pattern, usable_kinds, within_reason};
use futures_channel::oneshot;
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::sim::{SimConfig, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::{LatencyGoal, Op};
use plimsoll::{
    Class, Classes, DiskSetup, EndReason, Gate, Handle, Reactor, ReactorConfig, ReactorError, Runtime, Shard, ShardEnd,
    ShardOptions, SharedFile, SimRuntime, StartError, Topology,
};

const BLOCK: usize = 4096;

fn options(kind: BackendKind) -> ShardOptions {
    ShardOptions { backend: Some(kind), pin: false, entries: 64 }
}

fn start(shards: u16, disk: DiskSetup) -> (Runtime, Arc<SharedFile>, Topology) {
    let topology = Topology::new(shards, Classes::new(), vec![disk]).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    (Runtime::start(&topology, &options(BackendKind::Memory)).unwrap(), file, topology)
}

#[test]
fn a_handle_works_from_any_thread_on_every_backend() {
    for kind in usable_kinds() {
        within_reason(move || {
            let dir = TempDir::new("runtime");
            let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let runtime = Runtime::start(&topology, &options(kind)).unwrap();
            let file = topology.file(&dir.path().join("file"), CREATE, 0);
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let (handle, file) = (runtime.handle(thread as u16), Arc::clone(&file));
                    std::thread::spawn(move || block_on(write_and_read_back(&handle, &file, thread)))
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            runtime.stop().unwrap();
        });
    }
}

async fn write_and_read_back(handle: &Handle, file: &Arc<SharedFile>, thread: u64) {
    let at = |n: u64| (thread * 100 + n) * BLOCK as u64;
    let writes = (0..100).map(|n| handle.write_at(file, Class::DEFAULT, at(n), filled(BLOCK, thread, at(n))));
    for (written, _) in all(writes).await {
        assert_eq!(written.unwrap(), BLOCK);
    }
    handle.sync(file, Class::DEFAULT, true).await.unwrap();
    let reads = (0..100).map(|n| handle.read_at(file, Class::DEFAULT, at(n), AlignedBuf::new(BLOCK).unwrap()));
    for (n, (read, buffer)) in (0..).zip(all(reads).await) {
        assert!(read.unwrap() == BLOCK && has_pattern(&buffer, thread, at(n)));
    }
}

/// A task on the shard and a thread hand a message to and fro: one lost wake-up, and both sleep for ever.
#[test]
fn no_wake_up_from_another_thread_is_lost() {
    for kind in usable_kinds().into_iter().chain([BackendKind::Null]) {
        within_reason(move || {
            let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let runtime = Runtime::start(&topology, &options(kind)).unwrap();
            let handle = runtime.handle(0);
            let (to_thread, from_shard) = mpsc::channel::<oneshot::Sender<u32>>();
            let thread = std::thread::spawn(move || {
                for (n, sender) in (0..).zip(from_shard) {
                    if n % 3 == 0 {
                        // Now and then late, so that the shard sleeps.
                        std::thread::yield_now();
                    }
                    let _ = sender.send(n);
                }
            });
            let rounds = 10_000;
            let sum = block_on(handle.run(move |_| async move {
                let mut sum = 0_u64;
                for _ in 0..rounds {
                    let (sender, receiver) = oneshot::channel();
                    to_thread.send(sender).unwrap();
                    sum += u64::from(receiver.await.unwrap());
                }
                sum
            }));
            assert_eq!(sum.unwrap(), rounds * (rounds - 1) / 2);
            thread.join().unwrap();
        });
    }
}

/// The same for the future that the shard was given to run, which no executor looks after.
#[test]
fn no_wake_up_of_the_main_future_is_lost() {
    within_reason(|| {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, common::memory()).unwrap());
        let (to_thread, from_shard) = mpsc::channel::<oneshot::Sender<()>>();
        let thread = std::thread::spawn(move || from_shard.into_iter().all(|sender| sender.send(()).is_ok()));
        shard
            .block_on(async move {
                for _ in 0..10_000 {
                    let (sender, receiver) = oneshot::channel();
                    to_thread.send(sender).unwrap();
                    receiver.await.unwrap();
                }
            })
            .unwrap();
        assert!(thread.join().unwrap(), "every answer was waited for");
    });
}

#[test]
fn tasks_are_spawned_awaited_detached_and_dropped() {
    within_reason(|| {
        let (runtime, _, _) = start(1, DiskSetup::unlimited());
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let handle = runtime.handle(0);
        let end = handle.run(move |shard| async move {
            let add = |n: u64| {
                let (shard, counter) = (shard.clone(), Arc::clone(&counter));
                async move {
                    shard.sleep(Duration::from_millis(n % 3)).await;
                    counter.fetch_add(n, Ordering::SeqCst);
                    n
                }
            };
            let tasks: Vec<_> = (1..=100).map(|n| shard.spawn(add(n))).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            drop(shard.spawn(add(1_000_000)));
            shard.spawn(add(7)).detach();
            shard.sleep(Duration::from_millis(20)).await;
            sum
        });
        assert_eq!(block_on(end).unwrap(), 5050);
        assert_eq!(count.load(Ordering::SeqCst), 5057);
        // More ready tasks than are polled in a turn, which wake one another.
        let end = handle.run(|shard| async move {
            let tasks: Vec<_> = (0..2000).map(|n| shard.spawn(async move { n })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            sum
        });
        assert_eq!(block_on(end).unwrap(), 2000 * 1999 / 2);
    });
}

#[test]
fn a_million_short_lived_timers_leave_nothing_behind() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let shard = Shard::new(Reactor::new(0, &topology, common::memory()).unwrap());
    let info = allocation_counter::measure(|| {
        for _ in 0..1_000_000 {
            let mut sleep = std::pin::pin!(shard.sleep(Duration::from_secs(3600)));
            assert!(common::poll_once(sleep.as_mut()).is_pending());
        }
    });
    assert!(info.bytes_current < 4096, "{} bytes are still there", info.bytes_current);
}

fn ended(end: &io::Result<usize>) -> bool {
    matches!(end, Ok(BLOCK)) || end.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Requests wait at 100 a second when the runtime goes: each gets an answer.
#[test]
fn stopping_leaves_nobody_waiting() {
    for is_dropped in [false, true] {
        within_reason(move || {
            let slow = DiskSetup { num_io_queues: Some(1), ..disk(100, 1 << 30, LatencyGoal::NoSplit) };
            let (runtime, file, _topology) = start(2, slow);
            let (asked, has_asked) = mpsc::channel();
            let threads: Vec<_> = (0..2)
                .map(|number| {
                    let (handle, file, asked) = (runtime.handle(number), Arc::clone(&file), asked.clone());
                    std::thread::spawn(move || {
                        let write = |n| handle.write_at(&file, Class::DEFAULT, n * BLOCK as u64, filled(BLOCK, 1, 0));
                        // The first answer says that the shard is at work.
                        let first = block_on(write(0)).0;
                        asked.send(()).unwrap();
                        let ends = block_on(all((0..200).map(write)));
                        assert!(ended(&first) && ends.iter().all(|(end, _)| ended(end)), "{ends:?}");
                        ends.iter().filter(|(end, _)| end.is_err()).count()
                    })
                })
                .collect();
            has_asked.recv().unwrap();
            has_asked.recv().unwrap();
            if is_dropped {
                drop(runtime);
            } else {
                runtime.stop().unwrap();
            }
            let unanswered: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert!(unanswered > 0, "400 requests at 100 a second were under way");
        });
    }
}

#[test]
fn a_stopped_shard_says_so() {
    within_reason(|| {
        let (runtime, file, _topology) = start(1, DiskSetup::unlimited());
        let handle = runtime.handle(0);
        runtime.stop().unwrap();
        let (end, _) = block_on(handle.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(BLOCK).unwrap()));
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(block_on(handle.run(|_| async {})).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    });
}

/// What came after the end waited until the shard was dropped.
#[test]
fn a_shard_whose_run_has_ended_refuses_at_once_and_may_run_again() {
    within_reason(|| {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, common::memory()).unwrap());
        let (handle, file) = (shard.handle(), topology.file("file".as_ref(), CREATE, 0));
        let write = || handle.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 1, 0));
        shard.stop();
        // The shard ends in its first turn.
        let both = || Box::pin(async { (write().await, handle.run(|_| async {}).await) });
        let mut early = both();
        assert!(common::poll_once(early.as_mut()).is_pending());
        shard.run().unwrap();

        for (number, mut future) in [early, both()].into_iter().enumerate() {
            let Poll::Ready(((end, buffer), job)) = common::poll_once(future.as_mut()) else { panic!("it waits") };
            assert!(ended(&end) && (end.is_err() || number == 0) && buffer.len() == BLOCK, "{end:?}");
            assert_eq!(job.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
        let place = Reactor::new(0, &topology, common::memory()).map(drop);
        assert_eq!(place, Err(ReactorError::IsOpen { shard: 0 }), "the shard exists still");
        assert_eq!(shard.block_on(write()).unwrap().0.unwrap(), BLOCK);

        // The second run ended before it had polled a task.
        let (own, has_run) = (shard.clone(), Rc::new(Cell::new(false)));
        let ran = Rc::clone(&has_run);
        let task = async move {
            ran.set(true);
            own.stop();
        };
        shard.spawn(task).detach();
        shard.run().unwrap();
        assert!(has_run.get());
    });
}

#[test]
fn a_panic_is_the_end_of_its_task_alone() {
    within_reason(|| {
        let (runtime, _, _topology) = start(1, DiskSetup::unlimited());
        let handle = runtime.handle(0);
        let end: io::Result<()> = block_on(handle.run(|_| async { panic!("as this test wants it") }));
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let end = block_on(handle.run(|_| -> std::future::Ready<()> { panic!("this too") }));
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        block_on(handle.run(|_| async {})).unwrap();
        handle.spawn(|_| -> std::future::Ready<()> { panic!("and this") }).unwrap();
        handle.spawn(|_| async { panic!("and that") }).unwrap();
        block_on(handle.run(|_| async {})).unwrap();
        runtime.stop().unwrap();
    });
}

/// As a disk that hangs keeps its shard.
#[test]
fn a_shard_that_does_not_end_holds_nobody_up() {
    within_reason(|| {
        for is_async in [false, true] {
            let (runtime, _, _topology) = start(1, DiskSetup::unlimited());
            let (release, held) = mpsc::channel::<()>();
            let (begin, begun) = mpsc::channel();
            let hold = move |_| async move {
                begin.send(()).unwrap();
                _ = held.recv();
            };
            runtime.handle(0).spawn(hold).unwrap();
            begun.recv().unwrap();
            let limit = Duration::from_millis(10);
            let end = if is_async { block_on(runtime.shutdown_within(limit)) } else { runtime.stop_within(limit) };
            assert!(matches!(end, Err(StartError::StillRunning)), "{end:?}");
            drop(release);
        }

        let (runtime, ..) = start(1, DiskSetup::unlimited());
        runtime.stop_within(Duration::MAX).unwrap();
    });
}

/// Nothing runs on a simulated shard before it is told to: what is sent waits.
#[test]
fn jobs_wait_up_to_a_bound_and_no_further() {
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let config = ReactorConfig { max_requests: 4 };
    let topology = Topology::with_config(1, Classes::new(), vec![DiskSetup::unlimited()], config).unwrap();
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let (handle, count) = (runtime.handle(0), Arc::new(AtomicU64::new(0)));
    for round in 1..=3 {
        for _ in 0..4 {
            let count = Arc::clone(&count);
            let job = move |_| async move {
                let _ = count.fetch_add(1, Ordering::SeqCst);
            };
            handle.spawn(job).unwrap();
        }
        let full = handle.spawn(|_| async {}).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(block_on(handle.run(|_| async {})).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let file = topology.file("file".as_ref(), CREATE, 0);
        let (end, buffer) = block_on(handle.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 7, 0)));
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(has_pattern(&buffer, 7, 0) && buffer.len() == BLOCK, "what was not taken comes back");
        let (end, buffers) = block_on(handle.read_vectored(&file, Class::DEFAULT, 0, vec![buffer]));
        assert_eq!((end.unwrap_err().kind(), buffers.len()), (io::ErrorKind::WouldBlock, 1));
        assert_eq!(topology.refused_jobs(), 4 * round);
        runtime.run_for(Duration::from_millis(1)).unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 4 * round);
    }
    // Jobs that were never started give their places back.
    (0..4).for_each(|_| handle.spawn(|_| async {}).unwrap());
    drop(runtime);
    let again = SimRuntime::new(&world, &topology).unwrap();
    (0..4).for_each(|_| handle.spawn(|_| async {}).unwrap());
    drop(again);
}

/// Its part of the requests went to the shard that had ended, and failed. On the second disk, shard 2 has the queue of
/// shard 3, too.
#[test]
fn any_shard_is_one_that_runs() {
    within_reason(|| {
        let shared = DiskSetup { num_io_queues: Some(2), ..DiskSetup::unlimited() };
        let disks = vec![DiskSetup::unlimited(), shared];
        let Ok(topology) = Topology::new(4, Classes::new(), disks) else {
            skip("this machine has more than two NUMA nodes");
            return;
        };
        let runtime = Runtime::start(&topology, &options(BackendKind::Memory)).unwrap();
        let handle = runtime.any_shard();
        let files = [0, 1].map(|disk| topology.file(format!("{disk}").as_ref(), CREATE, disk));
        // How many of 120 jobs each shard runs; requests, and opening files, succeed on any of them. In all that is an
        // odd number of turns for each.
        let jobs = || {
            let mut of_shard = [0; 4];
            for n in 0..120 {
                let shard = block_on(handle.run(|shard| async move { shard.number() })).unwrap();
                of_shard[usize::from(shard)] += 1;
                for file in &files {
                    let end = block_on(handle.write_at(file, Class::DEFAULT, n * 512, filled(512, 1, 0))).0;
                    assert_eq!(end.unwrap(), 512);
                    block_on(handle.open_file(file)).unwrap();
                }
            }
            of_shard
        };
        jobs().into_iter().for_each(|of_shard| assert!(of_shard > 0));

        runtime.handle(2).spawn(|shard| async move { shard.stop() }).unwrap();
        assert_eq!(block_on(runtime.ended()).shard, 2);
        assert!(runtime.handle(2).spawn(|_| async {}).is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe));
        let of_shard = jobs();
        assert!(of_shard[2] == 0 && [0, 1, 3].iter().all(|shard| of_shard[*shard] > 0), "{of_shard:?}");

        runtime.stop().unwrap();
        let end = block_on(handle.run(|_| async {}));
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let runtime = Runtime::start(&topology, &options(BackendKind::Memory)).unwrap();
        jobs().into_iter().for_each(|of_shard| assert!(of_shard > 0));
        runtime.stop().unwrap();
    });
}

#[test]
fn a_shard_that_stops_by_itself_leaves_nobody_waiting() {
    within_reason(|| {
        let (runtime, _, _topology) = start(2, DiskSetup::unlimited());
        let handle = runtime.handle(1);
        let waiting = handle.clone();
        let waits = std::thread::spawn(move || {
            let end = block_on(waiting.run(|shard| async move { shard.sleep(Duration::MAX).await }));
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        });
        block_on(handle.run(|shard| async move { shard.stop() })).unwrap();
        waits.join().unwrap();
        block_on(runtime.handle(0).run(|_| async {})).unwrap();
        runtime.stop().unwrap();
    });
}

/// Wakes its task with a panic, on the thread of the shard.
struct Fatal;

impl Wake for Fatal {
    fn wake(self: Arc<Self>) {
        panic!("as this test wants it");
    }
}

/// A program without requests under way did not hear of it.
#[test]
fn the_end_of_a_shard_is_reported_with_its_number_and_its_reason() {
    within_reason(|| {
        let (runtime, _, _topology) = start(2, DiskSetup::unlimited());
        let mut ended = runtime.ended();
        assert!(common::poll_once(Pin::new(&mut ended)).is_pending());
        block_on(runtime.handle(1).run(|shard| async move { shard.stop() })).unwrap();
        let end = ShardEnd { shard: 1, reason: EndReason::Stopped };
        assert_eq!((block_on(ended), block_on(runtime.ended())), (end, end));
        assert_eq!(block_on(runtime.handle(1).run(|_| async {})).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        block_on(runtime.handle(0).run(|_| async {})).unwrap();
        runtime.stop().unwrap();

        let (runtime, file, _topology) = start(2, DiskSetup::unlimited());
        let handle = runtime.handle(0);
        let waker = Waker::from(Arc::new(Fatal));
        let mut write = std::pin::pin!(handle.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 1, 0)));
        assert!(write.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(block_on(runtime.ended()), ShardEnd { shard: 0, reason: EndReason::Panicked });
        assert!(matches!(runtime.stop(), Err(StartError::Panicked { shard: 0 })));
    });
}

/// It waited for its own thread, which panics.
#[test]
fn a_shard_that_stops_its_runtime_does_not_wait_for_itself() {
    within_reason(|| {
        let (runtime, _, topology) = start(2, DiskSetup::unlimited());
        let (handle, ended) = (runtime.handle(1), runtime.ended());
        let stopped = block_on(handle.run(|_| async { runtime.stop() })).unwrap();
        assert!(matches!(stopped, Err(StartError::StillRunning)), "{stopped:?}");
        assert_eq!(block_on(ended).reason, EndReason::Stopped);
        let next = loop {
            match Runtime::start(&topology, &options(BackendKind::Memory)) {
                Err(StartError::Shard(ReactorError::IsOpen { .. })) => std::thread::yield_now(),
                other => break other.unwrap(),
            }
        };
        next.stop().unwrap();
    });
}

/// A program replaces a runtime whose shard has ended; the old one is dropped after that.
#[test]
fn dropping_a_runtime_stops_no_shard_of_the_next_one() {
    within_reason(|| {
        let (mut runtime, _, topology) = start(1, DiskSetup::unlimited());
        runtime.handle(0).spawn(|shard| async move { shard.stop() }).unwrap();
        let next = loop {
            match Runtime::start(&topology, &options(BackendKind::Memory)) {
                Ok(next) => break next,
                Err(StartError::Shard(ReactorError::IsOpen { .. })) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        drop(std::mem::replace(&mut runtime, next));
        // The second job runs in a turn after that of the first, in which an order to stop would have taken effect.
        for _ in 0..2 {
            assert_eq!(block_on(runtime.handle(0).run(|shard| async move { shard.number() })).unwrap(), 0);
        }
        runtime.stop().unwrap();
    });
}

/// A shard that hangs for as long as `held` does, so that what is sent meanwhile arrives at once.
fn hold(handle: &Handle) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let job = move |_| async move {
        let _ = held.recv();
    };
    handle.spawn(job).unwrap();
    release
}

/// Stops the shard once its backend has operations, and tells how many.
async fn stop_at_work(shard: Shard, in_backend: mpsc::Sender<usize>) {
    while shard.reactor().in_backend() == 0 {
        let mut is_over = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    in_backend.send(shard.reactor().in_backend()).unwrap();
    shard.stop();
}

/// What was in the device was reported as never done, and its buffers were lost.
#[test]
fn at_the_end_a_write_is_reported_as_the_disk_has_it() {
    within_reason(|| {
        let store = MemoryStore::default();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let (give, given) = mpsc::channel();
        let (in_it, with) = (topology.clone(), store.clone());
        let thread = std::thread::spawn(move || {
            let faults = Faults { hung_turns: 5000, capacity: 8, short_percent: 0, ..Faults::default() };
            let shard = Shard::new(Reactor::new(0, &in_it, Box::new(Nasty::new(&with, faults))).unwrap());
            give.send(shard.handle()).unwrap();
            shard.run()
        });
        let handle = given.recv().unwrap();
        let file = topology.file("hung".as_ref(), CREATE, 0);
        let at = |n: u64| n * BLOCK as u64;
        let held = hold(&handle);
        let writes = (0..100).map(|n| handle.write_at(&file, Class::DEFAULT, at(n), filled(BLOCK, 5, at(n))));
        let mut writes = std::pin::pin!(all(writes));
        assert!(common::poll_once(writes.as_mut()).is_pending());
        let (tell, told) = mpsc::channel();
        handle.spawn(move |shard| stop_at_work(shard, tell)).unwrap();
        drop(held);
        let ends = block_on(writes);
        thread.join().unwrap().unwrap();

        let written = ends.iter().filter(|(end, _)| end.is_ok()).count();
        assert!(written == told.recv().unwrap() && written < 100, "{written} of 100 were in the device");
        let after = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let backend = Box::new(MemoryBackend::new(&store).unwrap());
        let reader = Shard::new(Reactor::new(0, &after, backend).unwrap());
        let file = after.file("hung".as_ref(), EXISTING, 0);
        for (n, (end, buffer)) in (0..).zip(&ends) {
            let read = reader.read_at(&file, Class::DEFAULT, at(n), AlignedBuf::new(BLOCK).unwrap());
            let (read, held) = reader.block_on(read).unwrap();
            assert!(ended(end) && has_pattern(buffer, 5, at(n)) && buffer.len() == BLOCK, "{n}: {end:?}");
            assert_eq!(end.is_ok(), read.unwrap() == BLOCK && has_pattern(&held, 5, at(n)), "{n}: {end:?}");
            assert!(end.as_ref().err().is_none_or(|error| error.to_string().contains("the shard has stopped")));
        }
    });
}

/// What another shard did for it was reported as never done.
#[test]
fn a_shard_that_stops_waits_for_what_others_do_for_it() {
    within_reason(|| {
        let (runtime, file, _topology) = start(2, DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() });
        let held = hold(&runtime.handle(0));
        let handle = runtime.handle(1);
        let at = |n: u64| n * BLOCK as u64;
        let writes = (0..10).map(|n| handle.write_at(&file, Class::DEFAULT, at(n), filled(BLOCK, 5, at(n))));
        let mut writes = std::pin::pin!(all(writes));
        assert!(common::poll_once(writes.as_mut()).is_pending());
        let stop = handle.run(|shard| async move {
            shard.stop();
            shard.reactor().under_way()
        });
        assert_eq!(block_on(stop).unwrap(), 10);
        drop(held);
        for (n, (end, buffer)) in (0..).zip(block_on(writes)) {
            assert!(end.unwrap() == BLOCK && has_pattern(&buffer, 5, at(n)) && buffer.len() == BLOCK);
        }
        runtime.stop().unwrap();
    });
}

#[test]
fn a_shard_that_stops_with_operations_in_flight_waits_for_them() {
    within_reason(|| {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let faults = Faults { late_turns_max: 1000, capacity: 1000, ..Faults::default() };
        let shard = Shard::new(Reactor::new(0, &topology, Nasty::boxed(faults)).unwrap());
        let file = topology.file("file".as_ref(), CREATE, 0);
        for n in 0..100 {
            let (task, file) = (shard.clone(), Arc::clone(&file));
            let write = async move { task.write_at(&file, Class::DEFAULT, n, AlignedBuf::new(BLOCK).unwrap()).await };
            shard.spawn(write).detach();
        }
        let stop = shard.clone();
        shard.spawn(async move { stop.stop() }).detach();
        shard.run().unwrap();
        assert_eq!(Arc::strong_count(&file), 1 + shard.reactor().under_way(), "the tasks are gone");
        drop(shard);
        assert_eq!(Arc::strong_count(&file), 1);
    });
}

#[test]
fn too_many_pinned_shards_are_refused() {
    let all = plimsoll::sys::pin::allowed_cpus().unwrap().len();
    let topology = Topology::new(all as u16 + 1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let pinned = ShardOptions { backend: Some(BackendKind::Null), ..ShardOptions::default() };
    let refused = Runtime::start(&topology, &pinned).map(drop).unwrap_err();
    let is_right =
        matches!(refused, StartError::TooManyShards { shards, cpus } if usize::from(shards) == all + 1 && cpus == all);
    assert!(is_right, "{refused}");
}

#[test]
fn a_runtime_leaves_a_gates_place_alone() {
    within_reason(|| {
        for gated in [0, 1] {
            let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let gate = Gate::new(&topology, gated, 0).unwrap();
            let runtime = Runtime::start(&topology, &options(BackendKind::Memory)).unwrap();
            block_on(async {
                let handle = runtime.any_shard();
                let file = handle.open("file", &CREATE).await.unwrap();
                for n in 0..10 {
                    file.write_all_at(n * 8, [1; 8]).await.unwrap();
                    drop(gate.enter(Class::DEFAULT, Op::Write, 8).unwrap());
                    assert_eq!(handle.run(|shard| async move { shard.number() }).await.unwrap(), 1 - gated);
                }
                assert_eq!(file.len_bytes().await.unwrap(), 80);
                let error = runtime.handle(gated).run(|_| async {}).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            });
            runtime.stop().unwrap();

            let second = Gate::new(&topology, 1 - gated, 0).unwrap();
            let error = Runtime::start(&topology, &options(BackendKind::Memory)).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("gates have the places of all shards"), "{error}");
            drop((gate, second));
            let runtime = Runtime::start(&topology, &options(BackendKind::Memory)).unwrap();
            assert!([0, 1].iter().all(|n| block_on(runtime.handle(*n).run(|_| async {})).is_ok()));
            runtime.stop().unwrap();
        }
    });
}

/// The shards that had started still held their places when the error was returned.
#[test]
fn a_failed_start_leaves_every_place_free() {
    within_reason(|| {
        for taken in [0, 3] {
            let topology = Topology::new(4, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            for _ in 0..50 {
                let reactor = Reactor::new(taken, &topology, common::memory()).unwrap();
                let error = Runtime::start(&topology, &options(BackendKind::Memory)).map(|_| ()).unwrap_err();
                assert!(
                    matches!(error, StartError::Shard(ReactorError::IsOpen { shard }) if shard == taken),
                    "{error}"
                );
                drop(reactor);
                Runtime::start(&topology, &options(BackendKind::Memory)).unwrap().stop().unwrap();
            }
        }
    });
}
