//! Gaps, Little's law and differences of traces.

use plimsoll::core::trace::{Event, EventKind};
use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::{Clock, Writer};

use crate::pages::words;
use crate::world::World;

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

#[test]
fn eighty_three_microseconds_against_one() {
    let world = world();
    let ended = world.run(&["trace", "diff", "slow.plt", "fast.plt"]).done();
    assert!(ended.out.starts_with("dispatch gap of disk 0: 83.0 us against 1.00 us, 83x shorter\n"), "{}", ended.out);
    ended.assert_fits();
    // Worse in the second is a finding.
    assert_eq!(world.run(&["trace", "diff", "fast.plt", "slow.plt"]).code, Some(1));
    assert_eq!(world.run(&["trace", "diff", "slow.plt", "slow.plt"]).code, Some(0));
}

#[test]
fn gaps_and_little_say_what_they_found_in_every_format() {
    let world = world();
    let gaps = world.run(&["trace", "gaps", "slow.plt"]).done();
    for part in ["dispatch gap p50 83.0 us", "Limiter: the program", "write 1 MiB"] {
        assert!(words(&gaps.out).contains(part), "no `{part}` in {}", gaps.out);
    }
    let little = world.run(&["trace", "little", "slow.plt"]).done();
    assert!(words(&little.out).contains("always offered about 1"), "{}", little.out);
    for ended in [&gaps, &little] {
        ended.assert_fits();
    }
    for command in ["gaps", "little"] {
        let json = world.run(&["trace", command, "slow.plt", "--format", "json"]);
        let value = json.json();
        assert_eq!((&value["schema"], &value["disks"][0]["disk"]), (&1.into(), &"disk 0".into()));
        let csv = world.run(&["trace", command, "slow.plt", "--format", "csv"]).out;
        assert!(csv.starts_with("disk,") && csv.lines().count() > 2, "{csv}");
    }
    let long = world.run(&["trace", "gaps", "slow.plt", "--longer-than", "1ms", "--format", "json"]);
    let value = long.json();
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
