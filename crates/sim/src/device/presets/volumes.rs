//! Network volumes and the rules for provisioning them: `volumes.csv`.
//!
//! # Why
//! The rates of a volume depend on its size and on the paid performance, by rules of the provider. A model of "gp3"
//! without those rules would promise volumes that the provider does not sell.
//!
//! # How it works
//! A row holds the rules as numbers. [`Volume::provision`] applies them to a size, operations and bandwidth; each that
//! is not asked for has the row's base. First, the size must be within its limits. Then operations follow from the
//! size, or are those asked for, within their limits and their ratio to the size. Then bandwidth follows from the size
//! or the operations, or is that asked for, within its limits and its ratio to the operations. The result becomes caps
//! in front of a device with the greatest rates of its kind; a burst becomes a cap with credits, all of them there at
//! the start, in front of a device that is as fast as the burst. The figures of the preset are the base: the rates
//! after the credits are spent.
//!
//! # Limits
//! Volumes of AWS only. The limit of the instance to which a volume is attached is not known here. The credits by which
//! gp2 volumes of 170 to 334 GiB reach their bandwidth are not modelled: they have it always.
//!
//! # Example
//! ```
//! use plimsoll_sim::device::presets::{Provision, volumes};
//! let gp3 = volumes().iter().find(|volume| volume.name == "gp3").unwrap();
//! assert_eq!(gp3.preset().figures.read_iops.get(), Some(3000));
//! let ask = Provision { size_bytes: Some(20 << 30), iops: Some(16_000), bandwidth_bytes_per_s: None };
//! let refused = gp3.provision(&ask).unwrap_err().to_string();
//! assert!(refused.contains("500 IOPS for each GiB"), "{refused}");
//! ```

use std::sync::LazyLock;

use super::behaviour::Behaviour;
use super::build::Build;
use super::table::{Cells, rows};
use super::{Evidence, Preset, PresetError, PresetKind};
use crate::device::spec::{CapSpec, CapUnit};

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;
const GIB_PER_TIB: f64 = 1024.0;

/// MiB/s for each operation a second if only operations of at most 16 KiB still count as one (io1 beyond `mib_knee`).
const SMALL_OPERATION_MIB: f64 = 16.0 / 1024.0;

/// A request for a volume; `None` asks for its base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provision {
    /// Size of the volume, in bytes.
    pub size_bytes: Option<u64>,
    pub iops: Option<u64>,
    pub bandwidth_bytes_per_s: Option<u64>,
}

/// The rules of one kind of volume. GiB and MiB are binary; `None`: no such rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Volume {
    /// Name of the kind: `gp3`.
    pub name: &'static str,
    /// Default, least and greatest size, in GiB.
    pub size_gib: [f64; 3],
    /// Operations a second for each GiB, whatever is asked for.
    pub iops_per_gib: Option<f64>,
    /// Least operations a second; also the base if they can be asked for.
    pub iops_least: Option<f64>,
    /// Most operations a second.
    pub iops_most: f64,
    /// Most operations for each GiB; they can be asked for only if there is such a ratio.
    pub iops_ratio: Option<f64>,
    /// Operations a second while credits last.
    pub burst_iops: Option<f64>,
    /// Credits, in operations.
    pub burst_operations: Option<f64>,
    /// The longest request that counts as one operation, in KiB.
    pub operation_kib: u32,
    /// Least bandwidth in MiB/s; also the base if it can be asked for.
    pub mib_least: Option<f64>,
    /// Greatest bandwidth in MiB/s.
    pub mib_most: f64,
    /// Most MiB/s for each operation a second; bandwidth can be asked for only if there is such a ratio.
    pub mib_ratio: Option<f64>,
    /// MiB/s for each operation a second, whatever is asked for ...
    pub mib_per_iops: Option<f64>,
    /// ... up to this bandwidth; beyond it 16 KiB for each operation.
    pub mib_knee: Option<f64>,
    /// Volumes of at most this size, in GiB, ...
    pub small_gib: Option<f64>,
    /// ... have this bandwidth, in MiB/s.
    pub small_mib: Option<f64>,
    /// MiB/s for each TiB, whatever is asked for.
    pub mib_per_tib: Option<f64>,
    /// MiB/s for each TiB while credits last. There is a TiB of credits for each TiB.
    pub burst_mib_per_tib: Option<f64>,
    /// The provider promises this part of the performance, in per cent ...
    pub promised_pct: Option<f64>,
    /// ... for this part of a year, in per cent.
    pub promised_time_pct: Option<f64>,
    pub source: &'static str,
    /// Date of the rules: year, or year and month.
    pub date: &'static str,
    behaviour: &'static Behaviour,
}

/// The rate of a volume: the base, and the burst while credits last.
struct Rates {
    base: f64,
    burst: f64,
    credits: f64,
}

impl Rates {
    fn steady(rate: f64) -> Rates {
        Rates { base: rate, burst: rate, credits: 0.0 }
    }

    fn cap(&self, unit: CapUnit) -> CapSpec {
        // Without credits of its own, the burst lasts as long as the other limit's.
        let base_per_s = if self.has_burst() { self.base } else { self.burst };
        CapSpec { unit, base_per_s, burst_per_s: self.burst, credits: self.credits }
    }

    fn has_burst(&self) -> bool {
        self.credits > 0.0
    }
}

impl Volume {
    fn read(cells: &mut Cells) -> Option<Volume> {
        let name = cells.text()?;
        let behaviour = Behaviour::of_cell(cells)?;
        Some(Volume {
            name,
            behaviour,
            size_gib: [cells.number()?, cells.number()?, cells.number()?],
            iops_per_gib: cells.optional()?,
            iops_least: cells.optional()?,
            iops_most: cells.number()?,
            iops_ratio: cells.optional()?,
            burst_iops: cells.optional()?,
            burst_operations: cells.optional()?,
            operation_kib: cells.number()?,
            mib_least: cells.optional()?,
            mib_most: cells.number()?,
            mib_ratio: cells.optional()?,
            mib_per_iops: cells.optional()?,
            mib_knee: cells.optional()?,
            small_gib: cells.optional()?,
            small_mib: cells.optional()?,
            mib_per_tib: cells.optional()?,
            burst_mib_per_tib: cells.optional()?,
            promised_pct: cells.optional()?,
            promised_time_pct: cells.optional()?,
            source: cells.source()?,
            date: cells.date()?,
        })
    }

    /// Returns the volume with its default size and its base.
    pub fn preset(&self) -> Preset {
        let size_gib = self.size_gib[0];
        let operations = self.base_operations(size_gib);
        self.build(size_gib, &operations, &self.base_bandwidth(size_gib, operations.burst))
    }

    /// Returns the volume as asked for, under its own name.
    ///
    /// # Errors
    /// A request that the provider's rules forbid, with the rule.
    pub fn provision(&self, ask: &Provision) -> Result<Preset, PresetError> {
        let size_gib = ask.size_bytes.map_or(self.size_gib[0], |bytes| bytes as f64 / GIB);
        let [_, least, most] = self.size_gib;
        if !(least..=most).contains(&size_gib) {
            return Err(self.refused(format!("has {least} to {most} GiB, not {}", plain(size_gib))));
        }

        let operations = match ask.iops {
            None => self.base_operations(size_gib),
            Some(iops) => Rates::steady(self.operations(iops as f64, size_gib)?),
        };

        let bandwidth = match ask.bandwidth_bytes_per_s {
            None => self.base_bandwidth(size_gib, operations.burst),
            Some(bytes_per_s) => Rates::steady(self.bandwidth(bytes_per_s as f64 / MIB, operations.burst)?),
        };

        Ok(self.build(size_gib, &operations, &bandwidth))
    }

    /// Returns the operations asked for, if the rules allow them.
    fn operations(&self, iops: f64, size_gib: f64) -> Result<f64, PresetError> {
        let Some(ratio) = self.iops_ratio else {
            return Err(self.refused("gives operations by its size: ask for a size".to_owned()));
        };
        let (least, most) = (self.iops_least.unwrap_or(1.0), self.iops_most);
        if !(least..=most).contains(&iops) {
            return Err(self.refused(format!("gives {least} to {most} IOPS, not {iops}")));
        }
        if iops > ratio * size_gib {
            return Err(self.refused(format!(
                "gives at most {ratio} IOPS for each GiB: {} GiB carry {}; {iops} IOPS need at least {} GiB",
                plain(size_gib),
                (ratio * size_gib).floor(),
                (iops / ratio).ceil()
            )));
        }
        Ok(iops)
    }

    /// Returns the bandwidth asked for in MiB/s, if the rules allow it.
    fn bandwidth(&self, mib: f64, iops: f64) -> Result<f64, PresetError> {
        let Some(ratio) = self.mib_ratio else {
            return Err(self.refused("gives bandwidth by its size or its operations: ask for those".to_owned()));
        };
        let (least, most) = (self.mib_least.unwrap_or(1.0), self.mib_most);
        if !(least..=most).contains(&mib) {
            return Err(self.refused(format!("gives {least} to {most} MiB/s, not {}", plain(mib))));
        }
        if mib > ratio * iops {
            return Err(self.refused(format!(
                "gives at most {ratio} MiB/s for each operation a second: {iops} IOPS carry {} MiB/s; {} MiB/s need at \
                 least {} IOPS",
                plain(ratio * iops),
                plain(mib),
                (mib / ratio).ceil()
            )));
        }
        Ok(mib)
    }

    fn base_operations(&self, size_gib: f64) -> Rates {
        if self.iops_per_gib.is_none() && self.iops_least.is_none() {
            // Bytes and their credits decide: each operation may have the greatest length.
            let bytes = self.base_bandwidth(size_gib, 0.0);
            let operations = |mib: f64| (mib * 1024.0 / f64::from(self.operation_kib)).min(self.iops_most);
            return Rates { base: operations(bytes.base), burst: operations(bytes.burst), credits: 0.0 };
        }
        let least = self.iops_least.unwrap_or(0.0);
        let base = self.iops_per_gib.map_or(least, |per_gib| per_gib * size_gib).max(least).min(self.iops_most);
        match (self.burst_iops, self.burst_operations) {
            (Some(burst), Some(credits)) if burst > base => Rates { base, burst, credits },
            _ => Rates::steady(base),
        }
    }

    /// Returns the base bandwidth in MiB/s, with credits in MiB.
    fn base_bandwidth(&self, size_gib: f64, iops: f64) -> Rates {
        if let (Some(per_tib), Some(burst_per_tib)) = (self.mib_per_tib, self.burst_mib_per_tib) {
            let tib = size_gib / GIB_PER_TIB;
            let (base, burst) = ((per_tib * tib).min(self.mib_most), (burst_per_tib * tib).min(self.mib_most));
            let credits = if burst > base { size_gib * 1024.0 } else { 0.0 };
            return Rates { base, burst, credits };
        }
        if let (Some(small_gib), Some(small_mib)) = (self.small_gib, self.small_mib)
            && size_gib <= small_gib
        {
            return Rates::steady(small_mib);
        }
        let by_operations = self.mib_per_iops.map(|per_iops| {
            let long = (per_iops * iops).min(self.mib_knee.unwrap_or(f64::INFINITY));
            long.max(SMALL_OPERATION_MIB * iops)
        });
        Rates::steady(by_operations.or(self.mib_least).unwrap_or(self.mib_most).min(self.mib_most))
    }

    fn build(&self, size_gib: f64, operations: &Rates, bandwidth: &Rates) -> Preset {
        let bytes =
            Rates { base: bandwidth.base * MIB, burst: bandwidth.burst * MIB, credits: bandwidth.credits * MIB };
        let caps =
            [operations.cap(CapUnit::Operations { unit_bytes: self.operation_kib << 10 }), bytes.cap(CapUnit::Bytes)];

        let build = Build {
            disks: 1,
            disk_bytes: (size_gib * GIB).round() as u64,
            rates: [operations.burst, bytes.burst, operations.burst, bytes.burst],
            behaviour: self.behaviour,
            apart: true,
            spare: 0.0,
            caps: caps.into(),
        };

        let mut spec = build.spec();
        let has_burst = operations.has_burst() || bytes.has_burst();
        // A limit, not a speed: a lone request is served at once, however low the limit is.
        let rates = &mut spec.rates;
        (rates.read_iops, rates.write_iops) = (self.iops_most, self.iops_most);
        (rates.read_bytes_per_s, rates.write_bytes_per_s) = (self.mib_most * MIB, self.mib_most * MIB);

        Preset {
            name: self.name.to_owned(),
            kind: PresetKind::Volume,
            source: self.source,
            date: self.date,
            evidence: Evidence::Rated,
            spec,
            burst: has_burst.then(|| build.figures()),
            figures: Build { rates: [operations.base, bytes.base, operations.base, bytes.base], ..build }.figures(),
            mix_exponent_p: self.behaviour.mix_exponent_p,
            unloaded_latency_ns: self.behaviour.read_ns as u64,
            defaults: self.behaviour.defaults(),
            max_io_requests: None,
            suspect: None,
        }
    }

    fn refused(&self, rule: String) -> PresetError {
        PresetError::new(format!("{} {rule}", self.name))
    }
}

/// Rounds to at most one decimal.
fn plain(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

static VOLUMES: LazyLock<Vec<Volume>> = LazyLock::new(|| rows(include_str!("volumes.csv"), Volume::read));

/// Returns all kinds of volumes, in the order of the table.
pub fn volumes() -> &'static [Volume] {
    &VOLUMES
}
