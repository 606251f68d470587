//! Sums over the time of a trace, in parts of equal length that grow with the trace.
//!
//! **Why.** Only its parts show whether a figure of a trace is more than chance, and whether it is stable. A trace is
//! read once, its events in any order, and its length is known only at the end. Sums over its time must still fit in
//! memory.
//!
//! **How.** At most `MAX` parts, at first of 1.024 us, each with several sums. When the trace becomes longer, parts are
//! joined in pairs, so that a length is a power of two and the order of the events does not matter.
//!
//! **Limits.** One time stamp far away makes all parts long. The first and the last part are rarely full. Sums are
//! exact up to 2^53.
//!
//! **Example.** With 4 parts, times 0 and 5 us need five parts of 1.024 us; so they become three of 2.048 us.

/// Length of a part at first, as a power of two in ns.
const FIRST_SHIFT: u32 = 10;

/// Sums that can be joined with those of another part.
pub(super) trait Join: Copy + Default {
    fn join(&mut self, other: &Self);
}

impl Join for f64 {
    fn join(&mut self, other: &f64) {
        *self += other;
    }
}

impl<T: Join, const N: usize> Join for [T; N]
where
    [T; N]: Default,
{
    fn join(&mut self, other: &[T; N]) {
        self.iter_mut().zip(other).for_each(|(sum, other)| sum.join(other));
    }
}

/// Sums over time in at most `MAX` parts (2 or more) of equal length.
#[derive(Clone, Debug)]
pub(super) struct Parts<T, const MAX: usize> {
    shift: u32,
    /// Number of the first part: its begin divided by the length.
    first: u64,
    parts: Vec<T>,
}

/// Values over time: their number, their sum, and the time that all stays together spent in the part, in ns.
pub(super) type Windows = Parts<[f64; 3], 64>;

impl Windows {
    pub(super) fn add(&mut self, time_ns: u64, value: f64) {
        if let Some([count, sum, _]) = self.at(time_ns) {
            *count += 1.0;
            *sum += value;
        }
    }

    /// Adds a stay from `from_ns` to `to_ns`. If it ends before it begins, does nothing.
    pub(super) fn stay(&mut self, from_ns: u64, to_ns: u64) {
        self.spread(from_ns, to_ns, |[.., stay_ns], within_ns| *stay_ns += within_ns);
    }

    /// Returns the means of the parts that hold values, in the order of time.
    pub(super) fn means(&self) -> Vec<f64> {
        self.parts.iter().filter(|[count, ..]| *count > 0.0).map(|[count, sum, _]| sum / count).collect()
    }
}

impl<T, const MAX: usize> Default for Parts<T, MAX> {
    fn default() -> Self {
        Parts { shift: FIRST_SHIFT, first: 0, parts: Vec::new() }
    }
}

impl<T: Join, const MAX: usize> Parts<T, MAX> {
    pub(super) fn length_ns(&self) -> u64 {
        1 << self.shift
    }

    pub(super) fn all(&self) -> Vec<(u64, T)> {
        (self.first..).map(|number| number << self.shift).zip(self.parts.iter().copied()).collect()
    }

    /// Empties the parts that begin at these times.
    pub(super) fn leave_out(&mut self, begins_ns: &[u64]) {
        let shift = self.shift;
        let parts = (self.first..).zip(&mut self.parts);
        parts.filter(|(at, _)| begins_ns.contains(&(at << shift))).for_each(|(_, part)| *part = T::default());
    }

    /// Returns the sums of all parts together.
    pub(super) fn joined(&self) -> T {
        joined(&self.parts)
    }

    pub(super) fn at(&mut self, time_ns: u64) -> Option<&mut T> {
        self.reach(time_ns, time_ns);
        let number = self.number(time_ns);
        self.get_mut(number)
    }

    /// Calls `add` with each part and the time from `from_ns` to `to_ns` that lies within it, in ns. If the time ends
    /// before it begins, does nothing.
    pub(super) fn spread(&mut self, from_ns: u64, to_ns: u64, mut add: impl FnMut(&mut T, f64)) {
        if to_ns <= from_ns {
            return;
        }
        // The nanosecond before the end, so that an end on a border does not reach into the next part.
        self.reach(from_ns, to_ns - 1);
        let length_ns = self.length_ns();
        for number in self.number(from_ns)..=self.number(to_ns - 1) {
            let begin_ns = number * length_ns;
            let within_ns = to_ns.min(begin_ns.saturating_add(length_ns)) - from_ns.max(begin_ns);
            if let Some(part) = self.get_mut(number) {
                add(part, within_ns as f64);
            }
        }
    }

    fn number(&self, time_ns: u64) -> u64 {
        time_ns >> self.shift
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.parts.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Makes parts for this range of time.
    fn reach(&mut self, from_ns: u64, to_ns: u64) {
        if self.parts.is_empty() {
            self.first = self.number(from_ns);
        }

        loop {
            let first = self.first.min(self.number(from_ns));
            let end = (self.first + self.parts.len() as u64).max(self.number(to_ns) + 1);
            if end - first <= MAX as u64 {
                let before = (self.first - first) as usize;
                if before > 0 {
                    self.parts.splice(..0, std::iter::repeat_n(T::default(), before));
                    self.first = first;
                }
                let count = self.parts.len().max((end - first) as usize);
                self.parts.resize(count, T::default());
                return;
            }
            self.halve();
        }
    }

    /// Joins parts until each is at least `length_ns` long.
    pub(super) fn lengthen(&mut self, length_ns: u64) {
        while self.length_ns() < length_ns {
            self.halve();
        }
    }

    /// Adds the sums of other parts, each where its time is.
    pub(super) fn join(&mut self, other: &Parts<T, MAX>) {
        let mut other = other.clone();
        other.lengthen(self.length_ns());
        self.lengthen(other.length_ns());
        for (begin_ns, part) in other.all() {
            if let Some(sum) = self.at(begin_ns) {
                sum.join(&part);
            }
        }
    }

    /// Joins parts in pairs.
    fn halve(&mut self) {
        if self.first % 2 == 1 {
            self.parts.insert(0, T::default());
        }
        self.parts = self.parts.chunks(2).map(joined).collect();
        self.first /= 2;
        self.shift += 1;
    }
}

fn joined<T: Join>(parts: &[T]) -> T {
    let mut sum = T::default();
    parts.iter().for_each(|part| sum.join(part));
    sum
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
            let parts = windows.all();
            assert!(parts.len() <= 64 && parts.is_sorted_by_key(|(begin_ns, _)| *begin_ns));
            assert_eq!(parts.iter().map(|(_, part)| part[0]).sum::<f64>(), 1_000.0);
            assert_eq!(parts.iter().map(|(_, part)| part[1]).sum::<f64>(), 499_500.0);
            assert_eq!(parts.iter().map(|(_, part)| part[2]).sum::<f64>(), (3_000 * step_ns) as f64);
        }
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_no_harm() {
        let mut windows = Windows::default();
        windows.stay(0, u64::MAX);
        windows.add(u64::MAX, 1.0);
        windows.add(0, 1.0);
        assert!(windows.all().len() <= 64);
    }
}
