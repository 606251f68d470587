//! The price of a latency goal that binds.
//!
//! **Why.** A disk whose rate rises slowly with the requests in it cannot keep both goals. A user who measures such a
//! disk should see that the scheduler held it back, by how much, and what to change.
//!
//! **How.** Each shard records [`WindowLimit`] at the end of the measured window, while the load still runs. The report
//! uses the first shard whose closed loop was bound by the latency goal.
//!
//! **Limits.** Estimates: see [`WindowLimit`].
//!
//! **Example.** "the latency goal binds: about 0.84 of the throughput is kept; --latency-goal 1.4 (or less) would keep
//! the throughput goal".

use plimsoll::core::WindowLimit;
use serde::{Deserialize, Serialize};

use crate::load::RunResult;

/// A disk whose latency goal keeps it from the throughput goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalPrice {
    pub disk: u16,
    /// The approximate part of the disk's full throughput that the window keeps.
    pub kept: f64,
    /// A latency goal that would keep the throughput goal, in milliseconds. A smaller one may suffice.
    pub needed_ms: f64,
}

impl GoalPrice {
    /// Returns the price of the latency goal of disk number `disk`, if it binds.
    pub(crate) fn of(disk: u16, limit: WindowLimit) -> Option<GoalPrice> {
        match limit {
            WindowLimit::LatencyGoal { kept, needed_ns } => {
                Some(GoalPrice { disk, kept, needed_ms: needed_ns as f64 / 1e6 })
            }
            _ => None,
        }
    }

    /// Returns a clause with the binding goal, its cost and the remedy, without a full stop.
    pub fn sentence(&self) -> String {
        let GoalPrice { disk, kept, needed_ms } = self;
        let which = if *disk == 0 { String::new() } else { format!(" of disk {disk}") };
        format!(
            "the latency goal{which} binds: about {kept:.2} of the throughput is kept; --latency-goal {needed_ms:.1} (or less) \
             would keep the throughput goal"
        )
    }
}

/// Returns the prices of a run, ordered by the number of the disk.
pub(super) fn of_run(run: &RunResult) -> Vec<GoalPrice> {
    let disks = run.shards.iter().map(|shard| shard.window_limits.len()).max().unwrap_or(0);
    let price = |disk: u16| {
        let mut limits = run.shards.iter().filter_map(|shard| shard.window_limits.get(usize::from(disk)));
        limits.find_map(|limit| GoalPrice::of(disk, *limit))
    };
    (0..u16::try_from(disks).unwrap_or(u16::MAX)).filter_map(price).collect()
}
