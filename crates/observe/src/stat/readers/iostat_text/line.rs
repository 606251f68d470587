//! The kinds of lines in iostat's text.
//!
//! # Why
//! All further reading depends on the kind of a line; how a line was quoted or coloured matters only here.
//!
//! # How it works
//! [`plain`] removes quotes and colours. [`classify`] tries kinds in the order of certainty: banner, header of the
//! CPUs, command line, header of devices, time, figures, row. A header is a line of at least two known names of
//! columns; an unknown word at its begin or end stands for the device. A single known name needs `Device` beside it, or
//! a sign such as `%` in it.
//!
//! # Limits
//! Unknown columns, at most two, are skipped if at least three others are known.
//!
//! # Example
//! `     r/s     rkB/s Device` is a header of two columns whose rows end with the device.

use super::super::columns::{self, Column};
use super::super::figure;
use super::super::times::{self, DayOrder, Since, Stamp};

/// The place of the device's name in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Last,
    /// Rows have no name: the header continues the line above, or the table continues the one above.
    Nowhere,
}

/// Names of columns above rows of devices.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub place: Place,
    pub names: Vec<String>,
    pub columns: Vec<Column>,
    /// Blanks before the first word.
    pub indent: usize,
    /// Names that are not known as iostat's.
    pub unknown: Vec<String>,
}

impl Header {
    /// Returns whether rows under the header have the device's name.
    pub(super) fn has_device(&self) -> bool {
        self.place != Place::Nowhere
    }
}

/// A line of the text.
#[derive(Clone, Debug)]
pub(super) enum Line {
    Blank,
    /// `Linux 5.8.0-53-generic (ubuntu) ...`, as `ubuntu, Linux 5.8.0-53-generic, 2 CPU`.
    Banner(String),
    /// A command line with `iostat`, and whether it has `-y`.
    Command {
        is_first_an_interval: bool,
    },
    /// `avg-cpu:  %user ...`: the names.
    CpuHeader(Vec<String>),
    Header(Header),
    Time(Stamp),
    /// Words that are all figures.
    Figures(Vec<String>),
    /// Words that may be a row: a name and figures, or a name alone.
    Words {
        words: Vec<String>,
        /// Blanks before the first word.
        indent: usize,
        /// Blanks before the last word.
        gap: usize,
    },
    /// Anything else.
    Other,
}

/// Removes quotes, colours and blanks at the end from a line.
pub(super) fn plain(raw: &str) -> String {
    let mut line = without_colours(raw.trim_start_matches('\u{feff}').trim_end());
    while let Some(rest) = line.trim_start().strip_prefix(['>', '|']) {
        // A quoted line may be indented itself.
        line = rest.strip_prefix(' ').unwrap_or(rest).to_owned();
    }
    line
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Up to the letter that ends a sequence; a line cut within one has none.
        let sequence = part.strip_prefix('[').and_then(|part| part.split_once(|c: char| c.is_ascii_alphabetic()));
        plain.push_str(sequence.map_or("", |(_, rest)| rest));
    }
    plain
}

/// Returns the kind of a line from [`plain`].
pub(super) fn classify(line: &str, order: DayOrder) -> Line {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(first) = words.first() else { return Line::Blank };
    if let Some(host) = banner(&words) {
        return Line::Banner(host);
    }
    if first.starts_with("avg-cpu") || words.contains(&"%iowait") && words.contains(&"%user") {
        let names = words.iter().filter_map(|word| word.strip_prefix('%'));
        return Line::CpuHeader(names.map(str::to_owned).collect());
    }
    if let Some(is_first_an_interval) = command(&words) {
        return Line::Command { is_first_an_interval };
    }
    if let Some(header) = header(line) {
        return Line::Header(header);
    }
    // Figures alone are a row, never seconds since 1970 or since boot.
    if let Some(stamp) = times::parse(line, order).filter(|stamp| line.contains(':') && stamp.since != Since::Boot) {
        return Line::Time(stamp);
    }

    let words: Vec<String> = words.iter().flat_map(|word| figure::split_glued(word)).map(str::to_owned).collect();
    let count = words.iter().filter(|word| figure::parse(word).is_some()).count();
    if count == words.len() {
        return Line::Figures(words);
    }
    let indent = line.len() - line.trim_start().len();
    let before_last = line.rsplit_once(char::is_whitespace).map_or("", |(before, _)| before);
    let gap = before_last.len() + 1 - before_last.trim_end().len();
    if count == 0 && words.len() > 1 { Line::Other } else { Line::Words { words, indent, gap } }
}

/// Parses a banner: `Linux 5.8.0-53-generic (ubuntu) 12/02/2021 _x86_64_ (2 CPU)`.
fn banner(words: &[&str]) -> Option<String> {
    let [system, release, host, rest @ ..] = words else { return None };
    let name = host.strip_prefix('(')?.strip_suffix(')')?;
    let is_banner = *system == "Linux" && release.starts_with(|c: char| c.is_ascii_digit());
    let cpus = rest.iter().find_map(|word| word.strip_prefix('(')?.parse::<u32>().ok());
    let cpus = cpus.map(|cpus| format!(", {cpus} CPU")).unwrap_or_default();
    is_banner.then(|| format!("{name}, Linux {release}{cpus}"))
}

/// Returns whether a line is a command line with iostat.
pub(super) fn is_command(line: &str) -> bool {
    command(&line.split_whitespace().collect::<Vec<_>>()).is_some()
}

/// Returns whether a command line with iostat has `-y`; `None` for any other line.
fn command(words: &[&str]) -> Option<bool> {
    let at = words.iter().position(|word| *word == "iostat" || word.ends_with("/iostat"))?;
    let before = words.get(..at)?;

    // `[root@db1 ~]#` is one prompt of two words.
    let is_bracketed = before.first().is_some_and(|word| word.starts_with('['));
    let prompt_end = before.iter().position(|word| word.contains(']')).filter(|_| is_bracketed);
    let before = before.get(prompt_end.map_or(0, |end| end + 1)..)?;

    // Prose mentions iostat, too: a command follows a prompt or `sudo`, or begins the line and has only options.
    let is_command = before.iter().all(|word| {
        let is_prompt = word.ends_with(['$', '#', '%', '>', ':']) || word.starts_with(['$', '~']) || word.contains('@');
        // `set -x` writes `+` before a command.
        is_prompt || word.contains('=') || *word == "sudo" || word.bytes().all(|byte| byte == b'+')
    });
    let options = words.get(at + 1..)?;
    let is_sentence = at == 0 && !options.iter().all(|word| word.starts_with(|c: char| "-/0123456789".contains(c)));
    let has_y = options.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('y'));
    (is_command && !is_sentence).then_some(has_y)
}

/// Parses a line as a header, if it is one.
pub(super) fn header(line: &str) -> Option<Header> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let found: Vec<Option<Column>> = words.iter().map(|word| columns::find(word.trim_end_matches(':'))).collect();
    let known = found.iter().flatten().count();
    let place = match (found.first()?, found.last()?) {
        (None, _) => Place::First,
        (_, None) => Place::Last,
        _ => Place::Nowhere,
    };
    let range = match place {
        Place::First => 1..words.len(),
        Place::Last => 0..words.len().saturating_sub(1),
        Place::Nowhere => 0..words.len(),
    };
    let (names, found) = (words.get(range.clone())?, found.get(range)?);
    let unknown: Vec<String> =
        names.iter().zip(found).filter(|(_, column)| column.is_none()).map(|(name, _)| (*name).to_owned()).collect();

    // A single name may be a word of a sentence, unless it has a sign in it or `Device` beside it.
    let is_alone = match words.as_slice() {
        [only] => only.contains(['%', '/', '-', '_']),
        [first, last] => is_device(first, last),
        _ => false,
    };
    let is_header = known >= 2 && (unknown.is_empty() || known >= 3 && unknown.len() <= 2) || known == 1 && is_alone;
    // Headers of sar and of BSD's iostat, which counts in other units.
    let is_foreign = words.contains(&"DEV") || words.contains(&"KB/t");
    (is_header && !is_foreign).then(|| Header {
        place,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        columns: found.iter().map(|column| column.unwrap_or(Column::IGNORED)).collect(),
        indent: line.len() - line.trim_start().len(),
        unknown,
    })
}

fn is_device(first: &str, last: &str) -> bool {
    [first, last].iter().any(|word| word.trim_end_matches(':') == "Device")
}
