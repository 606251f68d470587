//! The kernel's counters of a simulated disk: they agree with what was done, and with Little's law.

use crate::common::world::*;
use plimsoll_core::Op;
use plimsoll_sim::device::{FaultKind, FaultWindow};
use plimsoll_sim::workload::{JobSpec, Load, SizeDist};
use plimsoll_sim::world::{DiskCounters, EventKind, WorldSpec, run_logged, run_observed};

/// Returns reads and writes, a tenth of a second each, and a warm-up that the counters ignore.
fn both() -> WorldSpec {
    let writes =
        JobSpec { op: Op::Write, sizes: SizeDist::Fixed(16384), load: Load::uniform(5_000.0), ..reads("writes", 0) };
    let mut both = world(vec![reads("reads", 4), writes]);
    (both.warmup_ns, both.duration_ns, both.sample_ns) = (100 * MS, 100 * MS, 50 * MS);
    both
}

fn samples(spec: &WorldSpec) -> Vec<DiskCounters> {
    let mut samples = Vec::new();
    run_observed(spec, &mut |sample| samples.push(sample.disks[0].counters)).unwrap();
    samples
}

#[test]
fn they_count_what_completes_from_the_beginning_on() {
    let spec = both();
    let samples = samples(&spec);
    assert_eq!(samples.len(), 4);
    let last = samples[3];
    let mut completed = [(0, 0); 2];
    run_logged(&spec, &mut |event| {
        if event.kind == EventKind::Complete {
            let (count, bytes) = &mut completed[usize::from(event.op == Op::Write)];
            (*count, *bytes) = (*count + 1, *bytes + u64::from(event.len_bytes));
        }
    })
    .unwrap();
    assert_eq!(completed, [(last.reads, last.read_bytes), (last.writes, last.write_bytes)]);
    assert!(samples.windows(2).all(|pair| pair[0].reads < pair[1].reads && pair[0].busy_ns < pair[1].busy_ns));
    // Four readers without a pause, and a writer now and then.
    assert!((4..=8).contains(&last.in_flight), "{last:?}");
    assert_eq!(last.busy_ns, 200 * MS);
    assert_near(last.read_ns as f64 / (200 * MS) as f64, 4.0, 1.0, "reads under way, by their times");
    assert_eq!(samples, self::samples(&spec), "the same seed");
}

#[test]
fn what_hangs_shows_no_time_until_it_is_back() {
    let mut spec = both();
    spec.jobs.truncate(1);
    let kind = FaultKind::Hang { requests: 4, for_ns: Some(120 * MS) };
    spec.disks[0].device.faults.push(FaultWindow { from_ns: 60 * MS, until_ns: 200 * MS, kind });
    let [_, before, hung, back] = samples(&spec)[..] else { panic!("four samples") };
    assert_eq!((hung.reads, hung.read_ns, hung.in_flight), (before.reads, before.read_ns, 4));
    assert_eq!(hung.busy_ns - before.busy_ns, 50 * MS);
    assert!(back.read_ns - hung.read_ns > 4 * 120 * MS, "{back:?}");
}
