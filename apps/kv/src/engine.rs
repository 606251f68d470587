//! The scheduler of the disk: the classes, the disk's model, a shard, and the control socket.
//!
//! # Why
//! A second database on the same disk must be scheduled with the first, by the same shares.
//!
//! # How it works
//! [`Engine::start`] creates the topology (from io-properties, or an unlimited disk) with the classes of
//! [`crate::classes`], starts a shard, listens for `plimsoll attach`, and begins a trace if the options name a file.
//! Databases share the engine; closing the last one stops it.
//!
//! # Limits
//! One shard.
//!
//! # Example
//! `Engine::start(&options)?.store(directory).await?`

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::control::Server;
use plimsoll::core::LatencyGoal;
use plimsoll::properties::parse_from_file;
use plimsoll::trace::{TraceConfig, file_writer};
use plimsoll::{Classes, DiskMode, DiskSetup, Runtime, ShardOptions, Topology};
use plimsoll_store::ScheduledStore;

use crate::classes::ClassTable;
use crate::failure::{Failure, tell};
use crate::options::DatabaseOptions;

/// Longest wait for the shard to stop: what a disk that hangs has in flight never ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The scheduler of the disks of one or several databases.
pub struct Engine {
    /// The topology, through which shares and disk modes can be changed.
    pub topology: Topology,
    /// The runtime of the shard.
    pub runtime: Runtime,
    /// The classes.
    pub classes: ClassTable,
    control: Result<Server, String>,
    trace: Option<PathBuf>,
}

impl Engine {
    /// Starts the engine.
    ///
    /// # Errors
    /// [`Failure::Input`] for a bad io-properties file, or a trace file that exists; [`Failure::Machine`] for errors of
    /// the system.
    pub fn start(options: &DatabaseOptions) -> Result<Engine, Failure> {
        let (topology, classes) = topology(options)?;
        let shards = ShardOptions { pin: false, ..ShardOptions::default() };
        let runtime = Runtime::start(&topology, &shards)
            .map_err(|error| Failure::machine("cannot start the scheduler's shard", error))?;
        // After all that may fail: the trace of nothing would refuse the next attempt.
        if let Some(path) = &options.trace {
            record(&topology, path)?;
        }
        let control = Server::start(&topology, "plimsoll-kv").map_err(|error| error.to_string());

        Ok(Engine { topology, runtime, classes, control, trace: options.trace.clone() })
    }

    /// Opens the store in `directory`.
    ///
    /// # Errors
    /// The system's error.
    pub async fn store(&self, directory: &Path) -> Result<ScheduledStore, Failure> {
        let store = ScheduledStore::open(self.runtime.any_shard(), directory).await;
        store.map_err(|error| Failure::machine("cannot open the store", error))
    }

    /// Returns the control socket, or the reason why there is none.
    pub fn control_socket(&self) -> Result<&Path, &str> {
        self.control.as_ref().map(Server::path).map_err(String::as_str)
    }

    /// Stops the shard and ends the trace.
    ///
    /// # Errors
    /// The shard failed earlier, or does not stop within 10 s, or the trace is incomplete.
    pub async fn stop(self) -> Result<(), Failure> {
        drop(self.control);
        let stopped = self.runtime.shutdown_within(STOP_TIMEOUT).await;
        stopped.map_err(|error| Failure::machine("the scheduler's shard failed", error))?;

        let Some(path) = self.trace else { return Ok(()) };
        // `plimsoll attach` may have ended the trace, and reported it there.
        let Some(summary) = self.topology.trace().stop() else { return Ok(()) };

        let (path, events) = (path.display(), summary.events);
        if let Some(error) = summary.error {
            return Err(Failure::machine(
                format_args!("cannot write {path}, which has the first {events} events"),
                error,
            ));
        }
        tell(format_args!("{path}: {events} events recorded, {} dropped", summary.dropped_events));
        Ok(())
    }
}

fn topology(options: &DatabaseOptions) -> Result<(Topology, ClassTable), Failure> {
    let registry = Classes::new();
    let classes = ClassTable::register(&registry).map_err(|error| Failure::machine("cannot make classes", error))?;

    let mut disks = match &options.io_properties {
        None => vec![DiskSetup::unlimited()],
        Some(path) => {
            let read = parse_from_file(path).map_err(|error| Failure::Input(error.to_string()))?;
            read.disks.iter().map(DiskSetup::from).collect()
        }
    };
    if let Some(goal) = options.latency_goal {
        let goal = LatencyGoal::Ns(goal.as_nanos() as u64);
        disks.iter_mut().for_each(|disk| disk.config.latency_goal = goal);
    }

    let topology =
        Topology::new(1, registry, disks).map_err(|error| Failure::machine("cannot make a topology", error))?;
    if options.is_drained {
        for disk in 0..topology.disks() {
            topology.set_mode(disk, DiskMode::Drain);
        }
    }
    Ok((topology, classes))
}

/// Begins a trace in the file `path`, which must not exist. If that fails, leaves no file.
fn record(topology: &Topology, path: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Input(format!("cannot record {}: {error}", path.display()));
    let file = File::create_new(path).map_err(|error| failed(&error))?;
    let begun = file_writer(file)
        .map_err(|error| failed(&error))
        .and_then(|writer| topology.trace().start(writer, TraceConfig::default()).map_err(|error| failed(&error)));
    if begun.is_err() {
        // What cannot be removed is refused by name at the next attempt.
        let _ = std::fs::remove_file(path);
    }
    begun
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    /// The next attempt, which names the same file, would have been refused.
    #[test]
    fn a_trace_that_cannot_begin_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["first.plt", "second.plt"].map(|name| directory.path().join(name));
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        record(&topology, &first).unwrap();
        // A topology has one trace at a time.
        assert!(matches!(record(&topology, &second), Err(Failure::Input(_))));
        assert!(first.exists() && !second.exists());
        assert!(topology.trace().stop().is_some());
    }
}
