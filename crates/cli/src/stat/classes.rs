//! The scheduling classes of running programs: rows beside the disks, and devices in a directory for `iostat -f`.
//!
//! # Why
//! The kernel tells what reached a disk, the programs who asked for it and who waited.
//!
//! # How it works
//! One look an interval, at all programs of this user that serve a control socket.
//!
//! # Limits
//! What cannot be exported (a full disk) is told once, and tried again at the next look.
//!
//! # Example
//! `plimsoll stat 1 --export /run/classes`, and beside it `iostat -f /run/classes -x 1`.

use std::io::ErrorKind;

use plimsoll_observe::stat::export::Export;
use plimsoll_observe::stat::programs::{ClassRow, Programs};

use super::HostFlags;
use crate::failure::Failure;
use crate::screen;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Classes {
    programs: Option<Programs>,
    export: Option<Export>,
    rows: Vec<ClassRow>,
    /// What is to be told.
    told: Vec<String>,
    has_failed: bool,
}

impl Classes {
    /// Takes the first look.
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

    /// Looks at the programs that run now.
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

    /// What the classes did in the interval that ended last.
    pub(super) fn rows(&self) -> &[ClassRow] {
        &self.rows
    }

    /// Says on stderr what has not been said.
    pub(super) fn tell(&mut self) {
        self.told.drain(..).for_each(|sentence| screen::warning(&sentence));
    }
}
