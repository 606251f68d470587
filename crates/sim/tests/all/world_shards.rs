//! Shards and disks: starved CPUs, polls, messages, many shards, faults.

use crate::common::world::*;
use plimsoll_core::Op;
use plimsoll_sim::device::{FaultKind, FaultWindow};
use plimsoll_sim::workload::{JobSpec, Load, ShardSet, SizeDist};
use plimsoll_sim::world::{Action, Change, DiskMode, EventKind, Hog, ShardSpec, run, run_logged};

#[test]
fn a_starved_shard_handles_events_only_between_slices() {
    let hog = Hog { busy_ns: 550 * US, pause_ns: 50 * US };
    let mut spec = world(vec![reads("a", 4)]);
    spec.shards = shards(2);
    spec.shards[1] = ShardSpec { hog: Some(hog), start_offset_ns: 100 * US, ..ShardSpec::default() };
    let mut seen = 0;
    let report = run_logged(&spec, &mut |event| {
        if event.shard == 1 {
            let phase_ns = (event.at_ns - 100 * US) % (600 * US);
            assert!(phase_ns == 0 || phase_ns >= 550 * US, "{event:?}");
            seen += 1;
        }
    })
    .unwrap();
    assert!(seen > 1_000, "{seen}");
    let by_shard = &report.class("a", 0).unwrap().by_shard;
    assert!(by_shard[0].iops > 5.0 * by_shard[1].iops);
    // It sees late what the device has done long since; half of the time that it has waited for its CPU counts.
    assert!(by_shard[1].device.p50_ns > 250 * US, "{}", by_shard[1].device.p50_ns);
}

#[test]
fn a_shard_that_polls_sees_things_at_its_polls() {
    let mut spec = world(vec![reads("a", 4)]);
    spec.shards = vec![ShardSpec { poll_interval_ns: Some(250 * US), ..ShardSpec::default() }];
    let report = run_logged(&spec, &mut |event| assert_eq!(event.at_ns % (250 * US), 0, "{event:?}")).unwrap();
    // Four requests at each poll.
    assert_eq!(report.totals.finished, 4 * (2_000 - 1));
}

#[test]
fn cpu_time_bounds_what_a_shard_can_do() {
    let mut spec = world(vec![reads("a", 64)]);
    spec.shards = vec![ShardSpec { cpu_per_request_ns: 10 * US, ..ShardSpec::default() }];
    let report = run(&spec).unwrap();
    assert_near(report.disks[0].iops, 50_000.0, 1.0, "two times 10 us each");
    assert_near(report.shards[0].cpu_ns as f64, spec.duration_ns as f64, 1.0, "CPU time");
}

#[test]
fn cpu_slices_delay_io_but_io_is_looked_at_between_them() {
    let spin = JobSpec { load: Load::Cpu { parallelism: 1, execution_ns: 550 * US, pause_ns: 0 }, ..reads("spin", 0) };
    let mut spec = world(vec![reads("a", 1)]);
    spec.jobs.push(spin);
    spec.duration_ns = 550 * MS;
    let report = run(&spec).unwrap();
    assert_eq!(report.job("spin").unwrap().total.slices, 1_000);
    assert_eq!(report.job("a").unwrap().total.requests, 999);
}

#[test]
fn a_hundred_and_ninety_two_shards_share_a_disk() {
    let mut spec = world(vec![reads("a", 2), reads("b", 2)]);
    spec.shards = shards(192);
    spec.duration_ns = 200 * MS;
    let report = run(&spec).unwrap();
    assert_eq!(report.class("a", 0).unwrap().by_shard.len(), 192);
    assert_near(report.disks[0].iops, IOPS as f64, 10.0, "the disk is used");
    let (a, b) = (report.class("a", 0).unwrap(), report.class("b", 0).unwrap());
    assert_near(a.iops, b.iops, 5.0, "equal shares");
    let delays = a.by_shard.iter().map(|on| on.queue.mean_ns);
    assert_eq!(a.delay_ns, delays.fold(0.0, f64::max), "delay is that of the worst shard");
}

#[test]
fn fewer_queues_than_shards_are_reached_by_messages() {
    let mut spec = world(vec![JobSpec { limit_requests: Some(100), ..reads("a", 1) }]);
    spec.shards = shards(6);
    spec.disks[0].num_io_queues = Some(3);
    (spec.message_latency_ns, spec.message_cpu_ns) = (2_000, 100);
    let mut sent_on = [0; 6];
    let report = run_logged(&spec, &mut |event| {
        sent_on[event.shard as usize] += u32::from(event.kind == EventKind::Enqueue);
    })
    .unwrap();
    assert_eq!(sent_on, [200, 0, 200, 0, 200, 0], "coordinators do it for their neighbours");
    let class = report.class("a", 0).unwrap();
    assert_eq!((class.by_shard.len(), class.requests, class.total.count()), (6, 600, 600));
    let [near, far] = [0, 1].map(|shard| report.jobs[0].by_shard[shard].latency.mean_ns);
    assert!(far > near + 3_900.0, "{near} {far}: two messages of 2 us");
    assert_eq!(report.shards[1].cpu_ns, 100 * 2 * 100, "a message out and one back for each request");
}

#[test]
fn shards_at_one_queue_are_served_equally() {
    let mut spec = world(vec![
        JobSpec { shards: ShardSet::List(vec![0]), ..reads("a", 100) },
        JobSpec { name: "a2".into(), shards: ShardSet::List(vec![1]), ..reads("a", 40) },
        reads("b", 50),
    ]);
    spec.classes.remove(1);
    spec.shards = shards(2);
    spec.disks[0].num_io_queues = Some(1);
    spec.warmup_ns = 100 * MS;
    let report = run(&spec).unwrap();
    let (a, b) = (report.class("a", 0).unwrap(), report.class("b", 0).unwrap());
    assert_near(a.iops, b.iops, 2.0, "classes");
    assert_near(a.by_shard[0].iops, a.by_shard[1].iops, 2.0, "shards of a class");
}

#[test]
fn depth_is_divided_over_the_queues() {
    let mut spec = world(vec![reads("a", 50)]);
    spec.shards = shards(4);
    spec.disks[0].mode = DiskMode::Depth { max_io_requests: 20 };
    let report = run(&spec).unwrap();
    assert_eq!(report.disks[0].max_in_device, 20);
    spec.disks[0].mode = DiskMode::Drain;
    assert_eq!(run(&spec).unwrap().disks[0].max_in_device, 200);
}

#[test]
fn faults_surface_in_the_report() {
    let window = FaultWindow { from_ns: 100 * MS, until_ns: 200 * MS, kind: FaultKind::Errors { rate: 1.0, errno: 5 } };
    let mut spec = world(vec![reads("a", 4)]);
    spec.actions = vec![Action { at_ns: 50 * MS, change: Change::InjectFault { disk: 0, window } }];
    let report = run(&spec).unwrap();
    let (class, job) = (report.class("a", 0).unwrap(), &report.jobs[0].total);
    assert_eq!(class.stats.errors, job.errors);
    assert_near(job.errors as f64, job.requests as f64 / 5.0, 10.0, "a fifth of the time");
    assert_eq!(job.bytes, (job.requests - job.errors) * 4096);
}

#[test]
fn short_transfers_are_continued() {
    let mut spec = world(vec![JobSpec { sizes: SizeDist::Fixed(16384), ..reads("a", 4) }]);
    spec.disks[0].device.short_rate = 0.2;
    let report = run(&spec).unwrap();
    let class = report.class("a", 0).unwrap();
    assert!(class.stats.continued > class.requests / 10, "{:?}", class.stats);
    assert_eq!((class.bytes, class.stats.errors), (class.requests * 16384, 0));
}

#[test]
fn hung_requests_stay_outstanding() {
    let window = FaultWindow { from_ns: 0, until_ns: S, kind: FaultKind::Hang { requests: 3, for_ns: None } };
    let mut spec = world(vec![JobSpec { op: Op::Write, ..reads("a", 4) }]);
    spec.disks[0].device.faults.push(window);
    let report = run(&spec).unwrap();
    assert_eq!(report.totals.outstanding, 4);
    assert_near(report.disks[0].mean_in_device, 4.0, 0.1, "pieces in the device");
    assert_eq!(report.totals.sent, report.totals.finished + 4);
}
