//! Results of `sim` for programs: JSON and CSV.
//!
//! # Why
//! The forms are contracts, so they stand in one place; docs/formats.md describes them.
//!
//! # How it works
//! Values are taken as they are, in the units that their names carry. Nothing that depends on the machine is in
//! them: the same seed gives the same bytes.
//!
//! # Limits
//! Numbers that are not finite are null in JSON and empty in CSV.
//!
//! # Example
//! `sim list --format json` is a list of objects with `name`, `title`, `seed_items` and `crate`.

use std::fmt::Write as _;

use plimsoll_sim::scenario::{Scenario, Series, Table, Target};
use serde_json::{Map, Value, json};

use super::run::{Finished, Measured};
use super::scenarios::crate_of;
use super::stats::Spread;
use super::surface::Surface;
use crate::units::csv_field;

/// The named scenarios.
#[must_use]
pub fn list_json(scenarios: &[Scenario]) -> String {
    let entry = |scenario: &Scenario| {
        let Scenario { name, title, seed_items, .. } = scenario;
        json!({"name": name, "title": title, "seed_items": seed_items, "crate": crate_of(name)})
    };
    pretty(&Value::Array(scenarios.iter().map(entry).collect()))
}

/// The named scenarios: name, title, items (joined by spaces), crate.
#[must_use]
pub fn list_csv(scenarios: &[Scenario]) -> String {
    let mut text = String::from("name,title,seed_items,crate\n");
    for scenario in scenarios {
        let items = scenario.seed_items.join(" ");
        let _ = writeln!(text, "{},{},{items},{}", scenario.name, csv_field(scenario.title), crate_of(scenario.name));
    }
    text
}

/// All runs, and the spreads where there were several seeds.
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

fn table(table: &Table) -> Value {
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
    // A tree of plain values always prints.
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A line for each figure of each run.
#[must_use]
pub fn runs_csv(finished: &[Finished]) -> String {
    let mut text = String::from("scenario,sweep,seed,figure,value,at_least,at_most,passed,log_hash\n");
    for run in finished {
        let Ok(result) = &run.result else { continue };
        let (name, sweep) = (csv_field(run.task.subject.name()), csv_field(&sweep_text(&run.task.changes)));
        for figure in &result.figures {
            let (least, most) = match figure.target {
                None => (String::new(), String::new()),
                Some(Target::AtMost(most)) => (String::new(), most.to_string()),
                Some(Target::AtLeast(least)) => (least.to_string(), String::new()),
                Some(Target::Between(least, most)) => (least.to_string(), most.to_string()),
            };
            let passed = figure.passed().map_or_else(String::new, |passed| passed.to_string());
            let value = finite(figure.value);
            let _ = writeln!(
                text,
                "{name},{sweep},{},{},{value},{least},{most},{passed},{:016x}",
                run.task.seed,
                csv_field(&figure.name),
                result.log_hash
            );
        }
    }
    text
}

/// What a sweep changed, as `parallelism=4 shards=2`.
#[must_use]
pub fn sweep_text(changes: &[(String, String)]) -> String {
    changes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Curves, a line for each point: `panel,curve,x,y`, under a header.
#[must_use]
pub fn series_csv(series: &[Series]) -> String {
    let mut text = String::from("panel,curve,x,y\n");
    for panel in series {
        for (curve, points) in &panel.curves {
            for (x, y) in points {
                let _ = writeln!(text, "{},{},{x},{}", csv_field(&panel.title), csv_field(curve), finite(*y));
            }
        }
    }
    text
}

/// A line for each cell; measured columns are empty where nothing was measured.
#[must_use]
pub fn surface_csv(surface: &Surface) -> String {
    let mut text = String::from("write_MBps,read_iops,p50_ms,p95_ms,model_p50_ms,model_p95_ms\n");
    for result in &surface.results {
        let ms = |ns: f64| format!("{:.4}", ns / 1e6);
        let measured = |ns: f64| if surface.comparison.is_some() { ms(ns) } else { String::new() };
        let cell = &result.cell;
        let _ = writeln!(
            text,
            "{},{},{},{},{},{}",
            cell.write_bytes_per_s / 1e6,
            cell.read_iops,
            measured(cell.p50_ns),
            measured(cell.p95_ns),
            ms(result.model_p50_ns),
            ms(result.model_p95_ns)
        );
    }
    text
}

/// The cells with what the simulated disk achieved, and the errors.
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
