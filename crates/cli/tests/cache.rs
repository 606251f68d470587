//! `plimsoll cache` as people and scripts meet it: a cache on three files is created, loaded, watched, extended.
//!
//! A machine whose file system or kernel cannot run a cache skips the stories with one line saying so.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

fn plimsoll(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("cache").args(arguments).current_dir(directory).stdin(Stdio::null());
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    plimsoll(directory, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A directory with a cache of three files; `None`, with a line, where this machine cannot run one.
fn world() -> Option<TempDir> {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let arguments = ["create", "c.yaml", "--size", "32MiB", "--slab-size", "1MiB", "d0", "d1", "d2"];
    let made = run(directory.path(), &arguments);
    if made.status.code() == Some(3) && !text(&made.stderr).contains("panicked") {
        println!("skipped: {}", text(&made.stderr).trim());
        return None;
    }
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    Some(directory)
}

#[test]
fn what_is_there_is_not_overwritten() {
    let Some(world) = world() else { return };
    let cases: [(&[&str], i32, &str); 9] = [
        (&["create", "c.yaml", "--size", "32MiB", "new"], 2, "exists"),
        (&["create", "e.yaml", "d0"], 2, "--force"),
        (&["create", "e.yaml", "nowhere"], 2, "--size"),
        (&["create", "e.yaml", "--size", "32MiB", "--slab-size", "3MiB", "new"], 2, "power of two"),
        (&["create", "e.yaml", "--size", "32MiB", "--encrypt", "nokey", "new"], 2, "nokey"),
        (&["add", "c.yaml", "d1"], 2, "already"),
        (&["expand", "c.yaml", "elsewhere"], 2, "no disk of this cache"),
        (&["bench", "none.yaml"], 2, "none.yaml"),
        (&["iostat", "c.yaml"], 3, "no process has the cache open"),
    ];
    for (arguments, code, fragment) in cases {
        let output = run(world.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(fragment), "{arguments:?}: {error}");
        assert!(!world.path().join("new").exists() && !world.path().join("e.yaml").exists(), "{arguments:?}");
    }
}

#[test]
fn a_bench_verifies_every_byte() {
    let Some(world) = world() else { return };
    let arguments = ["bench", "c.yaml", "--read-pct", "70", "--keys", "500", "--zipf", "0.9", "--concurrency", "8"];
    let more = ["--duration", "1s", "--verify", "--format", "json", "--page", "p.html"];
    let report = json(&run(world.path(), &[&arguments[..], &more[..]].concat()));
    assert!(report["hits"].as_u64() > Some(0) && report["inserts"].as_u64() > Some(0), "{report}");
    assert_eq!(report["wrong_hits"], 0, "{report}");
    assert_eq!(report["series"].as_array().unwrap().len(), 3);
    assert!(world.path().join("p.html").exists());
    assert!(!world.path().join("c.yaml.live.json").exists(), "nobody has it open any more");
}

#[test]
fn a_cache_in_use_is_watched_and_extended() {
    let Some(world) = world() else { return };
    let arguments = ["bench", "c.yaml", "--rate", "50", "--duration", "60s", "--format", "json"];
    let mut busy = plimsoll(world.path(), &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    while !world.path().join("c.yaml.live.json").exists() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it publishes nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = json(&run(world.path(), &["status", "c.yaml", "--format", "json"]));
    assert_eq!(status["disks"].as_array().unwrap().len(), 3, "{status}");
    let table = run(world.path(), &["iostat", "c.yaml", "-a", "-d", "-l", "1", "2"]);
    assert_eq!(table.status.code(), Some(0), "{}", text(&table.stderr));
    assert!(text(&table.stdout).lines().all(|line| line.chars().count() <= 100), "{}", text(&table.stdout));
    let locked = run(world.path(), &["bench", "c.yaml", "--duration", "1s"]);
    assert_eq!(locked.status.code(), Some(3), "{}", text(&locked.stderr));
    let added = run(world.path(), &["add", "c.yaml", "--size", "32MiB", "d3"]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    let status = json(&run(world.path(), &["status", "c.yaml", "--format", "json"]));
    assert_eq!(status["disks"].as_array().unwrap().len(), 4, "{status}");
    let interrupted =
        rustix::process::kill_process(rustix::process::Pid::from_child(&busy), rustix::process::Signal::INT);
    interrupted.unwrap();
    assert_eq!(busy.wait().unwrap().code(), Some(130));
}

#[test]
fn a_closed_cache_is_changed_too() {
    let Some(world) = world() else { return };
    let steps: [&[&str]; 3] = [
        &["add", "c.yaml", "--size", "32MiB", "d3"],
        &["expand", "c.yaml", "d0", "--size", "64MiB"],
        &["remove", "c.yaml", "d1"],
    ];
    for arguments in steps {
        let output = run(world.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    let file = std::fs::read_to_string(world.path().join("c.yaml")).unwrap();
    assert!(file.contains("path: d3") && file.contains("size: 64MiB") && !file.contains("path: d1"), "{file}");
    let report = json(&run(world.path(), &["bench", "c.yaml", "--duration", "200ms", "--format", "json"]));
    assert_eq!(report["series"].as_array().unwrap().len(), 3, "{report}");
}
