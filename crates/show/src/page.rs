//! One HTML page with text, tables, warnings and charts: the report of a measurement for people to read.
//!
//! # Why
//! A page that is one file can be mailed, put beside a bug report, and opened in ten years without a network.
//!
//! # How it works
//! A page is a list of [`Section`]s, a section a heading and a list of [`Block`]s; a page of several results is a list
//! of [`Part`]s. Style is part of the page; there is no script, and a policy in its head forbids the browser to load
//! anything. Charts are drawn by [`crate::plot`], described in words for readers who cannot see them, and follow the
//! reader's preference for light or dark like everything else. All text is escaped here or in [`crate::plot`]; callers
//! pass plain text. Columns of a table whose cells all begin like a number are aligned at the right. A block that is
//! wider than the screen scrolls in a region of its own that the keyboard reaches. A page of four sections or more has
//! a table of contents.
//!
//! [`body`] and [`STYLE`] also serve pages that are assembled elsewhere, such as a live one.
//!
//! # Limits
//! Plain text only: no links, no emphasis. On a small screen pictures scroll sideways, because shrunk they would be
//! illegible.
//!
//! # Example
//! ```
//! use plimsoll_show::page::{Section, html};
//! use plimsoll_show::table::Table;
//! let table = Table::new("Four figures", ["figure", "value"], [["read IOPS".into(), "218,786".into()]]);
//! let section = Section::new("Result", [table.into()]);
//! let page = html("tune /mnt/nvme", &[section]);
//! assert!(page.starts_with("<!DOCTYPE html>") && page.contains("218,786"));
//! ```

mod tile;
mod words;

use std::fmt::Write as _;

use crate::answer::Answer;
use crate::plot::{self, Chart, escaped};
use crate::table::Table;

pub use tile::Tile;

/// One result on a page of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub title: String,
    pub sections: Vec<Section>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    pub heading: String,
    pub blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// The verdict, which stands before everything else.
    Answer(Answer),
    Text(String),
    /// Warnings that the reader should not overlook, one entry each; an empty list shows nothing.
    Warnings(Vec<String>),
    Table(Table),
    /// Charts one below the other in one picture, their frames aligned.
    Picture(Vec<Chart>),
    /// Things with a state each, side by side as far as the screen is wide; an empty list shows nothing.
    Tiles(Vec<Tile>),
}

impl Section {
    pub fn new(heading: impl Into<String>, blocks: impl Into<Vec<Block>>) -> Section {
        Section { heading: heading.into(), blocks: blocks.into() }
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Block {
        Block::Table(table)
    }
}

impl From<Answer> for Block {
    fn from(answer: Answer) -> Block {
        Block::Answer(answer)
    }
}

/// Fewest sections of a page with a table of contents.
const CONTENTS_FROM: usize = 4;

/// The style of a page (CSS). It loads nothing.
pub const STYLE: &str = include_str!("page/style.css");

/// Returns a whole, self-contained HTML page. `title` is shown above the sections and in the browser's window.
pub fn html(title: &str, sections: &[Section]) -> String {
    html_of_parts(title, &[Part { title: String::new(), sections: sections.to_vec() }])
}

/// Returns a page of several results, otherwise as [`html`]. The title of a part stands above its sections, unless
/// there is only one part.
pub fn html_of_parts(title: &str, parts: &[Part]) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#content\">To the content</a>\n\
         <header>\n<h1>{title}</h1>\n</header>\n{}<main id=\"content\">\n{}</main>\n</body>\n</html>\n",
        contents(parts),
        body(parts)
    )
}

/// Returns links to all sections, or to all parts, or nothing for a page of few sections.
fn contents(parts: &[Part]) -> String {
    let links: Vec<(String, &str)> = match parts {
        [part] if part.sections.len() < CONTENTS_FROM => Vec::new(),
        [part] => {
            let headings = part.sections.iter().map(|section| section.heading.as_str()).enumerate();
            headings.map(|(at, heading)| (id(1, 0, at), heading)).collect()
        }
        parts => parts.iter().enumerate().map(|(at, part)| (part_id(at), part.title.as_str())).collect(),
    };
    if links.is_empty() {
        return String::new();
    }
    let item = |(id, text): &(String, &str)| format!("<li><a href=\"#{id}\">{}</a></li>\n", escaped(text));
    format!("<nav aria-label=\"Contents\"><ul>\n{}</ul></nav>\n", links.iter().map(item).collect::<String>())
}

fn part_id(part: usize) -> String {
    format!("part-{}", part + 1)
}

/// Returns the identifier of a section, counted from 0, on a page with `parts` parts.
fn id(parts: usize, part: usize, section: usize) -> String {
    match parts {
        1 => format!("section-{}", section + 1),
        _ => format!("part-{}-section-{}", part + 1, section + 1),
    }
}

/// Returns the markup between `<main>` and `</main>`. Identifiers depend only on the positions of sections and blocks.
pub fn body(parts: &[Part]) -> String {
    let mut page = String::new();
    let level = if parts.len() == 1 { 2 } else { 3 };
    for (part_at, part) in parts.iter().enumerate() {
        if parts.len() > 1 {
            let _ = writeln!(page, "<h2 id=\"{}\">{}</h2>", part_id(part_at), escaped(&part.title));
        }
        for (at, section) in part.sections.iter().enumerate() {
            let id = id(parts.len(), part_at, at);
            let heading = escaped(&section.heading);
            let _ = writeln!(page, "<section id=\"{id}\">\n<h{level}>{heading}</h{level}>");
            for (block_at, block) in section.blocks.iter().enumerate() {
                write_block(&mut page, block, &section.heading, &format!("{id}-{}", block_at + 1));
            }
            page.push_str("</section>\n");
        }
    }
    page
}

fn write_block(page: &mut String, block: &Block, heading: &str, id: &str) {
    match block {
        Block::Answer(answer) => write_answer(page, answer),
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
        Block::Table(table) => write_table(page, table, heading, id),
        Block::Picture(charts) => {
            let scroll = scroll(id, &format!("Picture: {heading}"));
            let _ = writeln!(page, "<figure>\n{scroll}{}</div></figure>", picture(heading, charts));
        }
        Block::Tiles(tiles) => tile::write(page, tiles, id),
    }
}

/// Writes a paragraph for each part of an answer; its colour only repeats the words.
fn write_answer(page: &mut String, answer: &Answer) {
    let _ = writeln!(page, "<div class=\"answer{}\">", answer.mood.class());
    for (at, part) in answer.lines(usize::MAX).iter().enumerate() {
        let tag = if at == 0 { "strong" } else { "span" };
        let _ = writeln!(page, "<p><{tag}>{}</{tag}></p>", escaped(part));
    }
    page.push_str("</div>\n");
}

/// Returns the start tag of a region that scrolls sideways if it is too wide.
fn scroll(id: &str, label: &str) -> String {
    format!("<div class=\"scroll\" id=\"{id}\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">", escaped(label))
}

/// Renders a picture with its description in words.
fn picture(heading: &str, charts: &[Chart]) -> String {
    let svg = plot::svg("", charts);
    let told = escaped(&words::words(charts));
    let title = charts.first().map_or(heading, |chart| chart.title.as_str());
    match svg.split_once('>') {
        Some((tag, rest)) => format!("{tag}>\n<title>{}</title>\n<desc>{told}</desc>{rest}", escaped(title)),
        None => svg,
    }
}

fn write_table(page: &mut String, table: &Table, heading: &str, id: &str) {
    let columns = table.rows.iter().map(Vec::len).chain([table.headers.len()]).max().unwrap_or(0);
    let is_number: Vec<bool> = (0..columns).map(|column| is_number_column(table, column)).collect();
    let label = if table.caption.is_empty() { heading } else { &table.caption };
    let _ = writeln!(page, "{}<table>", scroll(id, &format!("Table: {label}")));

    if !table.caption.is_empty() {
        let _ = writeln!(page, "<caption>{}</caption>", escaped(&table.caption));
    }

    if !table.headers.is_empty() {
        page.push_str("<thead>\n");
        write_row(page, &table.headers, |_, cell| if cell.is_empty() { CELL } else { COLUMN_NAME }, &is_number);
        page.push_str("</thead>\n");
    }

    page.push_str("<tbody>\n");
    let names_rows = columns > 1 && !is_number.first().is_some_and(|is_number| *is_number);
    let kind = |at: usize, cell: &str| if at == 0 && names_rows && !cell.is_empty() { ROW_NAME } else { CELL };

    for row in &table.rows {
        write_row(page, row, kind, &is_number);
    }
    page.push_str("</tbody>\n</table></div>\n");
}

/// Tag and scope of a cell.
type Kind = (&'static str, &'static str);
const CELL: Kind = ("td", "");
const COLUMN_NAME: Kind = ("th", " scope=\"col\"");
const ROW_NAME: Kind = ("th", " scope=\"row\"");

fn write_row(page: &mut String, cells: &[String], kind: impl Fn(usize, &str) -> Kind, is_number: &[bool]) {
    page.push_str("<tr>");
    for (column, is_number) in is_number.iter().enumerate() {
        let class = if *is_number { " class=\"number\"" } else { "" };
        let cell = cells.get(column).map_or("", String::as_str);
        let (tag, scope) = kind(column, cell);
        let _ = write!(page, "<{tag}{class}{scope}>{}</{tag}>", escaped(cell));
    }
    page.push_str("</tr>\n");
}

/// Returns whether a column holds numbers: every cell begins like a number or marks a missing one, and at least one
/// begins like a number.
fn is_number_column(table: &Table, column: usize) -> bool {
    let cells = || table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.trim());
    let begins = |cell: &str| cell.trim_start_matches(['-', '+', '\u{b1}']).starts_with(|c: char| c.is_ascii_digit());
    cells().any(begins) && cells().all(|cell| begins(cell) || matches!(cell, "" | "-" | "n/a"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Mood;
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
                        Answer::new(Mood::Bad, "doubtful: <write>", "known to 9 %", "").into(),
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
            ("<title>", "</title>"),
            ("<div ", "</div>"),
            ("<li>", "</li>"),
            ("<p>", "</p>"),
        ] {
            assert_eq!(page.matches(opened).count(), page.matches(closed).count(), "{opened}");
            assert!(page.contains(opened), "{opened}");
        }
        let answer = "<div class=\"answer bad\">\n<p><strong>doubtful: &lt;write&gt;</strong></p>\n\
                      <p><span>known to 9 %</span></p>\n</div>\n<p>Measured";
        assert!(page.contains(answer), "{page}");
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
        let page = tune_page();
        assert_eq!((page.matches("<td").count(), page.matches("scope=\"row\"").count()), (3 * 4 + 1, 3));
        assert!(!html("empty", &[]).contains("<nav"));
    }

    #[test]
    fn pictures_and_wide_tables_are_reached_and_told() {
        let page = tune_page();
        let pictures = page.matches("<svg ").count();
        assert_eq!((pictures, page.matches("<desc>").count()), (4, 4));
        assert_eq!(page.matches("tabindex=\"0\" aria-label=").count(), pictures + 1, "each picture and table");
        assert!(page.contains("lowest"), "{page}");
    }

    #[test]
    fn a_page_of_several_results_has_a_level_more() {
        let part = |title: &str| Part {
            title: title.to_owned(),
            sections: vec![Section { heading: "Result".into(), blocks: vec![Block::Text("text".into())] }],
        };
        let page = html_of_parts("two", &[part("a.json"), part("<b>")]);
        assert!(page.contains("<h2 id=\"part-2\">&lt;b&gt;</h2>") && page.contains("<h3>Result</h3>"));
        assert_eq!(page.matches("href=\"#part-").count(), 2);
        assert!(html_of_parts("one", &[part("a.json")]).contains("<h2>Result</h2>"));
    }
}
