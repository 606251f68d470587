//! The place and the equipment of a measurement, and the doubts about them.
//!
//! **Why.** A figure is meaningful only with the disk's settings, the request size, and the reasons to doubt it.
//!
//! **How.** Plain data, part of [`super::TuneReport`].
//!
//! **Limits.** Values that the kernel does not report are `null`.
//!
//! **Example.** `md0`, RAID 0 in chunks of 512 KiB over `nvme0n1` and `nvme1n1`; warning `raid_chunk`.

use serde::{Deserialize, Serialize};

use crate::report::Place;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// The directory or device, with links resolved; the name of a simulated disk.
    pub directory: String,
    /// Mount point of its file system; for a device its path.
    pub mountpoint: String,
    /// Kind of the file system: `ext4`, `xfs`; empty for a device.
    pub file_system: String,
    /// The host, and the time when the measurement began; `None` for a simulated disk, and in results of older
    /// versions.
    #[serde(default)]
    pub place: Option<Place>,
    /// Mount options: `rw`, `noatime`, `discard`; empty for a device.
    pub mount_options: Vec<String>,
    /// The block device; `null` if the kernel reports none (tmpfs, network) or none was used (backends null, memory).
    pub device: Option<Device>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Name of the mounted device: `nvme0n1p1`, `md0`.
    pub name: String,
    /// Name of the whole disk that holds the device.
    pub disk: String,
    /// Number of the device: `259:1`.
    pub major_minor: String,
    /// Number of the whole disk: `259:0`.
    pub disk_number: Option<String>,
    pub size_bytes: Option<u64>,
    /// `raid0`, `raid10`; for RAID only.
    pub raid_level: Option<String>,
    /// Length of a stripe on one member in bytes, for RAID only.
    pub raid_chunk_bytes: Option<u64>,
    /// The file below a loop device.
    pub backing_file: Option<String>,
    pub leaves: Vec<Leaf>,
}

/// One physical disk (as far as the kernel knows) and its settings; a value that the kernel does not report is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leaf {
    pub name: String,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    pub size_bytes: Option<u64>,
    /// Rate of the PCIe link in one direction, in bytes a second.
    pub link_bytes_per_s: Option<u64>,
    /// Whether the data is lost when the instance stops.
    pub is_ephemeral: bool,
    /// Whether the disk is a volume on a network, with the provider's caps and credits.
    pub is_network: bool,
    pub scheduler: Option<String>,
    /// Requests per hardware queue.
    pub nr_requests: Option<u64>,
    pub physical_block_bytes: Option<u64>,
    pub logical_block_bytes: Option<u64>,
    /// Largest request that is sent in one piece, in bytes.
    pub max_request_bytes: Option<u64>,
    pub read_ahead_bytes: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// 0: merges; 1: simple merges; 2: none.
    pub nomerges: Option<u64>,
    pub rotational: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Name, as on the command line.
    pub name: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSize {
    /// Size in bytes: a power of two, 512 to 1 MiB.
    pub bytes: u32,
    /// Origin of the size: `kernel: physical block 512, so 4096`, or a fallback and its reason.
    pub how: String,
    #[serde(default)]
    pub is_set: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub code: WarningCode,
    /// One line with the finding, the place and the remedy.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// The kernel schedules requests too.
    Elevator,
    /// The device has a volatile cache, and acknowledges writes that are only there.
    WriteCache,
    /// The kernel may merge neighbouring requests.
    Merges,
    /// The disk rotates: four figures describe it badly.
    Rotational,
    UnknownDevice,
    /// Requests longer than the RAID's chunk go to several members.
    RaidChunk,
    MixedMembers,
    /// The kernel's RAID makes asynchronous I/O wait.
    OldRaidKernel,
    FileSystemBlock,
    /// Data is lost when the instance stops.
    Ephemeral,
    /// The disk is a volume on a network: caps and credits are measured, not a disk.
    NetworkVolume,
    FewFreeBytes,
    /// There are more shards than requests that the disk's queue holds.
    ManyShards,
    /// The device is a file on another file system, perhaps with its page cache.
    LoopDevice,
    /// Other programs used the disk during the measurement.
    ForeignIo,
    /// The disk was faster at the beginning.
    Burst,
    /// The disk does not write in the blocks that the kernel reports.
    PhysicalBlock,
    BlockingSubmission,
    NotSteady,
    NotMeasured,
    AssumedAlignment,
    /// A shard was busy, so the figure may be a limit of the CPU.
    CpuLimited,
    Deviation,
    StillChanging,
    /// Less scratch data than requested was written, because the disk is slow.
    LessData,
    /// A phase was cut short, or left out, because the write bound is reached.
    MaxWrite,
    /// IOPS were measured at a size that io-properties cannot express.
    BlockSize,
    /// A figure that the measurement itself contradicts; io-properties files name it as `doubtful`.
    Doubtful,
}
