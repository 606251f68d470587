//! `plimsoll tune`: measure the disk under a directory and write io-properties.yaml.

use std::path::PathBuf;

use clap::Args;
use plimsoll::backend::choose::BackendKind;
use plimsoll::sys::pin::allowed_cpus;
use plimsoll_tools::config::io_properties;
use plimsoll_tools::load::Control;
use plimsoll_tools::tune::{Figure, TuneOptions, TuneReport, Unit, measure};
use plimsoll_tools::units::{format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal};

use crate::failure::{Failure, Outcome};
use crate::flags::TuneFormat;
use crate::test::{parse_bytes, parse_seconds};
use crate::{interrupt, screen};

/// Measure the disk under a directory: IOPS and bandwidth, for reads and writes
///
/// Writes scratch files into the directory and removes them. The result is Seastar's io-properties.yaml, read by Seastar and by
/// every plimsoll command.
#[derive(Args, Debug)]
pub(crate) struct TuneArguments {
    /// Directory on the disk to measure
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Write io-properties.yaml here (`-`: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write over an existing output file
    #[arg(long)]
    force: bool,

    /// Half a minute instead of two and a half
    #[arg(long)]
    quick: bool,

    /// Size of random reads [default: 4 KiB, or the disk's physical block where larger]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    read_block_size: Option<u64>,

    /// Size of random writes [default: 4 KiB, or the disk's physical block where larger]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    write_block_size: Option<u64>,

    /// Scratch data in all [default: 8 GiB, with --quick 2 GiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    data_size: Option<u64>,

    /// Write no more than this in all
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    max_write: Option<u64>,

    /// Measured time of each figure [default: 20 s, with --quick 3 s]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    phase: Option<u64>,

    /// Shards: threads, each pinned to a CPU [default: one on every CPU]
    #[arg(long, visible_alias = "smp", short = 'c', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    shards: Option<u16>,

    /// uring, aio, pool, memory or null [default: the best that this machine allows]
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendKind>,

    /// Seed of positions and data
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t = TuneFormat::Table)]
    format: TuneFormat,
}

pub(crate) fn run(arguments: &TuneArguments) -> Result<Outcome, Failure> {
    let options = checked(arguments)?;
    let control = Control::default();
    interrupt::stop_on_signal(&control)?;
    let mut progress = screen::Phases::new();
    let measured = measure(&options, &mut progress, &control);
    progress.finish();
    let report = measured?;
    let properties = report.disk_properties().map(|disk| io_properties::write(&[disk]));
    let text = match arguments.format {
        TuneFormat::Table => table(&report),
        TuneFormat::Json => json(&report)?,
        TuneFormat::Yaml => properties.clone().unwrap_or_default(),
    };
    let to_stdout = arguments.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if !to_stdout {
        screen::print(&text)?;
    }
    match (&properties, &arguments.output) {
        (Ok(yaml), Some(_)) if to_stdout => screen::print(yaml)?,
        (Ok(yaml), Some(path)) => {
            write_output(path, yaml, arguments.force)?;
            screen::note(&format!("wrote {}", path.display()));
        }
        (Err(missing), Some(path)) => screen::error(&format!("{missing}: {} is not written", path.display())),
        (_, None) => {}
    }
    if report.interrupted {
        screen::note("interrupted: the figures are those measured until then; scratch files are removed");
        return Ok(Outcome::Interrupted);
    }
    Ok(if properties.is_ok() { Outcome::Done } else { Outcome::Finding })
}

fn checked(arguments: &TuneArguments) -> Result<TuneOptions, Failure> {
    let cpus = allowed_cpus().map_err(|e| Failure::Machine(format!("cannot read the CPU affinity: {e}")))?.len();
    if let Some(shards) = arguments.shards.filter(|shards| usize::from(*shards) > cpus) {
        return Err(Failure::Input(format!(
            "--shards {shards}: this process may use {cpus} CPUs, and each shard owns one; ask for at most {cpus}"
        )));
    }
    // Better to hear now than after the measurement that the file cannot be written.
    if let Some(path) = arguments.output.as_deref().filter(|path| path.as_os_str() != "-") {
        if path.is_dir() {
            return Err(Failure::Input(format!("{} is a directory: name a file for --output", path.display())));
        }
        if path.exists() && !arguments.force {
            return Err(Failure::Input(format!("{} exists: pass --force to write over it", path.display())));
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|p| !p.is_dir()) {
            return Err(Failure::Input(format!("{}: no such directory, so the output has no place", parent.display())));
        }
    }
    let block = |bytes: Option<u64>, flag: &str| match bytes.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(bytes)) => Ok(Some(bytes)),
        Some(Err(_)) => Err(Failure::Input(format!("{flag}: too large; give 512 bytes to 1 MiB"))),
    };
    let defaults = match arguments.quick {
        true => TuneOptions::quick(&arguments.directory),
        false => TuneOptions::new(&arguments.directory),
    };
    Ok(TuneOptions {
        backend: arguments.backend,
        shards: arguments.shards.unwrap_or(defaults.shards),
        read_block_bytes: block(arguments.read_block_size, "--read-block-size")?,
        write_block_bytes: block(arguments.write_block_size, "--write-block-size")?,
        data_bytes: arguments.data_size.unwrap_or(defaults.data_bytes),
        max_write_bytes: arguments.max_write,
        phase_s: arguments.phase.map(|ns| ns as f64 / 1e9),
        seed: arguments.seed,
        ..defaults
    })
}

fn write_output(path: &std::path::Path, yaml: &str, force: bool) -> Result<(), Failure> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options.open(path).and_then(|mut file| file.write_all(yaml.as_bytes()));
    written.map_err(|error| Failure::Machine(format!("cannot write {}: {error}", path.display())))
}

fn json(report: &TuneReport) -> Result<String, Failure> {
    serde_json::to_string_pretty(report).map_err(|error| Failure::Machine(format!("cannot write JSON: {error}")))
}

/// The disk in a few lines; `demo` prints it too.
pub(crate) fn table(report: &TuneReport) -> String {
    let figure = |name: &str, figure: &Option<Figure>| {
        let Some(f) = figure else { return vec![name.to_owned(), "not measured".to_owned()] };
        let value = match f.unit {
            Unit::OperationsPerS => format!("{} IOPS", format_iops(f.value)),
            Unit::BytesPerS => format_throughput_decimal(f.value),
        };
        vec![
            name.to_owned(),
            value,
            format!("{:.1} %", f.deviation_pct),
            format_bytes_binary(u64::from(f.block_bytes)),
            f.depth.to_string(),
            format!("{:.0} %", f.cpu_busy_pct),
        ]
    };
    let rows = vec![
        figure("random read", &report.read_iops),
        figure("random write", &report.write_iops),
        figure("sequential read", &report.read_bandwidth),
        figure("sequential write", &report.write_bandwidth),
    ];
    let disk = report.device.as_ref().map_or_else(|| "unknown device".to_owned(), |d| d.name.clone());
    let mut text = format!(
        "{} ({}, {}), {} shard(s), backend {} ({})\n\n",
        report.mountpoint, disk, report.file_system, report.shards, report.backend.name, report.backend.reason
    );
    text.push_str(&screen::table(&["", "figure", "deviation", "size", "depth", "CPU"], rows));
    let latency = |name: &str, l: &Option<plimsoll_tools::tune::UnloadedLatency>| match l {
        Some(l) => format!(
            "one {} {name} at a time: p50 {}, p99 {}\n",
            format_bytes_binary(u64::from(l.block_bytes)),
            format_duration_ns(l.p50_ns),
            format_duration_ns(l.p99_ns)
        ),
        None => String::new(),
    };
    text.push_str("\n\n");
    text.push_str(&latency("read", &report.read_latency));
    text.push_str(&latency("write", &report.write_latency));
    text.push_str(&format!(
        "read block: {}\nwrite block: {}\nwritten: {} in {:.1} s\n",
        report.read_block.how,
        report.write_block.how,
        format_bytes_binary(report.written_bytes),
        report.duration_s
    ));
    text
}
