//! Futures of a shard over every backend, and what becomes of them when they are dropped. A test program of its own: its
//! allocator knows which buffers exist.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "all/common/mod.rs"]
mod common;
#[path = "../../seeds.rs"]
mod seeds;

use common::skip::skip;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use common::nasty::{Faults, Nasty};
use common::{
    CREATE, TempDir, all, deferred, filled, has_pattern, memory, one_shard, poll_once, under_way, usable_kinds,
    within_reason,
};
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Classes, DiskSetup, Reactor, Shard, SharedFile, Topology};

const KIB: usize = 1024;

/// Knows which aligned buffers exist: a buffer that is freed while an operation holds it is found out.
struct Watching;

/// Lengths by address.
static LIVE: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn is_watched(layout: Layout) -> bool {
    // The map's own memory is aligned to less, so the allocator does not call itself here.
    layout.align() >= 4096
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let ptr = unsafe { System.alloc(layout) };
        if is_watched(layout) {
            LIVE.lock().unwrap().insert(ptr as usize, layout.size());
        }
        ptr
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if is_watched(layout) {
            LIVE.lock().unwrap().remove(&(ptr as usize));
        }
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn is_live(ptr: *const u8) -> bool {
    let at = ptr as usize;
    LIVE.lock().unwrap().range(..=at).next_back().is_some_and(|(start, len_bytes)| at < start + len_bytes)
}

async fn everything(shard: Shard, file: Arc<SharedFile>) -> io::Result<()> {
    let class = Class::DEFAULT;
    let buffer = filled(64 * KIB, 1, 0);
    assert_eq!(shard.write_at(&file, class, 0, buffer).await.0?, 64 * KIB);
    let (read, buffer) = shard.read_at(&file, class, 4096, AlignedBuf::new(8 * KIB)?).await;
    assert!(read? == 8 * KIB && has_pattern(&buffer, 1, 4096));

    let buffers = vec![filled(4 * KIB, 2, 64 << 10), filled(12 * KIB, 2, 68 << 10)];
    assert_eq!(shard.write_vectored(&file, class, 64 << 10, buffers).await.0?, 16 * KIB);
    let buffers = vec![AlignedBuf::new(8 * KIB)?, AlignedBuf::empty(), AlignedBuf::new(16 * KIB)?];
    let (read, buffers) = shard.read_vectored(&file, class, 64 << 10, buffers).await;
    assert_eq!(read?, 16 * KIB, "the file ends there");
    assert!(has_pattern(&buffers[0], 2, 64 << 10) && has_pattern(&buffers[2][..8 * KIB], 2, 72 << 10));

    shard.sync(&file, class, true).await?;
    shard.sync(&file, class, false).await?;
    match shard.discard(&file, class, 0, 4096).await {
        Ok(()) => {
            let (read, buffer) = shard.read_at(&file, class, 0, AlignedBuf::new(8 * KIB)?).await;
            assert_eq!(read?, 8 * KIB);
            assert!(buffer[..4096].iter().all(|byte| *byte == 0) && has_pattern(&buffer[4096..], 1, 4096));
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => skip(format_args!("discard: {error}")),
        Err(error) => return Err(error),
    }
    match shard.allocate(&file, class, 0, 1 << 20, false).await {
        Ok(()) => assert_eq!(shard.reactor().file_len(&file)?, 1 << 20),
        Err(error) if error.kind() == ErrorKind::Unsupported => skip(format_args!("allocate: {error}")),
        Err(error) => return Err(error),
    }
    let (read, _) = shard.read_at(&file, class, 1 << 40, AlignedBuf::new(4096)?).await;
    assert_eq!(read?, 0, "far behind the end");
    let (read, buffer) = shard.read_at(&file, class, u64::MAX - 4096, AlignedBuf::new(4096)?).await;
    assert_eq!((read.unwrap_err().raw_os_error(), buffer.len()), (Some(libc::EINVAL), 4096));
    Ok(())
}

#[test]
fn every_backend_does_everything() {
    for kind in usable_kinds() {
        within_reason(move || {
            let dir = TempDir::new("futures");
            let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let shard = Shard::new(Reactor::new(0, &topology, kind.make(64).unwrap()).unwrap());
            let file = topology.file(&dir.path().join("file"), CREATE, 0);
            shard.block_on(everything(shard.clone(), file)).unwrap().unwrap();
            assert_eq!(under_way(&shard), (0, 0), "{kind}");
        });
    }
}

#[test]
fn a_missing_file_is_said_to_be_missing() {
    for kind in usable_kinds() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, kind.make(64).unwrap()).unwrap());
        let file = topology.file("/no/such/file".as_ref(), common::EXISTING, 0);
        let read = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4096).unwrap());
        let (read, buffer) = shard.block_on(read).unwrap();
        assert_eq!((read.unwrap_err().kind(), buffer.len()), (io::ErrorKind::NotFound, 4096), "{kind}");
    }
}

fn faults(seed: u64) -> Faults {
    Faults {
        seed,
        short_percent: 30,
        busy_percent: 20,
        at_once_percent: 20,
        late_turns_max: 5,
        is_live,
        ..Faults::default()
    }
}

#[test]
fn a_nasty_backend_does_everything_too() {
    seeds::each(20, |seed| {
        within_reason(move || {
            let (_, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(faults(seed)));
            shard.block_on(everything(shard.clone(), file)).unwrap().unwrap();
        });
    });
}

/// Reads that are dropped after so many turns of the shard: before anything was sent, in flight, or long done.
#[test]
fn dropped_futures_leave_their_buffers_to_the_backend() {
    for (seed, turns) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 10)] {
        within_reason(move || {
            let faults = Faults { error_percent: 10, ..faults(seed) };
            let (_, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(faults));
            shard
                .block_on(async {
                    // The write may fail: then reads find a short file, which is as good here.
                    let _ = shard.write_at(&file, Class::DEFAULT, 0, filled(256 * KIB, 1, 0)).await;
                    for round in 0..50 {
                        let mut one = pin!(shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(64 * KIB).unwrap()));
                        let vectored = (0..4).map(|_| AlignedBuf::new(16 * KIB).unwrap()).collect();
                        let mut many = Box::pin(shard.read_vectored(&file, Class::DEFAULT, 0, vectored));
                        let _ = poll_once(one.as_mut());
                        let _ = poll_once(many.as_mut());
                        for _ in 0..(turns + round % 2) {
                            yield_now().await;
                        }
                    }
                })
                .unwrap();
            drain(&shard);
            let after = shard.write_at(&file, Class::DEFAULT, 0, filled(4096, 1, 0));
            assert_eq!(shard.block_on(after).unwrap().1.len(), 4096, "the shard is as good as new");
        });
    }
}

async fn yield_now() {
    let mut is_over = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut is_over, true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// Turns the shard until nothing is under way.
fn drain(shard: &Shard) {
    shard
        .block_on(async {
            while shard.reactor().under_way() > 0 {
                yield_now().await;
            }
        })
        .unwrap();
    assert_eq!(shard.reactor().in_backend(), 0);
}

#[test]
fn a_future_that_was_never_sent_is_cancelled_in_the_queue() {
    let disk = common::disk(10, 1 << 30, plimsoll::core::LatencyGoal::NoSplit);
    let (_, shard, file) = one_shard(disk, memory());
    let buffer = || AlignedBuf::new(4096).unwrap();
    shard
        .block_on(async {
            let (written, _) = shard.write_at(&file, Class::DEFAULT, 0, buffer()).await;
            written.unwrap();
            for _ in 0..1000 {
                let mut read = pin!(shard.read_at(&file, Class::DEFAULT, 0, buffer()));
                assert!(poll_once(read.as_mut()).is_pending());
            }
            // At 10 operations a second a thousand reads would take 100 s; dropped, they take nothing.
            assert!(shard.reactor().under_way() <= 1);
        })
        .unwrap();
}

#[test]
fn a_reactor_dropped_with_operations_in_flight_waits_for_them() {
    for kind in usable_kinds() {
        let dir = TempDir::new("dropped");
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, kind.make(64).unwrap()).unwrap());
        let file = topology.file(&dir.path().join("file"), CREATE, 0);
        drop_in_flight(&shard, &file);
    }
    for seed in 0..20 {
        let faults = Faults { late_turns_max: 50, at_once_percent: 0, ..faults(seed) };
        let (_, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(faults));
        drop_in_flight(&shard, &file);
    }
    let (_, shard, file) = one_shard(DiskSetup::unlimited(), deferred());
    drop_in_flight(&shard, &file);
}

fn drop_in_flight(shard: &Shard, file: &Arc<SharedFile>) {
    let (writer, file) = (shard.clone(), Arc::clone(file));
    let writes = (0..32_u64).map(move |n| {
        let (shard, file) = (writer.clone(), Arc::clone(&file));
        writer.spawn(async move { shard.write_at(&file, Class::DEFAULT, n << 16, filled(1 << 16, 1, n << 16)).await })
    });
    let tasks: Vec<_> = writes.collect();
    shard.block_on(yield_now()).unwrap();
    drop(tasks);
    shard.drop_tasks();
}

#[test]
fn a_dropped_reactor_gives_its_device_time_back_to_the_disk() {
    // At 1000 operations a second one write fills the window; whoever keeps it stops everybody else.
    let disk = common::disk(1000, 1 << 30, plimsoll::core::LatencyGoal::NoSplit);
    let topology = Topology::new(1, Classes::new(), vec![disk]).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    for _ in 0..3 {
        let faults = Faults { late_turns_max: 10_000, ..Faults::default() };
        let shard = Shard::new(Reactor::new(0, &topology, Nasty::boxed(faults)).unwrap());
        drop_in_flight(&shard, &file);
        drop(shard);
        assert_eq!(topology.disk(0).unwrap().in_flight_ns(), 0);
    }
}

#[test]
fn tasks_that_hold_their_shard_are_dropped_with_it() {
    let backend = deferred();
    let wake = Arc::downgrade(&backend.wake_handle());
    let (topology, shard, file) = one_shard(DiskSetup::unlimited(), backend);
    let clone = shard.clone();
    shard.spawn(async move { clone.sleep(std::time::Duration::MAX).await }).detach();
    shard.block_on(shard.sync(&file, Class::DEFAULT, true)).unwrap().unwrap();
    shard.drop_tasks();
    drop((shard, file));
    assert_eq!(wake.strong_count(), 0, "the backend is gone");
    drop(topology);
}

#[test]
fn many_requests_of_one_future_all_end() {
    for kind in [BackendKind::Memory, BackendKind::Pool] {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let dir = TempDir::new("many");
        let shard = Shard::new(Reactor::new(0, &topology, kind.make(8).unwrap()).unwrap());
        let file = topology.file(&dir.path().join("file"), CREATE, 0);
        let writes = (0..200).map(|n| shard.write_at(&file, Class::DEFAULT, n * 4096, filled(4096, 3, n * 4096)));
        let ends = shard.block_on(all(writes)).unwrap();
        assert!(ends.iter().all(|(written, _)| matches!(written, Ok(4096))));
        let read = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(200 * 4096).unwrap());
        let (read, buffer) = shard.block_on(read).unwrap();
        assert!(read.unwrap() == 200 * 4096 && has_pattern(&buffer, 3, 0));
    }
}

/// A runtime's task is freed with its last waker, and with the task what it awaits: here another future of the shard.
#[test]
fn a_waker_may_own_another_future_of_the_shard() {
    struct Owner;
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            drop(OWNED.take());
        }
    }
    std::thread_local! {
        static OWNED: Cell<Option<Pin<Box<dyn Future<Output = ()>>>>> = const { Cell::new(None) };
    }

    // The owner's last waker goes when another takes its place, and when the future is dropped.
    for is_replaced in [true, false] {
        let (_, shard, file) = one_shard(DiskSetup::unlimited(), deferred());
        let shard = Rc::new(shard);
        let write = |at: u64| {
            let (shard, file) = (Rc::clone(&shard), file.clone());
            Box::pin(async move {
                let _ = shard.write_at(&file, Class::DEFAULT, at, filled(KIB, at, 0)).await;
            })
        };
        let (mut first, mut second) = (write(0), write(1));
        assert!(poll_once(second.as_mut()).is_pending());
        OWNED.set(Some(second));
        let waker = Waker::from(Arc::new(Owner));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        if is_replaced {
            assert!(poll_once(first.as_mut()).is_pending());
        } else {
            drop(first);
        }
        assert!(OWNED.take().is_none(), "its owner is gone, and has dropped it");
    }
}
