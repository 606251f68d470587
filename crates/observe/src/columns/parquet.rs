//! Rows as a Parquet file.
//!
//! **Why.** A hundred million rows are slow as text, and small as columns.
//!
//! **How.** Rows are collected in groups of [`GROUP_ROWS`], each column by itself, and written with dictionaries or,
//! where values differ from row to row or hardly ever ([`Cell`]), as differences; pages are compressed with Snappy.
//! Columns with unknown values are optional. Texts have no bounds: nearly every group has all texts, so a reader could
//! skip no group by them.
//!
//! **Limits.** A group is held in memory until it is full: about 20 MB of spans.
//!
//! **Example.**
//! ```text
//! message span {
//!   REQUIRED INT32 shard;
//!   OPTIONAL INT64 at (TIMESTAMP(MICROS,true));
//!   ...
//! ```

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{Cell, Column, Int};

pub(crate) const GROUP_ROWS: usize = 1 << 17;

/// Most texts of a column that are kept for later groups.
const TEXTS_MAX: usize = 64;

/// Rows of texts per call of the writer, which takes this number in one step.
const BATCH_ROWS: usize = 1024;

/// A Parquet file that is being written. Errors wait for [`Parquet::finish`].
pub(crate) struct Parquet<R: 'static, C: 'static, W: Write + Send> {
    /// `None` after an error.
    writer: Option<SerializedFileWriter<W>>,
    error: Option<ParquetError>,
    columns: Vec<Held<R, C>>,
    rows_held: usize,
    /// Rows that the memory of the columns has room for.
    pub(crate) room_rows: usize,
    pub(crate) rows: u64,
}

impl<R, C, W: Write + Send> Parquet<R, C, W> {
    /// Begins a file of these columns with the keys and values of `metadata`.
    pub(crate) fn begin(
        out: W,
        columns: impl IntoIterator<Item = &'static Column<R, C>>,
        metadata: &[(&str, String)],
    ) -> io::Result<Parquet<R, C, W>> {
        let columns: Vec<Held<R, C>> = columns.into_iter().map(Held::new).collect();
        let schema: String = columns.iter().map(|held| schema_line(held.column)).collect();
        let schema = parse_message_type(&format!("message row {{\n{schema}}}\n")).map_err(io_error)?;

        let pairs = metadata.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone())).collect();
        let mut properties =
            WriterProperties::builder().set_compression(Compression::SNAPPY).set_key_value_metadata(Some(pairs));
        for Column { name, cell, .. } in columns.iter().map(|held| held.column) {
            let path = ColumnPath::from(*name);
            properties = match cell {
                Cell::Text(_) => properties.set_column_statistics_enabled(path, EnabledStatistics::None),
                Cell::I32(_) | Cell::Varied(_) | Cell::Micros(_) => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
                Cell::I64(_) | Cell::F64(_) | Cell::Bool(_) => properties,
            };
        }

        let writer =
            SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(io_error)?;
        Ok(Parquet { writer: Some(writer), error: None, columns, rows_held: 0, room_rows: 0, rows: 0 })
    }

    pub(crate) fn push(&mut self, row: &R, shared: &C) {
        if self.writer.is_none() {
            return;
        }
        self.columns.iter_mut().for_each(|column| column.push(row, shared));
        self.rows_held += 1;
        self.room_rows = self.room_rows.max(self.rows_held);
        self.rows += 1;
        if self.rows_held >= GROUP_ROWS {
            self.write_group();
        }
    }

    /// Ends the group, however short it is, and frees the memory of the columns.
    pub(crate) fn end_group(&mut self) {
        if self.rows_held > 0 {
            self.write_group();
        }
        self.columns = self.columns.iter().map(|held| Held::new(held.column)).collect();
        self.room_rows = 0;
    }

    /// Ends the file. Returns its writer, or the first error since the beginning.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if self.rows_held > 0 {
            self.write_group();
        }
        match (self.writer, self.error) {
            (Some(writer), None) => writer.into_inner().map_err(io_error),
            (_, error) => Err(error.map_or_else(|| io::ErrorKind::WriteZero.into(), io_error)),
        }
    }

    fn write_group(&mut self) {
        self.rows_held = 0;
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = write_columns(writer, &mut self.columns) {
            self.error.get_or_insert(error);
            self.writer = None;
        }
    }
}

/// Returns the column in Parquet's own notation.
fn schema_line<R, C>(Column { name, is_optional, cell }: &Column<R, C>) -> String {
    let repetition = if *is_optional { "OPTIONAL" } else { "REQUIRED" };
    let (physical, logical) = match cell {
        Cell::I32(_) => ("INT32", ""),
        Cell::I64(_) | Cell::Varied(_) => ("INT64", ""),
        Cell::Micros(_) => ("INT64", " (TIMESTAMP(MICROS,true))"),
        Cell::F64(_) => ("DOUBLE", ""),
        Cell::Bool(_) => ("BOOLEAN", ""),
        Cell::Text(_) => ("BYTE_ARRAY", " (STRING)"),
    };
    format!("  {repetition} {physical} {name}{logical};\n")
}

/// The values of a column in the group that is being collected, and where they come from.
enum Values<R, C> {
    Int(Int<R, C>, Vec<i32>),
    Long(Int<R, C>, Vec<i64>),
    Float(fn(&R, &C) -> Option<f64>, Vec<f64>),
    Bool(fn(&R, &C) -> Option<bool>, Vec<bool>),
    Text(for<'a> fn(&'a R, &'a C) -> Option<Cow<'a, str>>, Texts),
}

/// A column of the group that is being collected.
struct Held<R: 'static, C: 'static> {
    column: &'static Column<R, C>,
    values: Values<R, C>,
    /// 1 for a value, 0 for an unknown one; empty for columns whose values are always known.
    levels: Vec<i16>,
}

impl<R, C> Held<R, C> {
    fn new(column: &'static Column<R, C>) -> Held<R, C> {
        let values = match column.cell {
            Cell::I32(value) => Values::Int(value, Vec::new()),
            Cell::I64(value) | Cell::Varied(value) | Cell::Micros(value) => Values::Long(value, Vec::new()),
            Cell::F64(value) => Values::Float(value, Vec::new()),
            Cell::Bool(value) => Values::Bool(value, Vec::new()),
            Cell::Text(value) => Values::Text(value, Texts::default()),
        };
        Held { column, values, levels: Vec::new() }
    }

    fn push(&mut self, row: &R, shared: &C) {
        let narrow = |value: i64| i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX });
        let is_known = match &mut self.values {
            Values::Int(value, values) => keep(values, value(row, shared).map(narrow)),
            Values::Long(value, values) => keep(values, value(row, shared)),
            Values::Float(value, values) => keep(values, value(row, shared)),
            Values::Bool(value, values) => keep(values, value(row, shared)),
            Values::Text(value, texts) => value(row, shared).map(|text| texts.push(&text)).is_some(),
        };
        if self.column.is_optional {
            self.levels.push(i16::from(is_known));
        } else {
            debug_assert!(is_known, "{}", self.column.name);
        }
    }

    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = self.column.is_optional.then_some(self.levels.as_slice());

        match &mut self.values {
            Values::Int(_, values) => write_values::<Int32Type>(writer, values, levels)?,
            Values::Long(_, values) => write_values::<Int64Type>(writer, values, levels)?,
            Values::Float(_, values) => write_values::<DoubleType>(writer, values, levels)?,
            Values::Bool(_, values) => write_values::<BoolType>(writer, values, levels)?,
            Values::Text(_, texts) => texts.write(writer, levels)?,
        }

        self.levels.clear();
        Ok(())
    }
}

/// Keeps a value if it is known, and returns whether it is.
fn keep<T>(values: &mut Vec<T>, value: Option<T>) -> bool {
    let is_known = value.is_some();
    values.extend(value);
    is_known
}

/// Writes the values of a group, and clears them.
fn write_values<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

/// The texts of a column in the group that is being collected: each row has the number of its text.
#[derive(Default)]
struct Texts {
    /// The texts by number. The first [`TEXTS_MAX`] are there once each, and stay for later groups.
    known: Vec<ByteArray>,
    numbers: Vec<u32>,
}

impl Texts {
    fn push(&mut self, text: &str) {
        let mut first = self.known.iter().take(TEXTS_MAX);
        let number = first.position(|known| known.data() == text.as_bytes()).unwrap_or_else(|| {
            self.known.push(ByteArray::from(text));
            self.known.len() - 1
        });
        self.numbers.push(number as u32);
    }

    /// Writes the texts of a group, and drops those not kept for later groups.
    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>, levels: Option<&[i16]>) -> Result<(), ParquetError> {
        let writer = writer.typed::<ByteArrayType>();
        let rows = levels.map_or(self.numbers.len(), <[i16]>::len);
        let mut left = self.numbers.as_slice();
        // Cloning a text changes its reference count, which takes longer than the rest: a slot that already has the
        // right text keeps it from batch to batch.
        let mut values = vec![ByteArray::new(); BATCH_ROWS];
        let mut held = vec![u32::MAX; BATCH_ROWS];

        for begin in (0..rows).step_by(BATCH_ROWS) {
            let end = rows.min(begin + BATCH_ROWS);
            let levels = levels.map(|levels| &levels[begin..end]);
            let known = levels.map_or(end - begin, |levels| levels.iter().filter(|level| **level > 0).count());
            let (now, later) = left.split_at(known);
            left = later;
            for ((value, held), number) in values.iter_mut().zip(&mut held).zip(now) {
                if std::mem::replace(held, *number) != *number {
                    *value = self.known[*number as usize].clone();
                }
            }
            writer.write_batch(&values[..known], levels, None)?;
        }

        self.numbers.clear();
        self.known.truncate(TEXTS_MAX);
        Ok(())
    }
}

fn write_columns<R, C, W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &mut [Held<R, C>],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        if let Some(mut place) = group.next_column()? {
            column.write(&mut place)?;
            place.close()?;
        }
    }
    group.close().map(|_| ())
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::SerializedFileReader;
    use parquet::record::{Field, RowAccessor};

    use super::super::{known, maybe, text};
    use super::*;

    static TEXTS: [Column<u64, ()>; 2] = [
        known("known", Cell::Text(|it, ()| text(format!("text {}", it % 100)))),
        maybe("maybe", Cell::Text(|it, ()| (it % 3 > 0).then(|| format!("text {}", it % 7).into()))),
    ];

    /// More texts than are kept, in two groups, with unknown ones between.
    #[test]
    fn a_row_has_its_own_text() {
        let file = tempfile::tempfile().unwrap();
        let mut parquet = Parquet::begin(file.try_clone().unwrap(), &TEXTS, &[]).unwrap();
        let rows = GROUP_ROWS as u64 + 3 * BATCH_ROWS as u64 + 1;
        (0..rows).for_each(|number| parquet.push(&number, &()));
        parquet.finish().unwrap();

        let mut found = 0;
        for (number, row) in (0..).zip(SerializedFileReader::new(file).unwrap()) {
            let row = row.unwrap();
            assert_eq!(*row.get_string(0).unwrap(), format!("text {}", number % 100), "row {number}");
            let expected = if number % 3 > 0 { Field::Str(format!("text {}", number % 7)) } else { Field::Null };
            assert_eq!(row.get_column_iter().nth(1).unwrap().1, &expected, "row {number}");
            found += 1;
        }
        assert_eq!(found, rows);
    }
}
