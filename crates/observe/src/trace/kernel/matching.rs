//! Joins the events of one request.
//!
//! **Why.** The kernel's events carry no request number. Only device, sector and length show which belong together, and
//! all of these change on the way.
//!
//! **How.** Requests in flight are kept by device and first sector. Events move, grow, cut or end them; if several
//! begin at one sector, an event is that of the oldest. Ends without a beginning, and beginnings without an end, are
//! counted.
//!
//! * Merged bios and requests end with the request that took them, which counts them. If the beginning of that request
//!   is not in the trace, it counts them when it goes out over the merged sectors.
//! * After a partial completion the rest stays in flight; the span ends with the last part.
//! * Several requests to one sector may be in the device at once. Completions go to the oldest; the order among them
//!   changes no sum. If a sector is used again, a request sent more than 30 s before ([`GIVEN_UP_NS`]) no longer waits
//!   for its end: by then the kernel has given it up.
//! * One flush of the device serves all waiting flushes; the first has the span, and counts the others.
//! * A device that never has requests (device mapper, md) completes queued bios.
//! * A bio may be remapped more than once: from LVM to dm-crypt, from there to the sectors of a partition, and from
//!   there to those of the disk. It stays one bio, also from one device of the trace to another: its wait begins at the
//!   top device, its span is of the lowest, and the work of the devices above after its completion does not count.
//!
//! **Limits.** [`OPEN_MAX`] requests; beyond that those sent more than 30 s ago end as they are, or else all.
//!
//! **Example.** `Q 0 + 8`, `G`, `Q 8 + 8`, `M 8 + 8`, `D 0 + 16`, `C 0 + 16`: one span of 16 sectors, one merged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use plimsoll::core::Op;
use plimsoll_figures::units::format_count;

use super::{Action, BlockEvent, OPEN_MAX, SECTOR_BYTES};
use crate::trace::span::{Item, Span};

/// Time after which the kernel's drivers give a request up: the default time-out of SCSI and NVMe.
const GIVEN_UP_NS: u64 = 30_000_000_000;

/// Most requests at one sector that are examined.
const LOOK_MAX: usize = 64;

/// Most requests below a sector that are examined for one that ends there.
const LOOK_BACK_MAX: usize = 16;

/// The sector of flushes, which have none.
const FLUSH_SECTOR: u64 = u64::MAX;

/// Device, first sector, and a running number.
type Key = (u16, u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// Handed to the block layer.
    Bio,
    /// Has a request structure and may go out.
    Request,
    Out,
}

/// The event that gives the begin of the wait; later variants are more exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Since {
    Unknown,
    GetRequest,
    Remap,
    Queue,
    /// Queued on a device above.
    Above,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    state: State,
    since: Since,
    begin_ns: u64,
    out_ns: u64,
    /// Sectors still to be done, from the sector of the key.
    sectors: u64,
    /// Sectors done before, by partial completions.
    done_sectors: u64,
    op: Op,
    class: u16,
    cpu: u16,
    merged: u16,
    /// Number of the request, shared by the pieces of a split.
    number: u64,
    piece: u16,
    is_split: bool,
}

#[derive(Debug, Default)]
struct Counts {
    ends_of_nothing: u64,
    no_length: u64,
    not_completed: u64,
    not_issued: u64,
    given_up: u64,
    pushed_out: u64,
    since_get: u64,
    since_unknown: u64,
    merged_into_nothing: u64,
    requeued_nothing: u64,
}

/// Matches events, which come in order of time.
pub(super) struct Matcher<'v> {
    visit: &'v mut dyn FnMut(Item),
    open: BTreeMap<Key, Open>,
    open_max: usize,
    /// Merged sectors whose request has not been seen.
    strays: BTreeSet<Key>,
    /// Devices that have requests.
    drivers: BTreeSet<u16>,
    /// Devices whose bios went on to other devices of the trace.
    above: BTreeSet<u16>,
    number: u64,
    spans: u64,
    counts: Counts,
}

impl<'v> Matcher<'v> {
    pub(super) fn new(visit: &'v mut dyn FnMut(Item)) -> Matcher<'v> {
        Matcher {
            visit,
            open: BTreeMap::new(),
            open_max: OPEN_MAX,
            strays: BTreeSet::new(),
            drivers: BTreeSet::new(),
            above: BTreeSet::new(),
            number: 0,
            spans: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn take(&mut self, event: &BlockEvent) {
        if event.action == Action::Other {
            return;
        }

        let Some(op) = event.op else {
            self.counts.no_length += 1;
            return;
        };
        let sector = if op == Op::Flush { FLUSH_SECTOR } else { event.sector };
        let event = &BlockEvent { sector, op: Some(op), ..*event };
        match event.action {
            Action::Remap(source) => self.remap(event, op, source),
            Action::Queue => self.begin(event, op, Since::Queue),
            Action::Split(at_sector) => self.split(event, op, at_sector),
            Action::GetRequest | Action::Insert => self.enter(event, op),
            Action::BackMerge | Action::FrontMerge => self.merge(event, op),
            Action::Issue => self.issue(event, op),
            Action::Requeue => self.requeue(event, op),
            Action::Complete => self.complete(event, op),
            Action::Other => {}
        }
    }

    /// Finds the oldest request in one of these states at the event's sector, preferably one of the same length.
    fn find(&self, event: &BlockEvent, op: Op, states: RangeInclusive<State>) -> Option<Key> {
        let here = (event.disk, event.sector, 0)..=(event.disk, event.sector, u64::MAX);
        let mut found = None;
        for (key, open) in self.open.range(here).take(LOOK_MAX) {
            if open.op == op && states.contains(&open.state) {
                if open.sectors == event.sectors {
                    return Some(*key);
                }
                found = found.or(Some(*key));
            }
        }
        found
    }

    fn find_exact(&self, event: &BlockEvent, op: Op, states: RangeInclusive<State>) -> Option<Key> {
        let key = self.find(event, op, states)?;
        self.open.get(&key).filter(|open| open.sectors == event.sectors).map(|_| key)
    }

    fn insert(&mut self, event: &BlockEvent, op: Op, state: State, since: Since) -> Key {
        if self.open.len() >= self.open_max {
            self.make_room(event.time_ns);
        }

        self.number += 1;
        let open = Open {
            state,
            since,
            begin_ns: event.time_ns,
            out_ns: 0,
            sectors: event.sectors,
            done_sectors: 0,
            op,
            class: event.class,
            cpu: event.cpu,
            merged: 0,
            number: self.number,
            piece: 0,
            is_split: false,
        };

        let key = (event.disk, event.sector, self.number);
        self.open.insert(key, open);
        key
    }

    /// Moves a bio that is remapped to this device: from the device above, or from a partition's sectors of this disk
    /// if it is remapped once more. If there is none, begins one.
    fn remap(&mut self, event: &BlockEvent, op: Op, source: Option<(u16, u64)>) {
        let above = source.filter(|(disk, _)| *disk != event.disk).and_then(|(disk, sector)| {
            self.find_exact(&BlockEvent { disk, sector, ..*event }, op, State::Bio..=State::Bio)
        });
        let before = above.or_else(|| {
            let (_, sector) = source.filter(|(_, sector)| *sector != event.sector)?;
            let key = self.find_exact(&BlockEvent { sector, ..*event }, op, State::Bio..=State::Bio)?;
            let is_remapped = |open: &Open| matches!(open.since, Since::Remap | Since::Above);
            self.open.get(&key).is_some_and(is_remapped).then_some(key)
        });
        let Some((key, mut open)) = before.and_then(|key| Some((key, self.open.remove(&key)?))) else {
            return self.begin(event, op, Since::Remap);
        };

        if key.0 != event.disk {
            self.above.insert(key.0);
            open.since = if open.since == Since::Remap { Since::Remap } else { Since::Above };
        }
        self.open.insert((event.disk, event.sector, key.2), open);
    }

    /// Begins a bio that is remapped to this device, or queued. A Q after its A is the same bio; one that was queued
    /// above has waited since then.
    fn begin(&mut self, event: &BlockEvent, op: Op, since: Since) {
        if let Some(key) = self.find_exact(event, op, State::Bio..=State::Bio)
            && let Some(open) = self.open.get_mut(&key)
            && matches!(open.since, Since::Remap | Since::Above)
        {
            *open = match open.since {
                Since::Above => Open { since, ..*open },
                _ => Open { since, begin_ns: event.time_ns, class: event.class, cpu: event.cpu, ..*open },
            };
            return;
        }
        self.insert(event, op, State::Bio, since);
    }

    /// Cuts a bio whose second part begins at `at_sector`. The event covers the first part or, from older kernels, the
    /// whole.
    fn split(&mut self, event: &BlockEvent, op: Op, at_sector: u64) {
        let Some(key) = self.find(event, op, State::Bio..=State::Bio) else { return };
        let Some(open) = self.open.get(&key).copied() else { return };
        let first_sectors = at_sector.saturating_sub(event.sector);
        if first_sectors == 0 || first_sectors >= open.sectors {
            return;
        }
        let rest = self.insert(&BlockEvent { sector: at_sector, ..*event }, op, State::Bio, open.since);
        let left = open.sectors - first_sectors;
        let piece = open.piece.saturating_add(1);
        self.open.insert(rest, Open { sectors: left, piece, is_split: true, ..open });
        self.open.insert(key, Open { sectors: first_sectors, is_split: true, ..open });
    }

    /// Moves a bio on: it has a request structure (G), or is in the I/O scheduler (I).
    fn enter(&mut self, event: &BlockEvent, op: Op) {
        self.drivers.insert(event.disk);
        let is_get = event.action == Action::GetRequest;
        let last = if is_get { State::Bio } else { State::Request };
        let key = match self.find_exact(event, op, State::Bio..=last) {
            Some(key) => key,
            None if is_get => self.insert(event, op, State::Request, Since::GetRequest),
            None => match self.find(event, op, State::Bio..=last) {
                Some(key) => key,
                None => self.insert(event, op, State::Request, Since::Unknown),
            },
        };
        if let Some(open) = self.open.get_mut(&key) {
            open.state = State::Request;
            // A remapping does not name the process.
            open.class = if open.since == Since::Remap { event.class } else { open.class };
        }
    }

    /// Merges a bio or a request into a request that ends where it begins (M), or begins where it ends (F).
    fn merge(&mut self, event: &BlockEvent, op: Op) {
        self.drivers.insert(event.disk);
        let merged = self.find_exact(event, op, State::Bio..=State::Request).and_then(|key| self.open.remove(&key));
        let count = merged.map_or(0, |open| open.merged).saturating_add(1);

        let target = match event.action {
            Action::FrontMerge => {
                let behind = BlockEvent { sector: event.sector.saturating_add(event.sectors), ..*event };
                self.find(&behind, op, State::Bio..=State::Request)
            }
            _ => {
                let before = (event.disk, 0, 0)..(event.disk, event.sector, 0);
                let ends_here = |key: &Key, open: &Open| {
                    open.op == op && open.state <= State::Request && key.1.saturating_add(open.sectors) == event.sector
                };
                let mut near = self.open.range(before).rev().take(LOOK_BACK_MAX);
                near.find(|(key, open)| ends_here(key, open)).map(|(key, _)| *key)
            }
        };

        let Some((key, mut open)) = target.and_then(|key| Some((key, self.open.remove(&key)?))) else {
            self.stray(event);
            return;
        };
        open.sectors = open.sectors.saturating_add(event.sectors);
        open.merged = open.merged.saturating_add(count);
        self.open.insert((key.0, key.1.min(event.sector), key.2), open);
    }

    fn stray(&mut self, event: &BlockEvent) {
        if self.strays.len() >= self.open_max {
            self.counts.merged_into_nothing += self.strays.len() as u64;
            self.strays.clear();
        }
        self.number += 1;
        self.strays.insert((event.disk, event.sector, self.number));
    }

    /// Removes the merges in these sectors whose request had not been seen, and returns their number.
    fn strays_in(&mut self, event: &BlockEvent) -> u16 {
        if self.strays.is_empty() {
            return 0;
        }
        let end = event.sector.saturating_add(event.sectors);
        let range = (event.disk, event.sector, 0)..(event.disk, end, 0);
        let inside: Vec<Key> = self.strays.range(range).copied().collect();
        for key in &inside {
            self.strays.remove(key);
        }
        u16::try_from(inside.len()).unwrap_or(u16::MAX)
    }

    /// Sends a request to the driver.
    fn issue(&mut self, event: &BlockEvent, op: Op) {
        self.drivers.insert(event.disk);
        let found = self.find(event, op, State::Bio..=State::Request);
        let key = found.unwrap_or_else(|| self.insert(event, op, State::Request, Since::Unknown));
        let merged = if op == Op::Flush { self.other_flushes(key) } else { self.strays_in(event) };
        if let Some(open) = self.open.get_mut(&key) {
            open.state = State::Out;
            open.out_ns = event.time_ns;
            // The event's length is more reliable than the merges seen.
            open.sectors = event.sectors;
            open.merged = open.merged.saturating_add(merged);
        }
    }

    /// Removes all other waiting flushes and returns their number.
    fn other_flushes(&mut self, first: Key) -> u16 {
        let here = (first.0, FLUSH_SECTOR, 0)..=(first.0, FLUSH_SECTOR, u64::MAX);
        let waiting = |(key, open): &(&Key, &Open)| **key != first && open.state <= State::Request;
        let others: Vec<Key> = self.open.range(here).filter(waiting).map(|(key, _)| *key).collect();
        for key in &others {
            self.open.remove(key);
        }
        u16::try_from(others.len()).unwrap_or(u16::MAX)
    }

    /// Takes a request back from the driver, unfinished.
    fn requeue(&mut self, event: &BlockEvent, op: Op) {
        match self.find(event, op, State::Out..=State::Out).and_then(|key| self.open.get_mut(&key)) {
            Some(open) => open.state = State::Request,
            None => self.counts.requeued_nothing += 1,
        }
    }

    fn complete(&mut self, event: &BlockEvent, op: Op) {
        let states = if self.drivers.contains(&event.disk) { State::Out..=State::Out } else { State::Bio..=State::Out };
        let Some(key) = self.find_current(event, op, states) else {
            self.counts.ends_of_nothing += u64::from(!self.above.contains(&event.disk));
            return;
        };
        let Some(open) = self.open.remove(&key) else { return };
        if event.sectors < open.sectors && event.error == 0 {
            let (sectors, done_sectors) =
                (open.sectors - event.sectors, open.done_sectors.saturating_add(event.sectors));
            let rest = (key.0, key.1.saturating_add(event.sectors), key.2);
            self.open.insert(rest, Open { sectors, done_sectors, ..open });
            return;
        }
        self.hand_over(key, &open, Some(event));
    }

    /// Finds a request as [`Matcher::find`] does, but skips requests that the kernel must have given up.
    fn find_current(&mut self, event: &BlockEvent, op: Op, states: RangeInclusive<State>) -> Option<Key> {
        let mut given_up: Option<(Key, Open)> = None;
        loop {
            let found = self.find(event, op, states.clone());
            let open = found.and_then(|key| self.open.get(&key)).copied();
            match (found, open, given_up) {
                // There is no younger one, so the event is that of the old request.
                (None, _, Some((key, open))) => {
                    self.open.insert(key, open);
                    return Some(key);
                }
                (Some(key), Some(open), _) if is_given_up(&open, event.time_ns) => {
                    if let Some((key, open)) = given_up.replace((key, open)) {
                        self.give_up(key, &open);
                    }
                    self.open.remove(&key);
                }
                (found, _, given_up) => {
                    if let Some((key, open)) = given_up {
                        self.give_up(key, &open);
                    }
                    return found;
                }
            }
        }
    }

    fn give_up(&mut self, key: Key, open: &Open) {
        self.counts.given_up += 1;
        self.hand_over(key, open, None);
    }

    fn make_room(&mut self, now_ns: u64) {
        let old: Vec<Key> =
            self.open.iter().filter(|(_, open)| is_given_up(open, now_ns)).map(|(key, _)| *key).collect();
        let out = if old.is_empty() { self.open.keys().copied().collect() } else { old };
        for key in out {
            if let Some(open) = self.open.remove(&key) {
                self.counts.pushed_out += 1;
                self.hand_over(key, &open, None);
            }
        }
    }

    fn hand_over(&mut self, key: Key, open: &Open, end: Option<&BlockEvent>) {
        let is_out = open.state == State::Out;
        self.counts.since_get += u64::from(open.since == Since::GetRequest);
        self.counts.since_unknown += u64::from(open.since == Since::Unknown);

        let first_sector = if open.op == Op::Flush { 0 } else { key.1.saturating_sub(open.done_sectors) };
        let offset_bytes = first_sector.saturating_mul(SECTOR_BYTES);
        let sectors = open.sectors.saturating_add(open.done_sectors);
        let len_bytes = u32::try_from(sectors.saturating_mul(SECTOR_BYTES)).unwrap_or(u32::MAX);
        self.spans += 1;
        (self.visit)(Item::Span(Span {
            shard: open.cpu,
            disk: key.0,
            class: open.class,
            piece: open.piece,
            is_split: open.is_split,
            merged: open.merged,
            queued_ns: (open.since != Since::Unknown).then_some(open.begin_ns),
            submitted_ns: is_out.then_some(open.out_ns),
            completed_ns: end.map(|end| end.time_ns),
            error: end.map(|end| end.error).filter(|error| *error != 0),
            ..Span::new(open.op, open.number, offset_bytes, len_bytes)
        }));
    }

    /// Hands over the requests still in flight and returns the number of all spans.
    pub(super) fn end(&mut self) -> u64 {
        while let Some((key, open)) = self.open.pop_first() {
            match open.state {
                State::Out => self.counts.not_completed += 1,
                _ => self.counts.not_issued += 1,
            }
            self.hand_over(key, &open, None);
        }
        self.counts.merged_into_nothing += self.strays.len() as u64;
        self.spans
    }

    /// Describes the events that did not match, and then the requests that begin or end outside the trace, one sentence
    /// each.
    pub(super) fn sentences(&self) -> (Vec<String>, Vec<String>) {
        let counts = &self.counts;
        let unmatched = [
            (
                counts.ends_of_nothing,
                "completions (C) have no dispatch (D) in the trace: sent before it began, or D was lost",
            ),
            (counts.given_up, "requests have no completion, and their sectors were used again more than 30 s later"),
            (counts.pushed_out, "requests were under way for so long, or so many at a time, that they end as they are"),
            (counts.since_unknown, "requests have no Q, A or G in the trace: their wait is not known"),
            (counts.merged_into_nothing, "merges (M, F) went into requests that are not in the trace"),
            (counts.requeued_nothing, "requeues (R) are of requests that are not in the trace"),
            (counts.no_length, "events of commands without a length are left out: device commands, ends of flushes"),
        ];

        let open = [
            (counts.not_completed, "requests were sent (D) and are not completed (C) by the end of the trace"),
            (counts.not_issued, "requests were queued and are not sent (D) by the end of the trace"),
            (counts.since_get, "requests have no Q or A in the trace: their wait counts from G"),
        ];

        (told(&unmatched), told(&open))
    }
}

fn told(counts: &[(u64, &str)]) -> Vec<String> {
    counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| sentence(*count, what)).collect()
}

fn is_given_up(open: &Open, now_ns: u64) -> bool {
    open.state == State::Out && now_ns.saturating_sub(open.out_ns) > GIVEN_UP_NS
}

/// Returns a sentence such as `2,048 events ...`.
pub(super) fn sentence(count: u64, what: &str) -> String {
    format!("{} {what}", format_count(count))
}

#[cfg(test)]
mod tests;
