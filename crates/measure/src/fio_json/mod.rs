//! Writes results of `test` in the form of fio's JSON, for programs that read it.
//!
//! **Why.** Scripts, dashboards and plotters read `fio --output-format=json`, and can read this output unchanged.
//!
//! **How.** There is one entry for each clone of a job, as in fio; jobs with `group_reporting` share an entry for their
//! group. An entry has the sides `read`, `write` and `trim`, each with counts, rates and latencies in nanoseconds, and
//! `sync` for flushes.
//!
//! - `lat_ns` runs from when a request was due (or sent) until it completed. Unlike fio's it also has percentiles.
//! - `slat_ns` is the time in this program's own queue, `clat_ns` the time in the device.
//! - Both are known only for a class as a whole. If the class has jobs of another entry too, or an entry reads and
//!   writes, `clat_ns` is `lat_ns`, and `slat_ns` has no samples. A split request counts once for each piece.
//! - `iodepth_level` is sampled: pieces in the device of each I/O queue, at most once a millisecond.
//! - `usr_cpu` is all CPU time of the entry's shards, shared with other jobs; `sys_cpu` is 0.
//! - `error` is the number of the first error; a short transfer is EIO (5).
//! - `short_ios` is 0: short transfers are among the errors, and not counted separately.
//!
//! **Limits.** Uncounted figures are 0: context switches, page faults, submission batches. Standard deviations are
//! computed from buckets, and accurate within 1 %. Samples of rates over time are those of the whole entry, and only of
//! entries with one side.
//!
//! **Example.**
//!
//! ```no_run
//! # fn example(result: &plimsoll_measure::test::TestResult) {
//! use plimsoll_measure::fio_json::{FioJson, to_json};
//! let text = to_json(result, &FioJson { file: None, bins: true, unix_ms: 1_646_873_555_274 });
//! assert!(text.contains("\"fio version\": \"plimsoll-"));
//! # }
//! ```

mod entry;
mod shape;

use jiff::Timestamp;
use plimsoll_files::fio::FioFile;

use crate::test::TestResult;
use shape::{Document, Pairs};

#[derive(Clone, Copy, Debug)]
pub struct FioJson<'a> {
    /// The job file, if it was fio's: the source of the entries' names, groups and options.
    pub file: Option<&'a FioFile>,
    /// Whether every latency carries its buckets (`json+`).
    pub bins: bool,
    /// Milliseconds since 1970 (UTC) when the run ended.
    pub unix_ms: u64,
}

/// Returns the result as fio's JSON, with a line end.
pub fn to_json(result: &TestResult, options: &FioJson<'_>) -> String {
    let document = Document {
        version: concat!("plimsoll-", env!("CARGO_PKG_VERSION")),
        timestamp: options.unix_ms / 1000,
        timestamp_ms: options.unix_ms,
        time: date_text(options.unix_ms / 1000),
        global_options: options.file.map(|file| Pairs(file.global_options.clone())),
        jobs: entry::entries(result, options),
        disk_util: [],
    };
    // Plain numbers and strings cannot fail.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// Formats a time as C's `asctime` does, in UTC: `Thu Mar 10 00:52:35 2022`. Times after the year 9999 become the end
/// of that year.
fn date_text(unix_s: u64) -> String {
    let at = i64::try_from(unix_s).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    at.unwrap_or(Timestamp::MAX).strftime("%a %b %e %H:%M:%S %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::date_text;

    #[test]
    fn dates() {
        for (unix_s, expect) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (1_646_873_555, "Thu Mar 10 00:52:35 2022"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_735_689_599, "Tue Dec 31 23:59:59 2024"),
            (13_569_465_600, "Sat Jan  1 00:00:00 2400"),
        ] {
            assert_eq!(date_text(unix_s), expect);
        }
        assert!(!date_text(u64::MAX).is_empty());
    }
}
