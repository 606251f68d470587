//! Figures as data sheets and clouds print them: 1 MB is 10^6 bytes, and `b` is a bit, an eighth of a byte.
//!
//! **Why.** Instance limits come in megabits, volumes in MiB/s, drives in MB/s, and some graphs count operations by the
//! minute. Each mistaken for another is wrong by 5 %, by a factor of 8 or by a factor of 60, and still looks plausible.
//!
//! **How.** Units are taken literally and are required: `MB` is 10^6 bytes, `MiB` 2^20 bytes, `Mb` 10^6 bits. A letter
//! alone (`M`) is refused for bytes, because it may mean either. Counts of operations take `k`, `M`, `G` (decimal).
//! Rates end in `/s` or `/min`, or in `bps`; operations without either are per second.
//!
//! **Limits.** Results are whole, rounded to the nearest; no exponents, no separators between digits.
//!
//! **Example.** `6800Mb/s` is 850 000 000 bytes a second, and so is `850MB/s`; `13.2M/min` is 220 000 operations a
//! second.

use super::{UnitError, quoted, too_large, unknown_unit};

const BYTES_HELP: &str = "write a number and kB, MB, GB or TB (decimal), or KiB, MiB, GiB or TiB, such as 1.92TB";
const RATE_HELP: &str = "write bytes as MB/s or MiB/s, bits as Mb/s or Mbps, such as 850MB/s or 6800Mb/s";
const OPERATIONS_HELP: &str = "write a number, with k, M or G (decimal) and /s or /min if you like, such as 13.2M/min";

/// Reads a size in the units of data sheets, in bytes: `1.92TB`, `512GiB`, `4096B`.
///
/// # Errors
/// No number, no unit, a unit that is not one of these, or a value above `u64::MAX`.
pub fn parse_data_sheet_bytes(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split_number(text, BYTES_HELP)?;
    let factor = byte_factor(unit).ok_or_else(|| unknown_unit(unit, BYTES_HELP))?;
    whole(number * factor, BYTES_HELP)
}

/// Reads a bandwidth in the units of data sheets, in bytes per second: `850MB/s`, `125MiB/s`, `6800Mb/s`, `75Gbps`,
/// `48GB/min`.
///
/// # Errors
/// As [`parse_data_sheet_bytes`], and no `/s`, `/min` or `bps`.
pub fn parse_data_sheet_bytes_per_s(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split_number(text, RATE_HELP)?;
    let (amount, seconds) = match unit.strip_suffix("bps") {
        Some(prefix) => (format!("{prefix}b"), 1.0),
        None => match unit.rsplit_once('/') {
            Some((amount, "s")) => (amount.to_owned(), 1.0),
            Some((amount, "min")) => (amount.to_owned(), 60.0),
            _ => return Err(unknown_unit(unit, RATE_HELP)),
        },
    };
    let factor = byte_factor(&amount).or_else(|| bit_factor(&amount)).ok_or_else(|| unknown_unit(unit, RATE_HELP))?;
    whole(number * factor / seconds, RATE_HELP)
}

/// Reads operations per second: `220000`, `220k`, `220k/s`, `13.2M/min`. The suffixes are decimal.
///
/// # Errors
/// No number, an unknown unit, or a value above `u64::MAX`.
pub fn parse_operations_per_s(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split_number(text, OPERATIONS_HELP)?;
    let (prefix, seconds) = match unit.split_once('/') {
        None => (unit, 1.0),
        Some((prefix, "s")) => (prefix, 1.0),
        Some((prefix, "min")) => (prefix, 60.0),
        Some(_) => return Err(unknown_unit(unit, OPERATIONS_HELP)),
    };
    let factor = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(unknown_unit(unit, OPERATIONS_HELP)),
    };
    whole(number * factor / seconds, OPERATIONS_HELP)
}

fn byte_factor(unit: &str) -> Option<f64> {
    let factor = match unit {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        "TiB" => 1_099_511_627_776.0,
        _ => return None,
    };
    Some(factor)
}

fn bit_factor(unit: &str) -> Option<f64> {
    let bits = match unit {
        "b" => 1.0,
        "kb" | "Kb" | "kbit" => 1e3,
        "Mb" | "Mbit" => 1e6,
        "Gb" | "Gbit" => 1e9,
        _ => return None,
    };
    Some(bits / 8.0)
}

/// Splits `text` into the number at its start and the unit after it.
fn split_number<'a>(text: &'a str, help: &str) -> Result<(f64, &'a str), UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let is_number = number.starts_with(|c: char| c.is_ascii_digit()) && !number.ends_with('.');
    match number.parse::<f64>() {
        Ok(value) if is_number && value.is_finite() => Ok((value, unit.trim_start())),
        _ => Err(UnitError::new(format!("{} does not start with a number", quoted(text)), help)),
    }
}

fn whole(value: f64, help: &str) -> Result<u64, UnitError> {
    // 2^64 as a float is the first value that does not fit.
    if value >= u64::MAX as f64 { Err(too_large(help)) } else { Ok(value.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reader = fn(&str) -> Result<u64, UnitError>;

    #[test]
    fn units_mean_what_they_say() {
        let (bytes, rate, operations): (Reader, Reader, Reader) =
            (parse_data_sheet_bytes, parse_data_sheet_bytes_per_s, parse_operations_per_s);
        let cases: [(Reader, &str, u64); 16] = [
            (bytes, "1.92TB", 1_920_000_000_000),
            (bytes, "50 GB", 50_000_000_000),
            (bytes, "50GiB", 50 << 30),
            (bytes, "4096B", 4096),
            (rate, "6800Mb/s", 850_000_000),
            (rate, "6800Mbps", 850_000_000),
            (rate, "850MB/s", 850_000_000),
            (rate, "6.8Gb/s", 850_000_000),
            (rate, "125MiB/s", 125 << 20),
            (rate, "51GB/min", 850_000_000),
            (operations, "220000", 220_000),
            (operations, "220k", 220_000),
            (operations, "13.2M/min", 220_000),
            (operations, "13200000/min", 220_000),
            (operations, "220k/s", 220_000),
            (operations, "0.5", 1),
        ];
        for (read, text, expected) in cases {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_could_mean_either_is_refused() {
        let cases: [(Reader, &str, &str); 14] = [
            (parse_data_sheet_bytes, "50G", "GiB"),
            (parse_data_sheet_bytes, "50", "a number and"),
            (parse_data_sheet_bytes, "50Gb", "GiB"),
            (parse_data_sheet_bytes, "", "does not start"),
            (parse_data_sheet_bytes, ".5GB", "does not start"),
            (parse_data_sheet_bytes, "5.GB", "does not start"),
            (parse_data_sheet_bytes, "1.2.3GB", "does not start"),
            (parse_data_sheet_bytes, "99999999999TB", "too large"),
            (parse_data_sheet_bytes_per_s, "850MB", "MB/s"),
            (parse_data_sheet_bytes_per_s, "850M/s", "MB/s"),
            (parse_data_sheet_bytes_per_s, "850mb/s", "bits as Mb/s"),
            (parse_data_sheet_bytes_per_s, "850MB/h", "MB/s"),
            (parse_operations_per_s, "5m", "decimal"),
            (parse_operations_per_s, "5k/h", "decimal"),
        ];
        for (read, text, part) in cases {
            let error = read(text).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
