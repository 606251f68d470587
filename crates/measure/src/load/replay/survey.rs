//! The first look at a trace: what a replay needs to know before it begins.
//!
//! # Why
//! Classes and files must be made, space must be found, and what cannot be replayed must be refused before anything is
//! touched.
//!
//! # How it works
//! All requests go by in the order of their beginnings; sums are kept, and for each file the part of it that was used.
//!
//! # Limits
//! At most [`REGIONS_MAX`] files; later ones share the place of the first.
//!
//! # Example
//! A trace of two reads of one file, 4 KiB at 0 and at 1 MiB: a region from 0 to 1,052,672.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll::core::Op;
use plimsoll::trace::format::Names;
use plimsoll_figures::units::format_count;
use plimsoll_observe::trace::arrivals::{Arrival, Arrivals};
use plimsoll_observe::trace::span::{Origin, Trace};

use super::ReplayError;

/// Most files that have a place of their own.
const REGIONS_MAX: usize = 65_536;

/// A class of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassSurvey {
    /// Requests.
    pub requests: u64,
    /// Length of the longest in bytes.
    pub longest_bytes: u32,
}

/// What is in a trace.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Who recorded it.
    pub origin: Origin,
    /// What numbers stand for.
    pub names: Names,
    /// What could not be read, a sentence each.
    pub lost: Vec<String>,
    /// When the first request was handed over, in ns on the clock of the trace.
    pub first_ns: u64,
    /// When the last one was.
    pub last_ns: u64,
    /// Requests.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Given away after one that was handed over later.
    pub unordered: u64,
    /// Left out because only their end is known.
    pub without_begin: u64,
    /// Left out because they were taken back.
    pub cancelled: u64,
    /// By number.
    pub classes: BTreeMap<u16, ClassSurvey>,
    /// Bytes used of each (disk, file): first, and the one behind the last.
    pub regions: BTreeMap<(u16, u32), (u64, u64)>,
}

impl Survey {
    /// Reads the trace at `path`.
    ///
    /// # Errors
    /// It cannot be read, is standard input, or has no request of which the beginning is known.
    pub fn read(path: &Path) -> Result<Survey, ReplayError> {
        if path == Path::new("-") {
            return Err(ReplayError::Stdin);
        }
        let name = || path.display().to_string();
        let mut sums = Sums { first_ns: u64::MAX, ..Sums::default() };
        let mut arrivals = Arrivals::new();
        let read =
            plimsoll_observe::trace::read(path, &mut |item| arrivals.visit(&item, &mut |arrival| sums.add(&arrival)));
        let trace = read.map_err(|error| ReplayError::Trace { path: name(), error })?;
        arrivals.finish(&mut |arrival| sums.add(&arrival));
        if arrivals.given == 0 {
            return Err(ReplayError::Nothing { path: name(), reason: reason(&trace, &arrivals) });
        }
        Ok(Survey {
            origin: trace.origin,
            names: trace.names,
            lost: trace.lost,
            first_ns: sums.first_ns,
            last_ns: sums.last_ns,
            requests: arrivals.given,
            reads: sums.reads,
            unordered: arrivals.unordered,
            without_begin: arrivals.without_begin,
            cancelled: arrivals.cancelled,
            classes: sums.classes,
            regions: sums.regions,
        })
    }

    /// Name of a class; `class 3` where it has none.
    #[must_use]
    pub fn class_name(&self, number: u16) -> String {
        self.names.classes.get(&number).map_or_else(|| format!("class {number}"), |class| class.name.clone())
    }

    /// From the first request to the last, in ns.
    #[must_use]
    pub(crate) fn span_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

fn reason(trace: &Trace, arrivals: &Arrivals) -> String {
    let count = format_count;
    if arrivals.without_begin + arrivals.cancelled > 0 {
        return format!(
            "of {} requests only the end is known, {} were taken back; record from before the load begins",
            count(arrivals.without_begin),
            count(arrivals.cancelled)
        );
    }
    format!("there is no request in its {} events; record while the program works", count(trace.events))
}

#[derive(Default)]
struct Sums {
    first_ns: u64,
    last_ns: u64,
    reads: u64,
    classes: BTreeMap<u16, ClassSurvey>,
    regions: BTreeMap<(u16, u32), (u64, u64)>,
}

impl Sums {
    fn add(&mut self, arrival: &Arrival) {
        self.first_ns = self.first_ns.min(arrival.queued_ns);
        self.last_ns = self.last_ns.max(arrival.queued_ns);
        self.reads += u64::from(arrival.op == Op::Read);
        let class = self.classes.entry(arrival.class).or_default();
        class.requests += 1;
        class.longest_bytes = class.longest_bytes.max(arrival.len_bytes);
        let key = (arrival.disk, arrival.file);
        let has_place = arrival.op.is_transfer() || arrival.op == Op::Discard;
        if has_place && (self.regions.len() < REGIONS_MAX || self.regions.contains_key(&key)) {
            let (first, end) = self.regions.entry(key).or_insert((u64::MAX, 0));
            *first = (*first).min(arrival.offset_bytes);
            *end = (*end).max(arrival.end_bytes());
        }
    }
}
