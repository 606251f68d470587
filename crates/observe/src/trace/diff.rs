//! Two traces of one load: differences beyond chance, the pattern that explains them first.
//!
//! **Why.** "It takes 83 us to dispatch a request, and 1 us with the patch" was the finding of seed 000. A reader
//! should not have to search two files for that line.
//!
//! **How.** Each side is a [`Side`], one pass over its trace: times of each class and stage as a histogram and as means
//! of at most 64 intervals, and [`super::gaps`]. [`diff`] tests mean, median and p99 of each as `plimsoll compare` does
//! (Welch's test on the intervals, resampled quantiles, corrected for their number). A result beyond [`ALPHA`] and
//! above 1 % is a difference. Patterns are the differing dispatch gaps, then shares of time by what stood in the way,
//! then stages, each with the largest ratio first.
//!
//! **Limits.** The load must be the same; the analysis cannot check that. Classes and disks are matched by name, disks
//! of one name by their order. At most [`GROUPS_MAX`] classes times stages are kept. Short traces have few intervals,
//! so they prove few differences.
//!
//! **Example.** `plimsoll trace diff slow.plt fast.plt` begins with
//! `dispatch gap of disk 0: 83.0 us against 1.00 us, 83x shorter`.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::core::Histogram;
use plimsoll_figures::sides::{self, figures, together};
use plimsoll_figures::stats::ALPHA;
use plimsoll_figures::units::format_duration_ns;
use plimsoll_files::variant_name;
use plimsoll_show::table::{Column, csv, fixed};
use plimsoll_sim::rng::Rng;
use serde::Serialize;

use super::gaps::{DiskGaps, Gaps, GapsReport};
use super::parts::Windows;
use super::span::{Item, Span, Trace};
use super::stages::{self, C2R, D2C, Q2C, Q2D};
use crate::entry_within;

pub const SCHEMA: u32 = 1;

/// Most classes times stages.
pub const GROUPS_MAX: usize = 1024;

/// Largest relative change that does not count.
const THRESHOLD: f64 = 0.01;

/// Largest difference of parts of the time that is no pattern.
const PART_DIFFERS: f64 = 0.1;

const SEED: u64 = 1;

const STAGES: [usize; 4] = [Q2D, D2C, C2R, Q2C];

/// Times of one class in one stage.
#[derive(Default)]
struct Times {
    all: Histogram,
    windows: Windows,
}

impl Times {
    fn join(&mut self, other: &Times) {
        self.all.merge(&other.all);
        self.windows.join(&other.windows);
    }
}

/// One of the two traces, while it is read.
pub struct Side {
    times: BTreeMap<(u16, usize), Box<Times>>,
    gaps: Gaps,
}

/// One of the two traces, read.
pub struct SideDone {
    times: BTreeMap<(String, usize), Box<Times>>,
    gaps: GapsReport,
}

/// A figure of both sides. Times are in ns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Class; empty for dispatch gaps.
    pub class: String,
    /// Disk; empty for stages.
    pub disk: String,
    /// `gap`, `Q2D`, `D2C`, `C2R` or `Q2C`.
    pub stage: &'static str,
    /// `mean`, `p50` or `p99`.
    pub figure: &'static str,
    pub base_ns: f64,
    pub other_ns: f64,
    /// Second less first, in per cent of the first; `None` if the first is 0.
    pub change_pct: Option<f64>,
    /// Probability of such a difference by chance, corrected for the number of figures; `None`: too little data.
    pub p: Option<f64>,
    /// `better` (shorter), `worse`, `same` (changed by no more than 1 %), or `open`: no evidence.
    pub verdict: Change,
}

/// How a figure changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Shorter by more than chance explains.
    Better,
    /// Longer by more than chance explains.
    Worse,
    /// Changed by no more than 1 %.
    Same,
    /// Chance may explain it.
    Open,
}

/// Parts of the time, 0 to 1, in which one reason stood in the way of a disk's queues, on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReasonParts {
    pub disk: String,
    /// The reason; `empty`: no work.
    pub reason: String,
    pub base_part: f64,
    pub other_part: f64,
}

/// Two traces compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    /// Differences, one sentence each; the one that explains the others first.
    pub patterns: Vec<String>,
    pub is_worse: bool,
    /// Figures: gaps first, then classes.
    pub figures: Vec<Compared>,
    /// What stood in the way, by disk.
    pub reasons: Vec<ReasonParts>,
    /// Disks and classes that are in one trace only.
    pub unmatched: Vec<String>,
}

impl Default for Side {
    fn default() -> Side {
        Side { times: BTreeMap::new(), gaps: Gaps::new(0) }
    }
}

impl Side {
    pub fn visit(&mut self, item: &Item) {
        self.gaps.visit(item);
        let Item::Span(span) = item else { return };
        for (stage, at_ns, time_ns) in times(span) {
            if let Some(times) = entry_within(&mut self.times, (span.class, stage), GROUPS_MAX) {
                times.all.record(time_ns);
                times.windows.add(at_ns, time_ns as f64);
            }
        }
    }

    pub fn finish(self, trace: &Trace) -> SideDone {
        // A class that was made again has another number, and its old name.
        let mut times: BTreeMap<(String, usize), Box<Times>> = BTreeMap::new();
        for ((class, stage), of_number) in &self.times {
            times.entry((trace.class_name(*class), *stage)).or_default().join(of_number);
        }
        SideDone { times, gaps: self.gaps.finish(trace) }
    }
}

/// Returns for each stage when it ended and how long it took, in ns.
fn times(span: &Span) -> impl Iterator<Item = (usize, u64, u64)> {
    let (stages::Times(times), _) = stages::Times::of(span);
    let ends_ns = [span.out_ns(), span.completed_ns, span.reaped_ns, span.completed_ns];
    let known = move |(stage, end_ns): (usize, Option<u64>)| Some((stage, end_ns?, times.get(stage).copied()??));
    STAGES.into_iter().zip(ends_ns).filter_map(known)
}

/// Compares the second trace with the first.
pub fn diff(base: &SideDone, other: &SideDone) -> DiffReport {
    let mut rng = Rng::new(SEED);
    let mut found = Vec::new();
    let mut unmatched = BTreeSet::new();

    for (name, disk, other) in matched(&base.gaps.disks, &other.gaps.disks, &mut unmatched) {
        let of_gap = |it| compared(String::new(), name.clone(), "gap", it);
        found.extend(figures(side(disk), side(other), &mut rng).into_iter().map(of_gap));
    }

    for ((class, stage), times) in &base.times {
        let key = (class.clone(), *stage);
        let Some(others) = other.times.get(&key) else {
            unmatched.insert(format!("{class}: this class is in the first trace only"));
            continue;
        };
        let (base_means, other_means) = (times.windows.means(), others.windows.means());
        let base = sides::Side { means_ns: &base_means, all: &times.all };
        let other = sides::Side { means_ns: &other_means, all: &others.all };
        let name = stages::STAGE_NAMES.get(*stage).copied().unwrap_or("");
        let of_stage = |it| compared(class.clone(), String::new(), name, it);
        found.extend(figures(base, other, &mut rng).into_iter().map(of_stage));
    }

    for (class, _) in other.times.keys().filter(|key| !base.times.contains_key(*key)) {
        unmatched.insert(format!("{class}: this class is in the second trace only"));
    }

    judge(&mut found);
    let reasons = reason_parts(&base.gaps, &other.gaps);
    DiffReport {
        schema: SCHEMA,
        plimsoll: env!("CARGO_PKG_VERSION"),
        patterns: patterns(&found, &reasons),
        is_worse: found.iter().any(|it| it.verdict == Change::Worse),
        figures: found,
        reasons,
        unmatched: unmatched.into_iter().collect(),
    }
}

fn side(gaps: &DiskGaps) -> sides::Side<'_> {
    sides::Side { means_ns: &gaps.gap_means_ns, all: &gaps.gap_all }
}

/// Pairs the disks of both sides by name, several of one name in their order. If each side has only one disk, pairs
/// these. Returns each pair's name, with a number from the second disk of one name on.
fn matched<'a>(
    base: &'a [DiskGaps],
    other: &'a [DiskGaps],
    unmatched: &mut BTreeSet<String>,
) -> Vec<(String, &'a DiskGaps, &'a DiskGaps)> {
    if let ([base], [other]) = (base, other) {
        return vec![(base.disk.clone(), base, other)];
    }

    let mut others: BTreeMap<String, &DiskGaps> = numbered(other).collect();
    let mut pairs = Vec::new();
    for (name, disk) in numbered(base) {
        match others.remove(&name) {
            Some(other) => pairs.push((name, disk, other)),
            None => drop(unmatched.insert(format!("{name}: this disk is in the first trace only"))),
        }
    }
    unmatched.extend(others.into_keys().map(|name| format!("{name}: this disk is in the second trace only")));
    pairs
}

/// Returns the disks with their names; the second of one name is `NAME (2)`.
fn numbered(disks: &[DiskGaps]) -> impl Iterator<Item = (String, &DiskGaps)> {
    disks.iter().enumerate().map(|(at, disk)| {
        let name = &disk.disk;
        let number = 1 + disks.iter().take(at).filter(|earlier| earlier.disk == *name).count();
        (if number > 1 { format!("{name} ({number})") } else { name.clone() }, disk)
    })
}

fn compared(class: String, disk: String, stage: &'static str, figure: sides::Figure) -> Compared {
    let sides::Figure { name, base_ns, other_ns, p } = figure;
    let change_pct = Some(100.0 * (other_ns / base_ns - 1.0)).filter(|pct| pct.is_finite());
    Compared { class, disk, stage, figure: name, base_ns, other_ns, change_pct, p, verdict: Change::Open }
}

/// Judges all figures, with their p-values corrected together.
fn judge(found: &mut [Compared]) {
    let alone: Vec<f64> = found.iter().filter_map(|it| it.p).collect();
    let mut all = together(&alone).into_iter();
    for it in found {
        it.p = it.p.and_then(|_| all.next());
        let is_small = (it.other_ns - it.base_ns).abs() <= THRESHOLD * it.base_ns;
        let is_sure = it.p.is_some_and(|p| p < ALPHA);
        it.verdict = match (is_small, is_sure) {
            (true, _) => Change::Same,
            (false, false) => Change::Open,
            (false, true) if it.other_ns < it.base_ns => Change::Better,
            (false, true) => Change::Worse,
        };
    }
}

fn reason_parts(base: &GapsReport, other: &GapsReport) -> Vec<ReasonParts> {
    let mut found = Vec::new();
    for (name, disk, other) in matched(&base.disks, &other.disks, &mut BTreeSet::new()) {
        let part = |disk: &DiskGaps, reason: &str| {
            disk.reasons.iter().find(|it| it.reason == reason).map_or(0.0, |it| it.time_part)
        };
        let names: BTreeSet<&str> = disk.reasons.iter().chain(&other.reasons).map(|it| it.reason).collect();
        let mut add = |reason: &str, base_part: f64, other_part: f64| {
            found.push(ReasonParts { disk: name.clone(), reason: reason.to_owned(), base_part, other_part });
        };
        add("empty", disk.empty_part, other.empty_part);
        names.into_iter().for_each(|reason| add(reason, part(disk, reason), part(other, reason)));
    }
    found
}

/// Returns the ratio of the longer time to the shorter.
fn ratio(it: &Compared) -> f64 {
    let (base_ns, other_ns) = (it.base_ns.max(1.0), it.other_ns.max(1.0));
    (base_ns / other_ns).max(other_ns / base_ns)
}

fn patterns(found: &[Compared], reasons: &[ReasonParts]) -> Vec<String> {
    let differs = |it: &&Compared| matches!(it.verdict, Change::Better | Change::Worse);
    let sentence = |it: &Compared| {
        let of = if it.stage == "gap" {
            format!("dispatch gap of {}", it.disk)
        } else {
            format!("{} of {}", it.stage, it.class)
        };
        let word = if it.verdict == Change::Better { "shorter" } else { "longer" };
        let figure = if it.figure == "p50" { String::new() } else { format!(" ({})", it.figure) };
        let ns = |value: f64| format_duration_ns(value.round() as u64);
        let times = ratio(it);
        let times = match times {
            _ if it.base_ns.min(it.other_ns) < 1.0 => String::new(),
            small if small < 10.0 => format!("{small:.1}x "),
            large => format!("{large:.0}x "),
        };
        format!("{of}{figure}: {} against {}, {times}{word}", ns(it.base_ns), ns(it.other_ns))
    };

    // For each place the median, or else the mean, or else the p99.
    let mut places: Vec<&Compared> = Vec::new();
    for figure in ["p50", "mean", "p99"] {
        for it in found.iter().filter(differs).filter(|it| it.figure == figure) {
            let is_told = |old: &&Compared| (&old.class, &old.disk, old.stage) == (&it.class, &it.disk, it.stage);
            if !places.iter().any(is_told) {
                places.push(it);
            }
        }
    }

    places.sort_by(|a, b| ratio(b).total_cmp(&ratio(a)));
    let (gaps, stages): (Vec<&Compared>, Vec<&Compared>) = places.into_iter().partition(|it| it.stage == "gap");

    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    let parts = reasons.iter().filter(|it| (it.base_part - it.other_part).abs() > PART_DIFFERS).map(|it| {
        let what = if it.reason == "empty" {
            "queues without work".to_owned()
        } else {
            format!("queues standing still, {}", it.reason)
        };
        format!("{what}: {} of the time against {} ({})", percent(it.base_part), percent(it.other_part), it.disk)
    });
    gaps.into_iter().map(sentence).chain(parts).chain(stages.into_iter().map(sentence)).collect()
}

impl DiffReport {
    pub fn to_csv(&self) -> String {
        let columns: &[Column<Compared>] = &[
            ("disk", |it| it.disk.clone()),
            ("class", |it| it.class.clone()),
            ("stage", |it| it.stage.to_owned()),
            ("figure", |it| it.figure.to_owned()),
            ("base_ns", |it| fixed(it.base_ns, 1)),
            ("other_ns", |it| fixed(it.other_ns, 1)),
            ("change_pct", |it| fixed(it.change_pct, 6)),
            ("p", |it| fixed(it.p, 6)),
            ("verdict", |it| variant_name(it.verdict)),
        ];
        csv(&self.figures, columns)
    }
}

#[cfg(test)]
mod tests;
