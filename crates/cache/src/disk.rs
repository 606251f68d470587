//! One disk of an open cache: its reads, merged writes and flushes, its health and its speed.
//!
//! # Why
//! A disk that fails or becomes slow must be detected in one place: all its operations end here.
//!
//! # How it works
//! Reads and metadata go to the scheduler as they are, on their caller's shard. Writes of data are merged (`writes`).
//! What is in flight (`under_way`), and how it ends, shows the disk's health.
//!
//! # Limits
//! A flush or discard that fails with an error of the machine says nothing about the disk.
//!
//! # Example
//! The eighth read in a row that fails makes the disk failed; the keeper parts with it, and its blocks are misses.

mod pace;
mod speed;
mod under_way;
mod writes;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Handle, Shard, SharedFile};

use crate::health::{Health, is_passing};
use crate::log::DiskLog;
use crate::requests::LogWaiters;
use crate::stats::{DiskHealth, IoCounters, IoKind};
use crate::sync::lock;
use pace::Pace;
use speed::Speed;
use under_way::{ReadsUnderWay, TYPICAL_READ_BYTES, UnderWay};
use writes::Writes;

/// The fixed properties of a disk.
pub(crate) struct DiskIdentity {
    /// Number in the cache.
    pub(crate) number: u16,
    pub(crate) guid: u128,
    pub(crate) path: PathBuf,
}

/// One disk of an open cache.
pub(crate) struct CacheDisk {
    pub(crate) identity: DiskIdentity,
    pub(crate) file: Arc<SharedFile>,
    /// Locks out other processes while it is open; `None` in simulated worlds.
    _lock: Option<std::fs::File>,
    home: Handle,
    pub(crate) io: [IoCounters; IoKind::ALL.len()],
    pub(crate) log: Mutex<DiskLog>,
    /// Collects the callers that wait for the log to be written.
    pub(crate) log_waiters: LogWaiters,
    /// The slot written last, with the newest superblock; the next superblock goes to the other slot.
    pub(crate) label_slot: AtomicUsize,
    health: Mutex<Health>,
    /// The state of `health`, for readers at every request.
    health_now: AtomicU8,
    takes_metadata: AtomicBool,
    /// The disk takes no metadata any more: blocks written to it no longer count, and no write is sent.
    has_parted: AtomicBool,
    /// Operations in flight or waiting that change the disk.
    changes: AtomicU32,
    reads: ReadsUnderWay,
    hangs: AtomicBool,
    writes_hang: AtomicBool,
    writes: Mutex<Writes>,
    /// Bytes of data waiting or in flight.
    backlog_bytes: AtomicU64,
    speed: Speed,
    pace: Mutex<Pace>,
}

impl CacheDisk {
    pub(crate) fn new(
        identity: DiskIdentity,
        file: Arc<SharedFile>,
        lock: Option<std::fs::File>,
        home: Handle,
        log: DiskLog,
        write_bytes_per_s: Option<f64>,
        hit_slowdown: Option<f64>,
    ) -> CacheDisk {
        CacheDisk {
            identity,
            file,
            _lock: lock,
            home,
            io: Default::default(),
            log: Mutex::new(log),
            log_waiters: LogWaiters::default(),
            label_slot: AtomicUsize::new(0),
            health: Mutex::new(Health::new()),
            health_now: AtomicU8::new(code(DiskHealth::Healthy)),
            takes_metadata: AtomicBool::new(true),
            has_parted: AtomicBool::new(false),
            changes: AtomicU32::new(0),
            reads: ReadsUnderWay::default(),
            hangs: AtomicBool::new(false),
            writes_hang: AtomicBool::new(false),
            writes: Mutex::default(),
            backlog_bytes: AtomicU64::new(0),
            speed: Speed::new(write_bytes_per_s),
            pace: Mutex::new(Pace::new(hit_slowdown)),
        }
    }

    pub(crate) fn counters(&self, kind: IoKind) -> &IoCounters {
        &self.io[kind as usize]
    }

    pub(crate) fn health(&self) -> DiskHealth {
        health_of(self.health_now.load(Relaxed))
    }

    pub(crate) fn why(&self) -> String {
        lock(&self.health).why()
    }

    pub(crate) fn takes_reads(&self) -> bool {
        !matches!(self.health(), DiskHealth::Failed | DiskHealth::Missing)
    }

    pub(crate) fn takes_writes(&self) -> bool {
        matches!(self.health(), DiskHealth::Healthy | DiskHealth::Slow)
    }

    pub(crate) fn is_removing(&self) -> bool {
        self.health() == DiskHealth::Removing
    }

    /// Marks the disk as one that takes no metadata any more: from now on nothing is written to it.
    pub(crate) fn part(&self) {
        self.has_parted.store(true, SeqCst);
    }

    /// Returns whether writes to the disk no longer count. The answer is stable only under the gate.
    pub(crate) fn has_parted(&self) -> bool {
        self.has_parted.load(SeqCst)
    }

    /// Returns whether an operation may still change the disk's contents.
    pub(crate) fn is_busy(&self) -> bool {
        self.changes.load(SeqCst) > 0
    }

    /// Counts a change as under way until the returned value is dropped.
    ///
    /// # Errors
    /// When the disk has parted.
    pub(crate) fn begin_change(self: &Arc<CacheDisk>) -> io::Result<Change> {
        // Count first, then check: a task that parts the disk and then sees no change can rely on it.
        self.changes.fetch_add(1, SeqCst);
        let change = Change(Arc::clone(self));
        if self.has_parted() { Err(io::ErrorKind::NotConnected.into()) } else { Ok(change) }
    }

    /// Records whether the disk hangs.
    pub(crate) fn set_hanging(&self, hangs: bool) {
        self.hangs.store(hangs, Relaxed);
    }

    /// Returns whether operations are in flight and none has ended for a while.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs.load(Relaxed)
    }

    /// Records whether the disk hangs with its writes.
    pub(crate) fn set_writes_hanging(&self, hang: bool) {
        self.writes_hang.store(hang, Relaxed);
    }

    /// Returns whether writes are in flight and none has ended for a while. Reads may end.
    pub(crate) fn writes_hang(&self) -> bool {
        self.writes_hang.load(Relaxed)
    }

    /// Returns how many operations of these kinds have ended, and how many are in flight.
    pub(crate) fn progress(&self, kinds: impl IntoIterator<Item = IoKind>) -> (u64, u64) {
        let sum = |(ended, in_flight): (u64, u64), kind: IoKind| {
            let (more, also) = self.counters(kind).progress();
            (ended + more, in_flight + also)
        };
        kinds.into_iter().fold((0, 0), sum)
    }

    /// Returns the age of the read in flight for the longest time, and a typical size, since its own is not kept.
    pub(crate) fn oldest_read(&self, now_ns: u64) -> Option<(u32, u64)> {
        self.reads.oldest_ns(now_ns).map(|age_ns| (TYPICAL_READ_BYTES, age_ns))
    }

    /// Returns whether the disk's log and superblock can still be written.
    pub(crate) fn takes_metadata(&self) -> bool {
        self.takes_metadata.load(Relaxed)
    }

    /// Calls `change` with the disk's health, and publishes the resulting state.
    pub(crate) fn judge<T>(&self, change: impl FnOnce(&mut Health) -> T) -> T {
        let mut health = lock(&self.health);
        let result = change(&mut health);
        self.health_now.store(code(health.state()), Relaxed);
        self.takes_metadata.store(health.takes_metadata(), Relaxed);
        result
    }

    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes.load(Relaxed)
    }

    /// Returns the bytes of data that the disk is expected to write in a second.
    pub(crate) fn write_bytes_per_s(&self) -> f64 {
        let held_to = lock(&self.pace).bytes_per_s().unwrap_or(f64::INFINITY);
        self.speed.bytes_per_s().min(held_to)
    }

    /// Waits until other work than hits may read `len_bytes`.
    pub(crate) async fn wait_for_turn(&self, shard: &Shard, len_bytes: u64) {
        let due_ns = lock(&self.pace).book_read(shard.now_ns(), len_bytes);
        if due_ns > shard.now_ns() {
            shard.sleep_until(due_ns).await;
        }
    }

    /// Reads `buffer.len()` bytes; a short read is an error.
    pub(crate) async fn read(
        &self,
        shard: &Shard,
        class: Class,
        kind: IoKind,
        offset: u64,
        buffer: AlignedBuf,
    ) -> (io::Result<()>, AlignedBuf) {
        let len = buffer.len();
        let counters = self.counters(kind);
        let begin_ns = shard.now_ns();
        let under_way = UnderWay::new(counters);
        let mut watched = self.watch_read(shard, kind, begin_ns, len as u32);

        let (result, buffer) = shard.read_at(&self.file, class, offset, buffer).await;
        let result = match result {
            Ok(read) if read == len => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        };

        let took_ns = shard.now_ns().saturating_sub(begin_ns);
        watched.has_ended = true;
        under_way.ended(len as u64, took_ns, result.is_ok());
        if kind == IoKind::LookupRead && result.is_ok() {
            lock(&self.pace).hit(begin_ns, shard.now_ns());
        }
        self.judge(|health| match &result {
            Ok(()) => health.read_ok(shard.now_ns(), len as u32, took_ns),
            Err(error) if is_passing(error) => {}
            Err(error) => health.read_error(shard.now_ns(), error.raw_os_error().unwrap_or(0)),
        });
        (result, buffer)
    }

    /// Writes `buffer` without merging it: for metadata.
    pub(crate) async fn write(
        self: &Arc<CacheDisk>,
        shard: &Shard,
        class: Class,
        kind: IoKind,
        offset: u64,
        buffer: AlignedBuf,
    ) -> io::Result<()> {
        let _change = self.begin_change()?;
        self.write_run(shard, class, kind, offset, vec![buffer]).await
    }

    async fn write_run(
        &self,
        shard: &Shard,
        class: Class,
        kind: IoKind,
        offset: u64,
        mut buffers: Vec<AlignedBuf>,
    ) -> io::Result<()> {
        let len_bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let begin_ns = shard.now_ns();
        let under_way = UnderWay::new(self.counters(kind));

        let result = match (buffers.len(), buffers.pop()) {
            (1, Some(buffer)) => shard.write_at(&self.file, class, offset, buffer).await.0,
            (_, last) => {
                buffers.extend(last);
                shard.write_vectored(&self.file, class, offset, buffers).await.0
            }
        };

        let now_ns = shard.now_ns();
        let took_ns = now_ns.saturating_sub(begin_ns);
        under_way.ended(len_bytes, took_ns, result.is_ok());
        self.judge(|health| match &result {
            Ok(_) => health.write_ok(now_ns),
            Err(error) if is_passing(error) => {}
            Err(error) => health.write_error(now_ns, error.raw_os_error().unwrap_or(0)),
        });
        result.map(|_| ())
    }

    /// Flushes the device's write cache.
    pub(crate) async fn flush(&self, shard: &Shard, class: Class) -> io::Result<()> {
        let begin_ns = shard.now_ns();
        let under_way = UnderWay::new(self.counters(IoKind::Flush));
        let result = shard.sync(&self.file, class, true).await;
        under_way.ended(0, shard.now_ns().saturating_sub(begin_ns), result.is_ok());
        if let Err(error) = &result
            && !is_passing(error)
        {
            self.judge(|health| health.flush_error(shard.now_ns(), error.raw_os_error().unwrap_or(0)));
        }
        result
    }

    /// Discards a range. A failure is not held against the disk.
    pub(crate) async fn discard(self: &Arc<CacheDisk>, shard: &Shard, class: Class, offset: u64, len_bytes: u64) {
        let Ok(_change) = self.begin_change() else { return };
        let begin_ns = shard.now_ns();
        let under_way = UnderWay::new(self.counters(IoKind::Discard));
        let result = shard.discard(&self.file, class, offset, len_bytes).await;
        under_way.ended(len_bytes, shard.now_ns().saturating_sub(begin_ns), result.is_ok());
    }
}

/// An operation that may change a disk; counted until dropped.
pub(crate) struct Change(Arc<CacheDisk>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.changes.fetch_sub(1, SeqCst);
    }
}

const HEALTHS: [DiskHealth; 6] = [
    DiskHealth::Healthy,
    DiskHealth::Slow,
    DiskHealth::ReadOnly,
    DiskHealth::Failed,
    DiskHealth::Removing,
    DiskHealth::Missing,
];

fn code(health: DiskHealth) -> u8 {
    HEALTHS.iter().position(|known| *known == health).unwrap_or(0) as u8
}

fn health_of(code: u8) -> DiskHealth {
    HEALTHS.get(usize::from(code)).copied().unwrap_or(DiskHealth::Failed)
}
