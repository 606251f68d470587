//! The last rows of a terminal, kept for a view while a program prints above them.
//!
//! # Why
//! A view that cleared the screen would erase the program's output, and that output would run through the view.
//!
//! # How it works
//! The terminal scrolls only the rows above the pane (DECSTBM), where the program's cursor stays: the program prints as
//! on a terminal of fewer rows. Line feeds that keep the column (VT) make room for the pane, so the cursor's row need
//! not be known. Each drawing is one string, for one write, so that the program's output cannot come between.
//!
//! # Limits
//! A program that draws on the whole terminal (an editor, a pager) and the pane overwrite each other. A killed command
//! leaves the region behind, until `reset`. Each letter counts as one column.
//!
//! # Example
//! A pane of 8 rows on a terminal of 24: the program has rows 1 to 16.

/// Fewest rows of a terminal that has room for a pane.
const ROWS_MIN: u16 = 6;

/// The pane. [`Pane::end`] restores the terminal.
#[derive(Debug, Default)]
pub(super) struct Pane {
    /// Columns and rows of the terminal.
    size: (u16, u16),
    /// Rows of the pane; 0 if there is none. It never shrinks, so that the program's output does not jump.
    height: u16,
}

impl Pane {
    /// Returns the string that shows `text` on a terminal of `size` (columns, rows).
    pub(super) fn draw(&mut self, text: &str, size: (u16, u16)) -> String {
        let mut out = String::new();
        if self.size != size {
            // The rows have moved; the old pane is still below the cursor.
            out.push_str(&self.end());
            self.size = size;
        }
        let (_, rows) = size;
        if rows < ROWS_MIN {
            return out;
        }

        let lines = lines(text, size);
        let missing = (lines.len() as u16).saturating_sub(self.height);
        if missing > 0 {
            out.push_str(&"\x0b".repeat(usize::from(missing)));
            out.push_str(&format!("\x1b[{missing}A"));
            self.height += missing;
        }

        let above = rows - self.height;
        // Save the cursor and the colours, and draw in plain ones. Setting the region moves the cursor.
        out.push_str(&format!("\x1b7\x1b[m\x1b[1;{above}r"));
        for at in 0..self.height {
            let line = lines.get(usize::from(at)).map_or("", String::as_str);
            out.push_str(&format!("\x1b[{};1H\x1b[2K{line}", above + 1 + at));
        }
        out.push_str("\x1b8");
        out
    }

    /// Returns the string that gives all rows back to the program, and erases the pane.
    pub(super) fn end(&mut self) -> String {
        if std::mem::take(&mut self.height) == 0 {
            return String::new();
        }
        "\x1b7\x1b[m\x1b[r\x1b8\x1b[J".to_owned()
    }
}

/// Returns the rows of a pane: an empty one, then those of `text`, together at most two thirds of the terminal's.
fn lines(text: &str, (columns, rows): (u16, u16)) -> Vec<String> {
    let cut = |line: &str| line.chars().take(usize::from(columns)).collect::<String>();
    let mut lines: Vec<String> = std::iter::once("").chain(text.trim_end().lines()).map(cut).collect();
    let most = usize::from(rows) * 2 / 3;
    if lines.len() > most {
        let hidden = lines.len() - most + 1;
        lines.truncate(most - 1);
        lines.push(cut(&format!("… {hidden} more lines")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal, and the output of a program and a pane on it.
    struct Terminal {
        screen: vt100::Parser,
        pane: Pane,
        size: (u16, u16),
    }

    impl Terminal {
        fn new(size: (u16, u16)) -> Terminal {
            Terminal { screen: vt100::Parser::new(size.1, size.0, 0), pane: Pane::default(), size }
        }

        fn program(&mut self, text: &str) {
            self.screen.process(text.replace('\n', "\r\n").as_bytes());
        }

        fn view(&mut self, text: &str) {
            let drawn = self.pane.draw(text, self.size);
            self.screen.process(drawn.as_bytes());
        }

        fn resize(&mut self, size: (u16, u16)) {
            self.size = size;
            self.screen.screen_mut().set_size(size.1, size.0);
        }

        fn end(&mut self) {
            let drawn = self.pane.end();
            self.screen.process(drawn.as_bytes());
        }

        #[track_caller]
        fn check(&self, expected: &[&str]) {
            let rows: Vec<String> = self.screen.screen().rows(0, self.size.0).collect();
            let mut expected: Vec<&str> = expected.to_vec();
            expected.resize(usize::from(self.size.1), "");
            assert_eq!(rows, expected);
        }
    }

    #[test]
    fn a_program_prints_above_the_pane() {
        let mut terminal = Terminal::new((20, 8));
        terminal.program("$ run\none\nhalf a l");
        terminal.view("view\na 1\n");
        terminal.check(&["$ run", "one", "half a l", "", "", "", "view", "a 1"]);
        terminal.program("ine\ntwo\nthree\nfour\n");
        terminal.check(&["half a line", "two", "three", "four", "", "", "view", "a 1"]);

        // One row more: the program's rows move up, and its cursor with them.
        terminal.view("view\na 2\nb 3");
        terminal.check(&["two", "three", "four", "", "", "view", "a 2", "b 3"]);
        terminal.program("five\nsix");
        terminal.check(&["three", "four", "five", "six", "", "view", "a 2", "b 3"]);
    }

    #[test]
    fn the_terminal_is_as_it_was_when_the_pane_has_ended() {
        let mut terminal = Terminal::new((20, 8));
        terminal.view("view");
        terminal.program("1\n2\n3\n4\n5\n6");
        terminal.check(&["1", "2", "3", "4", "5", "6", "", "view"]);
        terminal.end();
        terminal.program("\n7\n8\n9\n");
        terminal.check(&["3", "4", "5", "6", "7", "8", "9"]);
        terminal.end();
        terminal.check(&["3", "4", "5", "6", "7", "8", "9"]);
    }

    #[test]
    fn a_program_keeps_a_third_of_the_rows() {
        let mut terminal = Terminal::new((12, 8));
        terminal.view("1\n2\n3\n4\n5\na line that is too long");
        terminal.check(&["", "", "", "", "1", "2", "3", "… 3 more lin"]);
        let mut terminal = Terminal::new((80, 5));
        terminal.view("1");
        terminal.check(&[]);
    }

    #[test]
    fn a_terminal_that_changes_its_size_gets_a_new_pane() {
        let mut terminal = Terminal::new((20, 8));
        terminal.program("one\n");
        terminal.view("view");
        terminal.resize((30, 10));
        terminal.view("a view that is wider");
        terminal.check(&["one", "", "", "", "", "", "", "", "", "a view that is wider"]);
        terminal.program("two\n");
        terminal.resize((30, 7));
        terminal.view("low");
        terminal.check(&["one", "two", "", "", "", "", "low"]);
    }
}
