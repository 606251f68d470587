//! What the commands do, without a terminal.

pub mod config;
pub mod demo;
pub mod load;
pub mod report;
pub mod setup;
pub mod test;
pub mod tune;
pub mod units;
