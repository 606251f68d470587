//! The jobs of a world: they start, send requests, get results and stop.

use plimsoll_core::{CANCELLED, Op};

use super::log::{Event, EventKind};
use super::run::{Moment, Run};
use super::shard::{Due, End};
use super::spec::{Change, WorldSpec};
use super::{QueueState, Request, World};
use crate::workload::Load;

/// Delay in nanoseconds after which a fiber of a closed loop retries when the I/O queue was full.
pub const REFUSED_RETRY_NS: u64 = 100_000;

/// Returns the runs: each job on each of its shards, in the order of the jobs.
pub(super) fn new_runs<'a>(spec: &'a WorldSpec, queues: &[QueueState]) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    for (number, job) in spec.jobs.iter().enumerate() {
        let shards = job.shards.numbers(spec.shards.len());
        for (place, shard) in shards.iter().enumerate() {
            let mut run = Run::new(job, number, (*shard, place, shards.len()), spec.seed);
            let of_shard = |q: &QueueState| q.disk as usize == job.disk && q.shards.contains(shard);
            if let Some(queue) = queues.iter().position(of_shard) {
                run.queue = queue as u32;
                run.coordinator = queues[queue].shards.start;
            }
            run.class = spec.classes.iter().position(|class| class.name == job.class).unwrap_or(0) as u32;
            runs.push(run);
        }
    }
    runs
}

impl World<'_> {
    pub(super) fn act(&mut self, change: &Change) {
        let spec = self.spec;
        let class_of = |name: &str| spec.classes.iter().position(|class| class.name == name);
        let job_of = |name: &str| spec.jobs.iter().position(|job| job.name == name);

        match change {
            Change::SetShares { class, shares } => {
                if let Some(class) = class_of(class) {
                    self.classes.set_shares(&self.disks, class, *shares);
                    self.poll_all_queues();
                }
            }
            Change::SetQos { class, qos } => {
                if let Some(class) = class_of(class) {
                    self.classes.set_qos(&self.disks, class, *qos);
                    self.poll_all_queues();
                }
            }
            Change::RemoveClass { class } => {
                if let Some(class) = class_of(class) {
                    self.remove_class(class);
                }
            }
            Change::StartJob { job } => {
                if let Some(job) = job_of(job) {
                    self.start_job(job);
                }
            }
            Change::StopJob { job } => {
                if let Some(job) = job_of(job) {
                    self.runs.iter_mut().filter(|run| run.job as usize == job).for_each(Run::stop);
                }
            }
            // Cannot fail: both were checked before the world ran.
            Change::InjectFault { disk, window } => {
                let _ = self.disks[*disk].device.inject(*window);
                self.plan_disk(*disk);
            }
            Change::SetMember { disk, fault } => {
                let _ = self.disks[*disk].device.set_fault(*fault);
                self.plan_disk(*disk);
            }
        }
    }

    fn poll_all_queues(&mut self) {
        for number in 0..self.queues.len() {
            self.queues[number].changed = true;
            self.wake_shard(self.queues[number].shards.start, self.now_ns);
        }
    }

    pub(super) fn start_job(&mut self, job: usize) {
        for number in 0..self.runs.len() {
            let run = &mut self.runs[number];
            if run.job as usize != job || run.active {
                continue;
            }
            run.start(self.now_ns);
            let (number, epoch, shard) = (number as u32, run.epoch, run.shard);
            let (fibers, due) = match run.spec.load {
                Load::Closed { parallelism, .. } => {
                    (parallelism.saturating_sub(run.outstanding), Due::Issue { run: number, epoch })
                }
                Load::Cpu { parallelism, .. } => (parallelism, Due::Cpu { run: number, epoch }),
                Load::Open { .. } | Load::Replay(_) => (1, Due::Arrive { run: number, epoch }),
            };
            for _ in 0..fibers {
                self.shards[shard as usize].add_due(self.now_ns, due);
            }
            self.wake_shard(shard, self.now_ns);
        }
    }

    fn remove_class(&mut self, class: usize) {
        let is_of_class =
            |run: &&mut Run<'_>| !matches!(run.spec.load, Load::Cpu { .. }) && run.class as usize == class;
        self.runs.iter_mut().filter(is_of_class).for_each(Run::stop);
        let mut cancelled = Vec::new();
        self.classes.remove(&self.disks, &mut self.queues, class, &mut cancelled);
        for (queue, request) in cancelled {
            let shard = self.queues[queue as usize].shards.start;
            self.note(request as u32, EventKind::Cancel, shard);
            self.ended(shard, request as u32, End::Cancelled);
        }
        self.poll_all_queues();
    }

    /// Handles a due item in a shard's turn.
    pub(super) fn falls_due(&mut self, shard: u32, due: Due) {
        match due {
            Due::Issue { run, epoch } if self.runs[run as usize].epoch == epoch => self.next_of_fiber(run),
            Due::Arrive { run, epoch } if self.runs[run as usize].epoch == epoch => self.arrivals(run),
            Due::Cpu { run, epoch } if self.runs[run as usize].epoch == epoch => {
                self.shards[shard as usize].slices.push_back((run, epoch));
            }
            Due::Issue { .. } | Due::Arrive { .. } | Due::Cpu { .. } => {}
            Due::Request { request } => {
                self.shards[shard as usize].use_cpu(self.spec.message_cpu_ns);
                self.enqueue(shard, request);
            }
            Due::Reply { request, end } => {
                self.shards[shard as usize].use_cpu(self.spec.message_cpu_ns);
                self.comes_back(shard, request, end);
            }
        }
    }

    /// Makes a free fiber of a closed loop send, or wait for the end of a pause.
    fn next_of_fiber(&mut self, number: u32) {
        let run = &mut self.runs[number as usize];
        if !run.may_send(self.now_ns) {
            return;
        }
        let is_in_phases = matches!(run.spec.load, Load::Closed { think_after_ns: 1.., .. });
        if is_in_phases && let Some(until_ns) = run.thinks_until_ns(self.now_ns) {
            self.fiber_waits(number, until_ns);
            return;
        }
        let asked = run.draw();
        self.send(number, self.now_ns, asked);
    }

    fn fiber_waits(&mut self, number: u32, until_ns: u64) {
        let run = &self.runs[number as usize];
        let due = Due::Issue { run: number, epoch: run.epoch };
        self.shards[run.shard as usize].add_due(until_ns, due);
    }

    /// Sends the due requests of an open loop or a replay.
    fn arrivals(&mut self, number: u32) {
        while self.runs[number as usize].may_send(self.now_ns) {
            let run = &mut self.runs[number as usize];
            match run.moment(self.now_ns) {
                Moment::Now { due_ns, asked } => self.send(number, due_ns, asked),
                Moment::At(at_ns) => {
                    let due = Due::Arrive { run: number, epoch: run.epoch };
                    self.shards[run.shard as usize].add_due(at_ns, due);
                    return;
                }
                Moment::Full => {
                    run.waits = true;
                    return;
                }
                Moment::Over => return,
            }
        }
    }

    fn send(&mut self, number: u32, due_ns: u64, (op, offset_bytes, len_bytes): (Op, u64, u32)) {
        let run = &mut self.runs[number as usize];
        run.note_sent();
        let (shard, coordinator) = (run.shard, run.coordinator);
        let request =
            Request { key: self.totals.sent, offset_bytes, due_ns, run: number, class: run.class, len_bytes, op };
        self.totals.sent += 1;
        let request = self.requests.insert(request);
        self.shards[shard as usize].use_cpu_for_request();
        if shard == coordinator {
            self.enqueue(shard, request);
        } else {
            self.message(shard, coordinator, Due::Request { request });
        }
    }

    fn message(&mut self, from: u32, to: u32, due: Due) {
        self.shards[from as usize].use_cpu(self.spec.message_cpu_ns);
        let at_ns = self.now_ns.saturating_add(self.spec.message_latency_ns);
        self.shards[to as usize].add_due(at_ns, due);
        self.wake_shard(to, at_ns);
    }

    fn enqueue(&mut self, shard: u32, number: u32) {
        let Some(request) = self.requests.get(number) else { return };
        let run = &self.runs[request.run as usize];
        let state = &mut self.queues[run.queue as usize];
        let class = self.classes.id(state.disk, request.class, run.shard);
        let is_queued = class.is_some_and(|class| {
            state.queue.enqueue(self.now_ns, class, request.op, request.len_bytes, u64::from(number)).is_ok()
        });
        let kind = if is_queued { EventKind::Enqueue } else { EventKind::Refuse };
        self.log.note(request.event(kind, (self.now_ns, shard, state.disk)));
        if is_queued {
            state.changed = true;
        } else {
            self.ended(shard, number, End::Refused);
        }
    }

    fn note(&mut self, request: u32, kind: EventKind, shard: u32) {
        if let Some(request) = self.requests.get(request) {
            let disk = self.queues[self.runs[request.run as usize].queue as usize].disk;
            self.log.note(request.event(kind, (self.now_ns, shard, disk)));
        }
    }

    /// Passes a request's end from the coordinator to its job, at once or by a message.
    pub(super) fn ended(&mut self, coordinator: u32, number: u32, end: End) {
        let Some(request) = self.requests.get(number) else { return };
        let shard = self.runs[request.run as usize].shard;
        if shard == coordinator {
            self.comes_back(shard, number, end);
        } else {
            self.message(coordinator, shard, Due::Reply { request: number, end });
        }
    }

    /// Accounts for a request whose result has reached its job.
    fn comes_back(&mut self, shard: u32, number: u32, end: End) {
        let Some(request) = self.requests.take(number) else { return };
        self.shards[shard as usize].use_cpu_for_request();

        let run = &mut self.runs[request.run as usize];
        run.outstanding -= 1;

        match end {
            End::Done(result) => {
                let bytes = u64::from(result.unwrap_or_else(|failure| failure.moved_bytes));
                let errno = result.err().map_or(0, |failure| failure.errno);
                let latency_ns = self.now_ns - request.due_ns;
                run.counts.requests += 1;
                run.counts.bytes += bytes;
                run.counts.errors += u64::from(errno != 0 && errno != CANCELLED);
                run.latency.record(latency_ns);
                self.totals.finished += 1;
                let disk = self.queues[run.queue as usize].disk;
                self.measures.note_finish((disk, request.class), bytes, latency_ns);
                let event = request.event(EventKind::Finish, (self.now_ns, shard, disk));
                self.log.note(Event { errno, ..event });
            }
            End::Refused => {
                run.counts.refused += 1;
                self.totals.refused += 1;
            }
            End::Cancelled => {
                run.counts.cancelled += 1;
                self.totals.cancelled += 1;
            }
        }

        if run.active {
            self.goes_on(request.run, end);
        }
    }

    /// Continues a job after the end of one of its requests.
    fn goes_on(&mut self, number: u32, end: End) {
        let run = &mut self.runs[number as usize];
        match run.spec.load {
            Load::Closed { .. } if end == End::Refused => {
                self.fiber_waits(number, self.now_ns.saturating_add(REFUSED_RETRY_NS));
            }
            Load::Closed { .. } => match run.thinks_until_ns(self.now_ns) {
                Some(until_ns) => self.fiber_waits(number, until_ns),
                None => self.next_of_fiber(number),
            },
            Load::Open { .. } if run.waits => {
                run.waits = false;
                self.arrivals(number);
            }
            _ => {}
        }
    }

    /// Runs one slice of CPU work, if any waits. This is the last step of a shard's turn.
    pub(super) fn cpu_slice(&mut self, shard: usize) {
        while let Some((number, epoch)) = self.shards[shard].slices.pop_front() {
            let run = &mut self.runs[number as usize];
            if run.epoch != epoch || !run.may_send(self.now_ns) {
                continue;
            }
            let Load::Cpu { execution_ns, pause_ns, .. } = run.spec.load else { continue };
            run.counts.slices += 1;
            run.note_slice();
            let state = &mut self.shards[shard];
            state.use_cpu(execution_ns);
            let again_ns = self.now_ns.saturating_add(state.turn_cpu_ns()).saturating_add(pause_ns);
            state.add_due(again_ns, Due::Cpu { run: number, epoch });
            return;
        }
    }
}
