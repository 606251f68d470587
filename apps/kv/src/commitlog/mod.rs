//! The write-ahead log: records appended to preallocated files.
//!
//! # Why
//! SlateDB's own log creates an object for each flush: a file is created, synced and named, and its directory synced.
//! Here a commit is one durable write of a few blocks.
//!
//! # How it works
//! SlateDB accepts another log through [`WriterInit`]. Appended rows collect in a [`Record`]; a task writes it
//! ([`Segments`]) as soon as the previous record is durable, so the writes of that time become durable together. A
//! record is a WAL file to SlateDB, with the same number. At the start, records above the manifest's replay point are
//! replayed; garbage collection frees the records below those that SlateDB still needs. The log counts the bytes that
//! are in memory alone, because SlateDB says so only at each write.
//!
//! # Limits
//! One writer, as the directory's lock ensures. All readers are at a checkpoint and need no log.
//!
//! # Example
//! `CommitLog::open(handle, class, &claim, 4 << 20, 16 << 20).await?`, then
//! `Db::builder(..).with_wal_writer(Box::new(log))`

mod owner;
mod record;
mod segments;

use std::collections::VecDeque;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use plimsoll::{Class, Handle};
use slatedb::RowEntry;
use slatedb::wal::{
    WalError, WalEvent, WalFileRange, WalFlushResult, WalGc, WalIterator, WalObserver, WalRows, WalStatus,
    WalStatusListener, WalWriter, WriterInit, WriterInitResult, WriterManifest,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub use owner::Claim;
use record::{BLOCK_BYTES, Record};
use segments::{Found, Place, SegmentReader, Segments};

/// Records after which the memory table is flushed. This bounds the records that a start replays. With little memory
/// fewer are the bound: those that half of the log's own files have room for, however short they are.
const RECORDS_MAX: u64 = 16_384;

/// The log of a database.
#[derive(Clone)]
pub struct CommitLog {
    segments: Arc<Segments>,
    /// Records after which the memory table is flushed.
    records_max: u64,
    /// The records found at the start, until the replay takes them.
    found: Arc<Mutex<Found>>,
    /// The runtime of the task that writes.
    runtime: tokio::runtime::Handle,
    /// The state of the writer, once the database is open.
    writer: Arc<OnceLock<Arc<Shared>>>,
}

impl CommitLog {
    /// Opens the log that `claim` holds, or creates it, with files of `segment_bytes` and space for `reserved_bytes`.
    /// All of its I/O has `class`. It is written by a task of the caller's runtime, wherever SlateDB is built.
    ///
    /// # Errors
    /// The system's error.
    pub async fn open(
        handle: Handle,
        class: Class,
        claim: &Claim,
        segment_bytes: u64,
        reserved_bytes: u64,
    ) -> io::Result<CommitLog> {
        let segments_min = reserved_bytes.div_ceil(segment_bytes) as usize;
        let log = (claim.log().to_owned(), claim.seed());
        let (segments, found) = Segments::open(handle, class, log, segment_bytes, segments_min).await?;
        Ok(CommitLog {
            segments: Arc::new(segments),
            records_max: (reserved_bytes / 2 / BLOCK_BYTES as u64).clamp(1, RECORDS_MAX),
            found: Arc::new(Mutex::new(found)),
            runtime: tokio::runtime::Handle::current(),
            writer: Arc::default(),
        })
    }

    /// Returns the bytes of files that have their space already and no records.
    #[must_use]
    pub fn spare_bytes(&self) -> u64 {
        self.segments.spare_bytes()
    }

    /// Returns the bytes of writes in memory, if the tree has all rows up to sequence number `flushed_seq`.
    #[must_use]
    pub fn unflushed_bytes(&self, flushed_seq: u64) -> u64 {
        self.writer.get().map_or(0, |shared| shared.state().unflushed_bytes(flushed_seq)) as u64
    }
}

#[async_trait]
impl WriterInit for CommitLog {
    async fn fence_and_init(&self, manifest: &mut WriterManifest) -> Result<WriterInitResult, WalError> {
        let replayed = manifest.replay_after_wal_id();
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        let records: VecDeque<(u64, Place)> =
            found.places.into_iter().filter(|(number, _)| *number > replayed).collect();

        // Numbers have no gaps: a gap is a file that was removed, and acknowledged writes are lost.
        for ((number, _), expected) in records.iter().zip(replayed + 1..) {
            if *number != expected {
                return Err(damaged(format!(
                    "record {expected} of the commit log is missing; the next one is {number}"
                )));
            }
        }

        let last_number = replayed + records.len() as u64;
        // The tree has what the damaged records had if its replay point is behind them.
        if let Some(behind) = found.behind.filter(|behind| *behind > last_number) {
            let damage = last_number + 1;
            return Err(damaged(format!(
                "record {damage} of the commit log is damaged; record {behind} behind it is whole"
            )));
        }

        let (segments, writer) = (Arc::clone(&self.segments), Writer::start(self, last_number));
        let shared = Arc::clone(self.writer.get_or_init(|| Arc::clone(&writer.shared)));
        Ok(WriterInitResult {
            replay_iterator: Box::new(Replay { segments, records, reader: None, shared }),
            wal_writer: Box::new(writer),
        })
    }
}

#[async_trait]
impl WalGc for CommitLog {
    async fn collect(&self, needed: Vec<WalFileRange>, _min_age: Duration, dry_run: bool) -> Result<(), WalError> {
        // A range that ends is of a checkpoint, whose readers need no log: they would keep it as long as they live.
        let latest = needed.iter().filter(|range| range.1 == Bound::Unbounded);
        let first = latest.map(|range| match range.0 {
            Bound::Included(number) => number,
            Bound::Excluded(number) => number + 1,
            Bound::Unbounded => 0,
        });
        if let (Some(first), false) = (first.min(), dry_run) {
            self.segments.free(first);
            // What is flushed is forgotten, even if nothing asks for the bytes.
            if let Some(shared) = self.writer.get() {
                shared.state().unflushed.forget(|record| record.number < first);
            }
        }
        Ok(())
    }
}

fn damaged(message: String) -> WalError {
    WalError::DataError(Arc::new(io::Error::new(io::ErrorKind::InvalidData, message)))
}

/// Replays the records whose rows were only in memory when the database ended.
struct Replay {
    segments: Arc<Segments>,
    records: VecDeque<(u64, Place)>,
    reader: Option<SegmentReader>,
    shared: Arc<Shared>,
}

#[async_trait]
impl WalIterator for Replay {
    async fn next(&mut self) -> Result<Option<WalRows>, WalError> {
        let Some((number, place)) = self.records.pop_front() else { return Ok(None) };
        let rows = self
            .segments
            .read(&mut self.reader, &place)
            .await
            .map_err(|error| WalError::Unavailable(Arc::new(error)))?;
        let rows = rows.ok_or_else(|| damaged(format!("record {number} of the commit log changed")))?;
        let last_seq = rows.last().map_or(0, |row| row.seq);
        self.shared.state().unflushed.add(number, last_seq, place.len_bytes());
        Ok(Some(WalRows { rows, last_consumed_wal_file_id: number }))
    }
}

/// State that the writer, its task and its observers share.
struct Shared {
    state: Mutex<State>,
    /// Signalled when rows are appended or the writer closes.
    work: Notify,
    /// The number of the last durable record.
    flushed: watch::Sender<u64>,
}

/// The records whose rows may be in memory alone.
#[derive(Debug, Default)]
struct Unflushed {
    records: VecDeque<InMemory>,
    bytes: usize,
}

/// A record of [`Unflushed`].
#[derive(Debug)]
struct InMemory {
    number: u64,
    /// The sequence number of its last row.
    last_seq: u64,
    bytes: usize,
}

impl Unflushed {
    fn add(&mut self, number: u64, last_seq: u64, bytes: usize) {
        self.records.push_back(InMemory { number, last_seq, bytes });
        self.bytes += bytes;
    }

    /// Forgets the first records, as far as `is_flushed` is true of them.
    fn forget(&mut self, is_flushed: impl Fn(&InMemory) -> bool) {
        while self.records.front().is_some_and(&is_flushed) {
            self.bytes -= self.records.pop_front().map_or(0, |record| record.bytes);
        }
    }
}

struct State {
    /// The record to which rows are added; it has no number yet.
    open: Record,
    /// Numbered records that wait to be written.
    ended: VecDeque<(u64, Record)>,
    /// Bytes and rows of the record that is being written.
    writing: (usize, usize),
    last_number: u64,
    last_flushed: u64,
    last_flushed_seq: Option<u64>,
    unflushed: Unflushed,
    /// Bytes at which a record ends without a flush, so that it fits into a segment.
    record_bytes: usize,
    is_closing: bool,
    is_closed: bool,
    listeners: Vec<WalStatusListener>,
}

impl State {
    /// Numbers the open record if it has rows. Returns the last number.
    fn end_open(&mut self) -> u64 {
        if !self.open.is_empty() {
            self.last_number += 1;
            self.unflushed.add(self.last_number, self.open.last_seq().unwrap_or(0), self.open.len_bytes());
            self.ended.push_back((self.last_number, std::mem::take(&mut self.open)));
        }
        self.last_number
    }

    /// Returns the bytes in memory as SlateDB counts them: rows that the tree lacks, and once more those that are not
    /// durable.
    fn unflushed_bytes(&mut self, flushed_seq: u64) -> usize {
        self.unflushed.forget(|record| record.last_seq <= flushed_seq);
        self.unflushed.bytes + self.open.len_bytes() + self.status().estimated_bytes
    }

    fn status(&self) -> WalStatus {
        let waiting = || self.ended.iter().map(|(_, record)| record).chain([&self.open]);
        WalStatus {
            closed_reason: self.is_closed.then_some(WalError::Closed),
            estimated_bytes: self.writing.0 + waiting().map(Record::len_bytes).sum::<usize>(),
            last_flushed_wal_id: self.last_flushed,
            last_flushed_seq: self.last_flushed_seq,
            buffered_wal_entries_count: self.writing.1 + waiting().map(Record::rows).sum::<usize>(),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        let status = self.state().status();
        if status.closed_reason.is_some() { Err(status) } else { Ok(status) }
    }

    /// Changes the state, and notifies the listeners.
    fn change(&self, change: impl FnOnce(&mut State), event: fn(WalStatus) -> WalEvent) {
        let (status, listeners) = {
            let mut state = self.state();
            change(&mut state);
            (state.status(), state.listeners.clone())
        };
        listeners.iter().for_each(|listener| listener(event(status.clone())));
    }

    /// Writes record after record until the writer closes and all are durable.
    async fn write_all(&self, segments: &Segments) {
        let mut tail = None;
        loop {
            let next = {
                let mut state = self.state();
                state.end_open();
                let next = state.ended.pop_front();
                if let Some((_, record)) = &next {
                    state.writing = (record.len_bytes(), record.rows());
                }
                if next.is_none() && state.is_closing {
                    return;
                }
                next
            };

            let Some((number, record)) = next else {
                self.work.notified().await;
                continue;
            };

            let last_seq = record.last_seq();
            segments.write(&mut tail, number, record).await;

            let flushed = |state: &mut State| {
                state.writing = (0, 0);
                (state.last_flushed, state.last_flushed_seq) = (number, last_seq);
            };
            self.change(flushed, WalEvent::WalFlushed);
            self.flushed.send_replace(number);
        }
    }
}

/// Appends to the log.
struct Writer {
    /// Records after which the memory table is flushed.
    records_max: u64,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(log: &CommitLog, last_number: u64) -> Writer {
        let segments = Arc::clone(&log.segments);
        let state = State {
            open: Record::default(),
            ended: VecDeque::new(),
            writing: (0, 0),
            last_number,
            last_flushed: last_number,
            last_flushed_seq: None,
            unflushed: Unflushed::default(),
            record_bytes: segments.segment_bytes() as usize / 2,
            is_closing: false,
            is_closed: false,
            listeners: Vec::new(),
        };

        let (work, flushed) = (Notify::new(), watch::Sender::new(last_number));
        let shared = Arc::new(Shared { state: Mutex::new(state), work, flushed });
        let writing = Arc::clone(&shared);
        let task = log.runtime.spawn(async move { writing.write_all(&segments).await });
        Writer { records_max: log.records_max, shared, task: Some(task) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.state().is_closing = true;
        self.shared.work.notify_one();
    }
}

#[async_trait]
impl WalWriter for Writer {
    async fn append(&mut self, batch: &[RowEntry]) -> Result<(), WalError> {
        self.shared.status()?;
        {
            let mut state = self.shared.state();
            state.open.push(batch);
            if state.open.len_bytes() >= state.record_bytes {
                state.end_open();
            }
        }
        self.shared.work.notify_one();
        Ok(())
    }

    async fn flush(&mut self) -> Result<WalFlushResult, WalError> {
        self.shared.status()?;
        let wal_id = self.shared.state().end_open();
        self.shared.work.notify_one();
        let mut flushed = self.shared.flushed.subscribe();
        let completion = Box::pin(async move {
            let waited = flushed.wait_for(|number| *number >= wal_id).await;
            waited.map(|_| ()).map_err(|_| WalError::Closed)
        });
        Ok(WalFlushResult { wal_id, completion })
    }

    fn should_flush_memtable(&self, replay_after: u64) -> bool {
        self.shared.state().last_flushed.saturating_sub(replay_after) >= self.records_max
    }

    fn observer(&self) -> Box<dyn WalObserver> {
        Box::new(Observer(Arc::clone(&self.shared)))
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        self.shared.status()
    }

    async fn close(&mut self) -> Result<(), WalError> {
        let Some(task) = self.task.take() else { return Ok(()) };
        self.shared.state().is_closing = true;
        self.shared.work.notify_one();

        let ended = task.await;
        self.shared.change(|state| state.is_closed = true, WalEvent::WalClosed);
        ended.map_err(|error| WalError::InternalError(Arc::new(error)))
    }
}

struct Observer(Arc<Shared>);

impl WalObserver for Observer {
    fn status(&self) -> Result<WalStatus, WalStatus> {
        self.0.status()
    }

    fn subscribe(&self, listener: WalStatusListener) -> Result<(), WalError> {
        self.0.state().listeners.push(listener);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
    use slatedb::ValueDeletable;

    use super::*;

    #[tokio::test]
    async fn checkpoints_keep_no_files_of_the_log() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = Runtime::start(&topology, &ShardOptions { pin: false, ..ShardOptions::default() }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let is_file = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".log");
        let entries = || std::fs::read_dir(directory.path().join("log")).unwrap();
        let files = || entries().filter(|entry| is_file(entry.as_ref().unwrap().file_name())).count();
        let (handle, four) = (runtime.any_shard(), 4 * BLOCK_BYTES as u64);
        let claim = Claim::take(directory.path(), &directory.path().join("log")).unwrap();
        let log = CommitLog::open(handle, Class::DEFAULT, &claim, four, 0).await.unwrap();

        let mut tail = None;
        for number in 1..=12 {
            let (key, value) = (number.to_string().into(), ValueDeletable::Tombstone);
            let mut record = Record::default();
            record.push(&[RowEntry { key, value, seq: number, create_ts: None, expire_ts: None }]);
            log.segments.write(&mut tail, number, record).await;
        }
        assert_eq!(files(), 3, "four records a file");

        let of_checkpoint = WalFileRange(Bound::Excluded(2), Bound::Excluded(6));
        log.collect(vec![of_checkpoint.clone()], Duration::ZERO, false).await.unwrap();
        assert_eq!(files(), 3, "what the latest manifest needs is not known");
        log.collect(vec![of_checkpoint, WalFileRange::from(9..)], Duration::ZERO, false).await.unwrap();
        assert_eq!(files(), 1);
    }
}
