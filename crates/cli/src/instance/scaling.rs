//! `plimsoll instance scaling`.

use std::path::PathBuf;

use clap::Args;
use plimsoll_tools::instance::scaling::{self, FamilyReport, ScalingError, ScalingReport};

use crate::failure::{Failure, Outcome};
use crate::flags::SimFormat;
use crate::output::{Output, Pictures};
use crate::screen;

/// Advertised against measured for each size of a family: what scales, what scales but low, what plateaus
///
/// A family of the table of presets (`plimsoll presets list`), a CSV with a line for each size, or cards of machines of
/// one family. Exit code 1 if a figure stays more than 10 % below what is advertised, or stops growing.
#[derive(Args, Debug)]
pub(crate) struct ScalingArguments {
    /// A family (i7i) or an instance of it, a CSV (docs/formats.md), or cards
    #[arg(value_name = "FAMILY|CSV|CARD.json", required = true)]
    families: Vec<String>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = SimFormat::Table)]
    format: SimFormat,

    /// Also write everything as one HTML page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Also write a picture (SVG) for each family into this directory
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,

    /// Write over existing files
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &ScalingArguments) -> Result<Outcome, Failure> {
    let page = arguments.page.as_deref().map(|path| Output::check(path, arguments.force, "--page")).transpose()?;
    let report = scaling::report(scaling::families(&arguments.families)?);
    if let Some(directory) = arguments.pictures.as_deref() {
        let pictures = scaling::pictures(&report);
        let names: Vec<&str> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        let output = Pictures::check(directory, arguments.force, &names)?;
        for (name, charts) in &pictures {
            output.write(name, "Advertised and measured by size", charts)?;
        }
    }
    if let Some(output) = page {
        output.write(&scaling::page(&report))?;
    }
    report.warnings.iter().for_each(|warning| screen::warning(warning));
    let text = match arguments.format {
        SimFormat::Table => table(&report),
        SimFormat::Json => scaling::to_json(&report),
        SimFormat::Csv => scaling::to_csv(&report),
    };
    screen::print(&text)?;
    Ok(if report.has_finding() { Outcome::Finding } else { Outcome::Done })
}

impl From<ScalingError> for Failure {
    fn from(error: ScalingError) -> Failure {
        Failure::Input(error.to_string())
    }
}

/// A table for each figure with what is to be said of it, family by family.
fn table(report: &ScalingReport) -> String {
    let family = |family: &FamilyReport| {
        let mut text = screen::wrap(&format!("{} ({})", family.family, family.source)) + "\n";
        for figure in &family.figures {
            let headers = ["", "vCPUs", "measured", "advertised", "difference"];
            let table = screen::table(&headers, figure.cells());
            let words = screen::wrap(&format!("{}: {}.", figure.title, figure.sentence));
            text.push_str(&format!("\n{}\n{table}\n{words}\n", figure.title));
        }
        text
    };
    let families: Vec<String> = report.families.iter().map(family).collect();
    format!("{}\n! more than 10 % below: two runs on the same disks differ by less.\n", families.join("\n"))
}
