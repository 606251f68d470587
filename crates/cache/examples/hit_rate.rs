//! The cost of a hit: blocks are read from memory, so that everything but the disk is measured.
//!
//! `cargo run --release -p plimsoll-cache --example hit_rate -- [BLOCKS [HITS [TASKS]]]` fills a cache on the memory
//! backend with BLOCKS blocks of 8 KiB (1,000), then looks them up HITS times (4,000,000) from TASKS tasks at once
//! (64): first from tasks of the only shard, then from threads of a Tokio program, with a hop to the shard and back
//! for each. Every block is read, copied out of the backend's memory and verified, and its first bytes are compared.
//! Then the same with all blocks in the cache's memory, which needs no shard: from one thread, and from all CPUs.
//! CPU time counts, not wall time: that of the shard's thread for the first, that of the whole process for the others.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::sys::rusage::{process_cpu_ns, thread_cpu_ns};
use plimsoll::{Class, Classes, DiskSetup, Runtime, Shard, ShardOptions, Topology};
use plimsoll_cache::{
    BlockCache, CacheConfig, CreateOptions, DiskSource, GetOptions, Host, Inserted, Lookup, SPARE_DISKS,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const BLOCK_BYTES: usize = 8192;
const DISKS: u16 = 2;

#[derive(Clone, Copy)]
struct Work {
    blocks: u64,
    hits: u64,
    tasks: u64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default| arguments.next().unwrap_or(Ok(default));
    let work = Work { blocks: next(1_000)?.max(1), hits: next(4_000_000)?, tasks: next(64)?.max(1) };
    let setups = (0..DISKS + SPARE_DISKS).map(|_| DiskSetup::unlimited()).collect();
    let topology = Topology::new(1, Classes::new(), setups)?;
    let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
    let runtime = Runtime::start(&topology, &options)?;
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    let handle = runtime.handle(0);
    let disks: Vec<DiskSource> =
        (0..DISKS).map(|number| DiskSource::at(PathBuf::from(format!("disk{number}")))).collect();
    tokio.block_on(make(&topology, &runtime, &disks, work))?;
    let cache = tokio.block_on(filled(&topology, &runtime, &disks, work, 0))?;

    let own = Arc::clone(&cache);
    let cpu_ns = tokio.block_on(handle.run(move |shard| async move { on_the_shard(&own, &shard, work).await }))??;
    print("on the shard", "of the shard's thread", work, cpu_ns);

    print("with a hop", "of the whole process", work, tokio.block_on(from_outside(&cache, work))?);
    let stats = cache.stats();
    assert!(stats.hits >= work.hits && stats.misses.values().sum::<u64>() == 0, "every look-up is a hit");
    tokio.block_on(Arc::into_inner(cache).ok_or("a task still has the cache")?.close())?;

    // A shard of the tier may get more than its part of the blocks.
    let memory_bytes = 2 * work.blocks * BLOCK_BYTES as u64 + (256 << 20);
    let cache = tokio.block_on(filled(&topology, &runtime, &disks, work, memory_bytes))?;
    print("from memory", "of the whole process", work, tokio.block_on(from_outside(&cache, work))?);
    let all_cpus = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    print("on all CPUs", "of the whole process", work, all_cpus.block_on(from_outside(&cache, work))?);
    assert!(cache.stats().memory_hits >= work.hits, "every look-up is a hit in memory");
    tokio.block_on(Arc::into_inner(cache).ok_or("a task still has the cache")?.close())?;
    Ok(runtime.stop()?)
}

fn print(how: &str, whose: &str, work: Work, cpu_ns: u64) {
    let per_hit_ns = cpu_ns as f64 / work.hits.max(1) as f64;
    println!("{how:13} {:9.0} hits/s a core   {per_hit_ns:5.0} ns of CPU time a hit, {whose}", 1e9 / per_hit_ns);
}

fn host(topology: &Topology, runtime: &Runtime) -> Result<Host> {
    Ok(Host::on(topology, vec![runtime.handle(0)], 0..DISKS)?.without_locks())
}

/// Makes a cache on disks four times as large as all blocks.
async fn make(topology: &Topology, runtime: &Runtime, disks: &[DiskSource], work: Work) -> Result<()> {
    // So large that the index's clock ticks as rarely as in a real cache.
    let disk_bytes = (4 << 30) + work.blocks * BLOCK_BYTES as u64 * 4 / u64::from(DISKS);
    for (number, disk) in (0..).zip(disks) {
        let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let file = topology.file(&disk.path, how, number);
        let make = move |shard: Shard| async move {
            shard.reactor().set_file_len(&file, disk_bytes)?;
            shard.sync(&file, Class::DEFAULT, false).await
        };
        runtime.handle(0).run(make).await??;
    }
    let options = CreateOptions { slab_bytes: Some(4 << 20), ..CreateOptions::default() };
    Ok(BlockCache::create_on(&options, disks, &host(topology, runtime)?).await?)
}

/// Returns the cache, which has `memory_bytes` of memory, with all blocks.
async fn filled(
    topology: &Topology,
    runtime: &Runtime,
    disks: &[DiskSource],
    work: Work,
    memory_bytes: u64,
) -> Result<Arc<BlockCache>> {
    let config = CacheConfig { memory_bytes, ..CacheConfig::default() };
    let cache = BlockCache::open_on(config, disks, host(topology, runtime)?).await?;
    for number in 0..work.blocks {
        let end = cache.insert(&number.to_le_bytes(), &block_of(number)).await?;
        assert_eq!(end, Inserted::Stored);
    }
    Ok(Arc::new(cache))
}

fn block_of(number: u64) -> Vec<u8> {
    (0..BLOCK_BYTES as u64 / 8).flat_map(|word| (number + word).to_le_bytes()).collect()
}

fn check(number: u64, found: &Lookup) {
    let Lookup::Hit(block) = found else { panic!("{number}: {found:?}") };
    assert!(block.len() == BLOCK_BYTES && block.starts_with(&number.to_le_bytes()), "{number} has another block");
}

/// Returns the next of a task's numbers: a step of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014).
fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns the CPU time of the shard's thread for all hits, in nanoseconds.
async fn on_the_shard(cache: &Arc<BlockCache>, shard: &Shard, work: Work) -> Result<u64> {
    let before_ns = thread_cpu_ns();
    let left = Arc::new(AtomicU64::new(work.hits));
    let task = |number: u64| {
        let (cache, shard, left) = (Arc::clone(cache), shard.clone(), Arc::clone(&left));
        async move {
            let mut state = number;
            while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                let key = step(&mut state) % work.blocks;
                check(key, &cache.get_on(&shard, &key.to_le_bytes(), GetOptions::default()).await?);
            }
            Ok::<(), plimsoll_cache::CacheError>(())
        }
    };
    let tasks: Vec<_> = (0..work.tasks).map(|number| shard.spawn(task(number))).collect();
    for task in tasks {
        task.await?;
    }
    Ok(thread_cpu_ns() - before_ns)
}

/// Returns the CPU time of the process for all hits, in nanoseconds.
async fn from_outside(cache: &Arc<BlockCache>, work: Work) -> Result<u64> {
    let before_ns = process_cpu_ns();
    let left = Arc::new(AtomicU64::new(work.hits));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..work.tasks {
        let (cache, left) = (Arc::clone(cache), Arc::clone(&left));
        tasks.spawn(async move {
            let mut state = number;
            while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                let key = step(&mut state) % work.blocks;
                check(key, &cache.get(&key.to_le_bytes()).await?);
            }
            Ok::<(), plimsoll_cache::CacheError>(())
        });
    }
    while let Some(end) = tasks.join_next().await {
        end??;
    }
    Ok(process_cpu_ns() - before_ns)
}
