//! Known answers, and synthetic disks whose true figures are known.

use plimsoll_sim::{dist::normal, rng::Rng};
use proptest::prelude::*;

use super::*;

/// Depth and rate of each point.
type Rates = &'static [(u32, f64)];

fn points(rates: Rates) -> Vec<DepthPoint> {
    rates.iter().map(|&(depth, rate)| DepthPoint { depth, rate, p50_ns: 1 }).collect()
}

/// Independent samples around `rate(i)` with a standard deviation of the part `sigma`.
fn noisy(count: usize, sigma: f64, rng: &mut Rng, rate: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..count).map(|i| rate(i) * (1.0 + sigma * normal(rng))).collect()
}

/// A series in which each sample resembles the one before: AR(1) around 100 with a standard deviation of 5.
fn sluggish(count: usize, rho: f64, rng: &mut Rng) -> Vec<f64> {
    let mut x = normal(rng);
    let mut next = || {
        x = rho * x + (1.0 - rho * rho).sqrt() * normal(rng);
        100.0 + 5.0 * x
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn quantiles_of_student_t() {
    let cases = [
        (1.0, 12.706),
        (2.0, 4.303),
        (5.0, 2.571),
        (9.0, 2.262),
        (10.0, 2.2281),
        (11.0, 2.2010),
        (15.0, 2.1314),
        (20.0, 2.0860),
        (30.0, 2.0423),
        (60.0, 2.0003),
        (120.0, 1.9799),
        (1e9, 1.95996),
    ];
    for (freedom, expect) in cases {
        assert!((student_t(freedom) / expect - 1.0).abs() < 1e-3, "{freedom}: {}", student_t(freedom));
    }
    // It falls all the way, also where the table ends.
    let all: Vec<f64> = (10..400).map(|tenths| student_t(f64::from(tenths) / 10.0)).collect();
    assert!(all.is_sorted_by(|a, b| a > b));
}

#[test]
fn intervals_computed_by_hand() {
    assert_eq!(mean_interval(&[]), None);
    assert_eq!(mean_interval(&[5.0]), None);
    assert_eq!(mean_interval(&[5.0, f64::NAN]), None);
    assert_eq!(mean_interval(&[5.0, f64::INFINITY]), None);
    let flat = mean_interval(&[7.0; 9]).unwrap();
    assert_eq!(flat, Interval { mean: 7.0, half_width: 0.0, effective_count: 9.0 });
    // 9 and 11: deviation sqrt(2), standard error 1, one degree of freedom.
    let two = mean_interval(&[9.0, 11.0]).unwrap();
    assert!((two.half_width - 12.706).abs() < 1e-9 && two.mean == 10.0, "{two:?}");
    // Alternating samples count as independent: squares 10, n - 1 = 9, t = 2.262.
    let alternating = mean_interval(&[1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0]).unwrap();
    assert!((alternating.half_width - 2.262 / 3.0).abs() < 1e-9, "{alternating:?}");
    // Ten times 1, ten times 3: worth a few samples, not twenty.
    let steps: Vec<f64> = [[1.0; 10], [3.0; 10]].concat();
    assert!(mean_interval(&steps).unwrap().effective_count < 4.0);
}

#[test]
fn the_interval_holds_the_mean_as_often_as_it_says() {
    // Samples, their resemblance, least part of 1000 series in which the interval holds the mean. Few and sluggish
    // samples do not show how sluggish they are.
    for (count, rho, least) in [(10, 0.0, 0.93), (100, 0.0, 0.93), (100, 0.6, 0.88), (400, 0.8, 0.88)] {
        let mut rng = Rng::new(4);
        let holds = |rng: &mut Rng| {
            let interval = mean_interval(&sluggish(count, rho, rng)).unwrap();
            (interval.mean - 100.0).abs() <= interval.half_width
        };
        let part = (0..1000).filter(|_| holds(&mut rng)).count() as f64 / 1000.0;
        assert!(part >= least, "{count} samples, {rho}: {part}");
    }
    // AR(1) of 0.6: tau = 1.6 / 0.4 = 4.
    let worth = mean_interval(&sluggish(20_000, 0.6, &mut Rng::new(1))).unwrap().effective_count;
    assert!((4000.0..6200.0).contains(&worth), "{worth}");
}

#[test]
fn a_stationary_series_is_settled_from_its_beginning() {
    for sigma in [0.01, 0.03, 0.1] {
        for count in [10, 20, 60, 200, 600] {
            let mut rng = Rng::new(count as u64);
            let (mut late, mut unsettled) = (0, 0);
            for _ in 0..500 {
                let settled = settled_from(&noisy(count, sigma, &mut rng, |_| 1e5));
                late += u32::from(settled.index > 2.max(count / 10));
                unsettled += u32::from(!settled.is_settled);
            }
            let most = if count < 60 { 30 } else { 10 };
            assert!(late.max(unsettled) <= most, "sigma {sigma}, {count} samples: {late} late, {unsettled} unsettled");
        }
    }
}

#[test]
fn a_burst_ends_where_it_ends() {
    for sigma in [0.0, 0.01, 0.03, 0.1] {
        for (count, burst) in [(10, 2), (20, 1), (20, 5), (60, 3), (60, 25), (200, 60), (600, 40), (600, 250)] {
            let mut rng = Rng::new(7);
            let mut missed = 0;
            for _ in 0..200 {
                let settled = settled_from(&noisy(count, sigma, &mut rng, |i| if i < burst { 200.0 } else { 100.0 }));
                missed += u32::from(settled.index.abs_diff(burst) > 2 || !settled.is_settled);
            }
            let most = if count < 60 { 40 } else { 12 };
            assert!(missed <= most, "sigma {sigma}, burst {burst} of {count}: {missed} missed of 200");
        }
    }
}

#[test]
fn slow_weather_is_settled_most_of_the_time() {
    for count in [60, 200, 600] {
        let mut rng = Rng::new(21);
        let (mut late, mut unsettled) = (0, 0);
        for _ in 0..200 {
            let settled = settled_from(&sluggish(count, 0.8, &mut rng));
            late += u32::from(settled.index > count / 4);
            unsettled += u32::from(!settled.is_settled);
        }
        assert!(late <= 20 && unsettled <= 30, "{count} samples: {late} late, {unsettled} unsettled of 200");
    }
}

#[test]
fn a_decay_is_left_out_as_far_as_it_matters() {
    let mut rng = Rng::new(6);
    for count in [60usize, 200, 600] {
        for sigma in [0.01, 0.03] {
            // Twice the rate at first, which falls with a twentieth of the samples as its time constant.
            let constant = count as f64 / 20.0;
            let samples = noisy(count, sigma, &mut rng, |i| 100.0 * (1.0 + (-(i as f64) / constant).exp()));
            let settled = settled_from(&samples);
            let bias = mean(&samples[settled.index..]) / 100.0 - 1.0;
            assert!(settled.is_settled && bias < 0.02, "{count} samples, sigma {sigma}: {settled:?}, {bias}");
        }
    }
}

#[test]
fn what_still_changes_is_not_settled() {
    let slope = |from: f64, to: f64| move |part: f64| from + (to - from) * part;
    // Bursts that last beyond the first half.
    let burst = |end: f64| move |part: f64| if part < end { 200.0 } else { 100.0 };
    for count in [20, 60, 300] {
        let misses = |sigma: f64, rate: &dyn Fn(f64) -> f64| {
            let mut rng = Rng::new(8);
            let series = |rng: &mut Rng| noisy(count, sigma, rng, |i| rate((i as f64 + 0.5) / count as f64));
            (0..100).filter(|_| settled_from(&series(&mut rng)).is_settled).count()
        };
        for sigma in [0.0, 0.01, 0.03] {
            for (from, to) in [(100.0, 70.0), (70.0, 100.0), (100.0, 20.0)] {
                let missed = misses(sigma, &slope(from, to));
                assert!(missed <= 1, "sigma {sigma}, {count} samples from {from} to {to}: {missed} missed");
            }
            for end in [0.55, 0.7] {
                let missed = misses(sigma, &burst(end));
                assert!(missed <= 1, "sigma {sigma}, {count} samples, burst to {end}: {missed} missed");
            }
        }
    }
}

#[test]
fn one_stall_is_not_a_transient() {
    let mut rng = Rng::new(12);
    for at in [0, 10, 20, 29, 45] {
        let samples = noisy(60, 0.03, &mut rng, |i| if i == at { 1.0 } else { 100.0 });
        let settled = settled_from(&samples);
        assert!(settled.is_settled && settled.index <= 3, "stall at {at}: {settled:?}");
    }
}

#[test]
fn too_few_samples_are_settled() {
    for samples in [&[][..], &[1.0], &[9.0, 1.0, 1.0], &[5.0; 30], &[0.0; 30]] {
        assert_eq!(settled_from(samples), Settled { index: 0, is_settled: true }, "{samples:?}");
    }
}

#[test]
fn lines_computed_by_hand() {
    assert_eq!(line(&[1.0]), None);
    assert_eq!(line(&[1.0, f64::NAN]), None);
    let cases: [(&[f64], [f64; 3]); 3] = [
        (&[1.0, 3.0], [2.0, 2.0, 1.0]),
        (&[5.0, 5.0, 5.0], [5.0, 0.0, 5.0]),
        // Through 0, 0, 3: slope 3 * 1 / 2.
        (&[0.0, 0.0, 3.0], [1.0, 1.5, -0.5]),
    ];
    for (samples, [mean, slope, intercept]) in cases {
        assert_eq!(line(samples), Some(Line { mean, slope, intercept }), "{samples:?}");
    }
}

#[test]
fn medians() {
    let cases: [(&[f64], Option<f64>); 5] = [
        (&[], None),
        (&[3.0], Some(3.0)),
        (&[3.0, 1.0], Some(2.0)),
        (&[9.0, 1.0, 2.0], Some(2.0)),
        (&[4.0, 1.0, 3.0, 2.0], Some(2.5)),
    ];
    for (samples, expect) in cases {
        assert_eq!(median(samples), expect, "{samples:?}");
    }
}

proptest! {
    #[test]
    fn an_interval_follows_its_unit(
        samples in prop::collection::vec(1.0..1000.0f64, 2..60),
        factor in 0.01..1e4f64,
    ) {
        let scaled: Vec<f64> = samples.iter().map(|sample| sample * factor).collect();
        let (a, b) = (mean_interval(&samples).unwrap(), mean_interval(&scaled).unwrap());
        prop_assert!((a.mean * factor / b.mean - 1.0).abs() < 1e-9);
        prop_assert!((a.half_width * factor - b.half_width).abs() <= 1e-6 * b.half_width.abs() + 1e-9 * b.mean);
        prop_assert!((2.0..=samples.len() as f64).contains(&a.effective_count));
    }

    #[test]
    fn anything_is_settled_within_its_first_half(samples in prop::collection::vec(any::<f64>(), 0..60)) {
        prop_assert!(settled_from(&samples).index <= samples.len() / 2);
    }
}

/// Depths that a search from 4 to 32, at most 64, tries when the rate at each is `rate(depth)`.
fn tried(shards: u16, rate: fn(u32) -> f64) -> Vec<u32> {
    let mut points = Vec::new();
    let mut depth = whole_depth(4, shards);
    while goes_deeper(depth, 32, 64, &points) {
        points.push(DepthPoint { depth, rate: rate(depth), p50_ns: 1 });
        depth *= 2;
    }
    points.into_iter().map(|point| point.depth).collect()
}

#[test]
fn a_search_tries_a_depth_however_many_shards_there_are() {
    let cases: [(u16, &[u32], &[u32]); 5] = [
        (1, &[4, 8, 16, 32], &[4, 8, 16, 32, 64]),
        (3, &[3, 6, 12, 24], &[3, 6, 12, 24, 48]),
        (48, &[48], &[48]),
        (64, &[64], &[64]),
        (200, &[200], &[200]),
    ];
    for (shards, flat, rising) in cases {
        assert_eq!(tried(shards, |_| 1.0), flat, "{shards} shards");
        assert_eq!(tried(shards, f64::from), rising, "{shards} shards");
    }
}

#[test]
fn a_depth_is_the_same_on_each_shard() {
    for (depth, shards, whole) in [(16, 1, 16), (16, 3, 15), (16, 16, 16), (16, 100, 100), (1, 0, 1)] {
        assert_eq!(whole_depth(depth, shards), whole, "{depth} over {shards}");
    }
}

#[test]
fn deviation_is_relative() {
    let cases: [(&[f64], f64); 5] =
        [(&[], 0.0), (&[5.0], 0.0), (&[0.0, 0.0], 0.0), (&[90.0, 100.0, 110.0], 10.0), (&[7.0; 9], 0.0)];
    for (samples, expect) in cases {
        assert!((deviation_pct(samples) - expect).abs() < 1e-9, "{samples:?}");
    }
}

#[test]
fn change_compares_thirds() {
    assert_eq!(change_pct(&[1.0; 5]), None);
    assert_eq!(change_pct(&[0.0; 6]), None);
    let falling = change_pct(&[100.0, 100.0, 95.0, 90.0, 80.0, 80.0]).unwrap();
    assert!((falling + 20.0).abs() < 1e-9, "{falling}");
    let rising = change_pct(&[100.0, 100.0, 1.0, 1.0, 1.0, 110.0, 110.0]).unwrap();
    assert!((rising - 10.0).abs() < 1e-9, "{rising}");
}

#[test]
fn a_smaller_depth_wins_within_half_a_per_cent() {
    let cases: [(Rates, Option<u32>, bool); 5] = [
        (&[], None, true),
        (&[(16, 10.0)], Some(16), true),
        (&[(16, 50.0), (32, 99.6), (64, 100.0), (128, 99.0)], Some(32), false),
        (&[(16, 50.0), (32, 80.0), (64, 100.0)], Some(64), true),
        (&[(16, 50.0), (32, 99.7), (64, 100.0)], Some(32), false),
    ];
    for (rates, depth, rising) in cases {
        let points = points(rates);
        assert_eq!(smallest_sufficient_depth(&points), depth, "{rates:?}");
        assert_eq!(is_still_rising(&points), rising, "{rates:?}");
    }
}
