//! An operation in flight in a simulated world: its effect, and its result.
//!
//! # Why
//! The effect of an operation is the same whether it lands, is in flight when the power fails, or when its disk leaves;
//! it is defined here once.
//!
//! # How it works
//! A backend makes a [`Flight`], the machine launches it into a device as [`Launched`], and the backend receives
//! [`Landed`].
//!
//! # Limits
//! A flight owns a copy of the data that it writes, unless the world keeps no contents.
//!
//! # Example
//! A write of 8192 bytes at 4096 becomes a change that writes them, or without contents a change that grows the file to
//! 12 288 bytes.

use super::image::Change;
use crate::backend::{Kind, OpResult};

/// An operation that has ended and not yet been reaped.
pub(super) struct Landed {
    pub(super) key: usize,
    pub(super) result: OpResult,
    /// The data of a read.
    pub(super) data: Vec<u8>,
}

/// An operation in a device.
pub(super) struct Flight {
    pub(super) member: usize,
    pub(super) key: usize,
    pub(super) file: usize,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    /// Bytes to move; 0 for operations that move none.
    pub(super) len_bytes: u32,
    /// The data of a write; empty in a world that keeps no contents.
    pub(super) data: Vec<u8>,
    pub(super) is_dsync: bool,
}

impl Flight {
    /// Returns the complete effect on the file, or `None` if the operation changes no data (reads, syncs).
    pub(super) fn into_change(self, keep_contents: bool) -> Option<Change> {
        let Flight { offset, len_bytes, data, .. } = self;
        match self.kind {
            Kind::Write if keep_contents => Some(Change::Write { offset, data }),
            Kind::Write => Some(Change::Grow { len_bytes: offset.saturating_add(u64::from(len_bytes)) }),
            Kind::Discard { len_bytes } => Some(Change::Discard { offset, len_bytes }),
            Kind::Allocate { len_bytes, keep_size: false } => {
                Some(Change::Grow { len_bytes: offset.saturating_add(len_bytes) })
            }
            Kind::SetLen { len_bytes } => Some(Change::SetLen { len_bytes }),
            Kind::Allocate { .. } | Kind::Read | Kind::Sync { .. } => None,
        }
    }
}

/// A flight under way.
pub(super) struct Launched {
    pub(super) flight: Flight,
    /// Serial number of the launch, ascending.
    pub(super) serial: u64,
    /// For a sync: the file's next log serial when it was submitted.
    pub(super) sync_before: u64,
}
