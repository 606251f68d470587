//! A depot without the files that end in the middle.
//!
//! **Why.** A file that is still being copied must not keep the answers of a thousand hosts back, and the engine would
//! fail without its name.
//!
//! **How.** The last bytes of each Parquet file are looked at once, several files at a time. What is not whole is left
//! out of every list, and named.
//!
//! **Limits.** A file that is damaged in the middle fails as it is read.
//!
//! **Example.** `depot/hist/host=7/date=2026-03-14/trace-2.parquet: no whole Parquet file`

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// The last bytes of every Parquet file that is whole.
const MAGIC: &[u8] = b"PAR1";

/// Bytes of the shortest Parquet file: the magic twice, and the length of the footer.
const SHORTEST_BYTES: u64 = 12;

/// Files whose ends are asked for at a time: a request to a bucket takes some 20 ms.
const AT_A_TIME: usize = 32;

/// Returns the Parquet files below `prefix`: those that are whole, and those that are not.
pub(crate) async fn sort(store: &Arc<dyn ObjectStore>, prefix: &Key) -> Result<(Vec<Key>, Vec<Key>)> {
    let listed: Vec<ObjectMeta> = store.list(Some(prefix)).try_collect().await?;
    let files = listed.into_iter().filter(|file| file.location.as_ref().ends_with(".parquet"));
    let sorted: Vec<(Key, bool)> =
        stream::iter(files.map(|file| with_wholeness(store, file))).buffered(AT_A_TIME).try_collect().await?;
    let (whole, others): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|(_, is_whole)| *is_whole);
    let keys = |files: Vec<(Key, bool)>| files.into_iter().map(|(key, _)| key).collect();
    Ok((keys(whole), keys(others)))
}

async fn with_wholeness(store: &Arc<dyn ObjectStore>, file: ObjectMeta) -> Result<(Key, bool)> {
    let options = GetOptions { range: Some(GetRange::Suffix(MAGIC.len() as u64)), ..GetOptions::default() };
    let is_whole =
        file.size >= SHORTEST_BYTES && store.get_opts(&file.location, options).await?.bytes().await?.as_ref() == MAGIC;
    Ok((file.location, is_whole))
}

/// A store that lists all but some files.
#[derive(Debug)]
pub(crate) struct Without {
    pub(crate) inner: Arc<dyn ObjectStore>,
    pub(crate) left_out: HashSet<Key>,
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Without {
    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        let left_out = self.left_out.clone();
        let is_kept = move |file: &ObjectMeta| std::future::ready(!left_out.contains(&file.location));
        self.inner.list(prefix).try_filter(is_kept).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        listed.objects.retain(|file| !self.left_out.contains(&file.location));
        Ok(listed)
    }

    async fn get_opts(&self, location: &Key, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    async fn put_opts(&self, location: &Key, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(&self, at: &Key, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        self.inner.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
