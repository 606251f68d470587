//! Uploads an object in parts of any length.
//!
//! # How it works
//! The place of a part is known when `put_part` gets it: behind all earlier parts. The bytes of a last, incomplete
//! block are kept and written with the next part, or padded at the end. So parts are written concurrently and in any
//! order, and each block by only one of them.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::FutureExt;
use object_store::path::Path as Location;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::failure::{failure, generic};
use crate::opened::Opened;
use crate::payload::Payload;
use crate::staged::Existing;
use crate::write::Draft;

pub(crate) struct Upload {
    /// `None` once completed or aborted.
    draft: Option<Draft>,
    /// Bytes in the parts so far, in whole blocks.
    offset: u64,
    /// Bytes after `offset`, less than a block.
    tail: Bytes,
    parts: u64,
    written_parts: Arc<AtomicU64>,
    location: Location,
    /// The store's open objects: the one at `location` is replaced at the end.
    opened: Arc<Opened>,
}

impl Upload {
    pub(crate) fn new(draft: Draft, location: Location, opened: Arc<Opened>) -> Upload {
        let (tail, written_parts) = (Bytes::new(), Arc::default());
        Upload { draft: Some(draft), offset: 0, tail, parts: 0, written_parts, location, opened }
    }
}

fn is_over() -> object_store::Error {
    generic("the upload was completed or aborted before".to_owned())
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.draft.as_ref().map(Draft::path);
        f.debug_struct("Upload").field("path", &path).field("parts", &self.parts).finish_non_exhaustive()
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(draft) = &self.draft else { return async { Err(is_over()) }.boxed() };
        let mut payload = Payload::new(std::mem::take(&mut self.tail), data);
        let len_bytes = payload.len() as u64;
        let whole_bytes = len_bytes - len_bytes % draft.block_bytes();
        self.tail = payload.cut_off_after(whole_bytes as usize);
        let offset = self.offset;
        self.offset += whole_bytes;
        self.parts += 1;

        let (pen, path, written_parts) = (draft.pen(), draft.path().to_owned(), self.written_parts.clone());
        let write = async move {
            pen.write(offset, payload).await.map_err(|error| failure(&path, &error))?;
            written_parts.fetch_add(1, Relaxed);
            Ok(())
        };
        write.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (parts, written_parts) = (self.parts, self.written_parts.load(Relaxed));
        if let Some(draft) = self.draft.as_ref().filter(|_| written_parts < parts) {
            let path = draft.path().display();
            let message = format!("{path}: {written_parts} of {parts} parts were written: wait for all, then complete");
            return Err(generic(message));
        }
        let draft = self.draft.take().ok_or_else(is_over)?;
        let path = draft.path().to_owned();

        let len_bytes = self.offset + self.tail.len() as u64;
        let tail = Payload::new(std::mem::take(&mut self.tail), PutPayload::default());
        let completed = async {
            draft.write(self.offset, tail).await?;
            draft.publish(len_bytes, Existing::Replace).await
        };
        let completed = completed.await.map_err(|error| failure(&path, &error));
        self.opened.forget(&self.location);
        completed
    }

    async fn abort(&mut self) -> Result<()> {
        self.draft.take().map(drop).ok_or_else(is_over)
    }
}
