//! Where, when and how a test ran.
//!
//! **Why.** A result that is found after a year, or beside another, must state its disk and the options of the run.
//!
//! **How.** [`Place::here`] finds the disk below the storage, with the kernel's name and model. [`Circumstances`] are
//! the head of each result: of one run, and of an experiment with several.
//!
//! **Limits.** Storage without a block device (memory, a network, an overlay) has no disk. The model of an array is
//! that of the array, if it has any.
//!
//! **Example.** `{"host": "db-1", "date": "2026-05-28 20:26:40 UTC", "storage": "/mnt/data", "disk": "nvme0n1, Amazon
//! EC2 NVMe Instance Storage, 1.9 TB"}`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::backend::choose::BackendKind;
use plimsoll::sys::device::device_of;
use plimsoll::sys::sysfs::{self, major_minor};
use plimsoll_figures::units::{format_bytes_decimal, format_duration_ns};
use plimsoll_observe::stat::host::Host;
use plimsoll_observe::stat::output::time;
use serde::{Deserialize, Serialize};

use super::Machine;
use crate::load::RunResult;
use crate::test::TestOptions;

/// The circumstances of a result: where and how it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// Version of the program that made the result.
    pub plimsoll: String,
    pub machine: Machine,
    /// Where and when; `None` in results of older versions, and without options.
    #[serde(default)]
    pub place: Option<Place>,
    /// Seed of positions, gaps and data; `None` if unknown.
    pub seed: Option<u64>,
    /// Requested duration, in seconds; `None` if unknown.
    pub duration_s: Option<f64>,
    /// Requested warm-up, in seconds; `None` if unknown.
    pub warmup_s: Option<f64>,
    /// Backend that served the I/O.
    pub backend: String,
    pub backend_reason: String,
    pub shards: usize,
}

impl Circumstances {
    /// Returns the circumstances of a run on this machine, without its options.
    pub(crate) fn of_run(run: &RunResult) -> Circumstances {
        let (backend, backend_reason) =
            run.backend.as_ref().map_or_else(Default::default, |b| (b.kind.to_string(), b.reason.clone()));
        Circumstances {
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::here(),
            place: None,
            seed: None,
            duration_s: None,
            warmup_s: None,
            backend,
            backend_reason,
            shards: run.shards.len(),
        }
    }

    /// Returns the circumstances with the place, and the options' seed, duration and warm-up.
    pub(crate) fn with_options(self, options: &TestOptions) -> Circumstances {
        let reaches_disk =
            ![BackendKind::Null, BackendKind::Memory].map(|kind| kind.to_string()).contains(&self.backend);
        Circumstances {
            place: Some(Place::here(options.storage.path(), reaches_disk)),
            seed: Some(options.seed),
            // A run that ends when its jobs have done all their work has no duration.
            duration_s: (options.duration_ns < 1 << 58).then_some(options.duration_ns as f64 / 1e9),
            warmup_s: Some(options.warmup_ns as f64 / 1e9),
            ..self
        }
    }

    /// Returns the place and the options, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let seconds = |s: f64| format_duration_ns((s.max(0.0) * 1e9) as u64);
        let parts = [
            Some(format!("plimsoll {}", self.plimsoll)),
            Some(format!("{} shard(s)", self.shards)),
            Some(format!("backend {}", self.backend)),
            self.duration_s.map(|s| format!("duration {}", seconds(s))),
            self.warmup_s.filter(|s| *s > 0.0).map(|s| format!("warm-up {}", seconds(s))),
            self.seed.map(|seed| format!("seed {seed}")),
            self.machine.kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
            self.machine.cpus.map(|cpus| format!("{cpus} CPU(s)")),
        ];
        let asked = format!("Settings: {}.", parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
        self.place.as_ref().map(Place::sentence).into_iter().chain([asked]).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub host: String,
    /// End of the test, in UTC; begin of a measurement of `tune`.
    pub date: String,
    /// The directory, file or device, as an absolute path.
    pub storage: String,
    /// Name, model and size of the disk below the storage; `None` if there is none, or the backend did not use it.
    pub disk: Option<String>,
}

impl Place {
    /// Describes a test that ends now. `reaches_disk` is whether its backend used the disk.
    pub(crate) fn here(storage: &Path, reaches_disk: bool) -> Place {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Place {
            host: Host::read(Path::new("/proc")).name,
            date: time(now_ms, "%F %T UTC").unwrap_or_default(),
            storage: std::path::absolute(storage).as_deref().unwrap_or(storage).display().to_string(),
            disk: disk(Path::new("/sys"), device_of(storage).filter(|_| reaches_disk)),
        }
    }

    pub fn sentence(&self) -> String {
        let Place { host, date, storage, disk } = self;
        let disk = disk.as_ref().map_or_else(|| "no disk".to_owned(), Clone::clone);
        format!("On {host}, {storage} ({disk}), ended {date}.")
    }
}

fn disk(sys_root: &Path, device: Option<u64>) -> Option<String> {
    let (major, minor) = major_minor(device?);
    let disk = sysfs::device(sys_root, major, minor).ok()?.disk;
    let hardware = sysfs::hardware(sys_root, &disk);
    let size = hardware.size_bytes.map(format_bytes_decimal);
    Some([Some(disk), hardware.model, size].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_without_a_disk_has_none() {
        let place = Place::here("/proc".as_ref(), true);
        assert_eq!((place.storage.as_str(), &place.disk), ("/proc", &None));
        assert!(place.sentence().contains("/proc (no disk), ended 2"), "{}", place.sentence());
        assert_eq!(Place::here("/".as_ref(), false).disk, None);
        let here = std::env::current_dir().unwrap();
        assert_eq!(Place::here(".".as_ref(), true).storage, here.display().to_string());
    }
}
