//! What the commands do, without a terminal.

pub mod config;
pub mod demo;
pub mod load;
pub mod plot;
pub mod report;
pub mod setup;
pub mod sim;
pub mod test;
pub mod tune;
pub mod units;
