//! Traces for tests: a closed loop on one shard in virtual time, with the events that the scheduler would write.

use std::collections::VecDeque;

use plimsoll::core::trace::{Event, EventKind};
use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::{ClassName, Clock, Names, Writer};
use plimsoll_sim::rng::Rng;

use super::span::{Item, Trace};

/// A load, and its limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story {
    /// Time between grants of tokens, which is also the cost of each piece, in ns; 0: no model.
    pub(super) token_ns: u64,
    /// Most pieces in the device.
    pub(super) depth: usize,
    /// Time that a piece is in the device, in ns.
    pub(super) latency_ns: u64,
    /// Whether the device serves one piece at a time.
    pub(super) is_serial: bool,
    /// Time from an event to the dispatch that follows, in ns.
    pub(super) turn_ns: u64,
    pub(super) len_bytes: u32,
}

impl Story {
    /// 1 MiB on a disk that takes about 488 us for each, any number at a time.
    pub(super) const FREE: Story =
        Story { token_ns: 0, depth: 1000, latency_ns: 473_000, is_serial: false, turn_ns: 1_000, len_bytes: 1 << 20 };
    /// The same with tokens of 2^33 bytes and 2^24 requests per second: one piece each 122 us.
    pub(super) const OLD_DEFAULTS: Story = Story { token_ns: 122_130, ..Story::FREE };
}

/// Returns an event of a piece that is its whole request.
pub(super) fn event(time_ns: u64, request: u64, kind: EventKind) -> Event {
    Event {
        time_ns,
        request,
        offset_bytes: 0,
        len_bytes: 4096,
        detail: 0,
        class: 1,
        disk: 0,
        piece: 0,
        kind,
        op: Op::Write,
        reason: None,
    }
}

/// Returns the events of a loop that always has as many requests as each phase gives, with `ends` ends in each phase.
pub(super) fn events(story: Story, phases: &[usize], ends: u64) -> Vec<Event> {
    let Story { token_ns, depth, latency_ns, is_serial, turn_ns, len_bytes } = story;
    let (mut events, mut now_ns, mut request) = (Vec::new(), 1_000_000, 0);
    let (mut token_at_ns, mut free_at_ns) = (0, 0);

    for offered in phases {
        let (mut waiting, mut inside) = (VecDeque::<(u64, u64)>::new(), VecDeque::<(u64, u64)>::new());
        let mut ended = 0;
        while ended < ends || !inside.is_empty() || !waiting.is_empty() {
            while ended < ends && waiting.len() + inside.len() < *offered {
                request += 1;
                events.push(Event { len_bytes, ..event(now_ns, request, EventKind::Queued) });
                waiting.push_back((request, now_ns));
            }
            let mut reason = None;
            while let Some((number, queued_ns)) = waiting.front().copied() {
                reason = match () {
                    () if inside.len() >= depth => Some(WaitReason::Depth),
                    () if now_ns < token_at_ns => Some(WaitReason::Tokens),
                    () => None,
                };
                if reason.is_some() {
                    break;
                }
                now_ns += turn_ns;
                token_at_ns = token_at_ns.max(now_ns - turn_ns) + token_ns;
                waiting.pop_front();
                let waited_for = (now_ns > queued_ns + turn_ns && token_ns > 0).then_some(WaitReason::Tokens);
                let out = Event { len_bytes, reason: waited_for, ..event(now_ns, number, EventKind::Dispatched) };
                events.push(Event { detail: token_ns as u32, ..out });
                events.push(Event { len_bytes, ..event(now_ns, number, EventKind::Submitted) });
                free_at_ns = if is_serial { free_at_ns.max(now_ns) } else { now_ns } + latency_ns;
                // No two pieces come back at the same time.
                let back_ns = if is_serial { free_at_ns } else { free_at_ns + number * 37 % 16 * 2_000 };
                let at = inside.partition_point(|(other_ns, _)| *other_ns <= back_ns);
                inside.insert(at, (back_ns, number));
            }
            let look_ns = Some(token_at_ns).filter(|_| reason == Some(WaitReason::Tokens));
            if reason.is_some() {
                let detail = look_ns.map_or(0, |look_ns| (look_ns - now_ns) as u32);
                events.push(Event { reason, detail, request: 0, ..event(now_ns, 0, EventKind::Blocked) });
            }
            let back_ns = inside.front().map(|(back_ns, _)| *back_ns);
            now_ns = [look_ns, back_ns].into_iter().flatten().min().unwrap().max(now_ns);
            while let Some((_, number)) = inside.pop_front_if(|(back_ns, _)| *back_ns <= now_ns) {
                for kind in [EventKind::Completed, EventKind::Reaped, EventKind::Finished, EventKind::Callback] {
                    events.push(Event { len_bytes, ..event(now_ns, number, kind) });
                }
                ended += 1;
            }
        }
    }

    // A reason appears once in each standstill.
    let mut told = None;
    events.retain(|event| match event.kind {
        EventKind::Blocked => std::mem::replace(&mut told, event.reason) != event.reason,
        EventKind::Dispatched => {
            told = None;
            true
        }
        _ => true,
    });

    events
}

/// Returns the events of one load after the other, with a pause of `pause_ns` between them.
pub(super) fn with_pauses(loads: &[Vec<Event>], pause_ns: u64) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    for load in loads {
        let begin_ns = all.last().map_or(0, |last| last.time_ns + pause_ns);
        let requests = all.iter().map(|event| event.request).max().unwrap_or(0);
        let first_ns = load.first().map_or(0, |first| first.time_ns);
        let moved = |event: &Event| Event {
            time_ns: event.time_ns - first_ns + begin_ns,
            request: if event.request == 0 { 0 } else { event.request + requests },
            ..*event
        };
        all.extend(load.iter().map(moved));
    }
    all
}

/// Returns the events of a shard that gets no CPU now and then: on average every `every_ns`, for up to `most_ns`.
/// Everything after that is later.
pub(super) fn without_cpu(events: &[Event], every_ns: u64, most_ns: u64, seed: u64) -> Vec<Event> {
    let mut rng = Rng::new(seed);
    let (mut late_ns, mut next_ns) = (0, rng.below(2 * every_ns));
    let mut later = |event: &Event| {
        while event.time_ns >= next_ns {
            late_ns += rng.below(most_ns);
            next_ns += rng.below(2 * every_ns);
        }
        Event { time_ns: event.time_ns + late_ns, ..*event }
    };
    events.iter().map(&mut later).collect()
}

/// Returns the file of a trace with these events of shard 0.
pub(super) fn file(events: &[Event]) -> Vec<u8> {
    let mut names = Names::default();
    names.classes.insert(1, ClassName { name: "large".to_owned(), shares: 100 });
    names.disks.insert(0, "nvme".to_owned());
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Clock::Virtual, 0).unwrap();
    writer.names(&names).unwrap();
    writer.events(0, 0, events).unwrap();
    file
}

/// Hands these events to an analysis.
pub(super) fn read(events: &[Event], visit: &mut dyn FnMut(Item)) -> Trace {
    super::read_from(file(events).as_slice(), visit).unwrap()
}
