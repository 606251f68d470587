//! Searches for the highest rate within a bound of latency.
//!
//! **Why.** Throughput has no meaning without a bound on latency. Services are planned with a figure like this: the
//! highest rate of an open loop whose p99 stays below 2 ms.
//!
//! **How.** A closed loop at the job's own parallelism gives the first guess. Then the job becomes an open loop:
//! requests fall due by the clock and latency counts from then, so a disk that falls behind cannot hide it. A rate
//! passes if the percentile is within the bound and at least [`ACHIEVED_MIN`] of the requests asked for were made, less
//! what chance takes: with even gaps one request of each shard, with random gaps three standard deviations of their
//! number. The warm-up is at least as long as the bound, so that the window begins with as many requests under way as
//! it ends with.
//!
//! [`highest`] is the search, and knows nothing of disks. It doubles or halves the rate until one passes and a higher
//! one fails; halves the (logarithmic) distance until they are within the tolerance; then repeats both, and the
//! majority decides. If the lower end is not confirmed, it becomes the new upper end, and the search continues below;
//! likewise for the upper end.
//!
//! **Limits.** A percentile of a few requests depends on one of them: rates that make fewer than ten requests beyond
//! the percentile in one run (1000 in all for p99) are not tried. [`RateReport::rate_min`] states the lowest rate; a
//! longer run allows lower ones.
//!
//! The search assumes that a higher rate never has the lower latency. If the disk changes meanwhile, the ends are not
//! confirmed, and the result has `confirmed: false` after `tries_max` runs. The job's parallelism bounds the requests
//! under way: if it is too small, fibers are late, and that counts as latency.
//!
//! **Example.** A server takes 1 ms for each request, one at a time, with random arrivals: the mean time is 1 / (1000 -
//! rate) seconds, so 5 ms hold up to 800 a second.
//!
//! ```
//! use std::convert::Infallible;
//! use plimsoll_measure::experiment::find_rate::{SearchOptions, Trial, highest};
//! let found = highest(500.0, &SearchOptions::default(), |rate| {
//!     let mean_ns = if rate < 1000.0 { 1e9 / (1000.0 - rate) } else { f64::INFINITY };
//!     Ok::<_, Infallible>(Trial { rate, achieved: rate.min(1000.0), latency_ns: mean_ns, passed: mean_ns <= 5e6 })
//! })?;
//! assert!((780.0..=800.0).contains(&found.rate.unwrap()) && found.confirmed);
//! # Ok::<(), Infallible>(())
//! ```

use plimsoll::core::Histogram;
use plimsoll_figures::units::parse_duration_ns;
use plimsoll_files::jobs::{Job, JobKind, PauseDistribution};
use serde::{Deserialize, Serialize};

use super::sweep::setting_rate;
use super::{ExperimentError, OnStep, Situation, is_end};
use crate::load::Control;
use crate::report::Circumstances;
use crate::test::TestOptions;

/// Runs of a usual search: the closed loop, three until one rate passes and one fails, six that halve the distance, and
/// four that repeat both ends.
pub const RUNS_USUAL: usize = 14;
/// Part of the requests asked for that must be made for a rate to pass.
pub const ACHIEVED_MIN: f64 = 0.99;
/// Standard deviations of the number of requests with random gaps that may be missing by chance.
const CHANCE_DEVIATIONS: f64 = 3.0;
/// Fewest requests beyond a percentile. With fewer, a single one decides the percentile.
const BEYOND_MIN: f64 = 10.0;
/// Fewest requests of a mean.
const OF_MEAN_MIN: f64 = 30.0;
/// Part of the closed loop's rate at which the search begins.
const BEGIN_PART: f64 = 0.5;
/// Factor between rates when the search moves away from an end that was not confirmed.
const STEP_BACK: f64 = 1.1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// The latency that this many per cent of the requests do not exceed.
    Percentile(f64),
    Mean,
}

/// The request of `--find-rate`.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// The job whose rate is searched for; `None`: the only one.
    pub job: Option<String>,
    pub figure: Figure,
    /// Largest value allowed, in nanoseconds; above 0.
    pub bound_ns: u64,
    /// The goal as the user wrote it.
    pub text: String,
}

impl Goal {
    /// Parses `p99=2ms`, `p99.9=500us` or `lat_mean=1ms`, each also with a job in front: `reads.p99=2ms`.
    pub fn parse(text: &str) -> Result<Goal, String> {
        let help = "write FIGURE=TIME with p50, p95, p99, p99.9 or lat_mean, such as p99=2ms";
        let (name, bound) = text.rsplit_once('=').ok_or_else(|| format!("`{text}`: {help}"))?;
        // The figure may contain a dot itself: p99.9.
        let ends = std::iter::once(0).chain(name.match_indices('.').map(|(at, _)| at + 1));
        let found = ends.filter_map(|at| Some((name.get(..at)?, figure(name.get(at..)?)?))).next();
        let (job, figure) = found.ok_or_else(|| format!("`{name}` is no figure of latency: {help}"))?;
        let bound_ns = parse_duration_ns(bound).map_err(|error| format!("{}: {}", error.message, error.help))?;
        if bound_ns == 0 || bound_ns > Histogram::LIMIT_NS {
            return Err(format!("`{bound}`: expected a time above 0 and below 18 min"));
        }
        let job = job.strip_suffix('.').map(str::to_owned);
        Ok(Goal { job, figure, bound_ns, text: text.to_owned() })
    }

    /// Returns the fewest requests in one run for which the figure is meaningful.
    fn requests_min(&self) -> f64 {
        match self.figure {
            Figure::Percentile(percent) => (BEYOND_MIN / (1.0 - percent / 100.0)).ceil(),
            Figure::Mean => OF_MEAN_MIN,
        }
    }

    /// Returns the warm-up of each run at a rate, in nanoseconds: at least the bound, but no longer than the run.
    pub fn warmup_ns(&self, options: &TestOptions) -> u64 {
        options.warmup_ns.max(self.bound_ns.min(options.duration_ns))
    }

    fn of(&self, histogram: &Histogram) -> f64 {
        match self.figure {
            Figure::Percentile(percent) => histogram.percentile(percent) as f64,
            Figure::Mean => histogram.mean(),
        }
    }
}

fn figure(word: &str) -> Option<Figure> {
    if word == "lat_mean" || word == "mean" {
        return Some(Figure::Mean);
    }
    let percent = word.strip_prefix('p')?.parse::<f64>().ok()?;
    (percent > 0.0 && percent < 100.0).then_some(Figure::Percentile(percent))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOptions {
    /// Largest distance between the ends of the result, as a part of the rate; above 0.
    pub tolerance: f64,
    /// Runs at each of the two ends before they count; 0 counts as 1.
    pub repeats: u32,
    pub tries_max: u32,
    /// Lowest rate to try, in requests a second; above 0.
    pub rate_min: f64,
}

impl Default for SearchOptions {
    /// Returns bounds of 2 %, three runs at each end, at most 60 runs, and at least one request in ten seconds.
    fn default() -> SearchOptions {
        SearchOptions { tolerance: 0.02, repeats: 3, tries_max: 60, rate_min: 0.1 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Requests a second asked for.
    pub rate: f64,
    /// Requests a second made.
    pub achieved: f64,
    /// Value of the bounded figure, in nanoseconds.
    pub latency_ns: f64,
    /// Whether the figure was within the bound and the rate was reached.
    pub passed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The highest rate that passed; `None` if none did.
    pub rate: Option<f64>,
    /// The lowest rate above it that failed; `None` if all passed.
    pub failed_rate: Option<f64>,
    /// Whether the majority of the runs at both ends agree.
    pub confirmed: bool,
    pub trials: Vec<Trial>,
}

/// Searches for the highest rate that passes, from `guess` (requests a second) on, as the module describes.
pub fn highest<E>(
    guess: f64,
    options: &SearchOptions,
    measure: impl FnMut(f64) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut search = Search { options, measure, trials: Vec::new() };
    let begin = if guess.is_finite() { guess.max(options.rate_min) } else { options.rate_min };
    let (mut low, mut high) = search.bracket(begin)?;

    let mut confirmed = false;
    while let (Some(passing), Some(failing)) = (low, high)
        && search.may_go_on()
    {
        if failing / passing > 1.0 + options.tolerance.max(1e-6) {
            let middle = (passing * failing).sqrt();
            if search.try_once(middle)? { low = Some(middle) } else { high = Some(middle) }
        } else if !search.holds(passing, true)? {
            (low, high) = (search.below(passing)?, Some(passing));
        } else if !search.holds(failing, false)? {
            (low, high) = (Some(failing), search.above(failing)?);
        } else {
            confirmed = true;
            break;
        }
    }

    Ok(Found { rate: low, failed_rate: high, confirmed, trials: search.trials })
}

struct Search<'a, M> {
    options: &'a SearchOptions,
    measure: M,
    trials: Vec<Trial>,
}

impl<M, E> Search<'_, M>
where
    M: FnMut(f64) -> Result<Trial, E>,
{
    fn may_go_on(&self) -> bool {
        self.trials.len() < self.options.tries_max as usize
    }

    fn try_once(&mut self, rate: f64) -> Result<bool, E> {
        let trial = (self.measure)(rate)?;
        // Record the rate asked for, not the one that `measure` returns.
        self.trials.push(Trial { rate, ..trial });
        Ok(trial.passed)
    }

    /// Finds a rate that passes and a higher one that fails.
    fn bracket(&mut self, begin: f64) -> Result<(Option<f64>, Option<f64>), E> {
        let (mut low, mut high, mut rate) = (None, None, begin);
        while (low.is_none() || high.is_none()) && self.may_go_on() && rate >= self.options.rate_min && rate.is_finite()
        {
            if self.try_once(rate)? {
                (low, rate) = (Some(rate), rate * 2.0);
            } else {
                (high, rate) = (Some(rate), rate / 2.0);
            }
        }
        Ok((low, high))
    }

    /// Repeats a rate. Returns whether most of its runs are as expected.
    fn holds(&mut self, rate: f64, expected: bool) -> Result<bool, E> {
        let repeats = self.options.repeats.max(1) as usize;
        while self.trials.iter().filter(|t| t.rate == rate).count() < repeats && self.may_go_on() {
            self.try_once(rate)?;
        }
        let of_rate = || self.trials.iter().filter(|t| t.rate == rate);
        Ok(2 * of_rate().filter(|t| t.passed == expected).count() > of_rate().count())
    }

    /// Returns the next lower rate that passes, in steps of [`STEP_BACK`].
    fn below(&mut self, rate: f64) -> Result<Option<f64>, E> {
        let mut rate = rate / STEP_BACK;
        while rate >= self.options.rate_min && self.may_go_on() {
            if self.try_once(rate)? {
                return Ok(Some(rate));
            }
            rate /= STEP_BACK;
        }
        Ok(None)
    }

    /// Returns the next higher rate that fails, in steps of [`STEP_BACK`].
    fn above(&mut self, rate: f64) -> Result<Option<f64>, E> {
        let mut rate = rate * STEP_BACK;
        while rate.is_finite() && self.may_go_on() {
            if !self.try_once(rate)? {
                return Ok(Some(rate));
            }
            rate *= STEP_BACK;
        }
        Ok(None)
    }
}

/// The result of `--find-rate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateReport {
    #[serde(flatten)]
    pub made: Circumstances,
    pub job: String,
    /// The goal as the user wrote it: `p99=2ms`.
    pub goal: String,
    pub bound_ns: u64,
    /// Requests a second of the closed loop before the search.
    pub closed_loop_iops: f64,
    /// Lowest rate for which a run is long enough, in requests a second.
    pub rate_min: f64,
    #[serde(flatten)]
    pub found: Found,
    /// Whether the search ended early: by the user, or because no more may be written.
    pub interrupted: bool,
    pub written_bytes: u64,
}

/// Searches for the highest rate of a job. Other jobs run beside it as the file says.
///
/// # Errors
/// [`ExperimentError`]. Once the closed loop has a result, a stop of `control` is no error.
pub fn run(
    situation: &Situation,
    goal: &Goal,
    options: &SearchOptions,
    control: &Control,
    on_step: OnStep<'_>,
) -> Result<RateReport, ExperimentError> {
    let situation = &situation.reusing_files();
    let name = job_of(&situation.options.jobs.jobs, goal)?;
    let closed = with_job(situation, &name, &|job| {
        (job.requests_per_s_per_fiber, job.requests_per_s_per_shard, job.batch) = (None, None, 1);
    });

    let result = closed.run(control, &mut |what, ns| on_step(&format!("closed loop: {what}"), ns))?;
    let closed_loop_iops = result.run.total(&name).iops();

    let duration_s = (situation.options.duration_ns as f64 / 1e9).max(1e-9);
    let options = SearchOptions { rate_min: options.rate_min.max(goal.requests_min() / duration_s), ..*options };

    let made = Circumstances::of_run(&result.run).with_options(&situation.options);
    let mut report = RateReport {
        // That of the trials, which wait for at least the bound.
        made: Circumstances { warmup_s: Some(goal.warmup_ns(&situation.options) as f64 / 1e9), ..made },
        job: name.clone(),
        goal: goal.text.clone(),
        bound_ns: goal.bound_ns,
        closed_loop_iops,
        rate_min: options.rate_min,
        found: Found { rate: None, failed_rate: None, confirmed: false, trials: Vec::new() },
        interrupted: result.interrupted,
        written_bytes: 0,
    };

    if closed_loop_iops <= 0.0 && !result.interrupted {
        return Err(ExperimentError::Silent { job: name, duration_s });
    }
    if !result.interrupted {
        let mut trials = Vec::new();
        let searched = highest(closed_loop_iops * BEGIN_PART, &options, |rate| {
            let trial = trial(situation, &name, goal, rate, control, on_step)?;
            trials.push(trial);
            Ok(trial)
        });
        match searched {
            Ok(found) => report.found = found,
            Err(error) if is_end(&error) => (report.interrupted, report.found.trials) = (true, trials),
            Err(error) => return Err(error),
        }
    }
    report.written_bytes = control.traffic.written_bytes();
    Ok(report)
}

fn trial(
    situation: &Situation,
    name: &str,
    goal: &Goal,
    rate: f64,
    control: &Control,
    on_step: OnStep<'_>,
) -> Result<Trial, ExperimentError> {
    let open = open_loop(situation, name, goal, rate);
    let result = open.run(control, &mut |what, ns| on_step(&format!("{rate:.0}/s: {what}"), ns))?;
    if result.interrupted {
        return Err(crate::test::TestError::Interrupted.into());
    }

    let total = result.run.total(name);
    let errors = total.errors + total.fault_count;
    let (achieved, latency_ns) = (total.iops(), goal.of(&total.latency));
    let asked = rate * total.elapsed_ns as f64 / 1e9;
    let job = open.options.jobs.jobs.iter().find(|job| job.name == name);
    let is_kept = job.is_some_and(|job| is_kept(total.requests, asked, job, open.options.shards));
    Ok(Trial { rate, achieved, latency_ns, passed: latency_ns <= goal.bound_ns as f64 && is_kept && errors == 0 })
}

/// Returns the situation with the job as an open loop of `rate` requests a second.
fn open_loop(situation: &Situation, name: &str, goal: &Goal, rate: f64) -> Situation {
    let shards = u32::from(situation.options.shards);
    let mut open = with_job(situation, name, &|job| {
        // The rate counts single requests, and latency counts from when each was due.
        job.batch = 1;
        setting_rate(job, rate, shards);
    });
    open.options.warmup_ns = goal.warmup_ns(&open.options);
    open
}

/// Returns whether a job that made `made` of `asked` requests on `shards` shards kept the rate: all but what chance and
/// [`ACHIEVED_MIN`] allow, and never less than half of what that asks for.
fn is_kept(made: u64, asked: f64, job: &Job, shards: u16) -> bool {
    let chance = match job.pause_distribution {
        // The window of each shard begins and ends anywhere between two requests.
        PauseDistribution::Uniform => (0..u32::from(shards)).filter(|shard| job.shards.contains(*shard)).count() as f64,
        PauseDistribution::Poisson => CHANCE_DEVIATIONS * asked.sqrt(),
    };
    made as f64 >= ACHIEVED_MIN * asked - chance.min(asked / 2.0)
}

fn job_of(jobs: &[Job], goal: &Goal) -> Result<String, ExperimentError> {
    let asked = |text: String| Err(ExperimentError::Asked(text));
    let job = match (&goal.job, jobs) {
        (Some(name), jobs) => match jobs.iter().find(|job| job.name == *name) {
            Some(job) => job,
            None => return asked(format!("--find-rate: there is no job `{name}` in the job file")),
        },
        (None, [job]) => job,
        (None, _) => {
            let text = format!("--find-rate: there are several jobs: say which one, as JOB.{}", goal.text);
            return asked(text);
        }
    };

    if matches!(job.kind, JobKind::Cpu { .. } | JobKind::Unlink { .. }) {
        let kind = job.kind.as_str();
        return asked(format!("--find-rate: job `{}` is of type {kind}, which has no rate to search", job.name));
    }
    Ok(job.name.clone())
}

fn with_job(situation: &Situation, name: &str, change: &dyn Fn(&mut Job)) -> Situation {
    let mut situation = situation.clone();
    situation.options.jobs.jobs.iter_mut().filter(|job| job.name == name).for_each(change);
    situation
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use plimsoll::core::Op;
    use plimsoll_sim::device::{Device, DeviceRequest, DeviceSpec, RateSpec};
    use plimsoll_sim::rng::Rng;

    use super::*;
    use crate::experiment::tests_support::situation;

    /// Returns latencies of random reads with random arrivals at a simulated device of 10 000 reads a second.
    fn on_device(rate: f64, seed: u64) -> Histogram {
        let rates = RateSpec { read_iops: 10_000.0, ..RateSpec::default() };
        let mut device = Device::new(&DeviceSpec { rates, ..DeviceSpec::default() }, seed).unwrap();
        let (mut rng, mut latency) = (Rng::new(seed), Histogram::new());
        let (mut now, mut begun, mut done) = (0.0, Vec::new(), Vec::new());
        for key in 0..20_000u64 {
            now += rng.exponential(1e9 / rate);
            device.advance(now as u64, &mut done);
            begun.push(now as u64);
            let offset_bytes = rng.below(1 << 18) * 4096;
            device.submit(now as u64, DeviceRequest { key, op: Op::Read, offset_bytes, len_bytes: 4096 });
        }
        device.advance(u64::MAX, &mut done);
        for end in done {
            latency.record(end.at_ns - begun[end.key as usize]);
        }
        latency
    }

    #[test]
    fn the_knee_of_a_simulated_disk_is_found() {
        let goal = Goal::parse("p99=1ms").unwrap();
        for guess in [100.0, 9_000.0, 1e6] {
            let mut seed = 0;
            let found = highest(guess, &SearchOptions::default(), |rate| {
                seed += 1;
                let latency_ns = goal.of(&on_device(rate, seed));
                let passed = latency_ns <= goal.bound_ns as f64;
                Ok::<_, Infallible>(Trial { rate, achieved: rate, latency_ns, passed })
            })
            .unwrap();
            let (low, high) = (found.rate.unwrap(), found.failed_rate.unwrap());
            assert!(high / low <= 1.02 + 1e-9 && (4_000.0..10_500.0).contains(&low), "{found:?}");
            assert!(found.confirmed && found.trials.len() < 60, "{found:?}");
            // Whatever the seed, the bound holds well below the knee and not well above it.
            assert!(goal.of(&on_device(low * 0.8, 99)) < 1e6 && goal.of(&on_device(high * 1.3, 99)) > 1e6);
        }
    }

    #[test]
    fn noise_does_not_deceive_the_search() {
        // The true rate is 1000/s; one run in ten is wrong.
        let options = SearchOptions { repeats: 5, tries_max: 200, ..SearchOptions::default() };
        let is_right = |seed: &u64| {
            let mut rng = Rng::new(*seed);
            let found = highest(300.0, &options, |rate: f64| {
                let passed = (rate <= 1000.0) != (rng.below(10) == 0);
                Ok::<_, Infallible>(Trial { rate, achieved: rate, latency_ns: 1.0, passed })
            });
            let found = found.unwrap();
            !found.confirmed || found.rate.is_some_and(|rate| (900.0..=1100.0).contains(&rate))
        };
        let right = (0..200).filter(is_right).count();
        assert!(right >= 190, "{right} of 200");
    }

    #[test]
    fn nothing_and_everything_end() {
        let all = |passed| {
            highest(10.0, &SearchOptions::default(), |rate| {
                Ok::<_, Infallible>(Trial { rate, achieved: rate, latency_ns: 0.0, passed })
            })
            .unwrap()
        };
        let (none, every) = (all(false), all(true));
        assert_eq!((none.rate, none.confirmed), (None, false));
        assert_eq!((every.failed_rate, every.confirmed, every.trials.len()), (None, false, 60));
        let broken = highest(10.0, &SearchOptions::default(), |_| Err::<Trial, _>("no disk"));
        assert_eq!(broken, Err("no disk"));
    }

    #[test]
    fn goals_are_read() {
        for (text, job, figure, bound_ns) in [
            ("p99=2ms", None, Figure::Percentile(99.0), 2_000_000),
            ("p99.9=500us", None, Figure::Percentile(99.9), 500_000),
            ("lat_mean=1ms", None, Figure::Mean, 1_000_000),
            ("my.reads.p99.9=1s", Some("my.reads"), Figure::Percentile(99.9), 1_000_000_000),
        ] {
            let goal = Goal::parse(text).unwrap();
            assert_eq!((goal.job.as_deref(), goal.figure, goal.bound_ns), (job, figure, bound_ns), "{text}");
        }
        for (text, part) in [
            ("p99", "FIGURE=TIME"),
            ("p100=1ms", "no figure"),
            ("q=1ms", "no figure"),
            ("p99=2", "unit"),
            ("p99=0ms", "above 0"),
            ("p99=2h", "below 18 min"),
        ] {
            let why = Goal::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn rates_with_too_few_requests_are_not_tried() {
        for (text, least) in [("p99=1ms", 1000.0), ("p50=1ms", 20.0), ("lat_mean=1ms", 30.0)] {
            assert_eq!(Goal::parse(text).unwrap().requests_min(), least, "{text}");
        }
        // No request completes within a nanosecond.
        let text = "[{name: a, type: randread, shards: all, shard_info: {parallelism: 1}}]";
        let goal = Goal::parse("p50=1ns").unwrap();
        let control = Control::default();
        let report = run(&situation(text), &goal, &SearchOptions::default(), &control, &mut |_, _| {}).unwrap();
        assert_eq!((report.found.rate, report.rate_min), (None, 20.0 / 0.005));
        assert!(report.found.trials.iter().all(|trial| trial.rate >= report.rate_min));
    }

    #[test]
    fn a_rate_is_kept_though_a_window_cuts_through_requests() {
        let mut job = situation("[{name: a, type: randread, shards: all, shard_info: {parallelism: 1}}]")
            .options
            .jobs
            .jobs
            .remove(0);
        // An even schedule of each shard makes a request less or more, and never half of them.
        for (made, asked, shards, kept) in [
            (19, 20.0, 1, true),
            (18, 20.0, 1, false),
            (990, 1000.0, 1, true),
            (988, 1000.0, 1, false),
            (16, 20.0, 4, true),
            (9, 20.0, 64, false),
            (0, 20.0, 64, false),
        ] {
            assert_eq!(is_kept(made, asked, &job, shards), kept, "{made} of {asked} on {shards}");
        }

        // With random gaps the number of requests that fall due is random itself.
        job.pause_distribution = PauseDistribution::Poisson;
        for asked in [20.0, 1000.0, 50_000.0] {
            let made = |seed: u64| {
                let (mut rng, mut at, mut made) = (Rng::new(seed), 0.0, 0);
                while at < asked {
                    at += rng.exponential(1.0);
                    made += u64::from(at < asked);
                }
                made
            };
            let kept = (0..200).filter(|seed| is_kept(made(*seed), asked, &job, 1)).count();
            assert!(kept >= 198, "{kept} of 200 at {asked}");
        }
        assert!(!is_kept(880, 1000.0, &job, 1) && !is_kept(48_000, 50_000.0, &job, 1) && !is_kept(0, 20.0, &job, 1));
    }

    #[test]
    fn the_window_begins_with_as_much_under_way_as_it_ends_with() {
        let mut of_job = situation("[{name: a, type: randread, shards: all, shard_info: {parallelism: 1}}]");
        let warmup_ns = |of_job: &Situation, goal: &str| {
            open_loop(of_job, "a", &Goal::parse(goal).unwrap(), 100.0).options.warmup_ns
        };
        of_job.options.duration_ns = 10_000_000_000;
        assert_eq!(warmup_ns(&of_job, "p99=200ms"), 200_000_000);
        assert_eq!(warmup_ns(&of_job, "p99=60s"), 10_000_000_000);
        of_job.options.warmup_ns = 1_000_000_000;
        assert_eq!(warmup_ns(&of_job, "p99=200ms"), 1_000_000_000);
    }

    #[test]
    fn a_job_must_be_named_where_there_are_several() {
        let two = "[{name: a, type: randread, shards: all, shard_info: {parallelism: 1}}, \
                    {name: b, type: randread, shards: all, shard_info: {parallelism: 1}}]";
        let jobs = situation(two).options.jobs.jobs;
        let of = |text: &str| job_of(&jobs, &Goal::parse(text).unwrap()).map_err(|error| error.to_string());
        assert_eq!(of("b.p99=1ms"), Ok("b".to_owned()));
        assert!(of("p99=1ms").unwrap_err().contains("JOB.p99=1ms"));
        assert!(of("c.p99=1ms").unwrap_err().contains("no job `c`"));
    }
}
