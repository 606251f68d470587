//! Results of `sim` for programs: JSON and CSV.
//!
//! **Why.** The forms are contracts, so they are defined in one place; docs/formats.md describes them.
//!
//! **How.** Values are written unchanged, in the units of their names. No value depends on the machine: the same seed
//! gives the same bytes.
//!
//! **Limits.** Numbers that are not finite are null in JSON and empty in CSV.
//!
//! **Example.** `sim list --format json` is a list of objects with `name`, `title`, `seed_items` and `crate`.

use plimsoll_show::table::{Column, Table, csv, fixed, known};
use plimsoll_sim::scenario::{Scenario, Series};
use plimsoll_sim::surface::CellResult;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::form::{RunForm, SCHEMA};
use super::parts::PartForm;
use super::run::{Finished, words};
use super::scenarios::crate_of;
use super::stats::Spread;
use super::surface::Surface;

/// Refuses the JSON of a part, which is no result.
pub(crate) fn check_is_whole(value: &Value) -> Result<(), String> {
    match value.get("part") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err("it is one part of a simulation's runs: join the parts with `plimsoll sim merge`".to_owned()),
    }
}

pub fn list_json(scenarios: &[Scenario]) -> Value {
    let entry = |scenario: &Scenario| {
        let Scenario { name, title, seed_items, .. } = scenario;
        json!({"name": name, "title": title, "seed_items": seed_items, "crate": crate_of(name)})
    };
    Value::Array(scenarios.iter().map(entry).collect())
}

/// Returns the named scenarios as CSV: name, title, items (joined by spaces), crate.
pub fn list_csv(scenarios: &[Scenario]) -> String {
    let columns: &[Column<Scenario>] = &[
        ("name", |it| it.name.to_owned()),
        ("title", |it| it.title.to_owned()),
        ("seed_items", |it| it.seed_items.join(" ")),
        ("crate", |it| crate_of(it.name).to_owned()),
    ];
    csv(scenarios, columns)
}

/// All runs, as `sim run` prints them. The fields, and those of [`RunForm`], are in alphabetical order, like the keys of
/// all other JSON: a tree of values of ten thousand runs would take longer than the text.
#[derive(Serialize)]
struct RunsForm<'a> {
    interrupted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Value>,
    passed: bool,
    plimsoll: &'a str,
    #[serde(serialize_with = "forms")]
    runs: &'a [Finished],
    schema: u64,
    seeds: Value,
}

fn forms<S: Serializer>(runs: &[Finished], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(runs.iter().map(RunForm::of))
}

/// Returns all runs as JSON, with the spreads if there were several seeds. `part` describes the part, if the runs are
/// not all.
pub fn runs_json(
    finished: &[Finished],
    spreads: &[Spread],
    interrupted: bool,
    part: Option<&PartForm>,
) -> impl Serialize {
    RunsForm {
        interrupted,
        part: part.map(|part| json!(part)),
        passed: finished.iter().all(Finished::passed),
        plimsoll: env!("CARGO_PKG_VERSION"),
        runs: finished,
        schema: SCHEMA,
        seeds: json!(spreads),
    }
}

pub fn runs_csv(finished: &[Finished]) -> String {
    let rows = finished.iter().filter_map(|run| Some((run, run.result.as_ref().ok()?))).flat_map(|(run, result)| {
        result.figures.iter().map(move |figure| {
            let bounds = figure.target.unwrap_or_default();
            [
                run.name.clone(),
                sweep_text(&run.changes),
                run.seed.to_string(),
                figure.name.clone(),
                known(figure.value),
                known(bounds.at_least),
                known(bounds.at_most),
                known(figure.passed),
                format!("{:016x}", result.log_hash),
            ]
        })
    });

    let names = "scenario,sweep,seed,figure,value,at_least,at_most,passed,log_hash";
    Table::new("", names.split(','), rows).to_csv()
}

/// Returns the changes of a sweep as text: `parallelism=4 shards=2`.
pub fn sweep_text(changes: &[(String, String)]) -> String {
    words(changes).collect::<Vec<_>>().join(" ")
}

/// Returns the curves as CSV, a line for each point: `panel,curve,x,y`, under a header.
pub fn series_csv(series: &[Series]) -> String {
    let rows = series.iter().flat_map(|panel| panel.curves.iter().map(move |curve| (panel, curve)));
    let rows = rows.flat_map(|(panel, (curve, points))| {
        points.iter().map(move |(x, y)| [panel.title.clone(), curve.clone(), x.to_string(), finite(*y)])
    });
    Table::new("", ["panel", "curve", "x", "y"], rows).to_csv()
}

/// Returns a CSV line for each cell; columns of the measurement are empty without one.
pub fn surface_csv(surface: &Surface) -> String {
    let rows = surface.results.iter().map(|result| {
        let ms = |ns: f64| fixed(ns / 1e6, 4);
        let measured = |ns: f64| if surface.comparison.is_some() { ms(ns) } else { String::new() };
        let cell = &result.cell;
        let load = [cell.write_bytes_per_s / 1e6, cell.read_iops].map(|rate| rate.to_string());
        let model = [result.model_p50_ns, result.model_p95_ns].map(ms);
        [load, [cell.p50_ns, cell.p95_ns].map(measured), model].concat()
    });
    Table::new("", "write_MBps,read_iops,p50_ms,p95_ms,model_p50_ms,model_p95_ms".split(','), rows).to_csv()
}

/// One cell in the JSON of `sim surface`.
#[derive(Serialize, Deserialize)]
pub(crate) struct CellForm {
    #[serde(rename = "write_MBps")]
    pub(crate) write_mbps: f64,
    pub(crate) read_iops: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    pub(crate) model_p50_ms: Option<f64>,
    pub(crate) model_p95_ms: Option<f64>,
    #[serde(rename = "achieved_write_MBps")]
    achieved_write_mbps: Option<f64>,
    achieved_read_iops: Option<f64>,
    #[serde(default)]
    pub(crate) saturated: bool,
}

/// Returns the cells as JSON, with the rates that the simulated disk achieved, and the errors.
pub fn surface_json(surface: &Surface) -> Value {
    let has_measured = surface.comparison.is_some();
    let measured_ms = |ns: f64| has_measured.then_some(ns / 1e6);
    let cell = |result: &CellResult| CellForm {
        write_mbps: result.cell.write_bytes_per_s / 1e6,
        read_iops: result.cell.read_iops,
        p50_ms: measured_ms(result.cell.p50_ns),
        p95_ms: measured_ms(result.cell.p95_ns),
        model_p50_ms: Some(result.model_p50_ns / 1e6),
        model_p95_ms: Some(result.model_p95_ns / 1e6),
        achieved_write_mbps: Some(result.achieved_write_bytes_per_s / 1e6),
        achieved_read_iops: Some(result.achieved_read_iops),
        saturated: result.saturated,
    };

    let errors = surface.comparison.as_ref().map(|comparison| {
        json!({
            "cells": surface.results.len(),
            "qualifying": comparison.qualifying,
            "p50_error_mean": comparison.p50_error_mean,
            "p50_error_p95": comparison.p50_error_p95,
            "p95_error_mean": comparison.p95_error_mean,
            "elsewhere": comparison.elsewhere,
            "outside": comparison.outside,
            "without_neighbours": comparison.without_neighbours,
            "saturated": comparison.saturated,
        })
    });

    let cells: Vec<CellForm> = surface.results.iter().map(cell).collect();
    json!({"schema": 1, "cells": cells, "errors": errors})
}

fn finite(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}
