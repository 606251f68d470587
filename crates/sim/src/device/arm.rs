//! The arm of a hard disk: seek and rotation.
//!
//! # Why
//! On a mechanical disk most of a request's time is the arm's movement.
//!
//! # How it works
//! A seek over a distance d of the capacity takes min + (max - min) sqrt(d): the arm accelerates half of the way. The
//! rotation then takes a uniform time of up to one turn, because the sector may be anywhere on it. A request that
//! begins where the last transfer ended needs neither. With q requests waiting, the nearest is at about 1/q of the
//! distance.
//!
//! # Limits
//! One arm, one platter's worth of geometry; the elevator shortens the distance, but does not change the order.
//!
//! # Example
//! 0.8 to 16 ms and 7200 rpm: a random request takes 0.8 + 15.2 * 8/15 + 4.17 = 13.1 ms in the mean.

use super::spec::{DeviceSpec, HddSpec};
use crate::dist::uniform;
use crate::rng::Rng;

/// The arm of a hard disk.
#[derive(Debug)]
pub(super) struct Arm {
    spec: HddSpec,
    capacity_bytes: f64,
    /// Where the last transfer ended.
    at_bytes: u64,
}

impl Arm {
    pub(super) fn new(spec: &HddSpec, device: &DeviceSpec) -> Arm {
        let capacity_bytes = device.capacity_bytes as f64 / f64::from(device.raid0.members);
        Arm { spec: spec.clone(), capacity_bytes, at_bytes: u64::MAX }
    }

    /// Returns the time of seek and rotation before a transfer of `len_bytes` at `offset_bytes` with `depth` requests
    /// waiting; 0 for a request that continues the last one.
    pub(super) fn move_ns(&mut self, offset_bytes: u64, len_bytes: u64, depth: usize, rng: &mut Rng) -> f64 {
        let from_bytes = self.at_bytes;
        self.at_bytes = offset_bytes.saturating_add(len_bytes);
        if offset_bytes == from_bytes {
            return 0.0;
        }
        let waiting = depth.clamp(1, self.spec.elevator_depth as usize) as f64;
        let distance = offset_bytes.abs_diff(from_bytes) as f64 / self.capacity_bytes / waiting;
        let longest_ns = (self.spec.seek_max_ns - self.spec.seek_min_ns).max(0.0);
        let seek_ns = self.spec.seek_min_ns + longest_ns * distance.min(1.0).sqrt();
        seek_ns + uniform(rng) * self.spec.rotation_ns
    }
}
