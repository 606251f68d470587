//! Latencies of a client's operations, in total and per second.
//!
//! # Why
//! The live line, the result, the histogram log and `plimsoll compare` need the same latencies in different sums.
//!
//! # How it works
//! Threads put the latencies of their operations into a [`Tally`]; a reader takes those added since its last call.
//!
//! # Limits
//! Latencies above an hour count as an hour. Histograms hold three digits.
//!
//! # Example
//! `tally.note(Kind::Read, latency_ns, bytes, End::Done)`

use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;

/// Longest latency kept, in nanoseconds.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a value.
    Read,
    /// Writes a value.
    Write,
}

impl Kind {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
        }
    }
}

/// Operations of one kind in a period.
#[derive(Clone, Debug)]
pub struct Part {
    /// Latencies in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Operations that failed.
    pub errors: u64,
    /// Reads of keys that have no value.
    pub missing: u64,
    /// Bytes of values written.
    pub bytes: u64,
}

impl Part {
    /// Returns an empty part.
    #[must_use]
    pub fn new() -> Part {
        #[allow(clippy::unwrap_used, reason = "the arguments are constants")]
        let latencies = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).unwrap();
        Part { latencies, errors: 0, missing: 0, bytes: 0 }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Part) {
        // Both have the same bounds.
        let _ = self.latencies.add(&other.latencies);
        self.errors += other.errors;
        self.missing += other.missing;
        self.bytes += other.bytes;
    }

    /// Returns the mean latency in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.latencies.mean()
    }
}

impl Default for Part {
    fn default() -> Part {
        Part::new()
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a value, or written.
    Done,
    /// With no value.
    Missing,
    /// With an error.
    Failed,
}

/// The operations that threads have done and no reader has taken.
#[derive(Debug, Default)]
pub struct Tally {
    parts: [Mutex<Part>; 2],
}

impl Tally {
    /// Records an operation.
    pub fn note(&self, kind: Kind, latency_ns: u64, bytes: u64, end: End) {
        let mut part = self.parts[kind as usize].lock().unwrap_or_else(PoisonError::into_inner);
        match end {
            End::Failed => part.errors += 1,
            End::Done | End::Missing => {
                part.latencies.saturating_record(latency_ns.max(1));
                part.bytes += bytes;
                part.missing += u64::from(end == End::Missing);
            }
        }
    }

    /// Takes the operations recorded since the last call, by kind.
    pub fn take(&self) -> [Part; 2] {
        let take = |part: &Mutex<Part>| std::mem::take(&mut *part.lock().unwrap_or_else(PoisonError::into_inner));
        [take(&self.parts[0]), take(&self.parts[1])]
    }
}
