//! What `plimsoll run` loads into a program: its reads, writes and syncs of managed files pass a gate.
//!
//! # Why
//! Most people cannot change their database. The calls that it makes can be told apart from outside (the name of the thread,
//! the file, the operation), and can be held back until the disk can take them.
//!
//! # How it works
//! The library defines `read`, `pwrite`, `fsync` and their relatives; the dynamic linker prefers them to libc's. Each looks into a
//! table of descriptors (`fds`): what is not managed goes on at once. For the rest, rules say the class (`rules`), and the
//! call goes through [`plimsoll::Gate`] (`passage`). `state` knows when there is a gate: not while the program starts, not in
//! a process made by `fork`, and in one process of a run only. What is counted lies in memory shared with the command.
//!
//! # Limits
//! What does not go through libc's functions is not seen: stdio's own calls (`fread`), `mmap`, io_uring, static programs, raw
//! system calls. A signal handler that reads or writes a managed file passes by if its thread is in one of the functions.
//! Appending and vectored calls are never cut: they are charged in pieces, and go whole. A trace has the name that a file had at its
//! first call: one that was renamed before has its new one. This is the one crate beside `io` with `unsafe`.
//!
//! # Example
//! ```text
//! plimsoll run --rules rocksdb --disk model.yaml --dir /data -- db_bench --db=/data ...
//! ```

mod calls;
mod errno;
mod fds;
#[path = "../../handover.rs"]
mod handover;
mod names;
mod passage;
mod real;
mod rules;
mod state;
