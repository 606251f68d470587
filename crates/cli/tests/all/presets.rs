//! `plimsoll presets`: what it prints, in which formats, what it refuses; and that every other command takes the names.

use serde_json::Value;

use crate::world::{READS, World};

#[test]
fn every_form_says_what_was_asked_and_fits_a_screen() {
    let world = World::new(&[]);
    // Arguments, exit code, what the table must say.
    let cases: &[(&str, i32, &[&str])] = &[
        ("list", 0, &["i3.large", "Standard_L8s_v3", "lexar-ssd-nm790-2tb", "gp3", "measured, suspect"]),
        ("find i4i", 0, &["i4i.metal", "i4i.12xlarge: write_iops is 28 %"]),
        ("find gp2", 0, &["gp2", "rated, bursts", "gp2: the base; beyond it a burst of 3,000"]),
        ("show i4i.8xlarge", 0, &["384,561", "769,122", "800,000", "mix exponent 2.2", "18.75 Gb/s", "for one disk"]),
        (
            "show i7ie.24xlarge",
            0,
            &["1,770,378", "Advertised: inferred from measured", "default of its generation", "for all disks"],
        ),
        ("show gp2 gp3", 0, &["(2,000 s from full), then 300", "do not disturb", "99 % of a year"]),
        ("show Standard_L8s_v3", 0, &["an unknown number of disks", "894,399"]),
        ("find samsung 990", 0, &["samsung-ssd-990-pro-2tb"]),
        ("find drive", 0, &["samsung-ssd-860", "lexar-ssd-nm790-2tb"]),
        ("find i4i --read-iops 36M/min", 0, &["36M/min is 600,000 operations/s", "i4i.8xlarge"]),
        ("find --read-bandwidth 6800Mb/s --capacity 2TB", 0, &["850,000,000 bytes/s", "2,000,000,000,000 bytes"]),
        ("find --read-iops 99G", 1, &["no preset"]),
        ("find gp2 --read-iops 3000", 1, &["no preset"]),
        ("show gp3", 0, &["announced in 2025", "share its limits"]),
        ("array 4xi4i-drive-3.75tb", 0, &["1,600,000", "880,000"]),
        ("array 3xgp3:50GB:250MB/s --limit 6800Mb/s", 0, &["850,000,000 bytes/s", "100 MB/s of the limit are left"]),
        ("array 4xgp3:50GB:250MB/s --limit 850MB/s", 1, &["the limit binds, 150 MB/s less", "85 % of what it could"]),
    ];
    for (line, code, fragments) in cases {
        let ended = world.line(&format!("presets {line}"));
        assert_eq!((ended.code, ended.err.as_str()), (Some(*code), ""), "{line}: {ended:#?}");
        for fragment in *fragments {
            assert!(ended.out.contains(fragment), "{line}: no `{fragment}` in\n{}", ended.out);
        }
        let widest = ended.out.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{line}: {widest:?} columns");
        let other = world.line(&format!("presets {line} --format csv"));
        assert_eq!(other.code, Some(*code), "{line}: {other:#?}");
        let header = other.out.lines().next().map(|header| header.split(',').count());
        let mut rows = other.out.lines().filter(|row| !row.contains('"'));
        assert!(rows.all(|row| Some(row.split(',').count()) == header), "{line}: {}", other.out);
        assert!(world.line(&format!("presets {line} --format json")).json()["schema"] == 1, "{line}");
    }
}

#[test]
fn csv_has_bursts_and_what_is_advertised() {
    let csv = World::new(&[]).line("presets show gp2 i7i.large i4i.large --format csv");
    csv.assert_says(&[",3000,134217728,3000,134217728,", ",inferred,", ",stated,"]);
    let array = World::new(&[]).line("presets array 3xgp3:50GB:250MB/s --limit 6800Mb/s --format csv");
    array
        .assert_says(&["array,direction,members,limit_bytes_per_s,", "3xgp3:50GB:250MB/s,read,3,850000000,750000000,"]);
}

#[test]
fn json_has_the_documented_keys() {
    let world = World::new(&[]);
    let shown = world.line("presets show 2xi4i.8xlarge --format json").json();
    let preset = &shown["presets"][0];
    assert_eq!((&preset["disks"], &preset["total"]["read_iops"]), (&4.into(), &1_538_244.into()));
    assert_eq!((&preset["per_disk"]["read_iops"], &preset["vcpus"]), (&384_561.into(), &Value::Null));
    let found = world.line("presets find i4i --read-iops 13.2M/min --format json").json();
    assert_eq!(found["asked"]["read_iops"]["value"], 220_000);
    assert_eq!(found["presets"][0]["name"], "i4i.4xlarge");
    let array = world.line("presets array 3xgp3:50GB:250MB/s --limit 6800Mb/s --format json").json();
    assert_eq!((&array["limit_binds"], &array["read"]["left_bytes_per_s"]), (&false.into(), &100_000_000.into()));
    assert_eq!((&array["members"], &array["member"]["name"]), (&3.into(), &"gp3:50GB:250MB/s".into()));
}

#[test]
fn what_is_refused() {
    let world = World::new(&[]);
    let cases: &[(&str, &[&str])] = &[
        ("presets show i4i.4xlage", &["did you mean `i4i.4xlarge`?"]),
        ("presets show 4xsamsung-983-dct-1.92t", &["did you mean `4xsamsung-983-dct-1.92tb`?"]),
        ("presets show gp3:20GiB:16000iops", &["500 IOPS for each GiB", "at least 32 GiB"]),
        ("presets show gp3:1000MiB/s", &["0.25 MiB/s for each operation", "at least 4000 IOPS"]),
        ("presets show gp2 gp3 --format yaml", &["name one preset"]),
        ("presets find", &["--read-iops 600k"]),
        ("presets find --read-iops 5k/h", &["/s or /min"]),
        ("presets array 3xgp3 --limit 6800M/s", &["bits as Mb/s"]),
        ("presets array 300xgp3", &["1 to 256"]),
        ("info --disk gp3:20GiB:16000iops", &["500 IOPS for each GiB"]),
        ("info --disk 4xi4i.2xlrge", &["did you mean `4xi4i.2xlarge`"]),
    ];
    for (line, fragments) in cases {
        world.line(line).assert_refused(2, fragments);
    }
}

#[test]
fn every_command_takes_a_name_an_array_and_a_provisioned_volume() {
    let world = World::new(&[("jobs.yaml", READS)]);
    for disk in ["i3en.24xlarge", "gp3", "4xsamsung-983-dct-1.92tb", "3xgp3:500GiB:16000iops:1000MiB/s"] {
        for line in [
            format!("info --disk {disk}"),
            format!("test jobs.yaml --backend memory --duration 50ms -c 1 --disk {disk}"),
            format!("tune --disk {disk} --quick --figures-only --phase 50ms --data-size 16M -c 1"),
            format!("sim surface --disk {disk}"),
        ] {
            let ended = world.line(&line);
            assert!(matches!(ended.code, Some(0 | 1)) && !ended.err.contains("error"), "{line}: {ended:#?}");
            assert!(!ended.out.is_empty(), "{line}");
        }
    }
}

#[test]
fn yaml_is_an_io_properties_file() {
    let world = World::new(&[]);
    let yaml = world.line("presets show 4xi4i-drive-3.75tb --format yaml");
    assert_eq!((yaml.code, yaml.err.as_str()), (Some(0), ""));
    std::fs::write(world.path().join("io.yaml"), &yaml.out).expect("a file can be written");
    let info = world.line("info io.yaml");
    assert_eq!((info.code, info.err.as_str()), (Some(0), ""), "{info:#?}");
    assert!(info.out.contains("1,600,000") && info.out.contains("/var/lib/data"), "{}", info.out);
    // Reads beside writes as with the preset itself.
    assert!(yaml.out.contains("mix_exponent: 2.2") && yaml.out.contains("unloaded_latency_ns: 100000"), "{}", yaml.out);
}
