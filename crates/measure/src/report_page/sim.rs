//! Results of the simulator as sections.
//!
//! **Why.** A scenario's tables and figures belong beside measurements.
//!
//! **How.** Reads the documented keys of `sim run --format json` and `sim surface --format json`; leaves out missing
//! ones.
//!
//! **Limits.** Curves are not in the JSON: `sim run --svg DIR` draws them.
//!
//! **Example.** A run becomes a section with its figures, targets and verdicts, its tables and its remarks.

use plimsoll_figures::units::format_figure;
use plimsoll_show::page::{Block, Section};
use plimsoll_show::plot::{Axis, Chart, Layer, Point, Unit};
use plimsoll_show::table::Table;
use serde::Deserialize;
use serde_json::Value;

use super::{Content, Kind};
use crate::sim::form::RunForm;
use crate::sim::report::{CellForm, check_is_whole};
use crate::sim::result::{self, Measured};

/// Newest readable schema of both results.
const SCHEMA: u64 = 1;

#[derive(Deserialize)]
struct RunsFile {
    #[serde(default)]
    interrupted: bool,
    runs: Vec<RunForm>,
}

#[derive(Deserialize)]
struct SurfaceFile {
    cells: Vec<CellForm>,
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value, what: &str) -> Result<T, String> {
    match value.get("schema").and_then(Value::as_u64) {
        Some(1..=SCHEMA) => {
            serde_json::from_value(value.clone()).map_err(|error| format!("this {what} is damaged: {error}"))
        }
        Some(found) => Err(format!("this {what} has schema {found}, known is up to {SCHEMA}: use a newer plimsoll")),
        None => Err(format!("this {what} has no `schema`: run it again with this version")),
    }
}

/// Returns the runs of a simulation, and whether it was interrupted.
pub(crate) fn runs(value: &Value) -> Result<(Vec<RunForm>, bool), String> {
    check_is_whole(value)?;
    let RunsFile { interrupted, runs } = typed(value, "result of a simulation")?;
    Ok((runs, interrupted))
}

pub(super) fn of_runs(file: &str, value: &Value) -> Result<Content, String> {
    let (runs, interrupted) = runs(value)?;
    let mut content = Content::new(Kind::Sim, format!("Simulation {file}"), runs.iter().map(section).collect());
    if interrupted {
        content.notes.push("The simulation was interrupted: there are results of what was done until then.".to_owned());
    }
    Ok(content)
}

fn section(run: &RunForm) -> Section {
    let sweep: String = run.changes().map(|change| format!(", {change}")).collect();
    let mut blocks = Vec::new();
    if !run.title.is_empty() {
        blocks.push(Block::Text(run.title.clone()));
    }

    blocks.push(Block::Warnings(run.error.iter().map(|error| format!("It failed: {error}")).collect()));
    if let Some(figures) = run.figures.as_ref().filter(|figures| !figures.is_empty()) {
        let rows = figures.iter().map(figure_row);
        blocks.push(Table::new("Figures", ["figure", "value", "target", "verdict"], rows).into());
    }

    let table =
        |table: &result::Table| Block::Table(Table::new(&table.title, &table.columns, table.rows.iter().cloned()));
    blocks.extend(run.tables.iter().flatten().map(table));
    blocks.extend(run.remarks.iter().flatten().cloned().map(Block::Text));

    if let (Some(requests), Some(hash)) = (run.requests, &run.log_hash) {
        let requests = plimsoll_figures::units::format_count(requests);
        blocks.push(Block::Text(format!("{requests} requests, hash of the event log {hash}.")));
    }
    Section { heading: format!("{}, seed {}{sweep}", run.name, run.seed), blocks }
}

fn figure_row(figure: &Measured) -> Vec<String> {
    let bounds = figure.target.as_ref().map(|target| (target.at_least, target.at_most));
    let target = match bounds {
        Some((Some(least), Some(most))) => format!("{} to {}", format_figure(least), format_figure(most)),
        Some((Some(least), None)) => format!("at least {}", format_figure(least)),
        Some((None, Some(most))) => format!("at most {}", format_figure(most)),
        _ => String::new(),
    };

    let verdict = match figure.passed {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None => "",
    };
    vec![figure.name.clone(), format_figure(figure.number()), target, verdict.to_owned()]
}

pub(super) fn of_surface(file: &str, value: &Value) -> Result<Content, String> {
    let SurfaceFile { cells } = typed(value, "surface")?;
    let is_measured = cells.iter().any(|cell| cell.p50_ms.is_some());
    let ms = |ms: Option<f64>| ms.map_or_else(|| "n/a".to_owned(), |ms| format!("{} ms", format_figure(ms)));

    let row = |cell: &CellForm| {
        let mut row = vec![format_figure(cell.write_mbps), format_figure(cell.read_iops)];
        if is_measured {
            row.extend([ms(cell.p50_ms), ms(cell.p95_ms)]);
        }
        row.extend([ms(cell.model_p50_ms), ms(cell.model_p95_ms)]);
        row.push(if cell.saturated { "saturated".to_owned() } else { String::new() });
        row
    };

    let measured: &[&str] = if is_measured { &["p50", "p95"] } else { &[] };
    let headers = [&["writes, MB/s", "reads a second"], measured, &["model p50", "model p95", "state"]].concat();
    let table = Table::new("Cells", headers, cells.iter().map(row));
    let blocks = [Block::Picture(vec![chart(&cells)]), table.into()];

    let sections = vec![Section::new("Latency of reads beside writes", blocks)];
    Ok(Content::new(Kind::Surface, format!("Surface {file}"), sections))
}

/// Draws the median of the model, and the measured one if known, by the rate of reads.
fn chart(cells: &[CellForm]) -> Chart {
    let of = |name: &str, ms: fn(&CellForm) -> Option<f64>| Layer::Points {
        name: name.to_owned(),
        points: cells.iter().filter_map(|cell| Some(Point::new(cell.read_iops, ms(cell)? * 1e6))).collect(),
    };
    Chart::new(
        "Median latency of reads",
        Axis::linear("reads a second", Unit::PerSecond),
        Axis::log10("latency", Unit::Nanoseconds),
        vec![of("measured", |cell| cell.p50_ms), of("model", |cell| cell.model_p50_ms)],
    )
}
