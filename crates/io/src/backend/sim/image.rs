//! Contents of one file on a simulated disk: bytes in sparse pages, cheap to copy.
//!
//! # Why
//! Every simulated file has two images, one for reads and one that survives a crash, and they are mostly the same.
//!
//! # How it works
//! Pages of [`PAGE_BYTES`] behind reference counts: a copy of an image shares all pages until one of the two writes. A
//! page that was never written, or was discarded whole, takes no memory and reads as zeros.
//!
//! # Limits
//! Images have no lock: the world that owns them has one.
//!
//! # Example
//! Writing 4 bytes at 8190 makes pages 1 and 2; the length is then 8194. Discarding 4096 bytes at 8192 drops page 2;
//! the length stays.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Length of the pages of contents.
pub(super) const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// A change of a file's image.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Writes these bytes from `offset` on; the file grows to hold them.
    Write { offset: u64, data: Vec<u8> },
    /// Zeroes a range without changing the length.
    Discard { offset: u64, len_bytes: u64 },
    /// Sets the length.
    SetLen { len_bytes: u64 },
    /// Raises the length to at least this.
    Grow { len_bytes: u64 },
}

/// The contents of a file; see the module's documentation.
#[derive(Clone, Default)]
pub(super) struct Image {
    len_bytes: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Image {
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, data } => self.write(*offset, data),
            Change::Discard { offset, len_bytes } => self.discard(*offset, *len_bytes),
            Change::SetLen { len_bytes } => self.set_len(*len_bytes),
            Change::Grow { len_bytes } => self.len_bytes = self.len_bytes.max(*len_bytes),
        }
    }

    /// Returns `len` bytes from `offset` on, fewer at the end of the file.
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let left_bytes = self.len_bytes.saturating_sub(offset);
        let len = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(len);
        let mut bytes = vec![0; len];
        for (page, inside, outside) in pages_of(offset, len) {
            let source = self.pages.get(&page).and_then(|page| page.get(inside));
            if let (Some(source), Some(target)) = (source, bytes.get_mut(outside)) {
                target.copy_from_slice(source);
            }
        }
        bytes
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        for (page, inside, outside) in pages_of(offset, from.len()) {
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            if let (Some(target), Some(source)) = (Arc::make_mut(page).get_mut(inside), from.get(outside)) {
                target.copy_from_slice(source);
            }
        }
        if !from.is_empty() {
            self.len_bytes = self.len_bytes.max(offset.saturating_add(from.len() as u64));
        }
    }

    /// Zeroes a range. Visits only pages that exist.
    fn discard(&mut self, offset: u64, len_bytes: u64) {
        const PAGE: u64 = PAGE_BYTES as u64;
        let end = offset.saturating_add(len_bytes);
        let touched: Vec<u64> = self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(page, _)| *page).collect();
        for page in touched {
            let start = offset.saturating_sub(page * PAGE).min(PAGE) as usize;
            let stop = (end - page * PAGE).min(PAGE) as usize;
            if stop - start == PAGE_BYTES {
                self.pages.remove(&page);
            } else if let Some(range) =
                self.pages.get_mut(&page).and_then(|page| Arc::make_mut(page).get_mut(start..stop))
            {
                range.fill(0);
            }
        }
    }

    fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            self.discard(len_bytes, self.len_bytes - len_bytes);
        }
        self.len_bytes = len_bytes;
    }
}

/// Returns the pages of a transfer: page number, range within the page, range within the transfer.
fn pages_of(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % PAGE_BYTES as u64) as usize;
        let step = (PAGE_BYTES - start).min(len - done);
        let ranges = (at / PAGE_BYTES as u64, start..start + step, done..done + step);
        done += step;
        Some(ranges)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn images_are_sparse_and_discard_gives_memory_back() {
        let mut image = Image::default();
        image.write(10 * PAGE - 2, &[1, 2, 3, 4]);
        assert_eq!((image.len_bytes(), image.pages.len()), (10 * PAGE + 2, 2));
        assert_eq!(image.read(10 * PAGE - 3, 6), [0, 1, 2, 3, 4]);
        image.apply(&Change::Discard { offset: 10 * PAGE - 1, len_bytes: PAGE + 1 });
        assert_eq!((image.read(10 * PAGE - 3, 6), image.pages.len()), (vec![0, 1, 0, 0, 0], 1));
        image.apply(&Change::Discard { offset: u64::MAX - 10, len_bytes: 5 });
    }

    #[test]
    fn a_file_cut_short_and_grown_again_reads_zeros() {
        let mut image = Image::default();
        image.write(0, &[7; 100]);
        for len_bytes in [10, 100] {
            image.apply(&Change::SetLen { len_bytes });
        }
        image.apply(&Change::Grow { len_bytes: 50 });
        let bytes = image.read(0, 1000);
        assert_eq!((bytes.len(), bytes[9], bytes[10], bytes[99]), (100, 7, 0, 0));
    }

    #[test]
    fn a_copy_shares_pages_until_one_of_the_two_writes() {
        let mut image = Image::default();
        image.write(0, &[1; 2 * PAGE_BYTES]);
        let copy = image.clone();
        image.write(0, &[2]);
        assert_eq!((image.read(0, 2), copy.read(0, 2)), (vec![2, 1], vec![1, 1]));
        assert!(Arc::ptr_eq(&image.pages[&1], &copy.pages[&1]) && !Arc::ptr_eq(&image.pages[&0], &copy.pages[&0]));
    }
}
