//! The file system of a simulated world: names, contents, and their state after a crash.
//!
//! # Why
//! A program that lacks a sync works until the power fails. Here the power fails when a test decides.
//!
//! # How it works
//! A change (write, discard, new length) is visible in the *volatile* image at once and is appended to the file's log.
//! A sync marks the log's entries at the time of its submission as durable, and the durable head of the log moves into
//! the *durable* image. At a crash the log is replayed in order onto the durable image: durable entries whole, all
//! others at random (kept, dropped, torn by sectors). Both images of the next boot begin as the result.
//!
//! * A data-only sync covers everything up to the last write or discard before it; later new lengths wait for a full
//!   sync.
//! * The creation of a file is durable after a full sync of the file (there are no directories to sync). Until then a
//!   crash may undo it together with the contents, even those that a data-only sync or an `O_DSYNC` write had made
//!   durable.
//! * An `O_DSYNC` write is durable by itself when it completes; earlier writes are not.
//!
//! # Limits
//! The log of a file holds at most [`UNSYNCED_MAX_BYTES`] of data; beyond it, the oldest changes become durable without
//! a sync, as in a kernel's write-back. Replay keeps the order of changes: an older unsynced write never overwrites a
//! newer one.
//!
//! # Example
//! Write A, sync, write B at the same place, crash: the file holds A or B, or with tearing some sectors of each, and no
//! other data.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::faults::{Dice, SimFaults};
use super::image::{Change, Image};

/// Most data of one file that waits for a sync: 64 MiB.
const UNSYNCED_MAX_BYTES: usize = 64 << 20;

/// Distance of files on their disk: a file is contiguous up to this length, 64 GiB.
const FILE_STRIDE_BYTES: u64 = 64 << 30;

struct Logged {
    serial: u64,
    is_durable: bool,
    change: Change,
}

/// One file.
pub(super) struct SimFile {
    pub(super) disk: usize,
    /// Position of the file on its disk.
    pub(super) base_bytes: u64,
    volatile: Image,
    durable: Image,
    is_creation_durable: bool,
    log: VecDeque<Logged>,
    log_bytes: usize,
    next_serial: u64,
    /// Numbers of the unreadable sectors.
    bad_sectors: BTreeSet<u64>,
}

impl SimFile {
    pub(super) fn len_bytes(&self) -> u64 {
        self.volatile.len_bytes()
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        self.volatile.read(offset, len)
    }

    /// Returns the next serial; all entries logged so far have smaller ones.
    pub(super) fn next_serial(&self) -> u64 {
        self.next_serial
    }

    /// Makes `change` visible, and durable at once if `is_durable`, otherwise with the next sync.
    pub(super) fn apply(&mut self, change: Change, is_durable: bool) {
        self.volatile.apply(&change);
        self.append(change, is_durable);
        while self.log_bytes > UNSYNCED_MAX_BYTES {
            if let Some(oldest) = self.log.front_mut() {
                oldest.is_durable = true;
            }
            self.settle();
        }
    }

    fn append(&mut self, change: Change, is_durable: bool) {
        self.log_bytes += data_len(&change);
        self.log.push_back(Logged { serial: self.next_serial, is_durable, change });
        self.next_serial += 1;
        self.settle();
    }

    /// Applies a sync that was submitted when the next serial was `before`.
    pub(super) fn sync(&mut self, before: u64, data_only: bool) {
        let is_covered = |entry: &Logged| entry.serial < before;
        let covered = if data_only {
            let is_data = |entry: &Logged| matches!(entry.change, Change::Write { .. } | Change::Discard { .. });
            let last = self.log.iter().rposition(|entry| is_covered(entry) && is_data(entry));
            last.map_or(0, |last| last + 1)
        } else {
            self.is_creation_durable = true;
            self.log.iter().take_while(|e| is_covered(e)).count()
        };
        self.log.iter_mut().take(covered).for_each(|entry| entry.is_durable = true);
        self.settle();
    }

    /// Moves the durable head of the log into the durable image.
    fn settle(&mut self) {
        while self.log.front().is_some_and(|entry| entry.is_durable) {
            if let Some(entry) = self.log.pop_front() {
                self.log_bytes -= data_len(&entry.change);
                self.durable.apply(&entry.change);
            }
        }
    }

    fn crash(&mut self, dice: &mut Dice, sector_bytes: u64) {
        let faults = dice.faults_of(self.disk);
        for entry in std::mem::take(&mut self.log) {
            if entry.is_durable {
                self.durable.apply(&entry.change);
            } else {
                let survivors = what_survives(entry.change, &faults, dice, sector_bytes);
                survivors.iter().for_each(|change| self.durable.apply(change));
            }
        }
        self.log_bytes = 0;
        self.volatile = self.durable.clone();
    }

    pub(super) fn has_bad_sector(&self, offset: u64, len_bytes: u64, sector_bytes: u64) -> bool {
        len_bytes > 0 && self.bad_sectors.range(sectors(offset, len_bytes, sector_bytes)).next().is_some()
    }

    /// Makes a sector unreadable. Returns whether it was readable before.
    pub(super) fn mark_unreadable(&mut self, sector: u64) -> bool {
        self.bad_sectors.insert(sector)
    }

    /// Makes the sectors of a range readable, because they are written again.
    pub(super) fn mark_readable(&mut self, offset: u64, len_bytes: u64, sector_bytes: u64) {
        if len_bytes > 0 && !self.bad_sectors.is_empty() {
            let healed = sectors(offset, len_bytes, sector_bytes);
            self.bad_sectors.retain(|sector| !healed.contains(sector));
        }
    }
}

fn data_len(change: &Change) -> usize {
    if let Change::Write { data, .. } = change { data.len() } else { 0 }
}

/// Returns the numbers of the sectors that a range touches.
pub(super) fn sectors(offset: u64, len_bytes: u64, sector_bytes: u64) -> std::ops::Range<u64> {
    offset / sector_bytes..(offset + len_bytes).div_ceil(sector_bytes)
}

/// Returns the part of a change that survives an interruption: all of it, some sectors of a write, or none.
fn what_survives(change: Change, faults: &SimFaults, dice: &mut Dice, sector_bytes: u64) -> Vec<Change> {
    if let Change::Write { offset, data } = &change
        && dice.chance(faults.torn_write_probability)
        && let Some(torn) = tear(*offset, data, dice, sector_bytes)
    {
        dice.counters.torn_at_crash += 1;
        return torn;
    }
    if dice.chance(faults.unsynced_kept_probability) {
        dice.counters.kept_at_crash += 1;
        return vec![change];
    }
    dice.counters.dropped_at_crash += 1;
    Vec::new()
}

/// Returns some sectors of a write, at least one and not all; `None` if it has only one.
fn tear(offset: u64, data: &[u8], dice: &mut Dice, sector_bytes: u64) -> Option<Vec<Change>> {
    let touched = sectors(offset, data.len() as u64, sector_bytes);
    let mut kept: Vec<bool> = touched.clone().map(|_| dice.chance(0.5)).collect();
    if kept.len() < 2 {
        return None;
    }

    let all_alike = kept.iter().all(|k| Some(k) == kept.first());
    if let Some(first) = kept.first_mut().filter(|_| all_alike) {
        *first = !*first;
    }
    let part = |sector: u64| {
        let start = (sector * sector_bytes).saturating_sub(offset);
        let stop = ((sector + 1) * sector_bytes - offset).min(data.len() as u64);
        let part = data.get(start as usize..stop as usize)?;
        Some(Change::Write { offset: offset + start, data: part.to_vec() })
    };
    Some(touched.zip(kept).filter(|(_, is_kept)| *is_kept).filter_map(|(sector, _)| part(sector)).collect())
}

/// The files of all disks by name.
#[derive(Default)]
pub(super) struct FileSystem {
    names: BTreeMap<PathBuf, usize>,
    files: Vec<SimFile>,
}

impl FileSystem {
    pub(super) fn find(&self, path: &Path) -> Option<usize> {
        self.names.get(path).copied()
    }

    pub(super) fn create(&mut self, path: &Path, disk: usize) -> usize {
        let before = self.files.iter().filter(|file| file.disk == disk).count() as u64;
        self.files.push(SimFile {
            disk,
            base_bytes: before.saturating_mul(FILE_STRIDE_BYTES),
            volatile: Image::default(),
            durable: Image::default(),
            is_creation_durable: false,
            log: VecDeque::new(),
            log_bytes: 0,
            next_serial: 0,
            bad_sectors: BTreeSet::new(),
        });
        self.names.insert(path.to_owned(), self.files.len() - 1);
        self.files.len() - 1
    }

    pub(super) fn get(&self, file: usize) -> Option<&SimFile> {
        self.files.get(file)
    }

    pub(super) fn get_mut(&mut self, file: usize) -> Option<&mut SimFile> {
        self.files.get_mut(file)
    }

    /// Returns the sum of the lengths of `disk`'s files.
    pub(super) fn used_bytes(&self, disk: usize) -> u64 {
        let of_disk = self.names.values().filter_map(|file| self.files.get(*file)).filter(|file| file.disk == disk);
        of_disk.fold(0, |sum, file| sum.saturating_add(file.len_bytes()))
    }

    /// Returns the target of a misdirected write of `len_bytes` at `offset` of `file`: another place in a file of the
    /// same disk, or `None` if there is none. The offset within the sector stays the same.
    pub(super) fn misdirected_to(
        &self,
        file: usize,
        offset: u64,
        len_bytes: u64,
        sector_bytes: u64,
        dice: &mut Dice,
    ) -> Option<(usize, u64)> {
        let disk = self.files.get(file)?.disk;
        let shift = offset % sector_bytes;

        // The number of places for the write in a file.
        let places = |other: &SimFile| match other.len_bytes().checked_sub(shift + len_bytes) {
            Some(room) if other.disk == disk => room / sector_bytes + 1,
            _ => 0,
        };

        let candidates: Vec<(usize, u64)> =
            self.names.values().filter_map(|at| Some((*at, places(self.files.get(*at)?)))).collect();
        let total: u64 = candidates.iter().map(|(_, places)| places).sum();

        let mut pick = dice.below(total);
        for (other, places) in candidates {
            if pick < places {
                let target = (other, pick * sector_bytes + shift);
                return (target != (file, offset)).then_some(target);
            }
            pick -= places;
        }
        None
    }

    /// Appends a change that was in flight to the log, as if it had just reached the disk's write cache.
    pub(super) fn in_flight_at_crash(&mut self, file: usize, change: Change) {
        if let Some(file) = self.files.get_mut(file) {
            file.append(change, false);
        }
    }

    /// Applies a change that was in flight when its disk left: all of it, some sectors, or none.
    pub(super) fn in_flight_when_disk_left(
        &mut self,
        file: usize,
        change: Change,
        is_durable: bool,
        dice: &mut Dice,
        sector_bytes: u64,
    ) {
        let Some(file) = self.files.get_mut(file) else { return };
        let faults = dice.faults_of(file.disk);
        let survivors = what_survives(change, &faults, dice, sector_bytes);
        survivors.into_iter().for_each(|change| file.apply(change, is_durable));
    }

    pub(super) fn crash(&mut self, dice: &mut Dice, sector_bytes: u64) {
        let files = &mut self.files;
        self.names.retain(|_, at| {
            let Some(file) = files.get_mut(*at) else { return false };
            file.crash(dice, sector_bytes);
            if !file.is_creation_durable && !dice.chance(dice.faults_of(file.disk).unsynced_kept_probability) {
                dice.counters.files_lost_at_crash += 1;
                return false;
            }
            file.is_creation_durable = true;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: u64 = 512;

    fn world(faults: SimFaults) -> (FileSystem, Dice) {
        let mut files = FileSystem::default();
        files.create(Path::new("a"), 0);
        (files, Dice::new(7, faults))
    }

    fn write(offset: u64, byte: u8, len: usize) -> Change {
        Change::Write { offset, data: vec![byte; len] }
    }

    /// Returns the result of these changes when all changes that are not durable are dropped: (whether there is a file,
    /// its bytes).
    fn left(changes: &[(Change, bool)], sync: Option<bool>, late: Option<Change>) -> Option<Vec<u8>> {
        let (mut files, mut dice) = world(SimFaults { unsynced_kept_probability: 0.0, ..SimFaults::default() });
        let file = files.get_mut(0)?;
        for (change, is_durable) in changes {
            file.apply(change.clone(), *is_durable);
        }
        let before = file.next_serial();
        late.into_iter().for_each(|change| file.apply(change, false));
        if let Some(data_only) = sync {
            file.sync(before, data_only);
        }
        file.is_creation_durable |= sync == Some(true);
        files.crash(&mut dice, SECTOR);
        files.find(Path::new("a")).and_then(|at| files.get(at)).map(|file| file.read(0, 4096))
    }

    /// Changes, each with whether it is durable by itself; a sync (data only?); a change after the sync's submission;
    /// and the result.
    type Case<'a> = (&'a [(Change, bool)], Option<bool>, Option<Change>, Option<&'a [u8]>);

    #[test]
    fn what_a_sync_covers_survives_and_nothing_else_must() {
        let (a, b) = (write(0, 1, 2), write(2, 2, 2));
        let cut = Change::SetLen { len_bytes: 1 };
        let cases: &[Case<'_>] = &[
            (&[(a.clone(), false)], None, None, None),
            (&[(a.clone(), false)], Some(false), None, Some(&[1, 1])),
            (&[(a.clone(), false)], Some(true), None, Some(&[1, 1])),
            // A change that completes after the sync was submitted is not covered.
            (&[(a.clone(), false)], Some(false), Some(b.clone()), Some(&[1, 1])),
            // A new length after the last write waits for a full sync; one before a write is covered with it.
            (&[(a.clone(), false), (cut.clone(), false)], Some(true), None, Some(&[1, 1])),
            (&[(a.clone(), false), (cut.clone(), false)], Some(false), None, Some(&[1])),
            (&[(a.clone(), false), (cut, false), (b.clone(), false)], Some(true), None, Some(&[1, 0, 2, 2])),
            // A durable write over an unsynced one stays on top, and does not make the other durable.
            (&[(a.clone(), false), (write(1, 9, 2), true)], Some(false), None, Some(&[1, 9, 9])),
        ];
        for (changes, sync, late, expect) in cases {
            assert_eq!(left(changes, *sync, late.clone()).as_deref(), *expect, "{changes:?} {sync:?} {late:?}");
        }
    }

    #[test]
    fn a_torn_write_leaves_some_sectors_of_each() {
        for offset in [0, 100] {
            let faults = SimFaults { torn_write_probability: 1.0, ..SimFaults::default() };
            let (mut files, mut dice) = world(faults);
            let file = files.get_mut(0).unwrap();
            file.apply(write(0, 1, 8192), false);
            file.sync(u64::MAX, false);
            file.apply(write(offset, 2, 4096), false);
            files.crash(&mut dice, SECTOR);
            let bytes = files.get(0).unwrap().read(0, 8192);
            for sector in bytes.chunks(512).skip(1).take(7) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never torn");
            }
            assert!(bytes[..8192].contains(&2) && bytes[offset as usize..][..4096].contains(&1));
            assert_eq!(dice.counters.torn_at_crash, 1);
        }
    }

    #[test]
    fn an_unsynced_log_is_bounded() {
        let (mut files, _) = world(SimFaults::default());
        let file = files.get_mut(0).unwrap();
        (0..100).for_each(|n| file.apply(write(n << 20, 1, 1 << 20), false));
        assert!(file.log_bytes <= UNSYNCED_MAX_BYTES && file.durable.len_bytes() == 36 << 20);
    }

    #[test]
    fn a_write_astray_lands_on_another_sector_of_the_same_disk() {
        let (mut files, mut dice) = world(SimFaults::default());
        assert_eq!(files.misdirected_to(0, 0, 512, SECTOR, &mut dice), None);
        files.get_mut(0).unwrap().apply(write(0, 1, 2048), false);
        for _ in 0..100 {
            let (file, offset) = files.misdirected_to(0, 512, 1024, SECTOR, &mut dice).unwrap_or((0, 0));
            assert!(file == 0 && offset != 512 && offset % SECTOR == 0 && offset + 1024 <= 2048, "{offset}");
        }
        let other = files.create(Path::new("b"), 1);
        files.get_mut(other).unwrap().apply(write(0, 1, 4096), false);
        assert!((0..100).all(|_| files.misdirected_to(0, 0, 2048, SECTOR, &mut dice).is_none()));
    }
}
