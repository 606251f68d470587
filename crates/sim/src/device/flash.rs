//! The fill level of the flash, and its effect on the cost of writes.
//!
//! # Why
//! A fresh disk is fast. On a full one, random writes make it move old data; discarding gives the space back, and some
//! of the slowdown may stay.
//!
//! # How it works
//! * **Fill level.** The capacity is 4096 extents, each with its number of bytes that hold data. A write that continues
//!   the one before adds its length; a random one only the part expected not to be written yet; a discard subtracts
//!   likewise.
//! * **Write amplification.** Uniform random overwrites with first-in-first-out cleaning: a part v of a cleaned block
//!   still holds data, where u = (v - 1) / ln v and u is the live part of *all* flash (Desnoyers 2012); each write
//!   costs 1 / (1 - v). At 7 % of spare space and a full disk this is 7.8. Writes that continue the one before cost 1.
//! * **Curve.** A table from fill level to speed slows all writes.
//! * **Pauses** come at exponential gaps, and only when a write arrives.
//!
//! # Limits
//! Cleaning costs the same everywhere: hot and cold data, or streams, make no difference.
//!
//! # Example
//! Spare space of 28 %, full: u = 1/1.28, WA = 2.5.

use plimsoll_core::Op;
use plimsoll_core::math::ln;

use super::DeviceRequest;
use super::spec::{DeviceSpec, FlashSpec};
use crate::rng::Rng;

const EXTENTS: u64 = 4096;
const AMPLIFICATION_STEPS: usize = 1024;
/// Number of recent writes and discards whose ends are kept, to distinguish sequential streams from random requests.
const STREAMS: usize = 16;

/// The state of the flash behind a device.
#[derive(Debug)]
pub(super) struct Flash {
    spec: FlashSpec,
    /// Whether any flash effect is configured.
    active: bool,
    capacity_bytes: f64,
    extent_bytes: u64,
    /// Bytes that hold data, by extent; empty if no effect needs the fill level.
    live_bytes: Vec<f64>,
    sum_bytes: f64,
    /// Greatest number of live bytes so far. A discard leaves a part of the difference as residue.
    peak_bytes: f64,
    stream_ends: [u64; STREAMS],
    next_stream: usize,
    amplification: Vec<f64>,
    next_pause_ns: u64,
    paused_until_ns: u64,
}

/// The part of an extent that a request touches.
#[derive(Clone, Copy)]
struct Touched {
    start_bytes: f64,
    len_bytes: f64,
    extent_bytes: f64,
}

impl Flash {
    pub(super) fn new(spec: &DeviceSpec) -> Flash {
        let flash = spec.flash.clone();
        let capacity_bytes = spec.capacity_bytes as f64;
        let extent_bytes = spec.capacity_bytes.div_ceil(EXTENTS);
        let tracks = flash.garbage_collection || !flash.fill_curve.is_empty();
        let sum_bytes = capacity_bytes * flash.initial_fill;
        let live = extent_bytes as f64 * flash.initial_fill;
        let steps = if flash.garbage_collection { AMPLIFICATION_STEPS + 1 } else { 0 };
        Flash {
            active: tracks || flash.pause_mean_ns > 0.0,
            capacity_bytes,
            extent_bytes,
            live_bytes: vec![live; if tracks { EXTENTS as usize } else { 0 }],
            sum_bytes,
            peak_bytes: sum_bytes,
            stream_ends: [u64::MAX; STREAMS],
            next_stream: 0,
            amplification: (0..steps).map(|i| amplification_at(i as f64 / AMPLIFICATION_STEPS as f64)).collect(),
            next_pause_ns: flash.pause_period_ns as u64,
            paused_until_ns: 0,
            spec: flash,
        }
    }

    /// Accounts for a request. Returns the factor by which a write costs more than on a fresh disk.
    #[inline]
    pub(super) fn pass(&mut self, now_ns: u64, request: &DeviceRequest, rng: &mut Rng) -> f64 {
        if !self.active {
            return 1.0;
        }
        match request.op {
            Op::Write => self.write(now_ns, request, rng),
            Op::Discard => {
                self.discard(request);
                1.0
            }
            Op::Read | Op::Flush | Op::Allocate => 1.0,
        }
    }

    /// Returns the time before which nothing starts.
    pub(super) fn paused_until_ns(&self) -> u64 {
        self.paused_until_ns
    }

    pub(super) fn fill(&self) -> f64 {
        (self.sum_bytes / self.capacity_bytes).clamp(0.0, 1.0)
    }

    fn write(&mut self, now_ns: u64, request: &DeviceRequest, rng: &mut Rng) -> f64 {
        self.pause(now_ns, rng);
        if self.live_bytes.is_empty() {
            return 1.0;
        }

        let sequential = self.continues(request);
        self.for_extents(request, |live, touched| {
            let free = (touched.extent_bytes - live).max(0.0);
            if sequential { touched.len_bytes.min(free) } else { touched.len_bytes * free / touched.extent_bytes }
        });

        self.peak_bytes = self.peak_bytes.max(self.sum_bytes);
        let seen_bytes = self.sum_bytes + (self.peak_bytes - self.sum_bytes) * self.spec.discard_residue;
        let fill = (seen_bytes / self.capacity_bytes).clamp(0.0, 1.0);

        let mut factor = 1.0 / interpolate(&self.spec.fill_curve, fill);
        if self.spec.garbage_collection && !sequential {
            let live_part = fill / (1.0 + self.spec.over_provisioning);
            let step = (live_part * AMPLIFICATION_STEPS as f64).round() as usize;
            factor *= self.amplification.get(step).copied().unwrap_or(1.0);
        }
        factor
    }

    /// Subtracts the live bytes of a discarded range. For a sequential discard, all live bytes of an extent count as
    /// those of its rest.
    fn discard(&mut self, request: &DeviceRequest) {
        if self.live_bytes.is_empty() {
            return;
        }
        let sequential = self.continues(request);
        self.for_extents(request, |live, touched| {
            let among = if sequential { touched.extent_bytes - touched.start_bytes } else { touched.extent_bytes };
            -(live * touched.len_bytes / among).min(live)
        });
    }

    /// Adds `change` to the live bytes of each extent that a request touches.
    fn for_extents(&mut self, request: &DeviceRequest, change: impl Fn(f64, Touched) -> f64) {
        let (mut at, end) = (request.offset_bytes, request.offset_bytes.saturating_add(u64::from(request.len_bytes)));
        while at < end {
            let index = at / self.extent_bytes;
            let part_end = end.min((index + 1).saturating_mul(self.extent_bytes));
            let Some(live) = self.live_bytes.get_mut(index as usize) else { return };
            let touched = Touched {
                start_bytes: (at % self.extent_bytes) as f64,
                len_bytes: (part_end - at) as f64,
                extent_bytes: self.extent_bytes as f64,
            };
            let change = change(*live, touched);
            *live += change;
            self.sum_bytes += change;
            at = part_end;
        }
    }

    /// Returns whether a write or discard begins where a recent one ended.
    fn continues(&mut self, request: &DeviceRequest) -> bool {
        let end = request.offset_bytes.saturating_add(u64::from(request.len_bytes));
        if let Some(stream) = self.stream_ends.iter_mut().find(|stream| **stream == request.offset_bytes) {
            *stream = end;
            return true;
        }
        if let Some(stream) = self.stream_ends.get_mut(self.next_stream) {
            *stream = end;
        }
        self.next_stream = (self.next_stream + 1) % STREAMS;
        false
    }

    fn pause(&mut self, now_ns: u64, rng: &mut Rng) {
        if self.spec.pause_mean_ns > 0.0 && now_ns >= self.next_pause_ns {
            self.paused_until_ns = now_ns.saturating_add(rng.exponential(self.spec.pause_mean_ns) as u64);
            let gap_ns = rng.exponential(self.spec.pause_period_ns) as u64;
            self.next_pause_ns = self.paused_until_ns.saturating_add(gap_ns);
        }
    }
}

/// Interpolates a curve of (x, y) at `x`; 1 for an empty curve, the first or last value outside.
fn interpolate(curve: &[(f64, f64)], x: f64) -> f64 {
    let after = curve.partition_point(|point| point.0 <= x);
    match (after.checked_sub(1).and_then(|before| curve.get(before)), curve.get(after)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0),
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => 1.0,
    }
}

/// Returns 1 / (1 - v), where `live_part` = (v - 1) / ln v. Solved by bisection, because the right side rises with v.
pub(super) fn amplification_at(live_part: f64) -> f64 {
    let (mut low, mut high) = (0.0, 0.999_999);
    for _ in 0..60 {
        let v = (low + high) / 2.0;
        if v > 0.0 && (v - 1.0) / ln(v) > live_part { high = v } else { low = v }
    }
    1.0 / (1.0 - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplification_by_spare_space() {
        // Computed from the formula with another solver.
        for (spare, amplification) in
            [(0.02, 25.7), (0.07, 7.8), (0.10, 5.7), (0.15, 4.0), (0.20, 3.2), (0.28, 2.5), (0.50, 1.7)]
        {
            let found = amplification_at(1.0 / (1.0 + spare));
            assert!((found / amplification - 1.0).abs() < 0.025, "{spare}: {found}, not {amplification}");
        }
        assert!((amplification_at(0.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn curves_are_flat_outside() {
        let curve = [(0.5, 1.0), (0.75, 0.5)];
        for (x, y) in [(0.0, 1.0), (0.5, 1.0), (0.625, 0.75), (0.9, 0.5)] {
            assert_eq!(interpolate(&curve, x), y, "{x}");
        }
        assert_eq!(interpolate(&[], 0.3), 1.0);
    }
}
