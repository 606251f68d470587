//! What the tests of the shards share: worlds, a watchdog, an executor of six lines, and backends that misbehave
//! by the numbers (module `nasty`) or when told to (module `holding`).

#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod holding;
pub(crate) mod nasty;

#[path = "../../../../skip.rs"]
pub(crate) mod skip;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::{Backend, OpenOptions};
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures, LatencyGoal, Rate};
use plimsoll::{Classes, Data, DiskSetup, Reactor, ReactorConfig, Shard, SharedFile, Topology};

/// So long no test may hang; far more than any needs, also on a slow machine.
const HANG: Duration = Duration::from_secs(120);

/// Runs `body` on a thread of its own and gives up when it hangs.
pub(crate) fn within_reason<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (end, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || end.send(body()));
    match ended.recv_timeout(HANG) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => panic!("the thread ended without a result"),
        },
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The plainest executor: what a handle must work with.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::park();
    }
}

/// All of `futures`, polled whenever one of them is woken.
pub(crate) async fn all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut are_done = true;
        for (future, value) in futures.iter_mut().filter(|(_, value)| value.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *value = Some(ready),
                Poll::Pending => are_done = false,
            }
        }
        if are_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().map(|(_, value)| value.unwrap()).collect()
}

/// Polls `future` once with a waker that does nothing.
pub(crate) fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

pub(crate) const CREATE: OpenOptions =
    OpenOptions { write: true, create_new: true, direct: false, dsync: false, directory: false };
pub(crate) const EXISTING: OpenOptions =
    OpenOptions { write: true, create_new: false, direct: false, dsync: false, directory: false };

/// A disk with these operations and bytes a second.
pub(crate) fn disk(iops: u64, bytes_per_s: u64, latency_goal: LatencyGoal) -> DiskSetup {
    let figures = FourFigures {
        read_iops: Rate::per_second(iops),
        write_iops: Rate::per_second(iops),
        read_bandwidth: Rate::per_second(bytes_per_s),
        write_bandwidth: Rate::per_second(bytes_per_s),
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskSetup::new(DiskConfig { model, latency_goal, ..DiskConfig::default() })
}

/// One shard with default classes over `backend`, and a new file.
pub(crate) fn one_shard(disk: DiskSetup, backend: Box<dyn Backend>) -> (Topology, Shard, Arc<SharedFile>) {
    let topology = Topology::new(1, Classes::new(), vec![disk]).unwrap();
    let shard = Shard::new(Reactor::new(0, &topology, backend).unwrap());
    let file = topology.file("file".as_ref(), CREATE, 0);
    (topology, shard, file)
}

/// As [`one_shard`], without futures, and at most `max_requests` at a time.
pub(crate) fn one_reactor(max_requests: u32, backend: Box<dyn Backend>) -> (Topology, Reactor, Arc<SharedFile>) {
    let config = ReactorConfig { max_requests };
    let disks = vec![DiskSetup::unlimited()];
    let topology = Topology::with_config(1, Classes::new(), disks, config).unwrap();
    let reactor = Reactor::new(0, &topology, backend).unwrap();
    let file = topology.file("file".as_ref(), CREATE, 0);
    (topology, reactor, file)
}

pub(crate) fn memory() -> Box<dyn Backend> {
    Box::new(MemoryBackend::new(&MemoryStore::default()).unwrap())
}

pub(crate) fn deferred() -> Box<dyn Backend> {
    Box::new(MemoryBackend::deferred(&MemoryStore::default(), 64).unwrap())
}

/// The backends that keep data and that this machine allows.
pub(crate) fn usable_kinds() -> Vec<BackendKind> {
    let kinds = BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Null);
    kinds
        .filter(|kind| match kind.make(64) {
            Ok(_) => true,
            Err(error) => {
                skip::skip(error);
                false
            }
        })
        .collect()
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(seed: u64, at: u64) -> u8 {
    let mixed = (at ^ seed.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// A buffer with the pattern of `seed` from `offset` on.
pub(crate) fn filled(len_bytes: usize, seed: u64, offset: u64) -> AlignedBuf {
    let mut buffer = AlignedBuf::new(len_bytes).unwrap();
    for (byte, at) in buffer.iter_mut().zip(offset..) {
        *byte = pattern(seed, at);
    }
    buffer
}

pub(crate) fn has_pattern(bytes: &[u8], seed: u64, offset: u64) -> bool {
    bytes.iter().zip(offset..).all(|(byte, at)| *byte == pattern(seed, at))
}

/// Requests of the shard under way, and pieces in its backend.
pub(crate) fn under_way(shard: &Shard) -> (usize, usize) {
    let reactor = shard.reactor();
    (reactor.under_way(), reactor.in_backend())
}

pub(crate) fn one(len_bytes: usize) -> Data {
    Data::One(AlignedBuf::new(len_bytes).unwrap())
}

/// A directory that goes when the test does.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> TempDir {
        TempDir::new_in(&std::env::temp_dir(), name)
    }

    pub(crate) fn new_in(place: &Path, name: &str) -> TempDir {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("plimsoll-{name}-{}-{serial}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
