//! Computes amounts per part of a machine, such as the price of a TB, and the balance between parts.
//!
//! **Why.** Machines are bought whole. Which one is cheap depends on the part that runs out first, and price lists do
//! not show that.
//!
//! **How.** [`amounts`] divides figures of a card, or its price, by other figures. A TB is 10^12 bytes, a GB/s 10^9
//! bytes a second. The network is the measured one or else the advertised one, never the loopback interface.
//!
//! **Limits.** The price is that of the whole machine: a price per TB includes processor and memory.
//!
//! **Example.** 60 TB, and 1,258.43 USD a year for each of 48 cores: 1,006.74 USD a year for a TB, 1.25 TB for a core.

use plimsoll_figures::units::format_count;
use serde::Serialize;

use super::Card;
use super::figures::Unit::{self, BytesBinary, BytesDecimal, PerS, Plain};
use super::find::Candidate;
use super::prices::{InstancePrice, PriceList};

const BITS_PER_BYTE: f64 = 8.0;

struct AmountKind {
    key: &'static str,
    title: &'static str,
    /// The unit; `None`: money for a year.
    unit: Option<Unit>,
    /// The figure that is divided; `None`: the price of a year.
    above: Option<&'static str>,
    /// The possible divisors; the first that the card has counts. If empty, nothing divides.
    below: &'static [&'static str],
    /// The divisor's unit: 1e12 for an amount per TB.
    per: f64,
}

type Below = &'static [&'static str];

const fn of(
    key: &'static str,
    title: &'static str,
    unit: Unit,
    above: &'static str,
    below: Below,
    per: f64,
) -> AmountKind {
    AmountKind { key, title, unit: Some(unit), above: Some(above), below, per }
}

const fn price(key: &'static str, title: &'static str, below: Below, per: f64) -> AmountKind {
    AmountKind { key, title, unit: None, above: None, below, per }
}

const CORES: Below = &["cpu.cores"];
const VCPUS: Below = &["cpu.threads"];
const NETWORK: Below = &["network.received_bits_per_s", "network.link_bits_per_s"];
const READS: &str = "disk.read_bytes_per_s";
const WRITES: &str = "disk.write_bytes_per_s";

/// All amounts, in the order in which they are shown.
const AMOUNTS: &[AmountKind] = &[
    of("disk_bytes_per_core", "storage per core", BytesDecimal, "disk.bytes", CORES, 1.0),
    of("memory_bytes_per_core", "memory per core", BytesBinary, "memory.bytes", CORES, 1.0),
    of("read_iops_per_core", "reads per core", PerS, "disk.read_iops", CORES, 1.0),
    of("read_iops_per_vcpu", "reads per vCPU", PerS, "disk.read_iops", VCPUS, 1.0),
    of("disk_read_per_network", "disk reads per network, bytes", Plain, READS, NETWORK, BITS_PER_BYTE),
    of("disk_write_per_network", "disk writes per network, bytes", Plain, WRITES, NETWORK, BITS_PER_BYTE),
    of("disk_per_memory", "disk per memory, bytes", Plain, "disk.bytes", &["memory.bytes"], 1.0),
    price("price_per_year", "price", &[], 1.0),
    price("price_per_core_year", "price per core", CORES, 1.0),
    price("price_per_vcpu_year", "price per vCPU", VCPUS, 1.0),
    price("price_per_tb_year", "price per TB", &["disk.bytes"], 1e12),
    price("price_per_million_read_iops_year", "price per M reads/s", &["disk.read_iops"], 1e6),
    price("price_per_million_write_iops_year", "price per M writes/s", &["disk.write_iops"], 1e6),
    price("price_per_gbps_write_year", "price per GB/s of writes", &[WRITES], 1e9),
];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AmountRow {
    pub key: &'static str,
    pub title: &'static str,
    /// The unit; `money` is in the currency of the prices, a year.
    pub unit: &'static str,
    /// A cell for each machine, in the order of the machines.
    pub cells: Vec<AmountCell>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AmountCell {
    pub label: String,
    /// The amount; null if missing.
    pub value: Option<f64>,
    /// The amount for people, or the reason why it is missing.
    pub shown: String,
}

/// Returns the amounts of machines; without `prices`, leaves out those of money.
pub fn amounts(candidates: &[Candidate], prices: Option<&PriceList>) -> Vec<AmountRow> {
    let row = |kind: &AmountKind| {
        let cell = |candidate: &Candidate| {
            let price = prices.and_then(|prices| prices.instance(&candidate.card.name));
            let amount = amount(kind, &candidate.card, price);
            let shown = match (&amount, kind.unit) {
                (Ok(amount), Some(unit)) => unit.format(*amount),
                (Ok(amount), None) => money(*amount),
                (Err(reason), _) => reason.clone(),
            };
            AmountCell { label: candidate.label.clone(), value: amount.ok(), shown }
        };
        let unit = kind.unit.map_or("money", Unit::name);
        AmountRow { key: kind.key, title: kind.title, unit, cells: candidates.iter().map(cell).collect() }
    };
    AMOUNTS.iter().filter(|kind| prices.is_some() || kind.unit.is_some()).map(row).collect()
}

/// Returns an amount of a machine, or why it is unknown.
fn amount(kind: &AmountKind, card: &Card, price: Option<&InstancePrice>) -> Result<f64, String> {
    let above = match kind.above {
        Some(key) => card.value(key).ok_or_else(|| format!("no {key}"))?,
        None => price.map(|price| price.per_year).ok_or("no price")?,
    };
    let below = match kind.below {
        [] => kind.per,
        keys => {
            let known = keys.iter().find_map(|key| card.value(key)).filter(|value| *value > 0.0);
            known.ok_or_else(|| format!("no {}", keys.last().unwrap_or(&"figure")))?
        }
    };
    let amount = above / below * kind.per;
    if amount.is_finite() { Ok(amount) } else { Err(format!("{} is too small to divide by", kind.below.join(" or "))) }
}

/// Prints money without its currency, with commas between groups of three digits: two digits after the point, none from
/// 10,000 on; from 10^12 on as a power of ten.
pub fn money(value: f64) -> String {
    if value >= 1e12 {
        return format!("{value:.2e}");
    }
    if value >= 10_000.0 {
        return format_count(value.round() as u64);
    }
    let cents = (value * 100.0).round() as u64;
    format!("{}.{:02}", format_count(cents / 100), cents % 100)
}

#[cfg(test)]
mod tests {
    use super::super::{Card, Figure as Figured, Origin, prices};
    use super::*;

    const PRICES: &str = "
date: 2019-05
currency: USD
region: us-east
source: s
commitment: 1 year
instances:
- {name: i3en, per_core_year: 1258.43, cores: 48}
";

    fn card(name: &str, bytes: f64, iops: f64, bytes_per_s: f64) -> Card {
        let mut card = Card::new(name, Origin::measured("2026-01-01"));
        let figures = [("disk.bytes", bytes), ("disk.read_iops", iops), ("disk.read_bytes_per_s", bytes_per_s)];
        for (key, value) in figures.into_iter().chain([("cpu.cores", 48.0)]) {
            card.set(key, Figured::exact(value));
        }
        card
    }

    #[test]
    fn amounts_are_those_of_the_article() {
        let list = prices::parse("p.yaml", PRICES).unwrap();
        let mut card = card("i3en", 60e12, 2e6, 16.6e9);
        card.set("network.link_bits_per_s", Figured::exact(100e9));
        // The loopback interface is no network.
        card.set("network.loopback_received_bits_per_s", Figured::exact(10e9));
        let candidate = Candidate { argument: "i3en".into(), label: "i3en".into(), card };
        let rows = amounts(std::slice::from_ref(&candidate), Some(&list));
        let of = |key: &str| rows.iter().find(|row| row.key == key).unwrap().cells[0].shown.as_str();
        let cases = [
            ("disk_bytes_per_core", "1.25 TB"),
            ("price_per_core_year", "1,258.43"),
            ("price_per_tb_year", "1,006.74"),
            ("price_per_year", "60,405"),
            ("read_iops_per_core", "41.7 k/s"),
            ("disk_read_per_network", "1.33"),
            ("price_per_million_read_iops_year", "30,202"),
        ];
        for (key, expected) in cases {
            assert_eq!(of(key), expected, "{key}");
        }
        let missing = rows.iter().filter(|row| row.cells[0].value.is_none()).map(|row| row.key);
        let missing: Vec<&str> = missing.collect();
        let without = ["memory_bytes_per_core", "read_iops_per_vcpu", "disk_write_per_network", "disk_per_memory"];
        assert_eq!(missing[..4], without);
        let mut other = candidate.clone();
        other.card.name = "other".to_owned();
        let rows = amounts(&[other], Some(&list));
        assert!(rows.iter().any(|row| row.cells[0].shown == "no price"));
    }
}
