//! Objects that change, and stores that do not answer: how long known metadata are trusted.

use std::time::Duration;

use futures_util::stream::StreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStoreExt};
use plimsoll_cache::object_store::CachedStoreBuilder;

use super::counting::{block_on, patterned};
use super::{BLOCK, read, world};

#[test]
fn an_answer_is_never_a_mixture() {
    block_on(async {
        // 3 requests' worth; the object changes after the first.
        let (inner, _, store) = world(12 * BLOCK, |builder| builder.fetch_bytes(4 * BLOCK as u32)).await;
        let mut answer = store.get(&"a".into()).await.unwrap().into_stream();
        assert!(answer.next().await.unwrap().is_ok());
        inner.put(&"a".into(), patterned(12 * BLOCK, 9).into()).await.unwrap();
        let rest: Vec<_> = answer.collect().await;
        assert!(rest.iter().any(Result::is_err), "the rest is gone");
        let changes = store.stats().changes;
        assert!(changes > 0);
        // It changes between head and get: the read begins anew.
        inner.change_before_gets(1);
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), inner.changed_to());
        assert_eq!(store.stats().changes, changes + 1);
        // The object changes all the time: the read bypasses the cache, and returns one state of it.
        inner.change_before_gets(100);
        let found = read(&store, GetOptions::new()).await.unwrap();
        assert!((0..=255).any(|salt| found == patterned(found.len() as u64, salt)), "one state or another");
    });
}

#[test]
fn what_the_time_to_live_promises() {
    block_on(async {
        let path = Path::from("a");
        let (inner, cache, store) = world(BLOCK, |builder| builder.meta_ttl(Duration::MAX)).await;
        let (old, new) = (patterned(BLOCK, 0), patterned(BLOCK + 1, 1));
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), old);
        inner.reset();
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), old);
        assert_eq!(store.head(&path).await.unwrap().size, BLOCK);
        assert_eq!((inner.heads(), inner.gets()), (0, 0), "nothing is asked");
        inner.put(&path, new.clone().into()).await.unwrap();
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), old, "a change elsewhere goes unnoticed");
        let e_tag = inner.head(&path).await.unwrap().e_tag;
        let conditional = GetOptions::new().with_if_match(e_tag);
        assert_eq!(read(&store, conditional).await.unwrap(), new, "a condition asks");
        store.invalidate(&path);
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), new);
        assert_eq!(cache.len(), 2, "the newest state's blocks, of which one was removed and fetched again");
        // Writes through the wrapper are always seen.
        store.put(&path, old.clone().into()).await.unwrap();
        assert_eq!((read(&store, GetOptions::new()).await.unwrap(), cache.len()), (old.clone(), 1));
        store.copy(&path, &"b".into()).await.unwrap();
        store.put(&"b".into(), new.clone().into()).await.unwrap();
        store.rename(&"b".into(), &path).await.unwrap();
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), new);
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part(old.clone().into()).await.unwrap();
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), new, "not yet");
        upload.complete().await.unwrap();
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), old);
        store.delete(&path).await.unwrap();
        assert!(matches!(read(&store, GetOptions::new()).await, Err(Error::NotFound { .. })));
        assert_eq!(cache.len(), 0);
    });
}

/// The store refused ranges behind the new end until the time to live was over.
#[test]
fn an_object_that_has_become_shorter_is_seen_to_have_changed() {
    block_on(async {
        let set_up = |builder: CachedStoreBuilder| builder.meta_ttl(Duration::MAX).fetch_bytes(4 * BLOCK as u32);
        let (inner, _, store) = world(8 * BLOCK, set_up).await;
        read(&store, GetOptions::new().with_range(Some(0..4 * BLOCK))).await.unwrap();
        inner.put(&"a".into(), patterned(BLOCK, 1).into()).await.unwrap();
        let error = read(&store, GetOptions::new()).await.unwrap_err();
        assert!(error.to_string().contains("was changed while it was read"), "{error}");
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(BLOCK, 1));

        // Nothing was handed out yet: the read starts over.
        inner.put(&"a".into(), patterned(8 * BLOCK, 2).into()).await.unwrap();
        store.invalidate(&"a".into());
        store.head(&"a".into()).await.unwrap();
        inner.put(&"a".into(), patterned(2 * BLOCK, 3).into()).await.unwrap();
        let last = GetOptions::new().with_range(Some(object_store::GetRange::Suffix(10)));
        assert_eq!(read(&store, last).await.unwrap(), patterned(2 * BLOCK, 3)[2 * BLOCK as usize - 10..]);

        // A store that is down says nothing about its objects.
        inner.set_down(true);
        let error = read(&store, GetOptions::new()).await.unwrap_err();
        assert!(error.to_string().contains("it is down"), "{error}");
        inner.set_down(false);
        assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(2 * BLOCK, 3));
    });
}

#[test]
fn objects_that_never_change_are_asked_about_once() {
    block_on(async {
        let (inner, _, store) = world(4 * BLOCK, CachedStoreBuilder::immutable).await;
        read(&store, GetOptions::new()).await.unwrap();
        for _ in 0..3 {
            assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(4 * BLOCK, 0));
        }
        assert_eq!((inner.heads(), inner.gets()), (1, 1));
    });
}

#[test]
fn what_is_cached_is_served_while_the_store_is_down_if_that_is_wanted() {
    for stale in [Duration::ZERO, Duration::from_secs(3600)] {
        block_on(async {
            let (inner, cache, store) = world(4 * BLOCK, |builder| builder.stale_while_down(stale)).await;
            let old = read(&store, GetOptions::new()).await.unwrap();
            inner.set_down(true);
            inner.reset();
            for _ in 0..3 {
                match read(&store, GetOptions::new()).await {
                    Ok(found) => assert!(!stale.is_zero() && found == old, "{stale:?}"),
                    Err(error) => assert!(stale.is_zero(), "{error}"),
                }
            }
            // A store that is down is not asked before each read.
            assert_eq!(inner.heads(), if stale.is_zero() { 3 } else { 1 });
            assert_eq!(store.stats().stale_reads, if stale.is_zero() { 0 } else { 3 });
            // A condition is the store's to judge, and what was never read is not known.
            assert!(read(&store, GetOptions::new().with_if_match(Some("x"))).await.is_err());
            assert!(store.get(&"b".into()).await.is_err());

            // Up again: the next read after a second sees a change, and an object that is gone is gone.
            inner.set_down(false);
            inner.put(&"a".into(), patterned(BLOCK, 1).into()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1100)).await;
            assert_eq!(read(&store, GetOptions::new()).await.unwrap(), patterned(BLOCK, 1));
            store.delete(&"a".into()).await.unwrap();
            inner.set_down(true);
            assert!(read(&store, GetOptions::new()).await.is_err());
            assert_eq!(cache.len(), 0);
        });
    }
}
