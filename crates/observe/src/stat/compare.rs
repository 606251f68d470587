//! Two periods of one device, compared: what changed, and which explanations that leaves.
//!
//! # Why
//! "30 % more writes at the same `%util`: what does that prove?" Less than people believe. In a table of two columns a
//! reader finds the explanation that he expects; here each usual explanation has evidence for and against it, in
//! figures.
//!
//! # How it works
//! A [`Side`] is the mean over one interval or more: rates by time, `await` and sizes by requests. [`compare`] compares
//! two of them, lists misleading figures ([`Comparison::findings`]) and weighs five hypotheses (`hypotheses.rs`).
//! Evidence is strong or weak; the judgement follows from it by one rule:
//!
//! | evidence | judgement |
//! |---|---|
//! | strong against, none strong for | refuted |
//! | strong for, none strong against | likely |
//! | strong for and strong against, or none at all | cannot be told |
//! | more weak against than for | unlikely |
//! | at least as much weak for | possible |
//!
//! Evidence does not depend on which side is named first.
//!
//! # Limits
//! Columns end at the device: an explanation above it (programs, file systems, networks) follows only by exclusion. U
//! counts only if it comes from a model of the disk. Means over many intervals hide changes within them.
//!
//! # Example
//! 16,597 writes a second at 0.14 ms and 96 %util, then 21,357 at 0.07 ms and 98 %: that the disk was at its limit is
//! refuted, and `%util` proves nothing. By Little's law 2.32 and 1.49 requests were under way, as `aqu-sz` says.

mod findings;
mod hypotheses;

use std::collections::BTreeMap;

use plimsoll_show::answer::upper_first;
use plimsoll_show::page::{Block, Section};
use plimsoll_show::table::Table;
use serde::Serialize;

use super::interval::{COLUMNS, Mean};
use super::output::keyed;
use super::{Basis, Columns, CpuShares, DeviceFacts, Observed, Remark, Verdict};

pub const SCHEMA: u32 = 1;

/// The heading of the section with the answer.
pub const ANSWER: &str = "Answer";

/// A period of a device: means over its intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    pub name: String,
    pub device: String,
    pub intervals: usize,
    /// Total length of the intervals in seconds; `None` if one is not known.
    pub duration_s: Option<f64>,
    /// Whether it is the mean since the start of the host.
    pub is_since_boot: bool,
    pub columns: Columns,
    pub cpu: Option<CpuShares>,
    /// Mean of U over intervals where it comes from a model of the disk.
    pub capacity_use: Option<f64>,
    pub saturation: Option<f64>,
    /// The verdict that held longest; `None` without any.
    pub verdict: Option<Verdict>,
}

impl Side {
    /// Returns the mean of all intervals that have columns of `device`; `None` if there is none. Intervals that begin
    /// with the start of the host count only if there are no others.
    pub fn of(name: &str, observed: &[Observed], device: &str) -> Option<Side> {
        let find = |observed: &'_ &Observed| {
            let mut devices = observed.devices.iter();
            devices.any(|judged| judged.interval.device == device && judged.interval.gap.is_none())
        };
        let mut found: Vec<&Observed> = observed.iter().filter(find).collect();
        if found.iter().any(|observed| !observed.is_since_boot) {
            found.retain(|observed| !observed.is_since_boot);
        }

        let weight = |observed: &Observed| observed.duration_s.filter(|seconds| *seconds > 0.0).unwrap_or(1.0);
        let judged = || {
            found.iter().filter_map(|observed| {
                let judged = observed.devices.iter().find(|judged| judged.interval.device == device)?;
                Some((weight(observed), judged))
            })
        };
        judged().next()?;

        let columns: Vec<(f64, Columns)> = judged().map(|(weight, judged)| (weight, judged.interval.columns)).collect();
        let modelled = judged().filter(|(_, judged)| matches!(judged.capacity_basis, Basis::Model(_)));
        let cpu = |at: usize| {
            let share = |cpu: CpuShares| cpu.to_array().get(at).copied();
            mean(found.iter().map(|observed| (weight(observed), observed.cpu.and_then(share))))
        };
        Some(Side {
            name: name.to_owned(),
            device: device.to_owned(),
            intervals: found.len(),
            duration_s: found.iter().map(|observed| observed.duration_s).sum(),
            is_since_boot: found.iter().any(|observed| observed.is_since_boot),
            columns: mean_columns(&columns),
            cpu: cpu(0).map(|_| CpuShares::from_array(std::array::from_fn(|at| cpu(at).unwrap_or(0.0)))),
            capacity_use: mean(modelled.map(|(weight, judged)| (weight, judged.capacity_use))),
            saturation: mean(judged().map(|(weight, judged)| (weight, judged.saturation))),
            verdict: most(judged().map(|(weight, judged)| (weight, judged.verdict))),
        })
    }
}

fn most(verdicts: impl Iterator<Item = (f64, Verdict)>) -> Option<Verdict> {
    let mut weights: BTreeMap<Verdict, f64> = BTreeMap::new();
    for (weight, verdict) in verdicts {
        *weights.entry(verdict).or_default() += weight;
    }
    weights.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(verdict, _)| verdict)
}

/// Returns the weighted mean of the known values.
fn mean(values: impl Iterator<Item = (f64, Option<f64>)>) -> Option<f64> {
    let known = values.filter_map(|(weight, value)| value.filter(|value| value.is_finite()).map(|v| (weight, v)));
    let sums = known.map(|(weight, value)| (weight, weight * value));
    let (weights, sum) = sums.reduce(|(a, b), (c, d)| (a + c, b + d))?;
    Some(if weights > 0.0 { sum / weights } else { 0.0 })
}

fn mean_columns(intervals: &[(f64, Columns)]) -> Columns {
    let mut means = Columns::default();
    for (at, (column, mean_of)) in COLUMNS.iter().zip(means.all_mut()).enumerate() {
        // A mean over requests is weighted by their number.
        let requests = |columns: &Columns| match column.mean {
            Mean::ByReads => columns.reads_per_s,
            Mean::ByWrites => columns.writes_per_s,
            Mean::ByDiscards => columns.discards_per_s,
            Mean::ByFlushes => columns.flushes_per_s,
            Mean::ByRequests => columns.requests_per_s(),
            Mean::ByTime | Mean::OfMerges => None,
        };
        let value = |columns: &Columns| columns.all().get(at).copied().flatten();
        let weighted = |(weight, columns): &(f64, Columns)| (weight * requests(columns).unwrap_or(1.0), value(columns));
        *mean_of = mean(intervals.iter().map(weighted));
    }

    let merged = |printed: Option<f64>, merges: Option<f64>, requests: Option<f64>| match merges.zip(requests) {
        Some((merges, requests)) if merges + requests > 0.0 => Some(100.0 * merges / (merges + requests)),
        _ => printed,
    };
    Columns {
        read_merged_percent: merged(means.read_merged_percent, means.read_merges_per_s, means.reads_per_s),
        write_merged_percent: merged(means.write_merged_percent, means.write_merges_per_s, means.writes_per_s),
        discard_merged_percent: merged(means.discard_merged_percent, means.discard_merges_per_s, means.discards_per_s),
        ..means
    }
}

/// Knowledge beside the columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Facts about the device; `None` if not known.
    pub facts: Option<DeviceFacts>,
    /// A rate that a graph shows for side A, to find the graph's unit.
    pub graph_rate: Option<f64>,
}

/// The comparison of two sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub schema: u32,
    pub device: String,
    pub a: SideName,
    pub b: SideName,
    /// All judgements in one line.
    pub answer: String,
    /// The figures of both sides: iostat's keys, then ours. Figures that are 0 or missing on both are left out.
    pub columns: Vec<Change>,
    /// Wrong conclusions that the figures invite, and whether the figures agree with each other.
    pub findings: Vec<Remark>,
    /// The hypotheses, in a fixed order: `saturated`, `flush-pressure`, `throttled`, `remote`, `above-the-disk`.
    pub hypotheses: Vec<Hypothesis>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideName {
    pub name: String,
    pub intervals: usize,
    /// Total length of the intervals in seconds; `None` if one is not known.
    pub duration_s: Option<f64>,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// iostat's key, such as `w/s`, or ours: `requests_per_s`, `await_ms`, `capacity_use`, `saturation`.
    pub column: &'static str,
    pub a: Option<f64>,
    pub b: Option<f64>,
    /// The second over the first; `None` if one is not known or the first is 0.
    pub ratio: Option<f64>,
}

/// The judgement on a hypothesis; the module's table says how it follows from the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Strong evidence speaks against it, and none for it.
    Refuted,
    /// More evidence speaks against it than for it, all of it weak.
    Unlikely,
    /// At least as much evidence speaks for it as against it, all of it weak.
    Possible,
    /// Strong evidence speaks for it, and none against it.
    Likely,
    /// There is no evidence, or strong evidence both for and against it.
    CannotBeTold,
}

impl Judgement {
    pub const fn words(self) -> &'static str {
        match self {
            Judgement::Refuted => "refuted",
            Judgement::Unlikely => "unlikely",
            Judgement::Possible => "possible",
            Judgement::Likely => "likely",
            Judgement::CannotBeTold => "cannot be told",
        }
    }
}

/// An explanation with the evidence for and against it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hypothesis {
    /// `saturated`, `flush-pressure`, `throttled`, `remote` or `above-the-disk`.
    pub code: &'static str,
    pub claim: &'static str,
    pub judgement: Judgement,
    pub reason: String,
    pub evidence_for: Vec<String>,
    pub evidence_against: Vec<String>,
}

/// Compares two sides of a device, or of two devices, which the result then names both.
pub fn compare(a: &Side, b: &Side, context: &Context) -> Comparison {
    let pair = Pair { a, b, letters: ["A", "B"] };
    let hypotheses = hypotheses::all(&pair, context);
    Comparison {
        schema: SCHEMA,
        device: if a.device == b.device { a.device.clone() } else { format!("{} and {}", a.device, b.device) },
        a: SideName { name: a.name.clone(), intervals: a.intervals, duration_s: a.duration_s },
        b: SideName { name: b.name.clone(), intervals: b.intervals, duration_s: b.duration_s },
        answer: answer(&hypotheses),
        columns: changes(a, b),
        findings: findings::all(&pair, context),
        hypotheses,
    }
}

/// Formats all judgements in one line: "Likely: throttled. Refuted: saturated."
fn answer(hypotheses: &[Hypothesis]) -> String {
    use Judgement::{CannotBeTold, Likely, Possible, Refuted, Unlikely};
    let order = [Likely, Possible, Unlikely, Refuted, CannotBeTold];
    let sentences = order.into_iter().filter_map(|judgement| {
        let of_it = hypotheses.iter().filter(|hypothesis| hypothesis.judgement == judgement);
        let codes: Vec<&str> = of_it.map(|hypothesis| hypothesis.code).collect();
        (!codes.is_empty()).then(|| format!("{}: {}.", upper_first(judgement.words()), codes.join(", ")))
    });
    sentences.collect::<Vec<_>>().join(" ")
}

fn changes(a: &Side, b: &Side) -> Vec<Change> {
    let change = |column, a: Option<f64>, b: Option<f64>| {
        let [a, b] = [a, b].map(|value| value.filter(|value| value.is_finite()));
        Change { column, a, b, ratio: a.zip(b).filter(|(a, _)| *a != 0.0).map(|(a, b)| b / a) }
    };
    let iostat = keyed(&a.columns).zip(keyed(&b.columns));
    let iostat = iostat.map(|((column, a), (_, b))| change(column, a, b));
    let ours = [
        change("requests_per_s", a.columns.requests_per_s(), b.columns.requests_per_s()),
        change("await_ms", a.columns.mean_await_ms(), b.columns.mean_await_ms()),
        change("capacity_use", a.capacity_use, b.capacity_use),
        change("saturation", a.saturation, b.saturation),
    ];
    let is_something = |value: Option<f64>| value.is_some_and(|value| value != 0.0);
    iostat.chain(ours).filter(|change| is_something(change.a) || is_something(change.b)).collect()
}

/// Returns the name of a column in tables: iostat's, or words with the unit.
fn heading(column: &str) -> &str {
    match column {
        "rrqm" => "%rrqm",
        "wrqm" => "%wrqm",
        "drqm" => "%drqm",
        "util" => "%util",
        "requests_per_s" => "requests/s",
        "await_ms" => "await, ms",
        "capacity_use" => "U, of 1",
        "saturation" => "S, of 1",
        other => other,
    }
}

impl Comparison {
    /// Renders the comparison as tables and paragraphs: columns, findings, hypotheses, the answer.
    pub fn sections(&self) -> Vec<Section> {
        let source = |letter: &str, side: &SideName| {
            let length = side.duration_s.map(|seconds| format!(", {seconds:.0} s")).unwrap_or_default();
            let plural = if side.intervals == 1 { "" } else { "s" };
            Block::Text(format!("{letter}: {}, {} interval{plural}{length}", side.name, side.intervals))
        };

        let figure = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.2}"));
        let row = |change: &Change| {
            let ratio = change.ratio.map_or(String::new(), |ratio| format!("{:+.0} %", 100.0 * (ratio - 1.0)));
            [heading(change.column).to_owned(), figure(change.a), figure(change.b), ratio]
        };
        let columns = Table::new("", ["", "A", "B", "change"], self.columns.iter().map(row));

        let findings = self.findings.iter().map(|finding| Block::Text(finding.message.clone()));
        let sides = [source("A", &self.a), source("B", &self.b), columns.into()];
        let mut sections = vec![
            Section::new(format!("{}: A and B", self.device), sides),
            Section::new("To know when reading them", findings.collect::<Vec<_>>()),
        ];
        sections.extend(self.hypotheses.iter().map(Hypothesis::section));
        sections.push(Section::new(ANSWER, [Block::Text(self.answer.clone())]));
        sections
    }
}

impl Hypothesis {
    fn section(&self) -> Section {
        let evidence = |word: &'static str, sentences: &[String]| {
            let blocks: Vec<Block> =
                sentences.iter().map(|sentence| Block::Text(format!("{word}: {sentence}"))).collect();
            blocks
        };
        let mut blocks = evidence("for", &self.evidence_for);
        blocks.extend(evidence("against", &self.evidence_against));
        if blocks.is_empty() {
            blocks.push(Block::Text(self.reason.clone()));
        }
        Section { heading: format!("{}: {}: {}", self.code, self.claim, self.judgement.words()), blocks }
    }
}

/// Both sides and their letters, with methods for the figures that hypotheses use.
#[derive(Clone, Copy)]
struct Pair<'a> {
    a: &'a Side,
    b: &'a Side,
    letters: [&'static str; 2],
}

/// A figure on both sides, both known.
#[derive(Clone, Copy, Debug)]
struct Two {
    a: f64,
    b: f64,
}

impl Two {
    /// Returns the second over the first; infinite if only the first is 0.
    fn ratio(self) -> f64 {
        if self.a == self.b { 1.0 } else { self.b / self.a }
    }

    /// Returns the larger over the smaller.
    fn spread(self) -> f64 {
        Two { a: self.least(), b: self.most() }.ratio()
    }

    fn least(self) -> f64 {
        self.a.min(self.b)
    }

    fn most(self) -> f64 {
        self.a.max(self.b)
    }

    /// Returns whether both differ by at most `part` of the larger.
    fn is_within(self, part: f64) -> bool {
        (self.a - self.b).abs() <= part * self.a.abs().max(self.b.abs())
    }

    fn both(self, holds: impl Fn(f64) -> bool) -> bool {
        holds(self.a) && holds(self.b)
    }
}

impl<'a> Pair<'a> {
    /// Returns the pair with the side that has more of this figure last.
    fn rising(&self, two: Two) -> Pair<'a> {
        let [a, b] = self.letters;
        if two.b >= two.a { *self } else { Pair { a: self.b, b: self.a, letters: [b, a] } }
    }

    fn two(&self, pick: impl Fn(&Side) -> Option<f64>) -> Option<Two> {
        let (a, b) = pick(self.a).zip(pick(self.b))?;
        (a.is_finite() && b.is_finite()).then_some(Two { a, b })
    }

    fn column(&self, pick: impl Fn(&Columns) -> Option<f64>) -> Option<Two> {
        self.two(|side| pick(&side.columns))
    }

    fn requests(&self) -> Option<Two> {
        self.column(Columns::requests_per_s)
    }

    fn kib(&self) -> Option<Two> {
        self.column(Columns::moved_kib_per_s)
    }

    fn await_ms(&self) -> Option<Two> {
        self.column(Columns::mean_await_ms)
    }

    fn queue(&self) -> Option<Two> {
        self.column(|columns| columns.queue)
    }
}

/// Formats a change: `29 % more`, `4 % less`, `as before`.
fn change_words(two: Two, more: &str, less: &str) -> String {
    let percent = 100.0 * (two.ratio() - 1.0);
    match percent {
        _ if !percent.is_finite() => format!("{more} than nothing"),
        percent if percent.abs() < 0.5 => "as before".to_owned(),
        percent if percent > 0.0 => format!("{percent:.0} % {more}"),
        percent => format!("{:.0} % {less}", -percent),
    }
}

/// Formats a rate in KiB/s, in binary units as iostat's are.
fn mib(kib_per_s: f64) -> String {
    plimsoll_figures::units::format_throughput_binary(kib_per_s * 1024.0)
}

#[cfg(test)]
mod tests;
