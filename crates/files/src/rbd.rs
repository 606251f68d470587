//! Reads the output of `rbd bench` of Ceph, for comparison with our own runs.
//!
//! **Why.** Two runs of `rbd bench` on one device, with `iostat` beside them, are the classic proof that `%util` does
//! not show how much more a device can do. People keep the terminal's text of such runs.
//!
//! **How.** Any text may surround the runs. A run begins with a line `bench  type write io_size 8192 ...` or, if the
//! top is cut off, with the table's head. Lines of the table `SEC OPS OPS/SEC BYTES/SEC` follow. The run ends with a
//! line `elapsed: 10   ops: 1048576   ops/sec: 100360   bytes/sec: 784 MiB/s`. Rates are numbers (older versions:
//! bytes) or have a unit, which is binary.
//!
//! **Limits.** A run without its last line counts as cut off: it has a table and no summary. A line that looks like a
//! row but has no numbers is an error with its line number.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::rbd;
//! let text = "bench  type write io_size 8192 io_threads 16 bytes 8589934592 pattern sequential
//!   SEC       OPS   OPS/SEC   BYTES/SEC
//!     1    103152    103581   809 MiB/s
//! elapsed: 10   ops: 1048576   ops/sec: 100360   bytes/sec: 784 MiB/s
//! ";
//! let runs = rbd::parse(text)?;
//! assert_eq!(runs[0].summary.as_ref().map(|s| s.bytes_per_s), Some(784.0 * 1_048_576.0));
//! # Ok::<(), rbd::RbdError>(())
//! ```

use serde::Serialize;

/// Most lines kept of a run's table: a day of seconds.
const SECONDS_MAX: usize = 86_400;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RbdRun {
    /// `write`, `read` or `rw`; empty if the text does not state it.
    pub io_type: String,
    pub io_size_bytes: Option<u64>,
    pub io_threads: Option<u64>,
    /// `sequential`, `random` or `full sequential`.
    pub pattern: String,
    /// The table, one line per second.
    pub seconds: Vec<RbdSecond>,
    /// The last line; `None` if the run was cut off.
    pub summary: Option<RbdSummary>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RbdSecond {
    /// Seconds since the run began.
    pub second: f64,
    pub ops: u64,
    /// Requests per second, as the tool averages them over the last seconds.
    pub ops_per_s: f64,
    /// Bytes per second, as the tool averages them over the last seconds.
    pub bytes_per_s: f64,
}

/// The last line of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RbdSummary {
    pub elapsed_s: f64,
    pub ops: u64,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RbdError {
    #[error("no output of `rbd bench` in it: expected lines such as `elapsed: 10 ops: 1048576 ops/sec: 100360 ...`")]
    Empty,
    #[error("line {line}: {reason}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        reason: String,
    },
}

/// Reads all runs of a text, in their order.
///
/// # Errors
/// [`RbdError::Empty`] without a run, [`RbdError::Line`] for a line that begins like one and cannot be read.
pub fn parse(text: &str) -> Result<Vec<RbdRun>, RbdError> {
    let mut runs: Vec<RbdRun> = Vec::new();
    // Whether the next lines are rows of the last run's table.
    let mut in_table = false;
    let mut is_begun = false;

    for (at, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bad = |reason: String| RbdError::Line { line: at + 1, reason };
        match words.as_slice() {
            ["bench", "type", rest @ ..] => {
                runs.push(header(rest).map_err(bad)?);
                (in_table, is_begun) = (false, true);
            }
            ["SEC", "OPS", "OPS/SEC", ..] => {
                if !is_begun {
                    runs.push(RbdRun::default());
                }
                (in_table, is_begun) = (true, false);
            }
            ["elapsed:", ..] => {
                let summary = summary(&words).map_err(bad)?;
                match runs.last_mut().filter(|run| run.summary.is_none()) {
                    Some(run) => run.summary = Some(summary),
                    None => runs.push(RbdRun { summary: Some(summary), ..RbdRun::default() }),
                }
                (in_table, is_begun) = (false, false);
            }
            [second, ops, ops_per_s, rate @ ..] if in_table && second.parse::<f64>().is_ok() => {
                let row = row([second, ops, ops_per_s], rate).map_err(bad)?;
                if let Some(run) = runs.last_mut().filter(|run| run.seconds.len() < SECONDS_MAX) {
                    run.seconds.push(row);
                }
            }
            _ => in_table = in_table && words.is_empty(),
        }
    }

    if runs.is_empty() { Err(RbdError::Empty) } else { Ok(runs) }
}

/// Reads `write io_size 8192 io_threads 16 bytes 8589934592 pattern sequential`, which follows `bench type`.
fn header(words: &[&str]) -> Result<RbdRun, String> {
    let (io_type, rest) = words.split_first().ok_or("it ends before the type")?;
    let after = |key: &str| rest.iter().position(|word| *word == key).and_then(|at| rest.get(at + 1..));
    let number = |key: &str| match after(key).and_then(|words| words.first()) {
        None => Ok(None),
        Some(word) => word.parse().map(Some).map_err(|_| format!("{key} `{word}` is not a whole number")),
    };
    Ok(RbdRun {
        io_type: (*io_type).to_owned(),
        io_size_bytes: number("io_size")?,
        io_threads: number("io_threads")?,
        pattern: after("pattern").map(|words| words.join(" ")).unwrap_or_default(),
        ..RbdRun::default()
    })
}

fn row([second, ops, ops_per_s]: [&str; 3], rate: &[&str]) -> Result<RbdSecond, String> {
    Ok(RbdSecond {
        second: figure(second)?,
        ops: ops.parse().map_err(|_| format!("OPS `{ops}` is not a whole number"))?,
        ops_per_s: figure(ops_per_s)?,
        bytes_per_s: bytes_per_s(rate)?,
    })
}

fn summary(words: &[&str]) -> Result<RbdSummary, String> {
    let after = |key: &str| {
        let at = words.iter().position(|word| *word == key).ok_or_else(|| format!("`{key}` is missing"))?;
        words.get(at + 1..).filter(|rest| !rest.is_empty()).ok_or_else(|| format!("it ends after `{key}`"))
    };
    let first = |key: &str| after(key).map(|rest| rest.first().copied().unwrap_or_default());
    let ops = first("ops:")?;
    Ok(RbdSummary {
        elapsed_s: figure(first("elapsed:")?)?,
        ops: ops.parse().map_err(|_| format!("ops `{ops}` is not a whole number"))?,
        ops_per_s: figure(first("ops/sec:")?)?,
        bytes_per_s: bytes_per_s(after("bytes/sec:")?)?,
    })
}

/// Reads a number with or without a unit: `848494964.12`, `784 MiB/s`, `1.2 GiB/s`.
fn bytes_per_s(words: &[&str]) -> Result<f64, String> {
    let number = figure(words.first().ok_or("it ends before the bytes per second")?)?;
    let factor: u64 = match words.get(1).copied() {
        None | Some("B/s") => 1,
        Some("KiB/s") => 1 << 10,
        Some("MiB/s") => 1 << 20,
        Some("GiB/s") => 1 << 30,
        Some("TiB/s") => 1 << 40,
        Some(unit) => return Err(format!("unknown unit `{unit}`: expected B/s, KiB/s, MiB/s or GiB/s")),
    };
    Ok(number * factor as f64)
}

fn figure(word: &str) -> Result<f64, String> {
    let number = word.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("`{word}` is not a number of 0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    /// Written for this test in the form of the tool's output: a prompt, one whole run, one cut off.
    const TWO: &str = "\
user@host:~$ rbd bench --io-type write image --io-size 8192 --io-total 8GB
bench  type write io_size 8192 io_threads 16 bytes 8589934592 pattern full sequential
  SEC       OPS   OPS/SEC   BYTES/SEC
    1    100000    100500   785 MiB/s
    2    200500   99999.5   1.5 GiB/s
elapsed: 10   ops: 1048576   ops/sec: 104857   bytes/sec: 819 MiB/s

bench  type read io_size 4096 io_threads 8 bytes 1 pattern random
  SEC       OPS   OPS/SEC   BYTES/SEC
    1    5000    5000   20480000.5
^C
";

    #[test]
    fn runs_and_what_was_cut_off() {
        let runs = parse(TWO).unwrap();
        assert_eq!(runs.len(), 2);
        let first = &runs[0];
        assert_eq!((first.io_type.as_str(), first.pattern.as_str()), ("write", "full sequential"));
        assert_eq!((first.io_size_bytes, first.io_threads, first.seconds.len()), (Some(8192), Some(16), 2));
        assert_eq!((first.seconds[1].ops_per_s, first.seconds[1].bytes_per_s), (99_999.5, 1536.0 * MIB));
        let summary = first.summary.unwrap();
        assert_eq!((summary.elapsed_s, summary.ops, summary.bytes_per_s), (10.0, 1_048_576, 819.0 * MIB));
        assert_eq!((runs[1].summary, runs[1].seconds[0].bytes_per_s), (None, 20_480_000.5));
    }

    #[test]
    fn other_texts_are_refused() {
        let head = "SEC OPS OPS/SEC BYTES/SEC\n";
        let cases = [
            ("", "no output of `rbd bench`"),
            ("hello\n1 2 3 4\n", "no output of `rbd bench`"),
            (&format!("{head}1 x 3 4 MiB/s"), "line 2: OPS `x`"),
            (&format!("{head}1 2 3 4 XB/s"), "line 2: unknown unit `XB/s`"),
            (&format!("{head}1 2 nan 4"), "line 2: `nan` is not a number"),
            (&format!("{head}1 2 3"), "line 2: it ends before the bytes"),
            ("bench type", "line 1: it ends before the type"),
            ("bench type write io_size many", "line 1: io_size `many`"),
            ("elapsed: 1 ops: 2", "line 1: `ops/sec:` is missing"),
            ("elapsed: 1 ops: 2 ops/sec: 3 bytes/sec:", "line 1: it ends after `bytes/sec:`"),
        ];
        for (text, part) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }

        // A summary alone is a run; a second summary belongs to a second run.
        let one = "elapsed: 1 ops: 2 ops/sec: 3 bytes/sec: 4\n";
        assert_eq!(parse(&one.repeat(2)).unwrap().len(), 2);
    }
}
