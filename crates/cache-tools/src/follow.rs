//! Makes a running cache follow CACHE.yaml: adds disks that appear there, expands those that grew, removes those
//! marked so.
//!
//! # Why
//! Disks are added while a cache serves. The file alone says which disks the cache should have; a process that crashes
//! half-way finds it there when it starts again.
//!
//! # How it works
//! [`Follower::follow`] reads the file (once a second, from [`super::session`]), [`plan`]s the steps from the present
//! disks to the wanted ones, and takes them. A failed step is reported in the published snapshot, and retried when the
//! file is written again. When a removal has ended, the device's entry is removed from the file.
//!
//! # Limits
//! Only devices are followed: other keys take effect at the next opening. A missing entry, which may be a slip, removes
//! no disk: only `state: removing` does, and that cannot be undone. Devices do not shrink.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::config::{Device, DeviceState};
//! use plimsoll_cache_tools::follow::{Step, plan};
//! let device = |path: &str, state| Device { path: path.into(), state, ..Device::default() };
//! let done = [device("a", DeviceState::Active), device("b", DeviceState::Active)];
//! let wanted = [("a", DeviceState::Removing), ("c", DeviceState::Active)];
//! let wanted = wanted.map(|(path, state)| device(path, state));
//! assert_eq!(plan(&done, &wanted), [Step::Remove(wanted[0].clone()), Step::Add(wanted[1].clone())]);
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use plimsoll_cache::BlockCache;
use plimsoll_cache::stats::{CacheStats, DiskHealth, DiskStats};

use super::config::{self, CacheFile, Device, DeviceState, FileError};
use super::wait::block_on;

/// A change of the cache's disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Add(Device),
    /// Use the space by which this device has grown.
    Expand(Device),
    /// Start to move its blocks away.
    Remove(Device),
}

impl Step {
    pub fn device(&self) -> &Device {
        match self {
            Step::Add(device) | Step::Expand(device) | Step::Remove(device) => device,
        }
    }
}

fn find<'a>(devices: &'a [Device], path: &Path) -> Option<&'a Device> {
    devices.iter().find(|device| device.path == path)
}

/// Returns the steps that turn `done` into `wanted`.
pub fn plan(done: &[Device], wanted: &[Device]) -> Vec<Step> {
    let mut steps = Vec::new();
    for device in done.iter().filter(|device| device.state == DeviceState::Active) {
        match find(wanted, &device.path) {
            Some(wanted) if wanted.state == DeviceState::Removing => steps.push(Step::Remove(wanted.clone())),
            Some(wanted) if wanted.size_bytes > device.size_bytes => steps.push(Step::Expand(wanted.clone())),
            _ => {}
        }
    }
    let is_new = |device: &&Device| find(done, &device.path).is_none() && device.state == DeviceState::Active;
    steps.extend(wanted.iter().filter(is_new).cloned().map(Step::Add));
    steps
}

/// Returns the differences between `done` and `wanted` that no step can resolve, a sentence each.
pub(crate) fn not_done(done: &[Device], wanted: &[Device]) -> Vec<String> {
    let say = |device: &Device| {
        let path = device.path.display();
        match (find(wanted, &device.path), device.state) {
            (None, _) => Some(format!(
                "{path}: it is gone from the file, but still a disk of the cache: put it back, with `state: removing` \
                 if its blocks are to move away"
            )),
            (Some(wanted), DeviceState::Removing) if wanted.state == DeviceState::Active => {
                Some(format!("{path}: its removal has begun and is not taken back; add it again when it has ended"))
            }
            _ => None,
        }
    };
    done.iter().filter_map(say).collect()
}

/// Returns when the file at `path` was last changed, in nanoseconds since 1970; 0 if that is unknown.
pub(crate) fn changed_unix_ns(path: &Path) -> u64 {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Follows the CACHE.yaml of one open cache.
#[derive(Debug, Default)]
pub struct Follower {
    path: PathBuf,
    done: Vec<Device>,
    /// Devices being removed: path and identity of the disk.
    removing: Vec<(PathBuf, String)>,
    failed: Vec<(Step, String)>,
    not_done: Vec<String>,
    unreadable: Option<String>,
    followed_unix_ns: u64,
}

impl Follower {
    /// Returns a follower for a cache that was opened with `file`, which lies at `path`.
    pub fn new(path: &Path, file: &CacheFile) -> Follower {
        // Plan pending removals again.
        let active = |device: &Device| Device { state: DeviceState::Active, ..device.clone() };
        Follower { path: path.to_owned(), done: file.devices.iter().map(active).collect(), ..Follower::default() }
    }

    /// Returns the problems in following the file, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let failed = self.failed.iter().map(|(step, why)| format!("{}: {why}", step.device().path.display()));
        self.unreadable.iter().cloned().chain(failed).chain(self.not_done.iter().cloned()).collect()
    }

    /// Returns `changed_unix_ns` of the file when it was last followed, or 0 before that.
    pub(crate) fn followed_unix_ns(&self) -> u64 {
        self.followed_unix_ns
    }

    /// Reads the file and takes its new steps.
    pub fn follow(&mut self, cache: &BlockCache) {
        let changed_unix_ns = changed_unix_ns(&self.path);
        if changed_unix_ns != self.followed_unix_ns {
            // The writer may have repaired the cause of the failures.
            self.failed.clear();
        }
        self.follow_file(cache);
        self.followed_unix_ns = changed_unix_ns;
    }

    fn follow_file(&mut self, cache: &BlockCache) {
        let file = match config::parse_from_file(&self.path) {
            Ok(file) => file,
            Err(error) => {
                self.unreadable = Some(format!("{}: {}", self.path.display(), error.message()));
                return;
            }
        };
        self.unreadable = None;

        let steps = plan(&self.done, &file.devices);
        self.failed.retain(|(step, _)| steps.contains(step));
        for step in steps {
            if self.failed.iter().any(|(failed, _)| *failed == step) {
                continue;
            }
            match self.take(&step, &file.devices, cache) {
                Ok(()) => self.note(step.device()),
                Err(why) => {
                    // `problems` puts the path in front.
                    let place = format!("{}: ", step.device().full_path(&self.path).display());
                    let why = why.strip_prefix(&place).unwrap_or(&why).to_owned();
                    self.failed.push((step, why));
                }
            }
        }

        self.forget_removed(&cache.stats());
        self.not_done = not_done(&self.done, &file.devices);
    }

    fn take(&mut self, step: &Step, wanted: &[Device], cache: &BlockCache) -> Result<(), String> {
        let path = step.device().full_path(&self.path);
        match step {
            Step::Add(device) => {
                let source = device.source(&self.path).map_err(|error| error.to_string())?;
                block_on(cache.add_disk(&source, false)).map(drop).map_err(|error| error.to_string())
            }
            Step::Expand(_) => block_on(cache.expand_disk(&path)).map(drop).map_err(|error| error.to_string()),
            Step::Remove(device) => {
                let guid = self.begin_removal(cache, &path, wanted)?;
                self.removing.push((device.path.clone(), guid));
                Ok(())
            }
        }
    }

    /// Starts to remove the disk at `path`, unless that has started. Returns its identity, or an empty one if no disk
    /// of the cache is there.
    ///
    /// The path of a missing disk is not known. If at least as many absent devices are marked for removal as disks are
    /// missing, these are the missing disks, and the cache forgets them.
    fn begin_removal(&self, cache: &BlockCache, path: &Path, wanted: &[Device]) -> Result<String, String> {
        let stats = cache.stats();
        match disk_at(&stats, path) {
            Some(disk) if disk.health == DiskHealth::Removing => return Ok(disk.guid.clone()),
            Some(disk) => {
                let begun = cache.remove_disk(Path::new(&disk.path));
                return begun.map(|_| disk.guid.clone()).map_err(|error| error.to_string());
            }
            None => {}
        }

        let is_marked = |device: &&Device| {
            device.state == DeviceState::Removing
                && disk_at(&stats, &device.full_path(&self.path)).is_none()
                && !self.removing.iter().any(|(path, _)| *path == device.path)
        };
        let marked = wanted.iter().filter(is_marked).count();
        let missing: Vec<u16> =
            stats.disks.iter().filter(|disk| disk.health == DiskHealth::Missing).map(|disk| disk.number).collect();
        if marked < missing.len() {
            let numbers = missing.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "the cache misses disks {numbers}, and which of them was here is not known: remove all that are gone in \
                 one command"
            ));
        }
        for number in missing {
            block_on(cache.forget_disk(number)).map_err(|error| error.to_string())?;
        }
        Ok(String::new())
    }

    fn note(&mut self, device: &Device) {
        self.done.retain(|other| other.path != device.path);
        self.done.push(device.clone());
    }

    /// Removes the entries of devices whose removal has ended from the file.
    fn forget_removed(&mut self, stats: &CacheStats) {
        let is_gone = |guid: &str| stats.disks.iter().all(|disk| disk.guid != guid);
        let gone = self.removing.iter().filter(|(_, guid)| is_gone(guid));
        let gone: Vec<PathBuf> = gone.map(|(path, _)| path.clone()).collect();
        if gone.is_empty() {
            return;
        }
        match forget(&self.path, &gone) {
            Ok(()) => {
                self.done.retain(|device| !gone.contains(&device.path));
                self.removing.retain(|(path, _)| !gone.contains(path));
            }
            Err(error) => self.unreadable = Some(error.to_string()),
        }
    }
}

/// Removes the entries of devices whose removal has ended from the file at `path`, if they are still there.
pub(super) fn forget(path: &Path, gone: &[PathBuf]) -> Result<(), FileError> {
    config::edit(path, |file| {
        let is_gone = |device: &Device| device.state == DeviceState::Removing && gone.contains(&device.path);
        file.devices.retain(|device| !is_gone(device));
        Ok(())
    })
}

/// Returns the disk at `path`, compared as text or as the target of links.
pub fn disk_at<'a>(stats: &'a CacheStats, path: &Path) -> Option<&'a DiskStats> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let wanted = real(path);
    let is_it = |disk: &&DiskStats| Path::new(&disk.path) == path || real(Path::new(&disk.path)) == wanted;
    stats.disks.iter().find(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_done() {
        let device = |path: &str, size_mib: u64, state| Device {
            path: path.into(),
            size_bytes: Some(size_mib << 20),
            disk: None,
            state,
        };
        let (active, removing) = (DeviceState::Active, DeviceState::Removing);
        let a = device("a", 10, active);
        let cases = [
            (vec![a.clone()], vec![a.clone()], vec![]),
            (vec![a.clone()], vec![device("a", 20, active)], vec![Step::Expand(device("a", 20, active))]),
            (vec![a.clone()], vec![device("a", 5, active)], vec![]),
            (vec![a.clone()], vec![], vec![]),
            (vec![a.clone()], vec![device("a", 10, removing)], vec![Step::Remove(device("a", 10, removing))]),
            (vec![], vec![a.clone()], vec![Step::Add(a.clone())]),
            (vec![], vec![device("a", 10, removing)], vec![]),
            (vec![device("a", 10, removing)], vec![device("a", 10, removing)], vec![]),
            (vec![device("a", 10, removing)], vec![], vec![]),
        ];
        for (done, wanted, expected) in cases {
            assert_eq!(plan(&done, &wanted), expected, "{done:?} {wanted:?}");
        }
        let said = |done: Device, wanted: &[Device]| not_done(&[done], wanted).join(" ");
        assert_eq!(said(a.clone(), std::slice::from_ref(&a)), "");
        assert!(said(a.clone(), &[]).contains("state: removing"));
        assert!(said(device("a", 10, removing), &[a]).contains("not taken back"));
    }
}
