//! `cache slabs`, `cache check`: inspect the disks of a closed cache.

use clap::Args;
use plimsoll_cache_tools::slabs::SlabTable;
use plimsoll_cache_tools::{check, config};
use plimsoll_measure::tune::Observer as _;

use super::{CacheFlag, tables};
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen::{self, Phases};

/// Show how the slabs of a closed cache are used, by disk and block size
#[derive(Args, Debug)]
pub(super) struct SlabsArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// Also count slabs by how full they are, and show how scattered their free space is
    #[arg(short = 'v', long)]
    verbose: bool,

    /// Show the order in which slabs are opened instead: the emptiest first
    #[arg(long, conflicts_with = "verbose")]
    order: bool,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn slabs(arguments: &SlabsArguments) -> Result<Outcome, Failure> {
    let inspection = check::inspect(&arguments.file.cache)?;
    let paths: Vec<_> = inspection.stats.disks.iter().map(|disk| (disk.number, disk.path.clone())).collect();
    let placement = config::parse_from_file(&arguments.file.cache)?.config.placement;
    let table = SlabTable::new(&inspection.slabs, &paths, placement);
    match arguments.order {
        true => arguments.format.print(|| tables::slab_order(&table), &table, || table.order_csv())?,
        false => {
            arguments.format.print(|| tables::slabs(&table, arguments.verbose), &table, || table.to_csv())?;
        }
    }
    Ok(Outcome::Done)
}

/// Read and verify every block of a closed cache, and compare its index with its slabs
///
/// Nothing is written. Exit code 1 if anything is wrong, a missing disk included.
#[derive(Args, Debug)]
pub(super) struct CheckArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn check(arguments: &CheckArguments) -> Result<Outcome, Failure> {
    let mut bar = Phases::of("reading blocks");
    let progress = move |read: u64, all: u64| bar.on_progress(read as f64 / all.max(1) as f64);
    let checked = check::check(&arguments.file.cache, progress)?;
    checked.warnings.iter().for_each(|warning| screen::warning(warning));
    arguments.format.print(|| tables::check(&checked), &checked.to_json(), || checked.to_csv())?;
    Ok(if checked.is_sound() { Outcome::Done } else { Outcome::Finding })
}
