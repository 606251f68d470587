//! Maps requests of a trace to places on the target of a replay.
//!
//! **Why.** The target is one file or device of another size than the trace's. Neighbours must stay neighbours, and
//! files must not overlap as long as there is room.
//!
//! **How.** The used parts of the trace's files lie one after another, each starting at a multiple of 4 KiB of its
//! file. Beyond the end of the target they wrap: the position modulo the target's length. A request that would cross
//! the end is moved down until it fits. The beginning is rounded down, the end up, to the target's alignment.
//!
//! **Limits.** After wrapping, files overlap; [`Places::total_bytes`] is the length that avoids this.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_load::replay::Places;
//! // File 1 was used from 8 KiB to 16 KiB, file 2 from 0 to 4 KiB.
//! let regions = [((0, 1), (8192, 16_384)), ((0, 2), (0, 4096))].into_iter().collect();
//! let places = Places::new(&regions, 512, 1 << 20);
//! assert_eq!(places.total_bytes(), 8192 + 4096);
//! assert_eq!(places.place((0, 1), 8192, 4096).offset_bytes, 0);
//! assert_eq!(places.place((0, 2), 0, 4096).offset_bytes, 8192);
//! ```

use std::collections::BTreeMap;

/// Used parts begin at multiples of this, so aligned requests stay aligned.
const UNIT_BYTES: u64 = 4096;

#[derive(Clone, Debug)]
pub struct Places {
    /// By (disk, file): first byte of the used part, and its place on the target.
    files: BTreeMap<(u16, u32), (u64, u64)>,
    total_bytes: u64,
    align_bytes: u64,
    /// Usable length of the target: a multiple of the alignment.
    room_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes from the beginning of the target.
    pub offset_bytes: u64,
    /// Length in bytes: a multiple of the alignment.
    pub len_bytes: u64,
    /// Whether the request wrapped, or was moved down, because the target ends before its place.
    pub is_wrapped: bool,
    /// Whether the request is longer than in the trace.
    pub is_widened: bool,
    /// Whether the request is shorter than in the trace, because the target has no more room.
    pub is_cut: bool,
}

impl Places {
    /// Returns places for `regions` (by (disk, file): first byte, and the byte after the last) on a target of
    /// `target_bytes` whose offsets and lengths are multiples of `align_bytes`.
    pub fn new(regions: &BTreeMap<(u16, u32), (u64, u64)>, align_bytes: u32, target_bytes: u64) -> Places {
        let mut total_bytes = 0_u64;
        let place = |(key, (first, end)): (&(u16, u32), &(u64, u64))| {
            let first = first - first % UNIT_BYTES;
            let base = total_bytes;
            let used_bytes = end.saturating_sub(first).div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES);
            total_bytes = total_bytes.saturating_add(used_bytes);
            (*key, (first, base))
        };
        let files = regions.iter().map(place).collect();
        let align_bytes = u64::from(align_bytes.max(1));
        Places { files, total_bytes, align_bytes, room_bytes: target_bytes - target_bytes % align_bytes }
    }

    /// Returns the length in bytes of a target on which nothing would overlap.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// Returns the place of `len_bytes` (above 0) at `offset_bytes` of a (disk, file). If the target has no room, the
    /// length is 0.
    pub fn place(&self, file: (u16, u32), offset_bytes: u64, len_bytes: u32) -> Place {
        let (first, base) = self.files.get(&file).copied().unwrap_or((0, 0));
        let position = base.saturating_add(offset_bytes.saturating_sub(first));
        let begin = position - position % self.align_bytes;
        let end =
            position.saturating_add(u64::from(len_bytes)).div_ceil(self.align_bytes).saturating_mul(self.align_bytes);
        let wide_bytes = end.saturating_sub(begin);
        let placed_bytes = wide_bytes.min(self.room_bytes);
        let inside = if self.room_bytes == 0 { 0 } else { begin % self.room_bytes };
        Place {
            offset_bytes: inside.min(self.room_bytes - placed_bytes),
            len_bytes: placed_bytes,
            is_wrapped: begin.saturating_add(wide_bytes) > self.room_bytes,
            is_widened: placed_bytes > u64::from(len_bytes),
            is_cut: placed_bytes < u64::from(len_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_aligned_and_inside() {
        let regions = [((0, 1), (0, 1 << 30))].into_iter().collect();
        // Offset, length, alignment, length of the target: place, length, wrapped, widened, cut.
        let cases = [
            ((8192, 4096, 512, 1 << 20), (8192, 4096, false, false, false)),
            ((512, 512, 4096, 1 << 20), (0, 4096, false, true, false)),
            ((4095, 2, 4096, 1 << 20), (0, 8192, false, true, false)),
            ((1 << 20, 4096, 512, 1 << 20), (0, 4096, true, false, false)),
            (((1 << 20) - 2048, 4096, 512, 1 << 20), ((1 << 20) - 4096, 4096, true, false, false)),
            ((0, 1 << 20, 4096, 65_536 + 100), (0, 65_536, true, false, true)),
            ((12_288, 1 << 20, 4096, 65_536), (0, 65_536, true, false, true)),
            ((0, 4096, 4096, 100), (0, 0, true, false, true)),
            ((u64::MAX, 4096, 512, 1 << 20), ((1 << 20) - 512, 512, true, false, true)),
        ];
        for ((offset, len, align, target), (at, placed, is_wrapped, is_widened, is_cut)) in cases {
            let place = Places::new(&regions, align, target).place((0, 1), offset, len);
            let expected = Place { offset_bytes: at, len_bytes: placed, is_wrapped, is_widened, is_cut };
            if offset < u64::MAX {
                assert_eq!(place, expected, "{offset} {len} {align} {target}");
            }
            assert!(place.offset_bytes + place.len_bytes <= target && place.offset_bytes.is_multiple_of(align.into()));
        }
    }

    #[test]
    fn files_lie_one_behind_another_without_what_was_not_used() {
        let regions = [((0, 1), (1_000_000, 1_010_000)), ((0, 9), (5000, 6000)), ((1, 1), (0, 1))];
        let places = Places::new(&regions.into_iter().collect(), 1, 1 << 40);
        // 1,000,000 is 576 bytes after a multiple of 4 KiB.
        assert_eq!(places.place((0, 1), 1_000_000, 1).offset_bytes, 576);
        assert_eq!(places.place((0, 9), 5000, 1).offset_bytes, 12_288 + 904);
        assert_eq!(places.place((1, 1), 0, 1).offset_bytes, 12_288 + 4096);
        assert_eq!(places.total_bytes(), 12_288 + 4096 + 4096);
        assert_eq!(places.place((7, 7), 100, 1).offset_bytes, 100, "a file that was not surveyed");
    }
}
