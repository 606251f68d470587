//! Slices of a demo: the file, the model, one run after another, and the search for the knee.

use std::path::PathBuf;

use plimsoll::backend::OpenOptions;
use plimsoll::core::{CostForm, CostModel, DiskConfig, FS_PER_S, FourFigures, MixExponent, Op};
use plimsoll::{Class, Classes, DiskMode, DiskSetup, ShardOptions, Topology};

use super::{BACKGROUND, CLASSES, DemoError, DemoOptions, MAX_WRITE_BYTES, ROUNDS, WindowProbe};
use crate::load::{Control, JobSpec, Pattern, PauseDistribution, Plan, RunResult, Scratch, Target};
use crate::tune::{Observer, TuneReport};

/// The file that the classes work on, where the disk fills it in [`FILL_S`].
const DATA_BYTES: u64 = 512 << 20;
/// At least so much, on any disk.
const DATA_MIN_BYTES: u64 = 32 << 20;
/// How long filling may take, in seconds.
const FILL_S: f64 = 4.0;
/// Queries a second, where the disk can do twenty times as many.
const QUERIES_PER_S: f64 = 2000.0;
/// Length of a query.
const QUERY_BYTES: u32 = 4096;
/// Longest slice under load, in seconds.
const SLICE_MAX_S: f64 = 2.0;
/// Length of a slice while searching, as a part of one under load, and at the most.
const PROBE_PART: f64 = 0.25;
const PROBE_MAX_S: f64 = 0.4;
/// Not counted at the beginning of each slice.
const WARMUP_S: f64 = 0.05;
/// Length of a background request.
const BACKGROUND_BYTES: u32 = 128 << 10;
/// Background requests of each job outstanding.
const BACKGROUND_DEPTH: u32 = 32;
/// A window with this much of the drained throughput is wide enough.
pub(super) const KNEE_PART: f64 = 0.90;
/// Windows tried at the most, each wider than the last by [`PROBE_STEP`].
const PROBES_MAX: i32 = 10;
const PROBE_STEP: f64 = 1.25;
/// Slices that a probe of a window takes at the most.
const SLICES_PER_PROBE: f64 = 4.0;
/// Figures measured in seconds are a moment's: the rates get this much headroom, so that the window (the disk itself) is
/// what limits, and not a model that was measured in a bad moment.
const HEADROOM: f64 = 1.25;

/// How a slice is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Alone,
    Drained,
    Scheduled,
}

/// The file, the model and the classes: everything that the slices share.
pub(super) struct Stage<'a> {
    options: &'a DemoOptions,
    control: &'a Control,
    path: PathBuf,
    /// Removes the file.
    _scratch: Scratch,
    data_bytes: u64,
    model: CostModel,
    mix: MixExponent,
    unloaded_latency_ns: u64,
    window_ns: u64,
    queries_per_s: f64,
    /// Most bytes a second that a slice has written so far.
    write_bytes_per_s: f64,
}

impl<'a> Stage<'a> {
    pub(super) fn set_up(
        options: &'a DemoOptions,
        disk: &TuneReport,
        figures: &FourFigures,
        control: &'a Control,
    ) -> Result<Stage<'a>, DemoError> {
        let rate = |rate: plimsoll::core::Rate| rate.get().unwrap_or(u64::MAX) as f64;
        let data_bytes =
            ((rate(figures.write_bandwidth) * FILL_S) as u64).clamp(DATA_MIN_BYTES, DATA_BYTES) >> 20 << 20;
        let mut scratch = Scratch::new(&options.directory, data_bytes)?;
        let path = scratch.create("plimsoll-demo-data")?;
        scratch.fill(&[(path.clone(), data_bytes)], options.backend, control)?;
        let (read_block, write_block) = (disk.read_block.bytes.max(4096), disk.write_block.bytes.max(4096));
        let model = CostModel::from_figures(&figures.scaled(HEADROOM), CostForm::Knee, read_block, write_block);
        let pair_s = cost_s(&model, Op::Read, BACKGROUND_BYTES) + cost_s(&model, Op::Write, BACKGROUND_BYTES);
        Ok(Stage {
            options,
            control,
            path,
            _scratch: scratch,
            data_bytes,
            mix: MixExponent::LINEAR,
            unloaded_latency_ns: disk.read_latency.as_ref().map_or(0, |latency| latency.p50_ns),
            window_ns: u64::MAX,
            queries_per_s: QUERIES_PER_S.min(rate(figures.read_iops) / 20.0).max(1.0),
            // Reads and writes of the background complete about as often as each other, to begin with.
            write_bytes_per_s: f64::from(BACKGROUND_BYTES) / pair_s.max(1e-9),
            model,
        })
    }

    /// Tries windows, each beside a drained slice, and keeps the first that is wide enough in two probes on the average:
    /// a disk that changes its mind may flatter one.
    pub(super) fn find_knee(&mut self, observer: &mut dyn Observer) -> Result<Vec<WindowProbe>, DemoError> {
        observer.on_phase("finding the knee", f64::from(PROBES_MAX) * SLICES_PER_PROBE * self.probe_s());
        let read_s = cost_s(&self.model, Op::Read, BACKGROUND_BYTES);
        let narrowest_s = 0.6 * read_s.max(cost_s(&self.model, Op::Write, BACKGROUND_BYTES));
        let mut probes = Vec::new();
        for step in 0..PROBES_MAX {
            let wanted_ns = (narrowest_s * PROBE_STEP.powi(step) * 1e9) as u64;
            let mut parts = Vec::new();
            while parts.len() < 2 {
                let is_first = probes.is_empty() && parts.is_empty();
                // In turns first and second, because each slice leaves the disk with something to finish. The first is
                // drained: the mix that all others go by.
                let mut pair = [Way::Drained, Way::Scheduled];
                if !is_first && (probes.len() + parts.len()) % 2 == 1 {
                    pair.reverse();
                }
                let mut rates = [0.0; 2];
                for way in pair {
                    self.window_ns = wanted_ns;
                    let slice = self.slice(way, self.probe_s())?;
                    if is_first && way == Way::Drained {
                        self.mix = mix_of(&slice, &self.model);
                    }
                    rates[usize::from(way == Way::Scheduled)] = slice.bytes_per_s();
                }
                parts.push(rates[1] / rates[0].max(1.0));
                if parts[0] < KNEE_PART {
                    break;
                }
            }
            let part_of_drained = parts.iter().sum::<f64>() / parts.len() as f64;
            probes.push(WindowProbe { window_us: self.window_us(), part_of_drained });
            observer.on_progress(f64::from(step + 1) / f64::from(PROBES_MAX));
            // `slice` has cut the window to what the disk's bound allows: no wider one would be another.
            if part_of_drained >= KNEE_PART || self.window_ns < wanted_ns || self.control.is_stopped() {
                break;
            }
        }
        Ok(probes)
    }

    /// Runs the classes for `seconds`.
    pub(super) fn slice(&mut self, way: Way, seconds: f64) -> Result<RunResult, DemoError> {
        let classes = Classes::new();
        for (name, shares) in CLASSES {
            // A fresh registry takes six different names.
            let _ = classes.add_class(name, None, shares);
        }
        let config = DiskConfig {
            model: self.model.clone(),
            mix: self.mix.clone(),
            window_ns: Some(self.window_ns),
            unloaded_latency_ns: self.unloaded_latency_ns,
            ..DiskConfig::default()
        };
        let mode = if way == Way::Scheduled { DiskMode::Scheduled } else { DiskMode::Drain };
        let topology = Topology::new(1, classes, vec![DiskSetup { mode, ..DiskSetup::new(config) }])?;
        if way == Way::Scheduled {
            self.window_ns = topology.disk(0).map_or(self.window_ns, |disk| disk.window_ns());
        }
        let plan = Plan {
            options: ShardOptions { backend: self.options.backend, ..ShardOptions::default() },
            jobs: self.jobs(way, &topology),
            topology,
            warmup_ns: (WARMUP_S * 1e9) as u64,
            duration_ns: (seconds * 1e9) as u64,
            seed: self.options.seed,
        };
        let before_bytes = self.control.written_bytes();
        let result = crate::load::run(&plan, self.control)?;
        let written_bytes = self.control.written_bytes() - before_bytes;
        self.write_bytes_per_s = self.write_bytes_per_s.max(written_bytes as f64 / (seconds + WARMUP_S));
        Ok(result)
    }

    fn jobs(&self, way: Way, topology: &Topology) -> Vec<JobSpec> {
        let target = |write| {
            let how = OpenOptions { write, direct: true, ..OpenOptions::default() };
            Target { file: topology.file(&self.path, how, 0), offset: 0, len_bytes: self.data_bytes }
        };
        let class = |name: &str| topology.classes().find(name).unwrap_or(Class::DEFAULT);
        let query = JobSpec::closed_loop("query", Pattern::RandRead, QUERY_BYTES, 64, class("query"))
            .at_rate(self.queries_per_s, PauseDistribution::Poisson);
        let mut jobs = vec![query.on_shard(0, target(false))];
        if way == Way::Alone {
            return jobs;
        }
        // Half of what may still be written for each of the two writers, whatever the disk's rate: a job ends once more
        // than its limit were made.
        let left_bytes = MAX_WRITE_BYTES.saturating_sub(self.control.written_bytes());
        let limit = (left_bytes / 2 / u64::from(BACKGROUND_BYTES)).saturating_sub(1);
        for (name, class_name, pattern) in BACKGROUND {
            let mut job = JobSpec::closed_loop(name, pattern, BACKGROUND_BYTES, BACKGROUND_DEPTH, class(class_name));
            if pattern.is_write() {
                job.limit_requests = Some(u32::try_from(limit).unwrap_or(u32::MAX));
            }
            jobs.push(job.on_shard(0, target(pattern.is_write())));
        }
        jobs
    }

    /// How long a slice under load may be so that all that may still come stay below what may be written.
    pub(super) fn slice_s(&self) -> f64 {
        // A quarter spare: later slices may write faster.
        let left_bytes = MAX_WRITE_BYTES.saturating_sub(self.control.written_bytes()) as f64 * 0.75;
        let slices = f64::from(ROUNDS) * 2.0;
        (left_bytes / self.write_bytes_per_s / slices - WARMUP_S).clamp(0.05, SLICE_MAX_S)
    }

    /// The same while searching: half of what may be written is kept for the rounds.
    fn probe_s(&self) -> f64 {
        let left_bytes = MAX_WRITE_BYTES.saturating_sub(self.control.written_bytes()) as f64 * 0.5;
        let slices = f64::from(PROBES_MAX) * SLICES_PER_PROBE;
        let fair_s = left_bytes / self.write_bytes_per_s / slices - WARMUP_S;
        fair_s.max(self.slice_s() * PROBE_PART).clamp(0.05, PROBE_MAX_S)
    }

    /// Device time that the queries ask for in a second, in femtoseconds.
    pub(super) fn query_wanted(&self) -> f64 {
        self.queries_per_s * cost_s(&self.model, Op::Read, QUERY_BYTES) * FS_PER_S as f64
    }

    pub(super) fn mix_exponent(&self) -> f64 {
        self.mix.p()
    }

    pub(super) fn window_us(&self) -> f64 {
        self.window_ns as f64 / 1e3
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.control.written_bytes()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.control.is_stopped()
    }
}

fn cost_s(model: &CostModel, op: Op, len_bytes: u32) -> f64 {
    model.cost(op, len_bytes).as_secs_f64()
}

/// The exponent p at which a drained mix is exactly the capacity: (r/R)^p + (w/W)^p = 1, by bisection.
fn mix_of(drained: &RunResult, model: &CostModel) -> MixExponent {
    let (mut read, mut write) = (0.0, 0.0);
    for job in drained.shards.iter().flat_map(|s| &s.jobs) {
        let per_s = job.iops();
        match BACKGROUND.iter().find(|(name, ..)| *name == job.name) {
            Some((_, _, Pattern::RandWrite)) => write += per_s * cost_s(model, Op::Write, BACKGROUND_BYTES),
            Some(_) => read += per_s * cost_s(model, Op::Read, BACKGROUND_BYTES),
            None => read += per_s * cost_s(model, Op::Read, QUERY_BYTES),
        }
    }
    // The model's rates have headroom; the mix is of the measured ones.
    let (read, write) = (read * HEADROOM, write * HEADROOM);
    let (mut low, mut high) = (0.5f64, 16.0f64);
    // More than one direction alone could do, or nothing to go by: as if they did not disturb each other, or linear.
    if read.min(write) <= 0.0 {
        return MixExponent::LINEAR;
    }
    if read.max(write) >= 1.0 {
        return MixExponent::new(high).unwrap_or(MixExponent::LINEAR);
    }
    for _ in 0..50 {
        let p = 0.5 * (low + high);
        if read.powf(p) + write.powf(p) > 1.0 {
            low = p;
        } else {
            high = p;
        }
    }
    MixExponent::new(0.5 * (low + high)).unwrap_or(MixExponent::LINEAR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{JobResult, ShardResult};
    use plimsoll::core::Rate;

    /// What a disk of 1 GB/s each way did in a second.
    fn mix(read_mb: u64, write_mb: u64) -> f64 {
        let giga = Rate::per_second(1_000_000_000);
        let figures = FourFigures { read_bandwidth: giga, write_bandwidth: giga, ..FourFigures::UNLIMITED };
        let model = CostModel::from_figures(&figures.scaled(HEADROOM), CostForm::Knee, 4096, 4096);
        let job = |name: &str, mb: u64| JobResult {
            name: name.to_owned(),
            requests: mb * 1_000_000 / u64::from(BACKGROUND_BYTES),
            elapsed_ns: 1_000_000_000,
            ..JobResult::default()
        };
        let jobs = vec![job("compaction reads", read_mb), job("repair writes", write_mb)];
        let shard = ShardResult { shard: 0, cpu_ns: 0, elapsed_ns: 1_000_000_000, jobs };
        mix_of(&RunResult { shards: vec![shard], backend: None }, &model).p()
    }

    #[test]
    fn the_exponent_is_that_of_the_mix() {
        assert!((mix(500, 500) - 1.0).abs() < 0.01, "{}", mix(500, 500));
        assert!((mix(707, 707) - 2.0).abs() < 0.02, "{}", mix(707, 707));
        assert!(mix(990, 990) > 15.0, "as good as independent");
        assert_eq!(mix(900, 0), 1.0, "nothing to go by");
    }
}
