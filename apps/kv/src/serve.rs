//! The command `serve`: from flags to a running server, and its clean stop.
//!
//! # Why
//! The server must report its defaults (an unlimited disk, an open port), and stopping it must lose nothing.
//!
//! # How it works
//! Opens the database, listens, reports the address and the mode on stderr, and waits for a signal. Then
//! connections end after the requests they have read, memory is written to files, and the program ends with code 0.
//!
//! # Limits
//! No authentication and no encryption, so the default address is on loopback.
//!
//! # Example
//! `plimsoll-kv serve --dir /var/lib/kv --io-properties io-properties.yaml`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_figures::units::{parse_duration_ns, parse_size_bytes};
use tokio::net::TcpListener;

use crate::command::Service;
use crate::controllers::Controllers;
use crate::database::Database;
use crate::failure::{Failure, tell};
use crate::interrupt::interruption;
use crate::open_files;
use crate::options::DatabaseOptions;
use crate::resp::Limits;
use crate::server::serve_connections;
use crate::settings::MEMORY_MIN_BYTES;

/// Flags of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArguments {
    /// The directory of the database; made if missing
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// A directory for the commit log alone, such as one on another disk
    #[arg(long, value_name = "DIR")]
    pub commitlog_dir: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6380")]
    pub listen: SocketAddr,
    /// The disk as `plimsoll tune -o FILE` measured it; without it nothing is scheduled
    #[arg(long, value_name = "FILE")]
    pub io_properties: Option<PathBuf>,
    /// Device time kept in the disk at most: longer for throughput, shorter for latency; without it the library's
    #[arg(long, value_name = "TIME", value_parser = latency_goal)]
    pub latency_goal: Option<Duration>,
    /// Memory for caches, tables and requests
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    pub memory: u64,
    /// Longest value
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = value_len)]
    pub max_value: usize,
    /// Most connections at a time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// Record the stations of each request in a new file, which `plimsoll trace` reads
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Leave the shares as they are: no controllers for flushes and compactions
    #[arg(long)]
    pub static_shares: bool,
}

/// Parses a memory budget.
///
/// # Errors
/// `text` is no size, or too little.
pub fn memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size_bytes(text).map_err(|error| error.to_string())?;
    if bytes < MEMORY_MIN_BYTES {
        return Err(format!("at least {} MiB", MEMORY_MIN_BYTES >> 20));
    }
    Ok(bytes)
}

/// Parses a latency goal for the disk.
///
/// # Errors
/// `text` is no duration, or is outside of 10 us to 1 s.
pub fn latency_goal(text: &str) -> Result<Duration, String> {
    let ns = parse_duration_ns(text).map_err(|error| error.to_string())?;
    let goal = Duration::from_nanos(ns);
    let is_goal = (Duration::from_micros(10)..=Duration::from_secs(1)).contains(&goal);
    if is_goal { Ok(goal) } else { Err("10us to 1s".to_owned()) }
}

/// Largest value of `--max-value`: 512 MiB, as in Redis.
const VALUE_MAX_BYTES: u64 = 512 << 20;
/// Longest key in bytes.
const KEY_MAX_BYTES: usize = 16 << 10;

fn value_len(text: &str) -> Result<usize, String> {
    let bytes = parse_size_bytes(text).map_err(|error| error.to_string())?;
    if !(1..=VALUE_MAX_BYTES).contains(&bytes) {
        return Err("1 B to 512 MiB".to_owned());
    }
    Ok(bytes as usize)
}

impl ServeArguments {
    fn database(&self) -> DatabaseOptions {
        DatabaseOptions {
            directory: self.dir.clone(),
            commitlog_directory: self.commitlog_dir.clone(),
            io_properties: self.io_properties.clone(),
            latency_goal: self.latency_goal,
            is_drained: false,
            memory_bytes: self.memory,
            trace: self.trace.clone(),
        }
    }
}

/// Serves until SIGINT, SIGTERM or SIGHUP.
///
/// # Errors
/// See [`Failure`].
pub async fn serve(arguments: &ServeArguments) -> Result<(), Failure> {
    let (needed, limit) = (open_files::needed(arguments.max_connections), open_files::raise_limit());
    if limit < needed {
        return Err(Failure::Machine(format!(
            "--max-connections {} needs up to {needed} open files, and the limit is {limit}: raise it (ulimit -Hn), or allow \
             fewer connections",
            arguments.max_connections
        )));
    }

    let mut stopped = interruption("stopping: connections end, then memory is written to files")?;

    let what = format!("cannot listen on {} (another --listen?)", arguments.listen);
    let listener = TcpListener::bind(arguments.listen).await.map_err(|error| Failure::machine(&what, error))?;
    let address = listener.local_addr().map_err(|error| Failure::machine(&what, error))?;

    let database = Database::open(&arguments.database()).await?;
    say(arguments, address, &database);

    let limits = Limits { key_max_bytes: KEY_MAX_BYTES, value_max_bytes: arguments.max_value };
    let service = Arc::new(Service::new(database, limits, arguments.max_connections as usize));

    let serving = tokio::spawn(serve_connections(listener, Arc::clone(&service), stopped.clone()));
    let controlling = (!arguments.static_shares).then(|| {
        let (service, stopped) = (Arc::clone(&service), stopped.clone());
        tokio::spawn(async move { Controllers::new(&service.database).run(&service.database, stopped).await })
    });

    // The task that waits for signals does not end before the process.
    let _ = stopped.wait_for(|is_over| *is_over).await;

    serving.await.map_err(|error| Failure::machine("the server failed", error))?;
    if let Some(controlling) = controlling {
        controlling.await.map_err(|error| Failure::machine("the controllers failed", error))?;
    }

    let service = Arc::into_inner(service)
        .ok_or_else(|| Failure::Machine("a connection did not end; what was acknowledged is in the log".to_owned()))?;
    service.database.close().await
}

/// Reports the address, the lack of a disk model, and the control socket on stderr.
fn say(arguments: &ServeArguments, address: SocketAddr, database: &Database) {
    tell(format_args!("serving {} on {address} (PID {})", arguments.dir.display(), std::process::id()));
    if arguments.io_properties.is_none() {
        tell(format_args!(
            "the disk is unlimited: nothing is scheduled. `plimsoll tune {} -o io-properties.yaml` writes the file for \
             --io-properties",
            arguments.dir.display()
        ));
    }
    match database.engine().control_socket() {
        Ok(_) => tell(format_args!("`plimsoll attach {}` shows and changes its classes", std::process::id())),
        Err(reason) => tell(format_args!("no `plimsoll attach`: {reason}")),
    }
    if !address.ip().is_loopback() {
        tell(format_args!(
            "{address} is not loopback, and there is no authentication: everyone who reaches it may write"
        ));
    }
}
