//! The work of `plimsoll depot`.
//!
//! # Why
//! A fleet's files come in thousands, and one damaged file must not keep the others out.
//!
//! # How it works
//! Files are stored one after another; the reason why one is not stored goes to stderr and into the JSON. If only one
//! file is named, its error is the command's.
//!
//! # Limits
//! Files are stored one at a time: run several processes for several CPUs, each with its own files.
//!
//! # Example
//! `plimsoll depot depot run.plt --host db1` prints a row for `spans` and one for `hist`.

use std::path::Path;

use plimsoll_figures::units::{format_bytes_binary, format_count};
use plimsoll_measure::depot::{Options, StoreError, parse_time, store};
use plimsoll_observe::depot::{DepotError, Root, Written};
use plimsoll_show::table::{Column, csv};
use serde_json::{Value, json};

use super::DepotArguments;
use crate::failure::{Failure, Outcome};
use crate::{screen, stat};

/// A source file, and a file that was stored from it.
type Row = (String, Written);

pub(crate) fn run(arguments: &DepotArguments) -> Result<Outcome, Failure> {
    let DepotArguments { depot, files, host, at, no_spans, by_hour, capacity, format } = arguments;
    if depot.is_file() {
        let message = format!("{} is a file: name the directory of the depot before the files", depot.display());
        return Err(Failure::Input(message));
    }
    let at_unix_ns = at.as_deref().map(parse_time).transpose().map_err(Failure::Input)?;
    let options = Options { host: host.clone(), at_unix_ns, no_spans: *no_spans, by_hour: *by_hour };
    let root = Root::parse(depot).map_err(|error| Failure::Input(error.to_string()))?;
    // Read the capacities once, so that their warnings are printed once.
    let unused = stat::watch(capacity, &[], None)?;

    let mut rows: Vec<Row> = Vec::new();
    let mut failed = Vec::new();
    for file in files {
        // Disks of one recording say nothing about those of another: start from an unused watch.
        let mut watch = unused.clone();
        let name = file.display().to_string();
        match store(&root, file, &options, &mut watch) {
            Ok(stored) => {
                // The readers of recordings have put the file into their notes.
                let said = |note: &str| note.strip_prefix(&format!("{name}: ")).unwrap_or(note).to_owned();
                stored.notes.iter().for_each(|note| screen::warning(&format!("{name}: {}", said(note))));
                if stored.files.is_empty() {
                    screen::warning(&format!("{name}: there is nothing in it that a depot keeps"));
                }
                rows.extend(stored.files.into_iter().map(|written| (name.clone(), written)));
            }
            Err(error) if files.len() > 1 => {
                screen::error(&error.to_string());
                failed.push(error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }

    format.print(|| table(depot, &rows), &json(depot, &rows, &failed), || csv(&rows, COLUMNS))?;
    Ok(if failed.is_empty() { Outcome::Done } else { Outcome::Finding })
}

/// Formats the rows with the places inside of the depot, which begin with the table.
fn table(depot: &Path, rows: &[Row]) -> String {
    let row = |(file, written): &Row| {
        let Written { path, rows, len_bytes, .. } = written;
        let inside = path.strip_prefix(depot).unwrap_or(path);
        vec![file.clone(), format_count(*rows), format_bytes_binary(*len_bytes), inside.display().to_string()]
    };
    let below = format!("below {}", depot.display());
    screen::table(&["file", "rows", "length", &below], rows.iter().map(row).collect())
}

const COLUMNS: &[Column<Row>] = &[
    ("file", |(file, _)| file.clone()),
    ("table", |(_, it)| it.table.name().to_owned()),
    ("rows", |(_, it)| it.rows.to_string()),
    ("len_bytes", |(_, it)| it.len_bytes.to_string()),
    ("stored_as", |(_, it)| it.path.display().to_string()),
];

fn json(depot: &Path, rows: &[Row], failed: &[String]) -> Value {
    let file = |(file, written): &Row| {
        let Written { table, path, rows, len_bytes } = written;
        let stored_as = path.display().to_string();
        json!({"file": file, "table": table.name(), "rows": rows, "len_bytes": len_bytes, "stored_as": stored_as})
    };
    let files: Vec<Value> = rows.iter().map(file).collect();
    json!({"schema": 1, "depot": depot.display().to_string(), "files": files, "failed": failed})
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match &error {
            StoreError::Depot { error: DepotError::Io { .. } | DepotError::Bucket { .. }, .. } => {
                Failure::Machine(error.to_string())
            }
            _ => Failure::Input(error.to_string()),
        }
    }
}
