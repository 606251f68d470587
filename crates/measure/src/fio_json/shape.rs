//! The keys of fio's JSON, in its order.
//!
//! **Why.** Consumers find figures by their keys; all keys are defined here, and nothing else is.
//!
//! **How.** Structures for serde. Objects whose keys are figures are [`Pairs`], which keep their order.
//!
//! **Limits.** The keys of fio 3.33, without those that need an unsupported option of fio.
//!
//! **Example.** `Pairs(vec![("1", 0.5)])` is `{"1": 0.5}`.

use plimsoll::core::Histogram;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::report::buckets::middle_ns;

const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// An object whose keys keep their order.
#[derive(Clone, Debug)]
pub(super) struct Pairs<K, V>(pub(super) Vec<(K, V)>);

impl<K: Serialize, V: Serialize> Serialize for Pairs<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
pub(super) struct Document {
    #[serde(rename = "fio version")]
    pub(super) version: &'static str,
    pub(super) timestamp: u64,
    pub(super) timestamp_ms: u64,
    pub(super) time: String,
    #[serde(rename = "global options", skip_serializing_if = "Option::is_none")]
    pub(super) global_options: Option<Pairs<String, String>>,
    pub(super) jobs: Vec<Job>,
    pub(super) disk_util: [(); 0],
}

#[derive(serde::Serialize)]
pub(super) struct Job {
    pub(super) jobname: String,
    pub(super) groupid: u32,
    pub(super) error: i32,
    pub(super) eta: u64,
    pub(super) elapsed: u64,
    #[serde(rename = "job options")]
    pub(super) options: Pairs<String, String>,
    pub(super) read: Side,
    pub(super) write: Side,
    pub(super) trim: Side,
    pub(super) sync: Sync,
    pub(super) job_runtime: u64,
    pub(super) usr_cpu: f64,
    pub(super) sys_cpu: f64,
    pub(super) ctx: u64,
    pub(super) majf: u64,
    pub(super) minf: u64,
    pub(super) iodepth_level: Pairs<&'static str, f64>,
    pub(super) iodepth_submit: Pairs<&'static str, f64>,
    pub(super) iodepth_complete: Pairs<&'static str, f64>,
    pub(super) latency_ns: Pairs<&'static str, f64>,
    pub(super) latency_us: Pairs<&'static str, f64>,
    pub(super) latency_ms: Pairs<&'static str, f64>,
    pub(super) latency_depth: u32,
    pub(super) latency_target: u64,
    pub(super) latency_percentile: f64,
    pub(super) latency_window: u64,
}

/// One direction. `bw` is in KiB a second, `bw_bytes` in bytes a second, `runtime` in milliseconds.
#[derive(serde::Serialize)]
pub(super) struct Side {
    pub(super) io_bytes: u64,
    pub(super) io_kbytes: u64,
    pub(super) bw_bytes: u64,
    pub(super) bw: u64,
    pub(super) iops: f64,
    pub(super) runtime: u64,
    pub(super) total_ios: u64,
    pub(super) short_ios: u64,
    pub(super) drop_ios: u64,
    pub(super) slat_ns: Times,
    pub(super) clat_ns: Times,
    pub(super) lat_ns: Times,
    pub(super) bw_min: u64,
    pub(super) bw_max: u64,
    pub(super) bw_agg: f64,
    pub(super) bw_mean: f64,
    pub(super) bw_dev: f64,
    pub(super) bw_samples: u64,
    pub(super) iops_min: u64,
    pub(super) iops_max: u64,
    pub(super) iops_mean: f64,
    pub(super) iops_stddev: f64,
    pub(super) iops_samples: u64,
}

#[derive(serde::Serialize)]
pub(super) struct Sync {
    pub(super) total_ios: u64,
    pub(super) lat_ns: Times,
}

/// A latency. As in fio, one without samples has neither percentiles nor buckets.
#[derive(serde::Serialize)]
pub(super) struct Times {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Pairs<String, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Pairs<String, u32>>,
}

impl Times {
    /// Computes the figures from a histogram of nanoseconds.
    pub(super) fn of(times: &Histogram, with_bins: bool) -> Times {
        let percentile = || PERCENTILES.iter().map(|p| (format!("{p:.6}"), times.percentile(*p))).collect();
        let bins = || times.iter().map(|(upper_ns, count)| (middle_ns(upper_ns).to_string(), count)).collect();
        Times {
            min: times.min(),
            max: times.max(),
            mean: times.mean(),
            stddev: stddev_ns(times),
            count: times.count(),
            percentile: (!times.is_empty()).then(|| Pairs(percentile())),
            bins: (with_bins && !times.is_empty()).then(|| Pairs(bins())),
        }
    }
}

fn stddev_ns(times: &Histogram) -> f64 {
    let mean_ns = times.mean();
    let (mut squares, mut count) = (0.0, 0.0);
    for (upper_ns, bucket) in times.iter() {
        let distance_ns = middle_ns(upper_ns) as f64 - mean_ns;
        squares += distance_ns * distance_ns * f64::from(bucket);
        count += f64::from(bucket);
    }
    // As in fio: the deviation of a sample, not of a population.
    if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 }
}
