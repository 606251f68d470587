//! `plimsoll demo`: what scheduling does for a query, on this disk, in a minute.

use std::path::PathBuf;

use clap::Args;
use plimsoll::backend::choose::BackendKind;
use plimsoll_tools::demo::{ClassLine, DemoError, DemoOptions, DemoReport, Situation};
use plimsoll_tools::load::Control;
use plimsoll_tools::units::{format_bytes_binary, format_duration_ns, format_iops, format_throughput_decimal};

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::BriefFormat;
use crate::recording::Recording;
use crate::{interrupt, screen, tune};

/// See in a minute what scheduling does for a query while background work wants the whole disk
///
/// Measures the disk briefly, then runs 4 KiB random reads at a fixed rate (class query) alone, beside 4 x 32 outstanding
/// 128 KiB reads and writes sent as they come (drained), and beside the same scheduled. Writes at most 8 GiB of scratch
/// data, and removes it.
#[derive(Args, Debug)]
pub(crate) struct DemoArguments {
    /// Directory on the disk to show
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,

    /// uring, aio, pool, memory or null [default: the best that this machine allows]
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendKind>,

    /// Seed of positions and gaps
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Record what happens to every request here (for `plimsoll trace`)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Write over the file of --trace
    #[arg(long, requires = "trace")]
    force: bool,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = BriefFormat::Table)]
    format: BriefFormat,
}

pub(crate) fn run(arguments: &DemoArguments) -> Result<Outcome, Failure> {
    let options =
        DemoOptions { directory: arguments.directory.clone(), backend: arguments.backend, seed: arguments.seed };
    let control = Control::default();
    interrupt::stop_on_signal(&control)?;
    control.serve("plimsoll demo");
    let recording = Recording::start(arguments.trace.as_deref(), arguments.force, &control)?;
    let mut progress = screen::Phases::quiet();
    let shown = plimsoll_tools::demo::run(&options, &mut progress, &control);
    progress.finish();
    let recorded = recording.end();
    let report = match shown {
        Err(DemoError::Interrupted(disk)) => {
            // As JSON it would not be what docs/formats.md says.
            if arguments.format == BriefFormat::Table {
                screen::print(&tune::table(&disk))?;
            }
            screen::note("interrupted while measuring the disk; scratch files are removed");
            return Ok(Outcome::Interrupted);
        }
        other => other?,
    };
    match arguments.format {
        BriefFormat::Table => screen::print(&text(&report))?,
        BriefFormat::Json => screen::print(&as_json(serde_json::to_string_pretty(&report))?)?,
    }
    recorded?;
    if report.interrupted {
        screen::note("interrupted: the figures are of the time until then; scratch files are removed");
        return Ok(Outcome::Interrupted);
    }
    Ok(Outcome::Done)
}

fn text(report: &DemoReport) -> String {
    let mut text = format!("The disk\n\n{}", tune::table(&report.disk));
    let enough =
        if report.window_is_wide_enough { "the narrowest tried that gives" } else { "the widest tried, short of" };
    text.push_str(&format!(
        "reads and writes together: (r/R)^p + (w/W)^p = 1 with p = {:.2}\n\
         kept in the device: {} of device time, {enough} 90 % of the drained rate\n\n",
        report.mix_exponent,
        format_duration_ns((report.window_us * 1e3) as u64)
    ));
    text.push_str("4 KiB random reads at a fixed rate (query) beside 4 x 32 outstanding 128 KiB reads and writes\n\n");
    let rows = report.situations.iter().flat_map(rows).collect();
    let headers = ["", "class", "shares", "rate", "wanted", "got", "p50", "p99", "p99.9", "in device"];
    text.push_str(&screen::table(&headers, rows));
    text.push_str("\n\nwanted, got: part of the device time, by the model; in device: mean number of requests\n");
    text.push_str(&format!("written: {}\n", format_bytes_binary(report.written_bytes)));
    if let Some(sentence) = &report.sentence {
        text.push_str(&format!("\n{}\n", screen::wrap(sentence)));
    }
    text
}

fn rows(situation: &Situation) -> Vec<Vec<String>> {
    let us = |us: f64| format_duration_ns((us * 1e3) as u64);
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
