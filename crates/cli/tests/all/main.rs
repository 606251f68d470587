//! The `plimsoll` binary as people and scripts meet it: arguments, messages, exit codes, formats, signals.
//!
//! One test program, a module for each kind of story. Every run has a directory of its own, and whatever the run was,
//! the directory must hold afterwards what it held before. What a machine lacks (namespaces, loop devices, python3)
//! skips a test with one line saying so (`skip.rs`).

mod answer;
mod attach;
mod browser;
mod cache;
mod compare;
#[cfg(feature = "parquet")]
mod depot;
mod devtools;
mod examine;
mod experiment;
mod extension;
mod fio_files;
mod info;
mod instance_card;
mod instance_compare;
mod instance_scaling;
mod interrupt;
mod live;
mod machine;
mod pages;
mod presets;
mod refused;
mod report;
mod results;
mod run;
mod serve;
mod shown;
mod sim;
#[path = "../../../skip.rs"]
mod skip;
mod stat;
mod terminal;
mod trace_limiter;
mod trace_replay;
mod tune;
#[cfg(feature = "s3")]
#[path = "../../../versitygw.rs"]
mod versitygw;
mod world;
