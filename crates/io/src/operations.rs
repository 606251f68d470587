//! Operations on files for [`Shard`] and [`Handle`]. Both have the same methods, without a trait that programs would
//! have to import.

use std::io;
use std::sync::Arc;

use plimsoll_core::Direction;

use crate::buffer::AlignedBuf;
use crate::class::Class;
use crate::file::SharedFile;
use crate::handle::Handle;
use crate::request::{Data, RequestKind};
use crate::shard::Shard;

/// Implements the operations for a type with a method `request`. `$errors` documents their errors.
macro_rules! operations {
    ($of:ident, $errors:literal) => {
        impl $of {
            /// Reads `buffer.len()` bytes at `offset`, fewer only at the end of the file. Returns the bytes read or the
            /// error, and the buffer. An error of the kernel has its number ([`std::io::Error::raw_os_error`]); a
            /// refusal holds a [`RefusedReason`](crate::RefusedReason).
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn read_at(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                buffer: AlignedBuf,
            ) -> (io::Result<usize>, AlignedBuf) {
                let (len, data) = (buffer.len(), Data::One(buffer));
                let (result, data) = self.transfer(file, class, Direction::Read, offset, len, data).await;
                (result, one(data))
            }

            /// Writes all of `buffer` at `offset`, or returns an error, and returns the buffer.
            ///
            /// # Errors
            #[doc = $errors]
            /// `WriteZero` if the disk took fewer bytes.
            pub async fn write_at(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                buffer: AlignedBuf,
            ) -> (io::Result<usize>, AlignedBuf) {
                let (len, data) = (buffer.len(), Data::One(buffer));
                let (result, data) = self.transfer(file, class, Direction::Write, offset, len, data).await;
                (result, one(data))
            }

            /// Reads at `offset` into `buffers` (at most 1024), one after the other. Returns the bytes read or the error,
            /// and the buffers.
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn read_vectored(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                buffers: Vec<AlignedBuf>,
            ) -> (io::Result<usize>, Vec<AlignedBuf>) {
                let (len, data) = (total_len(&buffers), Data::Many(buffers));
                let (result, data) = self.transfer(file, class, Direction::Read, offset, len, data).await;
                (result, many(data))
            }

            /// Writes all of `buffers` (at most 1024), one after the other, at `offset`, or returns an error, and returns
            /// the buffers.
            ///
            /// # Errors
            #[doc = $errors]
            /// `WriteZero` if the disk took fewer bytes.
            pub async fn write_vectored(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                buffers: Vec<AlignedBuf>,
            ) -> (io::Result<usize>, Vec<AlignedBuf>) {
                let (len, data) = (total_len(&buffers), Data::Many(buffers));
                let (result, data) = self.transfer(file, class, Direction::Write, offset, len, data).await;
                (result, many(data))
            }

            /// Moves `len` bytes. A write that moves fewer is an error.
            async fn transfer(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                direction: Direction,
                offset: u64,
                len: usize,
                data: Data,
            ) -> (io::Result<usize>, Data) {
                let Ok(len_bytes) = u32::try_from(len) else { return (Err(too_long()), data) };

                let kind = match direction {
                    Direction::Read => RequestKind::Read { len_bytes },
                    Direction::Write => RequestKind::Write { len_bytes },
                };

                let (result, data) = self.request(file, class, kind, offset, data).await;
                let moved = result.and_then(|moved| match direction {
                    Direction::Read => Ok(moved as usize),
                    Direction::Write => all_written(moved, len_bytes),
                });
                (moved, data)
            }

            /// Makes completed writes durable: the data, and unless `data_only` the file's metadata.
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn sync(&self, file: &Arc<SharedFile>, class: Class, data_only: bool) -> io::Result<()> {
                self.request(file, class, RequestKind::Sync { data_only }, 0, Data::None).await.0.map(|_| ())
            }

            /// Frees the space of a range, which reads as zeros afterwards.
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn discard(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                len_bytes: u64,
            ) -> io::Result<()> {
                self.request(file, class, RequestKind::Discard { len_bytes }, offset, Data::None).await.0.map(|_| ())
            }

            /// Reserves space for a range; extends the file unless `keep_size`.
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn allocate(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                len_bytes: u64,
                keep_size: bool,
            ) -> io::Result<()> {
                let kind = RequestKind::Allocate { len_bytes, keep_size };
                self.request(file, class, kind, offset, Data::None).await.0.map(|_| ())
            }

            /// Sets the length of the file: cuts off data beyond it, or adds zeros.
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn set_len(&self, file: &Arc<SharedFile>, class: Class, len_bytes: u64) -> io::Result<()> {
                self.request(file, class, RequestKind::SetLen { len_bytes }, 0, Data::None).await.0.map(|_| ())
            }
        }
    };
}
operations!(Shard, "The system's error, or a refusal.");
operations!(
    Handle,
    "The system's error, or a refusal; `WouldBlock` and `BrokenPipe` as [`Handle::run`]. A buffer is lost only if the \
     shard has broken down."
);

pub(crate) fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a request moves at most 4 GiB - 1 bytes: divide it")
}

fn total_len(buffers: &[AlignedBuf]) -> usize {
    buffers.iter().map(|b| b.len()).sum()
}

fn all_written(written: u32, wanted: u32) -> io::Result<usize> {
    if written == wanted {
        return Ok(written as usize);
    }
    Err(io::Error::new(io::ErrorKind::WriteZero, format!("wrote {written} of {wanted} bytes: is the disk full?")))
}

fn one(data: Data) -> AlignedBuf {
    match data {
        Data::One(buffer) => buffer,
        Data::None | Data::Many(_) => AlignedBuf::empty(),
    }
}

fn many(data: Data) -> Vec<AlignedBuf> {
    match data {
        Data::Many(buffers) => buffers,
        Data::One(buffer) => vec![buffer],
        Data::None => Vec::new(),
    }
}
