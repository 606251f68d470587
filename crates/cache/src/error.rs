//! Errors of a cache as a whole, with their remedies. A block that cannot be read is a miss, not an error.

use std::io;
use std::path::PathBuf;

use crate::config::BadConfig;

/// Why a cache could not be made, opened or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum CacheError {
    /// The configuration is impossible.
    Config(BadConfig),
    /// No disks were named.
    NoDisks,
    /// A system call failed.
    Io {
        /// The disk.
        path: PathBuf,
        /// What the cache attempted, as in "cannot open".
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Another process has the disk.
    Locked {
        /// The disk.
        path: PathBuf,
    },
    /// The disk holds data.
    NotEmpty {
        /// The disk.
        path: PathBuf,
        /// What the data looks like.
        what: String,
    },
    /// The disk holds no cache.
    NotACache {
        /// The disk.
        path: PathBuf,
        /// What its data looks like.
        what: String,
    },
    /// The disk was written by a newer version.
    Version {
        /// The disk.
        path: PathBuf,
        /// The format version on it.
        found: u32,
    },
    /// Both superblocks of the disk are damaged.
    Damaged {
        /// The disk.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// The disks belong to several caches.
    SeveralCaches {
        /// Each cache, and its disks; that with the most disks first.
        caches: Vec<(u128, Vec<PathBuf>)>,
    },
    /// The disk was removed from the cache, or had not yet joined it.
    NotAMember {
        /// The disk.
        path: PathBuf,
    },
    /// The disk was being added to the cache when that ended, and never joined it. It holds nothing, and can be added as
    /// it is.
    HalfAdded {
        /// The disk.
        path: PathBuf,
    },
    /// The same disk was named twice, or is one of the cache already.
    Twice {
        /// The path by which it was named the second time.
        path: PathBuf,
        /// The path by which it was named first.
        first: PathBuf,
    },
    /// The disk is smaller than it was.
    Shrunk {
        /// The disk.
        path: PathBuf,
        /// Its size now, in bytes.
        has_bytes: u64,
        /// The size that the cache uses, in bytes.
        needs_bytes: u64,
    },
    /// The disk has room for too few slabs.
    TooSmall {
        /// The disk.
        path: PathBuf,
        /// Its size, in bytes.
        has_bytes: u64,
        /// The smallest size possible, in bytes.
        needs_bytes: u64,
    },
    /// The disk needs larger sectors than the cache has.
    SectorSize {
        /// The disk.
        path: PathBuf,
        /// The sector size it needs, in bytes.
        needs_bytes: u32,
        /// The sector size of the cache, in bytes.
        has_bytes: u32,
    },
    /// The slab size, or something else that is fixed at creation, is impossible.
    Geometry(&'static str),
    /// The cache is encrypted and the key is missing or wrong, or it is not encrypted and a key was given.
    Key(&'static str),
    /// A key of more than 64 KiB, or an empty one.
    KeyLength {
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// A value of more than 16 MiB (or a slab), or an empty one.
    ValueLength {
        /// Its length in bytes.
        len_bytes: usize,
        /// The longest value this cache takes, in bytes.
        max_bytes: u32,
    },
    /// No such disk in this cache.
    UnknownDisk {
        /// The path as it was named.
        path: PathBuf,
    },
    /// Only a disk that is missing can be forgotten, and this one is there, or no member.
    NotMissing {
        /// The disk's number.
        number: u16,
    },
    /// The last disk cannot be removed.
    LastDisk,
    /// The disk was expanded so often, in turns with others, that its superblock has no room for more slabs or disks.
    SuperblockFull {
        /// The disk.
        path: PathBuf,
    },
    /// The cache has as many disks as it may have, or as it has room for until it is opened again.
    TooManyDisks,
    /// No disk of the cache works any more.
    AllFailed,
    /// No disk of a cache that is open works any more.
    NoDiskWorks {
        /// Each disk and why it does not work, a sentence each.
        disks: Vec<String>,
    },
    /// The shards could not be started, or have stopped.
    Stopped(String),
    /// The cache is closed, but operations on these disks have not come back from the kernel. The disks stay locked
    /// until they have. Without a disk: code on the cache's shards does not end.
    Hangs {
        /// The disks.
        paths: Vec<PathBuf>,
    },
}

impl std::fmt::Display for CacheError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CacheError::Config(error) => error.fmt(f),
            CacheError::NoDisks => write!(f, "a cache needs at least one disk"),
            CacheError::Io { path, what, error } => write!(f, "{}: {what}: {error}", path.display()),
            CacheError::Locked { path } => write!(
                f,
                "{}: another process, or this one, has it open; close it there, or let that one do the work (it follows \
                 CACHE.yaml)",
                path.display()
            ),
            CacheError::NotEmpty { path, what } => write!(
                f,
                "{}: {what}; nothing was written. Use an empty device or file, or --destructive to overwrite what is there",
                path.display()
            ),
            CacheError::NotACache { path, what } => {
                write!(
                    f,
                    "{}: {what}; is the path right? `cache create` or `cache add` makes a cache disk",
                    path.display()
                )
            }
            CacheError::Version { path, found } => write!(
                f,
                "{}: written in format {found}, this program knows format {}; use the program that wrote it, or create \
                 the cache anew with --destructive",
                path.display(),
                crate::format::VERSION
            ),
            CacheError::Damaged { path, what } => write!(
                f,
                "{}: both superblocks are damaged ({what}); remove it from the list and add it anew with --destructive",
                path.display()
            ),
            CacheError::SeveralCaches { caches } => {
                write!(f, "the disks belong to {} caches:", caches.len())?;
                for (at, (cache, disks)) in caches.iter().enumerate() {
                    let disks: Vec<String> = disks.iter().map(|disk| disk.display().to_string()).collect();
                    write!(f, "{} {cache:032x} has {}", if at > 0 { ";" } else { "" }, disks.join(", "))?;
                }
                write!(f, ". Leave the disks of one in the list, and add others anew with --destructive")
            }
            CacheError::NotAMember { path } => write!(
                f,
                "{}: it is no member of this cache (any more, or not yet); take it out of the list, or add it with --destructive",
                path.display()
            ),
            CacheError::HalfAdded { path } => write!(
                f,
                "{}: a crash has cut its addition to this cache short; take it out of the list, and add it again",
                path.display()
            ),
            CacheError::Twice { path, first } => {
                write!(f, "{}: the same disk is named twice: it is {}", path.display(), first.display())
            }
            CacheError::Shrunk { path, has_bytes, needs_bytes } => write!(
                f,
                "{}: {has_bytes} bytes, but the cache uses {needs_bytes} of it; give it its size back, or leave it out \
                 (its blocks are then misses)",
                path.display()
            ),
            CacheError::TooSmall { path, has_bytes, needs_bytes } => {
                write!(f, "{}: {has_bytes} bytes are too few: at least {needs_bytes} are needed", path.display())
            }
            CacheError::SectorSize { path, needs_bytes, has_bytes } => write!(
                f,
                "{}: it needs sectors of {needs_bytes} bytes, the cache was created with {has_bytes}; create the cache \
                 with this disk among the first",
                path.display()
            ),
            CacheError::Geometry(what) | CacheError::Key(what) => f.write_str(what),
            CacheError::KeyLength { len_bytes } => write!(f, "a key of {len_bytes} bytes: 1 to 65,536 are possible"),
            CacheError::ValueLength { len_bytes, max_bytes } => {
                write!(f, "a value of {len_bytes} bytes: 1 to {max_bytes} are possible in this cache")
            }
            CacheError::UnknownDisk { path } => write!(f, "{}: no disk of this cache", path.display()),
            CacheError::NotMissing { number } => {
                write!(f, "the cache misses no disk {number}: a disk that is there is removed by its path")
            }
            CacheError::LastDisk => write!(f, "the last disk cannot be removed: add another first"),
            CacheError::SuperblockFull { path } => write!(
                f,
                "{}: it was expanded so often that its superblock has no room for another range of slabs or another disk; \
                 nothing was changed. Remove this disk and add it again: it has one range then",
                path.display()
            ),
            CacheError::TooManyDisks => write!(
                f,
                "no room for another disk: a cache has at most 128, and a running one takes at most {} more than it was \
                 opened with (open it again)",
                crate::config::SPARE_DISKS
            ),
            CacheError::AllFailed => write!(f, "no disk of the cache works any more"),
            CacheError::NoDiskWorks { disks } => write!(
                f,
                "no disk of the cache works any more ({}); repair or replace the disks, and open the cache again",
                disks.join("; ")
            ),
            CacheError::Stopped(why) => write!(f, "{why}"),
            CacheError::Hangs { paths } => {
                let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                write!(
                    f,
                    "{}: operations have not come back from the kernel; the cache is closed, and its disks stay locked until \
                     they have",
                    if names.is_empty() { "its disks".to_owned() } else { names.join(", ") }
                )
            }
        }
    }
}

impl std::error::Error for CacheError {}

impl From<BadConfig> for CacheError {
    fn from(error: BadConfig) -> CacheError {
        CacheError::Config(error)
    }
}
