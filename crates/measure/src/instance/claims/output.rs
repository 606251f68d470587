//! Writes claims for programs and for a browser.
//!
//! **Why.** A script needs to know which claims are wrong, a reader why.
//!
//! **How.** CSV has a line for each claim; the page has the answer and a table of the claims.
//!
//! **Limits.** The figures behind the claims, machine by machine, are those of [`crate::instance::compare`].
//!
//! **Example.** `stress-ng memcpy, difference,percent,-32.85 %,-32.847 %,exact,,`

use plimsoll_files::variant_name;
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::page::{self, Section};
use plimsoll_show::table::{self, Column, Table};

use super::{Claim, ClaimsReport, Verdict};

pub fn to_csv(report: &ClaimsReport) -> String {
    let columns: &[Column<Claim>] = &[
        ("claim", |it| it.text.clone()),
        ("kind", |it| it.kind.clone()),
        ("stated", |it| it.stated.clone()),
        ("computed", |it| it.computed.clone()),
        ("verdict", |it| variant_name(it.verdict)),
        ("slip", |it| it.slip.map_or_else(String::new, variant_name)),
        ("why", |it| it.why.clone()),
    ];
    table::csv(&report.claims, columns)
}

pub fn answer(report: &ClaimsReport) -> Answer {
    let all = report.claims.len();
    let count = |verdict| report.claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (mood, verdict) = match report.wrong {
        0 => (Mood::Good, format!("all {all} claims hold")),
        wrong => (Mood::Bad, format!("{wrong} wrong of {all} claims")),
    };
    let figure = format!(
        "{} exact, {} within rounding, {} with a binary prefix",
        count(Verdict::Exact),
        count(Verdict::WithinRounding),
        count(Verdict::OtherPrefix)
    );
    Answer::new(mood, verdict, figure, "")
}

pub fn page(report: &ClaimsReport) -> String {
    let rows = report.claims.iter().map(|claim| {
        [claim.text.as_str(), &claim.stated, &claim.computed, claim.verdict.as_str(), &claim.why].map(str::to_owned)
    });
    let caption = format!("Claims: {} of {} wrong", report.wrong, report.claims.len());
    let claims = Table::new(caption, ["claim", "stated", "computed", "verdict", "why"], rows);
    let sections = [
        Section::new("Verdict", [answer(report).into()]),
        Section::new(format!("{}, {}", report.source, report.date), [claims.into()]),
    ];
    page::html("Claims, computed again", &sections)
}
