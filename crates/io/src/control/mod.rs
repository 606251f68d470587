//! A local socket to inspect and change a running program.
//!
//! # Why
//! When a program is slow, its user needs answers at once: which class waits, and for what? Would more shares help, a
//! limit, no scheduler at all? A restart would end the situation that is to be examined.
//!
//! # How it works
//! A program makes a [`Server`] beside its shards. The server listens at `PID.sock` in the [`directory`] of its user,
//! which other users cannot enter, and accepts only clients of the same user or of root. One thread serves all clients,
//! line by line ([`Request`], [`Answer`]). Changes are made in the registries that shards follow
//! ([`Classes`](crate::Classes), [`Topology::set_mode`](crate::Topology::set_mode),
//! [`Topology::trace`](crate::Topology::trace)). For a snapshot the server asks the shards, which have 200 ms to
//! answer. No shard ever waits for a client.
//!
//! `plimsoll attach` is a client; [`Client`] is for other programs, and any tool can send a line of JSON.
//! docs/formats.md describes the protocol.
//!
//! # Limits
//! One socket per process, at most 16 clients: a further one displaces an idle one. A client can make the program
//! record a trace only into the directory of its socket, which holds at most 1 GiB of traces. Linux reports the peer's
//! credentials at the time of connecting.
//!
//! # Example
//! A program that serves its socket, and a client (here in the same process) that reads the state and gives a class
//! more shares.
//! ```
//! # let directory = std::env::temp_dir().join(format!("plimsoll-control-{}", std::process::id()));
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll::control::{Client, Request, Server};
//! use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
//!
//! let classes = Classes::new();
//! let query = classes.add_class("query", None, 100)?;
//! let topology = Topology::new(1, classes, vec![DiskSetup::unlimited()])?;
//! let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
//! let runtime = Runtime::start(&topology, &options)?;
//! // Server::start(&topology, "my-database") takes the usual directory, where `plimsoll attach` looks.
//! let server = Server::start_in(&directory, &topology, "my-database")?;
//!
//! let mut client = Client::connect(server.path())?;
//! assert_eq!(client.hello().program, "my-database");
//! client.change(&Request::SetShares { class: "query".to_owned(), shares: 400 })?;
//! assert_eq!(topology.classes().list()[query.index()].shares, 400);
//! let snapshot = client.snapshot()?;
//! assert!(snapshot.disks[0].classes.iter().any(|class| class.class == "query" && class.queued == 0));
//! # drop(server);
//! # std::fs::remove_dir(&directory)?;
//! # drop(runtime);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod connection;
mod place;
mod protocol;
mod server;
mod snapshot;
mod traces;

pub use client::{Client, ClientError};
pub use place::{directory, prepare, programs, socket_of};
pub use protocol::{
    Answer, ClassSettings, ClassState, DiskInfo, DiskState, ErrorCode, Hello, LINE_MAX_BYTES, Limit, LimitsChange,
    Mode, PROTOCOL, Percentiles, Recent, Request, Snapshot, TraceStopped, WindowLimit,
};
pub use server::{ServeError, Server};

#[cfg(test)]
mod tests;
