//! What an operation costs from Tokio through a file of any shard: everything but the disk. The null backend finishes each
//! at once, so what is left are two threads that hand a request and its end to each other, and the scheduler. One shard,
//! one Tokio worker, 4 KiB reads into a buffer that is used again.
//!
//! `alone`: one task, so that both sides sleep in between: mostly the system's wake-ups. `together`: 64 tasks at once, which
//! share them. `job`: the same 64 by [`Handle::run`](plimsoll::Handle::run), a boxed job, a channel and a task each. Each by
//! the clock and by the CPU time of the process, which other programs disturb less.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark that panics has failed")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};
use plimsoll::sys::rusage::process_cpu_ns;
use plimsoll::{Class, Classes, DiskSetup, File, OpenOptions, Runtime, ShardOptions, Topology};

const LEN_BYTES: usize = 4096;
const TASKS: u64 = 64;
const READS_OF_A_TASK: u64 = 100;

/// Limits that exist, and cost what limits cost, but are never reached.
fn limited() -> DiskSetup {
    let figures = FourFigures {
        read_iops: Rate::per_second(1_000_000_000),
        write_iops: Rate::per_second(1_000_000_000),
        read_bandwidth: Rate::per_second(10_000_000_000_000),
        write_bandwidth: Rate::per_second(10_000_000_000_000),
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskSetup::new(DiskConfig { model, ..DiskConfig::default() })
}

async fn reads(file: File, count: u64) {
    let mut buffer = AlignedBuf::new(LEN_BYTES).unwrap();
    for _ in 0..count {
        let (read, back) = file.read_buffer_at(0, buffer).await;
        assert_eq!(read.unwrap(), LEN_BYTES);
        buffer = back;
    }
}

async fn jobs(runtime: &Runtime, file: &File) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (handle, file) = (runtime.any_shard(), file.shared().clone());
            tokio::spawn(async move {
                let mut buffer = AlignedBuf::new(LEN_BYTES).unwrap();
                for _ in 0..READS_OF_A_TASK {
                    let file = file.clone();
                    let read =
                        handle.run(move |shard| async move { shard.read_at(&file, Class::DEFAULT, 0, buffer).await });
                    buffer = read.await.unwrap().1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn alone(file: &File) {
    tokio::spawn(reads(file.clone(), READS_OF_A_TASK)).await.unwrap();
}

async fn together(file: &File) {
    let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(reads(file.clone(), READS_OF_A_TASK))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Measures `run`, which makes `reads` reads.
fn measure(criterion: &mut Criterion, name: &str, reads: u64, mut run: impl FnMut()) {
    let mut group = criterion.benchmark_group("tokio");
    group.throughput(Throughput::Elements(reads));
    group.bench_function(name, |bencher| bencher.iter(&mut run));
    group.bench_function(format!("{name}, CPU"), |bencher| {
        bencher.iter_custom(|rounds| {
            let before_ns = process_cpu_ns();
            (0..rounds).for_each(|_| run());
            Duration::from_nanos(process_cpu_ns() - before_ns)
        });
    });
    group.finish();
}

fn tokio_reads(criterion: &mut Criterion) {
    let topology = Topology::new(1, Classes::new(), vec![limited()]).unwrap();
    let options = ShardOptions { backend: Some(BackendKind::Null), pin: false, ..ShardOptions::default() };
    let runtime = Runtime::start(&topology, &options).unwrap();
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let file = executor.block_on(runtime.any_shard().open("null", &OpenOptions::default())).unwrap();
    measure(criterion, "alone", READS_OF_A_TASK, || executor.block_on(alone(&file)));
    measure(criterion, "together", TASKS * READS_OF_A_TASK, || executor.block_on(together(&file)));
    measure(criterion, "job", TASKS * READS_OF_A_TASK, || executor.block_on(jobs(&runtime, &file)));
    executor.block_on(runtime.shutdown()).unwrap();
}

criterion_group!(benches, tokio_reads);
criterion_main!(benches);
