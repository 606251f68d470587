//! Good runs: every format parses, and holds what docs/formats.md says.

use serde_json::Value;

use crate::world::{Ended, READS, World, keys};

const FORMATS: &str = include_str!("../../../../docs/formats.md");

const TWO_CLASSES: &str = "\
- name: big, and strange
  type: seqread
  shards: [0]
  data_size: 8MB
  shard_info: {parallelism: 4, reqsize: 128kB, class: background}
- name: small
  type: randwrite
  shards: all
  data_size: 8MB
  shard_info: {parallelism: 1, reqsize: 512, class: foreground}
";
const GROUPS: &str = "[{name: foreground, shares: 800}, {name: background, shares: 200}]";

fn assert_documented(value: &Value, except: &[&str]) {
    let missing: Vec<_> = keys(value)
        .into_iter()
        .filter(|key| !except.contains(&key.as_str()) && !FORMATS.contains(&format!("`{key}`")))
        .collect();
    assert!(missing.is_empty(), "docs/formats.md does not describe {missing:?}");
}

/// A measurement that ended, also one whose phases of some milliseconds leave a figure in doubt.
fn measured(ended: Ended) -> Ended {
    assert!(ended.code == Some(0) || ended.is_of_a_busy_machine(), "{ended:#?}");
    ended
}

fn test(backend: &str, format: &str) -> Ended {
    let world = World::new(&[("jobs.yaml", TWO_CLASSES), ("groups.yaml", GROUPS)]);
    let before = world.contents();
    let arguments = ["test", "jobs.yaml", "--sched-groups", "groups.yaml", "--duration", "200ms", "--warmup", "20ms"];
    let ended = world.run(&[&arguments[..], &["--backend", backend, "--format", format]].concat()).done();
    assert!(world.contents() == before);
    ended
}

#[test]
fn json_of_test() {
    for backend in ["null", "memory"] {
        let report: Value = serde_json::from_str(&test(backend, "json").out).unwrap();
        assert_documented(&report, &[]);
        assert_eq!(report["backend"], backend);
        assert_eq!(report["shards"], 1);
        assert_eq!(report["interrupted"], false);
        assert!(report["cpu_s_per_million_requests"].as_f64().unwrap() > 0.0);
        for (job, class, shares) in [(&report["jobs"][0], "background", 200), (&report["jobs"][1], "foreground", 800)] {
            assert_eq!((&job["class"], &job["shares"]), (&class.into(), &shares.into()));
            assert_eq!((&job["errors"], &job["first_error"], &job["shard"]), (&0.into(), &Value::Null, &Value::Null));
            let requests = job["requests"].as_u64().unwrap();
            assert!(requests > 0);
            assert_eq!(job["bytes"].as_u64().unwrap(), requests * job["request_bytes"].as_u64().unwrap());
            assert!(job["latency"]["p50_us"].as_f64() <= job["latency"]["p99_us"].as_f64());
            assert!(job["io_queue"]["dispatched"].as_u64().unwrap() > 0);
        }
        assert_eq!(report["by_shard"][1]["shard"], 0);
    }
}

#[test]
fn csv_of_test() {
    for backend in ["null", "memory"] {
        let out = test(backend, "csv").out;
        let mut lines = out.lines();
        let header = lines.next().unwrap();
        assert!(FORMATS.contains(header), "docs/formats.md does not have {header}");
        assert!(lines.next().unwrap().starts_with("\"big, and strange\",background,200,seqread,131072,"));
        let small: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(small[..5], ["small", "foreground", "800", "randwrite", "512"]);
        assert_eq!(small.len(), header.split(',').count());
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn yaml_of_test() {
    for backend in ["null", "memory"] {
        let out = test(backend, "yaml").out;
        assert!(out.starts_with("---\n"), "{out}");
        let shards: Value = serde_saphyr::from_str(&out).unwrap();
        assert_documented(&shards, &["big, and strange", "small"]);
        assert_eq!(shards.as_array().unwrap().len(), 1);
        assert_eq!(shards[0]["shard"], 0);
        for job in ["big, and strange", "small"] {
            let job = &shards[0][job];
            for key in ["throughput", "IOPS"] {
                assert!(job[key].as_f64().unwrap() > 0.0, "{key} in {out}");
            }
            for key in ["average", "p0.5", "p0.95", "p0.99", "p0.999", "max"] {
                assert!(job["latencies"][key].is_number(), "{key} in {out}");
            }
            assert!(job["stats"]["total_requests"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn tables_fit_100_columns() {
    for backend in ["null", "memory"] {
        let table = test(backend, "table").out;
        for fragment in ["small", "randwri", "IOPS", "p99.9"] {
            assert!(table.contains(fragment), "{table}");
        }
        let (jobs, _) = table.split_once("\n\n").unwrap();
        assert!(jobs.lines().all(|line| line.chars().count() <= 100), "{table}");
        // Only the name of a job may wrap.
        let small = jobs.lines().find(|line| line.starts_with("small")).unwrap();
        assert!(small.contains("512 B") && small.contains("B/s"), "{table}");
    }
}

#[test]
fn scratch_files_are_read_written_and_removed() {
    let world = World::new(&[("jobs.yaml", TWO_CLASSES), ("groups.yaml", GROUPS)]);
    let before = world.contents();
    let jobs = TWO_CLASSES.replace("512", "4kB");
    std::fs::write(world.path().join("jobs.yaml"), jobs).unwrap();
    let arguments = ["test", "jobs.yaml", "--sched-groups", "groups.yaml", "--duration", "100ms", "--format", "json"];
    if !crate::skip::has_direct_io(world.path()) {
        return;
    }
    let report: Value = world.run(&arguments).done().json();
    assert!(report["written_bytes"].as_u64().unwrap() >= 16 << 20);
    assert_eq!(world.contents().len(), before.len());
    // Asked to, it leaves them, and then refuses to take what is somebody's.
    world.run(&[&arguments[..], &["--keep-files"]].concat()).done();
    assert!(world.path().join("plimsoll-test-1-small-0").is_file());
    let again = world.run(&arguments);
    again.assert_refused(3, &["plimsoll-test-", "remove it if nobody uses it"]);
    assert!(world.path().join("plimsoll-test-1-small-0").is_file());
}

#[test]
fn properties_and_modes_bound_what_runs() {
    let world = World::new(&[("reads.yaml", READS)]);
    let mount = serde_json::to_string(world.path()).unwrap();
    let properties = format!(
        "disks: [{{mountpoint: {mount}, read_iops: 1000, write_iops: 1000, read_bandwidth: 1G, write_bandwidth: 1G}}]"
    );
    std::fs::write(world.path().join("io.yaml"), properties).unwrap();
    let run = |more: &[&str]| {
        let always = ["test", "reads.yaml", "--backend", "null", "--duration", "500ms", "--format", "json"];
        let ended = world.run(&[&always[..], more].concat()).done();
        (ended.json(), ended.err)
    };
    for flag in ["--io-properties", "--io-properties-file"] {
        let (report, remarks) = run(&[flag, "io.yaml", "--smp", "1"]);
        let requests = report["jobs"][0]["requests"].as_u64().unwrap();
        // Half a second at 1000 a second, and what may be in the device at once.
        assert!((1..=600).contains(&requests), "{requests}");
        assert!(report["jobs"][0]["io_queue"]["waited_tokens_s"].as_f64().unwrap() > 0.0);
        assert_eq!(remarks, "");
    }
    let (_, remarks) = run(&[]);
    assert!(remarks.contains("warning: no --io-properties or --disk: the disk is unlimited"), "{remarks}");
    let (_, remarks) = run(&["--mode", "depth", "--max-io-requests", "2", "--verbose"]);
    assert!(remarks.contains("warning: 2 requests over 1 I/O queues"), "{remarks}");
    assert_eq!(run(&["--mode", "depth", "--disk", "850-pro"]).1, "", "the preset says how many may be in flight");
    assert_eq!(run(&["--mode", "drain"]).1, "");
}

/// A tune of 20 ms phases on a small file in memory, or on nothing.
const TUNE: [&str; 8] = ["tune", ".", "--phase", "20ms", "--data-size", "16M", "-c", "1"];
/// The same without curves.
const FIGURES: [&str; 9] = ["tune", ".", "--phase", "20ms", "--data-size", "16M", "-c", "1", "--figures-only"];

#[test]
fn json_of_tune() {
    let world = World::new(&[]);
    for backend in ["null", "memory"] {
        let ended = world.run(&[&TUNE[..], &["--backend", backend, "--format", "json"]].concat());
        if ended.is_of_a_busy_machine() {
            return crate::skip::skip("the machine is too busy to measure for as long as was asked, or the same twice");
        }
        let ended = ended.done();
        let report = ended.json();
        assert_documented(&report, &[]);
        assert_eq!((&report["backend"]["name"], &report["device"]), (&backend.into(), &Value::Null));
        assert_eq!((&report["schema"], &report["mode"]), (&2.into(), &"standard".into()));
        for figure in ["read_iops", "write_iops", "read_bandwidth", "write_bandwidth"] {
            assert!(report[figure]["value"].as_f64().unwrap() > 0.0, "{figure}");
            assert_eq!(report[figure]["complete"], true);
        }
        assert!(world.contents().is_empty());
    }
}

#[test]
fn yaml_of_tune() {
    let world = World::new(&[]);
    for flags in [["--format", "yaml"], ["--output", "-"]] {
        let ended = measured(world.run(&[&FIGURES[..], &["--backend", "null"], &flags[..]].concat()));
        let properties: Value = serde_saphyr::from_str(&ended.out).unwrap();
        assert_documented(&properties, &[]);
        for figure in ["read_iops", "write_iops", "read_bandwidth", "write_bandwidth"] {
            assert!(properties["disks"][0][figure].as_u64().unwrap() > 0, "{figure}");
        }
        assert!(world.contents().is_empty());
    }
}

#[test]
fn what_tune_writes_test_reads() {
    let world = World::new(&[("reads.yaml", READS)]);
    let tune = [&FIGURES[..], &["--backend", "null", "-o", "io.yaml"]].concat();
    let table = measured(world.run(&tune)).out;
    assert!(table.contains("random read") && table.contains("sequential write"), "{table}");
    let written = std::fs::read(world.path().join("io.yaml")).unwrap();
    let before = world.contents();
    world.run(&tune).assert_refused(2, &["io.yaml exists", "--force"]);
    assert!(world.contents() == before);
    measured(world.run(&[&tune[..], &["--force"]].concat()));
    assert!(written.starts_with(b"disks:"));
    world.run(&["test", "reads.yaml", "--io-properties", "io.yaml", "--backend", "null", "--duration", "50ms"]).done();
}
