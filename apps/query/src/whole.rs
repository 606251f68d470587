//! A depot without the files that would spoil an answer.
//!
//! **Why.** A file that is still being copied must not prevent the answers of a thousand hosts, and the engine's error
//! would not name it. A recording that was stored under two hosts would count twice.
//!
//! **How.** The ends of several Parquet files are read at a time. A file that is incomplete, has a later version of the
//! schema, or has the name of another host's file (names derive from the content) is left out, and reported. The engine
//! lists only the files that were kept ([`Kept`]), so what is stored meanwhile is in no part of an answer.
//!
//! **Limits.** A file that is damaged in the middle fails when it is read.
//!
//! **Example.** `depot/hist/host=7/date=2026-03-14/trace-2.parquet: no whole Parquet file`

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// The last bytes of every complete Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// Bytes of a file's end that are read first: more than the metadata of most files.
const END_BYTES: u64 = 16 << 10;

/// Files whose ends are read at a time: a request to a bucket takes some 20 ms.
const AT_A_TIME: usize = 32;

/// The metadata key under which `plimsoll depot` writes the version of a file's schema.
const SCHEMA_KEY: &str = "plimsoll.depot.schema";

/// The latest version of the schema that the questions support.
const SCHEMA: u32 = 1;

/// A file that is left out, and the reason.
pub(crate) type LeftOut = (Key, String);

/// Returns the Parquet files below `prefix`: the kept ones, and those that are left out.
pub(crate) async fn sort(store: &Arc<dyn ObjectStore>, prefix: &Key) -> Result<(Vec<Key>, Vec<LeftOut>)> {
    let listed: Vec<ObjectMeta> = store.list(Some(prefix)).try_collect().await?;
    let mut files: Vec<_> = listed.into_iter().filter(|file| file.location.as_ref().ends_with(".parquet")).collect();
    files.sort_by(|a, b| a.location.cmp(&b.location));

    let judged: Vec<Option<(Key, Option<String>)>> =
        stream::iter(files.into_iter().map(|file| judge(store, file))).buffered(AT_A_TIME).try_collect().await?;

    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    let mut hosts = HashMap::<String, String>::new();
    for (key, fault) in judged.into_iter().flatten() {
        let (host, name) = host_and_name(&key);
        // A file that is left out stands for nothing: another host's whole one is kept.
        let first = fault.is_none().then(|| hosts.entry(name).or_insert_with(|| host.clone()));
        let twice = first
            .filter(|first| **first != host)
            .map(|first| format!("the recording that {first} has too: it is left out; remove one of both"));

        match fault.or(twice) {
            Some(fault) => left_out.push((key, fault)),
            None => kept.push(key),
        }
    }

    Ok((kept, left_out))
}

/// Returns `host=H` and the name of a file.
fn host_and_name(key: &Key) -> (String, String) {
    let part = |number: usize| key.parts().nth(number).map(|part| part.as_ref().to_owned()).unwrap_or_default();
    (part(1), key.filename().unwrap_or_default().to_owned())
}

/// Returns the file, and the reason to leave it out, if there is one; `None` if it is gone. It may have been replaced
/// since it was listed, as a recording that is stored again.
async fn judge(store: &Arc<dyn ObjectStore>, file: ObjectMeta) -> Result<Option<(Key, Option<String>)>> {
    let not_whole = "no whole Parquet file: it is left out; remove it, or store its recording again";
    let mut end_bytes = END_BYTES.min(file.size);
    loop {
        if end_bytes == 0 {
            return Ok(Some((file.location, Some(not_whole.to_owned()))));
        }

        let options = GetOptions { range: Some(GetRange::Suffix(end_bytes)), ..GetOptions::default() };
        let found = match store.get_opts(&file.location, options).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        let len_bytes = found.meta.size;
        let end = found.bytes().await?;

        let mut reader = ParquetMetaDataReader::new();
        let fault = match reader.try_parse_sized(&end, len_bytes) {
            Err(ParquetError::NeedMoreData(bytes))
                if end.ends_with(MAGIC) && (end_bytes..len_bytes).contains(&(bytes as u64)) =>
            {
                // Reads at least one byte more, so that the loop ends.
                end_bytes = (bytes as u64).max(end_bytes + 1);
                continue;
            }
            Err(_) => Some(not_whole.to_owned()),
            Ok(()) => reader.finish().ok().and_then(|metadata| later_schema(&metadata)),
        };

        return Ok(Some((file.location, fault)));
    }
}

fn later_schema(metadata: &ParquetMetaData) -> Option<String> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let version = pairs.iter().find(|pair| pair.key == SCHEMA_KEY)?.value.as_ref()?.parse::<u32>().ok()?;
    (version > SCHEMA)
        .then(|| format!("schema {version}: this program knows {SCHEMA}: it is left out; use a newer plimsoll-query"))
}

/// A store that lists only `files`: one that has appeared since they were judged may be half copied, or another host's.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) inner: Arc<dyn ObjectStore>,
    pub(crate) files: Arc<HashSet<Key>>,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Kept {
    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        let files = Arc::clone(&self.files);
        let is_kept = move |file: &ObjectMeta| std::future::ready(files.contains(&file.location));
        self.inner.list(prefix).try_filter(is_kept).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        let mut listed = self.inner.list_with_delimiter(prefix).await?;
        listed.objects.retain(|file| self.files.contains(&file.location));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::parquet::arrow::ArrowWriter;
    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn a_file_that_changes_after_it_was_listed_is_judged_as_it_is() {
        let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(0..9000)) as _)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();

        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let key = Key::from("hist/host=7/date=2026-03-14/trace-1.parquet");
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        runtime.block_on(async {
            store.put(&key, bytes.into()).await.unwrap();
            let listed = store.head(&key).await.unwrap();
            for size in [100, listed.size, listed.size * 2] {
                let before = ObjectMeta { size, ..listed.clone() };
                assert_eq!(judge(&store, before).await.unwrap(), Some((key.clone(), None)), "listed with {size} bytes");
            }
            store.delete(&key).await.unwrap();
            assert_eq!(judge(&store, listed).await.unwrap(), None);
        });
    }

    /// Half of a file that was just being copied was read, and ended the question with the engine's error.
    #[test]
    fn a_file_that_appears_after_the_first_look_is_not_listed() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let [first, later] =
            ["1", "2"].map(|name| Key::from(format!("hist/host=7/date=2026-03-14/trace-{name}.parquet")));
        let kept = Kept { inner: Arc::clone(&store), files: Arc::new(HashSet::from([first.clone()])) };
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        runtime.block_on(async {
            for key in [&first, &later] {
                store.put(key, "half".into()).await.unwrap();
            }
            let listed: Vec<ObjectMeta> = kept.list(None).try_collect().await.unwrap();
            let day = kept.list_with_delimiter(Some(&Key::from("hist/host=7/date=2026-03-14"))).await.unwrap();
            for files in [listed, day.objects] {
                assert_eq!(
                    files.into_iter().map(|file| file.location).collect::<Vec<_>>(),
                    std::slice::from_ref(&first)
                );
            }
        });
    }
}
