//! Bandwidth by the length of requests, and the pieces of one request.
//!
//! # Why
//! The first document filled the disk with fio to rule out a poor use of its queue: requests had to be about 4 MB. It
//! then kept its own scheduler from splitting them, since pieces use the parallelism of the disk.
//!
//! # How it works
//! Sequential writes drained, as with fio, by depth and length: a length fills the disk from [`FULL`] of the most on.
//! Then one read at a time under our scheduler, with latency goals that cut it into ever more pieces.
//!
//! # Limits
//! Lengths are powers of two, so that a length is known to a factor of two.
//!
//! # Example
//! 16 commands of 256 KiB at 0.4 ms each, side by side: 10 GiB/s, the most that the disk writes.

use plimsoll_core::{DiskConfig, LatencyGoal, Op};

use super::super::Target::{AtLeast, AtMost, Between};
use super::super::support::{Course, MS, class_of, config_of, disk_of, preset, reads, world_of};
use super::super::{Advance, Outcome, ScenarioError, Table};
use super::plateau::{MIB, i7i_12xlarge};
use crate::workload::{JobSpec, Pattern};
use crate::world::{DiskMode, SimDisk};

const DEPTHS: [u32; 4] = [1, 2, 4, 16];
const LENGTHS_KIB: [u32; 8] = [128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/// Part of the highest rate from which a length counts as filling the disk.
const FULL: f64 = 0.95;

/// Runs fio's sweep, and reads in pieces.
pub(super) fn request_lengths(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(35, advance);
    fio_sweep(&mut course, seed)?;
    in_pieces(&mut course, seed)?;
    Ok(course.outcome)
}

fn fio_sweep(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let mut rates = Vec::new();
    for depth in DEPTHS {
        let mut of_depth = Vec::new();
        for kib in LENGTHS_KIB {
            let disk = SimDisk { mode: DiskMode::Drain, ..SimDisk::new(i7i_12xlarge()?, DiskConfig::default()) };
            let job = JobSpec { op: Op::Write, pattern: Pattern::Sequential, ..reads("fio", depth, kib << 10) };
            let mut spec = world_of(seed, disk, &[("fio", 100)], vec![job]);
            spec.duration_ns = 200 * MS;
            of_depth.push(disk_of(&course.run(&spec)?)?.bytes_per_s / MIB);
        }
        rates.push((depth, of_depth));
    }

    let most = rates.iter().flat_map(|(_, of_depth)| of_depth).copied().fold(0.0, f64::max);
    let mut columns = vec!["request".to_owned()];
    columns.extend(DEPTHS.map(|depth| format!("depth {depth}")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("i7i.12xlarge drained, sequential writes, MiB/s by depth and length", &columns);
    for (at, kib) in LENGTHS_KIB.into_iter().enumerate() {
        let cells = rates.iter().filter_map(|(_, of_depth)| of_depth.get(at)).map(|mib| format!("{mib:.0}"));
        table.row([format!("{kib} KiB")].into_iter().chain(cells));
    }

    let mut fills = vec![format!("fills from, {:.0} %", FULL * 100.0)];
    for (depth, of_depth) in &rates {
        let filling = LENGTHS_KIB.into_iter().zip(of_depth).find(|(_, mib)| **mib >= FULL * most);
        let kib = filling.map_or(f64::INFINITY, |(kib, _)| f64::from(kib));
        fills.push(format!("{kib} KiB"));
        match depth {
            1 => course.figure("depth 1: least length that fills the disk, KiB", kib, Between(4096.0, 4096.0)),
            _ => course.figure(format!("depth {depth}: the same"), kib * f64::from(*depth), AtMost(4096.0)),
        }
    }
    table.row(fills);
    course.outcome.tables.push(table);
    course.remark(
        "Published: 'the request needs to be ~4MB to fill the disk queue'. The kernel cuts a request into commands, \
         which overlap in the disk: what counts is the number of bytes in the disk, in one request or in several.",
    );
    Ok(())
}

fn in_pieces(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let mut table = Table::new(
        "i7i.12xlarge, one read of 1 MiB at a time, under our scheduler",
        &["latency goal", "pieces in the disk, most", "latency, us", "MiB/s"],
    );
    let preset = preset("i7i.12xlarge")?;
    let mut whole_us = 0.0;

    for goal_us in [1_000_000u64, 45, 12] {
        let latency_goal = LatencyGoal::Ns(goal_us * 1000);
        let unloaded_latency_ns = preset.unloaded_latency_ns;
        let config = DiskConfig { latency_goal, unloaded_latency_ns, ..config_of(&preset.figures) };
        let mut spec =
            world_of(seed, SimDisk::new(i7i_12xlarge()?, config), &[("io", 100)], vec![reads("io", 1, 1 << 20)]);
        spec.duration_ns = 200 * MS;
        let report = course.run(&spec)?;
        let (disk, latency_us) = (*disk_of(&report)?, class_of(&report, "io")?.total.mean() / 1e3);
        let most = f64::from(disk.max_in_device);
        let goal = if goal_us >= 1000 { format!("{} ms", goal_us / 1000) } else { format!("{goal_us} us") };

        match goal_us {
            1_000_000 => {
                whole_us = latency_us;
                course.figure("goal of 1000 ms: pieces of a request in the disk", most, Between(1.0, 1.0));
            }
            45 => course.figure("goal of 45 us: pieces of a request in the disk", most, AtLeast(2.0)),
            _ => {
                course.figure("goal of 12 us: pieces of a request in the disk", most, AtLeast(4.0));
                let part = latency_us / whole_us;
                course.figure("goal of 12 us: latency over that of the whole request", part, AtMost(0.85));
            }
        }
        table.row([goal, format!("{most:.0}"), format!("{latency_us:.0}"), format!("{:.0}", disk.bytes_per_s / MIB)]);
    }

    course.outcome.tables.push(table);
    course.remark(
        "A goal of 1000 ms splits nothing; half of the request's device time splits it in half, as in the document. \
         The pieces of a request are in the disk together. They gain where they are shorter than the commands into \
         which the kernel cuts anyway.",
    );
    Ok(())
}
