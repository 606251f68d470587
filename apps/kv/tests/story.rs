//! A story on any disk: told to its end, and nothing left behind. Its figures are the business of the guide.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A disk that a file describes, and stories on it.
struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(stage.disk()).unwrap();
        stage.describe(&stage.disk());
        stage
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn svg(&self) -> PathBuf {
        self.directory.path().join("story.svg")
    }

    fn describe(&self, disk: &Path) {
        let figures = "read_iops: 20000\n    read_bandwidth: 250M\n    write_iops: 20000\n    write_bandwidth: 250M\n";
        let text = format!("disks:\n  - mountpoint: {}\n    {figures}", disk.display());
        std::fs::write(self.directory.path().join("io-properties.yaml"), text).unwrap();
    }

    fn command(&self, story: &str, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-kv"));
        command.args(["story", story]).arg(self.disk()).arg("--svg").arg(self.svg()).args(flags);
        command.arg("--io-properties").arg(self.directory.path().join("io-properties.yaml"));
        command.args(["--length", "1s", "--keys", "300", "--memory", "16MiB"]);
        command
    }

    fn tell(&self, story: &str, flags: &[&str]) -> Output {
        let told = self.command(story, flags).output().unwrap();
        self.assert_is_empty();
        told
    }

    fn assert_is_empty(&self) {
        assert_eq!(std::fs::read_dir(self.disk()).unwrap().count(), 0, "the scratch directory is still there");
    }

    /// Tells a story that ends well, and returns what it printed.
    fn tell_all(&self, story: &str, flags: &[&str]) -> String {
        let told = self.tell(story, flags);
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        assert!(std::fs::read_to_string(self.svg()).unwrap().starts_with("<svg"));
        String::from_utf8(told.stdout).unwrap()
    }
}

#[test]
fn a_story_is_told_in_three_ways() {
    let stage = Stage::new();
    let out = stage.tell_all("analytics", &[]);
    assert!(out.starts_with("analytics: p99 of reads "), "{out}");
    for way in ["drained", "static shares", "controllers"] {
        for phase in ["alone", "scan", "scan, 400 shares"] {
            assert!(out.contains(&format!("\n{way}, {phase} (")), "{way}, {phase}: {out}");
        }
    }
    assert!(out.contains("keys scanned"), "{out}");

    // A disk that the file does not describe is an error, and nothing is left behind either.
    stage.describe(Path::new("/proc"));
    let refused = stage.tell("burst", &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn ways_take_turns_and_each_round_is_told() {
    let stage = Stage::new();
    let told = stage.tell("burst", &["--rounds", "2", "--format", "json"]);
    let progress = String::from_utf8(told.stderr).unwrap();
    let of_turns: Vec<&str> = progress.lines().filter_map(|line| line.strip_prefix("burst: ")).collect();
    let turns = [
        "drained, round 1 of 2",
        "static shares, round 1 of 2",
        "controllers, round 1 of 2",
        "drained, round 2 of 2",
        "static shares, round 2 of 2",
        "controllers, round 2 of 2",
    ];
    assert!(of_turns.len() == 6 && of_turns.iter().zip(turns).all(|(line, turn)| line.starts_with(turn)), "{progress}");

    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["interrupted"], false);
    for way in told["ways"].as_array().unwrap() {
        let p99_ns = |round: &Value| round["phases"][1]["clients"][0]["p99_ns"].as_u64().unwrap();
        let rounds: Vec<u64> = way["rounds"].as_array().unwrap().iter().map(p99_ns).collect();
        let least = rounds.iter().min().unwrap();
        assert!(rounds.len() == 2 && rounds[way["told"].as_u64().unwrap() as usize] == *least, "{rounds:?}: {way}");
        let sample = &way["rounds"][1]["samples"][0];
        assert!(sample["backlog"]["memory"].is_number() && sample["stalls"].is_number(), "{sample}");
    }
}

#[test]
fn a_story_that_is_interrupted_tells_what_it_has() {
    let stage = Stage::new();
    let mut command = stage.command("burst", &["--rounds", "9"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().starts_with("burst: static shares") {}
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    let ended = child.wait_with_output().unwrap();
    stage.assert_is_empty();
    assert_eq!(ended.status.code(), Some(130), "{said:?}");
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(out.contains("\ndrained, burst (") && !out.contains("\ncontrollers, "), "{out}");
    assert!(said.last().unwrap().ends_with("told is what 1 of 27 turns measured"), "{said:?}");
}

#[test]
fn a_second_server_is_filled_and_repaired_within_its_shares() {
    let told: Value = serde_json::from_str(&Stage::new().tell_all("repair", &["--format", "json"])).unwrap();
    let sentence = told["sentence"].as_str().unwrap();
    assert!((&told["schema"], &told["story"]) == (&2.into(), &"repair".into()), "{told}");
    assert!(sentence.starts_with("repair: p99 of reads ") && sentence.contains("; in \"cleanup\" "), "{sentence}");
    for (way, name) in told["ways"].as_array().unwrap().iter().zip(["drained", "static shares", "controllers"]) {
        assert_eq!(way["way"], name);
        let [round] = &way["rounds"].as_array().unwrap()[..] else { panic!("{way}") };
        let phases = round["phases"].as_array().unwrap();
        let notes: Vec<&str> = phases.iter().filter_map(|phase| phase["note"].as_str()).collect();
        let [streamed, repaired, deleted] = notes[..] else { panic!("{notes:?}") };
        assert_eq!(streamed, "300 keys streamed");
        assert!(repaired.contains(" of 1 ranges differed, "), "{repaired}");
        let deleted: u32 = deleted.split(' ').next().unwrap().parse().unwrap();
        assert!((100..200).contains(&deleted), "about half of 300 keys: {deleted}");
        // All that the second server did is bounded; what was streamed is there.
        let moved = |name: &str| {
            let classes = phases[1]["classes"].as_array().unwrap();
            let class = classes.iter().find(|class| class["class"] == name).unwrap();
            assert_eq!(class["shares"], 20);
            class["bytes_per_s"].as_f64().unwrap()
        };
        assert!(moved("repair-read") > 0.0 && moved("repair-write") > 0.0, "{}", phases[1]);
        assert!(!round["samples"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_cold_cache_is_told_with_three_caches() {
    let stage = Stage::new();
    let told: Value = serde_json::from_str(&stage.tell_all("cold", &["--format", "json"])).unwrap();
    assert!(told["sentence"].as_str().unwrap().starts_with("cold, \"cold\" to \"warm\": "), "{told}");
    for (way, name) in
        told["ways"].as_array().unwrap().iter().zip(["memory alone", "foyer's cache", "plimsoll's cache"])
    {
        assert_eq!(way["way"], name);
        let [cold, _, warm] = &way["rounds"][0]["phases"].as_array().unwrap()[..] else { panic!("{way}") };
        // What is fetched is counted, whatever caches it; all 300 keys fit into any cache.
        let hits = |phase: &Value| phase["hits"].as_f64().unwrap();
        assert!(hits(cold) < 1.0 && hits(warm) >= hits(cold), "{name}: {} and {}", hits(cold), hits(warm));
        let classes = cold["classes"].as_array().unwrap();
        let filled = classes.iter().any(|class| class["class"] == "cache.fill" && class["bytes_per_s"] != 0.0);
        assert_eq!(filled, name == "plimsoll's cache", "{name}: {classes:?}");
    }
    assert!(std::fs::read_to_string(stage.svg()).unwrap().contains("reads that hit"));
}
