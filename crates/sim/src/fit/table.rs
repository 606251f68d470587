//! A full table of latencies from scattered measurements.
//!
//! # Why
//! Measured grids have holes, repeated cells and rates that are a little off; the simulator needs a full table.
//!
//! # How it works
//! [`Grid`] gathers rates into levels. [`Rise`] is the increase of latency with the load (the distance to the
//! frontier), the same for all mixes. Its residuals are known at the measured nodes, and [`fill`] spreads them to the
//! others. Last, filled values are kept close to their measured neighbours.
//!
//! # Limits
//! At most 64 levels on an axis; rates closer than the levels become one. Exact at measured nodes, so noise stays.
//!
//! # Example
//! Medians of 100 and 120 us at loads 0.2 and 0.6 around a hole at load 0.4: the hole gets 110 us, more if its other
//! neighbours lie above the common rise.

use plimsoll_core::math::{exp, ln};

use super::{Cell, Frontier};
use crate::latency_surface::{LatencySurface, SurfaceError};

/// First width of a level, as a part of its rate: rates that differ by less belong to one level.
pub(super) const LEVEL_WIDTH_MIN: f64 = 0.004;
/// Most levels of an axis. Beyond it, levels are made wider.
const LEVELS_MAX: usize = 64;
/// Part of the highest rate below which a rate counts as no reads at all.
const PROBE_SHARE: f64 = 0.002;
/// Distance that a filled value may lie outside the range of the measured ones next to it, in ln latency: 15 %.
const BEYOND_NEIGHBOURS: f64 = 0.14;
/// Knots of the curve of latency over load.
const KNOTS: usize = 16;
/// Most sweeps over the table, and the change of ln latency in a sweep at which it counts as smooth.
const SWEEPS_MAX: usize = 4000;
const SMOOTH: f64 = 1e-6;
/// Over-relaxation of a sweep; any value from 1 to 2 converges.
const RELAXATION: f64 = 1.7;

/// Measurements sorted into levels of both rates.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) write_levels: Vec<f64>,
    pub(super) read_levels: Vec<f64>,
    /// Mean [ln p50, ln p95] of the measurements at each pair of levels, write level by write level.
    ln_ns: Vec<Option<[f64; 2]>>,
    pub(super) duplicates: usize,
    pub(super) level_width: f64,
}

impl Grid {
    pub(super) fn gather(cells: &[Cell]) -> Grid {
        let (write_levels, write_width) = levels(cells.iter().map(|cell| cell.write_bytes_per_s).collect());
        let (read_levels, read_width) = levels(cells.iter().map(|cell| cell.read_iops).collect());

        let mut sums = vec![([0.0; 2], 0usize); write_levels.len() * read_levels.len()];
        for cell in cells {
            let row = nearest(&write_levels, cell.write_bytes_per_s);
            let column = nearest(&read_levels, cell.read_iops);
            if let Some((sum, count)) = sums.get_mut(row * read_levels.len() + column) {
                *sum = [sum[0] + ln(cell.p50_ns), sum[1] + ln(cell.p95_ns)];
                *count += 1;
            }
        }

        let duplicates = sums.iter().map(|(_, count)| count.saturating_sub(1)).sum();
        let mean = |([p50, p95], count): ([f64; 2], usize)| {
            let count_f64 = count as f64;
            (count > 0).then_some([p50 / count_f64, p95 / count_f64])
        };
        let ln_ns = sums.into_iter().map(mean).collect();
        Grid { write_levels, read_levels, ln_ns, duplicates, level_width: write_width.max(read_width) }
    }

    /// Counts the pairs of levels well inside the frontier that were not measured.
    pub(super) fn holes(&self, frontier: &Frontier) -> usize {
        let inside = |(write, read): (f64, f64)| frontier.load(write, read) < 0.95;
        self.rates().zip(&self.ln_ns).filter(|(rates, known)| known.is_none() && inside(*rates)).count()
    }

    fn rates(&self) -> impl Iterator<Item = (f64, f64)> {
        self.write_levels.iter().flat_map(|&write| self.read_levels.iter().map(move |&read| (write, read)))
    }

    /// Returns whether the lowest read level stands for no reads.
    fn has_probes(&self) -> bool {
        let highest = self.read_levels.last().copied().unwrap_or(0.0);
        self.read_levels.first().is_some_and(|&lowest| lowest <= PROBE_SHARE * highest)
    }
}

/// Gathers rates into at most [`LEVELS_MAX`] levels, each the mean of its rates. Returns them with the width of a
/// level.
fn levels(mut rates: Vec<f64>) -> (Vec<f64>, f64) {
    rates.sort_by(f64::total_cmp);
    let highest = rates.last().copied().unwrap_or(0.0);
    let mut width = LEVEL_WIDTH_MIN;
    loop {
        let mut groups: Vec<(f64, f64, usize)> = Vec::new();
        for &rate in &rates {
            match groups.last_mut() {
                Some((first, sum, count)) if rate - *first <= (width * *first).max(0.1 * width * highest) => {
                    *sum += rate;
                    *count += 1;
                }
                _ => groups.push((rate, rate, 1)),
            }
        }
        if groups.len() <= LEVELS_MAX || width > 1.0 {
            return (groups.into_iter().map(|(_, sum, count)| sum / count as f64).collect(), width);
        }
        width *= 2.0;
    }
}

/// Returns the index of the level closest to `rate`.
fn nearest(levels: &[f64], rate: f64) -> usize {
    let above = levels.partition_point(|&level| level < rate);
    let distance = |index: usize| levels.get(index).map_or(f64::INFINITY, |level| (level - rate).abs());
    match above.checked_sub(1) {
        Some(below) if distance(below) <= distance(above) => below,
        _ => above,
    }
}

/// Returns the full table: measured values where there are any, filled ones elsewhere.
pub(super) fn surface(grid: &Grid, frontier: &Frontier) -> Result<LatencySurface, SurfaceError> {
    let [p50_ns, p95_ns] = [0, 1].map(|percentile| column(grid, frontier, percentile));
    let p95_ns: Vec<f64> = p95_ns.iter().zip(&p50_ns).map(|(&p95, &p50)| p95.max(p50)).collect();
    LatencySurface::new(grid.write_levels.clone(), grid.read_levels.clone(), &p50_ns, &p95_ns)
}

fn column(grid: &Grid, frontier: &Frontier, percentile: usize) -> Vec<f64> {
    let loads: Vec<f64> = grid.rates().map(|(write, read)| frontier.load(write, read)).collect();
    let width = grid.read_levels.len();
    let is_probe = |index: usize| grid.has_probes() && index.is_multiple_of(width);
    let known: Vec<Option<f64>> = grid.ln_ns.iter().map(|known| known.map(|ln_ns| ln_ns[percentile])).collect();
    let measured = loads.iter().zip(&known).enumerate().filter(|(index, _)| !is_probe(*index));
    let rise = Rise::through(measured.filter_map(|(_, (&load, known))| known.map(|ln_ns| (load, ln_ns))).collect());
    let residuals: Vec<Option<f64>> =
        known.iter().zip(&loads).map(|(known, &load)| known.map(|ln_ns| ln_ns - rise.at(load))).collect();
    let filled = fill(grid, &residuals);
    let ln_ns = filled.iter().zip(&loads).map(|(residual, &load)| residual + rise.at(load));
    ln_ns.enumerate().map(|(index, ln_ns)| exp(near_neighbours(&known, index, width, ln_ns))).collect()
}

/// Returns `ln_ns` for the node `index`, kept close to the range of the measurements at the four nodes around it.
fn near_neighbours(known: &[Option<f64>], index: usize, width: usize, ln_ns: f64) -> f64 {
    if let Some(measured) = known.get(index).copied().flatten() {
        return measured;
    }
    let column = index % width.max(1);
    let around = [
        index.checked_sub(width),
        Some(index + width),
        (column > 0).then(|| index.saturating_sub(1)),
        (column + 1 < width).then_some(index + 1),
    ];
    let measured = || around.into_iter().flatten().filter_map(|next| known.get(next).copied().flatten());
    let lowest = measured().fold(f64::INFINITY, f64::min);
    let highest = measured().fold(f64::NEG_INFINITY, f64::max);
    if lowest > highest { ln_ns } else { ln_ns.clamp(lowest - BEYOND_NEIGHBOURS, highest + BEYOND_NEIGHBOURS) }
}

/// The rise of ln latency with load: knots that never fall, straight lines between them.
#[derive(Clone, Debug)]
struct Rise {
    knots: Vec<(f64, f64)>,
}

impl Rise {
    /// Fits the curve: medians of equal numbers of points in order of load; where they fall, neighbours are pooled (the
    /// isotonic regression of Ayer et al., 1955).
    fn through(mut points: Vec<(f64, f64)>) -> Rise {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let per_knot = points.len().div_ceil(KNOTS).max(1);
        let mut pools: Vec<(f64, f64, f64)> = Vec::new();
        for chunk in points.chunks(per_knot) {
            let count = chunk.len() as f64;
            let load = chunk.iter().map(|point| point.0).sum::<f64>() / count;
            let mut values: Vec<f64> = chunk.iter().map(|point| point.1).collect();
            values.sort_by(f64::total_cmp);
            let median = values.get(values.len() / 2).copied().unwrap_or(0.0);
            pools.push((load * count, median * count, count));
            while let [.., before, last] = pools.as_mut_slice()
                && before.1 / before.2 > last.1 / last.2
            {
                *before = (before.0 + last.0, before.1 + last.1, before.2 + last.2);
                pools.pop();
            }
        }
        Rise { knots: pools.iter().map(|(load, value, count)| (load / count, value / count)).collect() }
    }

    /// Returns ln latency at `load`: constant below the first knot and beyond the last.
    fn at(&self, load: f64) -> f64 {
        let above = self.knots.partition_point(|knot| knot.0 < load);
        match (above.checked_sub(1).and_then(|below| self.knots.get(below)), self.knots.get(above)) {
            (Some(before), Some(after)) => {
                before.1 + (after.1 - before.1) * (load - before.0) / (after.0 - before.0).max(f64::MIN_POSITIVE)
            }
            (Some(only), None) | (None, Some(only)) => only.1,
            (None, None) => 0.0,
        }
    }
}

/// Fills all nodes: known values stay, every other one is the mean of its neighbours weighted by closeness (Laplace's
/// equation, by successive over-relaxation). The level without reads has no neighbours among the others.
fn fill(grid: &Grid, known: &[Option<f64>]) -> Vec<f64> {
    let (rows, width) = (grid.write_levels.len(), grid.read_levels.len());
    let (mean_sum, mean_count) = known.iter().flatten().fold((0.0, 0usize), |(sum, n), value| (sum + value, n + 1));
    let mean = mean_sum / mean_count.max(1) as f64;
    let mut values: Vec<f64> = known.iter().map(|value| value.unwrap_or(mean)).collect();
    let along = |levels: &[f64]| {
        let extent = levels.last().copied().unwrap_or(1.0) - levels.first().copied().unwrap_or(0.0);
        levels.windows(2).map(|pair| extent / (pair[1] - pair[0])).collect::<Vec<f64>>()
    };

    let (down, mut right) = (along(&grid.write_levels), along(&grid.read_levels));
    let probes_known = known.iter().step_by(width.max(1)).any(Option::is_some);
    if let Some(first) = right.first_mut()
        && grid.has_probes()
        && probes_known
    {
        *first = 0.0;
    }

    for _ in 0..SWEEPS_MAX {
        let mut change: f64 = 0.0;
        for row in 0..rows {
            for column in 0..width {
                let at = row * width + column;
                if known[at].is_some() {
                    continue;
                }
                let (mut sum, mut weight) = (0.0, 0.0);
                let mut add = |value: f64, part: f64| {
                    sum += value * part;
                    weight += part;
                };
                if row > 0 {
                    add(values[at - width], down[row - 1]);
                }
                if row + 1 < rows {
                    add(values[at + width], down[row]);
                }
                if column > 0 {
                    add(values[at - 1], right[column - 1]);
                }
                if column + 1 < width {
                    add(values[at + 1], right[column]);
                }

                let step = if weight > 0.0 { RELAXATION * (sum / weight - values[at]) } else { 0.0 };
                values[at] += step;
                change = change.max(step.abs());
            }
        }
        if change < SMOOTH {
            break;
        }
    }

    values
}
