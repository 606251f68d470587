//! The library that `plimsoll run` loads into a program: its reads, writes and syncs of managed files pass a gate.
//!
//! # Why
//! Most people cannot change their database. But its calls can be distinguished from outside (by thread name, file and
//! operation), and can be held back until the disk has room for them.
//!
//! # How it works
//! The library defines `read`, `pwrite`, `fsync` and their relatives; the dynamic linker prefers them to libc's. Each
//! looks its descriptor up in a table (`fds`). A call on an unmanaged file continues at once. For the rest, rules
//! choose the class (`rules`), and the call goes through [`plimsoll::Gate`] (`passage`). One process of a run has the
//! gate (`state`); the others ask it (`desk`). Counters and desks lie in memory shared by all of them and the command.
//!
//! # Limits
//! I/O that does not go through libc's functions is not seen: stdio's own calls (`fread`), `mmap`, io_uring, static
//! programs, raw system calls. If a signal handler reads or writes a managed file while its thread is in one of the
//! functions, its call bypasses the gate. Appending and vectored calls are never cut: they are charged in pieces, and
//! submitted whole. Copies inside the kernel are charged after each piece. A trace has the name that a file had at its
//! first call, even if it is renamed later. This is the one crate beside `io` with `unsafe`.
//!
//! # Example
//! ```text
//! plimsoll run --rules rocksdb --disk model.yaml --dir /data -- db_bench --db=/data ...
//! ```

mod calls;
mod copies;
mod desk;
mod errno;
mod fds;
#[path = "../../handover.rs"]
mod handover;
mod names;
mod passage;
mod real;
mod rules;
mod state;
