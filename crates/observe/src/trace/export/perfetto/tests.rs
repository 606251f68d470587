//! Decodes the output by Perfetto's published messages, with a decoder that is not ours.

use std::collections::BTreeMap;

use plimsoll::core::EventKind as Decision;
use plimsoll::core::WaitReason;
use plimsoll::trace::format::ClassName;
use prost::Message as _;

use super::super::super::arrivals::tests::span;
use super::*;

/// Trace of trace.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CounterDescriptor {}

#[derive(Clone, PartialEq, prost::Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(fixed64, repeated, tag = "47")]
    flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    int_value: Option<i64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

fn head() -> Head {
    let mut head = Head::default();
    head.names.classes.insert(1, ClassName { name: "db".to_owned(), shares: 1 });
    head.names.disks.insert(0, "nvme0n1".to_owned());
    head
}

fn exported(items: &[Item]) -> (Trace, Exported) {
    let mut out = Vec::new();
    let mut perfetto = Box::new(Perfetto::begin(&mut out, head()));
    items.iter().for_each(|item| perfetto.visit(item));
    let exported = perfetto.finish().unwrap();
    (Trace::decode(out.as_slice()).unwrap(), exported)
}

/// A finished slice: name of group and lane, name, begin, end, depth of nesting.
type Slice = (String, String, u64, u64, usize);

/// Checks the viewer's demands; returns the slices, and the counters as (track, time, value).
fn checked(trace: &Trace) -> (Vec<Slice>, Vec<(String, u64, i64)>) {
    assert_eq!(trace.packet[0].sequence_flags, Some(1), "the first packet clears the state");
    assert!(trace.packet.iter().all(|packet| packet.trusted_packet_sequence_id == Some(1)));

    let mut tracks: BTreeMap<u64, String> = BTreeMap::new();
    let mut events: Vec<(u64, &TrackEvent)> = Vec::new();
    for packet in &trace.packet {
        if let Some(track) = &packet.track_descriptor {
            let parent = track.parent_uuid.map(|parent| format!("{} / ", tracks[&parent]));
            let name = format!("{}{}", parent.unwrap_or_default(), track.name());
            assert_eq!(tracks.insert(track.uuid(), name), None, "each track is told once");
        }
        if let Some(event) = &packet.track_event {
            assert!(tracks.contains_key(&event.track_uuid()), "a track is told before its first event");
            events.push((packet.timestamp(), event));
        }
    }

    // The viewer sorts by time and keeps the order of the file among equals.
    events.sort_by_key(|(time, _)| *time);

    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    let (mut slices, mut counters) = (Vec::new(), Vec::new());
    for (time, event) in events {
        let (uuid, track) = (event.track_uuid(), tracks[&event.track_uuid()].clone());
        let stack = open.entry(uuid).or_default();
        match event.r#type() {
            1 => stack.push((event.name().to_owned(), time)),
            2 => {
                let (name, begin) = stack.pop().expect("an end has a beginning");
                slices.push((track, name, begin, time, stack.len()));
            }
            3 => slices.push((track, event.name().to_owned(), time, time, 0)),
            4 => counters.push((track, time, event.counter_value())),
            other => panic!("type {other}"),
        }
    }

    assert!(open.values().all(Vec::is_empty), "what begins, ends");
    (slices, counters)
}

#[test]
fn one_request_is_three_slices_with_its_stages_inside_the_first() {
    let span = Span {
        dispatched_ns: Some(1_100),
        submitted_ns: Some(1_200),
        completed_ns: Some(5_000),
        reaped_ns: Some(5_300),
        callback_ns: Some(5_400),
        reason: Some(WaitReason::Tokens),
        error: Some(-5),
        ..span(1_000, 0)
    };

    let (trace, told) = exported(&[Item::Span(span)]);
    assert_eq!(told, Exported { rows: 3, ..Exported::default() });
    let (mut slices, counters) = checked(&trace);
    slices.sort();

    let text = |text: &str| text.to_owned();
    let expected = [
        (text("class db / in queue"), text("read 4 KiB"), 1_000, 1_200, 0),
        (text("disk nvme0n1 / in device"), text("read 4 KiB"), 1_200, 5_000, 0),
        (text("shard 0 / requests"), text("callback"), 5_300, 5_400, 1),
        (text("shard 0 / requests"), text("device"), 1_200, 5_000, 1),
        (text("shard 0 / requests"), text("queue"), 1_000, 1_200, 1),
        (text("shard 0 / requests"), text("read 4 KiB db"), 1_000, 5_400, 0),
        (text("shard 0 / requests"), text("unseen"), 5_000, 5_300, 1),
    ];
    assert_eq!(slices, expected);

    let expected = [
        (text("class db / pieces in queue"), 1_000, 1),
        (text("class db / pieces in queue"), 1_200, 0),
        (text("disk nvme0n1 / pieces in device"), 1_200, 1),
        (text("disk nvme0n1 / pieces in device"), 5_000, 0),
    ];
    assert_eq!(counters, expected);

    let begins: Vec<&TrackEvent> = trace.packet.iter().filter_map(|packet| packet.track_event.as_ref()).collect();
    let flows: Vec<u64> = begins.iter().flat_map(|event| event.flow_ids.clone()).collect();
    assert_eq!(flows, [1, 1, 1], "its three slices are joined");

    let argument = |name: &str| begins[0].debug_annotations.iter().find(|found| found.name() == name).cloned().unwrap();
    assert_eq!(argument("offset_bytes").uint_value, Some(8192));
    assert_eq!(argument("waited_for").string_value(), "tokens");
    assert_eq!(argument("error").int_value, Some(-5));
}

#[test]
fn requests_that_overlap_nest_in_no_lane_and_counters_count_them() {
    // 200 requests, 100 ns apart, each 1 us long, in the order of their ends but for every tenth.
    let mut spans: Vec<Span> =
        (0..200).map(|n| Span { request: n, ..span(1_000 + 100 * n, 2_000 + 100 * n + 50 * (n % 3)) }).collect();
    spans.chunks_mut(10).for_each(|chunk| chunk.swap(0, 9));
    let items: Vec<Item> = spans.iter().map(|span| Item::Span(*span)).collect();
    let (trace, told) = exported(&items);
    assert_eq!((told.rows, told.without_place, told.unordered), (600, 0, 0));

    let (slices, counters) = checked(&trace);
    let outer = slices.iter().filter(|slice| slice.4 == 0);
    assert_eq!(outer.clone().filter(|slice| slice.0 == "shard 0 / requests").count(), 200);
    for (track, name, begin, end, _) in outer {
        let whole = spans.iter().any(|span| span.reaped_ns == Some(*end) && *begin <= end - 1_000 + 2);
        assert!(whole || track.starts_with("class"), "{track} {name} {begin} {end}");
    }

    let most = counters.iter().filter(|(track, ..)| track.starts_with("disk")).map(|(_, _, value)| *value).max();
    assert!(most.is_some_and(|most| (10..=11).contains(&most)), "{most:?}");
    assert!(counters.iter().all(|(_, _, value)| *value >= 0));
    assert_eq!(counters.last().map(|(_, _, value)| *value), Some(0));
}

#[test]
fn unknown_and_backward_stages_are_left_out() {
    let open = Span { completed_ns: None, reaped_ns: None, ..span(1_000, 0) };
    let backwards = Span { queued_ns: Some(3_000), ..span(1_000, 4_000) };
    let (trace, told) = exported(&[Item::Span(open), Item::Span(backwards)]);
    let (slices, _) = checked(&trace);
    // The first has its queue; the second its device and the whole.
    assert_eq!((told.rows, slices.iter().filter(|slice| slice.4 == 0).count()), (3, 3), "{slices:?}");
}

#[test]
fn decisions_and_blocked_queues_are_instants() {
    let decision = Event::of_decision(Decision::WindowRaised, 0, 7_000, 750_000, 0.5);
    let blocked = Event { kind: EventKind::Blocked, class: 1, reason: Some(WaitReason::Depth), time_ns: 8, ..decision };
    let (trace, _) = exported(&[Item::Event(0, decision), Item::Event(0, blocked)]);
    let (slices, _) = checked(&trace);
    let expected = [
        ("class db".to_owned(), "blocked: depth".to_owned(), 8, 8, 0),
        ("disk nvme0n1".to_owned(), "window raised".to_owned(), 7_000, 7_000, 0),
    ];
    assert_eq!(slices, expected);
}

#[test]
fn a_counter_that_hears_too_late_is_right_in_the_end() {
    let mut out = Out { sticky: Sticky::new(Vec::new()), packet: Message::default(), event: Message::default() };
    let mut counters = Counters { held_max: 2, ..Counters::default() };
    for times in [(10, 20), (30, 40), (5, 50), (60, 70)] {
        counters.add(Group::Disk(0), times, &mut out);
    }
    counters.finish(&mut out);
    assert_eq!((counters.unordered, counters.values[&Group::Disk(0)]), (1, 0));
    let trace = Trace::decode(out.sticky.out.as_slice()).unwrap();
    let times: Vec<u64> = trace.packet.iter().map(|packet| packet.timestamp()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn an_empty_trace_is_one_that_can_be_opened() {
    let (trace, told) = exported(&[]);
    assert_eq!((trace.packet.len(), told), (1, Exported::default()));
}

#[test]
fn slices_that_overlap_have_lanes_of_their_own() {
    let mut lanes = Lanes::default();
    let cases = [
        ((0, 10), (0, true)),
        ((5, 15), (1, true)),
        ((10, 20), (0, false)),
        ((20, 20), (0, false)),
        ((20, 21), (0, false)),
        ((15, 16), (1, false)),
    ];
    for ((begin, end), expected) in cases {
        assert_eq!(lanes.take(begin, end), Some(expected), "{begin} {end}");
    }
}

#[test]
fn there_is_an_end_to_lanes() {
    let mut lanes = Lanes::default();
    assert!((0..LANES_MAX).all(|_| lanes.take(0, 1).is_some()));
    assert_eq!((lanes.take(0, 1), lanes.take(1, 2)), (None, Some((LANES_MAX - 1, false))));
}
