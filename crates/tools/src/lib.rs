//! What the commands do, without a terminal.

pub mod config;
pub mod units;
