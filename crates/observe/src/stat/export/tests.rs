//! The files in the directory, and how the real iostat reads them.

use std::process::Command;
use std::time::Duration;

use plimsoll::metrics::{DirectionMetrics, DiskMetrics, LatencyMetrics};

use super::*;
use crate::skip::skip;

fn class(name: &str, reads: u64) -> ClassMetrics {
    let total = LatencyMetrics { count: reads, sum_ns: reads * 500_000, buckets: Vec::new() };
    let read = DirectionMetrics { requests: reads, bytes: reads * 4096, total, ..DirectionMetrics::default() };
    ClassMetrics { class: name.into(), queued: 2, in_flight: 3, read, ..ClassMetrics::default() }
}

fn program(name: &str, pid: u32, classes: Vec<ClassMetrics>) -> ProgramMetrics {
    let disk = DiskMetrics { classes, ..DiskMetrics::default() };
    ProgramMetrics { program: name.into(), pid, disks: vec![disk], ..ProgramMetrics::default() }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory.join("block"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn stat(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join("block").join(name).join("stat")).unwrap()
}

#[test]
fn counts_only_grow_even_if_the_program_begins_anew() {
    let place = tempfile::tempdir().unwrap();
    let mut export = Export::create(place.path()).unwrap();
    let start = Instant::now();
    // Seconds, the reads that the program reports then, and the counts that the file has.
    let table = [
        (0, 1000, "1000 0 8000 500 0 0 0 0 5 0 500\n"),
        (1, 1800, "1800 0 14400 900 0 0 0 0 5 400 900\n"),
        (2, 5800, "5800 0 46400 2900 0 0 0 0 5 1400 2900\n"),
        (3, 100, "5900 0 47200 2950 0 0 0 0 5 1450 2950\n"),
        (4, 100, "5900 0 47200 2950 0 0 0 0 5 1450 2950\n"),
    ];
    for (seconds, reads, expect) in table {
        let at = start + Duration::from_secs(seconds);
        export.publish_at(&[program("db", 7, vec![class("query", reads)])], at).unwrap();
        assert_eq!(stat(place.path(), "db-7-query"), expect, "after {seconds} s");
    }
    let diskstats = fs::read_to_string(place.path().join("diskstats")).unwrap();
    let parsed = plimsoll::sys::diskstats::parse(&diskstats).unwrap();
    assert_eq!((parsed[0].name.as_str(), parsed[0].counters.reads), ("db-7-query", 5900));
}

#[test]
fn names_are_words_and_no_two_are_the_same() {
    let place = tempfile::tempdir().unwrap();
    let mut export = Export::create(place.path()).unwrap();
    let classes = ["a b", "a/b", "../..", "", "-x", "\u{fc}"].map(|name| class(name, 1)).to_vec();
    let idle = ClassMetrics { class: "idle".into(), ..ClassMetrics::default() };
    let mut two = program("two", 8, vec![class("q", 1), idle]);
    two.disks.push(DiskMetrics { disk: 1, ..two.disks[0].clone() });
    let long = program(&"x".repeat(200), 9, vec![class(&"y".repeat(200), 1)]);
    export.publish(&[program(".db!", 7, classes), two.clone(), long]).unwrap();
    let long = format!("{}-9-{}", "x".repeat(32), "y".repeat(32));
    let expect = [
        "_db_-7--x",
        "_db_-7-_",
        "_db_-7-_-2",
        "_db_-7-_._..",
        "_db_-7-a_b",
        "_db_-7-a_b-2",
        "two-8-q-d0",
        "two-8-q-d1",
        &long,
    ];
    assert_eq!(names(place.path()), expect);
    export.publish(&[two]).unwrap();
    assert_eq!(names(place.path()), ["two-8-q-d0", "two-8-q-d1"]);
    assert_eq!(fs::read_to_string(place.path().join("diskstats")).unwrap().lines().count(), 2);
    drop(export);
    assert_eq!(names(place.path()), [] as [String; 0]);
    assert!(!place.path().join("diskstats").exists());
}

#[test]
fn directories_of_others_are_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/letter"), "dear").unwrap();
    let table = [("full", io::ErrorKind::AlreadyExists, "letter"), ("full/letter", io::ErrorKind::AlreadyExists, "")];
    for (name, kind, _) in table {
        let error = Export::create(&at(name)).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(name), "{error}");
    }
    let error = Export::create(&at("new/deep")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "a directory of a directory that is not there: {error}");
    fs::create_dir(at("new")).unwrap();
    let first = Export::create(&at("new/deep")).unwrap();
    let error = Export::create(&at("new/deep")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
    drop(first);

    // Files of a killed exporter are removed; other files stay.
    fs::create_dir_all(at("new/deep/block/old-1-x")).unwrap();
    fs::write(at("new/deep/block/old-1-x/stat"), "1 2 3\n").unwrap();
    fs::create_dir_all(at("new/deep/block/mine")).unwrap();
    fs::write(at("new/deep/block/mine/letter"), "dear").unwrap();
    let again = Export::create(&at("new/deep")).unwrap();
    assert_eq!(names(&at("new/deep")), ["mine"]);
    drop(again);
    assert!(at("new/deep/block/mine/letter").exists());
}

#[test]
fn the_real_iostat_shows_them() {
    let place = tempfile::tempdir().unwrap();
    let mut export = Export::create(place.path()).unwrap();
    export.publish(&[program("db", 7, vec![class("query", 1_000_000)])]).unwrap();
    // All devices, one by name, and all with partitions, for which iostat reads another file.
    for more in [&[][..], &["db-7-query"], &["-p", "ALL"]] {
        let mut command = Command::new("iostat");
        command.env("LC_ALL", "C").args(["-d", "-x", "-o", "JSON", "-f"]).arg(place.path()).args(more);
        let Ok(output) = command.output() else {
            skip("there is no iostat here");
            return;
        };
        if !output.status.success() {
            skip(format_args!("this iostat does not know -f: {}", String::from_utf8_lossy(&output.stderr)));
            return;
        }

        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let disks = &document["sysstat"]["hosts"][0]["statistics"][0]["disk"];
        let found = ["disk_device", "r_await", "rareq-sz"].map(|key| disks[0][key].clone());
        assert_eq!(found, [serde_json::json!("db-7-query"), 0.5.into(), 4.0.into()], "{more:?}: {disks}");
    }
}
