//! `plimsoll trace`: shows where the time of requests went.

mod diff;
mod export;
mod gaps;
mod kernel;
mod little;
mod show;
mod stages;

use std::path::Path;

use clap::{Args, Subcommand};
use plimsoll_observe::trace;
use plimsoll_observe::trace::span::{Item, Trace};

use crate::failure::{Failure, Outcome};
use crate::screen;

/// Show where the time of requests went: in the queue, in the kernel, in the disk, or done and unseen
///
/// Takes traces that `--trace FILE` recorded, binary traces of blktrace, and output of blkparse; `-` is standard input.
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

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// Returns whose answer stands above the parts of several disks, or an empty text if there is one.
fn one_of(disk: &str, disks: usize) -> String {
    if disks == 1 { String::new() } else { format!(" of {disk} (one of {disks} disks)") }
}

/// Returns a line about what is beyond the first `shown`, or an empty text if there is nothing.
fn further(count: usize, shown: usize, what: &str) -> String {
    match count.saturating_sub(shown) {
        0 => String::new(),
        further => format!("\n{further} more {what}"),
    }
}

/// Passes a trace to `visit`. Prints to stderr the events that it lost and the requests that it leaves open.
pub(crate) fn read(path: &Path, visit: &mut dyn FnMut(Item)) -> Result<Trace, Failure> {
    let trace = trace::read(path, visit).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    trace.remarks().for_each(|sentence| screen::warning(&format!("{}: {sentence}", path.display())));
    Ok(trace)
}
