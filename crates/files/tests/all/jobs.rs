//! Job files: what is read, what is refused and where, and what depends on the number of shards.

use plimsoll_files::job_reader::parse;
use plimsoll_files::jobs::{Access, Job, JobClass, JobFile, JobKind, PauseDistribution, ShardSet, SizeShare};
use plimsoll_files::scenario::ScenarioFile;
use plimsoll_files::sched_groups::{self, SchedGroups};
use plimsoll_files::{Code, ConfigError};

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
    assert_eq!((job.parallelism, job.requests_per_s_per_fiber, job.batch), (3, Some(20.0), 5));
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

    refused(&job("type: randreads\nshards: all", "parallelism: 1"), Code::InvalidValue, 2, "`randread`");
    refused(&job("type: trim\nshards: all", "parallelism: 1"), Code::InvalidValue, 2, "write one of `seqread`");
}

/// The job of a text that has one, and the codes and keys of what was noticed.
fn one(text: &str) -> (Job, Vec<(Code, String)>) {
    let file = parse_alone(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let warnings = file.warnings.iter().map(|w| (w.code(), w.key().unwrap_or_default().to_owned())).collect();
    (file.jobs.into_iter().next().expect("a job"), warnings)
}

/// A job of type `kind` with more keys beside it and in `shard_info`.
fn typed(kind: &str, head: &str, info: &str) -> String {
    job(&format!("type: {kind}\nshards: all{head}"), &format!("parallelism: 1{info}"))
}

#[test]
fn kinds_with_keys_of_their_own() {
    let cases = [
        ("cpu", "", "", JobKind::Cpu { execution_ns: 1_000_000 }, false),
        ("cpu", "", ", execution_time: 90us, think_time: 10us", JobKind::Cpu { execution_ns: 90_000 }, false),
        ("unlink", "\ndata_size: 2GB\nfiles_count: 5000", "", JobKind::Unlink { files: 5000 }, false),
        ("randrw", "", "", JobKind::RandMixed { read_pct: 50 }, true),
        ("randrw", "\nrwmixread: 70", "", JobKind::RandMixed { read_pct: 70 }, true),
        ("randrw", "\nrwmixread: 100", "", JobKind::RandMixed { read_pct: 100 }, false),
        ("seqrw", "\nrwmixread: 0", "", JobKind::SeqMixed { read_pct: 0 }, true),
        ("flush", "", "", JobKind::Flush, false),
        ("discard", "", ", reqsize: 1MB", JobKind::Discard { is_random: false }, true),
    ];
    for (kind, head, info, expected, is_write) in cases {
        let (job, warnings) = one(&typed(kind, head, info));
        assert_eq!((job.kind, job.kind.is_write(), job.kind.as_str()), (expected, is_write, kind));
        assert!(warnings.is_empty(), "{kind}: {warnings:?}");
    }
    refused(&typed("unlink", "", ""), Code::MissingKey, 1, "files_count: 5000");
    refused(&typed("unlink", "\nfiles_count: 0", ""), Code::OutOfRange, 4, "1 to 1,000,000");
    refused(&typed("randrw", "\nrwmixread: 101", ""), Code::OutOfRange, 4, "0 to 100");
    refused(&typed("randread", "\nrwmixread: 50", ""), Code::Ignored, 4, "`randrw`");
    refused(&typed("cpu", "", ", execution_time: 0"), Code::OutOfRange, 4, "");
}

#[test]
fn io_testers_options() {
    // Option, kind, whether space is reserved, key that is warned of.
    let cases = [
        ("fallocate: true", "append", true, None),
        ("fallocate: false", "overwrite", false, None),
        ("fallocate: true", "overwrite", false, Some("fallocate")),
        ("sloppy_size: false", "append", false, None),
        ("sloppy_size: true", "append", false, Some("sloppy_size")),
        ("sloppy_size_hint: 1MB", "append", false, Some("sloppy_size_hint")),
        ("sleep_type: busyloop", "randread", false, None),
    ];
    for (option, kind, fallocate, warned) in cases {
        let (job, warnings) = one(&typed(kind, &format!("\noptions: {{{option}}}"), ""));
        assert_eq!(job.fallocate, fallocate, "{option}");
        let expected: Vec<_> = warned.iter().map(|key| (Code::Ignored, format!("[0].options.{key}"))).collect();
        assert_eq!(warnings, expected, "{option}");
    }
}

#[test]
fn busy_loops_are_noted_once_where_they_matter() {
    let line = |name: &str, info: &str| {
        format!(
            "- {{name: {name}, type: randread, shards: all, shard_info: {{parallelism: 1{info}}}, options: \
             {{sleep_type: busyloop}}}}\n"
        )
    };
    let text = [line("a", ""), line("b", ", rps: 5"), line("c", ", think_time: 5us"), line("d", ", rate: 7")].concat();
    let file = parse_alone(&text).unwrap();
    assert_eq!(file.warnings.iter().map(|w| (w.code(), w.line())).collect::<Vec<_>>(), [(Code::Ignored, Some(2))]);
}

#[test]
fn bandwidth_bounds_the_class() {
    for (info, expected) in [(", bandwidth: 5MB", Some(5 << 20)), (", bandwidth: 0", None), ("", None)] {
        assert_eq!(one(&typed("randread", "", info)).0.bandwidth_limit_bytes_per_s, expected);
    }
    parse_alone(&three_jobs([", bandwidth: 5MB", ", class: a", ", class: a, bandwidth: 5MB"])).unwrap();
    let text = three_jobs([", bandwidth: 5MB", ", class: a", ", class: a, bandwidth: 6MB"]);
    let error = refused(&text, Code::InvalidValue, 3, "the same in all");
    assert_eq!(error.key(), Some("[2].shard_info.bandwidth"));
}

#[test]
fn a_slip_of_io_testers_own_file_runs_as_it_does_there() {
    // A file that came with io_tester has this key in a cpu job: without `parallelism` nothing runs.
    let (hog, warnings) =
        one("- name: hog\n  type: cpu\n  shards: all\n  shard_info: {parallelim: 1, execution_time: 90us}\n");
    assert_eq!((hog.parallelism, hog.kind), (0, JobKind::Cpu { execution_ns: 90_000 }));
    assert_eq!(warnings, [(Code::UnknownKey, "[0].shard_info.parallelim".to_owned())]);
    let file = parse_alone("[{name: hog, type: cpu, shards: all, shard_info: {parallelim: 1}}]").unwrap();
    let text = file.warnings[0].to_string();
    assert!(text.contains("did you mean `parallelism`?") && text.contains("does nothing"), "{text}");
    // Only this slip, only there, and not beside the right key.
    for (kind, info, code) in [
        ("cpu", "paralelism: 1", Code::UnknownKey),
        ("cpu", "parallelim: 1, parallelism: 1", Code::UnknownKey),
        ("cpu", "parallelim: 1, shaers: 1", Code::UnknownKey),
        ("cpu", "execution_time: 1us", Code::MissingKey),
        ("overwrite", "parallelim: 1", Code::UnknownKey),
    ] {
        refused(&job(&format!("type: {kind}\nshards: all"), info), code, 4, "");
    }
}

#[test]
fn io_testers_keys_that_do_nothing_are_warned_of() {
    let cases = [
        ("randread", "\nfiles_count: 5", "", "[0].files_count"),
        ("randread", "", ", execution_time: 5us", "[0].shard_info.execution_time"),
        ("cpu", "\ndata_size: 1GB", "", "[0].data_size"),
        ("cpu", "", ", reqsize: 64kB", "[0].shard_info.reqsize"),
        ("flush", "", ", vectorized: true", "[0].shard_info.vectorized"),
        ("unlink", "\nfiles_count: 5", ", reqsize: 64kB", "[0].shard_info.reqsize"),
    ];
    for (kind, head, info, key) in cases {
        let (job, warnings) = one(&typed(kind, head, info));
        assert_eq!(warnings, [(Code::Ignored, key.to_owned())], "{kind} {head} {info}");
        assert_eq!((job.request_bytes, job.iov_count), (4096, None));
    }
}

#[test]
fn lengths_of_requests() {
    let shares = |list: &[(u32, f64)]| -> Vec<SizeShare> {
        list.iter().map(|(bytes, percent)| SizeShare { bytes: *bytes, percent: *percent }).collect()
    };
    let good = [
        ("4k/60:64k/40", shares(&[(4096, 60.0), (65_536, 40.0)])),
        ("\"4k/60:64k/40\"", shares(&[(4096, 60.0), (65_536, 40.0)])),
        ("[[4k, 60], [64kB, 40]]", shares(&[(4096, 60.0), (65_536, 40.0)])),
        ("[4k/60, 64k/40]", shares(&[(4096, 60.0), (65_536, 40.0)])),
        ("512/33.33:1k/33.33:2k/33.34", shares(&[(512, 33.33), (1024, 33.33), (2048, 33.34)])),
        ("1GB/100", shares(&[(1 << 30, 100.0)])),
    ];
    for (text, expected) in good {
        let (job, warnings) = one(&typed("randrw", "", &format!(", bssplit: {text}")));
        let longest = expected.iter().map(|size| size.bytes).max().expect("a length");
        assert_eq!((&job.sizes, job.request_bytes, warnings.len()), (&expected, longest, 0), "{text}");
    }
    let bad = [
        ("4k", Code::InvalidValue),
        ("4k/60", Code::OutOfRange),
        ("4k/60:64k/41", Code::OutOfRange),
        ("4k/100:64k/0", Code::OutOfRange),
        ("4k/60:64k/", Code::InvalidValue),
        ("4k/x", Code::InvalidValue),
        ("4k/1e2", Code::InvalidValue),
        ("1000/100", Code::OutOfRange),
        ("0/100", Code::OutOfRange),
        ("2GB/100", Code::OutOfRange),
        ("4q/100", Code::InvalidValue),
        ("[]", Code::OutOfRange),
        ("[[4k, 60, 1]]", Code::WrongType),
        ("[{4k: 60}]", Code::WrongType),
        ("4k/60:64k/40, reqsize: 4k", Code::Ignored),
        ("4k/60:64k/40, vectorized: true", Code::Ignored),
    ];
    for (text, code) in bad {
        refused(&typed("randrw", "", &format!(", bssplit: {text}")), code, 4, "");
    }
    let many = vec!["512/1"; 100].join(":");
    refused(&typed("randrw", "", &format!(", bssplit: {many}")), Code::OutOfRange, 4, "1 to 64");
    refused(&typed("flush", "", ", bssplit: 4k/100"), Code::Ignored, 4, "jobs that read or write");
    let large = parse_alone(&typed("randread", "\ndata_size: 4MB", ", bssplit: 4k/90:8MB/10")).unwrap();
    assert_eq!(large.validate(1).unwrap_err().key(), None);
}

#[test]
fn positions_of_random_requests() {
    let good = [
        ("uniform", Access::Uniform),
        ("zipf:1.1", Access::Zipf { theta: 1.1 }),
        ("zipf:1", Access::Zipf { theta: 1.0 }),
        ("pareto:0.2", Access::Pareto { h: 0.2 }),
        ("normal:10", Access::Normal { deviation_pct: 10.0 }),
        ("hot:10/90", Access::HotSet { data_pct: 10.0, access_pct: 90.0 }),
        ("zoned:60/10:30/20:8/30:2/40", Access::Zoned(vec![(60.0, 10.0), (30.0, 20.0), (8.0, 30.0), (2.0, 40.0)])),
    ];
    for (text, expected) in good {
        assert_eq!(one(&typed("randwrite", "", &format!(", access: {text}"))).0.access, expected);
    }
    let bad = [
        ("zip:1.1", Code::InvalidValue, "zipf:1.1"),
        ("zipf", Code::InvalidValue, "zipf:1.1"),
        ("zipf:", Code::InvalidValue, "exponent"),
        ("zipf:0", Code::OutOfRange, "above 0"),
        ("zipf:11", Code::OutOfRange, "up to 10"),
        ("zipf:-1", Code::InvalidValue, "above 0"),
        ("zipf:inf", Code::InvalidValue, "above 0"),
        ("pareto:1", Code::OutOfRange, "below 1"),
        ("normal:101", Code::OutOfRange, "up to 100"),
        ("hot:10", Code::InvalidValue, "hot:10/90"),
        ("hot:100/90", Code::OutOfRange, "hot:10/90"),
        ("hot", Code::InvalidValue, "hot:10/90"),
        ("uniform:1", Code::InvalidValue, "write uniform"),
        ("zoned:60/10:30/90", Code::OutOfRange, "making 100"),
        ("zoned:60/10:40/80", Code::OutOfRange, "making 100"),
        ("zoned:60/10:40/0", Code::OutOfRange, "making 100"),
        ("zoned:", Code::InvalidValue, "zoned:60/10"),
    ];
    for (text, code, help) in bad {
        refused(&typed("randread", "", &format!(", access: \"{text}\"")), code, 4, help);
    }
    refused(&typed("seqread", "", ", access: zipf:1.1"), Code::Ignored, 4, "`randread`");
}

#[test]
fn rates_limits_and_starts() {
    let info = ", rate: 0.5, batch: 4, limit_bytes: 1GB, ramp_up: 5s, start_delay: 200ms";
    let (job, warnings) = one(&typed("randread", "\nstage: 0", info));
    assert_eq!((job.requests_per_s_per_shard, job.requests_per_s_per_fiber, job.batch), (Some(0.5), None, 4));
    assert_eq!((job.limit_bytes, job.ramp_up_ns, job.start_delay_ns), (Some(1 << 30), 5_000_000_000, 200_000_000));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(one(&typed("overwrite", "", ", io_size: 1MB")).0.limit_bytes, Some(1 << 20));

    let cases = [
        ("randread", ", rate: 0", Code::OutOfRange),
        ("randread", ", rate: -1", Code::OutOfRange),
        ("randread", ", rate: 2e9", Code::OutOfRange),
        ("randread", ", rate: fast", Code::InvalidValue),
        ("randread", ", rate: 5, rps: 5", Code::Ignored),
        ("cpu", ", rate: 5", Code::Ignored),
        ("randread", ", io_size: 1MB, limit_bytes: 1MB", Code::Ignored),
        ("randread", ", limit_bytes: 0", Code::OutOfRange),
        ("flush", ", limit_bytes: 5", Code::Ignored),
        ("randread", ", ramp_up: 5", Code::InvalidValue),
        ("randread", ", start_delay: 90000s", Code::OutOfRange),
    ];
    for (kind, info, code) in cases {
        refused(&typed(kind, "", info), code, 4, "");
    }
    let (job, warnings) = one(&typed("randread", "", ", rate: 5, think_time: 5us"));
    assert_eq!((job.think_time_ns, warnings.len()), (0, 1));
}

#[test]
fn content_flushes_and_verification() {
    let options = |kind: &str, options: &str| typed(kind, &format!("\noptions: {{{options}}}"), "");
    let (job, _) = one(&options("randwrite", "verify: true, compressible: 50, fsync: 8"));
    assert_eq!((job.verify, job.content.compressible_pct), (true, 50));
    assert_eq!((job.flush_every, job.flush_data_only), (8, false));
    let (job, _) = one(&options("append", "fdatasync: 32, fsync: 0"));
    assert_eq!((job.flush_every, job.flush_data_only), (32, true));
    let bad = [
        ("randwrite", "fsync: 1, fdatasync: 1", Code::Ignored),
        ("randread", "fsync: 1", Code::Ignored),
        ("randwrite", "fsync: often", Code::InvalidValue),
        ("randwrite", "compressible: 101", Code::OutOfRange),
        ("randwrite", "compressible: 50%", Code::InvalidValue),
        ("cpu", "compressible: 50", Code::Ignored),
        ("discard", "verify: true", Code::Ignored),
        ("randwrite", "verify: maybe", Code::InvalidValue),
        ("randread", "verify: true", Code::Ignored),
    ];
    for (kind, text, code) in bad {
        refused(&options(kind, text), code, 4, "");
    }
}

#[test]
fn stages_follow_one_another() {
    let staged = |stages: [&str; 3]| {
        let line = |(name, stage)| {
            format!("- {{name: {name}, type: randread, shards: all{stage}, shard_info: {{parallelism: 1}}}}\n")
        };
        ["a", "b", "c"].into_iter().zip(stages).map(line).collect::<String>()
    };
    let file = parse_alone(&staged([", stage: 2", "", ", stage: 1"])).unwrap();
    assert_eq!(file.jobs.iter().map(|job| job.stage).collect::<Vec<_>>(), [2, 0, 1]);
    let error = refused(&staged([", stage: 2", "", ", stage: 0"]), Code::OutOfRange, 1, "without gaps");
    assert_eq!(error.key(), Some("[0].stage"));
    refused(&staged([", stage: 1", ", stage: 1", ", stage: 1"]), Code::OutOfRange, 1, "from 0");
    refused(&staged(["", ", stage: -1", ""]), Code::InvalidValue, 2, "");
}

#[test]
fn keys_in_the_wrong_map() {
    let cases = [
        (job(&format!("{HEAD}\nstart_delay: 5s"), "parallelism: 1"), "`shard_info`"),
        (job(&format!("{HEAD}\nverify: true"), "parallelism: 1"), "`options`"),
        (job(HEAD, "parallelism: 1, rwmixread: 5"), "beside `type`"),
        (job(HEAD, "parallelism: 1, dsync: true"), "`options`"),
        (job(&format!("{HEAD}\noptions: {{reqsize: 4kB}}"), "parallelism: 1"), "`shard_info`"),
    ];
    for (text, help) in cases {
        refused(&text, Code::UnknownKey, 4, help);
    }
}

#[test]
fn unknown_keys_get_a_suggestion() {
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
    for name in ["shard", "statistics"] {
        let text = format!("- name: {name}\n  type: randread\n  shards: all\n  shard_info: {{parallelism: 1}}\n");
        let error = refused(&text, Code::InvalidValue, 1, "results as YAML");
        assert_eq!(error.key(), Some("[0].name"));
    }
}

#[test]
fn what_a_scenario_refuses_is_not_advised() {
    // Keys of a job, and what the advice says and does not say.
    let cases = [
        ("shard_info: {parallelism: 1, xyzzyxyzzy: 1}", "`iov_count`", "`bssplit`"),
        ("shard_info: {parallelism: 1}, options: {xyzzyxyzzy: 1}", "`dsync`", "`verify`"),
        ("shard_info: {parallelism: 1}, batch: 5", "it belongs into `shard_info`", "did you mean"),
        ("shard_info: {parallelism: 1}, bssplit: 4k/100", "the keys of a job are", "it belongs"),
    ];
    for (keys, advised, other) in cases {
        let text = format!(
            "duration: 1s\ndisks: [{{disk: i4i.2xlarge}}]\njobs:\n- {{name: a, type: randread, shards: all, {keys}}}\n"
        );
        let file = ScenarioFile::parse("s.yaml", &text, ".".as_ref()).unwrap();
        let error = file.scenario(&[]).expect_err(keys);
        assert_eq!((error.code(), error.line()), (Code::UnknownKey, Some(4)), "{error}");
        let help = error.help().unwrap_or_default();
        assert!(help.contains(advised) && !help.contains(other), "{keys}: {help}");
    }
}
