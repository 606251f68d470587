//! What is done to a cache, and what is measured: hits under load, and opening again.
//!
//! # Why
//! Both caches must do the same: the keys of each reader are drawn before the clock runs.
//!
//! # How it works
//! [`hits`] fills a new cache, the most wanted keys last, warms it, then has so many readers look up keys by Zipf's law
//! and store what is missing. [`recovery`] stores so many entries, closes, opens, and then leaves the cache alone.
//!
//! # Limits
//! Latencies are those that a reader sees, its wait for a turn included: with more readers than the disk has room for
//! they are queueing.
//!
//! # Example
//! `hits(Kind::Plimsoll, &setup, &Load { keys: 100_000, ..load }).await?` gives `hits_per_s`, `p99_us` and so on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll::sys::rusage::process_cpu_s;

use crate::subject::{Found, Kind, Result, Setup, Subject};

/// Measured values by name, the unit in the name.
pub type Figures = BTreeMap<&'static str, f64>;

/// What readers do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many keys there are.
    pub keys: u64,
    /// Length of each value; at least 8.
    pub value_bytes: usize,
    /// Look-ups at a time.
    pub readers: usize,
    /// How long is measured, and half as long before.
    pub time: Duration,
}

/// Look-ups are drawn from so many draws, each reader beginning elsewhere.
const DRAWS: usize = 1 << 21;

/// Exponent of Zipf's law.
const ZIPF: f64 = 0.99;

/// After so many bytes of inserts, foyer is given time to write them.
const FILL_BYTES: usize = 8 << 20;

/// How long nothing is done for the idle figure.
const IDLE: Duration = Duration::from_secs(10);

fn value_of(key: u64, len_bytes: usize) -> Vec<u8> {
    let mut state = key | 1 << 63;
    let mut value = key.to_le_bytes().to_vec();
    while value.len() < len_bytes {
        // Marsaglia: "Xorshift RNGs", 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(len_bytes);
    value
}

/// Keys by Zipf's law: by bisection of the sums of 1 / rank^0.99.
fn draws(keys: u64) -> Vec<u32> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-ZIPF);
            sum
        })
        .collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let point = (state >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        sums.partition_point(|sum| *sum < point).min(sums.len() - 1) as u32
    };
    (0..DRAWS).map(|_| draw()).collect()
}

/// Stores keys from the last to the first.
async fn fill(subject: &Subject, keys: u64, value_bytes: usize) -> Result<()> {
    const AT_ONCE: u64 = 128;
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..AT_ONCE {
        let subject = subject.clone();
        tasks.spawn(async move {
            let each = (FILL_BYTES / AT_ONCE as usize / value_bytes).max(1);
            for (number, key) in (0..keys).rev().filter(|key| key % AT_ONCE == lane).enumerate() {
                subject.insert(key, value_of(key, value_bytes), true).await?;
                if number % each == each - 1 {
                    subject.settle().await;
                }
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    while let Some(end) = tasks.join_next().await {
        end??;
    }
    subject.settle().await;
    Ok(())
}

/// What readers counted.
#[derive(Default)]
struct Counts {
    lookups: u64,
    memory_hits: u64,
    /// Of hits on the disk, in nanoseconds.
    took_ns: Vec<u32>,
}

async fn read(
    subject: Subject,
    draws: Arc<Vec<u32>>,
    from: usize,
    value_bytes: usize,
    until: Instant,
) -> Result<Counts> {
    let mut counts = Counts::default();
    for draw in draws.iter().cycle().skip(from) {
        let key = u64::from(*draw);
        let begin = Instant::now();
        if begin >= until {
            break;
        }
        counts.lookups += 1;
        match subject.get(key).await? {
            Found::InMemory => counts.memory_hits += 1,
            Found::OnDisk => counts.took_ns.push(u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX)),
            Found::Nowhere => subject.insert(key, value_of(key, value_bytes), false).await?,
        }
        // What memory answers at once must not keep others from their turn.
        tokio::task::consume_budget().await;
    }
    Ok(counts)
}

async fn read_all(subject: &Subject, draws: &Arc<Vec<u32>>, load: &Load, time: Duration) -> Result<Counts> {
    let until = Instant::now() + time;
    let mut tasks = tokio::task::JoinSet::new();
    for reader in 0..load.readers {
        let from = reader * (DRAWS / load.readers.max(1));
        tasks.spawn(read(subject.clone(), Arc::clone(draws), from, load.value_bytes, until));
    }
    let mut all = Counts::default();
    while let Some(end) = tasks.join_next().await {
        let counts = end??;
        all.lookups += counts.lookups;
        all.memory_hits += counts.memory_hits;
        all.took_ns.extend(counts.took_ns);
    }
    Ok(all)
}

/// Hits under load, in a cache that is made for it.
///
/// # Errors
/// What the cache said.
pub async fn hits(kind: Kind, setup: &Setup, load: &Load) -> Result<Figures> {
    let draws = Arc::new(draws(load.keys));
    let subject = Subject::open(kind, setup).await?;
    fill(&subject, load.keys, load.value_bytes).await?;
    read_all(&subject, &draws, load, load.time / 2).await?;
    let (begin, cpu_s) = (Instant::now(), process_cpu_s());
    let mut counts = read_all(&subject, &draws, load, load.time).await?;
    let (took_s, cpu_s) = (begin.elapsed().as_secs_f64(), process_cpu_s() - cpu_s);
    subject.settle().await;
    // Inserts of the last moment still have the cache.
    tokio::time::sleep(Duration::from_millis(500)).await;
    subject.close().await?;
    counts.took_ns.sort_unstable();
    let percentile_us = |part: f64| {
        let at = (part * counts.took_ns.len().saturating_sub(1) as f64) as usize;
        counts.took_ns.get(at).map_or(f64::NAN, |ns| f64::from(*ns) / 1e3)
    };
    let (lookups, disk_hits) = (counts.lookups.max(1) as f64, counts.took_ns.len() as f64);
    let all_hits = counts.memory_hits as f64 + disk_hits;
    Ok(Figures::from([
        ("hits_per_s", all_hits / took_s),
        ("disk_hits_per_s", disk_hits / took_s),
        ("hit_ratio_pct", 100.0 * all_hits / lookups),
        ("memory_hit_ratio_pct", 100.0 * counts.memory_hits as f64 / lookups),
        ("disk_hit_p50_us", percentile_us(0.5)),
        ("disk_hit_p99_us", percentile_us(0.99)),
        ("disk_hit_p999_us", percentile_us(0.999)),
        ("cpu_s_per_million", cpu_s * 1e6 / lookups),
    ]))
}

/// Opening again with so many entries, and doing nothing.
///
/// # Errors
/// What the cache said.
pub async fn recovery(kind: Kind, setup: &Setup, entries: u64, value_bytes: usize) -> Result<Figures> {
    let subject = Subject::open(kind, setup).await?;
    fill(&subject, entries, value_bytes).await?;
    subject.close().await?;
    let (begin, cpu_s) = (Instant::now(), process_cpu_s());
    let subject = Subject::open(kind, setup).await?;
    let (open_s, open_cpu_s) = (begin.elapsed().as_secs_f64(), process_cpu_s() - cpu_s);
    let asked = 1000.min(entries);
    let mut found = 0;
    for number in 0..asked {
        let is_there = subject.get(number * (entries / asked)).await? != Found::Nowhere;
        found += u64::from(is_there);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (begin, cpu_s) = (Instant::now(), process_cpu_s());
    tokio::time::sleep(IDLE).await;
    let idle_pct = 100.0 * (process_cpu_s() - cpu_s) / begin.elapsed().as_secs_f64();
    subject.close().await?;
    Ok(Figures::from([
        ("recovery_s", open_s),
        ("recovery_cpu_s", open_cpu_s),
        ("recovered_pct", 100.0 * found as f64 / asked.max(1) as f64),
        ("idle_cpu_pct", idle_pct),
    ]))
}
