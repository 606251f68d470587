//! One shard of a run: fibers around a reactor.
//!
//! # Why
//! The measured window, the fibers and the counting are one loop; what happens before it is in [`super::prepare`], how the
//! shards wait for each other in [`super::crew`].
//!
//! # How it works
//! Each turn parks the reactor until a completion, a timer or the end of the window; counts what came back; and sends what
//! is due. A fiber ends when its job has reached a limit. A shard without fibers goes on turning while others have some:
//! it may serve their requests.
//!
//! # Limits
//! A fiber whose request finds the shard's table full counts an error and tries again a millisecond later.
//!
//! # Example
//! See [`super::run`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll::core::Histogram;
use plimsoll::sys::rusage;
use plimsoll::{Class, Data, Done, Reactor, Refused, RefusedReason, Request, RequestKind};

use super::crew::{Crew, Member};
use super::prepare::prepare;
use super::result::ClassResult;
use super::{Control, JobResult, JobSpec, LoadError, Pattern, PauseDistribution, Plan, ShardResult, Target};
use plimsoll_sim::rng::Rng;

/// How long a shard may sleep without looking whether the run is to end.
const LOOK_UP_NS: u64 = 50_000_000;
/// How often the depth in the device is sampled.
const SAMPLE_NS: u64 = 1_000_000;
/// How long a fiber waits that was refused because the shard's table is full.
const RETRY_NS: u64 = 1_000_000;
/// Linux's error number of what may be tried again: the shard's table is full.
const EAGAIN: i32 = 11;
/// Linux's error number of a request that makes no sense, such as one in a class that was removed.
const EINVAL: i32 = 22;

/// A job on this shard.
pub(super) struct Job<'a> {
    spec: &'a JobSpec,
    target: &'a Target,
    /// Requests that fit in the region.
    positions: u64,
    next_position: u64,
    rng: Rng,
    /// Fibers that have not ended.
    live_fibers: u32,
    /// When the last of them ended.
    ended_ns: Option<u64>,
    made: u64,
    requests: u64,
    bytes: u64,
    errors: u64,
    first_error: Option<i32>,
    latency: Box<Histogram>,
    device_depth: Box<Histogram>,
}

/// One request, or batch, after another.
pub(super) struct Fiber {
    pub(super) job: usize,
    pub(super) buffers: Vec<Data>,
    pub(super) outstanding: u32,
    /// When the present request was due; latency counts from here.
    pub(super) due_ns: u64,
    /// Ends of the active phase of a thinking job.
    pub(super) phase_end_ns: u64,
}

struct Runner<'a> {
    reactor: Reactor,
    control: &'a Control,
    /// Whether writes must ask `control` first.
    is_bounded: bool,
    jobs: Vec<Job<'a>>,
    fibers: Vec<Fiber>,
    /// Fibers that pause: (when, which).
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Requests of this shard's fibers under way.
    outstanding: u64,
    begin_ns: u64,
    end_ns: u64,
    /// Whether the measured window has begun.
    counting: bool,
    running: bool,
}

/// Runs the jobs of `plan` that belong to the reactor's shard.
pub(super) fn run_shard(
    mut reactor: Reactor,
    plan: &Plan,
    control: &Control,
    crew: &Crew,
) -> Result<ShardResult, LoadError> {
    let member = Member::new(crew, reactor.wake_handle());
    let made = prepare(&mut reactor, plan);
    // Whoever failed must still come to the start, or the others wait for ever.
    if made.is_err() {
        control.stop();
    }
    member.begin();
    let (jobs, fibers) = made?;
    let mut runner = Runner {
        reactor,
        control,
        is_bounded: control.are_writes_bounded(),
        jobs,
        fibers,
        timers: BinaryHeap::new(),
        outstanding: 0,
        begin_ns: 0,
        end_ns: 0,
        counting: plan.warmup_ns == 0,
        running: true,
    };
    runner.start(plan);
    runner.turn_until_over(plan, member)
}

impl Runner<'_> {
    /// All fibers begin: those with a rate spread over their period, the others at once.
    fn start(&mut self, plan: &Plan) {
        let mut none = Vec::new();
        self.reactor.reap(&mut none);
        let now_ns = self.reactor.now_ns();
        self.begin_ns = now_ns.saturating_add(plan.warmup_ns);
        self.end_ns = self.begin_ns.saturating_add(plan.duration_ns);
        let mut nth = vec![0u64; self.jobs.len()];
        for at in 0..self.fibers.len() {
            let job = self.fibers[at].job;
            let spec = self.jobs[job].spec;
            self.fibers[at].phase_end_ns = now_ns.saturating_add(spec.think_after_ns);
            match period_ns(spec) {
                Some(period_ns) => {
                    let due_ns = now_ns + (period_ns * nth[job] as f64 / f64::from(spec.parallelism.max(1))) as u64;
                    self.fibers[at].due_ns = due_ns;
                    self.timers.push(Reverse((due_ns, at as u32)));
                }
                None => self.send(at, now_ns),
            }
            nth[job] += 1;
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
                // All jobs of all shards have reached their limits.
                self.end_ns = now_ns.min(self.end_ns).max(self.begin_ns);
                break;
            }
            let wake_ns = self.timers.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns);
            let look_ns = now_ns.saturating_add(LOOK_UP_NS).min(self.end_ns);
            self.reactor.park(Some(wake_ns.min(look_ns))).map_err(LoadError::Backend)?;
            if self.counting && self.reactor.now_ns() >= next_sample_ns {
                next_sample_ns = self.reactor.now_ns() + SAMPLE_NS;
                self.sample_depth();
            }
            self.reactor.reap(&mut done);
            let now_ns = self.reactor.now_ns();
            if !self.counting && now_ns >= self.begin_ns {
                // A shard that gets its CPU late measures as long as the others.
                self.begin_counting(now_ns);
                self.end_ns = now_ns.saturating_add(plan.duration_ns);
                cpu_begin_ns = rusage::thread_cpu_ns();
            }
            if now_ns >= self.end_ns || self.control.is_stopped() {
                self.end_ns = now_ns.min(self.end_ns).max(self.begin_ns);
                break;
            }
            for end in done.drain(..) {
                self.is_done(end, now_ns);
            }
            self.fire_timers(now_ns);
        }
        if !self.counting {
            // It ended in the warm-up: nothing was measured, and no counter may say otherwise.
            self.begin_counting(self.end_ns);
            cpu_begin_ns = rusage::thread_cpu_ns();
        }
        let cpu_ns = rusage::thread_cpu_ns().saturating_sub(cpu_begin_ns);
        let result = self.result(cpu_ns);
        self.drain(done, member)?;
        Ok(result)
    }

    /// Whether this shard has nothing under way, and nothing to send later.
    fn is_idle(&self) -> bool {
        self.outstanding == 0 && (self.timers.is_empty() || !self.running)
    }

    fn begin_counting(&mut self, now_ns: u64) {
        self.counting = true;
        self.begin_ns = now_ns;
        self.reactor.reset_stats();
    }

    fn is_done(&mut self, end: Done, now_ns: u64) {
        let fiber_at = (end.tag >> 32) as usize;
        let fiber = &mut self.fibers[fiber_at];
        let job = &mut self.jobs[fiber.job];
        if self.counting && self.running {
            job.count(&end, now_ns.saturating_sub(fiber.due_ns));
        }
        fiber.buffers[(end.tag & 0xffff_ffff) as usize] = end.data;
        fiber.outstanding -= 1;
        self.outstanding -= 1;
        if fiber.outstanding == 0 && self.running {
            self.go_on(fiber_at, now_ns);
        }
    }

    /// The fiber's batch is back: when is the next due?
    fn go_on(&mut self, at: usize, now_ns: u64) {
        let fiber = &mut self.fibers[at];
        let job = &mut self.jobs[fiber.job];
        let spec = job.spec;
        if spec.limit_requests.is_some_and(|limit| job.made > u64::from(limit)) {
            job.fiber_ended(now_ns);
            return;
        }
        let mut due_ns = match period_ns(spec) {
            Some(period_ns) => {
                let gap_ns = match spec.pause_distribution {
                    PauseDistribution::Uniform => period_ns,
                    PauseDistribution::Poisson => job.rng.exponential(period_ns),
                };
                fiber.due_ns.saturating_add(gap_ns as u64)
            }
            None => now_ns,
        };
        if spec.think_time_ns > 0 && now_ns >= fiber.phase_end_ns {
            due_ns = due_ns.max(now_ns.saturating_add(spec.think_time_ns));
            fiber.phase_end_ns = due_ns.saturating_add(spec.think_after_ns);
        }
        if due_ns <= now_ns {
            self.send(at, due_ns);
        } else {
            fiber.due_ns = due_ns;
            self.timers.push(Reverse((due_ns, at as u32)));
        }
    }

    fn fire_timers(&mut self, now_ns: u64) {
        while let Some(Reverse((at_ns, at))) = self.timers.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            self.timers.pop();
            // After a refusal it was due earlier than its timer says.
            self.send(at as usize, self.fibers[at as usize].due_ns);
        }
    }

    fn send(&mut self, at: usize, due_ns: u64) {
        let now_ns = self.reactor.now_ns();
        let fiber = &mut self.fibers[at];
        fiber.due_ns = due_ns;
        let job = &mut self.jobs[fiber.job];
        let budget = (self.is_bounded && job.spec.pattern.is_write()).then_some(self.control);
        let request_bytes = u64::from(job.spec.request_bytes);
        let mut is_full = false;
        for (number, buffer) in fiber.buffers.iter_mut().enumerate() {
            if budget.is_some_and(|control| !control.take_write(request_bytes)) {
                break;
            }
            let data = std::mem::take(buffer);
            let request = job.next_request(data, ((at as u64) << 32) | number as u64);
            if let Err(refused) = self.reactor.submit(request) {
                let Refused { reason, request } = *refused;
                *buffer = request.data;
                is_full = reason == RefusedReason::Full;
                if self.counting {
                    job.fail(if is_full { EAGAIN } else { EINVAL });
                }
                if let Some(control) = budget {
                    control.give_back_write(request_bytes);
                }
                break;
            }
            fiber.outstanding += 1;
            self.outstanding += 1;
            job.made += 1;
        }
        if fiber.outstanding == 0 {
            // No completion will move this fiber on.
            match is_full {
                true => self.timers.push(Reverse((now_ns.saturating_add(RETRY_NS), at as u32))),
                false => job.fiber_ended(now_ns),
            }
        }
    }

    fn sample_depth(&mut self) {
        for job in &mut self.jobs {
            if let Some(stats) = self.reactor.class_stats(job.target.file.disk(), job.spec.class) {
                job.device_depth.record(u64::from(stats.in_flight));
            }
        }
    }

    fn result(&mut self, cpu_ns: u64) -> ShardResult {
        let (begin_ns, end_ns) = (self.begin_ns, self.end_ns);
        let reactor = &self.reactor;
        let jobs = self.jobs.iter_mut().map(|job| JobResult {
            name: job.spec.name.clone(),
            requests: job.requests,
            bytes: job.bytes,
            errors: job.errors,
            first_error: job.first_error,
            elapsed_ns: job.ended_ns.unwrap_or(end_ns).min(end_ns).saturating_sub(begin_ns),
            latency: std::mem::take(&mut job.latency),
            device_depth_mean: job.device_depth.mean(),
            device_depth: std::mem::take(&mut job.device_depth),
            intervals: Vec::new(),
            faults: Vec::new(),
            fault_count: 0,
            class: class_result(reactor, job.target.file.disk(), job.spec.class),
        });
        let jobs = jobs.collect();
        ShardResult { shard: reactor.shard(), cpu_ns, elapsed_ns: end_ns.saturating_sub(begin_ns), jobs }
    }

    /// Waits for what is still under way, here (no write may land in a file that is being removed) and on other shards, whose
    /// requests this one may serve.
    fn drain(mut self, mut done: Vec<Done>, mut member: Member<'_>) -> Result<(), LoadError> {
        self.running = false;
        loop {
            let now_ns = self.reactor.now_ns();
            for end in done.drain(..) {
                self.is_done(end, now_ns);
            }
            if self.is_idle() {
                member.rest();
            }
            if member.do_all_rest() {
                break;
            }
            self.reactor.park(Some(now_ns.saturating_add(LOOK_UP_NS))).map_err(LoadError::Backend)?;
            self.reactor.reap(&mut done);
        }
        let made_bytes = |job: &Job<'_>| job.made * u64::from(job.spec.request_bytes);
        let (writes, reads): (Vec<_>, Vec<_>) = self.jobs.iter().partition(|job| job.spec.pattern.is_write());
        self.control.add_written(writes.into_iter().map(made_bytes).sum());
        self.control.add_read(reads.into_iter().map(made_bytes).sum());
        Ok(())
    }
}

impl<'a> Job<'a> {
    /// A job that has done nothing yet, and begins at `next_position` of `positions` (at least 1).
    pub(super) fn new(spec: &'a JobSpec, target: &'a Target, positions: u64, next_position: u64, rng: Rng) -> Job<'a> {
        Job {
            spec,
            target,
            positions,
            next_position,
            rng,
            live_fibers: spec.parallelism,
            ended_ns: None,
            made: 0,
            requests: 0,
            bytes: 0,
            errors: 0,
            first_error: None,
            latency: Box::default(),
            device_depth: Box::default(),
        }
    }

    fn count(&mut self, end: &Done, latency_ns: u64) {
        match end.result {
            Ok(bytes) => {
                self.requests += 1;
                self.bytes += u64::from(bytes);
                self.latency.record(latency_ns);
                if bytes != self.spec.request_bytes {
                    self.fail(0);
                }
            }
            Err(code) => self.fail(code),
        }
    }

    fn fail(&mut self, code: i32) {
        self.errors += 1;
        self.first_error.get_or_insert(code);
    }

    fn fiber_ended(&mut self, now_ns: u64) {
        self.live_fibers = self.live_fibers.saturating_sub(1);
        if self.live_fibers == 0 {
            self.ended_ns = Some(now_ns);
        }
    }

    fn next_request(&mut self, data: Data, tag: u64) -> Request {
        let len_bytes = self.spec.request_bytes;
        let position = match self.spec.pattern {
            Pattern::RandRead | Pattern::RandWrite | Pattern::RandMixed { .. } => self.rng.below(self.positions),
            _ => {
                let position = self.next_position;
                self.next_position = (position + 1) % self.positions;
                position
            }
        };
        let kind = if self.spec.pattern.is_write() {
            RequestKind::Write { len_bytes }
        } else {
            RequestKind::Read { len_bytes }
        };
        let offset = self.target.offset + position * u64::from(len_bytes);
        Request { file: self.target.file.clone(), class: self.spec.class, kind, offset, data, tag }
    }
}

fn period_ns(spec: &JobSpec) -> Option<f64> {
    spec.requests_per_s_per_fiber.map(|rate| 1e9 / rate)
}

fn class_result(reactor: &Reactor, disk: u16, class: Class) -> Option<ClassResult> {
    let mut result = ClassResult { stats: reactor.class_stats(disk, class)?, ..ClassResult::default() };
    reactor.class_latencies(disk, class, &mut |latencies| {
        result.queue.merge(&latencies.queue);
        result.device.merge(&latencies.device);
    });
    Some(result)
}
