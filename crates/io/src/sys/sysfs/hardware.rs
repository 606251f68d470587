//! The hardware of a disk: model, firmware, size, link, and whether its data outlives the machine.
//!
//! # Why
//! A figure can be compared only with the model, firmware and link width with which it was measured. In a cloud the
//! model also shows whether the data is lost when the instance stops, and whether the rate depends on credit.
//!
//! # How it works
//! `block/DISK/device` is the device behind the disk (for NVMe its controller), `device/device` the device to which
//! that is attached: for NVMe the PCI function, which reports its link. A link carries GT/s times lanes bits per
//! second, less its encoding: 8 of 10 bits are data at 2.5 and 5 GT/s, 128 of 130 at 8 to 32, 236 of 256 bytes from 64
//! on (PCI Express base specification).
//!
//! # Limits
//! The link is that of the disk's own port; a switch above it may be narrower. Protocol headers take some per cent
//! more. With NVMe multipath a disk belongs to a subsystem instead of a controller, and the link is unknown. A list
//! maps models to clouds ([`Keeping`]); models not on it are [`Keeping::Unknown`].
//!
//! # Example
//! An `Amazon EC2 NVMe Instance Storage` at `8.0 GT/s PCIe` with 4 lanes: 8e9 x 4 x 128 / 130 / 8 = 3 938 461 538 bytes
//! a second, data lost when the instance stops.

use std::path::Path;

use super::{parsed, size_bytes, text};

/// Properties of a disk; `None` if the kernel does not report one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The model as the disk reports it: `Samsung SSD 980 PRO 1TB`.
    pub model: Option<String>,
    /// Serial number (NVMe, virtio), or else SCSI's identifier (`wwid`).
    pub serial: Option<String>,
    /// Firmware revision.
    pub firmware: Option<String>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Capacity of its PCIe link in each direction, in bytes per second, after encoding.
    pub link_bytes_per_s: Option<u64>,
    /// Whether its data outlives the machine.
    pub keeping: Keeping,
}

/// Whether the data on a disk outlives the (virtual) machine, according to its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// The model does not show it; usual outside clouds.
    #[default]
    Unknown,
    /// A disk of the host. Its data is lost when the instance stops.
    Ephemeral,
    /// A volume behind the network. It outlives the instance; its rate is often limited, with bursts on credit.
    Network,
}

/// Models of the clouds' disks, as AWS, Google Cloud and Azure name them to a Linux guest, on NVMe and SCSI.
const CLOUD_MODELS: [(&str, Keeping); 8] = [
    ("Amazon EC2 NVMe Instance Storage", Keeping::Ephemeral),
    ("Amazon Elastic Block Store", Keeping::Network),
    ("nvme_card-pd", Keeping::Network),
    ("PersistentDisk", Keeping::Network),
    ("EphemeralDisk", Keeping::Ephemeral),
    ("Microsoft NVMe Direct Disk", Keeping::Ephemeral),
    ("Microsoft NVMe Direct Disk v2", Keeping::Ephemeral),
    ("MSFT NVMe Accelerator v1.0", Keeping::Network),
];

/// Reads the hardware of `disk` (a whole disk's name). Missing or unreadable files give `None`.
#[must_use]
pub fn hardware(root: &Path, disk: &str) -> Hardware {
    let directory = root.join("block").join(disk).join("device");
    let model = text(&directory, "model");
    Hardware {
        serial: text(&directory, "serial")
            .or_else(|| text(&root.join("block").join(disk), "serial"))
            .or_else(|| text(&directory, "wwid")),
        firmware: text(&directory, "firmware_rev").or_else(|| text(&directory, "rev")),
        size_bytes: size_bytes(root, disk),
        link_bytes_per_s: link_bytes_per_s(&directory.join("device")),
        keeping: model.as_deref().map_or(Keeping::Unknown, keeping),
        model,
    }
}

fn keeping(model: &str) -> Keeping {
    if let Some((_, keeping)) = CLOUD_MODELS.iter().find(|(known, _)| *known == model) {
        return *keeping;
    }
    // Google Cloud numbers its local disks: nvme_card, nvme_card0, nvme_card1.
    match model.strip_prefix("nvme_card") {
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => Keeping::Ephemeral,
        _ => Keeping::Unknown,
    }
}

/// Speeds of PCIe generations 1 to 6: the kernel's text, megatransfers per second and lane, and the fraction of the
/// bytes on the wire that is data.
const LINK_SPEEDS: [(&str, u64, (u64, u64)); 6] = [
    ("2.5", 2_500, (8, 10)),
    ("5.0", 5_000, (8, 10)),
    ("8.0", 8_000, (128, 130)),
    ("16.0", 16_000, (128, 130)),
    ("32.0", 32_000, (128, 130)),
    ("64.0", 64_000, (236, 256)),
];

/// Returns the capacity of a PCI function's link, from `16.0 GT/s PCIe` and a number of lanes.
fn link_bytes_per_s(function: &Path) -> Option<u64> {
    let lanes: u64 = parsed(function, "current_link_width")?;
    let line = text(function, "current_link_speed")?;
    // Kernels before 5.10 omit a zero after the point.
    let (speed, _) = line.split_once(" GT/s")?;
    let is_same = |known: &str| known == speed || known.strip_suffix(".0") == Some(speed);
    let (_, megabits_per_s, (data, of)) = LINK_SPEEDS.into_iter().find(|(known, ..)| is_same(known))?;
    let bits_per_s = (megabits_per_s * 1_000_000).checked_mul(lanes)?;
    let bytes_per_s = bits_per_s.checked_mul(data)? / of / 8;
    (bytes_per_s > 0).then_some(bytes_per_s)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Tree;
    use super::*;
    use std::io;

    #[test]
    fn a_link_carries_its_lanes_less_the_encoding() -> io::Result<()> {
        let tree = Tree::new("link")?;
        tree.disk("nvme0n1", 259, 0, 1 << 40)?;
        let cases = [
            ("2.5 GT/s PCIe\n", "1\n", Some(250_000_000)),
            ("5 GT/s\n", "4\n", Some(2_000_000_000)),
            ("8.0 GT/s PCIe\n", "4\n", Some(3_938_461_538)),
            ("16.0 GT/s PCIe\n", "4\n", Some(7_876_923_076)),
            ("64.0 GT/s PCIe\n", "4\n", Some(29_500_000_000)),
            ("Unknown\n", "4\n", None),
            ("16.0 GT/s PCIe\n", "0\n", None),
            ("16.0 GT/s PCIe\n", "18446744073709551615\n", None),
            ("16.0 GT/s PCIe\n", "", None),
            ("3.14 GT/s PCIe\n", "4\n", None),
        ];
        for (speed, width, expect) in cases {
            tree.file("devices/nvme0n1/device/device/current_link_speed", speed)?;
            tree.file("devices/nvme0n1/device/device/current_link_width", width)?;
            assert_eq!(hardware(tree.root(), "nvme0n1").link_bytes_per_s, expect, "{speed} {width}");
        }
        Ok(())
    }

    #[test]
    fn models_of_clouds_tell_whether_data_stays() {
        let cases = [
            ("Amazon EC2 NVMe Instance Storage", Keeping::Ephemeral),
            ("Amazon Elastic Block Store", Keeping::Network),
            ("nvme_card", Keeping::Ephemeral),
            ("nvme_card12", Keeping::Ephemeral),
            ("nvme_card-pd", Keeping::Network),
            ("PersistentDisk", Keeping::Network),
            ("Microsoft NVMe Direct Disk v2", Keeping::Ephemeral),
            ("Samsung SSD 980 PRO 1TB", Keeping::Unknown),
            ("Virtual Disk", Keeping::Unknown),
        ];
        for (model, expect) in cases {
            assert_eq!(keeping(model), expect, "{model}");
        }
    }

    #[test]
    fn what_is_missing_or_unreadable_is_none() -> io::Result<()> {
        let tree = Tree::new("hardware")?;
        assert_eq!(hardware(tree.root(), "nowhere"), Hardware::default());
        tree.disk("sda", 8, 0, 1 << 30)?;
        tree.file("devices/sda/device/model", "EphemeralDisk   \n")?;
        tree.file("devices/sda/device/rev", "1\n")?;
        let expect = Hardware {
            model: Some("EphemeralDisk".into()),
            serial: None,
            firmware: Some("1".into()),
            size_bytes: Some(1 << 30),
            link_bytes_per_s: None,
            keeping: Keeping::Ephemeral,
        };
        assert_eq!(hardware(tree.root(), "sda"), expect);
        tree.file("devices/sda/size", "huge\n")?;
        assert_eq!(hardware(tree.root(), "sda").size_bytes, None);
        Ok(())
    }
}
