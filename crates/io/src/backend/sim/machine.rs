//! The state of a simulated world behind its lock: clock, disks, files, and the operations in flight.
//!
//! # Why
//! All state that a world's shards share changes here, in one order, so the same seed gives the same run.
//!
//! # How it works
//! An operation is launched into the device of its disk with a copy of the data that it writes. The clock moves only in
//! [`Machine::advance_to`]; operations that a device completes meanwhile *land*: faults are drawn, the files change,
//! and the result (with the data read) is ready for the shard that asked. No pointer of a caller enters this module. A
//! run may limit the number of operations that land; the others stay in flight until the clock is moved again.
//!
//! # Limits
//! Operations on overlapping ranges take effect in the order in which they land.
//!
//! # Example
//! At 1000 ns a write is launched; the device's next event is at 81 000. The clock moves there, the write lands in the
//! volatile image of its file, and the shard's next `reap` reports it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use plimsoll_core::Op;
use plimsoll_sim::device::{DeviceCompletion, DeviceRequest};
use slab::Slab;

use super::disk::{Disk, SimDiskState};
use super::faults::{Dice, SimFaults};
use super::files::{FileSystem, SimFile, sectors};
use super::flight::{Flight, Landed, Launched};
use super::image::Change;
use super::{SimConfig, SimConfigError};
use crate::backend::{Kind, OpenOptions, explained};

/// Which thread moves the clock when a shard waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The waiting shard's thread: all shards are on one thread.
    Alone,
    /// None: the wait is only recorded, and a [`SimRuntime`](crate::SimRuntime) moves the clock.
    Noted,
    /// The thread of the last shard to wait: every shard has its own thread.
    Together,
}

/// One backend of the world.
#[derive(Default)]
pub(super) struct Member {
    pub(super) ready: VecDeque<Landed>,
    /// `Some` while the backend waits, with its deadline.
    pub(super) waiting: Option<Option<u64>>,
    pub(super) is_woken: bool,
}

/// The state of a world; see the module's documentation.
pub(crate) struct Machine {
    config: SimConfig,
    pub(crate) now_ns: u64,
    /// Rises with every crash; a backend of an earlier boot is dead.
    pub(super) boot: u64,
    pub(crate) pace: Pace,
    pub(super) dice: Dice,
    pub(super) files: FileSystem,
    disks: Vec<Disk>,
    flights: Slab<Launched>,
    serial: u64,
    pub(super) members: Slab<Member>,
    /// Completed operations that have not landed: none, unless a run stopped at a number of landed ones.
    landing: Vec<DeviceCompletion>,
    /// Operations that have landed since the world began.
    pub(crate) landed: u64,
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
            disks: disks(config)?,
            flights: Slab::new(),
            serial: 0,
            members: Slab::new(),
            landing: Vec::new(),
            landed: 0,
        })
    }

    pub(super) fn sector_bytes(&self) -> u32 {
        self.config.sector_bytes
    }

    pub(super) fn keeps_contents(&self) -> bool {
        self.config.keep_contents
    }

    /// Opens or creates a file; its disk is the one with the longest mount that `path` begins with.
    pub(super) fn open(&mut self, path: &Path, options: &OpenOptions) -> io::Result<usize> {
        let refuse = |errno, what: &str| Err(explained(errno, format!("cannot open {}: {what}", path.display())));
        let found = self.files.find(path);
        let disk = match found.and_then(|file| self.files.get(file)) {
            Some(file) => Some(file.disk),
            None => self.mounted_at(path),
        };
        if let Some(disk) = disk {
            self.check_disk(disk, found.is_none() && options.create_new).map_err(io::Error::from_raw_os_error)?;
        }

        // A directory is a file without contents, so that its sync costs as much as any. Names are durable at once.
        match (found, options.create_new || options.directory, disk) {
            (Some(file), ..) if options.directory => Ok(file),
            (Some(_), true, _) => refuse(libc::EEXIST, "it exists in the simulated world already"),
            (Some(file), false, _) => Ok(file),
            (None, false, _) => refuse(libc::ENOENT, "no such file in the simulated world: create it first"),
            (None, true, Some(disk)) => Ok(self.files.create(path, disk)),
            (None, true, None) => refuse(libc::ENOENT, "no simulated disk is mounted there: give one the mount \"\""),
        }
    }

    /// Returns the disk with the longest mount that `path` begins with.
    fn mounted_at(&self, path: &Path) -> Option<usize> {
        let mounts = self.config.disks.iter().enumerate().filter(|(_, disk)| path.starts_with(&disk.mount));
        mounts.max_by_key(|(at, disk)| (disk.mount.as_os_str().len(), usize::MAX - at)).map(|(at, _)| at)
    }

    fn check_disk(&self, disk: usize, is_change: bool) -> Result<(), i32> {
        self.disks.get(disk).map_or(Ok(()), |disk| disk.check(is_change))
    }

    /// Checks whether the state of a file's disk allows an operation that changes data (`is_change`) or one that does
    /// not. If not, returns the error number.
    pub(super) fn check_state(&self, file: usize, is_change: bool) -> Result<(), i32> {
        self.files.get(file).map_or(Ok(()), |file| self.check_disk(file.disk, is_change))
    }

    pub(super) fn set_disk_faults(&mut self, number: usize, faults: Option<SimFaults>) -> Result<(), SimConfigError> {
        if number >= self.disks.len() {
            return Err(SimConfigError::UnknownDisk { number, disks: self.disks.len() });
        }
        match faults {
            Some(faults) => self.dice.disk_faults.insert(number, faults),
            None => self.dice.disk_faults.remove(&number),
        };
        Ok(())
    }

    pub(super) fn set_disk_state(&mut self, number: usize, state: SimDiskState) -> Result<(), SimConfigError> {
        let disks = self.disks.len();
        let disk = self.disks.get_mut(number).ok_or(SimConfigError::UnknownDisk { number, disks })?;
        let was_there = disk.check(false).is_ok();
        disk.set_state(self.now_ns, state).map_err(|why| SimConfigError::Disk { number, why })?;
        if let (true, Err(errno)) = (was_there, disk.check(false)) {
            disk.restart();
            self.abandon(number, errno);
        }
        Ok(())
    }

    /// Ends the operations in flight on a disk with `errno`; whether each took effect is drawn.
    fn abandon(&mut self, disk: usize, errno: i32) {
        let files = &self.files;
        let is_there = |launched: &Launched| files.get(launched.flight.file).is_some_and(|file| file.disk == disk);
        let keys: Vec<usize> =
            self.flights.iter().filter(|(_, launched)| is_there(launched)).map(|(key, _)| key).collect();
        let mut interrupted: Vec<Launched> = keys.into_iter().filter_map(|key| self.flights.try_remove(key)).collect();
        interrupted.sort_by_key(|launched| launched.serial);

        let flights = &self.flights;
        self.landing.retain(|completion| flights.contains(completion.key as usize));

        let (keep_contents, sector_bytes) = (self.config.keep_contents, u64::from(self.sector_bytes()));
        for Launched { flight, .. } in interrupted {
            let (member, key, file) = (flight.member, flight.key, flight.file);
            if let Some(change) = flight.into_change(keep_contents) {
                let dice = &mut self.dice;
                self.files.in_flight_when_disk_left(file, change, !keep_contents, dice, sector_bytes);
            }
            self.give(member, Landed { key, result: Err(errno), data: Vec::new() });
        }
    }

    pub(super) fn set_len(&mut self, file: usize, len_bytes: u64) -> io::Result<()> {
        self.check_state(file, true).map_err(io::Error::from_raw_os_error)?;
        if self.grows_too_far(file, len_bytes) {
            return Err(explained(libc::ENOSPC, "the simulated disk is full (enospc_at_bytes)".to_owned()));
        }
        let _ = self.apply(file, Change::SetLen { len_bytes }, false);
        Ok(())
    }

    /// Launches an operation into the device of its file's disk.
    pub(super) fn launch(&mut self, flight: Flight) {
        let Some(file) = self.files.get(flight.file) else { return };
        let (op, len_bytes) = match flight.kind {
            Kind::Read => (Op::Read, flight.len_bytes),
            Kind::Write => (Op::Write, flight.len_bytes),
            Kind::Sync { .. } => (Op::Flush, 0),
            Kind::Discard { len_bytes } => (Op::Discard, u32::try_from(len_bytes).unwrap_or(u32::MAX)),
            Kind::Allocate { len_bytes, .. } => (Op::Allocate, u32::try_from(len_bytes).unwrap_or(u32::MAX)),
            Kind::SetLen { .. } => (Op::Allocate, 0),
        };
        let (disk, sync_before) = (file.disk, file.next_serial());
        let offset_bytes = self.address(file, flight.offset, len_bytes);

        self.serial += 1;
        let key = self.flights.insert(Launched { flight, serial: self.serial, sync_before }) as u64;
        if let Some(disk) = self.disks.get_mut(disk) {
            disk.submit(self.now_ns, DeviceRequest { key, op, offset_bytes, len_bytes });
        }
    }

    /// Returns the position on its disk of an offset in a file. Positions wrap if a disk is smaller than the sum of its
    /// files: only distances matter to a device.
    fn address(&self, file: &SimFile, offset: u64, len_bytes: u32) -> u64 {
        let capacity_bytes = self.disks.get(file.disk).map_or(u64::MAX, |disk| disk.spec.capacity_bytes);
        let last = capacity_bytes.saturating_sub(u64::from(len_bytes));
        let at = file.base_bytes.saturating_add(offset);
        if at <= last { at } else { at % (last + 1) / 4096 * 4096 }
    }

    /// Submits the hanging requests of the first disk that has any. Returns whether there is one.
    pub(super) fn release_hanging(&mut self) -> bool {
        let now_ns = self.now_ns;
        self.disks.iter_mut().any(|disk| disk.release(now_ns))
    }

    /// Returns the time of the next completion.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        if !self.landing.is_empty() {
            return Some(self.now_ns);
        }
        self.disks.iter().filter_map(|disk| disk.device.next_event_ns()).min()
    }

    /// Moves the clock, and lands every operation that completes until then. A time in the past counts as now.
    pub(crate) fn advance_to(&mut self, at_ns: u64) {
        self.advance_until_landed(at_ns, u64::MAX);
    }

    /// Moves the clock as [`Machine::advance_to`]; once `enough` operations have landed since the world began, no
    /// further one lands.
    pub(crate) fn advance_until_landed(&mut self, at_ns: u64, enough: u64) {
        self.now_ns = self.now_ns.max(at_ns);
        let mut landing = std::mem::take(&mut self.landing);
        for disk in &mut self.disks {
            disk.device.advance(self.now_ns, &mut landing);
        }

        // The sort is stable: completions of one instant land by disk, then in the order of their device.
        landing.sort_by_key(|completion| completion.at_ns);
        let room = usize::try_from(enough.saturating_sub(self.landed)).unwrap_or(usize::MAX);
        for completion in landing.drain(..room.min(landing.len())) {
            self.land(completion);
        }
        self.landing = landing;
    }

    fn land(&mut self, completion: DeviceCompletion) {
        let Some(launched) = self.flights.try_remove(completion.key as usize) else { return };
        self.landed += 1;
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
        // A dropped backend takes no results.
        if let Some(member) = self.members.get_mut(member) {
            member.ready.push_back(landed);
        }
    }

    /// Applies an operation to its file after the device has moved `moved` bytes. Returns the bytes moved, and the data
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
                self.file(flight.file)?.mark_readable(flight.offset, len_bytes, sector_bytes);
                self.apply(flight.file, Change::Discard { offset: flight.offset, len_bytes }, false)?;
                Ok((0, Vec::new()))
            }
            Kind::Allocate { len_bytes, keep_size } => {
                if !keep_size {
                    let len_bytes = flight.offset.saturating_add(len_bytes);
                    self.check_space(flight.file, len_bytes)?;
                    self.apply(flight.file, Change::Grow { len_bytes }, false)?;
                }
                Ok((0, Vec::new()))
            }
            Kind::SetLen { len_bytes } => {
                self.check_space(flight.file, len_bytes)?;
                self.apply(flight.file, Change::SetLen { len_bytes }, false)?;
                Ok((0, Vec::new()))
            }
        }
    }

    fn file(&mut self, file: usize) -> Result<&mut SimFile, i32> {
        self.files.get_mut(file).ok_or(libc::EBADF)
    }

    /// Makes a change visible. Without contents a crash loses nothing, so the change is durable at once.
    fn apply(&mut self, file: usize, change: Change, is_durable: bool) -> Result<(), i32> {
        let is_durable = is_durable || !self.config.keep_contents;
        self.file(file)?.apply(change, is_durable);
        Ok(())
    }

    /// Returns the faults of a file's disk.
    fn faults_of(&self, file: usize) -> SimFaults {
        self.files.get(file).map_or(self.dice.faults, |file| self.dice.faults_of(file.disk))
    }

    fn read(&mut self, flight: &Flight, moved: u32) -> Result<(u32, Vec<u8>), i32> {
        let faults = self.faults_of(flight.file);
        if self.dice.chance(faults.read_error_probability) {
            self.dice.counters.read_errors += 1;
            return Err(libc::EIO);
        }
        let len_bytes = self.shorten(moved.min(flight.len_bytes), &faults);
        let sector_bytes = u64::from(self.sector_bytes());
        let file = self.file(flight.file)?;

        let mut data = file.read(flight.offset, len_bytes as usize);
        if file.has_bad_sector(flight.offset, data.len() as u64, sector_bytes) {
            self.dice.counters.latent_error_reads += 1;
            return Err(libc::EIO);
        }

        if self.dice.chance(faults.bit_flip_probability) {
            let bit = self.dice.below(data.len() as u64 * 8);
            if let Some(byte) = data.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
                self.dice.counters.bit_flips += 1;
            }
        }
        Ok((data.len() as u32, data))
    }

    fn write(&mut self, flight: Flight, moved: u32) -> Result<u32, i32> {
        let (file, offset, is_dsync) = (flight.file, flight.offset, flight.is_dsync);
        let faults = self.faults_of(file);
        if self.dice.chance(faults.write_error_probability) {
            self.dice.counters.write_errors += 1;
            return Err(libc::EIO);
        }
        let moved = self.shorten(moved.min(flight.len_bytes), &faults);
        let len_bytes = u64::from(moved);

        self.check_space(file, offset.saturating_add(len_bytes))?;
        if self.dice.chance(faults.lost_write_probability) {
            self.dice.counters.lost_writes += 1;
            return Ok(moved);
        }

        let sector_bytes = u64::from(self.sector_bytes());
        let (mut file, mut offset) = (file, offset);
        if self.dice.chance(faults.misdirected_write_probability)
            && let Some(target) = self.files.misdirected_to(file, offset, len_bytes, sector_bytes, &mut self.dice)
        {
            (file, offset) = target;
            self.dice.counters.misdirected_writes += 1;
        }

        let bad = sectors(offset, len_bytes, sector_bytes);
        let is_bad = self.dice.chance(faults.latent_error_probability);
        let bad_sector = is_bad.then(|| bad.start + self.dice.below(bad.end - bad.start));
        let target = self.file(file)?;
        target.mark_readable(offset, len_bytes, sector_bytes);
        if bad_sector.is_some_and(|sector| target.mark_unreadable(sector)) {
            self.dice.counters.latent_errors += 1;
        }

        let mut data = flight.data;
        data.truncate(moved as usize);
        let written = Flight { file, offset, len_bytes: moved, data, ..flight };
        if let Some(change) = written.into_change(self.config.keep_contents) {
            self.apply(file, change, is_dsync)?;
        }
        Ok(moved)
    }

    /// Returns `len_bytes`, or fewer whole sectors if a short transfer is drawn.
    fn shorten(&mut self, len_bytes: u32, faults: &SimFaults) -> u32 {
        let count = len_bytes / self.sector_bytes();
        if count < 2 || !self.dice.chance(faults.short_transfer_probability) {
            return len_bytes;
        }
        self.dice.counters.short_transfers += 1;
        // At least one sector, but not all.
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
        let (Some(limit_bytes), Some(file)) = (self.faults_of(file).enospc_at_bytes, self.files.get(file)) else {
            return false;
        };
        let growth_bytes = len_bytes.saturating_sub(file.len_bytes());
        growth_bytes > 0 && self.files.used_bytes(file.disk).saturating_add(growth_bytes) > limit_bytes
    }

    /// Crashes the world: operations in flight end with `EIO` (and may have been written in part), volatile contents
    /// are lost, and the devices restart.
    pub(super) fn crash(&mut self) {
        self.boot += 1;
        self.dice.counters.crashes += 1;

        let mut in_flight: Vec<Launched> = self.flights.drain().collect();
        in_flight.sort_by_key(|launched| launched.serial);
        self.landing.clear();

        for Launched { flight, .. } in in_flight {
            let (member, key, file) = (flight.member, flight.key, flight.file);
            if let Some(change) = flight.into_change(self.config.keep_contents) {
                self.files.in_flight_at_crash(file, change);
            }
            self.give(member, Landed { key, result: Err(libc::EIO), data: Vec::new() });
        }

        self.files.crash(&mut self.dice, u64::from(self.config.sector_bytes));
        self.disks.iter_mut().for_each(Disk::restart);
    }

    /// Marks a member as not waiting.
    pub(crate) fn begin_turn(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.waiting = None;
        }
    }

    /// Returns whether a member waits and has no reason to wake up.
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

    /// Returns the time of the next deadline or completion, whichever is earlier.
    pub(crate) fn next_instant_ns(&self) -> Option<u64> {
        let deadlines = self.members.iter().filter_map(|(_, member)| member.waiting.flatten());
        deadlines.chain(self.next_event_ns()).min()
    }
}

fn disks(config: &SimConfig) -> Result<Vec<Disk>, SimConfigError> {
    let make = |(number, disk): (usize, &super::SimDisk)| {
        Disk::new(&disk.spec, config.seed, number as u64)
            .map_err(|error| SimConfigError::Disk { number, why: error.to_string() })
    };
    config.disks.iter().enumerate().map(make).collect()
}
