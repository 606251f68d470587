use super::super::read_blkparse;
use super::*;

/// Spans in short, in the order of their beginnings: `R 0+16 m1 Q100 D200 C300`.
fn spans_of(text: &str) -> (Vec<String>, Vec<String>) {
    let mut spans = Vec::new();
    let trace = read_blkparse(&mut text.as_bytes(), &mut |item| {
        if let Item::Span(span) = item {
            spans.push(span);
        }
    });
    let trace = trace.unwrap();
    assert_eq!(trace.spans, spans.len() as u64);
    spans.sort_by_key(|span| (span.begin_ns(), span.request, span.piece));
    (spans.iter().map(short).collect(), trace.remarks().cloned().collect())
}

fn short(span: &Span) -> String {
    let op = match span.op {
        Op::Read => "R",
        Op::Write => "W",
        Op::Flush => "F",
        Op::Discard => "D",
        Op::Allocate => "?",
    };

    let mut text = format!("{op} {}+{}", span.offset_bytes / 512, span.len_bytes / 512);
    let stations = [("Q", span.queued_ns), ("D", span.submitted_ns), ("C", span.completed_ns)];
    if span.is_split {
        text += &format!(" {}.{}", span.request, span.piece);
    }
    if span.merged > 0 {
        text += &format!(" m{}", span.merged);
    }
    for (letter, time_ns) in stations {
        text += &time_ns.map_or_else(String::new, |time_ns| format!(" {letter}{time_ns}"));
    }
    text + &span.error.map_or_else(String::new, |error| format!(" error {error}"))
}

/// Lines of `time action rwbs rest` on one device; `disk:` before the time for another one.
fn text(events: &[&str]) -> String {
    let line = |event: &&str| {
        let (disk, event) = event.split_once(':').unwrap_or(("8,0", event));
        let (time, rest) = event.split_once(' ').unwrap();
        let rest = if rest.contains('[') { rest.to_owned() } else { format!("{rest} [x]") };
        format!("{disk} 0 0 0.{time:0>9} 7 {rest}\n")
    };
    events.iter().map(line).collect()
}

/// A name, the traced events, their spans, and the beginnings of the sentences about events that did not match.
type Case = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "LVM on a partition: two remappings on the disk are one request",
        &[
            "1 A W 2056 + 8 <- (253,0) 8",
            "2 A W 4104 + 8 <- (8,2) 2056",
            "3 Q W 4104 + 8",
            "4 G W 4104 + 8",
            "5 D W 4104 + 8",
            "6 A W 2064 + 8 <- (253,0) 16",
            "7 A W 4112 + 8 <- (8,2) 2064",
            "8 Q W 4112 + 8",
            "9 G W 4112 + 8",
            "10 D W 4112 + 8",
            "20 C W 4104 + 8 [0]",
            "30 C W 4112 + 8 [0]",
        ],
        &["W 4104+8 Q3 D5 C20", "W 4112+8 Q8 D10 C30"],
        &[],
    ),
    (
        "LVM on dm-crypt on a partition, all traced: one request of the disk, which waits from the top",
        &[
            "253,1:1 Q R 0 + 8",
            "253,0:2 A R 100 + 8 <- (253,1) 0",
            "253,0:3 Q R 100 + 8",
            "4 A R 2148 + 8 <- (253,0) 100",
            "5 A R 4196 + 8 <- (8,2) 2148",
            "6 Q R 4196 + 8",
            "7 G R 4196 + 8",
            "8 D R 4196 + 8",
            "20 C R 4196 + 8 [0]",
            "253,0:30 C R 100 + 8 [0]",
            "253,1:31 C R 0 + 8 [0]",
        ],
        &["R 4196+8 Q1 D8 C20"],
        &[],
    ),
    (
        "a mirror writes twice, and only the first request is the one from above",
        &[
            "9,0:1 Q W 0 + 8",
            "2 A W 64 + 8 <- (9,0) 0",
            "2 Q W 64 + 8",
            "8,16:3 A W 64 + 8 <- (9,0) 0",
            "8,16:3 Q W 64 + 8",
            "4 D W 64 + 8",
            "8,16:5 D W 64 + 8",
            "10 C W 64 + 8 [0]",
            "8,16:11 C W 64 + 8 [0]",
            "9,0:12 C W 0 + 8 [0]",
        ],
        &["W 64+8 Q1 D4 C10", "W 64+8 Q3 D5 C11"],
        &[],
    ),
    (
        "a bio at the sector from which another is remapped",
        &[
            "1 A W 2056 + 8 <- (8,1) 8",
            "2 Q W 2056 + 8",
            "3 A W 4104 + 8 <- (8,2) 2056",
            "4 Q W 4104 + 8",
            "5 D W 2056 + 8",
            "6 D W 4104 + 8",
            "7 C W 2056 + 8 [0]",
            "8 C W 4104 + 8 [0]",
        ],
        &["W 2056+8 Q2 D5 C7", "W 4104+8 Q4 D6 C8"],
        &[],
    ),
    (
        "the whole way",
        &[
            "1 A W 8 + 8 <- (8,1) 0",
            "2 Q W 8 + 8",
            "3 G W 8 + 8",
            "4 P N",
            "5 I W 8 + 8",
            "6 U N [x] 1",
            "7 D W 8 + 8",
            "90 C W 8 + 8 [0]",
        ],
        &["W 8+8 Q2 D7 C90"],
        &[],
    ),
    (
        "back merges grow the request",
        &[
            "1 Q R 0 + 8",
            "2 G R 0 + 8",
            "3 Q R 8 + 8",
            "4 M R 8 + 8",
            "5 Q R 16 + 8",
            "6 M R 16 + 8",
            "7 I R 0 + 24",
            "8 D R 0 + 24",
            "9 C R 0 + 24 [0]",
        ],
        &["R 0+24 m2 Q1 D8 C9"],
        &[],
    ),
    (
        "a front merge moves its beginning",
        &["1 Q W 8 + 8", "2 G W 8 + 8", "3 Q W 0 + 8", "4 F W 0 + 8", "5 D W 0 + 16", "6 C W 0 + 16 [0]"],
        &["W 0+16 m1 Q1 D5 C6"],
        &[],
    ),
    (
        "two requests merge, and one brings a bio with it",
        &[
            "1 Q W 0 + 8",
            "1 G W 0 + 8",
            "2 Q W 8 + 8",
            "2 G W 8 + 8",
            "3 Q W 16 + 8",
            "3 M W 16 + 8",
            "4 M W 8 + 16",
            "5 D W 0 + 24",
            "6 C W 0 + 24 [0]",
        ],
        &["W 0+24 m2 Q1 D5 C6"],
        &[],
    ),
    (
        "merged into a request that began before the trace",
        &[
            "1 A R 24 + 8 <- (253,0) 0",
            "2 Q R 24 + 8",
            "3 M R 24 + 8",
            "4 Q R 32 + 8",
            "5 M R 32 + 8",
            "6 I R 8 + 64",
            "7 D R 8 + 64",
            "8 C R 8 + 64 [0]",
        ],
        &["R 8+64 m2 D7 C8"],
        &["1 requests have no Q, A or G"],
    ),
    (
        "merged into nothing",
        &["1 Q R 24 + 8", "2 M R 24 + 8", "3 Q R 80 + 8", "4 D R 80 + 8", "5 C R 80 + 8 [0]"],
        &["R 80+8 Q3 D4 C5"],
        &["1 merges (M, F) went into requests that are not"],
    ),
    (
        "a split has one Q and two pieces, and may be split again",
        &[
            "1 Q R 0 + 24",
            "2 X R 0 + 8 / 8",
            "3 G R 0 + 8",
            "4 X R 8 + 8 / 16",
            "5 G R 8 + 8",
            "6 G R 16 + 8",
            "7 D R 0 + 8",
            "8 D R 8 + 8",
            "9 D R 16 + 8",
            "10 C R 16 + 8 [0]",
            "11 C R 0 + 8 [0]",
            "12 C R 8 + 8 [0]",
        ],
        &["R 0+8 1.0 Q1 D7 C11", "R 8+8 1.1 Q1 D8 C12", "R 16+8 1.2 Q1 D9 C10"],
        &[],
    ),
    (
        "an older kernel says the whole where it splits",
        &["1 Q R 0 + 16", "2 X R 0 + 16 / 8", "3 D R 0 + 8", "4 D R 8 + 8", "5 C R 0 + 8 [0]", "6 C R 8 + 8 [0]"],
        &["R 0+8 1.0 Q1 D3 C5", "R 8+8 1.1 Q1 D4 C6"],
        &[],
    ),
    (
        "requeued: the last D counts",
        &["1 Q R 0 + 8", "2 D R 0 + 8", "3 R R 0 + 8", "30 D R 0 + 8", "40 C R 0 + 8 [0]", "50 R R 0 + 8"],
        &["R 0+8 Q1 D30 C40"],
        &["1 requeues (R) are of requests that are not"],
    ),
    (
        "completed in parts",
        &["1 Q W 0 + 24", "2 D W 0 + 24", "3 C W 0 + 8 [0]", "4 C W 8 + 16 [0]"],
        &["W 0+24 Q1 D2 C4"],
        &[],
    ),
    ("failed with a part", &["1 Q W 0 + 24", "2 D W 0 + 24", "3 C W 0 + 8 [-5]"], &["W 0+24 Q1 D2 C3 error 5"], &[]),
    (
        "one sector from five processes at a time, the first of them from before the trace's Q",
        &[
            "5 D WS 4 + 8",
            "45 C WS 4 + 8 [0]",
            "60 A WS 4 + 8 <- (9,127) 2",
            "61 G WS 4 + 8",
            "62 A WS 4 + 8 <- (9,127) 2",
            "63 G WS 4 + 8",
            "64 D WS 4 + 8",
            "65 D WS 4 + 8",
            "90 C WS 4 + 8 [0]",
            "95 C WS 4 + 8 [0]",
            "96 C WS 4 + 8 [0]",
        ],
        &["W 4+8 D5 C45", "W 4+8 Q60 D64 C90", "W 4+8 Q62 D65 C95"],
        &["1 completions (C) have no dispatch", "1 requests have no Q, A or G"],
    ),
    (
        "read and write of one sector are not mixed up",
        &["1 Q R 0 + 8", "2 Q W 0 + 8", "3 D W 0 + 8", "4 D R 0 + 8", "5 C R 0 + 8 [0]", "6 C W 0 + 8 [0]"],
        &["R 0+8 Q1 D4 C5", "W 0+8 Q2 D3 C6"],
        &[],
    ),
    (
        "both ends of the trace",
        &["1 C W 8 + 8 [0]", "2 D W 16 + 8", "3 Q W 24 + 8", "4 I W 32 + 8"],
        &["W 32+8", "W 16+8 D2", "W 24+8 Q3"],
        &[
            "1 completions (C) have no dispatch",
            "2 requests have no Q, A or G",
            "1 requests were sent (D) and are not completed",
            "2 requests were queued",
        ],
    ),
    (
        "G alone tells since when",
        &["1 G R 262148 + 1", "2 I R 262148 + 1", "3 D R 262148 + 1", "4 C R 262148 + 1 [0]"],
        &["R 262148+1 Q1 D3 C4"],
        &["1 requests have no Q or A"],
    ),
    (
        "one flush serves three, and data with a flush before it goes on its own",
        &[
            "1 Q FWS [x]",
            "2 G FWS [x]",
            "3 Q FWS [x]",
            "4 Q FWS [x]",
            "5 Q FWFS 8 + 8",
            "6 G FWFS 8 + 8",
            "7 D FN [x]",
            "8 C FN 0 [0]",
            "9 D WFS 8 + 8",
            "10 C WFS 8 + 8 [0]",
            "11 C WFS 8 [0]",
        ],
        &["F 0+0 m2 Q1 D7 C8", "W 8+8 Q5 D9 C10"],
        &["1 events of commands without a length"],
    ),
    (
        "discards, and commands without a length",
        &["1 Q DS 0 + 4096", "2 D DS 0 + 4096", "3 C DS 0 + 4096 [0]", "4 D R 36 (12 00 00) [x]", "5 C R [0]"],
        &["D 0+4096 Q1 D2 C3"],
        &["2 events of commands without a length"],
    ),
    (
        "a device that is above another one has no requests of its own: they are those of the lower",
        &[
            "253,0:1 Q R 0 + 8",
            "8,0:2 A R 64 + 8 <- (253,0) 0",
            "8,0:3 G R 64 + 8",
            "8,0:4 D R 64 + 8",
            "8,0:5 C R 64 + 8 [0]",
            "253,0:6 C R 0 + 8 [0]",
        ],
        &["R 64+8 Q1 D4 C5"],
        &[],
    ),
    (
        "more sectors than a device can have, completed in parts",
        &[
            "1 D R 0 + 18446744073709551615",
            "2 C R 0 + 18446744073709551614 [0]",
            "3 R R 18446744073709551614 + 1",
            "4 D R 18446744073709551614 + 18446744073709551615",
            "5 C R 18446744073709551614 + 18446744073709551614 [0]",
        ],
        &["R 0+8388607 D4"],
        &["1 requests have no Q", "1 requests were sent"],
    ),
    ("out of order in the file", &["9 C R 0 + 8 [0]", "5 D R 0 + 8", "1 Q R 0 + 8"], &["R 0+8 Q1 D5 C9"], &[]),
];

#[test]
fn requests_are_found_again_whatever_becomes_of_them() {
    for (name, events, spans, lost) in CASES {
        let (found, sentences) = spans_of(&text(events));
        assert_eq!(found, *spans, "{name}");
        assert_eq!(sentences.len(), lost.len(), "{name}: {sentences:?}");
        for (sentence, begin) in sentences.iter().zip(*lost) {
            assert!(sentence.starts_with(begin), "{name}: {sentence}");
        }
    }
}

#[test]
fn what_the_kernel_has_given_up_takes_no_later_completion() {
    let text = "8,0 0 0 1.000000000 7 D R 0 + 8 [x]\n8,0 0 0 40.000000000 7 D R 0 + 8 [x]\n\
                8,0 0 0 40.000100000 7 C R 0 + 8 [0]\n";
    let (found, lost) = spans_of(text);
    assert_eq!(found, ["R 0+8 D1000000000", "R 0+8 D40000000000 C40000100000"]);
    assert!(lost[0].starts_with("1 requests have no completion, and their sectors"), "{lost:?}");
    // There is no younger request, so this one took that long.
    let (found, _) = spans_of("8,0 0 0 1.0 7 D R 0 + 8 [x]\n8,0 0 0 41.0 7 C R 0 + 8 [0]\n");
    assert_eq!(found, ["R 0+8 D1000000000 C41000000000"]);
}

#[test]
fn memory_is_bounded_and_what_is_pushed_out_is_told() {
    let mut spans = 0;
    let mut visit = |_| spans += 1;
    let mut matcher = Matcher::new(&mut visit);
    matcher.open_max = 10;

    for at in 0..25 {
        let event = BlockEvent {
            time_ns: at,
            sector: at,
            sectors: 1,
            action: Action::Issue,
            op: Some(Op::Read),
            class: 0,
            disk: 0,
            cpu: 0,
            sequence: 0,
            error: 0,
        };
        matcher.take(&event);
        assert!(matcher.open.len() <= 10);
    }

    assert_eq!(matcher.end(), 25);
    assert!(matcher.sentences().0[0].starts_with("20 requests were under way"), "{:?}", matcher.sentences());
    assert_eq!(spans, 25);
}

#[test]
fn names_are_those_of_who_queued() {
    let text = "8,16 1 1 0.1 5 Q R 8 + 8 [cat]\n8,16 1 2 0.2 9 D R 8 + 8 [kworker/1:1H]\n8,16 1 3 0.3 0 C R 8 + 8 [0]\n\
                8,16 1 4 0.4 5 A R 16 + 8 <- (8,17) 0\n8,16 1 5 0.5 6 G R 16 + 8 [a b]\n\
                8,16 1 6 0.6 0 D R 16 + 8 [x]\n";
    let mut classes = Vec::new();
    let trace = read_blkparse(&mut text.as_bytes(), &mut |item| {
        if let Item::Span(span) = item {
            classes.push(span.class);
        }
    });
    let names = trace.unwrap().names;
    let found: Vec<&str> = classes.iter().map(|class| names.classes[class].name.as_str()).collect();
    assert_eq!(found, ["cat", "a b"]);
}

#[test]
fn requests_under_way_at_the_end_are_noted_and_nothing_is_lost() {
    let read = |events: &[&str]| read_blkparse(&mut text(events).as_bytes(), &mut |_| {}).unwrap();
    let open = read(&["1 Q W 0 + 8", "2 D W 0 + 8", "3 C W 0 + 8 [0]", "4 Q W 16 + 8", "5 D W 16 + 8", "6 Q W 24 + 8"]);
    assert!(open.lost.is_empty(), "{:?}", open.lost);
    assert_eq!(open.notes.len(), 2, "{:?}", open.notes);
    assert_eq!(read(&["1 C W 8 + 8 [0]"]).lost.len(), 1);
}
