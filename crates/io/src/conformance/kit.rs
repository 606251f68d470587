//! The tools of checks: a scratch directory, a backend with the calls that drive it, patterns and comparisons.
//!
//! # Why
//! A check should state its expectation, not how to wait for a completion.
//!
//! # How it works
//! [`Kit`] makes backends and files; [`Rig`] runs operations on a backend from submission to completion.
//!
//! # Limits
//! A check declares its buffers before its [`Rig`], so that an early return drops the backend first.
//!
//! # Example
//! `rig.all(Kind::Write, file, 0, &mut data)` writes all of `data`, even if transfers are short.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::backend::{Backend, Completion, FileId, FileInfo, Kind, Memory, OpResult, OpenOptions, Operation, Submit};
use crate::buffer::AlignedBuf;

/// Longest wait for a completion before a check fails, in nanoseconds of the backend's time: 60 s, so that a slow
/// machine does not fail.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// A block, in bytes, that suits every device's alignment.
pub(super) const BLOCK: usize = 4096;

/// `Ok(None)`: passed. `Ok(Some(reason))`: skipped. `Err`: failed.
pub(super) type Verdict = Result<Option<String>, String>;
pub(super) type Make<'a> = &'a dyn Fn() -> io::Result<Box<dyn Backend>>;

/// A directory of one check, removed at the end.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(dir: &Path, index: usize) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, SeqCst);
        let path = dir.join(format!("plimsoll-conformance-{}-{count}-{index}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Tools of a check.
pub(super) struct Kit<'a> {
    pub(super) make: Make<'a>,
    pub(super) dir: &'a Path,
    pub(super) files: u32,
}

impl Kit<'_> {
    pub(super) fn backend(&self) -> Result<Rig, String> {
        let backend = (self.make)().map_err(|error| format!("cannot make the backend: {error}"))?;
        Ok(Rig { backend, next_key: 1 })
    }

    pub(super) fn path(&mut self) -> PathBuf {
        self.files += 1;
        self.dir.join(format!("file-{}", self.files))
    }

    /// Creates a file, direct if `direct` and the file system allow it.
    pub(super) fn create(&mut self, rig: &mut Rig, direct: bool) -> Result<(FileId, FileInfo), String> {
        let path = self.path();
        let options = OpenOptions { write: true, create_new: true, direct, dsync: false, directory: false };
        match rig.backend.open(&path, &options) {
            Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
                rig.backend.open(&path, &OpenOptions { direct: false, ..options }).map_err(|error| error.to_string())
            }
            result => result.map_err(|error| error.to_string()),
        }
    }

    /// Creates a file, as `create`, with `blocks` blocks of [`pattern`] in it.
    pub(super) fn filled(&mut self, rig: &mut Rig, direct: bool, blocks: usize, seed: u8) -> Result<FileId, String> {
        let mut data = buffer(blocks * BLOCK)?;
        let (file, _) = self.create(rig, direct)?;
        pattern(&mut data, seed);
        rig.all(Kind::Write, file, 0, &mut data)?;
        Ok(file)
    }
}

/// A backend, and the calls by which checks drive it.
pub(super) struct Rig {
    pub(super) backend: Box<dyn Backend>,
    next_key: u64,
}

impl Rig {
    pub(super) fn operation(&mut self, kind: Kind, file: FileId, offset: u64, memory: Memory) -> Operation {
        self.next_key += 1;
        Operation { key: self.next_key, file, kind, offset, memory }
    }

    /// Submits an operation. Every check keeps its buffers until the backend is done or dropped.
    pub(super) fn submit(&mut self, operation: Operation) -> Submit {
        // SAFETY: the checks declare their buffers before the backend and wait for completions, so the memory outlives
        // the operation even if a check returns early (the backend is dropped first, and waits).
        unsafe { self.backend.submit(operation) }
    }

    /// Runs one operation from submission to completion.
    pub(super) fn one(&mut self, operation: Operation) -> Result<OpResult, String> {
        match self.submit(operation) {
            Submit::Done(result) => return Ok(result),
            Submit::Busy => return Err("busy with nothing in flight".to_owned()),
            Submit::Queued => {}
        }
        let done = self.finish(1)?;
        match done.as_slice() {
            [completion] if completion.key == operation.key => Ok(completion.result),
            other => Err(format!("expected a completion of key {}, got {other:?}", operation.key)),
        }
    }

    /// Flushes, waits and reaps until it has `count` completions.
    pub(super) fn finish(&mut self, count: usize) -> Result<Vec<Completion>, String> {
        let mut done = Vec::new();
        let deadline_ns = self.backend.now_ns() + PATIENCE_NS;
        self.backend.flush().map_err(|error| format!("flush: {error}"))?;
        loop {
            let reaped = self.backend.reap(&mut |completion| done.push(completion));
            if done.len() >= count {
                return Ok(done);
            }
            if self.backend.now_ns() >= deadline_ns {
                return Err(format!("{} of {count} operations came back, the last reap gave {reaped}", done.len()));
            }
            self.backend.wait(Some(deadline_ns)).map_err(|error| format!("wait: {error}"))?;
        }
    }

    pub(super) fn transfer(
        &mut self,
        kind: Kind,
        file: FileId,
        offset: u64,
        data: &mut [u8],
    ) -> Result<OpResult, String> {
        let operation = self.operation(kind, file, offset, contiguous(data));
        self.one(operation)
    }

    /// Transfers all of `data`, continuing short transfers.
    pub(super) fn all(&mut self, kind: Kind, file: FileId, offset: u64, data: &mut [u8]) -> Result<(), String> {
        let mut done = 0;
        while let Some(rest) = data.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.transfer(kind, file, offset + done as u64, rest)? {
                Ok(0) => return Err(format!("{kind:?} moved nothing at {done}")),
                Ok(moved) => done += moved as usize,
                Err(errno) => return Err(format!("{kind:?} at {done}: {}", io::Error::from_raw_os_error(errno))),
            }
        }
        Ok(())
    }

    /// Runs an operation without memory. Returns `Ok(false)` if the file system cannot do it.
    pub(super) fn plain(&mut self, kind: Kind, file: FileId, offset: u64) -> Result<bool, String> {
        let operation = self.operation(kind, file, offset, Memory::None);
        match self.one(operation)? {
            Ok(0) => Ok(true),
            Ok(moved) => Err(format!("{kind:?} claims to have moved {moved} bytes")),
            Err(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(false),
            Err(errno) => Err(format!("{kind:?}: {}", io::Error::from_raw_os_error(errno))),
        }
    }

    pub(super) fn len(&mut self, file: FileId) -> Result<u64, String> {
        self.backend.file_len(file).map_err(|error| error.to_string())
    }
}

pub(super) fn contiguous(data: &mut [u8]) -> Memory {
    Memory::Contiguous { ptr: data.as_mut_ptr(), len_bytes: data.len() as u32, region: None }
}

pub(super) fn buffer(len_bytes: usize) -> Result<AlignedBuf, String> {
    AlignedBuf::new(len_bytes).map_err(|error| error.to_string())
}

/// Fills `data` with bytes that differ from block to block, within a block, and by seed; never 0.
pub(super) fn pattern(data: &mut [u8], seed: u8) {
    for (index, byte) in data.iter_mut().enumerate() {
        *byte = ((index / BLOCK * 31 + index * 7 + usize::from(seed) * 13) % 255) as u8 + 1;
    }
}

pub(super) fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{what}: {seen:?}, expected {wanted:?}")) }
}

pub(super) fn same(what: &str, seen: &[u8], wanted: &[u8]) -> Result<(), String> {
    match seen.iter().zip(wanted).position(|(seen, wanted)| seen != wanted) {
        None if seen.len() == wanted.len() => Ok(()),
        at => Err(format!("{what}: wrong at byte {at:?} of {}", wanted.len())),
    }
}
