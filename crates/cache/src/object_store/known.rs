//! Keeps metadata of objects for a while.
//!
//! # How it works
//! A bounded map by location. Metadata are entered only if the location was not invalidated since they were requested:
//! each location belongs to one of 64 stripes, a lock around a count of invalidations. So a slow answer never brings
//! back a state that a put has ended.

use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ::object_store::path::Path;
use ::object_store::{Attributes, ObjectMeta};
use quick_cache::DefaultHashBuilder;
use quick_cache::sync::Cache;

use crate::sync::lock;

const STRIPES: usize = 64;

/// An object in one of its states.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) meta: ObjectMeta,
    pub(super) attributes: Attributes,
    /// Prefix of its block keys.
    key: Vec<u8>,
}

impl Object {
    pub(super) fn new(namespace: &str, block_bytes: u64, meta: ObjectMeta, attributes: Attributes) -> Object {
        let tags = [meta.e_tag.as_deref(), meta.version.as_deref()];
        let mut key = Vec::with_capacity(160);
        for text in [Some(namespace), Some(meta.location.as_ref())].into_iter().chain(tags) {
            // Lengths in front, so that no two objects' texts can run together into the same key.
            key.extend_from_slice(&text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
            key.extend_from_slice(text.unwrap_or_default().as_bytes());
        }
        key.extend_from_slice(&meta.size.to_le_bytes());
        key.extend_from_slice(&meta.last_modified.timestamp_micros().to_le_bytes());
        key.extend_from_slice(&block_bytes.to_le_bytes());
        Object { meta, attributes, key }
    }

    /// Returns the key of one of its blocks.
    pub(super) fn block_key(&self, block: u64) -> Vec<u8> {
        [&self.key[..], &block.to_le_bytes()].concat()
    }

    /// Returns whether `other` describes the same state of the object.
    pub(super) fn is(&self, other: &ObjectMeta) -> bool {
        let meta = &self.meta;
        let same_tag = match (&meta.e_tag, &other.e_tag) {
            (Some(one), Some(another)) => one == another,
            _ => meta.last_modified == other.last_modified,
        };
        let same_version = match (&meta.version, &other.version) {
            (Some(one), Some(another)) => one == another,
            _ => true,
        };
        meta.size == other.size && same_tag && same_version
    }
}

/// Metadata of objects, each for a limited time.
pub(super) struct Known {
    objects: Cache<Path, (Arc<Object>, Instant)>,
    invalidations: [Mutex<u64>; STRIPES],
    hash: DefaultHashBuilder,
    ttl: Duration,
}

impl Known {
    pub(super) fn new(objects: usize, ttl: Duration) -> Known {
        let invalidations = std::array::from_fn(|_| Mutex::new(0));
        Known { objects: Cache::new(objects), invalidations, hash: DefaultHashBuilder::default(), ttl }
    }

    fn stripe(&self, location: &Path) -> MutexGuard<'_, u64> {
        let mut hasher = self.hash.build_hasher();
        hasher.write(location.as_ref().as_bytes());
        let stripe = &self.invalidations[hasher.finish() as usize % STRIPES];
        lock(stripe)
    }

    /// Returns the object, if its metadata are younger than the time to live.
    pub(super) fn get(&self, location: &Path) -> Option<Arc<Object>> {
        if self.ttl.is_zero() {
            return None;
        }
        let (object, learned) = self.objects.get(location)?;
        (learned.elapsed() < self.ttl).then_some(object)
    }

    /// Returns the object, if its metadata are at most `beyond` older than the time to live.
    pub(super) fn stale(&self, location: &Path, beyond: Duration) -> Option<Arc<Object>> {
        let (object, learned) = self.objects.get(location)?;
        (learned.elapsed() < self.ttl.saturating_add(beyond)).then_some(object)
    }

    /// Returns the count of invalidations. Read it before asking the store, and pass it to [`Known::learn`] afterwards.
    pub(super) fn epoch(&self, location: &Path) -> u64 {
        *self.stripe(location)
    }

    /// Remembers an object, unless its location was invalidated since `epoch`. Returns its former state, if that was a
    /// different one.
    pub(super) fn learn(&self, object: &Arc<Object>, epoch: u64) -> Option<Arc<Object>> {
        let location = &object.meta.location;
        let stripe = self.stripe(location);
        if *stripe != epoch {
            return None;
        }
        let former = self.objects.peek(location);
        self.objects.insert(location.clone(), (object.clone(), Instant::now()));
        former.map(|(former, _)| former).filter(|former| !former.is(&object.meta))
    }

    /// Forgets an object, and rejects answers to requests under way. Returns its last known state.
    pub(super) fn invalidate(&self, location: &Path) -> Option<Arc<Object>> {
        let mut stripe = self.stripe(location);
        *stripe += 1;
        let (_, (object, _)) = self.objects.remove(location)?;
        Some(object)
    }

    /// Rejects all answers to requests under way, also about objects that are not known yet.
    pub(super) fn invalidate_answers(&self) {
        self.invalidations.iter().for_each(|stripe| *lock(stripe) += 1);
    }

    /// Returns the locations of all objects. None is locked meanwhile, and objects learned meanwhile may be among them.
    pub(super) fn locations(&self) -> impl Iterator<Item = Path> {
        self.objects.iter().map(|(location, _)| location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(location: &str, e_tag: Option<&str>) -> Arc<Object> {
        let meta = ObjectMeta {
            location: location.into(),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 10,
            e_tag: e_tag.map(str::to_owned),
            version: None,
        };
        Arc::new(Object::new("space", 4096, meta, Attributes::default()))
    }

    #[test]
    fn an_answer_older_than_an_invalidation_is_not_learned() {
        let known = Known::new(10, Duration::MAX);
        let before = known.epoch(&"a".into());
        known.learn(&object("a", Some("1")), before);
        assert!(known.get(&"a".into()).is_some());
        assert!(known.invalidate(&"a".into()).is_some());
        known.learn(&object("a", Some("1")), before);
        assert!(known.get(&"a".into()).is_none());
        assert!(known.learn(&object("a", Some("2")), known.epoch(&"a".into())).is_none());
        assert!(known.get(&"a".into()).is_some());
        let former = known.learn(&object("a", Some("3")), known.epoch(&"a".into()));
        assert_eq!(former.and_then(|former| former.meta.e_tag.clone()).as_deref(), Some("2"));
    }

    #[test]
    fn answers_under_way_are_not_learned_whatever_they_are_about() {
        let known = Known::new(10, Duration::MAX);
        let all = ["t/1", "t/deep/2", "tt/3"];
        let before: Vec<u64> = all.iter().map(|location| known.epoch(&(*location).into())).collect();
        for location in &all[1..] {
            known.learn(&object(location, None), known.epoch(&(*location).into()));
        }
        known.invalidate_answers();
        known.learn(&object("t/1", None), before[0]);
        let mut known_now: Vec<Path> = known.locations().collect();
        known_now.sort();
        assert_eq!(known_now, ["t/deep/2", "tt/3"].map(Path::from));
    }

    #[test]
    fn without_a_time_to_live_nothing_is_trusted_but_blocks_are_found_again() {
        let known = Known::new(10, Duration::ZERO);
        known.learn(&object("a", None), known.epoch(&"a".into()));
        assert!(known.get(&"a".into()).is_none());
        assert!(known.invalidate(&"a".into()).is_some(), "so that its blocks can be removed");
    }

    #[test]
    fn keys_differ_wherever_objects_do() {
        let objects = [
            object("a", None),
            object("ab", None),
            object("a", Some("")),
            object("a", Some("b")),
            object("", Some("ab")),
            Arc::new(Object::new("", 4096, object("a", None).meta.clone(), Attributes::default())),
            Arc::new(Object::new("space", 8192, object("a", None).meta.clone(), Attributes::default())),
        ];
        let keys: std::collections::HashSet<_> =
            objects.iter().flat_map(|object| [object.block_key(0), object.block_key(1)]).collect();
        assert_eq!(keys.len(), objects.len() * 2);
    }
}
