//! `--examine`: measures how compressible the real blocks of a file or device are.

use std::path::Path;

use plimsoll_figures::units::format_bytes_binary;
use plimsoll_measure::compressibility::{Examination, ExamineError, Options, examine};
use plimsoll_measure::load::Stop;
use plimsoll_measure::tune::Observer;

use super::arguments::TestArguments;
use crate::failure::{Failure, Outcome, as_json};
use crate::flags::TestFormat;
use crate::screen::Phases;
use crate::{interrupt, screen};

pub(super) fn run(path: &Path, arguments: &TestArguments) -> Result<Outcome, Failure> {
    if !matches!(arguments.format, TestFormat::Table | TestFormat::Json | TestFormat::Csv) {
        return Err(Failure::Input("--format: take table, json or csv for --examine".to_owned()));
    }

    let mut options = Options::default();
    if !arguments.block_size.is_empty() {
        options.block_bytes.clone_from(&arguments.block_size);
    }
    options.seed = arguments.seed.unwrap_or(options.seed);
    let stop = Stop::default();
    interrupt::stop_on_signal(&stop)?;
    let mut bar = Phases::of("reading and compressing");
    let examined = examine(path, &options, &stop, &mut |part| bar.on_progress(part));
    drop(bar);
    let examination = match examined {
        Err(error @ ExamineError::Interrupted) => {
            screen::note(&error.to_string());
            return Ok(Outcome::Interrupted);
        }
        examined => examined.map_err(|error| Failure::Input(format!("--examine: {error}")))?,
    };

    screen::print(&match arguments.format {
        TestFormat::Csv => examination.csv().to_csv(),
        TestFormat::Table => table(&examination),
        _ => as_json(&examination)?,
    })?;
    Ok(conclude(&examination, &options))
}

/// Prints to stderr the remarks that are not in the result. Returns the outcome.
fn conclude(examination: &Examination, options: &Options) -> Outcome {
    if examination.interrupted {
        screen::note("interrupted: the figures are of the blocks until then, from the first part of the data");
        return Outcome::Interrupted;
    }
    for bytes in &options.block_bytes {
        if examination.blocks.iter().all(|report| report.block_bytes != *bytes) {
            let length = format_bytes_binary(u64::from(*bytes));
            screen::note(&format!("blocks of {length} are left out: there is no whole one"));
        }
    }
    Outcome::Done
}

fn table(examination: &Examination) -> String {
    let mut text = String::new();
    for table in examination.tables() {
        text.push_str(&format!("{}\n{}\n\n", table.caption, screen::show(&table)));
    }
    text + &screen::wrap(&examination.summary()) + "\n"
}
