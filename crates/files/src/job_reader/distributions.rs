//! Reads the frequencies of lengths and positions: `bssplit` and `access`.
//!
//! **Why.** Real loads have several lengths, and hot data. The words are fio's where fio has them, so that settings
//! written for fio can be copied.
//!
//! **How.** [`read_sizes`] accepts `4k/60:64k/40` (length, per cent of the requests), or a list of `[4k, 60]`.
//! [`read_access`] accepts a word and, after a colon, its numbers.
//!
//! **Limits.** At most [`MAX_PARTS`] lengths or zones. Percentages must sum to 100; fio fills in missing ones, this
//! reader does not.
//!
//! **Example.** `zoned:60/10:40/90`: 60 % of the requests go to the first 10 % of the data, 40 % to the rest.

use plimsoll_figures::units::{parse_io_tester_size_bytes, quoted};

use super::super::error::{Code, ConfigError};
use super::super::fields::Field;
use super::super::jobs::{Access, MAX_REQUEST_BYTES, SizeShare};

/// Most lengths of a `bssplit`, and most zones of an `access`: fio's bound for the former.
const MAX_PARTS: usize = 64;
/// Largest distance of a sum from 100, because written percentages are rounded.
const SUM_TOLERANCE_PCT: f64 = 0.01;

const SIZES_HELP: &str = "write lengths and per cents that make 100, such as 4k/60:64k/40 or [[4k, 60], [64k, 40]]";
const ACCESS_HELP: &str = "write uniform, once, zipf:1.1, pareto:0.2, normal:10, hot:10/90 or zoned:60/10:40/90";

pub(super) fn read_sizes(field: &Field<'_>) -> Result<Vec<SizeShare>, ConfigError> {
    let sizes = if field.is_list() {
        field.list()?.iter().map(read_item).collect::<Result<Vec<_>, _>>()?
    } else {
        field.text()?.split(':').map(|part| read_part(field, part)).collect::<Result<Vec<_>, _>>()?
    };
    check_parts(field, &sizes.iter().map(|size| size.percent).collect::<Vec<_>>(), "lengths", SIZES_HELP)?;
    Ok(sizes)
}

/// Reads `[4k, 60]`, or `4k/60`.
fn read_item(item: &Field<'_>) -> Result<SizeShare, ConfigError> {
    if item.is_scalar() {
        return read_part(item, item.text()?);
    }
    match item.list()?.as_slice() {
        [length, percent] => size_share(item, length.text()?, percent.text()?),
        _ => Err(item.error(Code::WrongType, "expected a length and its per cent").with_help(SIZES_HELP)),
    }
}

/// Reads `4k/60`.
fn read_part(field: &Field<'_>, part: &str) -> Result<SizeShare, ConfigError> {
    let Some((length, percent)) = part.split_once('/') else {
        let message = format!("{} is not a length and its per cent", quoted(part));
        return Err(field.error(Code::InvalidValue, message).with_help(SIZES_HELP));
    };
    size_share(field, length, percent)
}

fn size_share(field: &Field<'_>, length: &str, percent: &str) -> Result<SizeShare, ConfigError> {
    let bytes = parse_io_tester_size_bytes(length.trim()).map_err(|error| field.unit_error(error))?;
    if bytes == 0 || bytes > MAX_REQUEST_BYTES || !bytes.is_multiple_of(512) {
        let error = field.error(Code::OutOfRange, format!("a request of {bytes} bytes is not possible"));
        return Err(error.with_help("write multiples of 512 bytes, up to 1GB: direct I/O works in whole sectors"));
    }
    let percent = number(field, percent, |value| value > 0.0 && value <= 100.0, SIZES_HELP)?;
    Ok(SizeShare { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), percent })
}

pub(super) fn read_access(field: &Field<'_>) -> Result<Access, ConfigError> {
    let text = field.text()?;
    let (word, rest) = text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest)));
    let one = |holds: fn(f64) -> bool, help: &str| match rest {
        Some(rest) => number(field, rest, holds, help),
        None => Err(field.error(Code::InvalidValue, format!("`{word}` needs a number")).with_help(help)),
    };

    match (word, rest) {
        ("uniform", None) => Ok(Access::Uniform),
        ("once", None) => Ok(Access::Once),
        ("zipf", _) => {
            let theta = one(|theta| theta > 0.0 && theta <= 10.0, "write an exponent above 0, up to 10: zipf:1.1")?;
            Ok(Access::Zipf { theta })
        }
        ("pareto", _) => {
            let h = one(|h| h > 0.0 && h < 1.0, "write a number above 0 and below 1: pareto:0.2")?;
            Ok(Access::Pareto { h })
        }
        ("normal", _) => {
            let help = "write the standard deviation in per cent of the data, above 0, up to 100: normal:10";
            Ok(Access::Normal { deviation_pct: one(|pct| pct > 0.0 && pct <= 100.0, help)? })
        }
        ("hot", Some(rest)) => read_hot(field, rest),
        ("zoned", Some(rest)) => read_zones(field, rest),
        _ => {
            let error = field.error(Code::InvalidValue, format!("{} is not a distribution", quoted(text)));
            Err(error.with_help(ACCESS_HELP))
        }
    }
}

/// Reads `10/90`: a tenth of the data gets 90 % of the requests.
fn read_hot(field: &Field<'_>, text: &str) -> Result<Access, ConfigError> {
    let help = "write the hot part of the data (above 0, below 100) and its part of the requests (0 to 100), both in \
                per cent: hot:10/90";
    let (data, access) = pair(field, text, help)?;
    let data_pct = number(field, data, |pct| pct > 0.0 && pct < 100.0, help)?;
    let access_pct = number(field, access, |pct| (0.0..=100.0).contains(&pct), help)?;
    Ok(Access::HotSet { data_pct, access_pct })
}

/// Reads `60/10:40/90`: parts of the requests and of the data.
fn read_zones(field: &Field<'_>, text: &str) -> Result<Access, ConfigError> {
    let help = "write zones as parts of the requests and of the data, both in per cent and both making 100: \
                zoned:60/10:40/90";
    let zone = |part: &str| {
        let (requests, data) = pair(field, part, help)?;
        let requests_pct = number(field, requests, |pct| (0.0..=100.0).contains(&pct), help)?;
        let data_pct = number(field, data, |pct| pct > 0.0 && pct <= 100.0, help)?;
        Ok((requests_pct, data_pct))
    };
    let zones = text.split(':').map(zone).collect::<Result<Vec<_>, ConfigError>>()?;
    check_parts(field, &zones.iter().map(|zone| zone.0).collect::<Vec<_>>(), "parts of the requests", help)?;
    check_parts(field, &zones.iter().map(|zone| zone.1).collect::<Vec<_>>(), "parts of the data", help)?;
    Ok(Access::Zoned(zones))
}

fn pair<'t>(field: &Field<'_>, text: &'t str, help: &str) -> Result<(&'t str, &'t str), ConfigError> {
    text.split_once('/').ok_or_else(|| {
        let message = format!("{} is not a pair of numbers with a `/` between them", quoted(text));
        field.error(Code::InvalidValue, message).with_help(help)
    })
}

/// Reads a number within a text; `help` describes the valid ones.
fn number(field: &Field<'_>, text: &str, holds: impl Fn(f64) -> bool, help: &str) -> Result<f64, ConfigError> {
    let text = text.trim();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse::<f64>() {
        Ok(value) if is_plain && value.is_finite() && holds(value) => Ok(value),
        Ok(value) if is_plain && value.is_finite() => {
            Err(field.error(Code::OutOfRange, format!("{} is out of range", quoted(text))).with_help(help))
        }
        _ => Err(field.error(Code::InvalidValue, format!("{} is not a number", quoted(text))).with_help(help)),
    }
}

/// Checks that there are 1 to [`MAX_PARTS`] parts which sum to 100.
fn check_parts(field: &Field<'_>, percents: &[f64], what: &str, help: &str) -> Result<(), ConfigError> {
    if percents.is_empty() || percents.len() > MAX_PARTS {
        let error = field.error(Code::OutOfRange, format!("there are {} {what}", percents.len()));
        return Err(error.with_help(format!("write 1 to {MAX_PARTS}")));
    }
    let sum: f64 = percents.iter().sum();
    if (sum - 100.0).abs() > SUM_TOLERANCE_PCT {
        let error = field.error(Code::OutOfRange, format!("the {what} make {sum} %, and not 100"));
        return Err(error.with_help(help));
    }
    Ok(())
}
