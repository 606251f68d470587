//! Properties of every world: no request is lost, the same seed gives the same events, bad worlds are refused by name.

use crate::common::world::*;
use plimsoll_core::{Op, Qos};
use plimsoll_sim::workload::{Arrival, JobSpec, Load, Pattern, Region, ShardSet, SizeDist};
use plimsoll_sim::world::{
    Action, Change, ClassSpec, EventKind, Hog, ShardSpec, WorldSpec, run, run_logged, run_observed, run_steered,
};

/// Returns a world with some of everything: two shards, two disks, all kinds of loads.
fn mixed() -> WorldSpec {
    let mut mixed = world(vec![
        reads("closed", 8),
        JobSpec { load: Load::poisson(60_000.0), op: Op::Write, pattern: Pattern::Sequential, ..reads("open", 0) },
        JobSpec { sizes: SizeDist::Weighted(vec![(4096, 3), (1 << 20, 1)]), disk: 1, ..reads("mixed sizes", 2) },
        JobSpec { load: Load::Cpu { parallelism: 1, execution_ns: 20 * US, pause_ns: 80 * US }, ..reads("cpu", 0) },
        JobSpec { op: Op::Flush, load: Load::uniform(100.0), ..reads("flush", 0) },
    ]);
    mixed.shards = shards(2);
    mixed.shards[1].poll_interval_ns = Some(50 * US);
    mixed.disks = vec![disk(), unlimited_disk()];
    mixed.duration_ns = 100 * MS;
    mixed
}

#[test]
fn every_request_ends_once_or_is_still_there() {
    let mut spec = mixed();
    spec.disks[1].max_requests = 1;
    spec.actions.push(Action { at_ns: 50 * MS, change: Change::RemoveClass { class: "open".into() } });
    let mut seen = [0_u64; 6];
    let report = run_logged(&spec, &mut |event| seen[event.kind as usize] += 1).unwrap();
    let totals = report.totals;
    assert_eq!(totals.sent, totals.finished + totals.refused + totals.cancelled + totals.outstanding, "{totals:?}");
    let seen = |kind: EventKind| seen[kind as usize];
    assert_eq!(seen(EventKind::Finish), totals.finished);
    assert_eq!(seen(EventKind::Enqueue) + seen(EventKind::Refuse), totals.sent);
    assert_eq!((seen(EventKind::Refuse), seen(EventKind::Cancel)), (totals.refused, totals.cancelled));
    assert!(
        totals.refused > 0 && totals.cancelled > 0 && totals.outstanding > 0 && totals.finished > 1_000,
        "{totals:?}"
    );
    let of_jobs: u64 = report.jobs.iter().map(|job| job.total.requests).sum();
    let of_classes: u64 = report.classes.iter().map(|class| class.requests).sum();
    assert_eq!(of_jobs, totals.finished);
    // Requests that the removed class had in the device are no longer counted under it.
    assert!(of_classes <= of_jobs && of_jobs - of_classes < 200, "{of_classes} of {of_jobs}");
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_seed_others() {
    let spec = mixed();
    let first = run(&spec).unwrap();
    let mut events = 0;
    let logged = run_logged(&spec, &mut |_| events += 1).unwrap();
    let observed = run_observed(&spec, &mut |_| ()).unwrap();
    assert_eq!((first.log_hash, first.events), (logged.log_hash, logged.events));
    assert_eq!((first.log_hash, first.events), (observed.log_hash, observed.events));
    assert_eq!(events, first.events);
    let other = run(&WorldSpec { seed: 2, ..spec }).unwrap();
    assert_ne!(first.log_hash, other.log_hash);
}

#[test]
fn events_come_in_order_of_time() {
    let mut last_ns = 0;
    run_logged(&mixed(), &mut |event| {
        assert!(event.at_ns >= last_ns, "{event:?} after {last_ns}");
        last_ns = event.at_ns;
    })
    .unwrap();
    assert!(last_ns > 99 * MS);
}

#[test]
fn what_is_counted_begins_after_the_warm_up() {
    let mut spec = mixed();
    let all = run(&spec).unwrap();
    (spec.warmup_ns, spec.duration_ns) = (spec.duration_ns / 2, spec.duration_ns / 2);
    let half = run(&spec).unwrap();
    assert_eq!(all.log_hash, half.log_hash, "counting changes nothing");
    for (all, half) in all.classes.iter().zip(&half.classes).filter(|(all, _)| all.requests > 200) {
        assert_near(half.requests as f64, all.requests as f64 / 2.0, 15.0, &all.name);
    }
}

#[test]
fn samples_add_up_to_the_report() {
    let spec = WorldSpec { sample_ns: 7 * MS, ..mixed() };
    let (classes, mut at_ns) = (spec.classes.len(), 0);
    let mut sums = vec![(0, 0, 0); 2 * classes];
    let mut device_areas = [0.0; 2];
    let report = run_observed(&spec, &mut |sample| {
        at_ns += sample.interval_ns;
        assert_eq!((sample.at_ns, sample.classes.len(), sample.disks.len()), (at_ns, 2 * classes, 2));
        for (sum, class) in sums.iter_mut().zip(&sample.classes) {
            *sum = (sum.0 + class.requests, sum.1 + class.bytes, sum.2 + class.device_time_ns);
        }
        for (area, disk) in device_areas.iter_mut().zip(&sample.disks) {
            *area += disk.mean_in_device * sample.interval_ns as f64;
        }
    })
    .unwrap();
    assert_eq!(at_ns, spec.duration_ns);
    for (sum, class) in sums.iter().zip(&report.classes) {
        assert_eq!((sum.0, sum.1), (class.requests, class.bytes), "{}", class.name);
        assert!(sum.2.abs_diff(class.device_time_ns) < 1_000, "{}: {} {}", class.name, sum.2, class.device_time_ns);
    }
    for (area, disk) in device_areas.iter().zip(&report.disks) {
        assert_near(area / spec.duration_ns as f64, disk.mean_in_device, 0.01, "pieces in the device");
    }
}

#[test]
fn a_sample_is_of_the_warm_up_or_of_the_measured_time() {
    // The warm-up ends between two samples.
    let mut spec = world(vec![reads("a", 8)]);
    (spec.warmup_ns, spec.duration_ns, spec.sample_ns) = (25 * MS, 40 * MS, 10 * MS);
    spec.shards[0].cpu_per_request_ns = 1_000;
    let (mut samples, mut measured_ns) = (Vec::new(), 0);
    let report = run_observed(&spec, &mut |sample| samples.push(sample.clone())).unwrap();
    for sample in &samples {
        let of = |ns: u64| ns as f64 / sample.interval_ns as f64;
        let at = format!("at {} ns", sample.at_ns);
        assert_near(sample.disks[0].mean_in_device, report.disks[0].mean_in_device, 5.0, &at);
        assert_near(of(sample.classes[0].device_time_ns), report.disks[0].utilisation, 5.0, &at);
        assert_near(of(sample.shards[0].cpu_ns), report.shards[0].cpu_ns as f64 / (40 * MS) as f64, 5.0, &at);
        measured_ns += if sample.is_warmup { 0 } else { sample.interval_ns };
    }
    assert_eq!(measured_ns, spec.duration_ns);
}

/// Checks that a good world, changed by `spoil`, is refused with a message that contains `part`.
#[track_caller]
fn refused(part: &str, spoil: impl FnOnce(&mut WorldSpec)) {
    let mut spec = world(vec![reads("a", 1)]);
    spoil(&mut spec);
    let error = run(&spec).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn worlds_that_cannot_be_are_refused_by_name() {
    refused("duration_ns", |w| w.duration_ns = 0);
    refused("sample_ns", |w| w.sample_ns = 0);
    refused("2^63", |w| w.warmup_ns = u64::MAX);
    refused("0 shards", |w| w.shards.clear());
    refused("nothing ever happens", |w| w.jobs.clear());
    refused("nothing ever happens", |w| w.jobs[0].start_ns = None);
    refused("job \"a\"", |w| w.jobs.push(w.jobs[0].clone()));
    refused("class \"a\"", |w| w.classes.push(w.classes[0].clone()));
    refused("job \"a\" names class \"b\"", |w| w.jobs[0].class = "b".into());
    refused("\"a\" is a group", |w| w.classes[0].is_group = true);
    refused("class \"b\" names group \"a\"", |w| w.classes.push(ClassSpec::new("b", 1).in_group("a")));
    refused("0 shares", |w| w.classes[0].shares = 0);
    let waits = Qos { max_wait_ns: Some(1), ..Qos::default() };
    let group = ClassSpec::group("g", 1);
    refused("class \"g\": a group has shares, limits and a reservation only, not a longest wait", |w| {
        w.classes.push(ClassSpec { qos: waits, ..group.clone() });
    });
    refused("a group has shares, limits and a reservation only, not a longest wait", |w| {
        w.classes.push(group.clone());
        w.actions.push(Action { at_ns: 1, change: Change::SetQos { class: "g".into(), qos: waits } });
    });
    refused("job \"a\": it runs on no shard", |w| w.jobs[0].shards = ShardSet::List(Vec::new()));
    refused("names shard \"1\"", |w| w.jobs[0].shards = ShardSet::List(vec![1]));
    refused("named twice", |w| w.jobs[0].shards = ShardSet::List(vec![0, 0]));
    refused("names disk \"1\"", |w| w.jobs[0].disk = 1);
    refused("parallelism is 0", |w| w.jobs[0].load = Load::closed(0));
    refused("requests_per_s", |w| w.jobs[0].load = Load::uniform(0.0));
    refused("requests_per_s", |w| w.jobs[0].load = Load::poisson(f64::NAN));
    refused("nothing to replay", |w| w.jobs[0].load = Load::Replay(Vec::new()));
    let arrival = |at_ns, len_bytes| Arrival { at_ns, op: Op::Read, offset_bytes: 0, len_bytes };
    refused("ascend", |w| w.jobs[0].load = Load::Replay(vec![arrival(2, 512), arrival(1, 512)]));
    refused("no length", |w| w.jobs[0].load = Load::Replay(vec![arrival(2, 0)]));
    refused("does not fit", |w| w.jobs[0].region = Region { len_bytes: 4095, ..w.jobs[0].region });
    refused("every size", |w| w.jobs[0].sizes = SizeDist::Fixed(0));
    refused("every size", |w| w.jobs[0].sizes = SizeDist::Weighted(Vec::new()));
    refused("disk 0: 2 I/O queues", |w| w.disks[0].num_io_queues = Some(2));
    refused("disk 0: 0 I/O queues", |w| w.disks[0].num_io_queues = Some(0));
    refused("another NUMA node", |w| {
        w.shards = vec![ShardSpec::default(), ShardSpec { numa_node: 1, ..ShardSpec::default() }];
        w.disks[0].num_io_queues = Some(1);
    });
    refused("max_requests", |w| w.disks[0].max_requests = 0);
    refused("disk 0", |w| w.disks[0].device.rates.read_iops = 0.0);
    refused("shard 0", |w| w.shards[0].poll_interval_ns = Some(0));
    refused("shard 0", |w| w.shards[0].hog = Some(Hog { busy_ns: 0, pause_ns: 1 }));
    let at_1 = |change| vec![Action { at_ns: 1, change }];
    refused("the action at 1 ns names job \"b\"", |w| w.actions = at_1(Change::StopJob { job: "b".into() }));
    refused("class \"b\"", |w| w.actions = at_1(Change::RemoveClass { class: "b".into() }));
    refused("0 shares", |w| w.actions = at_1(Change::SetShares { class: "a".into(), shares: 0 }));
}

#[test]
fn a_world_with_cpu_work_alone_needs_neither_disk_nor_class() {
    let load = Load::Cpu { parallelism: 2, execution_ns: 300 * US, pause_ns: 100 * US };
    let job = JobSpec { load, ..reads("spin", 0) };
    let report = run(&WorldSpec { jobs: vec![job], duration_ns: S, ..WorldSpec::default() }).unwrap();
    // Two fibers that want 3/4 of the CPU each have all of it between them.
    assert_eq!(report.jobs[0].total.slices, 3_334);
    assert_near(report.shards[0].cpu_ns as f64, 1e9, 0.1, "CPU time");
    assert_eq!(report.totals.sent, 0);
}

#[test]
fn a_world_can_be_steered_by_what_is_seen_of_it() {
    let mut spec = world(vec![reads("left", 64), reads("right", 64)]);
    (spec.warmup_ns, spec.duration_ns, spec.sample_ns) = (0, 200 * MS, 10 * MS);
    let mut bytes = [[0; 2]; 2];
    run_steered(&spec, &mut |sample| {
        let half = usize::from(sample.at_ns > 100 * MS);
        (0..2).for_each(|class| bytes[half][class] += sample.classes[class].bytes);
        let turns = sample.at_ns == 100 * MS;
        let change = turns.then(|| Change::SetShares { class: "left".into(), shares: spec.classes[1].shares * 3 });
        change.into_iter().collect()
    })
    .unwrap();
    let [before, after] = bytes.map(|[left, right]| left as f64 / right as f64);
    assert!((0.95..1.05).contains(&before) && (2.8..3.2).contains(&after), "{before}, then {after}");

    let unknown = run_steered(&spec, &mut |_| vec![Change::StopJob { job: "nobody".into() }]);
    assert!(unknown.unwrap_err().to_string().contains("nobody"));
}
