//! `plimsoll info`: what it says without a disk, in which formats, and what it refuses.

use plimsoll_sim::device::presets;
use serde_json::Value;

use crate::world::{Ended, World};

const ONE: &str = "\
disks:
- mountpoint: /nowhere
  read_bandwidth: 1542559872
  read_iops: 218786
  write_bandwidth: 1130867072
  write_iops: 121499
";

const SLOW: &str = "\
disks:
- {mountpoint: /nowhere, read_iops: 200, read_bandwidth: 200000000, write_iops: 100, write_bandwidth: 100000000}
- {mountpoints: [/dev/null, /elsewhere], read_iops: 1k, read_bandwidth: 1M, write_iops: 1k, write_bandwidth: 1M,
   duplex: true, read_saturation_length: 16k}
";

const TABLE: &str = "\
disk:
  read_iops: 2000000
  read_bandwidth: 20G
  write_iops: 1500000
  write_bandwidth: 15G
  read_table: [[4096, 2000000], [65536, 150000]]
  write_table: [[4096, 1500000], [65536, 170000]]
";

fn world() -> World {
    World::new(&[
        ("one.yaml", ONE),
        ("slow.yaml", SLOW),
        ("table.yaml", TABLE),
        ("template.yaml", &ONE.replace("/nowhere", "$mount_point")),
        ("incomplete.yaml", "disks:\n- mountpoint: /nowhere\n"),
        ("elided.yaml", "disks:\n- mountpoint: /nowhere\n  read_iops: 95000\n  ...\n"),
        ("obsolete.yaml", &ONE.replace("read_iops", "read_reqs_per_sec")),
    ])
}

fn run(world: &World, arguments: &str) -> Ended {
    let ended = world.line(&format!("info {arguments}"));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:#?}");
    ended
}

fn json(world: &World, arguments: &str) -> Value {
    run(world, &format!("{arguments} --format json")).json()
}

#[test]
fn json_has_the_keys_of_ioinfo_and_ours_beside_them() {
    let world = world();
    let info = json(&world, "one.yaml --shards 7");
    let disk = &info["disks"][0];
    assert_eq!((&info["schema"], &disk["mountpoint"], &disk["device"]), (&1.into(), &"/nowhere".into(), &Value::Null));
    assert_eq!(disk["disk_read_max_length"], 1 << 20);
    assert_eq!(disk["disk_write_max_length"], 512 << 10);
    assert_eq!(disk["io_latency_goal_ms"], 0.75);
    assert_eq!(disk["io_queue"]["req_count_rate"], 28_004_608);
    assert_eq!(disk["io_queue"]["disk_req_write_to_read_multiplier"], 230);
    let fair = &disk["fair_queue"];
    assert_eq!(fair["capacities"].as_object().map(serde_json::Map::len), Some(9));
    assert_eq!(fair["capacities"]["65536"]["write"], 1_106_730);
    assert_eq!(fair["per_tick_grab_threshold"], 1_797_558);
    let bucket = serde_json::json!({"limit": 12_582_912, "rate": 16_777_216, "threshold": 82_251});
    assert_eq!(fair["token_bucket"], bucket);
    for form in ["knee", "additive", "max", "seastar"] {
        let form = &disk["forms"][form];
        assert_eq!(form["sizes"].as_array().map(Vec::len), Some(12));
        assert_eq!(form["latency_goal_effective_ms"], 0.75);
        for figure in ["read_iops", "read_bandwidth", "write_iops", "write_bandwidth"] {
            let difference = form["difference_pct"][figure].as_f64();
            assert!(difference.is_some_and(|percent| percent.abs() <= 0.5), "{figure} {form:#}");
        }
    }
    let reachable = |form: &str| disk["forms"][form]["reachable_4k_read_pct"].as_f64().map(f64::round);
    assert_eq!((reachable("knee"), reachable("seastar")), (Some(100.0), Some(63.0)));
}

#[test]
fn queues_goals_and_forms_are_asked_for() {
    let world = world();
    let per_tick =
        |arguments: &str| json(&world, arguments)["disks"][0]["fair_queue"]["per_tick_grab_threshold"].clone();
    assert_eq!(per_tick("one.yaml"), 12_582_912);
    assert_eq!(per_tick("one.yaml --smp 48"), 262_144);
    assert_eq!(per_tick("one.yaml --shards 48 --num-io-queues 24"), 524_288);
    for flag in ["--latency-goal", "--io-latency-goal-ms", "--io-latency-goal"] {
        assert_eq!(per_tick(&format!("one.yaml {flag} 1.5")), 25_165_824, "{flag}");
    }
    let unsplit = json(&world, "one.yaml --latency-goal none --model max");
    let disk = &unsplit["disks"][0];
    assert_eq!((&disk["model"], &disk["disk_read_max_length"]), (&"max".into(), &Value::Null));
    assert_eq!((&disk["latency_goal_asked_ms"], &disk["forms"]["max"]["read_max_bytes"]), (&Value::Null, &Value::Null));
    let table = json(&world, "--disk table.yaml");
    assert_eq!((&table["disks"][0]["model"], &table["disks"][0]["name"]), (&"table".into(), &"table.yaml".into()));
}

#[test]
fn yaml_is_one_map_or_a_list() {
    let world = world();
    let map: Value = serde_saphyr::from_str(&run(&world, "one.yaml --format yaml").out).expect("YAML");
    let disk = &json(&world, "one.yaml")["disks"][0];
    for (key, value) in map.as_object().expect("a map") {
        assert_eq!(&disk[key], value, "{key}");
    }
    assert_eq!(map.as_object().map(serde_json::Map::len), Some(6));
    let list: Value = serde_saphyr::from_str(&run(&world, "slow.yaml --format yaml").out).expect("YAML");
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    assert_eq!((&list[1]["io_queue"]["id"], &list[1]["disk_read_max_length"]), (&2.into(), &16_384.into()));
}

#[test]
fn csv_has_a_line_for_each_size() {
    let world = world();
    let csv = run(&world, "slow.yaml --format csv").out;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * 12);
    assert!(
        lines[0].starts_with("disk,bytes,knee_read_cost_ns,") && lines[0].ends_with(",seastar_write_iops"),
        "{csv}"
    );
    assert!(lines[1].starts_with("1,512,5000000.000,10000000.000,200.000,"), "{csv}");
    assert!(lines[13].starts_with("2,512,"), "{csv}");
}

#[test]
fn tables_fit_and_explain() {
    let world = world();
    let fitting = |arguments: &str| {
        let text = run(&world, arguments).out;
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{arguments}\n{text}");
        text
    };
    let text = fitting("slow.yaml");
    for fragment in ["10.655 ms, and nothing shorter", "/dev/null:/elsewhere", "device 1:3", "duplex", "KiB"] {
        assert!(text.contains(fragment), "no `{fragment}` in\n{text}");
    }
    let text = fitting("one.yaml");
    assert!(
        text.contains("costs 7.23 us: 63 % of the configured IOPS are reachable with the form `seastar`"),
        "{text}"
    );
    assert!(text.contains("costs 4.57 us: 100 % of the configured IOPS are reachable with the form `knee`"), "{text}");
    for arguments in ["--disk table.yaml", "--disk table.yaml --model seastar", "one.yaml --latency-goal none"] {
        fitting(arguments);
    }
    for name in presets::names() {
        fitting(&format!("--disk {name}"));
    }
}

#[test]
fn a_mount_point_does_not_steer_the_terminal() {
    let world = World::new(&[("steers.yaml", &ONE.replace("/nowhere", "\"/no\\e[2Jwhere\""))]);
    let text = run(&world, "steers.yaml").out;
    assert!(text.starts_with("/no\\u{1b}[2Jwhere, ") && !text.contains('\x1b'), "{text}");
}

#[test]
fn what_is_refused() {
    let world = world();
    let before = world.contents();
    let cases: &[(&str, &[&str])] = &[
        ("info", &["<IO_PROPERTIES>"]),
        ("info missing.yaml", &["missing.yaml", "No such file"]),
        ("info i4i.2xlarge", &["for the preset write --disk i4i.2xlarge"]),
        ("info template.yaml", &["template.yaml:2:15", "replace it by its value"]),
        ("info incomplete.yaml", &["incomplete.yaml:2:", "`read_iops`", "measure the disk"]),
        ("info elided.yaml", &["elided.yaml:4:3", "write out what was left out"]),
        ("info obsolete.yaml", &["obsolete.yaml:4:3", "write `read_iops`"]),
        ("info one.yaml --disk i4i.2xlarge", &["--disk", "cannot be used with"]),
        ("info --check --disk i4i.2xlarge", &["--check", "cannot be used with", "--disk"]),
        ("info --disk i4i.2xlrge", &["did you mean `i4i.2xlarge`"]),
        // A file of the other format: what takes it.
        ("info table.yaml", &["has no key `disk`", "give it with --disk"]),
        ("info --check table.yaml", &["has no key `disk`", "give it with --disk"]),
        ("stat --io-properties table.yaml", &["has no key `disk`", "give it with --disk"]),
        ("info --disk one.yaml", &["has no key `disks`", "give it with --io-properties"]),
        ("info one.yaml --model cubic", &["--model", "knee, additive, max, seastar"]),
        ("info one.yaml --latency-goal soon", &["--latency-goal", "or `none`"]),
        ("info one.yaml --shards 0", &["--shards", "0 is not in 1..="]),
        ("info one.yaml --shards 2 --num-io-queues 3", &["3 I/O queues on 2 shard(s)", "lower --num-io-queues"]),
        ("info one.yaml --format xml", &["table, json, csv, yaml"]),
    ];
    for (arguments, fragments) in cases {
        println!("plimsoll {arguments}");
        world.run(&arguments.split(' ').collect::<Vec<_>>()).assert_refused(2, fragments);
    }
    assert!(world.contents() == before, "the directory changed");
}
