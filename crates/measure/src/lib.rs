//! What is measured: disks, loads and machines, real or simulated; and how results compare.
//!
//! # Why
//! The commands are run on terminals and in tests; what they do needs neither.
//!
//! # How it works
//! [`load`] puts loads on a disk; [`mod@test`], [`experiment`] and [`demo`] say which, and [`report`] what came of it.
//! [`tune`] measures what a disk can do, [`instance`] what a machine can do, [`sim`] runs simulated worlds. [`compare`]
//! sets results against each other, [`report_page`] makes one page of any of them.
//!
//! # Limits
//! What is only looked at, without load, is in `plimsoll-observe`, which never depends on this crate.
//!
//! # Example
//! See [`load`] and [`tune`].

pub mod compare;
pub mod compressibility;
pub mod demo;
pub mod experiment;
pub mod fio_json;
mod foreign;
pub mod instance;
pub mod load;
pub mod report;
pub mod report_page;
pub mod sim;
#[cfg(test)]
#[path = "../../skip.rs"]
mod skip;
pub mod test;
pub mod tune;
