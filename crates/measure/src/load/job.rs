//! A job on one shard: chooses the next request, and counts completions.
//!
//! **Why.** Most jobs send requests of one length and one kind; some mix kinds and lengths, flush, prefer popular
//! positions, or verify what they read. The simple jobs must not pay for the others.
//!
//! **How.** [`Work::Plain`] is the simple kind: its request is made from three numbers, and no record of it is kept.
//! Everything else about requests is in [`Special`], which records what it sent. Kinds of a mix alternate so that the
//! proportion is exact at any moment (the error of each choice is carried to the next); lengths and positions are drawn
//! by the seeded generator. A position is aligned to the request's own length.
//!
//! **Limits.** A sequential job of several lengths continues after its last request, whatever that one's length.
//! Requests of a job with several regions go to them in turn.
//!
//! **Example.** With `read_pct` 70 the first ten requests are w r r w r r w r r r: seven reads in every ten.

use std::collections::VecDeque;
use std::sync::Arc;

use plimsoll::backend::OpResult;
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Data, Done, Reactor, Request, RequestKind, SharedFile};
use plimsoll_sim::rng::Rng;

use super::access::{AccessError, AccessPicker};
use super::content::{renew, renewal_bytes};
use super::floor::Floor;
use super::pace::Pace;
use super::result::ClassResult;
use super::verify::{SECTOR_BYTES, StampError, Stamps};
use super::{Access, BlockFault, FAULTS_MAX, Interval, JobResult, JobSpec, Pattern, SizeShare, Target};

/// Linux's error number for "timer expired": the job fell below its least rate.
const TOO_SLOW: i32 = 62;

pub(super) enum Pacing {
    /// As soon as the last one has completed.
    Closed,
    /// A fixed period after the last one was due, in ns.
    Fiber { period_ns: f64 },
    /// At the next due time of the shard's schedule.
    Shard(Box<Pace>),
}

/// The kind of work that a job's fibers do.
pub(super) enum Work {
    /// Reads or writes of one length.
    Plain { kind: RequestKind, is_random: bool },
    /// Any other requests.
    Special(Box<Special>),
    /// Slices of CPU time.
    Cpu { execution_ns: u64 },
    /// Removal of files: their number, and the next to remove.
    Unlink { files: u32, next: u32 },
}

/// A request of a [`Special`] job that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Number of the region: 0 is the job's target, the others are its further ones.
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) len_bytes: u32,
    pub(super) is_write: bool,
    /// Generation of a write or moment of a read; 0 without verification.
    event: u64,
}

impl Sent {
    pub(super) fn read(offset: u64, len_bytes: u32) -> Sent {
        Sent { offset, len_bytes, ..Sent::default() }
    }
}

/// Operation of a special request.
enum Verb {
    Read,
    Write,
    /// Reads in a hundred, and the error carried over from earlier choices, in hundredths.
    Mixed {
        read_pct: u32,
        carried: u32,
    },
    Flush {
        data_only: bool,
    },
    Discard,
}

/// Choice of positions for special requests.
enum Places {
    Sequential,
    Uniform,
    Picked(Box<AccessPicker>),
}

/// Equipment that only some jobs need.
#[derive(Default)]
pub(super) struct Extras {
    pub(super) picker: Option<AccessPicker>,
    pub(super) stamps: Option<Box<Stamps>>,
    /// First word of the job's sequence for [`renew`].
    pub(super) next_word: u64,
    /// Buffers beyond those of the fibers: see [`super::content::spares`].
    pub(super) spares: VecDeque<Data>,
}

/// Work of any requests that are not plain.
pub(super) struct Special {
    verb: Verb,
    places: Places,
    /// Lengths of reads and of writes: (cumulative per cent, length), ascending.
    sizes: [Vec<(f64, u32)>; 2],
    /// Length that a picked position stands for: the shortest.
    unit_bytes: u64,
    /// End of the last request in each region, from its begin; of sequential jobs before the first: where it begins.
    ends: Vec<u64>,
    /// Region of the next request.
    turn: usize,
    /// Requests until the next position is drawn.
    run_left: u32,
    pub(super) stamps: Option<Box<Stamps>>,
    /// Bytes asked for so far, read and written.
    asked_bytes: [u64; 2],
    discarded_bytes: u64,
    /// The written part of the file, as first offset and end.
    pub(super) written: Option<(u64, u64)>,
    pub(super) faults: Vec<BlockFault>,
    pub(super) fault_count: u64,
}

pub(super) struct Job<'a> {
    pub(super) spec: &'a JobSpec,
    pub(super) target: &'a Target,
    pub(super) more: &'a [Target],
    pub(super) work: Work,
    pub(super) pacing: Pacing,
    /// Whether a fiber sends again as soon as its request completes, without further checks.
    pub(super) is_simple: bool,
    /// Requests that fit in the region.
    positions: u64,
    next_position: u64,
    pub(super) rng: Rng,
    live_fibers: u32,
    pub(super) begin_ns: u64,
    /// When the job ends at the latest.
    pub(super) stop_ns: u64,
    /// The rate that the job must keep.
    pub(super) floor: Option<Floor>,
    /// When the job ended: see [`Job::fiber_ended`].
    pub(super) ended_ns: Option<u64>,
    pub(super) made: u64,
    pub(super) under_way: u64,
    /// Distance of the words that [`renew`] changes.
    renewal_bytes: usize,
    /// The next word for [`renew`].
    next_word: u64,
    /// Idle buffers, the next to use first.
    spares: VecDeque<Data>,
    /// The job ends once it has made this many requests.
    made_max: u64,
    /// What was counted so far. [`Job::take_result`] adds the rest.
    pub(super) result: JobResult,
    pub(super) latency_sum_ns: u64,
    /// Longest latency since the last mark.
    latency_max_ns: u64,
    /// Counts at the last mark: requests, bytes, sum of latencies.
    marked: (u64, u64, u64),
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

        let is_mixed = matches!(spec.kind, Pattern::RandMixed { .. } | Pattern::SeqMixed { .. });
        let directions = is_mixed.then(Box::default);
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
            is_simple,
            positions,
            next_position,
            rng: Rng::new(seed),
            live_fibers: spec.parallelism,
            begin_ns: 0,
            stop_ns: u64::MAX,
            floor: None,
            ended_ns: None,
            made: 0,
            under_way: 0,
            renewal_bytes,
            next_word,
            spares,
            made_max: limit.min(limit_by_bytes),
            result: JobResult { name: spec.name.clone(), directions, ..JobResult::default() },
            latency_sum_ns: 0,
            latency_max_ns: 0,
            marked: (0, 0, 0),
        }
    }

    /// Starts the job at `begin_ns`, with `warmup_ns` before it counts.
    pub(super) fn begin(&mut self, begin_ns: u64, warmup_ns: u64) {
        self.begin_ns = begin_ns;
        let counted_ns = begin_ns.saturating_add(warmup_ns);
        self.stop_ns = self.spec.runtime_ns.map_or(u64::MAX, |runtime_ns| counted_ns.saturating_add(runtime_ns));
        self.floor = self.spec.rate_min.map(|least| Floor::new(least, counted_ns));
        if let Pacing::Shard(pace) = &mut self.pacing {
            pace.begin(begin_ns, &mut self.rng);
        }
    }

    /// Drops what the warm-up counted. A job that has done its work by then keeps it, as in fio: it has nothing else.
    pub(super) fn begin_counting(&mut self) {
        if self.ended_ns.is_some() {
            self.marked = (self.result.requests, self.result.bytes, self.latency_sum_ns);
            return;
        }
        let directions = self.result.directions.is_some().then(Box::default);
        self.result = JobResult { name: std::mem::take(&mut self.result.name), directions, ..JobResult::default() };
        (self.latency_sum_ns, self.latency_max_ns) = (0, 0);
    }

    /// Ends the job with an error if it is slower than it must be.
    pub(super) fn check_rate(&mut self, now_ns: u64) {
        let (bytes, requests) = (self.result.bytes, self.result.requests);
        let is_running = self.ended_ns.is_none() && now_ns < self.stop_ns;
        let Some(floor) = self.floor.as_mut().filter(|_| is_running) else { return };
        if !floor.keeps(now_ns, bytes, requests) {
            self.stop_ns = now_ns;
            self.result.fail(TOO_SLOW);
        }
    }

    /// Returns whether the job has reached a limit.
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

    /// Returns the bytes that the job asked for: read, written.
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
        if result.is_ok() {
            self.latency_sum_ns = self.latency_sum_ns.wrapping_add(latency_ns);
            self.latency_max_ns = self.latency_max_ns.max(latency_ns);
        }
    }

    /// Records that a fiber has ended. The job ends with its last fiber or, at a limit, with its last completion:
    /// fibers that wait for a due time then wait for nothing.
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

    /// Closes the interval of the measured window that began at `from_ns`. If the job has ended, so has the interval.
    pub(super) fn mark(&mut self, from_ns: u64, length_ns: u64) {
        let (requests, bytes, latency_sum_ns) = self.marked;
        let worked_ns = self.ended_ns.map_or(length_ns, |ended_ns| ended_ns.saturating_sub(from_ns).min(length_ns));
        if worked_ns == 0 && self.result.requests == requests {
            return;
        }

        self.marked = (self.result.requests, self.result.bytes, self.latency_sum_ns);
        self.result.intervals.push(Interval {
            length_ns: worked_ns.max(1),
            requests: self.result.requests - requests,
            bytes: self.result.bytes - bytes,
            latency_sum_ns: self.latency_sum_ns.wrapping_sub(latency_sum_ns),
            latency_max_ns: std::mem::take(&mut self.latency_max_ns),
        });
    }

    /// Returns the figures from `begin_ns` to `end_ns`. Overdue requests and faults are added later.
    pub(super) fn take_result(&mut self, reactor: &Reactor, begin_ns: u64, end_ns: u64) -> JobResult {
        // A job that ended in the warm-up was measured as a whole.
        let is_early = self.ended_ns.is_some_and(|ended_ns| ended_ns < begin_ns);
        let from_ns = if is_early { self.begin_ns } else { begin_ns.max(self.begin_ns) };
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

impl Special {
    /// Returns the kind of the next request, and the record to keep of it.
    pub(super) fn next(
        &mut self,
        spec: &JobSpec,
        target: &Target,
        more: &[Target],
        rng: &mut Rng,
    ) -> (RequestKind, Sent) {
        if let Verb::Flush { data_only } = self.verb {
            return (RequestKind::Sync { data_only }, Sent { offset: target.offset, ..Sent::default() });
        }

        let is_write = match &mut self.verb {
            Verb::Read => false,
            Verb::Mixed { read_pct, carried } => {
                *carried += *read_pct;
                let is_read = *carried >= 100;
                *carried -= if is_read { 100 } else { 0 };
                !is_read
            }
            _ => true,
        };

        let region = self.turn;
        self.turn = (region + 1) % (1 + more.len());
        let target = region.checked_sub(1).and_then(|at| more.get(at)).unwrap_or(target);
        let len_bytes = self.length(spec.request_bytes, is_write, rng);
        let offset = target.offset + self.place(spec, target.len_bytes, u64::from(len_bytes), region, rng);

        let kind = match (&self.verb, is_write) {
            (Verb::Discard, _) => RequestKind::Discard { len_bytes: u64::from(len_bytes) },
            (_, true) => RequestKind::Write { len_bytes },
            (_, false) => RequestKind::Read { len_bytes },
        };
        (kind, Sent { region: region as u32, offset, len_bytes, is_write, event: 0 })
    }

    fn length(&self, request_bytes: u32, is_write: bool, rng: &mut Rng) -> u32 {
        let [reads, writes] = &self.sizes;
        let sizes = if is_write && !writes.is_empty() { writes } else { reads };
        let Some((last_pct, last_bytes)) = sizes.last() else { return request_bytes };
        // 53 bits fill a float's mantissa.
        let drawn_pct = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * last_pct;
        let at = sizes.partition_point(|(upto_pct, _)| *upto_pct <= drawn_pct);
        sizes.get(at).map_or(*last_bytes, |(_, bytes)| *bytes)
    }

    /// Returns the offset in region `at` of `region_bytes` for a request of `len_bytes` (that fits in it).
    fn place(&mut self, spec: &JobSpec, region_bytes: u64, len_bytes: u64, at: usize, rng: &mut Rng) -> u64 {
        let end = self.ends.get(at).copied().unwrap_or(0);
        let is_first = self.run_left <= 1;
        self.run_left = if is_first { spec.run_length.max(1) } else { self.run_left - 1 };
        let is_drawn = is_first && !matches!(self.places, Places::Sequential);

        let align_bytes = spec.align_bytes.map_or(len_bytes, u64::from).max(1);
        let positions = region_bytes.saturating_sub(len_bytes) / align_bytes + 1;
        let offset = match &mut self.places {
            Places::Uniform if is_drawn => rng.below(positions) * align_bytes,
            Places::Picked(picker) if is_drawn => {
                let offset = picker.next(rng).saturating_mul(self.unit_bytes);
                (offset / align_bytes).min(positions - 1) * align_bytes
            }
            _ => next_in_line(end, if is_first { spec.step_bytes } else { 0 }, region_bytes, len_bytes),
        };

        if let Some(end) = self.ends.get_mut(at) {
            *end = offset + len_bytes;
        }
        offset
    }

    /// Prepares a request for submission: stamps the data of a write.
    ///
    /// # Errors
    /// [`StampError::Outside`] if the request is not made of whole blocks of the region.
    pub(super) fn begin(&mut self, sent: &mut Sent, data: &mut Data) -> Result<(), StampError> {
        let Some(stamps) = &mut self.stamps else { return Ok(()) };
        let len_bytes = u64::from(sent.len_bytes);
        if !sent.is_write {
            sent.event = stamps.begin_read(sent.offset, len_bytes)?;
            return Ok(());
        }
        sent.event = stamps.begin_write(sent.offset, len_bytes)?;

        let mut at = 0;
        for buffer in pieces_mut(data) {
            let piece_bytes = buffer.len().min(sent.len_bytes as usize - at);
            if let Some(bytes) = buffer.get_mut(..piece_bytes) {
                stamps.put(bytes, sent.offset + at as u64, sent.event);
            }
            at += piece_bytes;
        }
        Ok(())
    }

    /// Records that a request of `kind` was submitted.
    pub(super) fn is_sent(&mut self, kind: RequestKind, sent: &Sent) {
        let len_bytes = u64::from(sent.len_bytes);
        match kind {
            RequestKind::Read { .. } => self.asked_bytes[0] += len_bytes,
            RequestKind::Write { .. } => {
                self.asked_bytes[1] += len_bytes;
                let (from, to) = self.written.unwrap_or((u64::MAX, 0));
                self.written = Some((from.min(sent.offset), to.max(sent.offset + len_bytes)));
            }
            RequestKind::Discard { len_bytes } => self.discarded_bytes += len_bytes,
            _ => {}
        }
    }

    /// Records that a request was refused, so it did not happen.
    pub(super) fn is_refused(&mut self, sent: &Sent) {
        let Some(stamps) = &mut self.stamps else { return };
        match sent.is_write {
            true => stamps.failed(sent.offset, u64::from(sent.len_bytes), sent.event),
            false => stamps.end_read(sent.offset, u64::from(sent.len_bytes)),
        }
    }

    /// Advances `next` to the next request of `request_bytes` that a write has touched. Returns its length, cut at
    /// `to`, or `None` if there is none.
    pub(super) fn skip_unwritten(&self, next: &mut u64, to: u64, request_bytes: u32) -> Option<u32> {
        while *next < to {
            let len_bytes = u32::try_from(to - *next).unwrap_or(u32::MAX).min(request_bytes);
            if self.stamps.as_ref().is_some_and(|stamps| stamps.is_touched(*next, u64::from(len_bytes))) {
                return Some(len_bytes);
            }
            *next += u64::from(len_bytes.max(1));
        }
        None
    }

    /// Returns whether at least `limit_bytes` were asked for: read, written or discarded.
    pub(super) fn has_asked(&self, limit_bytes: Option<u64>) -> bool {
        limit_bytes.is_some_and(|limit| self.all_bytes() >= limit)
    }

    fn all_bytes(&self) -> u64 {
        self.asked_bytes.iter().sum::<u64>() + self.discarded_bytes
    }

    /// Returns the result of a request in bytes, and the bytes expected. A complete discard counts its whole length.
    pub(super) fn outcome(&self, sent: &Sent, result: OpResult) -> (OpResult, u32) {
        match self.verb {
            Verb::Discard => (result.map(|_| sent.len_bytes), sent.len_bytes),
            _ => (result, sent.len_bytes),
        }
    }

    /// Checks a completion against the expected data, if the job verifies.
    pub(super) fn verify(&mut self, sent: &Sent, end: &Done) {
        let Some(stamps) = &mut self.stamps else { return };
        let len_bytes = u64::from(sent.len_bytes);
        match (sent.is_write, end.result) {
            (true, Ok(bytes)) if bytes == sent.len_bytes => stamps.acknowledged(sent.offset, len_bytes, sent.event),
            (true, _) => stamps.failed(sent.offset, len_bytes, sent.event),
            (false, result) => {
                self.check(&end.data, sent, result.unwrap_or_else(|error| error.moved_bytes()));
                if let Some(stamps) = &mut self.stamps {
                    stamps.end_read(sent.offset, len_bytes);
                }
            }
        }
    }

    /// Checks the first `read_bytes` of a read, as far as they are whole sectors.
    fn check(&mut self, data: &Data, sent: &Sent, read_bytes: u32) {
        let Some(stamps) = &self.stamps else { return };
        let mut left_bytes = read_bytes as usize / SECTOR_BYTES * SECTOR_BYTES;
        let mut offset = sent.offset;
        for buffer in pieces(data) {
            let piece_bytes = buffer.len().min(left_bytes);
            let faults = buffer.get(..piece_bytes).map(|bytes| stamps.check_since(bytes, offset, sent.event));
            let faults = faults.unwrap_or_default();
            self.fault_count += faults.len() as u64;
            let room = FAULTS_MAX.saturating_sub(self.faults.len());
            self.faults.extend(faults.into_iter().take(room));
            left_bytes -= piece_bytes;
            offset += piece_bytes as u64;
        }
    }
}

fn pieces(data: &Data) -> &[AlignedBuf] {
    match data {
        Data::None => &[],
        Data::One(buffer) => std::slice::from_ref(buffer),
        Data::Many(buffers) => buffers,
    }
}

fn pieces_mut(data: &mut Data) -> &mut [AlignedBuf] {
    match data {
        Data::None => &mut [],
        Data::One(buffer) => std::slice::from_mut(buffer),
        Data::Many(buffers) => buffers,
    }
}

/// Returns the offset of a sequential request of `len_bytes` after one that ended at `end`, with `step_bytes` between
/// them. As in fio a job that reaches an end of the region goes on at the other.
fn next_in_line(end: u64, step_bytes: i64, region_bytes: u64, len_bytes: u64) -> u64 {
    let last = region_bytes.saturating_sub(len_bytes);
    if end == 0 {
        return 0;
    }
    match end.checked_add_signed(step_bytes) {
        Some(offset) if offset <= last => offset,
        _ if step_bytes >= 0 => 0,
        _ => region_bytes.checked_add_signed(step_bytes).unwrap_or(0).min(last),
    }
}

fn work_of(spec: &JobSpec, first: u64, regions: usize, extras: Extras) -> Work {
    let Extras { picker, stamps, .. } = extras;
    let len_bytes = spec.request_bytes;
    let verb = match spec.kind {
        Pattern::SeqRead | Pattern::RandRead => Verb::Read,
        Pattern::Overwrite | Pattern::RandWrite | Pattern::Append => Verb::Write,
        Pattern::RandMixed { read_pct } | Pattern::SeqMixed { read_pct } => {
            Verb::Mixed { read_pct: u32::from(read_pct.min(100)), carried: 0 }
        }
        Pattern::Flush => Verb::Flush { data_only: spec.flush_data_only },
        Pattern::Discard => Verb::Discard,
        Pattern::Unlink { files } => return Work::Unlink { files, next: 0 },
        Pattern::Cpu { execution_ns } => return Work::Cpu { execution_ns },
    };
    let is_random = is_random(spec.kind);
    let is_special = !spec.sizes.is_empty()
        || picker.is_some()
        || spec.flush_every > 0
        || stamps.is_some()
        || regions > 1
        || spec.step_bytes != 0
        || spec.run_length > 1
        || spec.align_bytes.is_some();
    if !is_special {
        match verb {
            Verb::Read => return Work::Plain { kind: RequestKind::Read { len_bytes }, is_random },
            Verb::Write => return Work::Plain { kind: RequestKind::Write { len_bytes }, is_random },
            _ => {}
        }
    }

    let places = match picker {
        Some(picker) => Places::Picked(Box::new(picker)),
        None if is_random => Places::Uniform,
        None => Places::Sequential,
    };

    let cumulative = |sizes: &[SizeShare]| {
        let mut upto_pct = 0.0;
        let upto = |size: &SizeShare| {
            upto_pct += size.percent;
            (upto_pct, size.bytes)
        };
        sizes.iter().map(upto).collect::<Vec<_>>()
    };
    Work::Special(Box::new(Special {
        verb,
        places,
        sizes: [cumulative(&spec.sizes), cumulative(&spec.write_sizes)],
        unit_bytes: unit_bytes(spec),
        ends: vec![first * u64::from(len_bytes); regions],
        turn: 0,
        run_left: 0,
        stamps,
        asked_bytes: [0, 0],
        discarded_bytes: 0,
        written: None,
        faults: Vec::new(),
        fault_count: 0,
    }))
}

fn is_random(pattern: Pattern) -> bool {
    matches!(pattern, Pattern::RandRead | Pattern::RandWrite | Pattern::RandMixed { .. })
}

pub(super) fn lengths(spec: &JobSpec) -> impl Iterator<Item = u32> + '_ {
    let sizes = spec.sizes.iter().chain(&spec.write_sizes).map(|size| size.bytes);
    std::iter::once(spec.request_bytes).chain(sizes)
}

/// Returns the shortest request of a job, in bytes, at least 1.
fn unit_bytes(spec: &JobSpec) -> u64 {
    u64::from(lengths(spec).min().unwrap_or(spec.request_bytes).max(1))
}

/// Returns the picker of a job's positions, or `None` if they are drawn evenly or not at all.
///
/// # Errors
/// [`AccessError`] if a parameter of the distribution is out of its range.
pub(super) fn picker(spec: &JobSpec, target: &Target, seed: u64) -> Result<Option<AccessPicker>, AccessError> {
    if !is_random(spec.kind) || spec.access == Access::Uniform {
        return Ok(None);
    }
    AccessPicker::new(&spec.access, target.len_bytes / unit_bytes(spec), seed).map(Some)
}

pub(super) fn class_result(reactor: &Reactor, disk: u16, class: Class) -> Option<ClassResult> {
    let mut result = ClassResult { stats: reactor.class_stats(disk, class)?, ..ClassResult::default() };
    reactor.class_latencies(disk, class, &mut |latencies| {
        result.queue.merge(&latencies.queue);
        result.device.merge(&latencies.device);
    });
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::next_in_line;

    /// The offsets of requests of 4 bytes in a region of 32, from its begin on.
    fn line(step_bytes: i64, count: usize) -> Vec<u64> {
        let mut end = 0;
        let next = |_| {
            let offset = next_in_line(end, step_bytes, 32, 4);
            end = offset + 4;
            offset
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn steps_lead_through_the_region_and_around_its_end() {
        assert_eq!(line(0, 9), [0, 4, 8, 12, 16, 20, 24, 28, 0]);
        assert_eq!(line(4, 5), [0, 8, 16, 24, 0]);
        assert_eq!(line(-8, 9), [0, 24, 20, 16, 12, 8, 4, 0, 24]);
        assert_eq!(line(100, 2), [0, 0]);
        assert_eq!(line(-100, 3), [0, 0, 0]);
    }
}
