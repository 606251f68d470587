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

use std::collections::BTreeMap;

use plimsoll_show::table::{Column, Table, csv, fixed, known};
use plimsoll_sim::scenario::{Scenario, Series};
use plimsoll_sim::surface::CellResult;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::parts::PartForm;
use super::result::{Measured, RunResult, Table as ResultTable};
use super::run::{Finished, words};
use super::scenarios::crate_of;
use super::stats::Spread;
use super::surface::Surface;

/// The schema of the JSON of `sim run`.
pub(crate) const SCHEMA: u64 = 1;

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

/// One run in the JSON of `sim run`. Fields of a successful run are `None` in a failed one.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunForm {
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) figures: Option<Vec<Measured>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_hash: Option<String>,
    pub(crate) name: String,
    #[serde(skip_deserializing)]
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remarks: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) sweep: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tables: Option<Vec<ResultTable>>,
    #[serde(default)]
    pub(crate) title: String,
}

impl RunForm {
    fn of(finished: &Finished) -> RunForm {
        let result = finished.result.as_ref().ok();
        RunForm {
            error: finished.result.as_ref().err().cloned(),
            figures: result.map(|result| result.figures.clone()),
            log_hash: result.map(|result| format!("{:016x}", result.log_hash)),
            name: finished.name.clone(),
            passed: finished.passed(),
            remarks: result.map(|result| result.remarks.clone()),
            requests: result.map(|result| result.requests),
            seed: finished.seed,
            sweep: finished.changes.iter().map(|(key, value)| (key.clone(), json!(value))).collect(),
            tables: result.map(|result| result.tables.clone()),
            title: finished.title.clone(),
        }
    }

    /// Returns the run that has this form. `sweep` are the swept keys in their order.
    pub(super) fn finished(self, sweep: &[String]) -> Result<Finished, String> {
        let damaged = {
            let name = self.name.clone();
            move |key: &str| format!("a run of {name} has no `{key}`: the file is damaged")
        };

        let change = |key: &String| Some((key.clone(), self.sweep.get(key)?.as_str()?.to_owned()));
        let changes = sweep.iter().map(change).collect::<Option<_>>().ok_or_else(|| damaged("sweep"))?;

        let result = match self.error {
            Some(error) => Err(error),
            None => {
                let hash = self.log_hash.as_deref().and_then(|digits| u64::from_str_radix(digits, 16).ok());
                Ok(RunResult {
                    log_hash: hash.ok_or_else(|| damaged("log_hash"))?,
                    requests: self.requests.ok_or_else(|| damaged("requests"))?,
                    figures: self.figures.unwrap_or_default(),
                    tables: self.tables.unwrap_or_default(),
                    remarks: self.remarks.unwrap_or_default(),
                    series: Vec::new(),
                })
            }
        };

        Ok(Finished { name: self.name, title: self.title, changes, seed: self.seed, result, elapsed_s: 0.0 })
    }

    /// Returns the changes of the sweep, a `KEY=VALUE` each.
    pub(crate) fn changes(&self) -> impl Iterator<Item = String> {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.sweep.iter().map(move |(key, value)| format!("{key}={}", plain(value)))
    }
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
