//! One shard of a run: fibers around a reactor.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Barrier;

use plimsoll::buffer::AlignedBuf;
use plimsoll::core::Histogram;
use plimsoll::sys::rusage;
use plimsoll::{Class, Data, Done, Reactor, Request, RequestKind};

use super::result::ClassResult;
use super::{Control, JobResult, JobSpec, LoadError, Pattern, PauseDistribution, Plan, ShardResult, Target};
use crate::rng::Rng;

/// How long a shard may sleep without looking whether the run is to end.
const LOOK_UP_NS: u64 = 50_000_000;
/// How often the depth in the device is sampled.
const SAMPLE_NS: u64 = 1_000_000;

/// A job on this shard.
struct Job<'a> {
    spec: &'a JobSpec,
    target: &'a Target,
    /// Requests that fit in the region.
    positions: u64,
    next_position: u64,
    rng: Rng,
    made: u64,
    requests: u64,
    bytes: u64,
    errors: u64,
    first_error: Option<i32>,
    latency: Box<Histogram>,
    device_depth: Box<Histogram>,
}

/// One request, or batch, after another.
struct Fiber {
    job: usize,
    buffers: Vec<Data>,
    outstanding: u32,
    /// When the present request was due; latency counts from here.
    due_ns: u64,
    /// Ends of the active phase of a thinking job.
    phase_end_ns: u64,
}

struct Runner<'a> {
    reactor: Reactor,
    jobs: Vec<Job<'a>>,
    fibers: Vec<Fiber>,
    /// Fibers that pause: (when, which).
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    begin_ns: u64,
    end_ns: u64,
    running: bool,
}

/// Runs the jobs of `plan` that belong to the reactor's shard.
pub(super) fn run_shard(
    mut reactor: Reactor,
    plan: &Plan,
    control: &Control,
    barrier: &Barrier,
) -> Result<ShardResult, LoadError> {
    let made = make(&mut reactor, plan);
    // Whoever failed must still come to the barrier, or the others wait for ever.
    if made.is_err() {
        control.stop();
    }
    barrier.wait();
    let (jobs, fibers) = made?;
    let mut runner = Runner { reactor, jobs, fibers, timers: BinaryHeap::new(), begin_ns: 0, end_ns: 0, running: true };
    runner.start(plan);
    runner.turn_until_over(plan, control)
}

fn make<'a>(reactor: &mut Reactor, plan: &'a Plan) -> Result<(Vec<Job<'a>>, Vec<Fiber>), LoadError> {
    let shard = usize::from(reactor.shard());
    let mut jobs = Vec::new();
    let mut fibers = Vec::new();
    for (number, spec) in plan.jobs.iter().enumerate() {
        let Some(Some(target)) = spec.targets.get(shard) else { continue };
        let job = make_job(reactor, spec, target, plan.seed ^ ((shard as u64) << 32) ^ ((number as u64) << 48))?;
        let at = jobs.len();
        let mut buffers = make_buffers(reactor, spec, &mut Rng::new(plan.seed ^ number as u64))?;
        for _ in 0..spec.parallelism {
            let mine = buffers.split_off(buffers.len().saturating_sub(spec.batch.max(1) as usize));
            fibers.push(Fiber { job: at, buffers: mine, outstanding: 0, due_ns: 0, phase_end_ns: 0 });
        }
        jobs.push(job);
    }
    Ok((jobs, fibers))
}

fn make_job<'a>(reactor: &mut Reactor, spec: &'a JobSpec, target: &'a Target, seed: u64) -> Result<Job<'a>, LoadError> {
    let info = reactor.open(&target.file).map_err(|error| LoadError::Open { job: spec.name.clone(), error })?;
    let align_bytes = info.offset_align_bytes.max(1);
    if !spec.request_bytes.is_multiple_of(align_bytes) {
        let reason = format!(
            "requests of {} bytes, but {} takes direct I/O in multiples of {align_bytes} bytes: set reqsize to such a multiple",
            spec.request_bytes,
            target.file.path().display()
        );
        return Err(LoadError::Unsuitable { job: spec.name.clone(), reason });
    }
    let positions = target.len_bytes / u64::from(spec.request_bytes.max(1));
    if positions == 0 {
        let reason = format!("its region of {} bytes does not hold one request", target.len_bytes);
        return Err(LoadError::Unsuitable { job: spec.name.clone(), reason });
    }
    Ok(Job {
        spec,
        target,
        positions,
        next_position: 0,
        rng: Rng::new(seed),
        made: 0,
        requests: 0,
        bytes: 0,
        errors: 0,
        first_error: None,
        latency: Box::default(),
        device_depth: Box::default(),
    })
}

fn make_buffers(reactor: &mut Reactor, spec: &JobSpec, rng: &mut Rng) -> Result<Vec<Data>, LoadError> {
    let no_memory = |error: std::io::Error| LoadError::Unsuitable { job: spec.name.clone(), reason: error.to_string() };
    let count = (spec.parallelism * spec.batch.max(1)) as usize;
    let fill = |buffer: &mut AlignedBuf, rng: &mut Rng| {
        if spec.pattern.is_write() {
            rng.fill(buffer);
        }
    };
    let Some(pieces) = spec.iov_count else {
        let mut buffers = reactor.make_buffers(count, spec.request_bytes as usize).map_err(no_memory)?;
        buffers.iter_mut().for_each(|buffer| fill(buffer, rng));
        return Ok(buffers.into_iter().map(Data::One).collect());
    };
    let piece_bytes = spec.request_bytes as usize / pieces.max(1) as usize;
    let vectored = (0..count).map(|_| {
        let mut buffers = Vec::with_capacity(pieces as usize);
        for _ in 0..pieces {
            let mut buffer = AlignedBuf::new(piece_bytes)?;
            fill(&mut buffer, rng);
            buffers.push(buffer);
        }
        Ok(Data::Many(buffers))
    });
    vectored.collect::<std::io::Result<_>>().map_err(no_memory)
}

impl Runner<'_> {
    /// All fibers begin: those with a rate spread over their period, the others at once.
    fn start(&mut self, plan: &Plan) {
        let mut none = Vec::new();
        self.reactor.reap(&mut none);
        let now_ns = self.reactor.now_ns();
        self.begin_ns = now_ns + plan.warmup_ns;
        self.end_ns = self.begin_ns.saturating_add(plan.duration_ns);
        let mut nth = vec![0u64; self.jobs.len()];
        for at in 0..self.fibers.len() {
            let job = self.fibers[at].job;
            let spec = self.jobs[job].spec;
            self.fibers[at].phase_end_ns = now_ns + spec.think_after_ns;
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

    fn turn_until_over(mut self, plan: &Plan, control: &Control) -> Result<ShardResult, LoadError> {
        let mut done = Vec::new();
        let mut cpu_begin_ns = rusage::thread_cpu_ns();
        let mut counting = plan.warmup_ns == 0;
        let mut next_sample_ns = self.begin_ns;
        loop {
            let wake_ns = self.timers.peek().map_or(u64::MAX, |Reverse((at_ns, _))| *at_ns);
            let look_ns = self.reactor.now_ns().saturating_add(LOOK_UP_NS).min(self.end_ns);
            self.reactor.park(Some(wake_ns.min(look_ns))).map_err(LoadError::Backend)?;
            if counting && self.reactor.now_ns() >= next_sample_ns {
                next_sample_ns = self.reactor.now_ns() + SAMPLE_NS;
                self.sample_depth();
            }
            self.reactor.reap(&mut done);
            let now_ns = self.reactor.now_ns();
            if !counting && now_ns >= self.begin_ns {
                counting = true;
                // A shard that gets its CPU late measures as long as the others.
                self.begin_ns = now_ns;
                self.end_ns = now_ns.saturating_add(plan.duration_ns);
                self.reactor.reset_stats();
                cpu_begin_ns = rusage::thread_cpu_ns();
            }
            if now_ns >= self.end_ns || control.is_stopped() {
                self.end_ns = now_ns.min(self.end_ns).max(self.begin_ns);
                break;
            }
            for end in done.drain(..) {
                self.is_done(end, now_ns, counting);
            }
            self.fire_timers(now_ns);
            if self.timers.is_empty() && self.reactor.under_way() == 0 {
                // All jobs have reached their limits.
                self.end_ns = now_ns;
                break;
            }
        }
        let cpu_ns = rusage::thread_cpu_ns() - cpu_begin_ns;
        let result = self.result(cpu_ns);
        self.drain(done, control)?;
        Ok(result)
    }

    fn is_done(&mut self, end: Done, now_ns: u64, counting: bool) {
        let fiber_at = (end.tag >> 32) as usize;
        let fiber = &mut self.fibers[fiber_at];
        let job = &mut self.jobs[fiber.job];
        if counting {
            job.count(&end, now_ns.saturating_sub(fiber.due_ns));
        }
        fiber.buffers[(end.tag & 0xffff_ffff) as usize] = end.data;
        fiber.outstanding -= 1;
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
            due_ns = due_ns.max(now_ns + spec.think_time_ns);
            fiber.phase_end_ns = due_ns + spec.think_after_ns;
        }
        if due_ns <= now_ns {
            self.send(at, due_ns);
        } else {
            fiber.due_ns = due_ns;
            self.timers.push(Reverse((due_ns, at as u32)));
        }
    }

    fn fire_timers(&mut self, now_ns: u64) {
        while let Some(Reverse((due_ns, at))) = self.timers.peek().copied() {
            if due_ns > now_ns {
                break;
            }
            self.timers.pop();
            self.send(at as usize, due_ns);
        }
    }

    fn send(&mut self, at: usize, due_ns: u64) {
        let fiber = &mut self.fibers[at];
        fiber.due_ns = due_ns;
        let job = &mut self.jobs[fiber.job];
        for (number, buffer) in fiber.buffers.iter_mut().enumerate() {
            let data = std::mem::take(buffer);
            let request = job.next_request(data, ((at as u64) << 32) | number as u64);
            match self.reactor.submit(request) {
                Ok(_) => fiber.outstanding += 1,
                Err(refused) => {
                    job.errors += 1;
                    *buffer = refused.request.data;
                }
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
        let elapsed_ns = self.end_ns.saturating_sub(self.begin_ns);
        let reactor = &self.reactor;
        let jobs = self.jobs.iter_mut().map(|job| JobResult {
            name: job.spec.name.clone(),
            requests: job.requests,
            bytes: job.bytes,
            errors: job.errors,
            first_error: job.first_error,
            elapsed_ns,
            latency: std::mem::take(&mut job.latency),
            device_depth: std::mem::take(&mut job.device_depth),
            class: class_result(reactor, job.target.file.disk(), job.spec.class),
        });
        let jobs = jobs.collect();
        ShardResult { shard: reactor.shard(), cpu_ns, elapsed_ns, jobs }
    }

    /// Waits for what is still under way, so that no write lands in a file that is being removed.
    fn drain(mut self, mut done: Vec<Done>, control: &Control) -> Result<(), LoadError> {
        self.running = false;
        loop {
            let now_ns = self.reactor.now_ns();
            for end in done.drain(..) {
                self.is_done(end, now_ns, false);
            }
            if self.fibers.iter().all(|f| f.outstanding == 0) {
                break;
            }
            self.reactor.park(Some(now_ns + LOOK_UP_NS)).map_err(LoadError::Backend)?;
            self.reactor.reap(&mut done);
        }
        let made_bytes = |job: &Job<'_>| job.made * u64::from(job.spec.request_bytes);
        let written = self.jobs.iter().filter(|j| j.spec.pattern.is_write()).map(made_bytes).sum();
        control.add_written(written);
        Ok(())
    }
}

impl Job<'_> {
    fn count(&mut self, end: &Done, latency_ns: u64) {
        match end.result {
            Ok(bytes) => {
                self.requests += 1;
                self.bytes += u64::from(bytes);
                self.latency.record(latency_ns);
                if bytes != self.spec.request_bytes {
                    self.errors += 1;
                    self.first_error.get_or_insert(0);
                }
            }
            Err(code) => {
                self.errors += 1;
                self.first_error.get_or_insert(code);
            }
        }
    }

    fn next_request(&mut self, data: Data, tag: u64) -> Request {
        let len_bytes = self.spec.request_bytes;
        let position = match self.spec.pattern {
            Pattern::RandRead | Pattern::RandWrite => self.rng.below(self.positions),
            Pattern::SeqRead | Pattern::Overwrite | Pattern::Append => {
                let position = self.next_position;
                self.next_position = (position + 1) % self.positions;
                position
            }
        };
        self.made += 1;
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
