//! Reads families from CSV, a line for each size.
//!
//! **Why.** Measurements of many machines are collected in tables, with the advertised figures beside them.
//!
//! **How.** The first line names the columns, in any order. `instance` must be there; the figures are `read_iops`,
//! `read_bytes_per_s`, `write_iops`, `write_bytes_per_s`, each plain or with the prefix `measured_` or `advertised_`.
//! Plain columns are measured figures; but if any column is `measured_`, plain ones are expected figures, which replace
//! missing advertised ones. `_bandwidth`, `_bandwidth_Bps` and `_bw` are read as `_bytes_per_s`. Optional are `vcpus`,
//! `n_disks`, `family` and `basis` (`per_disk`: plain figures are multiplied by the disks). Other columns are ignored
//! with a warning, unless they look like a typing error. Fields may be quoted; an empty one is not known.
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

use super::names::{family_of, vcpus_of};
use super::{AdvertisedKind, FIGURES, Family, Input, Size};

/// Names of the four figures in a header; messages use the first of each.
const NAMES: [&[&str]; 4] = [
    &["read_iops"],
    &["read_bytes_per_s", "read_bandwidth", "read_bandwidth_Bps", "read_bw"],
    &["write_iops"],
    &["write_bytes_per_s", "write_bandwidth", "write_bandwidth_Bps", "write_bw"],
];

const HEADER_HELP: &str = "the first line names the columns: instance, read_iops, read_bytes_per_s, write_iops, \
                           write_bytes_per_s, and advertised_read_iops ...";

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Instance,
    Family,
    Vcpus,
    Disks,
    Basis,
    Plain(usize),
    Measured(usize),
    Advertised(usize),
    Other,
}

/// Returns the column of one of the four figures.
type FigureColumn = fn(usize) -> Column;

/// Reads families from CSV; `source_name` is for messages.
///
/// # Errors
/// With line and column: the text is empty; a column is missing, doubled or misspelt; a number is none or not above 0;
/// an instance is there twice; no family has two sizes with measured figures.
pub fn parse(source_name: &str, text: &str) -> Result<Input, ConfigError> {
    read(&Source::new(source_name, text))
}

/// Reads families from a CSV file, see [`parse`].
///
/// # Errors
/// As [`parse`], or the file cannot be read.
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
        let row = Row::read(&columns, &cells)?;
        if rows.iter().any(|other| other.size.name == row.size.name) {
            let message = format!("{} stands here twice", quoted(&row.size.name));
            let error = source.error_at(&row.span, Code::DuplicateName, message);
            return Err(error.with_help("one line for each size"));
        }
        rows.push(row);
    }

    if rows.is_empty() {
        return Err(source
            .error(Code::Empty, "there is no line below the header")
            .with_help("write at least two sizes"));
    }
    gather(source, rows, &mut input)?;
    Ok(input)
}

/// The content of a line.
struct Row {
    family: String,
    size: Size,
    /// The figures that replace missing advertised ones.
    expected: [Option<f64>; 4],
    span: Span,
}

impl Row {
    fn read(columns: &[Column], cells: &[CsvCell<'_>]) -> Result<Row, ConfigError> {
        let cell = |wanted: Column| columns.iter().position(|column| *column == wanted).and_then(|at| cells.get(at));
        let text = |wanted: Column| cell(wanted).map_or("", |cell| &cell.text);
        let number = |wanted: Column| cell(wanted).map_or(Ok(None), positive);
        let figures = |wanted: FigureColumn| -> Result<[Option<f64>; 4], ConfigError> {
            Ok([number(wanted(0))?, number(wanted(1))?, number(wanted(2))?, number(wanted(3))?])
        };
        let (name, span) = match cell(Column::Instance) {
            Some(cell) if !cell.text.is_empty() => (cell.text.to_string(), cell.span.clone()),
            Some(cell) => {
                let error = cell.error(Code::MissingKey, "the instance has no name").with_key("instance");
                return Err(error.with_help("write its name, such as i4i.8xlarge, or remove the line"));
            }
            None => (String::new(), 0..0),
        };

        let n_disks = number(Column::Disks)?.map(|disks| (disks.round() as u32).max(1));
        let mut plain = figures(Column::Plain)?;
        match (text(Column::Basis), n_disks, cell(Column::Basis)) {
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
        let has_measured = columns.iter().any(|column| matches!(column, Column::Measured(_)));
        let (measured, expected) = if has_measured { (figures(Column::Measured)?, plain) } else { (plain, [None; 4]) };

        let vcpus = number(Column::Vcpus)?.or_else(|| vcpus_of(&name)).unwrap_or(0.0);
        let family = match text(Column::Family) {
            "" => family_of(&name),
            family => family.to_owned(),
        };
        let advertised = figures(Column::Advertised)?;
        Ok(Row { family, size: Size { name, vcpus, n_disks, measured, advertised, ..Size::default() }, expected, span })
    }
}

/// Reads a number from 1e-9 to 1e18; returns `None` for an empty field.
fn positive(cell: &CsvCell<'_>) -> Result<Option<f64>, ConfigError> {
    let text = cell.text.as_ref();
    if text.is_empty() {
        return Ok(None);
    }
    let help = "write a plain number above 0, or leave the field empty where it is not known";
    match text.parse::<f64>() {
        Ok(value) if (1e-9..=1e18).contains(&value) => Ok(Some(value)),
        Ok(_) => {
            let message = format!("{} is out of range", quoted(text));
            Err(cell.error(Code::OutOfRange, message).with_help(help))
        }
        Err(_) => {
            let message = format!("{} is not a number", quoted(text));
            Err(cell.error(Code::InvalidValue, message).with_help(help))
        }
    }
}

/// Groups rows into families; rows that cannot be used become warnings.
fn gather(source: &Source, mut rows: Vec<Row>, input: &mut Input) -> Result<(), ConfigError> {
    set_slips_aside(&mut rows, &mut input.warnings);
    let mut unusable: [Vec<String>; 2] = Default::default();
    for mut row in rows {
        let slots = row.size.advertised.iter_mut().zip(&mut row.size.advertised_kind);
        for ((advertised, kind), expected) in slots.zip(row.expected) {
            if advertised.is_none() && expected.is_some() {
                (*advertised, *kind) = (expected, AdvertisedKind::Expected);
            }
        }
        let [unmeasured, unsized_] = &mut unusable;
        match &row.size {
            size if size.measured.iter().all(Option::is_none) => unmeasured.push(row.size.name),
            size if size.vcpus <= 0.0 => unsized_.push(row.size.name),
            _ => match input.families.iter_mut().find(|family| family.name == row.family) {
                Some(family) => family.sizes.push(row.size),
                None => {
                    let source = source.name().to_owned();
                    input.families.push(Family { name: row.family, source, sizes: vec![row.size] });
                }
            },
        }
    }

    let whys = ["without a measured figure", "whose name does not say how large they are (add a column `vcpus`)"];
    for (names, why) in unusable.iter().zip(whys) {
        if !names.is_empty() {
            input.warnings.push(format!("left out, {why}: {}", shortened(names)));
        }
    }

    let (families, alone): (Vec<_>, Vec<_>) =
        std::mem::take(&mut input.families).into_iter().partition(|family| family.sizes.len() > 1);
    input.families = families;
    let alone: Vec<String> = alone.into_iter().map(|family| family.name).collect();
    if input.families.is_empty() {
        let why = match (&alone[..], &input.warnings[..]) {
            ([], warnings) => warnings.join("; "),
            (alone, _) => format!("one measured size only of {}", shortened(alone)),
        };
        let error = source.error(Code::Empty, format!("no family has two measured sizes: {why}"));
        return Err(error.with_help("how a figure scales takes at least two sizes of one family with measured figures"));
    }
    if !alone.is_empty() {
        input.warnings.push(format!("left out, families with one measured size: {}", shortened(&alone)));
    }
    Ok(())
}

/// Returns the first four names, and the number of the others.
fn shortened(names: &[String]) -> String {
    let first = names.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 4 { format!("{first} and {} more", names.len() - 4) } else { first }
}

/// Removes advertised figures that are a power of ten away from what the other sizes of the family suggest.
fn set_slips_aside(rows: &mut [Row], warnings: &mut Vec<String>) {
    for (at, (_, title)) in FIGURES.iter().enumerate() {
        let per_vcpu = |row: &Row| Some(row.size.advertised.get(at).copied().flatten()? / row.size.vcpus);
        let slips: Vec<(usize, i32)> = rows
            .iter()
            .enumerate()
            .filter_map(|(place, row)| {
                let own = per_vcpu(row).filter(|value| value.is_finite())?;
                let sisters = rows.iter().enumerate().filter(|(other, _)| *other != place);
                let sisters =
                    sisters.filter(|(_, other)| other.family == row.family).filter_map(|(_, row)| per_vcpu(row));
                let mut sisters: Vec<f64> = sisters.filter(|value| value.is_finite()).collect();
                sisters.sort_by(f64::total_cmp);
                // A single other size may be the wrong one itself.
                let median = sisters.get(sisters.len() / 2).filter(|_| sisters.len() > 1)?;
                let power = (own / median).log10().round() as i32;
                let is_near = (own / median / 10f64.powi(power) - 1.0).abs() <= super::SAME_FIGURE;
                (power != 0 && is_near).then_some((place, power))
            })
            .collect();

        for (place, power) in slips {
            let Some(row) = rows.get_mut(place) else { continue };
            if let Some(advertised) = row.size.advertised.get_mut(at)
                && let Some(value) = advertised.take()
            {
                let (name, times) = (&row.size.name, 10f64.powi(power));
                let instead = match row.expected.get(at).copied().flatten() {
                    Some(expected) => format!("what was expected, {expected}, stands in for it"),
                    None => "nothing stands in for it".to_owned(),
                };
                warnings.push(format!(
                    "{name}: advertised {title} of {value} are {times} times what the other sizes of its family \
                     suggest: taken for a slip, and not used; {instead}"
                ));
            }
        }
    }
}

/// Reads the columns of the header.
fn columns(header: &[CsvCell<'_>], warnings: &mut Vec<String>) -> Result<Vec<Column>, ConfigError> {
    let mut columns: Vec<Column> = Vec::new();
    let mut others = Vec::new();
    for cell in header {
        let name = cell.text.as_ref();
        let column = column(name);
        if column == Column::Other {
            let known = known();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            if let Some(meant) = closest_name(name, &known) {
                let message = format!("there is no column {}", quoted(name));
                let error = cell.error(Code::UnknownKey, message);
                return Err(error.with_help(format!("did you mean `{meant}`?")));
            }
            others.push(name);
        } else if columns.contains(&column) {
            let message = format!("the column {} stands twice", quoted(name));
            return Err(cell.error(Code::DuplicateKey, message).with_help("remove one of the two"));
        }
        columns.push(column);
    }

    let missing = |what: &str, help: String| Some(header.first()?.error(Code::MissingKey, what).with_help(help));
    if !columns.contains(&Column::Instance)
        && let Some(error) = missing("the column `instance` is missing", HEADER_HELP.to_owned())
    {
        return Err(error);
    }

    let has_figure = columns.iter().any(|column| matches!(column, Column::Plain(_) | Column::Measured(_)));
    let names: Vec<&str> = NAMES.iter().filter_map(|names| names.first().copied()).collect();
    if !has_figure
        && let Some(error) = missing("no column holds what was measured", format!("add one of {}", list_of(&names)))
    {
        return Err(error);
    }
    if !others.is_empty() {
        warnings.push(format!("columns that are not read: {}", others.join(", ")));
    }
    Ok(columns)
}

fn column(name: &str) -> Column {
    match name {
        "instance" => return Column::Instance,
        "family" => return Column::Family,
        "vcpus" => return Column::Vcpus,
        "n_disks" => return Column::Disks,
        "basis" => return Column::Basis,
        _ => {}
    }
    let kinds: [(&str, FigureColumn); 3] =
        [("measured_", Column::Measured), ("advertised_", Column::Advertised), ("", Column::Plain)];
    for (prefix, kind) in kinds {
        let figure = name.strip_prefix(prefix).and_then(|name| NAMES.iter().position(|names| names.contains(&name)));
        if let Some(figure) = figure {
            return kind(figure);
        }
    }
    Column::Other
}

/// Returns every name that a column may have.
fn known() -> Vec<String> {
    let figures = NAMES.iter().copied().flatten();
    let figures = figures.flat_map(|name| ["", "measured_", "advertised_"].map(|prefix| format!("{prefix}{name}")));
    ["instance", "family", "vcpus", "n_disks", "basis"].map(str::to_owned).into_iter().chain(figures).collect()
}
