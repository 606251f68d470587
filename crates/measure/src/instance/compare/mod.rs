//! Compares machines: ratios to a base, their causes, costs, and the machine for a need.
//!
//! **Why.** In a table of absolute figures, readers must divide in their heads, and cannot tell whether missing figures
//! matter.
//!
//! **How.** [`compare`] takes cards from anywhere ([`super::find`]) and one of them as the base.
//!
//! * [`ratios`]: every figure divided by the base's, with its 95 % interval, and whether that is evidence.
//! * [`outliers`]: figures unlike the others of their group, with the cause if a known one fits.
//! * [`super::economics`]: amounts per core, per TB and so on, and local disks compared with network volumes.
//! * [`needs`]: a recommendation for a stated need.
//!
//! **Limits.** At most [`MACHINES_MAX`] machines. Figures of different tools or dates are compared too, with a warning.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::compare::{CompareOptions, compare};
//! use plimsoll_measure::instance::find::find_all;
//! let machines = find_all(&["i3.16xlarge", "i3en.24xlarge"])?;
//! let comparison = compare(&machines, &CompareOptions::default())?;
//! let writes = comparison.figure("disk.write_bytes_per_s").ok_or("no such figure")?;
//! let ratio = writes.cells.last().and_then(|cell| cell.ratio).ok_or("no ratio")?;
//! assert!((ratio - 1.277).abs() < 0.001);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod needs;
pub mod outliers;
mod output;
pub mod ratios;

use std::collections::BTreeSet;

use serde::Serialize;
use thiserror::Error;

use super::economics::{self, AmountRow};
use super::figures::{self, Better};
use super::find::{Candidate, FROM_PRESET};
use super::prices::PriceList;
use super::{Card, Origin};
use needs::{Need, Recommendation};
use outliers::Outlier;
use ratios::Verdict;

pub use output::MARKS;

/// The most machines that are compared at once.
pub const MACHINES_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct CompareOptions<'a> {
    /// The base of the ratios: a name or a file as given, or a card's name; `None` is the first machine.
    pub base: Option<&'a str>,
    pub prices: Option<&'a PriceList>,
    pub need: Option<Need>,
}

/// Why machines cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompareError {
    #[error("{0} to compare: name 2 to {MACHINES_MAX} machines")]
    Number(usize),
    #[error("--base {base}: none of the machines is called that: name one of {names}")]
    Base { base: String, names: String },
}

/// A comparison of machines. Serialised, it is the JSON of `plimsoll instance compare` (docs/formats.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub schema: u32,
    pub plimsoll: &'static str,
    /// The label of the base of the ratios.
    pub base: String,
    /// The machines: the base, then the others in the order given.
    pub machines: Vec<Machine>,
    /// The currency of all money; null without prices.
    pub currency: Option<String>,
    pub figures: Vec<FigureRow>,
    pub outliers: Vec<Outlier>,
    /// Amounts per core, per TB and so on.
    pub economics: Vec<AmountRow>,
    /// The machine to take; null if no need was stated.
    pub recommendation: Option<Recommendation>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The machine's name in the rest of the comparison.
    pub label: String,
    pub argument: String,
    pub origin: Origin,
    /// The figures that are from the table of presets instead.
    pub from_preset: Option<String>,
    /// The price of a year; null without a price.
    pub price_per_year: Option<f64>,
    pub commitment: Option<String>,
    pub price_date: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureRow {
    pub key: String,
    pub title: String,
    pub unit: &'static str,
    pub better: Better,
    /// A cell for each machine, in the order of [`Comparison::machines`].
    pub cells: Vec<Cell>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    pub label: String,
    /// The figure; null if missing.
    pub value: Option<f64>,
    /// The figure's 95 % interval, if known.
    pub interval: Option<[f64; 2]>,
    /// Standard deviation of the samples in per cent of their mean, if there are at least two.
    pub scatter_pct: Option<f64>,
    /// The figure divided by that of the base.
    pub ratio: Option<f64>,
    pub ratio_interval: Option<[f64; 2]>,
    pub verdict: Verdict,
    /// Why the figure is missing, in the words of the card, or why there is no ratio for it.
    pub missing: Option<String>,
}

impl Comparison {
    pub fn figure(&self, key: &str) -> Option<&FigureRow> {
        self.figures.iter().find(|row| row.key == key)
    }

    pub fn amount(&self, key: &str) -> Option<&AmountRow> {
        self.economics.iter().find(|row| row.key == key)
    }
}

pub fn compare(candidates: &[Candidate], options: &CompareOptions<'_>) -> Result<Comparison, CompareError> {
    if !(2..=MACHINES_MAX).contains(&candidates.len()) {
        return Err(CompareError::Number(candidates.len()));
    }
    let candidates = base_first(candidates, options.base)?;
    let Some((base, others)) = candidates.split_first() else { return Err(CompareError::Number(0)) };

    let machines = candidates.iter().map(|candidate| machine(candidate, options.prices)).collect();
    Ok(Comparison {
        schema: 2,
        plimsoll: env!("CARGO_PKG_VERSION"),
        base: base.label.clone(),
        machines,
        currency: options.prices.map(|prices| prices.currency.clone()),
        figures: keys(&candidates).iter().filter_map(|key| figure_row(key, base, &candidates)).collect(),
        outliers: others.iter().flat_map(|other| outliers::outliers(base, other)).collect(),
        economics: economics::amounts(&candidates, options.prices),
        recommendation: options.need.and_then(|need| needs::recommend(need, &candidates, options.prices)),
        warnings: warnings_of(&candidates, options.prices),
    })
}

fn base_first(candidates: &[Candidate], base: Option<&str>) -> Result<Vec<Candidate>, CompareError> {
    let mut sorted = candidates.to_vec();
    let Some(base) = base else { return Ok(sorted) };
    let is_exact = |candidate: &Candidate| [&candidate.label, &candidate.argument].iter().any(|name| *name == base);
    let is_name = |candidate: &Candidate| candidate.card.name.eq_ignore_ascii_case(base);
    let Some(at) = candidates.iter().position(is_exact).or_else(|| candidates.iter().position(is_name)) else {
        let names: Vec<&str> = candidates.iter().map(|candidate| candidate.label.as_str()).collect();
        return Err(CompareError::Base { base: base.to_owned(), names: names.join(", ") });
    };
    if let Some(first) = sorted.get_mut(..=at) {
        first.rotate_right(1);
    }
    Ok(sorted)
}

fn machine(candidate: &Candidate, prices: Option<&PriceList>) -> Machine {
    let price = prices.and_then(|prices| prices.instance(&candidate.card.name));
    Machine {
        label: candidate.label.clone(),
        argument: candidate.argument.clone(),
        origin: candidate.card.origin.clone(),
        from_preset: candidate.card.facts.get(FROM_PRESET).cloned(),
        price_per_year: price.map(|price| price.per_year),
        commitment: price.map(|price| price.commitment.clone()),
        price_date: price.map(|price| price.date.clone()),
    }
}

/// Returns the keys that any card has, in the order of the table of figures, those of stress-ng last.
fn keys(candidates: &[Candidate]) -> Vec<String> {
    let keys: BTreeSet<&String> = candidates.iter().flat_map(|candidate| candidate.card.figures.keys()).collect();
    let mut keys: Vec<String> = keys.into_iter().cloned().collect();
    keys.sort_by_key(|key| figures::rank(key));
    keys
}

fn figure_row(key: &str, base: &Candidate, candidates: &[Candidate]) -> Option<FigureRow> {
    let kind = figures::kind(key)?;
    let base_figure = base.card.figures.get(key);
    let cell = |(at, candidate): (usize, &Candidate)| {
        let figure = candidate.card.figures.get(key);
        let incomparable = if at == 0 { None } else { ratios::incomparable(key, &candidate.card, &base.card) };
        let both = figure.zip(base_figure).filter(|_| incomparable.is_none());
        let ratio = both.and_then(|(figure, base)| ratios::ratio(kind, figure, base));
        let verdict = match figure {
            Some(_) if at == 0 => Verdict::Base,
            _ => ratio.map_or(Verdict::Missing, |ratio| ratio.verdict),
        };

        Cell {
            label: candidate.label.clone(),
            value: figure.map(|figure| figure.value),
            interval: figure.and_then(super::Figure::interval),
            scatter_pct: figure.and_then(ratios::scatter_pct),
            ratio: ratio.map(|ratio| ratio.ratio),
            ratio_interval: ratio.and_then(|ratio| ratio.interval).filter(|_| at > 0),
            verdict,
            missing: incomparable.or_else(|| figure.is_none().then(|| missing_reason(&candidate.card, key))),
        }
    };

    Some(FigureRow {
        key: key.to_owned(),
        title: figures::title(key),
        unit: kind.unit.name(),
        better: kind.better,
        cells: candidates.iter().enumerate().map(cell).collect(),
    })
}

/// Returns why a card lacks a figure: its reason for the figure, or else for the group.
fn missing_reason(card: &Card, key: &str) -> String {
    let reason = card.missing.get(key).or_else(|| card.missing.get(figures::group(key)));
    reason.cloned().unwrap_or_else(|| "the card does not say why".to_owned())
}

/// Returns reasons to doubt the comparison: mixed sources, warnings of the cards and the prices.
fn warnings_of(candidates: &[Candidate], prices: Option<&PriceList>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut tools: Vec<String> = Vec::new();
    for Origin { source, date, .. } in candidates.iter().map(|candidate| &candidate.card.origin) {
        let tool = format!("{} of {date}", source.split(" (").next().unwrap_or(source));
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    if tools.len() > 1 {
        let all = tools.join("; ");
        warnings
            .push(format!("the figures do not come from one measurement, so part of a ratio may be the tool's: {all}"));
    }

    for candidate in candidates {
        warnings.extend(candidate.card.warnings.iter().map(|warning| labelled(&candidate.label, warning)));
    }
    if let Some(prices) = prices {
        warnings.extend(prices.warnings());
        let priced = candidates.iter().filter_map(|candidate| prices.instance(&candidate.card.name));
        let commitments: BTreeSet<&str> = priced.map(|price| price.commitment.as_str()).collect();
        if commitments.len() > 1 {
            let all = commitments.into_iter().collect::<Vec<_>>().join(", ");
            warnings.push(format!("prices that commit to different things are compared: {all}"));
        }
    }
    warnings
}

/// Puts the machine's label before a card's warning that does not begin with it.
fn labelled(label: &str, warning: &str) -> String {
    let is_labelled = warning.strip_prefix(label).is_some_and(|rest| rest.starts_with(':'));
    if is_labelled { warning.to_owned() } else { format!("{label}: {warning}") }
}

#[cfg(test)]
mod tests {
    use super::super::find::find_all;
    use super::super::{Figure, prices};
    use super::*;

    #[test]
    fn the_article_s_differences_come_out() {
        let three = find_all(&["i3.16xlarge", "i3en.24xlarge", "i3.metal"]).unwrap();
        let comparison = compare(&three, &CompareOptions::default()).unwrap();
        let cases = [
            ("stress_ng.cache", 41.51),
            ("stress_ng.cpu", 36.70),
            ("stress_ng.dentry", 25.31),
            ("stress_ng.icache", 12.48),
            ("stress_ng.matrix", -2.02),
            ("stress_ng.memcpy", -32.85),
            ("stress_ng.qsort", 20.52),
            ("stress_ng.timer", 13.67),
            ("stress_ng.tsc", 16.03),
            ("disk.write_bytes_per_s", 27.69),
            ("disk.read_iops", 66.67),
        ];
        for (key, percent) in cases {
            let cell = &comparison.figure(key).unwrap().cells[1];
            let change = (cell.ratio.unwrap() - 1.0) * 100.0;
            assert!((change - percent).abs() < 0.01, "{key}: {change}");
            assert_eq!((cell.verdict, cell.ratio_interval), (Verdict::NoInterval, None), "{key}");
        }
        let missing = &comparison.figure("stress_ng.cpu").unwrap().cells[2];
        assert_eq!((missing.verdict, missing.value, missing.ratio), (Verdict::Missing, None, None));
        assert_eq!(missing.missing.as_deref(), Some("not published"));
    }

    #[test]
    fn any_machine_can_be_the_base() {
        let three = find_all(&["i3.16xlarge", "i3en.24xlarge", "i7i.24xlarge"]).unwrap();
        for (base, order) in [
            (None, ["i3.16xlarge", "i3en.24xlarge", "i7i.24xlarge"]),
            (Some("i3en.24xlarge"), ["i3en.24xlarge", "i3.16xlarge", "i7i.24xlarge"]),
            (Some("I7I.24XLARGE"), ["i7i.24xlarge", "i3.16xlarge", "i3en.24xlarge"]),
        ] {
            let comparison = compare(&three, &CompareOptions { base, ..CompareOptions::default() }).unwrap();
            let labels: Vec<&str> = comparison.machines.iter().map(|machine| machine.label.as_str()).collect();
            assert_eq!((labels.as_slice(), comparison.base.as_str()), (order.as_slice(), order[0]));
            assert!(comparison.figures.iter().all(|row| row.cells.len() == 3));
        }
        let error = compare(&three, &CompareOptions { base: Some("i3"), ..CompareOptions::default() }).unwrap_err();
        assert!(error.to_string().contains("i3.16xlarge, i3en.24xlarge, i7i.24xlarge"), "{error}");
        assert_eq!(compare(&three[..1], &CompareOptions::default()).unwrap_err(), CompareError::Number(1));
    }

    #[test]
    fn money_appears_with_prices_only_and_gaps_say_why() {
        let text = "{date: 2026-01, currency: EUR, region: r, source: s, instances: [{name: i7i.24xlarge, \
                    per_hour: 10, commitment: on demand}, {name: i3.16xlarge, per_hour: 5, commitment: 1 year}]}";
        let list = prices::parse("p.yaml", text).unwrap();
        let three = find_all(&["i3.16xlarge", "i7i.24xlarge", "i8g.24xlarge"]).unwrap();
        let without = compare(&three, &CompareOptions::default()).unwrap();
        assert!(without.amount("price_per_tb_year").is_none());
        let options = CompareOptions { prices: Some(&list), need: Some(Need::Capacity), ..CompareOptions::default() };
        let comparison = compare(&three, &options).unwrap();
        let prices: Vec<&str> =
            comparison.amount("price_per_tb_year").unwrap().cells.iter().map(|cell| cell.shown.as_str()).collect();
        assert_eq!(prices, ["2,881.58", "3,893.33", "no price"]);
        let warnings = comparison.warnings.join("\n");
        for part in ["do not come from one measurement", "commit to different things"] {
            assert!(warnings.contains(part), "{warnings}");
        }
    }

    #[test]
    fn stress_ng_is_compared_with_the_same_version_only() {
        let with = |version: Option<&str>| {
            let mut three = find_all(&["i3.16xlarge", "i3en.24xlarge"]).unwrap();
            let facts = &mut three[1].card.facts;
            facts.remove("stress_ng.version");
            facts.extend(version.map(|version| ("stress_ng.version".to_owned(), version.to_owned())));
            compare(&three, &CompareOptions { need: Some(Need::Cpu), ..CompareOptions::default() }).unwrap()
        };
        let published = find_all(&["i3.16xlarge"]).unwrap()[0].card.facts["stress_ng.version"].clone();
        let cases = [
            (Some(published.as_str()), Verdict::NoInterval, "stress-ng cpu times cores"),
            (Some("0.17.06"), Verdict::Missing, "cores"),
            (None, Verdict::Missing, "cores"),
        ];
        for (version, verdict, measure) in cases {
            let comparison = with(version);
            let cell = &comparison.figure("stress_ng.cpu").unwrap().cells[1];
            assert_eq!((cell.verdict, cell.ratio.is_none()), (verdict, verdict == Verdict::Missing), "{version:?}");
            assert!(cell.value.is_some());
            let reason = cell.missing.clone().unwrap_or_default();
            assert_eq!(reason.contains("not comparable"), verdict == Verdict::Missing, "{reason}");
            let stands_out = comparison.outliers.iter().any(|outlier| outlier.key.starts_with("stress_ng."));
            assert_eq!(stands_out, verdict != Verdict::Missing);
            assert_eq!(comparison.recommendation.unwrap().measure, measure, "{version:?}");
        }
    }

    #[test]
    fn commitments_are_told_once_each() {
        let row = |name: &str, years: u32| format!("{{name: {name}, per_hour: 5, commitment: {years} year}}");
        let three = find_all(&["i3.16xlarge", "i7i.24xlarge", "i8g.24xlarge"]).unwrap();
        for (years, expected) in [([1, 1, 1], None), ([1, 3, 1], Some(": 1 year, 3 year"))] {
            let rows = three.iter().zip(years).map(|(machine, years)| row(&machine.card.name, years));
            let rows = rows.collect::<Vec<_>>().join(", ");
            let text = format!("{{date: 2026-01, currency: EUR, region: r, source: s, instances: [{rows}]}}");
            let list = prices::parse("p.yaml", &text).unwrap();
            let comparison = compare(&three, &CompareOptions { prices: Some(&list), ..CompareOptions::default() });
            let warnings = comparison.unwrap().warnings;
            let found = warnings.iter().find(|warning| warning.contains("commit to different things"));
            assert_eq!(found.is_some(), expected.is_some());
            assert!(found.is_none_or(|warning| warning.ends_with(expected.unwrap_or(""))), "{found:?}");
        }
    }

    #[test]
    fn a_warning_names_its_machine_once() {
        for (label, warning, expected) in [
            ("i4i", "i4i: odd", "i4i: odd"),
            ("i4i", "i4i.12xlarge: odd", "i4i: i4i.12xlarge: odd"),
            ("i4i", "odd", "i4i: odd"),
        ] {
            assert_eq!(labelled(label, warning), expected);
        }
    }

    #[test]
    fn figures_of_zero_have_no_ratio() {
        let mut two = find_all(&["i4i.16xlarge", "i7i.24xlarge"]).unwrap();
        two[0].card.set("cpu.steal_pct", Figure::exact(0.0));
        two[1].card.set("cpu.steal_pct", Figure::exact(1.0));
        let comparison = compare(&two, &CompareOptions::default()).unwrap();
        let cell = &comparison.figure("cpu.steal_pct").unwrap().cells[1];
        assert_eq!((cell.value, cell.ratio, cell.verdict), (Some(1.0), None, Verdict::Missing));
    }
}
