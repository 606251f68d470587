//! Reads families from CSV, a line for each size.
//!
//! **Why.** Measurements of many machines are collected in tables, with the advertised figures beside them.
//!
//! **How.** The first line names the columns, in any order. `instance` is required; the figures are `read_iops`,
//! `read_bytes_per_s`, `write_iops`, `write_bytes_per_s`, each plain or with the prefix `measured_`, `advertised_` or
//! `reference_` (measured by another program, such as fio; shown, not judged by). Plain columns are measured figures;
//! but if any column is `measured_`, plain ones are expected figures, which replace missing advertised ones.
//! `_bandwidth`, `_bandwidth_Bps` and `_bw` are read as `_bytes_per_s`. Optional are `vcpus`, `n_disks`, `family` and
//! `basis` (`per_disk`: plain figures are multiplied by the disks). Other columns are ignored with a warning, unless
//! they look like a typing error. Fields may be quoted; an empty one is unknown.
//!
//! An advertised figure that is a power of ten away from what the other sizes suggest is not used, with a warning.
//!
//! **Limits.** 1 MiB. No line breaks in fields.
//!
//! **Example.** `instance,read_iops,advertised_read_iops` and `i4i.8xlarge,519944,800000`.

use std::path::Path;

use plimsoll_figures::units::quoted;
use plimsoll_files::ConfigError;
use plimsoll_files::closest_name;
use plimsoll_files::csv::{CsvCell, lines, wrong_length};
use plimsoll_files::error::{Code, Source, Span};
use plimsoll_files::fields::list_of;
use plimsoll_files::yaml;
use plimsoll_observe::stat::output::listed;

use super::names::{family_of, vcpus_of};
use super::{AdvertisedKind, FIGURES, Input, Size};

const PLAIN: [&str; 5] = ["instance", "family", "vcpus", "n_disks", "basis"];

/// Names of the four figures in a header; the first of each is its own, the others are synonyms.
const NAMES: [&[&str]; 4] = [
    &["read_iops"],
    &["read_bytes_per_s", "read_bandwidth", "read_bandwidth_Bps", "read_bw"],
    &["write_iops"],
    &["write_bytes_per_s", "write_bandwidth", "write_bandwidth_Bps", "write_bw"],
];

/// Most sizes or families that a warning names.
const NAMED_MAX: usize = 4;

const MEASURED: &str = "measured_";
const ADVERTISED: &str = "advertised_";
const REFERENCE: &str = "reference_";

const HEADER_HELP: &str = "the first line names the columns: instance, read_iops, read_bytes_per_s, write_iops, \
                           write_bytes_per_s, and advertised_read_iops ...";

/// Reads families from CSV; `source_name` is for messages.
///
/// # Errors
/// With line and column: the text is empty; a column is missing, doubled or misspelt; a number is invalid or not above
/// 0; an instance occurs twice; no family has two sizes with measured figures.
pub fn parse(source_name: &str, text: &str) -> Result<Input, ConfigError> {
    read(&Source::new(source_name, text))
}

/// Reads families from a CSV file, see [`parse`].
pub(crate) fn csv_from_file(path: &Path) -> Result<Input, ConfigError> {
    read(&yaml::read_file(path)?)
}

fn read(source: &Source) -> Result<Input, ConfigError> {
    let mut lines = lines(source);
    let Some(header) = lines.next() else {
        return Err(source.error(Code::Empty, "there is nothing in this text").with_help(HEADER_HELP));
    };

    let mut input = Input::default();
    let columns = columns(&header, &mut input.warnings)?;
    let mut rows: Vec<Row> = Vec::new();
    for cells in lines {
        if cells.len() != columns.len() {
            let error = wrong_length(source, &cells, columns.len());
            return Err(error.with_help("write one value for each column, separated by commas; empty for not known"));
        }
        let row = Line { columns: &columns, cells: &cells }.read()?;
        if rows.iter().any(|other| other.size.name == row.size.name) {
            let message = format!("{} stands here twice", quoted(&row.size.name));
            let error = source.error_at(&row.span, Code::DuplicateName, message);
            return Err(error.with_help("one line for each size"));
        }
        rows.push(row);
    }

    if rows.is_empty() {
        let error = source.error(Code::Empty, "there is no line below the header");
        return Err(error.with_help("write at least two sizes"));
    }
    gather(source, rows, &mut input)?;
    Ok(input)
}

struct Row {
    family: String,
    size: Size,
    /// The figures that replace missing advertised ones.
    expected: [Option<f64>; 4],
    span: Span,
}

struct Line<'a> {
    columns: &'a [String],
    cells: &'a [CsvCell<'a>],
}

impl Line<'_> {
    fn cell(&self, name: &str) -> Option<&CsvCell<'_>> {
        self.columns.iter().position(|column| column == name).and_then(|at| self.cells.get(at))
    }

    fn text(&self, name: &str) -> &str {
        self.cell(name).map_or("", |cell| &cell.text)
    }

    /// Reads a number from 1e-9 to 1e18; returns `None` for an empty field, or without such a column.
    fn number(&self, name: &str) -> Result<Option<f64>, ConfigError> {
        let Some(cell) = self.cell(name).filter(|cell| !cell.text.is_empty()) else { return Ok(None) };
        let (code, what) = match cell.text.parse::<f64>() {
            Ok(value) if (1e-9..=1e18).contains(&value) => return Ok(Some(value)),
            Ok(_) => (Code::OutOfRange, "out of range"),
            Err(_) => (Code::InvalidValue, "not a number"),
        };
        let error = cell.error(code, format!("{} is {what}", quoted(&cell.text)));
        Err(error.with_help("write a plain number above 0, or leave the field empty where it is not known"))
    }

    fn figures(&self, prefix: &str) -> Result<[Option<f64>; 4], ConfigError> {
        let mut figures = [None; 4];
        for (figure, names) in figures.iter_mut().zip(NAMES) {
            *figure = self.number(&format!("{prefix}{}", names[0]))?;
        }
        Ok(figures)
    }

    fn read(&self) -> Result<Row, ConfigError> {
        let name = self.text("instance").to_owned();
        let cell = self.cell("instance");
        if let Some(cell) = cell.filter(|cell| cell.text.is_empty()) {
            let error = cell.error(Code::MissingKey, "the instance has no name").with_key("instance");
            return Err(error.with_help("write its name, such as i4i.8xlarge, or remove the line"));
        }
        let span = cell.map_or(0..0, |cell| cell.span.clone());

        let n_disks = self.number("n_disks")?.map(|disks| (disks.round() as u32).max(1));
        let mut plain = self.figures("")?;
        match (self.text("basis"), n_disks, self.cell("basis")) {
            ("per_disk", Some(disks), _) => plain = plain.map(|figure| figure.map(|figure| figure * f64::from(disks))),
            ("per_disk", None, Some(cell)) => {
                let error = cell.error(Code::MissingKey, "figures per disk, and no `n_disks`").with_key("n_disks");
                return Err(error.with_help("say how many disks the instance has, or write the figures of all of them"));
            }
            ("" | "instance_total", ..) | (_, _, None) => {}
            (other, _, Some(cell)) => {
                let error = cell.error(Code::InvalidValue, format!("{other:?} is no basis of figures"));
                return Err(error.with_key("basis").with_help("write `per_disk` or `instance_total`"));
            }
        }
        let has_measured = self.columns.iter().any(|name| name.starts_with(MEASURED));
        let (measured, expected) = if has_measured { (self.figures(MEASURED)?, plain) } else { (plain, [None; 4]) };

        let vcpus = self.number("vcpus")?.or_else(|| vcpus_of(&name)).unwrap_or(0.0);
        let family = match self.text("family") {
            "" => family_of(&name),
            family => family.to_owned(),
        };
        let stated = |figure: Option<f64>| figure.map(|figure| (figure, AdvertisedKind::Stated));
        let advertised = self.figures(ADVERTISED)?.map(stated);
        let reference = self.figures(REFERENCE)?;
        let size = Size { name, vcpus, n_disks, measured, advertised, reference, ..Size::default() };
        Ok(Row { family, size, expected, span })
    }
}

/// Groups rows into families; rows that cannot be used become warnings.
fn gather(source: &Source, mut rows: Vec<Row>, input: &mut Input) -> Result<(), ConfigError> {
    set_slips_aside(&mut rows, &mut input.warnings);
    let (mut unmeasured, mut unsized_) = (Vec::new(), Vec::new());
    for Row { family, mut size, expected, .. } in rows {
        for (advertised, expected) in size.advertised.iter_mut().zip(expected) {
            *advertised = advertised.or(expected.map(|figure| (figure, AdvertisedKind::Expected)));
        }
        if size.measured.iter().all(Option::is_none) {
            unmeasured.push(size.name);
        } else if size.vcpus <= 0.0 {
            unsized_.push(size.name);
        } else {
            input.add(family, source.name(), size);
        }
    }

    let unsized_why = "whose name does not say how large they are (add a column `vcpus`)";
    for (names, why) in [(unmeasured, "without a measured figure"), (unsized_, unsized_why)] {
        if !names.is_empty() {
            input.warnings.push(format!("left out, {why}: {}", listed(names.iter(), NAMED_MAX)));
        }
    }

    let alone = input.without_single_sizes();
    if input.families.is_empty() {
        let why = match (&alone[..], &input.warnings[..]) {
            ([], warnings) => warnings.join("; "),
            (alone, _) => format!("one measured size only of {}", listed(alone.iter(), NAMED_MAX)),
        };
        let error = source.error(Code::Empty, format!("no family has two measured sizes: {why}"));
        return Err(error.with_help("how a figure scales takes at least two sizes of one family with measured figures"));
    }
    if !alone.is_empty() {
        input.warnings.push(format!("left out, families with one measured size: {}", listed(alone.iter(), NAMED_MAX)));
    }
    Ok(())
}

/// Removes advertised figures that are a power of ten away from what the other sizes of the family suggest.
fn set_slips_aside(rows: &mut [Row], warnings: &mut Vec<String>) {
    for (at, (_, title)) in FIGURES.iter().enumerate() {
        let per_vcpu = |row: &Row| Some(row.size.advertised[at]?.0 / row.size.vcpus).filter(|value| value.is_finite());
        let slip = |(place, row): (usize, &Row)| {
            let own = per_vcpu(row)?;
            let is_sister = |(other, sister): &(usize, &Row)| *other != place && sister.family == row.family;
            let mut sisters: Vec<f64> =
                rows.iter().enumerate().filter(is_sister).filter_map(|(_, sister)| per_vcpu(sister)).collect();
            sisters.sort_by(f64::total_cmp);
            // A single other size may be the wrong one itself.
            let median = sisters.get(sisters.len() / 2).filter(|_| sisters.len() > 1)?;
            let power = (own / median).log10().round() as i32;
            let is_near = (own / median / 10f64.powi(power) - 1.0).abs() <= super::SAME_FIGURE;
            (power != 0 && is_near).then_some((place, power))
        };
        let slips: Vec<(usize, i32)> = rows.iter().enumerate().filter_map(slip).collect();

        for (place, power) in slips {
            let Row { size, expected, .. } = &mut rows[place];
            let Some((value, _)) = size.advertised[at].take() else { continue };
            let instead = match expected[at] {
                Some(expected) => format!("what was expected, {expected}, stands in for it"),
                None => "nothing stands in for it".to_owned(),
            };
            warnings.push(format!(
                "{}: advertised {title} of {value} are {} times what the other sizes of its family suggest: taken for a \
                 slip, and not used; {instead}",
                size.name,
                10f64.powi(power)
            ));
        }
    }
}

/// Reads the names of the columns; those that are not read are empty.
fn columns(header: &[CsvCell<'_>], warnings: &mut Vec<String>) -> Result<Vec<String>, ConfigError> {
    let mut columns: Vec<String> = Vec::new();
    let mut others = Vec::new();
    for cell in header {
        let name = cell.text.as_ref();
        let column = canonical(name);
        if column.is_none() {
            let known = known();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            if let Some(meant) = closest_name(name, &known) {
                let error = cell.error(Code::UnknownKey, format!("there is no column {}", quoted(name)));
                return Err(error.with_help(format!("did you mean `{meant}`?")));
            }
            others.push(name);
        } else if column.as_ref().is_some_and(|column| columns.contains(column)) {
            let message = format!("the column {} stands twice", quoted(name));
            return Err(cell.error(Code::DuplicateKey, message).with_help("remove one of the two"));
        }
        columns.push(column.unwrap_or_default());
    }

    let names = NAMES.map(|names| names[0]);
    let is_measured = |column: &String| names.contains(&column.strip_prefix(MEASURED).unwrap_or(column));
    let missing = if !columns.iter().any(|column| column == "instance") {
        Some(("the column `instance` is missing", HEADER_HELP.to_owned()))
    } else if !columns.iter().any(is_measured) {
        Some(("no column holds what was measured", format!("add one of {}", list_of(&names))))
    } else {
        None
    };
    if let Some(((what, help), first)) = missing.zip(header.first()) {
        return Err(first.error(Code::MissingKey, what).with_help(help));
    }
    if !others.is_empty() {
        warnings.push(format!("columns that are not read: {}", others.join(", ")));
    }
    Ok(columns)
}

/// Returns a column's own name, or `None` if it is not read.
fn canonical(name: &str) -> Option<String> {
    if PLAIN.contains(&name) {
        return Some(name.to_owned());
    }
    [MEASURED, ADVERTISED, REFERENCE, ""].into_iter().find_map(|prefix| {
        let figure = name.strip_prefix(prefix)?;
        NAMES.iter().find(|names| names.contains(&figure)).map(|names| format!("{prefix}{}", names[0]))
    })
}

/// Returns every name that a column may have.
fn known() -> Vec<String> {
    let figures = NAMES.iter().copied().flatten();
    let figures =
        figures.flat_map(|name| ["", MEASURED, ADVERTISED, REFERENCE].map(|prefix| format!("{prefix}{name}")));
    PLAIN.map(str::to_owned).into_iter().chain(figures).collect()
}
