//! Collects all that is known of a preset in one flat record.
//!
//! **Why.** A figure is only useful with its source, its date and its meaning.
//!
//! **How.** [`PresetInfo::of`] collects row and model. Figures are given for one disk and for all; `defaults` names the
//! values without a source. [`properties`] prints an io-properties file of the whole.
//!
//! **Limits.** An array has no vCPUs, memory or network: those belong to a single instance.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::presets::{PresetInfo, resolve};
//! let info = PresetInfo::of(&resolve("i7ie.24xlarge")?);
//! assert_eq!((info.disks, info.basis), (Some(8), "instance_total"));
//! assert_eq!(info.total.read_iops, 1_770_378);
//! assert!(info.defaults.contains(&"read_latency"));
//! # Ok::<(), plimsoll_files::presets::ResolveError>(())
//! ```

use plimsoll_core::{CostForm, FourFigures};
use plimsoll_figures::units::{format_count, format_throughput_decimal};
use plimsoll_sim::device::CapSpec;
use plimsoll_sim::device::presets::{Preset, PresetKind};
use serde::Serialize;

use super::{AdvertisedBasis, Basis, Resolved, Row};
use crate::four::Four;
use crate::io_properties::{self, DiskProperties};

/// Returns rates as plain numbers; an unlimited rate is the largest figure of a file.
fn figures_of(figures: &FourFigures) -> Four<u64> {
    Four::of(figures).map(|rate| rate.get().unwrap_or(io_properties::MAX_FIGURE))
}

/// A limit that reads and writes share, with or without credits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cap {
    /// `operations` or `bytes`.
    pub unit: &'static str,
    /// Units per second without credits.
    pub base_per_s: f64,
    /// Units per second with credits.
    pub burst_per_s: f64,
    /// Credits at the start, in units; 0: none.
    pub credits: f64,
}

/// A preset. `None`: not known, or does not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PresetInfo {
    pub name: String,
    /// `instance`, `drive` or `volume`.
    pub kind: &'static str,
    /// The cloud of an instance: `aws`, `azure`, `gcp` or `oci`.
    pub cloud: Option<&'static str>,
    /// The family of an instance: its name without the size.
    pub family: Option<String>,
    /// The maker's name of a drive.
    pub title: Option<&'static str>,
    /// Number of disks: members of an array times disks of a member.
    pub disks: Option<u32>,
    /// The basis of the source: figures `per_disk`, or `instance_total`.
    pub basis: &'static str,
    /// The figures of one disk; `None` if the number of disks is not known.
    pub per_disk: Option<Four<u64>>,
    pub total: Four<u64>,
    /// The figures of all disks while credits last, of a volume with a burst; `total` holds without credits.
    pub burst: Option<Four<u64>>,
    /// 4 KiB reads per second of all disks that the provider advertises.
    pub advertised_read_iops: Option<u64>,
    /// 4 KiB writes per second of all disks that the provider advertises.
    pub advertised_write_iops: Option<u64>,
    /// Whether the provider states these figures (`stated`), or they were `inferred` from measured ones.
    pub advertised_basis: Option<&'static str>,
    pub capacity_bytes: Option<u64>,
    pub vcpus: Option<u32>,
    pub memory_gib: Option<f64>,
    /// Guaranteed network rate, in Gb/s.
    pub network_gbps: Option<f64>,
    /// p in (r/R)^p + (w/W)^p = 1; `None`: reads and writes do not disturb each other.
    pub mix_exponent: Option<f64>,
    /// Median of a small read on the idle disk, in us.
    pub unloaded_read_us: f64,
    /// Median of a small write on the idle disk, in us.
    pub unloaded_write_us: f64,
    /// Those of `mix_exponent`, `read_latency`, `write_latency`, `capacity`, `disks` that have no source; the model
    /// uses the values of its generation.
    pub defaults: Vec<&'static str>,
    /// The limits of a volume with a burst, once its credits are used up.
    pub caps: Vec<Cap>,
    /// Part of a volume's performance that the provider promises, in per cent ...
    pub promised_pct: Option<f64>,
    /// ... and the part of a year for which it is promised, in per cent.
    pub promised_time_pct: Option<f64>,
    /// `measured`, `rated` or `derived`.
    pub evidence: &'static str,
    pub source: &'static str,
    /// Date of the figures: year, or year and month.
    pub date: &'static str,
    /// Why a figure is doubtful.
    pub suspect: Option<&'static str>,
}

impl PresetInfo {
    pub fn of(resolved: &Resolved) -> PresetInfo {
        let Resolved { preset, count, row, .. } = resolved;
        let mut info = PresetInfo::of_model(preset);

        match row {
            Row::Instance(row) => {
                info.cloud = Some(row.cloud);
                info.family = Some(row.family());
                info.basis = row.basis.name();
                let advertised = |at: usize| row.advertised_iops.map(|iops| iops[at].saturating_mul(u64::from(*count)));
                (info.advertised_read_iops, info.advertised_write_iops) = (advertised(0), advertised(1));
                info.advertised_basis = row.advertised_basis.map(AdvertisedBasis::name);
                if *count == 1 {
                    (info.vcpus, info.memory_gib, info.network_gbps) = (row.vcpus, row.memory_gib, row.network_gbps);
                }
            }
            Row::Drive(row) => info.title = Some(row.title),
            Row::Volume(row) => {
                (info.promised_pct, info.promised_time_pct) = (row.promised_pct, row.promised_time_pct);
            }
        }
        info
    }

    fn of_model(preset: &Preset) -> PresetInfo {
        let spec = &preset.spec;
        let is_known = |what: &str| !preset.defaults.contains(&what);
        let (members, total) = (spec.raid0.members, figures_of(&preset.figures));
        let network_ns = spec.network_rtt_ns as f64;

        PresetInfo {
            name: preset.name.clone(),
            kind: preset.kind.name(),
            disks: is_known("disks").then_some(members),
            basis: Basis::PerDisk.name(),
            per_disk: is_known("disks").then(|| total.map(|figure| figure / u64::from(members.max(1)))),
            total,
            burst: preset.burst.as_ref().map(figures_of),
            capacity_bytes: is_known("capacity").then_some(spec.capacity_bytes),
            mix_exponent: preset.mix_exponent_p.is_finite().then_some(preset.mix_exponent_p),
            unloaded_read_us: (spec.latency.read_ns + network_ns) / 1e3,
            unloaded_write_us: (spec.latency.write_ns + network_ns) / 1e3,
            defaults: preset.defaults.clone(),
            caps: spec.caps.iter().filter(|cap| cap.credits > 0.0).map(Cap::of).collect(),
            evidence: preset.evidence.name(),
            source: preset.source,
            date: preset.date,
            suspect: preset.suspect,
            ..PresetInfo::default()
        }
    }

    /// Describes for people the rates of a volume with a burst while credits last.
    pub fn burst_text(&self) -> Option<String> {
        let burst = self.burst.as_ref()?;
        let (operations, bytes) =
            (format_count(burst.read_iops), format_throughput_decimal(burst.read_bandwidth as f64));
        Some(format!("a burst of {operations} operations a second and {bytes} while credits last"))
    }
}

impl Cap {
    pub(crate) fn of(cap: &CapSpec) -> Cap {
        let CapSpec { base_per_s, burst_per_s, credits, .. } = *cap;
        Cap { unit: cap.unit.name(), base_per_s, burst_per_s, credits }
    }
}

/// Returns an io-properties file with the figures of all disks of a preset, mounted at `mountpoint`; Seastar reads it
/// too.
pub fn properties(preset: &PresetInfo, mountpoint: &str) -> String {
    let figures = preset.total.map(|figure| figure.clamp(1, io_properties::MAX_FIGURE));
    // A volume limits operations and bytes apart, each for reads and writes together.
    let is_volume = preset.kind == PresetKind::Volume.name();
    let disk = DiskProperties {
        mountpoints: vec![mountpoint.to_owned()],
        read_iops: figures.read_iops,
        write_iops: figures.write_iops,
        read_bandwidth_bytes_per_s: figures.read_bandwidth,
        write_bandwidth_bytes_per_s: figures.write_bandwidth,
        read_saturation_bytes: None,
        write_saturation_bytes: None,
        physical_block_bytes: None,
        duplex: false,
        rate_factor: 1.0,
        capacity_scale_max: 1.0,
        form: is_volume.then_some(CostForm::Max),
        mix_exponent_p: if is_volume { 1.0 } else { preset.mix_exponent.unwrap_or(f64::INFINITY) },
        unloaded_latency_ns: (preset.unloaded_read_us * 1e3) as u64,
        read_depths: Vec::new(),
        write_depths: Vec::new(),
        doubtful: Vec::new(),
    };

    // A line feed in the name would end the comment.
    let name: String = preset.name.chars().filter(|c| !c.is_control()).collect();
    let mut text = format!("# {name}: {}, {}; {}\n", preset.evidence, preset.date, preset.source);
    if let Some(reason) = preset.suspect {
        text += &format!("# suspect: {reason}\n");
    }
    if let Some(burst) = preset.burst_text() {
        text += &format!("# the base; not in it: {burst}\n");
    }
    text + &io_properties::write(&[disk])
}

#[cfg(test)]
mod tests {
    use super::super::{all, resolve};
    use super::*;

    fn info(text: &str) -> PresetInfo {
        PresetInfo::of(&resolve(text).unwrap())
    }

    #[test]
    fn one_disk_and_all_of_them() {
        let i4i = info("2xi4i.8xlarge");
        assert_eq!(i4i.disks, Some(4));
        assert_eq!(i4i.per_disk.map(|figures| figures.read_iops), Some(384_561));
        assert_eq!((i4i.total.read_iops, i4i.capacity_bytes), (4 * 384_561, Some(4 * 3750 * 1_000_000_000)));
        assert_eq!((i4i.advertised_read_iops, i4i.vcpus), (Some(1_600_000), None));
        let azure = info("standard_l8s_v3");
        assert_eq!((azure.disks, azure.per_disk, azure.capacity_bytes), (None, None, None));
        assert_eq!((azure.vcpus, azure.memory_gib), (Some(8), Some(64.0)));
        assert_eq!(azure.defaults, ["mix_exponent", "read_latency", "write_latency", "capacity", "disks"]);
    }

    #[test]
    fn volumes_say_what_comes_after_the_burst() {
        let gp2 = info("gp2");
        assert_eq!(gp2.caps, [Cap { unit: "operations", base_per_s: 300.0, burst_per_s: 3000.0, credits: 5.4e6 }]);
        assert_eq!((gp2.total.read_iops, gp2.burst.map(|burst| burst.read_iops)), (300, Some(3000)));
        let yaml = properties(&gp2, "/mnt");
        assert!(yaml.contains("burst of 3,000 operations") && yaml.contains("read_iops: 300"), "{yaml}");
        assert_eq!((gp2.unloaded_read_us, gp2.unloaded_write_us), (700.0, 900.0));
        let gp3 = info("gp3");
        assert_eq!((gp3.mix_exponent, gp3.promised_pct, gp3.promised_time_pct), (None, Some(90.0), Some(99.0)));
    }

    #[test]
    fn files_can_be_read_again() {
        for preset in &all() {
            let text = properties(preset, "/mnt");
            let read = io_properties::parse("io.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(read.disks[0].read_iops, preset.total.read_iops, "{}", preset.name);
            assert_eq!(read.disks[0].write_bandwidth_bytes_per_s, preset.total.write_bandwidth, "{}", preset.name);
        }
    }
}
