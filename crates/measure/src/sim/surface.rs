//! Predicts read latencies under load by a disk model, on a grid or beside a measurement.
//!
//! **Why.** A model is only as good as its predictions. The grid shows them; measured cells show their errors.
//!
//! **How.** Each cell is simulated without a scheduler ([`plimsoll_sim::surface`]). Without measured cells the grid has
//! [`LEVELS`] levels of each rate, up to the part [`LOAD_MAX`] of what the disk model's figures and mix exponent allow.
//!
//! **Limits.** [`SurfaceOptions`] sets the length of a cell: percentiles are accurate to a few per cent.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::disk;
//! use plimsoll_measure::sim::surface::grid;
//! let model = disk::find("i3en.3xlarge", ".".as_ref())?;
//! assert!(grid(&model).iter().all(|cell| cell.read_iops <= 257_024.0));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use plimsoll_core::Rate;
use plimsoll_files::csv::READ_IOPS_MAX;
use plimsoll_files::disk::DiskModel;
use plimsoll_sim::device::{DeviceSpec, SpecError};
use plimsoll_sim::fit::{Cell, mix_load};
use plimsoll_sim::surface::{CellResult, Comparison, SurfaceOptions, compare, simulate};

/// Levels of each rate of the default grid, including 0.
pub const LEVELS: u32 = 11;
/// Highest load of the default grid, as a part of the load that the figures allow.
pub const LOAD_MAX: f64 = 0.95;

#[derive(Clone, Debug)]
pub struct Surface {
    pub results: Vec<CellResult>,
    pub comparison: Option<Comparison>,
}

/// Returns the cells of the default grid, with placeholders for measured latencies.
pub fn grid(model: &DiskModel) -> Vec<Cell> {
    let rate = |rate: Rate| rate.get().map_or(1e9, |per_s| per_s as f64);
    let (reads, writes) = (rate(model.figures.read_iops).min(READ_IOPS_MAX), rate(model.figures.write_bandwidth));
    let p = model.mix_exponent_p;
    let levels = || (0..LEVELS).map(|level| f64::from(level) / f64::from(LEVELS - 1));
    let pairs = levels().flat_map(|write| levels().map(move |read| (write, read)));
    let inside = pairs.filter(|(write, read)| mix_load(*read, *write, p) <= LOAD_MAX);
    let cell = |(write, read): (f64, f64)| Cell {
        write_bytes_per_s: (write * writes).round(),
        read_iops: (read * reads).round(),
        p50_ns: 1.0,
        p95_ns: 1.0,
    };
    inside.map(cell).collect()
}

/// Simulates `cells`. If they were measured, compares the results with them.
pub fn run(spec: &DeviceSpec, cells: &[Cell], is_measured: bool, seed: u64) -> Result<Surface, SpecError> {
    let results = simulate(spec, cells, seed, &SurfaceOptions::default())?;
    let comparison = is_measured.then(|| compare(cells, cells, &results));
    Ok(Surface { results, comparison })
}
