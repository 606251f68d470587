//! Merges several measurements of the same kind of disk.
//!
//! **Why.** A single run is a sample of one. Figures for a fleet, or for a preset, come from several runs, and a failed
//! run must neither spoil them nor vanish silently.
//!
//! **How.** For each of the four figures, values far from the median of all runs (the modified z-score of
//! [`super::study::outliers`]) are left out and reported. The mean of the rest is the figure, its scatter over the runs
//! the 95 % interval. Everything else (curves, frontier, latencies) comes from the run whose random reads are closest
//! to the merged figure.
//!
//! **Limits.** Runs must be of one kind of disk (model and members) with the same block sizes. Two runs have no
//! outlier: if they differ, either may be right.
//!
//! **Example.** Five runs read 95.1, 94.8, 95.3, 61.0 and 95.0 thousand times a second: the fourth is left out, the
//! figure is 95.05.

use plimsoll_figures::series;
use plimsoll_files::variant_name;

use super::report::{Figure, LeftOut, Merged, TuneReport, Warning, WarningCode};
use super::study::outliers;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("--merge needs the records of at least two runs")]
    TooFew,
    #[error("{run}: {what} is {here}, but {there} in {first}: only runs of one kind of disk can be merged")]
    Different { run: String, what: &'static str, here: String, there: String, first: String },
    #[error("{run} holds the same run as {same}: give each run once")]
    Twice { run: String, same: String },
    #[error("{run}: {reason}; leave it out, or resume it (--resume)")]
    Unfinished { run: String, reason: String },
}

/// Returns the properties that must be equal, by name, as text.
fn identity(report: &TuneReport) -> [(&'static str, String); 7] {
    let models = |report: &TuneReport| {
        let leaves = report.site.device.iter().flat_map(|device| &device.leaves);
        let models: Vec<&str> = leaves.map(|leaf| leaf.model.as_deref().unwrap_or("unknown")).collect();
        if models.is_empty() { "unknown".to_owned() } else { models.join(" + ") }
    };
    [
        ("the disk", models(report)),
        (
            "the file system",
            if report.site.file_system.is_empty() { "none".into() } else { report.site.file_system.clone() },
        ),
        ("the number of shards", report.shards.to_string()),
        ("the backend", report.backend.name.clone()),
        ("the mode", variant_name(report.mode)),
        ("the size of random reads", report.read_block.bytes.to_string()),
        ("the size of random writes", report.write_block.bytes.to_string()),
    ]
}

/// Merges runs, given with the names of their files.
pub fn merge(runs: &[(String, TuneReport)]) -> Result<TuneReport, MergeError> {
    let Some(((first, first_report), others)) = runs.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Err(MergeError::TooFew);
    };

    for (run, report) in others {
        for ((what, there), (_, here)) in identity(first_report).into_iter().zip(identity(report)) {
            if here != there {
                return Err(MergeError::Different { run: run.clone(), what, here, there, first: first.clone() });
            }
        }
    }

    for (at, (run, report)) in runs.iter().enumerate() {
        if let Some((same, _)) = runs.iter().take(at).find(|(_, earlier)| earlier == report) {
            return Err(MergeError::Twice { run: run.clone(), same: same.clone() });
        }
        if let Err(missing) = report.four_figures() {
            return Err(MergeError::Unfinished { run: run.clone(), reason: missing.to_string() });
        }
    }

    let mut left_out = Vec::new();
    let read_iops = merge_figure(runs, "read_iops", |report| report.read_iops.as_ref(), &mut left_out);
    let write_iops = merge_figure(runs, "write_iops", |report| report.write_iops.as_ref(), &mut left_out);
    let read_bandwidth = merge_figure(runs, "read_bandwidth", |report| report.read_bandwidth.as_ref(), &mut left_out);
    let write_bandwidth =
        merge_figure(runs, "write_bandwidth", |report| report.write_bandwidth.as_ref(), &mut left_out);

    let middle = read_iops.as_ref().map_or(0.0, |figure| figure.value);
    let distance = |report: &TuneReport| report.read_iops.as_ref().map_or(f64::MAX, |f| (f.value - middle).abs());
    let typical = runs.iter().map(|(_, report)| report).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let typical = typical.unwrap_or(first_report);

    let mut merged = TuneReport {
        read_iops,
        write_iops,
        read_bandwidth,
        write_bandwidth,
        written_bytes: runs.iter().map(|(_, report)| report.written_bytes).sum(),
        duration_s: runs.iter().map(|(_, report)| report.duration_s).sum(),
        interrupted: false,
        warnings: all_warnings(runs),
        merged: Some(Merged { runs: runs.iter().map(|(run, _)| run.clone()).collect(), left_out }),
        ..typical.clone()
    };
    merged.warnings.extend(merged.doubt_warnings());
    Ok(merged)
}

/// Returns the warnings of all runs, each once, with the first run that has it. Leaves out doubts about figures of a
/// single run: the merged figures have their own.
fn all_warnings(runs: &[(String, TuneReport)]) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (run, report) in runs {
        for warning in
            report.warnings.iter().filter(|it| it.code != WarningCode::Doubtful && seen.insert(it.message.clone()))
        {
            warnings.push(Warning { code: warning.code, message: format!("{run}: {}", warning.message) });
        }
    }
    warnings
}

/// Returns half the 95 % interval of the mean of independent runs, in per cent. The order of the runs has no effect.
fn interval_pct(rates: &[f64]) -> Option<f64> {
    let count = rates.len() as f64;
    (rates.len() > 1).then(|| series::student_t(count - 1.0) * series::deviation_pct(rates) / count.sqrt())
}

fn merge_figure<'a>(
    runs: &'a [(String, TuneReport)],
    name: &str,
    figure: impl Fn(&'a TuneReport) -> Option<&'a Figure>,
    left_out: &mut Vec<LeftOut>,
) -> Option<Figure> {
    let found: Vec<(&String, &Figure)> = runs.iter().filter_map(|(run, report)| Some((run, figure(report)?))).collect();
    let values: Vec<f64> = found.iter().map(|(_, figure)| figure.value).collect();
    let median = series::median(&values)?;
    let is_out = outliers::outliers(&values);

    let mut kept: Vec<&Figure> = Vec::new();
    for ((run, figure), is_out) in found.iter().zip(is_out) {
        if is_out {
            let run = (*run).clone();
            left_out.push(LeftOut { run, figure: name.to_owned(), value: figure.value, median });
        } else {
            kept.push(figure);
        }
    }

    let rates: Vec<f64> = kept.iter().map(|figure| figure.value).collect();
    let typical = kept.first()?;
    let value = series::mean(&rates);
    Some(Figure {
        value,
        ci95_pct: interval_pct(&rates).or(typical.ci95_pct),
        deviation_pct: series::deviation_pct(&rates),
        settled_at: 0,
        burst: None,
        probes: Vec::new(),
        sample_s: kept.iter().map(|figure| figure.sample_s * figure.samples.len() as f64).sum::<f64>()
            / rates.len() as f64,
        cpu_busy_pct: kept.iter().map(|figure| figure.cpu_busy_pct).fold(0.0, f64::max),
        foreign_pct: kept.iter().filter_map(|figure| figure.foreign_pct).reduce(f64::max),
        samples: rates,
        ..(*typical).clone()
    })
}
