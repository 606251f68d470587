//! Opens a cache by its CACHE.yaml, follows the file and publishes snapshots.
//!
//! # Why
//! `add`, `bench` and other programs open a cache in the same way, so `iostat` sees them all.
//!
//! # How it works
//! [`Session::open`] reads the file, opens the cache, and starts a thread that follows the file and publishes counters
//! every second until [`Session::close`].
//!
//! # Limits
//! Dropping a session without closing it loses the changes after the last checkpoint.
//!
//! # Example
//! ```no_run
//! use plimsoll_cache_tools::session::Session;
//! use plimsoll_cache_tools::wait::block_on;
//! let session = Session::open("/etc/cache.yaml".as_ref(), |_| ())?;
//! block_on(session.cache().insert(b"key", b"value"))?;
//! session.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_cache::stats::{CacheStats, DiskHealth, DiskStats, DropReason};
use plimsoll_cache::{BlockCache, CacheError, DiskSource, HostOptions, Inserted, Lookup};

use super::bench::{Looked, Target};
use super::config::{self, CacheFile, Device, DeviceState, FileError};
use super::follow::{self, Follower};
use super::live::{EVERY, NoSnapshot, Publisher};
use super::wait::block_on;

/// Why a cache could not be opened or closed by its file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The file, or one that it names, is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}")]
    Cache(CacheError),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The process that has the cache open has not followed its file in time.
    #[error("process {pid} has the cache open and has not followed the file within {} s", .waited.as_secs())]
    NotFollowed { pid: u32, waited: Duration },
    /// The process has the cache open, but no longer publishes.
    #[error(transparent)]
    NoSnapshot(#[from] NoSnapshot),
}

impl From<CacheError> for SessionError {
    fn from(error: CacheError) -> SessionError {
        SessionError::Cache(error)
    }
}

/// An open cache that follows its file.
pub struct Session {
    cache: Arc<BlockCache>,
    file: CacheFile,
    stop: Option<Sender<()>>,
    attendant: Option<JoinHandle<()>>,
}

impl Session {
    /// Opens the cache of the file at `path`. `change` may set values other than the file's.
    ///
    /// # Errors
    /// A file that cannot be read; a disk that is not this cache's or is in use by another process.
    pub fn open(path: &Path, change: impl FnOnce(&mut CacheFile)) -> Result<Session, SessionError> {
        let mut file = config::parse_from_file(path).map_err(FileError::from)?;
        file.load_key(path)?;
        change(&mut file);
        let cache = Arc::new(open_cache(path, &mut file)?);

        let (stop, stopped) = mpsc::channel();
        let publisher = Publisher::new(path, cache.stats().at_ns);
        let mut follower = Follower::new(path, &file);
        let attended = Arc::clone(&cache);

        let attend = move || {
            // If a snapshot cannot be written, the last one is stale soon, and readers refuse it.
            let _ = publisher.publish(&attended.stats(), &follower.problems(), follower.followed_unix_ns());
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                follower.follow(&attended);
                let _ = publisher.publish(&attended.stats(), &follower.problems(), follower.followed_unix_ns());
            }
        };
        let attendant = thread::Builder::new().name("cache-attendant".to_owned()).spawn(attend);
        let attendant = attendant.map_err(SessionError::Thread)?;
        Ok(Session { cache, file, stop: Some(stop), attendant: Some(attendant) })
    }

    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Returns the file as it was when the cache was opened.
    pub fn file(&self) -> &CacheFile {
        &self.file
    }

    /// Makes a last checkpoint and closes the cache.
    pub fn close(mut self) -> Result<(), SessionError> {
        self.end();
        // The attendant has ended: this is usually the last reference.
        let cache = Arc::clone(&self.cache);
        drop(self);
        match Arc::try_unwrap(cache) {
            Ok(cache) => Ok(block_on(cache.close())?),
            Err(cache) => Ok(block_on(cache.checkpoint()).map(drop)?),
        }
    }

    fn end(&mut self) {
        self.stop = None;
        if let Some(attendant) = self.attendant.take() {
            // A thread that panicked has already reported it.
            let _ = attendant.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Opens the cache, and removes from the file the disks whose removal ended just before a crash. A disk that holds
/// foreign data may be one that the cache still misses: it stays in the file, whose follower lets the cache forget it.
fn open_cache(path: &Path, file: &mut CacheFile) -> Result<BlockCache, SessionError> {
    let host = HostOptions { shards: file.shards, ..HostOptions::default() };
    let (cache, gone) =
        open_members(path, file, |file, sources| block_on(BlockCache::open(file.config.clone(), &sources, &host)))?;
    let is_missing = |disk: &DiskStats| disk.health == DiskHealth::Missing;
    let is_any_missing = cache.stats().disks.iter().any(is_missing);
    // The follower adds those that are not marked for removal: they are new.
    let marked = gone.into_iter().filter(|gone| gone.device.state == DeviceState::Removing);
    let (missed, removed): (Vec<Gone>, Vec<Gone>) = marked.partition(|gone| is_any_missing && !gone.is_no_member);
    file.devices.extend(missed.into_iter().map(|gone| gone.device));
    if !removed.is_empty() {
        follow::forget(path, &removed.into_iter().map(|gone| gone.device.path).collect::<Vec<_>>())?;
    }
    Ok(cache)
}

/// A device whose disk cannot be opened as one of the cache: it is marked for removal, or new.
pub(super) struct Gone {
    device: Device,
    /// Whether it is known not to be a member: the other disks do not list it.
    is_no_member: bool,
}

/// Opens the disks that `file`, which lies at `path`, names. A disk marked for removal may no longer be a member (the
/// others do not list it), or may have lost its label (wiped, or overwritten by something else, as another cache). A disk that is not
/// marked, and blank or half added, is still to be added: whoever wrote it into the file did not live to see that. Such
/// disks are removed from `file`, and returned.
pub(super) fn open_members<T>(
    path: &Path,
    file: &mut CacheFile,
    open: impl Fn(&CacheFile, Vec<DiskSource>) -> Result<T, CacheError>,
) -> Result<(T, Vec<Gone>), SessionError> {
    let mut gone = Vec::new();
    loop {
        let error = match open(file, file.sources(path)?) {
            Ok(opened) => return Ok((opened, gone)),
            Err(error) => error,
        };

        let removed = match &error {
            CacheError::NotAMember { path: disk }
            | CacheError::HalfAdded { path: disk }
            | CacheError::NotACache { path: disk, .. } => file.position(path, disk),
            CacheError::SeveralCaches { caches } => of_another_cache(path, file, caches),
            _ => None,
        };
        let is_half_added = matches!(error, CacheError::HalfAdded { .. });
        let is_new = |device: &Device| is_half_added || file.devices.len() > 1 && is_blank(&device.full_path(path));
        let may_go = |device: &Device| device.state == DeviceState::Removing || is_new(device);
        let Some(at) = removed.filter(|at| file.devices.get(*at).is_some_and(may_go)) else {
            return Err(error.into());
        };
        let is_no_member = is_half_added || matches!(error, CacheError::NotAMember { .. });
        gone.push(Gone { device: file.devices.remove(at), is_no_member });
    }
}

/// Returns the position of a device whose disk came back as one of another cache: of all `caches`, only one has disks that
/// are not marked for removal.
fn of_another_cache(path: &Path, file: &CacheFile, caches: &[(u128, Vec<PathBuf>)]) -> Option<usize> {
    let is_marked = |disk: &PathBuf| {
        let at = file.position(path, disk)?;
        file.devices.get(at).map(|device| device.state == DeviceState::Removing)
    };
    let (others, ours): (Vec<_>, Vec<_>) =
        caches.iter().partition(|(_, disks)| disks.iter().all(|disk| is_marked(disk) == Some(true)));
    if ours.len() != 1 {
        return None;
    }
    others.first().and_then(|(_, disks)| file.position(path, disks.first()?))
}

/// Returns whether a disk has zeros where a cache's superblocks are.
fn is_blank(disk: &Path) -> bool {
    let mut begin = vec![1; 64 << 10];
    let read = File::open(disk).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin.iter().all(|byte| *byte == 0)
}

impl Target for Session {
    async fn look_up(&self, key: &[u8]) -> Result<Looked<impl AsRef<[u8]>>, CacheError> {
        Ok(match self.cache.get(key).await? {
            Lookup::Hit(block) => Looked::Hit(block),
            Lookup::Miss(reason) => Looked::Miss(reason),
        })
    }

    async fn insert(&self, key: &[u8], value: &[u8]) -> Result<Option<DropReason>, CacheError> {
        Ok(match self.cache.insert(key, value).await? {
            Inserted::Stored => None,
            Inserted::Dropped(reason) => Some(reason),
        })
    }

    fn stats(&self) -> CacheStats {
        self.cache.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cache did not open until somebody had edited the file.
    #[test]
    fn a_device_whose_addition_was_cut_short_is_still_to_be_added() {
        let path = Path::new("/etc/c.yaml");
        let device = |name: &str| Device { path: name.into(), ..Device::default() };
        let mut file = CacheFile { devices: ["a", "b"].map(device).to_vec(), ..CacheFile::default() };
        let open = |_: &CacheFile, sources: Vec<DiskSource>| match sources.as_slice() {
            [_, half] => Err(CacheError::HalfAdded { path: half.path.clone() }),
            rest => Ok(rest.len()),
        };
        let (opened, gone) = open_members(path, &mut file, open).unwrap();
        let gone: Vec<_> = gone.iter().map(|gone| (gone.device.path.as_path(), gone.is_no_member)).collect();
        assert_eq!((opened, gone), (1, vec![(Path::new("b"), true)]));
        assert_eq!(file.devices, [device("a")]);
    }
}
