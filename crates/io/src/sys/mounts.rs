//! The mounts, from `/proc/self/mountinfo`.
//!
//! # Why
//! io-properties files name disks by mount point, and a mounted device must not be written to.
//!
//! # How it works
//! One line per mount, in the order of mounting (`proc(5)`): device number, mount point, options, and after ` - ` the
//! kind of file system, the source, and the options of the file system.
//!
//! # Limits
//! Only mounts visible to this process; those of other containers are not listed. A name that is not UTF-8 is shown
//! with replacement characters.
//!
//! # Example
//! ```
//! use std::path::Path;
//! use plimsoll::sys::mounts;
//! let text = "27 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,discard\n";
//! let all = mounts::parse(text);
//! let mount = mounts::holding(&all, Path::new("/var/lib")).ok_or("nothing is mounted")?;
//! assert_eq!((mount.mountpoint.as_str(), mount.source.as_str()), ("/", "/dev/nvme0n1p1"));
//! assert_eq!(mount.options, ["rw", "relatime", "discard"]);
//! # Ok::<(), &str>(())
//! ```

use std::io;
use std::path::Path;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the device; major 0 for file systems without one (tmpfs, network, btrfs).
    pub number: (u32, u32),
    /// Its mount point.
    pub mountpoint: String,
    /// Kind of the file system: `ext4`, `xfs`.
    pub file_system: String,
    /// Its source: `/dev/nvme0n1p1`, `tmpfs`.
    pub source: String,
    /// Options of the mount and of the file system (`noatime`, `discard`), each once.
    pub options: Vec<String>,
}

/// Reads the mounts visible to this process, in the order of mounting. `proc_root` is `/proc`.
///
/// # Errors
/// The system's error, with the path.
pub fn read(proc_root: &Path) -> io::Result<Vec<Mount>> {
    let path = proc_root.join("self/mountinfo");
    let text = read_names(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))?;
    Ok(parse(&text))
}

/// Reads a file with names in it, which need not be UTF-8.
pub(super) fn read_names(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

/// Parses a text like `/proc/self/mountinfo`. Skips lines that are not mounts.
#[must_use]
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

/// Returns the mount that holds `path` (absolute, links followed): the deepest one, or of several at the same place the
/// last, which hides the others.
#[must_use]
pub fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let candidates = mounts.iter().filter(|mount| path.starts_with(&mount.mountpoint));
    // Of equal keys `max_by_key` returns the last.
    candidates.max_by_key(|mount| Path::new(&mount.mountpoint).components().count())
}

fn parse_line(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(2);
    let (major, minor) = front.next()?.split_once(':')?;
    let mountpoint = unescape(front.nth(1)?);
    let mount_options = front.next()?;
    let mut back = back.split(' ');
    let (file_system, source) = (back.next()?.to_owned(), unescape(back.next()?));
    let mut options: Vec<String> = Vec::new();
    for option in mount_options.split(',').chain(back.next().unwrap_or_default().split(',')) {
        if !option.is_empty() && !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount { number: (major.parse().ok()?, minor.parse().ok()?), mountpoint, file_system, source, options })
}

/// Decodes a name: the kernel writes space, tab, newline and backslash as a backslash and three octal digits.
pub(super) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 259:1 / /var/lib rw,noatime - xfs /dev/nvme0n1p1 rw,discard
41 27 259:2 / /var/lib/my\\040data rw master:2 propagate_from:1 - xfs /dev/nvme1n1 rw
42 40 0:50 / /var/lib rw - tmpfs none rw
broken line
43 40 x:50 / /broken rw - tmpfs none rw
44 40
";

    #[test]
    fn the_deepest_and_latest_mount_holds_a_path() {
        let mounts = parse(MOUNTS);
        let cases = [
            ("/", "/", "ext4"),
            ("/var/library", "/", "ext4"),
            ("/var/lib", "/var/lib", "tmpfs"),
            ("/var/lib/x/y", "/var/lib", "tmpfs"),
            ("/var/lib/my data/x", "/var/lib/my data", "xfs"),
        ];
        for (path, mountpoint, file_system) in cases {
            let mount = holding(&mounts, Path::new(path)).unwrap();
            assert_eq!((mount.mountpoint.as_str(), mount.file_system.as_str()), (mountpoint, file_system), "{path}");
        }
        assert_eq!(holding(&[], Path::new("/")), None);
    }

    /// One such mount, of any container, and no mount was known.
    #[test]
    fn a_name_that_is_not_utf_8_spoils_no_other() -> io::Result<()> {
        let root = std::env::temp_dir().join(format!("plimsoll-mounts-{}", std::process::id()));
        std::fs::create_dir_all(root.join("self"))?;
        let line: &[u8] = b"45 27 0:51 / /mnt/caf\xe9 rw - tmpfs none rw\n";
        std::fs::write(root.join("self/mountinfo"), [MOUNTS.as_bytes(), line].concat())?;
        let mounts = read(&root);
        std::fs::remove_dir_all(&root)?;
        let mounts = mounts?;
        assert_eq!((mounts.len(), mounts[5].mountpoint.as_str()), (6, "/mnt/caf\u{fffd}"));
        Ok(())
    }

    #[test]
    fn a_line_is_read_whole_and_broken_ones_are_left_out() {
        let mounts = parse(MOUNTS);
        assert_eq!(mounts.len(), 5);
        assert_eq!(mounts[2].number, (259, 1));
        assert_eq!(mounts[2].options, ["rw", "noatime", "discard"]);
        assert_eq!(mounts[3].source, "/dev/nvme1n1");
    }
}
