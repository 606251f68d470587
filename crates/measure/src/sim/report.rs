//! Results of `sim` for programs: JSON and CSV.
//!
//! # Why
//! The forms are contracts, so they are defined in one place; docs/formats.md describes them.
//!
//! # How it works
//! Values are written unchanged, in the units that their names carry. They contain nothing that depends on the
//! machine: the same seed gives the same bytes.
//!
//! # Limits
//! Numbers that are not finite are null in JSON and empty in CSV.
//!
//! # Example
//! `sim list --format json` is a list of objects with `name`, `title`, `seed_items` and `crate`.

use plimsoll_show::table::{Column, Table, csv, fixed, known};
use plimsoll_sim::scenario::{self, Scenario, Series, Target};
use serde_json::{Map, Value, json};

use super::result::Measured;
use super::run::Finished;
use super::scenarios::crate_of;
use super::stats::Spread;
use super::surface::Surface;

/// Returns the named scenarios as JSON.
#[must_use]
pub fn list_json(scenarios: &[Scenario]) -> String {
    let entry = |scenario: &Scenario| {
        let Scenario { name, title, seed_items, .. } = scenario;
        json!({"name": name, "title": title, "seed_items": seed_items, "crate": crate_of(name)})
    };
    pretty(&Value::Array(scenarios.iter().map(entry).collect()))
}

/// Returns the named scenarios as CSV: name, title, items (joined by spaces), crate.
#[must_use]
pub fn list_csv(scenarios: &[Scenario]) -> String {
    let columns: &[Column<Scenario>] = &[
        ("name", |it| it.name.to_owned()),
        ("title", |it| it.title.to_owned()),
        ("seed_items", |it| it.seed_items.join(" ")),
        ("crate", |it| crate_of(it.name).to_owned()),
    ];
    csv(scenarios, columns)
}

/// Returns all runs as JSON, with the spreads if there were several seeds.
#[must_use]
pub fn runs_json(finished: &[Finished], spreads: &[Spread], interrupted: bool) -> String {
    pretty(&json!({
        "schema": 1,
        "plimsoll": env!("CARGO_PKG_VERSION"),
        "interrupted": interrupted,
        "passed": finished.iter().all(Finished::passed),
        "runs": finished.iter().map(run).collect::<Vec<_>>(),
        "seeds": spreads.iter().map(spread).collect::<Vec<_>>(),
    }))
}

fn run(finished: &Finished) -> Value {
    let task = &finished.task;
    let mut entry = json!({
        "name": task.subject.name(),
        "title": task.subject.title(),
        "seed": task.seed,
        "sweep": changes(&task.changes),
        "passed": finished.passed(),
        "error": finished.result.as_ref().err(),
    });
    if let (Ok(result), Some(map)) = (&finished.result, entry.as_object_mut()) {
        map.insert("figures".to_owned(), result.figures.iter().map(figure).collect());
        map.insert("tables".to_owned(), result.tables.iter().map(table).collect());
        map.insert("remarks".to_owned(), json!(result.remarks));
        map.insert("requests".to_owned(), json!(result.requests));
        map.insert("log_hash".to_owned(), json!(format!("{:016x}", result.log_hash)));
    }
    entry
}

fn changes(changes: &[(String, String)]) -> Value {
    Value::Object(changes.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>())
}

fn figure(figure: &Measured) -> Value {
    json!({
        "name": figure.name,
        "value": number(figure.value),
        "target": target(figure.target),
        "passed": figure.passed(),
    })
}

fn target(target: Option<Target>) -> Value {
    match target {
        None => Value::Null,
        Some(Target::AtMost(most)) => json!({"at_least": null, "at_most": number(most)}),
        Some(Target::AtLeast(least)) => json!({"at_least": number(least), "at_most": null}),
        Some(Target::Between(least, most)) => json!({"at_least": number(least), "at_most": number(most)}),
    }
}

fn table(table: &scenario::Table) -> Value {
    json!({"title": table.title, "columns": table.columns, "rows": table.rows})
}

fn spread(spread: &Spread) -> Value {
    json!({
        "name": spread.scenario,
        "sweep": changes(&spread.changes),
        "figure": spread.figure,
        "runs": spread.runs,
        "mean": number(spread.mean),
        "half_width_95": spread.half_width_95.map(number),
        "min": number(spread.min),
        "max": number(spread.max),
        "target": target(spread.target),
        "passed": spread.passed,
    })
}

fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn pretty(value: &Value) -> String {
    // A tree of plain values can always be printed.
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Returns a CSV line for each figure of each run.
#[must_use]
pub fn runs_csv(finished: &[Finished]) -> String {
    let bounds = |target| match target {
        None => (None, None),
        Some(Target::AtMost(most)) => (None, Some(most)),
        Some(Target::AtLeast(least)) => (Some(least), None),
        Some(Target::Between(least, most)) => (Some(least), Some(most)),
    };

    let rows = finished.iter().filter_map(|run| Some((run, run.result.as_ref().ok()?))).flat_map(|(run, result)| {
        result.figures.iter().map(move |figure| {
            let (least, most) = bounds(figure.target);
            [
                run.task.subject.name().to_owned(),
                sweep_text(&run.task.changes),
                run.task.seed.to_string(),
                figure.name.clone(),
                finite(figure.value),
                known(least),
                known(most),
                known(figure.passed()),
                format!("{:016x}", result.log_hash),
            ]
        })
    });

    let names = "scenario,sweep,seed,figure,value,at_least,at_most,passed,log_hash";
    Table::new("", names.split(','), rows).to_csv()
}

/// Returns the changes of a sweep as text: `parallelism=4 shards=2`.
#[must_use]
pub fn sweep_text(changes: &[(String, String)]) -> String {
    changes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Returns the curves as CSV, a line for each point: `panel,curve,x,y`, under a header.
#[must_use]
pub fn series_csv(series: &[Series]) -> String {
    let rows = series.iter().flat_map(|panel| panel.curves.iter().map(move |curve| (panel, curve)));
    let rows = rows.flat_map(|(panel, (curve, points))| {
        points.iter().map(move |(x, y)| [panel.title.clone(), curve.clone(), x.to_string(), finite(*y)])
    });
    Table::new("", ["panel", "curve", "x", "y"], rows).to_csv()
}

/// Returns a CSV line for each cell; columns of the measurement are empty without one.
#[must_use]
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

/// Returns the cells as JSON, with the rates that the simulated disk achieved, and the errors.
#[must_use]
pub fn surface_json(surface: &Surface) -> String {
    let ms = |ns: f64| number(ns / 1e6);
    let has_measured = surface.comparison.is_some();
    let measured = |ns: f64| if has_measured { ms(ns) } else { Value::Null };

    let cells = surface.results.iter().map(|result| {
        json!({
            "write_MBps": number(result.cell.write_bytes_per_s / 1e6),
            "read_iops": number(result.cell.read_iops),
            "p50_ms": measured(result.cell.p50_ns),
            "p95_ms": measured(result.cell.p95_ns),
            "model_p50_ms": ms(result.model_p50_ns),
            "model_p95_ms": ms(result.model_p95_ns),
            "achieved_write_MBps": number(result.achieved_write_bytes_per_s / 1e6),
            "achieved_read_iops": number(result.achieved_read_iops),
            "saturated": result.saturated,
        })
    });

    let errors = surface.comparison.as_ref().map(|comparison| {
        json!({
            "cells": surface.results.len(),
            "qualifying": comparison.qualifying,
            "p50_error_mean": number(comparison.p50_error_mean),
            "p50_error_p95": number(comparison.p50_error_p95),
            "p95_error_mean": number(comparison.p95_error_mean),
            "elsewhere": comparison.elsewhere,
            "outside": comparison.outside,
            "without_neighbours": comparison.without_neighbours,
            "saturated": comparison.saturated,
        })
    });

    pretty(&json!({"schema": 1, "cells": cells.collect::<Vec<_>>(), "errors": errors}))
}

fn finite(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}
