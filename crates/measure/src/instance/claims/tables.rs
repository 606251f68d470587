//! Puts the figures of the article's machines side by side, and writes checked claims for programs and for a browser.
//!
//! **Why.** Readers who doubt a percentage need the numbers it was computed from; a script needs to know which claims
//! are wrong.
//!
//! **How.** Three tables: economics (storage per core, prices per core and per TB), processors (stress-ng) and storage.
//! Differences are in per cent of the first machine of the table. CSV has a line for each claim.
//!
//! **Limits.** Tables leave out figures that fewer than two machines have, and machines without any of the table's
//! figures; tables without rows are left out. CSV has the claims only.
//!
//! **Example.** `stress-ng memcpy`, 567.87 and 381.34: -32.85 %.

use std::collections::BTreeSet;

use plimsoll_files::variant_name;
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::table::{self, Column};
use serde::Serialize;

use super::compute::as_difference_pct;
use super::quantity::grouped;
use super::{Checked, ClaimsReport, Machine, PRICE, Verdict};
use crate::instance::figures;

/// Figures of several machines, with differences to the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// `economics`, `processors` or `storage`.
    pub name: &'static str,
    pub title: &'static str,
    /// The base of the differences: the first of `machines`.
    pub base: String,
    /// Names of the machines, in the order of the values.
    pub machines: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub title: String,
    pub unit: String,
    /// The value of each machine, in that unit.
    pub values: Vec<Option<f64>>,
    /// The difference of each machine to the base, in per cent of the base; null for the base itself.
    pub difference_pct: Vec<Option<f64>>,
    /// Digits after the point when printed.
    #[serde(skip)]
    decimals: usize,
}

impl Row {
    /// Returns the value of the machine at `at`, and its difference to the base, for people; `-` if unknown.
    pub fn cells(&self, at: usize) -> [String; 2] {
        let dash = || "-".to_owned();
        let value = self.values.get(at).copied().flatten();
        let difference = self.difference_pct.get(at).copied().flatten();
        [
            value.map_or_else(dash, |value| grouped(value, self.decimals)),
            difference.map_or_else(dash, |difference| format!("{difference:+.2} %")),
        ]
    }
}

/// A row without its values: title, unit, digits after the point, the figures multiplied and divided, and the scale.
type Figure<'f> = (&'f str, &'f str, usize, &'f [&'f str], &'f [&'f str], f64);

fn value(machine: &Machine, (.., above, below, scale): &Figure<'_>) -> Option<f64> {
    let product = |keys: &[&str]| keys.iter().try_fold(1.0, |product, key| Some(product * machine.value(key)?));
    Some(product(above)? / product(below)? * scale)
}

pub(super) fn of(machines: &[Machine]) -> Vec<Table> {
    let economics: [Figure<'_>; 3] = [
        ("storage per core", "GB", 0, &["disk.bytes"], &["cpu.cores"], 1e-9),
        ("price per core", "USD a year", 2, &[PRICE], &[], 1.0),
        ("price per TB", "USD a year", 2, &[PRICE, "cpu.cores"], &["disk.bytes"], 1e12),
    ];

    let keys = machines.iter().flat_map(|machine| machine.card.figures.keys());
    let stressors: BTreeSet<&str> =
        keys.map(String::as_str).filter(|key| key.starts_with(figures::STRESS_NG)).collect();
    let stressors: Vec<&str> = stressors.into_iter().collect();
    let processors: Vec<Figure<'_>> = stressors
        .iter()
        .map(|key| -> Figure<'_> {
            let name = key.strip_prefix(figures::STRESS_NG).unwrap_or(key);
            (name, "operations/s", 2, std::slice::from_ref(key), &[], 1.0)
        })
        .collect();

    let storage: [Figure<'_>; 4] = [
        ("sequential write", "GB/s", 1, &["disk.write_bytes_per_s"], &[], 1e-9),
        ("sequential read", "GB/s", 1, &["disk.read_bytes_per_s"], &[], 1e-9),
        ("random write", "k IOPS", 0, &["disk.write_iops"], &[], 1e-3),
        ("random read", "k IOPS", 0, &["disk.read_iops"], &[], 1e-3),
    ];
    let tables = [
        table("economics", "Economics", machines, &economics),
        table("processors", "Processors, stress-ng", machines, &processors),
        table("storage", "Storage", machines, &storage),
    ];
    tables.into_iter().flatten().collect()
}

/// Returns a table of `figures`, with the machines that have any, and the figures that at least two machines have.
fn table(name: &'static str, title: &'static str, machines: &[Machine], figures: &[Figure<'_>]) -> Option<Table> {
    let having = |figure: &Figure<'_>| machines.iter().filter(|machine| value(machine, figure).is_some()).count();
    let figures: Vec<&Figure<'_>> = figures.iter().filter(|figure| having(figure) >= 2).collect();
    let has_any = |machine: &&Machine| figures.iter().any(|figure| value(machine, figure).is_some());
    let machines: Vec<&Machine> = machines.iter().filter(has_any).collect();
    let base = machines.first()?;
    let row = |figure: &&Figure<'_>| {
        let values: Vec<Option<f64>> = machines.iter().map(|machine| value(machine, figure)).collect();
        let of_base = value(base, figure).filter(|value| *value > 0.0);
        let difference = |value: &Option<f64>| Some(as_difference_pct((*value)? / of_base?));
        let difference_pct = std::iter::once(None).chain(values.iter().skip(1).map(difference)).collect();
        let (title, unit, decimals, ..) = **figure;
        Row { title: title.to_owned(), unit: unit.to_owned(), values, difference_pct, decimals }
    };

    let rows = figures.iter().map(row).collect();
    let names = machines.iter().map(|machine| machine.card.name.clone()).collect();
    Some(Table { name, title, base: base.card.name.clone(), machines: names, rows })
}

impl Table {
    /// Returns the column names: the figure, its unit, the base, then each other machine and its difference.
    pub fn headers(&self) -> Vec<String> {
        let others = self.machines.iter().skip(1).flat_map(|name| [name.clone(), format!("to {}", self.base)]);
        [String::new(), "unit".to_owned(), self.base.clone()].into_iter().chain(others).collect()
    }

    /// Returns the rows under [`Table::headers`].
    pub fn cells(&self) -> Vec<Vec<String>> {
        let row = |row: &Row| {
            let values = (0..self.machines.len()).flat_map(|at| row.cells(at));
            // The base has no difference.
            let values = values.enumerate().filter(|(column, _)| *column != 1).map(|(_, cell)| cell);
            [row.title.clone(), row.unit.clone()].into_iter().chain(values).collect()
        };
        self.rows.iter().map(row).collect()
    }
}

pub fn to_csv(report: &ClaimsReport) -> String {
    let columns: &[Column<Checked>] = &[
        ("claim", |it| it.claim.to_owned()),
        ("kind", |it| it.kind.to_owned()),
        ("stated", |it| it.stated.clone()),
        ("computed", |it| it.computed.clone()),
        ("verdict", |it| variant_name(it.verdict)),
        ("slip", |it| it.slip.map_or_else(String::new, variant_name)),
        ("why", |it| it.why.to_owned()),
    ];
    table::csv(&report.claims, columns)
}

pub fn answer(report: &ClaimsReport) -> Answer {
    let all = report.claims.len();
    let count = |verdict| report.claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (mood, verdict) = match report.wrong {
        0 => (Mood::Good, format!("all {all} claims hold")),
        wrong => (Mood::Bad, format!("{wrong} wrong of {all} claims")),
    };
    let figure = format!(
        "{} exact, {} within rounding, {} with a binary prefix",
        count(Verdict::Exact),
        count(Verdict::WithinRounding),
        count(Verdict::OtherPrefix)
    );
    Answer::new(mood, verdict, figure, "")
}

pub fn page(report: &ClaimsReport) -> String {
    let table = |table: &Table| {
        let caption = format!("{}; differences in per cent of {}", table.title, table.base);
        Block::Table(table::Table::new(caption, table.headers(), table.cells()))
    };
    let rows = report.claims.iter().map(|claim| {
        [claim.claim, &claim.stated, &claim.computed, claim.verdict.as_str(), claim.why].map(str::to_owned)
    });
    let caption = format!("Claims: {} of {} wrong", report.wrong, report.claims.len());
    let claims = table::Table::new(caption, ["claim", "stated", "computed", "verdict", "why"], rows);
    let blocks: Vec<Block> = std::iter::once(claims.into()).chain(report.tables.iter().map(table)).collect();
    let sections = [
        Section::new("Verdict", [answer(report).into()]),
        Section::new(format!("{}, {}", report.source, report.date), blocks),
    ];
    page::html("Claims, computed again", &sections)
}
