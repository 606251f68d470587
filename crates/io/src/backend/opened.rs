//! A file that is opened once, for the backends of several shards.
//!
//! # Why
//! A path may lead to another file a moment later. Shards that each open the path may read different files under one
//! name.
//!
//! # How it works
//! One backend opens the path ([`Backend::open_shared`](super::Backend::open_shared)); each backend that will use the
//! file attaches it ([`Backend::attach`](super::Backend::attach)) and gets its own number. The contents of an
//! [`OpenedFile`] (a descriptor, contents in memory, a file of a simulated world) are shared by its clones: each
//! backend keeps one until the file is closed there, and its operations in flight keep their own. Dropping the last
//! clone closes the file.
//!
//! # Limits
//! Only backends of one family share files: io_uring, AIO and the pool; those in memory; those of one simulated world.
//!
//! # Example
//! ```
//! use plimsoll::backend::{Backend, OpenOptions, memory::{MemoryBackend, MemoryStore}};
//! let store = MemoryStore::default();
//! let (mut one, mut other) = (MemoryBackend::new(&store)?, MemoryBackend::new(&store)?);
//! let create = OpenOptions { create_new: true, ..OpenOptions::default() };
//! let opened = one.open_shared("/data".as_ref(), &create)?;
//! let (mine, _) = one.attach(&opened)?;
//! // The name is removed, the file still open.
//! store.remove("/data".as_ref());
//! let (theirs, _) = other.attach(&opened)?;
//! one.set_file_len(mine, 4096)?;
//! assert_eq!(other.file_len(theirs)?, 4096);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::{FileInfo, explained};

/// A file that a backend has opened; see the module's documentation. Clones are the same open file.
#[derive(Clone)]
pub struct OpenedFile {
    file: Arc<dyn Any + Send + Sync>,
    info: FileInfo,
}

impl OpenedFile {
    /// Returns an open file of a backend. `file` is the backend's own object, which closes the file when the last clone
    /// is dropped.
    #[must_use]
    pub fn new<T: Any + Send + Sync>(file: Arc<T>, info: FileInfo) -> OpenedFile {
        OpenedFile { file, info }
    }

    /// Returns the file's properties at the time of opening.
    #[must_use]
    pub fn info(&self) -> FileInfo {
        self.info
    }

    /// Returns the object of the backend that opened the file.
    ///
    /// # Errors
    /// `EXDEV` if that backend is of another family than the caller, whose object is a `T`.
    pub fn file<T: Any + Send + Sync>(&self) -> io::Result<Arc<T>> {
        Arc::clone(&self.file).downcast().map_err(|_| {
            let message = "cannot use a file that a backend of another kind has opened: give all shards of a topology the \
                           same backend";
            explained(libc::EXDEV, message.to_owned())
        })
    }
}

impl fmt::Debug for OpenedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedFile").field("info", &self.info).finish_non_exhaustive()
    }
}
