//! The cost of entries: memory for each, and the time to restore them when the cache is opened.
//!
//! `cargo run --release -p plimsoll-cache --example entries -- DIRECTORY [ENTRIES [VALUE_BYTES [DISKS]]]` makes a
//! cache of DISKS files (1) in an existing directory, stores ENTRIES values (1,000,000) of VALUE_BYTES bytes (1024),
//! closes it and opens it again, which reads all of the snapshot and the log. It prints CPU time for each insert,
//! memory of the index and of the whole process for each entry, and wall and CPU time of opening. Finally it removes
//! the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use plimsoll::sys::rusage::process_cpu_s;
use plimsoll_cache::{BlockCache, CacheConfig, CreateOptions, DiskSource, HostOptions, InsertOptions, Lookup};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Inserts in flight.
const TASKS: u64 = 256;

/// Space besides entries and values: padding, log and snapshots, and the space kept free.
const ROOM: f64 = 1.3;

const MIN_DISK_BYTES: u64 = 1 << 30;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory for the disks")?);
    let mut numbers = arguments.map(|text| text.parse::<u64>());
    let mut next = |default| numbers.next().unwrap_or(Ok(default));
    let (entries, value_bytes, disks) = (next(1_000_000)?.max(1), next(1024)?.max(8), next(1)?.max(1));
    let paths: Vec<PathBuf> = (0..disks).map(|disk| directory.join(format!("plimsoll-entries-{disk}"))).collect();
    let result = measure(&paths, entries, value_bytes).await;
    for path in &paths {
        // The file may not have been made.
        let _ = std::fs::remove_file(path);
    }
    result
}

async fn measure(paths: &[PathBuf], entries: u64, value_bytes: u64) -> Result<()> {
    let stored_bytes = value_bytes.next_multiple_of(512) + 128;
    let disk_bytes = ((entries * stored_bytes) as f64 * ROOM) as u64 / paths.len() as u64 + MIN_DISK_BYTES;
    for path in paths {
        std::fs::File::create_new(path)?.set_len(disk_bytes)?;
    }
    let disks: Vec<DiskSource> = paths.iter().cloned().map(DiskSource::at).collect();
    let host = HostOptions::default();
    BlockCache::create(&CreateOptions::default(), &disks, &host).await?;
    let empty_bytes = resident_bytes()?;
    let cache = Arc::new(BlockCache::open(CacheConfig::default(), &disks, &host).await?);
    let cpu_s = process_cpu_s();
    fill(&cache, entries, value_bytes).await?;
    println!("insert    {:6.2} us of CPU time each", (process_cpu_s() - cpu_s) * 1e6 / entries as f64);
    let cache = Arc::into_inner(cache).ok_or("a task still has the cache")?;
    let blocks = cache.stats().blocks;
    cache.close().await?;

    let (begin, cpu_s) = (Instant::now(), process_cpu_s());
    let cache = BlockCache::open(CacheConfig::default(), &disks, &host).await?;
    let (took_s, cpu_s) = (begin.elapsed().as_secs_f64(), process_cpu_s() - cpu_s);
    let stats = cache.stats();
    assert_eq!(stats.blocks, blocks, "all are back");
    println!("open      {:6.0} ms, {:.0} ms of CPU time, {blocks} entries", took_s * 1e3, cpu_s * 1e3);
    let each = |bytes: u64| bytes as f64 / blocks.max(1) as f64;
    let process_bytes = resident_bytes()?.saturating_sub(empty_bytes);
    println!("memory    {:6.2} bytes an entry in the index", each(stats.index_bytes));
    println!("          {:6.2} bytes an entry more in the process than without a cache", each(process_bytes));
    for key in [0, entries / 2, entries - 1] {
        let Lookup::Hit(block) = cache.get(&key.to_le_bytes()).await? else { continue };
        assert!(block.starts_with(&key.to_le_bytes()), "{key} has another block");
    }
    Ok(cache.close().await?)
}

async fn fill(cache: &Arc<BlockCache>, entries: u64, value_bytes: u64) -> Result<()> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let (cache, next) = (Arc::clone(cache), Arc::clone(&next));
        tasks.spawn(async move {
            let mut value = vec![0x5A; value_bytes as usize];
            let options = InsertOptions { wait: true, ..InsertOptions::default() };
            loop {
                let key = next.fetch_add(1, Relaxed).to_le_bytes();
                if u64::from_le_bytes(key) >= entries {
                    return Ok::<(), plimsoll_cache::CacheError>(());
                }
                value[..8].copy_from_slice(&key);
                cache.insert_with(&key, &value, options).await?;
            }
        });
    }
    while let Some(end) = tasks.join_next().await {
        end??;
    }
    Ok(())
}

/// Returns the memory of this process in bytes, as reported by the kernel.
fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/self/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("/proc/self/status has no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
