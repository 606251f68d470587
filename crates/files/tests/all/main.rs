//! The files as people write them: what is read, what is refused and where. One test program, a module for each kind.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod check;
mod csv;
mod disk_file;
mod errors;
mod fio_jobs;
mod io_properties;
mod jobs;
mod sched_groups;
