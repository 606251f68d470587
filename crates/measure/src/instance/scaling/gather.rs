//! Gathers families from the table of presets, from cards, and from CSV files.
//!
//! **Why.** Figures come from different sources, and one report serves them all.
//!
//! **How.** [`families`] takes names: of a CSV file, of a card (`.json`), of a family or of an instance of it (`i7i`,
//! `i7i.4xlarge`). All cards together are grouped by the family in their names; their advertised figures are looked up
//! in the table of presets. Only measured instances of that table count; rated and derived ones are left out with a
//! warning.
//!
//! **Limits.** The size of a machine is its number of vCPUs if known, else that of its name (`names`).
//!
//! **Example.** `families(&["i4i".into()])` returns the family i4i with ten sizes.

use std::path::Path;

use plimsoll_figures::units::quoted;
use plimsoll_files::ConfigError;
use plimsoll_files::presets::{self, AdvertisedBasis, Instance};
use plimsoll_sim::device::presets::Evidence;
use thiserror::Error;

use super::csv::csv_from_file;
use super::names::{family_of, vcpus_of};
use super::{AdvertisedKind, FIGURES, Family, Input, Size};
use crate::instance::{Card, CardError};

/// Why there is nothing to report on.
#[derive(Debug, Error)]
pub enum ScalingError {
    #[error(transparent)]
    Csv(#[from] ConfigError),
    #[error(transparent)]
    Card(#[from] CardError),
    #[error("no family is called {name}: {help}")]
    UnknownFamily {
        name: String,
        /// The name that was probably meant, or where to find names.
        help: String,
    },
    #[error("{family}: {sizes} measured size(s), and how a figure scales takes at least two: {help}")]
    TooFewSizes { family: String, sizes: usize, help: String },
}

/// Reads the families of `names`: families or instances of the table of presets, CSV files, cards.
///
/// # Errors
/// A name is none of these, a file cannot be read, or a family has fewer than two sizes.
pub fn families(names: &[String]) -> Result<Input, ScalingError> {
    let mut input = Input::default();
    let mut cards = Vec::new();
    for name in names {
        let path = Path::new(name);
        let ends_in = |wanted: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted));
        let read = if ends_in("json") {
            cards.push(Card::read(path)?);
            continue;
        } else if ends_in("csv") || path.is_file() {
            csv_from_file(path)?
        } else {
            of_presets(name)?
        };

        input.families.extend(read.families);
        input.warnings.extend(read.warnings);
    }

    if !cards.is_empty() {
        let read = of_cards(&cards)?;
        input.families.extend(read.families);
        input.warnings.extend(read.warnings);
    }
    Ok(input)
}

/// Returns the family called `name`, or that of the instance called `name`, from the table of presets, in upper or
/// lower case.
///
/// # Errors
/// There is no such family, or it has fewer than two measured sizes.
pub(crate) fn of_presets(name: &str) -> Result<Input, ScalingError> {
    let family = presets::find(name).map_or_else(|| name.to_owned(), Instance::family);
    let members: Vec<&Instance> =
        presets::instances().iter().filter(|instance| instance.family().eq_ignore_ascii_case(&family)).collect();
    let Some(first) = members.first() else { return Err(unknown_family(name)) };
    let (family, source) = (first.family(), format!("{}, {}", first.source, first.date));

    let mut warnings = Vec::new();
    let not_measured: Vec<&str> = members
        .iter()
        .filter(|instance| instance.evidence != Evidence::Measured)
        .map(|instance| instance.name)
        .collect();
    if !not_measured.is_empty() {
        warnings.push(format!("{family}: left out, not measured: {}", not_measured.join(", ")));
    }
    for instance in &members {
        warnings.extend(instance.suspect.map(|why| format!("{}: {why}", instance.name)));
    }

    if advertised_kind(first) == AdvertisedKind::Inferred {
        warnings.push(format!(
            "{family}: what is advertised was inferred from these measured figures of the small sizes: that they agree \
             with it is circular; only the difference of the larger ones says something"
        ));
    }

    let sizes: Vec<Size> =
        members.iter().filter(|instance| instance.evidence == Evidence::Measured).filter_map(|i| preset(i)).collect();
    if sizes.len() < 2 {
        let help = "name another family, or bring measured sizes as cards or CSV".to_owned();
        return Err(ScalingError::TooFewSizes { family, sizes: sizes.len(), help });
    }
    Ok(Input { families: vec![Family { name: family, source, sizes }], warnings })
}

fn unknown_family(name: &str) -> ScalingError {
    let mut families: Vec<String> = presets::instances().iter().map(Instance::family).collect();
    families.sort_unstable();
    families.dedup();
    let names: Vec<&str> = families.iter().map(String::as_str).collect();
    let help = match presets::meant(name, &names) {
        meant if meant.is_empty() => {
            format!("name a CSV file, cards that end in .json, or one of {}", names.join(", "))
        }
        meant => format!("did you mean `{}`?", meant.join("` or `")),
    };
    ScalingError::UnknownFamily { name: quoted(name), help }
}

/// Returns a size from a row of the table, or `None` if its vCPUs are unknown.
fn preset(instance: &Instance) -> Option<Size> {
    let vcpus = instance.vcpus.map(f64::from).or_else(|| vcpus_of(instance.name))?;
    Some(Size {
        name: instance.name.to_owned(),
        vcpus,
        n_disks: instance.n_disks,
        measured: instance.total().in_order().map(|figure| Some(figure as f64)),
        advertised: advertised(instance),
        reference: [None; 4],
        submission_ns: None,
    })
}

fn advertised(instance: &Instance) -> [Option<(f64, AdvertisedKind)>; 4] {
    let kind = advertised_kind(instance);
    let [read, write] =
        instance.advertised_iops.map_or([None; 2], |iops| iops.map(|figure| Some((figure as f64, kind))));
    [read, None, write, None]
}

fn advertised_kind(instance: &Instance) -> AdvertisedKind {
    match instance.advertised_basis {
        Some(AdvertisedBasis::Inferred) => AdvertisedKind::Inferred,
        Some(AdvertisedBasis::Stated) | None => AdvertisedKind::Stated,
    }
}

/// Groups cards into families. Of several cards of one machine the latest counts.
///
/// # Errors
/// No two cards of one family have a disk figure.
pub(crate) fn of_cards(cards: &[Card]) -> Result<Input, ScalingError> {
    let mut input = Input::default();
    let mut by_date: Vec<&Card> = cards.iter().collect();
    by_date.sort_by_key(|card| &card.origin.date);
    for card in by_date {
        let known = presets::find(&card.name);
        let vcpus = card.value("cpu.threads").or_else(|| known.and_then(|known| known.vcpus).map(f64::from));
        let vcpus = vcpus.or_else(|| vcpus_of(&card.name)).filter(|vcpus| *vcpus > 0.0);
        let measured = FIGURES.map(|(key, _)| card.value(key).filter(|value| *value > 0.0));
        let why = match vcpus {
            _ if measured.iter().all(Option::is_none) => "it has no figure of a disk",
            None => "it has no `cpu.threads`, and its name no size (FAMILY.SIZE)",
            Some(_) => "",
        };
        let (Some(vcpus), "") = (vcpus, why) else {
            input.warnings.push(format!("{}: left out: {why}", card.name));
            continue;
        };

        let size = Size {
            name: card.name.clone(),
            vcpus,
            n_disks: card.value("disk.number").map(|disks| disks as u32),
            measured,
            advertised: known.map_or([None; 4], advertised),
            reference: [None; 4],
            submission_ns: card.value("submission.io_uring_ns").or_else(|| card.value("submission.aio_ns")),
        };

        let mut known = input.families.iter_mut().flat_map(|family| &mut family.sizes);
        if let Some(earlier) = known.find(|known| known.name == size.name) {
            *earlier = size;
            input.warnings.push(format!("{}: of its cards, that of {} counts", card.name, card.origin.date));
            continue;
        }
        input.add(family_of(&card.name), "cards", size);
    }

    if input.families.iter().all(|family| family.sizes.len() < 2) {
        return Err(too_few_cards(&input));
    }
    let alone = input.without_single_sizes();
    input.warnings.extend(alone.iter().map(|family| format!("{family}: left out: one size only")));
    Ok(input)
}

/// Returns the error for cards without a family, with the reason for each card.
fn too_few_cards(input: &Input) -> ScalingError {
    let alone = input.families.iter().flat_map(|family| family.sizes.iter().map(move |size| (family, size)));
    let alone = alone.map(|(family, size)| match vcpus_of(&size.name) {
        Some(_) => format!("{}: the only card of a family called {}", size.name, family.name),
        None => format!("{}: its name has no size (FAMILY.SIZE), so that it is a family of its own", size.name),
    });
    let reasons: Vec<String> = input.warnings.iter().cloned().chain(alone).collect();
    let help = format!("{}; name cards of machines of one family and of different size", reasons.join("; "));
    ScalingError::TooFewSizes { family: "cards".to_owned(), sizes: input.families.len().min(1), help }
}
