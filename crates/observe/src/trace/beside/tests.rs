use std::fs;

use plimsoll::core::Op;
use plimsoll::core::trace::{Event, EventKind};
use plimsoll::trace::format::{Clock, FileName, Names, Writer};

use super::super::kernel::blktrace::Head;
use super::super::story;
use super::*;

/// A request of ours: number, offset, length, dispatch in ns. It is queued 10 ns before, and back 1,000 ns after.
type Own = (u64, u64, u32, u64);
/// A request of the kernel: offset on the disk, length, Q and C in ns; D is 5 ns after Q.
type Kernel = (u64, u32, u64, u64);

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new(own: &[Own], kernel: &[Kernel]) -> Files {
        let files = Files { dir: tempfile::tempdir().unwrap() };
        fs::write(files.own(), own_trace(own, Clock::Monotonic)).unwrap();
        fs::write(files.kernel(), kernel_trace(kernel)).unwrap();
        files
    }

    fn own(&self) -> std::path::PathBuf {
        self.dir.path().join("own.plt")
    }

    fn kernel(&self) -> std::path::PathBuf {
        self.dir.path().join("kernel.blktrace")
    }

    fn report(&self) -> BesideReport {
        beside(&self.own(), &self.kernel()).unwrap()
    }
}

fn own_trace(requests: &[Own], clock: Clock) -> Vec<u8> {
    let mut events = Vec::new();
    for (request, offset_bytes, len_bytes, out_ns) in requests {
        let at = |kind, time_ns, detail| Event {
            offset_bytes: *offset_bytes,
            len_bytes: *len_bytes,
            detail,
            op: Op::Read,
            ..story::event(time_ns, *request, kind)
        };
        events.push(at(EventKind::Queued, out_ns - 10, 3));
        events.push(at(EventKind::Dispatched, *out_ns, 0));
        events.push(at(EventKind::Submitted, out_ns + 50, 0));
        events.push(at(EventKind::Completed, out_ns + 1_000, 0));
        events.push(at(EventKind::Reaped, out_ns + 1_020, 0));
        events.push(at(EventKind::Finished, out_ns + 1_021, 0));
    }

    events.sort_by_key(|event| event.time_ns);
    let mut names = Names::default();
    names.files.insert(3, FileName { path: "/data/x".to_owned(), disk: 0 });

    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, clock, 0).unwrap();
    writer.names(&names).unwrap();
    writer.events(0, 0, &events).unwrap();
    file
}

fn kernel_trace(requests: &[Kernel]) -> Vec<u8> {
    let mut heads = Vec::new();
    for (offset_bytes, bytes, queued_ns, completed_ns) in requests {
        for (action, time_ns) in [(1, *queued_ns), (7, queued_ns + 5), (8, *completed_ns)] {
            heads.push(Head {
                action,
                time_ns,
                sector: offset_bytes / 512,
                bytes: *bytes,
                device: 8 << 20,
                ..Head::default()
            });
        }
    }
    heads.iter().flat_map(|head| head.to_bytes()).collect()
}

#[test]
fn requests_are_found_at_the_distance_that_all_have() {
    // 100 ns apart, so that about ten are in flight at a time, in an order without a pattern.
    let own: Vec<Own> = (0..200).map(|at| (at + 1, (at * 7919 % 200) * 4096, 4096, 10_000 + at * 100)).collect();
    let mut kernel: Vec<Kernel> =
        own.iter().map(|(_, offset, bytes, out)| (offset + (1 << 30), *bytes, out + 20, out + 900)).collect();
    // Requests of another program, of the same length, in between.
    kernel.extend((0..50).map(|at| (5 << 30, 4096, 10_030 + at * 400, 10_800 + at * 400)));

    let report = Files::new(&own, &kernel).report();
    let found = (report.own_requests, report.matched, report.by_time_alone, report.unmatched, report.foreign);
    assert_eq!(found, (200, 200, 0, 0, 50));
    let shift = Shift { file: "/data/x".to_owned(), disk: "8,0".to_owned(), shift_bytes: 1 << 30, requests: 200 };
    assert_eq!(report.shifts, [shift]);

    let means: Vec<(&str, f64)> = report.stages.iter().map(|stage| (stage.name, stage.mean_ns)).collect();
    let expected = [
        ("scheduler", 10.0),
        ("submit", 20.0),
        ("kernel_queue", 5.0),
        ("device", 875.0),
        ("unseen", 100.0),
        ("reaping", 20.0),
        ("total", 1030.0),
    ];
    assert_eq!(means, expected);

    let shares: f64 = report.stages.iter().filter(|stage| stage.name != "total").map(|stage| stage.share_pct).sum();
    assert!((shares - 100.0).abs() < 1e-9, "{shares}");
    assert!(report.lost.is_empty(), "{:?}", report.lost);
    assert_eq!(report.to_csv().lines().count(), 8);
    assert!(serde_json::to_string(&report).unwrap().contains("\"kernel_queue\""));
}

#[test]
fn requests_in_parts_count_from_the_first_to_the_last() {
    // 1 MiB each, in four parts of the kernel that end one after another.
    let own: Vec<Own> = (0..20).map(|at| (at + 1, (at * 7 % 20) << 20, 1 << 20, 10_000 + at * 2_000)).collect();
    let part = |(_, offset, _, out): &Own, at: u64| {
        (offset + (1 << 30) + (at << 18), 1 << 18, out + 20 + at, out + 600 + 100 * at)
    };
    let kernel: Vec<Kernel> = own.iter().flat_map(|own| (0..4).map(|at| part(own, at)).collect::<Vec<_>>()).collect();
    let report = Files::new(&own, &kernel).report();
    assert_eq!((report.matched, report.in_parts, report.unmatched, report.foreign), (20, 20, 0, 0));
    assert_eq!(report.shifts[0].shift_bytes, 1 << 30);
    assert_eq!(report.stages[3].mean_ns, 875.0, "D of the first to C of the last");
}

#[test]
fn what_is_not_there_is_told() {
    let own: Vec<Own> = (0..10).map(|at| (at + 1, at * 4096, 4096, 10_000 + at * 2_000)).collect();
    let later: Vec<Kernel> =
        own.iter().map(|(_, offset, bytes, out)| (*offset, *bytes, out + (1 << 40), out + (2 << 40))).collect();
    let report = Files::new(&own, &later).report();
    assert_eq!((report.matched, report.unmatched), (0, 10));
    assert!(report.stages.is_empty() && report.lost.iter().any(|it| it.contains("10 of 10 requests are not in")));
    // Different distances each, but only one at a time.
    let scattered: Vec<Kernel> =
        own.iter().map(|(at, offset, bytes, out)| (offset + ((at * at) << 20), *bytes, out + 20, out + 900)).collect();
    let report = Files::new(&own, &scattered).report();
    assert_eq!((report.matched, report.by_time_alone), (10, 10));
    assert!(report.lost.iter().any(|it| it.contains("by time and length alone")), "{:?}", report.lost);
}

#[test]
fn traces_without_a_clock_in_common_are_refused() {
    let files = Files::new(&[(1, 0, 4096, 100)], &[(0, 4096, 110, 900)]);
    let text = files.dir.path().join("text");
    fs::write(&text, "8,0 0 0 0.1 7 D R 0 + 8 [x]\n").unwrap();
    let simulated = files.dir.path().join("simulated");
    fs::write(&simulated, own_trace(&[(1, 0, 4096, 100)], Clock::Virtual)).unwrap();

    let cases = [
        (files.own(), text, "give the binary file"),
        (simulated, files.kernel(), "of a simulation"),
        (files.kernel(), files.own(), "the wrong way round"),
        (files.own(), files.own(), "both are traces of programs"),
        (files.kernel(), files.kernel(), "both are traces of the kernel"),
        ("-".into(), files.kernel(), "not standard input"),
        ("/nonexistent".into(), files.kernel(), "/nonexistent: cannot open it"),
    ];

    for (own, kernel, message) in cases {
        let error = beside(&own, &kernel).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
