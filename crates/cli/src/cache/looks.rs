//! `cache status`, `iostat`, `hits`: show the snapshots of the process that has a cache open; `status` also reads a
//! closed one.

use std::time::{Duration, Instant};

use clap::Args;
use plimsoll_cache_tools::hits::HitTable;
use plimsoll_cache_tools::iostat::{CSV_HEADER, Interval};
use plimsoll_cache_tools::live;
use plimsoll_cache_tools::status;

use super::{CacheFlag, tables};
use crate::failure::{Failure, Outcome, as_json_line};
use crate::flags::{ReportFormat, time_within};
use crate::interrupt::Interrupt;
use crate::screen;

/// Show the state of a cache's disks, and its hits, inserts and evictions since it was opened
#[derive(Args, Debug)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn status(arguments: &StatusArguments) -> Result<Outcome, Failure> {
    let status = status::read(&arguments.file.cache)?;
    arguments.format.print(|| tables::status(&status), &status, || status.to_csv())?;
    Ok(Outcome::Done)
}

/// Show the I/O of a cache in use, by kind
///
/// Without an interval, shows the means since the cache was opened. With one, shows these first, then a report each
/// interval. Times are mean milliseconds, queueing included.
#[derive(Args, Debug)]
pub(super) struct IostatArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// Time between reports: seconds, or with a unit (the cache publishes every second)
    #[arg(value_name = "INTERVAL",
          value_parser = time_within(Duration::from_secs(1), Duration::from_secs(86_400)))]
    every: Option<Duration>,

    /// Number of reports [default: no end]
    #[arg(value_name = "COUNT", requires = "every", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Also show the operations in flight
    #[arg(short = 'a', long)]
    active: bool,

    /// Show a row for each device
    #[arg(short = 'd', long)]
    devices: bool,

    /// Show histograms of the latencies, by powers of two
    #[arg(short = 'l', long)]
    latencies: bool,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn iostat(arguments: &IostatArguments) -> Result<Outcome, Failure> {
    let interrupt = Interrupt::on_signal()?;
    let count = if arguments.every.is_some() { arguments.count.unwrap_or(u64::MAX) } else { 1 };
    let mut before = None;

    let mut shown = 0;
    loop {
        let now = live::read(&arguments.file.cache)?;
        let interval = Interval::between(before.as_ref(), &now);
        if before.is_some() && interval.is_since_open {
            screen::note("the cache was opened again: counters begin anew");
        }
        show(&interval, arguments, shown == 0)?;

        before = Some(now);
        shown += 1;
        if shown >= count {
            return Ok(Outcome::Done);
        }

        if interrupt.wait(Instant::now() + arguments.every.unwrap_or(Duration::from_secs(1))) {
            return Ok(Outcome::Interrupted);
        }
    }
}

fn show(interval: &Interval, arguments: &IostatArguments, is_first: bool) -> Result<(), Failure> {
    let text = match arguments.format {
        ReportFormat::Table => {
            let mut text = tables::iostat(interval, arguments.devices, arguments.active, is_first);
            if arguments.latencies {
                text.push_str(&tables::latencies(interval, arguments.devices));
            }
            text
        }
        // One line for each report, so that a program can read each report at once.
        ReportFormat::Json => as_json_line(interval)?,
        ReportFormat::Csv => {
            let header = if is_first { CSV_HEADER } else { "" };
            format!("{header}{}", interval.to_csv(arguments.devices))
        }
    };
    Ok(screen::print(&text)?)
}

/// Show how many look-ups caches of other sizes would have answered, larger ones included
#[derive(Args, Debug)]
pub(super) struct HitsArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// Most rows to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rows: u16,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn hits(arguments: &HitsArguments) -> Result<Outcome, Failure> {
    let live = live::read(&arguments.file.cache)?;
    let table = HitTable::new(&live.cache, usize::from(arguments.rows));
    arguments.format.print(|| tables::hits(&table), &table, || table.to_csv())?;
    Ok(Outcome::Done)
}
