//! From cells to a model: the frontier is found, the cells that were left out are predicted, bad cells are refused.

use plimsoll_core::math::{exp, pow};
use plimsoll_sim::fit::{Cell, Fit, FitError, Note, fit};
use plimsoll_sim::rng::Rng;

const READ_IOPS: f64 = 200e3;
const WRITE_BYTES_PER_S: f64 = 1e9;

fn load(read: f64, write: f64, p: f64) -> f64 {
    if p.is_infinite() { read.max(write) } else { pow(pow(read, p) + pow(write, p), 1.0 / p) }
}

/// Makes a disk with a frontier of exponent `p`, measured at `levels` by `levels` rates, each latency off by up to
/// `noise`.
fn disk(p: f64, levels: u32, noise: f64) -> Vec<Cell> {
    let mut rng = Rng::new(5);
    let mut factor = move || exp(noise * (rng.below(2001) as f64 / 1000.0 - 1.0));
    let mut cells = Vec::new();
    for write in 0..levels {
        for read in 0..levels {
            let (write, read) = (f64::from(write) / f64::from(levels - 1), f64::from(read) / f64::from(levels - 1));
            let load = load(read, write, p);
            if load <= 1.0 + 1e-9 {
                let p50_ns = 138e3 * (1.0 + 0.8 * load + pow(load, 8.0)) * factor();
                let (write_bytes_per_s, read_iops) = (write * WRITE_BYTES_PER_S, read * READ_IOPS);
                cells.push(Cell { write_bytes_per_s, read_iops, p50_ns, p95_ns: p50_ns * (1.3 + write) });
            }
        }
    }
    cells
}

/// Splits the cells like a chessboard into two halves.
fn halves(cells: &[Cell], levels: u32) -> (Vec<Cell>, Vec<Cell>) {
    let step = f64::from(levels - 1);
    cells.iter().partition(|cell| {
        let place = (cell.read_iops / READ_IOPS + cell.write_bytes_per_s / WRITE_BYTES_PER_S) * step;
        (place.round() as u64).is_multiple_of(2)
    })
}

fn errors(fit: &Fit, cells: &[Cell]) -> Vec<f64> {
    let error = |cell: &Cell| (fit.surface.p50_ns(cell.write_bytes_per_s, cell.read_iops) / cell.p50_ns - 1.0).abs();
    let mut errors: Vec<f64> = cells.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

#[test]
fn the_frontier_is_found() {
    for p in [0.6, 1.0, 1.2, 2.2, f64::INFINITY] {
        let frontier = fit(&disk(p, 21, 0.02)).unwrap().frontier;
        assert!((frontier.read_iops / READ_IOPS - 1.0).abs() < 0.05, "p {p}: {frontier:?}");
        assert!((frontier.write_bytes_per_s / WRITE_BYTES_PER_S - 1.0).abs() < 0.05, "p {p}: {frontier:?}");
        assert!(frontier.mix_exponent == p || (frontier.mix_exponent / p - 1.0).abs() < 0.15, "p {p}: {frontier:?}");
    }
}

#[test]
fn cells_left_out_are_predicted() {
    for p in [0.6, 1.0, 2.2, f64::INFINITY] {
        for (levels, noise) in [(11, 0.0), (21, 0.0), (21, 0.08)] {
            let (fitted, others) = halves(&disk(p, levels, noise), levels);
            let fit = fit(&fitted).unwrap();
            let errors = errors(&fit, &others);
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            let p95 = errors[errors.len() * 95 / 100];
            assert!(mean <= 0.1 && p95 <= 0.25, "p {p}, {levels} levels, noise {noise}: mean {mean}, p95 {p95}");
        }
    }
}

#[test]
fn fitted_cells_are_reproduced_in_any_order() {
    let cells = disk(1.2, 11, 0.1);
    let forward = fit(&cells).unwrap();
    assert!(errors(&forward, &cells).iter().all(|error| *error < 1e-9));
    let mut turned = cells.clone();
    turned.reverse();
    turned.rotate_left(17);
    let backward = fit(&turned).unwrap();
    for cell in &cells {
        let at = |fit: &Fit| fit.surface.p50_ns(cell.write_bytes_per_s, cell.read_iops);
        assert!((at(&forward) / at(&backward) - 1.0).abs() < 1e-9);
    }
}

#[test]
fn the_model_saturates_one_step_beyond_the_outermost_cell() {
    let cells = disk(1.0, 21, 0.0);
    let fit = fit(&cells).unwrap();
    let rates = &fit.spec.rates;
    assert!(rates.read_iops > 1.05 * READ_IOPS && rates.read_iops < 1.1 * READ_IOPS, "{}", rates.read_iops);
    assert!(rates.write_bytes_per_s > 1.05 * WRITE_BYTES_PER_S, "{}", rates.write_bytes_per_s);
    assert!((fit.spec.mix_exponent_p - 1.0).abs() < 0.05);
    assert!((fit.spec.latency.read_ns / 138e3 - 1.0).abs() < 0.01);
    assert!(fit.spec.latency_surface.is_some() && fit.spec.check().is_ok());
    assert_eq!((fit.cells, fit.clip_ns), (cells.len(), None));
}

#[test]
fn holes_duplicates_and_clipping_are_said() {
    let mut cells = disk(1.2, 11, 0.0);
    let whole = fit(&cells).unwrap();
    assert!(whole.notes.is_empty(), "{:?}", whole.notes);
    let hole = cells.remove(25);
    let again = cells[7];
    cells.extend([again, again]);
    for index in [60, 64, 65, 66] {
        cells[index].p95_ns = 5e6;
    }
    let fit = fit(&cells).unwrap();
    let says = |note: Note| assert!(fit.notes.contains(&note), "{note}: {:?}", fit.notes);
    says(Note::Holes { count: 1 });
    says(Note::Duplicates { count: 2 });
    says(Note::Clipped { p50_count: 0, p95_count: 4 });
    assert_eq!(fit.clip_ns, Some(5e6));
    assert!(errors(&fit, &[hole])[0] < 0.05);
}

#[test]
fn cells_without_reads_stand_apart() {
    // A disk that sleeps: probes take ten times as long as reads under load.
    let mut cells = disk(1.0, 11, 0.0);
    cells.iter_mut().filter(|cell| cell.read_iops == 0.0).for_each(|cell| {
        (cell.p50_ns, cell.p95_ns) = (1.5e6, 3e6);
    });
    let (fitted, others) = halves(&cells, 11);
    let errors = errors(&fit(&fitted).unwrap(), &others);
    assert!(errors[errors.len() * 95 / 100] < 0.25, "{errors:?}");
}

#[test]
fn rates_that_scatter_are_gathered() {
    let mut rng = Rng::new(9);
    let mut cells = disk(1.0, 21, 0.0);
    for cell in &mut cells {
        cell.read_iops *= 1.0 + (rng.below(200) as f64 - 100.0) / 20_000.0;
        cell.write_bytes_per_s *= 1.0 + (rng.below(200) as f64 - 100.0) / 20_000.0;
    }
    let fit = fit(&cells).unwrap();
    assert!((fit.frontier.mix_exponent - 1.0).abs() < 0.15, "{:?}", fit.frontier);
    let errors = errors(&fit, &cells);
    assert!(errors[errors.len() * 95 / 100] < 0.1, "{errors:?}");
}

#[test]
fn bad_cells_are_refused_by_place_and_field() {
    let good = disk(1.0, 6, 0.0);
    type Change = fn(&mut Cell);
    let table: [(&str, Change); 8] = [
        ("write_bytes_per_s", |cell| cell.write_bytes_per_s = -1.0),
        ("write_bytes_per_s", |cell| cell.write_bytes_per_s = f64::NAN),
        ("read_iops", |cell| cell.read_iops = f64::INFINITY),
        ("p50_ns", |cell| cell.p50_ns = 0.0),
        ("p50_ns", |cell| cell.p50_ns = f64::NAN),
        ("p95_ns", |cell| cell.p95_ns = -3.0),
        ("p95_ns", |cell| cell.p95_ns = f64::INFINITY),
        ("p95_ns", |cell| cell.p95_ns = cell.p50_ns * 0.5),
    ];
    for (expected, change) in table {
        let mut cells = good.clone();
        change(&mut cells[3]);
        let error = fit(&cells).unwrap_err();
        assert!(matches!(error, FitError::Cell { index: 3, field, .. } if field == expected), "{expected}: {error}");
        assert!(error.to_string().contains("cell 3"), "{error}");
    }
}

#[test]
fn too_few_cells_are_refused() {
    let row: Vec<Cell> = disk(1.0, 21, 0.0).into_iter().filter(|cell| cell.write_bytes_per_s == 0.0).collect();
    let column: Vec<Cell> = disk(1.0, 21, 0.0).into_iter().filter(|cell| cell.read_iops == 0.0).collect();
    for (cells, writes, reads) in [(row, 1, 21), (column, 21, 1), (Vec::new(), 0, 0), (disk(1.0, 2, 0.0), 2, 2)] {
        let error = fit(&cells).unwrap_err();
        let expected = FitError::TooFew { cells: cells.len(), write_levels: writes, read_levels: reads };
        assert_eq!(error, expected);
    }
    assert!(fit(&disk(1.0, 3, 0.0)).is_ok());
}

#[test]
fn strange_surfaces_still_fit() {
    // Every latency the same; everything clipped; everything at one load; enormous and tiny numbers.
    let flat: Vec<Cell> = disk(1.0, 5, 0.0).into_iter().map(|cell| Cell { p50_ns: 1e6, p95_ns: 1e6, ..cell }).collect();
    let mut last_clipped = disk(1.0, 7, 0.0);
    for cell in last_clipped.iter_mut().skip(3) {
        (cell.p50_ns, cell.p95_ns) = (7e6, 7e6);
    }
    let scaled: Vec<Cell> = disk(2.0, 9, 0.1)
        .into_iter()
        .map(|cell| Cell { read_iops: cell.read_iops * 1e-4, write_bytes_per_s: cell.write_bytes_per_s * 1e3, ..cell })
        .collect();
    for cells in [flat, last_clipped, scaled] {
        let fit = fit(&cells).unwrap();
        let errors = errors(&fit, &cells);
        assert!(errors.iter().all(|error| *error < 1e-6), "{errors:?}, {:?}", fit.frontier);
        assert_eq!(fit.spec.check(), Ok(()), "{:?}", fit.spec.rates);
    }
}
