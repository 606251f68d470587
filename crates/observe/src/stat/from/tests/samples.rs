//! Every sample file with its figures, and files of other programs by their names.

use super::*;

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
             util 100, await 0.21, areq-sz 4",
        ),
        (
            "brooker_2014_samsung840evo_two_loads.txt",
            None,
            2,
            1,
            (0, 0),
            "sdd",
            "r/s 13823, w/s 0, rkB/s 55292, wkB/s 0, rrqm/s 0, wrqm/s 0, r_await 0.06, w_await 0, aqu-sz 0.78, \
             util 78.4, await 0.06, areq-sz 4",
        ),
        (
            "jc_ubuntu-20.10_iostat-x.txt",
            None,
            1,
            14,
            (0, 12),
            "sda",
            "r/s 2.67, w/s 2.81, d/s 0, f/s 0, rkB/s 100.76, wkB/s 129.44, dkB/s 0, rrqm/s 0.66, wrqm/s 4.42, \
             drqm/s 0, rrqm 19.76, wrqm 61.15, drqm 0, r_await 0.36, w_await 0.42, d_await 0, f_await 0, \
             rareq-sz 37.75, wareq-sz 46.11, dareq-sz 0, aqu-sz 0, util 0.41",
        ),
        (
            "pkb_iostat_output.json",
            None,
            2,
            3,
            (1, 2),
            "sda",
            "r/s 0, w/s 4, d/s 0, f/s 4, rkB/s 0, wkB/s 0, dkB/s 0, rrqm/s 0, wrqm/s 0, drqm/s 0, rrqm 0, \
             wrqm 0, drqm 0, r_await 0, w_await 0.25, d_await 0, f_await 0, rareq-sz 0, wareq-sz 0, dareq-sz 0, \
             aqu-sz 0, util 1.4",
        ),
        (
            "seastar_issue593_iotune_read_iops_phase_5ssd_lvm.txt",
            None,
            1,
            9,
            (0, 1),
            "sdb",
            "r/s 2147.5, w/s 6.5, rkB/s 1099520, wkB/s 204.8, rrqm/s 0, wrqm/s 0, r_await 60.81, w_await 0, \
             aqu-sz 130.61, util 100, await 60.62, areq-sz 510.55",
        ),
        (
            "seed002_nvme_single_run.txt",
            None,
            1,
            1,
            (0, 0),
            "nvme0n1",
            "r/s 0, w/s 16597, d/s 0, f/s 0, rkB/s 0, wkB/s 632217.6, dkB/s 0, rrqm/s 0, wrqm/s 10328, drqm/s 0, \
             rrqm 0, wrqm 38.4, drqm 0, r_await 0, w_await 0.14, d_await 0, f_await 0, rareq-sz 0, \
             wareq-sz 38.1, dareq-sz 0, aqu-sz 2.28, util 96",
        ),
        (
            "seed002_nvme_two_runs.txt",
            None,
            1,
            1,
            (0, 0),
            "nvme0n1",
            "r/s 0, w/s 21357, d/s 0, f/s 0, rkB/s 0, wkB/s 606105.6, dkB/s 0, rrqm/s 0, wrqm/s 9520, drqm/s 0, \
             rrqm 0, wrqm 30.8, drqm 0, r_await 0, w_await 0.07, d_await 0, f_await 0, rareq-sz 0, \
             wareq-sz 28.4, dareq-sz 0, aqu-sz 1.49, util 98",
        ),
        (
            "stackoverflow_75362533_nvme_util100_aqu023.txt",
            None,
            1,
            1,
            (0, 0),
            "nvme1n1",
            "w/s 7497, wkB/s 105250.5, wrqm/s 0, wrqm 0, w_await 0.03, wareq-sz 14.04, aqu-sz 0.23, util 100",
        ),
        (
            "jc_linux-proc_diskstats.txt",
            None,
            1,
            15,
            (0, 8),
            "sda",
            "rrqm 19.139001, wrqm 41.726798, drqm 0, r_await 0.356197, w_await 0.672716, d_await 0, f_await 0, \
             rareq-sz 31.437606, wareq-sz 19.091161, dareq-sz 0, await 0.536252, areq-sz 24.414197",
        ),
        (
            "linux_iostats.rst_format_examples.txt",
            Some(1.0),
            2,
            1,
            (1, 0),
            "hda",
            "r/s 0, w/s 0, rkB/s 0, wkB/s 0, rrqm/s 0, wrqm/s 0, rrqm 0, wrqm 0, r_await 0, w_await 0, \
             rareq-sz 0, wareq-sz 0, aqu-sz 0, util 0, tps 0, kB/s 0, await 0, areq-sz 0",
        ),
        (
            "netdata_issue5744_nvme1n1_1s_series_kernel419_ioticks_bug.txt",
            Some(1.0),
            9,
            1,
            (0, 0),
            "nvme1n1",
            "r/s 0, w/s 166, d/s 0, rkB/s 0, wkB/s 1446, dkB/s 0, rrqm/s 0, wrqm/s 54, drqm/s 0, rrqm 0, \
             wrqm 24.545455, drqm 0, r_await 0, w_await 1.186747, d_await 0, rareq-sz 0, wareq-sz 8.710843, \
             dareq-sz 0, aqu-sz 0.792, util 79.2, tps 166, kB/s 1446, await 1.186747, areq-sz 8.710843",
        ),
        (
            "netdata_issue5744_nvme1n1_1s_series_kernel419_ioticks_bug.txt",
            None,
            9,
            1,
            (0, 0),
            "nvme1n1",
            "rrqm 0, wrqm 24.545455, drqm 0, r_await 0, w_await 1.186747, d_await 0, rareq-sz 0, \
             wareq-sz 8.710843, dareq-sz 0, await 1.186747, areq-sz 8.710843",
        ),
        (
            "netdata_issue9560_pm1733_multipath.txt",
            None,
            1,
            19,
            (0, 8),
            "nvme1c1n1",
            "rrqm 29.979891, wrqm 3.166705, drqm 0, r_await 0.197056, w_await 0.040608, d_await 0, \
             rareq-sz 41.929406, wareq-sz 10.740047, dareq-sz 0, await 0.072989, areq-sz 17.195391",
        ),
        (
            "node_exporter_fixture_diskstats.txt",
            None,
            1,
            51,
            (0, 50),
            "sdc1",
            "rrqm 1.282051, wrqm 48.93617, drqm 0, r_await 0.017316, w_await 0, d_await 0, f_await 0, \
             rareq-sz 74.601732, wareq-sz 2.208333, dareq-sz 0, await 0.015686, areq-sz 67.788235",
        ),
    ];

    for (name, interval_s, intervals, devices, (at, row), device, expect) in table {
        let recorded = read_sample(name, interval_s);
        assert_eq!(recorded.intervals.len(), intervals, "{name}: {:?}", recorded.notes);
        assert_eq!(recorded.intervals.last().unwrap().devices.len(), devices, "{name}");
        let found = &recorded.intervals[at].devices[row];
        assert_eq!((found.device.as_str(), found.columns.known().as_str()), (device, expect), "{name}");
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
