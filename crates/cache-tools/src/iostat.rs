//! The I/O of a cache's disks, by kind: the difference of two snapshots.
//!
//! # Why
//! A cache that ingests at the speed of one disk, a checkpoint that slows hits, an evacuation that never ends: rates
//! by disk and kind show each at once.
//!
//! # How it works
//! [`Interval::between`] subtracts two snapshots of the same opening; without an earlier one it returns the means
//! since the cache was opened. A [`Row`] is a disk, or all of them; its figures are in the order of [`IoKind::ALL`],
//! and [`GROUPS`] lists the kinds that each column of the table adds up. Mean times are of operations that ended in
//! the interval.
//!
//! # Limits
//! If a cache was opened again between two snapshots, the interval begins with that opening.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::iostat::Interval;
//! use plimsoll_cache_tools::live::Live;
//! let text = |at_ns: u64, operations: u64| format!(
//!     r#"{{"schema": 1, "pid": 1, "runtime_id": "a", "at_unix_ms": 0, "cache": {{"at_ns": {at_ns}, "disks": [
//!         {{"path": "/dev/sdb", "io": {{"lookup_read": {{"operations": {operations}, "bytes": 8192}}}}}}]}}}}"#);
//! let (first, second) = (Live::from_json(&text(0, 0))?, Live::from_json(&text(2_000_000_000, 500))?);
//! let interval = Interval::between(Some(&first), &second);
//! assert_eq!((interval.seconds, interval.total.of("lookup_read").iops), (2.0, 250.0));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use plimsoll_cache::stats::{ByName, DiskStats, IoKind, IoStats, LOG2_BUCKETS};
use plimsoll_figures::units::csv_field;
use serde::Serialize;

use super::live::Live;

/// The groups of the table: their names, and the kinds that each adds up.
pub const GROUPS: [(&str, &[&str]); 4] = [
    ("lookup read", &["lookup_read"]),
    ("insert write", &["insert_write"]),
    ("evacuate", &["evacuate_read", "evacuate_write"]),
    ("metadata", &["metadata_read", "metadata_write", "flush", "discard"]),
];

/// The operations of one kind, or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub iops: f64,
    pub bytes_per_s: f64,
    /// Mean time of an operation in milliseconds, queueing included; `None` if none ended.
    pub mean_ms: Option<f64>,
    pub in_flight: u64,
    pub errors: u64,
    /// Operations that ended, by latency: 2^b to 2^(b+1) - 1 nanoseconds.
    pub latency_ns_log2: Vec<u64>,
    /// Operations that ended.
    #[serde(skip)]
    pub operations: u64,
    /// Sum of their latencies, in nanoseconds.
    #[serde(skip)]
    pub total_ns: u64,
}

impl Figures {
    fn between(before: Option<&IoStats>, after: &IoStats, seconds: f64) -> Figures {
        let none = IoStats::default();
        let before = before.unwrap_or(&none);
        let operations = after.operations.saturating_sub(before.operations);
        let bucket = |at: usize| {
            let of = |io: &IoStats| io.latency_ns_log2.get(at).copied().unwrap_or(0);
            of(after).saturating_sub(of(before))
        };
        let mut figures = Figures {
            iops: per_second(operations, seconds),
            bytes_per_s: per_second(after.bytes.saturating_sub(before.bytes), seconds),
            mean_ms: None,
            in_flight: after.in_flight,
            errors: after.errors.saturating_sub(before.errors),
            latency_ns_log2: (0..LOG2_BUCKETS).map(bucket).collect(),
            operations,
            total_ns: after.total_ns.saturating_sub(before.total_ns),
        };
        figures.set_mean();
        figures
    }

    fn set_mean(&mut self) {
        self.mean_ms = (self.operations > 0).then(|| self.total_ns as f64 / self.operations as f64 / 1e6);
    }

    fn add(&mut self, other: &Figures) {
        self.iops += other.iops;
        self.bytes_per_s += other.bytes_per_s;
        self.in_flight += other.in_flight;
        self.errors += other.errors;
        self.operations += other.operations;
        self.total_ns += other.total_ns;
        self.latency_ns_log2.resize(LOG2_BUCKETS, 0);
        self.latency_ns_log2.iter_mut().zip(&other.latency_ns_log2).for_each(|(sum, count)| *sum += count);
        self.set_mean();
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Last part of the disk's path; `total` for all.
    pub name: String,
    /// The disk's path; empty for all.
    pub path: String,
    pub io: ByName<Figures>,
}

impl Row {
    fn between(before: Option<&DiskStats>, after: &DiskStats, seconds: f64) -> Row {
        let figures = |(kind, io): (&Cow<'static, str>, &IoStats)| {
            (kind.clone(), Figures::between(before.and_then(|disk| disk.io.get(kind)), io, seconds))
        };
        let last = Path::new(&after.path).file_name().map(|name| name.to_string_lossy().into_owned());
        let name = last.unwrap_or_else(|| format!("disk {}", after.number));
        Row { name, path: after.path.clone(), io: after.io.iter().map(figures).collect() }
    }

    /// Returns the figures of a kind, or zeros if there are none.
    pub fn of(&self, kind: &str) -> Figures {
        self.io.get(kind).cloned().unwrap_or_default()
    }

    pub fn sum(&self, kinds: &[&str]) -> Figures {
        let mut sum = Figures::default();
        kinds.iter().filter_map(|kind| self.io.get(*kind)).for_each(|figures| sum.add(figures));
        sum
    }
}

/// The I/O of the disks between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// End, in milliseconds since 1970.
    pub at_unix_ms: u64,
    pub seconds: f64,
    /// Whether the interval begins with the opening of the cache.
    pub is_since_open: bool,
    pub total: Row,
    pub disks: Vec<Row>,
}

impl Interval {
    /// Returns the interval from `before` to `after`, or since the opening if `before` is `None` or of another opening.
    pub fn between(before: Option<&Live>, after: &Live) -> Interval {
        let before = before.filter(|before| before.runtime_id == after.runtime_id);
        let begin_ns = before.map_or(after.opened_ns, |live| live.cache.at_ns);
        let seconds = after.cache.at_ns.saturating_sub(begin_ns) as f64 / 1e9;
        let earlier = |disk: &DiskStats| {
            before.and_then(|live| live.cache.disks.iter().find(|other| other.number == disk.number))
        };
        let disks: Vec<Row> = after.cache.disks.iter().map(|disk| Row::between(earlier(disk), disk, seconds)).collect();
        let mut total = Row { name: "total".to_owned(), ..Row::default() };
        for (kind, figures) in disks.iter().flat_map(|disk| &disk.io) {
            total.io.entry(kind.clone()).or_default().add(figures);
        }
        Interval { at_unix_ms: after.at_unix_ms, seconds, is_since_open: before.is_none(), total, disks }
    }

    /// Returns the rows to show: the total, and each disk if `with_disks`.
    pub fn rows(&self, with_disks: bool) -> impl Iterator<Item = &Row> {
        let disks = if with_disks { self.disks.as_slice() } else { &[] };
        std::iter::once(&self.total).chain(disks)
    }

    /// Returns CSV with a line for each row and kind, the total first. [`CSV_HEADER`] is written above the first
    /// interval.
    pub fn to_csv(&self, with_disks: bool) -> String {
        let mut text = String::new();
        for row in self.rows(with_disks) {
            for (_, kind) in IoKind::ALL {
                let figures = row.of(kind);
                let mean = figures.mean_ms.map_or(String::new(), |ms| format!("{ms:.6}"));
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{:.3},{},{kind},{:.3},{:.0},{mean},{},{}",
                    self.at_unix_ms,
                    self.seconds,
                    csv_field(if row.path.is_empty() { &row.name } else { &row.path }),
                    figures.iops,
                    figures.bytes_per_s,
                    figures.in_flight,
                    figures.errors
                );
            }
        }
        text
    }
}

/// The columns of [`Interval::to_csv`].
pub const CSV_HEADER: &str = "at_unix_ms,seconds,disk,kind,iops,bytes_per_s,mean_ms,in_flight,errors\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn live(runtime_id: &str, at_ns: u64, disks: &[(u16, u64)]) -> Live {
        let mut live = Live { schema: 1, runtime_id: runtime_id.to_owned(), ..Live::default() };
        live.cache.at_ns = at_ns;
        for (number, operations) in disks {
            let mut latency_ns_log2 = vec![0; LOG2_BUCKETS];
            latency_ns_log2[20] = *operations;
            let io = IoStats {
                operations: *operations,
                bytes: operations * 4096,
                total_ns: operations * 2_000_000,
                in_flight: 3,
                latency_ns_log2,
                ..IoStats::default()
            };
            let io = [("insert_write".into(), io.clone()), ("flush".into(), io)].into();
            live.cache.disks.push(DiskStats {
                number: *number,
                path: format!("/d/{number}"),
                io,
                ..DiskStats::default()
            });
        }
        live
    }

    #[test]
    fn rates_are_differences() {
        let before = live("a", 1_000_000_000, &[(0, 100)]);
        let after = live("a", 3_000_000_000, &[(0, 300), (1, 50)]);
        let interval = Interval::between(Some(&before), &after);
        let total = interval.total.of("insert_write");
        assert_eq!((total.iops, total.bytes_per_s, total.mean_ms, total.in_flight), (125.0, 512_000.0, Some(2.0), 6));
        assert_eq!(total.latency_ns_log2[20], 250);
        assert_eq!(interval.disks[1].of("insert_write").iops, 25.0, "a disk that was added");
        assert_eq!(interval.total.of("lookup_read"), Figures::default());
        assert_eq!(interval.total.sum(&["insert_write", "flush"]).iops, 250.0);
        assert!(!interval.is_since_open);
    }

    #[test]
    fn a_new_opening_begins_anew() {
        let before = live("a", 9_000_000_000, &[(0, 1000)]);
        let after = live("b", 2_000_000_000, &[(0, 100)]);
        let interval = Interval::between(Some(&before), &after);
        assert!(interval.is_since_open);
        assert_eq!((interval.seconds, interval.total.of("flush").iops), (2.0, 50.0));
        let at_once = Interval::between(Some(&after), &after);
        assert_eq!((at_once.total.of("flush").iops, at_once.total.of("flush").mean_ms), (0.0, None));
    }

    #[test]
    fn csv_has_a_line_for_each_kind() {
        let interval = Interval::between(None, &live("a", 1_000_000_000, &[(0, 100), (1, 0)]));
        let columns = CSV_HEADER.trim_end().split(',').count();
        for (with_disks, lines) in [(false, 8), (true, 24)] {
            let text = interval.to_csv(with_disks);
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(text.lines().all(|line| line.split(',').count() == columns), "{text}");
        }
    }

    #[test]
    fn every_kind_is_in_one_group() {
        let mut kinds: Vec<&str> = GROUPS.iter().flat_map(|(_, kinds)| kinds.iter().copied()).collect();
        let mut all: Vec<&str> = IoKind::ALL.iter().map(|(_, name)| *name).collect();
        kinds.sort_unstable();
        all.sort_unstable();
        assert_eq!(kinds, all);
    }
}
