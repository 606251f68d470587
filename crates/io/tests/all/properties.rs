//! The file that `tune` wrote opens a disk.

use std::path::Path;

use crate::common::TempDir;
use plimsoll::backend::error_number;
use plimsoll::core::{CostForm, CostModel, FourFigures, MixExponent, Op, Rate};
use plimsoll::{Classes, Topology};
use plimsoll_properties::io_properties::{DiskProperties, MEASURED_SCALE_MAX, write};

/// As `plimsoll tune -o` writes it: by its writer, with its scale.
fn tuned(mountpoint: &Path) -> String {
    write(&[DiskProperties {
        mountpoints: vec![mountpoint.display().to_string()],
        read_iops: 90_000,
        write_iops: 60_000,
        read_bandwidth_bytes_per_s: 1_200_000_000,
        write_bandwidth_bytes_per_s: 900_000_000,
        read_saturation_bytes: None,
        write_saturation_bytes: None,
        physical_block_bytes: Some(4096),
        duplex: false,
        rate_factor: 1.0,
        capacity_scale_max: MEASURED_SCALE_MAX,
        form: None,
        mix_exponent_p: 0.8,
        unloaded_latency_ns: 85_000,
        read_depths: Vec::new(),
        write_depths: Vec::new(),
        doubtful: Vec::new(),
    }])
}

fn open(text: &str) -> Result<Topology, String> {
    let dir = TempDir::new("properties");
    let path = dir.path().join("io-properties.yaml");
    std::fs::write(&path, text).unwrap();
    let opened = Topology::from_io_properties(&path, 1, Classes::new());
    opened.map_err(|error| error.to_string().replace(&dir.path().display().to_string(), "DIR"))
}

#[test]
fn what_tune_wrote_is_what_schedules() {
    let topology = open(&tuned("/".as_ref())).unwrap();
    let config = topology.disk(0).unwrap().config();
    let figures = FourFigures {
        read_iops: Rate::per_second(90_000),
        write_iops: Rate::per_second(60_000),
        read_bandwidth: Rate::per_second(1_200_000_000),
        write_bandwidth: Rate::per_second(900_000_000),
    };
    let expected = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    for (op, len_bytes) in [(Op::Read, 4096), (Op::Write, 4096), (Op::Read, 1 << 20), (Op::Write, 65_536)] {
        assert_eq!(config.model.cost(op, len_bytes), expected.cost(op, len_bytes), "{op:?} {len_bytes}");
    }
    assert_eq!((config.duplex, config.control.scale_max), (false, 4.0));
    assert_eq!((&config.mix, config.unloaded_latency_ns), (&MixExponent::new(0.8).unwrap(), 85_000));
}

/// Seastar's own form: suffixes, several mount points of one disk, optional keys.
#[test]
fn what_iotune_wrote_is_read_as_seastar_reads_it() {
    let text = "disks:\n  - mountpoints: [/proc, /sys]\n    read_iops: 95k\n    read_bandwidth: 545M\n    write_iops: 85k\n    \
                write_bandwidth: 510M\n    read_saturation_length: 64k\n    duplex: true\n    rate_factor: 0.5\n  \
                - mountpoint: /dev/null\n    read_iops: 1\n    read_bandwidth: 1M\n    write_iops: 1\n    write_bandwidth: 1M\n";
    let topology = open(text).unwrap();
    assert_eq!(topology.disks(), 2);
    let config = topology.disk(0).unwrap().config();
    assert!(config.duplex);
    // 95k is 97 280 in Seastar's grammar, and rate_factor halves it.
    assert_eq!(config.model.cost(Op::Read, 4096).as_ns_ceil(), 1_000_000_000_u64.div_ceil(48_640));
    let found = ["/proc/self/status", "/sys/block", "/dev/null"].map(|path| topology.disk_of(path.as_ref()).unwrap());
    assert_eq!(found, [0, 0, 1]);
}

#[test]
fn a_path_on_no_disk_is_refused_with_the_disks_there_are() {
    let topology = open(&tuned("/proc".as_ref())).unwrap();
    let error = topology.disk_of("/dev/null".as_ref()).unwrap_err();
    assert_eq!(error_number(&error), 19, "ENODEV");
    let text = error.to_string();
    assert!(text.starts_with("no disk holds /dev/null (device 1:3): they are at /proc (device "), "{text}");
    // Disks without mount points are found by number, and a single one needs none.
    let one = Topology::new(1, Classes::new(), vec![plimsoll::DiskSetup::unlimited()]).unwrap();
    assert_eq!(one.disk_of("/anywhere/at/all".as_ref()).unwrap(), 0);
}

#[test]
fn a_path_on_two_disks_is_refused_instead_of_scheduled_by_the_first() {
    let disks = ["/proc", "/proc/sys"]
        .map(|place| plimsoll::DiskSetup { mountpoints: vec![place.into()], ..plimsoll::DiskSetup::unlimited() });
    let topology = Topology::new(1, Classes::new(), disks.to_vec()).unwrap();
    let error = topology.disk_of("/proc/self".as_ref()).unwrap_err();
    assert_eq!(error_number(&error), 22, "EINVAL");
    assert!(error.to_string().starts_with("several disks hold /proc/self (device "), "{error}");
}

#[test]
fn errors_name_the_file_the_line_the_key_and_what_was_expected() {
    let good = tuned("/".as_ref());
    let table = [
        (good.replace("read_iops", "read_iop"), "a disk has no key \"read_iop\"", "3", "did you mean `read_iops`?"),
        (good.replace("    write_iops: 60000\n", ""), "a disk needs `write_iops`", "2", "measure the disk"),
        (good.replace("60000", "many"), "\"many\"", "5", "write digits"),
        (good.replace("90000", "0"), "0 is not possible here", "3", "write 1 to 1,000,000,000,000,000 per second"),
        ("disks: []\n".to_owned(), "there is no disk in the list", "1", "write `disks:`"),
        ("{".to_owned(), "this is not YAML", "1", "check this line"),
    ];
    for (text, message, line, help) in table {
        let Err(error) = open(&text) else { panic!("accepted: {text}") };
        let place = format!("DIR/io-properties.yaml:{line}:");
        for part in [message, &place, help] {
            assert!(error.contains(part), "no {part:?} in:\n{error}");
        }
    }
    let missing = Topology::from_io_properties("/no/such/file.yaml", 1, Classes::new()).map(|_| ()).unwrap_err();
    assert!(
        missing.to_string().contains("/no/such/file.yaml") && missing.to_string().contains("cannot read"),
        "{missing}"
    );
    let no_shards = Topology::from_io_properties("/no/such/file.yaml", 0, Classes::new());
    assert!(no_shards.is_err());
}
