//! Experiments and runs as pictures, and as one page.
//!
//! **Why.** A picture shows at a glance that throughput and latency stand still together, or the second at which a disk
//! fell behind.
//!
//! **How.** [`of_sweep`] draws throughput and latency (of requests, and in the device) against the load of each curve,
//! the queue in the device, and whether all three agree; [`of_sweeps`] draws several sweeps in one picture.
//! [`of_report`] draws each job over time, [`of_search`] the rates that were tried. [`page()`] combines named pictures
//! and texts into one HTML page.
//!
//! **Limits.** A sweep draws its points over parallelism, even if another setting was swept.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::experiment::pictures::of_sweep;
//! use plimsoll_measure::experiment::sweep::SweepReport;
//! let empty = SweepReport {
//!     made: None,
//!     axes: Vec::new(),
//!     points: Vec::new(),
//!     verdicts: Vec::new(),
//!     interrupted: false,
//!     written_bytes: 0,
//! };
//! assert!(of_sweep(&empty).is_empty());
//! ```

use plimsoll_figures::units::{format_bytes_binary, format_iops, format_throughput_decimal};
use plimsoll_show::answer::Answer;
use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::plot::{Axis, Chart, Layer, Point, Unit};
use plimsoll_show::table::Table;

use super::Point as Run;
use super::find_rate::RateReport;
use super::sweep::SweepReport;
use super::words::us;
use crate::by_key;
use crate::report::{IntervalReport, JobReport, TestReport};

/// A picture: name (usable as a file name), heading, description and charts.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Name, such as `sweep`.
    pub name: &'static str,
    pub heading: &'static str,
    pub words: String,
    pub charts: Vec<Chart>,
}

impl From<Picture> for Section {
    fn from(picture: Picture) -> Section {
        Section::new(picture.heading, [Block::Text(picture.words), Block::Picture(picture.charts)])
    }
}

/// Draws throughput, latency and queue of a sweep; nothing if it has no points.
pub fn of_sweep(report: &SweepReport) -> Vec<Picture> {
    let verdicts = report.verdicts.iter().map(|found| found.verdict.sentence.clone());
    let words = verdicts.collect::<Vec<_>>().join(". ");
    of_curves(&curves("", report), words)
}

/// Draws several sweeps, each with its name, in one picture; nothing if they have no points.
pub fn of_sweeps(reports: &[(&str, &SweepReport)]) -> Vec<Picture> {
    let curves: Vec<Curve> = reports.iter().flat_map(|(name, report)| curves(name, report)).collect();
    let words = "The curves of all sweeps. Where the queue over the latency is the rate of the pieces, all three were \
                 measured well (Little's law).";
    of_curves(&curves, words.to_owned())
}

type Curve<'a> = (String, Vec<&'a Run>);

fn of_curves(curves: &[Curve], words: String) -> Vec<Picture> {
    if curves.iter().all(|(_, points)| points.is_empty()) {
        return Vec::new();
    }
    let layers = |what: &str, dashed: bool, value: fn(&Run) -> f64| -> Vec<Layer> {
        let of = |(name, points): &Curve| {
            let name = [what, name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
            Layer::dotted(&name, points.iter().map(|run| (run.parallelism as f64, value(run))).collect(), dashed)
        };
        curves.iter().flat_map(of).collect()
    };

    let load = || Axis::log2("parallelism (requests asked for at once)", Unit::None);
    let latencies = [
        layers("requests, mean", false, |run| run.latency.average_us * 1e3),
        layers("requests, 99 of 100", false, |run| run.latency.p99_us * 1e3),
        layers("in the device, mean", true, |run| run.device_latency_mean_us * 1e3),
    ];
    let little = [
        layers("pieces", false, |run| run.pieces_per_s),
        layers("queue / latency", true, |run| run.in_device / (run.device_latency_mean_us / 1e6).max(1e-9)),
    ];
    let chart = |title: &str, y: Axis, layers: Vec<Layer>| Chart::new(title, load(), y, layers);

    let charts = vec![
        chart(
            "Throughput",
            Axis::linear("throughput", Unit::BytesPerSecond),
            layers("", false, |run| run.throughput_bytes_per_s),
        ),
        chart("Latency", Axis::log10("latency", Unit::Nanoseconds), latencies.concat()),
        chart("Queue in the device", Axis::linear("pieces", Unit::None), layers("", false, |run| run.in_device)),
        chart("Little's law in the device", Axis::linear("pieces a second", Unit::PerSecond), little.concat()),
    ];
    vec![Picture { name: "sweep", heading: "Against parallelism", words, charts }]
}

/// Groups the points that differ only in their load. Each group is named by `of` and its common settings.
fn curves<'a>(of: &str, report: &'a SweepReport) -> Vec<Curve<'a>> {
    let named = |run: &'a Run| {
        let is_load = |key: &str| matches!(key.rsplit('.').next(), Some("parallelism" | "iodepth" | "shards" | "smp"));
        let common = run.settings.iter().filter(|(key, _)| !is_load(key)).map(|(key, value)| format!("{key}={value}"));
        let parts = (!of.is_empty()).then(|| of.to_owned()).into_iter().chain(common);
        (parts.collect::<Vec<_>>().join(" "), run)
    };
    by_key(report.points.iter().map(named))
}

/// Draws rate and latency of each job over time, from the intervals of a run; nothing if it has none.
pub fn of_report(report: &TestReport) -> Vec<Picture> {
    if report.jobs.iter().all(|job| job.intervals.is_empty()) {
        return Vec::new();
    }

    let lines = |what: &str, value: fn(&IntervalReport) -> Option<f64>| -> Vec<Layer> {
        let of = |job: &JobReport| {
            let name = if what.is_empty() { job.name.clone() } else { format!("{}, {what}", job.name) };
            let mut end_ns = begin_ns(&job.intervals);
            let place = |interval: &IntervalReport| {
                let length_ns = interval.length_s * 1e9;
                let middle_ns = end_ns + length_ns / 2.0;
                end_ns += length_ns;
                Some((middle_ns, value(interval)?))
            };
            let points = job.intervals.iter().filter(|i| i.length_s > 0.0).filter_map(place).collect();
            Layer::Line { name, points, dashed: what == "longest" }
        };
        report.jobs.iter().map(of).collect()
    };

    let time = || Axis::linear("time", Unit::Nanoseconds);
    let mean = |i: &IntervalReport| (i.requests > 0).then_some(i.latency_mean_us * 1e3);
    let longest = |i: &IntervalReport| (i.latency_max_us > 0.0).then_some(i.latency_max_us * 1e3);
    let charts = vec![
        Chart::new(
            "Throughput over time",
            time(),
            Axis::linear("throughput", Unit::BytesPerSecond),
            lines("", |i| Some(i.bytes as f64 / i.length_s)),
        ),
        Chart::new(
            "Requests over time",
            time(),
            Axis::linear("requests a second", Unit::PerSecond),
            lines("", |i| Some(i.requests as f64 / i.length_s)),
        ),
        Chart::new(
            "Latency over time",
            time(),
            Axis::log10("latency", Unit::Nanoseconds),
            [lines("mean", mean), lines("longest", longest)].concat(),
        ),
    ];

    let words = "What each job did in each interval of the measured window.".to_owned();
    vec![Picture { name: "time", heading: "Over time", words, charts }]
}

/// Returns when a job begins in its window, in ns: before, its intervals have no length, and of the next it has the rest.
fn begin_ns(intervals: &[IntervalReport]) -> f64 {
    let late = intervals.iter().take_while(|interval| interval.length_s <= 0.0).count();
    let whole_s = intervals.iter().map(|interval| interval.length_s).fold(0.0, f64::max);
    let first_s = intervals.get(late).map_or(whole_s, |interval| interval.length_s);
    if late > 0 { ((late + 1) as f64 * whole_s - first_s) * 1e9 } else { 0.0 }
}

pub fn of_search(report: &RateReport) -> Vec<Picture> {
    let of = |name: &str, passed: bool| Layer::Points {
        name: name.to_owned(),
        points: report
            .found
            .trials
            .iter()
            .filter(|trial| trial.passed == passed)
            .map(|trial| Point::new(trial.rate, trial.latency_ns))
            .collect(),
    };
    if report.found.trials.is_empty() {
        return Vec::new();
    }

    let mut layers = vec![
        of("within the bound", true),
        of("not within it", false),
        Layer::HorizontalMark { y: report.bound_ns as f64, label: report.goal.clone() },
    ];
    layers.extend(report.found.rate.map(|x| Layer::VerticalMark { x, label: "highest rate".to_owned() }));

    let chart = Chart::new(
        format!("Latency of {} by its rate", report.job),
        Axis::linear("requests a second", Unit::PerSecond),
        Axis::log10("latency", Unit::Nanoseconds),
        layers,
    );
    let words = "Each point is a run of an open loop.".to_owned();
    vec![Picture { name: "rate", heading: "Latency against rate", words, charts: vec![chart] }]
}

/// Returns a table with a row for each job of a run.
pub fn table(report: &TestReport) -> Table {
    let headers = ["job", "type", "size", "IOPS", "rate", "mean", "p50", "p99", "p99.9", "depth"];
    let rows = report.jobs.iter().map(|job| {
        [
            job.name.clone(),
            job.kind.clone(),
            format_bytes_binary(job.request_bytes),
            format_iops(job.iops),
            format_throughput_decimal(job.throughput_bytes_per_s),
            us(job.latency.average_us),
            us(job.latency.p50_us),
            us(job.latency.p99_us),
            us(job.latency.p99_9_us),
            format!("{:.1}", job.device_depth.average),
        ]
    });
    Table::new("", headers, rows)
}

pub fn page(title: &str, answer: Option<Answer>, remarks: &[String], table: Table, pictures: &[Picture]) -> String {
    page::html(title, &sections(answer, remarks, table, pictures))
}

pub fn sections(answer: Option<Answer>, remarks: &[String], table: Table, pictures: &[Picture]) -> Vec<Section> {
    let remarks = remarks.iter().cloned().map(Block::Text);
    let mut blocks: Vec<Block> = answer.into_iter().map(Block::Answer).chain(remarks).collect();
    blocks.push(Block::Table(table));
    let mut sections = vec![Section { heading: "Result".to_owned(), blocks }];
    sections.extend(pictures.iter().cloned().map(Section::from));
    sections
}

#[cfg(test)]
mod tests {
    use plimsoll_show::plot;

    use super::*;
    use crate::experiment::find_rate::{Found, Trial};
    use crate::load::RunResult;
    use crate::report::Circumstances;

    fn report() -> SweepReport {
        let point = |parallelism: u64, reqsize: &str| Run {
            settings: vec![("parallelism".into(), parallelism.to_string()), ("reqsize".into(), reqsize.into())],
            parallelism,
            throughput_bytes_per_s: 1e9,
            in_device: 4.0,
            device_latency_mean_us: 490.0,
            ..Run::default()
        };
        let points = [1, 2, 4].into_iter().flat_map(|n| [point(n, "4k"), point(n, "<1M>")]).collect();
        SweepReport {
            made: None,
            axes: vec!["parallelism".into(), "reqsize".into()],
            points,
            verdicts: Vec::new(),
            interrupted: false,
            written_bytes: 0,
        }
    }

    #[test]
    fn a_sweep_has_a_line_for_each_curve() {
        let pictures = of_sweep(&report());
        let layers: Vec<usize> = pictures[0].charts.iter().map(|chart| chart.layers.len()).collect();
        assert_eq!(layers, [4, 12, 4, 8]);
        let svg = plot::svg("a sweep", &pictures[0].charts);
        assert!(svg.contains("reqsize=&lt;1M&gt;") && !svg.contains("NaN"));
        let page = page("sweep", None, &["said".into()], Table::default(), &pictures);
        assert!(page.contains("Against parallelism") && page.contains("said"));
    }

    #[test]
    fn two_sweeps_stand_in_one_picture() {
        let report = report();
        let pictures = of_sweeps(&[("old.json", &report), ("new.json", &report)]);
        let svg = plot::svg("both", &pictures[0].charts);
        for name in ["old.json reqsize=4k", "new.json reqsize=4k", "queue / latency, new.json reqsize=4k"] {
            assert!(svg.contains(name), "{name}: {svg}");
        }
        assert!(of_sweeps(&[]).is_empty());
    }

    #[test]
    fn a_job_that_begins_late_is_drawn_at_its_time() {
        let begin_ns = |lengths_s: &[f64]| {
            let interval = |&length_s: &f64| IntervalReport { length_s, ..IntervalReport::default() };
            super::begin_ns(&lengths_s.iter().map(interval).collect::<Vec<_>>())
        };
        for (lengths_s, expected_ns) in [
            (&[0.0, 0.0, 0.5, 1.0, 0.25][..], 2.5e9),
            (&[0.0, 1.0, 1.0], 1e9),
            (&[1.0, 1.0, 0.25], 0.0),
            (&[0.0, 0.0], 0.0),
            (&[], 0.0),
        ] {
            assert_eq!(begin_ns(lengths_s), expected_ns, "{lengths_s:?}");
        }
    }

    #[test]
    fn a_search_shows_its_bound() {
        let trial = |rate, passed| Trial { rate, achieved: rate, latency_ns: 1e6, passed };
        let trials = vec![trial(100.0, true), trial(200.0, false)];
        let found = Found { rate: Some(100.0), failed_rate: Some(200.0), confirmed: true, trials };
        let mut report = RateReport {
            made: Circumstances::of_run(&RunResult::default()),
            job: "reads".into(),
            goal: "p99=2ms".into(),
            bound_ns: 2_000_000,
            closed_loop_iops: 1.0,
            rate_min: 0.1,
            found,
            interrupted: false,
            written_bytes: 0,
        };
        assert!(plot::svg("", &of_search(&report)[0].charts).contains("p99=2ms"));
        report.found.trials.clear();
        assert!(of_search(&report).is_empty());
    }
}
