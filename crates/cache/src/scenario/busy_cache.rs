//! Hits of a cache that fills and evacuates, compared with hits of an idle one.
//!
//! # Why
//! A cache that inserts at full speed, and moves its blocks, must not slow down its hits: that is the purpose of
//! classes.
//!
//! # How it works
//! One disk is filled with blocks of 16 KiB, half of which are then used again. Blocks of 8 KiB are inserted as fast
//! as the disk takes them. Eviction leaves every slab half full, so the cache has to evacuate slabs of 16 KiB blocks
//! to make room for the others. Hits come at random times, at a modest rate, on young blocks: first on the idle cache,
//! then beside all that, then beside all that with a latency target for hits.
//!
//! # Limits
//! The disk is that of i4i.2xlarge, and the scheduler knows its figures. Hits are as long as the inserted blocks.
//!
//! # Example
//! At 1000 shares for hits, and 300 and 100 for fills and evacuation, hits that take an eighth of the disk wait only
//! for requests that are in the disk already.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use plimsoll::{LatencyTarget, Qos, Shard};
use plimsoll_sim::device::presets;
use plimsoll_sim::rng::Rng;
use plimsoll_sim::scenario::{Outcome, ScenarioError, Target};

use super::stage::{
    BLOCK_BYTES, GIB, Stage, StageDisk, bytes_by_disk, figure, fill, gap_ns, model_of, percentile, read, table, wrong,
};
use crate::stats::IoKind;
use crate::{CacheConfig, InsertOptions};

/// Size of the disk, in bytes.
const DISK_BYTES: u64 = 2 * GIB;

/// Number of blocks stored first, and their size in bytes.
const OLD_BLOCKS: u32 = 110_000;
const OLD_BYTES: u32 = 16 << 10;

/// Number of blocks that are read; they are stored last.
const READ_BLOCKS: u32 = 8000;

/// Reads per second.
const READS_PER_S: f64 = 15_000.0;

/// Length of each measurement.
const MEASURED: Duration = Duration::from_secs(2);

/// Time for the scheduler to settle its windows before a measurement.
const SETTLING: Duration = Duration::from_secs(1);

/// Rate at which the first blocks are stored, in bytes per second.
const STORED_BYTES_PER_S: f64 = 400e6;

/// Inserts kept in flight, as long as there is room.
const FILLERS: u32 = 256;

/// Runs the scenario.
pub(super) fn run(seed: u64) -> Result<Outcome, ScenarioError> {
    let mut outcome = Outcome::default();
    let (idle, busy) = measure(seed, None, &mut outcome)?;
    let p99_ns = percentile(&mut idle.times.clone(), 0.99);
    let (_, held) = measure(seed, Some(p99_ns + p99_ns / 4), &mut outcome)?;
    show(&[("idle", &idle), ("busy, by shares", &busy), ("busy, p99 wanted", &held)], &mut outcome);
    judge(&idle, &held, &mut outcome);
    Ok(outcome)
}

/// Measures an idle cache, then a busy one; with a target for the p99 of hits, or without.
fn measure(seed: u64, target_ns: Option<u64>, outcome: &mut Outcome) -> Result<(Part, Part), ScenarioError> {
    let preset = presets::find("i4i.2xlarge").ok_or_else(|| wrong("no device is called i4i.2xlarge"))?;
    let disk = StageDisk {
        spec: preset.spec.clone(),
        model: Some(model_of(&preset.figures)),
        write_bytes_per_s: None,
        capacity_bytes: DISK_BYTES,
    };
    let config = CacheConfig { target_free_blocks_pct: 10.0, ghost_pct: 0.0, ..CacheConfig::default() };
    let mut stage = Stage::new(seed, &[disk], CacheConfig { checkpoint_interval: Duration::from_secs(1), ..config })?;

    stage.run(fill(&stage, 0..OLD_BLOCKS, OLD_BYTES, STORED_BYTES_PER_S))?;
    stage.run(fill(&stage, OLD_BLOCKS..OLD_BLOCKS + READ_BLOCKS, BLOCK_BYTES, STORED_BYTES_PER_S))?;
    let _ = stage.run(hits(&stage, seed, MEASURED, KeysRead::EveryOther))?;
    let idle = part(&mut stage, seed)?;

    let latency_target = target_ns.map(|latency_ns| LatencyTarget { latency_ns, quantile: 0.99 });
    let qos = Qos { latency_target, ..Qos::default() };
    stage.engine().host.topology.classes().set_qos(stage.engine().classes.hit, qos).map_err(wrong)?;
    let is_over = Rc::new(Cell::new(false));

    start_fillers(&stage, &is_over);
    // Until the free space is used up, and writes have given way as far as they must.
    let _ = stage.run(hits(&stage, seed.wrapping_add(2), SETTLING, KeysRead::Young))?;
    let busy = part(&mut stage, seed.wrapping_add(1))?;
    is_over.set(true);
    stage.end(outcome);
    Ok((idle, busy))
}

/// The results of one measurement.
struct Part {
    times: Vec<u64>,
    misses: u64,
    filled_bytes: u64,
    moved_bytes: u64,
    checkpoints: u64,
}

fn show(parts: &[(&str, &Part)], outcome: &mut Outcome) {
    let columns = ["cache", "hits", "misses", "p50, us", "p99, us", "filled, MB/s", "moved, MB/s", "checkpoints"];
    let mut shown = table("hits of 8 KiB on one disk of i4i.2xlarge, 15,000 a second", &columns);
    for (name, part) in parts {
        shown.rows.push(vec![
            (*name).to_owned(),
            (part.times.len() as u64 - part.misses).to_string(),
            part.misses.to_string(),
            format!("{:.0}", part.us(0.5)),
            format!("{:.0}", part.us(0.99)),
            format!("{:.0}", megabytes_per_s(part.filled_bytes)),
            format!("{:.0}", megabytes_per_s(part.moved_bytes)),
            part.checkpoints.to_string(),
        ]);
    }
    outcome.tables.push(shown);
    outcome.remarks.push(
        "A read that meets a die which is being programmed waits up to 0.25 ms on this disk: no order of requests helps, \
         only fewer writes. Shares let writes have what reads leave; with a latency target of the class cache.hit (1.25 \
         times its p99 on the idle cache) writes give way until it holds."
            .to_owned(),
    );
}

impl Part {
    /// Returns the latency, in microseconds, that the part `of` of all hits did not exceed.
    fn us(&self, of: f64) -> f64 {
        percentile(&mut self.times.clone(), of) as f64 / 1e3
    }
}

fn megabytes_per_s(bytes: u64) -> f64 {
    bytes as f64 / MEASURED.as_secs_f64() / 1e6
}

fn judge(idle: &Part, busy: &Part, outcome: &mut Outcome) {
    let ratio = busy.us(0.99) / idle.us(0.99);
    figure(outcome, "p99 of hits beside fill and evacuation, times idle", ratio, Target::AtMost(1.5));
    let filled = megabytes_per_s(busy.filled_bytes);
    figure(outcome, "filled beside these hits, MB/s", filled, Target::AtLeast(20.0));
    let moved = megabytes_per_s(busy.moved_bytes);
    figure(outcome, "evacuated beside these hits, MB/s", moved, Target::AtLeast(1.0));
}

/// Measures hits, and the other I/O meanwhile.
fn part(stage: &mut Stage, seed: u64) -> Result<Part, ScenarioError> {
    let engine = stage.engine().clone();
    let bytes = |kind| bytes_by_disk(&engine, kind).iter().sum::<u64>();
    let counts =
        || [bytes(IoKind::InsertWrite), bytes(IoKind::EvacuateWrite), engine.counters.checkpoints.load(Relaxed)];
    let before = counts();
    let (times, misses) = stage.run(hits(stage, seed, MEASURED, KeysRead::Young))?;
    let [filled_bytes, moved_bytes, checkpoints] = std::array::from_fn(|at| counts()[at] - before[at]);
    for value in [times.iter().sum(), filled_bytes, moved_bytes] {
        stage.note(value);
    }
    Ok(Part { times, misses, filled_bytes, moved_bytes, checkpoints })
}

/// The blocks to read.
#[derive(Clone, Copy)]
enum KeysRead {
    /// Every other of the old blocks, once each: that makes them young.
    EveryOther,
    /// The blocks stored last, at random.
    Young,
}

/// Reads at random times for a while. Returns the duration of each read, and the number of misses.
async fn hits(stage: &Stage, seed: u64, how_long: Duration, keys: KeysRead) -> (Vec<u64>, u64) {
    let shard = stage.shard();
    let (times, misses) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
    let mut random = Rng::new(seed);
    let per_s = match keys {
        KeysRead::EveryOther => f64::from(OLD_BLOCKS / 2) / how_long.as_secs_f64(),
        KeysRead::Young => READS_PER_S,
    };

    let mut at_ns = shard.now_ns();
    let end_ns = at_ns + how_long.as_nanos() as u64;
    for number in 0.. {
        at_ns += gap_ns(&mut random, per_s);
        if at_ns >= end_ns {
            break;
        }
        shard.sleep_until(at_ns).await;
        let key = match keys {
            KeysRead::EveryOther => (number * 2) % OLD_BLOCKS,
            KeysRead::Young => OLD_BLOCKS + random.below(u64::from(READ_BLOCKS)) as u32,
        };
        let (engine, own, times, misses) = (stage.engine().clone(), shard.clone(), times.clone(), misses.clone());
        let one = async move {
            let from_ns = own.now_ns();
            let is_hit = read(&engine, &own, key).await;
            times.borrow_mut().push(own.now_ns() - from_ns);
            misses.set(misses.get() + u64::from(!is_hit));
        };
        shard.spawn(one).detach();
    }
    shard.sleep(Duration::from_millis(100)).await;
    let times = times.borrow().clone();
    (times, misses.get())
}

/// Starts to insert new blocks, as fast as they are taken.
fn start_fillers(stage: &Stage, is_over: &Rc<Cell<bool>>) {
    for filler in 0..FILLERS {
        let (engine, shard, is_over) = (stage.engine().clone(), stage.shard().clone(), Rc::clone(is_over));
        stage.shard().spawn(async move { keep_filling(filler, &engine, &shard, &is_over).await }).detach();
    }
}

async fn keep_filling(
    filler: u32,
    engine: &std::sync::Arc<crate::engine::Engine>,
    shard: &Shard,
    is_over: &Cell<bool>,
) {
    let value = vec![0; BLOCK_BYTES as usize];
    let options = InsertOptions { wait: true, ..InsertOptions::default() };
    for number in 0_u64.. {
        let key = [u64::from(filler) << 32 | number, 1].map(u64::to_le_bytes).concat();
        let Ok(hash) = engine.hash(&key) else { return };
        let end = engine.insert(hash, &value, options).await;
        if is_over.get() {
            return;
        }
        if !matches!(end, Ok(crate::Inserted::Stored)) {
            shard.sleep(Duration::from_millis(5)).await;
        }
    }
}
