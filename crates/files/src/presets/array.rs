//! Compares an array of disks with the limit of its instance.
//!
//! **Why.** Three volumes of 250 MB/s give 750 MB/s only if the instance admits that; a user who reads its 6,800 Mb/s
//! as MB/s never finds the reason.
//!
//! **How.** The bandwidth of the array is the sum of its members'. Reads and writes are each compared with the limit:
//! the array carries the smaller of sum and limit, and the limit binds if the sum is above it.
//!
//! **Limits.** The limit is one of bandwidth. If an instance counts reads and writes together, both at once reach it
//! earlier.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::presets::{ArrayReport, resolve};
//! let array = ArrayReport::new(&resolve("3xgp3:50GB:250MB/s")?, Some(850_000_000));
//! assert!(!array.limit_binds);
//! assert_eq!((array.read.sum_bytes_per_s, array.read.left_bytes_per_s), (750_000_000, Some(100_000_000)));
//! # Ok::<(), plimsoll_files::presets::ResolveError>(())
//! ```

use serde::Serialize;

use super::{PresetInfo, Resolved};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrayReport {
    /// Members, at least 1.
    pub members: u32,
    pub member: PresetInfo,
    pub array: PresetInfo,
    /// The bandwidth that the instance admits, in bytes per second; `None` if no limit was given.
    pub limit_bytes_per_s: Option<u64>,
    /// Whether the limit is below the members' bandwidth in either direction.
    pub limit_binds: bool,
    pub read: Direction,
    pub write: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Direction {
    /// The members' bandwidth together, in bytes per second.
    pub sum_bytes_per_s: u64,
    /// The bandwidth that is carried: the smaller of sum and limit.
    pub carried_bytes_per_s: u64,
    /// The smaller of the two: `limit` or `members`.
    pub bound_by: &'static str,
    /// Part of the limit beyond the sum; 0 if the limit binds, `None` without a limit.
    pub left_bytes_per_s: Option<u64>,
    /// The part that each member carries.
    pub per_member_bytes_per_s: u64,
    /// That part in per cent of a member's bandwidth.
    pub per_member_pct: f64,
}

impl Direction {
    fn new(sum_bytes_per_s: u64, members: u32, limit_bytes_per_s: Option<u64>) -> Direction {
        let carried_bytes_per_s = limit_bytes_per_s.map_or(sum_bytes_per_s, |limit| limit.min(sum_bytes_per_s));
        Direction {
            sum_bytes_per_s,
            carried_bytes_per_s,
            bound_by: if carried_bytes_per_s < sum_bytes_per_s { "limit" } else { "members" },
            left_bytes_per_s: limit_bytes_per_s.map(|limit| limit.saturating_sub(sum_bytes_per_s)),
            per_member_bytes_per_s: carried_bytes_per_s / u64::from(members.max(1)),
            per_member_pct: 100.0 * carried_bytes_per_s as f64 / sum_bytes_per_s.max(1) as f64,
        }
    }

    /// Returns the members' bandwidth beyond the limit, in bytes per second; 0 if the limit does not bind.
    pub fn lost_bytes_per_s(&self) -> u64 {
        self.sum_bytes_per_s.saturating_sub(self.carried_bytes_per_s)
    }
}

impl ArrayReport {
    pub fn new(resolved: &Resolved, limit_bytes_per_s: Option<u64>) -> ArrayReport {
        let array = PresetInfo::of(resolved);
        let one = Resolved { preset: resolved.member.clone(), count: 1, ..resolved.clone() };
        let direction = |sum: u64| Direction::new(sum, resolved.count, limit_bytes_per_s);
        let (read, write) = (direction(array.total.read_bandwidth), direction(array.total.write_bandwidth));
        ArrayReport {
            members: resolved.count,
            member: PresetInfo::of(&one),
            array,
            limit_bytes_per_s,
            limit_binds: read.bound_by == "limit" || write.bound_by == "limit",
            read,
            write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve;
    use super::*;

    #[test]
    fn the_smaller_of_sum_and_limit_is_carried() {
        // Array, limit in MB/s; sum, carried, left and each member's share of reads, in MB/s, and whether it binds.
        let cases = [
            ("3xgp3:50GB:250MB/s", Some(850), 750, 750, Some(100), 250, false),
            ("4xgp3:50GB:250MB/s", Some(850), 1000, 850, Some(0), 212, true),
            ("3xgp3:50GB:250MB/s", Some(750), 750, 750, Some(0), 250, false),
            ("3xgp3:50GB:250MB/s", None, 750, 750, None, 250, false),
            ("983-dct", Some(850), 3000, 850, Some(0), 850, true),
        ];
        for (text, limit, sum, carried, left, share, binds) in cases {
            let mb = |value: u64| value * 1_000_000;
            let report = ArrayReport::new(&resolve(text).unwrap(), limit.map(mb));
            let read = report.read;
            let found = (read.sum_bytes_per_s, read.carried_bytes_per_s, read.left_bytes_per_s);
            assert_eq!(found, (mb(sum), mb(carried), left.map(mb)), "{text} {limit:?}");
            assert_eq!(read.per_member_bytes_per_s / 1_000_000, share, "{text} {limit:?}");
            assert_eq!(report.limit_binds, binds, "{text} {limit:?}");
            assert_eq!(read.bound_by, if binds { "limit" } else { "members" });
        }
    }

    #[test]
    fn one_direction_can_be_bound_alone() {
        let report = ArrayReport::new(&resolve("2x983-dct").unwrap(), Some(5_000_000_000));
        assert_eq!((report.read.bound_by, report.write.bound_by), ("limit", "members"));
        assert!(report.limit_binds);
        assert_eq!(report.member.total.read_iops * 2, report.array.total.read_iops);
    }
}
