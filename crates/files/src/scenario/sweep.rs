//! Changes values of a scenario for a sweep.
//!
//! **Why.** The question "what if there were twice as many shards" should not need a second file.
//!
//! **How.** A key path (`disks.0.window`, `jobs.query.shard_info.parallelism`) names one place: words are keys, numbers
//! and names select entries of a list. A single word means every place where such a key belongs: the scenario itself,
//! the jobs' `shard_info` (`parallelism`, `reqsize`, `rps`, `shares`), the disks (`window`, `mode`), or the classes.
//! The value replaces the present one, or is added.
//!
//! **Limits.** Values are single values, not maps or lists. Messages show a changed value at the place of the old one.
//!
//! **Example.** `parallelism=16` changes `shard_info.parallelism` of all jobs.

use plimsoll_figures::units::quoted;

use super::super::error::{Code, ConfigError, Source};
use super::super::fields::{closest, list_of};
use super::super::qos;
use super::super::yaml::{Node, Value};
use super::{TOP, disks};

/// Keys of a job that a single word changes in all jobs.
const SHARD_INFO: [&str; 9] =
    ["parallelism", "rps", "batch", "limit", "reqsize", "think_time", "think_after", "execution_time", "shares"];
/// Keys of an open loop that a single word changes.
const OPEN: [&str; 2] = ["rate", "max_outstanding"];

/// Sets `key` to `value` in the scenario `root`, or in the job file that it names.
pub(super) fn apply(root: &mut Node, job_file: Option<&mut Node>, key: &str, value: &str) -> Result<(), ConfigError> {
    let source = Source::new("--sweep", &format!("{key}={value}"));
    let refuse = |message: String, help: String| {
        source.error_at(&(0..key.len()), Code::UnknownReference, message).with_help(help)
    };

    let segments: Vec<&str> = key.split('.').collect();
    if let [word] = segments.as_slice() {
        return if set_everywhere(root, job_file, word, value) { Ok(()) } else { Err(unknown_word(word, &refuse)) };
    }

    // The jobs of the job file are those of the scenario.
    let is_in_file = segments.first() == Some(&"jobs") && child(root, "jobs").is_none();
    let (place, segments) = match job_file.filter(|_| is_in_file) {
        Some(jobs) => (jobs, segments.get(1..).unwrap_or_default()),
        None => (root, segments.as_slice()),
    };

    set_path(place, segments, value).map_err(|segment| {
        let help = "a path is made of keys, and of numbers (from 0) or names of list entries: disks.0.window, \
                    jobs.query.shard_info.parallelism";
        refuse(format!("{} of this path leads nowhere", quoted(segment)), help.to_owned())
    })
}

fn unknown_word(word: &str, refuse: &dyn Fn(String, String) -> ConfigError) -> ConfigError {
    let words = TOP.known.iter().chain(&SHARD_INFO).chain(&OPEN).chain(&disks::KEYS).chain(qos::KEYS).copied();
    let help = match closest(word, words) {
        Some(candidate) if candidate != word => format!("did you mean `{candidate}`?"),
        Some(_) => "nothing in this scenario has such a key: use a path, such as disks.0.window".to_owned(),
        None => format!("use a path such as disks.0.window, or one of {}", list_of(&SHARD_INFO)),
    };
    refuse(format!("nothing can be swept by the name {}", quoted(word)), help)
}

/// Sets a single word at each place where it belongs. Returns whether there is such a place.
fn set_everywhere(root: &mut Node, job_file: Option<&mut Node>, word: &str, value: &str) -> bool {
    if word == "shards" && child(root, "shards").is_some_and(|node| matches!(node.value, Value::Map(_))) {
        return set_path(root, &["shards", "count"], value).is_ok();
    }
    if TOP.known.contains(&word) {
        return set_path(root, &[word], value).is_ok();
    }
    let mut count = 0;
    if SHARD_INFO.contains(&word) || OPEN.contains(&word) {
        count += set_in_jobs(child(root, "jobs"), word, value) + set_in_jobs(job_file, word, value);
    }
    if word == "shares" || qos::KEYS.contains(&word) {
        count += set_in_entries(child(root, "classes"), word, value);
    }
    if disks::KEYS.contains(&word) {
        count += set_in_entries(child(root, "disks"), word, value);
    }
    count > 0
}

fn set_in_entries(list: Option<&mut Node>, word: &str, value: &str) -> usize {
    let Some(Node { value: Value::List(items), .. }) = list else { return 0 };
    items.iter_mut().filter_map(|item| set_path(item, &[word], value).ok()).count()
}

/// Sets a word in all jobs. `shares` changes only where it is present, since a joined class has its own.
fn set_in_jobs(list: Option<&mut Node>, word: &str, value: &str) -> usize {
    let Some(Node { value: Value::List(items), .. }) = list else { return 0 };
    let mut count = 0;
    for item in items {
        let part = if OPEN.contains(&word) { "open" } else { "shard_info" };
        let Some(info) = child(item, part) else { continue };
        let is_cpu_only = word == "execution_time" || word == "shares";
        if is_cpu_only && child(info, word).is_none() {
            continue;
        }
        count += usize::from(set_path(info, &[word], value).is_ok());
    }
    count
}

fn child<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    let Value::Map(entries) = &mut node.value else { return None };
    entries.iter_mut().find(|(name, _)| name.scalar() == Some(key)).map(|(_, node)| node)
}

/// Follows a path and sets its end. The error is the segment without a target.
fn set_path<'s>(node: &mut Node, segments: &[&'s str], value: &str) -> Result<(), &'s str> {
    let Some((segment, rest)) = segments.split_first() else {
        node.value = Value::Scalar(value.to_owned());
        return Ok(());
    };

    let span = node.span.clone();
    match &mut node.value {
        Value::Map(entries) => {
            let at = entries.iter().position(|(key, _)| key.scalar() == Some(segment));
            if let Some((_, next)) = at.and_then(|at| entries.get_mut(at)) {
                return set_path(next, rest, value);
            }
            if !rest.is_empty() {
                return Err(segment);
            }
            let scalar = |text: &str| Node { span: span.clone(), value: Value::Scalar(text.to_owned()) };
            entries.push((scalar(segment), scalar(value)));
            Ok(())
        }
        Value::List(items) => {
            let by_name = |item: &Node| item.get("name").and_then(Node::scalar) == Some(segment);
            let at = segment.parse::<usize>().ok().or_else(|| items.iter().position(by_name));
            match at.and_then(|at| items.get_mut(at)) {
                Some(next) => set_path(next, rest, value),
                None => Err(segment),
            }
        }
        _ => Err(segment),
    }
}
