//! Tables of typed columns: what a row is, written once for every format.
//!
//! **Why.** CSV, Parquet and the depot must agree on the names, units and meaning of their columns.
//!
//! **How.** A [`Column`] takes its value out of a row and what all rows share (the names in a trace). `parquet` writes
//! rows as a Parquet file; text formats read the values themselves.
//!
//! **Limits.** Integers are signed: unsigned columns of Parquet make a difference that is below 0 an error in some
//! engines, and 18446744073709551611 in others. A number above 2^63 - 1 is written as that.
//!
//! **Example.** `trace export` has the columns of a span, `depot` those and the time of day.

#[cfg(feature = "parquet")]
pub(crate) mod parquet;

use std::borrow::Cow;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// At most 2^31 - 1.
    I32,
    I64,
    /// An [`Kind::I64`] whose values differ from row to row, mostly by little: a time, a running number.
    Varied,
    /// Microseconds since 1970, UTC.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has times of day"))]
    Micros,
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has fractions"))]
    F64,
    Bool,
    /// Few different texts.
    Text,
}

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Int(i64),
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has fractions"))]
    Float(f64),
    Bool(bool),
    Text(Cow<'a, str>),
}

/// A column of rows `R` that share a `C`.
pub(crate) struct Column<R, C> {
    pub(crate) name: &'static str,
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only Parquet has types"))]
    pub(crate) kind: Kind,
    /// Whether a value may be unknown.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only Parquet has types"))]
    pub(crate) is_optional: bool,
    pub(crate) value: Cell<R, C>,
}

/// Returns the value of a row.
type Cell<R, C> = for<'a> fn(&'a R, &'a C) -> Option<Value<'a>>;

/// Returns a column whose values are always known.
pub(crate) const fn known<R, C>(name: &'static str, kind: Kind, value: Cell<R, C>) -> Column<R, C> {
    Column { name, kind, is_optional: false, value }
}

/// Returns a column whose values may be unknown.
pub(crate) const fn maybe<R, C>(name: &'static str, kind: Kind, value: Cell<R, C>) -> Column<R, C> {
    Column { name, kind, is_optional: true, value }
}

pub(crate) fn int<'a>(value: impl TryInto<i64>) -> Option<Value<'a>> {
    Some(Value::Int(value.try_into().unwrap_or(i64::MAX)))
}

pub(crate) fn text<'a>(value: impl Into<Cow<'a, str>>) -> Option<Value<'a>> {
    Some(Value::Text(value.into()))
}
