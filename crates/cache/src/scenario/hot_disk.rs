//! Seed 003: three volumes of 250 MB/s, and a cache that writes to one of them at a time.
//!
//! # Why
//! Blocks of one size go to the emptiest slab, the lowest number first. The cache evicts in the order in which it
//! wrote, so freed space lies together on one disk, and is reused together: one disk at a time has all the work, each
//! in turn, and over an hour all look alike. Drawing lots among equally empty slabs repairs most of it, though one
//! slab at a time is still open. The placement by load has an open slab on every disk.
//!
//! # How it works
//! More blocks are offered than the disks can write; what exceeds 256 MiB in flight is dropped and counted. The cache
//! is filled, then a third of it is written once more, so that space comes only from eviction. Then 2 s windows are
//! measured.
//!
//! # Limits
//! The volumes have 3 GiB instead of 50, so a disk's turn is shorter: seconds, not minutes. If more is written in 5 s
//! than the free space holds, checkpoints come earlier. Rates, block and slab sizes and bytes in flight are the
//! seed's.
//!
//! # Example
//! Three disks that write 250, 0 and 0 MB/s are one effective disk; 240, 250 and 245 MB/s are 3.0.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use plimsoll::Shard;
use plimsoll_sim::device::presets::{Provision, volumes};
use plimsoll_sim::rng::Rng;
use plimsoll_sim::scenario::{Advance, Outcome, ScenarioError, Series, Target};

use super::stage::{
    BLOCK_BYTES, GIB, Stage, StageDisk, bytes_by_disk, effective_disks, figure, side_by_side, table, wrong,
};
use crate::stats::{DropReason, IoKind};
use crate::{CacheConfig, Inserted, Placement};

/// Number of volumes, and the write bandwidth of each in bytes per second.
const DISKS: usize = 3;
const DISK_BYTES_PER_S: u64 = 250_000_000;

/// Size of each volume, in bytes.
const DISK_BYTES: u64 = 3 * GIB;

/// Bytes offered per second: more than all volumes can write.
const OFFERED_BYTES_PER_S: u64 = 1_200_000_000;

/// Interval between two batches of offered blocks, in nanoseconds.
const BATCH_NS: u64 = 1_000_000;

/// Length of a window in the seed's graphs, in seconds, and the number of windows measured.
const WINDOW_S: u64 = 2;
const WINDOWS: usize = 10;

/// Part of all bytes of a window that makes a disk hot.
const HOT_PART: f64 = 0.8;

/// The results of one placement.
struct Run {
    placement: &'static str,
    /// Bytes that each disk wrote for inserts, by window.
    windows: Vec<Vec<f64>>,
    /// Inserts dropped because there was no space until the next checkpoint.
    no_space: u64,
    checkpoints: u64,
}

impl Run {
    fn bytes_per_s(&self) -> f64 {
        let bytes: f64 = self.windows.iter().flatten().sum();
        bytes / (self.windows.len() as f64 * WINDOW_S as f64)
    }

    fn effective(&self) -> Vec<f64> {
        self.windows.iter().map(|window| effective_disks(window)).collect()
    }

    /// Returns the longest run of windows in which the same disk was hot.
    fn longest_hot_run(&self) -> usize {
        let (mut longest, mut run, mut last) = (0, 0, None);
        for window in &self.windows {
            let sum: f64 = window.iter().sum();
            let hot = window.iter().position(|bytes| sum > 0.0 && *bytes >= sum * HOT_PART);
            run = match hot {
                None => 0,
                Some(_) if hot == last => run + 1,
                Some(_) => 1,
            };
            last = hot;
            longest = longest.max(run);
        }
        longest
    }
}

/// Runs the scenario.
pub(super) fn run(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut outcome = Outcome::default();
    let measure_one = |(name, placement), advance: Advance<'_>| measure(seed, name, placement, advance);
    let runs = side_by_side(Placement::ALL, &mut outcome, advance, measure_one)?;
    let [before, after, ours] = runs.as_slice() else { return Err(wrong("three placements are compared")) };

    show(&runs, &mut outcome);
    let all_bytes_per_s = (DISKS as u64 * DISK_BYTES_PER_S) as f64;
    let lowest = |run: &Run| run.effective().into_iter().fold(f64::INFINITY, f64::min);
    let ratio = after.bytes_per_s() / before.bytes_per_s();
    figure(&mut outcome, "taken in by lot, times that in the seed's order", ratio, Target::AtLeast(2.2));
    let part_pct = ours.bytes_per_s() / all_bytes_per_s * 100.0;
    figure(&mut outcome, "taken in by load, % of what the disks can write", part_pct, Target::AtLeast(90.0));
    figure(&mut outcome, "effective disks by load, least of all windows", lowest(ours), Target::AtLeast(2.9));
    outcome.remarks.extend([
        "Published (ZettaCache, 30 min): 218.54 GB before and 480 GB after the repair, 2.2 times as much; 16 % and 36 % \
         of what the volumes can write."
            .to_owned(),
        "Volumes of 3 GiB instead of 50 GB: a disk's turn takes seconds instead of minutes, and a checkpoint is made \
         early where 20 % of 9 GiB do not last for 5 s."
            .to_owned(),
        "Volumes are gp3 with 3000 IOPS and 250 MB/s; contiguous blocks go as writes of up to 256 KiB, so bandwidth is \
         the limit. Blocks are not compressed, so all are zeros here. Hot run: the longest time in which one disk had 80 % of the \
         bytes; no space: inserts that found none before the next checkpoint."
            .to_owned(),
    ]);
    Ok(outcome)
}

fn show(runs: &[Run], outcome: &mut Outcome) {
    let columns =
        ["placement", "MB/s", "% of 750", "effective: mean", "least", "hot run, s", "checkpoints", "no space"];
    let mut shown = table("8 KiB blocks into a full cache of three volumes of 250 MB/s", &columns);
    for run in runs {
        let effective = run.effective();
        let mean = effective.iter().sum::<f64>() / effective.len().max(1) as f64;
        let least = effective.iter().copied().fold(f64::INFINITY, f64::min);
        shown.rows.push(vec![
            run.placement.to_owned(),
            format!("{:.0}", run.bytes_per_s() / 1e6),
            format!("{:.0}", run.bytes_per_s() / (DISKS as u64 * DISK_BYTES_PER_S) as f64 * 100.0),
            format!("{mean:.2}"),
            format!("{least:.2}"),
            (run.longest_hot_run() as u64 * WINDOW_S).to_string(),
            run.checkpoints.to_string(),
            run.no_space.to_string(),
        ]);

        let point = |(number, window): (usize, &Vec<f64>), disk: usize| {
            let bytes = window.get(disk).copied().unwrap_or(0.0);
            (((number as u64 + 1) * WINDOW_S) as f64, bytes / 1e6 / WINDOW_S as f64)
        };
        let curve = |disk| {
            let points = run.windows.iter().enumerate().map(|window| point(window, disk)).collect();
            (format!("disk {disk}"), points)
        };
        outcome.series.push(Series {
            title: format!("taken in by each disk, placement {}", run.placement),
            x: "time, s".to_owned(),
            y: "MB/s".to_owned(),
            curves: (0..DISKS).map(curve).collect(),
        });
    }
    outcome.tables.push(shown);
}

/// Runs one placement. Filling the cache takes about half of the time.
fn measure(
    seed: u64,
    name: &'static str,
    placement: Placement,
    advance: Advance<'_>,
) -> Result<(Run, Outcome), ScenarioError> {
    let mut outcome = Outcome::default();
    let mut stage = Stage::new(seed, &disks()?, config(placement))?;
    let shard = stage.shard().clone();
    let offer = Rc::new(Offer::new(&stage, seed));
    shard.spawn(offer.clone().go(shard.clone())).detach();

    let full_bytes = DISKS as u64 * DISK_BYTES * 10 / 9;
    let engine = stage.engine().clone();
    stage.run(async {
        loop {
            let bytes = bytes_by_disk(&engine, IoKind::InsertWrite).iter().sum::<u64>();
            if bytes >= full_bytes {
                break;
            }
            advance(0.5 * bytes as f64 / full_bytes as f64);
            shard.sleep(Duration::from_millis(500)).await;
        }
    })?;
    let counts = || {
        [&engine.counters.drops[DropReason::NoSpace as usize], &engine.counters.checkpoints].map(|n| n.load(Relaxed))
    };
    let before = counts();

    let mut windows = Vec::with_capacity(WINDOWS);
    let mut last = bytes_by_disk(&engine, IoKind::InsertWrite);
    for window in 0..WINDOWS {
        stage.run(shard.sleep(Duration::from_secs(WINDOW_S)))?;
        let now = bytes_by_disk(&engine, IoKind::InsertWrite);
        now.iter().for_each(|bytes| stage.note(*bytes));
        windows.push(now.iter().zip(&last).map(|(now, last)| (now - last) as f64).collect());
        last = now;
        advance(0.5 + 0.5 * (window + 1) as f64 / WINDOWS as f64);
    }

    let [no_space, checkpoints] = std::array::from_fn(|at| counts()[at] - before[at]);
    let run = Run { placement: name, windows, no_space, checkpoints };
    stage.end(&mut outcome);
    Ok((run, outcome))
}

fn disks() -> Result<Vec<StageDisk>, ScenarioError> {
    let volume =
        volumes().iter().find(|volume| volume.name == "gp3").ok_or_else(|| wrong("no volume is called gp3"))?;
    let ask = Provision { size_bytes: Some(50 * GIB), iops: Some(3000), bandwidth_bytes_per_s: Some(DISK_BYTES_PER_S) };
    let preset = volume.provision(&ask).map_err(wrong)?;
    let disk =
        || StageDisk { spec: preset.spec.clone(), model: None, write_bytes_per_s: None, capacity_bytes: DISK_BYTES };
    Ok((0..DISKS).map(|_| disk()).collect())
}

fn config(placement: Placement) -> CacheConfig {
    CacheConfig {
        checkpoint_interval: Duration::from_secs(5),
        target_free_blocks_pct: 20.0,
        in_flight_bytes: 256 << 20,
        placement,
        ghost_pct: 0.0,
        ..CacheConfig::default()
    }
}

/// Offers blocks, whether or not the cache has room for them.
struct Offer {
    engine: std::sync::Arc<crate::engine::Engine>,
    keys: std::cell::RefCell<Rng>,
}

impl Offer {
    fn new(stage: &Stage, seed: u64) -> Offer {
        Offer { engine: stage.engine().clone(), keys: Rng::new(seed).into() }
    }

    /// Offers one batch after another, as long as the stage exists.
    async fn go(self: Rc<Offer>, shard: Shard) {
        let batch = OFFERED_BYTES_PER_S * BATCH_NS / 1_000_000_000 / u64::from(BLOCK_BYTES);
        let value = vec![0; BLOCK_BYTES as usize];
        let mut at_ns = shard.now_ns();
        loop {
            for _ in 0..batch {
                let key = self.keys.borrow_mut().next_u64().to_le_bytes();
                let Ok(hash) = self.engine.hash(&key) else { return };
                // Only an insert that is dropped at once has its result now; the disk completes the others.
                let mut insert = Box::pin(self.engine.insert(hash, &value, crate::InsertOptions::default()));
                let waker = std::task::Waker::noop();
                let answer = insert.as_mut().poll(&mut std::task::Context::from_waker(waker));
                if matches!(answer, std::task::Poll::Ready(Ok(Inserted::Dropped(DropReason::InFlight)))) {
                    break;
                }
            }
            at_ns += BATCH_NS;
            shard.sleep_until(at_ns).await;
        }
    }
}
