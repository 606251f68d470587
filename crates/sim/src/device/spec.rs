//! The parameters of a simulated disk.
//!
//! # Why
//! One plain struct, so that a model can be written down, compared, fitted and refused as a whole.
//!
//! # How it works
//! [`DeviceSpec`] groups parameters by mechanism; every name carries its unit. `Default` is a plain SSD (200 000
//! reads/s, 100 us) with every disturbance off. Rates are those of *one* member of a RAID 0. [`DeviceSpec::check`]
//! refuses an impossible disk and names the parameter.
//!
//! # Limits
//! The parameters are fixed for the life of a device; later faults are injected as a [`FaultWindow`].
//!
//! # Example
//! ```
//! use plimsoll_sim::device::DeviceSpec;
//! let mut spec = DeviceSpec::default();
//! spec.rates.read_iops = 0.0;
//! assert_eq!(spec.check().unwrap_err().key, "rates.read_iops");
//! ```

use thiserror::Error;

use crate::latency_surface::LatencySurface;

#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Size of the whole device in bytes, at least 4096.
    pub capacity_bytes: u64,
    pub rates: RateSpec,
    /// Latency of a request on the idle disk.
    pub latency: LatencySpec,
    pub channels: ChannelSpec,
    /// p in (r/R)^p + (w/W)^p = 1, above 0; infinite: reads and writes do not disturb each other.
    pub mix_exponent_p: f64,
    /// Served device time over which the share of writes is smoothed, in ns, positive.
    pub mix_memory_ns: f64,
    /// The effect of writes on the latency of reads below saturation.
    pub interference: InterferenceSpec,
    /// Measured latency of reads of one member below saturation, by its load. Replaces `latency.read_ns`, its sigma and
    /// `interference`; the wait for capacity still adds to it, so leave the channels shared.
    pub latency_surface: Option<LatencySurface>,
    pub buffer: BufferSpec,
    /// Fill level, garbage collection, discard.
    pub flash: FlashSpec,
    /// A mechanical disk; `rates` then give the media's bandwidth and the most commands a second.
    pub hdd: Option<HddSpec>,
    /// Caps in front of the device, in series: credits, volume, instance.
    pub caps: Vec<CapSpec>,
    /// Round trip of a network disk, in ns, added to everything.
    pub network_rtt_ns: u64,
    /// Capacity that changes with time, and stalls.
    pub weather: WeatherSpec,
    pub raid0: RaidSpec,
    /// Chance that a transfer fails with EIO, 0 to 1.
    pub error_rate: f64,
    /// Chance that a transfer of more than 512 bytes moves only a prefix (a multiple of 512), 0 to 1.
    pub short_rate: f64,
    /// Faults at given times.
    pub faults: Vec<FaultWindow>,
}

impl Default for DeviceSpec {
    fn default() -> DeviceSpec {
        DeviceSpec {
            capacity_bytes: 1_000_000_000_000,
            rates: RateSpec::default(),
            latency: LatencySpec::default(),
            channels: ChannelSpec::default(),
            mix_exponent_p: 1.0,
            mix_memory_ns: 5e6,
            interference: InterferenceSpec::default(),
            latency_surface: None,
            buffer: BufferSpec::default(),
            flash: FlashSpec::default(),
            hdd: None,
            caps: Vec::new(),
            network_rtt_ns: 0,
            weather: WeatherSpec::default(),
            raid0: RaidSpec::default(),
            error_rate: 0.0,
            short_rate: 0.0,
            faults: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RateSpec {
    /// Small random reads a second.
    pub read_iops: f64,
    /// Bytes read a second by long requests.
    pub read_bytes_per_s: f64,
    /// Small random writes a second, sustained.
    pub write_iops: f64,
    /// Bytes written a second by long requests, sustained.
    pub write_bytes_per_s: f64,
    /// Length at which the operations were counted: up to it every request costs the same.
    pub iops_block_bytes: u32,
    /// Reads by (length in bytes, operations a second), rising in length; if not empty, replaces the figures.
    pub read_table: Vec<(u32, f64)>,
    /// The same for writes.
    pub write_table: Vec<(u32, f64)>,
    /// Writes that are not multiples of this, or not aligned to it, read a block first, for 0.77 of a read's cost.
    /// 0: no write does.
    pub rewrite_block_bytes: u32,
    /// Device time of a flush, in ns. Draining the buffer adds to it, see [`BufferSpec::flush_drains`].
    pub flush_ns: f64,
    /// Device time of a discard or an allocation, in ns.
    pub discard_ns: f64,
}

impl Default for RateSpec {
    fn default() -> RateSpec {
        RateSpec {
            read_iops: 200e3,
            read_bytes_per_s: 2e9,
            write_iops: 100e3,
            write_bytes_per_s: 1e9,
            iops_block_bytes: 4096,
            read_table: Vec::new(),
            write_table: Vec::new(),
            rewrite_block_bytes: 0,
            flush_ns: 20e3,
            discard_ns: 20e3,
        }
    }
}

/// Latency on the idle disk: lognormal, plus the transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencySpec {
    /// Median of a small read, in ns.
    pub read_ns: f64,
    /// Median of a small write, in ns; with a buffer, of a buffered write.
    pub write_ns: f64,
    /// Added for each KiB, in ns; a long request takes at least its device time anyway.
    pub per_kib_ns: f64,
    /// Longest command that the disk takes, in bytes, at least 512. The kernel cuts a longer request into several,
    /// which overlap: `per_kib_ns` counts for one of them. `None`: every request is one command.
    pub command_max_bytes: Option<u32>,
    /// Sigma of the lognormal, 0 to 8; 0.15 to 0.3 on SSDs.
    pub sigma: f64,
}

impl Default for LatencySpec {
    fn default() -> LatencySpec {
        LatencySpec { read_ns: 100e3, write_ns: 25e3, per_kib_ns: 0.0, command_max_bytes: None, sigma: 0.15 }
    }
}

impl LatencySpec {
    /// Returns the latency that the length of a request adds, in ns.
    pub fn transfer_ns(&self, len_bytes: f64) -> f64 {
        let command_bytes = self.command_max_bytes.map_or(len_bytes, |most| len_bytes.min(f64::from(most)));
        self.per_kib_ns * command_bytes / 1024.0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Whether each channel has its own queue: a read is served by the channel of its offset, and may wait while others
    /// idle (a soft knee). Otherwise one queue feeds all channels and a request waits only at saturation (a
    /// sharp knee).
    pub independent: bool,
    /// Number of channels, 1 to 1024; `None`: read operations a second times the latency of a read, at most 256. Used
    /// only if channels are independent.
    pub count: Option<u32>,
    /// Bytes after which a request spreads over one more channel.
    pub stripe_bytes: u32,
}

impl Default for ChannelSpec {
    fn default() -> ChannelSpec {
        ChannelSpec { independent: false, count: None, stripe_bytes: 32 << 10 }
    }
}

/// Waits of reads for a flash die that is being programmed.
#[derive(Clone, Debug, PartialEq)]
pub struct InterferenceSpec {
    /// Longest wait, in ns; 0 turns interference off.
    pub program_ns: f64,
    /// Whether programs are suspended for reads. If so, `block_probability` of all reads wait, uniformly up to
    /// `program_ns` times the write load; if not, `block_probability` times that load wait, uniformly up to
    /// `program_ns`.
    pub suspend: bool,
    /// Part of the reads that wait, 0 to 1; see `suspend`.
    pub block_probability: f64,
    /// Time over which the write load is smoothed, in ns, positive.
    pub memory_ns: f64,
}

impl Default for InterferenceSpec {
    fn default() -> InterferenceSpec {
        InterferenceSpec { program_ns: 0.0, suspend: false, block_probability: 0.5, memory_ns: 5e6 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct BufferSpec {
    /// Size of the buffer: writes return early while fewer bytes wait in it. 0: no buffer.
    pub size_bytes: u64,
    /// Rate at which the buffer takes bytes, per second. 0: unlimited.
    pub burst_bytes_per_s: f64,
    /// Whether a flush waits until the buffer is empty (no power-loss protection).
    pub flush_drains: bool,
}

impl Default for BufferSpec {
    fn default() -> BufferSpec {
        BufferSpec { size_bytes: 0, burst_bytes_per_s: 0.0, flush_drains: true }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FlashSpec {
    /// Whether random writes cost the write amplification of the present fill level.
    pub garbage_collection: bool,
    /// Spare capacity as a part of the visible one, 0.005 to 4. Consumer disks: 0.07.
    pub over_provisioning: f64,
    /// Part of the capacity that holds data at the start, 0 to 1.
    pub initial_fill: f64,
    /// (fill level, factor on the speed of all writes), rising in fill level, interpolated between the points.
    pub fill_curve: Vec<(f64, f64)>,
    /// Part of a discarded fill level that `fill_curve` and garbage collection still see, 0 to 1.
    pub discard_residue: f64,
    /// Mean length of a pause for collection under writes, in ns; 0: no pauses.
    pub pause_mean_ns: f64,
    /// Mean time between pauses, in ns, positive.
    pub pause_period_ns: f64,
}

impl Default for FlashSpec {
    fn default() -> FlashSpec {
        FlashSpec {
            garbage_collection: false,
            over_provisioning: 0.07,
            initial_fill: 0.0,
            fill_curve: Vec::new(),
            discard_residue: 0.0,
            pause_mean_ns: 0.0,
            pause_period_ns: 1e9,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct HddSpec {
    /// Shortest seek, in ns.
    pub seek_min_ns: f64,
    /// Seek over the whole disk, in ns; a distance d of the capacity takes min + (max - min) sqrt(d).
    pub seek_max_ns: f64,
    /// One rotation, in ns; positive. 7200 rpm: 8 333 333.
    pub rotation_ns: f64,
    /// Requests among which the arm picks, 1 to 32: seeks shorten as with the nearest of those waiting; rotation does
    /// not.
    pub elevator_depth: u32,
}

impl Default for HddSpec {
    fn default() -> HddSpec {
        HddSpec { seek_min_ns: 0.8e6, seek_max_ns: 16e6, rotation_ns: 60e9 / 7200.0, elevator_depth: 1 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapUnit {
    /// Operations of at most `unit_bytes`: a longer request counts several times. 0: any length counts once.
    Operations {
        /// Greatest length of one operation, in bytes.
        unit_bytes: u32,
    },
    Bytes,
}

impl CapUnit {
    /// Returns the units of a request.
    pub fn units(self, len_bytes: u32) -> f64 {
        match self {
            CapUnit::Operations { unit_bytes: 0 } => 1.0,
            CapUnit::Operations { unit_bytes } => f64::from(len_bytes.div_ceil(unit_bytes).max(1)),
            CapUnit::Bytes => f64::from(len_bytes),
        }
    }

    /// Returns the unit's name: `operations` or `bytes`.
    pub fn name(self) -> &'static str {
        match self {
            CapUnit::Operations { .. } => "operations",
            CapUnit::Bytes => "bytes",
        }
    }
}

/// A cap on operations or bytes a second, with or without credits.
#[derive(Clone, Debug, PartialEq)]
pub struct CapSpec {
    pub unit: CapUnit,
    /// Units a second without credits, and the growth of credits.
    pub base_per_s: f64,
    /// Units a second while credits last, at least `base_per_s`.
    pub burst_per_s: f64,
    /// Most credits, in units; the cap starts with all of them. 0: no credits.
    pub credits: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WeatherSpec {
    /// (start in ns, factor on the capacity), rising in time.
    pub capacity_steps: Vec<(u64, f64)>,
    /// Change of the drift factor per second; the factor stays within 0.05 and 20.
    pub drift_per_s: f64,
    /// Standard deviation of one step of a random walk of the capacity's logarithm, for the effect of neighbours; 0:
    /// none. The walk stays within 0.25 and 1.
    pub noise_sigma: f64,
    /// Length of a step of that walk, in ns, positive.
    pub noise_step_ns: u64,
    /// Random stalls a second; 0: none.
    pub stalls_per_s: f64,
    /// Shortest stall, in ns, positive.
    pub stall_min_ns: f64,
    /// Pareto exponent of the stalls' length, positive.
    pub stall_alpha: f64,
    /// Longest stall, in ns.
    pub stall_max_ns: f64,
    /// Stalls as (start, length) in ns, rising in time. In a stall the device starts nothing.
    pub stalls: Vec<(u64, u64)>,
}

impl Default for WeatherSpec {
    fn default() -> WeatherSpec {
        WeatherSpec {
            capacity_steps: Vec::new(),
            drift_per_s: 0.0,
            noise_sigma: 0.0,
            noise_step_ns: 10_000_000,
            stalls_per_s: 0.0,
            stall_min_ns: 1e6,
            stall_alpha: 1.5,
            stall_max_ns: 1e9,
            stalls: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RaidSpec {
    /// Disks, 1 to 256.
    pub members: u32,
    /// Bytes on one member before the next member follows, 1 to 2^40.
    pub chunk_bytes: u64,
    /// Members that differ from the others.
    pub member_faults: Vec<MemberFault>,
}

impl Default for RaidSpec {
    fn default() -> RaidSpec {
        RaidSpec { members: 1, chunk_bytes: 512 << 10, member_faults: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberFault {
    /// Index of the member, from 0.
    pub member: u32,
    /// Speed of the member as a part of the others', above 0; 1: as fast.
    pub speed_factor: f64,
    /// Probability that a request to it fails with EIO, 0 to 1; 1: it has died.
    pub error_rate: f64,
}

/// A fault of requests submitted within a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultWindow {
    /// Start of the period, in ns.
    pub from_ns: u64,
    /// End of the period, in ns, exclusive.
    pub until_ns: u64,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Every kind of request may fail.
    Errors {
        /// Chance, 0 to 1.
        rate: f64,
        /// The errno of the failure, positive.
        errno: i32,
    },
    /// Transfers move only a prefix, a multiple of 512 bytes.
    Short {
        /// Chance, 0 to 1.
        rate: f64,
    },
    /// The first requests in the window do not come back.
    Hang {
        /// Number of requests that hang.
        requests: u32,
        /// Delay after which they do come back, in ns; `None`: never.
        for_ns: Option<u64>,
    },
    /// Writes wait until the window ends, before they reach the device, as they do behind the commit of a file system's
    /// journal.
    HoldWrites,
    /// The device is slower.
    Slow {
        /// Factor on the capacity, above 0. Latencies grow by its inverse.
        speed_factor: f64,
    },
}

/// The reason why a [`DeviceSpec`] makes no device.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{key} is {found}; it must be {expected}")]
pub struct SpecError {
    /// The parameter, as written in Rust.
    pub key: &'static str,
    pub expected: &'static str,
    pub found: String,
}
