//! A trace as Parquet: the columns of [`super::csv`], compressed, for data frames.
//!
//! **Why.** A hundred million pieces are slow as text, and small as columns.
//!
//! **How.** One row for each piece; [`crate::columns::parquet`] writes them.
//!
//! **Limits.** Events that belong to no request are left out.
//!
//! **Example.** `plimsoll trace export run.plt --to parquet -o run.parquet`.

use std::io::{self, Write};

use super::super::show::Head;
use super::super::span::{Item, Span};
use super::csv::COLUMNS;
use super::{Exported, Sink};
use crate::columns::parquet::{BATCH_ROWS, Parquet};

pub(super) struct Spans<W: Write + Send> {
    file: Parquet<Span, Head, W>,
    head: Head,
    /// Spans that are not in the file yet.
    held: Vec<Span>,
}

impl<W: Write + Send> Spans<W> {
    pub(super) fn begin(out: W, head: Head) -> io::Result<Spans<W>> {
        Ok(Spans { file: Parquet::begin(out, &COLUMNS, &[])?, head, held: Vec::with_capacity(BATCH_ROWS) })
    }
}

impl<W: Write + Send> Sink for Spans<W> {
    fn visit(&mut self, item: &Item) {
        let Item::Span(span) = item else { return };
        self.held.push(*span);
        if self.held.len() == BATCH_ROWS {
            self.file.push(&self.held, &self.head);
            self.held.clear();
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<Exported> {
        self.file.push(&self.held, &self.head);
        let rows = self.file.rows;
        self.file.finish()?.flush()?;
        Ok(Exported { rows, ..Exported::default() })
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
    use crate::columns::parquet::GROUP_ROWS;
    use crate::skip::skip;

    /// Writes two groups, each beginning with a row whose optional values are unknown. Returns the number of rows.
    fn write(path: &std::path::Path) -> u64 {
        let file = std::fs::File::create(path).unwrap();
        let mut parquet = Box::new(Spans::begin(file, Head::default()).unwrap());
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
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(columns, names);

        let mut all = reader.get_row_iter(None).unwrap().map(Result::unwrap);
        let (first, second) = (all.next().unwrap(), all.next().unwrap());
        assert_eq!(second.get_long(names.iter().position(|name| *name == "completed_ns").unwrap()).unwrap(), i64::MAX);

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
                assert_eq!(text.trim(), format!("{rows} 2 {} -5", i64::MAX));
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
        let parquet = Box::new(Spans::begin(file.reopen().unwrap(), Head::default()).unwrap());
        assert_eq!(parquet.finish().unwrap().rows, 0, "nothing is a table, too");
        let mut bytes = Vec::new();
        file.reopen().unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
}
