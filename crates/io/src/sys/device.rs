//! The device that holds a path.
//!
//! # Why
//! Disks are described by directories on them. Two directories are on one disk if their device numbers are the same.
//!
//! # How it works
//! Uses `stat`. A path's device is the one that holds it, or if the path is a device node, the device itself.
//!
//! # Limits
//! Each file system has its own device: two partitions of a disk have different ones, and so have two subvolumes of
//! btrfs. The call may block on the file system.
//!
//! # Example
//! ```
//! use plimsoll::sys::device;
//! let root = device::device_of("/".as_ref()).ok_or("no /")?;
//! assert!(device::is_on(&["/".into()], root));
//! # Ok::<(), &str>(())
//! ```

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns the number of the device that holds `path`, its own if it is a device node; `None` if the path does not
/// exist.
#[must_use]
pub fn device_of(path: &Path) -> Option<u64> {
    stat(path).ok()
}

fn stat(path: &Path) -> io::Result<u64> {
    let meta = std::fs::metadata(path)?;
    let is_node = meta.file_type().is_block_device() || meta.file_type().is_char_device();
    Ok(if is_node { meta.rdev() } else { meta.dev() })
}

/// Returns the device as [`device_of`]; for a path that does not exist yet, that of the directory that would hold it.
///
/// # Errors
/// The system's error if neither exists, or access is denied.
pub fn device_for(path: &Path) -> io::Result<u64> {
    stat(path).or_else(|error| match path.parent() {
        None => Err(error),
        Some(parent) if parent.as_os_str().is_empty() => stat(Path::new(".")),
        Some(parent) => stat(parent),
    })
}

/// Returns whether one of `mountpoints` (directories or device nodes) is on `device`.
#[must_use]
pub fn is_on(mountpoints: &[PathBuf], device: u64) -> bool {
    mountpoints.iter().any(|mountpoint| device_of(mountpoint) == Some(device))
}

/// Returns the number of a device as the kernel prints it, such as `259:1`; `unknown` for none.
#[must_use]
pub fn name(device: Option<u64>) -> String {
    device.map_or_else(
        || "unknown".to_owned(),
        |device| {
            let (major, minor) = super::sysfs::major_minor(device);
            format!("{major}:{minor}")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_there_is_on_the_disk_of_its_directory() {
        let dir = std::env::temp_dir();
        let missing = dir.join("plimsoll-not-there");
        assert_eq!(device_of(&missing), None);
        assert_eq!(device_for(&missing).ok(), device_of(&dir));
        assert_eq!(device_for("plimsoll-not-there".as_ref()).ok(), device_of(".".as_ref()));
        let error = device_for("/plimsoll/not/there".as_ref()).map_err(|error| error.kind());
        assert_eq!(error, Err(io::ErrorKind::NotFound));
        // A node is its own device, not the one that holds it.
        assert_ne!(device_of("/dev/null".as_ref()), device_of("/dev".as_ref()));
        assert_eq!(name(device_of("/dev/null".as_ref())), "1:3");
    }
}
