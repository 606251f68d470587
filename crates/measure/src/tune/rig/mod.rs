//! What a measurement works on: a disk of this machine, or a simulated one.
//!
//! # Why
//! Whether `tune` tells the truth can only be tested on disks of which the truth is known. So the protocol asks a
//! [`Rig`], and the same protocol runs on both.
//!
//! # How it works
//! A rig puts one load after the other on its disk and says what came back. It knows nothing of phases and figures.
//!
//! # Limits
//! One disk, one load at a time.
//!
//! # Example
//! ```text
//! let sample = rig.run(&Load::reads(stream, 0.5))?;      // half a second, or less when somebody says stop
//! let iops = sample.iops(&sample.moved());
//! ```

mod disk;
mod sim;

use super::TuneError;
use super::record::{Entry, Load, Sample};

pub(super) use disk::{DiskRig, SPAN_MIN_BYTES, Span};
pub(super) use sim::SimRig;
pub use sim::SimulatedDisk;

/// See the module's documentation.
pub(super) trait Rig {
    /// Writes scratch data, as much of `wanted_bytes` as there is time for, and answers how much lies now. `progress`
    /// hears the part that is done, 0 to 1. What already lies (of a run that is resumed) is written again.
    fn fill(&mut self, wanted_bytes: u64, max_s: f64, progress: &mut dyn FnMut(f64)) -> Result<u64, TuneError>;

    /// Puts `load` on the disk.
    fn run(&mut self, load: &Load) -> Result<Sample, TuneError>;

    /// Measures flush, discard and submissions: an [`Entry::Costs`].
    fn costs(&mut self) -> Result<Entry, TuneError>;

    /// Seconds since the measurement began, on the rig's clock.
    fn now_s(&self) -> f64;

    /// Bytes written so far, scratch data included.
    fn written_bytes(&self) -> u64;

    /// Whether somebody asked for the end.
    fn is_stopped(&self) -> bool;
}
