use std::path::Path;

use proptest::prelude::*;

use super::super::capacity::{Capacity, Peaks};
use super::super::saturation::Seen;
use super::super::{Remark, Remote};
use super::*;

/// The load of one direction: requests a second, KiB of each, latency in milliseconds.
type Load = (f64, f64, f64);
const NONE: Load = (0.0, 0.0, 0.0);

fn columns(read: Load, write: Load, queue: f64, util_percent: f64) -> Columns {
    Columns {
        reads_per_s: Some(read.0),
        read_kib_per_s: Some(read.0 * read.1),
        read_await_ms: Some(read.2),
        writes_per_s: Some(write.0),
        write_kib_per_s: Some(write.0 * write.1),
        write_await_ms: Some(write.2),
        queue: Some(queue),
        util_percent: Some(util_percent),
        ..Columns::default()
    }
}

fn device(name: &str, columns: Columns) -> DeviceInterval {
    DeviceInterval { device: name.to_owned(), columns, ..DeviceInterval::default() }
}

/// Returns what is known of a device that was never seen before.
fn evidence<'a>(interval: &'a DeviceInterval, saturation: &'a Saturation) -> Evidence<'a> {
    Evidence {
        interval,
        facts: None,
        capacity_use: None,
        basis: &Basis::Unknown,
        was_full: false,
        did_far_more: false,
        enough_under_way: None,
        saturation,
        in_flight_before: None,
        is_stuck: false,
        stuck_s: 0.0,
        is_disk_full: false,
    }
}

/// Judges one interval of a second as a new watch would, with a model or without.
fn judged(
    interval: &DeviceInterval,
    facts: Option<&DeviceFacts>,
    model: Option<&str>,
) -> (Verdict, String, Vec<Remark>) {
    let capacity = model.map(|name| Capacity::find(name, Path::new(".")).unwrap());
    let of = capacity.as_ref().and_then(|capacity| Some((capacity, capacity.capacity_use(&interval.columns)?)));
    let (capacity_use, basis) = match of {
        Some((capacity, capacity_use)) => (Some(capacity_use), Basis::Model(capacity.name().to_owned())),
        None => (Peaks::default().capacity_use(&interval.columns), Basis::Unknown),
    };

    let model = of.map(|(capacity, _)| capacity);
    let saturation = Saturation::new(&interval.columns, model, of.map(|(_, part)| part), &Seen::default());
    let is_stuck = is_stuck(interval, None, Some(1.0));
    let stuck_s = if is_stuck { 1.0 } else { 0.0 };
    let evidence =
        Evidence { facts, capacity_use, basis: &basis, is_stuck, stuck_s, ..evidence(interval, &saturation) };

    let (verdict, why) = judge(&evidence);
    let remarks = of_device(&evidence, verdict);
    (verdict, why, remarks)
}

fn check(cases: &[(&str, &str, Columns, Verdict)], facts: Option<&DeviceFacts>) {
    for (what, name, columns, expected) in cases {
        let (found, why, _) = judged(&device(name, *columns), facts, None);
        assert_eq!(found, *expected, "{what}: {why}");
        assert!(!why.is_empty() && !why.contains('\n') && why.len() < 200, "{what}: {why}");
    }
}

/// Single reports that people published, with only the device's name known.
#[test]
fn published_reports() {
    check(
        &[
            ("840 EVO, one load", "sdd", columns((13_823.0, 4.0, 0.06), NONE, 0.78, 78.4), Verdict::Ok),
            ("seed 002, one run", "nvme0n1", columns(NONE, (16_597.0, 38.1, 0.14), 2.28, 96.0), Verdict::BusyButFree),
            ("seed 002, two runs", "nvme0n1", columns(NONE, (21_357.0, 28.4, 0.07), 1.49, 98.0), Verdict::BusyButFree),
            ("a share of 0.23", "nvme1n1", columns(NONE, (7_497.0, 14.04, 0.03), 0.23, 100.0), Verdict::BusyButFree),
            ("iotune, sda", "sda", columns((6.5, 12.9, 0.46), NONE, 0.0, 0.2), Verdict::Idle),
            (
                "iotune, sdb",
                "sdb",
                columns((2147.5, 512.0, 60.81), (6.5, 31.5, 0.0), 130.61, 100.0),
                Verdict::Saturated,
            ),
            ("iotune, sdc", "sdc", columns((2120.5, 512.0, 25.12), NONE, 53.07, 98.8), Verdict::Saturated),
            ("iotune, sdd", "sdd", columns((2079.5, 512.0, 21.56), NONE, 43.39, 97.5), Verdict::Saturated),
            ("iotune, dm-1", "dm-1", columns(NONE, NONE, 0.0, 0.0), Verdict::Idle),
            ("kernel 4.19", "nvme1n1", columns(NONE, (166.0, 8.7, 1.19), 0.79, 79.2), Verdict::BusyButFree),
            ("kernel 4.19, later", "nvme1n1", columns(NONE, (12.0, 4.0, 1.75), 0.97, 96.8), Verdict::BusyButFree),
            ("a notebook", "sda", columns((1.25, 57.43, 0.88), (15.74, 27.46, 1.82), 0.03, 1.98), Verdict::Ok),
            ("its swap", "dm-1", columns((0.06, 4.0, 0.57), (0.12, 4.0, 12.86), 0.0, 1.0), Verdict::Idle),
            ("a loop", "loop5", columns((0.1, 33.41, 0.37), NONE, 0.0, 0.03), Verdict::Idle),
            ("a drive of CDs", "sr0", columns((0.19, 37.55, 0.24), NONE, 0.0, 0.01), Verdict::Idle),
        ],
        None,
    );
}

#[test]
fn what_one_finds_in_the_wild() {
    check(
        &[
            ("spins, random", "sda", columns((118.0, 8.0, 32.0), (6.0, 12.0, 20.0), 3.9, 99.6), Verdict::Saturated),
            ("spins, QD1", "sdb", columns((110.0, 4.0, 9.0), NONE, 0.99, 99.8), Verdict::Saturated),
            ("spins, long", "sdb", columns((360.0, 512.0, 14.0), NONE, 5.0, 100.0), Verdict::Saturated),
            ("spins, 100 of them", "sdb", columns((100.0, 4.0, 40.0), NONE, 4.0, 100.0), Verdict::Saturated),
            ("LVM on it", "dm-0", columns((20.0, 8.0, 40.0), (180.0, 8.0, 110.0), 21.0, 100.0), Verdict::Saturated),
            ("half busy", "sda", columns((50.0, 16.0, 9.0), (10.0, 8.0, 5.0), 0.5, 45.0), Verdict::Ok),
            ("ill", "sdc", columns((4.0, 4.0, 480.0), NONE, 2.0, 100.0), Verdict::Degraded),
            ("SATA SSD, QD1", "sda", columns((8_200.0, 4.0, 0.12), NONE, 0.98, 99.0), Verdict::BusyButFree),
            ("NVMe, QD1", "nvme0n1", columns((11_500.0, 4.0, 0.08), NONE, 0.95, 99.9), Verdict::BusyButFree),
            ("NVMe, quick", "nvme0n1", columns((400e3, 4.0, 0.08), NONE, 32.0, 100.0), Verdict::Ok),
            ("NVMe, deep", "nvme0n1", columns((400e3, 4.0, 0.16), NONE, 64.0, 100.0), Verdict::Saturated),
            ("small NVMe, writes", "nvme1n1", columns(NONE, (1800.0, 128.0, 17.0), 31.0, 100.0), Verdict::Saturated),
            ("volume out of credits", "xvdf", columns((384.0, 8.0, 81.0), NONE, 31.0, 100.0), Verdict::Degraded),
            ("hot NVMe", "nvme0n1", columns((4_800.0, 4.0, 6.6), NONE, 32.0, 100.0), Verdict::Degraded),
            ("SSD, round by chance", "sda", columns(NONE, (2000.0, 16.0, 20.0), 40.0, 100.0), Verdict::Saturated),
            ("array of NVMe", "md0", columns((40e3, 16.0, 0.15), NONE, 6.0, 99.9), Verdict::Unknown),
            ("card", "mmcblk0", columns(NONE, (11.0, 16.0, 310.0), 3.4, 100.0), Verdict::Saturated),
            ("NVMe, deeper", "nvme0n1", columns((400e3, 4.0, 2.5), NONE, 1000.0, 100.0), Verdict::Saturated),
            ("written back", "nvme0n1", columns(NONE, (1000.0, 512.0, 300.0), 150.0, 100.0), Verdict::Saturated),
            ("in bursts", "nvme0n1", columns(NONE, (800.0, 128.0, 5.0), 4.0, 35.0), Verdict::Ok),
            // These are not known to be volumes, so a limit in front of the device holds them.
            ("gp3 at its limit", "nvme1n1", columns((3000.1, 16.0, 20.0), NONE, 60.0, 100.0), Verdict::Degraded),
            (
                "gp2 at its limit",
                "xvdf",
                columns((1500.0, 8.0, 10.7), (1503.0, 8.0, 10.6), 32.0, 100.0),
                Verdict::Degraded,
            ),
            ("no credits", "xvdf", columns(NONE, (100.0, 8.0, 80.0), 8.0, 100.0), Verdict::Degraded),
            ("no credits, QD2", "nvme1n1", columns((100.2, 8.0, 20.0), NONE, 2.0, 99.9), Verdict::Degraded),
            ("125 MiB/s", "nvme2n1", columns(NONE, (500.0, 256.0, 64.0), 32.0, 100.0), Verdict::Degraded),
            ("Azure P30", "sdc", columns((5000.0, 8.0, 12.8), NONE, 64.0, 100.0), Verdict::Degraded),
            (
                "virtual, full",
                "vda",
                columns((150.0, 12.0, 40.0), (337.0, 20.0, 90.0), 36.0, 100.0),
                Verdict::Saturated,
            ),
            ("virtual, sync writes", "vda", columns(NONE, (330.0, 4.0, 2.9), 0.96, 97.0), Verdict::BusyButFree),
            ("NVMe, cache exhausted", "nvme0n1", columns(NONE, (200.0, 128.0, 350.0), 70.0, 100.0), Verdict::Degraded),
            // A disk of c5d.xlarge writes at most 84 MB/s.
            ("small instance, full", "nvme1n1", columns(NONE, (640.0, 128.0, 110.0), 70.0, 100.0), Verdict::Saturated),
            ("compressed memory", "zram0", columns((9000.0, 4.0, 0.0), (7000.0, 4.0, 0.01), 0.1, 12.0), Verdict::Ok),
            ("stack of rbd", "rbd0", columns(NONE, (2500.0, 8.0, 3.1), 7.7, 100.0), Verdict::Unknown),
            ("a round rate", "vda", columns((3000.0, 8.0, 20.0), NONE, 60.0, 100.0), Verdict::Degraded),
            // Ill devices with a short queue.
            ("17 times the usual", "nvme0n1", columns((195.0, 4.0, 5.1), NONE, 1.0, 100.0), Verdict::Degraded),
            ("27 times, writes", "nvme0n1", columns(NONE, (120.0, 4.0, 8.1), 0.97, 97.0), Verdict::Degraded),
            ("10 times, QD4", "nvme0n1", columns((1340.0, 4.0, 2.9), NONE, 3.9, 100.0), Verdict::Degraded),
            ("slow volume", "xvdf", columns((83.0, 4.0, 12.0), NONE, 1.0, 100.0), Verdict::Ok),
            ("slow virtual disk", "vda", columns((83.0, 4.0, 12.0), NONE, 1.0, 100.0), Verdict::Ok),
            ("SATA, all tags", "sda", columns((96_000.0, 4.0, 0.33), NONE, 31.8, 100.0), Verdict::Saturated),
            ("no time counted", "md127", columns(NONE, (150.0, 208.0, 0.0), 0.0, 0.0), Verdict::Ok),
            ("next to nothing, in ticks", "vda", columns(NONE, (2.0, 8.0, 0.0), 0.0, 0.0), Verdict::Idle),
            ("stuck, old kernel", "sdb", columns(NONE, NONE, 32.0, 100.0), Verdict::Hung),
            ("stuck, new kernel", "nvme0n1", columns(NONE, NONE, 0.0, 100.0), Verdict::Hung),
        ],
        None,
    );
}

#[test]
fn facts_decide_where_names_do_not() {
    let known = |is_rotational| DeviceFacts { is_rotational: Some(is_rotational), ..DeviceFacts::default() };
    let full = columns((150.0, 64.0, 6.5), NONE, 0.98, 98.0);
    check(&[("it spins", "sda", full, Verdict::Saturated)], Some(&known(true)));
    check(&[("it does not, and is ill", "sda", full, Verdict::Degraded)], Some(&known(false)));

    let at_limit = columns((1500.0, 8.0, 10.7), (1503.0, 8.0, 10.6), 32.0, 100.0);
    let ebs = DeviceFacts { model: Some("Amazon Elastic Block Store".to_owned()), ..DeviceFacts::default() };
    check(&[("it is what was sold", "xvdf", at_limit, Verdict::Saturated)], Some(&ebs));

    let array = DeviceFacts { members: ["a", "b", "c", "d"].map(str::to_owned).to_vec(), ..known(true) };
    let cases = [
        ("some are free", "md0", columns((300.0, 8.0, 8.0), NONE, 2.4, 95.0), Verdict::Ok),
        ("none is", "md0", columns((480.0, 8.0, 50.0), NONE, 24.0, 100.0), Verdict::Saturated),
    ];
    check(&cases, Some(&array));

    let link = Remote { kind: "rbd".to_owned(), link_bytes_per_s: Some(1_250_000_000) };
    let remote = DeviceFacts { remote: Some(link), is_ephemeral: true, ..DeviceFacts::default() };
    let (verdict, why, remarks) =
        judged(&device("rbd0", columns(NONE, (2300.0, 512.0, 28.0), 64.0, 100.0)), Some(&remote), None);
    assert_eq!((verdict, why.contains("link is 96 % used")), (Verdict::Saturated, true), "{why}");
    let codes: Vec<&str> = remarks.iter().map(|remark| remark.code).collect();
    assert_eq!(codes, ["util-misleads", "network-disk", "ephemeral", "first-interval"]);

    // A link carries as much in each direction.
    let both = columns((1300.0, 512.0, 28.0), (1300.0, 512.0, 28.0), 73.0, 100.0);
    let (_, why, remarks) = judged(&device("rbd0", both), Some(&remote), None);
    assert!(!why.contains("link"), "{why}");
    assert!(remarks.iter().any(|remark| remark.message.contains("(rbd): 55 % of what")), "{remarks:?}");
}

/// The rows of the module's table, on a disk of 257 000 reads a second and 0.14 ms.
#[test]
fn with_a_model() {
    let cases = [
        ("QD1", (7_246.0, 4.0, 0.138), 1.0, Verdict::BusyButFree),
        ("half", (121_000.0, 4.0, 0.19), 23.0, Verdict::Ok),
        ("full", (250_000.0, 4.0, 0.36), 90.0, Verdict::Saturated),
        ("full, no queue", (250_000.0, 4.0, 0.15), 37.0, Verdict::Ok),
        ("near", (206_000.0, 4.0, 0.31), 64.0, Verdict::Ok),
        ("slow", (30_000.0, 4.0, 2.0), 60.0, Verdict::Degraded),
        ("one slow at a time", (500.0, 4.0, 2.0), 1.0, Verdict::Degraded),
        ("two and a half times", (600.0, 4.0, 0.35), 0.21, Verdict::Ok),
    ];

    for (what, read, queue, expected) in cases {
        let util = if queue < 1.0 { 27.0 } else { 100.0 };
        let (found, why, _) = judged(&device("nvme0n1", columns(read, NONE, queue, util)), None, Some("i3en.3xlarge"));
        assert_eq!(found, expected, "{what}: {why}");
    }

    let throttled = device("nvme1n1", columns((3000.0, 16.0, 20.0), NONE, 60.0, 100.0));
    let cases = [("gp3", Verdict::Saturated), ("gp3:16000iops", Verdict::Degraded), ("i4i.2xlarge", Verdict::Degraded)];
    for (model, expected) in cases {
        let (found, why, _) = judged(&throttled, None, Some(model));
        assert_eq!(found, expected, "{model}: {why}");
        assert!(expected != Verdict::Degraded || why.contains("limited to these 3,000 requests/s"), "{why}");
    }

    let (verdict, why, _) =
        judged(&device("nvme0n1", columns(NONE, (16_597.0, 38.1, 0.14), 2.28, 96.0)), None, Some("4x983-dct"));
    assert_eq!(verdict, Verdict::BusyButFree, "{why}");

    let (_, _, remarks) =
        judged(&device("nvme1n1", columns((90_000.0, 4.0, 0.5), NONE, 45.0, 100.0)), None, Some("gp3"));
    assert!(remarks.iter().any(|remark| remark.code == "ops-per-minute"), "{remarks:?}");
}

/// A load above the model's capacity is no part of it: credits, or another disk.
#[test]
fn more_than_a_model_has_is_told_in_words() {
    let cases = [(3_000.0, 20.0, false), (3_060.0, 20.0, false), (3_900.0, 20.0, true), (3_900.0, 0.6, true)];
    for (per_s, await_ms, expected) in cases {
        let load = columns((per_s, 16.0, await_ms), NONE, per_s * await_ms / 1000.0, 100.0);
        let (_, why, _) = judged(&device("nvme1n1", load), None, Some("gp3"));
        assert_eq!(why.contains("it does 1.3 times what gp3 can"), expected, "{per_s} {await_ms}: {why}");
        assert!(!expected || !why.contains("130 %"), "{why}");
    }
}

#[test]
fn what_is_missing_is_not_guessed() {
    let with = |columns: Columns| judged(&device("nvme0n1", columns), None, None).0;
    let cases = [
        ("nothing", Columns::default(), Verdict::Unknown),
        ("rates", Columns { reads_per_s: Some(9000.0), ..Columns::default() }, Verdict::Unknown),
        ("no rates", Columns { reads_per_s: Some(0.0), ..Columns::default() }, Verdict::Idle),
        ("tps", Columns { transfers_per_s: Some(0.2), ..Columns::default() }, Verdict::Idle),
        ("low util", Columns { util_percent: Some(1.0), ..Columns::default() }, Verdict::Idle),
        ("util", Columns { util_percent: Some(50.0), ..Columns::default() }, Verdict::Ok),
        ("high util", Columns { util_percent: Some(99.0), ..Columns::default() }, Verdict::Unknown),
        ("a queue", Columns { reads_per_s: Some(9e3), queue: Some(90.0), ..Columns::default() }, Verdict::Saturated),
    ];
    for (what, columns, expected) in cases {
        assert_eq!(with(columns), expected, "{what}");
    }

    for gap in [Gap::Appeared, Gap::Disappeared, Gap::Reset] {
        let interval = DeviceInterval { gap: Some(gap), ..device("sda", Columns::default()) };
        assert_eq!(judged(&interval, None, None).0, Verdict::Unknown);
    }
}

#[test]
fn stuck_is_not_just_sent() {
    let none = columns(NONE, NONE, 0.0, 2.0);
    let cases = [
        (none, Some(1), false),
        (none, Some(0), false),
        (columns(NONE, NONE, 1.0, 100.0), Some(1), true),
        (columns(NONE, NONE, 0.0, 100.0), Some(0), false),
        (columns(NONE, NONE, 32.0, 100.0), None, true),
        (Columns { flushes_per_s: Some(1.0), ..columns(NONE, NONE, 1.0, 100.0) }, Some(1), false),
    ];
    for (columns, in_flight, expected) in cases {
        let interval = DeviceInterval { in_flight, ..device("sda", columns) };
        assert_eq!(is_stuck(&interval, None, Some(1.0)), expected, "{columns:?} {in_flight:?}");
    }

    // Kernels of 5.0 to 5.17 add busy time only when requests complete, so that it is 0 here. Requests under way at the
    // begin and at the end, seconds, and whether the device is stuck.
    let still = columns(NONE, NONE, 0.0, 0.0);
    let cases = [
        (Some(3), Some(3), 0.1, true),
        (Some(1), Some(1), 1.0, true),
        (Some(0), Some(3), 1.0, false),
        (None, Some(2), 1.0, true),
        (None, Some(2), 0.5, false),
        (None, Some(1), 1.0, false),
        (Some(3), Some(0), 1.0, false),
        (Some(u64::from(u32::MAX)), Some(u64::from(u32::MAX)), 1.0, false),
        (None, Some(u64::MAX), 1.0, false),
    ];
    for (before, in_flight, duration_s, expected) in cases {
        let interval = DeviceInterval { in_flight, ..device("sda", still) };
        assert_eq!(is_stuck(&interval, before, Some(duration_s)), expected, "{before:?} {in_flight:?} {duration_s}");
    }
}

#[test]
fn discards_and_flushes_are_no_slow_reads() {
    let trims = |per_s: f64, await_ms: f64, columns: Columns| Columns {
        discards_per_s: Some(per_s),
        discard_kib_per_s: Some(per_s * 1024.0),
        discard_await_ms: Some(await_ms),
        await_ms: Some(await_ms),
        ..columns
    };
    let flushes = Columns { flushes_per_s: Some(2.0), flush_await_ms: Some(490.0), ..columns(NONE, NONE, 0.0, 98.0) };
    check(
        &[
            (
                "trimming",
                "nvme0n1",
                trims(500.0, 22.0, columns(NONE, (10.0, 4.0, 0.2), 11.0, 99.0)),
                Verdict::BusyButFree,
            ),
            (
                "trimming, SATA",
                "sda",
                trims(50.0, 19.0, columns((5.0, 4.0, 0.4), (10.0, 4.0, 0.6), 0.96, 99.0)),
                Verdict::BusyButFree,
            ),
            (
                "and what waits beside it",
                "nvme0n1",
                trims(500.0, 22.0, columns((9_000.0, 16.0, 2.0), NONE, 29.0, 99.0)),
                Verdict::Saturated,
            ),
            ("flushes alone", "sda", flushes, Verdict::Ok),
        ],
        None,
    );

    let trimming = trims(500.0, 22.0, columns(NONE, (10.0, 4.0, 0.2), 11.0, 99.0));
    assert!(judged(&device("nvme0n1", trimming), None, None).1.contains("it is trimming"));

    let slow =
        Columns { flushes_per_s: Some(0.3), flush_await_ms: Some(36.4), ..columns(NONE, (5.0, 4.0, 9.0), 0.1, 9.0) };
    let (_, _, remarks) = judged(&device("sda", slow), None, None);
    assert!(remarks.iter().any(|remark| remark.message.starts_with("0.3 flushes a second of 36.4 ms")), "{remarks:?}");
}

#[test]
fn an_unknown_rate_is_not_printed_as_none() {
    let queue_alone = Columns { reads_per_s: Some(9e3), queue: Some(90.0), ..Columns::default() };
    let (_, why, _) = judged(&device("nvme0n1", queue_alone), None, None);
    assert!(why.starts_with("9,000 requests/s with"), "{why}");
}

#[test]
fn remarks_say_what_misleads() {
    let codes = |interval: &DeviceInterval| -> Vec<&'static str> {
        judged(interval, None, None).2.into_iter().map(|remark| remark.code).collect()
    };
    let biased = device("nvme1n1", columns(NONE, (7_497.0, 14.04, 0.03), 0.23, 100.0));
    assert_eq!(codes(&biased), ["util-misleads", "tick-bias", "first-interval"]);
    let mut flushed = device("nvme0n1", columns(NONE, (900.0, 4.0, 0.5), 0.5, 50.0));
    flushed.columns.flushes_per_s = Some(300.0);
    flushed.columns.flush_await_ms = Some(0.4);
    assert_eq!(codes(&flushed), ["flush-counted-twice", "first-interval"]);
    // Flushes keep a disk busy: 300 of 3 ms are 0.9 of the time, so `%util` is not biased.
    flushed.columns = Columns { queue: Some(1.4), util_percent: Some(92.0), ..flushed.columns };
    flushed.columns.flush_await_ms = Some(3.0);
    assert_eq!(codes(&flushed), ["util-misleads", "flush-counted-twice", "first-interval"]);
    let old = device("hda", columns((100.0, 4.0, 9.9), NONE, 1.0, 99.0));
    assert_eq!(codes(&old), ["first-interval"]);

    let quoted = &judged(&biased, None, None).2[0].message;
    for words in ["%util of 100 is time in which", "iostat's manual page says so since sysstat 10.1.7 of 2013"] {
        assert!(quoted.contains(words), "{quoted}");
    }
}

proptest! {
    #[test]
    fn any_columns_have_a_verdict(
        read in proptest::array::uniform3(proptest::option::of(0.0..1e9_f64)),
        write in proptest::array::uniform3(proptest::option::of(0.0..1e9_f64)),
        queue in proptest::option::of(0.0..1e9_f64),
        util_percent in proptest::option::of(0.0..200.0_f64),
        in_flight in proptest::option::of(0..9_u64),
        name in proptest::sample::select(vec!["sda", "nvme0n1", "vda", "md0", "sr0", ""]),
        model in proptest::sample::select(vec![None, Some("gp3"), Some("hdd"), Some("i3en.3xlarge")]),
    ) {
        let columns = Columns {
            reads_per_s: read[0], read_kib_per_s: read[1], read_await_ms: read[2],
            writes_per_s: write[0], write_kib_per_s: write[1], write_await_ms: write[2],
            queue, util_percent, ..Columns::default()
        };
        let interval = DeviceInterval { in_flight, ..device(name, columns) };
        let (_, why, remarks) = judged(&interval, None, model);
        let texts = remarks.iter().map(|remark| &remark.message).chain([&why]);
        for text in texts {
            prop_assert!(!text.is_empty() && !text.contains("NaN") && !text.contains("inf"), "{}", text);
        }
    }
}

/// Writes of an SSD that takes four times as long as it did, with hardly two under way while it is busy; and the same
/// latency in bursts of twelve, which explain it.
#[test]
fn waiting_that_no_queue_explains_is_unclear() {
    let saturation = Saturation { overall: Some(0.8), read: None, write: Some(0.8), unloaded_ms: Some(0.1) };
    for (util_percent, expected) in [(42.0, Verdict::Unknown), (4.8, Verdict::Ok)] {
        let interval = device("nvme0n1", columns(NONE, (1_280.0, 64.0, 0.45), 0.58, util_percent));
        let (found, why) = judge(&evidence(&interval, &saturation));
        assert_eq!(found, expected, "{util_percent}: {why}");
        assert!(why.len() < 200, "{why}");
    }
}
