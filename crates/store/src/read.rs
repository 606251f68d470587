//! Reads an object: ranges of an open file as `Bytes`, and streams of them.

use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::{Result, collect_bytes};
use plimsoll::{Class, File};

use crate::failure::failure;

/// Longest part of a stream, in bytes.
const PART_BYTES: u64 = 1 << 20;

/// Parts of a stream in flight, including the one that the caller receives.
const PARTS_IN_FLIGHT: usize = 2;

/// Alignment of the borders between parts, in bytes, so that no block is read twice.
const BLOCK_BYTES: u64 = 4096;

/// Longest range that is read into one piece of memory, in bytes. A request must be shorter than 4 GiB.
const RANGE_BYTES: u64 = 1 << 30;

/// Reads the bytes `range` of `object`; up to [`RANGE_BYTES`] without a copy.
pub(crate) async fn read_range(object: Object, range: Range<u64>) -> Result<Bytes> {
    let len_bytes = range.end - range.start;
    if len_bytes > RANGE_BYTES {
        return collect_bytes(read_parts(object, range), Some(len_bytes)).await;
    }
    let read = object.file.read_exact_at(range.start, len_bytes as usize).await;
    Ok(Bytes::from_owner(read.map_err(|error| failure(&object.path, &error))?))
}

/// Returns the bytes `range` of `object` in parts.
pub(crate) fn read_parts(object: Object, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    let reads = parts(range).map(move |part| read_range(object.clone(), part));
    stream::iter(reads).buffered(PARTS_IN_FLIGHT).boxed()
}

/// An open object, and the path that its errors name.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) file: File,
    pub(crate) path: std::sync::Arc<std::path::Path>,
}

impl Object {
    /// Returns the same object with its reads in `class`.
    pub(crate) fn in_class(&self, class: Class) -> Object {
        Object { file: self.file.in_class(class), path: self.path.clone() }
    }
}

/// Cuts `range` into parts. A range no longer than a part is not cut.
fn parts(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let border = (start - start % BLOCK_BYTES).saturating_add(PART_BYTES);
        let end = if range.end - start <= PART_BYTES { range.end } else { border };
        let part = start..end;
        start = end;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_blocks() {
        const MIB: u64 = PART_BYTES;
        let table: [(Range<u64>, Vec<Range<u64>>); 6] = [
            (0..0, vec![]),
            (5..5, vec![]),
            (0..1, vec![Range { start: 0, end: 1 }]),
            (100..100 + MIB, vec![Range { start: 100, end: 100 + MIB }]),
            (0..MIB + 1, vec![0..MIB, MIB..MIB + 1]),
            (4097..2 * MIB + 5000, vec![4097..MIB + 4096, MIB + 4096..2 * MIB + 4096, 2 * MIB + 4096..2 * MIB + 5000]),
        ];
        for (range, expected) in table {
            assert_eq!(parts(range.clone()).collect::<Vec<_>>(), expected, "{range:?}");
        }
    }
}
