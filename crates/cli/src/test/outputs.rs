//! The files of a run's pictures and page, checked to be writable before the work.

use plimsoll_measure::experiment::pictures::{self, Picture};
use plimsoll_show::answer::Answer;
use plimsoll_show::table::Table;

use super::arguments::TestArguments;
use crate::failure::Failure;
use crate::output::{Output, Pictures};

pub(super) struct Outputs {
    page: Option<Output>,
    pictures: Option<Pictures>,
}

impl Outputs {
    pub(super) fn check(arguments: &TestArguments) -> Result<Outputs, Failure> {
        let (page, pictures) = arguments.pictures.check(&[])?;
        Ok(Outputs { page, pictures })
    }

    /// Writes the requested files. Calls `made` only if there are any.
    pub(super) fn write(
        &self,
        title: &str,
        answer: Option<Answer>,
        remarks: &[String],
        table: Table,
        made: impl FnOnce() -> Vec<Picture>,
    ) -> Result<(), Failure> {
        if self.page.is_none() && self.pictures.is_none() {
            return Ok(());
        }

        let pictures = made();
        if let Some(output) = &self.page {
            output.write(&pictures::page(title, answer, remarks, table, &pictures))?;
        }
        if let Some(output) = &self.pictures {
            for picture in &pictures {
                output.write(picture.name, title, &picture.charts)?;
            }
        }
        Ok(())
    }
}
