//! Output of `stat` for programs: the document of `iostat -o JSON` with our figures beside its columns, and CSV.
//!
//! # Why
//! Programs that read iostat's JSON should read ours unchanged, and find the verdict in the same place as the columns.
//!
//! # How it works
//! [`json`] writes one document in pieces: its head, an element for each interval as it happens, its tail. A program
//! that stops early writes the tail, and the document is whole. [`csv`] writes a line for each device of an interval.
//! Both render [`Observed`]; columns have two decimals, as in iostat, shares four. [`Selection`] filters devices.
//!
//! # Limits
//! Times are UTC. An unknown column is `null` in JSON and empty in CSV, where iostat prints 0.00. In JSON a device
//! without figures in an interval (it appeared, disappeared or was reset) is in `gaps`, not among the disks, so that
//! every disk that a reader finds has figures.
//!
//! # Example
//! ```
//! use plimsoll_observe::stat::Observed;
//! use plimsoll_observe::stat::host::Host;
//! use plimsoll_observe::stat::output::json;
//! let mut text = json::head(&Host::default(), Some("2026-03-14"))?;
//! text.push_str(&json::element(&Observed::default(), &[], true)?);
//! text.push_str(json::TAIL);
//! let document: serde_json::Value = serde_json::from_str(&text)?;
//! assert!(document["sysstat"]["hosts"][0]["statistics"][0]["disk"].is_array());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod csv;
pub mod json;

use serde::{Serialize as _, Serializer};

use super::interval::COLUMNS;
use super::{Columns, Judged, Observed, Verdict};

/// The devices of an interval to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub devices: Vec<String>,
    /// Whether to leave out devices that did nothing and have nothing under way.
    pub omit_idle: bool,
}

impl Selection {
    /// Removes the devices that are not selected. Groups stay.
    pub fn apply(&self, observed: &mut Observed) {
        observed.devices.retain(|judged| {
            let device = &judged.interval.device;
            let is_named = self.devices.is_empty() || self.devices.contains(device);
            is_named && !(self.omit_idle && is_idle(judged))
        });
    }
}

/// Joins the first `most` of the names, and counts the others: `a, b and 3 more`.
pub fn listed<N: ToString>(names: impl ExactSizeIterator<Item = N>, most: usize) -> String {
    let more = match names.len().saturating_sub(most) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.take(most).map(|name| name.to_string()).collect::<Vec<_>>().join(", ") + &more
}

/// Returns whether a device, so far as known, did nothing and has nothing under way. A device that appeared or
/// disappeared is not idle: the reader should see it.
fn is_idle(judged: &Judged) -> bool {
    let Columns { reads_per_s, writes_per_s, discards_per_s, flushes_per_s, .. } = judged.interval.columns;
    let is_still =
        [reads_per_s, writes_per_s, discards_per_s, flushes_per_s].into_iter().flatten().all(|rate| rate == 0.0);
    let waits = judged.interval.in_flight.is_some_and(|count| count > 0);
    is_still && !waits && judged.interval.gap.is_none() && judged.verdict != Verdict::Hung
}

/// Returns whether a verdict is a finding: requests wait, or a group does less than it can.
pub const fn says_no(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Saturated | Verdict::Degraded | Verdict::Hung | Verdict::Imbalanced)
}

/// Returns whether any verdict on a device or group of an interval is a finding, by [`says_no`].
pub fn has_finding(observed: &Observed) -> bool {
    let devices = observed.devices.iter().map(|judged| judged.verdict);
    devices.chain(observed.groups.iter().map(|group| group.verdict)).any(says_no)
}

/// Returns the columns of `iostat -x` by the keys of iostat's JSON, in its order.
pub(crate) fn keyed(columns: &Columns) -> impl Iterator<Item = (&'static str, Option<f64>)> + use<> {
    keyed_all(columns).take_while(|(key, _)| *key != "tps")
}

/// Returns the columns of [`keyed`], then those of short and old layouts.
pub(crate) fn keyed_all(columns: &Columns) -> impl Iterator<Item = (&'static str, Option<f64>)> + use<> {
    let columns = Columns { await_ms: columns.mean_await_ms(), ..*columns };
    COLUMNS.iter().map(|column| column.key).zip(columns.all())
}

/// Formats a time in UTC by a format of strftime; `None` for a time outside the representable years.
pub fn time(unix_ms: u64, format: &str) -> Option<String> {
    let timestamp = jiff::Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?;
    Some(timestamp.strftime(format).to_string())
}

/// Writes a share with four decimals; null if it is not known.
pub(super) fn serialize_share<S: Serializer>(share: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    rounded(*share, 4).serialize(serializer)
}

pub(super) fn rounded(value: Option<f64>, decimals: usize) -> Option<f64> {
    value.filter(|value| value.is_finite()).and_then(|value| format!("{value:.decimals$}").parse().ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Basis, CpuShares, DeviceInterval, Gap, GroupObserved, Part, Remark};
    use super::*;

    /// Returns a disk that did `reads_per_s` and nothing else.
    pub(crate) fn judged(device: &str, reads_per_s: f64, verdict: Verdict) -> Judged {
        let columns = Columns {
            reads_per_s: Some(reads_per_s),
            writes_per_s: Some(0.0),
            read_kib_per_s: Some(4.0 * reads_per_s),
            read_await_ms: Some(0.128_7),
            queue: Some(0.235),
            util_percent: Some(99.996),
            ..Columns::default()
        };

        Judged {
            interval: DeviceInterval { device: device.to_owned(), columns, in_flight: Some(0), gap: None },
            capacity_use: Some(0.123_456),
            capacity_basis: Basis::Model("i4i.2xlarge".to_owned()),
            saturation: Some(0.0),
            verdict,
            why: "a \"reason\", with a comma".to_owned(),
            remarks: vec![Remark { code: "util-misleads", message: "it does".to_owned() }],
            ..Judged::default()
        }
    }

    /// Returns an idle disk, a saturated one, one that appeared, and an array that is imbalanced.
    pub(crate) fn observed() -> Observed {
        let mut gone = judged("sdb", 0.0, Verdict::Unknown);
        gone.interval =
            DeviceInterval { device: "sdb".to_owned(), gap: Some(Gap::Appeared), ..DeviceInterval::default() };
        let part = |device: &str, bytes_share| Part { device: device.to_owned(), bytes_share, await_ms: None };

        Observed {
            end_unix_ms: Some(1_710_463_994_000),
            duration_s: Some(1.0),
            cpu: Some(CpuShares { user: 1.0 / 3.0, idle: 99.0, ..CpuShares::default() }),
            devices: vec![judged("sda", 0.0, Verdict::Idle), judged("nvme0n1", 1234.567, Verdict::Saturated), gone],
            groups: vec![GroupObserved {
                group: "md0".to_owned(),
                parts: vec![part("nvme0n1", 0.97), part("nvme1n1", 0.03)],
                effective_devices: Some(1.06),
                verdict: Verdict::Imbalanced,
                why: "one of two does the work".to_owned(),
                ..GroupObserved::default()
            }],
            ..Observed::default()
        }
    }

    #[test]
    fn what_is_left_out_did_nothing_or_has_another_name() {
        let names = |selection: &Selection| -> Vec<String> {
            let mut observed = observed();
            selection.apply(&mut observed);
            observed.devices.into_iter().map(|judged| judged.interval.device).collect()
        };

        let cases: [(&[&str], bool, &[&str]); 4] = [
            (&[], false, &["sda", "nvme0n1", "sdb"]),
            (&[], true, &["nvme0n1", "sdb"]),
            (&["sda", "nvme0n1"], false, &["sda", "nvme0n1"]),
            (&["sda"], true, &[]),
        ];
        for (devices, omit_idle, expected) in cases {
            let devices = devices.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(names(&Selection { devices, omit_idle }), expected);
        }

        let mut hung = judged("sdc", 0.0, Verdict::Hung);
        assert!(!is_idle(&hung));
        (hung.verdict, hung.interval.in_flight) = (Verdict::Unknown, Some(3));
        assert!(!is_idle(&hung), "three requests wait");
    }

    #[test]
    fn some_verdicts_say_no() {
        assert!(has_finding(&observed()));
        let mut quiet = observed();
        quiet.groups.clear();
        quiet.devices.retain(|judged| judged.verdict != Verdict::Saturated);
        assert!(!has_finding(&quiet));
        let no: Vec<Verdict> = Verdict::ALL.into_iter().filter(|verdict| says_no(*verdict)).collect();
        assert_eq!(no, [Verdict::Imbalanced, Verdict::Degraded, Verdict::Saturated, Verdict::Hung]);
    }
}
