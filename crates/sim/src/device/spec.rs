//! Everything that can be chosen about a simulated disk.
//!
//! # Why
//! One plain struct, so that a model can be written down, compared, fitted and refused as a whole.
//!
//! # How it works
//! [`DeviceSpec`] groups parameters by the mechanism that they belong to; every name carries its unit. `Default` is a
//! plain SSD (200 000 reads/s, 100 us) with every disturbance off. Rates are those of *one* member of a RAID 0.
//! [`DeviceSpec::check`] refuses what makes no disk, naming the parameter.
//!
//! # Limits
//! The parameters are fixed for the life of a device; what happens to it later comes as a [`FaultWindow`].
//!
//! # Example
//! ```
//! use plimsoll_sim::device::DeviceSpec;
//! let mut spec = DeviceSpec::default();
//! spec.rates.read_iops = 0.0;
//! assert_eq!(spec.check().unwrap_err().key, "rates.read_iops");
//! ```

use std::fmt;

use crate::latency_surface::LatencySurface;

/// A simulated disk, as numbers.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Size of the whole device in bytes, at least 4096.
    pub capacity_bytes: u64,
    /// What one member carries when saturated.
    pub rates: RateSpec,
    /// How long a request takes on the idle disk.
    pub latency: LatencySpec,
    /// The servers inside one member.
    pub channels: ChannelSpec,
    /// p in (r/R)^p + (w/W)^p = 1, above 0; infinite: reads and writes do not disturb each other.
    pub mix_exponent_p: f64,
    /// Over how much served device time the share of writes is smoothed, in ns, positive.
    pub mix_memory_ns: f64,
    /// What writes do to the latency of reads below saturation.
    pub interference: InterferenceSpec,
    /// Measured latency of reads of one member below saturation, by its load. Takes the place of `latency.read_ns`, its
    /// sigma and `interference`; the wait for capacity still comes on top, so leave the channels shared.
    pub latency_surface: Option<LatencySurface>,
    /// The buffer that lets writes return early.
    pub buffer: BufferSpec,
    /// Fill level, garbage collection, discard.
    pub flash: FlashSpec,
    /// A mechanical disk; then `rates` give the media's bandwidth and the most commands a second.
    pub hdd: Option<HddSpec>,
    /// Caps in front of the device, in series: credits, volume, instance.
    pub caps: Vec<CapSpec>,
    /// Round trip of a network disk, in ns, added to everything.
    pub network_rtt_ns: u64,
    /// Capacity that changes with time, and stalls.
    pub weather: WeatherSpec,
    /// Members of a RAID 0.
    pub raid0: RaidSpec,
    /// Chance that a transfer fails with EIO, 0 to 1.
    pub error_rate: f64,
    /// Chance that a transfer of more than 512 bytes moves only a prefix (a multiple of 512), 0 to 1.
    pub short_rate: f64,
    /// Things that happen at a time of their own.
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

/// Saturated rates of one member.
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
    /// The length at which the operations were counted: up to it every request costs the same.
    pub iops_block_bytes: u32,
    /// Reads by (length in bytes, operations a second), rising in length; instead of the figures, when not empty.
    pub read_table: Vec<(u32, f64)>,
    /// The same for writes.
    pub write_table: Vec<(u32, f64)>,
    /// Writes that are not multiples of this, or not aligned to it, read a block first. 0: none do.
    pub rewrite_block_bytes: u32,
    /// Device time of a flush, in ns. What it waits for comes on top, see [`BufferSpec::flush_drains`].
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
    /// Median of a small write, in ns; buffered where there is a buffer.
    pub write_ns: f64,
    /// Added for each KiB, in ns; a long request takes at least its device time anyway.
    pub per_kib_ns: f64,
    /// Sigma of the lognormal, 0 to 8; 0.15 to 0.3 on SSDs.
    pub sigma: f64,
}

impl Default for LatencySpec {
    fn default() -> LatencySpec {
        LatencySpec { read_ns: 100e3, write_ns: 25e3, per_kib_ns: 0.0, sigma: 0.15 }
    }
}

/// The servers inside one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Each channel has its own queue: reads go where their offset says, and may wait while other channels idle (a soft
    /// knee). Otherwise one queue feeds all and only saturation makes a request wait (a sharp knee).
    pub independent: bool,
    /// How many, 1 to 1024; `None`: read operations a second times the latency of a read, at most 256. Used only where
    /// they are independent.
    pub count: Option<u32>,
    /// A request spreads over one more channel for each of these bytes.
    pub stripe_bytes: u32,
}

impl Default for ChannelSpec {
    fn default() -> ChannelSpec {
        ChannelSpec { independent: false, count: None, stripe_bytes: 32 << 10 }
    }
}

/// Reads that meet a flash die which is being programmed.
#[derive(Clone, Debug, PartialEq)]
pub struct InterferenceSpec {
    /// The longest wait, in ns; 0 turns interference off.
    pub program_ns: f64,
    /// Programs are suspended for reads. Then `block_probability` of all reads wait, uniformly up to `program_ns` times
    /// the load by writes; without suspension, `block_probability` times that load wait, uniformly up to `program_ns`.
    pub suspend: bool,
    /// See `suspend`. 0 to 1.
    pub block_probability: f64,
    /// Over which time the load is smoothed, in ns, positive.
    pub memory_ns: f64,
}

impl Default for InterferenceSpec {
    fn default() -> InterferenceSpec {
        InterferenceSpec { program_ns: 0.0, suspend: false, block_probability: 0.5, memory_ns: 5e6 }
    }
}

/// The write buffer of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferSpec {
    /// Writes return early while fewer bytes wait in it. 0: no buffer.
    pub size_bytes: u64,
    /// How fast it takes bytes, per second. 0: at any rate.
    pub burst_bytes_per_s: f64,
    /// A flush waits until it is empty (no power-loss protection).
    pub flush_drains: bool,
}

impl Default for BufferSpec {
    fn default() -> BufferSpec {
        BufferSpec { size_bytes: 0, burst_bytes_per_s: 0.0, flush_drains: true }
    }
}

/// Fill level and garbage collection.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashSpec {
    /// Random writes cost the write amplification of the present fill level.
    pub garbage_collection: bool,
    /// Part of the capacity that the disk has beyond what it shows, 0.005 to 4. Consumer disks: 0.07.
    pub over_provisioning: f64,
    /// Part of the capacity that holds data at the start, 0 to 1.
    pub initial_fill: f64,
    /// (fill level, factor on the speed of all writes), rising in fill level; between the points it is interpolated.
    pub fill_curve: Vec<(f64, f64)>,
    /// Part of a discarded fill level that `fill_curve` and garbage collection still see, 0 to 1.
    pub discard_residue: f64,
    /// Mean length of a pause for collection while there are writes, in ns; 0: none.
    pub pause_mean_ns: f64,
    /// Mean time from pause to pause, in ns, positive.
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

/// A mechanical disk: one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct HddSpec {
    /// Shortest seek, in ns.
    pub seek_min_ns: f64,
    /// Seek over the whole disk, in ns; a distance d of the capacity takes min + (max - min) sqrt(d).
    pub seek_max_ns: f64,
    /// One rotation, in ns; positive. 7200 rpm: 8 333 333.
    pub rotation_ns: f64,
    /// The arm picks among so many requests, 1 to 32: seeks shorten as with the nearest of those that wait, the
    /// rotation is waited for as it comes.
    pub elevator_depth: u32,
}

impl Default for HddSpec {
    fn default() -> HddSpec {
        HddSpec { seek_min_ns: 0.8e6, seek_max_ns: 16e6, rotation_ns: 60e9 / 7200.0, elevator_depth: 1 }
    }
}

/// What a cap counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapUnit {
    /// Operations, each of at most so many bytes (a longer request counts several times). 0: any length counts once.
    Operations {
        /// See the variant.
        unit_bytes: u32,
    },
    /// Bytes.
    Bytes,
}

/// A cap on operations or bytes a second, with or without credits.
#[derive(Clone, Debug, PartialEq)]
pub struct CapSpec {
    /// What it counts.
    pub unit: CapUnit,
    /// Units a second without credits; also what credits grow by.
    pub base_per_s: f64,
    /// Units a second while credits last, at least `base_per_s`.
    pub burst_per_s: f64,
    /// The most credits, in units, with which it also starts. 0: none.
    pub credits: f64,
}

/// How the device changes with time.
#[derive(Clone, Debug, PartialEq)]
pub struct WeatherSpec {
    /// (from when on in ns, factor on the capacity), rising in time.
    pub capacity_steps: Vec<(u64, f64)>,
    /// Change of the factor per second; it stays within 0.05 and 20.
    pub drift_per_s: f64,
    /// Standard deviation of one step of a random walk of the capacity's logarithm (neighbours); 0: none. The walk
    /// stays within 0.25 and 1.
    pub noise_sigma: f64,
    /// Length of a step of that walk, in ns, positive.
    pub noise_step_ns: u64,
    /// Stalls a second, at random; 0: none.
    pub stalls_per_s: f64,
    /// Shortest stall, in ns, positive.
    pub stall_min_ns: f64,
    /// Pareto exponent of the stalls' length, positive.
    pub stall_alpha: f64,
    /// Longest stall, in ns.
    pub stall_max_ns: f64,
    /// (from when, for how long), in ns, rising in time: the device starts nothing.
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

/// A RAID 0.
#[derive(Clone, Debug, PartialEq)]
pub struct RaidSpec {
    /// Disks, 1 to 256.
    pub members: u32,
    /// Bytes on one member before the next one's turn, 1 to 2^40.
    pub chunk_bytes: u64,
    /// Members that are not like the others.
    pub member_faults: Vec<MemberFault>,
}

impl Default for RaidSpec {
    fn default() -> RaidSpec {
        RaidSpec { members: 1, chunk_bytes: 512 << 10, member_faults: Vec::new() }
    }
}

/// What is wrong with one member of a RAID 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberFault {
    /// Which, from 0.
    pub member: u32,
    /// Its speed as a part of the others', above 0; 1: as fast.
    pub speed_factor: f64,
    /// Chance that what touches it fails with EIO, 0 to 1; 1: it has died.
    pub error_rate: f64,
}

/// Something that happens to requests submitted within a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultWindow {
    /// From when on, in ns.
    pub from_ns: u64,
    /// Until before when, in ns.
    pub until_ns: u64,
    /// What.
    pub kind: FaultKind,
}

/// See [`FaultWindow`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Whatever is asked fails.
    Errors {
        /// Chance, 0 to 1.
        rate: f64,
        /// With this errno, positive.
        errno: i32,
    },
    /// Transfers move only a prefix, a multiple of 512 bytes.
    Short {
        /// Chance, 0 to 1.
        rate: f64,
    },
    /// The first requests in the window do not come back.
    Hang {
        /// How many of them.
        requests: u32,
        /// They come back so much later after all, in ns; `None`: never.
        for_ns: Option<u64>,
    },
    /// The device is slower.
    Slow {
        /// Factor on the capacity, above 0. Latencies grow by its inverse.
        speed_factor: f64,
    },
}

/// Why a [`DeviceSpec`] makes no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The parameter, as one would write it in Rust.
    pub key: &'static str,
    /// What it should have been.
    pub expected: &'static str,
    /// What it was.
    pub found: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; it must be {}", self.key, self.found, self.expected)
    }
}

impl std::error::Error for SpecError {}
