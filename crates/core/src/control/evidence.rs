//! Evidence: whether the sum of noisy gains is clearly above or below zero.
//!
//! # Why
//! One comparison of two windows decides hardly anything: services vary, and so does the whole disk.
//!
//! # How it works
//! Gains are summed until the sum is two standard errors away from 0 (a sequential test). The error is learnt from the
//! differences of successive gains.
//!
//! # Limits
//! A gain counts for at most [`OUTLIER`] times the noise, so sudden large changes are learnt slowly.
//!
//! # Example
//! With a noise of 0.05, one gain of 0.12 decides at once; gains of 0.03 decide after twelve.

use super::tuning::*;

/// Gains and their noise; see the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    count: f64,
    sum: f64,
    last: Option<f64>,
    /// Standard deviation of a gain, in ln(rate).
    noise: f64,
}

impl Evidence {
    /// Returns evidence without gains, and with the noise that is assumed before any.
    pub(super) fn new() -> Evidence {
        Evidence { count: 0.0, sum: 0.0, last: None, noise: NOISE_PRIOR }
    }

    /// Forgets the gains, but not the noise.
    pub(super) fn forget(&mut self) {
        *self = Evidence { noise: self.noise, ..Evidence::new() };
    }

    /// Adds a gain, in ln(rate).
    pub(super) fn note(&mut self, gain: f64) {
        let most = OUTLIER * self.noise;
        if let Some(last) = self.last.replace(gain) {
            let difference = (gain - last).abs().min(most * 2.0);
            self.noise += (difference * DEVIATION_PER_DIFFERENCE - self.noise) * NOISE_SMOOTHING;
            self.noise = self.noise.max(NOISE_MIN);
        }
        self.count += 1.0;
        self.sum += gain.clamp(-most, most);
    }

    /// Returns whether gains are positive; `None` while that is not clear.
    pub(super) fn is_positive(&self) -> Option<bool> {
        let least = ERRORS_NEEDED * self.noise;
        (self.sum * self.sum > least * least * self.count).then_some(self.sum > 0.0)
    }

    /// If [`PAIRS_MAX`] gains have decided nothing, halves the weight of old gains. Returns whether they have.
    pub(super) fn fade(&mut self) -> bool {
        let is_full = self.count >= PAIRS_MAX;
        if is_full {
            (self.count, self.sum) = (self.count / 2.0, self.sum / 2.0);
        }
        is_full
    }

    /// Returns the number of gains.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// Returns the sum of the gains.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns the mean of the gains, 0 if there are none.
    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// Returns the standard deviation of a gain.
    pub(super) fn noise(&self) -> f64 {
        self.noise
    }
}
