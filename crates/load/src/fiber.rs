//! A fiber: a sequence of requests (or batches), one at a time, of one job on one shard.
//!
//! **Why.** A fiber keeps only the state between two requests: a shard can have thousands of them without a stack for
//! any.
//!
//! **How.** [`super::prepare`] makes the fibers of a shard, [`super::runner`] turns them.
//!
//! **Limits.** A fiber does nothing by itself.
//!
//! **Example.** A job with parallelism 4 has four fibers on each shard.

use plimsoll::Data;

use super::work::Sent;

/// What a fiber does next when its timer fires.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Then {
    #[default]
    Send,
    /// Decides on the next step.
    GoOn,
}

/// A sequence of requests or batches of one job.
#[derive(Default)]
pub(super) struct Fiber {
    pub(super) job: usize,
    pub(super) buffers: Vec<Data>,
    pub(super) outstanding: u32,
    /// When the current request was due; latency counts from here.
    pub(super) due_ns: u64,
    /// End of the active phase of a thinking job.
    pub(super) phase_end_ns: u64,
    pub(super) then: Then,
    /// Writes since the last flush.
    pub(super) unflushed: u32,
    /// When the flush in flight was sent; 0 if there is none.
    pub(super) flush_sent_ns: u64,
    /// The request in flight of each buffer; empty for plain jobs.
    pub(super) sent: Vec<Sent>,
    pub(super) has_ended: bool,
}

impl Fiber {
    /// Returns a fiber of job number `job` that keeps a record of `remembered` requests.
    pub(super) fn new(job: usize, buffers: Vec<Data>, remembered: usize) -> Fiber {
        Fiber { job, buffers, sent: vec![Sent::default(); remembered], ..Fiber::default() }
    }

    /// Returns the requests that were due and have not completed, flushes not counted.
    pub(super) fn under_way(&self) -> u64 {
        if self.flush_sent_ns > 0 { 0 } else { u64::from(self.outstanding) }
    }
}
