//! A backend that holds operations back, or fails, when it is told to.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::{
    Backend, Completion, FileId, FileInfo, OpenOptions, OpenedFile, Operation, Submit, WakeHandle,
};

/// The state of a [`Holding`] backend, for the test that drives it.
#[derive(Default)]
pub(crate) struct Switches {
    /// Operations are held back while this is set.
    pub(crate) holds: AtomicBool,
    /// `flush` and `wait` fail with `EBADF` while this is set.
    pub(crate) is_broken: AtomicBool,
    /// Waits until the first that fails with `ENOMEM`, as do all after it; 0: none fails.
    pub(crate) waits_until_failure: AtomicUsize,
}

/// A memory backend behind the switches.
pub(crate) struct Holding {
    inner: MemoryBackend,
    held: Vec<Operation>,
    switches: Arc<Switches>,
}

impl Holding {
    /// Returns a backend that holds nothing yet, and its switches.
    pub(crate) fn boxed() -> (Box<dyn Backend>, Arc<Switches>) {
        Holding::over(MemoryBackend::new(&MemoryStore::default()).unwrap())
    }

    /// Returns `inner` behind switches.
    pub(crate) fn over(inner: MemoryBackend) -> (Box<dyn Backend>, Arc<Switches>) {
        let switches = Arc::<Switches>::default();
        (Box::new(Holding { inner, held: Vec::new(), switches: Arc::clone(&switches) }), switches)
    }

    fn check(&self) -> io::Result<()> {
        if self.switches.is_broken.load(Relaxed) { Err(io::Error::from_raw_os_error(libc::EBADF)) } else { Ok(()) }
    }
}

// SAFETY: only the inner backend touches memory, and keeps the contract. An operation that is held back counts as in flight until
// the inner backend has done it; if it never gets it, nothing touches its memory.
unsafe impl Backend for Holding {
    fn name(&self) -> &'static str {
        "holding"
    }

    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        self.inner.open_shared(path, options)
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        self.inner.attach(file)
    }

    fn close(&mut self, file: FileId) {
        self.inner.close(file);
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        self.inner.file_len(file)
    }

    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        self.inner.set_file_len(file, len_bytes)
    }

    unsafe fn submit(&mut self, operation: Operation) -> Submit {
        if self.switches.holds.load(Relaxed) {
            self.held.push(operation);
            return Submit::Queued;
        }
        // SAFETY: passed on from the caller.
        unsafe { self.inner.submit(operation) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        self.inner.flush()
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        let mut count = 0;
        while !self.switches.holds.load(Relaxed)
            && let Some(operation) = self.held.pop()
        {
            let key = operation.key;
            // SAFETY: the caller of `submit` keeps the memory until the completion of the operation.
            if let Submit::Done(result) = unsafe { self.inner.submit(operation) } {
                sink(Completion { key, result });
                count += 1;
            }
        }
        count + self.inner.reap(sink)
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.check()?;
        if !self.held.is_empty() && !self.switches.holds.load(Relaxed) {
            return Ok(());
        }
        match self.switches.waits_until_failure.load(Relaxed) {
            0 => self.inner.wait(deadline_ns),
            1 => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
            waits => {
                self.switches.waits_until_failure.store(waits - 1, Relaxed);
                self.inner.wait(deadline_ns)
            }
        }
    }

    fn wake_handle(&self) -> WakeHandle {
        self.inner.wake_handle()
    }

    fn in_flight(&self) -> usize {
        self.held.len() + self.inner.in_flight()
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }
}
