//! Small worlds that the tests share.

use plimsoll_core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};
use plimsoll_sim::device::{DeviceSpec, LatencySpec, RateSpec};
use plimsoll_sim::workload::{JobSpec, Load};
use plimsoll_sim::world::{ClassSpec, ShardSpec, SimDisk, WorldSpec};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// Operations a second of the usual disk, reads as well as writes.
pub(crate) const IOPS: u64 = 100_000;
const BYTES_PER_S: u64 = 1_000_000_000;

/// Returns the scheduler's settings for the usual disk.
pub(crate) fn config() -> DiskConfig {
    let (iops, bandwidth) = (Rate::per_second(IOPS), Rate::per_second(BYTES_PER_S));
    let figures =
        FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: bandwidth, write_bandwidth: bandwidth };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskConfig { model, ..DiskConfig::default() }
}

/// Returns a device of `factor` times the scheduler's model.
pub(crate) fn device(factor: f64) -> DeviceSpec {
    let (iops, bytes_per_s) = (IOPS as f64 * factor, BYTES_PER_S as f64 * factor);
    let rates = RateSpec {
        read_iops: iops,
        write_iops: iops,
        read_bytes_per_s: bytes_per_s,
        write_bytes_per_s: bytes_per_s,
        ..RateSpec::default()
    };
    let latency = LatencySpec { read_ns: 80e3, write_ns: 80e3, ..LatencySpec::default() };
    DeviceSpec { rates, latency, ..DeviceSpec::default() }
}

pub(crate) fn disk() -> SimDisk {
    SimDisk::new(device(1.0), config())
}

/// Returns a disk without a model, so that every request is dispatched at once.
pub(crate) fn unlimited_disk() -> SimDisk {
    SimDisk::new(device(1.0), DiskConfig::default())
}

/// Returns a closed loop of 4 KiB reads in the class of its own name.
pub(crate) fn reads(name: &str, parallelism: u32) -> JobSpec {
    JobSpec { name: name.into(), class: name.into(), load: Load::closed(parallelism), ..JobSpec::default() }
}

/// Returns one shard and one usual disk, with a class (100 shares) for each job.
pub(crate) fn world(jobs: Vec<JobSpec>) -> WorldSpec {
    let classes = jobs.iter().map(|job| ClassSpec::new(&job.class, 100)).collect();
    WorldSpec { disks: vec![disk()], classes, jobs, duration_ns: S / 2, ..WorldSpec::default() }
}

pub(crate) fn shards(count: usize) -> Vec<ShardSpec> {
    vec![ShardSpec::default(); count]
}

/// Checks that two values agree within `percent` per cent.
#[track_caller]
pub(crate) fn assert_near(measured: f64, expected: f64, percent: f64, what: &str) {
    let off = (measured / expected - 1.0).abs() * 100.0;
    assert!(off <= percent, "{what}: {measured} instead of {expected}, off by {off:.2} %");
}
