//! Divides a run into parts for several processes, and merges their results.
//!
//! **Why.** Ten thousand worlds are hours of one machine and minutes of a batch system, which starts commands and
//! collects their files. The result must be the same.
//!
//! **How.** Part K of N has every N-th task from the K-th on, so that all parts take about as long. Its JSON identifies
//! the part and its run ([`PartForm`]); a hash of all tasks distinguishes runs of other scenarios, sweeps or seeds.
//! [`merge`] puts the runs of all parts back into the order of the tasks. Figures keep their bits in JSON, so
//! everything computed from the runs is the same as from one process.
//!
//! **Limits.** All parts are in memory. An interrupted part is refused, and must be run again.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::sim::parts::Part;
//! let part: Part = "2/3".parse()?;
//! assert_eq!(part.of_tasks(vec!["a", "b", "c", "d", "e"]), ["b", "e"]);
//! # Ok::<(), String>(())
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::hash::Hasher as _;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twox_hash::XxHash3_64;

use super::form::{RunForm, SCHEMA};
use super::run::{Finished, Subject, Task};

/// Most missing parts that an error lists.
const NAMED_MAX: usize = 5;

/// A part of a run: `number` of `of`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    number: usize,
    of: usize,
}

impl Part {
    pub fn of_tasks<T>(&self, tasks: Vec<T>) -> Vec<T> {
        tasks.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }

    fn share_of(&self, count: usize) -> usize {
        count.saturating_sub(self.number - 1).div_ceil(self.of)
    }

    fn is_possible(&self) -> bool {
        (1..=self.of).contains(&self.number)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        let part = numbers.map(|(number, of)| Part { number, of }).filter(Part::is_possible);
        part.ok_or_else(|| "expected K/N, part K of N, with K from 1 to N: 2/8".to_owned())
    }
}

/// The seeds and sweeps of a command line, which the output needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    #[serde(rename = "seeds_each")]
    pub seeds: u64,
    /// The swept keys, in the order of the command line.
    #[serde(rename = "swept_keys")]
    pub sweep: Vec<String>,
}

/// The key `part` in the JSON of a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartForm {
    #[serde(flatten)]
    part: Part,
    #[serde(flatten)]
    whole: Whole,
}

/// What all parts of a run have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Whole {
    #[serde(flatten)]
    plan: Plan,
    /// Runs of all parts together.
    all_runs: usize,
    /// Hash of all tasks, in hexadecimal digits.
    tasks_hash: String,
}

impl PartForm {
    /// Describes `part` of `tasks`; `tasks` are those of all parts.
    pub fn new(part: Part, plan: Plan, tasks: &[Task]) -> PartForm {
        let tasks_hash = format!("{:016x}", hash_of(tasks));
        PartForm { part, whole: Whole { plan, all_runs: tasks.len(), tasks_hash } }
    }
}

/// Returns a hash of everything that the results of `tasks` depend on.
fn hash_of(tasks: &[Task]) -> u64 {
    struct Sink(XxHash3_64);
    impl fmt::Write for Sink {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }

    let mut sink = Sink(XxHash3_64::with_seed(0));
    let mut last = None;
    for task in tasks {
        // Writing into the hash cannot fail.
        let _ = write!(sink, "{:?}", (task.subject.name(), &task.changes, task.seed));
        // Tasks that differ in their seed share a scenario, which may be large.
        if let Subject::Own(scenario) = &task.subject
            && last.replace(scenario).is_none_or(|last| !Arc::ptr_eq(last, scenario))
        {
            let _ = write!(sink, "{:?}", (&scenario.world, &scenario.disk_names));
        }
    }
    sink.0.finish()
}

/// All parts of a run together.
#[derive(Debug)]
pub struct Merged {
    pub plan: Plan,
    /// The runs in the order of one process.
    pub finished: Vec<Finished>,
}

#[derive(Deserialize)]
struct PartFile {
    plimsoll: String,
    interrupted: bool,
    part: PartForm,
    runs: Vec<RunForm>,
}

/// Merges the parts of a run; `files` are the paths and texts of their JSON, in any order.
///
/// # Errors
/// With the file's path: it is no part, is of another version, was interrupted, belongs to another run, or occurs
/// twice. A part is missing.
pub fn merge(files: &[(String, String)]) -> Result<Merged, String> {
    let mut parts: BTreeMap<Part, (&str, PartFile)> = BTreeMap::new();
    for (path, text) in files {
        let file = read(path, text)?;
        if let Some((known, (first, of))) = parts.first_key_value()
            && (known.of, &of.part.whole) != (file.part.part.of, &file.part.whole)
        {
            return Err(format!("{path}: this is part of another run than {first}: merge the parts of one run"));
        }
        let part = file.part.part;
        if let Some((other, _)) = parts.insert(part, (path, file)) {
            return Err(format!("{path}: this is part {part}, and so is {other}: name one of them"));
        }
    }

    let numbers: Vec<Part> = parts.keys().copied().collect();
    check_that_all_are_there(&numbers)?;
    let whole = parts.first_key_value().map(|(_, (_, file))| file.part.whole.clone());
    let Whole { plan, all_runs: count, .. } = whole.ok_or("there are no parts to merge")?;

    // Part K has the tasks K, K + N, K + 2 N and so on.
    let mut runs: Vec<_> = parts.into_values().map(|(path, file)| (path, file.runs.into_iter())).collect();
    let mut finished = Vec::with_capacity(count);
    for at in 0..count {
        let next = runs.get_mut(at % numbers.len()).and_then(|(path, runs)| Some((*path, runs.next()?)));
        let (path, run) = next.ok_or("a part has too few runs")?;
        finished.push(run.finished(&plan.sweep).map_err(|reason| format!("{path}: {reason}"))?);
    }
    Ok(Merged { plan, finished })
}

/// Reads one part, and checks its description.
fn read(path: &str, text: &str) -> Result<PartFile, String> {
    let how = "`plimsoll sim run ... --part K/N --format json` prints one";
    let not_a_part = |reason: String| format!("{path}: this is no part of a run: {reason}; {how}");

    // The schema determines how the rest is read.
    let value: Value = serde_json::from_str(text).map_err(|error| not_a_part(error.to_string()))?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(SCHEMA) => {}
        Some(other) => {
            return Err(format!(
                "{path}: it has schema {other}, this version merges {SCHEMA}: run it with one version"
            ));
        }
        None => return Err(not_a_part("it has no `schema`".to_owned())),
    }
    let file: PartFile = serde_json::from_value(value).map_err(|error| not_a_part(error.to_string()))?;

    let (part, version) = (file.part.part, env!("CARGO_PKG_VERSION"));
    if file.plimsoll != version {
        return Err(format!("{path}: it is of plimsoll {}, this is {version}: run it with one version", file.plimsoll));
    }
    if !part.is_possible() {
        return Err(format!("{path}: there is no part {part}: the file is damaged"));
    }
    if file.interrupted {
        return Err(format!("{path}: part {part} was interrupted: run it again"));
    }
    let (found, expected) = (file.runs.len(), part.share_of(file.part.whole.all_runs));
    if found != expected {
        return Err(format!("{path}: it has {found} of the {expected} runs of part {part}: run it again"));
    }
    Ok(file)
}

/// Refuses parts, sorted by number, that are not all of a run.
fn check_that_all_are_there(parts: &[Part]) -> Result<(), String> {
    let of = parts.first().map_or(0, |part| part.of);
    let missing = of - parts.len();
    if missing == 0 {
        return Ok(());
    }

    let is_there = |number: usize| parts.binary_search(&Part { number, of }).is_ok();
    let absent = (1..=of).filter(|number| !is_there(*number)).take(NAMED_MAX);
    let names: Vec<String> = absent.map(|number| Part { number, of }.to_string()).collect();
    let others = match missing - names.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let (noun, verb) = if missing == 1 { ("part", "is") } else { ("parts", "are") };
    Err(format!("{noun} {}{others} {verb} missing: name the files of all parts", names.join(", ")))
}
