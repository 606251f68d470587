//! The progress of a run: a bar, and a line for each job, refreshed in place on a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll_figures::units::{format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_measure::load::{Instruments, LiveJob};

use crate::screen::TimedBar;

/// Time between two refreshes.
const REFRESH: Duration = Duration::from_millis(500);
/// Most jobs that are shown, a line each.
const JOBS_MAX: usize = 20;
/// Characters of a job's name that are shown.
const NAME_CHARS: usize = 20;

/// Lines on a terminal; dropping them removes them.
pub(super) struct LiveView {
    // Drop this first, so that the thread waiting on it ends.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _bar: TimedBar,
}

impl LiveView {
    /// Shows `what`, and the jobs that `instruments` are attached to, if there are any and stderr is a terminal.
    pub(super) fn start(what: &str, expected: Option<Duration>, instruments: &Instruments) -> LiveView {
        let bar = TimedBar::start(what, expected);
        if !std::io::stderr().is_terminal() {
            return LiveView { end: None, thread: None, _bar: bar };
        }

        let (end, over) = channel::<()>();
        let instruments = instruments.clone();
        let thread = std::thread::spawn(move || {
            let screen = MultiProgress::new();
            let mut lines: Vec<ProgressBar> = Vec::new();
            let (mut before, mut then) = (instruments.live(), Instant::now());
            while over.recv_timeout(REFRESH) == Err(RecvTimeoutError::Timeout) {
                let (now, jobs) = (Instant::now(), instruments.live());
                let seconds = now.duration_since(then).as_secs_f64();
                for (at, job) in jobs.iter().take(JOBS_MAX).enumerate() {
                    if lines.len() <= at {
                        let style = ProgressStyle::with_template("{msg}");
                        let line = ProgressBar::new_spinner()
                            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                        lines.push(screen.add(line));
                    }
                    if let Some(line) = lines.get(at) {
                        line.set_message(text(job, before.get(at), seconds));
                        line.tick();
                    }
                }
                (before, then) = (jobs, now);
            }
            lines.iter().for_each(ProgressBar::finish_and_clear);
        });
        LiveView { end: Some(end), thread: Some(thread), _bar: bar }
    }
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

/// Describes one job from two samples `seconds` apart.
fn text(job: &LiveJob, before: Option<&LiveJob>, seconds: f64) -> String {
    // Counters that fell are those of another run or job, which began at 0.
    let earlier = before.filter(|old| old.name == job.name && old.requests <= job.requests && old.bytes <= job.bytes);
    let (requests, bytes) = earlier.map_or((0, 0), |old| (old.requests, old.bytes));
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let name: String = job.name.chars().take(NAME_CHARS).collect();
    let errors = if job.errors > 0 { format!("  {} failed", job.errors) } else { String::new() };
    format!(
        "{name:NAME_CHARS$} {:>10} IOPS {:>12}  p50 {:>8}  p99 {:>8}  queue {:>5}  disk {:>4}{errors}",
        format_iops(rate(job.requests - requests)),
        format_throughput_decimal(rate(job.bytes - bytes)),
        format_duration_ns(job.latency_p50_ns),
        format_duration_ns(job.latency_p99_ns),
        job.in_queue,
        job.in_device,
    )
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
        let line = text(&at(3_000), Some(&at(1_000)), 0.5);
        for part in ["reads", "4,000", "IOPS", "16.4 MB/s", "queue    12", "disk    4"] {
            assert!(line.contains(part), "no `{part}` in {line}");
        }
        assert!(line.chars().count() <= 110 && !line.contains("failed"));
        // Counters of a run that began anew, and an interval of 0 s.
        assert!(text(&at(500), Some(&at(1_000)), 0.5).contains("1,000"));
        assert!(text(&LiveJob { errors: 3, ..at(1) }, None, 0.0).contains("3 failed"));
    }
}
