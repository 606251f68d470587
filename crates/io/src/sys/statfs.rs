//! Kind and free space of file systems.
//!
//! # Why
//! A measurement must not fill the disk, and an error about direct I/O must name the file system.
//!
//! # How it works
//! Uses `statfs`. The kind is a number (`statfs(2)` lists them); a table here names the usual ones.
//!
//! # Limits
//! ext2, ext3 and ext4 share one number. An unknown kind is shown as its number in hexadecimal.
//!
//! # Example
//! ```
//! use std::path::Path;
//! if let Ok(space) = plimsoll::sys::statfs::file_system(Path::new("/")) {
//!     println!("{}: {} bytes left", space.name, space.available_bytes);
//! }
//! ```

use std::io;
use std::path::Path;

/// Kind and space of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its kind: `ext4`, `xfs`, `tmpfs`, or a hexadecimal number.
    pub name: String,
    /// Bytes that an ordinary user can still write.
    pub available_bytes: u64,
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Allocation block in bytes; 0 if the file system does not report one.
    pub block_bytes: u64,
}

/// Returns kind and space of the file system that holds `path` (which must exist).
///
/// # Errors
/// The system's error, with the path.
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let stat = rustix::fs::statfs(path).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("cannot ask about the file system of {}: {error}", path.display()))
    })?;
    let block_bytes = u64::try_from(stat.f_bsize).unwrap_or(0);
    Ok(FileSystem {
        name: kind_name(stat.f_type as u64),
        available_bytes: stat.f_bavail.saturating_mul(block_bytes),
        total_bytes: stat.f_blocks.saturating_mul(block_bytes),
        block_bytes,
    })
}

/// Returns the name of the file system that holds `path` or its directory, for messages.
pub(crate) fn name_for_message(path: &Path) -> String {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    file_system(path).or_else(|_| file_system(parent)).map_or_else(|_| "unknown".to_owned(), |found| found.name)
}

/// Returns the name of a kind; the numbers are from `statfs(2)`.
fn kind_name(magic: u64) -> String {
    let name = match magic & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlayfs",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0xca45_1a4e => "bcachefs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x8584_58f6 => "ramfs",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        0x7371_7368 => "squashfs",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        other => return format!("file system {other:#x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn the_temporary_directory_lies_on_something() {
        let Ok(found) = file_system(&std::env::temp_dir()) else {
            skip("the temporary directory cannot be asked about");
            return;
        };
        assert!(!found.name.is_empty());
        assert!(found.available_bytes <= found.total_bytes);
    }

    #[test]
    fn kinds_have_names() {
        for (magic, name) in [(0xef53, "ext4"), (0x0102_1994, "tmpfs"), (0x1234, "file system 0x1234")] {
            assert_eq!(kind_name(magic), name);
        }
    }

    #[test]
    fn a_missing_path_is_named() {
        let Err(error) = file_system(Path::new("/nowhere/at/all")) else { panic!("the path does not exist") };
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
