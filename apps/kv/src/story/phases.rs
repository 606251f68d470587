//! The phases of a story, each with its loads.
//!
//! # Why
//! The stories differ only in the loads and jobs of their phases; [`super::run`] runs them all.
//!
//! # How it works
//! A [`Phase`] has loads (plans of [`crate::stress`]), a [`Job`] that the servers do during it, and shares that are set
//! when it begins. Phase 0 is the calm one, with which the others are compared.
//!
//! # Limits
//! The rates suit a disk of 250 MB/s and a machine of two processors.
//!
//! # Example
//! `Story::Burst.phases(server, keys, seconds)`

use std::net::SocketAddr;
use std::time::Duration;

use super::record::Way;
use crate::stress::plan::Plan;
use crate::stress::population::Population;

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Story {
    /// Readers, then also writers of other keys
    Burst,
    /// Saturating writes, and few reads
    Inverse,
    /// Queries, then also a full scan, whose shares are turned up while it runs
    Analytics,
    /// Writes beside queries until the tree is many times larger than memory
    Ingest,
    /// Queries, then a second server is filled from the first, is repaired, and the first gives half of its keys away
    Repair,
    /// Uniform reads of a tree that is far away, with nothing cached at first: memory alone, and two caches on the disk
    Cold,
}

/// Work that servers do during a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Scans all keys repeatedly until the phase is over.
    Scan,
    /// Fills the second server from the first. The phase lasts until the job is done; so do those of the jobs below.
    AddNode,
    /// Makes the second server equal to the first, by hashes of ranges.
    Repair,
    /// Deletes keys that the first server no longer owns.
    Cleanup,
}

/// A load of a phase.
#[derive(Clone, Debug)]
pub struct PhaseLoad {
    /// Its name in tables.
    pub name: &'static str,
    /// Its operations, keys and rate.
    pub plan: Plan,
}

/// A part of a story.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Its length, unless it lasts until its job is done.
    pub duration: Duration,
    /// Its clients.
    pub loads: Vec<PhaseLoad>,
    /// The work of the servers.
    pub job: Option<Job>,
    /// Shares that are set when it begins.
    pub shares: &'static [(&'static str, u32)],
}

impl Story {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Story::Burst => "burst",
            Story::Inverse => "inverse",
            Story::Analytics => "analytics",
            Story::Ingest => "ingest",
            Story::Repair => "repair",
            Story::Cold => "cold",
        }
    }

    /// Returns the ways in which the story runs, in their order.
    #[must_use]
    pub fn ways(self) -> [Way; 3] {
        match self {
            Story::Cold => [Way::Memory, Way::Foyer, Way::Plimsoll],
            _ => [Way::Drained, Way::StaticShares, Way::Controllers],
        }
    }

    /// Returns the length of the values that the database is filled with, in bytes.
    #[must_use]
    pub fn value_bytes(self) -> u64 {
        match self {
            Story::Analytics => 8 << 10,
            _ => 1 << 10,
        }
    }

    /// Returns the phases on `server`, whose database has the keys 1 to `keys`. A phase lasts `length`; the second of
    /// `ingest` lasts four times as long, and one whose job ends lasts as long as the job.
    #[must_use]
    pub fn phases(self, server: SocketAddr, keys: u64, length: Duration) -> Vec<Phase> {
        let middle = keys as f64 / 2.0;
        let load = |name, ratio, population, threads, rate_per_s, value_bytes| {
            let plan = Plan {
                ratio,
                population,
                threads,
                rate_per_s,
                duration: None,
                operations: None,
                value_bytes: (value_bytes, value_bytes),
                server,
                hdr_file: None,
                is_json: false,
                seed: 1,
            };
            PhaseLoad { name, plan }
        };

        // The deviation is half of the keys, as cassandra-stress has it in the first of these stories.
        let hot = Population::Gaussian { first: 1, last: keys, mean: middle, deviation: middle };
        let reads = |rate| load("reads", (1.0, 0.0), hot, 16, Some(rate), self.value_bytes());

        // Keys that no load reads, so that a write turns no read into a hit.
        let elsewhere = Population::Sequence { first: keys + 1, last: keys + 100_000 };
        let writes = |threads| load("writes", (0.0, 1.0), elsewhere, threads, None, 16 << 10);

        let phase = |name, loads| Phase { name, duration: length, loads, job: None, shares: &[] };

        let mut phases = match self {
            Story::Burst => vec![phase("alone", vec![reads(1000.0)]), phase("burst", vec![reads(1000.0), writes(32)])],
            Story::Inverse => vec![phase("alone", vec![reads(50.0)]), phase("writes", vec![reads(50.0), writes(64)])],
            Story::Analytics => vec![
                phase("alone", vec![reads(2000.0)]),
                Phase { job: Some(Job::Scan), ..phase("scan", vec![reads(2000.0)]) },
                Phase {
                    job: Some(Job::Scan),
                    shares: &[("analytics", 400)],
                    ..phase("scan, 400 shares", vec![reads(2000.0)])
                },
            ],
            Story::Ingest => {
                let ingest = phase("ingest", vec![reads(200.0), writes(32)]);
                vec![phase("alone", vec![reads(200.0)]), Phase { duration: 4 * length, ..ingest }]
            }
            Story::Repair => {
                let job = |name, job, loads| Phase { job: Some(job), ..phase(name, loads) };
                // The second server lacks the writes made while it is filled; they are in few of the ranges.
                let changes = load("changes", (0.0, 1.0), hot, 1, Some(3.0), self.value_bytes());
                vec![
                    phase("alone", vec![reads(1000.0)]),
                    job("add a server", Job::AddNode, vec![reads(1000.0), changes]),
                    job("repair", Job::Repair, vec![reads(1000.0)]),
                    job("cleanup", Job::Cleanup, vec![reads(1000.0)]),
                ]
            }
            Story::Cold => {
                let anywhere = Population::Uniform { first: 1, last: keys };
                let reads = || vec![load("reads", (1.0, 0.0), anywhere, 32, Some(800.0), self.value_bytes())];
                vec![phase("cold", reads()), phase("warming", reads()), phase("warm", reads())]
            }
        };

        // Each phase draws its own keys: those that the previous phase has read are in the cache.
        for (number, phase) in phases.iter_mut().enumerate() {
            phase.loads.iter_mut().for_each(|load| load.plan.seed = 1 + number as u64);
        }
        phases
    }
}
