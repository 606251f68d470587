//! The files of a run's pictures and page, checked to be writable before the work.

use std::path::PathBuf;

use plimsoll_measure::experiment::pictures::{self, Picture};
use plimsoll_show::answer::Answer;
use plimsoll_show::table::Table;

use super::arguments::TestArguments;
use crate::failure::Failure;
use crate::output::{Output, Pictures, refuse_input, refuse_same};

pub(super) struct Outputs {
    page: Option<Output>,
    pictures: Option<Pictures>,
}

impl Outputs {
    /// Checks that the files can be written, and that neither they nor a trace would take the place of an input.
    pub(super) fn check(arguments: &TestArguments) -> Result<Outputs, Failure> {
        let TestArguments { conf, storage, sched_groups, rbd, replay, disk, .. } = arguments;
        let of_disk = disk.disk.as_ref().map(PathBuf::from);
        let inputs = [conf, storage, sched_groups, rbd, replay, &disk.io_properties, &of_disk];
        for input in inputs.into_iter().flatten() {
            arguments.pictures.refuse_input(input)?;
            arguments.trace.iter().try_for_each(|trace| refuse_input(trace, "--trace", input))?;
        }
        let page = arguments.pictures.page.page.as_deref();
        refuse_same([("--page", page), ("--trace", arguments.trace.as_deref())])?;

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
