//! `plimsoll depot`: what it stores is what DuckDB reads, column by column; what it refuses.

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

# Every question has an answer.
database.execute("CREATE VIEW changed AS SELECT TIMESTAMP '2026-03-14 23:59:59' AS at_utc")
for name in sorted(os.listdir(sql)):
    if name not in ("duckdb.sql", "datafusion.sql"):
        database.execute(open(f"{sql}/{name}").read())
        assert rows(f"SELECT * FROM {name.removesuffix('.sql')}"), f"{name} has no rows"
"#;

fn done(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    ended.out
}

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
    done(world.run(&["sim", "run", "mine.yaml", "--trace", "run.plt"]));
    write("spans.csv", done(world.run(&["trace", "export", "run.plt", "--to", "csv"])));
    write("stages.json", done(world.run(&["trace", "stages", "run.plt", "--by", "class", "--format", "json"])));
    let disks = world.run(&["stat", "--from", "before.rec", "--format", "csv"]);
    assert!(matches!(disks.code, Some(0 | 1)), "{disks:#?}");
    write("disks.csv", disks.out);
    let test = ["test", "jobs.yaml", "--backend", "memory", "--duration", "1", "--format", "json"];
    write("test.json", done(world.run(&test)));

    done(world.run(&["depot", "depot", "run.plt", "--host", "7", "--at", AT]));
    let stored: serde_json::Value =
        serde_json::from_str(&done(world.run(&["depot", "depot", "before.rec", "test.json", "--format", "json"])))
            .expect("it is JSON");
    assert_eq!((stored["schema"].as_u64(), stored["failed"].as_array().map(Vec::len)), (Some(1), Some(0)), "{stored}");
    let again = world.run(&["depot", "depot", "run.plt", "--host", "7", "--at", AT, "--format", "csv"]);
    assert!(done(again).starts_with("file,table,rows,len_bytes,stored_as\nrun.plt,spans,"));

    let sql = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sql");
    let mut command = Command::new("python3");
    let compared = command.args(["compare.py", sql]).current_dir(world.path()).output().expect("python3 starts");
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
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
    done(world.run(&["sim", "run", "mine.yaml", "--trace", "run.plt"]));
    std::fs::write(world.path().join("sim.json"), done(world.run(&["sim", "run", "mine.yaml", "--format", "json"])))
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
    let stored: serde_json::Value = serde_json::from_str(&ended.out).expect("it is JSON");
    assert_eq!(stored["files"][0]["table"], "figures", "{stored}");
    assert!(stored["failed"][0].as_str().is_some_and(|reason| reason.starts_with("other.json: ")), "{stored}");
}
