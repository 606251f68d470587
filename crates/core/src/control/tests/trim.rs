//! The throughput that the trim must keep, the guests that it must serve, on disks whose rate rises slowly; and the
//! times of its rounds.

use super::super::trim::{Goal, Verdict};
use super::super::*;
use super::bench::*;

/// The rate of a virtual disk with 1 to 20 requests of 128 KiB in it, over that with 128 requests: near to figures that
/// fio measured on one.
const SLOW_RISE: &[f64] = &[
    0.91, 1.1, 1.16, 1.2, 1.23, 1.24, 1.25, 1.25, 1.25, 1.24, 1.23, 1.22, 1.2, 1.18, 1.15, 1.12, 1.1, 1.08, 1.05, 1.0,
];
/// A disk on which three requests give 0.8 of the rate, twice as many hardly more, and twelve 0.93.
const LATE_RISE: &[f64] = &[
    0.65, 0.75, 0.8, 0.81, 0.81, 0.82, 0.82, 0.83, 0.84, 0.86, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.98, 0.99, 0.99, 1.0,
];
/// A disk that gives a tenth more with forty requests than with 128.
const EARLY_PEAK: [f64; 128] = {
    let mut rates = [1.1; 128];
    (rates[0], rates[1], rates[2], rates[3]) = (0.8, 0.92, 0.97, 1.0);
    let mut requests = 40;
    while requests < 128 {
        rates[requests] = 1.1 - 0.1 * (requests - 40) as f64 / 87.0;
        requests += 1;
    }
    rates
};
/// A source in which each fifth request is that of a guest.
const WITH_GUESTS: Source = Source { completions_per_wakeup: 5, outstanding: 128, ..ENDLESS };

fn slow_rise() -> [(&'static str, Device); 2] {
    let calm = Device { curve: Some(SLOW_RISE), ..device(1, 1, 0, 0.3, &[(100_000, 100)]) };
    [("calm", calm.clone()), ("noisy", Device { weather: 0.1, ..calm })]
}

/// Figures of a run with guests.
struct ForGuests {
    /// Rate over the drained one.
    rate: f64,
    /// Requests in the device: median and mean over the time.
    typical: f64,
    mean: f64,
}

/// Runs `device` under the default goals.
fn run_for_guests(device: &Device, source: Source, seed: u64, from_ns: u64, to_ns: u64) -> ForGuests {
    let drained = run(device, Policy::Drain(128), ENDLESS, 99, 4 * SECOND).rate(100 * MS, 4 * SECOND);
    let config = ControlConfig { scale_max: 1.5, ..ControlConfig::default() };
    let run = run(device, Policy::Control(config, limits(750_000)), source, seed, to_ns);
    let cost_ns = mean_cost_ns(device);
    ForGuests {
        rate: run.rate(from_ns, to_ns) / drained,
        typical: run.typical_in_flight_ns(from_ns, to_ns) / cost_ns,
        mean: run.in_flight_ns(from_ns, to_ns) / cost_ns,
    }
}

#[test]
fn a_disk_whose_rate_rises_slowly_holds_few_requests_while_guests_come() {
    for ((name, device), from_ns) in slow_rise().into_iter().zip([4 * SECOND, 8 * SECOND]) {
        for seed in 0..8 {
            let ForGuests { rate, typical, mean } =
                run_for_guests(&device, WITH_GUESTS, seed, from_ns, from_ns + 4 * SECOND);
            println!("{name}, seed {seed}: {rate:.3} of drained, in the device {typical:.2}, mean {mean:.2}");
            assert!(rate >= 0.9, "{name}, seed {seed}: {rate:.3} of drained");
            assert!(typical <= 3.0, "{name}, seed {seed}: {typical:.2} requests");
            assert!(mean <= 3.5, "{name}, seed {seed}: {mean:.2} requests");
        }
    }
}

#[test]
fn a_reference_that_loses_too_much_grows_while_guests_come() {
    for (weather, least, least_median) in [(0.0, 0.86, 0.9), (0.1, 0.78, 0.89)] {
        let device = Device { curve: Some(LATE_RISE), weather, ..device(1, 1, 0, 0.3, &[(50_000, 100)]) };
        let mut rates = Vec::new();
        for seed in 0..16 {
            let ForGuests { rate, typical, .. } = run_for_guests(&device, WITH_GUESTS, seed, 8 * SECOND, 12 * SECOND);
            println!("weather {weather}, seed {seed}: {rate:.3} of drained, in the device {typical:.2}");
            assert!(rate >= least, "weather {weather}, seed {seed}: {rate:.3} of drained");
            rates.push(rate);
        }
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        assert!(median >= least_median, "weather {weather}: {median:.3} of drained in the median");
    }
}

/// A virtual disk reported 85 requests of 128 KiB every 3 ms. Two waves and a part of a third, in the time of two, were
/// a rate of 1.2 or 0.8.
#[test]
fn a_disk_that_completes_in_waves_shows_its_drained_rate() {
    for wave_ns in [2 * MS, 3 * MS, 5 * MS] {
        let device = Device { curve: Some(LATE_RISE), wave_ns, ..device(1, 1, 0, 0.1, &[(36_000, 100)]) };
        for seed in 0..8 {
            let ForGuests { rate, typical, .. } = run_for_guests(&device, WITH_GUESTS, seed, 4 * SECOND, 8 * SECOND);
            println!("{wave_ns} ns, seed {seed}: {rate:.3} of drained, in the device {typical:.2}");
            assert!(rate >= 0.9, "{wave_ns} ns, seed {seed}: {rate:.3} of drained");
            assert!(typical <= 13.5, "{wave_ns} ns, seed {seed}: {typical:.2} requests");
        }
    }
}

#[test]
fn the_goal_is_a_part_of_what_the_disk_gives_with_all_that_is_outstanding() {
    let device = Device { curve: Some(&EARLY_PEAK), ..device(1, 1, 0, 0.3, &[(100_000, 100)]) };
    for seed in 0..4 {
        let ForGuests { rate, typical, .. } = run_for_guests(&device, WITH_GUESTS, seed, 4 * SECOND, 8 * SECOND);
        println!("seed {seed}: {rate:.3} of drained, in the device {typical:.2}");
        assert!(rate >= 0.9 && typical <= 3.5, "seed {seed}: {rate:.3} of drained with {typical:.2} requests");
    }
}

#[test]
fn excursions_tell_what_follows() {
    let goal = Goal { throughput: 0.9, least_part: 0.1, first_part: 0.1, is_largest: false };
    for (goal, over_drained, excursions, expected) in [
        (goal, -0.25, 3, "TooSmall"),
        (goal, -0.11, 8, "TooSmall"),
        (goal, -0.05, 8, "Part"),
        (Goal { is_largest: true, ..goal }, -0.25, 3, "End"),
        (Goal { is_largest: true, ..goal }, -0.11, 8, "Part"),
        (Goal { least_part: 1.0, ..goal }, -0.05, 8, "End"),
    ] {
        let (mut trim, mut made) = (Trim::new(), 0);
        let verdict = loop {
            until_due_ns(&mut trim);
            trim.begin_round(None);
            assert!(matches!(trim.end_phase(MS, 0.0, goal), Verdict::Nothing));
            made += 1;
            match trim.end_phase(MS, over_drained, goal) {
                Verdict::Nothing => {}
                Verdict::Part(_) => break "Part",
                Verdict::TooSmall(_) => break "TooSmall",
                Verdict::End => break "End",
            }
        };
        assert_eq!((made, verdict), (excursions, expected), "{goal:?}, {over_drained}");
    }
}

/// Makes rounds as long as they follow each other, on a disk on which the part `p` loses `loss(p)`. Returns the part
/// after each round that changed it.
fn settle(trim: &mut Trim, goal: Goal, loss: impl Fn(f64) -> f64) -> Vec<f64> {
    let (mut parts, mut rounds) = (Vec::new(), 0);
    while trim.is_due(1.0) {
        let before = trim.part();
        trim.begin_round(Some(-loss(before)));
        while trim.stage() != Stage::Hold {
            let rate = match trim.stage() {
                Stage::Trial => -loss(trim.part() * TRIM_STEP),
                _ => 0.0,
            };
            trim.end_phase(MS, rate, goal);
        }
        if trim.part() != before {
            parts.push((trim.part() * 1000.0).round() / 1000.0);
        }
        rounds += 1;
        assert!(rounds < 200, "{parts:?}");
    }
    parts
}

#[test]
fn a_climb_that_leaps_is_followed_by_a_descent() {
    let goal = Goal { throughput: 0.9, least_part: 0.1, first_part: 0.1, is_largest: false };
    // Eight excursions come first; each allows 0.095.
    for (enough, parts) in [(0.25, vec![0.1, 0.2, 0.4, 0.32, 0.256]), (0.1, vec![0.1]), (0.2, vec![0.1, 0.2])] {
        let mut trim = Trim::new();
        until_due_ns(&mut trim);
        let loss = |part: f64| if part < enough { 0.3 } else { 0.02 };
        assert_eq!(settle(&mut trim, goal, loss), parts, "{enough} of the reference is enough");
    }
}

#[test]
fn a_descent_that_was_wrong_takes_back_one_step() {
    let goal = Goal { throughput: 0.9, least_part: 0.1, first_part: 0.1, is_largest: false };
    let (mut trim, enough) = (Trim::new(), std::cell::Cell::new(0.15));
    until_due_ns(&mut trim);
    let loss = |part: f64| {
        if (0.11..0.14).contains(&part) {
            // The trial of the next smaller part is inconclusive: from now on, the part in force is no longer enough.
            enough.set(0.19);
            return 0.1;
        }
        if part < enough.get() { 0.3 } else { 0.02 }
    };
    assert_eq!(settle(&mut trim, goal, loss), [0.1, 0.2, 0.16, 0.2]);
}

#[test]
fn nobody_gives_up_throughput_where_no_guest_comes() {
    let alone = Source { completions_per_wakeup: 0, ..WITH_GUESTS };
    for (name, device) in slow_rise() {
        let ForGuests { rate, .. } = run_for_guests(&device, alone, 1, SECOND, 4 * SECOND);
        assert!(rate >= 1.15, "{name}: {rate:.3} of drained");
    }
}

#[test]
fn disks_that_need_their_window_keep_it_with_guests() {
    for (name, device) in [
        ("16 servers", device(1, 16, 0, 0.3, SMALL)),
        ("8 channels", device(8, 1, 0, 0.3, SMALL)),
        ("virtual disk", device(1, 1, 50, 0.3, SMALL)),
    ] {
        for seed in 0..4 {
            let ForGuests { rate, typical, .. } = run_for_guests(&device, WITH_GUESTS, seed, SECOND, 8 * SECOND);
            println!("{name}, seed {seed}: {rate:.3} of drained, in the device {typical:.2}");
            assert!(rate >= 0.9, "{name}, seed {seed}: {rate:.3} of drained");
        }
    }
}

fn count(run: &Run, from_ns: u64, is_counted: impl Fn(&ControlEvent) -> bool) -> usize {
    run.events().iter().filter(|event| event.at_ns >= from_ns && is_counted(event)).count()
}

fn is_excursion(event: &ControlEvent) -> bool {
    event.kind == EventKind::Excursion
}

/// Runs `device` with guests that leave at 4 s, for `away_s`, until `more_s` after their return. Returns the time of
/// the return, and the run.
fn run_with_return(device: &Device, away_s: u64, more_s: u64, seed: u64) -> (u64, Run) {
    let config = ControlConfig { scale_max: 1.5, ..ControlConfig::default() };
    let back_ns = (4 + away_s) * SECOND;
    let source = Source { guests_away_ns: (4 * SECOND, back_ns), ..WITH_GUESTS };
    (back_ns, run(device, Policy::Control(config, limits(750_000)), source, seed, back_ns + more_s * SECOND))
}

#[test]
fn guests_that_return_soon_find_the_trim_that_they_left() {
    for (name, device) in slow_rise() {
        for seed in 0..8 {
            let (back_ns, run) = run_with_return(&device, 10, 2, seed);
            let requests = |from_ns, to_ns| run.typical_in_flight_ns(from_ns, to_ns) / mean_cost_ns(&device);
            let (left, away) = (requests(3 * SECOND, 4 * SECOND), requests(back_ns - SECOND, back_ns));
            let back = requests(back_ns + 200 * MS, back_ns + 2 * SECOND);
            println!("{name}, seed {seed}: {left:.2} requests, {away:.2} while guests are away, {back:.2} afterwards");
            assert!(away > left && back < away && back <= 2.5, "{name}, seed {seed}: {left:.2}, {away:.2}, {back:.2}");
            assert_eq!(count(&run, back_ns, is_excursion), 0, "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_trim_that_guests_return_to_goes_on_with_its_rounds() {
    for (name, device) in slow_rise() {
        for seed in 0..4 {
            let (back_ns, run) = run_with_return(&device, 10, 120, seed);
            let is_of_a_round =
                |event: &ControlEvent| is_excursion(event) || matches!(event.reason, EventReason::Loss { .. });
            assert!(count(&run, back_ns, is_of_a_round) > 0, "{name}, seed {seed}: no round in two minutes");
        }
    }
}

#[test]
fn guests_that_return_late_begin_anew() {
    let (name, device) = slow_rise()[0].clone();
    let (back_ns, run) = run_with_return(&device, 120, 2, 1);
    assert_eq!(count(&run, back_ns, is_excursion), EXCURSIONS_FIRST as usize, "{name}");
}

#[test]
fn what_guests_left_is_forgotten_when_the_disk_falls() {
    let device = with(&device(1, 16, 0, 0.3, SMALL), &[(16 * SECOND, Change::Servers(4))]);
    for seed in 0..6 {
        let (back_ns, run) = run_with_return(&device, 26, 4, seed);
        let requests = run.typical_in_flight_ns(back_ns + SECOND, back_ns + 4 * SECOND) / mean_cost_ns(&device);
        println!("seed {seed}: {requests:.2} requests");
        assert!(requests <= 10.0, "seed {seed}: {requests:.2} requests on four servers");
    }
}

#[test]
fn rounds_that_tell_nothing_are_not_repeated_at_once() {
    let goal = Goal { throughput: 0.9, least_part: 0.1, first_part: 0.1, is_largest: false };
    let mut trim = Trim::new();
    until_due_ns(&mut trim);
    settle(&mut trim, goal, |part| if part < 0.25 { 0.3 } else { 0.02 });
    assert!(trim.part() < 1.0);
    until_due_ns(&mut trim);
    for wait_ms in [100, 200, 400, 800, 1600, 1600] {
        trim.begin_round(Some(0.0));
        for _ in 0..10 {
            trim.note_guests(MS, 1);
        }
        trim.give_up_round();
        assert_eq!((trim.stage(), until_due_ns(&mut trim)), (Stage::Hold, wait_ms * MS));
    }
}

#[test]
fn a_raised_reference_is_given_up_when_guests_stay_away() {
    let mut trim = Trim::new();
    trim.raise(0.67);
    assert!(!trim.has_guests() && trim.part() == 0.67);
    trim.end(1.0);
    assert_eq!((trim.part(), trim.part_now()), (1.0, None));
}

/// Lets time under load pass until a round is due. Returns that time.
fn until_due_ns(trim: &mut Trim) -> u64 {
    let mut waited_ns = 0;
    while !trim.is_due(1.0) {
        trim.note_guests(MS, 1);
        waited_ns += MS;
    }
    waited_ns
}

#[test]
fn a_trim_that_has_ended_begins_again_ever_later() {
    let mut trim = Trim::new();
    let waits_ms: Vec<u64> = (0..6)
        .map(|_| {
            until_due_ns(&mut trim);
            trim.begin_round(None);
            trim.end(1.0);
            until_due_ns(&mut trim) / MS
        })
        .collect();
    assert_eq!(waits_ms, [500, 2_000, 8_000, 32_000, 128_000, 160_000]);
}

/// If the latency goal keeps the disk far from the throughput goal, each further excursion costs small classes tens of
/// milliseconds.
#[test]
fn a_reference_far_from_the_goal_is_left_alone_for_long() {
    let goal = Goal { throughput: 0.9, least_part: 0.1, first_part: 0.1, is_largest: true };
    let mut trim = Trim::new();
    for wait_s in [8, 32, 128] {
        let verdict = loop {
            until_due_ns(&mut trim);
            trim.begin_round(None);
            trim.end_phase(MS, 0.0, goal);
            match trim.end_phase(MS, -0.25, goal) {
                Verdict::Nothing => {}
                verdict => break verdict,
            }
        };
        assert!(matches!(verdict, Verdict::End), "{verdict:?}");
        trim.end(1.0);
        assert_eq!(until_due_ns(&mut trim), wait_s * SECOND);
    }
}

#[test]
fn an_excursion_that_told_nothing_is_not_repeated_at_once() {
    let mut trim = Trim::new();
    for (length_ms, wait_ms) in [(60, 600), (2, 100), (60, 2_400), (60, 4_800), (60, 9_600), (60, 9_600)] {
        trim.begin_round(None);
        assert_eq!(trim.stage(), Stage::Excursion);
        for _ in 0..length_ms {
            trim.note_guests(MS, 1);
        }
        trim.give_up_round();
        assert_eq!((trim.stage(), until_due_ns(&mut trim)), (Stage::Hold, wait_ms * MS));
    }
}

/// The scale was learnt while the disk was slower; tokens at that rate, not the window, would limit the reference's
/// phase.
#[test]
fn excursions_tell_something_on_a_disk_whose_speed_varies_by_a_third() {
    let device = Device { curve: Some(SLOW_RISE), weather: 0.3, ..device(1, 1, 0, 0.3, &[(100_000, 100)]) };
    let config = ControlConfig { scale_max: 1.5, ..ControlConfig::default() };
    let has_told = |seed: &u64| {
        let events = run(&device, Policy::Control(config, limits(750_000)), WITH_GUESTS, *seed, 8 * SECOND).events();
        events.iter().any(|event| matches!(event.reason, EventReason::Loss { .. }))
    };
    let told = (0..20).filter(has_told).count();
    assert!(told >= 15, "on {told} of 20 seeds they told something");
}

#[test]
fn a_dip_does_not_end_the_trim() {
    let (_, calm) = slow_rise()[0].clone();
    let dips = with(&calm, &[(8 * SECOND, Change::Speed(0.25)), (8 * SECOND + 30 * MS, Change::Speed(1.0))]);
    let ForGuests { rate, mean, .. } =
        run_for_guests(&dips, WITH_GUESTS, 1, 8 * SECOND + 60 * MS, 8 * SECOND + 600 * MS);
    assert!(rate >= 0.9 && mean <= 3.0, "{rate:.3} of drained with {mean:.2} requests");
}

#[test]
fn a_fall_is_noticed_while_guests_come() {
    for (name, device) in slow_rise() {
        let falls = with(&device, &[(2 * SECOND, Change::Speed(0.25)), (3 * SECOND, Change::Speed(1.0))]);
        let ForGuests { rate, mean: requests, .. } = run_for_guests(&falls, WITH_GUESTS, 1, 4 * SECOND, 8 * SECOND);
        assert!(rate >= 0.85 && requests <= 8.0, "{name}: {rate:.3}, {requests:.2} requests after the return");
    }
}
