//! Simulated requests per second of real time on one core: with one shard, eight and 192, on a disk that is the limit,
//! and on an unlimited one.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};
use plimsoll_sim::device::DeviceSpec;
use plimsoll_sim::workload::{JobSpec, Load};
use plimsoll_sim::world::{ClassSpec, ShardSpec, SimDisk, WorldSpec, run};

/// Operations a second of the simulated disk.
const IOPS: f64 = 1e6;
/// Requests in flight over all shards.
const PARALLELISM: u32 = 768;

fn world(shards: usize, config: DiskConfig) -> WorldSpec {
    let mut device = DeviceSpec::default();
    (device.rates.read_iops, device.rates.read_bytes_per_s) = (IOPS, 10e9);
    let names = ["a", "b", "c", "d"];
    let parallelism = (PARALLELISM as usize / names.len() / shards) as u32;
    let job = |name: &&str| JobSpec {
        name: (*name).into(),
        class: (*name).into(),
        load: Load::closed(parallelism),
        ..JobSpec::default()
    };
    WorldSpec {
        duration_ns: 100_000_000,
        shards: vec![ShardSpec::default(); shards],
        disks: vec![SimDisk::new(device, config)],
        classes: names.iter().zip([10, 20, 40, 80]).map(|(name, shares)| ClassSpec::new(name, shares)).collect(),
        jobs: names.iter().map(job).collect(),
        ..WorldSpec::default()
    }
}

fn limited() -> DiskConfig {
    let (iops, bandwidth) = (Rate::per_second(IOPS as u64), Rate::per_second(10_000_000_000));
    let figures =
        FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: bandwidth, write_bandwidth: bandwidth };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskConfig { model, ..DiskConfig::default() }
}

fn requests(criterion: &mut Criterion) {
    for (name, config) in [("limited", limited()), ("unlimited", DiskConfig::default())] {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        for shards in [1, 8, 192] {
            let spec = world(shards, config.clone());
            let Ok(report) = run(&spec) else { continue };
            group.throughput(Throughput::Elements(report.totals.finished));
            group.bench_function(BenchmarkId::new("shards", shards), |bencher| {
                bencher.iter(|| black_box(run(&spec).map(|report| report.log_hash)));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, requests);
criterion_main!(benches);
