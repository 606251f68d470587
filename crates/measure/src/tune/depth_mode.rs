//! Recommends I/O queues and requests for a disk that is scheduled by depth alone.
//!
//! **Why.** In depth mode the disk gets at most `max_io_requests` at a time, divided over `num_io_queues`. With too few
//! requests per queue, its shards cannot use the disk's parallelism or be told apart; with too few queues, shards
//! exchange messages for every request.
//!
//! **How.** The depth is the one that reaches nearly the best rate ([`ENOUGH_PART`]); more requests would only wait.
//! Each queue needs 4 ([`QUEUE_DEPTH_MIN`]), so there are a quarter as many queues as requests: at most one per shard
//! (then no messages are sent), and at least one per NUMA node, since a queue and its shards are on one node. Several
//! nodes get the same number of queues each, unless every shard has its own.
//!
//! **Limits.** iotune of 2016 took three times the depth that reaches 80 % of the best rate. The reason names that
//! depth, too: for the Samsung 850 PRO, which serves ten reads at once, it is 30, while 12 reach 90 %. The requests
//! beyond that only wait.
//!
//! The depth is that of one request size. If the nodes need more queues than the depth allows, the disk gets more
//! requests than it needs, which costs latency; the reason says so. The scheduler divides uneven remainders.
//!
//! **Example.** 30 requests with 12 shards on one node: 7 queues, 30 requests. With 6 shards: 6 queues, a shard each.

use super::report::DepthMode;

/// Part of the best rate that counts as enough.
pub(super) const ENOUGH_PART: f64 = 0.9;
/// The same for iotune of 2016, which then took [`IOTUNE_2016_TIMES`] the depth.
pub(super) const IOTUNE_2016_PART: f64 = 0.8;
const IOTUNE_2016_TIMES: u32 = 3;
/// Fewest requests with which a queue can use a disk's parallelism.
const QUEUE_DEPTH_MIN: u32 = 4;

/// Returns the setting for a disk that needs `enough_depth` requests under way, used by `shards` shards on `numa_nodes`
/// nodes. Zeros count as ones. `depth_80` reaches the part of the best rate that was enough for iotune of 2016.
pub(super) fn recommend(enough_depth: u32, depth_80: u32, shards: u16, numa_nodes: u16) -> DepthMode {
    let (enough_depth, shards) = (enough_depth.max(1), shards.max(1));

    // Nodes without a shard need no queue.
    let nodes = numa_nodes.clamp(1, shards);
    let affordable = u16::try_from(enough_depth / QUEUE_DEPTH_MIN).unwrap_or(u16::MAX);
    let num_io_queues = match affordable {
        queues if queues >= shards => shards,
        queues => (queues / nodes * nodes).max(nodes),
    };

    let needed = u32::from(num_io_queues) * QUEUE_DEPTH_MIN;
    let max_io_requests = enough_depth.max(needed);

    let mut reason = format!("{enough_depth} request(s) get 90 % of the best rate");
    if needed > enough_depth {
        let why = if nodes > 1 { format!("{nodes} NUMA nodes need a queue each") } else { "a queue".to_owned() };
        let verb = if nodes > 1 { ", and a queue needs" } else { " needs" };
        reason += &format!("; {why}{verb} {QUEUE_DEPTH_MIN}, so {needed}: more latency than the disk has to have");
    }

    reason += &if shards == 1 {
        "; the only shard has its own queue".to_owned()
    } else if num_io_queues == shards {
        format!("; each of {shards} shards has its own queue, so none sends messages")
    } else {
        format!(
            "; {num_io_queues} queue(s) have at least {QUEUE_DEPTH_MIN} each, {shards} shards share them by messages"
        )
    };

    reason += &format!("; iotune of 2016 would have taken {}", depth_80.max(1).saturating_mul(IOTUNE_2016_TIMES));

    DepthMode { num_io_queues, max_io_requests, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_four_requests_and_nodes_a_queue() {
        // knee, shards, nodes -> queues, requests, part of the reason
        let cases = [
            (30, 12, 1, 7, 30, "7 queue(s)"),
            (30, 6, 1, 6, 30, "its own queue"),
            (120, 12, 1, 12, 120, "its own queue"),
            (48, 12, 1, 12, 48, "its own queue"),
            (47, 12, 1, 11, 47, "11 queue(s)"),
            (30, 12, 2, 6, 30, "6 queue(s)"),
            (5, 64, 1, 1, 5, "5 request(s) get 90 %"),
            (3, 64, 1, 1, 4, "a queue needs 4, so 4"),
            (6, 64, 4, 4, 16, "4 NUMA nodes need a queue each, and a queue needs 4, so 16"),
            (100, 2, 8, 2, 100, "its own queue"),
            (1, 1, 1, 1, 4, "its own queue"),
            (0, 0, 0, 1, 4, "its own queue"),
            (u32::MAX, u16::MAX, u16::MAX, u16::MAX, u32::MAX, "its own queue"),
            (1, u16::MAX, u16::MAX, u16::MAX, 262_140, "65535 NUMA nodes"),
        ];
        for (knee, shards, nodes, queues, requests, part) in cases {
            let found = recommend(knee, knee, shards, nodes);
            assert_eq!((found.num_io_queues, found.max_io_requests), (queues, requests), "{knee} {shards} {nodes}");
            assert!(found.reason.contains(part), "{knee} {shards} {nodes}: {}", found.reason);
        }
    }

    #[test]
    fn the_bounds_hold_everywhere() {
        for knee in 0..80 {
            for shards in 1..24 {
                for nodes in 1..6 {
                    let found = recommend(knee, knee, shards, nodes);
                    let queues = found.num_io_queues;
                    assert!((nodes.min(shards)..=shards).contains(&queues), "{knee} {shards} {nodes}: {queues}");
                    assert!(found.max_io_requests / u32::from(queues) >= QUEUE_DEPTH_MIN, "{knee} {shards} {nodes}");
                    assert!(found.max_io_requests >= knee, "{knee} {shards} {nodes}");
                }
            }
        }
    }
}
