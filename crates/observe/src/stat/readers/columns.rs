//! Names and units of iostat's columns, and the figures below them.
//!
//! # Why
//! Names and units changed over the years (`avgrq-sz` counts sectors, `areq-sz` KiB), order and selection with every
//! option. iostat prints `0.39`, in a locale `0,39`, with `--human` `617.4M` and `38.4%`. A column is found by its
//! name, never by its place.
//!
//! # How it works
//! [`find`] returns the [`Columns`] field of a name and the unit of figures without a suffix; a suffix is a unit by
//! itself, whatever the column's name. [`Figure::parse`] reads one word. `nan`, `inf` and negative numbers are figures
//! with an unknown value, as opposed to words that are no figure at all.
//!
//! # Limits
//! Known and ignored: totals (`kB_read`), `svctm`, merges of all kinds together (`rqm/s`), writes added to discards
//! (`kB_w+d/s`). A comma is a decimal one: iostat prints no separators of thousands.
//!
//! # Example
//! `617.4M` under `wkB/s` is 617.4 MiB/s: 632217.6 KiB/s.

use crate::stat::Columns;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::stat) struct Figure {
    /// The value without the suffix; `None` if it is not known or cannot be right.
    pub number: Option<f64>,
    /// `%`, or a size: `B`, `k`, `M`, `G`, `T`, `P`.
    pub suffix: Option<char>,
    pub decimals: usize,
}

impl Figure {
    /// Parses a word; `None` if it is no figure.
    pub(in crate::stat) fn parse(word: &str) -> Option<Figure> {
        let unsigned = word.strip_prefix('-').unwrap_or(word);
        if matches!(unsigned, "nan" | "inf") {
            return Some(Figure { number: None, suffix: None, decimals: 0 });
        }
        let suffix =
            unsigned.chars().next_back().filter(|last| matches!(last, '%' | 'B' | 'k' | 'M' | 'G' | 'T' | 'P'));
        let digits =
            unsigned.strip_suffix(['%', 'B', 'k', 'M', 'G', 'T', 'P']).unwrap_or(unsigned).replacen(',', ".", 1);
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number: f64 = digits.parse().ok().filter(|_| is_number)?;
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let is_right = number.is_finite() && (number == 0.0 || unsigned.len() == word.len());
        Some(Figure { number: is_right.then_some(number), suffix, decimals })
    }
}

/// The unit of a figure without a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// A rate, a time, a length of a queue.
    Plain,
    Percent,
    Kib,
    Mib,
    /// Of 512 bytes.
    Sectors,
}

type Field = fn(&mut Columns) -> &mut Option<f64>;

/// A known column; `None` for an ignored one.
#[derive(Clone, Copy, Debug)]
pub(in crate::stat) struct Column(Option<(Field, Unit)>);

impl Column {
    /// A column whose figures are ignored.
    pub(in crate::stat) const IGNORED: Column = Column(None);

    /// Sets the column's field, in its unit. Returns whether the figure is known, and has a suffix that the column
    /// takes.
    pub(in crate::stat) fn set(&self, columns: &mut Columns, figure: Figure) -> bool {
        let Some((field, unit)) = self.0 else { return figure.number.is_some() };
        let factor = match (unit, figure.suffix) {
            (Unit::Plain | Unit::Percent | Unit::Kib, None) | (Unit::Percent, Some('%')) => 1.0,
            (Unit::Mib, None) => 1024.0,
            (Unit::Sectors, None) => 0.5,
            (Unit::Kib | Unit::Mib | Unit::Sectors, Some(suffix)) => match "BkMGTP".find(suffix) {
                Some(power) => 1024.0_f64.powi(power as i32 - 1),
                None => return false,
            },
            _ => return false,
        };
        *field(columns) = figure.number.map(|number| number * factor).filter(|number| number.is_finite());
        figure.number.is_some()
    }
}

/// Returns the column of a name in a header, with or without the percent sign that JSON leaves out.
pub(in crate::stat) fn find(name: &str) -> Option<Column> {
    use Unit::{Kib, Mib, Percent, Plain, Sectors};
    macro_rules! column {
        ($field:ident, $unit:expr) => {
            Some(Column(Some((|columns| &mut columns.$field, $unit))))
        };
    }

    match name {
        "r/s" => column!(reads_per_s, Plain),
        "w/s" => column!(writes_per_s, Plain),
        "d/s" => column!(discards_per_s, Plain),
        "f/s" => column!(flushes_per_s, Plain),
        "rkB/s" | "kB_read/s" => column!(read_kib_per_s, Kib),
        "wkB/s" | "kB_wrtn/s" => column!(write_kib_per_s, Kib),
        "dkB/s" | "kB_dscd/s" => column!(discard_kib_per_s, Kib),
        "rMB/s" | "MB_read/s" => column!(read_kib_per_s, Mib),
        "wMB/s" | "MB_wrtn/s" => column!(write_kib_per_s, Mib),
        "dMB/s" | "MB_dscd/s" => column!(discard_kib_per_s, Mib),
        "rsec/s" | "Blk_read/s" => column!(read_kib_per_s, Sectors),
        "wsec/s" | "Blk_wrtn/s" => column!(write_kib_per_s, Sectors),
        "dsec/s" | "Blk_dscd/s" => column!(discard_kib_per_s, Sectors),
        "rrqm/s" => column!(read_merges_per_s, Plain),
        "wrqm/s" => column!(write_merges_per_s, Plain),
        "drqm/s" => column!(discard_merges_per_s, Plain),
        "%rrqm" | "rrqm" => column!(read_merged_percent, Percent),
        "%wrqm" | "wrqm" => column!(write_merged_percent, Percent),
        "%drqm" | "drqm" => column!(discard_merged_percent, Percent),
        "r_await" => column!(read_await_ms, Plain),
        "w_await" => column!(write_await_ms, Plain),
        "d_await" => column!(discard_await_ms, Plain),
        "f_await" => column!(flush_await_ms, Plain),
        "rareq-sz" => column!(read_size_kib, Kib),
        "wareq-sz" => column!(write_size_kib, Kib),
        "dareq-sz" => column!(discard_size_kib, Kib),
        "aqu-sz" | "avgqu-sz" => column!(queue, Plain),
        "%util" | "util" => column!(util_percent, Percent),
        "await" => column!(await_ms, Plain),
        "areq-sz" => column!(size_kib, Kib),
        "avgrq-sz" => column!(size_kib, Sectors),
        "tps" => column!(transfers_per_s, Plain),
        "kB/s" => column!(all_kib_per_s, Kib),
        "MB/s" => column!(all_kib_per_s, Mib),
        "sec/s" | "Blk/s" => column!(all_kib_per_s, Sectors),
        "svctm" | "rqm/s" | "%rqm" | "kB_read" | "kB_wrtn" | "kB_dscd" | "kB_w+d" | "kB_w+d/s" | "MB_read"
        | "MB_wrtn" | "MB_dscd" | "MB_w+d" | "MB_w+d/s" | "Blk_read" | "Blk_wrtn" | "Blk_dscd" | "Blk_w+d"
        | "Blk_w+d/s" => Some(Column::IGNORED),
        _ => None,
    }
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
            ("nan", unknown(0)),
            ("-nan", unknown(0)),
            ("inf", unknown(0)),
            ("-1.00", unknown(2)),
            ("1,234.5", None),
            ("sda", None),
            ("8k8", None),
            ("M", None),
            ("1e5", None),
            (".5", None),
            ("1.2.3", None),
            ("%", None),
            ("", None),
        ] {
            assert_eq!(Figure::parse(word), expect, "{word}");
        }
    }

    #[test]
    fn units_follow_the_name_and_suffixes_say_their_own() {
        for (name, word, expect) in [
            ("wkB/s", "617.4M", Some(632_217.6)),
            ("wkB/s", "591.9M", Some(606_105.6)),
            ("wkB/s", "12.5", Some(12.5)),
            ("wMB/s", "1073.75", Some(1_099_520.0)),
            ("wMB/s", "0.5k", Some(0.5)),
            ("wsec/s", "16", Some(8.0)),
            ("Blk_wrtn/s", "3", Some(1.5)),
            ("kB_wrtn/s", "1.5G", Some(1_572_864.0)),
            ("kB_wrtn/s", "512B", Some(0.5)),
            ("wkB/s", "nan", None),
        ] {
            let mut columns = Columns::default();
            let figure = Figure::parse(word).expect(word);
            assert_eq!(find(name).expect(name).set(&mut columns, figure), expect.is_some(), "{name} {word}");
            assert_eq!(columns.write_kib_per_s, expect, "{name} {word}");
        }

        let mut columns = Columns::default();
        for (name, word) in [("r/s", "1.5k"), ("wkB/s", "5%"), ("r_await", "2%")] {
            assert!(!find(name).expect(name).set(&mut columns, Figure::parse(word).expect(word)), "{name} {word}");
        }
        assert!(find("svctm").expect("known").set(&mut columns, Figure::parse("0.06").expect("a figure")));
        assert_eq!(columns, Columns::default());
        assert!(find("Device").is_none());
    }
}
