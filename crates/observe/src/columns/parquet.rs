//! Rows as a Parquet file.
//!
//! **Why.** A hundred million rows are slow as text, and small as columns.
//!
//! **How.** Rows are collected in groups of [`GROUP_ROWS`], each column by itself. Numbers that differ from row to row
//! or hardly ever ([`Cell`]) are written as differences, which Snappy would hardly make smaller; other numbers with the
//! encoder's dictionary and Snappy; texts by [`words`](super::words). Columns with unknown values are optional. A group
//! has the least and largest value of each column that is not text.
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

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{BoolType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::words::Words;
use super::{Cell, Column};

pub(crate) const GROUP_ROWS: usize = 1 << 17;

/// Rows to add at a time where there are many: they stay in the CPU's first cache while each column takes its values.
pub(crate) const BATCH_ROWS: usize = 128;

/// A Parquet file that is being written. Errors wait for [`Parquet::finish`].
pub(crate) struct Parquet<R: 'static, C: 'static, W: Write + Send> {
    /// `None` after an error.
    writer: Option<SerializedFileWriter<W>>,
    error: Option<ParquetError>,
    columns: Vec<Collected<R, C>>,
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
        let columns: Vec<Collected<R, C>> = columns.into_iter().map(Collected::new).collect();
        let schema: String = columns.iter().map(|collected| schema_line(collected.column)).collect();
        let schema = parse_message_type(&format!("message row {{\n{schema}}}\n")).map_err(io_error)?;

        let pairs = metadata.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone())).collect();
        let mut properties = WriterProperties::builder()
            .set_key_value_metadata(Some(pairs))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true);
        for Column { name, cell, .. } in columns.iter().map(|collected| collected.column) {
            let path = ColumnPath::from(*name);
            properties = match cell {
                Cell::I32(_) | Cell::Varied(_) | Cell::Micros(_) => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
                Cell::I64(_) | Cell::F64(_) | Cell::Bool(_) => {
                    properties.set_column_compression(path, Compression::SNAPPY)
                }
                Cell::Text(_) => properties,
            };
        }

        let writer =
            SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(io_error)?;
        Ok(Parquet { writer: Some(writer), error: None, columns, rows_held: 0, room_rows: 0, rows: 0 })
    }

    pub(crate) fn push(&mut self, mut rows: &[R], shared: &C) {
        while self.writer.is_some() && !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(GROUP_ROWS - self.rows_held));
            rows = later;
            self.columns.iter_mut().for_each(|column| column.values.add(now, shared));
            self.rows_held += now.len();
            self.room_rows = self.room_rows.max(self.rows_held);
            self.rows += now.len() as u64;
            if self.rows_held == GROUP_ROWS {
                self.write_group();
            }
        }
    }

    /// Ends the group, however short it is, and frees the memory of the columns.
    pub(crate) fn end_group(&mut self) {
        if self.rows_held > 0 {
            self.write_group();
        }
        self.columns = self.columns.iter().map(|collected| Collected::new(collected.column)).collect();
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

/// A column of the group that is being collected.
struct Collected<R: 'static, C: 'static> {
    column: &'static Column<R, C>,
    values: Values<R, C>,
}

/// A function that adds the values of rows to a `V`.
type Add<R, C, V> = fn(&mut V, &[R], &C);

/// The values of a column, and the function that adds more.
enum Values<R, C> {
    Int(Add<R, C, Held<i32>>, Held<i32>),
    Long(Add<R, C, Held<i64>>, Held<i64>),
    Float(Add<R, C, Held<f64>>, Held<f64>),
    Bool(Add<R, C, Held<bool>>, Held<bool>),
    Text(Add<R, C, Words>, Words),
}

impl<R, C> Collected<R, C> {
    fn new(column: &'static Column<R, C>) -> Collected<R, C> {
        let is_optional = column.is_optional;
        let values = match &column.cell {
            Cell::I32(value) => Values::Int(value.add, Held::new(is_optional)),
            Cell::I64(value) | Cell::Varied(value) | Cell::Micros(value) => {
                Values::Long(value.add, Held::new(is_optional))
            }
            Cell::F64(value) => Values::Float(value.add, Held::new(is_optional)),
            Cell::Bool(value) => Values::Bool(value.add, Held::new(is_optional)),
            Cell::Text(text) => Values::Text(text.add, Words::new(is_optional)),
        };
        Collected { column, values }
    }
}

impl<R, C> Values<R, C> {
    fn add(&mut self, rows: &[R], shared: &C) {
        match self {
            Values::Int(add, held) => add(held, rows, shared),
            Values::Long(add, held) => add(held, rows, shared),
            Values::Float(add, held) => add(held, rows, shared),
            Values::Bool(add, held) => add(held, rows, shared),
            Values::Text(add, words) => add(words, rows, shared),
        }
    }
}

/// The values of a column in the group that is being collected.
pub(crate) struct Held<T> {
    is_optional: bool,
    values: Vec<T>,
    /// 1 for a value, 0 for an unknown one; empty for columns whose values are always known.
    levels: Vec<i16>,
}

impl<T> Held<T> {
    pub(super) fn new(is_optional: bool) -> Held<T> {
        Held { is_optional, values: Vec::new(), levels: Vec::new() }
    }

    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    pub(super) fn levels(&self) -> Option<&[i16]> {
        self.is_optional.then_some(self.levels.as_slice())
    }

    pub(super) fn rows(&self) -> usize {
        self.levels().map_or(self.values.len(), <[i16]>::len)
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.levels.clear();
    }
}

impl<T: Copy + Default> Held<T> {
    /// Adds the value that `of` takes from each row.
    pub(crate) fn add<R, C>(&mut self, rows: &[R], shared: &C, mut of: impl FnMut(&R, &C) -> Option<T>) {
        if !self.is_optional {
            self.values.extend(rows.iter().map(|row| {
                let value = of(row, shared);
                debug_assert!(value.is_some(), "a value of this column is always known");
                value.unwrap_or_default()
            }));
            return;
        }

        let (mut at, rows_before) = (self.values.len(), self.levels.len());
        self.values.resize(at + rows.len(), T::default());
        self.levels.resize(rows_before + rows.len(), 0);
        for (row, level) in rows.iter().zip(&mut self.levels[rows_before..]) {
            let value = of(row, shared);
            self.values[at] = value.unwrap_or_default();
            at += usize::from(value.is_some());
            *level = i16::from(value.is_some());
        }
        self.values.truncate(at);
    }
}

fn write_columns<R, C, W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &mut [Collected<R, C>],
) -> Result<(), ParquetError> {
    let descriptions = writer.schema_descr().columns().to_vec();
    let mut group = writer.next_row_group()?;
    for (column, description) in columns.iter_mut().zip(descriptions) {
        match &mut column.values {
            Values::Int(_, held) => write_values::<Int32Type, W>(held, &mut group)?,
            Values::Long(_, held) => write_values::<Int64Type, W>(held, &mut group)?,
            Values::Float(_, held) => write_values::<DoubleType, W>(held, &mut group)?,
            Values::Bool(_, held) => write_values::<BoolType, W>(held, &mut group)?,
            Values::Text(_, words) => words.write(description, &mut group)?,
        }
    }
    group.close().map(|_| ())
}

/// Writes the column of a group, and clears its values.
fn write_values<T: DataType, W: Write + Send>(
    held: &mut Held<T::T>,
    group: &mut SerializedRowGroupWriter<'_, W>,
) -> Result<(), ParquetError> {
    if let Some(mut writer) = group.next_column()? {
        writer.typed::<T>().write_batch(&held.values, held.levels(), None)?;
        writer.close()?;
    }
    held.clear();
    Ok(())
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
