//! Experiments of `plimsoll test`: sweeps, the search for a rate, the matrix, and dual runs.

use std::path::Path;

use plimsoll_figures::units::{format_bytes_binary, format_iops, format_throughput_decimal};
use plimsoll_files::bounded::{RESULT_MAX_BYTES, read_text};
use plimsoll_files::rbd::{self, RbdRun};
use plimsoll_measure::experiment::dual::{self, DualReport, DualRun, Iostat};
use plimsoll_measure::experiment::find_rate::{self, Goal, RateReport, SearchOptions};
use plimsoll_measure::experiment::matrix::{self, MatrixReport};
use plimsoll_measure::experiment::pictures::{self, Picture};
use plimsoll_measure::experiment::sweep::{self, Axis, SweepReport};
use plimsoll_measure::experiment::words::{self, Said};
use plimsoll_measure::experiment::{ExperimentError, Point, Situation, rounds_of};
use plimsoll_measure::load::Control;
use plimsoll_measure::report::Circumstances;
use plimsoll_measure::test::TestOptions;
use plimsoll_show::table::{Column, Table, fixed};
use serde_json::{Value, json};

use super::arguments::{Checked, TestArguments, check_format};
use super::outputs::Outputs;
use super::{Steps, scratch_words};
use crate::failure::{Failure, Outcome, as_json};
use crate::flags::TestFormat;
use crate::screen;

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Failure {
        let message = error.to_string();
        match error {
            ExperimentError::Test(error) => error.into(),
            ExperimentError::Scratch(error) => error.into(),
            ExperimentError::Jobs(error) => error.into(),
            ExperimentError::Silent { .. } => Failure::Machine(message),
            _ => Failure::Input(message),
        }
    }
}

/// A result in every form that a user may request.
#[derive(Default)]
struct Shown {
    title: String,
    said: Said,
    made: Option<Circumstances>,
    /// Another table at the end, with its caption.
    beside: Option<Table>,
    csv: Table,
    json: Value,
    pictures: Vec<Picture>,
    /// Bytes written, failed requests, and whether the result is a finding.
    written_bytes: u64,
    errors: u64,
    is_finding: bool,
    interrupted: bool,
}

pub(super) enum Experiment<'a> {
    Sweep(&'a [Axis]),
    FindRate(&'a Goal),
    Matrix { data_bytes: u64 },
    Dual { rbd: Option<Vec<RbdRun>> },
}

impl<'a> Experiment<'a> {
    /// Returns the requested experiment, or `None` for a single run.
    pub(super) fn asked(arguments: &'a TestArguments, checked: &'a Checked) -> Result<Option<Experiment<'a>>, Failure> {
        let rbd = arguments.rbd.as_deref().map(read_rbd).transpose()?;
        Ok(if !arguments.sweep.is_empty() {
            Some(Experiment::Sweep(&arguments.sweep))
        } else if let Some(goal) = &checked.goal {
            Some(Experiment::FindRate(goal))
        } else if arguments.matrix {
            Some(Experiment::Matrix { data_bytes: arguments.data_size.unwrap_or(matrix::DEFAULT_DATA_BYTES) })
        } else {
            arguments.dual.then_some(Experiment::Dual { rbd })
        })
    }

    /// Returns the expected time of all runs for each stage of the job file, in nanoseconds. For a search, assumes the
    /// usual number of runs.
    pub(super) fn expected_ns(&self, options: &TestOptions) -> u64 {
        let TestOptions { warmup_ns, duration_ns, .. } = *options;
        let (runs, rounds) = match self {
            Experiment::Sweep(axes) => {
                (sweep::points_of(axes).map_or(0, |points| points.len()), rounds_of(duration_ns))
            }
            Experiment::Dual { .. } => (2, rounds_of(duration_ns)),
            Experiment::FindRate(_) => (find_rate::RUNS_USUAL, 1),
            Experiment::Matrix { .. } => (matrix::ROWS.len(), 1),
        };
        let warmup_ns = if let Experiment::FindRate(goal) = self { goal.warmup_ns(options) } else { warmup_ns };
        warmup_ns.saturating_mul(rounds).saturating_add(duration_ns).saturating_mul(runs as u64)
    }

    pub(super) fn run(
        &self,
        situation: &Situation,
        control: &Control,
        format: TestFormat,
        outputs: &Outputs,
        steps: &mut Steps<'_>,
    ) -> Result<Outcome, Failure> {
        let on_step = &mut |what: &str, expected_ns: Option<u64>| steps.next(what, expected_ns);
        let result = match self {
            Experiment::Sweep(axes) => sweep::run(situation, axes, control, on_step).map(|report| of_sweep(&report)),
            Experiment::FindRate(goal) => {
                let options = SearchOptions::default();
                find_rate::run(situation, goal, &options, control, on_step).map(|report| of_search(&report))
            }
            Experiment::Matrix { data_bytes } => {
                matrix::run(situation, *data_bytes, control, on_step).map(|report| of_matrix(&report))
            }
            Experiment::Dual { rbd } => {
                dual::run(situation, control, on_step).map(|report| of_dual(&report, rbd.as_deref()))
            }
        };

        steps.end();
        let shown = match result {
            Err(ExperimentError::Test(error @ plimsoll_measure::test::TestError::Interrupted)) => {
                screen::note(&format!("{error}; {}", scratch_words(situation.options.keep_files)));
                return Ok(Outcome::Interrupted);
            }
            result => result?,
        };

        let outcome = show(&shown, format, outputs)?;
        Ok(if control.stop.is_asked() { Outcome::Interrupted } else { outcome })
    }
}

/// Prints the runs of the `--rbd` file, without running jobs.
pub(super) fn rbd_alone(path: &Path, arguments: &TestArguments) -> Result<Outcome, Failure> {
    let pictures = &arguments.pictures;
    let of_runs = [
        ("a job file", arguments.conf.is_some()),
        ("--page", pictures.page.page.is_some()),
        ("--pictures", pictures.pictures.is_some()),
        ("--trace", arguments.trace.is_some()),
    ];
    if let Some((what, _)) = of_runs.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::Input(format!("--rbd alone runs nothing: add --dual, or leave out {what}")));
    }
    check_format(arguments.format)?;

    let runs = read_rbd(path)?;
    let text = match arguments.format {
        TestFormat::Csv => rbd_table(&runs).to_csv(),
        TestFormat::Table => screen::show(&rbd_table(&runs)) + "\n",
        _ => as_json(&json!({ "rbd": runs }))?,
    };
    screen::print(&text)?;
    Ok(Outcome::Done)
}

fn show(shown: &Shown, format: TestFormat, outputs: &Outputs) -> Result<Outcome, Failure> {
    // Write the files first: the reader of stdout may close it at any time. Report their errors after the result.
    let made = shown.made.iter().flat_map(Circumstances::sentences);
    let remarks: Vec<String> = made.chain(shown.said.remarks.iter().cloned()).collect();
    let Said { answer, table: figures, .. } = shown.said.clone();
    let written = outputs.write(&shown.title, answer, &remarks, figures, || shown.pictures.clone());

    let text = match format {
        TestFormat::Csv => shown.csv.to_csv(),
        TestFormat::Table => table(shown),
        _ => as_json(&shown.json)?,
    };
    screen::print_if_open(&text)?;
    written?;

    if shown.errors > 0 {
        screen::error(&format!(
            "{} requests failed or read wrong data: run the job by itself to see why",
            shown.errors
        ));
    }

    if shown.interrupted {
        let bytes = format_bytes_binary(shown.written_bytes);
        screen::note(&format!("it ended before its last run ({bytes} written): the result is of the runs until then"));
    }
    Ok(if shown.errors > 0 || shown.is_finding { Outcome::Finding } else { Outcome::Done })
}

fn table(shown: &Shown) -> String {
    let mut text = shown.said.answer.as_ref().map_or_else(String::new, screen::answer);
    text.push_str(&screen::show(&shown.said.table));
    for remark in &shown.said.remarks {
        text.push_str("\n\n");
        text.push_str(&screen::wrap(remark));
    }
    if let Some(table) = &shown.beside {
        text.push_str(&format!("\n\n{}\n{}", table.caption, screen::show(table)));
    }
    text.push('\n');
    text
}

const POINT: [Column<Point>; 9] = [
    ("parallelism", |it| it.parallelism.to_string()),
    ("throughput_bytes_per_s", |it| fixed(it.throughput_bytes_per_s, 0)),
    ("iops", |it| fixed(it.iops, 1)),
    ("latency_average_us", |it| fixed(it.latency.average_us, 2)),
    ("latency_p99_us", |it| fixed(it.latency.p99_us, 2)),
    ("in_device", |it| fixed(it.in_device, 3)),
    ("device_latency_mean_us", |it| fixed(it.device_latency_mean_us, 2)),
    ("little_ratio", |it| fixed(it.little_ratio(), 3)),
    ("errors", |it| it.errors.to_string()),
];

const IOSTAT: [Column<Iostat>; 5] = [
    ("reads_per_s", |it| fixed(it.reads_per_s, 1)),
    ("writes_per_s", |it| fixed(it.writes_per_s, 1)),
    ("await_ms", |it| fixed(it.await_ms, 3)),
    ("queue", |it| fixed(it.queue, 3)),
    ("util_pct", |it| fixed(it.util_pct, 3)),
];

fn names<R, const N: usize>(columns: [Column<R>; N]) -> [String; N] {
    columns.map(|(name, _)| name.to_owned())
}

fn cells<R, const N: usize>(columns: [Column<R>; N], of: Option<&R>) -> [String; N] {
    columns.map(|(_, cell)| of.map_or_else(String::new, cell))
}

fn of_sweep(report: &SweepReport) -> Shown {
    let axes = report.axes.iter().map(|axis| format!("set_{axis}"));
    let row = |point: &Point| {
        let settings = point.settings.iter().map(|(_, value)| value.clone());
        settings.chain(cells(POINT, Some(point))).collect::<Vec<_>>()
    };
    let mut json = serde_json::to_value(report).unwrap_or_default();
    // The ratio follows from the point; programs should not have to compute it.
    let points = json.get_mut("points").and_then(Value::as_array_mut);
    for (value, point) in points.into_iter().flatten().zip(&report.points) {
        if let Some(map) = value.as_object_mut() {
            map.insert("little_ratio".to_owned(), json!(point.little_ratio()));
        }
    }

    Shown {
        title: format!("sweep of {}", report.axes.join(", ")),
        said: words::of_sweep(report),
        made: report.made.clone(),
        csv: Table::new("", axes.chain(names(POINT)), report.points.iter().map(row)),
        json,
        pictures: pictures::of_sweep(report),
        written_bytes: report.written_bytes,
        errors: report.points.iter().map(|point| point.errors).sum(),
        interrupted: report.interrupted,
        ..Shown::default()
    }
}

fn of_search(report: &RateReport) -> Shown {
    let number = |trial: &find_rate::Trial| {
        [fixed(trial.rate, 3), fixed(trial.achieved, 3), fixed(trial.latency_ns, 0), trial.passed.to_string()]
    };
    let found = &report.found;
    Shown {
        title: format!("highest rate of {} with {}", report.job, report.goal),
        said: words::of_search(report),
        made: Some(report.made.clone()),
        csv: Table::new("", ["rate", "achieved", "latency_ns", "passed"], found.trials.iter().map(number)),
        json: serde_json::to_value(report).unwrap_or_default(),
        pictures: pictures::of_search(report),
        written_bytes: report.written_bytes,
        is_finding: found.rate.is_none() && !report.interrupted,
        interrupted: report.interrupted,
        ..Shown::default()
    }
}

fn of_matrix(report: &MatrixReport) -> Shown {
    let number = |row: &matrix::MatrixRow| {
        [&[row.kind.clone(), row.request_bytes.to_string()][..], &cells(POINT, Some(&row.point))].concat()
    };
    Shown {
        title: "1 MiB sequential and 4 KiB random".to_owned(),
        said: words::of_matrix(report),
        made: report.made.clone(),
        csv: Table::new(
            "",
            [&["type".to_owned(), "request_bytes".to_owned()][..], &names(POINT)].concat(),
            report.rows.iter().map(number),
        ),
        json: serde_json::to_value(report).unwrap_or_default(),
        written_bytes: report.written_bytes,
        errors: report.rows.iter().map(|row| row.point.errors).sum(),
        interrupted: report.interrupted,
        ..Shown::default()
    }
}

fn of_dual(report: &DualReport, rbd: Option<&[RbdRun]>) -> Shown {
    let number = |run: &DualRun| {
        let iostats = [run.iostat, run.busiest].map(|iostat| cells(IOSTAT, iostat.as_ref())).concat();
        [&[run.times.to_string()][..], &cells(POINT, Some(&run.point)), &iostats].concat()
    };
    let busiest = names(IOSTAT).map(|column| format!("busiest_{column}"));
    let headers = [&["times".to_owned()][..], &names(POINT), &names(IOSTAT), &busiest].concat();

    let mut json = serde_json::to_value(report).unwrap_or_default();
    let beside = rbd.map(rbd_table);
    if let (Some(runs), Some(map)) = (rbd, json.as_object_mut()) {
        map.insert("rbd".to_owned(), serde_json::to_value(runs).unwrap_or_default());
    }

    Shown {
        title: "once, and twice at once".to_owned(),
        said: words::of_dual(report),
        made: report.made.clone(),
        beside,
        csv: Table::new("", headers, report.runs.iter().map(number)),
        json,
        written_bytes: report.written_bytes,
        errors: report.runs.iter().map(|run| run.point.errors).sum(),
        interrupted: report.interrupted,
        ..Shown::default()
    }
}

fn read_rbd(path: &Path) -> Result<Vec<RbdRun>, Failure> {
    let wrong = |why: String| Failure::Input(format!("--rbd {}: {why}", path.display()));
    let text = read_text(path, RESULT_MAX_BYTES).map_err(|error| wrong(error.to_string()))?;
    rbd::parse(&text).map_err(|error| wrong(error.to_string()))
}

fn rbd_table(runs: &[RbdRun]) -> Table {
    let headers = ["rbd bench", "size", "threads", "elapsed", "ops/s", "rate", "slowest s", "fastest s"];
    let row = |(at, run): (usize, &RbdRun)| {
        let rates = || run.seconds.iter().map(|second| second.bytes_per_s);
        let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let rate = |value: f64| (value.is_finite() && value >= 0.0).then(|| format_throughput_decimal(value));
        [
            format!("{}: {} {}", at + 1, run.io_type, run.pattern),
            optional(run.io_size_bytes.map(format_bytes_binary)),
            optional(run.io_threads.map(|threads| threads.to_string())),
            optional(run.summary.map(|summary| format!("{:.0} s", summary.elapsed_s))),
            optional(run.summary.map(|summary| format_iops(summary.ops_per_s))),
            optional(run.summary.and_then(|summary| rate(summary.bytes_per_s))),
            optional(rate(rates().fold(f64::INFINITY, f64::min))),
            optional(rate(rates().fold(-1.0, f64::max))),
        ]
    };
    Table::new("rbd bench, as read:", headers, runs.iter().enumerate().map(row))
}
