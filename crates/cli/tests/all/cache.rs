//! `plimsoll cache` as people and scripts meet it: a cache on three files is created, loaded, watched, extended.
//!
//! Where the build lies on a file system without direct I/O, the stories are skipped with one line saying so.

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

/// A directory with a cache of three files; `None`, with a line, where its file system has no direct I/O.
fn world() -> Option<TempDir> {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !crate::skip::has_direct_io(directory.path()) {
        return None;
    }
    let arguments = ["create", "c.yaml", "--size", "32MiB", "--slab-size", "1MiB", "d0", "d1", "d2"];
    let made = run(directory.path(), &arguments);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    Some(directory)
}

fn wait_until_published(directory: &Path) {
    let begin = Instant::now();
    while !directory.join("c.yaml.live.json").exists() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it publishes nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_there_is_not_overwritten() {
    let Some(world) = world() else { return };
    let before = std::fs::read(world.path().join("c.yaml")).unwrap();
    for (name, len_bytes) in [("empty", 0), ("short", 300)] {
        std::fs::write(world.path().join(name), vec![7; len_bytes]).unwrap();
    }
    let cases: [(&[&str], i32, &str); 13] = [
        (&["create", "c.yaml", "--size", "32MiB", "new"], 2, "exists"),
        (&["create", "c.yaml", "--destructive", "d0"], 2, "exists"),
        (&["create", "e.yaml", "d0"], 2, "--destructive"),
        (&["create", "e.yaml", "nowhere"], 2, "--size"),
        (&["create", "e.yaml", "empty"], 2, "empty: 0 bytes are too few: at least 9437184 are needed"),
        (&["create", "e.yaml", "short"], 2, "short: 300 bytes are too few"),
        (&["add", "c.yaml", "short"], 2, "short: 300 bytes are too few"),
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
    assert_eq!(std::fs::read(world.path().join("c.yaml")).unwrap(), before);
    assert_eq!(run(world.path(), &["check", "c.yaml"]).status.code(), Some(0));
}

#[test]
fn a_closed_cache_is_looked_at() {
    let Some(world) = world() else { return };
    let loaded = run(world.path(), &["bench", "c.yaml", "--duration", "300ms", "--block-size", "20k"]);
    assert_eq!(loaded.status.code(), Some(0), "{}", text(&loaded.stderr));
    let checked = json(&run(world.path(), &["check", "c.yaml", "--format", "json"]));
    assert_eq!((&checked["is_sound"], &checked["disks"]), (&true.into(), &3.into()), "{checked}");
    assert!(checked["blocks"].as_u64() > Some(0), "{checked}");
    let status = json(&run(world.path(), &["status", "c.yaml", "--format", "json"]));
    assert_eq!((&status["is_open"], &status["blocks"]), (&false.into(), &checked["blocks"]), "{status}");
    let slabs = json(&run(world.path(), &["slabs", "c.yaml", "--format", "json"]));
    let allocated = slabs["rows"].as_array().unwrap().iter().map(|row| row["allocated_bytes"].as_u64().unwrap());
    assert!(allocated.sum::<u64>() >= checked["bytes"].as_u64().unwrap(), "{slabs}");
    let order = slabs["order"].as_array().unwrap();
    let figure = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap();
    assert!(
        order.iter().all(|it| figure(it, "allocated_bytes") + figure(it, "free_bytes") == figure(&slabs, "slab_bytes"))
    );
    let keys: Vec<_> = order.iter().map(|it| (figure(it, "max_size_bytes"), figure(it, "allocated_bytes"))).collect();
    assert!(keys.is_sorted() && keys.iter().any(|key| key.1 > 0) && slabs["placement"] == "load", "{slabs}");
    let csv = run(world.path(), &["slabs", "c.yaml", "--order", "--format", "csv"]);
    assert_eq!(text(&csv.stdout).lines().count(), order.len() + 1);
    for arguments in
        [&["slabs", "-v", "c.yaml"][..], &["slabs", "--order", "c.yaml"], &["check", "c.yaml"], &["status", "c.yaml"]]
    {
        let table = run(world.path(), arguments);
        assert_eq!(table.status.code(), Some(0), "{}", text(&table.stderr));
        assert!(text(&table.stdout).lines().all(|line| line.chars().count() <= 100), "{}", text(&table.stdout));
    }
    // Without one of its disks, nobody can say that all is well.
    std::fs::rename(world.path().join("d2"), world.path().join("elsewhere")).unwrap();
    let missing = run(world.path(), &["check", "c.yaml"]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing.stderr));
    assert!(text(&missing.stdout).contains("disk 2"), "{}", text(&missing.stdout));
    std::fs::rename(world.path().join("elsewhere"), world.path().join("d2")).unwrap();
    assert_eq!(run(world.path(), &["check", "c.yaml"]).status.code(), Some(0));
}

/// Flips a bit of each block of 4 KiB from 1 MiB on: whatever lies there, a checksum sees it.
#[test]
fn a_check_finds_damage() {
    use std::os::unix::fs::FileExt as _;
    let Some(world) = world() else { return };
    let loaded = run(world.path(), &["bench", "c.yaml", "--duration", "300ms"]);
    assert_eq!(loaded.status.code(), Some(0), "{}", text(&loaded.stderr));
    let disk = std::fs::File::options().read(true).write(true).open(world.path().join("d1")).unwrap();
    for offset in ((1 << 20)..(32 << 20)).step_by(4096) {
        let mut byte = [0];
        disk.read_exact_at(&mut byte, offset).unwrap();
        disk.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }
    let damaged = run(world.path(), &["check", "c.yaml"]);
    assert_eq!(damaged.status.code(), Some(1), "{}{}", text(&damaged.stdout), text(&damaged.stderr));
    assert!(text(&damaged.stdout).ends_with("not sound\n"), "{}", text(&damaged.stdout));
}

#[test]
fn a_killed_cache_is_sound() {
    let Some(world) = world() else { return };
    let arguments = ["bench", "c.yaml", "--checkpoint-interval", "20ms", "--duration", "60s", "--concurrency", "16"];
    let mut busy = plimsoll(world.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until_published(world.path());
    std::thread::sleep(Duration::from_millis(200));
    busy.kill().unwrap();
    busy.wait().unwrap();
    let checked = json(&run(world.path(), &["check", "c.yaml", "--format", "json"]));
    assert_eq!(checked["is_sound"], true, "{checked}");
}

#[test]
fn disks_that_are_gone_for_good_are_forgotten() {
    let Some(world) = world() else { return };
    let left = |expected: usize| {
        let status = json(&run(world.path(), &["status", "c.yaml", "--format", "json"]));
        assert_eq!(status["disks"].as_array().unwrap().len(), expected, "{status}");
        let checked = run(world.path(), &["check", "c.yaml"]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    };
    std::fs::remove_file(world.path().join("d0")).unwrap();
    // As an instance store comes back.
    let blank = std::fs::File::create(world.path().join("d1")).unwrap();
    blank.set_len(64 << 20).unwrap();

    let one = run(world.path(), &["remove", "c.yaml", "d0"]);
    assert_eq!(one.status.code(), Some(2), "{}{}", text(&one.stdout), text(&one.stderr));
    assert!(text(&one.stderr).contains("the cache misses disks 0, 1"), "{}", text(&one.stderr));
    let both = run(world.path(), &["remove", "c.yaml", "d0", "d1"]);
    assert_eq!(both.status.code(), Some(0), "{}", text(&both.stderr));
    assert_eq!(text(&both.stdout), "d0: removed\nd1: removed\n");
    left(1);
    let added = run(world.path(), &["add", "c.yaml", "d1"]);
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    left(2);
}

#[test]
fn a_disk_that_is_gone_for_good_is_forgotten_while_the_cache_runs() {
    let Some(world) = world() else { return };
    std::fs::remove_file(world.path().join("d1")).unwrap();
    let arguments = ["bench", "c.yaml", "--rate", "50", "--duration", "60s"];
    let mut busy = plimsoll(world.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until_published(world.path());
    let removed = run(world.path(), &["remove", "c.yaml", "d1"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    let begin = Instant::now();
    while std::fs::read_to_string(world.path().join("c.yaml")).unwrap().contains("d1") {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is still in the file");
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = json(&run(world.path(), &["status", "c.yaml", "--format", "json"]));
    assert_eq!(status["disks"].as_array().unwrap().len(), 2, "{status}");
    busy.kill().unwrap();
    busy.wait().unwrap();
}

/// An entry that somebody has deleted by mistake is told; the disk stays.
#[test]
fn only_what_is_to_be_removed_is_removed() {
    let Some(world) = world() else { return };
    let file = world.path().join("c.yaml");
    let arguments = ["bench", "c.yaml", "--rate", "50", "--duration", "60s"];
    let mut busy = plimsoll(world.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until_published(world.path());
    let whole = std::fs::read_to_string(&file).unwrap();
    let short = whole.split("    - path: d2").next().unwrap();
    std::fs::write(&file, short).unwrap();
    let status = || json(&run(world.path(), &["status", "c.yaml", "--format", "json"]));
    let begin = Instant::now();
    while !status()["problems"].to_string().contains("state: removing") {
        assert!(begin.elapsed() < Duration::from_secs(30), "{}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(status()["disks"].as_array().unwrap().len(), 3);
    std::fs::write(&file, &whole).unwrap();
    let removed = run(world.path(), &["remove", "c.yaml", "d2"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    while std::fs::read_to_string(&file).unwrap().contains("d2") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
    busy.kill().unwrap();
    busy.wait().unwrap();
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
    wait_until_published(world.path());
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
