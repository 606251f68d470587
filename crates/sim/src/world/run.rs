//! A job on one shard: its next requests and its results.

use plimsoll_core::{Histogram, Op};

use crate::rng::Rng;
use crate::workload::{JobSpec, Load, Pattern, SizeDist, Spacing};

/// A request as a job asks for it: operation, offset and length in bytes.
pub(crate) type Asked = (Op, u64, u32);

/// The next moment of an open loop or replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A request is due: send it.
    Now { due_ns: u64, asked: Asked },
    /// Nothing is due before this time.
    At(u64),
    /// Nothing may be sent before a request completes.
    Full,
    /// Nothing more to send.
    Over,
}

#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) spec: &'a JobSpec,
    pub(crate) job: u32,
    pub(crate) shard: u32,
    pub(crate) class: u32,
    pub(crate) queue: u32,
    /// The shard that coordinates its queue.
    pub(crate) coordinator: u32,
    pub(crate) active: bool,
    /// Whether the open loop waits until a request completes.
    pub(crate) waits: bool,
    /// Counts starts and stops: due items of an earlier epoch are void.
    pub(crate) epoch: u32,
    pub(crate) outstanding: u32,
    sent: u64,
    started_ns: u64,
    /// The next moment of an open loop, in nanoseconds after the start.
    next_ns: f64,
    batch_left: u32,
    /// Index of the next arrival of a replay. The stride to the one after is the number of the job's shards.
    arrival: usize,
    stride: usize,
    place: usize,
    region_offset_bytes: u64,
    position_bytes: u64,
    rng: Rng,
    pub(crate) counts: Counts,
    pub(crate) latency: Box<Histogram>,
}

/// Outcomes of a job's requests on one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) refused: u64,
    pub(crate) cancelled: u64,
    pub(crate) slices: u64,
}

impl<'a> Run<'a> {
    /// Returns the run on the job's `place`-th of `stride` shards.
    pub(crate) fn new(
        spec: &'a JobSpec,
        job: usize,
        (shard, place, stride): (u32, usize, usize),
        seed: u64,
    ) -> Run<'a> {
        // Neighbouring shards and jobs must not get overlapping random sequences: mix their numbers well.
        let mix = (job as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (u64::from(shard) + 1).rotate_left(32);
        let stride_bytes = spec.region.shard_stride_bytes.saturating_mul(place as u64);

        Run {
            spec,
            job: job as u32,
            shard,
            class: 0,
            queue: 0,
            coordinator: shard,
            active: false,
            waits: false,
            epoch: 0,
            outstanding: 0,
            sent: 0,
            started_ns: 0,
            next_ns: 0.0,
            batch_left: 0,
            arrival: place,
            stride,
            place,
            region_offset_bytes: spec.region.offset_bytes.saturating_add(stride_bytes),
            position_bytes: 0,
            rng: Rng::new(seed ^ mix),
            counts: Counts::default(),
            latency: Box::default(),
        }
    }

    pub(crate) fn start(&mut self, now_ns: u64) {
        self.active = true;
        self.waits = false;
        self.epoch = self.epoch.wrapping_add(1);
        self.started_ns = now_ns;
        self.batch_left = 0;
        self.arrival = self.place;
        self.next_ns = match self.spec.load {
            Load::Open { spacing: Spacing::Poisson, .. } => self.gap_ns(),
            _ => 0.0,
        };
    }

    pub(crate) fn stop(&mut self) {
        self.active = false;
        self.waits = false;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns whether the run may send now. If it never may again, stops it.
    pub(crate) fn may_send(&mut self, now_ns: u64) -> bool {
        let over = self.spec.stop_ns.is_some_and(|stop_ns| now_ns >= stop_ns)
            || self.spec.limit_requests.is_some_and(|limit| self.sent >= limit);
        if over && self.active {
            self.stop();
        }
        self.active
    }

    pub(crate) fn note_sent(&mut self) {
        self.sent += 1;
        self.outstanding += 1;
    }

    /// Counts a slice, which counts towards the limit like a request.
    pub(crate) fn note_slice(&mut self) {
        self.sent += 1;
    }

    /// Returns the end of the pause that a fiber of a closed loop must wait for after a request; `None` for none.
    pub(crate) fn thinks_until_ns(&self, now_ns: u64) -> Option<u64> {
        let Load::Closed { think_ns, think_after_ns, .. } = self.spec.load else { return None };
        if think_ns == 0 {
            return None;
        }
        if think_after_ns == 0 {
            return Some(now_ns.saturating_add(think_ns));
        }
        let period_ns = think_ns.saturating_add(think_after_ns);
        let phase_ns = now_ns.saturating_sub(self.started_ns) % period_ns;
        (phase_ns >= think_after_ns).then(|| now_ns.saturating_add(period_ns - phase_ns))
    }

    /// Returns the next step of an open loop or replay.
    pub(crate) fn moment(&mut self, now_ns: u64) -> Moment {
        match &self.spec.load {
            Load::Open { batch, max_outstanding, .. } => {
                let due_ns = self.started_ns.saturating_add(self.next_ns as u64);
                if due_ns > now_ns {
                    return Moment::At(due_ns);
                }
                if max_outstanding.is_some_and(|most| self.outstanding >= most) {
                    return Moment::Full;
                }
                // The moment ends with the last request of its batch.
                if self.batch_left == 0 {
                    self.batch_left = *batch;
                }
                self.batch_left -= 1;
                if self.batch_left == 0 {
                    self.next_ns += self.gap_ns();
                }
                Moment::Now { due_ns, asked: self.draw() }
            }
            Load::Replay(arrivals) => {
                let Some(arrival) = arrivals.get(self.arrival) else { return Moment::Over };
                let due_ns = self.started_ns.saturating_add(arrival.at_ns);
                if due_ns > now_ns {
                    return Moment::At(due_ns);
                }
                self.arrival += self.stride;
                Moment::Now { due_ns, asked: (arrival.op, arrival.offset_bytes, arrival.len_bytes) }
            }
            Load::Closed { .. } | Load::Cpu { .. } => Moment::Over,
        }
    }

    fn gap_ns(&mut self) -> f64 {
        let Load::Open { requests_per_s, spacing, batch, .. } = self.spec.load else { return 0.0 };
        let mean_ns = 1e9 / requests_per_s * f64::from(batch);
        match spacing {
            Spacing::Uniform => mean_ns,
            Spacing::Poisson => self.rng.exponential(mean_ns),
        }
    }

    /// Draws operation, offset and length of the next request.
    pub(crate) fn draw(&mut self) -> Asked {
        let op = self.spec.op;
        let len_bytes = match (op, &self.spec.sizes) {
            (Op::Flush, _) => return (op, self.region_offset_bytes, 0),
            (_, SizeDist::Fixed(len_bytes)) => *len_bytes,
            (_, sizes) => sizes.draw_bytes(&mut self.rng),
        };
        let (len, region_bytes) = (u64::from(len_bytes), self.spec.region.len_bytes);
        let position_bytes = match self.spec.pattern {
            Pattern::Random => self.rng.below(region_bytes / len.max(1)) * len,
            Pattern::Sequential if self.position_bytes.saturating_add(len) > region_bytes => 0,
            Pattern::Sequential | Pattern::Append => self.position_bytes,
        };
        self.position_bytes = position_bytes.saturating_add(len);
        (op, self.region_offset_bytes.saturating_add(position_bytes), len_bytes)
    }
}
