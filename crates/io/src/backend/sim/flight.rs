//! An operation of a simulated world on its way: what it will do, and what comes of it.
//!
//! # Why
//! Whether an operation lands, is in flight when the power fails, or when its disk leaves, what it changes is the same;
//! it is told here once.
//!
//! # How it works
//! A backend makes a [`Flight`], the machine sends it into a device as [`Launched`], and what the backend gets back is
//! [`Landed`].
//!
//! # Limits
//! A flight owns a copy of what it writes, unless the world keeps no contents.
//!
//! # Example
//! A write of 8192 bytes at 4096 becomes a change that writes them, or without contents one that lets the file grow to
//! 12 288 bytes.

use super::image::Change;
use crate::backend::{Kind, OpResult};

/// An operation that has ended and not yet been reaped.
pub(super) struct Landed {
    pub(super) key: usize,
    pub(super) result: OpResult,
    /// What a read has read.
    pub(super) data: Vec<u8>,
}

/// An operation in a device.
pub(super) struct Flight {
    pub(super) member: usize,
    pub(super) key: usize,
    pub(super) file: usize,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    /// Bytes to move; 0 for what moves none.
    pub(super) len_bytes: u32,
    /// What is written; empty in a world that keeps no contents.
    pub(super) data: Vec<u8>,
    pub(super) is_dsync: bool,
}

impl Flight {
    /// What it does to its file when all of it happens; `None`: nothing, or only to what was there before.
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
    /// Rises from launch to launch.
    pub(super) serial: u64,
    /// Of a sync: what the log of its file held when it was submitted.
    pub(super) sync_before: u64,
}
