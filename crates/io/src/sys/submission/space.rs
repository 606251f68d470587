//! The cost of a flush and of a discard.
//!
//! # Why
//! A commit log waits for a flush at every commit, and a store that deletes much discards much. Both delay the disk's
//! reads, on some disks by milliseconds.
//!
//! # How it works
//! Times one call after the other: `fdatasync` after a direct overwrite, `fallocate(PUNCH_HOLE)` on a scratch file,
//! `BLKDISCARD` on a range of a block device.
//!
//! # Limits
//! Holes and discards go through a helper thread, as they do on a shard, which adds some microseconds. The effect on
//! the disk's reads meanwhile is not measured here.
//!
//! # Example
//! ```no_run
//! use plimsoll::sys::submission::{ProbeLimits, probe_flush};
//! let cost = probe_flush("/var/lib/data".as_ref(), ProbeLimits::FLUSH)?;
//! println!("{} flushes: half of them took at most {} ns", cost.operations, cost.p50_ns);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::fdatasync;

use super::super::block::claim;
use super::scratch::{PIECE_BYTES, Scratch};
use super::{OperationCost, ProbeLimits, cost, explain, now_ns};
use crate::backend::pool::PoolBackend;
use crate::backend::{Backend, FileId, FileInfo, Kind, Memory, OpenOptions, Operation, Submit};

/// Blocks that [`probe_flush`] overwrites in turn.
const FLUSH_BLOCKS: u32 = 64;

/// The cost of a discard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiscardCost {
    /// Bytes of each piece: 1 MiB.
    pub piece_bytes: u32,
    /// Cost of a piece, including the way to a helper thread and back, some microseconds.
    pub piece: OperationCost,
    /// Bytes discarded per second, one piece at a time.
    pub bytes_per_s: f64,
}

/// Measures an `fdatasync` after a direct overwrite of one block (without the write itself), in a scratch file in
/// `directory`.
///
/// # Errors
/// As [`probe_submissions`](super::probe_submissions), except those of AIO and context switches, which it does not
/// need.
pub fn probe_flush(directory: &Path, limits: ProbeLimits) -> io::Result<OperationCost> {
    flush_times(directory, limits)
        .map(|times_ns| cost(&times_ns))
        .map_err(|error| explain("cannot probe flushes in", directory, &error))
}

/// Measures `fallocate(PUNCH_HOLE)` for each MiB of a written scratch file in `directory`. Writes one MiB for each
/// operation of `limits`, for at most half of its time.
///
/// # Errors
/// `Unsupported`, with the reason, if the file system cannot punch holes; otherwise as [`probe_flush`].
pub fn probe_discard(directory: &Path, limits: ProbeLimits) -> io::Result<DiscardCost> {
    let start_ns = now_ns();
    let end_ns = start_ns.saturating_add(limits.time_ns);
    let probe = || {
        let mut backend = PoolBackend::new(1, 1)?;
        let scratch = Scratch::create(directory, &mut backend)?;
        let filled_bytes = scratch.fill(limits.operations(), start_ns.saturating_add(limits.time_ns / 2))?;
        discard_pieces(&mut backend, scratch.id, 0..filled_bytes, end_ns)
    };
    probe().map_err(|error| explain("cannot probe discards in", directory, &error))
}

/// Measures discarding (`BLKDISCARD`) for each MiB of `range_bytes` of a block device. **The data there is lost.**
/// Discards only whole pieces of 1 MiB from the start of the range, as many as `limits` allow, and does not change the
/// rest of the device. Claims the device meanwhile, so that it cannot be mounted.
///
/// # Errors
/// `InvalidInput` if `device` is not a block device, or the range holds no whole MiB, is not aligned to the device's
/// sectors or is not all on the device; `ResourceBusy` if the device is in use; `Unsupported`, with the reason, if it
/// cannot discard.
pub fn probe_discard_device(device: &Path, range_bytes: Range<u64>, limits: ProbeLimits) -> io::Result<DiscardCost> {
    let end_ns = now_ns().saturating_add(limits.time_ns);
    let probe = || {
        let claim = claim(device)?;
        let mut backend = PoolBackend::new(1, 1)?;
        let (file, info) =
            backend.open(device, &OpenOptions { write: true, direct: true, ..OpenOptions::default() })?;
        if claim.metadata()?.rdev() != info.device || !info.is_block_device {
            return Err(io::Error::other("another device has taken its name meanwhile: try again"));
        }
        let range_bytes = whole_pieces(&range_bytes, limits.operations(), &info)?;
        discard_pieces(&mut backend, file, range_bytes, end_ns)
    };
    probe().map_err(|error| explain("cannot probe discards on", device, &error))
}

fn flush_times(directory: &Path, limits: ProbeLimits) -> io::Result<Vec<u64>> {
    let end_ns = now_ns().saturating_add(limits.time_ns);
    let scratch = Scratch::create(directory, &mut PoolBackend::new(1, 1)?)?;
    let block_bytes = scratch.block_bytes();
    scratch.fill(FLUSH_BLOCKS.saturating_mul(block_bytes).div_ceil(PIECE_BYTES), 0)?;
    let block = scratch.data(block_bytes)?;
    let mut times_ns = Vec::with_capacity(limits.operations() as usize);
    for operation in 0..limits.operations() {
        if operation > 0 && now_ns() >= end_ns {
            break;
        }
        scratch.file.write_all_at(&block, u64::from(operation % FLUSH_BLOCKS) * u64::from(block_bytes))?;
        let start_ns = now_ns();
        fdatasync(&scratch.file)?;
        times_ns.push(now_ns().saturating_sub(start_ns));
    }
    Ok(times_ns)
}

/// Returns the part of `range_bytes` to discard: whole pieces, at most `pieces`.
fn whole_pieces(range_bytes: &Range<u64>, pieces: u32, info: &FileInfo) -> io::Result<Range<u64>> {
    let invalid = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    let (start, end) = (range_bytes.start, range_bytes.end);
    let align_bytes = u64::from(info.offset_align_bytes.max(1));
    if end > info.len_bytes {
        return invalid(format!("the range {start}..{end} goes past its end, {} bytes", info.len_bytes));
    }
    if !start.is_multiple_of(align_bytes) {
        return invalid(format!("the range {start}..{end} must start at a multiple of {align_bytes} bytes"));
    }
    let whole = end.saturating_sub(start) / u64::from(PIECE_BYTES);
    if whole == 0 {
        return invalid(format!("the range {start}..{end} holds no whole piece of {PIECE_BYTES} bytes: widen it"));
    }
    Ok(start..start + whole.min(u64::from(pieces)) * u64::from(PIECE_BYTES))
}

/// Discards `range_bytes` piece by piece, at least one piece, until `end_ns`.
fn discard_pieces(
    backend: &mut PoolBackend,
    file: FileId,
    range_bytes: Range<u64>,
    end_ns: u64,
) -> io::Result<DiscardCost> {
    let mut times_ns = Vec::new();
    let kind = Kind::Discard { len_bytes: u64::from(PIECE_BYTES) };

    for (key, offset) in (0_u64..).zip(range_bytes.step_by(PIECE_BYTES as usize)) {
        if key > 0 && now_ns() >= end_ns {
            break;
        }
        let discard = Operation { key, file, kind, offset, memory: Memory::None };

        let start_ns = now_ns();
        // SAFETY: a discard names no memory.
        let mut answer = match unsafe { backend.submit(discard) } {
            Submit::Done(result) => Some(result),
            Submit::Queued => None,
            Submit::Busy => return Err(io::Error::other("the backend takes fewer operations than it promised")),
        };
        while answer.is_none() {
            backend.wait(None)?;
            backend.reap(&mut |completion| answer = Some(completion.result));
        }
        times_ns.push(now_ns().saturating_sub(start_ns));

        if let Some(Err(errno)) = answer {
            return Err(discard_error(errno));
        }
    }
    let moved_bytes = times_ns.len() as f64 * f64::from(PIECE_BYTES);
    let total_ns = times_ns.iter().sum::<u64>().max(1);
    Ok(DiscardCost {
        piece_bytes: PIECE_BYTES,
        piece: cost(&times_ns),
        bytes_per_s: moved_bytes * 1e9 / total_ns as f64,
    })
}

fn discard_error(errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    if matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY) {
        let message =
            format!("{error}: the file system or the device gives no space back; nothing needs to be measured");
        return io::Error::new(io::ErrorKind::Unsupported, message);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::super::scratch::tests::{Directory, or_skip};
    use super::*;
    use crate::backend::AlignSource;
    use crate::sys::submission::probe_submissions;

    #[test]
    fn flushes_and_holes_have_a_cost() -> io::Result<()> {
        let directory = Directory::new("costs")?;
        if let Some(cost) = or_skip(probe_flush(&directory.0, ProbeLimits::FLUSH)) {
            println!("flush: {cost:?}");
            assert!((1..=50).contains(&cost.operations) && cost.p50_ns <= cost.p99_ns);
        }
        if let Some(cost) = or_skip(probe_discard(&directory.0, ProbeLimits { operations: 8, ..ProbeLimits::DISCARD }))
        {
            println!("discard: {cost:?}");
            assert!((1..=8).contains(&cost.piece.operations) && cost.bytes_per_s > 0.0);
            assert!(cost.piece.p50_ns <= cost.piece.p99_ns && cost.piece_bytes == 1 << 20);
        }
        assert_eq!(directory.files()?, 0);
        Ok(())
    }

    #[test]
    fn a_missing_directory_is_named() {
        let missing = std::env::temp_dir().join("plimsoll-no-such-directory");
        let errors = [
            probe_submissions(&missing, ProbeLimits::SUBMISSIONS).err(),
            probe_flush(&missing, ProbeLimits::FLUSH).err(),
            probe_discard(&missing, ProbeLimits::DISCARD).err(),
            probe_discard_device(&missing, 0..1 << 20, ProbeLimits::DISCARD).err(),
        ];
        for error in errors {
            let text = error.map_or_else(String::new, |error| error.to_string());
            assert!(text.starts_with("cannot ") && text.len() > 60, "{text}");
        }
    }

    #[test]
    fn a_file_is_no_device_and_keeps_its_data() -> io::Result<()> {
        let directory = Directory::new("device")?;
        let path = directory.0.join("data");
        std::fs::write(&path, vec![7; 2 << 20])?;
        let Err(error) = probe_discard_device(&path, 0..2 << 20, ProbeLimits::DISCARD) else { panic!("it is a file") };
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(std::fs::read(&path)?.iter().all(|&byte| byte == 7));
        Ok(())
    }

    #[test]
    fn only_whole_pieces_inside_the_range_are_discarded() {
        const MIB: u64 = 1 << 20;
        let info = FileInfo {
            len_bytes: 10 * MIB,
            memory_align_bytes: 4096,
            offset_align_bytes: 4096,
            align_source: AlignSource::Kernel,
            is_block_device: true,
            device: 0,
        };
        let cases = [
            (0..10 * MIB, 64, Some(0..10 * MIB)),
            (MIB..10 * MIB, 3, Some(MIB..4 * MIB)),
            (4096..2 * MIB, 64, Some(4096..MIB + 4096)),
            (0..MIB - 1, 64, None),
            (512..4 * MIB, 64, None),
            (0..10 * MIB + 1, 64, None),
            (5 * MIB..5 * MIB, 64, None),
            (Range { start: 6 * MIB, end: 5 * MIB }, 64, None),
        ];
        for (range, pieces, expect) in cases {
            assert_eq!(whole_pieces(&range, pieces, &info).ok(), expect, "{range:?}");
        }
    }

    #[test]
    fn what_cannot_be_discarded_is_unsupported() {
        for (errno, kind) in [
            (libc::EOPNOTSUPP, io::ErrorKind::Unsupported),
            (libc::ENOTTY, io::ErrorKind::Unsupported),
            (libc::EACCES, io::ErrorKind::PermissionDenied),
        ] {
            assert_eq!(discard_error(errno).kind(), kind);
        }
    }
}
