//! A key-value server whose database has six classes of disk I/O, its client, and stories that show their effect.
//!
//! # Why
//! A database needs a scheduler of disk I/O: commits, flushes, compactions, queries and repairs share one disk and must
//! not slow each other down. This program is such a database, made of published parts: SlateDB's tree of sorted files,
//! on a [`plimsoll_store::ScheduledStore`].
//!
//! # How it works
//! * [`serve`]: [`database`] opens the tree with a class for each kind of I/O ([`classes`]); [`server`] answers the
//!   Redis protocol ([`resp`], [`command`]); [`space`] refuses writes when the disk is full.
//! * [`stress`]: a client with cassandra-stress's syntax, which measures latency from the intended start.
//! * [`story`]: server and clients in one process, each story run in three ways in turn.
//!
//! # Limits
//! Strings only: no expiry, no transactions, no replication, no authentication. Meant for loopback.
//!
//! # Example
//! `plimsoll-kv serve --dir /var/lib/kv`, then `redis-cli -p 6380 set ship ahoy`.

mod background;
pub mod budget;
pub mod classes;
pub mod command;
pub mod commitlog;
pub mod controllers;
pub mod database;
mod directories;
pub mod engine;
pub mod failure;
mod interrupt;
pub mod open_files;
pub mod options;
pub mod repair;
pub mod resp;
pub mod scans;
pub mod serve;
pub mod server;
pub mod settings;
pub mod space;
pub mod story;
pub mod stress;
