//! Tries known causes on a figure that is constant over sizes.
//!
//! **Why.** 8.5 GB/s on every large machine looked like a slow disk, and was 2^33 bytes per second: a limiter that was
//! never set to unlimited. Such numbers can be recognised.
//!
//! **How.** Each function checks the sizes on the plateau and returns a sentence if its cause fits:
//!
//! - *A power of two* of bytes or operations per second, within 1 % and the rounding of the figure.
//! - *The same disks*: all sizes on the plateau have the same number of local disks.
//! - *One thread*: operations per second are those that one thread can submit, by the CPU time of a read on the card.
//! - *Before the disks*: reads and writes stop at the same rate, although different ones are advertised, and both are
//!   low.
//!
//! **Limits.** By chance, 3 of 100 numbers are near a power of two.
//!
//! **Example.** 8 585 068 032 B/s is 0.06 % below 2^33.

use super::{AdvertisedKind, FIGURES, SAME_FIGURE, Size, format_figure, is_iops};

/// Largest relative distance to a power of two.
const NEAR_POWER: f64 = 0.01;
/// Exponents of the powers of two at which limits have been seen: from a million on.
const POWERS: std::ops::RangeInclusive<i32> = 20..=48;
/// Largest relative difference of reads and writes at the same rate. Two runs usually differ by more.
const SAME_RATE: f64 = 0.05;
/// Smallest factor between two figures that are surely different.
const DIFFERENT: f64 = 1.25;

/// Returns the causes that fit a plateau of `figure` at `value` over `sizes`.
pub(super) fn of_plateau(sizes: &[&Size], figure: usize, value: f64) -> Vec<String> {
    let power = power_of_two(value).map(|power| {
        let unit = if is_iops(figure) { "operations" } else { "bytes" };
        format!(
            "it is 2^{power} {unit} per second ({}) within 1 %: a limit in software, such as an integer of that many \
             bits or a default that stands for \"unlimited\"",
            format_figure(figure, 2f64.powi(power))
        )
    });
    [power, same_disks(sizes), one_thread(sizes, figure, value), before_the_disks(sizes, figure)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the exponent of the power of two near `value`. A number of few digits may also be off by its rounding.
pub(super) fn power_of_two(value: f64) -> Option<i32> {
    let power = value.log2().round() as i32;
    let limit = 2f64.powi(power);
    let rounding = half_digit(value).min(value * NEAR_POWER);
    (POWERS.contains(&power) && (value - limit).abs() <= limit * NEAR_POWER + rounding).then_some(power)
}

/// Returns half of the last significant digit of a figure: 830000 was rounded to 10000. A measurement has at least two
/// significant digits, so 2000000 was 2.0 million.
fn half_digit(value: f64) -> f64 {
    let text = value.to_string();
    let last_digit = match text.split_once('.') {
        Some((_, behind)) => -(behind.len() as f64),
        None => (text.len() - text.trim_end_matches('0').len()) as f64,
    };
    0.5 * 10f64.powf(last_digit.min(value.log10().floor() - 1.0))
}

fn same_disks(sizes: &[&Size]) -> Option<String> {
    let disks = sizes.first()?.n_disks?;
    let all_same = sizes.len() > 1 && sizes.iter().all(|size| size.n_disks == Some(disks));
    all_same.then(|| format!("these sizes have the same number of disks ({disks}): it is the sum of the disks"))
}

fn one_thread(sizes: &[&Size], figure: usize, value: f64) -> Option<String> {
    let nanoseconds = sizes.iter().find_map(|size| size.submission_ns).filter(|ns| is_iops(figure) && *ns > 0.0)?;
    let of_one_thread = 1e9 / nanoseconds;
    ((value / of_one_thread - 1.0).abs() <= SAME_FIGURE).then(|| {
        format!(
            "one thread can submit {} a second (a read takes {nanoseconds:.0} ns of CPU): one submitted the load",
            format_figure(figure, of_one_thread)
        )
    })
}

/// Returns a sentence if reads and writes reach one limit that does not distinguish them.
pub(super) fn before_the_disks(sizes: &[&Size], figure: usize) -> Option<String> {
    let other = figure ^ 2;
    let last = sizes.last()?;
    let measured = (last.measured[figure]?, last.measured[other]?);
    let ((advertised, kind), (other_advertised, other_kind)) = (last.advertised[figure]?, last.advertised[other]?);
    let apart = |a: f64, b: f64| a.max(b) / a.min(b);
    let both_low = measured.0.max(measured.1 * advertised / other_advertised) < advertised * (1.0 - SAME_FIGURE);
    if !both_low || apart(measured.0, measured.1) > 1.0 + SAME_RATE || apart(advertised, other_advertised) < DIFFERENT {
        return None;
    }

    let word =
        if [kind, other_kind].contains(&AdvertisedKind::Expected) { "advertised or expected" } else { "advertised" };
    Some(format!(
        "{} and {} of {} are nearly the same ({} and {}), {word} are {} and {}: look before the disks, at the CPUs that \
         submit, the driver, or a limit in software",
        FIGURES[figure].1,
        FIGURES[other].1,
        last.name,
        format_figure(figure, measured.0),
        format_figure(other, measured.1),
        format_figure(figure, advertised),
        format_figure(other, other_advertised)
    ))
}
