//! Sums over the time of a trace, in parts of equal length that grow with it.
//!
//! **Why.** Whether a figure of a trace is more than chance, and whether it stays the same, shows in its parts only.
//!
//! **How.** At most [`PARTS_MAX`] parts, at first of 1.024 us. When the trace becomes longer, parts are put together in
//! pairs; so the order of what comes does not matter.
//!
//! **Limits.** One time stamp far away makes all parts long. The first and the last part are rarely full.
//!
//! **Example.**
//! ```
//! use plimsoll_tools::trace::windows::Windows;
//! let mut windows = Windows::default();
//! windows.add(100, 7.0);
//! windows.add(5_000, 9.0);
//! windows.stay(0, 5_000);
//! assert_eq!(windows.means(), [7.0, 9.0]);
//! assert_eq!(windows.parts().iter().map(|(_, part)| part.stay_ns).sum::<f64>(), 5_000.0);
//! ```

/// Most parts.
pub const PARTS_MAX: usize = 64;

/// Length of a part at the beginning, as a power of two in ns.
const FIRST_SHIFT: u32 = 10;

/// What one part of the time holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// Values added.
    pub count: u64,
    /// Their sum, in their unit.
    pub sum: f64,
    /// Time spent in it by all that stayed, in ns.
    pub stay_ns: f64,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Windows {
    shift: u32,
    /// Number of the first part: its begin divided by the length.
    first: u64,
    parts: Vec<Part>,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { shift: FIRST_SHIFT, first: 0, parts: Vec::new() }
    }
}

impl Windows {
    /// A value belongs to `time_ns`.
    pub fn add(&mut self, time_ns: u64, value: f64) {
        self.reach(time_ns, time_ns);
        if let Some(part) = self.part(time_ns >> self.shift) {
            part.count += 1;
            part.sum += value;
        }
    }

    /// Something was there from `from_ns` to `to_ns`; nothing where it ends before it begins.
    pub fn stay(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns <= from_ns {
            return;
        }
        self.reach(from_ns, to_ns - 1);
        let shift = self.shift;
        for number in from_ns >> shift..=(to_ns - 1) >> shift {
            let begin_ns = number << shift;
            let end_ns = begin_ns.saturating_add(1 << shift);
            if let Some(part) = self.part(number) {
                part.stay_ns += (to_ns.min(end_ns) - from_ns.max(begin_ns)) as f64;
            }
        }
    }

    /// Length of a part in ns.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        1 << self.shift
    }

    /// Puts parts together until they are at least so long, in ns.
    pub fn lengthen(&mut self, length_ns: u64) {
        while self.length_ns() < length_ns {
            self.halve();
        }
    }

    /// Parts with their begin in ns.
    #[must_use]
    pub fn parts(&self) -> Vec<(u64, Part)> {
        (self.first..).zip(&self.parts).map(|(number, part)| (number << self.shift, *part)).collect()
    }

    /// Means of parts that hold values, in the order of time.
    #[must_use]
    pub fn means(&self) -> Vec<f64> {
        self.parts.iter().filter(|part| part.count > 0).map(|part| part.sum / part.count as f64).collect()
    }

    fn part(&mut self, number: u64) -> Option<&mut Part> {
        self.parts.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Has parts for this range of time.
    fn reach(&mut self, from_ns: u64, to_ns: u64) {
        if self.parts.is_empty() {
            self.first = from_ns >> self.shift;
        }
        loop {
            let first = self.first.min(from_ns >> self.shift);
            let end = (self.first + self.parts.len() as u64).max((to_ns >> self.shift) + 1);
            if end - first <= PARTS_MAX as u64 {
                let before = (self.first - first) as usize;
                self.parts.splice(..0, std::iter::repeat_n(Part::default(), before));
                self.first = first;
                let length = self.parts.len().max((end - first) as usize);
                self.parts.resize(length, Part::default());
                return;
            }
            self.halve();
        }
    }

    /// Puts parts together in pairs.
    fn halve(&mut self) {
        if self.first % 2 == 1 {
            self.parts.insert(0, Part::default());
        }
        let sum = |sum: Part, part: &Part| Part {
            count: sum.count + part.count,
            sum: sum.sum + part.sum,
            stay_ns: sum.stay_ns + part.stay_ns,
        };
        self.parts = self.parts.chunks(2).map(|pair| pair.iter().fold(Part::default(), sum)).collect();
        self.first /= 2;
        self.shift += 1;
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
