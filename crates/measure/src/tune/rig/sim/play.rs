//! Runs one load on a simulated disk, event by event.
//!
//! **Why.** This is the inner loop of a simulated measurement, with hundreds of millions of requests.
//!
//! **How.** The next event is the earliest of three: the device completes a request, a fiber (or its CPU) wakes,
//! another program reads. A fiber that may continue first uses the CPU of its shard, if requests cost CPU time, and
//! then sends its next request. Completions within the span count.
//!
//! **Limits.** Requests under way at the end of the span do not count, as in the load generator.
//!
//! **Example.** Two fibers at 100 requests/s together, in sequence: one is due at 0, 20, 40 ms, the other at 10, 30, 50
//! ms. After a late completion a fiber continues at once, and its latency counts from when it was due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll::core::{Histogram, Op};
use plimsoll_sim::device::{DeviceCompletion, DeviceRequest};

use super::{EVENTS_PER_LOOK, FOREIGN_BYTES, FOREIGN_DEPTH_MAX, FOREIGN_KEY, NS_PER_S, SimRig};
use crate::tune::SEQUENTIAL_BYTES;
use crate::tune::record::{Moved, Order, Stream};

pub(super) struct Play<'a> {
    rig: &'a mut SimRig,
    /// Beginning of the span that counts.
    from_ns: u64,
    /// End of the span that counts; earlier if the load ends early.
    pub(super) until_ns: u64,
    pub(super) jobs: Vec<Job>,
    fibers: Vec<Fiber>,
    /// Fibers that are due later or wait for their CPU: (time, fiber, whether the CPU is done).
    wakes: BinaryHeap<Reverse<(u64, u32, bool)>>,
    /// Outcome of the reads, and of the writes.
    pub(super) lanes: [Lane; 2],
    pub(super) cpus: Vec<Cpu>,
    pub(super) active: usize,
    next_foreign_ns: u64,
    foreign_under_way: u32,
    pub(super) foreign_bytes: u64,
}

/// One shard's part of a stream.
pub(super) struct Job {
    shard: usize,
    is_write: bool,
    order: Order,
    pub(super) block_bytes: u32,
    offset_bytes: u64,
    /// Number of blocks from which positions are drawn, at least 1.
    positions: u64,
    next_position: u64,
    /// Mean time between two requests of one fiber; `None` without a rate.
    period_ns: Option<f64>,
    /// Requests sent so far, and the most to send.
    pub(super) sent: u64,
    limit: u64,
}

/// A sequence of requests, one at a time.
#[derive(Clone, Copy)]
struct Fiber {
    job: u32,
    /// Time at which the request was due, or could be sent; latency counts from here.
    due_ns: u64,
}

#[derive(Default)]
pub(super) struct Lane {
    requests: u64,
    bytes: u64,
    pub(super) errors: u64,
    /// Error number of the first failure; 0 for a short transfer.
    pub(super) first_error: Option<i32>,
    latency: Histogram,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Cpu {
    free_ns: u64,
    /// Busy time within the span that counts.
    pub(super) busy_ns: u64,
}

impl Lane {
    pub(super) fn moved(&self) -> Moved {
        Moved {
            requests: self.requests,
            bytes: self.bytes,
            errors: self.errors,
            p50_ns: self.latency.percentile(50.0),
            p99_ns: self.latency.percentile(99.0),
        }
    }
}

impl<'a> Play<'a> {
    /// Begins a load now. Completions within `span_ns` count.
    pub(super) fn new(rig: &'a mut SimRig, span_ns: (u64, u64)) -> Play<'a> {
        let next_foreign_ns = rig.now_ns.saturating_add(rig.foreign_pause_ns());
        Play {
            from_ns: span_ns.0,
            until_ns: span_ns.1,
            jobs: Vec::new(),
            fibers: Vec::new(),
            wakes: BinaryHeap::new(),
            lanes: Default::default(),
            cpus: vec![Cpu::default(); rig.spans.len()],
            active: 0,
            next_foreign_ns,
            foreign_under_way: 0,
            foreign_bytes: 0,
            rig,
        }
    }

    /// Adds a stream over at most as many shards as requests under way. Each shard sends at most `limit` requests.
    pub(super) fn add(&mut self, stream: &Stream, is_write: bool, limit: Option<u64>) {
        let depth = stream.depth.max(1);
        let shards = (self.rig.spans.len() as u32).clamp(1, depth);
        let first = self.fibers.len();

        for (shard, span) in self.rig.spans.iter().enumerate().take(shards as usize) {
            let is_sequential = stream.order == Order::Sequential;
            let skipped_bytes = if is_sequential { span.cursor_bytes } else { 0 } + u64::from(stream.shift_bytes);
            let block_bytes = stream.block_bytes.max(1);
            self.jobs.push(Job {
                shard,
                is_write,
                order: stream.order,
                block_bytes,
                offset_bytes: span.offset_bytes + skipped_bytes,
                positions: (span.len_bytes.saturating_sub(skipped_bytes) / u64::from(block_bytes)).max(1),
                next_position: 0,
                period_ns: stream.rate_per_s.map(|rate_per_s| f64::from(depth) / rate_per_s * NS_PER_S),
                sent: 0,
                limit: limit.unwrap_or(u64::MAX),
            });
        }

        let job = self.jobs.len() as u32 - shards;
        self.fibers.extend((0..depth).map(|nth| Fiber { job: job + nth % shards, due_ns: 0 }));
        self.active = self.fibers.len();

        for nth in 0..depth {
            let period_ns = stream.rate_per_s.map_or(0.0, |rate_per_s| f64::from(nth) / rate_per_s * NS_PER_S);
            let due_ns = self.rig.now_ns.saturating_add(period_ns as u64);
            self.wakes.push(Reverse((due_ns, first as u32 + nth, false)));
        }
    }

    /// Runs until the span ends, no fiber is left, or a stop is asked for.
    pub(super) fn run(&mut self) {
        let mut completions = std::mem::take(&mut self.rig.completions);
        let mut events = 0u32;
        while self.active > 0 {
            let device_ns = self.rig.device.next_event_ns().unwrap_or(u64::MAX);
            let wake_ns = self.wakes.peek().map_or(u64::MAX, |Reverse((at_ns, _, _))| *at_ns);
            let now_ns = device_ns.min(wake_ns).min(self.next_foreign_ns);
            if now_ns >= self.until_ns {
                self.rig.now_ns = self.until_ns;
                break;
            }

            self.rig.now_ns = now_ns;
            if device_ns == now_ns {
                self.rig.device.advance(now_ns, &mut completions);
                for completion in completions.drain(..) {
                    self.come_back(&completion);
                }
            } else if wake_ns == now_ns {
                self.wake();
            } else {
                self.read_as_others();
            }
            events = events.wrapping_add(1);
            if events.is_multiple_of(EVENTS_PER_LOOK) && self.rig.stop.is_asked() {
                break;
            }
        }
        self.until_ns = self.until_ns.min(self.rig.now_ns).max(self.from_ns);
        self.rig.completions = completions;
    }

    /// Advances the start of the next sequential load to the end of this one, or to 0 if little of the span is left.
    pub(super) fn keep_cursors(&mut self) {
        let unit_bytes = u64::from(SEQUENTIAL_BYTES);
        for job in self.jobs.iter().filter(|job| job.order == Order::Sequential) {
            if let Some(span) = self.rig.spans.get_mut(job.shard) {
                let end_bytes = job.offset_bytes - span.offset_bytes + job.sent * u64::from(job.block_bytes);
                let next_bytes = end_bytes / unit_bytes * unit_bytes;
                span.cursor_bytes = if next_bytes <= span.len_bytes / 4 * 3 { next_bytes } else { 0 };
            }
        }
    }

    fn counts(&self) -> bool {
        (self.from_ns..self.until_ns).contains(&self.rig.now_ns)
    }

    fn come_back(&mut self, completion: &DeviceCompletion) {
        let is_counted = self.counts();
        if completion.key == FOREIGN_KEY {
            self.foreign_under_way -= 1;
            self.foreign_bytes += if is_counted { u64::from(FOREIGN_BYTES) } else { 0 };
            return;
        }

        let Some(fiber) = self.fibers.get(completion.key as usize) else { return };
        let Some(job) = self.jobs.get(fiber.job as usize) else { return };
        let now_ns = self.rig.now_ns;

        if is_counted {
            let [reads, writes] = &mut self.lanes;
            let lane = if job.is_write { writes } else { reads };
            match completion.result {
                Ok(len_bytes) if len_bytes == job.block_bytes => {
                    lane.requests += 1;
                    lane.bytes += u64::from(len_bytes);
                    lane.latency.record(now_ns.saturating_sub(fiber.due_ns));
                }
                other => {
                    lane.errors += 1;
                    lane.first_error.get_or_insert(other.err().unwrap_or(0));
                }
            }
        }

        let due_ns = match job.period_ns {
            None => now_ns,
            Some(period_ns) => {
                let gap_ns = match job.order {
                    Order::Random => self.rig.rng.exponential(period_ns),
                    Order::Sequential => period_ns,
                };
                fiber.due_ns.saturating_add(gap_ns as u64)
            }
        };
        self.go_on(completion.key as u32, due_ns);
    }

    /// Continues a fiber that is due at `due_ns`. If that time has come, queues its request on the CPU; else sets a
    /// timer.
    fn go_on(&mut self, at: u32, due_ns: u64) {
        if due_ns > self.rig.now_ns {
            self.wakes.push(Reverse((due_ns, at, false)));
            return;
        }
        if let Some(fiber) = self.fibers.get_mut(at as usize) {
            fiber.due_ns = due_ns;
        }
        if self.rig.cpu_ns == 0 {
            self.send(at);
        } else {
            let end_ns = self.take_cpu(at);
            self.wakes.push(Reverse((end_ns, at, true)));
        }
    }

    fn wake(&mut self) {
        let Some(Reverse((at_ns, at, has_cpu))) = self.wakes.pop() else { return };
        if has_cpu { self.send(at) } else { self.go_on(at, at_ns) }
    }

    /// Queues the request of fiber `at` on its shard's CPU. Returns the time at which the CPU has finished it.
    fn take_cpu(&mut self, at: u32) -> u64 {
        let job = self.fibers.get(at as usize).and_then(|fiber| self.jobs.get(fiber.job as usize));
        let cpu = job.and_then(|job| self.cpus.get_mut(job.shard));
        let Some(cpu) = cpu else { return self.rig.now_ns };
        let begin_ns = cpu.free_ns.max(self.rig.now_ns);
        cpu.free_ns = begin_ns.saturating_add(self.rig.cpu_ns);
        let counted_from_ns = begin_ns.max(self.from_ns);
        cpu.busy_ns += cpu.free_ns.min(self.until_ns).saturating_sub(counted_from_ns);
        cpu.free_ns
    }

    /// Sends the next request of a fiber. If the job's limit or the write bound is reached, ends the fiber.
    fn send(&mut self, at: u32) {
        let job = self.fibers.get(at as usize).and_then(|fiber| self.jobs.get_mut(fiber.job as usize));
        let Some(job) = job else { return };
        if job.sent >= job.limit || (job.is_write && !self.rig.take_write(job.block_bytes)) {
            self.active -= 1;
            return;
        }

        let position = match job.order {
            Order::Random => self.rig.rng.below(job.positions),
            Order::Sequential => {
                let position = job.next_position;
                job.next_position = if position + 1 == job.positions { 0 } else { position + 1 };
                position
            }
        };

        job.sent += 1;
        let op = if job.is_write { Op::Write } else { Op::Read };
        let offset_bytes = job.offset_bytes + position * u64::from(job.block_bytes);
        let request = DeviceRequest { key: u64::from(at), op, offset_bytes, len_bytes: job.block_bytes };
        self.rig.device.submit(self.rig.now_ns, request);
    }

    /// Submits a read of another program, unless the most such reads are already under way.
    fn read_as_others(&mut self) {
        let rig = &mut *self.rig;
        if self.foreign_under_way < FOREIGN_DEPTH_MAX {
            let position = rig.rng.below(rig.capacity_bytes / u64::from(FOREIGN_BYTES));
            rig.device.submit(
                rig.now_ns,
                DeviceRequest {
                    key: FOREIGN_KEY,
                    op: Op::Read,
                    offset_bytes: position * u64::from(FOREIGN_BYTES),
                    len_bytes: FOREIGN_BYTES,
                },
            );
            self.foreign_under_way += 1;
        }
        self.next_foreign_ns = rig.now_ns.saturating_add(rig.foreign_pause_ns());
    }
}
