//! The targets: one function for each reader of text.
//!
//! # Why
//! Configuration files, tables and the kernel's own texts come from outside. Whatever stands in them, reading must end in
//! a value or an error, never in a panic; and a file that a writer prints must be read with the same meaning.
//!
//! # How it works
//! Each function here takes any text, reads it, and panics when a promise is broken. The programs in
//! `fuzz/fuzz_targets/` hand them the texts that libFuzzer makes up. The test of this crate hands them mutations of the texts in
//! `fuzz/corpus/`, from a fixed seed, so that every target runs without nightly too.
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
use plimsoll_figures::units as figures;
use plimsoll_files::error::ConfigError;
use plimsoll_files::rbd;
use plimsoll_files::scenario::ScenarioFile;
use plimsoll_files::sched_groups::SchedGroups;
use plimsoll_files::{
    csv, disk, fio as fio_files, io_properties as properties, job_reader as job_files, sched_groups as groups,
};
use plimsoll_files::{presets as instances, setup};
use plimsoll_measure::compare::{self, CompareOptions, Source};
use plimsoll_measure::experiment::find_rate::{Figure, Goal};
use plimsoll_measure::experiment::sweep::{Axis, Key, points_of};
use plimsoll_measure::instance;
use plimsoll_measure::instance::measure;
use plimsoll_measure::report::TestReport;
use plimsoll_measure::tune::record::Record;
use plimsoll_measure::tune::{analyse, pictures};
use plimsoll_observe::stat::ReadOptions;
use plimsoll_observe::stat::from;
use plimsoll_observe::stat::{Columns, record};
use plimsoll_observe::trace::span::{Item, Trace};
use plimsoll_observe::trace::{TraceError, kernel};
use plimsoll_sim::device;

/// Name of the text in messages.
const NAME: &str = "fuzz";

/// A target.
pub type Target = fn(&str);

/// All targets by name; the seeds of each lie in `fuzz/corpus/NAME/`.
pub const TARGETS: [(&str, Target); 27] = [
    ("arrivals", arrivals),
    ("blkparse", blkparse),
    ("blktrace", blktrace),
    ("compare", compare_results),
    ("disk", disk_file),
    ("diskstats", disk_stats),
    ("diskstats_samples", diskstats_samples),
    ("find_rate", find_rate),
    ("fio", fio),
    ("io_properties", io_properties),
    ("iostat_json", iostat_json),
    ("iostat_text", iostat_text),
    ("iperf3", iperf3),
    ("jobs", jobs),
    ("mountinfo", mountinfo),
    ("presets", presets),
    ("rbd", rbd_bench),
    ("report", report),
    ("scaling", scaling),
    ("scenario", scenario),
    ("sched_groups", sched_groups),
    ("stat_record", stat_record),
    ("stress_ng", stress_ng),
    ("surface", surface),
    ("sweep", sweep),
    ("tune_record", tune_record),
    ("units", units),
];

/// Runs `target` on `bytes` if they are a text.
pub fn run(target: Target, bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        target(text);
    }
}

/// Returns the value, or `None` after checking that the error has a message.
fn accepted<T>(result: Result<T, ConfigError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!error.message().is_empty(), "an error without a message");
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// Returns the value read from what a writer printed; fails on an error.
fn read_again<T>(written: &str, result: Result<T, ConfigError>) -> T {
    result.unwrap_or_else(|error| panic!("what was written is refused:\n{written}\n{error}"))
}

/// Fails unless both are the same.
fn same<T: PartialEq + Debug>(written: &str, first: &T, again: &T) {
    assert!(first == again, "what was written is read as something else:\n{written}\n{first:?}\n{again:?}");
}

/// Checks `io-properties.yaml`: reads, writes and reads it again.
pub fn io_properties(text: &str) {
    let Some(first) = accepted(properties::parse(NAME, text)) else { return };
    let written = properties::write(&first.disks);
    let again = read_again(&written, properties::parse(NAME, &written));
    same(&written, &first.disks, &again.disks);
    // Warnings are about the text, and must be printable.
    assert!(first.warnings.iter().all(|warning| !warning.to_string().is_empty()));
}

/// Checks `disk.yaml`: reads, writes and reads it again. Its writer replaces quotes in a name, so that the second writing is
/// compared with the first.
pub fn disk_file(text: &str) {
    let Some(first) = accepted(disk::parse(NAME, text)) else { return };
    let _ = first.config();
    let written = disk::write(&first);
    let again = read_again(&written, disk::parse(NAME, &written));
    same(&written, &written, &disk::write(&again));
    same(&written, &first.figures, &again.figures);
    same(&written, &first.tables, &again.tables);
    same(&written, &first.name, &again.name);
}

/// Checks job files, also against a number of shards.
pub fn jobs(text: &str) {
    let Some(file) = accepted(job_files::parse(NAME, text, &SchedGroups::default())) else { return };
    for shards in [1, 3, u32::MAX] {
        accepted(file.validate(shards));
    }
}

/// Checks job files of fio: clones have names of their own, each runs on one shard, and no stage is empty.
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

/// Checks files of scheduling groups.
pub fn sched_groups(text: &str) {
    let Some(file) = accepted(groups::parse(NAME, text)) else { return };
    for name in file.class_names() {
        assert!(file.position(name).is_some(), "class {name} has no position");
    }
}

/// Checks scenario files. The files that they name do not exist.
pub fn scenario(text: &str) {
    let Some(file) = accepted(ScenarioFile::parse(NAME, text, Path::new("/nonexistent"))) else { return };
    accepted(file.scenario(&[]));
    accepted(file.scenario(&[("shards".to_owned(), "2".to_owned())]));
}

/// Checks families of machines as CSV: each figure that is left has at least two points, and a sentence.
pub fn scaling(text: &str) {
    let Some(input) = accepted(instance::scaling::parse_csv(NAME, text)) else { return };
    let report = instance::scaling::report(input);
    for figure in report.families.iter().flat_map(|family| &family.figures) {
        assert!(figure.points.len() > 1 && !figure.sentence.is_empty(), "{figure:?}");
    }
    let _ = (instance::scaling::to_csv(&report), instance::scaling::page(&report));
}

/// Checks tables of measured latencies.
pub fn surface(text: &str) {
    if let Some(cells) = accepted(csv::parse_surface(NAME, text)) {
        assert!(!cells.is_empty(), "an empty surface was accepted");
    }
}

/// Checks recorded arrivals: in order of time, and no transfer without a length.
pub fn arrivals(text: &str) {
    let Some(list) = accepted(csv::parse_arrivals(NAME, text)) else { return };
    assert!(list.is_sorted_by_key(|arrival| arrival.at_ns), "arrivals go back in time");
    assert!(list.iter().all(|arrival| arrival.len_bytes > 0 || !arrival.op.is_transfer()));
}

/// Checks figures with units: an accepted one is accepted as plain digits too, with the same meaning, and can be printed.
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

/// Checks names of presets: the preset found has that name, and a simulated disk of that name can be written and read.
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
}

/// Checks texts like `/proc/diskstats`.
pub fn disk_stats(text: &str) {
    let Ok(devices) = diskstats::parse(text) else { return };
    for (earlier, later) in devices.iter().zip(devices.iter().skip(1)) {
        let _ = later.counters.since(&earlier.counters);
        let _ = [later.counters.read_bytes(), later.counters.write_bytes(), later.counters.discard_bytes()];
    }
}

/// Checks samples of `/proc/diskstats`, with and without times.
pub fn diskstats_samples(text: &str) {
    saved_counters(text);
}

/// Checks text of iostat in any layout.
pub fn iostat_text(text: &str) {
    saved_counters(text);
}

/// Checks JSON of iostat, whole or not.
pub fn iostat_json(text: &str) {
    saved_counters(text);
}

/// Checks recordings of `plimsoll stat`: damaged lines are left out.
pub fn stat_record(text: &str) {
    if let Ok(recording) = record::read(text.as_bytes()) {
        let _ = recording.intervals();
    }
    saved_counters(text);
}

/// Checks saved counters of a host: a figure is finite and not negative, and a device stands once in an interval.
fn saved_counters(text: &str) {
    for interval_s in [None, Some(1.0)] {
        let options = ReadOptions { interval_s, ..ReadOptions::default() };
        match from::read(NAME, text.as_bytes(), &options) {
            Ok(recorded) => {
                assert!(recorded.notes.iter().all(|note| !note.is_empty()));
                for interval in &recorded.intervals {
                    let mut names = HashSet::new();
                    for device in &interval.devices {
                        assert!(names.insert(&device.device), "{} stands twice", device.device);
                        assert!(figures_are_sound(&device.columns), "{device:?}");
                    }
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn figures_are_sound(columns: &Columns) -> bool {
    let sums = [columns.requests_per_s(), columns.moved_kib_per_s(), columns.mean_await_ms()];
    let own = [columns.queue, columns.util_percent, columns.read_size_kib, columns.write_size_kib, columns.size_kib];
    sums.into_iter().chain(own).flatten().all(|figure| figure.is_finite() && figure >= 0.0)
}

/// Checks texts like `/proc/self/mountinfo`: every mount holds its own mount point.
pub fn mountinfo(text: &str) {
    let mounts = mounts::parse(text);
    for mount in &mounts {
        let holder = mounts::holding(&mounts, Path::new(&mount.mountpoint));
        assert!(holder.is_some(), "nothing holds {:?}", mount.mountpoint);
    }
}

/// Checks records of measurements: each that is read can be analysed and shown.
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

/// Checks output of `iperf3 -J`: rates are above 0, and the loss is 0 to 100 %.
pub fn iperf3(text: &str) {
    match measure::iperf3::Tcp::read(text) {
        Ok(tcp) => assert!(tcp.received_bits_per_s > 0.0 && tcp.received_bits_per_s.is_finite(), "{tcp:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match measure::iperf3::Udp::read(text) {
        Ok(udp) => {
            let rates = [udp.sent_per_s, udp.received_per_s];
            assert!(rates.iter().all(|rate| *rate > 0.0 && rate.is_finite()), "{udp:?}");
            assert!((0.0..=100.0).contains(&udp.loss_pct), "{udp:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(peer) = text.parse::<measure::iperf3::Peer>() {
        assert_eq!(peer.to_string().parse(), Ok(peer), "a peer is read as something else");
    }
}

/// Checks the YAML of stress-ng: every rate is a number.
pub fn stress_ng(text: &str) {
    match measure::stress_ng::read(text) {
        Ok(report) => {
            assert!(report.stressors.iter().all(|stressor| stressor.per_s.is_finite() && stressor.per_s >= 0.0))
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks axes of a sweep, one a line: an accepted one has values, all for the key of its name.
pub fn sweep(text: &str) {
    let mut axes: Vec<Axis> = Vec::new();
    for line in text.lines() {
        match Axis::parse(line) {
            Ok(axis) => {
                let key = Key::find(&axis.name).map(|(_, key)| key);
                assert!(!axis.settings.is_empty(), "an axis without values");
                assert!(axis.settings.iter().all(|setting| key == Ok(setting.key)), "another key than {}", axis.name);
                axes.push(axis);
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
    if let Ok(points) = points_of(&axes) {
        assert_eq!(points.len(), axes.iter().map(|axis| axis.settings.len()).product::<usize>());
        assert!(points.iter().all(|point| point.len() == axes.len()));
    }
}

/// Checks goals of the search for a rate: a bound above 0, a percentile inside of the scale.
pub fn find_rate(text: &str) {
    match Goal::parse(text) {
        Ok(goal) => {
            assert!(goal.bound_ns > 0 && goal.text == text);
            assert!(match goal.figure {
                Figure::Percentile(percent) => percent > 0.0 && percent < 100.0,
                Figure::Mean => true,
            });
        }
        Err(why) => assert!(!why.is_empty()),
    }
}

/// Checks text of blkparse: as many spans as it announces, and no time runs backwards.
pub fn blkparse(text: &str) {
    kernel_trace(|visit| kernel::read_blkparse(&mut text.as_bytes(), visit));
}

/// Checks the binary stream of blktrace, as far as it can be written in bytes of UTF-8; promises as of [`blkparse`].
pub fn blktrace(text: &str) {
    kernel_trace(|visit| kernel::read_blktrace(&mut text.as_bytes(), visit));
}

fn kernel_trace(read: impl FnOnce(&mut dyn FnMut(Item)) -> Result<Trace, TraceError>) {
    let mut spans = 0;
    let mut visit = |item| {
        if let Item::Span(span) = item {
            spans += 1;
            let stations = [span.queued_ns, span.submitted_ns, span.completed_ns];
            assert!(stations.into_iter().flatten().is_sorted(), "time runs backwards: {span:?}");
        }
    };
    match read(&mut visit) {
        Ok(trace) => {
            assert_eq!(trace.spans, spans);
            assert!(trace.lost.iter().all(|sentence| !sentence.is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks output of `rbd bench`: rates are numbers.
pub fn rbd_bench(text: &str) {
    match rbd::parse(text) {
        Ok(runs) => {
            assert!(!runs.is_empty(), "no run was accepted");
            let rates = runs.iter().flat_map(|run| run.seconds.iter().map(|second| second.bytes_per_s));
            assert!(rates.chain(runs.iter().filter_map(|run| Some(run.summary?.bytes_per_s))).all(f64::is_finite));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks results of `test`: reads, writes and reads them again.
pub fn report(text: &str) {
    match TestReport::from_json(text) {
        Ok(report) => {
            let written = report.to_json();
            let again = TestReport::from_json(&written);
            let again = again.unwrap_or_else(|error| panic!("what was written is refused:\n{written}\n{error}"));
            same(&written, &written, &again.to_json());
            let _ = (report.to_csv(), report.to_yaml());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Compares results of plimsoll, of its simulator and of fio with themselves and with one another: a text is one
/// result, or several after lines of `%`.
pub fn compare_results(text: &str) {
    let side = |(at, text): (usize, &str)| vec![Source { path: format!("{NAME}{at}"), text: text.to_owned() }];
    let mut sides: Vec<_> = text.split("\n%\n").take(4).enumerate().map(side).collect();
    if let [only] = sides.as_slice() {
        sides.push(only.clone());
    }
    match compare::compare(&sides, &CompareOptions::default()) {
        Ok(report) => {
            let _ = report.to_csv();
            let is_same = |comparison: &compare::Comparison| comparison.p.is_none_or(|p| (0.0..=1.0).contains(&p));
            assert!(report.comparisons.iter().all(is_same), "a p value that is no probability");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests;
