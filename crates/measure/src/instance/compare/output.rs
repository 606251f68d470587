//! Writes a comparison of machines for programs and as a page: JSON, CSV, tables, charts.
//!
//! **Why.** The terminal and the page show the same cells, so one place formats them.
//!
//! **How.** JSON is [`Comparison`] itself; CSV has a line for each figure and machine. [`Comparison::ratio_text`] is a
//! ratio in its shortest form; a page has tables of all machines side by side and a bar chart for each group.
//!
//! **Limits.** Charts show only ratios that exist; tables also show missing ones.
//!
//! **Example.** `1.28 (1.25-1.31) +` is a better ratio with its interval; `1.28 *` has no interval.

use plimsoll_files::variant_name;
use plimsoll_show::page::{Block, Section};
use plimsoll_show::plot::{Axis, Bar, Chart, Layer, Unit};
use plimsoll_show::table::{Table, known};

use super::ratios::Verdict;
use super::{Cell, Comparison, FigureRow, Machine};
use crate::by_key;
use crate::instance::economics::{AmountRow, money};
use crate::instance::figures;

/// The meaning of the marks of [`Comparison::ratio_text`], for people.
pub const MARKS: &str = "In brackets the 95 % interval. + better, - worse: the interval leaves out 1. ? no evidence: \
                         the interval contains 1, or the samples scatter by more than 10 %. * no interval: single or \
                         stated figures. Without a mark: counted or advertised.";

impl Comparison {
    /// Returns CSV: a line for each figure and machine, then for each amount and machine.
    pub fn to_csv(&self) -> String {
        let row = |row: &FigureRow, cell: &Cell| {
            [
                row.key.clone(),
                row.unit.to_string(),
                variant_name(row.better),
                cell.label.clone(),
                known(cell.value),
                known(cell.ratio),
                known(cell.ratio_interval.map(|[low, _]| low)),
                known(cell.ratio_interval.map(|[_, high]| high)),
                variant_name(cell.verdict),
                known(cell.missing.as_ref()),
            ]
        };

        let figures = self.figures.iter().flat_map(|figure| figure.cells.iter().map(move |cell| row(figure, cell)));
        let currency = self.currency.as_deref().unwrap_or("");
        let amounts = self.economics.iter().flat_map(|row| {
            let unit = if row.unit == "money" { currency } else { row.unit };
            row.cells.iter().map(move |cell| {
                let missing = if cell.value.is_none() { cell.shown.clone() } else { String::new() };
                let [better, ratio, low, high, verdict] = Default::default();
                let (label, value) = (cell.label.clone(), known(cell.value));
                [row.key.to_owned(), unit.to_owned(), better, label, value, ratio, low, high, verdict, missing]
            })
        });

        let names = "key,unit,better,machine,value,ratio,ratio_low,ratio_high,verdict,missing";
        Table::new("", names.split(','), figures.chain(amounts)).to_csv()
    }

    pub fn value_text(row: &FigureRow, cell: &Cell) -> String {
        match (cell.value, figures::kind(&row.key)) {
            (Some(value), Some(kind)) => kind.unit.format(value),
            _ => "missing".to_owned(),
        }
    }

    /// Returns the ratio of a cell with its interval and a mark, see [`MARKS`].
    pub fn ratio_text(cell: &Cell) -> String {
        let Some(ratio) = cell.ratio else {
            return if cell.value.is_some() { "no ratio".to_owned() } else { "missing".to_owned() };
        };
        let interval = match cell.ratio_interval {
            Some([low, high]) => format!(" ({}-{})", ratio_digits(low), ratio_digits(high)),
            None => String::new(),
        };
        let mark = match cell.verdict {
            Verdict::Better => " +",
            Verdict::Worse => " -",
            Verdict::Open | Verdict::Scattered => " ?",
            Verdict::NoInterval => " *",
            _ => "",
        };
        format!("{}{interval}{mark}", ratio_digits(ratio))
    }

    /// Returns a sentence for each figure that stands out.
    pub fn outlier_texts(&self) -> Vec<String> {
        let text = |outlier: &super::Outlier| {
            let cause = match (&outlier.cause, &outlier.remark) {
                (Some(cause), _) => format!("known cause: {cause}"),
                (None, Some(remark)) => format!("no known cause: {remark}"),
                (None, None) => "no known cause: measure again".to_owned(),
            };
            let (label, title, against) = (&outlier.label, &outlier.title, &outlier.against);
            let [ratio, of_others] = [outlier.ratio, outlier.against_ratio].map(ratio_digits);
            format!("{label}, {title}: {ratio}, where {against} is {of_others}; {cause}")
        };
        self.outliers.iter().map(text).collect()
    }

    /// Returns a sentence for each reason of missing figures; machines that lack the same figures share it.
    pub fn missing_texts(&self) -> Vec<String> {
        let of_machine = |(at, machine): (usize, &Machine)| {
            let missing = |row: &FigureRow| Some((row.cells.get(at)?.missing.clone()?, row.key.clone()));
            let reasons = by_key(self.figures.iter().filter_map(missing)).into_iter();
            let texts = reasons.map(|(reason, keys)| (format!("{reason}: {}", keys.join(", ")), machine.label.clone()));
            texts.collect::<Vec<_>>()
        };
        let texts = by_key(self.machines.iter().enumerate().flat_map(of_machine));
        texts.into_iter().map(|(text, labels)| format!("{}: {text}", labels.join(", "))).collect()
    }

    /// Returns the page: title and sections for [`plimsoll_show::page::html`].
    pub fn page(&self) -> (String, Vec<Section>) {
        let labels: Vec<&str> = self.machines.iter().map(|machine| machine.label.as_str()).collect();
        let mut sections = Vec::new();
        if let Some(recommended) = &self.recommendation {
            let lines = self.recommendation_lines(recommended).into_iter().map(Block::Text).collect();
            sections.push(Section { heading: format!("For {}", variant_name(recommended.need)), blocks: lines });
        }
        sections.push(self.machines_section());

        let charts = self.charts();
        if !charts.is_empty() {
            sections
                .push(Section { heading: format!("Ratios to {}", self.base), blocks: vec![Block::Picture(charts)] });
        }
        sections.push(self.figures_section(&labels));

        let notes = |texts: Vec<String>| texts.into_iter().map(Block::Text).collect::<Vec<_>>();
        let caption = known(self.currency.as_ref().map(|currency| format!("Prices in {currency} a year")));
        let headers = std::iter::once("").chain(labels);
        let economics = Table::new(caption, headers, self.economics.iter().map(AmountRow::texts));
        sections.push(Section::new("What it costs, and how it is balanced", [economics.into()]));

        for (heading, texts) in [("What stands out", self.outlier_texts()), ("What is missing", self.missing_texts())] {
            if !texts.is_empty() {
                sections.push(Section::new(heading, notes(texts)));
            }
        }
        (format!("Machines beside {}", self.base), sections)
    }

    fn machines_section(&self) -> Section {
        let row = |machine: &Machine| {
            let price = machine.price_per_year.map_or_else(|| "no price".to_owned(), money);
            let commitment = machine.commitment.clone().unwrap_or_default();
            let from = format!("{} ({})", machine.origin.source, machine.origin.date);
            [machine.label.clone(), from, machine.from_preset.clone().unwrap_or_default(), price, commitment]
        };
        let headers = ["machine", "figures from", "of these from the table of presets", "price a year", "for"];
        let table = Table::new("", headers, self.machines.iter().map(row));
        Section::new("Machines", [Block::Warnings(self.warnings.clone()), table.into()])
    }

    fn figures_section(&self, labels: &[&str]) -> Section {
        let headers = std::iter::once("").chain(labels.iter().copied());
        let row = |row: &FigureRow| {
            let cell = |cell: &Cell| match cell.verdict {
                Verdict::Base | Verdict::Missing => Comparison::value_text(row, cell),
                _ => format!("{}: {}", Comparison::value_text(row, cell), Comparison::ratio_text(cell)),
            };
            std::iter::once(row.titled()).chain(row.cells.iter().map(cell)).collect::<Vec<_>>()
        };
        let caption = format!("Figures and their ratios to {}", self.base);
        let table = Table::new(caption, headers, self.figures.iter().map(row));
        Section::new("Figures", [Block::Text(MARKS.to_owned()), table.into()])
    }

    pub fn recommendation_lines(&self, recommended: &super::Recommendation) -> Vec<String> {
        let winner = recommended.winner.as_deref().unwrap_or("no recommendation");
        let basis = if recommended.by_price { "by price" } else { "by amount" };
        let mut lines =
            vec![format!("For {} ({}, {basis}): {winner}", variant_name(recommended.need), recommended.measure)];
        lines.extend(recommended.reasons.iter().cloned());
        let unranked = recommended.ranking.iter().filter_map(|ranked| {
            ranked.unranked.as_ref().map(|reason| format!("{} has no place: {reason}", ranked.label))
        });
        lines.extend(unranked);
        lines
    }

    /// Returns a bar chart of the ratios for each group of figures that has any.
    pub fn charts(&self) -> Vec<Chart> {
        let groups = self.figures.chunk_by(|one, next| figures::group(&one.key) == figures::group(&next.key));
        groups.filter_map(|rows| self.chart(rows)).collect()
    }

    fn chart(&self, rows: &[FigureRow]) -> Option<Chart> {
        let group = figures::group(&rows.first()?.key);
        let bar = |row: &FigureRow, at: usize| {
            let cell = row.cells.get(at)?;
            let ratio = cell.ratio.filter(|ratio| *ratio > 0.0)?;
            Some(Bar { row: row.titled(), value: ratio, range: cell.ratio_interval.map(|[low, high]| (low, high)) })
        };
        let layers: Vec<Layer> = self
            .machines
            .iter()
            .enumerate()
            .skip(1)
            .map(|(at, machine)| Layer::Bars {
                name: machine.label.clone(),
                from: 1.0,
                bars: rows.iter().filter_map(|row| bar(row, at)).collect(),
            })
            .collect();

        let is_empty = layers.iter().all(|layer| matches!(layer, Layer::Bars { bars, .. } if bars.is_empty()));
        (!is_empty).then(|| {
            Chart::new(
                group.replace('_', "-"),
                Axis::log2(format!("ratio to {}", self.base), Unit::None),
                Axis::default(),
                layers.into_iter().chain([Layer::VerticalMark { x: 1.0, label: String::new() }]).collect(),
            )
        })
    }
}

impl AmountRow {
    /// Returns the title and the cells for people.
    pub fn texts(&self) -> Vec<String> {
        std::iter::once(self.title.to_owned()).chain(self.cells.iter().map(|cell| cell.shown.clone())).collect()
    }
}

impl FigureRow {
    /// Returns the title, and the direction if less is better.
    pub fn titled(&self) -> String {
        if self.better == figures::Better::Less {
            format!("{} (less is better)", self.title)
        } else {
            self.title.clone()
        }
    }
}

/// Prints a ratio with three digits, below 1 with three decimals: `0.672`, `1.28`, `12.8`, `128`.
fn ratio_digits(ratio: f64) -> String {
    match ratio {
        below if below < 0.9995 => format!("{ratio:.3}"),
        below if below < 9.995 => format!("{ratio:.2}"),
        below if below < 99.95 => format!("{ratio:.1}"),
        below if below < 1e6 => format!("{ratio:.0}"),
        _ => format!("{ratio:.1e}"),
    }
}
