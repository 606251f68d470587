//! Ctrl-C at any time: exit code 130, what there is to show is shown, and no scratch file is left.

use std::cell::RefCell;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::{Pid, Signal, kill_process};

use crate::skip::{has_direct_io, skip};
use crate::world::{Ended, READS, World};

/// Far longer than anything takes after the signal: a run that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(40);
/// Far longer than it takes on the slowest disk until it is time for the signal.
const PATIENCE_BEFORE: Duration = Duration::from_secs(300);

/// Starts a run, sends it `signal` once `is_time` says so, and waits for its end. `None` where it ended before.
fn interrupted(world: &World, arguments: &[&str], signal: Signal, is_time: impl Fn(&Child) -> bool) -> Option<Ended> {
    let mut command = world.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut give_up = Instant::now() + PATIENCE_BEFORE;
    let mut sent = false;
    loop {
        if child.try_wait().expect("it is our child").is_some() {
            break;
        }
        if !sent && is_time(&child) {
            let pid = Pid::from_child(&child);
            sent = kill_process(pid, signal).is_ok();
            give_up = Instant::now() + PATIENCE;
        }
        if Instant::now() > give_up {
            child.kill().expect("it is our child");
            panic!("plimsoll {arguments:?} hangs, signal sent: {sent}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = Ended::of(child.wait_with_output().expect("it has ended"));
    // The probe decides, and says so.
    if !sent && ended.err.contains("refuses O_DIRECT") && !has_direct_io(world.path()) {
        return None;
    }
    assert!(sent, "it ended before its time: {ended:#?}");
    Some(ended)
}

/// Whether the run has had `bytes` from calls that read, whatever they read.
fn has_read(child: &Child, bytes: u64) -> bool {
    let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")).and_then(|read| read.parse::<u64>().ok());
    read.is_some_and(|read| read >= bytes)
}

/// Whether the run has used `ticks` of CPU time (100 a second), in user mode and kernel.
fn has_used_cpu(child: &Child, ticks: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // The name of the program, in parentheses, may hold anything.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let used: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    used >= ticks
}

fn has_data(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0)
}

#[test]
fn a_running_test_prints_its_figures() {
    // By then it has long made its 8 MiB, and reads: in memory that takes CPU time; on a disk, which may be slow, calls.
    for (backend, signal) in [("memory", Signal::INT), ("memory", Signal::TERM), ("pool", Signal::INT)] {
        let is_time =
            |child: &Child| if backend == "memory" { has_used_cpu(child, 30) } else { has_read(child, 2 << 20) };
        let world = World::new(&[("reads.yaml", READS)]);
        let before = world.contents();
        let arguments = ["test", "reads.yaml", "--duration", "600", "--format", "json", "--backend", backend];
        let Some(ended) = interrupted(&world, &arguments, signal, is_time) else { return };
        assert_eq!(ended.code, Some(130), "{ended:#?}");
        assert!(ended.err.contains("interrupted: the figures are of the time until then"), "{ended:#?}");
        let report = ended.json();
        assert_eq!(report["interrupted"], true);
        assert!(report["jobs"][0]["requests"].as_u64().unwrap() > 0, "{ended:#?}");
        assert!(world.contents() == before);
    }
}

#[test]
fn preparing_files_ends_at_once() {
    let world = World::new(&[("reads.yaml", &READS.replace("8MB", "16GB"))]);
    // The command itself refuses files that leave the disk without space.
    let free = rustix::fs::statvfs(world.path()).expect("the directory is there");
    if free.f_bavail * free.f_frsize < 20_000_000_000 {
        skip("files whose preparation lasts for longer than a signal takes need 20 GB of free space");
        return;
    }
    let before = world.contents();
    let scratch = world.path().join("plimsoll-test-0-reads-0");
    let arguments = ["test", "reads.yaml", "--duration", "60"];
    let Some(ended) = interrupted(&world, &arguments, Signal::INT, |_| has_data(&scratch)) else { return };
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert_eq!(ended.out, "");
    assert!(ended.err.contains("interrupted while preparing the files: nothing was measured"), "{ended:#?}");
    assert!(world.contents() == before);
}

/// Starts a run that reads the pipe `pipe`, to which nothing is written, and checks that a signal ends it.
fn ends_at_a_pipe(line: &str) {
    let world = World::new(&[]);
    let pipe = world.path().join("pipe");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &pipe, FileType::Fifo, mode, 0).expect("the directory takes a pipe");
    // As soon as the run has the pipe open, opening the other end without waiting succeeds; nothing is ever written.
    let writer = RefCell::new(None);
    let is_time = |_: &Child| {
        let opened = open(&pipe, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
        *writer.borrow_mut() = opened.ok();
        writer.borrow().is_some()
    };
    let arguments: Vec<&str> = line.split(' ').collect();
    let Some(ended) = interrupted(&world, &arguments, Signal::TERM, is_time) else { return };
    assert_eq!((ended.code, ended.out.as_str()), (None, ""), "{line}: ended by the signal: {ended:#?}");
}

#[test]
fn a_replay_of_a_pipe_to_which_nobody_writes_ends() {
    ends_at_a_pipe("test --replay pipe --backend null");
}

#[test]
fn a_disk_read_from_a_pipe_to_which_nobody_writes_ends() {
    for line in ["stat --disk pipe", "stat 1 --disk pipe", "tune --disk pipe", "tune --fill-sweep --disk pipe"] {
        ends_at_a_pipe(line);
    }
}

#[test]
fn tune_prints_what_it_has_and_writes_no_half_file() {
    let world = World::new(&[]);
    let arguments = ["tune", ".", "-c", "1", "--data-size", "64M", "-o", "io.yaml", "--format", "json"];
    let scratch = world.path().join("plimsoll-tune-0");
    let Some(ended) = interrupted(&world, &arguments, Signal::INT, |_| has_data(&scratch)) else { return };
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.err.contains("io.yaml is not written") && ended.err.contains("interrupted"), "{ended:#?}");
    let report = ended.json();
    assert_eq!(report["interrupted"], true);
    assert!(world.contents().is_empty());
}

#[test]
fn an_interrupted_tune_keeps_its_figures_and_is_gone_on_with() {
    let world = World::new(&[]);
    let record = world.path().join("run.jsonl");
    // Phases of half a second: when the first figure is done, the next is measured for longer than a signal takes.
    let line = "tune . -c 1 --data-size 16M --figures-only --phase 500ms --record run.jsonl --format json";
    let arguments: Vec<&str> = line.split(' ').collect();
    let is_time =
        |_: &Child| std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"phase\":\"read_bandwidth\""));
    let Some(ended) = interrupted(&world, &arguments, Signal::INT, is_time) else { return };
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.err.contains("interrupted: the figures are those measured until then"), "{ended:#?}");
    let report = ended.json();
    assert_eq!(report["interrupted"], true);
    // The record says how far the run came until the signal reached it: on a busy machine further than one figure.
    let text = std::fs::read_to_string(&record).unwrap();
    for figure in ["write_bandwidth", "read_iops"] {
        let is_seen = text.contains(&format!("\"phase\":\"{figure}\""));
        assert_eq!(report[figure].is_null(), !is_seen, "{figure}: {ended:#?}");
    }
    assert!(text.contains("\"done\":{\"phase\":\"write_bandwidth\""), "phases end one after the other: {text}");
    if report["write_bandwidth"]["complete"] == false {
        return crate::skip::skip("the machine is too busy to measure for as long as was asked");
    }
    assert_eq!(world.contents().len(), 1, "the record, and no scratch file");

    let resumed = world.run(&["tune", "--resume", "run.jsonl", "--format", "json"]);
    if resumed.is_of_a_busy_machine() {
        return crate::skip::skip("the machine is too busy to measure for as long as was asked, or the same twice");
    }
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let whole = resumed.json();
    assert_eq!((&whole["interrupted"], &whole["write_bandwidth"]), (&false.into(), &report["write_bandwidth"]));
    assert_eq!(whole["read_iops"]["complete"], true);
    assert_eq!(world.contents().len(), 1);
}

#[test]
fn demo_ends_while_it_measures() {
    for format in ["table", "json"] {
        let world = World::new(&[]);
        let scratch = world.path().join("plimsoll-tune-0");
        let arguments = ["demo", "--format", format];
        let Some(ended) = interrupted(&world, &arguments, Signal::INT, |_| has_data(&scratch)) else { return };
        assert_eq!(ended.code, Some(130), "{ended:#?}");
        assert!(ended.err.contains("interrupted: the figures are of the time until then"), "{ended:#?}");
        assert!(world.contents().is_empty());
        if format == "table" {
            assert!(ended.out.contains("not measured"), "{ended:#?}");
            continue;
        }
        let report = ended.json();
        assert_eq!((&report["interrupted"], &report["disk"]["interrupted"]), (&true.into(), &true.into()));
        assert_eq!((&report["situations"], &report["p99_ratio"]), (&serde_json::json!([]), &serde_json::Value::Null));
    }
}

#[test]
fn demo_ends_while_it_shows() {
    let world = World::new(&[]);
    let data = world.path().join("plimsoll-demo-data");
    let arguments = ["demo", "--format", "json"];
    let Some(ended) = interrupted(&world, &arguments, Signal::INT, |_| has_data(&data)) else { return };
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(world.contents().is_empty());
    let report = ended.json();
    assert_eq!((&report["interrupted"], &report["disk"]["interrupted"]), (&true.into(), &false.into()));
}

#[test]
fn a_card_holds_what_was_measured() {
    let world = World::new(&[]);
    let arguments = ["instance", "card", "--quick", "--storage", ".", "--skip", "stress-ng", "--format", "json"];
    // It makes the disk's scratch data, or measures.
    let has_begun = |_: &Child| std::fs::read_dir(world.path()).is_ok_and(|files| files.count() > 0);
    let Some(ended) = interrupted(&world, &arguments, Signal::INT, has_begun) else { return };
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.err.contains("interrupted: the card holds what was measured until then"), "{ended:#?}");
    assert!(world.contents().is_empty());
    let card = ended.json();
    for group in ["submission", "network"] {
        assert_eq!(card["missing"][group], "interrupted", "{ended:#?}");
    }
}

/// Returns a scenario of reads for this time.
fn scenario(duration: &str) -> String {
    let jobs = "[{name: reads, type: randread, shards: all, shard_info: {parallelism: 4}}]";
    format!("duration: {duration}\ndisks: [{{disk: i4i.2xlarge}}]\njobs: {jobs}\n")
}

#[test]
fn runs_of_a_sweep_that_had_ended_are_printed() {
    let world = World::new(&[("mine.yaml", &scenario("2s"))]);
    let out = world.path().join("out");
    // The curves of a run are written when it ends.
    let has_ended = |_: &Child| std::fs::read_dir(&out).is_ok_and(|files| files.count() > 1);
    let arguments = ["sim", "run", "mine.yaml", "--seeds", "1000", "--csv", "out", "--format", "json"];
    let Some(ended) = interrupted(&world, &arguments, Signal::INT, has_ended) else { return };
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    let result = ended.json();
    let runs = result["runs"].as_array().map_or(0, Vec::len);
    assert!(result["interrupted"] == true && (1..1000).contains(&runs), "{runs} runs");
    let files = std::fs::read_dir(&out).expect("the directory of the curves");
    let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    let is_whole = |path: &std::path::PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'));
    assert!(files.len() == runs && files.iter().all(is_whole), "{runs} runs: {files:?}");
}

#[test]
fn a_second_signal_ends_a_run_that_the_first_cannot() {
    let world = World::new(&[("mine.yaml", &scenario("10ms"))]);
    let mut command = world.command(&["sim", "run", "mine.yaml", "--seeds", "200", "--format", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
    // The result is longer than a pipe holds, and nobody reads the rest of it.
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut [0]).expect("the result begins");

    let signal = |child: &Child| kill_process(Pid::from_child(child), Signal::INT);
    signal(&child).expect("it is our child");
    // Signals that come at once are one key press.
    signal(&child).expect("it is our child");
    let begun = Instant::now();
    while child.try_wait().expect("it is our child").is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().expect("it is our child");
            panic!("the second signal did not end it");
        }
        std::thread::sleep(Duration::from_millis(100));
        let _ = signal(&child);
    }
    assert_eq!(child.wait().expect("it has ended").code(), Some(130));
    drop(stdout);
}
