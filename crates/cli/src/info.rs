//! `plimsoll info`: the rates and costs that a disk description promises, by each cost form.

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll::core::{CostForm, DEFAULT_LATENCY_GOAL_NS, LatencyGoal};
use plimsoll_figures::units::{
    format_bytes_binary, format_count, format_iops, format_iops_short, format_throughput_decimal,
};
use plimsoll_files::check::{self, Beside, CheckOptions, Finding};
use plimsoll_files::info::{self, DiskInfo, FormInfo, Info, InfoOptions, SizeInfo};
use plimsoll_files::presets::{self, Cap};
use plimsoll_files::setup::parse_latency_goal;
use plimsoll_files::{depths, disk, io_properties};
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::table::Column;

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{DiskFormat, form, input};
use crate::screen;

/// Show what a disk description promises: costs, rates, token bucket; no disk is needed
///
/// For each disk of an io-properties file, or for a disk model, shows the output of Seastar's ioinfo, and the rates
/// that the scheduler admits at each request size, by each cost form.
#[derive(Args, Debug)]
pub(crate) struct InfoArguments {
    /// Seastar's io-properties file; `-`: stdin
    #[arg(value_name = "IO_PROPERTIES", required_unless_present = "disk", value_parser = input())]
    io_properties: Option<PathBuf>,

    /// A disk model instead: a disk file, or the name of a preset (i4i.2xlarge)
    #[arg(long, value_name = "FILE|PRESET", conflicts_with = "io_properties")]
    disk: Option<String>,

    /// Check the file's figures instead: show suspicious ones, and remedies; exit code 1 if there are any
    #[arg(long, requires = "io_properties", conflicts_with_all = ["disk", "model", "latency_goal", "shards", "num_io_queues"])]
    check: bool,

    /// With --check: the cloud instance whose figures these are, or `none` for another kind of disk [default: the
    /// instance whose reads are nearest]
    #[arg(long, value_name = "NAME|none", requires = "check", value_parser = parse_instance)]
    instance: Option<Beside>,

    /// Cost form to show by size [default: knee, or the disk model's own]
    #[arg(long, value_name = "FORM", value_parser = form())]
    model: Option<CostForm>,

    /// Longest device time of one piece of a request in milliseconds, or `none`: no splitting [default: 0.75]
    #[arg(long, visible_aliases = ["io-latency-goal-ms", "io-latency-goal"], value_name = "MS|none",
          value_parser = parse_latency_goal)]
    latency_goal: Option<LatencyGoal>,

    /// Shards that use the disk [default: 1]
    #[arg(long, visible_alias = "smp", short = 'c', value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..))]
    shards: Option<u16>,

    /// I/O queues that share the disk [default: one for each shard]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    num_io_queues: Option<u16>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = DiskFormat::Table)]
    format: DiskFormat,
}

fn parse_instance(text: &str) -> Result<Beside, String> {
    if text == "none" {
        return Ok(Beside::Nothing);
    }
    presets::find(text).map(Beside::Instance).ok_or_else(|| match presets::closest_name(text) {
        Some(name) => format!("no such instance is known: did you mean {name}?"),
        None => "no such instance is known: leave this out, or say `none`".to_owned(),
    })
}

/// Prints the suspicious findings, a paragraph each.
fn check(path: &Path, arguments: &InfoArguments) -> Result<Outcome, Failure> {
    let options = CheckOptions { beside: arguments.instance.unwrap_or_default(), ..CheckOptions::default() };
    let report = check::check_file(path, &options)?;

    let text = match arguments.format {
        DiskFormat::Json => report.to_json(),
        DiskFormat::Table if report.findings.is_empty() => {
            screen::answer(&Answer::new(Mood::Good, format!("{}: nothing suspicious", report.file), "", ""))
        }
        DiskFormat::Table => {
            let mut keys: Vec<&str> = report.findings.iter().map(|found| found.key.as_str()).collect();
            keys.dedup();
            let verdict = format!("{}: {} finding(s): {}", report.file, report.findings.len(), keys.join(", "));
            let findings = report.findings.iter().map(|found| paragraph(&report.file, found)).collect::<Vec<_>>();
            screen::answer(&Answer::new(Mood::Bad, verdict, "", "")) + &findings.join("\n\n")
        }
        DiskFormat::Csv | DiskFormat::Yaml => {
            return Err(Failure::Input("--check prints a table or JSON: --format table or --format json".to_owned()));
        }
    };

    screen::print_if_open(&text)?;
    Ok(if report.findings.is_empty() { Outcome::Done } else { Outcome::Finding })
}

fn paragraph(file: &str, finding: &Finding) -> String {
    let line = finding.line.map_or_else(String::new, |line| format!(":{line}"));
    let mountpoint = match finding.mountpoint.as_str() {
        "" | "?" => String::new(),
        mountpoint => format!(" of {mountpoint}"),
    };
    let Finding { code, key, message, remedy, .. } = finding;
    screen::wrap(&format!("{file}{line}: {key}{mountpoint}: {message} [{code}]. Remedy: {remedy}."))
}

pub(crate) fn run(arguments: &InfoArguments) -> Result<Outcome, Failure> {
    let missing = arguments.io_properties.as_deref().filter(|path| !path.exists()).and_then(Path::to_str);
    if let Some(name) = missing.filter(|name| presets::find(name).is_some()) {
        return Err(Failure::Input(format!("there is no file {name}: for the preset write --disk {name}")));
    }
    if let (true, Some(path)) = (arguments.check, &arguments.io_properties) {
        return check(path, arguments);
    }
    let info = read(arguments)?;
    let text = match arguments.format {
        DiskFormat::Table => info.disks.iter().map(table).collect::<Vec<_>>().join("\n\n"),
        DiskFormat::Json => as_json(&info)?,
        DiskFormat::Csv => info.to_csv(),
        DiskFormat::Yaml => info.to_yaml(),
    };
    screen::print(&text)?;
    Ok(Outcome::Done)
}

/// Reads the description that the arguments name. Prints its warnings to stderr.
fn read(arguments: &InfoArguments) -> Result<Info, Failure> {
    if let (Some(queues), Some(shards)) = (arguments.num_io_queues, arguments.shards)
        && queues > shards
    {
        return Err(Failure::Input(format!(
            "{queues} I/O queues on {shards} shard(s): each queue is on a shard of its own; lower --num-io-queues, or \
             raise --shards"
        )));
    }

    let options = InfoOptions {
        form: arguments.model,
        latency_goal: arguments.latency_goal.unwrap_or(LatencyGoal::Ns(DEFAULT_LATENCY_GOAL_NS)),
        io_queues: arguments.num_io_queues.or(arguments.shards).unwrap_or(1),
    };

    match (&arguments.io_properties, &arguments.disk) {
        (Some(path), _) => {
            let properties = io_properties::parse_from_file(path)?;
            properties.warnings.iter().for_each(|warning| screen::note(&warning.to_string()));
            Ok(info::of_properties(&properties, &options))
        }
        (None, Some(name)) => Ok(info::of_disk_model(&disk::find(name, Path::new(""))?, name, &options)),
        (None, None) => Err(Failure::Input("name an io-properties file, or a disk model with --disk".to_owned())),
    }
}

fn table(disk: &DiskInfo) -> String {
    let mut parts = vec![heading(disk), forms_table(disk)];
    if let Some(form) = disk.form(disk.model) {
        parts.push(format!("By request size, with the form `{}`:\n{}", form.name, sizes_table(form)));
    }
    parts.push(format!("IOPS by the forms (reads, half reads and half writes, writes):\n{}", side_by_side(disk)));
    parts.push(sentences(disk));
    parts.join("\n\n")
}

fn heading(disk: &DiskInfo) -> String {
    let device = disk.ioinfo.device.map_or_else(String::new, |device| {
        let (major, minor) = plimsoll::sys::sysfs::major_minor(device);
        format!(", device {major}:{minor}")
    });
    let together = match (disk.duplex, disk.mix_exponent) {
        (true, _) => ", duplex".to_owned(),
        (false, None) => ", reads and writes do not disturb each other".to_owned(),
        (false, Some(p)) => format!(", mix exponent {p:.2}"),
    };
    let shared: Vec<String> = disk.shared_limits.iter().map(shared).collect();
    let shared = if shared.is_empty() { String::new() } else { format!(", both share {}", shared.join(" and ")) };
    screen::wrap(&format!(
        "{}{device}{together}{shared}, {} I/O queue(s)",
        screen::printable(disk.label()),
        disk.io_queues
    ))
}

/// Returns a limit that reads and writes share, without its credits.
fn shared(cap: &Cap) -> String {
    match cap.unit {
        "bytes" => format_throughput_decimal(cap.base_per_s),
        _ => format!("{} IOPS", format_iops(cap.base_per_s)),
    }
}

/// Returns the text of a form's cell.
type Cell<'a> = &'a dyn Fn(&FormInfo) -> String;

/// Returns the table of figures, with a column for each form.
fn forms_table(disk: &DiskInfo) -> String {
    let configured = &disk.configured;
    let limit = |figure: Option<u64>, factor: f64| rate(figure.map(|figure| figure as f64 * factor));
    let row = |label: &str, configured: String, cell: Cell<'_>| {
        let cells = disk.forms.iter().map(cell);
        [label.to_owned(), configured].into_iter().chain(cells).collect::<Vec<String>>()
    };
    let asked = disk.latency_goal_asked_ms.map_or_else(|| "none".to_owned(), ms);

    let rows = vec![
        row("read IOPS", limit(configured.read_iops, 1.0), &|form| {
            with_difference(form.calculated.read_iops, form.difference_pct.read_iops)
        }),
        row("write IOPS", limit(configured.write_iops, 1.0), &|form| {
            with_difference(form.calculated.write_iops, form.difference_pct.write_iops)
        }),
        row("read MB/s", limit(configured.read_bandwidth, 1e-6), &|form| {
            with_difference(megabytes(form.calculated.read_bandwidth), form.difference_pct.read_bandwidth)
        }),
        row("write MB/s", limit(configured.write_bandwidth, 1e-6), &|form| {
            with_difference(megabytes(form.calculated.write_bandwidth), form.difference_pct.write_bandwidth)
        }),
        row("read IOPS at 4 KiB", String::new(), &|form| percent(form.reachable_4k_read_pct)),
        row("write IOPS at 4 KiB", String::new(), &|form| percent(form.reachable_4k_write_pct)),
        row("latency goal", asked, &|form| ms(form.latency_goal_effective_ms)),
        row("unsplit read up to", String::new(), &|form| longest(form.read_max_bytes)),
        row("unsplit write up to", String::new(), &|form| longest(form.write_max_bytes)),
    ];
    let headers: Vec<&str> = ["", "configured"].into_iter().chain(disk.forms.iter().map(|form| form.name)).collect();
    screen::table(&headers, rows)
}

fn sizes_table(form: &FormInfo) -> String {
    const COLUMNS: &[Column<SizeInfo>] = &[
        ("size", |size| format_bytes_binary(u64::from(size.bytes))),
        ("read\nus", |size| significant(size.read_cost_ns / 1e3)),
        ("write\nus", |size| significant(size.write_cost_ns / 1e3)),
        ("read\nIOPS", |size| rate(size.read_iops)),
        ("50/50\nIOPS", |size| rate(size.mixed_iops)),
        ("write\nIOPS", |size| rate(size.write_iops)),
        ("read\nMB/s", |size| rate(megabytes(size.read_bytes_per_s))),
        ("50/50\nMB/s", |size| rate(megabytes(size.mixed_bytes_per_s))),
        ("write\nMB/s", |size| rate(megabytes(size.write_bytes_per_s))),
    ];
    screen::columns(&form.sizes, COLUMNS)
}

/// Sizes at which forms are compared, in bytes.
const COMPARED_BYTES: [u32; 6] = [512, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20];

/// Returns the IOPS of the forms at some sizes.
fn side_by_side(disk: &DiskInfo) -> String {
    // A screen has room for four forms. Beside a measured table, leave out `additive`: `seastar` is a kind of it.
    let has_table = disk.form(info::TABLE).is_some();
    let forms = || disk.forms.iter().filter(|form| !(has_table && form.name == CostForm::Additive.name()));
    let mut headers = vec!["size".to_owned()];
    for form in forms() {
        headers.extend([format!("{}\nread", form.name), "\n50/50".to_owned(), "\nwrite".to_owned()]);
    }
    let short = |iops: Option<f64>| iops.map_or_else(|| UNLIMITED.to_owned(), format_iops_short);
    let cells = |size: &SizeInfo| [size.read_iops, size.mixed_iops, size.write_iops].map(short);
    let rows = COMPARED_BYTES.into_iter().map(|bytes| {
        let sizes = forms().filter_map(|form| form.size(bytes));
        [format_bytes_binary(u64::from(bytes))].into_iter().chain(sizes.flat_map(cells)).collect()
    });
    screen::table(&headers, rows.collect())
}

/// Returns sentences about the figures, by the shown form and by Seastar's.
fn sentences(disk: &DiskInfo) -> String {
    let shown = disk.forms.iter().filter(|form| form.name == disk.model || form.name == CostForm::Seastar.name());
    let mut lines = Vec::new();
    for form in shown {
        lines.extend(reachable(form));
        if let Some(reason) = &form.latency_goal_reason {
            lines.push(format!("Latency goal with the form `{}`: {reason}.", form.name));
        }
    }
    let goals = [("Random reads", &disk.read_goals), ("Random writes", &disk.write_goals)];
    let prices = goals.into_iter().filter_map(|(what, prices)| depths::sentence(what, prices));
    lines.extend(prices.map(|sentence| format!("{sentence}.")));
    let fair = &disk.ioinfo.fair_queue;
    lines.push(format!(
        "Seastar's token bucket: limit {}, threshold {}, per tick {} (see --format yaml).",
        fair.token_bucket.limit, fair.token_bucket.threshold, fair.per_tick_grab_threshold
    ));
    lines.iter().map(|line| screen::wrap(line)).collect::<Vec<_>>().join("\n")
}

/// Returns a sentence on the part of the configured IOPS that 4 KiB reads reach with a form.
fn reachable(form: &FormInfo) -> Option<String> {
    let size = form.size(4096)?;
    Some(format!(
        "A 4 KiB read costs {} us: {} of the configured IOPS are reachable with the form `{}`.",
        significant(size.read_cost_ns / 1e3),
        percent(form.reachable_4k_read_pct),
        form.name
    ))
}

/// Text in place of a rate if requests cost nothing.
const UNLIMITED: &str = "free";

/// Formats a rate, or [`UNLIMITED`] if there is none.
fn rate(rate: Option<f64>) -> String {
    match rate {
        None => UNLIMITED.to_owned(),
        Some(rate) if rate < 100.0 => significant(rate),
        Some(rate) => format_iops(rate),
    }
}

/// Formats a value below 1000 with about three digits, others as a whole number; tiny values as 3.0e-6.
fn significant(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format_count(value.round() as u64),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value if value >= 0.001 || value == 0.0 => format!("{value:.3}"),
        value => format!("{value:.1e}"),
    }
}

/// Formats a calculated figure, with its difference from the configured one if that rounds to 0.1 % or more.
fn with_difference(figure: Option<f64>, difference_pct: Option<f64>) -> String {
    match difference_pct {
        Some(difference) if difference.abs() >= 0.05 => format!("{} {difference:+.1} %", rate(figure)),
        _ => rate(figure),
    }
}

fn percent(percent: Option<f64>) -> String {
    percent.map_or_else(|| UNLIMITED.to_owned(), |percent| format!("{percent:.0} %"))
}

fn megabytes(bytes_per_s: Option<f64>) -> Option<f64> {
    bytes_per_s.map(|bytes| bytes / 1e6)
}

fn ms(ms: f64) -> String {
    if ms < 10.0 { format!("{} ms", (ms * 1e3).round() / 1e3) } else { format!("{} ms", significant(ms)) }
}

fn longest(bytes: Option<u32>) -> String {
    bytes.map_or_else(|| "any".to_owned(), |bytes| format!("{} KiB", bytes >> 10))
}
