//! One disk of an open cache: its reads, merged writes and flushes, its health and its speed.
//!
//! # Why
//! Inserts are small and a disk likes large writes. Consecutive inserts get adjacent slots, so the writes that wait
//! for a disk are merged into runs. And a disk that fails or becomes slow must be detected in one place: here.
//!
//! # How it works
//! A write waits in the lane of its class, by offset. At most [`WRITES_IN_FLIGHT`] runs of a lane are in flight (in
//! the scheduler or in the device). Whenever one completes, the oldest waiting write is submitted, merged with those
//! directly behind it, up to [`RUN_BYTES`]. An idle disk thus writes at once, a busy one in large runs, without a
//! timer. All writes of a disk go through one shard, its home; a read goes through its caller's shard.
//!
//! # Limits
//! The order of two writes is undefined. No caller writes a place again before its first write has ended.
//!
//! # Example
//! 64 inserts of 8 KiB at once into an empty slab: 16 writes of one block; when the first completes, one of 32 blocks
//! (256 KiB), then one of 16.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Handle, Shard, SharedFile};

use crate::bell::Desk;
use crate::health::{Health, is_passing};
use crate::log::DiskLog;
use crate::stats::{DiskHealth, IoCounters, IoKind};
use crate::sync::lock;

/// Most runs in flight in one lane.
const WRITES_IN_FLIGHT: u32 = 16;

/// Longest run, in bytes.
const RUN_BYTES: usize = 256 << 10;

/// Most buffers of a run: the kernel takes no more in one call.
const RUN_PIECES: usize = 1024;

/// Called with the result of a write, on the disk's home shard.
pub(crate) type WriteDone = Box<dyn FnOnce(io::Result<()>) + Send>;

struct Waiting {
    buffer: AlignedBuf,
    change: Change,
    done: WriteDone,
}

/// The writes of one class and kind.
struct Lane {
    class: Class,
    kind: IoKind,
    /// Offsets in order of arrival; those that an earlier run took are still listed.
    oldest: VecDeque<u64>,
    by_offset: BTreeMap<u64, Waiting>,
    in_flight: u32,
}

#[derive(Default)]
struct Writes {
    lanes: Vec<Lane>,
    /// A job that sends runs is on its way to the home shard.
    is_called: bool,
    /// What to call at the ends of the runs in flight, by their numbers.
    ends: HashMap<u64, Vec<WriteDone>>,
    next_run: u64,
}

/// Contiguous writes that are submitted as one.
struct Run {
    number: u64,
    lane: usize,
    class: Class,
    kind: IoKind,
    offset: u64,
    buffers: Vec<AlignedBuf>,
    changes: Vec<Change>,
}

impl Writes {
    fn push(&mut self, class: Class, kind: IoKind, offset: u64, waiting: Waiting) {
        let lane = match self.lanes.iter().position(|lane| (lane.class, lane.kind) == (class, kind)) {
            Some(lane) => lane,
            None => {
                let (oldest, by_offset) = (VecDeque::new(), BTreeMap::new());
                self.lanes.push(Lane { class, kind, oldest, by_offset, in_flight: 0 });
                self.lanes.len() - 1
            }
        };
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.oldest.push_back(offset);
            lane.by_offset.insert(offset, waiting);
        }
    }

    fn next_run(&mut self) -> Option<Run> {
        let (lane, (offset, waiting)) =
            self.lanes.iter_mut().enumerate().find_map(|(number, lane)| Some((number, lane.next_run()?)))?;
        let Lane { class, kind, .. } = *self.lanes.get(lane)?;
        let number = self.next_run;
        self.next_run += 1;
        let mut run = Run { number, lane, class, kind, offset, buffers: Vec::new(), changes: Vec::new() };
        let ends = self.ends.entry(number).or_default();
        for Waiting { buffer, change, done } in waiting {
            run.buffers.push(buffer);
            run.changes.push(change);
            ends.push(done);
        }
        Some(run)
    }

    /// Takes a run out of its lane. Returns what to call; nothing if the disk parted meanwhile.
    fn end_run(&mut self, number: u64, lane: usize) -> Vec<WriteDone> {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.in_flight -= 1;
        }
        self.ends.remove(&number).unwrap_or_default()
    }

    fn may_go(&self) -> bool {
        self.lanes.iter().any(|lane| lane.in_flight < WRITES_IN_FLIGHT && !lane.by_offset.is_empty())
    }
}

impl Lane {
    /// Takes the oldest waiting write, and those directly behind it. Returns their offset.
    fn next_run(&mut self) -> Option<(u64, Vec<Waiting>)> {
        if self.in_flight >= WRITES_IN_FLIGHT {
            return None;
        }
        let (offset, first) = loop {
            let offset = self.oldest.pop_front()?;
            if let Some(first) = self.by_offset.remove(&offset) {
                break (offset, first);
            }
        };

        let mut run_bytes = first.buffer.len();
        let mut run = vec![first];
        while run.len() < RUN_PIECES
            && let Entry::Occupied(next) = self.by_offset.entry(offset + run_bytes as u64)
            && run_bytes + next.get().buffer.len() <= RUN_BYTES
        {
            let next = next.remove();
            run_bytes += next.buffer.len();
            run.push(next);
        }

        self.in_flight += 1;
        Some((offset, run))
    }
}

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
    pub(crate) desk: Desk,
    /// The slot written last, with the newest superblock; the next superblock goes to the other slot.
    pub(crate) label_slot: AtomicUsize,
    health: Mutex<Health>,
    /// The state of `health`, for readers at every request.
    health_now: AtomicU8,
    /// The disk takes no metadata any more: blocks written to it no longer count, and no write is sent.
    has_parted: AtomicBool,
    /// Operations in flight or waiting that change the disk.
    changes: AtomicU32,
    reads: ReadsUnderWay,
    hangs: AtomicBool,
    writes: Mutex<Writes>,
    /// Bytes of data waiting or in flight.
    backlog_bytes: AtomicU64,
    speed: Speed,
}

impl CacheDisk {
    pub(crate) fn new(
        identity: DiskIdentity,
        file: Arc<SharedFile>,
        lock: Option<std::fs::File>,
        home: Handle,
        log: DiskLog,
        write_bytes_per_s: Option<f64>,
    ) -> CacheDisk {
        CacheDisk {
            identity,
            file,
            _lock: lock,
            home,
            io: Default::default(),
            log: Mutex::new(log),
            desk: Desk::default(),
            label_slot: AtomicUsize::new(0),
            health: Mutex::new(Health::new()),
            health_now: AtomicU8::new(code(DiskHealth::Healthy)),
            has_parted: AtomicBool::new(false),
            changes: AtomicU32::new(0),
            reads: ReadsUnderWay::default(),
            hangs: AtomicBool::new(false),
            writes: Mutex::default(),
            backlog_bytes: AtomicU64::new(0),
            speed: Speed::new(write_bytes_per_s),
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

    /// Returns whether operations are in flight of which none has ended for a while.
    pub(crate) fn hangs(&self) -> bool {
        self.hangs.load(Relaxed)
    }

    /// Returns how many operations have ended, and how many are in flight.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let sum = |(ended, in_flight): (u64, u64), kind: &IoCounters| {
            let (more, also) = kind.progress();
            (ended + more, in_flight + also)
        };
        self.io.iter().fold((0, 0), sum)
    }

    /// Returns the age of the read in flight for the longest time, and a typical size, since its own is not kept.
    pub(crate) fn oldest_read(&self, now_ns: u64) -> Option<(u32, u64)> {
        self.reads.oldest_ns(now_ns).map(|age_ns| (TYPICAL_READ_BYTES, age_ns))
    }

    /// Returns whether the disk's log and superblock can still be written.
    pub(crate) fn takes_metadata(&self) -> bool {
        matches!(self.health(), DiskHealth::Healthy | DiskHealth::Slow | DiskHealth::Removing)
    }

    /// Calls `change` with the disk's health, and publishes the resulting state.
    pub(crate) fn judge<T>(&self, change: impl FnOnce(&mut Health) -> T) -> T {
        let mut health = lock(&self.health);
        let result = change(&mut health);
        self.health_now.store(code(health.state()), Relaxed);
        result
    }

    pub(crate) fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes.load(Relaxed)
    }

    pub(crate) fn write_bytes_per_s(&self) -> f64 {
        self.speed.bytes_per_s()
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
        let mut watched = self.watch_read(shard, begin_ns, len as u32);

        let (result, buffer) = shard.read_at(&self.file, class, offset, buffer).await;
        let result = match result {
            Ok(read) if read == len => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        };

        let took_ns = shard.now_ns().saturating_sub(begin_ns);
        watched.has_ended = true;
        under_way.ended(len as u64, took_ns, result.is_ok());
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

    /// Queues a write of data, to be merged with its neighbours. `done` is called with the result on the home shard.
    /// If that has no room for another job, `done` is called here and now: hold no lock that it takes. If the disk
    /// parts, `done` is called with an error, although the write may still be in flight.
    pub(crate) fn submit_write(
        self: &Arc<CacheDisk>,
        class: Class,
        kind: IoKind,
        (change, offset): (Change, u64),
        buffer: AlignedBuf,
        done: impl FnOnce(io::Result<()>) + Send + 'static,
    ) {
        self.backlog_bytes.fetch_add(buffer.len() as u64, Relaxed);
        let mut writes = lock(&self.writes);
        writes.push(class, kind, offset, Waiting { buffer, change, done: Box::new(done) });
        if writes.is_called || !writes.may_go() {
            return;
        }
        writes.is_called = true;
        drop(writes);

        let disk = Arc::clone(self);
        let called = self.home.spawn(move |shard| async move {
            lock(&disk.writes).is_called = false;
            disk.send_runs(&shard);
        });
        if let Err(error) = called {
            self.give_up_writes(&error);
        }
    }

    /// Fails the writes that could be submitted now, because the home shard had no room for the job that sends them.
    fn give_up_writes(&self, error: &io::Error) {
        let mut writes = lock(&self.writes);
        writes.is_called = false;
        let mut given_up = Vec::new();
        while let Some(run) = writes.next_run() {
            let done = writes.end_run(run.number, run.lane);
            given_up.push((run, done));
        }
        drop(writes);
        for (Run { buffers, .. }, done) in given_up {
            let len_bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
            self.backlog_bytes.fetch_sub(len_bytes, Relaxed);
            done.into_iter().for_each(|done| done(Err(error.kind().into())));
        }
    }

    /// Fails the writes of a disk that has parted. Those that wait would only take room from other disks' writes; those
    /// in flight may never end, and their callers wait for them.
    pub(crate) fn give_up_all_writes(&self) {
        let (waiting, mut ends): (Vec<Waiting>, Vec<WriteDone>) = {
            let mut writes = lock(&self.writes);
            let ends = std::mem::take(&mut writes.ends).into_values().flatten().collect();
            let lanes = writes.lanes.iter_mut();
            (lanes.flat_map(|lane| std::mem::take(&mut lane.by_offset).into_values()).collect(), ends)
        };
        for Waiting { buffer, change, done } in waiting {
            self.backlog_bytes.fetch_sub(buffer.len() as u64, Relaxed);
            drop(change);
            ends.push(done);
        }
        ends.into_iter().for_each(|done| done(Err(io::ErrorKind::NotConnected.into())));
    }

    /// Submits the runs that may be in flight. Called on the home shard.
    fn send_runs(self: &Arc<CacheDisk>, shard: &Shard) {
        loop {
            let Some(run) = lock(&self.writes).next_run() else { return };
            let (disk, own) = (Arc::clone(self), shard.clone());
            shard.spawn(async move { disk.carry_out(&own, run).await }).detach();
        }
    }

    async fn carry_out(self: &Arc<CacheDisk>, shard: &Shard, run: Run) {
        let Run { number, lane, class, kind, offset, buffers, changes } = run;
        let len_bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let began_ns = shard.now_ns();
        let result = self.write_run(shard, class, kind, offset, buffers).await;
        let backlog_bytes = self.backlog_bytes.fetch_sub(len_bytes, Relaxed);
        if result.is_ok() {
            self.speed.wrote(began_ns, shard.now_ns(), len_bytes, backlog_bytes);
        }

        let ends = lock(&self.writes).end_run(number, lane);
        for done in ends {
            done(match &result {
                Ok(()) => Ok(()),
                Err(error) => {
                    Err(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))
                }
            });
        }
        // Only now: while a change is counted, the disk does not begin a new life.
        drop(changes);
        self.send_runs(shard);
    }
}

/// An operation that may change a disk; counted until dropped.
pub(crate) struct Change(Arc<CacheDisk>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.changes.fetch_sub(1, SeqCst);
    }
}

/// Counts an operation as in flight until it has ended, or its future is dropped.
struct UnderWay<'a>(Option<&'a IoCounters>);

impl<'a> UnderWay<'a> {
    fn new(counters: &'a IoCounters) -> UnderWay<'a> {
        counters.began();
        UnderWay(Some(counters))
    }

    fn ended(mut self, bytes: u64, took_ns: u64, is_ok: bool) {
        if let Some(counters) = self.0.take() {
            counters.ended(bytes, took_ns, is_ok);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(counters) = self.0.take() {
            counters.given_up();
        }
    }
}

/// Size that a read in flight is taken to have, in bytes: sizes are not kept.
const TYPICAL_READ_BYTES: u32 = 8192;

/// Counts the reads in flight by the tenth of a second in which they began, for the last 64.
struct ReadsUnderWay([AtomicU32; READ_AGES]);

impl Default for ReadsUnderWay {
    fn default() -> ReadsUnderWay {
        ReadsUnderWay(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

const READ_AGES: usize = 64;

/// Resolution of ages, in nanoseconds.
const READ_AGE_NS: u64 = 100_000_000;

/// A read in flight, until dropped.
struct Watched<'a> {
    disk: &'a CacheDisk,
    shard: &'a Shard,
    begin_ns: u64,
    len_bytes: u32,
    has_ended: bool,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.disk.reads.count(self.begin_ns).fetch_sub(1, Relaxed);
        if !self.has_ended {
            let now_ns = self.shard.now_ns();
            let took_ns = now_ns.saturating_sub(self.begin_ns);
            self.disk.judge(|health| health.read_given_up(now_ns, self.len_bytes, took_ns));
        }
    }
}

impl CacheDisk {
    fn watch_read<'a>(&'a self, shard: &'a Shard, begin_ns: u64, len_bytes: u32) -> Watched<'a> {
        self.reads.count(begin_ns).fetch_add(1, Relaxed);
        Watched { disk: self, shard, begin_ns, len_bytes, has_ended: false }
    }
}

impl ReadsUnderWay {
    /// Returns the counter of the tenth of a second of `begin_ns`.
    fn count(&self, begin_ns: u64) -> &AtomicU32 {
        &self.0[(begin_ns / READ_AGE_NS) as usize % READ_AGES]
    }

    fn oldest_ns(&self, now_ns: u64) -> Option<u64> {
        let now = now_ns / READ_AGE_NS;
        // Age 0 would be a read that has only begun.
        let is_there = |age: &u64| self.0[(now.wrapping_sub(*age)) as usize % READ_AGES].load(Relaxed) > 0;
        (1..READ_AGES as u64).rev().find(is_there).map(|age| (age - 1) * READ_AGE_NS)
    }
}

/// How fast a disk writes: as configured, else as measured while it was saturated.
struct Speed {
    is_given: bool,
    /// Bits of an `f64`, in bytes per second.
    bytes_per_s: AtomicU64,
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    from_ns: u64,
    bytes: u64,
    was_busy: bool,
}

/// Assumed speed of an unmeasured disk, in bytes per second. Only ratios between disks matter.
const UNKNOWN_BYTES_PER_S: f64 = 500e6;

/// Length of a speed measurement, in nanoseconds.
const SPEED_WINDOW_NS: u64 = 250_000_000;

/// Backlog that shows saturation: a disk that had as much during a whole measurement wrote as fast as it can.
const BUSY_BYTES: u64 = 2 << 20;

impl Speed {
    fn new(given: Option<f64>) -> Speed {
        let given = given.filter(|rate| rate.is_finite() && *rate > 0.0);
        let bits = given.unwrap_or(UNKNOWN_BYTES_PER_S).to_bits();
        Speed { is_given: given.is_some(), bytes_per_s: AtomicU64::new(bits), window: Mutex::default() }
    }

    fn bytes_per_s(&self) -> f64 {
        f64::from_bits(self.bytes_per_s.load(Relaxed))
    }

    fn wrote(&self, began_ns: u64, now_ns: u64, len_bytes: u64, backlog_bytes: u64) {
        if self.is_given {
            return;
        }

        let mut window = lock(&self.window);
        if window.from_ns == 0 {
            *window = Window { from_ns: began_ns, bytes: 0, was_busy: true };
        }
        window.bytes += len_bytes;
        window.was_busy &= backlog_bytes >= BUSY_BYTES;
        let past_ns = now_ns.saturating_sub(window.from_ns);
        if past_ns < SPEED_WINDOW_NS {
            return;
        }

        if window.was_busy {
            let seen = window.bytes as f64 / (past_ns as f64 / 1e9);
            let smooth = 0.7 * self.bytes_per_s() + 0.3 * seen;
            self.bytes_per_s.store(smooth.to_bits(), Relaxed);
        }
        *window = Window { from_ns: now_ns, bytes: 0, was_busy: true };
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use plimsoll::backend::OpenOptions;
    use plimsoll::backend::sim::{SimConfig, SimWorld};
    use plimsoll::{Classes, DiskSetup, ReactorConfig, SimRuntime, Topology};

    use super::*;
    use crate::entry::SlabId;
    use crate::log::StreamShape;

    #[test]
    fn a_write_that_the_home_shard_has_no_room_for_ends_and_the_next_one_goes() {
        let world = SimWorld::new(&SimConfig::default()).unwrap();
        let config = ReactorConfig { max_requests: 2 };
        let topology = Topology::with_config(1, Classes::new(), vec![DiskSetup::unlimited()], config).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let shape = StreamShape { disk_guid: 1, slab_bytes: 1 << 20, sector_bytes: 4096 };
        let Ok(log) = DiskLog::new(shape, &mut || Some((SlabId(0), 0))) else { panic!("there is a slab") };
        let identity = DiskIdentity { number: 0, guid: 1, path: "disk".into() };
        let (file, home) = (topology.file("disk".as_ref(), options, 0), runtime.handle(0));
        let disk = Arc::new(CacheDisk::new(identity, file, None, home.clone(), log, None));
        let (ends, ended) = channel();
        let write = |offset| {
            let (ends, buffer) = (ends.clone(), AlignedBuf::new(4096).unwrap());
            let done = move |end: io::Result<()>| ends.send(end.map_err(|error| error.kind())).unwrap();
            let change = disk.begin_change().unwrap();
            disk.submit_write(Class::DEFAULT, IoKind::InsertWrite, (change, offset), buffer, done);
        };

        (0..2).for_each(|_| home.spawn(|_| async {}).unwrap());
        write(0);
        assert_eq!(ended.try_recv(), Ok(Err(io::ErrorKind::WouldBlock)));
        assert_eq!(disk.backlog_bytes.load(Relaxed), 0);

        runtime.run_for(Duration::from_millis(1)).unwrap();
        write(4096);
        runtime.run_for(Duration::from_secs(1)).unwrap();
        assert_eq!(ended.try_recv(), Ok(Ok(())));
        assert_eq!(disk.backlog_bytes.load(Relaxed), 0);
    }
}
