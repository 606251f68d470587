//! Builds a device from figures and behaviour.
//!
//! # Why
//! All tables make devices in the same way.
//!
//! # How it works
//! [`Build`] collects the figures of one disk from a row; [`Build::spec`] joins it with a behaviour.
//!
//! # Limits
//! Nothing is checked here: a test makes a device of every row.
//!
//! # Example
//! The 983 DCT writes 50 000 times a second when full. The fresh disk of the model writes faster by the factor by which
//! garbage collection multiplies writes at 7 % of spare space.

use plimsoll_core::{FourFigures, Rate};

use super::behaviour::{Behaviour, Device};
use crate::device::flash::amplification_at;
use crate::device::spec::*;

/// Write buffer of a flash disk.
const FLASH_BUFFER_BYTES: u64 = 16 << 20;

/// The figures of one disk from a row.
pub(super) struct Build {
    pub(super) disks: u32,
    pub(super) disk_bytes: u64,
    /// Reads a second, bytes read a second, writes a second, bytes written a second, of one disk.
    pub(super) rates: [f64; 4],
    pub(super) behaviour: &'static Behaviour,
    /// Whether operations and bytes are separate limits: a long request costs only its bytes.
    pub(super) apart: bool,
    /// Spare space of a full disk whose write operations are those of the steady state; 0: a fresh disk.
    pub(super) spare: f64,
    /// Caps in front of the disk.
    pub(super) caps: Vec<CapSpec>,
}

impl Build {
    /// Returns the figures of all disks together.
    pub(super) fn figures(&self) -> FourFigures {
        let [read_iops, read_bandwidth, write_iops, write_bandwidth] =
            self.rates.map(|rate| Rate::per_second((rate * f64::from(self.disks)).round() as u64));
        FourFigures { read_iops, read_bandwidth, write_iops, write_bandwidth }
    }

    pub(super) fn spec(&self) -> DeviceSpec {
        let [read_iops, read_bytes_per_s, write_iops, write_bytes_per_s] = self.rates;
        let Behaviour { mix_exponent_p, read_ns, write_ns, device, .. } = *self.behaviour;
        let rates = RateSpec { read_iops, read_bytes_per_s, write_iops, write_bytes_per_s, ..RateSpec::default() };
        let mut spec = DeviceSpec {
            capacity_bytes: u64::from(self.disks) * self.disk_bytes,
            rates,
            latency: LatencySpec { read_ns, write_ns, sigma: 0.13, ..LatencySpec::default() },
            mix_exponent_p,
            raid0: RaidSpec { members: self.disks, ..RaidSpec::default() },
            caps: self.caps.clone(),
            ..DeviceSpec::default()
        };

        if self.apart {
            spec.rates.iops_block_bytes = (read_bytes_per_s / read_iops).max(write_bytes_per_s / write_iops) as u32;
        }

        match device {
            Device::Flash {
                program_ns,
                suspend,
                block_probability,
                channels,
                rewrite_block_bytes,
                per_kib_ns,
                command_kib,
            } => {
                spec.rates.rewrite_block_bytes = rewrite_block_bytes;
                let command_max_bytes = command_kib.map(|kib| kib << 10);
                spec.latency = LatencySpec { per_kib_ns, command_max_bytes, ..spec.latency };
                let interference = InterferenceSpec { program_ns, suspend, block_probability, ..spec.interference };
                spec.interference = interference;
                let count = Some(channels).filter(|&channels| channels > 0);
                spec.channels = ChannelSpec { independent: count.is_some(), count, ..spec.channels };
                spec.buffer =
                    BufferSpec { size_bytes: FLASH_BUFFER_BYTES, burst_bytes_per_s: 0.0, flush_drains: false };
                self.collect_garbage(&mut spec);
            }
            Device::Network => network(&mut spec),
            Device::Arm => {
                spec.hdd = Some(HddSpec::default());
                // The arm is the limit; the electronics take far more commands.
                (spec.rates.read_iops, spec.rates.write_iops) = (20_000.0, 20_000.0);
            }
        }

        spec
    }

    fn collect_garbage(&self, spec: &mut DeviceSpec) {
        if self.spare > 0.0 {
            // The rate includes collection; the fresh disk is faster by its amplification.
            spec.rates.write_iops *= amplification_at(1.0 / (1.0 + self.spare));
            let (garbage_collection, over_provisioning, initial_fill) = (true, self.spare, 1.0);
            spec.flash = FlashSpec { garbage_collection, over_provisioning, initial_fill, ..spec.flash.clone() };
        }
    }
}

/// Moves half of the latency into the network.
fn network(spec: &mut DeviceSpec) {
    let LatencySpec { read_ns, write_ns, .. } = spec.latency;
    let rtt_ns = read_ns.min(write_ns) / 2.0;
    spec.network_rtt_ns = rtt_ns as u64;
    (spec.latency.read_ns, spec.latency.write_ns, spec.latency.sigma) = (read_ns - rtt_ns, write_ns - rtt_ns, 0.3);
}
