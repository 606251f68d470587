//! The kernel's counters of the device that holds the storage, over one run.
//!
//! **Why.** A point that was measured beside a backup is that of a disk with a backup, and nothing in the point shows
//! the backup.
//!
//! **How.** [`Device::begin`] reads the counters when the run proper begins, once files are ready; [`Device::end`]
//! reads them again and compares them with the bytes that the run asked for, warm-up included. Bytes that the device
//! moved beyond those are foreign. Meanwhile a thread reads the counters each second, as `iostat 1` does, and keeps the
//! busiest second.
//!
//! **Limits.** The kernel counts each device by itself: the bytes of the run are the partition's, foreign ones those of
//! the whole disk. File system writes on behalf of a job that grows, removes or syncs files (the journal) look foreign,
//! and so do those of a job that writes through the page cache, which the kernel makes later; beside such jobs only
//! foreign reads count. Devices without counters (memory, a network, an overlay) are not judged.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll::sys::diskstats::{self, Counters, DiskStats};
use plimsoll::sys::sysfs::{self, major_minor};
use plimsoll_files::jobs::{Job, JobKind};
use plimsoll_files::setup::{device_of, is_in_memory};

use super::Situation;
use crate::foreign::ForeignMeter;
use crate::load::Traffic;

/// Length of the parts into which a run is divided; the busiest part is kept.
const WINDOW: Duration = Duration::from_secs(1);

pub(super) struct Device {
    pub(super) name: String,
    number: (u32, u32),
    /// Number of the whole disk, because traffic on other partitions disturbs as well.
    disk_number: (u32, u32),
    /// Whether writes beyond those asked for count as other programs'.
    judges_writes: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) counters: Counters,
    pub(super) elapsed: Duration,
}

impl Moved {
    fn requests_per_s(&self) -> f64 {
        (self.counters.reads + self.counters.writes) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The state of the counters when a run began.
pub(super) struct Begun {
    stats: DiskStats,
    at: Instant,
    /// Ends the thread that keeps the busiest second; `None` if there is none.
    busiest: Option<(Sender<()>, JoinHandle<Option<Moved>>)>,
    meter: ForeignMeter,
    own_read_bytes: u64,
    own_written_bytes: u64,
}

/// What the device moved during a run.
pub(super) struct Counted {
    pub(super) moved: Moved,
    /// The second with the most requests, or the whole run if it is shorter.
    pub(super) busiest: Option<Moved>,
    /// Part of the bytes that the run did not ask for, in percent; `None` if the device moved none although the run
    /// asked for some.
    pub(super) foreign_pct: Option<f64>,
}

impl Device {
    /// Returns the device that holds the storage.
    ///
    /// # Errors
    /// Why the kernel has no counters for the device.
    pub(super) fn of(situation: &Situation) -> Result<Device, String> {
        if is_in_memory(situation.options.backend) {
            return Err("this backend reaches no device".to_owned());
        }
        if situation.options.jobs.jobs.iter().any(|job| job.storage.is_some()) {
            return Err("jobs have storages of their own".to_owned());
        }
        let path = situation.options.storage.path();
        let number = device_of(path).ok_or_else(|| format!("{} has no device number", path.display()))?;
        let (major, minor) = major_minor(number);
        let stats = diskstats::of_device(Path::new("/proc"), major, minor).map_err(|error| error.to_string())?;
        let sys = Path::new("/sys");
        let disk_number = sysfs::number(sys, &sysfs::disk_of(sys, &stats.name)).unwrap_or((major, minor));
        let judges_writes = !situation.options.jobs.jobs.iter().any(has_other_writes);
        Ok(Device { name: stats.name, number: (major, minor), disk_number, judges_writes })
    }

    /// Reads the counters at the begin of a run; `None` if the device is gone.
    pub(super) fn begin(&self, traffic: &Traffic) -> Option<Begun> {
        let stats = self.read()?;
        let (major, minor) = self.disk_number;
        let mut meter = ForeignMeter::new(Path::new("/proc"), major, minor);
        meter.begin();
        let (end, is_over) = mpsc::channel();
        let number = self.number;
        let thread = thread::Builder::new().spawn(move || busiest(number, &is_over)).ok();
        Some(Begun {
            stats,
            at: Instant::now(),
            busiest: thread.map(|thread| (end, thread)),
            meter,
            own_read_bytes: traffic.read_bytes(),
            own_written_bytes: traffic.written_bytes(),
        })
    }

    /// Reads the counters at the end of the run; `None` if the device is gone or was replaced.
    pub(super) fn end(&self, mut begun: Begun, traffic: &Traffic) -> Option<Counted> {
        let counters = self.read()?.counters.since(&begun.stats.counters)?;
        let moved = Moved { counters, elapsed: begun.at.elapsed() };
        let busiest = begun.busiest.take().and_then(|(end, thread)| {
            drop(end);
            thread.join().ok().flatten()
        });
        let own_read_bytes = traffic.read_bytes().saturating_sub(begun.own_read_bytes);
        let own_written_bytes = traffic.written_bytes().saturating_sub(begun.own_written_bytes);
        let foreign = begun.meter.end(own_read_bytes, self.judges_writes.then_some(own_written_bytes));
        Some(Counted { moved, busiest, foreign_pct: foreign.map(|share| share.foreign_pct) })
    }

    fn read(&self) -> Option<DiskStats> {
        read(self.number)
    }
}

fn read((major, minor): (u32, u32)) -> Option<DiskStats> {
    diskstats::of_device(Path::new("/proc"), major, minor).ok()
}

/// Returns the second in which the device moved the most requests. Runs until the sender of `is_over` is dropped.
fn busiest(number: (u32, u32), is_over: &Receiver<()>) -> Option<Moved> {
    let (mut before, mut at) = (read(number)?.counters, Instant::now());
    let mut busiest: Option<Moved> = None;
    loop {
        let ended = is_over.recv_timeout(WINDOW) != Err(RecvTimeoutError::Timeout);
        let now = read(number)?.counters;
        let window = Moved { counters: now.since(&before)?, elapsed: at.elapsed() };
        (before, at) = (now, Instant::now());

        // The remainder at the end is shorter than a second.
        let is_kept = match busiest {
            Some(most) => !ended && window.requests_per_s() > most.requests_per_s(),
            None => true,
        };
        if is_kept {
            busiest = Some(window);
        }

        if ended {
            return busiest;
        }
    }
}

/// Returns whether the kernel writes more than the job asks for, or at another time: in a later run.
fn has_other_writes(job: &Job) -> bool {
    let grows = matches!(job.kind, JobKind::Append | JobKind::Flush | JobKind::Discard { .. } | JobKind::Unlink { .. });
    let is_later = !job.direct && job.kind.is_write();
    grows || is_later || job.dsync || job.flush_every > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests_support::situation;

    #[test]
    fn writes_are_judged_unless_the_file_system_adds_its_own() {
        let judged = |job: &str| !situation(job).options.jobs.jobs.iter().any(has_other_writes);
        let job = |more: &str, options: &str| {
            format!("[{{name: a, {more}, shards: all, shard_info: {{parallelism: 1, reqsize: 4kB}}{options}}}]")
        };
        assert!(judged(&job("type: randread", "")) && judged(&job("type: randwrite", "")));
        assert!(!judged(&job("type: append, data_size: 1MB", "")));
        assert!(!judged(&job("type: randwrite", ", options: {dsync: true}")));
        for (kind, is_later) in [("type: randwrite", true), ("type: randread", false)] {
            let mut buffered = situation(&job(kind, "")).options.jobs.jobs;
            buffered[0].direct = false;
            assert_eq!(buffered.iter().any(has_other_writes), is_later, "{kind}");
        }
    }

    #[test]
    fn a_backend_in_memory_has_no_device() {
        let nothing = situation("[{name: a, type: randread, shards: all, shard_info: {parallelism: 1, reqsize: 4kB}}]");
        assert!(Device::of(&nothing).is_err());
    }
}
