//! The command `story`: shows one effect of the scheduler.
//!
//! # Why
//! "Reads keep their latency during writes" is a claim until it is measured on the same disk with and without the
//! scheduler.
//!
//! # How it works
//! A story ([`phases`]) runs in three ways in turn ([`record::Way`]) on databases with the same content ([`run`]), in
//! one or several [`rounds`], and is reported as a sentence, a table and a picture ([`show`]). All three ways use the
//! same disk through the same code; they differ in the mode of the scheduler and in the source of the shares, or, in
//! the story of a cold cache, in the cache ([`tier`]).
//!
//! # Limits
//! The comparison needs a disk that is slower than the processors. `bench/small-disk` makes one.
//!
//! # Example
//! `plimsoll-kv story burst /mnt/disk --io-properties io-properties.yaml`

pub mod phases;
pub mod record;
pub mod rounds;
pub mod run;
pub mod show;
pub mod spread;
pub mod tier;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_figures::units::parse_duration_ns;

use crate::failure::{Failure, tell};
use crate::interrupt::interruption;
use crate::options::DatabaseOptions;
use crate::serve::{latency_goal, memory};
use phases::Story;
use record::Way;
use rounds::Rounds;
use run::{Setting, run_way};

/// Flags of `story`.
#[derive(Clone, Debug, clap::Args)]
pub struct StoryArguments {
    /// The story
    #[arg(value_enum)]
    pub story: Story,
    /// Where its databases are made, below a directory that is removed at the end
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// The disk of DIR as `plimsoll tune -o FILE` measured it
    #[arg(long, value_name = "FILE")]
    pub io_properties: PathBuf,
    /// Device time kept in the disk at most; a disk made by small-disk answers late
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = latency_goal)]
    pub latency_goal: Duration,
    /// Length of a phase
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    pub length: Duration,
    /// Rounds of the three ways in turn; the report has medians and ranges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// Keys that each database is filled with
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub keys: u64,
    /// Memory of the server: little, so that reads reach the disk
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = memory)]
    pub memory: u64,
    /// The picture; without it story-NAME.svg
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Format of the result
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// A form of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A sentence and tables
    Text,
    /// All that the tables have, and figures over time
    Json,
}

fn length(text: &str) -> Result<Duration, String> {
    let ns = parse_duration_ns(text).map_err(|error| error.to_string())?;
    let length = Duration::from_nanos(ns);
    if length < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(length) }
}

/// Runs the story in all ways and rounds, and reports it.
///
/// # Errors
/// See [`Failure`].
pub async fn story(arguments: &StoryArguments) -> Result<(), Failure> {
    let scratch = Scratch::create(&arguments.dir)?;
    let setting = Setting {
        story: arguments.story,
        database: DatabaseOptions {
            io_properties: Some(arguments.io_properties.clone()),
            latency_goal: Some(arguments.latency_goal),
            memory_bytes: arguments.memory,
            ..DatabaseOptions::new(&scratch.0)
        },
        keys: arguments.keys,
        length: arguments.length,
    };

    let mut ways = arguments.story.ways().map(|way| Rounds { way, records: Vec::new() });
    let interrupted = interruption("ending: what was measured follows")?;

    let (begun, turns) = (Instant::now(), arguments.rounds as usize * ways.len());
    for turn in 0..turns {
        let (round, place) = (turn / ways.len(), turn % ways.len());
        tell(progress(arguments, ways[place].way, turn, turns, begun.elapsed()));

        let record = run_way(&setting, ways[place].way, &interrupted).await?;
        // A record that was cut short counts only in the first round.
        if !*interrupted.borrow() || (round == 0 && !record.phases.is_empty()) {
            ways[place].records.push(record);
        }
        if *interrupted.borrow() {
            break;
        }
    }

    let is_interrupted = *interrupted.borrow();
    let ways: Vec<Rounds> = ways.into_iter().filter(|way| !way.records.is_empty()).collect();
    if ways.is_empty() {
        return Err(Failure::Interrupted("interrupted before anything was measured".to_owned()));
    }

    match arguments.format {
        Format::Text => {
            println!("{}", show::sentence(arguments.story, &ways));
            println!("{}", show::table(&ways));
        }
        Format::Json => println!("{:#}", show::json(arguments.story, &ways, is_interrupted)),
    }

    let name = || PathBuf::from(format!("story-{}.svg", arguments.story.name()));
    let path = arguments.svg.clone().unwrap_or_else(name);
    std::fs::write(&path, show::picture(arguments.story, &ways))
        .map_err(|error| Failure::machine(format_args!("cannot write {}", path.display()), error))?;
    tell(format_args!("picture: {}", path.display()));

    if is_interrupted {
        let rounds: usize = ways.iter().map(|way| way.records.len()).sum();
        return Err(Failure::Interrupted(format!("interrupted: told is what {rounds} of {turns} turns measured")));
    }
    Ok(())
}

/// Returns the progress line: the way and round of this turn, and the time left if further turns take as long as those
/// before.
fn progress(arguments: &StoryArguments, way: Way, turn: usize, turns: usize, elapsed: Duration) -> String {
    let (name, ways) = (arguments.story.name(), turns / arguments.rounds as usize);
    let mut line = format!("{name}: {}, round {} of {}", way.name(), turn / ways + 1, arguments.rounds);
    if turn > 0 {
        let rest = elapsed.mul_f64((turns - turn) as f64 / turn as f64);
        line.push_str(&format!(" (turn {} of {turns}, some {:.0} s to go)", turn + 1, rest.as_secs_f64()));
    }
    line
}

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn create(below: &std::path::Path) -> Result<Scratch, Failure> {
        let path = below.join(format!("plimsoll-kv-story-{}", std::process::id()));
        let made = std::fs::create_dir(&path);
        made.map_err(|error| Failure::Input(format!("cannot make {}: {error}", path.display())))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tell(format_args!("cannot remove {}: {error}", self.0.display()));
        }
    }
}
