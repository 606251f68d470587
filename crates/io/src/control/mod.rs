//! A local socket through which a running program is looked at and changed.
//!
//! # Why
//! When a program is slow, the questions come now: which class waits, and for what? What if it had more shares, a limit, no
//! scheduler at all? A program that must be started anew to answer them will not be asked.
//!
//! # How it works
//! A program makes a [`Server`] beside its shards. It listens at `PID.sock` in the [`directory`] of its user, which nobody
//! else can enter; each client is seen to be the same user, or root. One thread serves all clients, line by line
//! ([`Request`], [`Answer`]). Changes go into the registries that shards follow on their own
//! ([`Classes`](crate::Classes), [`Topology::set_mode`](crate::Topology::set_mode), [`Topology::trace`](crate::Topology::trace));
//! for a snapshot the shards are asked, and have 200 ms to answer. No shard ever waits for a client.
//!
//! `plimsoll attach` is a client; [`Client`] makes others, and a line of JSON sent by any tool will do. The protocol is in
//! docs/formats.md.
//!
//! # Limits
//! One socket a process, 16 clients: one more takes the place of one that asks nothing. A client has the program record a
//! trace only into the directory of its socket, and 1 GiB at most lies there. Linux's peer credentials are those of the moment of connecting.
//!
//! # Example
//! A program that serves its socket, and a client (here in the same process) that finds out what is going on, and
//! gives a class more.
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
mod look;
mod place;
mod protocol;
mod server;
mod traces;

pub use client::{Client, ClientError};
pub use place::{directory, prepare, programs, socket_of};
pub use protocol::{
    Answer, ClassInfo, ClassState, DiskInfo, DiskState, ErrorCode, Hello, LINE_MAX_BYTES, Limit, LimitsChange, Mode,
    PROTOCOL, Percentiles, Recent, Request, Snapshot, TraceStopped,
};
pub use server::{ServeError, Server};

#[cfg(test)]
mod tests;
