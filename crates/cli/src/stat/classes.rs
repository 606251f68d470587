//! The scheduling classes of running programs, shown with the disks.
//!
//! # Why
//! The kernel shows the requests that reached a disk; the programs show which class sent them and which waited.
//!
//! # How it works
//! One query an interval, to all programs of this user that serve a control socket.
//!
//! # Limits
//! Those of [`Programs`].
//!
//! # Example
//! `plimsoll stat 1`, while `plimsoll test` runs.

use plimsoll_observe::stat::programs::{ClassRow, Programs};

use super::HostFlags;
use crate::screen;

/// The classes of running programs.
#[derive(Default)]
pub(super) struct Classes {
    programs: Option<Programs>,
    rows: Vec<ClassRow>,
    /// Messages that are not yet printed.
    told: Vec<String>,
}

impl Classes {
    /// Queries the programs for the first time.
    pub(super) fn start(flags: &HostFlags) -> Classes {
        let mut classes = Classes { programs: (!flags.no_programs).then(Programs::default), ..Classes::default() };
        classes.look();
        classes
    }

    /// Queries the programs that run now.
    pub(super) fn look(&mut self) {
        let Some(programs) = &mut self.programs else { return };
        let looked = programs.look();
        self.told.extend(looked.silent);
        self.rows = looked.rows;
    }

    /// Returns the rows of the last interval.
    pub(super) fn rows(&self) -> &[ClassRow] {
        &self.rows
    }

    /// Prints the pending messages to stderr.
    pub(super) fn tell(&mut self) {
        self.told.drain(..).for_each(|sentence| screen::warning(&sentence));
    }
}
