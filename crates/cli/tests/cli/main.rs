//! The `plimsoll` binary as people and scripts meet it: arguments, messages, exit codes, formats, signals.
//!
//! One test program, a module for each kind of story. Every run has a directory of its own, and whatever the run was,
//! the directory must hold afterwards what it held before. What a machine lacks (namespaces, python3) skips a test with
//! one line saying so.

mod info;
mod interrupt;
mod machine;
mod refused;
mod results;
mod sim;
mod world;
