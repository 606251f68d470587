//! Hits on eight disks, where one has half the speed of the others.
//!
//! # Why
//! If blocks are spread evenly, reads are spread evenly, and the slowest disk limits all. Placement by load gives each
//! disk blocks in proportion to its speed, so reads come in that proportion too.
//!
//! # How it works
//! Blocks are stored in an order unrelated to their popularity. Reads arrive at random times, independent of the
//! cache's progress, with a Zipf distribution over all keys; the hottest 1000 are taken to be in memory, and are not
//! read. The load is 60 % of what the disks can read together. For comparison, the same reads run at the same rate on
//! eight equal disks, and on the eight unequal ones without their speeds being configured.
//!
//! # Limits
//! Disks are those of i4i.2xlarge, by their published figures; the slow one has half the rates and the same latency.
//!
//! # Example
//! Seven disks of speed 1 and one of 0.5: a fifteenth of the blocks, and of the reads, should be on the slow one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use plimsoll::core::{FourFigures, Rate};
use plimsoll_sim::device::presets;
use plimsoll_sim::dist::uniform;
use plimsoll_sim::rng::Rng;
use plimsoll_sim::scenario::{Advance, Outcome, ScenarioError, Target};

use super::stage::{
    BLOCK_BYTES, GIB, Stage, StageDisk, figure, fill, gap_ns, model_of, percentile, read, side_by_side, table, wrong,
};
use crate::CacheConfig;
use crate::stats::IoKind;

/// Number of disks; the last is the slow one.
const DISKS: usize = 8;

/// The amounts stored and read.
#[derive(Clone, Copy)]
struct Scale {
    /// Number of keys, and how many of them are in memory.
    keys: usize,
    in_memory: usize,
    /// Length of the measurement in nanoseconds.
    measured_ns: u64,
}

const FULL: Scale = Scale { keys: 1_000_000, in_memory: 1000, measured_ns: 500_000_000 };

/// Exponent of Zipf's law: a key's popularity is its rank to the power of minus this.
const ZIPF: f64 = 0.99;

/// Reads offered, as a part of what the disks can read with the slow one.
const LOAD: f64 = 0.6;

/// Rate at which blocks are stored, as a part of what the disks can write.
const FILL: f64 = 0.5;

/// Blocks stored, or read, between two reports of the part that is done.
const STEP: usize = 10_000;

/// Length of the run-up before the measurement, in nanoseconds.
const BEFORE_NS: u64 = 20_000_000;

/// The results of one world.
struct Run {
    /// Reads of each disk, relative to its speed.
    loads: Vec<f64>,
    p50_ns: u64,
    p99_ns: u64,
    reads_per_s: f64,
    misses: u64,
}

impl Run {
    /// Returns the largest deviation of a disk's load from the mean, relative to speed, in percent.
    fn imbalance_pct(&self) -> f64 {
        let mean = self.loads.iter().sum::<f64>() / self.loads.len() as f64;
        self.loads.iter().fold(0.0, |most: f64, load| most.max((load / mean - 1.0).abs())) * 100.0
    }
}

/// Runs the scenario.
pub(super) fn run(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut outcome = Outcome::default();
    let worlds = [(0.5, true), (1.0, true), (0.5, false)];
    let measure_one = |(speed, is_told), advance: Advance<'_>| measure(seed, FULL, speed, is_told, advance);
    let runs = side_by_side(worlds, &mut outcome, advance, measure_one)?;
    let [with, without, untold] = runs.as_slice() else { return Err(wrong("three worlds are compared")) };

    let title = "hits of 8 KiB on eight disks, Zipf 0.99 over 10^6 keys without the hottest 1000";
    let columns = ["disks", "reads/s", "p50, us", "p99, us", "imbalance, %", "load of the last, of its speed"];
    let mut shown = table(title, &columns);
    for (name, run) in [("one at half rate", with), ("all equal", without), ("half rate, untold", untold)] {
        let mean = run.loads.iter().sum::<f64>() / run.loads.len() as f64;
        shown.rows.push(vec![
            name.to_owned(),
            format!("{:.0}", run.reads_per_s),
            format!("{:.0}", run.p50_ns as f64 / 1e3),
            format!("{:.0}", run.p99_ns as f64 / 1e3),
            format!("{:.1}", run.imbalance_pct()),
            format!("{:.2} of the mean", run.loads.last().copied().unwrap_or(0.0) / mean),
        ]);
    }
    outcome.tables.push(shown);

    figure(&mut outcome, "imbalance of load relative to speed, %", with.imbalance_pct(), Target::AtMost(10.0));
    let ratio = with.p99_ns as f64 / without.p99_ns.max(1) as f64;
    figure(&mut outcome, "p99 of hits, times that without the slow disk", ratio, Target::AtMost(1.5));
    figure(&mut outcome, "reads that missed", (with.misses + without.misses) as f64, Target::AtMost(0.0));
    outcome.remarks.push(
        "Without the slow disk: eight equal disks and the same reads a second. Untold: the cache learns how fast a disk \
         writes only when it has more to write than it can; blocks were stored more slowly than that."
            .to_owned(),
    );
    Ok(outcome)
}

/// Runs one world. Storing the blocks takes about half of the time.
fn measure(
    seed: u64,
    scale: Scale,
    last_speed: f64,
    is_told: bool,
    advance: Advance<'_>,
) -> Result<(Run, Outcome), ScenarioError> {
    let mut outcome = Outcome::default();
    let preset = presets::find("i4i.2xlarge").ok_or_else(|| wrong("no device is called i4i.2xlarge"))?;
    let speeds: Vec<f64> = (0..DISKS).map(|disk| if disk + 1 == DISKS { last_speed } else { 1.0 }).collect();
    let disks: Vec<StageDisk> = speeds.iter().map(|speed| disk(&preset, *speed, is_told)).collect();
    let mut stage = Stage::new(seed, &disks, CacheConfig { ghost_pct: 0.0, ..CacheConfig::default() })?;

    let write_bytes_per_s = preset.figures.write_bandwidth.get().unwrap_or(0) as f64;
    let total_write_bytes_per_s = write_bytes_per_s * speeds.iter().sum::<f64>();
    let mut order: Vec<u32> = (0..scale.keys as u32).collect();
    shuffle(&mut order, &mut Rng::new(seed));
    let stored = |(number, _): &(usize, u32)| {
        if number.is_multiple_of(STEP) {
            advance(0.5 * *number as f64 / scale.keys as f64);
        }
    };
    let keys = order.into_iter().enumerate().inspect(stored).map(|(_, key)| key);
    stage.run(fill(&stage, keys, BLOCK_BYTES, FILL * total_write_bytes_per_s))?;

    let reads_per_s = LOAD * reads_of_one(&preset.figures) * (DISKS as f64 - 0.5);
    let popularity = Popularity::new(scale.keys, scale.in_memory, ZIPF);
    let before = reads_of(&stage);
    let advance_reads = |part: f64| advance(0.5 + 0.5 * part);
    let load = (reads_per_s, scale.measured_ns);
    let (times, misses) = stage.run(look_up(&stage, &popularity, load, seed, &advance_reads))?;
    let reads: Vec<f64> = reads_of(&stage).iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
    let mut times = times;

    let run = Run {
        loads: reads.iter().zip(&speeds).map(|(reads, speed)| reads / speed).collect(),
        p50_ns: percentile(&mut times, 0.5),
        p99_ns: percentile(&mut times, 0.99),
        reads_per_s: times.len() as f64 / (scale.measured_ns as f64 / 1e9),
        misses,
    };
    for value in [run.p50_ns, run.p99_ns, times.len() as u64] {
        stage.note(value);
    }
    stage.end(&mut outcome);
    Ok((run, outcome))
}

/// Returns the blocks per second that a disk of these figures reads: an operation costs the same up to 4 KiB, each byte
/// beyond costs its part of the bandwidth.
fn reads_of_one(figures: &FourFigures) -> f64 {
    let per_s = |rate: Rate| rate.get().map_or(f64::INFINITY, |per_s| per_s as f64);
    1.0 / (1.0 / per_s(figures.read_iops) + f64::from(BLOCK_BYTES - 4096) / per_s(figures.read_bandwidth))
}

fn disk(preset: &presets::Preset, speed: f64, is_told: bool) -> StageDisk {
    let mut spec = preset.spec.clone();
    let rates = &mut spec.rates;
    for rate in [&mut rates.read_iops, &mut rates.read_bytes_per_s, &mut rates.write_iops, &mut rates.write_bytes_per_s]
    {
        *rate *= speed;
    }
    let scaled = |rate: Rate| rate.get().map_or(rate, |per_s| Rate::per_second((per_s as f64 * speed) as u64));
    let figures = FourFigures {
        read_iops: scaled(preset.figures.read_iops),
        read_bandwidth: scaled(preset.figures.read_bandwidth),
        write_iops: scaled(preset.figures.write_iops),
        write_bandwidth: scaled(preset.figures.write_bandwidth),
    };
    let write_bytes_per_s = figures.write_bandwidth.get().filter(|_| is_told).map(|rate| rate as f64);
    StageDisk { spec, model: Some(model_of(&figures)), write_bytes_per_s, capacity_bytes: 2 * GIB }
}

fn reads_of(stage: &Stage) -> Vec<u64> {
    stage.engine().all_disks().iter().map(|disk| disk.counters(IoKind::LookupRead).look().operations).collect()
}

/// Shuffles `order` (Fisher and Yates).
fn shuffle(order: &mut [u32], random: &mut Rng) {
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Reads at random times, `per_s` a second. Returns the duration of each read begun during the measurement, and the
/// number of misses.
async fn look_up(
    stage: &Stage,
    popularity: &Popularity,
    (per_s, measured_ns): (f64, u64),
    seed: u64,
    advance: Advance<'_>,
) -> (Vec<u64>, u64) {
    let shard = stage.shard();
    let times = Rc::new(RefCell::new(Vec::new()));
    let misses = Rc::new(Cell::new(0));
    let mut random = Rng::new(seed ^ 0x5eed);
    let from_ns = shard.now_ns();
    let begin_ns = from_ns + BEFORE_NS;
    let mut at_ns = from_ns;

    for number in 0_usize.. {
        if at_ns >= begin_ns + measured_ns {
            break;
        }
        if number.is_multiple_of(STEP) {
            advance((at_ns - from_ns) as f64 / (BEFORE_NS + measured_ns) as f64);
        }
        at_ns += gap_ns(&mut random, per_s);
        shard.sleep_until(at_ns).await;
        let key = popularity.pick(&mut random);
        let (engine, own, times, misses) = (stage.engine().clone(), shard.clone(), times.clone(), misses.clone());
        let one = async move {
            let from_ns = own.now_ns();
            let is_hit = read(&engine, &own, key).await;
            if from_ns >= begin_ns {
                times.borrow_mut().push(own.now_ns() - from_ns);
                misses.set(misses.get() + u64::from(!is_hit));
            }
        };
        shard.spawn(one).detach();
    }
    // Wait for the reads still in flight.
    shard.sleep(Duration::from_secs(1)).await;
    advance(1.0);
    let times = times.borrow().clone();
    (times, misses.get())
}

/// The popularity of each key: sums of 1 / rank^s, from the first rank that is read on.
struct Popularity {
    first: usize,
    sums: Vec<f64>,
}

impl Popularity {
    fn new(keys: usize, first: usize, power: f64) -> Popularity {
        let mut sum = 0.0;
        let sums = (first + 1..=keys).map(|rank| {
            sum += plimsoll::core::math::pow(rank as f64, -power);
            sum
        });
        Popularity { first, sums: sums.collect() }
    }

    fn pick(&self, random: &mut Rng) -> u32 {
        let at = uniform(random) * self.sums.last().copied().unwrap_or(0.0);
        (self.first + self.sums.partition_point(|sum| *sum < at)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the scenario on a tenth of its keys, whose hottest hundredth takes as much of the load.
    #[test]
    fn hits_wait_no_longer_beside_a_slow_disk() {
        let small = Scale { keys: 100_000, in_memory: 1000, measured_ns: 50_000_000 };
        let [with, without] =
            [0.5, 1.0].map(|speed| measure(1, small, speed, true, &|_part| ()).expect("the world runs").0);
        let ratio = with.p99_ns as f64 / without.p99_ns as f64;
        assert!(ratio <= 1.5, "p99 {} and {}", with.p99_ns, without.p99_ns);
        assert!(with.imbalance_pct() <= 10.0, "{:?}", with.loads);
        assert_eq!((with.misses, without.misses), (0, 0));
    }
}
