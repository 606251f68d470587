//! Every command that judges begins with its answer: at most three lines, then an empty one.

use std::path::Path;

use crate::world::{READS, World};

const SIMULATED: &str = "\
duration: 30ms
disks:
  - device:
      rates: {read_iops: 2400000, read_bytes_per_s: 13600000000}
      latency: {read_ns: 80000, per_kib_ns: 390}
    figures: {read_iops: 16777216, read_bandwidth: 8589934592, write_iops: 16777216, write_bandwidth: 8589934592}
    model: seastar
jobs:
  - {name: eight, type: seqread, shards: all, data_size: 1GB, shard_info: {parallelism: 8, reqsize: 1MB}}
";

const PROPERTIES: &str = "\
disks:
  - {mountpoint: /, read_iops: 100000, read_bandwidth: 7340000000000, write_iops: 50000, write_bandwidth: 900000000}
";

const RUN: [&str; 7] = ["test", "jobs.yaml", "--backend", "null", "--warmup", "0", "--duration"];

#[test]
fn commands_that_judge_begin_with_their_answer() {
    let world = World::new(&[("jobs.yaml", READS), ("slow.yaml", SIMULATED), ("io.yaml", PROPERTIES)]);
    let example = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(name);
        path.to_str().expect("a name in UTF-8").to_owned()
    };
    let (one, two) = (example("iostat-one-writer.txt"), example("iostat-two-writers.txt"));
    assert_eq!(world.run(&["sim", "run", "slow.yaml", "--trace", "slow.plt"]).code, Some(0));
    for name in ["a.json", "b.json"] {
        let ended = world.run(&[&RUN[..], &["50ms", "--format", "json"]].concat());
        std::fs::write(world.path().join(name), ended.out).expect("a file can be written");
    }

    let test = |more: &[&'static str]| [&RUN[..], more].concat();
    // The command, and how its answer begins; an empty begin depends on how fast the machine is.
    let cases: [(Vec<&str>, &str); 12] = [
        (vec!["stat", "--from", &one], "nvme0n1 is busy-but-free in 1 of 1 interval(s)"),
        (vec!["stat", "--compare", &one, &two], "Likely: above-the-disk."),
        (vec!["trace", "gaps", "slow.plt"], "Limiter: "),
        (vec!["trace", "little", "slow.plt"], "Verdict: "),
        (vec!["trace", "stages", "slow.plt"], "eight: "),
        (vec!["info", "io.yaml", "--check"], "io.yaml: "),
        (vec!["instance", "claims"], "8 wrong of 29 claims"),
        (vec!["compare", "a.json", "b.json"], "A and B: "),
        (vec!["tune", "--backend", "null", "--quick", "--phase", "30ms", "--figures-only", "."], ""),
        (test(&["20ms", "--sweep", "parallelism=1,2,4"]), "Verdict: "),
        (test(&["20ms", "--dual"]), ""),
        (test(&["200ms", "--find-rate", "reads.p99=1ms"]), ""),
    ];
    for (arguments, begin) in cases {
        let ended = world.run(&arguments);
        assert!(matches!(ended.code, Some(0 | 1)), "{arguments:?}: {ended:#?}");
        let (answer, rest) = ended.out.split_once("\n\n").unwrap_or((&ended.out, ""));
        let lines: Vec<&str> = answer.lines().collect();
        assert!((1..=3).contains(&lines.len()), "{arguments:?}: {}", ended.out);
        assert!(lines.iter().all(|line| line.chars().count() <= 100 && !line.contains('\x1b')), "{lines:#?}");
        assert!(lines[0].starts_with(begin), "{arguments:?}: {lines:#?}");
        assert!(lines.iter().all(|line| !rest.contains(line)), "said twice by {arguments:?}: {}", ended.out);
        let warnings = ended.err.lines().filter(|line| line.starts_with("warning: ")).count();
        assert!(warnings <= 1, "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn verbose_shows_each_warning() {
    let world = World::new(&[]);
    let tune = ["tune", "--backend", "null", "--quick", "--phase", "30ms", "--figures-only", "."];
    let folded = world.run(&tune).err;
    let verbose = world.run(&[&tune[..], &["--verbose"]].concat()).err;
    let count = |text: &str| text.lines().filter(|line| line.starts_with("warning: ")).count();
    // The CPU is the limit of a backend that answers at once.
    assert!(count(&folded) == 1 && folded.contains("--verbose shows each"), "{folded}");
    assert!(count(&verbose) > 1 && !verbose.contains("--verbose"), "{verbose}");
}
