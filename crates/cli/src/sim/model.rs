//! `plimsoll sim fit` and `plimsoll sim surface`: from measured latencies to a disk model, and its quality.

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll_figures::units::{format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_files::csv::surface_from_file;
use plimsoll_files::disk::{self, DiskModel};
use plimsoll_measure::sim::report;
use plimsoll_measure::sim::surface::{self, Surface};
use plimsoll_sim::fit::{Fit, fit as fit_cells};

use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::output::{Output, refuse_input};
use crate::screen;

/// Make a disk model from a measured surface of read latencies
///
/// The surface is CSV with the columns write_MBps, read_iops, p50_ms, p95_ms, a line for each measured cell.
#[derive(Args, Debug)]
pub(crate) struct FitArguments {
    /// The measured surface
    #[arg(value_name = "SURFACE.csv")]
    surface: PathBuf,

    /// Write the model to this file (`-`: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite an existing output file
    #[arg(long)]
    force: bool,
}

pub(crate) fn fit(arguments: &FitArguments) -> Result<Outcome, Failure> {
    let cells = surface_from_file(&arguments.surface)?;
    let place = arguments.surface.display();
    let fit = fit_cells(&cells).map_err(|error| Failure::Input(format!("{place}: {error}")))?;
    let mut model = DiskModel::of_fit(&fit);
    model.name = arguments.surface.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let yaml = disk::write(&model);

    match arguments.output.as_deref() {
        Some(path) if path == Path::new("-") => {
            screen::print(&yaml)?;
            screen::note(&fit_text(&fit));
            return Ok(Outcome::Done);
        }
        Some(path) => {
            refuse_input(path, "--output", &arguments.surface)?;
            Output::check(path, arguments.force, "--output")?.write(&yaml)?;
            screen::note(&format!("wrote {}", path.display()));
        }
        None => screen::note("no --output: the model is not written"),
    }

    screen::print(&fit_text(&fit))?;
    Ok(Outcome::Done)
}

fn fit_text(fit: &Fit) -> String {
    let frontier = &fit.frontier;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("cells", fit.cells.to_string()),
        row("reads without writes", format!("{} IOPS", format_iops(frontier.read_iops))),
        row("writes without reads", format_throughput_decimal(frontier.write_bytes_per_s)),
        row("mix exponent p", format!("{:.3}", frontier.mix_exponent)),
        row("cells on the frontier", frontier.points.to_string()),
        row("their distance from the curve (rms)", format!("{:.1} %", frontier.rmse * 100.0)),
        row("median read on the idle disk", format_duration_ns(fit.spec.latency.read_ns.round() as u64)),
    ];

    if let Some(clip_ns) = fit.clip_ns {
        rows.push(row("highest latency recorded", format_duration_ns(clip_ns.round() as u64)));
    }

    let mut text = screen::table(&["frontier: (r/R)^p + (w/W)^p = 1", ""], rows);
    for note in &fit.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text.push('\n');
    text
}

/// Simulate read latency under load, on a grid or at measured cells
///
/// Each cell is a rate of 4 KiB reads beside a rate of 128 KiB writes, sent to the simulated disk without a scheduler.
#[derive(Args, Debug)]
pub(crate) struct SurfaceArguments {
    /// The disk: a disk file with a section `device:`, or the name of a preset
    #[arg(long, value_name = "FILE|PRESET")]
    disk: String,

    /// Simulate the cells of this measured surface, and compare
    #[arg(long, value_name = "SURFACE.csv")]
    compare: Option<PathBuf>,

    /// Seed of positions and times
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(crate) fn surface(arguments: &SurfaceArguments) -> Result<Outcome, Failure> {
    let model = disk::find(&arguments.disk, Path::new(""))?;
    let Some(spec) = &model.device else {
        return Err(Failure::Input(format!(
            "{}: there is no section `device:`, which a simulated disk needs; `plimsoll sim fit` makes one of a surface",
            arguments.disk
        )));
    };

    let cells = match &arguments.compare {
        Some(path) => surface_from_file(path)?,
        None => surface::grid(&model),
    };
    let surface = surface::run(spec, &cells, arguments.compare.is_some(), arguments.seed)
        .map_err(|error| Failure::Input(format!("{}: device: {error}", arguments.disk)))?;

    let json = report::surface_json(&surface);
    arguments.format.print(|| surface_text(&surface), &json, || report::surface_csv(&surface))?;
    if let (ReportFormat::Csv, Some(text)) = (arguments.format, errors_text(&surface)) {
        screen::note(&text);
    }
    Ok(Outcome::Done)
}

fn surface_text(surface: &Surface) -> String {
    let is_measured = surface.comparison.is_some();
    let us = |ns: f64| format_duration_ns(ns.round() as u64);
    let rows = surface.results.iter().map(|result| {
        let cell = &result.cell;
        let mut row = vec![format_throughput_decimal(cell.write_bytes_per_s), format_iops(cell.read_iops)];
        if is_measured {
            row.extend([us(cell.p50_ns), us(cell.p95_ns)]);
        }
        row.extend([us(result.model_p50_ns), us(result.model_p95_ns)]);
        if is_measured {
            row.push(format!("{:+.1} %", (result.model_p50_ns / cell.p50_ns - 1.0) * 100.0));
        }
        row.push(if result.saturated { "saturated".to_owned() } else { String::new() });
        row
    });

    let headers: &[&str] = if is_measured {
        &["writes", "read IOPS", "p50", "p95", "model p50", "model p95", "p50 error", ""]
    } else {
        &["writes", "read IOPS", "model p50", "model p95", ""]
    };

    let mut text = screen::table(headers, rows.collect());
    text.push('\n');
    if let Some(errors) = errors_text(surface) {
        text.push_str(&format!("\n{errors}\n"));
    }
    text
}

fn errors_text(surface: &Surface) -> Option<String> {
    let comparison = surface.comparison.as_ref()?;
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    Some(format!(
        "{} cells. Where neighbouring cells agree within 2 x ({}): error of p50 mean {}, 95th percentile {}; of p95 \
         mean {}.\nElsewhere ({}): {} outside the range of their neighbours +- 20 %. {} saturated.",
        surface.results.len(),
        comparison.qualifying,
        percent(comparison.p50_error_mean),
        percent(comparison.p50_error_p95),
        percent(comparison.p95_error_mean),
        comparison.elsewhere,
        comparison.outside,
        comparison.saturated
    ))
}
