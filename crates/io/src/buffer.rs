//! Memory for direct I/O: aligned buffers, alone, from a pool, or many in one region that a backend has registered.
//!
//! # Why
//! `O_DIRECT` refuses unaligned memory, and ordinary vectors promise no alignment.
//!
//! # How it works
//! [`AlignedBuf`] is a zeroed heap allocation with the requested alignment (4096 bytes by default, which suits every
//! known device). [`AlignedBuf::registered`] cuts one such allocation into equal buffers and registers it
//! ([`crate::backend::Backend::register_memory`]), so that the kernel need not look up the pages at every operation.
//! The allocation lives until its last buffer is dropped, on any thread; the backend then forgets the region.
//! A [`BufferPool`] hands out buffers that were used before.
//!
//! Long regions, and the chunks of a pool, have their own mapping, in huge pages if the kernel has some
//! (`/sys/kernel/mm/transparent_hugepage/enabled` is not `never`). A request from ordinary pages has a segment per 4
//! KiB, one from a huge page has one in all; a virtual disk took three times as long for the former. Registration makes
//! it worse: the kernel moves pages before it pins them, so they are no longer contiguous.
//!
//! # Limits
//! A buffer does not grow. A registered buffer is cheaper only on the backend that registered it; elsewhere it is an
//! ordinary one. Buffers of [`AlignedBuf::new`] are in ordinary pages: the kernel may have to compact memory for a huge
//! page, which would stall a shard that makes a buffer for each request.
//!
//! # Example
//! ```
//! use plimsoll::buffer::AlignedBuf;
//! let mut buffer = AlignedBuf::new(8192)?;
//! assert_eq!(buffer.as_ptr() as usize % 4096, 0);
//! buffer[0] = 7;
//! assert_eq!(&buffer[..2], [7, 0]);
//! # Ok::<(), plimsoll::buffer::BufferError>(())
//! ```

mod pool;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::backend::{Backend, Region, RegionId};
pub use pool::BufferPool;

/// Default alignment of a buffer, in bytes: a page, and no smaller than any known device requires.
pub const DEFAULT_ALIGN_BYTES: usize = 4096;

/// Length of a huge page, in bytes: that of x86-64, and of arm64 with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Shortest region that gets whole huge pages, in bytes: a shorter one would leave over three quarters of its page
/// unused.
const HUGE_LEAST_BYTES: usize = HUGE_PAGE_BYTES / 4;

/// Why a buffer could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferError {
    /// The alignment is not a power of two, or length and alignment together exceed what a process can address.
    BadLayout {
        /// Requested length, in bytes.
        len_bytes: usize,
        /// Requested alignment, in bytes.
        align_bytes: usize,
    },
    /// The system has no memory left.
    OutOfMemory {
        /// Requested length, in bytes.
        len_bytes: usize,
    },
}

impl fmt::Display for BufferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadLayout { len_bytes, align_bytes } => write!(
                f,
                "cannot make a buffer of {len_bytes} bytes aligned to {align_bytes}: the alignment must be a power of \
                 two and the length must fit in memory"
            ),
            Self::OutOfMemory { len_bytes } => write!(f, "no memory for a buffer of {len_bytes} bytes"),
        }
    }
}

impl std::error::Error for BufferError {}

impl From<BufferError> for std::io::Error {
    fn from(error: BufferError) -> Self {
        let kind = match error {
            BufferError::BadLayout { .. } => std::io::ErrorKind::InvalidInput,
            BufferError::OutOfMemory { .. } => std::io::ErrorKind::OutOfMemory,
        };
        Self::new(kind, error)
    }
}

/// An aligned piece of memory; a slice of bytes in every other respect.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len_bytes: usize,
    /// Keeps the memory alive; `None` in an empty buffer.
    owner: Option<Arc<Allocation>>,
    /// The region that the owner has registered.
    region: Option<RegionId>,
}

/// Buffers made together, and whether they are registered.
#[derive(Debug)]
pub struct Buffers {
    /// The buffers. All are usable for I/O, registered or not.
    pub buffers: Vec<AlignedBuf>,
    /// Why they are not registered; `None` when all are.
    pub not_registered: Option<io::Error>,
}

impl Buffers {
    /// Returns the number of registered buffers: all or none.
    #[must_use]
    pub fn registered(&self) -> usize {
        if self.not_registered.is_none() { self.buffers.len() } else { 0 }
    }
}

/// Memory that is freed with the last buffer in it.
struct Allocation {
    ptr: NonNull<u8>,
    align_bytes: usize,
    source: Source,
    /// Its registration, if it has one.
    region: Option<Region>,
    /// The pool that buffers in it return to, if it has one.
    home: Option<pool::Home>,
}

/// Where memory comes from, and so how it is freed.
enum Source {
    Heap(Layout),
    /// A mapping from this address on, of this length in bytes.
    Mapping(NonNull<u8>, usize),
}

impl Allocation {
    fn new(len_bytes: usize, align_bytes: usize) -> Result<Allocation, BufferError> {
        let bad = BufferError::BadLayout { len_bytes, align_bytes };
        let layout = Layout::from_size_align(len_bytes.max(1), align_bytes).map_err(|_| bad)?;
        // SAFETY: the layout's size is at least 1. The allocation is owned by the value made here until its drop.
        let ptr = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).ok_or(BufferError::OutOfMemory { len_bytes })?;
        Ok(Allocation { ptr, align_bytes, source: Source::Heap(layout), region: None, home: None })
    }

    /// Returns zeroed memory in whole huge pages if the kernel has some. Uses a separate mapping: the advice belongs to
    /// addresses, so heap memory would keep it after it is freed.
    fn in_huge_pages(len_bytes: usize) -> Result<Allocation, BufferError> {
        let none = BufferError::OutOfMemory { len_bytes };
        let pages_bytes = len_bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(none)?;
        // One page more, so that the memory can begin at a page boundary.
        let map_bytes = pages_bytes.checked_add(HUGE_PAGE_BYTES).ok_or(none)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses; the value made here owns it until its drop.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), map_bytes, access, kind, -1, 0) };
        let start = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED).ok_or(none)?;
        let skipped_bytes = start.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: less than a huge page, and the mapping is longer than that.
        let ptr = unsafe { start.add(skipped_bytes) };

        // If the kernel refuses this, the pages are ordinary ones. Miri cannot do it.
        if !cfg!(miri) {
            // SAFETY: advice about whole pages of the mapping above, which changes no byte and ends with the mapping.
            unsafe { libc::madvise(ptr.as_ptr().cast(), pages_bytes, libc::MADV_HUGEPAGE) };
        }

        // The kernel allocates the pages here, not at the first requests.
        // SAFETY: inside the mapping, which only this function can reach until it returns.
        unsafe { ptr.write_bytes(0, len_bytes) };

        let (align_bytes, source) = (DEFAULT_ALIGN_BYTES, Source::Mapping(start, map_bytes));
        Ok(Allocation { ptr, align_bytes, source, region: None, home: None })
    }
}

// SAFETY: an allocation is only an address to be freed once; the bytes belong to the buffers cut from it.
unsafe impl Send for Allocation {}
// SAFETY: a shared reference to it gives nothing but its alignment.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Before the memory is freed: no operation may name the region afterwards.
        drop(self.region.take());
        match self.source {
            // SAFETY: allocated with this layout in `new`, owned by this value alone, and freed only here. No operation
            // uses it: its buffer would have kept this value.
            Source::Heap(layout) => unsafe { dealloc(self.ptr.as_ptr(), layout) },
            Source::Mapping(start, map_bytes) => {
                // SAFETY: mapped in `in_huge_pages`, owned by this value alone, and unmapped only here, whole. No
                // operation uses it: its buffer would have kept this value.
                unsafe { libc::munmap(start.as_ptr().cast(), map_bytes) };
            }
        }
    }
}

// SAFETY: the buffer owns its allocation alone, as a boxed slice does, so it may move to another thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared reference only gives out `&[u8]`, so it may be shared between threads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Returns `len_bytes` zeros aligned to [`DEFAULT_ALIGN_BYTES`].
    ///
    /// # Errors
    /// See [`BufferError`].
    pub fn new(len_bytes: usize) -> Result<Self, BufferError> {
        Self::with_align(len_bytes, DEFAULT_ALIGN_BYTES)
    }

    /// Returns `len_bytes` zeros aligned to `align_bytes`, a power of two.
    ///
    /// # Errors
    /// See [`BufferError`].
    pub fn with_align(len_bytes: usize, align_bytes: usize) -> Result<Self, BufferError> {
        let owner = Allocation::new(len_bytes, align_bytes)?;
        Ok(Self { ptr: owner.ptr, len_bytes, owner: Some(Arc::new(owner)), region: None })
    }

    /// Returns `count` buffers of `len_bytes` zeros each, aligned to [`DEFAULT_ALIGN_BYTES`], in one region. A region
    /// of at least a quarter of a huge page takes whole ones (2 MiB each, which count as locked memory). Registers the
    /// region with `backend` if possible; otherwise [`Buffers::not_registered`] has the reason.
    ///
    /// # Errors
    /// See [`BufferError`].
    pub fn registered(count: usize, len_bytes: usize, backend: &mut dyn Backend) -> Result<Buffers, BufferError> {
        let bad = BufferError::BadLayout { len_bytes, align_bytes: DEFAULT_ALIGN_BYTES };
        let step_bytes = len_bytes.max(1).checked_next_multiple_of(DEFAULT_ALIGN_BYTES).ok_or(bad)?;
        let all_bytes = step_bytes.checked_mul(count.max(1)).ok_or(bad)?;
        let mut owner = match all_bytes {
            HUGE_LEAST_BYTES.. => Allocation::in_huge_pages(all_bytes)?,
            _ => Allocation::new(all_bytes, DEFAULT_ALIGN_BYTES)?,
        };

        // SAFETY: the allocation owns the region, and drops it before it frees the memory. Only the buffers below name
        // it, each keeps the allocation, and the submitter of an operation keeps its buffer until its completion is
        // reaped.
        let not_registered = match unsafe { backend.register_memory(owner.ptr.as_ptr(), all_bytes) } {
            Ok(region) => {
                owner.region = Some(region);
                None
            }
            Err(error) => Some(error),
        };

        let region = owner.region.as_ref().map(Region::id);
        let owner = Arc::new(owner);
        let buffer = |number: usize| {
            // SAFETY: `number * step_bytes` is below `all_bytes`, inside the allocation that `owner` keeps.
            let ptr = unsafe { owner.ptr.add(number * step_bytes) };
            Self { ptr, len_bytes, owner: Some(Arc::clone(&owner)), region }
        };
        Ok(Buffers { buffers: (0..count).map(buffer).collect(), not_registered })
    }

    /// Returns a buffer without bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self { ptr: NonNull::dangling(), len_bytes: 0, owner: None, region: None }
    }

    /// Returns the address of `len_bytes` bytes from `from` on, and their registered region; `None` if they are not all
    /// inside.
    pub(crate) fn part(&mut self, from: usize, len_bytes: usize) -> Option<(*mut u8, Option<RegionId>)> {
        // Computed without a slice of the buffer: a reference would claim bytes that another piece may be writing.
        if from.checked_add(len_bytes)? > self.len_bytes {
            return None;
        }
        // SAFETY: `from` is at most `len_bytes`, inside the allocation that `owner` keeps.
        Some((unsafe { self.ptr.as_ptr().add(from) }, self.region))
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Returns the bytes of memory that it keeps: its length, or more if it is a pool's.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let home = self.owner.as_ref().and_then(|owner| owner.home.as_ref());
        home.map_or(self.len_bytes, pool::Home::buffer_bytes)
    }

    /// Returns the alignment in bytes.
    #[must_use]
    pub fn align_bytes(&self) -> usize {
        self.owner.as_ref().map_or(1, |owner| owner.align_bytes)
    }

    /// Returns the address of the first byte, as memory for an operation.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            pool::give_back(self.ptr, owner);
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len_bytes` initialised bytes that this buffer owns and that `&self` keeps from being written.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len_bytes) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len_bytes` initialised bytes that this buffer owns, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len_bytes) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes, aligned to {})", self.len_bytes, self.align_bytes())
    }
}

/// A part of an [`AlignedBuf`], which it owns whole: the result of a read of any range, without a copy.
///
/// It is a slice of bytes; `bytes::Bytes::from_owner` takes it directly.
///
/// # Example
/// ```
/// # async fn example(file: plimsoll::File) -> std::io::Result<bytes::Bytes> {
/// let value = file.read_exact_at(12_345, 678).await?;
/// Ok(bytes::Bytes::from_owner(value))
/// # }
/// ```
pub struct OwnedSlice {
    buffer: AlignedBuf,
    range: Range<usize>,
}

impl OwnedSlice {
    /// Returns the part of `buffer` that `range` names, cut at the end of the buffer.
    #[must_use]
    pub fn new(buffer: AlignedBuf, range: Range<usize>) -> OwnedSlice {
        let end = range.end.min(buffer.len());
        OwnedSlice { range: range.start.min(end)..end, buffer }
    }

    /// Returns the whole buffer, for reuse.
    #[must_use]
    pub fn into_buffer(self) -> AlignedBuf {
        self.buffer
    }
}

impl Deref for OwnedSlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for OwnedSlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for OwnedSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedSlice({} of {} bytes)", self.range.len(), self.buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_and_aligned() -> Result<(), BufferError> {
        // Miri takes four minutes for a mebibyte.
        let long_bytes = if cfg!(miri) { 1 << 13 } else { 1 << 20 };
        for (len_bytes, align_bytes) in [(0, 4096), (1, 512), (511, 512), (4096, 4096), (long_bytes, 1 << 16)] {
            let mut buffer = AlignedBuf::with_align(len_bytes, align_bytes)?;
            assert_eq!(buffer.len(), len_bytes);
            assert_eq!(buffer.as_mut_ptr() as usize % align_bytes, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(0xff);
        }
        Ok(())
    }

    #[test]
    fn impossible_buffers_are_errors() {
        for (len_bytes, align_bytes) in [(4096, 0), (4096, 3), (usize::MAX, 4096)] {
            let Err(error) = AlignedBuf::with_align(len_bytes, align_bytes) else {
                panic!("{len_bytes} {align_bytes}")
            };
            assert_eq!(error, BufferError::BadLayout { len_bytes, align_bytes });
        }
    }

    #[test]
    fn registered_buffers_share_one_region() -> Result<(), BufferError> {
        let Ok(mut backend) = crate::backend::null::NullBackend::new() else { panic!("null needs nothing") };
        let made = AlignedBuf::registered(3, 5000, &mut backend)?;
        let why = made.not_registered.as_ref().map(io::Error::kind);
        assert_eq!((made.registered(), why), (0, Some(io::ErrorKind::Unsupported)));
        let mut buffers = made.buffers;
        assert_eq!(buffers.iter().map(|b| b.len()).collect::<Vec<_>>(), [5000; 3]);
        buffers[1].fill(9);
        let last = buffers.pop();
        drop(buffers);
        assert!(last.is_some_and(|b| b.iter().all(|&byte| byte == 0) && (b.as_ptr() as usize).is_multiple_of(4096)));
        Ok(())
    }

    /// Returns whether the kernel was advised to use huge pages at `address`; `None` where it knows no such advice.
    fn is_advised(address: usize) -> Option<bool> {
        let mappings = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut is_inside = false;
        for line in mappings.lines() {
            let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            if let Some((from, to)) = range
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                is_inside = (from..to).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_inside) {
                return Some(flags.split_whitespace().any(|flag| flag == "hg"));
            }
        }
        None
    }

    #[test]
    fn huge_pages_are_asked_for_long_memory() -> Result<(), BufferError> {
        if cfg!(miri) || !std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists() {
            crate::skip::skip("no transparent huge pages here");
            return Ok(());
        }
        let Ok(mut backend) = crate::backend::null::NullBackend::new() else { panic!("null needs nothing") };
        // Four requests of 128 KiB; three huge pages and a bit.
        let few = AlignedBuf::registered(4, 128 << 10, &mut backend)?.buffers;
        let many = AlignedBuf::registered(50, 128 << 10, &mut backend)?.buffers;
        for first in [&few[0], &many[0]] {
            let address = first.as_ptr() as usize;
            assert_eq!((address % HUGE_PAGE_BYTES, is_advised(address)), (0, Some(true)), "{first:?}");
            assert_eq!(first.align_bytes(), DEFAULT_ALIGN_BYTES);
        }
        let last = many[49].as_ptr() as usize;
        assert_eq!(is_advised(last), Some(true));
        assert!(many.iter().chain(&few).all(|buffer| buffer.iter().all(|&byte| byte == 0)));
        Ok(())
    }

    #[test]
    fn a_slice_is_the_part_that_there_is() -> Result<(), BufferError> {
        // Requested range, and its part that lies in a buffer of 8 bytes.
        for (range, expected) in [(2..5, 2..5), (0..9, 0..8), (7..7, 7..7), (9..12, 8..8)] {
            let mut buffer = AlignedBuf::new(8)?;
            buffer.copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7]);
            let slice = OwnedSlice::new(buffer, range);
            assert_eq!(slice.as_ref(), expected.map(|n| n as u8).collect::<Vec<_>>());
            assert_eq!(slice.into_buffer().len(), 8);
        }
        Ok(())
    }

    #[test]
    fn parts_stay_inside() -> Result<(), BufferError> {
        let mut buffer = AlignedBuf::new(8192)?;
        let start = buffer.as_mut_ptr() as usize;
        assert_eq!(buffer.part(4096, 4096).map(|(ptr, region)| (ptr as usize - start, region)), Some((4096, None)));
        assert_eq!(buffer.part(4096, 4097), None);
        assert_eq!(AlignedBuf::empty().len(), 0);
        Ok(())
    }
}
