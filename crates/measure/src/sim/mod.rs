//! `plimsoll sim`: scenarios on virtual time, device models from measurements, and how good those are.
//!
//! # Why
//! What a scheduler does with 192 shards, a starved one among them, or with a disk that falls to a quarter of its
//! speed, can be seen in a second, and is the same every time.
//!
//! # How it works
//! [`run`] runs named scenarios and users' own on two threads, [`stats`] puts several seeds together, [`report`] writes
//! results for programs, [`surface`] sets a disk model beside a measured surface of latencies.
//!
//! # Limits
//! A world that runs cannot be stopped in its middle: who wants to stop leaves it behind and ends the process.
//!
//! # Example
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
//! let task = Task { subject: Subject::Own(Box::new(scenario)), changes: Vec::new(), seed: 1 };
//! let finished = run_all(vec![task], &Stop::default(), &mut |_| {});
//! assert!(finished[0].result.as_ref().unwrap().requests > 0);
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

pub mod report;
pub mod result;
pub mod run;
pub mod scenarios;
pub mod stats;
pub mod surface;
pub mod trace;
mod user;
