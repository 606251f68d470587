//! Measurements of disks, loads and machines, real or simulated, and comparisons of results.
//!
//! **Why.** Commands run on terminals and in tests; the measurements behind them need neither.
//!
//! **How.** [`load`] puts loads on a disk; [`mod@test`], [`experiment`] and [`demo`] choose the loads, and [`report`]
//! presents the results. [`tune`] measures what a disk can do, [`instance`] what a machine can do, [`sim`] runs
//! simulated worlds. [`compare`] compares results, [`report_page`] makes one page of any of them, `depot` (feature
//! `parquet`) stores any of them.
//!
//! **Limits.** Observation without load is in `plimsoll-observe`, which never depends on this crate.
//!
//! **Example.** See [`load`] and [`tune`].

#![allow(missing_docs, reason = "the tools' own crate: a name that says all needs no line")]

pub mod compare;
pub mod demo;
#[cfg(feature = "parquet")]
pub mod depot;
pub mod experiment;
pub mod fio_json;
mod foreign;
pub mod instance;
pub mod report;
pub mod report_page;
pub mod sim;
#[cfg(test)]
#[path = "../../skip.rs"]
mod skip;
pub mod test;
pub mod tune;

use std::path::PathBuf;

pub use plimsoll_load as load;
pub use plimsoll_load::compressibility;

/// Groups items with equal keys, in the order of the first item of each key.
pub(crate) fn by_key<K: PartialEq, V>(items: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// The roots of the kernel's trees; parameters, so that tests read trees of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roots {
    pub(crate) proc: PathBuf,
    pub(crate) sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Roots {
        Roots { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys") }
    }
}
