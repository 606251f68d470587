//! Runs the same load once, and then twice at once, on one device.
//!
//! **Why.** With one load `iostat` shows a device at 100 % `%util`, as if it were full. Then a second, equal load
//! starts, and together they get more. `%util` is the time with *any* request in flight; it does not show how much more
//! a device can do that works on many requests at once.
//!
//! **How.** The job file runs once as it is; then with every job twice, the copy under another name and in a class of
//! its own. Both take turns in at most [`ROUNDS_MAX`](super::ROUNDS_MAX) rounds, which share the duration, so that a
//! disk that changes meanwhile changes under both. A conclusion stands if both rates are known to `VAGUE_PCT` and
//! leaving out any one round does not change it.
//!
//! The kernel's counters of the device are read before and after each round, and each second meanwhile: [`Iostat`] has
//! the columns that `iostat -x` would have shown, over all rounds and for the busiest second. Beside them stands the
//! part of the disk's capacity that was used, by the disk model.
//!
//! **Limits.** The kernel counts the requests of all programs, warm-up included. Without a device of its own (memory, a
//! network, an overlay) there are no counters. A kernel from 5.0 on samples busy time in ticks.
//!
//! **Example.** One load moves 617 MB/s, two move 592 + 500 MB/s, and both times the device was busy 97 % of the time:
//! it was not full when it seemed so.
//!
//! ```
//! use plimsoll_measure::experiment::dual::grew;
//! assert!((grew(617e6, 1092e6) - 0.77).abs() < 0.001);
//! ```

use std::time::Duration;

use plimsoll::core::{Histogram, WaitReason};
use plimsoll::sys::diskstats::Counters;
use plimsoll_files::jobs::{Job, JobClass};
use plimsoll_observe::stat::Columns;
use serde::{Deserialize, Serialize};

use super::device::{Counted, Device};
use super::point::{Sums, foreign_pct};
use super::{ExperimentError, OnStep, Point, Situation, rounds_of};
use crate::foreign::FOREIGN_DOUBT_PCT;
use crate::load::Control;
use crate::report::{Circumstances, Latency};
use crate::test::TestResult;
use crate::tune::VAGUE_PCT;

/// Shares of the second copy of a job whose class is not its own.
const SHARES: u32 = 100;
/// Change of throughput, in percent, up to which two loads count as equal to one, and from which on as more. A change
/// between the two may be the noise of short runs.
const SAME_PCT: f64 = 5.0;
const MORE_PCT: f64 = 10.0;
/// Part of the time from which on a reason to wait counts as what held the load back.
const HELD_PART: f64 = 0.5;
/// Part of a model's capacity from which on the capacity counts as used up.
const USED_UP: f64 = 0.9;
/// Part of the time, in percent, from which on the kernel's counters show a device as busy all the time.
const BUSY_PCT: f64 = 90.0;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DualReport {
    /// Where and how the report was made; `None` if no run was complete.
    #[serde(flatten)]
    pub made: Option<Circumstances>,
    /// The kernel's name of the device; `None` without counters.
    pub device: Option<String>,
    pub no_counters: Option<String>,
    /// The load alone, and twice at once.
    pub runs: Vec<DualRun>,
    pub finding: Option<Finding>,
    /// Whether the experiment ended before its second run was complete.
    pub interrupted: bool,
    pub written_bytes: u64,
}

impl DualReport {
    /// Reads the JSON of a report. The conclusion is drawn from the runs again: its JSON lacks the outcome.
    pub fn from_json(text: &str) -> serde_json::Result<DualReport> {
        let report: DualReport = serde_json::from_str(text)?;
        Ok(DualReport { finding: finding(&report.runs), ..report })
    }
}

/// The conclusion from both runs; its JSON is the sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Finding {
    #[serde(skip)]
    pub outcome: Outcome,
    /// The same as a sentence, with the reason.
    pub sentence: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Both together get more: the device was not full.
    Grew,
    /// Both together get what one got: the device is full.
    AtEnd,
    /// Both together get what one got, because something above the device holds them back.
    HeldAbove,
    #[default]
    Unclear,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DualRun {
    /// Copies of the load that ran at once: 1 or 2.
    pub times: u8,
    /// Figures of all jobs together.
    pub point: Point,
    pub jobs: Vec<DualJob>,
    /// The kernel's figures, as iostat shows them: the mean of the rounds.
    pub iostat: Option<Iostat>,
    /// The same for the second with the most requests, as `iostat 1` shows it.
    pub busiest: Option<Iostat>,
}

impl DualRun {
    /// Returns the name of the run in comparisons.
    pub fn name(&self) -> &'static str {
        if self.times == 1 { "once" } else { "twice at once" }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DualJob {
    pub name: String,
    pub iops: f64,
    pub throughput_bytes_per_s: f64,
    pub latency: Latency,
}

/// The relevant columns of `iostat -x` over one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iostat {
    /// `r/s`.
    pub reads_per_s: f64,
    /// `w/s`.
    pub writes_per_s: f64,
    /// `rkB/s`, in bytes.
    pub read_bytes_per_s: f64,
    /// `wkB/s`, in bytes.
    pub write_bytes_per_s: f64,
    /// `await`: mean time of reads, writes and discards in milliseconds; `None` without requests.
    pub await_ms: Option<f64>,
    /// `aqu-sz`: mean number of requests under way.
    pub queue: Option<f64>,
    /// `%util`: part of the time with any request under way, in per cent.
    pub util_pct: Option<f64>,
}

impl Iostat {
    /// Computes the columns from the change of the counters in `elapsed` (above 0).
    pub fn of(moved: &Counters, elapsed: Duration) -> Iostat {
        let columns = Columns::from_counters(moved, elapsed.as_secs_f64().max(1e-9));
        let bytes = |kib_per_s: Option<f64>| kib_per_s.unwrap_or(0.0) * 1024.0;
        Iostat {
            reads_per_s: columns.reads_per_s.unwrap_or(0.0),
            writes_per_s: columns.writes_per_s.unwrap_or(0.0),
            read_bytes_per_s: bytes(columns.read_kib_per_s),
            write_bytes_per_s: bytes(columns.write_kib_per_s),
            await_ms: columns.mean_await_ms().filter(|_| columns.requests_per_s() > Some(0.0)),
            queue: columns.queue,
            // The kernel's clock and ours differ: iostat caps here as well.
            util_pct: columns.util_percent.map(|percent| percent.min(100.0)),
        }
    }

    /// Returns the mean of rounds of the same length; `None` without any.
    fn mean(rounds: &[Iostat]) -> Option<Iostat> {
        let first = rounds.first()?;
        let mean = |of: fn(&Iostat) -> f64| rounds.iter().map(of).sum::<f64>() / rounds.len() as f64;
        let requests_per_s = |it: &Iostat| it.reads_per_s + it.writes_per_s;
        let awaited = || rounds.iter().filter_map(|it| Some((requests_per_s(it), it.await_ms?)));
        let requests = awaited().map(|(requests, _)| requests).sum::<f64>();
        let await_ms = awaited().map(|(requests, ms)| requests * ms).sum::<f64>() / requests;
        Some(Iostat {
            reads_per_s: mean(|it| it.reads_per_s),
            writes_per_s: mean(|it| it.writes_per_s),
            read_bytes_per_s: mean(|it| it.read_bytes_per_s),
            write_bytes_per_s: mean(|it| it.write_bytes_per_s),
            await_ms: Some(await_ms).filter(|ms| ms.is_finite()),
            queue: first.queue.map(|_| mean(|it| it.queue.unwrap_or(0.0))),
            util_pct: first.util_pct.map(|_| mean(|it| it.util_pct.unwrap_or(0.0))),
        })
    }
}

/// Returns the growth from `before` to `then`, as a part of `before`; 0 if `before` is 0.
pub fn grew(before: f64, then: f64) -> f64 {
    if before > 0.0 { then / before - 1.0 } else { 0.0 }
}

struct Load {
    times: u8,
    situation: Situation,
    sums: Sums,
    jobs: Vec<JobSums>,
    seen: Vec<Iostat>,
    busiest: Option<Iostat>,
}

/// The rounds of a job, added up.
#[derive(Default)]
struct JobSums {
    name: String,
    iops: f64,
    bytes_per_s: f64,
    latency: Histogram,
}

impl Load {
    fn new(times: u8, situation: Situation) -> Load {
        Load { times, situation, sums: Sums::default(), jobs: Vec::new(), seen: Vec::new(), busiest: None }
    }

    fn add(&mut self, result: &TestResult, counted: Option<&Counted>) {
        self.sums.add(result, counted.and_then(|counted| counted.foreign_pct));
        self.jobs.resize_with(result.jobs.len(), JobSums::default);
        for (sums, job) in self.jobs.iter_mut().zip(&result.jobs) {
            let total = result.run.total(&job.job.name);
            sums.name.clone_from(&job.job.name);
            sums.iops += total.iops();
            sums.bytes_per_s += total.bytes_per_s();
            sums.latency.merge(&total.latency);
        }

        let Some(counted) = counted else { return };
        self.seen.push(Iostat::of(&counted.moved.counters, counted.moved.elapsed));
        let busiest = counted.busiest.map(|moved| Iostat::of(&moved.counters, moved.elapsed));
        let requests_per_s = |it: &Iostat| it.reads_per_s + it.writes_per_s;
        let both = self.busiest.into_iter().chain(busiest);
        self.busiest = both.max_by(|a, b| requests_per_s(a).total_cmp(&requests_per_s(b)));
    }

    /// Returns the run; `None` without a round.
    fn run(self) -> Option<DualRun> {
        let point = self.sums.point(&self.situation, Vec::new());
        let rounds = point.rounds.len() as f64;
        let job = |job: &JobSums| DualJob {
            name: job.name.clone(),
            iops: job.iops / rounds,
            throughput_bytes_per_s: job.bytes_per_s / rounds,
            latency: Latency::of(&job.latency),
        };
        let jobs = self.jobs.iter().map(job).collect();
        let (iostat, busiest) = (Iostat::mean(&self.seen), self.busiest);
        (rounds > 0.0).then_some(DualRun { times: self.times, point, jobs, iostat, busiest })
    }
}

/// Runs the jobs once, and then twice at once, in rounds.
///
/// # Errors
/// [`ExperimentError`]. A stop of `control` is no error: the report then has the rounds so far.
pub fn run(situation: &Situation, control: &Control, on_step: OnStep<'_>) -> Result<DualReport, ExperimentError> {
    let mut base = situation.reusing_files();
    let rounds = rounds_of(base.options.duration_ns);
    base.options.duration_ns /= rounds;
    let device = Device::of(&base);
    let mut report = DualReport {
        device: device.as_ref().ok().map(|device| device.name.clone()),
        no_counters: device.as_ref().err().cloned(),
        ..DualReport::default()
    };

    let mut loads = [Load::new(1, base.clone()), Load::new(2, twice(&base))];
    let order = (1..=rounds).flat_map(|round| [(round, 0), (round, 1)]);
    for (round, at) in order {
        let Some(load) = loads.get_mut(at) else { break };
        let head = format!("{round}/{rounds} {}", if load.times == 1 { "once" } else { "twice at once" });
        let is_first = report.made.is_none();
        let step = load.situation.step(&head, device.as_ref().ok(), is_first, control, on_step)?;
        let Some((result, counted)) = step else {
            report.interrupted = true;
            break;
        };
        report.made = Some(Circumstances::of_run(&result.run).with_options(&situation.options));
        load.add(&result, counted.as_ref());
    }

    report.runs = loads.into_iter().filter_map(Load::run).collect();
    report.finding = finding(&report.runs);
    report.written_bytes = control.traffic.written_bytes();
    Ok(report)
}

/// Returns the situation with a second copy of every job, in a class of its own.
fn twice(situation: &Situation) -> Situation {
    let mut situation = situation.clone();
    let jobs = &mut situation.options.jobs.jobs;
    let seconds: Vec<Job> = jobs.iter().map(|job| second(job, jobs)).collect();
    jobs.extend(seconds);
    situation
}

fn second(job: &Job, others: &[Job]) -> Job {
    let mut job = job.clone();
    let numbered = (2u32..).map(|number| format!("{}-{number}", job.name));
    let free = |name: &String| others.iter().all(|other| other.name != *name);

    if let Some(name) = numbered.take(others.len() + 1).find(free) {
        job.name = name;
    }

    if let JobClass::Joined(_) = job.class {
        job.class = JobClass::Own { shares: SHARES };
    }
    job
}

/// How two loads compare with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Less,
    Same,
    Little,
    More,
}

fn change(growth_pct: f64) -> Change {
    match growth_pct {
        growth if growth < -SAME_PCT => Change::Less,
        growth if growth <= SAME_PCT => Change::Same,
        growth if growth < MORE_PCT => Change::Little,
        _ => Change::More,
    }
}

/// Returns why no conclusion from both stands; `None` if one does.
fn doubt(once: &Point, twice: &Point, growth_pct: f64) -> Option<String> {
    let widest = [once, twice].into_iter().filter_map(Point::half_width_part).fold(0.0, f64::max);
    if 100.0 * widest > VAGUE_PCT {
        return Some(format!("their rates are known to \u{b1} {:.0} % only; raise --duration", 100.0 * widest));
    }

    let rounds = once.rounds.len().min(twice.rounds.len());
    let growth_without = |left_out: &usize| {
        let [once, twice] = [once, twice].map(|point| point.on_curve_without(*left_out).throughput);
        100.0 * grew(once, twice)
    };
    let differs = |left_out: &usize| change(growth_without(left_out)) != change(growth_pct);
    if let Some(against) = (0..rounds).filter(|_| rounds > 1).find(differs) {
        let growth = growth_without(&against);
        return Some(format!("without round {} of {rounds} it is {growth:+.0} %; raise --duration", against + 1));
    }

    let why = match change(growth_pct) {
        Change::Less => "a full disk gives the same; it is overloaded, or changed between the runs: repeat it",
        Change::Little => "short runs differ by as much: repeat it, longer",
        Change::Same | Change::More => return None,
    };
    Some(why.to_owned())
}

/// Concludes from both runs; `None` without both.
pub fn finding(runs: &[DualRun]) -> Option<Finding> {
    let [once, twice] = runs else { return None };
    let growth = 100.0 * grew(once.point.on_curve().throughput, twice.point.on_curve().throughput);
    let util = |run: &DualRun| run.iostat.and_then(|iostat| iostat.util_pct);
    let foreign_pct = foreign_pct(runs.iter().map(|run| &run.point));
    let reasons = [WaitReason::Tokens, WaitReason::Limit, WaitReason::Depth].map(WaitReason::name);
    let held = twice.point.wait.as_ref();
    let held = held.filter(|wait| reasons.contains(&wait.reason.as_str()) && wait.part >= HELD_PART);

    let (outcome, sentence) = if foreign_pct > FOREIGN_DOUBT_PCT {
        let why = format!(
            "inconclusive: other programs moved up to {foreign_pct:.0} % of the most that the device did, and two loads \
             got {growth:+.0} % compared with one; repeat it when the disk is quiet"
        );
        (Outcome::Unclear, why)
    } else if let Some(doubt) = doubt(&once.point, &twice.point, growth) {
        let why = format!("inconclusive: two loads together got {growth:+.0} % compared with one, and {doubt}");
        (Outcome::Unclear, why)
    } else if change(growth) == Change::More {
        let why = match util(once).zip(util(twice)) {
            Some((first, second)) if first >= BUSY_PCT => format!(
                "alone, the device was busy for {first:.0} % of the time, and two loads still got {growth:.0} % more (at \
                 {second:.0} %): %util did not say how much it could do"
            ),
            Some((first, second)) => {
                format!("two loads got {growth:.0} % more than one; %util went from {first:.0} to {second:.0} %")
            }
            None => format!("two loads together got {growth:+.0} % compared with one"),
        };
        (Outcome::Grew, why)
    } else if let Some(wait) = held {
        let held = format!(
            "two loads together got little more than one ({growth:+.0} %): the scheduler held them back ({}, {:.0} % of \
             the time)",
            wait.reason,
            100.0 * wait.part.min(1.0)
        );
        match (twice.point.capacity_used, wait.reason == WaitReason::Depth.name()) {
            (Some(used), true) if used < USED_UP => {
                let why = format!(
                    "inconclusive: {held}, and {:.0} % of what its model of the disk grants is used: the device is slower \
                     than that, or the model is wrong",
                    100.0 * used
                );
                (Outcome::Unclear, why)
            }
            (Some(used), _) => (
                Outcome::HeldAbove,
                format!("{held}; {:.0} % of what its model of the disk grants is used", 100.0 * used),
            ),
            (None, true) => {
                (Outcome::HeldAbove, format!("{held}; whether the device could do more shows with a greater depth"))
            }
            (None, false) => (Outcome::HeldAbove, held),
        }
    } else {
        match util(once).zip(util(twice)) {
            Some((first, second)) if second >= BUSY_PCT => (
                Outcome::AtEnd,
                format!(
                    "two loads together got little more than one ({growth:+.0} %): it was at its end; %util was \
                     {first:.0} %, then {second:.0} %"
                ),
            ),
            Some((first, second)) => (
                Outcome::Unclear,
                format!(
                    "inconclusive: two loads together got little more than one ({growth:+.0} %), and yet the device was \
                     idle for {:.0} % of the time (%util {first:.0} %, then {second:.0} %): something before it held \
                     them back, or it changed between the runs",
                    100.0 - second
                ),
            ),
            None => (Outcome::Unclear, format!("two loads together got {growth:+.0} % compared with one")),
        }
    };
    Some(Finding { outcome, sentence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Round;
    use crate::experiment::tests_support::situation;

    const TWO: &str = "[{name: a, type: randread, shards: all, shard_info: {parallelism: 2, shares: 7}}, \
                        {name: a-2, type: randread, shards: all, shard_info: {parallelism: 1, class: a}}]";

    #[test]
    fn every_job_runs_twice_under_a_name_of_its_own() {
        let jobs = twice(&situation(TWO)).options.jobs.jobs;
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["a", "a-2", "a-3", "a-2-2"]);
        assert_eq!(jobs[2].class, JobClass::Own { shares: 7 });
        assert_eq!(jobs[3].class, JobClass::Own { shares: SHARES });
        let report = run(&situation(TWO), &Control::default(), &mut |_, _| {}).unwrap();
        assert_eq!((report.runs[0].jobs.len(), report.runs[1].jobs.len()), (2, 4));
        assert_eq!(report.runs[1].point.parallelism, 2 * report.runs[0].point.parallelism);
        assert!(report.no_counters.is_some() && report.finding.is_some());
    }

    #[test]
    fn both_loads_take_turns_and_the_busiest_second_is_kept() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let one =
            "[{name: a, type: randread, shards: all, data_size: 1MB, shard_info: {parallelism: 1, reqsize: 4kB}}]";
        let mut real = situation(one);
        real.options.storage = crate::test::Storage::Directory(directory.path().to_owned());
        (real.options.backend, real.options.duration_ns) = (None, 300_000_000);
        let mut order = Vec::new();
        let note = &mut |what: &str, _: Option<u64>| order.extend(what.strip_suffix(": running").map(str::to_owned));
        let report = run(&real, &Control::default(), note).unwrap();
        let turns = ["1/3 once", "1/3 twice at once", "2/3 once", "2/3 twice at once", "3/3 once", "3/3 twice at once"];
        assert_eq!(order, turns);
        assert!(report.runs.iter().all(|run| run.point.rounds.len() == 3), "{report:?}");
        assert_eq!(report.made.as_ref().unwrap().duration_s, Some(0.3));
        for run in &report.runs {
            let reads_per_s = |iostat: Option<Iostat>| iostat.map(|it| it.reads_per_s);
            // The disk that holds the build has counters, unless it is no block device.
            assert_eq!(run.iostat.is_some(), report.no_counters.is_none());
            // No round lasts a second: the busiest is a whole round.
            assert!(reads_per_s(run.busiest) >= reads_per_s(run.iostat).map(|mean| 0.9 * mean), "{run:?}");
        }
    }

    #[test]
    fn counters_become_the_columns_of_iostat() {
        let moved = Counters {
            reads: 100,
            read_sectors: 800,
            read_ms: Some(50),
            writes: 1000,
            write_sectors: 16_000,
            write_ms: Some(170),
            busy_ms: Some(1_940),
            weighted_ms: Some(220),
            ..Counters::default()
        };
        let iostat = Iostat::of(&moved, Duration::from_secs(2));
        assert_eq!((iostat.reads_per_s, iostat.writes_per_s), (50.0, 500.0));
        assert_eq!((iostat.read_bytes_per_s, iostat.write_bytes_per_s), (204_800.0, 4_096_000.0));
        assert_eq!((iostat.await_ms, iostat.queue, iostat.util_pct), (Some(0.2), Some(0.11), Some(97.0)));
        let idle = Iostat::of(&Counters::default(), Duration::ZERO);
        assert_eq!((idle.await_ms, idle.queue, idle.util_pct), (None, None, None));
    }

    #[test]
    fn the_finding_says_what_util_did_not() {
        let run = |times, throughput_bytes_per_s, util_pct: Option<f64>| DualRun {
            times,
            point: Point { throughput_bytes_per_s, ..Point::default() },
            jobs: Vec::new(),
            iostat: util_pct.map(|util_pct| Iostat { util_pct: Some(util_pct), ..Iostat::default() }),
            busiest: None,
        };
        for (once, twice, util, part) in [
            (617e6, 1092e6, Some((96.0, 98.0)), "still got 77 % more"),
            (617e6, 1092e6, Some((40.0, 60.0)), "%util went from 40 to 60 %"),
            (617e6, 610e6, Some((96.0, 98.0)), "it was at its end"),
            (617e6, 636e6, Some((75.0, 62.0)), "inconclusive: two loads together got little more than one (+3 %)"),
            (617e6, 1092e6, None, "+77 %"),
        ] {
            let said = finding(&[run(1, once, util.map(|u| u.0)), run(2, twice, util.map(|u| u.1))]).unwrap();
            assert!(said.sentence.contains(part), "{said:?}");
        }
        assert_eq!(finding(&[run(1, 1.0, None)]), None);
        // Less than one load alone, or a neighbour: neither shows that the disk was full.
        for twice in [93e6, 500e6] {
            let less = finding(&[run(1, 617e6, Some(96.0)), run(2, twice, Some(98.0))]).unwrap();
            assert!(less.outcome == Outcome::Unclear && less.sentence.starts_with("inconclusive"), "{less:?}");
        }
        // Rounds that agree decide; a single round does not.
        let rounds = |times, rates: &[f64]| {
            let round = |rate: &f64| Round { throughput_bytes_per_s: *rate, ..Round::default() };
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let mut run = run(times, mean, Some(98.0));
            run.point.rounds = rates.iter().map(round).collect();
            run
        };
        for (twice, outcome, part) in [
            ([1200e6, 1210e6, 1190e6], Outcome::Grew, "still got"),
            ([600e6, 610e6, 1000e6], Outcome::Unclear, "without round 3 of 3 it is +1 %; raise --duration"),
        ] {
            let said = finding(&[rounds(1, &[600e6; 3]), rounds(2, &twice)]).unwrap();
            assert!(said.outcome == outcome && said.sentence.contains(part), "{said:?}");
        }
        let mut beside = run(2, 610e6, Some(98.0));
        beside.point.foreign_pct = Some(40.0);
        let said = finding(&[run(1, 617e6, Some(96.0)), beside]).unwrap();
        assert!(said.sentence.contains("40 % of the most that the device did"), "{said:?}");
    }
}
