//! Output for people: tables of at most 100 columns and paragraphs that fit the terminal on stdout, progress and remarks
//! on stderr.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use plimsoll_measure::tune::Observer;
use plimsoll_show::answer::{Answer, Mood};
pub(crate) use plimsoll_show::printable::{printable, printable_lines};
use plimsoll_show::table::Column;

pub(crate) const WIDTH: u16 = 100;

const PADDING: u16 = 2;

/// Characters to which the first column may wrap before other columns are cut.
const FIRST_LETTERS_MIN: usize = 16;

const TEXT_LETTERS_MIN: usize = 8;

/// Returns a table with the given headers, the first column left-aligned, the others right-aligned. Cuts text that is
/// too wide, never a figure; if figures alone are too wide, leaves out the last columns and names them below.
pub(crate) fn table(headers: &[impl AsRef<str>], rows: Vec<Vec<String>>) -> String {
    table_within(WIDTH, headers, rows)
}

/// Returns a table as [`table`] does, of at most `width` columns.
pub(crate) fn table_within(width: u16, headers: &[impl AsRef<str>], rows: Vec<Vec<String>>) -> String {
    let headers: Vec<&str> = headers.iter().map(AsRef::as_ref).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    let mut rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let shown = cut(width, &headers, &mut rows);
    table.add_rows(rows);

    let (headers, left_out) = headers.split_at(shown);
    table.set_header(headers.to_vec());
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, PADDING));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
            // Long text wraps in the first column only, never inside a figure.
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }

    let mut lines: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    if !left_out.is_empty() {
        let names = left_out.iter().map(|name| name.replace('\n', " ")).collect::<Vec<_>>().join(", ");
        lines.push(wrap_within(width, &format!("(no room for: {names})")));
    }
    lines.join("\n")
}

/// Returns a table as text, without its caption.
pub(crate) fn show(shown: &plimsoll_show::table::Table) -> String {
    table(&shown.headers, shown.rows.clone())
}

/// Returns a table with a row for each of `rows`.
pub(crate) fn columns<'r, R: 'r>(rows: impl IntoIterator<Item = &'r R>, columns: &[Column<R>]) -> String {
    columns_within(WIDTH, rows, columns)
}

/// Returns a table as [`columns`] does, of at most `width` columns.
pub(crate) fn columns_within<'r, R: 'r>(
    width: u16,
    rows: impl IntoIterator<Item = &'r R>,
    columns: &[Column<R>],
) -> String {
    let headers: Vec<&str> = columns.iter().map(|(header, _)| *header).collect();
    let row = |of: &R| columns.iter().map(|(_, cell)| cell(of)).collect();
    table_within(width, &headers, rows.into_iter().map(row).collect())
}

/// Returns an answer as lines, then an empty line. On a terminal the first line is coloured.
pub(crate) fn answer(answer: &Answer) -> String {
    let out = std::io::stdout();
    let colour = if out.is_terminal() && wants_colour() { colour(answer.mood) } else { "" };
    answer_within(usize::from(width(&out)), colour, answer)
}

/// Returns whether the environment allows colours on a terminal: no `NO_COLOR` (no-color.org), no `TERM=dumb`.
fn wants_colour() -> bool {
    let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_set && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn answer_within(width: usize, colour: &str, answer: &Answer) -> String {
    let mut lines: Vec<String> = answer.lines(width).iter().map(|line| printable(line)).collect();
    if let Some(first) = lines.first_mut().filter(|_| !colour.is_empty()) {
        *first = format!("{colour}{first}{COLOUR_END}");
    }
    lines.join("\n") + "\n\n"
}

/// Returns whether a text of [`answer`] is complete, not cut.
pub(crate) fn is_whole(answer: &str) -> bool {
    !answer.trim_end().ends_with('\u{2026}')
}

/// Escape sequence that ends a verdict's colour.
const COLOUR_END: &str = "\x1b[0m";

/// Escape sequences that this program writes into text for a terminal.
const OWN_SEQUENCES: [&str; 5] =
    [colour(Mood::Quiet), colour(Mood::Good), colour(Mood::Heed), colour(Mood::Bad), COLOUR_END];

/// Returns the escape sequence that begins a verdict's colour.
const fn colour(mood: Mood) -> &'static str {
    match mood {
        Mood::Quiet => "\x1b[1m",
        Mood::Good => "\x1b[1;32m",
        Mood::Heed => "\x1b[1;33m",
        Mood::Bad => "\x1b[1;31m",
    }
}

/// Escapes control characters as [`printable_lines`] does, except in the sequences that this program writes.
fn for_terminal(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut shown = printable_lines(parts.next().unwrap_or_default());
    for part in parts {
        let sequence = format!("\x1b{part}");
        let own = OWN_SEQUENCES.iter().find_map(|own| Some((own, sequence.strip_prefix(own)?)));
        match own {
            Some((own, rest)) => shown.extend([own, printable_lines(rest).as_str()]),
            None => shown.push_str(&printable_lines(&sequence)),
        }
    }
    shown
}

/// Returns whether a table of `width` columns shows every cell whole.
pub(crate) fn fits(width: u16, headers: &[&str], rows: &[Vec<String>]) -> bool {
    widths(headers, rows).iter().sum::<usize>() <= room(width, headers)
}

/// Returns the letters that each column needs; the first, which wraps, needs at most [`FIRST_LETTERS_MIN`].
fn widths(headers: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = headers.iter().map(|header| header_letters(header)).collect();
    for row in rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = letters(cell).max(*width));
    }

    if let Some(first) = widths.first_mut() {
        *first = FIRST_LETTERS_MIN.min(*first);
    }
    widths
}

/// Returns the letters that all columns together may have in a table of `width`.
fn room(width: u16, headers: &[&str]) -> usize {
    usize::from(width).saturating_sub(usize::from(PADDING) * headers.len())
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

/// Returns the letters of a header's longest line.
fn header_letters(header: &str) -> usize {
    header.lines().map(letters).max().unwrap_or(0)
}

/// Returns whether a cell is a figure: begins with a digit, after signs and bounds. Names such as `1 of 3` count, too.
fn is_figure(cell: &str) -> bool {
    let text = cell.trim_start_matches(['+', '-', '<', '>', '~', '±', '≤', '≥', '*', '(', ' ']);
    text.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Makes cells fit a table of `width`. Returns the number of columns that fit. The widest columns of text after the
/// first, which wraps, are cut first; then the last columns are left out.
fn cut(width: u16, headers: &[&str], rows: &mut [Vec<String>]) -> usize {
    let mut widths = widths(headers, rows);
    let least = |at: usize| {
        let figures =
            rows.iter().filter_map(|row| row.get(at)).filter(|cell| is_figure(cell)).map(|cell| letters(cell));
        let header = headers.get(at).map_or(0, |header| header_letters(header));
        figures.chain([header, TEXT_LETTERS_MIN]).max().unwrap_or(0)
    };
    let least: Vec<usize> = (0..headers.len()).map(least).collect();

    let mut shown = headers.len();
    while widths.iter().sum::<usize>() > room(width, headers.get(..shown).unwrap_or_default()) {
        let others = widths.iter_mut().zip(&least).skip(1).filter(|(width, least)| **width > **least);
        match others.max_by_key(|(width, _)| **width) {
            Some((width, _)) => *width -= 1,
            None if shown > 1 => {
                shown -= 1;
                widths.truncate(shown);
            }
            None => break,
        }
    }

    for row in rows {
        row.truncate(shown);
        for (cell, width) in row.iter_mut().zip(&widths).skip(1) {
            if letters(cell) > *width {
                *cell = cell.chars().take(width.saturating_sub(1)).chain(['…']).collect();
            }
        }
    }
    shown
}

/// Breaks a paragraph into lines that fit stdout.
pub(crate) fn wrap(text: &str) -> String {
    wrap_within(width(std::io::stdout()), text)
}

/// Breaks a paragraph into lines of at most `width` columns; a longer word has a line of its own.
pub(crate) fn wrap_within(width: u16, text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace().map(printable) {
        let line = lines.last_mut().filter(|line| line.len() + word.len() < usize::from(width));
        match line {
            Some(line) if line.is_empty() => line.push_str(&word),
            Some(line) => line.extend([" ", &word]),
            None => lines.push(word),
        }
    }
    lines.join("\n")
}

/// Breaks each paragraph into lines that fit, and ends it.
pub(crate) fn paragraphs(texts: impl IntoIterator<Item: AsRef<str>>) -> String {
    texts.into_iter().map(|text| wrap(text.as_ref()) + "\n").collect()
}

/// Returns the columns and rows of a terminal, or `None` if `of` is not a terminal or reports no size.
pub(crate) fn size(of: impl AsFd) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(of).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Returns the most columns for text on `of`.
pub(crate) fn width(of: impl AsFd) -> u16 {
    size(of).map_or(WIDTH, |(columns, _)| columns.min(WIDTH))
}

/// Prints a result. On a terminal, escapes its control characters, also in CSV; other programs get it as it is.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let text = if out.is_terminal() { Cow::Owned(for_terminal(text)) } else { Cow::Borrowed(text) };
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Prints as [`print`] does. Returns false if the reader has closed stdout: what the command has judged still counts.
pub(crate) fn print_if_open(text: &str) -> std::io::Result<bool> {
    match print(text) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        printed => printed.map(|()| true),
    }
}

/// Stdout of a terminal: control characters in the text that is written to it are escaped.
pub(crate) struct TerminalOut;

impl Write for TerminalOut {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().write_all(printable_lines(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

/// Clears the terminal, and prints `text`.
pub(crate) fn print_anew(text: &str) -> std::io::Result<()> {
    // Clear the terminal, and move the cursor to its first row.
    std::io::stdout().write_all(b"\x1b[2J\x1b[H")?;
    print(text)
}

/// Prints a remark to stderr, with control characters escaped because it may quote a file. On a terminal, breaks long
/// lines between words.
pub(crate) fn note(text: &str) {
    let text = printable_lines(text);
    let text = match size(std::io::stderr()) {
        Some((columns, _)) => wrap_lines(columns, &text),
        None => text,
    };
    // Ignore the error: if stderr is closed, there is no place to report it.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Breaks the lines that are longer than `width`, and leaves the others as they are.
fn wrap_lines(width: u16, text: &str) -> String {
    let is_long = |line: &str| letters(line) > usize::from(width);
    let lines = text.lines().map(|line| if is_long(line) { wrap_within(width, line) } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}

/// Warnings that wait for the end of the command, or `None` if each is printed at once.
static FOLDED: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Holds warnings back until [`print_folded`].
pub(crate) fn fold_warnings() {
    *FOLDED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
}

/// Prints the warnings held back: one as it is, several as one line with the first and their count.
pub(crate) fn print_folded() {
    let folded = FOLDED.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
    match folded.as_slice() {
        [] => {}
        [one] => warning(one),
        [first, ..] => warning(&format!("{first} ({} warnings: --verbose shows each)", folded.len())),
    }
}

/// Prints a warning that a user needs before trusting the result.
pub(crate) fn warning(text: &str) {
    if let Some(folded) = FOLDED.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        if folded.iter().all(|known| known != text) {
            folded.push(text.to_owned());
        }
        return;
    }
    note(&format!("warning: {text}"));
}

/// Prints why the command failed.
pub(crate) fn error(text: &str) {
    let prefix = if text.starts_with("error") { "" } else { "error: " };
    note(&format!("{prefix}{text}"));
}

/// Progress of work in phases: a bar of the whole on a terminal, figures and warnings as lines. Dropping it removes the
/// bar.
pub(crate) struct Phases {
    bar: ProgressBar,
    quiet: bool,
    /// Expected seconds of all phases (0: unknown, so the bar shows one phase), of the finished phases, and of the
    /// present one.
    whole_s: f64,
    done_s: f64,
    phase_s: f64,
    begin: Instant,
}

impl Phases {
    pub(crate) fn new() -> Phases {
        let bar = ProgressBar::new(BAR_STEPS as u64).with_style(bar_style()).with_finish(ProgressFinish::AndClear);
        Phases { bar, quiet: false, whole_s: 0.0, done_s: 0.0, phase_s: 0.0, begin: Instant::now() }
    }

    /// Shows the bar only, for a measurement that is not the command's purpose.
    pub(crate) fn quiet() -> Phases {
        Phases { quiet: true, ..Phases::new() }
    }

    /// Shows `name` as the present phase, of unknown length.
    pub(crate) fn of(name: &str) -> Phases {
        let mut phases = Phases::new();
        phases.on_phase(name, 0.0);
        phases
    }

    /// Replaces the name of the present phase.
    pub(crate) fn rename(&self, name: String) {
        self.bar.set_message(name);
    }

    /// Runs `work`, which may print, with the bar hidden.
    pub(crate) fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        self.bar.suspend(work)
    }
}

impl Observer for Phases {
    fn on_plan(&mut self, expected_s: f64) {
        (self.whole_s, self.done_s, self.phase_s) = (expected_s, 0.0, 0.0);
    }

    fn on_phase(&mut self, name: &str, expected_s: f64) {
        self.done_s += self.phase_s;
        self.phase_s = if expected_s.is_finite() { expected_s } else { 0.0 };
        self.begin = Instant::now();
        self.bar.set_message(printable(name));
        self.on_progress(0.0);
    }

    fn on_progress(&mut self, fraction: f64) {
        let fraction = fraction.clamp(0.0, 1.0);
        let part = match self.whole_s > 0.0 {
            true => (self.done_s + fraction * self.phase_s) / self.whole_s,
            false => fraction,
        };
        let left_s = match self.whole_s > 0.0 {
            true => Some(self.whole_s * (1.0 - part)),
            false => estimated_left_s(self.begin, fraction),
        };
        // A phase that takes longer than expected must not show 100 %.
        self.bar.set_position((part.min(0.99) * BAR_STEPS) as u64);
        self.bar.set_prefix(left(left_s));
    }

    fn on_note(&mut self, text: &str) {
        match text.strip_prefix("warning: ") {
            _ if self.quiet => {}
            Some(text) => self.bar.suspend(|| warning(text)),
            None => self.bar.suspend(|| note(text)),
        }
    }
}

/// Least part of a phase from which the rest can be estimated.
const KNOWN_PART: f64 = 0.05;

/// Returns the estimated seconds left of work that began at `begin` and is done to `fraction`, or `None` if it is too
/// early for an estimate.
fn estimated_left_s(begin: Instant, fraction: f64) -> Option<f64> {
    (fraction >= KNOWN_PART).then(|| begin.elapsed().as_secs_f64() * (1.0 / fraction - 1.0))
}

/// Returns the time left as text, empty if it is unknown.
pub(crate) fn left(seconds: Option<f64>) -> String {
    match seconds {
        Some(seconds) if seconds > 0.0 && seconds < 100.0 => format!("{:.0} s left", seconds.ceil()),
        Some(seconds) if seconds > 0.0 => format!("{:.0} min left", (seconds / 60.0).ceil()),
        _ => String::new(),
    }
}

const BAR_STEPS: f64 = 1000.0;

/// Returns the style of a bar as wide as the terminal. It ends with its prefix, the text of [`left`].
pub(crate) fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{msg:24} [{wide_bar}] {percent:>3} %  {prefix}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_neither_steers_the_terminal_nor_widens_a_table() {
        let long = "n".repeat(90);
        let cases: [(&[&str], &str); 3] = [
            (&["3 ms", &long, "write 4 KiB"], "…"),
            (&[&long, "db", &long], "…"),
            (&["red\x1b[31m", "a\nb", "plain"], "red\\u{1b}[31m  a\\u{a}b  plain"),
        ];
        for (cells, expected) in cases {
            let row = cells.iter().map(|cell| (*cell).to_owned()).collect();
            let text = table(&["longest", "class", "piece"], vec![row]);
            assert!(text.contains(expected), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
        }
        assert_eq!(wrap("a\x1b[2J b"), "a\\u{1b}[2J b");
    }

    #[test]
    fn an_answer_is_coloured_on_a_terminal_only() {
        let answer = Answer::new(Mood::Bad, "saturated\x1b[2J", "1 GB/s", "");
        assert_eq!(answer_within(100, "", &answer), "saturated\\u{1b}[2J\n1 GB/s\n\n");
        let coloured = answer_within(100, colour(answer.mood), &answer);
        assert_eq!(coloured, "\x1b[1;31msaturated\\u{1b}[2J\x1b[0m\n1 GB/s\n\n");
    }

    #[test]
    fn a_terminal_gets_no_sequences_but_the_colours_of_answers() {
        let cases = [
            ("class,name\na\tb,\"x\x1b]0;mine\x07\"\n", "class,name\na\tb,\"x\\u{1b}]0;mine\\u{7}\"\n"),
            ("a\rb\u{9b}2Jc\x1b", "a\\u{d}b\\u{9b}2Jc\\u{1b}"),
            ("\x1b[1;31mbad\x1b[0m\nx\x1b[2J\n", "\x1b[1;31mbad\x1b[0m\nx\\u{1b}[2J\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(for_terminal(text), expected);
        }
        assert_eq!(printable_lines("\x1b[1ma\n\tb\r"), "\\u{1b}[1ma\n\tb\\u{d}");
    }

    #[test]
    fn long_remarks_break_between_words() {
        let long = format!("warning: {}", "of a disk that was busy ".repeat(9));
        let text = format!("a  table\n{long}\n  stays");
        let wrapped = wrap_lines(80, &text);
        assert!(wrapped.lines().all(|line| line.len() <= 80) && wrapped.lines().count() > 4, "{wrapped}");
        assert!(wrapped.starts_with("a  table\nwarning: of") && wrapped.ends_with("\n  stays"), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn a_figure_is_whole_or_its_column_is_named() {
        let headers = ["class", "read/s", "write/s", "read", "written", "waited\np99", "p50", "p99", "rule", "note"];
        let figures = ["-1,234,567.25 to +9,876,543.75", "12.3 GB/s", "<0.0001", "+3.25 %", "~1.2 ms", "123,456,789"];
        for width in [40, 60, 80, 100, 120] {
            for columns in 2..=headers.len() {
                let cell = |at: usize| match at {
                    0 => "a class".to_owned(),
                    at if at % 4 == 3 => "words that may be cut, as they say nothing exact".to_owned(),
                    at => figures[at % figures.len()].to_owned(),
                };
                let row: Vec<String> = (0..columns).map(cell).collect();
                let text = table_within(width, &headers[..columns], vec![row.clone()]);
                assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{text}");
                for (header, cell) in headers[..columns].iter().zip(&row) {
                    let left_out = text.split_once("(no room for:").map_or("", |(_, names)| names).replace('\n', " ");
                    let is_left_out = left_out.contains(&header.replace('\n', " "));
                    assert!(!is_figure(cell) || is_left_out || text.contains(cell), "{header} {cell}:\n{text}");
                }
            }
        }
        // Text is cut first.
        let row = |note: &str| ["reads", "1,000", note].map(str::to_owned).to_vec();
        let text = table_within(40, &["job", "IOPS", "note"], vec![row(&"w".repeat(80))]);
        assert!(text.contains("1,000") && text.contains("www…") && !text.contains("no room"), "{text}");
    }
}
