use serde_json::json;

use super::*;

fn read_text(name: &str, text: &str) -> Result<Shown, ReadError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    read(&path)
}

fn sim() -> String {
    json!({
        "schema": 1, "plimsoll": "0.1.0", "interrupted": true, "passed": false,
        "runs": [{
            "name": "shares", "title": "who gets <what>", "seed": 7, "sweep": {"shards": "2"}, "passed": false,
            "error": null,
            "figures": [
                {"name": "ratio", "value": 1.98765, "target": {"at_least": 1.9, "at_most": 2.1}, "passed": true},
                {"name": "p99", "value": null, "target": {"at_least": null, "at_most": 3.0}, "passed": false},
            ],
            "tables": [{"title": "Classes", "columns": ["class", "share"], "rows": [["a", "66 %"]]}],
            "remarks": ["as it should be"], "requests": 12345, "log_hash": "00ff",
        }],
        "seeds": [],
    })
    .to_string()
}

fn surface() -> String {
    json!({"schema": 1, "cells": [{"write_MBps": 100.0, "read_iops": 5e4, "p50_ms": 0.1, "p95_ms": 0.2,
        "model_p50_ms": 0.11, "model_p95_ms": null, "saturated": true}], "errors": null})
    .to_string()
}

fn test(iops: u64) -> String {
    let interval = |at: u64| {
        json!({"length_s": 1, "requests": iops + at * 7 % 5, "bytes": iops << 12,
        "latency_mean_us": 100, "latency_max_us": 300})
    };
    let intervals: Vec<_> = (0..60).map(interval).collect();
    json!({"schema": 1, "plimsoll": "1", "jobs": [{"name": "reads", "intervals": intervals}]}).to_string()
}

fn comparison() -> String {
    let side = |path: &str, iops| vec![crate::compare::Source { path: path.into(), text: test(iops) }];
    let report = crate::compare::compare(&[side("a.json", 1000), side("b.json", 900)], &Default::default());
    serde_json::to_string(&report.unwrap()).unwrap()
}

#[test]
fn results_are_recognised_by_their_content() {
    let card = crate::instance::Card::new("db-7", crate::instance::Origin::measured("2026-01-02")).to_json();
    let cases: [(&str, Kind, &[&str]); 4] = [
        (
            &sim(),
            Kind::Sim,
            &["who gets &lt;what&gt;", "1.988", "at most 3", "FAIL", "66 %", "shares, seed 7, shards=2"],
        ),
        (&surface(), Kind::Surface, &["0.11 ms", "saturated", "n/a", "<svg "]),
        (&comparison(), Kind::Compare, &["a.json", "-10.00 %", "worse", "A is better", "*** below 0.0001"]),
        (&card, Kind::Card, &["Summary", "Facts"]),
    ];
    for (text, kind, parts) in cases {
        let shown = read_text("anything.txt", text).unwrap();
        assert_eq!(shown.kind, kind);
        let page = page("a report", &[shown]);
        for part in parts {
            assert!(page.contains(part), "{kind:?}, {part}: {page}");
        }
    }
}

#[test]
fn what_is_not_known_is_named_with_what_to_do() {
    let cases = [
        ("", "the file is empty: expected JSON that"),
        ("\n \n", "expected"),
        ("{\"a\": 1}", "this JSON is no result that is known"),
        ("{\"axes\": [], \"points\": []}", "this sweep is damaged: missing field"),
        ("{\"schema\": 1, \"comparisons\": []}", "stat --compare A B --page"),
        ("{\"spans\": 1, \"groups\": []}", "give the trace itself"),
        ("{\"schema\": 9, \"runs\": [], \"seeds\": []}", "schema 9, known is up to 1"),
        ("{\"schema\": 1, \"runs\": [{}], \"seeds\": []}", "damaged"),
        ("{\"schema\": 1, \"mountpoint\": \"/\", \"read_block\": 1}", "schema 1, and this version of plimsoll knows 2"),
        ("{\"plimsoll\": 1, \"jobs\": [], \"by_shard\": []}", "has no `schema`"),
        ("{\"sides\": [], \"comparisons\": 3}", "damaged"),
        ("{\"record\": \"plimsoll tune\"}\n", "thing:1: "),
        ("PLIMTRCE\0\0", "thing: "),
        ("no\0thing", "expected JSON that"),
        ("what is this\n", "expected"),
    ];
    for (text, expected) in cases {
        let error = read_text("thing", text).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("thing"), "{text}: {error}");
        assert_eq!(error.matches("/thing").count(), 1, "the file is named once: {error}");
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(read(directory.path()).unwrap_err().to_string().contains("it is a directory"));
    assert!(read(&directory.path().join("none")).unwrap_err().to_string().contains("cannot read it"));
}

#[test]
fn several_results_are_parts_beneath_a_table_of_them() {
    let results = [read_text("a.json", &sim()).unwrap(), read_text("b.json", &surface()).unwrap()];
    let page = page("both", &results);
    assert_eq!(page.matches("<h2 ").count(), 3);
    assert!(page.contains("What could not be read") && page.contains("interrupted"), "{page}");
    assert!(page.contains("surface of a simulated disk"));
}
