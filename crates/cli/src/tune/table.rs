//! A report of `tune` as text: the disk's figures on one screen.

use plimsoll_figures::units::{format_bytes_binary, format_count, format_duration_ns, format_iops};
use plimsoll_files::depths;
use plimsoll_measure::tune::pictures::answer;
use plimsoll_measure::tune::{BlockSize, DepthCurve, Figure, OperationCost, TuneReport, UnloadedLatency};

use crate::screen;

/// Returns the disk in a few lines, and the facts beyond the four figures; `demo` prints it too.
pub(crate) fn table(report: &TuneReport) -> String {
    let disk = report.site.device.as_ref().map_or_else(|| "unknown device".to_owned(), |device| device.name.clone());
    let (mountpoint, file_system) = (&report.site.mountpoint, &report.site.file_system);
    let kind = if file_system.is_empty() { disk } else { format!("{disk}, {file_system}") };
    let backend = &report.backend;
    let mut text = screen::answer(&answer(report));
    text += &screen::wrap(&format!(
        "{mountpoint} ({kind}), {} shard(s), backend {} ({})",
        report.shards, backend.name, backend.reason
    ));
    text.push_str("\n\n");

    let rows = report.figures().map(|(_, name, it)| figure(name, it)).to_vec();
    text.push_str(&screen::table(&["", "figure", "95 % interval", "deviation", "size", "depth", "CPU"], rows));

    text.push_str("\n\n");
    text + &screen::paragraphs(lines(report))
}

fn figure(name: &str, figure: &Option<Figure>) -> Vec<String> {
    let Some(f) = figure else { return vec![name.to_owned(), "not measured".to_owned()] };
    let value = f.unit.text(f.value);
    // A single sample has no scatter.
    let (interval, deviation) = match f.samples.len().saturating_sub(f.settled_at) {
        0 | 1 => ("unknown".to_owned(), "unknown".to_owned()),
        _ => (f.interval_text(), format!("{:.1} %", f.deviation_pct)),
    };
    vec![
        name.to_owned(),
        value,
        interval,
        deviation,
        format_bytes_binary(u64::from(f.block_bytes)),
        f.depth.to_string(),
        format!("{:.0} %", f.cpu_busy_pct),
    ]
}

/// Returns the facts beyond the four figures, a line each.
fn lines(report: &TuneReport) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(cut_short(report));
    lines.extend(latency("read", &report.read_latency));
    lines.extend(latency("write", &report.write_latency));
    lines.extend(knee("read", &report.read_depths));
    lines.extend(knee("write", &report.write_depths));

    if let Some(apart) = &report.limits_apart {
        lines.push(format!(
            "operations and bytes are limited apart, as on cloud volumes: rates by size are within {:.0} % of that, and up to \
             {:.0} % off a single budget (model: max)",
            apart.error_pct, apart.knee_error_pct
        ));
    }
    if let Some(frontier) = &report.frontier {
        let measured = report.limits_apart.map_or(frontier.mix_exponent_p, |apart| apart.mix_exponent_p);
        let p = measured.map_or_else(|| "infinite".to_owned(), |p| format!("{p:.2}"));
        lines.push(format!(
            "reads beside writes: mix exponent {p} (1: each takes from the other in proportion; above 1 less, below 1 more)"
        ));
    }
    if let Some(block) = &report.physical_block {
        let reported = block.reported_bytes.map_or_else(|| "none".to_owned(), |bytes| format!("{bytes} bytes"));
        let shifted = block
            .misalignment_factor
            .filter(|factor| *factor > 1.05)
            .map_or_else(String::new, |factor| format!("; 4 KiB writes off their boundary: {factor:.2} times slower"));
        lines.push(format!("physical block: {}; the kernel reports {reported}{shifted}", block.words()));
    }

    let saturation = |curve: &Option<plimsoll_measure::tune::SequentialCurve>| {
        let bytes = curve.as_ref()?.saturation_bytes?;
        Some(format_bytes_binary(u64::from(bytes)))
    };
    if let (Some(read), Some(write)) = (saturation(&report.read_sequential), saturation(&report.write_sequential)) {
        lines.push(format!("saturation length: reads {read}, writes {write}"));
    }
    lines.extend(operation("flush", &report.flush));
    lines.extend(operation("discard", &report.discard));

    for (blocks, verdict) in [(true, "blocks"), (false, "does not block")] {
        let costs = report.submissions.iter().filter(|cost| cost.blocks == blocks);
        let kinds: Vec<&str> = costs.map(|cost| cost.kind.as_str()).collect();
        if !kinds.is_empty() {
            lines.push(format!("submitting {verdict} the thread: {}", kinds.join(", ")));
        }
    }

    let curves = [("random reads", &report.read_depths), ("random writes", &report.write_depths)];
    lines.extend(
        curves
            .into_iter()
            .filter_map(|(what, curve)| depths::sentence(what, &depths::prices(&curve.as_ref()?.rates()))),
    );
    if let Some(mode) = &report.depth_mode {
        lines.push(format!(
            "for --mode depth: --num-io-queues {} --max-io-requests {} ({})",
            mode.num_io_queues, mode.max_io_requests, mode.reason
        ));
    }
    if let Some(line) = &report.iocost_model {
        lines.push(format!("io.cost.model (in JSON as one line, `iocost_model`): {line}"));
    }

    if let Some(state) = &report.steady_state {
        let verdict = if state.attained { "reached" } else { "not reached" };
        lines.push(format!("steady state: {verdict} in {} rounds", state.rounds));
    }

    if let Some(merged) = &report.merged {
        lines.push(format!("merged from {} runs", merged.runs.len()));
        for out in &merged.left_out {
            let (value, median) = (format_count(out.value.round() as u64), format_count(out.median.round() as u64));
            lines.push(format!("left out: {} of {}, {value} where the median is {median}", out.figure, out.run));
        }
    }

    let block = |of: &BlockSize| format!("{} ({})", format_bytes_binary(u64::from(of.bytes)), of.how);
    lines.push(format!("read block: {}; write block: {}", block(&report.read_block), block(&report.write_block)));
    lines.push(format!("written: {} in {:.1} s", format_bytes_binary(report.written_bytes), report.duration_s));
    lines
}

/// Returns a line with the figures whose phase ended early.
fn cut_short(report: &TuneReport) -> Option<String> {
    let is_cut = |figure: &Option<Figure>| figure.as_ref().is_some_and(|figure| !figure.complete);
    let cut: Vec<&str> = report.figures().into_iter().filter(|(.., it)| is_cut(it)).map(|(_, name, _)| name).collect();
    (!cut.is_empty()).then(|| format!("measured for less than its time, so less certain: {}", cut.join(", ")))
}

fn latency(name: &str, latency: &Option<UnloadedLatency>) -> Option<String> {
    let latency = latency.as_ref()?;
    let size = format_bytes_binary(u64::from(latency.block_bytes));
    let (p50, p99) = (format_duration_ns(latency.p50_ns), format_duration_ns(latency.p99_ns));
    Some(format!("one {size} {name} at a time: p50 {p50}, p99 {p99}"))
}

fn knee(name: &str, curve: &Option<DepthCurve>) -> Option<String> {
    let knee = curve.as_ref()?.knee?;
    let (iops, p50) = (format_iops(knee.iops), format_duration_ns(knee.p50_ns));
    Some(format!(
        "knee of random {name}s (deeper, a doubling brings < 25 %): depth {}, {iops} IOPS at p50 {p50}",
        knee.depth
    ))
}

fn operation(name: &str, cost: &Option<OperationCost>) -> Option<String> {
    let cost = cost.as_ref()?;
    let (p50, p99) = (format_duration_ns(cost.p50_ns), format_duration_ns(cost.p99_ns));
    Some(format!("{name}: p50 {p50}, p99 {p99} ({})", cost.what))
}
