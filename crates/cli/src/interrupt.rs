//! Ctrl-C (and SIGTERM, SIGHUP) end the work; the command then prints its results so far and cleans up as always.

use std::path::PathBuf;

use plimsoll_measure::load::Stop;

use crate::failure::{Failure, INTERRUPTED};

pub(crate) fn stop_on_signal(stop: &Stop) -> Result<(), Failure> {
    let stop = stop.clone();
    ctrlc::set_handler(move || stop.ask())
        .map_err(|error| Failure::Machine(format!("cannot install the Ctrl-C handler: {error}")))
}

/// Removes the file `temporary` at a signal, and ends the command with the exit code of one.
pub(crate) fn remove_on_signal(temporary: PathBuf) -> Result<(), Failure> {
    let removed = move || {
        let _ = std::fs::remove_file(&temporary);
        std::process::exit(INTERRUPTED.into());
    };
    ctrlc::set_handler(removed).map_err(|error| Failure::Machine(format!("cannot install the Ctrl-C handler: {error}")))
}
