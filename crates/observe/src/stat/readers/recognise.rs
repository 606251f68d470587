//! Finds the kind of a file from its content.
//!
//! # Why
//! Names of files say little, and a message about a wrong file should name its kind, not complain about line 1.
//!
//! # How it works
//! Files that are no text are found by their first bytes, then recordings, JSON and our CSV by their begin, then texts:
//! `/sys/block/NAME/stat` by its numbers, iostat by a header, `/proc/diskstats` by its lines, and other programs by
//! words that only they print. [`ReadOptions`](super::ReadOptions) do not matter here.
//!
//! # Limits
//! A support bundle in one file counts as the first of these kinds that matches.
//!
//! # Example
//! A text with `procs -----------memory` in it is vmstat's.

use plimsoll_files::rbd;
use serde_json::Value;

use super::{diskstats_text, iostat_text, own_csv};
use crate::stat::record;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::stat) enum Kind {
    Empty,
    Record,
    Json,
    Iostat,
    /// Of `stat --format csv`.
    OwnCsv,
    DiskStats,
    SysfsStat,
    /// Another kind: its name, and the remedy.
    Other(&'static str, &'static str),
}

const UNPACK: &str = "unpack it first";
const NO_TEXT: &str = "pass the text or JSON that iostat printed, or samples of /proc/diskstats";
const IOSTAT: &str = "it has not what is needed of a disk: run `iostat -x 1` or `plimsoll stat --record`";

/// First bytes of files that are no texts, with the kind and what to do.
const MAGIC: [(&[u8], &str, &str); 11] = [
    (b"\x89PNG", "a PNG picture", "a picture holds no figures: pass the text it was taken of"),
    (b"\xff\xd8\xff", "a JPEG picture", "a picture holds no figures: pass the text it was taken of"),
    (b"GIF8", "a GIF picture", "a picture holds no figures: pass the text it was taken of"),
    (b"%PDF", "a PDF document", NO_TEXT),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
    (b"\xfd7zXZ", "an xz archive", UNPACK),
    (b"BZh", "a bzip2 archive", UNPACK),
    (b"PK\x03\x04", "a zip archive", UNPACK),
    (b"\x7fELF", "a program", NO_TEXT),
    (b"\xff\xfe", "a text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "a text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
];

/// Words that occur together in one line of only one program, with the kind and what to do.
const PROGRAMS: [(&[&str], &str, &str); 18] = [
    (
        &["Summary of ", " intervals:"],
        "the summary of `plimsoll stat --from`",
        "it has no intervals: pass the files that it sums up, or write it with --intervals or --format json",
    ),
    (&["procs", "memory", "swap"], "vmstat's output", IOSTAT),
    (&["DEV", "tps"], "sar's output", IOSTAT),
    (&["CPU", "%user", "%nice"], "sar's output", IOSTAT),
    (&["CPU", "%usr", "%nice"], "mpstat's output", IOSTAT),
    (&["PID", "kB_rd/s"], "pidstat's output", IOSTAT),
    (&["PID", "DISK", "READ"], "iotop's output", IOSTAT),
    (&["KB/t", "tps"], "iostat's output of BSD or macOS", "only iostat of Linux (sysstat) is understood"),
    (&["kr/s", "kw/s", "asvc_t"], "iostat's output of Solaris", "only iostat of Linux (sysstat) is understood"),
    (&["kr/s", "kw/s", "qlen"], "iostat's output of FreeBSD", "only iostat of Linux (sysstat) is understood"),
    (&["--total-cpu-usage--"], "dstat's output", IOSTAT),
    (&["----total-usage----"], "dstat's output", IOSTAT),
    (&["ops/s", "rpc", "bklog"], "nfsiostat's output", IOSTAT),
    (&["Run", "status", "group"], "fio's text", "`fio --output-format=json` is read by `plimsoll compare`"),
    (&["Filesystem", "Used"], "df's output", IOSTAT),
    (&["NAME", "MAJ:MIN"], "lsblk's output", IOSTAT),
    (&["MemTotal:"], "/proc/meminfo", "pass samples of /proc/diskstats"),
    (&["cpu0"], "/proc/stat", "pass samples of /proc/diskstats"),
];

/// Returns the kind of a file with these bytes. `text` is the same as a text.
pub(in crate::stat) fn recognise(bytes: &[u8], text: &str) -> Kind {
    if let Some((_, name, remedy)) = MAGIC.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        return Kind::Other(name, remedy);
    }
    if record::is_record(bytes) {
        return Kind::Record;
    }
    if bytes.contains(&0) {
        return Kind::Other("a binary file", NO_TEXT);
    }
    let begin = text.trim_start_matches('\u{feff}').trim_start();
    if begin.is_empty() {
        return Kind::Empty;
    }

    // A prompt (`[root@db1 ~]#`) and a time (`[10:11:12]`) begin with a bracket, too.
    let in_list = begin.strip_prefix('[').map(str::trim_start);
    if begin.starts_with('{') || in_list.is_some_and(|list| list.starts_with(['{', '[', ']', '"'])) {
        return Kind::Json;
    }

    if own_csv::has_header(begin) {
        return Kind::OwnCsv;
    }

    let is_numbers = text.split_whitespace().all(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    if is_numbers && text.trim().lines().count() == 1 && matches!(text.split_whitespace().count(), 4 | 11 | 15 | 17..) {
        return Kind::SysfsStat;
    }

    let has_words = |words: &[&str]| {
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        text.lines().any(|line| line.len() < 400 && has(line))
    };
    if iostat_text::has_header(text) {
        return Kind::Iostat;
    }
    if text.lines().any(diskstats_text::is_line) {
        return Kind::DiskStats;
    }
    if rbd::parse(text).is_ok() {
        let remedy = "`plimsoll test` sets it beside its own runs; `stat` needs the iostat that ran meanwhile";
        return Kind::Other("the output of `rbd bench`", remedy);
    }
    match PROGRAMS.iter().find(|(words, ..)| has_words(words)) {
        Some((_, name, remedy)) => Kind::Other(name, remedy),
        None => Kind::Other("some other text", NO_TEXT),
    }
}

/// Returns the kind of JSON that is not iostat's, and what to do.
pub(in crate::stat) fn json(value: &Value) -> (&'static str, &'static str) {
    let first = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let has = |key: &str| first.get(key).is_some();
    let text = || first.get("sysstat").map(Value::to_string).unwrap_or_default();
    match () {
        () if has("fio version") => ("fio's JSON", "`plimsoll compare` reads it"),
        () if has("plimsoll") && has("jobs") => ("a result of `plimsoll test`", "`plimsoll compare` reads it"),
        () if has("sysstat") && text().contains("\"disk-device\"") => ("sadf's JSON", IOSTAT),
        () if has("sysstat") && text().contains("\"cpu-load\"") => ("mpstat's JSON", IOSTAT),
        () if has("sysstat") => ("JSON of sysstat without disks", "run `iostat -x -o JSON 1`"),
        () if has("plimsoll") => ("a result of another plimsoll command", NO_TEXT),
        () if has("blockdevices") => ("lsblk's JSON", IOSTAT),
        () => ("JSON of something else", NO_TEXT),
    }
}
