//! Where the pictures and the page of a run go, seen to be writable before the work.

use plimsoll_measure::experiment::pictures::{self, Picture};
use plimsoll_show::table::Table;

use super::arguments::TestArguments;
use crate::failure::Failure;
use crate::output::{Output, Pictures};

/// See the module's documentation.
pub(super) struct Outputs {
    page: Option<Output>,
    pictures: Option<Pictures>,
}

impl Outputs {
    pub(super) fn check(arguments: &TestArguments) -> Result<Outputs, Failure> {
        let (page, pictures) = arguments.pictures.check(&[])?;
        Ok(Outputs { page, pictures })
    }

    /// Writes what was asked for. `made` is called only where something was.
    pub(super) fn write(
        &self,
        title: &str,
        remarks: &[String],
        table: Table,
        made: impl FnOnce() -> Vec<Picture>,
    ) -> Result<(), Failure> {
        if self.page.is_none() && self.pictures.is_none() {
            return Ok(());
        }
        let pictures = made();
        if let Some(output) = &self.page {
            output.write(&pictures::page(title, remarks, table, &pictures))?;
        }
        if let Some(output) = &self.pictures {
            for picture in &pictures {
                output.write(picture.name, title, &picture.charts)?;
            }
        }
        Ok(())
    }
}
