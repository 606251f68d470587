//! A bounded amount of memory that connections share.
//!
//! # Why
//! Clients must not decide how much memory the server takes: neither by requests that they never complete, nor by
//! replies that they never read.
//!
//! # How it works
//! A semaphore whose permits are units of [`UNIT_BYTES`]. What takes memory holds permits, and returns them when dropped.
//! The length of a value is known only once it is read, so a read takes the mean of the last ones first
//! ([`MeanLength`]): of many reads at once, the sum is right.
//!
//! # Limits
//! The memory is not set aside: the budget only bounds what its users take.
//!
//! # Example
//! `Budget::new(1 << 20).try_take(&mut None, 4096)`

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Unit of a budget, in bytes.
const UNIT_BYTES: usize = 1 << 10;
/// Values over which a mean is taken: few, so that the first ones soon count instead of their bound.
const MEAN_OF: usize = 8;

/// A bounded amount of memory. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    free: Arc<Semaphore>,
    units: usize,
}

impl Budget {
    /// Returns a budget of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Budget {
        let units = usize::try_from(bytes).unwrap_or(usize::MAX) / UNIT_BYTES;
        // A permit counts its units in 32 bits.
        let units = units.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Budget { free: Arc::new(Semaphore::new(units)), units }
    }

    /// Returns the bytes of the whole budget.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.units * UNIT_BYTES
    }

    /// Extends `taken` to `bytes`. Returns whether there is as much.
    pub fn try_take(&self, taken: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let has = taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = u32::try_from(bytes.div_ceil(UNIT_BYTES).saturating_sub(has)).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.free).try_acquire_many_owned(missing) else { return false };
        match taken {
            Some(taken) => taken.merge(permit),
            taken => *taken = Some(permit),
        }
        true
    }

    /// Takes `bytes`, at most [`Budget::total_bytes`], once there are as much.
    ///
    /// # Errors
    /// None: the budget is never closed.
    pub async fn take(&self, bytes: usize) -> io::Result<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        Arc::clone(&self.free).acquire_many_owned(units).await.map_err(io::Error::other)
    }
}

/// The mean length of the values read last. Clones share it.
#[derive(Clone, Debug)]
pub struct MeanLength(Arc<AtomicUsize>);

impl MeanLength {
    /// Returns the mean before the first value, whose length is at most `most_bytes`.
    #[must_use]
    pub fn new(most_bytes: usize) -> MeanLength {
        MeanLength(Arc::new(AtomicUsize::new(most_bytes)))
    }

    /// Returns the mean, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a value. If two count at the same moment, one may be lost.
    pub fn add(&self, len_bytes: usize) {
        let before = self.bytes();
        self.0.store(before - before / MEAN_OF + len_bytes / MEAN_OF, Ordering::Relaxed);
    }
}
