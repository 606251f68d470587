//! Reads the family and the size from the name of an instance.
//!
//! **Why.** Cards and price lists seldom have more than the name of an instance, but scaling compares sizes of one
//! family.
//!
//! **How.** If a preset has the name, it states both. Otherwise the name itself is parsed as clouds write names:
//! `i4i.8xlarge` is of family `i4i` and has 32 vCPUs, `z3-highmem-88-highlssd` has 88.
//!
//! **Limits.** A name in no cloud's form is a family of its own, of unknown size.
//!
//! **Example.** `Standard_L16s_v9` has 16 vCPUs.

use plimsoll_files::presets;

/// Returns the family of an instance: its name without the size.
pub(super) fn family_of(name: &str) -> String {
    if let Some(known) = presets::find(name) {
        return known.family();
    }
    name.split_once('.')
        .map_or_else(|| name.chars().filter(|c| !c.is_ascii_digit()).collect(), |(family, _)| family.to_owned())
}

/// Returns the vCPUs that an instance's name states: 32 for `8xlarge`; otherwise the first number after a `-` or `_`,
/// with or without letters before it.
pub(super) fn vcpus_of(name: &str) -> Option<f64> {
    if let Some(known) = presets::find(name).and_then(|known| known.vcpus) {
        return Some(f64::from(known));
    }
    let size = name.rsplit('.').next().unwrap_or(name);
    match size {
        "medium" => return Some(1.0),
        "large" => return Some(2.0),
        "xlarge" => return Some(4.0),
        _ => {}
    }

    let number = |text: &str| text.parse::<u32>().ok().filter(|number| (1..=100_000).contains(number)).map(f64::from);
    if let Some(times) = size.strip_suffix("xlarge") {
        return Some(number(times)? * 4.0);
    }
    name.split(['-', '_']).skip(1).find_map(|part| {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        number(digits.get(..end)?)
    })
}
