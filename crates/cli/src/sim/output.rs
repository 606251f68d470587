//! Results of `plimsoll sim run` as text, and its curves as files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll_figures::units::{format_count, format_figure};
use plimsoll_measure::sim::parts::{PartForm, Plan};
use plimsoll_measure::sim::report;
use plimsoll_measure::sim::result::{Bounds, Measured, RunResult};
use plimsoll_measure::sim::run::{Finished, Task, figure_names, words};
use plimsoll_measure::sim::stats::{Spread, spreads};
use plimsoll_show::plot;
use plimsoll_show::table::Column;

use crate::failure::{Failure, as_json};
use crate::flags::ReportFormat;
use crate::output::{Output, no_place};
use crate::screen;

const SWEEP_WIDTH: usize = 66;
const HASH_WIDTH: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Form<'a> {
    pub(super) format: ReportFormat,
    pub(super) plan: &'a Plan,
    pub(super) part: Option<&'a PartForm>,
}

impl Form<'_> {
    /// Returns whether each run is printed by itself. Several seeds or values are compared instead.
    pub(super) fn has_runs(&self) -> bool {
        self.format == ReportFormat::Table && self.plan.seeds == 1 && self.plan.sweep.is_empty()
    }

    pub(super) fn print_run(&self, finished: &Finished, is_first: bool) -> Result<(), Failure> {
        let gap = if is_first { "" } else { "\n" };
        Ok(screen::print(&format!("{gap}{}", run_text(finished)))?)
    }

    pub(super) fn print(&self, finished: &[Finished], interrupted: bool) -> Result<(), Failure> {
        let spreads = if self.plan.seeds > 1 { spreads(finished) } else { Vec::new() };
        let text = match self.format {
            ReportFormat::Json => as_json(&report::runs_json(finished, &spreads, interrupted, self.part))?,
            ReportFormat::Csv => report::runs_csv(finished),
            ReportFormat::Table if self.plan.seeds > 1 => spreads_text(&spreads, finished),
            ReportFormat::Table if !self.has_runs() => sweep_text(finished),
            ReportFormat::Table if finished.len() > 1 => summary_text(finished),
            ReportFormat::Table => return Ok(()),
        };
        Ok(screen::print(&text)?)
    }
}

/// Returns one run as text: tables, figures, remarks, hash.
fn run_text(finished: &Finished) -> String {
    let title = match finished.title.as_str() {
        "" => String::new(),
        title => format!(": {title}"),
    };
    let mut text = screen::wrap(&format!("{}{title}", finished.name));
    text.push('\n');
    let result = match &finished.result {
        Ok(result) => result,
        Err(error) => return format!("{text}FAILED: {error}\n"),
    };

    for table in &result.tables {
        let gap = if table.title.is_empty() { String::new() } else { format!("{}\n", screen::wrap(&table.title)) };
        text.push_str(&format!("\n{gap}{}\n", screen::table(&table.columns, table.rows.clone())));
    }

    let judged: Vec<&Measured> = result.figures.iter().filter(|figure| figure.target.is_some()).collect();
    if !judged.is_empty() {
        let rows = judged.iter().map(|figure| {
            let verdict = if figure.passed == Some(true) { "pass" } else { "FAIL" };
            vec![figure.name.clone(), format_figure(figure.number()), target(figure.target), verdict.to_owned()]
        });
        text.push_str(&format!("\n{}\n", screen::table(&["figure", "value", "target", ""], rows.collect())));
    }

    text.push('\n');
    text.push_str(&screen::paragraphs(&result.remarks));
    let (seed, requests) = (finished.seed, format_count(result.requests));
    text.push_str(&format!("seed {seed}, {requests} requests, hash of the event log {:016x}\n", result.log_hash));
    text
}

fn target(target: Option<Bounds>) -> String {
    let Bounds { at_least, at_most } = target.unwrap_or_default();
    match (at_least, at_most) {
        (None, None) => String::new(),
        (None, Some(most)) => format!("<= {}", format_figure(most)),
        (Some(least), None) => format!(">= {}", format_figure(least)),
        (Some(least), Some(most)) => format!("{} to {}", format_figure(least), format_figure(most)),
    }
}

/// Returns a row for each run, with the number of figures passed.
fn summary_text(finished: &[Finished]) -> String {
    let rows = finished.iter().map(|run| {
        let (passed, judged) = run.figures_passed();
        let verdict = if run.passed() { "pass" } else { "FAIL" };
        let figures = if run.result.is_ok() { format!("{passed} of {judged}") } else { "did not run".to_owned() };
        vec![run.name.clone(), figures, verdict.to_owned()]
    });
    let table = screen::table(&["scenario", "figures passed", ""], rows.collect());
    let failed = finished.iter().filter(|run| !run.passed()).count();
    let end = if failed == 0 { "all passed".to_owned() } else { format!("{failed} FAILED") };
    format!("\n{table}\n\n{} runs, {end}\n", finished.len())
}

const SPREADS: &[Column<Spread>] = &[
    ("figure", |it| it.figure.clone()),
    ("mean", |it| format_figure(it.mean)),
    ("± 95 %", |it| it.half_width_95.map_or_else(|| "n/a".to_owned(), format_figure)),
    ("min", |it| format_figure(it.min)),
    ("max", |it| format_figure(it.max)),
    ("target", |it| target(it.target)),
    ("passed", |it| it.target.map_or_else(String::new, |_| format!("{} of {}", it.passed, it.runs))),
];

/// Returns the mean and interval of each figure over the seeds.
fn spreads_text(spreads: &[Spread], finished: &[Finished]) -> String {
    let mut text = String::new();
    let same = |a: &Spread, b: &Spread| a.scenario == b.scenario && a.changes == b.changes;
    for group in spreads.chunk_by(same) {
        let Some(first) = group.first() else { continue };
        let sweep = report::sweep_text(&first.changes);
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{gap}{} {sweep}\n", first.scenario));
        text.push_str(&format!("{}\n", screen::columns(group, SPREADS)));
    }

    for run in finished {
        if let Err(error) = &run.result {
            text.push_str(&format!("{}, seed {}: FAILED: {error}\n", run.name, run.seed));
        }
    }
    text
}

/// Returns the figures of a sweep, its values side by side.
fn sweep_text(finished: &[Finished]) -> String {
    let mut text = String::new();
    let label = |run: &Finished| words(&run.changes).collect::<Vec<_>>().join("\n");
    let widest = finished.iter().flat_map(|run| words(&run.changes)).map(|change| change.len()).max();
    let width = widest.unwrap_or(0).max(HASH_WIDTH) + 2;
    for part in finished.chunks((SWEEP_WIDTH / width).max(1)) {
        let labels: Vec<String> = part.iter().map(label).collect();
        let headers: Vec<&str> = std::iter::once("figure").chain(labels.iter().map(String::as_str)).collect();
        let row = |name: &str, value: &dyn Fn(&RunResult) -> String| {
            let values = part.iter().map(|run| run.result.as_ref().map_or_else(|_| "FAILED".to_owned(), value));
            std::iter::once(name.to_owned()).chain(values).collect::<Vec<String>>()
        };
        let value = |result: &RunResult, name: &str| {
            let figure = result.figures.iter().find(|figure| figure.name == name);
            figure.map_or_else(String::new, |figure| format_figure(figure.number()))
        };

        let names = figure_names(part.iter().filter_map(|run| run.result.as_ref().ok()));
        let mut rows: Vec<Vec<String>> =
            names.into_iter().map(|name| row(name, &|result| value(result, name))).collect();
        rows.push(row("hash of the event log", &|result| format!("{:016x}", result.log_hash)));

        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{gap}{}\n", screen::table(&headers, rows)));
    }

    for run in finished {
        if let Err(error) = &run.result {
            let changes: String = words(&run.changes).map(|change| format!(", {change}")).collect();
            text.push_str(&format!("{}{changes}: FAILED: {error}\n", run.name));
        }
    }
    text
}

/// The directories that get a file for each run with curves.
#[derive(Debug)]
pub(super) struct Pictures {
    csv: Option<PathBuf>,
    svg: Option<PathBuf>,
    force: bool,
}

impl Pictures {
    /// Creates the directories, and checks that the file of each run can be written into them.
    pub(super) fn check(
        csv: Option<&Path>,
        svg: Option<&Path>,
        force: bool,
        tasks: &[Task],
    ) -> Result<Pictures, Failure> {
        let pictures = Pictures { csv: csv.map(Path::to_owned), svg: svg.map(Path::to_owned), force };
        for (directory, ending, flag) in [(csv, "csv", "--csv"), (svg, "svg", "--svg")] {
            let Some(directory) = directory else { continue };
            if directory.exists() && !directory.is_dir() {
                return Err(Failure::Input(format!("{flag} {}: it is not a directory", directory.display())));
            }
            let mut paths = HashSet::new();
            for task in tasks {
                let path = directory.join(file_name(task.subject.name(), &task.changes, task.seed, ending));
                if let Some(twice) = paths.replace(path) {
                    return Err(Failure::Input(format!(
                        "two runs would write {}: give the scenarios a `name:` of their own each, or run them apart",
                        twice.display()
                    )));
                }
            }

            std::fs::create_dir_all(directory).map_err(|error| {
                let message = format!("cannot make {}: {error}; name another place for {flag}", directory.display());
                no_place(&error, message)
            })?;
            paths.iter().try_for_each(|path| Output::check(path, force, flag).map(drop))?;
        }
        Ok(pictures)
    }

    /// Writes the curves of a run, if it has any.
    pub(super) fn write(&self, finished: &Finished) -> Result<(), Failure> {
        let Ok(result) = &finished.result else { return Ok(()) };
        if result.series.is_empty() {
            return Ok(());
        }
        let write = |directory: &Path, ending: &str, flag: &str, text: &str| {
            let path = directory.join(file_name(&finished.name, &finished.changes, finished.seed, ending));
            Output::check(&path, self.force, flag)?.write(text)
        };
        if let Some(directory) = &self.csv {
            write(directory, "csv", "--csv", &report::series_csv(&result.series))?;
        }
        if let Some(directory) = &self.svg {
            let sweep = report::sweep_text(&finished.changes);
            let title = format!("{} {sweep} (seed {})", finished.name, finished.seed);
            let charts: Vec<plot::Chart> = result.series.iter().map(plot::Chart::from).collect();
            write(directory, "svg", "--svg", &plot::svg(&title, &charts))?;
        }
        Ok(())
    }
}

/// Returns `name-key=value-seed1.svg`, in characters that every file system accepts.
fn file_name(scenario: &str, changes: &[(String, String)], seed: u64, ending: &str) -> String {
    let changes: String = words(changes).map(|change| format!("-{change}")).collect();
    let stem = format!("{scenario}{changes}-seed{seed}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '=' | '.');
    let plain: String = stem.chars().map(|c| if is_plain(c) { c } else { '_' }).take(180).collect();
    format!("{plain}.{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_failed_keeps_its_column() {
        let run = |seed: u64, value: Option<f64>| {
            let figure = |value| Measured { name: "p99_ms".to_owned(), passed: None, target: None, value: Some(value) };
            let result = |value| RunResult { figures: vec![figure(value)], log_hash: seed, ..RunResult::default() };
            Finished {
                name: "shares".to_owned(),
                title: String::new(),
                changes: vec![("seed".to_owned(), seed.to_string())],
                seed,
                result: value.map(result).ok_or_else(|| "it panicked".to_owned()),
                elapsed_s: 1.0,
            }
        };
        let text = sweep_text(&[run(1, Some(111.0)), run(2, None), run(3, Some(333.0))]);
        // Figures end where the heads of their columns do.
        let end = |part: &str| text.lines().find_map(|line| Some(line.find(part)? + part.len()));
        assert_eq!(end("seed=3"), end("333"), "{text}");
        assert_eq!(end("seed=2"), end("FAILED"), "{text}");
        assert!(text.contains("shares, seed=2: FAILED: it panicked\n"), "{text}");
    }
}
