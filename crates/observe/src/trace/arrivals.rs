//! The requests of a trace in the order of their submission.
//!
//! **Why.** Readers hand over pieces in the order of their ends. A replay needs whole requests in the order of their
//! beginnings.
//!
//! **How.** [`Arrivals`] holds at most [`HELD_MAX`] requests, sorted by the time they were queued, joins the pieces of
//! one request, and hands over the earliest request when there are more.
//!
//! **Limits.** A request that ends more than [`HELD_MAX`] requests after its turn is handed over out of order and
//! counted in [`Arrivals::unordered`]. If a request was queued before the trace began, its first known time stands for
//! that. Requests of which only the end is known, and cancelled ones, are left out and counted.
//!
//! **Example.** Two reads, the first of which ended last:
//! ```
//! use plimsoll_observe::trace::arrivals::Arrivals;
//! use plimsoll_observe::trace::read_from;
//!
//! let text = "8,0 1 1 0.000001 9 Q R 2048 + 8 [db]\n8,0 1 2 0.000002 9 Q R 4096 + 8 [db]\n\
//!             8,0 1 3 0.000003 9 D R 4096 + 8 [db]\n8,0 1 4 0.000004 0 C R 4096 + 8 [0]\n\
//!             8,0 1 5 0.000005 9 D R 2048 + 8 [db]\n8,0 1 6 0.000006 0 C R 2048 + 8 [0]\n";
//! let mut offsets = Vec::new();
//! let mut arrivals = Arrivals::new();
//! read_from(text.as_bytes(), &mut |item| arrivals.visit(&item, &mut |arrival| offsets.push(arrival.offset_bytes)))?;
//! arrivals.finish(&mut |arrival| offsets.push(arrival.offset_bytes));
//! assert_eq!(offsets, [2048 * 512, 4096 * 512]);
//! # Ok::<(), plimsoll_observe::trace::TraceError>(())
//! ```

use std::collections::BTreeMap;

use plimsoll::core::Op;

use super::span::{Item, Span};

/// Most requests held at one time.
pub const HELD_MAX: usize = 1 << 17;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the request was submitted, in ns on the clock of the trace.
    pub queued_ns: u64,
    /// The submitting shard; the CPU in a kernel trace.
    pub shard: u16,
    pub class: u16,
    pub disk: u16,
    pub file: u32,
    pub op: Op,
    /// Bytes from the beginning of the file, or of the disk in a kernel trace.
    pub offset_bytes: u64,
    pub len_bytes: u32,
    /// Time from submission to the end in ns; `None` if the trace ends before.
    pub latency_ns: Option<u64>,
}

/// The order of held requests: time, shard, request, and the piece's number if pieces are not joined.
type Key = (u64, u16, u64, u16);

#[derive(Debug, Default)]
pub struct Arrivals {
    held: BTreeMap<Key, Arrival>,
    held_max: usize,
    last_ns: u64,
    pub given: u64,
    /// Requests handed over after one that was queued later.
    pub unordered: u64,
    /// Requests left out because only the end is known.
    pub without_begin: u64,
    pub cancelled: u64,
}

impl Arrivals {
    /// Returns an empty collection that holds at most [`HELD_MAX`] requests.
    pub fn new() -> Arrivals {
        Arrivals::holding(HELD_MAX)
    }

    fn holding(held_max: usize) -> Arrivals {
        Arrivals { held_max, ..Arrivals::default() }
    }

    /// Takes the next item of the trace; calls `give` with each request that is due.
    pub fn visit(&mut self, item: &Item, give: &mut dyn FnMut(Arrival)) {
        let Item::Span(span) = item else { return };
        if span.is_cancelled {
            self.cancelled += 1;
            return;
        }
        let Some(queued_ns) = span.queued_ns.or(span.dispatched_ns).or(span.submitted_ns) else {
            self.without_begin += 1;
            return;
        };
        self.hold(span, queued_ns);
        while self.held.len() > self.held_max {
            self.give_first(give);
        }
    }

    /// Ends the trace: calls `give` with the remaining requests.
    pub fn finish(&mut self, give: &mut dyn FnMut(Arrival)) {
        while !self.held.is_empty() {
            self.give_first(give);
        }
    }

    fn hold(&mut self, span: &Span, queued_ns: u64) {
        let end_ns = span.reaped_ns.or(span.completed_ns);
        let piece = Arrival {
            queued_ns,
            shard: span.shard,
            class: span.class,
            disk: span.disk,
            file: span.file,
            op: span.op,
            offset_bytes: span.offset_bytes,
            len_bytes: span.len_bytes,
            latency_ns: end_ns.and_then(|end_ns| end_ns.checked_sub(queued_ns)),
        };
        let number = if span.is_split && span.queued_ns.is_some() { 0 } else { span.piece };
        let key = (queued_ns, span.shard, span.request, number);
        self.held.entry(key).and_modify(|whole| whole.add(&piece)).or_insert(piece);
    }

    fn give_first(&mut self, give: &mut dyn FnMut(Arrival)) {
        let Some((_, arrival)) = self.held.pop_first() else { return };
        self.given += 1;
        self.unordered += u64::from(arrival.queued_ns < self.last_ns);
        self.last_ns = self.last_ns.max(arrival.queued_ns);
        give(arrival);
    }
}

impl Arrival {
    /// Returns the offset of the byte after its last.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(u64::from(self.len_bytes))
    }

    /// Joins another piece of the same request.
    fn add(&mut self, piece: &Arrival) {
        let end_bytes = self.end_bytes().max(piece.end_bytes());
        self.offset_bytes = self.offset_bytes.min(piece.offset_bytes);
        self.len_bytes = u32::try_from(end_bytes - self.offset_bytes).unwrap_or(u32::MAX);
        // A request ends with its last piece. If the end of one piece is unknown, so is the request's.
        self.latency_ns = self.latency_ns.zip(piece.latency_ns).map(|(mine_ns, theirs_ns)| mine_ns.max(theirs_ns));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a read of 4 KiB that was queued and then came back.
    pub(crate) fn span(queued_ns: u64, reaped_ns: u64) -> Span {
        Span {
            class: 1,
            file: 1,
            cost_ns: Some(100),
            queued_ns: Some(queued_ns),
            dispatched_ns: Some(queued_ns + 1),
            submitted_ns: Some(queued_ns + 2),
            completed_ns: Some(reaped_ns),
            reaped_ns: Some(reaped_ns),
            ..Span::new(Op::Read, 1, 8192, 4096)
        }
    }

    fn given(arrivals: &mut Arrivals, spans: &[Span]) -> Vec<Arrival> {
        let mut given = Vec::new();
        for span in spans {
            arrivals.visit(&Item::Span(*span), &mut |arrival| given.push(arrival));
        }
        arrivals.finish(&mut |arrival| given.push(arrival));
        given
    }

    #[test]
    fn they_come_in_the_order_of_their_beginnings() {
        let spans = [(30, 40), (10, 50), (20, 60)].map(|(queued, reaped)| span(queued, reaped));
        let spans: Vec<Span> = (1..).zip(spans).map(|(request, span)| Span { request, ..span }).collect();
        let mut arrivals = Arrivals::new();
        let order: Vec<u64> = given(&mut arrivals, &spans).iter().map(|arrival| arrival.queued_ns).collect();
        assert_eq!((order, arrivals.given, arrivals.unordered), (vec![10, 20, 30], 3, 0));
        let mut arrivals = Arrivals::holding(1);
        let order: Vec<u64> = given(&mut arrivals, &spans).iter().map(|arrival| arrival.queued_ns).collect();
        assert_eq!((order, arrivals.unordered), (vec![10, 20, 30], 0), "one is enough here");
        let mut arrivals = Arrivals::holding(0);
        assert_eq!((given(&mut arrivals, &spans).len(), arrivals.unordered), (3, 2));
    }

    #[test]
    fn pieces_are_one_request_again() {
        let piece = |piece: u16, reaped_ns| Span {
            piece,
            is_split: true,
            offset_bytes: 4096 * u64::from(piece),
            ..span(10, reaped_ns)
        };
        let mut arrivals = Arrivals::new();
        let all = given(&mut arrivals, &[piece(1, 20), piece(0, 40), piece(2, 30)]);
        let [whole] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((whole.offset_bytes, whole.len_bytes, whole.latency_ns), (0, 3 * 4096, Some(30)));
        let unknown = Span { reaped_ns: None, completed_ns: None, ..piece(1, 20) };
        assert_eq!(given(&mut arrivals, &[piece(0, 20), unknown])[0].latency_ns, None);
    }

    #[test]
    fn what_has_no_beginning_or_was_taken_back_is_left_out() {
        let no_begin = Span { queued_ns: None, dispatched_ns: None, submitted_ns: None, ..span(1, 2) };
        let cancelled = Span { is_cancelled: true, ..span(1, 2) };
        let late_seen = Span { queued_ns: None, ..span(1, 20) };
        let mut arrivals = Arrivals::new();
        let all = given(&mut arrivals, &[no_begin, cancelled, late_seen]);
        assert_eq!((all.len(), arrivals.without_begin, arrivals.cancelled), (1, 1, 1));
        assert_eq!((all[0].queued_ns, all[0].latency_ns), (2, Some(18)));
    }
}
