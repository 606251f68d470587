//! Makes a device model from latencies measured under load.
//!
//! # Why
//! A measured grid (at these rates of writes and reads: this median, this p95) describes one real disk. A simulated
//! disk made from it lets anyone try a scheduler on that disk without having it.
//!
//! # How it works
//! 1. **Frontier** ([`Frontier`]): the outermost cells of the grid are the highest loads that the disk sustained.
//!    (r/R)^p + (w/W)^p = 1 is fitted through them.
//! 2. **Table** ([`LatencySurface`]): the rates are gathered into levels. One rising curve for all cells explains
//!    latency by the distance to the frontier; the residuals are spread evenly over the places without a measurement,
//!    so that holes are filled from all sides. Beyond the outermost cells latency stays constant: the device's queue,
//!    not the table, makes saturation.
//! 3. **Model** ([`Fit::spec`]): the table holds the latency below saturation, queueing included. The rates of the
//!    model lie more than a step of the grid beyond the outermost cell: a measured cell did not saturate the disk, and
//!    the grid does not show where between it and the next one the disk would have saturated.
//!
//! # Limits
//! Cells without reads are a different experiment (a few probes on a disk that otherwise only writes or sleeps): they
//! are interpolated among themselves only. The frontier is known to one step of the grid. The fitted cells are
//! reproduced as measured, noise included.
//!
//! # Example
//! ```
//! use plimsoll_sim::fit::{Cell, fit};
//! // A disk that carries 10,000 reads or 100 MB/s: five levels each, the cells beyond the frontier missing.
//! let mut cells = Vec::new();
//! for write in 0..5 {
//!     for read in 0..5 - write {
//!         let (write_bytes_per_s, read_iops) = (f64::from(write) * 25e6, f64::from(read) * 2500.0);
//!         let p50_ns = 100e3 * f64::from(1 + read + write);
//!         cells.push(Cell { write_bytes_per_s, read_iops, p50_ns, p95_ns: 2.0 * p50_ns });
//!     }
//! }
//! let fit = fit(&cells)?;
//! assert!((fit.frontier.read_iops / 10_000.0 - 1.0).abs() < 0.05);
//! assert!((fit.surface.p50_ns(25e6, 2500.0) / 300e3 - 1.0).abs() < 0.01);
//! # Ok::<(), plimsoll_sim::fit::FitError>(())
//! ```

mod frontier;
mod model;
mod table;

use core::fmt;

use thiserror::Error;

use crate::device::DeviceSpec;
use crate::latency_surface::{LatencySurface, SurfaceError};

pub use frontier::{Frontier, MixFit, fit_mix_exponent, mix_load};
pub(crate) use model::{READ_BYTES, WRITE_BYTES};

/// Distance from the outermost cell to the model's saturation, in steps of the grid. More than 1, because the next cell
/// is not yet saturated.
const STEPS_TO_SATURATION: f64 = 1.25;
/// Fewest levels of each axis.
pub const LEVELS_MIN: usize = 3;
/// Fewest cells: a grid of 3 by 3 has 6 on and below its diagonal.
pub const CELLS_MIN: usize = 6;

/// One measurement: the latency of reads at a rate of reads and writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Bytes written per second, 0 or more.
    pub write_bytes_per_s: f64,
    /// Reads per second, 0 or more; 0 for occasional probes.
    pub read_iops: f64,
    /// Median latency of the reads in nanoseconds, positive.
    pub p50_ns: f64,
    /// 95th percentile of the latency of the reads in nanoseconds, at least the median.
    pub p95_ns: f64,
}

#[derive(Clone, Debug, Error, PartialEq)]
pub enum FitError {
    #[error("cell {index} (from 0): {field}: expected {expected}, found {found}; correct or leave it out")]
    Cell {
        /// Index of the cell, from 0, in the order given.
        index: usize,
        /// The field of [`Cell`].
        field: &'static str,
        expected: &'static str,
        found: f64,
    },
    #[error(
        "expected at least {CELLS_MIN} cells on at least {LEVELS_MIN} rates of writing and {LEVELS_MIN} of reading, \
         found {cells} cells, {write_levels} rates of writing, {read_levels} of reading; measure a grid of reads and \
         writes together"
    )]
    TooFew {
        cells: usize,
        /// Different rates of writing.
        write_levels: usize,
        /// Different rates of reading.
        read_levels: usize,
    },
    #[error("table of latencies: {0}")]
    Surface(SurfaceError),
}

/// A caveat about a fit.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Cells inside the frontier that were not measured and are interpolated.
    Holes { count: usize },
    /// The same pair of rates was measured more than once; the geometric mean counts.
    Duplicates {
        /// Measurements beyond the first of each pair.
        count: usize,
    },
    /// Cells with a latency at the highest value that the measurement records: the true latency is higher.
    Clipped { p50_count: usize, p95_count: usize },
    /// Cells whose median is lower by a quarter or more than that of a cell with fewer reads and no more writes.
    NotMonotone { count: usize },
    /// The rates scatter too much for narrow levels: levels are as wide as this part of the axis.
    Gathered {
        /// Width of a level as a part of its rate.
        width: f64,
    },
    /// Too few outermost cells, or outermost cells that lie on no such curve: p is uncertain.
    FrontierUncertain {
        /// Cells on the frontier.
        points: usize,
        /// Root of the mean squared logarithmic distance of these cells from the curve.
        rmse: f64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Holes { count } => write!(f, "{count} cells inside the frontier were not measured; interpolated"),
            Note::Duplicates { count } => write!(f, "{count} cells were measured again; their geometric mean counts"),
            Note::Clipped { p50_count, p95_count } => {
                write!(f, "{p50_count} medians and {p95_count} p95 stand at the highest value recorded: a lower bound")
            }
            Note::NotMonotone { count } => {
                write!(f, "{count} cells are faster by a quarter or more than a cell with less load")
            }
            Note::Gathered { width } => {
                write!(f, "the rates scatter: gathered into levels of {:.1} %", width * 100.0)
            }
            Note::FrontierUncertain { points, rmse } => write!(
                f,
                "the mix exponent is uncertain: {points} cells on the frontier, {:.1} % off the curve",
                rmse * 100.0
            ),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Fit {
    /// The model: capacity, mix exponent, unloaded latency and table.
    pub spec: DeviceSpec,
    /// The highest loads that the disk sustains.
    pub frontier: Frontier,
    /// The table, also part of `spec`.
    pub surface: LatencySurface,
    pub cells: usize,
    /// Highest latency that the measurement records, in nanoseconds, if it seems to have one.
    pub clip_ns: Option<f64>,
    pub notes: Vec<Note>,
}

/// Fits a device model to measured `cells`, in any order. Cells may be missing, beyond the frontier and elsewhere.
///
/// # Errors
/// Impossible rates or latencies; fewer than [`CELLS_MIN`] cells or [`LEVELS_MIN`] different rates on an axis.
pub fn fit(cells: &[Cell]) -> Result<Fit, FitError> {
    check_cells(cells)?;
    let grid = table::Grid::gather(cells);
    let (write_levels, read_levels) = (grid.write_levels.len(), grid.read_levels.len());
    if cells.len() < CELLS_MIN || write_levels < LEVELS_MIN || read_levels < LEVELS_MIN {
        return Err(FitError::TooFew { cells: cells.len(), write_levels, read_levels });
    }

    let clip_ns = clip_ns(cells);
    let carried = carried(cells, clip_ns);
    let frontier = frontier::fit_frontier(&carried, write_levels, read_levels);

    let step = STEPS_TO_SATURATION / (write_levels.min(read_levels) - 1) as f64;
    let outermost =
        carried.iter().map(|cell| frontier.load(cell.write_bytes_per_s, cell.read_iops)).fold(1.0, f64::max);
    let saturation = outermost * (1.0 + step);

    let surface = table::surface(&grid, &frontier).map_err(FitError::Surface)?;
    let notes = notes(cells, &grid, &frontier, clip_ns);
    let spec = model::spec(cells, &frontier, saturation, &surface);
    Ok(Fit { spec, frontier, surface, cells: cells.len(), clip_ns, notes })
}

/// Returns the cells that did not saturate the disk: those whose median is not clipped. If these have only reads or
/// only writes, returns all cells.
fn carried(cells: &[Cell], clip_ns: Option<f64>) -> Vec<Cell> {
    let carried: Vec<Cell> = cells.iter().filter(|cell| !is_clipped(cell.p50_ns, clip_ns)).copied().collect();
    let has_reads = carried.iter().any(|cell| cell.read_iops > 0.0);
    let has_writes = carried.iter().any(|cell| cell.write_bytes_per_s > 0.0);
    if has_reads && has_writes { carried } else { cells.to_vec() }
}

fn check_cells(cells: &[Cell]) -> Result<(), FitError> {
    const RATE: &str = "0 or a positive number";
    const LATENCY: &str = "a positive number";
    for (index, cell) in cells.iter().enumerate() {
        let rates = [("write_bytes_per_s", cell.write_bytes_per_s), ("read_iops", cell.read_iops)];
        let latencies = [("p50_ns", cell.p50_ns), ("p95_ns", cell.p95_ns)];
        let bad_rate = rates.into_iter().find(|(_, rate)| !(rate.is_finite() && *rate >= 0.0));
        let bad_latency = latencies.into_iter().find(|(_, ns)| !(ns.is_finite() && *ns > 0.0));
        let bad_order = (cell.p95_ns < cell.p50_ns).then_some(("p95_ns", cell.p95_ns));

        let expected = if bad_rate.is_some() {
            RATE
        } else if bad_latency.is_some() {
            LATENCY
        } else {
            "at least p50_ns"
        };

        if let Some((field, found)) = bad_rate.or(bad_latency).or(bad_order) {
            return Err(FitError::Cell { index, field, expected, found });
        }
    }
    Ok(())
}

/// Returns the highest latency if the measurement seems to cut there: at least three cells share it and it is far above
/// the fastest, or it is 50 times the fastest, where measurements usually cut.
pub(crate) fn clip_ns(cells: &[Cell]) -> Option<f64> {
    let highest = cells.iter().map(|cell| cell.p95_ns).fold(0.0, f64::max);
    let fastest = cells.iter().map(|cell| cell.p50_ns).fold(f64::INFINITY, f64::min);
    let at_highest = cells.iter().filter(|cell| is_clipped(cell.p95_ns, Some(highest))).count();
    let is_cut = (at_highest >= 3 && highest >= 10.0 * fastest) || (highest / fastest / 50.0 - 1.0).abs() < 0.01;
    is_cut.then_some(highest)
}

pub(crate) fn is_clipped(ns: f64, clip_ns: Option<f64>) -> bool {
    clip_ns.is_some_and(|clip_ns| ns >= clip_ns * 0.999)
}

fn notes(cells: &[Cell], grid: &table::Grid, frontier: &Frontier, clip_ns: Option<f64>) -> Vec<Note> {
    let mut notes = Vec::new();
    let holes = grid.holes(frontier);
    if holes > 0 {
        notes.push(Note::Holes { count: holes });
    }
    if grid.duplicates > 0 {
        notes.push(Note::Duplicates { count: grid.duplicates });
    }

    if clip_ns.is_some() {
        let p50_count = cells.iter().filter(|cell| is_clipped(cell.p50_ns, clip_ns)).count();
        let p95_count = cells.iter().filter(|cell| is_clipped(cell.p95_ns, clip_ns)).count();
        notes.push(Note::Clipped { p50_count, p95_count });
    }

    let count = cells.iter().filter(|cell| is_faster_than_a_lesser_load(cell, cells)).count();
    if count > 0 {
        notes.push(Note::NotMonotone { count });
    }
    if grid.level_width > table::LEVEL_WIDTH_MIN {
        notes.push(Note::Gathered { width: grid.level_width });
    }
    if frontier.points < 4 || frontier.rmse > 0.05 {
        notes.push(Note::FrontierUncertain { points: frontier.points, rmse: frontier.rmse });
    }
    notes
}

/// Returns whether a cell is faster than one with less load. Cells without reads do not count as less load, because
/// they are a different experiment.
fn is_faster_than_a_lesser_load(cell: &Cell, cells: &[Cell]) -> bool {
    cells.iter().any(|lesser| {
        lesser.read_iops > 0.0
            && lesser.read_iops < cell.read_iops
            && lesser.write_bytes_per_s <= cell.write_bytes_per_s
            && lesser.p50_ns * 0.75 > cell.p50_ns
    })
}
