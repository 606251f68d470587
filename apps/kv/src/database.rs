//! The database: SlateDB on a store whose I/O is scheduled by class.
//!
//! # Why
//! The server and the stories open the same database; the source of the disk's model and the use of memory are defined
//! once.
//!
//! # How it works
//! [`Database::open`] starts an [`Engine`], locks the directory, and gives SlateDB a [`CommitLog`] and a
//! [`ScheduledStore`] with the classes of [`crate::classes`]; [`Database::open_on`] uses a running engine.
//! [`Database::set`] returns a handle that reports when the write is durable. A [`View`] has the keys as they were when
//! it began.
//!
//! # Limits
//! The memory budget does not include the memory of compactions and scans (some MiB for each file they read). A read may see a
//! write that is not durable yet.
//!
//! # Example
//! `Database::open(&DatabaseOptions::new("/var/lib/kv"))`, then `set`, `get`, `close`.

use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use plimsoll::{Class, Topology};
use plimsoll_store::ScheduledStore;
use slatedb::admin::Admin;
use slatedb::config::{CheckpointOptions, CheckpointScope, DbReaderOptions, ScanOptions};
use slatedb::db_cache::DbCache;
use slatedb::object_store::ObjectStore;
use slatedb::{
    ByteRangeBounds, CheckpointCreateResult, CompactorBuilder, Db, DbIterator, DbReader, DbReaderMode, DbSnapshot,
    Error, GarbageCollectorBuilder, WriteBatch, WriteHandle,
};
use slatedb_common::metrics::{DefaultMetricsRecorder, MetricValue};
use tokio::runtime::Handle;

use crate::background::Background;
use crate::classes::ClassTable;
use crate::commitlog::{Claim, CommitLog};
use crate::directories;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::options::DatabaseOptions;
use crate::settings::{MemoryPlan, cache, compaction, garbage, settings};
use crate::space::{Reserve, SpaceGate};

/// Path of the database in its store.
const ROOT: &str = "kv";
/// File of a directory: its content is the version that wrote the directory, its lock shows that the directory is in
/// use.
const LOCK: &str = "plimsoll-kv.lock";
/// Content of the lock file.
const VERSION: &str = "plimsoll-kv 2\n";
/// Longest wait for the last flush. If it expires, no acknowledged write is lost: the log has it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the removal of a view's checkpoint.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Locks of removals: two keys seldom have the same.
const REMOVAL_LOCKS: usize = 64;
/// Shortest delay of a write: the resolution of the runtime's timers.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// Longest file of the commit log in bytes. With little memory, a file is as long as a memory table.
const SEGMENT_MAX_BYTES: u64 = 16 << 20;

/// A layer between a database and its scheduled store.
pub struct Tier {
    /// The store that the database uses.
    pub store: Arc<dyn ObjectStore>,
    /// The cache of parsed blocks; `None` for SlateDB's cache in memory.
    pub block_cache: Option<Arc<dyn DbCache>>,
}

/// An open database.
pub struct Database {
    engine: Arc<Engine>,
    classes: ClassTable,
    db: Db,
    store: ScheduledStore,
    recorder: Arc<DefaultMetricsRecorder>,
    log: CommitLog,
    memory: MemoryPlan,
    space: SpaceGate,
    write_delay_ns: AtomicU64,
    /// By the hash of the key. A removal that looks while another has not yet deleted would count the key, too.
    removals: [tokio::sync::Mutex<()>; REMOVAL_LOCKS],
    claim: Claim,
    background: Background,
    _locks: Vec<File>,
}

impl Database {
    /// Opens the database, or creates it. Writes acknowledged before a crash are present.
    ///
    /// # Errors
    /// [`Failure::Input`] for a directory in use or of another version, another log than the database's, or a bad
    /// io-properties file;
    /// [`Failure::Machine`] for errors of the system or of SlateDB.
    pub async fn open(options: &DatabaseOptions) -> Result<Database, Failure> {
        let locks = lock_all(options)?;
        let engine = Arc::new(Engine::start(options)?);
        let classes = engine.classes;
        let built = Database::build(engine, options, locks, classes, None).await;
        if let (Err(_), Some(trace)) = (&built, &options.trace) {
            // The trace of nothing would refuse the next attempt, which names a file that cannot be removed.
            let _ = std::fs::remove_file(trace);
        }
        built
    }

    /// Opens the database like [`Database::open`], on a running engine. Its I/O has the classes of `classes`.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub async fn open_on(
        engine: &Arc<Engine>,
        options: &DatabaseOptions,
        classes: ClassTable,
        tier: Option<Tier>,
    ) -> Result<Database, Failure> {
        Database::build(Arc::clone(engine), options, lock_all(options)?, classes, tier).await
    }

    async fn build(
        engine: Arc<Engine>,
        options: &DatabaseOptions,
        locks: Vec<File>,
        classes: ClassTable,
        tier: Option<Tier>,
    ) -> Result<Database, Failure> {
        let memory = MemoryPlan::of(options.memory_bytes);
        let store = engine.store(&options.directory).await?.with_rule(classes.rule());

        let log_directory = options.commitlog_directory.as_ref().unwrap_or(&options.directory).join("commitlog");
        let claim = Claim::take(&options.directory, &log_directory)?;
        let segment_bytes = memory.memtable_bytes.min(SEGMENT_MAX_BYTES);
        // Even on a full disk, the log has room for all unflushed memory; the additional half covers the unused ends of
        // its files.
        let reserved_bytes = memory.unflushed_bytes * 3 / 2;
        let handle = engine.runtime.any_shard();
        let log = CommitLog::open(handle, classes.commitlog, &claim, segment_bytes, reserved_bytes).await;
        let log = log.map_err(|error| Failure::machine("cannot open the commit log", error))?;

        let recorder = Arc::new(DefaultMetricsRecorder::new());
        let (seen, block_cache) = match tier {
            Some(tier) => (tier.store, tier.block_cache),
            None => (Arc::new(store.clone()) as Arc<dyn ObjectStore>, None),
        };

        let background =
            Background::start().map_err(|error| Failure::machine("cannot start the background threads", error))?;
        let compactor = CompactorBuilder::new(ROOT, Arc::clone(&seen))
            .with_options(compaction())
            .with_runtime(background.handle().clone());
        let garbage = GarbageCollectorBuilder::new(ROOT, Arc::clone(&seen))
            .with_options(garbage())
            .with_wal_gc(Arc::new(log.clone()));

        let builder = Db::builder(ROOT, seen)
            .with_settings(settings(&memory))
            .with_wal_writer(Box::new(log.clone()))
            .with_compactor_builder(compactor)
            .with_gc_builder(garbage)
            // All other tasks run where the database is built.
            .with_write_runtime(Handle::current())
            .with_metrics_recorder(Arc::clone(&recorder) as _)
            .with_db_cache(cache(&memory, block_cache), 0)
            // An aligned block spans the fewest blocks of the disk, so direct I/O reads no neighbours.
            .with_sst_block_alignment(true);

        let building = background.handle().spawn(builder.build());
        let db = building.await.map_err(|error| cannot_open(options, error))?;
        let db = db.map_err(|error| cannot_open(options, error))?;

        let spares = log.clone();
        let reserves = vec![
            Reserve::of(options.directory.clone(), 2 * memory.unflushed_bytes),
            Reserve::beside(log_directory, 2 * segment_bytes, move || spares.spare_bytes()),
        ];
        let space =
            SpaceGate::watch(reserves).map_err(|error| Failure::machine("cannot watch the free space", error))?;
        Ok(Database {
            engine,
            classes,
            db,
            store,
            recorder,
            log,
            memory,
            space,
            write_delay_ns: AtomicU64::new(0),
            removals: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            claim,
            background,
            _locks: locks,
        })
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// The database's error.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.db.get(key).await
    }

    /// Returns the keys as they are now, for reads whose order must not show.
    ///
    /// # Errors
    /// The database's error.
    pub fn snapshot(&self) -> Result<Arc<DbSnapshot>, Error> {
        self.db.snapshot()
    }

    /// Sets the value of `key`, which must not be empty. The handle reports when the write is durable.
    ///
    /// # Errors
    /// The database's error.
    pub async fn set(&self, key: &[u8], value: &[u8]) -> Result<WriteHandle, Error> {
        self.db.put(key, value).await
    }

    /// Sets the time by which clients' writes are to be delayed from now on. Less than 1 ms counts as no delay.
    pub fn set_write_delay(&self, delay: Duration) {
        self.write_delay_ns.store(delay.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the time by which a client's write is to be delayed now, if at all.
    #[must_use]
    pub fn write_delay(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.write_delay_ns.load(Ordering::Relaxed))).filter(|delay| *delay >= DELAY_MIN)
    }

    /// Deletes `key`, which must not be empty. The handle reports when the deletion is durable.
    ///
    /// # Errors
    /// The database's error.
    pub async fn delete(&self, key: &[u8]) -> Result<WriteHandle, Error> {
        self.db.delete(key).await
    }

    /// Deletes `key` if it has a value. Returns the value's length, and a handle that reports when the deletion is
    /// durable; `None` if there was none. Of several calls at once, one deletes.
    ///
    /// # Errors
    /// The database's error.
    pub async fn remove(&self, key: &[u8]) -> Result<Option<(usize, WriteHandle)>, Error> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let _alone = self.removals[hasher.finish() as usize % REMOVAL_LOCKS].lock().await;
        let Some(len_bytes) = self.db.get(key).await?.map(|value| value.len()) else { return Ok(None) };
        Ok(Some((len_bytes, self.db.delete(key).await?)))
    }

    /// Writes `batch` as a whole. The handle reports when it is durable.
    ///
    /// # Errors
    /// The database's error.
    pub async fn write(&self, batch: WriteBatch) -> Result<WriteHandle, Error> {
        self.db.write(batch).await
    }

    /// Returns a view of all keys as they are now, whose reads have `class`. Flushes the memory table first. The view
    /// expires `lifetime` after it began.
    ///
    /// # Errors
    /// The database's error.
    pub async fn view(&self, class: Class, lifetime: Duration) -> Result<View, Error> {
        let kept = CheckpointOptions { lifetime: Some(lifetime), ..CheckpointOptions::default() };
        let checkpoint = self.db.create_checkpoint(CheckpointScope::All, &kept).await?;

        let rule = ClassTable { analytics: class, ..self.classes }.rule();
        let store: Arc<dyn ObjectStore> = Arc::new(self.store.clone().with_rule(rule));
        let options = DbReaderOptions { skip_wal_replay: true, ..DbReaderOptions::default() };
        let builder = DbReader::builder(ROOT, Arc::clone(&store))
            .with_reader_mode(DbReaderMode::Checkpoint(checkpoint.id))
            .with_options(options)
            .with_db_cache_disabled();
        let kept = Kept { checkpoint, admin: Admin::builder(ROOT, store).build() };
        match builder.build().await {
            Ok(reader) => Ok(View { reader, kept }),
            Err(error) => {
                kept.release().await;
                Err(error)
            }
        }
    }

    /// Begins a scan of all keys as they are now, in the class of scans. See [`Database::view`].
    ///
    /// # Errors
    /// The database's error.
    pub async fn scan(&self, lifetime: Duration) -> Result<Scan, Error> {
        let view = self.view(self.classes.analytics, lifetime).await?;
        match view.entries(Bytes::new()..).await {
            Ok(entries) => Ok(Scan { entries, view }),
            Err(error) => {
                view.close().await;
                Err(error)
            }
        }
    }

    /// Returns SlateDB's handle, for its manifest and for flushes.
    #[must_use]
    pub fn slatedb(&self) -> &Db {
        &self.db
    }

    /// Returns SlateDB's metric `name`, or 0 if there is none.
    #[must_use]
    pub fn figure(&self, name: &str) -> u64 {
        let figures = self.recorder.snapshot();
        let values = figures.by_name(name).into_iter().map(|metric| match metric.value {
            MetricValue::Counter(count) => count,
            MetricValue::Gauge(level) | MetricValue::UpDownCounter(level) => u64::try_from(level).unwrap_or(0),
            MetricValue::Histogram { .. } => 0,
        });
        values.sum()
    }

    /// Returns the bytes of writes that are in memory alone, as of now: SlateDB's own metric is as of the last write.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        self.log.unflushed_bytes(self.db.manifest().last_l0_seq())
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the topology, through which shares and disk modes can be changed.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.engine.topology
    }

    /// Returns the classes.
    #[must_use]
    pub fn classes(&self) -> &ClassTable {
        &self.classes
    }

    /// Returns the parts of the memory budget.
    #[must_use]
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// Returns the gate that refuses writes to a full disk.
    #[must_use]
    pub fn space(&self) -> &SpaceGate {
        &self.space
    }

    /// Flushes memory and closes the database. Stops the engine too, if no other database uses it.
    ///
    /// # Errors
    /// [`Failure::Machine`] if that fails or takes longer than 30 s. Acknowledged writes are in the log even then.
    pub async fn close(self) -> Result<(), Failure> {
        // SlateDB ends itself after some errors; then `close` flushes nothing, and reports nothing.
        let ended = self.db.status().close_reason;
        let closed = tokio::time::timeout(CLOSE_TIMEOUT, self.db.close()).await;
        self.space.stop();
        drop((self.db, self.store, self.background));

        let stopped = match Arc::into_inner(self.engine) {
            Some(engine) => engine.stop().await,
            None => Ok(()),
        };

        let what = "the last flush failed (what was acknowledged is in the log)";
        match closed {
            Err(_) => return Err(Failure::machine(what, "it took longer than 30 s")),
            Ok(Err(error)) => return Err(Failure::machine(what, error)),
            Ok(Ok(())) => {}
        }
        if let Some(reason) = ended {
            return Err(Failure::machine(what, format_args!("the database had ended already: {reason:?}")));
        }
        let released = self.claim.release();
        stopped.and(released.map_err(|error| Failure::machine("cannot record that the log is no longer needed", error)))
    }
}

/// The files that a view reads, kept from garbage collection.
struct Kept {
    checkpoint: CheckpointCreateResult,
    admin: Admin,
}

impl Kept {
    async fn release(self) {
        // SlateDB's reader leaves a checkpoint that it did not make. If its removal fails, or waits for space on a full
        // disk, the checkpoint still expires.
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, self.admin.delete_checkpoint(self.checkpoint.id)).await;
    }
}

/// All keys of a database as they were at one moment. If it is dropped without [`View::close`], the files that it reads
/// are kept until it expires.
pub struct View {
    reader: DbReader,
    kept: Kept,
}

impl View {
    /// Returns the keys and values of `range`, in key order.
    ///
    /// # Errors
    /// The database's error.
    pub async fn entries(&self, range: impl ByteRangeBounds + Send) -> Result<DbIterator, Error> {
        let ahead = ScanOptions { read_ahead_bytes: 1 << 20, max_fetch_tasks: 2, ..ScanOptions::default() };
        self.reader.scan_with_options(range, &ahead).await
    }

    /// Ends the view.
    pub async fn close(self) {
        // The reader only reads: a failure leaves nothing.
        let _ = self.reader.close().await;
        self.kept.release().await;
    }
}

/// A scan under way: all keys as they were when it began.
pub struct Scan {
    entries: DbIterator,
    view: View,
}

impl Scan {
    /// Returns the next key and value, or `None` after the last.
    ///
    /// # Errors
    /// The database's error.
    pub async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, Error> {
        Ok(self.entries.next().await?.map(|entry| (entry.key, entry.value)))
    }

    /// Ends the scan.
    pub async fn close(self) {
        drop(self.entries);
        self.view.close().await;
    }
}

fn cannot_open(options: &DatabaseOptions, error: impl std::fmt::Display) -> Failure {
    Failure::machine(format_args!("cannot open the database in {}", options.directory.display()), error)
}

fn lock_all(options: &DatabaseOptions) -> Result<Vec<File>, Failure> {
    let mut locks = vec![lock(&options.directory)?];
    if let Some(log) = &options.commitlog_directory {
        let is_same = std::fs::canonicalize(log).ok() == std::fs::canonicalize(&options.directory).ok();
        locks.extend((!is_same).then(|| lock(log)).transpose()?);
    }
    Ok(locks)
}

/// Creates `directory` if it is missing, checks its version, and locks it until the returned file is dropped.
fn lock(directory: &Path) -> Result<File, Failure> {
    let path = directory.join(LOCK);
    let failed = |error: std::io::Error| Failure::machine(format_args!("cannot use {}", path.display()), error);
    directories::create(directory).map_err(failed)?;

    let mut options = File::options();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;

    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let message = format!("{} is in use by another server: give another --dir", directory.display());
            return Err(Failure::Input(message));
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }

    let mut version = String::new();
    file.read_to_string(&mut version).map_err(failed)?;
    match version.as_str() {
        "" => file.write_all(VERSION.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?,
        VERSION => {}
        other => {
            let (found, known) = (other.lines().next().unwrap_or(""), VERSION.trim_end());
            let message = format!("{} says `{found}`, this program reads `{known}`", path.display());
            return Err(Failure::Input(format!("{message}: use the version that wrote it, or another --dir")));
        }
    }

    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;
    use crate::settings::MEMORY_MIN_BYTES;

    #[tokio::test]
    async fn a_scan_that_has_ended_keeps_no_files() {
        let directory = tempfile::tempdir().unwrap();
        let options = DatabaseOptions { memory_bytes: MEMORY_MIN_BYTES, ..DatabaseOptions::new(directory.path()) };
        let database = Database::open(&options).await.unwrap();
        database.set(b"ship", b"ahoy").await.unwrap().await_durable().await.unwrap();
        let checkpoints = async || {
            database.slatedb().refresh_manifest().await.unwrap();
            database.slatedb().manifest().checkpoints().len()
        };

        let mut scan = database.scan(Duration::from_secs(3600)).await.unwrap();
        assert_eq!(checkpoints().await, 1);
        assert!(scan.next().await.unwrap().is_some() && scan.next().await.unwrap().is_none());
        scan.close().await;
        assert_eq!(checkpoints().await, 0);
        database.close().await.unwrap();
    }
}
