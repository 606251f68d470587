//! What a line of iostat's text is.
//!
//! # Why
//! Everything else follows from it, and only here it matters how a line was quoted, coloured or indented.
//!
//! # How it works
//! [`plain`] takes off what is not iostat's. [`classify`] asks in the order of certainty: banner, command line, header
//! of the CPUs, header of devices, time, figures, row. A header is a line of at least two known names of columns, with
//! one unknown word at most at either end: that is where the device stands.
//!
//! # Limits
//! A new column is passed over where at least three others are known.
//!
//! # Example
//! `     r/s     rkB/s Device` is a header of two columns whose rows end with the device.

use super::super::columns::{self, Column};
use super::super::figure;
use super::super::times::{self, DayOrder, Since, Stamp};

/// Where the name of the device stands in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Last,
    /// Nowhere: the line goes on with the one above, or the table with the table above.
    Nowhere,
}

/// Names of columns above rows of devices.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub place: Place,
    pub names: Vec<String>,
    pub columns: Vec<Column>,
    /// Blanks before it.
    pub indent: usize,
    /// Names that are none of iostat's.
    pub unknown: Vec<String>,
}

impl Header {
    /// Whether it names a device, as one table of each report does.
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
    /// A command line with `iostat`; whether `-y` is in it.
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

/// The line without quotes, colours and what ends it.
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

/// What a line is that [`plain`] has cleaned.
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

/// `Linux 5.8.0-53-generic (ubuntu) 12/02/2021 _x86_64_ (2 CPU)`.
fn banner(words: &[&str]) -> Option<String> {
    let [system, release, host, rest @ ..] = words else { return None };
    let name = host.strip_prefix('(')?.strip_suffix(')')?;
    let is_banner = *system == "Linux" && release.starts_with(|c: char| c.is_ascii_digit());
    let cpus = rest.iter().find_map(|word| word.strip_prefix('(')?.parse::<u32>().ok());
    let cpus = cpus.map(|cpus| format!(", {cpus} CPU")).unwrap_or_default();
    is_banner.then(|| format!("{name}, Linux {release}{cpus}"))
}

/// Whether a line is a command line with iostat.
pub(super) fn is_command(line: &str) -> bool {
    command(&line.split_whitespace().collect::<Vec<_>>()).is_some()
}

/// Whether a line is a command line with iostat, and then whether it has `-y`.
fn command(words: &[&str]) -> Option<bool> {
    let at = words.iter().position(|word| *word == "iostat" || word.ends_with("/iostat"))?;
    let before = words.get(..at)?;
    // `[root@db1 ~]#` is one prompt of two words.
    let is_bracketed = before.first().is_some_and(|word| word.starts_with('['));
    let prompt_end = before.iter().position(|word| word.contains(']')).filter(|_| is_bracketed);
    let before = before.get(prompt_end.map_or(0, |end| end + 1)..)?;
    // Prose mentions iostat, too: a prompt or `sudo` stands before a command, or nothing, and then options follow.
    let is_command = before.iter().all(|word| {
        let is_prompt = word.ends_with(['$', '#', '%', '>', ':']) || word.starts_with(['$', '~']) || word.contains('@');
        // `set -x` writes `+` before what it runs.
        is_prompt || word.contains('=') || *word == "sudo" || word.bytes().all(|byte| byte == b'+')
    });
    let options = words.get(at + 1..)?;
    let is_sentence = at == 0 && !options.iter().all(|word| word.starts_with(|c: char| "-/0123456789".contains(c)));
    let has_y = options.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('y'));
    (is_command && !is_sentence).then_some(has_y)
}

/// The line as a header, if it is one.
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
    // One name alone may be a word of a sentence, unless it has a sign in it or a word for the device beside it.
    let is_alone = match words.as_slice() {
        [only] => only.contains(['%', '/', '-', '_']),
        [first, last] => is_device(first, last),
        _ => false,
    };
    let is_header = known >= 2 && (unknown.is_empty() || known >= 3 && unknown.len() <= 2) || known == 1 && is_alone;
    // sar stands a time before its columns, BSD counts in other units.
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
