//! A shard sleeps when there is nothing to do, and gets up by itself when queued work may go.

use crate::common;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::nasty::{Faults, Nasty};
use crate::common::skip::skip;
use crate::common::{all, deferred, disk, filled, memory, one_shard, within_reason};
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::{
    Backend, Completion, FileId, FileInfo, OpenOptions, OpenedFile, Operation, Submit, WakeHandle,
};
use plimsoll::core::LatencyGoal;
use plimsoll::{Class, Classes, DiskSetup, Reactor, Shard, Topology};

/// Nothing happens but time: no other request, no timer, no message.
#[test]
fn queued_work_wakes_the_shard_when_its_time_comes() {
    for make in [memory, deferred] {
        within_reason(move || {
            let (_, shard, file) = one_shard(disk(10, 1 << 30, LatencyGoal::NoSplit), make());
            let begin = std::time::Instant::now();
            let writes = (0..5).map(|n| shard.write_at(&file, Class::DEFAULT, n * 512, filled(512, 1, 0)));
            let ends = shard.block_on(all(writes)).unwrap();
            assert!(ends.iter().all(|(end, _)| matches!(end, Ok(512))));
            // Five at 10 a second, the first of them at once.
            assert!(begin.elapsed() >= Duration::from_millis(290), "{:?}", begin.elapsed());
        });
    }
}

/// Voluntary and other context switches of the calling thread so far, where the system says.
fn context_switches() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let counts = status.lines().filter(|line| line.contains("ctxt_switches:"));
    let counts: Vec<u64> = counts.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// What 300 ms on `shard` cost: CPU time in nanoseconds, context switches.
fn cost_of_idling(shard: &Shard) -> (u64, Option<u64>) {
    let before = (plimsoll::sys::rusage::thread_cpu_ns(), context_switches());
    shard.block_on(shard.sleep(Duration::from_millis(300))).unwrap();
    let switches = context_switches().zip(before.1).map(|(after, before)| after - before);
    (plimsoll::sys::rusage::thread_cpu_ns() - before.0, switches)
}

fn check_idle(what: &str, shard: &Shard) {
    let (cpu_ns, switches) = cost_of_idling(shard);
    // A shard that polls uses all of the 300 ms; one that sleeps, some microseconds. The bounds are far from both.
    assert!(cpu_ns < 60_000_000, "{what}: {cpu_ns} ns of CPU in 300 ms of idleness");
    match switches {
        Some(count) => assert!(count < 200, "{what}: {count} context switches in 300 ms of idleness"),
        None => skip("this system does not count context switches in /proc"),
    }
}

#[test]
fn an_idle_shard_costs_nothing() {
    for kind in common::usable_kinds().into_iter().chain([BackendKind::Null]) {
        within_reason(move || {
            let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
            let shard = Shard::new(Reactor::new(0, &topology, kind.make(64).unwrap()).unwrap());
            check_idle(kind.name(), &shard);
        });
    }
}

#[test]
fn a_shard_that_waits_for_tokens_costs_nothing() {
    within_reason(|| {
        let (_, shard, file) = one_shard(disk(2, 1 << 30, LatencyGoal::NoSplit), memory());
        for n in 0..10 {
            let (writer, file) = (shard.clone(), file.clone());
            let write = async move { writer.write_at(&file, Class::DEFAULT, n, filled(512, 1, 0)).await };
            shard.spawn(write).detach();
        }
        check_idle("waiting for tokens", &shard);
        shard.drop_tasks();
    });
}

/// A backend that takes nothing while it has work must not be asked in a loop.
#[test]
fn a_shard_that_waits_for_a_busy_backend_sleeps() {
    within_reason(|| {
        // Refuses everything: nothing is ever in flight, and only the clock brings the next try.
        let faults = Faults { busy_percent: 100, ..Faults::default() };
        let (_, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(faults));
        for n in 0..10 {
            let (writer, file) = (shard.clone(), file.clone());
            let write = async move { writer.write_at(&file, Class::DEFAULT, n, filled(512, 1, 0)).await };
            shard.spawn(write).detach();
        }
        let (cpu_ns, _) = cost_of_idling(&shard);
        assert!(cpu_ns < 200_000_000, "{cpu_ns} ns of CPU in 300 ms");
        shard.drop_tasks();
    });
}

/// A backend whose clock the test moves; a wait moves it to the deadline.
struct ByHand {
    inner: MemoryBackend,
    now_ns: Arc<AtomicU64>,
}

// SAFETY: all that touches memory is the inner backend's, which keeps the contract.
unsafe impl Backend for ByHand {
    fn name(&self) -> &'static str {
        "by hand"
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        self.inner.open_shared(path, options)
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        self.inner.attach(file)
    }

    fn close(&mut self, file: FileId) {
        self.inner.close(file);
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        self.inner.file_len(file)
    }

    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        self.inner.set_file_len(file, len_bytes)
    }

    unsafe fn submit(&mut self, operation: Operation) -> Submit {
        // SAFETY: passed on from the caller.
        unsafe { self.inner.submit(operation) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        self.inner.reap(sink)
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        if let Some(at_ns) = deadline_ns {
            self.now_ns.fetch_max(at_ns, Ordering::SeqCst);
        }
        Ok(())
    }

    fn wake_handle(&self) -> WakeHandle {
        self.inner.wake_handle()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }
}

const MS: u64 = 1_000_000;

/// Returns a shard whose clock stands at 1 s, and the clock.
fn by_hand() -> (Shard, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(1_000 * MS));
    let inner = MemoryBackend::new(&MemoryStore::default()).unwrap();
    let backend = ByHand { inner, now_ns: Arc::clone(&clock) };
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    (Shard::new(Reactor::new(0, &topology, Box::new(backend)).unwrap()), clock)
}

#[test]
fn timers_fire_in_order_each_at_its_time() {
    within_reason(|| {
        let (shard, clock) = by_hand();
        let fired = std::cell::RefCell::new(Vec::new());
        let sleep = |ms: u64| {
            let (shard, fired, clock) = (&shard, &fired, &clock);
            async move {
                shard.sleep_until((1_000 + ms) * MS).await;
                fired.borrow_mut().push((ms, clock.load(Ordering::SeqCst)));
            }
        };
        let timers = async {
            // Dropped before its time, it does not keep the shard from sleeping on.
            assert!(common::poll_once(std::pin::pin!(shard.sleep_until(1_001 * MS))).is_pending());
            all([30, 10, 20, 0].map(sleep)).await;
        };
        shard.block_on(timers).unwrap();
        assert_eq!(fired.into_inner(), [0, 10, 20, 30].map(|ms| (ms, (1_000 + ms) * MS)));
    });
}

#[test]
fn a_sleep_counts_from_its_call_not_from_the_beginning_of_the_turn() {
    within_reason(|| {
        let (shard, clock) = by_hand();
        let task = async {
            // Computes for 5 ms, in the middle of a turn.
            clock.fetch_add(5 * MS, Ordering::SeqCst);
            shard.sleep(Duration::from_millis(1)).await;
            clock.load(Ordering::SeqCst)
        };
        assert_eq!(shard.block_on(task).unwrap(), 1_006 * MS);

        // The call counts, not the first poll.
        let task = async {
            let sleep = shard.sleep(Duration::from_millis(2));
            clock.fetch_add(1_000 * MS, Ordering::SeqCst);
            sleep.await;
            clock.load(Ordering::SeqCst)
        };
        assert_eq!(shard.block_on(task).unwrap(), 2_006 * MS);
    });
}
