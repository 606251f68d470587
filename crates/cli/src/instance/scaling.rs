//! `plimsoll instance scaling`.

use std::path::Path;

use clap::Args;
use plimsoll_measure::instance::scaling::{self, FamilyReport, ScalingReport};

use crate::failure::{Failure, Outcome};
use crate::flags::{PictureFlags, ReportFormat};
use crate::screen;

/// Compare advertised with measured figures by size of a family: which scale, scale but low, or plateau
///
/// Takes a family of the table of presets (`plimsoll presets list`), a CSV with a line for each size, or cards of
/// machines of one family. Exit code 1 if a figure stays more than 10 % below the advertised one, or stops growing.
#[derive(Args, Debug)]
pub(crate) struct ScalingArguments {
    /// A family (i7i) or an instance of it, a CSV (docs/formats.md), or cards
    #[arg(value_name = "FAMILY|CSV|CARD.json", required = true)]
    families: Vec<String>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,

    #[command(flatten)]
    pictures: PictureFlags,
}

pub(crate) fn run(arguments: &ScalingArguments) -> Result<Outcome, Failure> {
    arguments.families.iter().try_for_each(|family| arguments.pictures.refuse_input(Path::new(family)))?;
    let families = scaling::families(&arguments.families).map_err(|error| Failure::Input(error.to_string()))?;
    let report = scaling::report(families);
    let charts = scaling::pictures(&report);
    let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
    let (page, pictures) = arguments.pictures.check(&names)?;
    if let Some(output) = pictures {
        for (name, charts) in &charts {
            output.write(name, "Advertised and measured by size", charts)?;
        }
    }
    if let Some(output) = page {
        output.write(&scaling::page(&report))?;
    }
    report.warnings.iter().for_each(|warning| screen::warning(warning));
    arguments.format.print(|| table(&report), &report, || scaling::to_csv(&report))?;
    Ok(if report.has_finding() { Outcome::Finding } else { Outcome::Done })
}

/// Returns a table for each figure with its verdict, family by family.
fn table(report: &ScalingReport) -> String {
    let family = |family: &FamilyReport| {
        let mut text = screen::wrap(&format!("{} ({})", family.family, family.source)) + "\n";
        for figure in &family.figures {
            let mut headers = figure.headers();
            headers[0] = "";
            let table = screen::table(&headers, figure.cells());
            let words = screen::wrap(&format!("{}: {}.", figure.title, figure.sentence));
            text.push_str(&format!("\n{}\n{table}\n{words}\n", figure.title));
        }
        text
    };
    let families: Vec<String> = report.families.iter().map(family).collect();
    format!("{}\n! more than 10 % below: two runs on the same disks differ by less.\n", families.join("\n"))
}
