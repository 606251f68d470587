//! The results of a cache benchmark: for people, for programs, and as a page.
//!
//! # Why
//! A table, a script and a page show the same figures, so they are computed once.
//!
//! # How it works
//! [`BenchReport`] is plain data; the JSON is its fields (docs/formats.md). [`BenchReport::sections`] is the page.
//!
//! # Limits
//! CPU time is that of the whole process, including generating and verifying values.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::bench::report::BenchReport;
//! let report = BenchReport { ingest_bytes_per_s: 700e6, ..BenchReport::default() };
//! assert!(serde_json::to_string(&report)?.contains("\"ingest_bytes_per_s\":700000000.0"));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;

use plimsoll::core::Histogram;
use plimsoll_figures::units::{format_count, format_duration_ns, format_throughput_decimal};
use plimsoll_show::page::{Block, Section};
use plimsoll_show::plot::{Axis, Chart, Layer, Unit};
use plimsoll_show::table::{Table, fixed};
use serde::Serialize;

/// Latencies of one kind of operation, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Number of operations.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

impl From<&Histogram> for Latency {
    fn from(times: &Histogram) -> Latency {
        if times.count() == 0 {
            return Latency::default();
        }
        Latency {
            count: times.count(),
            mean_ns: times.mean(),
            p50_ns: times.percentile(50.0),
            p95_ns: times.percentile(95.0),
            p99_ns: times.percentile(99.0),
            p999_ns: times.percentile(99.9),
            max_ns: times.max(),
        }
    }
}

/// A point of a device's series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Seconds since the measurement began.
    pub t: f64,
    /// Bytes per second that inserts wrote to the device.
    pub bytes_per_s: f64,
}

/// The write rate of a device over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceSeries {
    /// The device's path.
    pub device: String,
    /// Its points, in order.
    pub points: Vec<Rate>,
}

/// The results of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BenchReport {
    /// Version of the schema: 1.
    pub schema: u32,
    /// Placement of new blocks: seed, discriminant or load.
    pub placement: String,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Most operations in flight.
    pub concurrency: u32,
    /// Seed of keys and values.
    pub seed: u64,
    /// Length of the measurement, in seconds.
    pub seconds: f64,
    /// Whether the measurement ended early.
    pub is_interrupted: bool,
    /// Bytes stored per second.
    pub ingest_bytes_per_s: f64,
    /// Inserts stored.
    pub inserts: u64,
    /// Look-ups answered.
    pub hits: u64,
    /// Bytes returned by hits per second.
    pub hit_bytes_per_s: f64,
    /// Look-ups without an answer, by reason.
    pub misses: BTreeMap<String, u64>,
    /// Inserts that were not stored, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Least effective number of devices over full windows of 2 s; `None` if nothing was written or no window is full.
    pub effective_devices_min: Option<f64>,
    /// Mean of the effective number of devices.
    pub effective_devices_mean: Option<f64>,
    /// Effective number of devices in each window.
    pub effective_devices: Vec<f64>,
    /// Bytes written by inserts over time, by device.
    pub series: Vec<DeviceSeries>,
    /// Latencies of hits.
    pub hit_latency: Latency,
    /// Latencies of stored inserts.
    pub insert_latency: Latency,
    /// CPU seconds of the process per million operations.
    pub cpu_s_per_million_operations: Option<f64>,
    /// Hits whose bytes were all compared and right.
    pub verified_hits: u64,
    /// Hits with a wrong byte.
    pub wrong_hits: u64,
    /// Number of checks that the counters of all devices are possible.
    pub invariants_checked: u64,
    /// Violations found, a sentence each; at most 20.
    pub invariants_violated: Vec<String>,
    /// Blocks evicted during the measurement.
    pub evictions: u64,
    /// Blocks moved during the measurement.
    pub moves: u64,
    /// Checkpoints during the measurement.
    pub checkpoints: u64,
}

impl BenchReport {
    /// Returns whether a byte was wrong, or a counter impossible.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.wrong_hits > 0 || !self.invariants_violated.is_empty()
    }

    /// Returns the series as CSV, a line for each point.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let line = |series: &DeviceSeries, point: &Rate| {
            [series.device.clone(), fixed(point.t, 3), fixed(point.bytes_per_s, 0)]
        };
        let rows = self.series.iter().flat_map(|series| series.points.iter().map(move |point| line(series, point)));
        Table::new("", ["device", "t", "bytes_per_s"], rows).to_csv()
    }

    /// Returns names and values of the figures, for a table.
    #[must_use]
    pub fn rows(&self) -> Vec<(String, String)> {
        let optional = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.2}"));
        let mut rows = vec![
            ("placement".to_owned(), self.placement.clone()),
            ("measured".to_owned(), format!("{:.1} s", self.seconds)),
            ("ingest".to_owned(), format_throughput_decimal(self.ingest_bytes_per_s)),
            ("effective devices, least".to_owned(), optional(self.effective_devices_min)),
            ("effective devices, mean".to_owned(), optional(self.effective_devices_mean)),
            ("blocks stored".to_owned(), format_count(self.inserts)),
            ("hits".to_owned(), format_count(self.hits)),
            ("hits, bytes".to_owned(), format_throughput_decimal(self.hit_bytes_per_s)),
        ];

        let named = |what: &str, counts: &BTreeMap<String, u64>| -> Vec<(String, String)> {
            let counts = counts.iter().filter(|(_, count)| **count > 0);
            counts.map(|(reason, count)| (format!("{what}: {reason}"), format_count(*count))).collect()
        };
        rows.extend(named("misses", &self.misses));
        rows.extend(named("drops", &self.drops));
        for (what, times) in [("hit", &self.hit_latency), ("insert", &self.insert_latency)] {
            if times.count > 0 {
                let percentiles =
                    [times.p50_ns, times.p95_ns, times.p99_ns, times.p999_ns, times.max_ns].map(format_duration_ns);
                rows.push((format!("{what}: p50, p95, p99, p99.9, max"), percentiles.join(", ")));
            }
        }

        rows.push(("CPU seconds per million operations".to_owned(), optional(self.cpu_s_per_million_operations)));
        rows.push(("evictions".to_owned(), format_count(self.evictions)));
        rows.push(("moves".to_owned(), format_count(self.moves)));
        rows.push(("checkpoints".to_owned(), format_count(self.checkpoints)));
        if self.verified_hits + self.wrong_hits > 0 {
            rows.push(("hits verified".to_owned(), format_count(self.verified_hits)));
            rows.push(("hits with a wrong byte".to_owned(), format_count(self.wrong_hits)));
        }
        rows
    }

    /// Returns a chart of bytes per device over time.
    #[must_use]
    pub fn chart(&self) -> Chart {
        let layer = |series: &DeviceSeries| Layer::Line {
            name: series.device.clone(),
            points: series.points.iter().map(|point| (point.t, point.bytes_per_s)).collect(),
            dashed: false,
        };
        Chart {
            title: format!("Insert writes by device, placement {}", self.placement),
            x: Axis::linear("seconds", Unit::None),
            y: Axis::linear("bytes a second", Unit::BytesPerSecond),
            layers: self.series.iter().map(layer).collect(),
            note: None,
        }
    }

    /// Returns the sections of the page.
    #[must_use]
    pub fn sections(&self) -> Vec<Section> {
        let table = Table::new("", ["figure", "value"], self.rows().into_iter().map(<[String; 2]>::from));
        vec![
            Section::new("Figures", [Block::Warnings(self.invariants_violated.clone()), table.into()]),
            Section::new("Devices", [Block::Picture(vec![self.chart()])]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_figures_everywhere() {
        let point = |t, bytes_per_s| Rate { t, bytes_per_s };
        let series = vec![DeviceSeries { device: "/dev/a".to_owned(), points: vec![point(0.5, 1e6), point(1.5, 2e6)] }];
        let mut times = Histogram::new();
        times.record(1_000_000);
        let report = BenchReport {
            placement: "load".to_owned(),
            series,
            misses: [("absent".to_owned(), 3), ("ghost".to_owned(), 0)].into(),
            hit_latency: (&times).into(),
            effective_devices_min: Some(2.951),
            ..BenchReport::default()
        };
        let rows = report.rows();
        assert!(rows.contains(&("misses: absent".to_owned(), "3".to_owned())), "{rows:?}");
        assert!(rows.contains(&("effective devices, least".to_owned(), "2.95".to_owned())), "{rows:?}");
        assert!(!rows.iter().any(|(name, _)| name.contains("ghost") || name.starts_with("insert")), "{rows:?}");
        assert_eq!(report.to_csv(), "device,t,bytes_per_s\n/dev/a,0.500,1000000\n/dev/a,1.500,2000000\n");
        let page = plimsoll_show::page::html("bench", &report.sections());
        assert!(page.contains("Insert writes by device"), "{page}");
        assert!(!report.is_wrong());
        assert!(BenchReport { wrong_hits: 1, ..report }.is_wrong());
    }
}
