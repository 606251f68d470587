//! `plimsoll demo`: shows the effect of scheduling on a query, on this disk, in a minute.

use std::path::PathBuf;

use clap::Args;
use plimsoll::backend::choose::BackendKind;
use plimsoll_figures::units::{format_bytes_binary, format_iops, format_throughput_decimal};
use plimsoll_measure::demo::{ClassLine, DemoOptions, DemoReport, Situation};
use plimsoll_measure::experiment::words::us;
use plimsoll_measure::load::Control;

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{BriefFormat, backend};
use crate::recording::Recording;
use crate::{interrupt, screen, tune};

/// See in a minute what scheduling does for a query while background work wants the whole disk
///
/// Measures the disk briefly, then runs 4 KiB random reads at a fixed rate (class query): alone, beside 4 x 32
/// outstanding 128 KiB reads and writes that are not scheduled (drained), and beside the same scheduled. Writes at most
/// 16 GiB of scratch data, and removes it.
#[derive(Args, Debug)]
pub(crate) struct DemoArguments {
    /// Directory on the disk to show
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,

    /// How requests reach the kernel [default: the best that this machine allows]
    #[arg(long, value_name = "NAME", value_parser = backend())]
    backend: Option<BackendKind>,

    /// Seed of positions and gaps
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Record the events of every request in this file (for `plimsoll trace`)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Overwrite the file of --trace
    #[arg(long, requires = "trace")]
    force: bool,

    /// Print every warning about the disk's figures
    #[arg(short, long)]
    verbose: bool,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = BriefFormat::Table)]
    format: BriefFormat,
}

pub(crate) fn run(arguments: &DemoArguments) -> Result<Outcome, Failure> {
    let options =
        DemoOptions { directory: arguments.directory.clone(), backend: arguments.backend, seed: arguments.seed };
    let control = Control::default();
    interrupt::stop_on_signal(&control.stop)?;
    control.instruments.serve("plimsoll demo");
    let recording = Recording::start(arguments.trace.as_deref(), arguments.force, &control.instruments)?;

    let shown = plimsoll_measure::demo::run(&options, &mut screen::Phases::quiet(), &control);
    let recorded = recording.end();
    let report = shown?;

    match arguments.format {
        BriefFormat::Table => screen::print(&text(&report, arguments.verbose))?,
        BriefFormat::Json => screen::print(&as_json(&report)?)?,
    }
    recorded?;

    if report.interrupted {
        screen::note("interrupted: the figures are of the time until then; scratch files are removed");
        return Ok(Outcome::Interrupted);
    }
    Ok(if report.silent_classes.is_empty() { Outcome::Done } else { Outcome::Finding })
}

/// Returns one sentence, the table, and then the details.
fn text(report: &DemoReport, verbose: bool) -> String {
    let mut text = String::new();
    let mut paragraph = |lines: &[String]| {
        if !lines.is_empty() {
            text.push_str(&lines.join("\n"));
            text.push_str("\n\n");
        }
    };

    let mut first: Vec<String> = report.sentence.iter().map(|sentence| screen::wrap(sentence)).collect();
    for silent in &report.silent_classes {
        let (class, situation, reason) = (&silent.class, &silent.situation, &silent.reason);
        first.push(screen::wrap(&format!("{class} moved nothing while {situation}: {reason}.")));
    }
    first.extend(report.doubts.iter().map(|doubt| screen::wrap(&format!("But {doubt}."))));
    paragraph(&first);

    if !report.situations.is_empty() {
        let rows = report.situations.iter().flat_map(rows).collect();
        let headers = ["", "class", "shares", "rate", "wanted", "got", "p50", "p99", "p99.9", "in device"];
        paragraph(&[
            "4 KiB random reads at a fixed rate (query) beside 4 x 32 outstanding 128 KiB reads and writes\n"
                .to_owned(),
            screen::table(&headers, rows),
        ]);
        paragraph(&[
            "each figure: the median of its slices; wanted, got: part of the device time, by the model;".to_owned(),
            "in device: mean number of requests".to_owned(),
        ]);
    }

    let mut details = vec![tune::table(&report.disk).trim_end().to_owned()];
    if let (Some(window_us), Some(scale)) = (report.window_us, report.capacity_scale) {
        let window = us(window_us);
        details.push(screen::wrap(&format!(
            "kept in the device by the closed loop: {window} of device time, at {scale:.2} x the rate of the model"
        )));
    }
    details.extend(report.latency_goal_binds.map(|price| screen::wrap(&price.sentence())));
    details.push(format!("written in all: {}", format_bytes_binary(report.written_bytes)));
    paragraph(&details);

    let warnings = &report.disk.warnings;
    let lines = match warnings.len() {
        0 => Vec::new(),
        _ if verbose => warnings.iter().map(|of| screen::wrap(&format!("warning: {}", of.message))).collect(),
        count => vec![format!("{count} warning(s) about this disk: --verbose")],
    };
    paragraph(&lines);

    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn rows(situation: &Situation) -> Vec<Vec<String>> {
    let line = |at: usize, line: &ClassLine| {
        let rate = match line.class.as_str() {
            "query" => format!("{}/s", format_iops(line.iops)),
            _ => format_throughput_decimal(line.throughput_bytes_per_s),
        };
        vec![
            if at == 0 { situation.name.clone() } else { String::new() },
            line.class.clone(),
            line.shares.to_string(),
            rate,
            format!("{:.1} %", line.share_wanted_pct),
            format!("{:.1} %", line.share_got_pct),
            us(line.latency.p50_us),
            us(line.latency.p99_us),
            us(line.latency.p99_9_us),
            format!("{:.1}", line.device_depth),
        ]
    };

    let mut rows: Vec<Vec<String>> = situation.classes.iter().enumerate().map(|(at, l)| line(at, l)).collect();
    let total = format_throughput_decimal(situation.throughput_bytes_per_s);
    rows.push(vec![String::new(), "all".to_owned(), String::new(), total]);
    rows
}
