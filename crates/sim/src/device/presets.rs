//! Devices that one can name: what they are rated at, and a model of them.
//!
//! # Why
//! "What would this schedule do on an i4i.2xlarge" should not need an i4i.2xlarge.
//!
//! # How it works
//! Each row gives the figures of *one* disk, how many there are, and what is known of its behaviour. Rates by size are
//! those that a measuring tool would find with the device saturated; the figures of a preset are those of all its
//! disks.
//!
//! Sources. Instances: the figures measured by iotune that ScyllaDB's machine images ship (per disk for i3, i3en and
//! i4i; for i7i they are totals of the instance, divided here by the number of disks), as of June 2026. Mix exponents,
//! latencies and interference of i3, i3en, i4i: fitted to the read-latency surfaces that ScyllaDB published with
//! diskplorer (2021-2022). SSDs: data sheets. Network volumes: the provider's documentation.
//!
//! # Limits
//! Where nothing was published the latency is that of its generation: 90 us for NVMe flash of 2023. Only the 983 DCT
//! models garbage collection (a full disk); switch it on for others in [`DeviceSpec::flash`](super::FlashSpec).
//! Latencies under load are fitted for i3 and i3en alone. 850 PRO writes are those of a fresh disk.
//!
//! # Example
//! ```
//! use plimsoll_sim::device::presets;
//! let preset = presets::find("i3en.24xlarge").unwrap();
//! assert_eq!(preset.spec.raid0.members, 8);
//! assert_eq!(preset.figures.read_iops.get(), Some(8 * 257_024));
//! assert!(presets::names().any(|name| name == "gp3"));
//! ```

use plimsoll_core::{FourFigures, Rate};

use super::flash::amplification_at;
use super::spec::*;

const GB: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const IOTUNE: &str = "iotune, as shipped with ScyllaDB machine images";

/// A named device.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name, as on a command line.
    pub name: &'static str,
    /// Where the figures come from.
    pub source: &'static str,
    /// As of when (year, or year and month).
    pub date: &'static str,
    /// The model.
    pub spec: DeviceSpec,
    /// What iotune would write for the whole device.
    pub figures: FourFigures,
    /// p in (r/R)^p + (w/W)^p = 1; infinite for independent directions.
    pub mix_exponent_p: f64,
    /// Median of a small read on the idle device, in ns.
    pub unloaded_latency_ns: u64,
}

/// One row: figures are of one disk.
struct Row {
    name: &'static str,
    source: &'static str,
    date: &'static str,
    disks: u32,
    disk_bytes: u64,
    read_iops: f64,
    read_bytes_per_s: f64,
    write_iops: f64,
    write_bytes_per_s: f64,
    p: f64,
    read_ns: f64,
    write_ns: f64,
    kind: Kind,
}

/// What a row is built as.
#[derive(Clone, Copy)]
enum Kind {
    /// Longest program, whether reads suspend it, the chance to meet it, independent channels (0: one queue); spare
    /// space of a full disk of which the write operations are those of the steady state (0: a fresh disk).
    Flash { program_ns: f64, suspend: bool, block_probability: f64, channels: u32, spare: f64 },
    /// A volume with operations of at most 256 KiB and, where not 0, base rate and credits.
    Network { base_iops: f64, credits: f64 },
    /// A hard disk.
    Arm,
}

/// A program that reads wait for, of which the load by writes decides the length.
const SUSPENDING: Kind =
    Kind::Flash { program_ns: 550e3, suspend: true, block_probability: 0.7, channels: 8, spare: 0.0 };
/// A program that no read interrupts.
const BLOCKING: Kind =
    Kind::Flash { program_ns: 2.6e6, suspend: false, block_probability: 0.35, channels: 8, spare: 0.0 };
/// Newer drives: shorter programs, and a knee at the very end.
const NITRO: Kind = Kind::Flash { program_ns: 250e3, suspend: true, block_probability: 0.7, channels: 0, spare: 0.0 };

const ROWS: [Row; 11] = [
    Row {
        name: "i3.2xlarge",
        source: IOTUNE,
        date: "2026-06",
        disks: 1,
        disk_bytes: 1900 * GB,
        read_iops: 411_200.0,
        read_bytes_per_s: 2_015_342_735.0,
        write_iops: 181_500.0,
        write_bytes_per_s: 808_775_652.0,
        p: 0.6,
        read_ns: 99e3,
        write_ns: 25e3,
        kind: BLOCKING,
    },
    Row { name: "i3en.3xlarge", disks: 1, ..I3EN },
    Row { name: "i3en.24xlarge", disks: 8, ..I3EN },
    Row {
        name: "i4i.2xlarge",
        source: IOTUNE,
        date: "2026-06",
        disks: 1,
        disk_bytes: 1875 * GB,
        read_iops: 218_786.0,
        read_bytes_per_s: 1_542_559_872.0,
        write_iops: 121_499.0,
        write_bytes_per_s: 1_130_867_072.0,
        p: 2.2,
        read_ns: 100e3,
        write_ns: 20e3,
        kind: NITRO,
    },
    // A third of 1 446 023, 12 800 154 624, 992 098, 10 147 609 600.
    Row { name: "i7i.12xlarge", disks: 3, ..I7I },
    // No figures were published for this size: twelve disks, each with a sixth of those of i7i.24xlarge.
    Row {
        name: "i7i.48xlarge",
        source: "twice the i7i.24xlarge of iotune, as shipped with ScyllaDB machine images",
        disks: 12,
        read_iops: 2_647_697.0 / 6.0,
        read_bytes_per_s: 26_121_177_088.0 / 6.0,
        write_iops: 2_002_573.0 / 6.0,
        write_bytes_per_s: 19_944_206_336.0 / 6.0,
        ..I7I
    },
    Row {
        name: "850-pro",
        source: "Samsung 850 PRO data sheet; random writes hold on a fresh disk only",
        date: "2014",
        disks: 1,
        disk_bytes: 512 * GB,
        read_iops: 100_000.0,
        read_bytes_per_s: 550e6,
        write_iops: 90_000.0,
        write_bytes_per_s: 520e6,
        // One half-duplex SATA link: what one direction takes the other lacks.
        p: 1.0,
        // 10 000 reads and 36 000 writes a second, one at a time.
        read_ns: 100e3,
        write_ns: 27.8e3,
        kind: Kind::Flash { program_ns: 600e3, suspend: false, block_probability: 0.5, channels: 0, spare: 0.0 },
    },
    Row {
        name: "983-dct",
        source: "Samsung 983 DCT 1.92 TB data sheet; sustained random writes",
        date: "2018",
        disks: 1,
        disk_bytes: 1920 * GB,
        read_iops: 540_000.0,
        read_bytes_per_s: 3e9,
        write_iops: 50_000.0,
        write_bytes_per_s: 1.9e9,
        p: 1.2,
        read_ns: 85e3,
        write_ns: 50e3,
        kind: Kind::Flash { program_ns: 550e3, suspend: true, block_probability: 0.5, channels: 0, spare: 0.07 },
    },
    Row {
        name: "gp2",
        source: "AWS documentation of EBS, 100 GiB: 300 operations a second, 5.4 million credits, burst of 3000",
        date: "2025",
        disks: 1,
        disk_bytes: 100 << 30,
        read_iops: 3000.0,
        read_bytes_per_s: (128 * MIB) as f64,
        write_iops: 3000.0,
        write_bytes_per_s: (128 * MIB) as f64,
        p: 1.0,
        read_ns: 700e3,
        write_ns: 900e3,
        kind: Kind::Network { base_iops: 300.0, credits: 5.4e6 },
    },
    Row {
        name: "gp3",
        source: "AWS documentation of EBS, provisioned to the most; latency from a diskplorer plot of r5b.2xlarge",
        date: "2022",
        disks: 1,
        disk_bytes: 1000 * GB,
        read_iops: 16_000.0,
        read_bytes_per_s: 1e9,
        write_iops: 16_000.0,
        write_bytes_per_s: 1e9,
        p: f64::INFINITY,
        read_ns: 450e3,
        write_ns: 600e3,
        kind: Kind::Network { base_iops: 0.0, credits: 0.0 },
    },
    Row {
        name: "hdd",
        source: "a disk of 7200 revolutions a minute: seeks of 0.8 to 16 ms",
        date: "2026",
        disks: 1,
        disk_bytes: 4000 * GB,
        // A commonplace mean: 0.8 + 15.2 * 8/15 (the mean square root of a random distance) + half a turn = 13.07 ms.
        read_iops: 76.0,
        read_bytes_per_s: 200e6,
        write_iops: 76.0,
        write_bytes_per_s: 200e6,
        p: 1.0,
        read_ns: 13.07e6,
        write_ns: 13.07e6,
        kind: Kind::Arm,
    },
];

const I3EN: Row = Row {
    name: "i3en",
    source: IOTUNE,
    date: "2026-06",
    disks: 1,
    disk_bytes: 7500 * GB,
    read_iops: 257_024.0,
    read_bytes_per_s: 2_043_674_624.0,
    write_iops: 174_080.0,
    write_bytes_per_s: 1_024_458_752.0,
    p: 1.2,
    read_ns: 138e3,
    write_ns: 30e3,
    kind: SUSPENDING,
};

const I7I: Row = Row {
    name: "i7i",
    source: IOTUNE,
    date: "2026-06",
    disks: 1,
    disk_bytes: 3750 * GB,
    read_iops: 1_446_023.0 / 3.0,
    read_bytes_per_s: 12_800_154_624.0 / 3.0,
    write_iops: 992_098.0 / 3.0,
    write_bytes_per_s: 10_147_609_600.0 / 3.0,
    p: 2.2,
    read_ns: 90e3,
    write_ns: 15e3,
    kind: NITRO,
};

/// The names of all presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// The preset of that name, in lower case as in [`names`].
#[must_use]
pub fn find(name: &str) -> Option<Preset> {
    ROWS.iter().find(|row| row.name == name).map(Row::preset)
}

impl Row {
    fn preset(&self) -> Preset {
        let total = |rate: f64| Rate::per_second((rate * f64::from(self.disks)).round() as u64);
        Preset {
            name: self.name,
            source: self.source,
            date: self.date,
            spec: self.spec(),
            figures: FourFigures {
                read_iops: total(self.read_iops),
                read_bandwidth: total(self.read_bytes_per_s),
                write_iops: total(self.write_iops),
                write_bandwidth: total(self.write_bytes_per_s),
            },
            mix_exponent_p: self.p,
            unloaded_latency_ns: self.read_ns as u64,
        }
    }

    fn spec(&self) -> DeviceSpec {
        let mut spec = DeviceSpec {
            capacity_bytes: u64::from(self.disks) * self.disk_bytes,
            rates: RateSpec {
                read_iops: self.read_iops,
                read_bytes_per_s: self.read_bytes_per_s,
                write_iops: self.write_iops,
                write_bytes_per_s: self.write_bytes_per_s,
                ..RateSpec::default()
            },
            latency: LatencySpec { read_ns: self.read_ns, write_ns: self.write_ns, per_kib_ns: 0.0, sigma: 0.13 },
            mix_exponent_p: self.p,
            raid0: RaidSpec { members: self.disks, ..RaidSpec::default() },
            ..DeviceSpec::default()
        };
        match self.kind {
            Kind::Flash { program_ns, suspend, block_probability, channels, spare } => {
                let interference = InterferenceSpec { program_ns, suspend, block_probability, ..spec.interference };
                spec.interference = interference;
                let count = Some(channels).filter(|&channels| channels > 0);
                spec.channels = ChannelSpec { independent: count.is_some(), count, ..spec.channels };
                spec.buffer = BufferSpec { size_bytes: 16 * MIB, burst_bytes_per_s: 0.0, flush_drains: false };
                if spare > 0.0 {
                    // Sustained random writes pay for collection; on the fresh disk there are so many times more.
                    spec.rates.write_iops *= amplification_at(1.0 / (1.0 + spare));
                    let (garbage_collection, over_provisioning, initial_fill) = (true, spare, 1.0);
                    spec.flash = FlashSpec { garbage_collection, over_provisioning, initial_fill, ..spec.flash };
                }
            }
            Kind::Network { base_iops, credits } => self.network(&mut spec, base_iops, credits),
            Kind::Arm => {
                spec.hdd = Some(HddSpec::default());
                // The arm decides; the electronics take far more commands.
                (spec.rates.read_iops, spec.rates.write_iops) = (20_000.0, 20_000.0);
            }
        }
        spec
    }

    /// Half of the latency is the network's.
    fn network(&self, spec: &mut DeviceSpec, base_iops: f64, credits: f64) {
        // Operations and bytes are capped apart: nothing comes on top of the bytes of a long request.
        spec.rates.iops_block_bytes = (self.read_bytes_per_s / self.read_iops) as u32;
        let rtt_ns = self.read_ns.min(self.write_ns) / 2.0;
        spec.network_rtt_ns = rtt_ns as u64;
        spec.latency = LatencySpec {
            read_ns: self.read_ns - rtt_ns,
            write_ns: self.write_ns - rtt_ns,
            per_kib_ns: 0.0,
            sigma: 0.3,
        };
        if credits > 0.0 {
            let unit = CapUnit::Operations { unit_bytes: 256 << 10 };
            spec.caps.push(CapSpec { unit, base_per_s: base_iops, burst_per_s: self.read_iops, credits });
        }
    }
}
