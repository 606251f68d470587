//! `trace show`, `trace export` and `test --replay`: what a program recorded, seen, taken elsewhere, and done again.

use std::io::{BufWriter, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::{Ended, PLIMSOLL, READS, World};

/// As blkparse prints it: a read and a write that overlap, of two processes.
const KERNEL: &str = "\
8,0 1 1 5.000001000 9 Q R 2048 + 8 [db]
8,0 1 2 5.000002000 9 Q W 4096 + 8 [log]
8,0 1 3 5.000003000 9 D R 2048 + 8 [db]
8,0 1 4 5.000004000 9 D W 4096 + 8 [log]
8,0 1 5 5.000015000 0 C W 4096 + 8 [0]
8,0 1 6 5.000043000 0 C R 2048 + 8 [0]
";

const SCENARIO: &str = "\
duration: 50ms
disks: [{disk: i4i.2xlarge}]
classes: [{name: db, shares: 100}]
jobs:
  - {name: db, class: db, replay: db.csv}
";

const GROUPS: &str = "[{name: db, shares: 700}]";

fn world() -> World {
    let short = "x".repeat(65_536);
    let empty = "8,0 1 6 5.000043000 0 C R 2048 + 8 [0]\n";
    World::new(&[
        ("k.txt", KERNEL),
        ("reads.yaml", READS),
        ("sim.yaml", SCENARIO),
        ("groups.yaml", GROUPS),
        ("target", &short),
        ("ends.txt", empty),
        ("noise.txt", "no trace at all\n"),
    ])
}

#[test]
fn show_has_a_line_for_each_piece() {
    let world = world();
    let ended = world.run(&["trace", "show", "k.txt"]).done();
    assert_eq!(ended.out.lines().count(), 3, "{ended:#?}");
    ended.assert_fits();
    ended.assert_says(&["time, s", "0.000001000", "write", "40.0 us"]);
    let cases: [(&[&str], usize, &str); 4] = [
        (&["--class", "db"], 1, ""),
        (&["--limit", "1"], 1, "1 more"),
        (&["--from", "20us"], 1, ""),
        (&["--from", "1s"], 0, "nothing of that"),
    ];
    for (more, lines, said) in cases {
        let ended = world.run(&[&["trace", "show", "k.txt"], more].concat()).done();
        assert_eq!(ended.out.lines().count(), lines + 1, "{more:?} {ended:#?}");
        assert!(ended.err.contains(said), "{more:?} {ended:#?}");
    }
    world.run(&["trace", "show", "k.txt", "--class", "nobody"]).assert_refused(2, &["no class `nobody`", "db, log"]);
    world.run(&["trace", "show", "noise.txt"]).assert_refused(2, &["noise.txt: this is no trace"]);
}

/// The reader has read enough, as `head` does: a trace that goes on is not read to its end.
#[test]
fn a_reader_that_leaves_ends_show() {
    let world = world();
    let mut command = world.command(&["trace", "show", "-"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    drop(child.stdout.take());
    let mut input = BufWriter::new(child.stdin.take().expect("a pipe"));
    let is_over = (0..300_000_u64).any(|number| {
        let us = 10 * number;
        let time = |us: u64| format!("{}.{:09}", us / 1_000_000, us % 1_000_000 * 1000);
        let mut event = |after_us, action| {
            writeln!(input, "8,0 1 {number} {} 9 {action} R {} + 8 [db]", time(us + after_us), 8 * number).is_err()
        };
        event(0, "Q") || event(1, "D") || event(2, "C")
    });
    assert!(is_over, "all of the trace was read");
    drop(input);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn an_export_is_csv_perfetto_or_arrivals_that_the_simulator_replays() {
    let world = world();
    let csv = world.run(&["trace", "export", "k.txt", "--to", "csv"]).done();
    // The name of the disk, "8,0", has a comma.
    let rows: Vec<Vec<&str>> = csv.out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), rows[0].len(), rows[1].len()), (3, 22, 23), "{csv:#?}");
    world.run(&["trace", "export", "k.txt", "--to", "perfetto", "-o", "k.pftrace"]).done();
    let bytes = std::fs::read(world.path().join("k.pftrace")).expect("it was written");
    assert_eq!(bytes.first(), Some(&0x0a), "field 1 of Trace: a packet");
    let again = world.run(&["trace", "export", "k.txt", "--to", "perfetto", "-o", "k.pftrace"]);
    again.assert_refused(2, &["k.pftrace exists", "--force"]);
    world.run(&["trace", "export", "k.txt", "--to", "perfetto"]).assert_refused(2, &["-o FILE"]);
    std::fs::hard_link(world.path().join("k.txt"), world.path().join("same.txt")).expect("a link");
    let onto_itself = world.run(&["trace", "export", "k.txt", "--to", "csv", "-o", "same.txt", "--force"]);
    onto_itself.assert_refused(2, &["--output would write over k.txt"]);
    world.run(&["trace", "export", "k.txt", "--to", "csv"]).done();
    world.run(&["trace", "export", "k.txt", "--to", "arrivals", "--class", "db", "-o", "db.csv"]).done();
    let text = std::fs::read_to_string(world.path().join("db.csv")).expect("it was written");
    assert_eq!(text, "at_us,op,offset_bytes,len_bytes\n0.000,read,1048576,4096\n");
    let ended = world.run(&["sim", "run", "sim.yaml", "--format", "json"]);
    assert!(matches!(ended.code, Some(0 | 1)) && ended.out.contains("\"db\""), "{ended:#?}");
}

/// Runs the command with files of at most some KiB: writes beyond that fail, as on a full disk.
fn with_full_disk(world: &World, arguments: &[&str]) -> Ended {
    let limits = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limits, PLIMSOLL]).args(arguments).current_dir(world.path());
    Ended::of(command.output().expect("sh starts"))
}

#[test]
fn an_export_onto_a_full_disk_leaves_no_part_of_a_file() {
    let world = world();
    let line = |nth: u64| {
        let event = |time_us, kind| format!("8,0 1 1 {0}.{time_us:06}000 9 {kind} R {0} + 8 [db]\n", 8 * nth);
        [event(1, 'Q'), event(2, 'D'), event(3, 'C')].concat()
    };
    std::fs::write(world.path().join("long.txt"), (0..2000).map(line).collect::<String>()).expect("a file is written");
    std::fs::write(world.path().join("old.csv"), "old\n").expect("a file is written");
    let before = world.contents();
    for (file, more) in [("new.csv", None), ("old.csv", Some("--force"))] {
        let arguments = ["trace", "export", "long.txt", "--to", "csv", "-o", file];
        let ended = with_full_disk(&world, &arguments.into_iter().chain(more).collect::<Vec<_>>());
        ended.assert_refused(3, &["cannot write", file, "File too large"]);
        assert_eq!(world.contents(), before, "{file}");
    }
    let scenario = SCENARIO
        .replace("class: db, replay: db.csv", "type: randread, shards: all, shard_info: {parallelism: 4, class: db}")
        .replace("{name: db, type", "{name: reads, type");
    std::fs::write(world.path().join("own.yaml"), scenario).expect("a file is written");
    let before = world.contents();
    let ended = with_full_disk(&world, &["sim", "run", "own.yaml", "--trace", "own.plt"]);
    assert!(ended.code == Some(3) && ended.err.contains("File too large"), "{ended:#?}");
    assert_eq!(world.contents(), before);
}

#[test]
fn parquet_is_written_or_the_message_says_how() {
    let world = world();
    let ended = world.run(&["trace", "export", "k.txt", "--to", "parquet", "-o", "k.parquet"]);
    if cfg!(feature = "parquet") {
        let bytes = std::fs::read(world.path().join("k.parquet")).expect("it was written");
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    } else {
        ended.assert_refused(2, &["--features parquet", "--to csv"]);
    }
}

#[test]
fn a_kernel_trace_is_replayed_on_a_file_reads_only_unless_told() {
    let world = world();
    let before = world.contents();
    let run = |more: &[&str]| {
        let base = ["test", "--replay", "k.txt", "--storage", "target", "--format", "json", "--backend", "pool"];
        world.run(&[&base, more].concat())
    };
    let ended = run(&["--verbose"]).done();
    let result = ended.json();
    let of = |result: &Value, key: &str| result["replay"][key].as_u64();
    assert_eq!(
        (of(&result, "requests"), of(&result, "issued"), of(&result, "not_allowed")),
        (Some(2), Some(1), Some(1))
    );
    assert!(ended.err.contains("--overwrite replays them too"), "{ended:#?}");
    assert_eq!(world.contents(), before, "nothing was written");
    let result = run(&["--overwrite", "--sched-groups", "groups.yaml", "--speed", "2"]).done().json();
    assert_eq!((of(&result, "issued"), of(&result, "not_allowed")), (Some(2), Some(0)));
    assert_ne!(world.contents(), before, "the write went to the file");
    let jobs = result["jobs"].as_array().expect("jobs");
    let shares = |name: &str| jobs.iter().find(|job| job["name"] == name).map(|job| job["shares"].clone());
    assert_eq!((shares("db"), shares("log")), (Some(700.into()), Some(100.into())), "{jobs:#?}");
    let db = &result["replay"]["classes"].as_array().expect("classes").iter().find(|class| class["name"] == "db");
    assert_eq!(db.map(|db| db["original"]["max_us"].as_f64()), Some(Some(42.0)), "{result:#}");
}

#[test]
fn a_trace_comes_from_a_pipe() {
    let world = world();
    let mut command = world.command(&["test", "--replay", "/dev/stdin", "--backend", "null", "--format", "json"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the binary starts");
    // Dropped when written: the pipe ends.
    child.stdin.take().expect("a pipe").write_all(KERNEL.as_bytes()).expect("a pipe holds that much");
    let result = &Ended::of(child.wait_with_output().expect("it ends")).done().json();
    let replay = &result["replay"];
    assert_eq!((replay["requests"].as_u64(), replay["issued"].as_u64()), (Some(2), Some(2)), "{result:#}");
}

/// As blktrace writes it of a partition below a logical volume: one read, remapped twice.
const REMAPPED: &str = "\
253,0 1 1 5.000001000 9 Q R 2048 + 8 [db]
8,2 1 2 5.000001500 9 A R 4096 + 8 <- (253,0) 2048
8,0 1 3 5.000002000 9 A R 6144 + 8 <- (8,2) 4096
8,0 1 4 5.000002500 9 Q R 6144 + 8 [db]
8,0 1 5 5.000003000 9 D R 6144 + 8 [db]
8,0 1 6 5.000043000 0 C R 6144 + 8 [0]
253,0 1 7 5.000044000 0 C R 2048 + 8 [0]
";

#[test]
fn a_request_that_was_remapped_is_replayed_once() {
    let world = World::new(&[("k.txt", REMAPPED)]);
    let ended = world.run(&["test", "--replay", "k.txt", "--backend", "null", "--format", "json"]).done();
    let result = ended.json();
    let replay = &result["replay"];
    assert_eq!((replay["requests"].as_u64(), replay["issued"].as_u64()), (Some(1), Some(1)), "{ended:#?}");
}

#[test]
fn a_job_file_comes_from_a_pipe() {
    let world = world();
    for options in [&["--backend", "null"][..], &["--backend", "null", "--sweep", "parallelism=1,2"]] {
        let run =
            [&["test", "/dev/stdin", "--warmup", "0", "--duration", "20ms", "--format", "json"], options].concat();
        let mut command = world.command(&run);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the binary starts");
        child.stdin.take().expect("a pipe").write_all(READS.as_bytes()).expect("a pipe holds that much");
        let ended = Ended::of(child.wait_with_output().expect("it ends"));
        assert!(matches!(ended.code, Some(0 | 1)) && ended.out.contains("\"iops\": "), "{ended:#?}");
    }
}

#[test]
fn what_a_test_recorded_is_replayed_and_compared() {
    let world = world();
    let record = ["test", "reads.yaml", "--backend", "null", "--duration", "20ms", "--trace", "run.plt"];
    world.run(&record).done();
    let table = world.run(&["test", "--replay", "run.plt", "--backend", "null", "--speed", "max"]).done();
    assert!(table.out.contains("trace p50") && table.out.contains("reads"), "{table:#?}");
    let run = ["test", "--replay", "run.plt", "reads.yaml", "--backend", "null", "--speed", "max", "--format", "json"];
    let result = world.run(&run).done().json();
    assert_eq!(result["replay"]["requests"], result["replay"]["issued"], "{result:#}");
    assert_eq!(result["jobs"][0]["kind"], "replay");
    let csv =
        world.run(&["test", "--replay", "run.plt", "--backend", "null", "--speed", "max", "--format", "csv"]).done();
    assert_eq!(csv.out.lines().count(), 2, "{csv:#?}");
}

#[test]
fn what_cannot_be_replayed_is_refused_before_anything_is_touched() {
    let world = world();
    let before = world.contents();
    let cases: [(&[&str], i32, &[&str]); 8] = [
        (&["--replay", "-"], 2, &["twice"]),
        (&["--replay", "ends.txt"], 2, &["nothing to replay"]),
        (&["--replay", "noise.txt"], 2, &["noise.txt: this is no trace"]),
        (&["--replay", "k.txt", "--speed", "0"], 2, &["or `max`"]),
        (&["--replay", "k.txt", "--warmup", "1"], 2, &["--warmup"]),
        (&["--replay", "k.txt", "--sweep", "parallelism=1,2"], 2, &["cannot be used with"]),
        (&["reads.yaml", "--speed", "2"], 2, &["--replay"]),
        (&["--replay", "k.txt", "--trace", "k.txt", "--force"], 2, &["name another file"]),
    ];
    for (arguments, code, parts) in cases {
        world.run(&[&["test"], arguments].concat()).assert_refused(code, parts);
    }
    assert_eq!(world.contents(), before);
}
