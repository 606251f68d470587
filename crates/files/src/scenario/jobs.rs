//! Reads the jobs of a scenario: io_tester's, unchanged, with open loops and recordings beside them.
//!
//! **Why.** A job file that was run on a disk can be run on a simulated one, for comparison.
//!
//! **How.** Each job of io_tester gets its own part of its disk on every shard, instead of files; the parts follow one
//! another (from the beginning again if the disk is too small). Its `rps` is for each fiber, and at most `parallelism`
//! requests (batches) are outstanding. An entry with `open:` sends by the clock regardless of completions; one with
//! `replay:` sends the recorded requests.
//!
//! **Limits.** `dsync`, `vectorized` and `extent_allocation_size_hint` have no effect here. The fibers of a job with
//! `rps` do not tick apart: their requests are spread evenly.
//!
//! **Example.** `{name: q, class: query, open: {rate: 5000, spacing: poisson}}`.

use std::path::Path;

use plimsoll_core::Op;
use plimsoll_figures::units::{format_bytes_binary, format_duration_ns, parse_count, parse_size_bytes, quoted};
use plimsoll_sim::workload::{JobSpec, Load, Pattern, Region, ShardSet, SizeDist, Spacing};
use plimsoll_sim::world::{ClassSpec, MAX_REQUESTS_PER_S, WorldSpec};

use super::super::csv;
use super::super::error::{Code, ConfigError, Diagnostic};
use super::super::fields::{Field, Fields, Schema};
use super::super::job_reader::{Dialect, SIMULATED_JOB, read_entries};
use super::super::jobs::{self, Job, JobClass, JobFile, JobKind, PauseDistribution};
use super::super::sched_groups::SchedGroups;
use super::changes::{class_name, read_disk_number};

const OWN_JOB: Schema = Schema::of(
    "a job with `open` or `replay`",
    &["name", "class", "shards", "disk", "op", "pattern", "size", "region", "open", "replay", "start", "stop", "limit"],
);

const OPEN: Schema = Schema::of("an open loop", &["rate", "spacing", "batch", "max_outstanding"]);

const REGION: Schema = Schema::of("a region", &["offset", "length", "stride"]);

/// Region of appending jobs, and length of a `region:` without `length`: 1 GiB.
const REGION_BYTES: u64 = 1 << 30;

/// Most requests of a job; a run with more would take hours of real time.
const MAX_REQUESTS: f64 = 1e10;
/// Requests per second that no disk with an arm exceeds.
const HDD_IOPS: f64 = 1e3;

/// Converts entries to jobs of the world.
pub(super) struct Reader<'a> {
    pub(super) groups: &'a SchedGroups,
    pub(super) world: &'a mut WorldSpec,
    pub(super) warnings: &'a mut Vec<Diagnostic>,
    pub(super) base: &'a Path,
    /// The first free byte of each disk.
    pub(super) next_offset_bytes: Vec<u64>,
}

impl Reader<'_> {
    /// Reads a list of jobs; a world may have several lists.
    pub(super) fn read(&mut self, list: &Field<'_>) -> Result<(), ConfigError> {
        self.next_offset_bytes.resize(self.world.disks.len(), 0);
        let (own, foreign): (Vec<Field<'_>>, Vec<Field<'_>>) =
            list.list()?.into_iter().partition(|entry| entry.has_key("open") || entry.has_key("replay"));
        let (jobs, warnings) = read_entries(&foreign, self.groups, Dialect::Simulated)?;

        self.warnings.extend(warnings);
        let file = JobFile { jobs, warnings: Vec::new(), source: list.source().clone() };
        file.validate(u32::try_from(self.world.shards.len()).unwrap_or(u32::MAX))?;

        for (job, entry) in file.jobs.iter().zip(&foreign) {
            if let (JobClass::Own { shares }, false) = (&job.class, matches!(job.kind, JobKind::Cpu { .. })) {
                self.add_class(&job.name, *shares, entry)?;
            }
        }
        for (job, entry) in file.jobs.iter().zip(&foreign) {
            let fields = Fields::read(entry, &SIMULATED_JOB)?;
            let spec = self.io_tester_job(job, &fields)?;
            self.add_job(spec, entry)?;
        }
        for entry in &own {
            let spec = self.own_job(entry)?;
            self.add_job(spec, entry)?;
        }
        Ok(())
    }

    fn add_class(&mut self, name: &str, shares: u32, entry: &Field<'_>) -> Result<(), ConfigError> {
        if self.world.classes.iter().any(|class| class.name == name) {
            let error = entry.error(Code::DuplicateName, format!("there is already a class called {}", quoted(name)));
            return Err(error.with_help("add `class:` with this name to join it, or rename the job"));
        }
        self.world.classes.push(ClassSpec::new(name, shares));
        Ok(())
    }

    /// Adds a job. Refuses a duplicate name, and a job if the model admits none of its requests.
    fn add_job(&mut self, spec: JobSpec, entry: &Field<'_>) -> Result<(), ConfigError> {
        if self.world.jobs.iter().any(|job| job.name == spec.name) {
            let error = entry.error(Code::DuplicateName, format!("two jobs are called {}", quoted(&spec.name)));
            return Err(error.with_help("give every job a name of its own"));
        }

        let largest_bytes = match &spec.load {
            Load::Replay(arrivals) => arrivals.iter().map(|arrival| arrival.len_bytes).max().unwrap_or(0),
            Load::Cpu { .. } => 0,
            _ => spec.sizes.largest_bytes(),
        };
        if let Some(disk) = self.world.disks.get(spec.disk)
            && !matches!(spec.load, Load::Cpu { .. })
        {
            let cost_ns = disk.config.model.cost(spec.op, largest_bytes).as_ns_ceil();
            if cost_ns > self.world.duration_ns {
                let (cost, duration) = (format_duration_ns(cost_ns), format_duration_ns(self.world.duration_ns));
                let message = format!(
                    "the model of disk {} admits nothing: one request of {largest_bytes} bytes takes {cost} of \
                     device time, and the run lasts {duration}",
                    spec.disk
                );
                let help = "check the figures of the disk (are they per second?), or lengthen the run";
                return Err(entry.error(Code::OutOfRange, message).with_help(help));
            }
        }

        let requests = self.expected_requests(&spec);
        if requests > MAX_REQUESTS {
            let message =
                format!("job {} would not end: about {requests:.0e} requests in this run", quoted(&spec.name));
            let help =
                "a run simulates some million requests a second: shorten `duration`, lower rates, or set `limit`";
            return Err(entry.error(Code::OutOfRange, message).with_help(help));
        }
        self.world.jobs.push(spec);
        Ok(())
    }

    /// Returns an estimate of the most requests (or slices) that a job could make.
    fn expected_requests(&self, job: &JobSpec) -> f64 {
        let world = &self.world;
        let end_ns = world.warmup_ns.saturating_add(world.duration_ns);
        let duration_s = end_ns as f64 / 1e9;
        let shards = job.shards.numbers(world.shards.len()).len() as f64;
        let each_shard_per_s = match job.load {
            Load::Replay(_) => return 0.0,
            Load::Open { requests_per_s, .. } => requests_per_s,
            Load::Cpu { execution_ns, .. } => 1e9 / execution_ns.max(1) as f64,
            Load::Closed { parallelism, think_ns, think_after_ns, .. } => {
                let device = world.disks.get(job.disk).map(|disk| &disk.device);
                let rate = device.map_or(0.0, |device| match (&device.hdd, job.op) {
                    (Some(_), _) => HDD_IOPS,
                    (None, Op::Read) => device.rates.read_iops * f64::from(device.raid0.members),
                    (None, _) => device.rates.write_iops * f64::from(device.raid0.members),
                });
                let pause_per_s = if think_ns > 0 && think_after_ns == 0 {
                    f64::from(parallelism) * 1e9 / think_ns as f64
                } else {
                    f64::INFINITY
                };
                (rate / shards.max(1.0)).min(pause_per_s)
            }
        };

        let limit = job.limit_requests.map_or(f64::INFINITY, |limit| limit as f64);
        (each_shard_per_s * duration_s).min(limit) * shards
    }

    fn io_tester_job(&mut self, job: &Job, fields: &Fields<'_>) -> Result<JobSpec, ConfigError> {
        let disk = match job.kind {
            JobKind::Cpu { .. } => 0,
            _ => self.disk_of(fields)?,
        };

        let class = match &job.class {
            JobClass::Own { .. } => job.name.clone(),
            JobClass::Joined(class) => class.clone(),
        };

        let (op, pattern) = match job.kind {
            JobKind::SeqRead => (Op::Read, Pattern::Sequential),
            JobKind::Overwrite => (Op::Write, Pattern::Sequential),
            JobKind::RandWrite => (Op::Write, Pattern::Random),
            JobKind::Append => (Op::Write, Pattern::Append),
            // Kinds that a simulated job cannot have were refused by the job reader.
            _ => (Op::Read, Pattern::Random),
        };
        Ok(JobSpec {
            name: job.name.clone(),
            class,
            disk,
            shards: match &job.shards {
                jobs::ShardSet::All => ShardSet::All,
                jobs::ShardSet::List(list) => ShardSet::List(list.clone()),
            },
            op,
            pattern,
            sizes: SizeDist::Fixed(job.request_bytes),
            region: self.region_of(job, disk),
            load: load_of(job),
            start_ns: start(fields)?,
            stop_ns: stop(fields)?,
            // io_tester ends a job after *more* requests than the limit.
            limit_requests: job.limit_requests.map(|limit| u64::from(limit) + 1),
        })
    }

    fn disk_of(&self, fields: &Fields<'_>) -> Result<usize, ConfigError> {
        match fields.get("disk") {
            Some(field) => read_disk_number(&field, self.world),
            None if self.world.disks.is_empty() => {
                Err(fields
                    .missing("disk", "this scenario has no disk: add `disks: [{disk: i4i.2xlarge}]`, for example"))
            }
            None => Ok(0),
        }
    }

    /// Returns the region of a job, with a part for each shard.
    fn region_of(&mut self, job: &Job, disk: usize) -> Region {
        let shards = self.world.shards.len() as u64;
        let bytes = match job.kind {
            JobKind::Append => REGION_BYTES,
            _ => job.bytes_per_shard(u32::try_from(shards).unwrap_or(u32::MAX)),
        };
        let all_bytes = bytes.saturating_mul(shards);
        let capacity_bytes = self.world.disks.get(disk).map_or(u64::MAX, |disk| disk.device.capacity_bytes);
        let mut region = Region { offset_bytes: 0, len_bytes: bytes, shard_stride_bytes: bytes };

        if let Some(next) = self.next_offset_bytes.get_mut(disk) {
            if next.saturating_add(all_bytes) > capacity_bytes {
                *next = 0;
            }
            region.offset_bytes = *next;
            *next += all_bytes.min(capacity_bytes);
        }

        if all_bytes > capacity_bytes && job.kind != JobKind::Append {
            region.shard_stride_bytes = 0;
            region.len_bytes = bytes.min(capacity_bytes);
        }
        region
    }

    fn own_job(&mut self, entry: &Field<'_>) -> Result<JobSpec, ConfigError> {
        let fields = Fields::read(entry, &OWN_JOB)?;
        let name = fields.required("name", "give the job a name; results are listed under it")?.string()?;
        let load = match (fields.get("open"), fields.get("replay")) {
            (Some(_), Some(replay)) => {
                let error = replay.error(Code::Ignored, "`open` and `replay` in one job");
                return Err(error.with_help("write two jobs"));
            }
            (Some(open), None) => read_open(&open)?,
            (None, Some(replay)) => Load::Replay(csv::arrivals_from_file(&self.base.join(replay.text()?))?),
            (None, None) => return Err(fields.missing("open", "write `open:` or `replay:`")),
        };

        let op = fields.or("op", Op::Read, |field| {
            csv::read_op(field.text()?).ok_or_else(|| field.not_one_of("an operation", &Op::ALL.map(Op::name)))
        })?;
        let patterns = [("random", Pattern::Random), ("sequential", Pattern::Sequential), ("append", Pattern::Append)];
        let pattern = fields.or("pattern", Pattern::Random, |field| field.one_of("a pattern", &patterns))?;

        let disk = self.disk_of(&fields)?;
        let class_field = fields.required("class", "name one of `classes:`, or the class of another job")?;
        Ok(JobSpec {
            name,
            class: class_name(&class_field, self.world)?,
            disk,
            shards: fields.or("shards", ShardSet::All, |field| self.read_shards(field))?,
            op,
            pattern,
            sizes: fields.or("size", SizeDist::Fixed(4096), read_sizes)?,
            region: fields.or("region", JobSpec::default().region, |field| self.read_region(field, disk))?,
            load,
            start_ns: start(&fields)?,
            stop_ns: stop(&fields)?,
            limit_requests: fields.optional("limit", |field| field.figure(parse_count, 1..=u64::MAX, "requests"))?,
        })
    }

    /// Reads a region, which must lie on the disk for the first shard at least.
    fn read_region(&self, field: &Field<'_>, disk: usize) -> Result<Region, ConfigError> {
        let region = read_region(field)?;
        let capacity_bytes = self.world.disks.get(disk).map_or(u64::MAX, |disk| disk.device.capacity_bytes);
        if region.offset_bytes.saturating_add(region.len_bytes) > capacity_bytes {
            let capacity = format_bytes_binary(capacity_bytes);
            let error = field.error(Code::OutOfRange, format!("the region ends behind the disk, which has {capacity}"));
            return Err(error.with_help("lower `offset` or `length`"));
        }
        Ok(region)
    }

    fn read_shards(&self, field: &Field<'_>) -> Result<ShardSet, ConfigError> {
        if field.is_scalar() && field.text()? == "all" {
            return Ok(ShardSet::All);
        }
        let last = u32::try_from(self.world.shards.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let ids: Vec<u32> = field.list()?.iter().map(|item| item.count(0..=last)).collect::<Result<_, _>>()?;
        Ok(ShardSet::List(ids))
    }
}

/// Reads `never`, or a time.
fn start(fields: &Fields<'_>) -> Result<Option<u64>, ConfigError> {
    fields.or("start", Some(0), |field| match field.is_scalar() && field.text()? == "never" {
        true => Ok(None),
        false => field.time_ns(0).map(Some),
    })
}

/// Reads the end of a job, which must be after its start.
fn stop(fields: &Fields<'_>) -> Result<Option<u64>, ConfigError> {
    let Some(field) = fields.get("stop") else { return Ok(None) };
    let stop_ns = field.time_ns(1)?;
    if start(fields)?.is_some_and(|start_ns| stop_ns <= start_ns) {
        let error = field.error(Code::OutOfRange, "the job stops before it starts");
        return Err(error.with_help("write a time after `start`"));
    }
    Ok(Some(stop_ns))
}

fn load_of(job: &Job) -> Load {
    if let JobKind::Cpu { execution_ns } = job.kind {
        let gap_ns = job.requests_per_s_per_fiber.map_or(0, |rate| 1_000_000_000 / (rate as u64).max(1));
        let pause_ns = gap_ns.saturating_sub(execution_ns).max(job.think_time_ns);
        return Load::Cpu { parallelism: job.parallelism, execution_ns, pause_ns };
    }

    match job.requests_per_s_per_fiber {
        None => Load::Closed {
            parallelism: job.parallelism,
            think_ns: job.think_time_ns,
            think_after_ns: if job.think_time_ns == 0 { 0 } else { job.think_after_ns },
        },
        Some(rate) => Load::Open {
            requests_per_s: (rate * f64::from(job.parallelism) * f64::from(job.batch)).min(MAX_REQUESTS_PER_S),
            spacing: match job.pause_distribution {
                PauseDistribution::Uniform => Spacing::Uniform,
                PauseDistribution::Poisson => Spacing::Poisson,
            },
            batch: job.batch,
            max_outstanding: Some(job.parallelism.saturating_mul(job.batch)),
        },
    }
}

fn read_open(field: &Field<'_>) -> Result<Load, ConfigError> {
    let fields = Fields::read(field, &OPEN)?;
    let rate = fields.required("rate", "write requests a second on each shard, such as `rate: 5000`")?;
    let spacings = [("uniform", Spacing::Uniform), ("poisson", Spacing::Poisson)];
    let spacing = fields.or("spacing", Spacing::Uniform, |field| field.one_of("a spacing", &spacings))?;
    Ok(Load::Open {
        requests_per_s: rate.number(|rate| rate > 0.0 && rate <= MAX_REQUESTS_PER_S, "above 0, up to 1e9")?,
        spacing,
        batch: fields.or("batch", 1, |field| field.count(1..=jobs::MAX_BATCH))?,
        max_outstanding: fields.optional("max_outstanding", |field| field.count(1..=u32::MAX))?,
    })
}

fn read_sizes(field: &Field<'_>) -> Result<SizeDist, ConfigError> {
    let size =
        |field: &Field<'_>| field.figure(parse_size_bytes, 1..=jobs::MAX_REQUEST_BYTES, "bytes").map(|b| b as u32);
    if field.is_scalar() {
        return size(field).map(SizeDist::Fixed);
    }
    let pair = |item: &Field<'_>| match item.list()?.as_slice() {
        [len, weight] => Ok((size(len)?, weight.count(0..=1_000_000)?)),
        _ => Err(item.error(Code::WrongType, "expected a size and a weight").with_help("write [4k, 3]")),
    };
    Ok(SizeDist::Weighted(field.list()?.iter().map(pair).collect::<Result<_, _>>()?))
}

fn read_region(field: &Field<'_>) -> Result<Region, ConfigError> {
    let fields = Fields::read(field, &REGION)?;
    let bytes =
        |key, least, usual| fields.or(key, usual, |field| field.figure(parse_size_bytes, least..=1 << 60, "bytes"));
    Ok(Region {
        offset_bytes: bytes("offset", 0, 0)?,
        len_bytes: bytes("length", 1, REGION_BYTES)?,
        shard_stride_bytes: bytes("stride", 0, 0)?,
    })
}
