//! The time of a trace in parts of equal length that grow with the trace.
//!
//! **Why.** A trace is read once, its events in any order, and its length is known only at the end. Sums over its time
//! must fit memory all the same.
//!
//! **How.** At most `MAX` parts, at first of 1.024 us. When the trace becomes longer, parts are joined in pairs, so
//! that a length is a power of two and the order of the events does not matter.
//!
//! **Limits.** One time stamp far away makes all parts long. The first and the last part are rarely full.
//!
//! **Example.** With 4 parts, times 0 and 5 us need five parts of 1.024 us; so they become three of 2.048 us.

/// Length of a part at first, as a power of two in ns.
const FIRST_SHIFT: u32 = 10;

/// The contents of a part; the default is an empty part.
pub(super) trait Sum: Copy + Default {
    /// Returns both together.
    fn plus(self, other: Self) -> Self;
}

/// See the module's documentation. `MAX` is at least 2.
#[derive(Clone, Debug)]
pub(super) struct Parts<T, const MAX: usize> {
    shift: u32,
    /// Number of the first part: its begin divided by the length.
    first: u64,
    parts: Vec<T>,
}

impl<T, const MAX: usize> Default for Parts<T, MAX> {
    fn default() -> Self {
        Parts { shift: FIRST_SHIFT, first: 0, parts: Vec::new() }
    }
}

impl<T: Sum, const MAX: usize> Parts<T, MAX> {
    /// Returns the length of a part in ns.
    pub(super) fn length_ns(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the parts, each with its begin in ns.
    pub(super) fn all(&self) -> Vec<(u64, T)> {
        (self.first..).map(|number| number << self.shift).zip(self.parts.iter().copied()).collect()
    }

    /// Returns the part that contains `time_ns`.
    pub(super) fn at(&mut self, time_ns: u64) -> Option<&mut T> {
        self.reach(time_ns, time_ns);
        let number = self.number(time_ns);
        self.get_mut(number)
    }

    /// Calls `add` with each part that the time from `from_ns` to `to_ns` touches, and the time within that part in ns.
    /// If the time ends before it begins, does nothing.
    pub(super) fn spread(&mut self, from_ns: u64, to_ns: u64, mut add: impl FnMut(&mut T, u64)) {
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
                add(part, within_ns);
            }
        }
    }

    /// Returns the number of the part that contains a time.
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

    /// Joins parts in pairs.
    pub(super) fn halve(&mut self) {
        if self.first % 2 == 1 {
            self.parts.insert(0, T::default());
        }
        self.parts =
            self.parts.chunks(2).map(|pair| pair.iter().fold(T::default(), |sum, part| sum.plus(*part))).collect();
        self.first /= 2;
        self.shift += 1;
    }
}
