use super::*;
use crate::stat::{DeviceInterval, Judged, Remote, Verdict};

/// Returns a side with only writes: requests a second, KiB/s, await in ms, aqu-sz, %util.
fn side(name: &str, requests: f64, kib: f64, await_ms: f64, queue: f64, util: f64) -> Side {
    let columns = Columns {
        writes_per_s: Some(requests),
        write_kib_per_s: Some(kib),
        write_await_ms: Some(await_ms),
        write_size_kib: Some(kib / requests.max(1.0)),
        queue: Some(queue),
        util_percent: Some(util),
        ..Columns::default()
    };
    Side { name: name.to_owned(), device: "nvme0n1".to_owned(), intervals: 1, columns, ..Side::default() }
}

/// Returns the two runs of the seed: one writer, then two.
fn seed() -> (Side, Side) {
    let mut one = side("one writer", 16_597.0, 617.4 * 1024.0, 0.14, 2.28, 96.0);
    let mut two = side("two writers", 21_357.0, 591.9 * 1024.0, 0.07, 1.49, 98.0);
    let more = |side: &mut Side, merges: f64, percent: f64, cpu: [f64; 4]| {
        side.columns.write_merges_per_s = Some(merges);
        side.columns.write_merged_percent = Some(percent);
        side.columns.flushes_per_s = Some(0.0);
        let [user, system, iowait, idle] = cpu;
        side.cpu = Some(CpuShares { user, system, iowait, idle, ..CpuShares::default() });
    };
    more(&mut one, 10_328.0, 38.4, [15.5, 8.0, 0.5, 75.9]);
    more(&mut two, 9_520.0, 30.8, [19.2, 8.6, 0.4, 71.8]);
    (one, two)
}

fn judged(comparison: &Comparison) -> Vec<(&'static str, Judgement)> {
    comparison.hypotheses.iter().map(|hypothesis| (hypothesis.code, hypothesis.judgement)).collect()
}

fn of<'a>(comparison: &'a Comparison, code: &str) -> &'a Hypothesis {
    comparison.hypotheses.iter().find(|hypothesis| hypothesis.code == code).expect("all are there")
}

#[test]
fn thirty_percent_more_writes_at_the_same_util() {
    let (one, two) = seed();
    let comparison = compare(&one, &two, &Context::default());
    let expected = [
        ("saturated", Judgement::Refuted),
        ("flush-pressure", Judgement::Unlikely),
        ("throttled", Judgement::Unlikely),
        ("remote", Judgement::CannotBeTold),
        ("above-the-disk", Judgement::Likely),
    ];
    assert_eq!(judged(&comparison), expected, "{comparison:#?}");
    assert_eq!(
        comparison.answer,
        "Likely: above-the-disk. Unlikely: flush-pressure, throttled. Refuted: saturated. Cannot be told: remote."
    );
    let reason = &of(&comparison, "saturated").reason;
    for part in ["29 % more requests", "0.07 ms, not 0.14 ms", "2.3 and 1.5 under way"] {
        assert!(reason.contains(part), "no `{part}` in {reason}");
    }

    let flush = of(&comparison, "flush-pressure");
    assert!(flush.evidence_for[0].starts_with("38 % and 31 % of the writes were merged"), "{flush:?}");
    let against = flush.evidence_against.join("; ");
    for part in ["10328 to 9520", "38.1 to 28.4 KiB", "ms with 29 % more writes", "f/s is 0.00 and 0.00"] {
        let part = part.replace("10328 to 9520", "from 10328 to 9520");
        assert!(against.contains(&part), "no `{part}` in {against}");
    }

    // The order of the sides does not matter.
    assert_eq!(judged(&compare(&two, &one, &Context::default())), expected);
    let other = Side { device: "sda".to_owned(), ..two };
    assert_eq!([comparison.device, compare(&one, &other, &Context::default()).device], ["nvme0n1", "nvme0n1 and sda"]);
}

/// More requests, each a little quicker, with a handful under way: on all of a grid round the published figures, and
/// whichever side's queue is the longer by chance, the disk is not at its limit and nothing throttles it.
#[test]
fn a_little_quicker_with_few_under_way_is_no_throttle() {
    let (requests, await_ms, kib) = (16_597.0, 0.14, 16_597.0 * 38.0);
    let queue = |requests: f64, await_ms: f64| requests * await_ms / 1000.0;
    let one = side("one", requests, kib, await_ms, queue(requests, await_ms), 96.0);
    let grid = [1.15, 1.29, 1.4].into_iter().flat_map(|more| {
        let of = move |quicker| [0.85, 1.0, 1.15].map(|queue_error| (more, quicker, queue_error));
        [0.5, 0.7, 0.79, 0.95].into_iter().flat_map(of)
    });

    for (more, quicker, queue_error) in grid {
        for bytes in [0.88, 0.94, 0.96, 1.0, 1.1, more] {
            let (requests, await_ms) = (requests * more, await_ms * quicker);
            let two = side("two", requests, kib * bytes, await_ms, queue(requests, await_ms) * queue_error, 98.0);
            for (a, b) in [(&one, &two), (&two, &one)] {
                let comparison = compare(a, b, &Context::default());
                let what = format!("{more} {quicker} {queue_error} {bytes}: {comparison:#?}");
                assert!(of(&comparison, "throttled").judgement <= Judgement::Unlikely, "{what}");
                assert_eq!(of(&comparison, "saturated").judgement, Judgement::Refuted, "{what}");
                assert!(of(&comparison, "above-the-disk").judgement >= Judgement::Possible, "{what}");
            }
        }
    }
}

/// Two decimals of aqu-sz hide what a few requests a second have under way.
#[test]
fn hardly_any_requests_are_no_throttle() {
    for (a, b) in [(0.01, 0.02), (5.0, 8.0), (300.0, 200.0)] {
        let (one, two) = (side("one", a, a * 4.0, 0.5, 0.0, 1.0), side("two", b, b * 4.0, 0.6, 0.0, 1.0));
        let comparison = compare(&one, &two, &Context::default());
        assert!(of(&comparison, "throttled").judgement <= Judgement::Possible, "{a} {b}: {comparison:#?}");
    }
}

#[test]
fn what_misleads_in_the_seed() {
    let (one, two) = seed();
    let context = Context { graph_rate: Some(995_820.0), ..Context::default() };
    let comparison = compare(&one, &two, &context);
    let codes: Vec<&str> = comparison.findings.iter().map(|finding| finding.code).collect();
    let expected = [
        "util-misleads",
        "bytes-beside-requests",
        "little",
        "little",
        "ops-per-minute",
        "graph-unit",
        "iowait-is-no-evidence",
        "single-interval",
    ];
    assert_eq!(codes, expected);

    let messages: Vec<&str> = comparison.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert!(messages[0].starts_with("%util is 96 % in A and 98 % in B, while B completes 29 % more requests"));
    assert!(messages[0].contains("proves nothing"));
    assert!(messages[1].contains("4 % fewer bytes") && messages[1].contains("28.4 KiB after 38.1 KiB"));
    assert!(messages[2].contains("16,597/s x 0.14 ms = 2.32 under way, and aqu-sz is 2.28"), "{}", messages[2]);
    assert!(messages[3].contains("21,357/s x 0.07 ms = 1.49 under way, and aqu-sz is 1.49"), "{}", messages[3]);
    assert!(messages[4].contains("995,820 and 1,281,420"), "{}", messages[4]);
    assert!(messages[5].ends_with("per minute"));
}

#[test]
fn a_model_of_the_disk_settles_it() {
    let (mut one, mut two) = seed();
    (one.capacity_use, two.capacity_use) = (Some(0.32), Some(0.41));
    let comparison = compare(&one, &two, &Context::default());
    let saturated = of(&comparison, "saturated");
    assert_eq!(saturated.judgement, Judgement::Refuted);
    assert!(saturated.evidence_against.join(";").contains("32 % and 41 % of its capacity"));
}

#[test]
fn judgements_of_other_pairs() {
    use Judgement::{CannotBeTold, Likely, Possible, Refuted, Unlikely};
    let side = |requests, kib, await_ms, queue| side("", requests, kib, await_ms, queue, 100.0);
    // A name, both sides; the judgements on saturated, throttled and above-the-disk.
    let table = [
        // With twice as many under way nothing more completes, at no round figure.
        ("full", side(228_000.0, 912e3, 0.28, 64.0), side(230_100.0, 920.4e3, 0.556, 128.0), Likely, Possible, Refuted),
        // The same at a round figure, 3,000 IOPS.
        ("volume", side(3_000.0, 48e3, 2.66, 8.0), side(3_010.0, 48_160.0, 10.6, 32.0), Possible, Likely, Refuted),
        // 125 MB/s: 250 requests of 500 kB.
        ("bandwidth", side(250.0, 122e3, 16.0, 4.0), side(250.0, 122e3, 64.0, 16.0), Possible, Likely, Refuted),
        // More requests and bytes at the same await.
        ("room", side(10_000.0, 40e3, 0.1, 1.0), side(40_000.0, 160e3, 0.1, 4.0), Refuted, Unlikely, Likely),
        // Requests of half the size at a flat 600 MiB/s with 32 under way: bandwidth may be the limit.
        (
            "halves",
            side(9_600.0, 614_400.0, 3.33, 32.0),
            side(19_200.0, 614_400.0, 1.67, 32.0),
            Possible,
            Unlikely,
            Possible,
        ),
        // Fewer requests of a longer await, with as many under way: the device could do more.
        ("worse", side(50_000.0, 200e3, 0.2, 10.0), side(20_000.0, 80e3, 0.5, 10.0), Possible, Likely, Refuted),
        ("equal", side(5_500.0, 22e3, 0.1, 0.55), side(5_500.0, 22e3, 0.1, 0.55), Unlikely, CannotBeTold, Possible),
    ];

    for (what, a, b, saturated, throttled, above) in table {
        for (a, b) in [(&a, &b), (&b, &a)] {
            let comparison = compare(a, b, &Context::default());
            let found = ["saturated", "throttled", "above-the-disk"].map(|code| of(&comparison, code).judgement);
            assert_eq!(found, [saturated, throttled, above], "{what}: {:#?}", comparison.hypotheses);
        }
    }
}

#[test]
fn a_queue_that_grows_far_more_than_the_rate_is_the_limit_and_no_flush() {
    use Verdict::{BusyButFree, Ok, Saturated};
    let side = |device: &str, requests, await_ms, queue, util, verdict| {
        let mut side = side("", requests, requests * 16.0, await_ms, queue, util);
        side.device = device.to_owned();
        side.verdict = verdict;
        side.columns.flushes_per_s = Some(0.0);
        side.columns.write_merges_per_s = Some(0.0);
        side
    };

    // Both sides, each judged by itself as a watch does, and whether saturated is likely.
    let table = [
        (side("sda", 150.0, 6.4, 0.96, 60.0, Some(Ok)), side("sda", 195.0, 40.0, 7.8, 97.0, Some(Saturated)), true),
        (
            side("nvme0n1", 20e3, 0.05, 1.0, 90.0, Some(BusyButFree)),
            side("nvme0n1", 26e3, 2.5, 65.0, 100.0, Some(Saturated)),
            true,
        ),
        // Five under way complete four times as much: there was room.
        (side("sda", 1e3, 1.0, 1.0, 60.0, Some(Ok)), side("sda", 4e3, 1.25, 5.0, 97.0, Some(BusyButFree)), false),
    ];

    for (a, b, is_full) in table {
        for (a, b) in [(&a, &b), (&b, &a)] {
            let comparison = compare(a, b, &Context::default());
            assert_eq!(of(&comparison, "saturated").judgement == Judgement::Likely, is_full, "{comparison:#?}");
            assert_ne!(of(&comparison, "flush-pressure").judgement, Judgement::Likely, "{comparison:#?}");
            assert_ne!(of(&comparison, "above-the-disk").judgement, Judgement::Likely, "{comparison:#?}");
        }
    }
}

/// A program that asks at a given rate has more under way as soon as each request takes longer.
#[test]
fn a_given_rate_with_few_under_way_is_no_limit() {
    let table = [
        // At the latencies of a healthy disk with little to do.
        ("nvme0n1", 10e3, [0.12, 0.15], 100.0),
        // The disk has nothing to do for a quarter of the time.
        ("nvme0n1", 1e3, [1.1, 2.9], 75.0),
        ("sda", 150.0, [6.0, 9.0], 75.0),
    ];
    for (device, requests, awaits_ms, util) in table {
        let [a, b] = awaits_ms.map(|await_ms| Side {
            device: device.to_owned(),
            verdict: Some(Verdict::Ok),
            ..side("", requests, requests * 4.0, await_ms, requests * await_ms / 1000.0, util)
        });
        for (a, b) in [(&a, &b), (&b, &a)] {
            let comparison = compare(a, b, &Context::default());
            assert_ne!(of(&comparison, "saturated").judgement, Judgement::Likely, "{comparison:#?}");
            assert_ne!(of(&comparison, "throttled").judgement, Judgement::Likely, "{comparison:#?}");
            assert_ne!(of(&comparison, "above-the-disk").judgement, Judgement::Refuted, "{comparison:#?}");
        }
    }
}

/// A disk that spins completes a few hundred requests of 64 KiB a second in sequence, and about a hundred at random.
#[test]
fn order_changes_what_a_disk_that_spins_completes() {
    let spins = DeviceFacts { is_rotational: Some(true), ..DeviceFacts::default() };
    // In sequence; at random with as many under way, and with fewer.
    let in_order = side("in order", 400.0, 25_600.0, 5.0, 2.0, 100.0);
    let at_random = [(200.0, 2.0), (100.0, 1.0)];
    for (requests, queue) in at_random {
        let b = side("at random", requests, requests * 64.0, 1000.0 * queue / requests, queue, 100.0);
        let [a, b] = [&in_order, &b].map(|side| Side { device: "sda".to_owned(), ..side.clone() });
        for facts in [None, Some(spins.clone())] {
            for (a, b) in [(&a, &b), (&b, &a)] {
                let comparison = compare(a, b, &Context { facts: facts.clone(), ..Context::default() });
                assert_ne!(of(&comparison, "saturated").judgement, Judgement::Refuted, "{comparison:#?}");
                assert_ne!(of(&comparison, "throttled").judgement, Judgement::Likely, "{comparison:#?}");
                assert_ne!(of(&comparison, "above-the-disk").judgement, Judgement::Likely, "{comparison:#?}");
            }
        }
    }
}

#[test]
fn networks() {
    let facts = |remote| DeviceFacts { model: Some("a disk".to_owned()), remote, ..DeviceFacts::default() };
    let link = |link| facts(Some(Remote { kind: "rbd".to_owned(), link_bytes_per_s: link }));
    let (one, two) = seed();
    for (facts, expected) in [
        (facts(None), Judgement::Refuted),
        (link(None), Judgement::Possible),
        (link(Some(2_500_000_000)), Judgement::Unlikely),
        (link(Some(1_000_000_000)), Judgement::Possible),
        (link(Some(680_000_000)), Judgement::Likely),
    ] {
        let comparison = compare(&one, &two, &Context { facts: Some(facts), graph_rate: None });
        assert_eq!(of(&comparison, "remote").judgement, expected, "{comparison:?}");
    }
    // Each direction of the link is three fifths full.
    let both = |mut side: Side| {
        let kib_per_s = Some(610e3);
        (side.columns.read_kib_per_s, side.columns.write_kib_per_s) = (kib_per_s, kib_per_s);
        side
    };
    let context = Context { facts: Some(link(Some(1_000_000_000))), graph_rate: None };
    let comparison = compare(&both(one), &both(two), &context);
    assert_eq!(of(&comparison, "remote").judgement, Judgement::Possible, "{comparison:?}");
}

#[test]
fn nothing_known_and_nothing_done() {
    let nothing = Side::default();
    let comparison = compare(&nothing, &nothing, &Context::default());
    assert!(comparison.hypotheses.iter().all(|hypothesis| hypothesis.judgement == Judgement::CannotBeTold));
    assert!(comparison.columns.is_empty() && comparison.findings.is_empty());
    let idle = side("idle", 0.0, 0.0, 0.0, 0.0, 0.0);
    for (a, b) in [(&idle, &idle), (&idle, &seed().0), (&seed().0, &idle)] {
        let comparison = compare(a, b, &Context::default());
        let text = format!("{comparison:?} {:?}", comparison.sections());
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

fn observed(is_since_boot: bool, duration_s: f64, requests: f64, await_ms: f64, basis: Basis) -> Observed {
    let columns = Columns {
        writes_per_s: Some(requests),
        write_await_ms: Some(await_ms),
        util_percent: Some(50.0),
        ..Columns::default()
    };
    let judged = Judged {
        interval: DeviceInterval { device: "sda".to_owned(), columns, ..DeviceInterval::default() },
        capacity_use: Some(0.5),
        capacity_basis: basis,
        verdict: Verdict::Ok,
        ..Judged::default()
    };
    Observed { is_since_boot, duration_s: Some(duration_s), devices: vec![judged], ..Observed::default() }
}

#[test]
fn a_side_is_a_mean_by_time_and_by_requests() {
    let intervals = [
        observed(true, 1e6, 7.0, 9.0, Basis::HighestSeen),
        observed(false, 1.0, 100.0, 1.0, Basis::HighestSeen),
        observed(false, 3.0, 300.0, 2.0, Basis::Model("disk.yaml".to_owned())),
    ];
    let side = Side::of("file", &intervals, "sda").expect("it is there");
    assert_eq!((side.intervals, side.duration_s, side.is_since_boot), (2, Some(4.0), false));
    assert_eq!(side.columns.writes_per_s, Some(250.0));
    assert_eq!(side.columns.write_await_ms, Some(1.9));
    assert_eq!((side.capacity_use, side.cpu, side.verdict), (Some(0.5), None, Some(Verdict::Ok)));
    assert_eq!(Side::of("file", &intervals, "sdb"), None);
    let since_boot = Side::of("file", &intervals[..1], "sda").expect("it is there");
    assert_eq!((since_boot.is_since_boot, since_boot.capacity_use), (true, None));
}

#[test]
fn the_document_and_the_tables() {
    let (one, two) = seed();
    let comparison = compare(&one, &two, &Context::default());
    let json = serde_json::to_value(&comparison).expect("it is JSON");
    assert_eq!((&json["schema"], &json["a"]["name"]), (&1.into(), &"one writer".into()));
    assert_eq!(json["hypotheses"][0]["judgement"], "refuted");
    assert_eq!(json["columns"][0]["column"], "w/s");
    let sections = comparison.sections();
    let Some(Block::Table(table)) = sections[0].blocks.get(2) else { panic!("no table: {sections:?}") };
    assert_eq!(table.rows[0], ["w/s", "16597.00", "21357.00", "+29 %"]);
    // Figures that are 0 or missing on both sides are left out.
    assert!(table.rows.iter().all(|row| row[0] != "r/s" && row[0] != "f/s"));
}
