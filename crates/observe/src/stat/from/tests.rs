//! Every sample file with its figures, files of other programs, series of files, the real iostat, damage.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::skip::skip;
use crate::stat::{Columns, DeviceInterval, Gap};

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

#[test]
fn every_sample_has_its_figures() {
    /// File, seconds between its samples, intervals, devices in the last; an interval and a row, the device there, and
    /// its known columns.
    type Case = (&'static str, Option<f64>, usize, usize, (usize, usize), &'static str, &'static str);
    let table: [Case; 14] = [
        (
            "brooker_2014_samsung840evo_two_loads.txt",
            None,
            2,
            1,
            (1, 0),
            "sdd",
            "r/s 72914.67, w/s 0, rkB/s 291658.67, wkB/s 0, rrqm/s 0, wrqm/s 0, r_await 0.21, w_await 0, aqu-sz 15.27, \
             %util 100, await 0.21, areq-sz 4",
        ),
        (
            "brooker_2014_samsung840evo_two_loads.txt",
            None,
            2,
            1,
            (0, 0),
            "sdd",
            "r/s 13823, w/s 0, rkB/s 55292, wkB/s 0, rrqm/s 0, wrqm/s 0, r_await 0.06, w_await 0, aqu-sz 0.78, \
             %util 78.4, await 0.06, areq-sz 4",
        ),
        (
            "jc_ubuntu-20.10_iostat-x.txt",
            None,
            1,
            14,
            (0, 12),
            "sda",
            "r/s 2.67, w/s 2.81, d/s 0, f/s 0, rkB/s 100.76, wkB/s 129.44, dkB/s 0, rrqm/s 0.66, wrqm/s 4.42, \
             %rrqm 19.76, \
             %wrqm 61.15, r_await 0.36, w_await 0.42, d_await 0, f_await 0, rareq-sz 37.75, wareq-sz 46.11, \
             dareq-sz 0, \
             aqu-sz 0, %util 0.41",
        ),
        (
            "pkb_iostat_output.json",
            None,
            2,
            3,
            (1, 2),
            "sda",
            "r/s 0, w/s 4, d/s 0, f/s 4, rkB/s 0, wkB/s 0, dkB/s 0, rrqm/s 0, wrqm/s 0, %rrqm 0, %wrqm 0, r_await 0, \
             w_await 0.25, d_await 0, f_await 0, rareq-sz 0, wareq-sz 0, dareq-sz 0, aqu-sz 0, %util 1.4",
        ),
        (
            "seastar_issue593_iotune_read_iops_phase_5ssd_lvm.txt",
            None,
            1,
            9,
            (0, 1),
            "sdb",
            "r/s 2147.5, w/s 6.5, rkB/s 1099520, wkB/s 204.8, rrqm/s 0, wrqm/s 0, r_await 60.81, w_await 0, \
             aqu-sz 130.61, %util 100, await 60.62, areq-sz 510.55",
        ),
        (
            "seed002_nvme_single_run.txt",
            None,
            1,
            1,
            (0, 0),
            "nvme0n1",
            "r/s 0, w/s 16597, d/s 0, f/s 0, rkB/s 0, wkB/s 632217.6, dkB/s 0, rrqm/s 0, wrqm/s 10328, %rrqm 0, \
             %wrqm 38.4, r_await 0, w_await 0.14, d_await 0, f_await 0, rareq-sz 0, wareq-sz 38.1, dareq-sz 0, \
             aqu-sz 2.28, \
             %util 96",
        ),
        (
            "seed002_nvme_two_runs.txt",
            None,
            1,
            1,
            (0, 0),
            "nvme0n1",
            "r/s 0, w/s 21357, d/s 0, f/s 0, rkB/s 0, wkB/s 606105.6, dkB/s 0, rrqm/s 0, wrqm/s 9520, %rrqm 0, \
             %wrqm 30.8, \
             r_await 0, w_await 0.07, d_await 0, f_await 0, rareq-sz 0, wareq-sz 28.4, dareq-sz 0, aqu-sz 1.49, \
             %util 98",
        ),
        (
            "stackoverflow_75362533_nvme_util100_aqu023.txt",
            None,
            1,
            1,
            (0, 0),
            "nvme1n1",
            "w/s 7497, wkB/s 105250.5, wrqm/s 0, %wrqm 0, w_await 0.03, wareq-sz 14.04, aqu-sz 0.23, %util 100",
        ),
        (
            "jc_linux-proc_diskstats.txt",
            None,
            1,
            15,
            (0, 8),
            "sda",
            "%rrqm 19.139001, %wrqm 41.726798, r_await 0.356197, w_await 0.672716, d_await 0, f_await 0, \
             rareq-sz 31.437606, \
             wareq-sz 19.091161, dareq-sz 0, await 0.536252, areq-sz 24.414197",
        ),
        (
            "linux_iostats.rst_format_examples.txt",
            Some(1.0),
            2,
            1,
            (1, 0),
            "hda",
            "r/s 0, w/s 0, rkB/s 0, wkB/s 0, rrqm/s 0, wrqm/s 0, %rrqm 0, %wrqm 0, r_await 0, w_await 0, rareq-sz 0, \
             wareq-sz 0, aqu-sz 0, %util 0, await 0, areq-sz 0, tps 0, kB/s 0",
        ),
        (
            "netdata_issue5744_nvme1n1_1s_series_kernel419_ioticks_bug.txt",
            Some(1.0),
            9,
            1,
            (0, 0),
            "nvme1n1",
            "r/s 0, w/s 166, d/s 0, rkB/s 0, wkB/s 1446, dkB/s 0, rrqm/s 0, wrqm/s 54, %rrqm 0, %wrqm \
             24.545455, r_await 0, \
             w_await 1.186747, d_await 0, rareq-sz 0, wareq-sz 8.710843, dareq-sz 0, aqu-sz 0.792, %util 79.2, \
             await 1.186747, areq-sz 8.710843, tps 166, kB/s 1446",
        ),
        (
            "netdata_issue5744_nvme1n1_1s_series_kernel419_ioticks_bug.txt",
            None,
            9,
            1,
            (0, 0),
            "nvme1n1",
            "%rrqm 0, %wrqm 24.545455, r_await 0, w_await 1.186747, d_await 0, rareq-sz 0, wareq-sz 8.710843, \
             dareq-sz 0, \
             await 1.186747, areq-sz 8.710843",
        ),
        (
            "netdata_issue9560_pm1733_multipath.txt",
            None,
            1,
            19,
            (0, 8),
            "nvme1c1n1",
            "%rrqm 29.979891, %wrqm 3.166705, r_await 0.197056, w_await 0.040608, d_await 0, rareq-sz 41.929406, \
             wareq-sz 10.740047, dareq-sz 0, await 0.072989, areq-sz 17.195391",
        ),
        (
            "node_exporter_fixture_diskstats.txt",
            None,
            1,
            51,
            (0, 50),
            "sdc1",
            "%rrqm 1.282051, %wrqm 48.93617, r_await 0.017316, w_await 0, d_await 0, f_await 0, rareq-sz 74.601732, \
             wareq-sz 2.208333, dareq-sz 0, await 0.015686, areq-sz 67.788235",
        ),
    ];

    for (name, interval_s, intervals, devices, (at, row), device, expect) in table {
        let recorded = read_sample(name, interval_s);
        assert_eq!(recorded.intervals.len(), intervals, "{name}: {:?}", recorded.notes);
        assert_eq!(recorded.intervals.last().unwrap().devices.len(), devices, "{name}");
        let found = &recorded.intervals[at].devices[row];
        assert_eq!((found.device.as_str(), known(found).as_str()), (device, expect), "{name}");
    }

    // Every file but one is in the table; that one is not for `stat`.
    let names = samples().into_iter().map(|(name, _)| name).filter(|name| !table.iter().any(|case| case.0 == name));
    assert_eq!(names.collect::<Vec<_>>(), ["seed002_rbd_bench_outputs.txt"]);
}

#[test]
fn samples_tell_host_cpu_times_and_what_was_not_read() {
    let jc = read_sample("jc_ubuntu-20.10_iostat-x.txt", None);
    assert_eq!(jc.origin, "jc_ubuntu-20.10_iostat-x.txt: text of iostat of ubuntu, Linux 5.8.0-53-generic, 2 CPU");
    assert_eq!(jc.notes, Vec::<String>::new());
    assert!(jc.intervals[0].is_since_boot);
    let pkb = read_sample("pkb_iostat_output.json", None);
    assert!(pkb.origin.ends_with("test-instance, Linux 6.5.13-1rodete2-amd64, 24 CPU"), "{}", pkb.origin);
    let at = |interval: &Interval| (interval.is_since_boot, interval.end_unix_ms, interval.duration_s);
    assert_eq!(at(&pkb.intervals[0]), (true, Some(1_710_463_994_000), None));
    assert_eq!(at(&pkb.intervals[1]), (false, Some(1_710_463_995_000), Some(1.0)));
    assert_eq!(pkb.intervals[1].cpu.unwrap().idle, 92.89);
    let seed = read_sample("seed002_nvme_single_run.txt", None);
    assert_eq!(at(&seed.intervals[0]), (false, None, None), "a text that was cut out is no report since boot");
    assert_eq!((seed.intervals[0].cpu.unwrap().user, seed.intervals[0].cpu.unwrap().idle), (15.5, 75.9));
    let series = read_sample("netdata_issue5744_nvme1n1_1s_series_kernel419_ioticks_bug.txt", None);
    assert_eq!(series.notes.len(), 1);
    assert!(series.notes[0].contains("--interval SECONDS"), "{:?}", series.notes);
    let single = read_sample("netdata_issue9560_pm1733_multipath.txt", Some(1.0));
    assert!(single.intervals[0].is_since_boot && single.intervals[0].duration_s.is_none());
    assert!(single.facts["nvme3n1p1"].is_partition && !single.facts.contains_key("nvme3n1"), "{:?}", single.facts);
    let documentation = read_sample("linux_iostats.rst_format_examples.txt", None);
    let gaps: Vec<_> =
        documentation.intervals[0].devices.iter().map(|device| (device.device.as_str(), device.gap)).collect();
    assert_eq!(gaps, [("hda", None), ("hda1", None)]);
    for part in [":1: `2.4:", ":6: `446216 784926 9550688", ":13: `4.18+"] {
        assert!(documentation.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", documentation.notes);
    }
}

#[test]
fn files_of_others_are_named() {
    let read = |bytes: &[u8]| read("file", bytes, &ReadOptions::default()).unwrap_err().to_string();
    let table: [(&[u8], &str); 23] = [
        (b"", "file is empty"),
        (b" \n\t\n", "file is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG picture"),
        (b"\x1f\x8b\x08\0\0", "archive is damaged"),
        (b"BZh91AY", "a bzip2 archive: unpack it first"),
        (b"\xff\xfeD\0e\0v\0", "UTF-16"),
        (b"abc\0def", "binary"),
        (b"procs -----------memory---------- ---swap-- -----io----\n r  b   swpd   free\n 1  0      0 123\n", "vmstat"),
        (
            b"Linux 5.8.0 (h) 12/02/21 _x86_64_ (2 CPU)\n\n12:00:01 AM DEV tps rkB/s wkB/s areq-sz aqu-sz await %util\n\
              12:10:01 AM  sda  1.00  2.00  3.00  4.00  0.00  0.50  0.10\n",
            "sar",
        ),
        (b"12:00:01     CPU     %user     %nice   %system   %iowait    %steal     %idle\n", "sar"),
        (b"      disk0\n    KB/t  tps  MB/s\n   16.00   10  0.16\n", "macOS"),
        (b"r/s w/s kr/s kw/s wait actv wsvc_t asvc_t %w %b device\n", "Solaris"),
        (b"UID PID kB_rd/s kB_wr/s kB_ccwr/s iodelay Command\n", "pidstat"),
        (b"Run status group 0 (all jobs):\n   READ: bw=1\n", "fio's text"),
        (b"{\"fio version\": \"fio-3.35\", \"jobs\": []}", "fio's JSON"),
        (b"{\"plimsoll\": \"0.1.0\", \"jobs\": []}", "plimsoll test"),
        (b"{\"sysstat\": {\"hosts\": [{\"statistics\": [{\"cpu-load\": []}]}]}}", "mpstat's JSON"),
        (b"{\"sysstat\": {\"hosts\": [{\"statistics\": [{\"disk\": [{\"disk-device\": \"sda\"}]}]}]}}", "sadf's JSON"),
        (b"{\"a\": 1}", "JSON of something else"),
        (b"{\"a\": \n\n tru", "file:3: no JSON that can be read"),
        (b"Device r/s w/s\n\n", "file:2: text of iostat without a row"),
        (b"What is this?\n", "some other text"),
        (b"NAME  MAJ:MIN RM  SIZE RO TYPE\nsda 8:0 0 1T\n", "lsblk"),
    ];
    for (bytes, part) in table {
        let message = read(bytes);
        assert!(message.starts_with("file") && message.contains(part), "{part}: {message}");
    }
    let rbd = "seed002_rbd_bench_outputs.txt";
    let message = super::read(rbd, &sample(rbd), &ReadOptions::default()).unwrap_err().to_string();
    assert!(message.contains("`rbd bench`"), "{message}");
}

#[test]
fn what_rbd_prints_behind_a_table_is_no_device() {
    let mut both = sample("seed002_nvme_single_run.txt");
    both.extend(sample("seed002_rbd_bench_outputs.txt"));
    let recorded = read("both", &both, &ReadOptions::default()).unwrap();
    assert_eq!((recorded.intervals.len(), recorded.intervals[0].devices.len()), (1, 1));
    assert_eq!(recorded.intervals, read_sample("seed002_nvme_single_run.txt", None).intervals);
}

#[test]
fn samples_with_times_have_rates() {
    const A: &str = "   8       0 sda 1000 0 8000 100 0 0 0 0 0 90 100\n";
    const B: &str = "   8       0 sda 3000 0 24000 300 0 0 0 0 3 290 300\n";
    let files = [
        format!("zzz ***Thu Mar 14 17:53:14 UTC 2024\n{A}zzz ***Thu Mar 14 17:53:24 UTC 2024\n{B}"),
        format!("1710438794\n{A}1710438804\n{B}"),
        format!("==> 1 <==\n1710438794.000\n{A}==> 2 <==\n1710438804.000\n{B}"),
        format!("Thu Mar 14 05:53:14 PM UTC 2024\n{A}\nThu Mar 14 05:53:24 PM UTC 2024\n{B}\n"),
        format!("# 2024-03-14T17:53:14Z\n{A}----\n# 2024-03-14T17:53:24Z\n{B}"),
    ];
    for file in files {
        let recorded = text(&file);
        let [interval] = recorded.intervals.as_slice() else { panic!("{file}: {recorded:?}") };
        assert_eq!((interval.duration_s, interval.end_unix_ms), (Some(10.0), Some(1_710_438_804_000)), "{file}");
        let device = &interval.devices[0];
        let columns = &device.columns;
        assert_eq!(
            (columns.reads_per_s, columns.read_await_ms, columns.util_percent),
            (Some(200.0), Some(0.1), Some(2.0))
        );
        assert_eq!(device.in_flight, Some(3));
        assert_eq!(recorded.notes, Vec::<String>::new(), "{file}");
    }
    let backwards = text(&format!("1710438804\n{A}1710438794\n{B}"));
    assert_eq!((backwards.intervals[0].duration_s, backwards.notes.len()), (None, 1), "{:?}", backwards.notes);
}

#[test]
fn without_times_only_what_stood_still_has_rates() {
    const LINES: &str = "8 0 sda 1000 0 8000 100 0 0 0 0 0 90 100 0 0 0 0\n8 16 sdb 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    let rates = |recorded: &Recorded| {
        let devices = recorded.intervals[0].devices.iter().map(|device| device.columns);
        devices.map(|columns| (columns.requests_per_s(), columns.util_percent)).collect::<Vec<_>>()
    };
    let (still, moved) = ((Some(0.0), Some(0.0)), (None, None));
    assert_eq!(rates(&text(LINES)), [moved, still], "since boot");
    assert_eq!(rates(&text(&format!("{LINES}{LINES}"))), [still, still]);
    assert_eq!(rates(&text(&format!("{LINES}{}", LINES.replace("sda 1000", "sda 1001")))), [moved, still]);
}

#[test]
fn prompts_and_times_in_brackets_are_no_json() {
    for before in ["[ec2-user@ip-10-0-0-1 ~]$ iostat -xyk 1\n", "[10:11:12]\n"] {
        let recorded = text(&format!("{before}Device: r/s %util\nsda 1.00 2.00\n"));
        assert_eq!(known(&recorded.intervals[0].devices[0]), "r/s 1, %util 2", "{before}");
        assert!(!recorded.intervals[0].is_since_boot, "{before}");
    }
}

#[test]
fn old_json_has_short_keys() {
    let old = r#"{"sysstat": {"hosts": [{"statistics": [{"disk": [{"disk_device": "sda", "rrqm": 1.0, "wrqm": 2.0,
        "r": 3.0, "w": 4.0, "rkB": 5.0, "wkB": 6.0, "avgrq-sz": 8.0, "await": 0.5, "svctm": 0.1, "util": 7}]}]}]}}"#;
    let expect = "r/s 3, w/s 4, rkB/s 5, wkB/s 6, rrqm/s 1, wrqm/s 2, %util 7, await 0.5, areq-sz 4";
    assert_eq!(known(&text(old).intervals[0].devices[0]), expect);
}

#[test]
fn samples_with_damage() {
    const ONE: &str = "8 0 sda 1000 0 8000 100 0 0 0 0 0 90 100\n8 16 sdb 5 0 40 1 0 0 0 0 0 1 1\n";
    let names = |recorded: &Recorded| -> Vec<(String, Option<Gap>)> {
        let last = recorded.intervals.last().unwrap();
        last.devices.iter().map(|device| (device.device.clone(), device.gap)).collect()
    };
    let bad = text(&format!("{ONE}8 0 sda 1100 0 xx 100 0 0 0 0 0 90 100\n8 16 sdb 9 0 72 2 0 0 0 0 0 1 1\n"));
    assert!(bad.notes[0].contains("text:3: counter `xx` of sda"), "{:?}", bad.notes);
    let cut = text(&format!("{ONE}8 0 sda 1100 0 8000 100 0 0 0 0 0 90 100\n8 16 sdb 9 0 72 2 0 0"));
    assert_eq!(names(&cut), [("sda".to_owned(), None)], "{:?}", cut.notes);
    let gone = text(&format!("{ONE}8 16 sdb 9 0 72 2 0 0 0 0 0 1 1\n8 32 sdc 0 0 0 0 0 0 0 0 0 0 0\n"));
    let expect = [("sdb", None), ("sdc", Some(Gap::Appeared)), ("sda", Some(Gap::Disappeared))];
    assert_eq!(names(&gone), expect.map(|(name, gap)| (name.to_owned(), gap)));
    let reset = text(&format!("{ONE}8 0 sda 10 0 80 100 0 0 0 0 0 90 100\n8 16 sdb 9 0 72 2 0 0 0 0 0 1 1\n"));
    assert_eq!(names(&reset)[0].1, Some(Gap::Reset));
    let wrap = text("8 0 sda 4294967290 0 8 1 0 0 0 0 0 1 1\n8 0 sda 4 0 8 1 0 0 0 0 0 1 1\n");
    assert_eq!(wrap.intervals[0].devices[0].gap, None);
}

#[test]
fn files_of_one_series_and_of_several() {
    let named =
        |name: &str, text: &str| Saved { name: name.to_owned(), bytes: text.as_bytes().to_vec(), is_found: false };
    let options = ReadOptions { interval_s: Some(2.0), ..ReadOptions::default() };
    let files = [
        named("1/sys/block/sda/stat", "1000 0 8000 100 0 0 0 0 0 90 100 0 0 0 0 0 0\n"),
        named("1/sdb.stat", "10 0 80 1 0 0 0 0 0 9 10\n"),
        named("2/sys/block/sda/stat", "1500 0 12000 150 0 0 0 0 0 290 150 0 0 0 0 0 0\n"),
        named("2/sdb.stat", "10 0 80 1 0 0 0 0 0 9 10\n"),
        named("later.txt", "Device tps\nsdc 5.00\n"),
    ];
    let recorded = read_all(&files, &options).unwrap();
    let rates = recorded.intervals.iter().map(|interval| {
        let rate = |device: &DeviceInterval| (device.device.clone(), device.columns.requests_per_s());
        interval.devices.iter().map(rate).collect::<Vec<_>>()
    });
    let expect = [vec![("sda", 250.0), ("sdb", 0.0)], vec![("sdc", 5.0)]];
    let expect =
        expect.map(|list| list.into_iter().map(|(name, rate)| (name.to_owned(), Some(rate))).collect::<Vec<_>>());
    assert_eq!(rates.collect::<Vec<_>>(), expect);
    assert!(read_all(&[named("sda.stat", "1 2 3\n")], &options).is_err());
    assert_eq!(read_all(&[], &options).unwrap(), Recorded::default());
}

/// Text of `iostat -xty` on a host: reads a second at each second.
fn iostat_of(host: &str, reads: &[(u32, f64)]) -> Vec<u8> {
    let reports = reads.iter().map(|(second, reads)| {
        format!("\n03/14/2024 17:53:{second:02}\nDevice            r/s     w/s\nsda   {reads:.2}    0.00\n")
    });
    let banner = format!("Linux 6.1.0 ({host}) \t03/14/2024 \t_x86_64_\t(2 CPU)\n");
    (banner + &reports.collect::<String>()).into_bytes()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

fn tar(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn an_archive_is_one_story_in_the_order_of_time() {
    let options = ReadOptions { is_first_an_interval: true, ..ReadOptions::default() };
    let early = iostat_of("db1", &[(10, 1.0), (11, 2.0)]);
    let late = iostat_of("db1", &[(30, 3.0), (31, 4.0)]);
    let rest = [("bundle/dmesg.txt", b"oops\n".to_vec()), ("bundle/shot.png", b"\x89PNG\r\n\x1a\n\0".to_vec())];
    let files = |first: &[u8], second: &[u8]| {
        let mut files = vec![("bundle/a.iostat", first.to_vec()), ("bundle/b.iostat.gz", gzip(second))];
        files.extend(rest.clone());
        tar(&files)
    };
    let long_name = format!("bundle/{}/a.iostat", "directory/".repeat(30));
    for (name, bytes) in [
        ("in order", files(&early, &late)),
        ("against it", files(&late, &early)),
        ("compressed", gzip(&files(&late, &early))),
        ("a long name", tar(&[(&long_name, late.clone()), ("b", early.clone()), ("c", b"oops\n".to_vec())])),
    ] {
        let recorded = read(name, &bytes, &options).unwrap();
        let reads = recorded.intervals.iter().map(|interval| interval.devices[0].columns.reads_per_s.unwrap());
        assert_eq!(reads.collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0], "{name}");
        let is_left_out = |note: &String| note.contains("no figures of disks, left out");
        assert_eq!(recorded.notes.iter().filter(|note| is_left_out(note)).count(), 1, "{:?}", recorded.notes);
        assert!(recorded.origin.contains("a.iostat: text of iostat of db1"), "{}", recorded.origin);
    }

    let refused = |bytes: &[u8]| read("bundle", bytes, &options).unwrap_err().to_string();
    let other = iostat_of("db2", &[(30, 3.0)]);
    for (bytes, part) in [
        (files(&early, &other), "files of several hosts (db1, db2): name those of one host"),
        (tar(&[]), "looks like"),
        (tar(&rest), "bundle/bundle/dmesg.txt: looks like some other text"),
        (gzip(&early)[..40].to_vec(), "the archive is damaged"),
        ((0..9).fold(early.clone(), |bytes, _| gzip(&bytes)), "an archive in too many others"),
        (files(&early, &late)[..1500].to_vec(), "damaged"),
    ] {
        assert!(refused(&bytes).contains(part), "{part}: {}", refused(&bytes));
    }
}

#[test]
fn samples_in_an_archive_are_one_series() {
    let sample = |reads: u32| format!("8 0 sda {reads} 0 8000 100 0 0 0 0 0 90 100\n").into_bytes();
    let archive = tar(&[("t/10", sample(4000)), ("t/notes", b"oops\n".to_vec()), ("t/2", sample(1000))]);
    let recorded = read("t.tar", &archive, &ReadOptions { interval_s: Some(2.0), ..ReadOptions::default() }).unwrap();
    let reads = recorded.intervals.iter().map(|interval| interval.devices[0].columns.reads_per_s);
    assert_eq!(reads.collect::<Vec<_>>(), [Some(1500.0)]);
}

#[test]
fn our_own_recording_is_read() {
    use crate::stat::host::{Host, Reading};
    let mut writer = record::Writer::new(Vec::new(), &Host { name: "db7".to_owned(), ..Host::default() }).unwrap();
    for (uptime_cs, reads) in [(100, 1000), (200, 1500)] {
        let devices =
            plimsoll::sys::diskstats::parse(&format!("8 0 sda {reads} 0 8000 100 0 0 0 0 0 90 100\n")).unwrap();
        writer.append(&Reading { uptime_cs, devices, ..Reading::default() }, &Facts::new()).unwrap();
    }
    let bytes = writer.into_inner();
    let recorded = read("a.record", &bytes, &ReadOptions::default()).unwrap();
    assert_eq!(recorded.intervals[0].devices[0].columns.reads_per_s, Some(500.0));
    assert!(recorded.origin.contains("recording of db7"), "{}", recorded.origin);
    let cut = read("a.record", &bytes[..bytes.len() - 10], &ReadOptions::default()).unwrap();
    assert!(!cut.notes.is_empty());
}

#[test]
fn our_own_csv_is_read() {
    use crate::stat::output::{csv, tests::observed};
    let mut later = observed();
    (later.end_unix_ms, later.is_since_boot) = (Some(1_710_463_995_000), true);
    let whole = csv::header() + &csv::lines(&observed()) + &csv::lines(&observed()) + &csv::lines(&later);

    let recorded = text(&whole);
    assert_eq!(recorded.origin, "text: CSV of `plimsoll stat`");
    assert_eq!(recorded.notes, [""; 0]);
    let when = |it: &Interval| (it.end_unix_ms.unwrap() - 1_710_463_994_000, it.duration_s, it.is_since_boot);
    let intervals: Vec<_> = recorded.intervals.iter().map(when).collect();
    assert_eq!(intervals, [(0, Some(1.0), false), (0, Some(1.0), false), (1000, None, true)]);
    let [sda, nvme, sdb] = &recorded.intervals[1].devices[..] else { panic!("{recorded:#?}") };
    let did_nothing = "r/s 0, w/s 0, rkB/s 0, r_await 0.13, aqu-sz 0.23, %util 100, await 0";
    assert_eq!((known(sda).as_str(), sda.in_flight), (did_nothing, Some(0)));
    assert_eq!((nvme.device.as_str(), nvme.columns.reads_per_s), ("nvme0n1", Some(1234.57)));
    assert_eq!((sdb.device.as_str(), sdb.gap, &sdb.columns), ("sdb", Some(Gap::Appeared), &Columns::default()));

    let cut = text(whole.trim_end().rsplit_once(',').unwrap().0.replace(",100.00,", ",x,").as_str());
    assert_eq!(cut.intervals[2].devices.len(), 2);
    assert!(cut.notes.iter().any(|note| note == "text:3: util is `x`: taken as unknown"), "{:?}", cut.notes);
    assert!(cut.notes.last().unwrap().starts_with("text:10: 40 fields of 41"), "{:?}", cut.notes);
    let error = read("a.csv", csv::header().as_bytes(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("a.csv:1: CSV of `plimsoll stat` without a row"), "{error}");
}

#[test]
fn json_with_damage() {
    let whole = String::from_utf8(sample("pkb_iostat_output.json")).unwrap();
    let all = text(&whole);
    let second = whole.rfind("\"timestamp\"").unwrap();
    let mut lengths = Vec::new();
    for end in (0..whole.len()).step_by(7) {
        match read("cut", &whole.as_bytes()[..end], &ReadOptions::default()) {
            Ok(cut) => {
                assert_eq!(cut.intervals[..], all.intervals[..cut.intervals.len()], "cut at {end}");
                assert!(cut.notes[0].contains("last whole report"), "{:?}", cut.notes);
                lengths.push((end, cut.intervals.len()));
            }
            Err(error) => assert!(end < second, "cut at {end}: {error}"),
        }
    }
    assert!(lengths.is_sorted() && lengths.iter().any(|(_, count)| *count == 1), "{lengths:?}");
    let twice = text(&format!("{whole}\n{whole}"));
    assert_eq!((twice.intervals.len(), twice.notes.len()), (4, 0));
    let killed = text(&format!("{}{whole}", &whole[..second]));
    assert_eq!((killed.intervals.len(), killed.notes.len()), (3, 1), "{:?}", killed.notes);
    let list = text(&format!("[{whole},{whole}]"));
    assert_eq!(list.intervals, twice.intervals);
    let commas = "{\"sysstat\": {\"hosts\": [{\"statistics\": [{\"avg-cpu\": {\"user\": 0,72, \"nice\": 0,00, \
                  \"system\": 0,10, \"idle\": 99,18}, \"disk\": [{\"disk_device\": \"sda\", \"r/s\": 1,50, \
                  \"r_await\": -nan, \
                  \"w/s\": -1.0, \"util\": 3,00}]}]}]}}";
    let commas = text(commas);
    assert_eq!(known(&commas.intervals[0].devices[0]), "r/s 1.5, %util 3");
    assert_eq!(commas.intervals[0].cpu.unwrap().idle, 99.18);
    assert!(commas.notes.iter().any(|note| note.contains("w/s of sda")), "{:?}", commas.notes);
}

/// Every layout of the real iostat, read back, has the figures of its JSON of the same counters.
#[test]
fn the_real_iostat_is_read_in_every_layout() {
    let root = tempfile::tempdir().unwrap();
    let line = "   8       0 sda 13823 25 55292 900 7497 54 210501 1061 3 784 1961 12 1 4096 9 33 12\n\
                \x20  8      16 sdb 9 0 72 2 123456789 0 987654321 55555 0 999 55557 0 0 0 0 0 0\n";
    std::fs::write(root.path().join("diskstats"), line).unwrap();
    for (name, device) in line.lines().map(|line| line.split_whitespace().nth(2).unwrap()).zip(line.lines()) {
        let directory = root.path().join("block").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let counters: Vec<&str> = device.split_whitespace().skip(3).collect();
        std::fs::write(directory.join("stat"), counters.join(" ") + "\n").unwrap();
    }

    let run = |options: &[&str]| {
        let mut command = Command::new("iostat");
        command
            .env("LC_ALL", "C")
            .env("S_TIME_FORMAT", "ISO")
            .args(options)
            .arg("-f")
            .arg(root.path())
            .args(["sda", "sdb"]);
        command.output().ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };

    let Some(json) = run(&["-x", "-o", "JSON"]) else {
        skip("no iostat with -f and -o JSON here");
        return;
    };
    let base = read("json", &json, &ReadOptions::default()).unwrap();
    if base.intervals[0].devices.len() != 2 {
        skip("this iostat reads no directory of counters");
        return;
    }

    let layouts: [(&[&str], usize); 12] = [
        (&["-x"], 20),
        (&["-xm"], 20),
        (&["-xt"], 20),
        (&["-x", "--pretty"], 20),
        (&["-x", "--human"], 20),
        (&["-xh"], 20),
        (&["-xd", "--dec=0"], 20),
        (&["-xs"], 6),
        (&["-xs", "--human", "--pretty"], 6),
        (&["-d"], 4),
        (&["-m"], 4),
        (&["-ht"], 4),
    ];

    for (options, columns) in layouts {
        let Some(bytes) = run(options) else { continue };
        let printed = String::from_utf8(bytes).unwrap();
        let recorded = text(&printed);
        assert_eq!(recorded.intervals.len(), 1, "{options:?}\n{printed}");
        assert!(recorded.intervals[0].is_since_boot, "{options:?}");
        for (device, base) in recorded.intervals[0].devices.iter().zip(&base.intervals[0].devices) {
            assert_eq!(device.device, base.device, "{options:?}");
            let known = FIELDS.iter().filter(|(_, field)| field(&device.columns).is_some());
            assert!(known.clone().count() >= columns, "{options:?}: {}\n{printed}", super::tests::known(device));
            for (name, field) in known {
                let (value, Some(expect)) = (field(&device.columns).unwrap(), field(&base.columns)) else { continue };
                // Human figures have one decimal of their unit; between two calls, the uptime since boot grows.
                let digit = if options[0].contains('m') { 6.0 } else { 0.6 };
                let close = (value - expect).abs() <= 0.06 * expect.abs() + digit;
                assert!(close, "{options:?} {name}: {value} for {expect}\n{printed}");
            }
        }
    }
}

/// Returns a sample with some bytes changed.
fn mutated(bytes: &[u8], edits: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, kind, byte) in edits {
        let at = at % (bytes.len() + 1);
        match kind % 4 {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, *byte),
            2 if at < bytes.len() => bytes[at] = *byte,
            _ if at < bytes.len() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

/// Checks that the result is sound: figures are finite and not negative, names occur once, errors name the file.
fn check(bytes: &[u8]) {
    match read("file", bytes, &ReadOptions { interval_s: Some(1.0), ..ReadOptions::default() }) {
        Ok(recorded) => {
            for interval in &recorded.intervals {
                let mut names: Vec<&str> = interval.devices.iter().map(|device| device.device.as_str()).collect();
                names.sort_unstable();
                assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
                assert!(interval.duration_s.is_none_or(|seconds| seconds > 0.0 && seconds.is_finite()));
                for device in &interval.devices {
                    let values = FIELDS.iter().filter_map(|(_, field)| field(&device.columns));
                    assert!(values.into_iter().all(|value| value.is_finite() && value >= 0.0), "{device:?}");
                }
            }
        }
        Err(error) => assert!(error.to_string().starts_with("file")),
    }
}

/// A pattern for words that may occur in a text of iostat.
const WORD: &str = "[a-z%/_\\-]{0,6}|[0-9.,-]{1,6}|Device|r/s|%util|\n|\n";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes);
    }

    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(WORD, 0..80)) {
        check(words.join(" ").as_bytes());
    }

    #[test]
    fn changed_samples_are_read_or_refused(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 0..6),
    ) {
        let samples = samples();
        check(&mutated(&samples[which.index(samples.len())].1, &edits));
    }
}

#[test]
fn more_rows_than_memory_has_room_for_are_refused() {
    let line = "259 0 a 1 0 8 1 1 0 8 1 0 1 1\n";
    let refused = read("long", line.repeat(1_000_001).as_bytes(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(refused.starts_with("long:1000001: more than 1000000 rows of devices"), "{refused}");
    assert!(refused.contains("cut the files into parts"), "{refused}");
}
