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
//! Everything but [`Handle`](crate::Handle) stays on the thread (`!Send`).
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
//! let shard = Shard::new(Reactor::new(0, &topology, backend));
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

use std::cell::{Cell, RefCell, RefMut};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake as TaskWake, Waker};
use std::time::Duration;

use async_executor::{LocalExecutor, Task};
use slab::Slab;

use crate::backend::{OpResult, WakeHandle};
use crate::buffer::AlignedBuf;
use crate::class::Class;
use crate::file::SharedFile;
use crate::reactor::{Data, Done, Reactor, Refused, RefusedReason, Request, RequestKind, Ticket};

/// Something to run on a shard's thread.
pub type Job = Box<dyn FnOnce(&Shard) + Send>;

/// How many ready tasks are polled before completions are looked at again.
const TASKS_PER_TURN: usize = 256;

struct Inner {
    reactor: RefCell<Reactor>,
    operations: RefCell<Slab<Operation>>,
    timers: RefCell<Timers>,
    executor: LocalExecutor<'static>,
    wake: WakeHandle,
    stopping: Cell<bool>,
}

/// What the shard knows of a request that a future waits for.
enum Operation {
    Waiting(Waker),
    Done(Done),
    /// The future is gone; the request goes on alone.
    Abandoned,
}

#[derive(Default)]
struct Timers {
    serial: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    wakers: std::collections::HashMap<u64, Waker>,
}

/// See the module's documentation. Clones are the same shard.
#[derive(Clone)]
pub struct Shard(Rc<Inner>);

/// Rings a shard when one of its tasks is woken from another thread.
struct Bell(WakeHandle);

impl TaskWake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
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
            executor: LocalExecutor::new(),
            wake,
            stopping: Cell::new(false),
        }))
    }

    /// Number of the shard.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.0.reactor.borrow().shard()
    }

    /// The engine below, for the native path. Do not hold it across an `await`.
    ///
    /// # Panics
    /// When it is borrowed already.
    #[must_use]
    pub fn reactor(&self) -> RefMut<'_, Reactor> {
        self.0.reactor.borrow_mut()
    }

    /// Time by the backend's clock, in nanoseconds, as of this turn.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.reactor.borrow().now_ns()
    }

    /// Runs `future` on this shard. Dropping the task cancels it; `detach` lets it go on.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.0.executor.spawn(future)
    }

    /// Reads `buffer.len()` bytes at `offset`. Fewer are read only at the end of the file.
    pub async fn read_at(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        offset: u64,
        buffer: AlignedBuf,
    ) -> (io::Result<usize>, AlignedBuf) {
        let kind = RequestKind::Read { len_bytes: transfer_len(buffer.len()) };
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
        let len_bytes = transfer_len(buffer.len());
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
        let kind = RequestKind::Read { len_bytes: transfer_len(total_len(&buffers)) };
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
        let len_bytes = transfer_len(total_len(&buffers));
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
        (result.map_err(io::Error::from_raw_os_error), data)
    }

    /// Sleeps by the backend's clock.
    pub async fn sleep(&self, how_long: Duration) {
        let nanos = u64::try_from(how_long.as_nanos()).unwrap_or(u64::MAX);
        self.sleep_until(self.now_ns().saturating_add(nanos)).await;
    }

    /// Sleeps until the backend's clock reads `at_ns`.
    pub async fn sleep_until(&self, at_ns: u64) {
        Sleep { shard: self, at_ns, serial: None }.await;
    }

    /// Lets [`Shard::run`] return at the end of its turn.
    pub fn stop(&self) {
        self.0.stopping.set(true);
        self.0.wake.wake();
    }

    /// Runs the shard until [`Shard::stop`] is called on it.
    ///
    /// # Errors
    /// When the backend is broken.
    pub fn run(&self) -> io::Result<()> {
        self.block_on(std::future::poll_fn(|_| if self.0.stopping.get() { Poll::Ready(()) } else { Poll::Pending }))
    }

    /// Runs the shard until `future` is ready.
    ///
    /// # Errors
    /// When the backend is broken.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(Bell(self.0.wake.clone())));
        let mut context = Context::from_waker(&waker);
        let mut done = Vec::new();
        loop {
            self.reap(&mut done);
            self.fire_timers();
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Ok(value);
            }
            if self.run_tasks(&mut context) {
                let mut reactor = self.0.reactor.borrow_mut();
                reactor.dispatch();
                reactor.flush()?;
                continue;
            }
            let deadline_ns = self.0.timers.borrow().queue.peek().map(|Reverse((at_ns, _))| *at_ns);
            self.0.reactor.borrow_mut().park(deadline_ns)?;
        }
    }

    /// Wakes the tasks whose requests have ended, and starts what came by mail.
    fn reap(&self, done: &mut Vec<Done>) {
        self.0.reactor.borrow_mut().reap(done);
        for end in done.drain(..) {
            let key = end.tag as usize;
            let mut operations = self.0.operations.borrow_mut();
            let old = operations.get_mut(key).map(|slot| std::mem::replace(slot, Operation::Done(end)));
            match old {
                Some(Operation::Waiting(waker)) => {
                    drop(operations);
                    waker.wake();
                }
                Some(Operation::Abandoned) => {
                    operations.remove(key);
                }
                Some(Operation::Done(_)) | None => {}
            }
        }
        loop {
            let job = self.0.reactor.borrow_mut().next_job();
            let Some(job) = job else { break };
            job(self);
        }
    }

    fn fire_timers(&self) {
        let now_ns = self.now_ns();
        loop {
            let mut timers = self.0.timers.borrow_mut();
            let Some(Reverse((at_ns, serial))) = timers.queue.peek().copied() else { break };
            if at_ns > now_ns {
                break;
            }
            timers.queue.pop();
            let waker = timers.wakers.remove(&serial);
            drop(timers);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Polls ready tasks; whether there may be more. When there are none, the executor has been told whom to ring.
    fn run_tasks(&self, context: &mut Context<'_>) -> bool {
        for _ in 0..TASKS_PER_TURN {
            if !self.0.executor.try_tick() {
                // Not ready: leaves the bell with the executor for wakes from other threads.
                return pin!(self.0.executor.tick()).poll(context).is_ready();
            }
        }
        true
    }
}

fn transfer_len(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn total_len(buffers: &[AlignedBuf]) -> usize {
    buffers.iter().map(|b| b.len()).sum()
}

fn all_written(written: u32, wanted: u32) -> io::Result<usize> {
    if written == wanted {
        return Ok(written as usize);
    }
    Err(io::Error::new(io::ErrorKind::WriteZero, format!("wrote {written} of {wanted} bytes: is the disk full?")))
}

fn one(data: Data) -> AlignedBuf {
    match data {
        Data::One(buffer) => buffer,
        Data::None | Data::Many(_) => AlignedBuf::empty(),
    }
}

fn many(data: Data) -> Vec<AlignedBuf> {
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
    type Output = (OpResult, Data);

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
                        let code = if reason == RefusedReason::Full { libc::EAGAIN } else { libc::EINVAL };
                        Poll::Ready((Err(code), request.data))
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
    serial: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shard.now_ns() >= self.at_ns {
            return Poll::Ready(());
        }
        let mut timers = self.shard.0.timers.borrow_mut();
        let serial = self.serial.unwrap_or_else(|| {
            timers.serial += 1;
            let serial = timers.serial;
            timers.queue.push(Reverse((self.at_ns, serial)));
            serial
        });
        timers.wakers.insert(serial, context.waker().clone());
        drop(timers);
        self.serial = Some(serial);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            // The entry in the queue stays until its time; without a waker it does nothing.
            self.shard.0.timers.borrow_mut().wakers.remove(&serial);
        }
    }
}
