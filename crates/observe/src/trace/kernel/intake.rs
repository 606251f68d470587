//! The part that both readers share: names as numbers, events in order of time, and a list of losses.
//!
//! **Why.** Files hold the events of one CPU after another, and the text of `blkparse` may consist of excerpts.
//! Matching needs one order.
//!
//! **How.** The intake gathers two windows of events, sorts them by time (events of equal time stay in the order of the
//! file), and hands the first window on. The sort is fast because files consist of sorted runs.
//!
//! **Limits.** Events are reordered within [`WINDOW_EVENTS`]. 65,535 process names and as many devices; all further
//! ones share one number.
//!
//! **Example.** One CPU has 1 us and 3 us, another 2 us: the intake hands on 1, 2, 3.

use std::collections::HashMap;

use plimsoll::trace::format::{ClassName, Names};

use super::matching::{Matcher, sentence};
use super::{Action, BlockEvent, WINDOW_EVENTS};
use crate::trace::span::{Item, Origin, Trace};

/// Largest plausible distance of a time stamp from those around it: a day, in ns.
const AWAY_NS: u64 = 86_400_000_000_000;

/// Takes events in the order of a file.
pub(super) struct Intake<'v> {
    matcher: Matcher<'v>,
    window: Vec<BlockEvent>,
    window_events: usize,
    /// Time of the last event handed on.
    gone_ns: u64,
    events: u64,
    late: u64,
    away: u64,
    /// The kind of the first event that was left out, and its distance from the rest.
    away_first: String,
    sequences: HashMap<(u16, u16), u32>,
    missing: u64,
    classes: HashMap<Box<str>, u16>,
    disks: HashMap<u32, u16>,
    names: Names,
    /// Unix time at time stamp 0, if the file has it.
    pub(super) unix_at_zero_ns: Option<u64>,
    /// Losses that the reader found, one sentence each.
    pub(super) lost: Vec<String>,
}

impl<'v> Intake<'v> {
    pub(super) fn new(visit: &'v mut dyn FnMut(Item)) -> Intake<'v> {
        Intake {
            matcher: Matcher::new(visit),
            window: Vec::new(),
            window_events: WINDOW_EVENTS,
            gone_ns: 0,
            events: 0,
            late: 0,
            away: 0,
            away_first: String::new(),
            sequences: HashMap::new(),
            missing: 0,
            classes: HashMap::new(),
            disks: HashMap::new(),
            names: Names::default(),
            unix_at_zero_ns: None,
            lost: Vec::new(),
        }
    }

    /// Returns the number of a process's name.
    pub(super) fn class(&mut self, name: &str) -> u16 {
        if let Some(number) = self.classes.get(name) {
            return *number;
        }
        let number = u16::try_from(self.classes.len()).unwrap_or(u16::MAX);
        if number < u16::MAX {
            self.classes.insert(name.into(), number);
            self.names.classes.insert(number, ClassName { name: name.to_owned(), shares: 0 });
        }
        number
    }

    /// Returns the number of a device that has an event.
    pub(super) fn disk(&mut self, major: u32, minor: u32) -> u16 {
        let number = self.number_of(major, minor);
        if number < u16::MAX {
            self.names.disks.entry(number).or_insert_with(|| format!("{major},{minor}"));
        }
        number
    }

    /// Returns the number of a device, which may have no event.
    pub(super) fn number_of(&mut self, major: u32, minor: u32) -> u16 {
        // The kernel packs a device number into 12 and 20 bits.
        let device = (major & 0xfff) << 20 | minor & 0xf_ffff;
        if let Some(number) = self.disks.get(&device) {
            return *number;
        }
        let number = u16::try_from(self.disks.len()).unwrap_or(u16::MAX);
        if number < u16::MAX {
            self.disks.insert(device, number);
        }
        number
    }

    pub(super) fn disk_is_called(&mut self, major: u32, minor: u32, name: &str) {
        let number = self.disk(major, minor);
        self.names.disks.insert(number, name.to_owned());
    }

    pub(super) fn event(&mut self, event: BlockEvent) {
        self.events += 1;
        self.window.push(event);
        if self.window.len() >= 2 * self.window_events {
            self.sort();
            self.hand_on(self.window_events);
        }
    }

    fn sort(&mut self) {
        self.window.sort_by_key(|event| event.time_ns);
        let middle_ns = self.window.get(self.window.len() / 2).map_or(0, |event| event.time_ns);
        let Intake { window, away, away_first, .. } = self;
        window.retain(|event| {
            let is_away = event.time_ns.abs_diff(middle_ns) > AWAY_NS;
            if is_away && *away == 0 {
                *away_first = far(event, middle_ns);
            }
            *away += u64::from(is_away);
            !is_away
        });
    }

    fn hand_on(&mut self, most: usize) {
        let count = most.min(self.window.len());
        for event in self.window.drain(..count) {
            self.late += u64::from(event.time_ns < self.gone_ns);
            self.gone_ns = self.gone_ns.max(event.time_ns);
            if event.sequence > 0 {
                let last = self.sequences.entry((event.disk, event.cpu)).or_insert(event.sequence);
                self.missing += u64::from(event.sequence.saturating_sub(*last).saturating_sub(1));
                *last = event.sequence.max(*last);
            }
            self.matcher.take(&event);
        }
    }

    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Ends the file and returns its summary.
    pub(super) fn finish(mut self, is_monotonic: bool) -> Trace {
        self.sort();
        self.hand_on(usize::MAX);
        let spans = self.matcher.end();

        let mut lost = self.lost;
        match self.away {
            0 => {}
            1 => lost.push(format!("one {}: left out", self.away_first)),
            away => {
                lost.push(sentence(away, &format!("events far from the rest, first a {}: left out", self.away_first)))
            }
        }
        let counts = [
            (self.late, "events came too late to be put in their place: their time stamps go back too far"),
            (self.missing, "events are missing by their sequence numbers: dropped by the kernel, or filtered out"),
        ];
        lost.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| sentence(*count, what)));
        let (unmatched, notes) = self.matcher.sentences();
        lost.extend(unmatched);

        Trace {
            origin: Origin::Kernel,
            names: self.names,
            unix_at_zero_ns: self.unix_at_zero_ns,
            is_monotonic,
            events: self.events,
            spans,
            lost,
            notes,
        }
    }
}

/// Describes an event and its distance from the rest: `completion (C) 1.27e9 s after the rest`.
fn far(event: &BlockEvent, rest_ns: u64) -> String {
    let what = match event.action {
        Action::Queue => "submission (Q)",
        Action::Issue => "dispatch (D)",
        Action::Complete => "completion (C)",
        _ => "block event",
    };
    let side = if event.time_ns > rest_ns { "after" } else { "before" };
    format!("{what} {:.2e} s {side} the rest", event.time_ns.abs_diff(rest_ns) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(time_ns: u64) -> BlockEvent {
        BlockEvent {
            time_ns,
            sector: time_ns,
            sectors: 8,
            action: Action::Queue,
            op: Some(plimsoll::core::Op::Read),
            class: 0,
            disk: 0,
            cpu: 0,
            sequence: 0,
            error: 0,
        }
    }

    /// Returns the sectors in the order of their spans, and the losses.
    fn order(window_events: usize, times_ns: &[u64]) -> (Vec<u64>, Vec<String>) {
        let mut spans = Vec::new();
        let mut visit = |item| {
            if let Item::Span(span) = item {
                spans.push(span.queued_ns.unwrap());
            }
        };
        let mut intake = Intake::new(&mut visit);
        intake.window_events = window_events;
        for time_ns in times_ns {
            intake.event(queued(*time_ns));
            intake.event(BlockEvent { action: Action::Complete, time_ns: time_ns + 1, ..queued(*time_ns) });
        }
        let lost = intake.finish(false).lost;
        (spans, lost)
    }

    #[test]
    fn events_are_put_in_order_within_the_window() {
        assert_eq!(order(100, &[30, 10, 20, 40]), (vec![10, 20, 30, 40], vec![]));
        let (spans, lost) = order(2, &[30, 40, 50, 60, 10]);
        assert_eq!(spans.len(), 5);
        assert!(lost[0].starts_with("2 events came too late"), "{lost:?}");
    }

    #[test]
    fn a_clock_that_jumps_for_one_event_costs_that_event() {
        let (spans, lost) = order(100, &[10, 1_266_874_889_709_450_585, 20, 30]);
        assert_eq!(spans, [10, 20, 30]);
        let expected = "2 events far from the rest, first a submission (Q) 1.27e9 s after the rest: left out";
        assert_eq!(lost[0], expected);
    }

    #[test]
    fn gaps_in_sequence_numbers_are_counted_for_each_cpu() {
        let mut visit = |_| {};
        let mut intake = Intake::new(&mut visit);
        for (cpu, sequence) in [(0, 5), (1, 1), (0, 6), (0, 9), (1, 2)] {
            intake.event(BlockEvent { cpu, sequence, action: Action::Other, ..queued(1) });
        }
        let lost = intake.finish(false).lost;
        assert!(lost[0].starts_with("2 events are missing"), "{lost:?}");
    }
}
