//! How code outside of the shards reaches them: jobs, requests and files, from any thread and any executor.
//!
//! # Why
//! Most programs are no shards: they run on Tokio, or on threads, and want their I/O scheduled all the same.
//!
//! # How it works
//! A [`Handle`] reaches one shard ([`Runtime::handle`](crate::Runtime::handle)) or all of them in turns
//! ([`Runtime::any_shard`](crate::Runtime::any_shard)). It opens [`File`]s, which most programs use from then on. Requests
//! travel in slots (`slot.rs`): no allocation, one wake-up, and a dropped future cancels what is still queued. Jobs
//! ([`Handle::run`]) are boxed, and run to their end whoever waits for them.
//!
//! # Limits
//! As many jobs and requests wait to be started on a shard as requests may be under way there
//! ([`ReactorConfig::max_requests`](crate::ReactorConfig)); more are refused with `EAGAIN`
//! ([`std::io::ErrorKind::WouldBlock`]). [`Topology::refused_jobs`] counts them.
//!
//! # Example
//! See [`File`] and [`Runtime`](crate::Runtime).

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use futures_channel::oneshot;

use crate::backend::{OpenOptions, explained};
use crate::buffer::AlignedBuf;
use crate::class::Class;
use crate::file::SharedFile;
use crate::mailbox::Message;
use crate::open_file::File;
use crate::request::{Data, Request, RequestKind};
use crate::shard::{Shard, all_written, many, one, too_long, total_len, transfer_len};
use crate::slot::{GONE, JobPlace};
use crate::submission::{FULL, Submitted};
use crate::topology::Topology;

/// Reaches shards from any thread and any executor: one of them ([`Runtime::handle`](crate::Runtime::handle)), or any, each
/// in its turn ([`Runtime::any_shard`](crate::Runtime::any_shard)). Clones are cheap.
///
/// [`Handle::open`] opens a [`File`], which is all that most programs need. The other requests name a file and a class each
/// time, as on a shard. Dropping the future of a request cancels what is still queued of it, unless the handle reaches one
/// shard and the disk's I/O queue is on another.
#[derive(Clone)]
pub struct Handle {
    topology: Topology,
    to: To,
}

#[derive(Clone)]
enum To {
    One(u16),
    /// Whose turn it is.
    Any(Arc<AtomicU16>),
}

impl Handle {
    pub(crate) fn new(topology: &Topology, shard: u16) -> Handle {
        Handle { topology: topology.clone(), to: To::One(shard % topology.shards()) }
    }

    pub(crate) fn to_any(topology: &Topology) -> Handle {
        Handle { topology: topology.clone(), to: To::Any(Arc::default()) }
    }

    /// Opens `path` on the disk that holds it ([`Topology::disk_of`]), in the default class. It is opened once, for all
    /// shards, and by one of them, which waits for it as for every open. A future that is dropped does not undo it.
    ///
    /// # Errors
    /// What the system said, with the path and what to do about it; `ENODEV` where no disk of the topology holds it; or as
    /// [`Handle::run`].
    pub async fn open(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        let (topology, path, options) = (self.topology.clone(), path.as_ref().to_owned(), options.clone());
        let open = move |shard: Shard| async move {
            let disk = topology.disk_of(&path)?;
            let file = topology.file(&path, options, disk);
            let info = shard.reactor().open(&file)?;
            Ok::<_, io::Error>((file, info))
        };
        let (file, info) = self.run(open).await??;
        Ok(File::new(self.clone(), file, info))
    }

    /// As [`Handle::open`], for a file whose disk is named by its number ([`Topology::file`]).
    ///
    /// # Errors
    /// As [`Handle::open`].
    pub async fn open_file(&self, file: &Arc<SharedFile>) -> io::Result<File> {
        let opened = Arc::clone(file);
        let info = self.run(move |shard| async move { shard.reactor().open(&opened) }).await??;
        Ok(File::new(self.clone(), Arc::clone(file), info))
    }

    /// Runs `body` on the shard and returns what its future returns. Dropping the future given back does not stop it.
    ///
    /// # Errors
    /// `WouldBlock` when as many jobs wait for the shard as may (`body` is dropped); `BrokenPipe` when the shard has
    /// stopped, or `body` panicked there (the shard then goes on).
    pub async fn run<T, F>(&self, body: impl FnOnce(Shard) -> F + Send + 'static) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.spawn(move |shard| async move {
            let value = body(shard).await;
            // The one who asked may be gone.
            let _ = answer.send(value);
        })?;
        answered.await.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, GONE))
    }

    /// Runs `body` on the shard and waits for nothing. It is dropped where the shard has stopped. A panic in it, or in its
    /// future, ends that task alone; nobody is told but by the panic's own message.
    ///
    /// # Errors
    /// `WouldBlock` when as many jobs wait for the shard as may; `body` is dropped.
    pub fn spawn<F>(&self, body: impl FnOnce(Shard) -> F + Send + 'static) -> io::Result<()>
    where
        F: Future<Output = ()> + 'static,
    {
        let shard = self.next_shard();
        let place: Option<JobPlace> = self.topology.mailboxes().reserve_job(shard);
        let place = place.ok_or_else(|| explained(libc::EAGAIN, FULL.to_owned()))?;
        let job = move |shard: &Shard| {
            drop(place);
            let own = shard.clone();
            // Called by the task: the executor keeps a panic there.
            shard.spawn(async move { body(own).await }).detach();
        };
        self.topology.mailboxes().send(shard, Message::Run(Box::new(job)));
        Ok(())
    }

    /// Number of the shard it reaches; `None` when it is any.
    #[must_use]
    pub fn shard(&self) -> Option<u16> {
        match &self.to {
            To::One(shard) => Some(*shard),
            To::Any(_) => None,
        }
    }

    fn next_shard(&self) -> u16 {
        match &self.to {
            To::One(shard) => *shard,
            To::Any(next) => next.fetch_add(1, Relaxed) % self.topology.shards(),
        }
    }

    /// As [`Shard::read_at`], on this handle's shard. The buffer is lost only when the shard has stopped.
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

    /// As [`Shard::write_at`], on this handle's shard. The buffer is lost only when the shard has stopped.
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

    /// As [`Shard::read_vectored`], on this handle's shard. The buffers are lost only when the shard has stopped.
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

    /// As [`Shard::write_vectored`], on this handle's shard. The buffers are lost only when the shard has stopped.
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

    /// As [`Shard::discard`], on this handle's shard.
    ///
    /// # Errors
    /// What the system said; `WouldBlock` and `BrokenPipe` as [`Handle::run`].
    pub async fn discard(&self, file: &Arc<SharedFile>, class: Class, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.request(file, class, RequestKind::Discard { len_bytes }, offset, Data::None).await.0.map(|_| ())
    }

    /// As [`Shard::allocate`], on this handle's shard.
    ///
    /// # Errors
    /// What the system said; `WouldBlock` and `BrokenPipe` as [`Handle::run`].
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

    /// As [`Shard::sync`], on this handle's shard.
    ///
    /// # Errors
    /// What the system said; `WouldBlock` and `BrokenPipe` as [`Handle::run`].
    pub async fn sync(&self, file: &Arc<SharedFile>, class: Class, data_only: bool) -> io::Result<()> {
        self.request(file, class, RequestKind::Sync { data_only }, 0, Data::None).await.0.map(|_| ())
    }

    /// As [`Shard::set_len`], on this handle's shard.
    ///
    /// # Errors
    /// What the system said; `WouldBlock` and `BrokenPipe` as [`Handle::run`].
    pub async fn set_len(&self, file: &Arc<SharedFile>, class: Class, len_bytes: u64) -> io::Result<()> {
        self.request(file, class, RequestKind::SetLen { len_bytes }, 0, Data::None).await.0.map(|_| ())
    }

    fn request(
        &self,
        file: &Arc<SharedFile>,
        class: Class,
        kind: RequestKind,
        offset: u64,
        data: Data,
    ) -> Submitted<'_> {
        let shard = match &self.to {
            To::One(shard) => *shard,
            // Straight to the shard with the I/O queue: no second message, and what is queued can be cancelled.
            To::Any(_) => self.topology.coordinator(file.disk(), self.next_shard()),
        };
        let request = Request { file: Arc::clone(file), class, kind, offset, data, tag: 0 };
        Submitted::new(self.topology.mailboxes(), shard, request)
    }
}
