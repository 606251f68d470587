//! `plimsoll sim`: scenarios on virtual time, and disk models from measurements.

mod list;
mod merge;
mod model;
mod output;
mod progress;
mod run;

use clap::{Args, Subcommand};

use crate::failure::{Failure, Outcome};

/// Run scenarios on simulated disks, and make models of real ones
///
/// The scheduler is the same as on a real disk; shards, disks and time are simulated. The same seed gives the same
/// result on every machine.
#[derive(Args, Debug)]
pub(crate) struct SimArguments {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand, Debug)]
enum SimCommand {
    List(list::ListArguments),
    Run(run::RunArguments),
    Merge(merge::MergeArguments),
    Fit(model::FitArguments),
    Surface(model::SurfaceArguments),
}

pub(crate) fn run(arguments: &SimArguments) -> Result<Outcome, Failure> {
    match &arguments.command {
        SimCommand::List(arguments) => list::run(arguments),
        SimCommand::Run(arguments) => run::run(arguments),
        SimCommand::Merge(arguments) => merge::run(arguments),
        SimCommand::Fit(arguments) => model::fit(arguments),
        SimCommand::Surface(arguments) => model::surface(arguments),
    }
}
