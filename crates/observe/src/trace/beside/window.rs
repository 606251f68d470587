//! The kernel's requests around the end of one of ours.
//!
//! **Why.** Both traces are longer than memory, and requests that belong together end at nearly the same time.
//!
//! **How.** Spans of the kernel's trace come in the order of their ends. [`Window::read_to`] reads them up to the end
//! of one of ours. They are kept by time, to search while distances are unknown, and by place. Pieces of a request that
//! the kernel split are joined.
//!
//! **Limits.** Requests are kept for [`KEEP_NS`], and at most [`KEEP_MAX`] of them.
//!
//! **Example.** For our request from 10 us to 90 us, [`Window::within`] returns those that began and ended in between.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::Receiver;

use plimsoll::core::Op;

use crate::trace::span::Span;

/// How long a request of the kernel is kept, and most requests kept.
const KEEP_NS: u64 = 2_000_000_000;
const KEEP_MAX: usize = 1 << 18;
/// Most requests of the kernel examined for one of ours: those that ended last. The second bound is for one distance.
const LOOK_MAX: usize = 256;
const LOOK_THERE_MAX: usize = 1024;

/// A request of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below {
    pub(super) disk: u16,
    pub(super) op: Op,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    pub(super) queued_ns: u64,
    pub(super) submitted_ns: u64,
    pub(super) completed_ns: u64,
    /// Pieces that it was joined from.
    pub(super) pieces: u32,
    /// The number of the request that the kernel split.
    pub(super) split: Option<u64>,
    pub(super) is_ours: bool,
}

/// Time of completion, and a running number.
pub(super) type Place = (u64, u64);

/// The kernel's requests that ended recently.
pub(super) struct Window {
    from: Receiver<Vec<Span>>,
    spans: std::vec::IntoIter<Span>,
    pub(super) below: BTreeMap<Place, Below>,
    /// The same requests by disk and offset.
    places: BTreeSet<(u16, u64, Place)>,
    /// The joined piece so far of each request that the kernel split.
    split: HashMap<u64, Place>,
    /// Length of the longest request so far.
    pub(super) longest_bytes: u64,
    read_ns: u64,
    number: u64,
    /// The time from our first dispatch to our last completion.
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    foreign: u64,
}

impl Window {
    pub(super) fn new(from: Receiver<Vec<Span>>) -> Window {
        Window {
            from,
            spans: Vec::new().into_iter(),
            below: BTreeMap::new(),
            places: BTreeSet::new(),
            split: HashMap::new(),
            longest_bytes: 0,
            read_ns: 0,
            number: 0,
            begin_ns: u64::MAX,
            end_ns: 0,
            foreign: 0,
        }
    }

    /// Reads until a request ends later than `time_ns`, then drops those that are too old.
    pub(super) fn read_to(&mut self, time_ns: u64) {
        while self.read_ns <= time_ns {
            let Some(span) = self.spans.next() else {
                match self.from.recv() {
                    Ok(batch) => self.spans = batch.into_iter(),
                    Err(_) => break,
                }
                continue;
            };
            let (Some(submitted_ns), Some(completed_ns)) = (span.submitted_ns, span.completed_ns) else { continue };
            self.read_ns = self.read_ns.max(completed_ns);

            let mut below = Below {
                disk: span.disk,
                op: span.op,
                offset_bytes: span.offset_bytes,
                len_bytes: u64::from(span.len_bytes),
                queued_ns: span.queued_ns.unwrap_or(submitted_ns),
                submitted_ns,
                completed_ns,
                pieces: 1,
                split: span.is_split.then_some(span.request),
                is_ours: false,
            };
            // Join what the kernel has split.
            let other = below.split.and_then(|request| self.split.get(&request)).copied();
            if let Some(other) = other.and_then(|place| self.remove(place)) {
                below = other.with(&below);
            }
            self.insert(below);
            if self.below.len() > KEEP_MAX {
                self.forget_first();
            }
        }

        while self.below.first_key_value().is_some_and(|(place, _)| place.0.saturating_add(KEEP_NS) < time_ns) {
            self.forget_first();
        }
    }

    fn insert(&mut self, below: Below) {
        self.number += 1;
        let place = (below.completed_ns, self.number);
        self.longest_bytes = self.longest_bytes.max(below.len_bytes);
        self.places.insert((below.disk, below.offset_bytes, place));
        if let Some(request) = below.split {
            self.split.insert(request, place);
        }
        self.below.insert(place, below);
    }

    fn remove(&mut self, place: Place) -> Option<Below> {
        let below = self.below.remove(&place)?;
        self.places.remove(&(below.disk, below.offset_bytes, place));
        if let Some(request) = below.split {
            self.split.remove(&request);
        }
        Some(below)
    }

    fn forget_first(&mut self) {
        let first = self.below.first_key_value().map(|(place, _)| *place);
        if let Some(below) = first.and_then(|place| self.remove(place)) {
            let is_during = below.queued_ns >= self.begin_ns && below.completed_ns <= self.end_ns;
            self.foreign += u64::from(is_during && below.op.is_transfer() && !below.is_ours);
        }
    }

    pub(super) fn finish(mut self) -> u64 {
        while !self.below.is_empty() {
            self.forget_first();
        }
        // Drain the channel, so that the reader does not wait for room.
        while self.from.recv().is_ok() {}
        self.foreign
    }

    /// Returns the requests that may be part of `span`: of the same operation, within its time, the latest end first.
    pub(super) fn within(&self, span: &Span) -> Vec<(Place, Below)> {
        let Some((begin_ns, end_ns)) = time_of(span) else { return Vec::new() };
        let inside = self.below.range((begin_ns, 0)..=(end_ns, u64::MAX)).rev().take(LOOK_MAX);
        inside.filter(|(_, below)| below.may_be_of(span)).map(|(place, below)| (*place, *below)).collect()
    }

    /// Returns the requests that begin at one of these offsets and may be part of `span`.
    pub(super) fn between(&self, span: &Span, disk: u16, first: u64, last: u64) -> Vec<(Place, Below)> {
        let here = (disk, first, (0, 0))..=(disk, last, (u64::MAX, u64::MAX));
        let found = self.places.range(here).take(LOOK_THERE_MAX);
        let found = found.filter_map(|(.., place)| Some((*place, *self.below.get(place)?)));
        found.filter(|(_, below)| below.may_be_of(span)).collect()
    }
}

/// Returns the time from a span's dispatch to its completion.
pub(super) fn time_of(span: &Span) -> Option<(u64, u64)> {
    let (begin_ns, end_ns) = (span.dispatched_ns.or(span.submitted_ns)?, span.completed_ns?);
    (begin_ns <= end_ns).then_some((begin_ns, end_ns))
}

impl Below {
    fn may_be_of(&self, span: &Span) -> bool {
        let is_in_time = |(begin_ns, end_ns)| self.queued_ns >= begin_ns && self.completed_ns <= end_ns;
        self.op == span.op && time_of(span).is_some_and(is_in_time)
    }

    /// Returns both as one request.
    pub(super) fn with(&self, other: &Below) -> Below {
        Below {
            offset_bytes: self.offset_bytes.min(other.offset_bytes),
            len_bytes: self.len_bytes + other.len_bytes,
            queued_ns: self.queued_ns.min(other.queued_ns),
            submitted_ns: self.submitted_ns.min(other.submitted_ns),
            completed_ns: self.completed_ns.max(other.completed_ns),
            pieces: self.pieces.saturating_add(other.pieces),
            ..*self
        }
    }
}
