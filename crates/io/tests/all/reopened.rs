//! A shard's reactor that is dropped and made again on the same topology, and answers that come late.

use std::sync::Arc;

use crate::common::{CREATE, deferred, filled, has_pattern, memory, one};
use plimsoll::{Class, Classes, Data, DiskSetup, Reactor, ReactorError, Request, RequestKind, SharedFile, Topology};

/// Disk 0 has its only queue on shard 0; disk 1 has one on each shard.
fn topology() -> Topology {
    let far = DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() };
    Topology::new(2, Classes::new(), vec![far, DiskSetup::unlimited()]).unwrap()
}

fn request(file: &Arc<SharedFile>, data: Data, tag: u64) -> Request {
    let kind = RequestKind::Write { len_bytes: 512 };
    Request { file: Arc::clone(file), class: Class::DEFAULT, kind, offset: 0, data, tag }
}

/// The late answer named the request that the new reactor had put in the same place, whose buffer it then gave up while the
/// backend was using it.
#[test]
fn a_late_answer_is_not_taken_for_a_request_of_the_next_reactor() {
    let topology = topology();
    let (far, near) = (topology.file("far".as_ref(), CREATE, 0), topology.file("near".as_ref(), CREATE, 1));
    let mut coordinator = Reactor::new(0, &topology, deferred()).unwrap();
    let mut first = Reactor::new(1, &topology, memory()).unwrap();
    first.submit(request(&far, one(512), 1)).unwrap();
    let mut done = Vec::new();
    coordinator.reap(&mut done);
    drop(first);
    let mut second = Reactor::new(1, &topology, deferred()).unwrap();
    second.submit(request(&near, Data::One(filled(1024, 2, 0)), 2)).unwrap();
    second.dispatch();
    assert_eq!(second.in_backend(), 1, "the backend has the buffer");
    for _ in 0..2 {
        coordinator.dispatch();
        coordinator.flush().unwrap();
        coordinator.reap(&mut done);
    }
    second.reap(&mut done);
    assert!(done.is_empty(), "the answer is for a reactor that is gone: {done:?}");
    second.flush().unwrap();
    second.reap(&mut done);
    let Data::One(buffer) = &done[0].data else { panic!("{done:?}") };
    assert!((done.len(), done[0].tag, done[0].result) == (1, 2, Ok(512)) && buffer.len() == 1024);
    assert!(has_pattern(buffer, 2, 0));
    assert_eq!((second.under_way(), second.in_backend()), (0, 0));
}

#[test]
fn a_shard_has_one_reactor_at_a_time() {
    let topology = topology();
    let open = |shard| Reactor::new(shard, &topology, memory());
    let first = open(1).unwrap();
    let error = open(1).map(|_| ()).unwrap_err();
    assert_eq!(error, ReactorError::IsOpen { shard: 1 });
    assert!(
        error.to_string().contains("a reactor or a gate already: drop it, or wait until its runtime has stopped"),
        "{error}"
    );
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::AlreadyExists);
    drop(first);
    assert_eq!(open(1).unwrap().shard(), 1);
    assert_eq!(open(2).map(|_| ()).unwrap_err(), ReactorError::NoSuchShard { shard: 2, shards: 2 });
}

/// The coordinator is made anew while a request is on its way back and another on its way to it.
#[test]
fn a_coordinator_that_is_made_anew_answers_what_it_was_sent() {
    let topology = topology();
    let far = topology.file("far".as_ref(), CREATE, 0);
    let mut asking = Reactor::new(1, &topology, memory()).unwrap();
    let mut done = Vec::new();
    for round in 0..10 {
        let mut coordinator = Reactor::new(0, &topology, memory()).unwrap();
        asking.submit(request(&far, one(512), 2 * round)).unwrap();
        coordinator.reap(&mut done);
        coordinator.dispatch();
        asking.submit(request(&far, one(512), 2 * round + 1)).unwrap();
        drop(coordinator);
        asking.reap(&mut done);
        let tags: Vec<u64> = done.drain(..).map(|end| end.tag).collect();
        assert_eq!((tags, asking.under_way()), (vec![2 * round, 2 * round + 1], 0));
    }
}
