//! Queues that are away: those that are there keep their shares among themselves, those that come back have little back
//! (100 ms), and afterwards each class has its share again, whatever has happened in whatever order.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::{KIB, S, usual};
use crate::reference::shards::Shards;
use plimsoll_core::{Disk, DiskConfig, GroupId, IoQueue, Op, Outcome, QueueConfig, WaitReason};

/// Regression (a class of 100 shares had nothing for seconds): a queue whose turn it is and that lacks tokens for a long
/// piece was taken to be alone while another's short requests were all in the device. It claimed nothing, and each of
/// those that ended was followed by another, which took the tokens.
#[test]
fn a_long_piece_has_its_tokens_beside_short_ones_that_are_all_in_the_device() {
    // The device has room for all; tokens are short.
    let disk = Arc::new(Disk::new(DiskConfig { unloaded_latency_ns: 500_000, ..usual() }));
    let classes = [1, 100].map(|shares| disk.add_class(GroupId::ROOT, shares).unwrap());
    let mut queues = [0, 1].map(|_| IoQueue::new(Arc::clone(&disk), QueueConfig::default()));
    for _ in 0..64 {
        queues[0].enqueue(S, classes[0], Op::Read, 4 * KIB, 0).unwrap();
    }
    let mut short: VecDeque<_> = std::iter::from_fn(|| queues[0].poll_dispatch(S)).collect();
    assert_eq!(short.len(), 64);
    queues[1].enqueue(S, classes[1], Op::Read, 300 * KIB, 1).unwrap();
    assert!(queues[1].poll_dispatch(S).is_none() && queues[1].blocked_on() == Some(WaitReason::Tokens));

    // One short request is served in its turn; then the long one's has come.
    let mut others = 0;
    for now_ns in (S + 10_000..S + 400_000).step_by(10_000) {
        let _ = queues[0].complete(now_ns, short.pop_front().unwrap(), Outcome::Moved(4 * KIB));
        queues[0].enqueue(now_ns, classes[0], Op::Read, 4 * KIB, 0).unwrap();
        while let Some(piece) = queues[0].poll_dispatch(now_ns) {
            short.push_back(piece);
            others += 1;
        }
        if queues[1].next_wakeup().is_some_and(|at_ns| at_ns <= now_ns) && queues[1].poll_dispatch(now_ns).is_some() {
            assert!(others <= 1, "{others} overtook it");
            return;
        }
    }
    panic!("the long one waits still, {others} overtook it");
}

/// Regression: queues of one group, whose bucket had a part of the rate, slept past the time at which the idle group's
/// bucket could lend: they had 0.6 to 0.9 of the disk.
#[test]
fn a_group_that_is_alone_has_all_tokens() {
    for lengths in [[16 * KIB, 4 * KIB], [300 * KIB, 64 * KIB], [16 * KIB, 300 * KIB]] {
        for groups in [2, 4] {
            let mut world = Shards::new(DiskConfig { groups, ..usual() }, 2);
            let classes = [100, 1].map(|shares| world.class(shares));
            for (shard, len_bytes) in lengths.iter().enumerate() {
                world.backlog(shard, classes[0], Op::Read, &[*len_bytes], 64);
            }
            world.backlog(0, classes[1], Op::Read, &[300 * KIB], 64);
            world.run_for(S);
            world.start_counting();
            world.run_for(S);
            assert!(world.total_s() > 0.95, "{groups} groups, {lengths:?}: {}", world.total_s());
        }
    }
}
