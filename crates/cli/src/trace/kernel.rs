//! `plimsoll trace kernel`: records the kernel's block events, and lays them beside a program's own trace.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use plimsoll_figures::units::{format_bytes_decimal, format_count, format_duration_ns};
use plimsoll_measure::load::Stop;
use plimsoll_observe::trace::beside::{self, BesideError, BesideReport, Stage};
use plimsoll_observe::trace::kernel::record::{self, Place, RecordError, Recorded};
use plimsoll_show::table::Column;
use serde_json::json;

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{ReportFormat, nanos, time_within};
use crate::interrupt;
use crate::output::Output;
use crate::screen;

/// Version of the JSON about a recording.
const SCHEMA: u32 = 1;

/// Record the kernel's block events of a device, without blktrace; or lay such a trace beside a program's own
///
/// Records through tracefs until --duration is over or Ctrl-C, then restores the kernel's tracing. The file has
/// blktrace's format: the other `trace` commands and blkparse read it. With --beside, records nothing, and shows how
/// long the scheduler, the kernel and the device had the requests of the program's trace.
#[derive(Args, Debug)]
pub(crate) struct KernelArguments {
    /// The device or partition, or a file or directory on it; with --beside, the kernel's trace
    #[arg(value_name = "DEVICE|TRACE")]
    target: PathBuf,

    /// How long to record: seconds, or with a unit (500ms, 2m) [default: until Ctrl-C]
    #[arg(long, value_name = "TIME",
          value_parser = time_within(Duration::from_nanos(1), Duration::from_secs(365 * 86_400)))]
    duration: Option<Duration>,

    /// File of the trace [default: the target's name with .blktrace, in the working directory]
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,

    /// The program's own trace of the same time (`--trace FILE`): lay both side by side
    #[arg(long, value_name = "OWN", conflicts_with_all = ["duration", "output", "force"])]
    beside: Option<PathBuf>,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(super) fn run(arguments: &KernelArguments) -> Result<Outcome, Failure> {
    match &arguments.beside {
        Some(own) => lay_beside(own, &arguments.target, arguments.format),
        None => record(arguments),
    }
}

fn record(arguments: &KernelArguments) -> Result<Outcome, Failure> {
    let path = arguments.output.clone().unwrap_or_else(|| {
        let mut name = arguments.target.file_name().unwrap_or(arguments.target.as_os_str()).to_owned();
        name.push(".blktrace");
        PathBuf::from(name)
    });

    Output::check(&path, arguments.force, "--output")?;
    let place = Place::find().map_err(failure)?;
    let stop = Stop::default();
    interrupt::stop_on_signal(&stop)?;
    let begin = Instant::now();
    let is_over = || arguments.duration.is_some_and(|duration| begin.elapsed() >= duration);
    let mut file = Late { path: &path, force: arguments.force, file: None };
    let mut goes_on = || !stop.is_asked() && !is_over();
    let recorded = record::record(&arguments.target, &place, &mut file, &mut goes_on).map_err(failure)?;

    let is_interrupted = arguments.duration.is_some() && !is_over();
    file.flush().map_err(|error| Failure::Machine(format!("cannot write {}: {error}", path.display())))?;
    let told = tell(&recorded, &path, begin.elapsed(), arguments.format)?;
    screen::print(&told)?;
    Ok(if is_interrupted { Outcome::Interrupted } else { Outcome::Done })
}

/// A file that is created at its first byte, after all checks.
struct Late<'a> {
    path: &'a Path,
    force: bool,
    file: Option<BufWriter<File>>,
}

impl Write for Late<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                options.write(true).create(self.force).truncate(self.force).create_new(!self.force);
                BufWriter::with_capacity(1 << 20, options.open(self.path)?)
            }
        };
        self.file.insert(file).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

fn failure(error: RecordError) -> Failure {
    match error {
        RecordError::NoDevice(..) => Failure::Input(error.to_string()),
        other => Failure::Machine(other.to_string()),
    }
}

fn line(recorded: &Recorded, path: &Path, time: Duration) -> String {
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut text = format!(
        "{}: {} events in {} written to {} ({})",
        recorded.disk,
        format_count(recorded.events),
        format_duration_ns(nanos(time)),
        path.display(),
        format_bytes_decimal(bytes)
    );
    if recorded.lost_events > 0 {
        let lost = format_count(recorded.lost_events);
        text += &format!("; {lost} events more did not fit into the kernel's buffer");
    }
    if !recorded.is_monotonic {
        text += "; its clock is the kernel's own, so it cannot be laid beside a program's trace";
    }
    text + &format!("; blkparse reads it with `blkparse -i - < {}`", path.display())
}

fn tell(recorded: &Recorded, path: &Path, time: Duration, format: ReportFormat) -> Result<String, Failure> {
    let Recorded { disk, events, lost_events, is_monotonic } = recorded;
    let (time_ns, path_text) = (nanos(time), path.display().to_string());
    Ok(match format {
        ReportFormat::Table => screen::wrap(&line(recorded, path, time)),
        ReportFormat::Json => as_json(&json!({
            "schema": SCHEMA,
            "disk": disk,
            "file": path_text,
            "duration_ns": time_ns,
            "events": events,
            "lost_events": lost_events,
            "is_monotonic": is_monotonic,
        }))?,
        ReportFormat::Csv => {
            let head = "disk,duration_ns,events,lost_events,is_monotonic";
            format!("{head}\n{disk},{time_ns},{events},{lost_events},{is_monotonic}\n")
        }
    })
}

fn lay_beside(own: &Path, kernel: &Path, format: ReportFormat) -> Result<Outcome, Failure> {
    let report = beside::beside(own, kernel).map_err(|error| match error {
        BesideError::Read(..) | BesideError::Unsuitable(_) => Failure::Input(error.to_string()),
    })?;
    report.lost.iter().for_each(|sentence| screen::warning(sentence));
    format.print(|| table(&report), &report, || report.to_csv())?;
    Ok(if report.matched == 0 { Outcome::Finding } else { Outcome::Done })
}

/// Returns the description of a stage, in the order of a request's path.
fn meaning(name: &str) -> &'static str {
    match name {
        "scheduler" => "scheduler: queued to dispatched",
        "submit" => "submit: dispatched to the kernel's Q",
        "kernel_queue" => "kernel queue: Q to D",
        "device" => "device: D to C",
        "unseen" => "unseen: C to seen by the shard",
        "reaping" => "reaping: seen to told",
        _ => "all",
    }
}

fn table(report: &BesideReport) -> String {
    let BesideReport {
        own_requests, matched, in_parts, merged, by_time_alone, unmatched, foreign, not_compared, ..
    } = report;
    let mut head = format!(
        "{} of {} reads and writes found in the kernel's trace",
        format_count(*matched),
        format_count(*own_requests)
    );

    let counts = [
        (in_parts, "in several parts"),
        (merged, "as part of a longer one"),
        (by_time_alone, "by time and length alone"),
        (unmatched, "not found"),
        (not_compared, "other requests not compared"),
        (foreign, "requests of the kernel that are none of ours"),
    ];
    for (count, what) in counts.iter().filter(|(count, _)| **count > 0) {
        head += &format!("; {} {what}", format_count(**count));
    }

    let mut parts = vec![screen::wrap(&head)];
    if !report.stages.is_empty() {
        let headers = ["where", "mean", "p50", "p99", "max", "of all"];
        parts.push(screen::table(&headers, report.stages.iter().map(row).collect()));
    }
    if !report.shifts.is_empty() {
        const COLUMNS: &[Column<beside::Shift>] = &[
            ("file", |it| it.file.clone()),
            ("disk", |it| it.disk.clone()),
            ("file begins at byte", |it| it.shift_bytes.to_string()),
            ("requests", |it| format_count(it.requests)),
        ];
        parts.push(screen::columns(report.shifts.iter().take(8), COLUMNS));
    }
    parts.join("\n\n")
}

fn row(stage: &Stage) -> Vec<String> {
    let Stage { name, mean_ns, p50_ns, p99_ns, max_ns, share_pct } = stage;
    let times = [*mean_ns as u64, *p50_ns, *p99_ns, *max_ns].map(format_duration_ns);
    [vec![meaning(name).to_owned()], times.to_vec(), vec![format!("{share_pct:.1} %")]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_how_blkparse_reads_the_file() {
        let recorded = Recorded { disk: "vda".to_owned(), events: 7, lost_events: 0, is_monotonic: true };
        let text = line(&recorded, Path::new("vda.blktrace"), Duration::from_secs(1));
        assert!(text.ends_with("; blkparse reads it with `blkparse -i - < vda.blktrace`"), "{text}");
    }
}
