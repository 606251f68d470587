//! Locks the files that jobs write to, so that no other run takes these writes for errors of the disk.
//!
//! **Why.** A job that verifies knows only its own writes. A block that another run wrote looks misdirected to it.
//!
//! **How.** [`FileLocks::take`] takes a `flock` on each existing file that the jobs write to: exclusive if a job
//! verifies the file, else shared. The kernel releases it when the process ends, however that happens.
//!
//! **Limits.** Only runs of this program are kept out. Devices are claimed instead (`device`). On a file system without
//! locks there is no protection.
//!
//! **Example.** Two runs may overwrite one file at the same time; if one of them verifies, the second to begin is
//! refused.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::TestError;

/// Locks of a run, held until they are dropped.
#[derive(Debug)]
pub(super) struct FileLocks {
    _files: Vec<File>,
}

impl FileLocks {
    /// Locks files that are written to, each given with whether it is verified. Skips missing files and devices.
    pub(super) fn take(written: impl Iterator<Item = (PathBuf, bool)>) -> Result<FileLocks, TestError> {
        // By device and inode: two names of one file must not lock each other out.
        let mut uses: BTreeMap<(u64, u64), (PathBuf, bool)> = BTreeMap::new();
        for (path, is_verified) in written {
            let Ok(meta) = std::fs::metadata(&path) else { continue };
            if meta.is_file() {
                uses.entry((meta.dev(), meta.ino())).or_insert((path, false)).1 |= is_verified;
            }
        }

        let mut files = Vec::new();
        for (path, is_verified) in uses.values() {
            files.extend(lock(path, *is_verified)?);
        }
        Ok(FileLocks { _files: files })
    }
}

/// Locks one file; `None` if it cannot be opened (the job's own opening reports that), or has no locks.
fn lock(path: &Path, is_verified: bool) -> Result<Option<File>, TestError> {
    let Ok(file) = File::options().read(true).write(true).open(path) else { return Ok(None) };
    let locked = if is_verified { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(TestError::UsedByRun { path: path.display().to_string(), is_verified }),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Describes the other run's use of the file; `is_verified` is whether this run would verify it.
pub(super) fn use_text(is_verified: bool) -> &'static str {
    if is_verified { "writes to it or verifies it, and this one would verify it" } else { "verifies what is in it" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_verifies_is_alone_on_its_file() {
        // Whether each run verifies, and whether the second may begin.
        for (first, second, expected) in
            [(false, false, true), (false, true, false), (true, false, false), (true, true, false)]
        {
            let file = tempfile::NamedTempFile::new().unwrap();
            let take = |is_verified| FileLocks::take([(file.path().to_owned(), is_verified)].into_iter());
            let held = take(first).unwrap();
            let refused = take(second).err().map(|error| error.to_string());
            assert_eq!(refused.is_none(), expected, "{first} {second}: {refused:?}");
            let names_it = |text: &String| text.contains(&file.path().display().to_string()) && text.contains("wait");
            assert!(refused.iter().all(names_it), "{refused:?}");
            drop(held);
            assert!(take(second).is_ok(), "the lock ends with the run");
        }
    }

    #[test]
    fn one_run_may_name_a_file_twice() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let uses = [(file.path().to_owned(), true), (file.path().to_owned(), false)];
        assert!(FileLocks::take(uses.into_iter()).is_ok());
    }
}
