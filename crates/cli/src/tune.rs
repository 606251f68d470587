//! `plimsoll tune`: measure the disk under a directory and write io-properties.yaml.

pub(crate) mod output;

use std::path::PathBuf;

use clap::Args;
use plimsoll::backend::choose::BackendKind;
use plimsoll_tools::config::io_properties;
use plimsoll_tools::load::Control;
use plimsoll_tools::tune::{Figure, TuneOptions, TuneReport, Unit, measure};
use plimsoll_tools::units::{format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal};

use crate::failure::{Failure, Outcome};
use crate::flags::{TuneFormat, check_shards};
use crate::test::{parse_bytes, parse_seconds};
use crate::{interrupt, screen};
use output::Output;

/// Measure the disk under a directory: IOPS and bandwidth, for reads and writes
///
/// Writes scratch files into the directory and removes them. The result is Seastar's io-properties.yaml, read by
/// Seastar and by every plimsoll command.
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
    #[arg(long, visible_alias = "smp", short = 'c', value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..))]
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
    let is_to_stdout = arguments.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let path = arguments.output.as_deref().filter(|_| !is_to_stdout);
    // Better to hear now than after the measurement that the file cannot be written.
    let output = path.map(|path| Output::check(path, arguments.force)).transpose()?;
    let control = Control::default();
    interrupt::stop_on_signal(&control)?;
    let mut progress = screen::Phases::new();
    let measured = measure(&options, &mut progress, &control);
    progress.finish();
    let report = measured?;
    let properties = report.disk_properties().map(|disk| io_properties::write(&[disk]));
    // The file comes first: whoever reads stdout may close it at any time. What fails is told after the result.
    let mut written = Ok(());
    if let (Ok(yaml), Some(output), Some(path)) = (&properties, &output, path) {
        written = output.write(yaml);
        if written.is_ok() {
            screen::note(&format!("wrote {}", path.display()));
        }
    }
    let format = if is_to_stdout { TuneFormat::Yaml } else { arguments.format };
    if let Err(missing) = &properties {
        match path {
            Some(path) => screen::error(&format!("{missing}: {} is not written", path.display())),
            None if format == TuneFormat::Yaml => screen::error(&format!("{missing}: no io-properties are printed")),
            None => {}
        }
    }
    if let Some(text) = text(format, &report, properties.as_deref().ok())? {
        screen::print(&text)?;
    }
    written?;
    if report.interrupted {
        screen::note("interrupted: the figures are those measured until then; scratch files are removed");
        return Ok(Outcome::Interrupted);
    }
    Ok(if properties.is_ok() { Outcome::Done } else { Outcome::Finding })
}

/// What goes to stdout; `None` where there are no `properties` to print.
fn text(format: TuneFormat, report: &TuneReport, properties: Option<&str>) -> Result<Option<String>, Failure> {
    Ok(match format {
        TuneFormat::Table => Some(table(report)),
        TuneFormat::Json => Some(json(report)?),
        TuneFormat::Csv => Some(report.to_csv()),
        TuneFormat::Yaml => properties.map(str::to_owned),
    })
}

fn checked(arguments: &TuneArguments) -> Result<TuneOptions, Failure> {
    arguments.shards.map_or(Ok(()), check_shards)?;
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
