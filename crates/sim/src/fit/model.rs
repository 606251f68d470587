//! The device model of a fitted table.
//!
//! # Why
//! The table gives the latency of reads below saturation; the device's queue must give the point of saturation.
//!
//! # How it works
//! Rates and mix exponent are those of the frontier, moved out as far as the grid allows.
//!
//! # Limits
//! Saturated throughput is too high by that amount: 6 % on a grid of 21 levels, 12 % on one of 11. For the figures of a
//! scheduler take the frontier, not the model. Rates beyond what a device accepts are refused when one is made.
//!
//! # Example
//! A frontier of 12,000 reads/s on 21 levels gives a device of 12,750 reads/s.

use super::{Cell, Frontier};
use crate::device::{DeviceSpec, InterferenceSpec, LatencySpec, RateSpec};
use crate::latency_surface::LatencySurface;

/// Length of the measured reads, in bytes.
pub(crate) const READ_BYTES: u32 = 4096;
/// Length of the measured writes, in bytes.
pub(crate) const WRITE_BYTES: u32 = 128 << 10;
/// Time over which the device smooths the rates for its look-ups, in ns. At 1000 reads a second a tenth of a second
/// counts 100 of them, which is 10 % off at random.
const RATE_MEMORY_NS: f64 = 100e6;

/// Returns a device that saturates at `saturation` times the frontier, with the latencies of the table below that.
///
/// The measurement holds small reads and long writes. The other two rates are set so that length alone decides: a small
/// write costs as much as a small read (more, if the bandwidth allows fewer), a byte read as much as a byte written.
pub(super) fn spec(cells: &[Cell], frontier: &Frontier, saturation: f64, surface: &LatencySurface) -> DeviceSpec {
    let read_iops = frontier.read_iops * saturation;
    let write_bytes_per_s = frontier.write_bytes_per_s * saturation;
    let write_iops = read_iops.min(write_bytes_per_s / f64::from(READ_BYTES));
    let write_point = |len_bytes: u32| (len_bytes, write_bytes_per_s / f64::from(len_bytes));
    let read_ns = cells.iter().map(|cell| cell.p50_ns).fold(f64::INFINITY, f64::min);

    DeviceSpec {
        rates: RateSpec {
            read_iops,
            read_bytes_per_s: write_bytes_per_s.max(read_iops * f64::from(READ_BYTES)),
            write_iops,
            write_bytes_per_s,
            // A line through two points would give another rate at 128 KiB than the measured one.
            write_table: vec![(READ_BYTES, write_iops), write_point(WRITE_BYTES), write_point(8 * WRITE_BYTES)],
            iops_block_bytes: READ_BYTES,
            ..RateSpec::default()
        },
        latency: LatencySpec { read_ns, ..LatencySpec::default() },
        mix_exponent_p: frontier.mix_exponent,
        interference: InterferenceSpec { memory_ns: RATE_MEMORY_NS, ..InterferenceSpec::default() },
        latency_surface: Some(surface.clone()),
        ..DeviceSpec::default()
    }
}
