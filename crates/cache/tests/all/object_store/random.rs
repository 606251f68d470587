//! Random reads and writes, through the wrapper and behind its back: every answer is compared with the store's own.

use std::mem::discriminant;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use plimsoll_cache::object_store::CachedStore;

use super::counting::{MapCache, patterned};
use crate::random::Random;

struct Story {
    random: Random,
    inner: Arc<dyn ObjectStore>,
    store: CachedStore,
    /// Whether objects also change behind the wrapper's back.
    is_shared: bool,
    /// Grows with each write, so that no two states of an object are of one size: see the wrapper's limits.
    writes: u64,
}

/// Runs a story of `steps` steps with wrappers of each kind.
pub(crate) async fn compare(inner: Arc<dyn ObjectStore>, seed: u64, steps: usize) {
    for (block_bytes, ttl, forget_every) in
        [(4096, Duration::ZERO, 0), (16_384, Duration::ZERO, 3), (65_536, Duration::MAX, 5)]
    {
        let cache = Arc::new(MapCache::forgetting(forget_every));
        let builder = CachedStore::builder(inner.clone(), cache).block_bytes(block_bytes).unwrap();
        let store = builder.meta_ttl(ttl).fetch_bytes(100_000).gap_bytes(20_000).build();
        let random = Random::new(seed);
        let mut story = Story { random, inner: inner.clone(), store, is_shared: ttl.is_zero(), writes: 0 };
        for step in 0..steps {
            story.step(step).await;
        }
        assert!(story.store.stats().hit_blocks > 0);
        let names: Vec<_> = inner.list(None).try_collect().await.unwrap();
        for meta in names {
            inner.delete(&meta.location).await.unwrap();
        }
    }
}

impl Story {
    async fn step(&mut self, step: usize) {
        let location = Path::from(format!("dir/object {}", self.random.below(4)));
        let size = self.inner.head(&location).await.map_or(0, |meta| meta.size);
        match self.random.below(20) {
            0..=1 => self.put(&location).await,
            2 => self.remove(&location).await,
            3 => self.copy(&location).await,
            4 => self.multipart(&location).await,
            5..=8 => self.ranges(&location, size, step).await,
            _ => self.read(&location, size, step).await,
        }
    }

    /// Picks the store that takes this step's write.
    fn writer(&mut self) -> Arc<dyn ObjectStore> {
        let is_behind = self.is_shared && self.random.below(2) == 0;
        if is_behind { self.inner.clone() } else { Arc::new(self.store.clone()) }
    }

    fn content(&mut self) -> Vec<u8> {
        self.writes += 1;
        // Now and then empty, tiny, or just at the border of blocks.
        let around = [0, 1, 4095, 16_384, 65_537, 131_072, 300_000][self.random.below(7) as usize];
        let len_bytes = if around == 0 { 0 } else { around + self.writes * 7 % 5003 };
        patterned(len_bytes, self.random.below(256) as u8)
    }

    async fn put(&mut self, location: &Path) {
        let content = self.content();
        self.writer().put(location, content.into()).await.unwrap();
    }

    async fn multipart(&mut self, location: &Path) {
        let content = self.content();
        let mut upload = self.writer().put_multipart(location).await.unwrap();
        upload.put_part(content.into()).await.unwrap();
        upload.complete().await.unwrap();
    }

    async fn remove(&mut self, location: &Path) {
        // Some stores report that it was not there.
        let _ = self.writer().delete(location).await;
    }

    async fn copy(&mut self, from: &Path) {
        let to = Path::from(format!("dir/object {}", self.random.below(4)));
        if self.inner.head(from).await.is_err() || *from == to {
            return;
        }
        match self.random.below(2) {
            0 => self.writer().copy(from, &to).await.unwrap(),
            _ => self.writer().rename(from, &to).await.unwrap(),
        }
    }

    fn some_range(&mut self, size: u64) -> Range<u64> {
        let start = self.random.below(size + size / 20 + 2);
        let len_bytes = [1, 100, 5000, 70_000, 400_000][self.random.below(5) as usize];
        start..start + 1 + self.random.below(len_bytes)
    }

    async fn options(&mut self, location: &Path, size: u64) -> GetOptions {
        let range: Option<GetRange> = match self.random.below(6) {
            0 => None,
            1 => Some(GetRange::Offset(self.random.below(size + 2))),
            2 => Some(GetRange::Suffix(1 + self.random.below(size + 100))),
            _ => Some(self.some_range(size).into()),
        };
        let options = GetOptions { range, ..GetOptions::default() };
        let meta = self.inner.head(location).await.ok();
        let e_tag = meta.as_ref().and_then(|meta| meta.e_tag.clone());
        let modified = meta.map(|meta| meta.last_modified);
        match self.random.below(10) {
            0 => options.with_if_match(e_tag),
            1 => options.with_if_match(Some("\"other\"")),
            2 => options.with_if_none_match(e_tag),
            3 => options.with_if_none_match(Some("\"other\"")),
            4 => options.with_if_modified_since(modified),
            5 => options.with_if_unmodified_since(modified),
            6 => options.with_head(true).with_range(None::<Range<u64>>),
            _ => options,
        }
    }

    async fn read(&mut self, location: &Path, size: u64, step: usize) {
        let options = self.options(location, size).await;
        let theirs = self.inner.get_opts(location, options.clone()).await;
        let ours = self.store.get_opts(location, options.clone()).await;
        let what = format!("step {step}: {location} of {size} bytes, {options:?}");
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!((&ours.meta, &ours.attributes), (&theirs.meta, &theirs.attributes), "{what}");
                assert_eq!(ours.range, theirs.range, "{what}");
                if !options.head {
                    assert!(ours.bytes().await.unwrap() == theirs.bytes().await.unwrap(), "{what}");
                }
            }
            (Err(ours), Err(theirs)) => {
                assert_eq!(discriminant(&ours), discriminant(&theirs), "{what}: {ours}; {theirs}")
            }
            (ours, theirs) => panic!("{what}: {ours:?}, but the store: {theirs:?}"),
        }
    }

    async fn ranges(&mut self, location: &Path, size: u64, step: usize) {
        let ranges: Vec<_> = (0..self.random.below(8))
            .map(|_| {
                let range = self.some_range(size);
                // Mostly within the object: one range outside spoils all of them.
                if self.random.below(30) == 0 {
                    range
                } else {
                    range.start.min(size.saturating_sub(1))..range.end.min(size).max(1)
                }
            })
            .filter(|range| !range.is_empty())
            .collect();
        let theirs = self.inner.get_ranges(location, &ranges).await;
        let ours = self.store.get_ranges(location, &ranges).await;
        let what = format!("step {step}: {location} of {size} bytes, {ranges:?}");
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => assert!(ours == theirs, "{what}"),
            (Err(ours), Err(theirs)) => {
                assert_eq!(discriminant(&ours), discriminant(&theirs), "{what}: {ours}; {theirs}")
            }
            // Without ranges, some stores report a missing object and some do not.
            _ if ranges.is_empty() => {}
            (ours, theirs) => panic!("{what}: {ours:?}, but the store: {theirs:?}"),
        }
    }
}
