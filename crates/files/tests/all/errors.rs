//! How errors look, and that no text whatever makes a reader panic, hang or overflow its stack.

use plimsoll_files::sched_groups::SchedGroups;
use plimsoll_files::{Code, ConfigError, io_properties, job_reader, sched_groups};
use proptest::prelude::*;

#[test]
fn an_error_shows_line_column_and_remedy() {
    let text = "disks:\n  - mountpoint: /mnt\n    read_iop: 1000\n    read_bandwidth: 5\n    write_iops: 5\n";
    let error = io_properties::parse("io.yaml", text).unwrap_err();
    let expected = "\
error[unknown-key]: a disk has no key \"read_iop\"
 --> io.yaml:3:5
  |
1 | disks:
2 |   - mountpoint: /mnt
3 |     read_iop: 1000
  |     ^^^^^^^^
4 |     read_bandwidth: 5
5 |     write_iops: 5
  |
  = help: did you mean `read_iops`?";
    assert_eq!(error.to_string(), expected);
    assert_eq!((error.source_name(), error.line(), error.column()), ("io.yaml", Some(3), Some(5)));
    assert_eq!(error.key(), Some("disks[0].read_iop"));
    assert!(!error.to_string().contains('\x1b'));
}

#[test]
fn columns_count_characters() {
    let text = "disks: [{mountpoint: /\u{e9}\u{e9}, read_iops: \u{fc}}]";
    let error = io_properties::parse("io.yaml", text).unwrap_err();
    assert_eq!((error.code(), error.column()), (Code::InvalidValue, Some(38)));
    let text = "disks: [{mountpoint: /\u{e9}\u{e9}, rate_factor: \u{fc}}]";
    let error = io_properties::parse("io.yaml", &format!("\u{feff}{text}")).unwrap_err();
    assert_eq!((error.code(), error.column()), (Code::InvalidValue, Some(40)), "{error}");
}

#[test]
fn hostile_text_does_not_reach_the_terminal() {
    let error = io_properties::parse("io.yaml", "disks: [{\"\\e[31mred\": 5}]").unwrap_err();
    assert!(!error.to_string().contains('\x1b'), "{error:?}");
    let long = format!("disks: [{{mountpoint: {}, read_iops: 5}}]", "x".repeat(100_000));
    let error = io_properties::parse("io.yaml", &long).unwrap_err();
    assert!(error.to_string().len() < 1000, "{error}");
}

/// What every reader makes of `text`.
fn read_all(text: &str) -> Vec<ConfigError> {
    let results = [
        io_properties::parse("t", text).err(),
        job_reader::parse("t", text, &SchedGroups::default()).and_then(|file| file.validate(2)).err(),
        sched_groups::parse("t", text).err(),
    ];
    results.into_iter().flatten().collect()
}

/// Errors can be printed, and point into the text.
fn check_errors(text: &str) {
    for error in read_all(text) {
        assert!(!error.to_string().is_empty());
        assert!(error.help().is_some(), "{error}");
        assert!(error.line().is_none_or(|line| line <= text.split('\n').count()), "{error}");
    }
}

#[test]
fn deep_and_huge_texts_are_refused() {
    let bomb = (1..9).fold("- &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, level| {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        format!("{text}- &a{level} [{aliases}]\n")
    });
    let cases = [
        "[".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        "{a: ".repeat(100_000),
        "a: ".repeat(1000),
        "&a ".repeat(100_000),
        "\"".repeat(100_000),
        "---\n".repeat(100_000),
        format!("[{}]", "1,".repeat(200_000)),
        (0..60_000).map(|index| format!("k{index}: 1\n")).collect(),
        "x".repeat(2 << 20),
        "&a [*a]".to_owned(),
        bomb,
    ];
    for text in &cases {
        for error in read_all(text) {
            let expected = matches!(error.code(), Code::TooLarge | Code::Syntax | Code::WrongType | Code::UnknownKey);
            assert!(expected, "{error}");
            assert!(error.to_string().len() < 2000);
        }
        assert_eq!(read_all(text).len(), 3);
    }
}

#[test]
fn many_warnings_are_quick() {
    let job = |index| {
        format!("- {{name: j{index}, type: seqwrite, shards: all, shard_info: {{parallelism: 1, batch: 2}}}}\n")
    };
    let text: String = (0..3000).map(job).collect();
    assert_eq!(job_reader::parse("t", &text, &SchedGroups::default()).unwrap().warnings.len(), 6000);
}

#[test]
fn odd_texts() {
    let cases = [
        "\0",
        "\r",
        "\r\n\r",
        "\u{feff}",
        "\u{feff}\u{feff}",
        "a\rb: c\r",
        "- \t",
        "%YAML 1.1\n---\n",
        "!!binary x",
        "disks: !!set {a}",
        "disks: [{mountpoint: !!binary aGk=}]",
        "? \n: ",
        "--- |\n x\n...\n",
        "\u{2028}: \u{85}",
        "disks:\n- mountpoint: \"\\u0000\"\n  read_iops: \"\\x1b[0m\"\n",
        "disks: [{? [a]: b}]",
        "*a",
        "<<: *a",
        "=: 5",
        "- name: \"a\n\n  b\"\n",
        "disks: [{mountpoint: &a }]",
        "- - - -",
        "disks: [,]",
        "'",
        "a: 'b\n\n",
        "\u{1F600}: [\u{1F600}",
    ];
    for text in cases {
        check_errors(text);
    }
}

const SEEDS: [&str; 4] = [
    "disks:\n  - mountpoints: [/a, '/b']\n    read_iops: 95k\n    read_bandwidth: 545M\n    write_iops: 85000\n    \
     write_bandwidth: 510M\n    duplex: true\n    rate_factor: 0.5\n    physical_block_size: 4k\n",
    "- name: a\n  type: seqwrite\n  shards: [0, 1]\n  data_size: 1GB\n  shard_info:\n    parallelism: 10\n    reqsize: \
     64kB\n    vectorized: true\n    iov_count: 4\n    rps: 5\n    think_time: 10us\n  options: {dsync: true, \
     pause_distribution: poisson}\n- name: b\n  type: append\n  shards: all\n  shard_info: \
     {parallelism: 1, class: a}\n",
    "- {name: a, type: randrw, rwmixread: 70, stage: 0, shards: all, data_size: 1GB, shard_info: {parallelism: 4, rate: \
     1e3, bssplit: 4k/60:64k/40, access: zoned:60/10:40/90, limit_bytes: 1GB, ramp_up: 1s, bandwidth: 5MB}, options: \
     {verify: true, compressible: 50, fdatasync: 8}}\n- {name: b, type: unlink, files_count: 5, stage: 1, shards: [0], \
     shard_info: {parallelism: 1}}\n- {name: c, type: cpu, shards: all, shard_info: {parallelim: 1}}\n",
    "- name: a\n  shares: 100\n- {name: b, shares: 5, parent: a}\n",
];

/// Pieces that turn a good file into a bad one.
const PIECES: [&str; 24] = [
    "\n", " ", "  ", "\t", "\r", ":", ": ", "-", "- ", "[", "]", "{", "}", "&a ", "*a", "!", "'", "\"", "#", "...",
    "|\n", "0", "\u{e9}", "<<: ",
];

/// Where to cut, how many characters to remove, and what to put there.
fn edit() -> impl Strategy<Value = (prop::sample::Index, usize, &'static str)> {
    (any::<prop::sample::Index>(), 0usize..6, prop::sample::select(PIECES.to_vec()))
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,80}") {
        check_errors(&text);
    }

    #[test]
    fn any_yaml_like_text_is_answered(text in "[-a-c:,\\[\\]{}&*!|>'\"#%@`? \n\r\t.0-9kM\u{e9}]{0,60}") {
        check_errors(&text);
    }

    #[test]
    fn damaged_files_are_answered(
        seed in prop::sample::select(SEEDS.to_vec()),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        let mut text: Vec<char> = seed.chars().collect();
        for (place, removed, piece) in edits {
            let start = place.index(text.len() + 1);
            let end = (start + removed).min(text.len());
            text.splice(start..end, piece.chars());
        }
        check_errors(&text.into_iter().collect::<String>());
    }
}
