//! A survey of a trace: the facts that a replay needs before it begins.
//!
//! **Why.** Classes and files must be created, space must be found, and a trace that cannot be replayed must be refused
//! before the target changes.
//!
//! **How.** Reads all requests in order of their beginnings, and keeps sums and the used part of each file. A trace
//! that can be read only once (a FIFO, a pipe) is copied meanwhile to a temporary file without a name, for the second
//! reading.
//!
//! **Limits.** At most [`REGIONS_MAX`] files; later ones share the place of the first.
//!
//! **Example.** A trace of two reads of one file, 4 KiB at 0 and at 1 MiB: a region from 0 to 1,052,672.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use plimsoll::core::Op;
use plimsoll_figures::units::format_count;
use plimsoll_observe::trace::TraceError;
use plimsoll_observe::trace::arrivals::{Arrival, Arrivals};
use plimsoll_observe::trace::span::{Item, Trace};

use super::ReplayError;

/// Most files with a place of their own.
const REGIONS_MAX: usize = 65_536;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassSurvey {
    pub requests: u64,
    pub longest_bytes: u32,
}

#[derive(Debug)]
pub struct Survey {
    pub trace: Trace,
    /// The numbers of requests that are replayed, and of those that were left out.
    pub counts: Arrivals,
    pub sums: Sums,
    /// The trace itself, if its path can be read only once.
    copy: Option<File>,
}

/// Sums of the requests that are replayed.
#[derive(Debug, Default)]
pub struct Sums {
    /// When the first request was queued, in ns on the clock of the trace.
    pub first_ns: u64,
    /// When the last request was queued.
    pub last_ns: u64,
    pub reads: u64,
    pub classes: BTreeMap<u16, ClassSurvey>,
    /// Bytes used by (disk, file): the first, and the one after the last.
    pub regions: BTreeMap<(u16, u32), (u64, u64)>,
}

impl Survey {
    /// Reads the trace at `path`.
    ///
    /// # Errors
    /// [`ReplayError`] if the trace cannot be read, is standard input, or has no request whose beginning is known.
    pub fn read(path: &Path) -> Result<Survey, ReplayError> {
        if path == Path::new("-") {
            return Err(ReplayError::Stdin);
        }
        let name = || path.display().to_string();

        let mut sums = Sums { first_ns: u64::MAX, ..Sums::default() };
        let mut arrivals = Arrivals::new();
        let mut visit = |item: Item| arrivals.visit(&item, &mut |arrival| sums.add(&arrival));
        let is_fifo = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
        let read = match is_fifo {
            false => plimsoll_observe::trace::read(path, &mut visit).map(|trace| (trace, None)),
            true => read_and_copy(path, &mut visit).map(|(trace, copy)| (trace, Some(copy))),
        };
        let (trace, copy) = read.map_err(|error| ReplayError::Trace { path: name(), error })?;
        arrivals.finish(&mut |arrival| sums.add(&arrival));
        if arrivals.given == 0 {
            return Err(ReplayError::Nothing { path: name(), reason: reason(&trace, &arrivals) });
        }

        Ok(Survey { trace, counts: arrivals, sums, copy })
    }

    /// Reads the surveyed trace, at `path`, again.
    pub(super) fn read_again(&self, path: &Path, visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
        let Some(copy) = &self.copy else { return plimsoll_observe::trace::read(path, visit) };
        let mut input: &File = copy;
        input.rewind()?;
        plimsoll_observe::trace::read_from(input, visit)
    }

    /// Returns the time from the first request to the last, in ns.
    pub fn span_ns(&self) -> u64 {
        self.sums.last_ns.saturating_sub(self.sums.first_ns)
    }
}

/// Reads the trace at `path` as [`plimsoll_observe::trace::read`] does. Also returns a copy of the bytes read.
fn read_and_copy(path: &Path, visit: &mut dyn FnMut(Item)) -> Result<(Trace, File), TraceError> {
    let input = File::open(path).map_err(TraceError::Open)?;
    let copy = tempfile::tempfile().map_err(cannot_copy)?;
    let trace = plimsoll_observe::trace::read_from(Copying { input, copy: &copy }, visit)?;
    Ok((trace, copy))
}

fn cannot_copy(error: io::Error) -> io::Error {
    let directory = std::env::temp_dir();
    let text = format!("it can be read only once, and cannot be copied to {}: {error}", directory.display());
    io::Error::new(error.kind(), text + ": set TMPDIR to a directory with room, or name a file")
}

/// Reader that writes the bytes read to a copy.
struct Copying<'a> {
    input: File,
    copy: &'a File,
}

impl Read for Copying<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len_bytes = self.input.read(buffer)?;
        if let Some(part) = buffer.get(..len_bytes) {
            self.copy.write_all(part).map_err(cannot_copy)?;
        }
        Ok(len_bytes)
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
