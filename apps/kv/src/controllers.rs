//! Controllers: shares of flushes and compactions follow their backlog, and writes slow down before they must stop.
//!
//! # Why
//! With static shares compaction is too fast when nothing is to be done and too slow when files pile up. Then a write
//! waits until a file has gone, for seconds.
//!
//! # How it works
//! Every [`INTERVAL`] two backlogs become shares by the curves of [`plimsoll::core::backlog`], which are ScyllaDB's:
//! memory that is not in files yet over its limit, and the bytes that compaction has still to write over the budget of
//! memory. The first curve ends a memory table earlier, because SlateDB frees memory a table at a time. A level 0 more
//! than half full counts as a backlog of compaction too: when it is full, flushes stop, however few its bytes are. The
//! fuller of memory and level 0 delays each write by the cube of its fullness.
//!
//! # Limits
//! A running compaction counts as not begun: SlateDB does not say how far it is.
//!
//! # Example
//! `Controllers::new(&database).run(&database, stop)`

use std::time::{Duration, Instant};

use plimsoll::Class;
use plimsoll::core::backlog::{
    ShareController, ShareCurve, TreeFile, ingestion_delay_ns, level_0_backlog, size_tiered_bytes,
};
use slatedb::db_stats::TOTAL_MEM_SIZE_BYTES;
use tokio::sync::watch;

use crate::database::{Database, L0_FILES_MAX};

/// Time between two looks at the backlogs.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Time between changes of the shares of compactions, in nanoseconds; ScyllaDB's.
const COMPACTION_INTERVAL_NS: u64 = 250_000_000;
/// Longest delay of a write, in nanoseconds. With 100 ms, 32 writers of 16 KiB still sent 5 MB/s into a full level 0.
const DELAY_MAX_NS: u64 = 300_000_000;

/// What is left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Memory not in files yet, over its limit.
    pub memory: f64,
    /// Bytes that compaction has still to write, over the budget of memory.
    pub compaction: f64,
    /// Files that were never compacted, over their limit.
    pub level_0: f64,
}

impl Backlog {
    /// Looks at `database`.
    #[must_use]
    pub fn of(database: &Database) -> Backlog {
        let manifest = database.slatedb().manifest();
        let file = |bytes| TreeFile { bytes, compacted_bytes: 0 };
        let level_0 = manifest.l0().iter().map(|view| file(view.estimate_size()));
        let runs = manifest.compacted().iter().map(|run| file(run.estimate_size()));
        let files: Vec<TreeFile> = level_0.chain(runs).collect();
        let memory = database.memory();
        Backlog {
            memory: database.figure(TOTAL_MEM_SIZE_BYTES) as f64 / memory.unflushed_bytes as f64,
            compaction: size_tiered_bytes(&files) / memory.total_bytes as f64,
            level_0: manifest.l0().len() as f64 / L0_FILES_MAX as f64,
        }
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
        let flush = ShareController::new(ShareCurve::flush_of_tables(table), INTERVAL.as_nanos() as u64);
        let compaction = ShareController::new(ShareCurve::compaction(), COMPACTION_INTERVAL_NS);
        Controllers {
            flush: (classes.memtable, flush),
            compaction: (classes.compaction, compaction),
            started: Instant::now(),
        }
    }

    /// Looks once, and changes shares and the delay of writes.
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
        let fullness = backlog.memory.max(backlog.level_0);
        database.set_write_delay(Duration::from_nanos(ingestion_delay_ns(fullness, DELAY_MAX_NS)));
    }

    /// Looks every [`INTERVAL`] until `stop` says true.
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
