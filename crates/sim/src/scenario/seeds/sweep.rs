//! Throughput, latency and the queue in the disk by parallelism, and the limiter that they reveal.
//!
//! # Why
//! A saturated disk answers later as parallelism grows. If neither throughput nor latency changes, the limiter is
//! above the disk. This is the best single rule in the source documents.
//!
//! # How it works
//! Each point is a closed loop. Little's law, queue = rate x latency, must hold at each. [`verdict`] compares the last
//! two points.
//!
//! # Limits
//! The rule needs points beyond the knee: if throughput still grows, the verdict says so.
//!
//! # Example
//! 32 to 64 fibers: throughput +0.1 %, latency in the disk +0.2 %: the limiter is above the disk.

use plimsoll_core::{DiskConfig, Op};

use super::super::Target::{AtLeast, AtMost, Between};
use super::super::support::{Course, MS, class_of, disk_of};
use super::super::{Advance, Outcome, ScenarioError, Series, Table};
use super::plateau::{MIB, i7i_12xlarge, loop_of, old_defaults};
use crate::world::SimDisk;

/// Parallelisms of the sweep. 32 and 64 are beyond the document's: 128 KiB saturate nothing with 16.
const FIBERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Growth between points of doubled parallelism below which a figure counts as flat.
const FLAT: f64 = 1.1;

#[derive(Clone, Copy, Debug)]
struct Point {
    fibers: u32,
    iops: f64,
    in_disk: f64,
    latency_ns: f64,
}

/// The limiter of throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limiter {
    /// None yet: more parallelism gives more.
    Parallelism,
    /// The disk: latency grows instead.
    Disk,
    /// Neither grows: the limiter is above the disk.
    AboveDisk,
}

impl Limiter {
    fn words(self) -> &'static str {
        match self {
            Limiter::Parallelism => "more parallelism gives more",
            Limiter::Disk => "the disk",
            Limiter::AboveDisk => "limiter above the disk",
        }
    }
}

fn verdict(points: &[Point]) -> Limiter {
    let [.., before, last] = points else { return Limiter::Parallelism };
    match (last.iops / before.iops > FLAT, last.latency_ns / before.latency_ns > FLAT) {
        (true, _) => Limiter::Parallelism,
        (false, true) => Limiter::Disk,
        (false, false) => Limiter::AboveDisk,
    }
}

/// Runs two sizes and seven parallelisms, with old defaults and with ours.
pub(super) fn parallelism_sweep(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(28, advance);
    let mut throughput = Series {
        title: "throughput by parallelism, i7i.12xlarge".into(),
        x: "fibers".into(),
        y: "MiB/s".into(),
        curves: Vec::new(),
    };
    let mut queue =
        Series { title: "queue in the disk by parallelism".into(), y: "requests".into(), ..throughput.clone() };
    let mut worst_little = 0f64;

    for len_bytes in [128u32 << 10, 1 << 20] {
        for (name, config, expected) in
            [("old defaults", old_defaults(), Limiter::AboveDisk), ("ours", DiskConfig::default(), Limiter::Disk)]
        {
            let mut points = Vec::new();
            for fibers in FIBERS {
                let mut spec =
                    loop_of(seed, SimDisk::new(i7i_12xlarge()?, config.clone()), Op::Read, fibers, len_bytes);
                spec.duration_ns = 200 * MS;
                let report = course.run(&spec)?;
                let (disk, class) = (disk_of(&report)?, class_of(&report, "io")?);
                let point =
                    Point { fibers, iops: disk.iops, in_disk: disk.mean_in_device, latency_ns: class.device.mean() };
                worst_little = worst_little.max((point.in_disk / (point.latency_ns / 1e9) / point.iops - 1.0).abs());
                points.push(point);
            }

            let title = format!("{} KiB, {name}", len_bytes >> 10);
            let found = verdict(&points);
            course.outcome.tables.push(table_of(&title, len_bytes, &points, found));
            course.figure(
                format!("{title}: the verdict is '{}'", expected.words()),
                f64::from(u8::from(found == expected)),
                AtLeast(1.0),
            );
            if name == "old defaults" && len_bytes == 1 << 20 {
                let plateau = points.last().map_or(0.0, |point| point.in_disk);
                course.figure("1 MiB, old defaults: queue in the disk", plateau, Between(3.5, 4.5));
            }

            let curve =
                |y: &dyn Fn(&Point) -> f64| points.iter().map(|point| (f64::from(point.fibers), y(point))).collect();
            throughput.curves.push((title.clone(), curve(&|point| point.iops * f64::from(len_bytes) / MIB)));
            queue.curves.push((title, curve(&|point| point.in_disk)));
        }
    }

    course.outcome.series = vec![throughput, queue];
    course.figure("Little's law: largest deviation, %", worst_little * 100.0, AtMost(2.0));
    course.remark(
        "As published: 1 MiB saturates with far fewer fibers than 128 KiB; under old defaults the queue in the disk \
         stays at 4 requests of 1 MiB from 4 fibers on, and neither throughput nor latency moves. That it is 4 \
         follows from the device's latency (0.49 ms) and the plateau (8188 a second).",
    );
    course.remark("The document draws disk_queue_length / latency per branch: that is the throughput (last column).");
    Ok(course.outcome)
}

fn table_of(title: &str, len_bytes: u32, points: &[Point], found: Limiter) -> Table {
    let mut table = Table::new(
        format!("{title}: {}", found.words()),
        &["fibers", "MiB/s", "in-disk queue", "in-disk latency, us", "queue / latency, 1/s"],
    );
    for point in points {
        table.row([
            point.fibers.to_string(),
            format!("{:.0}", point.iops * f64::from(len_bytes) / MIB),
            format!("{:.2}", point.in_disk),
            format!("{:.0}", point.latency_ns / 1e3),
            format!("{:.0}", point.in_disk / (point.latency_ns / 1e9)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let point = |fibers, iops, latency_ns| Point { fibers, iops, in_disk: 0.0, latency_ns };
        for (second, expected) in [
            (point(8, 190.0, 1.0), Limiter::Parallelism),
            (point(8, 100.0, 2.0), Limiter::Disk),
            (point(8, 101.0, 1.02), Limiter::AboveDisk),
        ] {
            assert_eq!(verdict(&[point(4, 100.0, 1.0), second]), expected);
        }
        assert_eq!(verdict(&[]), Limiter::Parallelism);
    }
}
