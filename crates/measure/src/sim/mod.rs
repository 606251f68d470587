//! `plimsoll sim`: scenarios in virtual time, device models from measurements, and the accuracy of those models.
//!
//! **Why.** A scheduler on 192 shards, one of them starved, or on a disk that falls to a quarter of its speed, can be
//! observed in a second, with the same result every time.
//!
//! **How.** [`run`] runs named and users' scenarios on several threads, [`parts`] merges the runs of several machines,
//! [`stats`] combines several seeds, [`report`] writes results for programs, [`surface`] compares a disk model with a
//! measured surface of latencies.
//!
//! **Limits.** A running world cannot be stopped: to stop, a caller abandons it and ends the process.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::load::Stop;
//! use plimsoll_files::scenario::ScenarioFile;
//! use plimsoll_measure::sim::run::{Subject, Task, run_all};
//! let text = "
//! duration: 50ms
//! disks: [{disk: i4i.2xlarge}]
//! jobs: [{name: query, type: randread, shards: all, shard_info: {parallelism: 8}}]
//! ";
//! let scenario = ScenarioFile::parse("mine.yaml", text, ".".as_ref())?.scenario(&[])?;
//! let task = Task { subject: Subject::Own(scenario.into()), changes: Vec::new(), seed: 1 };
//! let finished = run_all(vec![task], 1, &Stop::default(), &mut |_| {});
//! assert!(finished[0].result.as_ref().unwrap().requests > 0);
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

pub(crate) mod form;
pub mod parts;
pub mod report;
pub mod result;
pub mod run;
pub mod scenarios;
pub mod stats;
pub mod surface;
pub mod trace;
mod user;
