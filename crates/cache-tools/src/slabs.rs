//! The use of a cache's slabs, by device and block size.
//!
//! # Why
//! If its mix of block sizes changes, a cache may be half empty and still have no room for a block. The table shows
//! which slabs hold which blocks, and how full they are.
//!
//! # How it works
//! [`SlabTable`] holds a row for each device and bucket, and sums. [`SlabTable::summaries`] adds them up by kind.
//! [`SlabTable::order`] lists the slabs as they are opened: if equally full ones are in order of number, and numbers in
//! order of device, one device gets all writes until its slabs are as full as the others'. [`SlabTable::runs`] shows
//! such runs.
//!
//! # Limits
//! If the cache is closed or was killed, the state is that of the last checkpoint.
//!
//! # Example
//! ```
//! use plimsoll_cache::SlabUse;
//! use plimsoll_cache_tools::slabs::SlabRow;
//! let usage = SlabUse { size_bytes: 32 << 20, allocated_bytes: 8 << 20, ..SlabUse::default() };
//! let row = SlabRow { usage, ..SlabRow::default() };
//! assert_eq!((row.capacity_pct(), row.bar().as_str()), (25.0, "#####..............."));
//! ```

use plimsoll_cache::{BucketReport, Placement, SlabInOrder, SlabReport, SlabUse};
use plimsoll_show::table::{Column, csv, fixed};
use serde::Serialize;

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
    #[serde(flatten)]
    pub usage: SlabUse,
}

impl SlabRow {
    /// Returns how full the slabs are, in percent, or 0 without slabs.
    pub fn capacity_pct(&self) -> f64 {
        let SlabUse { size_bytes, allocated_bytes, .. } = self.usage;
        if size_bytes == 0 { 0.0 } else { allocated_bytes as f64 * 100.0 / size_bytes as f64 }
    }

    /// Returns how full the slabs are, as a bar of 20 letters.
    pub fn bar(&self) -> String {
        let full = ((self.capacity_pct() / 100.0 * BAR as f64).round() as usize).min(BAR);
        format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
    }

    fn add(&mut self, other: &SlabRow) {
        let (sum, other) = (&mut self.usage, &other.usage);
        sum.slabs += other.slabs;
        sum.size_bytes += other.size_bytes;
        sum.allocated_bytes += other.allocated_bytes;
        sum.free_bytes += other.free_bytes;
        sum.freeing_bytes += other.freeing_bytes;
        sum.slabs_by_tenth.iter_mut().zip(other.slabs_by_tenth).for_each(|(sum, count)| *sum += count);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SlabTable {
    pub schema: u32,
    pub slab_bytes: u32,
    pub rows: Vec<SlabRow>,
    /// Sums of the kinds `bitmap`, `extent`, `evacuating` (already counted in these), `metadata`, `free`.
    pub summaries: Vec<SlabRow>,
    /// Name of the cache's placement, which says how the order is followed.
    pub placement: String,
    /// Slabs in the order in which they are opened.
    pub order: Vec<OrderRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OrderRow {
    pub device: String,
    pub slab: u32,
    /// Length of the longest block, in bytes; 0 for an unused slab.
    pub max_size_bytes: u32,
    /// Bytes taken by blocks, padding included.
    pub allocated_bytes: u64,
    /// The rest of the slab, in bytes.
    pub free_bytes: u64,
}

impl SlabTable {
    /// Returns the table of a report. `paths` are the devices by number.
    pub fn new(report: &SlabReport, paths: &[(u16, String)], placement: Placement) -> SlabTable {
        let path = |disk: u16| {
            let found = paths.iter().find(|(number, _)| *number == disk).map(|(_, path)| path.clone());
            found.unwrap_or_else(|| format!("disk {disk}"))
        };

        let row = |bucket: &BucketReport| SlabRow {
            device: path(bucket.disk),
            kind: if bucket.is_bitmap { "bitmap" } else { "extent" }.to_owned(),
            max_size_bytes: bucket.max_size_bytes,
            usage: bucket.usage.clone(),
        };
        let rows: Vec<SlabRow> = report.buckets.iter().map(row).collect();

        let whole = |kind: &str, slabs: u32| {
            let size_bytes = u64::from(slabs) * u64::from(report.slab_bytes);
            let usage = SlabUse { slabs, size_bytes, ..SlabUse::default() };
            SlabRow { kind: kind.to_owned(), usage, ..SlabRow::default() }
        };
        let sum = |kind: &str| {
            let mut sum = SlabRow { kind: kind.to_owned(), ..SlabRow::default() };
            rows.iter().filter(|row| row.kind == kind).for_each(|row| sum.add(row));
            sum
        };
        let mut free = whole("free", report.free_slabs);
        free.usage.free_bytes = free.usage.size_bytes;
        let mut metadata = whole("metadata", report.metadata_slabs);
        metadata.usage.allocated_bytes = metadata.usage.size_bytes;
        let summaries =
            vec![sum("bitmap"), sum("extent"), whole("evacuating", report.evacuating_slabs), metadata, free];
        let placement = Placement::ALL.iter().find(|(_, known)| *known == placement).map_or("", |(name, _)| name);
        let in_order = |it: &SlabInOrder| OrderRow {
            device: path(it.disk),
            slab: it.slab,
            max_size_bytes: it.max_size_bytes,
            allocated_bytes: it.allocated_bytes,
            free_bytes: u64::from(report.slab_bytes).saturating_sub(it.allocated_bytes),
        };
        SlabTable {
            schema: 1,
            slab_bytes: report.slab_bytes,
            rows,
            summaries,
            placement: placement.to_owned(),
            order: report.order.iter().map(in_order).collect(),
        }
    }

    /// Returns the order as runs of slabs that follow one another on one device, for blocks of one size.
    pub fn runs(&self) -> impl Iterator<Item = &[OrderRow]> {
        self.order.chunk_by(|one, next| one.device == next.device && one.max_size_bytes == next.max_size_bytes)
    }

    pub fn order_csv(&self) -> String {
        let columns: &[Column<OrderRow>] = &[
            ("device", |it| it.device.clone()),
            ("slab", |it| it.slab.to_string()),
            ("max_size_bytes", |it| it.max_size_bytes.to_string()),
            ("allocated_bytes", |it| it.allocated_bytes.to_string()),
            ("free_bytes", |it| it.free_bytes.to_string()),
        ];
        csv(&self.order, columns)
    }

    pub fn to_csv(&self) -> String {
        let columns: &[Column<SlabRow>] = &[
            ("device", |it| it.device.clone()),
            ("kind", |it| it.kind.clone()),
            ("max_size_bytes", |it| it.max_size_bytes.to_string()),
            ("slabs", |it| it.usage.slabs.to_string()),
            ("size_bytes", |it| it.usage.size_bytes.to_string()),
            ("allocated_bytes", |it| it.usage.allocated_bytes.to_string()),
            ("free_bytes", |it| it.usage.free_bytes.to_string()),
            ("freeing_bytes", |it| it.usage.freeing_bytes.to_string()),
            ("mean_free_segments", |it| fixed(it.usage.mean_free_segments, 2)),
        ];
        csv(self.rows.iter().chain(&self.summaries), columns)
    }
}
