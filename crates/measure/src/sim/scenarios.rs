//! All named scenarios, whichever crate has them.
//!
//! # Why
//! Scenarios live beside what they are about: schedulers in `plimsoll-sim`, caches in `plimsoll-cache`. Who runs them need
//! not know.
//!
//! # How it works
//! The lists of both crates, one after the other. Names are unique; a test sees to it.
//!
//! # Limits
//! A crate that begins to have scenarios is added here.
//!
//! # Example
//! ```
//! use plimsoll_measure::sim::scenarios;
//! assert!(scenarios::find("unconfigured").is_some() && scenarios::find("hot-disk").is_some());
//! assert_eq!(scenarios::crate_of("hot-disk"), "plimsoll-cache");
//! ```

use plimsoll_sim::scenario::Scenario;

/// All scenarios, in the order in which they are best read.
#[must_use]
pub fn all() -> Vec<Scenario> {
    [plimsoll_sim::scenario::all(), plimsoll_cache::scenario::all()].concat()
}

/// The scenario of that name.
#[must_use]
pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

/// The crate that has the scenario of that name.
#[must_use]
pub fn crate_of(name: &str) -> &'static str {
    let is_caches = plimsoll_cache::scenario::all().iter().any(|scenario| scenario.name == name);
    if is_caches { "plimsoll-cache" } else { "plimsoll-sim" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = all().iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all().len());
    }
}
