//! A cache in a map, and a store that counts its requests, answers slowly, and fails or changes on demand.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, Extensions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use plimsoll::Class;
use plimsoll_cache::Block;
use plimsoll_cache::object_store::{Blocks, Writing};
use plimsoll_cache::stats::MissReason;

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Returns bytes that differ between any two blocks, and between any two salts.
pub(crate) fn patterned(len_bytes: u64, salt: u8) -> Vec<u8> {
    (0..len_bytes).map(|at| (at ^ (at >> 8) ^ (at >> 14).wrapping_mul(37)) as u8 ^ salt).collect()
}

#[derive(Default)]
pub(crate) struct MapCache {
    blocks: Mutex<HashMap<Vec<u8>, Block>>,
    classes: Mutex<Vec<Option<Class>>>,
    gets: AtomicUsize,
    /// Every n-th look-up cannot read what is there; 0: all can.
    forget_every: usize,
    /// How often a look-up yields between its look into the map and its end.
    yields: usize,
    /// Whether a write lasts until it is ended.
    is_slow: bool,
    writing: Mutex<Vec<(Vec<u8>, Block, Writing)>>,
}

impl MapCache {
    /// Returns a cache whose look-ups end late, with what they found at first.
    pub(crate) fn late(yields: usize) -> MapCache {
        MapCache { yields, ..MapCache::default() }
    }

    /// Returns a cache in which every `forget_every`-th look-up cannot read what is there.
    pub(crate) fn forgetting(forget_every: usize) -> MapCache {
        MapCache { forget_every, ..MapCache::default() }
    }

    /// Returns a cache whose writes end when they are told to.
    pub(crate) fn slow() -> MapCache {
        MapCache { is_slow: true, ..MapCache::default() }
    }

    /// Ends all writes: each is stored, or dropped. Returns how many they are.
    pub(crate) fn end_writes(&self, is_stored: bool) -> usize {
        let ended = std::mem::take(&mut *self.writing.lock().unwrap());
        let count = ended.len();
        for (key, value, writing) in ended {
            if is_stored {
                self.blocks.lock().unwrap().insert(key, value);
            }
            drop(writing);
        }
        count
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.lock().unwrap().len()
    }

    /// Returns the classes seen since the last call, without repetitions in a row.
    pub(crate) fn classes(&self) -> Vec<Option<Class>> {
        let mut classes = std::mem::take(&mut *self.classes.lock().unwrap());
        classes.dedup();
        classes
    }

    pub(crate) fn remove_all(&self) {
        self.blocks.lock().unwrap().clear();
    }

    pub(crate) fn corrupt_all(&self) {
        for block in self.blocks.lock().unwrap().values_mut() {
            *block = Block::from_vec(block.iter().map(|byte| !byte).collect());
        }
    }
}

impl Blocks for MapCache {
    fn get<'a>(&'a self, key: &'a [u8], class: Option<Class>) -> BoxFuture<'a, Result<Block, MissReason>> {
        self.classes.lock().unwrap().push(class);
        let is_forgotten = self.forget_every > 0 && self.gets.fetch_add(1, SeqCst).is_multiple_of(self.forget_every);
        async move {
            tokio::task::yield_now().await;
            let found = self.blocks.lock().unwrap().get(key).cloned();
            for _ in 0..self.yields {
                tokio::task::yield_now().await;
            }
            match found {
                Some(_) if is_forgotten => Err(MissReason::Corrupt),
                found => found.ok_or(MissReason::Absent),
            }
        }
        .boxed()
    }

    fn touch(&self, key: &[u8]) -> bool {
        self.blocks.lock().unwrap().contains_key(key)
    }

    fn insert(&self, key: &[u8], value: Block, _: Option<Class>, writing: Writing) {
        if self.is_slow {
            self.writing.lock().unwrap().push((key.to_vec(), value, writing));
        } else {
            self.blocks.lock().unwrap().insert(key.to_vec(), value);
        }
    }

    fn remove(&self, key: &[u8]) {
        self.blocks.lock().unwrap().remove(key);
    }
}

/// What a store says that is not so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    /// The object is this much longer, in metadata.
    Size(i64),
    /// Its entity tag is another one in metadata than with data.
    Tag,
    /// As many bytes come as were asked for, less these.
    Length(i64),
}

impl Lie {
    fn tell(self, is_head: bool, mut answer: GetResult) -> GetResult {
        match self {
            Lie::Size(by) if is_head => answer.meta.size = answer.meta.size.saturating_add_signed(by),
            Lie::Tag if is_head => answer.meta.e_tag = Some("no such tag".to_owned()),
            Lie::Length(by) if !is_head => {
                let len = (answer.range.end - answer.range.start).saturating_add_signed(-by) as usize;
                let body = futures_util::stream::iter([Ok(Bytes::from(vec![7; len]))]);
                answer.payload = object_store::GetResultPayload::Stream(body.boxed());
            }
            _ => {}
        }
        answer
    }
}

#[derive(Debug)]
pub(crate) struct Counting {
    inner: Arc<dyn ObjectStore>,
    heads: AtomicUsize,
    gets: AtomicUsize,
    failures: AtomicUsize,
    changes: AtomicUsize,
    is_down: AtomicBool,
    lie: Mutex<Option<Lie>>,
    salt: AtomicU8,
    extensions: Mutex<Vec<Extensions>>,
}

impl Counting {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Counting {
        let [heads, gets, failures, changes] = std::array::from_fn(|_| AtomicUsize::new(0));
        let (is_down, lie, salt) = (AtomicBool::new(false), Mutex::default(), AtomicU8::new(100));
        Counting { inner, heads, gets, failures, changes, is_down, lie, salt, extensions: Mutex::default() }
    }

    /// Fails every request from now on, or no more.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, SeqCst);
    }

    /// Lies in every answer from now on.
    pub(crate) fn lie(&self, lie: Lie) {
        *self.lie.lock().unwrap() = Some(lie);
    }

    pub(crate) fn heads(&self) -> usize {
        self.heads.load(SeqCst)
    }

    /// Returns the number of requests for data, `get_ranges` included.
    pub(crate) fn gets(&self) -> usize {
        self.gets.load(SeqCst)
    }

    pub(crate) fn reset(&self) {
        self.heads.store(0, SeqCst);
        self.gets.store(0, SeqCst);
    }

    pub(crate) fn fail_gets(&self, count: usize) {
        self.failures.store(count, SeqCst);
    }

    /// Overwrites the object just before each of the next `count` requests for data.
    pub(crate) fn change_before_gets(&self, count: usize) {
        self.changes.store(count, SeqCst);
    }

    /// Returns the content that the last change wrote.
    pub(crate) fn changed_to(&self) -> Vec<u8> {
        let salt = self.salt.load(SeqCst);
        patterned(u64::from(salt) * 1000, salt)
    }

    /// Returns the number of requests with a tag of this type.
    pub(crate) fn tagged<T: Clone + Send + Sync + 'static>(&self) -> usize {
        self.extensions.lock().unwrap().iter().filter(|extensions| extensions.get::<T>().is_some()).count()
    }
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counting({})", self.inner)
    }
}

fn take_one(count: &AtomicUsize) -> bool {
    count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok()
}

#[async_trait]
impl ObjectStore for Counting {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.extensions.lock().unwrap().push(options.extensions.clone());
        let lie = *self.lie.lock().unwrap();
        let is_head = options.head;
        let told = |answer| match lie {
            Some(lie) => lie.tell(is_head, answer),
            None => answer,
        };
        (if is_head { &self.heads } else { &self.gets }).fetch_add(1, SeqCst);
        if self.is_down.load(SeqCst) {
            return Err(Error::Generic { store: "Counting", source: "it is down".into() });
        }
        if is_head {
            return self.inner.get_opts(location, options).await.map(told);
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        if take_one(&self.failures) {
            return Err(Error::Generic { store: "Counting", source: "told to fail".into() });
        }
        if take_one(&self.changes) {
            self.salt.fetch_add(1, SeqCst);
            self.inner.put(location, self.changed_to().into()).await?;
        }
        self.inner.get_opts(location, options).await.map(told)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.gets.fetch_add(1, SeqCst);
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
