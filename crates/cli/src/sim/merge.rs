//! `plimsoll sim merge`.

use std::path::Path;

use clap::Args;
use plimsoll_files::bounded::{RESULT_MAX_BYTES, read_text};
use plimsoll_measure::sim::parts::merge;
use plimsoll_measure::sim::run::Finished;

use super::output::Form;
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;

/// Merge the parts of a run (`plimsoll sim run --part`) into one result
///
/// The result, its bytes and the exit code are those of one process that ran everything.
#[derive(Args, Debug)]
pub(crate) struct MergeArguments {
    /// Output of each part, in any order
    #[arg(value_name = "PART.json", required = true)]
    parts: Vec<String>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(crate) fn run(arguments: &MergeArguments) -> Result<Outcome, Failure> {
    let read = |path: &String| match read_text(Path::new(path), RESULT_MAX_BYTES) {
        Ok(text) => Ok((path.clone(), text)),
        Err(error) => Err(Failure::Input(format!("{path}: cannot be read: {error}"))),
    };
    let files: Vec<_> = arguments.parts.iter().map(read).collect::<Result<_, _>>()?;
    let merged = merge(&files).map_err(Failure::Input)?;

    let form = Form { format: arguments.format, plan: &merged.plan, part: None };
    if form.has_runs() {
        for (at, finished) in merged.finished.iter().enumerate() {
            form.print_run(finished, at == 0)?;
        }
    }
    form.print(&merged.finished, false)?;
    Ok(if merged.finished.iter().all(Finished::passed) { Outcome::Done } else { Outcome::Finding })
}
