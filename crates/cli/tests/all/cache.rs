//! `plimsoll cache` as people and scripts meet it: a cache on three files is created, loaded, watched, extended.
//!
//! Where the build lies on a file system without direct I/O, the stories are skipped with one line saying so.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::{World, until};

/// A directory with a cache of three files; `None`, with a line, where its file system has no direct I/O.
fn world() -> Option<World> {
    let world = World::new(&[]);
    if !crate::skip::has_direct_io(world.path()) {
        return None;
    }
    world.line("cache create c.yaml --size 32MiB --slab-size 1MiB d0 d1 d2").done();
    Some(world)
}

/// Starts a bench that goes on, and waits until the cache is open.
fn busy(world: &World, flags: &str) -> Child {
    let line = format!("cache bench c.yaml {flags} --duration 60s");
    let mut command = world.command(&line.split(' ').collect::<Vec<_>>());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it publishes", || world.path().join("c.yaml.live.json").exists().then_some(()));
    child
}

fn status(world: &World) -> Value {
    world.line("cache status c.yaml --format json").done().json()
}

fn disks(world: &World) -> usize {
    status(world)["disks"].as_array().unwrap().len()
}

fn kill(mut busy: Child) {
    busy.kill().unwrap();
    busy.wait().unwrap();
}

#[test]
fn what_is_there_is_not_overwritten() {
    let Some(world) = world() else { return };
    let before = std::fs::read(world.path().join("c.yaml")).unwrap();
    for (name, len_bytes) in [("empty", 0), ("short", 300)] {
        std::fs::write(world.path().join(name), vec![7; len_bytes]).unwrap();
    }
    let cases = [
        ("create c.yaml --size 32MiB new", 2, "exists"),
        ("create c.yaml --destructive d0", 2, "exists"),
        ("create e.yaml d0", 2, "--destructive"),
        ("create e.yaml nowhere", 2, "--size"),
        ("create e.yaml empty", 2, "empty: 0 bytes are too few: at least 9437184 are needed"),
        ("create e.yaml short", 2, "short: 300 bytes are too few"),
        ("add c.yaml short", 2, "short: 300 bytes are too few"),
        ("create e.yaml --size 32MiB --slab-size 3MiB new", 2, "power of two"),
        ("create e.yaml --size 32MiB --encrypt nokey new", 2, "nokey"),
        ("add c.yaml d1", 2, "already"),
        ("expand c.yaml elsewhere", 2, "no disk of this cache"),
        ("bench none.yaml", 2, "none.yaml"),
        ("iostat c.yaml", 3, "no process has the cache open (`cache bench` opens it)"),
    ];
    for (arguments, code, fragment) in cases {
        world.line(&format!("cache {arguments}")).assert_refused(code, &[fragment]);
        assert!(!world.path().join("new").exists() && !world.path().join("e.yaml").exists(), "{arguments}");
    }
    assert_eq!(std::fs::read(world.path().join("c.yaml")).unwrap(), before);
    world.line("cache check c.yaml").done();
}

#[test]
fn a_closed_cache_is_looked_at() {
    let Some(world) = world() else { return };
    world.line("cache bench c.yaml --duration 300ms --block-size 20k").done();
    let checked = world.line("cache check c.yaml --format json").done().json();
    assert_eq!((&checked["is_sound"], &checked["disks"]), (&true.into(), &3.into()), "{checked}");
    assert!(checked["blocks"].as_u64() > Some(0), "{checked}");
    let status = status(&world);
    assert_eq!((&status["is_open"], &status["blocks"]), (&false.into(), &checked["blocks"]), "{status}");
    let slabs = world.line("cache slabs c.yaml --format json").done().json();
    let allocated = slabs["rows"].as_array().unwrap().iter().map(|row| row["allocated_bytes"].as_u64().unwrap());
    assert!(allocated.sum::<u64>() >= checked["bytes"].as_u64().unwrap(), "{slabs}");
    let order = slabs["order"].as_array().unwrap();
    let figure = |of: &Value, key: &str| of[key].as_u64().unwrap();
    assert!(
        order.iter().all(|it| figure(it, "allocated_bytes") + figure(it, "free_bytes") == figure(&slabs, "slab_bytes"))
    );
    let keys: Vec<_> = order.iter().map(|it| (figure(it, "max_size_bytes"), figure(it, "allocated_bytes"))).collect();
    assert!(keys.is_sorted() && keys.iter().any(|key| key.1 > 0) && slabs["placement"] == "load", "{slabs}");
    let csv = world.line("cache slabs c.yaml --order --format csv");
    assert_eq!(csv.out.lines().count(), order.len() + 1);
    for arguments in ["slabs -v", "slabs --order", "check", "status"] {
        world.line(&format!("cache {arguments} c.yaml")).done().assert_fits();
    }
    // Without one of its disks, nobody can say that all is well.
    std::fs::rename(world.path().join("d2"), world.path().join("elsewhere")).unwrap();
    let missing = world.line("cache check c.yaml");
    assert_eq!(missing.code, Some(1), "{}", missing.err);
    assert!(missing.out.contains("disk 2"), "{}", missing.out);
    std::fs::rename(world.path().join("elsewhere"), world.path().join("d2")).unwrap();
    world.line("cache check c.yaml").done();
}

/// Flips a bit of each block of 4 KiB from 1 MiB on: whatever lies there, a checksum sees it.
#[test]
fn a_check_finds_damage() {
    use std::os::unix::fs::FileExt as _;
    let Some(world) = world() else { return };
    world.line("cache bench c.yaml --duration 300ms").done();
    let disk = std::fs::File::options().read(true).write(true).open(world.path().join("d1")).unwrap();
    for offset in ((1 << 20)..(32 << 20)).step_by(4096) {
        let mut byte = [0];
        disk.read_exact_at(&mut byte, offset).unwrap();
        disk.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }
    let damaged = world.line("cache check c.yaml");
    assert_eq!(damaged.code, Some(1), "{}{}", damaged.out, damaged.err);
    assert!(damaged.out.starts_with("not sound: "), "{}", damaged.out);
}

#[test]
fn a_killed_cache_is_sound() {
    let Some(world) = world() else { return };
    let busy = busy(&world, "--checkpoint-interval 20ms --concurrency 16");
    std::thread::sleep(Duration::from_millis(200));
    kill(busy);
    let checked = world.line("cache check c.yaml --format json").done().json();
    assert_eq!(checked["is_sound"], true, "{checked}");
}

#[test]
fn disks_that_are_gone_for_good_are_forgotten() {
    let Some(world) = world() else { return };
    let left = |expected: usize| {
        assert_eq!(disks(&world), expected);
        world.line("cache check c.yaml").done();
    };
    std::fs::remove_file(world.path().join("d0")).unwrap();
    // As an instance store comes back.
    let blank = std::fs::File::create(world.path().join("d1")).unwrap();
    blank.set_len(64 << 20).unwrap();

    let one = world.line("cache remove c.yaml d0");
    assert_eq!(one.code, Some(2), "{}{}", one.out, one.err);
    assert!(one.err.contains("the cache misses disks 0, 1"), "{}", one.err);
    let both = world.line("cache remove c.yaml d0 d1").done();
    assert_eq!(both.out, "d0: removed\nd1: removed\n");
    left(1);
    world.line("cache add c.yaml d1").done();
    left(2);
}

#[test]
fn a_disk_that_is_gone_for_good_is_forgotten_while_the_cache_runs() {
    let Some(world) = world() else { return };
    std::fs::remove_file(world.path().join("d1")).unwrap();
    let busy = busy(&world, "--rate 50");
    world.line("cache remove c.yaml d1").done();
    let file = || std::fs::read_to_string(world.path().join("c.yaml")).unwrap();
    until("it is no more in the file", || (!file().contains("d1")).then_some(()));
    assert_eq!(disks(&world), 2);
    kill(busy);
}

/// An entry that somebody has deleted by mistake is told; the disk stays.
#[test]
fn only_what_is_to_be_removed_is_removed() {
    let Some(world) = world() else { return };
    let file = world.path().join("c.yaml");
    let busy = busy(&world, "--rate 50");
    let whole = std::fs::read_to_string(&file).unwrap();
    let short = whole.split("    - path: d2").next().unwrap();
    std::fs::write(&file, short).unwrap();
    let problems = || status(&world)["problems"].to_string();
    until("it is told", || problems().contains("state: removing").then_some(()));
    assert_eq!(disks(&world), 3);
    std::fs::write(&file, &whole).unwrap();
    world.line("cache remove c.yaml d2").done();
    until("it is removed", || (!std::fs::read_to_string(&file).unwrap().contains("d2")).then_some(()));
    kill(busy);
}

#[test]
fn a_bench_verifies_every_byte() {
    let Some(world) = world() else { return };
    let arguments =
        ["cache", "bench", "c.yaml", "--read-pct", "70", "--keys", "500", "--zipf", "0.9", "--concurrency", "8"];
    let more = ["--duration", "1s", "--verify", "--format", "json", "--page", "p.html"];
    let report = world.run(&[&arguments[..], &more[..]].concat()).done().json();
    assert!(report["hits"].as_u64() > Some(0) && report["inserts"].as_u64() > Some(0), "{report}");
    assert_eq!(report["wrong_hits"], 0, "{report}");
    assert_eq!(report["series"].as_array().unwrap().len(), 3);
    assert!(world.path().join("p.html").exists());
    assert!(!world.path().join("c.yaml.live.json").exists(), "nobody has it open any more");
}

#[test]
fn a_cache_in_use_is_watched_and_extended() {
    let Some(world) = world() else { return };
    let mut busy = busy(&world, "--rate 50");
    assert_eq!(disks(&world), 3);
    world.line("cache iostat c.yaml -a -d -l 1 2").done().assert_fits();
    let locked = world.line("cache bench c.yaml --duration 1s");
    assert_eq!(locked.code, Some(3), "{}", locked.err);
    world.line("cache add c.yaml --size 32MiB d3").done();
    assert_eq!(disks(&world), 4);
    kill_process(Pid::from_child(&busy), Signal::INT).unwrap();
    assert_eq!(busy.wait().unwrap().code(), Some(130));
}

#[test]
fn a_closed_cache_is_changed_too() {
    let Some(world) = world() else { return };
    for arguments in ["add c.yaml --size 32MiB d3", "expand c.yaml d0 --size 64MiB", "remove c.yaml d1"] {
        world.line(&format!("cache {arguments}")).done();
    }
    let file = std::fs::read_to_string(world.path().join("c.yaml")).unwrap();
    assert!(file.contains("path: d3") && file.contains("size: 64MiB") && !file.contains("path: d1"), "{file}");
    let report = world.line("cache bench c.yaml --duration 200ms --format json").done().json();
    assert_eq!(report["series"].as_array().unwrap().len(), 3, "{report}");
}
