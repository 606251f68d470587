//! Rates, schedules and intervals of runs of the load generator.

use plimsoll::backend::choose::BackendKind;
use plimsoll_measure::load::{
    Control, Interval, JobResult, Pattern, PauseDistribution, SizeShare, SteadyCriterion, SteadyStop, Watch, run,
    run_watched,
};

use crate::load::{DURATION_NS, FOR_EVER_NS, alone, job};

#[test]
fn a_paced_job_ends_with_its_last_completion() {
    // Each fiber's next due time is as good as never: only a job that does not wait for it ends.
    for (limit_requests, limit_bytes) in [(Some(1), None), (None, Some(8192))] {
        for rates in [(Some(1e-6), None), (None, Some(1e-6))] {
            for sizes in [vec![], vec![SizeShare { bytes: 4096, percent: 100.0 }]] {
                let paced = job("paced", Pattern::RandRead, 3).shaped(|it| {
                    it.requests_per_s_per_fiber = rates.0;
                    it.requests_per_s_per_shard = rates.1;
                    it.batch = 2;
                    it.limit_requests = limit_requests;
                    it.limit_bytes = limit_bytes;
                    it.sizes = sizes;
                });
                let plan = alone(BackendKind::Memory, vec![paced], FOR_EVER_NS);
                let watch = Watch { interval_ns: 1_000_000, steady: None };
                let total = run_watched(&plan, &watch, &Control::default()).unwrap().total("paced");
                assert_eq!((total.requests, total.errors), (2, 0), "{limit_requests:?} {rates:?}");
                let intervals_ns: u64 = total.intervals.iter().map(|interval| interval.length_ns).sum();
                assert_eq!(intervals_ns, total.elapsed_ns, "{total:?}");
            }
        }
    }
}

#[test]
fn what_was_due_at_the_end_is_counted() {
    // Slices of 1 ms, due every 0.1 ms: nine of ten cannot be done in time, whoever has the CPU.
    let slow = |name: &str| job(name, Pattern::Cpu { execution_ns: 1_000_000 }, 1);
    let jobs = vec![
        slow("shard").shaped(|it| it.requests_per_s_per_shard = Some(10_000.0)),
        slow("fiber").shaped(|it| it.requests_per_s_per_fiber = Some(10_000.0)),
        slow("limited").shaped(|it| {
            it.requests_per_s_per_shard = Some(10_000.0);
            it.limit_requests = Some(99);
        }),
        slow("closed"),
    ];
    let plan = alone(BackendKind::Null, jobs, 2 * DURATION_NS);
    let watched = run_watched(&plan, &Watch::default(), &Control::default()).unwrap();
    for (name, due) in [("shard", 1000), ("fiber", 1000), ("limited", 100)] {
        let total = watched.total(name);
        let seen = total.requests + total.overdue;
        // The window begins and ends a little beside the schedule.
        assert!(seen.abs_diff(due) <= due / 50 + 2, "{name}: {} done, {} not", total.requests, total.overdue);
        assert!(total.overdue_oldest_ns > 0 && total.overdue_oldest_ns <= 2 * DURATION_NS + 1_000_000, "{total:?}");
    }
    assert_eq!((watched.total("closed").overdue, watched.total("closed").overdue_oldest_ns), (0, 0));
}

#[test]
fn a_schedule_of_the_shard_makes_as_many_requests_as_are_due() {
    // Rates that any machine keeps up with; the count does not depend on when it gets its turns.
    for (rate, distribution, allowed) in
        [(10_000.0, PauseDistribution::Uniform, 0.005), (100.0, PauseDistribution::Uniform, 0.05)]
    {
        let paced = job("paced", Pattern::RandRead, 4).shaped(|it| {
            it.requests_per_s_per_shard = Some(rate);
            it.pause_distribution = distribution;
        });
        let result = run(&alone(BackendKind::Null, vec![paced], 20 * DURATION_NS), &Control::default()).unwrap();
        let total = result.total("paced");
        // What was due while the thread did not run at the very end is still to be sent.
        let lost = rate * (total.latency.max() as f64 / 1e9);
        let due = rate * total.elapsed_ns as f64 / 1e9;
        assert!((total.requests as f64 - due).abs() <= due * allowed + lost + 1.0, "{due} {total:?}");
    }
}

#[test]
fn a_schedule_goes_on_while_all_fibers_are_busy() {
    // Slices of 1 ms that are due every 0.1 ms: the backlog grows, and each waits for all before it.
    let late = job("late", Pattern::Cpu { execution_ns: 1_000_000 }, 1).shaped(|it| {
        it.requests_per_s_per_shard = Some(10_000.0);
        it.limit_requests = Some(19);
    });
    let total = run(&alone(BackendKind::Null, vec![late], FOR_EVER_NS), &Control::default()).unwrap().total("late");
    assert_eq!(total.requests, 20);
    // The last was due after 1.9 ms and is done after 20 slices.
    assert!(total.latency.max() >= 18_000_000, "{total:?}");
}

#[test]
fn jobs_begin_when_they_should() {
    let delayed = job("never", Pattern::RandRead, 2).shaped(|it| it.start_delay_ns = FOR_EVER_NS / 2);
    let ramped = job("ramped", Pattern::RandRead, 2).shaped(|it| it.ramp_up_ns = FOR_EVER_NS / 2);
    let plain = job("plain", Pattern::RandRead, 1);
    let watch = Watch { interval_ns: DURATION_NS / 5, steady: None };
    let plan = alone(BackendKind::Memory, vec![delayed, ramped, plain], DURATION_NS);
    let result = run_watched(&plan, &watch, &Control::default()).unwrap();
    let [never, ramped, plain] = ["never", "ramped", "plain"].map(|name| result.total(name));
    assert_eq!((never.requests, never.elapsed_ns), (0, 0));
    assert!(ramped.requests > 0 && plain.requests > 0);
}

#[test]
fn intervals_make_up_the_window() {
    for interval_ns in [DURATION_NS / 7, DURATION_NS, 10 * DURATION_NS] {
        let limited = job("short", Pattern::RandRead, 1).shaped(|it| it.limit_requests = Some(9));
        let plan = alone(BackendKind::Memory, vec![job("long", Pattern::RandRead, 2), limited], DURATION_NS);
        let watch = Watch { interval_ns, steady: None };
        let result = run_watched(&plan, &watch, &Control::default()).unwrap();
        for (name, is_whole) in [("long", true), ("short", false)] {
            let total = result.total(name);
            let sum = |of: fn(&Interval) -> u64| total.intervals.iter().map(of).sum::<u64>();
            assert_eq!((sum(|i| i.requests), sum(|i| i.bytes)), (total.requests, total.bytes));
            assert_eq!(total.intervals.iter().map(|i| i.latency_max_ns).max(), Some(total.latency.max()));
            let mean = sum(|i| i.latency_sum_ns) as f64 / total.requests as f64;
            assert!((mean / total.latency.mean() - 1.0).abs() < 1e-6, "{mean}");
            let (_, whole) = total.intervals.split_last().unwrap();
            assert!(whole.iter().all(|i| i.length_ns == interval_ns));
            assert!(!is_whole || sum(|i| i.length_ns) == total.elapsed_ns, "{:?}", total.intervals);
        }
    }
}

#[test]
fn the_time_before_a_job_begins_is_in_no_interval() {
    let delayed = job("late", Pattern::RandRead, 2).shaped(|it| it.start_delay_ns = DURATION_NS / 2);
    let never = job("never", Pattern::RandRead, 2).shaped(|it| it.start_delay_ns = FOR_EVER_NS / 2);
    let plan = alone(BackendKind::Memory, vec![job("plain", Pattern::RandRead, 1), delayed, never], DURATION_NS);
    let watch = Watch { interval_ns: DURATION_NS / 5, steady: None };
    let result = run_watched(&plan, &watch, &Control::default()).unwrap();
    let [plain, late, never] = ["plain", "late", "never"].map(|name| result.total(name));
    let lengths_ns = |total: &JobResult| total.intervals.iter().map(|i| i.length_ns).collect::<Vec<_>>();
    // The second half of the third interval is its first.
    assert_eq!(lengths_ns(&late)[..3], [0, 0, DURATION_NS / 10], "{late:?}");
    assert_eq!(lengths_ns(&late)[3..], lengths_ns(&plain)[3..]);
    assert_eq!(lengths_ns(&late).iter().sum::<u64>(), late.elapsed_ns);
    assert!(lengths_ns(&never).iter().all(|length_ns| *length_ns == 0));
}

#[test]
fn a_display_sees_the_jobs_of_a_run() {
    let control = Control::default();
    assert!(control.instruments.live().is_empty());
    let shown = control.clone();
    let plan =
        alone(BackendKind::Memory, vec![job("a", Pattern::RandRead, 2), job("b", Pattern::SeqRead, 1)], FOR_EVER_NS);
    let display = std::thread::spawn(move || {
        // However long it takes: the run goes on until this has seen it.
        let mut jobs = shown.instruments.live();
        while jobs.len() < 2 || jobs.iter().any(|job| job.requests == 0) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            jobs = shown.instruments.live();
        }
        shown.stop.ask();
        jobs
    });
    run(&plan, &control).unwrap();
    let jobs = display.join().unwrap();
    assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(jobs.iter().all(|job| job.errors == 0 && job.bytes == job.requests * 4096), "{jobs:?}");
    assert!(jobs.iter().all(|job| job.latency_p50_ns <= job.latency_p99_ns), "{jobs:?}");
}

#[test]
fn a_steady_run_ends_and_is_not_interrupted() {
    let paced = job("paced", Pattern::RandRead, 2).shaped(|it| it.requests_per_s_per_shard = Some(5_000.0));
    // As much as a busy machine may disturb a rate; the slope of that is limited to nothing that could fail.
    let stop =
        SteadyStop { criterion: SteadyCriterion::Iops, is_slope: false, limit_pct: 400.0, window_ns: 80_000_000 };
    let watch = Watch { interval_ns: 0, steady: Some(stop) };
    let control = Control::default();
    let plan = alone(BackendKind::Null, vec![paced], FOR_EVER_NS);
    let watched = run_watched(&plan, &watch, &control).unwrap();
    let steady = watched.steady.unwrap();
    assert!(steady.attained && !control.stop.is_asked() && watched.total("paced").requests > 0, "{steady:?}");
    // A run that is over before its window is full is not steady.
    let short = job("short", Pattern::RandRead, 2).shaped(|it| it.limit_requests = Some(9));
    let watched = run_watched(&alone(BackendKind::Null, vec![short], FOR_EVER_NS), &watch, &control).unwrap();
    assert!(!watched.steady.unwrap().attained);
}
