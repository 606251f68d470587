//! `--trace FILE`: the trace of a command's runs, checked to be writable before the work, and reported on afterwards.
//!
//! **Why.** The flag is the same for every command, and an incomplete trace must be reported.
//!
//! **How.** [`Recording::start`] creates the file and passes it to the [`Instruments`] of the runs; [`Recording::end`]
//! prints the number of events. A command that is refused before its first run leaves no file, and an existing one as
//! it was.
//!
//! **Limits.** The file is written while events occur, so that a command that dies leaves its events so far; it is not
//! renamed into place.
//!
//! **Example.** `plimsoll test job.yaml --trace run.plt` prints at its end `run.plt: 812,345 events recorded`.

use std::path::{Path, PathBuf};

use plimsoll_figures::units::format_count;
use plimsoll_measure::load::{Instruments, TraceFile};

use crate::failure::Failure;
use crate::output::Output;
use crate::screen;

pub(crate) struct Recording<'a> {
    path: Option<PathBuf>,
    instruments: &'a Instruments,
}

impl<'a> Recording<'a> {
    /// Records runs with these `instruments` into `path`, if it is given. Overwrites an existing file only with
    /// `force`.
    pub(crate) fn start(
        path: Option<&Path>,
        force: bool,
        instruments: &'a Instruments,
    ) -> Result<Recording<'a>, Failure> {
        if let Some(path) = path {
            Output::check(path, force, "--trace")?;
            let file = TraceFile::create(path)
                .map_err(|error| Failure::Machine(format!("cannot write {}: {error}", path.display())))?;
            instruments.record(file);
        }
        Ok(Recording { path: path.map(Path::to_owned), instruments })
    }

    /// Reports the number of recorded events, and of those that were dropped.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let (Some(path), Some(recorded)) = (self.path, self.instruments.recorded()) else { return Ok(()) };
        report(&path, recorded.events, recorded.dropped_events, recorded.error.map(|error| error.to_string()))
    }
}

/// Reports the number of events in the trace at `path`, and of those that were dropped. Fails if writing did.
pub(crate) fn report(path: &Path, events: u64, dropped: u64, error: Option<String>) -> Result<(), Failure> {
    let (path, events) = (path.display(), format_count(events));
    if let Some(error) = error {
        return Err(Failure::Machine(format!("cannot write {path}: {error}; it holds the first {events} events")));
    }
    screen::note(&format!("{path}: {events} events recorded"));
    if dropped > 0 {
        screen::warning(&format!("{path}: {} more events came too fast to be recorded", format_count(dropped)));
    }
    Ok(())
}
