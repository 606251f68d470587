//! Finds a machine by name: a card in a file, a published card, or a row of the table of presets.
//!
//! **Why.** Users compare the machine that they measured with those that they could have instead, regardless of the
//! source of the figures.
//!
//! **How.** [`find`] reads a card if the name ends in `.json` or is a file; else it looks the name up among the
//! published cards and the instances of the table of presets. If both have the name, it returns the published card,
//! completed from the table; the fact [`FROM_PRESET`] lists the added figures. A warning lists the figures that both
//! have and that differ, with both sources; `--disk` uses the table's. [`find_all`] finds several machines and gives
//! each a label of its own.
//!
//! **Limits.** The disk figures of a preset are the best case of all disks together. Cores are known for AWS only: a
//! vCPU is a core of a Graviton, else one of the two threads of a core.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::find::find;
//! let card = find("i4i.16xlarge")?;
//! assert_eq!((card.value("cpu.threads"), card.value("cpu.cores")), (Some(64.0), Some(32.0)));
//! let error = find("i4i.16xlage").unwrap_err().to_string();
//! assert!(error.contains("did you mean i4i.16xlarge?"), "{error}");
//! # Ok::<(), plimsoll_measure::instance::find::FindError>(())
//! ```

use std::path::Path;

use plimsoll_figures::units::format_count;
use plimsoll_sim::device::presets::{self, Evidence, Instance};
use thiserror::Error;

use super::{Card, CardError, Figure, Origin, OriginKind, published};

/// Name of the fact that lists the figures added to a published card from the presets.
pub const FROM_PRESET: &str = "origin.from_preset";

/// Factor, up or down, from which on two published figures of one machine count as different.
const DIFFERS: f64 = 1.25;

/// Why there is no card.
#[derive(Debug, Error)]
pub enum FindError {
    #[error(transparent)]
    Card(#[from] CardError),
    #[error("{name}: there is no such file, and no such instance is known: {hint}")]
    Unknown {
        name: String,
        /// The name that was probably meant, or where to find names.
        hint: String,
    },
    #[error("{first} and {second} are the same card: name two that differ")]
    Twice { first: String, second: String },
}

/// A card and its name beside other cards.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub argument: String,
    /// The card's name; with the argument if several cards share the name.
    pub label: String,
    pub card: Card,
}

/// Returns the card called `name`: a file, a published card, or an instance of the table of presets, in any case.
pub fn find(name: &str) -> Result<Card, FindError> {
    let path = Path::new(name);
    if name.ends_with(".json") || path.is_file() {
        return Ok(Card::read(path)?);
    }

    let preset = presets::instances().iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(of_preset);
    match (published::find(name), preset) {
        (Some(card), Some(preset)) => Ok(completed(card, preset)),
        (Some(card), None) | (None, Some(card)) => Ok(card),
        // A device, a pipe or a directory: the reader's error states the fault.
        (None, None) if path.exists() => Ok(Card::read(path)?),
        (None, None) => {
            let names: Vec<&str> = presets::instances().iter().map(|row| row.name).collect();
            let hint = match plimsoll_files::closest_name(name, &names) {
                Some(meant) => format!("did you mean {meant}?"),
                None => {
                    "give a card (`plimsoll instance card -o FILE`) or a name of `plimsoll presets list`".to_owned()
                }
            };
            Err(FindError::Unknown { name: name.to_owned(), hint })
        }
    }
}

/// Finds a card for each name. If several cards share a name, their labels include the arguments.
///
/// # Errors
/// As [`find`]; two names are the same card.
pub fn find_all(names: &[impl AsRef<str>]) -> Result<Vec<Candidate>, FindError> {
    let mut found: Vec<Candidate> = Vec::with_capacity(names.len());
    for name in names.iter().map(AsRef::as_ref) {
        let card = find(name)?;
        if let Some(same) = found.iter().find(|other| other.card == card) {
            return Err(FindError::Twice { first: same.argument.clone(), second: name.to_owned() });
        }
        found.push(Candidate { argument: name.to_owned(), label: card.name.clone(), card });
    }

    let times = |label: &str| found.iter().filter(|other| other.card.name == label).count();
    let is_shared: Vec<bool> = found.iter().map(|candidate| times(&candidate.card.name) > 1).collect();
    for (candidate, is_shared) in found.iter_mut().zip(is_shared) {
        if is_shared && candidate.argument != candidate.label {
            candidate.label = format!("{} ({})", candidate.label, candidate.argument);
        }
    }
    Ok(found)
}

/// Adds to a published card the figures that only `preset` has.
fn completed(mut card: Card, preset: Card) -> Card {
    let source = format!("{} ({})", preset.origin.source, preset.origin.date);
    let (mut added, mut different) = (Vec::new(), Vec::new());

    for (key, figure) in preset.figures {
        match card.figures.get(&key) {
            None => {
                card.missing.remove(&key);
                card.figures.insert(key.clone(), figure);
                added.push(key);
            }
            Some(own) if !(1.0 / DIFFERS..=DIFFERS).contains(&(figure.value / own.value)) => {
                let (own, other) = (format_count(own.value as u64), format_count(figure.value as u64));
                different.push(format!("{key} {own} (the table: {other})"));
            }
            Some(_) => {}
        }
    }

    if !different.is_empty() {
        let Origin { source: own, date, .. } = &card.origin;
        card.warnings.push(format!(
            "{}: {} are those of {own} ({date}); the table of presets, which --disk takes, is {source}",
            card.name,
            different.join(", ")
        ));
    }

    if !added.is_empty() {
        card.facts.insert(FROM_PRESET.to_owned(), format!("{}: table of presets: {source}", added.join(", ")));
        let suspect = preset.warnings.into_iter().filter(|_| added.iter().any(|key| key.starts_with("disk.")));
        card.warnings.extend(suspect);
    }
    card
}

fn of_preset(row: &Instance) -> Card {
    let origin = Origin { kind: OriginKind::Preset, source: row.source.to_owned(), date: row.date.to_owned() };
    let mut card = Card::new(row.name, origin);
    let (total, preset) = (row.total(), row.preset());
    let threads_per_core = threads_per_core(row);
    let disk_bytes = row.disk_gb.zip(row.n_disks).map(|(gb, disks)| gb as f64 * 1e9 * f64::from(disks));
    let known = |what: &str| !preset.defaults.contains(&what);
    let figures = [
        ("cpu.threads", row.vcpus.map(f64::from)),
        ("cpu.cores", row.vcpus.zip(threads_per_core).map(|(vcpus, threads)| f64::from(vcpus) / threads)),
        ("memory.bytes", row.memory_gib.map(|gib| gib * (1u64 << 30) as f64)),
        ("disk.number", row.n_disks.map(f64::from)),
        ("disk.bytes", disk_bytes),
        ("disk.read_iops", Some(total.read_iops as f64)),
        ("disk.write_iops", Some(total.write_iops as f64)),
        ("disk.read_bytes_per_s", Some(total.read_bandwidth_bytes_per_s as f64)),
        ("disk.write_bytes_per_s", Some(total.write_bandwidth_bytes_per_s as f64)),
        ("disk.read_latency_ns", known("read_latency").then_some(preset.unloaded_latency_ns as f64)),
        ("disk.mix_exponent", known("mix_exponent").then_some(preset.mix_exponent_p).filter(|p| p.is_finite())),
        ("network.link_bits_per_s", row.network_gbps.map(|gbps| gbps * 1e9)),
    ];

    for (key, value) in figures {
        match value {
            Some(value) => card.set(key, Figure::exact(value)),
            None => drop(card.missing.insert(key.to_owned(), "the table of presets does not have it".to_owned())),
        }
    }

    let others = "a preset knows disks and sizes only: measure the machine with `plimsoll instance card`";
    for group in ["cpu", "memory", "network", "submission", "stress_ng"] {
        card.missing.insert(group.to_owned(), others.to_owned());
    }

    card.facts.insert("preset.evidence".to_owned(), row.evidence.name().to_owned());
    if row.evidence == Evidence::Derived {
        card.warnings.push(format!("{}: the figures of its disks are derived: {}", row.name, row.source));
    }
    card.warnings.extend(row.suspect.map(|reason| format!("{}: {reason}", row.name)));
    card
}

/// Returns the vCPUs of a core, known for AWS only. The letter `g` behind the generation is a Graviton, which has one
/// thread for each core: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-optimize-cpu.html
fn threads_per_core(row: &Instance) -> Option<f64> {
    let family = row.family();
    let behind_generation = family.trim_start_matches(|c: char| !c.is_ascii_digit());
    let attributes = behind_generation.trim_start_matches(|c: char| c.is_ascii_digit());
    (row.cloud == "aws").then_some(if attributes.starts_with('g') { 1.0 } else { 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_a_card_of_all_disks() {
        // Name, threads, cores, disks, bytes in TB, reads a second.
        let cases = [
            ("i4i.16xlarge", 64.0, 32.0, 4.0, 15.0, 4.0 * 374_273.0),
            ("I3en.24xlarge", 96.0, 48.0, 8.0, 60.0, 0.0),
            ("im4gn.16xlarge", 64.0, 64.0, 4.0, 30.0, 4.0 * 273_030.0),
            ("i8g.24xlarge", 96.0, 96.0, 6.0, 22.5, 2_662_435.0),
            ("i7i.24xlarge", 96.0, 48.0, 6.0, 22.5, 2_647_697.0),
        ];
        for (name, threads, cores, disks, tb, reads) in cases {
            let card = find(name).unwrap();
            let value = |key| card.value(key).unwrap();
            assert_eq!((value("cpu.threads"), value("cpu.cores"), value("disk.number")), (threads, cores, disks));
            assert_eq!(value("disk.bytes"), tb * 1e12, "{name}");
            assert!(reads == 0.0 || value("disk.read_iops") == reads, "{name}");
        }
        let azure = find("Standard_L8s_v3").unwrap();
        assert_eq!(azure.value("cpu.cores"), None);
        assert!(azure.missing.contains_key("cpu.cores"));
        assert!(find("i4i.12xlarge").unwrap().warnings.concat().contains("write_iops is 28 %"));
    }

    #[test]
    fn every_preset_is_a_card_that_can_be_read() {
        for row in presets::instances() {
            let card = of_preset(row);
            assert_eq!(Card::from_json("card.json", &card.to_json()).unwrap(), card, "{}", row.name);
        }
    }

    #[test]
    fn a_published_card_wins_and_says_what_it_has_from_the_preset() {
        let origin = Origin { kind: OriginKind::Published, source: "somebody".into(), date: "2019".into() };
        let mut card = Card::new("i3en.24xlarge", origin);
        card.set("disk.read_iops", Figure::exact(2e6));
        card.missing.insert("memory.bytes".into(), "not said".into());
        let preset = presets::instances().iter().find(|row| row.name == "i3en.24xlarge").map(of_preset).unwrap();
        let both = completed(card, preset);
        assert_eq!(both.value("disk.read_iops"), Some(2e6));
        assert_eq!(both.value("memory.bytes"), Some(768.0 * (1u64 << 30) as f64));
        assert!(!both.missing.contains_key("memory.bytes"));
        let from_preset = both.facts.get(FROM_PRESET).unwrap();
        assert!(from_preset.contains("memory.bytes") && !from_preset.contains("disk.read_iops"), "{from_preset}");
    }

    #[test]
    fn two_publications_of_one_machine_are_told_apart() {
        for name in ["i3.16xlarge", "i3.metal", "i3en.24xlarge"] {
            let card = find(name).unwrap();
            let row = presets::instances().iter().find(|row| row.name == name).unwrap();
            let own = card.value("disk.read_iops").unwrap();
            let differs = !(0.8..=1.25).contains(&(row.total().read_iops as f64 / own));
            let warning = card.warnings.iter().find(|warning| warning.contains("which --disk takes"));
            let has = |part: &str| warning.is_some_and(|warning| warning.contains(part));
            assert_eq!(has(&format_count(row.total().read_iops)), differs, "{name}: {:?}", card.warnings);
            assert!(!differs || (has(&format_count(own as u64)) && has("2019-05") && has(row.date)), "{warning:?}");
        }
        assert!(
            find("i3.16xlarge").unwrap().warnings.concat().contains("disk.read_iops 1,200,000 (the table: 3,289,600)")
        );
    }

    #[test]
    fn what_is_not_known_and_what_is_twice() {
        let cases: [(&[&str], &str); 4] = [
            (&["i4i.16xlage"], "did you mean i4i.16xlarge?"),
            (&["nothing-like-it"], "plimsoll instance card -o FILE"),
            (&["missing.json"], "missing.json: No such file"),
            (&["i4i.16xlarge", "i7i.24xlarge", "I4I.16xlarge"], "i4i.16xlarge and I4I.16xlarge are the same card"),
        ];
        for (names, expected) in cases {
            let error = find_all(names).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let found = find_all(&["i4i.16xlarge", "i7i.24xlarge"]).unwrap();
        assert_eq!(
            found.iter().map(|found| found.label.as_str()).collect::<Vec<_>>(),
            ["i4i.16xlarge", "i7i.24xlarge"]
        );
    }
}
