//! What a span costs from a program's trace to Parquet: reading 7 events of 40 bytes, matching them, and writing 22
//! columns. Two classes have 32 requests in flight; offsets are random, times differ as those of a disk.
//!
//! Aims: at least 3 million spans a second of one CPU, at most 60 bytes each.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark that panics has failed")]

use std::io::{self, Write};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plimsoll::core::trace::{Event, EventKind};
use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::{ClassName, Clock, FileName, Names, Writer};
use plimsoll_observe::trace;
use plimsoll_observe::trace::export::{Export, Form};
use plimsoll_observe::trace::show::Head;
use plimsoll_sim::rng::Rng;

const REQUESTS: u64 = 300_000;
const DEPTH: usize = 32;

/// The trace of a shard, and its names.
fn recorded() -> (Vec<u8>, Names) {
    let mut names = Names::default();
    for (number, name) in [(1, "query"), (2, "batch")] {
        names.classes.insert(number, ClassName { name: name.to_owned(), shares: 100 });
    }
    names.files.insert(1, FileName { path: "/var/data".to_owned(), disk: 0 });
    names.disks.insert(0, "/var".to_owned());

    let mut rng = Rng::new(1);
    let mut events = Vec::new();
    let mut in_flight: Vec<Event> = Vec::new();
    let mut now_ns = 1_000_000_000;
    for request in 1..=REQUESTS {
        let class = 1 + rng.below(2) as u16;
        let (op, len_bytes, cost_ns) = if class == 1 { (Op::Read, 4096, 9_000) } else { (Op::Write, 16_384, 31_000) };
        let queued = Event {
            time_ns: now_ns,
            request,
            offset_bytes: 4096 * rng.below(1 << 24),
            len_bytes,
            detail: 1,
            class,
            disk: 0,
            piece: 0,
            kind: EventKind::Queued,
            op,
            reason: None,
        };
        let reason = [None, Some(WaitReason::Fairness), Some(WaitReason::Tokens)][rng.below(3) as usize];
        let mut station = |event: Event, kind, detail, reason| {
            now_ns += 100 + rng.below(1000);
            events.push(Event { kind, detail, reason, time_ns: now_ns, ..event });
        };
        station(queued, EventKind::Queued, 1, None);
        station(queued, EventKind::Dispatched, cost_ns, reason);
        station(queued, EventKind::Submitted, 0, None);
        in_flight.push(queued);
        if in_flight.len() == DEPTH {
            let back = in_flight.swap_remove(request as usize * 7 % DEPTH);
            station(back, EventKind::Completed, request as u32 % 500, None);
            for kind in [EventKind::Reaped, EventKind::Finished, EventKind::Callback] {
                station(back, kind, 0, None);
            }
        }
    }

    let mut trace = Vec::new();
    let mut writer = Writer::new(&mut trace, Clock::Monotonic, 1_773_532_799_000_000_000).unwrap();
    writer.names(&names).unwrap();
    // What the thread of a recording takes from a ring at a time.
    events.chunks(10_000).for_each(|events| writer.events(0, 0, events).unwrap());
    (trace, names)
}

/// Returns the number of spans.
fn export(trace: &[u8], names: &Names, out: impl Write + Send) -> u64 {
    let head = Head { names: names.clone(), ..Head::default() };
    let mut export = Export::begin(Form::Parquet, out, head).unwrap();
    trace::read_from(trace, &mut |item| export.visit(&item)).unwrap();
    export.finish().unwrap().rows
}

fn spans(criterion: &mut Criterion) {
    let (trace, names) = recorded();
    let mut out = Vec::new();
    let spans = export(&trace, &names, &mut out);
    println!("{spans} spans of {:.1} bytes", out.len() as f64 / spans as f64);

    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(spans));
    group.sample_size(10);
    group.bench_function("read", |bencher| {
        bencher.iter(|| trace::read_from(trace.as_slice(), &mut |_| {}).unwrap().spans);
    });
    group.bench_function("to parquet", |bencher| bencher.iter(|| export(&trace, &names, io::sink())));
    group.finish();
}

criterion_group!(benches, spans);
criterion_main!(benches);
