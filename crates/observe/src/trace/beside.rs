//! A program's own trace and the kernel's of the same time, side by side: which of them held a request, and how long.
//!
//! **Why.** The time that a program sees as "in the device" contains the system call, the kernel's own queue, the
//! device, and the time until the shard polls. Only both traces together show these parts.
//!
//! **How.** Both traces use CLOCK_MONOTONIC, so a kernel request that is part of one of ours lies between our dispatch
//! and our completion. Among the candidates, the offset decides: files lie on the disk in long pieces, and within one
//! piece the distance from the offset in the file to that on the disk is constant. A first reading finds the distances
//! that recur, a second one matches with them. Neither the file nor the machine is needed.
//!
//! ```text
//! ours    Queued ---- Dispatched ------------------------------------------- Completed ---- Reaped
//! kernel                          Q ------------- D ------------------- C
//!         scheduler   |  submit   |  kernel queue |       device        | unseen    | reaping
//! ```
//!
//! If the kernel has our request in parts, it counts from the first Q and first D to the last C; if the kernel merged
//! it with others, it has the times of the whole.
//!
//! **Limits.** Reads and writes that bypass the page cache, on one disk. Across arrays and device mapper the places do
//! not fit together unless the upper device was recorded. If only one request was in flight, time alone may decide;
//! such matches are counted apart. Distances are kept for 65,536 places; kernel requests for 2 s.
//!
//! **Example.** `plimsoll trace kernel vda.blktrace --beside own.plt`; in the program: [`beside`].

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use plimsoll::core::Histogram;
use plimsoll_figures::units::format_count;
use plimsoll_show::table::{Column, csv, fixed};
use serde::Serialize;

use self::window::{Below, Place, Window, time_of};
use super::span::{Item, Origin, Span, Trace};
use super::{TraceError, read};

pub const SCHEMA: u32 = 1;

/// Spans per message from a reading thread, and most messages in its channel.
const BATCH: usize = 1024;
const BATCHES: usize = 16;
/// Most distances counted at one time.
const SHIFTS_MAX: usize = 1 << 16;
/// Sightings from which a distance is certain, not chance.
const SURE: u32 = 8;
/// Fewest sightings of a distance that is tried: short traces have no more.
const LIKELY: u32 = 2;
/// Most distances tried for a part of a file.
const TRIED_MAX: usize = 16;

/// Why two traces cannot be laid side by side.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    /// A trace cannot be read; its path, and why.
    #[error("{0}: {1}")]
    Read(String, TraceError),
    /// The traces are not a program's and the kernel's with a common clock.
    #[error("{0}")]
    Unsuitable(String),
}

/// Time that requests spent in one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// `scheduler`, `submit`, `kernel_queue`, `device`, `unseen`, `reaping`, `total`.
    pub name: &'static str,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Part of the total time, in per cent.
    pub share_pct: f64,
}

/// Where a part of a file lies, as the traces show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shift {
    pub file: String,
    /// Name of the disk in the kernel's trace.
    pub disk: String,
    /// Offset on the disk less offset in the file, in bytes.
    pub shift_bytes: i64,
    /// Requests found with this distance.
    pub requests: u64,
}

/// Both traces side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BesideReport {
    pub schema: u32,
    /// Reads and writes of ours that were dispatched and completed.
    pub own_requests: u64,
    /// Own requests that were found in the kernel's trace.
    pub matched: u64,
    /// Matched requests that the kernel had in several parts.
    pub in_parts: u64,
    /// Matched requests that are part of a longer request of the kernel.
    pub merged: u64,
    /// Matched requests that were found by time and length alone.
    pub by_time_alone: u64,
    pub unmatched: u64,
    /// Requests of the kernel between our first and last one that match none of ours.
    pub foreign: u64,
    /// Flushes, discards, and requests without an end, which are not compared.
    pub not_compared: u64,
    /// Time by stage, in the order in which a request passes them; empty if nothing matched.
    pub stages: Vec<Stage>,
    /// Where files lie, the most used first; at most 32.
    pub shifts: Vec<Shift>,
    /// Losses of both traces, and doubts about the result, one sentence each.
    pub lost: Vec<String>,
}

impl BesideReport {
    /// Returns a CSV line for each stage: `stage,mean_ns,p50_ns,p99_ns,max_ns,share_pct`.
    pub fn to_csv(&self) -> String {
        let columns: &[Column<Stage>] = &[
            ("stage", |it| it.name.to_owned()),
            ("mean_ns", |it| fixed(it.mean_ns, 1)),
            ("p50_ns", |it| it.p50_ns.to_string()),
            ("p99_ns", |it| it.p99_ns.to_string()),
            ("max_ns", |it| it.max_ns.to_string()),
            ("share_pct", |it| fixed(it.share_pct, 3)),
        ];
        csv(&self.stages, columns)
    }
}

const STAGES: [&str; 7] = ["scheduler", "submit", "kernel_queue", "device", "unseen", "reaping", "total"];

/// Lays the trace `own` of a program beside the trace `kernel` of the same time and machine. Reads both twice.
pub fn beside(own: &Path, kernel: &Path) -> Result<BesideReport, BesideError> {
    if [own, kernel].contains(&Path::new("-")) {
        return Err(BesideError::Unsuitable("both traces are read twice: name files, not standard input".to_owned()));
    }

    let mut shifts = Shifts::default();
    let traces = walk(own, kernel, &mut |span, window| shifts.learn(span, window))?;
    check(&traces)?;

    let mut sums = Sums::default();
    let tried = shifts.by_part();
    let (.., foreign) = walk(own, kernel, &mut |span, window| sums.take(span, window, &shifts, &tried))?;
    Ok(sums.report(&traces, foreign))
}

fn check((own, kernel, _): &Walked) -> Result<(), BesideError> {
    let problem = match (own.origin, kernel.origin) {
        (Origin::Own, Origin::Kernel) if !own.is_monotonic => {
            "the program's trace has virtual time: it is of a simulation"
        }
        (Origin::Own, Origin::Kernel) if !kernel.is_monotonic => {
            "the kernel's trace has a clock of its own: text of blkparse counts from the beginning of the trace; give \
             the binary file"
        }
        (Origin::Own, Origin::Kernel) => return Ok(()),
        (Origin::Kernel, Origin::Own) => "they are the wrong way round: the program's own trace goes to --beside",
        (Origin::Own, Origin::Own) => "both are traces of programs: one must be of the kernel",
        (Origin::Kernel, Origin::Kernel) => "both are traces of the kernel: one must be a program's own",
    };
    Err(BesideError::Unsuitable(problem.to_owned()))
}

/// Our trace, the kernel's, and the number of kernel requests that match none of ours.
type Walked = (Trace, Trace, u64);

/// Reads both traces at once, and calls `each` with each request of ours and the kernel's requests around its end.
fn walk(own: &Path, kernel: &Path, each: &mut dyn FnMut(&Span, &mut Window)) -> Result<Walked, BesideError> {
    thread::scope(|scope| {
        let [(own_to, own_from), (kernel_to, kernel_from)] = [sync_channel(BATCHES), sync_channel(BATCHES)];
        let own_end = scope.spawn(move || send(own, own_to));
        let kernel_end = scope.spawn(move || send(kernel, kernel_to));
        let mut window = Window::new(kernel_from);

        for span in own_from.iter().flatten() {
            if let (Some(begin_ns), Some(end_ns)) = (span.dispatched_ns.or(span.submitted_ns), span.completed_ns) {
                window.begin_ns = window.begin_ns.min(begin_ns);
                window.end_ns = window.end_ns.max(end_ns);
                window.read_to(end_ns);
            }
            each(&span, &mut window);
        }

        window.read_to(window.end_ns);
        let foreign = window.finish();

        let end = |path: &Path, end: thread::Result<Result<Trace, TraceError>>| match end {
            Ok(end) => end.map_err(|error| BesideError::Read(path.display().to_string(), error)),
            Err(_) => Err(BesideError::Unsuitable(format!("{}: the reader has failed", path.display()))),
        };
        Ok((end(own, own_end.join())?, end(kernel, kernel_end.join())?, foreign))
    })
}

fn send(path: &Path, to: SyncSender<Vec<Span>>) -> Result<Trace, TraceError> {
    let mut batch = Vec::with_capacity(BATCH);
    let trace = read(path, &mut |item| {
        let Item::Span(span) = item else { return };
        batch.push(span);
        if batch.len() >= BATCH {
            // If the receiver was dropped, the rest is still read for its errors.
            let _ = to.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
        }
    });
    let _ = to.send(batch);
    trace
}

/// A part of a file, a disk, and a distance.
type ShiftKey = ((u32, u64), u16, i64);

/// Length of the parts of files with distances of their own: 64 MiB, as a power of two. Long files lie in many pieces.
const PART_BITS: u32 = 26;

fn part_of(span: &Span) -> (u32, u64) {
    (span.file, span.offset_bytes >> PART_BITS)
}

/// The distances to try for each part of a file.
type Tried = HashMap<(u32, u64), Vec<(u16, i64)>>;

/// How often each distance has been seen.
#[derive(Default)]
struct Shifts {
    seen: HashMap<ShiftKey, u32>,
}

fn shift_of(span: &Span, below: &Below) -> ShiftKey {
    (part_of(span), below.disk, below.offset_bytes.wrapping_sub(span.offset_bytes) as i64)
}

impl Shifts {
    fn seen(&self, span: &Span, below: &Below) -> u32 {
        self.seen.get(&shift_of(span, below)).copied().unwrap_or(0)
    }

    /// Counts the distances to all candidates. If some are sure, counts only those, so that chance does not fill the
    /// table.
    fn learn(&mut self, span: &Span, window: &mut Window) {
        if !span.op.is_transfer() {
            return;
        }

        let mut within = window.within(span);
        if within.iter().any(|(_, below)| below.len_bytes == u64::from(span.len_bytes)) {
            within.retain(|(_, below)| below.len_bytes == u64::from(span.len_bytes));
        }

        let is_sure = within.iter().any(|(_, below)| self.seen(span, below) >= SURE);
        for (_, below) in &within {
            if !is_sure || self.seen(span, below) >= SURE {
                if self.seen.len() >= SHIFTS_MAX {
                    // Drop distances seen once: they are chance. If there are none, keep only the sure ones.
                    let before = self.seen.len();
                    self.seen.retain(|_, count| *count > 1);
                    if self.seen.len() == before {
                        self.seen.retain(|_, count| *count >= SURE);
                    }
                }
                let count = self.seen.entry(shift_of(span, below)).or_insert(0);
                *count = count.saturating_add(1);
            }
        }
    }

    /// Returns the distances of each part of a file, the likeliest first.
    fn by_part(&self) -> Tried {
        let mut all: Vec<(&ShiftKey, &u32)> = self.seen.iter().filter(|(_, count)| **count >= LIKELY).collect();
        all.sort_by_key(|(key, count)| (std::cmp::Reverse(**count), **key));
        let mut by_part: Tried = HashMap::new();
        for ((part, disk, shift), _) in all {
            let tried = by_part.entry(*part).or_default();
            if tried.len() < TRIED_MAX {
                tried.push((*disk, *shift));
            }
        }
        by_part
    }
}

/// The kernel's requests that make up one of ours, and their times together: first Q and D, last C.
type Found = (Vec<Place>, Below);

#[derive(Default)]
struct Sums {
    report: BesideReport,
    stages: [Histogram; STAGES.len()],
    /// Requests by file, disk and distance.
    used: HashMap<(u32, u16, i64), u64>,
}

impl Sums {
    fn take(&mut self, span: &Span, window: &mut Window, shifts: &Shifts, tried: &Tried) {
        if !span.op.is_transfer() || span.completed_ns.is_none() || span.out_ns().is_none() {
            self.report.not_compared += 1;
            return;
        }
        self.report.own_requests += 1;
        let tried = tried.get(&part_of(span)).map_or(&[][..], Vec::as_slice);
        let within = window.within(span);
        let found = self.whole(span, &within, window, shifts, tried);
        let found = found.or_else(|| self.parts(span, window, tried)).or_else(|| self.only_one(span, &within));
        if let Some((places, below)) = found {
            for place in places {
                if let Some(it) = window.below.get_mut(&place) {
                    it.is_ours = true;
                }
            }
            self.record(span, below);
        }
    }

    /// Finds one request of the same length at a distance seen before: the distance seen most often.
    fn whole(
        &mut self,
        span: &Span,
        within: &[(Place, Below)],
        window: &Window,
        shifts: &Shifts,
        tried: &[(u16, i64)],
    ) -> Option<Found> {
        let at = |(disk, shift): &(u16, i64)| Some((*disk, span.offset_bytes.checked_add_signed(*shift)?));
        let there = tried.iter().filter_map(at).flat_map(|(disk, begin)| window.between(span, disk, begin, begin));

        let same = within.iter().copied().chain(there);
        let same = same.filter(|(_, it)| it.len_bytes == u64::from(span.len_bytes) && !it.is_ours);
        let seen = same.map(|(place, below)| (shifts.seen(span, &below), place, below));

        // If a place was read repeatedly, the request that ended last matches.
        let (_, place, below) =
            seen.filter(|(seen, ..)| *seen >= LIKELY).max_by_key(|(seen, place, _)| (*seen, *place))?;

        self.report.in_parts += u64::from(below.pieces > 1);
        self.use_shift(&shift_of(span, &below));
        Some((vec![place], below))
    }

    /// Finds requests that together cover `span` at a distance known for the file: the distance that explains most of
    /// its time.
    fn parts(&mut self, span: &Span, window: &Window, tried: &[(u16, i64)]) -> Option<Found> {
        let (begin_ns, end_ns) = time_of(span)?;
        let covered = tried.iter().filter_map(|(disk, shift)| {
            let begin = span.offset_bytes.checked_add_signed(*shift)?;
            let end = begin.checked_add(u64::from(span.len_bytes))?;
            let first = begin.saturating_sub(window.longest_bytes);
            let overlap = |it: &Below| {
                it.offset_bytes.saturating_add(it.len_bytes).min(end).saturating_sub(it.offset_bytes.max(begin))
            };
            let there = window.between(span, *disk, first, end.saturating_sub(1));
            let there: Vec<(Place, Below)> = there.into_iter().filter(|(_, it)| overlap(it) > 0).collect();
            let bytes: u64 = there.iter().map(|(_, it)| overlap(it)).sum();
            let all = there.iter().map(|(_, it)| *it).reduce(|a, b| a.with(&b))?;
            let unexplained_ns = (all.queued_ns - begin_ns) + (end_ns - all.completed_ns);
            (bytes >= u64::from(span.len_bytes)).then_some((unexplained_ns, (part_of(span), *disk, *shift), there, all))
        });

        let (_, shift, there, all) = covered.min_by_key(|(unexplained_ns, shift, ..)| (*unexplained_ns, *shift))?;
        self.report.in_parts += u64::from(there.len() > 1);
        self.report.merged += u64::from(there.len() == 1);
        self.use_shift(&shift);
        Some((there.iter().map(|(place, _)| *place).collect(), all))
    }

    fn use_shift(&mut self, ((file, _), disk, shift): &ShiftKey) {
        *self.used.entry((*file, *disk, *shift)).or_insert(0) += 1;
    }

    /// Finds the only request of that length in that time.
    fn only_one(&mut self, span: &Span, within: &[(Place, Below)]) -> Option<Found> {
        let mut same = within.iter().filter(|(_, below)| below.len_bytes == u64::from(span.len_bytes));
        let (Some((place, below)), None) = (same.next(), same.next()) else { return None };
        if below.is_ours {
            return None;
        }
        self.report.by_time_alone += 1;
        Some((vec![*place], *below))
    }

    fn record(&mut self, span: &Span, below: Below) {
        self.report.matched += 1;
        let out_ns = span.dispatched_ns.or(span.submitted_ns).unwrap_or(below.queued_ns);
        let seen_ns = span.completed_ns.unwrap_or(below.completed_ns);
        let end_ns = span.reaped_ns.unwrap_or(seen_ns);
        let begin_ns = span.queued_ns.unwrap_or(out_ns);
        let ends = [begin_ns, out_ns, below.queued_ns, below.submitted_ns, below.completed_ns, seen_ns, end_ns];
        let stages = ends.iter().zip(ends.iter().skip(1)).map(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns));
        for (histogram, ns) in self.stages.iter_mut().zip(stages.chain([end_ns.saturating_sub(begin_ns)])) {
            histogram.record(ns);
        }
    }

    fn report(self, (own, kernel, _): &Walked, foreign: u64) -> BesideReport {
        let total = self.stages.last().map_or(0.0, Histogram::mean);
        let stage = |(name, times): (&&'static str, &Histogram)| Stage {
            name,
            mean_ns: times.mean(),
            p50_ns: times.percentile(50.0),
            p99_ns: times.percentile(99.0),
            max_ns: times.max(),
            share_pct: if total > 0.0 { 100.0 * times.mean() / total } else { 0.0 },
        };

        let stages = STAGES.iter().zip(&self.stages).filter(|_| self.report.matched > 0).map(stage).collect();
        let shifts = self.shifts(own, kernel);
        let unmatched = self.report.own_requests - self.report.matched;
        let mut report = BesideReport { schema: SCHEMA, unmatched, foreign, stages, shifts, ..self.report };
        report.lost = report.doubts(own, kernel);
        report
    }

    fn shifts(&self, own: &Trace, kernel: &Trace) -> Vec<Shift> {
        let mut used: Vec<(&(u32, u16, i64), &u64)> = self.used.iter().collect();
        used.sort_by_key(|(key, requests)| (std::cmp::Reverse(**requests), **key));
        let shift = |((file, disk, shift_bytes), requests): &(&(u32, u16, i64), &u64)| Shift {
            file: own.names.files.get(file).map_or_else(|| format!("file {file}"), |file| file.path.clone()),
            disk: kernel.disk_name(*disk),
            shift_bytes: *shift_bytes,
            requests: **requests,
        };
        used.iter().take(32).map(shift).collect()
    }
}

impl BesideReport {
    fn doubts(&self, own: &Trace, kernel: &Trace) -> Vec<String> {
        let mut lost: Vec<String> = own.lost.iter().map(|sentence| format!("our trace: {sentence}")).collect();
        lost.extend(kernel.lost.iter().map(|sentence| format!("the kernel's trace: {sentence}")));
        if 10 * self.unmatched > self.own_requests {
            lost.push(format!(
                "{} of {} requests are not in the kernel's trace: was it recorded at the same time, on the device that \
                 the files are on, and do requests go past the page cache?",
                format_count(self.unmatched),
                format_count(self.own_requests)
            ));
        }
        if 2 * self.by_time_alone > self.matched {
            lost.push("most requests were found by time and length alone: some may be somebody else's".to_owned());
        }
        lost
    }
}

mod window;

#[cfg(test)]
mod tests;
