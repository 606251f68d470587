//! Controllers for background work: shares that follow its backlog, and an ingestion rate that follows its debt.
//!
//! # Why
//! Static shares are wrong most of the time. With too few, compaction falls behind, reads search more and more files,
//! and the disk fills; with too many, it takes the disk from queries although nothing is waiting. The right number
//! makes background work as fast as its cause, and the backlog shows whether there are too few or too many.
//!
//! # How it works
//! [`ShareCurve`] maps a backlog to shares, piecewise linear. More backlog gives more shares; both settle where work is
//! done as fast as it arrives. There is no integral term: the backlog is the integral. [`ShareController`] evaluates
//! the curve at an interval and ignores small changes. [`size_tiered_bytes`] and [`leveled_bytes`] compute backlogs of
//! log-structured trees. If all shares are given and the backlog still grows, writes have to slow down:
//! [`ingestion_delay_ns`] delays each of them by how full a buffer is, [`IngestionRate`] bounds all of them by the
//! debt.
//!
//! # Limits
//! Pure functions of time and backlog: the caller sets the shares ([`crate::Disk::set_shares`]) and delays the
//! writes. The curves are ScyllaDB's, as are the two backlogs of its compaction (`compaction_controller.md`) and the
//! delay (view flow control, 2018); the rate and the debt of levels are RocksDB's (`WriteController`,
//! `EstimateCompactionBytesNeeded`).
//!
//! # Example
//! ```
//! use plimsoll_core::backlog::{ShareController, ShareCurve, TreeFile, size_tiered_bytes};
//!
//! let memory_bytes = 1e9;
//! let mut compaction = ShareController::new(ShareCurve::compaction(), 250_000_000);
//! let file = |bytes| TreeFile { bytes, compacted_bytes: 0 };
//! let backlog = size_tiered_bytes(&[file(1_000_000_000); 4]) / memory_bytes;
//! // Four files of 1 GB: each byte is to be written once more before they are one.
//! assert!((backlog - 4.0).abs() < 1e-9);
//! assert_eq!(compaction.update(0, backlog), Some(179));
//! assert_eq!(compaction.update(100_000_000, 30.0), None, "not before the interval has passed");
//! assert_eq!(compaction.update(250_000_000, 30.0), Some(1000));
//! ```

/// A map from backlog to shares: linear between its points, constant before the first and after the last.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareCurve {
    points: Vec<(f64, u32)>,
}

impl ShareCurve {
    /// Returns a curve through `points`, pairs of backlog and shares. `None` if there are no points, or if their
    /// backlogs are not finite and rising.
    #[must_use]
    pub fn new(points: &[(f64, u32)]) -> Option<ShareCurve> {
        let is_finite = points.iter().all(|(backlog, _)| backlog.is_finite());
        let rises = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (!points.is_empty() && is_finite && rises).then(|| ShareCurve { points: points.to_vec() })
    }

    /// Returns ScyllaDB's curve for compaction, whose backlog is bytes to be written over bytes of memory: 50 shares at
    /// 0, 100 at 1.5, 1000 at 30. Its queries and its commit log have 1000 ([`ShareCurve::beside`]).
    #[must_use]
    pub fn compaction() -> ShareCurve {
        ShareCurve { points: vec![(0.0, 50), (1.5, 100), (BACKLOG_MOST, 1000)] }
    }

    /// Returns ScyllaDB's curve for flushing memtables, whose backlog is dirty memory over its limit: 10 shares at 0.6,
    /// 200 at 0.8, 1000 at 1. Its queries and its commit log have 1000 ([`ShareCurve::beside`]).
    #[must_use]
    pub fn flush() -> ShareCurve {
        ShareCurve::flush_of_tables(0.0)
    }

    /// Returns the curve of [`ShareCurve::flush`] for memory that comes free a table at a time: `table` is a memtable
    /// over the limit of dirty memory, and the curve ends that much earlier, at most by a half.
    ///
    /// Until all of a table is in its file, its memory is dirty and the next table fills beside it. So dirty memory
    /// swings by a table around the level at which the shares suffice. If that level lies within a table of the limit,
    /// the swing reaches the limit, and writes stop although flushes keep pace.
    #[must_use]
    pub fn flush_of_tables(table: f64) -> ShareCurve {
        // NaN counts as memory that comes free at once. `clamp` keeps NaN.
        let table = if table.is_nan() { 0.0 } else { table.clamp(0.0, 0.5) };
        ShareCurve { points: vec![(0.0, 0), (0.6 - table, 10), (0.8 - table, 200), (1.0 - table, 1000)] }
    }

    /// Returns one of ScyllaDB's curves for a database whose queries have `shares` instead of 1000, with all of its
    /// shares in that proportion, rounded to whole ones.
    #[must_use]
    pub fn beside(mut self, shares: u32) -> ShareCurve {
        for (_, at) in &mut self.points {
            let exact = u64::from(*at) * u64::from(shares);
            *at = ((exact + QUERY_SHARES / 2) / QUERY_SHARES).min(u64::from(u32::MAX)) as u32;
        }
        self
    }

    /// Returns the shares at `backlog`, at least 1. A NaN counts as no backlog.
    #[must_use]
    pub fn shares(&self, backlog: f64) -> u32 {
        let backlog = if backlog.is_nan() { f64::NEG_INFINITY } else { backlog };
        let above = self.points.partition_point(|(point, _)| *point <= backlog);
        let shares = match (above.checked_sub(1).map(|at| self.points[at]), self.points.get(above)) {
            (Some((from, low)), Some((to, high))) => {
                let part = (backlog - from) / (to - from);
                f64::from(low) + part * (f64::from(*high) - f64::from(low))
            }
            (Some((_, last)), None) => f64::from(last),
            (None, first) => first.map_or(1.0, |(_, shares)| f64::from(*shares)),
        };
        // Rounds to the nearest: the sum is positive.
        ((shares + 0.5) as u32).max(1)
    }
}

/// Shares of queries in ScyllaDB, in which its curves are given.
const QUERY_SHARES: u64 = 1000;

/// Relative change of a class's shares below which [`ShareController`] leaves them alone.
pub const DEAD_BAND: f64 = 0.02;

/// Turns a backlog into shares at an interval.
#[derive(Clone, Debug)]
pub struct ShareController {
    curve: ShareCurve,
    interval_ns: u64,
    next_ns: u64,
    shares: u32,
}

impl ShareController {
    /// Returns a controller that evaluates the backlog every `interval_ns`. ScyllaDB uses 50 ms for flushes and 250 ms
    /// for compaction.
    #[must_use]
    pub fn new(curve: ShareCurve, interval_ns: u64) -> ShareController {
        ShareController { curve, interval_ns, next_ns: 0, shares: 0 }
    }

    /// Returns the shares to set, if the interval has passed and they differ from the last ones by more than
    /// [`DEAD_BAND`].
    pub fn update(&mut self, now_ns: u64, backlog: f64) -> Option<u32> {
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns.saturating_add(self.interval_ns);
        let shares = self.curve.shares(backlog);
        if f64::from(shares.abs_diff(self.shares)) <= DEAD_BAND * f64::from(self.shares) {
            return None;
        }
        self.shares = shares;
        Some(shares)
    }

    /// Returns the shares set last; 0 before the first.
    #[must_use]
    pub fn shares(&self) -> u32 {
        self.shares
    }
}

/// A sorted file of a size-tiered tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Length of the file, so far if it is being written.
    pub bytes: u64,
    /// Bytes of it that running compactions have read.
    pub compacted_bytes: u64,
}

/// Files merged at a time in a size-tiered tree: each merge quadruples the length.
const TIER: f64 = 4.0;

/// Returns the bytes that compaction must still write until the files of a size-tiered tree are one. Each byte of a
/// file not yet compacted is written log4(T/S) times more, S being the length of the file and T that of the tree.
#[must_use]
pub fn size_tiered_bytes(files: &[TreeFile]) -> f64 {
    let tree_bytes: f64 = files.iter().map(|file| file.bytes as f64).sum();
    let of_file = |file: &TreeFile| {
        let rest_bytes = file.bytes.saturating_sub(file.compacted_bytes) as f64;
        rest_bytes * crate::math::ln(tree_bytes / (file.bytes as f64).max(1.0)) / crate::math::ln(TIER)
    };
    files.iter().filter(|file| file.bytes > 0).map(of_file).sum()
}

/// Returns the bytes that compaction must still read and write until no level of a leveled tree exceeds its target.
/// `level_bytes` begins with level 0, whose target is zero. Level 1 may have `base_bytes`, each further level `fan_out`
/// times as many, the last any number. The excess of a level moves down and is merged with the part of the next level
/// that it overlaps.
#[must_use]
pub fn leveled_bytes(level_bytes: &[u64], base_bytes: u64, fan_out: u32) -> u64 {
    let (mut debt, mut from_above, mut target) = (0.0, 0.0, 0.0);
    for (level, pair) in level_bytes.windows(2).enumerate() {
        let (bytes, next_bytes) = (pair[0] as f64 + from_above, pair[1] as f64);
        let excess = (bytes - target).max(0.0);
        if excess > 0.0 {
            debt += excess * (1.0 + next_bytes / bytes);
        }
        from_above = excess;
        target = if level == 0 { base_bytes as f64 } else { target * f64::from(fan_out) };
    }
    debt as u64
}

/// Fullness of level 0 up to which its files add no backlog: they wait for the next compaction.
const LEVEL_0_CALM: f64 = 0.5;
/// Backlog at which [`ShareCurve::compaction`] ends: ScyllaDB's for an unbounded backlog.
const BACKLOG_MOST: f64 = 30.0;

/// Returns the backlog, in the unit of [`ShareCurve::compaction`], that the fullness of level 0 counts as: none up to a
/// half, 30 when it is full.
///
/// The bytes of a full level 0 are few beside those of the tree, and so are the shares that compaction gets for them.
/// But flushes stop until its files are compacted, and then writes stop too.
#[must_use]
pub fn level_0_backlog(fullness: f64) -> f64 {
    ((fullness - LEVEL_0_CALM) / (1.0 - LEVEL_0_CALM)).clamp(0.0, 1.0) * BACKLOG_MOST
}

/// Returns how long to delay one write: `limit_ns` times the cube of `fullness`. There is almost no delay while there
/// is room, and the whole limit if there is none. If writers wait for their answers, their rate settles where as much
/// leaves the buffer as enters it.
#[must_use]
pub fn ingestion_delay_ns(fullness: f64, limit_ns: u64) -> u64 {
    let fullness = if fullness.is_nan() { 0.0 } else { fullness.clamp(0.0, 1.0) };
    (fullness * fullness * fullness * limit_ns as f64) as u64
}

/// The writes that [`IngestionRate`] allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingestion {
    /// No limit.
    Free,
    /// A limit for all writes together.
    Delayed {
        /// Bytes per second, at least 16 KiB.
        bytes_per_s: u64,
    },
    /// No writes at all.
    Stopped,
}

/// The debts at which writes slow down and stop, and their rate.
#[derive(Clone, Copy, Debug)]
pub struct DebtLimits {
    /// Debt from which on writes are delayed.
    pub soft_bytes: u64,
    /// Debt from which on writes are stopped; at least `soft_bytes`.
    pub hard_bytes: u64,
    /// The first rate of delayed writes, and their highest, in bytes per second. Less than 16 KiB counts as 16 KiB.
    pub rate_max_bytes_per_s: u64,
}

/// Lowest rate of writes that are not stopped, in bytes per second.
const RATE_MIN_BYTES_PER_S: u64 = 16 << 10;

/// Bounds ingestion by the debt of compaction, as RocksDB does: slower while the debt grows, faster while it falls.
#[derive(Clone, Debug)]
pub struct IngestionRate {
    limits: DebtLimits,
    rate_bytes_per_s: u64,
    debt_bytes: u64,
    now: Ingestion,
}

impl IngestionRate {
    /// Returns a rate that delays nothing until [`IngestionRate::update`] gets a debt.
    #[must_use]
    pub fn new(limits: DebtLimits) -> IngestionRate {
        let rate_bytes_per_s = limits.rate_max_bytes_per_s.max(RATE_MIN_BYTES_PER_S);
        IngestionRate { limits, rate_bytes_per_s, debt_bytes: 0, now: Ingestion::Free }
    }

    /// Returns the writes allowed at a debt of `debt_bytes`. Call it at the end of each flush and compaction, because
    /// each call while writes are delayed is a step: x 0.8 if the debt has not fallen since the previous call, x 1.25
    /// if it has, x 0.6 in the last quarter before the stop and after a stop, x 1.4 (for the next delay) when the delay
    /// ends.
    pub fn update(&mut self, debt_bytes: u64) -> Ingestion {
        let DebtLimits { soft_bytes, hard_bytes, rate_max_bytes_per_s } = self.limits;
        let near_stop_bytes = hard_bytes - hard_bytes.saturating_sub(soft_bytes) / 4;
        let last_debt_bytes = std::mem::replace(&mut self.debt_bytes, debt_bytes);

        let factor = match self.now {
            _ if debt_bytes >= hard_bytes => 1.0,
            Ingestion::Free if debt_bytes < soft_bytes => 1.0,
            _ if debt_bytes < soft_bytes => 1.4,
            Ingestion::Stopped => 0.6,
            _ if debt_bytes >= near_stop_bytes => 0.6,
            Ingestion::Free => 1.0,
            Ingestion::Delayed { .. } if debt_bytes >= last_debt_bytes => 0.8,
            Ingestion::Delayed { .. } => 1.25,
        };

        let most = rate_max_bytes_per_s.max(RATE_MIN_BYTES_PER_S);
        self.rate_bytes_per_s = ((self.rate_bytes_per_s as f64 * factor) as u64).clamp(RATE_MIN_BYTES_PER_S, most);
        self.now = match debt_bytes {
            debt if debt >= hard_bytes => Ingestion::Stopped,
            debt if debt >= soft_bytes => Ingestion::Delayed { bytes_per_s: self.rate_bytes_per_s },
            _ => Ingestion::Free,
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    mod flush;

    use super::*;

    fn files(bytes: &[u64]) -> Vec<TreeFile> {
        bytes.iter().map(|bytes| TreeFile { bytes: *bytes, compacted_bytes: 0 }).collect()
    }

    #[test]
    fn a_curve_is_linear_between_its_points_and_level_beyond() {
        let cases = [
            (
                ShareCurve::compaction(),
                &[(-1.0, 50), (0.0, 50), (0.75, 75), (1.5, 100), (15.75, 550), (30.0, 1000)][..],
            ),
            (ShareCurve::compaction(), &[(31.0, 1000), (f64::INFINITY, 1000), (f64::NAN, 50)]),
            // No class has no shares.
            (ShareCurve::flush(), &[(0.0, 1), (0.3, 5), (0.7, 105), (0.9, 600), (1.0, 1000), (2.0, 1000)]),
            (ShareCurve::flush_of_tables(0.0), &[(0.3, 5), (0.7, 105), (1.0, 1000)]),
            (ShareCurve::flush_of_tables(0.25), &[(0.0, 1), (0.35, 10), (0.55, 200), (0.65, 600), (0.75, 1000)]),
            (ShareCurve::flush_of_tables(7.0), &[(0.1, 10), (0.3, 200), (0.5, 1000)]),
            (ShareCurve::flush_of_tables(f64::NAN), &[(0.6, 10), (0.8, 200), (1.0, 1000)]),
            (ShareCurve::compaction().beside(100), &[(0.0, 5), (1.5, 10), (30.0, 100)]),
            (ShareCurve::flush().beside(100), &[(0.0, 1), (0.6, 1), (0.8, 20), (1.0, 100)]),
            (ShareCurve::compaction().beside(u32::MAX), &[(1.5, 429_496_730), (30.0, u32::MAX)]),
        ];
        for (curve, points) in cases {
            for (backlog, shares) in points {
                assert_eq!(curve.shares(*backlog), *shares, "at {backlog} of {curve:?}");
            }
        }
    }

    #[test]
    fn a_curve_that_goes_back_is_none() {
        assert_eq!(ShareCurve::new(&[]), None);
        assert_eq!(ShareCurve::new(&[(1.0, 5), (1.0, 6)]), None);
        assert_eq!(ShareCurve::new(&[(0.0, 5), (f64::NAN, 6)]), None);
        assert_eq!(ShareCurve::new(&[(0.5, 7)]).map(|curve| curve.shares(9.0)), Some(7));
    }

    #[test]
    fn shares_change_at_the_interval_and_not_for_a_trifle() {
        let curve = ShareCurve::new(&[(0.0, 0), (1000.0, 1000)]).unwrap();
        let mut controller = ShareController::new(curve, 100);
        let steps = [(0, 500.0, Some(500)), (50, 900.0, None), (100, 505.0, None), (200, 520.0, Some(520))];
        for (now_ns, backlog, expected) in steps {
            assert_eq!(controller.update(now_ns, backlog), expected, "at {now_ns}");
        }
        assert_eq!(controller.shares(), 520);
    }

    #[test]
    fn what_size_tiers_have_still_to_write() {
        let gib = 1 << 30;
        let cases = [
            (files(&[]), 0.0),
            (files(&[gib]), 0.0),
            (files(&[0, gib]), 0.0),
            // Two levels of merging: 16 GiB twice.
            (files(&[gib; 16]), 32.0),
            // Half of each is compacted already.
            (vec![TreeFile { bytes: gib, compacted_bytes: gib / 2 }; 4], 2.0),
            (vec![TreeFile { bytes: gib, compacted_bytes: 2 * gib }; 4], 0.0),
        ];
        for (files, expected_gib) in cases {
            let found_gib = size_tiered_bytes(&files) / gib as f64;
            assert!((found_gib - expected_gib).abs() < 1e-9, "{found_gib}, not {expected_gib}: {files:?}");
        }
    }

    #[test]
    fn what_levels_have_still_to_move() {
        let cases: [(&[u64], u64); 6] = [
            (&[], 0),
            (&[50], 0),
            (&[0, 100, 1000], 0),
            // 40 of level 0 are merged with all of level 1; the 40 above its target are merged with ten times as much
            // below.
            (&[40, 100, 1000], 40 + 100 + 40 + 285),
            // The last level has no target.
            (&[0, 100, 999_999], 0),
            // Only level 1 is above its target, and there is nothing below to merge with.
            (&[0, 150, 0], 50),
        ];
        for (levels, expected) in cases {
            assert_eq!(leveled_bytes(levels, 100, 10), expected, "{levels:?}");
        }
    }

    #[test]
    fn a_full_level_0_gives_compaction_all_shares() {
        let cases = [(0.0, 50), (0.5, 50), (0.55, 147), (0.75, 526), (1.0, 1000), (9.0, 1000), (f64::NAN, 50)];
        for (fullness, shares) in cases {
            assert_eq!(ShareCurve::compaction().shares(level_0_backlog(fullness)), shares, "at {fullness}");
        }
    }

    #[test]
    fn writes_wait_with_the_cube_of_fullness() {
        let cases = [(0.0, 0), (0.5, 125), (1.0, 1000), (7.0, 1000), (-1.0, 0), (f64::NAN, 0)];
        for (fullness, delay_ns) in cases {
            assert_eq!(ingestion_delay_ns(fullness, 1000), delay_ns, "at {fullness}");
        }
    }

    #[test]
    fn the_rate_follows_the_debt_and_recovers() {
        let delayed = |bytes_per_s| Ingestion::Delayed { bytes_per_s };
        let limits = DebtLimits { soft_bytes: 1000, hard_bytes: 2000, rate_max_bytes_per_s: 1_000_000 };
        let mut rate = IngestionRate::new(limits);
        let steps = [
            (999, Ingestion::Free),
            (1000, delayed(1_000_000)),
            (1000, delayed(800_000)),
            (1200, delayed(640_000)),
            (1100, delayed(800_000)),
            (1750, delayed(480_000)),
            (2000, Ingestion::Stopped),
            (1700, delayed(288_000)),
            (900, Ingestion::Free),
            (1100, delayed(403_200)),
        ];
        for (step, (debt_bytes, expected)) in steps.into_iter().enumerate() {
            assert_eq!(rate.update(debt_bytes), expected, "step {step}");
        }

        for step in 0..100 {
            rate.update(1200 + step);
        }
        assert_eq!(rate.update(1400), delayed(RATE_MIN_BYTES_PER_S));
    }
}
