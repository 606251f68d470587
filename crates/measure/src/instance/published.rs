//! Published figures of machines, copied by hand into cards.
//!
//! **Why.** A claim about a machine is checked against the figures that its own source states.
//!
//! **How.** JSON cards in `published/`, parsed once; [`find`] returns a copy. [`super::claims`] has the claims beside
//! what they give.
//!
//! The figures are those of ScyllaDB's article on i3en.24xlarge of May 2019: processor (stress-ng), network (iperf) and
//! disks (fio) of that machine and of i3.16xlarge, disks and cores of i3.metal. Capacities are those that Amazon
//! states: 8 x 1900 GB and 8 x 7500 GB. Rates of small packets are numbers of datagrams over the 60.3 s of the run. The
//! article does not state the version of stress-ng, only that all machines ran alike: the fact `stress_ng.version`.
//!
//! **Limits.** The figures are rounded as published, from one run each.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::published;
//! let card = published::find("i3en.24xlarge").ok_or("not published")?;
//! assert_eq!(card.value("cpu.cores"), Some(48.0));
//! # Ok::<(), &str>(())
//! ```

use std::sync::LazyLock;

use super::Card;

const TEXTS: [&str; 3] = [
    include_str!("published/i3.16xlarge.json"),
    include_str!("published/i3.metal.json"),
    include_str!("published/i3en.24xlarge.json"),
];

static CARDS: LazyLock<Vec<Card>> =
    LazyLock::new(|| TEXTS.iter().filter_map(|text| Card::from_json("published", text).ok()).collect());

/// Returns a copy of the published card called `name`, in upper or lower case.
pub fn find(name: &str) -> Option<Card> {
    CARDS.iter().find(|card| card.name.eq_ignore_ascii_case(name)).cloned()
}

pub fn names() -> Vec<&'static str> {
    CARDS.iter().map(|card| card.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_a_card_with_its_source() {
        assert_eq!(names(), ["i3.16xlarge", "i3.metal", "i3en.24xlarge"]);
        for card in CARDS.iter() {
            assert_eq!((card.origin.source.contains("Meganode"), card.origin.date.as_str()), (true, "2019-05"));
            for key in ["cpu.cores", "cpu.clock_hz", "cpu.l3_bytes", "disk.bytes", "disk.read_iops"] {
                assert!(card.value(key).is_some(), "{}: {key}", card.name);
            }
        }
        let stressors = |name: &str| {
            let card = find(name);
            card.map_or(0, |card| card.figures.keys().filter(|key| key.starts_with("stress_ng.")).count())
        };
        assert_eq!(["i3.16xlarge", "i3.metal", "I3EN.24XLARGE"].map(stressors), [9, 0, 9]);
    }

    #[test]
    fn rates_of_packets_are_those_of_the_run() {
        let value = |key| find("i3en.24xlarge").and_then(|card| card.value(key)).unwrap_or(0.0);
        let (sent, lost, seconds) = (366_966_173.0, 81_116_999.0, 60.3);
        assert!((value("network.packets_sent_per_s") - sent / seconds).abs() < 1.0);
        assert!((value("network.packets_received_per_s") - (sent - lost) / seconds).abs() < 1.0);
        assert!((value("network.packet_loss_pct") - lost / sent * 100.0).abs() < 1e-3);
    }
}
