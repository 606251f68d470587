//! Compares figures of tests, from their intervals and histograms.
//!
//! **Why.** The same seven figures are compared for each job, whatever its type.
//!
//! **How.** Each interval gives a sample of throughput and of IOPS, whose means are known no better than to half a
//! request in each run. For latency an interval counts with its requests: with L_i the sum of the latencies and n_i the
//! requests of interval i, R = sum L / sum n and m the mean of n, the samples are R + (L_i - R n_i) / m. Their mean is
//! R, the mean over all requests, and their scatter is that of a ratio (Cochran: Sampling Techniques, 1977, chapter 6).
//!
//! **Limits.** Figures that are 0 on both sides are left out, such as the bytes of a CPU job. Results without a
//! histogram have no percentiles.
//!
//! **Example.** Two intervals, 1000 requests of 100 us and 500 of 400 us: R is 200 us (not 250), m is 750, the samples
//! are 200 - 100 000 / 750 = 67 us and 200 + 100 000 / 750 = 333 us.

use plimsoll_figures::percentiles::{self, Buckets, Latencies};
use plimsoll_figures::stats::{
    Estimate, counting_error, difference, log_ratio, of_runs, of_series, p_of_difference, ratio_interval,
};
use plimsoll_sim::rng::Rng;

use super::input::{Job, Series};
use super::{CompareOptions, Comparison, Group, names};
use crate::report::IntervalReport as Interval;

const QUANTILES: [(&str, f64); 4] =
    [("latency_p50_us", 0.5), ("latency_p95_us", 0.95), ("latency_p99_us", 0.99), ("latency_p99_9_us", 0.999)];

/// A figure that is a mean over the intervals.
struct Mean {
    metric: &'static str,
    /// Returns the samples of a job in one run.
    samples: fn(&[Interval]) -> Vec<f64>,
    /// Returns what is counted in an interval, if the figure is a rate.
    count: Option<fn(&Interval) -> u64>,
}

const THROUGHPUT: Mean =
    Mean { metric: "throughput_bytes_per_s", samples: throughput, count: Some(|interval| interval.bytes) };
const IOPS: Mean = Mean { metric: "iops", samples: iops, count: Some(|interval| interval.requests) };
const LATENCY: Mean = Mean { metric: "latency_mean_us", samples: latency, count: None };

fn throughput(intervals: &[Interval]) -> Vec<f64> {
    intervals.iter().map(|interval| interval.bytes as f64 / interval.length_s).collect()
}

fn iops(intervals: &[Interval]) -> Vec<f64> {
    intervals.iter().map(|interval| interval.requests as f64 / interval.length_s).collect()
}

fn latency(intervals: &[Interval]) -> Vec<f64> {
    let requests = |interval: &Interval| interval.requests as f64;
    let sum_us = |interval: &Interval| interval.latency_mean_us * requests(interval);
    let all: f64 = intervals.iter().map(requests).sum();

    if all <= 0.0 {
        return Vec::new();
    }

    let mean_us = intervals.iter().map(sum_us).sum::<f64>() / all;
    let mean_requests = all / intervals.len() as f64;
    let sample = |interval: &Interval| mean_us + (sum_us(interval) - mean_us * requests(interval)) / mean_requests;
    intervals.iter().map(sample).collect()
}

struct JobRuns<'a> {
    side: char,
    runs: Vec<&'a Job>,
}

impl JobRuns<'_> {
    fn rounds(&self) -> impl Iterator<Item = &Series> {
        self.runs.iter().flat_map(|run| &run.rounds)
    }

    fn estimate(&self, mean: &Mean) -> Option<Estimate> {
        let of_round = |round: &Series| of_series(&(mean.samples)(&round.intervals));
        let runs: Option<Vec<Estimate>> = self.rounds().map(of_round).collect();
        Some(of_runs(&runs?)?.with_error_of_at_least(mean.count.map_or(0.0, |count| self.counting_error(count))))
    }

    /// Returns the standard error of a rate from counting whole requests.
    fn counting_error(&self, count: fn(&Interval) -> u64) -> f64 {
        let all = || self.rounds().flat_map(|round| &round.intervals);
        let requests: f64 = all().map(|interval| interval.requests as f64).sum();
        let counted: f64 = all().map(|interval| count(interval) as f64).sum();
        let length_s = |round: &Series| round.intervals.iter().map(|interval| interval.length_s).sum();
        let lengths_s: Vec<f64> = self.rounds().map(length_s).collect();
        if requests > 0.0 { counted / requests * counting_error(&lengths_s) } else { 0.0 }
    }

    fn latencies(&self) -> Option<Latencies> {
        let mean = self.estimate(&LATENCY).filter(|mean| mean.value > 0.0)?;
        let all = Buckets::of(self.rounds().flat_map(|round| &round.histogram).copied());
        let runs = self.rounds().map(|round| Buckets::of(round.histogram.iter().copied())).collect();
        Some(Latencies { all, runs, mean })
    }
}

/// Compares each job of the base with the same job of each other side, figure by figure, without verdicts.
pub(super) fn comparisons(groups: &[Group], options: &CompareOptions) -> Vec<Comparison> {
    let Some((base, others)) = groups.split_first() else { return Vec::new() };
    let mut rng = Rng::new(options.seed);
    let mut comparisons = Vec::new();
    for name in names(base) {
        let base = job_runs(base, name);
        let others: Vec<JobRuns> =
            others.iter().filter(|other| names(other).contains(&name)).map(|other| job_runs(other, name)).collect();

        for figure in [THROUGHPUT, IOPS, LATENCY] {
            comparisons.extend(others.iter().filter_map(|other| mean(name, &figure, &base, other)));
        }

        let base_latencies = base.latencies();
        let other_latencies: Vec<_> = others.iter().map(|other| (other.side, other.latencies())).collect();

        for (metric, share) in QUANTILES {
            for (side, other) in &other_latencies {
                let Some((base, other)) = base_latencies.as_ref().zip(other.as_ref()) else { continue };
                comparisons.extend(quantile(name, *side, (metric, share), (base, other), &mut rng));
            }
        }
    }
    comparisons
}

fn job_runs<'a>(group: &'a Group, name: &str) -> JobRuns<'a> {
    JobRuns { side: group.side, runs: group.runs.iter().filter_map(|run| run.job(name)).collect() }
}

fn mean(job: &str, figure: &Mean, base: &JobRuns, other: &JobRuns) -> Option<Comparison> {
    let side = other.side;
    let (base, other) = base.estimate(figure).zip(other.estimate(figure))?;
    if base.value == 0.0 && other.value == 0.0 {
        return None;
    }

    // From zero there is no ratio.
    let difference = log_ratio(&base, &other).unwrap_or_else(|| difference(&base, &other));
    let interval = ratio_interval(&base, &other);

    Some(Comparison {
        job: job.to_owned(),
        side,
        metric: figure.metric.to_owned(),
        base: base.value,
        other: other.value,
        change_pct: pct(other.value / base.value),
        change_low_pct: interval.and_then(|(low, _)| pct(low)),
        change_high_pct: interval.and_then(|(_, high)| pct(high)),
        p: difference.standard_error.is_finite().then(|| p_of_difference(&difference)),
        base_effective_count: Some(base.effective_count),
        other_effective_count: Some(other.effective_count),
        ..Comparison::default()
    })
}

/// Returns a ratio as a change in per cent; `None` if the base is 0.
fn pct(ratio: f64) -> Option<f64> {
    Some((ratio - 1.0) * 100.0).filter(|pct| pct.is_finite())
}

fn quantile(
    job: &str,
    side: char,
    (metric, share): (&str, f64),
    (base, other): (&Latencies, &Latencies),
    rng: &mut Rng,
) -> Option<Comparison> {
    let found = percentiles::compare(base, other, share, rng)?;

    Some(Comparison {
        job: job.to_owned(),
        side,
        metric: metric.to_owned(),
        base: found.base_ns / 1e3,
        other: found.other_ns / 1e3,
        change_pct: pct(found.other_ns / found.base_ns),
        change_low_pct: found.ratio.and_then(|(low, _)| pct(low)),
        change_high_pct: found.ratio.and_then(|(_, high)| pct(high)),
        p: found.p,
        base_effective_count: Some(found.effective_counts.0),
        other_effective_count: Some(found.effective_counts.1),
        ..Comparison::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_latency_count_with_their_requests() {
        let interval =
            |requests, latency_mean_us| Interval { length_s: 1.0, requests, latency_mean_us, ..Interval::default() };
        let samples = latency(&[interval(1000, 100.0), interval(500, 400.0)]);
        assert!((samples[0] - 200.0 / 3.0).abs() < 1e-9 && (samples[1] - 1000.0 / 3.0).abs() < 1e-9, "{samples:?}");
        assert_eq!(latency(&[interval(0, 0.0)]), Vec::<f64>::new());
        // An interval without requests carries no information on latency, and does not move it.
        let samples = latency(&[interval(1000, 100.0), interval(0, 0.0)]);
        assert_eq!(samples, [100.0, 100.0]);
    }
}
