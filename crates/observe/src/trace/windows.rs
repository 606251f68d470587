//! Sums over the time of a trace, in parts of equal length that grow with the trace.
//!
//! **Why.** Only its parts show whether a figure of a trace is more than chance, and whether it stays the same.
//!
//! **How.** At most [`PARTS_MAX`] parts (module `parts`), each with the sums of the values in it.
//!
//! **Limits.** One time stamp far away makes all parts long. The first and the last part are rarely full.
//!
//! **Example.**
//! ```
//! use plimsoll_observe::trace::windows::Windows;
//! let mut windows = Windows::default();
//! windows.add(100, 7.0);
//! windows.add(5_000, 9.0);
//! windows.stay(0, 5_000);
//! assert_eq!(windows.means(), [7.0, 9.0]);
//! assert_eq!(windows.parts().iter().map(|(_, part)| part.stay_ns).sum::<f64>(), 5_000.0);
//! ```

use super::parts::{Parts, Sum};

/// Most parts.
pub const PARTS_MAX: usize = 64;

/// The sums of one part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Number of values.
    pub count: u64,
    /// Sum of the values, in their unit.
    pub sum: f64,
    /// Time spent in this part by all stays together, in ns.
    pub stay_ns: f64,
}

impl Sum for Part {
    fn plus(self, other: Part) -> Part {
        Part { count: self.count + other.count, sum: self.sum + other.sum, stay_ns: self.stay_ns + other.stay_ns }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    parts: Parts<Part, PARTS_MAX>,
}

impl Windows {
    /// Adds a value at `time_ns`.
    pub fn add(&mut self, time_ns: u64, value: f64) {
        if let Some(part) = self.parts.at(time_ns) {
            part.count += 1;
            part.sum += value;
        }
    }

    /// Adds a stay from `from_ns` to `to_ns`. If it ends before it begins, does nothing.
    pub fn stay(&mut self, from_ns: u64, to_ns: u64) {
        self.parts.spread(from_ns, to_ns, |part, within_ns| part.stay_ns += within_ns as f64);
    }

    /// Returns the length of a part in ns.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.parts.length_ns()
    }

    /// Joins parts until each is at least `length_ns` long.
    pub fn lengthen(&mut self, length_ns: u64) {
        while self.length_ns() < length_ns {
            self.parts.halve();
        }
    }

    /// Returns the parts, each with its begin in ns.
    #[must_use]
    pub fn parts(&self) -> Vec<(u64, Part)> {
        self.parts.all()
    }

    /// Returns the means of the parts that hold values, in the order of time.
    #[must_use]
    pub fn means(&self) -> Vec<f64> {
        self.parts().iter().filter(|(_, part)| part.count > 0).map(|(_, part)| part.sum / part.count as f64).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_however_long_it_becomes_and_in_whatever_order_it_comes() {
        for step_ns in [1, 100, 77_777, 10_000_000] {
            let mut windows = Windows::default();
            for at in 0..1_000_u64 {
                let time_ns = (1 << 40) + (at * 7919 % 1_000) * step_ns;
                windows.add(time_ns, at as f64);
                windows.stay(time_ns, time_ns + 3 * step_ns);
            }
            let parts = windows.parts();
            assert!(parts.len() <= PARTS_MAX && parts.is_sorted_by_key(|(begin_ns, _)| *begin_ns));
            assert_eq!(parts.iter().map(|(_, part)| part.count).sum::<u64>(), 1_000);
            assert_eq!(parts.iter().map(|(_, part)| part.sum).sum::<f64>(), 499_500.0);
            assert_eq!(parts.iter().map(|(_, part)| part.stay_ns).sum::<f64>(), (3_000 * step_ns) as f64);
        }
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_no_harm() {
        let mut windows = Windows::default();
        windows.stay(0, u64::MAX);
        windows.add(u64::MAX, 1.0);
        windows.add(0, 1.0);
        assert!(windows.parts().len() <= PARTS_MAX);
    }
}
