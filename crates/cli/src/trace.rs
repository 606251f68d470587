//! `plimsoll trace`: where the time of requests went.

mod diff;
mod export;
mod gaps;
mod kernel;
mod little;
mod show;
mod stages;

use std::path::Path;

use clap::{Args, Subcommand, ValueEnum};
use plimsoll_tools::trace::{self, span::Item, span::Trace};

use crate::failure::{Failure, Outcome};
use crate::screen;

/// See where the time of requests went: in the queue, in the kernel, in the disk, or done and unseen
///
/// Traces are what `--trace FILE` recorded, what blktrace recorded (binary), and what blkparse printed; `-` is standard
/// input.
#[derive(Args, Debug)]
pub(crate) struct TraceArguments {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand, Debug)]
enum TraceCommand {
    Gaps(gaps::GapsArguments),
    Little(little::LittleArguments),
    Diff(diff::DiffArguments),
    Export(Box<export::ExportArguments>),
    Kernel(Box<kernel::KernelArguments>),
    Show(show::ShowArguments),
    Stages(stages::StagesArguments),
}

pub(crate) fn run(arguments: &TraceArguments) -> Result<Outcome, Failure> {
    match &arguments.command {
        TraceCommand::Gaps(arguments) => gaps::run(arguments),
        TraceCommand::Little(arguments) => little::run(arguments),
        TraceCommand::Diff(arguments) => diff::run(arguments),
        TraceCommand::Export(arguments) => export::run(arguments),
        TraceCommand::Kernel(arguments) => kernel::run(arguments),
        TraceCommand::Show(arguments) => show::run(arguments),
        TraceCommand::Stages(arguments) => stages::run(arguments),
    }
}

/// Format of what an analysis prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Table,
    /// For programs; the schema is in docs/formats.md.
    Json,
    /// A line for each row.
    Csv,
}

impl ReportFormat {
    /// Prints a report in this form. Each form is made only if it is asked for.
    fn print(
        self,
        table: impl FnOnce() -> String,
        json: impl FnOnce() -> serde_json::Result<String>,
        csv: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let text = match self {
            ReportFormat::Table => table(),
            ReportFormat::Json => json().map_err(|error| Failure::Machine(format!("cannot write JSON: {error}")))?,
            ReportFormat::Csv => csv(),
        };
        Ok(screen::print(&text)?)
    }
}

/// Hands a trace to `visit`; what is missing in it goes to stderr.
pub(crate) fn read(path: &Path, visit: &mut dyn FnMut(Item)) -> Result<Trace, Failure> {
    let trace = trace::read(path, visit).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    trace.lost.iter().for_each(|sentence| screen::warning(&format!("{}: {sentence}", path.display())));
    Ok(trace)
}
