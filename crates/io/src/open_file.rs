//! An open file for code that runs anywhere: reads of any range, writes, and syncs.
//!
//! # Why
//! A database on Tokio needs a `read_exact_at(offset, length)` that returns bytes, independent of blocks, alignment and
//! shards.
//!
//! # How it works
//! A [`File`] is a file opened by [`Handle::open`], with a class. A read is widened to the blocks that direct I/O
//! requires and returns a part of that memory ([`OwnedSlice`]). A write must consist of whole blocks if the file is
//! open for direct I/O: the library does not rewrite the neighbouring bytes of a block.
//!
//! # Limits
//! At most 4 GiB - 1 bytes at once. Asking for the length runs a job on a shard.
//!
//! # Example
//! A read of 100 bytes at 8000 of a file with blocks of 4096 bytes is a read of 4096 to 8192, and a slice of it.
//! [`File`] has an example.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::backend::{FileInfo, OpenOptions, explained};
use crate::buffer::{AlignedBuf, BufferError, DEFAULT_ALIGN_BYTES, OwnedSlice};
use crate::class::Class;
use crate::file::SharedFile;
use crate::handle::Handle;
use crate::operations::too_long;
use crate::shard::Shard;

/// Length from which the memory of a request comes from the pool, in bytes: less is soon zeroed, and would cost a huge
/// page for each length in use.
const POOLED_BYTES: usize = 16 << 10;

/// An open file in a class, for any thread and any executor. [`Handle::open`] makes it.
///
/// Clones are the same file, and cheap; [`File::in_class`] returns a clone whose requests are in another class.
/// Dropping the last clone closes the file. Reads take any range and return a slice of the memory that was read into
/// ([`File::read_exact_at`]). Writes copy ([`File::write_all_at`]) or move a buffer there and back
/// ([`File::write_buffer_at`], which allocates nothing). Dropping a future cancels the queued part of its request; the
/// part in the device ends normally, and its memory stays with the shard until then.
///
/// Requests that are under way together have no order: before a read of a range, another write to it, or a sync that
/// must include it, await the write. The part of a cancelled write that was in the device may overwrite a later one.
///
/// An error of the system names the operation, its range and the path, and keeps its kind;
/// [`error_number`](crate::backend::error_number) returns its number, which `raw_os_error` does not know.
///
/// # Example
/// ```
/// use plimsoll::backend::choose::BackendKind;
/// use plimsoll::{Classes, DiskSetup, OpenOptions, Runtime, ShardOptions, Topology};
///
/// # let executor = tokio::runtime::Builder::new_current_thread().build()?;
/// # executor.block_on(async {
/// let classes = Classes::new();
/// let query = classes.add_class("query", None, 1000)?;
/// let topology = Topology::new(2, classes, vec![DiskSetup::unlimited()])?;
/// let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
/// let runtime = Runtime::start(&topology, &options)?;
///
/// let create = OpenOptions { create_new: true, ..OpenOptions::default() };
/// let table = runtime.any_shard().open("table", &create).await?;
/// table.write_all_at(0, b"ahoy, this is a table").await?;
/// table.sync_data().await?;
///
/// let queries = table.in_class(query);
/// assert_eq!(&queries.read_exact_at(6, 4).await?[..], b"this");
/// runtime.shutdown().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct File {
    handle: Handle,
    file: Arc<SharedFile>,
    class: Class,
    info: FileInfo,
}

impl Handle {
    /// Opens `path` on the disk that holds it ([`Topology::disk_of`](crate::Topology::disk_of)), in the default class.
    /// One shard opens it for all, and blocks during the open. Dropping the future does not undo the open.
    ///
    /// # Errors
    /// The system's error, with the path and a remedy; `ENODEV` if no disk of the topology holds the path; or as
    /// [`Handle::run`].
    pub async fn open(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        let (topology, path, options) = (self.topology().clone(), path.as_ref().to_owned(), options.clone());
        let open = move |shard: Shard| async move {
            let disk = topology.disk_of(&path)?;
            let file = topology.file(&path, options, disk);
            let info = shard.reactor().open(&file)?;
            Ok::<_, io::Error>((file, info))
        };
        let (file, info) = self.run(open).await??;
        Ok(File::new(self.clone(), file, info))
    }

    /// Opens a file whose disk is named by its number ([`Topology::file`](crate::Topology::file)); otherwise as
    /// [`Handle::open`].
    ///
    /// # Errors
    /// As [`Handle::open`].
    pub async fn open_file(&self, file: &Arc<SharedFile>) -> io::Result<File> {
        let opened = Arc::clone(file);
        let info = self.run(move |shard| async move { shard.reactor().open(&opened) }).await??;
        Ok(File::new(self.clone(), Arc::clone(file), info))
    }
}

impl File {
    fn new(handle: Handle, file: Arc<SharedFile>, info: FileInfo) -> File {
        File { handle, file, class: Class::DEFAULT, info }
    }

    /// Returns the same open file with its requests in `class`. If that is a group, or unknown or removed, they are
    /// refused ([`RefusedReason::UnknownClass`](crate::RefusedReason::UnknownClass)).
    #[must_use]
    pub fn in_class(&self, class: Class) -> File {
        File { class, ..self.clone() }
    }

    /// Returns the class of its requests.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns the path that opened it.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns its properties at the time of opening: length, alignment, device.
    #[must_use]
    pub fn info(&self) -> FileInfo {
        self.info
    }

    /// Returns the file in the form that [`Handle`] and [`Shard`] take.
    #[must_use]
    pub fn shared(&self) -> &Arc<SharedFile> {
        &self.file
    }

    /// Reads `len_bytes` bytes at `offset`, of any alignment. Returns fewer only at the end of the file, none beyond
    /// it.
    ///
    /// # Errors
    /// The system's error; a refusal ([`RefusedReason`](crate::RefusedReason)); `WouldBlock` if too many requests wait
    /// already; `BrokenPipe` if the shard has stopped; `ECANCELED` if the class is removed while the request is queued;
    /// `InvalidInput` if the range, in whole blocks, is longer than 4 GiB - 1 bytes or ends beyond 2^63; `OutOfMemory`.
    pub async fn read_at(&self, offset: u64, len_bytes: usize) -> io::Result<OwnedSlice> {
        let block_bytes = u64::from(self.info.offset_align_bytes.max(1));
        let (from, until) = widened(offset, len_bytes, block_bytes)?;
        if len_bytes == 0 {
            return Ok(OwnedSlice::new(AlignedBuf::empty(), 0..0));
        }
        let buffer = self.buffer((until - from) as usize)?;
        let (read, mut buffer) = self.handle.read_at(&self.file, self.class, from, buffer).await;
        let read = read.map_err(|error| self.failed(format_args!("read {len_bytes} bytes at {offset} of"), error))?;
        let skipped = (offset - from) as usize;
        // What an earlier request left there is not the caller's.
        buffer.get_mut(read..).unwrap_or_default().fill(0);
        Ok(OwnedSlice::new(buffer, skipped..read.clamp(skipped, skipped + len_bytes)))
    }

    /// Reads as [`File::read_at`]: all `len_bytes` bytes or an error.
    ///
    /// # Errors
    /// As [`File::read_at`], and `UnexpectedEof` if the file ends earlier.
    pub async fn read_exact_at(&self, offset: u64, len_bytes: usize) -> io::Result<OwnedSlice> {
        let read = self.read_at(offset, len_bytes).await?;
        if read.len() == len_bytes {
            return Ok(read);
        }
        let end = match read.len() {
            0 => format!("at or before {offset}"),
            got => format!("{got} bytes after {offset}"),
        };
        let message = format!("{} ends {end}: {len_bytes} bytes were wanted there", self.path().display());
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
    }

    /// Returns a buffer for [`File::read_buffer_at`] and [`File::write_buffer_at`] as this file needs it. Buffers of 16
    /// KiB to 2 MiB lie in huge pages, which a disk takes as one piece, and are used again after they are dropped. The
    /// contents are arbitrary: zeros, or the bytes of an earlier request.
    ///
    /// # Errors
    /// See [`BufferError`].
    pub fn buffer(&self, len_bytes: usize) -> Result<AlignedBuf, BufferError> {
        let align_bytes = DEFAULT_ALIGN_BYTES.max(self.info.memory_align_bytes as usize);
        if len_bytes < POOLED_BYTES || align_bytes > DEFAULT_ALIGN_BYTES {
            return AlignedBuf::with_align(len_bytes, align_bytes);
        }
        self.handle.topology().buffers().take(len_bytes)
    }

    /// Fills `buffer` from `offset` on, and returns it with the number of bytes read: fewer only at the end of the
    /// file. Does not allocate. For direct I/O `offset` and the buffer's length must be multiples of
    /// [`FileInfo::offset_align_bytes`], and its address of [`FileInfo::memory_align_bytes`], which [`AlignedBuf::new`]
    /// keeps.
    ///
    /// # Errors
    /// As [`File::read_at`]; `InvalidInput` if offset, length or address are not aligned. The buffer is lost (empty) only
    /// if the shard has broken down.
    pub async fn read_buffer_at(&self, offset: u64, buffer: AlignedBuf) -> (io::Result<usize>, AlignedBuf) {
        if let Err(error) = self.check_buffer("read", offset, &buffer) {
            return (Err(error), buffer);
        }
        let len_bytes = buffer.len();
        let (read, buffer) = self.handle.read_at(&self.file, self.class, offset, buffer).await;
        let failed = |error| self.failed(format_args!("read {len_bytes} bytes at {offset} of"), error);
        (read.map_err(failed), buffer)
    }

    /// Copies `bytes` and writes them at `offset`: all of them or an error. If the file is open for direct I/O,
    /// `offset` and their length must be multiples of [`FileInfo::offset_align_bytes`]; for a shorter end write a whole
    /// block, then set the length ([`File::set_len`]).
    ///
    /// # Errors
    /// As [`File::read_at`]; `InvalidInput` if the bytes are not whole blocks; `EBADF` if the file was opened for
    /// reading only ([`error_number`](crate::backend::error_number)); `WriteZero` if the disk took fewer bytes.
    pub async fn write_all_at(&self, offset: u64, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let buffer = self.copied(offset, bytes.as_ref())?;
        self.write_buffer_at(offset, buffer).await.0
    }

    /// Writes `buffer` at `offset`, all of it or an error, and returns it. Neither allocates nor copies. Alignment as
    /// for [`File::read_buffer_at`].
    ///
    /// # Errors
    /// As [`File::write_all_at`]. The buffer is lost (empty) only if the shard has broken down.
    pub async fn write_buffer_at(&self, offset: u64, buffer: AlignedBuf) -> (io::Result<()>, AlignedBuf) {
        if let Err(error) = self.check_writable().and_then(|()| self.check_buffer("write", offset, &buffer)) {
            return (Err(error), buffer);
        }
        let len_bytes = buffer.len();
        let (written, buffer) = self.handle.write_at(&self.file, self.class, offset, buffer).await;
        let failed = |error| self.failed(format_args!("write {len_bytes} bytes at {offset} of"), error);
        (written.map(|_| ()).map_err(failed), buffer)
    }

    /// Makes data and metadata durable, as `fsync`: all writes that have returned before this call, and the length. Of
    /// a directory ([`OpenOptions::directory`]): the names in it.
    ///
    /// # Errors
    /// The system's error. After an error, the durable part is unknown. If the file is buffered, all later syncs of it and
    /// of its clones fail, too, because the kernel reports lost pages only once: open it anew, and write again what was
    /// written since the last sync that succeeded.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    /// Makes data durable, as `fdatasync`: as [`File::sync_all`], without the metadata that a read does not need.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, data_only: bool) -> io::Result<()> {
        let synced = self.handle.sync(&self.file, self.class, data_only).await;
        synced.map_err(|error| self.failed(format_args!("sync"), error))
    }

    /// Returns the length in bytes now.
    ///
    /// # Errors
    /// The system's error, or as [`Handle::run`].
    pub async fn len_bytes(&self) -> io::Result<u64> {
        let file = Arc::clone(&self.file);
        let len_bytes = self.handle.run(move |shard| async move { shard.reactor().file_len(&file) }).await?;
        len_bytes.map_err(|error| self.failed(format_args!("find the length of"), error))
    }

    /// Sets the length, cutting off the bytes beyond it or adding zeros. Scheduled like every request.
    ///
    /// # Errors
    /// The system's error; `EBADF` as [`File::write_all_at`]; `WouldBlock` and `BrokenPipe` as [`File::read_at`].
    pub async fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        check_end(0, len_bytes)?;
        let set = self.handle.set_len(&self.file, self.class, len_bytes).await;
        set.map_err(|error| self.failed(format_args!("set the length {len_bytes} of"), error))
    }

    /// Frees the space of a range. In a file it reads as zeros afterwards; on a block device what it reads as depends on
    /// the device.
    ///
    /// # Errors
    /// As [`File::set_len`]; `EINVAL`, before anything is discarded, if the range is empty, or one of a block device is
    /// not within it, or not aligned as its direct I/O must be.
    pub async fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        check_end(offset, len_bytes)?;
        let discarded = self.handle.discard(&self.file, self.class, offset, len_bytes).await;
        discarded.map_err(|error| self.failed(format_args!("discard {len_bytes} bytes at {offset} of"), error))
    }

    /// Reserves space for a range, growing the file unless `keep_size`.
    ///
    /// # Errors
    /// As [`File::set_len`]; `EINVAL` if the range is empty. If the disk becomes full, what was reserved until then may
    /// stay, and the length have grown: ext4 then has no free space. [`File::set_len`] to the former length gives back
    /// what lies beyond it.
    pub async fn allocate(&self, offset: u64, len_bytes: u64, keep_size: bool) -> io::Result<()> {
        self.check_writable()?;
        check_end(offset, len_bytes)?;
        let allocated = self.handle.allocate(&self.file, self.class, offset, len_bytes, keep_size).await;
        allocated.map_err(|error| self.failed(format_args!("allocate {len_bytes} bytes at {offset} of"), error))
    }

    /// Names what failed in an error of the system or a short write. Refusals, and errors of the shard, are not about
    /// this file.
    #[cold]
    fn failed(&self, what: fmt::Arguments<'_>, error: io::Error) -> io::Error {
        let message = || format!("cannot {what} {}: {error}", self.path().display());
        match error.raw_os_error() {
            Some(errno) => explained(errno, message()),
            None if error.kind() == io::ErrorKind::WriteZero => io::Error::new(error.kind(), message()),
            None => error,
        }
    }

    fn copied(&self, offset: u64, bytes: &[u8]) -> io::Result<AlignedBuf> {
        self.check_writable()?;
        self.check_blocks("write", offset, bytes.len())?;
        let mut buffer = self.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.file.is_writable() {
            return Ok(());
        }
        let path = self.path().display();
        let message = format!("cannot change {path}: it was opened for reading only: set `write` in its OpenOptions");
        Err(explained(libc::EBADF, message))
    }

    fn check_buffer(&self, verb: &str, offset: u64, buffer: &AlignedBuf) -> io::Result<()> {
        self.check_blocks(verb, offset, buffer.len())?;
        let align_bytes = self.info.memory_align_bytes.max(1) as usize;
        if buffer.is_empty() || buffer.as_ptr().addr().is_multiple_of(align_bytes) {
            return Ok(());
        }
        let message = format!(
            "cannot {verb} {} at {offset}: the buffer's address must be a multiple of {align_bytes} bytes for direct I/O; \
             make it with AlignedBuf::new, or open the file without `direct`",
            self.path().display()
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    fn check_blocks(&self, verb: &str, offset: u64, len_bytes: usize) -> io::Result<()> {
        check_end(offset, len_bytes as u64)?;
        let block_bytes = u64::from(self.info.offset_align_bytes.max(1));
        if offset.is_multiple_of(block_bytes) && (len_bytes as u64).is_multiple_of(block_bytes) {
            return Ok(());
        }
        let message = format!(
            "cannot {verb} {len_bytes} bytes at {offset} of {}: direct I/O moves whole blocks of {block_bytes} bytes; {verb} \
             whole blocks (a shorter end is made with set_len), or open it without `direct`",
            self.path().display()
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({}, {:?})", self.path().display(), self.class)
    }
}

/// Checks that a file can have `len_bytes` bytes at `offset`.
fn check_end(offset: u64, len_bytes: u64) -> io::Result<()> {
    let is_possible = offset.checked_add(len_bytes).is_some_and(|end| end <= i64::MAX as u64);
    if is_possible { Ok(()) } else { Err(too_far(offset, len_bytes)) }
}

fn too_far(offset: u64, len_bytes: u64) -> io::Error {
    let message = format!("{len_bytes} bytes at {offset} end beyond the longest file: offsets are below 2^63");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Returns the smallest range of whole blocks around `len_bytes` bytes at `offset`: its start and its end.
fn widened(offset: u64, len_bytes: usize, block_bytes: u64) -> io::Result<(u64, u64)> {
    let from = offset / block_bytes * block_bytes;
    let until = offset.checked_add(len_bytes as u64).and_then(|end| end.checked_next_multiple_of(block_bytes));
    let until = until.filter(|until| *until <= i64::MAX as u64).ok_or_else(|| too_far(offset, len_bytes as u64))?;
    if until - from > u64::from(u32::MAX) {
        return Err(too_long());
    }
    Ok((from, until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_widened_to_blocks() {
        // Offset, length, block; begin and end of the read.
        let table = [
            (0, 0, 512, Some((0, 0))),
            (1, 1, 1, Some((1, 2))),
            (511, 2, 512, Some((0, 1024))),
            (512, 512, 512, Some((512, 1024))),
            (4095, 4098, 4096, Some((0, 12_288))),
            (4096, 0, 4096, Some((4096, 4096))),
            (100, 0, 4096, Some((0, 4096))),
            (0, u32::MAX as usize, 1, Some((0, u64::from(u32::MAX)))),
            (0, u32::MAX as usize, 2, None),
            (u64::MAX, 1, 1, None),
            (u64::MAX - 1, 1, 4096, None),
            (i64::MAX as u64, 1, 1, None),
        ];
        for (offset, len_bytes, block_bytes, expected) in table {
            assert_eq!(widened(offset, len_bytes, block_bytes).ok(), expected, "{len_bytes} at {offset}");
        }
    }
}
