//! Lets a Spark cluster compute the answers.
//!
//! **Why.** One machine reads the spans of a thousand hosts for hours; a cluster reads them in minutes.
//!
//! **How.** The embedded engine plans each statement as if to run it; this refuses wrong statements and yields the
//! types of the answer. The statements then go to `spark-submit` in Spark's dialect ([`crate::words`]) with the files
//! of each table. `spark.py` runs them, and the same code as for the embedded engine writes its rows, in the same
//! types.
//!
//! **Limits.** `SELECT` and `CREATE VIEW` only, and columns of numbers, texts, booleans, times and dates. A lost worker
//! is reported; Spark repeats its part.
//!
//! **Example.** `plimsoll-query --depot s3://fleet/depot --cluster spark://host:7077 latency`

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::ReaderBuilder;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::Statement as Parsed;
use futures_util::stream;
use plimsoll_show::printable::printable;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::ask;
use crate::depot::{Depot, Table};
use crate::failure::Failure;
use crate::output::{Format, check_count};
use crate::scratch::Scratch;
use crate::words;

/// The program that runs in Spark's driver.
const DRIVER: &str = include_str!("spark.py");

/// Longest wait for a master to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// The port of a master that is named without one.
const PORT: u16 = 7077;

/// Rows of a batch that is read from an answer.
const ROWS: usize = 8192;

/// Statements for Spark, and the types of their answers.
#[derive(Default)]
struct Script {
    steps: Vec<(String, Option<SchemaRef>)>,
}

/// Runs statements on the cluster at `url`. Returns the answers once all are complete.
pub(crate) async fn ask(
    url: &str,
    depot: &mut Depot,
    sql: &str,
    format: Format,
    scratch: &Scratch,
) -> Result<Vec<Answer>, Failure> {
    reach(url)?;
    let script = plan(depot, sql).await?;
    check_count(script.steps.iter().filter(|(_, answer)| answer.is_some()).count(), format)?;

    let answers = submit(url, depot, &script, scratch.path()).await?;
    // Open files stay readable while the directory is removed.
    answers.into_iter().map(|(path, schema)| Ok(Answer::Cluster(read(&path, &schema)?))).collect()
}

/// Connects to one of the masters of a URL, because Spark itself tries for minutes and then reports little.
fn reach(url: &str) -> Result<(), Failure> {
    let Some(masters) = url.strip_prefix("spark://").filter(|masters| !masters.is_empty()) else {
        return Err(Failure::Input(format!(
            "--cluster {url}: expected the master of a Spark cluster, as spark://HOST:{PORT}"
        )));
    };

    let mut why = "no such host".to_owned();
    for master in masters.split(',') {
        let (host, port) = master.rsplit_once(':').unwrap_or((master, ""));
        let port = if port.is_empty() { Ok(PORT) } else { port.parse() };
        let port = port.map_err(|_| Failure::Input(format!("--cluster {url}: `{master}`: expected HOST:PORT")))?;

        match (host, port).to_socket_addrs() {
            Ok(addresses) => {
                for address in addresses {
                    match TcpStream::connect_timeout(&address, CONNECT) {
                        Ok(_) => return Ok(()),
                        Err(error) => why = error.to_string(),
                    }
                }
            }
            Err(error) => why = error.to_string(),
        }
    }

    Err(Failure::Machine(format!("{url}: no cluster answers: {why}: start its master, or ask without --cluster")))
}

/// Plans statements with the embedded engine, and translates them to Spark's dialect.
async fn plan(depot: &mut Depot, sql: &str) -> Result<Script, Failure> {
    let mut script = Script::default();
    let mut views = 0;
    for statement in DFParser::parse_sql(sql)? {
        depot.add_views().await;
        for question in &depot.made[views..] {
            script.steps.extend(DFParser::parse_sql(question.sql)?.iter().map(|it| (words::for_spark(it), None)));
        }
        views = depot.made.len();

        let text = words::for_spark(&statement);
        let is_query = matches!(&statement, Statement::Statement(parsed) if matches!(**parsed, Parsed::Query(_)));
        let plan = ask::plan(depot, statement).await?;
        let is_view = matches!(plan, LogicalPlan::Ddl(DdlStatement::CreateView(_)));

        if !is_query && !is_view {
            return Err(Failure::Input(format!(
                "a cluster runs SELECT and CREATE VIEW only: ask without --cluster: {text}"
            )));
        }

        if let Some(quotient) = words::integer_quotient(&plan)? {
            return Err(Failure::Input(format!(
                "{quotient}: a quotient of integers is cut here and is a fraction in Spark: write 1e0 * a / b, or floor(1e0 * a / b)"
            )));
        }

        let frame = depot.session.execute_logical_plan(plan).await?;
        script.steps.push((text, is_query.then(|| Arc::clone(frame.schema().inner()))));
    }
    Ok(script)
}

/// Runs `spark-submit` until it ends. Returns the files of the answers with their types.
async fn submit(
    url: &str,
    depot: &Depot,
    script: &Script,
    directory: &Path,
) -> Result<Vec<(PathBuf, SchemaRef)>, Failure> {
    let path = |name: &str| directory.join(name);

    let mut answers = Vec::new();
    let mut steps = Vec::new();
    for (sql, schema) in &script.steps {
        let columns = schema.iter().flat_map(|it| it.fields()).enumerate().map(|(number, field)| column(number, field));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let answer = schema.as_ref().map(|schema| (path(&format!("{}.json", answers.len())), Arc::clone(schema)));
        steps.push(json!({"sql": sql, "answer": answer.as_ref().map(|(file, _)| file), "columns": columns}));
        answers.extend(answer);
    }

    let root = depot.root()?;
    let mut tables = Vec::new();
    for table in &depot.tables {
        tables.push(described(table, &root, &depot.columns(table.name).await?)?);
    }

    let job = json!({"pid": std::process::id(), "settings": settings(), "tables": tables, "steps": steps});

    let temporary = |error: io::Error| Failure::Machine(format!("{}: {error}", directory.display()));
    std::fs::write(path("job.json"), job.to_string()).map_err(temporary)?;
    std::fs::write(path("spark.py"), DRIVER).map_err(temporary)?;
    let log = File::create(path("log")).map_err(temporary)?;
    let started = Command::new("spark-submit")
        .args(["--master", url])
        .args([path("spark.py"), path("job.json")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn();

    let child = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Machine(
            "spark-submit is not on PATH: install the Spark of the cluster here too, or ask without --cluster"
                .to_owned(),
        ),
        _ => Failure::Machine(format!("spark-submit: {error}")),
    })?;

    wait(child, url, &path("log"))?;
    Ok(answers)
}

/// Reports the driver's messages until it ends.
fn wait(mut child: Child, url: &str, log: &Path) -> Result<(), Failure> {
    let mut said = None;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.map_err(|error| Failure::Machine(format!("spark-submit: {error}")))?;
        let Some((kind, text)) = line.strip_prefix("plimsoll-query ").and_then(|it| it.split_once(' ')) else {
            continue;
        };

        let text: String = serde_json::from_str(text).unwrap_or_else(|_| text.to_owned());
        match kind {
            "lost" => eprintln!("note: the worker at {} is lost: the others do its part again", printable(&text)),
            "bad" => said = Some(Failure::Input(format!("{url}: {text}"))),
            _ => said = Some(Failure::Machine(format!("{url}: {}", with_remedy(&text)))),
        }
    }

    let ended = child.wait().map_err(|error| Failure::Machine(format!("spark-submit: {error}")))?;
    if ended.success() {
        return Ok(());
    }

    Err(said.unwrap_or_else(|| {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let mut lines =
            text.lines().filter(|line| line.contains("Exception") || line.contains("ERROR") || line.contains("rror:"));
        let why = lines.next_back().or(text.lines().last()).unwrap_or("no message");
        Failure::Machine(format!("{url}: spark-submit ended by itself ({ended}): {}", why.trim()))
    }))
}

/// Adds the remedy to an error of Spark, if one is known.
fn with_remedy(text: &str) -> String {
    let remedies = [
        (
            "S3AFileSystem not found",
            "Spark has no S3: put hadoop-aws of its Hadoop's version into spark.jars.packages of spark-defaults.conf",
        ),
        (
            "FILE_NOT_EXIST",
            "the workers do not see the depot: give them the directory under this name, or keep the depot in a bucket",
        ),
        (
            "does not exist",
            "the workers do not see the depot: give them the directory under this name, or keep the depot in a bucket",
        ),
        ("Status Code: 403", "the workers have no rights on the bucket: AWS_... variables here go to them"),
    ];
    match remedies.iter().find(|(sign, _)| text.contains(sign)) {
        Some((_, remedy)) => format!("{text}: {remedy}"),
        None => text.to_owned(),
    }
}

/// Returns the settings with which Spark reads and computes like the embedded engine, and reaches a bucket by the same
/// environment variables.
fn settings() -> Value {
    let mut settings = json!({
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.parquet.mergeSchema": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    });
    // Spark itself reads the access keys from the environment.
    if let Ok(endpoint) = std::env::var("AWS_ENDPOINT_URL") {
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint.into();
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true".into();
    }
    if let Ok(region) = std::env::var("AWS_REGION") {
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region.into();
    }
    settings
}

/// Describes a table to Spark. Files by day and by hour are listed apart, because Spark refuses a mixture.
fn described(table: &Table, root: &str, fields: &Fields) -> Result<Value, Failure> {
    let typed = fields.iter().map(|field| Ok(format!("{} {}", field.name(), stored_type(field)?)));
    let schema = typed.collect::<Result<Vec<_>, Failure>>()?.join(", ");
    let columns: Vec<_> = fields.iter().map(|field| field.name()).collect();

    let (hours, days): (Vec<_>, Vec<_>) = table.files.iter().partition(|file| file.as_ref().contains("/hour="));
    let files = [days, hours].into_iter().filter(|files| !files.is_empty());
    let files = files.map(|files| files.iter().map(|file| literal(&format!("{root}/{file}"))).collect::<Vec<_>>());

    Ok(json!({
        "name": table.name, "base": format!("{root}/{}", table.name), "schema": schema, "columns": columns,
        "files": files.collect::<Vec<_>>(),
    }))
}

/// Returns `place` with Hadoop's pattern characters escaped.
fn literal(place: &str) -> String {
    let escaped = |letter: char| if "{}[]*?\\".contains(letter) { vec!['\\', letter] } else { vec![letter] };
    place.chars().flat_map(escaped).collect()
}

/// Returns Spark's name for the type of a stored column.
fn stored_type(field: &Field) -> Result<&'static str, Failure> {
    Ok(match field.data_type() {
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::Float64 => "DOUBLE",
        DataType::Boolean => "BOOLEAN",
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "STRING",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP",
        DataType::Date32 => "DATE",
        other => {
            return Err(Failure::Input(format!(
                "column {}: type {other}: no column of a depot's schema",
                field.name()
            )));
        }
    })
}

/// Returns the expression that casts the answer's column `number` to a type that JSON keeps: see [`carried`].
fn column(number: usize, field: &Field) -> Result<String, Failure> {
    let name = format!("c{number}");
    Ok(match (field.data_type(), carried(field)?) {
        (DataType::Timestamp(..), _) => format!("unix_micros(CAST({name} AS TIMESTAMP)) AS {name}"),
        (_, DataType::Boolean) => name,
        (_, DataType::Int64) => format!("CAST({name} AS BIGINT) AS {name}"),
        (_, DataType::Float64) => format!("CAST({name} AS DOUBLE) AS {name}"),
        (..) => format!("CAST({name} AS STRING) AS {name}"),
    })
}

/// Returns the type of a column in the JSON of an answer.
fn carried(field: &Field) -> Result<DataType, Failure> {
    Ok(match field.data_type() {
        DataType::Boolean => DataType::Boolean,
        DataType::Timestamp(..) => DataType::Int64,
        it if it.is_integer() => DataType::Int64,
        it if it.is_floating() => DataType::Float64,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 | DataType::Date32 | DataType::Null => DataType::Utf8,
        DataType::Decimal128(..) | DataType::Decimal256(..) => DataType::Utf8,
        other => {
            let name = field.name();
            return Err(Failure::Input(format!(
                "column {name}: a cluster's answer cannot have the type {other}: cast it to text"
            )));
        }
    })
}

/// Opens an answer. Returns its rows in the types of `schema`.
fn read(path: &Path, schema: &SchemaRef) -> Result<SendableRecordBatchStream, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Machine(format!("the cluster's answer: {error}"));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let fields = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(number, field)| Ok(Field::new(format!("c{number}"), carried(field)?, true)));

    let raw = Arc::new(Schema::new(fields.collect::<Result<Vec<_>, Failure>>()?));
    let reader = ReaderBuilder::new(raw).with_batch_size(ROWS).build(BufReader::new(file));
    let reader = reader.map_err(|error| failed(&error))?;

    let typed = Arc::clone(schema);
    let outside = |error: ArrowError| DataFusionError::External(format!("the cluster's answer: {error}").into());
    let batches = reader.map(move |batch| batch.and_then(|batch| with_types(&batch, &typed)).map_err(outside));
    Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), stream::iter(batches))))
}

fn with_types(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    // A value that the type cannot hold is an error, never null.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        let zone = match field.data_type() {
            DataType::Timestamp(_, zone) => Some(zone.clone()),
            _ => None,
        };
        let column = match zone {
            Some(zone) => cast_with_options(column, &DataType::Timestamp(TimeUnit::Microsecond, zone), &options)?,
            None => Arc::clone(column),
        };
        cast_with_options(&column, field.data_type(), &options)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<Vec<_>, _>>()?)
}
