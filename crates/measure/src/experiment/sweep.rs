//! Sweeps: a run for every combination of values of some settings, and a verdict for each curve.
//!
//! **Why.** Some questions ask for the same load with other settings: where a disk's knee lies, which cost form admits
//! more, what effect the latency goal has.
//!
//! **How.** An [`Axis`] is `KEY=V1,V2,...` for all jobs, or `JOB.KEY=...` for one. [`points_of`] returns the product of
//! all axes; the last axis changes fastest. The duration of a point is divided into at most
//! [`ROUNDS_MAX`](super::ROUNDS_MAX) rounds, and each round runs all points, so that a disk that changes meanwhile
//! changes under all of them alike, and its change shows in the intervals.
//!
//! Points that differ only in parallelism (or else in the number of shards) make a curve, which
//! [`verdict`](plimsoll_figures::verdict) judges by throughput and time in the device. The verdict stands if no point
//! is vaguer than `VAGUE_PCT`, other programs moved at most `FOREIGN_DOUBT_PCT` of the bytes, and leaving out any one
//! round does not change it; else it is unclear, with the reason.
//!
//! **Limits.** Runs that end when their jobs have done their work, and those too short for two rounds, have one round.
//!
//! At most [`POINTS_MAX`] points. Without an axis of parallelism or shards there is no verdict.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::experiment::sweep::{Axis, points_of};
//! let axes = [Axis::parse("reads.parallelism=1,2,4")?, Axis::parse("reqsize=128k,1M")?];
//! assert_eq!(points_of(&axes)?.len(), 6);
//! # Ok::<(), String>(())
//! ```

mod setting;

use plimsoll::sys::pin::allowed_cpus;
use plimsoll::{Classes, StartError, Topology};
use plimsoll_figures::verdict::{Kind, Verdict, verdict};
use plimsoll_files::setup::ModelChoice;
use serde::{Deserialize, Serialize};

use super::device::Device;
use super::point::{Sums, foreign_pct, promised_bytes_per_s};
use super::{ExperimentError, OnStep, Point, Situation, rounds_of};
use crate::by_key;
use crate::foreign::FOREIGN_DOUBT_PCT;
use crate::load::{Control, LoadError};
use crate::report::Circumstances;
use crate::sim::report::sweep_text;
use crate::test::{TestError, check_regions};
use crate::tune::VAGUE_PCT;
pub(super) use setting::set_rate as setting_rate;
pub use setting::{Key, Setting};

pub const POINTS_MAX: usize = 1000;
const VALUES_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name as the user wrote it: `reads.parallelism`.
    pub name: String,
    /// Values in the user's order, at least one.
    pub settings: Vec<Setting>,
}

impl Axis {
    /// Parses `KEY=V1,V2,...` or `JOB.KEY=V1,V2,...`.
    ///
    /// # Errors
    /// A message that states the expected form, for an unknown key, for no values, or for a value outside the key's
    /// range.
    pub fn parse(text: &str) -> Result<Axis, String> {
        let (name, values) =
            text.rsplit_once('=').ok_or_else(|| format!("`{text}`: write KEY=V1,V2,..., such as parallelism=1,2,4"))?;
        let name = name.trim();
        let (job, key) = Key::find(name)?;
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        if values.len() > VALUES_MAX {
            return Err(format!("{name}: {} values, at most {VALUES_MAX} are taken", values.len()));
        }
        let settings = values.into_iter().map(|value| Setting::parse(job.as_deref(), key, value));
        let settings = settings.collect::<Result<Vec<_>, _>>().map_err(|why| format!("{name}: {why}"))?;
        for (at, setting) in settings.iter().enumerate() {
            if let Some(other) = settings.iter().take(at).find(|other| other.is_same(setting)) {
                return Err(format!("{name}: `{}` and `{}` are one value: name it once", other.text, setting.text));
            }
        }
        Ok(Axis { name: name.to_owned(), settings })
    }

    /// Returns whether the axis sets `key`, so that its values change the load along a curve.
    fn is_load(&self, key: Key) -> bool {
        self.settings.first().is_some_and(|setting| setting.key == key)
    }
}

/// Returns all combinations; the last axis changes fastest.
///
/// # Errors
/// A message for more than [`POINTS_MAX`] combinations, or two axes of one name.
pub fn points_of(axes: &[Axis]) -> Result<Vec<Vec<&Setting>>, String> {
    for (at, axis) in axes.iter().enumerate() {
        if axes.iter().take(at).any(|other| other.name == axis.name) {
            return Err(format!("--sweep {} twice: put all its values into one", axis.name));
        }
    }

    let mut points: Vec<Vec<&Setting>> = vec![Vec::new()];
    for axis in axes {
        let count = points.len().saturating_mul(axis.settings.len());
        if count > POINTS_MAX {
            return Err(format!("a sweep of more than {POINTS_MAX} points: leave out values"));
        }

        let with = |point: &Vec<_>| {
            let point = point.clone();
            axis.settings.iter().map(move |setting| point.iter().copied().chain([setting]).collect::<Vec<_>>())
        };
        points = points.iter().flat_map(with).collect();
    }
    Ok(points)
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// Where and how the sweep was made; `None` if no point was run.
    #[serde(flatten)]
    pub made: Option<Circumstances>,
    pub axes: Vec<String>,
    /// Points in the order of their settings.
    pub points: Vec<Point>,
    /// Verdicts, one for each curve over parallelism (or shards).
    pub verdicts: Vec<CurveVerdict>,
    /// Whether the sweep ended before its last run: by the user, or because the write bound is reached.
    pub interrupted: bool,
    pub written_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveVerdict {
    /// Settings that all points of the curve share: key and value.
    pub settings: Vec<(String, String)>,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Runs all points. Refuses impossible settings before the first run.
///
/// # Errors
/// [`ExperimentError`]. A stop of `control` is no error: the report then has the points so far.
pub fn run(
    situation: &Situation,
    axes: &[Axis],
    control: &Control,
    on_step: OnStep<'_>,
) -> Result<SweepReport, ExperimentError> {
    let plan = points_of(axes).map_err(ExperimentError::Asked)?;
    let mut base = situation.reusing_files();
    let rounds = rounds_of(base.options.duration_ns);
    base.options.duration_ns /= rounds;
    let settings_of = |settings: &[&Setting]| -> Vec<(String, String)> {
        axes.iter().zip(settings).map(|(axis, setting)| (axis.name.clone(), setting.text.clone())).collect()
    };
    let of_point = |settings: &Vec<&Setting>| {
        let run = changed(&base, settings, &sweep_text(&settings_of(settings)))?;
        check_shards(&run)?;
        check_regions(&run.options)?;
        Ok(run)
    };
    let situations = plan.iter().map(of_point).collect::<Result<Vec<_>, ExperimentError>>()?;

    let mut report =
        SweepReport { axes: axes.iter().map(|axis| axis.name.clone()).collect(), ..SweepReport::default() };

    let mut sums: Vec<Sums> = Vec::new();
    let runs = (0..rounds).flat_map(|round| (0..plan.len()).map(move |at| (round, at)));
    for (round, at) in runs {
        let (Some(settings), Some(run)) = (plan.get(at), situations.get(at)) else { break };
        let nth = round as usize * plan.len() + at + 1;
        let head = format!("{nth}/{} {}", rounds as usize * plan.len(), sweep_text(&settings_of(settings)));
        let device = Device::of(run).ok();
        let Some((result, counted)) = run.step(&head, device.as_ref(), sums.is_empty(), control, on_step)? else {
            report.interrupted = true;
            break;
        };
        if report.made.is_none() {
            report.made = Some(Circumstances::of_run(&result.run).with_options(&situation.options));
        }
        if sums.len() <= at {
            sums.push(Sums::default());
        }
        if let Some(sums) = sums.get_mut(at) {
            sums.add(&result, counted.and_then(|counted| counted.foreign_pct));
        }
    }

    let points = sums.into_iter().zip(situations.iter().zip(&plan));
    report.points = points.map(|(sums, (run, settings))| sums.point(run, settings_of(settings))).collect();
    let promises: Vec<Option<f64>> = situations.iter().map(promise).collect();
    report.verdicts = verdicts(axes, &report.points, &promises);
    report.written_bytes = control.traffic.written_bytes();
    Ok(report)
}

/// Returns a copy with the settings of point `point` applied; an error if they are impossible, or if one has no effect.
fn changed(situation: &Situation, settings: &[&Setting], point: &str) -> Result<Situation, ExperimentError> {
    let mut situation = situation.clone();
    // A rate is divided over shards and batches, and takes the place of pauses.
    let place = |setting: &&&Setting| match setting.key {
        Key::Rate => 1,
        Key::ThinkTime => 2,
        _ => 0,
    };
    let mut in_order: Vec<&&Setting> = settings.iter().collect();
    in_order.sort_by_key(place);
    in_order.iter().try_for_each(|setting| setting.apply(&mut situation)).map_err(ExperimentError::Asked)?;

    situation.options.jobs.validate(u32::from(situation.options.shards))?;
    let jobs = &situation.options.jobs.jobs;
    if let Some((job, why)) = jobs.iter().find_map(|job| Some((job, job.contradiction()?))) {
        return Err(ExperimentError::Asked(format!("--sweep {point}: job `{}`: {why}", job.name)));
    }

    situation.disk()?;
    Ok(situation)
}

/// Refuses shards that have no CPU, and I/O queues that have no shard.
fn check_shards(situation: &Situation) -> Result<(), ExperimentError> {
    let shards = situation.options.shards;
    let cpus = allowed_cpus().map_or(usize::MAX, |cpus| cpus.len());
    if usize::from(shards) > cpus {
        return Err(TestError::from(LoadError::from(StartError::TooManyShards { shards, cpus })).into());
    }
    Topology::new(shards, Classes::new(), vec![situation.disk()?]).map_err(TestError::from)?;
    Ok(())
}

/// Returns the throughput that the disk's model promises to the load. The old default rates are only limits, and
/// promise nothing.
fn promise(situation: &Situation) -> Option<f64> {
    let disk = situation.disk().ok().filter(|_| situation.choice.model != Some(ModelChoice::OldDefaults))?;
    promised_bytes_per_s(&situation.options.jobs.jobs, &disk.config.model)
}

fn verdicts(axes: &[Axis], points: &[Point], promises: &[Option<f64>]) -> Vec<CurveVerdict> {
    let has = |key: Key| axes.iter().any(|axis| axis.is_load(key));
    let load = [Key::Parallelism, Key::Shards].into_iter().find(|key| has(*key));
    let Some(load) = load else { return Vec::new() };
    // Returns the settings that stay the same along a curve.
    let common = |point: &Point| -> Vec<(String, String)> {
        let pairs = axes.iter().zip(&point.settings).filter(|(axis, _)| !axis.is_load(load));
        pairs.map(|(_, pair)| pair.clone()).collect()
    };

    // A curve: points that differ only in their load, and what the disk promises to the first of them.
    let curves = by_key(points.iter().zip(promises).map(|(point, promised)| (common(point), (point, *promised))));
    let judged = |(settings, curve): (_, Vec<(&Point, Option<f64>)>)| {
        let promised = curve.first().and_then(|(_, promised)| *promised);
        let points: Vec<&Point> = curve.into_iter().map(|(point, _)| point).collect();
        CurveVerdict { settings, verdict: judge(&points, promised) }
    };
    curves.into_iter().map(judged).collect()
}

/// Judges points that differ only in their load. `promised` is the throughput that the disk's model promises.
pub fn judge(points: &[&Point], promised: Option<f64>) -> Verdict {
    let on_curve: Vec<_> = points.iter().map(|point| point.on_curve()).collect();
    let mut verdict = verdict(&on_curve, promised);
    if let Some(doubt) = doubt(points, promised, verdict.kind) {
        verdict.evidence.insert(0, format!("the points as they are: {}", verdict.sentence));
        verdict.kind = Kind::Unclear;
        verdict.sentence = format!("not clear: {doubt}");
    }

    let widest = points.iter().filter_map(|point| point.half_width_part()).reduce(f64::max);
    if let (Some(part), Some(rounds)) = (widest, points.iter().map(|point| point.rounds.len()).max()) {
        let pct = 100.0 * part;
        let known = format!("each throughput is known to ± {pct:.1} % or better, from {rounds} round(s)");
        verdict.evidence.push(known);
    }

    let heaviest = points.iter().max_by_key(|point| point.parallelism);
    let is_same = |point: &&&Point| point.settings.iter().any(|(_, value)| *value == point.parallelism.to_string());
    if let Some(point) = heaviest.filter(|point| !is_same(point)) {
        let (all, settings) = (point.parallelism, sweep_text(&point.settings));
        verdict.evidence.push(format!("parallelism here is of all jobs and shards: {all} at {settings}"));
    }
    if let Some(wait) = heaviest.and_then(|point| point.wait.as_ref()) {
        let (reason, pct) = (&wait.reason, 100.0 * wait.part.min(1.0));
        verdict.evidence.push(format!("what held requests back at the last point: {reason} ({pct:.0} % of the time)"));
    }
    verdict
}

/// Returns why a verdict of `kind` cannot stand, and what would decide it.
fn doubt(points: &[&Point], promised: Option<f64>, kind: Kind) -> Option<String> {
    let foreign_pct = foreign_pct(points.iter().copied());
    if foreign_pct > FOREIGN_DOUBT_PCT {
        return Some(format!(
            "other programs moved up to {foreign_pct:.0} % of the most that the device did; repeat it when the disk is \
             quiet"
        ));
    }
    if kind == Kind::Unclear {
        return None;
    }

    let vague = |point: &&&Point| point.half_width_part().is_some_and(|part| 100.0 * part > VAGUE_PCT);
    if let Some(point) = points.iter().find(vague) {
        return Some(format!(
            "the throughput at {} is known to ± {:.0} % only; raise --duration",
            sweep_text(&point.settings),
            100.0 * point.half_width_part().unwrap_or_default()
        ));
    }

    let rounds = points.iter().map(|point| point.rounds.len()).min().unwrap_or(0);
    let differs = |left_out: &usize| {
        let points: Vec<_> = points.iter().map(|point| point.on_curve_without(*left_out)).collect();
        verdict(&points, promised).kind != kind
    };
    let against = (0..rounds).filter(|_| rounds > 1).find(differs)?;
    Some(format!(
        "without the runs of round {} of {rounds} the points would say something else; raise --duration",
        against + 1
    ))
}

#[cfg(test)]
mod tests {
    use plimsoll::core::DiskConfig;
    use plimsoll_figures::verdict::{CurvePoint, Kind};
    use plimsoll_files::setup::old_defaults;
    use plimsoll_sim::device::{DeviceSpec, LatencySpec, RateSpec};
    use plimsoll_sim::workload::{JobSpec, Load, SizeDist};
    use plimsoll_sim::world::{self, ClassSpec, SimDisk, WorldSpec};

    use super::*;
    use crate::experiment::tests_support::situation;

    const READS: &str = "[{name: reads, type: randread, shards: all, shard_info: {parallelism: 1, reqsize: 1MB}}]";

    #[test]
    fn products_and_their_limits() {
        let axes = [Axis::parse("parallelism=1,2").unwrap(), Axis::parse("reqsize=4k,1M,2M").unwrap()];
        let points = points_of(&axes).unwrap();
        let texts: Vec<String> = points.iter().map(|p| format!("{} {}", p[0].text, p[1].text)).collect();
        assert_eq!(texts, ["1 4k", "1 1M", "1 2M", "2 4k", "2 1M", "2 2M"]);
        assert_eq!(points_of(&[]).unwrap().len(), 1);
        let numbers: Vec<String> = (1..=200).map(|number: u32| number.to_string()).collect();
        let many = Axis::parse(&format!("parallelism={}", numbers.join(","))).unwrap();
        let other = Axis { name: "x".into(), ..many.clone() };
        assert!(points_of(&[many.clone(), other]).unwrap_err().contains("more than 1000 points"));
        assert!(points_of(&[many.clone(), many]).unwrap_err().contains("parallelism twice"));
    }

    /// They were two points of one name, or of two names.
    #[test]
    fn equal_values_are_refused() {
        for (axis, part) in [
            ("parallelism=1,2,1", "`1` and `1` are one value"),
            ("reads.reqsize=1M,4k,1024k", "`1M` and `1024k` are one value"),
            ("rate=100,100.0", "`100` and `100.0` are one value"),
            ("latency_goal=none,1,1", "`1` and `1` are one value"),
        ] {
            let refused = Axis::parse(axis).unwrap_err();
            assert!(refused.contains(part), "{axis}: {refused}");
        }
    }

    #[test]
    fn impossible_settings_are_refused_before_the_first_run() {
        for (axes, part) in [
            (&["batch=1,4"][..], "--sweep batch=4: job `reads`: `batch` has no effect without `rps` or `rate`"),
            (&["iov_count=1,3"], "a request of 1 MiB cannot be cut into 3 segments"),
            (&["reqsize=1M,4k", "iov_count=1,4"], "a request of 4 KiB cannot be cut into 4 segments"),
            (&["think_time=0,1ms", "rate=100"], "`think_time` has no effect beside `rps` or `rate`"),
            (&["think_time=0,1ms", "rps=100"], "`think_time` has no effect beside `rps` or `rate`"),
            (&["num_io_queues=1,2"], "2 I/O queues for 1 shards"),
            (&["shards=1,60000"], "60000 shards on"),
        ] {
            let axes: Vec<Axis> = axes.iter().map(|axis| Axis::parse(axis).unwrap()).collect();
            let no_run = &mut |what: &str, _: Option<u64>| panic!("{what}");
            let text = run(&situation(READS), &axes, &Control::default(), no_run).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    /// It failed after the points before it.
    #[test]
    fn a_request_longer_than_the_file_is_refused_before_the_first_run() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let mut real = situation(READS);
        real.options.storage = crate::test::Storage::File(file.path().to_owned());
        real.options.backend = None;
        let axes = [Axis::parse("reqsize=4k,16k").unwrap()];
        let no_run = &mut |what: &str, _: Option<u64>| panic!("{what}");
        let text = run(&real, &axes, &Control::default(), no_run).unwrap_err().to_string();
        assert!(text.contains("too few for one request of 16384 bytes of job `reads`"), "{text}");
    }

    #[test]
    fn old_defaults_are_a_plateau_that_the_verdict_finds() {
        // The null backend takes anything at once, so any limit seen is above the disk.
        let mut situation = situation(READS);
        (situation.choice.model, situation.options.duration_ns) = (Some(ModelChoice::OldDefaults), 100_000_000);
        let axes = [Axis::parse("parallelism=8,16,32").unwrap()];
        let report = run(&situation, &axes, &Control::default(), &mut |_, _| {}).unwrap();
        assert_eq!((report.points.len(), report.verdicts.len(), report.interrupted), (3, 1, false));
        for point in &report.points {
            // At most the old limit and the bucket's depth; less if the machine is slow.
            assert!(point.throughput_bytes_per_s < 8.5857e9 * 1.05, "{point:?}");
            assert!(point.capacity_used.unwrap() < 1.05);
        }
    }

    /// Simulates a device that serves 1 MiB in 0.49 ms, many at a time, below the given scheduler.
    fn simulated(config: DiskConfig, parallelism: u32) -> CurvePoint {
        let latency = LatencySpec { read_ns: 490_000.0, ..LatencySpec::default() };
        let rates = RateSpec { read_iops: 1e6, read_bytes_per_s: 16e9, ..RateSpec::default() };
        let device = DeviceSpec { latency, rates, ..DeviceSpec::default() };
        let sizes = SizeDist::Fixed(1 << 20);
        let job = JobSpec {
            name: "io".into(),
            class: "io".into(),
            load: Load::closed(parallelism),
            sizes,
            ..JobSpec::default()
        };
        let spec = WorldSpec {
            disks: vec![SimDisk::new(device, config)],
            classes: vec![ClassSpec::new("io", 100)],
            jobs: vec![job],
            warmup_ns: 20_000_000,
            duration_ns: 200_000_000,
            ..WorldSpec::default()
        };
        let report = world::run(&spec).unwrap();
        let (disk, class) = (&report.disks[0], &report.classes[0]);
        CurvePoint {
            parallelism: f64::from(parallelism),
            throughput: disk.iops,
            half_width: None,
            latency_ns: class.device.mean(),
            in_device: disk.mean_in_device,
        }
    }

    #[test]
    fn a_simulated_disk_under_old_defaults_holds_four_and_the_verdict_says_why() {
        let curve: Vec<CurvePoint> =
            [1, 2, 4, 8, 16].map(|parallelism| simulated(old_defaults::disk_config(), parallelism)).to_vec();
        let found = verdict(&curve, None);
        assert_eq!(found.kind, Kind::LimitedAbove, "{found:?} of {curve:?}");
        let last = curve.last().unwrap();
        assert!((last.throughput / 8188.0 - 1.0).abs() < 0.02 && (3.5..4.7).contains(&last.in_device), "{last:?}");
    }

    #[test]
    fn a_rate_is_of_requests_on_all_shards_whatever_the_order() {
        for order in [["rate=800", "batch=4", "shards=2"], ["shards=2", "batch=4", "rate=800"]] {
            let axes = order.map(|axis| Axis::parse(axis).unwrap());
            let settings: Vec<&Setting> = axes.iter().flat_map(|axis| &axis.settings).collect();
            let job = changed(&situation(READS), &settings, "").unwrap().options.jobs.jobs.remove(0);
            assert_eq!((job.requests_per_s_per_shard, job.batch), (Some(100.0), 4), "{order:?}");
        }
    }

    #[test]
    fn what_cannot_be_set_is_refused_before_the_first_run() {
        let situation = situation(READS);
        for (axis, part) in
            [("nobody.parallelism=1", "no job `nobody`"), ("shares=1,5000000", "shares"), ("reqsize=1k,2G", "reqsize")]
        {
            let refused = match Axis::parse(axis) {
                Err(why) => why,
                Ok(axis) => run(&situation, &[axis], &Control::default(), &mut |what, _| panic!("{what}"))
                    .unwrap_err()
                    .to_string(),
            };
            assert!(refused.contains(part), "{axis}: {refused}");
        }
    }

    /// Returns the verdict on a curve of the rates at parallelism 1, 2, 4, ..., each measured in rounds that deviate by
    /// these parts.
    fn judged(rates: &[f64], rounds: &[&[f64]], foreign_pct: f64) -> Verdict {
        let point = |(at, rate): (usize, &f64)| {
            let round = |off: &f64| crate::experiment::Round {
                throughput_bytes_per_s: rate * (1.0 + off),
                device_latency_mean_us: 100.0 * f64::from(1 << at).max(4.0),
                in_device: 4.0,
                intervals: vec![
                    crate::report::IntervalReport {
                        length_s: 0.1,
                        bytes: (rate * (1.0 + off) / 10.0) as u64,
                        ..Default::default()
                    };
                    2
                ],
                ..Default::default()
            };
            let offs = rounds.get(at).or(rounds.last()).copied().unwrap_or(&[0.0]);
            let sums = Sums::of_rounds(offs.iter().map(round).collect(), foreign_pct);
            let point = sums.point(&situation(READS), vec![("parallelism".to_owned(), at.to_string())]);
            let device_latency_mean_us = point.rounds[0].device_latency_mean_us;
            Point { parallelism: 1 << at, device_latency_mean_us, ..point }
        };
        let points: Vec<Point> = rates.iter().enumerate().map(point).collect();
        judge(&points.iter().collect::<Vec<_>>(), None)
    }

    #[test]
    fn a_verdict_follows_from_the_intervals_of_its_points() {
        const FULL: [f64; 6] = [10e6, 20e6, 40e6, 40e6, 40e6, 40e6];
        const DIP: [f64; 5] = [10e6, 20e6, 40e6, 40e6, 30e6];
        const LITTLE: [f64; 5] = [0.01, -0.01, 0.0, 0.01, -0.01];
        const MUCH: [f64; 5] = [0.5, -0.4, 0.3, -0.5, 0.1];
        // Rates of the points, deviation of the rounds at each, other programs' part, expected verdict and text.
        type Case<'a> = (&'a [f64], &'a [&'a [f64]], f64, Kind, &'a str);
        let cases: [Case<'_>; 5] = [
            (&FULL, &[&LITTLE], 0.0, Kind::Saturated, "saturated"),
            (&FULL, &[&LITTLE], 40.0, Kind::Unclear, "40 % of the most that the device did"),
            (&FULL, &[&MUCH], 0.0, Kind::Unclear, "the throughput at parallelism=0 is known to ± "),
            // A dip in all five rounds is no chance; a dip that a single round makes is.
            (&DIP, &[&LITTLE], 0.0, Kind::Falls, "by more than chance"),
            (
                &FULL,
                &[&LITTLE, &LITTLE, &LITTLE, &LITTLE, &LITTLE, &[0.0, -0.7, 0.0, 0.0, 0.0]],
                0.0,
                Kind::Unclear,
                "not clear",
            ),
        ];
        for (rates, rounds, foreign_pct, kind, part) in cases {
            let found = judged(rates, rounds, foreign_pct);
            assert!(found.kind == kind && found.sentence.contains(part), "{rates:?} {rounds:?}: {found:?}");
            let last = rates.len() - 1;
            let scale = format!("parallelism here is of all jobs and shards: {} at parallelism={last}", 1 << last);
            assert!(found.evidence.contains(&scale), "{found:?}");
        }
    }

    #[test]
    fn rounds_share_the_duration_and_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let ours = "[{name: r, type: randread, shards: all, data_size: 1MB, \
                     shard_info: {parallelism: 1, reqsize: 4kB}}]";
        let mut real = situation(ours);
        real.options.storage = crate::test::Storage::Directory(directory.path().to_owned());
        (real.options.backend, real.options.duration_ns) = (None, 500_000_000);
        let axes = [Axis::parse("parallelism=1,2").unwrap()];
        let mut runs = 0;
        let count = &mut |what: &str, _: Option<u64>| runs += u32::from(what.contains("running"));
        let report = run(&real, &axes, &Control::default(), count).unwrap();
        assert_eq!((runs, report.written_bytes), (10, 1 << 20), "filled once, used ten times");
        assert!(report.points.iter().all(|point| point.rounds.len() == 5 && (0.4..5.0).contains(&point.elapsed_s)));
        assert_eq!(report.made.as_ref().unwrap().duration_s, Some(0.5));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<SweepReport>(&json).unwrap().points.len(), 2);
    }
}
