//! The report of a run: a table by class, the reasons for waiting, and the part of the I/O that passed the gate. It
//! goes to stderr or a file, because stdout is the program's.

use std::fmt::Write;

use plimsoll::core::WaitReason;
use plimsoll_figures::units::{format_bytes_binary, format_count, format_duration_ns};
use plimsoll_files::run_rules::RunRules;
use serde_json::{Map, Value, json};

use super::handover::{Handover, Kind, Past, RULES_MAX, Seen};
use super::watch::FromOutside;
use crate::screen;

/// Version of the JSON.
const SCHEMA: u32 = 1;

pub(super) struct Ended<'a> {
    pub(super) command: &'a [String],
    pub(super) exit_code: i32,
    pub(super) rules: &'a RunRules,
    /// The set's name, or its file.
    pub(super) rules_name: &'a str,
    pub(super) handover: &'a Handover,
    pub(super) counters: &'a Seen,
    pub(super) seen: &'a FromOutside,
    pub(super) seconds: f64,
    pub(super) explain: bool,
}

/// Returns the report for people.
pub(super) fn text(ended: &Ended<'_>) -> String {
    let mut text = String::new();
    let classes = classes(ended);
    if !classes.is_empty() {
        let headers = ["class", "read/s", "write/s", "read", "written", "waited p99", "p50", "p99", "waited for"];
        let _ = writeln!(text, "{}\n", screen::table(&headers, classes));
    }
    if ended.explain {
        let _ =
            writeln!(text, "{}\n", screen::table(&["rule", "reads", "writes", "syncs", "allocations"], rules(ended)));
    }
    for line in coverage(ended) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Returns the report for programs; docs/formats.md has the schema.
pub(super) fn json(ended: &Ended<'_>) -> Value {
    let Ended { counters, seen, .. } = ended;
    let rule = |rule: Option<String>, at: usize| {
        let [reads, writes, syncs, allocations] = Kind::ALL.map(|kind| counters.matched(at, kind));
        json!({"rule": rule, "reads": reads, "writes": writes, "syncs": syncs, "allocations": allocations})
    };
    let named = ended.rules.rules.iter().map(|rule| Some(rule.to_string())).enumerate();
    let rules: Vec<Value> = named.chain([(RULES_MAX, None)]).map(|(at, name)| rule(name, at)).collect();

    let (read_bytes, written_bytes) = through_gate(ended);
    let past: Map<String, Value> =
        PAST.iter().map(|(why, key, _)| ((*key).to_owned(), counters.past_bytes(*why).into())).collect();
    json!({
        "schema": SCHEMA,
        "command": ended.command,
        "exit_code": ended.exit_code,
        "duration_s": ended.seconds,
        "classes": (0..ended.handover.classes.len()).map(|at| class_json(ended, at)).collect::<Vec<_>>(),
        "rules_from": ended.rules_name,
        "rules": rules,
        "coverage": {
            "intercepted_bytes": read_bytes + written_bytes,
            "process_bytes": seen.disk_bytes.map(|(read, written)| read + written),
            "intercepted_read_bytes": read_bytes,
            "intercepted_written_bytes": written_bytes,
            "process_read_bytes": seen.disk_bytes.map(|(read, _)| read),
            "process_written_bytes": seen.disk_bytes.map(|(_, written)| written),
            "process_called_written_bytes": seen.called_written_bytes,
            "page_cache_bytes": counters.cached_bytes(),
            "past_gate_bytes": past,
            "mapped_file": seen.mapped,
            "has_io_uring": seen.has_io_uring,
            "has_aio": seen.has_aio,
        },
    })
}

fn class_json(ended: &Ended<'_>, at: usize) -> Value {
    let counters = ended.counters;
    let [(reads, read_bytes), (writes, written_bytes)] = [false, true].map(|writes| counters.class(at, writes));
    let reasons = WaitReason::ALL.into_iter().enumerate();
    let waited_ns: Map<String, Value> =
        reasons.map(|(n, reason)| (reason.name().to_owned(), counters.waited_ns(at, n).into())).collect();
    json!({
        "name": ended.handover.classes[at].name,
        "reads": reads,
        "writes": writes,
        "read_bytes": read_bytes,
        "written_bytes": written_bytes,
        "waited_p50_ns": counters.percentile(at, false, 0.5),
        "waited_p99_ns": counters.percentile(at, false, 0.99),
        "latency_p50_ns": counters.percentile(at, true, 0.5),
        "latency_p99_ns": counters.percentile(at, true, 0.99),
        "waited_ns": waited_ns,
    })
}

/// Reasons why bytes went past the gate: names in JSON, and texts for people.
const PAST: [(Past, &str, &str); 4] = [
    (
        Past::OtherProcess,
        "gate_elsewhere",
        "while the process that has the gate did not answer, or served as many threads as it can",
    ),
    (Past::Nested, "nested", "of signal handlers, or while the gate was made"),
    (Past::Refused, "refused", "that the gate refused: no room, or a class that is overloaded"),
    (
        Past::Namespace,
        "pid_namespace",
        "of processes in PID namespaces of their own, where they cannot tell which others live",
    ),
];

/// Returns the bytes that were read and written through the gate.
fn through_gate(ended: &Ended<'_>) -> (u64, u64) {
    let sum = |writes| (0..ended.handover.classes.len()).map(|class| ended.counters.class(class, writes).1).sum();
    (sum(false), sum(true))
}

fn classes(ended: &Ended<'_>) -> Vec<Vec<String>> {
    let counters = ended.counters;
    let per_s = |count: u64| {
        let rate = count as f64 / ended.seconds.max(1e-9);
        if rate >= 10.0 { format_count(rate.round() as u64) } else { format!("{rate:.1}") }
    };

    let requests = |at| [false, true].map(|writes| counters.class(at, writes).0).iter().sum::<u64>();
    let is_alone = (0..ended.handover.classes.len()).filter(|at| requests(*at) > 0).count() < 2;

    let row = |(at, class): (usize, &super::handover::ClassForm)| {
        let [(reads, read_bytes), (writes, written_bytes)] = [false, true].map(|writes| counters.class(at, writes));
        if reads + writes == 0 {
            return None;
        }
        let time = |is_total, part| counters.percentile(at, is_total, part).map_or("-".to_owned(), short_ns);
        let reasons = WaitReason::ALL.into_iter().enumerate().map(|(n, reason)| (counters.waited_ns(at, n), reason));
        // A class alone on the disk never waits for fairness.
        let reasons = reasons.filter(|(_, reason)| !(is_alone && *reason == WaitReason::Fairness));
        let most = reasons.max_by_key(|(ns, _)| *ns).filter(|(ns, _)| *ns > 0);
        Some(vec![
            class.name.clone(),
            per_s(reads),
            per_s(writes),
            format_bytes_binary(read_bytes),
            format_bytes_binary(written_bytes),
            time(false, 0.99),
            time(true, 0.5),
            time(true, 0.99),
            most.map_or("-".to_owned(), |(ns, reason)| format!("{} {}", reason.name(), short_ns(ns))),
        ])
    };

    ended.handover.classes.iter().enumerate().filter_map(row).collect()
}

/// Formats a duration with three digits.
fn short_ns(ns: u64) -> String {
    let unit = 10_u64.pow(ns.max(1).ilog10().saturating_sub(2));
    format_duration_ns(ns / unit * unit)
}

fn rules(ended: &Ended<'_>) -> Vec<Vec<String>> {
    let row = |name: String, at: usize| {
        let counts = Kind::ALL.iter().map(|kind| format_count(ended.counters.matched(at, *kind)));
        std::iter::once(name).chain(counts).collect()
    };
    let mut rows: Vec<Vec<String>> =
        ended.rules.rules.iter().enumerate().map(|(at, rule)| row(rule.to_string(), at)).collect();
    rows.push(row("no rule: default".to_owned(), RULES_MAX));
    rows
}

fn coverage(ended: &Ended<'_>) -> Vec<String> {
    let counters = ended.counters;
    let mut lines = Vec::new();

    let (read_bytes, written_bytes) = through_gate(ended);
    let bytes = format_bytes_binary;

    if counters.processes() == 0 {
        lines.push(
            "the library was not loaded: the program cleared its environment, or is not what it seems".to_owned(),
        );
    } else if counters.opened() == 0 {
        lines.push(format!("no file under {} was opened: see --dir", ended.handover.directories.join(", ")));
    }

    let matched = |rules: std::ops::Range<usize>| {
        let counts = rules.flat_map(|rule| Kind::ALL.map(|kind| counters.matched(rule, kind)));
        counts.sum::<u64>()
    };
    // The set `default` fits programs that use its thread names; for others, no match is normal.
    if ended.rules_name != "default" && matched(0..RULES_MAX) == 0 && matched(RULES_MAX..RULES_MAX + 1) > 0 {
        lines.push(format!("no rule of {} matched a call: all were of class default", ended.rules_name));
    }

    let disk_bytes = ended.seen.disk_bytes.map(|(read, written)| (read, written.min(writes_of_calls(ended.seen))));
    lines.push(match disk_bytes {
        None => format!("through the gate: {} read, {} written", bytes(read_bytes), bytes(written_bytes)),
        Some((disk_read, disk_written)) => format!(
            "through the gate: {} of {} that were read from disks{}, {} of {} that were written{}",
            bytes(read_bytes),
            bytes(disk_read),
            percent(read_bytes, disk_read),
            bytes(written_bytes),
            bytes(disk_written),
            percent(written_bytes, disk_written)
        ),
    });

    if let (Some((_, counted)), Some((_, written))) = (ended.seen.disk_bytes, disk_bytes)
        && is_much_more(counted, written)
    {
        lines.push(format!(
            "the kernel counts {} as written: whole folios of the page cache, of which the program wrote a part",
            bytes(counted)
        ));
    }

    if counters.cached_bytes() > 0 {
        lines.push(format!("from the page cache, past the gate: {}", bytes(counters.cached_bytes())));
    }

    for (why, _, words) in PAST.iter().filter(|(why, ..)| counters.past_bytes(*why) > 0) {
        lines.push(format!("past the gate: {} {words}", bytes(counters.past_bytes(*why))));
    }

    if let Some(path) = &ended.seen.mapped {
        lines.push(format!("not seen: reads and writes of mapped files (mmap), such as {}", path.display()));
    }
    if ended.seen.has_io_uring {
        lines.push("not seen: what goes through the program's io_uring".to_owned());
    }
    if ended.seen.has_aio {
        lines.push("not seen: what the program submits by Linux AIO (io_submit)".to_owned());
    }

    let missed = |(read, written)| is_much_more(read, read_bytes) || is_much_more(written, written_bytes);
    if disk_bytes.is_some_and(missed) {
        lines.push(
            "the rest is of other files, stdio (fread, fwrite), mmap, io_uring, Linux AIO, static or setuid programs, or read-ahead"
                .to_owned(),
        );
    }
    lines
}

/// Returns the most bytes that the program can have written to disks by system calls that the kernel counts; the largest
/// number if it may have written otherwise, or the kernel does not count them.
fn writes_of_calls(seen: &FromOutside) -> u64 {
    let writes_otherwise = seen.mapped.is_some() || seen.has_io_uring || seen.has_aio;
    seen.called_written_bytes.filter(|_| !writes_otherwise).unwrap_or(u64::MAX)
}

fn is_much_more(bytes: u64, than: u64) -> bool {
    bytes > than + than / 10 + (1 << 20)
}

/// Formats the part of the whole, at most 100 %: buffered writes are charged before the kernel writes them.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!(" ({:.0} %)", (part as f64 / whole as f64 * 100.0).min(100.0)) }
}
