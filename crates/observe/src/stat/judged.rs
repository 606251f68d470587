//! The judgement of an interval: the types that outputs, pages and metrics share.
//!
//! # Why
//! A table, a JSON document, a metric and a page must agree. They all render an [`Observed`].
//!
//! # How it works
//! Plain data. Shares are parts of 1, never percent; outputs turn them into percent.
//!
//! # Limits
//! Holds conclusions only: `capacity`, `saturation`, `verdict` and `groups` draw them.
//!
//! # Example
//! A disk at 100 %util with U 0.03 and S 0: [`Verdict::BusyButFree`], "97 % of its capacity is free".

use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};

use super::output::{rounded, serialize_share};
use super::{CpuShares, DeviceInterval};

/// One interval of a host, judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub end_unix_ms: Option<u64>,
    pub duration_s: Option<f64>,
    pub is_since_boot: bool,
    /// See [`Interval::may_be_since_boot`](super::Interval::may_be_since_boot).
    pub may_be_since_boot: bool,
    pub cpu: Option<CpuShares>,
    pub devices: Vec<Judged>,
    pub groups: Vec<GroupObserved>,
    pub remarks: Vec<Remark>,
}

impl Observed {
    /// Returns whether it is the mean since the start of the host; `None`: it may be one.
    pub(super) fn since_boot(&self) -> Option<bool> {
        (!self.may_be_since_boot).then_some(self.is_since_boot)
    }
}

/// A device in an interval, judged. Serializes to the keys that iostat's JSON does not have, without the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Judged {
    #[serde(skip)]
    pub interval: DeviceInterval,
    /// Capacity use (U): the part of the device's capacity that is used; above 1 if the device does more than its
    /// model, or more than when it was seen full. `None` if there is nothing to compare with.
    #[serde(serialize_with = "serialize_share")]
    pub capacity_use: Option<f64>,
    /// The source of the capacity.
    #[serde(flatten)]
    pub capacity_basis: Basis,
    /// Queue saturation (S): the part of their time that requests wait, 0 to 1; `None` where no latency is known.
    #[serde(serialize_with = "serialize_share")]
    pub saturation: Option<f64>,
    #[serde(serialize_with = "serialize_share")]
    pub read_saturation: Option<f64>,
    #[serde(serialize_with = "serialize_share")]
    pub write_saturation: Option<f64>,
    pub verdict: Verdict,
    /// The reason in one line, with the figures that decided.
    pub why: String,
    /// Wrong conclusions that the columns invite.
    #[serde(rename = "warnings")]
    pub remarks: Vec<Remark>,
}

/// The source of a device's capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// A disk model, properties or a preset of this name.
    Model(String),
    /// The rates seen so far: the highest, or those with requests waiting. The device may be able to do more.
    HighestSeen,
    /// Nothing to compare with.
    #[default]
    Unknown,
}

impl Basis {
    /// Returns the kind as in JSON and metrics, lower case with hyphens, without the model's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Basis::Model(_) => "model",
            Basis::HighestSeen => "highest-seen",
            Basis::Unknown => "unknown",
        }
    }

    /// Returns the name of the model, if the capacity is known from one.
    pub fn model(&self) -> Option<&str> {
        match self {
            Basis::Model(name) => Some(name),
            Basis::HighestSeen | Basis::Unknown => None,
        }
    }
}

impl Serialize for Basis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut keys = serializer.serialize_struct("Basis", 2)?;
        keys.serialize_field("capacity_basis", self.name())?;
        keys.serialize_field("capacity_model", &self.model())?;
        keys.end()
    }
}

/// The state of a device or group in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The device does next to nothing.
    Idle,
    /// The device works, and nothing shows that requests wait for it.
    Ok,
    /// `%util` looks high, and the device serves its requests quickly: few are under way, or U and S are low.
    BusyButFree,
    /// The members of a group do not carry equal parts.
    Imbalanced,
    /// Requests wait, though the device does less than it can: degraded or throttled.
    Degraded,
    /// The device does as much as it can, and requests wait.
    Saturated,
    /// Requests are under way and none completes.
    Hung,
    /// The known figures do not suffice.
    #[default]
    Unknown,
}

impl Verdict {
    /// All verdicts, in the order of their declaration.
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

    /// Returns the name as in JSON and metrics: lower case, words joined by hyphens.
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

/// A caution for the reader of the figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Remark {
    /// The kind, lower case, words joined by hyphens: `util-misleads`, `tick-bias`, `iowait-is-no-evidence`.
    pub code: &'static str,
    pub message: String,
}

/// A group in an interval, judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupObserved {
    /// The name of the array, or the one that the user gave.
    pub group: String,
    /// All members with their parts, in the order of the group; those that are not in the interval have none.
    #[serde(rename = "members")]
    pub parts: Vec<Part>,
    /// How many devices do the work, as if each did an equal part: (sum x)^2 / sum x^2 over bytes moved. From 1 to the
    /// number of members; `None` if nothing was moved, or what a member moved is not known.
    #[serde(serialize_with = "serialize_share")]
    pub effective_devices: Option<f64>,
    /// [`Verdict::Imbalanced`], or the worst of the members'.
    pub verdict: Verdict,
    pub why: String,
    /// Missing members, rotation of the hot device, lasting unevenness, stragglers.
    #[serde(rename = "warnings")]
    pub remarks: Vec<Remark>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    #[serde(rename = "disk_device")]
    pub device: String,
    /// Its part of the bytes that the group moved, 0 to 1; 0 if that is not known.
    #[serde(serialize_with = "serialize_part")]
    pub bytes_share: f64,
    #[serde(serialize_with = "serialize_share")]
    pub await_ms: Option<f64>,
}

fn serialize_part<S: Serializer>(part: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    rounded(Some(*part), 4).serialize(serializer)
}
