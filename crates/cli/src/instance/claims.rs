//! `plimsoll instance claims`.

use clap::Args;
use plimsoll_files::variant_name;
use plimsoll_measure::instance::claims::{self, Checked, ClaimsReport};

use crate::failure::{Failure, Outcome};
use crate::flags::{PageFlags, ReportFormat};
use crate::screen;

/// Recompute published claims about machines: exact, within rounding, in binary units, or wrong, and by which slip
///
/// Checks ScyllaDB's article of May 2019 about i3en.24xlarge, and its tables. Exit code 1, because some claims are
/// wrong.
#[derive(Args, Debug)]
pub(crate) struct ClaimsArguments {
    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,

    #[command(flatten)]
    page: PageFlags,
}

pub(crate) fn run(arguments: &ClaimsArguments) -> Result<Outcome, Failure> {
    let page = arguments.page.check()?;
    let report = claims::check();
    if let Some(output) = page {
        output.write(&claims::page(&report))?;
    }
    arguments.format.print(|| table(&report), &report, || claims::to_csv(&report))?;
    Ok(if report.wrong > 0 { Outcome::Finding } else { Outcome::Done })
}

/// Returns the tables of the machines, the claims, and the reasons for those that are not exact.
fn table(report: &ClaimsReport) -> String {
    let mut text = screen::answer(&claims::answer(report));
    text.push_str(&screen::wrap(&format!("{}, {}", report.source, report.date)));
    text.push('\n');
    for (at, table) in report.tables.iter().enumerate() {
        let headers = table.headers();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let title = format!("Table {}: {}; differences in per cent of {}", at + 1, table.title, table.base);
        text.push_str(&format!("\n{}\n{}\n", screen::wrap(&title), screen::table(&headers, table.cells())));
    }

    let row = |claim: &Checked| {
        vec![claim.claim.to_owned(), claim.stated.clone(), claim.computed.clone(), claim.verdict.as_str().to_owned()]
    };
    let claims = screen::table(&["claim", "stated", "computed", "verdict"], report.claims.iter().map(row).collect());
    text.push_str(&format!("\nClaims, computed again\n{claims}\n\n"));

    for claim in report.claims.iter().filter(|claim| !claim.why.is_empty()) {
        let verdict = claim.verdict.as_str();
        let slip = claim.slip.map_or_else(String::new, |slip| format!(" [{}]", variant_name(slip)));
        text.push_str(&screen::wrap(&format!("{verdict}: {}: {}{slip}.", claim.claim, claim.why)));
        text.push('\n');
    }

    text
}
