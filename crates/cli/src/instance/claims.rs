//! `plimsoll instance claims`.

use clap::Args;
use plimsoll_files::variant_name;
use plimsoll_measure::instance::claims::{self, Claim, ClaimsReport};
use plimsoll_show::table::Column;

use crate::failure::{Failure, Outcome};
use crate::flags::{PageFlags, ReportFormat};
use crate::screen;

/// Check published claims about machines: exact, within rounding, in binary units, or wrong, and by which slip
///
/// Checks ScyllaDB's article of May 2019 about i3en.24xlarge. Exit code 1, because some claims are wrong. `plimsoll
/// instance compare` has the figures of its machines side by side.
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
    let report = claims::report();
    if let Some(output) = page {
        output.write(&claims::page(&report))?;
    }
    arguments.format.print(|| table(&report), &report, || claims::to_csv(&report))?;
    Ok(if report.wrong > 0 { Outcome::Finding } else { Outcome::Done })
}

/// Returns the claims, and the reasons for those that are not exact.
fn table(report: &ClaimsReport) -> String {
    let mut text = screen::answer(&claims::answer(report));
    text.push_str(&screen::paragraphs([format!("{}, {}", report.source, report.date)]));
    const COLUMNS: &[Column<Claim>] = &[
        ("claim", |it| it.text.clone()),
        ("stated", |it| it.stated.clone()),
        ("computed", |it| it.computed.clone()),
        ("verdict", |it| it.verdict.as_str().to_owned()),
    ];
    text.push_str(&format!("\nClaims, computed again\n{}\n\n", screen::columns(&report.claims, COLUMNS)));

    let reasons = report.claims.iter().filter(|claim| !claim.why.is_empty()).map(|claim| {
        let slip = claim.slip.map_or_else(String::new, |slip| format!(" [{}]", variant_name(slip)));
        format!("{}: {}: {}{slip}.", claim.verdict.as_str(), claim.text, claim.why)
    });
    text + &screen::paragraphs(reasons)
}
