//! Reads the scheduling-groups file: classes, groups, and their shares.
//!
//! **Why.** A job file names the class of each job; the classes' shares of the disk are configured separately, and stay
//! the same over many job files. The keys are those of io_tester's `--sched-groups`.
//!
//! **How.** A list of maps with `name`, `shares` and, for a member of a group, `parent`. An entry that another entry
//! names as its parent is a group; every other entry is a class that jobs can join. `default` is the class that always
//! exists: it can have shares, but neither a parent nor members.
//!
//! Entries may also have limits (`limit_iops`, `limit_bandwidth`, each also `_read` and `_write`, with `limit_burst`),
//! a reservation (`reservation_iops`, `reservation_bandwidth`), `latency_target` (`2ms p99`), `max_wait` and
//! `max_delay`.
//!
//! **Limits.** At most 64 levels (io_tester has two). Groups have shares, limits and a reservation only: other
//! keys of a group are refused.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::sched_groups;
//! let text = "
//! - {name: statement, shares: 1000}
//! - {name: maintenance, shares: 100}
//! - {name: compaction, shares: 200, parent: maintenance}
//! ";
//! let groups = sched_groups::parse("groups.yaml", text)?;
//! assert!(groups.class_names().contains("compaction") && !groups.class_names().contains("maintenance"));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::collections::{HashMap, HashSet};
use std::path::Path;

use plimsoll_core::Qos;
use plimsoll_figures::units::quoted;

use super::error::{Code, ConfigError, Source};
use super::fields::{Field, Fields, Schema};
use super::{qos, yaml};

/// Most shares of a class or group. io_tester documents 1 to 1000 as useful.
pub const MAX_SHARES: u32 = 1_000_000;

/// Most levels of the tree of groups: a class in a group has depth 2.
pub const MAX_DEPTH: usize = 64;

/// The classes and groups of a file; empty by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedGroups {
    pub groups: Vec<SchedGroup>,
}

/// One entry: a class, or a group of classes.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedGroup {
    /// The name: unique in the file, not empty.
    pub name: String,
    /// Shares, 1 to [`MAX_SHARES`], relative to the other children of the same parent.
    pub shares: u32,
    /// The index of the parent in [`SchedGroups::groups`], before or after this entry; `None` at the top.
    pub parent: Option<usize>,
    /// Limits, reservation, latency target and others; by default none.
    pub qos: Qos,
}

impl SchedGroups {
    pub fn position(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.name == name)
    }

    /// Returns the names of the entries without members, which are the classes that jobs can join.
    pub fn class_names(&self) -> HashSet<&str> {
        let parents: HashSet<usize> = self.groups.iter().filter_map(|group| group.parent).collect();
        let entries = self.groups.iter().enumerate();
        entries.filter(|(index, _)| !parents.contains(index)).map(|(_, group)| group.name.as_str()).collect()
    }
}

const GROUP: Schema = Schema::of("a scheduling group", qos::with_qos_keys!("name", "shares", "parent"));

/// Reads the text of a scheduling-groups file. `source_name` is used in messages only.
///
/// # Errors
/// With the line: unknown, duplicate or missing keys, shares outside 1 to [`MAX_SHARES`], a duplicate name, an unknown
/// parent, a group that is its own ancestor, a tree deeper than [`MAX_DEPTH`], a `default` with a parent or members,
/// invalid limits and targets, a group with more than shares, limits and a reservation.
pub fn parse(source_name: &str, text: &str) -> Result<SchedGroups, ConfigError> {
    parse_source(&Source::new(source_name, text))
}

pub fn parse_from_file(path: &Path) -> Result<SchedGroups, ConfigError> {
    parse_source(&yaml::read_file(path)?)
}

fn parse_source(source: &Source) -> Result<SchedGroups, ConfigError> {
    let root = yaml::parse(source)?;
    let help = "write one `- name: ...` entry with `shares: ...` per class or group";
    read_entries(&Field::root(source, &root, help)?.list()?)
}

pub(super) fn read_entries(entries: &[Field<'_>]) -> Result<SchedGroups, ConfigError> {
    let mut index_of_name = HashMap::with_capacity(entries.len());
    let mut groups = Vec::with_capacity(entries.len());
    let mut parent_fields = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let fields = Fields::read(entry, &GROUP)?;
        let name_field = fields.required("name", "give the class or group a name")?;
        let name = name_field.text()?;
        if index_of_name.insert(name, index).is_some() {
            let error = name_field.error(Code::DuplicateName, format!("the name {} is used twice", quoted(name)));
            return Err(error.with_help("every class and group needs a name of its own, whatever its parent"));
        }
        let shares = fields.required("shares", "write its weight, such as `shares: 100`")?.count(1..=MAX_SHARES)?;
        groups.push(SchedGroup { name: name.to_owned(), shares, parent: None, qos: qos::read(&fields)? });
        parent_fields.push(fields.get("parent"));
    }

    for (group, field) in groups.iter_mut().zip(&parent_fields) {
        if let Some(field) = field {
            group.parent = Some(parent_index(field, &index_of_name)?);
        }
    }

    check_depth(&groups, &parent_fields)?;
    check_default(&groups, &parent_fields, entries)?;
    check_groups(&groups, entries)?;
    Ok(SchedGroups { groups })
}

fn parent_index(field: &Field<'_>, index_of_name: &HashMap<&str, usize>) -> Result<usize, ConfigError> {
    let name = field.text()?;
    index_of_name.get(name).copied().ok_or_else(|| {
        let error = field.error(Code::UnknownReference, format!("there is no group called {}", quoted(name)));
        error.with_help("name an entry of this file, or add one")
    })
}

/// Follows the parents of every entry to the top. A path of more than [`MAX_DEPTH`] steps is a cycle or too deep.
fn check_depth(groups: &[SchedGroup], parent_fields: &[Option<Field<'_>>]) -> Result<(), ConfigError> {
    for (index, field) in parent_fields.iter().enumerate() {
        let Some(field) = field else { continue };
        let mut ancestor = groups.get(index).and_then(|group| group.parent);
        let mut depth = 1;

        while let Some(current) = ancestor {
            depth += 1;
            if current == index {
                let error = field.error(Code::Cycle, "this group is its own ancestor");
                return Err(error.with_help("remove one `parent` of the circle"));
            }
            if depth > MAX_DEPTH {
                let error = field.error(Code::Cycle, format!("more than {MAX_DEPTH} groups lie above this one"));
                return Err(error.with_help("check the parents for a circle, or flatten the tree"));
            }
            ancestor = groups.get(current).and_then(|group| group.parent);
        }
    }
    Ok(())
}

/// Refuses a parent or members of `default`, the class that always exists.
fn check_default(
    groups: &[SchedGroup],
    parent_fields: &[Option<Field<'_>>],
    entries: &[Field<'_>],
) -> Result<(), ConfigError> {
    let help = "choose another name: `default` is the class of requests without one";
    let Some(at) = groups.iter().position(|group| group.name == "default") else { return Ok(()) };
    if let Some(Some(field)) = parent_fields.get(at) {
        return Err(field.error(Code::InvalidValue, "the class `default` has no parent").with_help(help));
    }
    let has_members = groups.iter().any(|group| group.parent == Some(at));
    match entries.get(at).filter(|_| has_members) {
        Some(entry) => Err(entry.error(Code::InvalidValue, "the class `default` has no members").with_help(help)),
        None => Ok(()),
    }
}

/// Refuses groups with more than shares, limits and a reservation: the rest is about requests, which only classes have.
fn check_groups(groups: &[SchedGroup], entries: &[Field<'_>]) -> Result<(), ConfigError> {
    for (at, (group, entry)) in groups.iter().zip(entries).enumerate() {
        if groups.iter().any(|member| member.parent == Some(at)) {
            check_group(&group.name, &group.qos, entry)?;
        }
    }
    Ok(())
}

/// Refuses settings of the group `name` that are for classes only. `field` is where they are written.
pub(super) fn check_group(name: &str, qos: &Qos, field: &Field<'_>) -> Result<(), ConfigError> {
    let Some(given) = qos.for_classes_only() else { return Ok(()) };
    let message =
        format!("the group {} has {given}, but a group has shares, limits and a reservation only", quoted(name));
    Err(field.error(Code::NotSupported, message).with_help("give the rest to the classes inside the group"))
}
