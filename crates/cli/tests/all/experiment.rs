//! Experiments of `test`: sweeps, the search for a rate, the matrix, the same twice, outputs of `rbd bench`, pictures.
//!
//! Everything runs on nothing (the null backend), so that no figure depends on the machine.

use serde_json::Value;

use crate::world::{Ended, READS, WRITES, World};

const LARGE: &str = "\
- name: large
  type: seqread
  shards: all
  data_size: 64MB
  shard_info: {parallelism: 1, reqsize: 1MB, shares: 100}
";
const FIO: &str = "\
[global]
ioengine=libaio
direct=1
runtime=1
time_based
size=8m
[reads]
rw=randread
bs=4k
iodepth=4
";
const RBD: &str = "\
bench  type write io_size 8192 io_threads 16 bytes 8589934592 pattern sequential
  SEC       OPS   OPS/SEC   BYTES/SEC
    1     70000     70000   547 MiB/s
    2    140000     70000   547 MiB/s
elapsed: 15   ops: 1048576   ops/sec: 70000   bytes/sec: 547 MiB/s
";

/// `test` on the null backend for 50 ms.
fn run(world: &World, arguments: &[&str]) -> Ended {
    let backend = ["--backend", "null"];
    world.run(&[&["test"], arguments, &backend].concat())
}

fn json(world: &World, arguments: &[&str]) -> Value {
    run(world, &[arguments, &["--duration", "50ms", "--format", "json"]].concat()).done().json()
}

#[test]
fn sweeps_run_every_combination_and_judge_every_curve() {
    let world = World::new(&[("large.yaml", LARGE)]);
    let before = world.contents();
    let axes = ["large.yaml", "--sweep", "parallelism=1,2,4", "--sweep", "large.reqsize=64k,1M"];
    let report = json(&world, &axes);
    let points = report["points"].as_array().unwrap();
    assert_eq!((points.len(), report["verdicts"].as_array().unwrap().len()), (6, 2));
    assert_eq!(points[1]["settings"], serde_json::json!([["parallelism", "1"], ["large.reqsize", "1M"]]));
    assert!(points.iter().all(|point| point["iops"].as_f64().unwrap() > 0.0));
    for verdict in report["verdicts"].as_array().unwrap() {
        assert!(verdict["kind"].is_string() && verdict["sentence"].is_string(), "{verdict}");
    }
    let table = run(&world, &[&axes[..], &["--duration", "20ms"]].concat()).done().out;
    assert!(table.contains("Verdict (large.reqsize=1M)") && table.contains("N/XR"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let csv = run(&world, &[&axes[..], &["--duration", "20ms", "--format", "csv"]].concat()).done().out;
    assert!(csv.starts_with("set_parallelism,set_large.reqsize,parallelism,throughput_bytes_per_s,"), "{csv}");
    assert_eq!(csv.lines().count(), 7);
    assert!(world.contents() == before);
}

#[test]
fn old_defaults_bound_what_has_no_disk() {
    let world = World::new(&[("large.yaml", LARGE)]);
    let arguments = ["large.yaml", "--model", "old-defaults", "--sweep", "parallelism=8,16,32", "--duration", "300ms"];
    let ended = run(&world, &[&arguments[..], &["--format", "json"]].concat()).done();
    assert!(ended.err.contains("as Seastar did until July 2025") && ended.err.contains("8.59 GB/s"), "{ended:#?}");
    let report = ended.json();
    for point in report["points"].as_array().unwrap() {
        // Never more, whatever the machine can do; less where it is slow.
        assert!(point["throughput_bytes_per_s"].as_f64().unwrap() < 8.59e9 * 1.05, "{point}");
    }
    // Whoever is the limiter, it is no disk: there is none.
    assert_ne!(report["verdicts"][0]["kind"], "saturated");
}

#[test]
fn results_of_experiments_are_compared_and_shown_together() {
    let world = World::new(&[("large.yaml", LARGE)]);
    let keep = |name: &str, arguments: &[&str]| {
        let report = json(&world, arguments);
        std::fs::write(world.path().join(name), report.to_string()).unwrap();
        report
    };
    let sweep = ["large.yaml", "--sweep", "parallelism=1,2"];
    let old = keep("old.json", &[&sweep[..], &["--model", "old-defaults"]].concat());
    keep("new.json", &sweep);
    keep("matrix.json", &["--matrix"]);
    keep("dual.json", &["large.yaml", "--dual"]);
    keep("rate.json", &["large.yaml", "--find-rate", "lat_mean=1s"]);
    for key in ["machine", "place", "seed", "duration_s", "backend", "shards", "plimsoll"] {
        assert!(old[key] != Value::Null, "{key} of {old}");
    }
    assert!(old["points"][0]["rounds"][0]["intervals"].is_array());

    let ended = world.run(&["compare", "old.json", "new.json"]);
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
    ended.assert_says(&["Overall, A and B: ", "parallelism=1", "parallelism=2", "throughput"]);
    ended.assert_fits();
    for name in ["matrix.json", "dual.json", "rate.json"] {
        let ended = world.run(&["compare", name, name]).done();
        assert!(ended.out.contains("A and B: no evidence that either is better"), "{}", ended.out);
    }
    let both = world.run(&["compare", "dual.json", "dual.json"]).done().out;
    assert!(
        ["once", "twice at once"].iter().all(|run| both.lines().any(|line| line.trim().starts_with(run))),
        "{both}"
    );
    world.run(&["compare", "old.json", "rate.json"]).assert_refused(2, &["a search for a rate", "results of one kind"]);

    let files = ["old.json", "new.json", "matrix.json", "dual.json", "rate.json"];
    let ended = world.run(&[&["report"], &files[..], &["-o", "all.html"]].concat()).done();
    let kinds = ["sweep", "four usual loads", "a load once and twice", "search for a rate"];
    assert!(kinds.iter().all(|kind| ended.out.contains(kind)));
    let page = std::fs::read_to_string(world.path().join("all.html")).unwrap();
    let of_sweeps =
        ["Sweeps together", "Queue in the device", "queue / latency, old.json", "in the device, mean, new.json"];
    for part in of_sweeps.into_iter().chain(["alone and together: ", "2: together"]) {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        page.contains("Settings: plimsoll ") && page.contains("Highest rate of job") | page.contains("and more keep")
    );
}

#[test]
fn pictures_and_a_page_are_written() {
    let world = World::new(&[("reads.yaml", READS)]);
    std::fs::create_dir(world.path().join("out")).unwrap();
    let outputs = ["--pictures", "out", "--page", "page.html", "--duration", "300ms"];
    run(&world, &[&["reads.yaml", "--sweep", "parallelism=1,2"], &outputs[..]].concat()).done();
    let svg = std::fs::read_to_string(world.path().join("out/sweep.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("in the device, mean"), "{svg}");
    let page = std::fs::read_to_string(world.path().join("page.html")).unwrap();
    assert!(page.contains("Against parallelism") && page.contains("rate"));
    assert!(page.contains("duration 300 ms") && page.contains("seed 1"), "settings");
    run(&world, &[&["reads.yaml"], &outputs[..]].concat()).assert_refused(2, &["page.html exists", "--force"]);
    let ended = run(&world, &[&["reads.yaml", "--force", "--format", "json"], &outputs[..]].concat()).done();
    let page = std::fs::read_to_string(world.path().join("page.html")).unwrap();
    let report = ended.json();
    let place = ["host", "storage", "date"].map(|key| report["place"][key].as_str().unwrap());
    let [host, storage, date] = place;
    assert!(page.contains(&format!("<p>On {host}, {storage} (")), "{place:?} in {page}");
    assert_eq!(page.matches(&format!(", ended {date}.</p>")).count(), 1, "{place:?} in {page}");
    assert_eq!(page.matches("Settings: plimsoll ").count(), 1, "{page}");
    assert!(std::fs::read_to_string(world.path().join("out/time.svg")).unwrap().contains("Latency over time"));
}

#[test]
fn the_matrix_has_four_rows_and_takes_no_job_file() {
    let world = World::new(&[]);
    let report = json(&world, &["--matrix"]);
    let rows = report["rows"].as_array().unwrap();
    let kinds: Vec<&Value> = rows.iter().map(|row| &row["kind"]).collect();
    assert_eq!(kinds, ["overwrite", "seqread", "randwrite", "randread"]);
    let table = run(&world, &["--matrix", "--duration", "20ms"]).done().out;
    assert!(table.contains("1 MiB seq write") && table.contains("GB/s") && table.contains("IOPS"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(world.contents().is_empty());
}

#[test]
fn once_and_twice_at_once_beside_what_another_tool_said() {
    let world = World::new(&[("writes.yaml", WRITES), ("rbd.txt", RBD)]);
    let report = json(&world, &["writes.yaml", "--dual", "--rbd", "rbd.txt"]);
    let jobs = |run: usize| report["runs"][run]["jobs"].as_array().unwrap().len();
    assert_eq!((jobs(0), jobs(1)), (1, 2));
    assert_eq!((&report["device"], &report["rbd"][0]["io_threads"]), (&Value::Null, &16.into()));
    let table = run(&world, &["writes.yaml", "--dual", "--rbd", "rbd.txt", "--duration", "20ms"]).done().out;
    assert!(
        table.contains("2: writes-2") && table.contains("rbd bench, as read:") && table.contains("%util"),
        "{table}"
    );
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let alone = world.run(&["test", "--rbd", "rbd.txt"]).done().out;
    assert!(alone.contains("1: write sequential") && alone.contains("574 MB/s"), "{alone}");
}

#[test]
fn the_highest_rate_is_searched() {
    let world = World::new(&[("reads.yaml", READS)]);
    // Nothing takes ten seconds here: every rate that can be made passes.
    let ended = run(&world, &["reads.yaml", "--find-rate", "p99=10s", "--duration", "20ms", "--format", "json"]);
    let report = ended.json();
    assert_eq!((&report["job"], &report["goal"]), (&"reads".into(), &"p99=10s".into()));
    assert!(report["closed_loop_iops"].as_f64().unwrap() > 0.0);
    let trials = report["trials"].as_array().unwrap();
    assert!((1..=60).contains(&trials.len()));
    assert!(trials.iter().all(|trial| trial["rate"].as_f64().unwrap() > 0.0));
}

#[test]
fn fio_job_files_run_as_they_are() {
    let world = World::new(&[("reads.fio", FIO)]);
    let report = json(&world, &["reads.fio"]);
    assert_eq!((&report["jobs"][0]["name"], &report["jobs"][0]["kind"]), (&"reads".into(), &"randread".into()));
    let ended = run(&world, &["reads.fio", "--duration", "50ms", "--format", "fio-json"]).done();
    let report = ended.json();
    assert_eq!(report["jobs"][0]["jobname"], "reads");
    assert!(report["jobs"][0]["read"]["iops"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_run_ends_when_it_is_steady_or_says_that_it_is_not() {
    let world = World::new(&[("reads.yaml", READS)]);
    let arguments = ["reads.yaml", "--ss", "iops:1000%", "--ss-window", "100ms", "--duration", "20s"];
    let ended = run(&world, &arguments).done();
    assert!(ended.err.contains("ended because it was steady"), "{ended:#?}");
    let strict = ["reads.yaml", "--ss", "iops:0.000001%", "--ss-window", "100ms", "--duration", "200ms"];
    assert!(run(&world, &strict).done().err.contains("did not become steady"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new(&[
        ("reads.yaml", READS),
        ("reads.fio", FIO),
        ("goal.fio", &FIO.replace("[reads]", "latency_target=1s\n[reads]")),
        ("rbd.txt", "nothing"),
        ("good.txt", RBD),
        ("io.yaml", "disks: []"),
    ]);
    let before = world.contents();
    let cases: &[(&str, &[&str])] = &[
        ("", &["<CONF>"]),
        ("reads.yaml --sweep depth=1", &["unknown key `depth`", "parallelism"]),
        ("reads.yaml --sweep parallelism=1,0", &["`0`", "from 1 to 65536"]),
        ("reads.yaml --sweep writes.reqsize=4k", &["no job `writes`"]),
        ("reads.yaml --sweep reqsize=1k,1G", &["does not fit", "data_size"]),
        ("reads.yaml --sweep parallelism=1 --sweep parallelism=2", &["parallelism twice"]),
        ("reads.yaml --sweep parallelism=1 --dual", &["cannot be used with"]),
        ("reads.yaml --sweep parallelism=1 --format yaml", &["--format yaml is for a single run"]),
        ("reads.yaml --find-rate p99=2", &["--find-rate", "unit"]),
        ("reads.yaml --find-rate writes.p99=2ms", &["no job `writes`"]),
        ("reads.yaml --matrix", &["cannot be used with"]),
        ("reads.yaml --ss iops", &["such as iops:5%"]),
        ("--rbd rbd.txt", &["rbd.txt", "no output of `rbd bench`"]),
        ("--rbd missing.txt", &["missing.txt", "No such file"]),
        ("--rbd good.txt --dual", &["--dual", "a job file", "name one"]),
        ("--rbd good.txt reads.yaml", &["--rbd alone runs nothing", "add --dual", "leave out a job file"]),
        ("--rbd good.txt --page x.html", &["--rbd alone runs nothing", "leave out --page"]),
        ("--rbd good.txt --format fio-json", &["--format fio-json is for a single run"]),
        ("goal.fio --format fio-json", &["latency_target", "--format fio-json is for a single run"]),
        ("goal.fio --format yaml", &["latency_target", "--format yaml is for a single run"]),
        ("reads.yaml --pictures missing", &["--pictures missing: no such directory"]),
        ("reads.yaml --model old-defaults --io-properties io.yaml", &["--model old-defaults", "leave out"]),
        ("reads.fio --sweep shards=1", &["--sweep shards", "parallelism"]),
    ];
    for (line, parts) in cases {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        run(&world, &arguments).assert_refused(2, parts);
    }
    assert!(world.contents() == before);
}

#[test]
fn what_has_no_effect_in_an_experiment_is_told() {
    let fio = FIO.replace(
        "[reads]",
        "latency_target=1s\nlatency_window=1s\nsteadystate=iops:5%\nsteadystate_duration=1s\n[reads]",
    );
    let world = World::new(&[("both.fio", &fio)]);
    let ended = run(&world, &["both.fio", "--sweep", "parallelism=1", "--duration", "50ms"]).done();
    for part in ["latency_target has no effect beside --sweep", "steadystate has no effect in an experiment"] {
        assert_eq!(ended.err.matches(part).count(), 1, "{part}: {ended:#?}");
    }
    let ended = run(&world, &["both.fio", "--duration", "50ms"]);
    for part in ["latency_window has no effect: each run", "steadystate has no effect in an experiment"] {
        assert_eq!(ended.err.matches(part).count(), 1, "{part}: {ended:#?}");
    }
    assert!(!ended.err.contains("latency_target has no"), "{ended:#?}");
}

#[test]
fn jobs_run_on_disks_of_their_own() {
    let disk = |iops: u64| {
        format!(
            "disk: {{name: slow, read_iops: {iops}, write_iops: {iops}, read_bandwidth: 1000000000, \
             write_bandwidth: 1000000000}}\n"
        )
    };
    let jobs = |log: &str| {
        format!(
            "- {{name: queries, type: randread, shards: all, data_size: 1MB, \
             shard_info: {{parallelism: 4, reqsize: 4kB, shares: 100}}}}\n\
             - {{name: commitlog, type: append, shards: all, data_size: 8MB, {log}, \
             shard_info: {{parallelism: 1, reqsize: 4kB, shares: 100}}}}\n"
        )
    };
    let world = World::new(&[
        ("two.yaml", &jobs("storage: log, disk: slow.yaml")),
        ("same.yaml", &jobs("storage: data, disk: slow.yaml")),
        ("unnamed.yaml", &jobs("storage: log")),
        ("gone.yaml", &jobs("storage: nowhere")),
        ("alone.yaml", &jobs("disk: slow.yaml")),
        ("slow.yaml", &disk(1000)),
        ("fast.yaml", &disk(500_000)),
    ]);
    for name in ["data", "log"] {
        std::fs::create_dir(world.path().join(name)).unwrap();
    }
    // On nothing each path is a disk: the log has one of 1000 requests a second, the queries one without a limit.
    let run_on = |file: &str, more: &[&str]| {
        let arguments = [&[file, "--storage", "data", "--duration", "500ms"], more].concat();
        run(&world, &arguments)
    };
    let report = run_on("two.yaml", &["--format", "json"]).done().json();
    let job = |at: usize| &report["jobs"][at];
    let iops = |at: usize| job(at)["iops"].as_f64().unwrap();
    assert!((1.0..1100.0).contains(&iops(1)), "the log's disk bounds it: {report}");
    assert!(job(1)["io_queue"]["waited_tokens_s"].as_f64() > Some(0.0), "{report}");
    assert_eq!(job(0)["io_queue"]["waited_tokens_s"], 0.0, "the other disk has no limit");
    assert_eq!((&job(0)["job"]["storage"], &job(1)["job"]["storage"]), (&Value::Null, &"log".into()));

    for (file, more, fragments) in [
        ("same.yaml", &[][..], &["job `commitlog`: data is on the same disk as data", "remove `disk`"][..]),
        ("unnamed.yaml", &["--disk", "fast.yaml"], &["log is on another disk than the one of --disk", "`disk: NAME`"]),
        ("alone.yaml", &[], &["`disk` without `storage`", "--disk"]),
        ("gone.yaml", &[], &["nowhere", "No such file"]),
    ] {
        run_on(file, more).assert_refused(2, fragments);
    }

    // On real files each job's are in its own directory, here on one device, so on one disk.
    let real =
        ["test", "unnamed.yaml", "--storage", "data", "--duration", "100ms", "--backend", "pool", "--keep-files"];
    world.run(&real).done();
    let names = |directory: &str| {
        let entries = std::fs::read_dir(world.path().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names("data"), names("log")),
        (vec!["plimsoll-test-0-queries-0".into()], vec!["plimsoll-test-1-commitlog-0".into()])
    );
}
