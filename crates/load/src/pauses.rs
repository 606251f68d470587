//! Pauses of a whole job, each after a number of requests.
//!
//! **Why.** fio's `thinktime_blocks` bounds a burst: all requests of a job count, and before it pauses the job waits
//! for those in flight.
//!
//! **How.** [`Pauses`] counts completions. When a pause is due, fibers are held instead of sending; once nothing is in
//! flight, the runner begins the pause and wakes all fibers after it.
//!
//! **Limits.** As in fio, requests that complete while the job waits count for the next pause: with more in flight than
//! there are requests between two pauses, bursts have different lengths. No pause follows the last request of a job.
//!
//! **Example.** After each 8 requests of 4 in flight: 8 complete and 3 more are in flight, which are the first of the
//! next 8.

pub(super) struct Pauses {
    /// Requests between two pauses, at least 1.
    every: u64,
    done: u64,
    /// Requests that had completed when the last pause was due.
    done_at_last: u64,
    /// Whether a pause is due and has not begun.
    is_due: bool,
    /// Fibers that wait for the pause.
    held: Vec<u32>,
    /// End of the last pause; 0 before the first.
    end_ns: u64,
}

impl Pauses {
    pub(super) fn new(every: u32) -> Pauses {
        Pauses { every: u64::from(every.max(1)), done: 0, done_at_last: 0, is_due: false, held: Vec::new(), end_ns: 0 }
    }

    pub(super) fn count(&mut self) {
        self.done += 1;
        self.check();
    }

    /// Makes a pause due if enough requests have completed since the last. Call it after each submission, too.
    pub(super) fn check(&mut self) {
        if !self.is_due && self.done - self.done_at_last >= self.every {
            (self.is_due, self.done_at_last) = (true, self.done);
        }
    }

    /// Holds `fiber` if a pause is due, and returns whether it is.
    pub(super) fn hold(&mut self, fiber: u32) -> bool {
        if self.is_due {
            self.held.push(fiber);
        }
        self.is_due
    }

    /// Begins the pause, which lasts until `end_ns`. Returns the fibers to wake after it.
    pub(super) fn begin(&mut self, end_ns: u64) -> Vec<u32> {
        (self.is_due, self.end_ns) = (false, end_ns);
        std::mem::take(&mut self.held)
    }
}

/// Returns the time from which the latency of a request due at `due_ns` counts: a pause of its job is no delay.
pub(super) fn due_after(pauses: Option<&Pauses>, due_ns: u64) -> u64 {
    pauses.map_or(due_ns, |pauses| due_ns.max(pauses.end_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the requests sent before each pause, by a job with `depth` in flight that sends `total`.
    fn pauses(every: u32, depth: u32, total: u32) -> Vec<u32> {
        let (mut pauses, mut sent, mut under_way, mut at) = (Pauses::new(every), 0, 0, Vec::new());
        loop {
            // All free fibers send, unless they are held.
            while under_way < depth && sent < total && !pauses.hold(0) {
                (sent, under_way) = (sent + 1, under_way + 1);
                pauses.check();
            }
            if under_way > 0 {
                under_way -= 1;
                pauses.count();
            } else if sent < total {
                at.push(sent);
                pauses.begin(0);
            } else {
                return at;
            }
        }
    }

    /// The counts are those of fio 3.33 (psync, and libaio with a queue).
    #[test]
    fn bursts_are_as_long_as_those_of_fio() {
        assert_eq!(pauses(5, 1, 16), [5, 10, 15]);
        assert_eq!(pauses(5, 3, 16), [7, 12]);
        assert_eq!(pauses(5, 8, 16), [12, 13]);
        assert_eq!(pauses(7, 4, 40).len(), 5);
        assert_eq!(pauses(10, 16, 64).len(), 4);
        assert_eq!(pauses(1, 4, 6), [4, 5]);
        assert!(pauses(100, 4, 16).is_empty());
    }
}
