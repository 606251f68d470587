//! Writes checked claims for programs and for a browser.
//!
//! **Why.** A script needs to know which claims are wrong, a reader also why.
//!
//! **How.** JSON is a list of [`ClaimsReport`]s, one for each file; CSV has a line for each claim, the page a section
//! for each file.
//!
//! **Limits.** CSV has the claims only, not the tables.
//!
//! **Example.** `claims.yaml,7,50 % more cores,percent,50 %,33.3 %,wrong,other-base,...`

use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::table::{self, Column};

use super::super::variant_name;
use super::{Checked, ClaimsReport, Table};

/// Returns CSV with a header and a line for each claim.
#[must_use]
pub fn to_csv(reports: &[ClaimsReport]) -> String {
    let columns: &[Column<(&ClaimsReport, &Checked)>] = &[
        ("file", |(report, _)| report.file.clone()),
        ("line", |(_, claim)| claim.line.to_string()),
        ("claim", |(_, claim)| claim.claim.clone()),
        ("kind", |(_, claim)| claim.kind.to_string()),
        ("stated", |(_, claim)| claim.stated.clone()),
        ("computed", |(_, claim)| claim.computed.clone()),
        ("verdict", |(_, claim)| variant_name(claim.verdict)),
        ("slip", |(_, claim)| claim.slip.unwrap_or_default().to_string()),
        ("why", |(_, claim)| claim.why.clone()),
    ];
    let rows = reports.iter().flat_map(|report| report.claims.iter().map(move |claim| (report, claim)));
    table::csv(&rows.collect::<Vec<_>>(), columns)
}

impl Table {
    /// Returns the column names: the figure, its unit, the base, then each other machine and its difference.
    #[must_use]
    pub fn headers(&self) -> Vec<String> {
        let others = self.machines.iter().skip(1).flat_map(|name| [name.clone(), format!("to {}", self.base)]);
        [String::new(), "unit".to_owned(), self.base.clone()].into_iter().chain(others).collect()
    }

    /// Returns the rows under [`Table::headers`].
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

/// Returns all reports as one HTML page.
#[must_use]
pub fn page(reports: &[ClaimsReport]) -> String {
    let table = |table: &Table| {
        let caption = format!("{}; differences in per cent of {}", table.title, table.base);
        Block::Table(table::Table::new(caption, table.headers(), table.cells()))
    };
    let section = |report: &ClaimsReport| {
        let rows = report.claims.iter().map(|claim| {
            [&claim.claim, &claim.stated, &claim.computed, claim.verdict.as_str(), &claim.why].map(str::to_owned)
        });
        let caption = format!("Claims: {} of {} wrong", report.wrong, report.claims.len());
        let claims = table::Table::new(caption, ["claim", "stated", "computed", "verdict", "why"], rows);
        let mut blocks = vec![Block::Text(format!("From {}.", report.file)), Block::Table(claims)];
        blocks.extend(report.tables.iter().map(table));
        Section { heading: format!("{}, {}", report.source, report.date), blocks }
    };
    page::html("Claims, computed again", &reports.iter().map(section).collect::<Vec<_>>())
}
