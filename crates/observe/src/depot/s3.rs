//! A depot in a bucket.
//!
//! **Why.** Hosts of a fleet share no file system, and every engine reads from object stores.
//!
//! **How.** A file that is whole is sent in one request, or in parts that become an object when all are there. The
//! recording's objects in other parts are listed below its host, and deleted afterwards.
//!
//! **Limits.** Credentials, region and endpoint come from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL...), or
//! from the instance. A process that is killed in the middle of a large file leaves parts that no reader sees: let the
//! bucket abort unfinished uploads after a day.
//!
//! **Example.** `plimsoll depot s3://fleet/depot run.plt --host db1`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _, RetryConfig};
use tokio::runtime::Runtime;

use super::{DepotError, Written};

/// Bytes of a part of a large file. A part is in memory while it is sent; S3 takes at most 10,000 parts of a file.
const PART_BYTES: u64 = 32 << 20;

/// How long a request is retried: a server that restarts is back by then.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// A bucket, and the prefix of the depot in it.
#[derive(Clone, Debug)]
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
    url: String,
    prefix: String,
}

impl Bucket {
    /// Opens `BUCKET/PREFIX`, which is `url` without its scheme. Sends no request yet.
    pub(super) fn open(url: &str, bucket_and_prefix: &str) -> Result<Bucket, DepotError> {
        let (bucket, prefix) = bucket_and_prefix.split_once('/').unwrap_or((bucket_and_prefix, ""));
        let failed = |reason: String| DepotError::Bucket { url: url.to_owned(), reason };

        // Only the first provider of a process counts; either will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        // A user who names an endpoint without encryption accepts that.
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
        let retry = RetryConfig { max_retries: 5, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
        let store = builder
            .with_allow_http(endpoint.starts_with("http://"))
            .with_retry(retry)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let (url, prefix) = (url.trim_end_matches('/').to_owned(), prefix.trim_matches('/').to_owned());
        Ok(Bucket { store: Arc::new(store), runtime: Arc::new(runtime), url, prefix })
    }

    fn key(&self, within: &str) -> Key {
        Key::from(format!("{}/{within}", self.prefix))
    }

    fn path(&self, within: &str) -> PathBuf {
        PathBuf::from(format!("{}/{within}", self.url))
    }

    fn failed(&self, within: &str) -> impl FnOnce(object_store::Error) -> DepotError {
        let url = format!("{}/{within}", self.url);
        move |error| DepotError::Bucket { url, reason: error.to_string() }
    }

    /// Sends a file of this length. Returns its URL.
    pub(super) fn put(&self, within: &str, file: &Path, len_bytes: u64) -> Result<PathBuf, DepotError> {
        let mut input = File::open(file).map_err(DepotError::at(file))?;
        let mut part = || {
            let mut bytes = Vec::new();
            input.by_ref().take(PART_BYTES).read_to_end(&mut bytes).map(|_| bytes).map_err(DepotError::at(file))
        };
        self.runtime.block_on(async {
            let key = self.key(within);
            if len_bytes <= PART_BYTES {
                self.store.put(&key, part()?.into()).await.map_err(self.failed(within))?;
                return Ok(());
            }

            let mut upload = self.store.put_multipart(&key).await.map_err(self.failed(within))?;
            let sent = async {
                for _ in 0..len_bytes.div_ceil(PART_BYTES) {
                    upload.put_part(part()?.into()).await.map_err(self.failed(within))?;
                }
                upload.complete().await.map_err(self.failed(within))
            };
            if let Err(error) = sent.await {
                // The first error says more than one of the abort.
                let _ = upload.abort().await;
                return Err(error);
            }
            Ok(())
        })?;
        Ok(self.path(within))
    }

    /// Deletes the objects of this name below the directory `of_host` that are not among `written`.
    pub(super) fn remove_others(&self, of_host: &str, name: &str, written: &[Written]) -> Result<(), DepotError> {
        let kept: Vec<Key> = written
            .iter()
            .filter_map(|file| {
                file.path.to_str()?.strip_prefix(&format!("{}/", self.url)).map(|within| self.key(within))
            })
            .collect();
        let others = async {
            let there: Vec<_> = self.store.list(Some(&self.key(of_host))).try_collect().await?;
            for object in there {
                if object.location.filename() == Some(name) && !kept.contains(&object.location) {
                    self.store.delete(&object.location).await?;
                }
            }
            Ok(())
        };
        self.runtime.block_on(others).map_err(self.failed(of_host))
    }
}
