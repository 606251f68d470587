//! Results in a depot: a row for each figure.
//!
//! **Why.** The figures of test, tune, sim, compare and cards have different shapes; questions about a fleet ask for
//! one figure of many hosts or days.
//!
//! **How.** The long form: each [`Figure`] names its subject and its unit.
//!
//! **Limits.** Histograms, curves and tables of results are not figures: they stay in their files.
//!
//! **Example.** `plimsoll depot DEPOT test.json`.

use super::{DepotError, Files, Place, Table, Written};
use crate::columns::{Column, cell, known, maybe, text, text_cell};

#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The command that measured it: `test`, `tune`.
    pub command: &'static str,
    /// Its subject: a job, a mount point, a scenario with its seed.
    pub what: String,
    pub class: Option<String>,
    /// Its name, which ends with the unit where the result has it so: `latency_p99_us`.
    pub metric: String,
    /// The unit: `us`, `1/s`, `bytes/s`; empty if the result does not say.
    pub unit: &'static str,
    pub value: f64,
    /// The 95 % interval.
    pub interval: Option<[f64; 2]>,
}

/// The time of a result in microseconds since 1970.
struct At(i64);

static COLUMNS: [Column<Figure, At>; 9] = [
    known("at_utc", cell!(Micros, |_, At(at_us)| Some(*at_us))),
    known("command", text_cell!(|it, _| text(it.command))),
    known("what", text_cell!(|it, _| text(&it.what))),
    maybe("class", text_cell!(|it, _| it.class.as_deref().and_then(text))),
    known("metric", text_cell!(|it, _| text(&it.metric))),
    known("unit", text_cell!(|it, _| text(it.unit))),
    known("value", cell!(F64, |it, _| Some(it.value))),
    maybe("low", cell!(F64, |it, _| bound(it, 0))),
    maybe("high", cell!(F64, |it, _| bound(it, 1))),
];

fn bound(figure: &Figure, at: usize) -> Option<f64> {
    figure.interval.map(|interval| interval[at]).filter(|bound| bound.is_finite())
}

/// Stores figures of this time, in microseconds since 1970. Leaves out those that are not finite.
///
/// # Errors
/// [`DepotError`]. Nothing is stored then.
pub fn store(place: &Place, at_us: i64, figures: &[Figure]) -> Result<Vec<Written>, DepotError> {
    let mut files = Files::new(place, Table::Figures, &COLUMNS);
    for figure in figures.iter().filter(|figure| figure.value.is_finite()) {
        files.push(at_us, std::slice::from_ref(figure), &At(at_us))?;
    }
    files.finish()
}
