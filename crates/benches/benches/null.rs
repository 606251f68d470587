//! What a request costs a shard: everything but the disk. The null backend finishes each operation at once, so what is
//! left is the scheduler, the reactor's table, and (second group) the futures. One thread, four classes, 4 KiB reads.
//!
//! Aims, on a processor of 2020 or later: 4 million requests a second natively, 2 million through futures.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark that panics has failed")]

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};
use plimsoll::{Class, Classes, Data, DiskSetup, Done, Reactor, Request, RequestKind, Shard, SharedFile, Topology};

const BATCH: usize = 64;
const CLASSES: usize = 4;
const LEN_BYTES: usize = 4096;
/// Reads that each task makes in one measured round.
const READS_OF_A_TASK: u64 = 64;

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

struct World {
    reactor: Reactor,
    classes: Vec<Class>,
    file: Arc<SharedFile>,
}

fn world(disk: DiskSetup) -> World {
    let classes = Classes::new();
    let made = (0..CLASSES).map(|n| classes.add_class(&format!("class-{n}"), None, 100 * (1 + n as u32)).unwrap());
    let made = made.collect();
    let topology = Topology::new(1, classes, vec![disk]).unwrap();
    let reactor = Reactor::new(0, &topology, BackendKind::Null.make(256).unwrap()).unwrap();
    let file = topology.file("null".as_ref(), OpenOptions::default(), 0);
    World { reactor, classes: made, file }
}

/// One turn of the native loop: a batch in, through the scheduler, and out.
fn native_turn(world: &mut World, buffers: &mut Vec<AlignedBuf>, done: &mut Vec<Done>) {
    let kind = RequestKind::Read { len_bytes: LEN_BYTES as u32 };
    for tag in 0..BATCH {
        let data = Data::One(buffers.pop().unwrap());
        let (file, class) = (Arc::clone(&world.file), world.classes[tag % CLASSES]);
        let request = Request { file, class, kind, offset: (tag * LEN_BYTES) as u64, data, tag: tag as u64 };
        world.reactor.submit(request).unwrap();
    }
    while buffers.len() < BATCH {
        world.reactor.park(None).unwrap();
        world.reactor.reap(done);
        for end in done.drain(..) {
            assert_eq!(end.result, Ok(LEN_BYTES as u32));
            if let Data::One(buffer) = end.data {
                buffers.push(buffer);
            }
        }
    }
}

fn native(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("native");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, disk) in [("limited", limited()), ("unlimited", DiskSetup::unlimited())] {
        let mut world = world(disk);
        let mut buffers: Vec<AlignedBuf> = (0..BATCH).map(|_| AlignedBuf::new(LEN_BYTES).unwrap()).collect();
        let mut done = Vec::with_capacity(BATCH);
        group.bench_function(name, |bencher| bencher.iter(|| native_turn(&mut world, &mut buffers, &mut done)));
    }
    group.finish();
}

/// What the tasks and the benchmark tell each other: reads left in this round, of all tasks.
struct Round {
    left: Cell<u64>,
}

async fn read_for_ever(shard: Shard, file: Arc<SharedFile>, class: Class, round: Rc<Round>) {
    let mut buffer = AlignedBuf::new(LEN_BYTES).unwrap();
    loop {
        let (read, back) = shard.read_at(&file, class, 0, buffer).await;
        assert_eq!(read.unwrap(), LEN_BYTES);
        buffer = back;
        round.left.set(round.left.get().saturating_sub(1));
    }
}

fn futures(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("futures");
    let reads = BATCH as u64 * READS_OF_A_TASK;
    group.throughput(Throughput::Elements(reads));
    for (name, disk) in [("limited", limited()), ("unlimited", DiskSetup::unlimited())] {
        let World { reactor, classes, file } = world(disk);
        let shard = Shard::new(reactor);
        let round = Rc::new(Round { left: Cell::new(0) });
        for task in 0..BATCH {
            let class = classes[task % CLASSES];
            shard.spawn(read_for_ever(shard.clone(), Arc::clone(&file), class, Rc::clone(&round))).detach();
        }
        // The shard polls the main future once a turn: no wake-up is needed to see that the round is over.
        let is_over = || poll_fn(|_| if round.left.get() == 0 { Poll::Ready(()) } else { Poll::Pending });
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                round.left.set(reads);
                shard.block_on(is_over()).unwrap();
            });
        });
        shard.drop_tasks();
    }
    group.finish();
}

criterion_group!(benches, native, futures);
criterion_main!(benches);
