//! Reads the reports of `iperf3 -J`.
//!
//! **Why.** The JSON has two sides, and the sender's comes first. The sent rate proves little: a sender of small
//! datagrams can be fast while most of them are dropped.
//!
//! **How.** Figures come from `end`, which leaves out omitted seconds. TCP: `sum_received`. UDP: the datagrams that
//! arrived are those that the receiver expected less those it missed (`sum`, or `sum_received` if there is no `sum`).
//! Some versions count received bytes too; the smaller number counts, because version 3.12 adds omitted seconds to the
//! bytes.
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

use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

/// Why a report is not read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    /// The text is not JSON, or not that of iperf3.
    #[error("this is not what `iperf3 -J` prints: {0}")]
    NotIperf3(String),
    /// iperf3 reports an error instead of figures.
    #[error("{0}")]
    Refused(String),
    /// A figure is missing or out of range.
    #[error("iperf3's report has no usable `{0}`")]
    Lacks(&'static str),
    /// The receiver got nothing.
    #[error("nothing that was sent was received: does a firewall let it through?")]
    NothingReceived,
}

/// The work of iperf3 itself, in per cent of one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// The sender's work.
    pub sender_pct: f64,
    /// The receiver's work.
    pub receiver_pct: f64,
}

/// A run over TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// `iperf 3.12`.
    pub version: Option<String>,
    /// Bits received per second; finite and above 0.
    pub received_bits_per_s: f64,
    /// Mean round trip of all streams under load, if the sender's system knows it.
    pub round_trip_ns: Option<f64>,
    /// Work of iperf3 itself.
    pub busy: Busy,
}

/// A run over UDP.
#[derive(Clone, Debug, PartialEq)]
pub struct Udp {
    /// `iperf 3.12`.
    pub version: Option<String>,
    /// Datagrams sent per second.
    pub sent_per_s: f64,
    /// Datagrams received per second; finite and above 0.
    pub received_per_s: f64,
    /// Lost datagrams, in per cent of those sent: 0 to 100.
    pub loss_pct: f64,
    /// Work of iperf3 itself.
    pub busy: Busy,
}

#[derive(Deserialize)]
struct Report {
    start: Option<Start>,
    end: Option<End>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Start {
    version: Option<String>,
    test_start: Option<TestStart>,
}

#[derive(Deserialize)]
struct TestStart {
    blksize: Option<f64>,
    reverse: Option<f64>,
    bidir: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    streams: Vec<Stream>,
    sum: Option<Sum>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    cpu_utilization_percent: Option<Cpu>,
}

#[derive(Deserialize)]
struct Stream {
    sender: Option<Sender>,
}

#[derive(Deserialize)]
struct Sender {
    mean_rtt: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
struct Sum {
    seconds: Option<f64>,
    bytes: Option<f64>,
    bits_per_second: Option<f64>,
    packets: Option<f64>,
    lost_packets: Option<f64>,
}

#[derive(Deserialize)]
struct Cpu {
    host_total: Option<f64>,
    remote_total: Option<f64>,
}

impl Report {
    fn read(text: &str) -> Result<Report, ReadError> {
        let not_iperf3 = |error: serde_json::Error| ReadError::NotIperf3(error.to_string());
        // Read as a value first: some versions write a key twice, and the last one counts.
        let value: serde_json::Value = serde_json::from_str(text).map_err(not_iperf3)?;
        let report: Report = serde_json::from_value(value).map_err(not_iperf3)?;
        if let Some(error) = &report.error {
            let error: String = error.chars().filter(|c| !c.is_control()).take(200).collect();
            let error = error.trim().trim_start_matches("error - ");
            return Err(ReadError::Refused(
                if error.is_empty() { "iperf3 reports an error" } else { error }.to_owned(),
            ));
        }
        Ok(report)
    }

    fn test(&self) -> Option<&TestStart> {
        self.start.as_ref()?.test_start.as_ref()
    }

    fn version(&self) -> Option<String> {
        self.start.as_ref()?.version.clone()
    }

    /// Returns the end of a run in which the client sent.
    fn end(&self) -> Result<&End, ReadError> {
        let is_other = |test: &TestStart| test.reverse.is_some_and(|reverse| reverse != 0.0) || test.bidir.is_some();
        if self.test().is_some_and(is_other) {
            return Err(ReadError::NotIperf3("a run in which the client receives is not read".to_owned()));
        }
        self.end.as_ref().ok_or(ReadError::Lacks("end"))
    }
}

impl End {
    fn busy(&self) -> Busy {
        let pct = |value: Option<f64>| value.filter(|value| value.is_finite()).unwrap_or(0.0).max(0.0);
        self.cpu_utilization_percent.as_ref().map_or_else(Busy::default, |cpu| Busy {
            sender_pct: pct(cpu.host_total),
            receiver_pct: pct(cpu.remote_total),
        })
    }

    fn round_trip_ns(&self) -> Option<f64> {
        let rtt_us = self.streams.iter().filter_map(|stream| positive(stream.sender.as_ref()?.mean_rtt));
        let (sum_us, number) = rtt_us.fold((0.0, 0_u32), |(sum_us, number), rtt_us| (sum_us + rtt_us, number + 1));
        positive(Some(1e3 * sum_us / f64::from(number)))
    }
}

impl Sum {
    /// Returns the datagrams that arrived, and those that were expected.
    fn datagrams(self) -> Option<(f64, f64)> {
        let packets = positive(self.packets)?;
        let lost = self.lost_packets.filter(|lost| lost.is_finite())?;
        Some(((packets - lost.max(0.0)).max(0.0), packets))
    }
}

/// Returns `value` if it is finite and above 0.
fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value > 0.0)
}

impl Tcp {
    /// Reads the report of a client that sent over TCP.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(text: &str) -> Result<Tcp, ReadError> {
        let report = Report::read(text)?;
        let end = report.end()?;
        let received = end.sum_received.ok_or(ReadError::Lacks("end.sum_received"))?;
        match received.bits_per_second {
            Some(bits_per_s) if bits_per_s.is_finite() && bits_per_s > 0.0 => Ok(Tcp {
                version: report.version(),
                received_bits_per_s: bits_per_s,
                round_trip_ns: end.round_trip_ns(),
                busy: end.busy(),
            }),
            Some(0.0) => Err(ReadError::NothingReceived),
            _ => Err(ReadError::Lacks("end.sum_received.bits_per_second")),
        }
    }
}

impl Udp {
    /// Reads the report of a client that sent over UDP.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(text: &str) -> Result<Udp, ReadError> {
        let report = Report::read(text)?;
        let end = report.end()?;
        let by_receiver = end.sum.or(end.sum_received).ok_or(ReadError::Lacks("end.sum"))?;
        let (came, expected) = by_receiver.datagrams().ok_or(ReadError::Lacks("end.sum.packets"))?;
        let seconds = positive(by_receiver.seconds).ok_or(ReadError::Lacks("end.sum.seconds"))?;

        let sent = end.sum_sent.and_then(|sum| Some((positive(sum.packets)?, positive(sum.seconds)?)));
        let (sent, sent_s) = sent.unwrap_or((expected, seconds));

        // Bytes counted by the receiver, in versions that do; `sum.bytes` are the sender's.
        let bytes = end.sum_received.and_then(|sum| sum.bytes).filter(|bytes| bytes.is_finite() && *bytes >= 0.0);
        let counted =
            bytes.zip(positive(report.test().and_then(|test| test.blksize))).map(|(bytes, size)| bytes / size);
        let received = counted.map_or(came, |counted| counted.min(came));
        if received == 0.0 {
            return Err(ReadError::NothingReceived);
        }

        let udp = Udp {
            version: report.version(),
            sent_per_s: sent / sent_s,
            received_per_s: received / seconds,
            loss_pct: (100.0 * (1.0 - received / sent)).clamp(0.0, 100.0),
            busy: end.busy(),
        };
        let is_usable = positive(Some(udp.sent_per_s)).and(positive(Some(udp.received_per_s))).is_some();
        if is_usable { Ok(udp) } else { Err(ReadError::Lacks("end.sum.packets")) }
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
        assert_eq!(tcp.busy, Busy { sender_pct: 97.5, receiver_pct: 40.0 });
        assert_eq!(tcp.version.as_deref(), Some("iperf 3.12"));
        let plain = Tcp::read(r#"{"end": {"sum_received": {"bits_per_second": 5}}}"#).unwrap();
        let expected = Tcp { version: None, received_bits_per_s: 5.0, round_trip_ns: None, busy: Busy::default() };
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
        // Fewer bytes arrived than the missed datagrams explain: some arrived after the end.
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
            (tcp, "{}", "no usable `end`"),
            (tcp, r#"{"end": {}}"#, "no usable `end.sum_received`"),
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
