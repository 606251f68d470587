//! `ScheduledStore` beside `LocalFileSystem` with fsync, in turns: puts of 10 MiB, then reads of 64 KiB, each place once
//! in a scattered order.
//!
//! `cargo run --release -p plimsoll-store --example against_local -- DIR [ROUNDS]`
//!
//! Before each round of reads the objects are dropped from the page cache, so that both stores read from the disk; with
//! `--cached` they stay there, which is `LocalFileSystem`'s best case. CPU time is that of this process, without the
//! kernel's own threads, for example those that write back the page cache.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use plimsoll::sys::rusage::process_cpu_s;
use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
use plimsoll_store::ScheduledStore;

const OBJECTS: usize = 16;
const OBJECT_BYTES: usize = 10 << 20;
const READ_BYTES: usize = 64 << 10;
/// Ranges of an object, the last of which would end behind it.
const PLACES: usize = OBJECT_BYTES / READ_BYTES - 1;
const READS: usize = OBJECTS * PLACES;

/// One phase of one store.
#[derive(Clone, Copy)]
struct Measured {
    mb_per_s: f64,
    cpu_s_per_gb: f64,
}

async fn measure<F: Future<Output = object_store::Result<u64>>>(work: F) -> object_store::Result<Measured> {
    let (begun, cpu_s) = (Instant::now(), process_cpu_s());
    let gb = work.await? as f64 / 1e9;
    let (elapsed_s, cpu_s) = (begun.elapsed().as_secs_f64(), process_cpu_s() - cpu_s);
    Ok(Measured { mb_per_s: gb * 1e3 / elapsed_s, cpu_s_per_gb: cpu_s / gb })
}

fn name(number: usize) -> Path {
    Path::from(format!("object-{number}"))
}

async fn put(store: &dyn ObjectStore, parallel: usize, payload: &Bytes) -> object_store::Result<u64> {
    let puts = (0..OBJECTS).map(|number| async move { store.put(&name(number), payload.clone().into()).await });
    stream::iter(puts).buffer_unordered(parallel).try_collect::<Vec<_>>().await?;
    Ok((OBJECTS * OBJECT_BYTES) as u64)
}

async fn get(store: &dyn ObjectStore, parallel: usize) -> object_store::Result<u64> {
    let reads = (0..READS).map(|number| async move {
        // Each place once, so that no range is in the page cache because it was read before; not at multiples of a block.
        let place = number * 1597 % READS;
        let from = (place % PLACES * READ_BYTES + 1000) as u64;
        store.get_range(&name(place / PLACES), from..from + READ_BYTES as u64).await
    });
    stream::iter(reads).buffer_unordered(parallel).try_collect::<Vec<Bytes>>().await?;
    Ok((READS * READ_BYTES) as u64)
}

/// Drops the objects of `directory` from the page cache.
fn drop_cached(directory: &std::path::Path) -> std::io::Result<()> {
    for number in 0..OBJECTS {
        let file = std::fs::File::open(directory.join(name(number).as_ref()))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

fn median(figures: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    let mut figures: Vec<f64> = figures.iter().map(of).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let directory = PathBuf::from(words.first().ok_or("usage: against_local DIR [ROUNDS] [--cached]")?);
    let rounds: usize = words.get(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let is_cached = flags.iter().any(|flag| flag == "--cached");

    let directories = ["local", "scheduled"].map(|name| directory.join(format!("against-local-{name}")));
    directories.iter().try_for_each(std::fs::create_dir_all)?;
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
    let runtime = Runtime::start(&topology, &ShardOptions { pin: false, ..ShardOptions::default() })?;
    let scheduled = ScheduledStore::open(runtime.any_shard(), &directories[1]).await?;
    println!("backend {}, direct I/O: {}", runtime.backend().kind, scheduled.is_direct());
    let stores: [Arc<dyn ObjectStore>; 2] =
        [Arc::new(LocalFileSystem::new_with_prefix(&directories[0])?.with_fsync(true)), Arc::new(scheduled)];

    let payload = Bytes::from((0..OBJECT_BYTES).map(|at| (at ^ (at >> 8)) as u8).collect::<Vec<u8>>());
    let phases =
        [("put 10 MiB, 1 at a time", 1), ("put 10 MiB, 4 at a time", 4), ("get 64 KiB, 1", 1), ("get 64 KiB, 16", 16)];
    println!("median of {rounds} rounds     MB/s: local  scheduled  ratio   CPU s/GB: local  scheduled  ratio");
    for (phase, parallel) in phases {
        let mut figures = [vec![], vec![]];
        // One round to warm up; then the two stores take turns to be first.
        for round in 0..=rounds {
            for turn in 0..2 {
                let which = (round + turn) % 2;
                let store = stores[which].as_ref();
                let measured = if phase.starts_with("put") {
                    measure(put(store, parallel, &payload)).await?
                } else {
                    if !is_cached {
                        drop_cached(&directories[which])?;
                    }
                    measure(get(store, parallel)).await?
                };
                if round > 0 {
                    figures[which].push(measured);
                }
            }
        }
        let [local, ours] = figures.each_ref().map(|figures| median(figures, |m| m.mb_per_s));
        let [local_cpu, our_cpu] = figures.each_ref().map(|figures| median(figures, |m| m.cpu_s_per_gb));
        println!(
            "{phase:<26} {local:>12.0} {ours:>10.0} {:>6.2} {local_cpu:>17.3} {our_cpu:>10.3} {:>6.2}",
            ours / local,
            our_cpu / local_cpu
        );
    }
    directories.iter().try_for_each(std::fs::remove_dir_all)?;
    drop(stores);
    Ok(runtime.shutdown().await?)
}
