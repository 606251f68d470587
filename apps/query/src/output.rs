//! Answers as a table for people, CSV, JSON, Parquet or a picture.
//!
//! **Why.** An answer goes to a terminal, a spreadsheet, a program, or another engine.
//!
//! **How.** Rows are written as they are computed, so an answer may be larger than memory; a table is collected first,
//! for the widths of its columns. A file is written under a temporary name and renamed when it is complete. A link is
//! followed, and what is not a regular file (a pipe, `/dev/null`) is written in place.
//!
//! **Limits.** A table has at most [`TABLE_ROWS_MAX`] rows; a note reports the cut. Its floats have three decimals.
//!
//! **Example.** `plimsoll-query latency --format csv`

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::ValueEnum;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::json;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::WriterProperties;
use futures_util::TryStreamExt as _;
use plimsoll_show::printable::printable;
use tempfile::NamedTempFile;

use crate::answer::{Answer, arrow, cells};
use crate::failure::Failure;
use crate::picture;

/// Most rows of a table, which is held in memory; a reader has no use for more.
const TABLE_ROWS_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// With a header; nothing where a value is not known
    Csv,
    /// An array of objects
    Json,
    /// For other engines; needs -o
    Parquet,
    /// A picture of a question's answer
    Svg,
}

/// Refuses several answers in a format for one answer.
pub(crate) fn check_count(answers: usize, format: Format) -> Result<(), Failure> {
    if answers > 1 && format != Format::Table {
        return Err(Failure::Input(format!("{answers} statements give rows: only a table has more than one answer")));
    }
    Ok(())
}

/// Writes the answers to the file at `path`, or to standard output.
pub(crate) async fn write(answers: Vec<Answer>, format: Format, path: Option<&Path>) -> Result<(), Failure> {
    check_count(answers.len(), format)?;
    let Some(path) = path else {
        return write_to(answers, format, &mut BufWriter::new(io::stdout())).await;
    };

    let named = |error: io::Error| Failure::Machine(format!("{}: {error}", path.display()));
    if path.is_symlink() && !path.exists() {
        return Err(Failure::Input(format!("-o {}: a link to nothing: name the file itself", path.display())));
    }
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let before = std::fs::metadata(&target).ok();
    if before.as_ref().is_some_and(|there| there.is_dir()) {
        return Err(Failure::Input(format!("-o {}: a directory: name a file", path.display())));
    }
    if before.as_ref().is_some_and(|there| !there.is_file()) {
        let file = File::options().write(true).open(&target).map_err(named)?;
        return write_to(answers, format, &mut BufWriter::new(file)).await;
    }

    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file: NamedTempFile<File> = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(named)?;

    write_to(answers, format, &mut BufWriter::new(file.as_file_mut())).await?;
    if let Some(there) = before {
        file.as_file().set_permissions(there.permissions()).map_err(named)?;
    }
    file.as_file().sync_all().map_err(named)?;
    file.persist(&target).map(drop).map_err(|error| named(error.error))
}

async fn write_to(answers: Vec<Answer>, format: Format, out: &mut (impl Write + Send)) -> Result<(), Failure> {
    for (number, answer) in answers.into_iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }

        match format {
            Format::Table => table(answer, out).await?,
            Format::Csv => {
                let schema = answer.schema();
                let mut writer = csv::WriterBuilder::new().with_header(true).build(&mut *out);
                stream(answer, |batch| writer.write(batch).map_err(arrow)).await?;
                // Writes the header even if there was no row.
                writer.write(&RecordBatch::new_empty(schema)).map_err(arrow)?;
            }
            Format::Json => {
                let builder = json::WriterBuilder::new().with_explicit_nulls(true);
                let mut writer = builder.build::<_, json::writer::JsonArray>(&mut *out);
                stream(answer, |batch| writer.write(batch).map_err(arrow)).await?;
                writer.finish().map_err(arrow)?;
                writeln!(out)?;
            }
            Format::Parquet => {
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let mut writer = ArrowWriter::try_new(&mut *out, answer.schema(), Some(properties)).map_err(parquet)?;
                stream(answer, |batch| writer.write(batch).map_err(parquet)).await?;
                writer.close().map_err(parquet)?;
            }
            Format::Svg => out.write_all(picture::draw(answer).await?.as_bytes())?,
        }
    }

    Ok(out.flush()?)
}

/// Passes the rows of an answer to `take`, batch by batch.
async fn stream(answer: Answer, mut take: impl FnMut(&RecordBatch) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut batches = answer.rows().await?;
    while let Some(batch) = batches.try_next().await? {
        take(&batch)?;
    }
    Ok(())
}

async fn table(answer: Answer, out: &mut impl Write) -> Result<(), Failure> {
    let fields = answer.schema().fields().clone();
    let is_number: Vec<bool> = fields.iter().map(|field| field.data_type().is_numeric()).collect();
    let mut rows = vec![fields.iter().map(|field| printable(field.name())).collect::<Vec<String>>()];
    for batch in answer.first(TABLE_ROWS_MAX + 1).await? {
        rows.extend(cells(&batch)?.into_iter().map(|row| row.iter().map(|cell| printable(cell)).collect()));
    }

    let has_more = rows.len() > TABLE_ROWS_MAX + 1;
    rows.truncate(TABLE_ROWS_MAX + 1);

    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..fields.len()).map(width).collect();
    for row in &rows {
        let line = row.iter().zip(&widths).zip(&is_number).map(|((cell, &width), &is_number)| match is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        writeln!(out, "{}", line.collect::<Vec<_>>().join("  ").trim_end())?;
    }

    if has_more {
        eprintln!("note: the first {TABLE_ROWS_MAX} rows; --format csv has all");
    }
    Ok(())
}

fn parquet(error: ParquetError) -> Failure {
    Failure::Output(io::Error::other(error))
}
