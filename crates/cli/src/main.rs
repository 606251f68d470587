//! The `plimsoll` command: parses the arguments and runs a subcommand. Each subcommand has its own file.
//!
//! Exit codes: 0 done; 1 done, and a finding or figure says no; 2 bad input or usage; 3 this machine cannot measure or
//! run it; 130 interrupted (results so far have been printed, scratch files removed).

mod attach;
mod cache;
mod compare;
mod demo;
mod depot;
mod examples;
mod extension;
mod failure;
mod flags;
mod info;
mod instance;
mod interrupt;
mod output;
mod presets;
mod recording;
mod report;
mod run;
mod screen;
mod serve;
mod sim;
mod stat;
mod test;
mod trace;
mod tune;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use failure::{INTERRUPTED, Outcome};

/// Measure a disk, run loads through a scheduler that knows its limits, and see what scheduling did.
#[derive(Parser)]
#[command(name = "plimsoll", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done; 1 done, and a finding or figure says no; 2 bad input or usage; 3 this machine \
                        cannot measure or run it; 130 interrupted."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// For commands that judge: print each warning at once, instead of the number of warnings at the end
    #[arg(long, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArguments),
    Tune(Box<tune::TuneArguments>),
    Test(Box<test::TestArguments>),
    Compare(compare::CompareArguments),
    Sim(sim::SimArguments),
    Trace(trace::TraceArguments),
    Run(Box<run::RunArguments>),
    Attach(attach::AttachArguments),
    Stat(Box<stat::StatArguments>),
    Serve(Box<serve::ServeArguments>),
    Report(report::ReportArguments),
    Depot(depot::DepotArguments),
    Info(info::InfoArguments),
    Instance(instance::InstanceArguments),
    Cache(cache::CacheArguments),
    Presets(presets::PresetsArguments),
}

impl Command {
    /// Returns whether the command ends with a judgement, so that warnings can wait for it.
    fn judges(&self) -> bool {
        match self {
            Command::Stat(arguments) => arguments.is_of_files(),
            Command::Tune(_)
            | Command::Test(_)
            | Command::Compare(_)
            | Command::Trace(_)
            | Command::Report(_)
            | Command::Info(_) => true,
            _ => false,
        }
    }
}

/// Reads `-5` after a flag as its value, so that the error says what is expected instead of suggesting `-- -5`.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let takes_value = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_value)
    });
    command.mut_subcommands(with_negative_numbers)
}

fn main() -> ExitCode {
    let command = with_negative_numbers(examples::with_examples(Arguments::command()));
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return extension::run_or_exit(&error),
    };
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());

    if arguments.command.judges() && !arguments.verbose {
        screen::fold_warnings();
    }
    let end = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Attach(arguments) => attach::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Depot(arguments) => depot::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Instance(arguments) => instance::run(&arguments),
        Command::Cache(arguments) => cache::run(&arguments),
        Command::Presets(arguments) => presets::run(&arguments),
    };

    screen::print_folded();
    match end {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Finding) => ExitCode::from(1),
        Ok(Outcome::Interrupted) => ExitCode::from(INTERRUPTED),
        Ok(Outcome::OfProgram(code)) => ExitCode::from(code),
        Err(failure) => {
            // A reader that has read enough closes the pipe: not an error.
            if !failure.is_broken_pipe() {
                screen::error(&failure.to_string());
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
