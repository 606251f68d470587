//! The configuration files of the commands: read, checked, and refused with a reason.
//!
//! **Why.** Plimsoll reads the files that users of Seastar already have. A file that is read wrongly costs days, so
//! everything that is not understood is refused, with the line and the remedy, instead of being ignored.
//!
//! **How.** `yaml` turns text into a tree of nodes that know their place; it is the only module that knows the YAML
//! library. `fields` reads typed values from the maps of that tree. One module per format builds on them:
//! [`io_properties`], [`jobs`], [`sched_groups`], [`disk`] and [`scenario`]; [`csv`] reads tables. Each has `parse(source_name, text, ...)`, which touches no file,
//! and `parse_from_file(path, ...)`. [`error`] holds what they report.
//!
//! **Limits.** A text of at most 1 MiB, 16 levels and 50 000 nodes. YAML aliases work, merge keys (`<<`) do not.
//! The first error ends the reading.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_tools::config::io_properties;
//! let text = "disks: [{mountpoint: /mnt, read_iops: 95k, read_bandwidth: 545M, write_iops: 85k}]";
//! let error = io_properties::parse("io.yaml", text).unwrap_err();
//! assert_eq!(error.code().as_str(), "missing-key");
//! assert_eq!(error.line(), Some(1));
//! assert!(error.message().contains("write_bandwidth"));
//! ```

pub mod csv;
mod device;
pub mod disk;
pub mod error;
pub(crate) mod fields;
pub mod fio;
pub mod io_properties;
pub(crate) mod io_properties_lenient;
mod job_reader;
pub mod jobs;
mod qos;
pub mod scenario;
pub mod sched_groups;
pub(crate) mod yaml;

pub use error::{Code, ConfigError, Diagnostic, Severity};

/// The name among `names` that `name` was probably meant to be.
#[must_use]
pub fn closest_name<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    fields::closest(name, names.iter().copied())
}
