//! Results as fio's JSON: fio's keys, figures that agree with each other, and a program that reads fio's.

use std::path::Path;
use std::process::Command;

use plimsoll::backend::choose::BackendKind;
use plimsoll_files::fio::{self, FioFile};
use plimsoll_measure::fio_json::{FioJson, to_json};
use plimsoll_measure::load::Control;
use plimsoll_measure::test::{Storage, TestOptions, run};
use serde_json::Value;

use crate::skip::skip;

const TEXT: &str = "
[global]
ioengine=null
direct=1
norandommap
size=1m
runtime=1

[reads]
rw=randread
iodepth=4
numjobs=2
group_reporting

[mix]
new_group
rw=randrw
rwmixread=75
bs=8k
fsync=8
iodepth=2
";

/// Runs the jobs until they have moved their bytes, on a backend that does nothing.
fn result(file: &FioFile, bins: bool) -> Result<(Value, String), Box<dyn std::error::Error>> {
    let options = TestOptions {
        shards: 2,
        backend: Some(BackendKind::Null),
        duration_ns: u64::MAX / 4,
        ..TestOptions::new(file.jobs_for(2), Storage::of(Path::new("."))?)
    };
    let result = run(&options, &Control::default(), &mut |_, _| {})?;
    let text = to_json(&result, &FioJson { file: Some(file), bins, unix_ms: 1_646_873_555_274 });
    Ok((serde_json::from_str(&text)?, text))
}

#[test]
fn entries_are_jobs_or_groups() {
    let file = fio::parse("t.fio", TEXT).unwrap();
    let (json, _) = result(&file, false).unwrap();
    assert_eq!(json["time"], "Thu Mar 10 00:52:35 2022");
    assert_eq!(json["global options"]["runtime"], "1");
    let jobs = json["jobs"].as_array().unwrap();
    let names: Vec<_> = jobs.iter().map(|job| (job["jobname"].as_str().unwrap(), job["groupid"].as_u64())).collect();
    assert_eq!(names, [("reads", Some(0)), ("mix", Some(1))]);
    let (reads, mix) = (&jobs[0], &jobs[1]);
    assert_eq!((&reads["job options"]["numjobs"], &mix["job options"]["bs"]), (&"2".into(), &"8k".into()));
    for side in [&reads["read"], &mix["read"], &mix["write"]] {
        let (count, bytes) = (side["total_ios"].as_u64().unwrap(), side["io_bytes"].as_u64().unwrap());
        assert!(count > 0 && side["lat_ns"]["N"] == count, "{side}");
        assert!(side["clat_ns"]["percentile"]["99.990000"].as_u64().is_some(), "{side}");
        assert_eq!(bytes % count, 0);
        assert_eq!(side["io_kbytes"], bytes / 1024);
        let (iops, bw) = (side["iops"].as_f64().unwrap(), side["bw_bytes"].as_f64().unwrap());
        assert!((bw / iops - (bytes / count) as f64).abs() < 1.0, "{side}");
        assert!(side["clat_ns"].get("bins").is_none());
    }
    // Reads have their classes for themselves: time in the queue is known.
    assert!(reads["read"]["slat_ns"]["N"].as_u64() > Some(0));
    assert_eq!(mix["read"]["slat_ns"]["N"], 0);
    assert_eq!((&reads["write"]["total_ios"], &reads["trim"]["iops"]), (&0.into(), &0.0.into()));
    let shares = [&reads["latency_ns"], &reads["latency_us"], &reads["latency_ms"]];
    let sum: f64 = shares.iter().flat_map(|s| s.as_object().unwrap().values()).filter_map(Value::as_f64).sum();
    assert!((sum - 100.0).abs() < 1e-6, "{sum}");
    assert!(mix["sync"]["total_ios"].as_u64() > Some(0), "{}", mix["sync"]);
}

#[test]
fn a_job_that_verifies_shows_what_it_read_back_as_reads() {
    let text = "[v]\nioengine=io_uring\ndirect=1\nrw=randwrite\nverify=md5\nsize=64k\niodepth=4\n";
    let file = fio::parse("t.fio", text).unwrap();
    let options = TestOptions {
        backend: Some(BackendKind::Memory),
        duration_ns: u64::MAX / 4,
        ..TestOptions::new(file.jobs_for(1), Storage::of(Path::new(".")).unwrap())
    };
    let result = run(&options, &Control::default(), &mut |_, _| {}).unwrap();
    let text = to_json(&result, &FioJson { file: Some(&file), bins: false, unix_ms: 0 });
    let json: Value = serde_json::from_str(&text).unwrap();
    for side in ["read", "write"].map(|side| &json["jobs"][0][side]) {
        assert_eq!((&side["total_ios"], &side["io_bytes"]), (&16.into(), &65_536.into()), "each block once: {side}");
        assert!(side["iops"].as_f64() > Some(0.0) && side["lat_ns"]["N"] == 16, "{side}");
    }
}

/// All keys, those of lists and of nested objects included; objects whose keys are figures count as one.
fn keys(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}/{key}");
                let is_open = ["job options", "global options", "bins"].contains(&key.as_str());
                found.push(path.clone());
                if !is_open {
                    keys(value, &path, found);
                }
            }
        }
        Value::Array(items) => items.iter().take(1).for_each(|item| keys(item, path, found)),
        _ => {}
    }
}

#[test]
fn the_keys_are_those_that_fio_prints() {
    let Ok(fio) = Command::new("fio")
        .args(["--name=a", "--ioengine=null", "--size=1m", "--rw=randrw", "--fsync=8", "--output-format=json+"])
        .output()
    else {
        skip("there is no fio here");
        return;
    };
    let text = String::from_utf8_lossy(&fio.stdout);
    let Ok(theirs) = serde_json::from_str::<Value>(text.get(text.find('{').unwrap_or(0)..).unwrap_or("")) else {
        skip("this fio cannot run its null engine here");
        return;
    };
    let file =
        fio::parse("t.fio", "[a]\nioengine=null\ndirect=1\nsize=1m\nrw=randrw\nfsync=8\nbs=4k\niodepth=4\n").unwrap();
    let (ours, _) = result(&file, true).unwrap();
    let (mut their_keys, mut our_keys) = (Vec::new(), Vec::new());
    keys(&theirs, "", &mut their_keys);
    keys(&ours, "", &mut our_keys);
    let missing: Vec<_> = their_keys.iter().filter(|key| !our_keys.contains(key)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
}

#[test]
fn a_program_that_reads_fio_reads_this() {
    let file = fio::parse("t.fio", TEXT).unwrap();
    let (json, text) = result(&file, true).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (source, stub) = (directory.path().join("result.json"), directory.path().join("bins.csv"));
    std::fs::write(&source, text).unwrap();
    let convert = |more: &[&str]| Command::new("fio_jsonplus_clat2csv").args([&source, &stub]).args(more).output();
    match convert(&[]) {
        Ok(output) if output.status.success() => {
            let table = std::fs::read_to_string(directory.path().join("bins_job0.csv")).unwrap();
            let counts = |column: &str| {
                let at = table.lines().next().unwrap().split(", ").position(|name| name == column).unwrap();
                let cells =
                    table.lines().skip(1).filter_map(move |line| line.split(", ").nth(at)?.trim().parse::<u64>().ok());
                cells.sum::<u64>()
            };
            assert_eq!(counts("read_lat_ns_count"), json["jobs"][0]["read"]["total_ios"].as_u64().unwrap());
            let check = convert(&["--validate"]).unwrap();
            let said = String::from_utf8_lossy(&check.stdout);
            assert!(check.status.success() && said.matches("validated").count() == 2, "{said}");
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("No module named"), "{said}");
            skip("fio_jsonplus_clat2csv lacks a module of Python here");
        }
        Err(error) => skip(format_args!("fio_jsonplus_clat2csv: {error}")),
    }
}
