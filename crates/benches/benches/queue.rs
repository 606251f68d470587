//! What the scheduler itself costs: one request enqueued, one dispatched, one completed, with so many classes that always
//! have work, on a disk whose limits are never reached and on one without limits; and of one alone.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use plimsoll_core::{
    ClassId, CostForm, CostModel, Disk, DiskConfig, FourFigures, GroupId, IoQueue, Op, Outcome, Progress, QueueConfig,
    Rate,
};

/// Requests that each class has waiting before the measurement starts.
const BACKLOG: usize = 4;
const LEN_BYTES: u32 = 4096;
/// Virtual time between two requests: so much more than one costs that nothing ever waits.
const STEP_NS: u64 = 1_000;

fn limited() -> CostModel {
    let figures = FourFigures {
        read_iops: Rate::per_second(100_000_000),
        write_iops: Rate::per_second(100_000_000),
        read_bandwidth: Rate::per_second(1_000_000_000_000),
        write_bandwidth: Rate::per_second(1_000_000_000_000),
    };
    CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096)
}

struct Backlogged {
    queue: IoQueue,
    classes: Vec<ClassId>,
    now_ns: u64,
}

impl Backlogged {
    fn new(model: CostModel, classes: u32) -> Backlogged {
        let disk = Arc::new(Disk::new(DiskConfig { model, ..DiskConfig::default() }));
        let mut queue = IoQueue::new(disk, QueueConfig::default());
        let classes: Vec<ClassId> =
            (0..classes).filter_map(|class| queue.disk().add_class(GroupId::ROOT, 1 + class % 100).ok()).collect();
        for number in 0..classes.len() * BACKLOG {
            let at = number % classes.len();
            black_box(queue.enqueue(0, classes[at], Op::Read, LEN_BYTES, at as u64).is_ok());
        }
        Backlogged { queue, classes, now_ns: 0 }
    }

    /// Dispatches one request, completes it, and enqueues another of its class.
    fn triple(&mut self) -> bool {
        self.now_ns += STEP_NS;
        let Some(piece) = self.queue.poll_dispatch(self.now_ns) else { return false };
        let Progress::Finished(finished) = self.queue.complete(self.now_ns, piece, Outcome::Moved(LEN_BYTES)) else {
            return false;
        };
        let class = self.classes[finished.user_data as usize];
        self.queue.enqueue(self.now_ns, class, Op::Read, LEN_BYTES, finished.user_data).is_ok()
    }
}

fn enqueue_dispatch_complete(criterion: &mut Criterion) {
    for (name, model) in [("limited", limited()), ("unlimited", CostModel::unlimited())] {
        let mut group = criterion.benchmark_group(name);
        for classes in [1, 8, 64, 1000] {
            let mut backlogged = Backlogged::new(model.clone(), classes);
            group.bench_function(BenchmarkId::from_parameter(classes), |bencher| {
                bencher.iter(|| assert!(backlogged.triple(), "nothing ever waits on this disk"));
            });
        }
        group.finish();
    }
}

/// A request that finds nothing before it, the usual way and the short one, as a gate takes it.
fn alone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("alone");
    for (name, model) in [("limited", limited()), ("unlimited", CostModel::unlimited())] {
        let disk = Arc::new(Disk::new(DiskConfig { model, ..DiskConfig::default() }));
        let mut now_ns = 0;
        let mut one = |queue: &mut IoQueue, class: ClassId, is_short: bool| {
            now_ns += STEP_NS;
            let piece = if is_short {
                queue.dispatch_alone(now_ns, class, Op::Read, LEN_BYTES, 0)
            } else {
                let queued = queue.enqueue(now_ns, class, Op::Read, LEN_BYTES, 0);
                queued.ok().and_then(|_| queue.poll_dispatch(now_ns))
            };
            piece.map(|piece| queue.complete(now_ns, piece, Outcome::Moved(LEN_BYTES)))
        };

        let Ok(class) = disk.add_class(GroupId::ROOT, 100) else { continue };
        let mut queue = IoQueue::new(disk, QueueConfig::default());
        for (way, is_short) in [("queued and dispatched", false), ("at once", true)] {
            group.bench_function(format!("{name}, {way}"), |bencher| {
                bencher.iter(|| assert!(one(&mut queue, class, is_short).is_some(), "nothing is before it"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, enqueue_dispatch_complete, alone);
criterion_main!(benches);
