//! What a series of samples says: its deviation, whether it still changes, which depths to try, and which was enough.
//!
//! # Why
//! A figure without its spread is a guess, and a disk that still slows down has not shown its figure yet.
//!
//! # How it works
//! Pure functions over samples; nothing here measures.
//!
//! # Limits
//! The samples are taken to be equally long.
//!
//! # Example
//! Samples of 90, 100 and 110 operations/s have mean 100 and standard deviation 10: the deviation is 10 %. Six samples
//! of 100, 100, 95, 90, 80, 80 end at 80, a fifth below the 100 they began with.

use super::report::Probe;

/// Part of the best rate that a smaller depth may lose and still be preferred.
const DEPTH_TOLERANCE: f64 = 0.02;

/// Fewer samples have no thirds worth comparing.
const SAMPLES_FOR_THIRDS: usize = 6;

/// Standard deviation of the samples (with n - 1) in per cent of their mean; 0 for fewer than two samples or a mean of
/// 0.
pub(super) fn deviation_pct(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    if samples.len() < 2 || mean <= 0.0 {
        return 0.0;
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt() / mean * 100.0
}

/// By how many per cent the mean of the last third of the samples differs from that of the first third; negative when
/// it fell. `None` for fewer than six samples.
pub(super) fn change_pct(samples: &[f64]) -> Option<f64> {
    let third = samples.len() / 3;
    if samples.len() < SAMPLES_FOR_THIRDS {
        return None;
    }
    let first = mean(samples.get(..third)?);
    let last = mean(samples.get(samples.len() - third..)?);
    (first > 0.0).then(|| (last / first - 1.0) * 100.0)
}

/// The smallest depth whose rate is within 2 % of the best.
pub(super) fn smallest_sufficient_depth(probes: &[Probe]) -> Option<u32> {
    let best = best_rate(probes);
    let enough = probes.iter().filter(|probe| probe.rate >= best * (1.0 - DEPTH_TOLERANCE));
    enough.map(|probe| probe.depth).min()
}

/// Whether the last (deepest) probe beat all before it by more than 2 %, so that a deeper one may be better still.
pub(super) fn is_still_rising(probes: &[Probe]) -> bool {
    match probes.split_last() {
        Some((last, before)) => last.rate * (1.0 - DEPTH_TOLERANCE) > best_rate(before),
        None => true,
    }
}

/// `depth` as requests under way can be: equally many on each shard, at least one.
pub(super) fn whole_depth(depth: u32, shards: u16) -> u32 {
    let shards = u32::from(shards.max(1));
    (depth / shards).max(1).saturating_mul(shards)
}

/// Whether a search tries `depth` after `probes`: always up to `usual_depth`, up to `max_depth` while the rate rises.
/// It tries one depth at least, however many shards there are.
pub(super) fn goes_deeper(depth: u32, usual_depth: u32, max_depth: u32, probes: &[Probe]) -> bool {
    let is_usual = probes.is_empty() || depth <= usual_depth;
    is_usual || (depth <= max_depth && is_still_rising(probes))
}

fn best_rate(probes: &[Probe]) -> f64 {
    probes.iter().map(|probe| probe.rate).fold(0.0, f64::max)
}

fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Depth and rate of each probe.
    type Rates = &'static [(u32, f64)];

    fn probes(rates: Rates) -> Vec<Probe> {
        rates.iter().map(|&(depth, rate)| Probe { depth, rate }).collect()
    }

    /// Depths that a search from 4 to 32, at most 64, tries when the rate at each is `rate(depth)`.
    fn tried(shards: u16, rate: fn(u32) -> f64) -> Vec<u32> {
        let mut probes = Vec::new();
        let mut depth = whole_depth(4, shards);
        while goes_deeper(depth, 32, 64, &probes) {
            probes.push(Probe { depth, rate: rate(depth) });
            depth *= 2;
        }
        probes.into_iter().map(|probe| probe.depth).collect()
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
    fn a_smaller_depth_wins_within_two_per_cent() {
        let cases: [(Rates, Option<u32>, bool); 5] = [
            (&[], None, true),
            (&[(16, 10.0)], Some(16), true),
            (&[(16, 50.0), (32, 98.1), (64, 100.0), (128, 99.0)], Some(32), false),
            (&[(16, 50.0), (32, 80.0), (64, 100.0)], Some(64), true),
            (&[(16, 50.0), (32, 99.0), (64, 100.0)], Some(32), false),
        ];
        for (rates, depth, rising) in cases {
            let probes = probes(rates);
            assert_eq!(smallest_sufficient_depth(&probes), depth, "{rates:?}");
            assert_eq!(is_still_rising(&probes), rising, "{rates:?}");
        }
    }
}
