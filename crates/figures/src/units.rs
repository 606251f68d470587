//! Sizes, rates, durations and counts as text: the one place that reads and prints them.
//!
//! **Why.** The same `1M` means different things to different programs. Configuration files follow the grammar of the
//! program that defined them, the command line follows ours, and every table prints figures the same way.
//!
//! **How.** One reader per grammar, none of which guesses. In all of these the size suffixes are *binary* (k = 2^10, M
//! = 2^20, G = 2^30, T = 2^40), as in Seastar:
//!
//! | reader | grammar | example |
//! |---|---|---|
//! | [`parse_io_properties_figure`] | digits, or digits + `k K M G T` + optional `i`, `iB` or `B` | `95k` = 97 280 |
//! | [`parse_io_tester_size_bytes`] | digits, or digits + `kB MB GB` (`k K M G KiB MiB GiB` also) | `256kB` = 262 144 |
//! | [`parse_io_tester_duration_ns`] | `0`, or digits + `ns us ms s` | `1000us` = 1 000 000 |
//! | [`parse_size_bytes`] | as io-properties, any case, and `B` alone | `8GiB`, `128k`, `512B` |
//! | [`parse_rate_bytes_per_s`] | a size, optionally followed by `/s` | `100MiB/s` |
//! | [`parse_duration_ns`] | decimal number + `ns us ms s min m h` | `1.5ms` |
//! | [`parse_count`] | digits, `_` between digits | `1_000_000` |
//!
//! The figures of vendors and clouds are the exception: there 1 MB is 10^6 bytes. They have readers of their own:
//! [`parse_data_sheet_bytes`], [`parse_data_sheet_bytes_per_s`], [`parse_operations_per_s`].
//!
//! **Limits.** Values are `u64`; an overflow is an error, never a wrap. Printing rounds to three significant digits, so
//! printed figures are for people; files get plain integers.
//!
//! **Example.** 64 KiB is read from `64k` and printed as `64 KiB`; 1 542 559 872 B/s is `1.54 GB/s` or `1.44 GiB/s`:
//!
//! ```
//! use plimsoll_figures::units;
//! assert_eq!(units::parse_io_properties_figure("64k"), Ok(65_536));
//! assert_eq!(units::format_bytes_binary(65_536), "64 KiB");
//! assert_eq!(units::format_throughput_decimal(1_542_559_872.0), "1.54 GB/s");
//! assert_eq!(units::format_duration_ns(750_000), "750 us");
//! ```

mod data_sheet;

use std::fmt;

pub use data_sheet::{parse_data_sheet_bytes, parse_data_sheet_bytes_per_s, parse_operations_per_s};

/// Why a text is not a size, rate, duration or count, and the form to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    /// The problem, in one clause that starts in lower case.
    pub message: String,
    /// The form to write instead.
    pub help: String,
}

impl UnitError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.help)
    }
}

impl std::error::Error for UnitError {}

const IO_PROPERTIES_HELP: &str =
    "write digits, with k, K, M, G or T (binary, so 1k = 1024) directly after them if you like";
const IO_TESTER_SIZE_HELP: &str = "write digits, or digits and kB, MB or GB (binary, so 1kB = 1024)";
const IO_TESTER_DURATION_HELP: &str = "write 0, or digits and ns, us, ms or s, such as 1000us";
const SIZE_HELP: &str = "write digits and one of k, M, G or T (binary), such as 128k or 8GiB";
const DURATION_HELP: &str = "write a number and one of ns, us, ms, s, min or h, such as 1.5ms";
const COUNT_HELP: &str = "write digits only, such as 16 or 1_000_000";

/// Reads a figure of io-properties.yaml: bytes, bytes per second, or operations per second.
///
/// The suffixes are binary for operations too, because that is how Seastar reads them.
///
/// # Errors
/// No digits, decimals, an unknown unit, or a value above `u64::MAX`.
pub fn parse_io_properties_figure(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split_digits(text, IO_PROPERTIES_HELP)?;
    let unit_error = || unknown_unit(unit, IO_PROPERTIES_HELP);
    let mut unit_chars = unit.chars();
    let shift = match unit_chars.next() {
        None => 0,
        Some(prefix) if matches!(unit_chars.as_str(), "" | "i" | "iB" | "B") => match prefix {
            'k' | 'K' => 10,
            'M' => 20,
            'G' => 30,
            'T' => 40,
            _ => return Err(unit_error()),
        },
        Some(_) => return Err(unit_error()),
    };
    scaled(digits, 1u64 << shift, IO_PROPERTIES_HELP)
}

/// Reads a size of an io_tester job file, in bytes.
///
/// io_tester itself takes digits, or digits and `kB`, `MB` or `GB`. This reader also takes `k K M G KiB MiB GiB`. The
/// caller checks io_tester's lower bound of 512 bytes, because it knows the key.
///
/// # Errors
/// No digits, decimals, an unknown unit (`512B` is one, as in io_tester), or a value above `u64::MAX`.
pub fn parse_io_tester_size_bytes(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split_digits(text, IO_TESTER_SIZE_HELP)?;
    let factor = match unit {
        "" => 1,
        "kB" | "k" | "K" | "KiB" => 1 << 10,
        "MB" | "M" | "MiB" => 1 << 20,
        "GB" | "G" | "GiB" => 1 << 30,
        _ => return Err(unknown_unit(unit, IO_TESTER_SIZE_HELP)),
    };
    scaled(digits, factor, IO_TESTER_SIZE_HELP)
}

/// Reads a duration of an io_tester job file, in nanoseconds.
///
/// # Errors
/// No digits, decimals, a missing unit (except for 0), an unknown unit, or a value above `u64::MAX`.
pub fn parse_io_tester_duration_ns(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split_digits(text, IO_TESTER_DURATION_HELP)?;
    let factor = match unit {
        "" if digits == "0" => 1,
        "" => return Err(UnitError::new("a duration needs a unit", IO_TESTER_DURATION_HELP)),
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(unknown_unit(unit, IO_TESTER_DURATION_HELP)),
    };
    scaled(digits, factor, IO_TESTER_DURATION_HELP)
}

/// Reads a size given on the command line, in bytes: `512`, `512B`, `128k`, `8GiB`, `8GB` (binary too), in any case.
///
/// # Errors
/// No digits, decimals, an unknown unit, or a value above `u64::MAX`.
pub fn parse_size_bytes(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split_digits(text.trim(), SIZE_HELP)?;
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kb" | "kib" => 10,
        "m" | "mi" | "mb" | "mib" => 20,
        "g" | "gi" | "gb" | "gib" => 30,
        "t" | "ti" | "tb" | "tib" => 40,
        _ => return Err(unknown_unit(unit, SIZE_HELP)),
    };
    scaled(digits, 1u64 << shift, SIZE_HELP)
}

/// Reads a rate given on the command line, in bytes per second: a size with an optional `/s`.
pub fn parse_rate_bytes_per_s(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    parse_size_bytes(text.strip_suffix("/s").unwrap_or(text))
}

/// Reads a duration given on the command line, in nanoseconds, rounded down to a whole one.
///
/// # Errors
/// No number, a missing unit (except for 0), an unknown unit, or a value above `u64::MAX`.
pub fn parse_duration_ns(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if !is_digits(whole) || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(UnitError::new(format!("{} is not a duration", quoted(text)), DURATION_HELP));
    }
    let factor: u64 = match unit.trim_start() {
        "" if number.bytes().all(|byte| byte == b'0' || byte == b'.') => 1,
        "" => return Err(UnitError::new("a duration needs a unit", DURATION_HELP)),
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        unit => return Err(unknown_unit(unit, DURATION_HELP)),
    };
    let whole_ns = scaled(whole, factor, DURATION_HELP)?;
    whole_ns.checked_add(fraction_of(fraction, factor)).ok_or_else(|| too_large(DURATION_HELP))
}

/// Reads a plain count given on the command line. Refuses suffixes, because `k` may mean 1000 or 1024.
///
/// # Errors
/// Anything but digits with single `_` between them, or a value above `u64::MAX`.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    if !text.split('_').all(is_digits) {
        return Err(UnitError::new(format!("{} is not a count", quoted(text)), COUNT_HELP));
    }
    scaled(&text.replace('_', ""), 1, COUNT_HELP)
}

/// Prints bytes in binary units with three significant digits, trailing zeros left out: `512 B`, `64 KiB`, `1.5 MiB`.
pub fn format_bytes_binary(bytes: u64) -> String {
    without_trailing_zeros(scaled_text(bytes as f64, &BINARY_BYTES))
}

/// Prints bytes in decimal units with three significant digits, trailing zeros left out: `512 B`, `65.5 kB`, `1.5 MB`.
pub fn format_bytes_decimal(bytes: u64) -> String {
    without_trailing_zeros(scaled_text(bytes as f64, &DECIMAL_BYTES))
}

/// Prints bytes per second in binary units with three significant digits: `1.44 GiB/s`; `n/a` if not finite.
pub fn format_throughput_binary(bytes_per_s: f64) -> String {
    per_second(scaled_text(bytes_per_s, &BINARY_BYTES))
}

/// Prints bytes per second in decimal units with three significant digits: `1.54 GB/s`; `n/a` if not finite.
pub fn format_throughput_decimal(bytes_per_s: f64) -> String {
    per_second(scaled_text(bytes_per_s, &DECIMAL_BYTES))
}

/// Prints operations per second with three significant digits and a decimal suffix: `950`, `219k`, `1.86M`; `n/a` if
/// not finite.
pub fn format_iops_short(iops: f64) -> String {
    scaled_text(iops, &DECIMAL_COUNT).replace(' ', "")
}

/// Prints a number without a unit with four significant digits and at most nine decimals; `n/a` unless it is finite.
pub fn format_figure(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let magnitude = value.abs();
    let decimals = if magnitude == 0.0 { 0.0 } else { 3.0 - magnitude.log10().floor() };
    let text = format!("{value:.0$}", decimals.clamp(0.0, 9.0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Prints a count with a comma between groups of three digits: `218,786`.
pub fn format_count(count: u64) -> String {
    grouped(&count.to_string())
}

/// Returns digits with a comma between groups of three.
pub fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints operations per second as a whole number with a comma between groups of three digits; `n/a` if not finite.
pub fn format_iops(iops: f64) -> String {
    if !iops.is_finite() {
        return NOT_A_FIGURE.to_owned();
    }
    // A cast from a float saturates, so a negative figure prints as 0 and a huge one as u64::MAX.
    format_count(iops.round() as u64)
}

/// Prints a duration with three significant digits: `85 ns`, `750 us`, `1.35 ms`, `135 s`.
pub fn format_duration_ns(duration_ns: u64) -> String {
    if duration_ns < 1_000 {
        return format!("{duration_ns} ns");
    }
    scaled_text(duration_ns as f64, &DURATION)
}

/// Returns a CSV field, quoted where RFC 4180 requires it.
pub fn csv_field(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

const NOT_A_FIGURE: &str = "n/a";

/// Units in ascending order: factor and name. The first one has factor 1.
pub type UnitTable = [(f64, &'static str)];

pub const BINARY_BYTES: [(f64, &str); 6] = [
    (1.0, "B"),
    (1024.0, "KiB"),
    (1_048_576.0, "MiB"),
    (1_073_741_824.0, "GiB"),
    (1_099_511_627_776.0, "TiB"),
    (1_125_899_906_842_624.0, "PiB"),
];
const DECIMAL_BYTES: [(f64, &str); 6] = [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"), (1e15, "PB")];
pub const DECIMAL_COUNT: [(f64, &str); 4] = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];
/// Durations, in nanoseconds.
pub const DURATION: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];

/// Prints `value` in the smallest unit in which the printed figure stays below the next unit.
fn scaled_text(value: f64, units: &UnitTable) -> String {
    if !value.is_finite() {
        return NOT_A_FIGURE.to_owned();
    }
    let magnitude = value.abs();
    let sign = if value < 0.0 { "-" } else { "" };
    let mut text = String::new();
    for (index, (factor, name)) in units.iter().enumerate() {
        let (figure, digits) = three_digits(magnitude / factor, index == 0);
        text = format!("{sign}{digits} {name}");
        let fits = units.get(index + 1).is_none_or(|(next_factor, _)| figure < next_factor / factor);
        if fits {
            break;
        }
    }
    text.trim_end().to_owned()
}

/// Rounds to the printed figure, as a number and as text. Figures that are whole by nature print no zeros.
fn three_digits(value: f64, whole_by_nature: bool) -> (f64, String) {
    let decimals = match value {
        _ if whole_by_nature && value.fract() == 0.0 => 0,
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    (text.parse().unwrap_or(value), text)
}

fn without_trailing_zeros(text: String) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

fn per_second(text: String) -> String {
    if text == NOT_A_FIGURE { text } else { text + "/s" }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Splits `text` into its leading digits and the rest, and names the usual mistakes.
fn split_digits<'a>(text: &'a str, help: &str) -> Result<(&'a str, &'a str), UnitError> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let lower = unit.to_ascii_lowercase();
    let problem = match () {
        () if text.is_empty() => "there is no figure".to_owned(),
        () if text.starts_with('-') => format!("{} is negative", quoted(text)),
        () if digits.is_empty() => format!("{} does not start with a digit", quoted(text)),
        () if lower.starts_with('.') => format!("{} has decimals, which are not read here", quoted(text)),
        () if lower.starts_with(['_', ',', '\'']) => format!("{} has separators between digits", quoted(text)),
        () if lower.starts_with('e') => format!("{} has an exponent, which is not read here", quoted(text)),
        () if digits == "0" && lower.starts_with(['x', 'o', 'b']) && lower.len() > 1 => {
            format!("{} is not a decimal number", quoted(text))
        }
        () => return Ok((digits, unit)),
    };
    Err(UnitError::new(problem, help))
}

fn scaled(digits: &str, factor: u64, help: &str) -> Result<u64, UnitError> {
    let number: u64 = digits.parse().map_err(|_| too_large(help))?;
    number.checked_mul(factor).ok_or_else(|| too_large(help))
}

/// Returns `0.<fraction>` of `factor`, rounded down. Digits beyond the 18th cannot matter: factors are below 10^13.
fn fraction_of(fraction: &str, factor: u64) -> u64 {
    let mut numerator: u128 = 0;
    let mut denominator: u128 = 1;
    for digit in fraction.bytes().take(18) {
        numerator = numerator * 10 + u128::from(digit.saturating_sub(b'0'));
        denominator *= 10;
    }
    u64::try_from(u128::from(factor) * numerator / denominator).unwrap_or(u64::MAX)
}

fn too_large(help: &str) -> UnitError {
    UnitError::new("the figure is too large for 64 bits", help)
}

fn unknown_unit(unit: &str, help: &str) -> UnitError {
    UnitError::new(format!("{} is not a unit that is read here", quoted(unit)), help)
}

/// Quotes foreign text for a message: control characters escaped, at most 40 characters.
pub fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    let rest = if shown.len() < text.len() { "..." } else { "" };
    format!("\"{}{rest}\"", shown.escape_debug())
}
