//! The program `plimsoll-kv`: flags and exit codes.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plimsoll_kv::failure::{Failure, tell};
use plimsoll_kv::serve::{ServeArguments, serve};
use plimsoll_kv::story::{StoryArguments, story};
use plimsoll_kv::stress::stress;

/// A key-value server whose database has six classes of disk I/O, its client, and its stories.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 done; 1 operations failed; 2 bad input; 3 this machine cannot do it; 130 interrupted."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the Redis protocol (GET SET MGET DEL SCAN PING ECHO INFO CONFIG COMMAND QUIT)
    Serve(ServeArguments),
    /// Shows the effect of the scheduler: the same load drained, with static shares, with controllers
    Story(StoryArguments),
    /// Measures a server, with cassandra-stress's syntax (`stress` alone shows it)
    #[command(disable_help_flag = true)]
    Stress {
        /// The load: write, read or mixed, and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime.map_err(|error| Failure::machine("cannot start threads", error)).and_then(|runtime| {
        runtime.block_on(async {
            match &arguments.command {
                Command::Serve(arguments) => serve(arguments).await,
                Command::Story(arguments) => story(arguments).await,
                Command::Stress { words } => stress(words),
            }
        })
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell(format_args!("plimsoll-kv: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}
