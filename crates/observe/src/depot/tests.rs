use std::collections::BTreeMap;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row, RowAccessor};
use plimsoll::core::trace::{Event, EventKind};
use plimsoll::core::{Histogram, Op, WaitReason};
use plimsoll::trace::format::{ClassName, Clock, Names, Writer};
use tempfile::TempDir;

use super::*;
use crate::depot::figures::Figure;
use crate::depot::trace::{StoreError, TraceOptions};
use crate::stat::{DeviceFacts, DeviceInterval, Gap, Interval, Observed};
use crate::trace::export::{Export, Form};
use crate::trace::show::Head;

/// 2026-03-14 23:59:59 UTC: a second later is another day.
const BEFORE_MIDNIGHT_NS: u64 = 1_773_532_799_000_000_000;
const AS_IT_SAYS: TraceOptions = TraceOptions { at_unix_ns: None, with_spans: true };

/// Writes a trace of 3000 requests of two classes, one each millisecond, whose time in the disk grows. The completion
/// of the third comes before its submission, as clocks of two CPUs may have it.
fn write_trace(path: &Path, unix_at_zero_ns: u64) {
    let mut names = Names::default();
    names.classes.insert(1, ClassName { name: "query".to_owned(), shares: 1 });
    names.disks.insert(0, "nvme0n1".to_owned());

    let mut events = Vec::new();
    for request in 0..3000_u64 {
        let queued_ns = request * 1_000_000;
        let class = 1 + (request % 2) as u16;
        let mut at = |after_ns: i64, kind, reason| {
            let time_ns = queued_ns.saturating_add_signed(after_ns);
            let (offset_bytes, len_bytes) = (4096 * request, 4096);
            events.push(Event {
                time_ns,
                request,
                offset_bytes,
                len_bytes,
                detail: 0,
                class,
                disk: 0,
                piece: 0,
                kind,
                op: Op::Read,
                reason,
            });
        };
        at(0, EventKind::Queued, None);
        at(1_000, EventKind::Dispatched, Some(WaitReason::Tokens));
        at(2_000, EventKind::Submitted, None);
        let back_ns = if request == 2 { 1_995 } else { 100_000 + 300 * request as i64 };
        at(back_ns, EventKind::Completed, None);
        at(back_ns + 700, EventKind::Reaped, None);
    }

    let clock = if unix_at_zero_ns > 0 { Clock::Monotonic } else { Clock::Virtual };
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), clock, unix_at_zero_ns).unwrap();
    writer.names(&names).unwrap();
    writer.events(0, 0, &events).unwrap();
    writer.flush().unwrap();
}

/// A trace, and a depot beside it.
fn world(unix_at_zero_ns: u64) -> (TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (trace, depot) = (directory.path().join("run.plt"), directory.path().join("depot"));
    write_trace(&trace, unix_at_zero_ns);
    (directory, trace, depot)
}

fn place(depot: &Path) -> Place {
    Place::new(&Root::Directory(depot.to_owned()), "db1", "trace-1".to_owned()).unwrap()
}

/// Returns all files below a directory, by their paths in it.
fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Returns the rows of a table, as a reader sees them that takes every `*.parquet`.
fn rows(depot: &Path, table: Table) -> Vec<Row> {
    let in_table = format!("{}/", table.name());
    let of_table = |name: &String| name.starts_with(&in_table) && name.ends_with(".parquet");
    let names = files(depot).into_keys().filter(of_table);
    names.flat_map(|name| reader(&depot.join(name)).into_iter().map(Result::unwrap).collect::<Vec<_>>()).collect()
}

fn reader(path: &Path) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(path).unwrap()).unwrap()
}

fn texts(row: &Row) -> Vec<String> {
    let text = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        field => field.to_string(),
    };
    row.get_column_iter().map(|(_, field)| text(field)).collect()
}

#[test]
fn spans_are_what_csv_has_with_the_time_of_day() {
    let (_directory, path, depot) = world(BEFORE_MIDNIGHT_NS);
    let (written, notes) = trace::store(&place(&depot), &path, AS_IT_SAYS).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    let names: Vec<String> =
        written.iter().map(|file| file.path.strip_prefix(&depot).unwrap().display().to_string()).collect();
    let expected = [
        "spans/host=db1/date=2026-03-14/trace-1.parquet",
        "spans/host=db1/date=2026-03-15/trace-1.parquet",
        "hist/host=db1/date=2026-03-14/trace-1.parquet",
        "hist/host=db1/date=2026-03-15/trace-1.parquet",
    ];
    assert_eq!(names, expected);
    assert_eq!(written.iter().map(|file| file.rows).collect::<Vec<_>>()[..2], [1000, 2000]);

    let mut head = Head::default();
    let mut csv = Vec::new();
    head.names = crate::trace::read(&path, &mut |item| head.visit(&item)).unwrap().names;
    let mut export = Export::begin(Form::Csv, &mut csv, head).unwrap();
    crate::trace::read(&path, &mut |item| export.visit(&item)).unwrap();
    export.finish().unwrap();
    let csv = String::from_utf8(csv).unwrap();

    let rows = rows(&depot, Table::Spans);
    assert_eq!(rows.len(), 3000);
    for (number, (line, row)) in csv.lines().skip(1).zip(&rows).enumerate() {
        assert_eq!(texts(row)[1..].join(","), line);
        let at_us = BEFORE_MIDNIGHT_NS as i64 / 1000 + 1000 * number as i64;
        assert_eq!(row.get_timestamp_micros(0).unwrap(), at_us);
    }
    // The stage that runs backwards by 5 ns.
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let column = |name: &str| 1 + header.iter().position(|column| *column == name).unwrap();
    let (out, back) = (column("submitted_ns"), column("completed_ns"));
    assert_eq!(rows[2].get_long(back).unwrap() - rows[2].get_long(out).unwrap(), -5);
}

#[test]
fn sums_of_buckets_are_the_histogram_of_all() {
    let (_directory, path, depot) = world(BEFORE_MIDNIGHT_NS);
    trace::store(&place(&depot), &path, TraceOptions { with_spans: false, ..AS_IT_SAYS }).unwrap();
    assert!(rows(&depot, Table::Spans).is_empty());

    let mut all = Histogram::new();
    crate::trace::read(&path, &mut |item| {
        if let crate::trace::span::Item::Span(span) = item
            && span.class == 1
        {
            all.record(span.completed_ns.unwrap() - span.queued_ns.unwrap());
        }
    })
    .unwrap();
    let mut buckets = BTreeMap::new();
    for row in rows(&depot, Table::Hist) {
        let [disk, class, op, stage] = [1, 2, 3, 4].map(|column| row.get_string(column).unwrap().as_str());
        if (disk, class, op, stage) == ("nvme0n1", "query", "read", "Q2C") {
            *buckets.entry(row.get_long(5).unwrap()).or_insert(0) += row.get_long(6).unwrap();
        }
    }
    let total: i64 = buckets.values().sum();
    assert_eq!(total as u64, all.count());
    for percent in [10, 50, 90, 99] {
        let mut upto = 0;
        let found = buckets.iter().find(|(_, pieces)| {
            upto += *pieces;
            100 * upto >= percent * total
        });
        assert_eq!(*found.unwrap().0 as u64, all.percentile(percent as f64), "p{percent}");
    }
}

#[test]
fn a_recording_that_is_stored_again_is_there_once() {
    let (_directory, path, depot) = world(BEFORE_MIDNIGHT_NS);
    trace::store(&place(&depot), &path, AS_IT_SAYS).unwrap();
    let first = files(&depot);
    trace::store(&place(&depot), &path, AS_IT_SAYS).unwrap();
    assert_eq!(files(&depot), first);

    // Under another day, its files move.
    let at_unix_ns = Some(BEFORE_MIDNIGHT_NS as i64 + 100 * 86_400_000_000_000);
    trace::store(&place(&depot), &path, TraceOptions { at_unix_ns, ..AS_IT_SAYS }).unwrap();
    assert_eq!(rows(&depot, Table::Spans).len(), 3000);
    assert!(files(&depot).keys().all(|name| name.contains("date=2026-06-2")), "{:?}", files(&depot).keys());

    // Another recording of the host stays beside it.
    let other = Place::new(&Root::Directory(depot.to_owned()), "db1", "trace-2".to_owned()).unwrap();
    trace::store(&other, &path, AS_IT_SAYS).unwrap();
    assert_eq!(rows(&depot, Table::Spans).len(), 6000);
}

#[test]
fn what_was_not_finished_is_not_there() {
    let (_directory, path, depot) = world(BEFORE_MIDNIGHT_NS);
    trace::store(&place(&depot), &path, AS_IT_SAYS).unwrap();
    let before = files(&depot);

    // A process that was killed in the middle leaves a part of a file, which no reader takes.
    let day = depot.join("spans/host=db1/date=2026-03-14");
    std::fs::write(day.join(".trace-1-4711.tmp"), b"PAR1 and no more").unwrap();
    assert_eq!(rows(&depot, Table::Spans).len(), 3000);
    std::fs::remove_file(day.join(".trace-1-4711.tmp")).unwrap();

    // A failed storing leaves the earlier files: the last row has a time that no clock has.
    let mut figures = Files::new(&place(&depot), Table::Spans, std::iter::once(&NUMBER));
    figures.push(BEFORE_MIDNIGHT_NS as i64 / 1000, &[7], &()).unwrap();
    assert_eq!(files(&depot).len(), before.len() + 1, "it is written beside");
    assert!(matches!(figures.push(i64::MAX, &[8], &()), Err(DepotError::Clock { .. })));
    drop(figures);
    assert_eq!(files(&depot), before);
}

/// Each file kept the memory of its largest group until the end: gigabytes for a trace of some days.
#[test]
fn the_memory_of_many_parts_is_bounded() {
    let (_directory, _, depot) = world(BEFORE_MIDNIGHT_NS);
    let by_hour = Place { is_by_hour: true, ..place(&depot) };
    let mut numbers = Files::new(&by_hour, Table::Spans, std::iter::once(&NUMBER));
    let rows_each = GROUP_ROWS - 1;
    for hour in 0..10 {
        let at_us = BEFORE_MIDNIGHT_NS as i64 / 1000 + hour * US_PER_HOUR;
        (0..rows_each).for_each(|_| numbers.push(at_us, &[7], &()).unwrap());
        let room: usize = numbers.parts.values().map(|open| open.file.room_rows).sum();
        assert!(room <= ROOM_ROWS_MAX + GROUP_ROWS, "hour {hour}: {room} rows");
    }
    let written = numbers.finish().unwrap();
    assert_eq!(written.iter().map(|file| file.rows).collect::<Vec<_>>(), [rows_each as u64; 10]);
    assert!(written.iter().all(|file| reader(&file.path).metadata().file_metadata().num_rows() == rows_each as i64));
}

/// Two containers on one mount have processes of one number.
#[test]
fn a_temporary_file_of_another_process_stays_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (first, mut theirs) = Temporary::create(directory.path(), "trace-1").unwrap();
    std::io::Write::write_all(&mut theirs, b"theirs").unwrap();
    let (second, _) = Temporary::create(directory.path(), "trace-1").unwrap();
    assert_ne!(first.0, second.0);
    drop(second);
    assert_eq!(std::fs::read(&first.0).unwrap(), b"theirs");
}

#[test]
fn by_hour_and_by_day_replace_each_other() {
    let (_directory, path, depot) = world(BEFORE_MIDNIGHT_NS);
    let by_hour = Place { is_by_hour: true, ..place(&depot) };
    for _ in 0..2 {
        trace::store(&place(&depot), &path, AS_IT_SAYS).unwrap();
        assert_eq!(rows(&depot, Table::Spans).len(), 3000);
        trace::store(&by_hour, &path, AS_IT_SAYS).unwrap();
        assert_eq!(rows(&depot, Table::Spans).len(), 3000);
    }
    let expected = [
        "hist/host=db1/date=2026-03-14/hour=23/trace-1.parquet",
        "hist/host=db1/date=2026-03-15/hour=00/trace-1.parquet",
        "spans/host=db1/date=2026-03-14/hour=23/trace-1.parquet",
        "spans/host=db1/date=2026-03-15/hour=00/trace-1.parquet",
    ];
    assert_eq!(files(&depot).into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn a_url_is_a_bucket_or_refused() {
    for url in ["gs://fleet/depot", "file:///depot", "s3://", "s3:///depot", "http://a/b"] {
        let root = Root::parse(url.as_ref());
        assert!(matches!(root, Err(DepotError::Url { .. })), "{url}: {root:?}");
    }
    for path in ["depot", "/depot", "s3:/depot", "a b/c"] {
        assert!(matches!(Root::parse(path.as_ref()), Ok(Root::Directory(it)) if it == Path::new(path)), "{path}");
    }
    let bucket = Root::parse("s3://fleet/depot".as_ref());
    #[cfg(feature = "s3")]
    assert!(matches!(bucket, Ok(Root::Bucket(_))), "{bucket:?}");
    #[cfg(not(feature = "s3"))]
    assert!(matches!(bucket, Err(DepotError::NoS3 { .. })), "{bucket:?}");
}

static NUMBER: Column<i64, ()> =
    crate::columns::known("number", crate::columns::cell!(I64, |it, ()| crate::columns::int(*it)));

#[test]
fn hosts_and_clocks_that_make_no_directory_are_refused() {
    let (_directory, path, depot) = world(0);
    let long = "h".repeat(201);
    for name in
        ["", ".", "..", "../db1", "a/b", "/etc", "-rf", "_x", "a b", "a\0b", "dätabase", "a=b", "a%2f", long.as_str()]
    {
        let place = Place::new(&Root::Directory(depot.to_owned()), name, "trace-1".to_owned());
        assert!(matches!(place, Err(DepotError::Host { .. })), "{name}");
    }
    for name in ["db1", "1", "DB-1.example_x", "10.0.0.1"] {
        assert!(Place::new(&Root::Directory(depot.to_owned()), name, "trace-1".to_owned()).is_ok(), "{name}");
    }

    let stored = |at_unix_ns| trace::store(&place(&depot), &path, TraceOptions { at_unix_ns, ..AS_IT_SAYS });
    assert!(
        matches!(stored(None), Err(StoreError::Depot(DepotError::NoTime { .. }))),
        "virtual time is no time of day"
    );
    for at_unix_ns in [0, i64::MIN, i64::MAX, 86_400_000_000_000 * 10_956] {
        let refused = stored(Some(at_unix_ns));
        assert!(matches!(refused, Err(StoreError::Depot(DepotError::Clock { .. }))), "{at_unix_ns}: {refused:?}");
    }
    assert!(!depot.exists(), "nothing was made");
}

#[test]
fn disks_and_figures_come_back() {
    let (_directory, _, depot) = world(0);
    let device = |device: &str, reads_per_s, gap| DeviceInterval {
        device: device.to_owned(),
        columns: crate::stat::Columns { reads_per_s, queue: Some(f64::NAN), ..Default::default() },
        in_flight: Some(3),
        gap,
    };
    let interval = Interval {
        end_unix_ms: Some(BEFORE_MIDNIGHT_NS / 1_000_000),
        duration_s: Some(0.5),
        devices: vec![
            device("loop0", Some(0.0), None),
            device("md0", Some(12.5), None),
            device("sda", Some(12.5), None),
            device("sdb", None, Some(Gap::Appeared)),
        ],
        ..Interval::default()
    };
    let since_boot = Interval { is_since_boot: true, ..interval.clone() };
    let may_be = Interval { may_be_since_boot: true, ..interval.clone() };
    let mut watch = crate::stat::watch::Watch::default();
    let observed: Vec<Observed> =
        [since_boot, may_be, interval].iter().map(|interval| watch.observe(interval, &Default::default())).collect();
    let array = DeviceFacts { members: vec!["sda".to_owned()], ..DeviceFacts::default() };
    disks::store(&place(&depot), &observed, &[("md0".to_owned(), array)].into()).unwrap();
    let found = rows(&depot, Table::Disks);
    assert_eq!(found.len(), 2, "means since boot, the array beside its member and the idle loop are left out");
    let names: Vec<String> = found[0].get_column_iter().map(|(name, _)| name.clone()).collect();
    let of =
        |row: usize| -> BTreeMap<&str, String> { names.iter().map(String::as_str).zip(texts(&found[row])).collect() };
    let (sda, sdb) = (of(0), of(1));
    assert_eq!((sda["disk"].as_str(), sda["duration_s"].as_str(), sda["reads_per_s"].as_str()), ("sda", "0.5", "12.5"));
    assert_eq!((sda["queue"].as_str(), sda["in_flight"].as_str(), sda["gap"].as_str()), ("", "3", ""));
    assert_eq!(
        (sda["verdict"].as_str(), sda["why"].as_str()),
        (observed[2].devices[2].verdict.name(), observed[2].devices[2].why.as_str())
    );
    assert_eq!((sdb["gap"].as_str(), sdb["reads_per_s"].as_str()), ("appeared", ""));

    let figure = |value| Figure {
        command: "test",
        what: "reads".to_owned(),
        class: None,
        metric: "iops".to_owned(),
        unit: "1/s",
        value,
        interval: Some([1.0, 2.0]),
    };
    figures::store(&place(&depot), BEFORE_MIDNIGHT_NS as i64 / 1000, &[figure(1.5), figure(f64::NAN)]).unwrap();
    let found = rows(&depot, Table::Figures);
    assert_eq!(found.len(), 1);
    assert_eq!(texts(&found[0])[1..], ["test", "reads", "", "iops", "1/s", "1.5", "1.0", "2.0"]);
}

#[test]
fn a_file_says_the_version_of_its_schema() {
    let (_directory, path, depot) = world(BEFORE_MIDNIGHT_NS);
    trace::store(&place(&depot), &path, AS_IT_SAYS).unwrap();
    let is_of_spans = |name: &String| name.starts_with("spans/");
    assert!(files(&depot).keys().any(is_of_spans));
    trace::store(&place(&depot), &path, TraceOptions { with_spans: false, ..AS_IT_SAYS }).unwrap();
    assert!(!files(&depot).keys().any(is_of_spans), "those of the earlier storing are gone");
    trace::store(&place(&depot), &path, AS_IT_SAYS).unwrap();
    for name in files(&depot).into_keys() {
        let reader = reader(&depot.join(&name));
        let pairs = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
        let version = pairs.iter().find(|pair| pair.key == SCHEMA_KEY).and_then(|pair| pair.value.clone());
        assert_eq!(version.as_deref(), Some("1"), "{name}");
        for column in reader.metadata().file_metadata().schema_descr().columns() {
            assert!(!format!("{:?}", column.logical_type_ref()).contains("is_signed: false"), "{name}: {column:?}");
        }
    }
}
