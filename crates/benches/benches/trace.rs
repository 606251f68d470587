//! What recording costs a shard: batches of 4 KiB reads through the null backend, which finishes each at once, while nothing
//! is recorded and while everything is. A request has seven stations, so the difference of a request, divided by seven, is
//! the cost of an event; the rings are emptied meanwhile by their thread, as always.
//!
//! Aims: at most 60 ns an event while recording, at most 5 ns a station while not.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark that panics has failed")]

use std::io::Write;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::trace::format::{Clock, Writer};
use plimsoll::trace::{TraceConfig, TraceSummary};
use plimsoll::{Class, Classes, Data, DiskSetup, Done, Reactor, Request, RequestKind, SharedFile, Topology};

const BATCH: usize = 64;
const LEN_BYTES: usize = 4096;

struct World {
    topology: Topology,
    reactor: Reactor,
    file: Arc<SharedFile>,
    buffers: Vec<AlignedBuf>,
    done: Vec<Done>,
    requests: u64,
}

fn world() -> World {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let reactor = Reactor::new(0, &topology, BackendKind::Null.make(256).unwrap()).unwrap();
    let file = topology.file("null".as_ref(), OpenOptions::default(), 0);
    let buffers = (0..BATCH).map(|_| AlignedBuf::new(LEN_BYTES).unwrap()).collect();
    World { topology, reactor, file, buffers, done: Vec::with_capacity(BATCH), requests: 0 }
}

/// A batch in, through the scheduler, and out.
fn turn(world: &mut World) {
    let kind = RequestKind::Read { len_bytes: LEN_BYTES as u32 };
    for tag in 0..BATCH as u64 {
        let (file, data) = (Arc::clone(&world.file), Data::One(world.buffers.pop().unwrap()));
        let request = Request { file, class: Class::DEFAULT, kind, offset: tag * 4096, data, tag };
        world.reactor.submit(request).unwrap();
    }
    while world.buffers.len() < BATCH {
        world.reactor.park(None).unwrap();
        world.reactor.reap(&mut world.done);
        for end in world.done.drain(..) {
            world.requests += 1;
            if let Data::One(buffer) = end.data {
                world.buffers.push(buffer);
            }
        }
    }
}

fn stations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut off = world();
    group.bench_function("off", |bencher| bencher.iter(|| turn(&mut off)));
    let mut on = world();
    let out: Box<dyn Write + Send> = Box::new(std::io::sink());
    let config = TraceConfig { ring_events: 1 << 20, ..TraceConfig::default() };
    on.topology.trace().start(Writer::new(out, Clock::Monotonic, 0).unwrap(), config).unwrap();
    turn(&mut on);
    on.requests = 0;
    group.bench_function("on", |bencher| bencher.iter(|| turn(&mut on)));
    if let Some(TraceSummary { events, dropped_events, .. }) = on.topology.trace().stop() {
        let each = (events + dropped_events) as f64 / on.requests.max(1) as f64;
        println!("{events} events recorded, {dropped_events} dropped: {each:.2} a request");
    }
    group.finish();
}

criterion_group!(benches, stations);
criterion_main!(benches);
