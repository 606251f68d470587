//! The binary over small depots that the tests make: answers, formats, bad input, a bound on memory, a bucket.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../../../crates/skip.rs"]
mod skip;
#[path = "../../../../crates/versitygw.rs"]
mod versitygw;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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
        world.parquet("hist/host=db1/date=2026-03-14/hour=12/trace-5.parquet", HIST);
        world
    }

    fn depot(&self) -> PathBuf {
        self.directory.path().join("depot")
    }

    /// Makes a Parquet file in the depot of the rows of a statement.
    fn parquet(&self, name: &str, sql: &str) {
        self.copy(name, &format!("{sql}) TO '{{}}' STORED AS PARQUET"));
    }

    /// Makes a Parquet file in the depot of what follows `COPY (`, in which `{}` is its place.
    fn copy(&self, name: &str, rest: &str) {
        let path = self.depot().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let beside = tempfile::tempdir().unwrap();
        let plain = beside.path().join("rows.parquet");
        let copy = format!("COPY ({}", rest.replace("{}", &plain.display().to_string()));
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

/// Names are those of programs that were traced, and of files that others made.
#[test]
fn names_of_others_do_not_control_the_terminal() {
    let world = World::new();
    let shown = world.ask(&["SELECT 'a' || chr(27) || '[2J' || chr(10) || 'b' AS name"]).done();
    assert_eq!(shown, "name\na\\u{1b}[2J\\u{a}b\n");
    let refused = world.ask(&["SELECT \u{1b}[2J"]);
    assert!(!refused.err.contains('\u{1b}'), "{}", refused.err);
    refused.refused(2, "");
}

#[test]
fn a_reader_that_goes_ends_the_list_of_questions() {
    let world = World::new();
    let mut asked = world.command(&["--depot", "depot"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(asked.stdout.take());
    let ended = Ended::of(asked.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
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

/// A regular file took the place of a link, a pipe, and as root of `/dev/null`.
#[test]
fn an_answer_goes_to_what_its_path_names() {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    let world = World::new();
    let [link, file, pipe, gone] = ["link", "file", "pipe", "gone"].map(|name| world.directory.path().join(name));
    let ask = |name: &str| world.ask(&["SELECT 1 AS a", "--format", "csv", "-o", name]);
    std::fs::write(&file, "before").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    ask("link").done();
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\n1\n");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Open at both ends, so that neither waits for the other.
    let mut both = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    ask("pipe").done();
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let mut bytes = [0; 4];
    std::io::Read::read_exact(&mut both, &mut bytes).unwrap();
    assert_eq!(&bytes, b"a\n1\n");

    std::os::unix::fs::symlink(&gone, world.directory.path().join("dangling")).unwrap();
    ask("dangling").refused(2, "-o dangling: a link to nothing");
    ask("depot").refused(2, "-o depot: a directory");
}

#[test]
fn a_file_of_a_later_schema_is_read_beside_an_earlier_one() {
    let world = World::new();
    world.parquet("hist/host=new/date=2026-03-15/trace-2.parquet", &format!("SELECT *, 5 AS added FROM ({HIST})"));
    let sql = "SELECT host, count(*) AS n, sum(added) AS added FROM hist GROUP BY host ORDER BY host";
    assert_eq!(world.ask(&[sql, "--format", "csv"]).done(), "host,n,added\n7,4,\ndb1,4,\nnew,4,20\n");
}

#[test]
fn a_recording_of_two_hosts_counts_once() {
    let world = World::new();
    let without = world.ask(&["latency", "--format", "csv"]).done();
    world.parquet("hist/host=9/date=2026-03-14/trace-1.parquet", HIST);
    let ended = world.ask(&["latency", "--format", "csv"]);
    assert_eq!((ended.code, ended.out), (Some(1), without));
    let expected = "error: depot/hist/host=9/date=2026-03-14/trace-1.parquet: the recording that host=7 has too: it is left out; \
                    remove one of both\n";
    assert_eq!(ended.err, expected);
}

/// While a recording is copied from host to host, neither the half nor the whole was read.
#[test]
fn a_whole_recording_counts_beside_a_half_one_of_another_host() {
    let world = World::new();
    let without = world.ask(&["latency", "--format", "csv"]).done();
    let half = world.depot().join("hist/host=6/date=2026-03-14");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("trace-1.parquet"), "half").unwrap();
    let ended = world.ask(&["latency", "--format", "csv"]);
    assert_eq!((ended.code, ended.out), (Some(1), without));
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
}

#[test]
fn a_file_of_a_schema_that_is_not_known_is_left_out() {
    let world = World::new();
    let without = world.ask(&["latency", "--format", "csv"]).done();
    let later = format!("{HIST}) TO '{{}}' STORED AS PARQUET OPTIONS ('format.metadata::plimsoll.depot.schema' '2')");
    world.copy("hist/host=new/date=2026-03-15/trace-2.parquet", &later);
    let ended = world.ask(&["latency", "--format", "csv"]);
    assert_eq!((ended.code, ended.out), (Some(1), without));
    assert!(ended.err.contains("trace-2.parquet: schema 2: this program knows 1"), "{}", ended.err);
}

#[test]
fn doubtful_recordings_are_named() {
    let world = World::new();
    let rows = |minutes: &str| {
        format!(
            "SELECT arrow_cast(to_timestamp(column1 * 60), 'Timestamp(Microsecond, Some(\"UTC\"))') AS at_utc, 'sda' AS disk, 60e0 AS \
             duration_s, 100e0 AS read_kib_per_s, 0e0 AS write_kib_per_s, CAST(NULL AS VARCHAR) AS gap, 0.5e0 AS capacity_use, \
             'model' AS capacity_basis, 'ok' AS verdict FROM (VALUES {minutes})"
        )
    };
    // Two recordings share a minute; one has a pause of two hours; one is of the year 2190.
    world.parquet("disks/host=a/date=2026-03-14/stat-1.parquet", &rows("(29558160), (29558161)"));
    world.parquet("disks/host=a/date=2026-03-14/stat-2.parquet", &rows("(29558161), (29558162)"));
    world.parquet("disks/host=b/date=2026-03-14/stat-3.parquet", &rows("(29558160), (29558280), (29558281)"));
    world.parquet("disks/host=c/date=2190-01-01/stat-4.parquet", &rows("(115709760)"));
    let expected = "host,doubt,from_utc,until_utc,entries\n\
                    a,twice,2026-03-14T12:01:00Z,2026-03-14T12:01:00Z,1\n\
                    b,missing,2026-03-14T12:00:00Z,2026-03-14T14:00:00Z,\n\
                    c,clock ahead,2190-01-01T00:00:00Z,2190-01-01T00:00:00Z,1\n";
    assert_eq!(world.ask(&["doubts", "--format", "csv"]).done(), expected);
    let hours =
        world.ask(&["SELECT host, 60 * disk_hours AS minutes FROM waste ORDER BY host", "--format", "csv"]).done();
    assert_eq!(hours, "host,minutes\na,3.0\nb,3.0\nc,1.0\n", "nothing counts twice");
}

/// A host that two programs record counted each second twice, unless both saw it end at the same moment.
#[test]
fn time_of_overlapping_recordings_counts_once() {
    let world = World::new();
    let rows = |seconds: &str| {
        format!(
            "SELECT arrow_cast(to_timestamp(1773489600 + end_s), 'Timestamp(Microsecond, Some(\"UTC\"))') AS at_utc, disk, \
             length_s AS duration_s, CASE WHEN disk = 'sda' THEN 100e0 ELSE 0e0 END AS read_kib_per_s, 0e0 AS write_kib_per_s, \
             CAST(NULL AS VARCHAR) AS gap, 0.5e0 AS capacity_use, 'model' AS capacity_basis, 'ok' AS verdict \
             FROM (VALUES {seconds}) AS a(end_s, length_s) CROSS JOIN (VALUES ('sda'), ('sdb')) AS b(disk)"
        )
    };
    // A minute each; the second recording begins half a minute later.
    let both = [("1", "(60, 60e0), (120, 60e0), (180, 60e0)"), ("2", "(90, 60e0), (150, 60e0), (210, 60e0)")];
    let day = |host: &str, name: &str| format!("disks/host={host}/date=2026-03-14/stat-{name}.parquet");
    both.iter().for_each(|(name, seconds)| world.parquet(&day("a", name), &rows(seconds)));
    // An interval within another, and a pause.
    world.parquet(&day("b", "3"), &rows("(60, 60e0), (30, 10e0), (300, 30e0)"));
    // A recording whose ends are in whole milliseconds.
    world.parquet(&day("c", "4"), &rows("(60, 60e0), (120, 600009e-4)"));

    let sql = "SELECT host, 3600 * disk_hours AS disk_s, used_pct FROM waste ORDER BY host";
    assert_eq!(
        world.ask(&[sql, "--format", "csv"]).done(),
        "host,disk_s,used_pct\na,420.0,50.0\nb,180.0,50.0\nc,240.0018,50.0\n"
    );
    let sql = "SELECT host, disk, hot_s FROM hot_disk ORDER BY host";
    assert_eq!(
        world.ask(&[sql, "--format", "csv"]).done(),
        "host,disk,hot_s\na,sda,210.0\nb,sda,90.0\nc,sda,120.0009\n"
    );
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
fn an_answer_is_drawn_where_its_columns_are_a_questions() {
    let world = World::new();
    let picture = world.ask(&["latency", "--format", "svg"]).done();
    assert!(picture.starts_with("<svg"), "{picture}");
    for text in ["Which class of which host is slow?", "7 batch", "db1 query", "p99.9", "8 ms"] {
        assert!(picture.contains(text), "no `{text}` in {picture}");
    }
    let changes = "SELECT 'query' AS class, -25.0 AS change_pct, -33.0 AS low_pct, -16.0 AS high_pct";
    let picture = world.ask(&[changes, "--format", "svg"]).done();
    assert!(picture.contains("What did the change do?") && picture.contains("query"), "{picture}");
    // The hosts take turns.
    let turns = "SELECT column1 AS host, column2 AS disk, to_timestamp(column3) AS first_utc, to_timestamp(column3 + 60) AS \
                 last_utc, 60 AS hot_s, 80 AS part_pct FROM (VALUES ('db1', 'sda', 0), ('db2', 'sdb', 60), ('db1', 'sdc', 120))";
    let picture = world.ask(&[turns, "--format", "svg"]).done();
    assert_eq!(picture.matches(">db1<").count(), 1, "{picture}");
    world.ask(&["SELECT 1 AS a", "--format", "svg"]).refused(2, "a picture needs the columns of a question");
    world.ask(&["SELECT * FROM latency WHERE host = 'none'", "--format", "svg"]).refused(2, "has no rows");
}

/// A cluster whose `spark-submit` keeps the job beside the depot, says `said` and ends with `code`. Each answer has one row.
fn cluster_that_says(
    world: &World,
    rows: &str,
    said: &str,
    code: i32,
) -> (std::net::TcpListener, impl Fn(&str) -> Ended) {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = world.directory.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\ncp \"$4\" job.json\nfor name in $(grep -o '\"answer\":\"[^\"]*\"' \"$4\" | cut -d '\"' -f 4); do\n\
         echo '{rows}' > \"$name\"\ndone\necho other lines\necho '{said}'\nexit {code}\n"
    );
    std::fs::write(bin.join("spark-submit"), script).unwrap();
    std::fs::set_permissions(bin.join("spark-submit"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("spark://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let words = ["--depot", "depot", "--format", "csv", "--cluster", &url].map(str::to_owned);
    let directory = world.directory.path().to_owned();
    let ask = move |question: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-query"));
        Ended::of(command.args(&words).arg(question).current_dir(&directory).env("PATH", &path).output().unwrap())
    };
    (listener, ask)
}

#[test]
fn a_cluster_gets_the_files_and_the_words_of_spark() {
    let world = World::new();
    let day = world.depot().join("hist/host=7/date=2026-03-14");
    std::fs::write(day.join("trace-2.parquet"), "half").unwrap();
    let row = r#"{"c0":1773489600000000,"c1":"7","c2":0.1,"c3":"2026-03-14","c4":null}"#;
    let (_listener, ask) = cluster_that_says(&world, row, r#"plimsoll-query lost "10.0.0.2:7""#, 0);
    let ended =
        ask("CREATE VIEW mine AS SELECT *, 0.5 * pieces AS half, extract(epoch FROM at_utc) AS at_s FROM hist; \
         SELECT at_utc, host, half, date, sum(pieces) OVER (ORDER BY half DESC) AS n FROM mine ORDER BY host");
    assert_eq!(ended.out, "at_utc,host,half,date,n\n2026-03-14T12:00:00Z,7,0.1,2026-03-14,\n");
    let lines: Vec<&str> = ended.err.lines().collect();
    assert!(lines[0].contains("trace-2.parquet: no whole Parquet file"), "{}", ended.err);
    assert_eq!(lines[1..], ["note: the worker at 10.0.0.2:7 is lost: the others do its part again"]);
    assert_eq!(ended.code, Some(1), "a file was left out");

    let job = std::fs::read_to_string(world.directory.path().join("job.json")).unwrap();
    for part in [
        "CREATE OR REPLACE TEMPORARY VIEW latency AS WITH buckets AS",
        "CREATE OR REPLACE TEMPORARY VIEW mine AS SELECT *, 0.5e0 * pieces AS half, CAST(at_utc AS DOUBLE) AS at_s FROM hist",
        "OVER (ORDER BY half DESC NULLS FIRST) AS n FROM mine ORDER BY host NULLS LAST",
        "unix_micros(CAST(c0 AS TIMESTAMP)) AS c0",
        "/depot/hist/host=7/date=2026-03-14/trace-1.parquet\"],[\"",
        "/depot/hist/host=db1/date=2026-03-14/hour=12/trace-5.parquet\"]",
        "bucket_ns BIGINT, pieces BIGINT, host STRING, date DATE",
    ] {
        assert!(job.contains(part), "no `{part}` in {job}");
    }
    assert!(!job.contains("trace-2.parquet"), "what is not whole is no file of the cluster either");
}

/// In a text of Spark `\b` is a backspace, and `''` after `'` ends a text and begins another.
#[test]
fn a_cluster_gets_texts_as_they_are() {
    let world = World::new();
    let (_listener, ask) = cluster_that_says(&world, "{}", "", 0);
    ask("SELECT host FROM hist WHERE class NOT IN ('a\\b', 'it''s', '''''')");
    let job = std::fs::read_to_string(world.directory.path().join("job.json")).unwrap();
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let steps = job["steps"].as_array().unwrap();
    let sql = steps.last().and_then(|step| step["sql"].as_str()).unwrap();
    assert!(sql.ends_with(r"NOT IN ('a\\b', 'it\'s', '\'\'')"), "{sql}");
}

#[test]
fn what_a_cluster_cannot_do_is_one_line() {
    let world = World::new();
    let (_listener, ask) =
        cluster_that_says(&world, "{}", r#"plimsoll-query error "no worker has taken the question""#, 3);
    ask("latency").refused(3, ": no worker has taken the question\n");
    ask("SELECT 7 / pieces AS n FROM hist").refused(2, "a quotient of integers is cut here");
    ask("SELECT * FROM hist WHERE pieces > (SELECT max(bucket_ns) / 2 FROM hist)").refused(2, "a quotient of integers");
    ask("EXPLAIN SELECT 1").refused(2, "a cluster runs SELECT and CREATE VIEW only");
    ask("INSERT INTO hist SELECT * FROM hist").refused(2, "DML not supported");
    ask("SELECT nothing FROM hist").refused(2, "nothing");
    ask("SELECT INTERVAL '1' DAY AS day").refused(2, "column day: a cluster's answer cannot have the type");
    ask("SELECT 1 AS a; SELECT 2 AS b").refused(2, "2 statements give rows");
    let (_listener, ask) =
        cluster_that_says(&world, "{}", r#"plimsoll-query bad "[UNRESOLVED_ROUTINE] no such function""#, 2);
    ask("SELECT round(1e0)").refused(2, "[UNRESOLVED_ROUTINE] no such function");
    let (_listener, ask) = cluster_that_says(&world, "{}", "", 9);
    ask("latency").refused(3, "spark-submit ended by itself (exit status: 9)");
    let (_listener, ask) = cluster_that_says(&world, r#"{"c0": "many"}"#, "", 0);
    ask("SELECT count(*) AS n FROM hist").code.filter(|code| *code == 3).unwrap();
    std::fs::remove_file(world.directory.path().join("bin/spark-submit")).unwrap();
    let (listener, _) = cluster_that_says(&world, "{}", "", 0);
    let url = format!("spark://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let asked = |url: &str| {
        let words = ["--depot", "depot", "--cluster", url, "latency"];
        Ended::of(world.command(&words).env("PATH", "/nowhere").output().unwrap())
    };
    asked(&url).refused(3, "spark-submit is not on PATH");
    drop(listener);
    asked(&url).refused(3, &format!("{url}: no cluster answers: Connection refused"));
    asked("sc://host").refused(2, "expected the master of a Spark cluster, as spark://HOST:7077");
    asked("spark://host:port").refused(2, "expected HOST:PORT");
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
fn an_interrupted_question_leaves_no_files_and_the_next_removes_what_a_killed_one_left() {
    let world = World::new();
    let temporary = world.directory.path().join("tmp");
    let held = temporary.join("plimsoll-query-held");
    std::fs::create_dir_all(&held).unwrap();
    let answers = world.directory.path().join("answers");
    std::fs::create_dir(&answers).unwrap();
    let lock = std::fs::File::create(held.join("lock")).unwrap();
    lock.lock().unwrap();

    let sorted = "SELECT a.value FROM generate_series(1, 10000) a CROSS JOIN generate_series(1, 10000) b ORDER BY a.value + b.value DESC";
    let start = |output: &[&str]| {
        let words = [&["--depot", "depot", "--memory", "32MiB", "--format", "csv", sorted], output].concat();
        let mut command = world.command(&words);
        command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let inside = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten().map(|it| it.path());
    let is_written = || {
        let mut found: Vec<PathBuf> = inside(&temporary).flat_map(|it| inside(&it).chain([it.clone()])).collect();
        found.retain(|it| it.file_name().is_some_and(|name| name.to_string_lossy().starts_with("datafusion-")));
        found.iter().any(|it| inside(it).next().is_some())
    };
    let wait_until_written = |process: &mut Child| {
        while !is_written() {
            assert_eq!(process.try_wait().unwrap(), None, "it ended before it wrote");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };

    for signal in ["INT", "TERM"] {
        let mut interrupted = start(&["-o", "answers/sorted.csv"]);
        wait_until_written(&mut interrupted);
        let sent = Command::new("kill").args([format!("-{signal}"), interrupted.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(interrupted.wait().unwrap().code(), Some(130), "{signal}");
        assert_eq!(inside(&temporary).collect::<Vec<_>>(), std::slice::from_ref(&held), "{signal}");
        assert_eq!(inside(&answers).count(), 0, "{signal}: neither a whole answer nor a part");
    }

    let mut killed = start(&[]);
    wait_until_written(&mut killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(is_written());

    let next = world.command(&["--depot", "depot", "latency"]).env("TMPDIR", &temporary).output().unwrap();
    Ended::of(next).done();
    assert_eq!(inside(&temporary).collect::<Vec<_>>(), [held], "only that of a process that runs is left");
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
