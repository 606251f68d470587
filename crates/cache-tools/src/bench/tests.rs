//! The benchmark against a map in memory that misbehaves on demand.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use plimsoll_cache::CacheError;
use plimsoll_cache::stats::{DiskStats, IoStats};

use super::*;

#[derive(Default)]
struct Map {
    blocks: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    inserts: AtomicU64,
    is_liar: bool,
    is_closed: bool,
}

impl Target for Map {
    async fn look_up(&self, key: &[u8]) -> Result<Looked<impl AsRef<[u8]>>, CacheError> {
        let Some(mut block) = self.blocks.lock().unwrap().get(key).cloned() else {
            return Ok(Looked::Miss(MissReason::Absent));
        };
        if self.is_liar {
            block[1] ^= 4;
        }
        Ok(Looked::Hit(block))
    }

    async fn insert(&self, key: &[u8], value: &[u8]) -> Result<Option<DropReason>, CacheError> {
        if self.is_closed {
            return Err(CacheError::AllFailed);
        }
        let number = self.inserts.fetch_add(1, Relaxed);
        if number.is_multiple_of(10) {
            return Ok(Some(DropReason::NoSpace));
        }
        let mut blocks = self.blocks.lock().unwrap();
        if blocks.len() < 1000 {
            blocks.insert(key.to_vec(), value.to_vec());
        }
        Ok(None)
    }

    /// Returns statistics of two disks that write alike.
    fn stats(&self) -> CacheStats {
        let inserts = self.inserts.load(Relaxed);
        let disk = |number: u16| DiskStats {
            number,
            path: format!("/disk{number}"),
            capacity_bytes: 3000,
            slabs: 1,
            free_slabs: if self.is_liar { 2 } else { 1 },
            write_bytes_per_s: 1e6,
            io: [("insert_write".into(), IoStats { bytes: inserts * 100, ..IoStats::default() })].into(),
            ..DiskStats::default()
        };
        CacheStats { inserts, evictions: inserts / 100, disks: vec![disk(0), disk(1)], ..CacheStats::default() }
    }
}

fn options() -> BenchOptions {
    BenchOptions {
        mix: Mix::ReadPct(50),
        block_bytes: 64,
        keys: Some(100),
        zipf: Some(0.99),
        concurrency: 4,
        rate_per_s: Some(2000.0),
        duration: Duration::from_millis(300),
        fill: true,
        verify: true,
        threads: 2,
        ..BenchOptions::default()
    }
}

#[test]
fn everything_is_counted() {
    let map = Map::default();
    let mut fractions = Vec::new();
    let report = run(&map, &options(), &|| false, &mut |part, _| fractions.push(part)).unwrap();
    assert!(report.seconds >= 0.3 && !report.is_interrupted);
    assert!(report.hits > 0 && report.inserts > 0 && report.drops["no_space"] > 0, "{report:?}");
    assert!(report.verified_hits >= report.hits);
    assert_eq!((report.wrong_hits, report.is_wrong()), (0, false), "{report:?}");
    assert_eq!((report.hit_latency.count, report.insert_latency.count), (report.hits, report.inserts));
    assert_eq!(report.series.len(), 2);
    assert_eq!(report.look_ups.iter().map(|point| point.hits).sum::<u64>(), report.hits);
    let misses = report.misses.values().sum::<u64>();
    assert_eq!(report.look_ups.iter().map(|point| point.misses).sum::<u64>(), misses);
    assert!(report.cpu_s_per_million_operations.is_some());
    assert!(report.effective_devices.is_empty(), "no window of 2 s is full");
    assert!(fractions.is_sorted() && !fractions.is_empty());
}

#[test]
fn a_wrong_byte_and_impossible_counters_are_seen() {
    let map = Map { is_liar: true, ..Map::default() };
    let report = run(&map, &options(), &|| false, &mut |_, _| ()).unwrap();
    assert!(report.wrong_hits > 0 && report.verified_hits == 0 && report.is_wrong());
    assert!(report.invariants_violated[0].contains("2 of 1 slabs"), "{:?}", report.invariants_violated);
    assert!(report.invariants_violated.len() <= VIOLATIONS_MAX);
}

#[test]
fn it_ends_early() {
    let map = Map::default();
    let long = BenchOptions { duration: Duration::from_secs(3600), ..options() };
    let report = run(&map, &long, &|| true, &mut |_, _| ()).unwrap();
    assert!(report.is_interrupted && report.seconds < 3600.0);
    let closed = Map { is_closed: true, ..Map::default() };
    let error = run(&closed, &BenchOptions { mix: Mix::WriteOnly, ..long }, &|| false, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, BenchError::Cache(CacheError::AllFailed)), "{error}");
}

/// It would insert for ever.
#[test]
fn a_cache_that_the_keys_cannot_fill_is_refused() {
    let small = BenchOptions { keys: Some(1), fill: true, ..options() };
    let error = run(&Map::default(), &small, &|| false, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, BenchError::NeverFull { keys: 1, all_bytes: 64, capacity_bytes: 6000 }), "{error}");
}

#[test]
fn without_reads_there_is_no_hit() {
    let map = Map::default();
    let options = BenchOptions { mix: Mix::WriteOnly, keys: None, zipf: None, fill: false, ..options() };
    let report = run(&map, &options, &|| false, &mut |_, _| ()).unwrap();
    assert!(report.inserts > 0);
    assert_eq!((report.hits, report.misses.values().sum::<u64>()), (0, 0));
}
