//! Tables of plans and peers, and stories with scripts in the place of iperf3.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::skip::skip;

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn peers() {
    for (text, expected) in [
        ("db-2", Some(("db-2", PORT))),
        ("db-2:5202", Some(("db-2", 5202))),
        ("10.1.87.25:80", Some(("10.1.87.25", 80))),
        ("::1", Some(("::1", PORT))),
        ("[::1]", Some(("::1", PORT))),
        ("[::1]:7", Some(("::1", 7))),
        ("", None),
        (":5201", None),
        ("db-2:", None),
        ("db-2:0", None),
        ("db-2:70000", None),
        ("[::1]7", None),
        ("-c", None),
        ("a b", None),
        ("a:b:c", None),
    ] {
        let peer = text.parse::<Peer>();
        assert_eq!(peer.as_ref().ok().map(|peer| (peer.host.as_str(), peer.port)), expected, "{text}");
        match peer {
            Ok(peer) => assert_eq!(peer.to_string().parse::<Peer>(), Ok(peer)),
            Err(error) => assert!(error.to_string().contains("expected HOST, HOST:PORT"), "{error}"),
        }
    }
}

#[test]
fn plans_fit_their_time() {
    for (budget_s, is_tcp, expected) in [
        (0, true, (1, 0, 1)),
        (4, true, (1, 0, 3)),
        (6, false, (1, 0, 4)),
        (20, true, (2, 1, 6)),
        (20, false, (2, 0, 8)),
        (300, true, (10, 1, 26)),
    ] {
        let plan = Plan::new(budget_s * SECOND_NS, is_tcp);
        assert_eq!((plan.seconds, plan.omitted, plan.runs), expected, "{budget_s} s");
    }
}

#[test]
fn streams_are_raised_until_it_is_flat() {
    // Rates of 1, 2, 4, 8 and more streams; most runs; then the best number of streams, its samples, whether more
    // streams might raise the rate, and the number of all runs.
    let cases: [([f64; 5], u32, u32, usize, bool, u32); 6] = [
        ([10.0, 18.0, 20.0, 20.5, 0.0], 8, 4, 5, false, 8),
        ([10.0, 10.2, 99.0, 99.0, 99.0], 8, 1, 7, false, 8),
        ([10.0, 20.0, 40.0, 80.0, 160.0], 5, 4, 3, true, 5),
        ([10.0, 20.0, 40.0, 80.0, 160.0], 1, 1, 1, true, 1),
        ([10.0, 5.0, 5.0, 5.0, 5.0], 100, 1, SAMPLES_MAX, false, 11),
        ([10.0, 20.0, 20.0, 5.0, 5.0], 3, 1, 3, true, 3),
    ];

    for (brings, runs_max, streams, samples, is_rising, all) in cases {
        let mut runs = 0;
        let raised = raise(
            runs_max,
            |rate| *rate,
            |streams| {
                runs += 1;
                Ok(brings[streams.ilog2().min(4) as usize])
            },
        );
        let raised = raised.unwrap();
        let found = (raised.streams, raised.runs.len(), raised.is_rising, runs);
        assert_eq!(found, (streams, samples, is_rising, all), "{brings:?} in {runs_max}");
    }
}

#[test]
fn a_failure_on_the_way_keeps_what_was_measured() {
    let fails = |at: u32| {
        let mut runs = 0;
        raise(
            9,
            |rate| *rate,
            move |streams| {
                runs += 1;
                if runs == at { Err(Failure::Other("no more".to_owned())) } else { Ok(f64::from(streams)) }
            },
        )
    };
    assert_eq!(fails(1), Err(Failure::Other("no more".to_owned())));
    for (at, streams, samples) in [(2, 1, 1), (3, 2, 1), (9, 64, 2)] {
        let raised = fails(at).unwrap();
        assert_eq!((raised.streams, raised.runs.len()), (streams, samples), "at {at}");
        assert_eq!(raised.failure, Some(Failure::Other("no more".to_owned())));
    }
}

/// Measures with a script in the place of iperf3.
fn with_script(script: &str, peer: Option<&Peer>, stop: &Stop) -> Part {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("iperf3");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Measurement { program, peer, stop }.measure(0)
}

fn value(part: &Part, key: &str) -> Option<f64> {
    part.figures.iter().find(|(name, _)| name == key).map(|(_, figure)| figure.value)
}

fn text<'a>(list: &'a [(String, String)], key: &str) -> &'a str {
    list.iter().find(|(name, _)| name == key).map_or("", |(_, text)| text)
}

/// A script whose server waits and whose client answers.
const ANSWERS: &str = r#"
    case "$*" in
    -s*) exec sleep 600;;
    *" -u -b 0 -l 16"*) echo '{"start": {"version": "iperf 3.12"}, "end": {
        "sum": {"seconds": 60, "packets": 366966173, "lost_packets": 81116999}}}';;
    *) echo '{"start": {"version": "iperf 3.12"}, "end": {
        "sum_sent": {"bits_per_second": 2e10}, "sum_received": {"bits_per_second": 1e10},
        "cpu_utilization_percent": {"host_total": 99, "remote_total": 3}}}';;
    esac"#;

#[test]
fn what_is_received_counts() {
    let part = with_script(ANSWERS, None, &Stop::default());
    assert_eq!(value(&part, "network.loopback_received_bits_per_s"), Some(1e10), "{part:?}");
    for (key, expected) in [
        ("network.loopback_packets_sent_per_s", 6.116e6),
        ("network.loopback_packets_received_per_s", 4.764e6),
        ("network.loopback_packet_loss_pct", 22.10),
    ] {
        let value = value(&part, key).unwrap();
        assert!((value / expected - 1.0).abs() < 1e-3, "{key}: {value}");
    }
    assert_eq!(text(&part.facts, "iperf3.version"), "3.12");
    assert!(text(&part.facts, "network.path").starts_with("loopback"));
    assert_eq!(text(&part.facts, "network.method_tcp"), "TCP, 1 stream, 1 run of 1 s");
    assert!(text(&part.missing, "network.loopback_round_trip_ns").contains("no round trips"));
    for expected in ["22 % of the small packets were lost", "TCP: iperf3 kept a processor 99 % busy"] {
        assert!(part.warnings.iter().any(|warning| warning.contains(expected)), "{expected}: {part:?}");
    }
    assert!(part.figures.iter().all(|(key, _)| crate::instance::figures::kind(key).is_some()));
}

#[test]
fn peers_that_do_not_answer_and_what_to_do() {
    let [peer, other] = ["db-2", "db-2:5202"].map(|text| text.parse::<Peer>().unwrap());
    let refused = "unable to connect to server: Connection refused";
    for (peer, error, expected) in [
        (&peer, refused, "start `iperf3 -s` on db-2"),
        (&other, refused, "start `iperf3 -s -p 5202` on db-2"),
        (&peer, "the server is busy running a test. try again later", "start a second server"),
        (&peer, "unable to connect to server: Name or service not known", "is db-2 the right name?"),
        (&peer, "unable to create a new stream", "unable to create a new stream"),
    ] {
        for script in [
            format!("echo '{{\"start\": {{}}, \"end\": {{}}, \"error\": \"{error}\"}}'"),
            format!("echo 'iperf3: error - {error}' >&2; exit 1"),
        ] {
            let part = with_script(&script, Some(peer), &Stop::default());
            assert!(part.figures.is_empty());
            let reason = text(&part.missing, "network");
            assert!(reason.contains(error) && reason.contains(expected), "{reason}: expected {expected}");
        }
    }
}

#[test]
fn small_packets_may_be_missing_alone() {
    let script = r#"case "$*" in
        *" -u "*) echo '{"error": "unable to read from stream socket"}';;
        *) echo '{"end": {"streams": [{"sender": {"mean_rtt": 80}}], "sum_received": {"bits_per_second": 1e9}}}';;
        esac"#;
    let local: Peer = "localhost".parse().unwrap();
    let part = with_script(script, Some(&local), &Stop::default());
    assert_eq!(value(&part, "network.received_bits_per_s"), None);
    assert_eq!(value(&part, "network.loopback_received_bits_per_s"), Some(1e9));
    let peer: Peer = "db-2".parse().unwrap();
    let part = with_script(script, Some(&peer), &Stop::default());
    assert_eq!(value(&part, "network.received_bits_per_s"), Some(1e9));
    assert_eq!(value(&part, "network.round_trip_ns"), Some(80_000.0));
    assert_eq!(text(&part.missing, "network.packets_received_per_s"), "unable to read from stream socket");
    assert_eq!(text(&part.facts, "network.path"), "to db-2:5201");
}

#[test]
fn stopped_and_not_installed() {
    let stop = Stop::default();
    stop.ask();
    assert_eq!(text(&with_script(ANSWERS, None, &stop).missing, "network"), INTERRUPTED);
    let stop = Stop::default();
    let absent = Measurement { program: "plimsoll-no-such-program".into(), peer: None, stop: &stop };
    assert!(text(&absent.measure(0).missing, "network").contains("apt install iperf3"));
}

/// Takes four seconds.
#[test]
fn the_real_one() {
    let part = measure(None, 0, &Stop::default());
    println!("{part:#?}");
    let reason = text(&part.missing, "network");
    if reason.contains("not installed") {
        skip(reason);
        return;
    }
    // A machine that is too busy, or has no loopback interface, has a reason instead.
    assert!(!reason.is_empty() || value(&part, "network.loopback_received_bits_per_s").is_some_and(|rate| rate > 0.0));
}
