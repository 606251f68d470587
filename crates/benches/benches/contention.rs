//! What sharing costs: threads, each with a queue and a class of its own on one disk, enqueue, dispatch and complete
//! as fast as they can. Wall time per operation and thread, for 1, 2, ... as many threads as there are cores, on a
//! disk whose limits are never reached (all shared lines are written) and on an unlimited one (none is).

#![allow(clippy::unwrap_used, reason = "a benchmark that panics has failed")]

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use plimsoll_core::{
    ClassId, ControlConfig, CostForm, CostModel, Disk, DiskConfig, FourFigures, GroupId, IoQueue, Op, Outcome,
    QueueConfig, Rate,
};

const LEN_BYTES: u32 = 4096;
/// Virtual time between two operations of a thread: more than all threads together cost.
const STEP_NS: u64 = 10_000;
/// Requests that each class always has waiting.
const BACKLOG: u64 = 4;

fn limited() -> CostModel {
    let figures = FourFigures {
        read_iops: Rate::per_second(1_000_000_000),
        write_iops: Rate::per_second(1_000_000_000),
        read_bandwidth: Rate::per_second(10_000_000_000_000),
        write_bandwidth: Rate::per_second(10_000_000_000_000),
    };
    CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096)
}

/// One thread's part: `operations` requests through its own queue.
fn work(disk: &Arc<Disk>, class: ClassId, operations: u64, start: &Barrier) -> Duration {
    let mut queue = IoQueue::new(Arc::clone(disk), QueueConfig::default());
    for n in 0..BACKLOG {
        queue.enqueue(0, class, Op::Read, LEN_BYTES, n).unwrap();
    }
    start.wait();
    let begin = Instant::now();
    let (mut now_ns, mut done) = (0, 0);
    while done < operations {
        // A turn that is another thread's comes again a little later in virtual time.
        now_ns += STEP_NS;
        if let Some(piece) = queue.poll_dispatch(now_ns) {
            black_box(queue.complete(now_ns, piece, Outcome::Moved(LEN_BYTES)));
            queue.enqueue(now_ns, class, Op::Read, LEN_BYTES, 0).unwrap();
            done += 1;
        }
    }
    let took = begin.elapsed();
    // Its class leaves, so that the others need not wait for it.
    disk.remove(class).unwrap();
    queue.follow_classes(|_| {});
    took
}

fn together(model: &CostModel, threads: u64, operations: u64) -> Duration {
    let disk =
        Arc::new(Disk::new(DiskConfig { model: model.clone(), control: ControlConfig::OFF, ..DiskConfig::default() }));
    let start = Arc::new(Barrier::new(threads as usize));
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let (disk, start) = (Arc::clone(&disk), Arc::clone(&start));
            let class = disk.add_class(GroupId::ROOT, 100).unwrap();
            std::thread::spawn(move || work(&disk, class, operations, &start))
        })
        .collect();
    let total: Duration = running.into_iter().map(|thread| thread.join().unwrap()).sum();
    total / threads as u32
}

fn enqueue_dispatch_complete(criterion: &mut Criterion) {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut group = criterion.benchmark_group("contention, a thread's enqueue + dispatch + complete");
    group.sample_size(20);
    for (name, model) in [("limited", limited()), ("unlimited", CostModel::unlimited())] {
        let doubled =
            std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|threads| *threads < cores);
        for threads in doubled.chain([cores]) {
            group.bench_function(BenchmarkId::new(name, threads), |bencher| {
                bencher.iter_custom(|operations| together(&model, threads, operations));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, enqueue_dispatch_complete);
criterion_main!(benches);
