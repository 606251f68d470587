//! Parses fio's values: numbers with units, times, lists by direction.
//!
//! **Why.** `4k` is 4096 in fio's files, `4ki` is 4000, and `kb_base=1000` swaps the two. Times have units of their
//! own, and a default unit that depends on the option.
//!
//! **How.** Pure functions convert text to numbers; their errors are sentences for the user.
//!
//! **Limits.** No arithmetic in parentheses, no fractions, no percentages, no zones. All rules are from the manual of
//! fio 3.33, "Parameter types".
//!
//! **Example.** `int("4k", 1024)` is 4096, `time_ns("10", NS_PER_S)` is ten seconds, and the writes' part of `8k,32k`
//! is `32k`.

use plimsoll_figures::units::{UnitError, quoted};

use crate::jobs::JobKind;

pub(super) const NS_PER_US: u64 = 1_000;
pub(super) const NS_PER_MS: u64 = 1_000_000;
pub(super) const NS_PER_S: u64 = 1_000_000_000;
const MAX_TIME_NS: u64 = 365 * 86_400 * NS_PER_S;
const MAX_PARTS: usize = 256;

fn wrong<T>(message: impl Into<String>, help: &str) -> Result<T, UnitError> {
    Err(UnitError { message: message.into(), help: help.to_owned() })
}

/// A direction of transfer, in the order of fio's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
    Trim,
}

pub(super) fn directions(kind: JobKind) -> &'static [Direction] {
    match kind {
        JobKind::SeqMixed { .. } | JobKind::RandMixed { .. } => &[Direction::Read, Direction::Write],
        JobKind::Discard { .. } => &[Direction::Trim],
        kind if kind.is_write() => &[Direction::Write],
        _ => &[Direction::Read],
    }
}

/// Returns the part of a comma-separated list for `direction`: the last part given holds for all later directions.
/// `None` if the list leaves the direction out.
pub(super) fn of_direction(list: &str, direction: Direction) -> Option<&str> {
    let mut parts = list.split(',').map(str::trim);
    let mut part = parts.next();
    for _ in 0..direction as usize {
        part = parts.next().or(part);
    }
    part.filter(|text| !text.is_empty())
}

/// Splits a value into its digits and its unit in lower case.
fn digits_and_unit(text: &str) -> Result<(u64, String), UnitError> {
    const HELP: &str = "write a whole number, with a unit if need be, such as 4k";
    let text = text.trim().to_ascii_lowercase();
    if text.starts_with('(') {
        return wrong("arithmetic is not done here", "write the result");
    }

    let (radix, body) = match text.strip_prefix("0x") {
        Some(body) => (16, body),
        None => (10, text.as_str()),
    };

    let end = body.find(|c: char| !c.is_digit(radix)).unwrap_or(body.len());
    let (digits, unit) = body.split_at(end);
    if digits.is_empty() {
        return wrong(format!("{} is not a number", quoted(&text)), HELP);
    }

    match u64::from_str_radix(digits, radix) {
        Ok(number) => Ok((number, unit.trim().to_owned())),
        Err(_) => wrong("the figure is too large for 64 bits", HELP),
    }
}

/// Reads a whole number with fio's suffixes; `kb_base` is 1000 or 1024.
pub(super) fn int(text: &str, kb_base: u64) -> Result<u64, UnitError> {
    const HELP: &str = "write a whole number with k, m, g, t or p; b may follow";
    let (number, unit) = digits_and_unit(text)?;
    let other_base = if kb_base == 1024 { 1000 } else { 1024 };
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (letter, base) = match unit.strip_suffix('i') {
        Some(letter) if !letter.is_empty() => (letter, other_base),
        _ => (unit, kb_base),
    };

    let power = match letter {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return wrong(format!("{} is not a unit of fio", quoted(unit)), HELP),
    };

    match base.checked_pow(power).and_then(|factor| number.checked_mul(factor)) {
        Some(value) => Ok(value),
        None => wrong("the figure is too large for 64 bits", HELP),
    }
}

/// Reads a time in nanoseconds; without a unit the number counts units of `default_ns`.
pub(super) fn time_ns(text: &str, default_ns: u64) -> Result<u64, UnitError> {
    const HELP: &str = "write a whole number with us, ms, s, m (minutes), h or d";
    let (number, unit) = digits_and_unit(text)?;
    let factor_ns = match unit.as_str() {
        "" => default_ns,
        "us" | "usec" => NS_PER_US,
        "ms" | "msec" => NS_PER_MS,
        "s" | "sec" => NS_PER_S,
        "m" => 60 * NS_PER_S,
        "h" => 3_600 * NS_PER_S,
        "d" => 86_400 * NS_PER_S,
        _ => return wrong(format!("{} is not a unit of time of fio", quoted(&unit)), HELP),
    };
    match number.checked_mul(factor_ns).filter(|time_ns| *time_ns <= MAX_TIME_NS) {
        Some(time_ns) => Ok(time_ns),
        None => wrong("the time is longer than a year", HELP),
    }
}

/// Reads a finite number, with or without a fraction, from `low` to `high`.
pub(super) fn float(text: &str, low: f64, high: f64) -> Result<f64, UnitError> {
    match text.trim().parse::<f64>() {
        Ok(value) if value >= low && value <= high => Ok(value),
        Ok(_) => wrong(format!("{} is outside of {low} to {high}", quoted(text)), "write a number in between"),
        Err(_) => wrong(format!("{} is not a number", quoted(text)), "write a number, such as 1.2"),
    }
}

/// Splits `first/second:first/second` into pairs, each with its second part if it has one.
pub(super) fn pairs(text: &str) -> Result<Vec<(&str, Option<&str>)>, UnitError> {
    let parts = text.split(':').map(|part| match part.split_once('/') {
        Some((first, second)) => (first.trim(), Some(second.trim()).filter(|text| !text.is_empty())),
        None => (part.trim(), None),
    });
    let parts: Vec<_> = parts.take(MAX_PARTS + 1).collect();
    if parts.len() > MAX_PARTS { wrong("there are more than 256 parts", "leave some out") } else { Ok(parts) }
}

/// Fills shares in per cent up to 100, as fio does: missing shares get equal parts of the rest; if none is missing, the
/// last share gets the rest.
pub(super) fn fill_percents(shares: &[Option<f64>]) -> Result<Vec<f64>, UnitError> {
    let sum: f64 = shares.iter().flatten().sum();
    if sum > 100.0 + 1e-6 {
        return wrong(format!("the shares make {sum} %"), "let them make 100 %");
    }
    let rest = (100.0 - sum).max(0.0);
    let missing = shares.iter().filter(|share| share.is_none()).count();
    let mut filled: Vec<f64> = shares.iter().map(|share| share.unwrap_or(rest / missing.max(1) as f64)).collect();
    if let (0, Some(last)) = (missing, filled.last_mut()) {
        *last += rest;
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times() {
        for (text, kb_base, expect) in [
            ("4k", 1024, Some(4096)),
            ("4KiB", 1024, Some(4000)),
            ("4k", 1000, Some(4000)),
            ("4ki", 1000, Some(4096)),
            ("0x10", 1024, Some(16)),
            ("0x1k", 1024, Some(1024)),
            ("512b", 1024, Some(512)),
            ("1T", 1024, Some(1 << 40)),
            ("99999999999p", 1024, None),
            ("1.5k", 1024, None),
            ("10%", 1024, None),
            ("i", 1024, None),
            ("1i", 1024, None),
            ("(4*1024)", 1024, None),
            ("", 1024, None),
        ] {
            assert_eq!(int(text, kb_base).ok(), expect, "{text}");
        }
        for (text, expect) in [("30", Some(30)), ("2m", Some(120)), ("1h", Some(3600)), ("3sec", Some(3)), ("4y", None)]
        {
            assert_eq!(time_ns(text, NS_PER_S).ok(), expect.map(|s: u64| s * NS_PER_S), "{text}");
        }

        assert_eq!(time_ns("7", NS_PER_US), Ok(7_000));
        assert!(time_ns("400d", NS_PER_S).is_err());
    }

    #[test]
    fn lists_by_direction() {
        use Direction::{Read, Trim, Write};
        for (list, expect) in [
            ("4k", [Some("4k"), Some("4k"), Some("4k")]),
            ("8k,32k", [Some("8k"), Some("32k"), Some("32k")]),
            ("8k,32k,", [Some("8k"), Some("32k"), None]),
            (",8k", [None, Some("8k"), Some("8k")]),
            ("1,2,3", [Some("1"), Some("2"), Some("3")]),
        ] {
            assert_eq!([Read, Write, Trim].map(|direction| of_direction(list, direction)), expect, "{list}");
        }
    }

    #[test]
    fn shares_are_filled() {
        assert_eq!(fill_percents(&[Some(50.0), None, None]), Ok(vec![50.0, 25.0, 25.0]));
        assert_eq!(fill_percents(&[Some(50.0), Some(10.0)]), Ok(vec![50.0, 50.0]));
        assert!(fill_percents(&[Some(50.0), Some(60.0)]).is_err());
        assert_eq!(pairs("4k/10:8k/:16k").unwrap(), [("4k", Some("10")), ("8k", None), ("16k", None)]);
    }
}
