//! A job on one shard: its pacing, its limits, and its results.
//!
//! **Why.** A job has its own limits: a number of requests, of bytes, a time, a least rate. Reports need counts of the
//! measured window only.
//!
//! **How.** [`Job`] paces and counts; its [`Work`] chooses each request that is not plain.
//!
//! **Limits.** A job that has done its work within the warm-up is counted as a whole.
//!
//! **Example.** A job of 1000 requests on 4 fibers ends with its last completion: [`Job::fiber_ended`].

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll::backend::OpResult;
use plimsoll::{Class, Data, Reactor, Request, RequestKind, SharedFile};
use plimsoll_sim::rng::Rng;

use super::checked::pieces_mut;
use super::content::{renew, renewal_bytes};
use super::floor::Floor;
use super::pace::Pace;
use super::pauses::Pauses;
use super::result::ClassResult;
use super::work::{Extras, Special, Work, lengths, work_of};
use super::{Interval, JobResult, JobSpec, Pattern, Target};

/// Linux's error number for "timer expired": the job fell below its least rate.
const TOO_SLOW: i32 = 62;

/// Returns whether a job both reads and writes.
pub(super) fn is_mixed(pattern: Pattern) -> bool {
    matches!(pattern, Pattern::RandMixed { .. } | Pattern::SeqMixed { .. })
}

pub(super) enum Pacing {
    /// As soon as the last one has completed.
    Closed,
    /// A fixed period after the last one was due, in ns.
    Fiber { period_ns: f64 },
    /// At the next due time of the shard's schedule.
    Shard(Box<Pace>),
}

pub(super) struct Job<'a> {
    pub(super) spec: &'a JobSpec,
    pub(super) target: &'a Target,
    pub(super) more: &'a [Target],
    pub(super) work: Work,
    pub(super) pacing: Pacing,
    pub(super) pauses: Option<Pauses>,
    /// Whether a fiber sends again as soon as its request completes, without further checks.
    pub(super) is_simple: bool,
    /// Requests that fit in the region.
    positions: u64,
    next_position: u64,
    pub(super) rng: Rng,
    live_fibers: u32,
    pub(super) begin_ns: u64,
    /// When the job's warm-up ends. `is_counting` says whether that was noticed.
    pub(super) counted_ns: u64,
    pub(super) is_counting: bool,
    /// Latest end of the job.
    pub(super) stop_ns: u64,
    /// The rate that the job must keep.
    pub(super) floor: Option<Floor>,
    /// When the job ended: see [`Job::fiber_ended`].
    pub(super) ended_ns: Option<u64>,
    pub(super) made: u64,
    pub(super) under_way: u64,
    /// Distance of the words that [`renew`] changes.
    renewal_bytes: usize,
    next_word: u64,
    /// Idle buffers with data to write, the next to use first.
    spares: VecDeque<Data>,
    /// Idle buffers for reads of a job that also writes.
    read_spares: VecDeque<Data>,
    /// The job ends once it has made this many requests.
    made_max: u64,
    /// The counts so far. [`Job::take_result`] adds the rest.
    pub(super) result: JobResult,
    /// Counts since the last mark.
    interval: Interval,
}

impl<'a> Job<'a> {
    /// Returns a job that has not begun, at `next_position` of `positions` (at least 1).
    pub(super) fn new(
        spec: &'a JobSpec,
        (target, more): (&'a Target, &'a [Target]),
        positions: u64,
        next_position: u64,
        seed: u64,
        mut extras: Extras,
    ) -> Job<'a> {
        let (next_word, spares) = (extras.next_word, std::mem::take(&mut extras.spares));
        let lengths = lengths(spec);
        let renewal_bytes = renewal_bytes(spec.content, lengths.max().unwrap_or(0));

        let pacing = match (spec.requests_per_s_per_shard, spec.requests_per_s_per_fiber) {
            (Some(rate), _) => Pacing::Shard(Box::new(Pace::new(rate, spec.pause_distribution))),
            (None, Some(rate)) => Pacing::Fiber { period_ns: 1e9 / rate },
            (None, None) => Pacing::Closed,
        };

        let is_simple = matches!(pacing, Pacing::Closed) && spec.think_time_ns == 0 && spec.flush_every == 0;
        let limit = spec.limit_requests.map_or(u64::MAX, |limit| u64::from(limit) + 1);
        let work = work_of(spec, next_position, 1 + more.len(), extras);

        let directions = is_mixed(spec.kind).then(Box::default);
        // Special requests count their bytes one by one.
        let is_counted = matches!(work, Work::Special(_));
        let bytes_max = spec.limit_bytes.filter(|_| !is_counted);
        let limit_by_bytes = bytes_max.map_or(u64::MAX, |bytes| bytes.div_ceil(u64::from(spec.request_bytes.max(1))));

        Job {
            spec,
            target,
            more,
            work,
            pacing,
            pauses: (spec.think_time_ns > 0 && spec.think_blocks > 0).then(|| Pauses::new(spec.think_blocks)),
            is_simple,
            positions,
            next_position,
            rng: Rng::new(seed),
            live_fibers: spec.parallelism,
            begin_ns: 0,
            counted_ns: 0,
            is_counting: false,
            stop_ns: u64::MAX,
            floor: None,
            ended_ns: None,
            made: 0,
            under_way: 0,
            renewal_bytes,
            next_word,
            spares,
            read_spares: VecDeque::new(),
            made_max: limit.min(limit_by_bytes),
            result: JobResult { name: spec.name.clone(), directions, ..JobResult::default() },
            interval: Interval::default(),
        }
    }

    /// Starts the job at `begin_ns`, with `warmup_ns` before it counts.
    pub(super) fn begin(&mut self, begin_ns: u64, warmup_ns: u64) {
        self.begin_ns = begin_ns;
        let counted_ns = begin_ns.saturating_add(warmup_ns);
        (self.counted_ns, self.is_counting) = (counted_ns, warmup_ns == 0);
        self.stop_ns = self.spec.runtime_ns.map_or(u64::MAX, |runtime_ns| counted_ns.saturating_add(runtime_ns));
        self.floor = self.spec.rate_min.map(|least| Floor::new(least, counted_ns));
        if let Pacing::Shard(pace) = &mut self.pacing {
            pace.begin(begin_ns, &mut self.rng);
        }
    }

    /// Drops the counts of the warm-up; its intervals are empty. A job that has ended by then keeps them, as in fio: it
    /// has no others.
    pub(super) fn begin_counting(&mut self) {
        self.is_counting = true;
        self.interval = Interval::default();
        if self.ended_ns.is_none() {
            let directions = self.result.directions.is_some().then(Box::default);
            let JobResult { name, intervals, .. } = std::mem::take(&mut self.result);
            self.result = JobResult { name, directions, intervals, ..JobResult::default() };
        }
    }

    /// Ends the job with an error if it falls below its least rate.
    pub(super) fn check_rate(&mut self, now_ns: u64) {
        let (bytes, requests) = (self.result.bytes, self.result.requests);
        let is_running = self.ended_ns.is_none() && now_ns < self.stop_ns;
        let Some(floor) = self.floor.as_mut().filter(|_| is_running) else { return };
        if !floor.keeps(now_ns, bytes, requests) {
            self.stop_ns = now_ns;
            self.result.fail(TOO_SLOW);
        }
    }

    pub(super) fn is_used_up(&self, now_ns: u64) -> bool {
        let has_asked = |special: &Special| special.has_asked(self.spec.limit_bytes);
        self.made >= self.made_max
            || now_ns >= self.stop_ns
            || matches!(&self.work, Work::Special(special) if has_asked(special))
    }

    /// Returns the requests that the job's limits leave.
    pub(super) fn left(&self) -> u64 {
        let left = self.made_max.saturating_sub(self.made);
        let (Work::Special(special), Some(limit_bytes)) = (&self.work, self.spec.limit_bytes) else { return left };
        let left_bytes = limit_bytes.saturating_sub(special.all_bytes());
        left.min(left_bytes.div_ceil(u64::from(self.spec.request_bytes.max(1))))
    }

    pub(super) fn asked_bytes(&self) -> [u64; 2] {
        let bytes = self.made * u64::from(self.spec.request_bytes);
        match &self.work {
            Work::Plain { kind: RequestKind::Write { .. }, .. } => [0, bytes],
            Work::Plain { .. } => [bytes, 0],
            Work::Special(special) => special.asked_bytes,
            Work::Cpu { .. } | Work::Unlink { .. } => [0, 0],
        }
    }

    /// Counts a completion in the measured window, of a request of `expected_bytes`.
    #[inline]
    pub(super) fn count(&mut self, result: OpResult, expected_bytes: u32, latency_ns: u64) {
        self.result.count(result, expected_bytes, latency_ns);
        if let Ok(bytes) = result {
            self.interval.count(bytes, latency_ns);
        }
    }

    /// Records that a fiber has ended. The job ends with its last fiber or, at a limit, with its last completion:
    /// fibers that still wait for a due time will send nothing.
    pub(super) fn fiber_ended(&mut self, now_ns: u64) {
        self.live_fibers = self.live_fibers.saturating_sub(1);
        if self.live_fibers == 0 || (self.under_way == 0 && self.is_used_up(now_ns)) {
            self.ended_ns.get_or_insert(now_ns);
        }
    }

    /// Returns the next request of a plain job. `kind` and `is_random` are those of its work.
    #[inline]
    pub(super) fn next_plain(&mut self, kind: RequestKind, is_random: bool, data: Data, tag: u64) -> Request {
        let position = if is_random {
            self.rng.below(self.positions)
        } else {
            let position = self.next_position;
            self.next_position = (position + 1) % self.positions;
            position
        };
        let offset = self.target.offset + position * u64::from(self.spec.request_bytes);
        self.request(kind, offset, data, tag)
    }

    pub(super) fn file_of(&self, region: u32) -> &Arc<SharedFile> {
        let further = (region as usize).checked_sub(1).and_then(|at| self.more.get(at));
        &further.unwrap_or(self.target).file
    }

    /// Returns a request of this job in its first region.
    pub(super) fn request(&self, kind: RequestKind, offset: u64, data: Data, tag: u64) -> Request {
        Request { file: self.target.file.clone(), class: self.spec.class, kind, offset, data, tag }
    }

    /// Swaps in a buffer for a write if the last request of `data` was a read, and the reverse: what was read is never
    /// written. Only for jobs that mix, whose first buffers are for reads.
    pub(super) fn change_direction(&mut self, data: &mut Data, is_write: bool) {
        let (from, to) = match is_write {
            true => (&mut self.spares, &mut self.read_spares),
            false => (&mut self.read_spares, &mut self.spares),
        };
        if let Some(next) = from.pop_front() {
            to.push_back(std::mem::replace(data, next));
        }
    }

    /// Swaps in the next idle buffer, and makes its first `len_bytes` differ from everything written before.
    #[inline]
    pub(super) fn renew(&mut self, data: &mut Data, len_bytes: u32) {
        if let Some(next) = self.spares.pop_front() {
            self.spares.push_back(std::mem::replace(data, next));
        }
        let mut left_bytes = len_bytes as usize;
        for buffer in pieces_mut(data) {
            let piece_bytes = buffer.len().min(left_bytes);
            left_bytes -= piece_bytes;
            if let Some(bytes) = buffer.get_mut(..piece_bytes) {
                renew(bytes, self.renewal_bytes, &mut self.next_word);
            }
        }
    }

    /// Closes the interval of the measured window that began at `from_ns`. Its length is the part in which the job ran:
    /// 0 before the end of its warm-up. After the end of the job there are no more intervals.
    pub(super) fn mark(&mut self, from_ns: u64, length_ns: u64) {
        if !self.is_counting {
            self.result.intervals.push(Interval::default());
            return;
        }
        let until_ns = from_ns.saturating_add(length_ns);
        let until_ns = self.ended_ns.map_or(until_ns, |ended_ns| ended_ns.min(until_ns));
        let worked_ns = until_ns.saturating_sub(from_ns.max(self.counted_ns));
        let has_done = self.interval.requests > 0;
        if worked_ns == 0 && !has_done && self.ended_ns.is_some() {
            return;
        }
        self.result.intervals.push(self.interval.end(worked_ns.max(u64::from(has_done))));
    }

    /// Returns the figures from `begin_ns` to `end_ns`. Overdue requests and faults are added later.
    pub(super) fn take_result(&mut self, reactor: &Reactor, begin_ns: u64, end_ns: u64) -> JobResult {
        // A job that ended in the warm-up was measured as a whole.
        let counted_ns = begin_ns.max(self.counted_ns);
        let is_early = self.ended_ns.is_some_and(|ended_ns| ended_ns < counted_ns);
        let from_ns = if is_early { self.begin_ns } else { counted_ns };
        let class = match self.work {
            Work::Cpu { .. } | Work::Unlink { .. } => None,
            _ => class_result(reactor, self.target.file.disk(), self.spec.class),
        };

        let mut result = std::mem::take(&mut self.result);
        result.elapsed_ns = self.ended_ns.unwrap_or(end_ns).min(end_ns).saturating_sub(from_ns);
        result.device_depth_mean = result.device_depth.mean();
        result.class = class;
        result
    }
}

pub(super) fn class_result(reactor: &Reactor, disk: u16, class: Class) -> Option<ClassResult> {
    let mut result = ClassResult { stats: reactor.class_stats(disk, class)?, ..ClassResult::default() };
    reactor.class_latencies(disk, class, &mut |latencies| {
        result.queue.merge(&latencies.queue);
        result.device.merge(&latencies.device);
    });
    Some(result)
}
