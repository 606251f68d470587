//! Finds the knee, the block and the saturation in curves of rates by depth, by length, by alignment.
//!
//! # Why
//! A disk should not be run at its highest rate, and may work in other sizes than its data sheet states. The change of
//! the rate from point to point shows both.
//!
//! # How it works
//! * **Knee** ([`knee`]): beyond Xmax * L0 requests (Little's law, L0 the latency at depth 1) an ideal disk only
//!   queues. Real ones bend slowly. The knee is the smallest measured depth from which on a doubling adds less than
//!   [`DOUBLING_GAIN`] on average: more depth costs mostly latency.
//! * **Block** ([`physical_block`]): a disk that emulates smaller blocks reads, changes and writes back its own. At
//!   its own block the rate of random writes jumps up.
//! * **Saturation** ([`saturation_bytes`]): longer requests add less and less; the last 5 % are not worth a longer
//!   wait.
//!
//! # Limits
//! The knee is one of the measured depths. A block is found only if its own length was measured.
//!
//! # Example
//! 16 servers of 100 us: 10,000/s at depth 1 and 160,000/s from depth 16 on. Xmax * L0 = 160,000/s * 100 us = 16. From
//! 8 to 16 the rate doubles, from 16 to 32 it stays: the knee is 16.

pub(crate) use plimsoll_figures::series::DepthPoint;
use plimsoll_figures::series::{mean, student_t};

use crate::tune::report::{BLOCK_STEP_MIN, Knee, PhysicalBlock};

const NS_PER_S: f64 = 1e9;

/// Gain in rate, as a part, for which a doubling of the depth is worth its latency.
const DOUBLING_GAIN: f64 = 0.25;
/// Part of the best throughput that a saturating length may lack.
const SATURATION_TOLERANCE: f64 = 0.05;

/// Finds the knee of a curve, its points in any order. Ignores points without a positive rate and latency; returns
/// `None` if no other remains. Rates are operations per second.
pub(crate) fn knee(points: &[DepthPoint]) -> Option<Knee> {
    let counts = |point: &&DepthPoint| point.rate.is_finite() && point.rate > 0.0 && point.p50_ns > 0;
    let mut points: Vec<DepthPoint> = points.iter().filter(counts).copied().collect();
    points.sort_by_key(|point| point.depth);

    let best_rate = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let shallowest = points.first()?;

    let is_worth = |from: &DepthPoint, to: &DepthPoint| {
        let doublings = (f64::from(to.depth) / f64::from(from.depth.max(1))).log2();
        to.rate > from.rate * (1.0 + DOUBLING_GAIN).powf(doublings)
    };

    let beyond = |from: &DepthPoint| points.iter().any(|to| to.depth > from.depth && is_worth(from, to));
    let at = points.iter().find(|point| !beyond(point))?;
    let concurrency = best_rate * shallowest.p50_ns as f64 / NS_PER_S;
    Some(Knee { depth: at.depth, iops: at.rate, p50_ns: at.p50_ns, concurrency })
}

/// Finds the real block of a disk with logical blocks of `logical_bytes`, from the rates (operations per second,
/// several runs each) of random writes of different lengths, each length once, in any order.
///
/// Ignores lengths below the logical block, and rates that are not positive. A step must exceed 15 %, and the
/// difference that chance explains, by the scatter between runs of equal length, up to this one: unless a length was
/// measured twice, there is no step. Of several steps the last counts, because longer lengths gain nothing more.
/// Without a step, the block is the logical one, and its gain the greatest of any length over the best of smaller ones,
/// or 1 if there are not two to compare.
pub(crate) fn physical_block(points: &[(u32, Vec<f64>)], logical_bytes: u32) -> PhysicalBlock {
    let mut lengths: Vec<LengthRuns> =
        points.iter().filter(|(bytes, _)| *bytes >= logical_bytes).filter_map(LengthRuns::of).collect();
    lengths.sort_by_key(|length| length.bytes);

    let found =
        |bytes, is_step, gain| PhysicalBlock { bytes, is_step, gain, reported_bytes: None, misalignment_factor: None };
    let mut finding = found(logical_bytes, false, 1.0);
    let mut ln_gain_max = f64::NEG_INFINITY;
    let mut lengths = lengths.into_iter();
    let Some(mut best) = lengths.next() else { return finding };
    // Longer writes than those compared are ignored: some of their runs may have filled a buffer of the disk.
    let (mut freedom, mut squares) = (best.count - 1.0, best.squares);
    for length in lengths {
        freedom += length.count - 1.0;
        squares += length.squares;
        // Twice the standard error of a difference between two lengths, or a little more for few runs.
        let chance = match freedom > 0.0 {
            true => student_t(freedom) * (squares / freedom * (1.0 / best.count + 1.0 / length.count)).sqrt(),
            false => f64::INFINITY,
        };

        let ln_gain = length.ln_rate - best.ln_rate;
        ln_gain_max = ln_gain_max.max(ln_gain);
        if ln_gain > BLOCK_STEP_MIN.ln() && ln_gain > chance {
            finding = found(length.bytes, true, ln_gain.exp());
        }
        if ln_gain > 0.0 {
            best = length;
        }
    }

    if !finding.is_step && ln_gain_max.is_finite() {
        finding.gain = ln_gain_max.exp();
    }
    finding
}

/// The runs of one length, as logarithms, because noise and steps are parts of the rate.
#[derive(Debug)]
struct LengthRuns {
    bytes: u32,
    ln_rate: f64,
    /// Number of runs, at least 1.
    count: f64,
    /// Sum of the squared distances of the runs from `ln_rate`.
    squares: f64,
}

impl LengthRuns {
    fn of((bytes, rates): &(u32, Vec<f64>)) -> Option<LengthRuns> {
        let ln_rates = ln_positive(rates);
        let ln_rate = mean(&ln_rates);
        let squares = ln_rates.iter().map(|x| (x - ln_rate).powi(2)).sum();
        (!ln_rates.is_empty()).then_some(LengthRuns { bytes: *bytes, ln_rate, count: ln_rates.len() as f64, squares })
    }
}

fn ln_positive(rates: &[f64]) -> Vec<f64> {
    rates.iter().filter(|rate| rate.is_finite() && **rate > 0.0).map(|rate| rate.ln()).collect()
}

/// Returns the ratio of the geometric means of `aligned` and `shifted` rates (several runs each, in the same unit).
/// Ignores rates that are not positive; `None` if a side has no others.
pub(crate) fn misalignment_factor(aligned: &[f64], shifted: &[f64]) -> Option<f64> {
    let (aligned, shifted) = (ln_positive(aligned), ln_positive(shifted));
    (!aligned.is_empty() && !shifted.is_empty()).then(|| (mean(&aligned) - mean(&shifted)).exp())
}

/// Returns the smallest length in bytes whose throughput (bytes per second) is within 5 % of the best of its own and
/// all longer lengths. `None` if no throughput is positive.
pub(crate) fn saturation_bytes(points: &[(u32, f64)]) -> Option<u32> {
    let saturates = |(bytes, throughput): &&(u32, f64)| {
        let longer = points.iter().filter(|(other_bytes, _)| other_bytes >= bytes);
        let best = longer.map(|(_, throughput)| *throughput).fold(0.0, f64::max);
        *throughput > 0.0 && *throughput >= best * (1.0 - SATURATION_TOLERANCE)
    };
    points.iter().filter(saturates).map(|(bytes, _)| *bytes).min()
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::{dist::normal, rng::Rng};
    use proptest::prelude::*;

    use super::*;

    const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

    /// Returns the limit of a closed system of `servers`, each taking 100 us: min(N / L0, Xmax).
    fn bank(servers: u32) -> Vec<DepthPoint> {
        let point = |depth: u32| DepthPoint {
            depth,
            rate: f64::from(depth.min(servers)) * 10_000.0,
            p50_ns: u64::from(depth.max(servers)) * 100_000 / u64::from(servers),
        };
        DEPTHS.map(point).to_vec()
    }

    /// Returns the requests waiting or served in M/M/c with service time 1, and the mean time of each.
    fn erlang(servers: u32, rate: f64) -> (f64, f64) {
        let load = rate / f64::from(servers);
        // Erlang B by its recursion, then C.
        let blocked = (1..=servers).fold(1.0, |b, k| rate * b / (f64::from(k) + rate * b));
        let waits = blocked / (1.0 - load * (1.0 - blocked));
        let time = 1.0 + waits / (f64::from(servers) - rate);
        (rate * time, time)
    }

    /// Returns the curve of M/M/c with a service time of 100 us: at each depth, the rate with that many requests under
    /// way.
    fn queue(servers: u32) -> Vec<DepthPoint> {
        let point = |depth: u32| {
            let (mut low, mut high) = (0.0, f64::from(servers));
            for _ in 0..60 {
                let rate = 0.5 * (low + high);
                if erlang(servers, rate).0 < f64::from(depth) { low = rate } else { high = rate }
            }
            let p50_ns = (erlang(servers, low).1 * 100_000.0) as u64;
            DepthPoint { depth, rate: low * 10_000.0, p50_ns }
        };
        DEPTHS.map(point).to_vec()
    }

    fn noisy(points: &[DepthPoint], sigma: f64, rng: &mut Rng) -> Vec<DepthPoint> {
        let mut shake = |point: &DepthPoint| DepthPoint {
            depth: point.depth,
            rate: point.rate * (1.0 + sigma * normal(rng)),
            p50_ns: (point.p50_ns as f64 * (1.0 + sigma * normal(rng))) as u64,
        };
        points.iter().map(&mut shake).collect()
    }

    #[test]
    fn the_knee_of_an_ideal_bank_is_its_servers() {
        // 24 lies between two depths: 32 has half as much again as 16. So does 20, but 32 has just a quarter more.
        let cases: [(u32, u32, f64); 6] =
            [(1, 1, 1e4), (2, 2, 2e4), (16, 16, 16e4), (24, 32, 24e4), (20, 16, 16e4), (128, 128, 128e4)];
        for (servers, depth, rate) in cases {
            let knee = knee(&bank(servers)).unwrap();
            assert_eq!((knee.depth, knee.iops), (depth, rate), "{servers} servers");
            assert!((knee.concurrency - f64::from(servers)).abs() < 1e-6, "{servers} servers: {knee:?}");
        }
    }

    #[test]
    fn the_knee_of_a_soft_bend_is_on_the_bend() {
        // M/M/1: rate N / (N + 1): 1/2, 2/3, 4/5, 8/9: from 1 to 2 it grows by a third, from 2 to 4 by a fifth.
        let one = knee(&queue(1)).unwrap();
        assert_eq!(one.depth, 2);
        assert!((one.iops / 1e4 - 2.0 / 3.0).abs() < 1e-3, "{one:?}");
        for servers in [4, 16, 64] {
            let knee = knee(&queue(servers)).unwrap();
            let part = knee.iops / (f64::from(servers) * 1e4);
            assert!((0.6..0.99).contains(&part), "{servers} servers: {knee:?}");
            assert!((servers / 2..=servers * 2).contains(&knee.depth), "{servers} servers: {knee:?}");
        }
    }

    #[test]
    fn five_per_cent_of_noise_do_not_move_it_far() {
        let mut rng = Rng::new(11);
        for servers in [1, 4, 16, 64] {
            for _ in 0..200 {
                let hard = knee(&noisy(&bank(servers), 0.05, &mut rng)).unwrap().depth;
                assert!((servers / 2..=servers * 2).contains(&hard), "{servers} servers: {hard}");
                let soft = knee(&noisy(&queue(servers), 0.05, &mut rng)).unwrap().depth;
                let still = knee(&queue(servers)).unwrap().depth;
                assert!((still / 4..=still * 4).contains(&soft), "{servers} servers: {soft}, not {still}");
            }
        }
    }

    #[test]
    fn a_knee_needs_one_point_that_makes_sense() {
        let one = DepthPoint { depth: 8, rate: 80_000.0, p50_ns: 100_000 };
        let found = knee(&[one]).unwrap();
        assert_eq!((found.depth, found.iops, found.p50_ns), (8, 80_000.0, 100_000));
        assert!((found.concurrency - 8.0).abs() < 1e-9);
        assert_eq!(knee(&[]), None);
        let senseless =
            [DepthPoint { rate: 0.0, ..one }, DepthPoint { rate: f64::NAN, ..one }, DepthPoint { p50_ns: 0, ..one }];
        assert_eq!(knee(&senseless), None);
        // The order has no effect.
        let backwards: Vec<DepthPoint> = bank(16).into_iter().rev().collect();
        assert_eq!(knee(&backwards), knee(&bank(16)));
    }

    /// Lengths in bytes and their throughputs.
    type Throughputs = &'static [(u32, f64)];

    /// Returns lengths from 512 with their rates, five runs each, with noise.
    fn writes(rates: &[f64], sigma: f64, rng: &mut Rng) -> Vec<(u32, Vec<f64>)> {
        let mut runs = |rate: f64| (0..5).map(|_| rate * (1.0 + sigma * normal(rng))).collect();
        rates.iter().enumerate().map(|(i, rate)| (512 << i, runs(*rate))).collect()
    }

    #[test]
    fn the_real_block_is_where_the_rate_jumps() {
        // Rates of 512, 1k, 2k, 4k, 8k, 16k; logical block; real block; whether it is a step.
        let cases: [(&[f64], u32, u32, bool); 8] = [
            // Emulated 512-byte blocks, and slower with length.
            (&[50.0, 50.0, 49.0, 100.0, 90.0, 60.0], 512, 4096, true),
            (&[50.0, 48.0, 46.0, 44.0, 85.0, 80.0], 512, 8192, true),
            (&[100.0, 200.0, 200.0, 198.0, 190.0, 150.0], 512, 1024, true),
            // Two steps: 4k is emulated, too.
            (&[30.0, 30.0, 30.0, 60.0, 90.0, 70.0], 512, 8192, true),
            // Disks with blocks as reported: flat, and slower with length.
            (&[100.0, 100.0, 100.0, 100.0, 100.0, 100.0], 512, 512, false),
            (&[100.0, 97.0, 94.0, 90.0, 80.0, 55.0], 512, 512, false),
            // The step is below the logical block.
            (&[50.0, 50.0, 50.0, 100.0, 95.0, 60.0], 4096, 4096, false),
            // A gain of a tenth is no step.
            (&[100.0, 100.0, 100.0, 110.0, 105.0, 90.0], 512, 512, false),
        ];
        let mut rng = Rng::new(3);
        for (rates, logical_bytes, bytes, is_step) in cases {
            for sigma in [0.0, 0.05] {
                let found = physical_block(&writes(rates, sigma, &mut rng), logical_bytes);
                assert_eq!((found.bytes, found.is_step), (bytes, is_step), "{rates:?} sigma {sigma}: {found:?}");
                assert!(!is_step || found.gain > 1.3, "{rates:?}: {found:?}");
            }
        }
        let exact = physical_block(&writes(&[50.0, 40.0, 100.0], 0.0, &mut rng), 512);
        assert!((exact.gain - 2.0).abs() < 1e-9, "{exact:?}");
    }

    #[test]
    fn noise_makes_and_hides_no_block() {
        let mut rng = Rng::new(5);
        let (mut made, mut hidden) = (0, 0);
        for _ in 0..1000 {
            let honest = writes(&[100.0, 99.0, 98.0, 96.0, 92.0, 85.0], 0.10, &mut rng);
            made += u32::from(physical_block(&honest, 512).is_step);
            let emulating = writes(&[50.0, 50.0, 50.0, 100.0, 92.0, 85.0], 0.10, &mut rng);
            hidden += u32::from(physical_block(&emulating, 512).bytes != 4096);
        }
        assert!(made <= 10 && hidden <= 10, "{made} made, {hidden} hidden of 1000");
    }

    #[test]
    fn longer_writes_that_fill_a_buffer_hide_no_block() {
        // Measured on i7i: 4 KiB is half as fast again; of three runs of 16 KiB the first finds the write buffer empty.
        let steady = |rate: f64| vec![rate, rate * 1.01, rate * 0.99];
        let points = [(512, steady(65.0)), (2048, steady(66.0)), (4096, steady(99.0)), (16384, vec![53.0, 22.0, 16.0])];
        let found = physical_block(&points, 512);
        assert_eq!((found.bytes, found.is_step), (4096, true), "{found:?}");
    }

    #[test]
    fn a_block_needs_runs_to_compare() {
        let physical_block = |points: &[(u32, Vec<f64>)], logical_bytes| {
            let found = physical_block(points, logical_bytes);
            (found.bytes, found.is_step, found.gain)
        };
        let none = (512, false, 1.0);
        assert_eq!(physical_block(&[], 512), none);
        assert_eq!(physical_block(&[(512, vec![1.0, 1.0])], 512), none);
        assert_eq!(physical_block(&[(512, vec![]), (1024, vec![0.0, f64::NAN, -1.0])], 512), none);
        // One run each: the difference between two runs of the same length is unknown.
        let (bytes, is_step, gain) = physical_block(&[(512, vec![50.0]), (4096, vec![100.0])], 512);
        assert!(!is_step && bytes == 512 && (gain - 2.0).abs() < 1e-9, "{bytes} {gain}");
    }

    #[test]
    fn misalignment_is_a_ratio_of_rates() {
        let cases: [(&[f64], &[f64], Option<f64>); 5] = [
            (&[100.0, 100.0], &[50.0], Some(2.0)),
            (&[50.0, 200.0], &[100.0], Some(1.0)),
            (&[100.0, 0.0], &[80.0, f64::NAN], Some(1.25)),
            (&[], &[1.0], None),
            (&[1.0], &[0.0], None),
        ];
        for (aligned, shifted, expect) in cases {
            let found = misalignment_factor(aligned, shifted);
            let is_close = found.zip(expect).map_or(found == expect, |(a, b)| (a - b).abs() < 1e-9);
            assert!(is_close, "{aligned:?} {shifted:?}: {found:?}");
        }
    }

    #[test]
    fn the_length_that_saturates() {
        const K: u32 = 1024;
        let cases: [(Throughputs, Option<u32>); 7] = [
            (&[], None),
            (&[(4 * K, 0.0)], None),
            (&[(4 * K, 7.0)], Some(4 * K)),
            (&[(4 * K, 10.0), (16 * K, 40.0), (64 * K, 96.0), (256 * K, 100.0), (1024 * K, 99.0)], Some(64 * K)),
            (&[(1024 * K, 99.0), (256 * K, 100.0), (64 * K, 94.0), (16 * K, 40.0)], Some(256 * K)),
            // Still rising: the longest.
            (&[(4 * K, 10.0), (16 * K, 40.0), (64 * K, 96.0), (256 * K, 200.0)], Some(256 * K)),
            // Longer ones are slower.
            (&[(4 * K, 50.0), (16 * K, 100.0), (64 * K, 80.0)], Some(16 * K)),
        ];
        for (points, expect) in cases {
            assert_eq!(saturation_bytes(points), expect, "{points:?}");
        }
    }

    proptest! {
        #[test]
        fn a_knee_is_a_measured_point(
            points in prop::collection::vec((1..1000u32, 1.0..1e6f64, 1..1_000_000_000u64), 1..20),
        ) {
            let points: Vec<DepthPoint> =
                points.into_iter().map(|(depth, rate, p50_ns)| DepthPoint { depth, rate, p50_ns }).collect();
            let knee = knee(&points).unwrap();
            let is_it = |p: &DepthPoint| (p.depth, p.rate, p.p50_ns) == (knee.depth, knee.iops, knee.p50_ns);
            prop_assert!(points.iter().any(is_it));
        }

        #[test]
        fn a_block_is_a_measured_length(
            rates in prop::collection::vec(prop::collection::vec(1.0..1e6f64, 0..6), 0..8),
        ) {
            let points: Vec<(u32, Vec<f64>)> =
                rates.into_iter().enumerate().map(|(i, rates)| (512 << i, rates)).collect();
            let found = physical_block(&points, 512);
            prop_assert!(found.bytes == 512 || found.is_step);
            prop_assert!(!found.is_step || found.gain > 1.15);
        }
    }
}
