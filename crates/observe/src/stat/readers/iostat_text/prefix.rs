//! Prefixes that `ts`, a journal or a collector wrote before each line of iostat's.
//!
//! # Why
//! People get times with `iostat -x 1 | ts`, and `pdsh` and containers write the host before each line.
//!
//! # How it works
//! If a header has words before `Device`, and the first row below has as many words as the header, that number of words
//! is removed from every line. Otherwise times are removed from the lines that begin with one. A time among the removed
//! words is that of the line.
//!
//! # Limits
//! Of several hosts in one text, only the lines of the first one are read. A prefix without a time is found only if the
//! header has it, too.
//!
//! # Example
//! `Mar 04 10:00:01 sda 1.00` is `sda 1.00` at 10:00:01; `node1: Device r/s` is a header.

use super::line;
use crate::stat::readers::columns;
use crate::stat::readers::times::{self, DayOrder, Since, Stamp};

/// A line without its prefix.
#[derive(Clone, Debug, Default)]
pub(super) struct Bare {
    /// The time in the prefix.
    pub stamp: Option<Stamp>,
    pub text: String,
}

/// Returns the lines of a text without their prefixes, and the chosen host if there are several.
pub(super) fn bare(text: &str, order: DayOrder) -> (Vec<Bare>, Option<String>) {
    let lines: Vec<String> = text.lines().map(line::plain).collect();
    match words_before(&lines) {
        Some(count) => without_words(&lines, count, order),
        None => (without_times(lines, order), None),
    }
}

/// Returns the number of words before the first header with `Device`, if the row below has as many words.
fn words_before(lines: &[String]) -> Option<usize> {
    let headers = lines.iter().enumerate().filter(|(_, line)| line.contains("Device"));
    let (at, header, count) = headers.into_iter().find_map(|(at, line)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let first = words.iter().position(|word| columns::find(word).is_some())?;
        let is_device = |word: &&str| word.trim_end_matches(':') == "Device";
        let is_last = words.last().is_some_and(is_device);
        let count = if is_last { Some(first) } else { first.checked_sub(1) }?;
        (is_last || words.get(count).is_some_and(is_device)).then_some((at, words.len(), count))
    })?;
    let below = lines.get(at + 1..)?.iter().map(|line| line.split_whitespace().count());
    let row = below.into_iter().find(|words| *words > count)?;
    (count > 0 && row == header).then_some(count)
}

fn without_words(lines: &[String], count: usize, order: DayOrder) -> (Vec<Bare>, Option<String>) {
    let (mut first, mut has_others) = (None, false);
    let bare = lines.iter().map(|line| {
        let words: Vec<&str> = line.split_whitespace().take(count).collect();
        // A command line was typed, and has no prefix.
        if line::is_command(line) {
            return Bare { stamp: None, text: line.clone() };
        }
        if let Some(host) = host(&words) {
            let chosen: &String = first.get_or_insert_with(|| host.to_owned());
            if chosen.as_str() != host {
                has_others = true;
                return Bare::default();
            }
        }
        Bare { stamp: time_among(&words, order), text: after_words(line, count).to_owned() }
    });
    let bare = bare.collect();
    (bare, first.filter(|_| has_others))
}

/// Returns the host in a prefix: `node1:` or `node1 |`. Programs with their process (`iostat[17]:`), times and line
/// numbers are no hosts.
fn host<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_name = |word: &str| word.starts_with(|c: char| c.is_alphabetic()) && !word.contains('[');
    let before_bar = words.windows(2).find_map(|pair| match pair {
        [name, "|"] => Some(*name),
        _ => None,
    });
    before_bar.or_else(|| words.iter().find_map(|word| word.strip_suffix(':'))).filter(|name| is_name(name))
}

/// Returns the first time among the words, in its longest form.
fn time_among(words: &[&str], order: DayOrder) -> Option<Stamp> {
    let ranges = (0..words.len()).flat_map(|begin| (begin + 1..=words.len()).rev().map(move |end| begin..end));
    ranges.into_iter().find_map(|range| {
        let text = words.get(range)?.join(" ");
        times::parse(text.trim_end_matches([':', '|']), order).filter(|stamp| stamp.since != Since::Boot)
    })
}

fn after_words(line: &str, count: usize) -> &str {
    let mut rest = line;
    for _ in 0..count {
        rest = rest.trim_start();
        rest = rest.find(char::is_whitespace).and_then(|end| rest.get(end..)).unwrap_or_default();
    }
    without_blank(rest)
}

/// Removes the blank after the prefix. Further blanks stay: they mark groups.
fn without_blank(rest: &str) -> &str {
    rest.strip_prefix([' ', '\t']).unwrap_or(rest)
}

fn without_times(lines: Vec<String>, order: DayOrder) -> Vec<Bare> {
    let split = |line: &str| {
        let (stamp, rest) = times::before(line, order)?;
        // A number of seconds before figures may be a figure itself, and a single word a part of a time.
        let is_sure = line.get(..line.len() - rest.len())?.contains(':')
            || rest.trim_start().starts_with(|c: char| c.is_alphabetic());
        (is_sure && rest.split_whitespace().nth(1).is_some()).then(|| (stamp, without_blank(rest).to_owned()))
    };
    let split: Vec<Option<(Stamp, String)>> = lines.iter().map(|line| split(line)).collect();
    let written = lines.iter().filter(|line| !line.trim().is_empty()).count();
    let is_everywhere = 2 * split.iter().flatten().count() > written;
    let bare = lines.into_iter().zip(split).map(|(line, split)| match split {
        Some((stamp, text)) => Bare { stamp: Some(stamp), text },
        // Only a time: an empty line of iostat's.
        None if is_everywhere && times::parse(&line, order).is_some() => Bare::default(),
        None => Bare { stamp: None, text: line },
    });
    bare.collect()
}
