use super::*;
use crate::stat::{Columns, DeviceInterval, Gap};

/// Returns a device that writes `mib_per_s` in requests of 64 KiB that take `await_ms`.
fn judged(device: &str, mib_per_s: f64, await_ms: f64) -> Judged {
    let requests = mib_per_s * 16.0;
    let columns = Columns {
        writes_per_s: Some(requests),
        write_kib_per_s: Some(mib_per_s * 1024.0),
        write_await_ms: Some(await_ms),
        ..Columns::default()
    };
    Judged {
        interval: DeviceInterval { device: device.to_owned(), columns, ..DeviceInterval::default() },
        capacity_basis: Basis::HighestSeen,
        verdict: if mib_per_s > 0.0 { Verdict::Ok } else { Verdict::Idle },
        why: "it works".to_owned(),
        ..Judged::default()
    }
}

fn name(index: usize) -> String {
    format!("nvme{index}n1")
}

fn devices(loads: &[f64]) -> Vec<Judged> {
    loads.iter().enumerate().map(|(index, load)| judged(&name(index), *load, 1.0)).collect()
}

fn by_hand(count: usize) -> Groups {
    Groups::new(vec![("cache".to_owned(), (0..count).map(name).collect())])
}

fn codes(observed: &[GroupObserved]) -> Vec<&'static str> {
    observed.iter().flat_map(|group| &group.remarks).map(|remark| remark.code).collect()
}

/// Pseudo-random numbers from 0 to 1, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }
}

#[test]
fn figures_of_a_split() {
    // Loads, effective devices, imbalance, verdict.
    type Case = (&'static [f64], Option<f64>, Option<f64>, Verdict);
    let table: [Case; 8] = [
        (&[100.0, 100.0, 100.0, 100.0], Some(4.0), Some(0.0), Verdict::Ok),
        (&[400.0, 0.0, 0.0, 0.0], Some(1.0), Some(3.0), Verdict::Imbalanced),
        (&[97.0, 1.0, 1.0, 1.0], Some(1.0625), Some(2.88), Verdict::Imbalanced),
        (&[110.0, 95.0, 100.0, 95.0], Some(3.985), Some(0.1), Verdict::Ok),
        (&[300.0, 100.0], Some(1.6), Some(0.5), Verdict::Imbalanced),
        (&[290.0, 110.0], Some(1.663), Some(0.45), Verdict::Ok),
        // 12 requests: it may be chance.
        (&[0.5, 0.25, 0.0, 0.0], Some(1.8), Some(1.667), Verdict::Ok),
        (&[0.0, 0.0], None, None, Verdict::Idle),
    ];

    for (loads, effective, excess, verdict) in table {
        let observed = by_hand(loads.len()).observe(&devices(loads), &Facts::new(), Some(1.0));
        let group = &observed[0];
        let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 2e-3,
            (a, b) => a == b,
        };
        assert!(close(group.effective_devices, effective), "{loads:?}: {group:?}");
        assert!(close(imbalance(loads), excess), "{loads:?}: {:?}", imbalance(loads));
        assert_eq!(group.verdict, verdict, "{loads:?}: {}", group.why);
        assert_eq!(group.parts.len(), loads.len());
    }
}

#[test]
fn why_names_the_busiest_and_the_loss() {
    let observed = by_hand(4).observe(&devices(&[1.0, 97.0, 1.0, 1.0]), &Facts::new(), Some(2.0));
    assert_eq!(
        observed[0].why,
        "nvme1n1 takes 97 % of the bytes: 1.06 of 4 devices effective, 74 % of the group unused when it is full"
    );
}

#[test]
fn a_faster_disk_may_take_more() {
    let mut devices = devices(&[300.0, 100.0]);
    for (device, capacity_use) in devices.iter_mut().zip([0.5, 0.5]) {
        device.capacity_use = Some(capacity_use);
    }
    // A share of the highest rate seen is no capacity.
    assert_eq!(by_hand(2).observe(&devices, &Facts::new(), Some(1.0))[0].verdict, Verdict::Imbalanced);
    devices.iter_mut().for_each(|device| device.capacity_basis = Basis::Model("disk.yaml".to_owned()));
    let group = &by_hand(2).observe(&devices, &Facts::new(), Some(1.0))[0];
    assert_eq!((group.verdict, group.effective_devices), (Verdict::Ok, Some(1.6)));
    devices[1].capacity_use = Some(0.1);
    // The busiest uses less than a tenth: no verdict.
    devices[0].capacity_use = Some(0.09);
    assert_eq!(by_hand(2).observe(&devices, &Facts::new(), Some(1.0))[0].verdict, Verdict::Ok);
    devices[0].capacity_use = Some(0.5);
    let group = &by_hand(2).observe(&devices, &Facts::new(), Some(1.0))[0];
    assert_eq!(group.verdict, Verdict::Imbalanced);
    assert!(group.why.ends_with("by capacity use"), "{}", group.why);
}

/// Runs the load of the seed (there half an hour at 2 s): each of `count` disks in turn takes about 225 MiB/s for
/// `turn` intervals. Returns the judgement of the last interval.
fn rotating(count: usize, turn: usize, intervals: usize, duration_s: Option<f64>) -> Vec<GroupObserved> {
    let (mut groups, mut dice, mut last) = (by_hand(count), Dice(3), Vec::new());
    // Means since the host began must not be remembered.
    let mut long_ago = vec![1.0; count];
    long_ago[0] = 1e9;
    groups.observe_means(&devices(&long_ago), &Facts::new());
    for interval in 0..intervals {
        let hot = interval / turn % count;
        let load = |index| if index == hot { 200.0 + 50.0 * dice.roll() } else { 3.0 * dice.roll() };
        let loads: Vec<f64> = (0..count).map(load).collect();
        last = groups.observe(&devices(&loads), &Facts::new(), duration_s);
        assert_eq!(last[0].verdict, Verdict::Imbalanced);
    }
    last
}

#[test]
fn the_rotating_hot_disk_is_found() {
    // Disks, intervals in a turn, intervals, their seconds, and whether the rotation is found.
    let table = [
        (4, 75, 900, Some(2.0), true),
        (3, 100, 900, Some(2.0), true),
        (4, 5, 60, Some(30.0), true),
        (2, 30, 300, None, true),
        (24, 20, 960, Some(1.0), true),
        // Twenty-three intervals are too few.
        (4, 5, 23, Some(2.0), false),
        // The hot disk changes at each interval: no rotation.
        (4, 1, 900, Some(2.0), false),
    ];

    for (count, turn, intervals, duration_s, is_found) in table {
        let observed = rotating(count, turn, intervals, duration_s);
        let found = codes(&observed).contains(&"hot-spot-rotation");
        assert_eq!(found, is_found, "{count} disks, turns of {turn}: {:?}", observed[0].remarks);
    }

    let message = &rotating(4, 75, 900, Some(2.0))[0].remarks[0].message;
    for part in ["changed 11 times in 30 min", "for about 2.5 min", "25 % to 25 %"] {
        assert!(message.contains(part), "no `{part}` in {message}");
    }

    // Pauses between bursts, with next to no work, do not hide the rotation.
    let (mut groups, mut dice, mut last) = (by_hand(3), Dice(7), Vec::new());
    for interval in 0..180 {
        let is_hot = |index| interval % 5 < 2 && interval / 15 % 3 == index;
        let load = |index| if is_hot(index) { 250.0 } else { 2.0 * dice.roll() };
        let mut devices = devices(&[0, 1, 2].map(load));
        for device in &mut devices {
            let columns = &mut device.interval.columns;
            columns.util_percent = columns.writes_per_s.map(|writes| (writes / 40.0).min(100.0));
        }
        last = groups.observe(&devices, &Facts::new(), Some(10.0));
    }
    assert_eq!(codes(&last), ["hot-spot-rotation"]);

    let message = &rotating(2, 30, 300, None)[0].remarks[0].message;
    assert!(message.contains("changed 9 times in 300 intervals"), "{message}");
}

#[test]
fn chance_is_no_rotation() {
    // The load of a disk by its index, a random number for the disk, and one for the interval.
    type Load = fn(usize, f64, f64) -> f64;
    let table: [(&str, Load); 4] = [
        ("even", |_, own, _| 100.0 + own),
        ("noise", |_, own, _| 200.0 * own),
        ("bursts to one disk by lot", |index, _, all| if index == (4.0 * all) as usize { 200.0 } else { 1.0 }),
        ("idle with single requests", |index, _, all| if index == (4.0 * all) as usize { 0.0625 } else { 0.0 }),
    ];
    for (what, load) in table {
        let (mut groups, mut dice) = (by_hand(4), Dice(5));
        for interval in 0..3000 {
            let all = dice.roll();
            let loads: Vec<f64> = (0..4).map(|index| load(index, dice.roll(), all)).collect();
            let observed = groups.observe(&devices(&loads), &Facts::new(), Some(1.0));
            assert_eq!(codes(&observed), Vec::<&str>::new(), "{what} at {interval}: {:?}", observed[0]);
        }
    }
}

#[test]
fn what_stays_on_one_disk_is_uneven_and_no_rotation() {
    let mut groups = by_hand(4);
    let mut last = Vec::new();
    for _ in 0..2000 {
        last = groups.observe(&devices(&[30.0, 10.0, 210.0, 20.0]), &Facts::new(), Some(1.0));
    }
    assert_eq!(codes(&last), ["uneven"]);
    let mut mild = by_hand(4);
    let loads = devices(&[80.0, 40.0, 40.0, 40.0]);
    let found = (0..24).map(|_| codes(&mild.observe(&loads, &Facts::new(), None))).last();
    assert_eq!(found, Some(vec!["uneven"]));
    assert!(last[0].remarks[0].message.starts_with("nvme2n1 had 78 % of the bytes over 30 min"), "{last:?}");
    assert_eq!(groups.states.values().map(|state| state.past.len()).sum::<usize>(), HISTORY_MAX);
}

#[test]
fn stragglers_and_whose_fault_it_is() {
    // Loads, await of disk 2 over that of the others, spread of each await, and the end of the message.
    let table = [
        ([50.0; 4], 3.0, 0.2, Some("with 25 % of the work, where 25 % is an equal part: the disk is at fault")),
        ([30.0, 30.0, 110.0, 30.0], 3.0, 0.2, Some("it has 55 % of the work, not 25 %: the placement is at fault")),
        ([50.0; 4], 1.4, 0.0, None),
        ([50.0; 4], 1.0, 0.9, None),
    ];

    for (loads, factor, spread, expected) in table {
        let (mut groups, mut dice, mut last) = (by_hand(4), Dice(11), Vec::new());
        for interval in 0..30 {
            let mut devices = devices(&loads);
            for (index, device) in devices.iter_mut().enumerate() {
                let base = if index == 2 { factor } else { 1.0 };
                device.interval.columns.write_await_ms = Some(base * (1.0 + spread * (dice.roll() - 0.5)));
            }
            last = groups.observe(&devices, &Facts::new(), Some(1.0));
            assert!(interval >= 9 || !codes(&last).contains(&"straggler"));
        }
        let found = last[0].remarks.iter().find(|remark| remark.code == "straggler");
        let message = found.map(|remark| remark.message.as_str());
        assert_eq!(message.is_some(), expected.is_some(), "{last:?}");
        let is_as_expected = message.zip(expected).is_none_or(|(message, end)| message.ends_with(end));
        assert!(is_as_expected && message.is_none_or(|message| message.starts_with("nvme2n1")), "{message:?}");
    }
}

#[test]
fn a_straggler_with_its_part_is_ill_and_not_full() {
    for (factor, expected) in [(5.0, Verdict::Degraded), (1.0, Verdict::Saturated)] {
        let (mut groups, mut last) = (by_hand(4), Vec::new());
        for _ in 0..12 {
            let mut devices = devices(&[50.0; 4]);
            for (index, device) in devices.iter_mut().enumerate() {
                let own = if index == 2 { factor } else { 1.0 };
                device.interval.columns.write_await_ms = Some(6.0 * own);
            }
            devices[2].verdict = Verdict::Saturated;
            last = groups.observe(&devices, &Facts::new(), Some(1.0));
        }
        assert_eq!(last[0].verdict, expected, "{}", last[0].why);
        let says = last[0].why.starts_with("nvme2n1: its siblings do the same in 6.00 ms");
        assert_eq!(says, expected == Verdict::Degraded, "{}", last[0].why);
    }
}

#[test]
fn arrays_mirrors_and_what_is_missing() {
    let member = |gib: u64| DeviceFacts { size_bytes: Some(gib << 30), ..DeviceFacts::default() };
    let array = |gib: u64| DeviceFacts { members: vec![name(0), name(1)], ..member(gib) };
    let mut facts: Facts = [(name(0), member(100)), (name(1), member(100))].into();
    facts.insert("md0".to_owned(), array(200));
    facts.insert("md1".to_owned(), array(99));
    facts.insert("md2".to_owned(), DeviceFacts { members: vec![name(0), "sdz".to_owned()], ..member(200) });
    let mut groups = Groups::new(vec![("hand".to_owned(), vec![name(0), "sdz".to_owned()])]);
    let observed = groups.observe(&devices(&[300.0, 10.0]), &facts, Some(1.0));
    let found: Vec<(&str, Verdict)> = observed.iter().map(|group| (group.group.as_str(), group.verdict)).collect();
    assert_eq!(found, [("hand", Verdict::Imbalanced), ("md0", Verdict::Imbalanced), ("md1", Verdict::Ok)]);
    let parts: Vec<(&str, f64)> =
        observed[0].parts.iter().map(|part| (part.device.as_str(), part.bytes_share)).collect();
    assert_eq!((parts, codes(&observed[..1])), (vec![("nvme0n1", 1.0), ("sdz", 0.0)], vec!["member-missing"]));
    assert!(observed[2].why.ends_with("a choice of path"), "{}", observed[2].why);
    assert_eq!(groups.observe(&[], &Facts::new(), None)[0].verdict, Verdict::Unknown);
    assert_eq!(groups.states.len(), 1);
}

#[test]
fn a_member_that_hangs_or_is_full_speaks_for_its_group() {
    for (verdict, loads, expected) in [
        (Verdict::Hung, [100.0, 0.0], Verdict::Hung),
        (Verdict::Saturated, [100.0, 100.0], Verdict::Saturated),
        (Verdict::Unknown, [100.0, 100.0], Verdict::Ok),
    ] {
        let mut devices = devices(&loads);
        devices[1].verdict = verdict;
        let group = &by_hand(2).observe(&devices, &Facts::new(), Some(1.0))[0];
        assert_eq!(group.verdict, expected, "{}", group.why);
    }
}

#[test]
fn a_member_without_figures_has_not_done_nothing() {
    let mut groups = by_hand(2);
    let full = Judged { verdict: Verdict::Saturated, ..judged(&name(0), 100.0, 1.0) };
    let table = [(judged(&name(0), 100.0, 1.0), Verdict::Unknown), (full, Verdict::Saturated)];
    for (known, verdict) in table {
        let mut unknown = Judged { verdict: Verdict::Unknown, ..judged(&name(1), 0.0, 1.0) };
        unknown.interval.columns = Columns::default();
        unknown.interval.gap = Some(Gap::Appeared);
        let group = &groups.observe(&[known, unknown], &Facts::new(), Some(1.0))[0];
        assert_eq!((group.verdict, group.effective_devices), (verdict, None), "{}", group.why);
    }
    assert!(groups.states["cache"].past.is_empty());

    let observed = groups.observe(&devices(&[100.0, 100.0]), &Facts::new(), Some(1.0));
    assert_eq!((observed[0].verdict, observed[0].effective_devices), (Verdict::Ok, Some(2.0)));
}
