//! Writes: they invalidate the cache when they end, whether they succeeded, failed, or were dropped half way (the
//! store may have carried them out all the same).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ::object_store::path::Path;
use ::object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};

use super::shared::Core;
use crate::sync::lock;

/// A write under way; invalidates its locations when dropped.
pub(super) struct Write<'a, const N: usize> {
    core: &'a Core,
    locations: [&'a Path; N],
}

impl<'a, const N: usize> Write<'a, N> {
    pub(super) fn new(core: &'a Core, locations: [&'a Path; N]) -> Write<'a, N> {
        Write { core, locations }
    }
}

impl<const N: usize> Drop for Write<'_, N> {
    fn drop(&mut self) {
        self.locations.iter().for_each(|location| self.core.invalidate(location));
    }
}

/// A multipart upload; it takes effect when it is completed.
pub(super) struct Upload {
    core: Arc<Core>,
    location: Path,
    inner: Box<dyn MultipartUpload>,
}

impl Upload {
    pub(super) fn new(core: Arc<Core>, location: Path, inner: Box<dyn MultipartUpload>) -> Upload {
        Upload { core, location, inner }
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let _write = Write::new(&self.core, [&self.location]);
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

/// A stream of deletions.
pub(super) struct Deletion {
    core: Arc<Core>,
    /// What the store has taken and not yet answered, in this order: stores answer in the order of the locations.
    /// `None` for an error of the caller's stream, which is its own answer.
    pending: Mutex<VecDeque<Option<Path>>>,
}

impl Deletion {
    fn begun(&self, location: Option<Path>) {
        lock(&self.pending).push_back(location);
    }

    fn answered(&self, answer: &Result<Path>) {
        match answer {
            Ok(location) => {
                self.core.invalidate(location);
                let mut pending = lock(&self.pending);
                let is_it = |other: &Option<Path>| other.as_ref() == Some(location);
                // An error before it may have been the answer to several locations.
                if let Some(at) = pending.iter().position(is_it) {
                    pending.drain(..=at);
                }
            }
            // An error does not name its location, and may be the answer to several: all that are pending are
            // invalidated. One of them at least is answered. If it stayed, n errors would be n * n / 2 invalidations.
            Err(_) => {
                self.invalidate_pending();
                lock(&self.pending).pop_front();
            }
        }
    }

    /// Returns the store's own deletions; each invalidates before its answer is handed out.
    pub(super) fn stream(
        core: &Arc<Core>,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let deletion = Arc::new(Deletion { core: core.clone(), pending: Mutex::default() });
        let taking = deletion.clone();

        let taken = locations.inspect(move |location| taking.begun(location.as_ref().ok().cloned()));
        let answers = core.inner.delete_stream(taken.boxed());
        answers.inspect(move |answer| deletion.answered(answer)).boxed()
    }

    fn invalidate_pending(&self) {
        let pending = lock(&self.pending);
        pending.iter().flatten().for_each(|location| self.core.invalidate(location));
    }
}

impl Drop for Deletion {
    fn drop(&mut self) {
        self.invalidate_pending();
    }
}
