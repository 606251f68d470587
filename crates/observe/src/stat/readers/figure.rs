//! Formats of figures: decimal commas, suffixes, columns that run into each other.
//!
//! # Why
//! iostat prints all of `0,39`, `617.4M`, `38.4%` and `123456.0099999.00`: in a locale, with `--human`, in an old
//! layout whose columns were too narrow.
//!
//! # How it works
//! [`split_glued`] splits figures that were printed without a space: sysstat prints two decimals, so that a number ends
//! two digits after its point. [`parse`] reads one word. `nan`, `inf`, `-` and negative numbers are figures with an
//! unknown value, as opposed to words that are no figure at all.
//!
//! # Limits
//! `1,234` is 1.234, since iostat prints no separators of thousands; `1,234.5` and `1.234,5` both are 1234.5.
//!
//! # Example
//! `parse("617.4M")` is 617.4 with the suffix `M`; `parse("nvme0n1")` is `None`.

/// A figure of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::stat) struct Figure {
    /// The value without the suffix; `None` if it is not known or cannot be right.
    pub number: Option<f64>,
    /// `%`, or a size: `B`, `k`, `M`, `G`, `T`, `P`.
    pub suffix: Option<char>,
    /// Digits after the point.
    pub decimals: usize,
}

/// Parses a word; `None` if it is no figure.
pub(in crate::stat) fn parse(word: &str) -> Option<Figure> {
    let unknown = Figure { number: None, suffix: None, decimals: 0 };
    let lower = word.to_ascii_lowercase();
    let bare = lower.trim_start_matches(['-', '+']);
    let is_none = matches!(bare, "" | "nan" | "inf" | "infinity") || word.bytes().all(|byte| byte == b'*');
    if is_none {
        return (!word.is_empty()).then_some(unknown);
    }

    let (digits, suffix) = match word.char_indices().next_back()? {
        (at, '%') => (word.get(..at)?, Some('%')),
        (at, 'B' | 'k' | 'K' | 'M' | 'G' | 'T' | 'P') => (word.get(..at)?, word.get(at..)?.chars().next()),
        _ => (word, None),
    };
    let plain = with_point(digits)?;
    let number: f64 = plain.parse().ok()?;
    let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let suffix = suffix.map(|suffix| if suffix == 'K' { 'k' } else { suffix });
    Some(Figure { number: (number.is_finite() && number >= 0.0).then_some(number), suffix, decimals })
}

/// Returns the number with a decimal point and without separators of thousands; `None` for any other text.
fn with_point(digits: &str) -> Option<String> {
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let is_number = unsigned.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b',');
    if !is_number || !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let sign = if digits.starts_with('-') { "-" } else { "" };
    let Some(point) = unsigned.rfind(['.', ',']) else { return Some(format!("{sign}{unsigned}")) };
    // The last separator is the point; the other kind separates thousands.
    let (whole, decimals) = (unsigned.get(..point)?, unsigned.get(point + 1..)?);
    let thousands = if unsigned.get(point..)?.starts_with('.') { ',' } else { '.' };
    let is_sound = whole.split(thousands).skip(1).all(|group| group.len() == 3 && !group.contains(['.', ',']));
    let whole = whole.replace(thousands, "");
    (is_sound && !whole.contains(['.', ','])).then(|| format!("{sign}{whole}.{decimals}"))
}

/// Splits a word of several figures with two decimals each, such as `123456.0099999.00`; any other word stays whole.
pub(in crate::stat) fn split_glued(word: &str) -> Vec<&str> {
    let separator = if word.contains('.') { '.' } else { ',' };
    let is_glued = word.matches(separator).count() > 1
        && word.bytes().all(|byte| byte.is_ascii_digit() || byte == separator as u8)
        && word.starts_with(|c: char| c.is_ascii_digit());
    if !is_glued {
        return vec![word];
    }
    let (mut parts, mut rest) = (Vec::new(), word);
    while let Some(end) = rest.find(separator).map(|point| point + 3) {
        let (Some(part), Some(after)) = (rest.get(..end), rest.get(end..)) else { return vec![word] };
        parts.push(part);
        rest = after;
    }
    let is_whole = rest.is_empty() && parts.iter().all(|part| parse(part).is_some_and(|figure| figure.decimals == 2));
    if is_whole { parts } else { vec![word] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let figure = |number: f64, suffix, decimals| Some(Figure { number: Some(number), suffix, decimals });
        let unknown = |decimals| Some(Figure { number: None, suffix: None, decimals });
        for (word, expect) in [
            ("0.39", figure(0.39, None, 2)),
            ("0,39", figure(0.39, None, 2)),
            ("17", figure(17.0, None, 0)),
            ("38.4%", figure(38.4, Some('%'), 1)),
            ("38,4%", figure(38.4, Some('%'), 1)),
            ("617.4M", figure(617.4, Some('M'), 1)),
            ("12K", figure(12.0, Some('k'), 0)),
            ("1,234.50", figure(1234.5, None, 2)),
            ("1.234.567,89", figure(1_234_567.89, None, 2)),
            ("+3.5", figure(3.5, None, 1)),
            ("nan", unknown(0)),
            ("-nan", unknown(0)),
            ("inf", unknown(0)),
            ("-", unknown(0)),
            ("--", unknown(0)),
            ("******", unknown(0)),
            ("-1.00", unknown(2)),
            ("sda", None),
            ("8k8", None),
            ("M", None),
            ("1e5", None),
            (".5", None),
            ("1.2.3", None),
            ("%", None),
            ("", None),
        ] {
            assert_eq!(parse(word), expect, "{word}");
        }
    }

    #[test]
    fn figures_without_a_space_between_are_parted() {
        for (word, parts) in [
            ("123456.0099999.00", vec!["123456.00", "99999.00"]),
            ("0,001,234,56", vec!["0,00", "1,23", "4,56"]),
            ("12.345.67", vec!["12.34", "5.67"]),
            ("1.234.5", vec!["1.234.5"]),
            ("1.23", vec!["1.23"]),
            ("10.0.0.1", vec!["10.0.0.1"]),
            ("1.23.", vec!["1.23."]),
        ] {
            assert_eq!(split_glued(word), parts, "{word}");
        }
    }
}
