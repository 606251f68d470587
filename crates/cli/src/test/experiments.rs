//! Experiments of `plimsoll test`: sweeps, the search for a rate, the matrix, and dual runs.

use std::path::Path;

use plimsoll_figures::units::{format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_figures::verdict::Kind;
use plimsoll_files::bounded::{RESULT_MAX_BYTES, read_text};
use plimsoll_files::rbd::{self, RbdRun};
use plimsoll_measure::experiment::dual::{self, DualReport, Iostat};
use plimsoll_measure::experiment::find_rate::{self, Goal, RateReport, SearchOptions};
use plimsoll_measure::experiment::matrix::{self, MatrixReport};
use plimsoll_measure::experiment::pictures::{self, Picture};
use plimsoll_measure::experiment::sweep::{self, Axis, SweepReport};
use plimsoll_measure::experiment::{ExperimentError, Point, Situation};
use plimsoll_measure::load::Control;
use plimsoll_show::answer::Answer;
use plimsoll_show::page::Mood;
use plimsoll_show::table::{Table, fixed};
use serde_json::{Value, json};

use super::Steps;
use super::arguments::{Checked, TestArguments};
use super::outputs::Outputs;
use crate::failure::{Failure, Outcome};
use crate::flags::TestFormat;
use crate::screen;

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Failure {
        let message = error.to_string();
        match error {
            ExperimentError::Test(error) => error.into(),
            ExperimentError::Scratch(error) => error.into(),
            ExperimentError::Jobs(error) => error.into(),
            ExperimentError::NoEntry(error) => error.into(),
            ExperimentError::Silent { .. } => Failure::Machine(message),
            _ => Failure::Input(message),
        }
    }
}

/// A result in every form that a user may ask for.
struct Shown {
    title: String,
    /// Shown above the table.
    answer: Option<Answer>,
    table: Table,
    /// Text below the table, a paragraph each.
    remarks: Vec<String>,
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

/// An experiment that was asked for.
pub(super) enum Experiment<'a> {
    Sweep(&'a [Axis]),
    FindRate(&'a Goal),
    Matrix { data_bytes: u64 },
    Dual { rbd: Option<Vec<RbdRun>> },
}

impl<'a> Experiment<'a> {
    /// The one that `arguments` ask for; `None`: a single run.
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

    /// Returns how many runs it makes of the job file as it is; `None` if that depends on what they find, or on other
    /// jobs.
    pub(super) fn runs(&self) -> Option<u32> {
        match self {
            Experiment::Sweep(axes) => sweep::points_of(axes).ok().and_then(|points| u32::try_from(points.len()).ok()),
            Experiment::Dual { .. } => Some(2),
            Experiment::FindRate(_) | Experiment::Matrix { .. } => None,
        }
    }

    /// Runs it, and prints what it found.
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
                find_rate::run(situation, goal, &options, control, on_step).map(|report| of_search(&report, goal))
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
                screen::note(&format!("{error}; scratch files are removed"));
                return Ok(Outcome::Interrupted);
            }
            result => result?,
        };
        let outcome = show(&shown, format, outputs)?;
        Ok(if control.stop.is_asked() { Outcome::Interrupted } else { outcome })
    }
}

/// Prints the runs of the `--rbd` file, without a run.
pub(super) fn rbd_alone(path: &Path, format: TestFormat) -> Result<Outcome, Failure> {
    let runs = read_rbd(path)?;
    let text = match format {
        TestFormat::Csv => rbd_table(&runs).to_csv(),
        TestFormat::Table => screen::show(&rbd_table(&runs)) + "\n",
        _ => pretty(&json!({ "rbd": runs })),
    };
    screen::print(&text)?;
    Ok(Outcome::Done)
}

fn show(shown: &Shown, format: TestFormat, outputs: &Outputs) -> Result<Outcome, Failure> {
    // Write the files first: the reader of stdout may close it at any time. Report their errors after the result.
    let answer = shown.answer.iter().flat_map(|answer| answer.lines(usize::MAX));
    let said: Vec<String> = answer.chain(shown.remarks.iter().cloned()).collect();
    let written = outputs.write(&shown.title, &said, shown.table.clone(), || shown.pictures.clone());
    let text = match format {
        TestFormat::Csv => shown.csv.to_csv(),
        TestFormat::Table => table(shown),
        _ => pretty(&shown.json),
    };
    screen::print(&text)?;
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
    let mut text = shown.answer.as_ref().map_or_else(String::new, screen::answer);
    text.push_str(&screen::show(&shown.table));
    for remark in &shown.remarks {
        text.push_str("\n\n");
        text.push_str(&screen::wrap(remark));
    }
    if let Some(table) = &shown.beside {
        text.push_str(&format!("\n\n{}\n{}", table.caption, screen::show(table)));
    }
    text.push('\n');
    text
}

fn pretty(value: &Value) -> String {
    // A tree of plain values: cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn us(us: f64) -> String {
    format_duration_ns((us * 1e3) as u64)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.0} %", 100.0 * part))
}

/// Columns of a point in every experiment.
const POINT_HEADERS: [&str; 7] = ["rate", "IOPS", "mean", "p99", "in disk", "disk mean", "N/XR"];

fn point_cells(point: &Point) -> Vec<String> {
    vec![
        format_throughput_decimal(point.throughput_bytes_per_s),
        format_iops(point.iops),
        us(point.latency.average_us),
        us(point.latency.p99_us),
        format!("{:.2}", point.in_device),
        us(point.device_latency_mean_us),
        point.little_ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
    ]
}

const POINT_WORDS: &str = "\
rate, IOPS, mean and p99: of requests, from when they were due to their end. in disk, disk mean: pieces in the device, and \
their time in it. N/XR: their number over rate times time, 1 by Little's law.";

/// Columns of a point for programs.
const POINT_CSV: [&str; 9] = [
    "parallelism",
    "throughput_bytes_per_s",
    "iops",
    "latency_average_us",
    "latency_p99_us",
    "in_device",
    "device_latency_mean_us",
    "little_ratio",
    "errors",
];

fn point_csv(point: &Point) -> Vec<String> {
    vec![
        point.parallelism.to_string(),
        fixed(point.throughput_bytes_per_s, 0),
        fixed(point.iops, 1),
        fixed(point.latency.average_us, 2),
        fixed(point.latency.p99_us, 2),
        fixed(point.in_device, 3),
        fixed(point.device_latency_mean_us, 2),
        fixed(point.little_ratio(), 3),
        point.errors.to_string(),
    ]
}

fn of_sweep(report: &SweepReport) -> Shown {
    let axes = || report.axes.iter().map(String::as_str);
    let values = |point: &Point| point.settings.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>();
    let rows = |cells: fn(&Point) -> Vec<String>| {
        report.points.iter().map(|point| [values(point), cells(point)].concat()).collect::<Vec<_>>()
    };
    let mut remarks = Vec::new();
    let is_one = report.verdicts.len() == 1;
    for found in &report.verdicts {
        let settings: Vec<String> = found.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let of = if settings.is_empty() { String::new() } else { format!(" ({})", settings.join(" ")) };
        if !is_one {
            remarks.push(format!("Verdict{of}: {}.", found.verdict.sentence));
        }
        if !found.verdict.evidence.is_empty() {
            remarks.push(format!("Evidence{of}: {}.", found.verdict.evidence.join("; ")));
        }
    }

    remarks.push(POINT_WORDS.to_owned());
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
        table: Table::new("", axes().chain(POINT_HEADERS), rows(point_cells)),
        answer: Some(answer_of_sweep(report)),
        remarks,
        beside: None,
        csv: Table::new(
            "",
            axes().map(|axis| format!("set_{axis}")).chain(POINT_CSV.map(str::to_owned)),
            rows(point_csv),
        ),
        json,
        pictures: pictures::of_sweep(report),
        written_bytes: report.written_bytes,
        errors: report.points.iter().map(|point| point.errors).sum(),
        is_finding: false,
        interrupted: report.interrupted,
    }
}

/// Returns the verdict on a sweep's curve, or how many curves are of which kind.
fn answer_of_sweep(report: &SweepReport) -> Answer {
    let best = report.points.iter().max_by(|a, b| a.throughput_bytes_per_s.total_cmp(&b.throughput_bytes_per_s));
    let best = best.map_or_else(String::new, |point| {
        let at: Vec<String> = point.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let rate = format_throughput_decimal(point.throughput_bytes_per_s);
        format!("most: {rate}, {} IOPS at {}", format_iops(point.iops), at.join(" "))
    });
    let confidence = "a point is one run: differences below 10 % are noise";

    match report.verdicts.as_slice() {
        [] => {
            let why = "no verdict: only a sweep over parallelism or shards says who the limiter is";
            Answer::new(Mood::Quiet, why, best, "")
        }
        [one] => Answer::new(mood(one.verdict.kind), format!("Verdict: {}", one.verdict.sentence), best, confidence),
        curves => {
            let mut counts: Vec<(Kind, usize)> = Vec::new();
            for curve in curves {
                match counts.iter_mut().find(|(kind, _)| *kind == curve.verdict.kind) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((curve.verdict.kind, 1)),
                }
            }
            counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let words: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {}", kind.words())).collect();
            let most = counts.first().map_or(Mood::Quiet, |(kind, _)| mood(*kind));
            Answer::new(most, format!("{} curves: {}", curves.len(), words.join(", ")), best, confidence)
        }
    }
}

/// Returns the weight of a curve's verdict.
pub(crate) const fn mood(kind: Kind) -> Mood {
    match kind {
        Kind::ScalesLow | Kind::Reached => Mood::Good,
        Kind::Unclear => Mood::Heed,
        Kind::LimitedAbove | Kind::Saturated | Kind::Falls => Mood::Bad,
    }
}

fn of_search(report: &RateReport, goal: &Goal) -> Shown {
    let row = |trial: &find_rate::Trial| {
        let within = if trial.passed { "yes" } else { "no" };
        let latency = format_duration_ns(trial.latency_ns as u64);
        [format_iops(trial.rate), format_iops(trial.achieved), latency, within.to_owned()]
    };
    let number = |trial: &find_rate::Trial| {
        [fixed(trial.rate, 3), fixed(trial.achieved, 3), fixed(trial.latency_ns, 0), trial.passed.to_string()]
    };

    let found = &report.found;
    let passed = found.trials.iter().filter(|trial| trial.passed).map(|trial| trial.rate).reduce(f64::max);
    let said = match (found.rate, found.failed_rate) {
        _ if report.interrupted => match passed {
            Some(rate) => format!(
                "No answer: interrupted after {} runs; {} IOPS kept {} so far",
                found.trials.len(),
                format_iops(rate),
                goal.text
            ),
            None => {
                format!("No answer: interrupted after {} runs; none has kept {} so far", found.trials.len(), goal.text)
            }
        },
        (None, _) => format!(
            "No rate from {} IOPS on keeps {} of job `{}`; lower ones make too few requests to tell: raise --duration",
            format_iops(report.rate_min),
            goal.text,
            report.job
        ),
        (Some(rate), None) => {
            format!("{} IOPS and more keep {}: no rate was found that does not", format_iops(rate), goal.text)
        }
        (Some(rate), Some(failed)) => format!(
            "Highest rate of job `{}` that keeps {}: {} IOPS{}; {} IOPS do not",
            report.job,
            goal.text,
            format_iops(rate),
            if found.confirmed { "" } else { " (not confirmed)" },
            format_iops(failed)
        ),
    };

    let sure = if found.confirmed {
        "both ends were repeated, and the majority of the runs decided"
    } else {
        "not confirmed: the runs at the ends did not agree, or there were too few; a longer --duration helps"
    };
    let closed = format!("the closed loop got {} IOPS", format_iops(report.closed_loop_iops));
    let mood = match found.rate {
        None => Mood::Bad,
        Some(_) if found.confirmed => Mood::Good,
        Some(_) => Mood::Heed,
    };

    Shown {
        title: format!("highest rate of {} with {}", report.job, goal.text),
        table: Table::new("", ["asked", "made", "latency", "within"], found.trials.iter().map(row)),
        answer: Some(Answer::new(mood, said, closed, sure)),
        remarks: Vec::new(),
        beside: None,
        csv: Table::new("", ["rate", "achieved", "latency_ns", "passed"], found.trials.iter().map(number)),
        json: serde_json::to_value(report).unwrap_or_default(),
        pictures: pictures::of_search(report),
        written_bytes: report.written_bytes,
        errors: 0,
        is_finding: found.rate.is_none() && !report.interrupted,
        interrupted: report.interrupted,
    }
}

fn of_matrix(report: &MatrixReport) -> Shown {
    let row = |row: &matrix::MatrixRow| {
        let gb_per_s = format!("{:.3}", row.point.throughput_bytes_per_s / 1e9);
        let mut cells = vec![row.name.to_owned(), row.point.parallelism.to_string(), gb_per_s];
        cells.extend(point_cells(&row.point).into_iter().skip(1));
        cells
    };
    let number = |row: &matrix::MatrixRow| {
        [vec![row.kind.to_owned(), row.request_bytes.to_string()], point_csv(&row.point)].concat()
    };

    let headers = ["", "depth", "GB/s"].into_iter().chain(POINT_HEADERS.into_iter().skip(1));
    let fio = "In fio's terms: --direct=1 --numjobs=32 --iodepth=128, one after the other; rows of 1 MiB keep 256 \
               requests under way, more would only take memory.";

    Shown {
        title: "1 MiB sequential and 4 KiB random".to_owned(),
        table: Table::new("", headers, report.rows.iter().map(row)),
        answer: None,
        remarks: vec![
            format!("{} shard(s), {} written. {fio}", report.shards, format_bytes_binary(report.written_bytes)),
            POINT_WORDS.to_owned(),
        ],
        beside: None,
        csv: Table::new("", ["type", "request_bytes"].into_iter().chain(POINT_CSV), report.rows.iter().map(number)),
        json: serde_json::to_value(report).unwrap_or_default(),
        pictures: Vec::new(),
        written_bytes: report.written_bytes,
        errors: report.rows.iter().map(|row| row.point.errors).sum(),
        is_finding: false,
        interrupted: report.interrupted,
    }
}

fn of_dual(report: &DualReport, rbd: Option<&[RbdRun]>) -> Shown {
    let mut rows = Vec::new();
    let mut numbers = Vec::new();

    for run in &report.runs {
        for job in &run.jobs {
            rows.push(vec![
                format!("{}: {}", run.times, job.name),
                format_throughput_decimal(job.throughput_bytes_per_s),
                format_iops(job.iops),
                us(job.latency.average_us),
                us(job.latency.p99_us),
            ]);
        }
        let io = run.iostat.unwrap_or_default();
        let seen = |text: String| if run.iostat.is_some() { text } else { "-".to_owned() };
        rows.push(vec![
            format!("{}: together", run.times),
            format_throughput_decimal(run.point.throughput_bytes_per_s),
            format_iops(run.point.iops),
            us(run.point.latency.average_us),
            us(run.point.latency.p99_us),
            seen(format_iops(io.reads_per_s)),
            seen(format_iops(io.writes_per_s)),
            io.await_ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms")),
            io.queue.map_or("-".to_owned(), |queue| format!("{queue:.2}")),
            io.util_pct.map_or("-".to_owned(), |pct| format!("{pct:.0} %")),
            percent(run.point.capacity_used),
        ]);
        numbers.push([vec![run.times.to_string()], point_csv(&run.point), iostat_csv(run.iostat)].concat());
    }

    let headers = ["", "rate", "IOPS", "mean", "p99", "r/s", "w/s", "await", "aqu-sz", "%util", "capacity"];
    let answer = report.finding.as_ref().map(|found| {
        let mood = match found.outcome {
            dual::Outcome::Grew => Mood::Good,
            dual::Outcome::Unclear => Mood::Heed,
            dual::Outcome::AtEnd | dual::Outcome::HeldAbove => Mood::Bad,
        };
        let rates: Vec<String> =
            report.runs.iter().map(|run| format_throughput_decimal(run.point.throughput_bytes_per_s)).collect();
        let confidence = "one run each: differences below 10 % are noise";
        Answer::new(mood, upper_first(&found.sentence), format!("alone and together: {}", rates.join(", ")), confidence)
    });
    let remarks = vec![match (&report.device, &report.no_counters) {
        (Some(device), _) => {
            format!("r/s to %util: what iostat says of {device}. capacity: part of the disk model that was used.")
        }
        (None, why) => format!("No counters of the kernel: {}.", why.as_deref().unwrap_or("no device")),
    }];

    let mut json = serde_json::to_value(report).unwrap_or_default();
    let beside = rbd.map(rbd_table);
    if let (Some(runs), Some(map)) = (rbd, json.as_object_mut()) {
        map.insert("rbd".to_owned(), serde_json::to_value(runs).unwrap_or_default());
    }

    let columns = ["reads_per_s", "writes_per_s", "await_ms", "queue", "util_pct"];
    Shown {
        title: "once, and twice at once".to_owned(),
        table: Table::new("", headers, rows),
        answer,
        remarks,
        beside,
        csv: Table::new("", ["times"].into_iter().chain(POINT_CSV).chain(columns), numbers),
        json,
        pictures: Vec::new(),
        written_bytes: report.written_bytes,
        errors: report.runs.iter().map(|run| run.point.errors).sum(),
        is_finding: false,
        interrupted: report.interrupted,
    }
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn iostat_csv(iostat: Option<Iostat>) -> Vec<String> {
    let Some(io) = iostat else { return vec![String::new(); 5] };
    let [reads_per_s, writes_per_s] = [io.reads_per_s, io.writes_per_s].map(|rate| fixed(rate, 1));
    vec![reads_per_s, writes_per_s, fixed(io.await_ms, 3), fixed(io.queue, 3), fixed(io.util_pct, 3)]
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
