//! The highest loads that a disk sustains: a curve through the outermost cells of a measured grid.
//!
//! # Why
//! Reads and writes together saturate a disk earlier or later than each alone would suggest; one exponent p describes
//! it.
//!
//! # How it works
//! The outermost cells are those that no other cell exceeds. For each p the axes follow from a r^p + b w^p = 1 by least
//! squares (a = R^-p, b = W^-p). The p with the least squared log distance is found by a coarse scan, then golden
//! section over ln p. Cells far from the curve are left out, and it is fitted again.
//!
//! # Limits
//! The grid holds only cells that the disk sustained: the true frontier may lie up to one step farther out.
//!
//! # Example
//! Cells up to (r, w) = (4, 0), (3, 1), (2, 2), (1, 3), (0, 4) give R = W = 4 and p = 1.

use plimsoll_core::math::{exp, ln, pow};

use super::Cell;

/// Range of ln p that is searched. At the upper end reads and writes do not disturb each other.
const LN_P_MIN: f64 = -1.4;
const LN_P_MAX: f64 = 2.8;
/// Exponent from which on the corner of the frontier is so full that it is taken as infinite.
const P_INFINITE: f64 = 12.0;
/// Steps of the grid beyond the outermost cells up to which the axes are searched.
const STEPS_BEYOND: f64 = 1.25;
/// Tolerance of comparisons, as a part of the axis. A cell is off the frontier if another one is ahead by more than
/// this in one direction, and behind by at most this in the other.
const MARGIN: f64 = 0.005;
/// Distance from the curve, in root mean squares, beyond which a cell of the frontier is left out.
const OUTLIER: f64 = 2.5;

/// The curve (r/R)^p + (w/W)^p = 1, for 4 KiB reads and 128 KiB sequential writes, or other measured kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frontier {
    /// R: reads per second without writes.
    pub read_iops: f64,
    /// W: bytes written per second without reads.
    pub write_bytes_per_s: f64,
    /// p, from 0.25 to 12, or infinite if reads and writes do not disturb each other.
    pub mix_exponent: f64,
    /// Root of the mean squared logarithmic distance of the outermost cells from the curve, along the ray from idle.
    pub rmse: f64,
    /// Outermost cells that were used.
    pub points: usize,
}

impl Frontier {
    /// Returns how close these rates are to the frontier: 0 idle, 1 on it.
    pub fn load(&self, write_bytes_per_s: f64, read_iops: f64) -> f64 {
        mix_load(read_iops / self.read_iops, write_bytes_per_s / self.write_bytes_per_s, self.mix_exponent)
    }
}

/// Returns how close a mix is to a frontier of exponent `p` (positive, or infinite): 0 idle, 1 on it. A share is a rate
/// over the rate that the disk sustains in this direction alone.
pub fn mix_load(read_share: f64, write_share: f64, p: f64) -> f64 {
    let (high, low) = (read_share.max(write_share), read_share.min(write_share));
    if high <= 0.0 || p.is_infinite() {
        return high.max(0.0);
    }
    high * pow(1.0 + pow(low / high, p), 1.0 / p)
}

/// An exponent, and the error of its curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixFit {
    /// p in r^p + w^p = 1.
    pub mix_exponent: f64,
    /// Root of the mean squared logarithmic distance of the points from the curve, along the ray from idle.
    pub rmse: f64,
}

/// Fits the finite exponent from `range` (both ends positive, in order) to points on a frontier, each a share of reads
/// and one of writes, 0 or more: see [`mix_load`]. Unlike in [`super::fit`], the axes are taken to be known.
pub fn fit_mix_exponent(shares: &[[f64; 2]], range: [f64; 2]) -> MixFit {
    let curve = best_curve(shares, [1.0, 1.0], range.map(ln));
    MixFit { mix_exponent: curve.p, rmse: curve.rmse }
}

/// Fits the frontier of `cells` (none of them saturated) on a grid with `write_levels` by `read_levels` levels. Needs
/// one cell with reads and one with writes.
pub(super) fn fit_frontier(cells: &[Cell], write_levels: usize, read_levels: usize) -> Frontier {
    let read_max = cells.iter().map(|cell| cell.read_iops).fold(f64::MIN_POSITIVE, f64::max);
    let write_max = cells.iter().map(|cell| cell.write_bytes_per_s).fold(f64::MIN_POSITIVE, f64::max);
    let shares: Vec<[f64; 2]> =
        cells.iter().map(|cell| [cell.read_iops / read_max, cell.write_bytes_per_s / write_max]).collect();
    let reach = [read_levels, write_levels].map(|levels| 1.0 + STEPS_BEYOND / (levels.max(2) - 1) as f64);

    let mut points = outermost(&shares);
    let mut best = best_curve(&points, reach, [LN_P_MIN, LN_P_MAX]);

    for _ in 0..3 {
        let limit = OUTLIER * best.rmse.max(0.02);
        let kept: Vec<[f64; 2]> = points.iter().copied().filter(|point| best.ln_load(point).abs() <= limit).collect();
        if kept.len() == points.len() || kept.len() < 3 {
            break;
        }
        points = kept;
        best = best_curve(&points, reach, [LN_P_MIN, LN_P_MAX]);
    }

    Frontier {
        read_iops: read_max * best.read,
        write_bytes_per_s: write_max * best.write,
        mix_exponent: if best.p >= P_INFINITE { f64::INFINITY } else { best.p },
        rmse: best.rmse,
        points: points.len(),
    }
}

/// Returns the points that no other point exceeds in one direction while reaching them in the other.
fn outermost(shares: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let exceeds = |other: &[f64; 2], point: &[f64; 2]| {
        let ahead = [other[0] - point[0], other[1] - point[1]];
        ahead[0].min(ahead[1]) >= -MARGIN && ahead[0].max(ahead[1]) > MARGIN
    };
    shares.iter().filter(|point| !shares.iter().any(|other| exceeds(other, point))).copied().collect()
}

/// A curve in shares of the outermost rates.
#[derive(Clone, Copy, Debug)]
struct Curve {
    read: f64,
    write: f64,
    p: f64,
    rmse: f64,
}

impl Curve {
    fn ln_load(&self, [read, write]: &[f64; 2]) -> f64 {
        ln(mix_load(read / self.read, write / self.write, self.p).max(1e-12))
    }
}

/// Finds the exponent with the least error, its logarithm from `least` to `most`: the best of a coarse scan, then
/// golden section around it.
fn best_curve(points: &[[f64; 2]], reach: [f64; 2], [least, most]: [f64; 2]) -> Curve {
    const SCAN: usize = 42;
    let step = (most - least) / SCAN as f64;
    let at = |ln_p: f64| curve_with(points, reach, exp(ln_p));
    let mut best = (most, at(most));
    for i in (0..SCAN).rev() {
        let ln_p = least + step * i as f64;
        let curve = at(ln_p);
        if curve.rmse < best.1.rmse - 1e-9 {
            best = (ln_p, curve);
        }
    }

    let golden = (f64::sqrt(5.0) - 1.0) / 2.0;
    let (mut low, mut high) = ((best.0 - step).max(least), (best.0 + step).min(most));
    for _ in 0..30 {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if at(left).rmse < at(right).rmse {
            high = right;
        } else {
            low = left;
        }
    }

    let refined = at(0.5 * (low + high));
    if refined.rmse < best.1.rmse { refined } else { best.1 }
}

/// Fits the axes for exponent `p`: a r^p + b w^p = 1 by least squares, kept within `reach`.
fn curve_with(points: &[[f64; 2]], reach: [f64; 2], p: f64) -> Curve {
    let powers: Vec<[f64; 2]> = points.iter().map(|point| point.map(|share| pow(share, p))).collect();
    let sum = |f: &dyn Fn(&[f64; 2]) -> f64| powers.iter().map(f).sum::<f64>();
    let (rr, ww, rw) = (sum(&|x| x[0] * x[0]), sum(&|x| x[1] * x[1]), sum(&|x| x[0] * x[1]));
    let (r, w) = (sum(&|x| x[0]), sum(&|x| x[1]));
    let determinant = rr * ww - rw * rw;
    let [least_a, least_b] = reach.map(|reach| pow(reach, -p));

    let (mut a, mut b) = (1.0, 1.0);
    if determinant > 1e-9 * rr * ww {
        a = ((r * ww - w * rw) / determinant).clamp(least_a, 1.0);
        b = ((w * rr - r * rw) / determinant).clamp(least_b, 1.0);
        // If one axis met its bound, fit the other one again.
        if a == 1.0 || a == least_a {
            b = ((w - a * rw) / ww.max(1e-12)).clamp(least_b, 1.0);
        } else if b == 1.0 || b == least_b {
            a = ((r - b * rw) / rr.max(1e-12)).clamp(least_a, 1.0);
        }
    }

    let mut curve = Curve { read: pow(a, -1.0 / p), write: pow(b, -1.0 / p), p, rmse: 0.0 };
    let squares: f64 = points.iter().map(|point| curve.ln_load(point) * curve.ln_load(point)).sum();
    curve.rmse = (squares / points.len().max(1) as f64).sqrt();
    curve
}
