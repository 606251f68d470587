//! The library that `plimsoll run` loads into a program: its reads, writes and syncs of managed files pass a gate.
//!
//! # Why
//! Most users cannot change their database. But its calls can be distinguished from outside, by thread name, file and
//! operation, and held back until the disk has room for them.
//!
//! # How it works
//! The library defines `read`, `pwrite`, `fsync` and related functions, which the dynamic linker prefers to libc's.
//! Each looks up its descriptor in a table (`fds`). A call on an unmanaged file continues at once. For the rest, rules
//! choose the class (`rules`), and the call goes through [`plimsoll::Gate`] (`passage`). One process of a run has the
//! gate (`gate`); the others use it through slots (`route`, `slots`, `server`). Counters and slots are in memory
//! that these processes and the command share.
//!
//! # Limits
//! I/O that bypasses libc's functions is not managed: stdio's own calls (`fread`), `mmap`, io_uring, static programs,
//! raw system calls. If a signal handler reads or writes a managed file while its thread is in one of the functions,
//! its call bypasses the gate; one that jumps out of there is described in `inside`. Appending and vectored calls,
//! those at the descriptor's position, and direct I/O that is not of whole blocks of 4 KiB, are never cut: they are
//! charged in pieces, and submitted whole. Copies inside the kernel are charged after each piece. A trace has the name
//! that a file had at its first call, even if the file is renamed later. Besides `io`, only this crate and `capi` have
//! `unsafe`.
//!
//! # Example
//! ```text
//! plimsoll run --rules rocksdb --disk model.yaml --dir /data -- db_bench --db=/data ...
//! ```

mod apart;
mod calls;
mod copies;
mod errno;
mod fds;
mod files;
mod gate;
#[path = "../../handover.rs"]
mod handover;
mod housekeeper;
mod inside;
mod load;
mod memory;
mod names;
mod passage;
mod readable;
mod real;
mod route;
mod rules;
mod server;
mod slots;
mod state;
mod transfers;

#[global_allocator]
static MEMORY: memory::Memory = memory::Memory::new();
