use plimsoll::core::trace::Event;
use plimsoll::trace::format::{ClassName, Clock, Names, Writer};

use super::super::story::{Story, events, read, with_pauses};
use super::*;

fn side(events: &[Event]) -> SideDone {
    let mut side = Side::default();
    let trace = read(events, &mut |item| side.visit(&item));
    side.finish(&trace)
}

#[test]
fn the_pattern_of_seed_000_comes_first() {
    let (slow, fast) = (side(&events(Story::OLD_DEFAULTS, &[16], 400)), side(&events(Story::FREE, &[16], 400)));
    let found = diff(&slow, &fast);
    let first = found.patterns.first().map_or("", String::as_str);
    assert!(first.starts_with("dispatch gap of nvme") && first.ends_with("x shorter"), "{:#?}", found.patterns);
    assert!(found.patterns.iter().any(|it| it.starts_with("queues standing still, tokens: ")), "{:?}", found.patterns);
    assert!(!found.is_worse, "{:?}", found.figures);
    let back = diff(&fast, &slow);
    assert!(back.is_worse && back.patterns[0].ends_with("longer"), "{:?}", back.patterns);
    // The time in the device is the same on both sides.
    let device: Vec<_> = found.figures.iter().filter(|it| it.stage == "D2C").map(|it| it.verdict).collect();
    assert!(!device.is_empty() && device.iter().all(|it| *it == Change::Same), "{:?}", found.figures);
}

#[test]
fn the_same_twice_does_not_differ() {
    let once = side(&events(Story::OLD_DEFAULTS, &[16], 200));
    let found = diff(&once, &once);
    assert!(found.patterns.is_empty() && !found.is_worse, "{:?}", found.patterns);
    assert!(found.figures.iter().all(|it| it.verdict == Change::Same));
}

#[test]
fn noise_is_no_difference() {
    // The device's time goes up and down by a third between requests, in another order on each side.
    let noisy = |seed: u64| {
        let mut rng = Rng::new(seed);
        let mut events = Vec::new();
        let mut now_ns = 0;
        for request in 1..2_000 {
            let latency_ns = 200_000 + rng.below(100_000);
            for (after_ns, kind) in [
                (0, plimsoll::core::trace::EventKind::Queued),
                (1_000, plimsoll::core::trace::EventKind::Dispatched),
                (1_000 + latency_ns, plimsoll::core::trace::EventKind::Completed),
                (1_000 + latency_ns, plimsoll::core::trace::EventKind::Reaped),
            ] {
                events.push(super::super::story::event(now_ns + after_ns, request, kind));
            }
            now_ns += latency_ns + 2_000;
        }
        side(&events)
    };

    for seed in 1..10 {
        let found = diff(&noisy(seed), &noisy(seed + 100));
        assert!(found.patterns.is_empty(), "{seed}: {:?}", found.figures);
    }
}

#[test]
fn what_is_on_one_side_only_is_told() {
    let found = diff(&side(&events(Story::FREE, &[4], 50)), &side(&[]));
    assert_eq!(
        found.unmatched,
        ["large: this class is in the first trace only", "nvme: this disk is in the first trace only"]
    );
    assert!(found.figures.is_empty() && found.to_csv().lines().count() == 1);
    let json: serde_json::Value = serde_json::to_value(&found).unwrap();
    assert_eq!(json["schema"], 1);
}

#[test]
fn numbers_of_one_class_name_are_one_class() {
    // The class was made again under another number half-way.
    let load = events(Story::FREE, &[4], 100);
    let again: Vec<Event> = load.iter().map(|event| Event { class: 2, ..*event }).collect();
    let of = |loads: &[Vec<Event>]| {
        let mut names = Names::default();
        for number in [1, 2] {
            names.classes.insert(number, ClassName { name: "db".to_owned(), shares: 100 });
        }
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, Clock::Virtual, 0).unwrap();
        writer.names(&names).unwrap();
        writer.events(0, 0, &with_pauses(loads, 3_000_000)).unwrap();
        let mut side = Side::default();
        let trace = super::super::read_from(file.as_slice(), &mut |item| side.visit(&item)).unwrap();
        side.finish(&trace)
    };

    let (one, two) = (of(&[load.clone(), load.clone()]), of(&[load, again]));
    assert_eq!(one.times.len(), STAGES.len());
    for (key, times) in &one.times {
        let joined = &two.times[key];
        assert_eq!((joined.all.count(), joined.all.mean()), (times.all.count(), times.all.mean()), "{key:?}");
        assert_eq!(joined.windows.means(), times.windows.means(), "{key:?}");
    }
}

#[test]
fn disks_of_one_name_are_paired_in_their_order() {
    let of = |loads: &[Vec<Event>]| {
        let mut names = Names::default();
        let mut file = Vec::new();
        (0..2).for_each(|number| drop(names.disks.insert(number, "data".to_owned())));
        let mut writer = Writer::new(&mut file, Clock::Virtual, 0).unwrap();
        writer.names(&names).unwrap();
        for (disk, load) in (0..).zip(loads) {
            let load: Vec<Event> = load.iter().map(|event| Event { disk, ..*event }).collect();
            writer.events(disk, 0, &load).unwrap();
        }
        drop(writer);
        let mut side = Side::default();
        let trace = super::super::read_from(file.as_slice(), &mut |item| side.visit(&item)).unwrap();
        side.finish(&trace)
    };

    let [free, slow] = [Story::FREE, Story::OLD_DEFAULTS].map(|story| events(story, &[16], 400));
    let once = of(&[free.clone(), slow.clone()]);
    let found = diff(&once, &once);
    assert!(found.patterns.is_empty() && !found.is_worse && found.unmatched.is_empty(), "{found:#?}");
    let swapped = diff(&once, &of(&[slow, free.clone()]));
    for gap in ["dispatch gap of data (mean): ", "dispatch gap of data (2) (mean): "] {
        assert!(swapped.patterns.iter().any(|it| it.starts_with(gap)), "{:#?}", swapped.patterns);
    }
    // If one side has more disks of a name, the last are left.
    let alone = diff(&once, &of(&[free]));
    assert_eq!(alone.unmatched, ["data (2): this disk is in the first trace only"]);
}
