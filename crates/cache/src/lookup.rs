//! A look-up: from memory, or from the disk that has the block.
//!
//! # Why
//! Every hit passes here. It takes the lock of one index shard, and waits for nothing but its read.
//!
//! # How it works
//! ```text
//!   index -> extent -> read on a shard -> checksum -> (decrypt) -> block
//! ```
//! A place that is freed is written again only after the next checkpoint. Should a read be slower than that, its checksum
//! fails, the index is asked again, and the new place is read.
//!
//! # Limits
//! A get that began before an insert of the same key ended may miss. Two keys with one hash are one key (`key`).
//!
//! # Example
//! A block is moved while it is read: the old place still has it, so the read ends well. Had it been written again, the
//! checksum would be wrong, and the second attempt would read the new place.

use std::time::Duration;

use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Shard};

use crate::block::Block;
use crate::crypt::NONCE_BYTES;
use crate::engine::{Engine, add};
use crate::entry::Entry;
use crate::health::is_passing;
use crate::index::Found;
use crate::key::KeyHash;
use crate::race::race;
use crate::stats::{IoKind, MissReason};
use crate::sync::{lock, read};

/// What a look-up gave.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The block.
    Hit(Block),
    /// Nothing, and why.
    Miss(MissReason),
}

impl Lookup {
    /// The block, if there is one.
    #[must_use]
    pub fn block(self) -> Option<Block> {
        match self {
            Lookup::Hit(block) => Some(block),
            Lookup::Miss(_) => None,
        }
    }
}

/// How to look something up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The class of the read; `None`: the cache's own (`cache.hit`).
    pub class: Option<Class>,
    /// How long it may take before it is a miss; `None`: as the configuration says.
    pub deadline: Option<Duration>,
}

/// Reads of a moving block before a look-up reports a miss.
const ATTEMPTS: u32 = 4;

impl Engine {
    fn missed(&self, reason: MissReason) -> Lookup {
        add(&self.counters.misses[reason as usize], 1);
        Lookup::Miss(reason)
    }

    /// What can be said without a disk.
    pub(crate) fn look(&self, hash: &KeyHash) -> Result<Entry, Lookup> {
        if let Some(block) = self.memory.get(hash) {
            add(&self.counters.memory_hits, 1);
            add(&self.counters.hit_bytes, block.len() as u64);
            return Err(Lookup::Hit(block));
        }
        match self.index.lookup(hash) {
            Found::Absent => Err(self.missed(MissReason::Absent)),
            Found::Ghost => Err(self.missed(MissReason::Ghost)),
            Found::Block(entry) => Ok(entry),
        }
    }

    /// Reads what [`Engine::look`] has found.
    pub(crate) async fn fetch(&self, shard: &Shard, hash: &KeyHash, mut entry: Entry, options: GetOptions) -> Lookup {
        let deadline = options.deadline.or(self.config.hit_deadline);
        let class = options.class.unwrap_or(self.classes.hit);
        for _ in 0..ATTEMPTS {
            let read = self.read_entry(shard, hash, &entry, class, IoKind::LookupRead);
            let end = match deadline {
                None => read.await,
                Some(deadline) => match race(read, shard.sleep(deadline)).await {
                    Some(end) => end,
                    None => return self.missed(MissReason::Deadline),
                },
            };
            match end {
                Ok(block) => {
                    add(&self.counters.hits, 1);
                    add(&self.counters.hit_bytes, block.len() as u64);
                    self.remember(hash, &entry, &block);
                    return Lookup::Hit(block);
                }
                Err(reason) => match self.index.peek(hash) {
                    // It was moved, or stored again, while it was read.
                    Some(now) if !now.is_same_block(&entry) => entry = now,
                    Some(_) => return self.given_up(hash, &entry, reason),
                    None => return self.missed(MissReason::Absent),
                },
            }
        }
        self.missed(MissReason::Absent)
    }

    /// Keeps a block in memory, unless the key has changed while it was read. Whoever changes a key changes the index
    /// first and the memory then, so what is put there under the index's lock is not there for longer than it may be.
    fn remember(&self, hash: &KeyHash, entry: &Entry, block: &Block) {
        if self.memory.is_on() {
            self.index.while_current(hash, entry, || self.memory.insert(*hash, block.clone()));
        }
    }

    /// A block that cannot be had is forgotten, unless the fault may pass.
    fn given_up(&self, hash: &KeyHash, entry: &Entry, reason: MissReason) -> Lookup {
        if reason == MissReason::Corrupt {
            self.corrupt.note(hash);
        }
        if self.is_lost(entry, reason) {
            self.forget(hash, entry);
        }
        self.missed(reason)
    }

    /// Whether a block that could not be read is lost. Of a disk that is gone nothing is: it may bring it back.
    pub(crate) fn is_lost(&self, entry: &Entry, reason: MissReason) -> bool {
        match reason {
            MissReason::Corrupt => true,
            MissReason::ReadFailed => self.locate(&entry.extent).is_none_or(|(disk, _)| disk.takes_reads()),
            _ => false,
        }
    }

    /// Removes a block, if it is still the one that is known.
    pub(crate) fn forget(&self, hash: &KeyHash, known: &Entry) -> bool {
        let gate = read(&self.gate);
        let gone = self.index.remove_same(hash, known, |gone| self.note_remove(hash, &gone));
        if let Some(gone) = &gone {
            lock(&self.alloc).free(&gone.extent);
        }
        drop(gate);
        gone.is_some()
    }

    /// Reads and verifies the bytes of an entry as they are on the disk.
    pub(crate) async fn read_stored(
        &self,
        shard: &Shard,
        entry: &Entry,
        class: Class,
        kind: IoKind,
    ) -> Result<AlignedBuf, MissReason> {
        let Some((disk, offset)) = self.locate(&entry.extent) else { return Err(MissReason::ReadFailed) };
        if !disk.takes_reads() {
            return Err(MissReason::ReadFailed);
        }
        let padded = entry.extent.padded_bytes(self.identity.geometry.sector_bytes);
        let buffer = self.buffers.take(padded as usize).map_err(|_| MissReason::Overloaded)?;
        let (result, buffer) = disk.read(shard, class, kind, offset, buffer).await;
        match result {
            Ok(()) => {}
            // No fault of the block: it stays.
            Err(error) if is_passing(&error) => return Err(MissReason::Overloaded),
            Err(_) => return Err(MissReason::ReadFailed),
        }
        let stored = buffer.get(..entry.extent.len_bytes as usize).unwrap_or_default();
        if crc32c::crc32c(stored) == entry.checksum { Ok(buffer) } else { Err(MissReason::Corrupt) }
    }

    /// The block of an entry.
    pub(crate) async fn read_entry(
        &self,
        shard: &Shard,
        hash: &KeyHash,
        entry: &Entry,
        class: Class,
        kind: IoKind,
    ) -> Result<Block, MissReason> {
        let mut buffer = self.read_stored(shard, entry, class, kind).await?;
        let len = entry.extent.len_bytes as usize;
        let Some(cipher) = &self.cipher else { return Ok(Block::from_pool(buffer, 0..len, &self.buffers)) };
        let sealed = buffer.get_mut(..len).unwrap_or_default();
        let plain_len = cipher.open(hash, sealed).ok_or(MissReason::Corrupt)?.len();
        Ok(Block::from_pool(buffer, NONCE_BYTES..NONCE_BYTES + plain_len, &self.buffers))
    }
}
