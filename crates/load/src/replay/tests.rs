//! Replays on backends without a disk. Times are bounds that a slow machine keeps as well.

use std::io::Write as _;

use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::{Backend, OpenOptions, memory::MemoryBackend};
use plimsoll::core::Op;
use plimsoll::core::trace::{Event, EventKind};
use plimsoll::trace::format::{ClassName, Clock, Names, Writer};
use plimsoll::{Classes, DiskSetup};

use super::*;

/// A request: shard, class, operation, offset and length, when it was queued, and its latency.
type Story = (u16, u16, Op, u64, u32, u64, u64);

/// Returns the trace of a program with classes `db` and `log`, a file each.
fn trace(stories: &[Story]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut names = Names::default();
    for (number, name) in [(1, "db"), (2, "log")] {
        names.classes.insert(number, ClassName { name: name.to_owned(), shares: 100 * u32::from(number) });
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, Clock::Virtual, 0).unwrap();
    writer.names(&names).unwrap();
    for (request, (shard, class, op, offset_bytes, len_bytes, queued_ns, latency_ns)) in
        (1..).zip(stories.iter().copied())
    {
        let event = |kind, time_ns| Event {
            time_ns,
            request,
            offset_bytes,
            len_bytes,
            detail: if kind == EventKind::Queued { class.into() } else { 0 },
            class,
            disk: 0,
            piece: 0,
            kind,
            op,
            reason: None,
        };
        let end_ns = queued_ns + latency_ns;
        let way = [
            event(EventKind::Queued, queued_ns),
            event(EventKind::Dispatched, queued_ns),
            event(EventKind::Submitted, queued_ns),
            event(EventKind::Completed, end_ns),
            event(EventKind::Reaped, end_ns),
            event(EventKind::Finished, end_ns),
            event(EventKind::Callback, end_ns),
        ];
        writer.events(shard, 0, &way).unwrap();
    }
    drop(writer);
    file.write_all(&bytes).unwrap();
    file
}

/// Returns a plan with both classes, on a file of 1 MiB in memory.
fn plan(file: &tempfile::NamedTempFile, shards: u16, speed: Speed) -> ReplayPlan {
    let classes = Classes::new();
    let names = ["db", "log"];
    let lanes =
        names.map(|name| ReplayClass { name: name.to_owned(), class: classes.add_class(name, None, 100).unwrap() });
    let topology = Topology::new(shards, classes, vec![DiskSetup::unlimited()]).unwrap();
    let how = OpenOptions { write: true, direct: true, ..OpenOptions::default() };
    let mut backend = MemoryBackend::new(topology.memory()).unwrap();
    let (made, _) = backend.open("f".as_ref(), &OpenOptions { create_new: true, ..how.clone() }).unwrap();
    backend.set_file_len(made, 1 << 20).unwrap();
    ReplayPlan {
        trace: file.path().to_owned(),
        survey: Arc::new(Survey::read(file.path()).unwrap()),
        speed,
        classes: lanes.to_vec(),
        class_at: [(1, 0), (2, 1)].into_iter().collect(),
        reads_only: false,
        duration_ns: None,
        files: (0..shards).map(|_| topology.file("f".as_ref(), how.clone(), 0)).collect(),
        topology,
        options: ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() },
        target_bytes: 1 << 20,
        seed: 1,
    }
}

/// Returns a read of 4 KiB in class `db` every 100 us for 20 ms, each with a latency of 50 us.
fn steady() -> Vec<Story> {
    (0..200).map(|n| (0, 1, Op::Read, 4096 * (n % 64), 4096, 1_000_000_000 + 100_000 * n, 50_000)).collect()
}

#[test]
fn every_request_comes_at_its_time_or_later() {
    let file = trace(&steady());
    let begin = std::time::Instant::now();
    let replayed = replay(&plan(&file, 1, Speed::Times(1.0)), &Control::default()).unwrap();
    assert!(begin.elapsed().as_nanos() >= 19_900_000, "{:?}", begin.elapsed());
    let job = replayed.run.total("db");
    assert_eq!((job.requests, job.bytes, job.errors), (200, 200 * 4096, 0));
    assert!(job.elapsed_ns >= 19_900_000, "{}", job.elapsed_ns);
    let intervals: u64 = job.intervals.iter().map(|interval| interval.requests).sum();
    assert!(intervals == 200 && job.intervals.iter().all(|interval| interval.length_ns > 0), "{:?}", job.intervals);
    assert_eq!((replayed.totals.issued, replayed.totals.unordered, replayed.totals.not_reached), (200, 0, 0));
    let [db, log] = replayed.counts.as_slice() else { panic!("{:?}", replayed.counts.len()) };
    assert_eq!((db.lateness.count(), log.lateness.count()), (200, 0));
    assert_eq!((db.original.count(), db.original.max()), (200, 50_000));
    // Latency counts from the due time, so a late send shows in it.
    assert!(db.replayed.max() >= db.lateness.max(), "{} {}", db.replayed.max(), db.lateness.max());
}

#[test]
fn speed_stretches_the_time() {
    for (text, least_ns) in [("0.5", 39_800_000), ("4", 4_975_000), ("max", 0)] {
        let replayed = replay(&plan(&trace(&steady()), 1, Speed::parse(text).unwrap()), &Control::default()).unwrap();
        let job = replayed.run.total("db");
        assert!(job.requests == 200 && job.elapsed_ns >= least_ns, "{text}: {} {}", job.requests, job.elapsed_ns);
    }
    for bad in ["", "0", "-1", "nan", "inf", "fast", "1e9"] {
        assert!(Speed::parse(bad).unwrap_err().contains("or `max`"), "{bad}");
    }
}

#[test]
fn classes_shards_and_operations_are_those_of_the_trace() {
    let stories = [
        (0, 1, Op::Read, 0, 4096, 10, 5),
        (1, 2, Op::Write, 0, 8192, 20, 5),
        (1, 2, Op::Flush, 0, 0, 30, 5),
        (2, 1, Op::Read, 65_536, 4096, 40, 5),
        (3, 2, Op::Allocate, 0, 4096, 50, 5),
        (3, 2, Op::Write, 0, 0, 60, 5),
    ];
    let file = trace(&stories);
    let control = Control::default();
    let replayed = replay(&plan(&file, 2, Speed::Max), &control).unwrap();
    let requests = |shard: usize, job: usize| replayed.run.shards[shard].jobs[job].requests;
    // Shards 0 and 2 of the trace are shard 0 here, 1 and 3 are shard 1.
    assert_eq!([requests(0, 0), requests(0, 1), requests(1, 0), requests(1, 1)], [2, 0, 0, 2]);
    assert_eq!((replayed.totals.issued, replayed.totals.not_replayable), (4, 2));
    assert_eq!((control.traffic.read_bytes(), control.traffic.written_bytes()), (8192, 8192));
    let log = &replayed.run.shards[1].jobs.iter().find(|job| job.name == "log").unwrap();
    assert_eq!((log.flushes.requests, log.directions.as_ref().unwrap().writes.requests), (1, 1));
}

#[test]
fn what_may_not_be_written_is_left_out() {
    let stories = [
        (0, 1, Op::Read, 0, 4096, 10, 5),
        (0, 1, Op::Write, 0, 4096, 20, 5),
        (0, 1, Op::Flush, 0, 0, 30, 5),
        (0, 1, Op::Discard, 0, 4096, 40, 5),
    ];
    let file = trace(&stories);
    let control = Control::default();
    let reads = replay(&ReplayPlan { reads_only: true, ..plan(&file, 1, Speed::Max) }, &control).unwrap();
    assert_eq!((reads.totals.issued, reads.totals.not_allowed, control.traffic.written_bytes()), (1, 3, 0));
    let control = Control::default().with_write_bound(Some(4095));
    let bounded = replay(&plan(&file, 1, Speed::Max), &control).unwrap();
    assert_eq!((bounded.totals.not_reached, control.traffic.written_bytes()), (1, 0));
    assert!(control.traffic.is_write_bound_reached());
}

#[test]
fn requests_go_round_the_end_of_a_short_target() {
    let stories: Vec<Story> =
        (0..100).map(|n| (0, 1, Op::Read, n * 100_000, if n == 7 { 3 << 20 } else { 5000 }, 10 * n, 5)).collect();
    let replayed = replay(&plan(&trace(&stories), 1, Speed::Max), &Control::default()).unwrap();
    let job = replayed.run.total("db");
    assert_eq!((job.requests, job.errors), (100, 0), "{:?}", job.first_error);
    assert!(replayed.totals.wrapped >= 85 && replayed.totals.cut == 1, "{:?}", replayed.totals);
}

#[test]
fn a_stop_ends_it_and_a_duration_too() {
    // The second request is due in an hour.
    let stories = [(0, 1, Op::Read, 0, 4096, 10, 5), (0, 1, Op::Read, 0, 4096, 3_600_000_000_000, 5)];
    let file = trace(&stories);
    let replayed =
        replay(&ReplayPlan { duration_ns: Some(5_000_000), ..plan(&file, 1, Speed::Times(1.0)) }, &Control::default());
    let totals = replayed.unwrap().totals;
    assert_eq!((totals.issued, totals.not_reached), (1, 1));
    let control = Control::default();
    control.stop.ask();
    let totals = replay(&plan(&file, 1, Speed::Times(1.0)), &control).unwrap().totals;
    assert_eq!(totals.issued, 0);
}

/// The trace is another file when it is read again.
#[test]
fn an_error_of_the_second_reading_is_one_of_the_replay_whatever_its_duration() {
    for duration_ns in [None, Some(3_600_000_000_000)] {
        let file = trace(&steady());
        let plan = ReplayPlan { duration_ns, ..plan(&file, 2, Speed::Times(1.0)) };
        std::fs::write(file.path(), "no trace").unwrap();
        let error = replay(&plan, &Control::default()).unwrap_err().to_string();
        assert!(error.contains("this is no trace"), "{duration_ns:?}: {error}");
    }
}

#[test]
fn a_shard_that_cannot_begin_ends_the_replay_and_nothing_else_under_its_control() {
    let file = trace(&[(0, 1, Op::Read, 0, 4096, 10, 5), (0, 1, Op::Read, 0, 4096, 3_600_000_000_000, 5)]);
    let mut plan = plan(&file, 2, Speed::Times(1.0));
    // The second shard has no file; the first has an hour of work.
    plan.files.truncate(1);
    let control = Control::default();
    let error = replay(&plan, &control).unwrap_err().to_string();
    assert!(error.contains("no file for a shard") && !control.stop.is_asked(), "{error}");
}

#[test]
fn more_than_the_channels_hold_is_dealt_to_shards_that_are_not_alike() {
    // One shard has nearly all requests; the other's few are spread among them.
    let story = |n: u64| (u16::from(n.is_multiple_of(1000)), 1, Op::Read, 4096 * (n % 64), 4096, 10 * n, 5);
    let stories: Vec<Story> = (1..=30_000).map(story).collect();
    let replayed = replay(&plan(&trace(&stories), 2, Speed::Max), &Control::default()).unwrap();
    assert_eq!((replayed.totals.issued, replayed.run.shards[1].jobs[0].requests), (30_000, 30));
}

#[test]
fn traces_without_requests_are_refused_with_a_reason() {
    let empty = trace(&[]);
    let error = Survey::read(empty.path()).unwrap_err().to_string();
    assert!(error.contains("no request in its 0 events"), "{error}");
    let mut cut = tempfile::NamedTempFile::new().unwrap();
    let text = "8,0 1 3 0.000003 9 C R 4096 + 8 [0]\n8,0 1 4 0.000004 9 C R 8192 + 8 [0]\n";
    cut.write_all(text.as_bytes()).unwrap();
    let error = Survey::read(cut.path()).unwrap_err().to_string();
    assert!(error.contains("nothing to replay"), "{error}");
    assert!(Survey::read("-".as_ref()).unwrap_err().to_string().contains("twice"));
    assert!(Survey::read("/nonexistent".as_ref()).unwrap_err().to_string().starts_with("/nonexistent: cannot open"));
}

#[test]
fn a_kernel_trace_is_replayed_as_well() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "8,0 1 1 0.000001 9 Q R 2048 + 8 [db]\n8,0 1 2 0.000002 9 Q W 4096 + 8 [log]\n\
                8,0 1 3 0.000003 9 D R 2048 + 8 [db]\n8,0 1 4 0.000004 9 D W 4096 + 8 [log]\n\
                8,0 1 5 0.000015 0 C W 4096 + 8 [0]\n8,0 1 6 0.000041 0 C R 2048 + 8 [0]\n";
    file.write_all(text.as_bytes()).unwrap();
    let survey = Survey::read(file.path()).unwrap();
    assert_eq!((survey.counts.given, survey.sums.reads, survey.span_ns()), (2, 1, 1_000));
    let mut plan = plan(&file, 1, Speed::Times(1.0));
    plan.class_at = survey
        .sums
        .classes
        .keys()
        .map(|number| (*number, usize::from(survey.trace.class_name(*number) == "log")))
        .collect();
    let replayed = replay(&plan, &Control::default()).unwrap();
    assert_eq!((replayed.run.total("db").requests, replayed.run.total("log").requests), (1, 1));
    assert_eq!(replayed.counts[0].original.max(), 40_000);
}
