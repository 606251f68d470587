//! Reads io-properties with all their faults, for the checker.
//!
//! **Why.** [`crate::io_properties`] refuses a file at the first fault, which is right for a program that will schedule
//! by it. A checker should report all faults, and judge the figures all the same.
//!
//! **How.** Each disk is cleaned, then read by the strict reader: unknown keys are removed, obsolete ones get their new
//! names. If the reader refuses a key that is no figure, that key is removed too. Each such step leaves a finding.
//!
//! **Limits.** A text that is not YAML, or in which no disk has all four figures, is an error, with the strict reader's
//! message.
//!
//! **Example.** `{mountpoint: /d, read_reqs_per_sec: 900, ...}` is read with `read_iops` = 900 and one finding.

use std::collections::HashSet;
use std::path::Path;

use plimsoll_figures::units::quoted;

use super::{Finding, FindingCode};
use crate::error::{Code, ConfigError, Diagnostic, Source};
use crate::fields::{Field, Fields, Schema, closest, list_of};
use crate::io_properties::{DISK, DiskProperties, SEASTAR_MAX_DISKS, TOP_LEVEL, parse_disk};
use crate::variant_name;
use crate::yaml::{self, Node, Value};

pub(crate) struct LenientFile {
    /// The disks with all four figures.
    pub(crate) disks: Vec<LenientDisk>,
    /// Faults that the strict reader, or Seastar, would refuse or ignore.
    pub(crate) findings: Vec<Finding>,
}

pub(crate) struct LenientDisk {
    pub(crate) properties: DiskProperties,
    /// Key, line and text of each single value, under the present names of keys.
    values: Vec<(String, Option<usize>, String)>,
}

impl LenientDisk {
    pub(crate) fn line(&self, key: &str) -> Option<usize> {
        self.value(key).and_then(|(_, line, _)| *line)
    }

    /// Returns the value of `key` as written.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.value(key).map(|(_, _, text)| text.as_str())
    }

    fn value(&self, key: &str) -> Option<&(String, Option<usize>, String)> {
        self.values.iter().find(|(name, _, _)| name == key)
    }
}

/// Converts a diagnostic of the strict reader to a finding.
fn finding_of(diagnostic: &Diagnostic, mountpoint: &str) -> Finding {
    Finding {
        code: code_text(diagnostic.code()),
        key: diagnostic.key().unwrap_or("").to_owned(),
        message: diagnostic.message().to_owned(),
        remedy: diagnostic.help().unwrap_or("").to_owned(),
        mountpoint: mountpoint.to_owned(),
        line: diagnostic.line(),
    }
}

/// Returns a code of the reader in the spelling of the other findings.
fn code_text(code: Code) -> String {
    code.as_str().replace('-', "_")
}

/// Replaces a mount point that cannot be read.
const UNKNOWN_MOUNTPOINT: &str = "?";

/// Reads a file from `path`.
///
/// # Errors
/// The file cannot be read, is not YAML, or no disk in it has all four figures.
pub(crate) fn read_file(path: &Path) -> Result<LenientFile, ConfigError> {
    read_source(&yaml::read_file(path)?)
}

/// Reads a text as [`read_file`] does a file.
pub(crate) fn read(source_name: &str, text: &str) -> Result<LenientFile, ConfigError> {
    read_source(&Source::new(source_name, text))
}

fn read_source(source: &Source) -> Result<LenientFile, ConfigError> {
    let root = yaml::parse(source)?;
    let help = "write `disks:` and, below it, one `- mountpoint: ...` entry per disk";

    let whole = Field::root(source, &root, help)?;
    // If the file's key is that of another format, the strict reader's error names the format.
    if root.get("disks").is_none() && TOP_LEVEL.refused.iter().any(|refused| root.get(refused.key).is_some()) {
        Fields::read(&whole, &TOP_LEVEL)?;
    }

    let mut file = LenientFile { disks: Vec::new(), findings: Vec::new() };
    let top = clean(source, &root, &TOP_LEVEL, "", &mut file.findings);
    for finding in &mut file.findings {
        finding.message.push_str("; Seastar refuses the whole file for it");
    }

    let top_field = Field::root(source, &top, help)?;
    let disks_field = Fields::read(&top_field, &TOP_LEVEL)?.required("disks", help)?;
    let entries = disks_field.list()?;
    let mut first_error = None;
    for (index, entry) in entries.iter().enumerate() {
        if let Err(error) = read_disk(source, entry, index, &mut file) {
            file.findings.push(finding_of(&error, &mountpoint_of(entry.node)));
            first_error.get_or_insert(error);
        }
    }

    if let Some(entry) = entries.get(SEASTAR_MAX_DISKS) {
        file.findings.push(Finding {
            code: variant_name(FindingCode::TooManyDisks),
            key: "disks".to_owned(),
            message: format!(
                "the file lists {} disks, and Seastar configures at most {SEASTAR_MAX_DISKS}: it does not start",
                entries.len()
            ),
            remedy: "make an array of disks that are used alike, or name several under one `mountpoints`".to_owned(),
            mountpoint: String::new(),
            line: line_of(source, entry.node),
        });
    }

    match first_error {
        Some(error) if file.disks.is_empty() => Err(error),
        None if file.disks.is_empty() => {
            Err(disks_field.error(Code::Empty, "there is no disk in the list").with_help(help))
        }
        _ => Ok(file),
    }
}

/// Reads one disk, and removes one by one the keys that the strict reader refuses and that are no figures.
fn read_disk(source: &Source, entry: &Field<'_>, index: usize, file: &mut LenientFile) -> Result<(), ConfigError> {
    let mountpoint = mountpoint_of(entry.node);
    let mut node = clean(source, entry.node, &DISK, &mountpoint, &mut file.findings);
    let path = format!("disks[{index}]");

    loop {
        let mut field = entry.clone();
        field.node = &node;
        // Mount points that are named twice are found later, by their devices.
        let mut warnings = Vec::new();
        let error = match parse_disk(&field, &mut HashSet::new(), &mut warnings) {
            Ok(properties) => {
                let mountpoint = properties.mountpoints.join(":");
                file.findings.extend(warnings.iter().map(|warning| finding_of(warning, &mountpoint)));
                file.disks.push(LenientDisk { properties, values: values_of(source, &node) });
                return Ok(());
            }
            Err(error) => error,
        };
        let key = error.key().and_then(|key| key.strip_prefix(&path)?.strip_prefix('.')).unwrap_or("").to_owned();
        let key = key.split(['[', '.']).next().unwrap_or("");
        if !take_out(&mut node, key) {
            return Err(error);
        }
        file.findings.push(finding_of(&error, &mountpoint_of(&node)));
    }
}

/// Removes `key` from a map. Returns false if the disk needs the key (it is a figure), or the key is missing.
fn take_out(node: &mut Node, key: &str) -> bool {
    let Value::Map(entries) = &mut node.value else { return false };
    if key.ends_with("_iops") || key.ends_with("_bandwidth") {
        return false;
    }
    let is_place = key.starts_with("mountpoint");
    let before = entries.len();
    let span = node.span.clone();
    entries
        .retain(|(name, value)| name.scalar() != Some(key) || (is_place && value.scalar() == Some(UNKNOWN_MOUNTPOINT)));
    let is_named = entries.iter().any(|(name, _)| name.scalar().is_some_and(|name| name.starts_with("mountpoint")));
    if is_place && !is_named {
        let scalar = |text: &str| Node { span: span.clone(), value: Value::Scalar(text.to_owned()) };
        entries.push((scalar("mountpoint"), scalar(UNKNOWN_MOUNTPOINT)));
        return true;
    }
    entries.len() < before
}

/// Returns a copy of a map without unknown keys, and with the new names of obsolete ones.
fn clean(source: &Source, node: &Node, schema: &Schema<'_>, mountpoint: &str, findings: &mut Vec<Finding>) -> Node {
    let Value::Map(entries) = &node.value else { return node.clone() };
    let mut kept = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let Some(key) = name.scalar() else {
            kept.push((name.clone(), value.clone()));
            continue;
        };
        if schema.reads(key) {
            kept.push((name.clone(), value.clone()));
            continue;
        }

        let line = line_of(source, name);
        let finding = |code, message: String, remedy: String| Finding {
            code: code_text(code),
            key: key.to_owned(),
            message,
            remedy,
            mountpoint: mountpoint.to_owned(),
            line,
        };
        if let Some(refused) = schema.refusal(key) {
            let message = format!("the key `{key}` is obsolete: Seastar ignores it without a word");
            findings.push(finding(Code::Obsolete, message, refused.help.to_owned()));
            if let Some(new) = new_name(key).filter(|new| node.get(new).is_none()) {
                kept.push((Node { span: name.span.clone(), value: Value::Scalar(new.to_owned()) }, value.clone()));
            }
            continue;
        }

        let message = format!(
            "{} has no key {}: Seastar ignores unknown keys of a disk without a word",
            schema.what,
            quoted(key)
        );
        let message =
            if schema.known.len() == 1 { format!("{} has no key {}", schema.what, quoted(key)) } else { message };
        let remedy = match closest(key, schema.known.iter().copied()) {
            Some(candidate) => format!("did you mean `{candidate}`? Else remove it"),
            None => format!("remove it; the keys of {} are {}", schema.what, list_of(schema.known)),
        };
        findings.push(finding(Code::UnknownKey, message, remedy));
    }
    Node { span: node.span.clone(), value: Value::Map(kept) }
}

/// Returns the present name of a key of 2018.
fn new_name(obsolete: &str) -> Option<&'static str> {
    match obsolete {
        "read_reqs_per_sec" => Some("read_iops"),
        "write_reqs_per_sec" => Some("write_iops"),
        "read_bytes_per_sec" => Some("read_bandwidth"),
        "write_bytes_per_sec" => Some("write_bandwidth"),
        _ => None,
    }
}

/// Returns the mount points of a disk as written, joined as Seastar joins them; empty if there is none.
fn mountpoint_of(node: &Node) -> String {
    let of = |key: &str| match &node.get(key)?.value {
        Value::Scalar(text) => Some(text.clone()),
        Value::List(items) => Some(items.iter().filter_map(Node::scalar).collect::<Vec<_>>().join(":")),
        _ => None,
    };
    of("mountpoints").or_else(|| of("mountpoint")).unwrap_or_default()
}

fn values_of(source: &Source, node: &Node) -> Vec<(String, Option<usize>, String)> {
    let Value::Map(entries) = &node.value else { return Vec::new() };
    let value = |(name, value): &(Node, Node)| {
        Some((name.scalar()?.to_owned(), line_of(source, name), value.scalar().unwrap_or("").to_owned()))
    };
    entries.iter().filter_map(value).collect()
}

/// Returns the line of a node; of a map, the line of its first key.
fn line_of(source: &Source, node: &Node) -> Option<usize> {
    let first = match &node.value {
        Value::Map(entries) => entries.first().map_or(node, |(name, _)| name),
        _ => node,
    };
    source.error_at(&first.span, Code::Ignored, "").line()
}
