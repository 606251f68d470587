//! `plimsoll instance`: which machine suits which work.

mod card;
mod claims;
mod compare;
mod scaling;

use clap::{Args, Subcommand};

use crate::failure::{Failure, Outcome};

/// Which machine for which work: characterise this one, compare, scale, check what others claim
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
