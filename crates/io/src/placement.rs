//! The NUMA node and the processor of each shard, and the I/O queue that serves it.
//!
//! # Why
//! Topologies number queues, and runtimes pin threads: both must agree on the node of a shard, or messages would cross
//! nodes.
//!
//! # How it works
//! Shards are numbered by node, those of the first node first. Each node gets shards in proportion to its processors,
//! and I/O queues in proportion to its shards, at least one (d'Hondt's rule: the node with the highest size per seat
//! gets the next seat). On a node with S shards and Q queues, shard s of the node uses its queue s*Q/S: neighbours
//! share.
//!
//! # Limits
//! The processors are those of the thread that makes the topology. If the runtime may use others, shards are pinned to
//! their own node while it has processors left, then to any.
//!
//! # Example
//! 6 shards on nodes of 4 and 4 processors: 3 on each. 3 queues: 2 on the first node (shards 0, 1 and shard 2), 1 on
//! the other (shards 3, 4, 5).

use std::collections::BTreeMap;

/// Processors by the number of their NUMA node, in the order in which shards use them.
pub(crate) type CpusByNode = BTreeMap<u16, Vec<usize>>;

/// Divides `seats` over parties of these `sizes`; each party first gets `least`. If the sizes together are enough, no
/// party gets more than its size.
fn divide(seats: u16, least: u16, sizes: &[usize]) -> Vec<u16> {
    let mut given = vec![least; sizes.len()];
    let given_first = usize::from(least) * sizes.len();
    for _ in given_first..usize::from(seats) {
        // The first of those with the highest size/(given + 1).
        let best = (0..sizes.len()).reduce(|best, at| {
            let is_higher = sizes[at] * (usize::from(given[best]) + 1) > sizes[best] * (usize::from(given[at]) + 1);
            if is_higher { at } else { best }
        });
        if let Some(best) = best {
            given[best] += 1;
        }
    }
    given
}

/// Returns the node of each shard, in ascending order. Without processors, all are on node 0.
pub(crate) fn nodes_of_shards(shards: u16, cpus: &CpusByNode) -> Vec<u16> {
    let sizes: Vec<usize> = cpus.values().map(Vec::len).collect();
    if sizes.iter().sum::<usize>() == 0 {
        return vec![0; usize::from(shards)];
    }
    let counts = divide(shards, 0, &sizes);
    cpus.keys().zip(counts).flat_map(|(node, count)| std::iter::repeat_n(*node, usize::from(count))).collect()
}

/// Returns a distinct processor for each shard, or `None` if there are fewer processors than shards.
pub(crate) fn cpus_of_shards(nodes: &[u16], cpus: &CpusByNode) -> Option<Vec<usize>> {
    let mut left = cpus.clone();
    left.values_mut().for_each(|cpus| cpus.reverse());
    let own: Vec<Option<usize>> = nodes.iter().map(|node| left.get_mut(node).and_then(Vec::pop)).collect();
    let mut others = left.into_values().flat_map(|cpus| cpus.into_iter().rev());
    own.into_iter().map(|cpu| cpu.or_else(|| others.next())).collect()
}

/// Returns the number of nodes with shards.
pub(crate) fn node_count(nodes: &[u16]) -> u16 {
    runs(nodes).len() as u16
}

/// Returns the I/O queue of each shard. `queues` is at least the number of nodes.
pub(crate) fn queues_of_shards(queues: u16, nodes: &[u16]) -> Vec<u16> {
    let shards = runs(nodes);
    let counts = divide(queues, 1, &shards);
    let mut first = 0;
    let mut all = Vec::with_capacity(nodes.len());
    for (shards, count) in shards.into_iter().zip(counts) {
        all.extend((0..shards).map(|shard| first + (shard * usize::from(count) / shards) as u16));
        first += count;
    }
    all
}

/// Returns the lengths of the runs of equal nodes.
fn runs(nodes: &[u16]) -> Vec<usize> {
    nodes.chunk_by(|one, next| one == next).map(<[u16]>::len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns nodes with these numbers of processors, numbered across the nodes, as many machines do.
    fn across(sizes: &[usize]) -> CpusByNode {
        let mut cpus: CpusByNode = (0..).zip(sizes).map(|(node, _)| (node, Vec::new())).collect();
        let mut number = 0;
        for round in 0..sizes.iter().copied().max().unwrap_or(0) {
            for (node, _) in (0..).zip(sizes).filter(|(_, size)| round < **size) {
                cpus.get_mut(&node).unwrap().push(number);
                number += 1;
            }
        }
        cpus
    }

    #[test]
    fn shards_are_numbered_by_the_node_that_they_are_pinned_to() {
        let check = |sizes: &[usize], nodes: &[u16], pinned: &[usize]| {
            let (cpus, shards) = (across(sizes), nodes.len() as u16);
            assert_eq!(nodes_of_shards(shards, &cpus), nodes, "{sizes:?}, {shards} shards");
            assert_eq!(cpus_of_shards(nodes, &cpus).unwrap(), pinned, "{sizes:?}, {shards} shards");
        };
        // Processors of the nodes, nodes of the shards, their processors.
        check(&[4], &[0, 0, 0], &[0, 1, 2]);
        check(&[2, 2], &[0, 0, 1, 1], &[0, 2, 1, 3]);
        check(&[2, 2], &[0, 1], &[0, 1]);
        check(&[2, 2], &[0], &[0]);
        check(&[3, 1], &[0, 0, 0], &[0, 2, 3]);
        check(&[3, 1], &[0, 0, 0, 1], &[0, 2, 3, 1]);
        assert_eq!(nodes_of_shards(2, &CpusByNode::new()), [0, 0]);
        assert_eq!(cpus_of_shards(&[0, 0, 0], &across(&[1, 1])), None);
        // The runtime may use other processors than the topology knew of.
        assert_eq!(cpus_of_shards(&[0, 0, 0, 7], &across(&[1, 3])).unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn no_queue_spans_two_nodes_and_each_node_has_one() {
        for sizes in [&[8][..], &[4, 4], &[6, 2], &[1, 1, 1], &[2, 5, 2], &[4, 4, 4, 4]] {
            let cpus = across(sizes);
            let total: usize = sizes.iter().sum();
            for shards in 1..=20 {
                let nodes = nodes_of_shards(shards, &cpus);
                assert_eq!(nodes.len(), usize::from(shards));
                assert!(nodes.is_sorted());
                match cpus_of_shards(&nodes, &cpus) {
                    Some(pinned) => assert!(nodes.iter().zip(&pinned).all(|(node, cpu)| cpus[node].contains(cpu))),
                    None => assert!(usize::from(shards) > total),
                }
                for queues in node_count(&nodes)..=shards {
                    let of_shards = queues_of_shards(queues, &nodes);
                    let what = format!("{sizes:?}, {shards} shards, {queues} queues: {of_shards:?} on {nodes:?}");
                    assert!(of_shards.len() == nodes.len() && of_shards[0] == 0, "{what}");
                    assert_eq!(of_shards[of_shards.len() - 1], queues - 1, "{what}");
                    for (queue, node) in of_shards.windows(2).zip(nodes.windows(2)) {
                        assert!(queue[0] == queue[1] || queue[0] + 1 == queue[1], "{what}");
                        assert!(node[0] == node[1] || queue[0] != queue[1], "{what}");
                    }
                }
            }
        }
    }
}
