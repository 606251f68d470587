//! Inserts and removals: everything that changes a key.
//!
//! # Why
//! Every cached block came through here, and a key must never have a value older than the last one inserted or removed.
//!
//! # How it works
//! ```text
//!   insert  room in flight? -> extent -> write at the disk's home shard -> index and log -> old extent freed
//!   remove  index and log -> extent freed
//! ```
//! The index learns of a block only after its write, so every block found can be read. An insert that is not stored
//! removes the older value of its key. Where first uses are rejected, the first insert of a key only makes it a ghost.
//! A [`Lease`] inserts a fetched value only if the key has not changed meanwhile.
//!
//! # Limits
//! Inserts do not wait for space: one that finds none is dropped, and the keeper is woken.
//!
//! # Example
//! An insert whose future is dropped is still completed: the end of its write is a function that the write owns, not
//! the future.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures_channel::oneshot;
use plimsoll::Class;
use plimsoll::buffer::AlignedBuf;

use crate::admission::Permit;
use crate::alloc::NoSpace;
use crate::block::Block;
use crate::crypt::OVERHEAD_BYTES;
use crate::disk::CacheDisk;
use crate::engine::{Engine, add};
use crate::entry::{Entry, Extent};
use crate::error::CacheError;
use crate::index::{Finish, Token};
use crate::key::KeyHash;
use crate::stats::{DropReason, IoKind};
use crate::sync::{lock, read};

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The value is cached; durable after the next checkpoint.
    Stored,
    /// The value is not cached, for this reason.
    Dropped(DropReason),
}

/// Options of an insert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsertOptions {
    /// The class of the write; `None`: the cache's own (`cache.fill`).
    pub class: Option<Class>,
    /// Wait until the class has room for the value, instead of dropping it.
    pub wait: bool,
}

/// Allocations between two checks of the free-space target. The keeper also checks every 200 ms.
const LOOK_EVERY: u64 = 64;

/// A change of a key that has begun. Of several, the one that began last wins. Dropped before its write has ended, it
/// removes the key, whose value is out of date.
pub(crate) struct Claim {
    engine: Arc<Engine>,
    hash: KeyHash,
    token: Token,
}

impl Claim {
    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // False if its write has ended, or a newer change has begun.
        if self.engine.index.abort_insert(&self.hash, self.token) {
            self.engine.take_out(&self.hash);
        }
    }
}

/// A value that may be written: the change of its key has begun, and its class has room for it.
struct Admitted<'a> {
    hash: KeyHash,
    token: Token,
    value: &'a [u8],
    class: Class,
    permit: Permit,
}

/// The right to insert a fetched value, as long as the key does not change.
pub(crate) struct Lease {
    engine: Arc<Engine>,
    hash: KeyHash,
    /// `None`: an insert of the key was already under way.
    token: Option<Token>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.engine.index.abort_insert(&self.hash, token);
        }
    }
}

impl Engine {
    /// Returns the length of a block as stored, without padding.
    fn stored_len(&self, value: &[u8]) -> usize {
        value.len() + if self.cipher.is_some() { OVERHEAD_BYTES } else { 0 }
    }

    /// Returns the bytes of the buffer that a block is written from: whole sectors.
    fn buffer_bytes(&self, value: &[u8]) -> usize {
        self.stored_len(value).next_multiple_of(self.identity.geometry.sector_bytes as usize)
    }

    /// Returns a block's bytes as stored, padded to whole sectors, and their length without padding; `None` if the
    /// system has no memory, or no random numbers to encrypt it with.
    fn stored_form(&self, hash: &KeyHash, value: &[u8]) -> Option<(AlignedBuf, u32)> {
        let len = self.stored_len(value);
        let mut buffer = AlignedBuf::new(self.buffer_bytes(value)).ok()?;
        let place = buffer.get_mut(..len)?;
        match &self.cipher {
            None => place.copy_from_slice(value),
            Some(cipher) => cipher.seal(hash, value, place)?,
        }
        Some((buffer, len as u32))
    }

    /// Stores `value`. If the future is dropped, a write that has begun is still completed.
    pub(crate) async fn insert(
        self: &Arc<Engine>,
        hash: KeyHash,
        value: &[u8],
        options: InsertOptions,
    ) -> Result<Inserted, CacheError> {
        let max_bytes = self.max_value_bytes();
        if value.is_empty() || value.len() > max_bytes as usize {
            return Err(CacheError::ValueLength { len_bytes: value.len(), max_bytes });
        }
        let class = options.class.unwrap_or(self.classes.fill);

        let Some(permit) = self.admit(value, class, options.wait).await else {
            return Ok(self.refused(&hash, DropReason::InFlight));
        };
        let token = self.begin_change(&hash);
        match self.check_use(&hash, token, self.stored_len(value) as u32) {
            Ok(()) => Ok(self.write(Admitted { hash, token, value, class, permit }).await),
            Err(reason) => Ok(self.refused(&hash, reason)),
        }
    }

    /// Begins a change of a key.
    pub(crate) fn claim(self: &Arc<Engine>, hash: KeyHash) -> Claim {
        Claim { engine: Arc::clone(self), hash, token: self.begin_change(&hash) }
    }

    /// Stores `value`, whose use has been checked and whose length is right, by a change that has begun.
    pub(crate) async fn store(self: &Arc<Engine>, claim: Claim, value: &[u8], options: InsertOptions) -> Inserted {
        let class = options.class.unwrap_or(self.classes.fill);
        match self.admit(value, class, options.wait).await {
            Some(permit) => self.write(Admitted { hash: claim.hash, token: claim.token, value, class, permit }).await,
            None => {
                drop(claim);
                self.dropped(DropReason::InFlight)
            }
        }
    }

    /// Returns the permission to have `value` in flight; `None` if its class has no room and it does not wait.
    async fn admit(&self, value: &[u8], class: Class, wait: bool) -> Option<Permit> {
        let len_bytes = self.buffer_bytes(value) as u64;
        match self.admission.try_enter(class.index(), len_bytes) {
            None if wait => Some(self.admission.enter(class.index(), len_bytes).await),
            entered => entered,
        }
    }

    fn begin_change(&self, hash: &KeyHash) -> Token {
        let token = self.index.begin_insert(hash);
        // A fetch that began before would answer later readers with an older value.
        self.flights.part(hash);
        token
    }

    /// Checks whether a value of `len_bytes` is worth a write, whether or not there is room. If not, returns the
    /// reason.
    pub(crate) fn check_use(&self, hash: &KeyHash, token: Token, len_bytes: u32) -> Result<(), DropReason> {
        let intake = &self.upkeep.intake;
        if intake.is_budget_spent.load(Relaxed) {
            return Err(DropReason::Endurance);
        }
        let may_reject = self.config.reject_first && intake.is_full.load(Relaxed);
        if may_reject && self.index.reject_first(hash, token, len_bytes) {
            // Memory may have a value that the index has forgotten.
            self.memory.remove(hash);
            return Err(DropReason::FirstUse);
        }
        Ok(())
    }

    /// Writes `value`, and waits for the end.
    async fn write(self: &Arc<Engine>, admitted: Admitted<'_>) -> Inserted {
        let hash = admitted.hash;
        let (answer, answered) = oneshot::channel();
        // The caller may have dropped its future.
        let tell = move |end| _ = answer.send(end);
        match self.begin_insert(admitted, tell) {
            Ok(()) => answered.await.unwrap_or(Inserted::Dropped(DropReason::NoDisk)),
            Err(reason) => self.refused(&hash, reason),
        }
    }

    /// Begins to store `value`, which was fetched under `lease`, unless the key has changed meanwhile. `ended` is
    /// called when the write has ended, or dropped if there is none.
    pub(crate) fn insert_fetched(
        self: &Arc<Engine>,
        mut lease: Lease,
        value: &[u8],
        class: Option<Class>,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let hash = lease.hash;
        let Some(token) = lease.token.take() else {
            self.dropped(DropReason::Superseded);
            return;
        };
        if let Err(reason) = self.begin_if_room(hash, token, value, class, |_| ended()) {
            // Drop the cached value, which is older, unless a newer one came meanwhile.
            if self.index.abort_insert(&hash, token) {
                self.take_out(&hash);
            }
            self.dropped(reason);
        }
    }

    /// Begins to store `value`. The caller does not learn the result. `ended` is called when the write has ended, or
    /// dropped if there is none.
    #[cfg(feature = "object_store")]
    pub(crate) fn insert_detached(
        self: &Arc<Engine>,
        hash: KeyHash,
        value: &[u8],
        class: Option<Class>,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let token = self.begin_change(&hash);
        if let Err(reason) = self.begin_if_room(hash, token, value, class, |_| ended()) {
            self.refused(&hash, reason);
        }
    }

    /// Returns the right to insert a value fetched from now on, unless the key changes meanwhile.
    pub(crate) fn lease(self: &Arc<Engine>, hash: KeyHash) -> Lease {
        Lease { engine: Arc::clone(self), hash, token: self.index.lease(&hash) }
    }

    /// Begins to store `value`.
    ///
    /// # Errors
    /// If its length is wrong, or its class, the disks or memory have no room for it now.
    fn begin_if_room(
        self: &Arc<Engine>,
        hash: KeyHash,
        token: Token,
        value: &[u8],
        class: Option<Class>,
        tell: impl FnOnce(Inserted) + Send + 'static,
    ) -> Result<(), DropReason> {
        if value.is_empty() || value.len() > self.max_value_bytes() as usize {
            return Err(DropReason::NoSpace);
        }
        let class = class.unwrap_or(self.classes.fill);
        let len_bytes = self.buffer_bytes(value) as u64;
        let permit = self.admission.try_enter(class.index(), len_bytes).ok_or(DropReason::InFlight)?;
        self.check_use(&hash, token, self.stored_len(value) as u32)?;
        self.begin_insert(Admitted { hash, token, value, class, permit }, tell)
    }

    /// Begins a write. Calls `tell` with the result when it has ended.
    ///
    /// # Errors
    /// If there is no space, disk or memory for it.
    fn begin_insert(
        self: &Arc<Engine>,
        admitted: Admitted<'_>,
        tell: impl FnOnce(Inserted) + Send + 'static,
    ) -> Result<(), DropReason> {
        let Admitted { hash, token, value, class, permit } = admitted;
        let (buffer, len_bytes) = self.stored_form(&hash, value).ok_or(DropReason::InFlight)?;
        let checksum = crc32c::crc32c(buffer.get(..len_bytes as usize).unwrap_or_default());

        // A disk parts under the closed gate: it waits for this write, or this write is refused.
        let gate = read(&self.gate);
        let extent = self.allocate(len_bytes)?;
        let place = self.locate(&extent).and_then(|(disk, offset)| Some((disk.begin_change().ok()?, disk, offset)));
        let Some((change, disk, offset)) = place else {
            lock(&self.alloc).free(&extent);
            return Err(DropReason::NoDisk);
        };
        drop(gate);

        let in_memory = self.memory.is_on().then(|| Block::copy_from_slice(value));
        let (engine, written) = (Arc::clone(self), Arc::clone(&disk));
        let done = move |result| {
            let end = engine.end_insert(&hash, token, &written, (extent, checksum), in_memory, result);
            drop(permit);
            tell(end);
        };
        disk.submit_write(class, IoKind::InsertWrite, (change, offset), buffer, done);
        Ok(())
    }

    /// Allocates space for a block on the disk that suits best. If there is none, rings for a checkpoint or eviction.
    fn allocate(&self, len_bytes: u32) -> Result<Extent, DropReason> {
        let loads = self.loads();
        let mut alloc = lock(&self.alloc);
        let extent = alloc.allocate(len_bytes, &loads);
        // A checkpoint would help less than emptying slabs of other block sizes.
        let is_starved = extent.is_err() && alloc.free_bytes() > alloc.freeing_bytes();
        drop(alloc);

        if self.allocations.fetch_add(1, Relaxed).is_multiple_of(LOOK_EVERY) && self.is_below_target() {
            self.to_keeper.wake();
        }

        extent.map_err(|why| {
            if matches!(why, NoSpace::NoDisk) {
                return DropReason::NoDisk;
            }
            // If not all slabs were tried, there may be room without emptying slabs.
            if why != NoSpace::NotFoundYet && (is_starved || why == NoSpace::Full) {
                self.upkeep.moves.is_starved.store(true, Relaxed);
            }
            self.to_keeper.request_space();
            DropReason::NoSpace
        })
    }

    fn end_insert(
        &self,
        hash: &KeyHash,
        token: Token,
        disk: &CacheDisk,
        (extent, checksum): (Extent, u32),
        in_memory: Option<Block>,
        result: io::Result<()>,
    ) -> Inserted {
        let gate = read(&self.gate);
        if result.is_err() || disk.has_parted() {
            lock(&self.alloc).free(&extent);
            drop(gate);
            if self.index.abort_insert(hash, token) {
                self.take_out(hash);
            }
            return self.dropped(DropReason::WriteFailed);
        }

        let log = |old, new: Entry| {
            self.note_put(hash, old, &new);
            // Under the index's lock, or one look-up could find the new block and a later one the old block in
            // memory. Remove first: the new block may be too large for memory.
            self.memory.remove(hash);
            if let Some(block) = in_memory {
                self.memory.insert(*hash, block, self.index.use_tick());
            }
        };

        let finish = self.index.finish_insert(hash, token, extent, checksum, log);
        let unused = match &finish {
            Finish::Superseded => Some(extent),
            Finish::Indexed { displaced } => displaced.map(|old| old.extent),
        };
        if let Some(unused) = unused {
            lock(&self.alloc).free(&unused);
        }
        drop(gate);

        match finish {
            Finish::Superseded => self.dropped(DropReason::Superseded),
            Finish::Indexed { .. } => {
                if self.corrupt.is_healed(hash) {
                    add(&self.counters.healed, 1);
                }
                add(&self.counters.inserts, 1);
                add(&self.counters.insert_bytes, u64::from(extent.len_bytes));
                Inserted::Stored
            }
        }
    }

    /// Counts an insert as dropped, and removes the older value of its key, which is out of date.
    fn refused(&self, hash: &KeyHash, reason: DropReason) -> Inserted {
        // At a first use, the index has no older value, and the ghost must stay.
        if reason != DropReason::FirstUse {
            self.take_out(hash);
        }
        self.dropped(reason)
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> Inserted {
        add(&self.counters.drops[reason as usize], 1);
        Inserted::Dropped(reason)
    }

    /// Removes a key, and counts that. Returns its block, if it was cached.
    pub(crate) fn remove(&self, hash: &KeyHash) -> Option<Entry> {
        let gone = self.take_out(hash);
        if gone.is_some() {
            add(&self.counters.removes, 1);
        }
        gone
    }

    /// Removes a key, and supersedes inserts of it under way. Returns its block, if it was cached.
    pub(crate) fn take_out(&self, hash: &KeyHash) -> Option<Entry> {
        self.flights.part(hash);
        let gate = read(&self.gate);
        let gone = self.index.remove(hash, |gone| self.note_remove(hash, &gone));
        if let Some(gone) = &gone {
            lock(&self.alloc).free(&gone.extent);
        }
        drop(gate);
        self.memory.remove(hash);
        gone
    }
}
