//! Keeps the objects open that were read last.
//!
//! # Why
//! A database reads the same tables over and over. Opening one takes a blocking thread, a shard and a helper thread in
//! turn, for longer than a fast disk takes to read a block.
//!
//! # How it works
//! An object is found by its location, if the file there is still the one that was opened. The kernel answers that from
//! memory: an open file keeps its inode and its name in the kernel's caches. So no thread waits for the disk, and an
//! inode number is not used again for another file.
//!
//! The store forgets an object after it has changed the file at its location. A read that opened the file before keeps
//! it first and looks at the location again afterwards, so one of both drops it.
//!
//! # Limits
//! A file that another program deletes or replaces keeps its space until its location is read again or
//! [`MAX_OBJECTS`] others were.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use object_store::ObjectMeta;
use object_store::path::Path;

use crate::read::Object;

/// Most objects that are kept open: each takes a descriptor of the program.
const MAX_OBJECTS: usize = 64;

/// What tells one file, and one state of it, from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    len_bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            len_bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

struct Entry {
    stamp: Stamp,
    meta: ObjectMeta,
    object: Object,
    /// Number of the last use.
    used: u64,
}

impl Entry {
    /// Returns whether the path of the object still leads to its file.
    fn is_current(stamp: Stamp, object: &Object) -> bool {
        std::fs::metadata(&object.path).is_ok_and(|metadata| Stamp::of(&metadata) == stamp)
    }
}

#[derive(Default)]
struct Entries {
    by_location: HashMap<Path, Entry>,
    uses: u64,
}

/// The open objects of a store.
#[derive(Default)]
pub(crate) struct Opened {
    entries: Mutex<Entries>,
}

impl Opened {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the object at `location`, if it is open, and its description.
    pub(crate) fn find(&self, location: &Path) -> Option<(ObjectMeta, Object)> {
        let mut entries = self.lock();
        let Entries { by_location, uses } = &mut *entries;
        let entry = by_location.get_mut(location)?;
        *uses += 1;
        entry.used = *uses;
        let (stamp, meta, object) = (entry.stamp, entry.meta.clone(), entry.object.clone());
        drop(entries);

        if !Entry::is_current(stamp, &object) {
            self.forget(location);
            return None;
        }
        Some((meta, object))
    }

    /// Keeps an object open, in place of the one that was used least recently. `stamp` is that of its file.
    pub(crate) fn keep(&self, stamp: Stamp, meta: ObjectMeta, object: Object) {
        let location = meta.location.clone();
        let mut entries = self.lock();
        entries.uses += 1;
        let entry = Entry { stamp, meta, object: object.clone(), used: entries.uses };
        let mut dropped = entries.by_location.insert(location.clone(), entry);
        if entries.by_location.len() > MAX_OBJECTS {
            let oldest = entries.by_location.iter().min_by_key(|(_, entry)| entry.used).map(|(at, _)| at.clone());
            dropped = oldest.and_then(|oldest| entries.by_location.remove(&oldest));
        }
        drop(entries);
        drop(dropped);

        // The file may have been deleted since it was opened, and the location forgotten before this call.
        if !Entry::is_current(stamp, &object) {
            self.forget(&location);
        }
    }

    /// Closes the object at `location` once its reads have ended. Call it after the file there has changed.
    pub(crate) fn forget(&self, location: &Path) {
        let dropped = self.lock().by_location.remove(location);
        drop(dropped);
    }
}
