//! `plimsoll trace diff`: compares two traces of one load, the pattern that differs first.

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll_figures::stats::ALPHA;
use plimsoll_figures::units::format_duration_ns;
use plimsoll_files::variant_name;
use plimsoll_observe::trace::diff::{Compared, DiffReport, ReasonParts, Side, SideDone, diff};
use plimsoll_show::table::Column;

use super::{further, percent};
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen;

/// Most patterns, and most rows of figures, in a table.
const PATTERNS_SHOWN: usize = 8;
const ROWS_SHOWN: usize = 60;

/// Compare two traces of the same load: differences beyond chance
///
/// Shows dispatch gaps first, then their reasons, then each class's stages. Exit code 1 if anything is worse in the
/// second trace.
#[derive(Args, Debug)]
pub(crate) struct DiffArguments {
    /// The first trace, the base
    #[arg(value_name = "A")]
    base: PathBuf,

    /// The second trace
    #[arg(value_name = "B")]
    other: PathBuf,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn run(arguments: &DiffArguments) -> Result<Outcome, Failure> {
    if [&arguments.base, &arguments.other].iter().all(|path| path.as_os_str() == "-") {
        let message = "both traces are standard input, which can be read once: name a file for one of them";
        return Err(Failure::Input(message.to_owned()));
    }
    let report = diff(&side(&arguments.base)?, &side(&arguments.other)?);
    report.unmatched.iter().for_each(|sentence| screen::warning(sentence));
    arguments.format.print(|| table(&report), &report, || report.to_csv())?;
    Ok(if report.is_worse { Outcome::Finding } else { Outcome::Done })
}

fn side(path: &Path) -> Result<SideDone, Failure> {
    let mut side = Side::default();
    let trace = super::read(path, &mut |item| side.visit(&item))?;
    Ok(side.finish(&trace))
}

fn table(report: &DiffReport) -> String {
    let mut text = String::new();
    if report.patterns.is_empty() {
        text.push_str("Nothing differs by more than chance explains.\n");
    }
    text.push_str(&screen::paragraphs(report.patterns.iter().take(PATTERNS_SHOWN)));

    if !report.reasons.is_empty() {
        const COLUMNS: &[Column<ReasonParts>] = &[
            ("in the way", |it| if it.reason == "empty" { "no work".to_owned() } else { it.reason.clone() }),
            ("disk", |it| it.disk.clone()),
            ("A", |it| percent(it.base_part)),
            ("B", |it| percent(it.other_part)),
        ];
        text.push_str(&format!("\n{}\n", screen::columns(&report.reasons, COLUMNS)));
    }

    let headers = ["", "stage", "figure", "A", "B", "change", "p", "verdict"];
    let rows = report.figures.iter().take(ROWS_SHOWN).map(row).collect();
    let further = further(report.figures.len(), ROWS_SHOWN, "figures: --format json or csv shows them");
    text.push_str(&format!("\n{}{further}\n", screen::table(&headers, rows)));

    let rule = format!(
        "p: how often chance makes such a difference, all taken together. better, worse: shorter or longer by more \
         than 1 %, and p below {ALPHA}. same: within 1 %. open: no evidence."
    );
    text.push_str(&format!("\n{}\n", screen::wrap(&rule)));
    text
}

fn row(it: &Compared) -> Vec<String> {
    let name = if it.class.is_empty() { it.disk.clone() } else { it.class.clone() };
    let ns = |value: f64| format_duration_ns(value.round() as u64);
    let p = match it.p {
        Some(p) if p < 0.0001 => "<0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
        None => String::new(),
    };
    let change = it.change_pct.map_or_else(|| "n/a".to_owned(), |pct| format!("{pct:+.1} %"));
    vec![
        name,
        it.stage.to_owned(),
        it.figure.to_owned(),
        ns(it.base_ns),
        ns(it.other_ns),
        change,
        p,
        variant_name(it.verdict),
    ]
}
