//! `plimsoll instance`: which machine suits which workload.

mod card;
mod claims;
mod compare;
mod scaling;

use clap::{Args, Subcommand};

use crate::failure::{Failure, Outcome};

/// Choose machines for a workload: measure this one, compare, check how families scale, check published claims
#[derive(Args, Debug)]
pub(crate) struct InstanceArguments {
    #[command(subcommand)]
    command: InstanceCommand,
}

#[derive(Subcommand, Debug)]
enum InstanceCommand {
    Card(Box<card::CardArguments>),
    Compare(compare::CompareArguments),
    Scaling(scaling::ScalingArguments),
    Claims(claims::ClaimsArguments),
}

pub(crate) fn run(arguments: &InstanceArguments) -> Result<Outcome, Failure> {
    match &arguments.command {
        InstanceCommand::Card(arguments) => card::run(arguments),
        InstanceCommand::Compare(arguments) => compare::run(arguments),
        InstanceCommand::Scaling(arguments) => scaling::run(arguments),
        InstanceCommand::Claims(arguments) => claims::run(arguments),
    }
}
