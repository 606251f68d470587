//! Job files: what is read, what is refused and where, and what depends on the number of shards.

use plimsoll_tools::config::jobs::{JobClass, JobFile, JobKind, PauseDistribution, ShardSet, parse};
use plimsoll_tools::config::sched_groups::{self, SchedGroups};
use plimsoll_tools::config::{Code, ConfigError};

fn parse_alone(text: &str) -> Result<JobFile, ConfigError> {
    parse("jobs.yaml", text, &SchedGroups::default())
}

/// One job: `head` replaces the keys beside `shard_info`, `info` is inside it.
fn job(head: &str, info: &str) -> String {
    format!("- name: j\n  {}\n  shard_info: {{{info}}}\n", head.replace('\n', "\n  "))
}

const HEAD: &str = "type: randread\nshards: all";

/// Checks that `text` is refused with `code` on `line`, with advice that contains `help`.
fn refused(text: &str, code: Code, line: usize, help: &str) -> ConfigError {
    let error = parse_alone(text).expect_err(text);
    assert_eq!((error.code(), error.line()), (code, Some(line)), "{text}\n{error}");
    assert!(error.help().is_some_and(|text| text.contains(help)), "expected help with {help}:\n{error}");
    error
}

#[test]
fn a_job_with_all_keys() {
    let text = "
- name: everything
  type: randwrite
  shards: [0, 2]
  data_size: 2GB
  shard_info:
    parallelism: 3
    rps: 20
    batch: 5
    limit: 100
    reqsize: 64kB
    shares: 300
    vectorized: true
    iov_count: 4
  options:
    dsync: true
    sleep_type: steady
    pause_distribution: poisson
    extent_allocation_size_hint: 128kB
- name: pauses
  type: append
  shards: all
  data_size: 0
  shard_info: {parallelism: 1, class: everything, think_time: 90us, think_after: 5ms}
";
    let file = parse_alone(text).unwrap();
    let ignored: Vec<_> = file.warnings.iter().map(|w| (w.code(), w.key().unwrap_or(""))).collect();
    assert_eq!(ignored, [(Code::Ignored, "[0].options.extent_allocation_size_hint")]);
    let job = &file.jobs[0];
    assert_eq!((job.name.as_str(), job.kind), ("everything", JobKind::RandWrite));
    assert_eq!(job.shards, ShardSet::List(vec![0, 2]));
    assert!(job.shards.contains(2) && !job.shards.contains(1));
    assert_eq!(job.data_size_bytes, Some(2 << 30));
    assert_eq!(job.class, JobClass::Own { shares: 300 });
    assert_eq!((job.parallelism, job.requests_per_s_per_fiber, job.batch), (3, Some(20), 5));
    assert_eq!((job.limit_requests, job.request_bytes, job.iov_count), (Some(100), 65_536, Some(4)));
    assert_eq!((job.dsync, job.pause_distribution), (true, PauseDistribution::Poisson));
    assert_eq!(job.extent_size_hint_bytes, Some(131_072));
    let job = &file.jobs[1];
    assert_eq!((job.kind, job.data_size_bytes), (JobKind::Append, Some(0)));
    assert_eq!(job.class, JobClass::Joined("everything".to_owned()));
    assert_eq!((job.think_time_ns, job.think_after_ns), (90_000, 5_000_000));
    file.validate(3).unwrap();
}

#[test]
fn defaults_are_those_of_io_tester() {
    let file = parse_alone(&job(HEAD, "parallelism: 1")).unwrap();
    let job = &file.jobs[0];
    assert_eq!(job.shards, ShardSet::All);
    assert_eq!(job.class, JobClass::Own { shares: 10 });
    assert_eq!((job.request_bytes, job.batch), (4096, 1));
    assert_eq!((job.requests_per_s_per_fiber, job.limit_requests, job.iov_count), (None, None, None));
    assert_eq!((job.think_time_ns, job.think_after_ns, job.dsync), (0, 0, false));
    assert_eq!(job.pause_distribution, PauseDistribution::Uniform);
    assert_eq!((job.data_size_bytes, job.bytes_per_shard(8)), (None, 1 << 30));
}

#[test]
fn data_is_divided_over_the_shards() {
    let cases =
        [("1GB", 1, 1 << 30), ("1GB", 7, 147 << 20), ("512", 4, 1 << 20), ("3MB", 3, 1 << 20), ("3MB", 0, 3 << 20)];
    for (size, shards, expected) in cases {
        let text = job(&format!("{HEAD}\ndata_size: {size}"), "parallelism: 1");
        assert_eq!(parse_alone(&text).unwrap().jobs[0].bytes_per_shard(shards), expected, "{size} over {shards}");
    }
    let largest = job(&format!("{HEAD}\ndata_size: {}", i64::MAX), "parallelism: 1");
    assert_eq!(parse_alone(&largest).unwrap().jobs[0].bytes_per_shard(1), 1 << 63);
    let append = parse_alone(&job("type: append\nshards: all", "parallelism: 1")).unwrap();
    assert_eq!(append.jobs[0].bytes_per_shard(4), 0);
}

#[test]
fn types_of_jobs() {
    let cases = [
        ("seqread", JobKind::SeqRead, false),
        ("overwrite", JobKind::Overwrite, true),
        ("randread", JobKind::RandRead, false),
        ("randwrite", JobKind::RandWrite, true),
        ("append", JobKind::Append, true),
    ];
    for (name, kind, is_write) in cases {
        let file = parse_alone(&job(&format!("type: {name}\nshards: all"), "parallelism: 1")).unwrap();
        assert_eq!(file.jobs[0].kind, kind);
        assert_eq!((kind.as_str(), kind.is_write()), (name, is_write));
        assert!(file.warnings.is_empty());
    }
    let file = parse_alone(&job("type: seqwrite\nshards: all", "parallelism: 1")).unwrap();
    assert_eq!(file.jobs[0].kind, JobKind::Overwrite);
    assert_eq!((file.warnings[0].code(), file.warnings[0].line()), (Code::Obsolete, Some(2)));

    for name in ["cpu", "unlink"] {
        let error =
            refused(&job(&format!("type: {name}\nshards: all"), "parallelism: 1"), Code::NotSupported, 2, "remove");
        assert!(error.message().contains("not supported yet"));
    }
    refused(&job("type: randreads\nshards: all", "parallelism: 1"), Code::InvalidValue, 2, "`randread`");
    refused(&job("type: fsync\nshards: all", "parallelism: 1"), Code::InvalidValue, 2, "write one of `seqread`");
}

#[test]
fn keys_that_are_not_supported_yet() {
    refused(&job(&format!("{HEAD}\nfiles_count: 5"), "parallelism: 1"), Code::NotSupported, 4, "unlink");
    refused(&job(HEAD, "parallelism: 1, bandwidth: 5MB"), Code::NotSupported, 4, "rps");
    refused(&job(HEAD, "parallelism: 1, execution_time: 5us"), Code::NotSupported, 4, "cpu");
    for option in ["sloppy_size_hint: 1MB", "fallocate: true", "sleep_type: busyloop"] {
        let text = job(&format!("{HEAD}\noptions: {{{option}}}"), "parallelism: 1");
        let error = refused(&text, Code::NotSupported, 4, "remove");
        assert!(error.key().is_some_and(|key| key.starts_with("[0].options.")));
    }
}

#[test]
fn unknown_keys_get_a_suggestion() {
    // This one is in a sample file that came with io_tester.
    let error = refused(&job(HEAD, "parallelim: 1"), Code::UnknownKey, 4, "did you mean `parallelism`?");
    assert_eq!(error.key(), Some("[0].shard_info.parallelim"));
    refused(&job(HEAD, "parallelism: 1, vectored: true"), Code::UnknownKey, 4, "`vectorized`");
    refused(&job(HEAD, "parallelism: 1, request_size: 4kB"), Code::UnknownKey, 4, "`reqsize`");
    refused(&job(&format!("{HEAD}\nshardinfo: 1"), "parallelism: 1"), Code::UnknownKey, 4, "`shard_info`");
    refused(&job(&format!("{HEAD}\noptions: {{o_dsync: 1}}"), "parallelism: 1"), Code::UnknownKey, 4, "`dsync`");
}

#[test]
fn missing_keys() {
    refused("- type: randread\n", Code::MissingKey, 1, "name");
    refused("- name: j\n  shards: all\n", Code::MissingKey, 1, "type:");
    refused("- name: j\n  type: randread\n", Code::MissingKey, 1, "all");
    refused("- name: j\n  type: randread\n  shards: all\n", Code::MissingKey, 1, "does nothing");
    refused(&job(HEAD, "reqsize: 512"), Code::MissingKey, 4, "does nothing");
    refused(&job(HEAD, "parallelism: 0"), Code::OutOfRange, 4, "1 to 65,536");
}

#[test]
fn files_without_jobs() {
    for text in ["", "# nothing", "[]"] {
        assert_eq!(parse_alone(text).unwrap_err().code(), Code::Empty, "{text}");
    }
    refused("name: j\n", Code::WrongType, 1, "- ");
    refused("- [j]\n", Code::WrongType, 1, "key: value");
}

#[test]
fn shards() {
    for (text, expected) in [("[0]", vec![0]), ("[3, 1]", vec![3, 1]), ("\n  - 5", vec![5])] {
        let text = job(&format!("type: randread\nshards: {text}"), "parallelism: 1");
        assert_eq!(parse_alone(&text).unwrap().jobs[0].shards, ShardSet::List(expected));
    }
    let cases = [
        ("0", Code::WrongType, "[0]"),
        ("every", Code::WrongType, "`all`"),
        ("[]", Code::Empty, "`all`"),
        ("[0, 0]", Code::DuplicateName, "once"),
        ("[65536]", Code::OutOfRange, "65,535"),
        ("[-1]", Code::InvalidValue, "whole number"),
        ("[1k]", Code::InvalidValue, "whole number"),
        ("{0: 1}", Code::WrongType, "- "),
    ];
    for (text, code, help) in cases {
        refused(&job(&format!("type: randread\nshards: {text}"), "parallelism: 1"), code, 3, help);
    }
}

#[test]
fn shards_that_a_run_does_not_have() {
    let file = parse_alone(&job("type: randread\nshards: [0, 2]", "parallelism: 1")).unwrap();
    file.validate(3).unwrap();
    for shard_count in [0, 1, 2] {
        let error = file.validate(shard_count).unwrap_err();
        assert_eq!((error.code(), error.line()), (Code::OutOfRange, Some(3)), "{error}");
        assert!(error.to_string().contains("shards: [0, 2]"), "{error}");
    }
    assert_eq!(file.validate(2).unwrap_err().column(), Some(15));
}

#[test]
fn requests_larger_than_the_data_of_a_shard() {
    let file = parse_alone(&job(&format!("{HEAD}\ndata_size: 4MB"), "parallelism: 1, reqsize: 2MB")).unwrap();
    file.validate(2).unwrap();
    let error = file.validate(4).unwrap_err();
    assert_eq!((error.code(), error.line()), (Code::OutOfRange, Some(5)), "{error}");
}

#[test]
fn figures_that_are_out_of_range() {
    let cases = [
        ("reqsize: 0", Code::OutOfRange),
        ("reqsize: 511", Code::OutOfRange),
        ("reqsize: 1000", Code::OutOfRange),
        ("reqsize: 2GB", Code::OutOfRange),
        ("reqsize: 512B", Code::InvalidValue),
        ("reqsize: 1.5kB", Code::InvalidValue),
        ("shares: 0", Code::OutOfRange),
        ("shares: 1000001", Code::OutOfRange),
        ("shares: many", Code::InvalidValue),
        ("batch: 0", Code::OutOfRange),
        ("limit: 0", Code::OutOfRange),
        ("limit: 4294967296", Code::OutOfRange),
        ("rps: -1", Code::InvalidValue),
        ("rps: 0.5", Code::InvalidValue),
        ("rps: 1_000", Code::InvalidValue),
        ("think_time: 5", Code::InvalidValue),
        ("think_time: 100000s", Code::OutOfRange),
        ("think_after: soon", Code::InvalidValue),
        ("vectorized: perhaps", Code::InvalidValue),
    ];
    for (info, code) in cases {
        refused(&job(HEAD, &format!("parallelism: 1, {info}")), code, 4, "");
    }
    refused(&job(&format!("{HEAD}\ndata_size: 0"), "parallelism: 1"), Code::OutOfRange, 4, "512");
    refused(&job(&format!("{HEAD}\ndata_size: 16EB"), "parallelism: 1"), Code::InvalidValue, 4, "GB");
}

#[test]
fn vectorized_requests() {
    let good = [
        ("reqsize: 64kB, vectorized: true, iov_count: 4", Some(4)),
        ("reqsize: 1kB, vectorized: true, iov_count: 2", Some(2)),
        ("vectorized: true", Some(1)),
        ("vectorized: false, iov_count: 1", None),
    ];
    for (info, expected) in good {
        let file = parse_alone(&job(HEAD, &format!("parallelism: 1, {info}"))).unwrap();
        assert_eq!((file.jobs[0].iov_count, file.warnings.len()), (expected, 0), "{info}");
    }
    let bad = [
        "reqsize: 64kB, vectorized: true, iov_count: 3",
        "reqsize: 64kB, vectorized: true, iov_count: 32",
        "reqsize: 512, vectorized: true, iov_count: 2",
        "reqsize: 512, vectorized: true, iov_count: 1024",
        "reqsize: 64kB, vectorized: true, iov_count: 0",
        "reqsize: 64kB, vectorized: true, iov_count: 1025",
    ];
    for info in bad {
        refused(&job(HEAD, &format!("parallelism: 1, {info}")), Code::OutOfRange, 4, "");
    }
}

#[test]
fn keys_without_effect_are_warned_of() {
    let cases = [
        ("rps: 5, think_time: 5us", "`think_time`"),
        ("rps: 5, think_after: 5us", "`think_after`"),
        ("batch: 5", "`batch`"),
        ("iov_count: 2", "`iov_count`"),
    ];
    for (info, message) in cases {
        let file = parse_alone(&job(HEAD, &format!("parallelism: 1, {info}"))).unwrap();
        assert_eq!(file.warnings.len(), 1, "{info}");
        assert_eq!((file.warnings[0].code(), file.warnings[0].line()), (Code::Ignored, Some(4)));
        assert!(file.warnings[0].message().starts_with(message), "{}", file.warnings[0]);
        let job = &file.jobs[0];
        assert_eq!((job.think_time_ns, job.think_after_ns, job.batch, job.iov_count), (0, 0, 1, None), "{info}");
    }
    for info in ["rps: 5, think_time: 0", "rps: 0, think_time: 5us", "rps: 5, batch: 5"] {
        assert!(parse_alone(&job(HEAD, &format!("parallelism: 1, {info}"))).unwrap().warnings.is_empty(), "{info}");
    }
}

#[test]
fn options_in_words() {
    for option in ["sleep_type: lowres", "sleep_type: steady", "pause_distribution: uniform"] {
        let file = parse_alone(&job(&format!("{HEAD}\noptions: {{{option}}}"), "parallelism: 1")).unwrap();
        assert_eq!(file.jobs[0].pause_distribution, PauseDistribution::Uniform);
    }
    let cases =
        [("sleep_type: stedy", "`steady`"), ("pause_distribution: poison", "`poisson`"), ("dsync: 3", "true or false")];
    for (option, help) in cases {
        refused(&job(&format!("{HEAD}\noptions: {{{option}}}"), "parallelism: 1"), Code::InvalidValue, 4, help);
    }
    refused(&job(&format!("{HEAD}\noptions: fast"), "parallelism: 1"), Code::WrongType, 4, "key: value");
}

/// Three jobs on lines 1 to 3; `classes` are the ends of their `shard_info`.
fn three_jobs(classes: [&str; 3]) -> String {
    let line = |(name, class)| {
        format!("- {{name: {name}, type: randread, shards: all, shard_info: {{parallelism: 1{class}}}}}\n")
    };
    ["a", "b", "c"].into_iter().zip(classes).map(line).collect()
}

fn maintenance_groups() -> SchedGroups {
    let text = "
- {name: statement, shares: 1000}
- {name: maintenance, shares: 100}
- {name: backup, shares: 50, parent: maintenance}
";
    sched_groups::parse("groups.yaml", text).expect("the groups are well-formed")
}

#[test]
fn classes_are_joined() {
    let groups = maintenance_groups();
    let text = three_jobs([", shares: 7", ", class: a", ", class: backup"]);
    let file = parse("jobs.yaml", &text, &groups).unwrap();
    let classes: Vec<_> = file.jobs.into_iter().map(|job| job.class).collect();
    let joined = |name: &str| JobClass::Joined(name.to_owned());
    assert_eq!(classes, [JobClass::Own { shares: 7 }, joined("a"), joined("backup")]);

    let cases = [
        (three_jobs(["", ", class: z", ""]), 2, "name a job without `class`"),
        (three_jobs(["", ", class: a", ", class: b"]), 3, "\"a\""),
        (three_jobs([", class: a", "", ""]), 1, "\"a\""),
        (three_jobs([", class: maintenance", "", ""]), 1, "inside it"),
    ];
    for (text, line, help) in cases {
        let error = parse("jobs.yaml", &text, &groups).unwrap_err();
        assert_eq!((error.code(), error.line()), (Code::UnknownReference, Some(line)), "{error}");
        assert!(error.help().is_some_and(|text| text.contains(help)), "{error}");
    }
}

#[test]
fn names_are_used_once() {
    let twice = three_jobs(["", "", ""]).replace("name: c", "name: a");
    refused(&twice, Code::DuplicateName, 3, "`class`");
    let taken = three_jobs(["", "", ""]).replace("name: b", "name: statement");
    let error = parse("jobs.yaml", &taken, &maintenance_groups()).unwrap_err();
    assert_eq!((error.code(), error.line()), (Code::DuplicateName, Some(2)), "{error}");
}

#[test]
fn class_wins_over_shares() {
    let file = parse_alone(&three_jobs(["", ", shares: 5, class: a", ""])).unwrap();
    assert_eq!(file.jobs[1].class, JobClass::Joined("a".to_owned()));
    assert_eq!((file.warnings[0].code(), file.warnings[0].line()), (Code::Ignored, Some(2)));
    assert_eq!(file.warnings[0].key(), Some("[1].shard_info.shares"));
}

#[test]
fn a_job_is_not_called_like_a_key_of_the_results() {
    let text = "- name: shard\n  type: randread\n  shards: all\n  shard_info: {parallelism: 1}\n";
    let error = parse_alone(text).unwrap_err();
    assert_eq!((error.code(), error.line(), error.key()), (Code::InvalidValue, Some(1), Some("[0].name")));
}
