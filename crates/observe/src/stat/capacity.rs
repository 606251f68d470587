//! Capacity use (U): the part of a device's capacity that its load uses.
//!
//! # Why
//! `%util` is the part of the time in which at least one request was under way. A device that serves sixty at once is
//! at 100 % with a sixtieth of its work. Only its capacity shows how much it has left, and a model knows that.
//!
//! # How it works
//! A [`Capacity`] is the model that the scheduler uses, [`plimsoll_core::CostModel`] and
//! [`plimsoll_core::MixExponent`]: from a disk file or preset (`i4i.2xlarge`, `4x983-dct`) or from an entry of an
//! io-properties file. Each direction uses rate times the device time of its mean request; both together are (u_r^p +
//! u_w^p)^(1/p), which is their sum over the capacity of the mix. A discard costs a write without length, as in the
//! scheduler. A flush costs nothing here: kernels count some of them as writes, too.
//!
//! Without a model, [`Peaks`] compares with the highest rates seen so far, each direction by requests and by bytes.
//! That is a share of a lower bound: the device may carry any multiple. So U is not known at the first interval, and a
//! verdict never rests on such a U alone. Once the device was judged saturated, its rate then is taken as its capacity,
//! and later intervals of a like mix and size are compared with that. A device that does as much with half of the
//! requests under way is full, too: so `Peaks` also keeps the rates of intervals with a steady number under way.
//!
//! The model also knows how long a request takes on the idle device: `Capacity::unloaded_ms`.
//!
//! # Limits
//! Means hide sizes. Device time grows from a floor, so that a mix of short and long requests uses up to the knee more
//! than the same number of mean ones: U is then too low. A volume's credits do not count: U is relative to the base
//! rate, and above 1 while credits last.
//!
//! # Example
//! ```
//! use std::path::Path;
//! use plimsoll_observe::stat::Columns;
//! use plimsoll_observe::stat::capacity::Capacity;
//! let disk = Capacity::find("i3en.3xlarge", Path::new("."))?;
//! let reads = Columns { reads_per_s: Some(128_512.0), read_size_kib: Some(4.0), ..Columns::default() };
//! assert_eq!(disk.capacity_use(&reads).map(|u| (u * 100.0).round()), Some(50.0));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::collections::VecDeque;
use std::path::Path;

use plimsoll_core::{CostModel, Direction, MixExponent, Op};
use plimsoll_files::ConfigError;
use plimsoll_files::disk::{self, DiskModel};
use plimsoll_files::io_properties::DiskProperties;
use plimsoll_files::setup;
use plimsoll_sim::device::{CapSpec, CapUnit, DeviceSpec, LatencySpec};

use super::Columns;

const BYTES_PER_KIB: f64 = 1024.0;
const NS_PER_MS: f64 = 1e6;

/// The capacity of a device, by a model.
#[derive(Clone, Debug)]
pub struct Capacity {
    name: String,
    model: CostModel,
    mix: MixExponent,
    idle: Idle,
}

/// How long requests take on the idle device.
#[derive(Clone, Debug, Default)]
struct Idle {
    /// Latency of a small read; `None` if it was not measured. `write_ns` likewise.
    read_ns: Option<f64>,
    write_ns: Option<f64>,
    /// The time that the length of a request adds.
    transfer: LatencySpec,
    /// The inside of the device; `None` if nothing is known of it.
    inside: Option<Inside>,
}

/// The inside of a simulated device. Device time and latency overlap, and the longer counts; limits and the network add
/// to it.
#[derive(Clone, Debug)]
struct Inside {
    /// Device time, without the limits in front of the device.
    model: CostModel,
    /// Number of channels with equal parts of the work. A request takes one channel for each stripe that it spans.
    channels: f64,
    stripe_bytes: f64,
    are_writes_buffered: bool,
    /// Limits of a volume, which take time even from a request that is alone.
    caps: Vec<CapSpec>,
    network_ns: f64,
}

impl Capacity {
    pub fn of_model(name: &str, model: &DiskModel) -> Capacity {
        let config = model.config();
        let read_ns = (model.unloaded_latency_ns > 0).then_some(model.unloaded_latency_ns as f64);
        let idle = match &model.device {
            Some(spec) => Idle::of_device(spec, read_ns),
            None => Idle { read_ns, ..Idle::default() },
        };
        let mix = if model.duplex { MixExponent::FULL_DUPLEX } else { config.mix };
        Capacity { name: name.to_owned(), model: config.model, mix, idle }
    }

    /// Returns the capacity of an entry of an io-properties file, called `name`. It has no latencies.
    pub fn of_properties(name: &str, properties: &DiskProperties) -> Capacity {
        let config = setup::disk_config(properties, None);
        let mix = if properties.duplex { MixExponent::FULL_DUPLEX } else { config.mix };
        Capacity { name: name.to_owned(), model: config.model, mix, idle: Idle::default() }
    }

    /// Finds the capacity that a command line names: a preset (`i4i.2xlarge`, `4x983-dct`, `gp3:500GiB`) or a disk
    /// file. Relative paths start at `base`.
    pub fn find(name: &str, base: &Path) -> Result<Capacity, ConfigError> {
        let model = disk::find(name, base)?;
        Ok(Capacity::of_model(model.name.as_deref().unwrap_or(name), &model))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the part of the capacity that is used: 0 and more; above 1 if the device does more than its model.
    /// `None` if no rate of reads or writes is known, or the model has no limits.
    pub fn capacity_use(&self, columns: &Columns) -> Option<f64> {
        if self.model.is_unlimited() || (columns.reads_per_s.is_none() && columns.writes_per_s.is_none()) {
            return None;
        }
        let reads = self.busy(Op::Read, columns.reads_per_s, columns.read_size());
        let discards = self.busy(Op::Discard, columns.discards_per_s, Some(0.0));
        let writes = self.busy(Op::Write, columns.writes_per_s, columns.write_size());
        let parts = [0, 1].map(|limit: usize| {
            let (reads, writes) = (reads[limit], writes[limit] + discards[limit]);
            let both = reads + writes;
            let write_share = if both > 0.0 { writes / both } else { 0.0 };
            both / self.mix.capacity(write_share)
        });
        finite(parts[0].max(parts[1]))
    }

    /// Returns the device time that requests take, in seconds a second: of operations and of bytes if the model limits
    /// them apart, otherwise twice the same.
    fn busy(&self, op: Op, per_s: Option<f64>, size_kib: Option<f64>) -> [f64; 2] {
        let Some(per_s) = positive(per_s) else { return [0.0; 2] };
        let len_bytes = len_bytes(size_kib.unwrap_or(0.0));
        self.model.parts(op, len_bytes).map(|cost| per_s * cost.as_secs_f64())
    }

    /// Returns the latency of a request of `size_kib` on the idle device, in milliseconds, always above 0; `None` if
    /// the model does not know it.
    pub(crate) fn unloaded_ms(&self, direction: Direction, size_kib: f64) -> Option<f64> {
        let (op, latency_ns) = match direction {
            Direction::Read => (Op::Read, self.idle.read_ns?),
            Direction::Write => (Op::Write, self.idle.write_ns?),
        };
        let size_kib = size_kib.max(0.0);
        let latency_ns = latency_ns + self.idle.transfer.transfer_ns(size_kib * BYTES_PER_KIB);
        let all_ns = match &self.idle.inside {
            Some(inside) => inside.pass_ns(op, latency_ns, size_kib * BYTES_PER_KIB),
            None => latency_ns + (cost_ns(&self.model, op, len_bytes(size_kib)) - cost_ns(&self.model, op, 0)).max(0.0),
        };
        finite(all_ns / NS_PER_MS).filter(|ms| *ms > 0.0)
    }

    /// Returns the rate at which this kind of load fills the device, in requests a second; `None` unless U is above 0.
    pub(crate) fn full_requests_per_s(columns: &Columns, capacity_use: f64) -> Option<f64> {
        let per_s = columns.requests_per_s()?;
        (capacity_use > 0.0).then(|| per_s / capacity_use).and_then(finite)
    }
}

impl Idle {
    /// Returns the latencies of a simulated device; its small reads take `read_ns`, the network included. Latencies
    /// there are medians of a lognormal; `await` is a mean, longer by the factor exp(sigma^2 / 2).
    fn of_device(spec: &DeviceSpec, read_ns: Option<f64>) -> Idle {
        let mean = (spec.latency.sigma * spec.latency.sigma / 2.0).exp();
        let network_ns = spec.network_rtt_ns as f64;
        let read_ns = read_ns.map(|ns| (ns - network_ns).max(0.0) * mean);
        let write_ns = if spec.hdd.is_some() { read_ns } else { Some(spec.latency.write_ns * mean) };
        let channels = match (spec.channels.independent && spec.hdd.is_none(), spec.channels.count) {
            (true, Some(count)) => f64::from(count.max(1)),
            // As the simulator computes them.
            (true, None) => (spec.rates.read_iops * spec.latency.read_ns / 1e9).ceil().clamp(1.0, 256.0),
            (false, _) => 1.0,
        };

        let inside = Inside {
            model: DiskModel::of_device(spec).config().model,
            channels,
            stripe_bytes: f64::from(spec.channels.stripe_bytes.max(1)),
            are_writes_buffered: spec.buffer.size_bytes > 0,
            caps: spec.caps.clone(),
            network_ns,
        };
        Idle { read_ns, write_ns, transfer: spec.latency.clone(), inside: Some(inside) }
    }
}

impl Inside {
    /// Returns the latency of a request that is alone, in ns.
    fn pass_ns(&self, op: Op, latency_ns: f64, len: f64) -> f64 {
        let spread = (len / self.stripe_bytes).ceil().clamp(1.0, self.channels);
        let is_buffered = op == Op::Write && self.are_writes_buffered;
        let device_ns = if is_buffered { 0.0 } else { cost_ns(&self.model, op, len as u32) * self.channels / spread };
        let caps_ns: f64 = self.caps.iter().map(|cap| pass_ns(cap, len)).sum();
        latency_ns.max(device_ns) + caps_ns + self.network_ns
    }
}

fn cost_ns(model: &CostModel, op: Op, len_bytes: u32) -> f64 {
    model.cost(op, len_bytes).as_secs_f64() * 1e9
}

/// Returns the time that one request takes to pass a limit at its burst rate, in ns.
fn pass_ns(cap: &CapSpec, len_bytes: f64) -> f64 {
    let units = match cap.unit {
        CapUnit::Bytes => len_bytes,
        CapUnit::Operations { unit_bytes: 0 } => 1.0,
        CapUnit::Operations { unit_bytes } => (len_bytes / f64::from(unit_bytes)).ceil().max(1.0),
    };
    units / cap.burst_per_s * 1e9
}

/// Most intervals with a full device whose rates are kept.
const FULL_MOST: usize = 16;
/// Most steady intervals kept, and the least distance of their numbers under way, in powers of 2.
const STEPS_MOST: usize = 16;
const NEAR_STEPS: f64 = 0.5;
/// Least gain from twice as many requests under way on a device that was not nearly full.
const GAIN_LEAST: f64 = 1.15;
/// Bounds for like intervals: their shares of writes differ by less than this, their mean sizes by less than this
/// factor.
const LIKE_WRITE_SHARE: f64 = 0.15;
const LIKE_SIZE_FACTOR: f64 = 2.0;
/// Most device time of a write, in reads, by data sheets of NVMe disks; and a margin for the cost of mixing reads and
/// writes.
const WRITE_COST_MOST: f64 = 10.0;
const MIX_MARGIN: f64 = 1.5;
/// Factor above the rate of a device taken as full, from which that device was not full.
const FULL_EXCEEDED: f64 = 1.2;
/// Least mean number of requests under way at which a rate is the device's. With fewer it is the program's.
const QUEUED_LEAST: f64 = 4.0;
/// Largest upper bound of U that says something.
const BOUND_MOST: f64 = 0.9;

/// The load of a device in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work {
    per_s: f64,
    write_share: f64,
    size_kib: f64,
}

impl Work {
    fn of(columns: &Columns) -> Option<Work> {
        let per_s = positive(columns.requests_per_s())?;
        let write_share = columns.writes_per_s.unwrap_or(0.0) / per_s;
        Some(Work { per_s, write_share, size_kib: columns.moved_kib_per_s()? / per_s })
    }

    /// Returns whether this load is far above another, in requests and in bytes: longer requests are fewer.
    fn exceeds(&self, other: &Work) -> bool {
        let bytes = |work: &Work| work.per_s * work.size_kib;
        self.per_s > FULL_EXCEEDED * other.per_s && bytes(self) > FULL_EXCEEDED * bytes(other)
    }

    /// Returns whether this load is hardly above another, both in requests and in bytes.
    fn hardly_exceeds(&self, other: &Work) -> bool {
        let part = self.per_s / other.per_s;
        part <= GAIN_LEAST && part * self.size_kib <= GAIN_LEAST * other.size_kib
    }

    fn is_like(&self, other: &Work) -> bool {
        (self.write_share - other.write_share).abs() < LIKE_WRITE_SHARE && self.has_like_size(other)
    }

    fn has_like_size(&self, other: &Work) -> bool {
        let (less, more) = (self.size_kib.min(other.size_kib), self.size_kib.max(other.size_kib));
        more < LIKE_SIZE_FACTOR * less.max(0.5)
    }

    /// Returns whether this load is more than a device that is full with the other mix could do, whatever its writes
    /// cost.
    fn is_far_above(&self, other: &Work) -> bool {
        let of_mix = 1.0 + (WRITE_COST_MOST - 1.0) * (self.write_share - other.write_share).abs();
        self.has_like_size(other) && self.per_s > MIX_MARGIN * of_mix * other.per_s
    }
}

/// An interval in which a device always had requests.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    work: Work,
    under_way: f64,
}

/// The highest rates of a device so far, and the loads of the latest 16 intervals in which it was full.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peaks {
    full: VecDeque<Work>,
    /// The latest steady interval of each kind of work and number under way.
    steps: VecDeque<Step>,
    intervals: u32,
    /// Reads per second, writes per second, KiB read per second, KiB written per second.
    highest: [f64; 4],
    /// The same for intervals in which requests queued.
    highest_queued: [f64; 4],
}

impl Peaks {
    /// Records an interval with this mean number of requests under way; one without requests does not count.
    pub fn note(&mut self, columns: &Columns, under_way: Option<f64>) {
        if positive(columns.requests_per_s()).is_none() {
            return;
        }
        self.intervals = self.intervals.saturating_add(1);
        raise(&mut self.highest, columns);
        if under_way.is_some_and(|under_way| under_way >= QUEUED_LEAST) {
            raise(&mut self.highest_queued, columns);
        }

        // A rate that is exceeded by this much was that of a device that stalled or was held back, not its limit.
        if let Some(now) = Work::of(columns) {
            self.full.retain(|full| !(full.is_like(&now) && now.exceeds(full)));
        }
    }

    /// Records an interval in which the device was judged saturated.
    pub(crate) fn note_full(&mut self, columns: &Columns) {
        if let Some(full) = Work::of(columns) {
            if self.full.len() == FULL_MOST {
                self.full.pop_front();
            }
            self.full.push_back(full);
        }
    }

    /// Records an interval in which the device always had about `under_way` requests.
    pub(crate) fn note_steady(&mut self, columns: &Columns, under_way: f64) {
        let Some(work) = Work::of(columns) else { return };
        let is_near = |step: &Step| (under_way / step.under_way).log2().abs() < NEAR_STEPS;
        self.steps.retain(|step| !(step.work.is_like(&work) && is_near(step)));
        if self.steps.len() == STEPS_MOST {
            self.steps.pop_front();
        }
        self.steps.push_back(Step { work, under_way });
    }

    /// Returns the fewest requests under way with which the device did about as much of a like load, or more, if they
    /// are at most half of `under_way`.
    pub(crate) fn enough_under_way(&self, columns: &Columns, under_way: f64) -> Option<f64> {
        let now = Work::of(columns)?;
        let is_enough = |step: &&Step| {
            step.under_way <= under_way / 2.0 && step.work.is_like(&now) && now.hardly_exceeds(&step.work)
        };
        self.steps.iter().filter(is_enough).map(|step| step.under_way).reduce(f64::min)
    }

    /// Returns the request rate over the highest one when the device was full with a like load; above 1, without bound,
    /// if it does more now. `None` if it was never full with a like load.
    pub(crate) fn use_of_full(&self, columns: &Columns) -> Option<f64> {
        let now = Work::of(columns)?;
        let most = self.full.iter().filter(|full| full.is_like(&now)).map(|full| full.per_s).reduce(f64::max)?;
        finite(now.per_s / most)
    }

    /// Returns whether the device, when it was full with requests of like size, did more than the present mix explains.
    pub(crate) fn did_far_more(&self, columns: &Columns) -> bool {
        Work::of(columns).is_some_and(|now| self.full.iter().any(|full| full.is_far_above(&now)))
    }

    /// Returns U as far as it is known without a model: the part of the rate at which it was full with a like load,
    /// else an upper bound, the part of the highest rate at which requests queued. `None` if neither says more than "at
    /// most all of it".
    pub(crate) fn known_use(&self, columns: &Columns) -> Option<f64> {
        let bound = || highest_share(&self.highest_queued, columns).filter(|share| *share <= BOUND_MOST);
        self.use_of_full(columns).map(|share| share.min(1.0)).or_else(bound)
    }

    /// Returns the share of the highest rates seen, 0 to 1 for an interval that was recorded; `None` before there are
    /// two intervals to compare. Of the four rates the one nearest to its highest counts: directions are not added,
    /// since they need not have had their highest rates together.
    pub fn capacity_use(&self, columns: &Columns) -> Option<f64> {
        if self.intervals < 2 || columns.requests_per_s().is_none() {
            return None;
        }
        highest_share(&self.highest, columns)
    }
}

fn raise(highest: &mut [f64; 4], columns: &Columns) {
    for (highest, now) in highest.iter_mut().zip(rates(columns)) {
        *highest = highest.max(now);
    }
}

/// Returns the largest of the four rates' parts of their highest; `None` if all of these are 0.
fn highest_share(highest: &[f64; 4], columns: &Columns) -> Option<f64> {
    let shares = highest.iter().zip(rates(columns)).filter(|(highest, _)| **highest > 0.0);
    shares.map(|(highest, now)| now / highest).reduce(f64::max)
}

fn rates(columns: &Columns) -> [f64; 4] {
    let one = |value: Option<f64>| positive(value).unwrap_or(0.0);
    [one(columns.reads_per_s), one(columns.writes_per_s), one(columns.read_kib_per_s), one(columns.write_kib_per_s)]
}

impl Columns {
    /// Returns the mean size of a read in KiB: as given, else bytes over requests, else the mean of all requests.
    pub(super) fn read_size(&self) -> Option<f64> {
        size(self.read_size_kib, self.reads_per_s, self.read_kib_per_s, self.size_kib)
    }

    /// Returns the mean size of a write in KiB, found as in [`Columns::read_size`].
    pub(super) fn write_size(&self) -> Option<f64> {
        size(self.write_size_kib, self.writes_per_s, self.write_kib_per_s, self.size_kib)
    }
}

fn size(given: Option<f64>, per_s: Option<f64>, kib_per_s: Option<f64>, of_all: Option<f64>) -> Option<f64> {
    let quotient = || positive(per_s).zip(kib_per_s).and_then(|(per_s, kib)| finite(kib / per_s));
    positive(given).or_else(quotient).or(of_all)
}

/// Converts KiB to bytes. Saturates at 4 GiB; NaN becomes 0.
fn len_bytes(size_kib: f64) -> u32 {
    (size_kib * BYTES_PER_KIB).round() as u32
}

pub(super) fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| *value > 0.0 && value.is_finite())
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use plimsoll_files::io_properties;

    use super::*;

    fn load(reads: f64, read_kib: f64, writes: f64, write_kib: f64) -> Columns {
        Columns {
            reads_per_s: Some(reads),
            writes_per_s: Some(writes),
            read_kib_per_s: Some(reads * read_kib),
            write_kib_per_s: Some(writes * write_kib),
            ..Columns::default()
        }
    }

    fn percent(capacity: &str, columns: &Columns) -> f64 {
        let capacity = Capacity::find(capacity, Path::new(".")).unwrap();
        (capacity.capacity_use(columns).unwrap() * 100.0).round()
    }

    #[test]
    fn use_of_presets() {
        // Disk; reads a second and their KiB, writes a second and their KiB; U in percent.
        let cases = [
            ("i3en.3xlarge", (7_246.0, 4.0, 0.0, 0.0), 3.0),
            ("i3en.3xlarge", (257_024.0, 4.0, 0.0, 0.0), 100.0),
            // The disk of seed 002 is rated 52 000 writes and 2.2 GB/s: 32 % of the operations, 29 % of the bytes.
            ("samsung-983-dct-1.92tb", (0.0, 0.0, 16_597.0, 38.1), 54.0),
            ("4xsamsung-983-dct-1.92tb", (0.0, 0.0, 16_597.0, 38.1), 13.0),
            ("gp3", (3_000.0, 16.0, 0.0, 0.0), 100.0),
            ("hdd", (76.0, 4.0, 0.0, 0.0), 100.0),
        ];
        for (disk, (reads, read_kib, writes, write_kib), expected) in cases {
            let found = percent(disk, &load(reads, read_kib, writes, write_kib));
            assert!((found - expected).abs() <= 5.0, "{disk}: {found} %, expected {expected} %");
        }
    }

    #[test]
    fn reads_and_writes_go_together_by_the_mix() {
        let text = |duplex| {
            format!(
                "disks: [{{mountpoint: /, read_iops: 1000, write_iops: 1000, read_bandwidth: 1G, write_bandwidth: 1G, \
                 duplex: {duplex}}}]"
            )
        };
        let half = load(500.0, 4.0, 500.0, 4.0);
        for (duplex, expected) in [(false, 1.0), (true, 0.5)] {
            let entry = io_properties::parse("test", &text(duplex)).unwrap().disks[0].clone();
            let capacity = Capacity::of_properties("test", &entry);
            let found = capacity.capacity_use(&half).unwrap();
            assert!((found - expected).abs() < 0.01, "{found}");
            assert_eq!(capacity.unloaded_ms(Direction::Read, 4.0), None);
        }
    }

    #[test]
    fn longer_requests_take_longer() {
        let disk = Capacity::find("i3en.3xlarge", Path::new(".")).unwrap();
        let ms = |kib| disk.unloaded_ms(Direction::Read, kib).unwrap();
        assert!((0.138..0.145).contains(&ms(4.0)), "{}", ms(4.0));
        assert!(ms(1024.0) > 0.5 && ms(4096.0) > 2.0, "{} {}", ms(1024.0), ms(4096.0));
        let plain = "disk: {read_iops: 100k, write_iops: 100k, read_bandwidth: 1000000000, \
                     write_bandwidth: 1000000000, \
                     unloaded_latency_ns: 100000}";
        let model = disk::parse("test", plain).unwrap();
        let disk = Capacity::of_model("test", &model);
        let ms = disk.unloaded_ms(Direction::Read, 128.0).unwrap();
        assert!((0.22..0.24).contains(&ms), "{ms}");
        assert_eq!(disk.unloaded_ms(Direction::Write, 4.0), None);
    }

    #[test]
    fn the_highest_seen_needs_two() {
        let mut peaks = Peaks::default();
        let alone = Some(1.0);
        let (high, low) = (load(1000.0, 4.0, 0.0, 0.0), load(250.0, 4.0, 0.0, 0.0));
        peaks.note(&high, alone);
        peaks.note(&load(0.0, 0.0, 0.0, 0.0), None);
        assert_eq!(peaks.capacity_use(&high), None);
        peaks.note(&low, alone);
        assert_eq!((peaks.capacity_use(&high), peaks.capacity_use(&low)), (Some(1.0), Some(0.25)));
        assert_eq!(peaks.capacity_use(&Columns::default()), None);
        let long = load(100.0, 1024.0, 0.0, 0.0);
        peaks.note(&long, alone);
        assert_eq!(peaks.capacity_use(&long), Some(1.0), "by bytes");
        // The rate with requests waiting counts before the peaks, for like loads.
        peaks.note_full(&high);
        assert_eq!((peaks.use_of_full(&low), peaks.use_of_full(&long)), (Some(0.25), None));
        assert_eq!(peaks.use_of_full(&load(0.0, 0.0, 500.0, 4.0)), None);
    }

    #[test]
    fn use_is_unknown_until_requests_queued() {
        let mut peaks = Peaks::default();
        let (high, low) = (load(1000.0, 4.0, 0.0, 0.0), load(250.0, 4.0, 0.0, 0.0));
        // Five reads a second, one at a time, are the program's rate, not a part of the disk's capacity.
        peaks.note(&load(5.0, 4.0, 0.0, 0.0), Some(0.02));
        assert_eq!(peaks.known_use(&load(5.0, 4.0, 0.0, 0.0)), None);
        peaks.note(&high, Some(8.0));
        assert_eq!((peaks.known_use(&high), peaks.known_use(&low)), (None, Some(0.25)));
        peaks.note_full(&high);
        assert_eq!(peaks.known_use(&high), Some(1.0));
    }

    #[test]
    fn as_much_with_half_under_way_is_enough() {
        let mut peaks = Peaks::default();
        for (per_s, kib, under_way) in [(15_000.0, 128.0, 4.0), (14_000.0, 128.0, 2.0), (100_000.0, 4.0, 8.0)] {
            peaks.note_steady(&load(per_s, kib, 0.0, 0.0), under_way);
        }

        // Reads a second, their KiB, requests under way, those that were enough.
        let cases = [
            (15_100.0, 128.0, 16.0, Some(2.0)),
            (16_800.0, 128.0, 16.0, Some(4.0)),
            (17_500.0, 128.0, 16.0, None),
            (4_000.0, 128.0, 16.0, Some(2.0)),
            (15_100.0, 128.0, 3.9, None),
            (15_000.0, 140.0, 16.0, Some(4.0)),
            (15_000.0, 200.0, 16.0, None),
            (15_000.0, 16.0, 16.0, None),
            (104_000.0, 4.0, 16.0, Some(8.0)),
        ];
        for (per_s, kib, under_way, expected) in cases {
            let found = peaks.enough_under_way(&load(per_s, kib, 0.0, 0.0), under_way);
            assert_eq!(found, expected, "{per_s} of {kib} with {under_way}");
        }

        // The latest of a number counts: the disk has become slower.
        peaks.note_steady(&load(9_000.0, 128.0, 0.0, 0.0), 2.2);
        assert_eq!(peaks.enough_under_way(&load(15_100.0, 128.0, 0.0, 0.0), 16.0), Some(4.0));
    }

    #[test]
    fn a_stalled_interval_is_no_limit() {
        let mut peaks = Peaks::default();
        let (stalled, usual) = (load(16.0, 4.0, 0.0, 0.0), load(1000.0, 4.0, 0.0, 0.0));
        peaks.note(&stalled, Some(30.0));
        peaks.note_full(&stalled);
        assert_eq!(peaks.known_use(&stalled), Some(1.0));
        // 61 times as much: U is not 6149 %, it is unknown.
        peaks.note(&usual, Some(8.0));
        assert_eq!((peaks.use_of_full(&usual), peaks.known_use(&usual)), (None, None));
        assert_eq!(peaks.known_use(&stalled), Some(0.016));
        // As many bytes in shorter requests: the device was full before, and is.
        let (long, short) = (load(4000.0, 128.0, 0.0, 0.0), load(7300.0, 70.0, 0.0, 0.0));
        peaks.note(&long, Some(30.0));
        peaks.note_full(&long);
        peaks.note(&short, Some(30.0));
        assert_eq!(peaks.known_use(&long), Some(1.0));
    }
}
