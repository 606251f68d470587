//! Controllers: shares of flushes and compactions follow their backlog, and writes slow down before they must stop.
//!
//! # Why
//! With static shares, compaction is too fast when there is little to compact and too slow when files pile up. Then a
//! write waits for seconds until a file is compacted.
//!
//! # How it works
//! Every [`INTERVAL`], ScyllaDB's curves in [`plimsoll::core::backlog`] map two backlogs to shares: unflushed memory
//! divided by its limit, and the bytes that compaction still has to write divided by the memory budget. The curves are
//! for queries of 1000 shares; those here have [`QUERY_SHARES`]. The first curve ends one memory table earlier, because
//! SlateDB frees memory a table at a time. A level 0 that is more than half full also counts as a backlog of
//! compaction: a full one stops flushes, however few bytes it has. Clients' writes are delayed by the cube of the
//! fullness of memory or of level 0, whichever is fuller; level 0 counts once it has files enough to be compacted.
//!
//! # Limits
//! A running compaction counts as not begun, because SlateDB does not report its progress.
//!
//! # Example
//! `Controllers::new(&database).run(&database, stop)`

use std::time::{Duration, Instant};

use plimsoll::Class;
use plimsoll::core::backlog::{
    ShareController, ShareCurve, TreeFile, ingestion_delay_ns, level_0_backlog, size_tiered_bytes,
};
use tokio::sync::watch;

use crate::classes::QUERY_SHARES;
use crate::database::Database;
use crate::settings::L0_FILES_MAX;

/// Time between two measurements of the backlogs.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Least time between two changes of compaction's shares, in nanoseconds. The value is ScyllaDB's.
const COMPACTION_INTERVAL_NS: u64 = 250_000_000;
/// Fewest files of level 0 that SlateDB compacts (`min_compaction_sources`). Fewer stay there, however long nothing is
/// written.
const L0_COMPACTED_MIN: usize = 4;
/// Longest delay of a write, in nanoseconds. With 100 ms, 32 writers of 16 KiB still sent 5 MB/s into a full level 0.
const DELAY_MAX_NS: u64 = 300_000_000;

/// Work left for flushes and compactions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Unflushed memory, divided by its limit.
    pub memory: f64,
    /// Bytes that compaction still has to write, divided by the memory budget.
    pub compaction: f64,
    /// Files of level 0, divided by their limit.
    pub level_0: f64,
}

impl Backlog {
    /// Measures the backlog of `database`.
    #[must_use]
    pub fn of(database: &Database) -> Backlog {
        let manifest = database.slatedb().manifest();
        let file = |bytes| TreeFile { bytes, compacted_bytes: 0 };
        let level_0 = manifest.l0().iter().map(|view| file(view.estimate_size()));
        let runs = manifest.compacted().iter().map(|run| file(run.estimate_size()));
        let files: Vec<TreeFile> = level_0.chain(runs).collect();
        let memory = database.memory();
        Backlog {
            memory: database.unflushed_bytes() as f64 / memory.unflushed_bytes as f64,
            compaction: size_tiered_bytes(&files) / memory.total_bytes as f64,
            level_0: manifest.l0().len() as f64 / L0_FILES_MAX as f64,
        }
    }

    /// Returns the fullness by which writes are delayed. Files that no compaction takes away delay none.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let least = L0_COMPACTED_MIN as f64 / L0_FILES_MAX as f64;
        self.memory.max(if self.level_0 < least { 0.0 } else { self.level_0 })
    }
}

/// The controllers of a database.
pub struct Controllers {
    flush: (Class, ShareController),
    compaction: (Class, ShareController),
    started: Instant,
}

impl Controllers {
    /// Returns controllers for the classes of `database`.
    #[must_use]
    pub fn new(database: &Database) -> Controllers {
        let classes = database.classes();
        let memory = database.memory();
        let table = memory.memtable_bytes as f64 / memory.unflushed_bytes as f64;
        let flush = ShareCurve::flush_of_tables(table).beside(QUERY_SHARES);
        let flush = ShareController::new(flush, INTERVAL.as_nanos() as u64);
        let compaction = ShareController::new(ShareCurve::compaction().beside(QUERY_SHARES), COMPACTION_INTERVAL_NS);
        Controllers {
            flush: (classes.memtable, flush),
            compaction: (classes.compaction, compaction),
            started: Instant::now(),
        }
    }

    /// Measures the backlogs once, and sets the shares and the delay of writes.
    pub fn step(&mut self, database: &Database) {
        let backlog = Backlog::of(database);
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let compaction = backlog.compaction.max(level_0_backlog(backlog.level_0));

        let steps = [(&mut self.flush, backlog.memory), (&mut self.compaction, compaction)];
        for ((class, controller), backlog) in steps {
            if let Some(shares) = controller.update(now_ns, backlog) {
                // The classes are never removed.
                let _ = database.topology().classes().set_shares(*class, shares);
            }
        }

        database.set_write_delay(Duration::from_nanos(ingestion_delay_ns(backlog.fullness(), DELAY_MAX_NS)));
    }

    /// Runs a step every [`INTERVAL`] until `stop` is true.
    pub async fn run(mut self, database: &Database, mut stop: watch::Receiver<bool>) {
        loop {
            self.step(database);
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                _ = stop.wait_for(|is_over| *is_over) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use slatedb::WriteBatch;

    use super::*;
    use crate::options::DatabaseOptions;
    use crate::settings::MEMORY_MIN_BYTES;

    /// SlateDB says how much is in memory when a write begins: after a pause it was what had been there before the
    /// last.
    #[tokio::test]
    async fn the_backlog_of_memory_is_that_of_now_without_a_write() {
        let directory = tempfile::tempdir().unwrap();
        let options = DatabaseOptions { memory_bytes: MEMORY_MIN_BYTES, ..DatabaseOptions::new(directory.path()) };
        let database = Database::open(&options).await.unwrap();
        assert_eq!(database.unflushed_bytes(), 0);

        // More than a memory table, so that it is flushed without another write.
        let mut batch = WriteBatch::new();
        (0..300_u32).for_each(|key| batch.put(key.to_be_bytes(), [7_u8; 10 << 10]));
        let written = database.write(batch).await.unwrap();
        assert!(Backlog::of(&database).memory > 0.7);

        written.await_durable().await.unwrap();
        let begun = Instant::now();
        while Backlog::of(&database).memory > 0.0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", Backlog::of(&database));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        database.close().await.unwrap();
    }

    #[test]
    fn files_that_stay_in_level_0_delay_no_write() {
        let fullness = |memory, files: f64| Backlog { memory, compaction: 0.0, level_0: files / 16.0 }.fullness();
        assert_eq!((fullness(0.0, 0.0), fullness(0.0, 3.0), fullness(0.0, 4.0)), (0.0, 0.0, 0.25));
        assert_eq!((fullness(0.1, 3.0), fullness(0.3, 4.0), fullness(0.3, 8.0)), (0.1, 0.3, 0.5));
    }
}
