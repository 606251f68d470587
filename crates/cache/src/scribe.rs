//! Writing metadata: the log of each disk by a scribe of its own, and each operation within a time.
//!
//! # Why
//! Whoever waits for all disks waits for the one that hangs. And a disk that is given up for one error of the moment has
//! lost all its blocks.
//!
//! # How it works
//! A disk has one scribe at most: a task that writes the chunks of its log as they are sealed, and tells whoever asked when
//! all is written that was sealed until then. What fails is written again after 1, 10, 100 and 1000 ms, as long as the disk
//! takes metadata: the fourth fault in a row makes it read-only (`health`), so the last pause is for faults of the machine,
//! and for disks that write well elsewhere. A chunk and a superblock are the same when they are written twice. An operation
//! that takes longer than [`DEADLINE`] is not waited for any more: the disk has failed. It may still land, which is why a
//! disk is taken back only when nothing is under way ([`CacheDisk::is_busy`]).
//!
//! # Limits
//! A flush that failed for good is not repeated: nobody knows what a second one would say of the first one's data.
//!
//! # Example
//! One of three disks hangs. After 10 s its log write is given up, the checkpoint is made on the other two, and the disk's
//! blocks are forgotten. When it answers again, it is taken back as an empty one.

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
use crate::race::race;
use crate::stats::{DiskHealth, IoKind};
use crate::sync::lock;

/// How long an operation on metadata may take: longer than a slow disk needs for 1 MiB, and shorter than the 30 s after
/// which the kernel gives up a command.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Pauses before an operation is tried again.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(1), Duration::from_millis(10), Duration::from_millis(100), Duration::from_millis(1000)];

impl Engine {
    /// Has the log of a disk written up to what is sealed now. Whether it was; dropping the answer stops nothing.
    pub(crate) fn start_log(self: &Arc<Engine>, shard: &Shard, disk: &Arc<CacheDisk>) -> oneshot::Receiver<bool> {
        let (answer, answered) = oneshot::channel();
        if disk.desk.ask(answer) {
            let (engine, own, disk) = (Arc::clone(self), shard.clone(), Arc::clone(disk));
            shard.spawn(async move { engine.write_log(&own, &disk).await }).detach();
        }
        answered
    }

    async fn write_log(&self, shard: &Shard, disk: &Arc<CacheDisk>) {
        while let Some(waiters) = disk.desk.next() {
            let sealed = lock(&disk.log).take_sealed();
            let end = self.write_sealed(shard, disk, sealed).await;
            let is_written = self.judge_metadata(disk, &end) && disk.takes_metadata();
            for waiter in waiters {
                // The one who asked may be gone.
                let _ = waiter.send(is_written);
            }
        }
    }

    /// Writes chunks of a log or a snapshot.
    ///
    /// # Errors
    /// What the system said last, or that it took too long.
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

    /// Writes `bytes` at `offset`, again where it fails and the disk still takes metadata.
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
        let mut pauses = PAUSES.into_iter();
        loop {
            let end = match copy_of(bytes) {
                Ok(buffer) => {
                    let (own, to, class) = (shard.clone(), Arc::clone(disk), self.classes.checkpoint);
                    let write = async move { to.write(&own, class, IoKind::MetadataWrite, offset, buffer).await };
                    in_time(shard, write).await
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

    /// Empties the device's own cache. Whether it did.
    pub(crate) async fn flush(&self, shard: &Shard, disk: &Arc<CacheDisk>) -> bool {
        let mut pauses = PAUSES.into_iter();
        loop {
            let (own, to, class) = (shard.clone(), Arc::clone(disk), self.classes.checkpoint);
            let end = in_time(shard, async move { to.flush(&own, class).await }).await;
            match end {
                Err(error) if health::is_passing(&error) => match pauses.next() {
                    Some(pause) => shard.sleep(pause).await,
                    None => return self.judge_metadata(disk, &Err::<(), _>(error)),
                },
                end => return self.judge_metadata(disk, &end),
            }
        }
    }

    /// A disk that does not take its metadata is of no use: what it has cannot be trusted after a crash.
    ///
    /// One that only takes no writes still serves what it has.
    pub(crate) fn judge_metadata<T>(&self, disk: &CacheDisk, end: &io::Result<T>) -> bool {
        if let Err(error) = end
            && disk.health() != DiskHealth::ReadOnly
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

/// What `operation` gives, or an error if that takes too long; it goes on then.
async fn in_time(shard: &Shard, operation: impl Future<Output = io::Result<()>> + 'static) -> io::Result<()> {
    let (answer, answered) = oneshot::channel();
    let work = async move {
        // Nobody waits for it any more, if it took too long.
        let _ = answer.send(operation.await);
    };
    shard.spawn(work).detach();
    match race(answered, shard.sleep(DEADLINE)).await {
        Some(Ok(end)) => end,
        Some(Err(_)) => Err(io::ErrorKind::Interrupted.into()),
        None => Err(io::ErrorKind::TimedOut.into()),
    }
}
