//! `--page`, `--pictures` and `--force`: where a result goes for people to look at.
//!
//! # Why
//! That a file cannot be written must show before the work, in the same words everywhere.
//!
//! # How it works
//! The flags are [`PageFlags`], and [`PictureFlags`] where there are pictures, too. `check` sees whether all can be written
//! and hands out where to.
//!
//! # Limits
//! `--force` is for every file that the command writes.
//!
//! # Example
//! `trace stages t.trace --page t.html --pictures .` writes one page and a file for each picture.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::output::{Output, Pictures};

/// A page, and whether files are written over.
#[derive(Args, Debug)]
pub(crate) struct PageFlags {
    /// Write a page with everything here (HTML)
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,

    /// Write over existing output files
    #[arg(long)]
    pub(crate) force: bool,
}

impl PageFlags {
    /// Where the page goes.
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
    /// Where the page goes, and where pictures of these names go.
    pub(crate) fn check(&self, names: &[&str]) -> Result<(Option<Output>, Option<Pictures>), Failure> {
        let pictures = self.pictures.as_deref().map(|directory| Pictures::check(directory, self.page.force, names));
        Ok((self.page.check()?, pictures.transpose()?))
    }
}
