//! Fits the cost of a request by its length: a floor, then a line.
//!
//! **Why.** Charging each request once over IOPS and its bytes over the bandwidth counts small requests twice: the IOPS
//! were measured with small requests, which include their bytes. Up to some length the bytes cost a disk nothing at
//! all.
//!
//! **How.** Device time is max(floor, base + bytes * slope), fitted to 1 / IOPS of each length by least squares of the
//! relative error, with base and slope not negative. The points on the floor are the shortest ones. Every possible
//! number of them is tried: for each the floor and the line have a closed solution, and the model with the least error
//! wins.
//!
//! **Limits.** The model has one bend. A disk whose cost falls with length somewhere (blocks that it emulates) does not
//! fit; the residuals show that.
//!
//! **Example.** 100,000/s at 512 bytes and at 4 KiB, 50,000/s at 8 KiB and 25,000/s at 16 KiB: floor 10 us, base 0, and
//! 2.44 ns a byte, which reaches the floor at 4 KiB.

pub(crate) use super::super::report::CostFit;

const NS_PER_S: f64 = 1e9;

/// Fits the cost by length to points (bytes, at least 1; operations per second, positive) in any order. Returns
/// `None` for no points, or if one is out of range.
pub(crate) fn knee_cost_fit(points: &[(u32, f64)]) -> Option<CostFit> {
    let in_range = |(bytes, iops): &(u32, f64)| *bytes > 0 && iops.is_finite() && *iops > 0.0;
    if points.is_empty() || !points.iter().all(in_range) {
        return None;
    }

    let mut times: Vec<(u32, f64)> = points.iter().map(|(bytes, iops)| (*bytes, NS_PER_S / iops)).collect();
    times.sort_by_key(|(bytes, _)| *bytes);

    let mut best: Option<(f64, CostFit)> = None;
    for on_floor in 0..=times.len() {
        let (short, long) = times.split_at(on_floor);
        let (base_ns, ns_per_byte) = rising_line(long);
        let shortest_bytes = times.first().map_or(0.0, |(bytes, _)| f64::from(*bytes));
        // Without a floor, the shortest request measured is the cheapest known.
        let floor_ns = level(short).unwrap_or(base_ns + ns_per_byte * shortest_bytes);
        let fit = CostFit { floor_ns, base_ns, ns_per_byte, residuals_pct: Vec::new() };
        let error: f64 = times.iter().map(|&(bytes, ns)| (fit.cost_ns(bytes) / ns - 1.0).powi(2)).sum();
        // Among equal fits, the one with the fewest points on the floor.
        if best.as_ref().is_none_or(|(least, _)| error < least - 1e-12) {
            best = Some((error, fit));
        }
    }

    let (_, mut fit) = best?;
    fit.residuals_pct =
        points.iter().map(|&(bytes, iops)| (fit.cost_ns(bytes) * iops / NS_PER_S - 1.0) * 100.0).collect();
    Some(fit)
}

/// Returns the time with the least squared relative error, or `None` for no times.
fn level(times: &[(u32, f64)]) -> Option<f64> {
    let weights = times.iter().map(|(_, ns)| 1.0 / ns);
    let (sum, squares) = weights.fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
    (squares > 0.0).then(|| sum / squares)
}

/// Returns base and slope of the line with the least squared relative error, neither negative; 0 and 0 for no times.
/// A single length gives a line through the origin.
fn rising_line(times: &[(u32, f64)]) -> (f64, f64) {
    // Solve base * u + slope * v = 1 over all points.
    let rows = times.iter().map(|&(bytes, ns)| (1.0 / ns, f64::from(bytes) / ns));
    let [mut u, mut v, mut uu, mut uv, mut vv] = [0.0; 5];
    for (x, y) in rows {
        (u, v, uu, uv, vv) = (u + x, v + y, uu + x * x, uv + x * y, vv + y * y);
    }

    let through_origin = (0.0, if vv > 0.0 { v / vv } else { 0.0 });
    let determinant = uu * vv - uv * uv;
    if determinant <= 1e-9 * uu * vv {
        return through_origin;
    }

    let (base_ns, ns_per_byte) = ((u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant);
    match (base_ns < 0.0, ns_per_byte < 0.0) {
        (true, _) => through_origin,
        (_, true) => (u / uu, 0.0),
        _ => (base_ns, ns_per_byte),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::{dist::normal, rng::Rng};
    use proptest::prelude::*;

    use super::*;

    const LENGTHS: [u32; 9] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];

    fn points(floor_ns: f64, base_ns: f64, ns_per_byte: f64) -> Vec<(u32, f64)> {
        LENGTHS.map(|bytes| (bytes, NS_PER_S / floor_ns.max(base_ns + ns_per_byte * f64::from(bytes)))).to_vec()
    }

    fn close(a: f64, b: f64, part: f64) -> bool {
        (a - b).abs() <= part * b.abs().max(1e-9)
    }

    #[test]
    fn exact_curves_are_found_again() {
        // Floor, base, slope; the floor expected.
        let cases = [
            // The example: 10 us, and 16 KiB in 40 us.
            (10_000.0, 0.0, 40_000.0 / 16_384.0, 10_000.0),
            (10_000.0, 4_000.0, 1.0, 10_000.0),
            (4_000.0, 0.0, 0.5, 4_000.0),
            // No floor: the cost of the shortest.
            (0.0, 5_000.0, 0.5, 5_256.0),
            (0.0, 0.0, 0.5, 256.0),
            // Only a floor.
            (10_000.0, 0.0, 0.0, 10_000.0),
        ];
        for (floor_ns, base_ns, ns_per_byte, floor_expect_ns) in cases {
            let fit = knee_cost_fit(&points(floor_ns, base_ns, ns_per_byte)).unwrap();
            assert!(close(fit.floor_ns, floor_expect_ns, 1e-6), "{floor_ns} {base_ns} {ns_per_byte}: {fit:?}");
            assert!(fit.residuals_pct.iter().all(|residual| residual.abs() < 1e-4), "{fit:?}");
            for bytes in LENGTHS {
                let expect = floor_ns.max(base_ns + ns_per_byte * f64::from(bytes));
                assert!(close(fit.cost_ns(bytes), expect, 1e-6), "{bytes}: {fit:?}");
            }
        }
    }

    #[test]
    fn a_real_disk_with_three_lengths() {
        // As many operations of 512 bytes as of 4 KiB, fewer than half of 16 KiB: neither a sum nor a maximum.
        let points = [(512, 237_000.0), (4096, 235_000.0), (16_384, 107_000.0)];
        let fit = knee_cost_fit(&points).unwrap();
        assert!(fit.residuals_pct.iter().all(|residual| residual.abs() < 1.0), "{fit:?}");
        // 9346 ns - 4255 ns over 12 KiB.
        assert!(close(fit.ns_per_byte, 0.4143, 0.01) && close(fit.floor_ns, 4219.0, 0.01), "{fit:?}");
    }

    #[test]
    fn points_that_are_none_give_no_fit() {
        for points in [&[][..], &[(0, 1.0)], &[(512, 0.0)], &[(512, -1.0)], &[(512, f64::NAN)], &[(512, f64::INFINITY)]]
        {
            assert_eq!(knee_cost_fit(points), None, "{points:?}");
        }
        let one = knee_cost_fit(&[(4096, 100_000.0)]).unwrap();
        assert!(close(one.cost_ns(4096), 10_000.0, 1e-9), "{one:?}");
        // The order has no effect, but the residuals keep it.
        let forth = knee_cost_fit(&[(512, 100.0), (4096, 90.0), (8192, 70.0), (16_384, 20.0)]).unwrap();
        let back = knee_cost_fit(&[(16_384, 20.0), (8192, 70.0), (4096, 90.0), (512, 100.0)]).unwrap();
        assert!(forth.residuals_pct.iter().zip(back.residuals_pct.iter().rev()).all(|(a, b)| (a - b).abs() < 1e-9));
    }

    #[test]
    fn five_per_cent_of_noise_change_the_cost_by_no_more_than_a_tenth() {
        let mut rng = Rng::new(2);
        for (floor_ns, base_ns, ns_per_byte) in [(10_000.0, 2_000.0, 1.0), (5_000.0, 0.0, 0.5), (0.0, 8_000.0, 0.3)] {
            for _ in 0..200 {
                let exact = points(floor_ns, base_ns, ns_per_byte);
                let shaken: Vec<(u32, f64)> =
                    exact.iter().map(|(bytes, iops)| (*bytes, iops * (1.0 + 0.05 * normal(&mut rng)))).collect();
                let fit = knee_cost_fit(&shaken).unwrap();
                for (bytes, iops) in exact {
                    assert!(close(fit.cost_ns(bytes), NS_PER_S / iops, 0.2), "{bytes}: {fit:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_cost_never_falls_with_length(
            points in prop::collection::vec((1..1_000_000u32, 1.0..1e7f64), 1..12),
        ) {
            let fit = knee_cost_fit(&points).unwrap();
            prop_assert!(fit.floor_ns > 0.0 && fit.base_ns >= 0.0 && fit.ns_per_byte >= 0.0, "{fit:?}");
            prop_assert_eq!(fit.residuals_pct.len(), points.len());
            prop_assert!(LENGTHS.is_sorted_by(|a, b| fit.cost_ns(*a) <= fit.cost_ns(*b)));
        }

        #[test]
        fn random_curves_are_found_again(floor_ns in 100.0..1e6f64, base in 0.0..1.0f64, knee in 10..16u32) {
            // The line passes the floor at 2^knee bytes.
            let base_ns = floor_ns * base;
            let ns_per_byte = (floor_ns - base_ns) / f64::from(1 << knee);
            let exact = points(floor_ns, base_ns, ns_per_byte);
            let fit = knee_cost_fit(&exact).unwrap();
            prop_assert!(fit.residuals_pct.iter().all(|residual| residual.abs() < 1e-2), "{fit:?}");
        }
    }
}
