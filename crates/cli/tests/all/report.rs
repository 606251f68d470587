//! `plimsoll report`: any results, one page.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use serde_json::Value;

use crate::world::{READS, World};

/// Two intervals of a disk that is busy and free.
pub(crate) const IOSTAT: &str = "\
Linux 6.1.0 (db-7) \t03/14/2026 \t_x86_64_\t(8 CPU)

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util
nvme0n1        100.00    400.00     0.00   0.00    0.10     4.00   50.00    200.00     0.00   0.00    0.05     4.00    0.00      0.00     0.00   0.00    0.00     0.00    0.00    0.00    0.01   1.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util
nvme0n1          0.00      0.00     0.00   0.00    0.00     0.00 7497.00 105250.50     0.00   0.00    0.03    14.04    0.00      0.00     0.00   0.00    0.00     0.00    0.00    0.00    0.23 100.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util
nvme0n1          0.00      0.00     0.00   0.00    0.00     0.00 7300.00 102000.00     0.00   0.00    0.03    13.97    0.00      0.00     0.00   0.00    0.00     0.00    0.00    0.00    0.22  99.80
";

const IOSTAT_JSON: &str = include_str!("../../../observe/tests/stat_samples/pkb_iostat_output.json");

/// A surface of a simulated disk.
pub(crate) const SURFACE: &str = r#"{"schema": 1, "cells": [
  {"write_MBps": 0, "read_iops": 50000, "p50_ms": 0.1, "p95_ms": 0.2, "model_p50_ms": 0.11, "model_p95_ms": 0.21,
   "saturated": false},
  {"write_MBps": 500, "read_iops": 90000, "p50_ms": 0.3, "p95_ms": 0.9, "model_p50_ms": 0.32, "model_p95_ms": 0.8,
   "saturated": true}], "errors": null}"#;

#[test]
fn results_of_all_kinds_stand_on_one_page() {
    let world = World::new(&[("jobs.yaml", READS), ("iostat.txt", IOSTAT), ("surface.json", SURFACE)]);
    let keep = |name: &str, arguments: &[&str]| {
        let ended = world.run(arguments);
        assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
        std::fs::write(world.path().join(name), ended.out).unwrap();
    };
    let line = serde_json::to_string(&serde_json::from_str::<Value>(IOSTAT_JSON).unwrap()).unwrap();
    std::fs::write(world.path().join("iostat.json"), line).unwrap();
    let test = ["test", "jobs.yaml", "--backend", "null", "--duration", "1", "--format", "json"];
    keep("a.json", &[&test[..], &["--trace", "a.plt"]].concat());
    keep("b.json", &test);
    keep("compare.json", &["compare", "a.json", "b.json", "--format", "json"]);
    keep("tune.json", &["tune", "--disk", "i4i.2xlarge", "--quick", "--record", "tune.jsonl", "--format", "json"]);
    let files = [
        ("a.json", "test"),
        ("compare.json", "compare"),
        ("tune.json", "tune"),
        ("tune.jsonl", "tune-record"),
        ("a.plt", "trace"),
        ("surface.json", "surface"),
        ("iostat.txt", "stat"),
        ("iostat.json", "stat"),
    ];
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let ended = world
        .run(&[&["report", "-o", "all.html", "--title", "all <of> them", "--format", "json"], &names[..]].concat())
        .done();
    let printed = ended.json();
    assert_eq!(printed["page"], "all.html");
    let kinds = printed["files"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|file| (file["file"].as_str().unwrap(), file["kind"].as_str().unwrap())).collect();
    assert_eq!(kinds, files);
    let page = std::fs::read_to_string(world.path().join("all.html")).unwrap();
    assert!(page.contains("<title>all &lt;of&gt; them</title>"));
    for name in names {
        assert!(page.contains(name), "{name}");
    }
    for part in ["Where the time went", "busy but free", "Figures", "Latency over time", "no evidence", "Sizes"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("src="));
}

#[test]
fn what_is_no_result_is_refused_and_nothing_written() {
    let world =
        World::new(&[("text", "what is this\n"), ("empty", ""), ("surface.json", SURFACE), ("report.html", "mine")]);
    let before = world.contents();
    // Beside the world, so that nobody reads its contents; it takes no place on the disk.
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&elsewhere, IOSTAT.repeat(100)).unwrap();
    elsewhere.as_file().set_len(300 << 20).unwrap();
    let large = elsewhere.path().to_str().unwrap();
    let cases: [(&[&str], &[&str]); 7] = [
        (&[large, "-o", "new.html"], &[large, "it has 300 MiB", "256 MiB at the most", "cut it"]),
        (&["text", "-o", "new.html"], &["text: ", "expected"]),
        (&["surface.json", "empty", "-o", "new.html"], &["empty: the file is empty"]),
        (&["missing", "-o", "new.html"], &["missing: cannot read it"]),
        (&[".", "-o", "new.html"], &[".: it is a directory"]),
        (&["surface.json"], &["report.html exists", "--force"]),
        (
            &["surface.json", "-o", "surface.json", "--force"],
            &["--output would write over surface.json, which is read"],
        ),
    ];
    for (arguments, fragments) in cases {
        world.run(&[&["report"], arguments].concat()).assert_refused(2, fragments);
        assert!(world.contents() == before, "{arguments:?}");
    }
}
