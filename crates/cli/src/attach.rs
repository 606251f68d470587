//! `plimsoll attach`: inspects and changes a running program.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use plimsoll::control::{
    ClassState, Client, ClientError, DiskState, Hello, Mode, Percentiles, Recent, Request, Snapshot, WindowLimit,
};
use plimsoll::core::WaitReason;
use plimsoll_figures::units::{format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_observe::attach::{self, AttachError, AttachReport, Setting};
use plimsoll_show::table::Column;

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{BriefFormat, time_within};
use crate::interrupt::Interrupt;
use crate::{recording, screen};

/// Columns that a narrow terminal leaves out, in this order: shares seldom change, and queueing shows in the latencies.
const EXPENDABLE: [&str; 2] = ["shares", "queued"];

/// Meanings of a view's columns. Together they fit a line of 80 columns.
const LEGEND: [(&[&str], &str); 3] =
    [(&["queued", "disk"], "now"), (&["p50", "p99"], "of whole requests"), (&["waits"], "why most were queued")];

/// See what a running program's classes do and wait for, and change shares, limits and mode while it runs
///
/// Attaches to programs that use the library and serve a control socket, among them `plimsoll test`, `demo` and `tune`.
/// Only their owner and root may attach. Without an argument, lists these programs. On a terminal the view is live
/// until Ctrl-C; otherwise, and with --once, it is printed once. Changes remain when the view ends; a trace ends.
#[derive(Args, Debug)]
pub(crate) struct AttachArguments {
    /// Process ID, or path of its control socket
    #[arg(value_name = "PID|SOCKET")]
    target: Option<String>,

    /// Print the view once
    #[arg(long, requires = "target")]
    once: bool,

    /// Change a class: shares, limit_iops, limit_bandwidth, or limit_read_iops, limit_write_bandwidth and so on
    /// (a number, or `unlimited`)
    #[arg(long = "set", value_name = "CLASS.SETTING=VALUE", requires = "target")]
    settings: Vec<Setting>,

    /// Change the mode: scheduled, drain (requests are not held back), or depth:N (at most N requests in flight)
    #[arg(long, value_name = "MODE", requires = "target", value_parser = attach::parse_mode)]
    mode: Option<Mode>,

    /// Record the events of every request in this file until the view ends (for `plimsoll trace`); it must not exist.
    /// The program writes at most 1 GiB beside its socket; the record is moved here when the view ends
    #[arg(long, value_name = "FILE", requires = "target")]
    trace: Option<PathBuf>,

    /// Interval over which rates and latencies are measured: seconds, or with a unit
    #[arg(long, default_value = "1s", value_name = "TIME",
          value_parser = time_within(Duration::from_millis(50), Duration::from_secs(3600)))]
    interval: Duration,

    /// Format of the result; JSON is printed once
    #[arg(long, value_enum, default_value_t = BriefFormat::Table)]
    format: BriefFormat,
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Failure {
        let message = error.to_string();
        match error {
            AttachError::Client(error) => error.into(),
            _ => Failure::Input(message),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let message = error.to_string();
        match error {
            ClientError::NotServed { .. } | ClientError::NotPlimsoll { .. } | ClientError::Refused { .. } => {
                Failure::Input(message)
            }
            _ => Failure::Machine(message),
        }
    }
}

pub(crate) fn run(arguments: &AttachArguments) -> Result<Outcome, Failure> {
    let Some(target) = &arguments.target else { return list(arguments.format) };
    let socket = attach::socket(target)?;

    let mut client = Client::connect(&socket)?;
    // Refuse a misspelled class before the trace starts.
    attach::requests(client.hello(), &arguments.settings)?;
    let interrupt = Interrupt::on_signal()?;
    let trace = arguments.trace.as_deref().map(|path| Trace::start(&mut client, &socket, path)).transpose()?;

    let changes = attach::describe(client.hello(), &arguments.settings);
    let changed = attach::apply(&mut client, &arguments.settings, arguments.mode);
    if let Err(error) = changed {
        trace.iter().try_for_each(|trace| trace.end(&mut client))?;
        return Err(error.into());
    }

    let is_live = !arguments.once && arguments.format == BriefFormat::Table && std::io::stdout().is_terminal();
    // A live view would erase the lines, so they are printed after it.
    let tell_changes = || changes.iter().for_each(|change| screen::note(change));
    let shown = if is_live {
        let shown = live(&mut client, arguments, &interrupt);
        tell_changes();
        shown
    } else {
        tell_changes();
        once(&mut client, arguments, &interrupt)
    };
    trace.iter().try_for_each(|trace| trace.end(&mut client))?;
    shown
}

/// A record that the program writes beside its socket. At the end it is moved to the user's file.
struct Trace {
    /// Path of the record while the program writes it, as this process sees it.
    from: PathBuf,
    /// The user's file. Created at the beginning, so that no existing file is overwritten.
    to: PathBuf,
}

impl Trace {
    fn start(client: &mut Client, socket: &Path, to: &Path) -> Result<Trace, Failure> {
        File::create_new(to).map_err(|error| Failure::Input(format!("cannot record {}: {error}", to.display())))?;
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let name = format!("attach-{}-{unix_ms}.plt", std::process::id());
        let from = socket.with_file_name(&name);
        if let Err(error) = client.change(&Request::TraceStart { name }) {
            // The file is still empty: remove it.
            let _ = std::fs::remove_file(to);
            return Err(error.into());
        }
        Ok(Trace { from, to: to.to_owned() })
    }

    /// Ends the record, moves it and reports its content.
    fn end(&self, client: &mut Client) -> Result<(), Failure> {
        let path = self.to.display();
        let stopped = client.stop_trace();
        // Move the record first: whatever the program answered, the events belong to the user.
        self.fetch()?;

        let stopped = match stopped {
            Err(error) if has_ended(&error) => {
                screen::note(&format!("the program has ended; {path} holds what it recorded"));
                return Ok(());
            }
            other => other?,
        };

        recording::report(&self.to, stopped.events, stopped.dropped_events, stopped.error)
    }

    /// Moves the record to the user's file, across file systems if need be.
    fn fetch(&self) -> Result<(), Failure> {
        let (from, to) = (&self.from, &self.to);
        let copy = || std::fs::copy(from, to).and_then(|_| std::fs::remove_file(from));
        let moved = std::fs::rename(from, to).or_else(|_| copy());
        moved.map_err(|error| Failure::Machine(format!("cannot move {} to {}: {error}", from.display(), to.display())))
    }
}

fn has_ended(error: &ClientError) -> bool {
    matches!(error, ClientError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof)
}

fn list(format: BriefFormat) -> Result<Outcome, Failure> {
    let read = attach::running();
    let (programs, silent) = read.map_err(|error| Failure::Machine(format!("cannot look for programs: {error}")))?;
    silent.iter().for_each(|sentence| screen::warning(sentence));

    match format {
        BriefFormat::Json => screen::print(&as_json(&programs)?)?,
        BriefFormat::Table if programs.is_empty() => {
            screen::note("no program runs that this user could attach to");
        }
        BriefFormat::Table => {
            const COLUMNS: &[Column<Hello>] = &[
                ("PID", |it| it.pid.to_string()),
                ("program", |it| it.program.clone()),
                ("shards", |it| it.shards.to_string()),
                ("classes", |it| it.classes.len().to_string()),
                ("disks", |it| {
                    it.disks.iter().map(|disk| attach::format_mode(disk.mode)).collect::<Vec<_>>().join(" ")
                }),
            ];
            screen::print(&screen::columns(&programs, COLUMNS))?;
        }
    }
    Ok(Outcome::Done)
}

/// Measures one interval. Returns the snapshot at its end.
fn look(client: &mut Client, interval: Duration, interrupt: &Interrupt) -> Result<Snapshot, ClientError> {
    client.snapshot()?;
    interrupt.wait(Instant::now() + interval);
    let snapshot = client.snapshot()?;
    client.refresh()?;
    Ok(snapshot)
}

fn once(client: &mut Client, arguments: &AttachArguments, interrupt: &Interrupt) -> Result<Outcome, Failure> {
    let snapshot = match look(client, arguments.interval, interrupt) {
        // With a trace, the record is the result; the caller reports it.
        Err(error) if arguments.trace.is_some() && has_ended(&error) => return Ok(Outcome::Done),
        other => other?,
    };
    let program = client.hello();
    match arguments.format {
        BriefFormat::Table => screen::print(&text(program, &snapshot, screen::width(std::io::stdout())))?,
        BriefFormat::Json => {
            let report = AttachReport { schema: 1, program, snapshot: &snapshot };
            screen::print(&as_json(&report)?)?;
        }
    }
    Ok(if interrupt.is_asked() { Outcome::Interrupted } else { Outcome::Done })
}

/// Redraws the view each interval until a signal or the end of the program.
fn live(client: &mut Client, arguments: &AttachArguments, interrupt: &Interrupt) -> Result<Outcome, Failure> {
    while !interrupt.is_asked() {
        match view(client, screen::width(std::io::stdout())) {
            Ok(text) => screen::print_anew(&text)?,
            Err(error) if has_ended(&error) => {
                if arguments.trace.is_none() {
                    screen::note("the program has ended");
                }
                return Ok(Outcome::Done);
            }
            Err(error) => return Err(error.into()),
        }
        interrupt.wait(Instant::now() + arguments.interval);
    }
    Ok(Outcome::Done)
}

/// Asks the program for its state. Returns it as text of at most `width` columns, with rates since the client's last
/// snapshot.
pub(crate) fn view(client: &mut Client, width: u16) -> Result<String, ClientError> {
    let snapshot = client.snapshot()?;
    Ok(text(client.refresh()?, &snapshot, width))
}

fn text(hello: &Hello, snapshot: &Snapshot, width: u16) -> String {
    let line = |text: &str| format!("{}\n", screen::wrap_within(width, text));
    let tracing = if hello.is_tracing { ", recording a trace" } else { "" };
    let mut text = line(&format!("{} (process {}, {} shard(s){tracing})", hello.program, hello.pid, hello.shards));
    if !snapshot.missing_shards.is_empty() {
        let shards: Vec<String> = snapshot.missing_shards.iter().map(u16::to_string).collect();
        text.push_str(&line(&format!("no answer from shards {}: their part is as it was", shards.join(", "))));
    }
    let mut shown = BTreeSet::new();
    for disk in &snapshot.disks {
        let (headers, table) = classes(disk, width);
        text.push_str(&format!("\n{}\n{table}\n", line(&disk_line(disk))));
        shown.extend(headers);
    }
    text.push_str(&format!("\n{}", line(&legend(&shown))));
    text
}

/// Returns the meanings of the shown columns.
fn legend(shown: &BTreeSet<&str>) -> String {
    let entry = |(columns, meaning): &(&[&str], &str)| {
        let columns: Vec<&str> = columns.iter().copied().filter(|column| shown.contains(column)).collect();
        (!columns.is_empty()).then(|| format!("{}: {meaning}", columns.join(", ")))
    };
    LEGEND.iter().filter_map(entry).collect::<Vec<_>>().join("; ")
}

fn disk_line(disk: &DiskState) -> String {
    let mut parts = vec![format!("disk {}: {}", disk.disk, attach::format_mode(disk.mode))];
    match (disk.in_flight_ns, disk.window_ns) {
        (Some(in_flight_ns), Some(window_ns)) => {
            parts.push(format!("in flight {} of {}", format_duration_ns(in_flight_ns), format_duration_ns(window_ns)));
        }
        _ => parts.push("no model".to_owned()),
    }

    if let (Some(tokens_ns), Some(max_ns)) = (disk.tokens_ns, disk.tokens_max_ns) {
        let sign = if tokens_ns < 0 { "-" } else { "" };
        let tokens = format_duration_ns(tokens_ns.unsigned_abs());
        parts.push(format!("tokens {sign}{tokens} of {}", format_duration_ns(max_ns)));
    }

    parts.extend(disk.capacity_scale.map(|scale| format!("capacity {:.0} %", scale * 100.0)));
    if let Some(WindowLimit::LatencyGoal { kept, needed_ns }) = disk.window_limit {
        let needed = format_duration_ns(needed_ns);
        parts.push(format!(
            "the latency goal binds: keeps {kept:.2} of the throughput, the throughput goal needs {needed}"
        ));
    }
    parts.join(", ")
}

/// Returns the columns that fit `width`, and the table with them.
fn classes(disk: &DiskState, width: u16) -> (Vec<&'static str>, String) {
    let is_alone = disk.classes.iter().filter(|class| is_busy(class)).count() < 2;
    let mut headers = vec!["class", "shares", "IOPS", "read", "write", "queued", "disk", "p50", "p99", "waits"];
    let rows = disk.classes.iter().map(|class| {
        let recent = class.recent.clone().unwrap_or_default();
        let latency = |pick: fn(&Percentiles) -> u64| match class.total_latency.count {
            0 => "-".to_owned(),
            _ => format_duration_ns(pick(&class.total_latency)),
        };
        vec![
            class.class.clone(),
            class.shares.to_string(),
            format_iops(recent.read_iops + recent.write_iops),
            format_throughput_decimal(recent.read_bytes_per_s),
            format_throughput_decimal(recent.write_bytes_per_s),
            class.queued.to_string(),
            class.in_flight.to_string(),
            latency(|p| p.p50_ns),
            latency(|p| p.p99_ns),
            waits(&recent, class.waits_for.as_deref(), is_alone),
        ]
    });

    let mut rows: Vec<Vec<String>> = rows.collect();
    for expendable in EXPENDABLE {
        if screen::fits(width, &headers, &rows) {
            break;
        }
        if let Some(at) = headers.iter().position(|header| *header == expendable) {
            headers.remove(at);
            rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }

    let table = screen::table_within(width, &headers, rows);
    (headers, table)
}

fn is_busy(class: &ClassState) -> bool {
    let recent = class.recent.as_ref().is_some_and(|recent| recent.read_iops + recent.write_iops > 0.0);
    recent || class.queued + class.in_flight > 0
}

/// Returns the reason for which a class waited most, and its part of the waiting time. If the class is alone on the
/// disk, ignores waits for fairness.
fn waits(recent: &Recent, now: Option<&str>, is_alone: bool) -> String {
    let counts = |reason: &str| !(is_alone && reason == WaitReason::Fairness.name());
    let now = now.filter(|reason| counts(reason));
    let total: f64 = recent.waited.values().sum();
    let counted = recent.waited.iter().filter(|(reason, _)| counts(reason));
    let most = counted.max_by(|one, other| one.1.total_cmp(other.1));
    match most.filter(|_| total > 0.0) {
        Some((reason, part)) => format!("{reason} {:.0} %", part / total * 100.0),
        None => now.unwrap_or("-").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_wait_is_named() {
        let waited = [("fairness", 0.1), ("tokens", 0.3)].map(|(reason, part)| (reason.to_owned(), part));
        let recent = Recent { waited: waited.into(), ..Recent::default() };
        assert_eq!(waits(&recent, Some("limit"), false), "tokens 75 %");
        assert_eq!(waits(&Recent::default(), Some("limit"), false), "limit");
        assert_eq!(waits(&Recent::default(), None, false), "-");
        let fair = Recent { waited: [("fairness".to_owned(), 0.5)].into(), ..Recent::default() };
        assert_eq!(waits(&fair, Some("fairness"), false), "fairness 100 %");
        assert_eq!(waits(&fair, Some("fairness"), true), "-");
    }

    #[test]
    fn a_view_fits_its_width() {
        let class = serde_json::json!({
            "class": "compaction", "shares": 100, "queued": 12345, "in_flight": 120, "oldest_wait_ns": 0,
            "waits_for": null, "reads": 0, "writes": 0, "read_bytes": 0, "written_bytes": 0, "errors": 0,
            "waited_ns": {}, "recent": {"read_iops": 12345.6, "write_iops": 0.0, "read_bytes_per_s": 1.2345e9,
            "write_bytes_per_s": 9.8765e9, "waited": {"backend": 0.5}},
            "queue_latency": {"count": 1, "p50_ns": 1, "p99_ns": 1, "p99_9_ns": 1},
            "device_latency": {"count": 1, "p50_ns": 1, "p99_ns": 1, "p99_9_ns": 1},
            "total_latency": {"count": 1, "p50_ns": 123456, "p99_ns": 12345678, "p99_9_ns": 1}
        });
        let disk = serde_json::json!({
            "disk": 0, "mode": {"depth": 128}, "window_ns": 750000, "window_max_ns": 750000, "in_flight_ns": 600000,
            "window_limit": {"by": "latency-goal", "kept": 0.84, "needed_ns": 1400000},
            "capacity_scale": 1.0, "tokens_ns": -2000, "tokens_max_ns": 750000, "classes": [class]
        });
        let snapshot = serde_json::json!({"at_ns": 5, "over_ns": 5, "missing_shards": [], "disks": [disk]});
        let hello = serde_json::json!({
            "protocol": 2, "plimsoll": "0", "pid": 4711, "program": "a\u{1b}[2Jb", "shards": 1, "disks": [], "classes": [],
            "is_tracing": false
        });
        let hello: Hello = serde_json::from_value(hello).expect("it is one");
        let snapshot: Snapshot = serde_json::from_value(snapshot).expect("it is one");

        let needed = [
            "depth:128",
            "of 750 us",
            "keeps 0.84 of",
            "-2.00 us",
            "12,346",
            "12.3 ms",
            "backend 100 %",
            "compaction",
            "a\\u{1b}",
        ];
        let legend = "disk: now; p50, p99: of whole requests; waits: why most were queued\n";
        let of_wide = format!("queued, {legend}");
        for (width, more) in [(100, &["shares", "12345", &of_wide][..]), (80, &[&format!("\n{legend}")])] {
            let text = text(&hello, &snapshot, width);
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
            assert!(!text.contains('…'), "{text}");
            needed.iter().chain(more).for_each(|part| assert!(text.contains(part), "no `{part}` in {text}"));
        }
    }
}
