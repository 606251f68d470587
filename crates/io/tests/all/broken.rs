//! A backend that breaks down for good: whoever waits for a request hears of it, and no memory goes that it may still use.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::holding::{Holding, Switches};
use crate::common::{CREATE, disk, filled, memory, one, within_reason};
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::core::LatencyGoal;
use plimsoll::{
    Class, Classes, Data, DiskSetup, Done, Reactor, RefusedReason, Request, RequestError, RequestKind, Shard,
    SharedFile, Topology,
};

struct World {
    switches: Arc<Switches>,
    topology: Topology,
    file: Arc<SharedFile>,
    coordinator: Reactor,
    other: Reactor,
}

/// Shard 0 coordinates for shard 1; its backend takes two operations, and carries them out in `flush`.
fn world() -> World {
    let setup = DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() };
    let topology = Topology::new(2, Classes::new(), vec![setup]).unwrap();
    let (backend, switches) = Holding::over(MemoryBackend::deferred(&MemoryStore::default(), 2).unwrap());
    let coordinator = Reactor::new(0, &topology, backend).unwrap();
    let other = Reactor::new(1, &topology, memory()).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    World { switches, topology, file, coordinator, other }
}

fn write(file: &Arc<SharedFile>, tag: u64) -> Request {
    let kind = RequestKind::Write { len_bytes: 512 };
    Request { file: Arc::clone(file), class: Class::DEFAULT, kind, offset: tag * 512, data: one(512), tag }
}

fn tags(done: &[Done]) -> Vec<u64> {
    let mut tags: Vec<u64> = done.iter().map(|end| end.tag).collect();
    tags.sort_unstable();
    tags
}

#[test]
fn everybody_hears_of_it() {
    within_reason(|| {
        let World { switches, topology, file, mut coordinator, mut other } = world();
        for tag in 0..4 {
            coordinator.submit(write(&file, tag)).unwrap();
            other.submit(write(&file, 10 + tag)).unwrap();
        }
        let mut done = Vec::new();
        coordinator.reap(&mut done);
        switches.is_broken.store(true, Ordering::Relaxed);
        let error = coordinator.park(None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        coordinator.reap(&mut done);
        let mut elsewhere = Vec::new();
        other.reap(&mut elsewhere);
        assert_eq!((tags(&done), tags(&elsewhere)), (vec![0, 1, 2, 3], vec![10, 11, 12, 13]));
        assert!(done.iter().chain(&elsewhere).all(|end| end.result == Err(RequestError::failed(libc::EBADF))));
        let without = done.iter().chain(&elsewhere).filter(|end| matches!(end.data, Data::None)).count();
        assert_eq!((without, coordinator.in_backend()), (2, 2), "the backend still has the memory of two");
        // Nothing more is taken.
        let refused = coordinator.submit(write(&file, 5)).unwrap_err();
        assert_eq!(refused.reason, RefusedReason::Broken { errno: libc::EBADF });
        other.submit(write(&file, 15)).unwrap();
        coordinator.dispatch();
        assert_eq!(coordinator.flush().unwrap_err().raw_os_error(), Some(libc::EBADF));
        coordinator.reap(&mut done);
        elsewhere.clear();
        other.reap(&mut elsewhere);
        let broken = RequestError::Refused(RefusedReason::Broken { errno: libc::EBADF });
        assert_eq!((elsewhere[0].tag, elsewhere[0].result), (15, Err(broken)));
        assert_eq!((coordinator.under_way(), other.under_way(), done.len()), (0, 0, 4));
        // The backend's drop carries out what it had; the memory must still be there.
        drop(coordinator);
        assert_eq!(topology.disk(0).unwrap().in_flight_ns(), 0);
    });
}

/// A reactor that is dropped with a broken backend answers the others, too.
#[test]
fn the_last_word_of_a_reactor_that_cannot_wait() {
    within_reason(|| {
        let World { switches, file, mut coordinator, mut other, .. } = world();
        for tag in 0..4 {
            other.submit(write(&file, tag)).unwrap();
        }
        coordinator.reap(&mut Vec::new());
        coordinator.dispatch();
        switches.is_broken.store(true, Ordering::Relaxed);
        drop(coordinator);
        let mut done = Vec::new();
        other.reap(&mut done);
        assert_eq!(tags(&done), [0, 1, 2, 3]);
        assert!(done.iter().all(|end| end.result == Err(RequestError::failed(libc::EPIPE))), "{done:?}");
    });
}

/// Requests that wait in the queue for a limit end, too, with their memory.
#[test]
fn what_is_only_queued_comes_back_whole() {
    let topology = Topology::new(1, Classes::new(), vec![disk(1, 1 << 30, LatencyGoal::NoSplit)]).unwrap();
    let (backend, switches) = Holding::boxed();
    switches.is_broken.store(true, Ordering::Relaxed);
    let mut reactor = Reactor::new(0, &topology, backend).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    for tag in 0..10 {
        reactor.submit(write(&file, tag)).unwrap();
    }
    assert!(reactor.park(None).is_err());
    let mut done = Vec::new();
    reactor.reap(&mut done);
    assert_eq!(tags(&done), (0..10).collect::<Vec<_>>());
    assert!(done.iter().all(|end| matches!(&end.data, Data::One(buffer) if buffer.len() == 512)));
    assert_eq!(done.iter().filter(|end| end.result == Ok(512)).count(), 1, "one was done inside `submit`");
}

/// Regression: a shard whose wait failed while it wound down took requests again, and the completion of the operation that
/// was still in the backend ended one of them, whose buffer was in use then.
#[test]
fn a_shard_that_could_not_wind_down_takes_nothing_more() {
    within_reason(|| {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let (backend, switches) = Holding::boxed();
        let shard = Shard::new(Reactor::new(0, &topology, backend).unwrap());
        let file = topology.file("file".as_ref(), CREATE, 0);
        shard.block_on(shard.write_at(&file, Class::DEFAULT, 0, filled(8192, 1, 0))).unwrap().0.unwrap();

        switches.holds.store(true, Ordering::Relaxed);
        let (reader, of) = (shard.clone(), Arc::clone(&file));
        let read = async move { reader.read_at(&of, Class::DEFAULT, 0, filled(512, 0, 0)).await.0 };
        shard.spawn(read).detach();
        let (stopper, to_fail) = (shard.clone(), Arc::clone(&switches));
        let stop = async move {
            while stopper.reactor().in_backend() == 0 {
                stopper.sleep(std::time::Duration::from_millis(1)).await;
            }
            // The shard parks once more, and is woken; the next wait is that of its end.
            to_fail.waits_until_failure.store(2, Ordering::Relaxed);
            stopper.stop();
        };
        shard.spawn(stop).detach();
        shard.run().unwrap();

        // The backend works again, and completes the read.
        switches.waits_until_failure.store(0, Ordering::Relaxed);
        switches.holds.store(false, Ordering::Relaxed);
        let again = shard.block_on(async { shard.read_at(&file, Class::DEFAULT, 4096, filled(4096, 0, 0)).await.0 });
        let error = again.map_or_else(Some, Result::err).expect("the shard is broken");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}");
    });
}
