//! Network volumes, where every request takes a millisecond or two.
//!
//! # Why
//! By Little's law such a disk needs rate x latency in flight. A latency goal of 0.75 ms, made for disks in the
//! machine, would leave one request in it and three quarters of its throughput unused.
//!
//! # How it works
//! One class with 16 requests outstanding a shard, default settings, and the volume's four figures. The throughput is
//! compared with that of the volume without a scheduler, or with the promise of the figures at that length if that is
//! less: tokens are issued by the figures, and each piece of a request pays for itself.
//!
//! # Limits
//! The knee of four figures promises a gp3 volume of 3000 operations and 250 MB/s just 0.62 of its bandwidth at 128
//! KiB; `--model max` describes such a volume better, and measuring it describes it best.
//!
//! # Example
//! 250 MB/s in requests of 128 KiB, each 2 ms in flight: four must be in flight.

use plimsoll_core::{CostForm, CostModel, Disk, DiskConfig, Op};

use super::super::support::{MS, S, disk_of, reads, world_of};
use super::super::{Outcome, ScenarioError, Table, Target};
use crate::device::presets::{Preset, Provision, volumes};
use crate::world::{DiskMode, ShardSpec, SimDisk};

const GIB: u64 = 1 << 30;

/// Returns the volumes as a customer would order them.
fn ordered() -> Result<Vec<Preset>, ScenarioError> {
    let orders = [
        ("gp3", 50 * GIB, 3_000, 250_000_000),
        ("gp3", 1024 * GIB, 16_000, 1_000_000_000),
        ("gp3", 1024 * GIB, 16_000, 250_000_000),
    ];
    let order = |(name, size_bytes, iops, bytes_per_s): (&str, u64, u64, u64)| {
        let volume = volumes().iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| ScenarioError(format!("no volume is called {name}")))?;
        let ask =
            Provision { size_bytes: Some(size_bytes), iops: Some(iops), bandwidth_bytes_per_s: Some(bytes_per_s) };
        let mut preset = volume.provision(&ask).map_err(|error| ScenarioError(error.to_string()))?;
        preset.name = format!("{name}, {iops} IOPS, {} MB/s", bytes_per_s / 1_000_000);
        Ok(preset)
    };
    orders.into_iter().map(order).collect()
}

/// Runs all volumes, lengths and directions with one shard and with sixteen.
pub(super) fn far_disks(seed: u64) -> Result<Outcome, ScenarioError> {
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        "16 outstanding a shard, default settings",
        &["volume", "form", "request", "shards", "MB/s", "drained", "promised", "of the lesser", "in device"],
    );
    let mut least = f64::MAX;
    for preset in ordered()? {
        for (form, len_bytes, op, shards) in cases() {
            let model = CostModel::from_figures(&preset.figures, form, 4096, 4096);
            let config = DiskConfig { model, ..DiskConfig::default() };
            let promised = promised_bytes_per_s(&config, op, len_bytes);

            let mut run = |mode| {
                let disk = SimDisk { mode, ..SimDisk::new(preset.spec.clone(), config.clone()) };
                let mut job = reads("all", 16, len_bytes);
                job.op = op;
                let mut spec = world_of(seed, disk, &[("all", 100)], vec![job]);
                spec.shards = vec![ShardSpec::default(); shards];
                (spec.warmup_ns, spec.duration_ns) = (500 * MS, 2 * S);
                let report = outcome.run(&spec)?;
                let disk = disk_of(&report)?;
                Ok::<_, ScenarioError>((disk.bytes_per_s, disk.mean_in_device))
            };
            let (drained, _) = run(DiskMode::Drain)?;
            let (scheduled, in_device) = run(DiskMode::Scheduled)?;

            let part = scheduled / drained.min(promised);
            least = least.min(part);
            table.row([
                preset.name.clone(),
                form.to_string(),
                format!("{op:?} {} KiB", len_bytes >> 10),
                shards.to_string(),
                format!("{:.1}", scheduled / 1e6),
                format!("{:.1}", drained / 1e6),
                format!("{:.1}", promised / 1e6),
                format!("{part:.2}"),
                format!("{in_device:.1}"),
            ]);
        }
    }
    outcome.tables.push(table);
    outcome.figure("least throughput over the lesser of drained and promised", least, Target::AtLeast(0.90));
    outcome.remark("With a bound of the latency goal alone, which knew nothing of the latency, the least was 0.21.");
    Ok(outcome)
}

/// Returns the bandwidth that the figures promise for requests of `len_bytes`: each of their pieces pays for itself.
pub(super) fn promised_bytes_per_s(config: &DiskConfig, op: Op, len_bytes: u32) -> f64 {
    let piece_bytes = Disk::new(config.clone()).piece_max_bytes(op.direction());
    let whole_s = f64::from(len_bytes / piece_bytes) * config.model.cost(op, piece_bytes).as_secs_f64();
    let rest_s = match len_bytes % piece_bytes {
        0 => 0.0,
        rest_bytes => config.model.cost(op, rest_bytes).as_secs_f64(),
    };
    f64::from(len_bytes) / (whole_s + rest_s)
}

fn cases() -> impl Iterator<Item = (CostForm, u32, Op, usize)> {
    [CostForm::Knee, CostForm::Max].into_iter().flat_map(|form| {
        [4096, 128 << 10, 1 << 20].into_iter().flat_map(move |len_bytes| {
            [Op::Read, Op::Write]
                .into_iter()
                .flat_map(move |op| [1, 16].into_iter().map(move |shards| (form, len_bytes, op, shards)))
        })
    })
}
