//! Histograms of durations against sorted lists of the same durations.

use plimsoll_core::Histogram;
use proptest::prelude::*;

const PERCENTS: [f64; 9] = [0.0, 1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0];

/// What the midpoint of a bucket may be off, and rounding.
const ERROR_MAX: f64 = 0.0079;

fn recorded(values_ns: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for ns in values_ns {
        histogram.record(*ns);
    }
    histogram
}

/// Nearest rank: the smallest value that `percent` per cent of all do not exceed.
fn exact_percentile(sorted_ns: &[u64], percent: f64) -> u64 {
    let rank = (percent / 100.0 * sorted_ns.len() as f64).ceil() as usize;
    sorted_ns[rank.clamp(1, sorted_ns.len()) - 1]
}

#[test]
fn nothing_recorded_is_zero() {
    let empty = Histogram::default();
    assert!(empty.is_empty());
    assert_eq!((empty.count(), empty.min(), empty.max(), empty.mean()), (0, 0, 0, 0.0));
    assert_eq!((empty.percentile(50.0), empty.percentile(100.0), empty.iter().count()), (0, 0, 0));
}

#[test]
fn short_durations_are_exact() {
    let values_ns: Vec<u64> = (0..128).collect();
    let histogram = recorded(&values_ns);
    for percent in PERCENTS {
        assert_eq!(histogram.percentile(percent), exact_percentile(&values_ns, percent), "p{percent}");
    }
    assert!(histogram.iter().eq((0..128).map(|ns| (ns, 1))));
}

#[test]
fn known_buckets() {
    for (ns, upper_bound_ns) in [
        (0, 0),
        (127, 127),
        (128, 129),
        (129, 129),
        (1_000, 1_007),
        (750_000, 753_663),
        (1_000_000_000, 1_006_632_959),
        (Histogram::LIMIT_NS - 1, Histogram::LIMIT_NS - 1),
        (Histogram::LIMIT_NS, Histogram::LIMIT_NS - 1),
        (u64::MAX, Histogram::LIMIT_NS - 1),
    ] {
        assert_eq!(recorded(&[ns]).iter().collect::<Vec<_>>(), [(upper_bound_ns, 1)], "{ns} ns");
    }
}

#[test]
fn one_value_is_every_percentile_however_large() {
    for ns in [0, 1, 1_000_003, u64::MAX] {
        let histogram = recorded(&[ns, ns, ns]);
        for percent in PERCENTS.into_iter().chain([-5.0, 200.0, f64::NAN]) {
            assert_eq!(histogram.percentile(percent), ns, "p{percent} of {ns}");
        }
        assert_eq!(histogram.mean(), ns as f64);
    }
}

#[test]
fn a_cleared_histogram_is_a_new_one() {
    let mut histogram = recorded(&[1, 2, 3]);
    histogram.clear();
    assert_eq!(histogram, Histogram::new());
    histogram.record(5);
    assert_eq!(histogram, recorded(&[5]));
}

#[test]
fn it_takes_the_memory_that_its_durations_need() {
    assert_eq!(Histogram::new().memory_bytes(), 80);
    // One power of two, then one more and what lies between.
    assert_eq!(recorded(&[100_000; 255]).memory_bytes(), 80 + 64);
    assert_eq!(recorded(&[100_000, 500_000]).memory_bytes(), 80 + 64 * 3);
    // The second digit, of one of the two powers.
    let two_digits = recorded(&[[70_000; 300].as_slice(), &[200_000; 100]].concat());
    assert_eq!(two_digits.memory_bytes(), 80 + 64 * 2 + 64 + 96);
    // All there is.
    let mut full = Histogram::new();
    for _ in 0..300 {
        (0..41).for_each(|bit| full.record((1 << bit) - 1));
    }
    assert!(full.memory_bytes() < 5_000, "{}", full.memory_bytes());
}

#[test]
fn counts_of_any_size_add_up() {
    let mut histogram = Histogram::new();
    let mut doubled = 1;
    histogram.record(1_000);
    // 1, 2, 4, ... up to 2^31, and one more by one.
    while doubled < 1 << 31 {
        histogram.merge(&histogram.clone());
        doubled *= 2;
        histogram.record(1_000);
        doubled += 1;
        assert_eq!(histogram.iter().collect::<Vec<_>>(), [(1_007, doubled)]);
    }
    let mut whole = Histogram::new();
    whole.merge(&recorded(&[7_000; 256]));
    assert_eq!(whole, recorded(&[7_000; 256]));
    for count in 1..70_000 {
        histogram.record(9_000);
        assert_eq!(histogram.iter().nth(1), Some((9_087, count)));
    }
}

/// Durations of all magnitudes up to the limit.
fn durations() -> impl Strategy<Value = Vec<u64>> {
    let duration = (0u32..40, any::<u64>()).prop_map(|(bits, random)| random & ((2 << bits) - 1));
    prop::collection::vec(duration, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn percentiles_are_near_those_of_the_sorted_list(mut values_ns in durations()) {
        let histogram = recorded(&values_ns);
        values_ns.sort_unstable();
        for percent in PERCENTS {
            let (ours, exact) = (histogram.percentile(percent) as f64, exact_percentile(&values_ns, percent) as f64);
            prop_assert!((ours - exact).abs() <= exact * ERROR_MAX, "p{}: {} against {}", percent, ours, exact);
        }
        prop_assert_eq!(Some(&histogram.min()), values_ns.first());
        prop_assert_eq!(Some(&histogram.max()), values_ns.last());
        let mean = values_ns.iter().sum::<u64>() as f64 / values_ns.len() as f64;
        prop_assert!((histogram.mean() - mean).abs() <= mean * 1e-12);
    }

    #[test]
    fn merging_is_recording_all(a in durations(), b in durations()) {
        let mut merged = recorded(&a);
        merged.merge(&recorded(&b));
        let all: Vec<u64> = a.iter().chain(&b).copied().collect();
        prop_assert_eq!(&merged, &recorded(&all));
        prop_assert_eq!(merged.iter().map(|(_, count)| u64::from(count)).sum::<u64>(), merged.count());
        prop_assert!(merged.iter().map(|(upper_bound_ns, _)| upper_bound_ns).is_sorted());
    }
}
