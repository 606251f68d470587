//! Memory follows the requests in flight: a world that runs twice as long allocates no more often.

use crate::common::world::*;
use plimsoll_sim::world::{WorldSpec, run};

#[test]
fn nothing_is_allocated_per_request() {
    let jobs = || vec![reads("a", 20), reads("b", 20)];
    let spec = |duration_ns| WorldSpec { shards: shards(3), duration_ns, ..world(jobs()) };
    let allocations = |spec: &WorldSpec| {
        let mut finished = 0;
        let counted = allocation_counter::measure(|| finished = run(spec).unwrap().totals.finished);
        (counted.count_total, finished)
    };
    let (short, long) = (allocations(&spec(200 * MS)), allocations(&spec(400 * MS)));
    assert!(long.1 > short.1 + 15_000, "{short:?} {long:?}");
    // A list may reach its busiest moment in the second half, and each histogram a longer latency or higher count.
    let histograms = 3 * 2 * 3 + 2 * 3;
    assert!(long.0 <= short.0 + 5 + 2 * histograms, "{short:?} {long:?}");
}
