//! A host's disks as metrics: the verdicts of `stat` on one interval, for Prometheus.
//!
//! # Why
//! `node_exporter` exports the kernel's counters, but not their meaning: how much of the capacity is used, whether
//! requests wait, whether one disk of an array does all the work. These metrics are the verdicts, beside `%util` for
//! contrast.
//!
//! # How it works
//! All metrics are gauges of the last interval, from [`Observed`]. An unknown value has no sample, never 0. A verdict
//! has one sample for each state, 1 for the present state and 0 for the others, as alert rules want them.
//!
//! # Limits
//! A scrape sees the last interval only; short trouble between two scrapes is in the intervals' record, not here. The
//! names have another prefix than those of [`plimsoll::metrics`], so both texts can share one page.
//!
//! # Example
//! ```
//! use plimsoll_observe::metrics::encode_host;
//! use plimsoll_observe::stat::{Basis, DeviceInterval, Judged, Observed, Verdict};
//! let disk = Judged {
//!     interval: DeviceInterval { device: "nvme0n1".to_owned(), ..DeviceInterval::default() },
//!     capacity_use: Some(0.93),
//!     capacity_basis: Basis::Model("i3en.3xlarge".to_owned()),
//!     saturation: Some(0.6),
//!     read_saturation: None,
//!     write_saturation: None,
//!     verdict: Verdict::Saturated,
//!     why: "93 % of its capacity is used, and requests wait 60 % of their time".to_owned(),
//!     remarks: Vec::new(),
//! };
//! let text = encode_host(&Observed { devices: vec![disk], ..Observed::default() });
//! assert!(text.contains("plimsoll_disk_capacity_use_ratio{device=\"nvme0n1\",basis=\"model\"} 0.93\n"));
//! assert!(text.contains("plimsoll_disk_verdict{device=\"nvme0n1\",verdict=\"saturated\"} 1\n"));
//! ```

use std::collections::BTreeSet;

use plimsoll::metrics::{Exposition, Kind};

use crate::stat::groups::imbalance;
use crate::stat::{GroupObserved, Judged, Observed, Remark, Verdict};

/// Returns the verdicts of an interval as one page, to be sent with [`plimsoll::metrics::CONTENT_TYPE`].
pub fn encode_host(observed: &Observed) -> String {
    let mut page = Exposition::default();
    of_interval(&mut page, observed);
    of_devices(&mut page, &observed.devices);
    of_groups(&mut page, &observed.groups);
    page.finish()
}

fn of_interval(page: &mut Exposition, observed: &Observed) {
    page.family("plimsoll_host_interval_seconds", "Length of the interval that the figures are of.", Kind::Gauge);
    known(page, &[], observed.duration_s);

    let help = "When that interval ended, in seconds since 1970.";
    page.family("plimsoll_host_interval_end_timestamp_seconds", help, Kind::Gauge);
    known(page, &[], observed.end_unix_ms.map(|ms| ms as f64 / 1000.0));
}

fn of_devices(page: &mut Exposition, devices: &[Judged]) {
    let named: Vec<(&str, &Judged)> = devices.iter().map(|device| (device.interval.device.as_str(), device)).collect();

    let help = "Part of the device's capacity that is used (U), by what the capacity is known from.";
    page.family("plimsoll_disk_capacity_use_ratio", help, Kind::Gauge);
    for (name, device) in &named {
        known(page, &[("device", name), ("basis", device.capacity_basis.name())], device.capacity_use);
    }

    let help = "Part of their time that requests wait (S), by direction.";
    page.family("plimsoll_disk_saturation_ratio", help, Kind::Gauge);
    for (name, device) in &named {
        known(page, &[("device", name), ("direction", "all")], device.saturation);
        known(page, &[("device", name), ("direction", "read")], device.read_saturation);
        known(page, &[("device", name), ("direction", "write")], device.write_saturation);
    }

    let help = "Part of the time in which anything was under way, as iostat's %util; says little of parallel devices.";
    page.family("plimsoll_disk_util_ratio", help, Kind::Gauge);
    for (name, device) in &named {
        known(page, &[("device", name)], device.interval.columns.util_percent.map(|percent| percent / 100.0));
    }

    page.family("plimsoll_disk_verdict", "1 for the device's state in one word, 0 for the others.", Kind::Gauge);
    named.iter().for_each(|(name, device)| verdicts(page, ("device", name), device.verdict));

    let help = "1 for what the device's columns may make a reader believe wrongly.";
    page.family("plimsoll_disk_remark", help, Kind::Gauge);
    named.iter().for_each(|(name, device)| codes(page, ("device", name), &device.remarks));
}

fn of_groups(page: &mut Exposition, groups: &[GroupObserved]) {
    page.family("plimsoll_disk_group_members", "Devices in the group.", Kind::Gauge);
    for group in groups {
        page.sample(&[("group", &group.group)], group.parts.len() as f64);
    }

    let help = "How many devices would do the group's work if each did an equal part.";
    page.family("plimsoll_disk_group_effective_devices", help, Kind::Gauge);
    for group in groups {
        known(page, &[("group", &group.group)], group.effective_devices);
    }

    let help = "By how much the busiest member's part of the bytes exceeds the mean part: 0 where all are equal.";
    page.family("plimsoll_disk_group_imbalance_ratio", help, Kind::Gauge);
    for group in groups {
        let shares: Vec<f64> = group.parts.iter().map(|part| part.bytes_share).collect();
        known(page, &[("group", &group.group)], imbalance(&shares));
    }

    let help = "Part of the group's bytes that the member moved.";
    page.family("plimsoll_disk_group_member_bytes_ratio", help, Kind::Gauge);
    for group in groups {
        for part in &group.parts {
            page.sample(&[("group", &group.group), ("device", &part.device)], part.bytes_share);
        }
    }

    page.family("plimsoll_disk_group_verdict", "1 for the group's state in one word, 0 for the others.", Kind::Gauge);
    groups.iter().for_each(|group| verdicts(page, ("group", &group.group), group.verdict));

    let help = "1 for what else was seen of the group, such as a straggler.";
    page.family("plimsoll_disk_group_remark", help, Kind::Gauge);
    groups.iter().for_each(|group| codes(page, ("group", &group.group), &group.remarks));
}

fn known(page: &mut Exposition, labels: &[(&str, &str)], value: Option<f64>) {
    value.into_iter().for_each(|value| page.sample(labels, value));
}

fn codes(page: &mut Exposition, whose: (&str, &str), remarks: &[Remark]) {
    let codes: BTreeSet<&str> = remarks.iter().map(|remark| remark.code).collect();
    codes.into_iter().for_each(|code| page.sample(&[whose, ("code", code)], 1.0));
}

fn verdicts(page: &mut Exposition, whose: (&str, &str), is: Verdict) {
    for verdict in Verdict::ALL {
        page.sample(&[whose, ("verdict", verdict.name())], f64::from(u8::from(verdict == is)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::{Basis, Columns, DeviceInterval, Part};

    fn remark(code: &'static str) -> Remark {
        Remark { code, message: "So it is.".to_owned() }
    }

    fn observed() -> Observed {
        let part = |device: &str, bytes_share| Part { device: device.to_owned(), bytes_share, await_ms: None };
        let columns = Columns { util_percent: Some(99.5), ..Columns::default() };
        let device = Judged {
            interval: DeviceInterval { device: "sda".to_owned(), columns, ..DeviceInterval::default() },
            capacity_use: Some(1.25),
            capacity_basis: Basis::HighestSeen,
            saturation: Some(0.5),
            write_saturation: Some(0.75),
            verdict: Verdict::BusyButFree,
            remarks: vec![remark("util-misleads"), remark("util-misleads")],
            ..Judged::default()
        };

        let group = GroupObserved {
            group: "md0".to_owned(),
            parts: vec![part("sda", 0.75), part("sdb", 0.25)],
            effective_devices: Some(1.6),
            verdict: Verdict::Imbalanced,
            remarks: vec![remark("straggler")],
            ..GroupObserved::default()
        };
        let (parts, effective_devices) = (vec![part("sdc", 0.0)], None);
        let still = GroupObserved { group: "md1".to_owned(), parts, effective_devices, ..group.clone() };

        Observed {
            duration_s: Some(10.0),
            end_unix_ms: Some(1_700_000_000_500),
            devices: vec![device],
            groups: vec![group, still],
            ..Observed::default()
        }
    }

    #[test]
    fn what_is_known_has_a_sample() {
        let text = encode_host(&observed());
        let lines = [
            r#"plimsoll_host_interval_seconds 10"#,
            r#"plimsoll_host_interval_end_timestamp_seconds 1700000000.5"#,
            r#"plimsoll_disk_capacity_use_ratio{device="sda",basis="highest-seen"} 1.25"#,
            r#"plimsoll_disk_saturation_ratio{device="sda",direction="all"} 0.5"#,
            r#"plimsoll_disk_saturation_ratio{device="sda",direction="write"} 0.75"#,
            r#"plimsoll_disk_util_ratio{device="sda"} 0.995"#,
            r#"plimsoll_disk_verdict{device="sda",verdict="busy-but-free"} 1"#,
            r#"plimsoll_disk_verdict{device="sda",verdict="saturated"} 0"#,
            r#"plimsoll_disk_group_effective_devices{group="md0"} 1.6"#,
            r#"plimsoll_disk_group_imbalance_ratio{group="md0"} 0.5"#,
            r#"plimsoll_disk_group_member_bytes_ratio{group="md0",device="sdb"} 0.25"#,
            r#"plimsoll_disk_group_verdict{group="md0",verdict="imbalanced"} 1"#,
            r#"plimsoll_disk_group_remark{group="md0",code="straggler"} 1"#,
        ];

        for line in lines {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert_eq!(text.matches("plimsoll_disk_remark{").count(), 1, "a code stands once");
    }

    #[test]
    fn what_is_not_known_has_none() {
        let text = encode_host(&observed());
        for absent in [r#"direction="read""#, r#"effective_devices{group="md1"}"#, r#"imbalance_ratio{group="md1"}"#] {
            assert!(!text.contains(absent), "{absent}\n{text}");
        }
        assert_eq!(encode_host(&Observed::default()), "");
    }
}
