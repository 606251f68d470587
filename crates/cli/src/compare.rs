//! `plimsoll compare`: which of several results is better, and whether there is evidence for it.

use std::fs;
use std::path::Path;

use clap::Args;
use plimsoll_tools::compare::{self, ALPHA, CompareOptions, CompareReport, Comparison, Source, Verdict};
use plimsoll_tools::units::{format_duration_ns, format_iops, format_throughput_decimal};

use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen;

/// Longest name of a figure in a table.
const METRIC_WIDTH: usize = 36;

/// Compare results: what is better or worse by more than chance explains
///
/// Results of `plimsoll test --format json`, or of `plimsoll sim run --format json`; the first is the base. Throughput,
/// IOPS and mean latency by Welch's test on the intervals, corrected for their autocorrelation; percentiles by
/// resampling the histograms. Exit code 1 if anything is worse than in the base.
#[derive(Args, Debug)]
pub(crate) struct CompareArguments {
    /// Results, the base first; several runs of one side separated by commas: A1.json,A2.json B1.json,B2.json
    #[arg(value_name = "RESULT[,RESULT...]", num_args = 1.., required = true)]
    results: Vec<String>,

    /// Changes of at most so many per cent do not count
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT", value_parser = parse_threshold)]
    threshold: f64,

    /// Seed of the resampling: the same gives the same result
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

fn parse_threshold(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent),
        _ => Err("expected per cent, 0 or more: 1, or 0.5%".to_owned()),
    }
}

pub(crate) fn run(arguments: &CompareArguments) -> Result<Outcome, Failure> {
    let sides: Vec<Vec<Source>> = arguments.results.iter().map(|side| read(side)).collect::<Result<_, _>>()?;
    let options = CompareOptions { threshold_pct: arguments.threshold, seed: arguments.seed };
    let report = compare::compare(&sides, &options).map_err(|error| Failure::Input(error.to_string()))?;
    report.warnings.iter().for_each(|warning| screen::warning(warning));
    arguments.format.print(|| table(&report), || Ok(report.to_json()), || report.to_csv())?;
    Ok(if report.regression { Outcome::Finding } else { Outcome::Done })
}

/// The files of one side.
fn read(side: &str) -> Result<Vec<Source>, Failure> {
    let read = |path: &str| match fs::read_to_string(Path::new(path)) {
        Ok(text) => Ok(Source { path: path.to_owned(), text }),
        Err(_) if path.is_empty() => {
            Err(Failure::Input(format!("`{side}`: a file without a name: separate the files of a side by one comma")))
        }
        Err(error) => Err(Failure::Input(format!(
            "{path}: cannot be read: {error}; expected what `plimsoll test --format json` printed"
        ))),
    };
    side.split(',').map(read).collect()
}

/// Sides, a table for each job, winners.
fn table(report: &CompareReport) -> String {
    let mut text = String::new();
    for side in &report.sides {
        let role = if side.side == 'A' { " (base)" } else { "" };
        let versions = match side.versions.join(", ") {
            versions if versions.is_empty() => String::new(),
            versions => format!(", plimsoll {versions}"),
        };
        text.push_str(&screen::wrap(&format!("{}{role}: {}{versions}", side.side, side.files.join(", "))));
        text.push('\n');
    }
    let mut jobs: Vec<&str> = report.comparisons.iter().map(|comparison| comparison.job.as_str()).collect();
    jobs.dedup();
    for job in jobs {
        let of_job = report.comparisons.iter().filter(|comparison| comparison.job == job);
        let headers = ["", "A", "other", "", "change", "95 % interval", "p", "", "verdict"];
        let rows = of_job.map(row).collect();
        text.push_str(&format!("\n{}\n{}\n", screen::wrap(job), screen::table(&headers, rows)));
        for winner in report.jobs.iter().filter(|verdict| verdict.job == job) {
            text.push_str(&winner_line(report, winner.side, job, winner.winner));
        }
    }
    let rule = format!(
        "p: how often chance makes such a difference, all comparisons taken together; * below {ALPHA}, ** below 0.001, \
         *** below 0.0001. better, worse: * and more than {} %. same: surely within {0} %. open: no evidence.",
        report.threshold_pct
    );
    let is_tested = report.comparisons.iter().any(|comparison| comparison.p.is_some());
    format!(
        "{text}\n{}\n",
        screen::wrap(if is_tested { &rule } else { "These figures are exact, or too few to test." })
    )
}

fn winner_line(report: &CompareReport, side: char, job: &str, winner: Option<char>) -> String {
    let of = |comparison: &&Comparison| comparison.job == job && comparison.side == side;
    let has = |verdict: Verdict| report.comparisons.iter().filter(of).any(|comparison| comparison.verdict == verdict);
    match winner {
        Some(winner) if winner == side => format!("A and {side}: {side} is better\n"),
        Some(_) => format!("A and {side}: A is better\n"),
        None if has(Verdict::Better) => format!("A and {side}: better in some figures, worse in others\n"),
        None => format!("A and {side}: no evidence that either is better\n"),
    }
}

fn row(comparison: &Comparison) -> Vec<String> {
    let Comparison { metric, base, other, side, change_pct, p, p_together, .. } = comparison;
    let interval = match (comparison.change_low_pct, comparison.change_high_pct) {
        _ if p.is_none() => String::new(),
        (Some(low), Some(high)) => format!("{} to {}", signed(low), signed(high)),
        _ => String::new(),
    };
    let stars = match p_together {
        Some(p) if *p < 0.0001 => "***",
        Some(p) if *p < 0.001 => "**",
        Some(p) if *p < ALPHA => "*",
        _ => "",
    };
    let chance = match p_together {
        Some(p) if *p < 0.0001 => "<0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
        None => String::new(),
    };
    vec![
        metric_name(metric),
        figure(metric, *base),
        figure(metric, *other),
        side.to_string(),
        change_pct.map_or_else(|| "n/a".to_owned(), |change| format!("{} %", signed(change))),
        interval,
        chance,
        stars.to_owned(),
        comparison.verdict.as_str().to_owned(),
    ]
}

/// Per cent with a sign; two digits after the point where they say something.
fn signed(percent: f64) -> String {
    match percent.abs() {
        small if small < 99.995 => format!("{percent:+.2}"),
        large if large < 1e5 => format!("{percent:+.0}"),
        _ => format!("{percent:+.0e}"),
    }
}

fn metric_name(metric: &str) -> String {
    let name = match metric {
        "throughput_bytes_per_s" => "throughput",
        "iops" => "IOPS",
        "latency_mean_us" => "latency mean",
        "latency_p50_us" => "latency p50",
        "latency_p95_us" => "latency p95",
        "latency_p99_us" => "latency p99",
        "latency_p99_9_us" => "latency p99.9",
        other => other,
    };
    name.chars().take(METRIC_WIDTH).collect()
}

fn figure(metric: &str, value: f64) -> String {
    match metric {
        "throughput_bytes_per_s" => format_throughput_decimal(value),
        "iops" => format_iops(value),
        _ if metric.starts_with("latency_") && metric.ends_with("_us") => format_duration_ns((value * 1e3) as u64),
        _ if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) => format!("{value:.3e}"),
        _ => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}
