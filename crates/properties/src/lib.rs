//! io-properties.yaml, and a reader of text whose errors all point at their line.
//!
//! # Why
//! The library opens disks by the file that `plimsoll tune` wrote, and the commands read the same file, more strictly
//! and beside ten other formats. The reader lies below both, so that it exists once.
//!
//! # How it works
//! [`yaml`] turns text into a tree of nodes that know their place; no other module knows the YAML library. [`fields`]
//! reads typed values from the maps of that tree, and [`error`] holds a reader's findings. [`io_properties`] is the one
//! format that the library itself reads. The others build on the same three modules, in `plimsoll-files`.
//!
//! # Limits
//! Texts of at most 1 MiB, 16 levels and 50 000 nodes. The first error ends the reading.
//!
//! # Example
//! ```
//! use plimsoll_properties::io_properties;
//! let text = "disks: [{mountpoint: /mnt, read_iops: 95k, read_bandwidth: 545M, write_iops: 85k}]";
//! let error = io_properties::parse("io.yaml", text).unwrap_err();
//! assert_eq!((error.source_name(), error.line()), ("io.yaml", Some(1)));
//! assert!(error.message().contains("write_bandwidth"));
//! ```

pub mod depths;
pub mod error;
pub mod fields;
pub mod io_properties;
pub mod yaml;

pub use error::{Code, ConfigError, Diagnostic, Severity};
