//! What is said over the control socket: requests, answers, and how they are written.
//!
//! # Why
//! Programs of other versions and other languages must be able to ask, so the words are JSON, one object a line, with a
//! version.
//!
//! # How it works
//! A client sends a [`Request`] a line and gets an [`Answer`] a line for each, in order. Names of keys carry their units.
//! A request with a key that does not exist is refused, so that nobody believes a misspelled limit to hold; in answers,
//! clients pass over keys that they do not know.
//!
//! # Limits
//! A request has at most [`LINE_MAX_BYTES`].
//!
//! # Example
//! ```
//! use plimsoll::control::{Limit, LimitsChange, Request};
//! let line = r#"{"request":"set-limits","class":"backup","limits":{"iops":500,"read_iops":"unlimited"}}"#;
//! let Request::SetLimits { class, limits } = serde_json::from_str(line)? else { panic!("it sets limits") };
//! assert_eq!((class.as_str(), limits.iops), ("backup", Some(Limit::PerSecond(500))));
//! assert_eq!((limits.read_iops, limits.write_iops), (Some(Limit::Unlimited), None));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_core::{Limits, Rate};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::metrics::ProgramMetrics;
use crate::topology::DiskMode;

/// Version of the protocol: it rises when a key changes its meaning or goes.
pub const PROTOCOL: u32 = 2;

/// Bytes of a request at the most, the end of the line included.
pub const LINE_MAX_BYTES: usize = 64 << 10;

/// What a client may ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Who are you? Answered with [`Answer::Hello`].
    Hello {},
    /// What is going on? Answered with [`Answer::Snapshot`].
    Snapshot {},
    /// All counters. Answered with [`Answer::Metrics`].
    Metrics {},
    /// Gives a class or group other shares.
    SetShares {
        /// Its name.
        class: String,
        /// At least 1.
        shares: u32,
    },
    /// Gives a class or group other limits.
    SetLimits {
        /// Its name.
        class: String,
        /// Which.
        limits: LimitsChange,
    },
    /// Lets something else hold a disk's requests back.
    SetMode {
        /// Number of the disk; all disks without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<u16>,
        /// What from now on.
        mode: Mode,
    },
    /// Records what happens to every request, until `trace-stop`, or until the connection that asked for it ends.
    TraceStart {
        /// The file, which must not exist: a plain name that ends in `.plt`, in the directory of the socket.
        name: String,
    },
    /// Ends the record that `trace-start` began.
    TraceStop {},
}

/// Limits to change; what is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsChange {
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<Limit>,
    /// Reads per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<Limit>,
    /// Writes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<Limit>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<Limit>,
    /// Bytes read per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_s: Option<Limit>,
    /// Bytes written per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_s: Option<Limit>,
}

impl LimitsChange {
    /// `limits` with the changes; `None` when a change is 0 a second, at which nothing would ever end.
    #[must_use]
    pub fn applied_to(self, limits: Limits) -> Option<Limits> {
        let rate = |change: Option<Limit>, old: Rate| match change {
            None => Some(old),
            Some(Limit::Unlimited) => Some(Rate::Unlimited),
            Some(Limit::PerSecond(0)) => None,
            Some(Limit::PerSecond(units)) => Some(Rate::per_second(units)),
        };
        Some(Limits {
            iops: rate(self.iops, limits.iops)?,
            read_iops: rate(self.read_iops, limits.read_iops)?,
            write_iops: rate(self.write_iops, limits.write_iops)?,
            bandwidth: rate(self.bytes_per_s, limits.bandwidth)?,
            read_bandwidth: rate(self.read_bytes_per_s, limits.read_bandwidth)?,
            write_bandwidth: rate(self.write_bytes_per_s, limits.write_bandwidth)?,
            burst_ns: limits.burst_ns,
        })
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == LimitsChange::default()
    }
}

/// A rate that may not be exceeded: a number, or `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many a second, at least 1.
    PerSecond(u64),
    /// No limit.
    Unlimited,
}

impl From<Rate> for Limit {
    fn from(rate: Rate) -> Limit {
        rate.get().map_or(Limit::Unlimited, Limit::PerSecond)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum LimitForm {
    PerSecond(u64),
    Word(LimitWord),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LimitWord {
    Unlimited,
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Limit::PerSecond(units) => LimitForm::PerSecond(units),
            Limit::Unlimited => LimitForm::Word(LimitWord::Unlimited),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        match LimitForm::deserialize(deserializer) {
            Ok(LimitForm::PerSecond(units)) => Ok(Limit::PerSecond(units)),
            Ok(LimitForm::Word(LimitWord::Unlimited)) => Ok(Limit::Unlimited),
            Err(_) => Err(serde::de::Error::custom("a limit is a whole number per second, or \"unlimited\"")),
        }
    }
}

/// What holds requests back: `"scheduled"`, `"drain"` or `{"depth": N}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The disk model.
    Scheduled,
    /// So many requests in flight in all, at least 1.
    Depth(u32),
    /// Nothing.
    Drain,
}

impl From<DiskMode> for Mode {
    fn from(mode: DiskMode) -> Mode {
        match mode {
            DiskMode::Scheduled => Mode::Scheduled,
            DiskMode::Depth { max_io_requests } => Mode::Depth(max_io_requests),
            DiskMode::Drain => Mode::Drain,
        }
    }
}

impl From<Mode> for DiskMode {
    fn from(mode: Mode) -> DiskMode {
        match mode {
            Mode::Scheduled => DiskMode::Scheduled,
            Mode::Depth(max_io_requests) => DiskMode::Depth { max_io_requests },
            Mode::Drain => DiskMode::Drain,
        }
    }
}

/// What the program says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Answer {
    /// To `hello`.
    Hello(Hello),
    /// To `snapshot`.
    Snapshot(Snapshot),
    /// To `metrics`.
    Metrics(ProgramMetrics),
    /// It is done; shards follow within 100 ms.
    Done {},
    /// The record has ended.
    TraceStopped(TraceStopped),
    /// It was not done, and nothing has changed.
    Error {
        /// What kind of error.
        code: ErrorCode,
        /// What and why, for people.
        message: String,
    },
}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The line is not a request.
    BadRequest,
    /// No such class or group.
    UnknownClass,
    /// No such disk.
    UnknownDisk,
    /// The value makes no sense.
    BadValue,
    /// A trace is being recorded already, or none that `trace-start` began.
    Trace,
    /// The program has as many clients as it takes.
    Busy,
    /// Anything that this version does not know.
    #[serde(other)]
    Other,
}

/// Who a program is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the protocol, [`PROTOCOL`].
    pub protocol: u32,
    /// Version of the library.
    pub plimsoll: String,
    /// Number of the process.
    pub pid: u32,
    /// What the program calls itself.
    pub program: String,
    /// How many shards.
    pub shards: u16,
    /// The disks, by number.
    pub disks: Vec<DiskInfo>,
    /// The classes and groups that there are.
    pub classes: Vec<ClassInfo>,
    /// Whether a trace is being recorded.
    pub is_tracing: bool,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Its number.
    pub disk: u16,
    /// What holds its requests back.
    pub mode: Mode,
    /// Whether it has no model, so that nothing holds requests back in mode `scheduled`.
    pub is_unlimited: bool,
}

/// A class or group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassInfo {
    /// Its name.
    pub class: String,
    /// The group it is in; null for none.
    pub group: Option<String>,
    /// Whether it is a group itself.
    pub is_group: bool,
    /// Its shares.
    pub shares: u32,
    /// Its limits; all are named.
    pub limits: LimitsChange,
}

impl From<Limits> for LimitsChange {
    fn from(limits: Limits) -> LimitsChange {
        LimitsChange {
            iops: Some(limits.iops.into()),
            read_iops: Some(limits.read_iops.into()),
            write_iops: Some(limits.write_iops.into()),
            bytes_per_s: Some(limits.bandwidth.into()),
            read_bytes_per_s: Some(limits.read_bandwidth.into()),
            write_bytes_per_s: Some(limits.write_bandwidth.into()),
        }
    }
}

/// What is going on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time by the shards' clock, in nanoseconds.
    pub at_ns: u64,
    /// Time since this client's last snapshot, to which rates and latencies refer; null in the first, where latencies are
    /// those since the program's counters began.
    pub over_ns: Option<u64>,
    /// Shards that did not answer in time: their part is that of their last answer, nothing where there was none.
    pub missing_shards: Vec<u16>,
    /// The disks, by number.
    pub disks: Vec<DiskState>,
}

/// A disk at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskState {
    /// Its number.
    pub disk: u16,
    /// What holds its requests back.
    pub mode: Mode,
    /// How much device time may be in the device, in nanoseconds by the model; null where the disk has no model, as are all
    /// figures of the model.
    pub window_ns: Option<u64>,
    /// The largest window.
    pub window_max_ns: Option<u64>,
    /// Device time in the device.
    pub in_flight_ns: Option<u64>,
    /// Rate of the disk over that of its model.
    pub capacity_scale: Option<f64>,
    /// Device time for which there are tokens; below 0 where they were taken ahead.
    pub tokens_ns: Option<i64>,
    /// Depth of the bucket of tokens.
    pub tokens_max_ns: Option<u64>,
    /// The classes that there are.
    pub classes: Vec<ClassState>,
}

/// A class on a disk at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassState {
    /// Its name.
    pub class: String,
    /// Its shares.
    pub shares: u32,
    /// Requests that wait.
    pub queued: u64,
    /// Pieces in the device.
    pub in_flight: u64,
    /// How long the oldest queued request has waited.
    pub oldest_wait_ns: u64,
    /// What it waits for at this moment: `fairness`, `tokens`, `limit`, `depth`, `backend`; null for nothing.
    pub waits_for: Option<String>,
    /// Reads that ended, since the program's counters began.
    pub reads: u64,
    /// Writes (and syncs, discards, allocations) that ended.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Time waited with work queued, by reason, in nanoseconds.
    pub waited_ns: BTreeMap<String, u64>,
    /// What changed since this client's last snapshot; null in the first, and when the program's counters began anew.
    pub recent: Option<Recent>,
    /// From being queued to going to the device.
    pub queue_latency: Percentiles,
    /// From there until it was back.
    pub device_latency: Percentiles,
    /// Of whole requests.
    pub total_latency: Percentiles,
}

/// Rates of a class since the last snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// Reads per second.
    pub read_iops: f64,
    /// Writes per second.
    pub write_iops: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Parts of the time in which it waited with work queued, by reason, 0 to 1 for each queue of the disk.
    pub waited: BTreeMap<String, f64>,
}

/// Latencies in nanoseconds, since the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many; where it is 0, so are the others.
    pub count: u64,
    /// Half are not longer.
    pub p50_ns: u64,
    /// 99 % are not longer.
    pub p99_ns: u64,
    /// 99.9 % are not longer.
    pub p99_9_ns: u64,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceStopped {
    /// The file.
    pub path: PathBuf,
    /// Events in it.
    pub events: u64,
    /// Events that came too fast.
    pub dropped_events: u64,
    /// Why it ended before it was stopped, if so.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let table = [
            (r#"{"request":"hello"}"#, Some(Request::Hello {})),
            (r#"{"request":"snapshot"}"#, Some(Request::Snapshot {})),
            (r#"{"request":"metrics"}"#, Some(Request::Metrics {})),
            (
                r#"{"request":"set-shares","class":"a","shares":7}"#,
                Some(Request::SetShares { class: "a".into(), shares: 7 }),
            ),
            (
                r#"{"request":"set-mode","mode":{"depth":8}}"#,
                Some(Request::SetMode { disk: None, mode: Mode::Depth(8) }),
            ),
            (
                r#"{"request":"set-mode","disk":1,"mode":"drain"}"#,
                Some(Request::SetMode { disk: Some(1), mode: Mode::Drain }),
            ),
            (
                r#"{"request":"set-limits","class":"a","limits":{"bytes_per_s":"unlimited"}}"#,
                Some(Request::SetLimits {
                    class: "a".into(),
                    limits: LimitsChange { bytes_per_s: Some(Limit::Unlimited), ..LimitsChange::default() },
                }),
            ),
            (r#"{"request":"set-limits","class":"a","limits":{"iopps":5}}"#, None),
            (r#"{"request":"set-limits","class":"a","limits":{"iops":-5}}"#, None),
            (r#"{"request":"set-shares","class":"a","shares":1,"share":2}"#, None),
            (r#"{"request":"set-shares","class":"a"}"#, None),
            (r#"{"request":"format-disk"}"#, None),
            (r#"[]"#, None),
        ];
        for (line, expected) in table {
            assert_eq!(serde_json::from_str::<Request>(line).ok(), expected, "{line}");
            if let Some(request) = expected {
                assert_eq!(serde_json::to_string(&request).unwrap(), line);
            }
        }
    }

    #[test]
    fn limits_change_where_they_are_named() {
        let before = Limits { iops: Rate::per_second(9), read_iops: Rate::per_second(8), ..Limits::default() };
        let change = LimitsChange {
            read_iops: Some(Limit::Unlimited),
            write_bytes_per_s: Some(Limit::PerSecond(5)),
            ..LimitsChange::default()
        };
        let after = Limits { iops: Rate::per_second(9), write_bandwidth: Rate::per_second(5), ..Limits::default() };
        assert_eq!(change.applied_to(before), Some(after));
        let zero = LimitsChange { iops: Some(Limit::PerSecond(0)), ..LimitsChange::default() };
        assert_eq!(zero.applied_to(before), None);
        assert!(LimitsChange::default().is_empty() && !zero.is_empty());
    }
}
