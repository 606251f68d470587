//! Much comes back at once: what the program sends for the first of it goes out before the rest is looked at, and nobody else
//! waits for the rest.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;

use crate::common::{CREATE, disk, filled, memory, one, one_reactor, one_shard, within_reason};
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::{
    Backend, Completion, FileId, FileInfo, OpenOptions, OpenedFile, Operation, Submit, WakeHandle,
};
use plimsoll::core::LatencyGoal;
use plimsoll::{Class, Classes, DiskSetup, Done, Reactor, Request, RequestKind, SharedFile, Topology};

/// So many are seen to in a turn.
const ROUND: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Submit,
    Flush,
    Wait,
}

/// A memory backend that tells what is asked of it, and whose clock the test moves.
struct Telling {
    inner: MemoryBackend,
    now_ns: Arc<AtomicU64>,
    calls: Sender<Call>,
}

/// What the test sees of it.
struct Told {
    now_ns: Arc<AtomicU64>,
    calls: Receiver<Call>,
}

impl Telling {
    fn boxed() -> (Box<dyn Backend>, Told) {
        let (now_ns, (tell, calls)) = (Arc::new(AtomicU64::new(1_000_000)), channel());
        let inner = MemoryBackend::deferred(&MemoryStore::default(), 64).unwrap();
        (Box::new(Telling { inner, now_ns: Arc::clone(&now_ns), calls: tell }), Told { now_ns, calls })
    }
}

impl Telling {
    fn tell(&self, call: Call) {
        // Nobody listens any more where a test has ended.
        let _ = self.calls.send(call);
    }
}

impl Told {
    fn calls(&self) -> Vec<Call> {
        self.calls.try_iter().collect()
    }
}

// SAFETY: all that touches memory is the inner backend's, which keeps the contract.
unsafe impl Backend for Telling {
    fn name(&self) -> &'static str {
        "telling"
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
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
        self.tell(Call::Submit);
        // SAFETY: passed on from the caller.
        unsafe { self.inner.submit(operation) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tell(Call::Flush);
        self.inner.flush()
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        self.inner.reap(sink)
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.tell(Call::Wait);
        self.inner.wait(deadline_ns)
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

/// The coordinator of the only queue of a disk, over a telling backend, another shard, and a new file.
fn two_reactors(setup: DiskSetup) -> ([Reactor; 2], Told, Arc<SharedFile>) {
    let setup = DiskSetup { num_io_queues: Some(1), ..setup };
    let topology = Topology::new(2, Classes::new(), vec![setup]).unwrap();
    let (backend, told) = Telling::boxed();
    let coordinator = Reactor::new(0, &topology, backend).unwrap();
    let other = Reactor::new(1, &topology, memory()).unwrap();
    ([coordinator, other], told, topology.file("file".as_ref(), CREATE, 0))
}

fn write(file: &Arc<SharedFile>, tag: u64) -> Request {
    let kind = RequestKind::Write { len_bytes: 512 };
    Request { file: Arc::clone(file), class: Class::DEFAULT, kind, offset: tag * 512, data: one(512), tag }
}

fn tags(done: &mut Vec<Done>) -> Vec<u64> {
    assert!(done.iter().all(|end| end.result == Ok(512)), "{done:?}");
    done.drain(..).map(|end| end.tag).collect()
}

/// `count` pieces, the system told after each `ROUND` of them that others follow.
fn sent(count: usize) -> Vec<Call> {
    let sent = (0..count).flat_map(|nth| {
        let flush = (nth > 0 && nth % ROUND == 0).then_some(Call::Flush);
        flush.into_iter().chain([Call::Submit])
    });
    sent.collect()
}

#[test]
fn what_follows_goes_out_before_the_rest_is_seen_to() {
    within_reason(|| {
        let (backend, told) = Telling::boxed();
        let (_topology, mut reactor, file) = one_reactor(1_000, backend);
        let mut done = Vec::new();
        for tag in 0..30 {
            reactor.submit(write(&file, tag)).unwrap();
        }
        reactor.park(None).unwrap();
        // What the first flushes handed over has come back by now: no sleep.
        assert_eq!(told.calls(), [sent(30), vec![Call::Flush]].concat());

        let mut next = 30;
        for round in 0..3 {
            reactor.reap(&mut done);
            let expected: Vec<u64> = (8 * round..8 * (round + 1)).collect();
            assert_eq!((tags(&mut done), reactor.under_way()), (expected, 22));
            for _ in 0..8 {
                reactor.submit(write(&file, next)).unwrap();
                next += 1;
            }
            reactor.park(None).unwrap();
            // It does not sleep: there is more.
            assert_eq!(told.calls(), [sent(8), vec![Call::Flush]].concat(), "round {round}");
        }
        let mut ended = Vec::new();
        while reactor.under_way() > 0 {
            reactor.reap(&mut done);
            assert!((1..=ROUND).contains(&done.len()), "{}", done.len());
            ended.extend(tags(&mut done));
            reactor.park(Some(0)).unwrap();
        }
        assert_eq!(ended, (24..54).collect::<Vec<_>>());
    });
}

/// A disk that holds one request gets the next one before the caller sees what has ended; pieces of other shards too.
#[test]
fn what_may_go_is_sent_before_the_caller_sees_what_has_ended() {
    let mut setup = disk(100_000, 1_000_000_000, LatencyGoal::Ns(10_000));
    setup.config.window_ns = Some(1);
    let ([mut coordinator, mut other], told, file) = two_reactors(setup);
    for tag in 0..3 {
        coordinator.submit(write(&file, tag)).unwrap();
        other.submit(write(&file, 100 + tag)).unwrap();
    }
    coordinator.park(None).unwrap();
    assert_eq!(told.calls(), [Call::Submit, Call::Flush]);

    let mut done = Vec::new();
    let mut reap = |coordinator: &mut Reactor| {
        // For the tokens of the next.
        told.now_ns.fetch_add(100_000, Ordering::Relaxed);
        coordinator.reap(&mut done);
        (told.calls(), done.len())
    };
    for turn in 0..4 {
        assert_eq!(reap(&mut coordinator).0, [Call::Submit, Call::Flush], "turn {turn}");
    }
    // The coordinator has ended its last request. Room is left for the next one, which the caller may send at once.
    assert_eq!(reap(&mut coordinator), (vec![], 3));
    coordinator.park(Some(0)).unwrap();
    assert_eq!(told.calls()[..2], [Call::Submit, Call::Flush]);
    assert_eq!(reap(&mut coordinator), (vec![], 3));
    let mut done = Vec::new();
    other.reap(&mut done);
    assert_eq!((done.len(), other.under_way()), (3, 0));
}

/// Who computes for long between two looks would else get eight in that time, however fast the disk is.
#[test]
fn who_computes_for_long_gets_all() {
    let (backend, told) = Telling::boxed();
    let (_topology, mut reactor, file) = one_reactor(100, backend);
    for tag in 0..30 {
        reactor.submit(write(&file, tag)).unwrap();
    }
    reactor.park(None).unwrap();
    told.now_ns.fetch_add(1_000_000, Ordering::Relaxed);
    // What lies in the backend after the first look of `park` comes with the next.
    let mut done = Vec::new();
    reactor.reap(&mut done);
    assert_eq!(done.len(), 24);
    reactor.reap(&mut done);
    assert_eq!((done.len(), reactor.under_way()), (30, 0));
}

/// Dropped in the middle of a round, a reactor sees the rest off.
#[test]
fn a_reactor_goes_with_ends_that_were_not_seen_to() {
    let (backend, _told) = Telling::boxed();
    let (topology, mut reactor, file) = one_reactor(100, backend);
    for tag in 0..30 {
        reactor.submit(write(&file, tag)).unwrap();
    }
    reactor.park(None).unwrap();
    let mut done = Vec::new();
    reactor.reap(&mut done);
    assert_eq!((done.len(), reactor.under_way()), (8, 22));
    drop(reactor);
    assert_eq!(topology.disk(0).unwrap().in_flight_ns(), 0);
}

/// Mail is read in each turn, also while there is more to be seen to.
#[test]
fn mail_does_not_wait_for_the_rest() {
    let ([mut coordinator, mut other], _told, file) = two_reactors(DiskSetup::unlimited());
    for tag in 0..40 {
        coordinator.submit(write(&file, tag)).unwrap();
    }
    coordinator.park(None).unwrap();
    other.submit(write(&file, 100)).unwrap();
    let mut done = Vec::new();
    coordinator.reap(&mut done);
    // 40, less the first eight, and the other's.
    assert_eq!((done.len(), coordinator.under_way()), (8, 33));
}

/// Tasks run, and the main future is polled, after each round.
#[test]
fn tasks_do_not_wait_for_the_rest() {
    within_reason(|| {
        const TASKS: u64 = 60;
        let (backend, _told) = Telling::boxed();
        let (_topology, shard, file) = one_shard(DiskSetup::unlimited(), backend);
        let ended = Rc::new(Cell::new(0));
        for n in 0..TASKS {
            let (writer, file, ended) = (shard.clone(), Arc::clone(&file), Rc::clone(&ended));
            let write = async move {
                writer.write_at(&file, Class::DEFAULT, n * 512, filled(512, 1, 0)).await.0.unwrap();
                ended.set(ended.get() + 1);
            };
            shard.spawn(write).detach();
        }
        let mut before = 0;
        let main = poll_fn(|context| {
            let now = ended.get();
            assert!(now - before <= ROUND as u64, "{before} had ended, and {now} have");
            before = now;
            // Once a turn.
            context.waker().wake_by_ref();
            if now == TASKS { Poll::Ready(()) } else { Poll::Pending }
        });
        shard.block_on(main).unwrap();
    });
}
