//! io-properties files: what is read, what is refused and where, and that a written file is read back.

use plimsoll_core::CostForm;
use plimsoll_files::depths::DepthRate;
use plimsoll_files::io_properties::{DiskProperties, MAX_FIGURE, parse, parse_from_file, write};
use plimsoll_files::{Code, ConfigError, Severity};
use proptest::prelude::*;

const FIGURES: &str = "read_iops: 1000, read_bandwidth: 100M, write_iops: 900, write_bandwidth: 90M";

/// A file with one disk at `/d`, the four figures, and `more` keys.
fn with(more: &str) -> String {
    format!("disks:\n  - {{mountpoint: /d, {FIGURES}, {more}}}\n")
}

/// Checks that `text` is refused with `code` on `line`, with advice that contains `help`.
fn refused(text: &str, code: Code, line: usize, help: &str) -> ConfigError {
    let error = parse("test.yaml", text).expect_err(text);
    assert_eq!((error.code(), error.line()), (code, Some(line)), "{text}\n{error}");
    assert!(error.help().is_some_and(|text| text.contains(help)), "expected help with {help}:\n{error}");
    assert!(error.to_string().contains("test.yaml"), "{error}");
    error
}

fn plain_disk() -> DiskProperties {
    DiskProperties {
        mountpoints: vec!["/d".to_owned()],
        read_iops: 1000,
        write_iops: 900,
        read_bandwidth_bytes_per_s: 100 << 20,
        write_bandwidth_bytes_per_s: 90 << 20,
        read_saturation_bytes: None,
        write_saturation_bytes: None,
        physical_block_bytes: None,
        duplex: false,
        rate_factor: 1.0,
        capacity_scale_max: 1.0,
        form: None,
        mix_exponent_p: 1.0,
        unloaded_latency_ns: 0,
        read_depths: Vec::new(),
        write_depths: Vec::new(),
        doubtful: Vec::new(),
    }
}

#[test]
fn a_disk_with_all_keys() {
    let text = "
# measured on a Tuesday
disks:
  - mountpoints:
      - /srv/a
      - /dev/nvme0n1
    read_iops: 95k
    read_bandwidth: 545M
    write_iops: '85000'
    write_bandwidth: 1GiB
    read_saturation_length: 128kB
    write_saturation_length: 64k
    physical_block_size: 4096
    duplex: yes
    rate_factor: 0.5
    mix_exponent: infinite
    model: max
    unloaded_latency_ns: 85000
    read_depths: [[1, 11764, 85000], [4, 44_000, 90000]]
    doubtful: [write_iops]
";
    let properties = parse("io.yaml", text).unwrap();
    let expected = DiskProperties {
        mountpoints: vec!["/srv/a".to_owned(), "/dev/nvme0n1".to_owned()],
        read_iops: 97_280,
        write_iops: 85_000,
        read_bandwidth_bytes_per_s: 545 << 20,
        write_bandwidth_bytes_per_s: 1 << 30,
        read_saturation_bytes: Some(128 << 10),
        write_saturation_bytes: Some(64 << 10),
        physical_block_bytes: Some(4096),
        duplex: true,
        rate_factor: 0.5,
        capacity_scale_max: 1.0,
        form: Some(CostForm::Max),
        mix_exponent_p: f64::INFINITY,
        unloaded_latency_ns: 85_000,
        read_depths: vec![
            DepthRate { depth: 1, iops: 11_764, p50_ns: 85_000 },
            DepthRate { depth: 4, iops: 44_000, p50_ns: 90_000 },
        ],
        write_depths: Vec::new(),
        doubtful: vec!["write_iops".to_owned()],
    };
    assert_eq!(properties.disks, std::slice::from_ref(&expected));
    let codes: Vec<Code> = properties.warnings.iter().map(|warning| warning.code()).collect();
    assert_eq!(codes, [Code::Doubtful]);
    assert_eq!(parse("again.yaml", &write(&properties.disks)).unwrap().disks, [expected]);
    refused(&with("doubtful: [iops]"), Code::InvalidValue, 2, "read_iops, write_iops");
    refused(&with("read_depths: [[1, 100]]"), Code::InvalidValue, 2, "[depth, IOPS, median latency in ns]");
    refused(&with("read_depths: [[4, 9, 9], [4, 9, 9]]"), Code::InvalidValue, 2, "rising depth");
    refused(&with("write_depths: [[0, 9, 9]]"), Code::OutOfRange, 2, "1 to");
    refused(&with("write_depths: 7"), Code::WrongType, 2, "a list of [depth");
    refused(&with("model: cubic"), Code::InvalidValue, 2, "`knee`, `additive`, `max`");
}

#[test]
fn all_forms_of_the_same_file() {
    let json = r#"{"disks":[{"mountpoint":"/d","read_iops":1000,"read_bandwidth":104857600,"write_iops":900,
                   "write_bandwidth":94371840}]}"#;
    let flow = format!("{{disks: [{{mountpoint: /d, {FIGURES}}}]}}");
    let block = "---\r\ndisks:\r\n- mountpoint: /d\r\n  read_iops: 1000\r\n  read_bandwidth: 100M\r\n  \
                 write_iops: 900\r\n  write_bandwidth: 90M\r\n...\r\n";
    let byte_order_mark = format!("\u{feff}{flow}");
    let alias = format!("disks: [{{mountpoint: &m /d, {FIGURES}, rate_factor: &one 1}}]");
    for text in [json, &flow, block, &byte_order_mark, &alias] {
        assert_eq!(parse("io.yaml", text).unwrap().disks, [plain_disk()], "{text}");
    }
}

#[test]
fn several_disks_and_an_alias() {
    let text = "
disks:
  - {mountpoint: /a, read_iops: &iops 5k, read_bandwidth: 1M, write_iops: *iops, write_bandwidth: 1M}
  - {mountpoint: /b, read_iops: 1, read_bandwidth: 1, write_iops: 1, write_bandwidth: 1}
";
    let disks = parse("io.yaml", text).unwrap().disks;
    assert_eq!((disks.len(), disks[0].write_iops, disks[1].read_iops), (2, 5120, 1));
}

#[test]
fn truth_values_and_factors() {
    for (word, expected) in [("true", true), ("False", false), ("YES", true), ("off", false), ("n", false)] {
        assert_eq!(parse("t", &with(&format!("duplex: {word}"))).unwrap().disks[0].duplex, expected, "{word}");
    }
    for (word, expected) in [("2", 2.0), ("0.25", 0.25), (".5", 0.5), ("1e-1", 0.1)] {
        assert_eq!(
            parse("t", &with(&format!("rate_factor: {word}"))).unwrap().disks[0].rate_factor,
            expected,
            "{word}"
        );
    }
    for more in ["duplex: maybe", "rate_factor: inf", "rate_factor: nan", "rate_factor: 0", "rate_factor: -1"] {
        refused(&with(more), Code::InvalidValue, 2, "write");
    }
    refused(&with("rate_factor: 0.0001"), Code::OutOfRange, 2, "rate_factor");
    refused(&with("rate_factor: 1e14"), Code::OutOfRange, 2, "rate_factor");
    assert_eq!(parse("t", &with("capacity_scale_max: 1.5")).unwrap().disks[0].capacity_scale_max, 1.5);
    refused(&with("capacity_scale_max: 0.5"), Code::OutOfRange, 2, "write 1 to keep to the figures");
}

#[test]
fn files_without_disks() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "null"] {
        assert_eq!(parse("t", text).unwrap_err().code(), Code::Empty, "{text:?}");
    }
    refused("disks: []", Code::Empty, 1, "mountpoint");
    refused("disks:\n", Code::WrongType, 1, "indent");
    refused("disks: 5", Code::WrongType, 1, "- ");
    refused("disks:\n  mountpoint: /d\n", Code::WrongType, 2, "- ");
    refused("- mountpoint: /d\n", Code::WrongType, 1, "key: value");
    refused("disk: []", Code::UnknownKey, 1, "`disks`");
    refused("disks: [7]", Code::WrongType, 1, "key: value");
    refused(&format!("{}defaults: 1\n", with("duplex: no")), Code::UnknownKey, 3, "`disks`");
}

#[test]
fn unknown_keys_get_a_suggestion() {
    let cases = [
        ("read_iop: 5", "`read_iops`"),
        ("Read_IOPS: 5", "`read_iops`"),
        ("write-bandwidth: 5", "`write_bandwidth`"),
        ("mount_point: /x", "`mountpoint`"),
        ("writeiops: 5", "`write_iops`"),
        ("colour: blue", "the keys of a disk are `mountpoint`"),
        ("5: 5", "the keys of a disk"),
        ("[a]: 5", "the keys of a disk"),
    ];
    for (more, help) in cases {
        let error = parse("test.yaml", &with(more)).expect_err(more);
        assert!(matches!(error.code(), Code::UnknownKey | Code::WrongType), "{error}");
        assert!(error.help().is_some_and(|text| text.contains(help)), "{error}");
    }
}

#[test]
fn keys_of_2018_name_their_replacement() {
    let cases = [
        ("read_reqs_per_sec", "`read_iops`"),
        ("write_reqs_per_sec", "`write_iops`"),
        ("read_bytes_per_sec", "`read_bandwidth`"),
        ("write_bytes_per_sec", "`write_bandwidth`"),
    ];
    for (key, help) in cases {
        let text = format!("disks:\n  - mountpoint: /d\n    {key}: 5\n");
        let error = refused(&text, Code::Obsolete, 3, help);
        assert_eq!(error.key(), Some(format!("disks[0].{key}").as_str()));
        assert_eq!(error.column(), Some(5));
    }
}

#[test]
fn missing_keys() {
    let figures = ["read_iops", "read_bandwidth", "write_iops", "write_bandwidth"];
    for missing in figures {
        let mut text = String::from("disks:\n  - mountpoint: /d\n");
        for key in figures.iter().filter(|key| **key != missing) {
            text.push_str(&format!("    {key}: 5\n"));
        }
        let error = refused(&text, Code::MissingKey, 2, "all of read_iops");
        assert_eq!(error.key(), Some(format!("disks[0].{missing}").as_str()));
    }
    refused("disks:\n  - mountpoint: /d\n", Code::MissingKey, 2, "preset");
    refused(&format!("disks:\n  - {{{FIGURES}}}\n"), Code::MissingKey, 2, "directory");
    refused(&format!("disks: [{{mountpoints: [], {FIGURES}}}]"), Code::Empty, 1, "at least one");
    refused(&format!("disks: [{{mountpoints: /d, {FIGURES}}}]"), Code::WrongType, 1, "- ");
    refused(&format!("disks: [{{mountpoint: [/d], {FIGURES}}}]"), Code::WrongType, 1, "line of its key");
}

#[test]
fn figures_that_are_none() {
    let cases = [
        ("0", Code::OutOfRange, "1 to 1,000,000,000,000,000"),
        ("0k", Code::OutOfRange, "1 to"),
        ("1000000000000001", Code::OutOfRange, "1 to"),
        ("1000T", Code::OutOfRange, "1 to"),
        ("99999999999999999999999", Code::InvalidValue, "digits"),
        ("-5", Code::InvalidValue, "digits"),
        ("1.5k", Code::InvalidValue, "digits"),
        ("1e6", Code::InvalidValue, "digits"),
        ("0x10", Code::InvalidValue, "digits"),
        ("0o17", Code::InvalidValue, "digits"),
        ("1_000", Code::InvalidValue, "digits"),
        ("95kHz", Code::InvalidValue, "k, K, M, G or T"),
        ("95 k", Code::InvalidValue, "k, K, M, G or T"),
        ("fast", Code::InvalidValue, "digits"),
        ("true", Code::InvalidValue, "digits"),
        (".inf", Code::InvalidValue, "digits"),
        ("''", Code::InvalidValue, "write a value"),
        ("", Code::WrongType, "write the value"),
        ("~", Code::WrongType, "write the value"),
        ("[5]", Code::WrongType, "without `- `"),
        ("{a: 5}", Code::WrongType, "line of its key"),
    ];
    for (figure, code, help) in cases {
        let text = format!(
            "disks:\n  - mountpoint: /d\n    read_bandwidth: 5\n    write_iops: 5\n    write_bandwidth: 5\n    \
             read_iops: {figure}\n"
        );
        let error = refused(&text, code, 6, help);
        assert_eq!(error.key(), Some("disks[0].read_iops"));
    }
    let largest = with("duplex: no").replace("1000", &MAX_FIGURE.to_string());
    assert_eq!(parse("t", &largest).unwrap().disks[0].read_iops, MAX_FIGURE);
}

#[test]
fn sizes_that_are_none() {
    for more in ["read_saturation_length: 0", "write_saturation_length: 511", "physical_block_size: 5000"] {
        refused(&with(more), Code::OutOfRange, 2, "write");
    }
    for more in ["physical_block_size: 256", "physical_block_size: 2M"] {
        refused(&with(more), Code::OutOfRange, 2, "512 to 1,048,576");
    }
}

#[test]
fn the_same_thing_twice() {
    let text = "disks:\n  - mountpoint: /d\n    read_iops: 5\n    read_iops: 6\n";
    refused(text, Code::DuplicateKey, 4, "remove one");
    let text = format!("disks:\n  - {{mountpoint: /d, {FIGURES}}}\n  - {{mountpoint: /d, {FIGURES}}}\n");
    refused(&text, Code::DuplicateName, 3, "mountpoints");
    let text = format!("disks:\n  - {{mountpoint: /d, {FIGURES}}}\n  - {{mountpoints: [/e, /d], {FIGURES}}}\n");
    let error = refused(&text, Code::DuplicateName, 3, "mountpoints");
    assert_eq!(error.key(), Some("disks[1].mountpoints[1]"));
}

#[test]
fn templates_and_abridged_samples() {
    for place in ["$mount_point", "${MOUNT}", "'/mnt/${DISK}'", "'{{ mount }}'"] {
        refused(&format!("disks:\n  - mountpoint: {place}\n"), Code::Template, 2, "script");
    }
    let head = "disks:\n  - mountpoint: /d\n    read_iops: 95000\n";
    refused(&format!("{head}    ...\n"), Code::Elided, 4, "left out");
    refused(&format!("{head}      ...\n"), Code::Elided, 3, "left out");
    refused(&format!("{head}    read_bandwidth: ...\n"), Code::Elided, 4, "left out");
    refused(&format!("{head}    ...: ...\n"), Code::Elided, 4, "left out");
    refused(&format!("{head}...\n"), Code::MissingKey, 2, "`...`");
    refused("disks:\n  ...\n", Code::Elided, 2, "left out");
}

#[test]
fn indentation_is_explained() {
    // The second line continues the value of the first: legal YAML, and never meant.
    let text = "disks:\n  - mountpoint: /d\n      read_iops\n    write_iops: 5\n";
    refused(text, Code::InvalidValue, 2, "same column");
    let text = "disks:\n  - rate_factor: 1\n      mountpoint=/d\n";
    refused(text, Code::MissingKey, 2, "same column");
    refused("disks:\n  - mountpoint: /d\n      read_iops: 5\n", Code::Syntax, 3, "same column");
    refused("disks:\n\t- mountpoint: /d\n", Code::Syntax, 2, "tabs");
}

#[test]
fn yaml_that_other_readers_do_not_know() {
    refused(&with("<<: {duplex: true}"), Code::Syntax, 2, "write the keys out");
    refused(&format!("{}---\n{}", with("duplex: no"), with("duplex: no")), Code::Syntax, 4, "one document");
}

#[test]
fn warnings_do_not_refuse() {
    let properties = parse("t", &with("mountpoints: [/e]")).unwrap();
    assert_eq!(properties.disks[0].mountpoints, ["/e"]);
    assert_eq!(properties.warnings[0].code(), Code::Ignored);
    assert_eq!(properties.warnings[0].severity(), Severity::Warning);
    assert!(properties.warnings[0].to_string().starts_with("warning[ignored]"));

    let mut text = String::from("disks:\n");
    for index in 0..9 {
        text.push_str(&format!("  - {{mountpoint: /{index}, {FIGURES}}}\n"));
    }
    let properties = parse("t", &text).unwrap();
    assert_eq!(properties.disks.len(), 9);
    assert_eq!(properties.warnings[0].line(), Some(10));
}

#[test]
fn a_written_file_is_plain() {
    let disk =
        DiskProperties { rate_factor: 0.5, duplex: true, capacity_scale_max: 1.5, mix_exponent_p: 0.8, ..plain_disk() };
    let expected = "disks:
  - mountpoint: /d
    read_iops: 1000
    read_bandwidth: 104857600
    write_iops: 900
    write_bandwidth: 94371840
    duplex: true
    rate_factor: 0.5
    capacity_scale_max: 1.5
    mix_exponent: 0.8
";
    assert_eq!(write(&[disk]), expected);
}

#[test]
fn files_that_cannot_be_read() {
    let missing = std::path::Path::new("no-such-directory/io.yaml");
    let error = parse_from_file(missing).unwrap_err();
    assert_eq!((error.code(), error.line()), (Code::Unreadable, None));

    let path = std::env::temp_dir().join(format!("plimsoll-config-test-{}.yaml", std::process::id()));
    std::fs::write(&path, b"disks:\n  - mountpoint: \xff\n").unwrap();
    let error = parse_from_file(&path).unwrap_err();
    assert_eq!((error.code(), error.line()), (Code::Unreadable, Some(2)));
    std::fs::write(&path, with("duplex: no")).unwrap();
    assert_eq!(parse_from_file(&path).unwrap().disks, [plain_disk()]);
    std::fs::remove_file(&path).unwrap();
}

fn any_disk() -> impl Strategy<Value = DiskProperties> {
    // A letter in front keeps templates and dots out, which are refused on purpose.
    let path = "[a-zA-Z/][ -#%-z~\u{e9}\t\"\\\\]{0,20}[a-z]";
    let figure = || 1..=MAX_FIGURE / 2;
    (
        prop::collection::vec(path, 1..4),
        (figure(), figure(), figure(), figure()),
        (prop::option::of(512..=MAX_FIGURE), prop::option::of(512..=MAX_FIGURE), prop::option::of(9u32..=20)),
        any::<bool>(),
        prop::sample::select(vec![1.0, 1.25, 2.0, 1.000_000_1]),
    )
        .prop_map(
            |(mountpoints, figures, (read_saturation, write_saturation, block_bits), duplex, rate_factor)| {
                DiskProperties {
                    mountpoints,
                    read_iops: figures.0,
                    write_iops: figures.1,
                    read_bandwidth_bytes_per_s: figures.2,
                    write_bandwidth_bytes_per_s: figures.3,
                    read_saturation_bytes: read_saturation,
                    write_saturation_bytes: write_saturation,
                    physical_block_bytes: block_bits.map(|bits| 1 << bits),
                    duplex,
                    rate_factor,
                    capacity_scale_max: 1.0,
                    form: None,
                    mix_exponent_p: 1.0,
                    unloaded_latency_ns: 0,
                    read_depths: Vec::new(),
                    write_depths: Vec::new(),
                    doubtful: Vec::new(),
                }
            },
        )
}

proptest! {
    #[test]
    fn a_written_file_is_read_back(mut disks in prop::collection::vec(any_disk(), 1..4)) {
        for (disk_index, disk) in disks.iter_mut().enumerate() {
            for (index, mountpoint) in disk.mountpoints.iter_mut().enumerate() {
                *mountpoint = mountpoint.replace("{{", "{");
                mountpoint.push_str(&format!("-{disk_index}-{index}"));
            }
        }
        let text = write(&disks);
        prop_assert_eq!(parse("written.yaml", &text)?.disks, disks);
    }
}
