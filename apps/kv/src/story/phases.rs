//! What a story consists of: phases, each with its loads.
//!
//! # Why
//! The stories differ in who comes when; all else is the same, and stands once in [`super::run`].
//!
//! # How it works
//! A [`Phase`] has loads (plans of [`crate::stress`]), whether a scan goes over all keys, and shares that are set when it
//! begins. Phase 0 is the calm one, which the others are compared with.
//!
//! # Limits
//! The rates suit a disk of 250 MB/s and a machine of two processors.
//!
//! # Example
//! `Story::Burst.phases(server, keys, seconds)`

use std::net::SocketAddr;
use std::time::Duration;

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
}

/// A load of a phase.
#[derive(Clone, Debug)]
pub struct PhaseLoad {
    /// Its name in tables.
    pub name: &'static str,
    /// What it does.
    pub plan: Plan,
}

/// A part of a story.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Its length.
    pub duration: Duration,
    /// Its clients.
    pub loads: Vec<PhaseLoad>,
    /// Whether a scan goes over all keys, again and again.
    pub has_scan: bool,
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

    /// Returns the phases on `server`, whose database has the keys 1 to `keys`. Each is `length` long; that of `ingest`
    /// four times.
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
        // As cassandra-stress has it in the first of these stories: the deviation is half of the keys.
        let hot = Population::Gaussian { first: 1, last: keys, mean: middle, deviation: middle };
        let reads = |rate| load("reads", (1.0, 0.0), hot, 16, Some(rate), self.value_bytes());
        // Keys that nobody reads: a write makes no read a hit.
        let elsewhere = Population::Sequence { first: keys + 1, last: keys + 100_000 };
        let writes = |threads| load("writes", (0.0, 1.0), elsewhere, threads, None, 16 << 10);
        let phase = |name, loads| Phase { name, duration: length, loads, has_scan: false, shares: &[] };

        let mut phases = match self {
            Story::Burst => vec![phase("alone", vec![reads(1000.0)]), phase("burst", vec![reads(1000.0), writes(32)])],
            Story::Inverse => vec![phase("alone", vec![reads(50.0)]), phase("writes", vec![reads(50.0), writes(64)])],
            Story::Analytics => vec![
                phase("alone", vec![reads(2000.0)]),
                Phase { has_scan: true, ..phase("scan", vec![reads(2000.0)]) },
                Phase {
                    has_scan: true,
                    shares: &[("analytics", 400)],
                    ..phase("scan, 400 shares", vec![reads(2000.0)])
                },
            ],
            Story::Ingest => {
                let ingest = phase("ingest", vec![reads(200.0), writes(32)]);
                vec![phase("alone", vec![reads(200.0)]), Phase { duration: 4 * length, ..ingest }]
            }
        };
        // Keys of their own: what a phase has read would be in the cache of the next.
        for (number, phase) in phases.iter_mut().enumerate() {
            phase.loads.iter_mut().for_each(|load| load.plan.seed = 1 + number as u64);
        }
        phases
    }
}
