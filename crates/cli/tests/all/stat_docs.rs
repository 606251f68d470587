//! docs/misread-util.md and docs/rotating-hot-disk.md: their commands are run, and say what stands below them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::world::World;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn words(text: &str) -> String {
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

/// Runs the commands of a page: how many there were.
fn follow(page: &str, world: &World) -> usize {
    let page = std::fs::read_to_string(docs().join(page)).expect("the page is there");
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|part| part.split_once('\n'));
    let (mut said, mut commands) = (String::new(), 0);
    for (language, text) in blocks {
        match language {
            "yaml" => {
                let name = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("the name of a file");
                std::fs::write(world.path().join(name), text).expect("a file can be written");
            }
            "console" => {
                said.clear();
                for line in text.lines() {
                    let arguments: Vec<&str> = line.split_whitespace().skip(1).collect();
                    let ended = world.run(&arguments);
                    assert!(matches!(ended.code, Some(0 | 1)), "{line}: {:?} {}", ended.code, ended.err);
                    let is_wide = |line: &&str| line.chars().count() > 100;
                    assert_eq!(ended.out.lines().find(is_wide), None, "{line}");
                    said.push_str(&words(&ended.out));
                    commands += 1;
                }
            }
            "text" => {
                for line in text.lines() {
                    assert!(said.contains(line), "no `{line}` in {said:.20000}");
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
        let document: Value = serde_json::from_str(&ended.out).expect("the output is JSON");
        let intervals = document["sysstat"]["hosts"][0]["statistics"].as_array().expect("intervals");
        assert_eq!(intervals.len(), 180);
        let disks = intervals.iter().flat_map(|interval| interval["disk"].as_array().expect("disks"));
        let kib: f64 = disks.filter_map(|disk| disk["wkB/s"].as_f64()).sum();
        let gb = kib * 1024.0 * 10.0 / 1e9;
        assert!((gb - total_gb).abs() < 0.01, "{name}: {gb} GB");
        assert_eq!(ended.out.contains("hot-spot-rotation"), rotates, "{name}");
    }
}
