//! The names of the figures on a card, each with its meaning, its unit and its better direction.
//!
//! **Why.** Cards are compared years after they were made, and by programs. Each figure therefore needs a unit and a
//! direction.
//!
//! **How.** One table, [`FIGURES`]. A key is `group.name`; the name ends in its unit if it has one. Each stressor of
//! stress-ng has a key of its own: `stress_ng.cpu` and so on. Figures of the loopback interface measure the network
//! stack, not the network, and have separate keys: `network.loopback_...`.
//!
//! **Limits.** Operations of stress-ng ("bogo operations") are comparable only between machines that ran the same
//! version of it; the version is a fact of the card.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::figures::{self, Better, Unit};
//! let kind = figures::kind("disk.read_iops").ok_or("no such figure")?;
//! assert_eq!((kind.unit, kind.better), (Unit::PerS, Better::More));
//! assert_eq!(kind.unit.format(250_000.0), "250 k/s");
//! assert!(figures::kind("stress_ng.matrix").is_some());
//! assert_eq!(figures::closest("disk.read_iosp"), Some("disk.read_iops"));
//! # Ok::<(), &str>(())
//! ```

use plimsoll_figures::units::{format_bytes_binary, format_count, format_throughput_decimal};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of items, printed in full.
    Count,
    /// Installed bytes, printed in MiB, GiB.
    BytesBinary,
    /// Bytes in the decimal units of disk vendors, printed in GB, TB.
    BytesDecimal,
    /// Bytes per second, printed in MB/s, GB/s.
    BytesPerS,
    /// Bits per second in the decimal units of networks, printed in Mbit/s, Gbit/s.
    BitsPerS,
    /// Operations, packets or the like per second.
    PerS,
    Hz,
    Ns,
    Percent,
    /// A number without a unit.
    Plain,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::BytesBinary | Unit::BytesDecimal => "bytes",
            Unit::BytesPerS => "bytes/s",
            Unit::BitsPerS => "bits/s",
            Unit::PerS => "1/s",
            Unit::Hz => "Hz",
            Unit::Ns => "ns",
            Unit::Percent => "%",
            Unit::Plain => "1",
        }
    }

    /// Prints `value` with its unit: a count in full, everything else with three or four digits.
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::Count if value >= 1e12 => digits(value),
            Unit::Count => format_count(value.round() as u64),
            Unit::BytesBinary => format_bytes_binary(value.round() as u64),
            Unit::BytesDecimal => scaled(value, "B"),
            Unit::BytesPerS => format_throughput_decimal(value),
            Unit::BitsPerS => scaled(value, "bit/s"),
            Unit::PerS => scaled(value, "/s"),
            Unit::Hz => scaled(value, "Hz"),
            Unit::Ns if value < 1e3 => format!("{} ns", digits(value)),
            Unit::Ns if value < 1e6 => format!("{} us", digits(value / 1e3)),
            Unit::Ns => format!("{} ms", digits(value / 1e6)),
            Unit::Percent => format!("{} %", digits(value)),
            Unit::Plain => digits(value),
        }
    }
}

/// Prints `value` with a decimal prefix: `1.54 GB`.
fn scaled(value: f64, unit: &str) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (by, prefix) = steps.into_iter().find(|(by, _)| value.abs() >= *by).unwrap_or((1.0, ""));
    let space = if prefix.is_empty() && unit.starts_with('/') { "" } else { " " };
    format!("{}{space}{prefix}{unit}", digits(value / by))
}

/// Prints `value` with three digits, or all its whole digits from 1000 on, without trailing zeros after the point; from
/// 10^6 on as a power of ten.
fn digits(value: f64) -> String {
    if value.abs() >= 1e6 {
        return format!("{value:.2e}");
    }
    let decimals = match value.abs() {
        below if below < 9.995 => 2,
        below if below < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    More,
    Less,
    /// A property, neither good nor bad.
    Neither,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FigureKind {
    /// The key: `group.name`.
    pub key: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    pub better: Better,
    /// Whether the figure is counted or advertised, not measured.
    pub is_counted: bool,
}

const fn row(key: &'static str, title: &'static str, unit: Unit, better: Better) -> FigureKind {
    FigureKind { key, title, unit, better, is_counted: false }
}

const fn counted(key: &'static str, title: &'static str, unit: Unit, better: Better) -> FigureKind {
    FigureKind { is_counted: true, ..row(key, title, unit, better) }
}

use Better::{Less, More, Neither};
use Unit::{BitsPerS, BytesBinary, BytesDecimal, BytesPerS, Count, Hz, Ns, PerS, Percent, Plain};

/// Every key except those of stress-ng, in the order in which cards and tables show them.
pub const FIGURES: &[FigureKind] = &[
    counted("cpu.cores", "cores", Count, More),
    counted("cpu.threads", "hardware threads (vCPUs)", Count, More),
    counted("cpu.clock_hz", "clock, as the model states it", Hz, More),
    counted("cpu.l3_bytes", "L3 cache, one socket", BytesBinary, More),
    row("cpu.steal_pct", "time the hypervisor took", Percent, Less),
    counted("memory.bytes", "memory", BytesBinary, More),
    row("submission.io_uring_ns", "CPU time of a 4 KiB read, io_uring", Ns, Less),
    row("submission.aio_ns", "CPU time of a 4 KiB read, linux-aio", Ns, Less),
    row("submission.pread_ns", "CPU time of a 4 KiB read, pread", Ns, Less),
    counted("disk.number", "local disks", Count, Neither),
    counted("disk.bytes", "local disk capacity", BytesDecimal, More),
    row("disk.read_iops", "random reads, 4 KiB", PerS, More),
    row("disk.write_iops", "random writes, 4 KiB", PerS, More),
    row("disk.read_bytes_per_s", "sequential reads", BytesPerS, More),
    row("disk.write_bytes_per_s", "sequential writes", BytesPerS, More),
    row("disk.read_latency_ns", "read latency, idle disk", Ns, Less),
    row("disk.mix_exponent", "exponent of the read/write frontier", Plain, More),
    counted("network.link_bits_per_s", "network, as advertised", BitsPerS, More),
    row("network.received_bits_per_s", "network, received", BitsPerS, More),
    row("network.packets_sent_per_s", "small packets, sent", PerS, More),
    row("network.packets_received_per_s", "small packets, received", PerS, More),
    row("network.packet_loss_pct", "small packets, lost", Percent, Less),
    row("network.round_trip_ns", "round trip under load", Ns, Less),
    row("network.loopback_received_bits_per_s", "loopback, received", BitsPerS, More),
    row("network.loopback_packets_sent_per_s", "loopback, small packets sent", PerS, More),
    row("network.loopback_packets_received_per_s", "loopback, small packets received", PerS, More),
    row("network.loopback_packet_loss_pct", "loopback, small packets lost", Percent, Less),
    row("network.loopback_round_trip_ns", "loopback, round trip under load", Ns, Less),
];

pub const STRESS_NG: &str = "stress_ng.";

const STRESSOR: FigureKind = row("stress_ng.*", "stress-ng, bogo operations of one instance", PerS, More);

/// Returns the meaning of `key`, or `None` if no figure has this name.
pub fn kind(key: &str) -> Option<&'static FigureKind> {
    match key.strip_prefix(STRESS_NG) {
        Some(name) if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') => {
            Some(&STRESSOR)
        }
        Some(_) => None,
        None => FIGURES.iter().find(|kind| kind.key == key),
    }
}

/// Returns the name of `key` in tables; the name of a stress-ng key includes its stressor.
pub fn title(key: &str) -> String {
    match (key.strip_prefix(STRESS_NG), kind(key)) {
        (Some(stressor), _) => format!("stress-ng {stressor}"),
        (None, Some(kind)) => kind.title.to_owned(),
        (None, None) => key.to_owned(),
    }
}

/// Returns the part of a key before its first point.
pub fn group(key: &str) -> &str {
    key.split_once('.').map_or(key, |(group, _)| group)
}

/// Returns the place of `key` in the order of a card; keys of stress-ng come last.
pub fn rank(key: &str) -> usize {
    FIGURES.iter().position(|kind| kind.key == key).unwrap_or(FIGURES.len())
}

/// Returns the key that `key` was probably meant to be, if one is close.
pub fn closest(key: &str) -> Option<&'static str> {
    let keys: Vec<&'static str> = FIGURES.iter().map(|kind| kind.key).collect();
    plimsoll_files::closest_name(key, &keys)
}
