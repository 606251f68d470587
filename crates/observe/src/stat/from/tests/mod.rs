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
