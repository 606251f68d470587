//! What makes no sense is refused with exit code 2, one message that says what to do, and nothing touched.

use crate::world::{READS, WRITES, World};

const FIGURES: &str = "read_iops: 1000, write_iops: 1000, read_bandwidth: 1M, write_bandwidth: 1M";

#[test]
fn arguments_that_make_no_sense() {
    let world = World::new(&[
        ("reads.yaml", READS),
        ("writes.yaml", WRITES),
        ("checks.yaml", &WRITES.replace("  shard_info", "  options: {verify: true}\n  shard_info")),
        ("named", &"0123456789abcdef".repeat(4096)),
        ("short", "too short"),
        ("other-mount.yaml", &format!("disks: [{{mountpoint: /proc, {FIGURES}}}]")),
    ]);
    let before = world.contents();
    let cases: &[(&str, &[&str])] = &[
        // Places.
        ("demo missing", &["missing: No such file", "give a directory"]),
        ("demo named", &["named: it is not a directory", "give a directory"]),
        ("tune missing", &["missing: No such file", "give a directory"]),
        ("tune named", &["named: it is not a directory", "give a directory"]),
        ("test missing.yaml", &["missing.yaml", "No such file", "check the path"]),
        ("test .", &["--> .", "Is a directory"]),
        ("test /dev/zero", &["the text is larger than 1048576 bytes", "--> /dev/zero"]),
        ("test reads.yaml --storage missing", &["missing: No such file", "--storage takes a directory, a file or"]),
        ("test reads.yaml --storage /dev/null", &["/dev/null", "--storage takes a directory, a file or"]),
        ("test reads.yaml --storage short", &["short has 9 bytes", "4096", "name a longer file"]),
        // What would be lost.
        ("test writes.yaml --storage named", &["`writes`", "named would lose its contents", "--overwrite"]),
        ("test writes.yaml --storage named --destructive", &["named would lose its contents", "--overwrite"]),
        ("tune . -o - --format json --backend null", &["--output - prints io-properties", "leave out one"]),
        ("tune . -o named --backend null", &["named exists", "--force"]),
        ("tune . -o . --backend null --force", &["is a directory", "name a file for --output"]),
        ("tune . -o missing/io.yaml --backend null", &["missing: no such directory"]),
        ("test reads.yaml --page reads.yaml --force", &["--page would write over reads.yaml, which is read"]),
        ("test reads.yaml --trace reads.yaml --force", &["--trace would write over reads.yaml, which is read"]),
        ("test reads.yaml --storage named --trace named --force", &["--trace would write over named, which is read"]),
        ("test reads.yaml --page x.html --trace ./x.html", &["--page and --trace name the same file"]),
        // A trace that is not made leaves the file as it was.
        ("test writes.yaml --storage named --trace new.plt", &["named would lose its contents", "--overwrite"]),
        ("test writes.yaml --storage named --trace short --force", &["named would lose its contents", "--overwrite"]),
        ("tune missing --trace short --force", &["missing: No such file", "give a directory"]),
        ("demo missing --trace new.plt", &["missing: No such file", "give a directory"]),
        // What nothing could verify.
        ("test checks.yaml --backend null", &["`writes` verifies", "null backend keeps nothing", "--backend memory"]),
        // Shards and queues.
        ("test reads.yaml -c 60000", &["--shards 60000", "ask for at most"]),
        ("tune . --shards 60000", &["--shards 60000", "ask for at most"]),
        ("test reads.yaml --shards 0", &["--shards", "0 is not in 1..="]),
        ("test reads.yaml --num-io-queues 5", &["5 I/O queues"]),
        // Modes and figures.
        ("test reads.yaml --mode depth", &["--mode depth needs --max-io-requests N"]),
        ("test reads.yaml --max-io-requests 8", &["--max-io-requests is for --mode depth"]),
        ("test reads.yaml --mode fast", &["--mode", "scheduled, depth, drain"]),
        ("test reads.yaml --model cubic", &["--model", "knee, additive, max, seastar, old-defaults"]),
        ("test reads.yaml --latency-goal 0", &["--latency-goal", "or `none`"]),
        ("test reads.yaml --io-latency-goal 0", &["--latency-goal", "or `none`"]),
        ("test reads.yaml --io-properties missing.yaml", &["missing.yaml", "No such file"]),
        (
            "test reads.yaml --io-properties other-mount.yaml",
            &["other-mount.yaml: no disk of the io-properties holds .", "/proc", "add an entry"],
        ),
        // Backends, formats, times, sizes.
        ("test reads.yaml --backend spdk", &["'spdk'", "uring, aio, pool, memory, null"]),
        ("tune . --backend spdk", &["'spdk'", "uring, aio, pool, memory, null, sim"]),
        ("demo --backend spdk", &["'spdk'", "uring, aio, pool, memory, null"]),
        ("test reads.yaml --format xml", &["table, json, csv, yaml"]),
        ("tune . --format xml", &["table, json, csv, yaml"]),
        ("demo --format yaml", &["table, json"]),
        ("test reads.yaml --duration soon", &["--duration", "such as 1.5ms"]),
        ("test reads.yaml --duration 0", &["--duration 0", "such as 10 or 500ms"]),
        ("test reads.yaml --duration -5", &["'-5'", "--duration <TIME>", "such as 10 or 500ms"]),
        ("test reads.yaml --duration nan", &["--duration <TIME>", "expected 0 to"]),
        ("stat nvme0n1 1", &["[INTERVAL]", "--device nvme0n1 shows one device"]),
        ("stat -1", &["'-1'", "[INTERVAL]", "such as 10 or 500ms"]),
        ("test reads.yaml --max-write 1M", &["8 MiB", "--max-write 1 MiB", "smaller data_size"]),
        ("tune . --max-write 1M", &["--max-write 1 MiB", "--data-size"]),
        ("tune . --data-size 1k", &["--data-size", "at least"]),
        ("tune . --phase 0 --backend null", &["--phase", "0.001 s"]),
        ("tune . --read-block-size 3000 --data-size 16M", &["--read-block-size", "power of two"]),
        ("frobnicate", &["frobnicate"]),
    ];
    for (arguments, fragments) in cases {
        println!("plimsoll {arguments}");
        world.run(&arguments.split(' ').collect::<Vec<_>>()).assert_refused(2, fragments);
        assert!(world.contents() == before, "plimsoll {arguments}: the directory changed");
    }
}

#[test]
fn job_files_with_mistakes() {
    let job = |rest: &str| format!("- name: a\n  type: randread\n  shards: all\n{rest}");
    let cases = [
        (
            "a key misspelt",
            job("  shard_info: {paralelism: 3}\n"),
            &["bad.yaml:4:16", "did you mean `parallelism`"][..],
        ),
        ("a wrong type", job("  shard_info: [3]\n"), &["bad.yaml:4:", "shard_info"]),
        ("a word for a number", job("  shard_info: {parallelism: many}\n"), &["bad.yaml:4:29", "such as 16"]),
        (
            "a wrong unit",
            job("  data_size: 8 tons\n  shard_info: {parallelism: 3}\n"),
            &["bad.yaml:4:14", "kB, MB or GB"],
        ),
        (
            "a time without a unit",
            job("  shard_info: {parallelism: 3, think_time: 10}\n"),
            &["bad.yaml:4:", "a duration needs a unit", "1000us"],
        ),
        (
            "a key twice",
            job("  type: randread\n  shard_info: {parallelism: 3}\n"),
            &["bad.yaml:4:3", "\"type\"", "remove one"],
        ),
        ("no parallelism", job("  shard_info: {shares: 3}\n"), &["bad.yaml:4:", "`parallelism: 1` or more"]),
        (
            "a check of what nobody wrote",
            job("  shard_info: {parallelism: 3}\n  options: {verify: true}\n"),
            &["bad.yaml:5:21", "has written nothing", "`type: randrw` with `rwmixread: 70`"],
        ),
        (
            "scheduling groups",
            "- {name: a, shares: 100}\n".to_owned(),
            &["bad.yaml:1:", "looks like a file of scheduling groups", "--sched-groups"],
        ),
        (
            "a shard too many",
            job("  shard_info: {parallelism: 3}\n").replace(": all", ": [3]"),
            &["bad.yaml:3:", "shard 3"],
        ),
        (
            "no number of files",
            job("  shard_info: {parallelism: 3}\n").replace("randread", "unlink"),
            &["bad.yaml:1:", "`files_count`", "such as `files_count: 5000`"],
        ),
        (
            "an unknown type",
            job("  shard_info: {parallelism: 3}\n").replace("randread", "randreed"),
            &["bad.yaml:2:9", "randread"],
        ),
        ("a class that nobody has", job("  shard_info: {parallelism: 3, class: b}\n"), &["bad.yaml:4:", "\"b\""]),
        (
            "a request too large",
            job("  data_size: 1MB\n  shard_info: {parallelism: 3, reqsize: 2MB}\n"),
            &["bad.yaml:5:", "2 MiB"],
        ),
        ("nothing", String::new(), &["bad.yaml", "there is nothing in this text"]),
        ("no YAML", "- [".to_owned(), &["bad.yaml"]),
    ];
    for (what, text, fragments) in cases {
        println!("{what}");
        let world = World::new(&[("bad.yaml", &text)]);
        let before = world.contents();
        world.run(&["test", "bad.yaml", "--backend", "null", "--duration", "10ms"]).assert_refused(2, fragments);
        assert!(world.contents() == before, "{what}: the directory changed");
    }
}

#[test]
fn io_properties_with_mistakes() {
    let disk = |rest: &str| format!("disks:\n  - mountpoint: /\n{rest}");
    let cases = [
        ("a figure of 0", disk("    read_iops: 0\n"), &["io.yaml:3:16", "write 1 to"][..]),
        (
            "figures missing",
            disk("    read_iops: 1\n    write_iops: 1\n"),
            &["io.yaml:2:", "`read_bandwidth`", "measure the disk"],
        ),
        ("an exponent", disk("    read_iops: 1e5\n"), &["io.yaml:3:16", "1k = 1024"]),
        ("a key misspelt", disk("    read_iop: 5\n"), &["io.yaml:3:5", "did you mean `read_iops`"]),
        ("an old key", disk("    read_reqs_per_sec: 5\n"), &["io.yaml:3:5", "write `read_iops`"]),
        ("a list of disks missing", "mountpoint: /\n".to_owned(), &["io.yaml:1:1", "mountpoint"]),
    ];
    for (what, text, fragments) in cases {
        println!("{what}");
        let world = World::new(&[("reads.yaml", READS), ("io.yaml", &text)]);
        let before = world.contents();
        world.run(&["test", "reads.yaml", "--io-properties", "io.yaml"]).assert_refused(2, fragments);
        assert!(world.contents() == before, "{what}: the directory changed");
    }
}

#[test]
fn a_message_that_quotes_a_file_does_not_steer_the_terminal() {
    const CLEAR: &str = "\x1b[2J";
    let rbd = format!("elapsed: 1 ops: {CLEAR} ops/sec: 1 bytes/sec: 1\n");
    let (yaml, json) = (format!("a{CLEAR}.yaml"), format!("a{CLEAR}.json"));
    let world = World::new(&[("rbd.txt", &rbd), (&yaml, "- [\n"), (&json, "{}")]);
    let inside = world.path().join("bundle");
    std::fs::create_dir(&inside).expect("the directory takes another");
    for name in ["one", "other"] {
        std::fs::write(inside.join(format!("{name}{CLEAR}")), "no counters").expect("the directory takes a file");
    }
    let cases: [&[&str]; 5] = [
        &["test", "--rbd", "rbd.txt"],
        &["test", &yaml, "--backend", "null"],
        &["stat", "--from", "bundle"],
        &["compare", &json, &json],
        &["compare", &format!("missing{CLEAR}")],
    ];
    for arguments in cases {
        let ended = world.run(arguments);
        ended.assert_refused(2, &["\\u{1b}[2J"]);
        assert!(!ended.err.contains('\x1b'), "{arguments:?}: {ended:#?}");
    }
}
