//! Where the pictures and the page of a run go, seen to be writable before the work.

use std::path::PathBuf;

use plimsoll_tools::experiment::pictures::{self, Picture};
use plimsoll_tools::page::Table;
use plimsoll_tools::plot;

use super::arguments::TestArguments;
use crate::failure::Failure;
use crate::tune::output::Output;

/// See the module's documentation.
pub(super) struct Outputs {
    page: Option<Output>,
    /// A file for each picture, by its name; and whether they may replace others.
    pictures: Option<(PathBuf, bool)>,
}

impl Outputs {
    pub(super) fn check(arguments: &TestArguments) -> Result<Outputs, Failure> {
        if let Some(directory) = arguments.pictures.as_deref().filter(|directory| !directory.is_dir()) {
            return Err(Failure::Input(format!("--pictures {}: no such directory", directory.display())));
        }
        let page = arguments.page.as_deref().map(|path| Output::check(path, arguments.force, "--page")).transpose()?;
        Ok(Outputs { page, pictures: arguments.pictures.clone().map(|directory| (directory, arguments.force)) })
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
        if let Some((directory, force)) = &self.pictures {
            for picture in &pictures {
                let path = directory.join(format!("{}.svg", picture.name));
                Output::check(&path, *force, "--pictures")?.write(&plot::svg(title, &picture.charts))?;
            }
        }
        Ok(())
    }
}
