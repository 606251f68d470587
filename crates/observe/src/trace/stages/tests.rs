use plimsoll::trace::format::{ClassName, Names};

use super::super::span::Origin;
use super::*;

fn trace(origin: Origin) -> Trace {
    let mut names = Names::default();
    names.classes.insert(1, ClassName { name: "query".to_owned(), shares: 100 });
    names.disks.insert(0, "/var".to_owned());
    let lost = vec!["3 event(s) were dropped".to_owned()];
    Trace { origin, names, unix_at_zero_ns: None, is_monotonic: false, events: 9, spans: 3, lost, notes: Vec::new() }
}

/// A span with the times Q, D, C, R and U in us, and the longest time that C may have been seen late.
fn span(times_us: [u64; 5], late_us: u32) -> Span {
    let [queued_ns, submitted_ns, completed_ns, reaped_ns, callback_ns] = times_us.map(|us| Some(us * 1000));
    Span {
        class: 1,
        reason: Some(WaitReason::Tokens),
        queued_ns,
        dispatched_ns: queued_ns,
        submitted_ns,
        completed_ns,
        late_max_ns: late_us * 1000,
        reaped_ns,
        callback_ns,
        ..Span::new(Op::Read, 1, 0, 4096)
    }
}

fn report(by: &[By], spans: &[Span]) -> StagesReport {
    let mut stages = Stages::new(by);
    spans.iter().for_each(|span| stages.visit(&Item::Span(*span)));
    stages.finish(&trace(Origin::Own))
}

#[test]
fn stages_are_the_times_between_stations() {
    let report = report(&[], &[span([0, 10, 30, 35, 36], 5), span([100, 130, 190, 190, 191], 100)]);
    let [group] = &report.groups[..] else { panic!("{:?}", report.groups) };
    let found: Vec<_> = group.stages.iter().map(|stage| (stage.stage, stage.n, stage.min_ns, stage.max_ns)).collect();
    let expected = [
        ("Q2D", 2, 10_000, 30_000),
        ("D2C", 2, 20_000, 60_000),
        ("late", 2, 5_000, 60_000),
        ("C2R", 2, 0, 5_000),
        ("R2U", 2, 1_000, 1_000),
        ("Q2C", 2, 30_000, 90_000),
    ];
    assert_eq!(found, expected);
    let share = |at: usize| group.stages[at].share.unwrap();
    assert!((share(0) - 40.0 / 120.0).abs() < 1e-9 && (share(1) - 80.0 / 120.0).abs() < 1e-9);
    assert_eq!((group.label().as_str(), group.spans, group.bytes, report.duration_ns), ("all", 2, 8192, 191_000));
    assert_eq!((group.waits[0].reason, group.waits[0].share), ("tokens", 1.0));
}

#[test]
fn stations_that_are_not_known_or_run_backwards_leave_their_stages_out() {
    let unknown = Span { queued_ns: None, callback_ns: None, ..span([0, 10, 30, 35, 36], 0) };
    let backwards = Span { queued_ns: Some(20_000), ..span([0, 10, 30, 35, 36], 0) };
    let failed = Span { completed_ns: None, reaped_ns: None, callback_ns: None, error: Some(5), ..unknown };
    let names = |report: &StagesReport| -> Vec<_> { report.groups[0].stages.iter().map(|stage| stage.stage).collect() };
    let found = report(&[], &[unknown]);
    assert_eq!(names(&found), ["D2C", "late", "C2R"]);
    assert_eq!(found.groups[0].stages[0].share, None);
    // Its time in the device was 125 % of the time of the others.
    let found = report(&[], &[span([0, 10, 30, 35, 36], 0), Span { queued_ns: None, ..span([0, 1, 31, 35, 36], 0) }]);
    let shares: Vec<_> = found.groups[0].stages.iter().map(|stage| (stage.stage, stage.n, stage.share)).collect();
    let expected = [("Q2D", 1, 1.0 / 3.0), ("D2C", 2, 2.0 / 3.0), ("late", 2, 0.0), ("C2R", 2, 5.0 / 30.0)];
    assert_eq!(shares[..4], expected.map(|(stage, n, share)| (stage, n, Some(share))));
    let found = report(&[], &[backwards]);
    assert_eq!((names(&found), found.backwards), (vec!["D2C", "late", "C2R", "R2U", "Q2C"], 1));
    let found = report(&[], &[failed]);
    assert_eq!((found.errors, found.groups[0].stages.len()), (1, 0));
    let found = report(&[], &[]);
    assert_eq!((found.groups.len(), found.duration_ns), (0, 0));
}

#[test]
fn groups_are_made_by_what_was_asked_for() {
    let base = span([0, 10, 30, 35, 36], 0);
    let spans = [
        base,
        Span { len_bytes: 4097, op: Op::Write, ..base },
        Span { len_bytes: 0, op: Op::Flush, class: 7, shard: 3, disk: 2, ..base },
    ];

    let cases: [(&[By], [&str; 3]); 5] = [
        (&[By::Class], ["class 7", "query", ""]),
        (&[By::Size], ["no length", "to 4 KiB", "to 8 KiB"]),
        (&[By::Op], ["flush", "read", "write"]),
        (&[By::Disk, By::Shard], ["/var shard 0", "disk 2 shard 3", ""]),
        (&[], ["all", "", ""]),
    ];

    for (by, expected) in cases {
        let mut labels: Vec<String> = report(by, &spans).groups.iter().map(GroupReport::label).collect();
        labels.sort();
        let expected: Vec<&str> = expected.into_iter().filter(|label| !label.is_empty()).collect();
        assert_eq!(labels, expected, "{by:?}");
    }
}

#[test]
fn too_many_groups_and_disks_share_one() {
    let base = span([0, 10, 30, 35, 36], 0);
    let spans: Vec<Span> = (0..1000).map(|shard| Span { shard, disk: shard, ..base }).collect();
    let report = report(&[By::Shard], &spans);
    assert_eq!(report.groups.len(), GROUPS_MAX + 1);
    let rest = report.groups.last().unwrap();
    assert_eq!((rest.label().as_str(), rest.spans), ("further groups", (1000 - GROUPS_MAX) as u64));
    assert_eq!((report.disks.len(), report.disks[DISKS_MAX].device_depth_max), (DISKS_MAX + 1, 992));
}

#[test]
fn a_slow_disk_is_told_from_one_that_is_seen_late() {
    let cases = [
        // D2C is 400 us, and the shard polled every 5 us.
        ([0, 100, 500, 501, 502], 5, Verdict::Disk, "the disk's"),
        // The disk has little of the time.
        ([0, 1000, 1100, 1101, 1102], 5, Verdict::Disk, "What came after that was the disk's"),
        // D2C is 400 us, and the shard did not poll in all that time.
        ([0, 100, 500, 500, 502], 400, Verdict::Late, "seen late"),
        // The piece was back long before it was reaped.
        ([0, 100, 150, 550, 551], 0, Verdict::Late, "Look more often"),
        // The disk has 100 to 400 us.
        ([0, 100, 500, 500, 502], 300, Verdict::Open, "whether the rest is the disk's or was seen late"),
    ];

    for (times_us, late_us, verdict, part) in cases {
        let report = report(&[], &[span(times_us, late_us)]);
        let class = &report.classes[0];
        assert_eq!(class.verdict, verdict, "{}", class.sentence);
        assert!(class.sentence.contains(part) && class.sentence.contains("mostly for tokens"), "{}", class.sentence);
        assert!(class.late_min <= class.late_max && class.late_max <= 1.0);
    }

    let mut stages = Stages::new(&[]);
    stages.visit(&Item::Span(Span { reaped_ns: None, ..span([0, 10, 30, 35, 36], 0) }));
    let report = stages.finish(&trace(Origin::Kernel));
    assert_eq!(report.classes[0].verdict, Verdict::Unknown);
    assert!(report.classes[0].sentence.contains("does not say when the program looked"));

    let without_end = Span { completed_ns: None, reaped_ns: None, callback_ns: None, ..span([0, 10, 30, 35, 36], 0) };
    let class = &self::report(&[], &[without_end]).classes[0];
    assert_eq!((class.queue_share, class.verdict), (None, Verdict::Unknown));
    assert!(class.sentence.contains("no piece has the times Q, D and C"), "{}", class.sentence);
}

#[test]
fn depth_is_the_time_of_pieces_by_the_time_of_the_trace() {
    // 1,000 pieces, one each 10 us, 20 us in the queue and 40 us in the device.
    let spans: Vec<Span> =
        (0..1000).map(|at| 10 * at).map(|us| span([us, us + 20, us + 60, us + 60, us + 60], 0)).collect();
    let report = report(&[], &spans);
    let disk = &report.disks[0];
    assert!((disk.queue_depth_mean - 2.0).abs() < 0.02 && (disk.device_depth_mean - 4.0).abs() < 0.04);
    assert_eq!((disk.queue_depth_max, disk.device_depth_max, disk.is_max_exact), (2, 4, true));
    assert!((disk.read_bytes_per_s / 409.6e6 - 1.0).abs() < 0.01, "{}", disk.read_bytes_per_s);
    assert_eq!((disk.disk.as_str(), disk.write_bytes_per_s), ("/var", 0.0));
    let middle = &disk.series[disk.series.len() / 2];
    assert!((middle.device_depth - 4.0).abs() < 0.01 && middle.from_ns > 0 && disk.series_step_ns > 0);
}

#[test]
fn forms_of_the_report() {
    let report = report(&[By::Class, By::Size], &[span([0, 10, 30, 35, 36], 5)]);
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["groups"][0]["size_max_bytes"], 4096);
    assert_eq!(json["classes"][0]["verdict"], "disk");
    let csv = report.to_csv();
    assert_eq!(csv.lines().nth(1), Some("query,4096,,,,Q2D,1,10000,10000.0,10000,10000,10000,10000,0.333333"));
    let columns = csv.lines().map(|line| line.split(',').count());
    assert!(columns.into_iter().all(|count| count == 14), "{csv}");
    let page = report.page("trace stages");
    assert!(page.contains("Bandwidth over time") && page.contains("query to 4 KiB") && page.contains("3 event(s)"));
    assert_eq!(report.charts().len(), PICTURES.len());
}

/// Returns a sequence of numbers that looks random.
fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Some(state >> 33)
    })
}

#[test]
fn time_is_kept_however_long_the_trace_becomes_and_in_whatever_order_it_comes() {
    for longest_ns in [10, 5_000, 3_000_000, 40_000_000_000] {
        let mut timeline = Timeline::default();
        let (mut total_ns, mut bytes) = (0.0, 0.0);
        let mut numbers = numbers(longest_ns);
        for _ in 0..2_000 {
            let from_ns = (1 << 50) + numbers.next().unwrap() * 977 % (4 * longest_ns);
            let length_ns = numbers.next().unwrap() % longest_ns;
            timeline.in_queue(from_ns, from_ns + length_ns);
            timeline.in_device(from_ns + length_ns, from_ns + 2 * length_ns);
            timeline.moved(from_ns, length_ns.is_multiple_of(2), 4096);
            total_ns += length_ns as f64;
            bytes += 4096.0;
        }

        let points = timeline.points(0);
        assert!(points.len() <= BINS_MAX);
        let sum = |of: fn(&TimePoint) -> f64| -> f64 { points.iter().map(|it| of(it) * it.length_ns as f64).sum() };
        let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
        assert!(is_near(sum(|point| point.queue_depth), total_ns), "{longest_ns}");
        assert!(is_near(sum(|point| point.device_depth), total_ns), "{longest_ns}");
        assert!(is_near(sum(|point| point.read_bytes_per_s + point.write_bytes_per_s) / 1e9, bytes), "{longest_ns}");
    }
}

#[test]
fn depth_stands_where_it_was() {
    let mut timeline = Timeline::default();
    // Eight parts of 1,024 ns: one piece throughout, one in the third and the first half of the fourth.
    timeline.in_device(0, 8 * 1024);
    timeline.in_device(2 * 1024, 3 * 1024 + 512);
    let depths: Vec<f64> = timeline.points(0).iter().map(|point| point.device_depth).collect();
    assert_eq!(depths, [1.0, 1.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0]);
    timeline.in_device(9, 9);
    timeline.in_device(9, 8);
    assert_eq!(timeline.points(0).len(), 8);
}

#[test]
fn peaks() {
    let cases: [(&[(u64, u64)], u64); 5] = [
        (&[], 0),
        (&[(1, 2), (2, 3)], 1),
        (&[(1, 3), (2, 4), (3, 5)], 2),
        (&[(5, 5), (7, 6)], 0),
        (&[(8, 9), (1, 20), (2, 9), (3, 4)], 3),
    ];
    for (spans, expected) in cases {
        let mut peak = Peak::default();
        spans.iter().for_each(|(from_ns, to_ns)| peak.count(*from_ns, *to_ns));
        assert_eq!((peak.finish(), peak.late_edges()), (expected, 0), "{spans:?}");
    }
}

#[test]
fn a_peak_of_many_spans_is_exact_when_ends_are_roughly_in_order_and_told_when_not() {
    let mut peak = Peak::default();
    for at in 0..300_000 {
        // Sixteen at a time, handed over in blocks of reverse order.
        let at = at / 100 * 100 + 99 - at % 100;
        peak.count(10 * at, 10 * at + 160);
    }
    assert_eq!((peak.finish(), peak.late_edges()), (16, 0));
    peak.count(0, 1 << 40);
    assert_eq!(peak.late_edges(), 1);
}

#[test]
fn times_at_the_ends_of_the_range_do_no_harm() {
    let mut timeline = Timeline::default();
    timeline.in_queue(0, u64::MAX);
    timeline.in_device(u64::MAX - 1, u64::MAX);
    timeline.moved(u64::MAX, true, u64::MAX);
    assert!(timeline.points(0).len() <= BINS_MAX);
}
