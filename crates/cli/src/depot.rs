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
/// Takes traces, recordings of stat, and JSON of test, tune, sim run, compare and instance card; what a file is shows
/// from its content. A file that is stored again replaces what it left before. The tables are described in
/// docs/depot.md, questions to them are in sql/. Exit code 1 if some of the files were not stored.
#[derive(Args, Debug)]
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "without Parquet the command only refuses"))]
pub(crate) struct DepotArguments {
    /// The directory of the depot, made if there is none, or s3://BUCKET/PREFIX
    ///
    /// For a bucket, the program is built with the feature s3. The environment says how it is reached:
    /// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for servers other than Amazon's.
    #[arg(value_name = "DEPOT")]
    depot: PathBuf,

    /// What to store
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    files: Vec<PathBuf>,

    /// The host that the files are of [default: as they say; traces and simulations do not]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// When traces began and results were made, such as 2026-03-14T12:00:00Z [default: as they say]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,

    /// Of traces, only histograms
    #[arg(long)]
    no_spans: bool,

    /// A directory for each hour, below that of the day: for all files of a depot, or for none
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
