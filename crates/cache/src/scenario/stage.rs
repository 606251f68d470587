//! A cache on simulated disks for one run, and the tools of all runs: time, random numbers, percentiles, figures.
//!
//! # How it works
//! [`Stage::new`] makes a world without contents, a topology with one disk for each [`StageDisk`], and a new cache.
//! [`Stage::run`] runs a future on the first shard, beside the cache's tasks.
//!
//! # Example
//! Three disks of 4 GiB: slab numbers 0 to 126 are the first disk's, 127 to 253 the second's.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimDisk, SimWorld};
use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures};
use plimsoll::{Classes, DiskSetup, Shard, SimRuntime, Topology};
use plimsoll_sim::device::DeviceSpec;
use plimsoll_sim::rng::Rng;
use plimsoll_sim::scenario::{Advance, Figure, Outcome, ScenarioError, Table, Target};

use crate::engine::Engine;
use crate::stats::IoKind;
use crate::{
    BlockCache, CacheConfig, CreateOptions, DiskSource, GetOptions, Host, InsertOptions, Inserted, MAX_SLAB_BYTES,
};

/// Block size of all scenarios, in bytes.
pub(super) const BLOCK_BYTES: u32 = 8192;

/// Bytes in a GiB.
pub(super) const GIB: u64 = 1 << 30;

/// One disk of a stage.
pub(super) struct StageDisk {
    pub(super) spec: DeviceSpec,
    /// The disk model of the scheduler; `None`: unlimited.
    pub(super) model: Option<DiskConfig>,
    /// The disk's speed as configured in the cache.
    pub(super) write_bytes_per_s: Option<f64>,
    pub(super) capacity_bytes: u64,
}

/// A simulated world with one cache.
pub(super) struct Stage {
    runtime: SimRuntime,
    cache: BlockCache,
    /// Hash of all measured values.
    hash: u64,
}

/// Returns the error of a scenario that cannot run.
pub(super) fn wrong(error: impl std::fmt::Display) -> ScenarioError {
    ScenarioError(error.to_string())
}

impl Stage {
    /// Creates a cache on `disks`.
    pub(super) fn new(seed: u64, disks: &[StageDisk], config: CacheConfig) -> Result<Stage, ScenarioError> {
        let mount = |number: usize| PathBuf::from(format!("/disk{number}"));
        let sim_disk = |(number, disk): (usize, &StageDisk)| SimDisk { mount: mount(number), spec: disk.spec.clone() };
        let world = SimWorld::new(&SimConfig {
            seed,
            disks: disks.iter().enumerate().map(sim_disk).collect(),
            keep_contents: false,
            ..SimConfig::default()
        })
        .map_err(wrong)?;
        let setup = |disk: &StageDisk| disk.model.clone().map_or_else(DiskSetup::unlimited, DiskSetup::new);
        let topology = Topology::new(1, Classes::new(), disks.iter().map(setup).collect()).map_err(wrong)?;
        let runtime = SimRuntime::new(&world, &topology).map_err(wrong)?;

        let mut sources = Vec::new();
        for (number, disk) in disks.iter().enumerate() {
            let source = DiskSource {
                path: mount(number).join("cache"),
                write_bytes_per_s: disk.write_bytes_per_s,
                ..DiskSource::default()
            };
            let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
            let file = topology.file(&source.path, options, u16::try_from(number).unwrap_or(u16::MAX));
            let shard = runtime.shard(0);
            shard.reactor().set_file_len(&file, disk.capacity_bytes).map_err(wrong)?;
            sources.push(source);
        }

        let host = Host::on(&topology, vec![runtime.handle(0)], 0..topology.disks()).map_err(wrong)?.without_locks();
        let config = CacheConfig { seed, ..config };
        let options = CreateOptions { slab_bytes: Some(MAX_SLAB_BYTES), ..CreateOptions::default() };
        let make = BlockCache::make_on(&options, config, &sources, host);
        let cache = runtime.block_on(0, make).map_err(wrong)?.map_err(wrong)?;
        Ok(Stage { runtime, cache, hash: seed })
    }

    pub(super) fn shard(&self) -> &Shard {
        self.runtime.shard(0)
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.cache.engine()
    }

    /// Runs `future` on the first shard.
    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> Result<T, ScenarioError> {
        self.runtime.block_on(0, future).map_err(wrong)
    }

    /// Adds a measured value to the hash of the run.
    pub(super) fn note(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(17) ^ value).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }

    /// Adds the run's requests and hash to `outcome`.
    pub(super) fn end(self, outcome: &mut Outcome) {
        let kinds = |disk: &Arc<crate::disk::CacheDisk>| disk.io.iter().map(|io| io.look().operations).sum::<u64>();
        outcome.requests += self.engine().all_disks().iter().map(kinds).sum::<u64>();
        outcome.log_hash = (outcome.log_hash.rotate_left(17) ^ self.hash).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }
}

/// Runs independent worlds concurrently, one thread each; the results are the same. Adds their outcomes in order, and
/// advances to the mean of their parts.
pub(super) fn side_by_side<A: Send, T: Send, const N: usize>(
    worlds: [A; N],
    outcome: &mut Outcome,
    advance: Advance<'_>,
    measure: impl Fn(A, Advance<'_>) -> Result<(T, Outcome), ScenarioError> + Sync,
) -> Result<Vec<T>, ScenarioError> {
    let measure = &measure;
    let parts = &Mutex::new([0.0; N]);
    let ends = std::thread::scope(|scope| {
        let threads = worlds.into_iter().enumerate().map(|(number, world)| {
            let advance_one = move |part: f64| {
                let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
                parts[number] = part;
                advance(parts.iter().sum::<f64>() / N as f64);
            };
            scope.spawn(move || measure(world, &advance_one))
        });
        // All of them run before one is waited for.
        let threads: Vec<_> = threads.collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(wrong("a run panicked"))));
        ends.collect::<Vec<_>>()
    });
    let mut runs = Vec::with_capacity(N);
    for end in ends {
        let (run, part) = end?;
        outcome.requests += part.requests;
        outcome.log_hash = outcome.log_hash.rotate_left(17) ^ part.log_hash;
        runs.push(run);
    }
    Ok(runs)
}

/// Returns the bytes of one kind of I/O that each disk has done so far.
pub(super) fn bytes_by_disk(engine: &Engine, kind: IoKind) -> Vec<u64> {
    engine.all_disks().iter().map(|disk| disk.counters(kind).look().bytes).collect()
}

/// Returns the scheduler's model of a disk with these figures.
pub(super) fn model_of(figures: &FourFigures) -> DiskConfig {
    DiskConfig { model: CostModel::from_figures(figures, CostForm::Knee, 4096, 4096), ..DiskConfig::default() }
}

/// Stores blocks of `len_bytes` under these keys, at `bytes_per_s`. Returns when all are stored.
pub(super) async fn fill(stage: &Stage, keys: impl IntoIterator<Item = u32>, len_bytes: u32, bytes_per_s: f64) {
    let shard = stage.shard();
    let value: Rc<[u8]> = vec![0; len_bytes as usize].into();
    let under_way = Rc::new(Cell::new(0_u64));
    let batch = (bytes_per_s * FILL_BATCH_NS as f64 / 1e9 / f64::from(len_bytes)).max(1.0) as usize;
    let mut at_ns = shard.now_ns();
    let mut keys = keys.into_iter().peekable();

    while keys.peek().is_some() {
        for key in keys.by_ref().take(batch) {
            under_way.set(under_way.get() + 1);
            let (engine, own, value, under_way) =
                (stage.engine().clone(), shard.clone(), value.clone(), under_way.clone());
            let one = async move {
                store(&engine, &own, key, &value).await;
                under_way.set(under_way.get() - 1);
            };
            shard.spawn(one).detach();
        }
        at_ns += FILL_BATCH_NS;
        shard.sleep_until(at_ns).await;
    }
    while under_way.get() > 0 {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

/// Interval between two batches of [`fill`], in nanoseconds.
const FILL_BATCH_NS: u64 = 200_000;

/// Stores a block. Tries until it is stored.
pub(super) async fn store(engine: &Arc<Engine>, shard: &Shard, key: u32, value: &[u8]) {
    let options = InsertOptions { wait: true, ..InsertOptions::default() };
    let Ok(hash) = engine.hash(&key.to_le_bytes()) else { return };
    while !matches!(engine.insert(hash, value, options).await, Ok(Inserted::Stored)) {
        shard.sleep(Duration::from_millis(5)).await;
    }
}

/// Looks a key up. Returns whether it was found.
pub(super) async fn read(engine: &Arc<Engine>, shard: &Shard, key: u32) -> bool {
    let Ok(hash) = engine.hash(&key.to_le_bytes()) else { return false };
    let found = match engine.look(&hash) {
        Ok(entry) => engine.fetch(shard, &hash, entry, GetOptions::default()).await,
        Err(found) => found,
    };
    found.block().is_some()
}

/// Returns (sum x)^2 / sum x^2: the number of disks that effectively do the work.
pub(super) fn effective_disks(loads: &[f64]) -> f64 {
    let sum: f64 = loads.iter().sum();
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// Returns the smallest value that at least `part` (0 to 1) of all values do not exceed; 0 if there are none.
pub(super) fn percentile(values: &mut [u64], part: f64) -> u64 {
    values.sort_unstable();
    let rank = (values.len() as f64 * part).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Returns a random time to the next of `per_s` independent events a second, in nanoseconds.
pub(super) fn gap_ns(rng: &mut Rng, per_s: f64) -> u64 {
    rng.exponential(1e9 / per_s) as u64
}

/// Returns a table without rows.
pub(super) fn table(title: &str, columns: &[&str]) -> Table {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    Table { title: title.to_owned(), columns, rows: Vec::new() }
}

/// Adds a figure.
pub(super) fn figure(outcome: &mut Outcome, name: &str, value: f64, target: Target) {
    outcome.figures.push(Figure { name: name.to_owned(), value, target });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_disks_are_those_that_work() {
        for (loads, expected) in
            [(&[1.0, 1.0, 1.0][..], 3.0), (&[5.0, 0.0, 0.0], 1.0), (&[0.0], 0.0), (&[2.0, 2.0, 0.0], 2.0)]
        {
            assert!((effective_disks(loads) - expected).abs() < 1e-9, "{loads:?}");
        }
    }

    #[test]
    fn percentiles_are_values_that_were_there() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        for (part, expected) in [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)] {
            assert_eq!(percentile(&mut values, part), expected);
        }
        assert_eq!(percentile(&mut [], 0.5), 0);
    }
}
