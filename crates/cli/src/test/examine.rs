//! `--examine`: measures how compressible the real blocks of a file or device are.

use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_figures::units::format_bytes_binary;
use plimsoll_measure::compressibility::{Examination, ExamineError, Options, examine};
use plimsoll_measure::load::Stop;
use plimsoll_measure::tune::Observer;

use super::arguments::TestArguments;
use crate::failure::{Failure, Outcome, as_json};
use crate::flags::TestFormat;
use crate::screen::Phases;
use crate::{interrupt, screen};

/// Time before a bar is shown.
const PATIENCE: Duration = Duration::from_secs(2);

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
    let mut progress = Progress { begin: Instant::now(), bar: None };
    let examined = examine(path, &options, &stop, &mut |part| progress.show(part));
    drop(progress);
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

/// A bar on a terminal, shown only if the work takes a while.
struct Progress {
    begin: Instant,
    bar: Option<Phases>,
}

impl Progress {
    fn show(&mut self, part: f64) {
        if self.bar.is_none() && self.begin.elapsed() > PATIENCE {
            let mut bar = Phases::new();
            bar.on_phase("reading and compressing", 0.0);
            self.bar = Some(bar);
        }
        if let Some(bar) = &mut self.bar {
            bar.on_progress(part);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}
