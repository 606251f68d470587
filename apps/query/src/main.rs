//! The program `plimsoll-query`: SQL over a depot of `plimsoll depot`, in one process or by a cluster.
//!
//! # Why
//! The questions in `sql/` need an engine. This one needs no installation, no server, and no statement that defines the
//! tables.
//!
//! # How it works
//! [`depot`] creates a session with the tables, and with the questions as views; [`ask`] runs statements in it, and
//! [`output`] writes the rows as they are computed. With `--cluster`, the statements are checked and typed in the same
//! session, and [`cluster`] lets Spark run them. `plimsoll query` runs this program.
//!
//! # Limits
//! Memory is bounded ([`Arguments::memory`]) where DataFusion accounts for it: beyond, sorts and groups use temporary
//! files, joins fail with an error. Pages that are being read are not counted.
//!
//! # Example
//! `plimsoll-query --depot s3://fleet/depot latency`

mod answer;
mod ask;
mod cluster;
mod depot;
mod failure;
mod output;
mod picture;
mod scratch;
mod whole;
mod words;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use plimsoll_figures::units::parse_size_bytes;
use plimsoll_show::printable::{printable, printable_lines};
use tokio::signal::unix::{SignalKind, signal};

use answer::Answer;
use failure::Failure;
use output::Format;
use scratch::Scratch;

/// Exit code after a signal.
const INTERRUPTED: u8 = 130;
/// Longest wait for a question that is to end early.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Ask a depot: SQL over what `plimsoll depot` stored, with the questions of sql/ as views
///
/// The tables are spans, hist, disks and figures; docs/depot.md has their columns. Without a question it lists the
/// tables and the questions. The depot is only read: statements that write are refused.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
#[command(
    after_help = "Examples:\n  plimsoll query latency\n  plimsoll query --depot s3://fleet/depot \"SELECT host, count(*) FROM spans \
                  GROUP BY host\"\n  plimsoll query question.sql --format parquet -o answer.parquet\n\n\
                  Exit codes: 0 done; 1 answered without some files, which are named; 2 bad input or usage; 3 this machine, or the server, cannot do it; 130 interrupted."
)]
struct Arguments {
    /// A file of SQL statements, a statement, or the name of a view or table, worst first
    #[arg(value_name = "FILE.sql|SELECT ...|NAME")]
    question: Option<String>,

    /// The directory of the depot, or s3://BUCKET/PREFIX
    ///
    /// The environment says how a bucket is reached: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and
    /// AWS_ENDPOINT_URL for servers other than Amazon's.
    #[arg(long, value_name = "URL", default_value = ".")]
    depot: String,

    /// Format of the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Write the answer to this file, whole or not at all [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Let a Spark cluster answer: its master, as spark://HOST:7077
    ///
    /// Runs spark-submit of the PATH, whose spark-defaults.conf says all else. The rows are those of this program. A
    /// depot in a directory must be there on each worker, under the same name; s3://... needs hadoop-aws in Spark.
    #[arg(long, value_name = "URL")]
    cluster: Option<String>,

    /// Most memory for sorting, grouping and joining; what takes more goes to temporary files
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    memory: usize,
}

fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_size_bytes(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended =
        runtime.map_err(|error| Failure::Machine(format!("cannot start threads: {error}"))).and_then(|runtime| {
            let ended = runtime.block_on(run_until_signal(arguments));
            // A thread that waits for a cluster would be waited for.
            runtime.shutdown_background();
            ended
        });

    match ended {
        Ok(code) => code,
        // A reader that has read enough closes the pipe, which is no error.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", printable_lines(&failure.to_string()));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Runs the command. At SIGINT and SIGTERM it ends early, and its temporary files are removed.
async fn run_until_signal(arguments: Arguments) -> Result<ExitCode, Failure> {
    let signals = |error: io::Error| Failure::Machine(format!("cannot wait for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(signals)?;
    let mut running = tokio::spawn(async move { run(&arguments).await });

    tokio::select! {
        ended = &mut running => match ended {
            Ok(ended) => return ended,
            Err(panic) => return Err(Failure::Machine(panic.to_string())),
        },
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    running.abort();
    // What waits for a cluster does not end: the next question removes its files.
    let _ = tokio::time::timeout(END_TIMEOUT, running).await;
    Ok(ExitCode::from(INTERRUPTED))
}

async fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.format == Format::Parquet && arguments.output.is_none() {
        return Err(Failure::Input("Parquet is written to a file: name it with -o FILE".to_owned()));
    }

    let scratch = Scratch::new();
    let mut depot = depot::Depot::open(&arguments.depot, arguments.memory, scratch.as_ref().ok()).await?;
    for (file, fault) in &depot.left_out {
        let depot = arguments.depot.trim_end_matches('/');
        eprintln!("error: {}", printable(&format!("{depot}/{file}: {fault}")));
    }
    let code = if depot.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) };

    let Some(question) = &arguments.question else {
        io::stdout().write_all(printable_lines(&depot.contents()).as_bytes())?;
        return Ok(code);
    };

    let sql = ask::sql_of(question, &depot)?;
    let answers = match &arguments.cluster {
        Some(url) => {
            let scratch = scratch.map_err(|error| Failure::Machine(format!("temporary directory: {error}")))?;
            cluster::ask(url, &mut depot, &sql, arguments.format, &scratch).await?
        }
        None => ask::run(&mut depot, &sql).await?.into_iter().map(|frame| Answer::Embedded(Box::new(frame))).collect(),
    };

    output::write(answers, arguments.format, arguments.output.as_deref()).await?;
    Ok(code)
}
