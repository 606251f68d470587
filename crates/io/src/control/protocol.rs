//! The protocol of the control socket: requests, answers, and their encoding.
//!
//! # Why
//! Programs of other versions and in other languages must be able to attach, so messages are JSON, one object per line,
//! with a version.
//!
//! # How it works
//! A client sends a [`Request`] per line and gets an [`Answer`] per line, in order. Names of keys carry their units. A
//! request with an unknown key is refused, so that a misspelled limit is not silently ignored; in answers, clients
//! ignore unknown keys.
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

/// Version of the protocol. It rises when a key changes its meaning or is removed.
pub const PROTOCOL: u32 = 2;

/// Longest request in bytes, with the end of the line.
pub const LINE_MAX_BYTES: usize = 64 << 10;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Asks for a description of the program. Answered with [`Answer::Hello`].
    Hello {},
    /// Asks for the present state. Answered with [`Answer::Snapshot`].
    Snapshot {},
    /// Asks for all counters. Answered with [`Answer::Metrics`].
    Metrics {},
    /// Sets the shares of a class or group.
    SetShares {
        /// Its name.
        class: String,
        /// Its shares, at least 1.
        shares: u32,
    },
    /// Sets limits of a class or group.
    SetLimits {
        /// Its name.
        class: String,
        /// The limits to change.
        limits: LimitsChange,
    },
    /// Sets the mode of a disk.
    SetMode {
        /// Number of the disk; all disks if missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<u16>,
        /// The mode.
        mode: Mode,
    },
    /// Records the stations of every request, until `trace-stop`, or until the connection that asked for it ends.
    TraceStart {
        /// The file, which must not exist: a plain name that ends in `.plt`, in the directory of the socket.
        name: String,
    },
    /// Stops the trace that `trace-start` began.
    TraceStop {},
}

/// Limits to change; those not named stay the same.
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
    /// Returns `limits` with the changes; `None` if one is 0 per second, with which requests would never end.
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

    /// Returns whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == LimitsChange::default()
    }
}

/// An upper limit of a rate: a number, or `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Units per second, at least 1.
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

/// The rule by which a disk holds requests back: `"scheduled"`, `"drain"` or `{"depth": N}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// By the disk model.
    Scheduled,
    /// By depth: this many requests in flight over all queues, at least 1.
    Depth(u32),
    /// Not at all.
    Drain,
}

/// The reason why the window of a disk is not larger: [`crate::core::WindowLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum WindowLimit {
    /// The window keeps the throughput goal.
    ThroughputGoal,
    /// A class has too few requests outstanding.
    Outstanding,
    /// The latency goal.
    LatencyGoal {
        /// Approximate part of the disk's full throughput that the window keeps.
        kept: f64,
        /// A window that would keep the throughput goal, in nanoseconds.
        needed_ns: u64,
    },
    /// A reason of a newer library.
    #[serde(other)]
    Other,
}

impl From<crate::core::WindowLimit> for WindowLimit {
    fn from(limit: crate::core::WindowLimit) -> WindowLimit {
        match limit {
            crate::core::WindowLimit::ThroughputGoal => WindowLimit::ThroughputGoal,
            crate::core::WindowLimit::Outstanding => WindowLimit::Outstanding,
            crate::core::WindowLimit::LatencyGoal { kept, needed_ns } => WindowLimit::LatencyGoal { kept, needed_ns },
            _ => WindowLimit::Other,
        }
    }
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

/// An answer of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Answer {
    /// Answer to `hello`.
    Hello(Hello),
    /// Answer to `snapshot`.
    Snapshot(Snapshot),
    /// Answer to `metrics`.
    Metrics(ProgramMetrics),
    /// The change is made; shards follow within 100 ms.
    Done {},
    /// The trace has ended.
    TraceStopped(TraceStopped),
    /// The request failed, and nothing has changed.
    Error {
        /// Kind of the error.
        code: ErrorCode,
        /// Explanation for people.
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
    /// The value is out of range.
    BadValue,
    /// A trace is being recorded already, or there is none that `trace-start` began.
    Trace,
    /// The program has the most clients that it accepts.
    Busy,
    /// A code that this version does not know.
    #[serde(other)]
    Other,
}

/// Description of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the protocol, [`PROTOCOL`].
    pub protocol: u32,
    /// Version of the library.
    pub plimsoll: String,
    /// Process number.
    pub pid: u32,
    /// The program's own name.
    pub program: String,
    /// Number of shards.
    pub shards: u16,
    /// The disks, by number.
    pub disks: Vec<DiskInfo>,
    /// The present classes and groups.
    pub classes: Vec<ClassSettings>,
    /// Whether a trace is being recorded.
    pub is_tracing: bool,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Its number.
    pub disk: u16,
    /// Its mode.
    pub mode: Mode,
    /// Whether it has no model, so that mode `scheduled` holds no requests back.
    pub is_unlimited: bool,
}

/// A class or group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSettings {
    /// Its name.
    pub class: String,
    /// Its group; null for none.
    pub group: Option<String>,
    /// Whether it is a group itself.
    pub is_group: bool,
    /// Its shares.
    pub shares: u32,
    /// Its limits; all keys are present.
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

/// State of a program at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time by the shards' clock, in nanoseconds.
    pub at_ns: u64,
    /// Time since this client's last snapshot, over which rates and latencies are taken. Null in the first snapshot,
    /// whose latencies are those since the program's counters began.
    pub over_ns: Option<u64>,
    /// Shards that did not answer in time. Their figures are those of their last answer, if any.
    pub missing_shards: Vec<u16>,
    /// The disks, by number.
    pub disks: Vec<DiskState>,
}

/// A disk at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskState {
    /// Its number.
    pub disk: u16,
    /// Its mode.
    pub mode: Mode,
    /// The window: device time by the model that may be in flight, in nanoseconds. Null, like all figures of the model,
    /// if the disk has no model.
    pub window_ns: Option<u64>,
    /// The largest window, in nanoseconds.
    pub window_max_ns: Option<u64>,
    /// The reason why the window is not larger; null from libraries that do not report it.
    #[serde(default)]
    pub window_limit: Option<WindowLimit>,
    /// Device time in flight, in nanoseconds.
    pub in_flight_ns: Option<u64>,
    /// Rate of the disk over the rate of its model.
    pub capacity_scale: Option<f64>,
    /// Device time for which there are tokens, in nanoseconds; below 0 if some were taken ahead.
    pub tokens_ns: Option<i64>,
    /// Depth of the token bucket, in nanoseconds.
    pub tokens_max_ns: Option<u64>,
    /// The present classes.
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
    /// Wait of the oldest queued request so far, in nanoseconds.
    pub oldest_wait_ns: u64,
    /// The present reason of the class's wait: `fairness`, `tokens`, `limit`, `depth`, `backend`; null if it does not
    /// wait.
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
    /// Rates since this client's last snapshot; null in the first, and after the program's counters were reset.
    pub recent: Option<Recent>,
    /// Time from being queued to dispatch.
    pub queue_latency: Percentiles,
    /// Time from dispatch to completion.
    pub device_latency: Percentiles,
    /// Time of whole requests.
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
    /// Time that the class waited with work queued, by reason, over that time; the sum over the queues of the disk. A wait
    /// counts when it ends: 0 while it lasts, and above 1 if it was longer than the time since the last snapshot.
    pub waited: BTreeMap<String, f64>,
}

/// Latencies in nanoseconds, since the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of latencies; if 0, the percentiles are 0 too.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p99_9_ns: u64,
}

/// Result of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceStopped {
    /// The file.
    pub path: PathBuf,
    /// Events in it.
    pub events: u64,
    /// Events dropped because they came too fast.
    pub dropped_events: u64,
    /// Why the trace ended before it was stopped; null if it did not.
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
    fn limits_of_windows_are_read_from_older_and_newer_programs() {
        let disk = |limit: &str| {
            let text = format!(
                r#"{{"disk":0,"mode":"scheduled","window_ns":1,"window_max_ns":2,{limit}"in_flight_ns":0,"capacity_scale":1.0,
                    "tokens_ns":0,"tokens_max_ns":0,"classes":[]}}"#
            );
            serde_json::from_str::<DiskState>(&text).map(|disk| disk.window_limit).map_err(|error| error.to_string())
        };
        let binds = WindowLimit::LatencyGoal { kept: 0.5, needed_ns: 7 };
        assert_eq!(disk(""), Ok(None));
        assert_eq!(disk(r#""window_limit":{"by":"latency-goal","kept":0.5,"needed_ns":7},"#), Ok(Some(binds)));
        assert_eq!(disk(r#""window_limit":{"by":"moon","phase":3},"#), Ok(Some(WindowLimit::Other)));
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
