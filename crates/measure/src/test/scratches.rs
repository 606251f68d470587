//! The scratch files of a test: their names, lengths and contents.
//!
//! **Why.** Files that jobs make for themselves, and those that a fio job names, are made and filled the same way.
//!
//! **How.** A [`ScratchFiles`] owns the files of each directory, and removes them when it is dropped.
//!
//! **Limits.** Files for the memory backend are zeros and have no owner: they end with the process.
//!
//! **Example.** Job `a b`, the first of the file, has `plimsoll-test-0-a_b-1` on shard 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll::Topology;
use plimsoll::backend::memory::MemoryBackend;
use plimsoll::backend::{Backend, OpenOptions};

use super::{TestError, TestOptions};
use crate::load::{Control, Scratch};

/// Most characters of a job's name that its files' names keep.
const FILE_NAME_CHARS: usize = 64;

/// Scratch files by their directory.
pub(super) type ScratchFiles = BTreeMap<PathBuf, Scratch>;

/// Fills scratch files (directory, path and length) one after another, until `control` asks for the end.
pub(super) fn fill_scratches(
    scratches: &ScratchFiles,
    to_fill: &[(PathBuf, PathBuf, u64)],
    options: &TestOptions,
    control: &Control,
) -> Result<(), TestError> {
    for (directory, path, len_bytes) in to_fill {
        if let Some(scratch) = scratches.get(directory) {
            scratch.fill(&[(path.clone(), *len_bytes)], options.backend, control)?;
        }
        if control.stop.is_asked() {
            break;
        }
    }
    Ok(())
}

/// Creates a file of zeros for the memory backend, so that reads find data.
pub(super) fn make_in_memory(topology: &Topology, path: &Path, len_bytes: u64) -> std::io::Result<()> {
    let mut backend = MemoryBackend::new(topology.memory())?;
    let (file, _) = backend.open(path, &OpenOptions { write: true, create_new: true, ..OpenOptions::default() })?;
    backend.set_file_len(file, len_bytes)
}

/// Returns the name of the scratch file of job `number` on `shard`. Names of jobs are free text, so only the number
/// makes file names unique.
pub(super) fn file_name(number: usize, job: &str, shard: u16) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let name: String = job.chars().take(FILE_NAME_CHARS).map(letter).collect();
    format!("plimsoll-test-{number}-{name}-{shard}")
}

/// Returns the length of a file or block device in bytes.
pub(super) fn length_of(path: &Path) -> Result<u64, TestError> {
    use std::io::Seek;
    let opened = std::fs::File::open(path).and_then(|mut file| file.seek(std::io::SeekFrom::End(0)));
    opened.map_err(|error| TestError::Storage { path: path.display().to_string(), reason: error.to_string() })
}
