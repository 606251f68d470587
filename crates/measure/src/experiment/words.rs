//! Results of experiments in words, for the terminal and for pages.
//!
//! **Why.** The command that measures a result and the page that shows it later use the same texts.
//!
//! **How.** Makes a [`Said`] of each result: the answer, a table and remarks.
//!
//! **Limits.** Figures are rounded for people; the results themselves have them in full.
//!
//! **Example.** `Verdict (reqsize=1M): flat throughput with flat latency: the limiter sits above the disk.`

use plimsoll_figures::units::{format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_figures::verdict::Kind;
use plimsoll_show::answer::{Answer, Mood, upper_first};
use plimsoll_show::table::Table;

use super::Point;
use super::dual::{DualJob, DualReport, DualRun, Finding, Iostat, Outcome};
use super::find_rate::{RateReport, Trial};
use super::matrix::{MatrixReport, MatrixRow};
use super::sweep::SweepReport;
use crate::by_key;
use crate::report::Latency;
use crate::sim::report::sweep_text;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// The verdict, to be shown first; `None` if the experiment judges nothing.
    pub answer: Option<Answer>,
    pub table: Table,
    /// Explanations of the figures, a paragraph each.
    pub remarks: Vec<String>,
}

pub fn us(us: f64) -> String {
    format_duration_ns((us * 1e3) as u64)
}

/// Columns of a point in every experiment.
const POINT_HEADERS: [&str; 8] = ["rate", "±", "IOPS", "mean", "p99", "in disk", "disk mean", "N/XR"];

fn point_cells(point: &Point) -> Vec<String> {
    vec![
        format_throughput_decimal(point.throughput_bytes_per_s),
        point.half_width_part().map_or("-".to_owned(), |part| format!("{:.1} %", 100.0 * part)),
        format_iops(point.iops),
        us(point.latency.average_us),
        us(point.latency.p99_us),
        format!("{:.2}", point.in_device),
        us(point.device_latency_mean_us),
        point.little_ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
    ]
}

const POINT_WORDS: &str = "\
rate, IOPS, mean and p99: of requests, from when they were due to their end. ±: half of the rate's 95 % interval. in disk, \
disk mean: pieces in the device, and their time in it. N/XR: their number over rate times time, 1 by Little's law.";

pub fn of_sweep(report: &SweepReport) -> Said {
    let row = |point: &Point| {
        let values = point.settings.iter().map(|(_, value)| value.clone());
        values.chain(point_cells(point)).collect::<Vec<_>>()
    };
    let mut remarks = Vec::new();
    let is_one = report.verdicts.len() == 1;
    for found in &report.verdicts {
        let settings = sweep_text(&found.settings);
        let of = if settings.is_empty() { settings } else { format!(" ({settings})") };
        if !is_one {
            remarks.push(format!("Verdict{of}: {}.", found.verdict.sentence));
        }
        if !found.verdict.evidence.is_empty() {
            remarks.push(format!("Evidence{of}: {}.", found.verdict.evidence.join("; ")));
        }
    }

    remarks.push(POINT_WORDS.to_owned());
    let headers = report.axes.iter().map(String::as_str).chain(POINT_HEADERS);
    let table = Table::new("", headers, report.points.iter().map(row));
    Said { answer: Some(answer_of_sweep(report)), table, remarks }
}

/// Returns the verdict on a sweep's curve, or the number of curves of each kind.
fn answer_of_sweep(report: &SweepReport) -> Answer {
    let best = report.points.iter().max_by(|a, b| a.throughput_bytes_per_s.total_cmp(&b.throughput_bytes_per_s));
    let best = best.map_or_else(String::new, |point| {
        let (rate, at) = (format_throughput_decimal(point.throughput_bytes_per_s), sweep_text(&point.settings));
        format!("most: {rate}{}, {} IOPS at {at}", point.interval_text(), format_iops(point.iops))
    });
    let is_known = report.points.iter().all(|point| point.half_width_part().is_some());
    let confidence = if is_known { "" } else { "a point is one run: differences below 10 % are noise" };

    match report.verdicts.as_slice() {
        [] => {
            let why = "no verdict: only a sweep over parallelism or shards says who the limiter is";
            Answer::new(Mood::Quiet, why, best, "")
        }
        [one] => Answer::new(mood(one.verdict.kind), format!("Verdict: {}", one.verdict.sentence), best, confidence),
        curves => {
            let mut kinds = by_key(curves.iter().map(|curve| (curve.verdict.kind, curve)));
            kinds.sort_by_key(|(_, curves)| std::cmp::Reverse(curves.len()));
            let words: Vec<String> =
                kinds.iter().map(|(kind, curves)| format!("{} {}", curves.len(), kind.words())).collect();
            let most = kinds.first().map_or(Mood::Quiet, |(kind, _)| mood(*kind));
            Answer::new(most, format!("{} curves: {}", curves.len(), words.join(", ")), best, confidence)
        }
    }
}

/// Returns the weight of a curve's verdict.
pub const fn mood(kind: Kind) -> Mood {
    match kind {
        Kind::ScalesLow | Kind::Reached => Mood::Good,
        Kind::Unclear => Mood::Heed,
        Kind::LimitedAbove | Kind::Saturated | Kind::Falls => Mood::Bad,
    }
}

pub fn of_search(report: &RateReport) -> Said {
    let row = |trial: &Trial| {
        let within = if trial.passed { "yes" } else { "no" };
        let latency = format_duration_ns(trial.latency_ns as u64);
        [format_iops(trial.rate), format_iops(trial.achieved), latency, within.to_owned()]
    };
    let RateReport { job, goal, found, .. } = report;
    let passed = found.trials.iter().filter(|trial| trial.passed).map(|trial| trial.rate).reduce(f64::max);
    let answer = match (found.rate, found.failed_rate) {
        _ if report.interrupted => {
            let so_far = match passed {
                Some(rate) => format!("{} IOPS kept {goal} so far", format_iops(rate)),
                None => format!("none has kept {goal} so far"),
            };
            format!("No answer: interrupted after {} runs; {so_far}", found.trials.len())
        }
        (None, _) => format!(
            "No rate from {} IOPS on keeps {goal} of job `{job}`; lower ones make too few requests to tell: raise \
             --duration",
            format_iops(report.rate_min)
        ),
        (Some(rate), None) => {
            format!("{} IOPS and more keep {goal}: no rate was found that does not", format_iops(rate))
        }
        (Some(rate), Some(failed)) => format!(
            "Highest rate of job `{job}` that keeps {goal}: {} IOPS{}; {} IOPS do not",
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
    Said {
        answer: Some(Answer::new(mood, answer, closed, sure)),
        table: Table::new("", ["asked", "made", "latency", "within"], found.trials.iter().map(row)),
        remarks: Vec::new(),
    }
}

pub fn of_matrix(report: &MatrixReport) -> Said {
    let row = |row: &MatrixRow| {
        let gb_per_s = format!("{:.3}", row.point.throughput_bytes_per_s / 1e9);
        let mut cells = vec![row.name.clone(), row.point.parallelism.to_string(), gb_per_s];
        cells.extend(point_cells(&row.point).into_iter().skip(1));
        cells
    };

    let headers = ["", "depth", "GB/s"].into_iter().chain(POINT_HEADERS.into_iter().skip(1));
    let shards = report.made.as_ref().map_or(0, |made| made.shards);
    let fio = "In fio's terms: --direct=1 --numjobs=32 --iodepth=128, one after the other; rows of 1 MiB keep 256 \
               requests under way, more would only take memory.";

    Said {
        answer: None,
        table: Table::new("", headers, report.rows.iter().map(row)),
        remarks: vec![
            format!("{shards} shard(s), {} written. {fio}", format_bytes_binary(report.written_bytes)),
            POINT_WORDS.to_owned(),
        ],
    }
}

/// Describes the load once and twice at once, beside the figures that iostat shows.
pub fn of_dual(report: &DualReport) -> Said {
    let headers = ["", "rate", "IOPS", "mean", "p99", "r/s", "w/s", "await", "aqu-sz", "%util", "capacity"];
    let remark = match (&report.device, &report.no_counters) {
        (Some(device), _) => {
            format!(
                "r/s to %util: what iostat says of {device}, on average and (busiest second) in the interval with the most \
                 requests. capacity: part of the disk model that was used."
            )
        }
        (None, why) => format!("No counters of the kernel: {}.", why.as_deref().unwrap_or("no device")),
    };
    Said {
        answer: report.finding.as_ref().map(|found| dual_answer(found, &report.runs)),
        table: Table::new("", headers, report.runs.iter().flat_map(dual_rows)),
        remarks: vec![remark],
    }
}

fn dual_answer(found: &Finding, runs: &[DualRun]) -> Answer {
    let mood = match found.outcome {
        Outcome::Grew => Mood::Good,
        Outcome::Unclear => Mood::Heed,
        Outcome::AtEnd | Outcome::HeldAbove => Mood::Bad,
    };
    let rate = |run: &DualRun| {
        format!("{}{}", format_throughput_decimal(run.point.throughput_bytes_per_s), run.point.interval_text())
    };
    let rates: Vec<String> = runs.iter().map(rate).collect();
    let confidence = match runs.iter().map(|run| run.point.rounds.len()).min() {
        Some(0 | 1) | None => "one run each: differences below 10 % are noise".to_owned(),
        Some(rounds) => format!("{rounds} rounds in turns; differences below 10 % are noise"),
    };
    Answer::new(mood, upper_first(&found.sentence), format!("alone and together: {}", rates.join(", ")), confidence)
}

/// Returns a row for each job of a run, one for all jobs together, and one for the busiest second.
fn dual_rows(run: &DualRun) -> Vec<Vec<String>> {
    let load = |name: &str, bytes_per_s: f64, iops: f64, latency: &Latency| {
        vec![
            format!("{}: {name}", run.times),
            format_throughput_decimal(bytes_per_s),
            format_iops(iops),
            us(latency.average_us),
            us(latency.p99_us),
        ]
    };
    let job = |job: &DualJob| load(&job.name, job.throughput_bytes_per_s, job.iops, &job.latency);
    let mut rows: Vec<Vec<String>> = run.jobs.iter().map(job).collect();

    let point = &run.point;
    let together = load("together", point.throughput_bytes_per_s, point.iops, &point.latency);
    let capacity = point.capacity_used.map_or("-".to_owned(), |part| format!("{:.0} %", 100.0 * part));
    rows.push([together, iostat_cells(run.iostat), vec![capacity]].concat());
    if run.busiest.is_some() {
        let head = format!("{}: busiest second", run.times);
        rows.push([vec![head], vec![String::new(); 4], iostat_cells(run.busiest)].concat());
    }
    rows
}

fn iostat_cells(iostat: Option<Iostat>) -> Vec<String> {
    let Some(io) = iostat else { return vec!["-".to_owned(); 5] };
    vec![
        format_iops(io.reads_per_s),
        format_iops(io.writes_per_s),
        io.await_ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms")),
        io.queue.map_or("-".to_owned(), |queue| format!("{queue:.2}")),
        io.util_pct.map_or("-".to_owned(), |pct| format!("{pct:.0} %")),
    ]
}
