//! Traces in a depot: their spans, and histograms of their stages.
//!
//! **Why.** Spans answer every question and take some 26 bytes each; histograms take a thirtieth, and keep percentiles.
//!
//! **How.** `spans` has the columns of `trace export` behind the time of day at which a piece begins. `hist` has a row
//! for each second, disk, class, operation, stage and bucket that is not empty: the buckets of [`Histogram`], by their
//! middle. Counts of equal buckets add up, so percentiles over any rows are those of one histogram, within 0.78 %.
//!
//! **Limits.** A trace of the kernel is read twice: the first time for its names. A bucket may have several rows of one
//! second, where pieces end long after others that began with them. A stage that ends before it begins is in `spans`
//! only.
//!
//! **Example.** `plimsoll depot DEPOT run.plt --host db1`.

use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::RandomState;
use plimsoll::core::{Histogram, Op};

use super::{DepotError, Files, Place, Table, Written};
use crate::columns::parquet::BATCH_ROWS;
use crate::columns::{Column, cell, int, known, name_cell, text};
use crate::trace::export::csv::COLUMNS;
use crate::trace::show::Head;
use crate::trace::span::{Item, Span};
use crate::trace::stages::{STAGE_NAMES, STAGES, Times};
use crate::trace::{self, TraceError};

const US_PER_S: i64 = 1_000_000;

/// Most groups of histograms in memory, some 10 KB each. If one more is needed, all are written.
const GROUPS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    /// Unix time in ns at which the trace begins; `None`: as the trace says.
    pub at_unix_ns: Option<i64>,
    /// Whether to store spans, and not only histograms.
    pub with_spans: bool,
}

/// Why a trace was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Depot(#[from] DepotError),
}

/// The time of day before the columns of a span.
static AT: [Column<Span, Head>; 1] = [known("at_utc", cell!(Micros, at_us))];

/// Returns the time of day at which a span begins, in microseconds since 1970.
fn at_us(span: &Span, head: &Head) -> Option<i64> {
    let begin_ns = i64::try_from(span.begin_ns()?).ok()?;
    Some(head.unix_at_zero_ns?.checked_add(begin_ns)?.div_euclid(1000))
}

struct Bucket {
    at_us: i64,
    key: Key,
    /// Index in [`STAGE_NAMES`].
    stage: usize,
    bucket_ns: u64,
    pieces: u32,
}

static HIST: [Column<Bucket, Head>; 7] = [
    known("at_utc", cell!(Micros, |it, _| Some(it.at_us))),
    known("disk", name_cell!(|it| it.key.disk.into(), |it, head| text(head.disk(it.key.disk)))),
    known("class", name_cell!(|it| it.key.class.into(), |it, head| text(head.class(it.key.class)))),
    known("op", name_cell!(|it| it.key.op as u32, |it, _| text(it.key.op.name()))),
    known("stage", name_cell!(|it| it.stage as u32, |it, _| text(STAGE_NAMES[it.stage]))),
    known("bucket_ns", cell!(I64, |it, _| int(it.bucket_ns))),
    known("pieces", cell!(I64, |it, _| int(it.pieces))),
];

/// What the pieces of a group have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// Seconds since 1970.
    second: i64,
    disk: u16,
    class: u16,
    op: Op,
}

/// Stores the trace at `path`. Returns its files, and a sentence for each thing that was lost.
///
/// # Errors
/// [`StoreError`]; the files of an earlier storing then stay as they were.
pub fn store(place: &Place, path: &Path, options: TraceOptions) -> Result<(Vec<Written>, Vec<String>), StoreError> {
    let mut head = trace::read_head(path)?;
    head.unix_at_zero_ns = Some(unix_at_zero_ns(&head, options)?);

    let spans = Files::new(place, Table::Spans, AT.iter().chain(&COLUMNS));
    let hist = Hist { files: Files::new(place, Table::Hist, &HIST), groups: HashMap::default() };
    let held = Vec::with_capacity(BATCH_ROWS);
    let mut sink = Sink { head, spans, held, at_us: 0, hist, with_spans: options.with_spans, without_time: 0 };
    let mut stored = Ok(());
    let trace = trace::read(path, &mut |item| {
        if let (Item::Span(span), Ok(())) = (item, &stored) {
            stored = sink.take(&span);
        }
    })?;
    stored?;

    let mut notes = trace.lost;
    notes.extend(trace.notes);
    if sink.without_time > 0 {
        notes.push(format!("{} pieces have no time and are left out", sink.without_time));
    }
    Ok((sink.finish()?, notes))
}

/// Returns the unix time in ns at time stamp 0 of the trace.
fn unix_at_zero_ns(head: &Head, options: TraceOptions) -> Result<i64, DepotError> {
    match options.at_unix_ns {
        Some(at_ns) => Ok(at_ns.saturating_sub_unsigned(head.begin_ns.unwrap_or(0))),
        None => head.unix_at_zero_ns.ok_or(DepotError::NoTime { what: "trace" }),
    }
}

struct Sink {
    head: Head,
    spans: Files<Span, Head>,
    /// Spans of one part that are not in `spans` yet.
    held: Vec<Span>,
    /// The time of the last of them.
    at_us: i64,
    hist: Hist,
    with_spans: bool,
    without_time: u64,
}

impl Sink {
    fn take(&mut self, span: &Span) -> Result<(), DepotError> {
        let Some(at_us) = at_us(span, &self.head) else {
            self.without_time += 1;
            return Ok(());
        };
        if self.with_spans {
            if self.held.len() == BATCH_ROWS || self.spans.part(at_us) != self.spans.part(self.at_us) {
                self.store_held()?;
            }
            self.held.push(*span);
            self.at_us = at_us;
        }
        self.hist.record(at_us, span, &self.head)
    }

    fn store_held(&mut self) -> Result<(), DepotError> {
        self.spans.push(self.at_us, &self.held, &self.head)?;
        self.held.clear();
        Ok(())
    }

    /// Puts spans in place before histograms, so that a reader who finds histograms finds the spans, too. Without
    /// spans, removes those of an earlier storing.
    fn finish(mut self) -> Result<Vec<Written>, DepotError> {
        self.store_held()?;
        self.hist.write(&self.head)?;
        let mut written = self.spans.finish()?;
        written.extend(self.hist.files.finish()?);
        Ok(written)
    }
}

/// The histograms of the seconds that are not written yet.
struct Hist {
    files: Files<Bucket, Head>,
    groups: HashMap<Key, Box<[Histogram; STAGES]>, RandomState>,
}

impl Hist {
    fn record(&mut self, at_us: i64, span: &Span, head: &Head) -> Result<(), DepotError> {
        let key = Key { second: at_us.div_euclid(US_PER_S), disk: span.disk, class: span.class, op: span.op };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            self.write(head)?;
        }
        let stages = self.groups.entry(key).or_default();
        let (Times(times), _) = Times::of(span);
        for (histogram, ns) in stages.iter_mut().zip(times) {
            ns.into_iter().for_each(|ns| histogram.record(ns));
        }
        Ok(())
    }

    /// Writes all groups in the order of time, and drops them.
    fn write(&mut self, head: &Head) -> Result<(), DepotError> {
        let mut groups: Vec<_> = self.groups.drain().collect();
        groups.sort_by_key(|(Key { second, disk, class, op }, _)| (*second, *disk, *class, op.name()));
        for (key, stages) in groups {
            let at_us = key.second * US_PER_S;
            let mut rows = Vec::new();
            for (stage, histogram) in stages.iter().enumerate() {
                rows.extend(histogram.iter().map(|(longest_ns, pieces)| {
                    // The duration that `Histogram::percentile` returns for this bucket.
                    let width_ns = Histogram::bucket_width_ns(longest_ns);
                    let bucket_ns = longest_ns + 1 - width_ns + width_ns / 2;
                    Bucket { at_us, key, stage, bucket_ns, pieces }
                }));
            }
            self.files.push(at_us, &rows, head)?;
        }
        Ok(())
    }
}
