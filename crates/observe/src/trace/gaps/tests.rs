use plimsoll::core::trace::Event;
use plimsoll_figures::verdict::Kind;

use super::super::little::Little;
use super::super::story::{Story, event, events, read, with_pauses, without_cpu};
use super::*;

fn report(events: &[Event]) -> GapsReport {
    let mut gaps = Gaps::new(10_000);
    let trace = read(events, &mut |item| gaps.visit(&item));
    gaps.finish(&trace)
}

fn part(disk: &DiskGaps, reason: &str) -> f64 {
    disk.reasons.iter().find(|it| it.reason == reason).map_or(0.0, |it| it.time_part)
}

#[test]
fn the_bug_of_seed_000_is_named() {
    let slow = report(&events(Story::OLD_DEFAULTS, &[16], 400));
    let [disk] = &slow.disks[..] else { panic!("{slow:?}") };
    assert_eq!(disk.verdict.limiter, Limiter::Tokens, "{disk:?}");
    let power = "looks like a default (2^33 B/s), not a disk";
    for words in ["tokens: the disk model holds requests back", "8.59 GB/s", power] {
        assert!(disk.verdict.sentence.contains(words), "{}", disk.verdict.sentence);
    }
    assert!(part(disk, "tokens") > 0.9 && disk.reasons[0].gaps.p50_ns > 100_000, "{disk:?}");
    assert_eq!((slow.longest.len(), slow.longest[0].reason, slow.longest[0].class.as_str()), (10, "tokens", "large"));
    assert!(slow.longest.is_sorted_by(|a, b| a.length_ns >= b.length_ns));
    let fast = report(&events(Story::FREE, &[16], 400));
    let [disk] = &fast.disks[..] else { panic!("{fast:?}") };
    // Sixteen were in the device all the time, and the queue was empty: either may be the limit.
    assert_eq!((disk.gap.p50_ns, disk.verdict.limiter), (1_000, Limiter::Unknown), "{disk:?}");
    assert!(disk.verdict.sentence.contains("with 16 requests in the device for"), "{disk:?}");
    assert!(disk.implied.is_empty());
}

#[test]
fn each_limiter_is_told() {
    let depth = Story { depth: 4, ..Story::FREE };
    let serial = Story { is_serial: true, latency_ns: 100_000, ..Story::FREE };
    let late = Story { turn_ns: 300_000, latency_ns: 10_000, ..Story::FREE };
    let cases: [(Story, &[usize], Limiter); 7] = [
        (Story::OLD_DEFAULTS, &[8, 16], Limiter::Tokens),
        (Story::FREE, &[2], Limiter::Program),
        (Story::FREE, &[40], Limiter::Unknown),
        (depth, &[16], Limiter::Depth),
        (serial, &[1, 2, 4, 8, 16, 32], Limiter::Disk),
        (Story { depth: 8, ..serial }, &[1, 2, 4, 8, 16, 32, 64], Limiter::Disk),
        (late, &[16], Limiter::Turn),
    ];

    for (story, phases, expected) in cases {
        let report = report(&events(story, phases, 300));
        let verdict = &report.disks[0].verdict;
        assert_eq!(verdict.limiter, expected, "{story:?}: {:?}", report.disks[0]);
        assert!(report.lost.is_empty() && !verdict.sentence.is_empty());
    }
}

#[test]
fn pauses_between_loads_are_not_a_program_that_offers_too_little() {
    let load = |parallelism| events(Story::OLD_DEFAULTS, &[parallelism], 400);
    // The longer ones make slices of many seconds.
    for pause_ns in [100_000_000, 200_000_000_000] {
        let all = with_pauses(&[load(8), load(16), load(32)], pause_ns);
        let verdict = &report(&all).disks[0].verdict;
        assert_eq!(verdict.limiter, Limiter::Unknown, "{verdict:?}");
        for words in ["the program over all of the time", "tokens without the time in which nothing was asked for"] {
            assert!(verdict.sentence.contains(words), "{verdict:?}");
        }
    }
}

/// A program that offers little for a time, then work that waits for tokens to the end of the trace and never goes out:
/// its levels of depth end before that.
#[test]
fn time_after_the_last_end_is_left_out_like_any_other() {
    let mut all = events(Story::FREE, &[2], 600);
    let (begin_ns, end_ns) = (all[0].time_ns, all.last().unwrap().time_ns);
    // Tokens take 105 % of the time that the program takes, and a part is a thirty-second of the whole or more.
    let later_ns = end_ns + (end_ns - begin_ns) * 105 / 100;
    all.push(event(end_ns, 10_000, EventKind::Queued));
    all.push(Event { reason: Some(WaitReason::Tokens), ..event(end_ns, 0, EventKind::Blocked) });
    all.push(Event { class: 2, ..event(later_ns, 10_001, EventKind::Queued) });
    let verdict = &report(&all).disks[0].verdict;
    assert_eq!(verdict.limiter, Limiter::Unknown, "{verdict:?}");
    assert!(verdict.sentence.contains("tokens over all of the time, but the program without"), "{verdict:?}");
}

/// A sweep over tokens, whose threads get no CPU for a part of the time: tokens, for `little` a limiter above the disk,
/// is the truth. Prints the tally.
#[test]
fn a_busy_cpu_makes_verdicts_unclear_but_not_wrong() {
    let (mut wrong, mut cases) = (Vec::new(), 0);
    for (every_ns, most_ns, pause_ns, unclear_most) in [
        (0, 0, 0, 0),
        (4_000_000, 400_000, 10_000_000, 12),
        (10_000_000, 10_000_000, 0, 120),
        (4_000_000, 20_000_000, 60_000_000, 120),
    ] {
        let mut unclear = [0; 2];
        for seed in 1..=60 {
            let load = |parallelism| events(Story::OLD_DEFAULTS, &[parallelism], 300);
            let sweep = with_pauses(&[4, 16, 32].map(load), pause_ns);
            let all = if every_ns > 0 { without_cpu(&sweep, every_ns, most_ns, seed) } else { sweep };
            let mut little = Little::default();
            let trace = read(&all, &mut |item| little.visit(&item));
            let (curve, limiter) = (&little.finish(&trace).disks[0].verdict, &report(&all).disks[0].verdict);

            cases += 2;
            match curve.kind {
                Kind::LimitedAbove => {}
                Kind::Unclear => unclear[0] += 1,
                _ => wrong.push(curve.sentence.clone()),
            }
            match limiter.limiter {
                Limiter::Tokens => {}
                Limiter::Unknown => unclear[1] += 1,
                _ => wrong.push(limiter.sentence.clone()),
            }
        }
        println!("{every_ns} {most_ns} {pause_ns}: {unclear:?} of 60 unclear");
        assert!(unclear.into_iter().sum::<u32>() <= unclear_most, "{unclear:?}");
    }

    wrong.iter().for_each(|it| println!("{it}"));
    assert!(100 * wrong.len() <= cases, "{} of {cases} are wrong", wrong.len());
}

#[test]
fn a_sweep_from_one_on_says_what_there_was_with_work() {
    let report = report(&events(Story::OLD_DEFAULTS, &[1, 2, 4, 8, 16], 300));
    let verdict = &report.disks[0].verdict;
    assert_eq!(verdict.limiter, Limiter::Program, "{verdict:?}");
    assert!(verdict.remarks[0].contains("mostly for tokens (") && verdict.remarks[0].contains("2^33"), "{verdict:?}");
}

#[test]
fn a_standstill_is_divided_by_what_stood_in_the_way() {
    let blocked = |time_us: u64, reason, until_us: u64| Event {
        reason: Some(reason),
        detail: (until_us.saturating_sub(time_us) * 1000) as u32,
        ..event(time_us * 1000, 0, EventKind::Blocked)
    };
    let at = |time_us: u64, request, kind| event(time_us * 1000, request, kind);
    use EventKind::{Dispatched, Queued, Reaped};

    // Events between the dispatches of pieces 1 and 2, at 10 and 110 us; piece 1 is back at 100 us.
    let cases: [(Vec<Event>, [u64; WAYS], u64, u64); 6] = [
        (vec![], [0, 0, 0, 0, 0, 100], 0, 10),
        (vec![blocked(10, WaitReason::Depth, 0)], [0, 0, 0, 90, 0, 10], 0, 10),
        (vec![blocked(20, WaitReason::Backend, 0)], [0, 0, 0, 0, 80, 20], 0, 10),
        (vec![blocked(10, WaitReason::Tokens, 0)], [0, 100, 0, 0, 0, 0], 0, 100),
        (vec![blocked(30, WaitReason::Tokens, 70)], [0, 80, 0, 0, 0, 20], 40, 100),
        (vec![blocked(10, WaitReason::Limit, 200)], [0, 0, 100, 0, 0, 0], 0, 100),
    ];

    for (between, parts_us, overdue_us, gap_us) in cases {
        let mut events = vec![at(5, 1, Queued), at(5, 2, Queued), at(10, 1, Dispatched)];
        events.extend(&between);
        events.extend([at(100, 1, Reaped), at(110, 2, Dispatched), at(205, 2, Reaped)]);
        let report = report(&events);
        let disk = &report.disks[0];
        // 200 us in all; the first dispatch adds 5 us in which nothing is known.
        let mut expected = parts_us.map(|us| us as f64 / 200.0);
        expected[NOTHING] += 5.0 / 200.0;
        let found: Vec<f64> = (0..WAYS).map(|way| part(disk, way_name(way))).collect();
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{between:?}: {found:?}");
        let overdue: f64 = disk.reasons.iter().map(|it| it.overdue_part).sum();
        assert!((overdue - overdue_us as f64 / 200.0).abs() < 1e-9, "{between:?}");
        assert_eq!((disk.gap.max_ns, disk.gap.n), (gap_us * 1000, 2), "{between:?}");
        assert!((disk.empty_part - 95.0 / 200.0).abs() < 1e-9, "{disk:?}");
    }
}

#[test]
fn classes_that_wait_for_turns_or_limits_are_told() {
    let wait = |class, request, reason| {
        let at = |time_us: u64, kind, reason| Event { class, reason, ..event(time_us * 1000, request, kind) };
        [at(0, EventKind::Queued, None), at(50 + request, EventKind::Dispatched, Some(reason))]
    };
    let mut events: Vec<Event> = [wait(1, 1, WaitReason::Fairness), wait(2, 2, WaitReason::Limit)].concat();
    events.sort_by_key(|event| event.time_ns);
    let report = report(&events);
    assert_eq!(report.disks[0].verdict.limiter, Limiter::Fairness, "{report:?}");
    let remarks = report.disks[0].verdict.remarks.join("; ");
    assert!(remarks.contains("class 2 waits most for its own limit"), "{remarks}");
    let reasons: Vec<_> = report.classes.iter().map(|it| (it.class.as_str(), it.reason, it.part)).collect();
    assert_eq!(reasons, [("large", "fairness", 1.0), ("class 2", "limit", 1.0)]);
}

/// One request at a time: each waits `waits_us` for its class's limit (0: it does not), and is 90 us in the device.
fn one_at_a_time(class: u16, begin_us: u64, waits_us: impl IntoIterator<Item = u64>) -> Vec<Event> {
    one_waits_for(WaitReason::Limit, class, begin_us, waits_us)
}

fn one_waits_for(reason: WaitReason, class: u16, begin_us: u64, waits_us: impl IntoIterator<Item = u64>) -> Vec<Event> {
    use EventKind::{Blocked, Callback, Completed, Dispatched, Queued, Reaped, Submitted};
    let (mut events, mut now_us) = (Vec::new(), begin_us);
    for (request, wait_us) in (begin_us + 1..).zip(waits_us) {
        let reason = Some(reason).filter(|_| wait_us > 0);
        let mut at = |time_us: u64, kind, reason| {
            events.push(Event { class, reason, ..event(time_us * 1000, request, kind) });
        };
        at(now_us, Queued, None);
        if reason.is_some() {
            at(now_us, Blocked, reason);
        }
        [Dispatched, Submitted].into_iter().for_each(|kind| at(now_us + wait_us, kind, reason));
        now_us += wait_us + 90;
        [Completed, Reaped, Callback].into_iter().for_each(|kind| at(now_us, kind, None));
    }
    events
}

#[test]
fn one_request_at_a_time_that_waits_for_its_limit_is_held_by_it() {
    let limited = report(&one_at_a_time(1, 0, [35; 400]));
    let verdict = &limited.disks[0].verdict;
    assert_eq!(verdict.limiter, Limiter::Limit, "{verdict:?}");
    for words in
        ["limit: the limit of `large`, or of its group, holds", "28 % of the time", "100 % of its requests waited"]
    {
        assert!(verdict.sentence.contains(words), "{verdict:?}");
    }
    assert!(verdict.remarks.is_empty(), "{verdict:?}");

    // A limit that stops every other request is not the limiter, nor is that of a class beside a busy one.
    let every_other = one_at_a_time(1, 0, (0..400).map(|n| n % 2 * 35));
    let mut beside = [one_at_a_time(1, 0, [35; 400]), one_at_a_time(2, 1_000_000, [0; 400])].concat();
    beside[..].iter_mut().filter(|it| it.class == 2).for_each(|it| it.time_ns -= 1_000_000_000);
    beside.sort_by_key(|event| event.time_ns);
    for events in [every_other, beside] {
        let verdict = &report(&events).disks[0].verdict;
        assert_eq!(verdict.limiter, Limiter::Program, "{verdict:?}");
    }
}

#[test]
fn one_request_at_a_time_that_waits_for_tokens_is_held_by_them() {
    let one = |waits_us: Vec<u64>| report(&one_waits_for(WaitReason::Tokens, 1, 0, waits_us)).disks.remove(0).verdict;
    let held = one(vec![35; 400]);
    assert_eq!(held.limiter, Limiter::Tokens, "{held:?}");
    for words in ["tokens: the disk model holds requests back", "28 % of the time", "100 % of its requests waited"] {
        assert!(held.sentence.contains(words), "{held:?}");
    }
    assert!(held.remarks.is_empty(), "{held:?}");

    // A program that sends fewer than the model grants finds tokens with most of its requests.
    for every in [2, 3, 10] {
        let verdict = one((0..400).map(|n| u64::from(n % every == 0) * 35).collect());
        assert_eq!(verdict.limiter, Limiter::Program, "{every}: {verdict:?}");
        let says = "stood still mostly for tokens";
        assert_eq!(verdict.remarks.iter().any(|it| it.contains(says)), every < 7, "{every}: {verdict:?}");
    }
}

#[test]
fn a_class_alone_does_not_wait_for_its_turn() {
    let fair = Some(WaitReason::Fairness);
    let at =
        |time_us: u64, class, request, kind, reason| Event { class, reason, ..event(time_us * 1000, request, kind) };
    let sent = |class: u16| {
        let pieces = (0..40).flat_map(move |n| {
            let request = u64::from(class) * 100 + n;
            [
                at(0, class, request, EventKind::Queued, None),
                at(50 + 7 * n, class, request, EventKind::Dispatched, fair),
            ]
        });
        pieces.collect::<Vec<Event>>()
    };

    for (classes, expected) in [(vec![1], Limiter::Turn), (vec![3], Limiter::Turn), (vec![1, 2], Limiter::Fairness)] {
        let mut events: Vec<Event> = classes.iter().flat_map(|class| sent(*class)).collect();
        events.sort_by_key(|event| event.time_ns);
        let verdict = &report(&events).disks[0].verdict;
        assert_eq!(verdict.limiter, expected, "{classes:?}: {verdict:?}");
        let says = format!("{} {}", verdict.sentence, verdict.remarks.join(" "));
        assert_eq!(says.contains("wait for their turn"), classes.len() > 1, "{says}");
    }
}

#[test]
fn a_few_requests_do_not_show_that_the_program_offers_too_little() {
    for (requests, limiter) in [(3, Limiter::Unknown), (400, Limiter::Program)] {
        let verdict = &report(&one_at_a_time(1, 0, vec![0; requests])).disks[0].verdict;
        assert_eq!(verdict.limiter, limiter, "{requests}: {verdict:?}");
        assert_eq!(
            verdict.sentence.contains("3 dispatches to this disk show too little"),
            requests == 3,
            "{verdict:?}"
        );
    }
}

#[test]
fn work_that_is_never_sent_is_a_standstill_to_the_end() {
    let blocked = Event { reason: Some(WaitReason::Tokens), ..event(1_000, 0, EventKind::Blocked) };
    let other = Event { disk: 0, ..event(500_000, 9, EventKind::Reaped) };
    let report = report(&[event(1_000, 1, EventKind::Queued), blocked, event(0, 9, EventKind::Dispatched), other]);
    let disk = &report.disks[0];
    assert!(part(disk, "tokens") > 0.99, "{disk:?}");
    assert_eq!(disk.verdict.limiter, Limiter::Tokens);
}

#[test]
fn what_holds_nothing_is_not_an_error_and_the_forms_are_whole() {
    let empty = report(&[]);
    assert!(empty.disks.is_empty() && empty.longest.is_empty());
    assert_eq!(empty.to_csv().lines().count(), 1);
    let found = report(&events(Story::OLD_DEFAULTS, &[8], 50));
    let json: serde_json::Value = serde_json::to_value(&found).unwrap();
    assert_eq!((&json["disks"][0]["verdict"]["limiter"], &json["schema"]), (&"tokens".into(), &1.into()));
    let csv = found.to_csv();
    assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("nvme,tokens,gap,")), "{csv}");
    let width = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == width), "{csv}");
}

/// A shard that sends ten pieces together: each is dispatched at once, given to the backend 90 us later, and back after
/// another 10 us.
#[test]
fn requests_are_in_the_device_from_the_same_moment_on_as_in_stages() {
    use EventKind::{Completed, Dispatched, Queued, Reaped, Submitted};
    let stations = [(0, Queued), (1, Dispatched), (90, Submitted), (100, Completed), (100, Reaped)];
    let piece = |at: u64| stations.map(|(us, kind)| event(1000 * (10 * at + us), at + 1, kind));
    let mut all: Vec<Event> = (0..400).flat_map(piece).collect();
    all.sort_by_key(|event| event.time_ns);

    let mut stages = super::super::stages::Stages::new(&[]);
    let trace = read(&all, &mut |item| stages.visit(&item));
    let disk = &stages.finish(&trace).disks[0];
    assert_eq!((disk.device_depth_max, disk.device_depth_mean.round()), (1, 1.0));
    // With ten in the device all the time the disk might be the limit; with one it is not.
    let verdict = &report(&all).disks[0].verdict;
    assert_eq!(verdict.limiter, Limiter::Program, "{verdict:?}");
}

/// A read that was merged from others, of which the trace has no Q: from blkparse of an NVMe disk below md and LVM.
#[test]
fn a_trace_that_saw_no_request_wait_does_not_say_why() {
    let text = "259,0 0 201 0.000534586 1897 I R 7358464 + 512 [cat]\n\
                259,0 0 202 0.000537055 1897 D R 7358464 + 512 [cat]\n\
                259,0 0 203 0.002242539 0 C R 7358464 + 512 [0]\n";
    let mut gaps = Gaps::new(0);
    let trace = super::super::read_from(text.as_bytes(), &mut |item| gaps.visit(&item)).unwrap();
    let disk = &gaps.finish(&trace).disks[0];
    assert_eq!((disk.queues[0].dispatches, disk.gap.n, disk.verdict.limiter), (1, 0, Limiter::Unknown));
    assert!(disk.verdict.sentence.contains("when a request was queued"), "{}", disk.verdict.sentence);
}

#[test]
fn a_kernel_trace_has_gaps_without_reasons() {
    let text = "8,0 1 1 0.000000000 9 Q R 2048 + 8 [db]\n8,0 1 2 0.000083000 9 D R 2048 + 8 [db]\n\
                8,0 2 3 0.000400000 0 C R 2048 + 8 [0]\n";
    let mut gaps = Gaps::new(0);
    let trace = super::super::read_from(text.as_bytes(), &mut |item| gaps.visit(&item)).unwrap();
    let report = gaps.finish(&trace);
    assert_eq!((report.disks[0].gap.max_ns, report.longest[0].reason), (83_000, "nothing known"));
}

#[test]
fn pieces_of_which_events_are_lost_do_not_wait_for_the_rest_of_the_trace() {
    use EventKind::{Completed, Dispatched, Queued, Reaped};
    let all = events(Story::FREE, &[2], 300);
    let whole = report(&all);
    let cases: [&[EventKind]; 3] =
        [&[Dispatched], &[Completed, Reaped], &[Dispatched, EventKind::Submitted, Completed, Reaped]];
    for lost in cases {
        let is_kept = |event: &&Event| !(10..20).contains(&event.request) || !lost.contains(&event.kind);
        let mut kept: Vec<Event> = all.iter().filter(is_kept).copied().collect();
        kept.retain(|event| !(10..20).contains(&event.request) || event.kind as u8 <= Reaped as u8);
        let found = report(&kept);
        let [disk, same] = [&found.disks[0], &whole.disks[0]];
        assert_eq!(disk.verdict.limiter, same.verdict.limiter, "{lost:?}: {disk:?}");
        assert!((disk.empty_part - same.empty_part).abs() < 0.05, "{lost:?}: {disk:?}");
    }
    let no_end: Vec<Event> = all.iter().filter(|event| event.request != 10 || event.kind == Queued).copied().collect();
    let remarks = report(&no_end).disks[0].verdict.remarks.join("; ");
    assert!(remarks.contains("the trace is not whole") && whole.disks[0].verdict.remarks.is_empty(), "{remarks}");
}
