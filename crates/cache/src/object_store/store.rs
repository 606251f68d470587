//! The store itself: reads. Writes are in `writes`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ::object_store::path::Path;
use ::object_store::{
    CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryFutureExt;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::NAME;
use super::blocks::{IoClass, ReadOp};
use super::fetch::{ReadError, Reader};
use super::known::Object;
use super::options::Options;
use super::scope;
use super::shared::Core;
use super::stats::CachedStoreStats;
use super::writes::{Deletion, Upload, Write};

/// Attempts at a read whose object changes meanwhile; after them the read bypasses the cache.
const ATTEMPTS: usize = 3;

/// Windows of a stream that are read concurrently, including the one being handed out.
const READ_AHEAD: usize = 2;

/// An object store read through a cache. Clones share all state.
#[derive(Clone)]
pub struct CachedStore(Arc<Core>);

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}({})", self.0.inner)
    }
}

impl fmt::Debug for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME).field("inner", &self.0.inner).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn has_condition(options: &GetOptions) -> bool {
    options.if_match.is_some()
        || options.if_none_match.is_some()
        || options.if_modified_since.is_some()
        || options.if_unmodified_since.is_some()
}

/// Converts the store's own answer to a stream.
fn as_stream(answer: GetResult) -> GetResult {
    let GetResult { meta, range, attributes, extensions, .. } = &answer;
    let (meta, range, attributes, extensions) = (meta.clone(), range.clone(), attributes.clone(), extensions.clone());
    GetResult { payload: GetResultPayload::Stream(answer.into_stream()), meta, range, attributes, extensions }
}

fn answer_of(object: &Object, range: Range<u64>, bytes: BoxStream<'static, Result<Bytes>>) -> GetResult {
    GetResult {
        payload: GetResultPayload::Stream(bytes),
        meta: object.meta.clone(),
        range,
        attributes: object.attributes.clone(),
        extensions: Extensions::default(),
    }
}

impl CachedStore {
    pub(super) fn new(core: Core) -> CachedStore {
        CachedStore(Arc::new(core))
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> CachedStoreStats {
        self.0.counters.look()
    }

    /// Forgets an object's metadata and removes its blocks: for programs that learn of a change by other means.
    pub fn invalidate(&self, location: &Path) {
        self.0.invalidate(location);
    }

    /// Forgets the metadata of all objects below `prefix`, as [`CachedStore::invalidate`] does: for a table that was
    /// dropped or replaced. Blocks of objects whose metadata are no longer known stay, and are read again only if the
    /// object is the same as before. Visits all objects whose metadata are known, and lets other tasks run meanwhile;
    /// if the future is dropped, the rest stays.
    pub async fn invalidate_prefix(&self, prefix: &Path) {
        self.0.invalidate_prefix(prefix).await;
    }

    /// Brings an object, or `options.range` of it, into the cache. Missing blocks are fetched; cached ones become as
    /// new as if they had just been read, without I/O. An object that is warmed at least once in as many bytes of use
    /// as the cache holds is not evicted. Returns the bytes fetched; a cache that rejects first uses, or has no room
    /// for writes in flight, does not keep all of them.
    ///
    /// # Errors
    /// The store's; that the object was changed meanwhile; or that `options` name a version: such reads bypass the
    /// cache.
    pub async fn warm(&self, location: &Path, options: GetOptions) -> Result<u64> {
        if options.version.is_some() {
            let source = "reads of a named version bypass the cache".into();
            return Err(Error::NotSupported { source });
        }
        let options = scope::options_of(options);
        let class = IoClass { admit: true, ..(self.0.options.classify)(&options.extensions, ReadOp::Get, location) };
        let object = self.0.object(location, &options, has_condition(&options)).await?;
        let size = object.meta.size;
        let range = options.range.as_ref().map_or(Ok(0..size), |range| range.as_range(size));
        let range = range.map_err(|error| Error::Generic { store: NAME, source: error.into() })?;

        let reader = self.reader(object, class, &options.extensions);
        let warm = |window| reader.clone().warm(window).map_err(|error| self.failed(location, error));
        let windows = stream::iter(self.windows(range)).map(warm).buffered(READ_AHEAD);
        windows.try_fold(0, async |sum, fetched_bytes| Ok(sum + fetched_bytes)).await
    }

    fn reader(&self, object: Arc<Object>, class: IoClass, extensions: &Extensions) -> Reader {
        Reader { core: self.0.clone(), object, class, extensions: extensions.clone() }
    }

    /// Reads through the cache. Returns `None` if the read must bypass it. Starts over if the object changes.
    async fn try_get(&self, location: &Path, options: &GetOptions) -> Result<Option<GetResult>> {
        let class = (self.0.options.classify)(&options.extensions, ReadOp::Get, location);
        for attempt in 0..ATTEMPTS {
            let is_fresh = has_condition(options) || attempt > 0;
            let object = self.0.object(location, options, is_fresh).await?;
            let size = object.meta.size;
            let range = match &options.range {
                None => 0..size,
                // Let the store itself report an invalid or unusual range.
                Some(range) => match range.as_range(size) {
                    Ok(range) if range.start < range.end => range,
                    _ => return Ok(None),
                },
            };
            if options.head || range.is_empty() {
                return Ok(Some(answer_of(&object, range, stream::empty().boxed())));
            }

            let reader = self.reader(object.clone(), class, &options.extensions);
            // Read the first part at once: most errors of a read show there.
            let mut windows = self.windows(range.clone());
            let first = windows.next().unwrap_or_else(|| range.clone());
            match reader.clone().read_range(first).await {
                Ok(pieces) => return Ok(Some(answer_of(&object, range, self.stream(pieces, windows, reader)))),
                Err(ReadError::Origin(error)) => return Err(self.0.note_error(location, error)),
                Err(ReadError::Changed) => self.note_change(location),
            }
        }
        Ok(None)
    }

    fn note_change(&self, location: &Path) {
        self.0.counters.changes.fetch_add(1, Relaxed);
        self.0.invalidate(location);
    }

    /// Cuts a range, at block borders, into windows of at most one request.
    fn windows(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send + use<> {
        let Options { block_bytes, fetch_bytes, .. } = self.0.options;
        let mut start = range.start;
        std::iter::from_fn(move || {
            let border = (start - start % block_bytes).saturating_add(fetch_bytes);
            let window = start..border.min(range.end);
            start = window.end;
            (!window.is_empty()).then_some(window)
        })
    }

    fn stream(
        &self,
        first: Vec<Bytes>,
        windows: impl Iterator<Item = Range<u64>> + Send + 'static,
        reader: Reader,
    ) -> BoxStream<'static, Result<Bytes>> {
        let store = self.clone();
        let rest = stream::iter(windows).map(move |window| store.clone().read_window(reader.clone(), window));
        let rest = rest.buffered(READ_AHEAD).map_ok(|pieces| stream::iter(pieces).map(Ok)).try_flatten();
        stream::iter(first).map(Ok).chain(rest).boxed()
    }

    async fn read_window(self, reader: Reader, window: Range<u64>) -> Result<Vec<Bytes>> {
        let location = reader.object.meta.location.clone();
        reader.read_range(window).await.map_err(|error| self.failed(&location, error))
    }

    /// Records the failure of a read that cannot start over. Returns its error.
    fn failed(&self, location: &Path, error: ReadError) -> Error {
        match error {
            ReadError::Origin(error) => self.0.note_error(location, error),
            ReadError::Changed => {
                self.note_change(location);
                let source = format!("{location} was changed while it was read: read it again").into();
                Error::Generic { store: NAME, source }
            }
        }
    }

    /// Reads through the cache, as [`CachedStore::try_get`].
    async fn try_get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let options = scope::options_of(GetOptions::default());
        let class = (self.0.options.classify)(&options.extensions, ReadOp::GetRanges, location);
        for attempt in 0..ATTEMPTS {
            let object = self.0.object(location, &options, attempt > 0).await?;
            if ranges.iter().any(|range| range.is_empty() || range.end > object.meta.size) {
                return Ok(None);
            }
            match self.reader(object, class, &options.extensions).read_ranges(ranges.to_vec()).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(ReadError::Origin(error)) => return Err(self.0.note_error(location, error)),
                Err(ReadError::Changed) => self.note_change(location),
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let kept = (self.0.options.keep_put)(&options.extensions, location)
            .then(|| (payload.clone(), options.extensions.clone()));
        let write = Write::new(&self.0, [location]);
        let result = self.0.inner.put_opts(location, payload, options).await;
        // The former state's blocks are removed before those of the new one come: they may be the same.
        drop(write);
        if let (Ok(put), Some((payload, extensions))) = (&result, kept) {
            self.0.keep(location, put, payload, extensions).await;
        }
        result
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.0.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(Upload::new(self.0.clone(), location.clone(), upload)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let options = scope::options_of(options);
        if options.version.is_none()
            && let Some(answer) = self.try_get(location, &options).await?
        {
            return Ok(answer);
        }
        self.0.inner.get_opts(location, options).await.map(as_stream)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        match self.try_get_ranges(location, ranges).await? {
            Some(answer) => Ok(answer),
            None => self.0.inner.get_ranges(location, ranges).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        Deletion::stream(&self.0, locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _write = Write::new(&self.0, [to]);
        self.0.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _write = Write::new(&self.0, [from, to]);
        self.0.inner.rename_opts(from, to, options).await
    }
}
