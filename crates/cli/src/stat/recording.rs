//! `--record FILE`: the readings of a run, kept for `--from`.
//!
//! # Why
//! An unwritable file must be reported before the first report, and the number of readings at the end.
//!
//! # How it works
//! [`plimsoll_observe::stat::record::Writer`] writes each reading as it is taken.
//!
//! # Limits
//! A full disk ends the run: no report lacks its record.
//!
//! # Example
//! `plimsoll stat 1 60 --record minute.stat` prints at its end `minute.stat: 61 readings recorded`.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use plimsoll_figures::units::format_count;
use plimsoll_observe::stat::Facts;
use plimsoll_observe::stat::host::{Host, Reading};
use plimsoll_observe::stat::record::Writer;

use super::StatArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::screen;

/// The recording of a run's readings.
pub(super) struct Recording {
    path: PathBuf,
    writer: Writer<File>,
    readings: u64,
}

impl Recording {
    /// Creates the file, if one is requested; overwrites an existing one only with `--force`.
    pub(super) fn start(arguments: &StatArguments) -> Result<Option<Recording>, Failure> {
        let Some(path) = arguments.saved.record.clone() else { return Ok(None) };
        Output::check(&path, arguments.pictures.page.force, "--record")?;
        let cannot = |error: io::Error| Failure::Machine(format!("cannot write {}: {error}", path.display()));
        if path.is_file() {
            fs::remove_file(&path).map_err(&cannot)?;
        }
        let host = Host::read(&arguments.host.proc_root);
        let made = if path.exists() { File::create(&path) } else { File::create_new(&path) };
        let writer = Writer::new(made.map_err(&cannot)?, &host).map_err(|error| {
            // An empty recording would be in the way of the next run.
            if path.is_file() {
                let _ = fs::remove_file(&path);
            }
            cannot(error)
        })?;
        Ok(Some(Recording { path, writer, readings: 0 }))
    }

    pub(super) fn write(&mut self, reading: &Reading, facts: &Facts) -> Result<(), Failure> {
        self.writer.append(reading, facts).map_err(|error| {
            let readings = format_count(self.readings);
            Failure::Machine(format!(
                "cannot write {}: {error}; it holds the first {readings} readings",
                self.path.display()
            ))
        })?;
        self.readings += 1;
        Ok(())
    }

    pub(super) fn end(self) {
        screen::note(&format!("{}: {} readings recorded", self.path.display(), format_count(self.readings)));
    }
}
