//! docs/misread-util.md, docs/rotating-hot-disk.md and docs/find-the-limiter.md: their commands are run, and say what
//! stands below them.

use std::path::{Path, PathBuf};

use crate::skip::skip;
use crate::world::World;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

pub(crate) fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A directory that has the inputs of the pages where the root of the source has them.
fn world() -> World {
    let world = World::new(&[]);
    let examples = world.path().join("docs/examples");
    std::fs::create_dir_all(&examples).expect("a directory can be made");
    for name in ["iostat-one-writer.txt", "iostat-two-writers.txt", "rotating-before.rec", "rotating-after.rec"] {
        std::fs::copy(docs().join("examples").join(name), examples.join(name)).expect("a file can be copied");
    }
    world
}

/// Runs the commands of a page: how many there were. A machine that is busy makes a curve that is not flat, so a
/// verdict on this machine's own runs may be another one; it never makes a full disk of nothing.
fn follow(page: &str, world: &World) -> usize {
    let page = std::fs::read_to_string(docs().join(page)).expect("the page is there");
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|part| part.split_once('\n'));
    let (mut said, mut commands, mut is_real) = (String::new(), 0, false);
    for (language, text) in blocks {
        match language {
            "yaml" => {
                let name = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("the name of a file");
                std::fs::write(world.path().join(name), text).expect("a file can be written");
            }
            "console" => {
                said.clear();
                is_real |= text.contains("plimsoll test");
                for line in text.lines() {
                    let arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
                    let ended = world.run(&arguments);
                    assert!(matches!(ended.code, Some(0 | 1)), "{line}: {ended:#?}");
                    ended.assert_fits();
                    said.push_str(&words(&ended.out));
                    commands += 1;
                }
            }
            "text" => {
                for line in text.lines().filter(|line| !said.contains(*line)) {
                    let is_noise = is_real && line.starts_with("Verdict:") && said.contains("Verdict: ");
                    assert!(is_noise && !said.contains("Verdict: saturated"), "no `{line}` in {said:.20000}");
                    skip(format_args!("the machine is too busy for `{line}`"));
                }
            }
            other => panic!("a block in `{other}`"),
        }
    }
    commands
}

#[test]
fn the_misread_util_is_explained() {
    assert_eq!(follow("misread-util.md", &world()), 5);
}

#[test]
fn the_walk_through_finds_the_limiter() {
    assert_eq!(follow("find-the-limiter.md", &World::new(&[])), 8);
}

#[test]
fn the_rotating_hot_disk_is_shown() {
    let world = world();
    assert_eq!(follow("rotating-hot-disk.md", &world), 4);
    let page = std::fs::read_to_string(world.path().join("before.html")).expect("the page was written");
    assert!(page.contains("cache: part of each device of the bytes moved"));
}

/// The files have the sums that the page names, and the remark is made before and not after.
#[test]
fn the_recordings_are_those_of_the_case() {
    let world = world();
    for (name, total_gb, rotates) in [("rotating-before.rec", 218.54, true), ("rotating-after.rec", 480.0, false)] {
        let path = format!("docs/examples/{name}");
        let group = "--group=cache=nvme1n1,nvme2n1,nvme3n1";
        let ended = world.run(&["stat", "--from", &path, group, "--format", "json"]);
        let document = ended.json();
        let intervals = document["sysstat"]["hosts"][0]["statistics"].as_array().expect("intervals");
        assert_eq!(intervals.len(), 180);
        let disks = intervals.iter().flat_map(|interval| interval["disk"].as_array().expect("disks"));
        let kib: f64 = disks.filter_map(|disk| disk["wkB/s"].as_f64()).sum();
        let gb = kib * 1024.0 * 10.0 / 1e9;
        assert!((gb - total_gb).abs() < 0.01, "{name}: {gb} GB");
        assert_eq!(ended.out.contains("hot-spot-rotation"), rotates, "{name}");
    }
}

/// Every recording of docs and tests: what `stat --from` says of a device, and what `stat --compare` of the recording
/// with itself makes of it.
#[test]
fn stat_and_compare_never_contradict_each_other_on_a_recording() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../observe/tests/stat_samples");
    let files = [docs().join("examples"), samples].into_iter().flat_map(|directory| {
        std::fs::read_dir(directory).expect("the directory is there").map(|entry| entry.expect("an entry").path())
    });
    let (world, mut compared) = (World::new(&[]), 0);
    for file in files {
        let path = file.to_str().expect("a name in UTF-8");
        let both = world.run(&["stat", "--compare", path, path, "--format", "json"]);
        let alone = world.run(&["stat", "--from", path, "--format", "json"]);
        // A single reading cannot be compared, and some files are no recordings.
        if !matches!((alone.code, both.code), (Some(0 | 1), Some(0 | 1))) {
            continue;
        }
        let (alone, both) = (alone.json(), both.json());
        let intervals = alone["sysstat"]["hosts"][0]["statistics"].as_array().expect("intervals");
        for comparison in both["comparisons"].as_array().expect("comparisons") {
            let disks = intervals.iter().flat_map(|interval| interval["disk"].as_array().expect("disks"));
            let of_device = disks.filter(|disk| disk["disk_device"] == comparison["device"]);
            let verdicts: Vec<&str> = of_device.filter_map(|disk| disk["verdict"].as_str()).collect();
            let judgement = |code: &str| {
                let hypotheses = comparison["hypotheses"].as_array().expect("hypotheses");
                let found = hypotheses.iter().find(|hypothesis| hypothesis["code"] == code).expect("a hypothesis");
                found["judgement"].as_str().expect("a word").to_owned()
            };

            let told =
                format!("{path}: {}: {verdicts:?}, saturated is {}", comparison["device"], judgement("saturated"));
            assert!(!verdicts.is_empty(), "{told}");
            let is_fine = |verdict: &&str| matches!(*verdict, "idle" | "ok" | "busy-but-free");
            if verdicts.iter().all(is_fine) {
                assert!(judgement("saturated") != "likely" && judgement("throttled") != "likely", "{told}");
            }
            if verdicts.iter().all(|verdict| *verdict == "saturated") {
                assert!(!matches!(judgement("saturated").as_str(), "refuted" | "unlikely"), "{told}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 30, "only {compared} devices were compared");
}
