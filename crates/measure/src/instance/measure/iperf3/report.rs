//! Reads the reports of `iperf3 -J`.
//!
//! **Why.** The JSON has two sides, and the sender's comes first. The sent rate proves little: a sender of small
//! datagrams can be fast while most of them are dropped.
//!
//! **How.** Figures come from `end`, which leaves out omitted seconds. TCP: `sum_received`. UDP: received datagrams are
//! those that the receiver expected less those it missed (`sum`, or `sum_received` if there is no `sum`). Some versions
//! count received bytes too; then the smaller number counts, because version 3.12 adds omitted seconds to the bytes.
//!
//! **Limits.** Runs in one direction. Intervals are not read: a sending client's intervals are those of its sending.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::measure::iperf3::{ReadError, Udp};
//! let text = r#"{"end": {"sum": {"seconds": 2.0, "packets": 1000, "lost_packets": 220}}}"#;
//! let udp = Udp::read(text)?;
//! assert_eq!((udp.sent_per_s, udp.received_per_s), (500.0, 390.0));
//! assert!((udp.loss_pct - 22.0).abs() < 1e-9);
//! # Ok::<(), ReadError>(())
//! ```

use serde_json::Value;
use thiserror::Error;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    #[error("this is not what `iperf3 -J` prints: {0}")]
    NotIperf3(String),
    /// iperf3 reports an error instead of figures.
    #[error("{0}")]
    Refused(String),
    #[error("iperf3's report has no usable `{0}`")]
    Lacks(&'static str),
    #[error("nothing that was sent was received: does a firewall let it through?")]
    NothingReceived,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// `iperf 3.12`.
    pub version: Option<String>,
    /// Bits received per second; finite and above 0.
    pub received_bits_per_s: f64,
    /// Mean round trip of all streams under load, if the sender's system knows it.
    pub round_trip_ns: Option<f64>,
    /// CPU time of iperf3 itself on the busier side, in per cent of one processor.
    pub busy_pct: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Udp {
    pub sent_per_s: f64,
    /// Datagrams received per second; finite and above 0.
    pub received_per_s: f64,
    /// Lost datagrams, in per cent of those sent: 0 to 100.
    pub loss_pct: f64,
    /// CPU time of iperf3 itself on the busier side, in per cent of one processor.
    pub busy_pct: f64,
}

/// A report of a run in which the client sent.
struct Report(Value);

impl Report {
    fn read(text: &str) -> Result<Report, ReadError> {
        let not_iperf3 = |what: &str| ReadError::NotIperf3(what.to_owned());
        let report: Value = serde_json::from_str(text).map_err(|error| not_iperf3(&error.to_string()))?;
        if !report.is_object() {
            return Err(not_iperf3("it is no object"));
        }
        if let Some(error) = report.get("error").and_then(Value::as_str) {
            let error: String = error.chars().filter(|c| !c.is_control()).take(200).collect();
            let error = error.trim().trim_start_matches("error - ");
            let error = if error.is_empty() { "iperf3 reports an error" } else { error };
            return Err(ReadError::Refused(error.to_owned()));
        }

        let test = |key: &str| report.get("start")?.get("test_start")?.get(key);
        if test("bidir").is_some() || test("reverse").and_then(Value::as_f64).is_some_and(|reverse| reverse != 0.0) {
            return Err(not_iperf3("a run in which the client receives is not read"));
        }
        Ok(Report(report))
    }

    fn number(&self, path: &str) -> Option<f64> {
        self.0.pointer(path)?.as_f64()
    }

    /// Returns a number above 0.
    fn positive(&self, path: &str) -> Option<f64> {
        self.number(path).filter(|number| *number > 0.0)
    }

    fn busy_pct(&self) -> f64 {
        let side = |side| self.positive(&format!("/end/cpu_utilization_percent/{side}")).unwrap_or(0.0);
        side("host_total").max(side("remote_total"))
    }
}

impl Tcp {
    /// Reads the report of a client that sent over TCP.
    pub fn read(text: &str) -> Result<Tcp, ReadError> {
        let report = Report::read(text)?;
        let received_bits_per_s = match report.number("/end/sum_received/bits_per_second") {
            Some(0.0) => return Err(ReadError::NothingReceived),
            Some(bits_per_s) if bits_per_s > 0.0 => bits_per_s,
            _ => return Err(ReadError::Lacks("end.sum_received.bits_per_second")),
        };

        let streams = report.0.pointer("/end/streams").and_then(Value::as_array).map_or(0, Vec::len);
        let round_trip_us = |stream| report.positive(&format!("/end/streams/{stream}/sender/mean_rtt"));
        let round_trips_us: Vec<f64> = (0..streams).filter_map(round_trip_us).collect();
        let round_trip_ns = round_trips_us.iter().sum::<f64>() * 1e3 / round_trips_us.len() as f64;
        Ok(Tcp {
            version: report.0.pointer("/start/version").and_then(Value::as_str).map(str::to_owned),
            received_bits_per_s,
            round_trip_ns: (round_trip_ns.is_finite() && round_trip_ns > 0.0).then_some(round_trip_ns),
            busy_pct: report.busy_pct(),
        })
    }
}

impl Udp {
    /// Reads the report of a client that sent over UDP.
    pub fn read(text: &str) -> Result<Udp, ReadError> {
        let report = Report::read(text)?;
        let sum = if report.0.pointer("/end/sum").is_some() { "/end/sum" } else { "/end/sum_received" };
        let of = |key: &str| report.positive(&format!("{sum}/{key}"));
        let expected = of("packets").ok_or(ReadError::Lacks("end.sum.packets"))?;
        let lost = report.number(&format!("{sum}/lost_packets")).ok_or(ReadError::Lacks("end.sum.packets"))?;
        let seconds = of("seconds").ok_or(ReadError::Lacks("end.sum.seconds"))?;

        let sent = report.positive("/end/sum_sent/packets").zip(report.positive("/end/sum_sent/seconds"));
        let (sent, sent_s) = sent.unwrap_or((expected, seconds));

        // Bytes counted by the receiver, in versions that count them; `sum.bytes` are the sender's.
        let bytes = report.number("/end/sum_received/bytes").filter(|bytes| *bytes >= 0.0);
        let counted = bytes.zip(report.positive("/start/test_start/blksize")).map(|(bytes, size)| bytes / size);
        let came = (expected - lost.max(0.0)).max(0.0);
        let received = counted.map_or(came, |counted| counted.min(came));
        if received == 0.0 {
            return Err(ReadError::NothingReceived);
        }

        let (sent_per_s, received_per_s) = (sent / sent_s, received / seconds);
        if ![sent_per_s, received_per_s].iter().all(|rate| rate.is_finite() && *rate > 0.0) {
            return Err(ReadError::Lacks("end.sum.packets"));
        }
        let loss_pct = (100.0 * (1.0 - received / sent)).clamp(0.0, 100.0);
        Ok(Udp { sent_per_s, received_per_s, loss_pct, busy_pct: report.busy_pct() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = r#"{
        "start": {"version": "iperf 3.12", "test_start": {"protocol": "TCP", "blksize": 9, "omit": 1, "reverse": 0}},
        "intervals": [{"sum": {"bits_per_second": 9e9, "omitted": true}}, {"sum": {"bits_per_second": 7e9}}],
        "end": {
            "streams": [
                {"sender": {"mean_rtt": 200}, "receiver": {"bits_per_second": 1.0}},
                {"sender": {"mean_rtt": 400}}
            ],
            "sum_sent": {"seconds": 2.0, "bits_per_second": 8e9, "retransmits": 3},
            "sum_received": {"seconds": 2.0, "bits_per_second": 6e9},
            "cpu_utilization_percent": {"host_total": 97.5, "remote_total": 40.0}
        }
    }"#;

    /// A report as version 3.12 writes it.
    const UDP: &str = r#"{
        "start": {"version": "iperf 3.12", "test_start": {"protocol": "UDP", "blksize": 16, "omit": 0}},
        "end": {
            "sum": {"seconds": 2.0, "bytes": 3451200, "lost_packets": 107817, "packets": 215700, "lost_percent": 49.98},
            "sum_sent": {"seconds": 2.0, "bytes": 3451200, "lost_packets": 0, "packets": 215700},
            "sum_received": {"seconds": 2.0, "bytes": 1726128, "lost_packets": 107817, "packets": 215700}
        }
    }"#;

    #[test]
    fn tcp_is_what_was_received() {
        let tcp = Tcp::read(TCP).unwrap();
        assert_eq!(tcp.received_bits_per_s, 6e9);
        assert_eq!(tcp.round_trip_ns, Some(300_000.0));
        assert_eq!(tcp.busy_pct, 97.5);
        assert_eq!(tcp.version.as_deref(), Some("iperf 3.12"));
        let plain = Tcp::read(r#"{"end": {"sum_received": {"bits_per_second": 5}}}"#).unwrap();
        let expected = Tcp { version: None, received_bits_per_s: 5.0, round_trip_ns: None, busy_pct: 0.0 };
        assert_eq!(plain, expected);
    }

    #[test]
    fn udp_is_what_was_received() {
        let older = r#"{"end": {"sum": {"seconds": 2, "bytes": 16000, "packets": 1000, "lost_packets": 220}}}"#;
        let newer = r#"{"end": {"sum_sent": {"seconds": 2, "packets": 1200},
            "sum_received": {"seconds": 2, "packets": 1000, "lost_packets": 220}}}"#;
        // The received bytes include the omitted second.
        let omitted = r#"{"start": {"test_start": {"blksize": 16}}, "end": {
            "sum": {"seconds": 2, "packets": 170620, "lost_packets": 97746}, "sum_received": {"bytes": 1718832}}}"#;
        // Fewer bytes arrived than the missed datagrams explain: some datagrams arrived after the end.
        let late = r#"{"start": {"test_start": {"blksize": 16}}, "end": {
            "sum": {"seconds": 2, "packets": 1000, "lost_packets": 0}, "sum_received": {"bytes": 8000}}}"#;
        let cases: [(&str, [f64; 3]); 5] = [
            (UDP, [107_850.0, 53_941.5, 49.984_701]),
            (older, [500.0, 390.0, 22.0]),
            (newer, [600.0, 390.0, 35.0]),
            (omitted, [85_310.0, 36_437.0, 57.288_712]),
            (late, [500.0, 250.0, 50.0]),
        ];
        for (text, expected) in cases {
            let udp = Udp::read(text).unwrap();
            let found = [udp.sent_per_s, udp.received_per_s, udp.loss_pct];
            let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-3);
            assert!(is_near, "{found:?}, not {expected:?}: {text}");
        }
    }

    #[test]
    fn what_is_refused() {
        let refused = r#"{"start": {"connected": []}, "intervals": [], "end": {},
            "error": "error - unable to connect to server: Connection refused"}"#;
        let tcp = |text: &str| Tcp::read(text).map(drop);
        let udp = |text: &str| Udp::read(text).map(drop);
        type Reads = fn(&str) -> Result<(), ReadError>;
        let cases: [(Reads, &str, &str); 12] = [
            (tcp, "", "not what `iperf3 -J` prints"),
            (tcp, "[1]", "not what `iperf3 -J` prints"),
            (tcp, refused, "unable to connect to server: Connection refused"),
            (udp, refused, "unable to connect to server: Connection refused"),
            (tcp, r#"{"error": ""}"#, "iperf3 reports an error"),
            (tcp, "{}", "no usable `end.sum_received"),
            (tcp, r#"{"end": {}}"#, "no usable `end.sum_received"),
            (tcp, r#"{"end": {"sum_received": {"bits_per_second": null}}}"#, "end.sum_received.bits_per_second"),
            (tcp, r#"{"end": {"sum_received": {"bits_per_second": 0}}}"#, "nothing that was sent was received"),
            (udp, r#"{"end": {"sum": {"seconds": 0, "packets": 1, "lost_packets": 0}}}"#, "end.sum.seconds"),
            (udp, r#"{"end": {"sum": {"seconds": 1, "packets": 9, "lost_packets": 99}}}"#, "nothing that was sent"),
            (tcp, r#"{"start": {"test_start": {"reverse": 1}}, "end": {}}"#, "the client receives"),
        ];
        for (read, text, expected) in cases {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}: expected {expected}");
        }
    }

    #[test]
    fn truncated_reports_are_refused() {
        for text in [TCP, UDP] {
            let text = text.trim_end();
            for length in 0..text.len() {
                assert!(Tcp::read(&text[..length]).is_err() && Udp::read(&text[..length]).is_err(), "{length}");
            }
        }
    }
}
