//! Queues that are away: those that are there keep their shares among themselves, those that come back have little back
//! (100 ms), and afterwards each class has its share again, whatever has happened in whatever order.

use crate::common::{KIB, S, usual};
use crate::reference::shards::Shards;
use plimsoll_core::{DiskConfig, Op};

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
