//! `plimsoll tune`: records, simulated disks, devices that are given up, and what is refused.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::Value;

use crate::skip::skip;
use crate::world::{Ended, World};

/// Everything, in samples of a few milliseconds.
const SHORT: [&str; 6] = ["--phase", "40ms", "--data-size", "16M", "-c", "1"];
/// The four figures of nothing: no disk is needed.
const NULL: [&str; 7] = ["tune", ".", "--backend", "null", "--figures-only", "--quick", "--seed"];

/// The result of a measurement; `None` on a machine too busy for it.
#[track_caller]
fn measured(ended: &Ended) -> Option<Value> {
    if ended.is_of_a_busy_machine() {
        skip("the machine is too busy to measure for as long as was asked, or the same twice");
        return None;
    }
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    Some(ended.json())
}

fn names(world: &World) -> Vec<String> {
    world.contents().keys().map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
}

/// A record of the four figures, and the JSON of the run.
fn recorded(world: &World, name: &str, seed: &str) -> Option<Value> {
    measured(&world.run(&[&NULL[..], &[seed], &SHORT, &["--record", name, "--format", "json"]].concat()))
}

#[test]
fn a_record_gives_the_same_json_as_the_run() {
    let world = World::new(&[]);
    let arguments = ["tune", ".", "--backend", "null", "--record", "run.jsonl", "--format", "json"];
    let ran = world.run(&[&arguments[..], &SHORT].concat());
    let Some(_) = measured(&ran) else { return };
    let read = world.run(&["tune", "--from", "run.jsonl", "--format", "json"]);
    assert_eq!((read.code, &read.out), (Some(0), &ran.out));
    // Every other form of it, too, without the disk.
    let line = "tune --from run.jsonl -o io.yaml --disk-output disk.yaml --page page.html --pictures .";
    world.line(line).done().assert_fits();
    let place = &read.json()["place"];
    let [host, date] = ["host", "date"].map(|key| place[key].as_str().expect("a text").to_owned());
    let page = fs::read_to_string(world.path().join("page.html")).expect("it was written");
    assert_eq!(page.matches(&format!("On {host}, begun {date}. ")).count(), 1, "{place} in {page}");
    let names = names(&world);
    for name in ["io.yaml", "disk.yaml", "page.html", "sizes.svg", "latency-against-load.svg"] {
        assert!(names.contains(&name.to_owned()), "no {name} in {names:?}");
    }
}

#[test]
fn a_record_is_never_written_over() {
    let world = World::new(&[("run.jsonl", "precious")]);
    let before = world.contents();
    for place in [&NULL[..6], &["tune", "--disk", "i3en.3xlarge"]] {
        let ended = world.run(&[place, &SHORT, &["--record", "run.jsonl"]].concat());
        ended.assert_refused(2, &["run.jsonl exists", "--resume", "--from"]);
        assert!(world.contents() == before);
    }
}

#[test]
fn a_cut_record_is_gone_on_with() {
    let world = World::new(&[]);
    let Some(whole) = recorded(&world, "run.jsonl", "1") else { return };
    let text = fs::read_to_string(world.path().join("run.jsonl")).expect("it was written");
    let ends = text.match_indices("{\"done\":{\"phase\":").map(|(at, _)| at + text[at..].find('\n').unwrap_or(0) + 1);
    let ends: Vec<usize> = ends.collect();
    assert_eq!(ends.len(), 5, "{text}");
    for end in [ends[0], ends[2], ends[4]] {
        // As a crash leaves it: the next line is torn.
        fs::write(world.path().join("run.jsonl"), &text[..text.len().min(end + 30)]).expect("it can be cut");
        let Some(report) = measured(&world.run(&["tune", "--resume", "run.jsonl", "--format", "json"])) else { return };
        for figure in ["read_iops", "write_iops", "read_bandwidth", "write_bandwidth"] {
            assert_eq!(report[figure]["complete"], true, "{figure}");
        }
        // Sequential writes are the second phase: what was done stays as it was.
        assert_eq!(report["write_bandwidth"] == whole["write_bandwidth"], end > ends[0]);
        assert_eq!(names(&world), ["run.jsonl"]);
        assert_eq!(world.run(&["tune", "--from", "run.jsonl", "--format", "json"]).done().json(), report);
    }
}

#[test]
fn three_records_become_one_result() {
    let world = World::new(&[]);
    let runs = [("a", "1"), ("b", "2"), ("c", "3")].map(|(name, seed)| recorded(&world, name, seed));
    let [Some(a), Some(b), Some(c)] = runs else { return };
    let runs = [a, b, c];
    let before = world.contents();
    let Some(merged) = measured(&world.run(&["tune", "--merge", "a", "b", "c", "--format", "json"])) else { return };
    assert_eq!(merged["merged"]["runs"], serde_json::json!(["a", "b", "c"]));
    let written: u64 = runs.iter().filter_map(|run| run["written_bytes"].as_u64()).sum();
    assert_eq!(merged["written_bytes"].as_u64(), Some(written));
    for figure in ["read_iops", "write_iops", "read_bandwidth", "write_bandwidth"] {
        let of_runs = runs.each_ref().map(|run| run[figure]["value"].as_f64().unwrap_or(0.0));
        let (least, most) =
            (of_runs.iter().fold(f64::MAX, |a, b| a.min(*b)), of_runs.iter().fold(0.0, |a: f64, b| a.max(*b)));
        let value = merged[figure]["value"].as_f64().unwrap_or(0.0);
        assert!((least * 0.999..=most * 1.001).contains(&value), "{figure}: {value} of {of_runs:?}");
    }
    let table = world.run(&["tune", "--merge", "a", "b", "c"]);
    assert!(table.out.contains("merged from 3 runs"), "{table:#?}");
    assert!(world.contents() == before);
}

#[test]
fn a_simulated_disk_from_end_to_end() {
    let world = World::new(&[]);
    fs::create_dir(world.path().join("pictures")).expect("a directory can be made");
    let line = "tune --backend sim --disk i3en.3xlarge --quick --phase 200ms --data-size 64M -c 2 -o io.yaml --disk-output \
                disk.yaml --page page.html --pictures pictures --record run.jsonl";
    let table = world.line(line).done();
    table.assert_fits();
    table.assert_says(&["i3en.3xlarge", "2 shard(s), backend sim", "random read", "mix exponent", "IOPS", "GB/s"]);
    assert_eq!(names(&world), ["disk.yaml", "io.yaml", "page.html", "pictures", "run.jsonl"]);

    let report = world.run(&["tune", "--from", "run.jsonl", "--format", "json"]).done().json();
    assert_eq!((&report["schema"], &report["backend"]["name"]), (&2.into(), &"sim".into()));
    let figures = ["read_iops", "read_bandwidth", "write_iops", "write_bandwidth"];
    for arguments in ["info io.yaml --format json", "info --disk disk.yaml --format json"] {
        let info = world.line(arguments).done().json();
        for figure in figures {
            let (told, measured) = (&info["disks"][0]["configured"][figure], report[figure]["value"].as_f64());
            assert_eq!(told.as_u64(), measured.map(|value| value.round() as u64), "{arguments}: {figure}");
        }
    }
    let info = world.line("info --disk disk.yaml --format json").done().json();
    assert!(info["disks"][0]["forms"]["table"].is_object(), "the measured sizes are in disk.yaml");
    assert_eq!(world.line("info --check io.yaml --instance i3en.3xlarge").code, Some(0));

    let page = fs::read_to_string(world.path().join("page.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("i3en.3xlarge") && !page.contains("src=\"http"), "{}", page.len());
    let pictures: Vec<String> = fs::read_dir(world.path().join("pictures"))
        .expect("a directory")
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a picture"))
        .collect();
    assert!(pictures.len() >= 4 && pictures.iter().all(|svg| svg.starts_with("<svg")), "{}", pictures.len());
}

/// A record in which others moved two fifths of the bytes beside random reads: the doubt is in every form of the result.
#[test]
fn a_doubt_is_in_the_exit_code_the_file_and_the_page() {
    let world = World::new(&[]);
    let line = "tune --disk gp3 --quick --figures-only --phase 100ms --data-size 16M -c 1 --record run.jsonl";
    assert_ne!(world.line(line).code, Some(2));
    let path = world.path().join("run.jsonl");
    let disturbed = |line: &str| -> String {
        let mut entry: Value = serde_json::from_str(line).expect("a line of a record is JSON");
        if let Some(sample) = entry.get_mut("sample").filter(|it| it["phase"] == "read_iops" && it["step"] == "measure")
        {
            sample["sample"]["foreign_pct"] = 40.into();
        }
        entry.to_string() + "\n"
    };
    let text = fs::read_to_string(&path).expect("a record");
    fs::write(&path, text.lines().map(disturbed).collect::<String>()).expect("the record can be changed");

    let table = world.line("tune --from run.jsonl -o io.yaml --page page.html");
    assert_eq!(table.code, Some(1), "{table:#?}");
    assert!(table.out.starts_with("doubtful: read_iops"), "{table:#?}");
    let read = |name: &str| fs::read_to_string(world.path().join(name)).expect("it was written");
    let doubtful = read("io.yaml").lines().find(|line| line.contains("doubtful:")).map(str::to_owned);
    let doubtful = doubtful.unwrap_or_else(|| panic!("{}", read("io.yaml")));
    assert!(doubtful.contains("[read_iops") && doubtful.ends_with("# by the measurement itself: measure again"));

    let checked = world.run(&["info", "--check", "io.yaml"]);
    assert_eq!(checked.code, Some(1), "{checked:#?}");
    for words in ["the measurement itself doubts read_iops", "[doubtful]", "Remedy: measure again with `plimsoll tune`"]
    {
        assert!(checked.out.contains(words), "no `{words}` in {checked:#?}");
    }

    // Each warning stands once, and so does what was written: on a page of its own, and on one of several results.
    assert_eq!(world.line("report run.jsonl -o report.html").code, Some(0));
    let report = world.line("tune --from run.jsonl --format json").json();
    let warnings = report["warnings"].as_array().expect("a list");
    assert!(warnings.len() >= 2, "{warnings:#?}");
    let pages = [read("page.html"), read("report.html")];
    for page in &pages {
        for warning in warnings {
            let message = warning["message"].as_str().expect("a message");
            assert_eq!(page.matches(&format!("<li>{message}</li>")).count(), 1, "{message} in {page}");
        }
    }
    let written = report["written_bytes"].as_f64().expect("a number") / f64::from(1 << 20);
    let written = if written < 1024.0 { format!("{written:.0} MiB") } else { format!("{:.2} GiB", written / 1024.0) };
    assert!(table.out.contains(&format!("written: {written} in ")), "{written} in {table:#?}");
    for page in &pages {
        assert_eq!(page.matches(&format!("{written} written")).count(), 1, "{written} in {page}");
    }
}

#[test]
fn a_simulated_disk_gives_the_same_bytes_twice() {
    let world = World::new(&[]);
    let line = "tune --disk gp3 --quick --figures-only --phase 100ms --data-size 16M -c 1 --format json";
    let run = || world.line(line);
    let (first, second) = (run(), run());
    assert_eq!((first.code, &first.out), (second.code, &second.out), "{first:#?}");
    // So short phases may leave a figure in doubt.
    assert!(first.code == Some(0) || first.is_of_a_busy_machine(), "{first:#?}");
}

#[test]
fn directories_on_one_file_system_are_measured_once() {
    let world = World::new(&[]);
    fs::create_dir(world.path().join("inner")).expect("a directory can be made");
    let always = [&SHORT[..], &["--backend", "null", "--figures-only", "--format", "json"]].concat();
    let once = world.run(&[&["tune", ".", "inner", "."][..], &always].concat());
    let Some(one) = measured(&once) else { return };
    assert!(one.is_object());
    assert!(once.err.contains("2 of the directories are on the same file system"), "{once:#?}");
    // /proc is another, and nothing is touched there with this backend.
    let Some(two) = measured(&world.run(&[&["tune", ".", "/proc", "inner"][..], &always].concat())) else { return };
    assert_eq!(two.as_array().map(Vec::len), Some(2));
    assert_eq!(two[1]["mountpoint"], "/proc");
}

/// A loop device on a file of its own, let go at the end.
struct LoopDevice(String);

impl LoopDevice {
    /// `None` where this machine or user cannot have one.
    fn new(world: &World, len_bytes: u64) -> Option<LoopDevice> {
        let file = world.path().join("image");
        File::create(&file).and_then(|image| image.set_len(len_bytes)).expect("a file can be made");
        match Command::new("losetup").args(["--find", "--show"]).arg(&file).output() {
            Ok(output) if output.status.success() => {
                Some(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
            }
            Ok(output) => {
                skip(format_args!("no loop device: {}", String::from_utf8_lossy(&output.stderr).trim()));
                None
            }
            Err(error) => {
                skip(format_args!("no losetup: {error}"));
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Whoever reads the output of the test sees what losetup says.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn a_device_is_only_written_to_when_it_is_given_up() {
    let world = World::new(&[]);
    let Some(device) = LoopDevice::new(&world, 32 * MIB) else { return };
    let mark = vec![0xA5; MIB as usize];
    let open = || File::options().read(true).write(true).open(&device.0);
    let Ok(node) = open() else { return skip(format_args!("{} cannot be opened for writing", device.0)) };
    for at in 0..32 {
        node.write_all_at(&mark, at * MIB).expect("a device can be written");
    }
    node.sync_all().expect("a device can be synced");
    drop(node);
    let is_marked = |at: u64| {
        let mut found = vec![0; MIB as usize];
        open().and_then(|node| node.read_exact_at(&mut found, at * MIB)).expect("a device can be read");
        found == mark
    };

    let refused = world.run(&["tune", &device.0]);
    refused.assert_refused(2, &[&device.0, "is a block device", "overwrites everything", "--destructive"]);
    assert!((0..32).all(is_marked), "a refusal writes nothing");

    let arguments = ["tune", &device.0, "--destructive", "--format", "json"];
    let ended = world.run(&[&arguments[..], &SHORT].concat());
    let Some(report) = measured(&ended) else { return };
    assert_eq!((&report["mountpoint"], &report["file_system"]), (&device.0.as_str().into(), &"".into()));
    assert!(report["device"]["backing_file"].is_string(), "{report:#}");
    assert!(report["warnings"].to_string().contains("loop_device"), "{report:#}");
    assert!((0..16).all(|at| !is_marked(at)), "the data size is used");
    assert!((16..32).all(is_marked), "beyond the data size nothing is touched");
    assert_eq!(names(&world), ["image"]);
}

#[test]
fn a_device_in_use_is_never_given_up() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let device = mounts.lines().filter_map(|line| line.split(' ').next()).find(|source| {
        source.starts_with("/dev/") && fs::canonicalize(source).is_ok() && !source.starts_with("/dev/loop")
    });
    let Some(device) = device else { return skip("no device is mounted here") };
    // Without --destructive, so that this test can never harm anybody.
    let ended = World::new(&[]).run(&["tune", device, "--data-size", "16M"]);
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.err.contains("in use") || ended.err.contains("block device"), "{ended:#?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new(&[("no-record", "disks: []\n"), ("bare.yaml", BARE), ("there", "x")]);
    let before = world.contents();
    let cases: &[(&str, &[&str])] = &[
        ("tune", &["DIR|DEVICE"]),
        ("tune --from missing", &["missing: No such file", "`--record FILE` writes one"]),
        (
            "tune --from no-record",
            &["no-record:1", "this is no record of `plimsoll tune` (`--record FILE` writes one)"],
        ),
        ("tune --resume no-record", &["no-record:1", "this is no record of `plimsoll tune`"]),
        ("tune --merge no-record", &["2 values", "--merge"]),
        ("tune --from no-record --resume no-record", &["cannot be used with"]),
        ("tune . --quick --full", &["--quick", "cannot be used with", "--full"]),
        ("tune . --rounds 2", &["--rounds", "2 is not in 5..="]),
        ("tune . --backend sim", &["--backend sim", "--disk"]),
        ("tune . --disk i3en.3xlarge", &["cannot be used with"]),
        ("tune --disk i3en.3xlarge --backend pool", &["--disk", "leave --backend out"]),
        ("tune --disk i3en.3xlrge", &["did you mean `i3en.3xlarge`"]),
        ("tune --disk bare.yaml", &["bare.yaml has no section `device`", "sim fit"]),
        ("tune . --pictures nowhere", &["--pictures nowhere", "no such directory"]),
        ("tune . --disk-output there", &["there exists", "--force"]),
        ("tune . --page there", &["there exists", "--force"]),
        ("tune . /proc --backend null --record run.jsonl", &["--record", "one disk"]),
        ("tune . --read-block-size 8G", &["--read-block-size", "512 bytes to 1 MiB"]),
    ];
    for (line, fragments) in cases {
        println!("plimsoll {line}");
        world.line(line).assert_refused(2, fragments);
        assert!(world.contents() == before, "plimsoll {line}: the directory changed");
    }
}

/// Figures without a simulator's part.
const BARE: &str = "disk: {read_iops: 1000, read_bandwidth: 1M, write_iops: 1000, write_bandwidth: 1M}\n";

#[test]
fn a_fill_sweep_says_whether_the_disk_slows() {
    let world = World::new(&[(
        "disk.yaml",
        "disk: {read_iops: 100000, read_bandwidth: 1G, write_iops: 50000, write_bandwidth: 500M}\n\
         device:\n  rates: {write_bytes_per_s: 500000000}\n  flash: {garbage_collection: true, over_provisioning: 0.28}\n",
    )]);
    let simulated = ["tune", "--fill-sweep", "--disk", "disk.yaml", "--data-size", "1GiB", "--phase", "1s"];
    let ended = world.run(&simulated).done();
    ended.assert_says(&["disk.yaml: slows from 60 % full on, to", "half discarded", "of the first, %"]);
    let report = world.run(&[&simulated[..], &["--format", "json"]].concat()).done().json();
    assert_eq!(report["levels"].as_array().map(Vec::len), Some(10), "{report}");

    // A few MiB say nothing of a disk, and the files are removed.
    let real = ["tune", "--fill-sweep", ".", "--data-size", "8MiB", "--phase", "10ms", "--shards", "1"];
    let ended = world.run(&[&real[..], &["--format", "json"]].concat());
    if ended.code == Some(1) {
        let report = ended.json();
        assert!(report["verdict"].as_str().is_some_and(|verdict| verdict.starts_with("unclear: ")), "{report}");
        assert!(report["room_bytes"].as_u64().is_some_and(|bytes| bytes == 8 << 20), "{report}");
    } else {
        assert_eq!(ended.code, Some(0), "{ended:#?}");
    }
    assert_eq!(names(&world), ["disk.yaml"]);
    world.run(&["tune", "--fill-sweep", ".", "--format", "yaml"]).assert_refused(2, &["--format table, json or csv"]);
    world.run(&["tune", "--fill-sweep", ".", "--quick"]).assert_refused(2, &["--fill-sweep"]);
}

#[test]
fn only_what_a_busy_machine_explains_is_skipped() {
    let ended = |code: i32, out: &str| Ended { code: Some(code), out: out.to_owned(), err: String::new() };
    let report = |samples: &str, complete: bool, reason: &str| {
        let figure = format!(r#"{{"samples": [{samples}], "settled_at": 1, "complete": {complete}}}"#);
        let message = format!("write_iops is doubtful: {reason}; measure again");
        let warning = format!(r#"{{"code": "doubtful", "message": "{message}"}}"#);
        format!(r#"{{"interrupted": false, "write_iops": {figure}, "warnings": [{warning}]}}"#)
    };
    let (vague, exceeded) = ("it is known to ± 31 % only", "the curves of this measurement reach 2 IOPS");
    let unreached = "what was measured later reaches at most 60 IOPS, and the figure is 100 IOPS";
    for (code, out, is_skipped) in [
        (1, report("9, 100, 130, 90", true, vague), true),
        (1, report("9, 100, 101, 100", true, vague), false),
        (1, report("9, 100, 105", true, vague), true),
        (1, report("9, 100, 101, 100", true, exceeded), true),
        (1, report("9, 100, 101, 100", true, unreached), true),
        (1, report("9, 100, 101, 100", true, "40 % of what the disk moved was not ours"), false),
        (0, report("9, 100, 101, 100", false, ""), true),
        (2, report("9, 100, 130, 90", false, vague), false),
        (1, "doubtful: write_iops: it is known to ± 31 % only\n".to_owned(), true),
        (1, "no figure of the disk is doubtful\n".to_owned(), false),
        (1, "disks:\n  - mountpoint: /\n    doubtful: [write_iops]  # measure again\n".to_owned(), true),
    ] {
        assert_eq!(ended(code, &out).is_of_a_busy_machine(), is_skipped, "{code} {out}");
    }
}
