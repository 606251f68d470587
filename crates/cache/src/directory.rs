//! Opens the cache in a directory, or creates it first, even if other callers do the same concurrently.
//!
//! # How it works
//! The file becomes a cache under a name of its own, and is then renamed to the cache's name, unless that exists by
//! now. Meanwhile the directory is locked, so that a file left by an earlier creation can be told from one that another
//! creation uses.
//!
//! # Limits
//! On a network file system that cannot lock directories, files left by interrupted creations stay.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};

use crate::cache::BlockCache;
use crate::config::CacheConfig;
use crate::error::CacheError;
use crate::random::random_u64;
use crate::{CreateOptions, DiskSource, HostOptions};

impl BlockCache {
    /// Opens the cache in `directory`; if there is none, creates one of `capacity_bytes`, in a file of that length.
    /// Makes the directory too if it is missing, so check first that the disk is mounted. The shortest way to a cache:
    /// on one disk, with shards and a configuration of its own, both as by default. An existing cache keeps the
    /// capacity that it was created with. Until the file is a cache, its name is `cache.new.` and a number; the next
    /// creation removes one that was left by a crash.
    ///
    /// # Errors
    /// As [`BlockCache::create`] and [`BlockCache::open`], or when the file cannot be made. Of several concurrent
    /// callers, one gets the cache, the others [`CacheError::Locked`].
    pub async fn open_or_create(directory: &Path, capacity_bytes: u64) -> Result<BlockCache, CacheError> {
        let (path, host) = (directory.join("cache"), HostOptions::default());
        if !path.exists() {
            match create_in(directory, capacity_bytes, &host).await {
                // Another caller was faster: the lock of its file decides.
                Err(_) if path.exists() => {}
                created => created?,
            }
        }
        BlockCache::open(CacheConfig::default(), &[DiskSource::at(path)], &host).await
    }
}

/// Beginning of the name of a file that is becoming a cache.
const NEW_FILE: &str = "cache.new";

/// A file that is becoming a cache, under a name of its own: an interrupted creation leaves no cache, and no other
/// creation opens the file. Removed when dropped, if it still has that name.
struct NewFile(PathBuf);

impl Drop for NewFile {
    fn drop(&mut self) {
        // If it cannot be removed, the next creation tries again.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Creates the cache in `directory`, of `capacity_bytes`.
async fn create_in(directory: &Path, capacity_bytes: u64, host: &HostOptions) -> Result<(), CacheError> {
    let at = |error| CacheError::Io { path: directory.to_owned(), what: "cannot make the cache's file in it", error };
    std::fs::create_dir_all(directory).map_err(at)?;
    let own = std::fs::File::open(directory).map_err(at)?;
    match own.try_lock() {
        Ok(()) => remove_left(directory).map_err(at)?,
        Err(TryLockError::WouldBlock) => return Err(CacheError::Locked { path: directory.to_owned() }),
        // Network file systems cannot lock directories: left files stay, because another creation may be using them.
        Err(TryLockError::Error(_)) => {}
    }

    let new = NewFile(directory.join(format!("{NEW_FILE}.{:016x}", random_u64())));
    make_file(&new.0, capacity_bytes).map_err(at)?;
    let options = CreateOptions { force: true, ..CreateOptions::default() };
    BlockCache::create(&options, &[DiskSource::at(new.0.clone())], host).await?;
    rename_new(&new.0, &directory.join("cache")).and_then(|()| own.sync_all()).map_err(at)
}

/// Removes the files that interrupted creations have left. The caller has locked `directory`.
fn remove_left(directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(NEW_FILE));
        // Without a number in earlier versions.
        let is_number = |rest: &str| rest.len() == 16 && rest.bytes().all(|digit| digit.is_ascii_hexdigit());
        if rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number)) {
            std::fs::remove_file(directory.join(name))?;
        }
    }
    Ok(())
}

/// Renames a file, unless there is one at `to`: that of another caller stays, and may be open.
fn rename_new(from: &Path, to: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let end = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot do that in one step. The caller removes the other name.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => std::fs::hard_link(from, to),
        end => end.map_err(std::io::Error::from),
    };
    end.or_else(|error| if error.kind() == std::io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}

/// Creates a file of `len_bytes`, and reserves its space if the file system can do that.
fn make_file(path: &Path, len_bytes: u64) -> std::io::Result<()> {
    let file = std::fs::File::create_new(path)?;
    file.set_len(len_bytes)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len_bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        end => Ok(end?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Lookup;

    /// Runs `body` with a new directory.
    fn in_directory(body: impl AsyncFnOnce(&Path)) {
        let directory = tempfile::tempdir().unwrap();
        let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
        waiting.block_on(body(directory.path()));
    }

    /// The file that another caller had made and opened meanwhile was replaced: both had a cache, one without a name.
    #[test]
    fn of_two_that_make_one_cache_one_is_told_that_it_is_locked() {
        in_directory(async |directory| {
            let first = BlockCache::open_or_create(directory, 32 << 20).await.unwrap();
            first.insert(b"a", b"kept").await.unwrap();
            // Like a caller that checked before the first one was done.
            create_in(directory, 32 << 20, &HostOptions::default()).await.unwrap();
            assert_eq!(names(directory), ["cache"]);

            let second = BlockCache::open_or_create(directory, 32 << 20).await;
            assert!(matches!(second, Err(CacheError::Locked { .. })), "two have one cache");
            first.close().await.unwrap();
            let again = BlockCache::open_or_create(directory, 32 << 20).await.unwrap();
            assert!(matches!(again.get(b"a").await.unwrap(), Lookup::Hit(_)));
            again.close().await.unwrap();
        });
    }

    /// Another caller had linked its file as `cache`, and not yet unlinked it as `cache.new`: it was labelled again.
    #[test]
    fn a_creation_leaves_the_file_of_another_one_alone() {
        in_directory(async |directory| {
            let first = BlockCache::open_or_create(directory, 32 << 20).await.unwrap();
            first.insert(b"a", b"kept").await.unwrap();
            first.close().await.unwrap();
            std::fs::hard_link(directory.join("cache"), directory.join("cache.new")).unwrap();

            create_in(directory, 32 << 20, &HostOptions::default()).await.unwrap();
            let again = BlockCache::open_or_create(directory, 32 << 20).await.unwrap();
            assert!(matches!(again.get(b"a").await.unwrap(), Lookup::Hit(_)), "it was labelled anew");
            again.close().await.unwrap();
            assert_eq!(names(directory), ["cache"]);
        });
    }

    #[test]
    fn what_a_creation_left_is_removed_by_the_next_and_only_then() {
        in_directory(async |directory| {
            let left = ["cache.new", "cache.new.0123456789abcdef"];
            left.iter().for_each(|name| std::fs::write(directory.join(name), [7; 5000]).unwrap());
            std::fs::write(directory.join("cache.newest"), "of a user").unwrap();
            let host = HostOptions::default();

            let other = std::fs::File::open(directory).unwrap();
            other.lock().unwrap();
            let error = create_in(directory, 32 << 20, &host).await.unwrap_err();
            assert!(matches!(&error, CacheError::Locked { path } if path == directory), "{error}");
            assert_eq!(names(directory), [left[0], left[1], "cache.newest"], "another caller is creating");

            drop(other);
            let error = create_in(directory, 1 << 20, &host).await.unwrap_err();
            assert!(matches!(error, CacheError::TooSmall { .. }), "{error}");
            assert_eq!(names(directory), ["cache.newest"], "nothing is left of a creation that failed");
            create_in(directory, 32 << 20, &host).await.unwrap();
            assert_eq!(names(directory), ["cache", "cache.newest"]);
        });
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}
