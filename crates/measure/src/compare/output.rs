//! A comparison for programs: JSON and CSV.
//!
//! **Why.** Scripts decide by the exit code and print the figures.
//!
//! **How.** JSON is [`CompareReport`] itself; CSV has a line for each comparison.
//!
//! **Limits.** Unknown values are null in JSON and empty in CSV.
//!
//! **Example.** `reads,B,iops,1000,900,-10.0000,-10.5000,-9.5000,1.2e-9,8.4e-9,worse`

use plimsoll_files::variant_name;
use plimsoll_show::table::{Column, csv, fixed, known};

use super::{CompareReport, Comparison};

const COLUMNS: [Column<Comparison>; 11] = [
    ("job", |it| it.job.clone()),
    ("side", |it| it.side.to_string()),
    ("metric", |it| it.metric.clone()),
    ("base", |it| it.base.to_string()),
    ("other", |it| it.other.to_string()),
    ("change_pct", |it| fixed(it.change_pct, 4)),
    ("change_low_pct", |it| fixed(it.change_low_pct, 4)),
    ("change_high_pct", |it| fixed(it.change_high_pct, 4)),
    ("p", |it| known(it.p.map(|p| format!("{p:.3e}")))),
    ("p_together", |it| known(it.p_together.map(|p| format!("{p:.3e}")))),
    ("verdict", |it| variant_name(it.verdict)),
];

impl CompareReport {
    pub fn to_csv(&self) -> String {
        csv(&self.comparisons, &COLUMNS)
    }
}
