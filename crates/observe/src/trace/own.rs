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
use std::io::{Read, Seek};

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

/// Returns the names, the earliest time and the clock of a trace in the `PLIMTRCE` format, without matching its events,
/// most of which it skips unread: those of a chunk are in order of time.
pub fn read_head(input: impl Read + Seek) -> Result<Head, TraceError> {
    let mut reader = Reader::new(input)?;
    let unix_at_zero_ns = unix_at_zero_ns(&reader).and_then(|ns| i64::try_from(ns).ok());
    let mut names = Renamed::default();
    let mut begin_ns: Option<u64> = None;
    loop {
        if reader.skip_events_from(begin_ns.unwrap_or(u64::MAX))? {
            continue;
        }
        let Some(chunk) = reader.next_chunk()? else { break };
        match chunk.body {
            Body::Names(more) => names.take(more),
            Body::Events(events) => {
                let times_ns = events.filter(|event| is_a_beginning(event.kind)).map(|event| event.time_ns);
                begin_ns = begin_ns.into_iter().chain(times_ns).min();
            }
        }
    }
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
                let shard = shards.entry(chunk.shard).or_default();
                for event in events {
                    all.events += 1;
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
}

impl All {
    fn hand_over(&mut self, span: Span, visit: &mut dyn FnMut(Item)) {
        self.spans += 1;
        visit(Item::Span(span));
    }
}

/// A request that has not been handed over completely, or a free place for one.
struct Request {
    /// 0 if the place is free.
    born: u64,
    /// Requests of its class that had ended on its shard when it was born.
    ended_before: u64,
    /// The fields that its pieces have in common.
    base: Span,
    /// Pieces that have not been reaped; behind them, if `has_done`, the piece reaped last.
    pieces: Vec<Span>,
    has_done: bool,
    /// Whether the request has ended; only its callback may follow.
    has_ended: bool,
}

impl Request {
    /// Returns the number of pieces that have not been reaped.
    fn under_way(&self) -> usize {
        self.pieces.len() - usize::from(self.has_done)
    }

    /// Returns the index of the event's piece, which is added if it is new.
    fn piece(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) -> usize {
        if let Some(at) = self.pieces[..self.under_way()].iter().position(|piece| piece.piece == event.piece) {
            return at;
        }
        if self.under_way() >= PIECES_MAX {
            all.pushed_out += 1;
            all.held -= 1;
            all.hand_over(self.pieces.remove(0), visit);
        }

        let is_part = self.base.queued_ns.is_some() && event.len_bytes < self.base.len_bytes;
        let is_split = event.piece > 0 || is_part || self.base.is_split;
        if is_split && !self.base.is_split {
            // If the request's beginning is not in the trace, only its second piece shows that it is split.
            self.base.is_split = true;
            self.pieces.iter_mut().for_each(|piece| piece.is_split = true);
        }

        all.held += 1;
        let at = self.under_way();
        self.pieces.push(Span {
            piece: event.piece,
            offset_bytes: event.offset_bytes,
            len_bytes: event.len_bytes,
            ..self.base
        });
        let last = self.pieces.len() - 1;
        self.pieces.swap(at, last);
        at
    }

    /// Moves a piece to its next station.
    fn advance(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let at = self.piece(event, all, visit);
        let span = &mut self.pieces[at];

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
                let last_under_way = self.under_way() - 1;
                self.pieces.swap(at, last_under_way);
                let earlier = if self.has_done { self.pieces.pop() } else { None };
                self.has_done = true;
                if let Some(earlier) = earlier {
                    all.held -= 1;
                    all.hand_over(earlier, visit);
                }
            }
        }
    }

    /// Hands over all pieces held, the one reaped last at the end, and frees the place.
    fn hand_over(&mut self, callback_ns: Option<u64>, all: &mut All, visit: &mut dyn FnMut(Item)) {
        all.held -= self.pieces.len() + 1;
        all.begun_before += u64::from(self.base.queued_ns.is_none());
        let last = self.pieces.pop().unwrap_or(self.base);
        for piece in self.pieces.drain(..) {
            all.hand_over(piece, visit);
        }
        all.hand_over(Span { callback_ns, ..last }, visit);
        self.born = 0;
        if self.pieces.capacity() > SPARE_PIECES_MAX {
            self.pieces = Vec::new();
        }
    }
}

fn error_of(event: &Event) -> Option<i32> {
    i32::try_from(event.detail).ok().filter(|number| *number != 0)
}

/// The requests of one shard.
#[derive(Default)]
struct Shard {
    requests: Vec<Request>,
    free: Vec<usize>,
    /// The place of each request by its number.
    places: HashMap<u64, usize, RandomState>,
    /// Number and place of the request found last: events of one request often follow each other.
    latest: Option<(u64, usize)>,
    /// Places and births of requests in the order of birth, removed ones included.
    order: VecDeque<(usize, u64)>,
    /// Places and births of requests that have ended and wait for their callback.
    ended: VecDeque<(usize, u64)>,
    /// Requests that have ended, by class.
    ended_of: BTreeMap<u16, u64>,
}

impl Shard {
    fn take(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        match event.kind {
            EventKind::Blocked | EventKind::Control => visit(Item::Event(all.shard, *event)),
            EventKind::Queued => {
                self.forget_namesake(event, all, visit);
                let place = self.begin(event, all);
                let base = &mut self.requests[place].base;
                base.queued_ns = Some(event.time_ns);
                base.file = event.detail;
                self.insert(place, all, visit);
            }
            EventKind::Dispatched | EventKind::Submitted | EventKind::Completed | EventKind::Reaped => {
                if event.kind == EventKind::Dispatched {
                    self.forget_namesake(event, all, visit);
                }
                if let Some(place) = self.find(event.request) {
                    return self.requests[place].advance(event, all, visit);
                }
                let place = self.begin(event, all);
                self.requests[place].advance(event, all, visit);
                self.insert(place, all, visit);
            }
            EventKind::Finished | EventKind::Cancelled => self.finish(event, all, visit),
            EventKind::Callback => match self.find(event.request) {
                Some(place) => self.hand_over(place, Some(event.time_ns), all, visit),
                None => all.ends_of_nothing += 1,
            },
        }
    }

    /// Returns the place of the request of this number.
    fn find(&mut self, number: u64) -> Option<usize> {
        if let Some((latest, place)) = self.latest
            && latest == number
        {
            return Some(place);
        }
        let place = *self.places.get(&number)?;
        self.latest = Some((number, place));
        Some(place)
    }

    /// Hands over the open request of this number if the event begins another one.
    fn forget_namesake(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let Some(place) = self.find(event.request) else { return };
        let request = &self.requests[place];
        let piece = request.pieces.iter().find(|piece| piece.piece == event.piece);
        let is_another = match event.kind {
            EventKind::Queued => true,
            _ => request.has_ended || piece.is_some_and(|piece| piece.dispatched_ns.is_some()),
        };
        if is_another {
            all.restarted += u64::from(!request.has_ended);
            self.hand_over(place, None, all, visit);
        }
    }

    /// Takes a place for a request that begins with this event.
    fn begin(&mut self, event: &Event, all: &mut All) -> usize {
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

        if let Some(place) = self.free.pop() {
            let request = &mut self.requests[place];
            (request.born, request.base) = (all.born, base);
            (request.has_done, request.has_ended) = (false, false);
            return place;
        }
        let request =
            Request { born: all.born, ended_before: 0, base, pieces: Vec::new(), has_done: false, has_ended: false };
        self.requests.push(request);
        self.requests.len() - 1
    }

    fn insert(&mut self, place: usize, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let request = &mut self.requests[place];
        request.ended_before = self.ended_of.get(&request.base.class).copied().unwrap_or(0);
        let number = request.base.request;
        self.order.push_back((place, request.born));
        self.places.insert(number, place);
        self.latest = Some((number, place));
        if self.order.len() > 2 * self.places.len() + 1024 {
            self.order.retain(|(place, born)| self.requests[*place].born == *born);
        }
        while all.held > all.held_max {
            let Some((place, born)) = self.order.pop_front() else { break };
            if self.requests[place].born == born {
                all.pushed_out += u64::from(!self.requests[place].has_ended);
                self.hand_over(place, None, all, visit);
            }
        }
    }

    /// Hands over a request, and frees its place.
    fn hand_over(&mut self, place: usize, callback_ns: Option<u64>, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let request = &mut self.requests[place];
        self.places.remove(&request.base.request);
        self.latest = None;
        request.hand_over(callback_ns, all, visit);
        self.free.push(place);
    }

    fn finish(&mut self, event: &Event, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let Some(place) = self.find(event.request) else {
            all.ends_of_nothing += 1;
            return;
        };
        let request = &mut self.requests[place];
        if event.kind == EventKind::Cancelled {
            request.base.is_cancelled = true;
            if !request.pieces.is_empty() {
                return;
            }
        } else {
            let done = if request.has_done { request.pieces.last_mut() } else { None };
            let last = done.unwrap_or(&mut request.base);
            last.error = last.error.or(error_of(event));
        }

        if !std::mem::replace(&mut request.has_ended, true) {
            *self.ended_of.entry(request.base.class).or_default() += 1;
            self.ended.push_back((place, request.born));
        }

        if self.ended.len() > ENDED_MAX
            && let Some((place, born)) = self.ended.pop_front()
            && self.requests[place].born == born
        {
            self.hand_over(place, None, all, visit);
        }
    }

    /// Hands over the remaining requests in the order of birth.
    fn end(mut self, all: &mut All, visit: &mut dyn FnMut(Item)) {
        let mut open_of: BTreeMap<u16, u64> = BTreeMap::new();
        for request in self.requests.iter().filter(|request| request.born > 0 && !request.has_ended) {
            *open_of.entry(request.base.class).or_default() += 1;
        }

        while let Some((place, born)) = self.order.pop_front() {
            let request = &self.requests[place];
            if request.born != born {
                continue;
            }
            if !request.has_ended {
                let count = |of: &BTreeMap<u16, u64>| of.get(&request.base.class).copied().unwrap_or(0);
                let overtakers = count(&self.ended_of).saturating_sub(request.ended_before);
                // A class is served in order: only requests that were open together with this one may end before it.
                all.not_ended += 1;
                all.overtaken += u64::from(overtakers > OVERTAKERS_MAX + 2 * count(&open_of));
            }
            self.hand_over(place, None, all, visit);
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
