//! Text and JSON of iostat: its layouts, what stands around it, damage, and the real one.

use std::process::Command;

use super::*;
use crate::skip::skip;
use crate::stat::interval::COLUMNS;

#[test]
fn what_rbd_prints_behind_a_table_is_no_device() {
    let mut both = sample("seed002_nvme_single_run.txt");
    both.extend(sample("seed002_rbd_bench_outputs.txt"));
    let recorded = read("both", &both, &ReadOptions::default()).unwrap();
    assert_eq!((recorded.intervals.len(), recorded.intervals[0].devices.len()), (1, 1));
    assert_eq!(recorded.intervals, read_sample("seed002_nvme_single_run.txt", None).intervals);
}

#[test]
fn prompts_and_times_in_brackets_are_no_json() {
    for before in ["[ec2-user@ip-10-0-0-1 ~]$ iostat -xyk 1\n", "[10:11:12]\n"] {
        let recorded = text(&format!("{before}Device: r/s %util\nsda 1.00 2.00\n"));
        assert_eq!(recorded.intervals[0].devices[0].columns.known(), "r/s 1, util 2", "{before}");
        assert!(!recorded.intervals[0].is_since_boot, "{before}");
    }
}

#[test]
fn old_json_has_short_keys() {
    let old = r#"{"sysstat": {"hosts": [{"statistics": [{"disk": [{"disk_device": "sda", "rrqm": 1.0, "wrqm": 2.0,
        "r": 3.0, "w": 4.0, "rkB": 5.0, "wkB": 6.0, "avgrq-sz": 8.0, "await": 0.5, "svctm": 0.1, "util": 7}]}]}]}}"#;
    let expect = "r/s 3, w/s 4, rkB/s 5, wkB/s 6, rrqm/s 1, wrqm/s 2, util 7, await 0.5, areq-sz 4";
    assert_eq!(text(old).intervals[0].devices[0].columns.known(), expect);
}

#[test]
fn json_with_damage() {
    let whole = String::from_utf8(sample("pkb_iostat_output.json")).unwrap();
    let all = text(&whole);
    let second = whole.rfind("\"timestamp\"").unwrap();
    let mut lengths = Vec::new();
    for end in (0..whole.len()).step_by(7) {
        match read("cut", &whole.as_bytes()[..end], &ReadOptions::default()) {
            Ok(cut) => {
                assert_eq!(cut.intervals[..], all.intervals[..cut.intervals.len()], "cut at {end}");
                assert!(cut.notes[0].contains("last whole report"), "{:?}", cut.notes);
                lengths.push((end, cut.intervals.len()));
            }
            Err(error) => assert!(end < second, "cut at {end}: {error}"),
        }
    }
    assert!(lengths.is_sorted() && lengths.iter().any(|(_, count)| *count == 1), "{lengths:?}");

    let twice = text(&format!("{whole}\n{whole}"));
    assert_eq!((twice.intervals.len(), twice.notes.len()), (4, 0));
    let killed = text(&format!("{}{whole}", &whole[..second]));
    assert_eq!((killed.intervals.len(), killed.notes.len()), (3, 1), "{:?}", killed.notes);
    let list = text(&format!("[{whole},{whole}]"));
    assert_eq!(list.intervals, twice.intervals);

    let commas = "{\"sysstat\": {\"hosts\": [{\"statistics\": [{\"avg-cpu\": {\"user\": 0,72, \"nice\": 0,00, \
                  \"system\": 0,10, \"idle\": 99,18}, \"disk\": [{\"disk_device\": \"sda\", \"r/s\": 1,50, \
                  \"r_await\": -nan, \
                  \"w/s\": -1.0, \"util\": 3,00}]}]}]}}";
    let commas = text(commas);
    assert_eq!(commas.intervals[0].devices[0].columns.known(), "r/s 1.5, util 3");
    assert_eq!(commas.intervals[0].cpu.unwrap().idle, 99.18);
    assert!(commas.notes.iter().any(|note| note.contains("w/s of sda")), "{:?}", commas.notes);
}

/// Every layout of the real iostat, read back, has the figures of its JSON of the same counters.
#[test]
fn the_real_iostat_is_read_in_every_layout() {
    let root = tempfile::tempdir().unwrap();
    let line = "   8       0 sda 13823 25 55292 900 7497 54 210501 1061 3 784 1961 12 1 4096 9 33 12\n\
                \x20  8      16 sdb 9 0 72 2 123456789 0 987654321 55555 0 999 55557 0 0 0 0 0 0\n";
    std::fs::write(root.path().join("diskstats"), line).unwrap();
    for (name, device) in line.lines().map(|line| line.split_whitespace().nth(2).unwrap()).zip(line.lines()) {
        let directory = root.path().join("block").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let counters: Vec<&str> = device.split_whitespace().skip(3).collect();
        std::fs::write(directory.join("stat"), counters.join(" ") + "\n").unwrap();
    }

    let run = |options: &[&str]| {
        let mut command = Command::new("iostat");
        command
            .env("LC_ALL", "C")
            .env("S_TIME_FORMAT", "ISO")
            .args(options)
            .arg("-f")
            .arg(root.path())
            .args(["sda", "sdb"]);
        command.output().ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };

    let Some(json) = run(&["-x", "-o", "JSON"]) else {
        skip("no iostat with -f and -o JSON here");
        return;
    };
    let base = read("json", &json, &ReadOptions::default()).unwrap();
    if base.intervals[0].devices.len() != 2 {
        skip("this iostat reads no directory of counters");
        return;
    }

    let layouts: [(&[&str], usize); 12] = [
        (&["-x"], 20),
        (&["-xm"], 20),
        (&["-xt"], 20),
        (&["-x", "--pretty"], 20),
        (&["-x", "--human"], 20),
        (&["-xh"], 20),
        (&["-xd", "--dec=0"], 20),
        (&["-xs"], 6),
        (&["-xs", "--human", "--pretty"], 6),
        (&["-d"], 4),
        (&["-m"], 4),
        (&["-ht"], 4),
    ];

    for (options, columns) in layouts {
        let Some(bytes) = run(options) else { continue };
        let printed = String::from_utf8(bytes).unwrap();
        let recorded = text(&printed);
        assert_eq!(recorded.intervals.len(), 1, "{options:?}\n{printed}");
        assert!(recorded.intervals[0].is_since_boot, "{options:?}");
        for (device, base) in recorded.intervals[0].devices.iter().zip(&base.intervals[0].devices) {
            assert_eq!(device.device, base.device, "{options:?}");
            let all = COLUMNS.iter().zip(device.columns.all()).zip(base.columns.all());
            let known: Vec<_> = all.filter_map(|((column, value), base)| Some((column.key, value?, base))).collect();
            assert!(known.len() >= columns, "{options:?}: {}\n{printed}", device.columns.known());
            for (name, value, expect) in known {
                let Some(expect) = expect else { continue };
                // Human figures have one decimal of their unit; between two calls, the uptime since boot grows.
                let digit = if options[0].contains('m') { 6.0 } else { 0.6 };
                let close = (value - expect).abs() <= 0.06 * expect.abs() + digit;
                assert!(close, "{options:?} {name}: {value} for {expect}\n{printed}");
            }
        }
    }
}
