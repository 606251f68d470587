//! Faults of a request: errors, short transfers, hangs, a slow device.
//!
//! # Why
//! A code path that runs once a year must run in every test.
//!
//! # How it works
//! The specification's rates and the windows that are open at the time of submission decide the [`Fate`] of a request.
//! Windows that have ended are dropped at the next decision.
//!
//! # Limits
//! A hang and a held write wait outside the device: they take no capacity.
//!
//! # Example
//! `FaultWindow { from_ns: 0, until_ns: 1_000, kind: FaultKind::Hang { requests: 1, for_ns: None } }`: the first
//! request in the first microsecond never returns.

use plimsoll_core::Op;

use super::spec::{DeviceSpec, FaultKind, FaultWindow};
use super::{DeviceRequest, EIO};
use crate::dist::uniform;
use crate::rng::Rng;

const SECTOR_BYTES: u32 = 512;

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) result: Result<u32, i32>,
    pub(super) hang: Option<Hang>,
    /// When the request reaches the device, if it is held before it.
    pub(super) held_until_ns: Option<u64>,
    pub(super) speed_factor: f64,
}

/// A hang: the request returns `for_ns` later, or never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hang {
    pub(super) for_ns: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Faults {
    error_rate: f64,
    short_rate: f64,
    windows: Vec<FaultWindow>,
}

impl Faults {
    pub(super) fn new(spec: &DeviceSpec) -> Faults {
        Faults { error_rate: spec.error_rate, short_rate: spec.short_rate, windows: spec.faults.clone() }
    }

    pub(super) fn inject(&mut self, window: FaultWindow) {
        self.windows.push(window);
    }

    #[inline]
    pub(super) fn fate(&mut self, now_ns: u64, request: &DeviceRequest, rng: &mut Rng) -> Fate {
        let moved_bytes = if request.op.is_transfer() { request.len_bytes } else { 0 };
        let mut fate = Fate { result: Ok(moved_bytes), hang: None, held_until_ns: None, speed_factor: 1.0 };
        if self.error_rate > 0.0 || self.short_rate > 0.0 || !self.windows.is_empty() {
            self.decide(now_ns, request, rng, &mut fate);
        }
        fate
    }

    fn decide(&mut self, now_ns: u64, request: &DeviceRequest, rng: &mut Rng, fate: &mut Fate) {
        self.windows.retain(|window| window.until_ns > now_ns);
        let mut short = happens(self.short_rate, rng);
        let mut errno = if request.op.is_transfer() && happens(self.error_rate, rng) { Some(EIO) } else { None };

        for window in self.windows.iter_mut().filter(|window| window.from_ns <= now_ns) {
            match &mut window.kind {
                FaultKind::Errors { rate, errno: with } if happens(*rate, rng) => errno = Some(*with),
                FaultKind::Short { rate } => short |= happens(*rate, rng),
                FaultKind::Hang { requests, for_ns } if *requests > 0 && fate.hang.is_none() => {
                    *requests -= 1;
                    fate.hang = Some(Hang { for_ns: *for_ns });
                }
                FaultKind::HoldWrites if request.op == Op::Write => {
                    fate.held_until_ns = fate.held_until_ns.max(Some(window.until_ns));
                }
                FaultKind::Slow { speed_factor } => fate.speed_factor *= *speed_factor,
                FaultKind::Errors { .. } | FaultKind::Hang { .. } | FaultKind::HoldWrites => {}
            }
        }

        if short {
            fate.result = fate.result.map(|len_bytes| prefix_bytes(len_bytes, rng));
        }
        if let Some(errno) = errno {
            fate.result = Err(errno);
        }
    }
}

fn happens(rate: f64, rng: &mut Rng) -> bool {
    rate > 0.0 && uniform(rng) < rate
}

/// Draws the length of a short transfer: a multiple of 512, at least 512 and less than `len_bytes`, if there is one.
fn prefix_bytes(len_bytes: u32, rng: &mut Rng) -> u32 {
    let sectors = len_bytes.saturating_sub(1) / SECTOR_BYTES;
    if sectors == 0 {
        return len_bytes;
    }
    (1 + rng.below(u64::from(sectors)) as u32) * SECTOR_BYTES
}
