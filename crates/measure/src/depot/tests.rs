use plimsoll_sim::device::presets;
use serde_json::json;

use super::figures::{Found, of_tunes, read};
use super::*;
use crate::instance::Card;
use crate::load::{Control, Interval, JobResult, RunResult, ShardResult};
use crate::report::{JobOptions, Load, TestReport};
use crate::tune::{SimulatedDisk, TuneOptions, measure_simulated};

/// Returns the figures of JSON, each with its interval, and the host and time that the result states.
fn found(value: serde_json::Value) -> Found {
    let text = value.to_string();
    read("a.json", &text, &value).unwrap().unwrap()
}

fn lines(found: &Found) -> Vec<String> {
    let line = |it: &plimsoll_observe::depot::figures::Figure| {
        let interval = it.interval.map_or_else(String::new, |[low, high]| format!(" {low} to {high}"));
        format!("{}: {}: {} {} {}{interval}", it.command, it.what, it.metric, it.value, it.unit)
    };
    found.figures.iter().map(line).collect()
}

#[test]
fn each_result_has_its_figures() {
    let comparison = |change: Option<f64>| {
        json!({
            "job": "reads", "side": "B", "metric": "iops", "base": 1000.0, "other": 900.0, "change_pct": change,
            "change_low_pct": -11.0, "change_high_pct": -9.0, "p": null, "p_together": null,
            "base_effective_count": null, "other_effective_count": null, "verdict": "worse",
        })
    };
    let side = |side: &str, file: &str| json!({"side": side, "files": [file], "versions": []});
    let compared = found(json!({
        "schema": 1, "plimsoll": "1", "alpha": 0.05, "threshold_pct": 1.0, "seed": 1, "warnings": [], "jobs": [],
        "regression": true,
        "sides": [side("A", "a.json"), side("B", "b.json")], "comparisons": [comparison(Some(-10.0)), comparison(None)],
    }));
    assert_eq!(lines(&compared), ["compare: reads, b.json against a.json: iops_change_pct -10 % -11 to -9"]);
    assert_eq!((compared.host, compared.at_us), (None, None));

    let figure = |name: &str, value: Option<f64>| json!({"name": name, "passed": null, "target": null, "value": value});
    let figures = [figure("p99_ms", Some(2.5)), figure("none", None)];
    let run = json!({"error": null, "name": "shares", "seed": 7, "sweep": {"shards": 2}, "figures": figures});
    let simulated = found(json!({"schema": 1, "runs": [run], "seeds": []}));
    assert_eq!(lines(&simulated), ["sim run: shares, seed 7, shards=2: p99_ms 2.5 "]);
}

#[test]
fn the_end_of_a_run_does_not_widen_the_interval_of_a_rate() {
    let interval = |length_ns, requests| Interval { length_ns, requests, ..Interval::default() };
    let of = |intervals: &[Interval]| {
        let job = JobResult {
            name: "reads".to_owned(),
            requests: intervals.iter().map(|it| it.requests).sum(),
            elapsed_ns: intervals.iter().map(|it| it.length_ns).sum(),
            intervals: intervals.to_vec(),
            ..JobResult::default()
        };
        let shard =
            ShardResult { shard: 0, cpu_ns: 0, elapsed_ns: job.elapsed_ns, jobs: vec![job], window_limits: vec![] };
        let (name, class, options) = ("reads".to_owned(), "reads".to_owned(), JobOptions::default());
        let run = RunResult { shards: vec![shard], ..RunResult::default() };
        let report = TestReport::of_run(&run, &[Load { name, class, shares: 100, options }]);
        let found = found(serde_json::from_str(&report.to_json()).unwrap());
        found.figures.iter().find(|it| it.metric == "iops").and_then(|it| it.interval).unwrap()
    };

    let mut intervals: Vec<Interval> = (0..9).map(|nth| interval(100_000_000, 99 + nth % 3)).collect();
    let [low, high] = of(&intervals);
    assert!((980.0..1000.0).contains(&low) && (1000.0..1020.0).contains(&high), "{low} to {high}");
    // The rest of the window, in which a request happened to end.
    intervals.push(interval(10_000, 1));
    let [low, high] = of(&intervals);
    assert!((980.0..1001.0).contains(&low) && (1001.0..1020.0).contains(&high), "{low} to {high}");
}

/// Returns a simulated disk, and options that measure only its figures.
fn figures_of_gp3() -> (SimulatedDisk, TuneOptions) {
    let disk = SimulatedDisk::new("gp3", presets::find("gp3").unwrap().spec);
    (disk, TuneOptions { figures_only: true, data_bytes: 16 << 20, ..TuneOptions::quick("/data") })
}

#[test]
fn figures_of_tune_come_with_the_number_of_the_doubtful() {
    let (disk, options) = figures_of_gp3();
    let mut report = measure_simulated(&options, &disk, &mut (), &Control::default()).unwrap();
    for foreign_pct in [0.0, 40.0] {
        report.read_iops.as_mut().unwrap().foreign_pct = Some(foreign_pct);
        let (doubts, found) = (report.doubts().len(), of_tunes(std::slice::from_ref(&report)));
        assert_eq!(doubts > 0, foreign_pct > 0.0);
        assert_eq!(lines(&found)[4..], [format!("tune: gp3: doubtful_figures {doubts} count")]);
    }
}

#[test]
fn a_card_dates_from_the_first_day_that_its_date_can_be() {
    for (date, day) in [("2019", "2019-01-01"), ("2019-05", "2019-05-01"), ("2019-05-08", "2019-05-08")] {
        let mut card = Card::new("db-1", crate::instance::Origin::measured(date));
        card.set(
            "disk.read_iops",
            crate::instance::Figure { interval: Some([9.0, 11.0]), ..crate::instance::Figure::exact(10.0) },
        );
        let card = found(serde_json::from_str(&card.to_json()).unwrap());
        assert_eq!(lines(&card), ["instance card: db-1: disk.read_iops 10 1/s 9 to 11"]);
        assert_eq!(card.host.as_deref(), Some("db-1"));
        assert_eq!(card.at_us, Some(parse_time(&format!("{day}T00:00:00Z")).unwrap() / 1000));
    }
}

#[test]
fn a_recording_that_grew_has_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let (path, depot) = (directory.path().join("samples.txt"), directory.path().join("depot"));
    let sample = |second: u64| {
        let unused = " ".repeat(2000);
        format!("2026-03-14T12:00:{second:02}Z{unused}\n   8 0 sda {} 0 8000 100 0 0 0 0 0 90 100\n", 1000 * second)
    };
    let options = Options { host: Some("db1".to_owned()), ..Options::default() };
    let store_seconds = |seconds: u64| {
        std::fs::write(&path, (0..seconds).map(sample).collect::<String>()).unwrap();
        let stored = store(&Root::Directory(depot.clone()), &path, &options, &mut Watch::default()).unwrap();
        let [file] = stored.files.as_slice() else { panic!("{stored:?}") };
        (file.path.clone(), file.rows)
    };
    let (before, rows) = store_seconds(4);
    assert_eq!(rows, 3);
    assert_eq!(store_seconds(9), (before, 8));
}

#[test]
fn dates_that_can_be_read_in_two_ways_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (path, depot) = (directory.path().join("iostat.txt"), directory.path().join("depot"));
    let options = Options { host: Some("db1".to_owned()), ..Options::default() };
    for (day, is_open) in [("03/04/24", true), ("13/04/24", false), ("2024-04-03", false)] {
        let report = |second: u32| format!("{day} 10:00:{second:02}\nDevice r/s w/s\nsda 1.00 2.00\n\n");
        std::fs::write(&path, (10..13).map(report).collect::<String>()).unwrap();
        let stored = store(&Root::Directory(depot.clone()), &path, &options, &mut Watch::default()).unwrap();
        assert_eq!(stored.notes.iter().any(|note| note == DAY_ORDER_OPEN), is_open, "{day}: {stored:?}");
    }
}

/// It had two sets of rows.
#[test]
fn a_record_of_tune_that_is_gone_on_with_has_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let (path, depot) = (directory.path().join("run.jsonl"), directory.path().join("depot"));
    let (disk, options) = figures_of_gp3();
    let options = TuneOptions { record: Some(path.clone()), ..options };
    measure_simulated(&options, &disk, &mut (), &Control::default()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let (header, entries) = text.split_once('\n').unwrap();

    let store_at = |date: &str, entries: &str| {
        let mut header: serde_json::Value = serde_json::from_str(header).unwrap();
        header["place"] = json!({"host": "db1", "date": date, "storage": "/data", "disk": null});
        std::fs::write(&path, format!("{header}\n{entries}")).unwrap();
        let root = Root::Directory(depot.clone());
        store(&root, &path, &Options::default(), &mut Watch::default()).unwrap().files.remove(0).path
    };
    // Without its last line: the end.
    let part = &entries[..entries.trim_end().rfind('\n').unwrap() + 1];
    let of_part = store_at("2026-03-14 12:00:00 UTC", part);
    assert_eq!(store_at("2026-03-14 12:00:00 UTC", entries), of_part);
    assert_ne!(store_at("2026-03-14 13:00:00 UTC", entries).file_name(), of_part.file_name());
}

/// A recording of a host with many disks begins with their description, which is the same each day.
#[test]
fn recordings_that_begin_alike_have_names_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let (path, depot) = (directory.path().join("samples.txt"), directory.path().join("depot"));
    let options = Options { host: Some("db1".to_owned()), ..Options::default() };
    let store_day = |day: u64| {
        let sample = |second: u64| {
            format!("2026-03-{day}T12:00:{second:02}Z\n   8 0 sda {} 0 8000 100 0 0 0 0 0 90 100\n", 1000 * second)
        };
        let text: String = (0..4).map(sample).collect();
        std::fs::write(&path, "\n".repeat(STAT_NAMED_BY_BYTES as usize) + &text).unwrap();
        store(&Root::Directory(depot.clone()), &path, &options, &mut Watch::default()).unwrap().files.remove(0).path
    };
    let (one, other) = (store_day(14), store_day(15));
    assert_ne!(one.file_name(), other.file_name());
    assert!(one.is_file() && other.is_file());
}

/// `blktrace -o sda` writes a file for each CPU; `sda` stands for them, as for `trace`.
#[test]
fn the_base_name_of_blktrace_stands_for_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let (base, depot) = (directory.path().join("sda"), directory.path().join("depot"));
    // A read that is queued (1) and issued (7) on one CPU, and completes (8) on the other.
    let event = |sequence: u32, time_ns: u64, action: u32, cpu: u32| {
        let mut bytes = Vec::new();
        bytes.extend([0x6561_7407, sequence].map(u32::to_le_bytes).concat());
        bytes.extend([time_ns, 2048].map(u64::to_le_bytes).concat());
        let category = 1 | if action == 1 { 1 << 4 } else { 1 << (action - 1) };
        bytes.extend([4096, category << 16 | action, 7, 8 << 20, cpu, 0].map(u32::to_le_bytes).concat());
        bytes
    };
    let of_cpu = |cpu: u32| directory.path().join(format!("sda.blktrace.{cpu}"));
    std::fs::write(of_cpu(0), [event(1, 1000, 1, 0), event(2, 2000, 7, 0)].concat()).unwrap();
    std::fs::write(of_cpu(1), event(1, 90_000, 8, 1)).unwrap();

    let at_unix_ns = Some(parse_time("2026-03-14T12:00:00Z").unwrap());
    let options = Options { host: Some("db1".to_owned()), at_unix_ns, ..Options::default() };
    let store = |path: &Path| {
        let stored = store(&Root::Directory(depot.clone()), path, &options, &mut Watch::default()).unwrap();
        stored.files.into_iter().map(|file| (file.path, file.rows)).collect::<Vec<_>>()
    };
    let by_base = store(&base);
    assert_eq!(by_base[0].1, 1, "one span: {by_base:?}");
    assert_eq!(store(&of_cpu(1)), by_base);
    let missing = super::store(&Root::Directory(depot.clone()), &of_cpu(9), &options, &mut Watch::default());
    assert!(missing.is_ok(), "any of them stands for all: {missing:?}");
}

/// The error named the missing host first.
#[test]
fn what_is_no_recording_is_refused_as_such_without_a_host_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "Nothing was measured.\n").unwrap();
    let root = Root::Directory(directory.path().join("depot"));
    for host in [None, Some("db1".to_owned())] {
        let options = Options { host, ..Options::default() };
        let refused = store(&root, &path, &options, &mut Watch::default());
        assert!(matches!(refused, Err(StoreError::Content { .. })), "{refused:?}");
    }
}

/// Output of `blkparse -i sda > sda.txt`, longer than a result may be.
const TEXT_TRACE: &str = "8,0 1 1 0.000001 9 Q R 2048 + 8 [db]\n8,0 1 2 0.000002 9 D R 2048 + 8 [db]\n\
                          8,0 1 3 0.000003 0 C R 2048 + 8 [0]\n";

/// The file was read to its end for the sake of the error, and had to fit into memory.
#[test]
fn a_text_trace_is_known_by_its_first_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sda.txt");
    std::fs::write(&path, TEXT_TRACE.repeat(1000)).unwrap();
    let long = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    long.set_len(crate::report_page::FILE_BYTES_MAX + 1).unwrap();
    let root = Root::Directory(directory.path().join("depot"));
    let refused = store(&root, &path, &Options::default(), &mut Watch::default());
    let Err(StoreError::Depot { error: DepotError::NoHost { what }, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(what, "trace");
}

/// The error said that the file is no recording.
#[test]
fn a_trace_that_cannot_be_read_is_refused_with_the_error_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let of_cpu = |cpu: u32| directory.path().join(format!("sda.blktrace.{cpu}"));
    std::fs::write(of_cpu(0), TEXT_TRACE).unwrap();
    std::fs::create_dir(of_cpu(1)).unwrap();
    let options = Options { host: Some("db1".to_owned()), ..Options::default() };
    let root = Root::Directory(directory.path().join("depot"));
    let refused = store(&root, &of_cpu(0), &options, &mut Watch::default()).unwrap_err().to_string();
    assert!(refused.contains("cannot read it: Is a directory"), "{refused}");
}
