//! The contract of a backend, as checks that every backend must pass.
//!
//! # Why
//! A shard relies only on [`Backend`]'s contract. Six implementations that each had their own tests would drift apart;
//! one kit holds them together, and holds backends outside this crate to the same contract.
//!
//! # How it works
//! [`run`] makes a fresh backend for every check, in a scratch directory that it makes and removes. A check passes, is
//! skipped with a reason (a file system without `fallocate`, say), or fails with what it saw. [`assert_passed`] prints
//! the skipped ones and panics with the names of the failed ones. No check hangs: a completion that does not come
//! within [`PATIENCE_NS`] is a failure.
//!
//! # Limits
//! It detects writes to memory only shortly after a backend was dropped, not long after. In every check the buffers are
//! declared before the backend, so that an early return drops the backend first.
//!
//! # Example
//! ```no_run
//! use plimsoll::backend::{Backend, pool::PoolBackend};
//! use plimsoll::conformance::{Promises, assert_passed, run};
//! let make = || Ok(Box::new(PoolBackend::new(4, 64)?) as Box<dyn Backend>);
//! assert_passed("pool", &run(make, &std::env::temp_dir(), Promises::default()));
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::backend::{
    AlignSource, Backend, Completion, FileId, FileInfo, Kind, Memory, OpResult, OpenOptions, Operation, Submit,
};
use crate::buffer::AlignedBuf;
use crate::sys::rusage::thread_cpu_ns;

/// Longest wait for a completion before a check fails, in nanoseconds of the backend's time: 60 s, so that a slow
/// machine does not fail.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// A block, in bytes, that suits every device's alignment.
const BLOCK: usize = 4096;

/// Rounds of the race between a wake-up and a wait.
const WAKE_ROUNDS: u32 = 10_000;

/// Promises of a backend beyond the contract; checks of those it does not make are skipped.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Written data can be read back (not so for `null`).
    pub keeps_data: bool,
    /// `wait` sleeps in real time and can be woken by other threads (not so for a simulated disk on virtual time).
    pub real_time: bool,
}

impl Default for Promises {
    /// Returns all promises.
    fn default() -> Self {
        Self { keeps_data: true, real_time: true }
    }
}

/// Outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend keeps the contract.
    Passed,
    /// The check could not be tried here; the reason.
    Skipped(String),
    /// The backend breaks the contract; what the check saw.
    Failed(String),
}

/// A check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Name of the check.
    pub name: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
}

/// `Ok(None)`: passed. `Ok(Some(reason))`: skipped. `Err`: failed.
type Verdict = Result<Option<String>, String>;
type Make<'a> = &'a dyn Fn() -> io::Result<Box<dyn Backend>>;
type Check = fn(&mut Kit<'_>) -> Verdict;

/// Name, whether it needs data kept, whether it needs real time, and the check.
const CHECKS: &[(&str, bool, bool, Check)] = &[
    ("data written is read back", true, false, |kit| write_and_read(kit, false)),
    ("data written is read back, direct", true, false, |kit| write_and_read(kit, true)),
    ("vectored transfers", true, false, vectored),
    ("a read at the end is short, past it 0", true, false, short_reads),
    ("a durable write and both syncs", false, false, syncs),
    ("a discarded range reads as zeros", true, false, discard),
    ("allocate grows the file unless told not to", true, false, allocate),
    ("an operation sets the length", true, false, lengths),
    ("registered memory", true, false, registered_memory),
    ("16 MiB in one operation", true, false, large),
    ("unaligned direct I/O ends", true, false, unaligned),
    ("an exclusive create refuses an existing file", true, false, exclusive_create),
    ("a read-only file refuses writes", true, false, read_only),
    ("an unknown or closed file is an error", false, false, bad_files),
    ("a file closed in flight is not mixed up with the next", true, false, close_in_flight),
    ("every key comes back exactly once", false, false, each_key_once),
    ("busy at capacity, room after reaping", false, false, busy_at_capacity),
    ("a deadline ends the wait", false, false, deadline),
    ("operations come back while others wake", false, true, complete_and_wake),
    ("no wake-up is lost", false, true, wake_race),
    ("an idle wait uses no CPU", false, true, idle_wait),
    ("memory is left alone after a drop", true, false, |kit| drop_in_flight(kit, true)),
    ("memory is left alone after a drop without a flush", true, false, |kit| drop_in_flight(kit, false)),
];

/// Runs every check against backends from `make`, in a scratch directory below `dir`.
pub fn run(make: impl Fn() -> io::Result<Box<dyn Backend>>, dir: &Path, promises: Promises) -> Vec<CheckResult> {
    let mut results = Vec::with_capacity(CHECKS.len());
    for (index, &(name, needs_data, needs_real_time, check)) in CHECKS.iter().enumerate() {
        let outcome = if needs_data && !promises.keeps_data {
            Outcome::Skipped("this backend keeps no data".to_owned())
        } else if needs_real_time && !promises.real_time {
            Outcome::Skipped("this backend does not run in real time".to_owned())
        } else {
            match run_one(&make, dir, index, check) {
                Ok(None) => Outcome::Passed,
                Ok(Some(reason)) => Outcome::Skipped(reason),
                Err(seen) => Outcome::Failed(seen),
            }
        };
        results.push(CheckResult { name, outcome });
    }
    results
}

fn run_one(make: Make<'_>, dir: &Path, index: usize, check: Check) -> Verdict {
    let scratch = Scratch::new(dir, index)?;
    check(&mut Kit { make, dir: &scratch.0, files: 0 })
}

/// Prints the skipped checks of `backend`, one line each.
///
/// # Panics
/// If a check failed, with the names of all that did and what they saw.
pub fn assert_passed(backend: &str, results: &[CheckResult]) {
    let mut failed = String::new();
    for result in results {
        match &result.outcome {
            Outcome::Passed => {}
            Outcome::Skipped(reason) => println!("skipped: {backend}: {}: {reason}", result.name),
            Outcome::Failed(seen) => failed += &format!("\n  {}: {seen}", result.name),
        }
    }
    assert!(failed.is_empty(), "backend {backend} breaks its contract:{failed}");
}

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path, index: usize) -> Result<Self, String> {
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
struct Kit<'a> {
    make: Make<'a>,
    dir: &'a Path,
    files: u32,
}

impl Kit<'_> {
    fn backend(&self) -> Result<Rig, String> {
        let backend = (self.make)().map_err(|error| format!("cannot make the backend: {error}"))?;
        Ok(Rig { backend, next_key: 1 })
    }

    fn path(&mut self) -> PathBuf {
        self.files += 1;
        self.dir.join(format!("file-{}", self.files))
    }

    /// Creates a file, direct if `direct` and the file system allow it.
    fn create(&mut self, rig: &mut Rig, direct: bool) -> Result<(FileId, FileInfo), String> {
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
    fn filled(&mut self, rig: &mut Rig, direct: bool, blocks: usize, seed: u8) -> Result<FileId, String> {
        let mut data = buffer(blocks * BLOCK)?;
        let (file, _) = self.create(rig, direct)?;
        pattern(&mut data, seed);
        rig.all(Kind::Write, file, 0, &mut data)?;
        Ok(file)
    }
}

/// A backend, and the calls by which checks drive it.
struct Rig {
    backend: Box<dyn Backend>,
    next_key: u64,
}

impl Rig {
    fn operation(&mut self, kind: Kind, file: FileId, offset: u64, memory: Memory) -> Operation {
        self.next_key += 1;
        Operation { key: self.next_key, file, kind, offset, memory }
    }

    /// Submits; every check keeps its buffers until the backend is done or dropped.
    fn submit(&mut self, operation: Operation) -> Submit {
        // SAFETY: the checks declare their buffers before the backend and wait for completions, so the memory outlives
        // the operation even if a check returns early (the backend is dropped first, and waits).
        unsafe { self.backend.submit(operation) }
    }

    /// Runs one operation from submission to completion.
    fn one(&mut self, operation: Operation) -> Result<OpResult, String> {
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

    /// Flushes, waits and reaps until `count` completions have come.
    fn finish(&mut self, count: usize) -> Result<Vec<Completion>, String> {
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

    fn transfer(&mut self, kind: Kind, file: FileId, offset: u64, data: &mut [u8]) -> Result<OpResult, String> {
        let operation = self.operation(kind, file, offset, contiguous(data));
        self.one(operation)
    }

    /// Transfers all of `data`, continuing short transfers.
    fn all(&mut self, kind: Kind, file: FileId, offset: u64, data: &mut [u8]) -> Result<(), String> {
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
    fn plain(&mut self, kind: Kind, file: FileId, offset: u64) -> Result<bool, String> {
        let operation = self.operation(kind, file, offset, Memory::None);
        match self.one(operation)? {
            Ok(0) => Ok(true),
            Ok(moved) => Err(format!("{kind:?} claims to have moved {moved} bytes")),
            Err(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(false),
            Err(errno) => Err(format!("{kind:?}: {}", io::Error::from_raw_os_error(errno))),
        }
    }

    fn len(&mut self, file: FileId) -> Result<u64, String> {
        self.backend.file_len(file).map_err(|error| error.to_string())
    }
}

fn contiguous(data: &mut [u8]) -> Memory {
    Memory::Contiguous { ptr: data.as_mut_ptr(), len_bytes: data.len() as u32, region: None }
}

fn buffer(len_bytes: usize) -> Result<AlignedBuf, String> {
    AlignedBuf::new(len_bytes).map_err(|error| error.to_string())
}

/// Fills `data` with bytes that differ from block to block, within a block, and by seed; never 0.
fn pattern(data: &mut [u8], seed: u8) {
    for (index, byte) in data.iter_mut().enumerate() {
        *byte = ((index / BLOCK * 31 + index * 7 + usize::from(seed) * 13) % 255) as u8 + 1;
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{what}: {seen:?}, expected {wanted:?}")) }
}

fn same(what: &str, seen: &[u8], wanted: &[u8]) -> Result<(), String> {
    match seen.iter().zip(wanted).position(|(seen, wanted)| seen != wanted) {
        None if seen.len() == wanted.len() => Ok(()),
        at => Err(format!("{what}: wrong at byte {at:?} of {}", wanted.len())),
    }
}

fn write_and_read(kit: &mut Kit<'_>, direct: bool) -> Verdict {
    let (mut data, mut back) = (buffer(8 * BLOCK)?, buffer(8 * BLOCK)?);
    let mut rig = kit.backend()?;
    let (file, info) = kit.create(&mut rig, direct)?;
    expect("length of a new file", &info.len_bytes, &0)?;
    pattern(&mut data, 1);
    rig.all(Kind::Write, file, 0, &mut data)?;
    rig.all(Kind::Read, file, 0, &mut back)?;
    same("data read back", &back, &data)?;
    expect("length", &rig.len(file)?, &data.len().try_into().unwrap_or(0))?;
    let refused = direct && info.align_source == AlignSource::NotNeeded;
    Ok(refused.then(|| "direct I/O is refused or means nothing here; done buffered".to_owned()))
}

fn vectored(kit: &mut Kit<'_>) -> Verdict {
    let (mut data, mut back) = (buffer(6 * BLOCK)?, buffer(6 * BLOCK)?);
    pattern(&mut data, 2);
    // Pieces of 1, 2 and 3 blocks; lists and buffers outlive the backend.
    let pieces = |bytes: &mut AlignedBuf| {
        let (first, rest) = bytes.split_at_mut(BLOCK);
        let (second, third) = rest.split_at_mut(2 * BLOCK);
        [first, second, third].map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
    };

    let (from, into) = (pieces(&mut data), pieces(&mut back));
    let mut rig = kit.backend()?;
    let (file, _) = kit.create(&mut rig, true)?;
    for (kind, list) in [(Kind::Write, &from), (Kind::Read, &into)] {
        let operation = rig.operation(kind, file, 0, Memory::Vectored { iov: list.as_ptr(), count: 3 });
        expect("bytes moved", &rig.one(operation)?, &Ok(6 * BLOCK as u32))?;
    }
    same("data read back", &back, &data)?;

    let too_many = Memory::Vectored { iov: from.as_ptr(), count: 1025 };
    let operation = rig.operation(Kind::Read, file, 0, too_many);
    expect("1025 pieces", &rig.one(operation)?, &Err(libc::EINVAL))?;
    Ok(None)
}

fn short_reads(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(2 * BLOCK)?;
    let mut rig = kit.backend()?;
    for direct in [false, true] {
        let file = kit.filled(&mut rig, direct, 2, 3)?;
        for (offset, moved) in [(0, 2 * BLOCK), (BLOCK, BLOCK), (2 * BLOCK, 0), (64 * BLOCK, 0)] {
            let result = rig.transfer(Kind::Read, file, offset as u64, &mut back)?;
            expect(&format!("read of 2 blocks at {offset} of a file of 2 blocks"), &result, &Ok(moved as u32))?;
        }
        rig.backend.set_file_len(file, 1).map_err(|error| error.to_string())?;
        expect("read of a file of one byte", &rig.transfer(Kind::Read, file, 0, &mut back)?, &Ok(1))?;
    }
    Ok(None)
}

fn syncs(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let options = OpenOptions { write: true, create_new: true, direct: false, dsync: true, directory: false };
    let (file, _) = rig.backend.open(&kit.path(), &options).map_err(|error| error.to_string())?;
    rig.all(Kind::Write, file, 0, &mut data)?;
    for data_only in [true, false] {
        if !rig.plain(Kind::Sync { data_only }, file, 0)? {
            return Err("sync is not supported".to_owned());
        }
    }
    Ok(None)
}

fn discard(kit: &mut Kit<'_>) -> Verdict {
    let (mut data, mut back) = (buffer(8 * BLOCK)?, buffer(8 * BLOCK)?);
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, 8, 4)?;
    pattern(&mut data, 4);
    if !rig.plain(Kind::Discard { len_bytes: 3 * BLOCK as u64 }, file, 2 * BLOCK as u64)? {
        return Ok(Some("the file system cannot punch holes".to_owned()));
    }
    data.iter_mut().skip(2 * BLOCK).take(3 * BLOCK).for_each(|byte| *byte = 0);
    rig.all(Kind::Read, file, 0, &mut back)?;
    same("data around and in the discarded range", &back, &data)?;
    expect("length", &rig.len(file)?, &(8 * BLOCK as u64))?;
    Ok(None)
}

fn allocate(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, false, 1, 5)?;
    let len_bytes = 16 * BLOCK as u64;
    if !rig.plain(Kind::Allocate { len_bytes, keep_size: true }, file, 0)? {
        return Ok(Some("the file system cannot allocate ahead".to_owned()));
    }
    expect("length kept", &rig.len(file)?, &(BLOCK as u64))?;
    rig.plain(Kind::Allocate { len_bytes, keep_size: false }, file, 0)?;
    expect("length grown", &rig.len(file)?, &len_bytes)?;
    rig.all(Kind::Read, file, len_bytes - BLOCK as u64, &mut back)?;
    expect("allocated space reads as zeros", &back.iter().all(|&byte| byte == 0), &true)?;
    Ok(None)
}

fn lengths(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, false, 2, 7)?;
    let mut first = buffer(2 * BLOCK)?;
    pattern(&mut first, 7);
    for len_bytes in [BLOCK as u64 - 1, 3 * BLOCK as u64, BLOCK as u64 - 1, 0] {
        expect("a length is set", &rig.plain(Kind::SetLen { len_bytes }, file, 0)?, &true)?;
        expect("length", &rig.len(file)?, &len_bytes)?;
        if len_bytes > BLOCK as u64 {
            rig.all(Kind::Read, file, 0, &mut back)?;
            let (kept, cut) = (&first[..BLOCK - 1], 0);
            same("what was kept, and a zero where it was cut", &back, &[kept, &[cut]].concat())?;
        }
    }
    let too_long = rig.operation(Kind::SetLen { len_bytes: u64::MAX }, file, 0, Memory::None);
    expect("a length beyond all files", &rig.one(too_long)?, &Err(libc::EINVAL))?;
    Ok(None)
}

fn registered_memory(kit: &mut Kit<'_>) -> Verdict {
    const LEN_BYTES: usize = 4 * BLOCK;
    let mut wanted = buffer(LEN_BYTES)?;
    pattern(&mut wanted, 6);
    let (mut stranger, mut own);
    let mut other_rig = kit.backend()?;
    let mut rig = kit.backend()?;
    let register =
        |rig: &mut Rig| AlignedBuf::registered(2, LEN_BYTES, rig.backend.as_mut()).map_err(|e| e.to_string());
    (stranger, own) = (register(&mut other_rig)?, register(&mut rig)?);

    let (file, _) = kit.create(&mut rig, true)?;
    let mut registered = false;

    // Memory that another backend has registered must do no harm.
    for buffers in [&mut own, &mut stranger] {
        let [from, into] = buffers.buffers.as_mut_slice() else { return Err("not two buffers".to_owned()) };
        from.copy_from_slice(&wanted);
        for (kind, buffer) in [(Kind::Write, from), (Kind::Read, &mut *into)] {
            let (ptr, region) = buffer.part(0, LEN_BYTES).ok_or("no such part")?;
            registered |= region.is_some();
            let memory = Memory::Contiguous { ptr, len_bytes: LEN_BYTES as u32, region };
            let operation = rig.operation(kind, file, 0, memory);
            expect("bytes moved", &rig.one(operation)?, &Ok(LEN_BYTES as u32))?;
        }
        same("data read back", into, &wanted)?;
    }
    Ok((!registered).then(|| "memory is not registered here; done without".to_owned()))
}

fn large(kit: &mut Kit<'_>) -> Verdict {
    const LEN_BYTES: usize = 16 << 20;
    let (mut data, mut back) = (buffer(LEN_BYTES)?, buffer(LEN_BYTES)?);
    let mut rig = kit.backend()?;
    let (file, _) = kit.create(&mut rig, true)?;
    pattern(&mut data, 7);
    rig.all(Kind::Write, file, 0, &mut data)?;
    rig.all(Kind::Read, file, 0, &mut back)?;
    same("data read back", &back, &data)?;
    Ok(None)
}

fn unaligned(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(2 * BLOCK)?;
    let mut rig = kit.backend()?;
    let (file, info) = kit.create(&mut rig, true)?;
    if info.align_source == AlignSource::NotNeeded {
        return Ok(Some("direct I/O is refused or means nothing here".to_owned()));
    }
    rig.all(Kind::Write, file, 0, &mut data)?;
    for (offset, skip, len_bytes) in [(1, 0, BLOCK), (0, 1, BLOCK), (0, 0, BLOCK - 1)] {
        let part = data.get_mut(skip..skip + len_bytes).ok_or("no such part")?;
        let result = rig.transfer(Kind::Read, file, offset, part)?;
        // Some file systems (tmpfs) take any alignment; the operation must end, with the right result.
        if !matches!(result, Err(libc::EINVAL)) && !matches!(result, Ok(moved) if moved as usize == len_bytes) {
            return Err(format!("offset {offset}, address + {skip}, length {len_bytes}: {result:?}"));
        }
    }
    Ok(None)
}

fn exclusive_create(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(BLOCK)?;
    let mut wanted = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let path = kit.path();
    let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let read = OpenOptions::default();

    expect("a missing file", &rig.backend.open(&path, &read).map_err(|e| e.kind()), &Err(io::ErrorKind::NotFound))?;
    let (file, _) = rig.backend.open(&path, &create).map_err(|error| error.to_string())?;
    pattern(&mut wanted, 8);
    rig.all(Kind::Write, file, 0, &mut wanted)?;
    let Err(error) = rig.backend.open(&path, &create) else { return Err("an existing file was created".to_owned()) };
    expect("kind of error", &error.kind(), &io::ErrorKind::AlreadyExists)?;
    expect("the message names the path", &error.to_string().contains(&path.display().to_string()), &true)?;

    let (again, info) = rig.backend.open(&path, &read).map_err(|error| error.to_string())?;
    expect("length after the refusal", &info.len_bytes, &(BLOCK as u64))?;
    rig.all(Kind::Read, again, 0, &mut back)?;
    same("data after the refusal", &back, &wanted)?;
    Ok(None)
}

fn read_only(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let path = kit.path();
    let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    rig.backend.open(&path, &create).map_err(|error| error.to_string())?;
    let (file, _) = rig.backend.open(&path, &OpenOptions::default()).map_err(|error| error.to_string())?;
    expect("write", &rig.transfer(Kind::Write, file, 0, &mut data)?, &Err(libc::EBADF))?;
    Ok(None)
}

fn bad_files(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let (closed, _) = kit.create(&mut rig, false)?;
    rig.backend.close(closed);
    let (next, _) = kit.create(&mut rig, false)?;
    rig.backend.close(FileId(77_777));
    for file in [closed, FileId(77_777), FileId(u32::MAX)] {
        for kind in [Kind::Read, Kind::Write, Kind::Sync { data_only: true }] {
            let result = rig.transfer(kind, file, 0, &mut data)?;
            expect(&format!("{kind:?} of {file:?}"), &result, &Err(libc::EBADF))?;
        }
        expect("its length", &rig.backend.file_len(file).map_err(|e| e.kind()), &Err(io::ErrorKind::NotFound))?;
    }
    let overflow = rig.transfer(Kind::Read, next, u64::MAX, &mut data)?;
    expect("an offset past the largest", &overflow, &Err(libc::EINVAL))?;
    rig.all(Kind::Write, next, 0, &mut data)?;
    Ok(None)
}

fn close_in_flight(kit: &mut Kit<'_>) -> Verdict {
    let (mut back, mut wanted) = (buffer(BLOCK)?, buffer(BLOCK)?);
    let mut rig = kit.backend()?;
    let other = kit.filled(&mut rig, true, 1, 10)?;
    let other_path = kit.dir.join(format!("file-{}", kit.files));
    rig.backend.close(other);
    let file = kit.filled(&mut rig, true, 1, 9)?;

    let read = rig.operation(Kind::Read, file, 0, contiguous(&mut back));
    let submitted = rig.submit(read);
    // The next file may take the place of the closed one before the kernel has seen the read.
    rig.backend.close(file);
    rig.backend.open(&other_path, &OpenOptions::default()).map_err(|error| error.to_string())?;
    if submitted == Submit::Queued {
        let done = rig.finish(1)?;
        expect("completions", &done, &vec![Completion { key: read.key, result: Ok(BLOCK as u32) }])?;
    }

    pattern(&mut wanted, 9);
    same("data of the file that was closed", &back, &wanted)?;
    Ok(None)
}

fn each_key_once(kit: &mut Kit<'_>) -> Verdict {
    let mut buffers = buffer(64 * BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, 8, 11)?;
    let mut waiting = BTreeSet::new();
    for round in 0..20 {
        // Different amounts in flight, submitted in parts with flushes between them.
        let amount = rig.backend.capacity().min(1 + round * 7 % 64);
        for (index, block) in buffers.chunks_exact_mut(BLOCK).take(amount).enumerate() {
            let operation = rig.operation(Kind::Read, file, (index % 8 * BLOCK) as u64, contiguous(block));
            match rig.submit(operation) {
                Submit::Done(result) => expect("bytes moved", &result, &Ok(BLOCK as u32))?,
                Submit::Queued => expect("a new key", &waiting.insert(operation.key), &true)?,
                Submit::Busy => return Err(format!("busy with {index} of {} in flight", rig.backend.capacity())),
            }
            if index % 5 == 4 {
                rig.backend.flush().map_err(|error| error.to_string())?;
            }
        }

        expect("in flight", &rig.backend.in_flight(), &waiting.len())?;
        for completion in rig.finish(waiting.len())? {
            expect("bytes moved", &completion.result, &Ok(BLOCK as u32))?;
            expect("a known key", &waiting.remove(&completion.key), &true)?;
        }
        expect("left in flight", &rig.backend.in_flight(), &0)?;
    }
    Ok(None)
}

fn busy_at_capacity(kit: &mut Kit<'_>) -> Verdict {
    let mut block = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let (file, _) = kit.create(&mut rig, false)?;
    let capacity = rig.backend.capacity();
    // All write the same bytes from the same memory, which none of them changes.
    let mut submit = |rig: &mut Rig| {
        let operation = rig.operation(Kind::Write, file, 0, contiguous(&mut block));
        rig.submit(operation)
    };

    for count in 0..capacity {
        match submit(&mut rig) {
            Submit::Queued => {}
            Submit::Done(_) => return Ok(Some("this backend finishes at once".to_owned())),
            Submit::Busy => return Err(format!("busy after {count} of {capacity}")),
        }
    }

    expect("at capacity", &submit(&mut rig), &Submit::Busy)?;
    expect("in flight", &rig.backend.in_flight(), &capacity)?;
    rig.finish(capacity)?;
    expect("after reaping", &submit(&mut rig), &Submit::Queued)?;
    rig.finish(1)?;
    Ok(None)
}

fn deadline(kit: &mut Kit<'_>) -> Verdict {
    let mut rig = kit.backend()?;
    let error = |error: io::Error| error.to_string();
    // A deadline that has passed.
    rig.backend.wait(Some(0)).map_err(error)?;
    let deadline_ns = rig.backend.now_ns() + 20_000_000;
    let mut waits = 0;
    while rig.backend.now_ns() < deadline_ns {
        rig.backend.wait(Some(deadline_ns)).map_err(error)?;
        waits += 1;
        expect("it sleeps rather than spins", &(waits < 100), &true)?;
    }
    Ok(None)
}

fn complete_and_wake(kit: &mut Kit<'_>) -> Verdict {
    let mut buffers = buffer(8 * BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, 8, 12).or_else(|_| kit.create(&mut rig, false).map(|(file, _)| file))?;

    let wake = rig.backend.wake_handle();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let waker = std::thread::spawn(move || {
        while !stopped.load(SeqCst) {
            wake.wake();
            std::thread::sleep(Duration::from_micros(20));
        }
    });

    let result = wait_for_all(&mut rig, file, &mut buffers);
    stop.store(true, SeqCst);
    waker.join().map_err(|_| "the waking thread panicked".to_owned())?;
    result
}

fn wait_for_all(rig: &mut Rig, file: FileId, buffers: &mut AlignedBuf) -> Verdict {
    for _ in 0..200 {
        let mut waiting = BTreeSet::new();
        for (index, block) in buffers.chunks_exact_mut(BLOCK).enumerate() {
            let operation = rig.operation(Kind::Read, file, (index * BLOCK) as u64, contiguous(block));
            match rig.submit(operation) {
                Submit::Done(_) => return Ok(Some("this backend finishes at once".to_owned())),
                Submit::Queued => drop(waiting.insert(operation.key)),
                Submit::Busy => return Ok(Some("this backend takes fewer than 8 operations".to_owned())),
            }
        }

        let deadline_ns = rig.backend.now_ns() + PATIENCE_NS;
        while !waiting.is_empty() && rig.backend.now_ns() < deadline_ns {
            rig.backend.wait(Some(deadline_ns)).map_err(|error| error.to_string())?;
            let mut unknown = 0;
            rig.backend.reap(&mut |completion| unknown += usize::from(!waiting.remove(&completion.key)));
            expect("completions of unknown keys", &unknown, &0)?;
        }

        expect("operations that did not come back", &waiting.len(), &0)?;
        expect("left in flight", &rig.backend.in_flight(), &0)?;
    }
    Ok(None)
}

fn wake_race(kit: &mut Kit<'_>) -> Verdict {
    let mut rig = kit.backend()?;

    let wake = rig.backend.wake_handle();
    // A wake-up before the wait.
    wake.wake();
    rig.backend.wait(None).map_err(|error| error.to_string())?;

    let (asked, rung) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (asked_there, rung_there) = (Arc::clone(&asked), Arc::clone(&rung));
    let waker = std::thread::spawn(move || {
        let mut last = 0;
        while last < WAKE_ROUNDS {
            let round = asked_there.load(SeqCst);
            if round == last {
                std::thread::yield_now();
                continue;
            }
            // A different moment each round, to meet the sleeper before, in and after its last look.
            (0..round % 97 * 8).for_each(|_| std::hint::spin_loop());
            rung_there.store(round, SeqCst);
            wake.wake();
            last = round;
        }
    });

    let mut verdict = Ok(None);
    for round in 1..=WAKE_ROUNDS {
        asked.store(round, SeqCst);
        if let Err(seen) = wait_until_rung(&mut rig, &rung, round) {
            verdict = Err(seen);
            asked.store(WAKE_ROUNDS, SeqCst);
            break;
        }
    }

    waker.join().map_err(|_| "the waking thread panicked".to_owned())?;
    verdict
}

fn wait_until_rung(rig: &mut Rig, rung: &AtomicU32, round: u32) -> Result<(), String> {
    let deadline_ns = rig.backend.now_ns() + PATIENCE_NS;
    while rung.load(SeqCst) != round {
        rig.backend.wait(Some(deadline_ns)).map_err(|error| error.to_string())?;
        if rig.backend.now_ns() >= deadline_ns {
            return Err(format!("lost in round {round}"));
        }
    }
    Ok(())
}

fn idle_wait(kit: &mut Kit<'_>) -> Verdict {
    let mut rig = kit.backend()?;
    let deadline_ns = rig.backend.now_ns() + 200_000_000;
    let before_ns = thread_cpu_ns();
    while rig.backend.now_ns() < deadline_ns {
        rig.backend.wait(Some(deadline_ns)).map_err(|error| error.to_string())?;
    }
    let used_ns = thread_cpu_ns() - before_ns;
    // A spinning wait would use all of the 200 ms; a sleeping one some microseconds.
    expect(&format!("less than 20 ms of CPU in 200 ms of sleep ({used_ns} ns)"), &(used_ns < 20_000_000), &true)?;
    Ok(None)
}

fn drop_in_flight(kit: &mut Kit<'_>, flushed: bool) -> Verdict {
    const BLOCKS: usize = 64;
    let (mut back, mut wanted) = (buffer(BLOCKS * BLOCK)?, buffer(BLOCKS * BLOCK)?);
    pattern(&mut wanted, 13);
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, BLOCKS, 13)?;

    let blocks = rig.backend.capacity().min(BLOCKS);
    for (index, block) in back.chunks_exact_mut(BLOCK).take(blocks).enumerate() {
        let operation = rig.operation(Kind::Read, file, (index * BLOCK) as u64, contiguous(block));
        if rig.submit(operation) == Submit::Busy {
            return Err(format!("busy with {index} of {} in flight", rig.backend.capacity()));
        }
    }

    if flushed {
        rig.backend.flush().map_err(|error| error.to_string())?;
    }

    drop(rig);
    let after_drop = back.to_vec();
    if flushed {
        let len = blocks * BLOCK;
        same("reads in flight end before the drop does", after_drop.get(..len).unwrap_or(&[]), &wanted[..len])?;
    }

    std::thread::sleep(Duration::from_millis(20));
    same("memory some time after the drop", &back, &after_drop)?;
    Ok(None)
}
