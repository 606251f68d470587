//! The directory of temporary files, which the next start removes if the process was killed.
//!
//! **Why.** A process that is killed removes nothing. What a sort had written, up to 100 GB, would stay.
//!
//! **How.** A process holds a lock on a file in its directory. Each start removes the user's directories whose lock
//! nobody holds.
//!
//! **Limits.** They stay until the next question with the same `TMPDIR`.
//!
//! **Example.** `/tmp/plimsoll-query-x7Rk2P/lock`, beside the directories of the engine.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "plimsoll-query-";
const LOCK: &str = "lock";

/// The directory, which is removed when this is dropped.
pub(crate) struct Scratch {
    directory: TempDir,
    _lock: File,
}

impl Scratch {
    /// Creates the directory, and removes those of processes that were killed.
    pub(crate) fn new() -> io::Result<Scratch> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let (path, new) = (directory.path(), directory.path().join("lock.new"));
        let lock = File::create(&new)?;
        lock.lock()?;
        // Whoever finds the lock finds it held.
        fs::rename(&new, path.join(LOCK))?;

        let uid = fs::metadata(path)?.uid();
        if let Some(parent) = path.parent() {
            remove_left(parent, uid)?;
        }
        Ok(Scratch { directory, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories of this user that no process holds.
fn remove_left(parent: &Path, uid: u32) -> io::Result<()> {
    for entry in fs::read_dir(parent)?.flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid);
        if !is_ours {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            // What cannot be removed stays for the next start.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}
