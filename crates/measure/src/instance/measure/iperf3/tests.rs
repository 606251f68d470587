//! A table of peers, and stories with scripts in the place of iperf3.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::instance::measure::card_of;
use crate::skip::skip;

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

/// Measures with a script in the place of iperf3.
fn with_script(script: &str, peer: &Peer, stop: &Stop) -> Card {
    with_streams(Some(1), script, peer, stop)
}

fn with_streams(streams: Option<usize>, script: &str, peer: &Peer, stop: &Stop) -> Card {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("iperf3");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    // The only peer of these tests on another machine has a name that nobody need resolve.
    let is_here = peer.host != "db-2";
    card_of(|card| Client { program, peer, is_here, streams, seconds: 1, stop }.measure(card))
}

fn text<'a>(list: &'a BTreeMap<String, String>, key: &str) -> &'a str {
    list.get(key).map_or("", String::as_str)
}

/// A script that answers like a client of iperf3.
const ANSWERS: &str = r#"
    case "$*" in
    *" -u -b 0 -l 16"*) echo '{"start": {"version": "iperf 3.12"}, "end": {
        "sum": {"seconds": 60, "packets": 366966173, "lost_packets": 81116999}}}';;
    *) echo '{"start": {"version": "iperf 3.12"}, "end": {
        "sum_sent": {"bits_per_second": 2e10}, "sum_received": {"bits_per_second": 1e10},
        "cpu_utilization_percent": {"host_total": 99, "remote_total": 3}}}';;
    esac"#;

#[test]
fn what_is_received_counts() {
    let local: Peer = "127.0.0.1".parse().unwrap();
    let card = with_script(ANSWERS, &local, &Stop::default());
    assert_eq!(card.value("network.loopback_received_bits_per_s"), Some(1e10), "{card:?}");
    for (key, expected) in [
        ("network.loopback_packets_sent_per_s", 6.116e6),
        ("network.loopback_packets_received_per_s", 4.764e6),
        ("network.loopback_packet_loss_pct", 22.10),
    ] {
        let value = card.value(key).unwrap();
        assert!((value / expected - 1.0).abs() < 1e-3, "{key}: {value}");
    }
    assert_eq!(text(&card.facts, "iperf3.version"), "3.12");
    assert!(text(&card.facts, "network.path").starts_with("loopback"));
    let offload = text(&card.facts, "network.offload");
    assert!(offload.starts_with("lo: ") || offload.starts_with("not known: "), "{offload}");
    assert_eq!(text(&card.facts, "network.method_tcp"), "TCP, 1 stream, 3 runs of 1 s");
    assert!(text(&card.missing, "network.loopback_round_trip_ns").contains("no round trips"));
    for expected in ["22 % of the small packets were lost", "TCP: iperf3 kept a processor 99 % busy"] {
        assert!(card.warnings.iter().any(|warning| warning.contains(expected)), "{expected}: {card:?}");
    }
    assert!(card.figures.keys().all(|key| crate::instance::figures::kind(key).is_some()));
}

/// A network that 8 streams fill over TCP, and 2 with small packets.
#[test]
fn streams_double_until_they_gain_nothing() {
    let script = r#"
        while [ "$1" != -P ]; do shift; done
        case "$*" in
        *" -u "*) rate=$(($2 < 2 ? $2 : 2)); echo "{\"end\": {
            \"sum\": {\"seconds\": 1, \"packets\": ${rate}000000, \"lost_packets\": 0}}}";;
        *) rate=$(($2 < 8 ? $2 : 8)); echo "{\"end\": {\"sum_received\": {\"bits_per_second\": ${rate}e9}}}";;
        esac"#;
    let local: Peer = "localhost".parse().unwrap();
    let card = with_streams(None, script, &local, &Stop::default());
    assert_eq!(card.value("network.loopback_received_bits_per_s"), Some(8e9), "{card:?}");
    assert_eq!(card.value("network.loopback_packets_received_per_s"), Some(2e6), "{card:?}");
    let method = "TCP, 8 streams (more gain less than 5 %), 3 runs of 1 s";
    assert_eq!(text(&card.facts, "network.method_tcp"), method);
    assert!(text(&card.facts, "network.method_udp").starts_with("UDP, 2 streams (more"), "{card:?}");
    let card = with_streams(Some(3), script, &local, &Stop::default());
    assert_eq!(text(&card.facts, "network.method_tcp"), "TCP, 3 streams, 3 runs of 1 s");
}

#[test]
fn an_own_address_is_no_network() {
    assert!(["localhost", "127.0.0.1", "127.9.9.9"].iter().all(|host| is_here(host)));
    // Addresses for documentation, which no machine has.
    assert!(!["192.0.2.7", "2001:db8::7"].iter().any(|host| is_here(host)));
    // The address that packets to another machine would have; none is sent.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let Ok(own) = socket.connect("192.0.2.7:9").and_then(|()| socket.local_addr()) else {
        skip("this machine has no network");
        return;
    };
    assert!(is_here(&own.ip().to_string()), "{own}");
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
            let card = with_script(&script, peer, &Stop::default());
            assert!(card.figures.is_empty());
            let reason = text(&card.missing, "network");
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
    let card = with_script(script, &local, &Stop::default());
    assert_eq!(card.value("network.received_bits_per_s"), None);
    assert_eq!(card.value("network.loopback_received_bits_per_s"), Some(1e9));
    let peer: Peer = "db-2".parse().unwrap();
    let card = with_script(script, &peer, &Stop::default());
    assert_eq!(card.value("network.received_bits_per_s"), Some(1e9));
    assert_eq!(card.value("network.round_trip_ns"), Some(80_000.0));
    assert_eq!(text(&card.missing, "network.packets_received_per_s"), "unable to read from stream socket");
    assert_eq!(text(&card.facts, "network.path"), "to db-2:5201");
}

#[test]
fn a_failure_on_the_way_keeps_what_was_measured() {
    let script = r#"[ -e "$0.ran" ] && echo '{"error": "no more"}' && exit 1
        touch "$0.ran"
        echo '{"end": {"sum_received": {"bits_per_second": 1e9}}}'"#;
    let peer: Peer = "db-2".parse().unwrap();
    let card = with_script(script, &peer, &Stop::default());
    assert_eq!(card.value("network.received_bits_per_s"), Some(1e9));
    assert_eq!(text(&card.facts, "network.method_tcp"), "TCP, 1 stream, 1 run of 1 s");
    assert_eq!(card.warnings, ["TCP was not measured to its end: no more"]);
}

#[test]
fn stopped_and_not_installed() {
    let stop = Stop::default();
    let peer: Peer = "db-2".parse().unwrap();
    let absent = Client {
        program: "plimsoll-no-such-program".into(),
        peer: &peer,
        is_here: false,
        streams: Some(1),
        seconds: 1,
        stop: &stop,
    };
    assert!(
        text(&card_of(|card| absent.measure(card)).missing, "network").contains("apt install plimsoll-no-such-program")
    );
    stop.ask();
    assert_eq!(text(&with_script(ANSWERS, &peer, &stop).missing, "network"), crate::instance::measure::INTERRUPTED);
}

/// Takes six seconds.
#[test]
fn the_real_one() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port();
    let server =
        Command::new("iperf3").args(["-s", "-p", &port.to_string()]).stdout(std::process::Stdio::null()).spawn();
    let Ok(mut server) = server else {
        skip("iperf3 is not installed");
        return;
    };
    let local = Peer { host: "127.0.0.1".to_owned(), port };
    let mut card = card_of(|_| ());
    // The server does not listen yet.
    for _ in 0..50 {
        card = card_of(|card| measure(card, &local, Some(1), 0, &Stop::default()));
        if !text(&card.missing, "network").contains("refused") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    server.kill().and_then(|()| server.wait()).unwrap();
    println!("{card:#?}");
    // A machine that is too busy, or has no loopback interface, has a reason in place of the figures.
    let reason = text(&card.missing, "network");
    assert!(!reason.is_empty() || card.value("network.loopback_received_bits_per_s").is_some_and(|rate| rate > 0.0));
}
