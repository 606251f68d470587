//! All named scenarios of all crates.
//!
//! **Why.** Scenarios are defined beside their subject: schedulers in `plimsoll-sim`, caches in `plimsoll-cache`. The
//! code that runs them need not know this.
//!
//! **How.** Concatenates the lists of both crates. A test checks that names are unique.
//!
//! **Limits.** A further crate with scenarios must be added here.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::sim::scenarios;
//! assert!(scenarios::find("unconfigured").is_some() && scenarios::find("hot-disk").is_some());
//! assert_eq!(scenarios::crate_of("hot-disk"), "plimsoll-cache");
//! ```

use plimsoll_sim::scenario::Scenario;

/// Returns all scenarios, in the best order for reading.
pub fn all() -> Vec<Scenario> {
    [plimsoll_sim::scenario::all(), plimsoll_cache::scenario::all()].concat()
}

pub fn find(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

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
