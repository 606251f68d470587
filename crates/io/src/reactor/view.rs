//! A view of a reactor on which futures run: all methods but those for requests and turns.
//!
//! # Why
//! The futures of a shard own the tags of its requests. If a caller submitted or reaped beside them, it would take
//! their completions, or they its own.
//!
//! # How it works
//! A view borrows the reactor and has the methods that neither begin nor end a request.
//!
//! # Limits
//! The reactor is borrowed as long as the view lives: do not hold it across an `await`.
//!
//! # Example
//! ```
//! # use plimsoll::{Class, Classes, DiskSetup, Reactor, Shard, Topology};
//! # let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
//! # let (backend, _) = plimsoll::backend::choose::probe(Some(plimsoll::backend::choose::BackendKind::Null), 8)?;
//! let shard = Shard::new(Reactor::new(0, &topology, backend)?);
//! assert_eq!(shard.reactor().under_way(), 0);
//! assert!(shard.reactor().class_stats(0, Class::DEFAULT).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::RefMut;
use std::io;
use std::sync::Arc;

use plimsoll_core::{ClassStats, Latencies, Snapshot};

use super::Reactor;
use crate::backend::FileInfo;
use crate::buffer::Buffers;
use crate::class::Class;
use crate::file::SharedFile;
use crate::topology::Topology;

/// A borrowed [`Reactor`]. Each method is the reactor's of the same name; none begins or ends a request:
/// ```compile_fail,E0599
/// fn steal(shard: &plimsoll::Shard) {
///     shard.reactor().reap(&mut Vec::new());
/// }
/// ```
pub struct ReactorView<'a>(RefMut<'a, Reactor>);

impl<'a> ReactorView<'a> {
    pub(crate) fn new(reactor: RefMut<'a, Reactor>) -> ReactorView<'a> {
        ReactorView(reactor)
    }

    /// Returns the number of the shard, as [`Reactor::shard`].
    #[must_use]
    pub fn shard(&self) -> u16 {
        self.0.shard()
    }

    /// Returns the topology, as [`Reactor::topology`].
    #[must_use]
    pub fn topology(&self) -> &Topology {
        self.0.topology()
    }

    /// Returns the number of requests under way, as [`Reactor::under_way`].
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.under_way()
    }

    /// Returns the number of pieces in the backend, as [`Reactor::in_backend`].
    #[must_use]
    pub fn in_backend(&self) -> usize {
        self.0.in_backend()
    }

    /// Returns buffers for I/O, registered if possible, as [`Reactor::make_buffers`].
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn make_buffers(&mut self, count: usize, len_bytes: usize) -> io::Result<Buffers> {
        self.0.make_buffers(count, len_bytes)
    }

    /// Opens a file on this shard, as [`Reactor::open`].
    ///
    /// # Errors
    /// The system's error.
    pub fn open(&mut self, file: &Arc<SharedFile>) -> io::Result<FileInfo> {
        self.0.open(file)
    }

    /// Returns the length of a file in bytes, as [`Reactor::file_len`].
    ///
    /// # Errors
    /// The system's error.
    pub fn file_len(&mut self, file: &Arc<SharedFile>) -> io::Result<u64> {
        self.0.file_len(file)
    }

    /// Sets the length of a file, as [`Reactor::set_file_len`].
    ///
    /// # Errors
    /// The system's error.
    pub fn set_file_len(&mut self, file: &Arc<SharedFile>, len_bytes: u64) -> io::Result<()> {
        self.0.set_file_len(file, len_bytes)
    }

    /// Returns the state of this shard's queue of `disk`, as [`Reactor::snapshot`].
    #[must_use]
    pub fn snapshot(&self, disk: u16) -> Option<Snapshot> {
        self.0.snapshot(disk)
    }

    /// Returns the counters of a class, as [`Reactor::class_stats`].
    #[must_use]
    pub fn class_stats(&self, disk: u16, class: Class) -> Option<ClassStats> {
        self.0.class_stats(disk, class)
    }

    /// Calls `visit` with the latencies of a class, as [`Reactor::class_latencies`].
    pub fn class_latencies(&self, disk: u16, class: Class, visit: &mut dyn FnMut(&Latencies)) {
        self.0.class_latencies(disk, class, visit);
    }

    /// Clears all counters and histograms, as [`Reactor::reset_stats`].
    pub fn reset_stats(&mut self) {
        self.0.reset_stats();
    }
}
