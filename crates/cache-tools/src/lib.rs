//! Tools around the block cache: its file, the statistics it publishes, and the work of the `cache` commands.
//!
//! # Why
//! People and scripts create, extend, watch and check a cache of several disks. All of them name one file, CACHE.yaml,
//! and none needs to know whether a process has the cache open.
//!
//! # How it works
//! [`config`] reads and writes CACHE.yaml, the desired state. [`session`] opens a cache by it, follows its changes
//! every second ([`follow`]) and publishes the cache's statistics ([`live`]) in a file beside it. [`iostat`], [`hits`]
//! and [`status`] turn such snapshots into rows, JSON and CSV; [`check`] and [`slabs`] inspect the disks of a closed
//! cache. [`manage`] creates and changes caches, [`mod@bench`] loads one.
//!
//! # Limits
//! A program that opens a cache with the library alone publishes nothing; use `session::Session` for that.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::config;
//! let file = config::parse("c.yaml", "cache:\n  devices: [{path: /data/cache0, size: 1GiB}]")?;
//! assert_eq!(file.devices.len(), 1);
//! assert_eq!(file.config.checkpoint_interval.as_secs(), 60);
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

#![allow(missing_docs, reason = "the tools' own crate: a name that says all needs no line")]

pub mod bench;
pub mod check;
pub mod config;
pub mod follow;
pub mod hits;
pub mod iostat;
pub mod live;
pub mod manage;
pub mod session;
pub mod slabs;
pub mod status;
pub mod wait;
