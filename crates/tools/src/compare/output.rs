//! A comparison for programs: JSON and CSV.
//!
//! # Why
//! A script decides by the exit code, and shows the figures.
//!
//! # How it works
//! JSON is [`CompareReport`] itself; CSV has a line for each comparison.
//!
//! # Limits
//! What is not known is null in JSON and empty in CSV.
//!
//! # Example
//! `reads,B,iops,1000,900,-10.0000,-10.5000,-9.5000,1.2e-9,8.4e-9,worse`

use std::fmt::Write as _;

use super::CompareReport;
use crate::units::csv_field;

impl CompareReport {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain numbers and strings: cannot fail. Numbers that JSON has no name for become null.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// As CSV, with a header.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text =
            String::from("job,side,metric,base,other,change_pct,change_low_pct,change_high_pct,p,p_together,verdict\n");
        for comparison in &self.comparisons {
            let pct = |pct: Option<f64>| pct.map_or_else(String::new, |pct| format!("{pct:.4}"));
            let chance = |p: Option<f64>| p.map_or_else(String::new, |p| format!("{p:.3e}"));
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{}",
                csv_field(&comparison.job),
                comparison.side,
                csv_field(&comparison.metric),
                comparison.base,
                comparison.other,
                pct(comparison.change_pct),
                pct(comparison.change_low_pct),
                pct(comparison.change_high_pct),
                chance(comparison.p),
                chance(comparison.p_together),
                comparison.verdict.as_str(),
            );
        }
        text
    }
}
