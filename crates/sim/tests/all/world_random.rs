//! Random worlds, each from a seed: with any mix of disks, classes, jobs and faults, every request ends exactly once,
//! the device never holds more than it may, and the same seed gives the same events.
//!
//! A few seeds run always; `PLIMSOLL_SEEDS=1000..2000` runs others.

mod make;

use crate::seeds;
use std::collections::BTreeMap;

use plimsoll_core::{Disk, LatencyGoal, Op};
use plimsoll_sim::report::{Sample, WorldReport};
use plimsoll_sim::workload::{JobSpec, Load};
use plimsoll_sim::world::{DiskMode, Event, EventKind, SimDisk, WorldSpec, run as run_again, run_logged, run_observed};

/// The events of one request so far.
#[derive(Default)]
struct Seen {
    pieces_out: u32,
    pieces_back: u32,
    len_bytes: u32,
    moved_bytes: u64,
    has_ended: bool,
}

/// Follows every request from its queue to its end.
#[derive(Default)]
struct Ledger {
    requests: BTreeMap<u64, Seen>,
    now_ns: u64,
    ended: u64,
}

impl Ledger {
    fn note(&mut self, event: &Event) {
        assert!(event.at_ns >= self.now_ns, "time runs backwards: {event:?}");
        self.now_ns = event.at_ns;
        if event.kind == EventKind::Enqueue {
            let seen = Seen { len_bytes: event.len_bytes, ..Seen::default() };
            assert!(self.requests.insert(event.key, seen).is_none(), "queued twice: {event:?}");
            return;
        }
        if event.kind == EventKind::Refuse {
            assert!(!self.requests.contains_key(&event.key), "queued and refused: {event:?}");
            return;
        }
        let seen = self.requests.get_mut(&event.key).unwrap_or_else(|| panic!("never queued: {event:?}"));
        assert!(!seen.has_ended, "it has ended before: {event:?}");
        match event.kind {
            EventKind::Dispatch => seen.pieces_out += 1,
            EventKind::Complete => {
                seen.pieces_back += 1;
                seen.moved_bytes += u64::from(event.len_bytes);
                assert!(seen.pieces_back <= seen.pieces_out, "back before it went: {event:?}");
                let is_too_much = event.op.is_transfer() && seen.moved_bytes > u64::from(seen.len_bytes);
                assert!(!is_too_much, "more moved than was asked: {event:?}");
            }
            EventKind::Finish | EventKind::Cancel => {
                assert_eq!(seen.pieces_out, seen.pieces_back, "a piece is still in the device: {event:?}");
                assert!(event.kind == EventKind::Cancel || seen.pieces_out > 0, "ended unsent: {event:?}");
                seen.has_ended = true;
                self.ended += 1;
            }
            EventKind::Enqueue | EventKind::Refuse => {}
        }
    }
}

/// Returns the most device time that a disk may hold, in nanoseconds: its bound, and twice the longest piece or a
/// quarter of the bound, which an urgent class may add.
fn most_in_device_ns(spec: &WorldSpec, number: usize) -> u64 {
    let disk = Disk::new(spec.disks[number].config.clone());
    let jobs = spec.jobs.iter().filter(|job| job.disk == number);
    let piece_ns = |op: Op, len_bytes: u32| {
        let most = match disk.config().latency_goal {
            LatencyGoal::NoSplit => len_bytes,
            LatencyGoal::Ns(_) => len_bytes.min(disk.piece_max_bytes(op.direction())),
        };
        disk.cost(op, if op.is_transfer() { most } else { len_bytes }).as_fs() / 1_000_000 + 1
    };
    let longest_of = |job: &JobSpec| match &job.load {
        Load::Replay(arrivals) => arrivals.iter().map(|a| piece_ns(a.op, a.len_bytes)).max().unwrap_or(0),
        _ => piece_ns(job.op, job.sizes.largest_bytes()),
    };
    let longest_ns = jobs.map(longest_of).max().unwrap_or(0);
    disk.bound_ns() + 2 * longest_ns.max(disk.bound_ns() / 4)
}

fn check_sample(spec: &WorldSpec, bounds_ns: &[u64], sample: &Sample) {
    for (at, disk) in sample.disks.iter().enumerate() {
        let SimDisk { config, mode, num_io_queues, .. } = &spec.disks[at];
        let control = config.control;
        assert!((control.scale_min..=control.scale_max).contains(&disk.capacity_scale), "disk {at}: {disk:?}");
        match mode {
            // The closed loop raises the bound of a disk whose latencies require it.
            DiskMode::Scheduled if !config.duplex && (!control.enabled || config.window_ns.is_some()) => {
                assert!(disk.in_device_ns <= bounds_ns[at], "disk {at}: {disk:?}, at the most {}", bounds_ns[at]);
            }
            DiskMode::Depth { max_io_requests } => {
                let queues = num_io_queues.map_or(spec.shards.len() as u32, u32::from);
                assert!(disk.in_device <= (*max_io_requests).max(queues), "disk {at}: {disk:?}");
            }
            _ => {}
        }
    }
}

fn check_report(report: &WorldReport, ledger: &Ledger) {
    let totals = report.totals;
    assert_eq!(totals.outstanding, 0, "some never ended: {totals:?}");
    assert_eq!(totals.sent, totals.finished + totals.refused + totals.cancelled, "{totals:?}");
    assert_eq!(ledger.ended, totals.finished + totals.cancelled, "{totals:?}");
    assert!(ledger.requests.values().all(|seen| seen.has_ended));
}

/// Runs one world. Returns the number of its requests.
fn run(seed: u64) -> u64 {
    let (spec, load_ns) = make::world(seed);
    let mut ledger = Ledger::default();
    let logged = run_logged(&spec, &mut |event| ledger.note(event)).unwrap_or_else(|error| panic!("{error}: {spec:?}"));
    check_report(&logged, &ledger);
    let bounds_ns: Vec<u64> = (0..spec.disks.len()).map(|number| most_in_device_ns(&spec, number)).collect();
    // The part under load is sampled more often.
    let loaded = WorldSpec { duration_ns: load_ns, ..spec.clone() };
    run_observed(&loaded, &mut |sample| check_sample(&spec, &bounds_ns, sample)).unwrap();
    if seed.is_multiple_of(4) {
        let again = run_again(&spec).unwrap();
        assert_eq!((logged.log_hash, logged.totals), (again.log_hash, again.totals), "the same seed does the same");
    }
    logged.totals.sent
}

#[test]
fn whatever_comes_together_every_request_ends_once() {
    let mut requests = 0;
    let worlds = seeds::each(60, |seed| requests += run(seed));
    println!("{worlds} worlds, {requests} requests");
    assert!(requests > 50 * worlds || worlds < 20, "worlds with nothing to do: {requests}");
}
