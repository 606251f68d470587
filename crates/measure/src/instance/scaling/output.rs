//! Writes the scaling report for programs and as a page.
//!
//! **Why.** A picture with logarithmic axes shows at once where two lines part: a figure that scales is straight.
//!
//! **How.** JSON is the report itself; CSV has a line for each point. [`pictures`] returns one chart for each figure of
//! each family: advertised figures dashed, measured ones as points, the plateau marked.
//!
//! **Limits.** In names of pictures, `_` replaces characters other than letters, digits, `-` and `.`; a name that is
//! already taken, in upper or lower case, gets a number.
//!
//! **Example.** `i7i,disk.read_iops,i7i.8xlarge,32,1015409,1200000,inferred,-15.38,true,scales_but_low,,`

use plimsoll_files::variant_name;
use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::plot::{Axis, Chart, Layer, Unit};
use plimsoll_show::table::{Column, Table, csv, fixed, known};

use super::{FIGURES, FamilyReport, FigureReport, ScalePoint, ScalingReport, format_figure, is_iops};

/// The longest name of a picture, in characters, without the number that makes it unique.
const NAME_MAX_CHARS: usize = 64;

/// Returns CSV with a header and a line for each point.
pub fn to_csv(report: &ScalingReport) -> String {
    let columns: &[Column<(&FamilyReport, &FigureReport, &ScalePoint)>] = &[
        ("family", |(family, ..)| family.family.clone()),
        ("figure", |(_, figure, _)| figure.key.to_owned()),
        ("instance", |(.., point)| point.instance.clone()),
        ("vcpus", |(.., point)| point.vcpus.to_string()),
        ("measured", |(.., point)| point.measured.to_string()),
        ("advertised", |(.., point)| known(point.advertised)),
        ("advertised_kind", |(.., point)| point.advertised_kind.map(variant_name).unwrap_or_default()),
        ("difference_pct", |(.., point)| fixed(point.difference_pct, 2)),
        ("departs", |(.., point)| point.departs.to_string()),
        ("shape", |(_, figure, _)| variant_name(figure.shape)),
        ("reference", |(.., point)| known(point.reference)),
        ("reference_difference_pct", |(.., point)| fixed(point.reference_difference_pct, 2)),
    ];
    let figures = report.families.iter().flat_map(|family| family.figures.iter().map(move |figure| (family, figure)));
    let points = figures.flat_map(|(family, figure)| figure.points.iter().map(move |point| (family, figure, point)));
    csv(&points.collect::<Vec<_>>(), columns)
}

/// Returns one picture for each family: a name that can be a file name, and a chart for each figure.
pub fn pictures(report: &ScalingReport) -> Vec<(String, Vec<Chart>)> {
    let fit = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
    let mut pictures: Vec<(String, Vec<Chart>)> = Vec::new();
    for family in &report.families {
        let plain: String = format!("scaling-{}", family.family).chars().take(NAME_MAX_CHARS).map(fit).collect();
        let is_free = |name: &String| pictures.iter().all(|(taken, _)| !taken.eq_ignore_ascii_case(name));
        let numbered = (2..).map(|number| format!("{plain}-{number}"));
        let name = std::iter::once(plain.clone()).chain(numbered).find(is_free).unwrap_or_default();
        pictures.push((name, family.figures.iter().map(|figure| chart(family, figure)).collect()));
    }
    pictures
}

fn index(figure: &FigureReport) -> usize {
    FIGURES.iter().position(|(key, _)| *key == figure.key).unwrap_or(0)
}

fn chart(family: &FamilyReport, figure: &FigureReport) -> Chart {
    let at = index(figure);
    let (label, unit) =
        if is_iops(at) { ("operations a second", Unit::PerSecond) } else { ("bandwidth", Unit::BytesPerSecond) };
    let of = |value: fn(&ScalePoint) -> Option<f64>| -> Vec<(f64, f64)> {
        figure.points.iter().filter_map(|point| Some((point.vcpus, value(point)?))).collect()
    };
    let mut layers = Vec::new();
    let others = [("advertised or expected", of(|point| point.advertised)), ("reference", of(|point| point.reference))];
    for (name, points) in others.into_iter().filter(|(_, points)| !points.is_empty()) {
        layers.push(Layer::Line { name: name.to_owned(), points, dashed: true });
    }
    layers.extend(Layer::dotted("measured", of(|point| Some(point.measured)), false));

    layers.extend(figure.plateau.as_ref().map(|plateau| {
        let label = format!("plateau, {}", format_figure(at, plateau.value));
        Layer::HorizontalMark { y: plateau.value, label }
    }));
    Chart {
        title: format!("{}: {}, {}", family.family, figure.title, figure.shape.as_words()),
        x: Axis::log2("vCPUs", Unit::None),
        y: Axis::log10(label, unit),
        layers,
        note: Some(figure.sentence.clone()),
    }
}

pub fn page(report: &ScalingReport) -> String {
    let pictures = pictures(report);
    let blocks = [Block::Warnings(report.warnings.clone()), summary(report).into()];
    let mut sections = vec![Section::new("Findings", blocks)];
    for (family, (_, charts)) in report.families.iter().zip(pictures) {
        let mut blocks = vec![Block::Text(format!("Figures: {}.", family.source))];
        blocks.extend(charts.into_iter().map(|chart| Block::Picture(vec![chart])));
        blocks.extend(family.figures.iter().map(|figure| Block::Table(points(figure))));
        sections.push(Section { heading: family.family.clone(), blocks });
    }
    page::html("How figures scale with size", &sections)
}

fn summary(report: &ScalingReport) -> Table {
    let row = |family: &FamilyReport, figure: &FigureReport| {
        [&family.family, figure.title, &figure.shape.as_words(), &figure.sentence].map(str::to_owned)
    };
    let rows = report.families.iter().flat_map(|family| family.figures.iter().map(|figure| row(family, figure)));
    Table::new("", ["family", "figure", "shape", "in words"], rows)
}

fn points(figure: &FigureReport) -> Table {
    Table::new(figure.title, figure.headers(), figure.cells())
}

impl FigureReport {
    fn has_references(&self) -> bool {
        self.points.iter().any(|point| point.reference.is_some())
    }

    /// Returns the names of the columns of [`cells`](FigureReport::cells). If no size has a reference, there is no
    /// column for it.
    pub fn headers(&self) -> Vec<&'static str> {
        let mut headers = vec!["instance", "vCPUs", "measured", "advertised", "difference"];
        if self.has_references() {
            headers.extend(["reference", "difference from it"]);
        }
        headers
    }

    /// Returns a row for each point.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let at = index(self);
        let dash = || "-".to_owned();
        let percent = |percent: Option<f64>| percent.map_or_else(dash, |percent| format!("{percent:+.1} %"));

        let row = |point: &ScalePoint| {
            let mark = if point.departs { " !" } else { "" };
            let mut cells = vec![
                point.instance.clone(),
                format!("{:.0}", point.vcpus),
                format_figure(at, point.measured),
                point.advertised.map_or_else(dash, |advertised| {
                    let mark = point.advertised_kind.unwrap_or_default().mark();
                    format!("{}{mark}", format_figure(at, advertised))
                }),
                format!("{}{mark}", percent(point.difference_pct)),
            ];
            if self.has_references() {
                let reference = point.reference.map_or_else(dash, |reference| format_figure(at, reference));
                cells.extend([reference, percent(point.reference_difference_pct)]);
            }
            cells
        };

        self.points.iter().map(row).collect()
    }
}
