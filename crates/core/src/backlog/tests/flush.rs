//! Flushes on virtual time: a memory of four tables, a disk, writers that wait for their answers.

use std::collections::VecDeque;

use super::super::{ShareController, ShareCurve, ingestion_delay_ns};

const STEP_NS: u64 = 1_000_000;
const DURATION_NS: u64 = 30_000_000_000;
const DISK_BYTES_PER_S: f64 = 100e6;
const LIMIT_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const TABLE_BYTES: f64 = LIMIT_BYTES / 4.0;
const WRITERS: f64 = 64.0;
const WRITE_BYTES: f64 = 16384.0;
/// Time of a write that nothing delays.
const WRITE_NS: f64 = 3e6;
const DELAY_MAX_NS: u64 = 100_000_000;
const COMMITLOG_SHARES: f64 = 100.0;

/// The figures of the writers.
struct Outcome {
    bytes: f64,
    stalled_ns: u64,
    fullest: f64,
}

/// Runs writers beside a compaction with `compaction_shares` that never ends. A table is in its file `late_ns` after
/// its last byte: it is synced and entered into the manifest, one table after the other, while the next is written.
fn run(curve: ShareCurve, compaction_shares: f64, late_ns: u64) -> Outcome {
    let mut flush = ShareController::new(curve, 50_000_000);
    // Full tables, oldest first: bytes that are not written, and the rest of `late_ns`.
    let mut tables: VecDeque<(f64, u64)> = VecDeque::new();
    let (mut active_bytes, mut delay_ns) = (0.0, 0);
    let mut outcome = Outcome { bytes: 0.0, stalled_ns: 0, fullest: 0.0 };
    for now_ns in (0..DURATION_NS).step_by(STEP_NS as usize) {
        let dirty = (active_bytes + tables.len() as f64 * TABLE_BYTES) / LIMIT_BYTES;
        outcome.fullest = outcome.fullest.max(dirty);
        if flush.update(now_ns, dirty).is_some() || now_ns % 50_000_000 == 0 {
            delay_ns = ingestion_delay_ns(dirty, DELAY_MAX_NS);
        }

        let writing = tables.iter().position(|(rest_bytes, _)| *rest_bytes > 0.0);
        let is_writing = writing.is_some();
        let flush_shares = if is_writing { f64::from(flush.shares()) } else { 0.0 };
        let all_shares = COMMITLOG_SHARES + flush_shares + compaction_shares;
        let wished = WRITERS * WRITE_BYTES * 1e9 / (WRITE_NS + delay_ns as f64);
        let mut commitlog = wished.min(DISK_BYTES_PER_S * COMMITLOG_SHARES / all_shares);
        if dirty >= 1.0 {
            commitlog = 0.0;
            outcome.stalled_ns += STEP_NS;
        }
        let of_flush = (DISK_BYTES_PER_S - commitlog) * flush_shares / (flush_shares + compaction_shares);

        let step_s = STEP_NS as f64 / 1e9;
        active_bytes += commitlog * step_s;
        outcome.bytes += commitlog * step_s;
        if let Some((rest_bytes, _)) = writing.and_then(|table| tables.get_mut(table)) {
            *rest_bytes -= of_flush * step_s;
        }
        if let Some((_, rest_ns)) = tables.front_mut().filter(|(rest_bytes, _)| *rest_bytes <= 0.0) {
            *rest_ns = rest_ns.saturating_sub(STEP_NS);
            if *rest_ns == 0 {
                tables.pop_front();
            }
        }
        if active_bytes >= TABLE_BYTES {
            active_bytes -= TABLE_BYTES;
            tables.push_back((TABLE_BYTES, late_ns));
        }
    }
    outcome
}

#[test]
fn a_curve_that_knows_the_tables_leaves_room_for_them() {
    for compaction_shares in [100.0, 300.0, 500.0] {
        for late_ns in [50_000_000, 200_000_000] {
            let plain = run(ShareCurve::flush(), compaction_shares, late_ns);
            let of_tables = run(ShareCurve::flush_of_tables(0.25), compaction_shares, late_ns);
            let at =
                format!("{compaction_shares} shares, {late_ns} ns late: {} and {}", plain.fullest, of_tables.fullest);
            assert!(of_tables.fullest < plain.fullest - 0.1, "{at}");
            assert!(of_tables.fullest < 0.9 && of_tables.stalled_ns == 0, "{at}");
            assert!(of_tables.bytes > 0.99 * plain.bytes, "{at}: {} and {} bytes", plain.bytes, of_tables.bytes);
        }
    }
}

#[test]
fn files_that_are_late_stop_writers_only_without_that_room() {
    let late_ns = 300_000_000;
    let plain = run(ShareCurve::flush(), 300.0, late_ns);
    let of_tables = run(ShareCurve::flush_of_tables(0.25), 300.0, late_ns);
    assert!(plain.stalled_ns > 0, "{}", plain.fullest);
    assert_eq!(of_tables.stalled_ns, 0, "{}", of_tables.fullest);
    assert!(of_tables.bytes > 0.99 * plain.bytes, "{} and {} bytes", plain.bytes, of_tables.bytes);
}
