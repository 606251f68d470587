//! Backends: the one narrow seam between a shard and whatever carries out its I/O.
//!
//! # Why
//! The scheduler decides *when* a request goes to the disk; a backend only carries it there and says when it came
//! back. io_uring, Linux AIO, a thread pool, memory, nothing at all (null) and a simulated disk do the same job behind
//! [`Backend`], and one conformance kit (module `conformance`, feature `conformance`) holds them all to the same
//! contract. Time is read through the backend too, so that a whole shard can run on virtual time.
//!
//! # How it works
//! A shard opens files through its backend, then loops: [`Backend::submit`] for everything the scheduler dispatched,
//! [`Backend::flush`] once per turn, [`Backend::reap`] for what came back, and [`Backend::wait`] when there is nothing
//! to do. A submission has three answers ([`Submit`]): done, queued, busy. Nothing blocks but `wait` (and `open`).
//!
//! # Who owns the memory
//! An [`Operation`] carries raw pointers. The caller keeps the memory alive and untouched until the completion with the
//! same key has come out of `reap` (or `submit` answered done or busy), whatever happens to the future that wanted it.
//! A backend that is dropped waits for its operations in flight first.
//!
//! # Limits
//! A backend belongs to one thread (it is `!Send` where the kernel wants that); only its [`WakeHandle`] crosses
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

/// A file that a backend has opened; valid for that backend only, until [`Backend::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// How to open a file.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Open for writing as well as reading.
    pub write: bool,
    /// Create the file; it is an error when it exists already (never opens what was there).
    pub create_new: bool,
    /// `O_DIRECT`: past the page cache. Refused with a clear error where the file system cannot.
    pub direct: bool,
    /// `O_DSYNC`: a write completes when its data is durable.
    pub dsync: bool,
    /// Open a directory, which can be synced and nothing else: that makes the names in it durable. Stands alone.
    pub directory: bool,
}

/// What is known of an opened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Length in bytes (of a block device: its size).
    pub len_bytes: u64,
    /// Memory addresses of direct I/O must be multiples of this.
    pub memory_align_bytes: u32,
    /// Offsets and lengths of direct reads and writes must be multiples of this.
    pub offset_align_bytes: u32,
    /// How the alignment was found: asked of the kernel, or assumed and why.
    pub align_source: AlignSource,
    /// Whether this is a block device.
    pub is_block_device: bool,
    /// Device number of the disk that holds it (`st_dev`, or `st_rdev` of a block device).
    pub device: u64,
}

/// Where an alignment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignSource {
    /// The kernel said so (`statx` with `STATX_DIOALIGN`, or the block device's own figures).
    Kernel,
    /// The kernel does not say (tmpfs, old kernels): a page, 4096 bytes, is assumed.
    AssumedPage,
    /// Buffered I/O: any address and length will do.
    NotNeeded,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read into `memory` from `offset`.
    Read,
    /// Write `memory` at `offset`.
    Write,
    /// Make the data (and, unless `data_only`, the metadata) of the file durable.
    Sync {
        /// As `fdatasync`: leave out metadata that is not needed to read the data back.
        data_only: bool,
    },
    /// Give the range back: `fallocate(PUNCH_HOLE)` on a file, `BLKDISCARD` semantics on a device.
    Discard {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Reserve space for the range (`fallocate`), growing the file unless `keep_size`.
    Allocate {
        /// Length in bytes.
        len_bytes: u64,
        /// Leave the file's length as it is.
        keep_size: bool,
    },
    /// Set the length of the file (`ftruncate`): what is beyond is gone, what is added reads as zeros. The offset means nothing.
    SetLen {
        /// The new length in bytes.
        len_bytes: u64,
    },
}

/// The memory of an operation. Raw: see "Who owns the memory" in the module's documentation.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// No memory: everything but reads and writes.
    None,
    /// One contiguous piece.
    Contiguous {
        /// First byte.
        ptr: *mut u8,
        /// Length in bytes.
        len_bytes: u32,
        /// The region holding it, if [`Backend::register_memory`] has registered one. One of another backend does no harm.
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
    /// The caller's name for it, given back in [`Completion::key`]. Never `u64::MAX`.
    pub key: u64,
    /// Which file.
    pub file: FileId,
    /// What to do.
    pub kind: Kind,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// With which memory.
    pub memory: Memory,
}

/// How an operation ended: bytes moved (0 for sync, discard, allocate), or the system's error number (positive errno).
pub type OpResult = Result<u32, i32>;

/// An operation that has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// [`Operation::key`].
    pub key: u64,
    /// How it ended. A short read or write is reported as it is; the shard continues it.
    pub result: OpResult,
}

/// The three answers of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// Finished already; it does not come out of `reap`.
    Done(OpResult),
    /// Accepted; its completion comes out of `reap`.
    Queued,
    /// No room now: nothing was taken, try again after the next `reap`.
    Busy,
}

/// Wakes a shard out of [`Backend::wait`] from any thread. Cheap when the shard is awake.
pub trait Wake: Send + Sync {
    /// Make the present or the next `wait` return at once.
    fn wake(&self);
}

/// A shared [`Wake`].
pub type WakeHandle = Arc<dyn Wake>;

/// Carries operations to a disk and back; see the module's documentation for how it is used.
///
/// # Safety
/// Code that looks safe from outside (a [`Reactor`](crate::Reactor), buffers) gives memory back to its owner because a
/// backend says that it may. Whoever implements this trait promises:
/// * Memory is touched, by itself, its threads or the system, only from [`Backend::submit`] until the completion with the
///   operation's key is given to the sink of [`Backend::reap`]; where `submit` answers [`Submit::Done`] or
///   [`Submit::Busy`] only until it returns. A list of pieces ([`Memory::Vectored`]) is memory too.
/// * A read writes inside the operation's memory only, a write does not change it, and a result never says more bytes
///   than that memory has.
/// * Each operation answered with [`Submit::Queued`] comes out of `reap` exactly once, under its own key; no other key comes.
///   It is counted by [`Backend::in_flight`] until then.
/// * Errors change nothing of this: after an error of [`Backend::flush`] or [`Backend::wait`] what had been queued may
///   still be carried out, and is still counted.
/// * Dropping it waits until nothing can touch the memory of operations any more, and does not return before.
/// * An operation that names a [`Region`] of this backend uses memory of that region only; one that names another backend's is
///   carried out as if it named none.
///
/// The module `conformance` (feature `conformance`) tests what of this can be tested.
pub unsafe trait Backend {
    /// Name as on the command line: `uring`, `aio`, `pool`, `memory`, `null`, `sim`.
    fn name(&self) -> &'static str;

    /// Monotonic time in nanoseconds. All times of a shard come from here.
    fn now_ns(&self) -> u64;

    /// Opens `path` for all backends that are to [`attach`](Backend::attach) it; here, too, it is used only after that.
    /// May block.
    ///
    /// # Errors
    /// What the system said, with the path and what to do about it in the message; [`error_number`] has its number.
    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile>;

    /// Gives a file that was opened once, here or by another backend, a number here. The backend holds a clone of what
    /// `file` holds until it is closed.
    ///
    /// # Errors
    /// When a backend of another kind has opened it, or this one has no number left.
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

    /// Length of `file` in bytes now.
    ///
    /// # Errors
    /// What the system said; unknown files are `NotFound`.
    fn file_len(&mut self, file: FileId) -> io::Result<u64>;

    /// Sets the length of `file`. May block.
    ///
    /// # Errors
    /// What the system said; unknown files are `NotFound`.
    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()>;

    /// Tells the kernel of a memory region that will be used for many operations, where that makes them cheaper. When the
    /// [`Region`] is dropped the backend forgets it, on its own thread, when it next looks for completions.
    ///
    /// # Errors
    /// `Unsupported` where the backend has no such thing, else why it was refused. Operations just name no region then.
    ///
    /// # Safety
    /// The memory must stay allocated as long as the region lives, and the region must live until every operation that names
    /// it has come back.
    unsafe fn register_memory(&mut self, ptr: *mut u8, len_bytes: usize) -> io::Result<Region> {
        let _ = (ptr, len_bytes);
        let what = format!("the backend {} has no registered memory", self.name());
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    /// Takes one operation.
    ///
    /// # Safety
    /// `operation.memory` must be valid for the transfer, and nobody may touch it until the completion has been reaped
    /// (for [`Submit::Done`] and [`Submit::Busy`]: until the call returns).
    unsafe fn submit(&mut self, operation: Operation) -> Submit;

    /// Hands over to the system whatever `submit` has only collected. Does not block. At most one system call where
    /// possible.
    ///
    /// # Errors
    /// Only when the backend itself is broken; a failed operation is a completion.
    fn flush(&mut self) -> io::Result<()>;

    /// Gives every operation that has come back to `sink`, and returns how many there were. Does not block.
    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize;

    /// Flushes, then sleeps until an operation has come back, somebody called [`Wake::wake`], or the clock reaches
    /// `deadline_ns`. May return early. With `None` it sleeps as long as it
    /// takes. Never spins: a sleeping shard uses no CPU.
    ///
    /// # Errors
    /// As [`Backend::flush`].
    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()>;

    /// A handle that wakes this backend.
    fn wake_handle(&self) -> WakeHandle;

    /// Operations accepted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// How many operations it takes at once; beyond, `submit` answers busy.
    fn capacity(&self) -> usize;
}
