//! Drives on the market: `drives.csv`.
//!
//! # Why
//! Comparing with the drive's rating is the quickest way to identify it as the bottleneck.
//!
//! # How it works
//! A row for each drive: rated by its vendor, or measured by the iocost benchmark database (37 drives, most of them for
//! notebooks). Names of the latter are the model in lower case with dashes.
//!
//! # Limits
//! Rates of the iocost drives are medians at depth 2048, where small random writes are far below sequential ones; their
//! latency on the idle disk is not known. Operations and bytes are then separate limits.
//!
//! # Example
//! ```
//! use plimsoll_sim::device::presets::drives;
//! let drive = drives().iter().find(|drive| drive.name == "samsung-983-dct-1.92tb").unwrap();
//! assert_eq!((drive.figures.read_iops, drive.figures.write_iops), (580_000, 52_000));
//! ```

use std::sync::LazyLock;

use super::behaviour::Behaviour;
use super::build::Build;
use super::instances::Figures;
use super::table::{Cells, rows};
use super::{Evidence, Preset, PresetKind};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drive {
    /// Name of the drive on a command line: lower case, with dashes.
    pub name: &'static str,
    /// The maker's name for the drive.
    pub title: &'static str,
    /// Size of the drive in GB (10^9 bytes).
    pub capacity_gb: u64,
    /// The four rates of the drive.
    pub figures: Figures,
    /// How the source obtained the figures.
    pub evidence: Evidence,
    pub source: &'static str,
    /// Date of the figures: year, or year and month.
    pub date: &'static str,
    apart: bool,
    spare: f64,
    behaviour: &'static Behaviour,
    max_io_requests: Option<u32>,
}

impl Drive {
    fn read(cells: &mut Cells) -> Option<Drive> {
        let (name, title, capacity_gb) = (cells.text()?, cells.text()?, cells.number()?);
        Some(Drive {
            name,
            title,
            capacity_gb,
            figures: Figures::read(cells)?,
            apart: cells.either("yes", "no")?,
            spare: cells.number()?,
            behaviour: Behaviour::of_cell(cells)?,
            evidence: cells.evidence()?,
            source: cells.source()?,
            date: cells.date()?,
            max_io_requests: cells.optional()?,
        })
    }

    pub fn preset(&self) -> Preset {
        let build = Build {
            disks: 1,
            disk_bytes: self.capacity_gb * 1_000_000_000,
            rates: self.figures.in_order().map(|figure| figure as f64),
            behaviour: self.behaviour,
            apart: self.apart,
            spare: self.spare,
            caps: Vec::new(),
        };

        Preset {
            name: self.name.to_owned(),
            kind: PresetKind::Drive,
            source: self.source,
            date: self.date,
            evidence: self.evidence,
            spec: build.spec(),
            figures: build.figures(),
            burst: None,
            mix_exponent_p: self.behaviour.mix_exponent_p,
            unloaded_latency_ns: self.behaviour.read_ns as u64,
            defaults: self.behaviour.defaults(),
            max_io_requests: self.max_io_requests,
            suspect: None,
        }
    }
}

static DRIVES: LazyLock<Vec<Drive>> = LazyLock::new(|| rows(include_str!("drives.csv"), Drive::read));

/// Returns all drives, in the order of the table.
pub fn drives() -> &'static [Drive] {
    &DRIVES
}
