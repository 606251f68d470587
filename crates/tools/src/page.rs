//! One HTML page with text, tables, warnings and charts: what a measurement leaves for people to read.
//!
//! # Why
//! A page that is one file can be mailed, put beside a bug report, and opened in ten years without a network.
//!
//! # How it works
//! A page is a list of [`Section`]s, a section a heading and a list of [`Block`]s. Style is part of the page; there is
//! no script, and a policy in its head forbids the browser to load anything. Charts are drawn by [`crate::plot`]. The
//! page follows the reader's preference for light or dark, charts stay dark on white. All text is escaped here or
//! there; callers pass plain text. Columns of a table whose cells all begin like a number are aligned at the right.
//! From four sections on there is a table of contents.
//!
//! # Limits
//! Plain text only: no links, no emphasis. Tables and pictures wider than a small screen scroll sideways or shrink.
//!
//! # Example
//! ```
//! use plimsoll_tools::page::{Block, Section, Table, html};
//! let table = Table {
//!     caption: "Four figures".into(),
//!     headers: vec!["figure".into(), "value".into()],
//!     rows: vec![vec!["read IOPS".into(), "218,786".into()]],
//! };
//! let section = Section { heading: "Result".into(), blocks: vec![Block::Table(table)] };
//! let page = html("tune /mnt/nvme", &[section]);
//! assert!(page.starts_with("<!DOCTYPE html>") && page.contains("218,786"));
//! ```

use std::fmt::Write as _;

use crate::plot::{self, Chart, escaped};

/// A heading and what stands below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// One line.
    pub heading: String,
    /// From top to bottom.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// What the reader should not overlook, one entry each; nothing is shown for an empty list.
    Warnings(Vec<String>),
    /// Rows and columns.
    Table(Table),
    /// Charts one below the other in one picture, with their frames in line.
    Picture(Vec<Chart>),
}

/// Rows and columns of plain text. Rows may be shorter than others: what is missing stays empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Above the table; empty for none.
    pub caption: String,
    /// Names of the columns; empty for none.
    pub headers: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

/// From this many sections on a page has a table of contents.
const CONTENTS_FROM: usize = 4;

const STYLE: &str = "\
:root { color-scheme: light dark; --page: #ffffff; --text: #1a1a1a; --quiet: #5a5a5a; --rule: #d8d8d8;
  --stripe: #f6f7f9; --warn: #fff6e0; --warn-rule: #c77700; --link: #0b5c96; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181b; --text: #e8e8e8; --quiet: #a8a8a8; --rule: #3a3d42; --stripe: #1e2125; --warn: #33290f;
    --warn-rule: #e69f00; --link: #7cc0f0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 .75rem; padding-bottom: .25rem; border-bottom: 1px solid var(--rule); }
p { max-width: 75ch; margin: .75rem 0; }
a { color: var(--link); }
nav ul { padding: 0; margin: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
.warnings { margin: 1rem 0; padding: .6rem 1rem .6rem 2rem; background: var(--warn);
  border-left: 4px solid var(--warn-rule); }
.warnings li + li { margin-top: .35rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .3rem .9rem .3rem .5rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--quiet); }
.number { text-align: right; white-space: nowrap; }
tbody tr:nth-child(even) { background: var(--stripe); }
figure { margin: 1rem 0; background: #ffffff; border: 1px solid var(--rule); border-radius: 4px; padding: .5rem; }
svg { display: block; max-width: 100%; height: auto; margin: 0 auto; }
@media print {
  :root { --page: #ffffff; --text: #000000; --quiet: #333333; --rule: #bbbbbb; --stripe: #ffffff; --warn: #ffffff; }
  body { max-width: none; padding: 0; font-size: 11pt; }
  nav { display: none; }
  h2 { break-after: avoid; }
  figure, tr, .warnings { break-inside: avoid; }
  figure { border: 0; padding: 0; }
  .scroll { overflow: visible; }
}
";

/// A whole HTML page, complete in itself. `title` is shown above the sections and in the window of the browser.
#[must_use]
pub fn html(title: &str, sections: &[Section]) -> String {
    let title = escaped(title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    if sections.len() >= CONTENTS_FROM {
        page.push_str("<nav aria-label=\"Contents\"><ul>\n");
        for (at, section) in sections.iter().enumerate() {
            let _ = writeln!(page, "<li><a href=\"#section-{}\">{}</a></li>", at + 1, escaped(&section.heading));
        }
        page.push_str("</ul></nav>\n");
    }
    page.push_str("<main>\n");
    for (at, section) in sections.iter().enumerate() {
        let _ = writeln!(page, "<section id=\"section-{}\">\n<h2>{}</h2>", at + 1, escaped(&section.heading));
        for block in &section.blocks {
            write_block(&mut page, block);
        }
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn write_block(page: &mut String, block: &Block) {
    match block {
        Block::Text(text) => {
            let _ = writeln!(page, "<p>{}</p>", escaped(text));
        }
        Block::Warnings(warnings) if warnings.is_empty() => {}
        Block::Warnings(warnings) => {
            page.push_str("<ul class=\"warnings\" aria-label=\"Warnings\">\n");
            for warning in warnings {
                let _ = writeln!(page, "<li>{}</li>", escaped(warning));
            }
            page.push_str("</ul>\n");
        }
        Block::Table(table) => write_table(page, table),
        Block::Picture(charts) => {
            let _ = writeln!(page, "<figure>\n{}</figure>", plot::svg("", charts));
        }
    }
}

fn write_table(page: &mut String, table: &Table) {
    let columns = table.rows.iter().map(Vec::len).chain([table.headers.len()]).max().unwrap_or(0);
    let is_number: Vec<bool> = (0..columns).map(|column| is_number_column(table, column)).collect();
    page.push_str("<div class=\"scroll\"><table>\n");
    if !table.caption.is_empty() {
        let _ = writeln!(page, "<caption>{}</caption>", escaped(&table.caption));
    }
    if !table.headers.is_empty() {
        page.push_str("<thead>\n");
        write_row(page, &table.headers, "th", &is_number);
        page.push_str("</thead>\n");
    }
    page.push_str("<tbody>\n");
    for row in &table.rows {
        write_row(page, row, "td", &is_number);
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn write_row(page: &mut String, cells: &[String], tag: &str, is_number: &[bool]) {
    page.push_str("<tr>");
    for (column, is_number) in is_number.iter().enumerate() {
        let class = if *is_number { " class=\"number\"" } else { "" };
        let scope = if tag == "th" { " scope=\"col\"" } else { "" };
        let cell = cells.get(column).map_or("", String::as_str);
        let _ = write!(page, "<{tag}{class}{scope}>{}</{tag}>", escaped(cell));
    }
    page.push_str("</tr>\n");
}

/// Whether all cells of a column begin like a number, or stand for one that is missing, and one does begin like one.
fn is_number_column(table: &Table, column: usize) -> bool {
    let cells = || table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.trim());
    let begins = |cell: &str| cell.trim_start_matches(['-', '+', '\u{b1}']).starts_with(|c: char| c.is_ascii_digit());
    cells().any(begins) && cells().all(|cell| begins(cell) || matches!(cell, "" | "-" | "n/a"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::gallery;

    fn strings(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn tune_page() -> String {
        let table = Table {
            caption: "Figures & ranges".into(),
            headers: strings(&["figure", "value", "range of five runs", "remark"]),
            rows: vec![
                strings(&["read IOPS", "218,786", "0.8 %", "<steady>"]),
                strings(&["read bandwidth", "3.02 GB/s", "1.1 %"]),
                strings(&["write IOPS", "121,499", "n/a", "fell off after 240 s", "an extra cell"]),
            ],
        };
        let warnings = strings(&["the disk is 96 % full: writes may be slower than usual", "no <governor> & no clock"]);
        let section = |heading: &str, blocks: Vec<Block>| Section { heading: heading.to_owned(), blocks };
        html(
            "tune /mnt/<nvme> & \"more\"",
            &[
                section(
                    "Result",
                    vec![
                        Block::Text("Measured for 120 s a figure with io_uring on 4 shards.".into()),
                        Block::Warnings(warnings),
                        Block::Table(table),
                        Block::Warnings(Vec::new()),
                    ],
                ),
                section("Cost of a request by its size", vec![Block::Picture(gallery::size_curve())]),
                section("Latency", vec![Block::Picture(vec![gallery::latency_against_load()])]),
                section("Reads & writes", vec![Block::Picture(vec![gallery::frontier()])]),
                section("Over time", vec![Block::Picture(vec![gallery::time_series()])]),
            ],
        )
    }

    #[test]
    fn a_page_is_whole_escaped_and_complete_in_itself() {
        let page = tune_page();
        for (opened, closed) in [
            ("<section ", "</section>"),
            ("<tr>", "</tr>"),
            ("<td", "</td>"),
            ("<th ", "</th>"),
            ("<svg ", "</svg>"),
            ("<figure>", "</figure>"),
            ("<li>", "</li>"),
            ("<p>", "</p>"),
        ] {
            assert_eq!(page.matches(opened).count(), page.matches(closed).count(), "{opened}");
            assert!(page.contains(opened), "{opened}");
        }
        for foreign in ["<steady>", "<nvme>", "<governor>", "<script", "src=", "url(", "@import", "NaN"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        let addresses = page.matches("http://").count();
        assert_eq!(addresses, page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count(), "names, nothing to load");
        assert!(
            page.contains("<meta charset=\"utf-8\">") && page.contains("tune /mnt/&lt;nvme&gt; &amp; &quot;more&quot;")
        );
        assert_eq!(page.matches("class=\"warnings\"").count(), 1, "no empty list");
        assert_eq!(page.matches("href=\"#section-").count(), page.matches("<section ").count());
    }

    #[test]
    fn columns_of_numbers_are_aligned_and_short_rows_filled() {
        let row = |cells: &[&str]| strings(cells);
        let table =
            Table { rows: vec![row(&["a", "-1.5 %", "n/a", "4 KiB"]), row(&["2", "3", "-", "x"])], ..Table::default() };
        let numbers: Vec<bool> = (0..5).map(|column| is_number_column(&table, column)).collect();
        assert_eq!(numbers, [false, true, false, false, false]);
        assert_eq!(tune_page().matches("<td").count(), 3 * 5);
        assert!(!html("empty", &[]).contains("<nav"));
    }
}
