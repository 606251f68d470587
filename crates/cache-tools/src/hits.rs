//! Hits by cache size: of smaller caches, and of larger ones.
//!
//! # Why
//! "Would more disks help?" has an answer while the cache runs: look-ups of recently evicted blocks find their ghosts,
//! and every hit shows how much was used since the block's last use.
//!
//! # How it works
//! [`HitTable::new`] divides the curve of a snapshot into at most `max_rows` rows of equal steps, each with the hits
//! of a cache of that size. Rows beyond the present size come from ghosts.
//!
//! # Limits
//! A curve restarts when the capacity changes. Points between two rows are not shown.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::hits::HitTable;
//! use plimsoll_cache::stats::{CacheStats, DiskStats, HitCurve};
//! let disk = DiskStats { capacity_bytes: 100, ..DiskStats::default() };
//! let mut cache = CacheStats { disks: vec![disk], ..CacheStats::default() };
//! cache.hit_curve = HitCurve { hits: vec![10, 30, 45, 50], step_bytes: 50, lookups: 100 };
//! let table = HitTable::new(&cache, 20);
//! assert_eq!((table.rows[1].pct, table.rows[1].is_ghost), (30.0, false));
//! assert_eq!((table.rows[3].pct, table.rows[3].is_ghost), (50.0, true));
//! ```

use std::fmt::Write as _;

use plimsoll_cache::stats::CacheStats;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HitRow {
    pub size_bytes: u64,
    /// Hits that a cache of this size would have had.
    pub hits: u64,
    /// These hits in percent of all look-ups.
    pub pct: f64,
    /// Hits gained over the row above, in percent of all look-ups.
    pub gain_pct: f64,
    /// Whether this size exceeds the present cache.
    pub is_ghost: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HitTable {
    pub schema: u32,
    pub capacity_bytes: u64,
    pub lookups: u64,
    /// Hits since the cache was opened, from disks and memory.
    pub hits: u64,
    pub ghosts: u64,
    pub rows: Vec<HitRow>,
}

impl HitTable {
    pub fn new(cache: &CacheStats, max_rows: usize) -> HitTable {
        let curve = &cache.hit_curve;
        let capacity_bytes = cache.disks.iter().map(|disk| disk.capacity_bytes).sum();
        let every = curve.hits.len().div_ceil(max_rows.max(1)).max(1);
        let percent = |hits: u64| if curve.lookups == 0 { 0.0 } else { hits as f64 * 100.0 / curve.lookups as f64 };
        let mut rows: Vec<HitRow> = Vec::new();
        for (at, hits) in curve.hits.iter().enumerate().filter(|(at, _)| (at + 1).is_multiple_of(every)) {
            let size_bytes = curve.step_bytes.saturating_mul(at as u64 + 1);
            let pct = percent(*hits);
            let gain_pct = pct - rows.last().map_or(0.0, |row| row.pct);
            rows.push(HitRow { size_bytes, hits: *hits, pct, gain_pct, is_ghost: size_bytes > capacity_bytes });
        }
        let hits = cache.hits + cache.memory_hits;
        HitTable { schema: 1, capacity_bytes, lookups: curve.lookups, hits, ghosts: cache.ghosts, rows }
    }

    pub fn to_csv(&self) -> String {
        let mut text = String::from("size_bytes,hits,pct,gain_pct,is_ghost\n");
        for row in &self.rows {
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "{},{},{:.4},{:.4},{}", row.size_bytes, row.hits, row.pct, row.gain_pct, row.is_ghost);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_cache::stats::{DiskStats, HitCurve};

    use super::*;

    #[test]
    fn rows_are_even_and_reach_the_end() {
        let disk = DiskStats { capacity_bytes: 5000, ..DiskStats::default() };
        let hit_curve = HitCurve { hits: (1..=100).collect(), step_bytes: 100, lookups: 200 };
        let cache = CacheStats { disks: vec![disk], hit_curve, hits: 3, memory_hits: 4, ..CacheStats::default() };
        let table = HitTable::new(&cache, 20);
        assert_eq!((table.rows.len(), table.hits), (20, 7));
        assert_eq!((table.rows[9].size_bytes, table.rows[9].is_ghost, table.rows[9].pct), (5000, false, 25.0));
        assert_eq!((table.rows[19].pct, table.rows[19].gain_pct, table.rows[19].is_ghost), (50.0, 2.5, true));
        assert_eq!(table.to_csv().lines().count(), 21);
        assert_eq!(HitTable::new(&cache, 0).rows.len(), 1);
        assert!(HitTable::new(&CacheStats::default(), 20).rows.is_empty());
    }
}
