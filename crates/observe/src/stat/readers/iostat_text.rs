//! The text of iostat, in every layout of sysstat 9 to 12.
//!
//! # Why
//! People paste text. It comes in layouts of ten years: columns in any order, tables split in four, the name of the
//! device first or last, a table wrapped in two.
//!
//! # How it works
//! A header is a line of at least two known names of columns; an unknown word at its begin or end stands for the
//! device, in any language. A single known name needs `Device` beside it, or a sign such as `%` in it. A header opens a
//! [`Table`], which takes the rows below. A header without a word for the device continues the table above: each line
//! of figures below it belongs to the next device there. A row with fewer figures than the header has columns stays
//! open: a line of only figures continues it.
//!
//! A report is one table or more, and ends where the next begins: at a banner, a time, `avg-cpu`, or a header whose
//! columns the report already has. A last line without a line break is left out if it lacks columns, digits in its
//! last figure or the end of a name: a cut figure is a wrong one.
//!
//! # Limits
//! Rows without any header are not read. Text between reports is skipped; it closes the table above it, so that the
//! numbers of another program are not taken for devices. Unknown columns, at most two, are skipped if at least three
//! others are known. A row that ends with more or fewer figures is refused: their columns are not certain. If up to a
//! third of its words are no figures, only their own columns are lost. Rows of groups (`-g`) are used only if there are
//! no others. The columns `U S verdict` of our own text are left out: they follow from the others. Which report is
//! since boot: see [`from`](super::super::from).
//!
//! # Example
//! ```text
//!      w/s     wkB/s w_await Device          one report: nvme0n1 with 16597 w/s, 632217.6 KiB/s,
//!  16597.00    617.4M    0.14 nvme0n1        0.14 ms, aqu-sz 2.28 and 96 %util
//!
//!   aqu-sz  %util Device
//!     2.28  96.0% nvme0n1
//! ```

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use super::columns::{self, Column, Figure};
use super::times::{self, DayOrder, Stamp};
use super::{Notes, ReadOptions, Reports, shown};
use crate::stat::{Columns, CpuShares, DeviceInterval, Interval};

/// A cell of our own text whose figure is not known.
const UNKNOWN: &str = "-";

/// Returns whether a word stands where a figure does.
fn is_cell(word: &String) -> bool {
    word == UNKNOWN || Figure::parse(word).is_some()
}

pub(in crate::stat) fn has_header(text: &str) -> bool {
    let mut candidates = text.lines().filter(|line| line.contains(['/', '%', '_']) || line.contains("tps"));
    candidates.any(|line| {
        let (line, _) = without_judgement(line, false);
        Header::of(line).is_some_and(|header| header.place != Place::Nowhere)
    })
}

/// Reads all reports of a text. `order` is that of its dates.
pub(in crate::stat) fn read(text: &str, options: &ReadOptions, order: DayOrder, notes: &mut Notes) -> Reports {
    let mut reader = Reader {
        options: *options,
        order,
        notes,
        text: Reports::default(),
        report: Report::default(),
        table: None,
        cpu_names: None,
        is_next_since_boot: false,
        last: None,
    };
    let count = text.lines().count();
    let mut is_judged = false;
    for (at, line) in text.lines().enumerate() {
        let is_unended = at + 1 == count && !text.ends_with('\n');
        let line = without_colours(line.trim_start_matches('\u{feff}'));
        let measured;
        (measured, is_judged) = without_judgement(&line, is_judged);
        reader.line(measured, at + 1, is_unended);
    }
    reader.end_report();

    // A single report was cut out by a user who knew its interval; the first of several may be iostat's first.
    if let [first, _, ..] = reader.text.intervals.as_mut_slice() {
        first.may_be_since_boot = !first.is_since_boot && !options.is_first_an_interval;
    }
    reader.text
}

/// Removes the last three columns of a table of `stat`, which hold judgements and are computed again from the others.
/// `is_judged` is whether the line above belonged to such a table; returns whether this one does.
fn without_judgement<'a>(line: &'a str, is_judged: bool) -> (&'a str, bool) {
    let is_header = line.split_whitespace().rev().take(3).eq(["verdict", "S", "U"]);
    let is_judged = is_header || is_judged && !line.trim().is_empty();
    // A long name stands alone in its line, above the figures.
    let is_part = |word: &str| word == UNKNOWN || word.trim_end_matches('*').ends_with('%');
    let parts = line.split_whitespace().rev().skip(1).take(2).filter(|word| is_part(word)).count();
    let has_judgement = is_header || is_judged && parts == 2;
    if !has_judgement {
        return (line, is_judged);
    }
    let without_word = |line: &'a str, _| line.trim_end().rsplit_once(char::is_whitespace).map_or("", |(rest, _)| rest);
    ((0..3).fold(line, without_word), true)
}

/// Removes the colours that `S_COLORS=always` adds.
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

/// The place of the device's name in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Last,
    /// Rows have no name: the header continues the line above, or the table continues the one above.
    Nowhere,
}

/// Names of columns above rows of devices.
#[derive(Clone, Debug)]
struct Header {
    place: Place,
    columns: Vec<(String, Option<Column>)>,
    indent: usize,
}

impl Header {
    fn of(line: &str) -> Option<Header> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let find = |word: &&str| ((*word).to_owned(), columns::find(word.trim_end_matches(':')));
        let mut found: Vec<(String, Option<Column>)> = words.iter().map(find).collect();
        let place = match (found.first()?, found.last()?) {
            ((_, None), _) => Place::First,
            (_, (_, None)) => Place::Last,
            _ => Place::Nowhere,
        };
        match place {
            Place::First => drop(found.remove(0)),
            Place::Last => drop(found.pop()),
            Place::Nowhere => {}
        }

        let known = found.iter().filter(|(_, column)| column.is_some()).count();
        let unknown = found.len() - known;
        // A single name may be a word of a sentence, unless it has a sign in it or `Device` beside it.
        let is_alone = match words.as_slice() {
            [only] => only.contains(['%', '/', '-', '_']),
            [first, last] => [first, last].iter().any(|word| word.trim_end_matches(':') == "Device"),
            _ => false,
        };
        let is_header = known >= 2 && (unknown == 0 || known >= 3 && unknown <= 2) || known == 1 && is_alone;
        // Headers of sar and of BSD's iostat, which counts in other units.
        let is_foreign = words.contains(&"DEV") || words.contains(&"KB/t");
        let indent = line.len() - line.trim_start().len();
        (is_header && !is_foreign).then_some(Header { place, columns: found, indent })
    }
}

/// A header and the state of the rows under it.
struct Table {
    header: Header,
    /// A row that waits for the rest of its figures.
    open: Option<Row>,
    devices: Vec<String>,
    /// Devices of the table above that wait for their line.
    waiting: VecDeque<String>,
}

/// A row: a device and its figures, one for each column.
struct Row {
    device: String,
    words: Vec<String>,
    /// The number of its first line, from 1.
    line: usize,
    is_group: bool,
}

impl Table {
    /// Takes a line with a name. Returns `None` if it is no row of this table.
    fn row(&self, line: &str, words: &[String], at: usize) -> Option<Row> {
        let count = self.header.columns.len();
        let split = match self.header.place {
            Place::First if words.len() == count + 1 => 1,
            // A name may have blanks.
            Place::First => words.iter().position(is_cell).unwrap_or(words.len()).max(1),
            Place::Last => count,
            Place::Nowhere => return None,
        };
        let (before, after) = words.split_at_checked(split)?;
        let is_first = self.header.place == Place::First;
        let (name, figures) = if is_first { (before, after) } else { (after, before) };

        let known = figures.iter().filter(|word| is_cell(word)).count();
        // A row that has a word for each column stays a row with a few unreadable figures.
        let is_row = known == figures.len() || (figures.len() == count && known * 3 >= count * 2);
        if name.is_empty() || name.len() > 4 || !is_row || (known == 0 && words.len() > 1) {
            return None;
        }
        // sysstat writes a blank before the name of a group.
        let is_group = match is_first {
            true => line.len() - line.trim_start().len() == self.header.indent + 1,
            false => {
                line.trim_end().rsplit_once(' ').is_some_and(|(begin, _)| begin.len() == begin.trim_end().len() + 1)
            }
        };
        Some(Row { device: name.join(" "), words: figures.to_vec(), line: at, is_group })
    }

    /// Returns the columns that a row sets, and a sentence for each figure that is unknown.
    fn set(&self, row: &Row, columns: &mut Columns) -> Vec<String> {
        let mut sentences = Vec::new();
        for ((name, column), word) in self.header.columns.iter().zip(&row.words) {
            let column = column.unwrap_or(Column::IGNORED);
            if word != UNKNOWN && !Figure::parse(word).is_some_and(|figure| column.set(columns, figure)) {
                sentences.push(format!("{name} of {} is `{}`: taken as unknown", shown(&row.device), shown(word)));
            }
        }
        sentences
    }
}

/// A report so far.
#[derive(Default)]
struct Report {
    interval: Interval,
    stamp: Option<Stamp>,
    tables: usize,
    /// The place of each device in the interval, and the number of the table of its latest row.
    places: HashMap<String, (usize, usize)>,
    groups: Vec<DeviceInterval>,
    has_groups: bool,
    names: HashSet<String>,
}

impl Report {
    /// Returns whether at most a time is known.
    fn is_empty(&self) -> bool {
        self.tables == 0 && self.interval.cpu.is_none()
    }
}

struct Reader<'a> {
    options: ReadOptions,
    order: DayOrder,
    notes: &'a mut Notes,
    text: Reports,
    report: Report,
    table: Option<Table>,
    cpu_names: Option<Vec<String>>,
    is_next_since_boot: bool,
    last: Option<Stamp>,
}

impl Reader<'_> {
    /// Takes the `at`-th line. `is_unended` means that it is the last one, without a line break.
    fn line(&mut self, line: &str, at: usize, is_unended: bool) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return;
        }

        let are_figures = words.iter().all(is_cell);
        if let Some(names) = self.cpu_names.take().filter(|_| are_figures) {
            return self.cpu(&names, &words, at);
        }

        if let Some(host) = banner(&words) {
            self.end_report();
            self.last = None;
            self.is_next_since_boot = !self.options.is_first_an_interval;
            self.text.note_host(host);
        } else if words.iter().any(|word| word == "%user") && words.iter().any(|word| word == "%idle") {
            self.begin_report();
            self.cpu_names = Some(words.iter().filter_map(|word| Some(word.strip_prefix('%')?.to_owned())).collect());
        } else if let Some(header) = Header::of(line) {
            self.header(header, at);
        } else if let Some(stamp) = times::parse(line, self.order).filter(|_| !are_figures) {
            self.begin_report();
            self.report.stamp = Some(stamp);
        } else if is_unended && is_cut(&words) {
            self.notes.line(at, "the text ends within this line: left out");
        } else if are_figures {
            self.figures(words, at);
        } else {
            self.words(line, &words, at, is_unended);
        }
    }

    fn cpu(&mut self, names: &[String], words: &[String], at: usize) {
        let number = |word: &String| Figure::parse(word).and_then(|figure| figure.number);
        let figures = names.iter().zip(words).map(|(name, word)| (name.as_str(), number(word)));
        self.report.interval.cpu = cpu_shares(figures).filter(|_| names.len() == words.len());
        if self.report.interval.cpu.is_none() {
            self.notes.line(at, &format!("`{}` are no shares of the CPUs' time: left out", shown(&words.join(" "))));
        }
    }

    fn header(&mut self, header: Header, at: usize) {
        self.flush_row();
        let names: Vec<String> = header.columns.iter().map(|(name, _)| name.clone()).collect();
        for (name, _) in header.columns.iter().filter(|(_, column)| column.is_none()) {
            self.notes.file(&format!("column `{}` is not known: left out", shown(name)));
        }

        let has_device = header.place != Place::Nowhere;
        if let Some(table) = self.table.as_mut().filter(|table| !has_device && table.devices.is_empty()) {
            // The next line of a wrapped header.
            self.report.names.extend(names);
            return table.header.columns.extend(header.columns);
        }
        if names.iter().any(|name| self.report.names.contains(name)) {
            self.end_report();
        }
        if !has_device && self.table.is_none() {
            return self.notes.line(at, "a header without devices above or beside it: left out");
        }
        self.report.names.extend(names);
        self.report.tables += 1;
        let waiting = self.table.take().filter(|_| !has_device).map(|above| above.devices.into()).unwrap_or_default();
        self.table = Some(Table { header, open: None, devices: Vec::new(), waiting });
    }

    fn figures(&mut self, words: Vec<String>, at: usize) {
        let Some(table) = &mut self.table else { return };
        let row = match (table.open.take(), words) {
            (Some(row), words) => Some(Row { words: [row.words, words].concat(), ..row }),
            (None, words) => table.waiting.pop_front().map(|device| Row { device, words, line: at, is_group: false }),
        };
        match row {
            Some(row) => self.row(row, at),
            None => self.close_table(),
        }
    }

    fn words(&mut self, line: &str, words: &[String], at: usize, is_unended: bool) {
        self.flush_row();
        let Some(table) = &self.table else { return };
        let Some(row) = table.row(line, words, at) else { return self.close_table() };
        if is_unended && table.header.place == Place::Last && self.is_begin_of_a_name(&row.device) {
            return self.notes.line(at, "the text ends within this line: left out");
        }
        self.row(row, at);
    }

    /// Returns whether a name is the begin of another device's, and no device has it.
    fn is_begin_of_a_name(&self, name: &str) -> bool {
        let devices = self.text.intervals.iter().chain([&self.report.interval]).flat_map(|interval| &interval.devices);
        let mut names = devices.map(|device| device.device.as_str());
        names.clone().any(|other| other.starts_with(name)) && !names.any(|other| other == name)
    }

    /// Adds a row if it is complete, else keeps it open for the missing figures.
    fn row(&mut self, row: Row, at: usize) {
        let Some(table) = &mut self.table else { return };
        let count = table.header.columns.len();
        if row.words.len() > count {
            return self.notes.line(at, &format!("more figures than the {count} columns of the header: left out"));
        }
        if row.words.len() < count {
            table.open = Some(row);
            return;
        }

        let Report { interval, places, groups, has_groups, tables, .. } = &mut self.report;
        let mut columns = Columns::default();
        let sentences = if row.is_group {
            *has_groups = true;
            // iostat 12.6 prints zeros in all but the first of split tables when it is asked for groups alone.
            if table.header.place != Place::First || groups.iter().any(|group| group.device == row.device) {
                return;
            }
            let sentences = table.set(&row, &mut columns);
            groups.push(DeviceInterval { device: row.device.clone(), columns, ..DeviceInterval::default() });
            sentences
        } else {
            let (place, of_table) = places.entry(row.device.clone()).or_insert_with(|| {
                interval.devices.push(DeviceInterval { device: row.device.clone(), ..DeviceInterval::default() });
                (interval.devices.len() - 1, 0)
            });
            if std::mem::replace(of_table, *tables) == *tables {
                let name = shown(&row.device);
                return self.notes.line(row.line, &format!("{name} stands twice in a report: the first row counts"));
            }
            table.devices.push(row.device.clone());
            let device = interval.devices.get_mut(*place);
            device.map(|device| table.set(&row, &mut device.columns)).unwrap_or_default()
        };
        sentences.iter().for_each(|sentence| self.notes.line(row.line, sentence));
    }

    /// Drops an incomplete row, with a note. A name without any figure is no row.
    fn flush_row(&mut self) {
        let Some(table) = &mut self.table else { return };
        if let Some(row) = table.open.take().filter(|row| !row.words.is_empty()) {
            let (name, found, count) = (shown(&row.device), row.words.len(), table.header.columns.len());
            let sentence = format!("{name} has {found} figures, the header {count} columns: left out");
            self.notes.line(row.line, &sentence);
        }
    }

    fn close_table(&mut self) {
        self.flush_row();
        self.table = None;
    }

    fn begin_report(&mut self) {
        if !self.report.is_empty() {
            self.end_report();
        }
    }

    fn end_report(&mut self) {
        self.close_table();
        self.cpu_names = None;
        if self.report.is_empty() {
            return;
        }

        let Report { mut interval, stamp, groups, has_groups, .. } = std::mem::take(&mut self.report);
        if has_groups && interval.devices.is_empty() && !groups.is_empty() {
            self.notes.file("only sums of groups are in it: read as if each were a device; their %util is a mean");
            interval.devices = groups;
        } else if has_groups {
            self.notes.file("lines of groups are sums of others: left out");
        }
        stamp.iter().for_each(|stamp| self.notes.zone(*stamp));
        interval.end_unix_ms = stamp.and_then(Stamp::unix_ms);
        interval.is_since_boot = std::mem::take(&mut self.is_next_since_boot);
        interval.duration_s = match self.last.zip(stamp) {
            _ if interval.is_since_boot => None,
            Some((last, stamp)) => stamp.seconds_since(last),
            None => self.options.interval_s,
        };
        self.last = stamp;
        self.text.intervals.push(interval);
    }
}

/// Parses a banner: `Linux 5.8.0-53-generic (ubuntu) 12/02/2021 _x86_64_ (2 CPU)`.
fn banner(words: &[String]) -> Option<String> {
    let [system, release, host, rest @ ..] = words else { return None };
    let name = host.strip_prefix('(')?.strip_suffix(')')?;
    let is_banner = system == "Linux" && release.starts_with(|c: char| c.is_ascii_digit());
    let cpus = rest.iter().find_map(|word| word.strip_prefix('(')?.parse::<u32>().ok());
    let cpus = cpus.map(|cpus| format!(", {cpus} CPU")).unwrap_or_default();
    is_banner.then(|| format!("{name}, Linux {release}{cpus}"))
}

/// Returns whether the last figure of a line has fewer decimals than all others: a part of it is missing.
fn is_cut(words: &[String]) -> bool {
    let mut decimals = words.iter().rev().filter_map(|word| Figure::parse(word)).map(|figure| figure.decimals);
    let ends_in_figure = words.last().is_some_and(|word| Figure::parse(word).is_some());
    let last = decimals.next();
    let others = decimals.min();
    ends_in_figure && last.zip(others).is_some_and(|(last, others)| last < others)
}

/// Returns the shares by their names; `None` if a figure is unknown, or one that every version has is missing.
pub(in crate::stat) fn cpu_shares<'a>(figures: impl Iterator<Item = (&'a str, Option<f64>)>) -> Option<CpuShares> {
    let figures: HashMap<&str, Option<f64>> = figures.collect();
    let get = |name: &str| figures.get(name).copied().flatten();
    // Kernels before 2.5 have no iowait, before 2.6.11 no steal.
    let optional = |name: &str| figures.get(name).copied().unwrap_or(Some(0.0));
    Some(CpuShares {
        user: get("user")?,
        nice: get("nice")?,
        system: get("system").or_else(|| get("sys"))?,
        iowait: optional("iowait")?,
        steal: optional("steal")?,
        idle: get("idle")?,
    })
}
