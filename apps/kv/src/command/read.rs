//! The commands GET and MGET.
//!
//! # Why
//! A read waits for the disk, and those of an MGET or of a pipeline of GETs do not depend on one another. Their values
//! take memory whose amount is known only once they are read, and clients may leave them unread.
//!
//! # How it works
//! Several keys are read at once, from one snapshot: the replies are those of reads one after the other at that moment.
//! As many keys are read as twice the mean length of the last values fits into [`OUTPUT_BYTES`], at most [`READS_MAX`],
//! and they keep at most [`OUTPUT_BYTES`], which the budget of replies lends them. All have ended before a reply is
//! sent, because SlateDB has one read of a block for all that ask for it: a read that stands still until a client takes
//! its replies would hold up others. A key whose value does not fit, or cannot be read, is read again alone, when its
//! turn comes.
//!
//! A value that is read alone and longer than [`OUTPUT_BYTES`] takes memory from the budget, from before it is read
//! until the client has read it. If the budget is spent, values are read one at a time, to learn which are short; the
//! command of a longer one waits.
//!
//! # Limits
//! The sum of what is read at once is expected, not known: it is more while values become much longer than the last
//! ones. At most [`BATCHES_MAX`] connections read several keys at once; others read one after the other meanwhile.
//!
//! # Example
//! `MGET ship port` reads both values at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::AsyncWrite;
use tokio::sync::OwnedMutexGuard;

use super::{OUTPUT_BYTES, Session};
use crate::resp::Reply;

/// Most keys of a connection that are read at once. Each value may hold a block of 4 KiB in memory, which makes
/// [`OUTPUT_BYTES`].
pub const READS_MAX: usize = 16;
/// Most connections that read several keys at once. It bounds the open files and the requests to the disk.
pub const BATCHES_MAX: usize = 16;

impl<W: AsyncWrite + Unpin> Session<W> {
    /// Runs a GET of each of `keys`, and appends the replies to the output. A key that is not allowed has an error.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub async fn execute_gets(&mut self, keys: &[impl AsRef<[u8]> + Sync]) -> io::Result<()> {
        self.service.commands.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.get_each(keys).await
    }

    /// Runs MGET.
    pub(super) async fn get_all(&mut self, keys: &[&[u8]]) -> io::Result<()> {
        // Clients take an error among the values for one of them.
        if !keys.iter().all(|key| self.check_key(key)) {
            return Ok(());
        }

        self.reply(Reply::Array(keys.len()));
        self.get_each(keys).await
    }

    /// Reads each of `keys`, in turns of several at once, and appends the replies. Sends the output whenever it is
    /// large.
    pub(super) async fn get_each(&mut self, mut keys: &[impl AsRef<[u8]> + Sync]) -> io::Result<()> {
        while !keys.is_empty() {
            let expected_bytes = 2 * self.shared.value_bytes.bytes().max(1);
            let most = (OUTPUT_BYTES / expected_bytes).clamp(1, READS_MAX);
            let at_once = keys.iter().take(most).take_while(|key| self.is_key(key.as_ref())).count();

            let mut replied = if at_once > 1 { self.get_at_once(&keys[..at_once]).await } else { 0 };
            if replied < at_once.max(1) {
                self.get(keys[replied].as_ref()).await?;
                replied += 1;
            }
            keys = &keys[replied..];
            self.flush_if_large().await?;
        }
        Ok(())
    }

    /// Reads the values of `keys` at once. Appends the replies up to the first value that does not fit into
    /// [`OUTPUT_BYTES`] or could not be read, and returns their number: 0 if there is no memory, or too many other
    /// connections do the same.
    async fn get_at_once(&mut self, keys: &[impl AsRef<[u8]> + Sync]) -> usize {
        let mut taken = None;
        let Ok(_place) = Arc::clone(&self.shared.batches).try_acquire_owned() else { return 0 };
        if !self.shared.replies.try_take(&mut taken, OUTPUT_BYTES) {
            return 0;
        }
        let Ok(snapshot) = self.service.database.snapshot() else { return 0 };

        let snapshot = &*snapshot;
        let read = |(at, key): (usize, _)| async move { (at, snapshot.get(key).await) };
        let mut reads: FuturesUnordered<_> = keys.iter().map(AsRef::as_ref).enumerate().map(read).collect();

        let (mut values, mut room_bytes) = (vec![None; keys.len()], OUTPUT_BYTES);
        while let Some((at, read)) = reads.next().await {
            let Ok(value) = read else { continue };
            let len_bytes = value.as_ref().map_or(0, Bytes::len);
            self.shared.value_bytes.add(len_bytes);
            if len_bytes <= room_bytes {
                room_bytes -= len_bytes;
                values[at] = Some(value);
            }
        }
        drop(reads);

        let replied = values.iter().position(Option::is_none).unwrap_or(values.len());
        for value in values.into_iter().take(replied).flatten() {
            self.reply(value.as_deref().map_or(Reply::Null, Reply::Bulk));
        }
        replied
    }

    /// Reads `key` alone, and appends the reply.
    async fn get(&mut self, key: &[u8]) -> io::Result<()> {
        if !self.check_key(key) {
            return Ok(());
        }

        let replies = self.shared.replies.clone();
        let mut alone = self.take_memory().await?;
        loop {
            let value = match self.service.database.get(key).await {
                Ok(value) => value,
                Err(error) => {
                    self.taken = None;
                    self.failed(&error);
                    return Ok(());
                }
            };

            let len_bytes = value.as_ref().map_or(0, Bytes::len);
            self.shared.value_bytes.add(len_bytes);
            if len_bytes <= OUTPUT_BYTES {
                self.taken = None;
            } else if len_bytes > replies.total_bytes() {
                self.taken = None;
                let has_bytes = replies.total_bytes();
                self.error(&format!(
                    "OOM a value of {len_bytes} bytes: of its --memory this server has {has_bytes} for them"
                ));
                return Ok(());
            } else if !replies.try_take(&mut self.taken, len_bytes) {
                // It is read again once there is memory for it, and may be another then. Other clients have not read
                // theirs yet.
                drop((value, alone.take()));
                self.flush().await?;
                self.taken = Some(replies.take(len_bytes).await?);
                continue;
            }

            self.reply(value.as_deref().map_or(Reply::Null, Reply::Bulk));
            return Ok(());
        }
    }

    /// Takes memory for a value that is about to be read, as long as the last ones were. If there is none now, sends the
    /// output, and waits for it or for the right to read alone, until the result is dropped.
    pub(super) async fn take_memory(&mut self) -> io::Result<Option<OwnedMutexGuard<()>>> {
        let replies = self.shared.replies.clone();
        let expected_bytes = self.shared.value_bytes.bytes().min(replies.total_bytes());
        if expected_bytes <= OUTPUT_BYTES || replies.try_take(&mut self.taken, expected_bytes) {
            return Ok(None);
        }

        self.flush().await?;
        tokio::select! {
            biased;
            taken = replies.take(expected_bytes) => {
                self.taken = Some(taken?);
                Ok(None)
            }
            alone = Arc::clone(&self.shared.alone).lock_owned() => Ok(Some(alone)),
        }
    }
}
