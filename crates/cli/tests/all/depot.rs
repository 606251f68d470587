//! `plimsoll depot`: what it stores is what DuckDB reads, column by column; what it refuses.

use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use crate::skip::skip;
use crate::world::{Ended, READS, World};

/// A disk that queues: two classes, one of which waits for tokens.
const SCENARIO: &str = "\
duration: 3s
disks: [{disk: gp3}]
classes: [{name: query, shares: 100}, {name: batch, shares: 50}]
jobs:
  - {name: queries, class: query, open: {rate: 800, spacing: poisson}, op: read, pattern: random, size: 4k, region: {length: 1G}}
  - {name: batches, class: batch, open: {rate: 2800, spacing: poisson}, op: write, pattern: random, size: 16k, region: {length: 1G}}
";
/// The volumes of the recording.
const DISK: &str = "gp3:50GB:250MB/s";
const AT: &str = "2026-03-14T23:59:58Z";

/// Compares every column of every table with its source. Says nothing if all agree.
const COMPARE: &str = r#"
import csv, io, json, os, re, sys, duckdb
sql, = sys.argv[1:]
database = duckdb.connect()
os.chdir("depot")
database.execute(open(f"{sql}/duckdb.sql").read())
rows = lambda query: database.execute(query).fetchall()
def names(table):
    *own, first, second = [row[0] for row in rows(f"DESCRIBE {table}")]
    assert {first, second} == {"host", "date"}, "the parts of the path come last"
    return own
text = lambda value: "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

# spans: all columns are those of CSV, and the time of day follows from the trace's beginning.
lines = list(csv.reader(open("../spans.csv")))
assert names("spans") == ["at_utc", *lines[0]], names("spans")
begin_ns = min(int(line[lines[0].index("queued_ns")]) for line in lines[1:])
stored = rows("SELECT * EXCLUDE (at_utc, host, date), epoch_us(at_utc) FROM spans")
assert sorted([text(value) for value in row[:-1]] for row in stored) == sorted(lines[1:])
at_us = 1773532798000000
for row in stored:
    assert row[-1] == at_us + (row[lines[0].index("queued_ns")] - begin_ns) // 1000, row
assert {row[0] for row in rows("SELECT DISTINCT host FROM spans")} == {"7"}, "a host is a text"
assert len(rows("SELECT DISTINCT date FROM spans")) == 2, "two days"

# hist: percentiles by GROUP BY are those of `trace stages`.
assert names("hist") == "at_utc disk class op stage bucket_ns pieces".split(), names("hist")
stages = json.load(open("../stages.json"))
database.execute(open(f"{sql}/latency.sql").read())
latency = {row[0]: row[1:] for row in rows("SELECT class, pieces, p50_ms, p99_ms, p99_9_ms FROM latency")}
for group in stages["groups"]:
    found = {row[0]: row[1] for row in rows(f"SELECT stage, sum(pieces) FROM hist WHERE class = '{group['class']}' GROUP BY stage")}
    assert found == {stage["stage"]: stage["n"] for stage in group["stages"]}, found
    q2c = next(stage for stage in group["stages"] if stage["stage"] == "Q2C")
    pieces, p50, p99, p99_9 = latency[group["class"]]
    assert pieces == q2c["n"]
    for name, ms in [("p50_ns", p50), ("p99_ns", p99), ("p99_9_ns", p99_9)]:
        assert abs(ms * 1e6 / q2c[name] - 1) <= 0.0079, (name, ms, q2c[name])

# disks: CSV has the columns of iostat with two decimals, ours with four.
lines = list(csv.reader(open("../disks.csv")))
head = lines[0]
columns = names("disks")
assert columns[:3] == ["at_utc", "duration_s", "disk"] and columns[-1] == "why", columns
ours = head.index("in_flight")
assert columns[29:38] == head[ours:ours + 9] and len(columns) == 3 + 26 + 10, columns
lines_of_disks = lines[1:]
stored = rows("SELECT strftime(at_utc, '%Y-%m-%dT%H:%M:%S.%gZ'), * EXCLUDE (at_utc, host, date) FROM disks ORDER BY at_utc, disk")
assert len(stored) == len(lines) - 1 > 0
for line, row in zip(lines[1:], stored):
    two = ["" if value is None else f"{value:.2f}" for value in row[3:29]]
    four = [text(value) if not isinstance(value, float) else value for value in row[29:]]
    assert [line[0], line[3]] == [row[0], row[2]] and float(line[1]) == round(row[1], 6), (line, row)
    assert line[4:30] == two, (line[4:30], two)
    for csv_value, value in zip(line[ours:], four):
        assert csv_value == value or abs(float(csv_value) - value) <= 0.00005, (csv_value, value)
assert rows("SELECT DISTINCT host FROM disks") == [("cache",)]

# figures: those of the test.
assert names("figures") == "at_utc command what class metric unit value low high".split(), names("figures")
report = json.load(open("../test.json"))
figures = {row[0]: row[1:] for row in rows("SELECT metric, value, low, high, command, what, class, unit, host FROM figures")}
job, = report["jobs"]
assert figures["iops"][0] == job["iops"] and figures["throughput_bytes_per_s"][0] == job["throughput_bytes_per_s"]
for name, value in job["latency"].items():
    assert figures[f"latency_{name}"][0] == value and figures[f"latency_{name}"][6] == "us", name
assert figures["iops"][3:] == ("test", "reads", job["class"], "1/s", report["place"]["host"]), figures["iops"]
assert figures["iops"][1] <= figures["iops"][0] <= figures["iops"][2], figures["iops"]
when, = rows("SELECT DISTINCT strftime(at_utc, '%Y-%m-%d %H:%M:%S UTC') FROM figures")
assert when == (report["place"]["date"],), when

# Every question has the answer of a slow reading of the sources.
database.execute("CREATE VIEW changed AS SELECT TIMESTAMP '2026-03-14 23:59:59' AS at_utc")
questions = sorted(name.removesuffix(".sql") for name in os.listdir(sql) if name not in ("duckdb.sql", "datafusion.sql"))
for name in questions:
    database.execute(open(f"{sql}/{name}.sql").read())
near = lambda a, b, relative=1e-9: a == b or abs(a - b) <= relative * max(abs(a), abs(b))
def ask(name, columns, order):
    found = rows(f"SELECT {columns} FROM {name} ORDER BY {order}")
    assert found, f"{name} has no rows"
    return found
def same(name, found, expected, relative=1e-9):
    agree = lambda a, b: near(a, b, relative) if isinstance(a, float) and isinstance(b, (int, float)) else a == b
    assert len(found) == len(expected), (name, found, expected)
    for a, b in zip(found, expected):
        assert len(a) == len(b) and all(map(agree, a, b)), (name, a, b)

number = lambda value: int(value) if value else None
spans = [dict(zip(csv_head, line)) for csv_lines in [list(csv.reader(open("../spans.csv")))] for csv_head in csv_lines[:1] for line in csv_lines[1:]]
for span in spans:
    span.update({name: number(span[name]) for name in span if name.endswith("_ns") or name in ("request", "shard", "len_bytes")})
spans = [span for span in spans if span["completed_ns"] is not None]
assert len(spans) > 5000 and all(span["is_split"] == "false" for span in spans)
rank = lambda values, per_mille: sorted(values)[-(-per_mille * len(values) // 1000) - 1]
classes = sorted({span["class"] for span in spans})
took = lambda of: [span["completed_ns"] - span["queued_ns"] for span in spans if of(span)]

expected = []
for name in classes:
    all_ns = took(lambda span: span["class"] == name)
    expected.append(("7", name, len(all_ns), *(rank(all_ns, part) / 1e6 for part in (500, 900, 990, 999))))
same("latency", ask("latency", "host, class, pieces, p50_ms, p90_ms, p99_ms, p99_9_ms", "class"), expected, 0.0079)

# A second after the beginning, which is at 23:59:58; histograms are by seconds.
expected = []
for name in classes:
    before, after = [rank(took(lambda span: span["class"] == name and (span["queued_ns"] - begin_ns >= 10**9) == is_after), 990)
                     for is_after in (False, True)]
    expected.append((name, 1, before / 1e6, after / 1e6, None, None))
same("before_after", ask("before_after", "class, hosts, before_ms, after_ms, low_pct, high_pct", "class"), expected, 0.0079)
for before, after, change in ask("before_after", "before_ms, after_ms, change_pct", "class"):
    # Logarithms are added in millionths.
    assert near(1 + change / 100, after / before, 1e-6), (before, after, change)

expected = []
for name in classes:
    taken = sum(took(lambda span: span["class"] == name)) / 1e9
    for reason in sorted({span["wait_reason"] or "none" for span in spans if span["class"] == name}):
        waits = [(span["submitted_ns"] or span["dispatched_ns"]) - span["queued_ns"] for span in spans
                 if span["class"] == name and (span["wait_reason"] or "none") == reason]
        waited = sum(waits) / 1e9
        expected.append(("7", name, reason, len(waits), waited, 1e3 * waited / len(waits), 100 * waited / taken))
assert any(line[2] != "none" and line[4] > 0 for line in expected), expected
same("throttled", ask("throttled", "host, class, waited_for, pieces, waited_s, mean_ms, part_of_latency_pct", "class, waited_for"), expected)

slowest = sorted(spans, key=lambda span: (span["queued_ns"] - span["completed_ns"], span["queued_ns"]))[:20]
expected = []
for span in slowest:
    out, back, queued = span["submitted_ns"] or span["dispatched_ns"], span["completed_ns"], span["queued_ns"]
    expected.append((at_us + (queued - begin_ns) // 1000, span["class"], span["op"], span["len_bytes"], 1, (back - queued) / 1e6,
                     (out - queued) / 1e6, (back - out) / 1e6, (span["reaped_ns"] - back) / 1e6, span["wait_reason"] or None))
same("slowest", ask("slowest", "epoch_us(at_utc), class, op, len_bytes, pieces, total_ms, queue_ms, device_ms, unseen_ms, waited_for",
                    "total_ms DESC, at_utc"), expected)

# disks.csv has two decimals of rates, and four of what is judged.
of = {name: number for number, name in enumerate(head)}
work = [line for line in lines_of_disks if not line[of["gap"]]]
seconds = [float(line[1]) for line in work]
uses = [float(line[of["capacity_use"]]) if line[of["capacity_use"]] else None for line in work]
known = [(use, second) for use, second in zip(uses, seconds) if use is not None]
in_verdict = lambda verdict: 100 * sum(s for s, line in zip(seconds, work) if line[of["verdict"]] == verdict) / sum(seconds)
expected = [("cache", len({line[3] for line in work}), sum(seconds) / 3600, 100 * sum(u * s for u, s in known) / sum(s for _, s in known),
             100 * max(u for u, _ in known), in_verdict("saturated"), in_verdict("degraded"))]
wasted = lambda: ask("waste", "host, disks, disk_hours, used_pct, most_used_pct, saturated_pct, degraded_pct", "host")
same("waste", wasted(), expected, 1e-3)
expected_waste = expected

turns = []
last = None
for when in sorted({line[0] for line in work}):
    kib = {line[3]: float(line[8] or 0) + float(line[9] or 0) for line in work if line[0] == when}
    if len(kib) < 2 or sum(kib.values()) == 0:
        continue
    disk = min(kib, key=lambda name: (-kib[name], name))
    part = kib[disk] / sum(kib.values())
    hot = disk if part * len(kib) >= 1.5 else None
    second = next(float(line[1]) for line in work if line[0] == when)
    if hot and hot == last:
        turns[-1][1:] = [when, turns[-1][2] + second, turns[-1][3] + [part]]
    elif hot:
        turns.append([(hot, when), when, second, [part]])
    last = hot
expected = [(disk, first, end, hot_s, 100 * sum(parts) / len(parts)) for (disk, first), end, hot_s, parts in turns]
form = "'%Y-%m-%dT%H:%M:%S.%gZ'"
same("hot_disk", ask("hot_disk", f"disk, strftime(first_utc, {form}), strftime(last_utc, {form}), hot_s, part_pct", "first_utc"), expected, 1e-3)

# One recording leaves no doubt. With itself two hours later hours are missing, and once more all of it is there twice.
assert rows("SELECT * FROM doubts") == []
database.execute("CREATE TEMP TABLE known AS SELECT * FROM disks")
database.execute("CREATE OR REPLACE VIEW disks AS SELECT * FROM known UNION ALL SELECT * FROM known UNION ALL "
                 "SELECT * REPLACE (at_utc + INTERVAL '2' HOUR AS at_utc) FROM known")
doubts = ask("doubts", "host, doubt, entries", "doubt")
assert doubts == [("cache", "missing", None), ("cache", "twice", len(lines_of_disks))], (doubts, len(lines_of_disks))

# Another recording of the same time, whose intervals end at other moments, adds nothing.
hot_s = [line[3] for line in expected]
database.execute("CREATE OR REPLACE VIEW disks AS SELECT * FROM known UNION ALL "
                 "SELECT * REPLACE (at_utc + INTERVAL '1' MICROSECOND AS at_utc) FROM known")
same("waste", wasted(), expected_waste, 1e-3)
assert all(near(a, b, 1e-3) for a, (b,) in zip(hot_s, ask("hot_disk", "hot_s", "first_utc"), strict=True)), hot_s
assert set(questions) == {"latency", "before_after", "throttled", "slowest", "waste", "hot_disk", "doubts"}, "a question without a test"

# By hour the rows are the same.
by_day = ask("latency", "*", "class"), ask("throttled", "*", "class, waited_for")
os.chdir("../hourly")
database.execute(open(f"{sql}/duckdb.sql").read())
assert (ask("latency", "*", "class"), ask("throttled", "*", "class, waited_for")) == by_day
assert rows("SELECT DISTINCT date::VARCHAR, hour FROM spans ORDER BY ALL") == [("2026-03-14", "23"), ("2026-03-15", "00")]
"#;

#[test]
fn duckdb_reads_what_the_sources_say() {
    let python = |arguments: &[&str]| Command::new("python3").args(arguments).output();
    if !python(&["-c", "import duckdb"]).is_ok_and(|out| out.status.success()) {
        skip("there is no python3 with duckdb (pip install duckdb)");
        return;
    }

    let world = World::new(&[("mine.yaml", SCENARIO), ("jobs.yaml", READS), ("compare.py", COMPARE)]);
    let write =
        |name: &str, text: String| std::fs::write(world.path().join(name), text).expect("a file can be written");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/rotating-before.rec");
    std::fs::copy(docs, world.path().join("before.rec")).expect("the recording is there");
    world.run(&["sim", "run", "mine.yaml", "--trace", "run.plt"]).done();
    write("spans.csv", world.run(&["trace", "export", "run.plt", "--to", "csv"]).done().out);
    write("stages.json", world.run(&["trace", "stages", "run.plt", "--by", "class", "--format", "json"]).done().out);
    let disks = world.run(&["stat", "--from", "before.rec", "--disk", DISK, "--format", "csv"]);
    assert!(matches!(disks.code, Some(0 | 1)), "{disks:#?}");
    write("disks.csv", disks.out);
    let test = ["test", "jobs.yaml", "--backend", "memory", "--duration", "1", "--format", "json"];
    write("test.json", world.run(&test).done().out);

    world.run(&["depot", "depot", "run.plt", "--host", "7", "--at", AT]).done();
    let stored = world.line(&format!("depot depot before.rec test.json --disk {DISK} --format json")).done().json();
    assert_eq!((stored["schema"].as_u64(), stored["failed"].as_array().map(Vec::len)), (Some(1), Some(0)), "{stored}");
    for file in ["run.plt", "before.rec", "test.json"] {
        let mut hourly = vec!["depot", "hourly", file, "--by-hour"];
        if file == "run.plt" {
            hourly.extend(["--host", "7", "--at", AT]);
        }
        world.run(&hourly).done();
    }
    let again = world.run(&["depot", "depot", "run.plt", "--host", "7", "--at", AT, "--format", "csv"]);
    assert!(again.done().out.starts_with("file,table,rows,len_bytes,stored_as\nrun.plt,spans,"));

    let sql = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sql");
    let mut command = Command::new("python3");
    let compared = command.args(["compare.py", sql]).current_dir(world.path()).output().expect("python3 starts");
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
}

#[cfg(feature = "s3")]
#[test]
fn a_bucket_holds_what_a_directory_holds() {
    let Some(server) = crate::versitygw::Server::start() else { return };
    let world = World::new(&[("mine.yaml", SCENARIO)]);
    world.run(&["sim", "run", "mine.yaml", "--trace", "run.plt"]).done();
    let store = |depot: &str, secret: &str, more: &[&str]| {
        let words = ["depot", depot, "run.plt", "--host", "db1", "--at", AT, "--format", "json"];
        let mut command = world.command(&[&words, more].concat());
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", secret).env("AWS_REGION", "us-east-1");
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", server.port));
        Ended::of(command.output().expect("the binary starts"))
    };
    let found = |root: &std::path::Path| {
        let mut found = Vec::new();
        let mut left = vec![root.to_owned()];
        while let Some(path) = left.pop() {
            match std::fs::read_dir(&path) {
                Ok(entries) => left.extend(entries.map(|entry| entry.expect("an entry").path())),
                Err(_) => found.push((path.strip_prefix(root).expect("below").to_owned(), std::fs::read(&path).ok())),
            }
        }
        found.sort();
        found
    };
    let bucket = server.dirs[0].path().join("bucket/fleet/depot");

    // Twice, and by hour between: every time what a directory holds, and nothing twice.
    for more in [&[][..], &[], &["--by-hour"], &[]] {
        let ended = store("s3://bucket/fleet/depot", "testtest", more);
        assert!(ended.done().out.contains("s3://bucket/fleet/depot/spans/host=db1/date=2026-03-14/"));
        let directory = format!("beside{}", more.len());
        store(&directory, "testtest", more).done();
        let expected = found(&world.path().join(directory));
        assert_eq!(expected.len(), 4, "two tables, two days");
        assert!(found(&bucket) == expected, "{more:?}");
    }

    // No rights, no bucket: named, and nothing is changed.
    let before = found(&bucket);
    store("s3://bucket/fleet/depot", "wrong", &[])
        .assert_refused(3, &["s3://bucket/fleet/depot/", "AWS_SECRET_ACCESS_KEY"]);
    store("s3://none/depot", "testtest", &[]).assert_refused(3, &["s3://none/depot/", "AWS_ENDPOINT_URL"]);
    store("gs://bucket/depot", "testtest", &[]).assert_refused(2, &["expected a directory, or s3://BUCKET/PREFIX"]);
    assert!(found(&bucket) == before);
}

#[test]
fn warnings_on_io_properties_are_said_once() {
    let properties = "disks:\n  - {mountpoint: /dev/sda, read_iops: 1000, read_bandwidth: 100M, write_iops: 1000, \
                      write_bandwidth: 100M, doubtful: [read_iops]}\n";
    let sample = |second: u64| {
        format!("2026-03-14T12:00:{second:02}Z\n   8 0 sda {} 0 8000 100 0 0 0 0 0 90 100\n", 1000 * second)
    };
    let text: String = (0..3).map(sample).collect();
    let world = World::new(&[("io.yaml", properties), ("a.txt", &text), ("b.txt", &text)]);
    let words = ["depot", "depot", "a.txt", "b.txt", "--host", "db1", "--io-properties", "io.yaml"];
    let ended = world.run(&words).done();
    assert_eq!(ended.err.matches("the measurement itself doubts read_iops").count(), 1, "{ended:#?}");
}

/// The JSON of the result, which is made in every format, cannot hold such a name: the command panicked.
#[test]
fn a_depot_may_have_a_name_that_is_no_text() {
    let sample = |second: u64| {
        format!("2026-03-14T12:00:{second:02}Z\n   8 0 sda {} 0 8000 100 0 0 0 0 0 90 100\n", 1000 * second)
    };
    let text: String = (0..3).map(sample).collect();
    let world = World::new(&[("a.txt", &text)]);
    let depot = std::ffi::OsStr::from_bytes(b"depot \xff");
    let mut command = world.command(&["depot"]);
    command.arg(depot).args(["a.txt", "--host", "db1", "--format", "json"]);
    let stored = Ended::of(command.output().expect("the binary starts")).done().json();
    assert!(stored["files"][0]["stored_as"].as_str().is_some_and(|it| it.contains("/disks/host=db1/")), "{stored}");
    assert!(world.path().join(depot).join("disks/host=db1").is_dir());
}

#[test]
fn what_cannot_be_stored_is_named_and_the_rest_goes_on() {
    let world = World::new(&[
        ("mine.yaml", SCENARIO),
        ("sda.txt", "Device w/s wkB/s w_await aqu-sz %util\nnvme1n1 7497.00 105250.50 0.03 0.23 100.00\n"),
        ("surface.json", "{\"schema\": 1, \"cells\": []}"),
        ("other.json", "{\"a\": 1}"),
        ("empty", ""),
    ]);
    world.run(&["sim", "run", "mine.yaml", "--trace", "run.plt"]).done();
    std::fs::write(
        world.path().join("sim.json"),
        world.run(&["sim", "run", "mine.yaml", "--format", "json"]).done().out,
    )
    .expect("a file can be written");
    let before = world.contents();
    let cases: [(&str, &[&str]); 11] = [
        ("run.plt", &["run.plt: this trace does not say of which host it is: name it with --host NAME"]),
        ("run.plt --host db1", &["this trace does not say when it was: give the time with --at TIME"]),
        ("run.plt --host ../db1 --at 2026-03-14T00:00:00Z", &["`../db1` cannot be a host in a depot"]),
        ("run.plt --host db1 --at 1970-01-01T00:00:00Z", &["not between the years 2000 and 2200"]),
        ("run.plt --host db1 --at yesterday", &["--at yesterday: expected a time with its zone"]),
        ("sim.json --host db1", &["does not say when it was"]),
        ("surface.json --host db1", &["has no figures that a depot takes"]),
        ("other.json --host db1", &["other.json: this JSON is no result that is known"]),
        ("empty --host db1", &["empty: the file is empty"]),
        ("sda.txt --host db1", &["an interval has no time of day"]),
        ("none.plt --host db1", &["none.plt: cannot read it"]),
    ];
    for (words, expected) in cases {
        let arguments: Vec<&str> = ["depot", "depot"].into_iter().chain(words.split(' ')).collect();
        world.run(&arguments).assert_refused(2, expected);
    }
    world.run(&["depot", "run.plt", "sim.json"]).assert_refused(2, &["run.plt is a file: name the directory"]);
    assert_eq!(world.contents(), before, "nothing was made");

    let mixed = ["depot", "depot", "other.json", "sim.json", "--host", "db1", "--at", AT, "--format", "json"];
    let ended = world.run(&mixed);
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.err.contains("error: other.json: this JSON"), "{ended:#?}");
    let stored = ended.json();
    assert_eq!(stored["files"][0]["table"], "figures", "{stored}");
    assert!(stored["failed"][0].as_str().is_some_and(|reason| reason.starts_with("other.json: ")), "{stored}");
}
