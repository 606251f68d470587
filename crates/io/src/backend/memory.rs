//! Files in memory: a backend for tests and demonstrations that needs no disk and keeps no data.
//!
//! # Why
//! Tests of shards and tools need real data without real files, and both forms of completion: at once, and later.
//!
//! # How it works
//! A [`MemoryStore`] maps paths to contents; several backends (of several shards) can share one. Contents are kept in
//! pages of 64 KiB. A page that was never written, or was discarded whole, takes no memory and reads as zeros.
//! [`MemoryBackend::new`] finishes every operation inside `submit`; [`MemoryBackend::deferred`] takes a bounded number
//! in `submit`, carries them out in `flush` and returns them in `reap`, as a ring does.
//!
//! # Limits
//! Files do not survive the store. Any address and offset is accepted, even for direct I/O. One lock per file.
//!
//! # Example
//! ```
//! use plimsoll::backend::{Backend, OpenOptions, memory::{MemoryBackend, MemoryStore}};
//! let mut backend = MemoryBackend::new(&MemoryStore::default())?;
//! let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
//! let (file, info) = backend.open("/data".as_ref(), &options)?;
//! assert_eq!(info.len_bytes, 0);
//! backend.set_file_len(file, 1 << 30)?;
//! assert_eq!(backend.file_len(file)?, 1 << 30);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::doorbell::Doorbell;
use super::file::{FileTable, unknown_file, validate};
use super::{
    AlignSource, Backend, Completion, FileId, FileInfo, Kind, Memory, OpResult, OpenOptions, OpenedFile, Operation,
    Submit, WakeHandle, explained,
};
use crate::sys::clock;

/// Length of the pages of contents.
const PAGE_BYTES: usize = 64 * 1024;

/// Capacity reported by a backend that finishes operations at once and never has one in flight.
const AT_ONCE_CAPACITY: usize = 1024;

/// Files in memory by path; clones share them.
#[derive(Clone, Default)]
pub struct MemoryStore {
    files: Arc<Mutex<HashMap<PathBuf, SharedContents>>>,
}

type SharedContents = Arc<Mutex<Contents>>;

impl MemoryStore {
    /// Removes the file at `path`. Backends that have the file open keep it until they close it. Returns whether there
    /// was one.
    pub fn remove(&self, path: &Path) -> bool {
        lock(&self.files).remove(path).is_some()
    }

    fn open(&self, path: &Path, create_new: bool) -> io::Result<SharedContents> {
        let mut files = lock(&self.files);
        match (files.get(path), create_new) {
            (Some(_), true) => Err(open_error(path, libc::EEXIST, "it exists in memory already")),
            (Some(contents), false) => Ok(Arc::clone(contents)),
            (None, false) => Err(open_error(path, libc::ENOENT, "no such file in memory: create it first")),
            (None, true) => {
                let contents = SharedContents::default();
                files.insert(path.to_owned(), Arc::clone(&contents));
                Ok(contents)
            }
        }
    }
}

fn open_error(path: &Path, errno: i32, what: &str) -> io::Error {
    explained(errno, format!("cannot open {}: {what}", path.display()))
}

#[derive(Default)]
struct Contents {
    len_bytes: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Contents {
    /// Calls `visit(page number, range within the page, range within the transfer)` for every page touched.
    fn each_page(offset: u64, len: usize, mut visit: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % PAGE_BYTES as u64) as usize;
            let step = (PAGE_BYTES - start).min(len - done);
            visit(at / PAGE_BYTES as u64, start..start + step, done..done + step);
            done += step;
        }
    }

    /// Fills `into` from `offset` on, up to the end of the file. Returns the bytes read.
    fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let left_bytes = self.len_bytes.saturating_sub(offset);
        let len = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(into.len());
        Self::each_page(offset, len, |page, inside, outside| {
            let Some(target) = into.get_mut(outside) else { return };
            match self.pages.get(&page).and_then(|bytes| bytes.get(inside)) {
                Some(bytes) => target.copy_from_slice(bytes),
                None => target.fill(0),
            }
        });
        len
    }

    fn write(&mut self, offset: u64, from: &[u8]) {
        Self::each_page(offset, from.len(), |page, inside, outside| {
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES].into_boxed_slice());
            if let (Some(target), Some(source)) = (bytes.get_mut(inside), from.get(outside)) {
                target.copy_from_slice(source);
            }
        });
        if !from.is_empty() {
            self.len_bytes = self.len_bytes.max(offset + from.len() as u64);
        }
    }

    /// Zeroes a range without changing the length. Visits only pages that exist.
    fn discard(&mut self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes);
        let page_bytes = PAGE_BYTES as u64;
        for (page, bytes) in self.pages.range_mut(offset / page_bytes..end.div_ceil(page_bytes)) {
            let start = offset.saturating_sub(page * page_bytes).min(page_bytes) as usize;
            let stop = (end - page * page_bytes).min(page_bytes) as usize;
            if let Some(range) = bytes.get_mut(start..stop) {
                range.fill(0);
            }
        }
        let whole = offset.div_ceil(page_bytes)..end / page_bytes;
        self.pages.retain(|page, _| !whole.contains(page));
    }

    fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            self.discard(len_bytes, self.len_bytes - len_bytes);
        }
        self.len_bytes = len_bytes;
    }
}

#[derive(Clone)]
struct OpenFile {
    contents: SharedContents,
    write: bool,
}

/// The memory backend; see the module's documentation.
pub struct MemoryBackend {
    store: MemoryStore,
    doorbell: Arc<Doorbell>,
    files: FileTable<OpenFile>,
    /// `None`: operations finish inside `submit`.
    deferred_capacity: Option<usize>,
    collected: VecDeque<(Operation, OpenFile)>,
    ready: VecDeque<Completion>,
}

impl MemoryBackend {
    /// Returns a backend over `store` that finishes every operation inside `submit`.
    ///
    /// # Errors
    /// If the system refuses an eventfd.
    pub fn new(store: &MemoryStore) -> io::Result<Self> {
        Ok(Self {
            store: store.clone(),
            doorbell: Doorbell::new()?,
            files: FileTable::new(),
            deferred_capacity: None,
            collected: VecDeque::new(),
            ready: VecDeque::new(),
        })
    }

    /// Returns a backend over `store` that takes up to `capacity` operations (at least 1) and finishes them in `flush`.
    ///
    /// # Errors
    /// If the system refuses an eventfd.
    pub fn deferred(store: &MemoryStore, capacity: u32) -> io::Result<Self> {
        let mut backend = Self::new(store)?;
        backend.deferred_capacity = Some(capacity.max(1) as usize);
        Ok(backend)
    }

    fn carry_out_collected(&mut self) {
        for (operation, file) in self.collected.drain(..) {
            // SAFETY: the submitter keeps the memory until the completion has been reaped, which is later than this.
            let result = unsafe { execute(&operation, &file) };
            self.ready.push_back(Completion { key: operation.key, result });
        }
    }
}

// SAFETY: memory is touched inside `submit`, or for collected operations in `flush`, `wait` and `drop`, before the one
// completion of each operation is published.
unsafe impl Backend for MemoryBackend {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        let contents = match options.directory {
            // Names in memory are never durable, so there is nothing to sync.
            true => SharedContents::default(),
            false => self.store.open(path, options.create_new)?,
        };
        let info = FileInfo {
            len_bytes: lock(&contents).len_bytes,
            memory_align_bytes: 1,
            offset_align_bytes: 1,
            align_source: AlignSource::NotNeeded,
            is_block_device: false,
            device: 0,
        };
        let write = options.write || options.create_new;
        Ok(OpenedFile::new(Arc::new(OpenFile { contents, write }), info))
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        let open: Arc<OpenFile> = file.file()?;
        let info = FileInfo { len_bytes: lock(&open.contents).len_bytes, ..file.info() };
        Ok((self.files.insert(OpenFile::clone(&open))?, info))
    }

    fn close(&mut self, file: FileId) {
        self.files.remove(file);
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        let open = self.files.get(file).ok_or_else(|| unknown_file(file))?;
        Ok(lock(&open.contents).len_bytes)
    }

    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        let open = self.files.get(file).ok_or_else(|| unknown_file(file))?;
        if !open.write || len_bytes > i64::MAX as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        lock(&open.contents).set_len(len_bytes);
        Ok(())
    }

    unsafe fn submit(&mut self, operation: Operation) -> Submit {
        if let Err(errno) = validate(&operation) {
            return Submit::Done(Err(errno));
        }
        let Some(file) = self.files.get(operation.file) else { return Submit::Done(Err(libc::EBADF)) };
        if self.deferred_capacity.is_none() {
            // SAFETY: our caller keeps the memory valid until this call returns.
            return Submit::Done(unsafe { execute(&operation, file) });
        }
        if self.in_flight() >= self.capacity() {
            return Submit::Busy;
        }
        self.collected.push_back((operation, file.clone()));
        Submit::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        self.carry_out_collected();
        Ok(())
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        let count = self.ready.len();
        self.ready.drain(..).for_each(sink);
        count
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.carry_out_collected();
        let has_results = !self.ready.is_empty();
        self.doorbell.wait_for(deadline_ns, || has_results)
    }

    fn wake_handle(&self) -> WakeHandle {
        Arc::<Doorbell>::clone(&self.doorbell)
    }

    fn in_flight(&self) -> usize {
        self.collected.len() + self.ready.len()
    }

    fn capacity(&self) -> usize {
        self.deferred_capacity.unwrap_or(AT_ONCE_CAPACITY)
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.carry_out_collected();
    }
}

/// # Safety
/// The operation's memory must be valid, and no other code may touch it until the call returns.
unsafe fn execute(operation: &Operation, file: &OpenFile) -> OpResult {
    if !file.write && !matches!(operation.kind, Kind::Read | Kind::Sync { .. }) {
        return Err(libc::EBADF);
    }

    let mut contents = lock(&file.contents);
    match operation.kind {
        Kind::Sync { .. } => Ok(0),
        Kind::Discard { len_bytes: 0 } | Kind::Allocate { len_bytes: 0, .. } => Err(libc::EINVAL),
        Kind::Discard { len_bytes } => {
            contents.discard(operation.offset, len_bytes);
            Ok(0)
        }
        Kind::Allocate { len_bytes, keep_size } => {
            if !keep_size {
                contents.len_bytes = contents.len_bytes.max(operation.offset.saturating_add(len_bytes));
            }
            Ok(0)
        }
        Kind::SetLen { len_bytes } => {
            contents.set_len(len_bytes);
            Ok(0)
        }
        // SAFETY: passed on from the caller.
        Kind::Read | Kind::Write => unsafe { transfer(operation, &mut contents) },
    }
}

/// # Safety
/// As [`execute`].
unsafe fn transfer(operation: &Operation, contents: &mut Contents) -> OpResult {
    let one;
    let pieces: &[libc::iovec] = match operation.memory {
        Memory::None | Memory::Vectored { count: 0, .. } => &[],
        Memory::Contiguous { ptr, len_bytes, .. } => {
            one = [libc::iovec { iov_base: ptr.cast(), iov_len: len_bytes as usize }];
            &one
        }
        // SAFETY: the caller promises `count` elements at `iov` until we return.
        Memory::Vectored { iov, count } => unsafe { std::slice::from_raw_parts(iov, count as usize) },
    };

    let total = pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.iov_len)).ok_or(libc::EINVAL)?;
    if operation.offset.checked_add(total as u64).is_none() || u32::try_from(total).is_err() {
        return Err(libc::EINVAL);
    }

    let mut moved = 0;
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        let at = operation.offset + moved as u64;
        if operation.kind == Kind::Write {
            // SAFETY: the caller promises that every piece is readable and not written until we return.
            let from = unsafe { std::slice::from_raw_parts(piece.iov_base.cast_const().cast::<u8>(), piece.iov_len) };
            contents.write(at, from);
            moved += piece.iov_len;
        } else {
            // SAFETY: the caller promises that every piece is writable and not accessed until we return.
            let into = unsafe { std::slice::from_raw_parts_mut(piece.iov_base.cast::<u8>(), piece.iov_len) };
            let step = contents.read(at, into);
            moved += step;
            if step < piece.iov_len {
                break;
            }
        }
    }
    Ok(moved as u32)
}

/// Locks `mutex`. Contents are valid at every moment, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_sparse_and_discard_gives_memory_back() {
        let mut contents = Contents::default();
        let page = PAGE_BYTES as u64;
        contents.write(10 * page - 2, &[1, 2, 3, 4]);
        assert_eq!((contents.len_bytes, contents.pages.len()), (10 * page + 2, 2));
        let mut bytes = [9; 6];
        assert_eq!(contents.read(10 * page - 3, &mut bytes), 5);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 9]);
        contents.discard(10 * page - 1, page + 1);
        assert_eq!(contents.pages.len(), 1);
        assert_eq!(contents.read(10 * page - 3, &mut bytes), 5);
        assert_eq!(bytes, [0, 1, 0, 0, 0, 9]);
    }

    #[test]
    fn a_file_cut_short_and_grown_again_reads_zeros() {
        let mut contents = Contents::default();
        contents.write(0, &[7; 100]);
        contents.set_len(10);
        contents.set_len(100);
        let mut bytes = [1; 100];
        assert_eq!(contents.read(0, &mut bytes), 100);
        assert_eq!((bytes[9], bytes[10], bytes[99]), (7, 0, 0));
        contents.discard(u64::MAX - 10, 5);
    }

    #[test]
    fn two_backends_of_one_store_see_the_same_files() -> io::Result<()> {
        let store = MemoryStore::default();
        let (mut first, mut second) = (MemoryBackend::new(&store)?, MemoryBackend::new(&store)?);
        let create = OpenOptions { create_new: true, ..OpenOptions::default() };
        let (file, _) = first.open(Path::new("shared"), &create)?;
        first.set_file_len(file, 123)?;
        assert_eq!(second.open(Path::new("shared"), &OpenOptions::default())?.1.len_bytes, 123);
        assert!(store.remove(Path::new("shared")) && !store.remove(Path::new("shared")));
        assert_eq!(first.file_len(file)?, 123);
        Ok(())
    }
}
