//! What a gate adds to a call: entering and leaving it while nobody else does, beside a read of a page that is in the page
//! cache. Aim: at most 300 ns a call.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark that panics has failed")]

use std::os::unix::fs::FileExt;

use criterion::{Criterion, criterion_group, criterion_main};
use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures, Op, Rate};
use plimsoll::{Classes, DiskSetup, Gate, Topology};

/// Limits that exist, and cost what limits cost, but are never reached.
fn limited() -> DiskSetup {
    let iops = Rate::per_second(1_000_000_000);
    let bandwidth = Rate::per_second(10_000_000_000_000);
    let figures =
        FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: bandwidth, write_bandwidth: bandwidth };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskSetup::new(DiskConfig { model, ..DiskConfig::default() })
}

fn idle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gate");
    let path = std::env::temp_dir().join(format!("plimsoll-gate-bench-{}", std::process::id()));
    std::fs::write(&path, [7; 4096]).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut buffer = [0; 4096];
    group.bench_function("plain call", |bencher| bencher.iter(|| file.read_at(&mut buffer, 0).unwrap()));
    for (name, disk) in [("limited", limited()), ("unlimited", DiskSetup::unlimited())] {
        let classes = Classes::new();
        let class = classes.add_class("query", None, 100).unwrap();
        let gate = Gate::new(&Topology::new(1, classes, vec![disk]).unwrap(), 0, 0).unwrap();
        group.bench_function(format!("{name}, enter and leave"), |bencher| {
            bencher.iter(|| drop(gate.enter(class, Op::Read, 4096).unwrap()));
        });
        group.bench_function(format!("{name}, with the call"), |bencher| {
            bencher.iter(|| {
                let permit = gate.enter(class, Op::Read, 4096).unwrap();
                let moved = file.read_at(&mut buffer, 0).unwrap();
                permit.end(Ok(moved as u32));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, idle);
criterion_main!(benches);
