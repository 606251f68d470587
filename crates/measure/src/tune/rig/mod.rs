//! The rig of a measurement: a disk of this machine, or a simulated one.
//!
//! **Why.** The correctness of `tune` can only be tested on disks whose true figures are known. So the protocol drives
//! a [`Rig`], and the same protocol runs on both kinds of disk.
//!
//! **How.** A rig puts one load after another on its disk and returns the samples. It knows nothing of phases and
//! figures.
//!
//! **Limits.** One disk, one load at a time.
//!
//! **Example.**
//!
//! ```text
//! let sample = rig.run(&Load::reads(stream, 0.5))?;      // half a second, or less if stopped
//! let iops = sample.iops(&sample.moved());
//! ```

mod disk;
mod sim;

use plimsoll_sim::rng::Rng;

use super::TuneError;
use super::record::{Entry, Load, Sample};

pub(super) use disk::{DiskRig, SPAN_MIN_BYTES, Span};
pub(super) use sim::SimRig;
pub use sim::SimulatedDisk;

/// Longest warm-up inside a load, in seconds, and its part of a shorter load.
const WARMUP_MAX_S: f64 = 0.1;
const WARMUP_PART: f64 = 0.25;

/// Draws the uncounted time at the beginning of `load`: once to twice the warm-up.
///
/// If the time were fixed, each sample on a regular disk would round to whole requests in the same way. And a limiter
/// may count over slices of 100 ms, as a control group does: after exactly 100 ms, half a second would always contain
/// six slices instead of five. No number of samples would show either error.
fn draw_warmup_ns(load: &Load, rng: &mut Rng) -> u64 {
    let warmup_ns = ((load.seconds * WARMUP_PART).min(WARMUP_MAX_S) * 1e9) as u64;
    warmup_ns + rng.below(warmup_ns)
}

pub(super) trait Rig {
    /// Writes scratch data until there are `wanted_bytes` of it, or until the time is over. Returns the bytes of
    /// scratch data. Calls `progress` with the part that is done, 0 to 1. Writes the data of a resumed run again.
    fn fill(&mut self, wanted_bytes: u64, max_s: f64, progress: &mut dyn FnMut(f64)) -> Result<u64, TuneError>;

    /// Puts `load` on the disk. Returns the sample.
    fn run(&mut self, load: &Load) -> Result<Sample, TuneError>;

    /// Discards all scratch data beyond the first `kept_part`. Later loads work on the kept part.
    fn discard_beyond(&mut self, kept_part: f64) -> Result<(), TuneError>;

    /// Measures flush, discard and submissions. Returns an [`Entry::Costs`].
    fn costs(&mut self) -> Result<Entry, TuneError>;

    /// Returns the seconds since the measurement began, on the rig's clock.
    fn now_s(&self) -> f64;

    /// Returns the bytes written so far, scratch data included.
    fn written_bytes(&self) -> u64;

    fn is_stopped(&self) -> bool;
}
