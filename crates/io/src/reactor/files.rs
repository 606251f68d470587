//! The files that a shard has open.

use std::io;
use std::sync::Arc;

use super::Reactor;
use crate::backend::{FileId, FileInfo};
use crate::file::SharedFile;
use crate::request::RefusedReason;

/// A file that this shard has open, in the table by file number.
#[derive(Clone, Copy)]
pub(super) struct OpenFile {
    pub(super) uid: u64,
    pub(super) id: FileId,
    pub(super) info: FileInfo,
}

impl Reactor {
    /// Opens `file` on this shard unless it is open there, and returns its properties. If no shard has opened the file
    /// before, may block. Reads and writes open their file themselves; an earlier open keeps the first one fast and
    /// reports errors early.
    ///
    /// # Errors
    /// The system's error, or [`RefusedReason::ForeignFile`] in an error of kind `InvalidInput`.
    pub fn open(&mut self, file: &Arc<SharedFile>) -> io::Result<FileInfo> {
        Ok(self.file(file)?.1)
    }

    pub(super) fn file(&mut self, file: &Arc<SharedFile>) -> io::Result<(FileId, FileInfo)> {
        if !self.topology.has_made(file) {
            return Err(RefusedReason::ForeignFile.into());
        }
        if let Some(known) = self.known_file(file) {
            return Ok(known);
        }

        let at = file.number() as usize;
        if self.files.len() <= at {
            self.files.resize(at + 1, None);
        }
        if let Some(stale) = self.files[at].take() {
            self.backend.close(stale.id);
        }

        let (id, info) = file.attach_on(self.shard, self.topology.disks(), self.backend.as_mut())?;
        self.files[at] = Some(OpenFile { uid: file.uid(), id, info });
        Ok((id, info))
    }

    /// Returns the file if it is open here.
    pub(super) fn known_file(&self, file: &SharedFile) -> Option<(FileId, FileInfo)> {
        let open = self.files.get(file.number() as usize)?.as_ref()?;
        (open.uid == file.uid()).then_some((open.id, open.info))
    }

    /// Returns the length of `file` in bytes now.
    ///
    /// # Errors
    /// As [`Reactor::open`].
    pub fn file_len(&mut self, file: &Arc<SharedFile>) -> io::Result<u64> {
        let (id, _) = self.file(file)?;
        self.backend.file_len(id)
    }

    /// Sets the length of `file`. May block.
    ///
    /// # Errors
    /// As [`Reactor::open`].
    pub fn set_file_len(&mut self, file: &Arc<SharedFile>, len_bytes: u64) -> io::Result<()> {
        let (id, _) = self.file(file)?;
        self.backend.set_file_len(id, len_bytes)
    }
}
