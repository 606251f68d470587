//! Keys and values of a program's types: what comes back is what was inserted, under that key and no other.

use std::cell::Cell;

use crate::world::Town;
use plimsoll_cache::{BlockCache, CacheConfig, Code, FetchError, Inserted, TypedCache};

/// A place, and the second version of its encoding.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    row: u64,
    name: String,
}

impl Code for Place {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(2);
        self.row.encode(bytes);
        self.name.encode(bytes);
    }

    fn decode(bytes: &[u8]) -> Option<Place> {
        let (version, rest) = bytes.split_first()?;
        let (row, name) = rest.split_at_checked(8)?;
        (*version == 2).then_some(Place { row: u64::decode(row)?, name: String::decode(name)? })
    }
}

fn place(row: u64) -> Place {
    Place { row, name: format!("row {row}") }
}

/// Runs `body` with the cache of a town.
fn with_cache(town: &Town, body: impl AsyncFnOnce(&TypedCache<Place, Place>)) {
    let mut life = town.open(&CacheConfig::default());
    let cache = TypedCache::from(life.cache.take().unwrap());
    life.runtime().block_on(0, body(&cache)).unwrap();
    life.cache = Some(cache.into_inner());
    life.close();
}

fn town() -> Town {
    let town = Town::new(1, 32 << 20, 3);
    town.create(1 << 20);
    town
}

fn encoded(place: &Place) -> Vec<u8> {
    let mut bytes = Vec::new();
    place.encode(&mut bytes);
    bytes
}

/// Returns the block that the cache has of a key.
async fn block(cache: &BlockCache, key: &Place) -> Vec<u8> {
    cache.get(&encoded(key)).await.unwrap().block().unwrap().to_vec()
}

#[test]
fn values_come_back_as_they_were_inserted() {
    let town = town();
    with_cache(&town, async |cache| {
        assert_eq!(cache.get(&place(1)).await.unwrap(), None);
        for row in 1..100 {
            assert_eq!(cache.insert(&place(row), &place(row * 2)).await.unwrap(), Inserted::Stored);
        }
        assert!(cache.remove(&place(5)).await.unwrap());
        assert!(!cache.remove(&place(5)).await.unwrap());
    });
    with_cache(&town, async |cache| {
        for row in 1..100 {
            let found = cache.get(&place(row)).await.unwrap();
            assert_eq!(found, (row != 5).then(|| place(row * 2)), "{row}");
        }
        assert_eq!(cache.inner().stats().blocks, 98);
    });
}

/// What the cache would return if the two keys had one hash.
#[test]
fn a_value_of_another_key_is_a_miss() {
    with_cache(&town(), async |cache| {
        cache.insert(&place(1), &place(10)).await.unwrap();
        let of_other = block(cache.inner(), &place(1)).await;
        for wrong in [&of_other[..], b"\0", b"abc", &[255; 20], &[1, 0, 0, 0]] {
            cache.inner().insert(&encoded(&place(2)), wrong).await.unwrap();
            assert_eq!(cache.get(&place(2)).await.unwrap(), None, "{wrong:?}");
            let fetched = cache.get_or_fetch(&place(2), async || Ok::<_, ()>(place(20))).await;
            assert_eq!(fetched.unwrap(), place(20));
            assert_eq!(cache.get(&place(2)).await.unwrap(), Some(place(20)), "it is cached");
        }
    });
}

#[test]
fn a_value_of_an_older_encoding_is_a_miss() {
    with_cache(&town(), async |cache| {
        cache.insert(&place(1), &place(10)).await.unwrap();
        let mut older = block(cache.inner(), &place(1)).await;
        let at = 4 + encoded(&place(1)).len();
        older[at] = 1;
        cache.inner().insert(&encoded(&place(1)), &older).await.unwrap();
        assert_eq!(cache.get(&place(1)).await.unwrap(), None);
    });
}

#[test]
fn a_value_is_fetched_once() {
    with_cache(&town(), async |cache| {
        let fetches = Cell::new(0);
        let fetch = async || {
            fetches.set(fetches.get() + 1);
            Ok::<_, ()>(place(10))
        };
        for _ in 0..3 {
            assert_eq!(cache.get_or_fetch(&place(1), fetch).await.unwrap(), place(10));
        }
        assert_eq!(fetches.get(), 1);
        let failed = cache.get_or_fetch(&place(2), async || Err::<Place, _>("no origin")).await;
        assert!(matches!(failed, Err(FetchError::Origin(why)) if *why == "no origin"));
        assert_eq!(cache.get(&place(2)).await.unwrap(), None);
    });
}
