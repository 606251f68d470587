//! Rows as a Parquet file.
//!
//! **Why.** A hundred million rows are slow as text, and small as columns.
//!
//! **How.** Rows are collected in groups of [`GROUP_ROWS`], each column by itself, and written with dictionaries or,
//! where values differ from row to row ([`Kind::Varied`]), as differences; pages are compressed with Snappy. Columns
//! with unknown values are optional.
//!
//! **Limits.** A group is held in memory until it is full: about 30 MB of spans.
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
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{Column, Kind, Value};

pub(crate) const GROUP_ROWS: usize = 1 << 17;

/// Most texts of a column that are kept to be found again.
const TEXTS_MAX: usize = 64;

/// A Parquet file that is being written. Errors wait for [`Parquet::finish`].
pub(crate) struct Parquet<R: 'static, C: 'static, W: Write + Send> {
    /// `None` after an error.
    writer: Option<SerializedFileWriter<W>>,
    error: Option<ParquetError>,
    columns: Vec<Held<R, C>>,
    rows_held: usize,
    pub(crate) rows: u64,
}

impl<R, C, W: Write + Send> Parquet<R, C, W> {
    /// Begins a file of these columns, which says `metadata` of itself.
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
        for held in columns.iter().filter(|held| held.column.kind.is_varied()) {
            let path = ColumnPath::from(held.column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }

        let writer =
            SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build())).map_err(io_error)?;
        Ok(Parquet { writer: Some(writer), error: None, columns, rows_held: 0, rows: 0 })
    }

    pub(crate) fn push(&mut self, row: &R, shared: &C) {
        if self.writer.is_none() {
            return;
        }
        self.columns.iter_mut().for_each(|column| column.push(row, shared));
        self.rows_held += 1;
        self.rows += 1;
        if self.rows_held >= GROUP_ROWS {
            self.write_group();
        }
    }

    /// Ends the file. Returns what it was written to, or the first error since the beginning.
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

impl Kind {
    /// Returns whether a dictionary would hold nearly every value.
    const fn is_varied(self) -> bool {
        matches!(self, Kind::Varied | Kind::Micros)
    }
}

/// Returns the column in Parquet's own notation.
fn schema_line<R, C>(Column { name, kind, is_optional, .. }: &Column<R, C>) -> String {
    let repetition = if *is_optional { "OPTIONAL" } else { "REQUIRED" };
    let (physical, logical) = match kind {
        Kind::I32 => ("INT32", ""),
        Kind::I64 | Kind::Varied => ("INT64", ""),
        Kind::Micros => ("INT64", " (TIMESTAMP(MICROS,true))"),
        Kind::F64 => ("DOUBLE", ""),
        Kind::Bool => ("BOOLEAN", ""),
        Kind::Text => ("BYTE_ARRAY", " (STRING)"),
    };
    format!("  {repetition} {physical} {name}{logical};\n")
}

/// The values of a column in the group that is being collected.
enum Values {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>, Texts),
}

/// A column of the group that is being collected.
struct Held<R: 'static, C: 'static> {
    column: &'static Column<R, C>,
    values: Values,
    /// 1 for a value, 0 for an unknown one; empty for columns whose values are always known.
    levels: Vec<i16>,
}

impl<R, C> Held<R, C> {
    fn new(column: &'static Column<R, C>) -> Held<R, C> {
        let values = match column.kind {
            Kind::I32 => Values::Int(Vec::new()),
            Kind::I64 | Kind::Varied | Kind::Micros => Values::Long(Vec::new()),
            Kind::F64 => Values::Float(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
            Kind::Text => Values::Text(Vec::new(), Texts::default()),
        };
        Held { column, values, levels: Vec::new() }
    }

    fn push(&mut self, row: &R, shared: &C) {
        let value = (self.column.value)(row, shared);
        if self.column.is_optional {
            self.levels.push(i16::from(value.is_some()));
        }
        match (&mut self.values, value) {
            (Values::Int(values), Some(Value::Int(value))) => {
                values.push(i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX }));
            }
            (Values::Long(values), Some(Value::Int(value))) => values.push(value),
            (Values::Float(values), Some(Value::Float(value))) => values.push(value),
            (Values::Bool(values), Some(Value::Bool(value))) => values.push(value),
            (Values::Text(values, known), Some(Value::Text(value))) => values.push(known.get(&value)),
            (_, value) => debug_assert!(value.is_none() && self.column.is_optional, "{}", self.column.name),
        }
    }

    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = self.column.is_optional.then_some(self.levels.as_slice());

        match &mut self.values {
            Values::Int(values) => write_values::<Int32Type>(writer, values, levels)?,
            Values::Long(values) => write_values::<Int64Type>(writer, values, levels)?,
            Values::Float(values) => write_values::<DoubleType>(writer, values, levels)?,
            Values::Bool(values) => write_values::<BoolType>(writer, values, levels)?,
            Values::Text(values, _) => write_values::<ByteArrayType>(writer, values, levels)?,
        }

        self.levels.clear();
        Ok(())
    }
}

/// Writes the values of a group, and forgets them.
fn write_values<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

/// The first texts of a column: most rows share theirs with others, and its bytes with them.
#[derive(Default)]
struct Texts(Vec<ByteArray>);

impl Texts {
    fn get(&mut self, text: &str) -> ByteArray {
        if let Some(known) = self.0.iter().find(|known| known.data() == text.as_bytes()) {
            return known.clone();
        }
        let new = ByteArray::from(text);
        if self.0.len() < TEXTS_MAX {
            self.0.push(new.clone());
        }
        new
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
