//! Tests of reading, by the form of the source, and their helpers.

mod archives;
mod counters;
mod damage;
mod iostat;
mod ours;
mod samples;

use std::path::PathBuf;

use super::*;
use crate::stat::{Columns, DeviceInterval};

type Field = (&'static str, fn(&Columns) -> Option<f64>);

const FIELDS: [Field; 24] = [
    ("r/s", |c| c.reads_per_s),
    ("w/s", |c| c.writes_per_s),
    ("d/s", |c| c.discards_per_s),
    ("f/s", |c| c.flushes_per_s),
    ("rkB/s", |c| c.read_kib_per_s),
    ("wkB/s", |c| c.write_kib_per_s),
    ("dkB/s", |c| c.discard_kib_per_s),
    ("rrqm/s", |c| c.read_merges_per_s),
    ("wrqm/s", |c| c.write_merges_per_s),
    ("%rrqm", |c| c.read_merged_percent),
    ("%wrqm", |c| c.write_merged_percent),
    ("r_await", |c| c.read_await_ms),
    ("w_await", |c| c.write_await_ms),
    ("d_await", |c| c.discard_await_ms),
    ("f_await", |c| c.flush_await_ms),
    ("rareq-sz", |c| c.read_size_kib),
    ("wareq-sz", |c| c.write_size_kib),
    ("dareq-sz", |c| c.discard_size_kib),
    ("aqu-sz", |c| c.queue),
    ("%util", |c| c.util_percent),
    ("await", |c| c.await_ms),
    ("areq-sz", |c| c.size_kib),
    ("tps", |c| c.transfers_per_s),
    ("kB/s", |c| c.all_kib_per_s),
];

fn samples() -> Vec<(String, Vec<u8>)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stat_samples");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.collect();
    paths.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect()
}

fn sample(name: &str) -> Vec<u8> {
    samples().into_iter().find(|(other, _)| other == name).unwrap().1
}

fn read_sample(name: &str, interval_s: Option<f64>) -> Recorded {
    read(name, &sample(name), &ReadOptions { interval_s, ..ReadOptions::default() }).unwrap()
}

fn text(text: &str) -> Recorded {
    read("text", text.as_bytes(), &ReadOptions::default()).unwrap()
}

/// Formats the known columns to six decimals: `r/s 1.5, w/s 2`.
fn known(device: &DeviceInterval) -> String {
    let known = FIELDS.iter().filter_map(|(name, field)| {
        let value = field(&device.columns)?;
        Some(format!("{name} {}", (value * 1e6).round() / 1e6))
    });
    known.collect::<Vec<_>>().join(", ")
}
