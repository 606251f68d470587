//! `plimsoll info --check`: every known kind of wrong figure is found, and honest files pass.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use plimsoll::sys::sysfs;
use plimsoll_files::Code;
use plimsoll_files::check::{Beside, CheckOptions, CheckReport, Finding, check_file, check_text};
use plimsoll_files::presets::{self, Evidence, Figures, Instance};

/// A disk of a file, with `more` keys.
fn disk(mountpoint: &str, figures: &Figures, more: &str) -> String {
    let [read_iops, read_bandwidth, write_iops, write_bandwidth] = figures.in_order();
    format!(
        "  - mountpoint: {mountpoint}\n    read_iops: {read_iops}\n    read_bandwidth: {read_bandwidth}\n    \
         write_iops: {write_iops}\n    write_bandwidth: {write_bandwidth}\n{more}"
    )
}

fn check(text: &str) -> CheckReport {
    check_text("io.yaml", text, &CheckOptions::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn check_figures(figures: [u64; 4], more: &str) -> Vec<Finding> {
    check(&format!("disks:\n{}", disk("/none", &of(figures), more))).findings
}

fn of([read_iops, read_bandwidth_bytes_per_s, write_iops, write_bandwidth_bytes_per_s]: [u64; 4]) -> Figures {
    Figures { read_iops, read_bandwidth_bytes_per_s, write_iops, write_bandwidth_bytes_per_s }
}

/// Code and key of each finding.
fn codes(findings: &[Finding]) -> Vec<(&str, &str)> {
    findings.iter().map(|finding| (finding.code.as_str(), finding.key.as_str())).collect()
}

fn instance(name: &str) -> &'static Instance {
    presets::find(name).unwrap_or_else(|| panic!("{name} is not in the table"))
}

#[test]
fn honest_rows_of_the_table_pass_and_suspect_ones_are_found() {
    for row in presets::instances() {
        let forms = [Some(row.total()), row.per_disk()];
        for figures in forms.into_iter().flatten() {
            for beside in [Beside::Nearest, Beside::Instance(row)] {
                let text = format!("disks:\n{}", disk("/none", &figures, ""));
                let options = CheckOptions { beside, ..CheckOptions::default() };
                let findings = check_text(row.name, &text, &options).unwrap().findings;
                let expected: &[(&str, &str)] = match row.suspect {
                    Some(_) => &[("write_outlier", "write_iops")],
                    None => &[],
                };
                assert_eq!(codes(&findings), expected, "{} {beside:?}: {findings:?}", row.name);
            }
        }
    }
}

#[test]
fn totals_that_were_multiplied_again_are_found() {
    // A derived row has more disks than any that was measured: its product is beyond every link first.
    for row in presets::instances().iter().filter(|row| row.evidence != Evidence::Derived) {
        let Some(n_disks) = row.n_disks.filter(|n_disks| *n_disks > 1) else { continue };
        let figures = row.total().times(n_disks);
        let text = format!("disks:\n{}", disk("/none", &figures, ""));
        // Where the product is another size of the instance, only the name can tell.
        let is_another_size = presets::instances().iter().any(|other| other.total() == figures);
        if !is_another_size {
            assert_eq!(check(&text).findings[0].code, "multiplied_twice", "{}", row.name);
        }
        let options = CheckOptions { beside: Beside::Instance(row), ..CheckOptions::default() };
        let findings = check_text(row.name, &text, &options).unwrap().findings;
        assert_eq!(findings[0].code, "multiplied_twice", "{}", row.name);
        assert!(findings[0].remedy.contains(&row.total().read_iops.to_string()), "{}", findings[0].remedy);
    }
}

#[test]
fn every_row_is_found_when_it_is_spoilt() {
    // The SATA disks of i2 read and write alike, so that other instances are as near to its spoilt figures as it is.
    let is_told = |row: &&Instance| row.suspect.is_none() && row.family() != "i2";
    for row in presets::instances().iter().filter(is_told) {
        let good = row.total();
        let [read_iops, read_bytes, write_iops, write_bytes] = good.in_order();
        let spoilt = [
            ("read_write_swapped", [write_iops, write_bytes, read_iops, read_bytes]),
            ("write_outlier", [read_iops, read_bytes, write_iops / 4, write_bytes]),
            ("write_outlier", [read_iops, read_bytes, write_iops, write_bytes / 3]),
            ("phases_collapsed", [read_bytes / 262_144, read_bytes, write_bytes / 262_144, write_bytes]),
            ("phases_collapsed", [read_iops, read_iops * 512, write_iops, write_bytes]),
            ("below_sector", [read_iops, read_bytes, write_bytes / 387, write_bytes]),
            ("volume_cap", [read_iops, read_bytes, read_iops, read_bytes]),
        ];
        for (code, figures) in spoilt {
            let findings = check_figures(figures, "");
            let is_small = figures[0] < 1_000;
            let found = findings.iter().any(|finding| finding.code == code);
            assert!(found || is_small, "{} {code} {figures:?}: {findings:?}", row.name);
        }
    }
}

/// `tune --quick` on a virtual disk whose host caches writes, twice.
#[test]
fn a_disk_whose_writes_are_faster_is_believed_where_it_was_measured() {
    for figures in [[86_191, 1_447_034_880, 125_924, 4_297_064_448], [92_026, 1_470_000_000, 128_066, 2_890_000_000]] {
        let findings = check_figures(figures, "    unloaded_latency_ns: 59136\n");
        assert!(findings.is_empty(), "{figures:?}: {findings:?}");
        let by_hand = check_figures(figures, "");
        assert!(by_hand.iter().any(|finding| finding.code == "read_write_swapped"), "{figures:?}: {by_hand:?}");
    }
}

/// `tune --quick` on a virtual disk: writes of 32 KiB in order are quicker than those of 4 KiB at random. And what only
/// other programs confuse.
#[test]
fn what_tune_has_measured_is_no_error_of_another_program() {
    let cases = [
        ([87_781, 2_900_000_000, 66_747, 3_430_000_000], "    write_saturation_length: 32768\n", None),
        ([3_000, 786_432_000, 3_000, 786_432_000], "", Some("volume_cap")),
        ([752_697, 8_585_068_032, 350_060, 6_211_869_696], "", Some("int_max_rate")),
        ([3_000, 786_432_000, 1_000, 200_000_000], "", Some("phases_collapsed")),
    ];
    for (figures, more, by_others) in cases {
        let measured = check_figures(figures, &format!("{more}    unloaded_latency_ns: 59136\n"));
        assert_eq!(codes(&measured), [], "{figures:?}");
        let found = check_figures(figures, more);
        let found: Vec<&str> = found.iter().map(|finding| finding.code.as_str()).collect();
        assert!(by_others.is_none_or(|code| found.contains(&code)), "{figures:?}: {found:?}");
    }
}

/// Disks of m7gd, which are not in the table; and any that share no more than their reads with one that is.
#[test]
fn disks_of_other_families_are_not_judged() {
    let mut others = vec![
        [33_638, 157_521_648, 16_836, 75_264_032],
        [67_274, 315_774_176, 33_676, 150_679_296],
        [134_550, 631_589_440, 67_358, 301_293_568],
        [269_588, 1_263_357_056, 134_608, 604_995_968],
    ];
    let rows = presets::instances().iter().filter_map(Instance::per_disk).map(|figures| figures.in_order());
    others.extend(
        rows.map(|[iops, bytes, write_iops, write_bytes]| [iops, bytes, write_iops * 10 / 23, write_bytes * 10 / 23]),
    );
    for figures in others {
        let findings = check_figures(figures, "");
        let outliers: Vec<_> = codes(&findings).into_iter().filter(|(code, _)| code.ends_with("_outlier")).collect();
        assert!(outliers.is_empty(), "{figures:?}: {findings:?}");
    }
}

/// As published for a disk: those of m5d, c5d and c6gd were judged by i3.2xlarge and im4gn.4xlarge.
#[test]
fn disks_of_all_families_of_the_machine_image_are_judged_by_their_own() {
    let families = [
        ("m5d.metal", [381_441, 1_874_585_429, 108_789, 796_443_221]),
        ("r5d.metal", [381_441, 1_874_585_429, 108_789, 796_443_221]),
        ("c5d.9xlarge", [381_800, 1_865_831_893, 112_264, 795_731_264]),
        ("c5d.24xlarge", [381_355, 1_876_056_704, 104_946, 795_901_013]),
        ("c6gd.4xlarge", [237_196, 1_262_309_504, 98_884, 533_938_080]),
        ("m6gd.4xlarge", [237_196, 1_262_309_504, 98_884, 533_938_080]),
        ("r6gd.4xlarge", [237_196, 1_262_309_504, 98_884, 533_938_080]),
        ("x2gd.4xlarge", [237_196, 1_262_309_504, 98_884, 533_938_080]),
    ];
    for (name, figures) in families {
        let row = instance(name);
        assert_eq!(row.per_disk(), Some(of(figures)), "{name}");
        assert_eq!(codes(&check_figures(figures, "")), [], "{name}");
        // The families share their disks, not their writes: a quarter of these is still found.
        let [read_iops, read_bytes, write_iops, write_bytes] = figures;
        let findings = check_figures([read_iops, read_bytes, write_iops / 4, write_bytes], "");
        assert!(codes(&findings).contains(&("write_outlier", "write_iops")), "{name}: {findings:?}");
    }
}

#[test]
fn limits_of_a_scheduler_are_not_limits_of_a_disk() {
    let cases = [
        ([752_697, 8_585_068_032, 450_060, 6_211_869_696], vec![("int_max_rate", "read_bandwidth")]),
        ([2_000_000, 8_589_934_592, 700_000, 6_000_000_000], vec![("int_max_rate", "read_bandwidth")]),
        ([8_388_600, 8_500_000_000, 700_000, 6_000_000_000], vec![("int_max_rate", "read_iops")]),
        (
            [1_858_000, 8_583_643_136, 1_000_000, 6_000_000_000],
            vec![("int_max_rate", "read_iops"), ("int_max_rate", "read_bandwidth")],
        ),
        // More than 2^33 bytes a second: the run was not held back, and the operations are the disk's.
        ([8_389_333, 34_759_397_376, 5_745_663, 23_792_476_160], vec![]),
        ([1_015_409, 8_533_411_840, 661_232, 6_737_054_720], vec![]),
    ];
    for (figures, expected) in cases {
        let findings = check_figures(figures, "");
        let found: Vec<_> = codes(&findings).into_iter().filter(|(code, _)| *code != "iops_above_bandwidth").collect();
        assert_eq!(found, expected, "{figures:?}: {findings:?}");
    }
}

#[test]
fn writes_in_blocks_of_512_lose_a_third_to_a_half() {
    for (name, percent) in [("i4i.4xlarge", 54), ("i7i.large", 65), ("i8ge.24xlarge", 50), ("i8g.8xlarge", 60)] {
        let good = instance(name).total();
        let half = Figures { write_iops: good.write_iops * percent / 100, ..good };
        let text = |more: &str| format!("disks:\n{}", disk("/none", &half, more));
        let findings = check(&text("")).findings;
        assert_eq!(codes(&findings), [("write_block_size", "write_iops")], "{name}: {findings:?}");
        assert!(findings[0].remedy.contains("physical_block_size: 4096"), "{}", findings[0].remedy);
        assert_eq!(findings[0].line, Some(5));
        // Where the block size is set, the file is about something else.
        let findings = check(&text("    physical_block_size: 4096\n")).findings;
        assert!(findings.iter().all(|finding| finding.code != "write_block_size"), "{name}");
    }
}

#[test]
fn figures_of_a_disk_that_no_table_knows() {
    let honest = [
        // Drives of laptops, measured full: few writes, many bytes.
        [134_700, 4_580_000_000, 17_000, 2_221_000_000],
        [332_000, 7_070_000_000, 7_700, 5_613_000_000],
        [82_000, 327_000_000, 6_300, 537_000_000],
        [98_500, 572_000_000, 87_500, 377_000_000],
        [98_400, 572_000_000, 93_000, 540_000_000],
        [781_800, 6_444_000_000, 73_700, 6_596_000_000],
        [95_000, 571_473_920, 85_000, 534_773_760],
        // Local disks of a cloud, 16 and 24 of them: promised operations, measured bytes.
        [1_600_000, 4_521_251_328, 800_000, 2_759_452_672],
        [2_400_000, 5_921_532_416, 1_200_000, 4_663_037_952],
        [540_000, 3_000_000_000, 50_000, 1_900_000_000],
        // A disk that turns.
        [180, 210_000_000, 400, 205_000_000],
    ];
    for figures in honest {
        assert_eq!(codes(&check_figures(figures, "")), [], "{figures:?}");
    }
    let wrong = [
        ([32_004, 262_607_760, 34_608, 265_524_816], ("volume_cap", "read_bandwidth")),
        ([3_000, 131_072_000, 3_000, 131_072_000], ("volume_cap", "read_bandwidth")),
        ([40_000, 500_000_000, 80_000, 480_000_000], ("write_iops_above_read", "write_iops")),
        ([1_000_000, 1_000_000_000, 134_608, 604_995_968], ("iops_above_bandwidth", "read_iops")),
        ([500_000, 150_000_000_000, 100_000, 5_000_000_000], ("above_link", "read_bandwidth")),
        ([40_000_000, 120_000_000_000, 100_000, 5_000_000_000], ("above_link", "read_iops")),
    ];
    for (figures, expected) in wrong {
        let findings = check_figures(figures, "");
        assert!(codes(&findings).contains(&expected), "{figures:?}: {findings:?}");
        let is_cap = expected.0 == "volume_cap";
        assert!(!is_cap || findings.len() == 1, "a volume is no instance's disk: {findings:?}");
    }
}

#[test]
fn one_wrong_figure_of_four_is_found_by_the_other_three() {
    let good = instance("i7ie.6xlarge").total();
    let reads = Figures { read_iops: good.read_iops / 3, ..good };
    let findings = check(&format!("disks:\n{}", disk("/none", &reads, ""))).findings;
    assert!(codes(&findings).contains(&("read_outlier", "read_iops")), "{findings:?}");
    // Its twin with the same disks is as good.
    assert!(findings.iter().any(|finding| finding.message.contains("e.6xlarge")), "{findings:?}");
}

#[test]
fn a_named_instance_is_the_measure() {
    let text = format!("disks:\n{}", disk("/none", &instance("i4i.2xlarge").total(), ""));
    let options = CheckOptions { beside: Beside::Instance(instance("i4i.4xlarge")), ..CheckOptions::default() };
    let findings = check_text("io.yaml", &text, &options).unwrap().findings;
    let keys: Vec<&str> = findings.iter().map(|finding| finding.key.as_str()).collect();
    assert_eq!(keys, presets::FIGURE_KEYS);
    let found: Vec<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(found, ["read_outlier", "read_outlier", "write_outlier", "write_outlier"]);
}

#[test]
fn a_disk_that_is_none_of_the_table_is_judged_alone() {
    let good = instance("i4i.large").total();
    let few_writes = Figures { write_iops: good.write_iops / 4, ..good };
    let text = format!("disks:\n{}", disk("/none", &few_writes, ""));
    assert_eq!(codes(&check(&text).findings), [("write_outlier", "write_iops")]);
    let options = CheckOptions { beside: Beside::Nothing, ..CheckOptions::default() };
    assert_eq!(check_text("io.yaml", &text, &options).unwrap().findings, []);
}

#[test]
fn keys_that_have_no_effect_are_findings_with_their_lines() {
    let text = "disks:
  - mountpoint: /none
    read_reqs_per_sec: 95000
    read_bandwidth: 545M
    write_iops: 85k
    write_bandwidth: 510M
    write_saturation: 64k
    rate_factor: 1.5
    write_saturation_length: 512
    physical_block_size: 1000
";
    let report = check(text);
    let found: Vec<_> = report.findings.iter().map(|f| (f.code.as_str(), f.key.as_str(), f.line)).collect();
    let expected = [
        ("obsolete", "read_reqs_per_sec", Some(3)),
        ("binary_suffix", "write_iops", Some(5)),
        ("unknown_key", "write_saturation", Some(7)),
        ("rate_factor", "rate_factor", Some(8)),
        ("saturation_length", "write_saturation_length", Some(9)),
        ("out_of_range", "disks[0].physical_block_size", Some(10)),
    ];
    assert_eq!(found, expected, "{:?}", report.findings);
    assert!(report.findings.iter().all(|finding| finding.mountpoint == "/none" && !finding.remedy.is_empty()));
    assert!(report.findings[1].message.contains("87,040"), "{}", report.findings[1].message);
    assert!(report.findings[2].remedy.contains("write_saturation_length"), "{}", report.findings[2].remedy);
}

#[test]
fn disks_that_cannot_be_read_are_findings_beside_those_that_can() {
    let good = disk("/none", &instance("i4i.large").total(), "");
    let text = format!("disks:\n{good}  - {{mountpoint: /other, read_iops: 5}}\nextra: 1\n");
    let findings = check(&text).findings;
    assert_eq!(codes(&findings), [("missing_key", "disks[1].write_iops"), ("unknown_key", "extra")]);
    assert_eq!(findings[0].mountpoint, "/other");
    let template = format!("disks:\n{}", disk("$mount_point", &instance("i4i.large").total(), ""));
    assert_eq!(codes(&check(&template).findings), [("template", "disks[0].mountpoint")]);
}

#[test]
fn files_without_figures_are_refused() {
    let refused = [
        ("disks:\n- mountpoint: /d\n", Code::MissingKey),
        ("disks: []\n", Code::Empty),
        ("", Code::Empty),
        ("[1, 2", Code::Syntax),
        ("disks: 5", Code::WrongType),
        ("sinks: []", Code::MissingKey),
        ("disks: [{mountpoint: /d, read_iops: many}]", Code::InvalidValue),
        ("disks: [5]", Code::WrongType),
    ];
    for (text, code) in refused {
        let error = check_text("io.yaml", text, &CheckOptions::default()).expect_err(text);
        assert_eq!(error.code(), code, "{text}: {error}");
    }
    let error = check_file(Path::new("/none/io.yaml"), &CheckOptions::default()).unwrap_err();
    assert_eq!(error.code(), Code::Unreadable);
}

#[test]
fn more_than_eight_disks_and_the_same_one_twice() {
    let figures = instance("i4i.large").total();
    let disks: String = (0..9).map(|n| disk(&format!("/none/{n}"), &figures, "")).collect();
    assert_eq!(codes(&check(&format!("disks:\n{disks}")).findings), [("too_many_disks", "disks")]);
    let twice = disk("/none/a", &figures, "") + &disk("/none/./a/", &figures, "");
    assert_eq!(codes(&check(&format!("disks:\n{twice}")).findings), [("duplicate_device", "mountpoint")]);
}

#[test]
fn the_same_report_is_json_with_a_schema() {
    let report = check(&format!("disks:\n{}", disk("/none", &of([32_004, 262_607_760, 34_608, 265_524_816]), "")));
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!((json["schema"].as_u64(), json["file"].as_str()), (Some(1), Some("io.yaml")));
    let finding = &json["findings"][0];
    for key in ["code", "key", "message", "remedy", "mountpoint"] {
        assert!(finding[key].as_str().is_some_and(|text| !text.is_empty()), "{key} of {finding}");
    }
    assert_eq!(finding["line"].as_u64(), Some(4));
    let clean = check(&format!("disks:\n{}", disk("/none", &instance("i4i.large").total(), "")));
    assert!(clean.to_json().contains("\"findings\": []"));
}

/// A directory that is removed at the end, and a `/sys` in it where the directory lies on an NVMe disk.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> io::Result<Machine> {
        let machine = Machine(std::env::temp_dir().join(format!("plimsoll-check-{}-{name}", std::process::id())));
        for directory in ["data", "sys/dev/block", "sys/block", "sys/class/block", "sys/devices/0/nvme0/nvme0n1"] {
            fs::create_dir_all(machine.0.join(directory))?;
        }
        let (major, minor) = sysfs::major_minor(fs::metadata(machine.0.join("data"))?.dev());
        let devices = machine.0.join("sys/devices/0");
        for link in ["block/nvme0n1", "class/block/nvme0n1", &format!("dev/block/{major}:{minor}")] {
            symlink(devices.join("nvme0/nvme0n1"), machine.0.join("sys").join(link))?;
        }
        symlink(devices.join("nvme0"), devices.join("nvme0/nvme0n1/device"))?;
        symlink(&devices, devices.join("nvme0/device"))?;
        fs::write(devices.join("current_link_speed"), "16.0 GT/s PCIe\n")?;
        fs::write(devices.join("current_link_width"), "4\n")?;
        Ok(machine)
    }

    fn check(&self, text: &str) -> CheckReport {
        let options = CheckOptions { beside: Beside::Nearest, sys_root: self.0.join("sys") };
        check_text("io.yaml", text, &options).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn more_than_the_link_carries() -> io::Result<()> {
    let machine = Machine::new("link")?;
    let data = machine.0.join("data");
    let place = data.display().to_string();
    let text =
        |bandwidth, more| format!("disks:\n{}", disk(&place, &of([1_200_000, bandwidth, 200_000, 4 << 30]), more));
    let findings = machine.check(&text(8_000_000_000, "")).findings;
    assert_eq!(codes(&findings), [("above_link", "read_bandwidth")], "{findings:?}");
    assert!(findings[0].message.contains("nvme0n1") && findings[0].message.contains("7.88 GB/s"));
    assert_eq!(codes(&machine.check(&text(7_800_000_000, "")).findings), []);
    assert_eq!(codes(&machine.check(&text(8_000_000_000, "    rate_factor: 0.9\n")).findings), []);
    // Two mount points on one disk have its one link.
    fs::create_dir(data.join("sub"))?;
    let both = format!("mountpoints: [{place}, {place}/sub]");
    let twice = text(8_000_000_000, "").replace(&format!("mountpoint: {place}"), &both);
    assert_eq!(codes(&machine.check(&twice).findings), [("above_link", "read_bandwidth")]);
    // Without a link nothing is known.
    fs::remove_file(machine.0.join("sys/devices/0/current_link_width"))?;
    assert_eq!(codes(&machine.check(&text(8_000_000_000, "")).findings), []);
    Ok(())
}

#[test]
fn two_entries_on_one_device_and_a_mount_point_that_is_a_file() -> io::Result<()> {
    let machine = Machine::new("twice")?;
    let figures = of([400_000, 3_000_000_000, 200_000, 2_000_000_000]);
    let (a, b) = (machine.0.join("data/a"), machine.0.join("data/b"));
    fs::create_dir_all(&a)?;
    fs::create_dir_all(&b)?;
    let [a, b] = [a, b].map(|path| path.display().to_string());
    let two = format!("disks:\n{}{}", disk(&a, &figures, ""), disk(&b, &figures, ""));
    let findings = machine.check(&two).findings;
    assert_eq!(codes(&findings), [("duplicate_device", "mountpoint")], "{findings:?}");
    let one = two.replace(&format!("mountpoint: {a}"), &format!("mountpoints: [{a}, {b}]"));
    let one = one.split("  - mountpoint: ").next().unwrap_or("").to_owned();
    assert_eq!(codes(&machine.check(&one).findings), []);
    let file = machine.0.join("sys/devices/0/current_link_width").display().to_string();
    let findings = machine.check(&format!("disks:\n{}", disk(&file, &figures, ""))).findings;
    assert_eq!(codes(&findings), [("not_a_disk", "mountpoint")]);
    Ok(())
}

/// The mistakes that the guide says `info --check` finds: each code named there is that of a disk with the mistake.
#[test]
fn the_list_of_mistakes_names_what_finds_them() {
    let good = instance("i4i.4xlarge").total();
    let Figures { read_iops, read_bandwidth_bytes_per_s, write_iops, write_bandwidth_bytes_per_s } = good;
    let swapped = [write_iops, write_bandwidth_bytes_per_s, read_iops, read_bandwidth_bytes_per_s];
    let cases: [(&str, [u64; 4], &str); 6] = [
        ("write_block_size", Figures { write_iops: write_iops * 54 / 100, ..good }.in_order(), ""),
        ("saturation_length", good.in_order(), "    read_saturation_length: 512\n"),
        ("volume_cap", [3_000, 131_072_000, 3_000, 131_072_000], ""),
        ("int_max_rate", [752_697, 8_585_068_032, 450_060, 6_211_869_696], ""),
        ("read_write_swapped", swapped, ""),
        ("multiplied_twice", instance("i3en.24xlarge").total().times(8).in_order(), ""),
    ];
    for (code, figures, more) in cases {
        let findings = check_figures(figures, more);
        assert!(codes(&findings).iter().any(|(found, _)| *found == code), "{code}: {findings:?}");
    }
    let suffix = check(&format!("disks:\n{}", disk("/none", &good, "").replace(&read_iops.to_string(), "55k")));
    assert!(codes(&suffix.findings).contains(&("binary_suffix", "read_iops")), "{suffix:?}");

    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/pitfalls.md")).unwrap();
    let named = page.split("`info --check`: `").skip(1).filter_map(|rest| rest.split('`').next());
    let named: Vec<&str> = named.collect();
    assert!(named.len() >= 4 && named.iter().all(|name| cases.iter().any(|(code, ..)| code == name)), "{named:?}");
}
