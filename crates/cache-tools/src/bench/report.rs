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

use super::looks::LookUpPoint;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
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

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceSeries {
    pub device: String,
    pub points: Vec<Rate>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BenchReport {
    pub schema: u32,
    /// Placement of new blocks: seed, discriminant or load.
    pub placement: String,
    pub block_bytes: u32,
    /// Most operations in flight.
    pub concurrency: u32,
    pub seed: u64,
    pub seconds: f64,
    pub is_interrupted: bool,
    pub ingest_bytes_per_s: f64,
    pub inserts: u64,
    pub hits: u64,
    pub hit_bytes_per_s: f64,
    /// Misses, by reason.
    pub misses: BTreeMap<String, u64>,
    /// Inserts that were not stored, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Least effective number of devices over full windows of 2 s; `None` if nothing was written or no window is full.
    pub effective_devices_min: Option<f64>,
    pub effective_devices_mean: Option<f64>,
    pub effective_devices: Vec<f64>,
    /// Bytes written by inserts over time, by device.
    pub series: Vec<DeviceSeries>,
    /// Look-ups over time, in 60 windows; empty without look-ups.
    pub look_ups: Vec<LookUpPoint>,
    /// Time in seconds from which on the hit rate stays within a tenth of its last; `None` if it still changes at the
    /// end.
    pub steady_from_s: Option<f64>,
    pub hit_latency: Latency,
    pub insert_latency: Latency,
    pub cpu_s_per_million_operations: Option<f64>,
    /// Hits whose bytes were all compared and right.
    pub verified_hits: u64,
    pub wrong_hits: u64,
    /// Number of checks that the counters of all devices are possible.
    pub invariants_checked: u64,
    /// Violations found, a sentence each; at most 20.
    pub invariants_violated: Vec<String>,
    /// Blocks evicted during the measurement.
    pub evictions: u64,
    pub moves: u64,
    pub checkpoints: u64,
}

impl BenchReport {
    /// Returns whether a byte was wrong, or a counter impossible.
    pub fn is_wrong(&self) -> bool {
        self.wrong_hits > 0 || !self.invariants_violated.is_empty()
    }

    pub fn to_csv(&self) -> String {
        let line = |series: &DeviceSeries, point: &Rate| {
            [series.device.clone(), fixed(point.t, 3), fixed(point.bytes_per_s, 0)]
        };
        let rows = self.series.iter().flat_map(|series| series.points.iter().map(move |point| line(series, point)));
        Table::new("", ["device", "t", "bytes_per_s"], rows).to_csv()
    }

    /// Returns names and values of the figures, for a table.
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

        rows.extend(self.rows_over_time());

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

    /// Returns the overall hit rate, that over time, and the range of the hits' p99; nothing without look-ups.
    fn rows_over_time(&self) -> Vec<(String, String)> {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let rates: Vec<f64> = self.look_ups.iter().filter_map(|point| point.hit_rate).collect();
        let (Some(first), Some(last)) = (rates.first(), rates.last()) else { return Vec::new() };
        let [hits, misses] = self.look_ups.iter().fold([0, 0], |[hits, misses], p| [hits + p.hits, misses + p.misses]);
        let steady = match self.steady_from_s {
            Some(from_s) => format!("steady from {from_s:.1} s on"),
            None => "still moving at the end".to_owned(),
        };
        let all = percent(hits as f64 / (hits + misses) as f64);
        let mut rows = vec![
            ("hit rate".to_owned(), all),
            ("hit rate over time".to_owned(), format!("{} to {}, {steady}", percent(*first), percent(*last))),
        ];
        let p99s = || self.look_ups.iter().filter_map(|point| point.hit_p99_ns);
        if let (Some(least), Some(most)) = (p99s().min(), p99s().max()) {
            let range = format!("{} to {}", format_duration_ns(least), format_duration_ns(most));
            rows.push(("hit p99 over time, least to most".to_owned(), range));
        }
        rows
    }

    /// Returns charts over time: bytes by device, and with look-ups the hit rate and the hits' p99.
    pub fn charts(&self) -> Vec<Chart> {
        let layer = |series: &DeviceSeries| Layer::Line {
            name: series.device.clone(),
            points: series.points.iter().map(|point| (point.t, point.bytes_per_s)).collect(),
            dashed: false,
        };
        let chart = |title: String, y: Axis, layers: Vec<Layer>| {
            Chart::new(title, Axis::linear("seconds", Unit::None), y, layers)
        };
        let devices = self.series.iter().map(layer).collect();
        let title = format!("Insert writes by device, placement {}", self.placement);
        let mut charts = vec![chart(title, Axis::linear("bytes a second", Unit::BytesPerSecond), devices)];

        let over_time = |value: fn(&LookUpPoint) -> Option<f64>| {
            let points = self.look_ups.iter().filter_map(|point| Some((point.t, value(point)?)));
            vec![Layer::Line { name: String::new(), points: points.collect(), dashed: false }]
        };
        if !self.look_ups.is_empty() {
            let rate = Axis::linear("part of the look-ups", Unit::Fraction);
            charts.push(chart("Hit rate".to_owned(), rate, over_time(|point| point.hit_rate)));
        }
        if self.look_ups.iter().any(|point| point.hit_p99_ns.is_some()) {
            let p99 = Axis::linear("p99", Unit::Nanoseconds);
            charts.push(chart("Latency of hits".to_owned(), p99, over_time(|point| Some(point.hit_p99_ns? as f64))));
        }
        charts
    }

    pub fn sections(&self) -> Vec<Section> {
        let table = Table::new("", ["figure", "value"], self.rows().into_iter().map(<[String; 2]>::from));
        vec![
            Section::new("Figures", [Block::Warnings(self.invariants_violated.clone()), table.into()]),
            Section::new("Over time", [Block::Picture(self.charts())]),
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
            look_ups: [(0.5, 100), (1.5, 300)]
                .map(|(t, hits)| {
                    let (misses, hit_rate) = (1000 - hits, Some(hits as f64 / 1e3));
                    LookUpPoint { t, hits, misses, hit_rate, hit_p99_ns: Some(hits * 10_000) }
                })
                .to_vec(),
            hit_latency: (&times).into(),
            effective_devices_min: Some(2.951),
            ..BenchReport::default()
        };
        let rows = report.rows();
        assert!(rows.contains(&("misses: absent".to_owned(), "3".to_owned())), "{rows:?}");
        assert!(rows.contains(&("effective devices, least".to_owned(), "2.95".to_owned())), "{rows:?}");
        assert!(!rows.iter().any(|(name, _)| name.contains("ghost") || name.starts_with("insert")), "{rows:?}");
        let expected = [
            ("hit rate", "20.0 %"),
            ("hit rate over time", "10.0 % to 30.0 %, still moving at the end"),
            ("hit p99 over time, least to most", "1.00 ms to 3.00 ms"),
        ];
        for (name, value) in expected {
            assert!(rows.contains(&(name.to_owned(), value.to_owned())), "{name}: {rows:?}");
        }
        assert!(BenchReport::default().rows().iter().all(|(name, _)| !name.starts_with("hit rate")));
        assert_eq!(report.to_csv(), "device,t,bytes_per_s\n/dev/a,0.500,1000000\n/dev/a,1.500,2000000\n");
        let page = plimsoll_show::page::html("bench", &report.sections());
        for title in ["Insert writes by device", "Hit rate", "Latency of hits"] {
            assert!(page.contains(title), "{title}: {page}");
        }
        let json = serde_json::to_value(&report).expect("JSON");
        let point = serde_json::json!({
            "t": 1.5, "hits": 300, "misses": 700, "hit_rate": 0.3, "hit_p99_ns": 3_000_000
        });
        assert_eq!((&json["look_ups"][1], json["look_ups"].as_array().map(Vec::len)), (&point, Some(2)));
        assert!(!report.is_wrong());
        assert!(BenchReport { wrong_hits: 1, ..report }.is_wrong());
    }
}
