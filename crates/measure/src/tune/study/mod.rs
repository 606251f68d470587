//! What measurements say: pure functions from samples, curves and grids to findings.
//!
//! # Why
//! Measuring wears disks and takes minutes; thinking about what was measured does not. What is kept apart can be done
//! again, on another machine, and tested with made-up disks whose answer is known.
//!
//! # How it works
//! * [`plimsoll_figures::series`]: rates one after the other: mean and its uncertainty, where the transient ends, trends;
//! * [`steady`]: rounds of a long run: the steady state of the SNIA performance test specification;
//! * [`curves`]: rates by depth, by length, by alignment: the knee, the real block, the length that saturates;
//! * [`cost`]: what a request of a length costs;
//! * [`frontier`]: reads and writes together: the mix exponent;
//! * [`phases`]: what the samples of each phase of a measurement say, and [`assemble`] all of it: the report;
//! * [`outliers`]: runs that do not belong to the others.
//!
//! # Limits
//! Nothing here measures, reads files or knows the time.
//!
//! # Example
//! Five rounds of 100, 102, 104, 106 and 108 operations/s are steady: their range is 7.7 % of the mean (20 allowed),
//! the line through them rises by 7.7 % (10 allowed).

pub(super) mod assemble;
pub(crate) mod cost;
pub(crate) mod curves;
pub(crate) mod frontier;
pub(crate) mod outliers;
pub(super) mod phases;
pub(crate) mod steady;

pub(super) use assemble::{remark, report};
