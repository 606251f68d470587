//! A program's own trace as spans: joins the events of one piece.
//!
//! **Why.** The file holds events as the shards wrote them; analyses want a piece with all its times. Recording may
//! have begun in the middle of requests, and events may be missing: existing events must be used, and missing ones
//! reported.
//!
//! **How.** Shards are matched one by one, so it does not matter how their chunks are interleaved. A request is found
//! by its number on its shard. A reaped piece goes to the visitor; the piece reaped last waits for the end of its
//! request, because it carries the time of the callback. If a request begins under a number that is still open (the
//! program was restarted and its files concatenated), the old request ends as it is.
//!
//! A file or class number that gets a different name (numbers of closed files are reused) stands for another file or
//! class from there on, and gets a free number of its own in spans and names.
//!
//! **Limits.** At most [`HELD_MAX`] requests and pieces are held, all shards together; beyond that the shard's oldest
//! request is handed over as it is and counted. A request that ended without a recorded callback is handed over after
//! [`ENDED_MAX`] later ends on its shard. If pieces of a request went out, its cancelled rest makes no span.
//!
//! **Example.** A read queued at 1,000 ns, dispatched at 1,500 and reaped at 9,000:
//! ```
//! use plimsoll::core::Op;
//! use plimsoll::core::trace::{Event, EventKind};
//! use plimsoll::trace::format::{Clock, Writer};
//! use plimsoll_observe::trace::own;
//! use plimsoll_observe::trace::span::Item;
//!
//! let at = |kind, time_ns| Event {
//!     time_ns, request: 1, offset_bytes: 0, len_bytes: 4096, detail: 0, class: 1, disk: 0, piece: 0, kind,
//!     op: Op::Read, reason: None,
//! };
//! let mut file = Vec::new();
//! let events = [at(EventKind::Queued, 1_000), at(EventKind::Dispatched, 1_500), at(EventKind::Reaped, 9_000)];
//! Writer::new(&mut file, Clock::Virtual, 0)?.events(0, 0, &events)?;
//! let mut spans = Vec::new();
//! own::read_own(&mut file.as_slice(), &mut |item| spans.push(item))?;
//! assert!(matches!(spans[0], Item::Span(span) if span.queued_ns == Some(1_000) && span.reaped_ns == Some(9_000)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Read;

use foldhash::fast::RandomState;
use plimsoll::core::trace::{Event, EventKind};
use plimsoll::trace::format::{Body, Clock, Lost, Names, Reader};
use plimsoll_figures::units::format_count;

use super::TraceError;
use super::show::Head;
use super::span::{Item, Origin, Span, Trace};

/// Most requests and pieces held at one time.
pub const HELD_MAX: usize = 1 << 19;

/// Most requests of a shard that have ended and wait for their callback.
pub const ENDED_MAX: usize = 1 << 14;

/// Most pieces held in flight for one request.
const PIECES_MAX: usize = 4096;

/// Longest list of pieces that is reused: a list of one piece has this capacity.
const SPARE_PIECES_MAX: usize = 4;

/// Hands the spans and other events of a trace in the `PLIMTRCE` format to `visit`. Damage after the head is no error:
/// see [`Trace::lost`].
pub fn read_own(input: &mut dyn Read, visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
    read_bounded(input, visit, HELD_MAX)
}

/// Returns the names, the earliest time and the clock of a trace in the `PLIMTRCE` format, without matching its events.
pub fn read_head(input: &mut dyn Read) -> Result<Head, TraceError> {
    let mut reader = Reader::new(input)?;
    let mut names = Renamed::default();
    let mut begin_ns: Option<u64> = None;
    while let Some(chunk) = reader.next_chunk()? {
        match chunk.body {
            Body::Names(more) => names.take(more),
            Body::Events(events) => {
                let times_ns = events.iter().filter(|event| is_a_beginning(event.kind)).map(|event| event.time_ns);
                begin_ns = begin_ns.into_iter().chain(times_ns).min();
            }
        }
    }
    let unix_at_zero_ns = unix_at_zero_ns(&reader).and_then(|ns| i64::try_from(ns).ok());
    Ok(Head { names: names.names, begin_ns, unix_at_zero_ns })
}

/// Returns whether a span or another item may begin with an event of this kind.
fn is_a_beginning(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Reaped | EventKind::Finished | EventKind::Callback | EventKind::Cancelled)
}

/// Returns the unix time in ns at time stamp 0, if the clock has one.
fn unix_at_zero_ns<R: Read>(reader: &Reader<R>) -> Option<u64> {
    Some(reader.unix_at_zero_ns()).filter(|unix_ns| reader.clock() == Clock::Monotonic && *unix_ns > 0)
}

fn read_bounded(input: &mut dyn Read, visit: &mut dyn FnMut(Item), held_max: usize) -> Result<Trace, TraceError> {
    let mut reader = Reader::new(input)?;
    let is_monotonic = reader.clock() == Clock::Monotonic;
    let unix_at_zero_ns = unix_at_zero_ns(&reader);
    let mut names = Renamed::default();
    let mut shards: BTreeMap<u16, Shard> = BTreeMap::new();
    let mut all = All { held_max, ..All::default() };

    while let Some(chunk) = reader.next_chunk()? {
        match chunk.body {
            Body::Names(more) => names.take(more),
            Body::Events(events) => {
                all.shard = chunk.shard;
                all.events += events.len() as u64;
                let shard = shards.entry(chunk.shard).or_default();
                for event in events {
                    shard.take(&names.translated(event), &mut all, visit);
                }
            }
        }
    }

    for (_, shard) in shards {
        shard.end(&mut all, visit);
    }

    Ok(Trace {
        origin: Origin::Own,
        names: names.names,
        unix_at_zero_ns,
        is_monotonic,
        events: all.events,
        spans: all.spans,
        lost: sentences(reader.lost(), &all),
        notes: Vec::new(),
    })
}

/// The names so far. If a number gets a different name, its later events get a free number.
struct Renamed {
    names: Names,
    classes: Numbers<u16>,
    files: Numbers<u32>,
}

impl Default for Renamed {
    fn default() -> Renamed {
        let (classes, files) = (Numbers::new(u32::from(u16::MAX) - 1), Numbers::new(u32::MAX - 1));
        Renamed { names: Names::default(), classes, files }
    }
}

impl Renamed {
    fn take(&mut self, more: Names) {
        for (number, class) in more.classes {
            self.classes.name(&mut self.names.classes, number, class, |a, b| a.name == b.name);
        }
        for (number, file) in more.files {
            self.files.name(&mut self.names.files, number, file, |a, b| a == b);
        }
        self.names.disks.extend(more.disks);
    }

    fn translated(&self, event: Event) -> Event {
        let is_queued = event.kind == EventKind::Queued;
        let detail = if is_queued { self.files.now(event.detail) } else { event.detail };
        Event { class: self.classes.now(event.class), detail, ..event }
    }
}

/// The present number of each number in the file.
struct Numbers<N> {
    now: BTreeMap<N, N>,
    /// Free numbers are searched from here downwards.
    free: u32,
}

impl<N: Copy + Ord + TryFrom<u32>> Numbers<N> {
    fn new(free: u32) -> Numbers<N> {
        Numbers { now: BTreeMap::new(), free }
    }

    fn now(&self, number: N) -> N {
        self.now.get(&number).copied().unwrap_or(number)
    }

    fn name<T>(&mut self, names: &mut BTreeMap<N, T>, number: N, name: T, is_same: impl Fn(&T, &T) -> bool) {
        let mut now = self.now(number);
        let is_another = names.get(&now).is_some_and(|known| !is_same(known, &name));
        if is_another && let Some(free) = self.next_free(names) {
            self.now.insert(number, free);
            now = free;
        }
        names.insert(now, name);
    }

    /// Returns a free number. If there is none, returns `None`, and the new name counts for the whole trace.
    fn next_free<T>(&mut self, names: &BTreeMap<N, T>) -> Option<N> {
        while self.free > 0 {
            let number = N::try_from(self.free).ok()?;
            self.free -= 1;
            if !names.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }
}

/// Most later requests of a class that may end before an earlier one, beyond twice those open at the end.
const OVERTAKERS_MAX: u64 = 64;

/// State shared by all shards.
#[derive(Default)]
struct All {
    shard: u16,
    events: u64,
    spans: u64,
    /// Requests and pieces held.
    held: usize,
    held_max: usize,
    /// Requests seen so far; a request's count is its birth number.
    born: u64,
    begun_before: u64,
    not_ended: u64,
    /// Requests without an end that too many later ones of their class overtook: their ends must have been lost.
    overtaken: u64,
    pushed_out: u64,
    restarted: u64,
    ends_of_nothing: u64,
    /// Memory of requests that were handed over, for reuse.
    #[expect(clippy::vec_box, reason = "boxes come from the map of requests, and go back as they are")]
    spare: Vec<Box<Request>>,
}

impl All {
    fn hand_over(&mut self, span: Span, visit: &mut dyn FnMut(Item)) {
        self.spans += 1;
        visit(Item::Span(span));
    }
}

/// A request that has not been handed over completely.
struct Request {
    born: u64,
    /// Requests of its class that had ended on its shard when it was born.
    ended_before: u64,
    /// The fields that its pieces have in common.
    base: Span,
    /// Pieces that have not been reaped.
    under_way: Vec<Span>,
    /// The piece reaped last.
    done: Option<Span>,
    /// Whether the request has ended; only its callback may follow.
    has_ended: bool,
}

impl Request {
    fn new(event: &Event, all: &mut All) -> Box<Request> {
        all.born += 1;
        all.held += 1;

        let base = Span {
            shard: all.shard,
            disk: event.disk,
            class: event.class,
            piece: event.piece,
            is_split: event.piece > 0,
            ..Span::new(event.op, event.request, event.offset_bytes, event.len_bytes)
        };

        let mut place = all.spare.pop();
        let under_way = place.as_mut().map(|earlier| std::mem::take(&mut earlier.under_way)).unwrap_or_default();
        let new = Request { born: all.born, ended_before: 0, base, under_way, done: None, has_ended: false };
        match place {
            Some(mut place) => {
                *place = new;
                place
            }
            None => Box::new(new),
        }
    }

    /// Returns the index of the event's piece, which is added if it is new.
    fn piece(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) -> usize {
        if let Some(at) = self.under_way.iter().position(|piece| piece.piece == event.piece) {
            return at;
        }
        if self.under_way.len() >= PIECES_MAX {
            all.pushed_out += 1;
            all.held -= 1;
            all.hand_over(self.under_way.remove(0), visit);
        }

        let is_part = self.base.queued_ns.is_some() && event.len_bytes < self.base.len_bytes;
        let is_split = event.piece > 0 || is_part || self.base.is_split;
        if is_split && !self.base.is_split {
            // If the request's beginning is not in the trace, only its second piece shows that it is split.
            self.base.is_split = true;
            self.under_way.iter_mut().chain(&mut self.done).for_each(|piece| piece.is_split = true);
        }

        all.held += 1;
        self.under_way.push(Span {
            piece: event.piece,
            offset_bytes: event.offset_bytes,
            len_bytes: event.len_bytes,
            ..self.base
        });
        self.under_way.len() - 1
    }

    /// Moves a piece to its next station.
    fn advance(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let at = self.piece(event, all, visit);
        let Some(span) = self.under_way.get_mut(at) else { return };

        match event.kind {
            EventKind::Dispatched => {
                span.dispatched_ns = Some(event.time_ns);
                span.cost_ns = Some(event.detail);
                span.reason = event.reason;
            }
            EventKind::Submitted => span.submitted_ns = Some(event.time_ns),
            EventKind::Completed => {
                span.completed_ns = Some(event.time_ns);
                span.late_max_ns = event.detail;
            }
            _ => {
                span.reaped_ns = Some(event.time_ns);
                span.error = error_of(event);
                let span = self.under_way.swap_remove(at);
                if let Some(earlier) = self.done.replace(span) {
                    all.held -= 1;
                    all.hand_over(earlier, visit);
                }
            }
        }
    }

    /// Hands over all pieces held.
    fn hand_over(mut self: Box<Request>, callback_ns: Option<u64>, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let done = self.done.take();
        let last = done.or_else(|| self.under_way.pop());
        all.held -= self.under_way.len() + 1 + usize::from(last.is_some());
        all.begun_before += u64::from(self.base.queued_ns.is_none());
        for piece in self.under_way.drain(..) {
            all.hand_over(piece, visit);
        }
        let last = last.unwrap_or(self.base);
        all.hand_over(Span { callback_ns, ..last }, visit);
        if self.under_way.capacity() <= SPARE_PIECES_MAX {
            all.spare.push(self);
        }
    }
}

fn error_of(event: &Event) -> Option<i32> {
    i32::try_from(event.detail).ok().filter(|number| *number != 0)
}

/// The requests of one shard.
#[derive(Default)]
struct Shard {
    requests: HashMap<u64, Box<Request>, RandomState>,
    /// Numbers and births of requests in the order of birth, removed ones included.
    order: VecDeque<(u64, u64)>,
    /// Numbers and births of requests that have ended and wait for their callback.
    ended: VecDeque<(u64, u64)>,
    /// Requests that have ended, by class.
    ended_of: BTreeMap<u16, u64>,
}

impl Shard {
    fn take(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        match event.kind {
            EventKind::Blocked | EventKind::Control => visit(Item::Event(all.shard, *event)),
            EventKind::Queued => {
                self.forget_namesake(event, all, visit);
                let mut request = Request::new(event, all);
                request.base.queued_ns = Some(event.time_ns);
                request.base.file = event.detail;
                self.insert(request, all, visit);
            }
            EventKind::Dispatched | EventKind::Submitted | EventKind::Completed | EventKind::Reaped => {
                if event.kind == EventKind::Dispatched {
                    self.forget_namesake(event, all, visit);
                }
                if let Some(request) = self.requests.get_mut(&event.request) {
                    return request.advance(event, all, visit);
                }
                let mut request = Request::new(event, all);
                request.advance(event, all, visit);
                self.insert(request, all, visit);
            }
            EventKind::Finished | EventKind::Cancelled => self.finish(event, all, visit),
            EventKind::Callback => match self.requests.remove(&event.request) {
                Some(request) => request.hand_over(Some(event.time_ns), all, visit),
                None => all.ends_of_nothing += 1,
            },
        }
    }

    /// Hands over the open request of this number if the event begins another one.
    fn forget_namesake(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let Some(request) = self.requests.get(&event.request) else { return };
        let piece = request.under_way.iter().chain(&request.done).find(|piece| piece.piece == event.piece);
        let is_another = match event.kind {
            EventKind::Queued => true,
            _ => request.has_ended || piece.is_some_and(|piece| piece.dispatched_ns.is_some()),
        };
        if is_another && let Some(request) = self.requests.remove(&event.request) {
            all.restarted += u64::from(!request.has_ended);
            request.hand_over(None, all, visit);
        }
    }

    fn insert(&mut self, mut request: Box<Request>, all: &mut All, visit: &mut dyn FnMut(Item)) {
        request.ended_before = self.ended_of.get(&request.base.class).copied().unwrap_or(0);
        self.order.push_back((request.base.request, request.born));
        self.requests.insert(request.base.request, request);
        if self.order.len() > 2 * self.requests.len() + 1024 {
            self.order.retain(|(number, born)| self.requests.get(number).is_some_and(|held| held.born == *born));
        }
        while all.held > all.held_max {
            let Some((number, born)) = self.order.pop_front() else { break };
            if let Some(request) = self.remove(number, born) {
                all.pushed_out += u64::from(!request.has_ended);
                request.hand_over(None, all, visit);
            }
        }
    }

    /// Removes this request, unless its number belongs to another by now.
    fn remove(&mut self, number: u64, born: u64) -> Option<Box<Request>> {
        self.requests.get(&number).filter(|held| held.born == born)?;
        self.requests.remove(&number)
    }

    fn finish(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let Some(request) = self.requests.get_mut(&event.request) else {
            all.ends_of_nothing += 1;
            return;
        };
        if event.kind == EventKind::Cancelled {
            request.base.is_cancelled = true;
            if !request.under_way.is_empty() || request.done.is_some() {
                return;
            }
        } else {
            let last = request.done.as_mut().unwrap_or(&mut request.base);
            last.error = last.error.or(error_of(event));
        }

        if !std::mem::replace(&mut request.has_ended, true) {
            *self.ended_of.entry(request.base.class).or_default() += 1;
            self.ended.push_back((event.request, request.born));
        }

        if self.ended.len() > ENDED_MAX
            && let Some((number, born)) = self.ended.pop_front()
            && let Some(request) = self.remove(number, born)
        {
            request.hand_over(None, all, visit);
        }
    }

    /// Hands over the remaining requests in the order of birth.
    fn end(mut self, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let mut open_of: BTreeMap<u16, u64> = BTreeMap::new();
        for request in self.requests.values().filter(|request| !request.has_ended) {
            *open_of.entry(request.base.class).or_default() += 1;
        }

        while let Some((number, born)) = self.order.pop_front() {
            if let Some(request) = self.remove(number, born) {
                if !request.has_ended {
                    let count = |of: &BTreeMap<u16, u64>| of.get(&request.base.class).copied().unwrap_or(0);
                    let overtakers = count(&self.ended_of).saturating_sub(request.ended_before);
                    // A class is served in order: only requests that were open together with this one may end before
                    // it.
                    all.not_ended += 1;
                    all.overtaken += u64::from(overtakers > OVERTAKERS_MAX + 2 * count(&open_of));
                }
                request.hand_over(None, all, visit);
            }
        }
    }
}

/// Describes each kind of loss in a sentence.
fn sentences(lost: Lost, all: &All) -> Vec<String> {
    let Lost { bytes, places, at_end, dropped_events, unknown_events } = lost;
    let damage = match (at_end, places) {
        (true, 1) => "at the end could not be read: the file was cut".to_owned(),
        (true, _) => format!("in {places} places could not be read, the last at the end: the file is damaged and cut"),
        (false, _) => format!("in {places} place(s) could not be read: the file is damaged"),
    };

    let counts = [
        (bytes, format!("bytes {damage}")),
        (dropped_events, "event(s) were dropped while recording: they came faster than they were written".to_owned()),
        (unknown_events, "event(s) are of a kind that this version does not know".to_owned()),
        (all.begun_before, "request(s) without their beginning: it came before the recording, or was lost".to_owned()),
        (
            all.restarted,
            "request(s) ended by another of the same number: traces of several runs in one file".to_owned(),
        ),
        (
            all.pushed_out,
            format!("request(s) were open for too long to wait for their end (more than {HELD_MAX} open)"),
        ),
        (all.ends_of_nothing, "end(s) of requests of which nothing else is in the trace".to_owned()),
    ];

    let told = counts.into_iter().filter(|(count, _)| *count > 0);
    let mut told: Vec<String> = told.map(|(count, what)| format!("{} {what}", format_count(count))).collect();
    // A recording that stops while a program goes on has requests under way. Only other losses, or overtakers, make it
    // likely that their ends are lost.
    if (!told.is_empty() || all.overtaken > 0) && all.not_ended > 0 {
        let of = format_count(all.not_ended);
        told.push(format!("{of} request(s) had not ended when the trace ended, or their end was lost"));
    }
    told
}

#[cfg(test)]
mod tests;
