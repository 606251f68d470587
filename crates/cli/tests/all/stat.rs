//! `plimsoll stat`: this host, recordings, iostat's own outputs, and who reads them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::skip::skip;
use crate::world::{Ended, World};

/// Far longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

const UTIL_100: &str =
    include_str!("../../../observe/tests/stat_samples/stackoverflow_75362533_nvme_util100_aqu023.txt");
const SATURATED: &str =
    include_str!("../../../observe/tests/stat_samples/seastar_issue593_iotune_read_iops_phase_5ssd_lvm.txt");
const IOSTAT_JSON: &str = include_str!("../../../observe/tests/stat_samples/pkb_iostat_output.json");

/// A host that began 100 s ago: a disk, its partition, a disk that was never used.
fn host(world: &World) {
    std::fs::create_dir_all(world.path().join("proc/sys/kernel")).expect("the host can be made");
    let partition = world.path().join("sys/class/block/nvme0n1p1");
    std::fs::create_dir_all(&partition).expect("the host can be made");
    std::fs::write(partition.join("partition"), "1\n").expect("the host can be made");
    let write = |name: &str, text: &str| {
        std::fs::write(world.path().join("proc").join(name), text).expect("the host can be made")
    };
    write("uptime", "100.00 150.00\n");
    write("stat", "cpu  1000 0 500 8000 500 0 0 0 0 0\ncpu0 1000 0 500 8000 500 0 0 0 0 0\n");
    write("sys/kernel/hostname", "db-1\n");
    write("sys/kernel/osrelease", "6.1.0\n");
    write(
        "diskstats",
        "259 0 nvme0n1 100000 25 800000 12345 50000 10000 1200000 7000 3 40000 19345 10 0 80 5 7 9\n\
         259 1 nvme0n1p1 100000 25 800000 12345 50000 10000 1200000 7000 3 40000 19345 10 0 80 5 0 0\n\
         8 0 sda 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    );
}

const HOST: [&str; 5] = ["--proc-root", "proc", "--sys-root", "sys", "--no-programs"];

fn run_on_host(world: &World, arguments: &[&str]) -> Ended {
    world.run(&[&["stat"], arguments, &HOST].concat())
}

fn statistics(document: &Value) -> &Vec<Value> {
    document["sysstat"]["hosts"][0]["statistics"].as_array().expect("a list")
}

/// The reader of stdout has read enough, as `head` does: what the disks did is judged all the same.
#[test]
fn a_finding_is_one_whatever_the_reader_does() {
    let world = World::new(&[("full.txt", SATURATED)]);
    for line in ["--from full.txt", "--from full.txt --format json"] {
        let arguments: Vec<&str> = ["stat"].into_iter().chain(line.split(' ')).collect();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let closed = world.command(&arguments).stdout(writer).output().expect("the program runs");
        assert_eq!((closed.status.code(), world.run(&arguments).code), (Some(1), Some(1)), "{line}");
        assert_eq!(String::from_utf8_lossy(&closed.stderr).lines().find(|line| line.contains("pipe")), None);
    }
}

#[test]
fn the_means_since_boot_are_by_the_formulas_of_iostat() {
    let world = World::new(&[]);
    host(&world);
    let ended = run_on_host(&world, &["-x"]);
    assert_eq!(ended.err, "", "{ended:#?}");
    let expected = [
        "Linux 6.1.0 (db-1)",
        "          10.00    0.00    5.00    5.00    0.00   80.00",
        " 1000.00   4000.00     0.25   0.02    0.12     4.00 nvme0n1",
        "  500.00   6000.00   100.00  16.67    0.14    12.00 nvme0n1",
        "    0.10      0.40     0.00   0.00    0.50     4.00 nvme0n1",
        "    0.07    1.29    0.19  40.00 nvme0n1",
    ];
    for line in expected {
        assert!(ended.out.lines().any(|found| found.starts_with(line)), "no `{line}` in {}", ended.out);
    }
    assert!(!ended.out.contains("sda") && !ended.out.contains("nvme0n1p1"), "{}", ended.out);
    let cases: [(&[&str], &[&str], &[&str]); 4] = [
        (&["-p"], &["nvme0n1p1"], &["sda"]),
        (&["--device", "sda"], &["sda"], &["nvme0n1"]),
        (&["--device", "/dev/sda", "-z"], &["avg-cpu"], &["sda"]),
        (&["-d"], &["nvme0n1"], &["avg-cpu"]),
    ];
    for (arguments, there, not_there) in cases {
        let ended = run_on_host(&world, arguments);
        assert!(there.iter().all(|part| ended.out.contains(part)), "{arguments:?} {ended:#?}");
        assert!(!not_there.iter().any(|part| ended.out.contains(part)), "{arguments:?} {ended:#?}");
        ended.assert_fits();
    }
}

#[test]
fn whoever_reads_the_json_of_iostat_reads_this() {
    let world = World::new(&[("iostat.json", IOSTAT_JSON)]);
    host(&world);
    let ours = run_on_host(&world, &["0.05", "3", "--format", "json"]);
    let ours = ours.json();
    let theirs: Value = serde_json::from_str(IOSTAT_JSON).expect("JSON");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let host_of = |document: &Value| document["sysstat"]["hosts"][0].clone();
    assert_eq!(keys(&host_of(&ours)), keys(&host_of(&theirs)));
    assert_eq!(statistics(&ours).len(), 3);
    assert_eq!(keys(&statistics(&ours)[0]["avg-cpu"]), keys(&statistics(&theirs)[0]["avg-cpu"]));
    for element in statistics(&ours) {
        for key in keys(&statistics(&theirs)[0]) {
            // The clock of this host stands still: there are shares since its begin alone.
            let has_cpu = element["is_since_boot"] == true;
            assert_eq!(element.get(&key).is_some(), has_cpu || key != "avg-cpu", "{key} in {element}");
        }
        let disk = &element["disk"][0];
        for key in keys(&statistics(&theirs)[0]["disk"][0]) {
            assert!(key == "disk_device" || disk[&key].is_f64(), "{key} of {disk}");
        }
        for key in ["capacity_use", "capacity_basis", "saturation", "verdict", "why", "warnings", "in_flight"] {
            assert!(disk.get(key).is_some(), "no {key} in {disk}");
        }
    }
    // A consumer: means of every column over the reports, as benchmarks take them.
    let script = "import json, sys\n\
                  for stats in json.load(sys.stdin)['sysstat']['hosts'][0]['statistics']:\n\
                  \x20   for disk in stats['disk']:\n\
                  \x20       print(disk['disk_device'], float(disk['r/s']) + float(disk['util']))\n";
    let python = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = python else { return skip("there is no python3") };
    serde_json::to_writer(python.stdin.take().expect("it is piped"), &ours).expect("it reads");
    let ended = Ended::of(python.wait_with_output().expect("it ends"));
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 3), "{ended:#?}");
}

/// Two runs of the real one around ours: where they agree, so must we, for disks whose counters stood still
/// meanwhile. (A busy disk's mean since the host started goes up with a request and down with time, so that equal
/// figures before and after say nothing of those between.)
#[test]
fn columns_are_those_of_the_real_iostat_to_the_last_digit() {
    let real = |world: &World| -> Option<String> {
        let mut command = Command::new("iostat");
        command.args(["-x", "--pretty"]).env("LC_ALL", "C").current_dir(world.path());
        command.output().ok().map(|output| Ended::of(output).out)
    };
    let world = World::new(&[]);
    if !Path::new("/proc/diskstats").exists() || real(&world).is_none() {
        return skip("there is no iostat, or no /proc/diskstats");
    }
    let counters = || std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let rows = |text: &str| -> Vec<String> {
        let is_row = |line: &&str| line.starts_with(' ') && line.ends_with(|c: char| c.is_ascii_alphanumeric());
        let is_figures = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let of_device = |line: &&str| line.split_whitespace().last().is_some_and(|word| word.parse::<f64>().is_err());
        text.lines().filter(is_row).filter(is_figures).filter(of_device).map(str::to_owned).collect()
    };
    for _ in 0..20 {
        let (counted, before) = (counters(), rows(&real(&world).unwrap_or_default()));
        let ours = world.run(&["stat", "-x", "--no-programs"]);
        let (after, counted_after) = (rows(&real(&world).unwrap_or_default()), counters());
        let still = |row: &&String| {
            let device = row.split_whitespace().last();
            let line = counted.lines().find(|line| line.split_whitespace().nth(2) == device);
            line.is_some_and(|line| counted_after.lines().any(|later| later == line))
        };
        let quiet: Vec<&String> = before.iter().filter(|row| after.contains(row)).filter(still).collect();
        if quiet.is_empty() {
            continue;
        }
        for row in quiet {
            assert!(ours.out.lines().any(|line| line == row), "no `{row}` in {}", ours.out);
        }
        return;
    }
    skip("no device's counters stood still for the time of three reports");
}

#[test]
fn a_recording_is_judged_as_what_was_seen() {
    let world = World::new(&[]);
    host(&world);
    let arguments = ["0.05", "4", "-y", "--format", "json", "--record", "disks.stat"];
    let live = run_on_host(&world, &arguments);
    assert_eq!((live.code, live.err.contains("disks.stat: 5 readings recorded")), (Some(0), true), "{live:#?}");
    let saved = world.run(&["stat", "--from", "disks.stat", "--format", "json"]);
    let (live, saved) = (live.json(), saved.json());
    assert_eq!(statistics(&live).len(), 4);
    let without_unused = |element: &Value| {
        let disks = element["disk"].as_array().cloned().unwrap_or_default();
        disks.into_iter().filter(|disk| disk["disk_device"] == "nvme0n1").collect::<Vec<_>>()
    };
    for (live, saved) in statistics(&live).iter().zip(statistics(&saved)) {
        assert_eq!(without_unused(live), without_unused(saved));
        assert_eq!(live["end_unix_ms"], saved["end_unix_ms"]);
    }
    run_on_host(&world, &arguments).assert_refused(2, &["disks.stat", "--force"]);
    run_on_host(&world, &[&arguments[..], &["--force"]].concat()).done();
}

#[test]
fn verdicts_of_saved_texts_decide_the_exit_code() {
    let world = World::new(&[("free.txt", UTIL_100), ("full.txt", SATURATED), ("iostat.json", IOSTAT_JSON)]);
    let cases: [(&[&str], i32, &[&str]); 6] = [
        (&["--from", "free.txt"], 0, &["busy-but-free", "nvme1n1", "note: nvme1n1: %util"]),
        (&["--from", "full.txt"], 1, &["sde is saturated in 1 of 1", "sdb saturated:", "132.35", "100.00"]),
        (&["--from", "full.txt", "--device", "sda"], 0, &["idle"]),
        (&["--from", "iostat.json"], 0, &["sda is idle in 1 of 1 interval(s), the worst of 3 devices"]),
        (&["--from", "iostat.json", "free.txt", "-t"], 0, &["2024-03-15 00:53:14 UTC", "dm-0", "nvme1n1"]),
        (&["--from", "free.txt", "--disk", "i4i.2xlarge"], 0, &["busy-but-free", "%  "]),
    ];
    for (arguments, code, parts) in cases {
        let ended = world.run(&[&["stat"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        ended.assert_fits();
        ended.assert_says(parts);
    }
    let csv = world.run(&["stat", "--from", "full.txt", "--format", "csv"]);
    let columns = |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>();
    assert_eq!(csv.out.lines().count(), 10, "{csv:#?}");
    let header = csv.out.lines().next().map(columns);
    assert!(csv.out.lines().all(|line| Some(columns(line)) == header), "{csv:#?}");
}

#[test]
fn its_own_output_is_read() {
    let world = World::new(&[("full.txt", SATURATED), ("free.txt", UTIL_100), ("iostat.json", IOSTAT_JSON)]);
    let keep = |name: &str, arguments: &[&str]| {
        let text = world.run(&[&["stat", "--from", "full.txt", "iostat.json"], arguments].concat()).out;
        std::fs::write(world.path().join(name), text).unwrap();
    };
    keep("own.txt", &["-t", "--intervals"]);
    keep("own.json", &["--format", "json"]);
    // Of the columns that iostat has not printed the table shows `-`.
    for (name, arguments) in [("short.txt", &[][..]), ("wide.txt", &["-x"]), ("part.csv", &["--format", "csv"])] {
        let shown = world.run(&[&["stat", "--from", "free.txt"], arguments].concat()).out;
        assert!(!shown.ends_with("\n\n\n"), "of one interval there is no summary: {shown}");
        std::fs::write(world.path().join(name), shown).unwrap();
    }
    keep("own.csv", &["--format", "csv"]);
    let devices = |name: &str, more: &[&str]| {
        let read = world.run(&[&["stat", "--from", name, "--format", "json"], more].concat()).json();
        let of = |it: &Value| (it["disk_device"].clone(), it["r/s"].clone(), it["w/s"].clone(), it["aqu-sz"].clone());
        statistics(&read)
            .iter()
            .map(|it| it["disk"].as_array().unwrap().iter().map(of).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let shown = devices("own.json", &[]);
    assert!(!shown.is_empty());
    assert_eq!(devices("own.txt", &[]), shown);
    assert_eq!(devices("own.csv", &[]), shown);
    let of_part = devices("part.csv", &[]);
    assert!(of_part.iter().any(|interval| !interval.is_empty()));
    assert_eq!(["short.txt", "wide.txt"].map(|name| devices(name, &[])), [of_part.clone(), of_part]);
}

/// Returns whether any line of the answer comes again, or its clause on the times.
fn is_said_twice(text: &str) -> bool {
    let (answer, rest) = text.split_once("\n\n").expect("an empty line follows the answer");
    let times = answer.split_once("of the time: ").map(|(_, times)| times.trim_end().to_owned());
    answer.lines().chain(times.as_deref()).any(|said| rest.contains(said))
}

#[test]
fn a_long_recording_begins_with_its_answer_and_says_nothing_twice() {
    let group = "--group=cache=nvme1n1,nvme2n1,nvme3n1";
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/rotating-before.rec");
    let recording = recording.to_str().unwrap();
    let report = |at: u32| {
        format!(
            "Device r/s rkB/s r_await w/s wkB/s w_await aqu-sz %util\n\
             sdb {0}.00 {1}.00 60.00 0.00 0.00 0.00 {2}.00 100.00\n\n",
            2000 + at,
            4 * (2000 + at),
            (2000 + at) * 6 / 100
        )
    };
    let long: String = (0..21).map(report).collect();
    let world = World::new(&[("long.txt", &long)]);
    let cases: [(&[&str], &str, &str); 3] = [
        (&[recording], "3 like devices (nvme1n1, nvme2n1, nvme3n1): the hot device changed 11 times", "Means hide it"),
        (&[recording, group], "cache: imbalanced. nvme3n1 takes 99 %", "cache: effective 1.01 at least\n"),
        (&["long.txt", "-y"], "sdb is saturated in 21 of 21 interval(s)\nU ", "sdb: saturated 100 %"),
    ];
    for (arguments, answer, below) in cases {
        let ended = world.run(&[&["stat", "--from"], arguments].concat());
        assert!(ended.out.starts_with(answer) && !is_said_twice(&ended.out), "{ended:#?}");
        let (head, summary) = ended.out.split_once("Summary of ").unwrap();
        let lines = head.split_once("\n\n").unwrap().0.lines().count();
        assert!(lines <= 3 && summary.lines().count() <= 15 && summary.contains(below), "{ended:#?}");
        std::fs::write(world.path().join("own.txt"), &ended.out).unwrap();
        let own = world.run(&["stat", "--from", "own.txt"]);
        own.assert_refused(2, &["own.txt: looks like the summary", "--intervals or --format json"]);
    }
}

#[test]
fn the_summary_of_a_recorded_run_begins_with_its_answer() {
    let world = World::new(&[]);
    host(&world);
    let ended = run_on_host(&world, &["0.05", "4", "-y", "--record", "disks.stat"]);
    let (_, summary) = ended.out.rsplit_once("\n\nnvme0n1: ").unwrap();
    let (answer, rest) = summary.split_once("\n\n").unwrap();
    assert!(answer.lines().count() <= 3 && answer.contains("of the time: "), "{ended:#?}");
    assert!(rest.is_empty() || rest.starts_with("Summary of 4 intervals:\n"), "{ended:#?}");
}

/// iostat's first report is of the time since boot: the first line counts what the summary counts.
#[test]
fn a_report_since_boot_counts_in_no_line() {
    let report = |reads: u32| {
        format!(
            "Device r/s rkB/s r_await w/s wkB/s w_await aqu-sz %util\n\
             sdb {reads}.00 {}.00 60.00 0.00 0.00 0.00 {}.00 100.00\n\n",
            4 * reads,
            reads * 6 / 100
        )
    };
    let text =
        format!("Linux 6.1.0 (db-1) \t01/06/2026 \t_x86_64_\t(8 CPU)\n\n{}", [2000, 2001, 2002].map(report).concat());
    let world = World::new(&[("iostat.txt", &text)]);
    let ended = world.run(&["stat", "--from", "iostat.txt"]);
    assert!(ended.out.starts_with("sdb is saturated in 2 of 2 interval(s)\n"), "{ended:#?}");
    assert!(ended.out.contains("Summary of 2 intervals"), "{ended:#?}");
}

#[test]
fn two_intervals_are_compared() {
    let world = World::new(&[("free.txt", UTIL_100), ("both.json", IOSTAT_JSON)]);
    let ended = world.run(&["stat", "--compare", "both.json:1", "both.json:2", "--device", "sda", "--format", "json"]);
    let report = ended.json();
    assert_eq!(report["comparisons"][0]["device"], "sda", "{ended:#?}");
    assert_eq!(report["comparisons"][0]["a"]["intervals"], 1);
    let table = world.run(&["stat", "--compare", "both.json:1", "both.json:2"]);
    assert!(table.out.contains("A and B") && table.out.lines().all(|line| line.chars().count() <= 100), "{table:#?}");
    world.run(&["stat", "--compare", "both.json:7", "both.json:2"]).assert_refused(2, &["both.json:7", "1 to"]);
    let backwards = world.run(&["stat", "--compare", "both.json:2-1", "both.json:2"]);
    backwards.assert_refused(2, &["both.json:2-1: the range ends before it begins: write both.json:1-2"]);
    let graph = world.run(&["stat", "--compare", "both.json:1", "both.json:2", "--graph-rate", "3.85M"]);
    graph.assert_refused(2, &["'3.85M' for '--graph-rate <RATE>'", "a plain number above 0, such as 3850000"]);
    world.run(&["stat", "--compare", "both.json", "free.txt"]).assert_refused(2, &["no device in common", "nvme1n1"]);
}

#[test]
fn pages_and_pictures_are_written() {
    let world = World::new(&[("both.json", IOSTAT_JSON)]);
    let arguments = ["stat", "--from", "both.json", "--page", "disks.html", "--pictures", "."];
    world.run(&arguments).done();
    let page = std::fs::read_to_string(world.path().join("disks.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("dm-0") && page.contains("idle"), "{page}");
    assert!(world.path().join("throughput.svg").exists());
    world.run(&arguments).assert_refused(2, &["--force"]);
}

/// Waits until some intervals are in the recording.
fn wait_for_records(world: &World, child: &mut Child) {
    let give_up = Instant::now() + PATIENCE;
    let recorded = || std::fs::read_to_string(world.path().join("disks.stat")).unwrap_or_default();
    while recorded().lines().count() < 6 {
        if Instant::now() > give_up {
            child.kill().expect("it is our child");
            panic!("nothing is recorded");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_that_fails_keeps_its_page_and_pictures() {
    let world = World::new(&[]);
    host(&world);
    let arguments =
        ["stat", "0.02", "--record", "disks.stat", "--page", "disks.html", "--pictures", ".", "--format", "json"];
    let mut command = world.command(&[&arguments[..], &HOST].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    wait_for_records(&world, &mut child);
    std::fs::remove_file(world.path().join("proc/diskstats")).expect("it is ours");
    let ended = Ended::of(child.wait_with_output().expect("it ends"));
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(ended.err.contains("proc/diskstats"), "{ended:#?}");
    assert!(statistics(&ended.json()).len() >= 3, "{ended:#?}");
    let page = std::fs::read_to_string(world.path().join("disks.html")).unwrap_or_default();
    assert!(page.contains("nvme0n1"), "{page}");
    assert!(world.path().join("throughput.svg").exists(), "{ended:#?}");
}

#[test]
fn slips_are_told() {
    let world = World::new(&[("empty", ""), ("other.json", "{\"fio version\": \"fio-3.33\"}"), ("free.txt", UTIL_100)]);
    host(&world);
    // It takes no place on the disk.
    let large = std::fs::File::create(world.path().join("large")).expect("the file can be made");
    large.set_len(300 << 20).expect("the file can be made");
    let cases: [(&[&str], i32, &[&str]); 16] = [
        (&["0"], 2, &["INTERVAL"]),
        (&["1", "0"], 2, &["COUNT"]),
        (&["--from", "missing"], 2, &["missing: cannot read it"]),
        (&["--from", "free.txt", "large"], 2, &["large: it has 300 MiB", "256 MiB", "cut it", "record less often"]),
        (&["--compare", "free.txt", "large"], 2, &["large: it has 300 MiB"]),
        (&["--from", "empty"], 2, &["empty"]),
        (&["--from", "other.json"], 2, &["other.json"]),
        (&["--from", "free.txt", "--device", "sdz"], 2, &["no device sdz in"]),
        (&["1", "--from", "free.txt"], 2, &["--from"]),
        (&["--compare", "free.txt"], 2, &["--compare"]),
        (&["--group", "a=b"], 2, &["NAME=DEV,DEV"]),
        (&["--group", "g=nvme0n1,sdz"], 2, &["no device sdz", "nvme0n1"]),
        (&["--device", "sdz"], 2, &["no device sdz", "nvme0n1"]),
        (&["--disk", "no-such-preset"], 2, &["no-such-preset"]),
        (&["--top"], 2, &["--top needs a terminal"]),
        (&["--record", "missing/file", "1"], 2, &["missing"]),
    ];
    for (arguments, code, parts) in cases {
        run_on_host(&world, arguments).assert_refused(code, parts);
    }
    if Path::new("/dev/zero").exists() {
        let endless = world.run(&["stat", "--from", "/dev/zero"]);
        endless.assert_refused(2, &["/dev/zero: it has more than 256 MiB"]);
    }
    let nowhere = world.run(&["stat", "--proc-root", "nowhere"]);
    nowhere.assert_refused(3, &["nowhere/uptime"]);
}

#[test]
fn ctrl_c_ends_the_document() {
    for signal in [Signal::INT, Signal::TERM] {
        let world = World::new(&[]);
        host(&world);
        let arguments = [&["stat", "0.02", "--format", "json", "--record", "disks.stat"], &HOST[..]].concat();
        let mut command = world.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        wait_for_records(&world, &mut child);
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let ended = Ended::of(child.wait_with_output().expect("it ends"));
        assert_eq!(ended.code, Some(130), "{ended:#?}");
        assert!(statistics(&ended.json()).len() >= 3, "{ended:#?}");
        assert!(ended.err.contains("readings recorded"), "{ended:#?}");
    }
}

#[test]
fn the_view_ends_with_its_terminal() {
    let ours = match openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC) {
        Ok(ours) => ours,
        Err(error) => return skip(format_args!("no pseudo terminals here: {error}")),
    };
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    let theirs = theirs.expect("it is unlocked");
    let stream = || Stdio::from(theirs.try_clone().expect("there are descriptors left"));

    let world = World::new(&[]);
    host(&world);
    let command = world.command(&["stat", "--top", "1", "--proc-root", "proc", "--sys-root", "sys", "--no-programs"]);
    let mut view = { command }.stdin(stream()).stdout(stream()).stderr(stream()).spawn().expect("it starts");
    drop(theirs);
    // Something has been drawn.
    rustix::io::read(&ours, &mut [0; 16]).expect("the view writes");
    drop(ours);

    let begin = Instant::now();
    while view.try_wait().expect("it is ours").is_none() {
        if begin.elapsed() > PATIENCE {
            view.kill().expect("it is ours");
            panic!("it goes on without its terminal");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_recording_comes_by_stdin() {
    let world = World::new(&[("free.txt", UTIL_100)]);
    let stdin = std::fs::File::open(world.path().join("free.txt")).expect("it is there");
    let piped = world.command(&["stat", "--from", "-"]).stdin(stdin).output().expect("the binary starts");
    let piped = Ended::of(piped);
    let named = world.run(&["stat", "--from", "free.txt"]);
    let of_stdin = |text: &str| text.replace("/dev/stdin", "free.txt");
    assert_eq!((piped.code, of_stdin(&piped.out)), (named.code, named.out), "{}", piped.err);
}

#[test]
fn a_directory_is_one_story() {
    let world = World::new(&[]);
    for directory in ["bundle/logs", "empty/below"] {
        std::fs::create_dir_all(world.path().join(directory)).expect("a directory can be made");
    }
    let write = |name: &str, text: &str| std::fs::write(world.path().join(name), text).expect("a file can be written");
    write("bundle/logs/iostat.txt", UTIL_100);
    write("bundle/dmesg.txt", "nothing of disks\n");

    let csv = |path: &str| world.run(&["stat", "--from", path, "--format", "csv"]);
    let (whole, one) = (csv("bundle"), csv("bundle/logs/iostat.txt"));
    assert!(one.out.lines().count() > 1 && whole.out == one.out, "{whole:#?}, {one:#?}");
    assert!(whole.err.contains("bundle/dmesg.txt: no figures of disks, left out"), "{whole:#?}");
    csv("empty").assert_refused(2, &["empty: there is no file in it that can be read"]);

    // A file that is too long to be read.
    let long = std::fs::File::create(world.path().join("bundle/core")).and_then(|file| file.set_len(1 << 30));
    long.expect("it has no blocks");
    let beside = csv("bundle");
    assert_eq!(beside.out, one.out, "{beside:#?}");
    assert!(beside.err.contains("note: left out: bundle/core: it has 1"), "{beside:#?}");
    csv("bundle/core").assert_refused(2, &["a file may have"]);
    csv("bundle/dmesg.txt").assert_refused(2, &["looks like some other text"]);
}
