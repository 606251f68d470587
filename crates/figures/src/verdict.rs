//! The limiter of throughput: the rule that tells a saturated disk from a limiter above it.
//!
//! # Why
//! A low figure has three causes with three different remedies: the load asks for too little, the disk is saturated, or
//! something above the disk (a scheduler's model, a CPU, a lock) lets no more through. The last looks like a slow disk
//! until the latency *in the disk* is measured.
//!
//! # How it works
//! A closed loop of N requests obeys Little's law: requests in the disk = rate x latency in the disk. Until the disk is
//! saturated, the rate grows with N. Beyond its knee the rate stays and the latency in the disk grows with N. If
//! neither moves, the additional requests never reach the disk: the limiter stands above it.
//!
//! [`verdict`] finds the longest run of points at the end of the curve (by parallelism) whose rates lie within
//! [`FLAT_SPREAD`] of one another. If that run spans at least a doubling of parallelism, throughput is flat, and the
//! slope of ln(latency) over ln(parallelism) in the run decides. If it reaches [`RISING_SLOPE`] over any doubling, the
//! limiter is the disk (a scheduler may cut the queue later, and latency with it; the disk was saturated before). If it
//! stays below [`FLAT_SLOPE`] over the whole run, the least latency of the curve decides: if the run's is at least
//! `QUEUED_FACTOR` times that, requests queue in the disk, and it is the limiter; if at most `IDLE_FACTOR` times, the
//! limiter is above the disk. In between it is not clear. If throughput is not flat, the slope of ln(throughput) over
//! the last three points decides whether it grows or falls.
//!
//! A curve may grow to its last point and have its knee long before: the first point from which on a doubling of
//! parallelism adds less than half as much throughput in proportion (`KNEE_SLOPE`). The knee is named beside any
//! verdict.
//!
//! # Limits
//! Needs two points whose parallelism differs by a factor of two. Latencies must be those of the disk, not of the whole
//! path, which grow with N in any closed loop whose throughput is flat. Noise above 10 % hides a plateau; then the
//! verdict is "not clear" or, at worst, that the last points still grow. A single last point that lies below the best
//! may be chance: throughput falls only if two points in a row do so, or if the intervals of both points say so.
//!
//! # Example
//! From 4 to 16 requests 8188 a second stay 8188, and each takes 0.49 ms in the disk: the limiter is above the disk.
//! ```
//! use plimsoll_figures::verdict::{CurvePoint, Kind, verdict};
//! let point = |parallelism: f64| CurvePoint {
//!     parallelism,
//!     throughput: 8188.0,
//!     half_width: None,
//!     latency_ns: 490e3,
//!     in_device: 4.0,
//! };
//! let found = verdict(&[point(4.0), point(8.0), point(16.0)], None);
//! assert_eq!(found.kind, Kind::LimitedAbove);
//! assert!(found.sentence.contains("the limiter sits above the disk"));
//! ```

use serde::{Deserialize, Serialize};

/// Spread of a plateau's rates, as a part of the largest: 10 %, the noise of short runs.
pub const FLAT_SPREAD: f64 = 0.10;
/// Least power of parallelism with which a rising latency grows: halfway between flat and proportional, and above it by
/// the effect of 10 % noise over a doubling (ln 1.1 / ln 2 = 0.14).
pub const RISING_SLOPE: f64 = 0.6;
/// Power of parallelism below which latency counts as flat.
pub const FLAT_SLOPE: f64 = 0.3;
/// Factors over the least latency of the curve: from the first one on, requests in the disk wait for one another most
/// of their time; up to the second, they do not.
const QUEUED_FACTOR: f64 = 2.0;
const IDLE_FACTOR: f64 = 1.5;
/// Least power of parallelism with which a growing throughput grows.
const GROWING_SLOPE: f64 = 0.15;
/// Power of parallelism below which throughput grows beyond its knee only: a doubling adds less than 41 %.
const KNEE_SLOPE: f64 = 0.5;
/// Part of the promised throughput from which on the promise counts as reached.
const REACHED: f64 = 0.95;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Requests that the load keeps in flight; above 0.
    pub parallelism: f64,
    /// Bytes or requests a second, the same for all points.
    pub throughput: f64,
    /// Half of the 95 % interval of the throughput; `None` if unknown.
    pub half_width: Option<f64>,
    /// Mean time in the disk in nanoseconds; 0 if the disk answers at once.
    pub latency_ns: f64,
    /// Mean number of requests in the disk.
    pub in_device: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Neither throughput nor latency in the disk grows: the limiter is above the disk.
    LimitedAbove,
    /// Throughput still grows at the highest parallelism, and is below the disk's promise, or the promise is not known.
    ScalesLow,
    /// Throughput still grows, and has reached the disk's promise.
    Reached,
    /// Throughput stays, and latency in the disk grows in proportion to parallelism.
    Saturated,
    /// Throughput falls as parallelism grows.
    Falls,
    /// Too few points, or points that allow no conclusion.
    Unclear,
}

impl Kind {
    pub const fn words(self) -> &'static str {
        match self {
            Kind::LimitedAbove => "limited above the disk",
            Kind::ScalesLow => "still growing",
            Kind::Reached => "as promised",
            Kind::Saturated => "saturated",
            Kind::Falls => "falling",
            Kind::Unclear => "not clear",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub kind: Kind,
    pub sentence: String,
    /// The least parallelism from which on throughput grows far less than parallelism; `None` if it does not.
    pub knee: Option<f64>,
    /// The figures behind the verdict, a line each.
    pub evidence: Vec<String>,
}

/// Judges a curve. `promised` is the throughput that the disk (or its model) promises, in the unit of the points;
/// `None` if unknown. Points may come in any order; those without positive, finite parallelism and throughput are left
/// out.
pub fn verdict(points: &[CurvePoint], promised: Option<f64>) -> Verdict {
    let usable = |p: &&CurvePoint| {
        let is_rate = |value: f64| value.is_finite() && value > 0.0;
        is_rate(p.parallelism) && is_rate(p.throughput) && p.latency_ns.is_finite()
    };
    let mut points: Vec<CurvePoint> = points.iter().filter(usable).copied().collect();
    points.sort_by(|a, b| a.parallelism.total_cmp(&b.parallelism));
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return unclear("there are no points to judge", Vec::new());
    };
    if last.parallelism < 2.0 * first.parallelism {
        return unclear("parallelism must at least double over the points", Vec::new());
    }
    let plateau = plateau_of(&points);
    let mut verdict = match (plateau.first(), plateau.last()) {
        (Some(from), Some(to)) if to.parallelism >= 2.0 * from.parallelism => {
            let least_ns = points.iter().map(|p| p.latency_ns).fold(f64::INFINITY, f64::min);
            of_plateau(plateau, (from, to), least_ns, promised)
        }
        _ => of_slope(&points, promised),
    };

    let knee = knee_of(&points);
    verdict.knee = knee.map(|knee| knee.parallelism);
    if let (Some(knee), Kind::ScalesLow | Kind::Reached) = (knee, verdict.kind) {
        let (added, slower) = (change(knee.throughput, last.throughput), change(knee.latency_ns, last.latency_ns));
        verdict.sentence += &format!(
            "; the knee is at parallelism {:.0}: {:.0} times as much adds {added} throughput and {slower} latency",
            knee.parallelism,
            last.parallelism / knee.parallelism
        );
    }
    verdict
}

/// Returns the first point from which on no doubling of parallelism adds `KNEE_SLOPE` of it, if the curve goes on for
/// a doubling.
fn knee_of(points: &[CurvePoint]) -> Option<&CurvePoint> {
    let slopes = |at: usize| {
        let rest = points.get(at..).unwrap_or_default();
        let to = |from: usize| {
            let point = rest.get(from)?;
            let to = rest.iter().skip(from).find(|to| to.parallelism >= 2.0 * point.parallelism)?;
            Some((to.throughput / point.throughput).ln() / (to.parallelism / point.parallelism).ln())
        };
        (0..rest.len()).filter_map(to).collect::<Vec<f64>>()
    };
    let is_beyond = |at: &usize| {
        let slopes = slopes(*at);
        !slopes.is_empty() && slopes.iter().all(|slope| *slope < KNEE_SLOPE)
    };
    (0..points.len()).find(is_beyond).and_then(|at| points.get(at))
}

/// Returns the longest end of the curve in which all rates lie within [`FLAT_SPREAD`] of one another.
fn plateau_of(points: &[CurvePoint]) -> &[CurvePoint] {
    let is_flat = |part: &[CurvePoint]| {
        let rates = || part.iter().map(|p| p.throughput);
        let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        high - low <= FLAT_SPREAD * high
    };
    (0..points.len()).filter_map(|from| points.get(from..)).find(|part| is_flat(part)).unwrap_or(&[])
}

/// Judges a plateau between two points. `least_ns` is the least latency in the disk on the whole curve.
fn of_plateau(
    plateau: &[CurvePoint],
    (from, to): (&CurvePoint, &CurvePoint),
    least_ns: f64,
    promised: Option<f64>,
) -> Verdict {
    let (low, high) = (from.parallelism, to.parallelism);
    // A disk that answers at once has no latency that could grow.
    let latency_slope = slope(plateau, |p| p.latency_ns.max(1.0));
    let queued = to.latency_ns.max(1.0) / least_ns.max(1.0);

    let mut evidence = vec![
        format!("throughput from parallelism {low:.0} to {high:.0}: {}", change(from.throughput, to.throughput)),
        format!(
            "latency in the disk over the same: {} (grows with parallelism to the power of {latency_slope:.2})",
            change(from.latency_ns, to.latency_ns)
        ),
        format!("in the disk: {:.1} at {low:.0}, {:.1} at {high:.0}", from.in_device, to.in_device),
    ];
    evidence.extend(promised.map(|promised| of_promise(to.throughput, promised)));

    let (kind, sentence) = if steepest(plateau) >= RISING_SLOPE {
        let more =
            "saturated: throughput stays and latency grows in proportion to parallelism; the disk is the limiter";
        (Kind::Saturated, more)
    } else if latency_slope < FLAT_SLOPE && queued >= QUEUED_FACTOR {
        evidence.push(format!("latency in the disk over the least of the curve: {}", change(least_ns, to.latency_ns)));
        let cut = "saturated: throughput stays, and requests in the disk wait for one another; the disk is the limiter";
        (Kind::Saturated, cut)
    } else if latency_slope < FLAT_SLOPE && queued <= IDLE_FACTOR {
        (Kind::LimitedAbove, "flat throughput with flat latency: the limiter sits above the disk")
    } else {
        let neither =
            "flat throughput, and a latency that grows, but less than parallelism: add points beyond the last";
        return unclear(neither, evidence);
    };

    Verdict { kind, sentence: sentence.to_owned(), knee: None, evidence }
}

fn of_slope(points: &[CurvePoint], promised: Option<f64>) -> Verdict {
    let end = points.get(points.len().saturating_sub(3)..).unwrap_or(points);
    let (Some(from), Some(to)) = (end.first(), end.last()) else { return unclear("too few points", Vec::new()) };
    let growth = slope(end, |p| p.throughput);
    let best = points.iter().reduce(|best, p| if p.throughput > best.throughput { p } else { best }).unwrap_or(to);
    let is_dip = to.throughput < (1.0 - FLAT_SPREAD) * best.throughput;
    let is_lower = |pair: &[CurvePoint]| matches!(pair, [a, b] if b.throughput < (1.0 - FLAT_SPREAD) * a.throughput);
    let is_falling = end.len() >= 3 && end.windows(2).all(is_lower);
    let half_width = |point: &CurvePoint| point.half_width.unwrap_or(f64::INFINITY);
    let is_sure = to.throughput + half_width(to) < (1.0 - FLAT_SPREAD) * (best.throughput - half_width(best));
    let last_step = end.get(end.len().saturating_sub(2)..).map_or(growth, |step| slope(step, |p| p.throughput));

    let mut evidence = vec![format!(
        "throughput from parallelism {:.0} to {:.0}: {} (grows with parallelism to the power of {growth:.2})",
        from.parallelism,
        to.parallelism,
        change(from.throughput, to.throughput)
    )];
    evidence.extend(promised.map(|promised| of_promise(to.throughput, promised)));
    if is_dip {
        let (change, at) = (change(best.throughput, to.throughput), best.parallelism);
        evidence.push(format!("the last point beside the best, at parallelism {at:.0}: {change}"));
    }

    let (kind, sentence) = match promised {
        _ if is_dip && is_sure => {
            (Kind::Falls, "throughput falls at the highest parallelism, by more than chance: the disk is overloaded")
        }
        _ if is_dip && !is_falling => {
            return unclear("the last point is below an earlier one: repeat it, or add points beyond it", evidence);
        }
        _ if growth <= -GROWING_SLOPE => (Kind::Falls, "throughput falls as parallelism grows: the disk is overloaded"),
        _ if growth < GROWING_SLOPE => {
            let wild = "the last points neither grow nor stay within 10 %: measure each for longer";
            return unclear(wild, evidence);
        }
        _ if last_step < GROWING_SLOPE => {
            return unclear("throughput grew, and the last point adds little to it: add points beyond it", evidence);
        }
        Some(promised) if to.throughput >= REACHED * promised => {
            (Kind::Reached, "throughput grew with parallelism up to what the disk promises")
        }
        Some(_) => (
            Kind::ScalesLow,
            "scales but low: throughput still grows with parallelism and is below what the disk promises; raise it",
        ),
        None => {
            (Kind::ScalesLow, "scales: throughput still grows at the highest parallelism; raise it to find the end")
        }
    };

    Verdict { kind, sentence: sentence.to_owned(), knee: None, evidence }
}

/// Returns the largest slope of latency between a point and the next that has at least twice its parallelism.
fn steepest(plateau: &[CurvePoint]) -> f64 {
    let slope = |(at, from): (usize, &CurvePoint)| {
        let to = plateau.iter().skip(at).find(|to| to.parallelism >= 2.0 * from.parallelism)?;
        Some((to.latency_ns.max(1.0) / from.latency_ns.max(1.0)).ln() / (to.parallelism / from.parallelism).ln())
    };
    plateau.iter().enumerate().filter_map(slope).fold(f64::NEG_INFINITY, f64::max)
}

fn unclear(why: &str, evidence: Vec<String>) -> Verdict {
    Verdict { kind: Kind::Unclear, sentence: format!("not clear: {why}"), knee: None, evidence }
}

fn of_promise(throughput: f64, promised: f64) -> String {
    format!("that is {:.0} % of what the disk promises", 100.0 * throughput / promised)
}

fn change(from: f64, to: f64) -> String {
    if from > 0.0 { format!("{:+.1} %", 100.0 * (to / from - 1.0)) } else { "none measured".to_owned() }
}

/// Fits ln(value) over ln(parallelism) by least squares. Returns the power with which the value grows.
fn slope(points: &[CurvePoint], value: impl Fn(&CurvePoint) -> f64) -> f64 {
    let pairs: Vec<(f64, f64)> = points.iter().map(|p| (p.parallelism.ln(), value(p).ln())).collect();
    let count = pairs.len() as f64;
    let (mean_x, mean_y) =
        (pairs.iter().map(|p| p.0).sum::<f64>() / count, pairs.iter().map(|p| p.1).sum::<f64>() / count);
    let along: f64 = pairs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let across: f64 = pairs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    if along > 0.0 { across / along } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::rng::Rng;

    use super::*;

    const STEPS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

    /// Makes a closed loop: N requests, at most `cap` a second from above, at most `disk` a second from the disk, each
    /// at least `base_ns` in it. `noise` is the largest relative error of the figures.
    fn curve(cap: f64, disk: f64, base_ns: f64, noise: f64, seed: u64) -> Vec<CurvePoint> {
        let mut rng = Rng::new(seed);
        let mut off = || 1.0 + noise * (rng.below(2001) as f64 / 1000.0 - 1.0);
        let point = |&n: &f64| {
            let free = n / (base_ns / 1e9);
            let throughput = free.min(cap).min(disk);
            // The disk holds all requests that are not held above it.
            let latency_ns = if disk <= cap && free > disk { n / disk * 1e9 } else { base_ns };
            let in_device = throughput * latency_ns / 1e9;
            CurvePoint {
                parallelism: n,
                throughput: throughput * off(),
                latency_ns: latency_ns * off(),
                in_device,
                half_width: None,
            }
        };
        STEPS.iter().map(point).collect()
    }

    #[test]
    fn made_up_curves_of_each_kind_with_noise() {
        const FREE: f64 = f64::MAX;
        // Cap from above, rate of the disk, latency of the idle disk, promised, verdict.
        let cases: [(f64, f64, f64, Option<f64>, Kind); 7] = [
            (8188.0, 12_000.0, 490e3, Some(10_000.0), Kind::LimitedAbove),
            (8188.0, FREE, 490e3, None, Kind::LimitedAbove),
            (FREE, 8188.0, 490e3, None, Kind::Saturated),
            (FREE, 20_000.0, 100e3, Some(20_000.0), Kind::Saturated),
            (FREE, FREE, 100e3, Some(1e6), Kind::ScalesLow),
            (FREE, FREE, 100e3, None, Kind::ScalesLow),
            (FREE, FREE, 100e3, Some(300e3), Kind::Reached),
        ];
        for (cap, disk, base_ns, promised, expect) in cases {
            for seed in 0..200 {
                let noise = if seed == 0 { 0.0 } else { 0.04 };
                let mut points = curve(cap, disk, base_ns, noise, seed);
                points.reverse();
                let found = verdict(&points, promised);
                assert_eq!(found.kind, expect, "cap {cap}, disk {disk}, seed {seed}: {found:?} of {points:?}");
                assert!(!found.evidence.is_empty());
            }
        }
    }

    #[test]
    fn a_curve_that_still_grows_names_its_knee() {
        let curve = |steps: &[(f64, f64, f64)]| -> Vec<CurvePoint> {
            let point = |&(parallelism, throughput, latency_ns): &(f64, f64, f64)| CurvePoint {
                parallelism,
                throughput,
                latency_ns,
                in_device: parallelism,
                half_width: None,
            };
            steps.iter().map(point).collect()
        };
        // Grows by 20 % with each doubling beyond 8, so that it is neither flat nor at its end.
        let bent = curve(&[
            (1.0, 10e3, 100e3),
            (2.0, 20e3, 100e3),
            (4.0, 39e3, 102e3),
            (8.0, 74e3, 108e3),
            (16.0, 89e3, 180e3),
            (32.0, 107e3, 300e3),
            (64.0, 128e3, 500e3),
        ]);
        for promised in [None, Some(500e3), Some(130e3)] {
            let found = verdict(&bent, promised);
            assert!(matches!(found.kind, Kind::ScalesLow | Kind::Reached), "{found:?}");
            assert_eq!(found.knee, Some(8.0), "{found:?}");
            let says = "the knee is at parallelism 8: 8 times as much adds +73.0 % throughput and +363.0 % latency";
            assert!(found.sentence.contains(says), "{}", found.sentence);
        }
        let straight = curve(&[(1.0, 10e3, 1e5), (2.0, 20e3, 1e5), (4.0, 38e3, 1e5), (8.0, 70e3, 1.1e5)]);
        let found = verdict(&straight, None);
        assert_eq!((found.knee, found.sentence.contains("knee")), (None, false), "{found:?}");
        // A plateau begins at its knee.
        let flat = curve(&[(1.0, 10e3, 1e5), (2.0, 20e3, 1e5), (4.0, 20e3, 2e5), (8.0, 20e3, 4e5)]);
        let found = verdict(&flat, None);
        assert_eq!((found.kind, found.knee), (Kind::Saturated, Some(2.0)), "{found:?}");
    }

    #[test]
    fn overload_and_too_little_are_said() {
        let point = |parallelism, throughput| CurvePoint {
            parallelism,
            throughput,
            half_width: None,
            latency_ns: 1e5,
            in_device: 1.0,
        };
        let falling = [point(4.0, 1000.0), point(8.0, 700.0), point(16.0, 450.0)];
        assert_eq!(verdict(&falling, None).kind, Kind::Falls);
        // The dip may be chance; the curve neither grows there nor falls for certain.
        for dip in [[1000.0, 2000.0, 1500.0], [500.0, 1000.0, 700.0], [1000.0, 999.0, 600.0]] {
            let points = [4.0, 8.0, 16.0].into_iter().zip(dip).map(|(at, rate)| point(at, rate)).collect::<Vec<_>>();
            assert_eq!(verdict(&points, None).kind, Kind::Unclear, "{dip:?}");
            // It is no chance if the intervals say so, and chance if they are wide.
            for (part, kind) in [(0.02, Kind::Falls), (0.2, Kind::Unclear)] {
                let known = points.iter().map(|p| CurvePoint { half_width: Some(part * p.throughput), ..*p });
                let found = verdict(&known.collect::<Vec<_>>(), None);
                assert_eq!(found.kind, kind, "{dip:?} ± {part}: {found:?}");
            }
            assert_eq!(verdict(&points, Some(1e4)).kind, Kind::Unclear, "{dip:?}");
        }
        assert_eq!(verdict(&[point(4.0, 1000.0), point(8.0, 700.0)], None).kind, Kind::Unclear, "two points");
        let wild = verdict(&[point(4.0, 1000.0), point(8.0, 850.0), point(16.0, 1010.0)], None);
        let says = "not clear: the last points neither grow nor stay within 10 %: measure each for longer";
        assert_eq!((wild.kind, wild.sentence.as_str()), (Kind::Unclear, says));
        for few in
            [&[][..], &[point(4.0, 1.0)], &[point(4.0, 1.0), point(6.0, 1.0)], &[point(4.0, 0.0), point(8.0, 0.0)]]
        {
            assert_eq!(verdict(few, None).kind, Kind::Unclear, "{few:?}");
        }
        // Flat between the last two, which are less than a doubling apart.
        let short = [point(1.0, 1200.0), point(6.0, 3000.0), point(11.0, 3000.0)];
        assert_eq!(verdict(&short, None).kind, Kind::Unclear);
        let odd = [point(4.0, f64::NAN), point(0.0, 5.0), point(-1.0, 5.0), point(f64::INFINITY, 1.0)];
        assert_eq!(verdict(&odd, None).kind, Kind::Unclear);
    }

    #[test]
    fn a_full_disk_whose_queue_is_cut_is_still_full() {
        // The scheduler admits at most six; one request already saturates the disk.
        let point = |parallelism: f64| {
            let in_device = parallelism.min(6.0);
            CurvePoint {
                parallelism,
                throughput: 1900.0,
                half_width: None,
                latency_ns: in_device / 1900.0 * 1e9,
                in_device,
            }
        };
        let found = verdict(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0].map(point), None);
        assert_eq!(found.kind, Kind::Saturated, "{found:?}");
        // A disk that takes ten at once, and a scheduler that admits thirty: the queue is cut before it doubles.
        let point = |parallelism: f64| {
            let in_device = parallelism.min(30.0);
            let throughput = in_device.min(10.0) * 10e3;
            CurvePoint {
                parallelism,
                throughput,
                latency_ns: in_device / throughput * 1e9,
                in_device,
                half_width: None,
            }
        };
        let found = verdict(&[1.0, 2.0, 5.0, 10.0, 19.0, 39.0, 79.0].map(point), None);
        assert_eq!(found.kind, Kind::Saturated, "{found:?}");
    }

    #[test]
    fn a_disk_that_answers_at_once_is_never_the_limiter() {
        let point = |parallelism, latency_ns| CurvePoint {
            parallelism,
            throughput: 8188.0,
            half_width: None,
            latency_ns,
            in_device: 0.0,
        };
        let found = verdict(&[point(8.0, 0.0), point(16.0, 0.0), point(32.0, 0.3)], None);
        assert_eq!(found.kind, Kind::LimitedAbove, "{found:?}");
    }
}
