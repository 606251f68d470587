//! Figures of the classes in one situation: medians over its slices.
//!
//! **Why.** A disk of a shared machine has bad moments. In a histogram of all slices, the worst slice alone decides the
//! p99; a bad moment of the idle disk then makes every other situation look good.
//!
//! **How.** Each slice has its own rates and percentiles; the report has their median over the slices, and their range.
//! The median of an even number is the mean of the middle two. A class without a request in a slice has a rate of 0
//! there, and no latency.
//!
//! **Limits.** The sum of the classes' medians is not the median of their sum.
//!
//! **Example.** Five slices of the idle disk with a p99 of 0.14, 0.15, 0.15, 0.16 and 4.3 ms: 0.15 ms, and disturbed.

use plimsoll::core::WaitReason;
use plimsoll_figures::series;

use super::{BACKGROUND, CLASSES, ClassLine, Range, SilentClass, Situation, Slice};
use crate::load::{JobResult, RunResult};
use crate::report::Latency;

#[derive(Default)]
pub(super) struct Slices {
    slices: Vec<Vec<ClassSlice>>,
    lengths_s: Vec<f64>,
}

struct ClassSlice {
    class: &'static str,
    requests: u64,
    errors: u64,
    first_error: Option<i32>,
    iops: f64,
    bytes_per_s: f64,
    latency: Latency,
    device_depth: f64,
    /// Device time by the model, in femtoseconds.
    consumed_fs: f64,
    waited_ns: [u64; 5],
}

impl ClassSlice {
    /// Combines the class's jobs, which run at the same time. Device time, depth and waits are kept by class, so each
    /// job has the same ones.
    fn of(class: &'static str, run: &RunResult) -> Option<ClassSlice> {
        let is_mine = |job: &&JobResult| class_of(&job.name) == class;
        let mut jobs = run.shards.iter().flat_map(|shard| &shard.jobs).filter(is_mine);
        let mut total = jobs.next()?.clone();
        let (mut iops, mut bytes_per_s) = (total.iops(), total.bytes_per_s());
        for job in jobs {
            total.latency.merge(&job.latency);
            total.requests += job.requests;
            total.errors += job.errors;
            total.first_error = total.first_error.or(job.first_error);
            iops += job.iops();
            bytes_per_s += job.bytes_per_s();
        }

        let stats = total.class.as_ref().map(|class| class.stats);
        Some(ClassSlice {
            class,
            requests: total.requests,
            errors: total.errors,
            first_error: total.first_error,
            iops,
            bytes_per_s,
            latency: Latency::of(&total.latency),
            device_depth: total.device_depth.mean(),
            consumed_fs: stats.map_or(0.0, |stats| stats.consumed_fs as f64),
            waited_ns: stats.map_or([0; 5], |stats| stats.waited_ns),
        })
    }
}

impl Slices {
    pub(super) fn add(&mut self, run: &RunResult) {
        let names = ["query", "compaction", "repair-read", "repair-write"];
        self.slices.push(names.iter().filter_map(|class| ClassSlice::of(class, run)).collect());
        self.lengths_s.push(run.shards.iter().map(|shard| shard.elapsed_ns as f64 / 1e9).fold(0.0, f64::max));
    }

    /// Returns the situation; `None` before the first slice. The queries want `query_wanted_fs` of device time a
    /// second.
    pub(super) fn situation(&self, name: &str, query_wanted_fs: f64) -> Option<Situation> {
        let classes: Vec<&'static str> = self.slices.first()?.iter().map(|slice| slice.class).collect();
        let all_fs = self.slices.iter().flatten().map(|slice| slice.consumed_fs).sum::<f64>().max(1.0);
        let query_pct = (100.0 * query_wanted_fs * self.lengths_s.iter().sum::<f64>() / all_fs).min(100.0);
        let backlogged: u32 = classes.iter().skip(1).map(|class| shares(class)).sum();

        let line = |class: &&'static str| {
            let mine: Vec<&ClassSlice> = self.of(class).collect();
            let consumed_fs: f64 = mine.iter().map(|slice| slice.consumed_fs).sum();
            ClassLine {
                class: (*class).to_owned(),
                shares: shares(class),
                iops: median(mine.iter().map(|slice| slice.iops)),
                throughput_bytes_per_s: median(mine.iter().map(|slice| slice.bytes_per_s)),
                // The query asks for less than its shares, and should get it; the others divide the rest.
                share_wanted_pct: match *class {
                    "query" => query_pct,
                    _ => (100.0 - query_pct) * f64::from(shares(class)) / f64::from(backlogged.max(1)),
                },
                share_got_pct: 100.0 * consumed_fs / all_fs,
                latency: median_latency(&mine),
                device_depth: mine.iter().map(|slice| slice.device_depth).sum::<f64>() / mine.len().max(1) as f64,
            }
        };

        let slices: Vec<Slice> =
            self.slices.iter().zip(&self.lengths_s).map(|(classes, s)| slice(classes, *s)).collect();
        Some(Situation {
            name: name.to_owned(),
            classes: classes.iter().map(line).collect(),
            throughput_bytes_per_s: median(slices.iter().map(|slice| slice.throughput_bytes_per_s)),
            query_p99_us: Range::of(slices.iter().filter_map(|slice| slice.query_p99_us)),
            slices,
        })
    }

    /// Returns the classes whose median rate is 0, and the likely reason.
    pub(super) fn silent(&self, situation: &str, is_write_bound_reached: bool) -> Vec<SilentClass> {
        let classes: Vec<&'static str> = self.slices.first().into_iter().flatten().map(|slice| slice.class).collect();
        let is_silent = |class: &&'static str| median(self.of(class).map(|slice| slice.bytes_per_s)) <= 0.0;
        let silent = classes.into_iter().filter(is_silent).map(|class| SilentClass {
            situation: situation.to_owned(),
            class: class.to_owned(),
            reason: self.why(class, is_write_bound_reached),
        });
        silent.collect()
    }

    fn why(&self, class: &'static str, is_write_bound_reached: bool) -> String {
        let errors: u64 = self.of(class).map(|slice| slice.errors).sum();
        if errors > 0 {
            let first = self.of(class).find_map(|slice| slice.first_error);
            let what = first.filter(|code| *code != 0).map_or_else(
                || "it moved fewer bytes than asked".to_owned(),
                |code| std::io::Error::from_raw_os_error(code).to_string(),
            );
            return format!("{errors} of its requests failed, the first with: {what}");
        }

        let writes = BACKGROUND.iter().any(|(_, of, pattern)| *of == class && pattern.is_write());
        if writes && is_write_bound_reached {
            return "the demo had written all that it allows itself".to_owned();
        }

        let waited_ns = |reason: WaitReason| self.of(class).map(|slice| slice.waited_ns[reason as usize]).sum::<u64>();
        let longest = WaitReason::ALL.into_iter().max_by_key(|reason| waited_ns(*reason));
        let waited = longest.filter(|reason| waited_ns(*reason) > 0);
        let length_s = median(self.lengths_s.iter().copied());
        let waited =
            waited.map_or_else(String::new, |reason| format!("; in the queue they waited for: {}", reason.name()));

        format!("none of its requests came back in most slices of {length_s:.2} s{waited}")
    }

    fn of(&self, class: &'static str) -> impl Iterator<Item = &ClassSlice> {
        self.slices.iter().flatten().filter(move |slice| slice.class == class)
    }
}

fn slice(classes: &[ClassSlice], length_s: f64) -> Slice {
    let query = classes.iter().find(|slice| slice.class == "query" && slice.requests > 0);
    Slice {
        length_s,
        query_p99_us: query.map(|query| query.latency.p99_us),
        throughput_bytes_per_s: classes.iter().map(|slice| slice.bytes_per_s).sum(),
    }
}

/// Returns the median of each percentile over the slices that have requests, and the maximum of all slices.
fn median_latency(slices: &[&ClassSlice]) -> Latency {
    let of = |pick: fn(&Latency) -> f64| {
        median(slices.iter().filter(|slice| slice.requests > 0).map(|slice| pick(&slice.latency)))
    };
    Latency {
        average_us: of(|latency| latency.average_us),
        p50_us: of(|latency| latency.p50_us),
        p95_us: of(|latency| latency.p95_us),
        p99_us: of(|latency| latency.p99_us),
        p99_9_us: of(|latency| latency.p99_9_us),
        p99_99_us: of(|latency| latency.p99_99_us),
        max_us: slices.iter().map(|slice| slice.latency.max_us).fold(0.0, f64::max),
    }
}

/// Returns the median, or 0 without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    series::median(&values.collect::<Vec<f64>>()).unwrap_or(0.0)
}

fn shares(class: &str) -> u32 {
    CLASSES.iter().find(|(name, _)| *name == class).map_or(0, |(_, shares)| *shares)
}

fn class_of(job: &str) -> &'static str {
    BACKGROUND.iter().find(|(name, ..)| *name == job).map_or("query", |(_, class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ShardResult;

    /// Returns a slice of a second in which each request of a job took `latency_us`.
    fn run(jobs: &[(&str, u64, u64)]) -> RunResult {
        let job = |(name, requests, latency_us): &(&str, u64, u64)| {
            let mut job = JobResult {
                name: (*name).to_owned(),
                requests: *requests,
                bytes: requests * 4096,
                elapsed_ns: 1_000_000_000,
                ..JobResult::default()
            };
            (0..*requests).for_each(|_| job.latency.record(latency_us * 1000));
            job
        };
        let jobs = jobs.iter().map(job).collect();
        let shard = ShardResult { shard: 0, cpu_ns: 0, elapsed_ns: 1_000_000_000, jobs, window_limits: Vec::new() };
        RunResult { shards: vec![shard], ..RunResult::default() }
    }

    #[test]
    fn one_disturbed_slice_moves_no_median_and_is_seen() {
        let mut slices = Slices::default();
        for p99_us in [150, 4300, 140, 160, 150] {
            slices.add(&run(&[("query", 1000, p99_us)]));
        }
        let situation = slices.situation("alone", 0.0).unwrap();
        let p99_us = situation.classes[0].latency.p99_us;
        assert!((p99_us / 150.0 - 1.0).abs() < 0.01, "{p99_us}");
        let range = situation.query_p99_us.unwrap();
        assert!(range.is_disturbed() && range.most > 4200.0 && range.least < 142.0, "{range:?}");
    }

    #[test]
    fn a_class_is_silent_where_most_slices_have_nothing_of_it() {
        let mut slices = Slices::default();
        for writes in [0, 10, 0] {
            slices.add(&run(&[("query", 1000, 150), ("repair writes", writes, 900)]));
        }
        let silent = slices.silent("drained", true);
        assert_eq!(silent.len(), 1, "{silent:?}");
        assert_eq!((silent[0].class.as_str(), silent[0].situation.as_str()), ("repair-write", "drained"));
        assert!(silent[0].reason.contains("all that it allows itself"), "{silent:?}");
        assert!(slices.silent("drained", false)[0].reason.contains("none of its requests came back"));
    }
}
