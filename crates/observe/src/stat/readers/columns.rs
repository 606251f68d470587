//! Names and units of iostat's columns.
//!
//! # Why
//! Names and units changed over the years (`avgrq-sz` counts sectors, `areq-sz` KiB), order and selection with every
//! option. A column is found by its name, never by its place.
//!
//! # How it works
//! [`find`] returns the [`Columns`] field of a name and the unit of figures without a suffix; a suffix of `--human` is
//! a unit by itself, whatever the column's name.
//!
//! # Limits
//! Known and ignored: totals (`kB_read`), `svctm`, merges of all kinds together (`rqm/s`), writes added to discards
//! (`kB_w+d/s`).
//!
//! # Example
//! `617.4M` under `wkB/s` is 617.4 MiB/s: 632217.6 KiB/s.

use super::figure::Figure;
use crate::stat::Columns;

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

/// The field for a column's figures.
type Field = fn(&mut Columns) -> &mut Option<f64>;

/// A known column.
#[derive(Clone, Copy, Debug)]
pub(in crate::stat) struct Column {
    /// `None` for an ignored column.
    field: Option<(Field, Unit)>,
}

impl Column {
    /// A column whose figures are ignored.
    pub(in crate::stat) const IGNORED: Column = Column { field: None };

    /// Sets the column's field, in its unit. Returns `false` if the column does not take the suffix.
    pub(in crate::stat) fn set(&self, columns: &mut Columns, figure: Figure) -> bool {
        let Some((field, unit)) = self.field else { return true };
        let factor = match (unit, figure.suffix) {
            (Unit::Plain | Unit::Percent | Unit::Kib, None) | (Unit::Percent, Some('%')) => 1.0,
            (Unit::Mib, None) => 1024.0,
            (Unit::Sectors, None) => 0.5,
            (Unit::Kib | Unit::Mib | Unit::Sectors, Some(suffix)) => match kib(suffix) {
                Some(kib) => kib,
                None => return false,
            },
            _ => return false,
        };
        *field(columns) = figure.number.map(|number| number * factor).filter(|number| number.is_finite());
        true
    }
}

/// Returns the KiB that a suffix stands for.
fn kib(suffix: char) -> Option<f64> {
    let power = match suffix {
        'B' => -1,
        'k' => 0,
        'M' => 1,
        'G' => 2,
        'T' => 3,
        'P' => 4,
        _ => return None,
    };
    Some(1024.0_f64.powi(power))
}

/// Returns the column of a name in a header, with or without the percent sign that JSON leaves out.
pub(in crate::stat) fn find(name: &str) -> Option<Column> {
    use Unit::{Kib, Mib, Percent, Plain, Sectors};
    macro_rules! column {
        ($field:ident, $unit:expr) => {
            Some(Column { field: Some((|columns| &mut columns.$field, $unit)) })
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
    use super::super::figure;
    use super::*;

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
            let figure = figure::parse(word).expect(word);
            assert!(find(name).expect(name).set(&mut columns, figure), "{name} {word}");
            assert_eq!(columns.write_kib_per_s, expect, "{name} {word}");
        }
        let mut columns = Columns::default();
        for (name, word) in [("r/s", "1.5k"), ("wkB/s", "5%"), ("r_await", "2%")] {
            assert!(!find(name).expect(name).set(&mut columns, figure::parse(word).expect(word)), "{name} {word}");
        }
        assert!(find("svctm").expect("known").set(&mut columns, figure::parse("0.06").expect("a figure")));
        assert_eq!(columns, Columns::default());
        assert!(find("Device").is_none());
    }
}
