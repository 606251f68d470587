//! Analyses measurements: pure functions from samples, curves and grids to findings.
//!
//! # Why
//! Measuring wears disks and takes minutes; analysing the samples does not. Because it is separate, the analysis can be
//! repeated, also on another machine, and tested with simulated disks whose true figures are known.
//!
//! # How it works
//! * [`plimsoll_figures::series`]: consecutive rates: mean and its uncertainty, end of the transient, trends;
//! * [`steady`]: rounds of a long run: the steady state of the SNIA performance test specification;
//! * [`curves`]: rates by depth, by length, by alignment: the knee, the real block, the length that saturates;
//! * [`cost`]: the cost of a request by its length;
//! * [`frontier`]: reads and writes together: the mix exponent;
//! * [`apart`]: whether operations and bytes have limits of their own;
//! * [`phases`]: the findings of each phase of a measurement, and [`assemble`] all of them: the report;
//! * [`outliers`]: runs that differ too much from the others.
//!
//! # Limits
//! No function here measures, reads files or reads a clock.
//!
//! # Example
//! Five rounds of 100, 102, 104, 106 and 108 operations/s are steady: their range is 7.7 % of the mean (20 allowed),
//! the line through them rises by 7.7 % (10 allowed).

mod apart;
pub(super) mod assemble;
pub(crate) mod cost;
pub(crate) mod curves;
pub(crate) mod frontier;
pub(crate) mod outliers;
pub(super) mod phases;
pub(crate) mod steady;

pub(super) use assemble::{remark, report};
