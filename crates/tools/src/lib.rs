//! What the commands do, without a terminal.

pub mod attach;
pub mod cache;
pub mod check;
pub mod compare;
pub mod compressibility;
pub mod config;
pub mod demo;
pub mod experiment;
pub mod fio_json;
pub mod info;
pub mod instance;
pub mod load;
pub mod metrics;
pub mod page;
pub mod plot;
pub mod presets;
pub mod report;
pub mod report_page;
pub mod setup;
pub mod sim;
#[cfg(test)]
#[path = "../../skip.rs"]
mod skip;
pub mod stat;
pub mod test;
pub mod trace;
pub mod tune;
pub mod units;
