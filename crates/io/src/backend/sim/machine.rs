//! The state of a simulated world behind its lock: clock, disks, files, and what is under way for whom.
//!
//! # Why
//! Everything that the shards of a world share changes here and in one order, so that the same seed gives the same run.
//!
//! # How it works
//! An operation is launched into the device of its disk with a copy of what it writes. The clock moves only in
//! [`Machine::advance_to`]; what a device completes on the way *lands*: faults are drawn, the files change, and the
//! result (with what was read) lies ready for the shard that asked. No pointer of a caller comes in here.
//!
//! # Limits
//! Operations on overlapping ranges take effect in the order in which they land.
//!
//! # Example
//! At 1000 ns a write is launched; the device says its next event is at 81 000. The clock goes there, the write lands
//! in the volatile image of its file, and the shard's next `reap` reports it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use plimsoll_core::Op;
use plimsoll_sim::device::{Device, DeviceCompletion, DeviceRequest};
use slab::Slab;

use super::faults::Dice;
use super::files::{FileSystem, SimFile, sectors};
use super::image::Change;
use super::{SimConfig, SimConfigError};
use crate::backend::{Kind, OpResult, OpenOptions};

/// Who moves the clock when a shard waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The one that waits: all shards are on one thread, and nobody else can.
    Alone,
    /// Nobody: the wait is only noted, and a [`SimRuntime`](crate::SimRuntime) moves the clock.
    Noted,
    /// The last of them to wait: every shard is on a thread of its own.
    Together,
}

/// One backend of the world.
#[derive(Default)]
pub(super) struct Member {
    pub(super) ready: VecDeque<Landed>,
    /// `Some` while it waits, with its deadline.
    pub(super) waiting: Option<Option<u64>>,
    pub(super) is_woken: bool,
}

/// An operation that has ended and not yet been reaped.
pub(super) struct Landed {
    pub(super) key: usize,
    pub(super) result: OpResult,
    /// What a read has read.
    pub(super) data: Vec<u8>,
}

/// An operation in a device.
pub(super) struct Flight {
    pub(super) member: usize,
    pub(super) key: usize,
    pub(super) file: usize,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    /// Bytes to move; 0 for what moves none.
    pub(super) len_bytes: u32,
    /// What is written.
    pub(super) data: Vec<u8>,
    pub(super) is_dsync: bool,
}

struct Launched {
    flight: Flight,
    serial: u64,
    /// Of a sync: what the log of its file held when it was submitted.
    sync_before: u64,
}

/// See the module's documentation.
pub(crate) struct Machine {
    config: SimConfig,
    pub(crate) now_ns: u64,
    /// Moves with every crash; a backend of an earlier life is dead.
    pub(super) boot: u64,
    pub(crate) pace: Pace,
    pub(super) dice: Dice,
    pub(super) files: FileSystem,
    devices: Vec<Device>,
    flights: Slab<Launched>,
    serial: u64,
    pub(super) members: Slab<Member>,
    landing: Vec<DeviceCompletion>,
}

impl Machine {
    pub(super) fn new(config: &SimConfig, pace: Pace) -> Result<Machine, SimConfigError> {
        Ok(Machine {
            config: config.clone(),
            now_ns: 0,
            boot: 0,
            pace,
            dice: Dice::new(config.seed, config.faults),
            files: FileSystem::default(),
            devices: devices(config, 0)?,
            flights: Slab::new(),
            serial: 0,
            members: Slab::new(),
            landing: Vec::new(),
        })
    }

    pub(super) fn sector_bytes(&self) -> u32 {
        self.config.sector_bytes
    }

    /// Opens or creates a file; its disk is the one with the longest mount that `path` begins with.
    pub(super) fn open(&mut self, path: &Path, options: &OpenOptions) -> io::Result<usize> {
        let refuse = |kind, what: &str| Err(io::Error::new(kind, format!("cannot open {}: {what}", path.display())));
        match (self.files.find(path), options.create_new) {
            (Some(_), true) => refuse(io::ErrorKind::AlreadyExists, "it exists in the simulated world already"),
            (Some(file), false) => Ok(file),
            (None, false) => refuse(io::ErrorKind::NotFound, "no such file in the simulated world: create it first"),
            (None, true) => {
                let mounts = self.config.disks.iter().enumerate().filter(|(_, disk)| path.starts_with(&disk.mount));
                match mounts.max_by_key(|(at, disk)| (disk.mount.as_os_str().len(), usize::MAX - at)) {
                    Some((disk, _)) => Ok(self.files.create(path, disk)),
                    None => {
                        refuse(io::ErrorKind::NotFound, "no simulated disk is mounted there: give one the mount \"\"")
                    }
                }
            }
        }
    }

    pub(super) fn set_len(&mut self, file: usize, len_bytes: u64) -> io::Result<()> {
        if self.grows_too_far(file, len_bytes) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the simulated disk is full (enospc_at_bytes)"));
        }
        if let Some(file) = self.files.get_mut(file) {
            file.apply(Change::SetLen { len_bytes }, false);
        }
        Ok(())
    }

    /// Sends an operation into the device of its file.
    pub(super) fn launch(&mut self, flight: Flight) {
        let Some(file) = self.files.get(flight.file) else { return };
        let (op, len_bytes) = match flight.kind {
            Kind::Read => (Op::Read, flight.len_bytes),
            Kind::Write => (Op::Write, flight.len_bytes),
            Kind::Sync { .. } => (Op::Flush, 0),
            Kind::Discard { len_bytes } => (Op::Discard, u32::try_from(len_bytes).unwrap_or(u32::MAX)),
            Kind::Allocate { len_bytes, .. } => (Op::Allocate, u32::try_from(len_bytes).unwrap_or(u32::MAX)),
        };
        let (disk, sync_before) = (file.disk, file.next_serial());
        let offset_bytes = self.address(file, flight.offset, len_bytes);
        self.serial += 1;
        let key = self.flights.insert(Launched { flight, serial: self.serial, sync_before }) as u64;
        if let Some(device) = self.devices.get_mut(disk) {
            device.submit(self.now_ns, DeviceRequest { key, op, offset_bytes, len_bytes });
        }
    }

    /// Where on its disk a place of a file is. A disk smaller than the sum of its files is gone through again and
    /// again: only distances matter to a device.
    fn address(&self, file: &SimFile, offset: u64, len_bytes: u32) -> u64 {
        let capacity_bytes = self.config.disks.get(file.disk).map_or(u64::MAX, |disk| disk.spec.capacity_bytes);
        let last = capacity_bytes.saturating_sub(u64::from(len_bytes));
        let at = file.base_bytes.saturating_add(offset);
        if at <= last { at } else { at % (last + 1) / 4096 * 4096 }
    }

    /// When the next thing happens by itself: an operation comes back.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        self.devices.iter().filter_map(Device::next_event_ns).min()
    }

    /// Moves the clock, and lets everything land that comes back until then. A time that has passed is taken as now.
    pub(crate) fn advance_to(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
        let mut landing = std::mem::take(&mut self.landing);
        for device in &mut self.devices {
            device.advance(self.now_ns, &mut landing);
        }
        // Stable: what comes back at one instant lands by disk, then as its device says.
        landing.sort_by_key(|completion| completion.at_ns);
        for completion in landing.drain(..) {
            self.land(completion);
        }
        self.landing = landing;
    }

    fn land(&mut self, completion: DeviceCompletion) {
        let Some(launched) = self.flights.try_remove(completion.key as usize) else { return };
        let (member, key) = (launched.flight.member, launched.flight.key);
        let (result, data) = match completion.result {
            Err(errno) => (Err(errno), Vec::new()),
            Ok(moved) => match self.take_effect(launched, moved) {
                Ok((moved, data)) => (Ok(moved), data),
                Err(errno) => (Err(errno), Vec::new()),
            },
        };
        self.give(member, Landed { key, result, data });
    }

    fn give(&mut self, member: usize, landed: Landed) {
        // A backend that was dropped wants nothing any more.
        if let Some(member) = self.members.get_mut(member) {
            member.ready.push_back(landed);
        }
    }

    /// What an operation does to its file, now that the device has done `moved` bytes of it: bytes moved, and what was
    /// read.
    fn take_effect(&mut self, launched: Launched, moved: u32) -> Result<(u32, Vec<u8>), i32> {
        let Launched { flight, sync_before, .. } = launched;
        match flight.kind {
            Kind::Read => self.read(&flight, moved),
            Kind::Write => self.write(flight, moved).map(|moved| (moved, Vec::new())),
            Kind::Sync { data_only } => {
                self.file(flight.file)?.sync(sync_before, data_only);
                Ok((0, Vec::new()))
            }
            Kind::Discard { len_bytes } => {
                let sector_bytes = u64::from(self.sector_bytes());
                let file = self.file(flight.file)?;
                file.heal(flight.offset, len_bytes, sector_bytes);
                file.apply(Change::Discard { offset: flight.offset, len_bytes }, false);
                Ok((0, Vec::new()))
            }
            Kind::Allocate { len_bytes, keep_size } => {
                if !keep_size {
                    let len_bytes = flight.offset.saturating_add(len_bytes);
                    self.check_space(flight.file, len_bytes)?;
                    self.file(flight.file)?.apply(Change::Grow { len_bytes }, false);
                }
                Ok((0, Vec::new()))
            }
        }
    }

    fn file(&mut self, file: usize) -> Result<&mut SimFile, i32> {
        self.files.get_mut(file).ok_or(libc::EBADF)
    }

    fn read(&mut self, flight: &Flight, moved: u32) -> Result<(u32, Vec<u8>), i32> {
        if self.dice.chance(self.dice.faults.read_error_probability) {
            self.dice.counters.read_errors += 1;
            return Err(libc::EIO);
        }
        let len_bytes = self.shorten(moved.min(flight.len_bytes));
        let sector_bytes = u64::from(self.sector_bytes());
        let file = self.file(flight.file)?;
        let mut data = file.read(flight.offset, len_bytes as usize);
        if file.has_bad_sector(flight.offset, data.len() as u64, sector_bytes) {
            self.dice.counters.latent_error_reads += 1;
            return Err(libc::EIO);
        }
        if self.dice.chance(self.dice.faults.bit_flip_probability) {
            let bit = self.dice.below(data.len() as u64 * 8);
            if let Some(byte) = data.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
                self.dice.counters.bit_flips += 1;
            }
        }
        Ok((data.len() as u32, data))
    }

    fn write(&mut self, flight: Flight, moved: u32) -> Result<u32, i32> {
        let Flight { file, offset, mut data, is_dsync, .. } = flight;
        if self.dice.chance(self.dice.faults.write_error_probability) {
            self.dice.counters.write_errors += 1;
            return Err(libc::EIO);
        }
        let moved = self.shorten(moved.min(flight.len_bytes));
        data.truncate(moved as usize);
        let len_bytes = u64::from(moved);
        self.check_space(file, offset.saturating_add(len_bytes))?;
        if self.dice.chance(self.dice.faults.lost_write_probability) {
            self.dice.counters.lost_writes += 1;
            return Ok(moved);
        }
        let sector_bytes = u64::from(self.sector_bytes());
        let (mut file, mut offset) = (file, offset);
        if self.dice.chance(self.dice.faults.misdirected_write_probability)
            && let Some(target) = self.files.elsewhere(file, offset, len_bytes, sector_bytes, &mut self.dice)
        {
            (file, offset) = target;
            self.dice.counters.misdirected_writes += 1;
        }
        let bad = sectors(offset, len_bytes, sector_bytes);
        let is_bad = self.dice.chance(self.dice.faults.latent_error_probability);
        let bad_sector = is_bad.then(|| bad.start + self.dice.below(bad.end - bad.start));
        let target = self.file(file)?;
        target.heal(offset, len_bytes, sector_bytes);
        target.apply(Change::Write { offset, data }, is_dsync);
        if bad_sector.is_some_and(|sector| target.spoil(sector)) {
            self.dice.counters.latent_errors += 1;
        }
        Ok(moved)
    }

    /// Fewer whole sectors, if the dice say so.
    fn shorten(&mut self, len_bytes: u32) -> u32 {
        let count = len_bytes / self.sector_bytes();
        if count < 2 || !self.dice.chance(self.dice.faults.short_transfer_probability) {
            return len_bytes;
        }
        self.dice.counters.short_transfers += 1;
        // At least one sector, and not all of them.
        (1 + self.dice.below(u64::from(count) - 1) as u32) * self.sector_bytes()
    }

    fn check_space(&mut self, file: usize, end_bytes: u64) -> Result<(), i32> {
        if self.grows_too_far(file, end_bytes) {
            self.dice.counters.full_disk_errors += 1;
            return Err(libc::ENOSPC);
        }
        Ok(())
    }

    fn grows_too_far(&self, file: usize, len_bytes: u64) -> bool {
        let (Some(limit_bytes), Some(file)) = (self.dice.faults.enospc_at_bytes, self.files.get(file)) else {
            return false;
        };
        let growth_bytes = len_bytes.saturating_sub(file.len_bytes());
        growth_bytes > 0 && self.files.used_bytes(file.disk).saturating_add(growth_bytes) > limit_bytes
    }

    /// The power fails: what is in flight ends with `EIO` (and may have been written in part), volatile contents are
    /// gone, and the devices begin anew.
    pub(super) fn crash(&mut self) {
        self.boot += 1;
        self.dice.counters.crashes += 1;
        let mut in_flight: Vec<Launched> = self.flights.drain().collect();
        in_flight.sort_by_key(|launched| launched.serial);
        for Launched { flight, .. } in in_flight {
            let change = match flight.kind {
                Kind::Write => Some(Change::Write { offset: flight.offset, data: flight.data }),
                Kind::Discard { len_bytes } => Some(Change::Discard { offset: flight.offset, len_bytes }),
                Kind::Allocate { len_bytes, keep_size: false } => {
                    Some(Change::Grow { len_bytes: flight.offset.saturating_add(len_bytes) })
                }
                _ => None,
            };
            if let Some(change) = change {
                self.files.in_flight_at_crash(flight.file, change);
            }
            self.give(flight.member, Landed { key: flight.key, result: Err(libc::EIO), data: Vec::new() });
        }
        self.files.crash(&mut self.dice, u64::from(self.config.sector_bytes));
        // The same specifications as when the world was made: they cannot be refused now.
        if let Ok(devices) = devices(&self.config, self.boot) {
            self.devices = devices;
        }
    }

    /// A member does not wait until it says so again.
    pub(crate) fn begin_turn(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.waiting = None;
        }
    }

    /// Whether a member waits and has nothing to get up for.
    pub(crate) fn is_idle(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|member| self.sleeps(member))
    }

    fn sleeps(&self, member: &Member) -> bool {
        let Some(deadline_ns) = member.waiting else { return false };
        !member.is_woken && member.ready.is_empty() && deadline_ns.is_none_or(|at_ns| at_ns > self.now_ns)
    }

    pub(super) fn are_all_idle(&self) -> bool {
        self.members.iter().all(|(_, member)| self.sleeps(member))
    }

    /// When the first that waits wants to be woken, and when the next operation comes back, whichever is earlier.
    pub(crate) fn next_instant_ns(&self) -> Option<u64> {
        let deadlines = self.members.iter().filter_map(|(_, member)| member.waiting.flatten());
        deadlines.chain(self.next_event_ns()).min()
    }
}

fn devices(config: &SimConfig, boot: u64) -> Result<Vec<Device>, SimConfigError> {
    let seed = config.seed.wrapping_add(boot.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let disks = (0_u64..).zip(&config.disks);
    let made = disks.map(|(number, disk)| {
        Device::new(&disk.spec, seed ^ (number + 1).rotate_left(32))
            .map_err(|error| SimConfigError::Disk { number: number as usize, why: error.to_string() })
    });
    made.collect()
}
