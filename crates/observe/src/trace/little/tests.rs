use plimsoll::core::trace::EventKind;
use plimsoll_figures::verdict::Kind;

use super::super::story::{Story, event, events, read, with_pauses};
use super::*;

fn report(events: &[plimsoll::core::trace::Event]) -> LittleReport {
    let mut little = Little::default();
    let trace = read(events, &mut |item| little.visit(&item));
    little.finish(&trace)
}

#[test]
fn n_is_x_times_r_and_the_verdicts_are_those_of_sweeps() {
    let serial = Story { is_serial: true, latency_ns: 100_000, ..Story::FREE };
    let cases = [
        (Story::OLD_DEFAULTS, Kind::LimitedAbove, "the limiter sits above the disk"),
        (Story { depth: 4, ..Story::FREE }, Kind::LimitedAbove, "the limiter sits above the disk"),
        (serial, Kind::Saturated, "latency grows"),
        (Story::FREE, Kind::ScalesLow, "scales"),
    ];

    for (story, kind, words) in cases {
        // Twice the load has twice the ends: on the free disk all loads last for the same time.
        let loads = [1, 2, 4, 8, 16, 32].map(|offered| events(story, &[offered], 100 * offered as u64));
        let found = report(&with_pauses(&loads, 1_000));
        let verdict = &found.disks[0].verdict;
        assert_eq!(verdict.kind, kind, "{story:?}: {:?}", found.disks[0]);
        assert!(verdict.sentence.contains(words), "{}", verdict.sentence);
        for law in [&found.queue, &found.device, &found.classes[0].queue, &found.classes[0].device] {
            assert!(law.agrees && law.missing.is_empty() && law.without_end == 0, "{story:?}: {law:?}");
        }
        assert!(found.windows.len() > 10);
        let area = |of: fn(&Window) -> f64| -> f64 {
            found.windows.iter().map(|window| of(window) * window.length_ns as f64).sum::<f64>()
        };
        let whole = found.device.depth_mean * found.duration_ns as f64;
        assert!((area(|window| window.device.depth_mean) / whole - 1.0).abs() < 1e-6, "{story:?}");
    }
}

#[test]
fn the_plateau_of_seed_000() {
    let found = report(&events(Story::OLD_DEFAULTS, &[16], 400));
    // 8,188 per second, each 488 us in the disk: four in the disk, and twelve waiting.
    assert!((found.device.depth_mean - 4.0).abs() < 0.1, "{:?}", found.device);
    assert!((found.queue.depth_mean - 12.0).abs() < 0.5, "{:?}", found.queue);
    assert!((found.device.per_s / 8_188.0 - 1.0).abs() < 0.02, "{:?}", found.device);
}

#[test]
fn events_that_are_lost_are_named() {
    let all = events(Story::FREE, &[8], 100);
    let without = |kind: EventKind, every: u64| -> Vec<_> {
        all.iter().filter(|event| event.kind != kind || event.request % every != 0).copied().collect()
    };
    let no_ends: Vec<_> = without(EventKind::Completed, 4)
        .into_iter()
        .filter(|event| event.request % 4 != 0 || (event.kind as u8) < EventKind::Reaped as u8)
        .collect();
    let found = report(&no_ends);
    assert!(!found.device.agrees, "{:?}", found.device);
    assert!(found.device.missing.contains("without `completed`: events are lost"), "{}", found.device.missing);
    let found = report(&without(EventKind::Queued, 4));
    assert_eq!((found.queue.without_begin, found.queue.without_end), (26, 0), "{:?}", found.queue);
    assert!(found.queue.missing.contains("without `queued`: events are lost"), "{:?}", found.queue);
}

#[test]
fn nothing_is_no_error() {
    let found = report(&[]);
    assert!(found.disks.is_empty() && found.device.agrees && found.windows.is_empty());
    let found = report(&[event(5, 1, EventKind::Queued)]);
    assert_eq!(found.queue.without_end, 1);
    let csv = report(&events(Story::FREE, &[4], 50)).to_csv();
    let width = csv.lines().next().map(|line| line.split(',').count());
    assert!(csv.lines().count() > 3 && csv.lines().all(|line| Some(line.split(',').count()) == width), "{csv}");
}

#[test]
fn a_hole_in_the_trace_does_not_stay_in_the_levels() {
    let all = events(Story::FREE, &[4], 300);
    for lost_from in [EventKind::Dispatched, EventKind::Completed] {
        let is_kept = |event: &&plimsoll::core::trace::Event| {
            !(20..60).contains(&event.request) || (event.kind as u8) < lost_from as u8
        };
        let found = report(&all.iter().filter(is_kept).copied().collect::<Vec<_>>());
        let disk = &found.disks[0];
        assert!(disk.offered.iter().all(|level| level.depth_max <= 4), "{lost_from:?}: {:?}", disk.offered);
        let evidence = disk.verdict.evidence.join("; ");
        assert!(evidence.contains("the trace is not whole"), "{evidence}");
    }
}
