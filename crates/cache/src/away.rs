//! What changes while a disk is away, so that its blocks can be taken back when it returns.
//!
//! # Why
//! A disk that was pulled, or failed and was replugged, still has its blocks. All of them are worth having but those whose
//! key was inserted again or removed meanwhile: those are out of date, and serving them would be wrong.
//!
//! # How it works
//! While any disk is away, the hash of every key that is inserted or removed is kept, and noted in the logs of the disks
//! that are there. A disk that returns brings back its blocks but these. When no disk is away any more, all is forgotten.
//!
//! # Limits
//! At [`MAX_CHANGES`] changes nothing is listed any more, and a disk that returns comes back empty.
//!
//! # Example
//! A disk of 1 TB is away for ten minutes, 300,000 blocks are inserted elsewhere: 125 million blocks come back without
//! being fetched again, and 300,000 that it may have had do not.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::disk::lock;
use crate::format::Record;
use crate::key::KeyHash;

/// So many changes are kept, at 10 bytes and the table's own overhead each.
const MAX_CHANGES: usize = 1 << 20;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Away {
    is_on: AtomicBool,
    changes: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    hashes: HashSet<KeyHash>,
    is_too_many: bool,
}

impl Away {
    /// A disk has left.
    pub(crate) fn begin(&self) {
        self.is_on.store(true, Relaxed);
    }

    /// All disks are there. Whether some were not.
    pub(crate) fn end(&self) -> bool {
        *lock(&self.changes) = Changes::default();
        self.is_on.swap(false, Relaxed)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// A key changes. What is to be noted in the logs.
    pub(crate) fn note(&self, hash: &KeyHash) -> Option<Record> {
        if !self.is_on() {
            return None;
        }
        let mut changes = lock(&self.changes);
        if changes.is_too_many {
            return None;
        }
        if changes.hashes.len() >= MAX_CHANGES {
            drop(changes);
            return Some(self.give_up());
        }
        changes.hashes.insert(*hash).then_some(Record::Changed { hash: *hash })
    }

    /// More has changed than anybody knows. What is to be noted in the logs.
    pub(crate) fn give_up(&self) -> Record {
        *lock(&self.changes) = Changes { hashes: HashSet::new(), is_too_many: true };
        Record::ChangedOverflow
    }

    /// A record of a log or snapshot.
    pub(crate) fn replay(&self, record: &Record) {
        let mut changes = lock(&self.changes);
        match record {
            Record::Changed { hash } if !changes.is_too_many => {
                changes.hashes.insert(*hash);
            }
            Record::ChangedOverflow => *changes = Changes { hashes: HashSet::new(), is_too_many: true },
            Record::ChangesCleared => *changes = Changes::default(),
            _ => {}
        }
    }

    /// Whether a returning disk's block of this key is still right.
    pub(crate) fn is_unchanged(&self, hash: &KeyHash) -> bool {
        let changes = lock(&self.changes);
        !changes.is_too_many && !changes.hashes.contains(hash)
    }

    /// Everything again, for a snapshot.
    pub(crate) fn records(&self) -> Vec<Record> {
        let changes = lock(&self.changes);
        let overflow = changes.is_too_many.then_some(Record::ChangedOverflow);
        changes.hashes.iter().map(|hash| Record::Changed { hash: *hash }).chain(overflow).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_count_only_while_a_disk_is_away() {
        let away = Away::default();
        let hash = |n: u32| KeyHash::of(&n.to_le_bytes(), 1);
        assert_eq!(away.note(&hash(1)), None);
        away.begin();
        assert_eq!(away.note(&hash(2)), Some(Record::Changed { hash: hash(2) }));
        assert_eq!(away.note(&hash(2)), None);
        assert!(away.is_unchanged(&hash(1)) && !away.is_unchanged(&hash(2)));
        assert_eq!(away.records().len(), 1);
        assert!(away.end());
        assert!(away.is_unchanged(&hash(2)));
    }

    #[test]
    fn too_many_changes_are_all_of_them() {
        let away = Away::default();
        away.replay(&Record::ChangedOverflow);
        assert!(!away.is_unchanged(&KeyHash::of(b"any", 1)));
        away.replay(&Record::ChangesCleared);
        assert!(away.is_unchanged(&KeyHash::of(b"any", 1)));
    }
}
