//! A shard: one thread that runs futures and does their I/O.
//!
//! # Why
//! Thread-per-core programs need executor, timers, scheduler and ring on one core, without locks and without a second
//! thread, behind `shard.read_at(...).await`.
//!
//! # How it works
//! A turn of the loop: reap completions and wake their tasks; start requests and jobs that came by mail; fire timers;
//! poll ready tasks; then dispatch, flush and sleep in one call ([`Reactor::park`]). An idle shard sleeps without a
//! timeout and uses no CPU. If another thread wakes a task, the executor's waker wakes the shard.
//!
//! # Cancellation
//! Dropping a future cancels the queued rest of its request. Pieces in the device stay there: the reactor owns the
//! buffer until their completions have been reaped, and frees it then.
//!
//! # Limits
//! All but [`Handle`](crate::Handle) stays on the thread (`!Send`). A task that holds a clone of its shard keeps it
//! alive, reactor and files included: [`Shard::run`] drops the remaining tasks when it returns; after
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

mod in_flight;
mod timers;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::task::{Context, Poll, Wake as TaskWake, Waker};

use async_executor::{LocalExecutor, Task};
use in_flight::InFlight;
use slab::Slab;
use timers::Timers;

use crate::backend::{WakeHandle, explained};
use crate::class::Class;
use crate::file::SharedFile;
use crate::mailbox::Message;
use crate::reactor::{Reactor, ReactorView};
use crate::request::{Data, Done, Refused, Request, RequestError, RequestKind};
use crate::slot::{GONE, Order, Submission};

/// Most ready tasks polled, and jobs started, per turn, which bounds the wait of completions.
const TASKS_PER_TURN: usize = 256;

struct Inner {
    reactor: RefCell<Reactor>,
    operations: RefCell<Slab<Operation>>,
    timers: RefCell<Timers>,
    executor: RefCell<Rc<LocalExecutor<'static>>>,
    wake: WakeHandle,
    stopping: Cell<bool>,
}

/// The state of a request under way: how its end is delivered.
enum Operation {
    Waiting(Waker),
    Done(Done),
    /// The future was dropped; the request has not ended yet.
    Abandoned,
    /// A task outside the shard waits for the request.
    Submitted(Submission),
}

/// A thread's executor and reactor. Drive it with [`Shard::run`] or [`Shard::block_on`]. Clones are the same shard.
#[derive(Clone)]
pub struct Shard(Rc<Inner>);

/// The waker of the tasks and of the main future, for any thread. Wakes the backend only while the shard sleeps.
struct Bell {
    state: AtomicU8,
    backend: WakeHandle,
}

/// State: no task has been woken since the tasks were last polled.
const QUIET: u8 = 0;
/// State: as `QUIET`, and the shard sleeps in its backend or is about to.
const ASLEEP: u8 = 1;
/// State: a task has been woken.
const RUNG: u8 = 2;

impl Bell {
    /// Forgets earlier wakes. Call it before polling all tasks.
    fn quiet(&self) {
        self.state.swap(QUIET, SeqCst);
    }

    /// Returns whether the shard may sleep. If so, a wake from then on also wakes the backend.
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
    /// Returns a shard around `reactor`. Call this on the thread that will run the shard.
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

    /// Returns the number of the shard.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.0.reactor.borrow().shard()
    }

    /// Borrows the reactor for statistics, opening files and making buffers. Do not hold the view across an `await`.
    ///
    /// # Panics
    /// If the reactor is borrowed already.
    #[must_use]
    pub fn reactor(&self) -> ReactorView<'_> {
        ReactorView::new(self.0.reactor.borrow_mut())
    }

    /// Returns the time of this turn by the backend's clock, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.reactor.borrow().now_ns()
    }

    /// Spawns `future` on this shard. Dropping the task cancels it; `detach` lets it run on.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.0.executor.borrow().spawn(future)
    }

    /// Drops all tasks, as if each had been cancelled. Call this when the shard will not run any more: otherwise a task
    /// that holds a clone of the shard keeps the shard, and the waiters of the task, for ever.
    pub fn drop_tasks(&self) {
        let executor = self.0.executor.take();
        // Outside the borrow: the drop of a task may spawn another.
        drop(executor);
    }

    /// Submits one operation: see [`crate::operations`].
    pub(crate) async fn request(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        kind: RequestKind,
        offset: u64,
        data: Data,
    ) -> (io::Result<u32>, Data) {
        let request = Request { file: file.clone(), class, kind, offset, data, tag: 0 };
        let (result, data) = InFlight::new(self, request).await;
        (result.map_err(io::Error::from), data)
    }

    /// Makes [`Shard::run`] end in its next turn: no queued request begins after that.
    pub fn stop(&self) {
        self.0.stopping.set(true);
        self.0.wake.wake();
    }

    /// Runs the shard until [`Shard::stop`] is called on it, then drops the remaining tasks. Waits for the pieces in
    /// the device, and returns results and memory to the [`Handle`](crate::Handle)s that asked; their queued requests
    /// end with `BrokenPipe`, and their memory returns too. So does, at once, what comes later, until the shard runs
    /// again.
    ///
    /// # Errors
    /// If the backend is broken.
    pub fn run(&self) -> io::Result<()> {
        let is_stopped = |_: &mut Context<'_>| if self.0.stopping.get() { Poll::Ready(()) } else { Poll::Pending };
        let end = {
            // Drops the tasks even if one panics.
            let _tasks = DropTasks(self);
            self.block_on(std::future::poll_fn(is_stopped))
        };
        self.give_out(Reactor::wind_down);
        self.0.stopping.set(false);
        end
    }

    /// Runs as [`Shard::run`], beside other shards that run so too, each on its own thread. Also waits for requests in
    /// the other shards' queues.
    pub(crate) fn run_beside_others(&self) -> io::Result<()> {
        let end = self.run();
        self.give_out(Reactor::await_others);
        end
    }

    /// Delivers the ends of requests that `collect` appends.
    fn give_out(&self, collect: impl FnOnce(&mut Reactor, &mut Vec<Done>)) {
        let mut done = Vec::new();
        collect(&mut self.0.reactor.borrow_mut(), &mut done);
        done.into_iter().for_each(|end| self.is_done(end));
    }

    /// Runs the shard until `future` is ready.
    ///
    /// # Errors
    /// If the backend is broken.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        self.0.reactor.borrow().resume();
        let mut future = pin!(future);
        let mut turns = Turns::new(self);
        loop {
            if let Poll::Ready(value) = turns.turn(|context| future.as_mut().poll(context))? {
                return Ok(value);
            }
        }
    }

    /// Wakes the tasks whose requests have ended, and starts requests and jobs from outside.
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

        // Bounded as tasks are. The rest keep their places, so that the bound on waiting jobs takes effect.
        for _ in 0..TASKS_PER_TURN {
            let job = self.0.reactor.borrow_mut().next_job();
            let Some(job) = job else { break };
            job(self);
        }
    }

    /// Returns a message that makes a shard call `body` on its thread.
    pub(crate) fn job(body: impl FnOnce(&Shard) + Send + 'static) -> Message {
        Message::Run(Box::new(move |shard| match shard.downcast_ref::<Shard>() {
            Some(shard) => body(shard),
            None => debug_assert!(false, "only a shard runs jobs"),
        }))
    }

    /// Delivers the end of a request to its waiter.
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
                submission.finish((end.result.map_err(error_of), end.data));
            }
            Operation::Abandoned => {
                operations.remove(key);
            }
            done @ Operation::Done(_) => *operation = done,
        }
    }

    /// Carries out the order of a slot: starts or cancels a request.
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
}

/// The loop of a shard, one turn at a time.
pub(crate) struct Turns<'a> {
    shard: &'a Shard,
    /// The future that polls the tasks. While it is pending, the executor holds `waker`, and calls it for wakes from
    /// other threads.
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

    /// Runs one turn: reaps, fires timers, polls the main future by `poll`, then the tasks, dispatches, and sleeps in
    /// the backend if no task has been woken. If the main future is ready, returns its value at once.
    ///
    /// # Errors
    /// If the backend is broken.
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
            let deadline_ns = inner.timers.borrow().next_ns();
            reactor.park(deadline_ns)?;
            self.bell.quiet();
        } else {
            reactor.dispatch();
            reactor.flush()?;
        }
        Ok(Poll::Pending)
    }

    /// Returns whether a task was woken since the last turn.
    #[cfg(feature = "sim")]
    pub(crate) fn is_rung(&self) -> bool {
        self.bell.state.load(SeqCst) == RUNG
    }
}

impl Shard {
    /// Records that the shard has slept until now, by a clock that does not move while the shard computes.
    #[cfg(feature = "sim")]
    pub(crate) fn has_slept(&self) {
        self.0.reactor.borrow_mut().has_slept();
    }
}

/// A guard that drops a shard's tasks.
struct DropTasks<'a>(&'a Shard);

impl Drop for DropTasks<'_> {
    fn drop(&mut self) {
        self.0.drop_tasks();
    }
}

/// Polls ready tasks for ever, [`TASKS_PER_TURN`] in a turn.
async fn run_tasks(executor: &LocalExecutor<'static>) {
    loop {
        for _ in 0..TASKS_PER_TURN {
            executor.tick().await;
        }

        // Yields to the loop of the shard.
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

/// Returns the error of a handle's request. Files never give `EPIPE`: it means that the shard of the request has
/// stopped.
fn error_of(error: RequestError) -> io::Error {
    match error.errno() {
        libc::EPIPE => explained(libc::EPIPE, GONE.to_owned()),
        _ => error.into(),
    }
}
