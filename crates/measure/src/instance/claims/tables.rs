//! Puts the figures of a ledger's machines side by side.
//!
//! **Why.** Readers who doubt a percentage need the numbers it was computed from.
//!
//! **How.** Three tables: economics (storage per core, prices per core and per TB), processors (stress-ng) and storage.
//! Differences are in per cent of the first machine of the table.
//!
//! **Limits.** A figure that fewer than two machines have is left out, and so are machines without any of a table's
//! figures, and tables without rows.
//!
//! **Example.** `stress-ng memcpy`, 567.87 and 381.34: -32.85 %.

use serde::Serialize;

use super::compute::as_difference_pct;
use super::quantity::grouped;
use super::{Machine, PRICE};
use crate::instance::figures;

/// Figures of several machines, with differences to the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// `economics`, `processors` or `storage`.
    pub name: &'static str,
    /// A heading.
    pub title: &'static str,
    /// The base of the differences: the first of `machines`.
    pub base: String,
    /// Names of the machines, in the order of the values.
    pub machines: Vec<String>,
    /// A row for each figure.
    pub rows: Vec<Row>,
}

/// One figure of all machines of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The figure's name.
    pub title: String,
    /// The figure's unit.
    pub unit: String,
    /// The value of each machine, in that unit.
    pub values: Vec<Option<f64>>,
    /// The difference of each machine to the base, in per cent of the base; that of the base itself is null.
    pub difference_pct: Vec<Option<f64>>,
    /// Digits after the point when printed.
    #[serde(skip)]
    decimals: usize,
}

impl Row {
    /// Returns the value of the machine at `at`, and its difference to the base, for people; `-` if unknown.
    #[must_use]
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

/// Computes a machine's value.
type Value<'f> = Box<dyn Fn(&Machine) -> Option<f64> + 'f>;

/// A row without its values: title, unit, digits after the point, value.
type Figure<'f> = (String, String, usize, Value<'f>);

/// Returns the tables of `machines`.
pub(super) fn of(machines: &[Machine]) -> Vec<Table> {
    let per = |above: &'static str, below: &'static str, scale: f64| -> Value<'static> {
        Box::new(move |machine| Some(machine.value(above)? / machine.value(below)? * scale))
    };
    let of =
        |key: String, scale: f64| -> Value<'static> { Box::new(move |machine| Some(machine.value(&key)? * scale)) };
    let per_tb = |machine: &Machine| {
        Some(machine.value(PRICE)? * machine.value("cpu.cores")? / machine.value("disk.bytes")? * 1e12)
    };
    let currency = machines.iter().find_map(|machine| Some(machine.price_per_core_year.as_ref()?.unit.as_str()));
    let a_year = format!("{} a year", currency.unwrap_or_default()).trim().to_owned();

    let economics: Vec<Figure<'_>> = vec![
        ("storage per core".to_owned(), "GB".to_owned(), 0, per("disk.bytes", "cpu.cores", 1e-9)),
        ("price per core".to_owned(), a_year.clone(), 2, of(PRICE.to_owned(), 1.0)),
        ("price per TB".to_owned(), a_year, 2, Box::new(per_tb)),
    ];

    let mut stressors: Vec<&str> = machines
        .iter()
        .flat_map(|machine| machine.card.figures.keys())
        .filter_map(|key| key.strip_prefix(figures::STRESS_NG))
        .collect();
    stressors.sort_unstable();
    stressors.dedup();
    let processors = stressors
        .iter()
        .map(|name| {
            let key = format!("{}{name}", figures::STRESS_NG);
            ((*name).to_owned(), "operations/s".to_owned(), 2, of(key, 1.0))
        })
        .collect();

    let storage: Vec<Figure<'_>> = vec![
        ("sequential write".to_owned(), "GB/s".to_owned(), 1, of("disk.write_bytes_per_s".to_owned(), 1e-9)),
        ("sequential read".to_owned(), "GB/s".to_owned(), 1, of("disk.read_bytes_per_s".to_owned(), 1e-9)),
        ("random write".to_owned(), "k IOPS".to_owned(), 0, of("disk.write_iops".to_owned(), 1e-3)),
        ("random read".to_owned(), "k IOPS".to_owned(), 0, of("disk.read_iops".to_owned(), 1e-3)),
    ];
    [
        table("economics", "Economics", machines, economics),
        table("processors", "Processors, stress-ng", machines, processors),
        table("storage", "Storage", machines, storage),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn table(name: &'static str, title: &'static str, machines: &[Machine], figures: Vec<Figure<'_>>) -> Option<Table> {
    // A figure that only one machine has compares nothing.
    let figures: Vec<Figure<'_>> =
        figures.into_iter().filter(|(.., value)| machines.iter().filter_map(value).count() >= 2).collect();
    let machines: Vec<&Machine> =
        machines.iter().filter(|machine| figures.iter().any(|(.., value)| value(machine).is_some())).collect();
    let base = machines.first()?;
    let row = |(title, unit, decimals, value): &Figure<'_>| {
        let values: Vec<Option<f64>> = machines.iter().map(|machine| value(machine)).collect();
        let of_base = value(base).filter(|value| *value > 0.0);
        let difference = |value: Option<f64>| Some(as_difference_pct(value? / of_base?));
        let difference_pct =
            values.iter().enumerate().map(|(at, value)| (at > 0).then(|| difference(*value)).flatten()).collect();
        Row { title: title.clone(), unit: unit.clone(), values, difference_pct, decimals: *decimals }
    };

    let rows: Vec<Row> = figures.iter().map(row).collect();
    let names = machines.iter().map(|machine| machine.card.name.clone()).collect();
    (!rows.is_empty()).then(|| Table { name, title, base: base.card.name.clone(), machines: names, rows })
}
