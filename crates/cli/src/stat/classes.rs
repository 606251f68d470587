//! The scheduling classes of running programs: rows beside the disks, and devices in a directory for `iostat -f`.
//!
//! # Why
//! The kernel shows the requests that reached a disk, the programs show which class asked and which waited.
//!
//! # How it works
//! One query an interval, to all programs of this user that serve a control socket.
//!
//! # Limits
//! A failing export (a full disk) is reported once, and retried at the next query.
//!
//! # Example
//! `plimsoll stat 1 --export /run/classes`, and beside it `iostat -f /run/classes -x 1`.

use std::io::ErrorKind;

use plimsoll_observe::stat::export::Export;
use plimsoll_observe::stat::programs::{ClassRow, Programs};

use super::HostFlags;
use crate::failure::Failure;
use crate::screen;

/// The classes of running programs, and their export.
#[derive(Default)]
pub(super) struct Classes {
    programs: Option<Programs>,
    export: Option<Export>,
    rows: Vec<ClassRow>,
    /// Messages that are not yet printed.
    told: Vec<String>,
    has_failed: bool,
}

impl Classes {
    /// Queries the programs for the first time.
    pub(super) fn start(flags: &HostFlags) -> Result<Classes, Failure> {
        let export = flags.export.as_deref().map(Export::create).transpose();
        let export = export.map_err(|error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem | ErrorKind::Other => {
                Failure::Machine(error.to_string())
            }
            _ => Failure::Input(error.to_string()),
        })?;
        let programs = (!flags.no_programs).then(Programs::new);
        let mut classes = Classes { programs, export, ..Classes::default() };
        classes.look();
        Ok(classes)
    }

    /// Queries the programs that run now.
    pub(super) fn look(&mut self) {
        let Some(programs) = &mut self.programs else { return };
        let looked = programs.look();
        self.told.extend(looked.silent);
        self.rows = looked.rows;
        let Some(export) = &mut self.export else { return };
        match export.publish(&looked.programs) {
            Ok(()) => self.has_failed = false,
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                self.told.push(error.to_string());
            }
        }
    }

    /// Returns the rows of the interval that ended last.
    pub(super) fn rows(&self) -> &[ClassRow] {
        &self.rows
    }

    /// Prints the pending messages to stderr.
    pub(super) fn tell(&mut self) {
        self.told.drain(..).for_each(|sentence| screen::warning(&sentence));
    }
}
