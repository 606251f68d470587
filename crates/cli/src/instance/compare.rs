//! `plimsoll instance compare`: machines side by side, their prices, and which suits which need.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plimsoll_measure::instance::compare::needs::{Need, Recommendation};
use plimsoll_measure::instance::compare::{CompareOptions, Comparison, MARKS, compare};
use plimsoll_measure::instance::find::find_all;
use plimsoll_measure::instance::prices;
use plimsoll_show::page;

use crate::failure::{Failure, Outcome};
use crate::flags::{PictureFlags, ReportFormat};
use crate::screen;

/// Most machines in one table beside the base.
const OTHERS_PER_TABLE: usize = 3;

const NAME_WIDTH: usize = 20;

const PICTURE: &str = "ratios";

/// Compare machines: ratios to a base, their causes, prices, and which machine suits a need
///
/// Takes cards that `plimsoll instance card` wrote, published machines and instances of the table of presets, in any
/// mixture. Ratios have 95 % intervals where samples exist; without evidence no winner is named. Exit code 1 if --need
/// finds no machine to recommend.
#[derive(Args, Debug)]
pub(crate) struct CompareArguments {
    /// Cards (files) or names of instances
    #[arg(value_name = "CARD|NAME", num_args = 1.., required = true)]
    machines: Vec<String>,

    /// The machine that ratios are relative to [default: the first]
    #[arg(long, value_name = "CARD|NAME")]
    base: Option<String>,

    /// Prices of instances, as docs/formats.md describes them; repeatable
    #[arg(long, value_name = "FILE")]
    prices: Vec<PathBuf>,

    /// Resource that limits the load: recommend a machine for it, by price if there are prices
    #[arg(long, value_enum, value_name = "NEED")]
    need: Option<NeedName>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,

    #[command(flatten)]
    pictures: PictureFlags,
}

/// A resource that limits a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NeedName {
    /// Processors.
    Cpu,
    /// Bytes on local disks.
    Capacity,
    /// Random reads a second.
    ReadIops,
    /// Bytes written a second.
    WriteBandwidth,
}

impl From<NeedName> for Need {
    fn from(name: NeedName) -> Need {
        match name {
            NeedName::Cpu => Need::Cpu,
            NeedName::Capacity => Need::Capacity,
            NeedName::ReadIops => Need::ReadIops,
            NeedName::WriteBandwidth => Need::WriteBandwidth,
        }
    }
}

pub(crate) fn run(arguments: &CompareArguments) -> Result<Outcome, Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::Input(error.to_string());
    let machines = find_all(&arguments.machines).map_err(|error| input(&error))?;
    let prices = prices::read_files(&arguments.prices)?;
    let mut inputs = arguments.machines.iter().map(Path::new).chain(arguments.prices.iter().map(PathBuf::as_path));
    inputs.try_for_each(|input| arguments.pictures.refuse_input(input))?;
    let (page, pictures) = arguments.pictures.check(&[PICTURE])?;
    let options = CompareOptions {
        base: arguments.base.as_deref(),
        prices: prices.as_ref(),
        need: arguments.need.map(Need::from),
    };

    let comparison = compare(&machines, &options).map_err(|error| input(&error))?;
    comparison.warnings.iter().for_each(|warning| screen::warning(warning));

    if let Some(page) = page {
        let (title, sections) = comparison.page();
        page.write(&page::html(&title, &sections))?;
    }
    if let Some(pictures) = pictures {
        pictures.write(PICTURE, &format!("Machines beside {}", comparison.base), &comparison.charts())?;
    }

    arguments.format.print(|| table(&comparison), &comparison, || comparison.to_csv())?;
    let is_undecided = comparison.recommendation.as_ref().is_some_and(|recommended| recommended.winner.is_none());
    Ok(if is_undecided { Outcome::Finding } else { Outcome::Done })
}

fn table(comparison: &Comparison) -> String {
    let recommended = comparison.recommendation.iter();
    let mut parts: Vec<String> = recommended.map(|recommended| recommendation(comparison, recommended)).collect();
    parts.push(machines(comparison));
    let others: Vec<usize> = (1..comparison.machines.len()).collect();
    for group in others.chunks(OTHERS_PER_TABLE) {
        parts.push(ratios(comparison, group));
    }
    parts.push(screen::wrap(MARKS));
    parts.extend(list("What stands out", comparison.outlier_texts()));
    let all: Vec<usize> = (0..comparison.machines.len()).collect();
    for group in all.chunks(OTHERS_PER_TABLE + 1) {
        parts.push(economics(comparison, group));
    }
    parts.extend(list("What is missing", comparison.missing_texts()));
    parts.join("\n\n")
}

/// Returns a heading and an entry for each text, or `None` without texts.
fn list(heading: &str, texts: Vec<String>) -> Option<String> {
    let entries = screen::paragraphs(texts.iter().map(|text| format!("- {text}")));
    (!entries.is_empty()).then(|| format!("{heading}\n{}", entries.trim_end()))
}

/// Returns a line for each machine with the source of its figures.
fn machines(comparison: &Comparison) -> String {
    let line = |machine: &plimsoll_measure::instance::compare::Machine| {
        let role = if machine.label == comparison.base { " (base)" } else { "" };
        let origin = &machine.origin;
        let preset = machine.from_preset.as_ref().map_or_else(String::new, |fact| format!("; {fact}"));
        screen::wrap(&format!("{}{role}: {} ({}){preset}", machine.label, origin.source, origin.date))
    };
    comparison.machines.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the table of the base's figures and the ratios of `others`.
fn ratios(comparison: &Comparison, others: &[usize]) -> String {
    let names: Vec<String> = others.iter().map(|at| name(comparison, *at)).collect();
    let base = name(comparison, 0);
    let headers: Vec<&str> = ["", base.as_str()].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut rows = Vec::new();
    for row in &comparison.figures {
        let cells: Vec<_> = others.iter().filter_map(|at| row.cells.get(*at)).collect();
        let Some(base) = row.cells.first() else { continue };
        if base.value.is_none() && cells.iter().all(|cell| cell.value.is_none()) {
            continue;
        }
        let of_base = Comparison::value_text(row, base);
        let shown = cells.iter().map(|cell| match (base.value, cell.value) {
            // Without a base value there is no ratio; show the figure itself.
            (None, Some(_)) => Comparison::value_text(row, cell),
            _ => Comparison::ratio_text(cell),
        });
        rows.push([row.titled(), of_base].into_iter().chain(shown).collect());
    }
    format!("Ratios to {}\n{}", comparison.base, screen::table(&headers, rows))
}

/// Returns the table of amounts per core, per TB and so on.
fn economics(comparison: &Comparison, columns: &[usize]) -> String {
    let names: Vec<String> = columns.iter().map(|at| name(comparison, *at)).collect();
    let heading = match &comparison.currency {
        Some(currency) => format!("Balance and prices, in {currency} a year"),
        None => "Balance (no prices: give some with --prices)".to_owned(),
    };
    let headers: Vec<&str> = std::iter::once("").chain(names.iter().map(String::as_str)).collect();
    let row = |row: &plimsoll_measure::instance::economics::AmountRow| {
        let shown = |at: &usize| {
            row.cells.get(*at).map(|cell| match cell.value {
                Some(_) => cell.shown.clone(),
                None if cell.shown == "no price" => cell.shown.clone(),
                None => "missing".to_owned(),
            })
        };
        std::iter::once(row.title.to_owned()).chain(columns.iter().filter_map(shown)).collect()
    };
    let rows = comparison.economics.iter().map(row).collect();
    format!("{heading}\n{}", screen::table(&headers, rows))
}

fn recommendation(comparison: &Comparison, recommended: &Recommendation) -> String {
    let unit = match (&comparison.currency, recommended.by_price) {
        (Some(currency), true) => format!("{currency} a year per {}", recommended.price_unit),
        _ => String::new(),
    };
    let ranked = recommended.ranking.iter().filter(|ranked| ranked.unranked.is_none()).map(|ranked| {
        let price = ranked.price_per_unit_year.map_or_else(String::new, plimsoll_measure::instance::economics::money);
        vec![ranked.label.clone(), ranked.shown.clone(), price]
    });
    let lines = comparison.recommendation_lines(recommended);
    let table = screen::table(&["", recommended.measure.as_str(), unit.as_str()], ranked.collect());
    screen::paragraphs(lines) + &table
}

/// Returns the name of a machine, short enough for a column.
fn name(comparison: &Comparison, at: usize) -> String {
    let label = comparison.machines.get(at).map_or("", |machine| machine.label.as_str());
    if label.chars().count() <= NAME_WIDTH {
        return label.to_owned();
    }
    label.chars().take(NAME_WIDTH - 1).chain(['\u{2026}']).collect()
}
