//! The figures of results, in the long form of a depot.
//!
//! **Why.** The JSON of each command has a form of its own, made for people who look at one result.
//!
//! **How.** [`read`] recognises the result like [`crate::report_page`], and uses the reader of the result's own
//! command.
//!
//! **Limits.** A test gives the figures of its jobs over all shards, tune the four figures and the idle latencies.
//!
//! **Example.** `iops` of the job `reads`, in `1/s`, with the 95 % interval of its intervals.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use plimsoll_observe::depot::figures::Figure;
use serde_json::Value;

use crate::compare::CompareReport;
use crate::experiment::dual::DualReport;
use crate::experiment::find_rate::RateReport;
use crate::experiment::matrix::MatrixReport;
use crate::experiment::point::Point;
use crate::experiment::sweep::SweepReport;
use crate::instance::figures::kind as kind_of_figure;
use crate::instance::{self, Card};
use crate::report::{Circumstances, IntervalReport, JobReport, Latency, Place, TestReport, half_width};
use crate::report_page::json::{damaged, experiment, kind, tunes};
use crate::report_page::{Kind, sim};
use crate::sim::form::RunForm;
use crate::sim::report::sweep_text;
use crate::tune::{TuneReport, Unit};

/// The figures of a result, and the host and time that it states.
#[derive(Default)]
pub(super) struct Found {
    pub(super) host: Option<String>,
    /// Microseconds since 1970.
    pub(super) at_us: Option<i64>,
    pub(super) figures: Vec<Figure>,
}

impl Found {
    fn of(place: Option<&Place>, figures: Vec<Figure>) -> Found {
        let at_us = place.and_then(|place| at_us("%F %T UTC", &place.date));
        Found { host: place.map(|place| place.host.clone()), at_us, figures }
    }
}

/// Reads a result; `None` for JSON that may be another program's.
pub(super) fn read(file: &str, text: &str, value: &Value) -> Option<Result<Found, String>> {
    let found = kind(value).transpose()?.and_then(|kind| match kind {
        Kind::Test => TestReport::from_json(text).map(of_test).map_err(|error| error.to_string()),
        Kind::Sweep => experiment("sweep", text).map(|report: SweepReport| {
            let figures = report.points.iter().flat_map(|point| of_point(&sweep_text(&point.settings), point));
            Found::of(place(report.made.as_ref()), figures.collect())
        }),
        Kind::Matrix => experiment("matrix", text).map(|report: MatrixReport| {
            let figures = report.rows.iter().flat_map(|row| of_point(&row.name, &row.point));
            Found::of(place(report.made.as_ref()), figures.collect())
        }),
        Kind::Dual => DualReport::from_json(text).map_err(|error| damaged("dual run", &error)).map(|report| {
            let figures = report.runs.iter().flat_map(|run| of_point(run.name(), &run.point));
            Found::of(place(report.made.as_ref()), figures.collect())
        }),
        Kind::Search => experiment("search", text).map(of_search),
        Kind::Tune => tunes(value).map(|reports| of_tunes(&reports)),
        Kind::Card => Card::from_json(file, text).map(|card| of_card(&card)).map_err(|error| error.to_string()),
        Kind::Compare => CompareReport::from_json(text).map(|report| of_comparison(&report)),
        Kind::Sim => sim::runs(value)
            .map(|(runs, _)| Found { figures: runs.iter().flat_map(of_run).collect(), ..Found::default() }),
        other => Err(format!("a {} has no figures that a depot takes", other.words())),
    });
    Some(found)
}

/// Returns the microseconds since 1970 of a time in UTC in this form of strptime.
fn at_us(form: &str, text: &str) -> Option<i64> {
    let at = DateTime::strptime(form, text).ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(at.timestamp().as_microsecond())
}

fn place(made: Option<&Circumstances>) -> Option<&Place> {
    made?.place.as_ref()
}

fn figure(command: &'static str, what: &str, metric: &str, unit: &'static str, value: f64) -> Figure {
    let (what, metric) = (what.to_owned(), metric.to_owned());
    Figure { command, what, class: None, metric, unit, value, interval: None }
}

fn around(value: f64, half_width: f64) -> [f64; 2] {
    [value - half_width, value + half_width]
}

fn of_latency(what: &str, latency: &Latency) -> Vec<Figure> {
    let Latency { average_us, p50_us, p95_us, p99_us, p99_9_us, p99_99_us, max_us } = *latency;
    let named = [
        ("latency_average_us", average_us),
        ("latency_p50_us", p50_us),
        ("latency_p95_us", p95_us),
        ("latency_p99_us", p99_us),
        ("latency_p99_9_us", p99_9_us),
        ("latency_p99_99_us", p99_99_us),
        ("latency_max_us", max_us),
    ];
    named.map(|(metric, value)| figure("test", what, metric, "us", value)).to_vec()
}

fn of_test(report: TestReport) -> Found {
    let figures = report.jobs.iter().flat_map(of_job);
    Found::of(place(Some(&report.made)), figures.collect())
}

fn of_job(job: &JobReport) -> Vec<Figure> {
    let rate = |metric: &str, unit: &'static str, value: f64, count: fn(&IntervalReport) -> u64| {
        let half_width = half_width(std::iter::once(job.intervals.as_slice()), count);
        let interval = half_width.map(|half_width| around(value, half_width));
        Figure { interval, ..figure("test", &job.name, metric, unit, value) }
    };
    let mut figures = vec![
        rate("iops", "1/s", job.iops, |it| it.requests),
        rate("throughput_bytes_per_s", "bytes/s", job.throughput_bytes_per_s, |it| it.bytes),
        figure("test", &job.name, "errors", "count", job.errors as f64),
    ];
    if job.requests > 0 {
        figures.extend(of_latency(&job.name, &job.latency));
    }
    figures.iter_mut().for_each(|figure| figure.class = Some(job.class.clone()));
    figures
}

fn of_point(what: &str, point: &Point) -> Vec<Figure> {
    let value = point.throughput_bytes_per_s;
    let interval = point.throughput_half_width_bytes_per_s.map(|half_width| around(value, half_width));
    let mut figures = vec![
        figure("test", what, "iops", "1/s", point.iops),
        Figure { interval, ..figure("test", what, "throughput_bytes_per_s", "bytes/s", value) },
        figure("test", what, "errors", "count", point.errors as f64),
    ];
    if point.iops > 0.0 {
        figures.extend(of_latency(what, &point.latency));
    }
    figures
}

fn of_search(report: RateReport) -> Found {
    let of = |metric, value| figure("test", &report.job, metric, "1/s", value);
    let mut figures = vec![of("closed_loop_iops", report.closed_loop_iops)];
    figures.extend(report.found.rate.map(|rate| of("rate", rate)));
    Found::of(report.made.place.as_ref(), figures)
}

pub(super) fn of_tunes(reports: &[TuneReport]) -> Found {
    let figures = reports.iter().flat_map(|report| {
        let what = &report.site.mountpoint;
        let measured = report.figures().into_iter().filter_map(|(name, _, measured)| Some((name, measured.as_ref()?)));
        let rates = measured.map(move |(name, measured)| {
            let unit = match measured.unit {
                Unit::OperationsPerS => "1/s",
                Unit::BytesPerS => "bytes/s",
            };
            let interval = measured.ci95_pct.map(|percent| around(measured.value, measured.value * percent / 100.0));
            Figure { interval, ..figure("tune", what, name, unit, measured.value) }
        });
        rates.chain([figure("tune", what, "doubtful_figures", "count", report.doubts().len() as f64)])
    });
    Found::of(reports.first().and_then(|report| report.site.place.as_ref()), figures.collect())
}

fn of_run(run: &RunForm) -> Vec<Figure> {
    let changes: String = run.changes().map(|change| format!(", {change}")).collect();
    let what = format!("{}, seed {}{changes}", run.name, run.seed);
    let measured = run.figures.iter().flatten().filter_map(|it| Some((&it.name, it.value?)));
    measured.map(|(name, value)| figure("sim run", &what, name, "", value)).collect()
}

fn of_card(card: &Card) -> Found {
    let of_key = |(key, measured): (&String, &instance::Figure)| {
        let unit = kind_of_figure(key).map_or("", |kind| kind.unit.name());
        let interval = measured.interval();
        Figure { interval, ..figure("instance card", &card.name, key, unit, measured.value) }
    };
    // A card dates from a day, a month or a year: the first of its days.
    let date = &card.origin.date;
    let at_us =
        at_us("%F %T", &format!("{date}{} 00:00:00", "-01-01".get(date.len().saturating_sub(4)..).unwrap_or("")));
    Found { host: Some(card.name.clone()), at_us, figures: card.figures.iter().map(of_key).collect() }
}

fn of_comparison(report: &CompareReport) -> Found {
    let of = |it: &crate::compare::Comparison| {
        let what = format!("{}, {} against {}", it.job, side(report, it.side), side(report, 'A'));
        let metric = format!("{}_change_pct", it.metric);
        let interval = it.change_low_pct.zip(it.change_high_pct).map(|(low, high)| [low, high]);
        Some(Figure { interval, ..figure("compare", &what, &metric, "%", it.change_pct?) })
    };
    Found { figures: report.comparisons.iter().filter_map(of).collect(), ..Found::default() }
}

fn side(report: &CompareReport, letter: char) -> String {
    let side = report.sides.iter().find(|side| side.side == letter);
    side.map_or_else(|| letter.to_string(), |side| side.files.join(","))
}
