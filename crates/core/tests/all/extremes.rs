//! Figures at the ends of what is promised: 1 IOPS and 1 MB/s to 10^9 IOPS and 10^13 B/s, requests of up to 4 GiB, clocks of
//! fifty years and leaps between any two calls. Nothing overflows (tests run with overflow checks), each request ends, and the
//! accounts are empty afterwards.

use crate::common::{FIFTY_YEARS_NS, MS, S, model, queue_of, usual};
use plimsoll_core::{
    ControlConfig, CostForm, CostModel, DiskConfig, Failure, FourFigures, GroupId, LatencyGoal, LatencyTarget, Limits,
    Mode, Op, Outcome, Progress, Qos, QueueConfig, QueueError, Rate, Reservation,
};
use proptest::prelude::*;

#[test]
fn two_gib_on_a_disk_of_one_request_and_one_megabyte_a_second() {
    for form in [CostForm::Knee, CostForm::Additive, CostForm::Max] {
        let (iops, bandwidth) = (Rate::per_second(1), Rate::per_second(1_000_000));
        let figures =
            FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: bandwidth, write_bandwidth: bandwidth };
        let model = CostModel::from_figures(&figures, form, 4096, 4096);
        let mut queue = queue_of(DiskConfig { model, ..usual() }, QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
        queue.enqueue(S, class, Op::Read, 2 << 30, 0).unwrap();
        queue.enqueue(S, class, Op::Read, u32::MAX, 1).unwrap();
        // The second waits for the first: half an hour at least.
        let snapshot = queue.snapshot(S);
        assert!(
            snapshot.classes[0].expected_delay_ns >= 2_147 * S,
            "{form:?}: {}",
            snapshot.classes[0].expected_delay_ns
        );
        let piece = queue.poll_dispatch(S).unwrap();
        let len_bytes = piece.len_bytes();
        let _ = queue.complete(2 * S, piece, Outcome::Moved(len_bytes));
    }
}

#[test]
fn a_group_and_its_class_go_at_once() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let group = queue.disk().add_group(GroupId::ROOT, 1).unwrap();
    let class = queue.disk().add_class(group, 1).unwrap();
    queue.follow_classes(|_| ());
    queue.disk().remove(class).unwrap();
    queue.disk().remove(group).unwrap();
    assert!(queue.follow_classes(|_| ()));
}

#[test]
fn a_failure_without_an_error_number_is_a_failure() {
    let mut queue = queue_of(usual(), QueueConfig::default());
    let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
    for (errno, expected) in [(0, 5), (5, 5), (28, 28), (-1, -1), (i32::MIN, i32::MIN)] {
        queue.enqueue(S, class, Op::Write, 4096, 0).unwrap();
        let piece = queue.poll_dispatch(S).unwrap();
        let progress = queue.complete(S, piece, Outcome::Failed(errno));
        let failure = Failure { errno: expected, moved_bytes: 0 };
        assert!(matches!(progress, Progress::Finished(f) if f.result == Err(failure)), "{progress:?}");
    }
}

/// The first completions after a leap took fifty years each, as far as the controller can see.
#[test]
fn the_first_completions_come_after_fifty_years() {
    for control in [ControlConfig::OFF, ControlConfig::default()] {
        let disk = DiskConfig { model: model(1_000_000, 10_000_000_000), control, ..usual() };
        let mut queue = queue_of(disk, QueueConfig::default());
        let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
        for n in 0..64 {
            queue.enqueue(S, class, Op::Read, 4096, n).unwrap();
        }
        let mut pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(S)).collect();
        assert!(pieces.len() >= 13, "{}", pieces.len());
        for (turn, piece) in pieces.drain(..).enumerate() {
            let now_ns = FIFTY_YEARS_NS * (1 + turn as u64 / 20);
            assert!(matches!(queue.complete(now_ns, piece, Outcome::Moved(4096)), Progress::Finished(_)));
        }
        assert!(queue.disk().capacity_scale() > 0.0 && queue.disk().in_flight_ns() == 0);
    }
}

fn power_of_ten(exponents: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = u64> {
    (exponents, 1..10_u64).prop_map(|(exponent, digit)| digit * 10_u64.pow(exponent))
}

fn any_rate() -> impl Strategy<Value = Rate> {
    prop_oneof![Just(Rate::Unlimited), power_of_ten(0..=13).prop_map(Rate::per_second)]
}

fn any_length() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(512), Just(4096), Just(1 << 20), Just(2 << 30), Just(u32::MAX), any::<u32>()]
}

fn any_wait_ns() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..2 * MS, 1 => 0..100 * S, 1 => Just(FIFTY_YEARS_NS), 1 => 0..=FIFTY_YEARS_NS]
}

fn any_qos() -> impl Strategy<Value = Qos> {
    let limits = (any_rate(), any_rate(), any_rate(), prop_oneof![Just(0), 0..10 * S, Just(u64::MAX)]).prop_map(
        |(iops, bandwidth, write_iops, burst_ns)| Limits { iops, bandwidth, write_iops, burst_ns, ..Limits::default() },
    );
    let reservation = prop_oneof![Just(0), power_of_ten(0..=13)].prop_map(|iops| Reservation { iops, bandwidth: iops });
    let target = prop_oneof![
        2 => Just(None),
        1 => any_wait_ns().prop_map(|latency_ns| Some(LatencyTarget { latency_ns, quantile: 0.9 }))
    ];
    let bound = || prop_oneof![3 => Just(None), 1 => any_wait_ns().prop_map(Some)];
    (limits, reservation, target, bound(), bound()).prop_map(
        |(limits, reservation, latency_target, max_wait_ns, max_delay_ns)| Qos {
            limits,
            reservation,
            latency_target,
            max_wait_ns,
            max_delay_ns,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_overflows_and_everything_ends(
        (iops, bandwidth, write_factor) in (power_of_ten(0..=9), power_of_ten(6..=13), 1..10_u64),
        (duplex, seastar, no_split) in (any::<bool>(), any::<bool>(), any::<bool>()),
        (closed_loop, scale_max) in (any::<bool>(), prop_oneof![Just(1.0), Just(0.01), Just(100.0)]),
        unloaded_latency_ns in prop_oneof![Just(0), 0..S, Just(u64::MAX)],
        qos in prop::collection::vec(any_qos(), 3),
        steps in prop::collection::vec((0..3_usize, any_length(), any_wait_ns(), any::<bool>()), 1..60),
        begin_ns in any_wait_ns(),
    ) {
        let figures = FourFigures {
            read_iops: Rate::per_second(iops),
            write_iops: Rate::per_second((iops / write_factor).max(1)),
            read_bandwidth: Rate::per_second(bandwidth),
            write_bandwidth: Rate::per_second(bandwidth / write_factor),
        };
        let form = if seastar { CostForm::Seastar } else { CostForm::Knee };
        let config = DiskConfig {
            model: CostModel::from_figures(&figures, form, 4096, 4096),
            duplex,
            latency_goal: if no_split { LatencyGoal::NoSplit } else { LatencyGoal::Ns(MS) },
            control: ControlConfig { enabled: closed_loop, scale_min: f64::min(scale_max, 0.05), scale_max, ..ControlConfig::default() },
            unloaded_latency_ns,
            ..DiskConfig::default()
        };
        let mut queue = queue_of(config, QueueConfig::default());
        let disk = std::sync::Arc::clone(queue.disk());
        let classes: Vec<_> = qos.iter().map(|qos| {
            let class = disk.add_class(GroupId::ROOT, 100).unwrap();
            disk.set_qos(class, *qos).unwrap();
            class
        }).collect();
        let (mut now_ns, mut accepted, mut ended) = (begin_ns, 0, 0);
        let mut in_device = Vec::new();
        for (number, (class, len_bytes, wait_ns, is_write)) in steps.into_iter().enumerate() {
            let op = if is_write { Op::Write } else { Op::Read };
            match queue.enqueue(now_ns, classes[class], op, len_bytes, 0) {
                Ok(_) => accepted += 1,
                Err(error) => {
                    let is_overload = matches!(error, QueueError::Overloaded { .. });
                    prop_assert!(is_overload, "{}", error);
                }
            }
            for _ in 0..100 {
                in_device.extend(queue.poll_dispatch(now_ns));
            }
            now_ns = now_ns.saturating_add(wait_ns);
            if number % 3 == 2 {
                disk.set_qos(classes[class], qos[number % 3]).unwrap();
                for piece in in_device.drain(..) {
                    let moved = Outcome::Moved(piece.len_bytes());
                    ended += u64::from(matches!(queue.complete(now_ns, piece, moved), Progress::Finished(_)));
                }
            }
        }
        for piece in in_device.drain(..) {
            let moved = Outcome::Moved(piece.len_bytes());
            ended += u64::from(matches!(queue.complete(now_ns, piece, moved), Progress::Finished(_)));
        }
        // The rest without limits: pieces may be many, but each goes.
        queue.set_mode(now_ns, Mode::Drain);
        while let Some(piece) = queue.poll_dispatch(now_ns) {
            let moved = Outcome::Moved(piece.len_bytes());
            ended += u64::from(matches!(queue.complete(now_ns, piece, moved), Progress::Finished(_)));
        }
        prop_assert_eq!((ended, queue.queued(), queue.in_flight()), (accepted, 0, 0));
        prop_assert_eq!(disk.in_flight_ns(), 0);
        prop_assert!(disk.capacity_scale() > 0.0);
    }
}
