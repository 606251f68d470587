use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::{ClassName, FileName, Writer};

use super::super::story;
use super::*;

fn event(kind: EventKind, request: u64, piece: u16, time_ns: u64) -> Event {
    Event {
        offset_bytes: 4096 * u64::from(piece),
        len_bytes: if kind == EventKind::Queued { 8192 } else { 4096 },
        class: 2,
        disk: 1,
        piece,
        op: Op::Read,
        ..story::event(time_ns, request, kind)
    }
}

/// Events as words `KIND REQUEST.PIECE @TIME`: `Q1@10` queued, `D1.0@20` dispatched, then S, C, R; F (finished), B
/// (callback), X (cancelled).
fn events(text: &str) -> Vec<Event> {
    let one = |word: &str| {
        let (head, time) = word.split_once('@').unwrap();
        let (request, piece) = head[1..].split_once('.').unwrap_or((&head[1..], "0"));
        let kind = match &head[..1] {
            "Q" => EventKind::Queued,
            "D" => EventKind::Dispatched,
            "S" => EventKind::Submitted,
            "C" => EventKind::Completed,
            "R" => EventKind::Reaped,
            "F" => EventKind::Finished,
            "B" => EventKind::Callback,
            _ => EventKind::Cancelled,
        };
        event(kind, request.parse().unwrap(), piece.parse().unwrap(), time.parse().unwrap())
    };
    text.split_whitespace().map(one).collect()
}

fn file(chunks: &[(u16, u64, Vec<Event>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Clock::Monotonic, 77).unwrap();
    for (shard, dropped, events) in chunks {
        writer.events(*shard, *dropped, events).unwrap();
    }
    file
}

fn read_all(file: &[u8], held_max: usize) -> (Vec<Span>, Trace) {
    let (mut spans, mut head) = (Vec::new(), Head::default());
    let mut visit = |item| {
        head.visit(&item);
        spans.extend(span_of(item));
    };
    let trace = read_bounded(&mut { file }, &mut visit, held_max).unwrap();
    assert_eq!(trace.spans, spans.len() as u64);
    let alone = read_head(std::io::Cursor::new(file)).unwrap();
    assert_eq!((alone.names, alone.begin_ns), (trace.names.clone(), head.begin_ns));
    assert_eq!(alone.unix_at_zero_ns, trace.unix_at_zero_ns.map(|ns| ns as i64));
    (spans, trace)
}

fn span_of(item: Item) -> Option<Span> {
    match item {
        Item::Span(span) => Some(span),
        Item::Event(..) => None,
    }
}

/// Spans as `request.piece: Q D S C R B`, with `-` for unknown times, and marks: `+` split, `x` cancelled.
fn shown(span: &Span) -> String {
    let time = |time: Option<u64>| time.map_or("-".to_owned(), |time_ns| time_ns.to_string());
    let stations =
        [span.queued_ns, span.dispatched_ns, span.submitted_ns, span.completed_ns, span.reaped_ns, span.callback_ns];
    let marks = format!("{}{}", if span.is_split { "+" } else { "" }, if span.is_cancelled { "x" } else { "" });
    format!("{}.{}{marks}: {}", span.request, span.piece, stations.map(time).join(" "))
}

#[test]
fn stories_of_requests() {
    let whole = "Q1@1 D1@2 S1@3 C1@4 R1@5 F1@6 B1@7";
    let cases: &[(&str, &[&str], &[&str])] = &[
        (whole, &["1.0+: 1 2 3 4 5 7"], &[]),
        ("Q1@1 D1.0@2 D1.1@3 R1.1@6 R1.0@8 F1@9 B1@9", &["1.1+: 1 3 - - 6 -", "1.0+: 1 2 - - 8 9"], &[]),
        ("Q1@1 D1@2 R1@5 F1@6", &["1.0+: 1 2 - - 5 -"], &[]),
        ("Q1@1 X1@2 B1@3", &["1.0x: 1 - - - - 3"], &[]),
        ("Q1@1 X1@2", &["1.0x: 1 - - - - -"], &[]),
        ("Q1@1 D1@2 X1@3 R1@4 F1@5 B1@6", &["1.0+: 1 2 - - 4 6"], &[]),
        // Recording began in the middle.
        ("C1@4 R1@5 F1@6 B1@7 Q2@8 X2@9", &["1.0: - - - 4 5 7", "2.0x: 8 - - - - -"], &["1 request(s) without"]),
        ("B1@7", &[], &["1 end(s) of requests"]),
        ("R1.0@5 D1.1@6 R1.1@7 B1@8", &["1.0+: - - - - 5 -", "1.1+: - 6 - - 7 8"], &["1 request(s) without"]),
        // It ended in the middle, or events are missing there.
        ("Q1@1 D1@2", &["1.0+: 1 2 - - - -"], &[]),
        ("Q1@1", &["1.0: 1 - - - - -"], &[]),
        ("Q1@1 D1@2 B1@9", &["1.0+: 1 2 - - - 9"], &[]),
        // A number is used again.
        ("Q1@1 D1@2 Q1@11 X1@12", &["1.0+: 1 2 - - - -", "1.0x: 11 - - - - -"], &["ended by another"]),
        (
            "Q1@1 D1@2 D1@12 R1@13 F1@14",
            &["1.0+: 1 2 - - - -", "1.0: - 12 - - 13 -"],
            &["without their beginning", "ended by another"],
        ),
        ("Q1@1 D1@2 R1@3 F1@4 Q1@5 X1@6", &["1.0+: 1 2 - - 3 -", "1.0x: 5 - - - - -"], &[]),
    ];

    for (text, expected, lost) in cases {
        let (spans, trace) = read_all(&file(&[(0, 0, events(text))]), 100);
        assert_eq!(spans.iter().map(shown).collect::<Vec<_>>(), *expected, "{text}");
        assert_eq!(trace.lost.len(), lost.len(), "{text}: {:?}", trace.lost);
        for (sentence, part) in trace.lost.iter().zip(*lost) {
            assert!(sentence.contains(part), "{text}: {sentence}");
        }
    }
}

#[test]
fn fields_come_from_the_events_that_carry_them() {
    let mut story = events("Q1@1 D1@2 S1@3 C1@9 R1@10 F1@11 B1@12");
    story[0].detail = 5;
    story[0].len_bytes = 4096;
    story[1] = Event { detail: 250, reason: Some(WaitReason::Tokens), ..story[1] };
    story[3].detail = 6;
    story[4].detail = 28;

    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, Clock::Monotonic, 77).unwrap();
    let mut names = Names::default();
    names.classes.insert(2, ClassName { name: "query".to_owned(), shares: 100 });
    writer.names(&names).unwrap();
    writer.events(3, 0, &story).unwrap();

    let (spans, trace) = read_all(&bytes, 100);
    let [span] = spans[..] else { panic!("{spans:?}") };
    assert_eq!((span.shard, span.disk, span.class, span.file, span.len_bytes), (3, 1, 2, 5, 4096));
    assert_eq!((span.cost_ns, span.reason, span.late_max_ns), (Some(250), Some(WaitReason::Tokens), 6));
    assert_eq!((span.error, span.is_split, span.is_cancelled), (Some(28), false, false));
    assert_eq!((trace.names, trace.unix_at_zero_ns, trace.is_monotonic, trace.events), (names, Some(77), true, 7));
}

#[test]
fn shards_are_matched_apart_however_their_chunks_are_interleaved() {
    let chunks = [
        (0, 0, events("Q1@100 D1@110")),
        (1, 3, events("Q1@1 D1@2 R1@3 F1@4 B1@5")),
        (0, 0, events("R1@120 F1@121 B1@122")),
    ];
    let (spans, trace) = read_all(&file(&chunks), 100);
    let shown: Vec<_> = spans.iter().map(|span| (span.shard, shown(span))).collect();
    assert_eq!(shown, [(1, "1.0+: 1 2 - - 3 5".to_owned()), (0, "1.0+: 100 110 - - 120 122".to_owned())]);
    assert_eq!(trace.lost, ["3 event(s) were dropped while recording: they came faster than they were written"]);
}

#[test]
fn no_more_is_held_than_the_bound_and_the_oldest_goes_first() {
    let story: Vec<Event> = (1..=1000).map(|request| event(EventKind::Queued, request, 0, request)).collect();
    let mut held = 0_i64;
    let mut at = 0;
    let bytes = file(&[(0, 0, story)]);
    let trace = read_bounded(
        &mut bytes.as_slice(),
        &mut |item| {
            at += 1;
            assert_eq!(span_of(item).unwrap().request, at, "the oldest first");
            held += 1;
        },
        10,
    );
    assert_eq!(held, 1000);
    let lost = trace.unwrap().lost;
    assert!(lost[0].starts_with("990 ") && lost[1].starts_with("10 request(s) had not ended"), "{lost:?}");
}

#[test]
fn of_a_file_cut_anywhere_the_rest_is_told() {
    let whole = file(&[(0, 0, events("Q1@1 D1@2 S1@3")), (0, 0, events("C1@4 R1@5 F1@6 B1@7"))]);
    for cut in 28..whole.len() {
        let (spans, trace) = read_all(&whole[..cut], 100);
        assert!(spans.len() <= 1, "cut at {cut}");
        let is_whole_chunk = [28, 28 + 28 + 120].contains(&cut);
        let told = trace.lost.iter().any(|sentence| sentence.contains("cut"));
        assert_eq!(told, !is_whole_chunk, "cut at {cut}: {:?}", trace.lost);
    }
}

#[test]
fn a_number_that_is_used_again_is_another_file_and_class_from_there_on() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Clock::Monotonic, 77).unwrap();
    for (at, name) in ["a", "b", "b", "a"].into_iter().enumerate() {
        let mut names = Names::default();
        // Other shares make no other class.
        names.classes.insert(2, ClassName { name: name.to_owned(), shares: at as u32 });
        names.files.insert(7, FileName { path: format!("/data/{name}"), disk: 1 });
        writer.names(&names).unwrap();
        let queued = Event { detail: 7, ..event(EventKind::Queued, at as u64, 0, 10) };
        writer.events(0, 0, &[queued, event(EventKind::Reaped, at as u64, 0, 20)]).unwrap();
    }
    let (spans, trace) = read_all(&file, HELD_MAX);
    let path = |span: &Span| trace.names.files[&span.file].path.clone();
    let found: Vec<String> = spans.iter().map(|span| trace.class_name(span.class) + " " + &path(span)).collect();
    assert_eq!(found, ["a /data/a", "b /data/b", "b /data/b", "a /data/a"]);
    assert_eq!((spans[0].file, spans[0].class, spans[1].file == spans[2].file), (7, 2, true));
}
