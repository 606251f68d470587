//! Mutations of the seeds, from a fixed seed: the targets without libFuzzer.
//!
//! # Why
//! libFuzzer needs nightly. On stable the targets must run, too.
//!
//! # How it works
//! Each text of `fuzz/corpus/TARGET/` is run as it is. Then, round after round, a text is chosen, changed in one to eight
//! places (bytes removed, doubled, replaced, words put in, another text spliced in), and run. `PLIMSOLL_FUZZ_ROUNDS` is
//! the number of rounds of each target, `PLIMSOLL_FUZZ_SEED` the seed of the random numbers.
//!
//! # Limits
//! Nothing guides it: no coverage, no reduction of what fails.
//!
//! # Example
//! `PLIMSOLL_FUZZ_ROUNDS=100000 cargo test --release -p plimsoll-fuzz-targets --lib`

use std::path::Path;

use crate::{TARGETS, Target, run};

/// Rounds of each target without `PLIMSOLL_FUZZ_ROUNDS`.
const ROUNDS: u64 = 1_000;
/// Longest text, in bytes, that is changed further.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Words that mean something to one reader or another.
const WORDS: [&str; 48] = [
    "\n",
    "\n- ",
    ": ",
    ", ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "!!int ",
    "---\n",
    "|\n",
    "? ",
    "<<: ",
    "null",
    "~",
    "true",
    "0",
    "1",
    "-1",
    "0x10",
    "1e309",
    ".inf",
    ".nan",
    "infinite",
    "1_000",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "4294967295",
    "1k",
    "5MiB",
    "10ms",
    "1.5ms",
    "p99",
    "all",
    "\u{0}",
    "\u{feff}",
    "\\0",
    "\\n",
    "\\x7f",
    "\\u2028",
    "\t",
    "é",
];

/// xorshift64 (Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    /// Returns start and end of a part of `len_bytes` bytes, mostly a short one.
    fn part(&mut self, len_bytes: usize) -> (usize, usize) {
        let start = self.below(len_bytes + 1);
        let longest = if self.below(4) == 0 { len_bytes - start } else { (len_bytes - start).min(16) };
        (start, start + self.below(longest + 1))
    }
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], numbers: &mut Numbers) {
    let (start, end) = numbers.part(bytes.len());
    match numbers.below(6) {
        0 => drop(bytes.drain(start..end)),
        1 => {
            let part = bytes[start..end].to_vec();
            bytes.splice(end..end, part);
        }
        2 if start < bytes.len() => bytes[start] = numbers.below(256) as u8,
        3 if start < bytes.len() => bytes[start] ^= 1 << numbers.below(8),
        4 => {
            let other = &seeds[numbers.below(seeds.len())];
            let (from, to) = numbers.part(other.len());
            bytes.splice(start..end, other[from..to].iter().copied());
        }
        _ => {
            let word = WORDS[numbers.below(WORDS.len())];
            let replaced = if numbers.below(2) == 0 { start } else { end };
            bytes.splice(start..replaced, word.bytes());
        }
    }
    bytes.truncate(TEXT_BYTES_MAX);
}

/// Runs `target`; fails with the input that broke it.
fn check(name: &str, target: Target, bytes: &[u8]) {
    // As text, so that no round is wasted on bytes that are none.
    let text = String::from_utf8_lossy(bytes);
    let outcome = std::panic::catch_unwind(|| run(target, text.as_bytes()));
    assert!(outcome.is_ok(), "target {name} fails on {text:?}");
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // A directory has no order.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap_or_default()).collect()
}

fn mutate_all(names: &[&str]) {
    let rounds = from_environment("PLIMSOLL_FUZZ_ROUNDS").unwrap_or(ROUNDS);
    let start = from_environment("PLIMSOLL_FUZZ_SEED").unwrap_or(1);
    for (name, target) in TARGETS.into_iter().filter(|(name, _)| names.contains(name)) {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "target {name} has no seeds in corpus/{name}");
        seeds.iter().for_each(|seed| check(name, target, seed));
        let mut numbers = Numbers(start.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..rounds {
            let mut bytes = seeds[numbers.below(seeds.len())].clone();
            for _ in 0..=numbers.below(8) {
                mutate(&mut bytes, &seeds, &mut numbers);
            }
            check(name, target, &bytes);
        }
    }
}

#[test]
fn yaml_files() {
    mutate_all(&["disk", "io_properties", "jobs", "scenario", "sched_groups"]);
}

#[test]
fn tables_and_figures() {
    mutate_all(&["arrivals", "find_rate", "presets", "scaling", "surface", "sweep", "units"]);
}

#[test]
fn texts_of_the_kernel() {
    mutate_all(&["blkparse", "blktrace", "diskstats", "mountinfo"]);
}

#[test]
fn files_and_outputs_of_others() {
    mutate_all(&["fio", "rbd"]);
}

#[test]
fn saved_counters() {
    mutate_all(&["diskstats_samples", "iostat_json", "iostat_text", "stat_record"]);
}

#[test]
fn results() {
    mutate_all(&["compare", "report", "tune_record"]);
}

#[test]
fn reports_of_other_programs() {
    mutate_all(&["iperf3", "stress_ng"]);
}

fn stat_reads(text: &str) -> bool {
    use plimsoll_observe::stat::from;
    from::read("seed", text.as_bytes(), &plimsoll_observe::stat::ReadOptions::default()).is_ok()
}

#[test]
fn seeds_are_accepted() {
    use plimsoll_files::rbd;
    use plimsoll_files::scenario::ScenarioFile;
    use plimsoll_files::{csv, disk, fio, io_properties, job_reader, sched_groups};
    use plimsoll_measure::experiment::find_rate::Goal;
    use plimsoll_measure::experiment::sweep::Axis;
    use plimsoll_measure::instance::scaling;
    use plimsoll_measure::report::TestReport;
    use plimsoll_measure::tune::record::Record;
    use plimsoll_observe::trace::kernel;
    for (name, accepts) in [
        ("arrivals", (|text| csv::parse_arrivals("seed", text).map(drop)) as fn(&str) -> Result<(), _>),
        ("disk", |text| disk::parse("seed", text).map(drop)),
        ("fio", |text| fio::parse("seed", text).map(drop)),
        ("io_properties", |text| io_properties::parse("seed", text).map(drop)),
        ("jobs", |text| job_reader::parse("seed", text, &sched_groups::SchedGroups::default()).map(drop)),
        ("scaling", |text| scaling::parse_csv("seed", text).map(drop)),
        ("scenario", |text| ScenarioFile::parse("seed", text, Path::new("/nonexistent"))?.scenario(&[]).map(drop)),
        ("sched_groups", |text| sched_groups::parse("seed", text).map(drop)),
        ("surface", |text| csv::parse_surface("seed", text).map(drop)),
    ] {
        for seed in seeds(name) {
            let text = String::from_utf8_lossy(&seed);
            accepts(&text).unwrap_or_else(|error| panic!("a mutation of what is refused reaches little\n{error}"));
        }
    }
    for (name, accepts) in [
        ("blkparse", (|text| kernel::read_blkparse(&mut text.as_bytes(), &mut |_| {}).is_ok()) as fn(&str) -> bool),
        ("blktrace", |text| kernel::read_blktrace(&mut text.as_bytes(), &mut |_| {}).is_ok()),
        ("diskstats_samples", stat_reads),
        ("find_rate", |text| Goal::parse(text).is_ok()),
        ("iostat_json", stat_reads),
        ("iostat_text", stat_reads),
        ("rbd", |text| rbd::parse(text).is_ok()),
        ("report", |text| TestReport::from_json(text).is_ok()),
        ("sweep", |text| text.lines().all(|line| Axis::parse(line).is_ok())),
        ("stat_record", stat_reads),
        ("tune_record", |text| Record::parse("seed", text).is_ok()),
    ] {
        for seed in seeds(name) {
            let text = String::from_utf8_lossy(&seed);
            assert!(accepts(&text), "a mutation of what is refused reaches little\n{text}");
        }
    }
}
