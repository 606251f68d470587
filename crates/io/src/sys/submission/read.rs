//! The CPU time of a read, by its interface to the kernel.
//!
//! # Why
//! A disk of a million operations per second needs more processors than many machines have. Their number depends on the
//! interface, the kernel and its mitigations, not on the disk.
//!
//! # How it works
//! Reads single blocks at random places of an unlinked scratch file, past the page cache. Through io_uring and Linux
//! AIO, [`READS_AT_A_TIME`] reads are under way and one call replaces all completed ones; through `pread`, reads follow
//! one another. The result is the CPU time of the whole process over a sample, divided by the reads in it. A sample
//! begins and ends with no read under way.
//!
//! # Limits
//! No other code of this process may run meanwhile. Kernel work in interrupts is not counted. On a slow disk fewer
//! reads complete per call, and they cost more.
//!
//! # Example
//! 3 samples of 100 ms through io_uring on a disk of 100 000 reads per second: 10 000 reads each, in 25 ms of CPU time:
//! 2500 ns per read.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::scratch::Scratch;
use super::{PIECE_BYTES, explain, now_ns};
use crate::backend::choose::BackendKind;
use crate::backend::pool::PoolBackend;
use crate::backend::{Backend, Kind, Memory, OpResult, Operation, Submit};
use crate::buffer::AlignedBuf;
use crate::sys::rusage::process_cpu_ns;

/// Reads under way through an asynchronous interface.
pub const READS_AT_A_TIME: u32 = 32;
/// Most bytes that [`probe_reads`] writes: the size of the scratch file that it reads.
pub const READ_FILE_BYTES: u64 = 64 << 20;
/// Longest time to write the scratch file, in nanoseconds. On a slow disk the file is shorter.
const FILL_NS: u64 = 1_000_000_000;

/// An interface of a read to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// io_uring.
    IoUring,
    /// Linux AIO.
    LinuxAio,
    /// A blocking call for each read.
    Pread,
}

impl ReadPath {
    /// All paths.
    pub const ALL: [Self; 3] = [Self::IoUring, Self::LinuxAio, Self::Pread];

    /// Returns the name for people and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::LinuxAio => "linux-aio",
            Self::Pread => "pread",
        }
    }
}

/// Result of [`probe_reads`].
#[derive(Clone, Debug, PartialEq)]
pub struct ReadCost {
    /// CPU time per read in nanoseconds, one value per sample, in order.
    pub cpu_ns_per_read: Vec<f64>,
    /// Reads of all samples.
    pub reads: u64,
    /// Bytes of a read: 4096, or the requirement of direct I/O if that is more.
    pub block_bytes: u32,
}

/// Measures the CPU time of a read by `path`, in `samples` of about `sample_ns` each. If `is_stopped` returns true,
/// ends with fewer samples, perhaps none. Writes at most [`READ_FILE_BYTES`] into `directory`, to an unlinked file.
///
/// # Errors
/// If the directory cannot be written to, its file system has no direct I/O, or the path is denied here: each with
/// reason and remedy. A read that fails or is short.
pub fn probe_reads(
    directory: &Path,
    path: ReadPath,
    samples: usize,
    sample_ns: u64,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<ReadCost> {
    let what = format!("cannot probe reads by {} in", path.name());
    sampled(directory, path, samples, sample_ns, is_stopped).map_err(|error| explain(&what, directory, &error))
}

fn sampled(
    directory: &Path,
    path: ReadPath,
    samples: usize,
    sample_ns: u64,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<ReadCost> {
    let mut reader = Reader::prepare(directory, path)?;
    let mut cpu_ns_per_read = Vec::new();

    // Warm up: the first reads find cold caches and an unused ring.
    reader.read_until(now_ns().saturating_add(sample_ns / 10), is_stopped)?;

    for _ in 0..samples {
        let (begun, cpu_begin_ns) = (reader.begun, process_cpu_ns());
        reader.read_until(now_ns().saturating_add(sample_ns), is_stopped)?;
        if is_stopped() {
            break;
        }
        let cpu_ns = process_cpu_ns().saturating_sub(cpu_begin_ns);
        cpu_ns_per_read.push(cpu_ns as f64 / (reader.begun - begun).max(1) as f64);
    }

    Ok(ReadCost { cpu_ns_per_read, reads: reader.begun, block_bytes: reader.scratch.block_bytes() })
}

/// Reads blocks of a scratch file. The backend is dropped before the blocks that it reads into, and its drop waits for
/// the reads.
struct Reader {
    /// `None` for `pread`.
    backend: Option<Box<dyn Backend>>,
    scratch: Scratch,
    /// One per read under way.
    blocks: Vec<AlignedBuf>,
    /// Indices of the blocks without a read under way.
    free: Vec<usize>,
    /// Blocks of the file.
    places: u64,
    /// Reads begun.
    begun: u64,
    random: u64,
}

impl Reader {
    fn prepare(directory: &Path, path: ReadPath) -> io::Result<Self> {
        let mut backend = match path {
            ReadPath::IoUring => Some(BackendKind::Uring.make(READS_AT_A_TIME).map_err(io::Error::other)?),
            ReadPath::LinuxAio => Some(BackendKind::Aio.make(READS_AT_A_TIME).map_err(io::Error::other)?),
            ReadPath::Pread => None,
        };
        let scratch = match &mut backend {
            Some(backend) => Scratch::create(directory, backend.as_mut())?,
            None => Scratch::create(directory, &mut PoolBackend::new(1, 1)?)?,
        };

        let block_bytes = scratch.block_bytes();
        let pieces = (READ_FILE_BYTES / u64::from(PIECE_BYTES)) as u32;
        let filled_bytes = scratch.fill(pieces, now_ns().saturating_add(FILL_NS))?;

        let depth = if backend.is_some() { READS_AT_A_TIME } else { 1 };
        let blocks: Vec<AlignedBuf> = (0..depth).map(|_| scratch.data(block_bytes)).collect::<io::Result<_>>()?;

        let free = (0..blocks.len()).collect();
        let places = (filled_bytes / u64::from(block_bytes)).max(1);
        Ok(Self { backend, scratch, blocks, free, places, begun: 0, random: 0x9E37_79B9_7F4A_7C15 })
    }

    fn next_offset(&mut self) -> u64 {
        // xorshift64 (Marsaglia 2003); any spread over the file is good enough.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.begun += 1;
        self.random % self.places * u64::from(self.scratch.block_bytes())
    }

    /// Reads until `end_ns`, at least once, and waits for the reads then under way.
    fn read_until(&mut self, end_ns: u64, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        loop {
            match self.backend {
                Some(_) => {
                    self.submit_free()?;
                    self.reap()?;
                }
                None => self.pread()?,
            }
            if now_ns() >= end_ns || is_stopped() {
                break;
            }
        }
        while self.free.len() < self.blocks.len() {
            self.reap()?;
        }
        Ok(())
    }

    fn pread(&mut self) -> io::Result<()> {
        let offset = self.next_offset();
        let Some(block) = self.blocks.first_mut() else { return Ok(()) };
        self.scratch.file.read_exact_at(block, offset)
    }

    /// Begins a read into each free block.
    fn submit_free(&mut self) -> io::Result<()> {
        let len_bytes = self.scratch.block_bytes();
        while let Some(index) = self.free.pop() {
            let offset = self.next_offset();
            let (Some(backend), Some(block)) = (&mut self.backend, self.blocks.get_mut(index)) else { return Ok(()) };
            let memory = Memory::Contiguous { ptr: block.as_mut_ptr(), len_bytes, region: None };
            let read = Operation { key: index as u64, file: self.scratch.id, kind: Kind::Read, offset, memory };

            // SAFETY: the block holds `len_bytes` bytes and belongs to this value; `index` has left `free`, so no other
            // read uses it and no code touches it until its completion has put `index` back; it is freed only after the
            // drop of `self.backend`, which waits for all completions, even after an error.
            match unsafe { backend.submit(read) } {
                Submit::Queued => {}
                Submit::Done(result) => {
                    check_read(result, len_bytes)?;
                    self.free.push(index);
                    return Ok(());
                }
                Submit::Busy => return Err(io::Error::other("the backend takes fewer reads than it promised")),
            }
        }
        Ok(())
    }

    /// Submits the begun reads, and waits until one has completed.
    fn reap(&mut self) -> io::Result<()> {
        let len_bytes = self.scratch.block_bytes();
        let (free, mut checked) = (&mut self.free, Ok(()));
        let Some(backend) = &mut self.backend else { return Ok(()) };
        if backend.in_flight() == 0 {
            return Ok(());
        }
        backend.wait(None)?;
        backend.reap(&mut |completion| {
            // The key is an index of `blocks`.
            free.push(completion.key as usize);
            if let Err(error) = check_read(completion.result, len_bytes) {
                checked = Err(error);
            }
        });
        checked
    }
}

fn check_read(result: OpResult, len_bytes: u32) -> io::Result<()> {
    match result {
        Ok(moved) if moved == len_bytes => Ok(()),
        Ok(moved) => {
            let message = format!("a read of {len_bytes} bytes moved only {moved}: does the disk lose data?");
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
        }
        Err(errno) => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::tests::{Directory, or_skip};
    use super::*;

    #[test]
    fn every_way_has_its_samples_and_nothing_is_left() -> io::Result<()> {
        for path in ReadPath::ALL {
            let directory = Directory::new(path.name())?;
            let Some(cost) = or_skip(probe_reads(&directory.0, path, 2, 2_000_000, &|| false)) else { continue };
            println!("{}: {cost:?}", path.name());
            assert_eq!((cost.cpu_ns_per_read.len(), directory.files()?), (2, 0), "{path:?}");
            assert!(cost.reads > 0 && cost.block_bytes >= 4096, "{cost:?}");
        }
        Ok(())
    }

    #[test]
    fn a_stop_ends_it_without_samples() -> io::Result<()> {
        let directory = Directory::new("stop")?;
        if let Some(cost) = or_skip(probe_reads(&directory.0, ReadPath::Pread, 1_000, u64::MAX, &|| true)) {
            assert!(cost.cpu_ns_per_read.is_empty(), "{cost:?}");
        }
        Ok(())
    }

    #[test]
    fn reads_that_go_wrong_are_told() {
        assert!(check_read(Ok(4096), 4096).is_ok());
        let short = check_read(Ok(512), 4096).map_err(|error| error.to_string());
        assert!(short.is_err_and(|text| text.contains("moved only 512")));
        assert_eq!(check_read(Err(libc::EIO), 4096).map_err(|error| error.raw_os_error()), Err(Some(libc::EIO)));
    }
}
