//! Observation of disks and programs: a host's disks, the requests of a trace, running programs.
//!
//! # Why
//! A question about what a disk does now, or did in a recording, needs no measurement and must not disturb the disk.
//!
//! # How it works
//! [`stat`] judges the disks of a host, interval by interval; [`trace`] shows where the time of requests went;
//! [`metrics`] writes the judgements of [`stat`] as Prometheus text; [`attach`] finds running programs and changes
//! their limits; `depot` (feature `parquet`) keeps all of it as tables of a fleet.
//!
//! # Limits
//! Nothing here puts load on a disk.
//!
//! # Example
//! See [`stat`] and [`trace`].

#![allow(missing_docs, reason = "the tools' own crate: a name that says all needs no line")]

pub mod attach;
mod columns;
#[cfg(feature = "parquet")]
pub mod depot;
pub mod metrics;
#[cfg(test)]
#[path = "../../skip.rs"]
mod skip;
pub mod stat;
pub mod trace;

/// Returns the value of `key`, or a new one if the map has fewer than `max`.
fn entry_within<K: Ord, V: Default>(map: &mut std::collections::BTreeMap<K, V>, key: K, max: usize) -> Option<&mut V> {
    let has_room = map.len() < max || map.contains_key(&key);
    has_room.then(|| map.entry(key).or_default())
}
