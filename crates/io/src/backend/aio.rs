//! Linux AIO: the kernel's older asynchronous interface, for direct I/O.
//!
//! # Why
//! If io_uring is forbidden, AIO still keeps many operations at the disk at once without threads.
//!
//! # How it works
//! `submit` fills control blocks, `flush` submits all of them with one `io_submit`, `reap` takes completions with one
//! `io_getevents`, and makes no system call if the kernel's ring, which is mapped into our memory, is empty. Every
//! control block names the doorbell's eventfd, so sleeping is one `ppoll`. Blocks that `io_submit` does not accept now
//! (`EAGAIN`, or fewer than offered) stay queued until the next `flush` or `wait` offers them again. Operations that
//! the interface lacks (`fallocate`, discard, and `fsync` on older kernels) go to one helper thread, started at the
//! first of them.
//!
//! # Limits
//! Only direct I/O is asynchronous: a buffered read or write blocks inside `io_submit`. So may a direct write that
//! extends its file. A waiting shard wakes for every completion. The number of control blocks on the whole machine is
//! bounded by `fs.aio-max-nr`.
//!
//! # Example
//! 32 reads: 32 control blocks, one `io_submit`, which accepts 30: two stay queued. `wait` sleeps in `ppoll`, the first
//! completion makes the eventfd readable, `reap` returns all completions, the next `flush` offers the two again.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::doorbell::Doorbell;
use super::file::{FileTable, OsFile, close, unknown_file, validate};
use super::worker::{Workers, last_errno};
use super::{
    Backend, Completion, FileId, FileInfo, Kind, Memory, OpenOptions, OpenedFile, Operation, Submit, WakeHandle,
};
use crate::sys::clock;

/// Control blocks if the caller has no preference.
pub const DEFAULT_ENTRIES: u32 = 256;

/// Sleep before refused control blocks are offered again while no operation is in flight.
const RETRY_NS: u64 = 1_000_000;

// Commands and flag of `linux/aio_abi.h`.
const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_FSYNC: u16 = 2;
const IOCB_CMD_FDSYNC: u16 = 3;
const IOCB_CMD_PREADV: u16 = 7;
const IOCB_CMD_PWRITEV: u16 = 8;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    reqprio: i16,
    fd: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// Head of the completion ring that the kernel maps at the context's address (`struct aio_ring` of `fs/aio.c`; the
/// magic number fixes its layout for user space).
#[repr(C)]
struct RingHead {
    id: u32,
    entries: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
}

const RING_MAGIC: u32 = 0xa10a_10a1;

/// A kernel AIO context and its system calls.
struct Context(libc::c_ulong);

impl Context {
    fn new(entries: u32) -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one context number to `context`, which outlives the call.
        let answer = unsafe { libc::syscall(libc::SYS_io_setup, libc::c_long::from(entries), &raw mut context) };
        if answer == 0 { Ok(Self(context)) } else { Err(io::Error::last_os_error()) }
    }

    /// Submits `blocks`. Returns how many were accepted.
    ///
    /// # Safety
    /// The pointers must be valid until the call returns (the kernel copies the blocks), the memory that the blocks
    /// name until their events have been taken.
    unsafe fn submit(&self, blocks: &[*mut Iocb]) -> Result<usize, i32> {
        let count = blocks.len() as libc::c_long;
        // SAFETY: `blocks` holds `count` valid pointers; the rest is our caller's promise.
        let answer = unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, blocks.as_ptr()) };
        usize::try_from(answer).map_err(|_| last_errno())
    }

    /// Takes the available events, up to the length of `events`, without waiting; with `block` waits for one.
    fn events(&self, events: &mut [IoEvent], block: bool) -> Result<usize, i32> {
        let (count, least) = (events.len() as libc::c_long, libc::c_long::from(block));
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if block { std::ptr::null() } else { &raw const now };
        let target = events.as_mut_ptr();
        // SAFETY: the kernel writes at most `count` events to `events`, and reads `now`; both outlive the call.
        let answer = unsafe { libc::syscall(libc::SYS_io_getevents, self.0, least, count, target, timeout) };
        usize::try_from(answer).map_err(|_| last_errno())
    }

    /// Returns the number of events that wait in the ring in our memory; `None` if the ring's magic number is unknown.
    fn posted(&self) -> Option<usize> {
        let ring = self.0 as *const RingHead;
        // SAFETY: the context's number is the address of the ring, mapped until `io_destroy` in our drop; the kernel
        // changes only `head` and `tail` of it, which are atomics here.
        let ring = unsafe { &*ring };
        let (head, tail) = (ring.head.load(Ordering::Relaxed) as usize, ring.tail.load(Ordering::Acquire) as usize);
        let entries = ring.entries as usize;
        (ring.magic == RING_MAGIC).then(|| if tail < head { tail + entries - head } else { tail - head })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours and is not used again. The kernel waits for operations in flight in this call.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// An operation between `submit` and its event, which keeps its file open.
struct Flight {
    key: u64,
    file: Arc<OsFile>,
    operation: Operation,
}

/// The AIO backend; see the module's documentation.
pub struct AioBackend {
    context: Context,
    doorbell: Arc<Doorbell>,
    files: FileTable<Arc<OsFile>>,
    /// Indexed by `Iocb::data`.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Control blocks that the kernel has not accepted yet.
    waiting: Vec<Iocb>,
    events: Vec<IoEvent>,
    ready: VecDeque<Completion>,
    helper: Option<Workers>,
    capacity: usize,
}

impl AioBackend {
    /// Returns a backend for `entries` operations at once (1 to 65 536, clamped).
    ///
    /// # Errors
    /// `EAGAIN` if `fs.aio-max-nr` is used up, `ENOSYS` if the kernel is built without AIO.
    pub fn new(entries: u32) -> io::Result<Self> {
        let entries = entries.clamp(1, 65_536);
        let capacity = entries as usize;
        Ok(Self {
            context: Context::new(entries)?,
            doorbell: Doorbell::new()?,
            files: FileTable::new(),
            flights: (0..capacity).map(|_| None).collect(),
            free: (0..capacity).rev().collect(),
            waiting: Vec::with_capacity(capacity),
            events: vec![IoEvent::default(); capacity.min(256)],
            ready: VecDeque::with_capacity(capacity),
            helper: None,
            capacity,
        })
    }

    fn in_context(&self) -> usize {
        self.capacity - self.free.len()
    }

    /// Returns the number of operations that the kernel has accepted and whose events have not been taken.
    fn in_kernel(&self) -> usize {
        self.in_context() - self.waiting.len()
    }

    /// Passes an operation that AIO lacks to the helper thread.
    ///
    /// # Safety
    /// As [`Backend::submit`].
    unsafe fn submit_to_helper(&mut self, operation: Operation, file: Arc<OsFile>) -> Result<(), i32> {
        if self.helper.is_none() {
            let started = Workers::start(1, &self.doorbell);
            self.helper = Some(started.map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?);
        }
        let Some(helper) = self.helper.as_mut() else { return Err(libc::EAGAIN) };
        // SAFETY: passed on from the caller.
        unsafe { helper.push(operation, file) };
        Ok(())
    }

    fn block(&self, index: usize, operation: &Operation, file: &OsFile) -> Option<Iocb> {
        let (opcode, buf, nbytes) = match (operation.kind, operation.memory) {
            (Kind::Read, Memory::Contiguous { ptr, len_bytes, .. }) => (IOCB_CMD_PREAD, ptr as u64, len_bytes),
            (Kind::Write, Memory::Contiguous { ptr, len_bytes, .. }) => (IOCB_CMD_PWRITE, ptr as u64, len_bytes),
            (Kind::Read, Memory::Vectored { iov, count }) => (IOCB_CMD_PREADV, iov as u64, count),
            (Kind::Write, Memory::Vectored { iov, count }) => (IOCB_CMD_PWRITEV, iov as u64, count),
            (Kind::Sync { data_only: true }, _) => (IOCB_CMD_FDSYNC, 0, 0),
            (Kind::Sync { data_only: false }, _) => (IOCB_CMD_FSYNC, 0, 0),
            _ => return None,
        };

        // The kernel insists on an offset, address and length of 0 for a sync.
        let offset = if matches!(operation.kind, Kind::Sync { .. }) { 0 } else { operation.offset as i64 };

        Some(Iocb {
            data: index as u64,
            opcode,
            fd: file.raw_fd() as u32,
            buf,
            nbytes: u64::from(nbytes),
            offset,
            flags: IOCB_FLAG_RESFD,
            resfd: self.doorbell.raw_fd() as u32,
            ..Iocb::default()
        })
    }

    fn release(&mut self, index: u64) -> Option<Flight> {
        let index = usize::try_from(index).ok()?;
        let flight = self.flights.get_mut(index)?.take()?;
        self.free.push(index);
        Some(flight)
    }

    /// Removes the first waiting block, which the kernel has refused with `errno`.
    fn refuse_first(&mut self, errno: i32) {
        if self.waiting.is_empty() {
            return;
        }
        let block = self.waiting.remove(0);
        let Some(flight) = self.release(block.data) else { return };
        let unknown_sync = matches!(block.opcode, IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC) && errno == libc::EINVAL;
        let result = if unknown_sync {
            // SAFETY: a sync names no memory.
            match unsafe { self.submit_to_helper(flight.operation, flight.file) } {
                Ok(()) => return,
                Err(errno) => Err(errno),
            }
        } else {
            Err(errno)
        };
        self.ready.push_back(Completion { key: flight.key, result });
    }

    /// Takes the completions.
    fn collect(&mut self) -> io::Result<()> {
        if let Some(helper) = self.helper.as_mut() {
            helper.collect(&mut self.ready);
        }
        while self.in_kernel() > 0 && self.context.posted() != Some(0) {
            let mut events = std::mem::take(&mut self.events);
            let taken = self.context.events(&mut events, false);
            for event in events.iter().take(*taken.as_ref().unwrap_or(&0)) {
                self.land(event);
            }
            self.events = events;
            match taken {
                // There were none, or a signal has interrupted the call; the next one takes the events.
                Ok(0) | Err(libc::EINTR) => return Ok(()),
                Ok(_) => {}
                Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        Ok(())
    }

    fn land(&mut self, event: &IoEvent) {
        let Some(flight) = self.release(event.data) else { return };
        let result = match u32::try_from(event.result) {
            Ok(_) if matches!(flight.operation.kind, Kind::Sync { .. }) => Ok(0),
            Ok(moved) => Ok(moved),
            Err(_) => Err(i32::try_from(event.result.saturating_neg()).unwrap_or(libc::EIO)),
        };
        self.ready.push_back(Completion { key: flight.key, result });
    }

    /// Offers the waiting blocks until all are accepted or the kernel has no room.
    fn offer(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let blocks: Vec<*mut Iocb> = self.waiting.iter_mut().map(std::ptr::from_mut).collect();
            // SAFETY: the pointers lead into `self.waiting`, untouched during the call; the memory that the blocks name
            // is kept by the submitter until the completion has been reaped, the files by `self.flights`.
            match unsafe { self.context.submit(&blocks) } {
                Ok(0) | Err(libc::EAGAIN) => return Ok(()),
                Ok(count) => drop(self.waiting.drain(..count.min(self.waiting.len()))),
                Err(libc::EINTR) => {}
                // A sandbox forbids the call, with no block, too.
                // SAFETY: there is no block.
                Err(errno @ (libc::ENOSYS | libc::EPERM)) if unsafe { self.context.submit(&[]) } == Err(errno) => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                // Only the first block is at fault (EPERM: its file, by fanotify). For a bad later one, the call returns
                // the number of blocks before it.
                Err(errno) => self.refuse_first(errno),
            }
        }
        Ok(())
    }
}

// SAFETY: an operation keeps its place in `flights` (or with the helper) until its one event has been taken; afterwards
// no structure names its memory. `drop` waits for the events, `io_destroy` for any left.
unsafe impl Backend for AioBackend {
    fn name(&self) -> &'static str {
        "aio"
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        OsFile::open_shared(path, options)
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        let (file, info) = OsFile::shared(file)?;
        Ok((self.files.insert(file)?, info))
    }

    fn close(&mut self, file: FileId) {
        if let Some(file) = self.files.remove(file) {
            close(file);
        }
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        self.files.get(file).ok_or_else(|| unknown_file(file))?.len_bytes()
    }

    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        self.files.get(file).ok_or_else(|| unknown_file(file))?.file.set_len(len_bytes)
    }

    unsafe fn submit(&mut self, operation: Operation) -> Submit {
        if let Err(errno) = validate(&operation) {
            return Submit::Done(Err(errno));
        }
        let Some(file) = self.files.get(operation.file) else { return Submit::Done(Err(libc::EBADF)) };
        let file = Arc::clone(file);

        if self.in_flight() >= self.capacity {
            return Submit::Busy;
        }

        let Some(index) = self.free.last().copied() else { return Submit::Busy };
        let Some(block) = self.block(index, &operation, &file) else {
            // SAFETY: passed on from our caller.
            return match unsafe { self.submit_to_helper(operation, file) } {
                Ok(()) => Submit::Queued,
                Err(errno) => Submit::Done(Err(errno)),
            };
        };

        let Some(flight) = self.flights.get_mut(index) else { return Submit::Busy };
        *flight = Some(Flight { key: operation.key, file, operation });
        self.free.pop();
        self.waiting.push(block);
        Submit::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        self.offer()
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        // `wait` meets the same error, and returns it.
        let _ = self.collect();
        let count = self.ready.len();
        self.ready.drain(..).for_each(sink);
        count
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.offer()?;
        let doorbell = Arc::clone(&self.doorbell);
        loop {
            self.collect()?;
            let now_ns = clock::now_ns();
            let late = deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
            if doorbell.take_woken() || !self.ready.is_empty() || late {
                return Ok(());
            }
            if self.waiting.is_empty() {
                doorbell.sleep(deadline_ns)?;
            } else {
                doorbell.sleep(Some(deadline_ns.unwrap_or(u64::MAX).min(now_ns.saturating_add(RETRY_NS))))?;
                self.offer()?;
            }
        }
    }

    fn wake_handle(&self) -> WakeHandle {
        Arc::<Doorbell>::clone(&self.doorbell)
    }

    fn in_flight(&self) -> usize {
        let helping = self.helper.as_ref().map_or(0, Workers::pending);
        self.in_context() + helping + self.ready.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for AioBackend {
    /// Submits the accepted operations, and waits for them: the kernel must not write to memory after this. The drop of
    /// the helper joins its thread.
    fn drop(&mut self) {
        while self.in_context() > 0 {
            if self.offer().is_err() {
                // The kernel takes no more blocks, so the waiting ones will never touch memory.
                while !self.waiting.is_empty() {
                    self.refuse_first(libc::ECANCELED);
                }
            }

            if self.in_kernel() == 0 {
                if !self.waiting.is_empty() {
                    std::thread::sleep(Duration::from_nanos(RETRY_NS));
                }
                continue;
            }

            let mut event = [IoEvent::default()];
            match self.context.events(&mut event, true) {
                Ok(_) => event.iter().for_each(|event| self.land(event)),
                Err(libc::EINTR) => {}
                // This process, a child of `fork`, has no such context.
                Err(libc::EINVAL) => return,
                // A sandbox forbids the call, and `io_destroy`, too. The operations that have events are over.
                Err(_) if self.context.posted() >= Some(self.in_kernel()) => return,
                Err(_) => std::thread::sleep(Duration::from_nanos(RETRY_NS)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::forbid;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<Iocb>(), size_of::<IoEvent>()), (64, 32));
        assert_eq!(std::mem::offset_of!(Iocb, opcode), 16);
        assert_eq!(std::mem::offset_of!(Iocb, resfd), 60);
    }

    /// Returns a backend with a new, empty file.
    fn with_file() -> Option<(AioBackend, FileId)> {
        let mut backend = AioBackend::new(8).ok()?;
        let thread = std::thread::current().id();
        let path = std::env::temp_dir().join(format!("plimsoll-aio-{}-{thread:?}", std::process::id()));
        let how = OpenOptions { create_new: true, ..OpenOptions::default() };
        let (file, _) = backend.open(&path, &how).unwrap();
        std::fs::remove_file(&path).unwrap();
        Some((backend, file))
    }

    fn read(file: FileId, byte: &mut u8) -> Operation {
        let memory = Memory::Contiguous { ptr: byte, len_bytes: 1, region: None };
        Operation { key: 1, file, kind: Kind::Read, offset: 0, memory }
    }

    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

    /// A shard slept for ever if its program forbade these calls to itself.
    #[test]
    fn a_sandbox_that_forbids_to_take_events_breaks_the_backend_and_its_drop_waits_for_them() {
        let run = || {
            let mut byte = 7;
            let (mut backend, file) = with_file()?;
            // SAFETY: `byte` outlives the backend, whose drop waits for its operations.
            assert_eq!(unsafe { backend.submit(read(file, &mut byte)) }, Submit::Queued);
            backend.flush().unwrap();
            if !forbid(&[(libc::SYS_io_getevents, None), (libc::SYS_io_destroy, None)], REFUSED) {
                return None;
            }
            Some(backend.wait(Some(clock::now_ns() + 60_000_000_000)).map_err(|error| error.raw_os_error()))
        };
        match std::thread::spawn(run).join().unwrap() {
            Some(waited) => assert_eq!(waited, Err(Some(libc::EPERM))),
            None => crate::skip::skip("this kernel has no AIO, or takes no seccomp filter"),
        }
    }

    /// All I/O of a shard ended with one file that a virus scanner had denied.
    #[test]
    fn a_refused_block_breaks_nothing_unless_a_sandbox_refuses_all() {
        // Forbids calls with blocks, or all; the result of the flush, and the completions.
        for (blocks, flushed, completed) in [(Some(1), None, vec![Err(libc::EPERM)]), (None, Some(libc::EPERM), vec![])]
        {
            let run = move || {
                let mut byte = 7;
                let (mut backend, file) = with_file()?;
                if !forbid(&[(libc::SYS_io_submit, blocks)], REFUSED) {
                    return None;
                }
                // SAFETY: `byte` outlives the backend, whose drop waits for its operations.
                assert_eq!(unsafe { backend.submit(read(file, &mut byte)) }, Submit::Queued);
                let flushed = backend.flush().err().and_then(|error| error.raw_os_error());
                let mut completed = Vec::new();
                backend.reap(&mut |completion| completed.push(completion.result));
                drop(backend);
                Some((flushed, completed))
            };
            match std::thread::spawn(run).join().unwrap() {
                Some(found) => assert_eq!(found, (flushed, completed), "blocks: {blocks:?}"),
                None => crate::skip::skip("this kernel has no AIO, or takes no seccomp filter"),
            }
        }
    }
}
