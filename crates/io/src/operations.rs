//! What a [`Shard`] and a [`Handle`] do with a file. Both have the same methods, not a trait that each program would have to
//! import.

use std::io;
use std::sync::Arc;

use crate::buffer::AlignedBuf;
use crate::class::Class;
use crate::file::SharedFile;
use crate::handle::Handle;
use crate::request::{Data, RequestKind};
use crate::shard::Shard;

/// Implements the operations for a type that has a `request`. `$errors` is the text of their errors.
macro_rules! operations {
    ($of:ident, $errors:literal) => {
        impl $of {
            /// Reads `buffer.len()` bytes at `offset`, fewer only at the end of the file. Returns the bytes read or the error,
            /// and the buffer. An error of the kernel has its number ([`std::io::Error::raw_os_error`]); a refusal holds a
            /// [`RefusedReason`](crate::RefusedReason).
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
                let Ok(len_bytes) = transfer_len(buffer.len()) else { return (Err(too_long()), buffer) };
                let kind = RequestKind::Read { len_bytes };
                let (result, data) = self.request(file, class, kind, offset, Data::One(buffer)).await;
                (result.map(|n| n as usize), one(data))
            }

            /// Writes all of `buffer` at `offset`, or returns an error.
            pub async fn write_at(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                buffer: AlignedBuf,
            ) -> (io::Result<usize>, AlignedBuf) {
                let Ok(len_bytes) = transfer_len(buffer.len()) else { return (Err(too_long()), buffer) };
                let kind = RequestKind::Write { len_bytes };
                let (result, data) = self.request(file, class, kind, offset, Data::One(buffer)).await;
                (result.and_then(|n| all_written(n, len_bytes)), one(data))
            }

            /// Reads at `offset` into `buffers` (at most 1024), one after the other.
            pub async fn read_vectored(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                buffers: Vec<AlignedBuf>,
            ) -> (io::Result<usize>, Vec<AlignedBuf>) {
                let Ok(len_bytes) = transfer_len(total_len(&buffers)) else { return (Err(too_long()), buffers) };
                let kind = RequestKind::Read { len_bytes };
                let (result, data) = self.request(file, class, kind, offset, Data::Many(buffers)).await;
                (result.map(|n| n as usize), many(data))
            }

            /// Writes all of `buffers` (at most 1024), one after the other, at `offset`, or returns an error.
            pub async fn write_vectored(
                &self,
                file: &Arc<SharedFile>,
                class: Class,
                offset: u64,
                buffers: Vec<AlignedBuf>,
            ) -> (io::Result<usize>, Vec<AlignedBuf>) {
                let Ok(len_bytes) = transfer_len(total_len(&buffers)) else { return (Err(too_long()), buffers) };
                let kind = RequestKind::Write { len_bytes };
                let (result, data) = self.request(file, class, kind, offset, Data::Many(buffers)).await;
                (result.and_then(|n| all_written(n, len_bytes)), many(data))
            }

            /// Makes completed writes durable: the data, and unless `data_only` the file's metadata.
            ///
            /// # Errors
            #[doc = $errors]
            pub async fn sync(&self, file: &Arc<SharedFile>, class: Class, data_only: bool) -> io::Result<()> {
                self.request(file, class, RequestKind::Sync { data_only }, 0, Data::None).await.0.map(|_| ())
            }

            /// Gives a range back to the disk; it reads as zeros afterwards.
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

fn transfer_len(len: usize) -> Result<u32, std::num::TryFromIntError> {
    u32::try_from(len)
}

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
