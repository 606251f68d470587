//! What is said of an interval: the types that outputs, pages and metrics share.
//!
//! # Why
//! A table, a JSON document, a metric and a page must not tell four stories. They all render an [`Observed`].
//!
//! # How it works
//! Plain data. Shares are parts of 1, never percent; outputs turn them into percent.
//!
//! # Limits
//! It holds what was concluded, not how: `capacity`, `saturation`, `verdict` and `groups` conclude.
//!
//! # Example
//! A disk at 100 %util with U 0.03 and S 0: [`Verdict::BusyButFree`], "97 % of its capacity is free".

use serde::Serialize;

use super::{CpuShares, DeviceInterval};

/// What one interval of a host came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// When it ended, in milliseconds since 1970 (UTC).
    pub end_unix_ms: Option<u64>,
    /// Its length in seconds.
    pub duration_s: Option<f64>,
    /// Whether it begins with the start of the host.
    pub is_since_boot: bool,
    /// Where the CPUs' time went.
    pub cpu: Option<CpuShares>,
    /// The devices, in the order of the source.
    pub devices: Vec<Judged>,
    /// Groups of devices: arrays, and those named by hand.
    pub groups: Vec<GroupObserved>,
    /// Remarks on the interval as a whole.
    pub remarks: Vec<Remark>,
}

/// A device in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What it did.
    pub interval: DeviceInterval,
    /// Capacity use (U): the part of what the device can do that is done; above 1 where it does more than its model.
    /// `None` where nothing is known to compare with.
    pub capacity_use: Option<f64>,
    /// What the capacity is known from.
    pub capacity_basis: Basis,
    /// Queue saturation (S): the part of their time that requests wait, 0 to 1; `None` where no latency is known.
    pub saturation: Option<f64>,
    /// S of reads alone.
    pub read_saturation: Option<f64>,
    /// S of writes alone.
    pub write_saturation: Option<f64>,
    /// In one word.
    pub verdict: Verdict,
    /// One line of why, with the figures that decided.
    pub why: String,
    /// What the columns may make a reader believe wrongly.
    pub remarks: Vec<Remark>,
}

/// What the capacity of a device is known from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// A disk model, properties or a preset, by this name.
    Model(String),
    /// The highest rate that was seen so far: U is at most that of a lower bound.
    HighestSeen,
    /// Nothing.
    #[default]
    Unknown,
}

impl Basis {
    /// Which kind, as in JSON and metrics: lower case, words joined by hyphens. The model's name is no part of it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Basis::Model(_) => "model",
            Basis::HighestSeen => "highest-seen",
            Basis::Unknown => "unknown",
        }
    }
}

/// The state of a device or group in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Next to nothing is done.
    Idle,
    /// Work is done, and there is room for more.
    Ok,
    /// `%util` is near 100 and both U and S are low.
    BusyButFree,
    /// A group whose members do not carry equal parts.
    Imbalanced,
    /// Requests wait, though the device does less than it can: degraded or throttled.
    Degraded,
    /// As much is done as can be, and requests wait.
    Saturated,
    /// Requests are under way and none completes.
    Hung,
    /// What is known does not suffice.
    Unknown,
}

impl Verdict {
    /// All, in the order of their declaration.
    pub const ALL: [Verdict; 8] = [
        Verdict::Idle,
        Verdict::Ok,
        Verdict::BusyButFree,
        Verdict::Imbalanced,
        Verdict::Degraded,
        Verdict::Saturated,
        Verdict::Hung,
        Verdict::Unknown,
    ];

    /// As in JSON and metrics: lower case, words joined by hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Idle => "idle",
            Verdict::Ok => "ok",
            Verdict::BusyButFree => "busy-but-free",
            Verdict::Imbalanced => "imbalanced",
            Verdict::Degraded => "degraded",
            Verdict::Saturated => "saturated",
            Verdict::Hung => "hung",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Something to know when reading the figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Remark {
    /// Which kind, lower case, words joined by hyphens: `util-misleads`, `tick-bias`, `iowait-is-no-evidence`.
    pub code: &'static str,
    /// One sentence for people, with figures.
    pub message: String,
}

/// A group in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupObserved {
    /// Its name: that of the array, or the one given by hand.
    pub group: String,
    /// The members with their parts, in the order of the group.
    pub parts: Vec<Part>,
    /// How many devices do the work, as if each did an equal part: (sum x)^2 / sum x^2 over bytes moved. From 1 to the
    /// number of members; `None` where nothing was moved.
    pub effective_devices: Option<f64>,
    /// [`Verdict::Imbalanced`], or the worst of the members.
    pub verdict: Verdict,
    /// One line of why.
    pub why: String,
    /// Rotation of the hot device, stragglers.
    pub remarks: Vec<Remark>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The device.
    pub device: String,
    /// Its part of the bytes that the group moved, 0 to 1.
    pub bytes_share: f64,
    /// Its mean `await` in milliseconds.
    pub await_ms: Option<f64>,
}
