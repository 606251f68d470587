//! `plimsoll compare`: which of several results is better, and how strong the evidence is.

use std::path::Path;

use clap::Args;
use plimsoll_files::bounded::{RESULT_MAX_BYTES, read_text};
use plimsoll_measure::compare::{self, CELL_HEADERS, CompareOptions, CompareReport, Side, Source};

use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen;

/// Compare results: figures that are better or worse beyond chance
///
/// Takes results of `plimsoll test --format json` (also of sweeps, matrices and searches for a rate), or of `plimsoll
/// sim run --format json`; the first is the base. Compares throughput, IOPS and mean latency by Welch's test on the
/// intervals, corrected for autocorrelation, and percentiles by resampling the histograms. Exit code 1 if anything is
/// worse than in the base.
#[derive(Args, Debug)]
pub(crate) struct CompareArguments {
    /// Results, the base first; several runs of one side separated by commas: A1.json,A2.json B1.json,B2.json
    #[arg(value_name = "RESULT[,RESULT...]", num_args = 1.., required = true)]
    results: Vec<String>,

    /// Largest change that does not count, in per cent
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT", value_parser = parse_threshold)]
    threshold: f64,

    /// Seed of the resampling; the same seed gives the same result
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
    arguments.format.print(|| table(&report), &report, || report.to_csv())?;
    Ok(if report.regression { Outcome::Finding } else { Outcome::Done })
}

fn read(side: &str) -> Result<Vec<Source>, Failure> {
    let read = |path: &str| match read_text(Path::new(path), RESULT_MAX_BYTES) {
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

/// Returns the sides, a table for each job, and the winners.
fn table(report: &CompareReport) -> String {
    let mut text = screen::answer(&report.answer());
    text.push_str(&screen::paragraphs(report.overall_words()));
    text.push_str(&screen::paragraphs(report.sides.iter().map(Side::line)));
    for job in report.job_names() {
        let of_job = report.comparisons.iter().filter(|comparison| comparison.job == job);
        let rows = of_job.map(|comparison| comparison.cells().to_vec()).collect();
        text.push_str(&format!("\n{}\n{}\n", screen::wrap(job), screen::table(&CELL_HEADERS, rows)));
        for verdict in report.jobs.iter().filter(|verdict| verdict.job == job && report.jobs.len() > 1) {
            text.push_str(&format!("{}\n", screen::printable(&report.winner(verdict))));
        }
    }
    format!("{text}\n{}\n", screen::wrap(&report.rule()))
}
