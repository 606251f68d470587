//! Figures in sentences.
//!
//! # Why
//! People read the reason of a verdict beside tables with the same figures.
//!
//! # How it works
//! Formats through [`plimsoll_figures::units`] where that has the unit; shares become percent.
//!
//! # Limits
//! Rounds for people, mostly to three significant digits.
//!
//! # Example
//! 0.2183 is `22 %`; 0.14 ms is `140 us`.

use plimsoll_figures::units;

/// Formats a part of 1 as percent.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent > 0.0 && percent < 1.0 { "under 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// Formats a duration in milliseconds.
pub(in crate::stat) fn ms(ms: f64) -> String {
    units::format_duration_ns((ms * 1e6).round() as u64)
}

/// Formats a rate in requests a second.
pub(super) fn rate(per_s: f64) -> String {
    format!("{} requests/s", count(per_s))
}

/// Formats a rate in events a second, without a unit.
pub(super) fn count(per_s: f64) -> String {
    match per_s {
        _ if per_s > 0.0 && per_s < 0.05 => "under 0.1".to_owned(),
        _ if per_s < 10.0 => format!("{per_s:.1}"),
        _ => units::format_iops(per_s),
    }
}

/// Formats a rate in KiB a second, in decimal units.
pub(super) fn throughput(kib_per_s: f64) -> String {
    units::format_throughput_decimal(kib_per_s * 1024.0)
}

/// Formats a mean number of requests under way.
pub(super) fn queue(queue: f64) -> String {
    if queue < 10.0 { format!("{queue:.2}") } else { format!("{queue:.0}") }
}

/// Formats a duration in seconds.
pub(super) fn seconds(seconds: f64) -> String {
    format!("{seconds:.1} s")
}
