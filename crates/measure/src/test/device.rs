//! Claims a block device that jobs write to, from before the first byte to the end of the run.
//!
//! **Why.** `--destructive` allows the loss of data on a device, but not of a file system that is mounted.
//!
//! **How.** [`claim`] asks the kernel for users of the device or its partitions. If there are any, it returns an error
//! that lists them; otherwise it claims the device.
//!
//! **Limits.** If another program mounts the device between the question and the claim, the claim fails without that
//! program's name.
//!
//! **Example.** `/dev/sdb` with a mounted partition: "sdb1 is mounted on /data: unmount it first (`umount /data`)".

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use plimsoll::sys::block::{self, Use};
use plimsoll::sys::sysfs;

use super::TestError;

/// Claims the device at `path` until the returned file is dropped.
pub(super) fn claim(path: &Path) -> Result<File, TestError> {
    let name = path.display().to_string();
    let uses = uses(path).map_err(|error| TestError::UsesUnknown { path: name.clone(), error })?;
    if !uses.is_empty() {
        return Err(TestError::InUse { path: name, uses });
    }
    block::claim(path).map_err(|error| TestError::Claim { error })
}

fn uses(path: &Path) -> io::Result<Vec<Use>> {
    let (sys, proc) = (Path::new("/sys"), Path::new("/proc"));
    let (major, minor) = sysfs::major_minor(std::fs::metadata(path)?.rdev());
    let device = sysfs::device(sys, major, minor)?;
    block::uses(sys, proc, &device.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_holder_and_the_remedy() {
        let mounted = Use::Mounted { device: "sdb1".to_owned(), mountpoint: "/data".to_owned() };
        let error = TestError::InUse { path: "/dev/sdb".to_owned(), uses: vec![mounted] };
        let text = error.to_string();
        for part in ["/dev/sdb is in use", "sdb1 is mounted on /data", "umount /data"] {
            assert!(text.contains(part), "no `{part}` in {text}");
        }
    }

    #[test]
    fn what_is_no_device_is_not_claimed() {
        assert!(matches!(claim(Path::new("/")), Err(TestError::UsesUnknown { .. } | TestError::Claim { .. })));
    }
}
