//! Finds the offloading features of this machine's network cards: packets cut and joined in hardware.
//!
//! **Why.** With offloading, a small packet of a program may travel in a large one. Published packet rates are of cards
//! with offloading switched off, and say so.
//!
//! **How.** `ethtool -k CARD` for each card that is up and has a device, or for `lo` if the peer is this machine.
//!
//! **Limits.** Which card leads to the peer is unknown. Without ethtool nothing is known.
//!
//! **Example.** `generic-segmentation-offload: on` is `gso`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::instance::measure::child;
use crate::load::Stop;

/// Names of the features in `ethtool -k`, and their short ones.
const FEATURES: [(&str, &str); 4] = [
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
    ("large-receive-offload", "lro"),
];
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the features that are on, by card; `None` if no card's are known.
pub(super) fn of_cards(is_loopback: bool, stop: &Stop) -> Option<Vec<(String, Vec<&'static str>)>> {
    let net = Path::new("/sys/class/net");
    let mut names: Vec<String> =
        std::fs::read_dir(net).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let is_up = |name: &String| {
        let state = std::fs::read_to_string(net.join(name).join("operstate")).unwrap_or_default();
        state.trim() == "up" && net.join(name).join("device").exists()
    };
    let is_used = |name: &String| if is_loopback { name == "lo" } else { is_up(name) };
    let features = |name: String| {
        let ended = child::run(Command::new("ethtool").args(["-k", &name]), PATIENCE, stop).ok()?;
        Some((name, switched_on(&ended.stdout)))
    };
    let cards: Vec<_> = names.into_iter().filter(is_used).filter_map(features).collect();
    (!cards.is_empty()).then_some(cards)
}

/// Returns the features that are on in the text of `ethtool -k`.
fn switched_on(text: &str) -> Vec<&'static str> {
    let is_on = |name: &str| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        value.is_some_and(|value| value.split_whitespace().next() == Some("on"))
    };
    FEATURES.into_iter().filter(|(name, _)| is_on(name)).map(|(_, short)| short).collect()
}

/// Returns a sentence on the cards: `eth0: tso, gso, gro on`.
pub(super) fn sentence(cards: &[(String, Vec<&'static str>)]) -> String {
    let card = |(name, on): &(String, Vec<&str>)| match on.as_slice() {
        [] => format!("{name}: off"),
        on => format!("{name}: {} on", on.join(", ")),
    };
    cards.iter().map(card).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_ethtool() {
        let text = "Features for ens5:\ntx-checksumming: on\ntcp-segmentation-offload: off\n\ttx-tcp-segmentation: off [fixed]\n\
                    generic-segmentation-offload: on\ngeneric-receive-offload: on\nlarge-receive-offload: off [fixed]\n";
        assert_eq!(switched_on(text), ["gso", "gro"]);
        assert!(switched_on("").is_empty());
        let cards = [("ens5".to_owned(), vec!["gso", "gro"]), ("ens6".to_owned(), Vec::new())];
        assert_eq!(sentence(&cards), "ens5: gso, gro on; ens6: off");
    }
}
