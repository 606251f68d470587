//! Reads scenario files: worlds for the simulator.
//!
//! **Why.** "How would these jobs do on those disks, with that many shards, one of them starved?" The question is a
//! file, and the answer is the same on every machine.
//!
//! **How.** One map: `disks`, `shards`, `classes` (entries of a scheduling-groups file), `jobs` (a job file's list,
//! with open loops and recordings beside it), `faults`, `actions`, `seed`, `duration`. [`ScenarioFile`] keeps the
//! file's tree, so that a sweep can change a value and read the tree again. Paths in the file are relative to its
//! directory.
//!
//! **Limits.** A run lasts at most 30 days of virtual time. A job that could make more than 10^10 requests in it is
//! refused, because it would run too long; so is a model that could not complete one request of each job within the
//! run, because it admits nothing.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::scenario::ScenarioFile;
//! let text = "
//! duration: 1s
//! disks: [{disk: i4i.2xlarge}]
//! jobs:
//!   - {name: query, type: randread, shards: all, shard_info: {parallelism: 8, shares: 1000}}
//! ";
//! let file = ScenarioFile::parse("mine.yaml", text, ".".as_ref())?;
//! let scenario = file.scenario(&[("parallelism".into(), "4".into())])?;
//! assert_eq!(scenario.world.jobs.len(), 1);
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

mod changes;
mod disks;
mod jobs;
mod sweep;

use std::path::{Path, PathBuf};

use plimsoll_figures::units::parse_count;
use plimsoll_sim::world::{Action, Change, ClassSpec, Hog, ShardSpec, WorldSpec};

use super::error::{Code, ConfigError, Diagnostic, Source};
use super::fields::{Field, Fields, Schema};
use super::sched_groups::{self, SchedGroups};
use super::yaml::{self, Node};
use crate::keys;

const MAX_SHARDS: u32 = 1024;

const TOP: Schema = Schema::of(
    "a scenario",
    &keys![
        name seed duration warmup sample message_latency message_cpu shards disks classes jobs job_file faults actions
    ],
);

const SHARDS: Schema = Schema::of(
    "a group of shards",
    &["count", "poll_interval", "hog", "cpu_per_request", "start_offset", "stagger", "numa_node"],
);

const HOG: Schema = Schema::of("a hog", &["busy", "pause"]);

/// A scenario file, parsed as YAML, before its keys are read.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    source: Source,
    root: Node,
    jobs: Option<(Source, Node)>,
    base: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub world: WorldSpec,
    /// The names of the disks, in the order of the world's list.
    pub disk_names: Vec<String>,
    /// Remarks of the reader, which do not refuse the file.
    pub warnings: Vec<Diagnostic>,
}

impl ScenarioFile {
    /// Parses the text of a scenario. `source_name` is used in messages; paths in the text are relative to `base`.
    ///
    /// # Errors
    /// The text is not YAML, or the job file cannot be read.
    pub fn parse(source_name: &str, text: &str, base: &Path) -> Result<ScenarioFile, ConfigError> {
        ScenarioFile::of(Source::new(source_name, text), base)
    }

    pub fn parse_from_file(path: &Path) -> Result<ScenarioFile, ConfigError> {
        ScenarioFile::of(yaml::read_file(path)?, path.parent().unwrap_or(Path::new(".")))
    }

    fn of(source: Source, base: &Path) -> Result<ScenarioFile, ConfigError> {
        let root = yaml::parse(&source)?;
        let mut file = ScenarioFile { source, root, jobs: None, base: base.to_owned() };
        let path = file.fields()?.optional("job_file", |field| Ok(file.base.join(field.text()?)))?;
        if let Some(path) = path {
            let jobs = yaml::read_file(&path)?;
            let node = yaml::parse(&jobs)?;
            file.jobs = Some((jobs, node));
        }
        Ok(file)
    }

    fn fields(&self) -> Result<Fields<'_>, ConfigError> {
        let help = "write `duration: 1s`, `disks:` and `jobs:` at least";
        Fields::read(&Field::root(&self.source, &self.root, help)?, &TOP)
    }

    /// Returns the scenario of the file with some values replaced; `changes` are pairs of a key path or word, and a
    /// value.
    ///
    /// # Errors
    /// With the line: every invalid value. Keys of `changes` without a target.
    pub fn scenario(&self, changes: &[(String, String)]) -> Result<Scenario, ConfigError> {
        let mut changed = self.clone();
        for (key, value) in changes {
            sweep::apply(&mut changed.root, changed.jobs.as_mut().map(|(_, node)| node), key, value)?;
        }
        changed.read().map_err(|error| {
            if changes.is_empty() {
                return error;
            }
            // The excerpt shows the text of the file, not the value of the sweep.
            let swept: Vec<String> = changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let help = error.help().map_or_else(String::new, |help| format!("{help}; "));
            error.with_help(format!("{help}this is the run with --sweep {}", swept.join(" --sweep ")))
        })
    }

    fn read(&self) -> Result<Scenario, ConfigError> {
        let fields = self.fields()?;
        let duration_help = "a scenario ends: write how long it runs in virtual time, such as `duration: 2s`";
        let duration_ns = fields.required("duration", duration_help)?.time_ns(1)?;
        let time = |key, least_ns, usual_ns| fields.or(key, usual_ns, |field| field.time_ns(least_ns));

        let usual = WorldSpec::default();
        let mut world = WorldSpec {
            seed: fields.or("seed", 1, |field| field.figure(parse_count, 0..=u64::MAX, "(a plain whole number)"))?,
            duration_ns,
            warmup_ns: time("warmup", 0, 0)?,
            sample_ns: time("sample", 1_000, (duration_ns / 100).max(1_000_000))?,
            message_latency_ns: time("message_latency", 0, usual.message_latency_ns)?,
            message_cpu_ns: time("message_cpu", 0, usual.message_cpu_ns)?,
            shards: fields.or("shards", usual.shards, read_shards)?,
            ..WorldSpec::default()
        };

        let groups =
            fields.or("classes", SchedGroups::default(), |field| sched_groups::read_entries(&field.list()?))?;
        world.classes = class_specs(&groups);

        let mut disk_names = Vec::new();
        for disk in &fields.or("disks", Vec::new(), Field::list)? {
            let (name, disk) = disks::read(disk, world.shards.len(), &self.base)?;
            disk_names.push(name);
            world.disks.push(disk);
        }

        let mut warnings = Vec::new();
        self.read_jobs(&fields, &groups, &mut world, &mut warnings)?;
        fields.optional("faults", |field| changes::read_faults(field, &mut world, &mut warnings))?;
        fields.optional("actions", |field| changes::read_actions(field, &mut world, &mut warnings))?;
        check_that_something_starts(&fields, &world)?;

        let name = fields.or("name", self.file_stem(), Field::string)?;
        Ok(Scenario { name, world, disk_names, warnings })
    }

    fn file_stem(&self) -> String {
        let name = Path::new(self.source.name()).file_stem();
        name.map_or_else(|| "scenario".to_owned(), |stem| stem.to_string_lossy().into_owned())
    }

    fn read_jobs(
        &self,
        fields: &Fields<'_>,
        groups: &SchedGroups,
        world: &mut WorldSpec,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<(), ConfigError> {
        let help = "write `jobs:` with a job file's list below it, or `job_file:` with the path of one";
        let mut reader = jobs::Reader { groups, world, warnings, base: &self.base, next_offset_bytes: Vec::new() };
        if let Some((source, node)) = &self.jobs {
            reader.read(&Field::root(source, node, "write one `- name: ...` entry per job")?)?;
        }
        match fields.get("jobs") {
            Some(field) => reader.read(&field),
            None if self.jobs.is_some() => Ok(()),
            None => Err(fields.missing("jobs", help)),
        }
    }
}

/// Refuses a world in which no job ever begins.
fn check_that_something_starts(fields: &Fields<'_>, world: &WorldSpec) -> Result<(), ConfigError> {
    let starts = |name: &str| {
        let is_start = |action: &Action| matches!(&action.change, Change::StartJob { job } if job == name);
        world.actions.iter().any(is_start)
    };
    if world.jobs.iter().any(|job| job.start_ns.is_some() || starts(&job.name)) {
        return Ok(());
    }
    let Some(field) = fields.get("jobs").or_else(|| fields.get("job_file")) else { return Ok(()) };
    let (code, message, help) = if world.jobs.is_empty() {
        (Code::Empty, "there is no job", "write one `- {name: q, type: randread, shards: all, ...}` for each job")
    } else {
        let help = "remove `start: never` from one, or start one with `actions: [{at: 1s, start_job: NAME}]`";
        (Code::OutOfRange, "no job ever starts", help)
    };
    Err(field.error(code, message).with_help(help))
}

/// Returns classes and groups, each after its parent.
fn class_specs(groups: &SchedGroups) -> Vec<ClassSpec> {
    let entries = &groups.groups;
    let parent_of = |at: &usize| entries.get(*at).and_then(|group| group.parent);
    let depth = |at: &usize| std::iter::successors(parent_of(at), parent_of).take(entries.len()).count();
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(depth);
    let spec = |at: usize| {
        let group = entries.get(at)?;
        Some(ClassSpec {
            name: group.name.clone(),
            parent: group.parent.and_then(|parent| entries.get(parent)).map(|parent| parent.name.clone()),
            shares: group.shares,
            is_group: entries.iter().any(|member| member.parent == Some(at)),
            qos: group.qos,
        })
    };
    order.into_iter().filter_map(spec).collect()
}

/// Reads a number of shards, a group of them, or a list of groups.
fn read_shards(field: &Field<'_>) -> Result<Vec<ShardSpec>, ConfigError> {
    if field.is_scalar() {
        return Ok(vec![ShardSpec::default(); field.count(1..=MAX_SHARDS)? as usize]);
    }

    let groups = if field.is_list() { field.list()? } else { vec![field.clone()] };
    let mut shards = Vec::new();
    for group in &groups {
        let fields = Fields::read(group, &SHARDS)?;
        let count = fields.or("count", 1, |field| field.count(1..=MAX_SHARDS))?;
        let time = |key| fields.or(key, 0, |field| field.time_ns(0));
        let shard = ShardSpec {
            poll_interval_ns: fields.optional("poll_interval", |field| field.time_ns(1))?,
            hog: fields.optional("hog", read_hog)?,
            cpu_per_request_ns: time("cpu_per_request")?,
            start_offset_ns: time("start_offset")?,
            numa_node: fields.or("numa_node", 0, |field| field.count(0..=63))? as u16,
        };
        let stagger_ns = time("stagger")?;
        shards.extend((0..u64::from(count)).map(|at| ShardSpec {
            start_offset_ns: shard.start_offset_ns.saturating_add(stagger_ns.saturating_mul(at)),
            ..shard
        }));
    }

    if shards.is_empty() || shards.len() > MAX_SHARDS as usize {
        let error = field.error(Code::OutOfRange, format!("{} shards in all", shards.len()));
        return Err(error.with_help(format!("write 1 to {MAX_SHARDS} shards")));
    }
    Ok(shards)
}

fn read_hog(field: &Field<'_>) -> Result<Hog, ConfigError> {
    let fields = Fields::read(field, &HOG)?;
    let busy_ns = fields.required("busy", "write how long a slice of foreign work takes, such as 550us")?.time_ns(1)?;
    Ok(Hog { busy_ns, pause_ns: fields.or("pause", 0, |field| field.time_ns(0))? })
}
