//! Reads and checks the configuration files of the commands, or refuses them with a reason.
//!
//! **Why.** Plimsoll reads the files that users of Seastar already have. A misread file costs days, so the readers
//! refuse everything that they do not recognise, with the line and the remedy, instead of ignoring it.
//!
//! **How.** The crate `plimsoll-properties` parses text into a tree of nodes with positions ([`yaml`]), reads typed
//! values from the maps of that tree ([`fields`]), and reads [`io_properties`], which the library needs too. Each
//! format has a module here: [`jobs`] with its [`job_reader`], [`fio`], [`sched_groups`], [`run_rules`], [`disk`] and
//! [`scenario`]; [`csv`] reads tables. Each reader has `parse(source_name, text, ...)`, which reads no file, and
//! `parse_from_file(path, ...)`. [`error`] has the errors and warnings.
//!
//! **Limits.** Texts of at most 1 MiB, 16 levels and 50 000 nodes. YAML aliases work, merge keys (`<<`) do not. Reading
//! ends at the first error.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::io_properties;
//! let text = "disks: [{mountpoint: /mnt, read_iops: 95k, read_bandwidth: 545M, write_iops: 85k}]";
//! let error = io_properties::parse("io.yaml", text).unwrap_err();
//! assert_eq!(error.code().as_str(), "missing-key");
//! assert_eq!(error.line(), Some(1));
//! assert!(error.message().contains("write_bandwidth"));
//! ```

#![allow(missing_docs, reason = "the tools' own crate: a name that says all needs no line")]

pub mod bounded;
pub mod check;
pub mod csv;
pub mod device;
pub mod disk;
pub mod fio;
pub mod four;
pub mod info;
pub mod job_files;
pub mod job_reader;
pub mod jobs;
pub mod presets;
mod qos;
pub mod rbd;
pub mod run_rules;
pub mod scenario;
pub mod sched_groups;
pub mod setup;

pub use plimsoll_properties::{
    Code, ConfigError, Diagnostic, Severity, depths, error, fields, io_properties, keys, yaml,
};

/// Returns the name of a variant in JSON; empty if it is not a plain variant.
pub fn variant_name(variant: impl serde::Serialize) -> String {
    serde_json::to_value(variant).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Returns the name among `names` that `name` was probably meant to be.
pub fn closest_name<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    fields::closest(name, names.iter().copied())
}
