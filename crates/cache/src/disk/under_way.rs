//! Operations in flight: how many, and since when the oldest read has been.
//!
//! # Why
//! On a disk that hangs no operation ends, so only the beginnings of operations reveal it.
//!
//! # Limits
//! The age of a read is known to a tenth of a second, up to 6.3 s.
//!
//! # Example
//! A read that began 2.35 s ago is 2.2 or 2.3 s old.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll::Shard;

use super::CacheDisk;
use crate::stats::{IoCounters, IoKind};
use crate::sync::lock;

/// Counts an operation as in flight until it has ended, or its future is dropped.
pub(super) struct UnderWay<'a>(Option<&'a IoCounters>);

impl<'a> UnderWay<'a> {
    pub(super) fn new(counters: &'a IoCounters) -> UnderWay<'a> {
        counters.began();
        UnderWay(Some(counters))
    }

    pub(super) fn ended(mut self, bytes: u64, took_ns: u64, is_ok: bool) {
        if let Some(counters) = self.0.take() {
            counters.ended(bytes, took_ns, is_ok);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(counters) = self.0.take() {
            counters.given_up();
        }
    }
}

/// Size that a read in flight is taken to have, in bytes: sizes are not kept.
pub(super) const TYPICAL_READ_BYTES: u32 = 8192;

/// Counts the reads in flight by the tenth of a second in which they began, for the last 64.
pub(super) struct ReadsUnderWay([AtomicU32; READ_AGES]);

impl Default for ReadsUnderWay {
    fn default() -> ReadsUnderWay {
        ReadsUnderWay(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

const READ_AGES: usize = 64;

/// Resolution of ages, in nanoseconds.
const READ_AGE_NS: u64 = 100_000_000;

/// A read in flight; counted until dropped.
pub(super) struct Watched<'a> {
    disk: &'a CacheDisk,
    shard: &'a Shard,
    kind: IoKind,
    begin_ns: u64,
    len_bytes: u32,
    pub(super) has_ended: bool,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let before = self.disk.reads.count(self.begin_ns).fetch_sub(1, Relaxed);
        debug_assert!(before > 0, "a read ends that did not begin");
        if !self.has_ended {
            let now_ns = self.shard.now_ns();
            let took_ns = now_ns.saturating_sub(self.begin_ns);
            if self.kind == IoKind::LookupRead {
                lock(&self.disk.pace).hit(self.begin_ns, now_ns);
            }
            self.disk.judge(|health| health.read_given_up(now_ns, self.len_bytes, took_ns));
        }
    }
}

impl CacheDisk {
    pub(super) fn watch_read<'a>(
        &'a self,
        shard: &'a Shard,
        kind: IoKind,
        begin_ns: u64,
        len_bytes: u32,
    ) -> Watched<'a> {
        self.reads.count(begin_ns).fetch_add(1, Relaxed);
        Watched { disk: self, shard, kind, begin_ns, len_bytes, has_ended: false }
    }
}

impl ReadsUnderWay {
    /// Returns the counter of the tenth of a second of `begin_ns`.
    fn count(&self, begin_ns: u64) -> &AtomicU32 {
        &self.0[(begin_ns / READ_AGE_NS) as usize % READ_AGES]
    }

    pub(super) fn oldest_ns(&self, now_ns: u64) -> Option<u64> {
        let now = now_ns / READ_AGE_NS;
        // Age 0 would be a read that has only begun.
        let is_there = |age: &u64| self.0[(now.wrapping_sub(*age)) as usize % READ_AGES].load(Relaxed) > 0;
        (1..READ_AGES as u64).rev().find(is_there).map(|age| (age - 1) * READ_AGE_NS)
    }
}
