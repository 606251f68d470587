//! The targets: one function for each reader of text.
//!
//! # Why
//! Configuration files, tables and the kernel's own texts come from outside. Whatever stands in them, reading must end in
//! a value or an error, never in a panic; and what a writer prints must be read as what was meant.
//!
//! # How it works
//! Each function here takes any text, reads it, and panics when a promise is broken. The programs in `fuzz_targets/` hand
//! them what libFuzzer thinks up. The test of this crate hands them mutations of the texts in `corpus/`, from a fixed
//! seed, so that every target runs without nightly too.
//!
//! # Limits
//! Texts only: a file that is not UTF-8 is refused before any of these readers sees it.
//!
//! # Example
//! ```
//! plimsoll_fuzz::io_properties("disks: [{mountpoint: /mnt, read_iops: 1"); // refused, and no panic
//! plimsoll_fuzz::units("1.5ms");
//! ```

use std::collections::HashSet;
use std::fmt::Debug;
use std::path::Path;

use plimsoll::sys::{diskstats, mounts};
use plimsoll_sim::device;
use plimsoll_tools::config::error::ConfigError;
use plimsoll_tools::config::scenario::ScenarioFile;
use plimsoll_tools::config::sched_groups::SchedGroups;
use plimsoll_tools::config::{
    csv, disk, fio as fio_files, io_properties as properties, jobs as job_files, sched_groups as groups,
};
use plimsoll_tools::tune::{analyse, pictures, record::Record};
use plimsoll_tools::{presets as instances, setup, units as figures};

/// What messages call the text.
const NAME: &str = "fuzz";

/// A target.
pub type Target = fn(&str);

/// All targets by name; the seeds of each lie in `corpus/NAME/`.
pub const TARGETS: [(&str, Target); 13] = [
    ("arrivals", arrivals),
    ("disk", disk_file),
    ("diskstats", disk_stats),
    ("fio", fio),
    ("io_properties", io_properties),
    ("jobs", jobs),
    ("mountinfo", mountinfo),
    ("presets", presets),
    ("scenario", scenario),
    ("sched_groups", sched_groups),
    ("surface", surface),
    ("tune_record", tune_record),
    ("units", units),
];

/// Runs `target` on `bytes` if they are a text.
pub fn run(target: Target, bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        target(text);
    }
}

/// The value, or `None` after the error has been made to speak.
fn accepted<T>(result: Result<T, ConfigError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!error.message().is_empty(), "an error without a message");
            assert!(!error.to_string().is_empty() && !error.render_with_colour().is_empty());
            None
        }
    }
}

/// What a writer has printed must be read.
fn read_again<T>(written: &str, result: Result<T, ConfigError>) -> T {
    result.unwrap_or_else(|error| panic!("what was written is refused:\n{written}\n{error}"))
}

/// Fails unless both are the same.
fn same<T: PartialEq + Debug>(written: &str, first: &T, again: &T) {
    assert!(first == again, "what was written is read as something else:\n{written}\n{first:?}\n{again:?}");
}

/// `io-properties.yaml`: read, written, read again.
pub fn io_properties(text: &str) {
    let Some(first) = accepted(properties::parse(NAME, text)) else { return };
    let written = properties::write(&first.disks);
    let again = read_again(&written, properties::parse(NAME, &written));
    same(&written, &first.disks, &again.disks);
    // Warnings are about the text, and must be printable.
    assert!(first.warnings.iter().all(|warning| !warning.to_string().is_empty()));
}

/// `disk.yaml`: read, written, read again. Its writer replaces quotes in a name, so that the second writing is compared
/// with the first.
pub fn disk_file(text: &str) {
    let Some(first) = accepted(disk::parse(NAME, text)) else { return };
    let _ = first.config();
    let written = disk::write(&first);
    let again = read_again(&written, disk::parse(NAME, &written));
    same(&written, &written, &disk::write(&again));
    same(&written, &first.figures, &again.figures);
    same(&written, &first.tables, &again.tables);
    same(&written, &first.name.map(|name| name.replace(['"', '\\'], "_")), &again.name);
}

/// Job files, and the check against a number of shards.
pub fn jobs(text: &str) {
    let Some(file) = accepted(job_files::parse(NAME, text, &SchedGroups::default())) else { return };
    for shards in [1, 3, u32::MAX] {
        accepted(file.validate(shards));
    }
}

/// Job files of fio: clones have names of their own, each runs on one shard, and no stage is empty.
pub fn fio(text: &str) {
    let Some(file) = accepted(fio_files::parse_in(NAME, text, &|name| (name == "SIZE").then(|| "64m".to_owned())))
    else {
        return;
    };
    for shards in [0, 1, 3, u16::MAX] {
        let jobs = file.jobs_for(shards);
        let names: HashSet<&str> = jobs.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names.len(), jobs.jobs.len(), "a name twice");
        let stages: HashSet<u32> = jobs.jobs.iter().map(|job| job.stage).collect();
        assert!((0..stages.len() as u32).all(|stage| stages.contains(&stage)), "an empty stage: {stages:?}");
        accepted(jobs.validate(shards.max(1).into()));
    }
}

/// Files of scheduling groups.
pub fn sched_groups(text: &str) {
    let Some(file) = accepted(groups::parse(NAME, text)) else { return };
    for name in file.class_names() {
        assert!(file.position(name).is_some(), "class {name} has no position");
    }
}

/// Scenario files. Files that they name are looked for where there are none.
pub fn scenario(text: &str) {
    let Some(file) = accepted(ScenarioFile::parse(NAME, text, Path::new("/nonexistent"))) else { return };
    accepted(file.scenario(&[]));
    accepted(file.scenario(&[("shards".to_owned(), "2".to_owned())]));
}

/// Tables of measured latencies.
pub fn surface(text: &str) {
    if let Some(cells) = accepted(csv::parse_surface(NAME, text)) {
        assert!(!cells.is_empty(), "an empty surface was accepted");
    }
}

/// Recorded arrivals: in order of time, and no transfer without a length.
pub fn arrivals(text: &str) {
    let Some(list) = accepted(csv::parse_arrivals(NAME, text)) else { return };
    assert!(list.is_sorted_by_key(|arrival| arrival.at_ns), "arrivals go back in time");
    assert!(list.iter().all(|arrival| arrival.len_bytes > 0 || !arrival.op.is_transfer()));
}

/// Figures with units: whatever is accepted is accepted as plain digits too, with the same meaning, and can be printed.
pub fn units(text: &str) {
    let wholes = [
        figures::parse_io_properties_figure,
        figures::parse_io_tester_size_bytes,
        figures::parse_size_bytes,
        figures::parse_rate_bytes_per_s,
        figures::parse_count,
    ];
    for parse in wholes {
        if let Ok(value) = parse(text) {
            assert!(parse(&value.to_string()).is_ok_and(|again| again == value), "{value} is read as something else");
            print_figure(value);
        }
    }
    for parse in [figures::parse_io_tester_duration_ns, figures::parse_duration_ns] {
        if let Ok(value_ns) = parse(text) {
            let again = parse(&format!("{value_ns}ns"));
            assert!(again.is_ok_and(|again| again == value_ns), "{value_ns}ns is read as something else");
            print_figure(value_ns);
        }
    }
    if let Ok(config) = setup::parse_capacity_scale(text) {
        assert!(!config.enabled || config.scale_min <= config.scale_max, "{config:?}");
    }
}

fn print_figure(value: u64) {
    let texts = [
        figures::format_bytes_binary(value),
        figures::format_bytes_decimal(value),
        figures::format_throughput_binary(value as f64),
        figures::format_throughput_decimal(value as f64),
        figures::format_iops_short(value as f64),
        figures::format_iops(value as f64),
        figures::format_count(value),
        figures::format_duration_ns(value),
    ];
    assert!(texts.iter().all(|text| !text.is_empty()));
}

/// Names of presets: what is found has that name, and a simulated disk of that name can be written and read.
pub fn presets(text: &str) {
    if let Some(instance) = instances::find(text) {
        assert!(instance.name.eq_ignore_ascii_case(text));
        assert!(instances::family(text).iter().any(|member| member.name == instance.name));
    }
    if let Some(name) = instances::closest_name(text) {
        assert!(instances::find(name).is_some(), "{name} is suggested and unknown");
    }
    if let Some(preset) = device::presets::find(text) {
        disk_file(&disk::write(&disk::DiskModel::of_preset(&preset)));
    }
    // Any text as two figures.
    let mut numbers = text.bytes().fold([1_u64, 1], |[a, b], byte| [b, a.wrapping_mul(31).wrapping_add(byte.into())]);
    numbers.sort_unstable();
    let [read_iops, read_bandwidth_bytes_per_s] = numbers;
    let near = instances::nearest_by_reads(read_iops, read_bandwidth_bytes_per_s);
    assert!(near.is_none_or(|instance| instances::find(instance.name).is_some()));
}

/// Texts like `/proc/diskstats`.
pub fn disk_stats(text: &str) {
    let Ok(devices) = diskstats::parse(text) else { return };
    for (earlier, later) in devices.iter().zip(devices.iter().skip(1)) {
        let _ = later.counters.since(&earlier.counters);
        let _ = [later.counters.read_bytes(), later.counters.write_bytes(), later.counters.discard_bytes()];
    }
}

/// Texts like `/proc/self/mountinfo`: every mount holds its own mount point.
pub fn mountinfo(text: &str) {
    let mounts = mounts::parse(text);
    for mount in &mounts {
        let holder = mounts::holding(&mounts, Path::new(&mount.mountpoint));
        assert!(holder.is_some(), "nothing holds {:?}", mount.mountpoint);
    }
}

/// Records of measurements: whatever stands in one, it can be analysed and shown.
pub fn tune_record(text: &str) {
    match Record::parse(NAME, text) {
        Ok(record) => {
            let report = analyse(&record);
            assert!(!pictures::page(&report).contains("NaN"), "not a number in a page");
            let _ = (report.disk_properties(), report.disk_model(), report.to_csv());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod mutations;
