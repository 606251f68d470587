//! Nothing is allocated per request: not natively, not by a task that awaits one after the other, and not from outside of
//! the shards.

use std::sync::Arc;

use crate::common::{CREATE, disk};
use allocation_counter::measure;
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::LatencyGoal;
use plimsoll::{
    Class, Classes, Data, DiskSetup, Done, Reactor, Request, RequestKind, Runtime, Shard, ShardOptions, SharedFile,
    Topology,
};

const BATCH: u64 = 64;

fn disks() -> [DiskSetup; 2] {
    [DiskSetup::unlimited(), disk(1_000_000_000, 10_000_000_000_000, LatencyGoal::NoSplit)]
}

fn reactor(disk: DiskSetup, kind: BackendKind) -> (Reactor, Arc<SharedFile>) {
    let topology = Topology::new(1, Classes::new(), vec![disk]).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    (Reactor::new(0, &topology, kind.make(256).unwrap()).unwrap(), file)
}

fn batch(reactor: &mut Reactor, file: &Arc<SharedFile>, buffers: &mut Vec<AlignedBuf>, done: &mut Vec<Done>) {
    for tag in 0..BATCH {
        let data = Data::One(buffers.pop().unwrap());
        let kind = RequestKind::Read { len_bytes: 4096 };
        let file = Arc::clone(file);
        reactor.submit(Request { file, class: Class::DEFAULT, kind, offset: 0, data, tag }).unwrap();
    }
    while buffers.len() < BATCH as usize {
        reactor.park(None).unwrap();
        reactor.reap(done);
        buffers.extend(done.drain(..).filter_map(|end| match end.data {
            Data::One(buffer) => Some(buffer),
            _ => None,
        }));
    }
}

/// Three histograms of one class and direction: each may reach each of 35 powers of two later than before, in each of four digits.
const HISTOGRAMS_GROW: u64 = 3 * 35 * 4;

#[test]
fn the_native_path_allocates_nothing() {
    for disk in disks() {
        let (mut reactor, file) = reactor(disk, BackendKind::Null);
        let mut buffers: Vec<_> = (0..BATCH).map(|_| AlignedBuf::new(4096).unwrap()).collect();
        let mut done = Vec::new();
        batch(&mut reactor, &file, &mut buffers, &mut done);
        let info = measure(|| {
            for _ in 0..1000 {
                batch(&mut reactor, &file, &mut buffers, &mut done);
            }
        });
        assert!(info.count_total <= HISTOGRAMS_GROW, "{} allocations in {} requests", info.count_total, 1000 * BATCH);
    }
}

async fn reads(shard: &Shard, file: &Arc<SharedFile>, count: u64) {
    let mut buffer = AlignedBuf::new(4096).unwrap();
    for _ in 0..count {
        let (read, back) = shard.read_at(file, Class::DEFAULT, 0, buffer).await;
        assert_eq!(read.unwrap(), 4096);
        buffer = back;
    }
}

/// A thousand reads cost as many allocations as one, so that it is none for each.
#[test]
fn awaiting_in_one_task_allocates_nothing() {
    for disk in disks() {
        let (reactor, file) = reactor(disk, BackendKind::Null);
        let shard = Shard::new(reactor);
        let of = |count| measure(|| shard.block_on(reads(&shard, &file, count)).unwrap()).count_total;
        of(1000);
        let (few, many) = (of(1), of(10_000));
        assert!(many <= few + HISTOGRAMS_GROW, "{few} allocations of 1 read, {many} of 10 000");
        println!("a block_on with any number of reads: {many} allocations");
    }
}

/// Asks by a handle on the shard's own thread, so that both ends are counted.
async fn reads_by_handle(shard: &Shard, file: &Arc<SharedFile>, count: u64) {
    let handle = shard.handle();
    let mut buffer = AlignedBuf::new(4096).unwrap();
    for _ in 0..count {
        let (read, back) = handle.read_at(file, Class::DEFAULT, 0, buffer).await;
        assert_eq!(read.unwrap(), 4096);
        buffer = back;
    }
}

#[test]
fn a_handle_allocates_nothing_on_either_side() {
    for disk in disks() {
        let (reactor, file) = reactor(disk, BackendKind::Null);
        let shard = Shard::new(reactor);
        let of = |count| measure(|| shard.block_on(reads_by_handle(&shard, &file, count)).unwrap()).count_total;
        of(1000);
        let (few, many) = (of(1), of(10_000));
        assert!(many <= few + HISTOGRAMS_GROW, "{few} allocations of 1 read, {many} of 10 000");
    }
}

/// A file's buffer goes to and fro; what Tokio itself allocates is in the first read.
#[test]
fn a_task_of_tokio_allocates_nothing_per_operation() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let options = ShardOptions { backend: Some(BackendKind::Null), pin: false, entries: 64 };
    let runtime = Runtime::start(&topology, &options).unwrap();
    let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let file = executor.block_on(runtime.any_shard().open("file", &CREATE)).unwrap();
    let reads = |count: u64| {
        let file = &file;
        executor.block_on(async move {
            let mut buffer = AlignedBuf::new(4096).unwrap();
            for _ in 0..count {
                let (read, back) = file.read_buffer_at(0, buffer).await;
                assert_eq!(read.unwrap(), 4096);
                buffer = back;
            }
        });
    };
    let of = |count| measure(|| reads(count)).count_total;
    of(100);
    let (few, many) = (of(1), of(10_000));
    assert_eq!(many, few, "{few} allocations of 1 read, {many} of 10 000");
    // What a read gives out is all that it allocates: the memory, and its owner.
    let of_ranges = |count: u64| {
        let all = || {
            executor.block_on(async {
                for n in 0..count {
                    file.read_exact_at(n, 100).await.unwrap();
                }
            })
        };
        measure(all).count_total
    };
    of_ranges(100);
    let (few, many) = (of_ranges(1), of_ranges(1001));
    assert_eq!(many - few, 2000);
    executor.block_on(runtime.shutdown()).unwrap();
}

#[test]
fn a_spawned_task_allocates_a_few_times_once() {
    let (reactor, file) = reactor(DiskSetup::unlimited(), BackendKind::Null);
    let shard = Shard::new(reactor);
    let of = |tasks: u64| {
        let run = || {
            for _ in 0..tasks {
                let (task, file) = (shard.clone(), Arc::clone(&file));
                let read = shard.spawn(async move { reads(&task, &file, 10).await });
                shard.block_on(read).unwrap();
            }
        };
        measure(run).count_total
    };
    of(100);
    let each = of(1000) as f64 / 1000.0;
    println!("a spawned task with ten reads and a block_on for it: {each} allocations");
    assert!(each < 12.0, "{each} allocations a task: is each read paying?");
}
