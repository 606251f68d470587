//! One shard of a replay: sends the requests that are due, and counts completions.
//!
//! **Why.** The accuracy of a replay depends on this loop: no request waits for an earlier one, and late sends are
//! recorded.
//!
//! **How.** Each turn parks the reactor until a completion or the next due time, counts completions, and sends the
//! requests that are due. Buffers are kept by power-of-two length for reuse; written data is random, and differs for
//! each write.
//!
//! **Limits.** An idle shard checks for new requests every [`FEED_LOOK_NS`]. [`super`] names the bounds on requests in
//! flight.
//!
//! **Example.** See [`super::super::replay`].

use std::collections::VecDeque;
use std::sync::mpsc::TryRecvError;

use plimsoll::buffer::AlignedBuf;
use plimsoll::core::Op;
use plimsoll::sys::rusage;
use plimsoll::{Data, Done, Reactor, Refused, RefusedReason, Request, RequestKind};
use plimsoll_observe::trace::arrivals::Arrival;

use super::super::content::{ContentMaker, renew};
use super::super::crew::{Crew, LOOK_UP_NS, Member};
use super::super::job::class_result;
use super::super::runner::{EINVAL, RETRY_NS, SAMPLE_NS};
use super::super::{Content, Control, Interval, JobResult, LoadError, ShardResult};
use super::feed::Batches;
use super::places::Places;
use super::{
    MAX_SPEED_DEPTH, REQUEST_MAX_BYTES, ReplayCounts, ReplayPlan, ReplayTotals, Speed, UNDER_WAY_MAX,
    UNDER_WAY_MAX_BYTES,
};

/// Wait between two checks for a batch of the reader.
const FEED_LOOK_NS: u64 = 1_000_000;
/// Delay from the start of the shards to the first due time. By then the reader has sent the first requests.
const LEAD_NS: u64 = 20_000_000;
const INTERVAL_NS: u64 = 100_000_000;
/// Most bytes of idle buffers kept for reuse.
const IDLE_MAX_BYTES: u64 = 64 << 20;
/// Distance of the words that differ from write to write: a sector.
const RENEWAL_BYTES: usize = 512;
/// Linux's error number for a lack of memory.
const ENOMEM: i32 = 12;

pub(super) struct ShardEnd {
    pub(super) result: ShardResult,
    pub(super) counts: Vec<ReplayCounts>,
    pub(super) totals: ReplayTotals,
    /// Whether the reader ended before the shard, and not the reverse.
    pub(super) has_read_all: bool,
}

#[derive(Clone, Copy, Default)]
struct Flight {
    class: usize,
    kind: Option<Op>,
    len_bytes: u32,
    due_ns: u64,
    original_ns: Option<u64>,
}

/// Idle buffers of one power of two: for reads, and for writes.
type Shelf = [Vec<AlignedBuf>; 2];

struct Replayer<'a> {
    reactor: Reactor,
    plan: &'a ReplayPlan,
    control: &'a Control,
    places: Places,
    batches: Option<Batches>,
    pending: VecDeque<Arrival>,
    flights: Vec<Flight>,
    free: Vec<usize>,
    under_way: usize,
    under_way_bytes: u64,
    /// Whether the first of `pending` has already waited for room.
    has_waited: bool,
    /// When a refused request may be tried again.
    retry_ns: u64,
    shelves: Vec<Shelf>,
    idle_bytes: u64,
    maker: ContentMaker,
    next_word: u64,
    begin_ns: u64,
    end_ns: u64,
    last_end_ns: u64,
    cpu_ns: u64,
    asked_bytes: [u64; 2],
    results: Vec<JobResult>,
    /// The current interval of each class.
    intervals: Vec<Interval>,
    marked_ns: u64,
    counts: Vec<ReplayCounts>,
    totals: ReplayTotals,
    has_read_all: bool,
}

/// Replays the requests that come through `batches`.
pub(super) fn run(
    mut reactor: Reactor,
    plan: &ReplayPlan,
    batches: Option<Batches>,
    control: &Control,
    crew: &Crew,
) -> Result<ShardEnd, LoadError> {
    let (member, (places, first)) = crew.join(&mut reactor, |reactor| {
        let places = open(reactor, plan)?;
        // The first batch shows that the trace has requests; a closed channel, that it has none.
        Ok((places, batches.as_ref().and_then(|batches| batches.recv().ok())))
    })?;
    let name = |class: &super::ReplayClass| JobResult {
        name: class.name.clone(),
        directions: Some(Box::default()),
        ..JobResult::default()
    };

    let seed = plan.seed ^ (u64::from(reactor.shard()) << 32);
    let mut replayer = Replayer {
        reactor,
        plan,
        control,
        places,
        batches,
        pending: first.unwrap_or_default().into(),
        flights: Vec::new(),
        free: Vec::new(),
        under_way: 0,
        under_way_bytes: 0,
        has_waited: false,
        retry_ns: 0,
        shelves: Vec::new(),
        idle_bytes: 0,
        maker: ContentMaker::new(Content::default(), seed),
        next_word: plimsoll_sim::rng::Rng::new(seed).next_u64(),
        begin_ns: 0,
        end_ns: u64::MAX,
        last_end_ns: 0,
        cpu_ns: 0,
        asked_bytes: [0; 2],
        results: plan.classes.iter().map(name).collect(),
        intervals: vec![Interval::default(); plan.classes.len()],
        marked_ns: 0,
        counts: vec![ReplayCounts::default(); plan.classes.len()],
        totals: ReplayTotals::default(),
        has_read_all: false,
    };
    replayer.turn_until_over(member)?;
    Ok(replayer.finish())
}

fn open(reactor: &mut Reactor, plan: &ReplayPlan) -> Result<Places, LoadError> {
    let job = || "replay".to_owned();
    let file = plan.files.get(usize::from(reactor.shard()));
    let file = file.ok_or_else(|| LoadError::Unsuitable { job: job(), reason: "no file for a shard".to_owned() })?;
    let info = reactor.open(file).map_err(|error| LoadError::Open { job: job(), error })?;
    let places = Places::new(&plan.survey.sums.regions, info.offset_align_bytes, plan.target_bytes);
    if places.room_bytes() == 0 {
        let reason = format!(
            "{} has {} bytes, and direct I/O takes multiples of {}: name a longer file",
            file.path().display(),
            plan.target_bytes,
            info.offset_align_bytes
        );
        return Err(LoadError::Unsuitable { job: job(), reason });
    }
    Ok(places)
}

impl Replayer<'_> {
    fn turn_until_over(&mut self, mut member: Member<'_>) -> Result<(), LoadError> {
        let mut done = Vec::new();
        self.reactor.reap(&mut done);

        let lead_ns = if self.plan.speed == Speed::Max { 0 } else { LEAD_NS };
        self.begin_ns = self.reactor.now_ns().saturating_add(lead_ns);
        self.end_ns = self.plan.duration_ns.map_or(u64::MAX, |ns| self.begin_ns.saturating_add(ns));
        self.last_end_ns = self.begin_ns;
        self.marked_ns = self.begin_ns;
        let cpu_begin_ns = rusage::thread_cpu_ns();
        let mut next_sample_ns = self.begin_ns;

        loop {
            if self.under_way == 0 && self.pending.is_empty() && self.batches.is_none() {
                member.rest();
            }
            if member.do_all_rest() {
                break;
            }

            let now_ns = self.reactor.now_ns();
            if (self.control.stop.is_asked() || member.is_over() || now_ns >= self.end_ns) && !self.is_over() {
                self.give_up();
                continue;
            }

            self.reactor.park(Some(self.wake_ns(now_ns))).map_err(LoadError::Backend)?;
            self.reactor.reap(&mut done);
            let now_ns = self.reactor.now_ns();
            self.mark_until(now_ns);
            done.drain(..).for_each(|end| self.is_done(end, now_ns));
            self.refill();
            self.send_due(now_ns);
            if now_ns >= next_sample_ns {
                next_sample_ns = now_ns.saturating_add(SAMPLE_NS);
                self.sample();
            }
        }

        self.totals.issued = self.counts.iter().map(|counts| counts.lateness.count()).sum();
        self.cpu_ns = rusage::thread_cpu_ns().saturating_sub(cpu_begin_ns);
        Ok(())
    }

    /// Closes the intervals that ended by `now_ns`; later completions belong to the next.
    fn mark_until(&mut self, now_ns: u64) {
        while now_ns.saturating_sub(self.marked_ns) >= INTERVAL_NS {
            self.mark(INTERVAL_NS);
        }
    }

    fn mark(&mut self, length_ns: u64) {
        for (result, interval) in self.results.iter_mut().zip(&mut self.intervals) {
            result.intervals.push(interval.end(length_ns));
        }
        self.marked_ns = self.marked_ns.saturating_add(length_ns);
    }

    fn is_over(&self) -> bool {
        self.pending.is_empty() && self.batches.is_none()
    }

    /// Stops sending. Requests that the reader still holds are not counted.
    fn give_up(&mut self) {
        self.totals.not_reached += self.pending.len() as u64;
        self.pending.clear();
        self.batches = None;
    }

    /// Returns the time until which the shard may sleep.
    fn wake_ns(&self, now_ns: u64) -> u64 {
        let next_ns = match self.pending.front() {
            // No timer is needed: a completion makes room.
            Some(_) if self.retry_ns <= now_ns && !self.has_room() => u64::MAX,
            Some(arrival) => self.due_ns(arrival).max(self.retry_ns),
            None if self.batches.is_some() => now_ns.saturating_add(FEED_LOOK_NS),
            None => u64::MAX,
        };
        // Never in the past: the backend then still checks for completions.
        next_ns.max(now_ns.saturating_add(1)).min(now_ns.saturating_add(LOOK_UP_NS)).min(self.end_ns.max(now_ns + 1))
    }

    fn due_ns(&self, arrival: &Arrival) -> u64 {
        let after_ns = arrival.queued_ns.saturating_sub(self.plan.survey.sums.first_ns);
        self.begin_ns.saturating_add(self.plan.speed.stretch(after_ns))
    }

    fn has_room(&self) -> bool {
        let most = if self.plan.speed == Speed::Max { MAX_SPEED_DEPTH } else { UNDER_WAY_MAX };
        let next_bytes = self.pending.front().map_or(0, |arrival| u64::from(arrival.len_bytes.min(REQUEST_MAX_BYTES)));
        let has_memory = self.under_way == 0 || self.under_way_bytes + next_bytes <= UNDER_WAY_MAX_BYTES;
        self.under_way < most && has_memory
    }

    fn refill(&mut self) {
        while self.pending.is_empty()
            && let Some(batches) = &self.batches
        {
            match batches.try_recv() {
                Ok(batch) => self.pending.extend(batch),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => (self.batches, self.has_read_all) = (None, true),
            }
        }
    }

    fn send_due(&mut self, now_ns: u64) {
        if self.retry_ns > now_ns {
            return;
        }
        while let Some(arrival) = self.pending.front().copied() {
            let due_ns = self.due_ns(&arrival);
            if due_ns > now_ns {
                return;
            }

            if !self.has_room() {
                // Without due times, a request is always waiting.
                let is_first_time = !std::mem::replace(&mut self.has_waited, true);
                self.totals.waited_for_room += u64::from(is_first_time && self.plan.speed != Speed::Max);
                return;
            }

            let due_ns = if self.plan.speed == Speed::Max { now_ns } else { due_ns };
            if !self.send(&arrival, due_ns, now_ns) {
                self.retry_ns = now_ns.saturating_add(RETRY_NS);
                return;
            }

            self.has_waited = false;
            self.pending.pop_front();
            self.refill();
        }
    }

    /// Sends a request, or counts why it is not sent. Returns `false` if the shard's table has no room for it.
    fn send(&mut self, arrival: &Arrival, due_ns: u64, now_ns: u64) -> bool {
        if self.plan.reads_only && arrival.op != Op::Read {
            self.totals.not_allowed += 1;
            return true;
        }
        if arrival.op == Op::Allocate || (arrival.len_bytes == 0 && arrival.op != Op::Flush) {
            self.totals.not_replayable += 1;
            return true;
        }

        let Some(file) = self.plan.files.get(usize::from(self.reactor.shard())) else { return true };
        let place = self.places.place((arrival.disk, arrival.file), arrival.offset_bytes, arrival.len_bytes);
        let len_bytes = place.len_bytes.min(u64::from(REQUEST_MAX_BYTES)) as u32;

        let is_write = arrival.op == Op::Write;
        if is_write && !self.control.traffic.take_write(u64::from(len_bytes)) {
            self.totals.not_reached += 1;
            return true;
        }

        let last = self.plan.classes.len().saturating_sub(1);
        let number = self.plan.class_at.get(&arrival.class).copied().unwrap_or(last);
        let Some(class) = self.plan.classes.get(number).map(|class| class.class) else { return true };
        let kind = match arrival.op {
            Op::Read => RequestKind::Read { len_bytes },
            Op::Write => RequestKind::Write { len_bytes },
            Op::Discard => RequestKind::Discard { len_bytes: place.len_bytes },
            Op::Flush | Op::Allocate => RequestKind::Sync { data_only: false },
        };

        let flight_bytes = if arrival.op.is_transfer() { len_bytes } else { 0 };
        let Some(data) = self.memory(arrival.op, flight_bytes) else {
            self.fail(number, ENOMEM);
            return true;
        };

        let at = self.free.pop().unwrap_or(self.flights.len());
        let offset = if arrival.op == Op::Flush { 0 } else { place.offset_bytes };
        let request = Request { file: file.clone(), class, kind, offset, data, tag: at as u64 };
        if let Err(refused) = self.reactor.submit(request) {
            let Refused { reason, request } = *refused;
            self.give_back(arrival.op, request.data);
            if at < self.flights.len() {
                self.free.push(at);
            }
            if is_write {
                self.control.traffic.give_back_write(u64::from(len_bytes));
            }
            if reason == RefusedReason::Full && self.under_way > 0 {
                return false;
            }
            self.fail(number, EINVAL);
            return true;
        }

        let flight = Flight {
            class: number,
            kind: Some(arrival.op),
            len_bytes: flight_bytes,
            due_ns,
            original_ns: arrival.latency_ns,
        };

        match self.flights.get_mut(at) {
            Some(slot) => *slot = flight,
            None => self.flights.push(flight),
        }

        self.under_way += 1;
        self.under_way_bytes += u64::from(flight_bytes);
        self.asked_bytes[usize::from(is_write)] += u64::from(flight_bytes);
        if let Some(counts) = self.counts.get_mut(number) {
            counts.lateness.record(now_ns.saturating_sub(due_ns));
        }

        if arrival.op != Op::Flush {
            self.totals.wrapped += u64::from(place.is_wrapped);
            self.totals.widened += u64::from(place.is_widened);
            self.totals.cut += u64::from(place.is_cut || (arrival.op.is_transfer() && len_bytes < arrival.len_bytes));
        }
        true
    }

    fn fail(&mut self, number: usize, code: i32) {
        if let Some(result) = self.results.get_mut(number) {
            result.fail(code);
        }
    }

    fn is_done(&mut self, end: Done, now_ns: u64) {
        let at = end.tag as usize;
        let Some(flight) = self.flights.get(at).copied() else { return };
        let Some(op) = flight.kind else { return };
        self.free.push(at);
        self.under_way -= 1;
        self.under_way_bytes -= u64::from(flight.len_bytes);
        self.give_back(op, end.data);
        self.last_end_ns = now_ns;

        let latency_ns = now_ns.saturating_sub(flight.due_ns);
        let outcome = end.result.map_err(|error| error.errno());
        if let (Some(interval), Ok(bytes)) = (self.intervals.get_mut(flight.class), outcome) {
            interval.count(bytes, latency_ns);
        }
        if let (Some(counts), Some(original_ns), Ok(_)) =
            (self.counts.get_mut(flight.class), flight.original_ns, outcome)
        {
            counts.original.record(original_ns);
            counts.replayed.record(latency_ns);
        }

        let Some(result) = self.results.get_mut(flight.class) else { return };
        result.count(outcome, flight.len_bytes, latency_ns);
        let side = match (op, &mut result.directions) {
            (Op::Read | Op::Write, Some(directions)) => directions.of(op == Op::Write),
            (Op::Flush, _) => &mut result.flushes,
            _ => return,
        };
        side.count(outcome, flight.len_bytes, latency_ns);
    }

    /// Returns a buffer for a request, or `None` if there is no memory.
    fn memory(&mut self, op: Op, len_bytes: u32) -> Option<Data> {
        if !op.is_transfer() {
            return Some(Data::None);
        }
        let is_write = op == Op::Write;
        let shelf_bytes = len_bytes.next_power_of_two().max(4096);
        let idle = self.shelf(shelf_bytes).and_then(|shelf| shelf[usize::from(is_write)].pop());
        if idle.is_some() {
            self.idle_bytes = self.idle_bytes.saturating_sub(u64::from(shelf_bytes));
        }
        let mut buffer = match idle {
            Some(buffer) => buffer,
            None => {
                let mut buffer = AlignedBuf::new(shelf_bytes as usize).ok()?;
                if is_write {
                    self.maker.fill(&mut buffer);
                }
                buffer
            }
        };

        if is_write && let Some(bytes) = buffer.get_mut(..len_bytes as usize) {
            renew(bytes, RENEWAL_BYTES, &mut self.next_word);
        }
        Some(Data::One(buffer))
    }

    fn give_back(&mut self, op: Op, data: Data) {
        let Data::One(buffer) = data else { return };
        let shelf_bytes = buffer.len() as u64;
        if self.idle_bytes + shelf_bytes > IDLE_MAX_BYTES {
            return;
        }
        if let Some(shelf) = self.shelf(shelf_bytes as u32) {
            shelf[usize::from(op == Op::Write)].push(buffer);
            self.idle_bytes += shelf_bytes;
        }
    }

    /// Returns the idle buffers of length `shelf_bytes`, a power of two.
    fn shelf(&mut self, shelf_bytes: u32) -> Option<&mut Shelf> {
        let at = shelf_bytes.trailing_zeros() as usize;
        if self.shelves.len() <= at {
            self.shelves.resize_with(at + 1, Shelf::default);
        }
        self.shelves.get_mut(at)
    }

    fn sample(&mut self) {
        let Some(file) = self.plan.files.get(usize::from(self.reactor.shard())) else { return };
        for (class, result) in self.plan.classes.iter().zip(&mut self.results) {
            result.sample_depth(&self.reactor, file.disk(), class.class);
        }
    }

    fn finish(mut self) -> ShardEnd {
        let shard = self.reactor.shard();
        let elapsed_ns = self.last_end_ns.saturating_sub(self.begin_ns);
        let rest_ns = self.last_end_ns.saturating_sub(self.marked_ns);
        if rest_ns > 0 || self.intervals.iter().any(|interval| interval.requests > 0) {
            self.mark(rest_ns.max(1));
        }

        let disk = self.plan.files.get(usize::from(shard)).map_or(0, |file| file.disk());
        for (class, result) in self.plan.classes.iter().zip(&mut self.results) {
            result.elapsed_ns = elapsed_ns;
            result.device_depth_mean = result.device_depth.mean();
            result.class = class_result(&self.reactor, disk, class.class);
        }

        self.control.traffic.add(self.asked_bytes);
        // The load is over by now, so the windows' limits say nothing.
        let window_limits = Vec::new();
        let result = ShardResult { shard, cpu_ns: self.cpu_ns, elapsed_ns, jobs: self.results, window_limits };
        ShardEnd { result, counts: self.counts, totals: self.totals, has_read_all: self.has_read_all }
    }
}
