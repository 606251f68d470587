//! The null backend, which completes every operation at once.
//!
//! # Why
//! The cost of a shard and its scheduler is measured with a disk that costs nothing.
//!
//! # How it works
//! Every operation is done in full inside `submit`; reads leave the memory unchanged. Every path opens.
//!
//! # Limits
//! Written data is lost. A file is always [`NULL_FILE_LEN_BYTES`] long.
//!
//! # Example
//! ```
//! use plimsoll::backend::{Backend, OpenOptions, null::NullBackend};
//! let mut backend = NullBackend::new()?;
//! let (_file, info) = backend.open(std::path::Path::new("/any/path"), &OpenOptions::default())?;
//! assert_eq!(info.len_bytes, 1 << 50);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::doorbell::Doorbell;
use super::file::{FileTable, unknown_file, validate};
use super::{
    AlignSource, Backend, Completion, FileId, FileInfo, Kind, Memory, OpResult, OpenOptions, OpenedFile, Operation,
    Submit, WakeHandle,
};
use crate::sys::clock;

/// Length of every file of this backend: 1 PiB, larger than any working set and far from overflowing an offset.
pub const NULL_FILE_LEN_BYTES: u64 = 1 << 50;

/// Operations that the backend takes at once. None is ever in flight; the figure only has to suit a shard that sizes
/// its queues by it.
const CAPACITY: usize = 1024;

/// The null backend; see the module's documentation.
pub struct NullBackend {
    doorbell: Arc<Doorbell>,
    files: FileTable<()>,
}

impl NullBackend {
    /// Returns a null backend.
    ///
    /// # Errors
    /// If the system refuses an eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self { doorbell: Doorbell::new()?, files: FileTable::new() })
    }
}

// SAFETY: no memory is touched; the list of pieces is read only inside `submit`.
unsafe impl Backend for NullBackend {
    fn name(&self) -> &'static str {
        "null"
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn open_shared(&mut self, _path: &Path, _options: &OpenOptions) -> io::Result<OpenedFile> {
        let info = FileInfo {
            len_bytes: NULL_FILE_LEN_BYTES,
            memory_align_bytes: 1,
            offset_align_bytes: 1,
            align_source: AlignSource::NotNeeded,
            is_block_device: false,
            device: 0,
        };
        Ok(OpenedFile::new(Arc::new(()), info))
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        Ok((self.files.insert(())?, file.info()))
    }

    fn close(&mut self, file: FileId) {
        self.files.remove(file);
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        self.files.get(file).map(|()| NULL_FILE_LEN_BYTES).ok_or_else(|| unknown_file(file))
    }

    fn set_file_len(&mut self, file: FileId, _len_bytes: u64) -> io::Result<()> {
        self.files.get(file).copied().ok_or_else(|| unknown_file(file))
    }

    unsafe fn submit(&mut self, operation: Operation) -> Submit {
        if let Err(errno) = validate(&operation) {
            return Submit::Done(Err(errno));
        }
        if self.files.get(operation.file).is_none() {
            return Submit::Done(Err(libc::EBADF));
        }
        Submit::Done(match operation.kind {
            // SAFETY: our caller keeps the list of pieces alive until this call returns.
            Kind::Read | Kind::Write => unsafe { full_length(operation.memory) },
            Kind::Sync { .. } | Kind::Discard { .. } | Kind::Allocate { .. } | Kind::SetLen { .. } => Ok(0),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, _sink: &mut dyn FnMut(Completion)) -> usize {
        0
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.doorbell.wait_for(deadline_ns, || false)
    }

    fn wake_handle(&self) -> WakeHandle {
        Arc::<Doorbell>::clone(&self.doorbell)
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }
}

/// # Safety
/// The list of a vectored memory must be valid.
unsafe fn full_length(memory: Memory) -> OpResult {
    match memory {
        Memory::None => Ok(0),
        Memory::Contiguous { len_bytes, .. } => Ok(len_bytes),
        Memory::Vectored { count: 0, .. } => Ok(0),
        Memory::Vectored { iov, count } => {
            // SAFETY: the caller promises `count` elements at `iov`.
            let pieces = unsafe { std::slice::from_raw_parts(iov, count as usize) };
            let total = pieces.iter().fold(0_usize, |sum, piece| sum.saturating_add(piece.iov_len));
            u32::try_from(total).map_err(|_| libc::EINVAL)
        }
    }
}
