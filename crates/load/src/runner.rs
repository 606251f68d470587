//! One shard of a run: fibers around a reactor.
//!
//! **Why.** One loop holds the measured window, the fibers and the counting. [`super::prepare`] runs before it,
//! [`super::crew`] makes shards wait for each other, and [`super::job`] chooses the next request.
//!
//! **How.** Each turn parks the reactor until a completion, a timer or the end of the window; counts completions; and
//! sends due requests. A fiber ends when its job has reached a limit. A shard without fibers continues to turn while
//! others have some, because it may serve their requests.
//!
//! Fibers of CPU jobs queue for slices; each turn of the loop runs one slice, so completions wait for at most one
//! slice. Files are removed on a helper thread ([`super::unlink`]). A flush after writes is a request whose tag names
//! no buffer. After the window, jobs that verify read their writes back.
//!
//! **Limits.** A fiber whose request finds the shard's table full counts an error and tries again a millisecond later.
//!
//! **Example.** See [`super::run`].

mod finish;
mod send;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll::backend::OpResult;
use plimsoll::backend::choose::BackendKind;
use plimsoll::core::Histogram;
use plimsoll::sys::rusage;
use plimsoll::{Done, Reactor, RefusedReason};
use plimsoll_sim::rng::Rng;

use super::crew::{Crew, LOOK_UP_NS, Member};
use super::fiber::{Fiber, Then};
use super::job::{Job, Pacing};
use super::live::{Buckets, LiveJob, LiveShard, LiveSlot, since};
use super::pauses::due_after;
use super::prepare::prepare;
use super::unlink::{Place, Unlinker};
use super::work::Work;
use super::{Control, LoadError, PauseDistribution, Plan, ShardResult, Watch};

/// Time between two samples of the depth in the device.
pub(super) const SAMPLE_NS: u64 = 1_000_000;
/// Time between two publications of a shard's state.
const PUBLISH_NS: u64 = 100_000_000;
/// Shortest interval of a series.
const INTERVAL_MIN_NS: u64 = 1_000_000;
/// Wait before a request is tried again that was refused because the shard's table is full.
pub(super) const RETRY_NS: u64 = 1_000_000;
/// Linux's error number for "try again": the shard's table is full.
const EAGAIN: i32 = 11;
/// Linux's error number for an invalid request, such as one in a class that was removed.
pub(super) const EINVAL: i32 = 22;
/// Buffer number of a flush in its tag; no buffer has this number.
const FLUSH: u64 = 0xffff_ffff;
/// Bit that marks the timer of a job's schedule; timers without it belong to a fiber.
const SCHEDULE: u32 = 1 << 31;

/// The state behind a shard's publications.
struct Publisher {
    period_ns: u64,
    next_ns: u64,
    /// Latencies of each job at the last publication.
    before: Vec<Buckets>,
}

struct Runner<'a> {
    reactor: Reactor,
    control: &'a Control,
    jobs: Vec<Job<'a>>,
    fibers: Vec<Fiber>,
    /// Timers of pausing fibers and of schedules: (time in ns, fiber or schedule).
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Fibers that wait for a slice of CPU time.
    slices: VecDeque<u32>,
    unlinker: Option<Unlinker>,
    /// Requests of this shard's fibers in flight.
    outstanding: u64,
    begin_ns: u64,
    end_ns: u64,
    /// Length of the intervals; 0 for none.
    interval_ns: u64,
    /// When the current interval ends.
    mark_ns: u64,
    /// When the warm-up of the next delayed job ends.
    late_ns: u64,
    publisher: Publisher,
    /// Whether the measured window has begun.
    counting: bool,
    running: bool,
}

/// Runs the jobs of `plan` on the reactor's shard. `run_number` is unique to the run.
pub(super) fn run_shard(
    mut reactor: Reactor,
    plan: &Plan,
    run_number: u64,
    watch: &Watch,
    control: &Control,
    crew: &Crew,
) -> Result<ShardResult, LoadError> {
    let (member, (jobs, fibers, unlinker)) = crew.join(&mut reactor, |reactor| {
        let (jobs, fibers) = prepare(reactor, plan, run_number)?;
        let unlinker = start_unlinker(reactor, plan, &jobs)?;
        Ok((jobs, fibers, unlinker))
    })?;

    let period_ns = watch.steady.map_or(PUBLISH_NS, |stop| (stop.sample_ns() / 4).clamp(SAMPLE_NS, PUBLISH_NS));
    let publisher = Publisher { period_ns, next_ns: 0, before: vec![Buckets::new(); jobs.len()] };

    let mut runner = Runner {
        reactor,
        control,
        jobs,
        fibers,
        timers: BinaryHeap::new(),
        slices: VecDeque::new(),
        unlinker,
        outstanding: 0,
        begin_ns: 0,
        end_ns: 0,
        interval_ns: if watch.interval_ns == 0 { 0 } else { watch.interval_ns.max(INTERVAL_MIN_NS) },
        mark_ns: u64::MAX,
        late_ns: u64::MAX,
        publisher,
        counting: plan.warmup_ns == 0,
        running: true,
    };

    runner.start(plan);
    runner.turn_until_over(plan, member)
}

/// Starts the helper thread if a job removes files.
fn start_unlinker(reactor: &Reactor, plan: &Plan, jobs: &[Job<'_>]) -> Result<Option<Unlinker>, LoadError> {
    let Some(job) = jobs.iter().find(|job| matches!(job.work, Work::Unlink { .. })) else { return Ok(None) };
    let place = match plan.options.backend {
        Some(BackendKind::Null) => Place::Nowhere,
        Some(BackendKind::Memory) => Place::Memory(plan.topology.memory().clone()),
        _ => Place::Disk,
    };
    let started = Unlinker::start(place, reactor.wake_handle());
    started.map(Some).map_err(|error| LoadError::Open { job: job.spec.name.clone(), error })
}

impl Runner<'_> {
    /// Starts all fibers: those with a rate spread over their period, the others at once, unless the job delays them.
    fn start(&mut self, plan: &Plan) {
        let mut none = Vec::new();
        self.reactor.reap(&mut none);
        let now_ns = self.reactor.now_ns();

        self.begin_ns = now_ns.saturating_add(plan.warmup_ns);
        self.end_ns = self.begin_ns.saturating_add(plan.duration_ns);
        if self.counting && self.interval_ns > 0 {
            self.mark_ns = self.begin_ns.saturating_add(self.interval_ns);
        }

        for job in &mut self.jobs {
            job.begin(now_ns.saturating_add(job.spec.start_delay_ns), plan.warmup_ns);
        }

        let mut nth = vec![0u64; self.jobs.len()];
        for at in 0..self.fibers.len() {
            let number = self.fibers[at].job;
            let job = &self.jobs[number];
            let part = nth[number] as f64 / f64::from(job.spec.parallelism.max(1));
            nth[number] += 1;
            let mut due_ns = job.begin_ns.saturating_add((job.spec.ramp_up_ns as f64 * part) as u64);
            if let Pacing::Fiber { period_ns } = job.pacing {
                due_ns = due_ns.saturating_add((period_ns * part) as u64);
            }

            let fiber = &mut self.fibers[at];
            fiber.phase_end_ns = due_ns.saturating_add(job.spec.think_after_ns);
            fiber.due_ns = due_ns;
            fiber.then = if matches!(job.pacing, Pacing::Shard(_)) { Then::GoOn } else { Then::Send };
            if matches!(job.pacing, Pacing::Closed) && due_ns <= now_ns {
                self.send(at, now_ns);
            } else {
                self.timers.push(Reverse((due_ns.min(job.stop_ns), at as u32)));
            }
        }
    }

    fn turn_until_over(mut self, plan: &Plan, mut member: Member<'_>) -> Result<ShardResult, LoadError> {
        let mut done = Vec::new();
        let mut cpu_begin_ns = rusage::thread_cpu_ns();
        let mut next_sample_ns = self.begin_ns;
        loop {
            if self.is_idle() {
                member.rest();
            }

            let now_ns = self.reactor.now_ns();
            if member.do_all_rest() {
                // All jobs on all shards have reached their limits.
                self.end_ns = now_ns.min(self.end_ns).max(self.begin_ns);
                break;
            }

            self.reactor.park(Some(self.wake_ns(now_ns))).map_err(LoadError::Backend)?;
            if self.reactor.now_ns() >= next_sample_ns {
                next_sample_ns = self.reactor.now_ns() + SAMPLE_NS;
                self.sample();
            }

            self.reactor.reap(&mut done);
            let now_ns = self.reactor.now_ns();

            if !self.counting && now_ns >= self.begin_ns {
                // A shard that gets its CPU late measures as long as the others.
                self.begin_counting(now_ns);
                self.end_ns = now_ns.saturating_add(plan.duration_ns);
                cpu_begin_ns = rusage::thread_cpu_ns();
            }

            if self.counting && now_ns >= self.late_ns {
                self.count_jobs(now_ns);
            }

            if now_ns >= self.end_ns || self.control.stop.is_asked() || member.is_over() {
                self.end_ns = now_ns.min(self.end_ns).max(self.begin_ns);
                break;
            }
            if now_ns >= self.mark_ns {
                self.mark_until(now_ns);
            }

            for end in done.drain(..) {
                self.is_done(end, now_ns);
            }
            if self.unlinker.is_some() {
                self.collect_unlinked(now_ns);
            }

            self.fire_timers(now_ns);
            if let Some(at) = self.slices.pop_front() {
                self.run_slice(at as usize, now_ns);
            }
        }

        if !self.counting {
            // The run ended in the warm-up: only jobs that had ended by then were measured.
            self.begin_counting(self.end_ns);
            cpu_begin_ns = rusage::thread_cpu_ns();
        }
        self.count_jobs(u64::MAX);

        let cpu_ns = rusage::thread_cpu_ns().saturating_sub(cpu_begin_ns);
        // Read the limits while the load still exists.
        let disks = (0..plan.topology.disks()).filter_map(|number| plan.topology.disk(number));
        let window_limits = disks.map(|disk| disk.snapshot().window_limit).collect();
        self.finish(cpu_ns, window_limits, done, member)
    }

    /// Returns the time until which the shard may sleep.
    fn wake_ns(&self, now_ns: u64) -> u64 {
        if !self.slices.is_empty() {
            // Not in the past: the backend then still checks for completions.
            return now_ns.saturating_add(1);
        }
        let wake_ns = self.timers.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns);
        wake_ns.min(now_ns.saturating_add(LOOK_UP_NS)).min(self.end_ns)
    }

    /// Returns whether this shard has nothing in flight and nothing to send later.
    fn is_idle(&self) -> bool {
        self.outstanding == 0 && (self.timers.is_empty() || !self.running)
    }

    fn begin_counting(&mut self, now_ns: u64) {
        self.counting = true;
        self.begin_ns = now_ns;
        if self.interval_ns > 0 {
            self.mark_ns = now_ns.saturating_add(self.interval_ns);
        }
        self.count_jobs(now_ns);
        self.reactor.reset_stats();
    }

    /// Begins to count the jobs whose warm-up has ended: that of a delayed job ends later, as in fio.
    fn count_jobs(&mut self, now_ns: u64) {
        self.late_ns = u64::MAX;
        for job in self.jobs.iter_mut().filter(|job| !job.is_counting) {
            if now_ns >= job.counted_ns {
                job.begin_counting();
            } else {
                self.late_ns = self.late_ns.min(job.counted_ns);
            }
        }
    }

    /// Closes the intervals that ended by `now_ns`; later completions belong to the next.
    fn mark_until(&mut self, now_ns: u64) {
        while self.mark_ns <= now_ns {
            let from_ns = self.mark_ns - self.interval_ns;
            self.jobs.iter_mut().for_each(|job| job.mark(from_ns, self.interval_ns));
            self.mark_ns = self.mark_ns.saturating_add(self.interval_ns);
        }
    }

    fn is_done(&mut self, end: Done, now_ns: u64) {
        let fiber_at = (end.tag >> 32) as usize;
        let number = (end.tag & 0xffff_ffff) as usize;
        let fiber = &mut self.fibers[fiber_at];
        let job = &mut self.jobs[fiber.job];

        match &mut job.work {
            Work::Special(_) => special_is_done(job, fiber, number, &end, self.running.then_some(now_ns)),
            _ if self.running => {
                job.count(
                    end.result.map_err(|error| error.errno()),
                    job.spec.request_bytes,
                    now_ns.saturating_sub(fiber.due_ns),
                );
            }
            _ => {}
        }

        if self.counting && self.running && job.floor.is_some() {
            job.check_rate(now_ns);
        }

        if let Some(buffer) = fiber.buffers.get_mut(number) {
            *buffer = end.data;
            if let Some(pauses) = &mut job.pauses {
                pauses.count();
            }
        }

        job.under_way -= 1;
        fiber.outstanding -= 1;
        self.outstanding -= 1;
        if fiber.outstanding == 0 && self.running {
            self.go_on(fiber_at, now_ns);
        }
    }

    /// Continues a fiber whose batch has completed.
    fn go_on(&mut self, at: usize, now_ns: u64) {
        let job = &self.jobs[self.fibers[at].job];
        if job.is_used_up(now_ns) {
            self.end_fiber(at, now_ns);
        } else if job.is_simple {
            self.send(at, now_ns);
        } else if !self.flush_if_due(at, now_ns) && !self.hold_for_pause(at, now_ns) {
            self.go_on_later(at, now_ns);
        }
    }

    /// Holds a fiber whose job must pause. If nothing is in flight any more, begins the pause. Returns whether the
    /// fiber is held.
    fn hold_for_pause(&mut self, at: usize, now_ns: u64) -> bool {
        let job = &mut self.jobs[self.fibers[at].job];
        let Some(pauses) = &mut job.pauses else { return false };
        if !pauses.hold(at as u32) {
            return false;
        }

        if job.under_way == 0 {
            let end_ns = now_ns.saturating_add(job.spec.think_time_ns);
            for held in pauses.begin(end_ns) {
                self.set_timer(held as usize, end_ns, Then::GoOn);
            }
        }
        true
    }

    /// Ends a fiber. If its job ends with it, drops the timers of the job's other fibers.
    fn end_fiber(&mut self, at: usize, now_ns: u64) {
        let fiber = &mut self.fibers[at];
        fiber.has_ended = true;
        let number = fiber.job;
        let job = &mut self.jobs[number];
        let had_ended = job.ended_ns.is_some();
        job.fiber_ended(now_ns);

        if job.ended_ns.is_some() && !had_ended {
            let fibers = &self.fibers;
            self.timers.retain(|Reverse((_, which))| match which & SCHEDULE != 0 {
                true => (which & !SCHEDULE) as usize != number,
                false => fibers[*which as usize].job != number,
            });
        }
    }

    /// Sends the next request of a paced or thinking fiber, or sets a timer for it.
    fn go_on_later(&mut self, at: usize, now_ns: u64) {
        let fiber = &mut self.fibers[at];
        let job = &mut self.jobs[fiber.job];
        let spec = job.spec;
        let mut due_ns = match &mut job.pacing {
            Pacing::Closed => now_ns,
            Pacing::Fiber { period_ns } => {
                let gap_ns = match spec.pause_distribution {
                    PauseDistribution::Uniform => *period_ns,
                    PauseDistribution::Poisson => job.rng.exponential(*period_ns),
                };
                fiber.due_ns.saturating_add(gap_ns.round() as u64)
            }
            Pacing::Shard(pace) => match pace.take(now_ns, &mut job.rng) {
                Some(due_ns) => {
                    let due_ns = due_after(job.pauses.as_ref(), due_ns);
                    return self.send(at, due_ns);
                }
                None => {
                    pace.free.push(at as u32);
                    if !std::mem::replace(&mut pace.is_armed, true) {
                        self.timers.push(Reverse((pace.next_ns().min(job.stop_ns), fiber.job as u32 | SCHEDULE)));
                    }
                    return;
                }
            },
        };

        if spec.think_time_ns > 0 && job.pauses.is_none() && now_ns >= fiber.phase_end_ns {
            due_ns = due_ns.max(now_ns.saturating_add(spec.think_time_ns));
            fiber.phase_end_ns = due_ns.saturating_add(spec.think_after_ns);
        }

        if due_ns <= now_ns {
            let number = fiber.job;
            self.send(at, due_ns);
            if let Some(pauses) = &mut self.jobs[number].pauses {
                pauses.check();
            }
        } else {
            fiber.due_ns = due_ns;
            self.set_timer(at, due_ns, Then::Send);
        }
    }

    /// Sets a timer for a fiber. If the job ends earlier, the timer fires at that end.
    fn set_timer(&mut self, at: usize, at_ns: u64, then: Then) {
        let fiber = &mut self.fibers[at];
        fiber.then = then;
        self.timers.push(Reverse((at_ns.min(self.jobs[fiber.job].stop_ns), at as u32)));
    }

    fn fire_timers(&mut self, now_ns: u64) {
        while let Some(Reverse((at_ns, which))) = self.timers.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            self.timers.pop();
            if which & SCHEDULE != 0 {
                self.fire_schedule((which & !SCHEDULE) as usize, now_ns);
                continue;
            }
            let at = which as usize;
            match self.fibers[at].then {
                // After a refusal the request was due before the timer's time.
                Then::Send => self.send(at, self.fibers[at].due_ns),
                Then::GoOn => self.go_on(at, now_ns),
            }
        }
    }

    /// Sends the requests of a schedule that are due, from free fibers.
    fn fire_schedule(&mut self, number: usize, now_ns: u64) {
        loop {
            let job = &mut self.jobs[number];
            let (is_used_up, stop_ns) = (job.is_used_up(now_ns), job.stop_ns);
            let Pacing::Shard(pace) = &mut job.pacing else { return };
            if is_used_up {
                pace.is_armed = false;
                for at in std::mem::take(&mut pace.free) {
                    self.end_fiber(at as usize, now_ns);
                }
                return;
            }

            let Some(at) = pace.free.pop() else {
                pace.is_armed = false;
                return;
            };

            match pace.take(now_ns, &mut job.rng) {
                Some(due_ns) => self.send(at as usize, due_ns),
                None => {
                    pace.free.push(at);
                    self.timers.push(Reverse((pace.next_ns().min(stop_ns), number as u32 | SCHEDULE)));
                    return;
                }
            }
        }
    }

    fn collect_unlinked(&mut self, now_ns: u64) {
        while let Some((at, result)) = self.unlinker.as_ref().and_then(Unlinker::poll) {
            self.has_ended(at as usize, result.map(|()| 0), now_ns);
        }
    }

    /// Spends one slice of CPU time, and counts it.
    fn run_slice(&mut self, at: usize, now_ns: u64) {
        let Work::Cpu { execution_ns } = self.jobs[self.fibers[at].job].work else { return };
        let begin = Instant::now();
        let mut rng = Rng::new(now_ns);
        while begin.elapsed() < Duration::from_nanos(execution_ns) {
            for _ in 0..64 {
                black_box(rng.next_u64());
            }
        }

        let spent_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.has_ended(at, Ok(0), now_ns.saturating_add(spent_ns));
    }

    /// Counts the end of a removal or a slice, and continues its fiber.
    fn has_ended(&mut self, at: usize, result: OpResult, now_ns: u64) {
        let fiber = &mut self.fibers[at];
        if self.running {
            self.jobs[fiber.job].count(result, 0, now_ns.saturating_sub(fiber.due_ns));
        }
        self.jobs[fiber.job].under_way -= 1;
        fiber.outstanding = 0;
        self.outstanding -= 1;
        if self.running {
            self.go_on(at, now_ns);
        }
    }

    /// Samples the depth in the device, and publishes the state if a reader wants it.
    fn sample(&mut self) {
        let now_ns = self.reactor.now_ns();
        if self.counting {
            for job in &mut self.jobs {
                job.result.sample_depth(&self.reactor, job.target.file.disk(), job.spec.class);
            }
        }
        if now_ns >= self.publisher.next_ns && self.control.instruments.board().is_wanted() {
            self.publish(now_ns);
        }
    }

    fn publish(&mut self, now_ns: u64) {
        let (reactor, jobs, before) = (&self.reactor, &self.jobs, &mut self.publisher.before);
        let counted_ns = if self.counting { now_ns.saturating_sub(self.begin_ns) } else { 0 };
        let slot = |(job, before): (&Job<'_>, &mut Buckets)| {
            let stats = reactor.class_stats(job.target.file.disk(), job.spec.class);
            let (in_queue, in_device) = stats.map_or((0, 0), |s| (u64::from(s.queued), u64::from(s.in_flight)));
            let live = LiveJob { name: job.spec.name.clone(), in_queue, in_device, ..LiveJob::default() };
            if !job.is_counting {
                // The counts of the warm-up are dropped at its end.
                return LiveSlot { job: live, latency_sum_ns: 0, recent: since(before, &Histogram::default()) };
            }
            let (requests, bytes, errors) = (job.result.requests, job.result.bytes, job.result.errors);
            let latency_sum_ns = job.result.latency.sum_ns() as u64;
            let live = LiveJob { requests, bytes, errors, ..live };
            LiveSlot { job: live, latency_sum_ns, recent: since(before, &job.result.latency) }
        };

        let make = || LiveShard { counted_ns, slots: jobs.iter().zip(before).map(slot).collect() };
        if self.control.instruments.board().try_publish(reactor.shard(), make) {
            self.publisher.next_ns = now_ns.saturating_add(self.publisher.period_ns);
        }
    }
}

/// Verifies a completion of a job that keeps records of its requests. Counts it at `counted_ns`, while the run lasts.
fn special_is_done(job: &mut Job<'_>, fiber: &mut Fiber, number: usize, end: &Done, counted_ns: Option<u64>) {
    let Work::Special(special) = &mut job.work else { return };
    let Some(sent) = fiber.sent.get(number) else {
        fiber.unflushed = 0;
        if let Some(now_ns) = counted_ns {
            let result = end.result.map_err(|error| error.errno());
            job.result.flushes.count(result, 0, now_ns.saturating_sub(fiber.flush_sent_ns));
            if let Err(code) = result {
                job.result.fail(code);
            }
        }
        fiber.flush_sent_ns = 0;
        return;
    };

    special.verify(sent, end);
    if let Some(now_ns) = counted_ns {
        let latency_ns = now_ns.saturating_sub(fiber.due_ns);
        let (result, expected_bytes) = special.outcome(sent, end.result.map_err(|error| error.errno()));
        if let Some(directions) = &mut job.result.directions {
            directions.of(sent.is_write).count(result, expected_bytes, latency_ns);
        }
        job.count(result, expected_bytes, latency_ns);
    }
}

fn error_of(reason: RefusedReason) -> i32 {
    if reason == RefusedReason::Full { EAGAIN } else { EINVAL }
}
