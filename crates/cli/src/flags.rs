//! Flags that several commands share, and their checks.

mod amount;
mod format;
mod names;
mod page;

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use plimsoll::DiskMode;
use plimsoll::backend::choose::BackendKind;
use plimsoll::core::{ControlConfig, LatencyGoal};
use plimsoll::sys::pin::allowed_cpus;
use plimsoll_files::io_properties::IoProperties;
use plimsoll_files::setup::{DiskChoice, ModelChoice, parse_capacity_scale, parse_latency_goal};
use plimsoll_files::{disk, io_properties};

use crate::failure::Failure;
use crate::screen;

pub(crate) use amount::{nanos, size, time, time_within};
pub(crate) use format::{BriefFormat, DiskFormat, ReportFormat, TestFormat};
pub(crate) use names::{TuneBackend, backend, form, model, tune_backend};
pub(crate) use page::{PageFlags, PictureFlags};

/// Reads the path of an input; `-` stands for stdin.
pub(crate) fn input() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| if path.as_os_str() == "-" { PathBuf::from("/dev/stdin") } else { path })
}

/// What limits the requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// The disk model.
    Scheduled,
    /// A number of requests in flight (--max-io-requests).
    Depth,
    /// Nothing.
    Drain,
}

/// The disk and its scheduler.
#[derive(Args, Debug)]
#[command(next_help_heading = "Disk and scheduler")]
pub(crate) struct DiskFlags {
    /// Seastar's io-properties file, with the four figures of a disk
    #[arg(long, visible_alias = "io-properties-file", value_name = "FILE")]
    pub(crate) io_properties: Option<PathBuf>,

    /// A disk model: a disk file, or the name of a preset (i4i.2xlarge, 4x983-dct: see `plimsoll presets`)
    #[arg(long, value_name = "FILE|PRESET", conflicts_with = "io_properties")]
    pub(crate) disk: Option<String>,

    /// Cost form in place of that of --io-properties or --disk [default: theirs, else knee]; or old-defaults: Seastar's
    /// defaults until 2025, without io-properties
    #[arg(long, value_name = "FORM", value_parser = model())]
    pub(crate) model: Option<ModelChoice>,

    /// What limits the requests in flight
    #[arg(long, value_enum, default_value_t = ModeName::Scheduled)]
    pub(crate) mode: ModeName,

    /// With --mode depth: most requests in flight, divided over the I/O queues [default: that of --disk]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_io_requests: Option<u32>,

    /// I/O queues [default: one for each shard; with --mode depth that of --disk]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) num_io_queues: Option<u16>,

    /// Longest device time of one piece of a request in milliseconds, or `none`: no splitting [default: 0.75]
    #[arg(long, visible_aliases = ["io-latency-goal-ms", "io-latency-goal"], value_name = "MS|none",
          value_parser = parse_latency_goal)]
    pub(crate) latency_goal: Option<LatencyGoal>,

    /// How far the capacity may follow the disk, as parts of the model: MIN:MAX, or `off` [default: 0.05:1, never more
    /// than the model promises, unless the io-properties say so]
    #[arg(long, value_name = "MIN:MAX|off", value_parser = parse_capacity_scale)]
    pub(crate) capacity_scale: Option<ControlConfig>,

    /// Part of the disk's full throughput that the closed loop keeps, 0.5 to 0.99: more throughput, more latency
    /// [default: 0.9]
    #[arg(long, value_name = "PART", value_parser = parse_throughput_goal)]
    pub(crate) throughput_goal: Option<f64>,
}

fn parse_throughput_goal(text: &str) -> Result<f64, String> {
    let goal = text.parse::<f64>().ok().filter(|goal| (0.5..=0.99).contains(goal));
    goal.ok_or_else(|| "give a part of the full throughput from 0.5 to 0.99".to_owned())
}

/// Reads the io-properties at `path`. Prints warnings to stderr.
pub(crate) fn read_properties(path: &Path) -> Result<IoProperties, Failure> {
    let properties = io_properties::parse_from_file(path)?;
    properties.warnings.iter().for_each(|warning| screen::note(&warning.to_string()));
    Ok(properties)
}

impl DiskFlags {
    /// Reads the files that the flags name, for `shards` shards. Prints warnings to stderr.
    pub(crate) fn choice(&self, shards: u16) -> Result<DiskChoice, Failure> {
        if self.model == Some(ModelChoice::OldDefaults) && (self.io_properties.is_some() || self.disk.is_some()) {
            let message =
                "--model old-defaults is for a disk of which nothing is known: leave out --io-properties and --disk";
            return Err(Failure::Input(message.to_owned()));
        }

        let properties = self.io_properties.as_deref().map(read_properties).transpose()?;
        let disk = self.disk.as_deref().map(|name| disk::find(name, Path::new(""))).transpose()?;
        let of_disk = disk.as_ref().filter(|_| self.mode == ModeName::Depth);
        let mode = match (self.mode, self.max_io_requests.or(of_disk.and_then(|disk| disk.max_io_requests))) {
            (ModeName::Depth, None) => {
                let message =
                    "--mode depth needs --max-io-requests N, how many may be in flight, or a --disk that says it";
                return Err(Failure::Input(message.into()));
            }
            (ModeName::Depth, Some(max_io_requests)) => DiskMode::Depth { max_io_requests },
            (_, Some(_)) => {
                return Err(Failure::Input("--max-io-requests is for --mode depth: add it, or leave this out".into()));
            }
            (ModeName::Scheduled, None) => DiskMode::Scheduled,
            (ModeName::Drain, None) => DiskMode::Drain,
        };

        // The disk's number of queues was chosen for another number of shards.
        let of_file = of_disk.and_then(|disk| disk.num_io_queues).map(|queues| queues.min(shards));
        let num_io_queues = self.num_io_queues.or(of_file);
        Ok(DiskChoice {
            properties,
            disk,
            model: self.model,
            mode,
            latency_goal: self.latency_goal,
            num_io_queues,
            control: self.capacity_scale,
            throughput_goal: self.throughput_goal,
        })
    }

    /// Prints warnings about the choice to stderr.
    pub(crate) fn warn(&self, choice: &DiskChoice, shards: u16) {
        if self.model == Some(ModelChoice::OldDefaults) {
            screen::warning(
                "the disk is scheduled as Seastar did until July 2025 where nothing was configured: at most 8.59 GB/s and \
                 16.8 M operations a second",
            );
        } else if choice.is_unlimited() {
            screen::warning(
                "no --io-properties or --disk: the disk is unlimited, shares hold only while requests wait for the \
                 backend",
            );
        }

        if let DiskMode::Depth { max_io_requests } = choice.mode {
            let queues = u32::from(choice.num_io_queues.unwrap_or(shards));
            if max_io_requests < 4 * queues {
                screen::warning(&format!(
                    "{max_io_requests} requests over {queues} I/O queues leave fewer than 4 each, too few to use a disk's \
                     parallelism: lower --num-io-queues"
                ));
            }
        }
    }
}

/// Threads and backend.
#[derive(Args, Debug)]
#[command(next_help_heading = "Shards")]
pub(crate) struct ShardFlags {
    /// Shards: threads, each pinned to a CPU
    #[arg(long, visible_alias = "smp", short = 'c', default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) shards: u16,

    /// How requests reach the kernel [default: the best that this machine allows]
    #[arg(long, value_name = "NAME", value_parser = backend())]
    pub(crate) backend: Option<BackendKind>,
}

/// Refuses more shards than this process has CPUs.
pub(crate) fn check_shards(shards: u16) -> Result<(), Failure> {
    let cpus = allowed_cpus().map_err(|e| Failure::Machine(format!("cannot read the CPU affinity: {e}")))?.len();
    if usize::from(shards) > cpus {
        return Err(Failure::Input(format!(
            "--shards {shards}: this process may use {cpus} CPUs, and each shard owns one; ask for at most {cpus}"
        )));
    }
    Ok(())
}
