//! The pool backend, which works everywhere: a few threads with ordinary blocking calls.
//!
//! # Why
//! Containers often forbid io_uring, and Linux AIO can be used up; `pread` is always available.
//!
//! # How it works
//! Every operation is a job for one of N threads (module `worker`), which ring the owner's doorbell for each result.
//! `flush` does nothing, because a job starts as soon as a thread is free.
//!
//! # Limits
//! At most one operation per thread is at the disk at once; the others, up to the capacity, queue here. Two thread
//! switches per operation.
//!
//! # Example
//! ```
//! use plimsoll::backend::{Backend, pool::PoolBackend};
//! let backend = PoolBackend::new(4, 64)?;
//! assert_eq!((backend.name(), backend.capacity(), backend.in_flight()), ("pool", 64, 0));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::doorbell::Doorbell;
use super::file::{FileTable, OsFile, close, unknown_file, validate};
use super::worker::Workers;
use super::{Backend, Completion, FileId, FileInfo, OpenOptions, OpenedFile, Operation, Submit, WakeHandle};
use crate::sys::clock;

/// Threads if the caller has no preference.
pub const DEFAULT_THREADS: usize = 8;

/// Most threads that one backend starts.
pub const THREADS_MAX: usize = 256;

/// The pool backend; see the module's documentation.
pub struct PoolBackend {
    workers: Workers,
    doorbell: Arc<Doorbell>,
    files: FileTable<Arc<OsFile>>,
    ready: VecDeque<Completion>,
    capacity: usize,
}

impl PoolBackend {
    /// Returns a backend of `threads` threads (1 to [`THREADS_MAX`], clamped) that takes up to `capacity` operations
    /// (at least 1).
    ///
    /// # Errors
    /// If the system refuses a thread or an eventfd.
    pub fn new(threads: usize, capacity: u32) -> io::Result<Self> {
        let doorbell = Doorbell::new()?;
        let workers = Workers::start(threads.clamp(1, THREADS_MAX), &doorbell)?;
        let capacity = capacity.max(1) as usize;
        Ok(Self { workers, doorbell, files: FileTable::new(), ready: VecDeque::new(), capacity })
    }
}

// SAFETY: a worker touches memory before it publishes the one completion, and never after; dropping the workers carries
// out everything queued and joins them.
unsafe impl Backend for PoolBackend {
    fn name(&self) -> &'static str {
        "pool"
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
        if self.in_flight() >= self.capacity {
            return Submit::Busy;
        }
        let file = Arc::clone(file);
        // SAFETY: our caller keeps the memory until the completion comes out of `reap`, which is after its collection.
        unsafe { self.workers.push(operation, file) };
        Submit::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        self.workers.collect(&mut self.ready);
        let count = self.ready.len();
        self.ready.drain(..).for_each(sink);
        count
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let Self { workers, doorbell, ready, .. } = self;
        doorbell.wait_for(deadline_ns, || {
            workers.collect(ready);
            !ready.is_empty()
        })
    }

    fn wake_handle(&self) -> WakeHandle {
        Arc::<Doorbell>::clone(&self.doorbell)
    }

    fn in_flight(&self) -> usize {
        self.workers.pending() + self.ready.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
