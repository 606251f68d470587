//! The four figures of a disk, with the keys of io-properties.
//!
//! **Why.** A file, a preset and a cost form describe a disk by the same four figures. Some may be unknown or
//! unlimited.
//!
//! **How.** One structure has all of them; [`Four::map`] and [`Four::with`] compute each figure in the same way.
//!
//! **Limits.** The scheduler's own figures are [`FourFigures`]; the tables of presets have no unlimited rate.
//!
//! **Example.** `Four::of(&figures).map(Rate::get)` are the limits, `None` for an unlimited rate.

use plimsoll_core::{FourFigures, Rate};
use serde::Serialize;

/// Operations and bytes per second, of reads and of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Four<T> {
    pub read_iops: T,
    /// Bytes read per second.
    pub read_bandwidth: T,
    pub write_iops: T,
    /// Bytes written per second.
    pub write_bandwidth: T,
}

impl Four<Rate> {
    pub fn of(figures: &FourFigures) -> Four<Rate> {
        let FourFigures { read_iops, read_bandwidth, write_iops, write_bandwidth } = *figures;
        Four { read_iops, read_bandwidth, write_iops, write_bandwidth }
    }
}

impl<T: Copy> Four<T> {
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Four<U> {
        self.with(self, |figure, _| f(figure))
    }

    pub fn with<U: Copy, V>(self, other: Four<U>, f: impl Fn(T, U) -> V) -> Four<V> {
        Four {
            read_iops: f(self.read_iops, other.read_iops),
            read_bandwidth: f(self.read_bandwidth, other.read_bandwidth),
            write_iops: f(self.write_iops, other.write_iops),
            write_bandwidth: f(self.write_bandwidth, other.write_bandwidth),
        }
    }
}
