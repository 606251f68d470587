//! What can go wrong with a cache as a whole, and what to do about it. A block that cannot be read is a miss, not an error.

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
    /// The system refused something.
    Io {
        /// Of which disk.
        path: PathBuf,
        /// What the cache wanted, as in "cannot open".
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// Another process has the disk.
    Locked {
        /// Which disk.
        path: PathBuf,
    },
    /// There is something on the disk.
    NotEmpty {
        /// Which disk.
        path: PathBuf,
        /// What it looks like.
        what: String,
    },
    /// The disk holds no cache.
    NotACache {
        /// Which disk.
        path: PathBuf,
        /// What it looks like.
        what: String,
    },
    /// The disk was written by a newer version.
    Version {
        /// Which disk.
        path: PathBuf,
        /// The version on it.
        found: u32,
    },
    /// Both superblocks of the disk are damaged.
    Damaged {
        /// Which disk.
        path: PathBuf,
        /// How.
        what: String,
    },
    /// The disk belongs to another cache than the first one named.
    OtherCache {
        /// Which disk.
        path: PathBuf,
        /// The cache it belongs to.
        found: u128,
        /// The cache that is being opened.
        expected: u128,
    },
    /// The disk was removed from the cache, or had not yet joined it.
    NotAMember {
        /// Which disk.
        path: PathBuf,
    },
    /// The same disk was named twice.
    Twice {
        /// By this path the second time.
        path: PathBuf,
    },
    /// The disk is smaller than it was.
    Shrunk {
        /// Which disk.
        path: PathBuf,
        /// What it has now, in bytes.
        has_bytes: u64,
        /// What the cache uses of it, in bytes.
        needs_bytes: u64,
    },
    /// The disk has room for too few slabs.
    TooSmall {
        /// Which disk.
        path: PathBuf,
        /// What it has, in bytes.
        has_bytes: u64,
        /// What it should have at the least, in bytes.
        needs_bytes: u64,
    },
    /// The disk needs larger sectors than the cache has.
    SectorSize {
        /// Which disk.
        path: PathBuf,
        /// What it needs, in bytes.
        needs_bytes: u32,
        /// What the cache has, in bytes.
        has_bytes: u32,
    },
    /// Slab size, or something else that is fixed when a cache is created, is impossible.
    Geometry(&'static str),
    /// The cache is encrypted and the key is missing or wrong, or it is not and there is one.
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
        /// The most that this cache takes, in bytes.
        max_bytes: u32,
    },
    /// No such disk in this cache.
    UnknownDisk {
        /// As it was named.
        path: PathBuf,
    },
    /// It cannot be removed.
    LastDisk,
    /// As many disks as a cache may have, or as this one has room for until it is opened again.
    TooManyDisks,
    /// What remains has no room for the disk's blocks and the free space that is to be kept.
    Full,
    /// No disk is left that works.
    AllFailed,
    /// The shards could not be started, or have stopped.
    Stopped(String),
}

impl std::fmt::Display for CacheError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CacheError::Config(error) => error.fmt(f),
            CacheError::NoDisks => write!(f, "a cache needs at least one disk"),
            CacheError::Io { path, what, error } => write!(f, "{}: {what}: {error}", path.display()),
            CacheError::Locked { path } => write!(
                f,
                "{}: another process has it open; stop that one, or let it do the work (it follows CACHE.yaml)",
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
            CacheError::OtherCache { path, found, expected } => write!(
                f,
                "{}: it belongs to cache {found:032x}, not to {expected:032x}; take it out of the list, or add it anew \
                 with --destructive",
                path.display()
            ),
            CacheError::NotAMember { path } => write!(
                f,
                "{}: it is no member of this cache (any more, or not yet); take it out of the list, or add it with --destructive",
                path.display()
            ),
            CacheError::Twice { path } => write!(f, "{}: the same disk is named twice", path.display()),
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
            CacheError::LastDisk => write!(f, "the last disk cannot be removed: add another first"),
            CacheError::TooManyDisks => write!(
                f,
                "no room for another disk: a cache has at most 128, and a running one takes at most {} more than it was \
                 opened with (open it again)",
                crate::config::SPARE_DISKS
            ),
            CacheError::Full => write!(f, "the other disks have no room for its blocks"),
            CacheError::AllFailed => write!(f, "no disk of the cache works any more"),
            CacheError::Stopped(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for CacheError {}

impl From<BadConfig> for CacheError {
    fn from(error: BadConfig) -> CacheError {
        CacheError::Config(error)
    }
}
