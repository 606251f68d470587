//! The binary over small depots that the tests make: answers, formats, bad input, a bound on memory, a bucket.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../../../crates/skip.rs"]
mod skip;
#[path = "../../../../crates/versitygw.rs"]
mod versitygw;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use datafusion::prelude::SessionContext;
use tempfile::TempDir;

/// Rows of `hist`: what class took how many nanoseconds, in two seconds.
const HIST: &str = "SELECT arrow_cast(to_timestamp(column1), 'Timestamp(Microsecond, Some(\"UTC\"))') AS at_utc, 'sda' AS disk, \
                    column2 AS class, 'read' AS op, 'Q2C' AS stage, column3 AS bucket_ns, column4 AS pieces FROM (VALUES \
                    (1773489600, 'query', 1000000, 98), (1773489601, 'query', 2000000, 1), (1773489601, 'query', 9000000, 1), \
                    (1773489600, 'batch', 5000000, 10))";

struct World {
    directory: TempDir,
}

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn done(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    #[track_caller]
    fn refused(self, code: i32, expected: &str) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        assert!(self.err.starts_with("error: ") && self.err.contains(expected), "no `{expected}` in {}", self.err);
    }
}

impl World {
    /// A depot whose hosts `7` (by day) and `db1` (by hour) have the same histograms.
    fn new() -> World {
        // A name with the characters of a pattern and of a URL.
        let world = World { directory: tempfile::Builder::new().prefix("a [b]* %20 ").tempdir().unwrap() };
        world.parquet("hist/host=7/date=2026-03-14/trace-1.parquet", HIST);
        world.parquet("hist/host=db1/date=2026-03-14/hour=12/trace-1.parquet", HIST);
        world
    }

    fn depot(&self) -> PathBuf {
        self.directory.path().join("depot")
    }

    /// Makes a Parquet file in the depot of the rows of a statement.
    fn parquet(&self, name: &str, sql: &str) {
        let path = self.depot().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let beside = tempfile::tempdir().unwrap();
        let plain = beside.path().join("rows.parquet");
        let copy = format!("COPY ({sql}) TO '{}' STORED AS PARQUET", plain.display());
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        runtime.block_on(async { SessionContext::new().sql(&copy).await.unwrap().collect().await.unwrap() });
        std::fs::copy(plain, path).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-query"));
        command.args(words).current_dir(self.directory.path());
        command
    }

    fn ask(&self, words: &[&str]) -> Ended {
        Ended::of(self.command(&[&["--depot", "depot"], words].concat()).output().unwrap())
    }
}

#[test]
fn a_name_a_statement_and_a_file_are_questions() {
    let world = World::new();
    let expected = "host,class,pieces,p50_ms,p90_ms,p99_ms,p99_9_ms\n\
                    7,batch,10,5.0,5.0,5.0,5.0\ndb1,batch,10,5.0,5.0,5.0,5.0\n\
                    7,query,100,1.0,1.0,2.0,9.0\ndb1,query,100,1.0,1.0,2.0,9.0\n";
    assert_eq!(world.ask(&["latency", "--format", "csv"]).done(), expected);
    let in_it = world.command(&["latency", "--format", "csv"]).current_dir(world.depot()).output().unwrap();
    assert_eq!(Ended::of(in_it).done(), expected, "the depot is the working directory unless told otherwise");

    let statement =
        "SELECT host, sum(pieces) AS n FROM hist WHERE host = '7' AND date = DATE '2026-03-14' GROUP BY host";
    assert_eq!(world.ask(&[statement]).done(), "host    n\n7     110\n");
    std::fs::write(world.directory.path().join("mine.sql"), format!("-- Mine\n{statement};\n")).unwrap();
    assert_eq!(world.ask(&["mine.sql", "--format", "json"]).done(), "[{\"host\":\"7\",\"n\":110}]\n");

    let contents = world.ask(&[]).done();
    assert!(
        contents.starts_with("hist          table of 2 files\nlatency       How long do requests take"),
        "{contents}"
    );
    assert!(
        contents.contains("\nslowest       Which requests were the slowest, and where were they? (not yet"),
        "{contents}"
    );
}

#[test]
fn a_view_may_be_made_before_the_question_that_needs_it() {
    let world = World::new();
    world.ask(&["before_after"]).refused(2, "CREATE VIEW changed AS SELECT TIMESTAMP");
    let changed = "CREATE VIEW changed AS SELECT TIMESTAMP '2026-03-14 12:00:01' AS at_utc; ";
    let asked = world.ask(&[
        "--format",
        "csv",
        &format!("{changed} SELECT class, hosts, before_ms, after_ms, low_pct FROM before_after"),
    ]);
    assert_eq!(asked.done(), "class,hosts,before_ms,after_ms,low_pct\nquery,2,1.0,9.0,\n");
    let two = format!("{changed} SELECT 1 AS a; SELECT 2 AS b");
    assert_eq!(world.ask(&[&two]).done(), "a\n1\n\nb\n2\n");
    world.ask(&[&two, "--format", "csv"]).refused(2, "2 statements give rows");
}

#[test]
fn parquet_is_whole_or_absent() {
    let world = World::new();
    let path = world.directory.path().join("answer.parquet");
    world.ask(&["latency", "--format", "parquet"]).refused(2, "name it with -o FILE");
    world
        .ask(&["SELECT arrow_cast('x', 'Int64') FROM hist", "--format", "parquet", "-o", "answer.parquet"])
        .refused(2, "x");
    let names = || {
        let entries = std::fs::read_dir(world.directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["depot"], "nothing is left of it");

    let sql = "SELECT class, pieces, p99_9_ms FROM latency";
    assert_eq!(world.ask(&[sql, "--format", "parquet", "-o", "answer.parquet"]).done(), "");
    // What was written is itself a table of a depot.
    let again = world.directory.path().join("again/figures/host=a/date=2026-03-14");
    std::fs::create_dir_all(&again).unwrap();
    std::fs::rename(path, again.join("answer.parquet")).unwrap();
    let asked =
        world.command(&["--depot", "again", "SELECT sum(pieces) AS n, max(p99_9_ms) AS most FROM figures"]).output();
    assert_eq!(Ended::of(asked.unwrap()).done(), "  n   most\n220  9.000\n");
}

#[test]
fn a_file_of_a_later_schema_is_read_beside_an_earlier_one() {
    let world = World::new();
    world.parquet("hist/host=new/date=2026-03-15/trace-2.parquet", &format!("SELECT *, 5 AS added FROM ({HIST})"));
    let sql = "SELECT host, count(*) AS n, sum(added) AS added FROM hist GROUP BY host ORDER BY host";
    assert_eq!(world.ask(&[sql, "--format", "csv"]).done(), "host,n,added\n7,4,\ndb1,4,\nnew,4,20\n");
}

#[test]
fn bad_input_is_named() {
    let world = World::new();
    let cases = [
        ("selec 1", "Expected: an SQL statement"),
        ("SELECT * FROM spans", "there are no files of the table spans"),
        ("slowest", "slowest"),
        ("nothing", "expected a statement, a FILE.sql, or one of these names:\nhist "),
        ("none.sql", "none.sql: No such file"),
        ("INSERT INTO hist SELECT * FROM hist", "DML not supported"),
        ("COPY hist TO 'x.csv'", "DML not supported"),
    ];
    for (question, expected) in cases {
        world.ask(&[question]).refused(2, expected);
    }
    for (place, expected) in
        [("none", "cannot open the depot"), (".", "there is no depot"), ("gs://a/b", "expected a directory, or s3")]
    {
        Ended::of(world.command(&["--depot", place, "latency"]).output().unwrap()).refused(2, expected);
    }

    // A file that is still being copied.
    let without = world.ask(&["latency", "--format", "csv"]).done();
    let day = world.depot().join("hist/host=7/date=2026-03-14");
    let whole = std::fs::read(day.join("trace-1.parquet")).unwrap();
    for length in [0, 4, whole.len() / 2, whole.len() - 1] {
        std::fs::write(day.join("trace-2.parquet"), &whole[..length]).unwrap();
        let ended = world.ask(&["latency", "--format", "csv"]);
        assert_eq!((ended.code, ended.out), (Some(1), without.clone()), "the rest is answered");
        assert!(
            ended.err.starts_with("error: depot/hist/host=7/date=2026-03-14/trace-2.parquet: no whole"),
            "{}",
            ended.err
        );
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    // The name under which `depot` writes.
    std::fs::rename(day.join("trace-2.parquet"), day.join(".trace-2-1-0.tmp")).unwrap();
    world.ask(&["latency"]).done();
}

#[test]
fn memory_is_bounded() {
    let world = World::new();
    let many =
        "SELECT a.value * 1000 + b.value AS n FROM generate_series(1, 1000) a CROSS JOIN generate_series(1, 1000) b";
    let sorted = format!(
        "SELECT max(n) AS n FROM (SELECT n, row_number() OVER (ORDER BY n DESC) AS place FROM ({many})) WHERE place > 5"
    );
    let asked = |memory: &str, sql: &str| world.ask(&["--memory", memory, "--format", "csv", sql]);
    assert_eq!(asked("32MiB", &sorted).done(), asked("1GiB", &sorted).done(), "a sort goes to files");

    // A join that holds its rows cannot.
    let joined = format!("SELECT count(*) AS n FROM ({many}) a JOIN ({many}) b ON a.n = b.n");
    asked("4MiB", &joined).refused(3, "give more with --memory");
    assert_eq!(asked("1GiB", &joined).done(), "n\n1000000\n");
    world.ask(&["--memory", "much", "latency"]).code.filter(|code| *code == 2).unwrap();
}

#[test]
fn a_bucket_is_a_depot() {
    let Some(server) = versitygw::Server::start() else { return };
    let world = World::new();
    copy(&world.depot(), &server.dirs[0].path().join("bucket/fleet/depot"));
    let ask = |depot: &str, secret: &str| {
        let mut command = world.command(&["--depot", depot, "latency", "--format", "csv"]);
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", secret).env("AWS_REGION", "us-east-1");
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", server.port));
        Ended::of(command.output().unwrap())
    };
    let expected = world.ask(&["latency", "--format", "csv"]).done();
    for depot in ["s3://bucket/fleet/depot", "s3://bucket/fleet/depot/"] {
        assert_eq!(ask(depot, "testtest").done(), expected);
    }
    ask("s3://bucket/fleet/depot", "wrong").refused(3, "s3://bucket/fleet/depot: cannot list the files");
    ask("s3://bucket/none", "testtest").refused(2, "s3://bucket/none: there is no depot");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let place = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &place),
            false => assert!(std::fs::copy(&path, &place).unwrap() > 0),
        }
    }
}
