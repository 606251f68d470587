//! Saved `/proc/diskstats`: times, resets, lines that are cut.

use super::*;
use crate::stat::Gap;

#[test]
fn samples_with_times_have_rates() {
    const A: &str = "   8       0 sda 1000 0 8000 100 0 0 0 0 0 90 100\n";
    const B: &str = "   8       0 sda 3000 0 24000 300 0 0 0 0 3 290 300\n";
    let files = [
        format!("zzz ***Thu Mar 14 17:53:14 UTC 2024\n{A}zzz ***Thu Mar 14 17:53:24 UTC 2024\n{B}"),
        format!("1710438794\n{A}1710438804\n{B}"),
        format!("==> 1 <==\n1710438794.000\n{A}==> 2 <==\n1710438804.000\n{B}"),
        format!("Thu Mar 14 05:53:14 PM UTC 2024\n{A}\nThu Mar 14 05:53:24 PM UTC 2024\n{B}\n"),
        format!("# 2024-03-14T17:53:14Z\n{A}----\n# 2024-03-14T17:53:24Z\n{B}"),
    ];

    for file in files {
        let recorded = text(&file);
        let [interval] = recorded.intervals.as_slice() else { panic!("{file}: {recorded:?}") };
        assert_eq!((interval.duration_s, interval.end_unix_ms), (Some(10.0), Some(1_710_438_804_000)), "{file}");
        let device = &interval.devices[0];
        let columns = &device.columns;
        assert_eq!(
            (columns.reads_per_s, columns.read_await_ms, columns.util_percent),
            (Some(200.0), Some(0.1), Some(2.0))
        );
        assert_eq!(device.in_flight, Some(3));
        assert_eq!(recorded.notes, Vec::<String>::new(), "{file}");
    }

    let backwards = text(&format!("1710438804\n{A}1710438794\n{B}"));
    assert_eq!((backwards.intervals[0].duration_s, backwards.notes.len()), (None, 1), "{:?}", backwards.notes);
}

#[test]
fn without_times_only_what_stood_still_has_rates() {
    const LINES: &str = "8 0 sda 1000 0 8000 100 0 0 0 0 0 90 100 0 0 0 0\n8 16 sdb 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    let rates = |recorded: &Recorded| {
        let devices = recorded.intervals[0].devices.iter().map(|device| device.columns);
        devices.map(|columns| (columns.requests_per_s(), columns.util_percent)).collect::<Vec<_>>()
    };
    let (still, moved) = ((Some(0.0), Some(0.0)), (None, None));
    assert_eq!(rates(&text(LINES)), [moved, still], "since boot");
    assert_eq!(rates(&text(&format!("{LINES}{LINES}"))), [still, still]);
    assert_eq!(rates(&text(&format!("{LINES}{}", LINES.replace("sda 1000", "sda 1001")))), [moved, still]);
}

#[test]
fn samples_with_damage() {
    const ONE: &str = "8 0 sda 1000 0 8000 100 0 0 0 0 0 90 100\n8 16 sdb 5 0 40 1 0 0 0 0 0 1 1\n";
    let names = |recorded: &Recorded| -> Vec<(String, Option<Gap>)> {
        let last = recorded.intervals.last().unwrap();
        last.devices.iter().map(|device| (device.device.clone(), device.gap)).collect()
    };
    let bad = text(&format!("{ONE}8 0 sda 1100 0 xx 100 0 0 0 0 0 90 100\n8 16 sdb 9 0 72 2 0 0 0 0 0 1 1\n"));
    assert!(bad.notes[0].contains("text:3: counter `xx` of sda"), "{:?}", bad.notes);
    let cut = text(&format!("{ONE}8 0 sda 1100 0 8000 100 0 0 0 0 0 90 100\n8 16 sdb 9 0 72 2 0 0"));
    assert_eq!(names(&cut), [("sda".to_owned(), None)], "{:?}", cut.notes);
    let gone = text(&format!("{ONE}8 16 sdb 9 0 72 2 0 0 0 0 0 1 1\n8 32 sdc 0 0 0 0 0 0 0 0 0 0 0\n"));
    let expect = [("sdb", None), ("sdc", Some(Gap::Appeared)), ("sda", Some(Gap::Disappeared))];
    assert_eq!(names(&gone), expect.map(|(name, gap)| (name.to_owned(), gap)));
    let reset = text(&format!("{ONE}8 0 sda 10 0 80 100 0 0 0 0 0 90 100\n8 16 sdb 9 0 72 2 0 0 0 0 0 1 1\n"));
    assert_eq!(names(&reset)[0].1, Some(Gap::Reset));
    let wrap = text("8 0 sda 4294967290 0 8 1 0 0 0 0 0 1 1\n8 0 sda 4 0 8 1 0 0 0 0 0 1 1\n");
    assert_eq!(wrap.intervals[0].devices[0].gap, None);
}

#[test]
fn more_rows_than_memory_has_room_for_are_refused() {
    let line = "259 0 a 1 0 8 1 1 0 8 1 0 1 1\n";
    let refused = read("long", line.repeat(1_000_001).as_bytes(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(refused.starts_with("long:1000001: more than 1000000 rows of devices"), "{refused}");
    assert!(refused.contains("cut the files into parts"), "{refused}");
}
