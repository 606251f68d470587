//! The use of a cache's slabs, by device and block size.
//!
//! # Why
//! If its mix of block sizes changes, a cache may be half empty and still have no room for a block. The table shows
//! which slabs hold which blocks, and how full they are.
//!
//! # How it works
//! [`SlabTable`] holds a row for each device and bucket, and sums. [`SlabTable::summaries`] adds them up by kind.
//!
//! # Limits
//! If the cache is closed or was killed, the state is that of the last checkpoint.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::slabs::SlabRow;
//! let row = SlabRow { size_bytes: 32 << 20, allocated_bytes: 8 << 20, ..SlabRow::default() };
//! assert_eq!((row.capacity_pct(), row.bar().as_str()), (25.0, "#####..............."));
//! ```

use plimsoll_cache::SlabReport;
use plimsoll_show::table::{Column, csv, fixed};
use serde::Serialize;

/// Length of a bar, in letters.
const BAR: usize = 20;

/// The slabs of one device for blocks of one size, or a sum of several such rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SlabRow {
    /// The device's path; empty in sums.
    pub device: String,
    /// `bitmap` (blocks of one size), `extent` (of mixed sizes); in sums also `evacuating`, `metadata`, `free`.
    pub kind: String,
    /// Length of the longest block, in bytes, padding included; 0 in sums.
    pub max_size_bytes: u32,
    /// Number of slabs.
    pub slabs: u32,
    /// Their size, in bytes.
    pub size_bytes: u64,
    /// Bytes taken by blocks.
    pub allocated_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes that are free after the next checkpoints.
    pub freeing_bytes: u64,
    /// Mean number of pieces that a slab's free space is in.
    pub mean_free_segments: f64,
    /// Slabs that are less than 10 % full, 10 to 20 %, ... and 90 to 100 %.
    pub slabs_by_tenth: [u32; 10],
}

impl SlabRow {
    /// Returns how full the slabs are, in percent; 0 without slabs.
    #[must_use]
    pub fn capacity_pct(&self) -> f64 {
        if self.size_bytes == 0 { 0.0 } else { self.allocated_bytes as f64 * 100.0 / self.size_bytes as f64 }
    }

    /// Returns how full the slabs are, as a bar of 20 letters.
    #[must_use]
    pub fn bar(&self) -> String {
        let full = ((self.capacity_pct() / 100.0 * BAR as f64).round() as usize).min(BAR);
        format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
    }

    fn add(&mut self, other: &SlabRow) {
        self.slabs += other.slabs;
        self.size_bytes += other.size_bytes;
        self.allocated_bytes += other.allocated_bytes;
        self.free_bytes += other.free_bytes;
        self.freeing_bytes += other.freeing_bytes;
        self.slabs_by_tenth.iter_mut().zip(other.slabs_by_tenth).for_each(|(sum, count)| *sum += count);
    }
}

/// The use of all slabs of a cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SlabTable {
    /// Version of the schema: 1.
    pub schema: u32,
    /// Size of a slab, in bytes.
    pub slab_bytes: u32,
    /// By device, then by block size.
    pub rows: Vec<SlabRow>,
    /// Sums of the kinds `bitmap`, `extent`, `evacuating` (already counted in these), `metadata`, `free`.
    pub summaries: Vec<SlabRow>,
}

impl SlabTable {
    /// Returns the table of a report. `paths` are the devices by number.
    #[must_use]
    pub fn new(report: &SlabReport, paths: &[(u16, String)]) -> SlabTable {
        let path = |disk: u16| {
            let found = paths.iter().find(|(number, _)| *number == disk).map(|(_, path)| path.clone());
            found.unwrap_or_else(|| format!("disk {disk}"))
        };

        let row = |bucket: &plimsoll_cache::BucketReport| SlabRow {
            device: path(bucket.disk),
            kind: if bucket.is_bitmap { "bitmap" } else { "extent" }.to_owned(),
            max_size_bytes: bucket.max_size_bytes,
            slabs: bucket.slabs,
            size_bytes: bucket.size_bytes,
            allocated_bytes: bucket.allocated_bytes,
            free_bytes: bucket.free_bytes,
            freeing_bytes: bucket.freeing_bytes,
            mean_free_segments: bucket.mean_free_segments,
            slabs_by_tenth: bucket.slabs_by_tenth,
        };
        let rows: Vec<SlabRow> = report.buckets.iter().map(row).collect();

        let whole = |kind: &str, slabs: u32| {
            let size_bytes = u64::from(slabs) * u64::from(report.slab_bytes);
            SlabRow { kind: kind.to_owned(), slabs, size_bytes, ..SlabRow::default() }
        };
        let sum = |kind: &str| {
            let mut sum = SlabRow { kind: kind.to_owned(), ..SlabRow::default() };
            rows.iter().filter(|row| row.kind == kind).for_each(|row| sum.add(row));
            sum
        };
        let free = whole("free", report.free_slabs);
        let metadata = whole("metadata", report.metadata_slabs);
        let summaries = vec![
            sum("bitmap"),
            sum("extent"),
            whole("evacuating", report.evacuating_slabs),
            SlabRow { allocated_bytes: metadata.size_bytes, ..metadata },
            SlabRow { free_bytes: free.size_bytes, ..free },
        ];
        SlabTable { schema: 1, slab_bytes: report.slab_bytes, rows, summaries }
    }

    /// Returns CSV with a line for each row, then the sums.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let columns: &[Column<SlabRow>] = &[
            ("device", |it| it.device.clone()),
            ("kind", |it| it.kind.clone()),
            ("max_size_bytes", |it| it.max_size_bytes.to_string()),
            ("slabs", |it| it.slabs.to_string()),
            ("size_bytes", |it| it.size_bytes.to_string()),
            ("allocated_bytes", |it| it.allocated_bytes.to_string()),
            ("free_bytes", |it| it.free_bytes.to_string()),
            ("freeing_bytes", |it| it.freeing_bytes.to_string()),
            ("mean_free_segments", |it| fixed(it.mean_free_segments, 2)),
        ];
        csv(self.rows.iter().chain(&self.summaries), columns)
    }
}
