//! Shows scheduler classes of running programs to stock `iostat`, as devices.
//!
//! # Why
//! Dashboards and habits are built on iostat. It reads devices of programs from a directory (`iostat -f DIR`, or `+f`
//! for both these and the disks; since sysstat 12.2), so that it shows classes without another tool.
//!
//! # How it works
//! For each used class on a disk there is `DIR/block/PROGRAM-PID-CLASS/stat` with the 11 counts of
//! `/sys/block/NAME/stat`; with several disks the name ends in `-dN`. `DIR/diskstats` has the same in the form of
//! `/proc/diskstats`: iostat reads it with `-p ALL` only (seen with strace of 12.6.1). Files are replaced as a whole.
//! Counts only grow: if a program begins to count anew, its counts are added to the old ones. Classes of programs that
//! ended disappear.
//!
//! | count | is |
//! |---|---|
//! | reads, sectors, time of reads | as the program counts; time is from queueing to completion |
//! | writes | the same; flushes, discards and allocations count as writes |
//! | merges | 0: the scheduler does not merge |
//! | under way | requests queued and in the device |
//! | weighted time | the time of reads and writes |
//! | busy time | the time of reads and writes, at most the time that has passed |
//!
//! # Limits
//! `%util` is an upper bound: requests that overlap are counted one after the other until the interval is full.
//! `aqu-sz` counts requests when they complete. iostat's first report divides by the time since the host began, not
//! the program (`-y` leaves it out). The exporter empties the directory when it ends, so that no old class looks idle.
//!
//! # Example
//! ```
//! use plimsoll::metrics::{ClassMetrics, DirectionMetrics, DiskMetrics, ProgramMetrics};
//! use plimsoll_observe::stat::export::Export;
//! let read = DirectionMetrics { requests: 1000, bytes: 4_096_000, ..DirectionMetrics::default() };
//! let class = ClassMetrics { class: "query".to_owned(), read, ..ClassMetrics::default() };
//! let disk = DiskMetrics { classes: vec![class], ..DiskMetrics::default() };
//! let program = ProgramMetrics { program: "db".to_owned(), pid: 7, disks: vec![disk], ..ProgramMetrics::default() };
//! let place = tempfile::tempdir()?;
//! let mut export = Export::create(&place.path().join("classes"))?;
//! export.publish(&[program])?;
//! let stat = std::fs::read_to_string(place.path().join("classes/block/db-7-query/stat"))?;
//! assert!(stat.starts_with("1000 0 8000 "));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plimsoll::metrics::{ClassMetrics, ProgramMetrics};
use plimsoll::sys::diskstats::SECTOR_BYTES;

use super::programs::is_used;

/// The file that marks a directory as an exporter's; held locked while the directory is in use.
const MARK: &str = ".plimsoll-export";

/// Most characters of a device name that come from one name of a program or class: iostat cuts names.
const PART_MAX_CHARS: usize = 32;

/// A class on a disk: process, disk, class.
type Key = (u32, u16, String);

/// A directory for `iostat -f`.
#[derive(Debug)]
pub struct Export {
    directory: PathBuf,
    /// Locked.
    _mark: File,
    devices: BTreeMap<Key, Device>,
}

#[derive(Debug)]
struct Device {
    name: String,
    /// The latest totals of the program.
    said: Totals,
    /// The totals shown to iostat, which never fall.
    shown: Totals,
    busy_ns: u64,
    under_way: u64,
    at: Instant,
}

/// Requests, bytes and nanoseconds, of reads and of writes.
type Totals = [u64; 6];

fn totals(class: &ClassMetrics) -> Totals {
    let (read, write) = (&class.read, &class.write);
    [read.requests, read.bytes, read.total.sum_ns, write.requests, write.bytes, write.total.sum_ns]
}

impl Export {
    /// Takes `directory` and empties it. If it does not exist, creates it in its parent, which must exist.
    ///
    /// # Errors
    /// `AlreadyExists` if it is not empty and has no exporter's mark, `ResourceBusy` if another exporter uses it, and
    /// errors of the file system; each with the path.
    pub fn create(directory: &Path) -> io::Result<Export> {
        let failed = |error: io::Error| told(&error, directory);
        if !directory.is_dir() {
            fs::create_dir(directory).map_err(failed)?;
        }

        let path = directory.join(MARK);
        if !path.exists() && fs::read_dir(directory).map_err(failed)?.next().is_some() {
            let reason = "is not empty, and no exporter's: name an empty directory, or one that is not there";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} {reason}", directory.display())));
        }

        let mark = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
        match mark.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                let message = format!("{} is in use by another exporter", directory.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
        }

        let export = Export { directory: directory.to_owned(), _mark: mark, devices: BTreeMap::new() };
        export.clear().map_err(failed)?;
        fs::create_dir_all(directory.join("block")).map_err(failed)?;
        Ok(export)
    }

    /// Shows the counters of `programs`, which must be all of them: classes of other programs disappear.
    ///
    /// # Errors
    /// Errors of the file system, with the path; files not yet replaced keep their old text, and the next call may
    /// succeed.
    pub fn publish(&mut self, programs: &[ProgramMetrics]) -> io::Result<()> {
        self.publish_at(programs, Instant::now())
    }

    fn publish_at(&mut self, programs: &[ProgramMetrics], now: Instant) -> io::Result<()> {
        let mut there = BTreeSet::new();
        for program in programs {
            for disk in &program.disks {
                for class in disk.classes.iter().filter(|class| is_used(class)) {
                    let key = (program.pid, disk.disk, class.class.clone());
                    there.insert(key.clone());
                    match self.devices.get_mut(&key) {
                        Some(device) => device.follow(class, now),
                        None => {
                            let name = self.name(program, disk.disk, &class.class);
                            self.devices.insert(key, Device::new(name, class, now));
                        }
                    }
                }
            }
        }

        let gone: Vec<Key> = self.devices.keys().filter(|key| !there.contains(*key)).cloned().collect();
        for device in gone.iter().filter_map(|key| self.devices.remove(key)) {
            remove_device(&self.directory.join("block").join(device.name));
        }
        self.write().map_err(|error| told(&error, &self.directory))
    }

    /// Returns a name that no other class has.
    fn name(&self, program: &ProgramMetrics, disk: u16, class: &str) -> String {
        let number = if program.disks.len() > 1 { format!("-d{disk}") } else { String::new() };
        let plain = format!("{}-{}-{}{number}", part(&program.program), program.pid, part(class));
        let is_free = |name: &String| self.devices.values().all(|device| device.name != *name);
        let numbered = (2..).map(|count| format!("{plain}-{count}"));
        std::iter::once(plain.clone()).chain(numbered).find(is_free).unwrap_or(plain)
    }

    fn write(&self) -> io::Result<()> {
        for device in self.devices.values() {
            let directory = self.directory.join("block").join(&device.name);
            fs::create_dir_all(&directory)?;
            self.replace(&directory.join("stat"), &format!("{}\n", device.counts()))?;
        }
        let mut text = String::new();
        for (minor, device) in self.devices.values().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "   0 {minor:7} {} {}", device.name, device.counts());
        }
        self.replace(&self.directory.join("diskstats"), &text)
    }

    /// Replaces a file, so that a reader sees the old text or the new one.
    fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        let new = self.directory.join(".new");
        fs::write(&new, text)?;
        fs::rename(new, path)
    }

    /// Removes the files of this exporter, or of an earlier one.
    fn clear(&self) -> io::Result<()> {
        let block = self.directory.join("block");
        for entry in fs::read_dir(&block).into_iter().flatten() {
            remove_device(&entry?.path());
        }
        for name in ["diskstats", ".new"] {
            match fs::remove_file(self.directory.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // An error has no receiver here; the next exporter tries again.
        let _ = self.clear();
    }
}

/// Removes a device's directory, unless it contains other files than an exporter's.
fn remove_device(directory: &Path) {
    let _ = fs::remove_file(directory.join("stat"));
    let _ = fs::remove_dir(directory);
}

fn told(error: &io::Error, directory: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("cannot export to {}: {error}", directory.display()))
}

impl Device {
    fn new(name: String, class: &ClassMetrics, now: Instant) -> Device {
        let said = totals(class);
        // The busy time before now is not known; iostat's first report is useless anyway.
        let mut device = Device { name, said, shown: said, busy_ns: 0, under_way: 0, at: now };
        device.under_way = class.queued.saturating_add(class.in_flight);
        device
    }

    fn follow(&mut self, class: &ClassMetrics, now: Instant) {
        let next = totals(class);
        let began_anew = next.iter().zip(self.said).any(|(next, said)| *next < said);
        let said = if began_anew { Totals::default() } else { self.said };
        let moved: Totals = std::array::from_fn(|at| next[at].saturating_sub(said[at]));
        self.shown.iter_mut().zip(moved).for_each(|(shown, moved)| *shown = shown.saturating_add(moved));
        let passed_ns = u64::try_from(now.saturating_duration_since(self.at).as_nanos()).unwrap_or(u64::MAX);
        let [.., read_ns, _, _, write_ns] = moved;
        self.busy_ns = self.busy_ns.saturating_add(read_ns.saturating_add(write_ns).min(passed_ns));
        self.under_way = class.queued.saturating_add(class.in_flight);
        (self.said, self.at) = (next, now);
    }

    /// Formats the counts in the order of `/sys/block/NAME/stat`.
    fn counts(&self) -> String {
        let [reads, read_bytes, read_ns, writes, written_bytes, write_ns] = self.shown;
        let (sectors, ms) = (|bytes: u64| bytes / SECTOR_BYTES, |ns: u64| ns / 1_000_000);
        format!(
            "{reads} 0 {} {} {writes} 0 {} {} {} {} {}",
            sectors(read_bytes),
            ms(read_ns),
            sectors(written_bytes),
            ms(write_ns),
            self.under_way,
            ms(self.busy_ns),
            ms(read_ns.saturating_add(write_ns))
        )
    }
}

/// Turns a name into a part of a device's name: one word, safe for iostat and for a file system.
fn part(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
    let part: String = text.chars().take(PART_MAX_CHARS).map(plain).collect();
    match part.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if part.is_empty() => "_".to_owned(),
        None => part,
    }
}

#[cfg(test)]
mod tests;
