//! `stat --compare A B`: the changes between two periods, and the conclusions that they allow.
//!
//! # Why
//! Two outputs of iostat side by side invite a wrong conclusion; see [`plimsoll_observe::stat::compare`].
//!
//! # How it works
//! A side is a file, or some of its intervals (`FILE:2-5`). All intervals of both sides are observed once, then judged,
//! so that a device's capacity is known from both sides. Every device on both sides that was active is compared.
//!
//! # Limits
//! Devices are matched by name; if each side has a single device, these are compared.
//!
//! # Example
//! `plimsoll stat --compare one-load.txt two-loads.txt --device nvme0n1`.

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_observe::stat::compare::{self, ANSWER, Comparison, Context, Judgement, Side};
use plimsoll_observe::stat::from::Recorded;
use plimsoll_observe::stat::watch::Watch;
use plimsoll_observe::stat::{Facts, Interval, Observed};
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::table::{Table, known};
use serde::Serialize;

use super::{StatArguments, saved, watching};
use crate::failure::{Failure, Outcome};
use crate::screen;

/// All comparisons, for JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    comparisons: &'a [Comparison],
}

/// A file, and a range of its intervals.
#[derive(Debug, PartialEq, Eq)]
struct Source<'a> {
    path: &'a Path,
    range: Option<(usize, usize)>,
}

/// A side before it is reduced to a device.
struct Read<'a> {
    name: &'a str,
    intervals: Vec<Interval>,
    facts: Facts,
}

/// Confidence in a comparison with a single interval. The comparison has a finding with the same text.
const SINGLE: &str = "a side is a single interval: how much it varies is not known";

pub(super) fn run(arguments: &StatArguments) -> Result<Outcome, Failure> {
    let [a, b] = arguments.saved.compare.as_slice() else {
        return Err(Failure::Input("--compare needs two sides: A B".to_owned()));
    };
    let (page, _) = arguments.pictures.check(&[])?;
    if arguments.pictures.pictures.is_some() {
        return Err(Failure::Input("--compare has no pictures: give --page FILE".to_owned()));
    }

    let mut watch = watching::watch(&arguments.capacity, &arguments.show.groups, None)?;
    let (a, b) = (read(arguments, a)?, read(arguments, b)?);
    // The first pass learns the capacities, the second judges.
    for side in [&a, &b] {
        observe(&mut watch, side);
    }
    let judged = [observe(&mut watch, &a), observe(&mut watch, &b)];
    let comparisons = comparisons(arguments, &a, &b, &judged)?;

    if let Some(page) = page {
        let verdict = comparisons.first().map(|first| Section::new(ANSWER, [answer(first, comparisons.len()).into()]));
        let sections: Vec<Section> = verdict.into_iter().chain(sections(&comparisons)).collect();
        page.write(&page::html(&format!("{} and {}", a.name, b.name), &sections))?;
    }

    let report = Report { schema: compare::SCHEMA, comparisons: &comparisons };
    arguments.format.print(|| text(&comparisons), &report, || csv(&comparisons))?;
    let says_no = comparisons.iter().flat_map(|comparison| &comparison.hypotheses).any(|hypothesis| {
        hypothesis.judgement == Judgement::Likely && matches!(hypothesis.code, "saturated" | "throttled")
    });
    Ok(if says_no { Outcome::Finding } else { Outcome::Done })
}

/// Splits a file from its range. If a file has the whole text as its name, returns that file.
fn source(text: &str) -> Source<'_> {
    let whole = Source { path: Path::new(text), range: None };
    let Some((path, range)) = text.rsplit_once(':').filter(|_| !whole.path.exists()) else { return whole };
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) => Source { path: Path::new(path), range: Some((from, to)) },
        _ => whole,
    }
}

fn read<'a>(arguments: &StatArguments, text: &'a str) -> Result<Read<'a>, Failure> {
    let Source { path, range } = source(text);
    let Recorded { mut intervals, facts, .. } = saved::read(arguments, &[path])?;
    if let Some((from, to)) = range {
        let count = intervals.len();
        if to < from {
            let file = path.display();
            let message = format!("{text}: the range ends before it begins: write {file}:{to}-{from}");
            return Err(Failure::Input(message));
        }
        if from == 0 || to > count {
            return Err(Failure::Input(format!("{text}: {} has the intervals 1 to {count}", path.display())));
        }
        intervals = intervals.drain(from - 1..to).collect();
    }
    Ok(Read { name: text, intervals, facts })
}

fn observe(watch: &mut Watch, side: &Read<'_>) -> Vec<Observed> {
    side.intervals.iter().map(|interval| watch.observe(interval, &side.facts)).collect()
}

/// Compares every device that both sides have and that was active on one of them.
fn comparisons(
    arguments: &StatArguments,
    a: &Read<'_>,
    b: &Read<'_>,
    [of_a, of_b]: &[Vec<Observed>; 2],
) -> Result<Vec<Comparison>, Failure> {
    let (names_a, names_b) = (names(of_a), names(of_b));
    let wanted = |name: &&String| arguments.show.devices.is_empty() || arguments.show.devices.contains(name);
    let mut pairs: Vec<(&String, &String)> =
        names_a.iter().filter(|name| names_b.contains(*name)).filter(wanted).map(|name| (name, name)).collect();
    if let (true, [one], [other]) = (pairs.is_empty(), names_a.as_slice(), names_b.as_slice()) {
        pairs.push((one, other));
    }

    if pairs.is_empty() {
        let list = |names: &[String]| names.join(", ");
        return Err(Failure::Input(format!(
            "{} and {} have no device in common: {} and {}; name one of each with --device and FILE:INTERVAL",
            a.name,
            b.name,
            list(&names_a),
            list(&names_b)
        )));
    }

    let compare = |(one, other): &(&String, &String)| {
        let (side_a, side_b) = (Side::of(a.name, of_a, one)?, Side::of(b.name, of_b, other)?);
        let did_something = |side: &Side| side.columns.requests_per_s().is_some_and(|rate| rate > 0.0);
        let facts = a.facts.get(*one).or_else(|| b.facts.get(*other)).cloned();
        let context = Context { facts, graph_rate: arguments.saved.graph_rate };
        let is_shown = pairs.len() == 1 || did_something(&side_a) || did_something(&side_b);
        is_shown.then(|| compare::compare(&side_a, &side_b, &context))
    };

    let found: Vec<Comparison> = pairs.iter().filter_map(compare).collect();
    if found.is_empty() {
        let message = format!("{} and {}: no device did anything that could be compared", a.name, b.name);
        return Err(Failure::Input(message));
    }
    Ok(found)
}

/// Returns the devices that have columns, in the order of the source.
fn names(observed: &[Observed]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = observed.iter().flat_map(|observed| &observed.devices).filter(|judged| judged.interval.gap.is_none());
    all.map(|judged| &judged.interval.device).filter(|name| seen.insert(*name)).cloned().collect()
}

fn text(comparisons: &[Comparison]) -> String {
    let answer =
        comparisons.first().map_or_else(String::new, |first| screen::answer(&answer(first, comparisons.len())));
    answer + &sections(comparisons).map(section_text).collect::<Vec<_>>().join("\n")
}

/// Returns the sections, without the parts that repeat the answer at the top.
fn sections(comparisons: &[Comparison]) -> impl Iterator<Item = Section> {
    let is_one = comparisons.len() == 1;
    let all = comparisons.iter().flat_map(Comparison::sections);
    let others = all.filter(move |section| !(is_one && section.heading == ANSWER)).map(|mut section| {
        section.blocks.retain(|block| *block != Block::Text(SINGLE.to_owned()));
        section
    });
    others.filter(|section| !section.blocks.is_empty())
}

/// Returns the answer of the first comparison. With several devices, each has its own in its sections.
fn answer(first: &Comparison, devices: usize) -> Answer {
    let has = |judgement: Judgement| first.hypotheses.iter().any(|hypothesis| hypothesis.judgement == judgement);
    let mood = if has(Judgement::Likely) { Mood::Quiet } else { Mood::Heed };
    let more = if devices == 1 { String::new() } else { format!("{} (one of {devices} devices): ", first.device) };
    let change = |(column, name, unit): (&str, &str, &str)| {
        let found = first.columns.iter().find(|change| change.column == column)?;
        let ([a, b], ratio) = ([found.a?, found.b?], found.ratio?);
        Some(format!("{name} {a:.2} and {b:.2}{unit} ({:+.0} %)", 100.0 * (ratio - 1.0)))
    };
    let figures = [("requests_per_s", "requests/s", ""), ("await_ms", "await", " ms")];
    let figures: Vec<String> = figures.into_iter().filter_map(change).collect();
    let is_single = first.a.intervals == 1 || first.b.intervals == 1;
    let confidence = if is_single { SINGLE } else { "" };
    let verdict = format!("{more}{}", first.answer.trim_end_matches('.'));
    Answer::new(mood, verdict, figures.join(", "), confidence)
}

fn section_text(section: Section) -> String {
    let mut text = format!("{}\n", screen::wrap(&section.heading));
    for block in section.blocks {
        let part = match block {
            Block::Text(paragraph) => screen::wrap(&paragraph),
            Block::Warnings(warnings) => {
                warnings.iter().map(|warning| screen::wrap(warning)).collect::<Vec<_>>().join("\n")
            }
            Block::Table(table) => screen::show(&table),
            // A comparison has no such blocks, and a terminal could not show them.
            _ => continue,
        };
        text.push_str(&format!("{part}\n"));
    }
    text
}

fn csv(comparisons: &[Comparison]) -> String {
    let rows = comparisons.iter().flat_map(|comparison| {
        comparison.columns.iter().map(|change| {
            let [a, b, ratio] = [change.a, change.b, change.ratio].map(known);
            [comparison.device.clone(), change.column.to_owned(), a, b, ratio]
        })
    });
    Table::new("", ["disk_device", "column", "a", "b", "ratio"], rows).to_csv()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_file_or_some_of_its_intervals() {
        let cases = [
            ("a.txt", "a.txt", None),
            ("a.txt:3", "a.txt", Some((3, 3))),
            ("a.txt:2-5", "a.txt", Some((2, 5))),
            ("c:/a.txt", "c:/a.txt", None),
            ("a.txt:x", "a.txt:x", None),
        ];
        for (text, path, range) in cases {
            assert_eq!(source(text), Source { path: Path::new(path), range }, "{text}");
        }
    }
}
