//! Memory that a backend has registered with the system, and its release.
//!
//! # Why
//! Registered memory is pinned, and its places are few, so it must be unregistered with the last buffer in it. That
//! buffer may be dropped on any thread, even after the backend, but the region must be unregistered on the backend's
//! own thread.
//!
//! # How it works
//! [`Backend::register_memory`](super::Backend::register_memory) returns a [`Region`]. Dropping it puts its number on
//! the list of the backend ([`Returned`]) and wakes the backend, which takes the list at the next `reap` or `wait`.
//!
//! # Limits
//! 2^32 - 1 regions in the life of a process; numbers are never reused.
//!
//! # Example
//! ```
//! use plimsoll::backend::{Backend, Returned, null::NullBackend};
//! let backend = NullBackend::new()?;
//! let returned = Returned::new(&backend.wake_handle());
//! let region = returned.region().expect("numbers are not used up");
//! let id = region.id();
//! assert!(!returned.is_any());
//! std::thread::spawn(move || drop(region)).join().unwrap();
//! assert_eq!((returned.is_any(), returned.take()), (true, vec![id]));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Wake, WakeHandle};

/// Name of a registered region. No two regions of a process share a name, so memory registered with another backend is
/// unknown to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(NonZeroU32);

/// A region that a backend has registered. Dropping it, on any thread, makes the backend unregister it.
#[derive(Debug)]
pub struct Region {
    id: RegionId,
    returned: Arc<Returned>,
}

impl Region {
    /// Returns the region's name, for [`Memory::Contiguous`](super::Memory::Contiguous).
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.id
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let Returned { ids, is_any, wake } = &*self.returned;
        ids.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        is_any.store(true, Ordering::Release);
        if let Some(wake) = wake.upgrade() {
            wake.wake();
        }
    }
}

/// The dropped regions of one backend.
pub struct Returned {
    ids: Mutex<Vec<RegionId>>,
    is_any: AtomicBool,
    /// Weak, because the backend may be dropped first.
    wake: Weak<dyn Wake>,
}

impl std::fmt::Debug for Returned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Returned").field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl Returned {
    /// Returns the list of the backend that `wake` wakes.
    #[must_use]
    pub fn new(wake: &WakeHandle) -> Arc<Returned> {
        Arc::new(Returned { ids: Mutex::default(), is_any: AtomicBool::new(false), wake: Arc::downgrade(wake) })
    }

    /// Returns a region with a new name, or `None` if no names are left.
    #[must_use]
    pub fn region(self: &Arc<Returned>) -> Option<Region> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let next = |last: u32| last.checked_add(1);
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let id = RegionId(NonZeroU32::new(last.checked_add(1)?)?);
        Some(Region { id, returned: Arc::clone(self) })
    }

    /// Returns whether [`Returned::take`] would return any region. Costs one load.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Returns the regions dropped since the last call.
    pub fn take(&self) -> Vec<RegionId> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *ids)
    }
}
