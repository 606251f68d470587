//! The store itself: the target and the class of each operation.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, RenameTargetMode, Result, coalesce_ranges,
};
use plimsoll::{Class, Handle};

use crate::failure::{NAME, blocking, failure, generic};
use crate::opened::{Opened, Stamp};
use crate::read::{Object, read_parts, read_range};
use crate::staged::{Existing, Staged, link, remove_leftovers, rename};
use crate::upload::Upload;
use crate::write::Writer;

/// An operation that moves an object's bytes, which gives it a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read of an object or of one range.
    Get,
    /// A read of several ranges. It has no extensions.
    GetRanges,
    /// A write of a whole object.
    Put,
    /// An upload in parts: all of its parts have the class of its beginning.
    PutMultipart,
}

type Rule = dyn Fn(Operation, &Path, &Extensions) -> Class + Send + Sync;

/// A scheduled object store over a local directory. Clones share all state but the rule. See the crate's documentation.
#[derive(Clone)]
pub struct ScheduledStore {
    /// Tries direct I/O if the root takes it.
    writer: Writer,
    local: LocalFileSystem,
    directory: PathBuf,
    rule: Arc<Rule>,
    opened: Arc<Opened>,
}

impl ScheduledStore {
    /// Opens the store in `directory`, which must exist and be writable, and removes the leftovers of programs that
    /// died in the middle of a put. For that it walks through all names below `directory`. The I/O of each object is
    /// scheduled by the disk that holds it ([`plimsoll::Topology::disk_of`]); a subdirectory may be on another disk.
    ///
    /// # Errors
    /// The system's error, with the path; `ENODEV` if no disk of the handle's topology holds `directory`.
    pub async fn open(handle: Handle, directory: impl AsRef<FilePath>) -> Result<ScheduledStore> {
        ScheduledStore::open_with(handle, directory.as_ref(), true).await
    }

    pub(crate) async fn open_with(handle: Handle, directory: &FilePath, try_direct: bool) -> Result<ScheduledStore> {
        let mut writer = Writer { handle, is_direct: try_direct };
        let opened = async {
            let given = directory.to_owned();
            let set_up = move || {
                let directory = std::fs::canonicalize(given)?;
                remove_leftovers(&directory)?;
                Ok((Staged::create(&directory)?, directory))
            };
            let (probe, directory) = blocking(set_up).await?;

            let (_, is_direct) = writer.open(probe.path(), true).await?;
            Ok((is_direct, directory))
        };
        let (is_direct, directory) = opened.await.map_err(|error| failure(directory, &error))?;
        let local = LocalFileSystem::new_with_prefix(&directory)?;
        let rule = |_: Operation, _: &Path, extensions: &Extensions| *extensions.get().unwrap_or(&Class::DEFAULT);
        let (rule, opened) = (Arc::new(rule), Arc::default());
        writer.is_direct = is_direct;
        Ok(ScheduledStore { writer, local, directory, rule, opened })
    }

    /// Returns the store with `rule`, which decides the class of each operation. Without a rule, a [`Class`] among the
    /// extensions of the options counts, else [`Class::DEFAULT`]. The rule is called once for each operation, before
    /// the operation begins.
    #[must_use]
    pub fn with_rule(
        self,
        rule: impl Fn(Operation, &Path, &Extensions) -> Class + Send + Sync + 'static,
    ) -> ScheduledStore {
        ScheduledStore { rule: Arc::new(rule), ..self }
    }

    /// Returns whether objects are read and written past the page cache, because the directory's file system accepts
    /// direct I/O. Those in a subdirectory on a file system that refuses it use the page cache all the same.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.writer.is_direct
    }

    /// Returns an error if the options contain attributes, which files cannot have.
    fn check_attributes(&self, attributes: &Attributes, operation: &str) -> Result<()> {
        if attributes.is_empty() { Ok(()) } else { Err(self.not_implemented(format!("`{operation}` with attributes"))) }
    }

    fn not_implemented(&self, operation: String) -> Error {
        Error::NotImplemented { operation, implementer: self.to_string() }
    }

    /// Opens the object for reading. The result describes the object, with an empty payload.
    async fn open_object(
        &self,
        location: &Path,
        options: GetOptions,
        class: Class,
    ) -> Result<(GetResult, Option<Object>)> {
        let is_head = options.head;
        if let Some((meta, object)) = self.opened.find(location) {
            options.check_preconditions(&meta)?;
            let range = options.range.map_or(Ok(0..meta.size), |range| in_object(&range, &meta))?;
            let object = (!is_head && !range.is_empty()).then(|| object.in_class(class));
            return Ok((described(meta, range), object));
        }

        // LocalFileSystem checks conditions and ranges and reads the metadata of the file that it opens.
        let GetResult { payload, meta, range, .. } = self.local.get_opts(location, options).await?;
        let GetResultPayload::File(file, path) = payload else {
            return Err(generic(format!("{location}: LocalFileSystem opened no file")));
        };
        if is_head || range.is_empty() {
            return Ok((described(meta, range), None));
        }

        let opened = async {
            let stamp = Stamp::of(&file.metadata()?);
            Ok((stamp, self.reopen(file).await?))
        };
        let (stamp, file) = opened.await.map_err(|error| failure(&path, &error))?;
        let object = Object { file, path: path.into() };
        self.opened.keep(stamp, meta.clone(), object.clone());
        Ok((described(meta, range), Some(object.in_class(class))))
    }

    /// Calls `change` with the paths of two objects. An error names the one that it is about.
    async fn change_names(
        &self,
        from: &Path,
        to: &Path,
        change: impl FnOnce(&FilePath, &FilePath) -> io::Result<()> + Send + 'static,
    ) -> Result<()> {
        let (source, target) = (self.local.path_to_filesystem(from)?, self.local.path_to_filesystem(to)?);
        let paths = (source.clone(), target.clone());
        blocking(move || change(&source, &target)).await.map_err(|error| {
            let is_there = error.kind() == io::ErrorKind::AlreadyExists;
            failure(if is_there { &paths.1 } else { &paths.0 }, &error)
        })
    }

    /// Opens `file` again, for scheduled reads. Uses its descriptor, because its name may refer to another object now.
    async fn reopen(&self, file: std::fs::File) -> io::Result<plimsoll::File> {
        let writer = self.writer.clone();
        // The job runs to its end even if this future is dropped, and keeps the descriptor open until then.
        let open = move |_| async move {
            let opened = writer.open(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref(), false).await;
            drop(file);
            opened.map(|(file, _)| file)
        };
        self.writer.handle.run(open).await?
    }
}

/// Returns the bytes of an object that a caller asks for.
fn in_object(range: &GetRange, meta: &ObjectMeta) -> Result<Range<u64>> {
    range.as_range(meta.size).map_err(|error| Error::Generic { store: NAME, source: Box::new(error) })
}

/// Returns the answer to a get, still without bytes.
fn described(meta: ObjectMeta, range: Range<u64>) -> GetResult {
    let payload = GetResultPayload::Stream(stream::empty().boxed());
    GetResult { payload, meta, range, attributes: Attributes::default(), extensions: Extensions::default() }
}

impl fmt::Display for ScheduledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}({})", self.directory.display())
    }
}

impl fmt::Debug for ScheduledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, is_direct) = (&self.directory, self.is_direct());
        f.debug_struct(NAME).field("directory", directory).field("is_direct", &is_direct).finish_non_exhaustive()
    }
}

#[async_trait]
impl ObjectStore for ScheduledStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let class = (self.rule)(Operation::Put, location, &options.extensions);
        self.check_attributes(&options.attributes, "put_opts")?;
        let existing = match options.mode {
            PutMode::Overwrite => Existing::Replace,
            PutMode::Create => Existing::Refuse,
            PutMode::Update(_) => return Err(self.not_implemented("`put_opts` with `PutMode::Update`".to_owned())),
        };
        let path = self.local.path_to_filesystem(location)?;
        let put = self.writer.put(&path, payload, class, existing).await;
        self.opened.forget(location);
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let class = (self.rule)(Operation::PutMultipart, location, &options.extensions);
        self.check_attributes(&options.attributes, "put_multipart_opts")?;
        let path = self.local.path_to_filesystem(location)?;
        let draft = self.writer.create(&path, class).await.map_err(|error| failure(&path, &error))?;
        Ok(Box::new(Upload::new(draft, location.clone(), self.opened.clone())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let class = (self.rule)(Operation::Get, location, &options.extensions);
        let (mut answer, object) = self.open_object(location, options, class).await?;
        if let Some(object) = object {
            answer.payload = GetResultPayload::Stream(read_parts(object, answer.range.clone()));
        }
        Ok(answer)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let options = GetOptions::default();
        let class = (self.rule)(Operation::GetRanges, location, &options.extensions);
        let (GetResult { meta, .. }, object) = self.open_object(location, options, class).await?;
        let checked = ranges.iter().map(|range| in_object(&GetRange::Bounded(range.clone()), &meta));
        let ranges: Vec<Range<u64>> = checked.collect::<Result<_>>()?;
        // An empty object has no ranges.
        let Some(object) = object else { return Ok(Vec::new()) };
        // Adjacent ranges are read together; no other bytes are read.
        coalesce_ranges(&ranges, |range| read_range(object.clone(), range), 0).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let opened = self.opened.clone();
        let deleted = self.local.delete_stream(locations);
        deleted.inspect_ok(move |location| opened.forget(location)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.local.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.local.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        // LocalFileSystem leaves a hidden name behind if `to` is a copy of `from` already, or if the program dies.
        let existing = match options.mode {
            CopyMode::Create => Existing::Refuse,
            CopyMode::Overwrite => Existing::Replace,
        };
        let copied = self.change_names(from, to, move |source, target| link(source, target, existing)).await;
        self.opened.forget(to);
        copied
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        // LocalFileSystem leaves `from` if `to` is a copy of it already, and links and deletes if it must not replace.
        let existing = match options.target_mode {
            RenameTargetMode::Create => Existing::Refuse,
            RenameTargetMode::Overwrite => Existing::Replace,
        };
        let renamed = self.change_names(from, to, move |source, target| rename(source, target, existing)).await;
        // The names have changed for the last time.
        [from, to].into_iter().for_each(|location| self.opened.forget(location));
        renamed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use object_store::{ObjectStoreExt, integration};
    use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};

    use super::*;

    #[tokio::test]
    async fn without_direct_io_it_is_the_same_store() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = Runtime::start(&topology, &ShardOptions { pin: false, ..ShardOptions::default() }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store = ScheduledStore::open_with(runtime.any_shard(), directory.path(), false).await.unwrap();
        assert!(!store.is_direct());
        integration::put_get_delete_list(&store).await;
        integration::stream_get(&store).await;
        integration::get_opts(&store).await;
        integration::multipart_out_of_order(&store).await;
        let bytes: Vec<u8> = (0..(2 << 20) + 77).map(|at: u32| (at ^ (at >> 8)) as u8).collect();
        store.put(&"plain".into(), bytes.clone().into()).await.unwrap();
        assert_eq!(store.get(&"plain".into()).await.unwrap().bytes().await.unwrap(), bytes);
        runtime.shutdown().await.unwrap();
    }
}
