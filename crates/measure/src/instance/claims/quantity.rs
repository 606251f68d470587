//! A number as an author wrote it, with its unit and its rounding.
//!
//! **Why.** `45 TB` and `45.00 TB` are the same number, but not the same statement: a claim is wrong only by more than
//! its rounding.
//!
//! **How.** [`Quantity::parse`] reads `-36 %`, `1,857.96 USD/TB`, `5 M/s`, `95.1 Gbit/s`, `90 G`, `2 M IOPS`. Values
//! are in base units, bits as eighths of bytes, per cent as they are. The last digit written bounds the rounding
//! ([`Quantity::fine`]); zeros at the end of a whole number may be rounding as well ([`Quantity::coarse`]).
//!
//! **Limits.** The units are those of the claims.
//!
//! **Example.** `480 GB`: value 480e9, fine 0.5e9, coarse 5e9.

/// A number as an author wrote it, in base units (bytes, operations, per second; bits as eighths of bytes; per cent as
/// they are), with its rounding.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantity {
    text: &'static str,
    pub(super) value: f64,
    /// One unit, in base units; above 0.
    pub(super) unit_scale: f64,
    /// The unit: `Gbit/s`; empty if there is none.
    unit: &'static str,
    /// Half of the last digit written, in base units.
    pub(super) fine: f64,
    /// Half of the last digit that is not 0, in base units; at least `fine`.
    pub(super) coarse: f64,
}

/// Units, and the size of each in base units.
const UNITS: [(&str, f64); 17] = [
    ("", 1.0),
    ("%", 1.0),
    ("s", 1.0),
    ("USD", 1.0),
    ("G", 1e9),
    ("kB", 1e3),
    ("GB", 1e9),
    ("TB", 1e12),
    ("GiB", (1u64 << 30) as f64),
    ("TiB", (1u64 << 40) as f64),
    ("USD/TB", 1e-12),
    ("GB/s", 1e9),
    ("GiB/s", (1u64 << 30) as f64),
    ("Mbit/s", 1e6 / 8.0),
    ("Gbit/s", 1e9 / 8.0),
    ("M/s", 1e6),
    ("M IOPS", 1e6),
];

impl Quantity {
    /// Reads a number with its unit; `None` if it is no number, or the unit is not among [`UNITS`].
    pub(super) fn parse(text: &'static str) -> Option<Quantity> {
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+');
        let end = text.find(|c: char| !is_number(c)).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number = number.replace(',', "");
        let unit = unit.trim();

        let (_, unit_scale) = *UNITS.iter().find(|(known, _)| *known == unit)?;
        let value = number.parse::<f64>().ok()? * unit_scale;
        let [fine, coarse] = half_digits(&number).map(|half| half * unit_scale);
        Some(Quantity { text, value, unit_scale, unit, fine, coarse })
    }

    /// Prints `value` in this quantity's unit, with `more` digits after the point than the author wrote, at most 9.
    pub(super) fn write(&self, value: f64, more: usize) -> String {
        let decimals =
            self.text.split_once('.').map_or(0, |(_, behind)| behind.chars().take_while(char::is_ascii_digit).count());
        let number = grouped(value / self.unit_scale, (decimals + more).min(9));
        if self.unit.is_empty() { number } else { format!("{number} {}", self.unit) }
    }
}

/// Prints a number with commas between groups of three digits; below 0.1 with at least three significant digits.
fn grouped(value: f64, decimals: usize) -> String {
    let magnitude = value.abs();
    let least =
        if magnitude > 0.0 && magnitude < 0.1 { (2.0 - magnitude.log10().floor()).min(12.0) as usize } else { 0 };
    let text = format!("{magnitude:.*}", decimals.max(least));
    let (whole, behind) = text.split_once('.').unwrap_or((&text, ""));
    let number = plimsoll_figures::units::grouped(whole);
    let sign = if value < 0.0 { "-" } else { "" };
    if behind.is_empty() { format!("{sign}{number}") } else { format!("{sign}{number}.{behind}") }
}

/// Returns half of the last digit written, and half of the last one that is not 0, of a number without a unit.
fn half_digits(number: &str) -> [f64; 2] {
    let digits = number.trim_start_matches(['-', '+']);
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let power = |places: usize| 0.5 * 10f64.powi(i32::try_from(places).unwrap_or(i32::MAX));
    if digits.contains('.') {
        let half = 0.25 / power(behind.len());
        return [half, half];
    }
    let zeros = whole.len() - whole.trim_end_matches('0').len();
    [0.5, if zeros == whole.len() { 0.5 } else { power(zeros) }]
}

/// Returns half of the last significant digit of a figure without a text: 830000 was rounded to 10000. A measurement
/// has at least two significant digits, so 2000000 was 2.0 million.
pub(crate) fn half_digit_of(value: f64) -> f64 {
    let [_, coarse] = half_digits(&format!("{}", value.abs()));
    let of_two_digits = 0.5 * 10f64.powf(value.abs().log10().floor() - 1.0);
    coarse.min(of_two_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_unit_and_rounding() {
        let cases = [
            ("480 GB", 480e9, 0.5e9, 5e9),
            ("-36 %", -36.0, 0.5, 0.5),
            ("+41.51%", 41.51, 0.005, 0.005),
            ("1,857.96 USD/TB", 1857.96e-12, 0.005e-12, 0.005e-12),
            ("95.1 Gbit/s", 95.1e9 / 8.0, 0.05e9 / 8.0, 0.05e9 / 8.0),
            ("90 G", 90e9, 0.5e9, 5e9),
            ("2.0 M IOPS", 2e6, 0.05e6, 0.05e6),
            ("15 GiB/s", 15.0 * 1_073_741_824.0, 0.5 * 1_073_741_824.0, 0.5 * 1_073_741_824.0),
            ("880.50 USD", 880.5, 0.005, 0.005),
            ("1 kB", 1000.0, 500.0, 500.0),
            ("5", 5.0, 0.5, 0.5),
            ("0", 0.0, 0.5, 0.5),
        ];
        for (text, value, fine, coarse) in cases {
            let read = Quantity::parse(text).unwrap();
            let near = |a: f64, b: f64| (a - b).abs() <= b.abs() * 1e-9;
            assert!(near(read.value, value) && near(read.fine, fine) && near(read.coarse, coarse), "{text}: {read:?}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "GB", "1.2.3 GB", "--3", "4 GBit/s", "4 m", "4 k%"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn values_are_written_in_its_unit() {
        for (text, value, more, expected) in [
            ("95.1 Gbit/s", 95.1415e9 / 8.0, 1, "95.14 Gbit/s"),
            ("1,857.06 USD/TB", 1832.624e-12, 0, "1,832.62 USD/TB"),
            ("-36 %", -26.667, 1, "-26.7 %"),
            ("2 M IOPS", 2e6, 1, "2.0 M IOPS"),
            ("45 TB", 45e9, 0, "0.0450 TB"),
            ("5", 1234.0, 0, "1,234"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().write(value, more), expected);
        }
        assert_eq!([half_digit_of(830_000.0), half_digit_of(1.59), half_digit_of(2e6)], [5000.0, 0.005, 5e4]);
    }
}
