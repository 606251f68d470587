//! The usual latencies and rates of a device's class, for devices without a model or a quiet interval.
//!
//! # Why
//! A single report of iostat must be judged, too. 20 ms are long on an NVMe disk and usual on one that spins.
//!
//! # How it works
//! [`Class::of`] uses the host's facts about the device, else its name. A class has a latency that a healthy device
//! with little to do stays below: a constant, plus the bytes at a rate.
//!
//! | class | devices | latency | and bytes at | slower than any |
//! |---|---|---|---|---|
//! | NVMe | `nvme*` | 0.3 ms | 1 GB/s | 5 000/s and 30 MB/s |
//! | SSD | known not to spin | 0.5 ms | 400 MB/s | 1 000/s and 40 MB/s |
//! | EBS | by model or kind | 3 ms | 200 MB/s | 39/s and 1.5 MB/s |
//! | Xen | `xvd*` | as EBS, which most of them are | | 2 900/s and 120 MB/s, of most |
//! | network | rbd, nbd, iSCSI ... | 3 ms | 200 MB/s | |
//! | virtual | `vd*`, `md*`, `loop*` | 3 ms | 200 MB/s | |
//! | memory | `zram*`, `ram*`, `pmem*` | 0.1 ms | 2 GB/s | |
//! | disk | all others, such as `sd*`, `dm-*` | 0.5 ms | 400 MB/s | |
//! | SSD or array | such a disk at rates that one that spins cannot reach, or with discards | 0.5 ms | 400 MB/s | |
//! | serial | spinning, `hd*`, `sr*`, `fd*`, `mmcblk*` | 15 ms | 150 MB/s | |
//!
//! The figures are bounds between classes and not ratings: data sheets of NVMe disks promise 0.07 to 0.15 ms for a
//! read, EBS 0.5 to 1 ms with a few at single digits, a disk of 7200 revolutions a minute 4 ms of half a turn and 8 ms
//! of seek. "Slower than any": the smallest local disk of a cloud (c6gd.medium) writes 6 000/s and 33 MB/s, consumer
//! disks in their steady state have more bytes. EBS sells volumes of 100 operations a second (gp2, io1, io2) and of 40
//! (st1); that most carry 3000/s and 125 MiB/s says nothing about a given one. A volume is `nvme*` by its name, too:
//! without facts the reason says so.
//!
//! # Limits
//! Virtual machines report most disks as spinning. For names and models of virtual disks that is ignored.
//!
//! # Example
//! `nvme0n1`, 38 KiB: 0.34 ms. 0.14 ms is quick there.

use super::super::{Columns, DeviceFacts};

/// How a device serves requests, as far as it matters for `%util`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One after the other on each of `spindles`.
    Serial {
        spindles: usize,
    },
    /// Not known whether it spins.
    Unknown,
    Parallel,
}

/// A class of devices: its usual latency, and the rates that it may be sold with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Class {
    pub(super) kind: Kind,
    /// With its article.
    pub(super) name: &'static str,
    /// Limits in operations a second that such devices are sold with.
    caps_per_s: &'static [f64],
    /// Whether such devices may be sold with a limit of bytes a second.
    may_be_capped_by_bytes: bool,
    /// Whether the device is known to be sold by rates: then a limit is its capacity.
    pub(super) is_sold_by_rate: bool,
    /// The usual latency: this constant, plus the bytes at `bytes_per_s`.
    latency_ms: f64,
    bytes_per_s: f64,
    /// Requests and bytes a second that every healthy device of the class carries.
    floor: Option<(f64, f64)>,
}

pub(super) const NVME: Class = Class {
    kind: Kind::Parallel,
    name: "an NVMe disk",
    caps_per_s: &CAPS_PER_S,
    may_be_capped_by_bytes: true,
    is_sold_by_rate: false,
    latency_ms: 0.3,
    bytes_per_s: 1e9,
    floor: Some((5e3, 30e6)),
};
const SSD: Class = Class {
    name: "an SSD",
    caps_per_s: &[],
    may_be_capped_by_bytes: false,
    latency_ms: 0.5,
    bytes_per_s: 400e6,
    floor: Some((1e3, 40e6)),
    ..NVME
};
const NETWORK: Class = Class { name: "a network disk", latency_ms: 3.0, bytes_per_s: 200e6, floor: None, ..NVME };
const CLOUD: Class = Class { is_sold_by_rate: true, ..NETWORK };
const EBS: Class = Class { name: "an EBS volume", floor: Some((39.0, 1.5e6)), ..CLOUD };
pub(super) const XEN: Class =
    Class { name: "a volume of a Xen guest", is_sold_by_rate: false, floor: Some((2.9e3, 120e6)), ..EBS };
const VIRTUAL: Class = Class { name: "a virtual disk", ..NETWORK };
const MEMORY: Class = Class { name: "memory", latency_ms: 0.1, bytes_per_s: 2e9, floor: None, ..SSD };
const DISK: Class = Class {
    kind: Kind::Unknown,
    name: "a disk that may spin or not",
    caps_per_s: &CAPS_OF_UNKNOWN_PER_S,
    floor: None,
    ..SSD
};
const NO_SPIN: Class = Class { kind: Kind::Parallel, name: "an SSD or array", ..DISK };
const SERIAL: Class = Class {
    kind: Kind::Serial { spindles: 1 },
    name: "a disk that serves one request after the other",
    latency_ms: 15.0,
    bytes_per_s: 150e6,
    floor: None,
    ..SSD
};

/// Amazon's volumes: part of their model name, in lower case, and their kind.
const EBS_MODEL: &str = "elastic block store";
const EBS_KIND: &str = "ebs";
/// Kinds of other disks that are sold by rates.
const CLOUD_KINDS: [&str; 2] = ["gcp-pd", "azure-disk"];
/// Parts of the model names of other disks that are sold by rates, in lower case.
const NETWORK_MODELS: [&str; 2] = ["persistentdisk", "nvme_card-pd"];
/// Parts of the model names of disks that a hypervisor provides, in lower case.
const VIRTUAL_MODELS: [&str; 4] = ["qemu", "virtual disk", "vbox", "virtual_disk"];

/// KiB below which requests are taken as random: a disk that spins completes at most [`RANDOM_PER_S`] of them a second.
const RANDOM_KIB: f64 = 64.0;
const RANDOM_PER_S: f64 = 1000.0;

/// Returns whether a device of this name is made of others, by md or the device mapper, and judged after the disks
/// beside it.
pub(in crate::stat) fn is_stacked(device: &str) -> bool {
    device.starts_with("dm-") || device.starts_with("md")
}

impl Class {
    /// Returns the class by [`Class::of`]. If that leaves open whether the device spins, its load decides.
    pub(super) fn of_busy(device: &str, facts: Option<&DeviceFacts>, columns: &Columns) -> Class {
        let class = Class::of(device, facts);
        if class.kind != Kind::Unknown {
            return class;
        }
        let per_s = columns.requests_per_s().unwrap_or(0.0);
        let bytes_per_s = columns.moved_kib_per_s().unwrap_or(0.0) * 1024.0;
        let is_random = bytes_per_s < per_s * RANDOM_KIB * 1024.0;
        let is_quick = bytes_per_s > super::SPIN_BYTES_PER_S || (is_random && per_s > RANDOM_PER_S);
        // Only an `sd*` is a single disk; others may consist of many disks that spin.
        let has_discards = columns.discards_per_s.is_some_and(|per_s| per_s > 0.0);
        if has_discards || (is_quick && device.starts_with("sd")) { NO_SPIN } else { class }
    }

    /// Returns whether the device is a disk behind SATA or SAS that does not spin.
    pub(super) fn is_sata_ssd(&self, device: &str) -> bool {
        device.starts_with("sd") && (self.name == SSD.name || self.name == NO_SPIN.name)
    }

    /// Returns the class by the host's facts, else by the device's name.
    pub(super) fn of(device: &str, facts: Option<&DeviceFacts>) -> Class {
        let begins = |starts: &[&str]| starts.iter().any(|start| device.starts_with(start));
        let model = facts.and_then(|facts| facts.model.as_deref()).unwrap_or_default().to_lowercase();
        let is_one_of = |names: &[&str]| names.iter().any(|name| model.contains(name));
        let remote = facts.and_then(|facts| facts.remote.as_ref()).map(|remote| remote.kind.as_str());

        // Volumes and virtual disks first: hosts often report them as spinning.
        if remote == Some(EBS_KIND) || model.contains(EBS_MODEL) {
            return EBS;
        }
        if remote.is_some_and(|kind| CLOUD_KINDS.contains(&kind)) || is_one_of(&NETWORK_MODELS) {
            return CLOUD;
        }
        if remote.is_some() {
            return NETWORK;
        }
        if begins(&["xvd"]) {
            return XEN;
        }
        if begins(&["rbd", "nbd", "drbd"]) {
            return NETWORK;
        }
        if begins(&["vd", "loop"]) || is_one_of(&VIRTUAL_MODELS) {
            return VIRTUAL;
        }
        if begins(&["zram", "ram", "pmem"]) {
            return MEMORY;
        }

        let spindles = facts.map_or(1, |facts| facts.members.len().max(1));
        match facts.and_then(|facts| facts.is_rotational) {
            Some(true) => Class { kind: Kind::Serial { spindles }, ..SERIAL },
            _ if begins(&["hd", "sr", "fd", "mmcblk"]) => SERIAL,
            _ if begins(&["nvme"]) => NVME,
            Some(false) => SSD,
            None if begins(&["md"]) => VIRTUAL,
            None => DISK,
        }
    }

    /// Returns the latency that requests of `size_kib` stay below on a healthy device with little to do, in
    /// milliseconds.
    pub(super) fn usual_ms(&self, size_kib: f64) -> f64 {
        self.latency_ms + size_kib.max(0.0) * 1024.0 / self.bytes_per_s * 1000.0
    }

    /// Returns whether the rates are below those that every healthy device of the class carries.
    pub(super) fn is_below_any(&self, requests_per_s: f64, kib_per_s: f64) -> bool {
        self.floor.is_some_and(|(requests, bytes)| requests_per_s < requests && kib_per_s * 1024.0 < bytes)
    }
}

/// Largest deviation of a rate that has the signature of a limit, as a part of the limit.
const CAP_TOLERANCE: f64 = 0.005;
/// Operations a second that volumes are sold with: Amazon's gp2, gp3 and io1, Azure's managed disks.
const CAPS_PER_S: [f64; 20] = [
    100.0, 120.0, 150.0, 240.0, 300.0, 500.0, 600.0, 1000.0, 1100.0, 1500.0, 2000.0, 2300.0, 3000.0, 4000.0, 5000.0,
    6000.0, 7500.0, 10_000.0, 12_000.0, 16_000.0,
];
/// Those limits that a cloud sets for a disk named `sd*`, and that no such disk has by itself.
const CAPS_OF_UNKNOWN_PER_S: [f64; 7] = [500.0, 1100.0, 2300.0, 3000.0, 5000.0, 7500.0, 16_000.0];
/// MiB or MB a second that volumes are sold with, and limits of the smaller instances.
const CAPS_MEGA_PER_S: [f64; 14] =
    [25.0, 40.0, 50.0, 60.0, 100.0, 125.0, 128.0, 150.0, 200.0, 250.0, 500.0, 593.75, 750.0, 1000.0];
/// Longest request, in KiB, that volumes count as one.
const CAP_UNIT_KIB: f64 = 256.0;
/// Bytes a second above which a local disk may be at its own limit, and a round figure is chance.
const OWN_BYTES_PER_S: f64 = 300e6;

/// Returns the limit whose signature the rates have, as text: `3,000 requests/s`. `None` if there is no such limit, or
/// the device may have that rate by itself.
pub(super) fn cap_signature(class: &Class, requests_per_s: f64, kib_per_s: f64) -> Option<String> {
    let near = |value: f64, cap: f64| (value / cap - 1.0).abs() <= CAP_TOLERANCE;
    let bytes_per_s = kib_per_s * 1024.0;
    let is_own = class.usual_ms(0.0) < 1.0 && bytes_per_s > OWN_BYTES_PER_S;
    if is_own {
        return None;
    }

    let is_counted_once = kib_per_s <= requests_per_s * CAP_UNIT_KIB;
    if is_counted_once && let Some(cap) = class.caps_per_s.iter().find(|cap| near(requests_per_s, **cap)) {
        return Some(format!("{} requests/s", plimsoll_figures::units::format_iops(*cap)));
    }

    if !class.may_be_capped_by_bytes {
        return None;
    }
    for mega in CAPS_MEGA_PER_S {
        for (unit, name) in [(f64::from(1 << 20), "MiB/s"), (1e6, "MB/s")] {
            if near(bytes_per_s, mega * unit) {
                return Some(format!("{mega} {name}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::super::Remote;
    use super::*;

    #[test]
    fn classes() {
        let known = |is_rotational: bool| DeviceFacts { is_rotational: Some(is_rotational), ..DeviceFacts::default() };
        let model = |model: &str| DeviceFacts { model: Some(model.to_owned()), ..known(true) };
        let remote = Remote { kind: "iscsi".to_owned(), link_bytes_per_s: None };

        let cases = [
            ("nvme0n1", None, NVME),
            ("nvme1c1n1", Some(known(false)), NVME),
            ("nvme1n1", Some(model("Amazon Elastic Block Store")), EBS),
            ("xvdf", None, XEN),
            ("xvdf", Some(model("Amazon Elastic Block Store")), EBS),
            ("sdb", Some(model("Google PersistentDisk")), CLOUD),
            ("sda", None, DISK),
            ("sda", Some(known(true)), SERIAL),
            ("sda", Some(known(false)), SSD),
            ("sda", Some(model("QEMU HARDDISK")), VIRTUAL),
            ("sda", Some(DeviceFacts { remote: Some(remote), ..known(true) }), NETWORK),
            ("vda", Some(known(true)), VIRTUAL),
            ("rbd0", None, NETWORK),
            ("sr0", None, SERIAL),
            ("md0", None, VIRTUAL),
            ("dm-3", None, DISK),
            ("zram0", Some(known(false)), MEMORY),
        ];
        for (device, facts, expected) in cases {
            assert_eq!(Class::of(device, facts.as_ref()), expected, "{device} {facts:?}");
        }

        let array = DeviceFacts { members: vec!["sda".to_owned(), "sdb".to_owned()], ..known(true) };
        assert_eq!(Class::of("md0", Some(&array)).kind, Kind::Serial { spindles: 2 });
    }

    #[test]
    fn what_a_disk_that_spins_cannot_do() {
        let load = |per_s: f64, kib: f64, discards: f64| Columns {
            reads_per_s: Some(per_s),
            read_kib_per_s: Some(per_s * kib),
            discards_per_s: Some(discards),
            ..Columns::default()
        };
        let cases = [
            ("sdb", load(2147.0, 512.0, 0.0), NO_SPIN),
            ("sdb", load(1500.0, 4.0, 0.0), NO_SPIN),
            ("sdb", load(1500.0, 128.0, 0.0), DISK),
            ("sdb", load(150.0, 4.0, 0.0), DISK),
            ("sdb", load(15.0, 4.0, 50.0), NO_SPIN),
            ("dm-0", load(1500.0, 4.0, 0.0), DISK),
            ("hda", load(1500.0, 4.0, 0.0), SERIAL),
        ];
        for (device, columns, expected) in cases {
            assert_eq!(Class::of_busy(device, None, &columns), expected, "{device} {columns:?}");
        }
    }

    #[test]
    fn nothing_that_is_sold_is_less_than_any_healthy_one() {
        use plimsoll_sim::device::presets::{Provision, drives, instances, volumes};
        let rates = |figures: &plimsoll_core::FourFigures| {
            let rate = |rate: plimsoll_core::Rate| rate.get().unwrap_or(u64::MAX) as f64;
            [
                (rate(figures.read_iops), rate(figures.read_bandwidth)),
                (rate(figures.write_iops), rate(figures.write_bandwidth)),
            ]
        };
        let check = |class: &Class, name: &str, [read, write]: [(f64, f64); 2]| {
            for (per_s, bytes_per_s) in [read, write] {
                for size_bytes in [512.0, 4096.0, 131_072.0, 1_048_576.0] {
                    let done_per_s = f64::min(per_s, bytes_per_s / size_bytes);
                    let is_below = class.is_below_any(done_per_s, done_per_s * size_bytes / 1024.0);
                    assert!(!is_below, "{name}: {done_per_s} requests/s of {size_bytes} bytes, {class:?}");
                }
            }
        };

        for row in instances() {
            let disks = row.n_disks.unwrap_or(1).max(1) as f64;
            let each = rates(&row.preset().figures).map(|(per_s, bytes)| (per_s / disks, bytes / disks));
            check(&NVME, row.name, each);
        }

        for row in drives() {
            let preset = row.preset();
            if preset.spec.hdd.is_none() {
                check(&SSD, &preset.name, rates(&preset.figures));
            }
        }

        for volume in volumes() {
            let least = volume.preset();
            check(&EBS, volume.name, rates(&least.figures));
            for iops in [100, 500, 1000] {
                let ask = Provision { iops: Some(iops), ..Provision::default() };
                if let Ok(sold) = volume.provision(&ask) {
                    check(&EBS, volume.name, rates(&sold.figures));
                }
            }
        }
    }

    #[test]
    fn signatures_of_limits() {
        let cases = [
            (NVME, 3_003.0, 48_000.0, Some("3,000 requests/s")),
            (NETWORK, 99.8, 400.0, Some("100 requests/s")),
            (NETWORK, 510.0, 128_010.0, Some("125 MiB/s")),
            (VIRTUAL, 247.0, 488_281.0, Some("500 MB/s")),
            (NVME, 72_914.0, 291_658.0, None),
            (NVME, 1_000.0, 512_000.0, None),
            (NVME, 1_500.0, 384_000.0, None),
            // A disk that spins does 100 requests/s or 125 MiB/s by itself, but not 3000 requests/s.
            (DISK, 100.0, 400.0, None),
            (DISK, 3_000.0, 12_000.0, Some("3,000 requests/s")),
            (DISK, 250.0, 128_000.0, None),
            (SERIAL, 500.0, 2_000.0, None),
        ];
        for (class, requests, kib, expected) in cases {
            let found = cap_signature(&class, requests, kib);
            assert_eq!(found.as_deref(), expected, "{class:?} {requests}");
        }
    }
}
