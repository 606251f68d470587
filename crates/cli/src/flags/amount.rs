//! Durations and sizes of the command line: one way to write each, on every command.
//!
//! **Why.** A user who has learnt one command's `--duration 5` writes the same on the next.
//!
//! **How.** A duration is a number of seconds, or a number with a unit: [`time`], or [`time_within`] for a limited
//! range. A size is a number of bytes, or a number with a unit: [`size`].
//!
//! **Limits.** Fractions of a nanosecond are rounded. Negative durations are refused.
//!
//! **Example.** `--duration 5`, `--duration 5s` and `--duration 5000ms` are the same.

use std::time::Duration;

use plimsoll_figures::units::{format_duration_ns, parse_duration_ns, parse_size_bytes};

/// Longest duration in seconds: three years.
const SECONDS_MAX: f64 = 1e8;

/// Reads a duration: seconds, or a number with a unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return if (0.0..=SECONDS_MAX).contains(&seconds) {
            Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
        } else {
            Err("expected 0 to 100000000 s, such as 10 or 500ms".into())
        };
    }
    let ns = parse_duration_ns(text).map_err(|error| format!("{}: {}", error.message, error.help))?;
    Ok(Duration::from_nanos(ns))
}

/// Returns a reader of durations from `least` to `most`.
pub(crate) fn time_within(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let found = time(text)?;
        let [least_text, most_text] = [least, most].map(|bound| format_duration_ns(nanos(bound)));
        let is_within = (least..=most).contains(&found);
        is_within
            .then_some(found)
            .ok_or_else(|| format!("expected {least_text} to {most_text}, such as 1, 1s or 1000ms"))
    }
}

/// Returns the nanoseconds of a duration, at most 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads a size in bytes: a number, or one with a unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size_bytes(text).map_err(|error| format!("{}: {}", error.message, error.help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_seconds_or_has_a_unit() {
        let cases = [
            ("5", Some(5_000)),
            ("0.5", Some(500)),
            ("1e3", Some(1_000_000)),
            ("5s", Some(5_000)),
            ("500ms", Some(500)),
            ("2m", Some(120_000)),
            ("0", Some(0)),
            ("1.001", Some(1_001)),
            ("-1", None),
            ("inf", None),
            ("NaN", None),
            ("1e9", None),
            ("5 apples", None),
            ("", None),
        ];
        for (text, ms) in cases {
            assert_eq!(time(text).ok(), ms.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn bounds_are_named_where_a_duration_is_outside() {
        let interval = time_within(Duration::from_millis(100), Duration::from_secs(3600));
        assert_eq!(interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("3600"), Ok(Duration::from_secs(3600)));
        for text in ["0", "99ms", "2h"] {
            let message = interval(text).unwrap_err();
            assert!(message.contains("expected 100 ms to"), "{text}: {message}");
        }
    }
}
