use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::instance::measure::card_of;

/// Returns kernel trees of these files, in a directory that is removed when dropped.
fn trees(files: &[(&str, &str)]) -> (TempDir, Roots) {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let roots = Roots { proc: directory.path().join("proc"), sys: directory.path().join("sys") };
    (directory, roots)
}

fn fact<'a>(card: &'a Card, key: &str) -> Option<&'a str> {
    card.facts.get(key).map(String::as_str)
}

/// Reads a machine of which this process may use `allowed` threads.
fn read(roots: &Roots, allowed: usize) -> Card {
    card_of(|card| super::read(card, roots, allowed))
}

/// Returns files for two sockets of two cores of two threads, each socket with two third-level caches of 16 MiB.
fn two_sockets() -> Vec<(String, String)> {
    let mut files = vec![
        ("sys/devices/system/cpu/online".to_owned(), "0-7\n".to_owned()),
        ("sys/devices/system/node/node0/x".to_owned(), String::new()),
        ("sys/devices/system/node/node1/x".to_owned(), String::new()),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor".to_owned(), "performance\n".to_owned()),
        ("proc/cpuinfo".to_owned(), "processor\t: 0\nmodel name\t: Xeon(R) CPU @ 2.30GHz\nflags\t: fpu\n".to_owned()),
        ("proc/meminfo".to_owned(), "MemTotal:  1048576 kB\nMemAvailable:  524288 kB\n".to_owned()),
    ];
    for cpu in 0..8 {
        let directory = format!("sys/devices/system/cpu/cpu{cpu}");
        let shared = cpu / 2 * 2;
        let mut file = |name: &str, text: String| files.push((format!("{directory}/{name}"), text));
        file("topology/physical_package_id", (cpu / 4).to_string());
        file("topology/core_id", (cpu / 2 % 2).to_string());
        file("cache/index0/level", "1\n".to_owned());
        file("cache/index3/level", "3\n".to_owned());
        file("cache/index3/size", "16384K\n".to_owned());
        file("cache/index3/shared_cpu_list", format!("{shared}-{}\n", shared + 1));
    }
    files
}

#[test]
fn sockets_cores_and_caches_are_counted() {
    let files = two_sockets();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (_directory, roots) = trees(&files);
    let card = read(&roots, 8);
    let figures = [
        ("cpu.cores", 4.0),
        ("cpu.threads", 8.0),
        ("cpu.clock_hz", 2.3e9),
        ("cpu.l3_bytes", f64::from(32 << 20)),
        ("memory.bytes", f64::from(1 << 30)),
    ];

    for (key, expected) in figures {
        assert_eq!(card.value(key), Some(expected), "{key}");
    }

    let facts = [
        ("cpu.model", "Xeon(R) CPU @ 2.30GHz"),
        ("cpu.sockets", "2"),
        ("cpu.threads_per_core", "2"),
        ("cpu.numa_nodes", "2"),
        ("cpu.governor", "performance"),
    ];
    for (key, expected) in facts {
        assert_eq!(fact(&card, key), Some(expected), "{key}");
    }

    assert_eq!(fact(&card, "machine.hypervisor"), None);
    assert!(card.warnings.is_empty(), "{card:?}");

    let card = read(&roots, 2);
    assert!(card.warnings.iter().any(|text| text.contains("2 of 8 hardware threads")), "{card:?}");
}

#[test]
fn a_machine_that_tells_nothing_has_reasons_for_all_that_is_missing() {
    let (_directory, roots) = trees(&[]);
    let card = read(&roots, 1);
    assert!(card.figures.is_empty());
    let missing: Vec<&String> = card.missing.keys().collect();
    let expected =
        ["cpu.clock_hz", "cpu.cores", "cpu.l3_bytes", "cpu.threads", "memory.bytes", "network.link_bits_per_s"];
    assert_eq!(missing, expected);
    assert!(card.missing.values().all(|reason| !reason.is_empty()));
}

#[test]
fn disks_cards_and_what_the_machine_is() {
    let (_directory, roots) = trees(&[
        ("proc/cpuinfo", "flags\t\t: fpu hypervisor\n"),
        ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"),
        ("sys/class/dmi/id/product_name", "i4i.2xlarge\n"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n"),
        ("sys/block/nvme0n1/size", "3662109375\n"),
        ("sys/block/nvme0n1/device/model", "Instance Storage   \n"),
        ("sys/block/sda/size", "1953525168\n"),
        ("sys/block/sda/device/x", ""),
        ("sys/block/sda/queue/rotational", "1\n"),
        ("sys/block/loop0/size", "100\n"),
        ("sys/block/sr0/size", "0\n"),
        ("sys/class/net/eth0/device/x", ""),
        ("sys/class/net/eth0/speed", "-1\n"),
        ("sys/class/net/eth1/device/x", ""),
        ("sys/class/net/eth1/speed", "25000\n"),
        ("sys/class/net/lo/speed", "99999\n"),
        ("sys/drivers/ena/x", ""),
    ]);

    symlink(roots.sys.join("drivers/ena"), roots.sys.join("class/net/eth1/device/driver")).unwrap();
    let card = read(&roots, 1);

    let facts = [
        ("machine.product", Some("i4i.2xlarge")),
        ("machine.hypervisor", Some("yes, Amazon EC2")),
        ("os.clock_source", Some("kvm-clock")),
        ("disk.nvme0n1", Some("Instance Storage, 1.88 TB")),
        ("disk.sda", Some("unknown model, 1 TB, spinning")),
        ("disk.loop0", None),
        ("disk.sr0", None),
        ("network.eth0", Some("unknown driver, speed unknown")),
        ("network.eth1", Some("ena, 25000 Mbit/s")),
        ("network.lo", None),
    ];
    for (key, expected) in facts {
        assert_eq!(fact(&card, key), expected, "{key}");
    }
    assert_eq!(card.value("network.link_bits_per_s"), Some(25e9));
}

#[test]
fn texts_of_the_kernel_are_understood() {
    for (list, expected) in [
        ("0-2,8", vec![0, 1, 2, 8]),
        ("0", vec![0]),
        ("", vec![]),
        ("3-1", vec![]),
        ("x,1-,2", vec![2]),
        ("0-99999999999", vec![]),
    ] {
        assert_eq!(cpus_in_list(list).collect::<Vec<_>>(), expected, "{list}");
    }

    for (model, expected) in [
        ("Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", Some(2.5e9)),
        ("Pentium @ 600MHz", Some(6e8)),
        ("AMD EPYC", None),
        ("a @ b", None),
        ("a @ -1GHz", None),
        ("a @ nanGHz", None),
    ] {
        assert_eq!(model_hz(model), expected, "{model}");
    }
}

#[test]
fn stolen_time_is_a_part_of_all() {
    let ticks = |line: &str| Ticks::parse(line);
    let before = ticks("cpu  100 0 50 800 10 0 0 40 7 0\ncpu0 1 2 3\n").unwrap();
    assert_eq!(before, Ticks { all: 1_000, stolen: 40 });
    let after = ticks("cpu  150 0 60 820 10 0 0 60 90 0\n").unwrap();
    assert_eq!(after.stolen_pct(before), Some(20.0));
    assert_eq!(before.stolen_pct(before), None);
    assert_eq!(before.stolen_pct(after), None);
    for line in ["", "cpu  1 2 3 4", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3 4 5 6 7 x"] {
        assert_eq!(ticks(line), None, "{line}");
    }
}
