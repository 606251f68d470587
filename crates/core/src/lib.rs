//! The Plimsoll scheduler.
mod cost;
mod hist;
pub mod math;
mod request;
mod units;
pub use cost::*;
pub use hist::*;
pub use request::{Direction, Op};
pub use units::{Cost, FS_PER_NS, FS_PER_S, Rate};
