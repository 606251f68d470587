//! The stage of a demo: the file, the scheduled disk, and one run after another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::SimWorld;
use plimsoll::core::{CostModel, Disk, DiskConfig, FS_PER_S, Op, Rate};
use plimsoll::{Class, Classes, DiskMode, DiskSetup, ShardOptions, SharedFile, Topology};
use plimsoll_files::disk::DiskModel;

use super::{ALONE_S, BACKGROUND, CLASSES, DemoError, DemoOptions, MAX_WRITE_BYTES, ROUNDS};
use crate::load::{
    Control, JobSpec, Pattern, PauseDistribution, Plan, RunResult, Scratch, Target, fill_simulated, run, run_simulated,
};

const FILE: &str = "plimsoll-demo-data";
/// Largest length of the file in bytes; used if the disk can fill it in [`FILL_S`].
const DATA_BYTES: u64 = 512 << 20;
const DATA_MIN_BYTES: u64 = 32 << 20;
const FILL_S: f64 = 4.0;
/// Most queries a second; used if the disk can do twenty times as many reads.
const QUERIES_PER_S: f64 = 2000.0;
const QUERY_BYTES: u32 = 4096;
/// Longest slice under load, in seconds.
const SLICE_MAX_S: f64 = 2.0;
const SLICE_MIN_S: f64 = 0.05;
/// Uncounted beginning of each slice, in seconds, in which requests of the slice before complete in the disk.
const WARMUP_S: f64 = 0.1;
/// Length of the slice in which the closed loop settles, as a multiple of a slice under load.
const SETTLE_SLICES: f64 = 6.0;
/// Part of the remaining write bound that slices are planned for, because later ones may write faster.
const PLANNED_PART: f64 = 0.9;
const BACKGROUND_BYTES: u32 = 128 << 10;
/// Outstanding requests of each background job.
const BACKGROUND_DEPTH: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Alone,
    Drained,
    Scheduled,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::Alone, Way::Drained, Way::Scheduled];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Way::Alone => "alone",
            Way::Drained => "drained",
            Way::Scheduled => "scheduled",
        }
    }
}

pub(super) enum Ground {
    /// On a disk of this machine; dropping this removes the file.
    Machine {
        path: PathBuf,
        _scratch: Scratch,
    },
    Simulated(SimWorld),
}

impl Ground {
    fn path(&self) -> &Path {
        match self {
            Ground::Machine { path, .. } => path,
            Ground::Simulated(_) => Path::new(FILE),
        }
    }
}

/// The file, the disk and the classes that all slices share.
pub(super) struct Stage<'a> {
    options: &'a DemoOptions,
    control: &'a Control,
    ground: Ground,
    data_bytes: u64,
    model: CostModel,
    /// One topology for each way, used in all its slices: each slice starts from the state that the closed loop has
    /// learnt.
    topologies: [Topology; 3],
    files: [[Arc<SharedFile>; 2]; 3],
    queries_per_s: f64,
    /// Most bytes a second that a slice under load has written so far.
    write_bytes_per_s: f64,
    /// Slices under load still to run, the settling ones included.
    slices_left: f64,
}

impl<'a> Stage<'a> {
    /// Creates the file on the disk that holds the options' directory, or on the simulated disk of `world`.
    pub(super) fn set_up(
        options: &'a DemoOptions,
        disk: &DiskModel,
        world: Option<&SimWorld>,
        control: &'a Control,
    ) -> Result<Stage<'a>, DemoError> {
        let rate = |rate: Rate| rate.get().unwrap_or(u64::MAX) as f64;
        let data_bytes =
            ((rate(disk.figures.write_bandwidth) * FILL_S) as u64).clamp(DATA_MIN_BYTES, DATA_BYTES) >> 20 << 20;

        let ground = match world {
            Some(world) => {
                fill_simulated(Path::new(FILE), data_bytes, world, control)?;
                Ground::Simulated(world.clone())
            }
            None => {
                let mut scratch = Scratch::new(&options.directory, data_bytes)?;
                let path = scratch.create(FILE)?;
                scratch.fill(&[(path.clone(), data_bytes)], options.backend, control)?;
                Ground::Machine { path, _scratch: scratch }
            }
        };

        let config = disk.config();
        let model = config.model.clone();
        let topology = |way| topology(way, config.clone());
        let [alone, drained, scheduled] = Way::ALL.map(topology);
        let topologies = [alone?, drained?, scheduled?];

        let files = [0, 1, 2].map(|at: usize| {
            [false, true].map(|write| {
                let how = OpenOptions { write, direct: true, ..OpenOptions::default() };
                topologies[at].file(ground.path(), how, 0)
            })
        });

        let pair_s = cost_s(&model, Op::Read, BACKGROUND_BYTES) + cost_s(&model, Op::Write, BACKGROUND_BYTES);
        Ok(Stage {
            options,
            control,
            ground,
            data_bytes,
            topologies,
            files,
            queries_per_s: QUERIES_PER_S.min(rate(disk.figures.read_iops) / 20.0).max(1.0),
            // Initial guess: background reads and writes complete equally often.
            write_bytes_per_s: f64::from(BACKGROUND_BYTES) / pair_s.max(1e-9),
            slices_left: f64::from(ROUNDS) * 2.0 + SETTLE_SLICES,
            model,
        })
    }

    /// Runs a scheduled slice that does not count, so that the closed loop finds its window.
    pub(super) fn settle(&mut self) -> Result<(), DemoError> {
        let seconds = self.loaded_s() * SETTLE_SLICES;
        self.run(Way::Scheduled, seconds)?;
        self.slices_left -= SETTLE_SLICES;
        Ok(())
    }

    pub(super) fn slice(&mut self, way: Way) -> Result<RunResult, DemoError> {
        if way == Way::Alone {
            return self.run(way, ALONE_S);
        }
        let result = self.run(way, self.loaded_s())?;
        self.slices_left -= 1.0;
        Ok(result)
    }

    fn run(&mut self, way: Way, seconds: f64) -> Result<RunResult, DemoError> {
        let plan = Plan {
            options: ShardOptions { backend: self.options.backend, ..ShardOptions::default() },
            jobs: self.jobs(way),
            topology: self.topologies[way as usize].clone(),
            warmup_ns: (WARMUP_S * 1e9) as u64,
            duration_ns: (seconds * 1e9) as u64,
            seed: self.options.seed,
        };

        let before_bytes = self.control.traffic.written_bytes();
        let result = match &self.ground {
            Ground::Machine { .. } => run(&plan, self.control)?,
            Ground::Simulated(world) => run_simulated(&plan, world, self.control)?,
        };

        let written_bytes = self.control.traffic.written_bytes() - before_bytes;
        self.write_bytes_per_s = self.write_bytes_per_s.max(written_bytes as f64 / (seconds + WARMUP_S));
        Ok(result)
    }

    fn jobs(&self, way: Way) -> Vec<JobSpec> {
        let classes = self.topologies[way as usize].classes();
        let class = |name: &str| classes.find(name).unwrap_or(Class::DEFAULT);
        let target = |write: bool| {
            let file = self.files[way as usize][usize::from(write)].clone();
            Target { file, offset: 0, len_bytes: self.data_bytes }
        };

        let query = JobSpec::closed_loop("query", Pattern::RandRead, QUERY_BYTES, 64, class("query"))
            .at_rate(self.queries_per_s, PauseDistribution::Poisson);
        let mut jobs = vec![query.on_shard(0, target(false))];

        if way != Way::Alone {
            jobs.extend(BACKGROUND.iter().map(|(name, class_name, pattern)| {
                let class = class(class_name);
                JobSpec::closed_loop(name, *pattern, BACKGROUND_BYTES, BACKGROUND_DEPTH, class)
                    .on_shard(0, target(pattern.is_write()))
            }));
        }
        jobs
    }

    /// Returns the length of a slice under load with which all remaining slices stay within the write bound.
    fn loaded_s(&self) -> f64 {
        let left_bytes = MAX_WRITE_BYTES.saturating_sub(self.control.traffic.written_bytes()) as f64 * PLANNED_PART;
        let fair_s = left_bytes / self.write_bytes_per_s / self.slices_left.max(1.0);
        (fair_s - WARMUP_S).clamp(SLICE_MIN_S, SLICE_MAX_S)
    }

    /// Returns the approximate length of the remaining slices, in seconds.
    pub(super) fn expected_s(&self) -> f64 {
        f64::from(ROUNDS) * (ALONE_S + WARMUP_S) + self.slices_left * (self.loaded_s() + WARMUP_S)
    }

    /// Returns the device time that the queries ask for in a second, in femtoseconds.
    pub(super) fn query_wanted_fs(&self) -> f64 {
        self.queries_per_s * cost_s(&self.model, Op::Read, QUERY_BYTES) * FS_PER_S as f64
    }

    pub(super) fn disk(&self) -> Option<&Arc<Disk>> {
        self.topologies[Way::Scheduled as usize].disk(0)
    }
}

/// Returns a topology of one shard with the classes, and the disk with its default scheduling.
fn topology(way: Way, config: DiskConfig) -> Result<Topology, DemoError> {
    let classes = Classes::new();
    for (name, shares) in CLASSES {
        // A new registry always accepts six different names.
        let _ = classes.add_class(name, None, shares);
    }
    let mode = if way == Way::Scheduled { DiskMode::Scheduled } else { DiskMode::Drain };
    Ok(Topology::new(1, classes, vec![DiskSetup { mode, ..DiskSetup::new(config) }])?)
}

fn cost_s(model: &CostModel, op: Op, len_bytes: u32) -> f64 {
    model.cost(op, len_bytes).as_secs_f64()
}
