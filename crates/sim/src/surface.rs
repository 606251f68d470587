//! Simulates a device at each cell of a latency surface, and measures its distance from the measured surface.
//!
//! # Why
//! A fit is as good as its predictions: fit half of the cells, simulate the other half, compare.
//!
//! # How it works
//! [`simulate`] drives a [`Device`] without a scheduler, in virtual time: 4 KiB reads at random places and at random
//! times (Poisson) at the cell's rate, independent of completions; sequential 128 KiB writes at even intervals, at most
//! 64 in flight. Delayed writes are made up for later. Arrivals during the warm-up do not count. [`compare()`] compares
//! the medians with measured ones.
//!
//! # Limits
//! A rate of reads of zero is measured with a few probes a second. Each cell starts on a fresh device: buffers are
//! empty, credits full. Percentiles of 4000 reads have a random error: about 2 % for p50 if p95 is twice as much, and 5
//! % for p95. Stalls that are rarer than one read in a thousand do not show.
//!
//! # Example
//! ```
//! use plimsoll_sim::device::DeviceSpec;
//! use plimsoll_sim::fit::Cell;
//! use plimsoll_sim::surface::{SurfaceOptions, simulate};
//! let cell = Cell { write_bytes_per_s: 0.0, read_iops: 20e3, p50_ns: 100e3, p95_ns: 150e3 };
//! let results = simulate(&DeviceSpec::default(), &[cell], 1, &SurfaceOptions::default())?;
//! assert!(!results[0].saturated && (results[0].model_p50_ns / 100e3 - 1.0).abs() < 0.1);
//! # Ok::<(), plimsoll_sim::device::SpecError>(())
//! ```

mod compare;

use plimsoll_core::Op;

use crate::device::{Device, DeviceCompletion, DeviceRequest, DeviceSpec, SpecError};
use crate::fit::{Cell, READ_BYTES, WRITE_BYTES};
use crate::rng::Rng;

pub use compare::{Comparison, compare};

const NS_PER_S: f64 = 1e9;
/// Part of the target below which a cell's achieved rate counts as saturated (as in diskplorer).
const ACHIEVED_MIN: f64 = 0.97;
/// Most writes in flight (as in diskplorer).
const WRITES_MAX: usize = 64;
/// Bit that marks keys of writes; keys of reads are the time of their arrival.
const WRITE_KEY: u64 = 1 << 63;

#[derive(Clone, Debug, PartialEq)]
pub struct SurfaceOptions {
    /// Counted reads at each cell; at least 1.
    pub reads_per_cell: u64,
    /// Length of the warm-up in ns; arrivals in it do not count. The device smooths rates over up to 0.1 s.
    pub warm_up_ns: u64,
    /// Probes per second at cells without reads; positive.
    pub probe_iops: f64,
    /// Counted probes at cells without reads; at least 1.
    pub probes_per_cell: u64,
}

impl Default for SurfaceOptions {
    fn default() -> SurfaceOptions {
        SurfaceOptions { reads_per_cell: 4000, warm_up_ns: 300_000_000, probe_iops: 10.0, probes_per_cell: 500 }
    }
}

/// The simulated latencies and rates of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellResult {
    /// The cell: target rates, measured latencies.
    pub cell: Cell,
    /// Median latency of the simulated reads, in ns.
    pub model_p50_ns: f64,
    /// 95th percentile of the latency of the simulated reads, in ns.
    pub model_p95_ns: f64,
    pub achieved_write_bytes_per_s: f64,
    /// Reads completed per second; at cells without reads, probes.
    pub achieved_read_iops: f64,
    /// Whether an achieved rate misses the offered one by more than 3 %.
    pub saturated: bool,
}

/// Runs every cell on a fresh device made from `spec`. The same arguments give the same results.
///
/// # Errors
/// A specification that makes no device.
pub fn simulate(
    spec: &DeviceSpec,
    cells: &[Cell],
    seed: u64,
    options: &SurfaceOptions,
) -> Result<Vec<CellResult>, SpecError> {
    let mut rng = Rng::new(seed);
    cells.iter().map(|cell| Run::new(spec, cell, rng.next_u64(), options).map(Run::finish)).collect()
}

/// The run of one cell.
#[derive(Debug)]
struct Run<'a> {
    cell: &'a Cell,
    device: Device,
    rng: Rng,
    blocks: u64,
    write_places: u64,
    read_gap_ns: f64,
    /// Time between writes; `None`: the cell has no writes.
    write_gap_ns: Option<f64>,
    next_read_ns: f64,
    next_write_ns: f64,
    writes_in_flight: usize,
    writes_sent: u64,
    warm_up_ns: u64,
    end_ns: u64,
    reads_offered: u64,
    reads_done: u64,
    writes_done: u64,
    latencies_ns: Vec<u64>,
    completions: Vec<DeviceCompletion>,
}

impl<'a> Run<'a> {
    fn new(spec: &DeviceSpec, cell: &'a Cell, seed: u64, options: &SurfaceOptions) -> Result<Run<'a>, SpecError> {
        let (read_iops, reads) = if cell.read_iops > 0.0 {
            (cell.read_iops, options.reads_per_cell)
        } else {
            (options.probe_iops.max(1e-3), options.probes_per_cell)
        };
        let mut rng = Rng::new(seed);
        let read_gap_ns = NS_PER_S / read_iops;
        let write_gap_ns =
            (cell.write_bytes_per_s > 0.0).then(|| f64::from(WRITE_BYTES) * NS_PER_S / cell.write_bytes_per_s);
        // Also long enough for a hundred writes.
        let counted_ns = (read_gap_ns * reads.max(1) as f64).max(write_gap_ns.unwrap_or(0.0) * 100.0);

        Ok(Run {
            cell,
            device: Device::new(spec, rng.next_u64())?,
            blocks: (spec.capacity_bytes / u64::from(READ_BYTES)).max(1),
            write_places: (spec.capacity_bytes / u64::from(WRITE_BYTES)).max(1),
            read_gap_ns,
            write_gap_ns,
            next_read_ns: rng.exponential(read_gap_ns),
            next_write_ns: 0.0,
            writes_in_flight: 0,
            writes_sent: 0,
            warm_up_ns: options.warm_up_ns,
            end_ns: options.warm_up_ns.saturating_add(counted_ns as u64),
            reads_offered: 0,
            reads_done: 0,
            writes_done: 0,
            latencies_ns: Vec::new(),
            completions: Vec::new(),
            rng,
        })
    }

    fn finish(mut self) -> CellResult {
        let mut now_ns = 0;
        // In a tie the device acts first, so that a completed write makes room for the next one.
        loop {
            let device_ns = self.device.next_event_ns().unwrap_or(u64::MAX);
            // A write that waited for its place is sent late; time never goes back.
            let write_ns = if self.may_write() { (self.next_write_ns.ceil() as u64).max(now_ns) } else { u64::MAX };
            let read_ns = self.next_read_ns.ceil() as u64;

            now_ns = device_ns.min(write_ns).min(read_ns);
            if now_ns >= self.end_ns {
                break;
            }

            if now_ns == device_ns {
                self.collect(now_ns);
            } else if now_ns == write_ns {
                self.write(now_ns);
            } else {
                self.read(now_ns);
            }
        }
        self.drain();
        self.result()
    }

    fn may_write(&self) -> bool {
        self.write_gap_ns.is_some() && self.writes_in_flight < WRITES_MAX
    }

    fn read(&mut self, now_ns: u64) {
        let offset_bytes = self.rng.below(self.blocks) * u64::from(READ_BYTES);
        self.device.submit(now_ns, DeviceRequest { key: now_ns, op: Op::Read, offset_bytes, len_bytes: READ_BYTES });
        self.reads_offered += u64::from(now_ns >= self.warm_up_ns);
        self.next_read_ns += self.rng.exponential(self.read_gap_ns);
    }

    fn write(&mut self, now_ns: u64) {
        let offset_bytes = self.writes_sent % self.write_places * u64::from(WRITE_BYTES);
        let key = WRITE_KEY | self.writes_sent;
        self.device.submit(now_ns, DeviceRequest { key, op: Op::Write, offset_bytes, len_bytes: WRITE_BYTES });
        self.writes_sent += 1;
        self.writes_in_flight += 1;
        self.next_write_ns += self.write_gap_ns.unwrap_or(f64::INFINITY);
    }

    fn collect(&mut self, now_ns: u64) {
        self.device.advance(now_ns, &mut self.completions);
        for done in self.completions.drain(..) {
            let counts = done.at_ns >= self.warm_up_ns;
            if done.key & WRITE_KEY != 0 {
                self.writes_in_flight = self.writes_in_flight.saturating_sub(1);
                self.writes_done += u64::from(counts);
            } else {
                self.reads_done += u64::from(counts);
                if done.key >= self.warm_up_ns {
                    self.latencies_ns.push(done.at_ns.saturating_sub(done.key));
                }
            }
        }
    }

    /// Counts the latency of reads that arrived in time but complete late; they do not count for the rate.
    fn drain(&mut self) {
        self.device.advance(u64::MAX, &mut self.completions);
        let warm_up_ns = self.warm_up_ns;
        let late = self.completions.drain(..).filter(|done| done.key & WRITE_KEY == 0 && done.key >= warm_up_ns);
        self.latencies_ns.extend(late.map(|done| done.at_ns.saturating_sub(done.key)));
    }

    fn result(mut self) -> CellResult {
        self.latencies_ns.sort_unstable();
        let percentile = |part: f64| {
            let index = (self.latencies_ns.len() as f64 * part) as usize;
            self.latencies_ns.get(index).or(self.latencies_ns.last()).map_or(f64::NAN, |&ns| ns as f64)
        };
        let seconds = self.end_ns.saturating_sub(self.warm_up_ns) as f64 / NS_PER_S;
        let achieved_write_bytes_per_s = self.writes_done as f64 * f64::from(WRITE_BYTES) / seconds;
        // Compare with the reads that did arrive: a Poisson process misses its rate at random.
        let reads_missing =
            self.cell.read_iops > 0.0 && (self.reads_done as f64) < ACHIEVED_MIN * self.reads_offered as f64;
        let writes_missing = achieved_write_bytes_per_s < ACHIEVED_MIN * self.cell.write_bytes_per_s;
        CellResult {
            cell: *self.cell,
            model_p50_ns: percentile(0.5),
            model_p95_ns: percentile(0.95),
            achieved_write_bytes_per_s,
            achieved_read_iops: self.reads_done as f64 / seconds,
            saturated: reads_missing || writes_missing,
        }
    }
}
