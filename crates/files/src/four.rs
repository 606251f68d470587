//! The four figures of a disk, under the keys of io-properties.
//!
//! **Why.** What a disk does by a file, by a preset, and by a cost form is said in the same four figures, of which some
//! may be unknown or unlimited.
//!
//! **How.** One structure for all of them; [`Four::map`] and [`Four::with`] compute each figure the same way.
//!
//! **Limits.** The scheduler's own are [`FourFigures`]; those of the tables of presets know no unlimited rate.
//!
//! **Example.** `Four::of(&figures).map(Rate::get)` are the limits, `None` where there is none.

use plimsoll_core::{FourFigures, Rate};
use serde::Serialize;

/// Operations and bytes a second, of reads and of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Four<T> {
    /// Read operations a second.
    pub read_iops: T,
    /// Bytes read a second.
    pub read_bandwidth: T,
    /// Write operations a second.
    pub write_iops: T,
    /// Bytes written a second.
    pub write_bandwidth: T,
}

impl Four<Rate> {
    /// The scheduler's figures.
    #[must_use]
    pub fn of(figures: &FourFigures) -> Four<Rate> {
        let FourFigures { read_iops, read_bandwidth, write_iops, write_bandwidth } = *figures;
        Four { read_iops, read_bandwidth, write_iops, write_bandwidth }
    }
}

impl<T: Copy> Four<T> {
    /// What `f` makes of each.
    #[must_use]
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Four<U> {
        self.with(self, |figure, _| f(figure))
    }

    /// What `f` makes of each and its counterpart.
    #[must_use]
    pub fn with<U: Copy, V>(self, other: Four<U>, f: impl Fn(T, U) -> V) -> Four<V> {
        Four {
            read_iops: f(self.read_iops, other.read_iops),
            read_bandwidth: f(self.read_bandwidth, other.read_bandwidth),
            write_iops: f(self.write_iops, other.write_iops),
            write_bandwidth: f(self.write_bandwidth, other.write_bandwidth),
        }
    }
}
