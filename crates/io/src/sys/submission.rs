//! Probes of direct I/O on a file system: whether a submission blocks, and the cost of a flush and a discard.
//!
//! # Why
//! A shard submits its writes to the kernel and continues with other work. Some file systems block in that call
//! instead: on the journal, on a lock that another write holds, or on the disk itself. Then the whole shard stops, and
//! no scheduler can help. Whether this happens depends on the file system, its options and the kind of write
//! (appending, overwriting, first touch of reserved space), so it must be measured on the machine itself.
//!
//! # How it works
//! [`probe_submissions`] makes a new scratch file for every kind of write and writes single blocks through Linux AIO,
//! one `io_submit` each. Around that call alone it measures the time and counts the thread's sleeps (`ru_nvcsw` of
//! `getrusage`). A call that never blocks causes no context switch; [`BLOCKING_SWITCHES`] or more per write mean that
//! the call blocks. The measure and its threshold are those of fsqual, the file system test of Seastar. Further writes,
//! with `RWF_NOWAIT`, show how often the kernel itself reports that it would block. [`probe_flush`] overwrites a block
//! and times the `fdatasync` after it; [`probe_discard`] punches holes into a file, and [`probe_discard_device`]
//! discards a range of a block device. [`probe_reads`] measures the CPU time of a read by io_uring, Linux AIO and
//! `pread`.
//!
//! Scratch files are created exclusively, and unlinked before the first byte is written, so that no data is left even
//! if the process is killed. Every probe is bounded by time and by count.
//!
//! # Limits
//! An operation that the disk never answers cannot be cancelled: the probe waits for it. With few operations (a slow
//! disk) the figures are coarse: one switch in five operations is 0.2. Effects that appear only on a full or aged file
//! system are not measured. A file system completes a punched hole before the disk's discard; only a block device shows
//! the disk's own figures.
//!
//! # Example
//! ```no_run
//! use plimsoll::sys::submission::{ProbeLimits, probe_submissions};
//! for probe in probe_submissions("/var/lib/data".as_ref(), ProbeLimits::SUBMISSIONS)? {
//!     let verdict = if probe.blocks { "blocks" } else { "does not block" };
//!     println!("{}, {} at a time: {verdict}", probe.kind.name(), probe.depth);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//! 500 appending writes, one at a time, slept 398 times inside `io_submit`: 0.796 switches each, so appending blocks;
//! allocate the space ahead. 500 overwriting writes slept once: 0.002, so overwriting does not block.

mod read;
mod scratch;
mod space;

use std::io::{self, IoSlice};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::clock::now_ns;
use super::rusage::thread_voluntary_switches;
use crate::backend::choose::BackendKind;
use crate::backend::{Backend, Kind, Memory, OpResult, Operation, Submit};
use crate::buffer::AlignedBuf;
pub use read::{READ_FILE_BYTES, READS_AT_A_TIME, ReadCost, ReadPath, probe_reads};
use scratch::{PIECE_BYTES, Scratch};
pub use space::{DiscardCost, probe_discard, probe_discard_device, probe_flush};

/// Fewest context switches per write at which submission counts as blocking. The threshold is that of fsqual, and of
/// iotune's own check.
pub const BLOCKING_SWITCHES: f64 = 0.1;

/// Concurrent writes of [`SubmissionKind::AppendConcurrent`] (as fsqual).
const APPENDS_AT_A_TIME: u32 = 3;
/// Concurrent writes of [`SubmissionKind::OverwriteConcurrent`] (as fsqual).
const OVERWRITES_AT_A_TIME: u32 = 7;
/// Most `RWF_NOWAIT` writes of a kind.
const NOWAIT_OPERATIONS: u32 = 100;
/// Most operations of one probe.
const OPERATIONS_MAX: u32 = 100_000;

/// Bounds of a probe, which stops at the first one reached, after at least one operation of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeLimits {
    /// Operations of each kind, 1 to 100 000 (clamped).
    pub operations: u32,
    /// Time of the whole probe in nanoseconds, without the creation of the scratch files and the last operation.
    pub time_ns: u64,
}

impl ProbeLimits {
    /// For [`probe_submissions`]: 500 writes of each kind, 1.2 s.
    pub const SUBMISSIONS: Self = Self { operations: 500, time_ns: 1_200_000_000 };
    /// For [`probe_flush`]: 50 flushes, 0.5 s.
    pub const FLUSH: Self = Self { operations: 50, time_ns: 500_000_000 };
    /// For [`probe_discard`] and [`probe_discard_device`]: 64 MiB, 0.5 s.
    pub const DISCARD: Self = Self { operations: 64, time_ns: 500_000_000 };

    fn operations(self) -> u32 {
        self.operations.clamp(1, OPERATIONS_MAX)
    }
}

/// Kinds of writes that file systems treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubmissionKind {
    /// Each write extends the file; one at a time.
    Append,
    /// As `Append`, several at a time.
    AppendConcurrent,
    /// Each write replaces data written before; one at a time.
    Overwrite,
    /// As `Overwrite`, several at a time.
    OverwriteConcurrent,
    /// The first write to space reserved with `fallocate`; one at a time.
    FirstTouch,
}

impl SubmissionKind {
    /// All kinds, in the order in which they are probed.
    pub const ALL: [Self; 5] =
        [Self::Append, Self::AppendConcurrent, Self::Overwrite, Self::OverwriteConcurrent, Self::FirstTouch];

    /// Returns the name for people and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::AppendConcurrent => "append-concurrent",
            Self::Overwrite => "overwrite",
            Self::OverwriteConcurrent => "overwrite-concurrent",
            Self::FirstTouch => "first-touch",
        }
    }

    const fn depth(self) -> u32 {
        match self {
            Self::Append | Self::Overwrite | Self::FirstTouch => 1,
            Self::AppendConcurrent => APPENDS_AT_A_TIME,
            Self::OverwriteConcurrent => OVERWRITES_AT_A_TIME,
        }
    }
}

/// Behaviour of one kind of write in `io_submit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubmissionProbe {
    /// The kind of write.
    pub kind: SubmissionKind,
    /// Bytes of a write: 4096, or the requirement of direct I/O if that is more.
    pub block_bytes: u32,
    /// Concurrent writes.
    pub depth: u32,
    /// Writes measured; fewer than requested if time ran out.
    pub operations: u32,
    /// Voluntary context switches inside `io_submit`, divided by `operations`.
    pub context_switches_per_operation: f64,
    /// Median time of `io_submit`, in nanoseconds.
    pub submit_p50_ns: u64,
    /// 99th percentile of the time of `io_submit`, in nanoseconds.
    pub submit_p99_ns: u64,
    /// Longest time of `io_submit`, in nanoseconds.
    pub submit_max_ns: u64,
    /// Share (0 to 1) of `RWF_NOWAIT` writes that the kernel refused because they would have blocked; `None` if it does
    /// not support the flag for this file.
    pub nowait_refused: Option<f64>,
    /// Whether submission blocks: at least [`BLOCKING_SWITCHES`] context switches per operation.
    pub blocks: bool,
}

/// Duration of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationCost {
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Operations measured; fewer than requested if time ran out.
    pub operations: u32,
}

/// Measures whether the submission of direct writes blocks, for each kind in the order of [`SubmissionKind::ALL`], in
/// scratch files in `directory`. `FirstTouch` is missing if the file system cannot reserve space.
///
/// Writes at most about 1200 blocks of each kind with [`ProbeLimits::SUBMISSIONS`], about 15 MiB in all.
///
/// # Errors
/// If the directory cannot be written to, its file system has no direct I/O, or Linux AIO is denied: each with reason
/// and remedy. `Unsupported` if the kernel does not count context switches. A write that fails or is short.
pub fn probe_submissions(directory: &Path, limits: ProbeLimits) -> io::Result<Vec<SubmissionProbe>> {
    check_switches_are_counted()?;
    let share_ns = limits.time_ns / SubmissionKind::ALL.len() as u64;
    let mut probes = Vec::with_capacity(SubmissionKind::ALL.len());
    for kind in SubmissionKind::ALL {
        let probed = probe_kind(directory, kind, limits.operations(), share_ns);
        let probed =
            probed.map_err(|error| explain(&format!("cannot probe {} writes in", kind.name()), directory, &error))?;
        probes.extend(probed);
    }
    Ok(probes)
}

/// Checks that the kernel counts context switches. Otherwise no file system would seem to block.
fn check_switches_are_counted() -> io::Result<()> {
    let before = thread_voluntary_switches()?;
    std::thread::sleep(Duration::from_millis(1));
    if thread_voluntary_switches()? > before {
        return Ok(());
    }
    let message = "cannot tell whether submitting blocks: this kernel does not count context switches (getrusage \
                   shows none after a sleep, as in some sandboxes); run it outside of the sandbox";
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}

/// Probes one kind. Returns `None` if the file system lacks an operation that the kind needs.
fn probe_kind(
    directory: &Path,
    kind: SubmissionKind,
    operations: u32,
    time_ns: u64,
) -> io::Result<Option<SubmissionProbe>> {
    let start_ns = now_ns();
    let backend = BackendKind::Aio.make(kind.depth()).map_err(|error| {
        let remedy = "let the sandbox allow io_setup, io_submit, io_getevents and io_destroy, or leave this probe out";
        io::Error::new(io::ErrorKind::Unsupported, format!("{error}; {remedy}"))
    })?;
    let Some(mut writer) = Writer::prepare(directory, backend, kind, operations)? else { return Ok(None) };

    let mut switches = 0;
    let mut times_ns = Vec::with_capacity(operations as usize);
    let submit_end_ns = start_ns.saturating_add(time_ns / 5 * 4);
    while times_ns.is_empty() || (times_ns.len() < operations as usize && now_ns() < submit_end_ns) {
        let submission = writer.submit()?;
        switches += submission.switches;
        times_ns.push(submission.time_ns);
        writer.wait_below(kind.depth())?;
    }

    let nowait_refused = writer.nowait_refused(kind.depth(), start_ns.saturating_add(time_ns))?;
    writer.wait_below(1)?;

    let OperationCost { p50_ns, p99_ns, operations } = cost(&times_ns);
    let context_switches_per_operation = switches as f64 / f64::from(operations);
    Ok(Some(SubmissionProbe {
        kind,
        block_bytes: writer.scratch.block_bytes(),
        depth: kind.depth(),
        operations,
        context_switches_per_operation,
        submit_p50_ns: p50_ns,
        submit_p99_ns: p99_ns,
        submit_max_ns: times_ns.iter().copied().max().unwrap_or(0),
        nowait_refused,
        blocks: context_switches_per_operation >= BLOCKING_SWITCHES,
    }))
}

/// Time and context switches of one `io_submit`.
struct Submission {
    time_ns: u64,
    switches: u64,
}

/// Writes single blocks to a scratch file, each at the next place. The backend is dropped before the block that its
/// writes read from, and its drop waits for them.
struct Writer {
    backend: Box<dyn Backend>,
    scratch: Scratch,
    block: AlignedBuf,
    /// Writes begun, with or without the backend.
    begun: u64,
    /// Number of places; after the last one, writes start again at 0.
    blocks: u64,
}

impl Writer {
    fn prepare(
        directory: &Path,
        mut backend: Box<dyn Backend>,
        kind: SubmissionKind,
        operations: u32,
    ) -> io::Result<Option<Self>> {
        let scratch = Scratch::create(directory, backend.as_mut())?;
        let block_bytes = u64::from(scratch.block_bytes());
        let blocks = match kind {
            SubmissionKind::Append | SubmissionKind::AppendConcurrent => u64::MAX,
            SubmissionKind::Overwrite | SubmissionKind::OverwriteConcurrent => {
                let pieces = (u64::from(operations) * block_bytes).div_ceil(u64::from(PIECE_BYTES));
                scratch.fill(u32::try_from(pieces).unwrap_or(u32::MAX), 0)? / block_bytes
            }
            SubmissionKind::FirstTouch => {
                let blocks = u64::from(operations) + u64::from(NOWAIT_OPERATIONS);
                match fallocate(&scratch.file, FallocateFlags::empty(), 0, blocks * block_bytes) {
                    Ok(()) => blocks,
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
                    Err(errno) => return Err(errno.into()),
                }
            }
        };

        let block = scratch.data(scratch.block_bytes())?;
        Ok(Some(Self { backend, scratch, block, begun: 0, blocks: blocks.max(1) }))
    }

    fn next_offset(&mut self) -> u64 {
        let place = self.begun % self.blocks;
        self.begun += 1;
        place * u64::from(self.scratch.block_bytes())
    }

    /// Begins one write, with one `io_submit`.
    fn submit(&mut self) -> io::Result<Submission> {
        let offset = self.next_offset();
        let len_bytes = self.scratch.block_bytes();
        let memory = Memory::Contiguous { ptr: self.block.as_mut_ptr(), len_bytes, region: None };
        let write = Operation { key: self.begun, file: self.scratch.id, kind: Kind::Write, offset, memory };
        // SAFETY: `self.block` holds `len_bytes` bytes; it belongs to this value, which never writes to it again, and
        // is freed only after the drop of `self.backend`, which waits for all completions, even after an error.
        match unsafe { self.backend.submit(write) } {
            Submit::Queued => {}
            Submit::Done(result) => check_moved(result, len_bytes)?,
            Submit::Busy => return Err(io::Error::other("the backend takes fewer writes than it promised")),
        }
        let switches_before = thread_voluntary_switches()?;
        let start_ns = now_ns();
        self.backend.flush()?;
        let time_ns = now_ns().saturating_sub(start_ns);
        Ok(Submission { time_ns, switches: thread_voluntary_switches()?.saturating_sub(switches_before) })
    }

    /// Waits until fewer than `depth` writes are under way.
    fn wait_below(&mut self, depth: u32) -> io::Result<()> {
        let len_bytes = self.scratch.block_bytes();
        let mut checked = Ok(());
        while self.backend.in_flight() >= depth as usize {
            self.backend.wait(None)?;
            self.backend.reap(&mut |completion| {
                if let Err(error) = check_moved(completion.result, len_bytes) {
                    checked = Err(error);
                }
            });
        }
        checked
    }

    /// Returns the share of `RWF_NOWAIT` writes that are refused while `depth - 1` others are under way; `None` if the
    /// kernel does not support the flag for this file.
    fn nowait_refused(&mut self, depth: u32, end_ns: u64) -> io::Result<Option<f64>> {
        let (mut tried, mut refused) = (0, 0);
        while tried == 0 || (tried < NOWAIT_OPERATIONS && now_ns() < end_ns) {
            self.wait_below(depth)?;
            while self.backend.in_flight() + 1 < depth as usize {
                self.submit()?;
            }

            let offset = self.next_offset();
            let written = pwritev2(&self.scratch.file, &[IoSlice::new(&self.block)], offset, ReadWriteFlags::NOWAIT);
            match written {
                Ok(moved) => check_moved(u32::try_from(moved).map_err(|_| libc::EIO), self.scratch.block_bytes())?,
                Err(Errno::AGAIN) => refused += 1,
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            tried += 1;
        }
        Ok(Some(f64::from(refused) / f64::from(tried)))
    }
}

fn check_moved(result: OpResult, len_bytes: u32) -> io::Result<()> {
    match result {
        Ok(moved) if moved == len_bytes => Ok(()),
        Ok(moved) => Err(io::Error::new(
            io::ErrorKind::WriteZero,
            format!("a write of {len_bytes} bytes wrote only {moved}: is the file system full?"),
        )),
        Err(errno) => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Returns `error` with the attempt and the path added; its kind stays the same.
fn explain(what: &str, path: &Path, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ": make room, or name another directory",
        io::ErrorKind::ResourceBusy => ": it is mounted or part of another device; unmount it first",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{what} {}: {error}{hint}", path.display()))
}

fn cost(times_ns: &[u64]) -> OperationCost {
    let mut sorted_ns = times_ns.to_vec();
    sorted_ns.sort_unstable();
    let operations = u32::try_from(sorted_ns.len()).unwrap_or(u32::MAX);
    OperationCost { p50_ns: percentile(&sorted_ns, 50), p99_ns: percentile(&sorted_ns, 99), operations }
}

/// Returns the smallest value that `percent` of the values do not exceed (nearest rank); 0 if there are none.
fn percentile(sorted_ns: &[u64], percent: usize) -> u64 {
    let rank = (sorted_ns.len() * percent).div_ceil(100);
    sorted_ns.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::scratch::tests::{Directory, or_skip};
    use super::*;

    #[test]
    fn every_kind_is_probed_and_nothing_is_left() -> io::Result<()> {
        let directory = Directory::new("kinds")?;
        let Some(probes) = or_skip(probe_submissions(&directory.0, ProbeLimits::SUBMISSIONS)) else { return Ok(()) };
        assert_eq!(directory.files()?, 0);
        let kinds: Vec<_> = probes.iter().map(|probe| probe.kind).collect();
        assert!(kinds == SubmissionKind::ALL || kinds == SubmissionKind::ALL[..4], "{kinds:?}");
        for probe in probes {
            println!("{probe:?}");
            assert!((1..=500).contains(&probe.operations) && probe.depth == probe.kind.depth());
            assert!(probe.submit_p50_ns <= probe.submit_p99_ns && probe.submit_p99_ns <= probe.submit_max_ns);
            assert_eq!(probe.blocks, probe.context_switches_per_operation >= 0.1);
            assert!(probe.nowait_refused.is_none_or(|share| (0.0..=1.0).contains(&share)));
            assert!(probe.block_bytes >= 4096);
        }
        Ok(())
    }

    #[test]
    fn without_time_one_operation_of_each_is_done() -> io::Result<()> {
        let directory = Directory::new("hurry")?;
        let limits = ProbeLimits { operations: 0, time_ns: 0 };
        if let Some(probes) = or_skip(probe_submissions(&directory.0, limits)) {
            assert!(probes.iter().all(|probe| probe.operations == 1), "{probes:?}");
        }
        if let Some(cost) = or_skip(probe_flush(&directory.0, limits)) {
            assert_eq!(cost.operations, 1);
        }
        if let Some(cost) = or_skip(probe_discard(&directory.0, limits)) {
            assert_eq!(cost.piece.operations, 1);
        }
        assert_eq!(directory.files()?, 0);
        Ok(())
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        let cases: [(&[u64], u64, u64); 4] = [(&[], 0, 0), (&[7], 7, 7), (&[1, 2, 3], 2, 3), (&hundred, 50, 99)];
        for (sorted_ns, p50_ns, p99_ns) in cases {
            assert_eq!((percentile(sorted_ns, 50), percentile(sorted_ns, 99)), (p50_ns, p99_ns));
        }
    }
}
