//! The record of what happens to requests: every station once, in order and at its time; whatever becomes of the request;
//! switched while running; nothing lost that is not counted.

use crate::common::skip::skip;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::nasty::{Faults, Nasty};
use crate::common::{CREATE, all, disk, filled, one_reactor, one_shard, within_reason};
use allocation_counter::measure;
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::sim::{SimConfig, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::trace::EventKind::{
    Blocked, Callback, Cancelled, Completed, Dispatched, Finished, Queued, Reaped, Submitted,
};
use plimsoll::core::trace::{Event, EventKind};
use plimsoll::core::{LatencyGoal, Op, WaitReason};
use plimsoll::trace::format::{Body, Clock, Lost, Names, Reader, Writer};
use plimsoll::trace::{TraceConfig, TraceStartError, TraceSummary, TraceWriter, Tracing};
use plimsoll::{
    Class, Classes, Data, DiskMode, DiskSetup, Done, Gate, Reactor, Request, RequestKind, SharedFile, SimRuntime,
    Topology, TopologyError,
};

const BLOCK: usize = 4096;
const WAY: [EventKind; 7] = [Queued, Dispatched, Submitted, Completed, Reaped, Finished, Callback];

/// A file in memory that ends at some length, as a full disk does.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    most: usize,
}

impl Write for Memory {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        if bytes.len() + data.len() > self.most {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Recording {
    tracing: Tracing,
    memory: Memory,
}

struct Recorded {
    summary: TraceSummary,
    events: Vec<(u16, Event)>,
    names: Names,
    lost: Lost,
}

impl Recording {
    fn start(topology: &Topology, clock: Clock, ring_events: usize) -> Recording {
        Recording::bounded(topology, clock, ring_events, usize::MAX)
    }

    fn bounded(topology: &Topology, clock: Clock, ring_events: usize, most: usize) -> Recording {
        let memory = Memory { bytes: Arc::default(), most };
        let tracing = topology.trace();
        let config = TraceConfig { ring_events, disk_names: vec!["the disk".to_owned()], after_request: 0 };
        tracing.start(writer(&memory, clock), config).unwrap();
        Recording { tracing, memory }
    }

    fn stop(self) -> Recorded {
        let summary = self.tracing.stop().unwrap();
        let bytes = self.memory.bytes.lock().unwrap();
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        let (mut events, mut names) = (Vec::new(), Names::default());
        while let Some(chunk) = reader.next_chunk().unwrap() {
            match chunk.body {
                Body::Events(more) => {
                    let more: Vec<Event> = more.collect();
                    assert!(more.is_sorted_by_key(|event| event.time_ns), "a chunk is in order of time");
                    events.extend(more.into_iter().map(|event| (chunk.shard, event)));
                }
                Body::Names(more) => {
                    names.classes.extend(more.classes);
                    names.files.extend(more.files);
                    names.disks.extend(more.disks);
                }
            }
        }
        let recorded = Recorded { summary, events, names, lost: reader.lost() };
        if recorded.summary.error.is_none() {
            let Recorded { summary, events, lost, .. } = &recorded;
            assert_eq!((summary.events, summary.dropped_events), (events.len() as u64, lost.dropped_events));
            assert_eq!(Lost { dropped_events: 0, ..*lost }, Lost::default());
        }
        recorded
    }
}

impl Recorded {
    /// Requests of `shard` and their events, without what has no request.
    fn requests(&self, shard: u16) -> BTreeMap<u64, Vec<Event>> {
        let mut requests: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
        for (_, event) in self.events.iter().filter(|(of, event)| *of == shard && event.request > 0) {
            requests.entry(event.request).or_default().push(*event);
        }
        requests
    }
}

fn writer(memory: &Memory, clock: Clock) -> TraceWriter {
    let out: Box<dyn Write + Send> = Box::new(memory.clone());
    Writer::new(out, clock, 0).unwrap()
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

fn times(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.time_ns).collect()
}

/// A world of one disk, with shards that use it through so many queues, recorded.
fn simulated(
    shards: u16,
    queues: u16,
    disk: DiskSetup,
    ring_events: usize,
) -> (SimWorld, SimRuntime, Topology, Recording) {
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let disk = DiskSetup { num_io_queues: Some(queues), ..disk };
    let topology = Topology::new(shards, Classes::new(), vec![disk]).unwrap();
    let recording = Recording::start(&topology, Clock::Virtual, ring_events);
    (world.clone(), SimRuntime::new(&world, &topology).unwrap(), topology, recording)
}

fn block() -> AlignedBuf {
    AlignedBuf::new(BLOCK).unwrap()
}

#[test]
fn every_station_of_a_request_has_its_exact_time() {
    let (_, runtime, topology, recording) = simulated(1, 1, DiskSetup::unlimited(), 64);
    let class = topology.classes().add_class("query", None, 300).unwrap();
    let file = topology.file("some/file".as_ref(), CREATE, 0);
    let shard = runtime.shard(0).clone();
    let mut ends = Vec::new();
    runtime
        .block_on(0, async {
            for (n, pause_ns) in [(0, 5_000), (3, 77_000), (1, 0)] {
                shard.sleep(Duration::from_nanos(pause_ns)).await;
                let begin_ns = shard.now_ns();
                let offset = n * BLOCK as u64;
                assert_eq!(shard.write_at(&file, class, offset, filled(BLOCK, 1, offset)).await.0.unwrap(), BLOCK);
                ends.push((offset, begin_ns, shard.now_ns()));
            }
        })
        .unwrap();
    let recorded = recording.stop();
    let requests = recorded.requests(0);
    assert_eq!(requests.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    for (events, (offset, begin, end)) in requests.values().zip(ends) {
        assert!(end > begin);
        assert_eq!(kinds(events), WAY);
        assert_eq!(times(events), [begin, begin, begin, end, end, end, end]);
        let file_number = events[0].detail;
        assert_eq!(recorded.names.files[&file_number].path, "some/file");
        for event in events {
            let what = (event.class, event.disk, event.piece, event.op);
            assert_eq!(what, (class.index() as u16, 0, 0, plimsoll::core::Op::Write));
            let has_place = event.kind != Callback;
            assert_eq!((event.offset_bytes, event.len_bytes), if has_place { (offset, 4096) } else { (0, 0) });
        }
        assert_eq!((events[3].detail, events[4].detail, events[5].detail), (0, 0, 0), "not late, no error");
    }
    assert_eq!(recorded.names.classes[&(class.index() as u16)].shares, 300);
    assert_eq!(recorded.names.disks[&0], "the disk");
    assert!(!topology.trace().is_recording());
}

#[test]
fn a_queue_says_why_it_waits_and_for_how_long() {
    // Ten requests a second; two may go at once.
    let (_, runtime, topology, recording) = simulated(1, 1, disk(10, 1 << 40, LatencyGoal::NoSplit), 64);
    let file = topology.file("file".as_ref(), CREATE, 0);
    let shard = runtime.shard(0).clone();
    let writes = (0..6).map(|n| shard.write_at(&file, Class::DEFAULT, n * 4096, filled(BLOCK, 1, n)));
    runtime.block_on(0, all(writes)).unwrap();
    let recorded = recording.stop();
    let events: Vec<Event> = recorded.events.iter().map(|(_, event)| *event).collect();
    let mut waited_for_tokens = 0;
    for blocked in events.iter().filter(|event| event.kind == Blocked && event.reason == Some(WaitReason::Tokens)) {
        assert!(blocked.request == 0 && blocked.detail > 0);
        let next = events.iter().find(|event| event.kind == Dispatched && event.time_ns > blocked.time_ns).unwrap();
        assert_eq!(next.time_ns, blocked.time_ns + u64::from(blocked.detail), "it goes when it was told to go");
        assert_eq!(next.reason, Some(WaitReason::Tokens));
        waited_for_tokens += 1;
    }
    assert!(waited_for_tokens > 0);
    for dispatched in events.iter().filter(|event| event.kind == Dispatched) {
        assert_eq!(dispatched.detail, 100_000_000, "a tenth of a second of device time each");
    }
}

#[test]
fn a_long_request_has_numbered_pieces_one_beginning_and_one_end() {
    let splitting = disk(1_000_000, 1_000_000_000, LatencyGoal::Ns(131_072));
    let (_, runtime, topology, recording) = simulated(1, 1, splitting, 64);
    let file = topology.file("file".as_ref(), CREATE, 0);
    let shard = runtime.shard(0).clone();
    let write = shard.write_at(&file, Class::DEFAULT, 8192, filled(1 << 20, 1, 0));
    assert_eq!(runtime.block_on(0, write).unwrap().0.unwrap(), 1 << 20);
    let requests = recording.stop().requests(0);
    let events = &requests[&1];
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    let pieces = count(Dispatched);
    assert!(pieces > 1);
    for kind in [Submitted, Completed, Reaped] {
        assert_eq!(count(kind), pieces);
    }
    for kind in [Queued, Finished, Callback] {
        assert_eq!(count(kind), 1);
    }
    let (mut offset, dispatched) = (8192, events.iter().filter(|event| event.kind == Dispatched));
    for (number, piece) in (0..).zip(dispatched) {
        assert_eq!((piece.piece, piece.offset_bytes), (number, offset));
        offset += u64::from(piece.len_bytes);
        let way = events.iter().filter(|event| event.piece == number && (2..7).contains(&(event.kind as u8)));
        let kinds: Vec<EventKind> = way.filter(|event| event.kind != Blocked).map(|event| event.kind).collect();
        assert_eq!(&kinds[..4], &WAY[1..5]);
    }
    assert_eq!(offset, 8192 + (1 << 20));
}

#[test]
fn a_cancelled_request_ends_without_having_gone() {
    let (_, runtime, topology, recording) = simulated(1, 1, disk(10, 1 << 40, LatencyGoal::NoSplit), 64);
    let file = topology.file("file".as_ref(), CREATE, 0);
    let shard = runtime.shard(0).clone();
    let (task, own, other) = (shard.clone(), shard.clone(), Arc::clone(&file));
    let first = shard.spawn(async move {
        let writes = (0..8).map(|n| own.write_at(&other, Class::DEFAULT, n * 4096, filled(BLOCK, 1, n)));
        all(writes).await
    });
    let story = async {
        task.sleep(Duration::from_millis(1)).await;
        drop(first);
        task.sleep(Duration::from_secs(5)).await;
    };
    runtime.block_on(0, story).unwrap();
    let requests = recording.stop().requests(0);
    assert_eq!(requests.len(), 8);
    let cancelled: Vec<&Vec<Event>> = requests.values().filter(|events| kinds(events).contains(&Cancelled)).collect();
    assert!(!cancelled.is_empty() && cancelled.len() < 8);
    for events in cancelled {
        assert_eq!(kinds(events), [Queued, Cancelled, Finished, Callback]);
        assert_eq!((events[2].detail, events[2].len_bytes), (libc::ECANCELED as u32, 0));
        assert_eq!(events[1].time_ns, 1_000_000);
    }
}

#[test]
fn errors_have_their_number_and_a_short_transfer_goes_on_as_another_piece() {
    let failing = Faults { error_percent: 100, errno: libc::ENOSPC, ..Faults::default() };
    let (topology, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(failing));
    let recording = Recording::start(&topology, Clock::Monotonic, 64);
    assert!(shard.block_on(shard.write_at(&file, Class::DEFAULT, 0, filled(BLOCK, 1, 0))).unwrap().0.is_err());
    let requests = recording.stop().requests(0);
    assert_eq!(kinds(&requests[&1]), WAY);
    let reaped = requests[&1][4];
    assert_eq!((reaped.detail, reaped.len_bytes, requests[&1][5].detail), (28, 0, 28));

    let short = Faults { short_percent: 100, at_once_percent: 50, busy_percent: 30, ..Faults::default() };
    let (topology, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(short));
    let recording = Recording::start(&topology, Clock::Monotonic, 1024);
    let write = shard.write_at(&file, Class::DEFAULT, 0, filled(1 << 20, 1, 0));
    assert_eq!(shard.block_on(write).unwrap().0.unwrap(), 1 << 20);
    let events = recording.stop().requests(0).remove(&1).unwrap();
    let moved: u32 = events.iter().filter(|event| event.kind == Reaped).map(|event| event.len_bytes).sum();
    let finished = events.iter().find(|event| event.kind == Finished).unwrap();
    assert_eq!((moved, finished.len_bytes, finished.detail), (1 << 20, 1 << 20, 0));
    let pieces = events.iter().filter(|event| event.kind == Dispatched).count();
    assert!(pieces > 1);
    for number in 0..pieces as u16 {
        let way: Vec<EventKind> = events
            .iter()
            .filter(|event| event.piece == number && WAY[1..5].contains(&event.kind))
            .map(|event| event.kind)
            .collect();
        assert_eq!(way, WAY[1..5], "piece {number}");
    }
}

#[test]
fn requests_for_anothers_queue_are_recorded_there() {
    // A machine with several NUMA nodes wants a queue for each.
    let one_queue = DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() };
    match Topology::new(2, Classes::new(), vec![one_queue]) {
        Ok(_) => {}
        Err(error @ TopologyError::FewerQueuesThanNodes { .. }) => return skip(error),
        Err(error) => panic!("{error}"),
    }
    // A ring far too short for all of it: in virtual time nothing is dropped.
    let (_, runtime, topology, recording) = simulated(2, 1, DiskSetup::unlimited(), 16);
    let file = topology.file("file".as_ref(), CREATE, 0);
    for number in [0, 1] {
        let (shard, file) = (runtime.shard(number).clone(), Arc::clone(&file));
        let writes = async move {
            for n in 0..50 {
                let offset = (2 * n + u64::from(number)) * BLOCK as u64;
                shard.write_at(&file, Class::DEFAULT, offset, filled(BLOCK, 1, n)).await.0.unwrap();
            }
        };
        runtime.shard(number).spawn(writes).detach();
    }
    runtime.run_for(Duration::from_secs(1)).unwrap();
    let recorded = recording.stop();
    assert_eq!(recorded.summary.dropped_events, 0);
    assert!(recorded.requests(1).is_empty());
    let requests = recorded.requests(0);
    assert_eq!(requests.len(), 100);
    for events in requests.values() {
        let is_mailed = events[0].offset_bytes / BLOCK as u64 % 2 == 1;
        assert_eq!(kinds(events), &WAY[..if is_mailed { 6 } else { 7 }]);
    }
}

fn batch(reactor: &mut Reactor, file: &Arc<SharedFile>, buffers: &mut Vec<AlignedBuf>, done: &mut Vec<Done>) {
    let count = buffers.len();
    // A shard sees once a turn whether a record has begun.
    reactor.reap(done);
    for tag in 0..count as u64 {
        let (file, data) = (Arc::clone(file), Data::One(buffers.pop().unwrap()));
        let kind = RequestKind::Read { len_bytes: BLOCK as u32 };
        reactor.submit(Request { file, class: Class::DEFAULT, kind, offset: tag * 4096, data, tag }).unwrap();
    }
    while buffers.len() < count {
        reactor.park(None).unwrap();
        reactor.reap(done);
        buffers.extend(
            done.drain(..).filter_map(|end| if let Data::One(buffer) = end.data { Some(buffer) } else { None }),
        );
    }
}

#[test]
fn a_full_ring_drops_and_counts_and_never_waits() {
    let (topology, mut reactor, file) = one_reactor(1024, BackendKind::Null.make(256).unwrap());
    let recording = Recording::start(&topology, Clock::Monotonic, 8);
    let mut buffers: Vec<_> = (0..512).map(|_| block()).collect();
    batch(&mut reactor, &file, &mut buffers, &mut Vec::new());
    reactor.reap(&mut Vec::new());
    let recorded = recording.stop();
    assert!(recorded.lost.dropped_events > 0, "512 requests through a ring of 8 events");
    // What is not in the file is counted: seven stations each, and what the queue waited for.
    let blocked = recorded.events.iter().filter(|(_, event)| event.kind == Blocked).count() as u64;
    let all = recorded.summary.events + recorded.summary.dropped_events - blocked;
    assert!(all >= 512 * 7, "{all}");
}

#[test]
fn it_is_switched_on_and_off_while_the_program_runs() {
    within_reason(|| {
        let (topology, mut reactor, file) = one_reactor(1024, BackendKind::Null.make(256).unwrap());
        let mut buffers: Vec<_> = (0..16).map(|_| block()).collect();
        let switch = topology.clone();
        let switching = std::thread::spawn(move || {
            let mut all = Vec::new();
            while all.len() < 20 {
                let recording = Recording::start(&switch, Clock::Monotonic, 65_536);
                let other = Memory { bytes: Arc::default(), most: usize::MAX };
                let again = switch.trace().start(writer(&other, Clock::Monotonic), TraceConfig::default());
                assert!(matches!(again, Err(TraceStartError::AlreadyRecording)));
                std::thread::sleep(Duration::from_millis(2));
                all.push(recording.stop());
            }
            all
        });
        while !switching.is_finished() {
            batch(&mut reactor, &file, &mut buffers, &mut Vec::new());
        }
        let mut last = 0;
        for recorded in switching.join().unwrap() {
            let requests = recorded.requests(0);
            if let (Some(first), Some(highest)) = (requests.keys().next(), requests.keys().last()) {
                assert!(*first > last, "numbers are never used twice");
                // Of a request under way at the stop, the rest is in no record.
                last = *highest;
                assert_eq!(recorded.summary.last_request, last);
            }
            for events in requests.values().filter(|_| recorded.lost.dropped_events == 0) {
                let is_part = WAY.windows(events.len()).any(|part| part == kinds(events));
                assert!(is_part, "{:?}", kinds(events));
            }
        }
        assert!(last > 0, "something was recorded");
        assert!(topology.trace().stop().is_none());
    });
}

#[test]
fn a_full_disk_ends_the_record_and_not_the_program() {
    within_reason(|| {
        let (topology, mut reactor, file) = one_reactor(1024, BackendKind::Null.make(256).unwrap());
        let recording = Recording::bounded(&topology, Clock::Monotonic, 65_536, 100_000);
        let mut buffers: Vec<_> = (0..16).map(|_| block()).collect();
        while recording.tracing.is_recording() {
            batch(&mut reactor, &file, &mut buffers, &mut Vec::new());
        }
        batch(&mut reactor, &file, &mut buffers, &mut Vec::new());
        let recorded = recording.stop();
        assert_eq!(recorded.summary.error.map(|error| error.raw_os_error()), Some(Some(libc::ENOSPC)));
        // The next one is not in its way.
        let recording = Recording::start(&topology, Clock::Monotonic, 65_536);
        batch(&mut reactor, &file, &mut buffers, &mut Vec::new());
        let recorded = recording.stop();
        assert!(recorded.summary.events >= 16 * 6);
    });
}

#[test]
fn stations_allocate_nothing_on_or_off() {
    let (topology, mut reactor, file) = one_reactor(1024, BackendKind::Null.make(256).unwrap());
    let (mut buffers, mut done): (Vec<_>, _) = ((0..64).map(|_| block()).collect(), Vec::new());
    batch(&mut reactor, &file, &mut buffers, &mut done);
    let mut count = |reactor: &mut Reactor| {
        batch(reactor, &file, &mut buffers, &mut done);
        reactor.reap(&mut Vec::new());
        measure(|| (0..100).for_each(|_| batch(reactor, &file, &mut buffers, &mut done))).count_total
    };
    // The three histograms may reach each of 35 powers of two later than before, in each of four digits.
    let histograms_grow = 3 * 35 * 4;
    assert!(count(&mut reactor) <= histograms_grow, "off");
    let recording = Recording::start(&topology, Clock::Monotonic, 65_536);
    assert!(count(&mut reactor) <= histograms_grow, "on");
    assert!(recording.stop().summary.events > 100 * 64 * 6);
    assert!(count(&mut reactor) <= histograms_grow, "off again");
}

#[test]
fn a_topology_that_goes_writes_what_is_left() {
    let memory = Memory { bytes: Arc::default(), most: usize::MAX };
    let (topology, mut reactor, file) = one_reactor(16, BackendKind::Null.make(16).unwrap());
    topology.trace().start(writer(&memory, Clock::Monotonic), TraceConfig::default()).unwrap();
    batch(&mut reactor, &file, &mut vec![block()], &mut Vec::new());
    drop((topology, reactor, file));
    let bytes = memory.bytes.lock().unwrap();
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut events = 0;
    while let Some(chunk) = reader.next_chunk().unwrap() {
        events += if let Body::Events(some) = chunk.body { some.count() } else { 0 };
    }
    assert!(events >= 7, "{events}");
}

#[test]
fn a_trace_without_a_thread_is_written_when_its_owner_says_so() {
    // Room for the header and one round of events.
    let memory = Memory { bytes: Arc::default(), most: 4096 };
    let (topology, mut reactor, file) = one_reactor(16, BackendKind::Null.make(16).unwrap());
    let tracing = topology.trace();
    assert!(!tracing.carry(), "there is none");
    tracing.start_without_thread(writer(&memory, Clock::Monotonic), TraceConfig::default()).unwrap();
    let written_bytes = || memory.bytes.lock().unwrap().len();

    let before_bytes = written_bytes();
    batch(&mut reactor, &file, &mut vec![block()], &mut Vec::new());
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(written_bytes(), before_bytes);
    assert!(tracing.carry() && written_bytes() > before_bytes);

    (0..100).for_each(|_| batch(&mut reactor, &file, &mut vec![block()], &mut Vec::new()));
    assert!(!tracing.carry() && !tracing.is_recording(), "the file is full");
    assert!(tracing.stop().unwrap().error.is_some() && !tracing.carry());
}

/// It was of disk 0.
#[test]
fn a_call_that_is_withdrawn_at_a_gate_is_of_the_gates_disk() {
    let one_at_a_time = || DiskSetup { mode: DiskMode::Depth { max_io_requests: 1 }, ..DiskSetup::unlimited() };
    let topology = Topology::new(1, Classes::new(), vec![one_at_a_time(), one_at_a_time()]).unwrap();
    let gate = Gate::new(&topology, 0, 1).unwrap();
    let recording = Recording::start(&topology, Clock::Monotonic, 1 << 10);
    let held = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    assert!(gate.enter_within(Class::DEFAULT, Op::Read, 4096, Duration::ZERO).unwrap().is_none());
    drop(held);
    let recorded = recording.stop();
    let withdrawn = recorded.events.iter().filter(|(_, event)| event.kind == EventKind::Cancelled);
    assert_eq!(withdrawn.map(|(_, event)| event.disk).collect::<Vec<_>>(), [1]);
}
