//! Reads the rules of `plimsoll run`, which assign a program's calls to classes.
//!
//! **Why.** The calls of a program without classes can be distinguished from outside: by the names of its threads, its
//! files, and its operations on them.
//!
//! **How.** `classes:` is a list as in a scheduling-groups file ([`sched_groups`](super::sched_groups)). `rules:` is a
//! list whose first match counts: `thread` and `path` are patterns in which `*` matches any text, `operation` is one of
//! [`OPERATIONS`] or a list of them; a missing condition matches everything. A path pattern with a slash is compared
//! with the whole path, one without with the last part. [`find`] accepts a file or a [built-in set](BUILT_IN) by name.
//!
//! **Limits.** At most [`MAX_RULES`] rules and [`MAX_CLASSES`] classes, including `default`, the class of calls that no
//! rule matches. Linux cuts names of threads to 15 bytes.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::run_rules;
//! let rules = run_rules::parse("rules.yaml", "
//! classes:
//! - {name: query, shares: 800}
//! - {name: compaction, shares: 200, limit_bandwidth: 100M}
//! rules:
//! - {thread: 'rocksdb:low', class: compaction}
//! - {path: '*.sst', operation: read, class: query}
//! ")?;
//! assert_eq!(rules.rules[1].to_string(), "path `*.sst`, read: query");
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::fmt;
use std::path::Path;

use super::error::{Code, ConfigError, Diagnostic, Source};
use super::fields::{Field, Fields, Schema};
use super::sched_groups::{SchedGroups, read_entries};
use super::yaml;

pub const MAX_RULES: usize = 63;
/// Most classes and groups, including `default`.
pub const MAX_CLASSES: usize = 64;
pub const OPERATIONS: [&str; 4] = ["read", "write", "sync", "allocate"];
/// The built-in sets, with their text.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("default", include_str!("run_rules/default.yaml")),
    ("rocksdb", include_str!("run_rules/rocksdb.yaml")),
    ("mysql", include_str!("run_rules/mysql.yaml")),
    ("postgres", include_str!("run_rules/postgres.yaml")),
];

const THREAD_NAME_BYTES: usize = 15;

#[derive(Clone, Debug, PartialEq)]
pub struct RunRules {
    /// The file or the built-in set.
    pub name: String,
    /// Classes and groups; `default` need not be among them.
    pub groups: SchedGroups,
    /// The rules; the first match counts.
    pub rules: Vec<RunRule>,
    /// Warnings about rules whose effect differs from their wording.
    pub warnings: Vec<Diagnostic>,
}

/// One rule; `None` matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRule {
    pub thread: Option<String>,
    /// Pattern of the file's path.
    pub path: Option<String>,
    /// Whether the rule matches each of [`OPERATIONS`].
    pub operations: [bool; 4],
    pub class: String,
}

impl fmt::Display for RunRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut conditions = Vec::new();
        conditions.extend(self.thread.as_ref().map(|thread| format!("thread `{thread}`")));
        conditions.extend(self.path.as_ref().map(|path| format!("path `{path}`")));
        if self.operations != [true; 4] {
            let named = OPERATIONS.iter().zip(self.operations).filter(|(_, is_meant)| *is_meant).map(|(name, _)| *name);
            conditions.push(named.collect::<Vec<_>>().join(" or "));
        }
        if conditions.is_empty() {
            conditions.push("everything".to_owned());
        }
        write!(f, "{}: {}", conditions.join(", "), self.class)
    }
}

const FILE: Schema<'_> = Schema::of("a set of rules", &["classes", "rules"]);
const RULE: Schema<'_> = Schema::of("a rule", &["thread", "path", "operation", "class"]);

/// Reads the built-in set of that name, or else the file.
///
/// # Errors
/// The errors of [`parse`], and [`Code::Unreadable`].
pub fn find(name: &str) -> Result<RunRules, ConfigError> {
    match BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        Some((name, text)) => parse(name, text),
        None => yaml::read_file(Path::new(name)).and_then(|source| parse_source(&source)).map_err(|error| {
            if error.code() != Code::Unreadable {
                return error;
            }
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            error.with_help(format!("name a file, or one of the built-in sets: {names}"))
        }),
    }
}

/// Reads the text of a rules file. `source_name` is used in messages only.
///
/// # Errors
/// With the line: errors of [`sched_groups`](super::sched_groups), unknown classes and operations, patterns that no
/// thread can match, too many rules or classes.
pub fn parse(source_name: &str, text: &str) -> Result<RunRules, ConfigError> {
    parse_source(&Source::new(source_name, text))
}

fn parse_source(source: &Source) -> Result<RunRules, ConfigError> {
    let root = yaml::parse(source)?;
    let root = Field::root(source, &root, "write `classes:` and `rules:`")?;
    let fields = Fields::read(&root, &FILE)?;

    let class_fields = fields.required("classes", "list the classes under `classes:`")?;
    let groups = read_entries(&class_fields.list()?)?;
    let has_default = groups.position("default").is_some();
    if groups.groups.len() + usize::from(!has_default) > MAX_CLASSES {
        let most = MAX_CLASSES - usize::from(!has_default);
        return Err(class_fields.error(Code::TooLarge, format!("there are at most {most} classes and groups here")));
    }

    let rule_fields = fields.required("rules", "list the rules under `rules:`")?;
    let entries = rule_fields.list()?;
    if entries.len() > MAX_RULES {
        return Err(rule_fields.error(Code::TooLarge, format!("there are at most {MAX_RULES} rules")));
    }

    let mut rules: Vec<RunRule> = Vec::new();
    let mut warnings = Vec::new();
    for entry in &entries {
        let rule = read_rule(entry, &groups)?;
        if let Some(before) = rules.iter().find(|before| before.covers(&rule)) {
            let message = format!("this rule matches nothing: `{before}` stands before it and matches all of it");
            let warning = entry.error(Code::Ignored, message).with_help("move it up, or remove it");
            warnings.push(warning.into_warning());
        }
        rules.push(rule);
    }

    Ok(RunRules { name: source.name().to_owned(), groups, rules, warnings })
}

impl RunRule {
    /// Returns whether this rule surely matches every call that `other` matches; only obvious cases count.
    fn covers(&self, other: &RunRule) -> bool {
        let covers = |mine: &Option<String>, its: &Option<String>| match mine.as_deref() {
            None | Some("*") => true,
            some => some == its.as_deref(),
        };
        covers(&self.thread, &other.thread)
            && covers(&self.path, &other.path)
            && self.operations.iter().zip(other.operations).all(|(mine, its)| *mine || !its)
    }
}

fn read_rule(entry: &Field<'_>, groups: &SchedGroups) -> Result<RunRule, ConfigError> {
    let fields = Fields::read(entry, &RULE)?;
    let class = fields.required("class", "name the class that these calls are of")?;
    let mut names: Vec<&str> = groups.class_names().into_iter().chain(["default"]).collect();
    names.sort_unstable();
    if !names.contains(&class.text()?) {
        return Err(class.unknown_name("class", &names));
    }

    if let Some(field) = fields.get("thread") {
        let pattern = field.text()?;
        let letters = pattern.bytes().filter(|byte| *byte != b'*').count();
        if letters > THREAD_NAME_BYTES {
            let message = format!("no thread matches this: names have at most {THREAD_NAME_BYTES} bytes");
            return Err(field.error(Code::OutOfRange, message).with_help("Linux cuts longer names: cut it there, too"));
        }
    }

    let operations = match fields.get("operation") {
        None => [true; 4],
        Some(field) => {
            let words = if field.is_list() { field.list()? } else { vec![field] };
            let mut operations = [false; 4];
            for word in words {
                let at = word.text().map(|text| OPERATIONS.iter().position(|name| *name == text))?;
                let Some(place) = at.and_then(|at| operations.get_mut(at)) else {
                    return Err(word.not_one_of("an operation", &OPERATIONS));
                };
                *place = true;
            }
            operations
        }
    };

    let text = |key| fields.optional(key, Field::string);
    Ok(RunRule { thread: text("thread")?, path: text("path")?, operations, class: class.string()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_sets_are_read_without_a_warning() {
        for (name, _) in BUILT_IN {
            let rules = find(name).unwrap();
            assert_eq!((rules.name.as_str(), rules.warnings.as_slice()), (name, &[][..]));
        }
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let head = "classes:\n- {name: a, shares: 1}\nrules:\n";
        let table = [
            ("- {thread: x, class: b}", 4, "no class called \"b\""),
            ("- {thread: x}", 4, "a rule needs `class`"),
            ("- {thred: x, class: a}", 4, "has no key \"thred\""),
            ("- {operation: raed, class: a}", 4, "not an operation"),
            ("- {thread: 'a-name-that-is-much-too-long', class: a}", 4, "at most 15 bytes"),
            ("- {class: a}\n- {operation: [read, wrote], class: a}", 5, "not an operation"),
        ];
        for (rules, line, part) in table {
            let error = parse("rules.yaml", &format!("{head}{rules}\n")).unwrap_err();
            assert_eq!(error.line(), Some(line), "{error}");
            assert!(error.message().contains(part), "{error}");
        }
        let error = find("rocks").unwrap_err();
        assert!(error.to_string().contains("default, rocksdb, mysql, postgres"), "{error}");
    }

    #[test]
    fn a_rule_that_can_match_nothing_is_a_warning() {
        let text = "classes: [{name: a, shares: 1}]\nrules:\n- {path: '*.sst', class: a}\n- {class: a}\n\
                    - {thread: x, class: a}\n";
        let warnings = parse("rules.yaml", text).unwrap().warnings;
        assert_eq!(warnings.iter().map(|warning| warning.line()).collect::<Vec<_>>(), [Some(5)]);
        assert!(warnings[0].message().contains("`everything: a` stands before it"), "{}", warnings[0]);
    }
}
