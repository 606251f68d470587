//! Compares a simulated surface with a measured one.
//!
//! # Why
//! Where latency is smooth, a model must match it; where neighbours differ by a factor, it need only stay between them.
//!
//! # How it works
//! Cells below the clip whose fitted neighbours agree within a factor of two count by error. The others count by
//! whether the model is within the range of their neighbours, 20 % allowed.
//!
//! # Limits
//! Neighbours are found by rates that agree within 0.4 % of the highest: gather rates that scatter first.
//!
//! # Example
//! Fitted 100 and 150 us, measured between them 120 us, simulated 132 us: an error of 10 %.

use super::CellResult;
use crate::fit::{Cell, clip_ns, is_clipped};

/// Largest factor between measured neighbours that still predict a value between them.
const AGREEMENT: f64 = 2.0;
/// Part by which a median may lie outside the range of its neighbours.
const RANGE_TOLERANCE: f64 = 0.2;
/// Part of the highest rate within which rates count as the same.
const SAME_RATE: f64 = 0.004;

/// The distance of a model from the cells that it was not fitted to. Errors are relative: 0.1 is 10 %.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Cells whose measured median is below the clip and whose fitted neighbours agree within a factor of two.
    pub qualifying: usize,
    /// Mean error of the median over these; 0 if there are none.
    pub p50_error_mean: f64,
    /// 95th percentile of the error of the median over these.
    pub p50_error_p95: f64,
    /// Mean error of the 95th percentile of latency over these.
    pub p95_error_mean: f64,
    /// The other cells with a fitted neighbour.
    pub elsewhere: usize,
    /// Cells among `elsewhere` whose simulated median is more than 20 % outside the range of their neighbours.
    pub outside: usize,
    /// Cells without any fitted neighbour; they are not counted elsewhere.
    pub without_neighbours: usize,
    /// Saturated cells, among all simulated ones.
    pub saturated: usize,
}

/// Compares `results`, simulated from a fit to `fit_cells`, with the measurements at these cells (`other_cells`, in the
/// same order). A cell's neighbours are the closest fitted ones, in both directions, at its rate of writing and at its
/// rate of reading.
pub fn compare(fit_cells: &[Cell], other_cells: &[Cell], results: &[CellResult]) -> Comparison {
    let all: Vec<Cell> = fit_cells.iter().chain(other_cells).copied().collect();
    let clip_ns = clip_ns(&all);
    let tolerance = [
        all.iter().map(|cell| cell.write_bytes_per_s).fold(0.0, f64::max) * SAME_RATE,
        all.iter().map(|cell| cell.read_iops).fold(0.0, f64::max) * SAME_RATE,
    ];

    let (mut p50_errors, mut p95_errors) = (Vec::new(), Vec::new());
    let (mut elsewhere, mut outside, mut without_neighbours) = (0, 0, 0);

    for (cell, result) in other_cells.iter().zip(results) {
        let neighbours = neighbours(cell, fit_cells, tolerance);
        let lowest = neighbours.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = neighbours.iter().copied().fold(0.0, f64::max);
        if neighbours.is_empty() {
            without_neighbours += 1;
        } else if !is_clipped(cell.p50_ns, clip_ns) && highest <= AGREEMENT * lowest {
            p50_errors.push((result.model_p50_ns / cell.p50_ns - 1.0).abs());
            p95_errors.push((result.model_p95_ns / cell.p95_ns - 1.0).abs());
        } else {
            elsewhere += 1;
            let range = lowest * (1.0 - RANGE_TOLERANCE)..=highest * (1.0 + RANGE_TOLERANCE);
            outside += usize::from(!range.contains(&result.model_p50_ns));
        }
    }

    p50_errors.sort_by(f64::total_cmp);
    Comparison {
        qualifying: p50_errors.len(),
        p50_error_mean: mean(&p50_errors),
        p50_error_p95: p50_errors.get(p50_errors.len() * 95 / 100).copied().unwrap_or(0.0),
        p95_error_mean: mean(&p95_errors),
        elsewhere,
        outside,
        without_neighbours,
        saturated: results.iter().filter(|result| result.saturated).count(),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the medians of the nearest fitted cells: with fewer and more reads, with fewer and more writes.
fn neighbours(cell: &Cell, fit_cells: &[Cell], [write_tolerance, read_tolerance]: [f64; 2]) -> Vec<f64> {
    let mut nearest: [Option<(f64, f64)>; 4] = [None; 4];
    for other in fit_cells {
        let write = other.write_bytes_per_s - cell.write_bytes_per_s;
        let read = other.read_iops - cell.read_iops;
        let (first, distance) = match (write.abs() <= write_tolerance, read.abs() <= read_tolerance) {
            (true, false) => (0, read),
            (false, true) => (2, write),
            _ => continue,
        };
        let slot = first + usize::from(distance > 0.0);
        if let Some(place) = nearest.get_mut(slot)
            && place.is_none_or(|(known, _)| distance.abs() < known)
        {
            *place = Some((distance.abs(), other.p50_ns));
        }
    }
    nearest.iter().flatten().map(|&(_, p50_ns)| p50_ns).collect()
}
