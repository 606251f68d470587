//! Warnings about a place: its layers, their settings, and gaps in the kernel's information.
//!
//! **Why.** A figure that looks wrong often has a cause that the kernel reports: a cache, an elevator, a small block, a
//! credit.
//!
//! **How.** The input is facts, the output messages; this module reads nothing. Disks with the same finding share one
//! message that lists them. A message names the finding, the place, and the remedy with its command.
//!
//! **Limits.** Commands under `/sys` need root and last until the next boot. This module changes no setting.
//!
//! **Example.** Eight drives with the elevator mq-deadline give one warning, whose command sets all eight.

use plimsoll::backend::{AlignSource, FileInfo};
use plimsoll::sys::sysfs::Raid;
use plimsoll_figures::units::format_bytes_binary;

use super::super::report::device::{Device, Leaf, Warning, WarningCode};
use super::{Place, physical_block_bytes};
use crate::by_key;

/// Longest requests of a measurement, in bytes. If aligned, requests of at most a chunk lie on one member of an array.
const LONG_REQUEST_BYTES: u64 = 1 << 20;

/// Block in which SSDs work, whatever they report, in bytes. Smaller file system blocks cost a read before a write.
const FLASH_BLOCK_BYTES: u64 = 4096;

/// Free bytes below which file systems get slow and have too little space for scratch data.
const ROOM_MIN_BYTES: u64 = 10_000_000_000;

/// First kernel whose md supports requests that must not wait (`REQ_NOWAIT`). On earlier kernels, io_uring passes each
/// request for an array to a thread.
const MD_NOWAIT_KERNEL: (u32, u32) = (5, 17);

/// Returns all warnings about `place`, whose files `info` describes, for a measurement on `shards` shards.
pub(in crate::tune) fn warnings(place: &Place, info: &FileInfo, shards: u16) -> Vec<Warning> {
    let mut warnings = Warnings(Vec::new());
    if info.align_source == AlignSource::AssumedPage {
        let message = format!(
            "{} does not say which alignment direct I/O wants: {} bytes are assumed",
            place.file_system, info.offset_align_bytes
        );
        warnings.add(WarningCode::AssumedAlignment, message);
    }

    match &place.device {
        None => {
            let message = format!(
                "/sys shows no block device for {} ({}): request sizes are assumed, and the disk's settings are \
                 unknown",
                place.mountpoint, place.file_system
            );
            warnings.add(WarningCode::UnknownDevice, message);
        }
        Some(device) => {
            warnings.of_queues(&device.leaves);
            warnings.of_hardware(&device.leaves, shards);
            warnings.of_stack(device, place);
        }
    }

    warnings.of_file_system(place);
    warnings.0
}

struct Warnings(Vec<Warning>);

impl Warnings {
    fn add(&mut self, code: WarningCode, message: String) {
        self.0.push(Warning { code, message });
    }

    fn of_queues(&mut self, leaves: &[Leaf]) {
        let elevator = |leaf: &Leaf| leaf.scheduler.clone().filter(|name| !matches!(name.as_str(), "none" | "noop"));
        for (elevator, disks) in grouped(leaves, elevator) {
            let (names, remedy) = (disks.join(", "), set_all(&disks, "scheduler", "none"));
            self.add(WarningCode::Elevator, format!("{names}: elevator {elevator} orders requests too; {remedy}"));
        }

        for (_, disks) in grouped(leaves, |leaf| leaf.write_cache.as_deref().filter(|&cache| cache == "write back")) {
            let (names, remedy) = (disks.join(", "), set_all(&disks, "write_cache", "\"write through\""));
            let message = format!(
                "{names}: write cache is write back: write figures are those of the cache until it is full, and \
                 flushes cost; only where the drive protects its cache against power loss: {remedy}"
            );
            self.add(WarningCode::WriteCache, message);
        }

        for (nomerges, disks) in grouped(leaves, |leaf| leaf.nomerges.filter(|&value| value != 2)) {
            let (names, remedy) = (disks.join(", "), set_all(&disks, "nomerges", "2"));
            let message = format!(
                "{names}: nomerges is {nomerges}: the kernel looks for requests to merge, which costs CPU time; \
                 {remedy}"
            );
            self.add(WarningCode::Merges, message);
        }

        for (_, disks) in grouped(leaves, |leaf| leaf.rotational.filter(|&spins| spins)) {
            let (names, remedy) = (disks.join(", "), set_all(&disks, "rotational", "0"));
            let message = format!(
                "{names}: spinning, says the kernel: the rate depends on where requests go, and figures hold for the \
                 scratch data; if it is an SSD: {remedy}"
            );
            self.add(WarningCode::Rotational, message);
        }
    }

    fn of_hardware(&mut self, leaves: &[Leaf], shards: u16) {
        for (model, disks) in grouped(leaves, |leaf| leaf.is_ephemeral.then(|| model_of(leaf))) {
            let message = format!(
                "{}: {model}: data is lost when the instance stops; keep nothing there that is not also elsewhere, and \
                 measure again after each start: it may be another disk",
                disks.join(", ")
            );
            self.add(WarningCode::Ephemeral, message);
        }

        for (model, disks) in grouped(leaves, |leaf| leaf.is_network.then(|| model_of(leaf))) {
            let message = format!(
                "{}: {model}, a volume behind the network: its rate may be a burst on credit; measure for longer than \
                 the credit lasts (--phase 3600), and compare with what is provisioned",
                disks.join(", ")
            );
            self.add(WarningCode::NetworkVolume, message);
        }

        let slots: Option<u64> = leaves.iter().map(|leaf| leaf.nr_requests).sum();
        if let Some(slots) = slots.filter(|&slots| slots < u64::from(shards)) {
            let disks: Vec<&str> = leaves.iter().map(|leaf| leaf.name.as_str()).collect();
            let message = format!(
                "{}: nr_requests is {slots} in all, fewer than the {shards} shards, so some of them wait in the \
                 kernel; take fewer shards (--shards {slots}), or {}",
                disks.join(", "),
                set_all(&disks, "nr_requests", &u64::from(shards).div_ceil(disks.len().max(1) as u64).to_string())
            );
            self.add(WarningCode::ManyShards, message);
        }
    }

    fn of_stack(&mut self, device: &Device, place: &Place) {
        if let Some(raid) = &place.raid {
            self.of_chunk(raid);
            if let Some((major, minor)) = place.kernel.filter(|&kernel| kernel < MD_NOWAIT_KERNEL) {
                let message = format!(
                    "{}: kernel {major}.{minor} makes io_uring use a thread for each request of an md array; measure \
                     with --backend aio, or take kernel 5.17 or later",
                    raid.name
                );
                self.add(WarningCode::OldRaidKernel, message);
            }
        }

        self.of_members(device, place.raid.as_ref());
        if let Some(file) = &device.backing_file {
            let disk = &device.disk;
            let message = format!(
                "{disk} is the file {file}: figures are of the file system below it too, and of its page cache unless \
                 `losetup --direct-io=on /dev/{disk}`; measure in the directory of the file instead"
            );
            self.add(WarningCode::LoopDevice, message);
        }
    }

    fn of_chunk(&mut self, raid: &Raid) {
        let Some(chunk_bytes) = raid.chunk_bytes.filter(|_| raid.level != "linear") else { return };
        let chunk = format_bytes_binary(chunk_bytes);
        let (name, level) = (&raid.name, &raid.level);
        if chunk_bytes < LONG_REQUEST_BYTES {
            let message = format!(
                "{name} ({level}): requests longer than the chunk of {chunk} go to several members, so bandwidths at \
                 1 MiB do not hold for them; make the array with `mdadm --chunk=1M` where long requests matter"
            );
            self.add(WarningCode::RaidChunk, message);
        }

        let parities = match level.as_str() {
            "raid4" | "raid5" => 1,
            "raid6" => 2,
            _ => return,
        };

        let data_disks = raid.disks.unwrap_or(0).saturating_sub(parities);
        let stripe = match chunk_bytes.checked_mul(u64::from(data_disks)).filter(|&bytes| bytes > 0) {
            Some(bytes) => format!(" of {}", format_bytes_binary(bytes)),
            None => String::new(),
        };
        let message = format!(
            "{name} ({level}): a write of less than a stripe{stripe} reads the parity first; where random writes \
             matter, make the array with `mdadm --level=10`"
        );
        self.add(WarningCode::RaidChunk, message);
    }

    /// Warns about members of an array, or disks below a volume, that differ.
    fn of_members(&mut self, device: &Device, raid: Option<&Raid>) {
        let members: Vec<(&str, Option<&str>, Option<u64>)> = match raid {
            Some(raid) => raid.members.iter().map(|m| (m.name.as_str(), m.model.as_deref(), m.size_bytes)).collect(),
            None => device.leaves.iter().map(|l| (l.name.as_str(), l.model.as_deref(), l.size_bytes)).collect(),
        };
        let name = raid.map_or(&device.name, |raid| &raid.name);

        let models = by_key(members.iter().filter_map(|&(name, model, _)| Some((model?.to_owned(), name))));
        if models.len() > 1 {
            let message = format!(
                "{name}: members of different models ({}): the slowest one sets the pace; measure each by itself",
                listed(&models)
            );
            self.add(WarningCode::MixedMembers, message);
        }

        let sizes: Vec<u64> = members.iter().filter_map(|&(_, _, size_bytes)| size_bytes).collect();
        let smallest = sizes.iter().min().copied().unwrap_or(0);
        // Partitions of equal disks may differ by an alignment.
        if sizes.iter().any(|&bytes| bytes - smallest > smallest / 100) {
            let sizes = members.iter().filter_map(|&(name, _, bytes)| Some((format_bytes_binary(bytes?), name)));
            let message = format!(
                "{name}: members of different sizes ({}): where the smaller ones end, fewer members work, so the rate \
                 depends on the place; make the array of partitions of one size",
                listed(&by_key(sizes))
            );
            self.add(WarningCode::MixedMembers, message);
        }
    }

    fn of_file_system(&mut self, place: &Place) {
        let kind = &place.file_system;
        let disk_block_bytes = place.device.as_ref().map(|device| {
            let known = physical_block_bytes(Some(device)).map_or(0, u64::from);
            let spins = device.leaves.iter().all(|leaf| leaf.rotational == Some(true));
            known.max(if spins { 0 } else { FLASH_BLOCK_BYTES })
        });
        if let (Some(fs_block_bytes), Some(disk_block_bytes)) = (place.fs_block_bytes, disk_block_bytes)
            && fs_block_bytes < disk_block_bytes
        {
            let message = format!(
                "{}: {kind} has blocks of {fs_block_bytes} bytes, and the disk works in {disk_block_bytes}: ends of \
                 files are not aligned, and each costs the disk a read before the write (with 1 KiB blocks of XFS, a \
                 quarter of the write rate was lost); make the file system anew with {}",
                place.mountpoint,
                make_command(kind, disk_block_bytes)
            );
            self.add(WarningCode::FileSystemBlock, message);
        }

        if let Some(available_bytes) = place.available_bytes.filter(|&bytes| bytes < ROOM_MIN_BYTES)
            && place.device.is_some()
        {
            let message = format!(
                "{}: only {} free: a file system, and the disk below, gets slow when nearly full, and little scratch \
                 data may fit into a cache of the disk; free at least 10 GB",
                place.mountpoint,
                format_bytes_binary(available_bytes)
            );
            self.add(WarningCode::FewFreeBytes, message);
        }
    }
}

fn model_of(leaf: &Leaf) -> String {
    leaf.model.clone().unwrap_or_default()
}

fn make_command(file_system: &str, block_bytes: u64) -> String {
    match file_system {
        "xfs" => format!("`mkfs.xfs -b size={block_bytes}`"),
        "ext2" | "ext3" | "ext4" => format!("`mkfs.{file_system} -b {block_bytes}`"),
        _ => format!("blocks of {block_bytes} bytes"),
    }
}

/// Groups the disks for which `find` returns a value by that value, both in the order of the disks.
fn grouped<'a, T: PartialEq>(leaves: &'a [Leaf], find: impl Fn(&'a Leaf) -> Option<T>) -> Vec<(T, Vec<&'a str>)> {
    by_key(leaves.iter().filter_map(|leaf| Some((find(leaf)?, leaf.name.as_str()))))
}

/// Returns groups as text: `nvme0n1, nvme1n1: 1 TiB; nvme2n1: 2 TiB`.
fn listed(groups: &[(String, Vec<&str>)]) -> String {
    let group = |(value, names): &(String, Vec<&str>)| format!("{}: {value}", names.join(", "));
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

/// Returns the command that writes `value` to a file of each disk's queue.
fn set_all(disks: &[&str], file: &str, value: &str) -> String {
    match disks {
        [disk] => format!("`echo {value} > /sys/block/{disk}/queue/{file}`"),
        _ => format!("`for disk in {}; do echo {value} > /sys/block/$disk/queue/{file}; done`", disks.join(" ")),
    }
}
