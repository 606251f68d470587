//! Reads the quality of service of a class: limits, reservation, latency target, ageing, refusal.
//!
//! **Why.** A scheduling-groups file, the classes of a scenario, and an action that changes a class while it runs have
//! the same keys.
//!
//! **How.** Operations are plain numbers per second, bytes have binary suffixes, times have units. A latency target is
//! a time and a percentile: `2ms p99`.
//!
//! **Limits.** Figures from 1 to 10^15: a limit of 0 would admit nothing, and is refused.
//!
//! **Example.** `{limit_bandwidth: 100M, latency_target: 2ms p99}`.

use plimsoll_core::{LatencyTarget, Limits, Qos, Rate, Reservation};
use plimsoll_figures::units::{parse_count, parse_duration_ns, parse_rate_bytes_per_s, quoted};

use super::error::{Code, ConfigError};
use super::fields::{Field, Fields};
use super::io_properties::MAX_FIGURE;

/// Returns the keys of a map: its own, and those that [`read`] uses.
macro_rules! with_qos_keys {
    ($($own:literal),*) => {
        &[
            $($own,)* "limit_iops", "limit_iops_read", "limit_iops_write", "limit_bandwidth", "limit_bandwidth_read",
            "limit_bandwidth_write", "limit_burst", "reservation_iops", "reservation_bandwidth", "latency_target",
            "max_wait", "max_delay",
        ]
    };
}
pub(crate) use with_qos_keys;

/// The keys that [`read`] uses.
pub(crate) const KEYS: &[&str] = with_qos_keys!();

/// Reads the quality of service from the keys of a map; missing keys keep the default.
pub(crate) fn read(fields: &Fields<'_>) -> Result<Qos, ConfigError> {
    let figure = |key, parse, unit| fields.optional(key, |field| field.figure(parse, 1..=MAX_FIGURE, unit));
    let iops = |key| figure(key, parse_count, "operations a second; remove the key for none");
    let bandwidth = |key| figure(key, parse_rate_bytes_per_s, "bytes a second; remove the key for none");
    let rate = |figure: Option<u64>| figure.map_or(Rate::Unlimited, Rate::per_second);

    Ok(Qos {
        limits: Limits {
            iops: rate(iops("limit_iops")?),
            read_iops: rate(iops("limit_iops_read")?),
            write_iops: rate(iops("limit_iops_write")?),
            bandwidth: rate(bandwidth("limit_bandwidth")?),
            read_bandwidth: rate(bandwidth("limit_bandwidth_read")?),
            write_bandwidth: rate(bandwidth("limit_bandwidth_write")?),
            burst_ns: fields.or("limit_burst", 0, |field| field.time_ns(0))?,
        },
        reservation: Reservation {
            iops: iops("reservation_iops")?.unwrap_or(0),
            bandwidth: bandwidth("reservation_bandwidth")?.unwrap_or(0),
        },
        latency_target: fields.optional("latency_target", target)?,
        max_wait_ns: fields.optional("max_wait", |field| field.time_ns(1))?,
        max_delay_ns: fields.optional("max_delay", |field| field.time_ns(1))?,
    })
}

/// Reads a target such as `2ms p99`.
fn target(field: &Field<'_>) -> Result<LatencyTarget, ConfigError> {
    let text = field.text()?;
    let help = "write a time and a percentile, such as `2ms p99` or `500us p99.9`";
    let bad = |what: String| field.error(Code::InvalidValue, what).with_help(help);
    let mut words = text.split_whitespace();
    let (Some(time), Some(percentile), None) = (words.next(), words.next(), words.next()) else {
        return Err(bad(format!("{} is not a latency target", quoted(text))));
    };
    let latency_ns = parse_duration_ns(time).map_err(|error| bad(error.message))?;
    let percent = percentile.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent < 100.0 && latency_ns > 0 => {
            Ok(LatencyTarget { latency_ns, quantile: percent / 100.0 })
        }
        _ if latency_ns == 0 => Err(bad("a latency of 0 cannot be reached".to_owned())),
        _ => Err(bad(format!("{} is not a percentile above p0 and below p100", quoted(percentile)))),
    }
}
