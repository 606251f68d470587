//! `cache bench`: measures the speed of a cache, how evenly it uses its disks, and whether every byte is right.

use std::time::Duration;

use clap::Args;
use plimsoll_cache::Placement;
use plimsoll_cache_tools::bench::{self, BenchError, BenchOptions, Mix};
use plimsoll_cache_tools::config::CacheFile;
use plimsoll_cache_tools::session::{Session, SessionError};
use plimsoll_figures::units::parse_count;
use plimsoll_measure::load::Stop;
use plimsoll_measure::tune::Observer as _;
use plimsoll_show::page;

use super::{CacheFlag, tables};
use crate::failure::{Failure, Outcome};
use crate::flags::{PictureFlags, ReportFormat, size, time};
use crate::screen::Phases;
use crate::{interrupt, screen};

const PICTURE: &str = "cache-bench";

/// Measure a cache with generated blocks; blocks that it holds may be evicted
///
/// Blocks are incompressible and a function of their key. A look-up that misses inserts the block. Exit code 1 if a
/// byte or a counter is wrong.
#[derive(Args, Debug)]
pub(super) struct BenchArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// Only inserts [default without --read-pct]
    #[arg(long, conflicts_with = "read_pct")]
    write_only: bool,

    /// Look-ups in per cent of the operations; the others are inserts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    read_pct: Option<u8>,

    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "8k", value_parser = parse_block_bytes)]
    block_size: u32,

    /// Number of keys [default: each insert has its own; with --read-pct 1000000]
    #[arg(long, value_name = "N", value_parser = parse_keys)]
    keys: Option<u64>,

    /// Draw keys by Zipf's law with this theta [default: uniformly]
    #[arg(long, value_name = "THETA")]
    zipf: Option<f64>,

    /// Bytes in flight
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "concurrency")]
    outstanding: Option<u64>,

    /// Operations in flight [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    concurrency: Option<u32>,

    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,

    /// Operations a second, started on time even if others are unfinished [default: as many as possible]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,

    /// Fill the cache before the measurement; all keys together must be larger than it
    #[arg(long)]
    fill: bool,

    /// Compare every byte of every hit
    #[arg(long)]
    verify: bool,

    /// Seed of keys and values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How the slab for the next block is chosen, instead of as in CACHE.yaml: seed, discriminant, load
    #[arg(long, value_name = "NAME", value_parser = parse_placement)]
    placement: Option<Placement>,

    /// Time between checkpoints, instead of that in CACHE.yaml
    #[arg(long, value_name = "TIME", value_parser = time)]
    checkpoint_interval: Option<Duration>,

    /// Free space to keep in per cent, instead of that in CACHE.yaml
    #[arg(long, value_name = "PCT")]
    target_free_blocks_pct: Option<f64>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,

    #[command(flatten)]
    pictures: PictureFlags,
}

fn parse_block_bytes(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(size(text)?).ok();
    let bytes = bytes.filter(|bytes| (1..=plimsoll_cache::MAX_BLOCK_BYTES).contains(bytes));
    bytes.ok_or_else(|| "expected 1 byte to 16MiB".to_owned())
}

fn parse_keys(text: &str) -> Result<u64, String> {
    let keys = parse_count(text).map_err(|error| error.to_string())?;
    Some(keys).filter(|keys| *keys > 0).ok_or_else(|| "expected at least 1".to_owned())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=1e9).contains(rate));
    rate.ok_or_else(|| "expected a number of operations a second, above 0".to_owned())
}

fn parse_placement(text: &str) -> Result<Placement, String> {
    let found = Placement::ALL.iter().find(|(name, _)| *name == text).map(|(_, placement)| *placement);
    found.ok_or_else(|| "expected seed, discriminant or load".to_owned())
}

impl BenchArguments {
    fn options(&self, threads: u16) -> BenchOptions {
        let options = BenchOptions {
            mix: self.read_pct.map_or(Mix::WriteOnly, Mix::ReadPct),
            block_bytes: self.block_size,
            keys: self.keys.or((self.read_pct.is_some() || self.zipf.is_some()).then_some(1_000_000)),
            zipf: self.zipf,
            concurrency: self.concurrency.unwrap_or(256),
            rate_per_s: self.rate,
            duration: self.duration,
            fill: self.fill,
            verify: self.verify,
            seed: self.seed,
            threads,
        };
        match self.outstanding {
            Some(bytes) => options.with_outstanding_bytes(bytes),
            None => options,
        }
    }

    fn change(&self, file: &mut CacheFile) {
        let config = &mut file.config;
        config.placement = self.placement.unwrap_or(config.placement);
        config.checkpoint_interval = self.checkpoint_interval.unwrap_or(config.checkpoint_interval);
        config.target_free_blocks_pct = self.target_free_blocks_pct.unwrap_or(config.target_free_blocks_pct);
        config.in_flight_bytes = self.outstanding.unwrap_or(0).max(config.in_flight_bytes);
    }
}

pub(super) fn run(arguments: &BenchArguments) -> Result<Outcome, Failure> {
    let (page, pictures) = arguments.pictures.check(&[PICTURE])?;
    let stop = Stop::default();
    interrupt::stop_on_signal(&stop)?;
    let session = Session::open(&arguments.file.cache, |file| arguments.change(file))?;
    session.cache().findings().iter().for_each(|finding| screen::warning(finding));

    let options = arguments.options(session.file().shards);
    let mut bar = Phases::of("");
    let mut progress = |part: f64, is_filling: bool| {
        bar.rename(if is_filling { "filling" } else { "measuring" }.to_owned());
        bar.on_progress(part);
    };
    let measured = bench::run(&session, &options, &|| stop.is_asked(), &mut progress);
    drop(bar);
    let placement = session.file().config.placement;
    session.close()?;

    let mut report = measured.map_err(|error| match error {
        BenchError::Cache(error) => SessionError::Cache(error).into(),
        other => Failure::Input(other.to_string()),
    })?;
    let named = Placement::ALL.iter().find(|(_, other)| *other == placement);
    report.placement = named.map_or("", |(name, _)| name).to_owned();

    arguments.format.print(|| tables::bench(&report), &report, || report.to_csv())?;
    let title = format!("Cache {}", arguments.file.cache.display());
    if let Some(output) = page {
        output.write(&page::html(&title, &report.sections()))?;
    }
    if let Some(output) = pictures {
        output.write(PICTURE, &title, &report.charts())?;
    }

    Ok(match () {
        () if report.is_interrupted => Outcome::Interrupted,
        () if report.is_wrong() => Outcome::Finding,
        () => Outcome::Done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_checked() {
        for (text, is_good) in [("8k", true), ("16MiB", true), ("17MiB", false), ("0", false), ("x", false)] {
            assert_eq!(parse_block_bytes(text).is_ok(), is_good, "{text}");
        }
        for (text, is_good) in [("1", true), ("1_000", true), ("0", false), ("-1", false)] {
            assert_eq!(parse_keys(text).is_ok(), is_good, "{text}");
        }
        for (text, is_good) in [("1", true), ("0.5", true), ("0", false), ("NaN", false)] {
            assert_eq!(parse_rate(text).is_ok(), is_good, "{text}");
        }
        assert_eq!(parse_placement("seed"), Ok(Placement::Seed));
        assert!(parse_placement("sead").is_err());
    }
}
