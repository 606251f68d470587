//! The health of a disk, judged from the results of its operations.
//!
//! # Why
//! A disk does not only work or fail. It may refuse writes and still read, or do everything ten times slower than its
//! neighbours for an hour. A cache that notices late has hits waiting behind the disk; a cache that judges by one error
//! drops a disk for a single bad sector.
//!
//! # How it works
//! A state machine without clock or I/O: it takes the results of operations with the time in nanoseconds, and
//! [`Health::state`] and [`Health::why`] return its verdict. A few times a second, [`Health::judge`] compares the disk
//! with the others.
//!
//! | observation | conclusion |
//! |---|---|
//! | one read error (`EIO`, `ENODATA` and so on) | that block is lost (a latent sector error), the disk is not |
//! | 8 read errors, no good read between, within 60 s | failed |
//! | `ENODEV`, `ENXIO`, `ESHUTDOWN`, `ENOMEDIUM` of anything | failed: the kernel has taken the device away |
//! | 4 write errors, no good write between, within 60 s | read-only: spare blocks used up, a full thin volume |
//! | `EROFS` of a write, or a flush that fails | read-only at once |
//! | reads slower than 4 times the others', and than 5 ms, for 2 s | slow |
//! | reads faster than 2 times the others', or than 2.5 ms, for 5 s | healthy again |
//! | `EINTR`, `EAGAIN`, `ENOMEM`, `ECANCELED`, `EBUSY` | nothing: the machine's fault, not the disk's |
//! | a refusal of the scheduler: no room, a class that was removed | nothing |
//!
//! Sources: the Linux block layer answers `ENODEV` for an offline device, and `EIO`, `ENODATA` (medium), `ETIMEDOUT`,
//! `ENOLINK`, `EREMOTEIO`, `EILSEQ` for an operation that went wrong (its table of status codes, `block/blk-core.c`).
//! Single sectors of sound disks go bad: Bairavasundaram et al., "An Analysis of Latent Sector Errors in Disk Drives",
//! SIGMETRICS 2007. A second flush cannot make up for a failed one: Rebello et al., "Can Applications Recover from
//! fsync Failures?", ATC 2020. Slow disks are found by comparison with their peers: Panda et al., "IASO: A Fail-Slow
//! Detection and Mitigation Framework for Distributed Storage Services", ATC 2019. The figures are ours.
//!
//! Read latencies are smoothed (each new one counts an eighth) in three size classes: to 16 KiB, to 128 KiB, larger.
//! Each is compared with the same class of the other disks. A read that its reader gave up counts with at least the
//! time it had waited. A read still in the disk counts once it is older than the limit, so a disk that hangs is slow
//! after 2 s too. Writes are not compared: placement already gives each disk only as much as it completes, and a disk
//! that alone has the inserts of the moment is busy, not slow.
//!
//! # Limits
//! With two disks, each is compared with the other alone. A single disk, or one whose peers have no reads in that
//! class, is slow when reads take half a second. Failed and read-only last until the disk is opened again; a read-only
//! disk is not compared. If a slow disk has had no read for 30 s, its earlier latencies are forgotten and it is healthy
//! again.
//!
//! # Example
//! Three disks read 8 KiB in 0.1, 0.1 and 6 ms: for the third the limit is max(4 x 0.1, 5) = 5 ms, and after 2 s it is
//! "slow": "reads take 6.0 ms, those of the other disks 0.1 ms". At 2.4 ms it is healthy again 5 s later.

use crate::stats::DiskHealth;

const SECOND_NS: u64 = 1_000_000_000;
/// Read errors in a row that make a disk failed.
const READ_ERRORS: u32 = 8;
/// Write errors in a row that make a disk read-only.
const WRITE_ERRORS: u32 = 4;
/// Longest time that a row of errors may span: longer than the 30 s after which the kernel gives up a command.
const ERRORS_WITHIN_NS: u64 = 60 * SECOND_NS;
/// The lowest limit: a disk whose reads take no longer is never slow.
const SLOW_FLOOR_NS: u64 = 5_000_000;
const SLOW_FACTOR: u64 = 4;
/// The limit if there is nothing to compare with.
const SLOW_ALONE_NS: u64 = SECOND_NS / 2;
/// A slow disk is healthy again when its reads take at most this part of the limit.
const RECOVERED_DIVISOR: u64 = 2;
const SLOW_AFTER_NS: u64 = 2 * SECOND_NS;
const RECOVERED_AFTER_NS: u64 = 5 * SECOND_NS;
const FORGOTTEN_AFTER_NS: u64 = 30 * SECOND_NS;
/// Fewest reads in a size class before it is compared.
const MIN_READS: u32 = 16;
/// Weight of the past in the smoothed latency: 7 of 8.
const SMOOTHING: u64 = 8;
/// Upper ends of the size classes, in bytes; the last class has none.
const SIZE_CLASS_BYTES: [u32; SIZE_CLASSES - 1] = [16 << 10, 128 << 10];
const SIZE_CLASSES: usize = 3;

/// Error numbers, as in `asm-generic/errno.h` of Linux.
mod errno {
    pub(super) const EINTR: i32 = 4;
    pub(super) const ENXIO: i32 = 6;
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const ENODEV: i32 = 19;
    pub(super) const EROFS: i32 = 30;
    pub(super) const ESHUTDOWN: i32 = 108;
    pub(super) const ENOMEDIUM: i32 = 123;
    pub(super) const ECANCELED: i32 = 125;
}

/// A disk's typical read latency by size class, in nanoseconds; `None` for a class with too few reads.
pub(crate) type Typical = [Option<u64>; SIZE_CLASSES];

/// Smoothed read latency of one size class.
#[derive(Clone, Copy, Debug, Default)]
struct Smoothed {
    mean_ns: u64,
    reads: u32,
    last_ns: u64,
}

impl Smoothed {
    fn add(&mut self, now_ns: u64, latency_ns: u64) {
        if now_ns.saturating_sub(self.last_ns) >= FORGOTTEN_AFTER_NS {
            *self = Smoothed::default();
        }
        let count = u64::from(self.reads.min(SMOOTHING as u32 - 1)) + 1;
        self.mean_ns = self.mean_ns - self.mean_ns / count + latency_ns / count;
        self.reads = self.reads.saturating_add(1);
        self.last_ns = now_ns;
    }

    fn typical_ns(&self) -> Option<u64> {
        (self.reads >= MIN_READS).then_some(self.mean_ns)
    }
}

/// Errors without a success between them.
#[derive(Clone, Copy, Debug, Default)]
struct ErrorRun {
    count: u32,
    first_ns: u64,
}

impl ErrorRun {
    fn add(&mut self, now_ns: u64) -> u32 {
        if self.count == 0 || now_ns.saturating_sub(self.first_ns) > ERRORS_WITHIN_NS {
            *self = ErrorRun { count: 0, first_ns: now_ns };
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

/// The meaning of an error number for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Gone,
    ReadOnly,
    Nothing,
    Fault,
}

fn meaning(errno: i32) -> Meaning {
    match errno {
        errno::ENODEV | errno::ENXIO | errno::ESHUTDOWN | errno::ENOMEDIUM => Meaning::Gone,
        errno::EROFS => Meaning::ReadOnly,
        errno::EINTR | errno::EAGAIN | errno::ENOMEM | errno::ECANCELED | errno::EBUSY => Meaning::Nothing,
        _ => Meaning::Fault,
    }
}

/// Returns whether an error is the machine's, or will pass, or is a refusal of the scheduler (its class was removed,
/// say), and so says nothing about the disk.
pub(crate) fn is_passing(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
        || error.get_ref().is_some_and(|inner| inner.is::<plimsoll::RefusedReason>())
        || error.raw_os_error().is_some_and(|errno| meaning(errno) == Meaning::Nothing)
}

/// Returns whether a retry would fail alike: the device is gone, takes no writes, or does not answer.
pub(crate) fn is_final(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::NotConnected)
        || error.raw_os_error().is_some_and(|errno| matches!(meaning(errno), Meaning::Gone | Meaning::ReadOnly))
}

/// The states that operations show, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    #[default]
    Healthy,
    Slow,
    ReadOnly,
    Failed,
}

/// The health of one disk, as a state machine without clock or I/O.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    seen: Seen,
    seen_why: String,
    is_removing: bool,
    read_errors: ErrorRun,
    write_errors: ErrorRun,
    reads: [Smoothed; SIZE_CLASSES],
    /// Since when reads have been over the limit, or under half of it while the disk is slow.
    since_ns: Option<u64>,
}

impl Health {
    /// Returns the health of an unknown disk: healthy.
    pub(crate) fn new() -> Health {
        Health::default()
    }

    /// Returns the state. If several apply, the first of: failed, removing, read-only, slow.
    pub(crate) fn state(&self) -> DiskHealth {
        match self.seen {
            Seen::Failed => DiskHealth::Failed,
            _ if self.is_removing => DiskHealth::Removing,
            Seen::ReadOnly => DiskHealth::ReadOnly,
            Seen::Slow => DiskHealth::Slow,
            Seen::Healthy => DiskHealth::Healthy,
        }
    }

    /// Returns whether the disk's log and superblock can still be written, also while it is being removed.
    pub(crate) fn takes_metadata(&self) -> bool {
        self.seen < Seen::ReadOnly
    }

    /// Returns the reason for the state, in a sentence; empty for a healthy disk. If the disk is being removed,
    /// includes its other faults.
    pub(crate) fn why(&self) -> String {
        match self.state() {
            DiskHealth::Removing if self.seen_why.is_empty() => "its blocks are being moved away".to_string(),
            DiskHealth::Removing => format!("its blocks are being moved away; {}", self.seen_why),
            _ => self.seen_why.clone(),
        }
    }

    /// Records that the disk is being removed, or no longer is.
    pub(crate) fn set_removing(&mut self, is_removing: bool) {
        self.is_removing = is_removing;
    }

    /// Fails the disk for a reason other than an operation, such as a superblock of another cache.
    pub(crate) fn set_failed(&mut self, why: String) {
        self.become_worse(Seen::Failed, why);
    }

    /// Records a complete read of `len_bytes` that took `latency_ns` in the disk.
    pub(crate) fn read_ok(&mut self, now_ns: u64, len_bytes: u32, latency_ns: u64) {
        self.read_errors = ErrorRun::default();
        if let Some(smoothed) = self.reads.get_mut(size_class(len_bytes)) {
            smoothed.add(now_ns, latency_ns);
        }
    }

    /// Records a read that was given up `waited_ns` after it was submitted: it would have taken at least as long. If
    /// it was given up early, this says nothing and is ignored.
    pub(crate) fn read_given_up(&mut self, now_ns: u64, len_bytes: u32, waited_ns: u64) {
        if let Some(smoothed) = self.reads.get_mut(size_class(len_bytes))
            && waited_ns >= smoothed.mean_ns / 2
        {
            smoothed.add(now_ns, waited_ns.max(smoothed.mean_ns));
        }
    }

    /// Records a successful write.
    pub(crate) fn write_ok(&mut self, _now_ns: u64) {
        self.write_errors = ErrorRun::default();
    }

    /// Records a read that failed with `errno`.
    pub(crate) fn read_error(&mut self, now_ns: u64, errno: i32) {
        match meaning(errno) {
            Meaning::Gone => self.become_worse(Seen::Failed, gone("a read", errno)),
            Meaning::Nothing => {}
            Meaning::ReadOnly | Meaning::Fault => {
                let count = self.read_errors.add(now_ns);
                if count >= READ_ERRORS {
                    let why = format!("{count} reads failed one after another, the last with {}", name(errno));
                    self.become_worse(Seen::Failed, why);
                }
            }
        }
    }

    /// Records a write that failed with `errno`.
    pub(crate) fn write_error(&mut self, now_ns: u64, errno: i32) {
        match meaning(errno) {
            Meaning::Gone => self.become_worse(Seen::Failed, gone("a write", errno)),
            Meaning::Nothing => {}
            Meaning::ReadOnly => {
                self.become_worse(Seen::ReadOnly, format!("a write failed with {}", name(errno)));
            }
            Meaning::Fault => {
                let count = self.write_errors.add(now_ns);
                if count >= WRITE_ERRORS {
                    let why = format!("{count} writes failed one after another, the last with {}", name(errno));
                    self.become_worse(Seen::ReadOnly, why);
                }
            }
        }
    }

    /// Records a flush that failed with `errno`. Which of the last writes are durable is unknown from then on.
    pub(crate) fn flush_error(&mut self, _now_ns: u64, errno: i32) {
        match meaning(errno) {
            Meaning::Gone => self.become_worse(Seen::Failed, gone("a flush", errno)),
            Meaning::Nothing => {}
            Meaning::ReadOnly | Meaning::Fault => {
                self.become_worse(Seen::ReadOnly, format!("a flush failed with {}", name(errno)));
            }
        }
    }

    /// Returns the disk's typical read latencies, for other disks to compare with.
    pub(crate) fn typical(&self) -> Typical {
        self.reads.map(|smoothed| smoothed.typical_ns())
    }

    /// Compares the disk with `peers`, the other disks that are neither missing nor failed. `oldest_read` is the size
    /// and the age in nanoseconds of the read that has been in the disk longest, if any. Call it a few times a second.
    pub(crate) fn judge(&mut self, now_ns: u64, peers: &[Typical], oldest_read: Option<(u32, u64)>) {
        let worst = (0..SIZE_CLASSES)
            .filter_map(|class| self.compare(now_ns, class, peers, oldest_read))
            // The one that is farthest over its limit, by cross-multiplication.
            .max_by_key(|seen| seen.read_ns.saturating_mul(1024) / seen.limit_ns.max(1));

        match (self.seen, worst) {
            (Seen::Healthy, Some(worst)) if worst.read_ns > worst.limit_ns => {
                if self.lasts(now_ns, SLOW_AFTER_NS) {
                    self.become_worse(Seen::Slow, worst.why());
                }
            }
            (Seen::Slow, Some(worst)) if worst.read_ns <= worst.limit_ns / RECOVERED_DIVISOR => {
                if self.lasts(now_ns, RECOVERED_AFTER_NS) {
                    self.recover();
                }
            }
            (Seen::Slow, None) => self.recover(),
            _ => self.since_ns = None,
        }
    }

    /// Compares the reads of one size class with their limit; `None` if the class has no recent reads.
    fn compare(&self, now_ns: u64, class: usize, peers: &[Typical], oldest: Option<(u32, u64)>) -> Option<Comparison> {
        let smoothed = self.reads.get(class)?;
        let recent = smoothed.typical_ns().filter(|_| now_ns.saturating_sub(smoothed.last_ns) < FORGOTTEN_AFTER_NS);
        let others_ns = median(peers.iter().filter_map(|peer| *peer.get(class)?).collect());
        let limit_ns = match others_ns {
            Some(others_ns) => others_ns.saturating_mul(SLOW_FACTOR).max(SLOW_FLOOR_NS),
            None => SLOW_ALONE_NS,
        };
        // Younger reads say nothing: they may complete at any moment.
        let waiting = oldest.filter(|(len_bytes, age_ns)| size_class(*len_bytes) == class && *age_ns > limit_ns);
        let read_ns = recent.max(waiting.map(|(_, age_ns)| age_ns))?;
        Some(Comparison { read_ns, others_ns, limit_ns })
    }

    /// Returns whether a condition has lasted `for_ns`, counted from the first call.
    fn lasts(&mut self, now_ns: u64, for_ns: u64) -> bool {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) >= for_ns
    }

    fn become_worse(&mut self, seen: Seen, why: String) {
        if seen > self.seen {
            (self.seen, self.seen_why, self.since_ns) = (seen, why, None);
        }
    }

    fn recover(&mut self) {
        (self.seen, self.since_ns) = (Seen::Healthy, None);
        self.seen_why.clear();
    }
}

/// Read latency of one size class, with its limit and that of the other disks.
struct Comparison {
    read_ns: u64,
    others_ns: Option<u64>,
    limit_ns: u64,
}

impl Comparison {
    fn why(&self) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        match self.others_ns {
            Some(others_ns) => {
                format!("reads take {:.1} ms, those of the other disks {:.1} ms", ms(self.read_ns), ms(others_ns))
            }
            None => format!("reads take {:.1} ms, and no other disk shows what they should take", ms(self.read_ns)),
        }
    }
}

fn size_class(len_bytes: u32) -> usize {
    SIZE_CLASS_BYTES.iter().filter(|end_bytes| len_bytes > **end_bytes).count()
}

/// Returns the median; of an even count, the lower of the middle two.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Returns the system's text for an error number.
fn name(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

fn gone(what: &str, errno: i32) -> String {
    format!("{what} failed with {}: the device is gone", name(errno))
}

#[cfg(test)]
mod tests;
