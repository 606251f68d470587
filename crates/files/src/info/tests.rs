//! Checks known answers: Seastar's integers, and rates computed by hand.

use super::*;
use crate::{disk, io_properties};

const I4I: &str = "disks: [{mountpoint: /nowhere, read_bandwidth: 1542559872, read_iops: 218786, \
                   write_bandwidth: 1130867072, write_iops: 121499}]";

fn info(text: &str, options: &InfoOptions) -> Info {
    of_properties(&io_properties::parse("test", text).unwrap(), options)
}

fn first(text: &str) -> DiskInfo {
    info(text, &InfoOptions::default()).disks.remove(0)
}

fn figures_text(read_iops: u64, read_bandwidth: u64, write_iops: u64, write_bandwidth: u64) -> String {
    format!(
        "disks: [{{mountpoint: /nowhere, read_iops: {read_iops}, read_bandwidth: {read_bandwidth}, write_iops: \
         {write_iops}, write_bandwidth: {write_bandwidth}}}]"
    )
}

/// A disk without figures, when that still meant 2^31 - 1: 2^24 operations of weight 128 are one more than that.
#[test]
fn seastar_s_unconfigured_disk_of_before_2025() {
    let text = figures_text(1 << 24, (1 << 33) - 4, 1 << 24, (1 << 33) - 4);
    let options = InfoOptions { io_queues: 48, ..InfoOptions::default() };
    let disk = &info(&text, &options).disks[0];
    let seastar = &disk.ioinfo;
    let expected: Vec<(u32, CapacityInfo)> = [2_000, 3_000, 5_000, 9_000, 17_000, 33_000, 65_000, 129_000, 257_000]
        .into_iter()
        .enumerate()
        .map(|(step, units)| (512 << step, CapacityInfo { read: units, write: units }))
        .collect();
    assert_eq!(seastar.fair_queue.capacities, expected);
    assert_eq!((seastar.disk_read_max_length, seastar.disk_write_max_length), (Some(4_194_304), Some(4_194_304)));
    assert_eq!(seastar.io_queue.blocks_count_rate, Some(2_147_483_647));
    assert_eq!(seastar.io_queue.req_count_rate, Some(2_147_483_648));
    assert_eq!(seastar.fair_queue.per_tick_grab_threshold, 262_144);
    let bucket = TokenBucketInfo { limit: 12_582_912, rate: 16_777_216, threshold: 2_000 };
    assert_eq!(seastar.fair_queue.token_bucket, bucket);
    assert_eq!(seastar.io_latency_goal_ms, 0.75);
}

#[test]
fn seastar_s_integers_of_an_i4i_2xlarge() {
    let options = InfoOptions { io_queues: 7, ..InfoOptions::default() };
    let seastar = info(I4I, &options).disks.remove(0).ioinfo;
    let queue = IoQueueInfo {
        id: 1,
        req_count_rate: Some(28_004_608),
        blocks_count_rate: Some(385_639_968),
        disk_req_write_to_read_multiplier: 230,
        disk_blocks_write_to_read_multiplier: 174,
    };
    assert_eq!(seastar.io_queue, queue);

    let capacity = |bytes| seastar.fair_queue.capacities.iter().find(|(size, _)| *size == bytes).map(|(_, c)| *c);
    assert_eq!(capacity(512), Some(CapacityInfo { read: 82_251, write: 145_360 }));
    assert_eq!(capacity(4096), Some(CapacityInfo { read: 121_232, write: 198_348 }));
    assert_eq!(capacity(131_072), Some(CapacityInfo { read: 1_502_250, write: 2_075_671 }));
    assert_eq!((capacity(256), capacity(262_144)), (None, None));

    assert_eq!(seastar.fair_queue.per_tick_grab_threshold, 1_797_558);
    let bucket = TokenBucketInfo { limit: 12_582_912, rate: 16_777_216, threshold: 82_251 };
    assert_eq!(seastar.fair_queue.token_bucket, bucket);
    assert_eq!((seastar.disk_read_max_length, seastar.disk_write_max_length), (Some(1 << 20), Some(512 << 10)));
    assert_eq!(seastar.device, None, "/nowhere is on no device");
}

#[test]
fn calculated_figures_are_the_configured_ones() {
    // Seastar's weights, blocks per second and costs are whole numbers, which shows most with a disk of 1 byte per
    // second, and with one of 10^9 operations per second, which cost 16.8 units each and are charged as 16.
    let any = f64::INFINITY;
    let cases = [
        (I4I.to_owned(), 0.5),
        (figures_text(1, 1, 1, 1), any),
        (figures_text(2, 3, 4, 5), any),
        (figures_text(95_000, 545 << 20, 85_000, 510 << 20), 1.0),
        (figures_text(32_004, 262_607_760, 34_608, 265_524_816), 1.0),
        (figures_text(1_000_000, 1_000_000_000, 134_608, 604_995_968), 0.5),
        (figures_text(2_647_697, 26_121_177_088, 2_002_573, 19_944_206_336), 0.5),
        (figures_text(1_000_000_000, 10_000_000_000_000, 1_000_000_000, 10_000_000_000_000), 5.0),
    ];
    for (text, seastar_limit_pct) in cases {
        for form in first(&text).forms {
            let Four { read_iops, read_bandwidth, write_iops, write_bandwidth } = form.difference_pct;
            for difference in [read_iops, read_bandwidth, write_iops, write_bandwidth] {
                let limit_pct = if form.name == "seastar" { seastar_limit_pct } else { 0.5 };
                let difference = difference.expect("all figures are limited");
                assert!(difference.abs() <= limit_pct, "{text} {}: {difference} %", form.name);
            }
        }
    }
}

/// Writes ten times as fast as reads weigh 12 instead of 12.8, so Seastar admits 6.7 % more than configured.
#[test]
fn seastar_s_own_difference_is_shown() {
    let disk = first(&figures_text(1_000, 1 << 30, 10_000, 1 << 30));
    let difference = |form| disk.form(form).and_then(|form| form.difference_pct.write_iops).unwrap();
    assert!((difference("seastar") - 6.667).abs() < 0.001, "{}", difference("seastar"));
    assert!(difference("knee").abs() < 1e-6);
    let free = first(&figures_text(1_000, 1 << 30, 200_000, 200 << 30));
    let seastar = free.form("seastar").unwrap();
    assert_eq!((seastar.calculated.write_iops, seastar.difference_pct.write_iops), (None, None));
    assert_eq!(seastar.size(4096).and_then(|size| size.write_iops), None);
    assert!(free.form("max").and_then(|form| form.size(4096)).is_some_and(|size| size.write_iops.is_some()));
}

#[test]
fn what_each_form_lets_through() {
    // Reads: 5 us, 2 GB/s. Writes: 10 us, 1 GB/s. Costs in us, computed by hand.
    let disk = first(&figures_text(200_000, 2_000_000_000, 100_000, 1_000_000_000));
    let cases = [
        // form, bytes, read, write
        ("knee", 512, 5.0, 10.0),
        ("knee", 4_096, 5.0, 10.0),
        ("knee", 65_536, 35.72, 71.44),
        ("additive", 512, 5.256, 10.512),
        ("additive", 4_096, 7.048, 14.096),
        ("max", 4_096, 5.0, 10.0),
        ("max", 65_536, 32.768, 65.536),
        ("seastar", 4_096, 7.048, 14.096),
    ];

    for (name, bytes, read_us, write_us) in cases {
        let size = disk.form(name).and_then(|form| form.size(bytes)).unwrap();
        let near =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 1e-4, "{name} {bytes}: {value}");
        near(size.read_cost_ns, read_us * 1e3);
        near(size.write_cost_ns, write_us * 1e3);
        near(size.read_iops.unwrap(), 1e6 / read_us);
        near(size.write_iops.unwrap(), 1e6 / write_us);
        near(size.mixed_iops.unwrap(), 2e6 / (read_us + write_us));
        near(size.mixed_bytes_per_s.unwrap(), f64::from(bytes) * 2e6 / (read_us + write_us));
    }

    let reachable = |name| disk.form(name).and_then(|form| form.reachable_4k_read_pct).unwrap().round();
    assert_eq!(["knee", "additive", "max", "seastar"].map(reachable), [100.0, 71.0, 100.0, 71.0]);
}

#[test]
fn pieces_are_paid_for_each() {
    // An unsplit write is 512 KiB; 1 MiB goes in two, and pays the length-independent part twice.
    let disk = first(I4I);
    let seastar = disk.form("seastar").unwrap();
    let [half, whole] = [512 << 10, 1 << 20].map(|bytes| *seastar.size(bytes).unwrap());
    assert_eq!((half.write_pieces, whole.write_pieces, whole.read_pieces), (1, 2, 1));
    assert!((whole.write_cost_ns - 2.0 * half.write_cost_ns).abs() < 1e-3);
    let unsplit = InfoOptions { latency_goal: LatencyGoal::NoSplit, ..InfoOptions::default() };
    let disk = info(I4I, &unsplit).disks.remove(0);
    let seastar = disk.form("seastar").unwrap();
    assert_eq!((seastar.write_max_bytes, disk.ioinfo.disk_write_max_length), (None, None));
    assert_eq!(seastar.size(1 << 20).map(|size| size.write_pieces), Some(1));
    assert_eq!((disk.latency_goal_asked_ms, disk.ioinfo.io_latency_goal_ms), (None, 0.75));
    assert!(seastar.latency_goal_reason.as_ref().is_some_and(|reason| reason.contains("nothing is split")));
}

#[test]
fn a_goal_below_one_write_of_64_kib_is_raised() {
    let disk = first(&figures_text(200, 200_000_000, 100, 100_000_000));
    // 1/100 s + 65536/10^8 s.
    let additive = disk.form("additive").unwrap();
    assert!((additive.latency_goal_effective_ms - 10.655).abs() < 0.001, "{}", additive.latency_goal_effective_ms);
    let reason = additive.latency_goal_reason.as_deref();
    assert_eq!(reason, Some("one write of 64 KiB takes 10.655 ms, and nothing shorter is split off"));
    assert!((disk.ioinfo.io_latency_goal_ms - 10.655).abs() < 0.001);
    assert_eq!(additive.write_max_bytes, Some(64 << 10));
    assert_eq!(first(I4I).form("knee").map(|knee| knee.latency_goal_reason.clone()), Some(None));
}

#[test]
fn mixes_follow_the_exponent() {
    // 5 us and 5 us: half and half of the time, where p = 2 gives sqrt(2) times, and duplex twice.
    let figures = "read_iops: 200000, read_bandwidth: 2G, write_iops: 200000, write_bandwidth: 2G";
    let cases = [
        ("mix_exponent: 1", 200_000.0, Some(1.0)),
        ("mix_exponent: 2", 282_843.0, Some(2.0)),
        ("duplex: true", 4e5, None),
    ];
    for (more, expected_iops, p) in cases {
        let model = disk::parse("test", &format!("disk: {{{figures}, {more}}}")).unwrap();
        let disk = &of_disk_model(&model, "mine", &InfoOptions::default()).disks[0];
        let mixed = disk.form("knee").and_then(|knee| knee.size(4096)).and_then(|size| size.mixed_iops).unwrap();
        assert!((mixed - expected_iops).abs() < 1.0, "{more}: {mixed}");
        assert_eq!((disk.mix_exponent, disk.label()), (p, "mine"));
    }
}

/// A volume sells operations and bytes, not reads and writes: a mix of both gets as much as one of them alone.
#[test]
fn a_mix_does_not_exceed_what_reads_and_writes_share() {
    for (name, iops, bytes_per_s) in [
        ("gp3:1000GiB:16000iops:1000MiB/s", 16_000.0, 1000.0 * 1048576.0),
        ("gp3", 3000.0, 125.0 * 1048576.0),
        ("3xgp3:50GB:250MB/s", 9000.0, 750e6),
        ("io2:100GiB:20000iops", 20_000.0, f64::INFINITY),
    ] {
        let model = disk::find(name, std::path::Path::new("")).unwrap();
        let disk = &of_disk_model(&model, name, &InfoOptions::default()).disks[0];
        let own = (disk.mix_exponent, disk.model, disk.shared_limits.len());
        assert_eq!(own, (Some(1.0), "max", 2), "{name}");
        for size in disk.forms.iter().flat_map(|form| &form.sizes) {
            let (mixed, alone) = (size.mixed_iops.unwrap(), size.read_iops.unwrap().max(size.write_iops.unwrap()));
            assert!(mixed <= iops * 1.001 && mixed * f64::from(size.bytes) <= bytes_per_s * 1.001, "{name} {size:?}");
            // Nor is it less than reads and writes in turn.
            assert!(mixed >= 0.999 * alone.min(iops).min(bytes_per_s / f64::from(size.bytes)), "{name} {size:?}");
        }
    }
    // The local disk of an instance has no such limit.
    let local = disk::find("i3.large", std::path::Path::new("")).unwrap();
    assert!(of_disk_model(&local, "i3.large", &InfoOptions::default()).disks[0].shared_limits.is_empty());
}

#[test]
fn a_measured_table_stands_beside_the_forms() {
    let text = "disk: {read_iops: 100000, read_bandwidth: 1G, write_iops: 50000, write_bandwidth: 500M, \
                read_table: [[4096, 100000], [65536, 15000]], write_table: [[4096, 50000], [65536, 7000]]}";
    let model = disk::parse("test", text).unwrap();
    let disk = &of_disk_model(&model, "x", &InfoOptions::default()).disks[0];
    assert_eq!(disk.model, TABLE);
    let names: Vec<&str> = disk.forms.iter().map(|form| form.name).collect();
    assert_eq!(names, ["table", "knee", "additive", "max", "seastar"]);
    let at_64k = disk.form(TABLE).and_then(|table| table.size(65_536)).and_then(|size| size.read_iops).unwrap();
    assert!((at_64k - 15_000.0).abs() < 0.1, "{at_64k}");
    let asked = InfoOptions { form: Some(CostForm::Max), ..InfoOptions::default() };
    assert_eq!(of_disk_model(&model, "x", &asked).disks[0].model, "max");
}

#[test]
fn several_mount_points_share_a_disk_and_saturation_lengths_bound_it() {
    let text = "disks:
- {mountpoints: [/nowhere, /dev/null], read_iops: 95000, read_bandwidth: 545M, write_iops: 85000, write_bandwidth: 510M,
   write_saturation_length: 64k}
- {mountpoint: /elsewhere, read_iops: 1200, read_bandwidth: 1G, write_iops: 1200, write_bandwidth: 1G, rate_factor: 0.5}
";
    let info = info(text, &InfoOptions::default());
    let [one, two] = info.disks.as_slice() else { panic!("two disks") };
    assert_eq!(one.mountpoint.as_deref(), Some("/nowhere:/dev/null"));
    // The null device is number 3 of the memory devices, which have number 1.
    assert_eq!(one.ioinfo.device, Some(0x103));
    assert_eq!(one.ioinfo.disk_write_max_length, Some(65_536));
    assert_eq!((two.configured.read_iops, two.ioinfo.io_queue.id), (Some(600), 2));
}

#[test]
fn formats_say_the_same() {
    let two = I4I.replace(
        "]",
        ", {mountpoint: \"/a b\", read_iops: 9, read_bandwidth: 1M, write_iops: 9, write_bandwidth: 1M}]",
    );
    let (one, two) = (info(I4I, &InfoOptions::default()), info(&two, &InfoOptions::default()));

    let json: serde_json::Value = serde_json::to_value(&one).unwrap();
    let disk = &json["disks"][0];
    assert_eq!((&json["schema"], &disk["mountpoint"]), (&1.into(), &"/nowhere".into()));
    assert_eq!(disk["fair_queue"]["capacities"]["4096"]["read"], 121_232);
    assert_eq!(disk["forms"]["seastar"]["sizes"][3]["bytes"], 4_096);
    assert!(disk["device"].is_null());

    let yaml = one.to_yaml();
    let begin = "disk_read_max_length: 1048576\ndisk_write_max_length: 524288\ndevice: null\nio_latency_goal_ms: 0.75\n\
                 io_queue:\n  id: 1\n  req_count_rate: 28004608\n";
    assert!(yaml.starts_with(begin), "{yaml}");
    assert!(yaml.contains("\n    4096:\n      read: 121232\n      write: 198348\n    8192:\n"), "{yaml}");

    let as_json: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    for key in ["disk_read_max_length", "io_latency_goal_ms", "io_queue", "fair_queue"] {
        assert_eq!(as_json[key], disk[key], "{key}");
    }

    let list: Vec<serde_json::Value> = serde_saphyr::from_str(&two.to_yaml()).unwrap();
    assert_eq!((list.len(), &list[0], &list[1]["io_queue"]["id"]), (2, &as_json, &2.into()));
    assert!(two.to_yaml().contains("# \"/a b\"\n- disk_read_max_length"), "{}", two.to_yaml());

    let csv = two.to_csv();
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, vec![2 + 5 * 4; 1 + 2 * SIZES_BYTES.len()]);
    assert!(csv.starts_with("disk,bytes,knee_read_cost_ns,knee_write_cost_ns,knee_read_iops,"), "{csv}");
}

#[test]
fn the_mix_exponent_of_the_file_counts() {
    let text = |more: &str| {
        let figures = "read_iops: 100000, read_bandwidth: 1000000000, write_iops: 100000, write_bandwidth: 1000000000";
        format!("disks:\n  - {{mountpoint: /d, {figures}{more}}}\n")
    };
    let mixed = |more: &str| {
        let info = of_properties(&io_properties::parse("test", &text(more)).unwrap(), &InfoOptions::default());
        let disk = &info.disks[0];
        (disk.mix_exponent, disk.form(disk.model).unwrap().sizes[0].mixed_iops.unwrap())
    };
    let (linear, worse) = (mixed(""), mixed(", mix_exponent: 0.5"));
    assert_eq!((linear.0, worse.0), (Some(1.0), Some(0.5)));
    assert!(worse.1 < 0.8 * linear.1, "{worse:?} {linear:?}");
}
