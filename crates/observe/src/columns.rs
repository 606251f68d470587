//! Tables of typed columns, defined once for all formats.
//!
//! **Why.** CSV, Parquet and the depot must agree on the names, units and meaning of their columns.
//!
//! **How.** A [`Column`] takes its value from a row and from the data that all rows share (the names in a trace); its
//! [`Cell`] is the type. `parquet` writes rows as a Parquet file; text formats read the values themselves.
//!
//! **Limits.** Integers are signed: unsigned columns of Parquet make a difference that is below 0 an error in some
//! engines, and 18446744073709551611 in others. A larger number than 2^63 - 1 is written as 2^63 - 1.
//!
//! **Example.** `trace export` has the columns of a span, `depot` those and the time of day.

#[cfg(feature = "parquet")]
pub(crate) mod parquet;

use std::borrow::Cow;

/// Type of a column, and the function that takes its value from a row `R` and the data `C` that all rows share. `None`:
/// unknown.
pub(crate) enum Cell<R, C> {
    /// At most 2^31 - 1, mostly equal to that of the row before.
    I32(Int<R, C>),
    /// Few different numbers.
    I64(Int<R, C>),
    /// A number that differs from row to row, mostly by little: a time, a running number.
    Varied(Int<R, C>),
    /// Microseconds since 1970, UTC.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has times of day"))]
    Micros(Int<R, C>),
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has fractions"))]
    F64(fn(&R, &C) -> Option<f64>),
    Bool(fn(&R, &C) -> Option<bool>),
    /// Few different texts.
    Text(for<'a> fn(&'a R, &'a C) -> Option<Cow<'a, str>>),
}

/// Returns an integer of a row.
pub(crate) type Int<R, C> = fn(&R, &C) -> Option<i64>;

/// A column of rows `R` that share a `C`.
pub(crate) struct Column<R, C> {
    pub(crate) name: &'static str,
    /// Whether a value may be unknown.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only Parquet has types"))]
    pub(crate) is_optional: bool,
    pub(crate) cell: Cell<R, C>,
}

/// Returns a column whose values are always known.
pub(crate) const fn known<R, C>(name: &'static str, cell: Cell<R, C>) -> Column<R, C> {
    Column { name, is_optional: false, cell }
}

/// Returns a column whose values may be unknown.
pub(crate) const fn maybe<R, C>(name: &'static str, cell: Cell<R, C>) -> Column<R, C> {
    Column { name, is_optional: true, cell }
}

pub(crate) fn int(value: impl TryInto<i64>) -> Option<i64> {
    Some(value.try_into().unwrap_or(i64::MAX))
}

pub(crate) fn text<'a>(value: impl Into<Cow<'a, str>>) -> Option<Cow<'a, str>> {
    Some(value.into())
}
