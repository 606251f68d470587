//! Read latency under load as a table, measured on a disk and looked up fast.
//!
//! # Why
//! The latency of a read depends on the rates of reads and writes, and no formula fits all disks: some suspend writes
//! for reads, some stall now and then, some sit behind a network. A table of measured medians and 95th percentiles fits
//! them all.
//!
//! # How it works
//! The axes are bytes written per second and reads per second. Each pair of levels has ln p50 and ln p95; between the
//! levels both are interpolated bilinearly, and outside the table the nearest edge is used. [`LatencySurface::new`]
//! needs a full table; [`fit`](crate::fit::fit) makes one from measurements with holes.
//!
//! [`LatencySurface::sample`] draws from a distribution with exactly that median and that p95, through its quantile
//! function. If p95 is at most four times the median, the distribution is lognormal. If it is more, the cause is rare
//! long stalls: nine in ten reads come from the lognormal body with ratio four, the next twentieth rises to p95 on a
//! straight line (in logarithms), and the last twentieth is a Pareto tail with index 3.
//!
//! # Limits
//! The table holds 4 KiB reads below saturation; beyond, the device's queue decides. A body's quantiles end at 3.3
//! standard deviations (1 in 2000). Two percentiles say nothing about the tail: p99 and above are plausible, not
//! measured. Reads are independent of each other here, while real stalls hit neighbours together.
//!
//! # Example
//! ```
//! use plimsoll_sim::{latency_surface::LatencySurface, rng::Rng};
//! // 0 and 1 GB/s written; 0 and 200,000 reads per second.
//! let (p50_ns, p95_ns) = ([100e3, 200e3, 200e3, 400e3], [150e3, 400e3, 500e3, 900e3]);
//! let surface = LatencySurface::new(vec![0.0, 1e9], vec![0.0, 200e3], &p50_ns, &p95_ns)?;
//! assert!((surface.p50_ns(0.5e9, 0.0) - 100e3 * f64::sqrt(2.0)).abs() < 1.0);
//! assert!(surface.sample(0.5e9, 100e3, &mut Rng::new(1)) > 0.0);
//! # Ok::<(), plimsoll_sim::latency_surface::SurfaceError>(())
//! ```

use std::sync::LazyLock;

use plimsoll_core::math::{exp, ln, pow};
use thiserror::Error;

use crate::rng::Rng;

/// Largest ln(p95 / median) of the lognormal body: ln 4. Beyond it, stalls make up the difference.
const LN_BODY_RATIO_MAX: f64 = 2.0 * core::f64::consts::LN_2;
const Z_95: f64 = 1.644_853_626_951_472_7;
const Z_90: f64 = 1.281_551_565_544_600_4;
/// Index of the Pareto tail of stalls: mean and variance are finite.
const STALL_TAIL_INDEX: f64 = 3.0;
/// Smallest ratio of p95 to the median, also if a table says they are the same.
const RATIO_MIN: f64 = 1.001;
/// Entries of the table that finds the interval of a rate.
const BUCKETS: usize = 256;
const LEVELS_MAX: usize = 1024;

#[derive(Clone, Debug, Error, PartialEq)]
pub enum SurfaceError {
    #[error("{axis}: expected 1 to {LEVELS_MAX} levels, finite, from 0 or more and strictly rising")]
    Levels {
        /// "write_bytes_per_s" or "read_iops".
        axis: &'static str,
    },
    #[error("{column}: expected {expected} latencies (write levels times read levels), found {found}")]
    Length {
        /// "p50_ns" or "p95_ns".
        column: &'static str,
        expected: usize,
        found: usize,
    },
    #[error("{column}[{index}]: expected a positive number of nanoseconds, found {found}")]
    Latency {
        /// "p50_ns" or "p95_ns".
        column: &'static str,
        /// Index of the latency, from 0.
        index: usize,
        found: f64,
    },
}

/// Rising levels with a table that finds the interval of a value in a few steps.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    levels: Vec<f64>,
    /// The interval in which each of [`BUCKETS`] equal parts of the axis begins.
    interval_of_bucket: Vec<u16>,
    buckets_per_unit: f64,
}

impl Axis {
    fn new(levels: Vec<f64>, axis: &'static str) -> Result<Axis, SurfaceError> {
        let rises = levels.windows(2).all(|pair| pair[0] < pair[1]);
        let (Some(&first), Some(&last)) = (levels.first(), levels.last()) else {
            return Err(SurfaceError::Levels { axis });
        };
        if !rises || first < 0.0 || !last.is_finite() || first.is_nan() || levels.len() > LEVELS_MAX {
            return Err(SurfaceError::Levels { axis });
        }
        let width = (last - first) / BUCKETS as f64;
        let intervals = levels.len().saturating_sub(1);
        let interval_of_bucket = (0..BUCKETS)
            .map(|bucket| {
                let from = first + width * bucket as f64;
                let below = levels.partition_point(|&level| level <= from);
                below.saturating_sub(1).min(intervals.saturating_sub(1)) as u16
            })
            .collect();
        let buckets_per_unit = if width > 0.0 { 1.0 / width } else { 0.0 };
        Ok(Axis { levels, interval_of_bucket, buckets_per_unit })
    }

    /// Returns the interval of `value`, and how far into it `value` lies (0 to 1). NaN counts as the lowest level.
    #[inline]
    fn locate(&self, value: f64) -> (usize, f64) {
        let first = self.levels[0];
        if self.levels.len() == 1 || value.is_nan() || value <= first {
            return (0, 0.0);
        }
        let bucket = (((value - first) * self.buckets_per_unit) as usize).min(BUCKETS - 1);
        let mut interval = usize::from(self.interval_of_bucket[bucket]);
        while interval + 2 < self.levels.len() && self.levels[interval + 1] < value {
            interval += 1;
        }
        let (low, high) = (self.levels[interval], self.levels[interval + 1]);
        (interval, ((value - low) / (high - low)).clamp(0.0, 1.0))
    }
}

/// A table of read latencies by the rates of writes and reads.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencySurface {
    writes: Axis,
    reads: Axis,
    /// [ln p50, ln p95], write level by write level.
    ln_ns: Vec<[f64; 2]>,
}

impl LatencySurface {
    /// Returns the table with these levels (bytes written per second, reads per second) and latencies (nanoseconds):
    /// first all read levels at the lowest write level, then at the next.
    ///
    /// # Errors
    /// Levels that do not rise, columns of the wrong length, latencies that are not positive and finite.
    pub fn new(
        write_bytes_per_s: Vec<f64>,
        read_iops: Vec<f64>,
        p50_ns: &[f64],
        p95_ns: &[f64],
    ) -> Result<LatencySurface, SurfaceError> {
        let writes = Axis::new(write_bytes_per_s, "write_bytes_per_s")?;
        let reads = Axis::new(read_iops, "read_iops")?;
        let expected = writes.levels.len() * reads.levels.len();
        for (column, latencies) in [("p50_ns", p50_ns), ("p95_ns", p95_ns)] {
            if latencies.len() != expected {
                return Err(SurfaceError::Length { column, expected, found: latencies.len() });
            }
            if let Some(index) = latencies.iter().position(|&ns| !(ns > 0.0 && ns.is_finite())) {
                return Err(SurfaceError::Latency { column, index, found: latencies[index] });
            }
        }
        let ln_ns = p50_ns.iter().zip(p95_ns).map(|(&p50, &p95)| [ln(p50), ln(p95)]).collect();
        Ok(LatencySurface { writes, reads, ln_ns })
    }

    /// Returns the levels of the table: bytes written per second, reads per second.
    pub fn levels(&self) -> (&[f64], &[f64]) {
        (&self.writes.levels, &self.reads.levels)
    }

    /// Returns the median latency of a read, in nanoseconds, at these rates (clamped to the table).
    pub fn p50_ns(&self, write_bytes_per_s: f64, read_iops: f64) -> f64 {
        exp(self.ln_at(write_bytes_per_s, read_iops)[0])
    }

    /// Returns the 95th percentile of the latency of a read, in nanoseconds, at these rates (clamped to the table).
    pub fn p95_ns(&self, write_bytes_per_s: f64, read_iops: f64) -> f64 {
        let [ln_p50, ln_p95] = self.ln_at(write_bytes_per_s, read_iops);
        exp(ln_p95).max(exp(ln_p50) * RATIO_MIN)
    }

    /// Returns the distribution at these rates, for many draws.
    #[inline]
    pub fn prepare(&self, write_bytes_per_s: f64, read_iops: f64) -> Prepared {
        let [ln_p50, ln_p95] = self.ln_at(write_bytes_per_s, read_iops);
        let ln_ratio = (ln_p95 - ln_p50).max(RATIO_MIN - 1.0);
        Prepared { ln_p50, ln_ratio, sigma: ln_ratio.min(LN_BODY_RATIO_MAX) / Z_95 }
    }

    /// Draws a latency in nanoseconds from the distribution at these rates.
    #[inline]
    pub fn sample(&self, write_bytes_per_s: f64, read_iops: f64, rng: &mut Rng) -> f64 {
        self.prepare(write_bytes_per_s, read_iops).sample(rng)
    }

    #[inline]
    fn ln_at(&self, write_bytes_per_s: f64, read_iops: f64) -> [f64; 2] {
        let (row, down) = self.writes.locate(write_bytes_per_s);
        let (column, right) = self.reads.locate(read_iops);
        let width = self.reads.levels.len();
        let next_row = if self.writes.levels.len() > 1 { row + 1 } else { row };
        let next_column = if width > 1 { column + 1 } else { column };
        let corners = [(row, column), (row, next_column), (next_row, column), (next_row, next_column)];
        let [a, b, c, d] = corners.map(|(row, column)| self.ln_ns[row * width + column]);
        let between = |percentile: usize| {
            let upper = a[percentile] + (b[percentile] - a[percentile]) * right;
            let lower = c[percentile] + (d[percentile] - c[percentile]) * right;
            upper + (lower - upper) * down
        };
        [between(0), between(1)]
    }
}

/// The distribution of the latency at one pair of rates; valid as long as the rates stay about the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prepared {
    ln_p50: f64,
    ln_ratio: f64,
    sigma: f64,
}

impl Prepared {
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> f64 {
        let uniform = (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        self.quantile_ns(uniform)
    }

    /// Returns the latency in nanoseconds below which a part `quantile` (0 to 1, clamped) of all reads lies.
    #[inline]
    pub fn quantile_ns(&self, quantile: f64) -> f64 {
        if self.ln_ratio <= LN_BODY_RATIO_MAX || quantile <= 0.9 {
            return exp_fast(self.ln_p50 + self.sigma * normal_quantile(quantile));
        }
        let p95_ns = exp_fast(self.ln_p50 + self.ln_ratio);
        if quantile >= 0.95 {
            let beyond = (1.0 - quantile.min(1.0)).max(1e-9);
            return p95_ns * pow(0.05 / beyond, 1.0 / STALL_TAIL_INDEX);
        }
        let body_end = self.sigma * Z_90;
        exp_fast(self.ln_p50 + body_end + (self.ln_ratio - body_end) * (quantile - 0.9) / 0.05)
    }
}

/// Intervals of the table of normal quantiles.
const QUANTILES: usize = 2048;

/// Standard normal quantiles of 0/2048 to 2048/2048; the two ends stand for the middle of their interval.
static NORMAL_QUANTILES: LazyLock<Vec<f64>> = LazyLock::new(normal_quantiles);

/// Computes the quantiles by adding up the density in small steps from the median outwards (trapezoids: the error is
/// below 1e-6).
fn normal_quantiles() -> Vec<f64> {
    const STEP: f64 = 1.0 / 1024.0;
    const DENSITY_AT_0: f64 = 0.398_942_280_401_432_7;
    let density = |z: f64| DENSITY_AT_0 * exp(-0.5 * z * z);
    let mut table = vec![0.0; QUANTILES + 1];
    let (mut z, mut below) = (0.0, 0.5);
    for upper in QUANTILES / 2 + 1..=QUANTILES {
        // The last interval ends at infinity: use the quantile of its middle.
        let wanted = (upper as f64).min(QUANTILES as f64 - 0.5) / QUANTILES as f64;
        while below + STEP * 0.5 * (density(z) + density(z + STEP)) < wanted {
            below += STEP * 0.5 * (density(z) + density(z + STEP));
            z += STEP;
        }
        let quantile = z + (wanted - below) / density(z);
        table[upper] = quantile;
        table[QUANTILES - upper] = -quantile;
    }
    table
}

#[inline]
fn normal_quantile(quantile: f64) -> f64 {
    let position = quantile.clamp(0.0, 1.0) * QUANTILES as f64;
    let step = (position as usize).min(QUANTILES - 1);
    let (low, high) = (NORMAL_QUANTILES[step], NORMAL_QUANTILES[step + 1]);
    low + (high - low) * (position - step as f64)
}

/// Parts of a power of two in the table of [`exp_fast`].
const PARTS: usize = 64;

/// 2^(i/64).
static POWERS: LazyLock<[f64; PARTS]> =
    LazyLock::new(|| core::array::from_fn(|i| exp(i as f64 / PARTS as f64 * core::f64::consts::LN_2)));

/// Returns e^x with a relative error below 1e-10, four times as fast as [`exp`]; x is clamped to -700..=700.
#[inline]
fn exp_fast(x: f64) -> f64 {
    let parts = x.clamp(-700.0, 700.0) * (PARTS as f64 * core::f64::consts::LOG2_E);
    let whole = (parts + if parts < 0.0 { -0.5 } else { 0.5 }) as i64;
    let rest = (parts - whole as f64) * (core::f64::consts::LN_2 / PARTS as f64);
    let series = 1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0)));
    let exponent = whole.div_euclid(PARTS as i64);
    let part = whole.rem_euclid(PARTS as i64) as usize;
    POWERS[part] * series * f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_exponential_and_normal_quantiles_are_right() {
        for i in -7_000..=7_000 {
            let x = f64::from(i) * 0.1;
            assert!((exp_fast(x) / exp(x) - 1.0).abs() < 1e-10, "{x}");
        }
        // Abramowitz and Stegun, Handbook of Mathematical Functions, table 26.5.
        for (quantile, z) in [(0.5, 0.0), (0.75, 0.674_49), (0.9, Z_90), (0.95, Z_95), (0.99, 2.326_35)] {
            assert!((normal_quantile(quantile) - z).abs() < 2e-4, "{quantile}: {}", normal_quantile(quantile));
            assert!((normal_quantile(1.0 - quantile) + z).abs() < 2e-4, "{quantile}");
        }
    }
}
