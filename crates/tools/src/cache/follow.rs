//! A running cache follows CACHE.yaml: disks that appear there are added, those that grow expanded, those that go
//! removed.
//!
//! # Why
//! Disks are added while a cache serves. The file is the one place where it stands which ones there should be; a
//! process that crashes half-way finds it there when it starts again.
//!
//! # How it works
//! [`Follower::follow`] reads the file (once a second, by [`super::session`]), [`plan`]s what differs from what was
//! done, and does it. What fails is told in the published snapshot, and tried again when its line in the file changes.
//! A device whose removal has ended is taken out of the file.
//!
//! # Limits
//! Only devices are followed: other keys hold from the next opening on. A device whose entry is deleted is removed, as
//! one with `state: removing` is. Devices do not shrink.
//!
//! # Example
//! ```
//! use plimsoll_tools::cache::config::{Device, DeviceState};
//! use plimsoll_tools::cache::follow::{Step, plan};
//! let device = |path: &str, state| Device { path: path.into(), state, ..Device::default() };
//! let done = [device("a", DeviceState::Active), device("b", DeviceState::Active)];
//! let wanted = [("a", DeviceState::Removing), ("b", DeviceState::Active), ("c", DeviceState::Active)];
//! let wanted = wanted.map(|(path, state)| device(path, state));
//! assert_eq!(plan(&done, &wanted), [Step::Remove(wanted[0].clone()), Step::Add(wanted[2].clone())]);
//! ```

use std::path::{Path, PathBuf};

use plimsoll_cache::BlockCache;
use plimsoll_cache::stats::{CacheStats, DiskHealth};

use super::config::{self, CacheFile, Device, DeviceState, FileError};
use super::wait::block_on;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take this device in.
    Add(Device),
    /// It has become larger.
    Expand(Device),
    /// Begin to move its blocks away.
    Remove(Device),
}

impl Step {
    /// Which device it is about.
    #[must_use]
    pub fn device(&self) -> &Device {
        match self {
            Step::Add(device) | Step::Expand(device) | Step::Remove(device) => device,
        }
    }
}

/// What has to be done so that `done` becomes `wanted`.
#[must_use]
pub fn plan(done: &[Device], wanted: &[Device]) -> Vec<Step> {
    let find = |devices: &[Device], path: &Path| devices.iter().find(|device| device.path == path).cloned();
    let mut steps = Vec::new();
    for device in done.iter().filter(|device| device.state == DeviceState::Active) {
        match find(wanted, &device.path) {
            None => steps.push(Step::Remove(Device { state: DeviceState::Removing, ..device.clone() })),
            Some(wanted) if wanted.state == DeviceState::Removing => steps.push(Step::Remove(wanted)),
            Some(wanted) if wanted.size_bytes > device.size_bytes => steps.push(Step::Expand(wanted)),
            Some(_) => {}
        }
    }
    let is_new = |device: &&Device| find(done, &device.path).is_none() && device.state == DeviceState::Active;
    steps.extend(wanted.iter().filter(is_new).cloned().map(Step::Add));
    steps
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// What has been done, or has failed as it stands in the file.
    done: Vec<Device>,
    failed: Vec<(Step, String)>,
    unreadable: Option<String>,
}

impl Follower {
    /// Of a cache that was opened by `file`, which lies at `path`.
    #[must_use]
    pub fn new(path: &Path, file: &CacheFile) -> Follower {
        let active = |device: &Device| Device { state: DeviceState::Active, ..device.clone() };
        let done = file.devices.iter().map(active).collect();
        Follower { path: path.to_owned(), done, failed: Vec::new(), unreadable: None }
    }

    /// What could not be followed, a sentence each.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let failed = self.failed.iter().map(|(step, why)| format!("{}: {why}", step.device().path.display()));
        self.unreadable.iter().cloned().chain(failed).collect()
    }

    /// Looks at the file and does what is new in it.
    pub fn follow(&mut self, cache: &BlockCache) {
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
            match self.take(&step, cache) {
                Ok(()) => self.note(step.device()),
                Err(why) => self.failed.push((step, why)),
            }
        }
        self.forget_removed(&cache.stats());
    }

    fn take(&self, step: &Step, cache: &BlockCache) -> Result<(), String> {
        let path = step.device().full_path(&self.path);
        match step {
            Step::Add(device) => {
                let source = device.source(&self.path).map_err(|error| error.to_string())?;
                block_on(cache.add_disk(&source, false)).map(drop).map_err(|error| error.to_string())
            }
            Step::Expand(_) => block_on(cache.expand_disk(&path)).map(drop).map_err(|error| error.to_string()),
            Step::Remove(_) if health(&cache.stats(), &path) == Some(DiskHealth::Removing) => Ok(()),
            Step::Remove(_) => cache.remove_disk(&path).map(drop).map_err(|error| error.to_string()),
        }
    }

    fn note(&mut self, device: &Device) {
        self.done.retain(|other| other.path != device.path);
        self.done.push(device.clone());
    }

    /// Takes devices whose removal has ended out of the file.
    fn forget_removed(&mut self, stats: &CacheStats) {
        let is_gone = |device: &Device| {
            device.state == DeviceState::Removing && health(stats, &device.full_path(&self.path)).is_none()
        };
        let gone: Vec<PathBuf> = self.done.iter().filter(|device| is_gone(device)).map(|d| d.path.clone()).collect();
        if gone.is_empty() {
            return;
        }
        let edited = config::edit(&self.path, |file| {
            file.devices.retain(|device| !gone.contains(&device.path));
            Ok::<(), FileError>(())
        });
        match edited {
            Ok(()) => self.done.retain(|device| !gone.contains(&device.path)),
            Err(error) => self.unreadable = Some(error.to_string()),
        }
    }
}

/// How the disk at `path` is; `None` if the cache has no such disk.
#[must_use]
pub fn health(stats: &CacheStats, path: &Path) -> Option<DiskHealth> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let wanted = real(path);
    let disk = stats.disks.iter().find(|disk| Path::new(&disk.path) == path || real(Path::new(&disk.path)) == wanted);
    disk.map(|disk| disk.health)
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
            (vec![a.clone()], vec![], vec![Step::Remove(device("a", 10, removing))]),
            (vec![], vec![a.clone()], vec![Step::Add(a.clone())]),
            (vec![], vec![device("a", 10, removing)], vec![]),
            (vec![device("a", 10, removing)], vec![device("a", 10, removing)], vec![]),
            (vec![device("a", 10, removing)], vec![], vec![]),
        ];
        for (done, wanted, expected) in cases {
            assert_eq!(plan(&done, &wanted), expected, "{done:?} {wanted:?}");
        }
    }
}
