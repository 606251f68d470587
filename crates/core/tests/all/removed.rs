//! What a removed class leaves behind in a queue.

use crate::common::{MS, S, queue_of, usual};
use plimsoll_core::{DiskConfig, EventKind, GroupId, LatencyTarget, Limits, Op, Outcome, Qos, QueueConfig, Rate};

/// The limits of a class that is gone keep no request from the short way.
#[test]
fn a_removed_limit_no_longer_slows_the_others() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let disk = std::sync::Arc::clone(queue.disk());
    let (class, limited) = (disk.add_class(GroupId::ROOT, 100).unwrap(), disk.add_class(GroupId::ROOT, 100).unwrap());
    queue.follow_classes(|_| ());
    let limits = Limits { iops: Rate::per_second(5), ..Limits::default() };
    disk.set_qos(limited, Qos { limits, ..Qos::default() }).unwrap();
    queue.follow_classes(|_| ());
    assert!(queue.dispatch_alone(S, class, Op::Read, 4096, 0).is_none());
    disk.remove(limited).unwrap();
    queue.follow_classes(|_| ());
    let piece = queue.dispatch_alone(2 * S, class, Op::Read, 4096, 0).expect("no class has a limit");
    let _ = queue.complete(2 * S, piece, Outcome::Moved(4096));
}

/// Late pieces of a removed class are no misses of a class that has the next target.
#[test]
fn a_removed_class_misses_no_target_of_another() {
    let mut queue = queue_of(DiskConfig::default(), QueueConfig::default());
    let disk = std::sync::Arc::clone(queue.disk());
    let targets = [1_000, 10 * S].map(|latency_ns| LatencyTarget { latency_ns, quantile: 0.5 });
    let [doomed, _other] = targets.map(|target| {
        let class = disk.add_class(GroupId::ROOT, 100).unwrap();
        disk.set_qos(class, Qos { latency_target: Some(target), ..Qos::default() }).unwrap();
        class
    });
    for n in 0..600 {
        queue.enqueue(S, doomed, Op::Read, 4096, n).unwrap();
    }
    let pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(S)).collect();
    assert_eq!(pieces.len(), 600);
    disk.remove(doomed).unwrap();
    queue.follow_classes(|_| ());
    for (n, piece) in (0..).zip(pieces) {
        let _ = queue.complete(S + 200 * MS + n * MS, piece, Outcome::Moved(4096));
    }
    let events: Vec<EventKind> = disk.events_since(0).into_iter().map(|event| event.kind).collect();
    assert!(!events.contains(&EventKind::TargetUnreachable), "{events:?}");
}
