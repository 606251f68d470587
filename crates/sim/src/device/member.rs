//! One disk of a RAID 0, or the only one.
//!
//! # Why
//! Capacity, parallelism, mix and interference meet here, and every simulated I/O passes through it.
//!
//! # How it works
//! * **Device time.** A [`Curve`] gives a request's share of a second. Divided by the capacity of the present mix,
//!   T(f), and by the present speed, it becomes service time in the [`Channel`]s: one if they share a queue, N with N
//!   times the service each if they are independent. Saturated throughput is the same.
//! * **Lanes.** With a finite mix exponent reads and writes use the same channels. With an infinite one writes have
//!   channels of their own: the frontier is a rectangle, and neither queue delays the other.
//! * **Mix.** f is the share of writes in recently served device time, exponentially smoothed over that time.
//! * **Latency.** `unloaded * lognormal + transfer`, overlapped with the service: the longer counts. Reads may also
//!   meet a die that is being programmed; the chance of it, or with suspended programs the length, grows with the write
//!   load.
//! * **Arm.** On a hard disk the service is seek + rotation + transfer instead, in one queue.
//!
//! # Limits
//! Requests are served in order of arrival: for a disk that reorders, the model has the gain, not the order.
//!
//! # Example
//! 200 000 reads/s and 100 us: up to 20 reads at a time take 100 us; 40 at a time take 200 us.

use plimsoll_core::Op;

use super::arm::Arm;
use super::capacity::{Curve, Mix};
use super::channel::Channel;
use super::meter::{Measured, Meter};
use super::spec::{DeviceSpec, InterferenceSpec, LatencySpec, MemberFault, RateSpec, SpecError};
use crate::dist::{LogNormal, uniform};
use crate::rng::Rng;

/// Backlog beyond which a read waits for capacity. A measured latency surface already holds the waiting below
/// saturation.
const MEASURED_BACKLOG_NS: f64 = 10e6;

/// Cost of the disk's own reading of a block, over that of a host's read. It has no command and no transfer, and the
/// reads of an instance with several disks are bound by more than its disks. Published for i7i.12xlarge: 650,000 writes
/// of 512 bytes a second, 992,000 of 4 KiB, 1,446,000 reads. The i7i.4xlarge (0.75 of its writes) shows 0.59.
const BLOCK_READ: f64 = 0.77;

const NS_PER_S: f64 = 1e9;
const CHANNELS_MAX: f64 = 256.0;
/// Multiplier 2^64 / golden ratio: neighbouring stripes are on distant channels (Knuth, The Art of Computer Programming
/// 3, 6.4).
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// The part of a request that one member serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) at_ns: u64,
    pub(super) op: Op,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    /// Cost of a write as a multiple of its cost on the fresh disk.
    pub(super) write_factor: f64,
    /// Factor on the capacity.
    pub(super) speed: f64,
    /// Factor on latencies.
    pub(super) slow: f64,
    /// Requests in the device, for the elevator.
    pub(super) depth: usize,
}

/// One disk with its channels, buffer and latencies.
#[derive(Debug)]
pub(super) struct Member {
    read: Curve,
    write: Curve,
    rates: RateSpec,
    latency: LatencySpec,
    lognormal: LogNormal,
    mix: Mix,
    interference: InterferenceSpec,
    write_load: Meter,
    measured: Option<Measured>,
    /// Channels of reads (or of everything), and of writes if they have their own; the second may be empty.
    lanes: [Vec<Channel>; 2],
    stripe_bytes: u64,
    /// Channel of the next write: writes go round-robin, as flash places them where there is room.
    next_channel: usize,
    /// Buffer of one channel.
    buffer_bytes: f64,
    burst_ns_per_byte: f64,
    flush_drains: bool,
    /// Server that limits the rate at which the buffer takes bytes.
    inlet: Channel,
    arm: Option<Arm>,
    speed: f64,
    pub(super) error_rate: f64,
}

impl Member {
    pub(super) fn new(spec: &DeviceSpec, index: u32) -> Result<Member, SpecError> {
        let rates = &spec.rates;
        let count = channel_count(spec);
        let duplex = spec.mix_exponent_p.is_infinite();
        let lane = |used: bool| (0..if used { count } else { 0 }).map(|_| Channel::default()).collect();
        let burst = spec.buffer.burst_bytes_per_s;

        let mut member = Member {
            read: Curve::new(rates.read_iops, rates.read_bytes_per_s, &rates.read_table, rates)?,
            write: Curve::new(rates.write_iops, rates.write_bytes_per_s, &rates.write_table, rates)?,
            rates: rates.clone(),
            latency: spec.latency.clone(),
            lognormal: LogNormal::new(spec.latency.sigma),
            mix: Mix::new(spec.mix_exponent_p, spec.mix_memory_ns)?,
            interference: spec.interference.clone(),
            write_load: Meter::new(spec.interference.memory_ns),
            measured: spec.latency_surface.as_ref().map(|table| Measured::new(table, spec.interference.memory_ns)),
            lanes: [lane(true), lane(duplex)],
            stripe_bytes: u64::from(spec.channels.stripe_bytes),
            next_channel: 0,
            buffer_bytes: spec.buffer.size_bytes as f64 / count as f64,
            burst_ns_per_byte: if burst > 0.0 { NS_PER_S / burst } else { 0.0 },
            flush_drains: spec.buffer.flush_drains,
            inlet: Channel::default(),
            arm: spec.hdd.as_ref().map(|hdd| Arm::new(hdd, spec)),
            speed: 1.0,
            error_rate: 0.0,
        };

        if let Some(fault) = spec.raid0.member_faults.iter().rev().find(|fault| fault.member == index) {
            member.set_fault(fault);
        }
        Ok(member)
    }

    pub(super) fn set_fault(&mut self, fault: &MemberFault) {
        (self.speed, self.error_rate) = (fault.speed_factor, fault.error_rate);
    }

    /// Lets all channels stand still in a stall: none pays debt of buffered writes.
    pub(super) fn stand_still(&mut self, (from_ns, until_ns): (u64, u64), speed: f64) {
        let speed = speed * self.speed * self.mix.capacity;
        for lane in &mut self.lanes {
            let channel_speed = speed / lane.len() as f64;
            lane.iter_mut().for_each(|channel| channel.stand_still(from_ns, until_ns, channel_speed));
        }
    }

    /// Serves a part. Returns how long after `part.at_ns` it is done, in ns.
    #[inline]
    pub(super) fn serve(&mut self, part: &Part, rng: &mut Rng) -> f64 {
        let speed = part.speed * self.speed;
        let slow = part.slow / self.speed;
        if self.arm.is_some() {
            return self.serve_with_arm(part, speed, rng);
        }
        match part.op {
            Op::Read => self.serve_read(part, speed, slow, rng),
            Op::Write => self.serve_write(part, speed, slow, rng),
            Op::Flush => self.serve_flush(part, speed, slow, rng),
            Op::Discard | Op::Allocate => {
                let latency_ns = self.latency_ns(self.latency.write_ns, 0, slow, rng);
                self.queue(part, self.rates.discard_ns, true, speed, latency_ns)
            }
        }
    }

    fn serve_read(&mut self, part: &Part, speed: f64, slow: f64, rng: &mut Rng) -> f64 {
        let cost_ns = self.read.cost_ns(part.len_bytes);
        let speed = speed * self.mix.note(cost_ns, false);
        let latency_ns = match &mut self.measured {
            Some(measured) => measured.read_ns(part.at_ns, rng) * slow,
            None => {
                let latency_ns = self.latency_ns(self.latency.read_ns, part.len_bytes, slow, rng);
                latency_ns + self.wait_for_program_ns(part.at_ns, rng) * slow
            }
        };
        self.queue(part, cost_ns, false, speed, latency_ns)
    }

    fn serve_write(&mut self, part: &Part, speed: f64, slow: f64, rng: &mut Rng) -> f64 {
        let mut cost_ns = self.write.cost_ns(part.len_bytes) * part.write_factor;
        let block_bytes = u64::from(self.rates.rewrite_block_bytes);
        if block_bytes > 0
            && !(part.offset_bytes.is_multiple_of(block_bytes) && part.len_bytes.is_multiple_of(block_bytes))
        {
            cost_ns += BLOCK_READ * self.read.cost_ns(block_bytes);
        }
        let speed = speed * self.mix.note(cost_ns, true);
        if let Some(measured) = &mut self.measured {
            measured.note_write(part.at_ns, part.len_bytes);
        } else if self.interference.program_ns > 0.0 {
            self.write_load.add(part.at_ns, cost_ns);
        }
        let latency_ns = self.latency_ns(self.latency.write_ns, part.len_bytes, slow, rng);
        self.queue(part, cost_ns, true, speed, latency_ns)
    }

    /// Waits until the buffer is written out, if the disk does so on a flush, and then takes its own time.
    fn serve_flush(&mut self, part: &Part, speed: f64, slow: f64, rng: &mut Rng) -> f64 {
        let latency_ns = self.latency_ns(self.latency.write_ns, 0, slow, rng);
        if !self.flush_drains {
            return self.queue(part, self.rates.flush_ns, true, speed, latency_ns);
        }
        let own = usize::from(!self.lanes[1].is_empty());
        let count = self.lanes[own].len() as f64;
        let channel_speed = speed * self.mix.capacity / count;
        let mut done_ns = latency_ns;
        for channel in &mut self.lanes[own] {
            let free_ns = channel.arrive(part.at_ns, channel_speed);
            let service_ns = (channel.take_debt_ns() + self.rates.flush_ns / count) / channel_speed;
            channel.serve(service_ns);
            done_ns = done_ns.max(free_ns + service_ns.max(latency_ns));
        }
        done_ns
    }

    /// Passes the capacity stage, overlapped with the latency. `cost_ns` is device time of the whole member.
    #[inline]
    fn queue(&mut self, part: &Part, cost_ns: f64, writes: bool, speed: f64, latency_ns: f64) -> f64 {
        let own = usize::from(writes && !self.lanes[1].is_empty());
        let buffered = part.op == Op::Write && self.buffer_bytes > 0.0;
        let count = self.lanes[own].len();
        let (mut index, spread) = if count == 1 { (0, 1) } else { self.first_channel(part, count, writes) };
        let lane = &mut self.lanes[own];

        // A channel does 1 / count of the member's work.
        let channel_speed = speed / count as f64;
        let mut done_ns = latency_ns;
        for _ in 0..spread {
            let Some(channel) = lane.get_mut(index) else { break };
            let free_ns = channel.arrive(part.at_ns, channel_speed);
            let part_ns = cost_ns / spread as f64;
            if buffered {
                let excess_ns = channel.buffer(self.buffer_bytes, part.len_bytes as f64 / spread as f64, part_ns);
                if excess_ns > 0.0 {
                    let service_ns = excess_ns / channel_speed;
                    channel.serve(service_ns);
                    done_ns = done_ns.max(free_ns + service_ns);
                }
            } else {
                let service_ns = part_ns / channel_speed;
                channel.serve(service_ns);
                done_ns = done_ns.max(match self.measured.is_some() && !writes {
                    true => free_ns + service_ns - MEASURED_BACKLOG_NS,
                    false => free_ns + service_ns.max(latency_ns),
                });
            }
            index = if index + 1 == count { 0 } else { index + 1 };
        }

        if buffered && self.burst_ns_per_byte > 0.0 {
            let free_ns = self.inlet.arrive(part.at_ns, 1.0);
            let service_ns = part.len_bytes as f64 * self.burst_ns_per_byte;
            self.inlet.serve(service_ns);
            done_ns = done_ns.max(free_ns + service_ns.max(latency_ns));
        }
        done_ns
    }

    /// Returns the first channel of a request, and the number of channels it takes.
    fn first_channel(&mut self, part: &Part, count: usize, writes: bool) -> (usize, usize) {
        let spread = part.len_bytes.div_ceil(self.stripe_bytes).clamp(1, count as u64) as usize;
        if writes {
            let index = self.next_channel;
            self.next_channel = (index + spread) % count;
            return (index, spread);
        }
        let hash = (part.offset_bytes / self.stripe_bytes).wrapping_add(1).wrapping_mul(HASH);
        (((u128::from(hash) * count as u128) >> 64) as usize, spread)
    }

    fn serve_with_arm(&mut self, part: &Part, speed: f64, rng: &mut Rng) -> f64 {
        let (Some(arm), [lane, _]) = (&mut self.arm, &mut self.lanes) else { return 0.0 };
        let &Part { op, offset_bytes, len_bytes, depth, .. } = part;
        let move_ns = if op.is_transfer() { arm.move_ns(offset_bytes, len_bytes, depth, rng) } else { 0.0 };
        let transfer_ns = match part.op {
            Op::Read => self.read.cost_ns(part.len_bytes),
            Op::Write => self.write.cost_ns(part.len_bytes),
            Op::Flush => self.rates.flush_ns,
            Op::Discard | Op::Allocate => self.rates.discard_ns,
        };
        let Some(channel) = lane.first_mut() else { return 0.0 };
        let free_ns = channel.arrive(part.at_ns, speed);
        let service_ns = (move_ns + transfer_ns) / speed;
        channel.serve(service_ns);
        free_ns + service_ns
    }

    /// Draws the latency on the idle disk.
    #[inline]
    fn latency_ns(&self, median_ns: f64, len_bytes: u64, slow: f64, rng: &mut Rng) -> f64 {
        (median_ns * self.lognormal.sample(rng) + self.latency.transfer_ns(len_bytes as f64)) * slow
    }

    /// Draws how long a read waits for a die that is being programmed; mostly 0.
    fn wait_for_program_ns(&mut self, at_ns: u64, rng: &mut Rng) -> f64 {
        if self.interference.program_ns <= 0.0 {
            return 0.0;
        }
        let load = self.write_load.per_ns(at_ns).min(1.0);
        if load <= 0.0 {
            return 0.0;
        }
        let (probability, program_ns) = (self.interference.block_probability, self.interference.program_ns);
        let (probability, longest_ns) =
            if self.interference.suspend { (probability, program_ns * load) } else { (probability * load, program_ns) };
        // One draw decides both: given that it is below the probability, it is uniform there.
        let draw = uniform(rng);
        if draw < probability { draw / probability * longest_ns } else { 0.0 }
    }
}

fn channel_count(spec: &DeviceSpec) -> usize {
    if !spec.channels.independent || spec.hdd.is_some() {
        return 1;
    }
    let parallel = (spec.rates.read_iops * spec.latency.read_ns / NS_PER_S).ceil().clamp(1.0, CHANNELS_MAX);
    spec.channels.count.map_or(parallel as usize, |count| count as usize)
}
