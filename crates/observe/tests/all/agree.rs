//! Two commands that look at one recording say the same of it, on every recording in the repository.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_figures::verdict::Kind;
use plimsoll_observe::stat::compare::{Context, Judgement, Side, compare};
use plimsoll_observe::stat::from::read as read_recording;
use plimsoll_observe::stat::watch::{Watch, WatchOptions};
use plimsoll_observe::stat::{Columns, ReadOptions, Verdict};
use plimsoll_observe::trace::gaps::{Gaps, Limiter};
use plimsoll_observe::trace::little::{Law, Little, Window, WindowFigures};
use plimsoll_observe::trace::stages::Stages;
use plimsoll_observe::trace::{TraceError, read as read_trace};

/// Largest file that is read as a recording; none of the repository's is larger.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The files of the repository that may be recordings.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut directories: Vec<PathBuf> = ["docs", "fuzz/corpus"].map(|name| root.join(name)).to_vec();
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    directories.extend(crates.map(|entry| entry.unwrap().path().join("tests")).filter(|path| path.is_dir()));
    let mut files = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.metadata().unwrap();
            if metadata.is_dir() {
                directories.push(path);
            } else if metadata.len() <= FILE_BYTES_MAX && path.extension().is_none_or(|ending| ending != "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Traces of our own programs have stations that the kernel's do not: they are dispatched before they are submitted, and
/// reaped and reported after they are back.
const OWN: [&str; 2] = ["recordings/test.plt", "recordings/sim.plt"];

/// `stages` said that 0.35 requests were in the device, and `little` that 2 were, of which its windows knew nothing.
#[test]
fn stages_little_and_gaps_say_the_same_of_a_trace() {
    let (mut compared, mut own) = (0, 0);
    for path in files() {
        let (mut stages, mut little, mut gaps) = (Stages::new(&[]), Little::default(), Gaps::new(0));
        let read_one = read_trace(&path, &mut |item| {
            stages.visit(&item);
            little.visit(&item);
            gaps.visit(&item);
        });
        let at = path.display();
        let trace = match read_one {
            Err(TraceError::Format(_)) => continue,
            other => other.unwrap_or_else(|error| panic!("{at}: {error}")),
        };
        own += usize::from(OWN.iter().any(|name| path.ends_with(name)));
        let (stages, little, gaps) = (stages.finish(&trace), little.finish(&trace), gaps.finish(&trace));
        assert_eq!(stages.duration_ns, little.duration_ns, "{at}");

        let queue: f64 = stages.disks.iter().map(|disk| disk.queue_depth_mean).sum();
        let device: f64 = stages.disks.iter().map(|disk| disk.device_depth_mean).sum();
        let of_windows = |of: fn(&Window) -> &WindowFigures, what: fn(&WindowFigures) -> f64| -> f64 {
            let sums = little.windows.iter().map(|window| what(of(window)) * window.length_ns as f64);
            sums.sum::<f64>() / little.duration_ns.max(1) as f64
        };
        let in_queue: fn(&Window) -> &WindowFigures = |window| &window.queue;
        for (depth, law, of) in [(queue, &little.queue, in_queue), (device, &little.device, |window| &window.device)] {
            let Law { depth_known, depth_mean, .. } = *law;
            assert!((depth - depth_known).abs() < 1e-9, "{at}: {depth} {law:?}");
            assert!(depth_known <= depth_mean + 1e-9, "{at}: {law:?}");
            let windows = of_windows(of, |figures| figures.depth_mean);
            assert!((windows - depth_mean).abs() < 1e-6, "{at}: {windows} in windows, {law:?}");
            compared += usize::from(depth > 0.0);
        }

        let sent: u64 = gaps.disks.iter().flat_map(|disk| &disk.queues).map(|queue| queue.dispatches).sum();
        assert_eq!(sent, little.device.pieces + little.device.without_end, "{at}: dispatches");
        for disk in &gaps.disks {
            assert!(disk.duration_ns <= little.duration_ns, "{at}: {}", disk.disk);
            let kind = little.disks.iter().find(|other| other.disk == disk.disk).map(|other| other.verdict.kind);
            match disk.verdict.limiter {
                Limiter::Unknown => {}
                Limiter::Disk => assert_ne!(kind, Some(Kind::LimitedAbove), "{at}: {}", disk.disk),
                limiter => assert_ne!(kind, Some(Kind::Saturated), "{at}: {}: {limiter:?}", disk.disk),
            }
        }
        assert_eq!(stages.lost.first(), little.lost.first(), "{at}");
        assert_eq!(stages.lost.first(), gaps.lost.first(), "{at}");
    }
    assert!(compared >= 8 && own == OWN.len(), "of {compared} there is something to compare, {own} of them our own");
}

#[test]
fn a_completion_far_from_the_rest_is_named_as_such() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/blkparse/split.txt");
    let trace = read_trace(&path, &mut |_| {}).unwrap();
    assert_eq!(trace.lost[0], "one completion (C) 1.27e9 s after the rest: left out");
}

/// What `stat --from` says of a device, and what `stat --compare` of the recording with itself makes of it.
#[test]
fn from_and_compare_say_the_same_of_a_recording_of_disks() {
    let mut compared = 0;
    for path in files() {
        let name = path.display().to_string();
        let bytes = std::fs::read(&path).unwrap();
        let options = ReadOptions { interval_s: Some(1.0), ..ReadOptions::default() };
        let Ok(recorded) = read_recording(&name, &bytes, &options) else { continue };
        let observed: Vec<_> = recorded.observed(&mut Watch::new(WatchOptions::default())).collect();
        let devices = || observed.iter().flat_map(|observed| &observed.devices);
        let names: BTreeSet<&str> = devices().map(|judged| judged.interval.device.as_str()).collect();

        for device in names {
            let Some(side) = Side::of(&name, &observed, device) else { continue };
            let of_device: Vec<_> = devices().filter(|judged| judged.interval.device == device).collect();
            let comparison = compare(&side, &side, &Context::default());
            let judgement =
                |code: &str| comparison.hypotheses.iter().find(|hypothesis| hypothesis.code == code).unwrap().judgement;
            let verdicts: Vec<Verdict> = of_device.iter().map(|judged| judged.verdict).collect();
            let told = format!("{name}: {device}: {verdicts:?}, {:?}", judgement("saturated"));
            let is_fine = |verdict: &Verdict| matches!(verdict, Verdict::Idle | Verdict::Ok | Verdict::BusyButFree);
            if verdicts.iter().all(is_fine) {
                assert_ne!(judgement("saturated"), Judgement::Likely, "{told}");
                assert_ne!(judgement("throttled"), Judgement::Likely, "{told}");
            }
            if verdicts.iter().all(|verdict| *verdict == Verdict::Saturated) {
                assert!(!matches!(judgement("saturated"), Judgement::Refuted | Judgement::Unlikely), "{told}");
            }

            // A mean lies between the least and the most of the intervals.
            let figures: [fn(&Columns) -> Option<f64>; 4] = [
                |columns| columns.reads_per_s,
                |columns| columns.writes_per_s,
                |columns| columns.util_percent,
                |columns| columns.queue,
            ];
            for figure in figures {
                let known = of_device.iter().filter_map(|judged| figure(&judged.interval.columns));
                let (least, most) = known.fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
                if let Some(mean) = figure(&side.columns) {
                    assert!((least - 1e-6..=most + 1e-6).contains(&mean), "{told}: {mean} of {least} to {most}");
                }
            }
            assert!(comparison.columns.iter().all(|change| change.a == change.b), "{told}");
            compared += 1;
        }
    }
    assert!(compared >= 100, "only {compared} devices were compared");
}
