//! `plimsoll compare`: exit codes that a script relies on, formats, and what it refuses.

use crate::world::World;

/// A result: requests a second in each interval around `iops`.
fn result(job: &str, iops: u64, backend: &str) -> String {
    let interval = |at: u64| {
        let requests = iops + at * 7 % 5;
        format!(
            r#"{{"length_s": 1, "requests": {requests}, "bytes": {}, "latency_mean_us": {}, "latency_max_us": 1}}"#,
            requests << 12,
            1e6 / requests as f64
        )
    };
    let intervals: Vec<String> = (0..60).map(interval).collect();
    let histogram: Vec<String> = (1..=32).map(|at| format!("[{}, {iops}]", 100_000_000 / iops + at * 2048)).collect();
    format!(
        r#"{{"schema": 1, "plimsoll": "0.1.0", "backend": "{backend}", "shards": 1,
            "jobs": [{{"name": "{job}", "intervals": [{}], "histogram": [{}]}}]}}"#,
        intervals.join(","),
        histogram.join(",")
    )
}

fn world() -> World {
    World::new(&[
        ("a.json", &result("reads", 1000, "uring")),
        ("again.json", &result("reads", 1001, "uring")),
        ("slow.json", &result("reads", 900, "aio")),
        ("other.json", &result("writes", 1000, "uring")),
        ("cut.json", "{\"schema\": 1, \"jobs\": [\n"),
        (
            "storm.json",
            r#"{"schema": 1, "runs": [{"name": "storm", "seed": 1, "figures": [{"name": "p99", "value": 2}]}]}"#,
        ),
    ])
}

#[test]
fn a_regression_is_exit_code_1() {
    let world = world();
    let cases: [(&[&str], i32); 6] = [
        (&["a.json", "again.json"], 0),
        (&["a.json", "slow.json"], 1),
        (&["slow.json", "a.json"], 0),
        (&["a.json", "again.json", "slow.json"], 1),
        (&["a.json", "slow.json", "--threshold", "500"], 0),
        (&["storm.json", "storm.json"], 0),
    ];
    for (arguments, code) in cases {
        let ended = world.run(&[&["compare"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:#?}");
        ended.assert_fits();
    }
}

#[test]
fn the_table_names_winner_evidence_and_what_differs() {
    let ended = world().run(&["compare", "a.json", "slow.json"]);
    ended.assert_says(&["A (base): a.json", "B: slow.json", "IOPS", "-9.98 %", "***", "worse", "A and B: A is better"]);
    let iops = ended.out.lines().find(|line| line.starts_with("IOPS ")).expect("a row");
    assert_eq!(iops.matches(" %").count(), 2, "the change and its interval have a unit: {iops}");
    assert_eq!(ended.err, "warning: backend differs: uring (a.json), aio (slow.json)\n");
    let same = world().run(&["compare", "a.json", "a.json"]);
    assert!(same.out.contains("no evidence that either is better") && same.err.is_empty(), "{same:#?}");
}

#[test]
fn formats_for_programs() {
    let ended = world().run(&["compare", "a.json,again.json", "slow.json", "--format", "json"]);
    let report = ended.json();
    assert_eq!(report["sides"][0]["files"], serde_json::json!(["a.json", "again.json"]));
    assert_eq!((&report["schema"], &report["regression"]), (&serde_json::json!(1), &serde_json::json!(true)));
    assert_eq!(report["jobs"][0]["winner"], "A");
    let ended = world().run(&["compare", "a.json", "slow.json", "--format", "csv"]);
    let mut lines = ended.out.lines();
    assert!(lines.next().expect("a header").starts_with("job,side,metric,base,other,change_pct,"));
    assert!(lines.next().expect("a line").starts_with("reads,B,throughput_bytes_per_s,"), "{}", ended.out);
}

#[test]
fn what_is_refused() {
    let cases: [(&[&str], &[&str]); 7] = [
        (&["a.json"], &["1 result(s)", "from 2 to 26"]),
        (&["a.json", "missing.json"], &["missing.json: cannot be read"]),
        (&["a.json", "a.json,,again.json"], &["by one comma"]),
        (&["a.json", "cut.json"], &["cut.json:2", "plimsoll test --format json"]),
        (&["a.json", "other.json"], &["no job or point in common", "writes"]),
        (&["a.json", "storm.json"], &["of a simulation"]),
        (&["a.json", "slow.json", "--threshold=-1"], &["threshold"]),
    ];
    for (arguments, fragments) in cases {
        world().run(&[&["compare"], arguments].concat()).assert_refused(2, fragments);
    }
}
