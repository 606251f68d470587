//! Look-ups: from memory, or from the disk that has the block.
//!
//! # Why
//! Every hit passes here. It takes the lock of one index shard, and waits only for its read.
//!
//! # How it works
//! ```text
//!   index -> extent -> read on a shard -> checksum -> (decrypt) -> block
//! ```
//! Freed space is written again only after the next checkpoint. If a read takes longer than that, its checksum may
//! fail; then the index is queried again, and the new place is read.
//!
//! A disk on which nothing has ended for a second hangs (`keeper`): its blocks are misses at once, until an operation
//! ends.
//!
//! # Limits
//! A look-up that begins before an insert of the same key ends may miss. Two keys with one hash are one key (see
//! `key`).
//!
//! # Example
//! A block is moved while it is read: the old place still holds it, so the read succeeds. Had the place been written
//! again, the checksum would be wrong, and the second attempt would read the new place.

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
use crate::memory::Kept;
use crate::race::race;
use crate::stats::{IoKind, MissReason};
use crate::sync::{lock, read};

/// The result of a look-up.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The block.
    Hit(Block),
    /// No block, for this reason.
    Miss(MissReason),
}

impl Lookup {
    /// Returns the block, if there is one.
    #[must_use]
    pub fn block(self) -> Option<Block> {
        match self {
            Lookup::Hit(block) => Some(block),
            Lookup::Miss(_) => None,
        }
    }
}

/// Options of a look-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// The class of the read; `None`: the cache's own (`cache.hit`).
    pub class: Option<Class>,
    /// How long the read may take before it is a miss; `None`: as configured, or 2 s.
    pub deadline: Option<Duration>,
}

/// Longest read of a hit, if none is configured: longer than sound disks need, and short for callers that wait for a
/// disk that hangs.
const HIT_DEADLINE: Duration = Duration::from_secs(2);

/// Reads of a moving block before a look-up reports a miss.
const ATTEMPTS: u32 = 4;

impl Engine {
    pub(crate) fn missed(&self, reason: MissReason) -> Lookup {
        add(&self.counters.misses[reason as usize], 1);
        Lookup::Miss(reason)
    }

    /// Looks a key up without a disk. Returns the entry to read, or the result if it is known already.
    pub(crate) fn look(&self, hash: &KeyHash) -> Result<Entry, Lookup> {
        if let Some(Kept { block, renewed_tick }) = self.memory.get(hash) {
            // The hottest blocks would otherwise be the oldest of their disks, and be evicted there.
            self.index
                .hit_in_memory(hash, block.len() as u32, renewed_tick, |now| self.memory.renew(hash, &block, now));
            self.counters.in_memory.add([1, block.len() as u64]);
            return Err(Lookup::Hit(block));
        }
        match self.index.lookup(hash) {
            Found::Absent => Err(self.missed(MissReason::Absent)),
            Found::Ghost => Err(self.missed(MissReason::Ghost)),
            Found::Block(entry) => Ok(entry),
        }
    }

    /// Returns how long a read of a look-up may take.
    pub(crate) fn deadline_of(&self, options: GetOptions) -> Duration {
        options.deadline.or(self.config.hit_deadline).unwrap_or(HIT_DEADLINE)
    }

    /// Reads the block of an entry that [`Engine::look`] returned.
    pub(crate) async fn fetch(&self, shard: &Shard, hash: &KeyHash, mut entry: Entry, options: GetOptions) -> Lookup {
        let deadline = self.deadline_of(options);
        let class = options.class.unwrap_or(self.classes.hit);

        for _ in 0..ATTEMPTS {
            let read = self.read_entry(shard, hash, &entry, class, IoKind::LookupRead);
            let Some(end) = race(read, shard.sleep(deadline)).await else {
                return self.missed(MissReason::Deadline);
            };
            match end {
                Ok(block) => {
                    add(&self.counters.hits, 1);
                    add(&self.counters.hit_bytes, block.len() as u64);
                    self.remember(hash, &entry, &block);
                    return Lookup::Hit(block);
                }
                Err(reason) => match self.index.peek(hash) {
                    // The block was moved, or stored again, during the read.
                    Some(now) if !now.is_same_block(&entry) => entry = now,
                    Some(_) => {
                        self.give_up(hash, &entry, reason);
                        return self.missed(reason);
                    }
                    None => return self.missed(MissReason::Absent),
                },
            }
        }
        self.missed(MissReason::Absent)
    }

    /// Keeps a block in memory, unless its key has changed during the read. A change of a key updates the index first
    /// and memory second, so a block inserted here under the index's lock is removed again by any later change.
    fn remember(&self, hash: &KeyHash, entry: &Entry, block: &Block) {
        if self.memory.is_on() {
            // A short block does not keep its sectors.
            let is_short = block.held_bytes() > 2 * block.len();
            let kept = if is_short { Block::copy_from_slice(block) } else { block.clone() };
            self.index.while_current(hash, entry, || self.memory.insert(*hash, kept, self.index.use_tick()));
        }
    }

    /// Removes an unreadable block unless the fault may pass. Returns whether it did.
    pub(crate) fn give_up(&self, hash: &KeyHash, entry: &Entry, reason: MissReason) -> bool {
        if reason == MissReason::Corrupt {
            self.corrupt.note(hash);
        }
        self.is_lost(entry, reason) && self.forget(hash, entry)
    }

    /// Returns whether an unreadable block is lost. Blocks of a disk that takes no reads are not: the disk may return.
    pub(crate) fn is_lost(&self, entry: &Entry, reason: MissReason) -> bool {
        match reason {
            MissReason::Corrupt => true,
            MissReason::ReadFailed => self.locate(&entry.extent).is_none_or(|(disk, _)| disk.takes_reads()),
            _ => false,
        }
    }

    /// Removes a block, if it is still the one that `known` names. Returns whether it was.
    pub(crate) fn forget(&self, hash: &KeyHash, known: &Entry) -> bool {
        let gate = read(&self.gate);
        let gone = self.index.remove_same(hash, known, |gone| self.note_remove(hash, &gone));
        if let Some(gone) = &gone {
            lock(&self.alloc).free(&gone.extent);
        }
        drop(gate);
        gone.is_some()
    }

    /// Reads and verifies the stored bytes of an entry.
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
        if disk.hangs() && kind == IoKind::LookupRead {
            return Err(MissReason::Deadline);
        }

        let padded = entry.extent.padded_bytes(self.identity.geometry.sector_bytes);
        let buffer = self.buffers.take(padded as usize).map_err(|_| MissReason::Overloaded)?;
        let (result, buffer) = disk.read(shard, class, kind, offset, buffer).await;
        match result {
            Ok(()) => {}
            // Not the block's fault: keep it.
            Err(error) if is_passing(&error) => return Err(MissReason::Overloaded),
            Err(_) => return Err(MissReason::ReadFailed),
        }

        let stored = buffer.get(..entry.extent.len_bytes as usize).unwrap_or_default();
        if crc32c::crc32c(stored) == entry.checksum { Ok(buffer) } else { Err(MissReason::Corrupt) }
    }

    /// Reads, verifies and decrypts the block of an entry.
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
        let Some(cipher) = &self.cipher else { return Ok(Block::from_aligned(buffer, 0..len)) };
        let sealed = buffer.get_mut(..len).unwrap_or_default();
        let plain_len = cipher.open(hash, sealed).ok_or(MissReason::Corrupt)?.len();
        Ok(Block::from_aligned(buffer, NONCE_BYTES..NONCE_BYTES + plain_len))
    }
}
