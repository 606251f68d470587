//! `plimsoll depot`: results and recordings of a fleet, as Parquet for any SQL engine.

#[cfg(feature = "parquet")]
mod store;

use std::path::PathBuf;

use clap::Args;
#[cfg(feature = "parquet")]
pub(crate) use store::run;

#[cfg(not(feature = "parquet"))]
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::stat::CapacityFlags;

/// Store results and recordings in a depot: Parquet files by host and day, for DuckDB, DataFusion, Spark
///
/// Takes traces, recordings of stat, and JSON of test, tune, sim run, compare and instance card; their content shows
/// which they are. A file that is stored again replaces its earlier rows. docs/depot.md describes the tables; sql/ has
/// queries. Exit code 1 if some of the files were not stored.
#[derive(Args, Debug)]
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "without Parquet the command only refuses"))]
pub(crate) struct DepotArguments {
    /// Directory of the depot, created if missing, or s3://BUCKET/PREFIX
    ///
    /// A bucket needs a program built with the feature s3. The environment configures the access: AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for servers other than Amazon's.
    #[arg(value_name = "DEPOT")]
    depot: PathBuf,

    /// Files to store
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    files: Vec<PathBuf>,

    /// Host of the files [default: the one that they name; traces and simulations name none]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Start of traces and time of results, such as 2026-03-14T12:00:00Z [default: from the files]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,

    /// Store only histograms of traces
    #[arg(long)]
    no_spans: bool,

    /// Use a directory for each hour, below that of the day: for all files of a depot, or for none
    #[arg(long)]
    by_hour: bool,

    #[command(flatten)]
    capacity: CapacityFlags,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

#[cfg(not(feature = "parquet"))]
pub(crate) fn run(_: &DepotArguments) -> Result<Outcome, Failure> {
    Err(crate::failure::without_parquet("or keep the files as they are"))
}
