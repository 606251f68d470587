//! `--page`, `--pictures` and `--force`: pages and pictures of results.
//!
//! **Why.** An unwritable file must be reported before the work, in the same words everywhere.
//!
//! **How.** The flags are [`PageFlags`], or [`PictureFlags`] for commands with pictures. `check` ensures that all files
//! can be written, and returns their outputs.
//!
//! **Limits.** `--force` applies to every file that the command writes.
//!
//! **Example.** `trace stages t.trace --page t.html --pictures .` writes one page and a file for each picture.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::Failure;
use crate::output::{Output, Pictures, refuse_input};

/// A page, and whether existing files are overwritten.
#[derive(Args, Debug)]
pub(crate) struct PageFlags {
    /// Write an HTML page with all results to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Overwrite existing output files
    #[arg(long)]
    pub(crate) force: bool,
}

impl PageFlags {
    /// Checks that the page can be written. Returns its output.
    pub(crate) fn check(&self) -> Result<Option<Output>, Failure> {
        self.page.as_deref().map(|path| Output::check(path, self.force, "--page")).transpose()
    }
}

/// A page and pictures.
#[derive(Args, Debug)]
pub(crate) struct PictureFlags {
    #[command(flatten)]
    pub(crate) page: PageFlags,

    /// Write each picture (SVG) into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) pictures: Option<PathBuf>,
}

impl PictureFlags {
    /// Checks that the page would not overwrite `input`.
    pub(crate) fn refuse_input(&self, input: &Path) -> Result<(), Failure> {
        self.page.page.iter().try_for_each(|page| refuse_input(page, "--page", input))
    }

    /// Checks that the page and the pictures of these names can be written. Returns their outputs.
    pub(crate) fn check(&self, names: &[&str]) -> Result<(Option<Output>, Option<Pictures>), Failure> {
        let pictures = self.pictures.as_deref().map(|directory| Pictures::check(directory, self.page.force, names));
        Ok((self.page.check()?, pictures.transpose()?))
    }
}
