//! A request that is cut ends where its last piece ends, and the queue knows nothing more of it.

use std::sync::Arc;

use plimsoll_core::{
    Cancel, CostForm, CostModel, Disk, DiskConfig, FourFigures, GroupId, IoQueue, LatencyGoal, Op, Outcome, Progress,
    QueueConfig, Rate, Stopped,
};

/// A disk of 10 MB/s and 100 operations a second that cuts requests into small pieces.
fn queue() -> (IoQueue, plimsoll_core::ClassId) {
    let figures = FourFigures {
        read_iops: Rate::per_second(1_000),
        write_iops: Rate::per_second(1_000),
        read_bandwidth: Rate::per_second(10_000_000),
        write_bandwidth: Rate::per_second(10_000_000),
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    let config = DiskConfig { model, latency_goal: LatencyGoal::Ns(20_000_000), ..DiskConfig::default() };
    let disk = Arc::new(Disk::new(config));
    let class = disk.add_class(GroupId::ROOT, 100).unwrap();
    (IoQueue::new(disk, QueueConfig::default()), class)
}

#[test]
fn what_is_left_of_a_cut_request_is_neither_sent_nor_a_failure() {
    let (mut queue, class) = queue();
    let id = queue.enqueue(1_000, class, Op::Read, 64 << 20, 7).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = queue.poll_dispatch(1_000) {
        pieces.push(piece);
    }
    assert!(!pieces.is_empty() && queue.queued() == 1, "{} pieces", pieces.len());
    let sent_bytes: u32 = pieces.iter().map(|piece| piece.len_bytes()).sum();

    assert_eq!(queue.cut(id), Some(sent_bytes));
    assert_eq!((queue.queued(), queue.cut(id), queue.next_wakeup()), (0, None, None));
    let last = pieces.len() - 1;
    for (at, piece) in pieces.into_iter().enumerate() {
        let moved = Outcome::Moved(piece.len_bytes());
        match queue.complete(5_000_000, piece, moved) {
            Progress::Finished(finished) => assert_eq!((at, finished.result), (last, Ok(sent_bytes))),
            other => assert!(at < last, "{other:?}"),
        }
    }
    let stats = queue.class_stats(class).unwrap();
    assert_eq!((stats.errors, stats.cancelled, stats.queued, stats.queued_bytes), (0, 0, 0, 0));
    assert_eq!((stats.read.requests, stats.read.bytes), (1, u64::from(sent_bytes)));
    assert_eq!(queue.requests(), 0);
}

#[test]
fn a_request_of_which_nothing_has_gone_is_not_cut() {
    let (mut queue, class) = queue();
    let id = queue.enqueue(1_000, class, Op::Read, 4096, 7).unwrap();
    assert_eq!(queue.cut(id), None);
    let piece = queue.poll_dispatch(1_000).unwrap();
    assert_eq!(queue.cut(id), None, "all of it is in the device");
    assert!(
        matches!(queue.complete(2_000, piece, Outcome::Moved(4096)), Progress::Finished(f) if f.result == Ok(4096))
    );
    assert_eq!(queue.cut(id), None, "it has ended");
}

/// A reader that gives up while its request waits for its turn between two pieces.
#[test]
fn what_a_cancelled_request_had_moved_is_counted() {
    let (mut queue, class) = queue();
    let mut moved_bytes = [0; 2];
    for (op, moved_bytes) in [Op::Read, Op::Write].into_iter().zip(&mut moved_bytes) {
        let now_ns = if op == Op::Read { 1_000 } else { 60_000_000_000 };
        let id = queue.enqueue(now_ns, class, op, 64 << 20, 7).unwrap();
        let pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(now_ns)).collect();
        for piece in pieces {
            let len_bytes = piece.len_bytes();
            *moved_bytes += len_bytes;
            assert!(matches!(queue.complete(now_ns, piece, Outcome::Moved(len_bytes)), Progress::Pending));
        }
        let stopped = Stopped { user_data: 7, moved_bytes: *moved_bytes };
        assert!(*moved_bytes > 0 && queue.cancel(id) == Cancel::Cancelled(stopped));
    }
    let stats = queue.class_stats(class).unwrap();
    assert_eq!([stats.read.bytes, stats.write.bytes], moved_bytes.map(u64::from));
    assert_eq!((stats.cancelled, stats.errors, stats.queued_bytes), (2, 0, 0));
}
