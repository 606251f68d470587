//! A shard: one thread that runs futures and does their I/O.
//!
//! # Why
//! Thread-per-core programs want to write `shard.read_at(...).await` and have everything, executor, timers, scheduler,
//! ring, on the same core, without locks and without a second thread.
//!
//! # How it works
//! The loop: reap completions and wake their tasks; run tasks that came by mail; poll ready tasks; fire timers; then
//! dispatch, hand everything to the system and sleep, all in one call ([`Reactor::park`]). A shard with nothing to do sleeps
//! without a timeout and costs nothing. Tasks may be woken from other threads: the executor's own waker then rings the shard.
//!
//! # Cancellation
//! Dropping a future cancels what is still queued of its request. What is in the device stays there: its buffer remains
//! the reactor's until the completion has been reaped, and is freed then.
//!
//! # Limits
//! Everything but [`Handle`](crate::Handle) stays on the thread (`!Send`). A task that holds a clone of its shard keeps it
//! alive, reactor and files included: [`Shard::run`] drops the tasks that are left when it returns; after
//! [`Shard::block_on`], [`Shard::drop_tasks`] does.
//!
//! # Example
//! ```
//! use plimsoll::backend::OpenOptions;
//! use plimsoll::backend::choose::{BackendKind, probe};
//! use plimsoll::buffer::AlignedBuf;
//! use plimsoll::{Class, Classes, DiskSetup, Reactor, Shard, Topology};
//!
//! let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
//! let (backend, _) = probe(Some(BackendKind::Memory), 256)?;
//! let shard = Shard::new(Reactor::new(0, &topology, backend)?);
//! let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
//! let file = topology.file("greeting".as_ref(), how, 0);
//! shard.block_on(async {
//!     let mut buffer = AlignedBuf::new(4096)?;
//!     buffer[..5].copy_from_slice(b"ahoy!");
//!     let (written, _) = shard.write_at(&file, Class::DEFAULT, 0, buffer).await;
//!     assert_eq!(written?, 4096);
//!     let (read, buffer) = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4096)?).await;
//!     assert_eq!((read?, &buffer[..5]), (4096, &b"ahoy!"[..]));
//!     Ok::<(), std::io::Error>(())
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::task::{Context, Poll, Wake as TaskWake, Waker};
use std::time::Duration;

use async_executor::{LocalExecutor, Task};
use slab::Slab;

use crate::backend::WakeHandle;
use crate::buffer::AlignedBuf;
use crate::class::Class;
use crate::file::SharedFile;
use crate::handle::Handle;
use crate::reactor::{Reactor, ReactorView, Ticket};
use crate::request::{Data, Done, Refused, Request, RequestError, RequestKind};
use crate::slot::{Order, Submission};

/// Something to run on a shard's thread.
pub type Job = Box<dyn FnOnce(&Shard) + Send>;

/// How many ready tasks are polled before completions are looked at again.
const TASKS_PER_TURN: usize = 256;

struct Inner {
    reactor: RefCell<Reactor>,
    operations: RefCell<Slab<Operation>>,
    timers: RefCell<Timers>,
    executor: RefCell<Rc<LocalExecutor<'static>>>,
    wake: WakeHandle,
    stopping: Cell<bool>,
}

/// What the shard knows of a request that a future waits for.
enum Operation {
    Waiting(Waker),
    Done(Done),
    /// The future is gone; the request goes on alone.
    Abandoned,
    /// Somebody outside waits for it.
    Submitted(Submission),
}

#[derive(Default)]
struct Timers {
    serial: u64,
    /// By time, then in the order in which they were set.
    wakers: BTreeMap<(u64, u64), Waker>,
}

/// See the module's documentation. Clones are the same shard.
#[derive(Clone)]
pub struct Shard(Rc<Inner>);

/// Says that a task (or the main future) was woken, from this thread or another; rings the backend only when it sleeps.
struct Bell {
    state: AtomicU8,
    backend: WakeHandle,
}

/// Nobody has rung since the tasks were last polled.
const QUIET: u8 = 0;
/// As quiet, and the shard sleeps in its backend (or is about to).
const ASLEEP: u8 = 1;
/// There is something to poll.
const RUNG: u8 = 2;

impl Bell {
    /// Everything is polled after this, so what was rung for before is seen.
    fn quiet(&self) {
        self.state.swap(QUIET, SeqCst);
    }

    /// Whether the shard may sleep. Whoever rings afterwards wakes the backend.
    fn may_sleep(&self) -> bool {
        self.state.compare_exchange(QUIET, ASLEEP, SeqCst, SeqCst).is_ok()
    }
}

impl TaskWake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(RUNG, SeqCst) == ASLEEP {
            self.backend.wake();
        }
    }
}

impl Shard {
    /// A shard around `reactor`. Call it on the thread that will run it.
    #[must_use]
    pub fn new(reactor: Reactor) -> Shard {
        let wake = reactor.wake_handle();
        Shard(Rc::new(Inner {
            reactor: RefCell::new(reactor),
            operations: RefCell::default(),
            timers: RefCell::default(),
            executor: RefCell::default(),
            wake,
            stopping: Cell::new(false),
        }))
    }

    /// Number of the shard.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.0.reactor.borrow().shard()
    }

    /// A way to this shard from other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        let reactor = self.0.reactor.borrow();
        Handle::new(reactor.topology(), reactor.shard())
    }

    /// The engine below, for what is not a request: statistics, opening, buffers. Do not hold it across an `await`.
    ///
    /// # Panics
    /// When it is borrowed already.
    #[must_use]
    pub fn reactor(&self) -> ReactorView<'_> {
        ReactorView::new(self.0.reactor.borrow_mut())
    }

    /// Time by the backend's clock, in nanoseconds, as of this turn.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.reactor.borrow().now_ns()
    }

    /// Runs `future` on this shard. Dropping the task cancels it; `detach` lets it go on.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.0.executor.borrow().spawn(future)
    }

    /// Drops all tasks, as if each had been cancelled. Call it when the shard will not run any more: a task that holds a
    /// clone of the shard would keep it, and whoever waits for the task, for ever.
    pub fn drop_tasks(&self) {
        let executor = self.0.executor.take();
        // Outside of the borrow: a task may spawn another as it is dropped.
        drop(executor);
    }

    /// Reads `buffer.len()` bytes at `offset`. Fewer are read only at the end of the file; an error anywhere is an error
    /// ([`io::Error::raw_os_error`] has the system's number; a refusal holds a [`RefusedReason`](crate::RefusedReason)).
    pub async fn read_at(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        offset: u64,
        buffer: AlignedBuf,
    ) -> (io::Result<usize>, AlignedBuf) {
        let Ok(len_bytes) = transfer_len(buffer.len()) else { return (Err(too_long()), buffer) };
        let kind = RequestKind::Read { len_bytes };
        let (result, data) = self.request(file, class, kind, offset, Data::One(buffer)).await;
        (result.map(|n| n as usize), one(data))
    }

    /// Writes `buffer` at `offset`, all of it or an error.
    pub async fn write_at(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        offset: u64,
        buffer: AlignedBuf,
    ) -> (io::Result<usize>, AlignedBuf) {
        let Ok(len_bytes) = transfer_len(buffer.len()) else { return (Err(too_long()), buffer) };
        let kind = RequestKind::Write { len_bytes };
        let (result, data) = self.request(file, class, kind, offset, Data::One(buffer)).await;
        (result.and_then(|n| all_written(n, len_bytes)), one(data))
    }

    /// Reads into `buffers` one after the other (at most 1024), beginning at `offset`.
    pub async fn read_vectored(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        offset: u64,
        buffers: Vec<AlignedBuf>,
    ) -> (io::Result<usize>, Vec<AlignedBuf>) {
        let Ok(len_bytes) = transfer_len(total_len(&buffers)) else { return (Err(too_long()), buffers) };
        let kind = RequestKind::Read { len_bytes };
        let (result, data) = self.request(file, class, kind, offset, Data::Many(buffers)).await;
        (result.map(|n| n as usize), many(data))
    }

    /// Writes `buffers` one after the other (at most 1024), beginning at `offset`, all of them or an error.
    pub async fn write_vectored(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        offset: u64,
        buffers: Vec<AlignedBuf>,
    ) -> (io::Result<usize>, Vec<AlignedBuf>) {
        let Ok(len_bytes) = transfer_len(total_len(&buffers)) else { return (Err(too_long()), buffers) };
        let kind = RequestKind::Write { len_bytes };
        let (result, data) = self.request(file, class, kind, offset, Data::Many(buffers)).await;
        (result.and_then(|n| all_written(n, len_bytes)), many(data))
    }

    /// Makes what was written durable: the data, and unless `data_only` everything about the file.
    ///
    /// # Errors
    /// What the system said.
    pub async fn sync(&self, file: &Arc<SharedFile>, class: Class, data_only: bool) -> io::Result<()> {
        self.request(file, class, RequestKind::Sync { data_only }, 0, Data::None).await.0.map(|_| ())
    }

    /// Gives a range back to the disk; it reads as zeros afterwards.
    ///
    /// # Errors
    /// What the system said.
    pub async fn discard(&self, file: &Arc<SharedFile>, class: Class, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.request(file, class, RequestKind::Discard { len_bytes }, offset, Data::None).await.0.map(|_| ())
    }

    /// Reserves space for a range, growing the file unless `keep_size`.
    ///
    /// # Errors
    /// What the system said.
    pub async fn allocate(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        offset: u64,
        len_bytes: u64,
        keep_size: bool,
    ) -> io::Result<()> {
        let kind = RequestKind::Allocate { len_bytes, keep_size };
        self.request(file, class, kind, offset, Data::None).await.0.map(|_| ())
    }

    /// Sets the length of the file: what is beyond is gone, what is added reads as zeros.
    ///
    /// # Errors
    /// What the system said.
    pub async fn set_len(&self, file: &Arc<SharedFile>, class: Class, len_bytes: u64) -> io::Result<()> {
        self.request(file, class, RequestKind::SetLen { len_bytes }, 0, Data::None).await.0.map(|_| ())
    }

    async fn request(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        kind: RequestKind,
        offset: u64,
        data: Data,
    ) -> (io::Result<u32>, Data) {
        let request = Request { file: file.clone(), class, kind, offset, data, tag: 0 };
        let (result, data) = InFlight { shard: self, state: State::New(Some(request)) }.await;
        (result.map_err(io::Error::from), data)
    }

    /// Sleeps by the backend's clock, for `how_long` from this call (not from the beginning of the turn, nor from the
    /// first poll).
    pub fn sleep(&self, how_long: Duration) -> impl Future<Output = ()> + '_ {
        let nanos = u64::try_from(how_long.as_nanos()).unwrap_or(u64::MAX);
        let now_ns = self.0.reactor.borrow().clock_ns();
        self.sleep_until(now_ns.saturating_add(nanos))
    }

    /// Sleeps until the backend's clock reads `at_ns`.
    pub async fn sleep_until(&self, at_ns: u64) {
        Sleep { shard: self, at_ns, timer: None }.await;
    }

    /// Lets [`Shard::run`] return at the end of its turn.
    pub fn stop(&self) {
        self.0.stopping.set(true);
        self.0.wake.wake();
    }

    /// Runs the shard until [`Shard::stop`] is called on it, then drops the tasks that are left.
    ///
    /// # Errors
    /// When the backend is broken.
    pub fn run(&self) -> io::Result<()> {
        // Also when a task panics.
        let _tasks = DropTasks(self);
        self.block_on(std::future::poll_fn(|_| if self.0.stopping.get() { Poll::Ready(()) } else { Poll::Pending }))
    }

    /// Runs the shard until `future` is ready.
    ///
    /// # Errors
    /// When the backend is broken.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let mut future = pin!(future);
        let mut turns = Turns::new(self);
        loop {
            if let Poll::Ready(value) = turns.turn(|context| future.as_mut().poll(context))? {
                return Ok(value);
            }
        }
    }

    /// Wakes the tasks whose requests have ended, and starts what came from outside.
    fn reap(&self, done: &mut Vec<Done>) {
        self.0.reactor.borrow_mut().reap(done);
        for end in done.drain(..) {
            self.is_done(end);
        }

        let submitted = {
            let reactor = self.0.reactor.borrow();
            reactor.topology().mailboxes().submitted(reactor.shard())
        };
        for submission in submitted.into_iter().flatten() {
            self.start(submission);
        }

        // No more than tasks are polled in a turn: the rest keep their places, so that the bound on waiting jobs is felt.
        for _ in 0..TASKS_PER_TURN {
            let job = self.0.reactor.borrow_mut().next_job();
            let Some(job) = job else { break };
            job(self);
        }
    }

    /// Wakes whoever waits for a request that has ended.
    fn is_done(&self, end: Done) {
        let key = end.tag as usize;
        let mut operations = self.0.operations.borrow_mut();
        let Some(operation) = operations.get_mut(key) else { return };
        match std::mem::replace(operation, Operation::Abandoned) {
            Operation::Waiting(waker) => {
                *operation = Operation::Done(end);
                drop(operations);
                waker.wake();
            }
            Operation::Submitted(submission) => {
                operations.remove(key);
                drop(operations);
                submission.finish((end.result.map_err(io::Error::from), end.data));
            }
            Operation::Abandoned => {
                operations.remove(key);
            }
            done @ Operation::Done(_) => *operation = done,
        }
    }

    /// Does what somebody outside asks for: a request, or its cancelling.
    fn start(&self, submission: Submission) {
        let mut request = match submission.open() {
            Order::Start(request) => request,
            Order::Cancel(ticket) => {
                self.0.reactor.borrow_mut().cancel(ticket);
                return;
            }
            Order::Nothing => return,
        };
        let mut operations = self.0.operations.borrow_mut();
        let place = operations.vacant_entry();
        request.tag = place.key() as u64;
        match self.0.reactor.borrow_mut().submit(request) {
            Ok(ticket) => {
                submission.is_queued(ticket);
                place.insert(Operation::Submitted(submission));
            }
            Err(refused) => {
                drop(operations);
                let Refused { reason, request } = *refused;
                submission.finish((Err(reason.into()), request.data));
            }
        }
    }

    fn fire_timers(&self) {
        let now_ns = self.now_ns();
        loop {
            let mut timers = self.0.timers.borrow_mut();
            let Some(first) = timers.wakers.first_entry().filter(|timer| timer.key().0 <= now_ns) else { break };
            let waker = first.remove();
            drop(timers);
            waker.wake();
        }
    }
}

/// The loop of a shard, one turn at a time.
pub(crate) struct Turns<'a> {
    shard: &'a Shard,
    /// Lives as long as the loop: while it is pending the executor has our waker, and rings for wakes from other
    /// threads.
    tasks: Pin<Box<dyn Future<Output = ()>>>,
    bell: Arc<Bell>,
    waker: Waker,
    done: Vec<Done>,
}

impl<'a> Turns<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Turns<'a> {
        let bell = Arc::new(Bell { state: AtomicU8::new(QUIET), backend: shard.0.wake.clone() });
        let executor = Rc::clone(&shard.0.executor.borrow());
        let tasks = Box::pin(async move { run_tasks(&executor).await });
        Turns { shard, tasks, waker: Waker::from(Arc::clone(&bell)), bell, done: Vec::new() }
    }

    /// One turn: what has come back, timers, the main future by `poll`, tasks; then everything is sent, and the backend
    /// waits if there is nothing else to do. Ready when the main future is.
    ///
    /// # Errors
    /// When the backend is broken.
    pub(crate) fn turn<T>(&mut self, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> io::Result<Poll<T>> {
        let inner = &self.shard.0;
        let mut context = Context::from_waker(&self.waker);
        self.shard.reap(&mut self.done);
        self.shard.fire_timers();
        self.bell.quiet();
        if let Poll::Ready(value) = poll(&mut context) {
            return Ok(Poll::Ready(value));
        }
        let _: Poll<()> = self.tasks.as_mut().poll(&mut context);
        let mut reactor = inner.reactor.borrow_mut();
        if self.bell.may_sleep() {
            let deadline_ns = inner.timers.borrow().wakers.keys().next().map(|(at_ns, _)| *at_ns);
            reactor.park(deadline_ns)?;
            self.bell.quiet();
        } else {
            reactor.dispatch();
            reactor.flush()?;
        }
        Ok(Poll::Pending)
    }

    /// Whether a task was woken since the last turn.
    #[cfg(feature = "sim")]
    pub(crate) fn is_rung(&self) -> bool {
        self.bell.state.load(SeqCst) == RUNG
    }
}

impl Shard {
    /// The shard has slept until now, by a clock that does not move while it computes.
    #[cfg(feature = "sim")]
    pub(crate) fn has_slept(&self) {
        self.0.reactor.borrow_mut().has_slept();
    }
}

/// Drops a shard's tasks when it goes.
struct DropTasks<'a>(&'a Shard);

impl Drop for DropTasks<'_> {
    fn drop(&mut self) {
        self.0.drop_tasks();
    }
}

/// Polls ready tasks for ever, so many a turn.
async fn run_tasks(executor: &LocalExecutor<'static>) {
    loop {
        for _ in 0..TASKS_PER_TURN {
            executor.tick().await;
        }
        let mut is_over = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut is_over, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

pub(crate) fn transfer_len(len: usize) -> Result<u32, std::num::TryFromIntError> {
    u32::try_from(len)
}

pub(crate) fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a request moves at most 4 GiB - 1 bytes: divide it")
}

pub(crate) fn total_len(buffers: &[AlignedBuf]) -> usize {
    buffers.iter().map(|b| b.len()).sum()
}

pub(crate) fn all_written(written: u32, wanted: u32) -> io::Result<usize> {
    if written == wanted {
        return Ok(written as usize);
    }
    Err(io::Error::new(io::ErrorKind::WriteZero, format!("wrote {written} of {wanted} bytes: is the disk full?")))
}

pub(crate) fn one(data: Data) -> AlignedBuf {
    match data {
        Data::One(buffer) => buffer,
        Data::None | Data::Many(_) => AlignedBuf::empty(),
    }
}

pub(crate) fn many(data: Data) -> Vec<AlignedBuf> {
    match data {
        Data::Many(buffers) => buffers,
        Data::One(buffer) => vec![buffer],
        Data::None => Vec::new(),
    }
}

/// A request as a future.
struct InFlight<'a> {
    shard: &'a Shard,
    state: State,
}

enum State {
    New(Option<Request>),
    Sent { key: usize, ticket: Ticket },
    Over,
}

impl Future for InFlight<'_> {
    type Output = (Result<u32, RequestError>, Data);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut operations = this.shard.0.operations.borrow_mut();
        match &mut this.state {
            State::New(request) => {
                let Some(mut request) = request.take() else { return Poll::Pending };
                let key = operations.insert(Operation::Waiting(context.waker().clone()));
                request.tag = key as u64;
                match this.shard.0.reactor.borrow_mut().submit(request) {
                    Ok(ticket) => {
                        this.state = State::Sent { key, ticket };
                        Poll::Pending
                    }
                    Err(refused) => {
                        operations.remove(key);
                        this.state = State::Over;
                        let Refused { reason, request } = *refused;
                        Poll::Ready((Err(RequestError::Refused(reason)), request.data))
                    }
                }
            }
            State::Sent { key, .. } => match operations.get_mut(*key) {
                Some(Operation::Waiting(waker)) => {
                    waker.clone_from(context.waker());
                    Poll::Pending
                }
                _ => match operations.try_remove(*key) {
                    Some(Operation::Done(done)) => {
                        this.state = State::Over;
                        Poll::Ready((done.result, done.data))
                    }
                    _ => Poll::Pending,
                },
            },
            State::Over => Poll::Pending,
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let State::Sent { key, ticket } = &self.state else { return };
        let mut operations = self.shard.0.operations.borrow_mut();
        match operations.get_mut(*key) {
            Some(slot @ Operation::Waiting(_)) => {
                *slot = Operation::Abandoned;
                drop(operations);
                self.shard.0.reactor.borrow_mut().cancel(*ticket);
            }
            Some(_) => {
                operations.remove(*key);
            }
            None => {}
        }
    }
}

/// A timer as a future.
struct Sleep<'a> {
    shard: &'a Shard,
    at_ns: u64,
    /// Serial number of its timer, once set.
    timer: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shard.now_ns() >= self.at_ns {
            return Poll::Ready(());
        }
        let shard = self.shard;
        let mut timers = shard.0.timers.borrow_mut();
        let serial = *self.timer.get_or_insert_with(|| {
            timers.serial += 1;
            timers.serial
        });
        let old = timers.wakers.insert((self.at_ns, serial), context.waker().clone());
        drop(timers);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(serial) = self.timer {
            let waker = self.shard.0.timers.borrow_mut().wakers.remove(&(self.at_ns, serial));
            drop(waker);
        }
    }
}
