//! Scenario files: what they mean, what sweeps change in them, and what is refused at which line.

use std::path::Path;
use std::sync::Arc;

use plimsoll_core::{LatencyGoal, Op};
use plimsoll_files::scenario::{Scenario, ScenarioFile};
use plimsoll_files::{Code, ConfigError};
use plimsoll_measure::load::Stop;
use plimsoll_measure::sim::run::{Step, Subject, Task, run_all};
use plimsoll_sim::device::FaultKind;
use plimsoll_sim::workload::{Load, Pattern, Spacing};
use plimsoll_sim::world::{Change, DiskMode};

const BASE: &str = "\
duration: 100ms
shards: 2
disks:
  - disk: i4i.2xlarge
classes:
  - {name: query, shares: 800}
jobs:
  - {name: q, type: randread, shards: all, shard_info: {parallelism: 8, class: query}}
";

fn parse(text: &str) -> Result<ScenarioFile, ConfigError> {
    ScenarioFile::parse("mine.yaml", text, Path::new(""))
}

fn scenario(text: &str) -> Scenario {
    parse(text).and_then(|file| file.scenario(&[])).unwrap_or_else(|error| panic!("{error}"))
}

fn swept(text: &str, key: &str, value: &str) -> Result<Scenario, ConfigError> {
    parse(text)?.scenario(&[(key.to_owned(), value.to_owned())])
}

#[test]
fn all_of_a_world() {
    let text = format!(
        "{BASE}  - {{name: hog, type: cpu, shards: [0], shard_info: {{parallelism: 1, execution_time: 550us}}}}
  - {{name: burst, type: seqread, shards: all, shard_info: {{parallelism: 1, batch: 50, rps: 8, reqsize: 128kB}}}}
  - {{name: open, class: query, open: {{rate: 500, spacing: poisson}}, op: write, pattern: append, start: never}}
faults: [{{from: 10ms, until: 20ms, slow: 0.5}}]
actions: [{{at: 50ms, start_job: open}}, {{at: 60ms, set_qos: {{class: query, limit_iops: 5}}}}]
"
    );
    let text = text.replace(
        "  - disk: i4i.2xlarge\n",
        "  - {disk: i4i.2xlarge, mode: depth, max_io_requests: 64, latency_goal: none, num_io_queues: 1, window: 1ms, \
         decay_tau: 20ms}\n",
    );
    let world = scenario(&text).world;
    assert_eq!((world.shards.len(), world.duration_ns, world.disks.len()), (2, 100_000_000, 1));
    let disk = &world.disks[0];
    assert_eq!((disk.mode, disk.decay_tau_ns), (DiskMode::Depth { max_io_requests: 64 }, 20_000_000));
    assert_eq!((disk.config.latency_goal, disk.config.window_ns), (LatencyGoal::NoSplit, Some(1_000_000)));
    assert!(matches!(disk.device.faults[0].kind, FaultKind::Slow { speed_factor: 0.5 }));
    let job = |name: &str| world.jobs.iter().find(|job| job.name == name).expect(name);
    assert_eq!(job("q").load, Load::closed(8));
    assert_eq!(job("hog").load, Load::Cpu { parallelism: 1, execution_ns: 550_000, pause_ns: 0 });
    let spacing = Spacing::Uniform;
    let burst = Load::Open { requests_per_s: 400.0, spacing, batch: 50, max_outstanding: Some(50) };
    assert_eq!(job("burst").load, burst);
    assert_eq!((job("open").op, job("open").pattern, job("open").start_ns), (Op::Write, Pattern::Append, None));
    assert!(job("burst").region.offset_bytes >= 2 << 30, "files of their own");
    assert!(matches!(&world.actions[1].change, Change::SetQos { class, qos }
        if class == "query" && qos.limits.iops.get() == Some(5)));
    assert!(world.classes.iter().any(|class| class.name == "burst" && class.shares == 10));
    assert!(!world.classes.iter().any(|class| class.name == "hog"), "CPU work needs no class");
}

#[test]
fn sweeps_change_one_place_or_all() {
    let parallelism = |scenario: &Scenario| scenario.world.jobs[0].load.clone();
    assert_eq!(parallelism(&swept(BASE, "parallelism", "3").unwrap()), Load::closed(3));
    assert_eq!(parallelism(&swept(BASE, "jobs.q.shard_info.parallelism", "5").unwrap()), Load::closed(5));
    assert_eq!(swept(BASE, "shards", "7").unwrap().world.shards.len(), 7);
    assert_eq!(swept(BASE, "shares", "9").unwrap().world.classes[0].shares, 9);
    assert_eq!(swept(BASE, "classes.query.shares", "11").unwrap().world.classes[0].shares, 11);
    assert_eq!(swept(BASE, "disks.0.window", "2ms").unwrap().world.disks[0].config.window_ns, Some(2_000_000));
    assert_eq!(swept(BASE, "window", "3ms").unwrap().world.disks[0].config.window_ns, Some(3_000_000));
    assert_eq!(swept(BASE, "seed", "12").unwrap().world.seed, 12);
    let grouped = BASE.replace("shards: 2\n", "shards: {count: 2, poll_interval: 100us}\n");
    let shards = swept(&grouped, "shards", "3").unwrap().world.shards;
    assert_eq!((shards.len(), shards[2].poll_interval_ns), (3, Some(100_000)));
    for (key, value, expected) in [
        ("paralelism", "1", "did you mean `parallelism`"),
        ("disks.4.window", "1ms", "leads nowhere"),
        ("jobs.nobody.limit", "1", "leads nowhere"),
        ("parallelism", "many", "whole number"),
        ("shards", "0", "this is the run with --sweep shards=0"),
    ] {
        let error = swept(BASE, key, value).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_makes_no_scenario_is_refused() {
    let entry = |line: &str| format!("{BASE}{line}\n");
    let instead = |old: &str, new: &str| BASE.replace(old, new);
    let disk = |keys: &str| instead("  - disk: i4i.2xlarge", &format!("  - {{disk: i4i.2xlarge, {keys}}}"));
    let figures = "figures: {read_iops: 1, read_bandwidth: 1, write_iops: 1, write_bandwidth: 1}";
    let cases: &[(String, Code, &str)] = &[
        // What cannot end or begin.
        (instead("duration: 100ms\n", ""), Code::MissingKey, "a scenario ends"),
        (instead("100ms", "0"), Code::OutOfRange, "1 ns to 720 h (30 days)"),
        (instead("100ms", "99999h"), Code::OutOfRange, "30 days"),
        (instead("100ms", "5"), Code::InvalidValue, "such as 1.5ms"),
        (BASE.split("jobs:").next().unwrap_or("").to_owned(), Code::MissingKey, "job_file"),
        // Models that admit nothing.
        (disk(figures), Code::OutOfRange, "are they per second"),
        (disk("window: 0"), Code::OutOfRange, "admits nothing"),
        (
            disk("figures: {read_iops: 0, read_bandwidth: 1, write_iops: 1, write_bandwidth: 1}"),
            Code::OutOfRange,
            "1 to",
        ),
        (disk("mode: depth"), Code::MissingKey, "max_io_requests: 128"),
        (disk("decay_tau: 0"), Code::OutOfRange, "1.00 ms"),
        (disk("mode: depth, max_io_requests: 0"), Code::OutOfRange, "write 1 to"),
        (disk("max_io_requests: 5"), Code::Ignored, "mode: depth"),
        (disk("capacity_scale: 2:1"), Code::InvalidValue, "MIN:MAX"),
        (disk("num_io_queues: 3"), Code::OutOfRange, "1 to 2"),
        (instead("shares: 800", "shares: 800, limit_iops: 0"), Code::OutOfRange, "remove the key"),
        // Names.
        (instead("i4i.2xlarge", "i4i.2xlarg"), Code::UnknownReference, "i4i.2xlarge"),
        (instead("class: query", "class: qury"), Code::UnknownReference, "did you mean `query`?"),
        (instead("class: query", "class: something_else"), Code::UnknownReference, "a class of `classes:`"),
        (entry("  - {name: o, class: qeury, open: {rate: 1}}"), Code::UnknownReference, "`query`"),
        (entry("actions: [{at: 1ms, stop_job: p}]"), Code::UnknownReference, "`q`"),
        (entry("faults: [{disk: 1, until: 1ms, slow: 0.5}]"), Code::UnknownReference, "this scenario has 1"),
        (entry("  - {name: q, class: query, open: {rate: 1}}"), Code::DuplicateName, "name of its own"),
        (instead("duration", "durations"), Code::UnknownKey, "duration"),
        // Values.
        (entry("  - {name: o, class: query, open: {rate: 0}}"), Code::OutOfRange, "above 0"),
        (entry("  - {name: o, class: query, replay: nowhere.csv}"), Code::Unreadable, "path"),
        (entry("faults: [{from: 2ms, until: 1ms, slow: 0.5}]"), Code::OutOfRange, "after `from`"),
        (entry("faults: [{until: 1ms}]"), Code::MissingKey, "`slow`"),
        (instead("type: randread", "start: 5ms, stop: 5ms, type: randread"), Code::OutOfRange, "after `start`"),
        (
            entry("  - {name: o, class: query, open: {rate: 1}, region: {offset: 9000G}}"),
            Code::OutOfRange,
            "lower `offset`",
        ),
        (disk("mountpoint: /x"), Code::Ignored, "io_properties"),
        (BASE.split("jobs:").next().unwrap_or("").to_owned() + "jobs: []\n", Code::Empty, "for each job"),
        (instead("type: randread", "start: never, type: randread"), Code::OutOfRange, "start_job"),
        (entry("faults: [{until: 1ms, slow: 0.5, short: 0.5}]"), Code::Ignored, "an entry for each"),
        (instead("shards: 2", "shards: 0"), Code::OutOfRange, "not possible|1 to 1,024"),
        (instead("shards: all", "shards: [2]"), Code::OutOfRange, "count from 0"),
        (instead("disks:\n  - disk: i4i.2xlarge\n", ""), Code::MissingKey, "i4i.2xlarge"),
        (instead("randread", "cpu"), Code::MissingKey, "550us"),
    ];
    for (text, code, help) in cases {
        let error = parse(text).and_then(|file| file.scenario(&[])).expect_err(text);
        assert_eq!(error.code(), *code, "{text}\n{error}");
        let advice = error.help().unwrap_or("");
        assert!(help.split('|').any(|part| advice.contains(part)), "expected {help}:\n{error}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let task = |seed| Task { subject: Subject::Own(Arc::new(scenario(BASE))), changes: Vec::new(), seed };
    let (mut curves, mut done) = (0, 0.0);
    let finished = run_all(vec![task(1), task(1), task(2)], 2, &Stop::default(), &mut |step| {
        let run = match step {
            Step::Ended(run) => run,
            Step::Advanced(part) => {
                assert!(part >= done, "{part} after {done}");
                done = part;
                return;
            }
        };
        let series = &run.result.as_ref().unwrap().series;
        assert!(series.iter().all(|series| !series.y.is_empty()));
        curves += series.len();
    });
    assert!(curves > 0 && done == 1.0, "{curves} curves, {done} done");
    let hashes: Vec<u64> = finished.iter().map(|run| run.result.as_ref().unwrap().log_hash).collect();
    assert!(hashes[0] == hashes[1] && hashes[0] != hashes[2], "{hashes:?}");
    let result = finished[0].result.as_ref().unwrap();
    assert!(result.figures.iter().any(|figure| figure.name == "query: IOPS, 1/s" && figure.number() > 1000.0));
    assert!(result.tables.iter().any(|table| table.title == "Classes"));
}

#[test]
fn what_comes_after_the_end_is_told() {
    let text = format!(
        "{BASE}faults: [{{from: 100ms, until: 1s, slow: 0.5}}, {{from: 99ms, until: 1s, slow: 0.5}}]
actions: [{{at: 1s, stop_job: q}}]
"
    );
    let warnings = scenario(&text).warnings;
    let lines: Vec<Option<usize>> = warnings.iter().map(|warning| warning.line()).collect();
    assert_eq!(lines, [Some(9), Some(10)]);
    assert!(warnings.iter().all(|warning| warning.message().contains("it lasts 100 ms")), "{warnings:?}");
}

#[test]
fn a_class_that_only_waits_has_a_curve() {
    let text =
        format!("{BASE}  - {{name: w, type: randread, shards: all, shard_info: {{parallelism: 1, shares: 1}}}}\n")
            .replace("shares: 800}", "shares: 800, limit_iops: 1}");
    let task = Task { subject: Subject::Own(Arc::new(scenario(&text))), changes: Vec::new(), seed: 1 };
    let mut series = Vec::new();
    run_all(vec![task], 1, &Stop::default(), &mut |step| {
        let Step::Ended(run) = step else { return };
        series = run.result.as_ref().unwrap().series.clone();
    });
    let throughput = series.iter().find(|panel| panel.title == "Throughput by class").unwrap();
    assert!(throughput.curves.iter().any(|(name, _)| name == "query"), "{throughput:?}");
}

#[test]
fn a_run_that_would_not_end_is_refused() {
    let device = "  - device: {rates: {read_iops: 9e17, read_bytes_per_s: 9e17}, latency: {read_ns: 0, sigma: 0}}\n";
    let endless = BASE.replace("  - disk: i4i.2xlarge\n", device);
    let month = BASE.replace("100ms", "700h");
    let open = format!("{BASE}  - {{name: o, class: query, open: {{rate: 1e9}}}}\n").replace("100ms", "10s");
    for text in [endless, month, open] {
        let error = parse(&text).and_then(|file| file.scenario(&[])).expect_err(&text);
        assert_eq!(error.code(), Code::OutOfRange, "{error}");
        assert!(error.message().contains("would not end"), "{error}");
    }
    let limited = BASE.replace("100ms", "700h").replace("parallelism: 8", "parallelism: 8, limit: 1000");
    assert!(parse(&limited).and_then(|file| file.scenario(&[])).is_ok());
}
