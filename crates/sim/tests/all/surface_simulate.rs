//! A surface is measured, half of it fitted, the other half simulated on the fitted device and compared.

use plimsoll_sim::device::DeviceSpec;
use plimsoll_sim::fit::{Cell, fit};
use plimsoll_sim::surface::{CellResult, SurfaceOptions, compare, simulate};

/// Returns fewer reads than the default: these tests also run unoptimised.
fn quick() -> SurfaceOptions {
    SurfaceOptions { reads_per_cell: 1500, warm_up_ns: 250_000_000, probe_iops: 20.0, probes_per_cell: 100 }
}

/// Makes a disk of 10,000 reads or 400 MB/s, 11 levels each, with a fixed delay and a knee at the end.
fn network_volume() -> Vec<Cell> {
    let mut cells = Vec::new();
    for write in 0..11 {
        for read in 0..=10 - write {
            let load = f64::from(write + read) / 10.0;
            let p50_ns = 380e3 * (1.0 + 0.1 * f64::from(write) / 10.0 + 0.3 * load * load * load * load);
            cells.push(Cell {
                write_bytes_per_s: f64::from(write) * 40e6,
                read_iops: f64::from(read) * 1000.0,
                p50_ns,
                p95_ns: p50_ns * 1.5,
            });
        }
    }
    cells
}

#[test]
fn the_fitted_device_predicts_the_other_half() {
    let cells = network_volume();
    let place = |cell: &Cell| (cell.read_iops / 1000.0 + cell.write_bytes_per_s / 40e6).round() as u64;
    let (fitted, others): (Vec<Cell>, Vec<Cell>) = cells.iter().partition(|cell| place(cell).is_multiple_of(2));
    let fit = fit(&fitted).unwrap();
    let results = simulate(&fit.spec, &others, 1, &quick()).unwrap();
    let comparison = compare(&fitted, &others, &results);
    assert_eq!((comparison.qualifying, comparison.without_neighbours), (others.len(), 0), "{comparison:?}");
    assert!(comparison.p50_error_mean <= 0.1 && comparison.p50_error_p95 <= 0.2, "{comparison:?}");
    assert!(comparison.saturated == 0 && comparison.outside == 0, "{comparison:?}");
}

#[test]
fn beyond_the_frontier_the_device_saturates() {
    let fit = fit(&network_volume()).unwrap();
    // (bytes written per second, reads per second, saturated)
    let table = [(0.0, 9e3, false), (0.0, 14e3, true), (360e6, 0.0, false), (560e6, 0.0, true), (300e6, 9e3, true)];
    let cells =
        table.map(|(write_bytes_per_s, read_iops, _)| Cell { write_bytes_per_s, read_iops, p50_ns: 1.0, p95_ns: 1.0 });
    // A queue of the device's own must build up first.
    let options = SurfaceOptions { reads_per_cell: 10_000, ..quick() };
    let results = simulate(&fit.spec, &cells, 1, &options).unwrap();
    for ((write, read, saturated), result) in table.into_iter().zip(&results) {
        assert_eq!(result.saturated, saturated, "{write} B/s, {read} reads/s: {result:?}");
    }
}

#[test]
fn achieved_rates_are_those_asked_for() {
    let spec = DeviceSpec::default();
    let cell = Cell { write_bytes_per_s: 300e6, read_iops: 50e3, p50_ns: 100e3, p95_ns: 130e3 };
    let options = SurfaceOptions { reads_per_cell: 20_000, ..quick() };
    let result = simulate(&spec, &[cell], 3, &options).unwrap()[0];
    assert!((result.achieved_write_bytes_per_s / 300e6 - 1.0).abs() < 0.02, "{result:?}");
    assert!((result.achieved_read_iops / 50e3 - 1.0).abs() < 0.03, "{result:?}");
    assert!(!result.saturated);
}

#[test]
fn the_same_seed_gives_the_same_results() {
    let fit = fit(&network_volume()).unwrap();
    let cells = &network_volume()[8..10];
    let run = |seed| simulate(&fit.spec, cells, seed, &quick()).unwrap();
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

#[test]
fn a_device_that_cannot_be_is_refused() {
    let mut spec = DeviceSpec::default();
    spec.rates.read_iops = f64::NAN;
    assert!(simulate(&spec, &network_volume()[..1], 1, &quick()).is_err());
    assert!(simulate(&DeviceSpec::default(), &[], 1, &quick()).unwrap().is_empty());
}

#[test]
fn a_comparison_counts_by_its_rules() {
    let cell = |write: f64, read: f64, p50_ns: f64| Cell {
        write_bytes_per_s: write,
        read_iops: read,
        p50_ns,
        p95_ns: p50_ns * 2.0,
    };
    let fitted = [cell(0.0, 100.0, 100.0), cell(0.0, 300.0, 150.0), cell(50.0, 400.0, 100.0), cell(50.0, 600.0, 500.0)];
    // Neighbours agree; neighbours disagree (twice); no neighbours at its rates.
    let others = [cell(0.0, 200.0, 120.0), cell(50.0, 500.0, 200.0), cell(50.0, 500.0, 200.0), cell(25.0, 700.0, 1.0)];
    let simulated = [132.0, 590.0, 610.0, 9.0];
    let results: Vec<CellResult> = others
        .iter()
        .zip(simulated)
        .map(|(cell, p50_ns)| CellResult {
            cell: *cell,
            model_p50_ns: p50_ns,
            model_p95_ns: p50_ns * 2.0,
            achieved_write_bytes_per_s: cell.write_bytes_per_s,
            achieved_read_iops: cell.read_iops,
            saturated: false,
        })
        .collect();
    let comparison = compare(&fitted, &others, &results);
    assert_eq!((comparison.qualifying, comparison.elsewhere, comparison.outside), (1, 2, 1), "{comparison:?}");
    assert_eq!((comparison.without_neighbours, comparison.saturated), (1, 0));
    assert!((comparison.p50_error_mean - 0.1).abs() < 1e-9 && (comparison.p95_error_mean - 0.1).abs() < 1e-9);
}
