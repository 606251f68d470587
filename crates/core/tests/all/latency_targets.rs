//! Latency targets on a device whose latency grows with the rate of the writes: others give way, come back, and where
//! nobody is left to give way the device's failure is said aloud.

use crate::common::{KIB, MS, S, queue_of, usual};
use crate::reference::shards::Shards;
use plimsoll_core::{
    ClassId, ControlConfig, DiskConfig, EventKind, GroupId, LatencyTarget, NodeId, Op, Outcome, Qos, QueueConfig,
    Reservation,
};

/// So much fits into the device that tokens alone hold the writes back, at the model's rate; the device itself could
/// do twice that.
fn far_disk() -> DiskConfig {
    DiskConfig { unloaded_latency_ns: 8 * MS, window_ns: Some(10 * MS), ..usual() }
}

fn target(latency_ns: u64) -> Qos {
    Qos { latency_target: Some(LatencyTarget { latency_ns, quantile: 0.99 }), ..Qos::default() }
}

fn quantile(sorted: &mut [u64], q: f64) -> u64 {
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * q) as usize]
}

/// A light reader beside saturating writes. The device's latency is 100 us and `growth_ns` times the part of its time
/// that went to writes in the last 20 ms, at most.
struct Reader {
    world: Shards,
    reader: ClassId,
    reads: usize,
    writes: usize,
    growth_ns: f64,
}

impl Reader {
    fn new(shards: usize, growth_ns: f64) -> Reader {
        Reader::on(far_disk(), shards, growth_ns)
    }

    fn on(disk: DiskConfig, shards: usize, growth_ns: f64) -> Reader {
        let mut world = Shards::new(disk, shards);
        world.slowness = 0.5;
        let (reader, writer) = (world.class(100), world.class(100));
        let reads = world.steady(0, reader, Op::Read, &[4 * KIB], 200_000);
        let writes = world.backlog(shards - 1, writer, Op::Write, &[64 * KIB], 200);
        Reader { world, reader, reads, writes, growth_ns }
    }

    fn run(&mut self, for_ns: u64) {
        let steps = for_ns / (20 * MS);
        for _ in 0..steps {
            let before = self.world.loads[self.writes].dispatched_fs;
            self.world.run_for(20 * MS);
            let part = (self.world.loads[self.writes].dispatched_fs - before) as f64 / (20e-3 * 1e15);
            self.world.latency_ns = 100_000 + (part * self.growth_ns) as u64;
        }
    }

    /// p99 of the reads and the writes' part of the device, in the next `for_ns`.
    fn measure(&mut self, for_ns: u64) -> (u64, f64) {
        self.world.loads[self.reads].latencies_ns.clear();
        let before = self.world.loads[self.writes].dispatched_fs;
        self.run(for_ns);
        let p99_ns = quantile(&mut self.world.loads[self.reads].latencies_ns, 0.99);
        let part = (self.world.loads[self.writes].dispatched_fs - before) as f64 / 1e15 / (for_ns as f64 / 1e9);
        (p99_ns, part)
    }

    fn happened(&self, kind: EventKind) -> bool {
        self.world.disk.events_since(0).iter().any(|event| event.kind == kind)
    }
}

#[test]
fn others_give_way_until_the_target_is_met_and_keep_what_it_allows() {
    for shards in [1, 2] {
        let mut story = Reader::new(shards, 2e6);
        story.run(S);
        let (p99_ns, part) = story.measure(S);
        assert!(p99_ns > 1_500_000 && part > 0.9, "without a target: {p99_ns} ns, {part}");

        story.world.disk.set_qos(story.reader, target(1_200_000)).unwrap();
        story.world.poll_all();
        story.run(4 * S);
        let (p99_ns, part) = story.measure(6 * S);
        assert!(story.happened(EventKind::OthersGiveWay));
        // 1.2 ms - 0.1 ms of the idle device leave 1.1 ms of 2 ms to growth: about 0.5.
        assert!(part > 0.25, "{shards}: writes keep {part}");
        assert!(p99_ns <= 1_200_000 * 5 / 4, "{shards}: {p99_ns}");
        let missed = story.world.loads[story.reads].latencies_ns.iter().filter(|ns| **ns > 1_200_000).count();
        let all = story.world.loads[story.reads].latencies_ns.len();
        assert!(missed * 20 < all, "{shards}: {missed} of {all} missed");
    }
}

/// What an excursion lets in does not count, but a window that somebody has fixed is none, however wide it is.
#[test]
fn others_give_way_beneath_a_wide_fixed_window_too() {
    let disk = DiskConfig { control: ControlConfig::default(), unloaded_latency_ns: 0, ..far_disk() };
    let mut story = Reader::on(disk, 1, 2e6);
    story.world.disk.set_qos(story.reader, target(1_200_000)).unwrap();
    story.world.poll_all();
    story.run(4 * S);
    assert!(story.happened(EventKind::OthersGiveWay));
}

#[test]
fn a_caller_that_is_late_is_no_reason_for_more_weight() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 100).unwrap();
    queue.disk().set_qos(class, target(MS)).unwrap();
    for at_ns in (S..3 * S).step_by(400_000) {
        queue.enqueue(at_ns, class, Op::Read, 4 * KIB, 0).unwrap();
        let piece = queue.poll_dispatch(at_ns).unwrap();
        // The device takes 66 us, and the caller 2 ms.
        let _ = queue.complete_after(at_ns + 2_066_000, 2 * MS, piece, Outcome::Moved(4 * KIB));
    }
    let events = queue.disk().events_since(0);
    assert!(events.iter().any(|event| event.kind == EventKind::TargetUnreachable), "{events:?}");
    assert!(events.iter().all(|event| event.kind != EventKind::WeightRaised), "{events:?}");
}

#[test]
fn others_come_back_when_the_device_can_do_it_again_and_when_the_target_goes() {
    let mut story = Reader::new(2, 4e6);
    story.world.disk.set_qos(story.reader, target(1_500_000)).unwrap();
    story.world.poll_all();
    story.run(4 * S);
    let (_, low) = story.measure(S);
    assert!(low < 0.6, "{low}");
    story.growth_ns = 2e5;
    story.run(8 * S);
    let (p99_ns, part) = story.measure(S);
    assert!(part > 0.9 && p99_ns < 1_500_000, "{part}, {p99_ns}");
    assert!(story.happened(EventKind::OthersComeBack));
    story.growth_ns = 4e6;
    story.run(4 * S);
    assert!(story.measure(S).1 < 0.6);
    story.world.disk.set_qos(story.reader, Qos::default()).unwrap();
    story.world.poll_all();
    story.run(100 * MS);
    let (_, part) = story.measure(S);
    assert!(part > 0.9, "the target has gone: {part}");
}

#[test]
fn a_target_below_the_idle_device_is_said_to_be_unreachable() {
    let mut story = Reader::new(1, 1e6);
    story.world.disk.set_qos(story.reader, target(50_000)).unwrap();
    story.world.poll_all();
    story.run(4 * S);
    let events = story.world.disk.events_since(0);
    let said = events.iter().filter(|event| event.kind == EventKind::TargetUnreachable).count();
    assert_eq!(said, 1, "once, not each window");
    let (_, part) = story.measure(S);
    assert!(part > 0.0, "nobody is stopped altogether");
}

#[test]
fn the_looser_of_two_targets_gives_way_and_the_tighter_does_not() {
    let mut world = Shards::new(far_disk(), 2);
    world.slowness = 0.5;
    let (tight, loose) = (world.class(100), world.class(100));
    let tight_reads = world.steady(0, tight, Op::Read, &[4 * KIB], 200_000);
    let loose_writes = world.backlog(1, loose, Op::Write, &[64 * KIB], 200);
    world.disk.set_qos(tight, target(1_200_000)).unwrap();
    world.disk.set_qos(loose, target(500 * MS)).unwrap();
    for _ in 0..300 {
        let before = world.loads[loose_writes].dispatched_fs;
        world.run_for(20 * MS);
        let part = (world.loads[loose_writes].dispatched_fs - before) as f64 / 2e13;
        world.latency_ns = 100_000 + (part * 2e6) as u64;
    }
    let of = &world.loads[tight_reads];
    assert!(of.finished + 20 > of.offered, "{} of {}", of.finished, of.offered);
    let part = world.consumed_s(loose_writes) / 6.0;
    assert!((0.2..=0.8).contains(&part), "{part}");
    assert!(world.disk.yielding_share() < 1.0);
}

/// Nobody yields to a class that has been silent for a second: what others use then is no debt when it returns.
#[test]
fn others_do_not_pay_later_for_a_time_in_which_they_need_not_give_way() {
    let mut story = Reader::new(1, 2e6);
    story.world.disk.set_qos(story.reader, target(1_200_000)).unwrap();
    story.world.poll_all();
    story.run(4 * S);
    assert!(story.happened(EventKind::OthersGiveWay));

    story.world.loads[story.reads].next_ns += 30 * S;
    story.run(30 * S);
    story.run(4 * S);
    let (p99_ns, part) = story.measure(6 * S);
    assert!(part > 0.25 && p99_ns <= 1_200_000 * 5 / 4, "{part}, {p99_ns}");
}

/// Classes that yield to a class wait for places; the class itself does not, though it yields to a tighter target.
#[test]
fn the_places_of_others_do_not_hold_back_the_class_to_which_they_yield() {
    let mut story = Reader::new(1, 2e6);
    let tighter = story.world.class(100);
    story.world.disk.set_qos(tighter, target(600_000)).unwrap();
    story.world.disk.set_qos(story.reader, target(1_200_000)).unwrap();
    story.world.poll_all();
    story.run(4 * S);
    let (p99_ns, part) = story.measure(6 * S);
    assert!(story.happened(EventKind::OthersGiveWay));
    assert!(part > 0.25 && p99_ns <= 1_200_000 * 5 / 4, "{part}, {p99_ns}");
}

/// A change of shares ends the waits of those that give way, but not their right to the places for which they have waited.
#[test]
fn changes_of_shares_cost_no_place() {
    let part = |changes: bool| {
        let mut story = Reader::new(1, 4e6);
        story.world.loads[story.writes].lengths_bytes = vec![512 * KIB];
        let other = story.world.class(100);
        story.world.disk.set_qos(story.reader, target(1_500_000)).unwrap();
        story.world.poll_all();
        story.run(6 * S);
        story.world.start_counting();
        for turn in 0..10_000 {
            story.world.run_for(200_000);
            if changes {
                story.world.disk.set_shares(other, 100 + turn % 2).unwrap();
                story.world.poll_all();
            }
        }
        story.world.consumed_s(story.writes) / 2.0
    };
    let (with, without) = (part(true), part(false));
    assert!(with > 0.7 * without, "{with} with changes, {without} without");
}

/// Classes that yield wait for places, on four queues for 150 ms. What is reserved for them or for their group does
/// not.
#[test]
fn what_is_reserved_does_not_wait_for_a_missed_target() {
    for in_group in [false, true] {
        let mut story = Reader::new(4, 1e6);
        let world = &mut story.world;
        // It cannot be met, so the others have 2 % of the device.
        world.disk.set_qos(story.reader, target(50_000)).unwrap();
        let group = world.disk.add_group(GroupId::ROOT, 1).unwrap();
        let class = world.disk.add_class(if in_group { group } else { GroupId::ROOT }, 1).unwrap();
        let qos = Qos { reservation: Reservation { iops: 1_000, bandwidth: 0 }, ..Qos::default() };
        let reserved: NodeId = if in_group { group.into() } else { class.into() };
        world.disk.set_qos(reserved, qos).unwrap();
        let load = world.backlog(0, class, Op::Write, &[4 * KIB], 16);
        let other = world.class(100);
        for shard in 0..4 {
            world.backlog(shard, other, Op::Write, &[2048 * KIB], 16);
        }
        world.poll_all();
        story.run(4 * S);
        story.world.start_counting();
        story.run(S);
        let dispatched = story.world.loads[load].dispatched;
        assert!((980..1_250).contains(&dispatched), "in a group: {in_group}: {dispatched} of 1000");
    }
}
