//! Commands in separate programs: `plimsoll NAME` runs `plimsoll-NAME`.
//!
//! **Why.** `plimsoll query` contains an SQL engine, which the plain program must not include.
//!
//! **How.** If the first word is not a command, `plimsoll-NAME` is searched for beside this program, then on PATH.
//!
//! **Limits.** `plimsoll --help` does not list these programs. The name comes first, before any flag.
//!
//! **Example.** `plimsoll query latency` runs `plimsoll-query latency`.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::screen;

/// Runs the program that the arguments name, in place of this one, or ends with clap's own error.
pub(crate) fn run_or_exit(error: &clap::Error) -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(path) = words.next().and_then(|first| find(&first, error)) else { error.exit() };

    let failed = Command::new(&path).args(words).exec();
    screen::error(&format!("{}: cannot run it: {failed}", path.display()));
    ExitCode::from(3)
}

/// Returns the program for the first word, if clap rejected that word as an unknown command.
fn find(first: &OsStr, error: &clap::Error) -> Option<PathBuf> {
    let unknown = error.get(ContextKind::InvalidSubcommand).filter(|_| error.kind() == ErrorKind::InvalidSubcommand);
    let Some(ContextValue::String(name)) = unknown else { return None };
    if first != name.as_str() || name.contains('/') {
        return None;
    }

    let file = format!("plimsoll-{name}");
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = beside.into_iter().chain(std::env::split_paths(&path));
    directories.map(|directory| directory.join(&file)).find(|path| path.is_file())
}
