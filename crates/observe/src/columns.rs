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
#[cfg(feature = "parquet")]
pub(crate) mod words;

use std::borrow::Cow;

/// Type of a column, and the functions that take its values from rows `R` and the data `C` that all rows share. Made by
/// [`cell`], [`text_cell`] and [`name_cell`].
pub(crate) enum Cell<R, C> {
    /// Mostly equal to that of the row before.
    I32(Value<R, C, i32>),
    /// Few different numbers.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has such numbers"))]
    I64(Value<R, C, i64>),
    /// A number that differs from row to row, mostly by little: a time, a running number.
    Varied(Value<R, C, i64>),
    /// Microseconds since 1970, UTC.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has times of day"))]
    Micros(Value<R, C, i64>),
    #[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "only the depot has fractions"))]
    F64(Value<R, C, f64>),
    Bool(Value<R, C, bool>),
    /// Few different texts.
    Text(Text<R, C>),
}

/// The functions of a column of `T`.
pub(crate) struct Value<R, C, T> {
    /// Returns the value of a row; `None`: unknown.
    pub(crate) of: fn(&R, &C) -> Option<T>,
    /// Adds the values of rows: a loop that `of` is compiled into, as a call for each value takes longer than the rest.
    #[cfg(feature = "parquet")]
    pub(crate) add: fn(&mut parquet::Held<T>, &[R], &C),
}

/// The functions of a column of texts.
pub(crate) struct Text<R, C> {
    /// Returns the text of a row; `None`: unknown.
    pub(crate) of: for<'a> fn(&'a R, &'a C) -> Option<Cow<'a, str>>,
    /// Adds the texts of rows.
    #[cfg(feature = "parquet")]
    pub(crate) add: fn(&mut words::Words, &[R], &C),
}

/// Makes a [`Cell`] of this variant with the value that `$of` takes from a row and the shared data.
macro_rules! cell {
    ($variant:ident, $of:expr) => {
        $crate::columns::Cell::$variant($crate::columns::Value {
            of: $of,
            #[cfg(feature = "parquet")]
            add: |held, rows, shared| held.add(rows, shared, $of),
        })
    };
}
pub(crate) use cell;

/// Makes a [`Cell`] with the text that `$of` takes from a row and the shared data.
#[cfg(feature = "parquet")]
macro_rules! text_cell {
    ($of:expr) => {
        $crate::columns::Cell::Text($crate::columns::Text {
            of: $of,
            add: |words, rows, shared| words.add(rows, shared, $of),
        })
    };
}
#[cfg(feature = "parquet")]
pub(crate) use text_cell;

/// The same, of rows that have a number for each text: a text is looked up once for each number.
macro_rules! name_cell {
    ($number:expr, $of:expr) => {
        $crate::columns::Cell::Text($crate::columns::Text {
            of: $of,
            #[cfg(feature = "parquet")]
            add: |words, rows, shared| words.add_numbered(rows, shared, $number, $of),
        })
    };
}
pub(crate) use name_cell;

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
