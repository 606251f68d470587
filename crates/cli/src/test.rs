//! `plimsoll test`: run the jobs of an io_tester job file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plimsoll_tools::config::{jobs, sched_groups};
use plimsoll_tools::load::Control;
use plimsoll_tools::report::TestReport;
use plimsoll_tools::setup::DiskChoice;
use plimsoll_tools::test::{Storage, TestError, TestOptions};
use plimsoll_tools::units::{
    format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal, parse_duration_ns,
    parse_size_bytes,
};

use crate::failure::{Failure, Outcome};
use crate::flags::{DiskFlags, Format, ShardFlags};
use crate::{interrupt, screen};

/// Run the jobs of an io_tester job file on a directory, a file or a device
///
/// All jobs run at the same time, each in its class, through the scheduler. In a directory each job gets a scratch
/// file on each shard, filled before the run and removed after it.
#[derive(Args, Debug)]
pub(crate) struct TestArguments {
    /// Job file, in io_tester's YAML
    #[arg(value_name = "CONF")]
    conf: PathBuf,

    /// Directory, file or block device to work on
    #[arg(long, default_value = ".", value_name = "PATH")]
    storage: PathBuf,

    /// How long to run: a number of seconds, or with a unit (500ms, 2m)
    #[arg(long, default_value = "10", value_name = "TIME", value_parser = parse_seconds)]
    duration: u64,

    /// How long to run before anything counts
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = parse_seconds)]
    warmup: u64,

    /// Groups and classes that jobs may join
    #[arg(long, value_name = "FILE")]
    sched_groups: Option<PathBuf>,

    /// Let jobs write over the file that --storage names
    #[arg(long)]
    overwrite: bool,

    /// Let jobs write over the block device that --storage names
    #[arg(long)]
    destructive: bool,

    /// Leave the scratch files
    #[arg(long)]
    keep_files: bool,

    /// Write at most this much, preparing the files included: jobs that write end there
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_write: Option<u64>,

    /// Seed of the positions and gaps
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    #[command(flatten)]
    disk: DiskFlags,

    #[command(flatten)]
    shards: ShardFlags,
}

pub(crate) fn parse_seconds(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return if (0.0..=1e8).contains(&seconds) {
            Ok((seconds * 1e9) as u64)
        } else {
            Err("0 to 100000000 s".into())
        };
    }
    parse_duration_ns(text).map_err(|error| format!("{}: {}", error.message, error.help))
}

pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_size_bytes(text).map_err(|error| format!("{}: {}", error.message, error.help))
}

pub(crate) fn run(arguments: &TestArguments) -> Result<Outcome, Failure> {
    let (options, choice) = checked(arguments)?;
    let control = Control::default();
    interrupt::stop_on_signal(&control)?;
    let mut bar = None;
    let mut warned = false;
    let result = plimsoll_tools::test::run(&options, &control, &mut |what, expected_ns| {
        // Not before everything was accepted: an error stands alone.
        if !warned {
            arguments.disk.warn(&choice, options.shards);
            warned = true;
        }
        bar = None;
        bar = Some(screen::TimedBar::start(what, expected_ns.map(Duration::from_nanos)));
    });
    drop(bar);
    let scratch = if arguments.keep_files { "scratch files are kept" } else { "scratch files are removed" };
    let report = match result {
        Err(error @ TestError::Interrupted) => {
            screen::note(&format!("{error}; {scratch}"));
            return Ok(Outcome::Interrupted);
        }
        other => TestReport::of(&other?),
    };
    let text = match arguments.format {
        Format::Table => table(&report),
        Format::Json => report.to_json(),
        Format::Csv => report.to_csv(),
        Format::Yaml => report.to_yaml(),
    };
    screen::print(&text)?;
    for job in report.jobs.iter().filter(|job| job.errors > 0) {
        let first = job.first_error.as_deref().unwrap_or("unknown");
        screen::error(&format!("job `{}`: {} requests failed, the first: {first}", job.name, job.errors));
    }
    if report.interrupted {
        screen::note(&format!("interrupted: the figures are of the time until then; {scratch}"));
        return Ok(Outcome::Interrupted);
    }
    if report.max_write_reached {
        let written = format_bytes_binary(report.written_bytes);
        screen::note(&format!("jobs that write ended early: --max-write was reached ({written} written)"));
    }
    let has_failed = report.jobs.iter().any(|job| job.errors > 0);
    Ok(if has_failed { Outcome::Finding } else { Outcome::Done })
}

/// From flags to options: everything that can be refused is, before anything is touched.
fn checked(arguments: &TestArguments) -> Result<(TestOptions, DiskChoice), Failure> {
    arguments.shards.check()?;
    let groups = match &arguments.sched_groups {
        Some(path) => sched_groups::parse_from_file(path)?,
        None => sched_groups::SchedGroups::default(),
    };
    let jobs = jobs::parse_from_file(&arguments.conf, &groups)?;
    jobs.validate(u32::from(arguments.shards.shards))?;
    jobs.warnings.iter().for_each(|warning| screen::note(&warning.to_string()));
    let storage = Storage::of(&arguments.storage)?;
    let choice = arguments.disk.choice()?;
    let disk = choice.setup(storage.path()).map_err(|error| match &arguments.disk.io_properties {
        Some(path) => Failure::Input(format!("{}: {error}", path.display())),
        None => error.into(),
    })?;
    if arguments.duration == 0 {
        return Err(Failure::Input("--duration 0: give the time to measure, such as 10 or 500ms".into()));
    }
    let options = TestOptions {
        jobs,
        groups,
        storage,
        overwrite: arguments.overwrite,
        destructive: arguments.destructive,
        keep_files: arguments.keep_files,
        shards: arguments.shards.shards,
        disk,
        backend: arguments.shards.backend,
        warmup_ns: arguments.warmup,
        duration_ns: arguments.duration,
        max_write_bytes: arguments.max_write,
        seed: arguments.seed,
    };
    Ok((options, choice))
}

fn table(report: &TestReport) -> String {
    let us = |us: f64| format_duration_ns((us * 1e3) as u64);
    let rows = report.jobs.iter().map(|job| {
        vec![
            job.name.clone(),
            job.kind.to_owned(),
            job.shares.to_string(),
            format_bytes_binary(job.request_bytes),
            format_iops(job.iops),
            format_throughput_decimal(job.throughput_bytes_per_s),
            us(job.latency.p50_us),
            us(job.latency.p99_us),
            us(job.latency.p99_9_us),
            format!("{:.1}", job.device_depth.average),
        ]
    });
    let mut headers = vec!["job", "type", "shares", "size", "IOPS", "rate", "p50", "p99", "p99.9", "depth"];
    let mut rows: Vec<Vec<String>> = rows.collect();
    // Columns of zeros would take the width that the others need.
    let splits: Vec<u64> = report.jobs.iter().map(|job| job.io_queue.map_or(0, |q| q.split)).collect();
    let errors: Vec<u64> = report.jobs.iter().map(|job| job.errors).collect();
    for (name, counts) in [("splits", splits), ("errors", errors)] {
        if counts.iter().any(|count| *count > 0) {
            headers.push(name);
            rows.iter_mut().zip(counts).for_each(|(row, count)| row.push(count.to_string()));
        }
    }
    let mut text = screen::table(&headers, rows);
    let total: f64 = report.jobs.iter().map(|j| j.throughput_bytes_per_s).sum();
    let iops: f64 = report.jobs.iter().map(|j| j.iops).sum();
    let cpu = report.cpu_s_per_million_requests.map_or_else(String::new, |s| format!(", {s:.2} CPU s per million"));
    text.push_str(&format!(
        "\n\nTotal {} IOPS, {} in {:.2} s on {} shard(s), backend {} ({}){cpu}\n",
        format_iops(iops),
        format_throughput_decimal(total),
        report.elapsed_s,
        report.shards,
        report.backend,
        report.backend_reason
    ));
    text.push_str("depth: mean number of pieces of the class in the device");
    text.push_str(if headers.contains(&"splits") { "; splits: requests sent in several pieces\n" } else { "\n" });
    text
}
