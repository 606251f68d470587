//! A session with the tables of a depot, and the questions as views.
//!
//! **Why.** A question need not say where the tables are or how they are partitioned.
//!
//! **How.** A table is all `*.parquet` below its directory, by day or by hour, with `host` and `date` of the path as
//! columns. A column that only some files have, as after a change of the schema, is null in the others. Files that
//! would spoil the answer are reported and left out ([`crate::whole`]).
//!
//! **Limits.** A table without files does not exist, nor do the views that need it.
//!
//! **Example.** `Depot::open("s3://fleet/depot", 1 << 30)`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::{DataType, Fields, Schema};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, RetryConfig};
use url::Url;

use crate::failure::Failure;
use crate::scratch::Scratch;
use crate::whole::{self, Kept, LeftOut};

/// Longest time for which a request to a bucket is repeated, as by `plimsoll depot`: enough for a restart of the
/// server.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// The tables of a depot.
const TABLES: [&str; 4] = ["spans", "hist", "disks", "figures"];

/// URL of the depot in the session, so that special characters in the depot's own name have no meaning there.
const ROOT: &str = "depot://depot";

/// A table and the files that are not left out.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) files: Vec<Key>,
}

/// A question in `sql/`.
pub(crate) struct Question {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
    /// The order in which the rows are shown: worst first.
    pub(crate) order: &'static str,
}

macro_rules! question {
    ($name:literal, $order:literal) => {
        Question { name: $name, sql: include_str!(concat!("../../../sql/", $name, ".sql")), order: $order }
    };
}

/// All questions.
pub(crate) const QUESTIONS: [Question; 7] = [
    question!("latency", "p99_ms DESC, host, class"),
    question!("waste", "used_pct, host"),
    question!("hot_disk", "host, first_utc"),
    question!("before_after", "class"),
    question!("throttled", "part_of_latency_pct DESC NULLS LAST, host, class, waited_for"),
    question!("doubts", "host, doubt, from_utc"),
    question!("slowest", "total_ms DESC, host, at_utc, class, op, len_bytes, queue_ms, device_ms, unseen_ms"),
];

/// An open depot.
pub(crate) struct Depot {
    pub(crate) session: SessionContext,
    place: String,
    /// Tables with files.
    pub(crate) tables: Vec<Table>,
    /// Views that were created, in order.
    pub(crate) made: Vec<&'static Question>,
    /// Views that could not be created yet, and the reason.
    missing: Vec<(&'static Question, String)>,
    /// Files that are left out, and the reason.
    pub(crate) left_out: Vec<LeftOut>,
}

impl Depot {
    /// Opens the depot at a directory or URL, for questions that use at most `memory_bytes`. Without `scratch`, one that
    /// needs temporary files fails with the engine's error.
    pub(crate) async fn open(place: &str, memory_bytes: usize, scratch: Option<&Scratch>) -> Result<Depot, Failure> {
        let in_scratch = |scratch: &Scratch| DiskManagerMode::Directories(vec![scratch.path().to_owned()]);
        let files = scratch.map_or(DiskManagerMode::OsTmpDirectory, in_scratch);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(memory_bytes)))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(files))
            .build_arc()?;

        let mut config = SessionConfig::new();
        // Times of day are those of the depot, in UTC.
        config.options_mut().execution.time_zone = Some("UTC".to_owned());

        let session = SessionContext::new_with_config_rt(config, runtime);
        let (store, url) = (reach(place)?, Url::parse(ROOT).map_err(|error| DataFusionError::External(error.into()))?);

        let mut depot = Depot {
            session,
            place: place.to_owned(),
            tables: Vec::new(),
            made: Vec::new(),
            missing: Vec::new(),
            left_out: Vec::new(),
        };

        for name in TABLES {
            let sorted = whole::sort(&store, &Key::from(name)).await;
            let (files, left_out) = sorted.map_err(|error| unreachable(place, &error))?;
            depot.tables.extend(Some(Table { name, files }).filter(|table| !table.files.is_empty()));
            depot.left_out.extend(left_out);
        }

        let files = depot.tables.iter().flat_map(|table| table.files.iter().cloned()).collect();
        depot.session.register_object_store(&url, Arc::new(Kept { inner: store, files: Arc::new(files) }));
        for table in &depot.tables {
            depot.add_table(table.name, &url).await?;
        }

        if depot.tables.is_empty() {
            let expected = TABLES.join(", ");
            return Err(Failure::Input(format!(
                "{place}: there is no depot: expected Parquet files in {expected}; `plimsoll depot` makes them"
            )));
        }

        depot.missing = QUESTIONS.iter().map(|question| (question, String::new())).collect();
        depot.add_views().await;
        Ok(depot)
    }

    async fn add_table(&self, table: &str, url: &Url) -> Result<(), Failure> {
        let partitions = vec![("host".to_owned(), DataType::Utf8), ("date".to_owned(), DataType::Date32)];
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
            .with_file_extension(".parquet")
            .with_table_partition_cols(partitions);

        let mut url = url.clone();
        url.set_path(&format!("/{table}/"));

        let config = ListingTableConfig::new(ListingTableUrl::try_new(url, None)?).with_listing_options(options);
        let mut config = config.infer_schema(&self.session.state()).await?;

        // A column without nulls in one file may be missing in files of an earlier schema.
        config.file_schema = config.file_schema.map(|schema| {
            let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        });

        self.session.register_table(table, Arc::new(ListingTable::try_new(config)?))?;
        Ok(())
    }

    /// Creates the missing views that can be created now: `before_after` needs a view `changed`.
    pub(crate) async fn add_views(&mut self) {
        let mut missing = Vec::new();
        for (question, _) in std::mem::take(&mut self.missing) {
            let made = async { self.session.sql(question.sql).await?.collect().await };
            match made.await {
                Ok(_) => self.made.push(question),
                Err(error) => missing.push((question, error.strip_backtrace())),
            }
        }
        self.missing = missing;
    }

    /// Returns the depot's URL for Hadoop's file systems, without a slash at its end.
    pub(crate) fn root(&self) -> Result<String, Failure> {
        if let Some(rest) = self.place.strip_prefix("s3://") {
            return Ok(format!("s3a://{}", rest.trim_end_matches('/')));
        }
        let path = std::fs::canonicalize(&self.place);
        let path = path.map_err(|error| Failure::Input(format!("{}: cannot open the depot: {error}", self.place)))?;
        Ok(format!("file:{}", path.display()))
    }

    /// Returns the columns of a table, including those of the path.
    pub(crate) async fn columns(&self, table: &str) -> Result<Fields, Failure> {
        Ok(self.session.table(table).await?.schema().fields().clone())
    }

    /// Explains an error about an unknown name in a question.
    pub(crate) fn explain(&self, error: DataFusionError) -> Failure {
        let message = error.strip_backtrace();
        let names = |name: &str| {
            let mut words = message.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            message.contains("not found") && words.any(|word| word == name)
        };

        if names("changed") {
            return Failure::Input(format!("{message}. {CHANGED}"));
        }

        let has = |table: &str| self.tables.iter().any(|it| it.name == table);
        if let Some(table) = TABLES.into_iter().find(|table| !has(table) && names(table)) {
            return Failure::Input(format!("{}: there are no files of the table {table}", self.place));
        }

        match self.missing.iter().find(|(question, _)| names(question.name)) {
            Some((Question { name: "before_after", .. }, why)) if why.contains("changed") => {
                Failure::Input(format!("before_after: {CHANGED}"))
            }
            Some((question, why)) => Failure::Input(format!("{}: {}: {why}", self.place, question.name)),
            None => error.into(),
        }
    }

    /// Returns the tables and questions, one per line.
    pub(crate) fn contents(&self) -> String {
        let tables =
            self.tables.iter().map(|table| format!("{:<13} table of {} files\n", table.name, table.files.len()));
        let questions = QUESTIONS.iter().map(|question| {
            // The first sentence of the file's comment.
            let about = question.sql.trim_start_matches("-- ").split_inclusive('?').next().unwrap_or_default();
            let lacks = self.missing.iter().any(|(missing, _)| missing.name == question.name);
            format!("{:<13} {about}{}\n", question.name, if lacks { " (not yet: ask it to see why)" } else { "" })
        });
        tables.chain(questions).collect()
    }
}

const CHANGED: &str = "First say when it was changed: \"CREATE VIEW changed AS SELECT TIMESTAMP '2026-03-14 12:00:00' AS \
                       at_utc; SELECT * FROM before_after\"";

/// Returns the store whose root is the depot.
fn reach(place: &str) -> Result<Arc<dyn ObjectStore>, Failure> {
    let bad = |reason: String| Failure::Input(format!("{place}: {reason}"));
    let Some((scheme, rest)) = place.split_once("://") else {
        let directory = std::fs::canonicalize(place).map_err(|error| bad(format!("cannot open the depot: {error}")))?;
        let store = LocalFileSystem::new_with_prefix(directory).map_err(|error| bad(error.to_string()))?;
        return Ok(Arc::new(store));
    };

    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if scheme != "s3" || bucket.is_empty() {
        return Err(bad("expected a directory, or s3://BUCKET/PREFIX".to_owned()));
    }

    let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);

    // An endpoint without encryption is the user's explicit choice.
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
    let retry = RetryConfig { max_retries: 5, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
    let store = builder.with_allow_http(endpoint.starts_with("http://")).with_retry(retry).build();
    let store = store.map_err(|error| bad(error.to_string()))?;
    Ok(Arc::new(PrefixStore::new(store, prefix)))
}

fn unreachable(place: &str, error: &object_store::Error) -> Failure {
    let remedy = if Path::new(place).exists() { "" } else { "; AWS_... variables say how the bucket is reached" };
    Failure::Machine(format!("{place}: cannot list the files: {error}{remedy}"))
}
