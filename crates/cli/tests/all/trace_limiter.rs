//! Gaps, Little's law and differences of traces; docs/find-the-limiter.md, whose commands are run here.

use std::path::Path;

use plimsoll::core::trace::{Event, EventKind};
use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::{Clock, Writer};
use serde_json::Value;

use crate::skip::skip;
use crate::world::{Ended, World};

/// One request at a time, sent `gap_us` after it is queued because of tokens, 400 us in the device.
fn trace(gap_us: u64) -> Vec<u8> {
    let mut events = Vec::new();
    for request in 1..500 {
        let mut at = |time_us: u64, kind, reason, detail| {
            events.push(Event {
                time_ns: (request * 1_000 + time_us) * 1_000,
                request,
                offset_bytes: 0,
                len_bytes: 1 << 20,
                detail,
                class: 1,
                disk: 0,
                piece: 0,
                kind,
                op: Op::Write,
                reason,
            });
        };
        at(51, EventKind::Queued, None, 0);
        if gap_us > 10 {
            at(51, EventKind::Blocked, Some(WaitReason::Tokens), 0);
        }
        at(51 + gap_us, EventKind::Dispatched, None, 122_129);
        at(51 + gap_us, EventKind::Submitted, None, 0);
        at(451 + gap_us, EventKind::Completed, None, 0);
        at(451 + gap_us, EventKind::Reaped, None, 0);
        at(451 + gap_us, EventKind::Finished, None, 0);
        at(452 + gap_us, EventKind::Callback, None, 0);
    }
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Clock::Virtual, 0).expect("memory can be written");
    writer.events(0, 0, &events).expect("memory can be written");
    file
}

fn world() -> World {
    let world = World::new(&[("text.plt", "no trace")]);
    for (name, gap_us) in [("slow.plt", 83), ("fast.plt", 1)] {
        std::fs::write(world.path().join(name), trace(gap_us)).expect("a file can be written");
    }
    world
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_fits(ended: &Ended) {
    assert!(ended.out.lines().all(|line| line.chars().count() <= 100), "{}", ended.out);
}

#[test]
fn eighty_three_microseconds_against_one() {
    let world = world();
    let ended = world.run(&["trace", "diff", "slow.plt", "fast.plt"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.out.starts_with("dispatch gap of disk 0: 83.0 us against 1.00 us, 83x shorter\n"), "{}", ended.out);
    assert_fits(&ended);
    // Worse in the second is a finding.
    assert_eq!(world.run(&["trace", "diff", "fast.plt", "slow.plt"]).code, Some(1));
    assert_eq!(world.run(&["trace", "diff", "slow.plt", "slow.plt"]).code, Some(0));
}

#[test]
fn gaps_and_little_say_what_they_found_in_every_format() {
    let world = world();
    let gaps = world.run(&["trace", "gaps", "slow.plt"]);
    assert_eq!(gaps.code, Some(0), "{gaps:#?}");
    for part in ["dispatch gap p50 83.0 us", "Limiter: the program", "write 1 MiB"] {
        assert!(words(&gaps.out).contains(part), "no `{part}` in {}", gaps.out);
    }
    let little = world.run(&["trace", "little", "slow.plt"]);
    assert_eq!(little.code, Some(0), "{little:#?}");
    assert!(words(&little.out).contains("always offered about 1"), "{}", little.out);
    for ended in [&gaps, &little] {
        assert_fits(ended);
    }
    for command in ["gaps", "little"] {
        let json = world.run(&["trace", command, "slow.plt", "--format", "json"]);
        let value: Value = serde_json::from_str(&json.out).expect("the output is JSON");
        assert_eq!((&value["schema"], &value["disks"][0]["disk"]), (&1.into(), &"disk 0".into()));
        let csv = world.run(&["trace", command, "slow.plt", "--format", "csv"]).out;
        assert!(csv.starts_with("disk,") && csv.lines().count() > 2, "{csv}");
    }
    let long = world.run(&["trace", "gaps", "slow.plt", "--longer-than", "1ms", "--format", "json"]);
    let value: Value = serde_json::from_str(&long.out).expect("the output is JSON");
    assert_eq!(value["longest"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_is_no_trace_is_refused() {
    let world = world();
    for command in ["gaps", "little"] {
        world.run(&["trace", command, "text.plt"]).assert_refused(2, &["text.plt", "this is no trace"]);
        world.run(&["trace", command, "none.plt"]).assert_refused(2, &["none.plt", "cannot open it"]);
    }
    world.run(&["trace", "diff", "slow.plt", "text.plt"]).assert_refused(2, &["text.plt", "this is no trace"]);
    world.run(&["trace", "diff", "-", "-"]).assert_refused(2, &["both traces are standard input", "name a file"]);
    world.run(&["trace", "gaps", "slow.plt", "--longer-than", "long"]).assert_refused(2, &["--longer-than"]);
}

/// Fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.split_once('\n')).collect()
}

#[test]
fn the_walk_through_finds_the_limiter() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/find-the-limiter.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let world = World::new(&[]);
    let (mut said, mut commands, mut is_real) = (String::new(), 0, false);
    for (language, text) in blocks(&page) {
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
                    if arguments.first() == Some(&"trace") {
                        assert_fits(&ended);
                    }
                    said.push_str(&words(&ended.out));
                    commands += 1;
                }
            }
            "text" => {
                for line in text.lines().filter(|line| !said.contains(*line)) {
                    // A machine that is busy makes a curve that is not flat; it never makes a full disk of nothing.
                    let is_noise = is_real && line.starts_with("Verdict:") && said.contains("Verdict: ");
                    assert!(is_noise && !said.contains("Verdict: saturated"), "no `{line}` in {said}");
                    skip(format_args!("the machine is too busy for `{line}`"));
                }
            }
            other => panic!("a block in `{other}`"),
        }
    }
    assert_eq!(commands, 8);
}
