//! Scheduler classes of running Plimsoll programs, as rows beside the disks.
//!
//! # Why
//! The kernel's columns show the requests that reached the disk; only the program knows which class sent them, and
//! which class waited. Together they show whether the disk or another class makes a class slow.
//!
//! # How it works
//! [`Programs`] keeps a connection to every program of this user that serves a control socket, and asks for its
//! counters once an interval. [`rows`] computes the difference of two answers. The program itself sums waiting and
//! device time over its requests, so the means are exact. Each program is asked in a thread of its own, so that a slow
//! one delays no other: all are asked at once, and [`Programs::look`] takes the answers that come within 100 ms. The
//! next look takes a later answer. A program whose connection fails or times out is not asked for a minute.
//!
//! # Limits
//! A program that did not answer in time, in full or at all has no rows: its next ones span both intervals. If a
//! program is stopped in a debugger, one look a minute takes up to 100 ms longer. Programs of a library without metrics
//! are named in [`Looked::silent`].
//!
//! # Example
//! ```
//! use plimsoll::metrics::{ClassMetrics, DirectionMetrics, DiskMetrics, LatencyMetrics, ProgramMetrics};
//! use plimsoll_observe::stat::programs::rows;
//! let program = |requests: u64| {
//!     let total = LatencyMetrics { count: requests, sum_ns: requests * 500_000, buckets: Vec::new() };
//!     let read = DirectionMetrics { requests, bytes: requests * 4096, total, ..DirectionMetrics::default() };
//!     let class = ClassMetrics { class: "query".to_owned(), read, ..ClassMetrics::default() };
//!     let disk = DiskMetrics { classes: vec![class], ..DiskMetrics::default() };
//!     ProgramMetrics { program: "my-database".to_owned(), pid: 7, disks: vec![disk], ..ProgramMetrics::default() }
//! };
//! let rows = rows(&program(1000), &program(3000), 2.0);
//! assert_eq!((rows[0].reads_per_s, rows[0].read_await_ms), (1000.0, Some(0.5)));
//! ```

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use plimsoll::control::{Client, ClientError, ErrorCode};
use plimsoll::core::WaitReason;
use plimsoll::metrics::{ClassMetrics, DiskMetrics, LatencyMetrics, ProgramMetrics};
use serde::Serialize;

/// Time for which a program is not asked after an error.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// Longest time that a look waits for all new answers together.
const GRACE: Duration = Duration::from_millis(100);

/// Time after which a program without an answer is reported, and its last counters are no longer passed on.
const SILENT_AFTER: Duration = Duration::from_secs(1);

/// The activity of a class on a disk of its program in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassRow {
    pub program: String,
    pub pid: u32,
    /// Number of the disk in the program.
    pub disk: u16,
    pub class: String,
    pub group: Option<String>,
    /// Its shares at the end.
    pub shares: u32,
    pub duration_s: f64,
    pub reads_per_s: f64,
    /// Completed writes, flushes, discards and allocations a second.
    pub writes_per_s: f64,
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
    /// Mean time of a read from queueing to completion, in milliseconds; `None` if none completed.
    pub read_await_ms: Option<f64>,
    /// Mean time of a write, counted as `writes_per_s`, from queueing to completion, in milliseconds.
    pub write_await_ms: Option<f64>,
    pub queue_ms: Option<f64>,
    pub device_ms: Option<f64>,
    /// The part of their time that requests waited in the program's queue, 0 to 1: queue time over queue and device
    /// time.
    pub queue_share: Option<f64>,
    /// Requests under way on average, in the queue and in the device: total time of completed requests over the
    /// interval.
    pub mean_under_way: f64,
    /// Requests in the queue at the end.
    pub queued: u64,
    /// Pieces in the device at the end.
    pub in_flight: u64,
    /// Wait of the oldest queued request at the end, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Device time that the class used by the disk model, as a part of the interval; 1 is the whole disk. 0 without a
    /// model.
    pub consumption: f64,
    pub errors_per_s: f64,
    /// The reason for which the class waited the longest with work queued, if it waited at all: `fairness` (only where
    /// other classes of the disk had requests), `tokens`, `limit`, `depth`, `backend`.
    pub waited_for: Option<String>,
    /// Time waited with work queued, by reason, as a part of the interval, summed over the shards: with several shards
    /// this may be above 1. Reasons that did not occur are left out.
    pub waited: BTreeMap<String, f64>,
}

/// Computes a row for each class and disk from `before` to `after`, two answers of one program, `duration_s` (above 0)
/// seconds apart. Leaves out classes that are new, whose counters were reset, or that have never had a request.
pub fn rows(before: &ProgramMetrics, after: &ProgramMetrics, duration_s: f64) -> Vec<ClassRow> {
    let mut rows = Vec::new();
    for disk in &after.disks {
        let Some(old) = before.disks.iter().find(|old| old.disk == disk.disk) else { continue };
        let first = rows.len();
        for class in disk.classes.iter().filter(|class| is_used(class)) {
            let before = old.classes.iter().find(|old| old.class == class.class);
            if let Some(before) = before.filter(|before| !began_anew(before, class)) {
                rows.push(row(after, disk, before, class, duration_s));
            }
        }

        // The only class of a disk waits for no other.
        let of_disk: &mut [ClassRow] = rows.get_mut(first..).unwrap_or_default();
        let is_alone = of_disk.iter().filter(|row| row.mean_under_way > 0.0 || row.queued > 0).count() < 2;
        for row in of_disk.iter_mut().filter(|_| is_alone) {
            row.waited_for = longest(&row.waited, |reason| reason != WaitReason::Fairness.name());
        }
    }
    rows
}

/// Returns whether the class has or had any request.
fn is_used(class: &ClassMetrics) -> bool {
    class.read.requests + class.write.requests + class.queued + class.in_flight > 0
}

/// Returns whether a counter fell.
fn began_anew(before: &ClassMetrics, after: &ClassMetrics) -> bool {
    let figures = |class: &ClassMetrics| {
        let (read, write) = (&class.read, &class.write);
        [read.requests, read.bytes, read.total.sum_ns, write.requests, write.bytes, write.total.sum_ns]
    };
    figures(before).into_iter().zip(figures(after)).any(|(before, after)| after < before)
}

fn row(
    program: &ProgramMetrics,
    disk: &DiskMetrics,
    before: &ClassMetrics,
    after: &ClassMetrics,
    duration_s: f64,
) -> ClassRow {
    let rate = |of: fn(&ClassMetrics) -> u64| of(after).saturating_sub(of(before)) as f64 / duration_s;
    let moved = |of: fn(&ClassMetrics) -> &LatencyMetrics| {
        let (before, after) = (of(before), of(after));
        (after.count.saturating_sub(before.count), after.sum_ns.saturating_sub(before.sum_ns))
    };
    let both = |one: (u64, u64), other: (u64, u64)| (one.0.saturating_add(other.0), one.1.saturating_add(other.1));
    let mean_ms = |(count, sum_ns): (u64, u64)| (count > 0).then(|| sum_ns as f64 / 1e6 / count as f64);

    let (read, write) = (moved(|class| &class.read.total), moved(|class| &class.write.total));
    let queue = both(moved(|class| &class.read.queue), moved(|class| &class.write.queue));
    let device = both(moved(|class| &class.read.device), moved(|class| &class.write.device));
    let all_ns = queue.1 as f64 + device.1 as f64;
    let waited = waited(before, after, duration_s);

    ClassRow {
        program: program.program.clone(),
        pid: program.pid,
        disk: disk.disk,
        class: after.class.clone(),
        group: after.group.clone(),
        shares: after.shares,
        duration_s,
        reads_per_s: rate(|class| class.read.requests),
        writes_per_s: rate(|class| class.write.requests),
        read_bytes_per_s: rate(|class| class.read.bytes),
        write_bytes_per_s: rate(|class| class.write.bytes),
        read_await_ms: mean_ms(read),
        write_await_ms: mean_ms(write),
        queue_ms: mean_ms(queue),
        device_ms: mean_ms(device),
        queue_share: (all_ns > 0.0).then(|| queue.1 as f64 / all_ns),
        mean_under_way: both(read, write).1 as f64 / 1e9 / duration_s,
        queued: after.queued,
        in_flight: after.in_flight,
        oldest_wait_ms: after.oldest_wait_ns as f64 / 1e6,
        consumption: rate(|class| class.consumed_ns) / 1e9,
        errors_per_s: rate(|class| class.errors),
        waited_for: longest(&waited, |_| true),
        waited,
    }
}

/// Returns the reason that counts and lasted longest.
fn longest(waited: &BTreeMap<String, f64>, counts: fn(&str) -> bool) -> Option<String> {
    let counted = waited.iter().filter(|(reason, _)| counts(reason));
    counted.max_by(|one, other| one.1.total_cmp(other.1)).map(|(reason, _)| reason.clone())
}

fn waited(before: &ClassMetrics, after: &ClassMetrics, duration_s: f64) -> BTreeMap<String, f64> {
    let share = |now: &plimsoll::metrics::ReasonMetrics| {
        let old = before.waited.iter().find(|old| old.reason == now.reason).map_or(0, |old| old.waited_ns);
        let waited_ns = now.waited_ns.saturating_sub(old);
        (waited_ns > 0).then(|| (now.reason.clone(), waited_ns as f64 / 1e9 / duration_s))
    };
    after.waited.iter().filter_map(share).collect()
}

/// The result of [`Programs::look`].
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Rows of the classes since the last look; empty at the first.
    pub rows: Vec<ClassRow>,
    /// The counters of every program that answers, by process number. If a program or one of its shards did not answer
    /// in time, those of its last full answer.
    pub programs: Vec<ProgramMetrics>,
    /// Programs that do not answer, each with the reason; the same message is reported once only.
    pub silent: Vec<String>,
}

/// Watches the running programs of this user.
#[derive(Debug)]
pub struct Programs {
    watched: BTreeMap<u32, Watched>,
    /// When programs whose connection failed or timed out may be asked again.
    left_alone: BTreeMap<u32, Instant>,
    told: BTreeSet<String>,
    grace: Duration,
}

/// A program, and the thread that asks it: one question at a time, until either end of a channel is dropped.
#[derive(Debug)]
struct Watched {
    questions: Sender<()>,
    answers: Receiver<Answered>,
    /// When the open question was asked, if there is one.
    asked_at: Option<Instant>,
    /// The last full answer, and when it came.
    before: Option<(Instant, ProgramMetrics)>,
}

/// An answer, and when it came.
type Answered = (Instant, Result<ProgramMetrics, ClientError>);

impl Default for Programs {
    fn default() -> Programs {
        Programs { watched: BTreeMap::new(), left_alone: BTreeMap::new(), told: BTreeSet::new(), grace: GRACE }
    }
}

impl Programs {
    /// Asks all programs that run now. Waits at most 100 ms, beside listing them.
    pub fn look(&mut self) -> Looked {
        match plimsoll::control::programs() {
            Ok(sockets) => self.look_at(&sockets),
            Err(error) => {
                let mut looked = Looked::default();
                self.tell(&mut looked, format!("the programs of this user cannot be listed: {error}"));
                looked
            }
        }
    }

    /// Asks the programs behind these sockets, given by process number; drops all others.
    pub(crate) fn look_at(&mut self, sockets: &[(u32, PathBuf)]) -> Looked {
        let is_there = |pid: &u32| sockets.iter().any(|(other, _)| other == pid);
        self.watched.retain(|pid, _| is_there(pid));
        self.left_alone.retain(|pid, until| is_there(pid) && Instant::now() < *until);

        let mut looked = Looked::default();
        let mut asked = Vec::new();
        for (pid, path) in sockets {
            if self.left_alone.contains_key(pid) {
                continue;
            }
            match self.ask(*pid, path) {
                // A look does not wait for the answer to an earlier question.
                Ok(is_new) => asked.push((*pid, is_new)),
                Err(error) => self.tell(&mut looked, format!("process {pid}: it cannot be asked: {error}")),
            }
        }

        let until = Instant::now() + self.grace;
        for (pid, is_new) in asked {
            let now = Instant::now();
            self.take(pid, if is_new { until.saturating_duration_since(now) } else { Duration::ZERO }, &mut looked);
        }
        looked
    }

    /// Asks a program, unless an earlier question is open. Returns whether it was asked now.
    fn ask(&mut self, pid: u32, path: &Path) -> std::io::Result<bool> {
        let watched = match self.watched.entry(pid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Watched::start(path.to_owned())?),
        };
        if watched.asked_at.is_some() {
            return Ok(false);
        }
        watched.asked_at = Some(Instant::now());
        // If the thread has ended, its reason waits in `answers`.
        let _ = watched.questions.send(());
        Ok(true)
    }

    /// Takes the answer of a program, if it comes within `wait`.
    fn take(&mut self, pid: u32, wait: Duration, looked: &mut Looked) {
        let Some(watched) = self.watched.get_mut(&pid) else { return };
        match watched.answers.recv_timeout(wait) {
            Ok((at, Ok(metrics))) => watched.answered(at, metrics, looked),
            Ok((_, Err(error))) => {
                self.watched.remove(&pid);
                // A program that has just ended is no longer listed at the next look.
                if !matches!(error, ClientError::NotServed { .. }) && !has_ended(&error) {
                    self.left_alone.insert(pid, Instant::now() + LEFT_ALONE);
                    self.tell(looked, format!("process {pid}: {}", reason(&error)));
                }
            }
            Err(RecvTimeoutError::Timeout) if watched.asked_at.is_some_and(|at| at.elapsed() >= SILENT_AFTER) => {
                self.tell(looked, format!("process {pid}: {}", no_answer()));
            }
            Err(RecvTimeoutError::Timeout) => {
                looked.programs.extend(watched.before.as_ref().map(|(_, before)| before.clone()));
            }
            // The thread panicked; its message is on standard error.
            Err(RecvTimeoutError::Disconnected) => {
                self.watched.remove(&pid);
                self.left_alone.insert(pid, Instant::now() + LEFT_ALONE);
            }
        }
    }

    /// Reports a message, unless it was reported before.
    fn tell(&mut self, looked: &mut Looked, text: String) {
        if self.told.insert(text.clone()) {
            looked.silent.push(text);
        }
    }
}

impl Watched {
    /// Starts the thread. It connects at the first question, and ends after an error.
    fn start(path: PathBuf) -> std::io::Result<Watched> {
        let (questions, to_ask) = channel();
        let (answer, answers) = channel();
        let run = move || {
            let mut client = None;
            while to_ask.recv().is_ok() {
                let metrics = ask(&mut client, &path);
                let is_over = metrics.is_err();
                if answer.send((Instant::now(), metrics)).is_err() || is_over {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("asking".to_owned()).spawn(run)?;
        Ok(Watched { questions, answers, asked_at: None, before: None })
    }

    fn answered(&mut self, at: Instant, metrics: ProgramMetrics, looked: &mut Looked) {
        self.asked_at = None;
        if !metrics.missing_shards.is_empty() {
            looked.programs.extend(self.before.as_ref().map(|(_, before)| before.clone()));
            return;
        }
        if let Some((before_at, before)) = &self.before {
            let duration_s = at.duration_since(*before_at).as_secs_f64();
            if duration_s > 0.0 {
                looked.rows.extend(rows(before, &metrics, duration_s));
            }
        }
        looked.programs.push(metrics.clone());
        self.before = Some((at, metrics));
    }
}

fn ask(client: &mut Option<Client>, path: &Path) -> Result<ProgramMetrics, ClientError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(path)?),
    };
    client.metrics()
}

/// Returns the message for a program whose answer is late, and later for one whose connection timed out.
fn no_answer() -> String {
    format!("no answer for {} s or longer", SILENT_AFTER.as_secs())
}

fn has_ended(error: &ClientError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error, ClientError::Io(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof))
}

fn reason(error: &ClientError) -> String {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    match error {
        ClientError::Refused { code: ErrorCode::BadRequest, .. } => {
            "its version of the library tells no metrics: `plimsoll attach` shows its classes".to_owned()
        }
        // The socket's time limit has passed.
        ClientError::Io(error) if matches!(error.kind(), WouldBlock | TimedOut) => no_answer(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::backend::choose::BackendKind;
    use plimsoll::control::Server;
    use plimsoll::metrics::{DirectionMetrics, ReasonMetrics};
    use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};

    use super::*;

    /// Returns a watch that waits for answers also on a slow machine.
    fn patient() -> Programs {
        Programs { grace: Duration::from_secs(60), ..Programs::default() }
    }

    fn direction(requests: u64, queue_us: u64, device_us: u64) -> DirectionMetrics {
        let latency = |us: u64| LatencyMetrics { count: requests, sum_ns: requests * us * 1000, buckets: Vec::new() };
        DirectionMetrics {
            requests,
            bytes: requests * 4096,
            queue: latency(queue_us),
            device: latency(device_us),
            total: latency(queue_us + device_us),
        }
    }

    fn class(name: &str, reads: u64, waited_ns: u64) -> ClassMetrics {
        let reason = |reason: &str, waited_ns| ReasonMetrics { reason: reason.into(), waited_ns };
        ClassMetrics {
            class: name.into(),
            shares: 100,
            queued: 3,
            oldest_wait_ns: 2_000_000,
            read: direction(reads, 300, 100),
            write: direction(reads / 10, 0, 1000),
            consumed_ns: reads * 10_000,
            errors: reads / 100,
            waited: vec![reason("fairness", waited_ns / 4), reason("tokens", waited_ns), reason("limit", 0)],
            ..ClassMetrics::default()
        }
    }

    fn program(classes: Vec<ClassMetrics>) -> ProgramMetrics {
        let disk = DiskMetrics { disk: 2, classes, ..DiskMetrics::default() };
        ProgramMetrics { program: "db".into(), pid: 7, disks: vec![disk], ..ProgramMetrics::default() }
    }

    #[test]
    fn rows_are_differences_over_their_time() {
        let before = program(vec![class("query", 1000, 500_000_000)]);
        let after = program(vec![class("query", 3000, 1_500_000_000)]);
        let rows = rows(&before, &after, 2.0);
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.program.as_str(), row.pid, row.disk, row.class.as_str()), ("db", 7, 2, "query"));
        assert_eq!((row.reads_per_s, row.writes_per_s, row.read_bytes_per_s), (1000.0, 100.0, 4_096_000.0));
        assert_eq!((row.read_await_ms, row.write_await_ms), (Some(0.4), Some(1.0)));
        // 2000 reads and 200 writes: 600 ms in the queue, 200 + 200 ms in the device.
        assert_eq!((row.queue_share, row.mean_under_way), (Some(0.6), 0.5));
        assert_eq!((row.queued, row.oldest_wait_ms, row.consumption, row.errors_per_s), (3, 2.0, 0.01, 10.0));
        assert_eq!(row.waited_for.as_deref(), Some("tokens"));
        assert_eq!(row.waited, BTreeMap::from([("fairness".into(), 0.125), ("tokens".into(), 0.5)]));
    }

    #[test]
    fn fairness_needs_another_class() {
        let waited = |name: &str, reads| {
            let class = class(name, reads, 0);
            ClassMetrics {
                waited: vec![plimsoll::metrics::ReasonMetrics { reason: "fairness".into(), waited_ns: reads }],
                ..class
            }
        };
        let quiet = || ClassMetrics { queued: 0, ..waited("quiet", 10) };
        let cases = [
            (vec![waited("a", 10)], vec![waited("a", 90)], [None, None]),
            (vec![waited("a", 10), quiet()], vec![waited("a", 90), quiet()], [None, None]),
            (vec![waited("a", 10), waited("b", 10)], vec![waited("a", 90), waited("b", 20)], [Some("fairness"); 2]),
        ];

        for (before, after, expected) in cases {
            let rows = rows(&program(before), &program(after), 1.0);
            let found = rows.iter().map(|row| row.waited_for.as_deref());
            assert!(found.zip(expected).all(|(found, expected)| found == expected), "{rows:?}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_left_out() {
        let idle = ClassMetrics { class: "idle".into(), ..ClassMetrics::default() };
        let busy = class("a", 1000, 0);
        let table = [
            ("new", vec![], vec![busy.clone()], 0),
            ("gone", vec![busy.clone()], vec![], 0),
            ("never used", vec![idle.clone()], vec![idle], 0),
            ("began anew", vec![busy.clone()], vec![class("a", 10, 0)], 0),
            ("quiet", vec![busy.clone()], vec![busy], 1),
        ];
        for (case, before, after, expect) in table {
            let rows = rows(&program(before), &program(after), 1.0);
            assert_eq!(rows.len(), expect, "{case}");
            assert!(rows.iter().all(|row| row.read_await_ms.is_none() && row.waited_for.is_none()), "{case}");
        }
    }

    #[test]
    fn running_programs_are_found_and_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let classes = Classes::new();
        classes.add_class("query", None, 200).unwrap();
        let topology = Topology::new(1, classes, vec![DiskSetup::unlimited()]).unwrap();
        let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
        let runtime = Runtime::start(&topology, &options).unwrap();
        let server = Server::start_in(&place.path().join("sockets"), &topology, "db").unwrap();
        let pid = std::process::id();
        let sockets = [(pid, server.path().to_owned())];
        let mut programs = patient();
        let first = programs.look_at(&sockets);
        assert_eq!((first.rows.len(), first.programs.len(), first.silent.len()), (0, 1, 0));
        let classes: Vec<&str> = first.programs[0].disks[0].classes.iter().map(|class| class.class.as_str()).collect();
        assert_eq!((first.programs[0].pid, classes), (pid, vec!["default", "query"]));

        // No class has had a request: no rows.
        assert_eq!(programs.look_at(&sockets).rows, []);

        drop(server);
        drop(runtime);
        let ended = programs.look_at(&sockets);
        assert_eq!((ended.programs.len(), ended.silent.len()), (0, 0));
        assert_eq!(programs.look_at(&[]).programs.len(), 0);
        assert!(programs.watched.is_empty());
    }

    #[test]
    fn what_answers_something_else_is_told_once_and_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("7.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let other = std::thread::spawn(move || {
            use std::io::Write;
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail ready\n").unwrap();
        });
        let mut programs = patient();
        let sockets = [(7, path)];
        let first = programs.look_at(&sockets);
        other.join().unwrap();
        assert_eq!(first.silent.len(), 1, "{:?}", first.silent);
        assert!(first.silent[0].starts_with("process 7: "), "{:?}", first.silent);
        assert_eq!(programs.look_at(&sockets).silent, [] as [String; 0], "it was not asked again");
    }

    #[test]
    fn who_does_not_answer_holds_nobody_up() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("7.sock");
        // Connections wait in the kernel's queue, since the test never accepts one.
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let sockets = [(7, path)];
        let mut programs = Programs { grace: Duration::from_millis(1), ..Programs::default() };
        let first = programs.look_at(&sockets);
        assert!(first.silent.is_empty() && first.programs.is_empty(), "it is still being asked: {first:?}");
        let silent_since = Instant::now().checked_sub(SILENT_AFTER);
        programs.watched.get_mut(&7).unwrap().asked_at = silent_since;
        assert_eq!(programs.look_at(&sockets).silent, ["process 7: no answer for 1 s or longer"]);
        assert_eq!(programs.look_at(&sockets).silent, [] as [String; 0], "it is told once");
        let timed_out = ClientError::Io(std::io::ErrorKind::WouldBlock.into());
        assert_eq!(reason(&timed_out), no_answer(), "nor is it told when the socket's time is over");
    }
}
