//! A snapshot of the program, made from two samples of the shards' counters.
//!
//! # Why
//! Counters cover the time since the program began; a user who attaches needs the present rates.
//!
//! # How it works
//! [`crate::metrics::sample`] takes the samples. Rates and latencies are computed from the difference of their counters.
//!
//! # Limits
//! If a shard is missing in either sample, there are no rates.
//!
//! # Example
//! 50 reads at the first sample and 250 two seconds later: 100 per second.

use std::collections::BTreeMap;

use plimsoll_core::{ClassStats, Histogram, Latencies, WaitReason};

use super::protocol::{ClassState, DiskState, Percentiles, Recent, Snapshot};
use crate::class::ClassInfo;
use crate::metrics::sample::Sample;
use crate::queues::ClassView;
use crate::topology::Topology;

/// Returns the sample `now` as a snapshot, with rates since `before`.
pub(super) fn snapshot(topology: &Topology, now: &Sample, before: Option<&Sample>) -> Snapshot {
    // If a shard is missing, the differences are wrong.
    let is_whole = |sample: &&Sample| sample.missing_shards.is_empty();
    let before = before.filter(is_whole).filter(|_| is_whole(&now)).filter(|before| before.at_ns < now.at_ns);
    let table = topology.classes().list();
    let disks = (0..topology.disks()).filter_map(|disk| disk_state(topology, disk, now, before, &table));
    Snapshot {
        at_ns: now.at_ns,
        over_ns: before.map(|before| now.at_ns - before.at_ns),
        missing_shards: now.missing_shards.clone(),
        disks: disks.collect(),
    }
}

fn disk_state(
    topology: &Topology,
    number: u16,
    now: &Sample,
    before: Option<&Sample>,
    table: &[ClassInfo],
) -> Option<DiskState> {
    let disk = topology.disk(number)?;
    let model = (!disk.is_unlimited()).then(|| disk.snapshot());
    let (views, old) = (now.disks.get(usize::from(number))?, before.and_then(|b| b.disks.get(usize::from(number))));
    let seconds = before.map_or(0.0, |before| (now.at_ns - before.at_ns) as f64 / 1e9);

    let shown = views.iter().filter_map(|(at, view)| {
        let info = table.get(*at).filter(|info| !info.removed)?;
        Some(class_state(info, view, old.and_then(|old| old.get(at)), seconds))
    });

    Some(DiskState {
        disk: number,
        mode: topology.mode(number)?.into(),
        window_ns: model.map(|model| model.window_ns),
        window_max_ns: model.map(|model| model.bound_ns),
        window_limit: model.map(|model| model.window_limit.into()),
        in_flight_ns: model.map(|model| model.in_flight_ns),
        capacity_scale: model.map(|model| model.capacity_scale),
        tokens_ns: disk.tokens_ns(now.at_ns),
        tokens_max_ns: model.map(|_| disk.bucket_ns()),
        classes: shown.collect(),
    })
}

/// Picks one of the stages of a request.
type Pick = fn(&Latencies) -> &Histogram;

/// Returns the histograms of reads and of writes.
fn histograms(view: &ClassView, pick: Pick) -> Vec<&Histogram> {
    view.latencies.iter().flatten().map(|latencies| pick(latencies)).collect()
}

fn class_state(info: &ClassInfo, view: &ClassView, before: Option<&ClassView>, seconds: f64) -> ClassState {
    let stats = &view.stats;
    // Counters that have fallen were reset.
    let before = before.filter(|old| {
        old.stats.read.requests <= stats.read.requests && old.stats.write.requests <= stats.write.requests
    });
    let of = |pick: Pick| percentiles(&histograms(view, pick), &before.map_or(Vec::new(), |old| histograms(old, pick)));

    ClassState {
        class: info.name.to_string(),
        shares: info.shares,
        queued: stats.queued.into(),
        in_flight: stats.in_flight.into(),
        oldest_wait_ns: view.delay_ns,
        waits_for: view.waits_for.map(|reason| reason.name().to_owned()),
        reads: stats.read.requests,
        writes: stats.write.requests,
        read_bytes: stats.read.bytes,
        written_bytes: stats.write.bytes,
        errors: stats.errors,
        waited_ns: by_reason(|reason| stats.waited_for_ns(reason)),
        recent: before.map(|before| recent(stats, &before.stats, seconds)),
        queue_latency: of(|latencies| &latencies.queue),
        device_latency: of(|latencies| &latencies.device),
        total_latency: of(|latencies| &latencies.total),
    }
}

fn by_reason<T>(of: impl Fn(WaitReason) -> T) -> BTreeMap<String, T> {
    WaitReason::ALL.into_iter().map(|reason| (reason.name().to_owned(), of(reason))).collect()
}

fn recent(now: &ClassStats, before: &ClassStats, seconds: f64) -> Recent {
    let rate = |now: u64, before: u64| if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 };
    Recent {
        read_iops: rate(now.read.requests, before.read.requests),
        write_iops: rate(now.write.requests, before.write.requests),
        read_bytes_per_s: rate(now.read.bytes, before.read.bytes),
        write_bytes_per_s: rate(now.write.bytes, before.write.bytes),
        waited: by_reason(|reason| rate(now.waited_for_ns(reason), before.waited_for_ns(reason)) / 1e9),
    }
}

/// Returns percentiles of the durations counted in `now` and not in `before`, reads and writes together.
fn percentiles(now: &[&Histogram], before: &[&Histogram]) -> Percentiles {
    let sum = |histograms: &[&Histogram]| {
        let mut sum: BTreeMap<u64, u64> = BTreeMap::new();
        for (ns, count) in histograms.iter().flat_map(|histogram| histogram.iter()) {
            *sum.entry(ns).or_default() += u64::from(count);
        }
        sum
    };

    let old = sum(before);
    let new: Vec<(u64, u64)> = sum(now)
        .into_iter()
        .map(|(ns, count)| (ns, count.saturating_sub(old.get(&ns).copied().unwrap_or(0))))
        .filter(|(_, count)| *count > 0)
        .collect();

    let count: u64 = new.iter().map(|(_, count)| count).sum();
    let at = |part: f64| {
        let rank = ((part * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let reaches = |(_, count): &&(u64, u64)| {
            seen += count;
            seen >= rank
        };
        new.iter().find(reaches).map_or(0, |(ns, _)| *ns)
    };

    Percentiles { count, p50_ns: at(0.5), p99_ns: at(0.99), p99_9_ns: at(0.999) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_is_new() {
        let mut before = Histogram::new();
        (0..1000).for_each(|_| before.record(50));
        let mut now = before.clone();
        (0..98).for_each(|_| now.record(10));
        let mut writes = Histogram::new();
        (0..2).for_each(|_| writes.record(60));
        let both = [&now, &writes];
        assert_eq!(percentiles(&both, &[&before]), Percentiles { count: 100, p50_ns: 10, p99_ns: 60, p99_9_ns: 60 });
        assert_eq!(percentiles(&both, &[]).p50_ns, 50);
        assert_eq!(percentiles(&both, &both), Percentiles::default());
    }
}
