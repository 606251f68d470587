//! Where a measurement took place, with what, and what is wrong with that.
//!
//! # Why
//! A figure means something only beside the disk's settings, the size at which it was measured, and what makes one doubt
//! it.
//!
//! # How it works
//! Plain data, part of [`super::TuneReport`].
//!
//! # Limits
//! What the kernel does not say is `null`.
//!
//! # Example
//! `md0`, RAID 0 in chunks of 512 KiB over `nvme0n1` and `nvme1n1`; warning `raid_chunk`.

use serde::{Deserialize, Serialize};

/// The block device of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The device that is mounted: `nvme0n1p1`, `md0`.
    pub name: String,
    /// The whole disk that it is on.
    pub disk: String,
    /// Its device number: `259:1`.
    pub major_minor: String,
    /// That of the whole disk: `259:0`.
    pub disk_number: Option<String>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// `raid0`, `raid10`; for RAID only.
    pub raid_level: Option<String>,
    /// Length of a stripe on one member in bytes, for RAID only.
    pub raid_chunk_bytes: Option<u64>,
    /// The file below a loop device.
    pub backing_file: Option<String>,
    /// The disks at the bottom of it.
    pub leaves: Vec<Leaf>,
}

/// One physical disk (as far as the kernel knows) and its settings; `null` where the kernel does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leaf {
    /// `nvme0n1`.
    pub name: String,
    /// What its maker calls it.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Version of its firmware.
    pub firmware: Option<String>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// What its PCIe link carries in one direction, in bytes a second.
    pub link_bytes_per_s: Option<u64>,
    /// Whether its data are lost when the instance stops.
    pub is_ephemeral: bool,
    /// Whether it is a volume on a network, with the provider's caps and credits.
    pub is_network: bool,
    /// Active elevator.
    pub scheduler: Option<String>,
    /// Requests that a hardware queue holds.
    pub nr_requests: Option<u64>,
    /// Physical block in bytes.
    pub physical_block_bytes: Option<u64>,
    /// Logical block in bytes.
    pub logical_block_bytes: Option<u64>,
    /// Largest request that goes out in one piece, in bytes.
    pub max_request_bytes: Option<u64>,
    /// What the kernel reads ahead of buffered readers, in bytes.
    pub read_ahead_bytes: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// 0: merges; 1: simple merges; 2: none.
    pub nomerges: Option<u64>,
    /// Whether it spins.
    pub rotational: Option<bool>,
}

/// What carried the I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Its name, as on the command line.
    pub name: String,
    /// Why this one.
    pub reason: String,
}

/// A request size, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSize {
    /// Bytes: a power of two, 512 to 1 MiB.
    pub bytes: u32,
    /// `kernel: physical block 512, so 4096`, or what it falls back to and why.
    pub how: String,
    /// Whether the user asked for it.
    #[serde(default)]
    pub is_set: bool,
}

/// Something that may be wrong with the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What kind.
    pub code: WarningCode,
    /// What, where, and what to do. One line.
    pub message: String,
}

/// Kinds of [`Warning`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WarningCode {
    /// The kernel schedules requests too.
    Elevator,
    /// The device has a volatile cache that acknowledges writes.
    WriteCache,
    /// The kernel may merge neighbouring requests.
    Merges,
    /// A spinning disk: four figures describe it badly.
    Rotational,
    /// The kernel does not describe the disk.
    UnknownDevice,
    /// Requests longer than the RAID's chunk go to several members.
    RaidChunk,
    /// Members of an array that differ.
    MixedMembers,
    /// A kernel whose RAID makes asynchronous I/O wait.
    OldRaidKernel,
    /// Blocks of the file system are smaller than those of the disk.
    FileSystemBlock,
    /// Data are lost when the instance stops.
    Ephemeral,
    /// A volume on a network: the provider's caps and credits are measured, not a disk.
    NetworkVolume,
    /// Little room on the file system.
    FewFreeBytes,
    /// More shards than requests that the disk's queue holds.
    ManyShards,
    /// Read-ahead of buffered readers.
    ReadAhead,
    /// A file below, with another file system and perhaps its page cache.
    LoopDevice,
    /// Others used the disk meanwhile.
    ForeignIo,
    /// The disk was faster at first.
    Burst,
    /// The disk does not write in the blocks that the kernel reports.
    PhysicalBlock,
    /// Submissions block.
    BlockingSubmission,
    /// A full measurement did not become steady.
    NotSteady,
    /// Something could not be measured here.
    NotMeasured,
    /// Direct I/O alignment had to be assumed.
    AssumedAlignment,
    /// A shard was busy, so the figure is rather that of the CPU.
    CpuLimited,
    /// The samples scatter.
    Deviation,
    /// The rate was still changing at the end.
    StillChanging,
    /// Less scratch data than asked for was written, because the disk is slow.
    LessData,
    /// A phase was cut short, or left out, because no more may be written.
    MaxWrite,
    /// IOPS were measured at a size that io-properties cannot tell.
    BlockSize,
    /// A figure that the measurement itself contradicts; io-properties files name it as `doubtful`.
    Doubtful,
}
