//! Checked claims for programs and for a browser.
//!
//! **Why.** A script wants to know what is wrong, a reader also why.
//!
//! **How.** JSON is a list of [`ClaimsReport`]s, one for each file; CSV has a line for each claim, the page a section
//! for each file.
//!
//! **Limits.** CSV has the claims only, not the tables.
//!
//! **Example.** `claims.yaml,7,50 % more cores,percent,50 %,33.3 %,wrong,other-base,...`

use std::fmt::Write as _;

use super::super::variant_name;
use super::{ClaimsReport, Table};
use crate::page::{self, Block, Section};
use crate::units::csv_field;

/// As JSON: a list.
#[must_use]
pub fn to_json(reports: &[ClaimsReport]) -> String {
    // Plain numbers and strings: cannot fail. Numbers that JSON has no name for become null.
    serde_json::to_string_pretty(reports).unwrap_or_default() + "\n"
}

/// As CSV, with a header; a line for each claim.
#[must_use]
pub fn to_csv(reports: &[ClaimsReport]) -> String {
    let mut text = String::from("file,line,claim,kind,stated,computed,verdict,slip,why\n");
    for report in reports {
        for claim in &report.claims {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{}",
                csv_field(&report.file),
                claim.line,
                csv_field(&claim.claim),
                claim.kind,
                csv_field(&claim.stated),
                csv_field(&claim.computed),
                variant_name(claim.verdict),
                claim.slip.unwrap_or_default(),
                csv_field(&claim.why),
            );
        }
    }
    text
}

impl Table {
    /// Names of the columns: the figure, its unit, the base, then each other machine and its difference.
    #[must_use]
    pub fn headers(&self) -> Vec<String> {
        let others = self.machines.iter().skip(1).flat_map(|name| [name.clone(), format!("to {}", self.base)]);
        [String::new(), "unit".to_owned(), self.base.clone()].into_iter().chain(others).collect()
    }

    /// The rows to [`Table::headers`].
    #[must_use]
    pub fn cells(&self) -> Vec<Vec<String>> {
        let row = |row: &super::Row| {
            let base = row.cells(0).into_iter().take(1);
            let others = (1..self.machines.len()).flat_map(|at| row.cells(at));
            [row.title.clone(), row.unit.clone()].into_iter().chain(base).chain(others).collect()
        };
        self.rows.iter().map(row).collect()
    }
}

/// Everything as one HTML page.
#[must_use]
pub fn page(reports: &[ClaimsReport]) -> String {
    let table = |table: &Table| {
        let caption = format!("{}; differences in per cent of {}", table.title, table.base);
        Block::Table(page::Table { caption, headers: table.headers(), rows: table.cells() })
    };
    let section = |report: &ClaimsReport| {
        let row = |claim: &super::Checked| {
            let cells = [&claim.claim, &claim.stated, &claim.computed, claim.verdict.as_str(), &claim.why];
            cells.map(str::to_owned).to_vec()
        };
        let claims = page::Table {
            caption: format!("Claims: {} of {} wrong", report.wrong, report.claims.len()),
            headers: ["claim", "stated", "computed", "verdict", "why"].map(str::to_owned).to_vec(),
            rows: report.claims.iter().map(row).collect(),
        };
        let mut blocks = vec![Block::Text(format!("From {}.", report.file)), Block::Table(claims)];
        blocks.extend(report.tables.iter().map(table));
        Section { heading: format!("{}, {}", report.source, report.date), blocks }
    };
    page::html("Claims, computed again", &reports.iter().map(section).collect::<Vec<_>>())
}
