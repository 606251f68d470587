//! Writes metadata: each disk's log by a task of its own, each operation within a deadline.
//!
//! # Why
//! A task that waits for all disks waits for the one that hangs. And a disk that is dropped for a single passing error
//! loses all its blocks.
//!
//! # How it works
//! A disk has at most one log writer: a task that writes the chunks of its log as they are sealed, and answers its
//! waiters when everything sealed until then is written. A write that fails is repeated after 1, 10 and 100 ms, then
//! every second until the deadline, as long as the disk takes metadata. The fourth fault in a row makes the disk
//! read-only (`health`), so the later pauses are for faults of the machine (it has no memory left), which all disks
//! have at once, and for disks that write well elsewhere. Writing a chunk or a superblock twice does no harm. After
//! [`DEADLINE`] an operation is abandoned and the disk has failed. The operation may still complete, so a disk is
//! readmitted only when none is in flight ([`CacheDisk::is_busy`]).
//!
//! # Limits
//! A flush that failed for good is not repeated: a second one would not tell whether the first one's data are durable.
//!
//! # Example
//! One of three disks hangs. After 10 s its log write is abandoned, the checkpoint is made on the other two, and the
//! disk's blocks are forgotten. When the disk answers again, it is readmitted empty.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use plimsoll::Shard;
use plimsoll::buffer::AlignedBuf;

use crate::disk::CacheDisk;
use crate::engine::Engine;
use crate::format::{SLOT_BYTES, SLOT_OFFSETS};
use crate::health;
use crate::log::Sealed;
use crate::race::{self, DEADLINE};
use crate::stats::IoKind;
use crate::sync::lock;

/// Returns the pauses between the attempts at an operation.
fn pauses() -> impl Iterator<Item = Duration> {
    [1, 10, 100].into_iter().chain(std::iter::repeat_n(1000, DEADLINE.as_secs() as usize)).map(Duration::from_millis)
}

impl Engine {
    /// Has the disk's log writer write everything sealed until now. The receiver gets whether it was written. If the
    /// receiver is dropped, the write continues.
    pub(crate) fn start_log(self: &Arc<Engine>, shard: &Shard, disk: &Arc<CacheDisk>) -> oneshot::Receiver<bool> {
        let (answer, answered) = oneshot::channel();
        if disk.log_waiters.add(answer) {
            let (engine, own, disk) = (Arc::clone(self), shard.clone(), Arc::clone(disk));
            shard.spawn(async move { engine.write_log(&own, &disk).await }).detach();
        }
        answered
    }

    async fn write_log(&self, shard: &Shard, disk: &Arc<CacheDisk>) {
        while let Some(waiters) = disk.log_waiters.take() {
            let sealed = lock(&disk.log).take_sealed();
            let end = self.write_sealed(shard, disk, sealed).await;
            let is_written = self.judge_metadata(disk, &end) && disk.takes_metadata();
            for waiter in waiters {
                // The caller may have dropped its future.
                let _ = waiter.send(is_written);
            }
        }
    }

    /// Writes chunks of a log or a snapshot.
    ///
    /// # Errors
    /// The system's last error, or that the write took too long.
    pub(crate) async fn write_sealed(
        &self,
        shard: &Shard,
        disk: &Arc<CacheDisk>,
        sealed: Vec<Sealed>,
    ) -> io::Result<()> {
        for Sealed { offset, bytes } in sealed {
            self.write_metadata(shard, disk, offset, &bytes).await?;
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`. Repeats a write that fails, as long as the disk takes metadata.
    ///
    /// # Errors
    /// As [`Engine::write_sealed`].
    pub(crate) async fn write_metadata(
        &self,
        shard: &Shard,
        disk: &Arc<CacheDisk>,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut pauses = pauses();
        loop {
            let end = match copy_of(bytes) {
                Ok(buffer) => {
                    let (own, to, class) = (shard.clone(), Arc::clone(disk), self.classes.checkpoint);
                    let write = async move { to.write(&own, class, IoKind::MetadataWrite, offset, buffer).await };
                    to_its_end(shard, write).await
                }
                Err(error) => Err(error),
            };
            match end {
                Err(error) if !health::is_final(&error) && disk.takes_metadata() => match pauses.next() {
                    Some(pause) => shard.sleep(pause).await,
                    None => return Err(error),
                },
                end => return end,
            }
        }
    }

    /// Overwrites both superblocks with zeros. Returns whether that is durable.
    pub(crate) async fn wipe(&self, shard: &Shard, disk: &Arc<CacheDisk>) -> bool {
        for offset in SLOT_OFFSETS {
            let end = self.write_metadata(shard, disk, offset, &[0; SLOT_BYTES]).await;
            if !self.judge_metadata(disk, &end) {
                return false;
            }
        }
        self.flush(shard, disk).await
    }

    /// Flushes the device's write cache. Returns whether it did.
    pub(crate) async fn flush(&self, shard: &Shard, disk: &Arc<CacheDisk>) -> bool {
        let mut pauses = pauses();
        loop {
            let (own, to, class) = (shard.clone(), Arc::clone(disk), self.classes.checkpoint);
            let end = to_its_end(shard, async move { to.flush(&own, class).await }).await;
            match end {
                Err(error) if health::is_passing(&error) => match pauses.next() {
                    Some(pause) => shard.sleep(pause).await,
                    None => return self.judge_metadata(disk, &Err::<(), _>(error)),
                },
                end => return self.judge_metadata(disk, &end),
            }
        }
    }

    /// Fails a disk that does not take its metadata: its blocks cannot be trusted after a crash. The state of a disk
    /// that is known to take no writes does not change: it serves hits, or is emptied. Returns whether the write
    /// succeeded.
    pub(crate) fn judge_metadata<T>(&self, disk: &CacheDisk, end: &io::Result<T>) -> bool {
        if let Err(error) = end
            && disk.takes_metadata()
        {
            let why = format!("its log or superblock could not be written: {error}");
            disk.judge(|health| health.set_failed(why));
        }
        end.is_ok()
    }
}

fn copy_of(bytes: &[u8]) -> io::Result<AlignedBuf> {
    let mut buffer = AlignedBuf::new(bytes.len())?;
    buffer.copy_from_slice(bytes);
    Ok(buffer)
}

/// Runs `operation`. If it takes too long, returns an error and lets it continue.
pub(crate) async fn to_its_end(
    shard: &Shard,
    operation: impl Future<Output = io::Result<()>> + 'static,
) -> io::Result<()> {
    let (answer, answered) = oneshot::channel();
    let work = async move {
        // The receiver is gone if the operation took too long.
        let _ = answer.send(operation.await);
    };
    shard.spawn(work).detach();
    match race::in_time(shard, answered).await {
        Some(Ok(end)) => end,
        Some(Err(_)) => Err(io::ErrorKind::Interrupted.into()),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}
