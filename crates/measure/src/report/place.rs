//! Where and when a test ran.
//!
//! # Why
//! A result that is found again after a year, or beside another, must say of which disk it is.
//!
//! # How it works
//! [`Place::here`] looks up the disk below the storage, as the kernel names and identifies it.
//!
//! # Limits
//! Storage without a block device (memory, a network, an overlay) has no disk. Of an array the model is that of the
//! array, if it has any.
//!
//! # Example
//! `{"host": "db-1", "date": "2026-05-28 20:26:40 UTC", "storage": "/mnt/data", "disk": "nvme0n1, Amazon EC2 NVMe
//! Instance Storage, 1.9 TB"}`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::sys::device::device_of;
use plimsoll::sys::sysfs::{self, major_minor};
use plimsoll_figures::units::format_bytes_decimal;
use plimsoll_observe::stat::host::Host;
use plimsoll_observe::stat::output::time;
use serde::{Deserialize, Serialize};

/// Where and when a test ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The host's name.
    pub host: String,
    /// When the test ended, in UTC.
    pub date: String,
    /// The directory, file or device as given.
    pub storage: String,
    /// Name, model and size of the disk below it; `None` if there is none, or the backend reached none.
    pub disk: Option<String>,
}

impl Place {
    /// Describes a test that ends now. `reaches_disk` is whether its backend did.
    pub(super) fn here(storage: &Path, reaches_disk: bool) -> Place {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Place {
            host: Host::read(Path::new("/proc")).name,
            date: time(now_ms, "%F %T UTC").unwrap_or_default(),
            storage: storage.display().to_string(),
            disk: disk(Path::new("/sys"), device_of(storage).filter(|_| reaches_disk)),
        }
    }

    /// Returns the place in a sentence.
    #[must_use]
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
    }
}
