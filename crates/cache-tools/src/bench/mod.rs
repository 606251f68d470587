//! `cache bench`: how fast a cache stores and returns blocks, how evenly it uses its disks, and whether every byte is
//! right.
//!
//! # Why
//! A cache that stores 270 MB/s on three disks of 250 MB/s has a flaw that no single-disk benchmark shows. And a cache
//! that returns wrong bytes must never look fast.
//!
//! # How it works
//! [`run`] keeps [`BenchOptions::concurrency`] workers busy, spread over a few threads. A worker inserts, or looks up;
//! a missing block is inserted, as a program that reads through the cache would do. The calling thread samples the
//! counters ten times a second: they give the series and the effective number of devices of each window. With
//! [`BenchOptions::fill`] the measurement begins when the cache evicts, so that it is of a full cache. Values are
//! functions of their keys ([`workload`]), so that each hit can be verified.
//!
//! # Limits
//! Operations in flight at the end are not counted. The same threads generate values between operations: on fast disks
//! their CPU time (about 1 ns for 8 bytes) is the bottleneck. With a rate, latency counts from an operation's due time.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::bench::{BenchOptions, Mix};
//! let options = BenchOptions { mix: Mix::WriteOnly, block_bytes: 8192, ..BenchOptions::default() };
//! assert_eq!(options.with_outstanding_bytes(256 << 20).concurrency, 32_768);
//! ```

pub mod looks;
mod pace;
pub mod report;
mod target;
#[cfg(test)]
mod tests;
pub mod windows;
pub mod workload;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use plimsoll::core::Histogram;
use plimsoll::sys::rusage::process_cpu_ns;
use plimsoll_cache::CacheError;
use plimsoll_cache::stats::{CacheStats, DropReason, MissReason};
use plimsoll_measure::load::AccessError;
use plimsoll_sim::rng::Rng;

use super::wait::block_on;
use looks::LookUps;
use pace::Pace;
use report::{BenchReport, DeviceSeries, Rate};
pub use target::{Looked, Target};
use windows::{Series, WINDOW_S};
use workload::{KEY_BYTES, Keys, fill_value, is_value, key_bytes};

/// Interval between two samples of the counters.
const SAMPLE: Duration = Duration::from_millis(100);

/// Most points of a device's series.
const POINTS_MAX: usize = 1200;

/// Most violations reported.
const VIOLATIONS_MAX: usize = 20;

/// The mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Only inserts.
    WriteOnly,
    /// This percentage of look-ups, the others inserts; a missing block is also inserted.
    ReadPct(u8),
}

/// The load on a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchOptions {
    /// The mix of operations.
    pub mix: Mix,
    /// Length of a block in bytes, at least 1.
    pub block_bytes: u32,
    /// Number of keys; `None`: each insert has a new one.
    pub keys: Option<u64>,
    /// Theta of Zipf's law by which keys are drawn, above 0; `None`: uniformly.
    pub zipf: Option<f64>,
    /// Most operations in flight, at least 1.
    pub concurrency: u32,
    /// Operations per second; `None`: as many as possible.
    pub rate_per_s: Option<f64>,
    /// Length of the measurement.
    pub duration: Duration,
    /// Before the measurement, insert until the cache evicts. `keys` must have more bytes than the cache.
    pub fill: bool,
    /// Compare every byte of every hit.
    pub verify: bool,
    /// Seed of keys and values.
    pub seed: u64,
    /// Threads that run the workers, at least 1.
    pub threads: u16,
}

impl Default for BenchOptions {
    fn default() -> BenchOptions {
        BenchOptions {
            mix: Mix::WriteOnly,
            block_bytes: 8192,
            keys: None,
            zipf: None,
            concurrency: 256,
            rate_per_s: None,
            duration: Duration::from_secs(10),
            fill: false,
            verify: false,
            seed: 1,
            threads: 1,
        }
    }
}

impl BenchOptions {
    /// Returns the options with as many operations in flight as `bytes` holds blocks: at least one, at most 2^20.
    pub fn with_outstanding_bytes(self, bytes: u64) -> BenchOptions {
        let count = (bytes / u64::from(self.block_bytes.max(1))).clamp(1, 1 << 20);
        BenchOptions { concurrency: u32::try_from(count).unwrap_or(1), ..self }
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An invalid theta.
    #[error(transparent)]
    Keys(#[from] AccessError),
    /// The cache was to be filled, and the blocks of all keys together are smaller than its capacity: it never evicts.
    #[error(
        "the cache cannot be filled: the blocks of all {keys} keys have {all_bytes} bytes, and it has {capacity_bytes}; \
         take more keys, larger blocks, or leave out --fill"
    )]
    NeverFull {
        /// The number of keys.
        keys: u64,
        /// The sum of their blocks.
        all_bytes: u64,
        /// The sum of the disks' capacities.
        capacity_bytes: u64,
    },
    /// The cache refused an operation.
    #[error("{0}")]
    Cache(CacheError),
}

/// The operations that one thread has counted during the measurement.
#[derive(Default)]
struct Tally {
    inserts: u64,
    insert_bytes: u64,
    hits: u64,
    hit_bytes: u64,
    verified: u64,
    wrong: u64,
    misses: BTreeMap<&'static str, u64>,
    drops: BTreeMap<&'static str, u64>,
    hit_times: Histogram,
    insert_times: Histogram,
    look_ups: LookUps,
}

impl Tally {
    fn operations(&self) -> u64 {
        self.inserts + self.hits + self.misses.values().sum::<u64>() + self.drops.values().sum::<u64>()
    }

    fn merge(&mut self, other: &Tally) {
        self.inserts += other.inserts;
        self.insert_bytes += other.insert_bytes;
        self.hits += other.hits;
        self.hit_bytes += other.hit_bytes;
        self.verified += other.verified;
        self.wrong += other.wrong;
        other.misses.iter().for_each(|(name, count)| *self.misses.entry(name).or_default() += count);
        other.drops.iter().for_each(|(name, count)| *self.drops.entry(name).or_default() += count);
        self.hit_times.merge(&other.hit_times);
        self.insert_times.merge(&other.insert_times);
        self.look_ups.merge(&other.look_ups);
    }
}

/// The state that all threads share.
struct Shared<'a, T> {
    target: &'a T,
    options: &'a BenchOptions,
    keys: Keys,
    pace: Pace,
    /// When the measurement began, in nanoseconds; `u64::MAX` while nothing is measured.
    since_ns: AtomicU64,
    is_over: AtomicBool,
    failure: Mutex<Option<CacheError>>,
}

impl<T: Target> Shared<'_, T> {
    /// Returns the time from the start of the measurement to `now_ns`, in nanoseconds, or `None` while nothing is
    /// measured.
    fn measured_ns(&self, now_ns: u64) -> Option<u64> {
        let since_ns = self.since_ns.load(Relaxed);
        (since_ns != u64::MAX).then(|| now_ns.saturating_sub(since_ns))
    }

    fn end(&self) {
        self.is_over.store(true, Relaxed);
        self.pace.end();
    }

    fn fail(&self, reason: CacheError) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(reason);
        }
        self.end();
    }
}

/// Loads `target` with `options`, until the time is over or `is_stopped` returns true. Calls `progress` with the part
/// done, 0 to 1, and whether the cache is still being filled.
pub fn run<T: Target>(
    target: &T,
    options: &BenchOptions,
    is_stopped: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(f64, bool),
) -> Result<BenchReport, BenchError> {
    check_fill(target, options)?;
    let shared = Shared {
        target,
        options,
        keys: Keys::new(options.keys, options.zipf, options.seed)?,
        pace: Pace::new(options.rate_per_s),
        since_ns: AtomicU64::new(u64::MAX),
        is_over: AtomicBool::new(false),
        failure: Mutex::new(None),
    };

    let threads = u32::from(options.threads.max(1)).min(options.concurrency.max(1));
    let mut tally = Tally::default();
    let mut watched = Watched::default();

    std::thread::scope(|scope| {
        let shared = &shared;
        let drivers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || drive(shared, thread, threads))).collect();
        if options.rate_per_s.is_some() {
            scope.spawn(|| {
                while !shared.is_over.load(Relaxed) {
                    shared.pace.tick();
                    std::thread::sleep(Duration::from_micros(500));
                }
            });
        }
        watched.watch(shared, is_stopped, progress);
        shared.end();
        // A thread that panicked has already reported it.
        drivers.into_iter().filter_map(|driver| driver.join().ok()).for_each(|part| tally.merge(&part));
    });

    match shared.failure.into_inner() {
        Ok(Some(reason)) => Err(BenchError::Cache(reason)),
        _ => Ok(watched.report(options, &tally)),
    }
}

/// Checks that a cache that is to be filled can be.
fn check_fill<T: Target>(target: &T, options: &BenchOptions) -> Result<(), BenchError> {
    let Some(keys) = options.keys.filter(|_| options.fill) else { return Ok(()) };
    let all_bytes = keys.saturating_mul(u64::from(options.block_bytes));
    let capacity_bytes = target.stats().disks.iter().map(|disk| disk.capacity_bytes).sum();
    if all_bytes < capacity_bytes {
        return Err(BenchError::NeverFull { keys, all_bytes, capacity_bytes });
    }
    Ok(())
}

/// Runs one thread's share of the workers to their end.
fn drive<T: Target>(shared: &Shared<'_, T>, thread: u32, threads: u32) -> Tally {
    let tally = RefCell::new(Tally::default());
    let numbers = (thread..shared.options.concurrency.max(1)).step_by(threads as usize);
    let mut workers: FuturesUnordered<_> = numbers.map(|number| work(shared, number, &tally)).collect();
    block_on(async { while workers.next().await.is_some() {} });
    drop(workers);
    tally.into_inner()
}

/// Runs one operation after another until the end.
async fn work<T: Target>(shared: &Shared<'_, T>, number: u32, tally: &RefCell<Tally>) {
    let options = shared.options;
    let mut rng = Rng::new(options.seed ^ (u64::from(number) << 32) ^ 0x5eed);
    let mut keys = shared.keys.source();
    let mut value = vec![0; options.block_bytes.max(1) as usize];

    while let Some(due_ns) = shared.pace.take().await {
        let key = keys.next(&mut rng);
        let is_look_up = match options.mix {
            Mix::WriteOnly => false,
            Mix::ReadPct(pct) => rng.below(100) < u64::from(pct),
        };
        let access = Access { shared, tally, key, due_ns };
        let done =
            if is_look_up { access.read_through(&mut value).await } else { access.insert(&mut value, due_ns).await };
        if let Err(reason) = done {
            return shared.fail(reason);
        }
    }
}

/// One operation on a key, due at `due_ns`.
struct Access<'a, T> {
    shared: &'a Shared<'a, T>,
    tally: &'a RefCell<Tally>,
    key: u64,
    due_ns: u64,
}

impl<T: Target> Access<'_, T> {
    /// Looks the key up, and inserts it after a miss. `value` is a buffer of the length of a block.
    async fn read_through(&self, value: &mut [u8]) -> Result<(), CacheError> {
        let Access { shared, key, .. } = *self;
        let options = shared.options;
        let name = key_bytes(options.seed, key);
        let looked = shared.target.look_up(&name).await?;
        let ended_ns = shared.pace.now_ns();
        let measured_ns = shared.measured_ns(ended_ns);
        let whole_ns = u64::try_from(options.duration.as_nanos()).unwrap_or(u64::MAX);

        match looked {
            Looked::Hit(block) => {
                let block = block.as_ref();
                // Count a wrong byte even outside the measurement.
                let is_right = !options.verify || (block.len() == value.len() && is_value(options.seed, key, block));
                let mut tally = self.tally.borrow_mut();
                tally.wrong += u64::from(!is_right);
                tally.verified += u64::from(options.verify && is_right);
                if let Some(at_ns) = measured_ns {
                    let hit_ns = ended_ns.saturating_sub(self.due_ns);
                    tally.hits += 1;
                    tally.hit_bytes += block.len() as u64;
                    tally.hit_times.record(hit_ns);
                    tally.look_ups.record(at_ns, whole_ns, Some(hit_ns));
                }
                Ok(())
            }
            Looked::Miss(reason) => {
                if let Some(at_ns) = measured_ns {
                    let mut tally = self.tally.borrow_mut();
                    *tally.misses.entry(name_of(&MissReason::ALL, reason)).or_default() += 1;
                    tally.look_ups.record(at_ns, whole_ns, None);
                }
                self.insert(value, ended_ns).await
            }
        }
    }

    /// Fills `value` and inserts it. The insert's time counts from `from_ns`.
    async fn insert(&self, value: &mut [u8], from_ns: u64) -> Result<(), CacheError> {
        let Access { shared, key, .. } = *self;
        let seed = shared.options.seed;
        fill_value(seed, key, value);
        let name: [u8; KEY_BYTES] = key_bytes(seed, key);
        let dropped = shared.target.insert(&name, value).await?;

        let ended_ns = shared.pace.now_ns();
        if shared.measured_ns(ended_ns).is_none() {
            return Ok(());
        }

        let mut tally = self.tally.borrow_mut();
        match dropped {
            None => {
                tally.inserts += 1;
                tally.insert_bytes += value.len() as u64;
                tally.insert_times.record(ended_ns.saturating_sub(from_ns));
            }
            Some(reason) => *tally.drops.entry(name_of(&DropReason::ALL, reason)).or_default() += 1,
        }
        Ok(())
    }
}

fn name_of<T: Copy + PartialEq>(all: &[(T, &'static str)], value: T) -> &'static str {
    all.iter().find(|(other, _)| *other == value).map_or("other", |(_, name)| name)
}

/// Samples of the counters, and the violations in them.
#[derive(Default)]
struct Watched {
    first: Option<CacheStats>,
    last: CacheStats,
    series: Series,
    cpu_ns: u64,
    seconds: f64,
    is_interrupted: bool,
    checks: u64,
    violations: Vec<String>,
}

impl Watched {
    fn watch<T: Target>(
        &mut self,
        shared: &Shared<'_, T>,
        is_stopped: &(dyn Fn() -> bool + Sync),
        progress: &mut dyn FnMut(f64, bool),
    ) {
        let options = shared.options;
        let wanted_s = options.duration.as_secs_f64();
        let mut begin_ns = 0;

        while !shared.is_over.load(Relaxed) {
            let stats = shared.target.stats();
            self.check(&stats);
            if self.first.is_none() && (!options.fill || stats.evictions > 0) {
                begin_ns = shared.pace.now_ns();
                self.cpu_ns = process_cpu_ns();
                self.first = Some(stats.clone());
                shared.since_ns.store(begin_ns, Relaxed);
            }
            if self.first.is_some() {
                self.seconds = shared.pace.now_ns().saturating_sub(begin_ns) as f64 / 1e9;
                self.series.push(self.seconds, written(&stats));
            }
            self.last = stats;
            self.is_interrupted = is_stopped();
            if self.is_interrupted || (self.first.is_some() && self.seconds >= wanted_s) {
                break;
            }
            progress((self.seconds / wanted_s.max(1e-9)).min(1.0), self.first.is_none());
            let left = if self.first.is_some() { wanted_s - self.seconds } else { f64::INFINITY };
            std::thread::sleep(SAMPLE.min(Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(SAMPLE)));
        }

        shared.since_ns.store(u64::MAX, Relaxed);
        self.cpu_ns = process_cpu_ns().saturating_sub(self.cpu_ns);
    }

    /// Records a violation if the counters are impossible.
    fn check(&mut self, stats: &CacheStats) {
        self.checks += 1;
        for disk in &stats.disks {
            let used = disk.allocated_bytes.saturating_add(disk.metadata_bytes);
            let is_full = used > disk.capacity_bytes && disk.capacity_bytes > 0;
            if (is_full || disk.free_slabs > disk.slabs) && self.violations.len() < VIOLATIONS_MAX {
                self.violations.push(format!(
                    "{}: {used} of {} bytes in use, {} of {} slabs free",
                    disk.path, disk.capacity_bytes, disk.free_slabs, disk.slabs
                ));
            }
        }

        let falls = stats.hits < self.last.hits || stats.inserts < self.last.inserts;
        let falls = falls || stats.generation < self.last.generation;
        if falls && self.violations.len() < VIOLATIONS_MAX {
            self.violations.push("a counter that only grows has become less".to_owned());
        }
    }

    fn report(self, options: &BenchOptions, tally: &Tally) -> BenchReport {
        let first = self.first.unwrap_or_default();
        let seconds = self.seconds.max(1e-9);
        let has_written = written(&self.last).iter().sum::<u64>() > written(&first).iter().sum::<u64>();
        let effective = if has_written { self.series.effective(WINDOW_S) } else { Vec::new() };

        let operations = tally.operations();
        let counts = |named: &BTreeMap<&'static str, u64>, all: &[&'static str]| {
            all.iter().map(|name| ((*name).to_owned(), named.get(name).copied().unwrap_or(0))).collect()
        };
        let look_ups = tally.look_ups.points(options.duration.as_secs_f64(), self.seconds);
        let mean = effective.iter().sum::<f64>() / effective.len().max(1) as f64;
        BenchReport {
            schema: 1,
            placement: String::new(),
            block_bytes: options.block_bytes,
            concurrency: options.concurrency,
            seed: options.seed,
            seconds: self.seconds,
            is_interrupted: self.is_interrupted,
            ingest_bytes_per_s: tally.insert_bytes as f64 / seconds,
            inserts: tally.inserts,
            hits: tally.hits,
            hit_bytes_per_s: tally.hit_bytes as f64 / seconds,
            misses: counts(&tally.misses, &MissReason::ALL.map(|(_, name)| name)),
            drops: counts(&tally.drops, &DropReason::ALL.map(|(_, name)| name)),
            effective_devices_min: effective.iter().copied().reduce(f64::min),
            effective_devices_mean: (!effective.is_empty()).then_some(mean),
            effective_devices: effective,
            series: device_series(&self.series, &self.last),
            steady_from_s: looks::steady_from_s(&look_ups),
            look_ups,
            hit_latency: (&tally.hit_times).into(),
            insert_latency: (&tally.insert_times).into(),
            cpu_s_per_million_operations: (operations > 0).then(|| self.cpu_ns as f64 / 1e3 / operations as f64),
            verified_hits: tally.verified,
            wrong_hits: tally.wrong,
            invariants_checked: self.checks,
            invariants_violated: self.violations,
            evictions: self.last.evictions.saturating_sub(first.evictions),
            moves: self.last.moves.saturating_sub(first.moves),
            checkpoints: self.last.checkpoints.saturating_sub(first.checkpoints),
        }
    }
}

/// Returns the bytes that inserts have written to each disk.
fn written(stats: &CacheStats) -> Vec<u64> {
    stats.disks.iter().map(|disk| disk.io.get("insert_write").map_or(0, |io| io.bytes)).collect()
}

/// Returns a series for each disk. In a long measurement, adjacent points are averaged.
fn device_series(series: &Series, stats: &CacheStats) -> Vec<DeviceSeries> {
    let points = |device: usize| {
        let rates = series.rates(device);
        let every = rates.len().div_ceil(POINTS_MAX).max(1);
        let mean = |part: &[(f64, f64)]| {
            let count = part.len() as f64;
            let (t, bytes_per_s) = part.iter().fold((0.0, 0.0), |(t, rate), point| (t + point.0, rate + point.1));
            Rate { t: t / count, bytes_per_s: bytes_per_s / count }
        };
        rates.chunks(every).map(mean).collect()
    };
    let disks = stats.disks.iter().enumerate();
    disks.map(|(at, disk)| DeviceSeries { device: disk.path.clone(), points: points(at) }).collect()
}
