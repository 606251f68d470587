//! Measures throughput and small packets by iperf3.
//!
//! **Why.** A database that answers small requests reaches the packet rate of its network long before its bandwidth,
//! and both long before the advertised ones.
//!
//! **How.** The peer is a server that the user started on another machine. Without one, a server is started here, on
//! the loopback interface: this measures the machine's network stack, not a network, so these figures have keys of
//! their own (`network.loopback_received_bits_per_s`). Half of the time is for TCP, half for UDP with payloads of 16
//! bytes sent as fast as possible. In both, the number of streams is doubled until the *received* rate no longer grows
//! by 5 %; the best number is then run again, and each run is a sample. A published "more than 5 million packets per
//! second" was 6.09 million sent and 4.74 million received: only the second counts.
//!
//! **Limits.** One direction: from here to the peer. Before version 3.16, iperf3 has one thread for all streams and may
//! be slower than the network; if it kept a processor busy, a warning says so. Samples are runs, not seconds, because a
//! client reports the seconds of its sending. A cloud's burst credits are in the figures: give it more time.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::measure::iperf3::Peer;
//! let peer: Peer = "10.1.87.25:5202".parse()?;
//! assert_eq!((peer.host.as_str(), peer.port), ("10.1.87.25", 5202));
//! // measure(Some(&peer), 30_000_000_000, &Stop::default())
//! # Ok::<(), plimsoll_measure::instance::measure::iperf3::PeerError>(())
//! ```

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use plimsoll_figures::units::format_iops_short;
use thiserror::Error;

use super::child::{self, Ended, Exit, Running};
use super::{Figure, INTERRUPTED, Part};
use crate::load::Stop;

mod report;

pub use report::{Busy, ReadError, Tcp, Udp};

/// The default port of iperf3.
pub const PORT: u16 = 5201;

/// Prefixes of the keys of a network and of the loopback interface.
const NETWORK: &str = "network.";
const LOOPBACK: &str = "network.loopback_";

/// Payload of a small packet in bytes, as in published measurements of packet rates.
const SMALL_BYTES: u32 = 16;
/// Time that a run may take beyond its seconds: both sides exchange their results.
const SPARE: Duration = Duration::from_secs(15);
/// Time that a run usually takes beyond its seconds, in milliseconds.
const OVERHEAD_MS: u64 = 250;
/// Factor by which twice the streams must raise the rate.
const GROWTH: f64 = 1.05;
/// The most streams: iperf3's own limit.
const STREAMS_MAX: u32 = 128;
/// The most samples of one figure.
const SAMPLES_MAX: usize = 10;
/// Attempts to reach a server that was just started, and the time between them.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// Use of a processor from which on iperf3 may be the bottleneck, in per cent.
const BUSY_PCT: f64 = 90.0;
/// Loss of packets from which on a warning is given, in per cent.
const LOSS_PCT: f64 = 1.0;

/// A machine that runs `iperf3 -s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name or address.
    pub host: String,
    /// The TCP and UDP port.
    pub port: u16,
}

/// Why a text is no peer.
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

/// Measures the network to `peer`, or without one this machine's network stack, in about `budget_ns`, at least 4 s.
///
/// Figures that cannot be measured are `missing`: all of them under `network` if the first run fails (iperf3 is not
/// installed, the peer does not answer, a stop), else by figure.
#[must_use]
pub fn measure(peer: Option<&Peer>, budget_ns: u64, stop: &Stop) -> Part {
    Measurement { program: "iperf3".into(), peer, stop }.measure(budget_ns)
}

struct Measurement<'a> {
    program: PathBuf,
    peer: Option<&'a Peer>,
    stop: &'a Stop,
}

/// Why a run has no result.
#[derive(Clone, Debug, PartialEq)]
enum Failure {
    NotInstalled,
    Stopped,
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotInstalled => f.write_str("iperf3 is not installed: apt install iperf3 (or dnf install iperf3)"),
            Failure::Stopped => f.write_str(INTERRUPTED),
            Failure::Other(reason) => f.write_str(reason),
        }
    }
}

/// The length and the number of runs that fit a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    seconds: u64,
    /// Seconds before those that are not counted.
    omitted: u64,
    runs: u32,
}

impl Plan {
    /// Plans runs for a time. If there is time, TCP gets an uncounted second to find its speed; UDP needs none.
    fn new(budget_ns: u64, is_tcp: bool) -> Plan {
        let budget_ms = budget_ns / 1_000_000;
        let seconds = (budget_ms / 8_000).clamp(1, 10);
        let omitted = u64::from(is_tcp && seconds > 1);
        let runs = budget_ms / ((seconds + omitted) * 1_000 + OVERHEAD_MS);
        Plan { seconds, omitted, runs: runs.clamp(1, 100) as u32 }
    }
}

/// The runs with the best number of streams.
#[derive(Debug, PartialEq)]
struct Raised<R> {
    streams: u32,
    runs: Vec<R>,
    /// Whether more streams might raise the rate: there was no time to try, or a run failed.
    is_rising: bool,
    /// The failure that ended it early.
    failure: Option<Failure>,
}

/// Doubles the streams until `rate` no longer grows, then repeats the best number; at most `runs_max` runs in all.
///
/// # Errors
/// The first run failed.
fn raise<R>(
    runs_max: u32,
    rate: impl Fn(&R) -> f64,
    mut run: impl FnMut(u32) -> Result<R, Failure>,
) -> Result<Raised<R>, Failure> {
    let mut best = Raised { streams: 1, runs: vec![run(1)?], is_rising: true, failure: None };
    let mut left = runs_max.saturating_sub(1);
    // Two runs are left for the best number, so that it has three samples.
    while best.is_rising && left > 2 && best.streams < STREAMS_MAX {
        left -= 1;
        match run(best.streams * 2) {
            Ok(more) if best.runs.iter().all(|other| rate(&more) > rate(other) * GROWTH) => {
                best = Raised { streams: best.streams * 2, runs: vec![more], ..best };
            }
            Ok(_) => best.is_rising = false,
            Err(failure) => {
                best.failure = Some(failure);
                return Ok(best);
            }
        }
    }

    best.is_rising &= best.streams < STREAMS_MAX;
    while left > 0 && best.runs.len() < SAMPLES_MAX {
        left -= 1;
        match run(best.streams) {
            Ok(again) => best.runs.push(again),
            Err(failure) => {
                best.failure = Some(failure);
                break;
            }
        }
    }
    Ok(best)
}

/// Returns the figure whose samples are those of all runs.
fn figure<R>(runs: &[R], of: impl Fn(&R) -> Option<f64>) -> Option<Figure> {
    Figure::of_samples(runs.iter().filter_map(of).collect())
}

impl Measurement<'_> {
    fn measure(&self, budget_ns: u64) -> Part {
        let mut part = Part::default();
        let tcp_plan = Plan::new(budget_ns / 2, true);
        let tcp = raise(tcp_plan.runs, |run: &Tcp| run.received_bits_per_s, |streams| self.tcp(tcp_plan, streams));
        let tcp = match tcp {
            Ok(tcp) => tcp,
            Err(failure) => {
                part.missing.push(("network".to_owned(), failure.to_string()));
                return part;
            }
        };

        let udp_plan = Plan::new(budget_ns / 2, false);
        let udp = raise(udp_plan.runs, |run: &Udp| run.received_per_s, |streams| self.udp(udp_plan, streams));

        part.facts.push(("network.path".to_owned(), self.path()));
        let version = tcp.runs.first().and_then(|run| run.version.clone());
        part.facts.extend(version.map(|version| ("iperf3.version".to_owned(), version.replace("iperf ", ""))));
        let group = if self.is_loopback() { LOOPBACK } else { NETWORK };
        note_tcp(&mut part, group, tcp_plan, &tcp);
        match udp {
            Ok(udp) => note_udp(&mut part, group, udp_plan, &udp),
            Err(failure) => {
                for key in ["packets_sent_per_s", "packets_received_per_s", "packet_loss_pct"] {
                    part.missing.push((format!("{group}{key}"), failure.to_string()));
                }
            }
        }
        part
    }

    /// Returns whether no network is between the client and the server.
    fn is_loopback(&self) -> bool {
        let is_local = |host: &str| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        self.peer.is_none_or(|peer| is_local(&peer.host))
    }

    /// Returns the path that was measured, for the facts of a card.
    fn path(&self) -> String {
        match self.peer {
            Some(peer) if !self.is_loopback() => format!("to {peer}"),
            _ => "loopback: this machine's network stack, no network".to_owned(),
        }
    }

    fn tcp(&self, plan: Plan, streams: u32) -> Result<Tcp, Failure> {
        let omit = ["-O".to_owned(), plan.omitted.to_string()];
        self.run(plan, streams, if plan.omitted > 0 { &omit } else { &[] }, Tcp::read)
    }

    fn udp(&self, plan: Plan, streams: u32) -> Result<Udp, Failure> {
        let args = ["-u", "-b", "0", "-l", &SMALL_BYTES.to_string()].map(str::to_owned);
        self.run(plan, streams, &args, Udp::read)
    }

    /// Runs a client once, with a server of its own if there is no peer.
    fn run<R>(
        &self,
        plan: Plan,
        streams: u32,
        args: &[String],
        read: fn(&str) -> Result<R, ReadError>,
    ) -> Result<R, Failure> {
        let started = match self.peer {
            Some(_) => None,
            None => Some(self.server()?),
        };

        let local = started.as_ref().map(|(_, server)| server);
        let Some(server) = self.peer.or(local) else { return Err(Failure::Stopped) };
        let mut tries = if self.peer.is_none() { TRIES } else { 1 };
        loop {
            if self.stop.is_asked() {
                return Err(Failure::Stopped);
            }
            let result = self.client(server, plan, streams, args).and_then(|ended| self.read(server, &ended, read));
            tries -= 1;
            match result {
                // The server started here does not listen yet.
                Err(Failure::Other(reason)) if tries > 0 && reason.contains("Connection refused") => {
                    std::thread::sleep(BETWEEN_TRIES);
                }
                // A server started here has ended with the test, or is ended by its drop.
                result => return result,
            }
        }
    }

    /// Starts a server for one test, on a port that was free a moment ago.
    fn server(&self) -> Result<(Running, Peer), Failure> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| Failure::Other(format!("no port is free on 127.0.0.1: {error}")))?.port();
        let server = Peer { host: Ipv4Addr::LOCALHOST.to_string(), port };
        let mut command = Command::new(&self.program);
        command.args(["-s", "-1", "-p", &port.to_string(), "--bind", &server.host]);
        Ok((start(&mut command)?, server))
    }

    fn client(&self, server: &Peer, plan: Plan, streams: u32, args: &[String]) -> Result<Ended, Failure> {
        let (port, seconds, streams) = (server.port.to_string(), plan.seconds.to_string(), streams.to_string());
        let mut command = Command::new(&self.program);
        command.args(["-c", &server.host, "-p", &port, "-J", "-t", &seconds, "-P", &streams]).args(args);
        let limit = Duration::from_secs(plan.seconds + plan.omitted) + SPARE;
        let ended = start(&mut command)?.wait(limit, self.stop);
        match ended.exit {
            Exit::Stopped => Err(Failure::Stopped),
            Exit::Late => {
                let reason = format!("{server} did not answer within {} s", limit.as_secs());
                Err(Failure::Other(self.with_remedy(server, &reason)))
            }
            Exit::Success | Exit::Failure => Ok(ended),
        }
    }

    /// Reads a client's output: some versions fail with a report, some report a failure with status 0.
    fn read<R>(&self, server: &Peer, ended: &Ended, read: fn(&str) -> Result<R, ReadError>) -> Result<R, Failure> {
        read(&ended.stdout).map_err(|error| {
            let complaint = ended.stderr.lines().find(|line| !line.trim().is_empty());
            let reason = match (&error, complaint) {
                (ReadError::NotIperf3(_), Some(line)) => line.trim().to_owned(),
                _ => error.to_string(),
            };
            Failure::Other(self.with_remedy(server, &reason))
        })
    }

    /// Returns the reason, with the remedy on the peer.
    fn with_remedy(&self, server: &Peer, reason: &str) -> String {
        let Some(Peer { host, port }) = self.peer else { return reason.to_owned() };
        let option = if *port == PORT { String::new() } else { format!(" -p {port}") };
        let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        if has(&["resolution", "not known", "No address"]) {
            format!("{reason}: is {host} the right name?")
        } else if has(&["busy"]) {
            format!("{reason}: wait until the other test on {server} is over, or start a second server with another -p")
        } else if has(&["unable to connect", "refused", "did not answer", "No route", "timed out"]) {
            format!("{reason}: start `iperf3 -s{option}` on {host}, and let TCP and UDP to port {port} through")
        } else {
            reason.to_owned()
        }
    }
}

fn start(command: &mut Command) -> Result<Running, Failure> {
    child::start(command).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::NotInstalled,
        _ => Failure::Other(format!("iperf3 cannot be started: {error}")),
    })
}

fn note_tcp(part: &mut Part, group: &str, plan: Plan, tcp: &Raised<Tcp>) {
    let received = figure(&tcp.runs, |run| Some(run.received_bits_per_s));
    part.figures.extend(received.map(|figure| (format!("{group}received_bits_per_s"), figure)));
    let key = format!("{group}round_trip_ns");
    match figure(&tcp.runs, |run| run.round_trip_ns) {
        Some(figure) => part.figures.push((key, figure)),
        None => part.missing.push((key, "iperf3 reports no round trips on this system".to_owned())),
    }
    note_runs(part, "TCP", "", plan, tcp, tcp.runs.iter().map(|run| run.busy));
}

fn note_udp(part: &mut Part, group: &str, plan: Plan, udp: &Raised<Udp>) {
    let figures = [
        ("packets_sent_per_s", (|run| run.sent_per_s) as fn(&Udp) -> f64),
        ("packets_received_per_s", |run| run.received_per_s),
        ("packet_loss_pct", |run| run.loss_pct),
    ];
    let mut values = [0.0; 3];
    for ((key, of), value) in figures.into_iter().zip(&mut values) {
        if let Some(figure) = figure(&udp.runs, |run| Some(of(run))) {
            *value = figure.value;
            part.figures.push((format!("{group}{key}"), figure));
        }
    }

    let [sent_per_s, received_per_s, loss_pct] = values;
    if loss_pct >= LOSS_PCT {
        let [sent, received] = [sent_per_s, received_per_s].map(format_iops_short);
        part.warnings.push(format!(
            "{loss_pct:.0} % of the small packets were lost: {sent} a second were sent, and {received} received, which \
             is the rate that counts"
        ));
    }
    let payload = format!(", payloads of {SMALL_BYTES} bytes as fast as they go");
    note_runs(part, "UDP", &payload, plan, udp, udp.runs.iter().map(|run| run.busy));
}

/// Adds the method of the runs, and reasons to doubt them.
fn note_runs<R>(
    part: &mut Part,
    protocol: &str,
    payload: &str,
    plan: Plan,
    raised: &Raised<R>,
    busy: impl Iterator<Item = Busy>,
) {
    let Raised { streams, runs, is_rising, failure } = raised;
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let (s_streams, s_runs) = (plural(*streams as usize), plural(runs.len()));
    let (number, seconds) = (runs.len(), plan.seconds);
    let key = format!("network.method_{}", protocol.to_lowercase());
    part.facts
        .push((key, format!("{protocol}, {streams} stream{s_streams}{payload}, {number} run{s_runs} of {seconds} s")));

    if let Some(failure) = failure {
        part.warnings.push(format!("{protocol} was not measured to its end: {failure}"));
    } else if *is_rising {
        let what = format!("{protocol}: no time was left to see whether more streams than {streams} bring more");
        part.warnings.push(what);
    }

    let busiest = busy.map(|busy| busy.sender_pct.max(busy.receiver_pct)).fold(0.0, f64::max);
    if busiest >= BUSY_PCT {
        part.warnings.push(format!(
            "{protocol}: iperf3 kept a processor {busiest:.0} % busy, and may be what limits; from version 3.16 on it \
             has a thread for each stream"
        ));
    }
}

#[cfg(test)]
mod tests;
