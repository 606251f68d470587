//! Compares synthetic results with known differences: counts false alarms and the real changes that are found.

use plimsoll::core::Histogram;
use plimsoll_sim::dist::{LogNormal, normal, uniform};
use plimsoll_sim::rng::Rng;
use serde_json::{Value, json};

use super::*;
use crate::report::Buckets;

/// Returns samples around 100 that resemble their neighbours: a first-order autoregressive process with deviation
/// `noise_pct` and autocorrelation `rho`.
fn series(count: usize, noise_pct: f64, rho: f64, rng: &mut Rng) -> Vec<f64> {
    let mut x = normal(rng);
    let mut next = || {
        x = rho * x + (1.0 - rho * rho).sqrt() * normal(rng);
        100.0 + noise_pct * x
    };
    (0..count).map(|_| next()).collect()
}

/// The scatter of a synthetic result.
#[derive(Clone, Copy)]
struct Noise {
    intervals: usize,
    noise_pct: f64,
    rho: f64,
    /// Part of the requests that a disk delays tenfold when it stalls; the part varies between intervals.
    stalls: f64,
}

/// Returns a job in a closed loop: while the disk is slow, there are fewer requests, and they take longer.
fn job(noise: Noise, speed: f64, rng: &mut Rng) -> Value {
    let spread = LogNormal::new(0.4);
    let mut histogram = Histogram::new();
    let speeds = series(noise.intervals, noise.noise_pct, noise.rho, rng);
    let stalls = series(noise.intervals, 60.0, noise.rho, rng);
    let mut intervals = Vec::new();
    for (percent, stall) in speeds.iter().zip(stalls) {
        let speed = speed * percent.max(1.0) / 100.0;
        let slow = noise.stalls * stall.max(0.0) / 100.0;
        let requests = 200;
        let mut sum_ns = 0.0;
        for _ in 0..requests {
            let factor = if uniform(rng) < slow { 10.0 } else { 1.0 };
            let ns = 100_000.0 * factor * spread.sample(rng) / speed;
            sum_ns += ns;
            histogram.record(ns as u64);
        }
        // Each drawn request stands for fifty.
        let shown = (50.0 * f64::from(requests) * speed) as u64;
        intervals.push(json!({"length_s": 1.0, "requests": shown, "bytes": shown << 12,
            "latency_mean_us": sum_ns / 1e3 / f64::from(requests), "latency_max_us": 0.0}));
    }
    let buckets = Buckets::of(&histogram);
    json!({"name": "reads", "intervals": intervals, "histogram": buckets})
}

fn result(job: Value) -> Source {
    Source { path: "r.json".to_owned(), text: json!({"schema": 1, "plimsoll": "0", "jobs": [job]}).to_string() }
}

fn pair(noise: Noise, change: f64, seed: u64, rng: &mut Rng) -> CompareReport {
    let (a, b) = (result(job(noise, 1.0, rng)), result(job(noise, 1.0 + change, rng)));
    compare(&[vec![a], vec![b]], &CompareOptions { seed, threshold_pct: 1.0 }).unwrap()
}

fn is_alarm(comparison: &Comparison) -> bool {
    matches!(comparison.verdict, Verdict::Better | Verdict::Worse)
}

/// A result of intervals of a second, all with as many requests.
fn even(intervals: usize, requests: u64) -> Source {
    let interval = json!({"length_s": 1.0, "requests": requests, "bytes": requests << 12, "latency_mean_us": 100.0});
    result(json!({"name": "reads", "intervals": vec![interval; intervals], "histogram": []}))
}

#[test]
fn a_rate_and_its_inverse_have_the_same_evidence() {
    let mut rng = Rng::new(3);
    for seed in 0..50 {
        // A closed loop of eight: the mean latency of an interval is that number over its rate.
        let mut side = |iops: f64| {
            let rates: Vec<f64> = (0..5).map(|_| iops * (0.4 * normal(&mut rng)).exp()).collect();
            let interval = |rate: &f64| {
                let requests = rate.round() as u64;
                json!({"length_s": 1.0, "requests": requests, "bytes": requests << 12,
                    "latency_mean_us": 8e6 / requests as f64})
            };
            let intervals: Vec<Value> = rates.iter().map(interval).collect();
            vec![result(json!({"name": "reads", "intervals": intervals, "histogram": []}))]
        };
        let groups = [side(17_000.0), side(7_500.0)];
        let report = compare(&groups, &CompareOptions { seed, threshold_pct: 1.0 }).unwrap();
        let of = |metric: &str| report.comparisons.iter().find(|it| it.metric == metric).unwrap();
        let (iops, latency) = (of("iops"), of("latency_mean_us"));
        // Means of latency count each request, those of rates each interval: they are not quite inverse.
        let (iops_p, latency_p) = (iops.p.unwrap(), latency.p.unwrap());
        assert!((iops_p / latency_p).ln().abs() < 3f64.ln(), "{seed}: {iops_p} {latency_p}");
        for it in &report.comparisons {
            let holds_zero = it.change_low_pct.unwrap() < 0.0 && it.change_high_pct.unwrap() > 0.0;
            assert_eq!(it.p.unwrap() > 0.05, holds_zero, "{seed}: {it:?}");
        }
    }
}

#[test]
fn whole_requests_that_do_not_scatter_are_not_known_exactly() {
    for (intervals, is_known) in [(2, false), (3, false), (60, true)] {
        let groups = [vec![even(intervals, 60)], vec![even(intervals, 61)]];
        let report = compare(&groups, &CompareOptions { seed: 1, threshold_pct: 1.0 }).unwrap();
        for metric in ["iops", "throughput_bytes_per_s"] {
            let found = report.comparisons.iter().find(|it| it.metric == metric).unwrap();
            assert_eq!(is_alarm(found), is_known, "{intervals}: {found:?}");
            assert!(found.change_low_pct < found.change_pct && found.change_pct < found.change_high_pct, "{found:?}");
        }
    }
}

#[test]
fn pairs_of_the_same_rarely_raise_an_alarm() {
    let mut rng = Rng::new(20_261);
    let (mut alarms, mut percentile_alarms) = (0, 0);
    for seed in 0..1000 {
        let noise = Noise {
            intervals: 20 + rng.below(281) as usize,
            noise_pct: 1.0 + 9.0 * uniform(&mut rng),
            rho: 0.8 * uniform(&mut rng),
            stalls: [0.0, 0.005, 0.02][rng.below(3) as usize],
        };
        let report = pair(noise, 0.0, seed, &mut rng);
        let is_percentile = |comparison: &&Comparison| comparison.metric.starts_with("latency_p");
        alarms += u32::from(report.comparisons.iter().any(is_alarm));
        percentile_alarms += u32::from(report.comparisons.iter().filter(is_percentile).any(is_alarm));
    }
    println!("{alarms} false alarms in 1000 pairs, {percentile_alarms} of them in percentiles");
    assert!(alarms <= 50 && percentile_alarms <= 50, "{alarms} {percentile_alarms}");
}

#[test]
fn a_change_of_three_per_cent_is_found() {
    let mut rng = Rng::new(7);
    let noise = Noise { intervals: 100, noise_pct: 3.0, rho: 0.2, stalls: 0.0 };
    for (change, winner) in [(0.03, 'B'), (-0.03, 'A')] {
        let reports: Vec<CompareReport> = (0..200).map(|seed| pair(noise, change, seed, &mut rng)).collect();
        let found = reports.iter().filter(|report| report.jobs[0].winner == Some(winner)).count();
        println!("a change of {change} was found in {found} of 200 pairs");
        assert!(found >= 190, "{change}: {found}");
        let wrong = reports.iter().filter(|report| report.jobs[0].winner.is_some_and(|found| found != winner)).count();
        assert_eq!(wrong, 0);
        assert_eq!(reports.iter().filter(|report| report.regression).count() >= 190, winner == 'A');
    }
}

/// Returns a steady job: `iops` with a little noise, 99 % of the requests with `latency_us`, 1 % with three times that.
fn steady(name: &str, iops: u64, latency_us: u64) -> Value {
    let mut rng = Rng::new(iops);
    let interval = |_: usize| {
        let requests = iops + rng.below(1 + iops / 100);
        json!({"length_s": 1, "requests": requests, "bytes": requests * 4096,
            "latency_mean_us": latency_us as f64 * (1.02 + uniform(&mut rng) / 100.0),
            "latency_max_us": latency_us * 3})
    };
    let intervals: Vec<Value> = (0..60).map(interval).collect();
    let histogram = [(latency_us * 1000, iops * 594 / 10), (latency_us * 3000, iops * 6 / 10)];
    json!({"name": name, "errors": 0, "job": {"parallelism": 4}, "intervals": intervals, "histogram": histogram})
}

fn source(path: &str, test: &Value) -> Source {
    Source { path: path.to_owned(), text: test.to_string() }
}

fn test(jobs: &[Value]) -> Value {
    json!({"schema": 1, "plimsoll": "0.1.0", "backend": "uring", "shards": 1, "seed": 1, "jobs": jobs})
}

#[test]
fn no_interval_of_a_change_reaches_below_minus_100_per_cent() {
    let mut rng = Rng::new(11);
    for (intervals, noise_pct, change) in [(5, 60.0, -0.95), (3, 40.0, -0.8), (20, 90.0, -0.99), (4, 30.0, 40.0)] {
        for seed in 0..20 {
            let report = pair(Noise { intervals, noise_pct, rho: 0.5, stalls: 0.02 }, change, seed, &mut rng);
            for it in &report.comparisons {
                let ends = [it.change_low_pct, it.change_pct, it.change_high_pct].map(|pct| pct.unwrap_or(0.0));
                let is_around = ends.is_sorted() || it.metric.starts_with("latency_p");
                assert!(it.change_low_pct.is_none() || (ends[0] >= -100.0 && is_around), "{it:?}");
            }
        }
    }
}

#[test]
fn results_of_two_disks_are_told() {
    let on = |disk: &str, storage: &str| {
        let mut test = test(&[steady("reads", 1000, 100)]);
        test["place"] = json!({"host": "db-1", "date": storage, "storage": storage, "disk": disk});
        test
    };
    let warnings = |other: Value| {
        let base = on("nvme0n1, Model A, 1.9 TB", "/a");
        let sides = [vec![source("a.json", &base)], vec![source("b.json", &other)]];
        compare(&sides, &CompareOptions::default()).unwrap().warnings
    };
    let found = warnings(on("nvme1n1, Model B, 1.9 TB", "/a"));
    let expected = "disk differs: nvme0n1, Model A, 1.9 TB (a.json), nvme1n1, Model B, 1.9 TB (b.json)";
    assert_eq!(found, [expected]);
    assert!(warnings(on("nvme0n1, Model A, 1.9 TB", "/b")).is_empty());
    // Older results have no place.
    assert!(warnings(test(&[steady("reads", 1000, 100)])).is_empty());
}

#[test]
fn several_results_against_the_first() {
    let slow_tail = {
        let mut job = steady("reads", 100_001, 100);
        job["histogram"] = json!([[100_000, 5_900_000], [300_000, 50_000], [600_000, 50_000]]);
        job
    };
    let sides = [
        vec![source("a.json", &test(&[steady("reads", 100_000, 100), steady("writes", 1000, 50)]))],
        vec![source("b.json", &test(&[steady("reads", 110_000, 90), steady("writes", 1001, 50)]))],
        vec![source("c.json", &test(&[slow_tail]))],
    ];
    let report = compare(&sides, &CompareOptions::default()).unwrap();
    let verdict = |job: &str, side: char, metric: &str| {
        let is_it = |c: &&Comparison| c.job == job && c.side == side && c.metric == metric;
        report.comparisons.iter().find(is_it).unwrap().verdict
    };
    let cases = [
        ("reads", 'B', "iops", Verdict::Better),
        ("reads", 'B', "throughput_bytes_per_s", Verdict::Better),
        ("reads", 'B', "latency_mean_us", Verdict::Better),
        ("reads", 'C', "iops", Verdict::Same),
        ("reads", 'C', "latency_mean_us", Verdict::Same),
        ("reads", 'C', "latency_p99_9_us", Verdict::Worse),
        ("writes", 'B', "iops", Verdict::Same),
    ];
    for (job, side, metric, expect) in cases {
        assert_eq!(verdict(job, side, metric), expect, "{job} {side} {metric}: {:#?}", report.comparisons);
    }
    let winners: Vec<_> = report.jobs.iter().map(|job| (job.job.as_str(), job.side, job.winner)).collect();
    assert_eq!(winners, [("reads", 'B', Some('B')), ("reads", 'C', Some('A')), ("writes", 'B', None)]);
    assert!(report.regression);
    assert_eq!(report.warnings, ["`writes` is not in every file of c.json: not compared"]);
    assert_eq!(report, compare(&sides, &CompareOptions::default()).unwrap());
    assert_eq!(report.to_csv().lines().count(), report.comparisons.len() + 1);
    let json: Value = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["schema"], &json["sides"][2]["files"][0]), (&json!(1), &json!("c.json")));
    // A change below the threshold does not count, however certain.
    let lax = compare(&sides, &CompareOptions { threshold_pct: 500.0, seed: 1 }).unwrap();
    assert!(!lax.regression && lax.jobs.iter().all(|job| job.winner.is_none()));
}

#[test]
fn runs_that_differ_among_themselves_name_no_winner() {
    let side = |iops: [u64; 3]| -> Vec<Source> {
        iops.iter().map(|iops| source(&format!("{iops}.json"), &test(&[steady("reads", *iops, 100)]))).collect()
    };
    let far =
        compare(&[side([90_000, 100_000, 110_000]), side([95_000, 105_000, 115_000])], &CompareOptions::default());
    assert!(far.unwrap().jobs.iter().all(|job| job.winner.is_none()));
    let near =
        compare(&[side([99_900, 100_000, 100_100]), side([104_900, 105_000, 105_100])], &CompareOptions::default());
    assert_eq!(near.unwrap().jobs[0].winner, Some('B'));
}

#[test]
fn what_makes_results_unlike_is_named() {
    let mut other = test(&[steady("reads", 1000, 100)]);
    other["backend"] = json!("aio");
    other["seed"] = json!(2);
    other["interrupted"] = json!(true);
    other["max_write_reached"] = json!(true);
    other["jobs"][0]["job"]["parallelism"] = json!(8);
    other["jobs"][0]["errors"] = json!(3);
    let base = source("a.json", &test(&[steady("reads", 1000, 100)]));
    let report = compare(&[vec![base], vec![source("b.json", &other)]], &CompareOptions::default()).unwrap();
    let expect = [
        "backend differs: uring (a.json), aio (b.json)",
        "seed differs: 1 (a.json), 2 (b.json)",
        "job `reads`: parallelism differs: 4 (a.json), 8 (b.json)",
        "job `reads`: 3 request(s) failed in b.json",
        "b.json was interrupted: it is shorter than it should be",
        "--max-write ended writers of b.json early: what ran on beside them had the disk for itself",
    ];
    assert_eq!(report.warnings, expect);
}

#[test]
fn what_cannot_be_compared_says_why() {
    let good = || vec![source("a.json", &test(&[steady("reads", 1000, 100)]))];
    let text = |text: &str| vec![Source { path: "b.json".to_owned(), text: text.to_owned() }];
    let sim = r#"{"schema": 1, "runs": [{"name": "x", "seed": 1, "figures": []}]}"#;
    let no_mean = r#"{"schema": 1, "jobs": [{"name": "reads", "intervals": [{"length_s": 1, "requests": -5}]}]}"#;
    let cases: [(Vec<Source>, &[&str]); 10] = [
        (text(""), &["b.json:1:", "EOF", "plimsoll test --format json"]),
        (text("[1,\n oops]"), &["b.json:", "expected"]),
        (text("{}"), &["none of the lists `jobs`, `points`, `rows`, `trials` and `runs`"]),
        (
            text(
                r#"{"axes": [], "points": [{"parallelism": 1}], "verdicts": [], "interrupted": false, "written_bytes": 0}"#,
            ),
            &["at least one interval"],
        ),
        (text(r#"{"jobs": []}"#), &["key `schema`: is missing", "run it again with `--format json`"]),
        (
            text(r#"{"schema": 9, "jobs": []}"#),
            &["key `schema`: 9; expected 1;", "use the version of plimsoll that made it"],
        ),
        (text(r#"{"schema": 1, "jobs": [{"name": "reads"}]}"#), &["b.json:1:", "missing field `intervals`"]),
        (
            text(r#"{"schema": 1, "jobs": [{"name": "reads", "intervals": []}]}"#),
            &["job `reads`", "at least one interval"],
        ),
        (text(no_mean), &["b.json:1:", "invalid value"]),
        (text(sim), &["a.json is the result of a test, b.json of a simulation"]),
    ];
    for (other, fragments) in cases {
        let error = compare(&[good(), other.clone()], &CompareOptions::default()).unwrap_err().to_string();
        for fragment in fragments {
            assert!(error.contains(fragment), "no `{fragment}` in {error}");
        }
    }
    let other = vec![source("b.json", &test(&[steady("scans", 1000, 100)]))];
    let error = compare(&[good(), other], &CompareOptions::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("b.json has no job or point in common with a.json") && error.contains("scans"),
        "{error}"
    );
    assert!(matches!(compare(&[good()], &CompareOptions::default()), Err(CompareError::Sides { count: 1 })));
    assert!(matches!(
        compare(&[good(), Vec::new()], &CompareOptions::default()),
        Err(CompareError::EmptySide { side: 'B' })
    ));
}

#[test]
fn results_with_little_in_them_are_open() {
    let bare = |requests: u64| {
        let interval = json!({"length_s": 1, "requests": requests, "bytes": 0, "latency_mean_us": null});
        test(&[json!({"name": "cpu", "intervals": [interval]})])
    };
    for (a, b) in [(100, 200), (0, 0), (0, 5), (u64::MAX, 1)] {
        let sides = [vec![source("a.json", &bare(a))], vec![source("b.json", &bare(b))]];
        let report = compare(&sides, &CompareOptions::default()).unwrap();
        assert!(report.comparisons.iter().all(|c| c.verdict == Verdict::Open && c.p.is_none()), "{report:#?}");
    }
}

#[test]
fn figures_of_simulations_are_exact() {
    let run = |p99: f64, rate: f64, free: f64, passed: bool| {
        json!({"schema": 1, "runs": [{"name": "storm", "seed": 3, "sweep": {"shards": "4"}, "figures": [
            {"name": "p99_ms", "value": p99, "target": {"at_least": null, "at_most": 2.0}, "passed": passed},
            {"name": "rate", "value": rate, "target": {"at_least": 50.0, "at_most": null}, "passed": true},
            {"name": "free", "value": free, "target": null, "passed": null}]}]})
    };
    let cases = [
        (run(1.0, 100.0, 5.0, true), [Verdict::Same; 3]),
        (run(1.05, 105.0, 6.0, true), [Verdict::Worse, Verdict::Better, Verdict::Changed]),
        (run(1.001, 99.5, 5.0, true), [Verdict::Changed, Verdict::Changed, Verdict::Same]),
        (run(1.001, 90.0, 5.0, false), [Verdict::Worse, Verdict::Worse, Verdict::Same]),
    ];
    for (other, expect) in cases {
        let sides = [vec![source("a.json", &run(1.0, 100.0, 5.0, true))], vec![source("b.json", &other)]];
        let report = compare(&sides, &CompareOptions::default()).unwrap();
        let verdicts: Vec<Verdict> = report.comparisons.iter().map(|comparison| comparison.verdict).collect();
        assert_eq!(verdicts, expect);
        assert_eq!(report.regression, expect.contains(&Verdict::Worse));
        assert_eq!(report.comparisons[0].job, "storm seed=3 shards=4");
    }
}

/// Returns a point of a sweep at `parallelism` with about `iops` requests of 1 MiB in each of three rounds.
fn point(parallelism: u64, iops: u64) -> Value {
    let round = |seed: u64| {
        let mut rng = Rng::new(seed * 1000 + parallelism);
        let interval = |_: usize| {
            let requests = iops + rng.below(1 + iops / 100);
            json!({"length_s": 1, "requests": requests, "bytes": requests << 20,
                "latency_mean_us": parallelism as f64 * 1e6 / requests as f64, "latency_max_us": 0})
        };
        let intervals: Vec<Value> = (0..20).map(interval).collect();
        json!({"iops": iops, "throughput_bytes_per_s": iops << 20, "in_device": parallelism,
            "device_latency_mean_us": 490.0, "intervals": intervals, "histogram": [[490_000, 20 * iops]]})
    };
    json!({"settings": [["parallelism", parallelism.to_string()]], "parallelism": parallelism,
        "rounds": [round(1), round(2), round(3)]})
}

fn sweep(backend: &str, points: &[Value], sentence: &str) -> Value {
    let verdict = json!({"settings": [["reqsize", "1M"]], "kind": "unclear", "sentence": sentence, "knee": null,
        "evidence": []});
    json!({"plimsoll": "0.1.0", "backend": backend, "shards": 1, "axes": ["parallelism"], "points": points,
        "verdicts": [verdict], "interrupted": false, "written_bytes": 0})
}

#[test]
fn curves_are_compared_point_by_point() {
    // The published curves of two builds: the old one keeps at most four requests in the disk, whatever the load.
    let curve = |rates: [u64; 5]| [1, 2, 4, 8, 16].into_iter().zip(rates).map(|(n, iops)| point(n, iops)).collect();
    let (old, new): (Vec<Value>, Vec<Value>) =
        (curve([2040, 4080, 8188, 8188, 8188]), curve([2040, 4080, 8188, 11_900, 13_617]));
    let old = sweep("uring", &old, "the limiter sits above the disk");
    let new = sweep("aio", &new, "saturated");
    let report =
        compare(&[vec![source("old.json", &old)], vec![source("new.json", &new)]], &CompareOptions::default()).unwrap();
    let winners: Vec<_> = report.jobs.iter().map(|job| (job.job.as_str(), job.winner)).collect();
    let at = |n| format!("parallelism={n}");
    let expect = [(at(1), None), (at(2), None), (at(4), None), (at(8), Some('B')), (at(16), Some('B'))];
    assert_eq!(winners, expect.each_ref().map(|(name, winner)| (name.as_str(), *winner)), "{report:#?}");
    assert_eq!(report.overall, [Overall { side: 'B', winner: Some('B'), better: 2, worse: 0, open: 3 }]);
    assert_eq!(
        report.overall_words(),
        ["Overall, A and B: B is better (of 5, B is better in 2, A in 0, no evidence in 3)"]
    );
    assert!(!report.regression && report.warnings == ["backend differs: uring (old.json), aio (new.json)"]);
    assert!(report.sides[0].line().ends_with("; reqsize=1M: the limiter sits above the disk"));
    let at_16 = report.comparisons.iter().find(|it| it.job == at(16) && it.metric == "iops").unwrap();
    let ends = [at_16.change_low_pct, Some(66.3), at_16.change_high_pct].map(Option::unwrap);
    assert!(ends.is_sorted() && ends[2] - ends[0] < 3.0, "{ends:?}");
}

#[test]
fn rows_of_matrices_are_compared() {
    let matrix = |iops| {
        let mut row = point(256, iops);
        row["name"] = json!("1 MiB seq read");
        (row["kind"], row["request_bytes"]) = (json!("seqread"), json!(1 << 20));
        json!({"plimsoll": "0.1.0", "rows": [row], "interrupted": false, "written_bytes": 0})
    };
    let sides = [vec![source("a.json", &matrix(8000))], vec![source("b.json", &matrix(7000))]];
    let report = compare(&sides, &CompareOptions::default()).unwrap();
    assert_eq!(
        (report.jobs[0].job.as_str(), report.jobs[0].winner, report.regression),
        ("1 MiB seq read", Some('A'), true)
    );
}

#[test]
fn the_ends_of_searches_are_intervals() {
    let search = |rate: Option<f64>, failed_rate: Option<f64>, confirmed: bool| {
        json!({"plimsoll": "0.1.0", "machine": {"cpus": 2, "kernel": null}, "seed": 1, "duration_s": 1.0, "warmup_s": 0.0,
            "backend": "uring", "backend_reason": "", "shards": 1, "job": "reads", "goal": "p99=2ms",
            "bound_ns": 2_000_000, "closed_loop_iops": 5000.0, "rate_min": 1.0, "rate": rate,
            "failed_rate": failed_rate, "confirmed": confirmed, "trials": [], "interrupted": false,
            "written_bytes": 0})
    };
    let base = search(Some(1000.0), Some(1015.0), true);
    let cases = [
        (search(Some(1100.0), Some(1120.0), true), Verdict::Better),
        (search(Some(900.0), Some(918.0), true), Verdict::Worse),
        (search(Some(1010.0), Some(1030.0), true), Verdict::Open),
        (search(Some(1100.0), Some(1120.0), false), Verdict::Open),
        (search(Some(1100.0), None, true), Verdict::Open),
    ];
    for (other, expect) in cases {
        let sides = [vec![source("a.json", &base)], vec![source("b.json", &other)]];
        let report = compare(&sides, &CompareOptions::default()).unwrap();
        let [rate] = &report.comparisons[..] else { panic!("{report:#?}") };
        assert_eq!((rate.job.as_str(), rate.verdict), ("reads with p99=2ms", expect), "{other}");
    }
    // Several searches of a side: the lowest that passed, and the highest that failed.
    let sides = [
        vec![source("a.json", &base), source("a2.json", &search(Some(1050.0), Some(1060.0), true))],
        vec![source("b.json", &search(Some(1065.0), Some(1080.0), true))],
    ];
    let report = compare(&sides, &CompareOptions { threshold_pct: 0.1, seed: 1 }).unwrap();
    let rate = &report.comparisons[0];
    assert_eq!((rate.base, rate.verdict), (1000.0, Verdict::Better));
    assert!((rate.change_low_pct.unwrap() - 100.0 * (1065.0 / 1060.0 - 1.0)).abs() < 1e-9, "{rate:?}");
    // A search in which no rate passed: three runs that failed decide, fewer do not.
    let none_of = |rates: &[f64]| {
        let trial = |rate: &f64| json!({"rate": rate, "achieved": rate, "latency_ns": 9e6, "passed": false});
        let mut found = search(None, rates.last().copied(), false);
        found["trials"] = rates.iter().map(trial).collect();
        found
    };
    let base = |rate: f64| search(Some(rate), Some(1.015 * rate), true);
    for (a, b, expect, regression) in [
        (base(1000.0), none_of(&[80.0, 40.0, 20.0, 10.0]), Verdict::Worse, true),
        (base(30.0), none_of(&[80.0, 40.0, 20.0, 10.0]), Verdict::Open, false),
        (base(1000.0), none_of(&[80.0, 40.0]), Verdict::Open, false),
        (none_of(&[80.0, 40.0, 20.0, 10.0]), base(1000.0), Verdict::Better, false),
        (none_of(&[80.0, 40.0, 20.0]), none_of(&[80.0, 40.0, 20.0]), Verdict::Open, false),
    ] {
        let report = compare(&[vec![source("a.json", &a)], vec![source("b.json", &b)]], &CompareOptions::default());
        let report = report.unwrap();
        let [rate] = &report.comparisons[..] else { panic!("{report:#?}") };
        assert_eq!((rate.verdict, report.regression), (expect, regression), "{a} {b}");
        assert!([rate.change_low_pct, rate.change_high_pct].into_iter().flatten().all(f64::is_finite), "{rate:?}");
    }
    let base = base(1000.0);
    let reads = test(&[steady("reads", 1000, 100)]);
    let error = compare(&[vec![source("a.json", &base)], vec![source("b.json", &reads)]], &CompareOptions::default());
    assert!(error.unwrap_err().to_string().contains("a.json is the result of a search for a rate, b.json of a test"));
}
