//! Queries beside compactions, on Tokio and a disk that `plimsoll tune . -o io-properties.yaml` has measured.
use plimsoll::{Classes, OpenOptions, Runtime, ShardOptions, Topology};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let classes = Classes::new();
    let query = classes.add_class("query", None, 1000)?;
    let compaction = classes.add_class("compaction", None, 100)?;
    // One shard: a thread with its own ring. Tokio's workers run on all CPUs, so it is not pinned to one.
    let topology = Topology::from_io_properties("io-properties.yaml", 1, classes)?;
    let runtime = Runtime::start(&topology, &ShardOptions { pin: false, ..ShardOptions::default() })?;

    let create = OpenOptions { create_new: true, direct: true, ..OpenOptions::default() };
    let table = runtime.any_shard().open("table", &create).await?;
    let merged = tokio::spawn({
        let table = table.in_class(compaction);
        async move { table.write_all_at(1 << 20, vec![7; 8 << 20]).await }
    });
    let queries = table.in_class(query);
    queries.write_all_at(0, b"ahoy".repeat(1024)).await?;
    // Any range, past the page cache and without a copy. Dropping the future removes the read from the queue.
    let read = queries.read_exact_at(401, 3);
    assert_eq!(&tokio::time::timeout(std::time::Duration::from_secs(10), read).await??[..], b"hoy");
    merged.await??;
    table.sync_all().await?;
    Ok(runtime.shutdown().await?)
}
