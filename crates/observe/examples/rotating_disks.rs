//! Makes the recordings of docs/rotating-hot-disk.md: `rotating_disks before FILE` and `rotating_disks after FILE`.
//!
//! # Why
//! The case is real, its recording is not public. What is known of it: a cache over three volumes of 250 MB/s each took
//! in 218.54 GB in half an hour while its allocator filled one volume after the other, and 480 GB in half an hour once
//! the order was by lot.
//!
//! # How it works
//! Half an hour in intervals of ten seconds, in the format of `plimsoll stat --record`. Before, one volume has nearly
//! all of the work for two and a half minutes, then the next; after, each has its part. Half of the time of an interval
//! the cache waits for a checkpoint, so a volume that has all of the work is busy for half of it. Sums are those of the
//! case, requests are of 128 KiB, and what varies comes from a fixed sequence: a file is the same each time.
//!
//! # Limits
//! Only sums, turns and the rate of the volumes are known; times, queues and the host are plausible.
//!
//! # Example
//! `cargo run -p plimsoll-observe --example rotating_disks -- before docs/examples/rotating-before.rec`

use std::error::Error;
use std::fs::File;

use plimsoll::sys::diskstats::{self, DiskStats};
use plimsoll_observe::stat::host::{Host, Reading};
use plimsoll_observe::stat::record::Writer;
use plimsoll_observe::stat::{DeviceFacts, Facts};

const VOLUMES: usize = 3;
const INTERVALS: usize = 180;
const INTERVAL_S: u64 = 10;
/// Intervals for which a volume is hot.
const TURN: usize = 15;
const REQUEST_BYTES: f64 = 131_072.0;
/// 2023-01-06, the day on which the case was told.
const BEGIN_UNIX_MS: u64 = 1_672_999_200_000;

/// What a volume has done.
#[derive(Clone, Copy, Default)]
struct Done {
    writes: u64,
    sectors: u64,
    write_ms: u64,
    busy_ms: u64,
}

impl Done {
    /// Adds an interval: bytes, mean time of a request, requests under way while it is busy.
    fn add(&mut self, bytes: f64, await_ms: f64, depth: f64) {
        let writes = (bytes / REQUEST_BYTES).round() as u64;
        let write_ms = (writes as f64 * await_ms) as u64;
        self.writes += writes;
        self.sectors += writes * (REQUEST_BYTES as u64 / 512);
        self.write_ms += write_ms;
        self.busy_ms += ((write_ms as f64 / depth) as u64).min(1000 * INTERVAL_S);
    }

    fn line(&self, volume: usize) -> String {
        let Done { writes, sectors, write_ms, busy_ms } = self;
        let minor = volume + 1;
        format!(
            "259 {minor} nvme{minor}n1 0 0 0 0 {writes} 0 {sectors} {write_ms} 0 {busy_ms} {write_ms} 0 0 0 0 0 0\n"
        )
    }
}

/// Numbers from 0 to 1, the same each time.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }
}

/// Parts of each volume in each interval; their sum is 1.
fn parts(rotates: bool) -> Vec<[f64; VOLUMES]> {
    let mut sequence = Sequence(1);
    let part = |interval: usize, volume: usize, varied: f64| match (rotates, interval / TURN % VOLUMES == volume) {
        (true, false) => 0.02 * varied,
        _ => 0.9 + 0.2 * varied,
    };
    let mut parts: Vec<[f64; VOLUMES]> =
        (0..INTERVALS).map(|interval| std::array::from_fn(|volume| part(interval, volume, sequence.next()))).collect();
    let sum: f64 = parts.iter().flatten().sum();
    parts.iter_mut().flatten().for_each(|part| *part /= sum);
    parts
}

fn facts() -> Facts {
    let of_volume = DeviceFacts {
        model: Some("Amazon Elastic Block Store".to_owned()),
        size_bytes: Some(50 << 30),
        is_rotational: Some(false),
        nr_requests: Some(63),
        ..DeviceFacts::default()
    };
    (1..=VOLUMES).map(|volume| (format!("nvme{volume}n1"), of_volume.clone())).collect()
}

fn devices(done: &[Done; VOLUMES]) -> Result<Vec<DiskStats>, Box<dyn Error>> {
    let lines: String = done.iter().enumerate().map(|(volume, done)| done.line(volume)).collect();
    Ok(diskstats::parse(&lines)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [which, path] = arguments.as_slice() else {
        return Err("usage: rotating_disks before|after FILE".into());
    };
    let (rotates, total_bytes) = match which.as_str() {
        "before" => (true, 218.54e9),
        "after" => (false, 480e9),
        _ => return Err("expected before or after".into()),
    };
    let host = Host { name: "cache".to_owned(), kernel: "5.4.0".to_owned(), machine: "x86_64".to_owned(), cpus: 32 };
    let mut writer = Writer::new(File::create_new(path)?, &host)?;
    let facts = facts();
    let mut done = [Done::default(); VOLUMES];
    let mut append = |elapsed_s: u64, done: &[Done; VOLUMES]| -> Result<(), Box<dyn Error>> {
        let reading = Reading {
            at_unix_ms: BEGIN_UNIX_MS + 1000 * elapsed_s,
            uptime_cs: 8_640_000 + 100 * elapsed_s,
            devices: devices(done)?,
            ..Reading::default()
        };
        Ok(writer.append(&reading, &facts)?)
    };
    append(0, &done)?;
    for (interval, parts) in parts(rotates).iter().enumerate() {
        for (done, part) in done.iter_mut().zip(parts) {
            let bytes = total_bytes * part;
            let is_hot = bytes > 100e6 * INTERVAL_S as f64;
            done.add(bytes, if is_hot { 3.0 } else { 1.2 }, if is_hot { 6.0 } else { 2.4 });
        }
        append((interval as u64 + 1) * INTERVAL_S, &done)?;
    }
    Ok(())
}
