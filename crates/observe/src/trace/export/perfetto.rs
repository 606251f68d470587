//! A trace for ui.perfetto.dev: slices and counters on tracks.
//!
//! **Why.** A picture shows some things sooner than figures do: an idle device, a queue behind one long write.
//!
//! **How.** Perfetto's protobuf format, with its published messages and field numbers. There is one track for each
//!
//! | track | slices | counter below it |
//! |---|---|---|
//! | shard | a request's whole way, its stages (in queue, in device, done and unseen, to the program) inside | |
//! | class | the time in the queue; what its class waited for as argument | pieces in queue |
//! | disk | the time in the device | pieces in device |
//!
//! A flow joins the three slices of one piece. Blocked queues and decisions of the closed loop are instants on the
//! track of their class or disk.
//!
//! The format wants the slices of a track to nest, but requests overlap. So each group is a track with *lanes* of one
//! name below it, which the viewer draws as one. A slice goes into the lane that became free last before it begins, so
//! that lanes are filled densely; lanes are made as needed. A counter needs the order of time: its changes
//! wait in a window of 524,288.
//!
//! **Limits.** At most 4,096 lanes for each group; slices without a lane are left out and counted. Slices that arrive
//! long after their end make more lanes than there are overlaps: a gap before the end of a lane is not reused. A change
//! of a counter that comes after the window is drawn when it comes, and counted; afterwards the counter is right again.
//! Slices with an unknown end are left out, so a piece that has not come back shows its known stages. Stages that run
//! backwards are left out, too.
//!
//! **Example.** See [`super`]; open the file at <https://ui.perfetto.dev>.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use plimsoll::core::trace::{Event, EventKind};
use plimsoll_figures::units::format_bytes_binary;

use super::super::show::Head;
use super::super::span::{Item, Span};
use super::proto::Message;
use super::{Exported, Sink, Sticky};

const LANES_MAX: usize = 4096;
/// Most changes of counters that wait for their order.
const CHANGES_HELD_MAX: usize = 1 << 19;

/// Numbers of fields in Perfetto's messages (protos/perfetto/trace: trace.proto, trace_packet.proto,
/// track_event/track_event.proto, track_event/track_descriptor.proto, track_event/debug_annotation.proto).
mod field {
    pub(super) const TRACE_PACKET: u32 = 1;
    pub(super) const PACKET_TIMESTAMP: u32 = 8;
    pub(super) const PACKET_SEQUENCE_ID: u32 = 10;
    pub(super) const PACKET_TRACK_EVENT: u32 = 11;
    pub(super) const PACKET_SEQUENCE_FLAGS: u32 = 13;
    pub(super) const PACKET_TRACK_DESCRIPTOR: u32 = 60;
    pub(super) const TRACK_UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;
    pub(super) const TRACK_PARENT_UUID: u32 = 5;
    pub(super) const TRACK_COUNTER: u32 = 8;
    pub(super) const EVENT_ANNOTATION: u32 = 4;
    pub(super) const EVENT_TYPE: u32 = 9;
    pub(super) const EVENT_TRACK_UUID: u32 = 11;
    pub(super) const EVENT_CATEGORY: u32 = 22;
    pub(super) const EVENT_NAME: u32 = 23;
    pub(super) const EVENT_COUNTER_VALUE: u32 = 30;
    pub(super) const EVENT_FLOW_ID: u32 = 47;
    pub(super) const ANNOTATION_UINT: u32 = 3;
    pub(super) const ANNOTATION_INT: u32 = 4;
    pub(super) const ANNOTATION_STRING: u32 = 6;
    pub(super) const ANNOTATION_NAME: u32 = 10;
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy)]
enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: packets before this one are not needed.
const STATE_CLEARED: u64 = 1;
const SEQUENCE_ID: u64 = 1;

/// The subject of a group of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Group {
    Shard(u16),
    Class(u16),
    Disk(u16),
}

impl Group {
    /// Returns the kind, from 1, the number, the name of the lanes, and that of the counter.
    const fn parts(self) -> (u64, u16, &'static str, Option<&'static str>) {
        match self {
            Group::Shard(number) => (1, number, "requests", None),
            Group::Class(number) => (2, number, "in queue", Some("pieces in queue")),
            Group::Disk(number) => (3, number, "in device", Some("pieces in device")),
        }
    }

    /// Returns the number of the group's track; its lanes and counter count on from there.
    fn uuid(self) -> u64 {
        let (kind, number, ..) = self.parts();
        kind << 48 | u64::from(number) << 32
    }

    fn counter_uuid(self) -> u64 {
        self.uuid() | 1
    }

    fn name(self, head: &Head) -> String {
        match self {
            Group::Shard(number) => format!("shard {number}"),
            Group::Class(number) => with_kind("class", &head.class(number)),
            Group::Disk(number) => with_kind("disk", &head.disk(number)),
        }
    }
}

/// Returns `class db`, but not `class class 3`.
fn with_kind(kind: &str, name: &str) -> String {
    if name.starts_with(kind) { name.to_owned() } else { format!("{kind} {name}") }
}

pub(super) struct Perfetto<W> {
    out: Out<W>,
    head: Head,
    groups: HashMap<Group, Lanes>,
    counters: Counters,
    /// Pieces so far, which is the number of the latest flow.
    flow: u64,
    exported: Exported,
}

impl<W: Write> Perfetto<W> {
    pub(super) fn begin(out: W, head: Head) -> Perfetto<W> {
        let mut out = Out { sticky: Sticky::new(out), packet: Message::default(), event: Message::default() };
        out.clear_state();
        let counters = Counters { held_max: CHANGES_HELD_MAX, ..Counters::default() };
        Perfetto { out, head, groups: HashMap::new(), counters, flow: 0, exported: Exported::default() }
    }

    fn span(&mut self, span: &Span) {
        self.flow += 1;
        let stages = Stages::of(span);
        let name = format!("{} {}", span.op.name(), format_bytes_binary(u64::from(span.len_bytes)));
        let (shard, class, disk) = (Group::Shard(span.shard), Group::Class(span.class), Group::Disk(span.disk));

        if let Some((begin_ns, end_ns)) = stages.whole {
            let group = self.head.class(span.class);
            self.slice(shard, (begin_ns, end_ns), &format!("{name} {group}"), &stages.inner, span);
        }
        if let Some(queue) = stages.queue {
            self.slice(class, queue, &name, &[], span);
            self.counters.add(class, queue, &mut self.out);
        }
        if let Some(device) = stages.device {
            self.slice(disk, device, &name, &[], span);
            self.counters.add(disk, device, &mut self.out);
        }
    }

    /// Adds a slice, with other slices inside one after another.
    fn slice(
        &mut self,
        group: Group,
        (begin_ns, end_ns): (u64, u64),
        name: &str,
        inner: &[(&str, (u64, u64))],
        span: &Span,
    ) {
        self.describe(group);
        let Some(lanes) = self.groups.get_mut(&group) else { return };
        let Some((lane, is_new)) = lanes.take(begin_ns, end_ns) else {
            self.exported.without_place += 1;
            return;
        };

        let (uuid, (_, _, lane_name, _)) = (group.uuid() | (2 + lane as u64), group.parts());
        if is_new {
            self.out.track(uuid, lane_name, Some(group.uuid()), false);
        }

        let event = self.out.event(Kind::Begin, uuid);
        event.text(field::EVENT_CATEGORY, lane_name).text(field::EVENT_NAME, name);
        event.fixed(field::EVENT_FLOW_ID, self.flow);
        annotate(event, span);
        self.out.send(begin_ns);

        for (name, (begin_ns, end_ns)) in inner {
            let event = self.out.event(Kind::Begin, uuid);
            event.text(field::EVENT_CATEGORY, "stage").text(field::EVENT_NAME, name);
            self.out.send(*begin_ns);
            self.out.event(Kind::End, uuid);
            self.out.send(*end_ns);
        }

        self.out.event(Kind::End, uuid);
        self.out.send(end_ns);
        self.exported.rows += 1;
    }

    fn instant(&mut self, event: &Event) {
        let (group, name) = match (event.kind, event.control()) {
            (_, Some((decision, ..))) => (Group::Disk(event.disk), decision.words().to_owned()),
            (EventKind::Blocked, None) => {
                let reason = event.reason.map_or("", |reason| reason.name());
                (Group::Class(event.class), format!("blocked: {reason}"))
            }
            (kind, None) => (Group::Class(event.class), kind.name().to_owned()),
        };
        self.describe(group);
        let message = self.out.event(Kind::Instant, group.uuid());
        message.text(field::EVENT_CATEGORY, "scheduler").text(field::EVENT_NAME, &name);
        if let Some((_, window_ns, scale)) = event.control() {
            number(message, "window_ns", window_ns);
            number(message, "capacity_millionths", (scale * 1e6) as u64);
        }
        self.out.send(event.time_ns);
    }

    /// Describes a group before its first event.
    fn describe(&mut self, group: Group) {
        if self.groups.contains_key(&group) {
            return;
        }
        self.groups.insert(group, Lanes::default());
        self.out.track(group.uuid(), &group.name(&self.head), None, false);
        if let (.., Some(name)) = group.parts() {
            self.out.track(group.counter_uuid(), name, Some(group.uuid()), true);
        }
    }
}

impl<W: Write> Sink for Perfetto<W> {
    fn visit(&mut self, item: &Item) {
        match item {
            Item::Span(span) => self.span(span),
            Item::Event(_, event) => self.instant(event),
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<Exported> {
        self.counters.finish(&mut self.out);
        self.exported.unordered = self.counters.unordered;
        self.out.sticky.finish()?;
        Ok(self.exported)
    }
}

/// Lanes for slices that overlap: the end of each lane's last slice, and the lane's number.
#[derive(Default)]
struct Lanes(BTreeSet<(u64, usize)>);

impl Lanes {
    /// Returns a lane for a slice from `begin_ns` to `end_ns`, and whether it is new; `None` if all are taken. Among
    /// the lanes that are free, takes the one that became free last.
    fn take(&mut self, begin_ns: u64, end_ns: u64) -> Option<(usize, bool)> {
        let latest = self.0.range(..=(begin_ns, usize::MAX)).next_back().copied();
        let (lane, is_new) = match latest {
            Some(place) => {
                self.0.remove(&place);
                (place.1, false)
            }
            None if self.0.len() < LANES_MAX => (self.0.len(), true),
            None => return None,
        };
        self.0.insert((end_ns, lane));
        Some((lane, is_new))
    }
}

/// Begin and end of each stage of a piece, where both are known and in order.
struct Stages {
    whole: Option<(u64, u64)>,
    queue: Option<(u64, u64)>,
    device: Option<(u64, u64)>,
    /// The stages inside the whole; none if the piece's clock ran backwards.
    inner: Vec<(&'static str, (u64, u64))>,
}

impl Stages {
    fn of(span: &Span) -> Stages {
        let between = |from: Option<u64>, to: Option<u64>| from.zip(to).filter(|(from, to)| from <= to);
        let whole = between(span.begin_ns(), span.end_ns());
        let queue = between(span.queued_ns, span.out_ns());
        let device = between(span.out_ns(), span.completed_ns);
        let unseen = between(span.completed_ns, span.reaped_ns);
        let told = between(span.reaped_ns, span.callback_ns);

        let all = [("queue", queue), ("device", device), ("unseen", unseen), ("callback", told)];
        let mut inner: Vec<_> = all.into_iter().filter_map(|(name, stage)| Some((name, stage?))).collect();
        let times = inner.iter().flat_map(|(_, (begin_ns, end_ns))| [*begin_ns, *end_ns]);
        let (first, last) = whole.map_or((None, None), |(begin_ns, end_ns)| (Some(begin_ns), Some(end_ns)));
        if !first.into_iter().chain(times).chain(last).is_sorted() {
            inner.clear();
        }
        Stages { whole, queue, device, inner }
    }
}

fn annotate(event: &mut Message, span: &Span) {
    let above_0 = |value: u64| Some(value).filter(|value| *value > 0);
    let numbers = [
        ("shard", Some(u64::from(span.shard))),
        ("request", Some(span.request)),
        ("offset_bytes", Some(span.offset_bytes)),
        ("len_bytes", Some(u64::from(span.len_bytes))),
        ("piece", span.is_split.then_some(u64::from(span.piece))),
        ("merged", above_0(u64::from(span.merged))),
        ("cost_ns", span.cost_ns.map(u64::from)),
        ("late_max_ns", above_0(u64::from(span.late_max_ns))),
    ];
    for (name, value) in numbers {
        value.into_iter().for_each(|value| number(event, name, value));
    }

    if let Some(reason) = span.reason {
        named(event, "waited_for", |annotation| annotation.text(field::ANNOTATION_STRING, reason.name()));
    }
    if let Some(error) = span.error {
        named(event, "error", |annotation| annotation.number(field::ANNOTATION_INT, i64::from(error) as u64));
    }
}

fn number(event: &mut Message, name: &str, value: u64) {
    named(event, name, |annotation| annotation.number(field::ANNOTATION_UINT, value));
}

/// Adds an annotation with a value.
fn named(event: &mut Message, name: &str, set: impl FnOnce(&mut Message) -> &mut Message) {
    let mut annotation = Message::default();
    set(annotation.text(field::ANNOTATION_NAME, name));
    event.message(field::EVENT_ANNOTATION, &annotation);
}

/// The file, and the packet and event being built.
struct Out<W> {
    sticky: Sticky<W>,
    packet: Message,
    event: Message,
}

impl<W: Write> Out<W> {
    fn clear_state(&mut self) {
        self.packet.number(field::PACKET_SEQUENCE_ID, SEQUENCE_ID).number(field::PACKET_SEQUENCE_FLAGS, STATE_CLEARED);
        self.write();
    }

    fn track(&mut self, uuid: u64, name: &str, parent: Option<u64>, is_counter: bool) {
        let mut track = Message::default();
        track.number(field::TRACK_UUID, uuid).text(field::TRACK_NAME, name);
        if let Some(parent) = parent {
            track.number(field::TRACK_PARENT_UUID, parent);
        }
        if is_counter {
            track.message(field::TRACK_COUNTER, &Message::default());
        }
        self.packet.number(field::PACKET_SEQUENCE_ID, SEQUENCE_ID).message(field::PACKET_TRACK_DESCRIPTOR, &track);
        self.write();
    }

    /// Begins an event. The caller completes it, then sends it.
    fn event(&mut self, kind: Kind, track: u64) -> &mut Message {
        self.event.clear();
        self.event.number(field::EVENT_TYPE, kind as u64).number(field::EVENT_TRACK_UUID, track)
    }

    fn send(&mut self, time_ns: u64) {
        self.packet.number(field::PACKET_TIMESTAMP, time_ns).number(field::PACKET_SEQUENCE_ID, SEQUENCE_ID);
        self.packet.message(field::PACKET_TRACK_EVENT, &self.event);
        self.write();
    }

    fn write(&mut self) {
        let mut framed = Message::default();
        framed.message(field::TRACE_PACKET, &self.packet);
        self.sticky.write(framed.bytes());
        self.packet.clear();
    }
}

/// Numbers of pieces, as changes in the order of time.
#[derive(Default)]
struct Counters {
    /// Changes that wait for their order.
    held: BTreeMap<(u64, Group), i64>,
    held_max: usize,
    values: HashMap<Group, i64>,
    /// Time of the last change written.
    written_ns: u64,
    unordered: u64,
}

impl Counters {
    /// Counts one piece from `begin_ns` to `end_ns`.
    fn add<W: Write>(&mut self, group: Group, (begin_ns, end_ns): (u64, u64), out: &mut Out<W>) {
        for (time_ns, change) in [(begin_ns, 1), (end_ns, -1)] {
            self.unordered += u64::from(time_ns < self.written_ns);
            *self.held.entry((time_ns.max(self.written_ns), group)).or_default() += change;
        }
        while self.held.len() > self.held_max {
            self.write_first(out);
        }
    }

    fn finish<W: Write>(&mut self, out: &mut Out<W>) {
        while !self.held.is_empty() {
            self.write_first(out);
        }
    }

    fn write_first<W: Write>(&mut self, out: &mut Out<W>) {
        let Some(((time_ns, group), change)) = self.held.pop_first() else { return };
        self.written_ns = time_ns;
        if change == 0 {
            return;
        }
        let value = self.values.entry(group).or_default();
        *value += change;
        out.event(Kind::Counter, group.counter_uuid()).number(field::EVENT_COUNTER_VALUE, *value as u64);
        out.send(time_ns);
    }
}
