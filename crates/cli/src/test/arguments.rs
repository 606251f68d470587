//! Arguments of `plimsoll test`, and their conversion to a checked [`Situation`].

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plimsoll_figures::units::format_duration_ns;
use plimsoll_files::jobs::JobFile;
use plimsoll_files::{fio, job_reader, keys, sched_groups, yaml};
use plimsoll_measure::experiment::Situation;
use plimsoll_measure::experiment::find_rate::{Figure, Goal};
use plimsoll_measure::experiment::sweep::{Axis, Key};
use plimsoll_measure::load::replay::Speed;
use plimsoll_measure::load::{SteadyCriterion, SteadyStop, Watch};
use plimsoll_measure::test::{Storage, TestOptions};

use crate::failure::Failure;
use crate::flags::{DiskFlags, PictureFlags, ShardFlags, TestFormat, check_shards, nanos, size, time};
use crate::screen;

const DURATION_NS: u64 = 10_000_000_000;
/// Length of a run that ends when its jobs have done their work, in nanoseconds: longer than any clock.
const WITHOUT_END_NS: u64 = u64::MAX / 4;
/// Default length of the window of `--ss` in nanoseconds.
const STEADY_WINDOW_NS: u64 = 10_000_000_000;
/// Intervals of a run over time, unless they would be shorter than [`INTERVAL_MIN_NS`].
const INTERVALS: u64 = 200;
const INTERVAL_MIN_NS: u64 = 100_000_000;

/// Flags that say what to run, or where. They conflict with --examine, which runs nothing.
const WORKLOAD_FLAGS: [&str; 34] = keys![
    conf storage duration warmup sched_groups overwrite destructive keep_files max_write sweep find_rate matrix
    data_size dual rbd ss ss_window pictures page trace replay speed force io_properties disk model mode max_io_requests
    num_io_queues latency_goal capacity_scale throughput_goal shards backend
];

/// Run the jobs of an io_tester or fio job file on a directory, a file or a device
///
/// All jobs run at the same time, each in its class, through the scheduler. In a directory each job gets a scratch
/// file on each shard, filled before the run and removed after it.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("experiment").args(["sweep", "find_rate", "matrix", "dual", "ss"])))]
#[command(group(clap::ArgGroup::new("sized").args(["matrix", "replay"])))]
pub(crate) struct TestArguments {
    /// Job file: io_tester's YAML, or fio's (recognized by .fio, .ini, or its first line)
    #[arg(value_name = "CONF", required_unless_present_any = ["matrix", "rbd", "examine", "replay"])]
    pub(super) conf: Option<PathBuf>,

    /// Directory, file or block device to work on [default: that of a fio job file, else the working directory]
    #[arg(long, value_name = "PATH")]
    pub(super) storage: Option<PathBuf>,

    /// How long to run: seconds, or with a unit (500ms, 2m) [default: that of a fio job file, else 10]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) duration: Option<Duration>,

    /// How long to run before requests count [default: that of a fio job file, else 0]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) warmup: Option<Duration>,

    /// Groups and classes that jobs may join
    #[arg(long, value_name = "FILE")]
    pub(super) sched_groups: Option<PathBuf>,

    /// Let jobs overwrite the file that --storage names
    #[arg(long)]
    pub(super) overwrite: bool,

    /// Let jobs overwrite the block device that --storage names
    #[arg(long)]
    pub(super) destructive: bool,

    /// Keep the scratch files
    #[arg(long)]
    pub(super) keep_files: bool,

    /// Write at most this much, scratch files included; jobs that write end there
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub(super) max_write: Option<u64>,

    /// Seed of the positions and gaps, or of the blocks that --examine reads [default: that of a fio job file, else 1]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = TestFormat::Table)]
    pub(super) format: TestFormat,

    /// Run once for each value; if repeated, once for each combination. Keys of one job: JOB.KEY=...
    #[arg(long, value_name = "KEY=V1,V2,...", value_parser = Axis::parse, help_heading = "Experiments")]
    pub(super) sweep: Vec<Axis>,

    /// Find the highest rate that keeps a percentile of the latency (p50, p99.9) or lat_mean below a time
    #[arg(long, value_name = "[JOB.]p99=2ms", value_parser = Goal::parse, help_heading = "Experiments")]
    pub(super) find_rate: Option<Goal>,

    /// Run 1 MiB sequential and 4 KiB random reads and writes, 4096 at once; takes no job file
    #[arg(long, help_heading = "Experiments", conflicts_with = "conf")]
    pub(super) matrix: bool,

    /// Data of --matrix, scratch data in a directory or the beginning of a file or device [default: 4 GiB], or scratch
    /// data of --replay [default: what the trace uses, at most 1 GiB]
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "Experiments", requires = "sized")]
    pub(super) data_size: Option<u64>,

    /// Run the jobs once, then twice at once, and show the kernel's counters too
    #[arg(long, help_heading = "Experiments")]
    pub(super) dual: bool,

    /// Show the runs of `rbd bench` in this file of its output, beside --dual or alone
    #[arg(long, value_name = "FILE", help_heading = "Experiments",
          conflicts_with_all = ["sweep", "find_rate", "matrix", "ss"])]
    pub(super) rbd: Option<PathBuf>,

    /// Run nothing: show how compressible the blocks of a file or device are, to compare with those of jobs
    #[arg(long, value_name = "PATH", help_heading = "Real data", conflicts_with_all = WORKLOAD_FLAGS)]
    pub(super) examine: Option<PathBuf>,

    /// Block sizes that --examine measures: powers of two from 512 to 16M [default: 4k,8k,16k]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = parse_block, help_heading = "Real data",
          requires = "examine", conflicts_with_all = WORKLOAD_FLAGS)]
    pub(super) block_size: Vec<u32>,

    /// End once iops, bw or lat (or with _slope its slope) stays within this share of its mean
    #[arg(long, value_name = "iops:5%", value_parser = parse_steady, help_heading = "Experiments")]
    pub(super) ss: Option<SteadyStop>,

    /// Time for which --ss must hold [default: 10 s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Experiments", requires = "ss")]
    pub(super) ss_window: Option<Duration>,

    /// Send the requests of a trace at their recorded times: a trace of --trace or blktrace, or output of blkparse. Of
    /// CONF only the classes are used, by their names
    #[arg(long, value_name = "TRACE", help_heading = "Real data",
          conflicts_with_all = ["experiment", "rbd", "examine", "warmup"])]
    pub(super) replay: Option<PathBuf>,

    /// Speed as a multiple of the recorded one, or `max`: each request as soon as it can be sent [default: 1]
    #[arg(long, value_name = "F|max", value_parser = Speed::parse, help_heading = "Real data", requires = "replay")]
    pub(super) speed: Option<Speed>,

    #[command(flatten)]
    pub(super) pictures: PictureFlags,

    /// Record the events of every request in this file, warm-up included (for `plimsoll trace`)
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,

    #[command(flatten)]
    pub(super) disk: DiskFlags,

    #[command(flatten)]
    pub(super) shards: ShardFlags,
}

/// Reads a block length. Its users check the range.
fn parse_block(text: &str) -> Result<u32, String> {
    let bytes = size(text)?;
    u32::try_from(bytes).map_err(|_| "blocks are at most 16M long".to_owned())
}

/// Reads a limit of `--ss`: `iops:5%`, `bw_slope:0.3%`, `lat:10%`.
fn parse_steady(text: &str) -> Result<SteadyStop, String> {
    let help = "write iops, bw or lat (or iops_slope, bw_slope, lat_slope), a colon and per cent, such as iops:5%";
    let (name, limit) = text.split_once(':').ok_or(help)?;
    let (criterion, is_slope) = SteadyCriterion::named(name).ok_or(help)?;
    let limit_pct = limit.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    match limit_pct.filter(|pct| *pct > 0.0 && *pct <= 1000.0) {
        Some(limit_pct) => Ok(SteadyStop { criterion, is_slope, limit_pct, window_ns: STEADY_WINDOW_NS }),
        None => Err(help.to_owned()),
    }
}

/// The checked settings of a run.
pub(super) struct Checked {
    pub(super) situation: Situation,
    pub(super) watch: Watch,
    /// Goal of `--find-rate`, or of a fio job file.
    pub(super) goal: Option<Goal>,
    pub(super) fio: Option<fio::FioFile>,
}

/// Converts flags to options. Makes every check that is possible before files are touched.
pub(super) fn checked(arguments: &TestArguments) -> Result<Checked, Failure> {
    check_shards(arguments.shards.shards)?;
    if is_experiment(arguments) {
        check_format(arguments.format)?;
    }
    if arguments.dual && arguments.conf.is_none() {
        return Err(Failure::Input("--dual runs a job file once and twice: name one".to_owned()));
    }

    let groups = match &arguments.sched_groups {
        Some(path) => sched_groups::parse_from_file(path)?,
        None => sched_groups::SchedGroups::default(),
    };

    let shards = arguments.shards.shards;
    let (mut jobs, fio) = read_jobs(arguments, &groups)?;
    let goal = goal(arguments, fio.as_ref());
    if goal.is_some() && arguments.find_rate.is_none() && arguments.replay.is_none() {
        let search =
            |error: Failure| format!("latency_target in the job file is searched for, as by --find-rate: {error}");
        check_format(arguments.format).map_err(|error| Failure::Input(search(error)))?;
    }
    jobs.validate(u32::from(shards))?;
    jobs.warnings.iter().for_each(|warning| screen::note(&warning.to_string()));
    note_ignored(arguments, fio.as_ref(), goal.is_some());

    let named = arguments.storage.clone();
    let path = named.or_else(|| fio.as_ref()?.existing_storage()).unwrap_or_else(|| ".".into());
    let storage = Storage::of(&path)?;
    if arguments.storage.is_some() {
        jobs.move_files(storage.path(), matches!(storage, Storage::Directory(_)));
    }
    if arguments.duration.is_some() {
        jobs.jobs.iter_mut().for_each(|job| job.runtime_ns = None);
    }

    let choice = arguments.disk.choice(shards)?;
    let disk = choice.setup(storage.path()).map_err(|error| match &arguments.disk.io_properties {
        Some(path) => Failure::Input(format!("{}: {error}", path.display())),
        None => error.into(),
    })?;

    let backend = arguments.shards.backend.or_else(|| fio.as_ref()?.common.backend);
    let other_disks =
        choice.other_disks(storage.path(), &jobs.jobs, backend).map_err(|error| Failure::Input(error.to_string()))?;

    if arguments.duration == Some(Duration::ZERO) {
        return Err(Failure::Input("--duration 0: give the time to measure, such as 10 or 500ms".into()));
    }
    let duration_ns = arguments.duration.map(nanos).unwrap_or_else(|| match &fio {
        Some(file) => file.duration_ns.unwrap_or(WITHOUT_END_NS),
        None => DURATION_NS,
    });

    let options = TestOptions {
        jobs,
        groups,
        storage,
        overwrite: arguments.overwrite,
        destructive: arguments.destructive,
        keep_files: arguments.keep_files,
        shards,
        disk,
        other_disks,
        backend,
        warmup_ns: arguments.warmup.map(nanos).or_else(|| Some(fio.as_ref()?.common.ramp_ns)).unwrap_or(0),
        duration_ns,
        max_write_bytes: arguments.max_write,
        seed: arguments.seed.or_else(|| fio.as_ref()?.common.seed).unwrap_or(1),
        reused_files: None,
    };

    let watch = Watch {
        interval_ns: (duration_ns / INTERVALS).clamp(INTERVAL_MIN_NS, 10 * INTERVAL_MIN_NS),
        steady: steady(arguments, fio.as_ref())?,
    };
    Ok(Checked { situation: Situation { options, choice }, watch, goal, fio })
}

fn is_experiment(arguments: &TestArguments) -> bool {
    !arguments.sweep.is_empty() || arguments.find_rate.is_some() || arguments.matrix || arguments.dual
}

/// Prints the settings of a fio job file that have no effect beside the flags; `searches` is whether a rate is searched.
fn note_ignored(arguments: &TestArguments, fio: Option<&fio::FioFile>, searches: bool) {
    let Some(file) = fio.filter(|_| arguments.replay.is_none()) else { return };
    if file.common.latency_goal.is_some() && (is_experiment(arguments) || arguments.ss.is_some()) {
        screen::note("latency_target has no effect beside --sweep, --find-rate, --dual or --ss");
    }
    if searches
        && arguments.find_rate.is_none()
        && file.common.latency_goal.is_some_and(|goal| goal.window_ns.is_some())
    {
        screen::note("latency_window has no effect: each run of the search lasts as long as the job");
    }
    if file.common.steady.is_some() && (searches || is_experiment(arguments)) {
        screen::note("steadystate has no effect in an experiment: its runs last their whole time");
    }
}

/// Refuses io_tester's and fio's formats for experiments, which have results of their own.
pub(super) fn check_format(format: TestFormat) -> Result<(), Failure> {
    let name = match format {
        TestFormat::Table | TestFormat::Json | TestFormat::Csv => return Ok(()),
        TestFormat::Yaml => "yaml",
        TestFormat::FioJson => "fio-json",
        TestFormat::FioJsonPlus => "fio-json+",
    };
    Err(Failure::Input(format!("--format {name} is for a single run: take table, json or csv for an experiment")))
}

/// Reads the job file, io_tester's or fio's.
fn read_jobs(
    arguments: &TestArguments,
    groups: &sched_groups::SchedGroups,
) -> Result<(JobFile, Option<fio::FioFile>), Failure> {
    let Some(path) = &arguments.conf else {
        // The matrix has its own jobs, a replay has none.
        return Ok((JobFile::default(), None));
    };

    // Read the file once: it may be a pipe.
    let source = yaml::read_file(path)?;
    if !fio::looks_like_fio(path, source.text()) {
        return Ok((job_reader::parse_source(source, groups)?, None));
    }
    if arguments.sched_groups.is_some() {
        return Err(Failure::Input(
            "--sched-groups: jobs of a fio job file have a class each; leave it out".to_owned(),
        ));
    }

    let file = fio::parse_source(source)?;
    if arguments.sweep.iter().flat_map(|axis| &axis.settings).any(|setting| setting.key == Key::Shards) {
        let message =
            "--sweep shards: the jobs of a fio job file are laid on the shards before; sweep parallelism instead";
        return Err(Failure::Input(message.to_owned()));
    }
    Ok((file.jobs_for(arguments.shards.shards), Some(file)))
}

/// Returns the criterion of `--ss`, or of fio's `steadystate`.
fn steady(arguments: &TestArguments, fio: Option<&fio::FioFile>) -> Result<Option<SteadyStop>, Failure> {
    if let Some(stop) = arguments.ss {
        return Ok(Some(SteadyStop { window_ns: arguments.ss_window.map_or(stop.window_ns, nanos), ..stop }));
    }
    let Some(state) = fio.and_then(|file| file.common.steady) else { return Ok(None) };
    if !state.is_percent || state.limit <= 0.0 {
        let message = "steadystate: give its limit in per cent of the mean and above 0, such as iops:5%";
        return Err(Failure::Input(message.to_owned()));
    }
    if state.ramp_ns > 0 {
        screen::note("steadystate_ramp_time has no effect: the warm-up (ramp_time) is left out already");
    }
    let fio::SteadyState { criterion, is_slope, limit: limit_pct, window_ns, .. } = state;
    Ok(Some(SteadyStop { criterion, is_slope, limit_pct, window_ns: window_ns.max(1) }))
}

/// Returns the goal of `--find-rate`, or of fio's `latency_target` if no other experiment is requested.
fn goal(arguments: &TestArguments, fio: Option<&fio::FioFile>) -> Option<Goal> {
    if arguments.find_rate.is_some() || !arguments.sweep.is_empty() || arguments.dual || arguments.ss.is_some() {
        return arguments.find_rate.clone();
    }
    let target = fio?.common.latency_goal?;
    // 100 per cent means all requests: take the slowest of 100,000 for it.
    let percent = target.percentile.clamp(1.0, 99.999);
    Some(Goal {
        job: None,
        figure: Figure::Percentile(percent),
        bound_ns: target.target_ns,
        text: format!("p{percent}={}", format_duration_ns(target.target_ns)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_states_are_read() {
        let stop = parse_steady("bw_slope:0.3%").unwrap();
        assert_eq!((stop.criterion, stop.is_slope, stop.limit_pct), (SteadyCriterion::Bandwidth, true, 0.3));
        assert!(!parse_steady("lat:10%").unwrap().is_slope);
        for bad in ["iops", "iops:5", "iops:0%", "iops:-1%", "iops:nan%", "ops:5%", "_slope:5%", ""] {
            assert!(parse_steady(bad).unwrap_err().contains("such as iops:5%"), "{bad}");
        }
    }
}
