//! Threads that carry out operations with ordinary blocking calls.
//!
//! # Why
//! The pool backend consists of such threads. The kernel interfaces need one too, for operations without an
//! asynchronous form (discard on a block device, `fallocate` under Linux AIO), which must not block a shard either.
//!
//! # How it works
//! Threads take jobs from a queue under a mutex, append results to a list that the owner collects, and ring the owner's
//! [`Doorbell`] for every result. A job holds its file open.
//!
//! # Limits
//! The owner, which knows its capacity, bounds the queue. Dropping the workers carries out all queued jobs, then joins
//! the threads.
//!
//! # Example
//! Eight threads, ten reads: eight `pread`s run at once and two wait. Each result rings the doorbell; the owner takes
//! all results at once when it wakes.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{FallocateFlags, fallocate, fdatasync, fsync, ftruncate};

use super::doorbell::Doorbell;
use super::file::OsFile;
use super::{Completion, Kind, Memory, OpResult, Operation};

/// `BLKDISCARD` of `linux/fs.h`: `_IO(0x12, 119)`. The same on every architecture whose `_IO` has no direction bits set
/// (all but alpha, mips, powerpc and sparc, where bit 29 stands for "none").
#[cfg(not(any(
    target_arch = "mips",
    target_arch = "mips64",
    target_arch = "powerpc",
    target_arch = "powerpc64",
    target_arch = "sparc64"
)))]
const BLKDISCARD: u32 = 0x1277;
#[cfg(any(
    target_arch = "mips",
    target_arch = "mips64",
    target_arch = "powerpc",
    target_arch = "powerpc64",
    target_arch = "sparc64"
))]
const BLKDISCARD: u32 = 0x2000_1277;

/// An operation, and the file that it keeps open.
struct Job {
    operation: Operation,
    file: Arc<OsFile>,
}

// SAFETY: the raw pointers in the operation name memory that its submitter keeps alive and untouched until the
// completion has been reaped (contract of `Backend::submit`), so another thread may use them until then.
unsafe impl Send for Job {}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    stop: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    job_ready: Condvar,
    done: Mutex<Vec<Completion>>,
    doorbell: Arc<Doorbell>,
}

/// The threads and their queue; see the module's documentation.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    pending: usize,
}

impl Workers {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start(threads: usize, doorbell: &Arc<Doorbell>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            job_ready: Condvar::new(),
            done: Mutex::default(),
            doorbell: Arc::clone(doorbell),
        });
        let mut workers = Self { shared, threads: Vec::with_capacity(threads), pending: 0 };
        for index in 0..threads {
            let shared = Arc::clone(&workers.shared);
            let builder = std::thread::Builder::new().name(format!("plimsoll-io-{index}"));
            workers.threads.push(builder.spawn(move || work(&shared))?);
        }
        Ok(workers)
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// The operation's memory must stay valid and untouched until its completion has been collected.
    pub(crate) unsafe fn push(&mut self, operation: Operation, file: Arc<OsFile>) {
        self.pending += 1;
        lock(&self.shared.queue).jobs.push_back(Job { operation, file });
        self.shared.job_ready.notify_one();
    }

    /// Moves the finished results to `ready`.
    pub(crate) fn collect(&mut self, ready: &mut VecDeque<Completion>) {
        if self.pending > 0 {
            let mut done = lock(&self.shared.done);
            self.pending -= done.len();
            ready.extend(done.drain(..));
        }
    }

    /// Returns the number of operations queued and not yet collected.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.shared.queue).stop = true;
        self.shared.job_ready.notify_all();
        for thread in self.threads.drain(..) {
            // A worker does not panic; if it did, its panic has been printed already.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let mut queue = lock(&shared.queue);
        let job = loop {
            match queue.jobs.pop_front() {
                Some(job) => break job,
                None if queue.stop => return,
                None => queue = shared.job_ready.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);

        // SAFETY: the submitter keeps the memory until the completion, which is only published below.
        let result = unsafe { execute(&job.operation, &job.file) };
        lock(&shared.done).push(Completion { key: job.operation.key, result });
        shared.doorbell.ring();
    }
}

/// Locks `mutex`. The data is valid at every moment, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out one operation with one blocking call.
///
/// # Safety
/// The operation's memory must be valid, and no other code may touch it until the call returns.
unsafe fn execute(operation: &Operation, file: &OsFile) -> OpResult {
    let fd = file.raw_fd();
    let offset = i64::try_from(operation.offset).map_err(|_| libc::EINVAL)?;

    let moved = match (operation.kind, operation.memory) {
        (Kind::Read, Memory::Contiguous { ptr, len_bytes, .. }) => {
            // SAFETY: the caller promises `len_bytes` writable bytes at `ptr` until we return.
            unsafe { libc::pread64(fd, ptr.cast(), len_bytes as usize, offset) }
        }
        (Kind::Write, Memory::Contiguous { ptr, len_bytes, .. }) => {
            // SAFETY: the caller promises `len_bytes` readable bytes at `ptr` until we return.
            unsafe { libc::pwrite64(fd, ptr.cast_const().cast(), len_bytes as usize, offset) }
        }
        (Kind::Read, Memory::Vectored { iov, count }) => {
            // SAFETY: the caller promises `count` elements at `iov`, and their memory, until we return.
            unsafe { libc::preadv64(fd, iov, count as libc::c_int, offset) }
        }
        (Kind::Write, Memory::Vectored { iov, count }) => {
            // SAFETY: the caller promises `count` elements at `iov`, and their memory, until we return.
            unsafe { libc::pwritev64(fd, iov, count as libc::c_int, offset) }
        }
        (Kind::Read | Kind::Write, Memory::None) => return Err(libc::EINVAL),
        (Kind::Sync { .. } | Kind::Discard { .. } | Kind::Allocate { .. } | Kind::SetLen { .. }, _) => {
            return change(operation, file);
        }
    };

    u32::try_from(moved).map_err(|_| last_errno())
}

/// Carries out an operation without memory.
fn change(operation: &Operation, file: &OsFile) -> OpResult {
    let done = match operation.kind {
        Kind::Sync { data_only: true } => fdatasync(&file.file),
        Kind::Sync { data_only: false } => fsync(&file.file),
        Kind::Discard { len_bytes } if file.is_block_device => {
            return discard_device(file, operation.offset, len_bytes);
        }
        Kind::Discard { len_bytes } => {
            fallocate(&file.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, operation.offset, len_bytes)
        }
        Kind::Allocate { len_bytes, keep_size } => {
            let mode = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
            fallocate(&file.file, mode, operation.offset, len_bytes)
        }
        Kind::SetLen { len_bytes } => ftruncate(&file.file, len_bytes),
        Kind::Read | Kind::Write => return Err(libc::EINVAL),
    };
    done.map(|()| 0).map_err(|errno| errno.raw_os_error())
}

fn discard_device(file: &OsFile, offset: u64, len_bytes: u64) -> OpResult {
    let range = [offset, len_bytes];
    // SAFETY: BLKDISCARD reads two u64 at the pointer; `range` lives until the call returns, and the kernel keeps none.
    let answer = unsafe { libc::ioctl(file.raw_fd(), BLKDISCARD as _, range.as_ptr()) };
    if answer == 0 { Ok(0) } else { Err(last_errno()) }
}

/// Returns the error number of the system call that has just failed on this thread.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
