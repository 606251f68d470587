//! Files that `plimsoll stat` itself has written.

use super::*;
use crate::stat::Gap;

#[test]
fn our_own_recording_is_read() {
    use crate::stat::host::{Host, Reading};
    let mut writer = record::Writer::new(Vec::new(), &Host { name: "db7".to_owned(), ..Host::default() }).unwrap();
    for (uptime_cs, reads) in [(100, 1000), (200, 1500)] {
        let devices =
            plimsoll::sys::diskstats::parse(&format!("8 0 sda {reads} 0 8000 100 0 0 0 0 0 90 100\n")).unwrap();
        writer.append(&Reading { uptime_cs, devices, ..Reading::default() }, &Facts::new()).unwrap();
    }
    let bytes = writer.into_inner();
    let recorded = read("a.record", &bytes, &ReadOptions::default()).unwrap();
    assert_eq!(recorded.intervals[0].devices[0].columns.reads_per_s, Some(500.0));
    assert!(recorded.origin.contains("recording of db7"), "{}", recorded.origin);
    let cut = read("a.record", &bytes[..bytes.len() - 10], &ReadOptions::default()).unwrap();
    assert!(!cut.notes.is_empty());
}

#[test]
fn two_files_of_the_same_time_are_noted() {
    let saved = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(name);
        Saved { name: name.to_owned(), bytes: std::fs::read(path).unwrap(), is_found: false }
    };
    let notes = |names: &[&str]| {
        let files: Vec<Saved> = names.iter().map(|name| saved(name)).collect();
        read_all(&files, &ReadOptions::default()).unwrap().notes.join("; ")
    };
    let both = notes(&["rotating-before.rec", "rotating-after.rec"]);
    assert!(both.contains("rotating-after.rec and rotating-before.rec are of the same time"), "{both}");
    assert!(!notes(&["rotating-before.rec"]).contains("same time"));
}

#[test]
fn our_own_csv_is_read() {
    use crate::stat::output::{csv, tests::observed};
    let mut later = observed();
    (later.end_unix_ms, later.is_since_boot) = (Some(1_710_463_995_000), true);
    let whole = csv::header() + &csv::lines(&observed()) + &csv::lines(&observed()) + &csv::lines(&later);

    let recorded = text(&whole);
    assert_eq!(recorded.origin, "text: CSV of `plimsoll stat`");
    assert_eq!(recorded.notes, [""; 0]);
    let when = |it: &Interval| (it.end_unix_ms.unwrap() - 1_710_463_994_000, it.duration_s, it.is_since_boot);
    let intervals: Vec<_> = recorded.intervals.iter().map(when).collect();
    assert_eq!(intervals, [(0, Some(1.0), false), (0, Some(1.0), false), (1000, None, true)]);
    let [sda, nvme, sdb] = &recorded.intervals[1].devices[..] else { panic!("{recorded:#?}") };
    let did_nothing = "r/s 0, w/s 0, rkB/s 0, r_await 0.13, aqu-sz 0.23, util 100, await 0";
    assert_eq!((sda.columns.known().as_str(), sda.in_flight), (did_nothing, Some(0)));
    assert_eq!((nvme.device.as_str(), nvme.columns.reads_per_s), ("nvme0n1", Some(1234.57)));
    assert_eq!((sdb.device.as_str(), sdb.gap, &sdb.columns), ("sdb", Some(Gap::Appeared), &Columns::default()));

    let cut = text(whole.trim_end().rsplit_once(',').unwrap().0.replace(",100.00,", ",x,").as_str());
    assert_eq!(cut.intervals[2].devices.len(), 2);
    assert!(cut.notes.iter().any(|note| note == "text:3: util is `x`: taken as unknown"), "{:?}", cut.notes);
    assert!(cut.notes.last().unwrap().starts_with("text:10: 40 fields of 41"), "{:?}", cut.notes);
    let error = read("a.csv", csv::header().as_bytes(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("a.csv:1: CSV of `plimsoll stat` without a row"), "{error}");
}

#[test]
fn our_own_output_says_that_the_first_report_may_be_since_boot() {
    use crate::stat::host::Host;
    use crate::stat::output::{csv, json};
    use crate::stat::watch::Watch;
    let excerpt = "Device r/s w/s rkB/s wkB/s r_await w_await aqu-sz %util\nsda 10 0 40 0 0.1 0 0.1 5\n\n".repeat(2);
    let observed: Vec<_> = text(&excerpt).observed(&mut Watch::default()).collect();
    let table = csv::header() + &observed.iter().map(csv::lines).collect::<String>();
    let elements = (0..).zip(&observed).map(|(at, it)| json::element(it, &[], at == 0).unwrap());
    let document = json::head(&Host::default(), None).unwrap() + &elements.collect::<String>() + json::TAIL;

    for ours in [table, document] {
        for is_first_an_interval in [false, true] {
            let options = ReadOptions { is_first_an_interval, ..ReadOptions::default() };
            let recorded = read("ours", ours.as_bytes(), &options).unwrap();
            let may_be: Vec<bool> = recorded.intervals.iter().map(|it| it.may_be_since_boot).collect();
            assert_eq!(may_be, [!is_first_an_interval, false], "{ours}");
        }
    }
}

#[test]
fn our_own_table_is_read_where_figures_are_unknown() {
    let table = "\
sda is ok in 1 of 1 interval(s)
U 15 %, S 0 %, util 100

Device        r/s     w/s     rkB/s     wkB/s r_await w_await aqu-sz  %util     U    S verdict
sda             - 7497.00         - 105250.50       -    0.03   0.23 100.00   15%*  0% busy-but-free
sdb             -       -         -         -       -       -      -      -     -    - unknown
a-name-that-is-too-long-for-a-line
             2.00       -     16.00         -    0.13       -   0.00   0.03     -    - ok
";
    let recorded = text(table);
    assert_eq!(recorded.notes, [""; 0]);
    let [interval] = &recorded.intervals[..] else { panic!("{recorded:#?}") };
    let devices: Vec<_> = interval.devices.iter().map(|it| (it.device.as_str(), it.columns.known())).collect();
    let expected = [
        ("sda", "w/s 7497, wkB/s 105250.5, w_await 0.03, aqu-sz 0.23, util 100"),
        ("sdb", ""),
        ("a-name-that-is-too-long-for-a-line", "r/s 2, rkB/s 16, r_await 0.13, aqu-sz 0, util 0.03"),
    ];
    assert_eq!(devices, expected.map(|(name, columns)| (name, columns.to_owned())));
}

#[test]
fn our_own_summary_is_refused_with_what_to_pass_instead() {
    let summary = "db1.rec: recording of db1\n\nSummary of 180 intervals:\nsda: idle 59 %, ok 41 %\n";
    let error = read("long.txt", summary.as_bytes(), &ReadOptions::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "long.txt: looks like the summary of `plimsoll stat --from`: it has no intervals: pass the files that it sums up, \
         or write it with --intervals or --format json"
    );
}
