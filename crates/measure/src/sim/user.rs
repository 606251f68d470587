//! Runs a user's scenario: the world, its samples as curves, its report as tables.

use plimsoll_figures::units::{format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_files::scenario::Scenario;
use plimsoll_sim::report::{LatencySummary, Sample, WorldReport};
use plimsoll_sim::scenario::Series;
use plimsoll_sim::world::{WorldError, WorldSpec, run_observed};

use super::result::{Measured, RunResult, Table};

const SHARDS_LISTED: usize = 16;

/// Runs the scenario. At each sample, calls `advance` with the part that is done, from 0 to 1.
pub(super) fn run(scenario: &Scenario, seed: u64, advance: &dyn Fn(f64)) -> Result<RunResult, WorldError> {
    let world = WorldSpec { seed, ..scenario.world.clone() };
    let whole_ns = (world.warmup_ns + world.duration_ns) as f64;
    let mut samples = Vec::new();
    let report = run_observed(&world, &mut |sample| {
        advance(sample.at_ns as f64 / whole_ns);
        samples.push(sample.clone());
    })?;
    Ok(RunResult {
        tables: tables(scenario, &report),
        figures: figures(scenario, &report),
        remarks: remarks(scenario, &report),
        series: series(scenario, &samples),
        requests: report.totals.sent,
        log_hash: report.log_hash,
    })
}

fn disk_name(scenario: &Scenario, disk: usize) -> String {
    let name = scenario.disk_names.get(disk).map_or("disk", String::as_str);
    if scenario.disk_names.len() > 1 { format!("{disk}: {name}") } else { name.to_owned() }
}

/// Returns the name of a class in results, with its disk if there are several.
fn class_name(scenario: &Scenario, class: &str, disk: usize) -> String {
    if scenario.disk_names.len() > 1 { format!("{class} on disk {disk}") } else { class.to_owned() }
}

fn tables(scenario: &Scenario, report: &WorldReport) -> Vec<Table> {
    let ns = |ns: u64| format_duration_ns(ns);
    let class_rows = report.classes.iter().filter(|class| class.requests > 0 || class.queued > 0).map(|class| {
        let total = LatencySummary::of(&class.total);
        let shares = scenario.world.classes.iter().find(|spec| spec.name == class.name).map_or(0, |spec| spec.shares);
        vec![
            class_name(scenario, &class.name, class.disk),
            shares.to_string(),
            format_iops(class.iops),
            format_throughput_decimal(class.bytes_per_s),
            ns(total.p50_ns),
            ns(total.p99_ns),
            ns(total.p999_ns),
            ns(class.delay_ns.round() as u64),
            class.queued.to_string(),
        ]
    });

    let job_rows = report.jobs.iter().map(|job| {
        let latency = LatencySummary::of(&job.latency);
        let counts = job.total;
        vec![
            job.name.clone(),
            format_iops(counts.iops),
            format_throughput_decimal(counts.bytes_per_s),
            ns(latency.p50_ns),
            ns(latency.p99_ns),
            ns(latency.max_ns),
            counts.errors.to_string(),
            counts.refused.to_string(),
            counts.slices.to_string(),
        ]
    });

    let disk_rows = report.disks.iter().enumerate().map(|(at, disk)| {
        vec![
            disk_name(scenario, at),
            format_iops(disk.iops),
            format_throughput_decimal(disk.bytes_per_s),
            format!("{:.1}", disk.mean_in_device),
            disk.max_in_device.to_string(),
            format!("{:.1} %", disk.busy_part * 100.0),
            format!("{:.1} %", disk.utilisation * 100.0),
        ]
    });

    let table = |title: &str, columns: &[&str], rows: Vec<Vec<String>>| Table {
        title: title.to_owned(),
        columns: columns.iter().map(|&word| word.to_owned()).collect(),
        rows,
    };

    let mut tables = vec![
        table(
            "Classes",
            &["class", "shares", "IOPS", "rate", "p50", "p99", "p99.9", "queue delay", "queued"],
            class_rows.collect(),
        ),
        table("Jobs", &["job", "IOPS", "rate", "p50", "p99", "max", "errors", "refused", "slices"], job_rows.collect()),
        table(
            "Disks",
            &["disk", "IOPS", "rate", "mean depth", "max depth", "busy", "of the model"],
            disk_rows.collect(),
        ),
    ];

    if report.shards.len() <= SHARDS_LISTED {
        let busy = |cpu_ns: u64| format!("{:.1} %", cpu_ns as f64 / report.duration_ns.max(1) as f64 * 100.0);
        let rows = report.shards.iter().enumerate().map(|(at, shard)| vec![at.to_string(), busy(shard.cpu_ns)]);
        tables.push(table("Shards", &["shard", "CPU"], rows.collect()));
    }

    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn figures(scenario: &Scenario, report: &WorldReport) -> Vec<Measured> {
    let figure = |name: String, value: f64| Measured::new(name, value, None);
    let mut figures = Vec::new();
    for class in report.classes.iter().filter(|class| class.requests > 0) {
        let name = class_name(scenario, &class.name, class.disk);
        let total = LatencySummary::of(&class.total);
        figures.push(figure(format!("{name}: IOPS, 1/s"), class.iops));
        figures.push(figure(format!("{name}: rate, MB/s"), class.bytes_per_s / 1e6));
        figures.push(figure(format!("{name}: p50, us"), total.p50_ns as f64 / 1e3));
        figures.push(figure(format!("{name}: p99, us"), total.p99_ns as f64 / 1e3));
    }
    for (at, disk) in report.disks.iter().enumerate() {
        let name = disk_name(scenario, at);
        figures.push(figure(format!("{name}: rate, MB/s"), disk.bytes_per_s / 1e6));
        figures.push(figure(format!("{name}: mean depth"), disk.mean_in_device));
    }
    figures
}

fn remarks(scenario: &Scenario, report: &WorldReport) -> Vec<String> {
    let mut remarks = Vec::new();
    for (at, disk) in scenario.world.disks.iter().enumerate() {
        if disk.config.model.is_unlimited() {
            let name = disk_name(scenario, at);
            remarks.push(format!("{name} is unlimited: shares hold only while requests wait for the device"));
        }
    }

    for job in &report.jobs {
        let counts = job.total;
        if counts.refused > 0 {
            let text =
                format!("{}: {} requests were refused: the I/O queue was full, or max_delay", job.name, counts.refused);
            remarks.push(text);
        }
        if counts.requests + counts.slices + counts.refused == 0 {
            remarks.push(format!("{}: nothing came back in the measured time", job.name));
        }
    }

    remarks
}

type Curve = (String, Vec<(f64, f64)>);

fn series(scenario: &Scenario, samples: &[Sample]) -> Vec<Series> {
    let of_classes = |value: &dyn Fn(&plimsoll_sim::report::ClassSample, &Sample) -> Option<f64>| {
        let count = samples.first().map_or(0, |sample| sample.classes.len());
        let curve = |at: usize| -> Option<Curve> {
            let first = samples.first()?.classes.get(at)?;
            let spec = scenario.world.classes.get(first.class).filter(|spec| !spec.is_group)?;
            let point = |sample: &Sample| Some((at_s(sample), value(sample.classes.get(at)?, sample)?));
            // A class that only waits is of interest too.
            let is_active = |class: &plimsoll_sim::report::ClassSample| class.requests > 0 || class.queued > 0;
            let is_used = samples.iter().any(|sample| sample.classes.get(at).is_some_and(is_active));
            let name = class_name(scenario, &spec.name, first.disk);
            is_used.then(|| (name, samples.iter().filter_map(point).collect()))
        };
        (0..count).filter_map(curve).collect::<Vec<Curve>>()
    };

    let of_disks = |what: &str, value: &dyn Fn(&plimsoll_sim::report::DiskSample) -> f64| {
        let curve = |at: usize| {
            let point = |sample: &Sample| Some((at_s(sample), value(sample.disks.get(at)?)));
            let several = if scenario.disk_names.len() > 1 { format!(" of disk {at}") } else { String::new() };
            (format!("{what}{several}"), samples.iter().filter_map(point).collect())
        };
        (0..scenario.disk_names.len()).map(curve).collect::<Vec<Curve>>()
    };

    let panel = |title: &str, y: &str, curves: Vec<Curve>| Series {
        title: title.to_owned(),
        x: "time, s".to_owned(),
        y: y.to_owned(),
        curves,
    };
    let per_s = |bytes: u64, sample: &Sample| bytes as f64 / (sample.interval_ns.max(1) as f64 / 1e9) / 1e6;

    let mut work = of_disks("in the device", &|disk| disk.in_device_ns as f64 / 1e6);
    work.extend(of_disks("window", &|disk| disk.window_ns as f64 / 1e6));

    vec![
        panel("Throughput by class", "MB/s", of_classes(&|class, sample| Some(per_s(class.bytes, sample)))),
        panel(
            "Latency by class, p99",
            "ms",
            of_classes(&|class, _| (class.requests > 0).then_some(class.p99_ns as f64 / 1e6)),
        ),
        panel("Pieces in the device", "pieces (mean)", of_disks("depth", &|disk| disk.mean_in_device)),
        panel("Device time in the device, and its window", "ms", work),
        panel("Capacity scale", "1 = the model", of_disks("scale", &|disk| disk.capacity_scale)),
    ]
}

fn at_s(sample: &Sample) -> f64 {
    sample.at_ns as f64 / 1e9
}
