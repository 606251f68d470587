//! A trace as Parquet: the columns of [`super::csv`], compressed, for data frames.
//!
//! **Why.** A hundred million pieces are slow as text, and small as columns.
//!
//! **How.** One row for each piece, in groups of [`GROUP_ROWS`], pages compressed with Snappy. Numbers are unsigned
//! integers of 16, 32 or 64 bits, `error` a signed one; texts have dictionaries. Columns with unknown values are
//! optional.
//!
//! **Limits.** A group is held in memory until it is full: about 60 MB. Events that belong to no request are left out.
//!
//! **Example.**
//! ```text
//! message span {
//!   REQUIRED INT32 shard (INTEGER(16,false));
//!   ...
//! ```

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::super::show::Head;
use super::super::span::{Item, Span};
use super::csv::{COLUMNS, Column, Kind, Value};
use super::{Exported, Sink};

/// Rows in a group.
pub(super) const GROUP_ROWS: usize = 1 << 17;

/// Returns the schema in Parquet's own notation.
pub(super) fn schema() -> String {
    let column = |Column { name, kind, is_optional, .. }| {
        let repetition = if is_optional { "OPTIONAL" } else { "REQUIRED" };
        let (physical, logical) = match kind {
            Kind::U16 => ("INT32", " (INTEGER(16,false))"),
            Kind::U32 => ("INT32", " (INTEGER(32,false))"),
            Kind::U64 => ("INT64", " (INTEGER(64,false))"),
            Kind::I32 => ("INT32", ""),
            Kind::Bool => ("BOOLEAN", ""),
            Kind::Text => ("BYTE_ARRAY", " (STRING)"),
        };
        format!("  {repetition} {physical} {name}{logical};\n")
    };
    let columns: String = COLUMNS.into_iter().map(column).collect();
    format!("message span {{\n{columns}}}\n")
}

/// A column of the group that is being collected.
enum Values {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>),
}

struct Held {
    column: Column,
    values: Values,
    /// 1 for a value, 0 for an unknown one; empty for columns whose values are always known.
    levels: Vec<i16>,
}

impl Held {
    fn new(column: Column) -> Held {
        let values = match column.kind {
            Kind::U16 | Kind::U32 | Kind::I32 => Values::Int(Vec::new()),
            Kind::U64 => Values::Long(Vec::new()),
            Kind::Bool => Values::Bool(Vec::new()),
            Kind::Text => Values::Text(Vec::new()),
        };
        Held { column, values, levels: Vec::new() }
    }

    fn push(&mut self, span: &Span, head: &Head) {
        let value = (self.column.value)(span, head);
        if self.column.is_optional {
            self.levels.push(i16::from(value.is_some()));
        }
        // Unsigned numbers are stored as signed ones of the same bits.
        match (&mut self.values, value) {
            (Values::Int(values), Some(Value::Number(value))) => values.push(value as u32 as i32),
            (Values::Int(values), Some(Value::Signed(value))) => values.push(value),
            (Values::Long(values), Some(Value::Number(value))) => values.push(value as i64),
            (Values::Bool(values), Some(Value::Bool(value))) => values.push(value),
            (Values::Text(values), Some(Value::Text(value))) => values.push(ByteArray::from(value.into_bytes())),
            _ => {}
        }
    }

    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = self.column.is_optional.then_some(self.levels.as_slice());

        match &mut self.values {
            Values::Int(values) => {
                writer.typed::<Int32Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Long(values) => {
                writer.typed::<Int64Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Bool(values) => {
                writer.typed::<BoolType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Values::Text(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, levels, None)?;
                values.clear();
            }
        }

        self.levels.clear();
        Ok(())
    }
}

/// See the module's documentation.
pub(super) struct Parquet<W: Write + Send> {
    /// `None` after an error.
    writer: Option<SerializedFileWriter<W>>,
    error: Option<ParquetError>,
    head: Head,
    columns: Vec<Held>,
    rows_held: usize,
    exported: Exported,
}

impl<W: Write + Send> Parquet<W> {
    pub(super) fn begin(out: W, head: Head) -> io::Result<Parquet<W>> {
        let schema = parse_message_type(&schema()).map_err(io_error)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map_err(io_error)?;
        Ok(Parquet {
            writer: Some(writer),
            error: None,
            head,
            columns: COLUMNS.into_iter().map(Held::new).collect(),
            rows_held: 0,
            exported: Exported::default(),
        })
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

impl<W: Write + Send> Sink for Parquet<W> {
    fn visit(&mut self, item: &Item) {
        let (Item::Span(span), true) = (item, self.writer.is_some()) else { return };
        self.columns.iter_mut().for_each(|column| column.push(span, &self.head));
        self.rows_held += 1;
        self.exported.rows += 1;
        if self.rows_held >= GROUP_ROWS {
            self.write_group();
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<Exported> {
        if self.rows_held > 0 {
            self.write_group();
        }
        if let Some(error) = self.error {
            return Err(io_error(error));
        }
        if let Some(writer) = self.writer {
            let mut out = writer.into_inner().map_err(io_error)?;
            out.flush()?;
        }
        Ok(self.exported)
    }
}

fn write_columns<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &mut [Held],
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
    use std::io::Read;
    use std::process::Command;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use plimsoll::core::WaitReason;

    use super::super::super::arrivals::tests::span;
    use super::*;
    use crate::skip::skip;

    #[test]
    fn the_schema_is_in_parquets_notation() {
        assert!(schema().starts_with("message span {\n  REQUIRED INT32 shard (INTEGER(16,false));\n"), "{}", schema());
    }

    /// Writes two groups, each beginning with a row whose optional values are unknown. Returns the number of rows.
    fn write(path: &std::path::Path) -> u64 {
        let file = std::fs::File::create(path).unwrap();
        let mut parquet = Box::new(Parquet::begin(file, Head::default()).unwrap());
        for number in 0..GROUP_ROWS as u64 + 2 {
            let whole =
                Span { request: number, error: Some(-5), reason: Some(WaitReason::Depth), ..span(number, u64::MAX) };
            let unknown = Span { queued_ns: None, cost_ns: None, error: None, file: 0, reason: None, ..whole };
            let is_first = number % GROUP_ROWS as u64 == 0;
            parquet.visit(&Item::Span(if is_first { unknown } else { whole }));
        }
        parquet.finish().unwrap().rows
    }

    #[test]
    fn a_reader_finds_every_value() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows = write(file.path());
        let reader = SerializedFileReader::new(std::fs::File::open(file.path()).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata();
        assert_eq!((metadata.num_rows() as u64, reader.num_row_groups()), (rows, 2));

        let columns: Vec<&str> = metadata.schema().get_fields().iter().map(|field| field.name()).collect();
        let names = COLUMNS.map(|column| column.name);
        assert_eq!(columns, names);

        let mut all = reader.get_row_iter(None).unwrap().map(Result::unwrap);
        let (first, second) = (all.next().unwrap(), all.next().unwrap());
        assert_eq!(second.get_ulong(names.iter().position(|name| *name == "completed_ns").unwrap()).unwrap(), u64::MAX);

        let texts = |row: &parquet::record::Row| -> Vec<String> {
            row.get_column_iter().map(|(_, field)| field.to_string().replace('"', "")).collect()
        };
        let (first, second) = (texts(&first), texts(&second));
        let expected =
            ["0", "disk 0", "class 1", "read", "1", "0", "false", "file 1", "8192", "4096", "0", "100", "depth"];
        assert_eq!(second[..13], expected);
        assert_eq!((second[13].as_str(), second[20].as_str(), second[21].as_str()), ("1", "-5", "false"));

        for unknown in ["file", "cost_ns", "wait_reason", "queued_ns", "error"] {
            let at = names.iter().position(|name| *name == unknown).unwrap();
            assert_eq!(first[at], "null", "{unknown}");
        }
        assert_eq!(all.count() as u64, rows - 2);
    }

    #[test]
    fn pyarrow_reads_it_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows = write(file.path());
        let script = "import sys, pyarrow.parquet as p; t = p.read_table(sys.argv[1]); \
                      print(t.num_rows, t['queued_ns'].null_count, t['completed_ns'][1].as_py(), t['error'][1].as_py())";
        let ran = Command::new("python3").args(["-c", script]).arg(file.path()).output();
        match ran {
            Ok(out) if out.status.success() => {
                let text = String::from_utf8_lossy(&out.stdout).into_owned();
                assert_eq!(text.trim(), format!("{rows} 2 {} -5", u64::MAX));
            }
            Ok(out) if !String::from_utf8_lossy(&out.stderr).contains("ModuleNotFoundError") => {
                panic!("{}", String::from_utf8_lossy(&out.stderr));
            }
            _ => skip("there is no python3 with pyarrow"),
        }
    }

    #[test]
    fn it_begins_and_ends_with_the_mark_of_the_format() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let parquet = Box::new(Parquet::begin(file.reopen().unwrap(), Head::default()).unwrap());
        assert_eq!(parquet.finish().unwrap().rows, 0, "nothing is a table, too");
        let mut bytes = Vec::new();
        file.reopen().unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
}
