//! Writes an object: aligned blocks to a staged file, then its true length, a sync, and its final name.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::{self, TryStreamExt};
use object_store::{PutPayload, PutResult, Result};
use plimsoll::backend::error_number;
use plimsoll::{Class, File, Handle, OpenOptions};

use crate::failure::{blocking, failure};
use crate::payload::Payload;
use crate::staged::{Existing, Staged};

/// Longest write, in bytes. The scheduler splits it further to suit the disk.
const WRITE_BYTES: usize = 1 << 20;

/// Writes of one payload in flight, so that the next is copied while others are in the device.
const WRITES_IN_FLIGHT: usize = 4;

/// Smallest block of direct writes, in bytes: the block of most file systems. A device may allow less, but then the
/// file system reads and zeroes the rest of its block.
const BLOCK_BYTES: u64 = 4096;

/// `EOPNOTSUPP` of Linux, with which a file system refuses to reserve space.
const NOT_SUPPORTED: i32 = 95;

/// `EINVAL` of Linux, with which a file system refuses direct I/O.
const INVALID: i32 = 22;

/// Opens and creates files through a handle to the shards, with direct I/O or without.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) handle: Handle,
    /// Whether to try direct I/O.
    pub(crate) is_direct: bool,
}

impl Writer {
    /// Opens the file at `path`: without direct I/O if its file system, which need not be that of other objects,
    /// refuses it. Returns the file, and whether it is open for direct I/O.
    pub(crate) async fn open(&self, path: &Path, write: bool) -> io::Result<(File, bool)> {
        let options = |direct| OpenOptions { write, direct, ..OpenOptions::default() };
        match self.handle.open(path, &options(self.is_direct)).await {
            Err(error) if self.is_direct && error_number(&error) == INVALID => {
                Ok((self.handle.open(path, &options(false)).await?, false))
            }
            opened => Ok((opened?, self.is_direct)),
        }
    }

    /// Writes a whole object to `path`.
    pub(crate) async fn put(
        &self,
        path: &Path,
        payload: PutPayload,
        class: Class,
        existing: Existing,
    ) -> Result<PutResult> {
        let written = async {
            let payload = Payload::new(Bytes::new(), payload);
            let len_bytes = payload.len() as u64;
            let draft = self.create(path, class).await?;
            if payload.len() > WRITE_BYTES {
                draft.reserve(len_bytes).await?;
            }
            draft.write(0, payload).await?;
            draft.publish(len_bytes, existing).await
        };
        written.await.map_err(|error| failure(path, &error))
    }

    /// Creates the file that will become the object at `path`.
    pub(crate) async fn create(&self, path: &Path, class: Class) -> io::Result<Draft> {
        let directory = path.parent().unwrap_or(path).to_owned();
        let staged = blocking(move || Staged::create(&directory)).await?;
        let file = self.open(staged.path(), true).await?.0.in_class(class);
        Ok(Draft { file, staged, path: path.to_owned() })
    }
}

/// An object that is being written. If dropped, it leaves no file behind.
pub(crate) struct Draft {
    file: File,
    staged: Staged,
    path: PathBuf,
}

impl Draft {
    /// Returns a pen, which writes to the draft while the draft itself is borrowed elsewhere.
    pub(crate) fn pen(&self) -> Pen {
        Pen { file: self.file.clone() }
    }

    /// Returns the block size in bytes: offsets of writes are multiples of it.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.pen().block_bytes()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reserves space, so that a long object is contiguous and a full disk is detected before the first write.
    async fn reserve(&self, len_bytes: u64) -> io::Result<()> {
        let padded_bytes = len_bytes.next_multiple_of(self.block_bytes());
        match self.file.allocate(0, padded_bytes, false).await {
            Err(error) if error_number(&error) == NOT_SUPPORTED => Ok(()),
            reserved => reserved,
        }
    }

    pub(crate) async fn write(&self, offset: u64, payload: Payload) -> io::Result<()> {
        self.pen().write(offset, payload).await
    }

    /// Makes the draft the object, durably. All its `len_bytes` bytes must have been written.
    pub(crate) async fn publish(self, len_bytes: u64, existing: Existing) -> io::Result<PutResult> {
        if !len_bytes.is_multiple_of(self.block_bytes()) {
            self.file.set_len(len_bytes).await?;
        }
        self.file.sync_all().await?;
        let Draft { staged, path, .. } = self;
        let e_tag = blocking(move || staged.publish(&path, existing)).await?;
        Ok(PutResult { e_tag: Some(e_tag), version: None, extensions: Default::default() })
    }
}

/// Writes to a draft.
pub(crate) struct Pen {
    file: File,
}

impl Pen {
    fn block_bytes(&self) -> u64 {
        match u64::from(self.file.info().offset_align_bytes) {
            0 | 1 => 1,
            align_bytes => align_bytes.max(BLOCK_BYTES),
        }
    }

    /// Writes `payload` at `offset`, a multiple of the block, and pads the last block with zeros.
    pub(crate) async fn write(&self, offset: u64, mut payload: Payload) -> io::Result<()> {
        let block_bytes = self.block_bytes() as usize;
        let mut offset = offset;
        let writes = std::iter::from_fn(|| {
            let len_bytes = payload.len().next_multiple_of(block_bytes).min(WRITE_BYTES);
            let filled = (len_bytes > 0).then(|| {
                let mut buffer = self.file.buffer(len_bytes)?;
                payload.fill(&mut buffer);
                Ok::<_, io::Error>((offset, buffer))
            });
            offset += len_bytes as u64;
            filled
        });

        let write = |(offset, buffer)| async move { self.file.write_buffer_at(offset, buffer).await.0 };

        stream::iter(writes).map_ok(write).try_buffered(WRITES_IN_FLIGHT).try_collect().await
    }
}
