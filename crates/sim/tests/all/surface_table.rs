//! The table of latencies: between levels, beyond them, at random, and refused.

use plimsoll_sim::latency_surface::{LatencySurface, SurfaceError};
use plimsoll_sim::rng::Rng;

fn two_by_three() -> LatencySurface {
    let (p50, p95) = ([100.0, 200.0, 800.0, 200.0, 400.0, 1600.0], [150.0, 400.0, 1600.0, 800.0, 900.0, 9000.0]);
    LatencySurface::new(vec![0.0, 1e9], vec![0.0, 1000.0, 3000.0], &p50, &p95).unwrap()
}

#[test]
fn medians_between_and_beyond_the_levels() {
    let surface = two_by_three();
    // (bytes written per second, reads per second, median)
    let table = [
        (0.0, 0.0, 100.0),
        (1e9, 3000.0, 1600.0),
        (0.0, 500.0, 100.0 * f64::sqrt(2.0)),
        (0.5e9, 0.0, 100.0 * f64::sqrt(2.0)),
        (0.5e9, 2000.0, 200.0 * 2.0 * f64::sqrt(2.0)),
        (-1.0, 1e12, 800.0),
        (f64::INFINITY, 0.0, 200.0),
        (f64::NAN, f64::NAN, 100.0),
    ];
    for (write, read, expected) in table {
        let found = surface.p50_ns(write, read);
        assert!((found / expected - 1.0).abs() < 1e-9, "at {write} B/s and {read} reads/s: {found}, not {expected}");
    }
}

#[test]
fn a_single_level_counts_everywhere() {
    let row = LatencySurface::new(vec![5.0], vec![0.0, 10.0], &[100.0, 400.0], &[200.0, 800.0]).unwrap();
    assert!((row.p50_ns(1e9, 5.0) - 200.0).abs() < 1e-6);
    let one = LatencySurface::new(vec![5.0], vec![7.0], &[100.0], &[200.0]).unwrap();
    assert!((one.p95_ns(0.0, 1e9) - 200.0).abs() < 1e-6);
}

#[test]
fn many_uneven_levels_are_all_found() {
    let levels: Vec<f64> = (0..300).map(|i| f64::from(i) * f64::from(i)).collect();
    let latencies: Vec<f64> = (1..=300).map(f64::from).collect();
    let surface = LatencySurface::new(vec![0.0], levels.clone(), &latencies, &latencies).unwrap();
    for (level, latency) in levels.iter().zip(&latencies) {
        assert!((surface.p50_ns(0.0, *level) / latency - 1.0).abs() < 1e-9, "at level {level}");
    }
}

#[test]
fn samples_have_the_median_and_the_p95_of_the_table() {
    for ratio in [1.0, 1.2, 2.0, 3.9, 4.1, 10.0, 40.0] {
        let p50 = 138e3;
        let surface = LatencySurface::new(vec![0.0], vec![0.0], &[p50], &[p50 * ratio]).unwrap();
        let mut rng = Rng::new(11);
        let mut samples: Vec<f64> = (0..100_000).map(|_| surface.sample(0.0, 0.0, &mut rng)).collect();
        samples.sort_by(f64::total_cmp);
        let (median, p95) = (samples[50_000], samples[95_000]);
        assert!((median / p50 - 1.0).abs() < 0.02, "p95/p50 {ratio}: median {median}");
        assert!((p95 / (p50 * ratio) - 1.0).abs() < 0.04, "p95/p50 {ratio}: p95 {p95}");
        assert!(samples[0] > 0.0 && samples[99_999].is_finite());
    }
}

#[test]
fn quantiles_rise() {
    for ratio in [1.5, 4.0, 30.0] {
        let surface = LatencySurface::new(vec![0.0], vec![0.0], &[1e5], &[1e5 * ratio]).unwrap();
        let prepared = surface.prepare(0.0, 0.0);
        let quantiles: Vec<f64> = (0..=1000).map(|i| prepared.quantile_ns(f64::from(i) / 1000.0)).collect();
        assert!(quantiles.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-9)), "p95/p50 {ratio}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let surface = two_by_three();
    let draw = || {
        let mut rng = Rng::new(3);
        (0..1000).map(|_| surface.sample(0.4e9, 700.0, &mut rng).to_bits()).collect::<Vec<u64>>()
    };
    assert_eq!(draw(), draw());
}

#[test]
fn bad_tables_are_refused_by_name() {
    let good = [1.0; 4];
    let refuse = |writes: Vec<f64>, reads: Vec<f64>, p50: &[f64], p95: &[f64]| {
        LatencySurface::new(writes, reads, p50, p95).unwrap_err()
    };
    let levels = || vec![0.0, 1.0];
    for bad in [vec![], vec![1.0, 1.0], vec![1.0, 0.0], vec![-1.0, 1.0], vec![0.0, f64::NAN], vec![0.0, f64::INFINITY]]
    {
        assert_eq!(refuse(bad.clone(), levels(), &good, &good), SurfaceError::Levels { axis: "write_bytes_per_s" });
        assert_eq!(refuse(levels(), bad, &good, &good), SurfaceError::Levels { axis: "read_iops" });
    }
    let error = refuse(levels(), levels(), &good[..3], &good);
    assert_eq!(error, SurfaceError::Length { column: "p50_ns", expected: 4, found: 3 });
    for bad in [0.0, -1.0, f64::INFINITY] {
        let error = refuse(levels(), levels(), &good, &[1.0, 1.0, bad, 1.0]);
        assert_eq!(error, SurfaceError::Latency { column: "p95_ns", index: 2, found: bad });
        assert!(error.to_string().contains("p95_ns[2]"), "{error}");
    }
}
