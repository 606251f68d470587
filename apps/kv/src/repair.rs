//! Copies keys to another server: fills it, repairs ranges whose hashes differ, and deletes the keys that moved there.
//!
//! # Why
//! A new server needs all keys at once, and one that was down needs a few of them. Both cases read and write a lot
//! while clients use the database.
//!
//! # How it works
//! [`fill`] streams a view of all keys, in the class `repair-read`, into the other database, in batches. [`repair`]
//! divides the keys of both into ranges of [`RANGE_KEYS`] keys of the first, compares a hash of each, and reads the
//! entries of the differing ranges only: it copies keys with another value and deletes keys that the first does not
//! have. [`cleanup`] deletes keys that a server no longer owns. The receiver's I/O has the class `repair-write` if it
//! was opened with [`crate::classes::ClassTable::of_receiver`].
//!
//! # Limits
//! Both databases are in this process. The first one is right: nothing is merged. Writes made while a view is read are
//! left to the next repair. An interrupted step starts over: it keeps no progress.
//!
//! # Example
//! `fill(&first, &second, &keys).await?`, then `repair(&first, &second, &keys).await?` copies the writes made
//! meanwhile.

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use slatedb::{Error, WriteBatch, WriteHandle};

use crate::database::{Database, View};
use crate::failure::Failure;

/// Keys of a range, which share one hash of 8 bytes.
pub const RANGE_KEYS: usize = 1024;
/// Bytes at which a batch is written.
const BATCH_BYTES: usize = 256 << 10;
/// Lifetime of the views that are read.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The differences that a repair found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Ranges compared.
    pub ranges: usize,
    /// Ranges that differed.
    pub differing: usize,
    /// Keys copied.
    pub copied: u64,
    /// Keys deleted.
    pub deleted: u64,
}

/// Copies all keys of `from` into `to`, and counts them in `keys`.
///
/// # Errors
/// A database's error.
pub async fn fill(from: &Database, to: &Database, keys: &AtomicU64) -> Result<(), Failure> {
    let filled = async {
        let view = repair_view(from).await?;
        let (mut entries, mut writes) = (view.entries(Bytes::new()..).await?, Writes::into(to));

        while let Some(entry) = entries.next().await? {
            writes.put(entry.key, entry.value).await?;
            keys.fetch_add(1, Relaxed);
        }

        writes.end().await?;
        view.close().await;
        Ok::<(), Error>(())
    };
    filled.await.map_err(|error| Failure::machine("cannot copy to the second database", error))
}

/// Makes `to` equal to `from`, and counts the keys read in `keys`.
///
/// # Errors
/// A database's error.
pub async fn repair(from: &Database, to: &Database, keys: &AtomicU64) -> Result<Differences, Failure> {
    let repaired = async {
        let (ours, theirs) = (repair_view(from).await?, repair_view(to).await?);
        let ranges = hash_ranges(&ours, None, keys).await?;
        let others = hash_ranges(&theirs, Some(&ranges), keys).await?;

        let mut found = Differences { ranges: ranges.len(), ..Differences::default() };
        let mut writes = Writes::into(to);
        for (number, range) in ranges.iter().enumerate() {
            if range.hash == others[number].hash {
                continue;
            }
            found.differing += 1;
            let until = ranges.get(number + 1).map_or(Bound::Unbounded, |next| Bound::Excluded(next.first.clone()));
            let bounds = (Bound::Included(range.first.clone()), until);
            copy_differences(&ours, &theirs, bounds, &mut writes, &mut found).await?;
        }

        writes.end().await?;
        ours.close().await;
        theirs.close().await;
        Ok::<Differences, Error>(found)
    };
    repaired.await.map_err(|error| Failure::machine("cannot repair the second database", error))
}

/// Deletes the keys of `database` for which `is_kept` is false, and counts them in `keys`.
///
/// # Errors
/// The database's error.
pub async fn cleanup(database: &Database, is_kept: fn(&[u8]) -> bool, keys: &AtomicU64) -> Result<(), Failure> {
    let cleaned = async {
        let view = repair_view(database).await?;
        let (mut entries, mut writes) = (view.entries(Bytes::new()..).await?, Writes::into(database));

        while let Some(entry) = entries.next().await? {
            if !is_kept(&entry.key) {
                writes.delete(entry.key).await?;
                keys.fetch_add(1, Relaxed);
            }
        }

        writes.end().await?;
        view.close().await;
        Ok::<(), Error>(())
    };
    cleaned.await.map_err(|error| Failure::machine("cannot remove what has moved", error))
}

async fn repair_view(database: &Database) -> Result<View, Error> {
    database.view(database.classes().repair_read, LIFETIME).await
}

/// A range of keys, up to the first key of the next.
struct Range {
    first: Bytes,
    hash: u64,
}

/// Returns the hashed ranges of `view`, with the bounds of `like` or of [`RANGE_KEYS`] keys each. The first begins at
/// the empty key.
async fn hash_ranges(view: &View, like: Option<&[Range]>, keys: &AtomicU64) -> Result<Vec<Range>, Error> {
    let mut ranges = Vec::new();
    let (mut first, mut hasher, mut count) = (Bytes::new(), DefaultHasher::new(), 0);

    let mut entries = view.entries(Bytes::new()..).await?;
    while let Some(entry) = entries.next().await? {
        while let Some(next) = match like {
            Some(like) => like.get(ranges.len() + 1).map(|next| &next.first).filter(|next| **next <= entry.key),
            None => (count == RANGE_KEYS).then_some(&entry.key),
        } {
            let begun = std::mem::replace(&mut first, next.clone());
            ranges.push(Range { first: begun, hash: std::mem::take(&mut hasher).finish() });
            count = 0;
        }
        (&*entry.key, &*entry.value).hash(&mut hasher);
        count += 1;
        keys.fetch_add(1, Relaxed);
    }

    ranges.push(Range { first, hash: hasher.finish() });
    for rest in like.unwrap_or_default().iter().skip(ranges.len()) {
        ranges.push(Range { first: rest.first.clone(), hash: DefaultHasher::new().finish() });
    }

    Ok(ranges)
}

/// Writes the changes that make the entries of `theirs` within `bounds` equal to those of `ours`.
async fn copy_differences(
    ours: &View,
    theirs: &View,
    bounds: (Bound<Bytes>, Bound<Bytes>),
    writes: &mut Writes<'_>,
    found: &mut Differences,
) -> Result<(), Error> {
    let (mut ours, mut theirs) = (ours.entries(bounds.clone()).await?, theirs.entries(bounds).await?);
    let (mut mine, mut other) = (ours.next().await?, theirs.next().await?);

    loop {
        let order = match (&mine, &other) {
            (Some(mine), Some(other)) => mine.key.cmp(&other.key),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Ok(()),
        };

        let (taken, dropped) = match order {
            Ordering::Less => (mine.take(), None),
            Ordering::Greater => (None, other.take()),
            Ordering::Equal => {
                (mine.take().zip(other.take()).filter(|(a, b)| a.value != b.value).map(|(a, _)| a), None)
            }
        };

        if let Some(entry) = taken {
            writes.put(entry.key, entry.value).await?;
            found.copied += 1;
        }
        if let Some(entry) = dropped {
            writes.delete(entry.key).await?;
            found.deleted += 1;
        }

        if order.is_le() {
            mine = ours.next().await?;
        }
        if order.is_ge() {
            other = theirs.next().await?;
        }
    }
}

/// Writes into a database, in batches.
struct Writes<'d> {
    database: &'d Database,
    batch: WriteBatch,
    batch_bytes: usize,
    last: Option<WriteHandle>,
}

impl Writes<'_> {
    fn into(database: &Database) -> Writes<'_> {
        Writes { database, batch: WriteBatch::new(), batch_bytes: 0, last: None }
    }

    async fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), Error> {
        self.batch_bytes += key.len() + value.len();
        self.batch.put_bytes(key, value);
        self.write_if(BATCH_BYTES).await
    }

    async fn delete(&mut self, key: Bytes) -> Result<(), Error> {
        self.batch_bytes += key.len();
        self.batch.delete(key);
        self.write_if(BATCH_BYTES).await
    }

    /// Writes the batch if it has at least `least_bytes`.
    async fn write_if(&mut self, least_bytes: usize) -> Result<(), Error> {
        if self.batch_bytes >= least_bytes {
            self.batch_bytes = 0;
            self.last = Some(self.database.write(std::mem::take(&mut self.batch)).await?);
        }
        Ok(())
    }

    /// Writes the last batch, and waits until all batches are durable.
    async fn end(mut self) -> Result<(), Error> {
        self.write_if(1).await?;
        match self.last {
            Some(last) => last.await_durable().await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use std::path::Path;

    use super::*;
    use crate::options::DatabaseOptions;
    use crate::settings::MEMORY_MIN_BYTES;

    fn options(directory: &Path, name: &str) -> DatabaseOptions {
        DatabaseOptions { memory_bytes: MEMORY_MIN_BYTES, ..DatabaseOptions::new(directory.join(name)) }
    }

    async fn open_two(directory: &Path) -> (Database, Database) {
        let first = Database::open(&options(directory, "first")).await.unwrap();
        let classes = first.classes().of_receiver();
        let second = options(directory, "second");
        let second = Database::open_on(first.engine(), &second, classes, None).await.unwrap();
        (first, second)
    }

    async fn set(database: &Database, key: u32, value: &str) {
        let handle = database.set(format!("{key:06}").as_bytes(), value.as_bytes()).await.unwrap();
        handle.await_durable().await.unwrap();
    }

    async fn set_many(database: &Database, keys: impl Iterator<Item = u32>) {
        let mut writes = Writes::into(database);
        for key in keys {
            writes.put(format!("{key:06}").into(), format!("value {key}").into()).await.unwrap();
        }
        writes.end().await.unwrap();
    }

    async fn content(database: &Database) -> Vec<(Bytes, Bytes)> {
        let mut scan = database.scan(Duration::from_secs(60)).await.unwrap();
        let mut content = Vec::new();
        while let Some(entry) = scan.next().await.unwrap() {
            content.push(entry);
        }
        scan.close().await;
        content
    }

    #[tokio::test]
    async fn a_copy_is_what_the_original_is_and_only_ranges_that_differ_are_repaired() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = open_two(directory.path()).await;
        let (keys, ranges) = (AtomicU64::new(0), 5);
        set_many(&first, 0..ranges * RANGE_KEYS as u32).await;
        fill(&first, &second, &keys).await.unwrap();
        assert_eq!(keys.load(Relaxed), u64::from(ranges) * RANGE_KEYS as u64);
        assert_eq!(content(&first).await, content(&second).await);
        let ranges = ranges as usize;
        let same = Differences { ranges, ..Differences::default() };
        assert_eq!(repair(&first, &second, &keys).await.unwrap(), same);

        // Another value and a missing key in the first range, a key too many in the third and after the last one.
        set(&first, 7, "new").await;
        second.delete(b"000009").await.unwrap().await_durable().await.unwrap();
        for key in [b"002500x".as_slice(), b"999999"] {
            second.set(key, b"too much").await.unwrap().await_durable().await.unwrap();
        }
        let found = repair(&first, &second, &keys).await.unwrap();
        assert_eq!(found, Differences { ranges, differing: 3, copied: 2, deleted: 2 });
        assert_eq!(content(&first).await, content(&second).await);

        cleanup(&first, |key| key < b"001000".as_slice(), &keys).await.unwrap();
        assert_eq!(content(&first).await.len(), 1000);
        // All I/O of the receiver is repair.
        let of = |name: &str| first.topology().classes().find(name).unwrap();
        assert_eq!(second.classes().memtable, of("repair-write"));
        first.close().await.unwrap();
        second.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_copy_that_was_interrupted_is_repaired() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = open_two(directory.path()).await;
        let keys = AtomicU64::new(0);
        set_many(&first, (0..3000).filter(|key| key % 3 > 0)).await;

        // An empty database is one empty range.
        let nothing = repair(&second, &second, &keys).await.unwrap();
        assert_eq!(nothing, Differences { ranges: 1, ..Differences::default() });

        // The second server has a third of the keys, and some that the first does not have.
        set_many(&second, 0..1000).await;
        second.close().await.unwrap();

        let classes = first.classes().of_receiver();
        let second = options(directory.path(), "second");
        let second = Database::open_on(first.engine(), &second, classes, None).await.unwrap();

        repair(&first, &second, &keys).await.unwrap();
        assert_eq!(content(&first).await, content(&second).await);
        second.close().await.unwrap();
        first.close().await.unwrap();
    }
}
