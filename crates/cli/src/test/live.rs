//! The progress of a run: a bar, and a line for each job, refreshed in place on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll_figures::units::{format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_measure::load::{Instruments, LiveJob};

use crate::screen;

/// Time between two moves of the bar.
const TICK: Duration = Duration::from_millis(100);
/// Time between two updates of the jobs' lines.
const REFRESH: Duration = Duration::from_millis(500);
/// Most jobs that are shown, a line each.
const JOBS_MAX: usize = 20;
/// Most characters of a job's name that are shown.
const NAME_CHARS: usize = 20;
/// Most characters of the step that are shown: on 80 columns, the rest of the bar's row fits beside them.
const STEP_CHARS: usize = 56;
/// Columns of a terminal that does not report its size.
const COLUMNS: u16 = 80;

/// The place of a step in the whole command, by expected lengths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) done: Duration,
    pub(super) step: Duration,
    pub(super) whole: Duration,
}

/// Lines on a terminal. Dropping the view removes them.
pub(super) struct LiveView {
    // Drop this first, so that the thread waiting on it ends.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveView {
    /// If stderr is a terminal, shows `what`, and the jobs that `instruments` are attached to.
    pub(super) fn start(what: &str, span: Option<Span>, instruments: &Instruments) -> LiveView {
        if !std::io::stderr().is_terminal() {
            return LiveView { end: None, thread: None };
        }
        let (end, over) = channel::<()>();
        let what: String = screen::printable(what).chars().take(STEP_CHARS).collect();
        let instruments = instruments.clone();
        let thread = std::thread::spawn(move || show(what, span, &instruments, &over));
        LiveView { end: Some(end), thread: Some(thread) }
    }
}

/// Draws until `over` is closed, then removes the rows. All rows belong to one [`MultiProgress`]: separate rows would
/// overwrite each other.
fn show(what: String, span: Option<Span>, instruments: &Instruments, over: &Receiver<()>) {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let rows = MultiProgress::new();
    let bar = rows.add(match span {
        Some(span) => ProgressBar::new(millis(span.whole)).with_style(screen::bar_style()),
        None => row("{spinner} {wide_msg}"),
    });
    bar.set_message(what);

    let mut lines: Vec<ProgressBar> = Vec::new();
    let begin = Instant::now();
    let (mut before, mut then) = (instruments.live(), begin);
    loop {
        if let Some(span) = span {
            let passed = span.done + begin.elapsed().min(span.step);
            bar.set_position(millis(passed));
            bar.set_prefix(screen::left(Some(span.whole.saturating_sub(passed).as_secs_f64())));
        }
        bar.tick();
        if over.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            break;
        }

        let now = Instant::now();
        let since = now.duration_since(then);
        if since < REFRESH {
            continue;
        }
        let jobs = instruments.live();
        let columns = screen::size(std::io::stderr()).map_or(COLUMNS, |(columns, _)| columns);
        for (at, job) in jobs.iter().take(JOBS_MAX).enumerate() {
            if lines.len() <= at {
                lines.push(rows.add(row("{wide_msg}")));
            }
            if let Some(line) = lines.get(at) {
                line.set_message(text(job, before.get(at), since.as_secs_f64(), usize::from(columns)));
            }
        }
        (before, then) = (jobs, now);
    }
    lines.iter().for_each(ProgressBar::finish_and_clear);
    bar.finish_and_clear();
}

fn row(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // The thread only draws: its failure needs no report.
            let _ = thread.join();
        }
    }
}

/// Describes one job from two samples `seconds` apart, in `columns`. If there is no room, the last figures are left
/// out, but never failures.
fn text(job: &LiveJob, before: Option<&LiveJob>, seconds: f64, columns: usize) -> String {
    // Counters that fell belong to another run or job, which began at 0.
    let earlier = before.filter(|old| old.name == job.name && old.requests <= job.requests && old.bytes <= job.bytes);
    let (requests, bytes) = earlier.map_or((0, 0), |old| (old.requests, old.bytes));
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let name: String = screen::printable(&job.name).chars().take(NAME_CHARS).collect();
    let errors = if job.errors > 0 { format!("  {} failed", job.errors) } else { String::new() };
    let iops = format_iops(rate(job.requests - requests));
    let throughput = format_throughput_decimal(rate(job.bytes - bytes));

    let mut text = format!("{name:NAME_CHARS$} {iops:>10} IOPS {throughput:>12}");
    let more = [
        format!("  p50 {:>8}", format_duration_ns(job.latency_p50_ns)),
        format!("  p99 {:>8}", format_duration_ns(job.latency_p99_ns)),
        format!("  queue {:>5}", job.in_queue),
        format!("  disk {:>4}", job.in_device),
    ];
    for part in more {
        if text.chars().count() + part.len() + errors.len() > columns {
            break;
        }
        text.push_str(&part);
    }
    text + &errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rates_since_the_last_look() {
        let at = |requests: u64| LiveJob {
            name: "reads".to_owned(),
            requests,
            bytes: requests * 4096,
            in_queue: 12,
            in_device: 4,
            latency_p50_ns: 90_000,
            latency_p99_ns: 1_500_000,
            ..LiveJob::default()
        };
        let line = text(&at(3_000), Some(&at(1_000)), 0.5, 120);
        for part in ["reads", "4,000", "IOPS", "16.4 MB/s", "queue    12", "disk    4"] {
            assert!(line.contains(part), "no `{part}` in {line}");
        }
        assert!(line.chars().count() <= 110 && !line.contains("failed"));
        // Counters of a run that began again, and an interval of 0 s.
        assert!(text(&at(500), Some(&at(1_000)), 0.5, 120).contains("1,000"));
        assert!(text(&LiveJob { errors: 3, ..at(1) }, None, 0.0, 120).contains("3 failed"));

        // A narrow terminal: whole figures only, and failures rather than the last figures.
        let failed = LiveJob { errors: 3, ..at(3_000) };
        let narrow = [text(&at(3_000), None, 0.5, 80), text(&failed, None, 0.5, 80)];
        assert!(narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:?}");
        assert!(narrow[0].ends_with("1.50 ms") && narrow[1].ends_with("3 failed"), "{narrow:?}");
    }
}
