//! The scratch file of a probe.
//!
//! # Why
//! A probe must not leave data behind, even if it is killed, and must never write to an existing file.
//!
//! # How it works
//! The file is created exclusively, opened a second time for calls that bypass the backend, and then unlinked, before a
//! byte is written. The system frees the space when the last handle is closed.
//!
//! # Limits
//! A process killed between creating and unlinking leaves one empty file `plimsoll-probe-PID-NUMBER`.
//!
//! # Example
//! A probe in `/var/lib/data` fills its scratch file with 2 MiB; `ls` shows nothing; `df` shows 2 MiB until it ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::fdatasync;

use super::now_ns;
use crate::backend::{Backend, FileId, FileInfo, OpenOptions};
use crate::buffer::AlignedBuf;

/// Block of a write, unless the file system's direct I/O requires more.
const BLOCK_BYTES: u32 = 4096;
/// Bytes discarded with one call; scratch files are filled in pieces of this size, too.
pub(super) const PIECE_BYTES: u32 = 1 << 20;

/// An unlinked file for direct I/O: the system frees it with its last handle.
pub(super) struct Scratch {
    /// For calls that bypass the backend.
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) info: FileInfo,
}

impl Scratch {
    pub(super) fn create(directory: &Path, backend: &mut dyn Backend) -> io::Result<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("plimsoll-probe-{}-{serial}", std::process::id()));
        let options = OpenOptions { write: true, create_new: true, direct: true, dsync: false, directory: false };
        let (id, info) = backend.open(&path, &options)?;
        let flags = libc::O_DIRECT | libc::O_NOFOLLOW;
        let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        // Unlink before any error is returned.
        std::fs::remove_file(&path)?;
        Ok(Self { file: file?, id, info })
    }

    pub(super) fn block_bytes(&self) -> u32 {
        self.info.offset_align_bytes.max(BLOCK_BYTES)
    }

    /// Returns memory suitable for direct I/O, filled with data that no disk can compress or treat as zeros.
    pub(super) fn data(&self, len_bytes: u32) -> io::Result<AlignedBuf> {
        let align_bytes = self.info.memory_align_bytes.max(BLOCK_BYTES) as usize;
        let mut data = AlignedBuf::with_align(len_bytes as usize, align_bytes)?;
        // xorshift64 (Marsaglia 2003); any stream that does not compress is good enough.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for bytes in data.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(state.to_le_bytes().get(..bytes.len()).unwrap_or(&[]));
        }
        Ok(data)
    }

    /// Writes up to `pieces` pieces from the start on, at least one, until `end_ns` (0 for no end), and makes them
    /// durable. Returns the bytes written.
    pub(super) fn fill(&self, pieces: u32, end_ns: u64) -> io::Result<u64> {
        let piece_bytes = PIECE_BYTES.next_multiple_of(self.block_bytes());
        let data = self.data(piece_bytes)?;
        let mut filled_bytes = 0;
        for piece in 0..pieces.max(1) {
            if piece > 0 && end_ns > 0 && now_ns() >= end_ns {
                break;
            }
            self.file.write_all_at(&data, filled_bytes)?;
            filled_bytes += u64::from(piece_bytes);
        }
        fdatasync(&self.file)?;
        Ok(filled_bytes)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::backend::pool::PoolBackend;
    use crate::skip::skip;

    /// A directory of one test, removed when dropped.
    pub(crate) struct Directory(pub(crate) PathBuf);

    impl Directory {
        pub(crate) fn new(name: &str) -> io::Result<Self> {
            let path = std::env::temp_dir().join(format!("plimsoll-submission-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path)?;
            Ok(Self(path))
        }

        pub(crate) fn files(&self) -> io::Result<usize> {
            Ok(std::fs::read_dir(&self.0)?.count())
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The result, or the reason in one line why this machine has none: no such call, or no permission for it.
    pub(crate) fn or_skip<T>(result: io::Result<T>) -> Option<T> {
        use io::ErrorKind::{PermissionDenied, Unsupported};
        let refused = |error: &io::Error| {
            matches!(error.kind(), PermissionDenied | Unsupported) || error.to_string().contains("refuses O_DIRECT")
        };
        match result {
            Ok(value) => Some(value),
            Err(error) if refused(&error) => {
                skip(error);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_scratch_file_has_no_name() -> io::Result<()> {
        let directory = Directory::new("name")?;
        let mut backend = PoolBackend::new(1, 1)?;
        let Some(scratch) = or_skip(Scratch::create(&directory.0, &mut backend)) else { return Ok(()) };
        assert_eq!(directory.files()?, 0);
        assert_eq!(scratch.fill(2, 0)?, scratch.info.len_bytes + scratch.file.metadata()?.len());
        Ok(())
    }
}
