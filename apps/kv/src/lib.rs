//! A key-value server whose database has six classes of disk I/O, its client, and the stories of what that is good for.
//!
//! # Why
//! A scheduler of disk I/O shows its worth in a database: commits, flushes, compactions, queries and repairs share one
//! disk and must not ruin each other. This program is one, made of published parts: SlateDB's tree of sorted files, on
//! a [`plimsoll_store::ScheduledStore`].
//!
//! # How it works
//! * [`serve`]: [`database`] opens the tree with a class for each kind of I/O ([`classes`]); [`server`] answers the
//!   Redis protocol ([`resp`], [`command`]) and [`space`] keeps writes out when the disk is full.
//! * [`stress`]: a client in cassandra-stress's way of saying things, which measures from the intended start.
//! * [`story`]: server and clients in one process, each story run in three ways in turn.
//!
//! # Limits
//! Strings only: no expiry, no transactions, no replication, no authentication. A server for loopback.
//!
//! # Example
//! `plimsoll-kv serve --dir /var/lib/kv`, then `redis-cli -p 6380 set ship ahoy`.

pub mod classes;
pub mod command;
pub mod commitlog;
pub mod controllers;
pub mod database;
pub mod engine;
pub mod failure;
pub mod repair;
pub mod resp;
pub mod scans;
pub mod serve;
pub mod server;
pub mod space;
pub mod story;
pub mod stress;
