//! A simulated disk: applies the loads of a measurement to a model of a disk, in virtual time.
//!
//! **Why.** The errors of a measurement show on disks whose true rates, bursts, blocks and neighbours are known: those
//! of the model. And five minutes of such a disk take seconds.
//!
//! **How.** A load is a number of *fibers*, each with one request under way, spread over the shards as on a real disk;
//! each shard has its part of the scratch data. Time jumps from event to event: a request completes, a fiber is due, a
//! CPU finishes a request, another program reads. A shard's CPU handles its requests one after another, each for the
//! same time, before they are submitted; latency counts from when a fiber could continue (or, with a rate, was due), so
//! the rate times the mean latency is the number of requests under way.
//!
//! The clock never stops or runs backwards: credits, buffers and weather of the device see one long measurement.
//! Between two loads all requests complete, and [`IDLE_NS`] pass.
//!
//! **Limits.** Other programs ([`SimulatedDisk::foreign_bytes_per_s`]) read during loads and filling, not in between.
//! If the device never completes a request, its fiber waits until the load ends. There are no files: nothing is opened,
//! and a submission never blocks.
//!
//! **Example.** 10 000 reads/s of 100 us each: depth 1 gets 10 000/s at 100 us, depth 2 the same rate at 200 us. With
//! 200 us of CPU for each request one shard gets 5 000/s at any depth, and its CPU is 100 % busy.

mod play;

use plimsoll::core::{Histogram, Op};
use plimsoll_sim::device::{Device, DeviceCompletion, DeviceRequest, DeviceSpec};
use plimsoll_sim::rng::Rng;

use super::disk::SPAN_MIN_BYTES;
use super::{Rig, draw_warmup_ns};
use crate::load::{Stop, Traffic};
use crate::tune::record::{Entry, Load, Order, Sample, Stream};
use crate::tune::report::OperationCost;
use crate::tune::{SEQUENTIAL_BYTES, TuneError};
use play::Play;

const NS_PER_S: f64 = 1e9;
const IDLE_NS: u64 = 10_000_000;
const FILL_DEPTH: u32 = 16;
/// Length in seconds of a piece of filling below which the next piece is twice as long.
const FILL_PIECE_S: f64 = 0.5;
/// Longest piece of filling, in seconds. A longer one means a device that completes nothing.
const FILL_SILENT_S: f64 = 3600.0;
/// Length of other programs' reads in bytes, and most of them under way.
const FOREIGN_BYTES: u32 = 128 << 10;
const FOREIGN_DEPTH_MAX: u32 = 1024;
/// Key of other programs' requests.
const FOREIGN_KEY: u64 = u64::MAX;
/// Events between two checks for a stop.
const EVENTS_PER_LOOK: u32 = 4096;
/// Number of single operations of each kind, and their lengths in bytes.
const COST_OPERATIONS: u32 = 50;
const COST_WRITE_BYTES: u32 = 4096;
const COST_DISCARD_BYTES: u32 = 1 << 20;

/// A modelled disk, and the machine around it, for [`measure_simulated`](crate::tune::measure_simulated).
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    pub name: String,
    /// The model. It must pass [`DeviceSpec::check`].
    pub spec: DeviceSpec,
    /// CPU time of the shard for submitting and reaping one request, in ns; 0: none.
    pub cpu_ns_per_request: u64,
    /// Physical block in bytes that a kernel would report; may be wrong. `None`: nothing is reported.
    pub reported_block_bytes: Option<u32>,
    /// Rate at which other programs read from the device during loads, at random and 128 KiB at a time, in bytes a
    /// second; finite, at least 0.
    pub foreign_bytes_per_s: f64,
}

impl SimulatedDisk {
    /// Returns a disk on a machine that costs no CPU time, reports no block and runs nothing else.
    pub fn new(name: impl Into<String>, spec: DeviceSpec) -> SimulatedDisk {
        let name = name.into();
        SimulatedDisk { name, spec, cpu_ns_per_request: 0, reported_block_bytes: None, foreign_bytes_per_s: 0.0 }
    }
}

/// A modelled disk in virtual time, and its shards.
pub(in crate::tune) struct SimRig {
    device: Device,
    capacity_bytes: u64,
    rng: Rng,
    stop: Stop,
    traffic: Traffic,
    now_ns: u64,
    spans: Vec<Span>,
    cpu_ns: u64,
    /// Mean time between two requests of other programs; infinite if there are none.
    foreign_gap_ns: f64,
    written_bytes: u64,
    /// Most bytes of each span, and bytes written from the span's beginning.
    room_bytes: u64,
    filled_bytes: u64,
    /// Reused by all loads, so that no request allocates.
    completions: Vec<DeviceCompletion>,
}

/// The part of the disk that one shard works on.
struct Span {
    offset_bytes: u64,
    len_bytes: u64,
    /// Offset in the span at which the next sequential load begins.
    cursor_bytes: u64,
}

impl SimRig {
    /// Returns a rig with an idle disk at time 0. Each of `shards` (0 counts as 1) gets an equal part of
    /// `data_bytes`, or of the disk if that is smaller. Writes count against the bound of `traffic`, scratch data
    /// included.
    pub(in crate::tune) fn new(
        disk: &SimulatedDisk,
        shards: u16,
        data_bytes: u64,
        seed: u64,
        stop: Stop,
        traffic: Traffic,
    ) -> Result<SimRig, TuneError> {
        let bad = |reason: String| TuneError::Option { option: "simulated disk", reason };
        let device = Device::new(&disk.spec, seed).map_err(|error| bad(error.to_string()))?;
        let foreign_bytes_per_s = disk.foreign_bytes_per_s;
        if !(foreign_bytes_per_s >= 0.0 && foreign_bytes_per_s.is_finite()) {
            return Err(bad(format!("foreign_bytes_per_s is {foreign_bytes_per_s}; it must be finite, 0 or more")));
        }

        let shards = u64::from(shards.max(1));
        let capacity_bytes = disk.spec.capacity_bytes;
        let piece_bytes = u64::from(SEQUENTIAL_BYTES);
        let len_bytes = data_bytes.min(capacity_bytes) / shards / piece_bytes * piece_bytes;
        if len_bytes < SPAN_MIN_BYTES {
            return Err(bad(format!("{shards} shards need {SPAN_MIN_BYTES} bytes each, it has {capacity_bytes}")));
        }

        let span = |shard: u64| Span { offset_bytes: shard * len_bytes, len_bytes, cursor_bytes: 0 };
        Ok(SimRig {
            device,
            capacity_bytes,
            // A sequence different from the device's own.
            rng: Rng::new(seed.wrapping_add(1).rotate_left(32)),
            stop,
            traffic,
            now_ns: 0,
            spans: (0..shards).map(span).collect(),
            cpu_ns: disk.cpu_ns_per_request,
            foreign_gap_ns: f64::from(FOREIGN_BYTES) / foreign_bytes_per_s * NS_PER_S,
            written_bytes: 0,
            room_bytes: len_bytes,
            filled_bytes: 0,
            completions: Vec::new(),
        })
    }

    /// Takes `bytes` from the write bound and counts them. Returns `false` if fewer are left.
    fn take_write(&mut self, bytes: u32) -> bool {
        let is_taken = self.traffic.take_write(u64::from(bytes));
        if is_taken {
            self.written_bytes += u64::from(bytes);
            self.traffic.add_written(u64::from(bytes));
        }
        is_taken
    }

    /// Draws the time until the next read of other programs: exponentially distributed, or infinite if there are none.
    fn foreign_pause_ns(&mut self) -> u64 {
        if self.foreign_gap_ns.is_finite() { self.rng.exponential(self.foreign_gap_ns) as u64 } else { u64::MAX }
    }

    /// Makes later loads work on the first `filled_bytes` of each span.
    fn work_on(&mut self, filled_bytes: u64) {
        self.filled_bytes = filled_bytes;
        for span in &mut self.spans {
            (span.len_bytes, span.cursor_bytes) = (filled_bytes, 0);
        }
        self.now_ns = self.now_ns.saturating_add(IDLE_NS);
    }

    /// Waits for all requests except those that never complete.
    fn drain(&mut self) {
        while let Some(at_ns) = self.device.next_event_ns() {
            self.now_ns = self.now_ns.max(at_ns);
            self.device.advance(at_ns, &mut self.completions);
            self.completions.clear();
        }
    }

    /// Writes at most `piece_bytes` more to each span, which is filled to `filled_bytes`. Returns the new fill.
    fn fill_piece(&mut self, filled_bytes: u64, piece_bytes: u64) -> Result<u64, TuneError> {
        let begin_ns = self.now_ns;
        let stream = Stream {
            order: Order::Sequential,
            block_bytes: SEQUENTIAL_BYTES,
            depth: FILL_DEPTH.max(self.spans.len() as u32),
            rate_per_s: None,
            shift_bytes: 0,
        };

        for span in &mut self.spans {
            span.cursor_bytes = filled_bytes;
        }

        let mut play = Play::new(self, (begin_ns, begin_ns.saturating_add((FILL_SILENT_S * NS_PER_S) as u64)));
        play.add(&stream, true, Some(piece_bytes / u64::from(SEQUENTIAL_BYTES)));
        play.run();

        let [_, lane] = &play.lanes;
        let (errors, first_error, is_silent) = (lane.errors, lane.first_error, play.active > 0);
        // All spans count as filled to the least of them.
        let least = play.jobs.iter().map(|job| job.sent * u64::from(job.block_bytes)).min().unwrap_or(0);

        self.drain();
        if errors > 0 {
            return Err(TuneError::io("scratch data", errors, first_error));
        }
        if is_silent && !self.stop.is_asked() {
            let seconds = self.now_ns.saturating_sub(begin_ns) as f64 / NS_PER_S;
            return Err(TuneError::Silent { phase: "scratch data", seconds });
        }
        Ok(filled_bytes + least)
    }

    /// Returns the time of one operation alone, in ns; `None` if the operation fails or never completes.
    fn alone_ns(&mut self, op: Op, offset_bytes: u64, len_bytes: u32) -> Option<u64> {
        let begin_ns = self.now_ns;
        self.device.submit(begin_ns, DeviceRequest { key: 0, op, offset_bytes, len_bytes });
        let end_ns = self.device.next_event_ns()?;
        self.now_ns = end_ns;
        self.completions.clear();
        self.device.advance(end_ns, &mut self.completions);
        let is_good = self.completions.iter().all(|completion| completion.result.is_ok());
        self.completions.clear();
        is_good.then(|| end_ns.saturating_sub(begin_ns))
    }

    /// Returns a random offset in the scratch data, a multiple of `len_bytes`.
    fn random_offset(&mut self, len_bytes: u32) -> u64 {
        let data_bytes: u64 = self.spans.iter().map(|span| span.len_bytes).sum();
        self.rng.below(data_bytes / u64::from(len_bytes)) * u64::from(len_bytes)
    }

    fn flush_cost(&mut self) -> Result<OperationCost, &'static str> {
        let mut latency = Histogram::new();
        for _ in 0..COST_OPERATIONS {
            if !self.take_write(COST_WRITE_BYTES) {
                return Err("flush: no more may be written");
            }
            let offset_bytes = self.random_offset(COST_WRITE_BYTES);
            let written = self.alone_ns(Op::Write, offset_bytes, COST_WRITE_BYTES);
            let flushed = written.and_then(|_| self.alone_ns(Op::Flush, 0, 0));
            latency.record(flushed.ok_or("flush: the simulated disk failed")?);
        }
        Ok(operation_cost(&latency, "a flush after a random write of 4 KiB"))
    }

    fn discard_cost(&mut self) -> Result<OperationCost, &'static str> {
        let mut latency = Histogram::new();
        for _ in 0..COST_OPERATIONS {
            let offset_bytes = self.random_offset(COST_DISCARD_BYTES);
            let taken_ns = self.alone_ns(Op::Discard, offset_bytes, COST_DISCARD_BYTES);
            latency.record(taken_ns.ok_or("discard: the simulated disk failed")?);
        }
        Ok(operation_cost(&latency, "giving back 1 MiB"))
    }
}

fn operation_cost(latency: &Histogram, what: &str) -> OperationCost {
    OperationCost {
        p50_ns: latency.percentile(50.0),
        p99_ns: latency.percentile(99.0),
        operations: latency.count(),
        what: what.to_owned(),
    }
}

impl Rig for SimRig {
    fn fill(&mut self, wanted_bytes: u64, max_s: f64, progress: &mut dyn FnMut(f64)) -> Result<u64, TuneError> {
        let begin_s = self.now_s();
        let spans = self.spans.len() as u64;
        self.spans.iter_mut().for_each(|span| span.len_bytes = self.room_bytes);
        let piece_bytes = u64::from(SEQUENTIAL_BYTES);
        let span_bytes = (wanted_bytes / spans.max(1)).min(self.room_bytes) / piece_bytes * piece_bytes;

        let (mut filled_bytes, mut next_bytes) = (self.filled_bytes, SPAN_MIN_BYTES);
        while filled_bytes < span_bytes && !self.is_stopped() && !self.traffic.is_write_bound_reached() {
            let piece_begin_s = self.now_s();
            filled_bytes = self.fill_piece(filled_bytes, next_bytes.min(span_bytes - filled_bytes))?;
            progress(filled_bytes as f64 / span_bytes as f64);
            if self.now_s() - piece_begin_s < FILL_PIECE_S {
                next_bytes = next_bytes.saturating_mul(2);
            }
            if self.now_s() - begin_s >= max_s {
                break;
            }
        }

        self.work_on(filled_bytes);
        Ok(filled_bytes * spans)
    }

    fn discard_beyond(&mut self, kept_part: f64) -> Result<(), TuneError> {
        let piece_bytes = u64::from(SEQUENTIAL_BYTES);
        let kept_bytes = (self.filled_bytes as f64 * kept_part) as u64 / piece_bytes * piece_bytes;
        let begins: Vec<u64> = self.spans.iter().map(|span| span.offset_bytes + kept_bytes).collect();
        let len_bytes = self.filled_bytes - kept_bytes;
        for offset_bytes in begins {
            for at in (0..len_bytes).step_by(SEQUENTIAL_BYTES as usize) {
                self.alone_ns(Op::Discard, offset_bytes + at, SEQUENTIAL_BYTES)
                    .ok_or_else(|| TuneError::io("a discard", 1, None))?;
            }
        }
        self.work_on(kept_bytes);
        Ok(())
    }

    fn run(&mut self, load: &Load) -> Result<Sample, TuneError> {
        let at_s = self.now_s();
        let from_ns = self.now_ns.saturating_add(draw_warmup_ns(load, &mut self.rng));
        let until_ns = from_ns.saturating_add(((load.seconds * NS_PER_S) as u64).max(1));

        let mut play = Play::new(self, (from_ns, until_ns));
        for (stream, is_write) in [(&load.reads, false), (&load.writes, true)] {
            if let Some(stream) = stream {
                play.add(stream, is_write, None);
            }
        }
        play.run();

        let elapsed_ns = play.until_ns.saturating_sub(from_ns);
        let busiest_ns = play.cpus.iter().map(|cpu| cpu.busy_ns).max().unwrap_or(0);

        let [read_lane, write_lane] = &play.lanes;
        let (reads, writes) = (load.reads.map(|_| read_lane.moved()), load.writes.map(|_| write_lane.moved()));
        let own_bytes: u64 = [reads, writes].iter().flatten().map(|moved| moved.bytes).sum();
        let all_bytes = (own_bytes + play.foreign_bytes).max(1);
        let foreign_pct = play.foreign_bytes as f64 / all_bytes as f64 * 100.0;

        play.keep_cursors();
        self.drain();
        self.now_ns = self.now_ns.saturating_add(IDLE_NS);
        Ok(Sample {
            load: *load,
            at_s,
            elapsed_s: elapsed_ns as f64 / NS_PER_S,
            reads,
            writes,
            cpu_busy_pct: busiest_ns as f64 / elapsed_ns.max(1) as f64 * 100.0,
            foreign_pct: Some(foreign_pct),
            is_cut: load.writes.is_some() && self.traffic.is_write_bound_reached(),
        })
    }

    fn costs(&mut self) -> Result<Entry, TuneError> {
        let mut skipped =
            vec!["submissions: on a simulated disk they take the CPU time that was set, and never block".to_owned()];
        let mut or_skip = |cost: Result<OperationCost, &str>| match cost {
            Ok(cost) => Some(cost),
            Err(reason) => {
                skipped.push(reason.to_owned());
                None
            }
        };
        let flush = or_skip(self.flush_cost());
        let discard = or_skip(self.discard_cost());
        Ok(Entry::Costs { flush, discard, submissions: Vec::new(), skipped })
    }

    fn now_s(&self) -> f64 {
        self.now_ns as f64 / NS_PER_S
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }
}
