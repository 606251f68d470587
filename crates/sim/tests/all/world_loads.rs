//! Jobs: closed and open loops, replays, pauses, limits; and their rates by shares.

use crate::common::world::*;
use plimsoll_core::Op;
use plimsoll_sim::workload::{Arrival, JobSpec, Load, Pattern, Region, ShardSet, Spacing};
use plimsoll_sim::world::{Action, Change, ClassSpec, Event, EventKind, WorldSpec, run, run_logged, run_observed};

fn events(spec: &WorldSpec, kind: EventKind) -> Vec<Event> {
    let mut events = Vec::new();
    run_logged(spec, &mut |event| events.extend((event.kind == kind).then_some(*event))).unwrap();
    events
}

#[test]
fn classes_get_their_shares() {
    let shares = [10, 20, 40, 80];
    let names = ["a", "b", "c", "d"];
    let mut spec = world(names.iter().map(|name| reads(name, 64)).collect());
    for (class, shares) in spec.classes.iter_mut().zip(shares) {
        class.shares = shares;
    }
    spec.warmup_ns = 100 * MS;
    let report = run(&spec).unwrap();
    let all: f64 = report.classes.iter().map(|class| class.iops).sum();
    for (class, shares) in report.classes.iter().zip(shares) {
        assert_near(class.iops / all, f64::from(shares) / 150.0, 2.0, &class.name);
    }
    assert_near(report.disks[0].iops, IOPS as f64, 5.0, "the disk is used");
}

#[test]
fn a_closed_loop_obeys_littles_law() {
    for (parallelism, think_ns) in [(1, 0), (32, 0), (16, 200 * US)] {
        let load = Load::Closed { parallelism, think_ns, think_after_ns: 0 };
        let mut spec = world(vec![JobSpec { load, ..reads("a", 0) }]);
        spec.warmup_ns = 50 * MS;
        let report = run(&spec).unwrap();
        let class = report.class("a", 0).unwrap();
        let in_system = class.iops * (class.total.mean() + think_ns as f64) / 1e9;
        assert_near(in_system, f64::from(parallelism), 1.0, "throughput times latency");
        let in_device = class.iops * class.device.mean() / 1e9;
        assert_near(in_device, report.disks[0].mean_in_device, 1.0, "the same inside the device");
    }
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    for spacing in [Spacing::Uniform, Spacing::Poisson] {
        for batch in [1, 10] {
            let load = Load::Open { requests_per_s: 50_000.0, spacing, batch, max_outstanding: None };
            let mut spec = world(vec![JobSpec { load, ..reads("a", 0) }]);
            spec.shards = shards(2);
            spec.disks = vec![unlimited_disk()];
            spec.disks[0].device = device(10.0);
            spec.duration_ns = 5 * S;
            let report = run(&spec).unwrap();
            // 500 000 (or 50 000) independent moments: one standard deviation is 0.14 % (0.45 %).
            assert_near(report.totals.sent as f64, 500_000.0, 1.0, "requests");
        }
    }
}

#[test]
fn poisson_gaps_vary_as_they_should() {
    let mut spec = world(vec![JobSpec { load: Load::poisson(10_000.0), ..reads("a", 0) }]);
    spec.duration_ns = 10 * S;
    let times: Vec<u64> = events(&spec, EventKind::Enqueue).iter().map(|event| event.at_ns).collect();
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert_near(variance.sqrt() / mean, 1.0, 2.0, "coefficient of variation");
}

#[test]
fn arrivals_that_must_wait_count_from_when_they_were_due() {
    // The disk carries 100 000 a second, 120 000 are due: at the end the oldest is late by a sixth of the time.
    let load = Load::Open { requests_per_s: 120_000.0, spacing: Spacing::Uniform, batch: 1, max_outstanding: Some(50) };
    let mut spec = world(vec![JobSpec { load, ..reads("a", 0) }]);
    spec.duration_ns = S;
    let report = run(&spec).unwrap();
    assert!(report.totals.outstanding <= 50, "{:?}", report.totals);
    let class = report.class("a", 0).unwrap();
    let late_ns = 1e9 - report.totals.sent as f64 / 120_000.0 * 1e9;
    assert_near(class.total.max() as f64, late_ns, 5.0, "lateness");
    assert!(class.queue.max() < 5 * MS, "{}", class.queue.max());
}

#[test]
fn a_replay_sends_what_was_recorded_when_it_was_recorded() {
    let arrivals: Vec<Arrival> = (0..100)
        .map(|number| Arrival {
            at_ns: number * number * 100,
            op: if number % 3 == 0 { Op::Write } else { Op::Read },
            offset_bytes: number * 8192,
            len_bytes: 512 * (1 + number as u32 % 4),
        })
        .collect();
    let job = JobSpec { load: Load::Replay(arrivals.clone()), start_ns: Some(3 * MS), ..reads("a", 0) };
    let mut spec = world(vec![job]);
    spec.shards = shards(3);
    let sent = events(&spec, EventKind::Enqueue);
    assert_eq!(sent.len(), 100);
    for (number, (event, arrival)) in sent.iter().zip(&arrivals).enumerate() {
        assert_eq!(event.at_ns, 3 * MS + arrival.at_ns);
        assert_eq!((event.op, event.offset_bytes), (arrival.op, arrival.offset_bytes));
        assert_eq!((event.len_bytes, event.shard as usize), (arrival.len_bytes, number % 3));
    }
}

#[test]
fn a_limit_counts_requests_on_each_shard() {
    let job = JobSpec { limit_requests: Some(1_000), ..reads("a", 7) };
    let report = run(&WorldSpec { shards: shards(2), ..world(vec![job]) }).unwrap();
    let counts: Vec<u64> = report.jobs[0].by_shard.iter().map(|on| on.counts.requests).collect();
    assert_eq!(counts, [1_000, 1_000]);
}

#[test]
fn a_job_runs_between_start_and_stop_and_again_when_told() {
    let job = JobSpec { start_ns: Some(10 * MS), ..reads("a", 4) };
    let action = |at_ns, change| Action { at_ns, change };
    let mut spec = world(vec![job]);
    spec.actions = vec![
        action(40 * MS, Change::StartJob { job: "a".into() }),
        action(20 * MS, Change::StopJob { job: "a".into() }),
        action(50 * MS, Change::StopJob { job: "a".into() }),
    ];
    let sent = events(&spec, EventKind::Enqueue);
    assert!(sent.iter().all(|event| matches!(event.at_ns / MS, 10..20 | 40..50)));
    let again = sent.iter().filter(|event| event.at_ns == 40 * MS).count();
    assert_eq!((sent[0].at_ns, again), (10 * MS, 4));
    spec.actions.clear();
    spec.jobs[0].stop_ns = Some(20 * MS);
    assert!(events(&spec, EventKind::Enqueue).iter().all(|event| event.at_ns < 20 * MS));
}

#[test]
fn phases_of_thinking() {
    let load = Load::Closed { parallelism: 4, think_ns: 3 * MS, think_after_ns: MS };
    let spec = world(vec![JobSpec { load, ..reads("a", 0) }]);
    let sent = events(&spec, EventKind::Enqueue);
    assert!(sent.iter().all(|event| event.at_ns % (4 * MS) < MS));
    let in_last_phase = sent.iter().filter(|event| event.at_ns >= 496 * MS).count();
    assert!(in_last_phase > 20, "{in_last_phase}");
}

#[test]
fn where_requests_go() {
    let region = Region { offset_bytes: 1 << 20, len_bytes: 10_000, shard_stride_bytes: 1 << 30 };
    for (pattern, expected) in [(Pattern::Sequential, [0, 4096, 0, 4096]), (Pattern::Append, [0, 4096, 8192, 12288])] {
        let job = JobSpec { pattern, region, limit_requests: Some(4), ..reads("a", 1) };
        let sent = events(&WorldSpec { shards: shards(2), ..world(vec![job]) }, EventKind::Enqueue);
        for shard in 0..2 {
            let base = (1 << 20) + u64::from(shard) * (1 << 30);
            let offsets: Vec<u64> =
                sent.iter().filter(|event| event.shard == shard).map(|event| event.offset_bytes - base).collect();
            assert_eq!(offsets, expected);
        }
    }
    let sent = events(&world(vec![JobSpec { region, ..reads("a", 1) }]), EventKind::Enqueue);
    let offsets: std::collections::BTreeSet<u64> = sent.iter().map(|event| event.offset_bytes - (1 << 20)).collect();
    assert_eq!(offsets.into_iter().collect::<Vec<_>>(), [0, 4096]);
}

#[test]
fn shares_can_change_and_classes_can_go() {
    let mut spec = world(vec![reads("a", 64), reads("b", 64)]);
    spec.sample_ns = 100 * MS;
    spec.duration_ns = 300 * MS;
    let action = |at_ns, change| Action { at_ns, change };
    spec.actions = vec![
        action(100 * MS, Change::SetShares { class: "a".into(), shares: 300 }),
        action(200 * MS, Change::RemoveClass { class: "b".into() }),
    ];
    let mut parts = Vec::new();
    let report = run_observed(&spec, &mut |sample| {
        let (a, b) = (sample.classes[0].requests as f64, sample.classes[1].requests as f64);
        parts.push(a / (a + b));
    })
    .unwrap();
    for (part, expected) in parts.iter().zip([0.5, 0.75, 1.0]) {
        assert!((part - expected).abs() < 0.01, "{parts:?}");
    }
    let b = report.job("b").unwrap().total;
    assert_eq!(b.cancelled, report.totals.cancelled);
    assert!(b.cancelled > 0 && b.requests > 1_000, "{b:?}");
    assert_eq!(report.class("b", 0).unwrap().stats.cancelled, b.cancelled);
}

#[test]
fn groups_divide_first() {
    let mut spec = world(vec![reads("a", 64), reads("b", 64), reads("c", 64)]);
    spec.classes = vec![
        ClassSpec::group("g", 100),
        ClassSpec::new("a", 10).in_group("g"),
        ClassSpec::new("b", 30).in_group("g"),
        ClassSpec::new("c", 100),
    ];
    spec.warmup_ns = 50 * MS;
    let report = run(&spec).unwrap();
    let all: f64 = report.classes.iter().map(|class| class.iops).sum();
    for (name, part) in [("a", 0.125), ("b", 0.375), ("c", 0.5)] {
        assert_near(report.class(name, 0).unwrap().iops / all, part, 2.0, name);
    }
}

#[test]
fn a_job_on_some_shards_runs_on_those() {
    let job = JobSpec { shards: ShardSet::List(vec![2, 0]), ..reads("a", 1) };
    let report = run(&WorldSpec { shards: shards(4), ..world(vec![job]) }).unwrap();
    let on: Vec<usize> = report.class("a", 0).unwrap().by_shard.iter().map(|on| on.shard).collect();
    assert_eq!(on, [0, 2]);
}
