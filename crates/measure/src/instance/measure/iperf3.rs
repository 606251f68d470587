//! Measures throughput and small packets by iperf3.
//!
//! **Why.** A database that answers small requests reaches the packet rate of its network long before its bandwidth,
//! and both long before the advertised ones.
//!
//! **How.** The peer is a server (`iperf3 -s`) that the user started on another machine. Half of the time is for TCP,
//! half for UDP with payloads of 16 bytes sent as fast as possible; each is run three times, and each run is a sample.
//! Without a number of streams, runs of a second double them until that gains less than 5 %, for each protocol. Whether
//! the cards join small packets (GSO, GRO) is a fact of the card, and a warning beside packet rates. A published "more
//! than 5 million packets per second" was 6.09 million sent and 4.74 million received: only the second counts. Figures
//! of a peer on this machine are those of its network stack, and have keys of their own
//! (`network.loopback_received_bits_per_s`).
//!
//! **Limits.** One direction: from this machine to the peer. Before version 3.16, iperf3 has one thread for all streams
//! and may be slower than the network; if it kept a processor busy, a warning says so. Samples are runs, not seconds,
//! because a client reports the seconds of its sending. The figures include a cloud's burst credits; a longer run
//! reduces their part.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::measure::iperf3::Peer;
//! let peer: Peer = "10.1.87.25:5202".parse()?;
//! assert_eq!((peer.host.as_str(), peer.port), ("10.1.87.25", 5202));
//! // measure(&mut card, &peer, Some(96), 30_000_000_000, &Stop::default())
//! # Ok::<(), plimsoll_measure::instance::measure::iperf3::PeerError>(())
//! ```

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use plimsoll_figures::units::format_iops_short;
use thiserror::Error;

use super::child::{self, Failure};
use super::{Card, Figure};
use crate::load::Stop;

mod offload;
mod report;

pub use report::{ReadError, Tcp, Udp};

pub const PORT: u16 = 5201;

/// Payload of a small packet in bytes, as in published measurements of packet rates.
const SMALL_BYTES: u32 = 16;
/// Runs over each protocol: the fewest samples that have an interval.
const RUNS: u64 = 3;
/// Time that a run may take beyond its seconds, for the exchange of results.
const SPARE: Duration = Duration::from_secs(15);
/// The most streams: iperf3's own limit.
const STREAMS_MAX: usize = 128;
/// Length of a run in the search for the number of streams, in seconds.
const PROBE_S: u64 = 1;
/// Gain from doubled streams below which the streams are enough.
const GAIN: f64 = 1.05;
/// Use of a processor from which on iperf3 may be the bottleneck, in per cent.
const BUSY_PCT: f64 = 90.0;
const LOSS_PCT: f64 = 1.0;

/// A machine that runs `iperf3 -s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} is no peer: expected HOST, HOST:PORT or [ADDRESS]:PORT, such as db-2:{PORT}")]
pub struct PeerError {
    text: String,
}

impl FromStr for Peer {
    type Err = PeerError;

    /// Reads `HOST`, `HOST:PORT`, an IPv6 address, or `[ADDRESS]:PORT`.
    fn from_str(text: &str) -> Result<Peer, PeerError> {
        let wrong = || PeerError { text: text.to_owned() };
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            None if text.parse::<IpAddr>().is_ok() => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(PORT), str::parse).map_err(|_| wrong())?;
        let is_name = |host: &str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        let is_host = host.parse::<IpAddr>().is_ok() || (!host.is_empty() && is_name(host) && !host.starts_with('-'));
        if is_host && port > 0 { Ok(Peer { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Measures the network to `peer` with `streams` streams in about `budget_ns`, at least 6 s; if `None`, finds the
/// number of streams in at most 16 s more.
///
/// Figures that cannot be measured are `missing`: all of them under `network` if the first run fails (iperf3 is not
/// installed, the peer does not answer, a stop), else by figure.
pub fn measure(card: &mut Card, peer: &Peer, streams: Option<usize>, budget_ns: u64, stop: &Stop) {
    let seconds = (budget_ns / 1_000_000_000 / (2 * RUNS)).clamp(1, 10);
    let streams = streams.map(|streams| streams.clamp(1, STREAMS_MAX));
    Client { program: "iperf3".into(), peer, is_here: is_here(&peer.host), streams, seconds, stop }.measure(card);
}

/// Returns whether packets to `host` stay on this machine: it is the loopback interface, or an address of one of the
/// machine's own cards, under any name.
fn is_here(host: &str) -> bool {
    // Only an address of this machine can be bound.
    let is_own = |at: SocketAddr| at.ip().is_loopback() || UdpSocket::bind((at.ip(), 0)).is_ok();
    host == "localhost" || (host, 0).to_socket_addrs().is_ok_and(|mut found| found.any(is_own))
}

struct Client<'a> {
    program: PathBuf,
    peer: &'a Peer,
    /// Whether no network is between the client and the server.
    is_here: bool,
    /// Streams at a time; `None`: the number from which on more gain nothing.
    streams: Option<usize>,
    seconds: u64,
    stop: &'a Stop,
}

/// The runs over one protocol, with the number of streams and the failure that ended them.
struct Runs<R> {
    runs: Vec<R>,
    /// The failure that ended the runs early, if any.
    failure: Option<Failure>,
    streams: usize,
}

/// The end of a figure's key, and its value in a run.
type Key<R> = (&'static str, fn(&R) -> Option<f64>);

impl Client<'_> {
    fn measure(&self, card: &mut Card) {
        // If there is time, TCP gets an uncounted second to find its speed.
        let omit: &[&str] = if self.seconds > 1 { &["-O", "1"] } else { &[] };
        let tcp = self.runs(omit, Tcp::read, |run| run.received_bits_per_s);
        if let (true, Some(failure)) = (tcp.runs.is_empty(), &tcp.failure) {
            card.miss("network", &failure.to_string());
            return;
        }
        let small = ["-u", "-b", "0", "-l", &SMALL_BYTES.to_string()];
        let udp = self.runs(&small, Udp::read, |run| run.received_per_s);

        card.fact("network.path", self.path());
        self.note_offload(card, !udp.runs.is_empty());
        let version = tcp.runs.first().and_then(|run| run.version.as_deref());
        version.into_iter().for_each(|version| card.fact("iperf3.version", version.replace("iperf ", "")));
        let keys: [Key<Tcp>; 2] =
            [("received_bits_per_s", |run| Some(run.received_bits_per_s)), ("round_trip_ns", |run| run.round_trip_ns)];
        self.note(card, "TCP", "", &tcp, &keys, |run| run.busy_pct);

        let keys: [Key<Udp>; 3] = [
            ("packets_sent_per_s", |run| Some(run.sent_per_s)),
            ("packets_received_per_s", |run| Some(run.received_per_s)),
            ("packet_loss_pct", |run| Some(run.loss_pct)),
        ];
        let payload = format!(", payloads of {SMALL_BYTES} bytes as fast as they go");
        if let [Some(sent), Some(received), Some(loss)] =
            self.note(card, "UDP", &payload, &udp, &keys, |run| run.busy_pct).as_slice()
            && *loss >= LOSS_PCT
        {
            let [sent, received] = [*sent, *received].map(format_iops_short);
            card.warnings.push(format!(
                "{loss:.0} % of the small packets were lost: {sent} a second were sent, and {received} received, which \
                 is the rate that counts"
            ));
        }
    }

    /// Returns the path that was measured, for the facts of a card.
    fn path(&self) -> String {
        if self.is_here {
            return "loopback: this machine's network stack, no network".to_owned();
        }
        format!("to {}", self.peer)
    }

    /// Adds the offloading of the cards as a fact; with small packets, a warning that their rate may depend on it.
    fn note_offload(&self, card: &mut Card, has_small_packets: bool) {
        let Some(cards) = offload::of_cards(self.is_here, self.stop) else {
            card.fact("network.offload", "not known: ethtool shows no card".to_owned());
            if has_small_packets && !self.is_here {
                card.warnings.push(
                    "whether the cards join small packets, which raises their rate, is not known: ethtool shows no card (is \
                     it installed?)"
                        .to_owned(),
                );
            }
            return;
        };

        card.fact("network.offload", offload::sentence(&cards));
        let joining: Vec<&str> = cards
            .iter()
            .filter(|(_, on)| on.contains(&"gso") || on.contains(&"gro"))
            .map(|(name, _)| name.as_str())
            .collect();

        if has_small_packets && !joining.is_empty() {
            card.warnings.push(format!(
                "small packets were measured with offloading on ({}), which may join them: published packet rates have it \
                 off (ethtool -K {} gso off gro off)",
                joining.join(", "),
                joining.first().unwrap_or(&"CARD")
            ));
        }
    }

    fn runs<R>(&self, args: &[&str], read: fn(&str) -> Result<R, ReadError>, rate: fn(&R) -> f64) -> Runs<R> {
        let streams = self.streams.unwrap_or_else(|| self.enough_streams(args, read, rate));
        let mut found = Runs { runs: Vec::new(), failure: None, streams };
        for _ in 0..RUNS {
            match self.run(streams, self.seconds, args, read) {
                Ok(run) => found.runs.push(run),
                Err(failure) => {
                    found.failure = Some(failure);
                    break;
                }
            }
        }
        found
    }

    /// Doubles the streams until that gains nothing. Returns the fewest that were enough.
    fn enough_streams<R>(&self, args: &[&str], read: fn(&str) -> Result<R, ReadError>, rate: fn(&R) -> f64) -> usize {
        let (mut enough, mut best) = (1, 0.0);
        let mut streams = 1;
        while streams <= STREAMS_MAX {
            let Ok(run) = self.run(streams, PROBE_S, args, read) else { break };
            if rate(&run) < best * GAIN {
                break;
            }
            (enough, best) = (streams, rate(&run));
            streams *= 2;
        }
        enough
    }

    /// Runs a client once. Some versions fail with a report, some report a failure with status 0.
    fn run<R>(
        &self,
        streams: usize,
        seconds: u64,
        args: &[&str],
        read: fn(&str) -> Result<R, ReadError>,
    ) -> Result<R, Failure> {
        // A run over TCP may have an uncounted second.
        let limit = Duration::from_secs(seconds + 1) + SPARE;
        let (port, seconds, streams) = (self.peer.port.to_string(), seconds.to_string(), streams.to_string());
        let mut command = Command::new(&self.program);
        command.args(["-c", &self.peer.host, "-p", &port, "-J", "-t", &seconds, "-P", &streams]).args(args);
        let ended = child::run(&mut command, limit, self.stop).map_err(|failure| match failure {
            Failure::Late(limit) => {
                let reason = format!("{} did not answer within {} s", self.peer, limit.as_secs());
                Failure::Other(self.with_remedy(&reason))
            }
            failure => failure,
        })?;

        read(&ended.stdout).map_err(|error| {
            let complaint = ended.stderr.lines().find(|line| !line.trim().is_empty());
            let reason = match (&error, complaint) {
                (ReadError::NotIperf3(_), Some(line)) => line.trim().to_owned(),
                _ => error.to_string(),
            };
            Failure::Other(self.with_remedy(&reason))
        })
    }

    fn with_remedy(&self, reason: &str) -> String {
        let Peer { host, port } = self.peer;
        let option = if *port == PORT { String::new() } else { format!(" -p {port}") };
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        if has(&["resolution", "not known", "No address"]) {
            format!("{reason}: is {host} the right name?")
        } else if has(&["busy"]) {
            let peer = self.peer;
            format!("{reason}: wait until the other test on {peer} is over, or start a second server with another -p")
        } else if has(&["unable to connect", "refused", "did not answer", "No route", "timed out"]) {
            format!("{reason}: start `iperf3 -s{option}` on {host}, and let TCP and UDP to port {port} through")
        } else {
            reason.to_owned()
        }
    }

    /// Adds the figures of the runs over one protocol, their method, and reasons to doubt them. Returns the figures.
    fn note<R>(
        &self,
        card: &mut Card,
        protocol: &str,
        payload: &str,
        Runs { runs, failure, streams }: &Runs<R>,
        keys: &[Key<R>],
        busy_pct: fn(&R) -> f64,
    ) -> Vec<Option<f64>> {
        let group = if self.is_here { "network.loopback_" } else { "network." };
        let mut values = Vec::new();
        for (key, value) in keys {
            let figure = Figure::of_samples(runs.iter().filter_map(value).collect());
            values.push(figure.as_ref().map(|figure| figure.value));
            let key = format!("{group}{key}");
            match (figure, failure) {
                (Some(figure), _) => card.set(&key, figure),
                (None, Some(failure)) if runs.is_empty() => card.miss(&key, &failure.to_string()),
                // All other values are in every report that is read.
                (None, _) => card.miss(&key, "iperf3 reports no round trips on this system"),
            }
        }
        if runs.is_empty() {
            return values;
        }

        let plural = |number: usize| if number == 1 { "" } else { "s" };
        let (number, seconds) = (runs.len(), self.seconds);
        let (s_streams, s_runs) = (plural(*streams), plural(number));
        let how = if self.streams.is_none() { " (more gain less than 5 %)" } else { "" };
        let method =
            format!("{protocol}, {streams} stream{s_streams}{how}{payload}, {number} run{s_runs} of {seconds} s");
        card.fact(&format!("network.method_{}", protocol.to_lowercase()), method);
        if let Some(failure) = failure {
            card.warnings.push(format!("{protocol} was not measured to its end: {failure}"));
        }
        let busiest_pct = runs.iter().map(busy_pct).fold(0.0, f64::max);
        if busiest_pct >= BUSY_PCT {
            card.warnings.push(format!(
                "{protocol}: iperf3 kept a processor {busiest_pct:.0} % busy, and may be what limits; from version 3.16 \
                 on it has a thread for each stream"
            ));
        }
        values
    }
}

#[cfg(test)]
mod tests;
