//! Backends: the interface between a shard and the systems that carry out its I/O.
//!
//! # Why
//! The scheduler decides *when* a request is sent to the disk; a backend only carries it out and reports its
//! completion. io_uring, Linux AIO, a thread pool, memory, null and a simulated disk do the same job behind
//! [`Backend`], and one conformance kit (module `conformance`, feature `conformance`) tests them all against the same
//! contract. Time is read through the backend too, so that a whole shard can run on virtual time.
//!
//! # How it works
//! A shard opens files through its backend, then loops: [`Backend::submit`] for every piece that the scheduler
//! dispatched, [`Backend::flush`] once per turn, [`Backend::reap`] for completions, and [`Backend::wait`] when it has
//! no work. A submission has three answers ([`Submit`]): done, queued, busy. Only `wait` and `open` block.
//!
//! # Who owns the memory
//! An [`Operation`] carries raw pointers. The caller keeps the memory alive and untouched until `reap` has returned the
//! completion with the same key (or `submit` answered done or busy), even if the future that waits for it is dropped.
//! The drop of a backend first waits for its operations in flight.
//!
//! # Limits
//! A backend belongs to one thread (it is `!Send` if the kernel requires that); only its [`WakeHandle`] crosses
//! threads.
//!
//! # Example
//! ```
//! use plimsoll::backend::choose::{BackendKind, probe};
//! use plimsoll::backend::{Kind, Memory, OpenOptions, Operation, Submit};
//!
//! let (mut backend, _choice) = probe(Some(BackendKind::Null), 8)?;
//! let (file, _info) = backend.open("/any".as_ref(), &OpenOptions::default())?;
//! let mut bytes = [0_u8; 512];
//! let memory = Memory::Contiguous { ptr: bytes.as_mut_ptr(), len_bytes: 512, region: None };
//! let read = Operation { key: 1, file, kind: Kind::Read, offset: 0, memory };
//! // SAFETY: `bytes` outlives the call, and the null backend is done when it returns.
//! assert_eq!(unsafe { backend.submit(read) }, Submit::Done(Ok(512)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod aio;
pub mod choose;
mod doorbell;
mod explained;
mod file;
pub mod memory;
pub mod null;
mod opened;
pub mod pool;
mod region;
#[cfg(feature = "sim")]
pub mod sim;
pub mod uring;
mod worker;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use explained::{error_number, explained};
pub use opened::OpenedFile;
pub use region::{Region, RegionId, Returned};

/// A file opened by a backend; valid for that backend only, until [`Backend::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// Options for opening a file.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Whether to open for writing as well as reading; the file must exist, unless it is created.
    pub write: bool,
    /// Whether to create the file, open for writing as well; an error if it exists already.
    pub create_new: bool,
    /// `O_DIRECT`: bypasses the page cache. A clear error if the file system cannot.
    pub direct: bool,
    /// `O_DSYNC`: a write completes when its data is durable.
    pub dsync: bool,
    /// Whether to open a directory, which can only be synced: that makes the names in it durable. Excludes the other
    /// options.
    pub directory: bool,
}

/// Properties of an opened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Length in bytes; for a block device, its size.
    pub len_bytes: u64,
    /// Memory addresses of direct I/O must be multiples of this, in bytes.
    pub memory_align_bytes: u32,
    /// Offsets and lengths of direct reads and writes must be multiples of this, in bytes.
    pub offset_align_bytes: u32,
    /// The source of the alignment.
    pub align_source: AlignSource,
    /// Whether this is a block device.
    pub is_block_device: bool,
    /// Device number of the disk that holds the file (`st_dev`; for a block device `st_rdev`).
    pub device: u64,
}

/// Source of an alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignSource {
    /// The kernel reported it (`statx` with `STATX_DIOALIGN`, or the block device's own figures).
    Kernel,
    /// The kernel does not report it (tmpfs, old kernels), so a page, 4096 bytes, is assumed.
    AssumedPage,
    /// Buffered I/O, which accepts any address and length.
    NotNeeded,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads into `memory` from `offset`.
    Read,
    /// Writes `memory` at `offset`.
    Write,
    /// Makes the data (and, unless `data_only`, the metadata) of the file durable.
    Sync {
        /// Whether to leave out metadata that a read does not need, as `fdatasync` does.
        data_only: bool,
    },
    /// Frees the space of the range: `fallocate(PUNCH_HOLE)` on a file, `BLKDISCARD` on a device.
    Discard {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Reserves space for the range (`fallocate`), growing the file unless `keep_size`.
    Allocate {
        /// Length in bytes.
        len_bytes: u64,
        /// Whether the file's length stays as it is.
        keep_size: bool,
    },
    /// Sets the length of the file (`ftruncate`): cuts off the bytes beyond it, or adds zeros. The offset is ignored.
    SetLen {
        /// The new length in bytes.
        len_bytes: u64,
    },
}

/// The memory of an operation. Raw: see "Who owns the memory" in the module's documentation.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// No memory: every operation but reads and writes.
    None,
    /// One contiguous piece.
    Contiguous {
        /// First byte.
        ptr: *mut u8,
        /// Length in bytes.
        len_bytes: u32,
        /// The region that holds it, if [`Backend::register_memory`] has registered one. A region of another backend is
        /// ignored.
        region: Option<RegionId>,
    },
    /// Several pieces, as `readv`/`writev` take them.
    Vectored {
        /// First element.
        iov: *const libc::iovec,
        /// Number of elements, at most 1024.
        count: u32,
    },
}

/// One operation on its way to a disk.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The caller's name for the operation, returned in [`Completion::key`]. Never `u64::MAX`.
    pub key: u64,
    /// The file to operate on.
    pub file: FileId,
    /// The operation's kind.
    pub kind: Kind,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Its memory.
    pub memory: Memory,
}

/// Result of an operation: bytes moved (0 for sync, discard, allocate), or the system's error number (positive errno).
/// After `EINTR` (a signal came before anything was done) the shard submits the operation again.
pub type OpResult = Result<u32, i32>;

/// An operation that has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// [`Operation::key`].
    pub key: u64,
    /// Its result. A short read or write is reported as such; the shard continues it.
    pub result: OpResult,
}

/// The three answers of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// Already finished; `reap` does not return it.
    Done(OpResult),
    /// Accepted; `reap` returns its completion.
    Queued,
    /// No room now: the operation was not accepted; try again after the next `reap`.
    Busy,
}

/// Wakes a shard out of [`Backend::wait`] from any thread. Cheap when the shard is awake.
pub trait Wake: Send + Sync {
    /// Makes the present or the next `wait` return at once.
    fn wake(&self);
}

/// A shared [`Wake`].
pub type WakeHandle = Arc<dyn Wake>;

/// Carries operations to a disk and back. The module's documentation explains how to use it.
///
/// # Safety
/// Safe code (a [`Reactor`](crate::Reactor), buffers) returns memory to its owner because a backend reports that it
/// may. An implementer of this trait promises:
/// * The backend, its threads and the system touch memory only from [`Backend::submit`] until the completion with the
///   operation's key is passed to the sink of [`Backend::reap`]; if `submit` answers [`Submit::Done`] or
///   [`Submit::Busy`], only until it returns. A list of pieces ([`Memory::Vectored`]) is memory too.
/// * A read writes only inside the operation's memory, a write does not change it, and a result never reports more
///   bytes than that memory has.
/// * `reap` returns each operation answered with [`Submit::Queued`] exactly once, under its own key, and no other key.
///   [`Backend::in_flight`] counts it until then.
/// * Errors change none of this: after an error of [`Backend::flush`] or [`Backend::wait`], queued operations may still
///   be carried out, and are still counted.
/// * Dropping the backend returns only when nothing can touch the memory of operations any more.
/// * An operation that names a [`Region`] of this backend uses only memory of that region; one that names another
///   backend's is carried out as if it named none.
///
/// The module `conformance` (feature `conformance`) tests the testable part of this.
pub unsafe trait Backend {
    /// Returns the name used on the command line: `uring`, `aio`, `pool`, `memory`, `null`, `sim`.
    fn name(&self) -> &'static str;

    /// Returns monotonic time in nanoseconds. All times of a shard are on this clock.
    fn now_ns(&self) -> u64;

    /// Opens `path` for all backends that will [`attach`](Backend::attach) it; this backend, too, can use the file only
    /// after that. May block.
    ///
    /// # Errors
    /// The system's error, with the path and a remedy in the message; [`error_number`] returns its number.
    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile>;

    /// Returns a number in this backend for a file that this or another backend opened. The backend holds a clone of
    /// the contents of `file` until it is closed.
    ///
    /// # Errors
    /// If a backend of another kind opened the file, or this one has no number left.
    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)>;

    /// Opens `path` for this backend alone. May block.
    ///
    /// # Errors
    /// As [`Backend::open_shared`] and [`Backend::attach`].
    fn open(&mut self, path: &Path, options: &OpenOptions) -> io::Result<(FileId, FileInfo)> {
        let opened = self.open_shared(path, options)?;
        self.attach(&opened)
    }

    /// Forgets `file`. Operations in flight on it still complete. Unknown files are ignored.
    fn close(&mut self, file: FileId);

    /// Returns the length of `file` in bytes now.
    ///
    /// # Errors
    /// The system's error; `NotFound` for an unknown file.
    fn file_len(&mut self, file: FileId) -> io::Result<u64>;

    /// Sets the length of `file`. May block.
    ///
    /// # Errors
    /// The system's error; `NotFound` for an unknown file.
    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()>;

    /// Registers a memory region for many operations with the kernel, if that makes them cheaper. When the [`Region`]
    /// is dropped, the backend forgets it, on its own thread, at the next `reap` or `wait`.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no registered memory, otherwise the refusal. Operations then name no region.
    ///
    /// # Safety
    /// The memory must stay allocated as long as the region lives, and the region must live until every operation that
    /// names it has completed.
    unsafe fn register_memory(&mut self, ptr: *mut u8, len_bytes: usize) -> io::Result<Region> {
        let _ = (ptr, len_bytes);
        let what = format!("the backend {} has no registered memory", self.name());
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    /// Submits one operation.
    ///
    /// # Safety
    /// `operation.memory` must be valid for the transfer, and no other code may touch it until the completion has been
    /// reaped (for [`Submit::Done`] and [`Submit::Busy`]: until the call returns).
    unsafe fn submit(&mut self, operation: Operation) -> Submit;

    /// Passes the operations that `submit` has only collected to the system. Does not block. Makes at most one system
    /// call if possible.
    ///
    /// # Errors
    /// Only if the backend itself is broken; a failed operation is a completion.
    fn flush(&mut self) -> io::Result<()>;

    /// Passes every completion to `sink`, and returns their number. Does not block.
    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize;

    /// Flushes, then sleeps until an operation has completed, [`Wake::wake`] was called, or the clock reaches
    /// `deadline_ns` (`None` for no deadline). May return early. Never spins: a sleeping shard uses no CPU.
    ///
    /// # Errors
    /// As [`Backend::flush`].
    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()>;

    /// Returns a handle that wakes this backend.
    fn wake_handle(&self) -> WakeHandle;

    /// Returns the number of operations accepted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Returns the most operations that the backend takes at once; beyond that, `submit` answers busy.
    fn capacity(&self) -> usize;
}
