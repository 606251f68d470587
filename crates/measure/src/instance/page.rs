//! Formats a card as a table of figures, as CSV, and as one HTML page.
//!
//! **Why.** People look at a card before they compare it: which figures it has, how precise they are, and which are
//! missing.
//!
//! **How.** [`rows`] lists title, figure and interval for tables, in the order of [`super::figures::FIGURES`]. The page
//! adds the facts, the missing figures with the reasons, the samples of each figure in the order they were taken (as
//! parts of their mean, so that a drift of any group shows), and, if the disk was measured, the pictures of `tune`.
//!
//! **Limits.** The pictures of the disk need the report of `tune`, which is not part of the card.
//!
//! **Example.** `sequential reads`, `3.1 GB/s`, `3 to 3.2`.

use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::plot::{Axis, Chart, Layer, Unit};
use plimsoll_show::table::{Table, known};

use super::figures::{self, FigureKind};
use super::{Card, Figure};
use crate::tune::{TuneReport, pictures};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub title: String,
    pub value: String,
    /// The ends of the 95 % interval; empty if there is none.
    pub interval: String,
}

/// Groups of keys in the order of the table of figures, with their headings.
const GROUPS: [(&str, &str); 6] = [
    ("cpu", "Processor"),
    ("memory", "Memory"),
    ("submission", "Submission"),
    ("disk", "Disk"),
    ("network", "Network"),
    ("stress_ng", "stress-ng"),
];

/// Returns the figures of a card by group: the heading, and a row for each figure. Leaves out groups without figures.
pub fn rows(card: &Card) -> Vec<(&'static str, Vec<Row>)> {
    let of_group = |group: &str| {
        let keys = card.keys().into_iter().filter(|key| figures::group(key) == group);
        keys.filter_map(|key| row(key, card.figures.get(key)?)).collect::<Vec<Row>>()
    };
    let groups = GROUPS.into_iter().map(|(group, heading)| (heading, of_group(group)));
    groups.filter(|(_, rows)| !rows.is_empty()).collect()
}

fn row(key: &str, figure: &Figure) -> Option<Row> {
    let FigureKind { unit, .. } = figures::kind(key)?;
    // No figure is below 0, however wide its interval is.
    let interval = figure
        .interval()
        .map_or_else(String::new, |[low, high]| format!("{} to {}", unit.format(low.max(0.0)), unit.format(high)));
    Some(Row { title: figures::title(key), value: unit.format(figure.value), interval })
}

/// Returns CSV with a line for each figure: `key,value,low,high,samples`; without an interval, the ends are empty.
pub fn csv(card: &Card) -> String {
    let rows = card.keys().into_iter().filter_map(|key| {
        let figure = card.figures.get(key)?;
        let [low, high] = [0, 1].map(|end| known(figure.interval().map(|ends: [f64; 2]| ends[end])));
        Some([key.to_owned(), figure.value.to_string(), low, high, figure.samples.len().to_string()])
    });
    Table::new("", ["key", "value", "low", "high", "samples"], rows).to_csv()
}

/// Returns the whole card as one HTML page, with the pictures of its disk if `disk` is given.
pub fn html(card: &Card, disk: Option<&TuneReport>) -> String {
    let (title, sections) = sections(card, disk);
    page::html(&title, &sections)
}

pub fn sections(card: &Card, disk: Option<&TuneReport>) -> (String, Vec<Section>) {
    let title = format!("{}: what this machine does", card.name);
    let mut sections = vec![summary(card)];
    for (heading, rows) in rows(card) {
        let rows = rows.into_iter().map(|row| [row.title, row.value, row.interval]);
        sections.push(Section::new(heading, [Table::new("", ["figure", "value", "95 % interval"], rows).into()]));
    }

    let charts = samples(card);
    if !charts.is_empty() {
        let text = "Each line is a figure, its samples in the order they were taken, as parts of their mean. A line \
                    that climbs or falls all the way is a machine that changed meanwhile: a clock that dropped, a \
                    neighbour.";
        sections.push(Section::new("Samples", [Block::Text(text.to_owned()), Block::Picture(charts)]));
    }
    for (name, charts) in disk.map(pictures::charts).unwrap_or_default() {
        sections.push(Section::new(format!("Disk: {}", name.replace('-', " ")), [Block::Picture(charts)]));
    }

    let facts = card.facts.iter().map(|(name, text)| [name.clone(), text.clone()]);
    sections.push(Section::new("Facts", [Table::new("", ["name", "what"], facts).into()]));
    (title, sections)
}

/// Returns the section with the origin of the figures, the warnings, and the missing figures.
fn summary(card: &Card) -> Section {
    let fact = |name: &str| card.facts.get(name).cloned();
    let kernel = fact("os.kernel").map(|release| format!("Linux {release}"));
    let known: Vec<String> = [fact("cpu.model"), fact("machine.product"), kernel].into_iter().flatten().collect();
    let machine = if known.is_empty() { "Unknown machine".to_owned() } else { known.join(", ") };

    let mut blocks = vec![Block::Text(format!("{machine}. Measured by {}, {}.", card.origin.source, card.origin.date))];
    blocks.push(Block::Warnings(card.warnings.clone()));
    if !card.missing.is_empty() {
        let rows = card.missing.iter().map(|(key, reason)| [figures::title(key), reason.clone()]);
        blocks.push(Table::new("", ["not measured", "why"], rows).into());
    }
    Section { heading: "Summary".to_owned(), blocks }
}

/// Returns a chart for each group that has samples: each sample as a part of its figure's mean, in order.
fn samples(card: &Card) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (group, heading) in GROUPS {
        let mut layers = vec![Layer::HorizontalMark { y: 1.0, label: "mean".to_owned() }];
        for key in card.keys().into_iter().filter(|key| figures::group(key) == group) {
            let Some(figure) = card.figures.get(key).filter(|figure| figure.samples.len() >= 2) else { continue };
            let mean = figure.samples.iter().sum::<f64>() / figure.samples.len() as f64;

            // Spread over the whole width: figures have different numbers of samples.
            let at = |index: usize| (index as f64 + 0.5) / figure.samples.len() as f64;
            let points = figure.samples.iter().enumerate().map(|(index, sample)| (at(index), sample / mean)).collect();
            layers.push(Layer::Line { name: figures::title(key), points, dashed: false });
        }
        if layers.len() > 1 {
            charts.push(Chart::new(
                heading,
                Axis::linear("part of the figure's time", Unit::Fraction),
                Axis::linear("sample over mean", Unit::Fraction),
                layers,
            ));
        }
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Origin;

    fn card() -> Card {
        let mut card = Card::new("db-7", Origin::measured("2026-01-02"));
        card.set("cpu.cores", Figure::exact(4.0));
        let samples = vec![0.99, 1.01, 1.0];
        card.set("cpu.steal_pct", Figure { value: 1.0, samples, interval: None });
        card.set("disk.read_iops", Figure { interval: Some([-90.0, 120.0]), ..Figure::exact(100.0) });
        card.set("stress_ng.tsc", Figure::exact(5.0));
        card.facts.insert("cpu.model".into(), "Z80 <fast>".into());
        card.facts.insert("os.kernel".into(), "6.1".into());
        card.missing.insert("network".into(), "iperf3 is not installed".into());
        card.warnings.push("a & b".into());
        card
    }

    #[test]
    fn rows_are_grouped_and_have_intervals_where_known() {
        let rows = rows(&card());
        let headings: Vec<&str> = rows.iter().map(|(heading, _)| *heading).collect();
        assert_eq!(headings, ["Processor", "Disk", "stress-ng"]);
        let flat: Vec<(&str, &str, &str)> = rows
            .iter()
            .flat_map(|(_, rows)| rows)
            .map(|row| (row.title.as_str(), row.value.as_str(), row.interval.as_str()))
            .collect();
        assert_eq!(flat[0], ("cores", "4", ""));
        assert!(flat[1].2.contains(" to "), "{flat:?}");
        assert_eq!(flat[2], ("random reads, 4 KiB", "100/s", "0/s to 120/s"));
        assert_eq!(flat[3].0, "stress-ng tsc");
        let groups: Vec<&str> = figures::FIGURES.iter().map(|kind| figures::group(kind.key)).collect();
        assert!(groups.iter().all(|group| GROUPS.iter().any(|(name, _)| name == group)), "{groups:?}");
    }

    #[test]
    fn csv_has_a_line_for_each_figure() {
        let text = csv(&card());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!((lines[0], lines[1]), ("key,value,low,high,samples", "cpu.cores,4,,,0"));
        assert_eq!(lines[3], "disk.read_iops,100,-90,120,0");
    }

    #[test]
    fn a_page_has_everything_escaped() {
        let page = html(&card(), None);
        for part in [
            "db-7: what this machine does",
            "Z80 &lt;fast&gt;, Linux 6.1. Measured by plimsoll",
            "a &amp; b",
            "iperf3 is not installed",
            "<h2>Samples</h2>",
            "time the hypervisor took",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert!(!page.contains("NaN"));
        let empty = html(&Card::new("x", Origin::measured("2026-01-02")), None);
        assert!(!empty.contains("<h2>Samples</h2>") && !empty.contains("not measured"));
    }
}
