//! Answers to statements, as rows.
//!
//! **Why.** Tables, files and pictures are made of the same rows, wherever these were computed.
//!
//! **How.** [`Answer`] is a plan of this process, or a stream of rows from a cluster; [`cells`] are rows as text.
//!
//! **Limits.** An answer is read once.
//!
//! **Example.** `cells(&batch)?[0]` are the texts of the first row.

use std::io;

use datafusion::arrow::array::{Array as _, Float64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures_util::TryStreamExt as _;

use crate::failure::Failure;

/// The answer to a statement, as rows.
pub(crate) enum Answer {
    /// This process computes them as they are read.
    Embedded(Box<DataFrame>),
    /// A cluster has computed them.
    Cluster(SendableRecordBatchStream),
}

impl Answer {
    /// Returns the columns.
    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Answer::Embedded(frame) => std::sync::Arc::clone(frame.schema().inner()),
            Answer::Cluster(rows) => rows.schema(),
        }
    }

    /// Begins to compute the rows.
    pub(crate) async fn rows(self) -> Result<SendableRecordBatchStream, Failure> {
        match self {
            Answer::Embedded(frame) => Ok(frame.execute_stream().await?),
            Answer::Cluster(rows) => Ok(rows),
        }
    }

    /// Returns at most the first `count` rows, in batches.
    pub(crate) async fn first(self, count: usize) -> Result<Vec<RecordBatch>, Failure> {
        let limited = match self {
            Answer::Embedded(frame) => Answer::Embedded(Box::new(frame.limit(0, Some(count))?)),
            cluster => cluster,
        };
        let mut rows = limited.rows().await?;

        let (mut batches, mut left) = (Vec::new(), count);
        while left > 0
            && let Some(batch) = rows.try_next().await?
        {
            let batch = batch.slice(0, left.min(batch.num_rows()));
            left -= batch.num_rows();
            batches.push(batch);
        }
        Ok(batches)
    }
}

/// Returns the rows of a batch as text.
pub(crate) fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>, Failure> {
    let options = FormatOptions::default().with_null("-");
    let mut columns = Vec::new();
    for column in batch.columns() {
        if *column.data_type() == DataType::Float64
            && let Some(floats) = column.as_any().downcast_ref::<Float64Array>()
        {
            columns
                .push(floats.iter().map(|it| it.map_or("-".to_owned(), |it| format!("{it:.3}"))).collect::<Vec<_>>());
            continue;
        }

        let formatter = ArrayFormatter::try_new(column.as_ref(), &options).map_err(arrow)?;
        columns.push((0..batch.num_rows()).map(|row| formatter.value(row).to_string()).collect());
    }

    Ok((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect())
}

/// Returns the failure that an error of Arrow is.
pub(crate) fn arrow(error: ArrowError) -> Failure {
    match error {
        ArrowError::IoError(_, error) => Failure::Output(error),
        ArrowError::ExternalError(error) => match error.downcast::<io::Error>() {
            Ok(error) => Failure::Output(*error),
            Err(error) => Failure::Machine(error.to_string()),
        },
        // The CSV writer converts the underlying error to text.
        ArrowError::CsvError(text) if text.contains("Broken pipe") => Failure::Output(io::ErrorKind::BrokenPipe.into()),
        error => DataFusionError::from(error).into(),
    }
}
