//! Real files of other people's hosts, judged by hand: what may be said of each device, and why.

use std::path::Path;

use plimsoll_observe::stat::ReadOptions;
use plimsoll_observe::stat::Verdict::{self, BusyButFree, Idle, Ok, Saturated, Unknown};
use plimsoll_observe::stat::from::{FromError, Recorded, read};

/// What may be said of some devices of a report.
pub(crate) struct Label {
    pub(crate) file: &'static str,
    /// Which report, from 0; `None`: each.
    pub(crate) report: Option<usize>,
    /// Which; `*`: all that no other label names.
    pub(crate) devices: &'static [&'static str],
    pub(crate) accept: &'static [Verdict],
    pub(crate) why: &'static str,
}

/// A file, and how it is read.
pub(crate) struct Sample {
    pub(crate) file: &'static str,
    /// Seconds from sample to sample, where the file does not say.
    pub(crate) interval_s: Option<f64>,
    /// How many intervals it has, at least; 0: it is no file for `stat`, and is refused.
    pub(crate) reports_min: usize,
}

const fn sample(file: &'static str, interval_s: Option<f64>, reports_min: usize) -> Sample {
    Sample { file, interval_s, reports_min }
}

/// Says what may be said, without the reason.
const fn may(
    file: &'static str,
    report: Option<usize>,
    devices: &'static [&'static str],
    accept: &'static [Verdict],
) -> Label {
    Label { file, report, devices, accept, why: "" }
}

const BROOKER: &str = "brooker_2014_samsung840evo_two_loads.txt";
const UBUNTU: &str = "jc_ubuntu-20.10_iostat-x.txt";
const PKB: &str = "pkb_iostat_output.json";
const FIVE_SSDS: &str = "seastar_issue593_iotune_read_iops_phase_5ssd_lvm.txt";
const ONE_RUN: &str = "seed002_nvme_single_run.txt";
const TWO_RUNS: &str = "seed002_nvme_two_runs.txt";
const RBD_BENCH: &str = "seed002_rbd_bench_outputs.txt";
const SHORT_QUEUE: &str = "stackoverflow_75362533_nvme_util100_aqu023.txt";
const LAPTOP: &str = "jc_linux-proc_diskstats.txt";
const KERNEL_PAGE: &str = "linux_iostats.rst_format_examples.txt";
const TICKS: &str = "netdata_issue5744_nvme1n1_1s_series_kernel419_ioticks_bug.txt";
const MULTIPATH: &str = "netdata_issue9560_pm1733_multipath.txt";
const FIXTURE: &str = "node_exporter_fixture_diskstats.txt";

/// Every file.
pub(crate) const SAMPLES: [Sample; 13] = [
    sample(BROOKER, None, 2),
    sample(UBUNTU, None, 1),
    sample(PKB, None, 1),
    sample(FIVE_SSDS, None, 1),
    sample(ONE_RUN, None, 1),
    sample(TWO_RUNS, None, 1),
    // The output of a benchmark, of which no line is one of iostat.
    sample(RBD_BENCH, None, 0),
    sample(SHORT_QUEUE, None, 1),
    sample(LAPTOP, None, 1),
    // A page of the manual with lines of four kernels: whether anything can be read of it is the reader's to say.
    sample(KERNEL_PAGE, None, 0),
    sample(TICKS, Some(1.0), 9),
    sample(MULTIPATH, None, 1),
    sample(FIXTURE, None, 1),
];

/// Of a file with one reading: a device that was never asked anything is idle, of any other nothing can be known.
const ONE_READING: &[Verdict] = &[Idle, Unknown];

pub(crate) const LABELS: [Label; 15] = [
    may(BROOKER, Some(0), &["sdd"], &[Ok]).because(
        "0.78 requests under way on a disk that takes 32; 78 % busy, and a fifth of what it does a moment later",
    ),
    may(BROOKER, Some(1), &["sdd"], &[Ok, Saturated]).because(
        "5.3 times the reads at 3.5 times the await: two thirds of the time is waiting, near the knee of a disk that \
              is sold with 98 000 reads/s",
    ),
    may(UBUNTU, None, &["*"], &[Idle]).because("means since boot of a desktop: a third of a per cent busy at the most"),
    may(PKB, None, &["*"], &[Idle, Ok])
        .because("25 requests a second and 1 % busy: hardly anything, whether one calls it idle or not"),
    may(FIVE_SSDS, Some(0), &["sdb", "sde", "sdf"], &[Saturated]).because(
        "1.07 GB/s each, and 40 to 62 ms for half a MiB that takes a SSD less than 2: 87 to 132 requests wait",
    ),
    may(FIVE_SSDS, Some(0), &["sdc", "sdd"], &[Saturated])
        .because("as much as its sisters within 3 %, and 22 to 25 ms: 43 and 53 requests wait"),
    may(FIVE_SSDS, Some(0), &["sda", "dm-0", "dm-1", "dm-2"], &[Idle]).because("some requests a second, 0.2 % busy"),
    may(ONE_RUN, Some(0), &["nvme0n1"], &[BusyButFree, Ok]).because(
        "a third of the 1900 MB/s that the disk is rated at, 2.3 requests under way, 0.14 ms: 96 % busy says nothing",
    ),
    may(TWO_RUNS, Some(0), &["nvme0n1"], &[BusyButFree, Ok])
        .because("30 % more writes at half the await and a shorter queue: it had room before, and has now"),
    may(SHORT_QUEUE, Some(0), &["nvme1n1"], &[BusyButFree])
        .because("0.23 requests under way on average cannot keep a disk busy for more than 23 % of the time: ticks"),
    may(LAPTOP, None, &["*"], ONE_READING).because("one sample: counters since boot, and nobody knows for how long"),
    may(KERNEL_PAGE, None, &["*"], ONE_READING).because("figures of a manual: no time, no interval"),
    may(TICKS, None, &["nvme1n1"], &[Idle, Ok, BusyButFree])
        .because("12 to 175 writes/s of about 1.2 ms; the 79 to 97 % busy are the kernel's error"),
    may(MULTIPATH, None, &["*"], ONE_READING).because("one sample; paths count, the devices above them stay at 0"),
    may(FIXTURE, None, &["*"], ONE_READING).because("one sample of many hosts' lines put together"),
];

impl Label {
    const fn because(self, why: &'static str) -> Label {
        Label { why, ..self }
    }

    /// What may be said of a device that has done something, or nothing at all.
    pub(crate) fn accept_of(&self, is_used: bool) -> &'static [Verdict] {
        match (self.accept, is_used) {
            (ONE_READING, true) => &[Unknown],
            (ONE_READING, false) => &[Idle],
            (accept, _) => accept,
        }
    }
}

impl Sample {
    pub(crate) fn read(&self) -> Result<Recorded, FromError> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stat_samples").join(self.file);
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        read(self.file, &bytes, &ReadOptions { interval_s: self.interval_s, ..ReadOptions::default() })
    }
}

/// The label of a device in a report.
pub(crate) fn label(file: &str, report: usize, device: &str) -> Option<&'static Label> {
    let of_report = |label: &&Label| label.file == file && label.report.is_none_or(|number| number == report);
    let named = LABELS.iter().filter(of_report).find(|label| label.devices.contains(&device));
    named.or_else(|| LABELS.iter().filter(of_report).find(|label| label.devices == ["*"]))
}
