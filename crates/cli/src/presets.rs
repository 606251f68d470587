//! `plimsoll presets`: the named devices, the facts known about them, and the rates of arrays.

use clap::{Args, Subcommand};
use plimsoll_figures::units::{
    UnitError, format_bytes_decimal, format_count, format_iops_short, format_throughput_decimal,
    parse_data_sheet_bytes, parse_data_sheet_bytes_per_s, parse_operations_per_s,
};
use plimsoll_files::keys;
use plimsoll_files::presets::{self, ArrayReport, Direction, Minimum, PresetInfo, PresetKind, Resolved};
use plimsoll_show::table::{Column, Table, csv, known};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{DiskFormat, ReportFormat};
use crate::screen;

/// Show the devices that --disk knows by name: instances, drives, volumes, and arrays of them
#[derive(Args, Debug)]
pub(crate) struct PresetsArguments {
    #[command(subcommand)]
    command: PresetsCommand,
}

#[derive(Subcommand, Debug)]
enum PresetsCommand {
    List(ListArguments),
    Show(ShowArguments),
    Find(Box<FindArguments>),
    Array(ArrayArguments),
}

/// List the presets: figures of all disks together
#[derive(Args, Debug)]
struct ListArguments {
    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

/// Show all facts about a preset, and their sources
///
/// NAME is a preset (i4i.2xlarge), an array of them (4x983-dct), or a volume with the figures ordered beyond its base,
/// each with its unit (gp3:500GiB:16000iops:1000MiB/s). --disk takes the same names.
#[derive(Args, Debug)]
struct ShowArguments {
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// With --format yaml: mount point of the disk
    #[arg(long, value_name = "DIR", default_value = "/var/lib/data")]
    mountpoint: String,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = DiskFormat::Table)]
    format: DiskFormat,
}

/// Find presets by words and minimum figures; the nearest comes first
///
/// Rates are per second or, with /min, per minute, as in some graphs of AWS: 13.2M/min are 220,000 operations a second.
/// 1 MB is 10^6 bytes, 1 MiB 2^20 bytes, 1 Mb 10^6 bits.
#[derive(Args, Debug)]
struct FindArguments {
    /// Words that name, kind (instance, drive, volume), family or source must contain
    #[arg(value_name = "TEXT")]
    text: Vec<String>,

    /// Minimum reads a second, such as 600k or 13.2M/min
    #[arg(long, value_name = "N[/s|/min]", value_parser = operations)]
    read_iops: Option<Understood>,

    /// Minimum writes a second
    #[arg(long, value_name = "N[/s|/min]", value_parser = operations)]
    write_iops: Option<Understood>,

    /// Minimum bytes read a second, such as 3GB/s
    #[arg(long, value_name = "BYTES/s", value_parser = bandwidth)]
    read_bandwidth: Option<Understood>,

    /// Minimum bytes written a second
    #[arg(long, value_name = "BYTES/s", value_parser = bandwidth)]
    write_bandwidth: Option<Understood>,

    /// Minimum capacity in bytes, such as 7.5TB
    #[arg(long, value_name = "BYTES", value_parser = capacity)]
    capacity: Option<Understood>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

/// Multiply a disk, and compare the sum with the bandwidth of the instance; exit code 1 if the instance is the limit
#[derive(Args, Debug)]
struct ArrayArguments {
    /// Members: 4x983-dct, or 3xgp3:50GB:250MB/s
    #[arg(value_name = "COUNTxNAME")]
    array: String,

    /// Bandwidth of the instance: 6800Mb/s (megabits) or 850MB/s
    #[arg(long, value_name = "BYTES/s|BITS/s", value_parser = bandwidth)]
    limit: Option<Understood>,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

/// A figure as written, and its interpretation.
#[derive(Clone, Debug)]
struct Understood {
    text: String,
    value: u64,
    meaning: String,
}

impl Understood {
    fn read(
        text: &str,
        read: fn(&str) -> Result<u64, UnitError>,
        meaning: impl Fn(u64) -> String,
    ) -> Result<Understood, UnitError> {
        let value = read(text)?;
        Ok(Understood { text: text.trim().to_owned(), value, meaning: meaning(value) })
    }
}

fn operations(text: &str) -> Result<Understood, UnitError> {
    Understood::read(text, parse_operations_per_s, |value| format!("{} operations/s", format_count(value)))
}

fn bandwidth(text: &str) -> Result<Understood, UnitError> {
    Understood::read(text, parse_data_sheet_bytes_per_s, |value| {
        format!("{} bytes/s ({})", format_count(value), format_throughput_decimal(value as f64))
    })
}

fn capacity(text: &str) -> Result<Understood, UnitError> {
    Understood::read(text, parse_data_sheet_bytes, |value| format!("{} bytes", format_count(value)))
}

pub(crate) fn run(arguments: &PresetsArguments) -> Result<Outcome, Failure> {
    match &arguments.command {
        PresetsCommand::List(arguments) => list(arguments),
        PresetsCommand::Show(arguments) => show(arguments),
        PresetsCommand::Find(arguments) => find(arguments),
        PresetsCommand::Array(arguments) => array(arguments),
    }
}

fn resolve(name: &str) -> Result<Resolved, Failure> {
    presets::resolve(name).map_err(|error| Failure::Input(format!("{error}; {}", error.help())))
}

fn list(arguments: &ListArguments) -> Result<Outcome, Failure> {
    let found = presets::all();
    let json = json!({ "schema": SCHEMA, "presets": found });
    arguments.format.print(|| overview(&found), &json, || csv(&found, COLUMNS))?;
    Ok(Outcome::Done)
}

/// The columns of CSV: figures are those of all disks.
const COLUMNS: &[Column<PresetInfo>] = &[
    ("name", |it| it.name.clone()),
    ("kind", |it| it.kind.to_owned()),
    ("cloud", |it| known(it.cloud)),
    ("family", |it| known(it.family.as_ref())),
    ("disks", |it| known(it.disks)),
    ("read_iops", |it| it.total.read_iops.to_string()),
    ("read_bandwidth", |it| it.total.read_bandwidth.to_string()),
    ("write_iops", |it| it.total.write_iops.to_string()),
    ("write_bandwidth", |it| it.total.write_bandwidth.to_string()),
    ("burst_read_iops", |it| known(it.burst.map(|burst| burst.read_iops))),
    ("burst_read_bandwidth", |it| known(it.burst.map(|burst| burst.read_bandwidth))),
    ("burst_write_iops", |it| known(it.burst.map(|burst| burst.write_iops))),
    ("burst_write_bandwidth", |it| known(it.burst.map(|burst| burst.write_bandwidth))),
    ("advertised_read_iops", |it| known(it.advertised_read_iops)),
    ("advertised_write_iops", |it| known(it.advertised_write_iops)),
    ("advertised_basis", |it| known(it.advertised_basis)),
    ("capacity_bytes", |it| known(it.capacity_bytes)),
    ("vcpus", |it| known(it.vcpus)),
    ("memory_gib", |it| known(it.memory_gib)),
    ("network_gbps", |it| known(it.network_gbps)),
    ("mix_exponent", |it| it.mix_exponent.map_or_else(|| "infinite".to_owned(), |p| p.to_string())),
    ("unloaded_read_us", |it| it.unloaded_read_us.to_string()),
    ("unloaded_write_us", |it| it.unloaded_write_us.to_string()),
    ("defaults", |it| it.defaults.join(" ")),
    ("evidence", |it| it.evidence.to_owned()),
    ("source", |it| it.source.to_owned()),
    ("date", |it| it.date.to_owned()),
    ("suspect", |it| known(it.suspect)),
];

/// Version of the JSON; it rises when a key changes its meaning or disappears.
const SCHEMA: u32 = 1;

const OVERVIEW: &[Column<PresetInfo>] = &[
    ("name", |it| it.name.clone()),
    ("disks", |it| it.disks.map_or_else(|| "?".to_owned(), |disks| disks.to_string())),
    ("reads/s", |it| format_iops_short(it.total.read_iops as f64)),
    ("writes/s", |it| format_iops_short(it.total.write_iops as f64)),
    ("read\nMB/s", |it| megabytes(it.total.read_bandwidth)),
    ("write\nMB/s", |it| megabytes(it.total.write_bandwidth)),
    ("capacity", |it| it.capacity_bytes.map_or_else(|| "?".to_owned(), format_bytes_decimal)),
    ("figures", |it| {
        let known = [Some(it.evidence), it.burst.map(|_| "bursts"), it.suspect.map(|_| "suspect")];
        known.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }),
];

/// Returns a row for each preset, and the reasons why some are suspect.
fn overview(presets: &[PresetInfo]) -> String {
    if presets.is_empty() {
        return "no preset".to_owned();
    }
    let mut parts = vec![screen::columns(presets, OVERVIEW)];
    let suspects = presets.iter().filter_map(|preset| Some((preset, preset.suspect?)));
    let bursts = presets.iter().filter_map(|preset| Some((preset, preset.burst_text()?)));
    parts.extend(bursts.map(|(preset, burst)| screen::wrap(&format!("{}: the base; beyond it {burst}.", preset.name))));
    parts.extend(suspects.map(|(preset, reason)| screen::wrap(&format!("{}: {reason}.", preset.name))));
    parts.join("\n\n")
}

fn megabytes(bytes_per_s: u64) -> String {
    format_count((bytes_per_s as f64 / 1e6).round() as u64)
}

fn show(arguments: &ShowArguments) -> Result<Outcome, Failure> {
    let found: Vec<PresetInfo> =
        arguments.names.iter().map(|name| Ok(PresetInfo::of(&resolve(name)?))).collect::<Result<_, Failure>>()?;
    let text = match (arguments.format, found.as_slice()) {
        (DiskFormat::Table, _) => found.iter().map(sheet).collect::<Vec<_>>().join("\n\n\n"),
        (DiskFormat::Json, _) => as_json(&json!({ "schema": SCHEMA, "presets": found }))?,
        (DiskFormat::Csv, _) => csv(&found, COLUMNS),
        (DiskFormat::Yaml, [one]) => presets::properties(one, &arguments.mountpoint),
        (DiskFormat::Yaml, _) => {
            return Err(Failure::Input(
                "--format yaml prints the file of one disk: name one preset, or an array of them (4xNAME)".to_owned(),
            ));
        }
    };
    screen::print(&text)?;
    Ok(Outcome::Done)
}

fn sheet(preset: &PresetInfo) -> String {
    let disks =
        preset.disks.map_or_else(|| "an unknown number of disks".to_owned(), |disks| format!("{disks} disk(s)"));
    let what = [preset.cloud, preset.title].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let what = if what.is_empty() { String::new() } else { format!(" ({what})") };
    let heading = format!("{}: {}{what}, {disks}", preset.name, preset.kind);
    let lines = facts(preset).into_iter().map(|line| screen::wrap(&line)).collect::<Vec<_>>().join("\n");
    [heading, figures_table(preset), lines].join("\n\n")
}

/// Returns the figures of one disk, of all disks, and as advertised.
fn figures_table(preset: &PresetInfo) -> String {
    let unknown = || "?".to_owned();
    let row = |label: &str, one: Option<u64>, all: u64, advertised: Option<u64>, text: fn(u64) -> String| {
        let advertised = advertised.map_or_else(String::new, text);
        vec![label.to_owned(), one.map_or_else(unknown, text), text(all), advertised]
    };
    let (one, all) = (preset.per_disk.as_ref(), &preset.total);
    let mut rows = vec![
        row("reads/s", one.map(|f| f.read_iops), all.read_iops, preset.advertised_read_iops, format_count),
        row("writes/s", one.map(|f| f.write_iops), all.write_iops, preset.advertised_write_iops, format_count),
        row("read MB/s", one.map(|f| f.read_bandwidth), all.read_bandwidth, None, megabytes),
        row("write MB/s", one.map(|f| f.write_bandwidth), all.write_bandwidth, None, megabytes),
    ];

    let part = |bytes: u64| preset.disks.map(|disks| format_bytes_decimal(bytes / u64::from(disks.max(1))));
    rows.push(vec![
        "capacity".to_owned(),
        preset.capacity_bytes.and_then(part).unwrap_or_else(unknown),
        preset.capacity_bytes.map_or_else(unknown, format_bytes_decimal),
        String::new(),
    ]);

    screen::table(&["", "one disk", "all disks", "advertised"], rows)
}

/// Returns the facts besides the figures, a line each.
fn facts(preset: &PresetInfo) -> Vec<String> {
    let default = |what: &str| match preset.defaults.contains(&what) {
        true => " (not known: default of its generation)",
        false => "",
    };
    let mix = match preset.mix_exponent {
        Some(p) => format!("mix exponent {p}"),
        None if preset.kind == PresetKind::Volume.name() => {
            "reads and writes do not disturb each other, but share its limits".to_owned()
        }
        None => "reads and writes do not disturb each other".to_owned(),
    };
    let mut lines = vec![
        format!("Frontier: {mix}{}.", default("mix_exponent")),
        format!("Small read on the idle disk: {} us{}.", preset.unloaded_read_us, default("read_latency")),
        format!("Small write on the idle disk: {} us{}.", preset.unloaded_write_us, default("write_latency")),
    ];

    let machine: Vec<String> = [
        preset.vcpus.map(|vcpus| format!("{vcpus} vCPUs")),
        preset.memory_gib.map(|memory| format!("{memory} GiB of memory")),
        preset.network_gbps.map(|network| format!("network {network} Gb/s")),
    ]
    .into_iter()
    .flatten()
    .collect();

    if !machine.is_empty() {
        lines.push(format!("Instance: {}.", machine.join(", ")));
    }

    if preset.advertised_basis == Some("inferred") {
        lines.push(
            "Advertised: inferred from measured figures of the small sizes, not read where the provider states it: \
             that these agree says nothing."
                .to_owned(),
        );
    }

    for cap in &preset.caps {
        let [base, burst, credits] = [cap.base_per_s, cap.burst_per_s, cap.credits].map(|value| value.round() as u64);
        let lasts_s = if burst > base { credits / (burst - base) } else { 0 };
        lines.push(format!(
            "Burst: {} {} a second while {} credits last ({} s from full), then {}.",
            format_count(burst),
            cap.unit,
            format_count(credits),
            format_count(lasts_s),
            format_count(base)
        ));
    }

    if let (Some(part), Some(time)) = (preset.promised_pct, preset.promised_time_pct) {
        lines.push(format!("Promised: {part} % of the performance, {time} % of a year."));
    }

    let stated = if preset.basis == "per_disk" { "for one disk" } else { "for all disks" };
    lines.push(format!("Figures: {}, stated {stated}, {}: {}.", preset.evidence, preset.date, preset.source));
    lines.extend(preset.suspect.map(|reason| format!("Suspect: {reason}.")));
    lines
}

fn find(arguments: &FindArguments) -> Result<Outcome, Failure> {
    let FindArguments { read_iops, write_iops, read_bandwidth, write_bandwidth, capacity, .. } = arguments;
    let asked = [
        ("read_iops", read_iops),
        ("write_iops", write_iops),
        ("read_bandwidth", read_bandwidth),
        ("write_bandwidth", write_bandwidth),
        ("capacity", capacity),
    ];

    let asked: Vec<(&str, &Understood)> =
        asked.into_iter().filter_map(|(key, figure)| Some((key, figure.as_ref()?))).collect();
    let text = arguments.text.join(" ");
    if asked.is_empty() && text.trim().is_empty() {
        return Err(Failure::Input("say what to find: a text, or a minimum such as --read-iops 600k".to_owned()));
    }

    let value = |figure: &Option<Understood>| figure.as_ref().map(|figure| figure.value);
    let minimum = Minimum {
        read_iops: value(read_iops),
        write_iops: value(write_iops),
        read_bandwidth_bytes_per_s: value(read_bandwidth),
        write_bandwidth_bytes_per_s: value(write_bandwidth),
        capacity_bytes: value(capacity),
    };

    let found = presets::search(&text, &minimum);
    let understood: Vec<String> =
        asked.iter().map(|(key, figure)| format!("{key} {} is {}", figure.text, figure.meaning)).collect();
    let understood = understood.join("; ");

    let text = match arguments.format {
        ReportFormat::Table if asked.is_empty() => overview(&found),
        ReportFormat::Table => {
            format!("{}\n\n{}", screen::wrap(&format!("At least: {understood}.")), overview(&found))
        }
        ReportFormat::Json => {
            let object = |(key, figure): &(&str, &Understood)| {
                ((*key).to_owned(), json!({ "text": figure.text, "value": figure.value }))
            };
            let asked: serde_json::Map<String, Value> = asked.iter().map(object).collect();
            as_json(&json!({ "schema": SCHEMA, "text": text, "asked": asked, "presets": found }))?
        }
        ReportFormat::Csv => {
            if !asked.is_empty() {
                screen::note(&format!("at least: {understood}"));
            }
            csv(&found, COLUMNS)
        }
    };

    screen::print(&text)?;
    Ok(if found.is_empty() { Outcome::Finding } else { Outcome::Done })
}

fn array(arguments: &ArrayArguments) -> Result<Outcome, Failure> {
    let resolved = resolve(&arguments.array)?;
    let report = ArrayReport::new(&resolved, arguments.limit.as_ref().map(|limit| limit.value));
    let mut json = json!(report);
    json["schema"] = json!(SCHEMA);
    arguments.format.print(|| array_table(&report, arguments.limit.as_ref()), &json, || array_csv(&report))?;
    Ok(if report.limit_binds { Outcome::Finding } else { Outcome::Done })
}

/// Returns CSV: a header, a line for reads and one for writes.
fn array_csv(report: &ArrayReport) -> String {
    let headers = keys![
        array direction members limit_bytes_per_s sum_bytes_per_s carried_bytes_per_s bound_by left_bytes_per_s
        per_member_bytes_per_s per_member_pct
    ];
    let row = |(name, direction): (&str, &Direction)| {
        [
            report.array.name.clone(),
            name.to_owned(),
            report.members.to_string(),
            known(report.limit_bytes_per_s),
            direction.sum_bytes_per_s.to_string(),
            direction.carried_bytes_per_s.to_string(),
            direction.bound_by.to_owned(),
            known(direction.left_bytes_per_s),
            direction.per_member_bytes_per_s.to_string(),
            direction.per_member_pct.to_string(),
        ]
    };
    Table::new("", headers, [("read", &report.read), ("write", &report.write)].map(row)).to_csv()
}

fn array_table(report: &ArrayReport, limit: Option<&Understood>) -> String {
    let (member, array) = (&report.member.total, &report.array.total);
    let row = |label: &str, one: u64, all: u64, text: fn(u64) -> String| vec![label.to_owned(), text(one), text(all)];
    let rows = vec![
        row("reads/s", member.read_iops, array.read_iops, format_count),
        row("writes/s", member.write_iops, array.write_iops, format_count),
        row("read MB/s", member.read_bandwidth, array.read_bandwidth, megabytes),
        row("write MB/s", member.write_bandwidth, array.write_bandwidth, megabytes),
    ];

    let array_header = format!("{} of them", report.members);
    let mut parts = vec![
        format!("{}: {} x {}", report.array.name, report.members, report.member.name),
        screen::table(&["", "one", &array_header], rows),
    ];

    if let Some(limit) = limit {
        let mut lines = vec![format!("Limit: {} is {}.", limit.text, limit.meaning)];
        lines.push(verdict("Reads", &report.read));
        lines.push(verdict("Writes", &report.write));
        parts.push(lines.iter().map(|line| screen::wrap(line)).collect::<Vec<_>>().join("\n"));
    }
    parts.join("\n\n")
}

/// Returns a sentence: whether the limit or the members bind, and the difference.
fn verdict(what: &str, direction: &Direction) -> String {
    let rate = |bytes_per_s: u64| format_throughput_decimal(bytes_per_s as f64);
    let bound = if direction.bound_by == "limit" {
        format!("the limit binds, {} less than the members carry", rate(direction.lost_bytes_per_s()))
    } else {
        format!("the members bind, {} of the limit are left", rate(direction.left_bytes_per_s.unwrap_or(0)))
    };
    format!(
        "{what}: {} of {}: {bound}; each member carries {} ({:.0} % of what it could).",
        rate(direction.carried_bytes_per_s),
        rate(direction.sum_bytes_per_s),
        rate(direction.per_member_bytes_per_s),
        direction.per_member_pct
    )
}
