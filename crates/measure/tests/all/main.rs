//! What is measured, on backends that need no disk and on simulated disks. One test program, a module for each kind of
//! story.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod demo;
mod fio_files;
mod fio_json;
mod load;
mod load_time;
mod load_verify;
mod scenario_file;
#[path = "../../../skip.rs"]
mod skip;
mod test_report;
mod tune;
mod tune_checked;
mod tune_sim;
mod verdicts;
