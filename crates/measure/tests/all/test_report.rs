//! Results of tests: what is printed is read again, and each type of job has its fields.

use plimsoll::backend::choose::BackendKind;
use plimsoll::core::{Histogram, WindowLimit};
use plimsoll_files::job_reader::parse;
use plimsoll_files::sched_groups::SchedGroups;
use plimsoll_measure::load::{BlockFault, Control, FaultKind, Interval, JobResult, RunResult, ShardResult};
use plimsoll_measure::report::{ReportError, SCHEMA, TestReport};
use plimsoll_measure::test::{Storage, TestJob, TestOptions, TestResult};
use serde_json::Value;

const JOBS: &str = "
- {name: 'a, b', type: randrw, shards: all, shard_info: {parallelism: 4, rate: 100}, options: {verify: true}}
- {name: hog, type: cpu, shards: all, shard_info: {parallelism: 1}}
- {name: remove, type: unlink, files_count: 7, shards: all, shard_info: {parallelism: 1}}
";

/// What `name` did on a shard: `requests` requests of 1 to `requests` us.
fn done(name: &str, requests: u64) -> JobResult {
    let mut latency = Box::new(Histogram::new());
    (1..=requests).for_each(|us| latency.record(us * 1000));
    let half =
        Interval { length_ns: 500_000_000, requests: 2, bytes: 8192, latency_sum_ns: 30_000, latency_max_ns: 20_000 };
    JobResult {
        name: name.to_owned(),
        requests,
        bytes: requests * 4096,
        elapsed_ns: 1_000_000_000,
        latency,
        intervals: vec![half, Interval { length_ns: 500_000_000, ..Interval::default() }],
        ..JobResult::default()
    }
}

/// A second of three jobs on two shards.
fn result() -> TestResult {
    let file = parse("jobs.yaml", JOBS, &SchedGroups::default()).expect("the jobs are well-formed");
    let fault = BlockFault {
        offset: 4096,
        kind: FaultKind::Stale,
        expected: "write 7".to_owned(),
        found: "write 5".to_owned(),
    };
    let shard = |shard| {
        let verified =
            JobResult { faults: vec![fault.clone()], fault_count: 3, ..done("a, b", 100 * (u64::from(shard) + 1)) };
        ShardResult {
            shard,
            cpu_ns: 500,
            elapsed_ns: 1_000_000_000,
            jobs: vec![verified, done("hog", 10), done("remove", 7)],
            window_limits: vec![WindowLimit::LatencyGoal { kept: 0.84, needed_ns: 1_420_000 }],
        }
    };
    let jobs = file.jobs.into_iter().map(|job| TestJob { class: job.name.clone(), shares: 10, job }).collect();
    TestResult { jobs, ..with_run(RunResult { shards: vec![shard(0), shard(1)], ..RunResult::default() }) }
}

fn options() -> TestOptions {
    let text = "[{name: r, type: randread, shards: all, shard_info: {parallelism: 1}}]";
    let jobs = parse("jobs.yaml", text, &SchedGroups::default()).expect("the job is well-formed");
    TestOptions {
        backend: Some(BackendKind::Null),
        warmup_ns: 250_000,
        duration_ns: 1_000_000,
        seed: 42,
        ..TestOptions::new(jobs, Storage::of(".".as_ref()).expect("a directory"))
    }
}

/// The result of a run without jobs.
fn with_run(run: RunResult) -> TestResult {
    let made =
        plimsoll_measure::test::run(&options(), &Control::default(), &mut |_, _| {}).expect("the null backend runs");
    TestResult { run, jobs: Vec::new(), ..made }
}

#[test]
fn what_is_written_is_read_again() {
    let report = TestReport::of(&result());
    let text = report.to_json();
    assert_eq!(TestReport::from_json(&text).unwrap(), report);
    // Keys that a later version of the same form adds are passed over.
    let more = text.replacen('{', "{\"moon\": [1, {}],", 1);
    assert_eq!(TestReport::from_json(&more).unwrap(), report);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((json["schema"].as_u64(), &json["seed"]), (Some(SCHEMA), &Value::Null));
    let job = &json["jobs"][0];
    assert_eq!((job["kind"].as_str(), job["job"]["requests_per_s_per_shard"].as_f64()), (Some("randrw"), Some(100.0)));
    assert_eq!(job["histogram"][0], serde_json::json!([1007, 2]));
    let interval = serde_json::json!({
        "length_s": 0.5, "requests": 4, "bytes": 16384, "latency_mean_us": 15.0, "latency_max_us": 20.0
    });
    assert_eq!(job["intervals"][0], interval);
    assert_eq!((job["intervals"][1]["latency_mean_us"].as_f64(), job["fault_count"].as_u64()), (Some(0.0), Some(6)));
    let fault = serde_json::json!({"offset": 4096, "kind": "stale", "expected": "write 7", "found": "write 5"});
    assert_eq!(job["faults"], serde_json::json!([fault, fault]));
    assert_eq!(json["by_shard"].as_array().map(Vec::len), Some(6));
    let binds = serde_json::json!([{"disk": 0, "kept": 0.84, "needed_ms": 1.42}]);
    assert_eq!(json["latency_goal_binds"], binds);
    let said = "The latency goal binds: about 0.84 of the throughput is kept; --latency-goal 1.4 (or less) would keep the \
                throughput goal.";
    assert!(report.remarks().iter().any(|remark| remark == said), "{:?}", report.remarks());
}

#[test]
fn what_was_asked_for_is_kept() {
    let report = TestReport::of(&result()).with_options(&options());
    let made = &report.made;
    assert_eq!((made.seed, made.duration_s, made.warmup_s), (Some(42), Some(0.001), Some(0.000_25)));
    assert!(made.machine.cpus.is_some_and(|cpus| cpus > 0));
    assert_eq!(TestReport::from_json(&report.to_json()).unwrap(), report);
}

#[test]
fn counts_of_shards_add_up_to_those_of_the_job() {
    let report = TestReport::of(&result());
    let total = &report.jobs[0];
    let mut sums = std::collections::BTreeMap::new();
    for job in report.by_shard.iter().filter(|job| job.name == total.name) {
        Vec::from(job.histogram.clone())
            .into_iter()
            .for_each(|(upper_ns, count)| *sums.entry(upper_ns).or_insert(0) += count);
    }
    assert_eq!(sums.values().sum::<u64>(), total.requests);
    assert_eq!(Vec::from_iter(sums), Vec::from(total.histogram.clone()));
}

#[test]
fn texts_that_are_no_result() {
    let text = TestReport::of(&result()).to_json();
    let newer = text.replacen("\"schema\": 1", "\"schema\": 999", 1);
    let older = text.replacen("\"schema\": 1,", "", 1);
    let damaged = text.replacen("\"iops\"", "\"ipos\"", 1);
    let reversed = text.replace("[\n          1007,", "[\n          5000000,");
    let cases = [
        ("", "is not JSON"),
        (&text[..text.len() / 2], "is not JSON"),
        ("[]", "not the result of a test"),
        ("5", "not the result of a test"),
        ("{\"schema\": 2, \"directory\": \"/x\"}", "not the result of a test"),
        ("{\"plimsoll\": \"1\", \"schema\": \"x\", \"jobs\": [], \"by_shard\": []}", "not the result of a test"),
        (&newer, "schema 999"),
        (&older, "run the test again"),
        (&damaged, "missing field `iops`"),
        (&reversed, "must rise"),
    ];
    for (text, message) in cases {
        let error = TestReport::from_json(text).expect_err(message).to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
    assert!(matches!(TestReport::from_json(&newer), Err(ReportError::NewerSchema { found: 999 })));
}

#[test]
fn yaml_has_io_testers_fields_for_each_type() {
    let yaml = TestReport::of(&result()).to_yaml();
    let shard_1 = yaml.split("- shard: 1\n").nth(1).expect("a second shard");
    let (first, rest) = shard_1.split_once("  hog:\n").expect("the second job");
    for key in
        ["  \"a, b\":", "throughput: 800.000  # kB/s", "IOPS: 200.000", "p0.999:", "p0.9999:", "total_requests: 200"]
    {
        assert!(first.contains(key), "{key}:\n{first}");
    }
    assert!(first.contains("      faults: 3\n"), "{first}");
    let expected = "    throughput: 10.000
  remove:
    IOPS: 7.000
    latencies:  # usec
      average: 4.000
      max: 7.000
    stats:
      total_requests: 7
      errors: 0
  statistics:
    aio_retries: 0
...
";
    assert_eq!(rest, expected);
}

#[test]
fn csv_has_new_columns_at_the_end() {
    let csv = TestReport::of(&result()).to_csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].starts_with("job,class,shares,type,") && lines[0].ends_with(",latency_p99_99_us,fault_count"));
    assert!(
        lines[1].starts_with("\"a, b\",\"a, b\",10,randrw,4096,300,300.0,") && lines[1].ends_with(",6"),
        "{}",
        lines[1]
    );
    assert_eq!((lines.len(), lines[2].split(',').count()), (4, lines[0].split(',').count()));
}

#[test]
fn a_run_without_jobs_has_a_result() {
    let report = TestReport::of(&with_run(RunResult::default()));
    assert_eq!(TestReport::from_json(&report.to_json()).unwrap(), report);
    assert_eq!(report.to_yaml(), "---\n...\n");
}
